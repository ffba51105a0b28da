"""Decisions in several parts in other libraries: masks that depend on a choice are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import Game, Obs, SchemaError
from entity_env.agents import Agent
from entity_env.interop.gymnasium import EntityVectorEnv, GameEnv
from entity_env.vec import VecEnv
from tests.games.composite_games import (
    ORDER,
    PAIR,
    Base,
    Order,
    Pair,
    Planet,
    Share,
    View,
    duel,
    pair,
)

REFUSED = r"action 'Pair\.second' depends on the choice before it, and Gymnasium has no such masks"


def _parallel() -> Any:  # noqa: ANN401 - an environment of another library
    pytest.importorskip("pettingzoo")
    from entity_env.interop.pettingzoo import GameParallelEnv

    return GameParallelEnv(duel)


def _in_turn() -> Any:  # noqa: ANN401 - an environment of another library
    pytest.importorskip("pettingzoo")
    from entity_env.interop.pettingzoo import GameAECEnv

    return GameAECEnv(duel)


@pytest.mark.parametrize(
    "make", [lambda: GameEnv(pair), lambda: EntityVectorEnv(VecEnv(pair, 2)), _parallel, _in_turn]
)
def test_masks_that_depend_on_a_choice_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError, match=REFUSED):
        make().reset(seed=0)


def play_free(agent: Agent, *, seed: int) -> None:
    """Asks for a `Pair` whose second part may never be LOW."""
    for _ in range(3):
        obs = Obs().globals(View(1.0)).mask(PAIR.second, [[0, 1, 1]] * 3, given=PAIR.first)
        answer = agent.act(obs, PAIR)
        if answer is None:
            return
        assert isinstance(answer, Pair)
        assert answer.second is not Share.LOW
    agent.game_over(Obs())


def test_other_masks_are_shown() -> None:
    env = GameEnv(Game(play_free, entities=(), actions=(PAIR,), global_features=View, name="free"))
    _, info = env.reset(seed=0)
    assert info["action_mask"]["Pair.second"].tolist() == [0, 1, 1]
    action = {"Pair.first": 0, "Pair.second": 1, "Pair.third": 1}
    assert not env.step(action)[2]
    with pytest.raises(SchemaError, match="mask forbids"):
        env.step({name: np.int64(0) for name in action})
    env.close()


def test_the_actor_of_a_global_decision_is_not_shown() -> None:
    planets, answers = [Planet(1.0), Planet(2.0)], []

    def play(agent: Agent, *, seed: int) -> None:
        for turn in range(3):
            obs = Obs().actors([Base(turn)]).entities(planets)
            answer = agent.act(obs.mask(ORDER.target, [False, True]), ORDER)
            if answer is None:
                return
            answers.append(answer)
        agent.game_over(obs)

    game = Game(play, entities=(Base, Planet), actions=(ORDER,), name="free")
    env = GameEnv(game)
    shown, info = env.reset(seed=0)
    assert {*shown} == {"Base", "Planet"}
    assert info["action_mask"]["Order.target"].tolist() == [0, 0, 1]
    action = {"Order.share": 2, "Order.target": 2, "Order.amount": np.array([0.5], np.float32)}
    assert [env.step(action)[2] for _ in range(3)] == [False, False, True]
    assert answers[-3:] == [Order(Share.HIGH, planets[1], 0.5)] * 3
    env.close()
