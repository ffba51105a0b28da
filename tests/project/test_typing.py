"""The types that users see, checked as `mypy --strict` sees them."""

import subprocess
import sys
from pathlib import Path

from tests import ROOT

EXAMPLES = ROOT / "tests" / "project" / "typing"


def mypy(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *map(str, files)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_answers_have_their_types_and_mistakes_are_found() -> None:
    done = mypy(EXAMPLES)
    assert done.returncode == 0, done.stdout


def test_a_wrong_type_and_an_idle_ignore_would_be_found(tmp_path: Path) -> None:
    text = (EXAMPLES / "answers.py").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        text.replace("agent.act(obs, Move), Move | None", "agent.act(obs, Move), Move")
        + "\n\nX: int = 3  # type: ignore[assignment]\n"
    )
    done = mypy(wrong)
    assert done.returncode == 1, done.stdout
    assert 'Expression is of type "Move | None", not "Move"' in done.stdout
    assert 'Unused "type: ignore" comment' in done.stdout
