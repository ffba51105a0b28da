"""Output: text from files never reaches the terminal with control characters."""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, strategies as st
from rich.control import strip_control_codes
from rich.table import Table
from rich.text import Text

from entity_env.cli import main
from entity_env.cli.app import COMMANDS
from entity_env.cli.display.console import Console, echo, printable
from entity_env.cli.display.terminal_view import Frames
from entity_env.errors import ReplayError
from entity_env.replay import Replay
from tests import DATA
from tests.cli.report.made_runs import make
from tests.helpers.readers import GOOD

EVIL = "\x1b]0;pwn\x07\x9b31m\0\u202e\r\n\ud800[bold]"
EVIL_NAME = EVIL.replace("\0", "").replace("\ud800", "")  # not valid in names
CONTROLS = "\0\x07\b\t\n\v\f\r\x0e\x1b\x1f\x7f\x80\x85\x9b\x9d\xad\u200f\u2028\u202e\u2066\ufeff"
TEXTS = st.text(st.sampled_from(CONTROLS + "\ud800\udcff\U000e0041" + "a1;m[]\\/é "), max_size=12)
STYLES = re.compile(r"\x1b\[[0-9;]*m")

Rename = Callable[[str], str]


def odd_characters(text: str) -> set[str]:
    """Characters that must not be printed, except line breaks."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {each for each in text if unicodedata.category(each) in kinds} - {"\n"}


def run(*args: str | Path) -> str:
    """The output of a command, whether it succeeds or not; fails on a traceback."""
    result = CliRunner().invoke(main, list(map(str, args)))
    assert result.exception is None or isinstance(result.exception, SystemExit), args
    return result.output


def rename_all(spaces: dict[str, Any], rename: Rename) -> dict[str, str]:
    """Renames entities, features except coordinates, actions and labels; returns the new names."""
    names = {}
    for each in spaces["entities"] + spaces["actions"]:
        old, each["name"] = each["name"], rename(each["name"])
        names[old] = each["name"]
        for part in each.keys() & {"features", "labels"}:
            each[part] = [name if name in "xy" else rename(name) for name in each[part]]
    spaces["global_features"] = list(map(rename, spaces["global_features"]))
    return names


def renamed_replay(path: Path, rename: Rename) -> bytes:
    """A replay with all texts replaced."""
    header, *lines = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    names = rename_all(header["spaces"], rename)
    header["game"] = rename(header["game"])
    header["source"] = ""
    header["agents"] = [{"name": rename("bot")} for _ in header["agents"]]
    header["made_with"] = {"entity_env": rename("9")}
    for line in lines:
        for key in line.keys() & {"a", "o", "m", "p"}:
            line[key] = {names.get(name, name): value for name, value in line[key].items()}
        if "end" in line:
            line["end"]["metrics"] = {rename("metric"): 1.0}
    lines.append({"failure": rename("failed")})
    return gzip.compress("".join(f"{json.dumps(each)}\n" for each in [header, *lines]).encode())


def renamed_agent(rename: Rename) -> bytes:
    """An agent file with all names replaced."""
    data = (GOOD / "net.agent").read_bytes()
    length = int.from_bytes(data[52:60], "little")
    about = json.loads(data[60 : 60 + length])
    rename_all(about["spaces"], rename)
    text = json.dumps(about).encode()
    body = len(text).to_bytes(8, "little") + text + data[60 + length :]
    return data[:20] + hashlib.sha256(body).digest() + body


def require_clean_output(here: Path, name: str, texts: list[str]) -> None:
    """Checks the output of all commands for files whose names end with these texts."""
    endings = itertools.cycle(texts)

    def rename(text: str) -> str:
        return text + next(endings)

    (here / "a.replay").write_bytes(renamed_replay(DATA / "replays" / f"{name}.replay", rename))
    (here / "a.agent").write_bytes(renamed_agent(rename))
    for run_name in "ab":
        about: dict[str, object] = {"settings": {rename("setting"): rename(run_name)}}
        make(here / "runs" / run_name, [1, 2], game=rename("game"), about=about)
        replays = here / "runs" / run_name / "replays"
        replays.mkdir()
        ending = next(endings).replace("/", "").replace("\0", "").replace("\ud800", "\udcff")
        for file in ("step-1.replay", f"step-2{ending}.replay"):
            (replays / file).write_bytes((here / "a.replay").read_bytes())
        (replays / "step-3.replay").write_bytes(os.fsencode(f"{{{ending}"))
    shutil.copytree(GOOD / "checkpoint", here / "checkpoint")
    config = json.loads((here / "checkpoint" / "config.json").read_text())
    rename_all(config["spaces"], rename)
    (here / "checkpoint" / "config.json").write_text(json.dumps({**config, rename("key"): 1}))
    name_of = json.dumps(
        rename("name").replace("\0", "").replace("\ud800", "").replace("\udcff", "")
    )
    (here / "a.toml").write_text(f"[run]\ngame = {name_of}\n[net]\n{name_of} = {name_of}\n")
    for words in (
        "replay a.replay",
        "verify a.replay",
        "draw a.replay --out a.html",
        "dataset a.replay --out a.npz",
        "dataset a.npz --out b.npz",
        f"dataset a.replay {DATA}/replays/snake.replay --out c.npz",
        f"verify a.replay --game {name}",
        "eval snake --agent a.agent",
        "export a.agent b.agent",
        "eval snake --agent checkpoint",
        "export checkpoint c.agent",
        "train --resume --out checkpoint",
        "train --config a.toml",
        "train snake --config a.toml",
        "sweep snake --config a.toml",
        "clone snake a.npz --out clone",
        "check a.toml",
        f"play snake --set {texts[0].replace(' ', '')}=1",
        "runs",
        "report --out r.html",
    ):
        assert not odd_characters(run(*words.split(" "))), words


@pytest.mark.slow
@pytest.mark.parametrize("text", [EVIL, EVIL_NAME])
def test_commands_print_no_controls_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    require_clean_output(tmp_path, "tic_tac_toe", [text])


@pytest.mark.slow
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@pytest.mark.parametrize("name", ["treasure_hunt", "rock_paper_scissors"])
def test_commands_print_no_controls_of_any_text(
    tmp_path_factory: pytest.TempPathFactory, name: str, texts: list[str]
) -> None:
    here = tmp_path_factory.mktemp("here")
    with contextlib.chdir(here):
        require_clean_output(here, name, texts)


@given(name=TEXTS)
@example(name=EVIL)
def test_frames_for_a_terminal_have_no_controls_but_styles(name: str) -> None:
    content = renamed_replay(DATA / "replays" / "multi_snake.replay", lambda text: text + name)
    try:
        replay = Replay.from_bytes(content, "a.replay")
    except ReplayError:
        return
    agents = [agent["name"] for agent in replay.header.agents]
    frames = Frames(
        *replay.spaces, name=replay.header.game, num_agents=len(agents), agent_names=agents
    )
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    console.print(frames.frame(frames.moments(replay.turns())[-1], 100))
    assert not odd_characters(STYLES.sub("", out.getvalue()))


@given(text=TEXTS)
@example("\b")
def test_a_console_prints_styles_and_no_other_controls(text: str) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60)
    table = Table(text)
    table.add_row(Text(text, "bold"))
    console.print(Text(text, "red"), text, table, sep=text, markup=False)
    printed = out.getvalue()
    assert "\x1b[31m" in printed or not strip_control_codes(text).strip()  # rich drops some
    assert not odd_characters(STYLES.sub("", printed))


@given(text=TEXTS)
def test_printable_keeps_line_breaks_and_fine_text(text: str) -> None:
    assert not odd_characters(printable(text))
    assert printable(text).count("\n") == text.count("\n")
    fine = "".join(c for c in text if c == "\n" or (not odd_characters(c)))
    assert printable(fine) == fine


def test_controls_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\x1b[31m\x9b\0\u202e\udcff\tb\nc 👩\u200d🚀 \ue0a0", "next")
    assert capsys.readouterr().out == (
        "a\\x1b[31m\\x9b\\x00\\u202e\\udcff   b\\nc 👩\u200d🚀 \ue0a0\nnext\n"
    )


def test_warnings_of_the_library_are_printed_without_controls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("games")
    assert logging.lastResort is not None
    record = logging.makeLogRecord({"msg": "no %s", "args": (EVIL,), "levelno": logging.WARNING})
    logging.lastResort.handle(record)
    printed = capsys.readouterr().err
    assert printed.startswith("no \\x1b]0;pwn")
    assert not odd_characters(printed)


def test_lines_that_a_game_draws_in_colors_stay() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard")
    console.print(Text.from_ansi("\x1b[31ma\x1b[0m\nb"))
    assert out.getvalue() == "\x1b[31ma\x1b[0m\nb\n"


LINE = "forged: everything is well"
NAME = f"a\n{LINE}\x1b[2J\r"
"""Name of files and folders."""
FEW_STEPS = "--steps 8 --set-train num_steps=4 --num-envs 2 --num-workers 0 --compile never"
COMMANDS_WITH_PATHS = {
    "record": ["snake --out @.replay --max-steps 3", "@.py --out b.replay"],
    "verify": ["@.replay", "@.npz"],
    "replay": ["@.replay", "@.npz"],
    "draw": ["@.replay --out @.html", "@.replay --out @.bmp", "@ --out b.html"],
    "dataset": ["@.replay --out @.npz", "@.npz", "@.npz --out @2.npz", "@.csv"],
    "export": ["net.agent @.agent", "@.agent b.agent", "@ b.agent"],
    "report": ["@ --out @.html", "@ b --out b.html", "@ --out @.bmp"],
    "runs": ["@", "@ b"],
    "watch": ["@3"],
    "eval": ["snake --agent @.agent --episodes 1", "snake --agent @"],
    "play": ["snake --agent @.agent --no-render", "snake --agent @.py", "@.py"],
    "page": ["@.py --out @", "snake --out @.agent", "snake --agent @ --out @4"],
    "check": ["@.py", "@.toml", "@"],
    "new": ["@"],
    "collect": ["@.py --out b", "snake --out @.agent"],
    "capture-goal": ["@.gb --out @.goal --keys a", "@.gb"],
    "bench": ["@.py"],
    "train": [
        "snake --out @.agent",
        "@.py --out b",
        "--config @.toml",
        f"snake --out @5 {FEW_STEPS}",
    ],
    "clone": ["snake @.replay --out @", "snake @.npz --out @6 --epochs 1"],
    "reproduce": ["@6", "@5 --out @7"],
    "sweep": ["snake --vary gamma=0.9:0.99 --out @.agent", "snake --config @.toml"],
    "doctor": ["@"],
    "games": ["@"],
}
"""Options that name files, in the order in which they are made; @ = `NAME`."""


def test_all_commands_are_run_with_odd_names() -> None:
    assert {*COMMANDS_WITH_PATHS} == {*COMMANDS}


@pytest.mark.slow
def test_no_command_prints_a_line_from_the_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(GOOD / "net.agent", "net.agent")
    Path(f"{NAME}.toml").write_text("[run]\ngame = 3\n")
    make(tmp_path / NAME, [1, 2])
    for command, texts in COMMANDS_WITH_PATHS.items():
        for text in texts:
            words = [word.replace("@", NAME) for word in text.split(" ")]
            printed = run(command, *words)
            assert not odd_characters(printed), text
            assert not any(line.startswith(LINE) for line in printed.splitlines()), text
