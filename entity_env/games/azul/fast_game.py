"""FastGame: one game on the compiled engine, played by action ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.backend import is_compiled
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS, checked_id
from entity_env.games.azul.engine.engine import check_seats, deal, illegal, new_game
from entity_env.games.azul.engine.rules import TILES_PER_FACTORY, num_factories
from entity_env.games.azul.engine.state import ENDS, End, GameState
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng, deal_numbers
from entity_env.games.azul.features import OBS_SIZE
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    NUM_PLAYERS,
    NUM_WORDS,
    PLAYER_WORDS,
    PLAYERS,
    ROUND,
    SCORE,
    Words,
    pack_state,
    unpack_state,
)
from entity_env.games.azul.single_game import ILLEGAL, TO_DEAL, Mask, Observations, Rewards

_NO_OBSERVATIONS: Final = np.zeros((0, OBS_SIZE), np.float32)


class _Kernels(Protocol):
    """The functions of `steps_compiled`, which is imported when the first game begins."""

    advance: Callable[[Words, int, Observations, Mask, Rewards], int]
    deal_and_show: Callable[[Words, NDArray[np.float64], Observations, Mask], int]
    show: Callable[[Words, Observations, Mask], int]
    start: Callable[[Words, int, int, NDArray[np.float64]], None]


@cache
def _load() -> _Kernels:
    """The machine code, loaded once a process."""
    is_compiled("numba", "FastGame")
    kernels: _Kernels = import_module("entity_env.games.azul.kernels.step").Kernels()
    return kernels


class FastGame:
    """A game on the compiled engine; equal random numbers deal the same game as by `new_game`.

    Args:
        num_players, starting_player, rng, draw: see `new_game`.

    Attributes:
        words: the position, `(NUM_WORDS,)` int64; changes with every move. See module `words`.
        rng: draws the tiles of later rounds.
        draw: draws them instead, if not None.

    Raises:
        UsageError, SchemaError: as `new_game` does.
        MissingExtraError: numba is not installed.
    """

    __slots__ = ("_kernels", "_tiles", "draw", "rng", "words")

    words: Words
    rng: RandomSource
    draw: Draw | None

    def __init__(
        self,
        num_players: int,
        *,
        starting_player: int = 0,
        rng: RandomSource | None = None,
        draw: Draw | None = None,
    ) -> None:
        check_seats(num_players, starting_player)
        self._kernels = _load()
        self.rng = checked_rng(rng)
        self.draw = draw
        self._tiles = TILES_PER_FACTORY * num_factories(int(num_players))
        if draw is None:
            self.words = np.zeros(NUM_WORDS, np.int64)
            uniforms = deal_numbers(self.rng, self._tiles)
            self._kernels.start(self.words, num_players, starting_player, uniforms)
        else:
            state = new_game(num_players, starting_player=starting_player, draw=draw)
            self.words = pack_state(state)

    @classmethod
    def from_state(cls, state: GameState) -> FastGame:
        """A game that goes on from a state, which stays as it is."""
        game = cls.__new__(cls)
        game._kernels = _load()
        game.rng, game.draw = state.rng, state.draw
        game._tiles = TILES_PER_FACTORY * len(state.factories)
        game.words = pack_state(state)
        return game

    def copy(self) -> FastGame:
        """A game of its own, which draws from the same source."""
        game = FastGame.__new__(FastGame)
        for name in self.__slots__:
            setattr(game, name, getattr(self, name))
        game.words = self.words.copy()
        return game

    def __reduce__(self) -> tuple[object, tuple[GameState]]:
        """Machine code stays in its process: another one loads its own."""
        return FastGame.from_state, (self.state(),)

    @property
    def num_players(self) -> int:
        """2 to 4."""
        return int(self.words[NUM_PLAYERS])

    @property
    def current_player(self) -> int:
        """Whose turn it is; at the end, who made the last move."""
        return int(self.words[CURRENT])

    @property
    def round(self) -> int:
        """Number of the round, from 1."""
        return int(self.words[ROUND])

    @property
    def end(self) -> End | None:
        """None as long as the game goes on, and then why it is over."""
        return ENDS[self.words[END] - 1] if self.words[END] else None

    @property
    def is_over(self) -> bool:
        """Whether the game is over."""
        return bool(self.words[END])

    @property
    def scores(self) -> list[int]:
        """Points of every player so far."""
        words = self.words.tolist()
        return [words[PLAYERS + PLAYER_WORDS * i + SCORE] for i in range(self.num_players)]

    def state(self) -> GameState:
        """The position as a state, a copy that draws from the same source."""
        return unpack_state(self.words, self.rng, self.draw)

    def legal_mask(self) -> NDArray[np.bool_]:
        """`(300,)` bool, the caller's own: which action ids are legal; none when it is over."""
        mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
        self._kernels.show(self.words, _NO_OBSERVATIONS, mask)
        return mask

    def play(self, action_id: int) -> None:
        """Makes a move.

        Raises:
            InvalidActionId, IllegalAction, SchemaError: as `apply_action` does, before anything
                changes.
        """
        mask, rewards = np.zeros(ACTION_SPACE_SIZE, np.bool_), np.zeros(4, np.float32)
        if self.move(checked_id(action_id), _NO_OBSERVATIONS, mask, rewards) == ILLEGAL:
            raise illegal(self.state(), ACTIONS[action_id])

    def show(self, observations: Observations, mask: Mask) -> int:
        """Fills in what is to be seen; see `SteppedGame`."""
        return self._kernels.show(self.words, observations, mask)

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        """Makes a move, and fills in what it led to; see `SteppedGame`."""
        if self.draw is not None:
            return self._move_by_draw(action_id, observations, mask, rewards)
        kernels = self._kernels
        status = kernels.advance(self.words, action_id, observations, mask, rewards)
        if status == TO_DEAL:
            uniforms = deal_numbers(self.rng, self._tiles)
            status = kernels.deal_and_show(self.words, uniforms, observations, mask)
        return status

    def _move_by_draw(
        self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards
    ) -> int:
        """A move in a game whose tiles somebody else draws, who may answer nonsense."""
        words = self.words.copy()
        status = self._kernels.advance(words, action_id, observations, mask, rewards)
        if status == TO_DEAL:
            state = unpack_state(words, self.rng, self.draw)
            deal(state)
            words = pack_state(state)
            status = self._kernels.show(words, observations, mask)
        self.words = words
        return status
