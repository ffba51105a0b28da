"""enn-trainer trains our games through the adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from entity_env import (
    Action,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    EntityEnvError,
    Environment,
    Game,
    Observation,
    ObsSpace,
    SchemaError,
    UsageError,
)
from entity_env.agents import load_agent
from entity_env.games import cartpole, cherry_pick, multi_snake, tic_tac_toe, treasure_hunt
from entity_env.games.classic import CartPole
from entity_env.interop.entity_gym import factory
from tests.upstream import enn

FEW = (
    "rollout.num_envs=8",
    "rollout.steps=16",
    "total_timesteps=256",
    "net.d_model=16",
    "optim.bs=64",
)
BOARD = {"num_snakes": 1, "max_snake_length": 5, "board_size": 6}


@pytest.mark.timeout(600)
def test_multi_snake_is_learnt_and_plays(tmp_path: Path) -> None:
    rewards: list[float] = []
    settings = [
        f"env.kwargs={json.dumps(BOARD)}",
        "env.id=multi_snake",
        "rollout.num_envs=128",
        "rollout.steps=16",
        "total_timesteps=100000",
        "net.d_model=32",
        "net.n_layer=1",
        "optim.bs=1024",
        "ppo.ent_coef=0.05",
        "ppo.gamma=0.97",
    ]
    checkpoint = enn.run(enn.watched(factory(multi_snake), rewards), tmp_path, settings)
    assert np.mean(rewards[:500]) < 0.2
    assert np.mean(rewards[-500:]) > 0.5
    game = multi_snake.with_settings(**BOARD)
    episodes = game.run(load_agent(checkpoint, seed=1), episodes=50)
    assert np.mean([episode.reward for episode in episodes]) > 0.5


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("game", [cherry_pick, treasure_hunt, tic_tac_toe], ids=lambda g: g.name)
def test_two_updates_go_through(game: Game, processes: int, tmp_path: Path) -> None:
    checkpoint = enn.run(factory(game), tmp_path, [*FEW, f"rollout.processes={processes}"])
    tensors = enn.real_net(checkpoint).state_dict()
    assert all(tensor.isfinite().all() for tensor in tensors.values())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_batch_environment_is_trained_too(processes: int, tmp_path: Path) -> None:
    settings = [*FEW, f"rollout.processes={processes}", 'env.kwargs={"max_episode_steps": 20}']
    rewards: list[float] = []
    checkpoint = enn.run(enn.watched(factory(CartPole), rewards), tmp_path, settings)
    assert max(rewards) <= 20
    episodes = cartpole.run(load_agent(checkpoint), episodes=2)
    assert all(episode.reward > 0 for episode in episodes)


def test_it_evaluates_against_an_opponent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = ["eval.steps=20", "eval.interval=128", "eval.num_envs=4", "eval.opponent=random"]
    enn.run(factory(tic_tac_toe), tmp_path, [*FEW, *evaluation])
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[eval]")]
    assert len(shown) == 3
    assert all("episodic_reward=" in line for line in shown)


class Lonely(Environment):
    """An entity acts every other step; in between there are no entities."""

    names = ("Somebody", "go")

    def __init__(self, first: int = 1) -> None:
        self.count = first

    def obs_space(self) -> ObsSpace:
        return ObsSpace(["time"], {self.names[0]: Entity(["x"])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {self.names[1]: CategoricalActionSpace(["left", "right"])}

    def reset(self, *, seed: int | None = None) -> Observation:
        return self.show()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        self.count = 1 - self.count
        return self.show()

    def show(self) -> Observation:
        return Observation(
            reward=0.0,
            done=False,
            features={self.names[0]: np.ones((self.count, 1))},
            global_features=[1.0],
            actions={self.names[1]: CategoricalActionMask(actor_types=[self.names[0]])},
        )


class Keys(Lonely):
    names = ("Somebody", "keys")


class Dotted(Lonely):
    names = ("a.b", "go")


def test_nobody_in_the_last_observation_is_told() -> None:
    envs = factory(Lonely)(None, 2, 1, 0)
    obs = envs.reset(envs.obs_space())
    with pytest.raises(SchemaError, match="the last of 2 observations has no entity"):
        envs.act({"go": obs.action_masks["go"].actors}, envs.obs_space())
    envs.close()


@pytest.mark.parametrize(
    ("source", "kwargs", "error", "words"),
    [
        (Keys, "{}", SchemaError, "the name 'keys' is not valid for a torch module"),
        (Dotted, "{}", SchemaError, "the name 'a.b' is not valid for a torch module"),
        (multi_snake, "{", UsageError, "env.kwargs must be a JSON object"),
        (multi_snake, "[1]", UsageError, "env.kwargs must be a JSON object"),
        (multi_snake, '{"size": 3}', UsageError, "size"),
        (Lonely, '{"last": 0}', UsageError, "Lonely.*'last'"),
        (Lonely, '{"first": 0}', SchemaError, "has no entity"),
    ],
)
def test_what_cannot_be_trained_is_told(
    source: Any,  # noqa: ANN401
    kwargs: str,
    error: type[EntityEnvError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        make_and_reset(source, kwargs)


def make_and_reset(source: Any, kwargs: str) -> None:  # noqa: ANN401
    envs = factory(source)(SimpleNamespace(kwargs=kwargs), 2, 1, 0)
    try:
        envs.reset(envs.obs_space())
    finally:
        envs.close()
