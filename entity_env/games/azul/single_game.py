"""One game as an environment steps it: what both engines can do, and how the reference does it."""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.engine.actions import ACTIONS, ActionEncoder
from entity_env.games.azul.engine.engine import (
    apply_action,
    apply_in_place,
    is_legal,
    legal_actions,
    new_game,
)
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource
from entity_env.games.azul.features import FeatureExtractor

Observations: TypeAlias = NDArray[np.float32]
"""`(4, OBS_SIZE)`, 0 everywhere before it is filled; `(0, OBS_SIZE)`: there is nothing to fill."""
Mask: TypeAlias = NDArray[np.bool_]
"""`(300,)`, False everywhere before it is filled."""
Rewards: TypeAlias = NDArray[np.float32]
"""`(4,)`, 0 everywhere before it is filled with what the scores have gained."""

ILLEGAL: Final = -1
TO_DEAL: Final = -2
"""What compiled code answers when the next round has begun but for its deal."""
OVER: Final = 4


class SteppedGame(Protocol):
    """A game that is played by action ids."""

    @property
    def round(self) -> int:
        """Number of the round, from 1."""

    @property
    def scores(self) -> list[int]:
        """Points of every player so far."""

    def state(self) -> GameState:
        """The position, a copy."""

    def show(self, observations: Observations, mask: Mask) -> int:
        """Fills in what is to be seen; returns the player whose turn it is, `OVER` added at the
        end, when it is the one who made the last move."""

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        """Makes a move, an id from 0 to 299, and fills in what it led to.

        Returns:
            What `show` returns; or `ILLEGAL`, and then, or if it raises, nothing has changed.

        Raises:
            SchemaError: the draw of whoever replays the game answers nonsense.
        """


class PlainGame:
    """A game on the reference engine.

    Args:
        num_players, starting_player, rng, draw: see `new_game`.
    """

    def __init__(
        self,
        num_players: int,
        *,
        starting_player: int = 0,
        rng: RandomSource | None = None,
        draw: Draw | None = None,
    ) -> None:
        self._state = new_game(num_players, starting_player=starting_player, rng=rng, draw=draw)
        self._features = FeatureExtractor()

    @property
    def round(self) -> int:
        return self._state.round

    @property
    def scores(self) -> list[int]:
        return self._state.scores

    def state(self) -> GameState:
        return self._state.copy()

    def show(self, observations: Observations, mask: Mask) -> int:
        for player in range(min(self._state.num_players, len(observations))):
            observations[player] = self._features.encode(self._state, player)
        mask[[ActionEncoder.encode(action) for action in legal_actions(self._state)]] = True
        return self._state.current_player + OVER * self._state.is_over

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        action = ACTIONS[action_id]
        if not is_legal(self._state, action):
            return ILLEGAL
        before = self._state.scores
        if self._state.draw is None:
            apply_in_place(self._state, action, check=False)
        else:
            self._state = apply_action(self._state, action)
        for player, score in enumerate(self._state.scores):
            rewards[player] = score - before[player]
        return self.show(observations, mask)
