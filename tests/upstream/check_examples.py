"""entity-gym's example environments in our check, VecEnv and trainer; and its faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import entity_gym.env as theirs
import numpy as np
import pytest
from entity_gym.examples import ENV_REGISTRY

from entity_env import EntityEnvError
from entity_env.agents import random_actions
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.check import check_env
from entity_env.interop.entity_gym import from_entity_gym
from entity_env.vec import VecEnv

EVERY = pytest.mark.parametrize("kind", ENV_REGISTRY.values(), ids=ENV_REGISTRY)


@EVERY
def test_our_check_finds_nothing(kind: type) -> None:
    check_env(from_entity_gym(kind), max_steps=5000)


@EVERY
@pytest.mark.parametrize("num_workers", [0, 1])
def test_our_vec_env_plays_them(kind: type, num_workers: int) -> None:
    with VecEnv(from_entity_gym(kind), 4, num_workers) as vec:
        rng, obs, num_episodes = np.random.default_rng(1), vec.reset(), 0
        for _ in range(200):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            assert np.isfinite(obs.reward).all()
            num_episodes += len(obs.episodes)
        assert num_episodes


@EVERY
def test_our_trainer_learns_from_them(kind: type) -> None:
    config = PPOConfig(
        total_steps=3 * 128, num_steps=16, minibatch_size=64, net=RogueNetConfig(d_model=16)
    )
    losses: list[float] = []
    with VecEnv(from_entity_gym(kind), 8) as vec:
        result = train(
            vec, config, on_update=lambda progress: losses.append(progress.losses.value_loss)
        )
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    assert all(tensor.isfinite().all() for tensor in result.net.state_dict().values())


class Odd(theirs.Environment):  # type: ignore[misc]  # entity-gym ships no types
    """One walker, with a change of its observation by the test."""

    def __init__(self, **changes: object) -> None:
        self.changes = changes

    def obs_space(self) -> Any:  # noqa: ANN401
        return theirs.ObsSpace(
            entities={"Rock": theirs.Entity(["x"]), "Walker": theirs.Entity(["x"])}
        )

    def action_space(self) -> Mapping[str, Any]:
        return {
            "go": theirs.CategoricalActionSpace(["left", "right"]),
            "throw": theirs.SelectEntityActionSpace(),
            "shout": theirs.GlobalCategoricalActionSpace(["hey", "ho"]),
        }

    def reset(self) -> Any:  # noqa: ANN401
        return self.show()

    def act(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        return self.show()

    def show(self) -> Any:  # noqa: ANN401
        shown: dict[str, Any] = {
            "features": {
                "Rock": np.ones((3, 1), dtype=np.float32),
                "Walker": np.ones((1, 1), dtype=np.float32),
            },
            "ids": {"Rock": ["a", "b", "c"], "Walker": [0]},
            "actions": {"go": theirs.CategoricalActionMask(actor_ids=[0])},
            "reward": 0.0,
            "done": False,
        }
        return theirs.Observation(**{**shown, **self.changes})


def go(**settings: object) -> dict[str, Any]:
    return {"go": theirs.CategoricalActionMask(actor_ids=[0], **settings)}


NAN = {"Rock": np.full((1, 1), np.nan), "Walker": np.ones((1, 1))}
TWO = {"Rock": np.ones((2, 1)), "Walker": np.ones((2, 1))}
DEFINED: dict[str, dict[str, object]] = {
    "types without ids": {"ids": {"Walker": [0]}},
    "float64 and lists": {"features": {"Rock": np.ones((3, 1)), "Walker": [[1]]}},
    "a mask of integers": {"actions": go(mask=np.array([[0, 1]]))},
    "a global mask as documented": {
        "actions": {"shout": theirs.GlobalCategoricalActionMask(np.array([True, False]))}
    },
    "a global mask as it works": {
        "actions": {"shout": theirs.GlobalCategoricalActionMask(np.array([[True, False]]))}
    },
}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "actions that are absent": ({"actions": {}}, "no agent was asked"),
    "nobody at all": ({"features": {}, "ids": {}, "actions": {}}, "no agent was asked"),
    "nobody to ask": (
        {"actions": {"go": theirs.CategoricalActionMask(actor_ids=[])}},
        "no agent was asked",
    ),
    "NaN": ({"features": NAN, "ids": {"Walker": [0]}}, "Rock"),
    "no legal choice": ({"actions": go(mask=np.array([[False, False]]))}, "go"),
    "nobody to select": (
        {"actions": {"throw": theirs.SelectEntityActionMask(actor_ids=[0], actee_ids=[])}},
        "throw",
    ),
    "the same id twice": (
        {"features": TWO, "ids": {"Rock": ["a", 0], "Walker": [0, 1]}},
        "the id 0",
    ),
    "the same ids twice": (
        {
            "features": TWO,
            "ids": {"Rock": [0, 1], "Walker": [0, 1]},
            "actions": {"go": theirs.CategoricalActionMask(actor_ids=[0, 1])},
        },
        "the id",
    ),
    "an unknown type": ({"features": {"Bird": np.ones((1, 1))}, "ids": {}, "actions": {}}, "Bird"),
    "another width": ({"features": {"Walker": np.ones((1, 2))}}, "Walker"),
    "an unknown actor": ({"actions": {"go": theirs.CategoricalActionMask(actor_ids=[9])}}, "9"),
}


@pytest.mark.parametrize("changes", DEFINED.values(), ids=DEFINED)
def test_faults_of_entity_gym_have_a_defined_answer(changes: dict[str, object]) -> None:
    play_and_train(lambda: Odd(**changes))


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_played_is_told(changes: dict[str, object], words: str) -> None:
    with pytest.raises(EntityEnvError, match=words):
        play_and_train(lambda: Odd(**changes))


def play_and_train(kind: Callable[[], Any]) -> None:
    config = PPOConfig(
        total_steps=64, num_steps=8, minibatch_size=16, net=RogueNetConfig(d_model=8)
    )
    with VecEnv(from_entity_gym(kind), 2) as vec:
        result = train(vec, config)
    assert all(tensor.isfinite().all() for tensor in result.net.state_dict().values())
    assert math.isfinite(result.progress.losses.value_loss)


class LastIsEmpty(Odd):
    """Every other environment, including the last, has no entities."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        LastIsEmpty.made += 1
        if LastIsEmpty.made % 2 == 0:
            self.changes = {"features": {}, "ids": {}, "actions": {}}


def test_an_environment_that_shows_nobody_is_trained_beside_others() -> None:
    LastIsEmpty.made = 0
    play_and_train(LastIsEmpty)
