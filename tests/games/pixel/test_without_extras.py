"""Missing packages are named, with the command that installs them; the rest works without them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.games.pixel.worlds.game_boy_rom import square_rom

_BLOCKED = """
import sys
sys.modules[{missing!r}] = None
"""
# One fork per program, after importing torch, which takes longer than all the rest.
_FORKS = """
import json, os, sys, traceback, torch
for folder, program in json.load(sys.stdin).items():
    process = os.fork()
    if process:
        os.waitpid(process, 0)
        continue
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(folder + suffix, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    try:
        exec(program, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
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


class Output(NamedTuple):
    """Output of a program."""

    stdout: str
    stderr: str


def without(missing: str, code: str, *, cwd: Path) -> Output:
    """Runs code in a separate process in which a package is missing."""
    program = _BLOCKED.format(missing=missing) + code
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, timeout=50
    )
    return Output(done.stdout, done.stderr)


needs_all_others = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "warp", "pyboy")), reason="all but one"
)


def with_roms(folder: Path) -> Path:
    """Writes a ROM with a blank screen, and a cartridge."""
    (folder / "loop.ch8").write_bytes(b"\x12\x00")
    (folder / "square.gb").write_bytes(square_rom())
    return folder


def told(package: str, extra: str) -> str:
    """The end of the message that names package and extra."""
    return (
        f"needs the package '{package}', which is not installed: pip install 'entity-env[{extra}]'"
    )


COMMANDS = {
    "torch": [
        (["play", "pixel:maze"], told("torch", "pixel")),
        (["play", "pixel", "--set", "rom=loop.ch8"], told("torch", "pixel")),
        (["capture-goal", "loop.ch8", "--keys", "A", "--out", "goal"], told("torch", "pixel")),
    ],
    "warp": [
        (["play", "pixel:catch"], told("warp-lang", "pixel")),
        (["play", "pixel", "--set", "rom=loop.ch8"], told("warp-lang", "pixel")),
    ],
    "pyboy": [(["play", "pixel", "--set", "rom=square.gb"], told("pyboy", "pyboy"))],
}


def commands_of(missing: str) -> str:
    return _COMMANDS.format(commands=[argv for argv, _ in COMMANDS[missing]])


_CHECKS = "entity_env.games.pixel.worlds.checks"
# A world with kernels does need Warp; requested last, in the same process.
PROGRAMS = {
    **{("commands", missing): commands_of(missing) for missing in ("warp", "pyboy")},
    **{("grid", missing): _GRID + _KERNELS for missing in ("warp", "pyboy")},
    ("checks", _CHECKS): "from entity_env.games.pixel import GridWorld",
}
"""Programs by name and missing package, other than torch."""


class Done(NamedTuple):
    """A finished program and its folder."""

    output: Output
    folder: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All programs, by name and missing package, joined with a dash."""
    folders = {key: with_roms(tmp_path_factory.mktemp("-".join(key))) for key in PROGRAMS}
    programs = {
        str(folders[key]): _BLOCKED.format(missing=key[1]) + code for key, code in PROGRAMS.items()
    }
    subprocess.run(
        [sys.executable, "-c", _FORKS],
        input=json.dumps(programs),
        text=True,
        timeout=50,
        check=True,
    )
    return {
        "-".join(key): Done(
            Output(*(Path(f"{folder}.{name}").read_text() for name in ("out", "err"))), folder
        )
        for key, folder in folders.items()
    }


@pytest.mark.slow
@needs_all_others
@pytest.mark.parametrize("missing", COMMANDS)
def test_a_command_says_in_one_line_what_is_missing(
    missing: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if missing == "torch":
        folder = with_roms(tmp_path)
        done = without(missing, commands_of(missing), cwd=folder)
    else:
        done, folder = request.getfixturevalue("done")[f"commands-{missing}"]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    for (code, stderr), (argv, message) in zip(outcomes, COMMANDS[missing], strict=True):
        assert code, argv
        [line] = stderr.splitlines()
        assert line.startswith("entity-env: ")
        assert line.endswith(message)
    assert sorted(path.name for path in folder.iterdir()) == ["loop.ch8", "square.gb"]


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
        "from entity_env.games.pixel.xo_chip import goal_frame, program\n"
        "print(len(program('maze')), goal_frame('maze').any(), Button.A.value)"
    )
    done = without("torch", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("570 True 0\n", "")


@pytest.mark.slow
@needs_all_others
@pytest.mark.parametrize("missing", ["warp", "pyboy"])
def test_a_grid_needs_neither_warp_nor_pyboy(missing: str, done: dict[str, Done]) -> None:
    stdout, stderr = done[f"grid-{missing}"].output
    assert stdout == ("TorchGoalOps\n" if missing == "warp" else "WarpGoalOps\n")
    if missing == "warp":
        assert told("warp-lang", "pixel") in stderr.splitlines()[-1]
    else:
        assert stderr == ""


@pytest.mark.slow
@needs_all_others
def test_other_modules_that_are_missing_are_not_taken_for_torch(done: dict[str, Done]) -> None:
    """A broken installation is not reported as a missing extra."""
    stderr = done[f"checks-{_CHECKS}"].output.stderr
    assert "MissingExtraError" not in stderr
    assert stderr.strip().splitlines()[-1].startswith(f"ModuleNotFoundError: import of {_CHECKS}")
