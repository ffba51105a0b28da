"""`PaddedActions`: `padded` and `answer` are inverse."""

from __future__ import annotations

import numpy as np
import pytest

from entity_env import Game, RaggedArray
from entity_env.agents import random_actions
from entity_env.interop.gymnasium.padded import PaddedActions, PaddedEntities
from entity_env.vec import VecEnv
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.continuous_games import bodies_game
from tests.helpers.tiny_games import TINY_GAMES

EVERY = {**PLAIN_GAMES, **TINY_GAMES, "bodies": bodies_game}


@pytest.mark.parametrize("game", EVERY.values(), ids=EVERY)
def test_padded_actions_are_answered_by_the_same_actions(game: Game) -> None:
    rng = np.random.default_rng(0)
    with VecEnv(game, 3, seed=1) as vec:
        obs = vec.reset()
        room = dict.fromkeys(vec.obs_space().entities, 400)
        entities = PaddedEntities(vec.obs_space(), obs, room)
        most = dict.fromkeys(vec.action_space(), 9)
        actions = PaddedActions(vec.action_space(), entities, obs, most, "raise")
        for _ in range(10):
            chosen = {
                name: RaggedArray(np.asarray(values), obs.action_masks[name].actors.lengths)
                for name, values in random_actions(obs, vec.action_space(), rng).items()
            }
            padded = actions.padded(obs, chosen)
            row = (
                {name: each[0] for name, each in padded.items()}
                if isinstance(padded, dict)
                else padded[0]
            )
            assert actions.space().contains(row)
            answered = actions.answer(obs, actions.masks(obs), padded)
            for name, values in chosen.items():
                np.testing.assert_array_equal(answered[name], values.values)
            obs = vec.act(chosen)
