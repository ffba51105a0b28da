"""A pool of past selves: snapshots, ratings, files, and resumed runs."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from entity_env import Game, Obs
from entity_env.agents import Agent, HumanAgent, load_agent
from entity_env.agents.ppo import Callback, PPOConfig, TrainState, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.training.self_play.pool import FOLDER, OpponentPool, crowded
from entity_env.agents.training.tracking.runs import read_run
from entity_env.errors import CheckpointError, ProtocolError, UsageError
from entity_env.games import rock_paper_scissors, snake, tic_tac_toe
from entity_env.vec import VecEnv
from tests import ROOT
from tests.helpers.tiny_games import Dot, Move

CONFIG = PPOConfig(
    total_steps=800,
    net=RogueNetConfig(d_model=16, n_layer=1),
    num_steps=8,
    minibatch_size=256,
    update_epochs=1,
    checkpoint_interval_s=0.0,
)
SHARES = {"self": 0.5, "random": 0.25}


def new_pool(
    game: Game = tic_tac_toe, *, snapshot_every: int | None = None, size: int = 20
) -> OpponentPool:
    vec = VecEnv(game, 16)
    return OpponentPool(vec, game.schema, SHARES, snapshot_every=snapshot_every, size=size)


def run(
    pool: OpponentPool, out: Path | None, *, total_steps: int = 800, resume: bool = False
) -> list[float]:
    """Trains and returns the ratings after each update."""
    ratings: list[float] = []

    class Watch(Callback):
        def on_update(self, state: TrainState) -> None:
            ratings.append(state.progress.metrics["rating"])

    config = PPOConfig.from_json({**CONFIG.to_json(), "total_steps": total_steps})
    with pool.vec:
        train(pool.vec, config, out=out, resume=resume, callbacks=[pool, Watch()])
    return ratings


@pytest.mark.slow
def test_snapshots_and_ratings_are_in_the_folder_and_in_the_curves(tmp_path: Path) -> None:
    pool = new_pool(snapshot_every=60, size=5)
    ratings = run(pool, tmp_path)
    folder = tmp_path / FOLDER
    data = json.loads((folder / "pool.json").read_text())
    steps = [entry["step"] for entry in data["self"]]
    assert len(steps) == 5
    assert steps[0] == 0
    assert steps == sorted(steps)
    assert steps[-1] > 600
    assert data["self"][0]["rating"] == [0, 0]  # the untrained network
    assert list(data["others"]) == ["random"]
    files = {path.name for path in folder.iterdir()}
    assert files == {"pool.json", *(entry["file"] for entry in data["self"])}
    assert data["learner"][0] == pytest.approx(ratings[-1], abs=0.01)
    curves = read_run(tmp_path).curves
    assert curves["rating"].values.tolist() == pytest.approx(ratings)
    assert {"metrics/wins_self.mean", "metrics/wins_random.mean"} <= set(curves)
    load_agent(folder / data["self"][-1]["file"])  # the snapshots can be loaded


@pytest.mark.slow
def test_a_run_is_the_same_twice_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    first = run(new_pool(snapshot_every=60), tmp_path / "a")
    assert first == run(new_pool(snapshot_every=60), None)
    pool = new_pool(snapshot_every=60)
    more = run(pool, tmp_path / "a", total_steps=1200, resume=True)
    assert abs(more[0] - first[-1]) < 150
    data = json.loads((tmp_path / "a" / FOLDER / "pool.json").read_text())
    steps = [entry["step"] for entry in data["self"]]
    assert steps[0] == 0
    assert steps[-1] > 800
    assert len(steps) > 8


@pytest.fixture(scope="module")
def earlier_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which tests copy."""
    folder = tmp_path_factory.mktemp("earlier")
    run(new_pool(snapshot_every=200), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "text", "entry", "file", "rating", "other"])
def test_damaged_files_are_one_warning(
    tmp_path: Path, earlier_run: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(earlier_run, tmp_path, dirs_exist_ok=True)
    path = tmp_path / FOLDER / "pool.json"
    data = json.loads(path.read_text())
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("{")
    elif damage == "file":
        (path.parent / data["self"][1]["file"]).write_bytes(b"?")
        (path.parent / data["self"][0]["file"]).unlink()
    elif damage == "other":
        own = path.parent / data["self"][1]["file"]
        own.write_bytes((ROOT / "examples" / "ship" / "snake.agent").read_bytes())
    else:
        data["self"][1]["step" if damage == "entry" else "rating"] = "?"
        path.write_text(json.dumps(data))
    with caplog.at_level(logging.WARNING, "entity_env.agents.training.self_play"):
        run(new_pool(snapshot_every=200), tmp_path, total_steps=900, resume=True)
    warnings = [each.getMessage() for each in caplog.records if "opponents" in each.getMessage()]
    assert len(warnings) == 1
    assert "opponents of the earlier run are missing" in warnings[0]
    assert str(tmp_path) in warnings[0] or damage == "rating"


@pytest.mark.slow
def test_snapshots_after_the_checkpoint_are_left_out(tmp_path: Path) -> None:
    run(new_pool(snapshot_every=60), tmp_path)
    path = tmp_path / FOLDER / "pool.json"
    data = json.loads(path.read_text())
    data["self"][-1]["step"] = 10**6
    path.write_text(json.dumps(data))
    run(new_pool(snapshot_every=60), tmp_path, total_steps=900, resume=True)
    steps = [entry["step"] for entry in json.loads(path.read_text())["self"]]
    assert max(steps) < 10**4


def test_what_is_left_out_lies_closest() -> None:
    assert crowded([0, 100, 110, 200]) == 1
    steps = [0]
    for step in range(1, 200):
        steps.append(step)
        if len(steps) > 8:
            del steps[crowded(steps)]
    assert steps[0] == 0
    assert steps[-2:] == [198, 199]
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert gaps[0] > gaps[-1]


def play_together(agents: Sequence[Agent], *, seed: int) -> None:
    """Both earn 1 if both go the same way."""
    asked = [agent.act_async(Obs(0).entities([Dot(0.0)]), Move) for agent in agents]
    moves = [each.get() for each in asked]
    for agent in agents:
        agent.game_over(Obs(float(moves[0] is moves[1])))


@pytest.mark.slow
def test_in_a_cooperative_game_the_learner_gets_all_seats(
    caplog: pytest.LogCaptureFixture,
) -> None:
    game = Game(play_together, entities=(Dot,), actions=(Move,), num_agents=2)
    pool = new_pool(game)
    with pool.vec, caplog.at_level(logging.WARNING, "entity_env.agents.training.self_play"):
        train(pool.vec, CONFIG, callbacks=[pool])
        assert pool.vec.opponents == []
    assert sum("all seats earn the same" in each.getMessage() for each in caplog.records) == 1


def test_what_cannot_be_is_refused() -> None:
    vec = VecEnv(tic_tac_toe, 4)
    schema = tic_tac_toe.schema
    for shares in ({}, {"self": 0.0}, {"self": 0.7, "random": 0.7}):
        with pytest.raises(UsageError, match="shares of opponents must be above 0"):
            OpponentPool(vec, schema, shares)
    with pytest.raises(UsageError, match="no agent 'nobody'"):
        OpponentPool(vec, schema, {"nobody": 0.5})
    with pytest.raises(UsageError, match="decide for batches"):
        OpponentPool(vec, schema, {"me": 0.5}, agents={"me": HumanAgent()})
    with pytest.raises(UsageError, match="a game for several agents"):
        OpponentPool(VecEnv(snake, 4), snake.schema, SHARES)


def test_a_pool_that_is_no_callback_says_so() -> None:
    pool = new_pool()
    with pool.vec, pytest.raises(ProtocolError, match="the pool is a callback, too"):
        train(pool.vec, CONFIG)


@pytest.mark.slow
def test_an_agent_of_another_game_is_named_before_it_plays(tmp_path: Path) -> None:
    with VecEnv(rock_paper_scissors, 8) as vec:
        train(vec, PPOConfig(total_steps=64, net=CONFIG.net, num_steps=2), out=tmp_path)
    pool = OpponentPool(VecEnv(tic_tac_toe, 8), tic_tac_toe.schema, {str(tmp_path): 0.5})
    with (
        pool.vec,
        pytest.raises(CheckpointError, match=r"the opponent .* a different game"),
    ):
        train(pool.vec, CONFIG, callbacks=[pool])
