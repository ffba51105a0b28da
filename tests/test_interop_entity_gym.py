"""entity-gym's side of ours: the checks run where entity-gym is, or are skipped."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import entity_env.interop
from entity_env import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
CHECKS = "interop_entity_gym_checks"
NAMES = [
    element.id
    for node in ast.parse((ROOT / "tests" / f"{CHECKS}.py").read_text()).body
    if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) == "CHECKS"
    for element in getattr(node.value, "elts", ())
]


@cache
def results() -> dict[str, str]:
    """The traceback of every check, empty where it passed; one process for all of them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(PYTHON), "-m", f"tests.{CHECKS}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)
    return found


@pytest.mark.skipif(
    not PYTHON.exists(), reason="needs entity-gym in .venv-peers: make bench-vec makes it"
)
@pytest.mark.parametrize("name", NAMES)
def test_with_entity_gym(name: str) -> None:
    assert not results()[name], results()[name]


def test_there_are_checks() -> None:
    assert len(NAMES) > 10


def test_without_entity_gym_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "entity_gym", None)
    monkeypatch.delitem(sys.modules, "entity_env.interop.entity_gym", raising=False)
    with pytest.raises(MissingExtraError, match=r"entity-env\[entity-gym\]"):
        _ = entity_env.interop.entity_gym
