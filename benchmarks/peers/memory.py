"""Memory of a process and its descendants, from Linux's /proc."""

from __future__ import annotations

from pathlib import Path


def tree_bytes(pid: int) -> int:
    """Bytes of a process and its descendants; shared pages count once."""
    return _proportional_bytes(pid) + sum(tree_bytes(child) for child in _children(pid))


def _proportional_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not say how much memory process {pid} has")


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]
