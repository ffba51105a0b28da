"""FeatureExtractor: a position as 306 numbers, seen from the seat of one player.

| slice | name | content |
| --- | --- | --- |
| 0:45 | `factories` | tiles of each of 9 factories by color, / 4 |
| 45:50 | `centre` | tiles in the center by color, / 20 |
| 50 | `marker_in_centre` | 1 = the start marker is in the center |
| 51:56 | `bag` | tiles by color, / 20 |
| 56:61 | `lid` | tiles by color, / 20 |
| 61:120 | `player_0` | the observer; see below |
| 120:179 | `player_1` | the player after the observer |
| 179:238 | `player_2` | the next player; zeros in an unused seat |
| 238:297 | `player_3` | the next player; zeros in an unused seat |
| 297:301 | `turn` | 1 for the seat to move |
| 301:305 | `began` | 1 for the first seat of this round |
| 305 | `round` | round number, / 20 |

One player:

| slice | content |
| --- | --- |
| 0 | 1 = the seat is used |
| 1:31 | lines from the top: one-hot color (5), and how full the line is, 0 to 1 |
| 31:56 | wall by cell, row by row; 1 = there is a tile |
| 56 | taken slots of the floor, / 7 |
| 57 | 1 = holds the start marker |
| 58 | score / 100 |

Seats are relative: seat 0 is the observer, the others follow in order of play. All of this is
public: the bag holds the tiles that are in no other place, and they have no order before a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import checked_count, checked_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.azul.engine.rules import (
    COLOURS,
    MAX_FACTORIES,
    MAX_PLAYERS,
    NUM_COLOURS,
    NUM_LINES,
)
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.kernels.observation import (
    BAG_TILES,
    BEGAN,
    CENTRE_TILES,
    FACTORIES,
    LID_TILES,
    MARKER_IN_CENTRE,
    OBS_SIZE,
    ROUND,
    SEAT_SIZE,
    SEATS,
    TURN,
    write_observation,
)
from entity_env.vec.batch_env import as_any_array

SLICES: Final[Mapping[str, slice]] = MappingProxyType(
    {
        "factories": slice(FACTORIES, CENTRE_TILES),
        "centre": slice(CENTRE_TILES, MARKER_IN_CENTRE),
        "marker_in_centre": slice(MARKER_IN_CENTRE, BAG_TILES),
        "bag": slice(BAG_TILES, LID_TILES),
        "lid": slice(LID_TILES, SEATS),
        **{
            f"player_{seat}": slice(SEATS + SEAT_SIZE * seat, SEATS + SEAT_SIZE * (seat + 1))
            for seat in range(MAX_PLAYERS)
        },
        "turn": slice(TURN, BEGAN),
        "began": slice(BEGAN, ROUND),
        "round": slice(ROUND, OBS_SIZE),
    }
)
"""Slices by name, as in the table above."""


class PositionEncoder(Protocol):
    """Encodes positions for `AzulEnv`: `FeatureExtractor` or any object with its methods."""

    @property
    def obs_size(self) -> int | Callable[[], int]:
        """Length of an observation, or a method that returns it; constant."""

    def encode(self, state: GameState, player: int) -> NDArray[np.generic]:
        """Observation of a player, `(obs_size,)` numbers; deterministic."""


def checked_obs_size(features: PositionEncoder) -> int:
    """Length of an observation.

    Raises:
        UsageError: no `obs_size` or `encode`, or a size that is not an integer of at least 1.
    """
    size: object = getattr(features, "obs_size", None)
    if isinstance(features, type) or size is None or not callable(getattr(features, "encode", 0)):
        raise UsageError(
            "AzulEnv: features must be an object with obs_size and encode(state, player), as a "
            f"FeatureExtractor: got {features!r}"
        )
    return checked_count(
        f"AzulEnv: obs_size of {type(features).__name__}", size() if callable(size) else size
    )


def encoded(
    features: PositionEncoder, size: int, state: GameState, player: int
) -> NDArray[np.generic]:
    """Observation of a player, `(size,)` numbers; `SchemaError` for any other array."""
    row = as_any_array(features.encode(state, player))
    if row.shape != (size,) or row.dtype.kind not in "fiub":
        raise SchemaError(
            f"AzulEnv: {type(features).__name__}.encode must return ({size},) numbers, as its "
            f"obs_size says: got {row.shape} {row.dtype} for player {player}"
        )
    return row


class FeatureExtractor:
    """Encodes positions as vectors; see the table in the module docstring.

    `AzulEnv` also takes a subclass, or any `PositionEncoder`. A subclass with another size
    overrides both `obs_size` and `encode`.

    Example:
        >>> from entity_env.games.azul import FeatureExtractor, new_game
        >>> FeatureExtractor().encode(new_game(2), 0).shape
        (306,)
    """

    @property
    def obs_size(self) -> int:
        """Length of an observation."""
        return OBS_SIZE

    def encode(self, state: GameState, player: int) -> NDArray[np.float32]:
        """Observation of a player, `(obs_size,)` float32, a new array.

        Raises:
            UsageError: no such player.
        """
        row = [0.0] * OBS_SIZE
        write_observation(
            state.words, checked_index("Azul: player", player, state.num_players), row
        )
        return np.array(row, np.float32)


def _names() -> tuple[str, ...]:
    lines = [[f"line_{row}.is_{colour}" for colour in COLOURS] for row in range(NUM_LINES)]
    seat = [
        "is_there",
        *(name for row, names in enumerate(lines) for name in [*names, f"line_{row}.filled"]),
        *(f"wall.{row}.{column}" for row in range(NUM_LINES) for column in range(NUM_COLOURS)),
        *("floor", "holds_marker", "score"),
    ]
    return (
        *(f"factory_{i}.{colour}" for i in range(MAX_FACTORIES) for colour in COLOURS),
        *(f"centre.{colour}" for colour in COLOURS),
        "marker_in_centre",
        *(f"{place}.{colour}" for place in ("bag", "lid") for colour in COLOURS),
        *(f"player_{i}.{name}" for i in range(MAX_PLAYERS) for name in seat),
        *(f"{name}.{i}" for name in ("turn", "began") for i in range(MAX_PLAYERS)),
        "round",
    )


FEATURE_NAMES: Final = _names()
"""Unique name of each feature."""
