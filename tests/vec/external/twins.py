"""Compares games of clients in other languages with their Python twins, step by step."""

from __future__ import annotations

import sys
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import entity_env.games
from entity_env import Game
from entity_env.agents import random_actions
from entity_env.core.seeding import GAMMA, splitmix64_int
from entity_env.core.vec_obs import VecObs
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.game import ExternalGame
from tests.helpers.batches import assert_same

GAMES: Final = ("snake", "tic_tac_toe", "cherry_pick")
"""Games that each client has, by their names in this package."""


class SplitMix(Random):
    """The random numbers of the protocol, as a `Random`."""

    def seed(self, a: Any = 0, version: int = 2) -> None:  # noqa: ANN401
        self.state = 0 if a is None else int(a)

    def _draw(self) -> int:
        self.state += GAMMA
        return splitmix64_int(self.state)

    def random(self) -> float:
        return float(self._draw() >> 11) / 2**53

    def below(self, limit: int) -> int:
        return (self._draw() >> 32) * limit >> 32

    def choice(self, seq: Any) -> Any:  # noqa: ANN401
        return seq[self.below(len(seq))]

    def randrange(self, start: int, stop: Any = None, step: int = 1) -> int:  # noqa: ANN401
        return self.below(start)

    def shuffle(self, x: Any) -> None:  # noqa: ANN401
        for i in reversed(range(1, len(x))):
            j = self.below(i + 1)
            x[i], x[j] = x[j], x[i]


def twin_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Game:
    """The game of this package, with the random numbers of the protocol."""
    game: Game = getattr(entity_env.games, name)
    monkeypatch.setattr(sys.modules[game.play.__module__], "Random", SplitMix)
    return game


def require_equal(game: Game, twin: Game, autoreset: Autoreset, num_steps: int = 200) -> None:
    """Plays both with equal random actions; with autoreset disabled, resets what has ended."""
    rng = np.random.default_rng(3)
    with (
        VecEnv(game, 5, seed=11, autoreset=autoreset) as one,
        VecEnv(twin, 5, seed=11, autoreset=autoreset) as other,
    ):
        assert one.obs_space() == other.obs_space()
        assert dict(one.action_space()) == dict(other.action_space())
        first, second = one.reset(), other.reset()
        over = np.zeros((5, game.num_agents), dtype=np.bool_)
        for _ in range(num_steps):
            _require_same(first, second)
            over |= (first.terminated | first.truncated).reshape(over.shape)
            ended: NDArray[np.bool_] = np.logical_and.reduce(over, axis=1)
            if autoreset == "disabled" and ended.any():
                over[ended] = False
                first, second = one.reset_envs(ended), other.reset_envs(ended)
            else:
                actions = random_actions(second, other.action_space(), rng)
                first, second = one.act(actions), other.act(actions)


def _require_same(first: VecObs, second: VecObs) -> None:
    assert_same(first, second)
    assert_array_equal(first.reward, second.reward)
    assert_array_equal(first.terminated, second.terminated)
    assert_array_equal(first.truncated, second.truncated)
    assert [*first.episodes] == [*second.episodes]
    assert (first.final is None) == (second.final is None)
    if first.final is not None and second.final is not None:
        assert_same(first.final, second.final)
        assert_array_equal(first.final.reward, second.final.reward)


def require_failure(game: ExternalGame, **settings: object) -> str:
    """The error of a game that refuses its settings."""
    from entity_env.errors import WorkerError

    with pytest.raises(WorkerError) as caught:
        game.with_settings(**settings)
    return str(caught.value)
