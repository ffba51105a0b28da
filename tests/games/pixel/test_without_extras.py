"""What is not installed is named, with what installs it; the rest goes on without it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.games.pixel.worlds.game_boy_rom import square_rom

_BLOCKED = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
"""
_COMMANDS = """
import contextlib, io, json
from entity_env.cli import main
for argv in {commands!r}:
    sys.argv = ["entity-env", *argv]
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            code = main()
        except SystemExit as exit:
            code = exit.code
    print(json.dumps([code, stderr.getvalue()]))
"""
_GRID = """
from entity_env.games.pixel import Goal, GridWorld, PixelGoalEnv
world = GridWorld(2)
env = PixelGoalEnv(world, Goal(world.goal_frame(), 0.001))
env.reset(0)
print(type(env._ops).__name__)
"""
_KERNELS = """
from entity_env.games.pixel import XoChipWorld
XoChipWorld(bytes(2), 1)
"""


def without(missing: str, code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, for which a package is not installed."""
    program = _BLOCKED.format(missing=[missing]) + code
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, timeout=50
    )


needs_all_others = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "warp", "pyboy")), reason="all but one"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ROM that shows nothing, and a cartridge."""
    (tmp_path / "loop.ch8").write_bytes(b"\x12\x00")
    (tmp_path / "square.gb").write_bytes(square_rom())
    return tmp_path


def told(package: str, extra: str) -> str:
    """The end of the line that names both."""
    return (
        f"needs the package '{package}', which is not installed: pip install 'entity-env[{extra}]'"
    )


COMMANDS = {
    "torch": [
        (["play", "pixel:maze"], told("torch", "pixel")),
        (["play", "pixel", "--rom", "loop.ch8"], told("torch", "pixel")),
        (["capture-goal", "loop.ch8", "--keys", "A", "--out", "goal"], told("torch", "pixel")),
    ],
    "warp": [
        (["play", "pixel:catch"], told("warp-lang", "pixel")),
        (["play", "pixel", "--rom", "loop.ch8"], told("warp-lang", "pixel")),
    ],
    "pyboy": [(["play", "pixel", "--rom", "square.gb"], told("pyboy", "pyboy"))],
}


@needs_all_others
@pytest.mark.parametrize("missing", COMMANDS)
def test_a_command_says_in_one_line_what_is_missing(missing: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    code = _COMMANDS.format(commands=[argv for argv, _ in COMMANDS[missing]])
    done = without(missing, code, cwd=folder)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    for (code, stderr), (argv, message) in zip(outcomes, COMMANDS[missing], strict=True):
        assert code, argv
        [line] = stderr.splitlines()
        assert line.startswith("entity-env: ")
        assert line.endswith(message)
    assert sorted(folder.iterdir()) == before


def test_names_of_the_package_without_torch(tmp_path: Path) -> None:
    code = """
import entity_env.games.pixel as pixel
for name in ("PixelGoalEnv", "GridWorld", "XoChipWorld", "PyBoyWorld", "Goal"):
    try:
        getattr(pixel, name)
    except Exception as error:
        print(type(error).__name__, error)
"""
    lines = without("torch", code, cwd=tmp_path).stdout.splitlines()
    assert lines == [
        f"MissingExtraError entity_env.games.pixel.{name} {told('torch', 'pixel')}"
        for name in ("PixelGoalEnv", "GridWorld", "XoChipWorld", "PyBoyWorld", "Goal")
    ]


def test_what_needs_no_torch_is_there_without_it(tmp_path: Path) -> None:
    code = (
        "from entity_env.games.pixel import Button, World\n"
        "from entity_env.games.pixel.xo_chip import PlainMachine, program\n"
        "machine = PlainMachine(program('maze'))\n"
        "machine.step(0, frames=24, instructions=30)\n"
        "print(machine.pixels().any(), Button.A.value)"
    )
    done = without("torch", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("True 0\n", "")


@needs_all_others
@pytest.mark.parametrize("missing", ["warp", "pyboy"])
def test_a_grid_needs_neither_warp_nor_pyboy(missing: str, tmp_path: Path) -> None:
    # A world of kernels does need Warp; asked for last, in the same process.
    done = without(missing, _GRID + _KERNELS, cwd=tmp_path)
    assert done.stdout == ("TorchGoalOps\n" if missing == "warp" else "WarpGoalOps\n")
    if missing == "warp":
        assert told("warp-lang", "pixel") in done.stderr.splitlines()[-1]
    else:
        assert done.stderr == ""


@needs_all_others
def test_other_modules_that_are_missing_are_not_taken_for_torch(tmp_path: Path) -> None:
    """A broken installation is no missing extra."""
    own = "entity_env.games.pixel.worlds.checks"
    done = without(own, "from entity_env.games.pixel import GridWorld", cwd=tmp_path)
    assert "MissingExtraError" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(f"ModuleNotFoundError: import of {own}")
