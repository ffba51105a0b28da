"""`train --opponent`: shares, defaults, and one-line errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env.agents.training.presets import DEFAULT_OPPONENTS
from entity_env.authoring.game import Game
from entity_env.cli.app import main
from entity_env.cli.opponents import against_bots, make_pool, opponent_shares
from entity_env.errors import UsageError
from entity_env.games import azul, snake, tic_tac_toe
from entity_env.vec import VecEnv
from tests import ROOT


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ([], dict(DEFAULT_OPPONENTS)),
        (["none"], {}),
        (["self"], {"self": 0.5}),
        (["self", "random"], {"self": 0.25, "random": 0.25}),
        (["self=0.3", "runs/a=b=0.2"], {"self": 0.3, "runs/a=b": 0.2}),
        (["random=1"], {"random": 1.0}),
        (["bot.py:A"], {"bot.py:A": 1.0}),
        (["bot.py:A", "bot.py:B"], {"bot.py:A": 0.5, "bot.py:B": 0.5}),
    ],
)
def test_shares_are_those_of_the_options(options: Sequence[str], shares: dict[str, float]) -> None:
    assert opponent_shares(tic_tac_toe, options) == shares


@pytest.mark.parametrize(
    ("game", "options", "message"),
    [
        (snake, ["self"], "snake is for one agent: leave out --opponent"),
        (azul.azul, ["self"], "azul has its own opponents"),
        (tic_tac_toe, ["self=2"], "a share of the environments above 0 and up to 1, got 'self=2'"),
        (tic_tac_toe, ["self=x"], "NAME=SHARE"),
        (tic_tac_toe, ["=0.5"], "NAME=SHARE"),
        (tic_tac_toe, ["none", "self"], "give each name once, and 'none' only alone"),
        (tic_tac_toe, ["self", "self=0.2"], "each name once"),
        (tic_tac_toe, ["self=0.7", "random=0.7"], "add up to at most 1"),
        (tic_tac_toe, ["bot.py:A=0.3"], "bot.py:A: bots play in all environments"),
    ],
)
def test_what_cannot_be_is_refused(game: Game, options: Sequence[str], message: str) -> None:
    if game.name == "azul":
        pytest.importorskip("numba")
    with pytest.raises(UsageError, match=message):
        opponent_shares(game, options)


def test_games_for_one_agent_and_azul_have_none_by_default() -> None:
    pytest.importorskip("numba")
    assert opponent_shares(snake, []) == {}
    assert opponent_shares(azul.azul, []) == {}


def test_an_opponent_that_there_is_not_is_refused() -> None:
    pytest.importorskip("torch")
    with VecEnv(tic_tac_toe, 2) as vec, pytest.raises(UsageError, match="no agent 'nobody'"):
        make_pool(tic_tac_toe, vec, {"nobody": 0.5}, 1)
    with VecEnv(tic_tac_toe, 2) as vec, pytest.raises(UsageError, match="decide for batches"):
        make_pool(tic_tac_toe, vec, {"human": 0.5}, 1)


def test_random_opponents_decide_for_batches_where_a_game_has_a_random_agent_of_its_own() -> None:
    pytest.importorskip("torch")
    with VecEnv(azul.azul_by_id, 2) as vec:
        make_pool(azul.azul_by_id, vec, {"self": 0.5, "random": 0.5}, 1)


@pytest.mark.parametrize("option", ["--opponent", "--eval-opponent"])
def test_an_opponent_of_another_game_is_refused_before_the_run(tmp_path: Path, option: str) -> None:
    agent, out = ROOT / "examples" / "ship" / "snake.agent", tmp_path / "run"
    words = ["train", "tic_tac_toe", "--num-envs=2", "--num-workers=0", "--out", str(out)]
    result = CliRunner().invoke(main, [*words, option, str(agent)])
    assert result.exit_code == 2, result.output
    told = f"entity-env: {option} {agent}: the checkpoint was trained for a different game: "
    assert told in result.stderr
    assert not out.exists()


def test_bots_of_files_play_within_the_game(tmp_path: Path) -> None:
    bot = tmp_path / "bot.py"
    bot.write_text(
        "from entity_env.agents import ScriptedAgent\n"
        "class First(ScriptedAgent):\n"
        "    def choose(self, obs, *actions):\n"
        "        return obs.allowed(actions[0])[0]\n"
    )
    name = f"{bot}:First"
    game, left = against_bots(tic_tac_toe, opponent_shares(tic_tac_toe, [name]))
    assert left == {}
    assert game.name != tic_tac_toe.name
    with VecEnv(game, 4) as vec:
        assert vec.reset(1).is_ready.sum() <= 4
    with pytest.raises(UsageError, match="play all seats but one: leave out self"):
        against_bots(tic_tac_toe, {name: 0.2, "self": 0.3})
    assert against_bots(tic_tac_toe, {"self": 0.3}) == (tic_tac_toe, {"self": 0.3})


@pytest.mark.slow
def test_a_resumed_run_keeps_its_opponents(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    words = ["train", "tic_tac_toe", "--out", out, "--num-envs", "8", "--num-workers", "0"]
    words += ["--set-train=net={d_model=16,n_layer=1}", "--keep", "none"]
    first = CliRunner().invoke(main, [*words, "--steps", "200", "--opponent", "self=0.75"])
    assert first.exit_code == 0, first.output
    assert "self in 75%" in first.output
    assert "rating" in first.output
    again = CliRunner().invoke(
        main,
        ["train", "tic_tac_toe", "--out", out, "--resume", "--num-envs", "8", "--steps", "300"],
    )
    assert again.exit_code == 0, again.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["opponents"] == {"self": 0.75}
    assert opponent_shares(tic_tac_toe, [], tmp_path / "run") == {"self": 0.75}
    assert opponent_shares(tic_tac_toe, ["none"], tmp_path / "run") == {}
    assert opponent_shares(tic_tac_toe, [], tmp_path / "other") == {}
