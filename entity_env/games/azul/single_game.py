"""FastGame: one game stepped by action ids, compiled if numba is installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import has_numba
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS, checked_id
from entity_env.games.azul.engine.engine import check_seats, deal, illegal
from entity_env.games.azul.engine.rules import num_dealt
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng, deal_numbers
from entity_env.games.azul.kernels.engine import start_game
from entity_env.games.azul.kernels.kernel import copied_words, machine_code
from entity_env.games.azul.kernels.observation import OBS_SIZE
from entity_env.games.azul.kernels.packed_state import NUM_WORDS, PackedState
from entity_env.games.azul.kernels.step import (
    ILLEGAL,
    TO_DEAL,
    Observations,
    Rewards,
    deal_and_show,
    move_in_game,
    show_game,
    start_dealt,
)

Observation: TypeAlias = NDArray[np.float32]
"""Observation of one player, `(OBS_SIZE,)`."""
Mask: TypeAlias = NDArray[np.bool_]
"""`(300,)`, all False before it is filled."""

NO_OBSERVATIONS: Final = np.zeros((0, OBS_SIZE), np.float32)


class _Kernels(NamedTuple):
    start: Any
    show: Any
    move: Any
    deal_and_show: Any


_PLAIN: Final = _Kernels(start_dealt, show_game, move_in_game, deal_and_show)


@cache
def _compiled() -> _Kernels:
    """Machine code, compiled or read from the cache.

    Calls check no dimensions and only item sizes (see `loaded`), so callers must pass contiguous
    arrays of the dtypes and dimensions below.
    """
    types: Any = import_module("numba").types
    utils: Any = import_module("entity_env.core.numba_utils")
    words = types.Array(types.int64, 1, "C")
    uniforms = types.Array(types.float64, 1, "C")
    shown = types.Array(types.float32, 2, "C"), types.Array(types.boolean, 1, "C")
    rewards = types.Array(types.float32, 1, "C")
    return _Kernels(
        utils.loaded(machine_code(start_dealt), words, types.int64, types.int64, uniforms),
        utils.loaded(machine_code(show_game), words, *shown),
        utils.loaded(machine_code(move_in_game), words, types.int64, *shown, rewards),
        utils.loaded(machine_code(deal_and_show), words, uniforms, *shown),
    )


class FastGame(GameState):
    """A game played by action ids; equal random numbers give the same game as `new_game`.

    If numba is installed, kernels are compiled, which takes seconds in the first process of an
    installation.

    Args:
        num_players, starting_player, rng, draw: as for `new_game`.

    Attributes:
        words: the packed position, `(NUM_WORDS,)` int64 if kernels are compiled.

    Raises:
        UsageError, SchemaError: see `new_game`.
    """

    __slots__ = ("_kernels",)

    def __init__(
        self,
        num_players: int,
        *,
        starting_player: int = 0,
        rng: RandomSource | None = None,
        draw: Draw | None = None,
    ) -> None:
        check_seats(num_players, starting_player)
        self._begin([0] * NUM_WORDS, checked_rng(rng), draw)
        if draw is None:
            uniforms = deal_numbers(self.rng, num_dealt(num_players))
            self._kernels.start(self.words, num_players, starting_player, uniforms)
        else:
            start_game(self.words, num_players, starting_player)
            deal(self.words, self.rng, draw)

    def _begin(self, words: PackedState, rng: RandomSource, draw: Draw | None) -> None:
        self._kernels = _compiled() if has_numba() else _PLAIN
        super().__init__(copied_words(words), rng, draw)

    @classmethod
    def from_state(cls, state: GameState) -> FastGame:
        """Game that continues from a state, which is not changed."""
        game = cls.__new__(cls)
        game._begin(state.words, state.rng, state.draw)
        return game

    def copy(self) -> FastGame:
        """Copy of the game that draws from the same source."""
        return FastGame.from_state(self)

    def __reduce__(self) -> tuple[object, tuple[GameState]]:
        # Each process loads its own machine code.
        return FastGame.from_state, (self.state(),)

    def state(self) -> GameState:
        """Copy of the position that draws from the same source."""
        return GameState([int(word) for word in self.words], self.rng, self.draw)

    def restore(self, state: GameState) -> None:
        """Returns to an earlier position of this game, saved by `state`."""
        self.words = copied_words(state.words)

    def legal_mask(self) -> NDArray[np.bool_]:
        """Legal action ids, a new `(300,)` bool array; all False when the game is over."""
        mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
        self._kernels.show(self.words, NO_OBSERVATIONS, mask)
        return mask

    def play(self, action_id: int) -> None:
        """Makes a move.

        Raises:
            InvalidActionId, IllegalAction, SchemaError: see `apply_action`; raised before anything
                changes.
        """
        mask, rewards = np.zeros(ACTION_SPACE_SIZE, np.bool_), np.zeros(4, np.float32)
        if self.move(checked_id(action_id), NO_OBSERVATIONS, mask, rewards) == ILLEGAL:
            raise illegal(self.state(), ACTIONS[action_id])

    def show(self, observations: Observations, mask: Mask) -> int:
        """Fills the arrays; returns the current player. When the game is over: `OVER` plus the
        player of the last move."""
        status: int = self._kernels.show(self.words, observations, mask)
        return status

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        """Makes a move, 0 to 299, and fills the arrays; returns as `show`, or `ILLEGAL`."""
        kernels = self._kernels
        # `draw` may raise after the move; then the game must be as before.
        words = self.words if self.draw is None else self.words.copy()
        status: int = kernels.move(words, action_id, observations, mask, rewards)
        if status == TO_DEAL:
            if self.draw is None:
                uniforms = deal_numbers(self.rng, num_dealt(self.num_players))
                return int(kernels.deal_and_show(words, uniforms, observations, mask))
            deal(words, self.rng, self.draw)
            status = kernels.show(words, observations, mask)
        self.words = words
        return status
