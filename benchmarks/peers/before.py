"""The package before a feature existed, from the history of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD


@contextmanager
def tree_before(*words: str) -> Iterator[Path | None]:
    """A temporary folder with the tree before the first commit that `git log WORDS` finds.

    None without such a commit, or without the history.
    """
    found = _git("log", "--format=%H", *words).decode().split()[-1:]
    content = _git("archive", f"{found[0]}^") if found else b""
    if not content:
        yield None
        return
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def build(tree: Path) -> None:
    """Builds what is written in C, in place."""
    command = (sys.executable, "setup.py", "build_ext", "--inplace")
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


def differing_runs(tree: Path) -> list[str]:
    """Tasks of `weights_digest.py` that end with other weights than with this tree."""
    one, other = (_digests(each) for each in (ROOT, tree))
    return [name for name, digest in one.items() if other.get(name) != digest]


def _git(*words: str) -> bytes:
    """Output of git, or nothing if it fails."""
    command = ("git", "-C", str(ROOT), *words)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return b"" if done.returncode else done.stdout


def _digests(tree: Path) -> Mapping[str, str]:
    """Output of `weights_digest.py` with the entity_env of a tree."""
    script = ROOT / "benchmarks" / "peers" / "weights_digest.py"
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree)}
    command = (sys.executable, str(script), str(ROOT / "examples"))
    done = subprocess.run(command, env=env, cwd=tree, stdout=subprocess.PIPE, check=True)
    found: Mapping[str, str] = json.loads(done.stdout)
    return found
