"""Wrong looks in commands: one line, whatever the command draws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main

HEAD: Final = "import time\nfrom entity_env.views import Look\n"
DRAWN: Final = {
    "draw": ("draw", "FILE", "--out", "OUT/episode.html"),
    "replay": ("replay", "FILE"),
    "play": ("play", "snake", "--seed", "1", "--agent", "random"),
    "record": ("record", "snake", "--agent", "human", "--out", "OUT/other.replay"),
}


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("looks") / "snake.replay"
    result = CliRunner().invoke(main, ["record", "snake", "--seed", "1", "--out", str(file)])
    assert result.exit_code == 0, result.output
    return file


def drawn(command: str, look: str, replay: Path, folder: Path) -> Result:
    file = folder / "my_look.py"
    file.write_text(f"{HEAD}look = Look({look})\n")
    words = [
        each.replace("FILE", str(replay)).replace("OUT", str(folder)) for each in DRAWN[command]
    ]
    return CliRunner().invoke(main, [*words, "--look", str(file), "--step-timeout", "0.2"])


@pytest.mark.parametrize("command", DRAWN)
def test_a_wrong_field_is_one_line_in_every_command(
    command: str, replay: Path, tmp_path: Path
) -> None:
    result = drawn(command, "labels=5", replay, tmp_path)
    assert result.exit_code == 2
    assert re.fullmatch(r"entity-env: look .*my_look\.py, line 3: .*labels.*got 5\n", result.stderr)


@pytest.mark.parametrize(
    ("command", "function"),
    [
        *(("draw", name) for name in ("draw", "describe", "spots", "legend")),
        *((command, "draw_text") for command in ("replay", "play", "record")),
    ],
)
def test_a_function_that_hangs_is_one_line_in_every_command(
    command: str, function: str, replay: Path, tmp_path: Path
) -> None:
    result = drawn(command, f"{function}=lambda *args: time.sleep(1e6)", replay, tmp_path)
    assert result.exit_code == 2
    where = rf"entity-env: look .*my_look\.py: {function} hangs at .*my_look\.py:3 in <lambda>: "
    assert re.fullmatch(rf"{where}no answer for 0\.2 s\n", result.stderr.splitlines(True)[-1])
