"""One game stepped by action ids, on the reference engine or on the compiled one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

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
    PackedState,
    pack_state,
    unpack_state,
)

Observations: TypeAlias = NDArray[np.float32]
"""`(4, OBS_SIZE)`, 0 everywhere before it is filled; `(0, OBS_SIZE)`: nothing is filled."""
Observation: TypeAlias = NDArray[np.float32]
"""`(OBS_SIZE,)`, a row of it: what one player sees."""
Mask: TypeAlias = NDArray[np.bool_]
"""`(300,)`, False everywhere before it is filled."""
Rewards: TypeAlias = NDArray[np.float32]
"""`(4,)`, 0 everywhere before it is filled with the changes of the scores."""

NO_OBSERVATIONS: Final = np.zeros((0, OBS_SIZE), np.float32)
ILLEGAL: Final = -1
TO_DEAL: Final = -2
"""Result of compiled code when a round has begun and must be dealt."""
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
        """A copy of the position."""

    def restore(self, state: GameState) -> None:
        """Returns to an earlier position of this game, of `state`."""

    def show(self, observations: Observations, mask: Mask) -> int:
        """Fills the arrays; returns the current player, plus `OVER` at the end, when it is the
        player of the last move."""

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        """Makes a move, an id from 0 to 299, and fills the arrays."""


class PlainGame:
    """A game on the reference engine; arguments as for `new_game`."""

    def __init__(
        self,
        num_players: int,
        *,
        starting_player: int = 0,
        rng: RandomSource | None = None,
        draw: Draw | None = None,
    ) -> None:
        self.position = new_game(num_players, starting_player=starting_player, rng=rng, draw=draw)
        self._features = FeatureExtractor()

    @property
    def round(self) -> int:
        return self.position.round

    @property
    def scores(self) -> list[int]:
        return self.position.scores

    def state(self) -> GameState:
        return self.position.copy()

    def restore(self, state: GameState) -> None:
        self.position = state

    def show(self, observations: Observations, mask: Mask) -> int:
        state = self.position
        for player in range(min(state.num_players, len(observations))):
            observations[player] = self._features.encode(state, player)
        mask[[ActionEncoder.encode(action) for action in legal_actions(state)]] = True
        return state.current_player + OVER * state.is_over

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        action = ACTIONS[action_id]
        if not is_legal(self.position, action):
            return ILLEGAL
        before = self.position.scores
        if self.position.draw is None:
            apply_in_place(self.position, action, check=False)
        else:
            self.position = apply_action(self.position, action)
        for player, score in enumerate(self.position.scores):
            rewards[player] = score - before[player]
        return self.show(observations, mask)


Backend: TypeAlias = Literal["auto", "numba", "numpy"]
"""`numba`: compiled, which takes seconds for the first process of an installation. `numpy`: the
plain reference, which plays the same games. `auto`: compiled where numba is installed."""


def plays_compiled(backend: Backend, owner: str) -> bool:
    """Whether a backend is the compiled one; errors as for `uses_numba`."""
    choices: tuple[str, ...] = get_args(Backend)
    given: str = backend  # "python" is the old name of "numpy"
    return uses_numba(owner, "numpy" if given == "python" else given, choices)


@cache
def _load() -> Any:  # noqa: ANN401 - machine code, loaded once a process
    uses_numba("FastGame", "numba", ("numba",))
    return import_module("entity_env.games.azul.kernels.step").StepKernels()


class FastGame:
    """A game on the compiled engine; equal random numbers deal the same game as by `new_game`.

    Args:
        num_players, starting_player, rng, draw: as for `new_game`.

    Attributes:
        words: the position, `(NUM_WORDS,)` int64, changed by every move; see
            `kernels.packed_state`.
        rng: draws the tiles of later rounds.
        draw: draws them instead, if not None.

    Raises:
        UsageError, SchemaError: as `new_game` does.
        MissingExtraError: numba is not installed.
    """

    __slots__ = ("_kernels", "_tiles", "draw", "rng", "words")

    words: PackedState
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
        """A copy of the game that draws from the same source."""
        game = FastGame.__new__(FastGame)
        for name in self.__slots__:
            setattr(game, name, getattr(self, name))
        game.words = self.words.copy()
        return game

    def __reduce__(self) -> tuple[object, tuple[GameState]]:
        # Machine code is not pickled: each process loads its own.
        return FastGame.from_state, (self.state(),)

    @property
    def num_players(self) -> int:
        """2 to 4."""
        return int(self.words[NUM_PLAYERS])

    @property
    def current_player(self) -> int:
        """The player whose turn it is; at the end, the player of the last move."""
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

    def restore(self, state: GameState) -> None:
        """See `SteppedGame`."""
        self.words = pack_state(state)

    def legal_mask(self) -> NDArray[np.bool_]:
        """`(300,)` bool, a new array: which action ids are legal; none when the game is over."""
        mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
        self._kernels.show(self.words, NO_OBSERVATIONS, mask)
        return mask

    def play(self, action_id: int) -> None:
        """Makes a move.

        Raises:
            InvalidActionId, IllegalAction, SchemaError: as `apply_action` does, before anything
                changes.
        """
        mask, rewards = np.zeros(ACTION_SPACE_SIZE, np.bool_), np.zeros(4, np.float32)
        if self.move(checked_id(action_id), NO_OBSERVATIONS, mask, rewards) == ILLEGAL:
            raise illegal(self.state(), ACTIONS[action_id])

    def show(self, observations: Observations, mask: Mask) -> int:
        """See `SteppedGame`."""
        status: int = self._kernels.show(self.words, observations, mask)
        return status

    def move(self, action_id: int, observations: Observations, mask: Mask, rewards: Rewards) -> int:
        """See `SteppedGame`."""
        kernels = self._kernels
        # `draw` may raise after the move: then the game must be as before.
        words = self.words if self.draw is None else self.words.copy()
        status: int = kernels.move(words, action_id, observations, mask, rewards)
        if status == TO_DEAL:
            if self.draw is None:
                uniforms = deal_numbers(self.rng, self._tiles)
                return int(kernels.deal_and_show(words, uniforms, observations, mask))
            state = unpack_state(words, self.rng, self.draw)
            deal(state)
            words = pack_state(state)
            status = kernels.show(words, observations, mask)
        self.words = words
        return status
