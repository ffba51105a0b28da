"""What several commands share: settings with options of their own, workers, hints, the list."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from entity_env.cli import main
from entity_env.cli.commands.info import list_games
from entity_env.cli.load_game import NAMED, AgentLoader, load_game, nearest
from entity_env.cli.options import (
    WholeRange,
    agent_options,
    default_workers,
    game_argument,
    require_writable,
    set_option,
)


@click.command()
@game_argument
@agent_options
@set_option
def command(game: str, settings: Sequence[str], **options: object) -> None:
    """A command with every option."""
    click.echo((game, settings, sorted(options.items())))


def told(*args: str) -> str:
    return CliRunner().invoke(command, args, catch_exceptions=False).output.strip()


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ((), ()),
        (("--set", "a=1", "--set", "b=2", "--set", "a=3"), ("a=1", "b=2", "a=3")),
        (("--rom", "x.ch8"), ("rom=x.ch8",)),
        (("--quirks", "chip8", "--rom", "x"), ("rom=x", "quirks=chip8")),
        # What --set says comes last, and counts.
        (("--set", "goal=b", "--goal", "a"), ("goal=a", "goal=b")),
        (("--goal", ""), ("goal=",)),
    ],
)
def test_options_that_are_settings_come_before_those_of_set(
    args: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    options = f"[('agents', ()), ('load', {AgentLoader()!r})]"
    assert told("snake", *args) == f"('snake', {settings!r}, {options})"


def test_agents_are_repeated_in_order() -> None:
    assert "('agents', ('b', 'a', 'b'))" in told("x", "--agent=b", "--agent=a", "--agent=b")


@pytest.mark.parametrize("temperature", ["0", "-1", "warm"])
def test_a_temperature_is_above_zero(temperature: str) -> None:
    result = CliRunner().invoke(command, ["snake", "--temperature", temperature])
    assert result.exit_code == 2
    assert "--temperature" in result.stderr


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e6", 10**6), ("2.5E3", 2500), ("1_000", 1000), ("12", 12), ("1e+2", 100), (" 7 ", 7)],
)
def test_whole_numbers_may_be_written_with_an_exponent(text: str, number: int) -> None:
    assert WholeRange(min=1).convert(text, None, None) == number


@pytest.mark.parametrize("text", ["1.5", "1.23e1", "1e-3", "ten", "", "1e", "1e999", "nan", "0x10"])
def test_other_numbers_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a whole number, such as 1000 or 1e6"):
        WholeRange(min=1).convert(text, None, None)


@given(st.integers(0, 10**15))
def test_a_whole_number_is_read_as_it_is_written(number: int) -> None:
    for text in (str(number), f"{number:_}", f"{Decimal(number):e}"):
        assert WholeRange(min=0).convert(text, None, None) == number


def test_the_check_of_a_folder_leaves_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "runs" / "one")
    require_writable(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_every_count_of_every_command_takes_an_exponent() -> None:
    """The type of a count is `WholeRange` everywhere: `--steps 1e6` is not the only one."""
    others = {
        f"{name} {option.opts[0]}"
        for name, each in main.commands.items()
        for option in each.params
        if isinstance(option.type, click.types.IntParamType)
        and not isinstance(option.type, WholeRange)
    }
    assert others == {"replay --debug"}  # -1 is the last decision


@pytest.mark.parametrize(
    "command",
    [
        ["train", "snake", "--steps", "1e3", "--out", "{}/run"],
        ["record", "snake", "--out", "{}/a.replay"],
        ["clone", "snake", "--play", "random", "--out", "{}/run"],
        ["dataset", "--game", "snake", "--play", "random", "--out", "{}/a.npz"],
        ["sweep", "snake", "--vary", "gamma=0.9:0.99", "--out", "{}/run"],
    ],
)
def test_a_folder_that_cannot_be_written_is_one_line_before_anything_starts(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("/proc/none", tmp_path / "file"):
        result = CliRunner().invoke(main, [part.format(folder) for part in command])
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert re.fullmatch(
            rf"entity-env: cannot (write to|train in) {folder}.*: .*\n", result.stderr
        )


@given(cores=st.integers(1, 64), num_envs=st.integers(1, 100))
def test_a_process_a_core_and_none_where_there_is_one(cores: int, num_envs: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
        assert default_workers(num_envs) == (0 if cores == 1 else min(cores, num_envs))
        patch.delattr(os, "sched_getaffinity")
        patch.setattr(os, "cpu_count", lambda: cores)
        assert default_workers(num_envs) == (0 if cores == 1 else min(cores, num_envs))
        patch.setattr(os, "cpu_count", lambda: None)
        assert default_workers(num_envs) == 0


@given(name=st.sampled_from(sorted(NAMED)), at=st.integers(0, 30))
def test_a_name_without_one_letter_is_recognized(name: str, at: int) -> None:
    at %= len(name)
    missing = name[:at] + name[at + 1 :]
    assert nearest(missing, [name, "zzzzzzzzzzzz"]) == f"; did you mean {name}?"


def test_no_name_is_recognized_where_none_is_near() -> None:
    assert nearest("snake", []) == ""
    assert nearest("xyz", ["snake", "azul"]) == ""


def test_every_setting_that_the_list_shows_can_be_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = CliRunner().invoke(list_games, []).output.splitlines()
    assert lines[0].split() == ["game", "agents", "settings", "what", "it", "is"]
    name, seen, num_settings = "", [], 0
    for line in lines[1:]:
        words = line.split()
        if not line.startswith(" "):
            name = words[0]
            seen.append(name)
            assert words[1] == str(NAMED[name].num_agents)
            assert len(words) > 4, "says what it is"
        for setting in re.findall(r"^(?:\w+ +\d+)? +(\w+=\S+)", line):
            if not setting.endswith("=none"):
                num_settings += 1
                game = load_game(name, [setting])
                assert game.schema.obs_space() == NAMED[name].schema.obs_space()
    assert seen == list(NAMED)
    assert num_settings > 5
