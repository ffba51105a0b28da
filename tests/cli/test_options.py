"""Options shared by several commands: settings, workers, hints, the list of games."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from entity_env.cli import main
from entity_env.cli.command import parser_of
from entity_env.cli.load_game import AgentLoader, load_game, nearest
from entity_env.cli.options import (
    AgentOptions,
    GameName,
    GameSettings,
    default_workers,
    require_writable,
)
from entity_env.games import GAMES


@dataclass(frozen=True, kw_only=True)
class Echo:
    """A command with every option."""

    game: GameName
    agents: AgentOptions
    settings: GameSettings

    def run(self) -> None:
        click.echo((self.game, self.settings.texts, self.agents.agents, self.agents.load))


command = parser_of(Echo, "echo")


def told(*args: str) -> str:
    return CliRunner().invoke(command, args, catch_exceptions=False).output.strip()


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ((), ()),
        (("--set", "a=1", "--set", "b=2", "--set", "a=3"), ("a=1", "b=2", "a=3")),
    ],
)
def test_settings_are_kept_in_order(args: tuple[str, ...], settings: tuple[str, ...]) -> None:
    assert told("snake", *args) == f"('snake', {settings!r}, (), {AgentLoader()!r})"


def test_agents_are_repeated_in_order() -> None:
    assert "('b', 'a', 'b')" in told("x", "--agent=b", "--agent=a", "--agent=b")


@pytest.mark.parametrize("temperature", ["0", "-1", "warm"])
def test_a_temperature_is_above_zero(temperature: str) -> None:
    result = CliRunner().invoke(command, ["snake", "--temperature", temperature])
    assert result.exit_code == 2
    assert "--temperature" in result.stderr


def test_the_check_of_a_folder_leaves_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "runs" / "one")
    require_writable(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
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


@given(name=st.sampled_from(sorted(GAMES)), at=st.integers(0, 30))
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
    lines = CliRunner().invoke(main, ["games"]).output.splitlines()
    assert lines.pop(0).split() == ["entity-env", version("entity-env")]
    assert lines[0].split() == ["game", "agents", "settings", "what", "it", "is"]
    name, seen, num_settings = "", [], 0
    for line in lines[1:]:
        words = line.split()
        if not line.startswith(" "):
            name = words[0]
            seen.append(name)
            assert words[1] == str(GAMES[name].num_agents)
            assert len(words) > 4, "says what it is"
        for setting in re.findall(r"^(?:\w+ +\d+)? +(\w+=\S+)", line):
            if not setting.endswith("=none"):
                num_settings += 1
                game = load_game(name, [setting])
                assert game.schema.obs_space() == GAMES[name].schema.obs_space()
    assert seen == list(GAMES)
    assert num_settings > 5
