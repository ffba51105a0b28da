"""GameBatch: steps, interrupts, and Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import nullcontext
from enum import Enum

import numpy as np
import pytest

from entity_env import Game, Obs
from entity_env.agents import Agent, random_actions
from entity_env.games import multi_snake
from entity_env.vec import VecEnv


class Move(Enum):
    LEFT = 0
    RIGHT = 1


class Turn(Enum):
    LEFT = 0
    RIGHT = 1


def test_the_next_step_after_an_interrupt_blames_no_game() -> None:
    """The answers that the interrupted step has not used are no failures."""
    interrupts = [KeyboardInterrupt()]

    def play(agent: Agent, *, seed: int) -> None:
        del seed
        while agent.act(Obs(), Move, Turn) is not None:
            if interrupts:
                raise interrupts.pop()

    game = Game(play, entities=(), actions=(Move, Turn), name="interrupted")
    rng = np.random.default_rng(0)
    with VecEnv(game, 1_000, num_workers=0) as vec:  # more than get their answers at once
        for _ in range(2):
            obs = vec.reset(seed=1)
            with pytest.raises(KeyboardInterrupt) if interrupts else nullcontext():
                vec.act(random_actions(obs, vec.action_space(), rng))


@pytest.mark.slow
def test_a_step_of_many_games_collects_no_garbage() -> None:
    """A step frees as many objects as it creates: actions are not created for all games at once."""
    num_envs, num_steps, threshold = 2_000, 10, gc.get_threshold()
    rng = np.random.default_rng(0)
    num_collections = 0

    def count(phase: str, info: Mapping[str, int]) -> None:
        nonlocal num_collections
        num_collections += phase == "start"

    with VecEnv(multi_snake.with_settings(num_snakes=1), num_envs) as env:
        env.reset(seed=0)
        for step in range(2 * num_steps):
            if step == num_steps:  # the games are at different points of their episodes
                gc.callbacks.append(count)
                gc.set_threshold(700)  # Python's default
            env.act({"Move": rng.integers(0, 4, num_envs)})
        gc.callbacks.remove(count)
        gc.set_threshold(*threshold)
    assert num_collections < num_steps // 2
