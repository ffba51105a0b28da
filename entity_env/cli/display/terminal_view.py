"""TerminalView: draws any game in a terminal, from its schema."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.authoring.schema import Schema
from entity_env.cli.display.console import LiveDisplay
from entity_env.core.observation import EntityID, Observation
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.games.classic.viewer import draw_entity
from entity_env.views.describe import (
    describe_actions,
    describe_entity,
    describe_features,
    describe_number,
)
from entity_env.views.seen import SeenEntity, member_of, seen_entities

MAX_COLUMNS: Final = 40
MAX_ROWS: Final = 24
_GLYPHS: Final = "●■◆▲★○□◇△☆"
_COLORS: Final = (
    "bright_green",
    "bright_red",
    "bright_yellow",
    "bright_blue",
    "bright_magenta",
    "bright_cyan",
)
_GROUND: Final = ("empty", "floor", "free", "ground")
"""Entity types with these names are drawn as empty cells."""


@dataclass(frozen=True)
class EntityStyle:
    """How entities of one type are drawn; `x`, `y` and `tint` are columns of features."""

    label: str
    glyph: str
    color: str
    x: int | None
    y: int | None
    tint: int | None
    """Of a `color` feature, which overrides `color`."""
    members: Mapping[int, str]
    """Column and letter of each member of a one-hot feature; replaces the glyph."""

    @property
    def has_place(self) -> bool:
        return self.x is not None and self.y is not None

    def place(self, entity: SeenEntity) -> tuple[float, float]:
        return float(entity.features[self.x or 0]), float(entity.features[self.y or 0])

    def symbol(self, entity: SeenEntity) -> Text:
        letters = [letter for i, letter in self.members.items() if entity.features[i]]
        color = self.color
        if self.tint is not None:
            color = _COLORS[int(entity.features[self.tint]) % len(_COLORS)]
        return Text(letters[0] if letters else self.glyph, style=f"bold {color}")


def entity_styles(schema: Schema, *, ascii_only: bool = False) -> dict[EntityName, EntityStyle]:
    """The style of every type, from its feature names; global features are `GLOBAL_ENTITY`."""
    kinds = {kind.name: kind for kind in schema.entities}
    if schema.globals is not None:
        kinds = {GLOBAL_ENTITY: schema.globals, **kinds}
    glyphs = _letters(kind.name for kind in kinds.values()) if ascii_only else _GLYPHS
    ground = "." if ascii_only else Grid.empty
    found = {}
    num_placed = 0
    for key, kind in kinds.items():
        x, y = _coordinates(kind.features)
        is_ground = kind.name.lower() in _GROUND
        found[key] = EntityStyle(
            kind.name,
            ground if is_ground else glyphs[num_placed % len(glyphs)],
            "bright_black" if is_ground else _COLORS[num_placed % len(_COLORS)],
            x,
            y,
            kind.features.index("color") if "color" in kind.features else None,
            _members(kind.features),
        )
        num_placed += x is not None and not is_ground
    return found


@dataclass
class Grid:
    """A board that covers all places seen in an episode, and grows with them."""

    columns: int | None = None
    rows: int | None = None
    empty: str = "·"
    _low: list[float] = field(init=False)
    _high: list[float] = field(init=False)
    _is_whole: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        sizes = (self.columns, self.rows)
        self._low = [math.inf if size is None else 0.0 for size in sizes]
        self._high = [-math.inf if size is None else size - 1.0 for size in sizes]

    def draw(
        self, entities: Iterable[SeenEntity], styles: Mapping[EntityName, EntityStyle]
    ) -> Text:
        """The board with these entities; of several in one cell the first is drawn."""
        placed = [(styles[e.type].place(e), styles[e.type].symbol(e)) for e in entities]
        for place, _ in placed:
            self._grow(place)
        if any(low > high for low, high in zip(self._low, self._high, strict=True)):
            return Text("nothing visible", style="dim")
        columns, rows = (self._num_cells(axis) for axis in (0, 1))
        symbols: dict[tuple[int, int], Text] = {}
        for (x, y), symbol in placed:
            symbols.setdefault((self._cell(x, 0, columns), self._cell(y, 1, rows)), symbol)
        empty = Text(self.empty, style="dim")
        return Text("\n").join(
            Text(" ").join(symbols.get((column, row), empty) for column in range(columns))
            for row in reversed(range(rows))
        )

    def _grow(self, place: tuple[float, float]) -> None:
        if not all(map(math.isfinite, place)):
            return
        for axis, value in enumerate(place):
            self._low[axis] = min(self._low[axis], value)
            self._high[axis] = max(self._high[axis], value)
        self._is_whole = self._is_whole and all(value == round(value) for value in place)

    def _num_cells(self, axis: int) -> int:
        most = (MAX_COLUMNS, MAX_ROWS)[axis]
        span = self._high[axis] - self._low[axis]
        return int(min(span + 1, most)) if self._is_whole else most // 2

    def _cell(self, value: float, axis: int, num_cells: int) -> int:
        span = self._high[axis] - self._low[axis]
        if span == 0 or not math.isfinite(value):
            return 0
        return round((value - self._low[axis]) / span * (num_cells - 1))


def _coordinates(features: Sequence[str]) -> tuple[int | None, int | None]:
    """Columns of `x` and `y`, or of the first pair such as `pos.x` and `pos.y`."""
    for i, name in enumerate(features):
        prefix, _, last = name.rpartition(".")
        partner = f"{prefix}.y" if prefix else "y"
        if last == "x" and partner in features:
            return i, features.index(partner)
    return None, None


def _members(features: Sequence[str]) -> dict[int, str]:
    """Column and letter of each member of the first one-hot feature."""
    found = [(i, *member_of(name)) for i, name in enumerate(features)]
    fields = [field for _, field, member in found if member]
    members = {i: member for i, field, member in found if member and field == fields[0]}
    return dict(zip(members, _letters(members.values()), strict=True))


def _letters(names: Iterable[str]) -> list[str]:
    """An upper-case letter for each name: its first letter that is not taken, else any other."""
    letters: list[str] = []
    for name in names:
        own = [char for char in name.upper() if char.isalnum()]
        spare = [*own, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
        letters.append(next((char for char in spare if char not in letters), "?"))
    return letters


_MAX_LISTED: Final = 20
"""Entities without coordinates that are listed; the rest is counted."""
_ENDING_S: Final = 0.7
"""How much longer the last frame of an episode is shown."""


@dataclass(frozen=True)
class _AgentStatus:
    """Last known step, score and action of one agent."""

    step: int = 0
    score: float = 0.0
    doing: str = ""
    num_actions: int = 0


class TerminalView:
    """Draws a game while it is played: entities with x and y on a grid, everything else as text.

    Pass it to `Game.run` as `watch`. Of a game for several agents it draws the observations of one:
    the first human, else the first. Agents with ids in `humans` see only visible entities, in
    frames drawn by `show` before they decide.
    """

    def __init__(
        self,
        game: Game,
        console: Console,
        *,
        fps: float | None = None,
        humans: tuple[int, ...] = (),
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._game = game
        self._space = game.obs_space()
        self._ascii_only = console.options.ascii_only
        self._styles = entity_styles(game.schema, ascii_only=self._ascii_only)
        self._display = LiveDisplay(console, fps=fps, wait=wait)
        self._humans = humans
        self._viewpoint = humans[0] if humans else 0
        self._status = {agent_id: _AgentStatus() for agent_id in range(game.num_agents)}
        self._grid = self._new_grid()
        self._episode = 0
        self._shown: Observation | None = None
        self._ended: set[int] = set()
        self._hidden: dict[int, _AgentStatus] = {}
        """Actions of agents that humans must not see before they have decided as often."""

    def __enter__(self) -> TerminalView:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def __call__(self, turn: Turn) -> None:
        """Draws an agent's observation and action, or the end of its episode."""
        self._begin(turn.agent_id)
        doing = describe_actions(turn.actions, turn.observation, self._space)
        if turn.episode is not None:
            doing = "cut short" if turn.episode.truncated else "game over"
        status = _AgentStatus(
            turn.step, turn.score, doing, num_actions=turn.step + (not turn.episode)
        )
        if turn.agent_id == self._viewpoint and _shows_something(turn.observation):
            self._shown = turn.observation
        if turn.episode is not None:
            self._ended.add(turn.agent_id)
        elif self._is_hidden(turn.agent_id, status):
            self._hidden[turn.agent_id] = status
            return
        self._status[turn.agent_id] = status
        self._reveal()
        if self._shown is not None and (turn.agent_id not in self._humans or turn.episode):
            self._display.show(self._frame(), extra_s=_ENDING_S if turn.episode else 0.0)

    def show(self, agent_id: int, observation: Observation) -> None:
        """Draws the observation on which a human agent is about to decide."""
        self._begin(agent_id)
        self._viewpoint = agent_id
        self._shown = observation
        status = self._status[agent_id]
        self._status[agent_id] = replace(status, score=status.score + observation.reward)
        self._display.show(self._frame(), is_paced=False)

    def _begin(self, agent_id: int) -> None:
        """Clears the board at the first turn after the end of an episode."""
        if agent_id in self._ended:
            self._ended.clear()
            self._episode += 1
            self._grid = self._new_grid()
            self._status = dict.fromkeys(self._status, _AgentStatus())
            self._hidden.clear()

    def _new_grid(self) -> Grid:
        """An empty grid, of the size in the game's settings if there is one."""
        size = _size(self._game, "board_size")
        columns = _size(self._game, "width") or size
        rows = _size(self._game, "height") or size
        return Grid(columns, rows, "." if self._ascii_only else Grid.empty)

    def _is_hidden(self, agent_id: int, status: _AgentStatus) -> bool:
        """Whether a human still decides on the same turn, as in games with simultaneous moves."""
        return agent_id not in self._humans and any(
            self._status[human].num_actions < status.num_actions for human in self._humans
        )

    def _reveal(self) -> None:
        for agent_id, status in list(self._hidden.items()):
            if not self._is_hidden(agent_id, status):
                self._status[agent_id] = self._hidden.pop(agent_id)

    def _frame(self) -> RenderableType:
        entities = self._entities()
        parts = list(self._info(entities))
        drawn = self._picture(entities)
        if drawn is None:
            return Group(*parts)
        board = Panel.fit(drawn, padding=(0, 1), border_style="dim")
        columns = Table.grid(padding=(0, 2))
        columns.add_row(board, Padding(Group(*parts), (1, 0, 0, 0)))
        return columns

    def _picture(self, entities: list[SeenEntity]) -> Text | None:
        """The grid, or the game's own picture; None if it has neither."""
        text = getattr(self._game.play, "text", None)  # of an environment with frames of text
        if text is not None and (frame := text()):
            return Text.from_ansi(frame)
        if not any(style.has_place for style in self._styles.values()):
            return draw_entity(entities, self._space, ascii_only=self._ascii_only)
        acting = _actor_ids(self._shown, self._space)
        placed = [entity for entity in entities if self._styles[entity.type].has_place]
        placed.sort(key=lambda entity: entity.id not in acting)
        return self._grid.draw(placed, self._styles)

    def _entities(self) -> list[SeenEntity]:
        if self._shown is None:
            return []
        seen = seen_entities(self._shown, self._space)
        entities = [entity for entity in seen if entity.is_visible or not self._humans]
        if len(self._shown.global_features):
            values = np.asarray(self._shown.global_features, dtype=np.float64)
            entities.insert(0, SeenEntity(None, GLOBAL_ENTITY, values, True))
        return entities

    def _info(self, entities: list[SeenEntity]) -> Iterator[RenderableType]:
        yield Text.assemble((self._game.name, "bold"), (f"  episode {self._episode + 1}", "dim"))
        yield self._status_table()
        legend = self._legend(entities)
        if legend:
            yield Text()
            yield from legend
        yield from self._listed(entities)

    def _status_table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for _ in range(4):
            table.add_column(no_wrap=True)
        for agent_id, status in self._status.items():
            agent = [f"agent {agent_id}"] if len(self._status) > 1 else []
            score = Text.assemble("score ", (describe_number(status.score), "bold"))
            doing = Text(status.doing, style="bold cyan")
            table.add_row(*agent, f"step {status.step}", score, doing)
        return table

    def _legend(self, entities: list[SeenEntity]) -> list[Text]:
        lines = []
        times = "x" if self._ascii_only else "×"
        for key, style in self._styles.items():
            if style.has_place:
                count = sum(entity.type == key for entity in entities)
                names = "".join(f" {letter}" for letter in style.members.values())
                symbol = Text(style.glyph, style=f"bold {style.color}") if not names else Text()
                lines.append(
                    Text.assemble(
                        symbol, names.lstrip(), f" {style.label}", (f" {times}{count}", "dim")
                    )
                )
        return lines

    def _listed(self, entities: list[SeenEntity]) -> Iterator[Text]:
        """Global features, and entities without coordinates."""
        lines = [
            self._describe(entity)
            for entity in entities
            if len(entity.features)
            and (entity.type == GLOBAL_ENTITY or not self._styles[entity.type].has_place)
        ]
        if lines:
            yield Text()
        yield from map(Text, lines[:_MAX_LISTED])
        if len(lines) > _MAX_LISTED:
            yield Text(f"and {len(lines) - _MAX_LISTED} more", style="dim")

    def _describe(self, entity: SeenEntity) -> str:
        hidden = "" if entity.is_visible else "  (hidden)"
        if entity.type != GLOBAL_ENTITY:
            return describe_entity(entity, self._space) + hidden
        features = describe_features(self._space.global_features, entity.features)
        return f"{self._styles[GLOBAL_ENTITY].label} {features}"


def _shows_something(observation: Observation) -> bool:
    return bool(observation.features) or len(observation.global_features) > 0


def _actor_ids(observation: Observation | None, space: ObsSpace) -> set[EntityID]:
    if observation is None:
        return set()
    ids = [*observation.entity_ids(space), None]
    return {ids[i] for name in observation.actions for i in observation.actor_indices(name, space)}


def _size(game: Game, name: str) -> int | None:
    parameter = game.parameters.get(name)
    default = parameter.default if parameter is not None else None
    size = game.settings.get(name, default)
    return size if isinstance(size, int) and size > 0 else None
