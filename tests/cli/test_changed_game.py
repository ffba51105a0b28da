"""A game that has changed since a run is reported in one line, and nothing stops."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, read_network
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.training.tracking.comparison import mixed_rules, since_run
from entity_env.agents.training.tracking.runs import TrainingRun, read_about
from entity_env.authoring.identity import identity_of
from entity_env.cli import main
from entity_env.games import cherry_pick, snake
from tests.cli.commands.test_replay import GAME

SMALL = (
    "--num-envs=4",
    "--num-workers=0",
    "--num-steps=8",
    "--set-train=net={d_model=8,n_layer=1}",
)


def stderr(*words: str) -> str:
    """stderr of a command. The game is imported once; its digest is computed from disk."""
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result.stderr


@pytest.mark.slow
def test_every_command_that_compares_rewards_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(GAME)
    assert "changed" not in stderr("train", "mine.py", *SMALL, "--steps=32", "--out=a")
    assert "changed" not in stderr("eval", "mine.py", "--agent=a", "--episodes=1")
    path.write_text(f"{GAME}\n# changed\n")
    told = stderr("train", "mine.py", *SMALL, "--steps=32", "--out=b", "--init-from=a")
    for words in (
        ("eval", "mine.py", "--agent=a/checkpoint", "--episodes=1", "--json"),
        ("eval", "mine.py", "--agent=a", "--episodes=1", "--num-workers=0"),
        ("train", "--resume", "--out=a", "mine.py", "--steps=64"),
    ):
        told += stderr(*words)
    lines = [line for line in told.splitlines() if "has changed" in line]
    assert len(lines) == 4
    for line in lines:
        assert re.fullmatch(
            r"the game has changed since the run a(/checkpoint)?: source digest [0-9a-f]{12}, now "
            r"[0-9a-f]{12}; scores are not comparable",
            line,
        )
    assert "changed" not in stderr("eval", "mine.py", "--agent=a", "--episodes=1")
    path.write_text(f"{GAME}\n# changed again\n")
    stderr("train", "mine.py", *SMALL, "--steps=32", "--out=c")
    for command in ("runs", "report"):
        told = stderr(command, "a", "b", "c")
        assert re.search(r"dots: the rules of .*c differ from those of [ab]: source digest ", told)


def run_of(name: str, game: str, **identity: object) -> TrainingRun:
    return TrainingRun(Path(name), {"game_name": game, "identity": identity})


def test_runs_of_one_game_are_compared() -> None:
    runs = [
        run_of("a", "dots", sha256="0" * 64),
        run_of("b", "dots", sha256="0" * 64),
        run_of("c", "snake", sha256="1" * 64),
        TrainingRun(Path("older"), {"game_name": "dots"}),
    ]
    assert mixed_rules(runs) == []
    others = [run_of(f"d{i}", "dots", sha256="2" * 64) for i in range(7)]
    assert mixed_rules([*runs, *others]) == [
        "dots: the rules of d0, d1, d2, d3, d4 and 2 more differ from those of a: source digest "
        "000000000000, now 222222222222; scores are not comparable"
    ]


def test_another_version_is_another_game() -> None:
    runs = [run_of("a", "dots", version=1), run_of("b", "dots", version=2)]
    assert "version 1, now 2" in mixed_rules(runs)[0]


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": "entity_env.run"}'])
def test_where_nothing_is_known_nothing_is_said(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert since_run(tmp_path, snake) == ""
    assert since_run(Path("random"), snake) == ""
    assert since_run(Path("x" * 5000), snake) == ""
    assert since_run(Path("a\0b"), snake) == ""


def test_an_agent_file_knows_its_game(tmp_path: Path) -> None:
    net = RogueNet(snake.obs_space(), snake.action_space(), RogueNetConfig(d_model=8, n_head=1))
    path = tmp_path / "x.agent"
    for game, words in (
        ({}, ""),
        ({"name": "snake", **identity_of(snake)}, ""),
        ({"name": "snake", "sha256": "0" * 64}, "source digest 000000000000, now "),
        ({"name": "other", "sha256": "0" * 64}, ""),
    ):
        write_agent(path, replace(net.weights(), game=game))
        found = since_run(path, snake)
        assert found.startswith(f"the game has changed since {path} was trained: {words}") or not (
            words or found
        )
    path.write_bytes(b"damaged")
    assert since_run(path, snake) == ""


@pytest.mark.slow
def test_export_keeps_the_game_and_play_compares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(GAME)
    stderr("train", "mine.py", *SMALL, "--steps=32", "--out=a")
    shown = CliRunner().invoke(main, ["export", "a", "x.agent"]).stdout
    assert "\ntrained for dots" in shown
    identity = read_about(Path("a"))["identity"]
    assert read_network("x.agent").game == {"name": "dots", **identity}
    assert read_network("a").game == {"name": "dots", **identity}
    play = ("eval", "mine.py", "--agent=x.agent", "--episodes=1")
    assert "changed" not in stderr(*play)
    Path("mine.py").write_text(GAME + "# other rules\n")
    assert "the game has changed since x.agent was trained: source digest " in stderr(*play)


def test_another_game_has_not_changed(tmp_path: Path) -> None:
    text = '{"format": "entity_env.run", "game_name": "snake", "identity": {"sha256": "0"}}'
    (tmp_path / "run.json").write_text(text)
    assert since_run(tmp_path, snake)
    assert since_run(tmp_path, cherry_pick) == ""
