"""What a batch of Azul keeps, and what steps it; here by the reference, in plain Python."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS, ActionEncoder
from entity_env.games.azul.engine.engine import apply_in_place, is_legal, legal_actions, new_game
from entity_env.games.azul.engine.rules import MAX_PLAYERS
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.env import EnvConfig, RewardScheme
from entity_env.games.azul.features import OBS_SIZE, FeatureExtractor

ActionIds = NDArray[np.int64]
"""`(num_envs,)` int64, each from 0 to 299."""


class BatchArrays:
    """What everybody may see of a batch, as arrays that are written in place.

    Args:
        num_envs: how many games.

    Attributes:
        observations: `(num_envs, OBS_SIZE)` float32, of the player whose turn it is.
        legal_masks: `(num_envs, 300)` bool, what is legal for that player.
        current_players: `(num_envs,)` int64, whose turn it is.
        rewards: `(num_envs,)` float32, what the last step earned the player who made it.
        player_rewards: `(num_envs, 4)` float32, what it earned every player.
        terminals, truncations: `(num_envs,)` uint8.
        streams: `(num_envs,)` uint64, where each game is in its sequence of draws.
    """

    def __init__(self, num_envs: int) -> None:
        self.observations = np.zeros((num_envs, OBS_SIZE), np.float32)
        self.legal_masks = np.zeros((num_envs, ACTION_SPACE_SIZE), np.bool_)
        self.current_players = np.zeros(num_envs, np.int64)
        self.rewards = np.zeros(num_envs, np.float32)
        self.player_rewards = np.zeros((num_envs, MAX_PLAYERS), np.float32)
        self.terminals = np.zeros(num_envs, np.uint8)
        self.truncations = np.zeros(num_envs, np.uint8)
        self.streams = np.zeros(num_envs, np.uint64)


class Boards(Protocol):
    """The games of a batch, and the rules by which they are stepped."""

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        """Deals new games, from the draws that come next, and shows them."""

    def first_illegal(self, actions: ActionIds) -> int:
        """The first game in which the action is not legal; -1: there is none."""

    def step(self, actions: ActionIds) -> None:
        """Makes a legal move in every game, none of which is over, and shows what it led to."""

    def state(self, env_id: int) -> GameState:
        """The position of one game, a copy that draws what the game would draw."""


class PlainBoards:
    """Games on the reference engine.

    Args:
        config: what is played.
        arrays: where it is shown.
    """

    def __init__(self, config: EnvConfig, arrays: BatchArrays) -> None:
        self._config: Final = config
        self._arrays: Final = arrays
        self._features: Final = FeatureExtractor()
        self._numbers = [SplitMix(0) for _ in arrays.streams]
        self._states = [GameState() for _ in arrays.streams]

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        config, arrays = self._config, self._arrays
        for env_id in env_ids.tolist():
            numbers = self._numbers[env_id] = SplitMix(int(arrays.streams[env_id]))
            start = config.starting_player
            if start == "random":
                start = int(numbers.uniform() * config.num_players)
            self._states[env_id] = new_game(config.num_players, starting_player=start, rng=numbers)
            arrays.terminals[env_id] = arrays.truncations[env_id] = 0
            self._show(env_id)

    def first_illegal(self, actions: ActionIds) -> int:
        chosen = zip(self._states, actions.tolist(), strict=True)
        wrong = [not is_legal(state, ACTIONS[action_id]) for state, action_id in chosen]
        return wrong.index(True) if any(wrong) else -1

    def step(self, actions: ActionIds) -> None:
        arrays, limit = self._arrays, self._config.max_rounds
        for env_id, action_id in enumerate(actions.tolist()):
            state = self._states[env_id]
            mover, before = state.current_player, state.scores
            apply_in_place(state, ACTIONS[action_id], check=False)
            rewards = arrays.player_rewards[env_id]
            rewards[: state.num_players] = self._rewards(state, before)
            arrays.rewards[env_id] = rewards[mover]
            arrays.terminals[env_id] = state.is_over
            arrays.truncations[env_id] = (
                limit is not None and not state.is_over and state.round > limit
            )
            self._show(env_id)

    def state(self, env_id: int) -> GameState:
        state = self._states[env_id].copy()
        state.rng = SplitMix(int(self._arrays.streams[env_id]))
        return state

    def _rewards(self, state: GameState, before: list[int]) -> NDArray[np.float64]:
        scores = np.array(state.scores, np.float64)
        if self._config.reward_scheme is RewardScheme.DenseScoreDelta:
            return scores - before
        return scores - np.mean(scores) if state.is_over else np.zeros(len(scores))

    def _show(self, env_id: int) -> None:
        state, arrays = self._states[env_id], self._arrays
        arrays.streams[env_id] = self._numbers[env_id].word
        arrays.current_players[env_id] = state.current_player
        arrays.observations[env_id] = self._features.encode(state, state.current_player)
        mask = arrays.legal_masks[env_id]
        mask[:] = False
        if not arrays.truncations[env_id]:
            mask[[ActionEncoder.encode(action) for action in legal_actions(state)]] = True
