"""Many tables of two, compiled: whoever learns is asked, whoever does not answers at once.

`tables` explains, and holds the arrays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.core.seeding import GAMMA
from entity_env.games.azul.engine import rules
from entity_env.games.azul.kernels.engine import (
    bits_of,
    end_round,
    fits_of,
    pass_turn,
    rows_of,
    seat,
    spread,
    start_game,
    take,
)
from entity_env.games.azul.kernels.entities import Shown, write_entities
from entity_env.games.azul.kernels.heuristics import best_move, greedy_worth
from entity_env.games.azul.kernels.legal_moves import Scratch, pending, pending_wall
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    FIELD,
    FLOOR_LENGTH,
    LINES,
    SCORE,
    SOURCES,
    WALL,
    Words,
)
from entity_env.games.azul.kernels.playouts import deal_by, nth_bit, random_move, uniform
from entity_env.games.azul.players.heuristics import POINT, SHARE

LEARNER, GREEDY, RUSH, RANDOM = 0, 1, 2, 3
"""Who sits in the second seat."""

_GAMMA: Final = np.uint64(GAMMA)
_COSTS: Final = POINT * np.array(rules.FLOOR_COSTS)
_ROWS: Final = np.array(rules.ROWS)
_COLUMNS: Final = np.array(rules.COLUMNS)
_COLOURS: Final = np.array(rules.COLOUR_CELLS)


class Tables(NamedTuple):
    """The games.

    Args:
        words: `(num_envs, 48)` int64, the positions.
        streams: `(num_envs,)` uint64, where the draws of each have got to.
        others: `(num_envs,)` int64, who sits in the second seat.
        starts: `(num_envs,)` int64, who begins the next game.
        told: `(num_envs, 2)` float64, what each seat was told last of how it stands, in points.
        is_told: `(num_envs, 2)` bool, whether it was told anything in this game.
    """

    words: NDArray[np.int64]
    streams: NDArray[np.uint64]
    others: NDArray[np.int64]
    starts: NDArray[np.int64]
    told: NDArray[np.float64]
    is_told: NDArray[np.bool_]


class Steps(NamedTuple):
    """What came of a step, by row: row `2 i + s` is seat s of table i.

    Args:
        reward: `(num_rows,)` float32.
        terminated: `(num_rows,)` bool.
        lengths: `(7, num_rows)` int64, how many entities of each type are shown.
        scores: `(num_envs, 2)` int64, of games that have just ended.
        shares: `(num_envs,)` float64, what the first seat has of the win there; -1 elsewhere.
    """

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    scores: NDArray[np.int64]
    shares: NDArray[np.float64]


@compiled()
def _prospects(words: Words, player: int) -> int:
    """`tables.prospects`."""
    me = seat(player)
    if words[END]:
        score: int = POINT * words[me + SCORE]
        return score
    before, wall = pending(words, me, 5, 0), pending_wall(words, me)
    shares = 0
    for i in range(5):
        shares += rules.ROW_BONUS * bits_of(wall & _ROWS[i]) ** 2
        shares += rules.COLUMN_BONUS * bits_of(wall & _COLUMNS[i]) ** 2
        shares += rules.COLOUR_BONUS * bits_of(wall & _COLOURS[i]) ** 2
    value = POINT * (words[me + SCORE] + before) + SHARE * shares
    for row in range(5):
        line = words[me + LINES] >> 6 * row & FIELD
        count = line & 7
        if 0 < count <= row:
            worth = greedy_worth(words, me, row, line >> 3, before, wall)
            value += worth * count // (2 * row + 2)
    return int(value - _COSTS[words[me + FLOOR_LENGTH]])


@compiled()
def prospects(words: Words) -> NDArray[np.int64]:
    """`(2,)`, of both players."""
    return np.array([_prospects(words, 0), _prospects(words, 1)])


@compiled()
def _nth_option(words: Words, n: int) -> tuple[int, int]:
    """A legal move by its place among all: source and choice."""
    fits = fits_of(words)
    for source in range(10):
        moves = fits & spread(words[SOURCES + source])
        count = bits_of(moves)
        if n < count:
            return source, nth_bit(moves, n)
        n -= count
    return -1, -1


@compiled()
def _make_move(
    tables: Tables, i: int, source: int, choice: int, uniforms: NDArray[np.float64]
) -> bool:
    """Makes a move, and deals if that ends a round; whether the game is over."""
    words = tables.words[i]
    if not take(words, source, choice):
        pass_turn(words)
        return False
    if end_round(words):
        return True
    tables.streams[i] = deal_by(words, tables.streams[i], uniforms)
    return False


@compiled()
def _answer(
    tables: Tables, i: int, uniforms: NDArray[np.float64], worths: NDArray[np.int64]
) -> bool:
    """Lets who does not learn move until it is a learner's turn; whether the game is over."""
    words, other = tables.words[i], tables.others[i]
    while other != LEARNER and words[CURRENT] == 1:
        if other == RANDOM:
            tables.streams[i] += _GAMMA
            source, choice = random_move(words, uniform(tables.streams[i]))
        else:
            source, choice = best_move(words, 0 if other == GREEDY else 1, worths)
        if _make_move(tables, i, source, choice, uniforms):
            return True
    return False


@compiled()
def _begin_one(
    tables: Tables, i: int, uniforms: NDArray[np.float64], worths: NDArray[np.int64]
) -> None:
    start_game(tables.words[i], 2, tables.starts[i])
    tables.starts[i] = 1 - tables.starts[i]
    tables.streams[i] = deal_by(tables.words[i], tables.streams[i], uniforms)
    tables.is_told[i, 0] = tables.is_told[i, 1] = False
    _answer(tables, i, uniforms, worths)


@compiled()
def _tell(tables: Tables, i: int, player: int, scale: float, steps: Steps) -> None:
    """Rewards a seat for how it stands now, compared with when it was told last."""
    lead = float(_prospects(tables.words[i], player) - _prospects(tables.words[i], 1 - player))
    lead *= scale / POINT
    if tables.is_told[i, player]:
        steps.reward[2 * i + player] += lead - tables.told[i, player]
    tables.told[i, player] = lead
    tables.is_told[i, player] = True


@compiled()
def _finish(tables: Tables, i: int, scale: float, win: float, steps: Steps) -> None:
    """The last rewards of a game, and how it ended."""
    words = tables.words[i]
    mine, theirs = words[seat(0) + SCORE], words[seat(1) + SCORE]
    steps.scores[i, 0] = mine
    steps.scores[i, 1] = theirs
    rows = rows_of(words[seat(0) + WALL]) - rows_of(words[seat(1) + WALL])
    ahead = mine - theirs if mine != theirs else rows
    steps.shares[i] = 0.5 + 0.5 * (ahead > 0) - 0.5 * (ahead < 0)
    for player in range(1 + int(tables.others[i] == LEARNER)):
        _tell(tables, i, player, scale, steps)
        sign = 2 * steps.shares[i] - 1
        steps.reward[2 * i + player] += win * (sign if player == 0 else -sign)
        steps.terminated[2 * i + player] = True


@compiled()
def begin(env_ids: NDArray[np.int64], tables: Tables) -> None:
    """Begins new games."""
    uniforms, worths = np.zeros(36, np.float64), np.zeros(30, np.int64)
    for i in env_ids:
        _begin_one(tables, i, uniforms, worths)


@compiled()
def step(picks: NDArray[np.int64], scale: float, win: float, tables: Tables, steps: Steps) -> None:
    """Makes the picked moves, and those of who does not learn; new games follow ended ones.

    `steps` says that nothing has happened; so before `show`, which adds to the rewards.
    """
    uniforms, worths = np.zeros(36, np.float64), np.zeros(30, np.int64)
    for i in range(picks.shape[0]):
        source, choice = _nth_option(tables.words[i], picks[i])
        is_over = _make_move(tables, i, source, choice, uniforms)
        if is_over or _answer(tables, i, uniforms, worths):
            _finish(tables, i, scale, win, steps)
            _begin_one(tables, i, uniforms, worths)


@compiled()
def show(
    scale: float, tables: Tables, steps: Steps, shown: Shown, scratch: Scratch
) -> tuple[int, int]:
    """Shows every table to whose turn it is; how many groups and options there are in all."""
    at = np.zeros(3, np.int64)
    for i in range(tables.words.shape[0]):
        words = tables.words[i]
        player = words[CURRENT]
        _tell(tables, i, player, scale, steps)
        groups, options = write_entities(words, at, shown, scratch)
        row = 2 * i + player
        steps.lengths[0, row] = 1
        steps.lengths[1, row] = 6
        steps.lengths[2, row] = groups
        steps.lengths[3, row] = 2
        steps.lengths[4, row] = 10
        steps.lengths[5, row] = 10
        steps.lengths[6, row] = options
    return at[1], at[2]
