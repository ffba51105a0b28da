"""The public types, checked with `mypy --strict`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

EXAMPLES = ROOT / "tests" / "project" / "typing"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_answers_have_their_types_and_mistakes_are_found(tmp_path: Path) -> None:
    """mypy reports nothing about the examples, but would report wrong types and unused ignores."""
    text = (EXAMPLES / "answers.py").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        text.replace("agent.act(obs, Move), Move | None", "agent.act(obs, Move), Move")
        + "\n\nX: int = 3  # type: ignore[assignment]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(EXAMPLES), str(wrong)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert all("/wrong.py:" in line for line in errors), done.stdout
    assert len(errors) == 2
    assert 'Expression is of type "Move | None", not "Move"' in errors[0]
    assert 'Unused "type: ignore" comment' in errors[1]
