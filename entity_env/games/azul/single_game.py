"""One game as an environment steps it: what both engines can do, and how the reference does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import uses_numba
from entity_env.games.azul.engine.actions import (
    ACTION_SPACE_SIZE,
    ACTIONS,
    ActionEncoder,
    checked_id,
)
from entity_env.games.azul.engine.engine import (
    apply_action,
    apply_in_place,
    check_seats,
    deal,
    illegal,
    is_legal,
    legal_actions,
    new_game,
)
from entity_env.games.azul.engine.rules import TILES_PER_FACTORY, num_factories
from entity_env.games.azul.engine.state import ENDS, End, GameState
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng, deal_numbers
from entity_env.games.azul.features import OBS_SIZE, FeatureExtractor
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


Backend: TypeAlias = Literal["auto", "numba", "python"]
"""`numba`: compiled, which takes seconds for the first process of an installation. `python`: the
plain reference, which plays the same games. `auto`: compiled where numba is installed."""


def is_compiled(backend: Backend, purpose: str) -> bool:
    """Whether a backend is the compiled one.

    Args:
        backend: whose.
        purpose: what asks, for messages.

    Raises:
        UsageError: no such backend.
        MissingExtraError: "numba" where numba is not installed.
    """
    return uses_numba(purpose, backend, get_args(Backend))


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
