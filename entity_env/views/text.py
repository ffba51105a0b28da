"""Observations as text for a terminal: a board of cells, legend, lists, probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final

import numpy as np
from rich.text import Text

from entity_env.authoring.local_run import PastStep, Turn
from entity_env.core.action_request import Question
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.views.describe import (
    action_words,
    describe_number,
    entity_tables,
    label_of,
    percent,
    table_columns,
    words_of,
)
from entity_env.views.look import Look
from entity_env.views.parts.bars import (
    NOT_ALLOWED,
    ActorShares,
    highest,
    past_that_matters,
    shares_of,
)
from entity_env.views.scene import one_line
from entity_env.views.seen import SeenEntity, SeenObservation
from entity_env.views.text_style import EMPTY, FLAGGED, EntityStyle

MAX_COLUMNS: Final = 40
MAX_ROWS: Final = 24
_ACTS: Final = "<"
_BLOCK_ROWS: Final = 8
"""Maximum rows of a table in one block, if the width allows more blocks."""
_TABLE_GAP: Final = 2
_BLOCK_GAP: Final = "   "
_MAX_ACTORS: Final = 2
_MAX_CHOICES: Final = 5
_BAR: Final = 10
"""Number of characters in the bar of probability 1."""
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_ASCII_HEIGHTS: Final = "_.:-=+*#"
_MAX_HEIGHTS: Final = 24
_MAX_PAST: Final = 2


# ------------------------------------------------------------------ the board


@dataclass
class Grid:
    """A board that covers all places seen in an episode, and grows with them.

    Args:
        columns, rows: its minimum size; None = as needed.
        empty: character of an empty cell.
    """

    columns: int | None = None
    rows: int | None = None
    empty: str = EMPTY
    _low: list[float] = field(init=False)
    _high: list[float] = field(init=False)
    _is_whole: bool = field(init=False, default=True)
    _has_marks: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        sizes = (self.columns, self.rows)
        self._low = [math.inf if size is None else 0.0 for size in sizes]
        self._high = [-math.inf if size is None else size - 1.0 for size in sizes]

    def cover(
        self, entities: Iterable[SeenEntity], styles: Mapping[EntityName, EntityStyle]
    ) -> None:
        for entity in entities:
            place = styles[entity.type].place(entity)
            if not all(map(math.isfinite, place)):
                continue
            for axis, value in enumerate(place):
                rounded = self._rounded(value, axis)
                self._low[axis] = min(self._low[axis], rounded)
                self._high[axis] = max(self._high[axis], rounded)
            self._is_whole = self._is_whole and all(value == round(value) for value in place)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the whole board: a fixed number on a scaled axis; 0, 0 if empty."""
        if any(low > high for low, high in zip(self._low, self._high, strict=True)):
            return 0, 0
        spans = [int(high - low) + 1 for low, high in zip(self._low, self._high, strict=True)]
        has_cells = self._has_cells
        return (
            spans[0] if has_cells[0] else MAX_COLUMNS // 2,
            spans[1] if has_cells[1] else MAX_ROWS // 2,
        )

    @property
    def _has_cells(self) -> tuple[bool, bool]:
        """Whether a unit of each axis is a cell; else the axis is scaled."""
        return self._is_whole or self.columns is not None, self._is_whole or self.rows is not None

    def draw(
        self,
        entities: Iterable[SeenEntity],
        styles: Mapping[EntityName, EntityStyle],
        limit: tuple[int, int] = (MAX_COLUMNS, MAX_ROWS),
        acting: Sequence[SeenEntity] = (),
        keys: Mapping[int, str] | None = None,
        focus: int | None = None,
    ) -> Text:
        """The board with these entities; if several share a cell, the first is drawn.

        A cell is followed by the key of its entity. Without a key it is followed by `<` if a person
        is asked and the entity is the only actor, else by `*` if one of its flags is set.

        Args:
            limit: maximum columns and rows. A larger board with integer places scrolls to the focus
                or, without focus, to the acting entities; without any, the board is scaled down.
            keys: keys of entities that a person can select, by index; None = no person is asked.
            focus: index of the entity that Enter selects.

        Returns:
            One line per row, or "nothing visible" for an empty board. For a board that is too
            large, a last line has the visible part or the size.
        """
        placed = list(entities)
        self.cover(placed, styles)
        size = self.size
        if not all(size):
            return Text("nothing visible", style="dim")
        shown = min(size[0], limit[0]), min(size[1], limit[1])
        middle_of = [e for e in placed if e.index == focus] or acting
        is_scrolled = self._is_whole and size != shown and bool(middle_of)
        first = [0, 0]
        if is_scrolled:
            first = self._first_cell([styles[e.type].place(e) for e in middle_of], shown)
        symbols: dict[tuple[int, ...], Text] = {}
        actor = acting[0].index if keys is not None and len(acting) == 1 else None
        for entity in placed:
            style = styles[entity.type]
            cells = size if is_scrolled else shown
            cell = [
                self._cell(value, axis, cells[axis])
                for axis, value in enumerate(style.place(entity))
            ]
            at = (cell[0] - first[0], cell[1] - first[1])
            if at not in symbols:
                mark = FLAGGED if style.is_flagged(entity) else " "
                mark = (keys or {}).get(entity.index, _ACTS if entity.index == actor else mark)
                symbols[at] = style.symbol(entity)
                symbols[at].append(mark, "bold reverse" if entity.index == focus else "bold")
        board = self._joined(symbols, shown)
        if size != shown and all(self._has_cells):
            board.append(f"\n{self._part(first, shown, size, is_scrolled)}", style="dim")
        return board

    def _first_cell(
        self, places: Sequence[tuple[float, float]], shown: tuple[int, int]
    ) -> list[int]:
        middle = np.nan_to_num(np.array(places).mean(axis=0) - self._low)
        return [
            int(min(max(middle[axis] - shown[axis] // 2, 0), self.size[axis] - shown[axis]))
            for axis in (0, 1)
        ]

    def _joined(self, symbols: Mapping[tuple[int, ...], Text], shown: Sequence[int]) -> Text:
        """Joins the cells; keeps space for a mark once the last column has had one."""
        empty = Text.assemble((self.empty, "dim"), " ")
        rows = [
            Text.assemble(*(symbols.get((column, row), empty) for column in range(shown[0])))
            for row in reversed(range(shown[1]))
        ]
        self._has_marks |= any(not row.plain.endswith(" ") for row in rows)
        if not self._has_marks:
            for row in rows:
                row.right_crop(1)
        return Text("\n").join(rows)

    def _rounded(self, value: float, axis: int) -> float:
        """Cell number of a place on an axis of known size, else the place."""
        size = (self.columns, self.rows)[axis]
        if size is None:
            return value
        nearest = math.floor(value + 0.5)
        return min(nearest, size - 1) if value < size else nearest

    def _part(
        self, first: Sequence[int], shown: Sequence[int], size: Sequence[int], is_scrolled: bool
    ) -> str:
        if not is_scrolled:
            return f"{size[0]} x {size[1]}, scaled"
        return " ".join(
            f"{name} {low + start:g}..{low + start + count - 1:g}"
            for name, low, start, count in zip("xy", self._low, first, shown, strict=True)
        )

    def _cell(self, value: float, axis: int, num_cells: int) -> int:
        span = self._high[axis] - self._low[axis]
        if span == 0 or not math.isfinite(value):
            return 0
        return round((self._rounded(value, axis) - self._low[axis]) / span * (num_cells - 1))


_ASCII: Final = str.maketrans("─│▟█▙▄▀●■◉⚑…", "-|[#]##oOOF.")


def in_ascii(text: Text) -> Text:
    """A picture with similar ASCII characters."""
    plain = text.plain.translate(_ASCII).encode("ascii", "replace").decode()
    return Text(plain, no_wrap=True, spans=text.spans)


# ------------------------------------------------------------------ next to the board


def legend(
    entities: Sequence[SeenEntity],
    styles: Mapping[EntityName, EntityStyle],
    *,
    ascii_only: bool = False,
) -> Iterator[Text]:
    """One line per type with coordinates: symbols, name and count."""
    times = "x" if ascii_only else "×"
    counts = Counter(entity.type for entity in entities)
    for key, style in styles.items():
        if style.has_place:
            yield style.legend(f"{times}{counts[key]}")


def listed(
    entities: Sequence[SeenEntity],
    styles: Mapping[EntityName, EntityStyle],
    width: int = 80,
    *,
    ascii_only: bool = False,
) -> Iterator[Text]:
    """The entities without coordinates, and the global features.

    One table per type, with a title and a row for each entity. Equal entities share a row; tables
    are side by side if the width allows. A table that has only one row, or is too wide, becomes one
    line per row, without a title.
    """
    shelf: list[list[Text]] = []
    for table in _tables(entities, styles, width, ascii_only=ascii_only):
        sizes = [max(line.cell_len for line in each) for each in (*shelf, table)]
        is_full = sum(sizes) + len(shelf) * len(_BLOCK_GAP) > width
        if shelf and (is_full or 1 in (len(table), len(shelf[-1]))):
            yield from _side_by_side(shelf)
            shelf = []
        shelf.append(table)
    yield from _side_by_side(shelf)


def _side_by_side(tables: Sequence[Sequence[Text]]) -> Iterator[Text]:
    sizes = [max(line.cell_len for line in table) for table in tables]
    for lines in zip_longest(*tables, fillvalue=Text()):
        whole = Text()
        for line, size in zip(lines, sizes, strict=True):
            whole.append_text(line).pad_right(size - line.cell_len + len(_BLOCK_GAP))
        whole.rstrip()
        yield whole


def _tables(
    entities: Sequence[SeenEntity],
    styles: Mapping[EntityName, EntityStyle],
    width: int,
    *,
    ascii_only: bool,
) -> Iterator[list[Text]]:
    times = "x" if ascii_only else "×"
    tables = entity_tables(
        entity
        for entity in entities
        if len(entity.features)
        and (entity.type == GLOBAL_ENTITY or not styles[entity.type].has_place)
    )
    for key, rows in tables.items():
        ends = ["" if row.count == 1 else f"{times}{row.count}" for row in rows]
        ends = [
            end if row.entity.is_visible else f"{end} (hidden)".lstrip()
            for end, row in zip(ends, rows, strict=True)
        ]
        label = one_line(styles[key].label)
        # Names may be untrusted.
        cells = [{one_line(k): one_line(v) for k, v in row.cells.items()} for row in rows]
        rows = [replace(row, cells=each) for row, each in zip(rows, cells, strict=True)]
        columns = table_columns(rows)
        lines = [_cells(row.cells, columns) for row in rows]
        if len(rows) == 1 or len(lines[0]) + max(map(len, ends)) + _TABLE_GAP > width:
            for row, end in zip(rows, ends, strict=True):
                words = " ".join(f"{name}={text}" for name, text in row.cells.items())
                yield [Text("  ".join(filter(None, (f"{label} {words}".rstrip(), end))))]
            continue
        title = Text.assemble((label, "bold"), (f" {times}{sum(row.count for row in rows)}", "dim"))
        ended = ["  ".join(filter(None, pair)) for pair in zip(lines, ends, strict=True)]
        names = _cells({name: name for name in columns}, columns)
        yield [title, *_in_blocks(names, ended, width)]


def _cells(cells: Mapping[str, str], columns: Mapping[str, int]) -> str:
    gap = " " * _TABLE_GAP
    return gap.join(f"{cells.get(name, ''):>{size}}" for name, size in columns.items())


def _in_blocks(title: str, lines: Sequence[str], width: int) -> Iterator[Text]:
    size = max(map(len, (title, *lines)))
    most = max(1, (width + len(_BLOCK_GAP)) // (size + len(_BLOCK_GAP)))
    num_blocks = min(most, math.ceil(len(lines) / _BLOCK_ROWS))
    num_rows = math.ceil(len(lines) / num_blocks)
    num_blocks = math.ceil(len(lines) / num_rows)
    yield Text(_BLOCK_GAP.join(f"{title:{size}}" for _ in range(num_blocks)).rstrip(), "dim")
    for i in range(num_rows):
        yield Text(_BLOCK_GAP.join(f"{line:{size}}" for line in lines[i::num_rows]).rstrip())


# ------------------------------------------------------------------ what an agent thinks


def thoughts_of(
    turn: Turn,
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    look: Look | None = None,
    *,
    ascii_only: bool = False,
) -> Iterator[Text]:
    """The value, a bar for each of the most probable choices of the first actors, and the past.

    Args:
        turn: a decision; without `thoughts` nothing is yielded.
        look: for the text of choices and selected entities.
    """
    if turn.thoughts is None:
        return
    if turn.thoughts.value is not None:
        yield Text.assemble("value ", (describe_number(turn.thoughts.value), "bold"))
    for rows in shares_of(turn, obs_space, action_space).values():
        known = [each for each in rows[:_MAX_ACTORS] if each.shares is not None]
        words = _choices(known[0].question, turn, obs_space, look) if known else ()
        for each in known:
            yield from _shares(each, words, "#" if ascii_only else "█")
    yield from _past(turn.thoughts.past, ascii_only=ascii_only)


def _shares(actor: ActorShares, words: Sequence[str], full: str) -> Iterator[Text]:
    """The most probable choices of one actor, and how many are left out."""
    name, num_actors = one_line(action_words(actor.question.name)), len(actor.question.actors)
    if num_actors > 1:
        yield Text(f"{name} {actor.actor + 1} of {num_actors}", style="dim")
    shares, legal = actor.shares or (), actor.legal
    shown = actor.most_probable(_MAX_CHOICES)
    for choice in sorted(shown, key=lambda i: (i not in legal, -shares[i])):
        bar = (full * round(shares[choice] * _BAR)).ljust(_BAR)
        share, style = f"{percent(shares[choice]):>4} {bar}", ""
        if choice not in legal:
            share, style = NOT_ALLOWED.ljust(_BAR + 5), "dim"
        if choice == actor.chosen:
            style = "bold cyan"
        yield Text(f"{share} {words[choice]}", style=style)
    if left := len(shares) - len(shown):
        yield Text(f"and {left} more", style="dim")


def _past(past: Sequence[PastStep], *, ascii_only: bool) -> Iterator[Text]:
    """One character per earlier step, or the highest of several, and bars for the highest steps."""
    if not past:
        return
    heights, most = _ASCII_HEIGHTS if ascii_only else _HEIGHTS, highest(past)
    size = math.ceil(len(past) / _MAX_HEIGHTS)
    parts = (past[i : i + size] for i in range(0, len(past), size))
    shares = [max(step.change for step in part) / most for part in parts]
    line = "".join(heights[round(share * (len(heights) - 1))] for share in shares)
    found = past_that_matters(past)[:_MAX_PAST]
    yield Text(f"past {line}" if found else f"past {line} no step matters")
    for step in found:
        bar = ("#" if ascii_only else "█") * round(step.change * _BAR)
        yield Text(f"{percent(step.change):>4} {bar:{_BAR}} moves without {step.words}")


def _choices(
    question: Question, turn: Turn, obs_space: ObsSpace, look: Look | None
) -> Sequence[str]:
    if not isinstance(question.space, SelectEntityActionSpace):
        return [label_of(question.name, label, look) for label in question.choices]
    seen = {e.id: e for e in SeenObservation(turn.observation, obs_space, turn.agent_id).entities}
    return [words_of(seen[actee], look) for actee in question.actees]
