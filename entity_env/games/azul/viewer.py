"""The table as text, and moves in human notation.

Colors are letters: B blue, Y yellow, R red, K black, W white; a lowercase letter is an empty place
on a wall. Factories and lines count from 1, so line 3 holds three tiles.

Example:
    >>> import numpy as np
    >>> from entity_env.games.azul import draw_state, new_game
    >>> print(draw_state(new_game(2, rng=np.random.default_rng(5)), colours=False))
    Azul, round 1: Player 1 to take tiles
    <BLANKLINE>
    Factories   1 YRKW   2 BBYR   3 BYKW   4 RWWW   5 BYRK
    Center      start marker
    Bag 80      B 16  Y 16  R 16  K 17  W 15    Lid empty
    <BLANKLINE>
    > Player 1: 0 points                  |    Player 2: 0 points
          1         .   b y r k w         |        1         .   b y r k w
          2       . .   w b y r k         |        2       . .   w b y r k
          3     . . .   k w b y r         |        3     . . .   k w b y r
          4   . . . .   r k w b y         |        4   . . . .   r k w b y
          5 . . . . .   y r k w b         |        5 . . . . .   y r k w b
      Floor . . . . . . .                 |    Floor . . . . . . .
            1 1 2 2 2 3 3                 |          1 1 2 2 2 3 3
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import IO, Final

from entity_env.errors import UsageError
from entity_env.games.azul.engine.actions import Action, ActionEncoder
from entity_env.games.azul.engine.engine import is_legal, legal_actions, why_not, winners
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOURS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MARKER,
    NOBODY,
    NUM_LINES,
)
from entity_env.games.azul.engine.state import End, GameState, Player

LETTERS: Final = ("B", "Y", "R", "K", "W")
UNKNOWN: Final = 6
"""A floor tile of unknown color."""
_MARKER: Final = "1"
_FREE: Final = "."
_STYLES: Final = ("97;44", "30;43", "97;41", "97;40", "30;107")
"""ANSI styles: letter on a background of the tile's color."""
_DIM: Final = "2"
_BOLD: Final = "1"
_GUTTER: Final = "  |  "
_BOARD_WIDTH: Final = 36
_STYLED: Final = re.compile(r"\x1b\[[0-9;]*m")
_ENDS: Final[dict[End, str]] = {
    "row": "a row is full",
    "no_progress": "no wall can ever change again",
    "no_tiles": "there are no tiles left",
}
_MOVE: Final = re.compile(
    r"(?:f(?:actory)?\s*)?(?P<source>\d+|c(?:ent(?:re|er))?)[\s,]+(?:(?:of|from)\s+)?"
    r"(?P<colour>[a-z]+)[\s,]+(?:to\s+)?(?:l(?:ine)?\s*)?(?P<place>\d+|f(?:loor)?)"
)


def draw_state(
    state: GameState,
    *,
    colours: bool,
    viewpoint: int | None = None,
    names: Sequence[str] | None = None,
    width: int = 80,
) -> str:
    """The whole table: factories, center, bag and every board.

    Args:
        colours: paint the tiles with ANSI sequences; see `has_colours`.
        viewpoint: index of the player whose board comes first; default: 0.
        names: names of the players; default: "Player 1" and so on.
        width: available columns; as many boards as fit are drawn side by side, at least two.

    Returns:
        Lines without a final line end, less than 80 columns wide with two boards side by side.

    Raises:
        UsageError: no such player, or a wrong number of names.
    """
    if names is not None and len(names) != state.num_players:
        raise UsageError(f"draw_state: {state.num_players} players, got {len(names)} names")
    if viewpoint is not None and not 0 <= viewpoint < state.num_players:
        raise UsageError(
            f"draw_state: viewpoint must be from 0 to {state.num_players - 1}, got {viewpoint}"
        )
    paint = _Paint(colours)
    order = [(i + (viewpoint or 0)) % state.num_players for i in range(state.num_players)]
    called = [f"Player {i + 1}" for i in range(state.num_players)] if names is None else names
    lines = [paint.styled(_title(state, called), _BOLD), "", *_table(state, paint)]
    boards = [_board(state, player, called[player], paint) for player in order]
    per_row = max(2, (width - 1 + len(_GUTTER)) // (_BOARD_WIDTH + len(_GUTTER)))
    for i in range(0, len(boards), per_row):
        lines.append("")
        rows = zip(*boards[i : i + per_row], strict=True)
        lines += [_GUTTER.join(row).rstrip() for row in rows]
    return "\n".join(lines)


def has_colours(stream: IO[str]) -> bool:
    """True if a stream is a terminal with colors, and NO_COLOR (no-color.org) is not set."""
    if "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return stream.isatty()


def describe_move(action_id: int) -> str:
    """A move in words, such as "red from factory 1 to line 3"; numbered as in the drawing.

    Raises:
        InvalidActionId: not an integer from 0 to 299.
    """
    return ActionEncoder.decode(action_id).in_words(1)


def legal_moves(state: GameState) -> list[str]:
    """Legal moves as text: one line per source, with the lines open to each color."""
    lines: dict[int, dict[int, list[str]]] = {}
    for source, colour, place in legal_actions(state):
        places = lines.setdefault(source, {}).setdefault(colour, [])
        if place != FLOOR:
            places.append(str(place + 1))
    rows = [
        f"{'center' if source == CENTRE else source + 1:>6}  "
        + "   ".join(" ".join([LETTERS[colour], *places]) for colour, places in groups.items())
        for source, groups in lines.items()
    ]
    return [*rows, " floor  takes all of these"] if rows else []


def read_move(text: str, state: GameState) -> int:
    """Id of a legal move given as text: "2 red 3", "c k floor", "f1 blue line 2".

    Source: a factory's number or `center`. Color: a name or a letter of `LETTERS`. Place: a line's
    number or `floor`. `c` and `f` stand for `center` and `floor`; a color may be shortened.

    Raises:
        UsageError: not a move, or not a legal one.
    """
    found = _MOVE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"write source, color and place, such as '2 red 3' or 'center k floor': got {text!r}"
        )
    action = Action(
        _source(found["source"], len(state.factories)),
        _colour(found["colour"]),
        _place(found["place"]),
    )
    action_id = ActionEncoder.encode(action)
    if not is_legal(state, action):
        raise UsageError(f"{describe_move(action_id)}: {why_not(state, action)}")
    return action_id


def _source(text: str, num_factories: int) -> int:
    if text.startswith("c"):
        return CENTRE
    if not 1 <= int(text) <= num_factories:
        raise UsageError(f"there are factories 1 to {num_factories}, and the center: got {text}")
    return int(text) - 1


def _colour(text: str) -> int:
    if text.upper() in LETTERS:
        return LETTERS.index(text.upper())
    fits = [i for i, colour in enumerate(COLOURS) if colour.startswith(text)]
    if len(fits) != 1:
        raise UsageError(f"the colors are {', '.join(COLOURS)}, or B Y R K W: got {text!r}")
    return fits[0]


def _place(text: str) -> int:
    if text.startswith("f"):
        return FLOOR
    if not 1 <= int(text) <= NUM_LINES:
        raise UsageError(f"there are lines 1 to {NUM_LINES}, and the floor: got {text}")
    return int(text) - 1


class _Paint:
    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours else text

    def tile(self, tile: int) -> str:
        if tile == MARKER:
            return self.styled(_MARKER, _BOLD)
        if tile == UNKNOWN:
            return "x"
        return self.styled(LETTERS[tile], _STYLES[tile])

    def place(self, colour: int) -> str:
        return self.styled(LETTERS[colour].lower(), _DIM)

    def free(self, count: int) -> list[str]:
        return [self.styled(_FREE, _DIM)] * count

    def group(self, counts: Sequence[int]) -> str:
        return "".join(self.tile(i) * count for i, count in enumerate(counts))

    def counts(self, counts: Sequence[int]) -> str:
        texts = [f"{self.tile(i)} {count}" for i, count in enumerate(counts) if count]
        return "  ".join(texts) or "empty"


def _title(state: GameState, names: Sequence[str]) -> str:
    if state.end is None:
        return f"Azul, round {state.round}: {_cut(names[state.current_player], 40)} to take tiles"
    return (
        f"Azul, over after round {state.round} ({describe_end(state.end)}): {_won_by(state, names)}"
    )


def _won_by(state: GameState, names: Sequence[str]) -> str:
    first = [_cut(names[player], 20) for player in winners(state)]
    return f"{first[0]} wins" if len(first) == 1 else f"{' and '.join(first)} share"


def describe_end(end: End) -> str:
    """Why a game is over, in words."""
    return _ENDS[end]


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 2]}.."


def _table(state: GameState, paint: _Paint) -> list[str]:
    factories = [
        f"{i + 1} {paint.group(tiles) if any(tiles) else paint.styled('----', _DIM)}"
        for i, tiles in enumerate(state.factories)
    ]
    centre = [paint.counts(state.centre)] if any(state.centre) else []
    centre += ["start marker"] if state.marker == NOBODY else []
    rows = [factories[i : i + 5] for i in range(0, len(factories), 5)]
    return [
        *(f"{'' if i else 'Factories':11} {'   '.join(row)}" for i, row in enumerate(rows)),
        f"Center      {'  '.join(centre) or 'empty'}",
        f"Bag {sum(state.bag):<7} {paint.counts(state.bag)}    Lid {paint.counts(state.lid)}",
    ]


def _board(state: GameState, player: int, name: str, paint: _Paint) -> list[str]:
    board = state.players[player]
    is_next = state.end is None and state.current_player == player
    marker = ", starts next" if state.marker == player and state.end is None else ""
    points = f": {board.score} points{marker}"
    title = f"{_cut(name, _BOARD_WIDTH - 2 - len(points))}{points}"
    floor = [paint.tile(tile) for tile in board.floor]
    floor += paint.free(FLOOR_SLOTS - len(board.floor))
    costs = [str(b - a) for a, b in pairwise(FLOOR_COSTS)]
    styled = paint.styled(title, _BOLD) if is_next else title
    rows = [
        ("> " if is_next else "  ") + styled,
        *(_row(board, row, paint) for row in range(NUM_LINES)),
        f"  Floor {' '.join(floor)}",
        paint.styled(f"        {' '.join(costs)}", _DIM),
    ]
    return [row + " " * (_BOARD_WIDTH - len(_STYLED.sub("", row))) for row in rows]


def _row(board: Player, row: int, paint: _Paint) -> str:
    """A line, filled from the right, and its row of the wall."""
    count = board.line_counts[row]
    line = [" "] * (NUM_LINES - 1 - row) + paint.free(row + 1 - count)
    line += [paint.tile(board.line_colours[row])] * count
    wall = [
        paint.tile(colour) if board.wall >> 5 * row + column & 1 else paint.place(colour)
        for column in range(5)
        for colour in [(column - row) % 5]
    ]
    return f"      {row + 1} {' '.join(line)}   {' '.join(wall)}"
