"""Odd command lines work, or fail with one line and the usage, without a traceback."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main
from entity_env.cli.game_errors import GameFailed
from entity_env.games.pixel.xo_chip.programs import program
from tests import ROOT
from tests.attack.budget import Attack
from tests.helpers.readers import GOOD, begin_reading, limits

EXAMPLE: Final = ROOT / "examples" / "my_game.py"
CPU_S: Final = 40.0
MEMORY: Final = 4 << 30

NUMBERS: Final = (
    *("", " ", "x", "-1", "-0", "0", "1", "2", "3", "0.5", "1e-300", "nan", "inf", "-inf", "1e999"),
    *("1_0", "٣", "0x10", "1e3", "+1", "99999999999999999999999999", "9" * 5000, "-" + "9" * 30),
    *(str(2**63), str(2**64), "1e99999999", "1e-99999999", "None", "True", "1,2", "--", "é"),
)
FILES: Final = (
    *("", ".", "..", "~", "nowhere", "folder", "folder.py", "fifo", "fifo.py", "zeros", "loop"),
    *("loop.py", "empty.py", "syntax.py", "no_game.py", "exits.py", "binary.py", "my_game.py"),
    *("my_game.py:", "my_game.py:catch", "my_game.py:nope", "my_game.py:Basket", ":", "a:b:c"),
    *("checkpoint", "net.agent", "fifo.agent", "folder.agent", "no.agent", "goal", "maze.ch8"),
    *("x" * 300, "x" * 300 + ".py", "a\nb", "\udcff.py", "\udcff", "-x", "*", "/dev/null"),
    *("/dev/zero", "/dev/null/x", "/proc/self/x", "/proc/self/mem"),
)
NAMES: Final = (
    *("snake", "Snake", "tic_tac_toe", "cherry_pick", "pixel", "pixel:", "pixel:nope"),
    *("random", "human", "greedy", "mcts:0", "mcts:nan", "mcts:0.01", "mcts:x", "os", "snke"),
)
SETTINGS: Final = (
    *("=", "x", "x=1", "seed=5", "agent=1", "board_size=5", "board_size=", "board_size=[", "a=b=c"),
    *("max_step=-1", "board_size=1e999", "\udcff=1"),
)
# Not azul, which compiles for half a minute the first time.
PLAYED: Final = ("snake", "my_game.py", "tic_tac_toe", "cherry_pick")
GAMES: Final = (*PLAYED * 3, *NAMES, *FILES)
AGENTS: Final = ("random", "random", *NAMES, *FILES)
FOLDERS: Final = tuple(f"run{i}" for i in range(20)) + FILES

Options = dict[str, Sequence[str]]
_PLAY: Final[Options] = {
    "--agent": AGENTS,
    "--temperature": NUMBERS,
    "--seed": NUMBERS,
    "--set": SETTINGS,
    "--greedy": (),
    "--adapt": (),
}
COMMANDS: Final[dict[str, tuple[tuple[Sequence[str], ...], Options]]] = {
    "play": (
        (GAMES,),
        # A thousand episodes would be drawn for a minute.
        {
            **_PLAY,
            "--fps": NUMBERS,
            "--episodes": tuple(n for n in NUMBERS if n != "1e3"),
            "--no-render": (),
        },
    ),
    "eval": (
        (GAMES,),
        {
            **_PLAY,
            "--agents": ("random,random", ",", "", "greedy,nope", "x" * 300),
            "--games": NUMBERS,
            "--num-workers": ("0", "-1", "x", "99999999999999999999", "1e3"),
            "--json": (),
        },
    ),
    "export": ((FILES, ("x.agent", "y.onnx", *FILES)), {"--visible": ()}),
    "bench": ((GAMES,), {"--num-envs": ("1", "2", "0", "-1", "x", "9" * 30), "--set": SETTINGS}),
    "games": ((), {}),
    "doctor": ((), {}),
    "capture-goal": (
        (("maze.ch8", "maze.ch8", *FILES),),
        {
            "--start": ("A*2", "", "A*0", "NOPE", "A*999999999", *FILES),
            "--keys": ("DOWN RIGHT*2", "RIGHT", "", "A*0", "A*9999999999", *FILES),
            "--out": FOLDERS,
            "--quirks": NAMES,
            "--frames": ("1", "0", "-1", "x", str(2**31), "9" * 30),
            "--instructions": ("1", "0", "-1", "x", str(2**31), "9" * 30),
            "--seed": NUMBERS,
            "--tau": NUMBERS,
            "--metric": ("absolute", "squared", "x", ""),
        },
    ),
    "train": (
        (GAMES,),
        {
            "--out": FOLDERS,
            "--resume": (),
            "--set": SETTINGS,
            "--device": ("cpu", "cuda:9", "meta:x", "", "xyz", "\udcff"),
            "--learning-rate": NUMBERS,
            "--gamma": NUMBERS,
            "--ent-coef": NUMBERS,
            "--seed": NUMBERS,
            "--set-train": (
                *("", "=", "gamma", "help", "nope=1", "net.nope=1", "net=1", "net={}", "\udcff=1"),
                *(f"num_threads={each}" for each in ("1", "0", "-1", "x", "9" * 30)),
                *(f"gae_lambda={each}" for each in NUMBERS),
                *(f"minibatch_size={each}" for each in ("1", "0", "-1", "99999999999", "x")),
                *(f"update_epochs={each}" for each in ("1", "0", "-1", "99999999999", "x")),
                *(f"net.d_model={each}" for each in ("2", "7", "0", "-1", "x", "99999999")),
                *(f"net.n_layer={each}" for each in ("0", "1", "-1", "99999999", "x")),
                *(f"net.n_head={each}" for each in ("1", "2", "0", "99999999", "x")),
            ),
            "--d-model": ("2",),
            "--num-steps": ("1", "2", "0", "-1", "99999999999", "x"),
        },
    ),
}
# Without these options a valid command line would take long.
SHORT: Final = {
    "play": ("--episodes=1",),
    "eval": ("--episodes=2", "--games=2", "--num-workers=0"),
    "bench": ("--seconds=0.01", "--num-envs=2"),
    "capture-goal": ("--keys=RIGHT", "--out=captured"),
    "train": (
        *("--steps=4", "--num-envs=2", "--num-workers=0", "--num-steps=2"),
        *("--set-train=update_epochs=1", "--set-train=net={d_model=4,n_layer=1,n_head=1}"),
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a current folder with all kinds of files."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE, "my_game.py")
    shutil.copytree(GOOD / "checkpoint", "checkpoint")
    shutil.copytree(GOOD / "goal", "goal")
    shutil.copy(GOOD / "net.agent", "net.agent")
    Path("maze.ch8").write_bytes(program("maze"))
    Path("no.agent").write_bytes(b"no agent")
    Path("empty.py").write_text("")
    Path("syntax.py").write_text("x = (\n")
    Path("no_game.py").write_text("x = 1\n")
    Path("exits.py").write_text("raise SystemExit(3)\n")
    Path("binary.py").write_bytes(b"\0\1\xff")
    Path("zeros").symlink_to("/dev/zero")
    for name in ("loop", "loop.py"):
        Path(name).symlink_to(name)
    for name in ("folder", "folder.py", "folder.agent"):
        Path(name).mkdir()
    for name in ("fifo", "fifo.py", "fifo.agent"):
        os.mkfifo(name)
    return tmp_path


def command_line(rng: Random) -> list[str]:
    """A command with odd values for some of its options."""
    command = rng.choice(list(COMMANDS))
    arguments, options = COMMANDS[command]
    words = [command, *SHORT.get(command, ())]
    words += [rng.choice(values) for values in arguments]
    for option in rng.sample(list(options), min(len(options), rng.choice((0, 1, 1, 2, 3)))):
        values = options[option]
        words += [option, rng.choice(values)] if values else [option]
    if rng.random() < 0.05:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*NUMBERS, "--nope", "-h", "--")))
    return words


def complaint(result: Result) -> str | None:
    """The problem with how a command ended; None if there is none."""
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return f"it raised {error!r}"
    told = result.stderr.splitlines()
    is_of_a_game = isinstance(getattr(error, "__context__", None), GameFailed)
    if result.exit_code == 2:
        has_hint = told and re.fullmatch("usage: .*|.* --help lists the options", told[-1])
        lines = told[:-1] if has_hint else told
        if not (len(lines) == 1 and lines[0].startswith("entity-env: ")):
            return f"it told {told}"
    if result.exit_code == 1 and not is_of_a_game and "Traceback" in result.stderr:
        # A game that cannot be played with such settings raises its own error.
        return (
            None
            if "play(agent" in result.stderr or "the game raised" in result.stderr
            else told[-1]
        )
    if result.exit_code not in (0, 1, 2):
        return f"it ended with {result.exit_code}"
    return None


@pytest.mark.slow
@pytest.mark.attack(3.0)
@pytest.mark.usefixtures("folder")
def test_odd_command_lines(attack: Attack) -> None:
    runner = CliRunner()
    # Import and compile first, before time and memory are limited.
    runner.invoke(main, ["train", "snake", *SHORT["train"], "--out=warm"])
    runner.invoke(main, ["capture-goal", "maze.ch8", *SHORT["capture-goal"]])
    with limits(CPU_S, MEMORY):
        for _ in attack.rounds(least=10):
            words = command_line(attack.rng)
            attack.counts["command lines"] += 1
            begin_reading(CPU_S)
            result = runner.invoke(main, words, input="")
            attack.counts[f"ended with {result.exit_code}"] += 1
            wrong = complaint(result)
            if wrong is not None:
                trace = "" if result.exc_info is None else result.stderr[-2000:]
                pytest.fail(f"seed {attack.seed}: entity-env {words}: {wrong}\n{trace}")
