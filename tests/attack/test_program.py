"""Ctrl-C at any moment of a program, sent to it or to all its processes, once or twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from click.testing import CliRunner

from entity_env.cli import main
from tests import ROOT
from tests.attack.budget import Attack

REPLAY = str(ROOT / "tests" / "data" / "replays" / "snake.replay")
SMALL = ("--set", "board_size=4", "--num-envs", "4")
COMMANDS = {
    "games": ["games"],
    "record": ["record", "multi_snake", "--out", "out.replay"],
    "verify": ["verify", REPLAY],
    "draw": ["draw", REPLAY, "--out", "out.gif"],
    "eval": ["eval", "snake", "--episodes", "100000", "--num-workers", "2"],
    "train": ["train", "snake", *SMALL, "--out", "out", "--num-workers", "2", "--keep", "none"],
}
LONGEST_S = 60.0


@pytest.mark.slow  # every round starts a program
@pytest.mark.attack(2.0)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c(name: str, attack: Attack, tmp_path: Path) -> None:
    begin = monotonic()
    command = [sys.executable, "-m", "entity_env"]
    subprocess.run([*command, "games"], check=True, capture_output=True, timeout=LONGEST_S)
    imports_s = monotonic() - begin
    for number in attack.rounds(most=1000):
        folder = tmp_path / str(number)
        folder.mkdir()
        with subprocess.Popen(
            [*command, *COMMANDS[name]],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as program:
            kill = os.killpg if attack.rng.random() < 0.5 else os.kill
            at_s = attack.rng.uniform(0.1, 6.0) * imports_s  # not during the start of Python
            for wait_s in (at_s, attack.rng.uniform(0.0, 0.3))[: attack.rng.choice((1, 1, 2))]:
                with suppress(subprocess.TimeoutExpired):
                    program.wait(wait_s)
                attack.counts["interrupts"] += program.poll() is None
                if program.poll() is None:
                    kill(program.pid, signal.SIGINT)
            # Returns when all of its processes are gone, because they share standard output.
            out, _ = program.communicate(timeout=LONGEST_S)
        where = f"after {at_s:.2f} s, {kill.__name__}:\n{out}"
        assert "Traceback" not in out, where
        assert "Error" not in out, where
        assert program.returncode in (0, 130, -signal.SIGINT), where
        require_readable(folder, where)


def require_readable(folder: Path, where: str) -> None:
    """Checks that the program's files are complete."""
    left = {path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")}
    assert left <= {"out", "out.replay", "out.gif"}, where
    if "out.replay" in left:
        words = ["verify", str(folder / "out.replay")]
        assert CliRunner().invoke(main, words).exit_code == 0, where
    if (folder / "out" / "checkpoint").exists():
        words = ["eval", "snake", *SMALL[:2], "--agent", str(folder / "out"), "--episodes", "1"]
        assert CliRunner().invoke(main, words).exit_code == 0, where
