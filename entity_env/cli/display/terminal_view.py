"""TerminalView: draws any game in the terminal from its schema alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from entity_env.agents.human.describe import (
    SeenEntity,
    describe_actions,
    describe_entity,
    describe_features,
    describe_number,
    seen_entities,
)
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.display.grid import Grid, looks
from entity_env.cli.display.live_frames import Painter
from entity_env.core.observation import EntityID, Observation
from entity_env.core.spaces import GLOBAL_ENTITY, ObsSpace
from entity_env.games.classic.viewer import draw_entity

_MAX_LISTED: Final = 20
"""Entities without a place that are listed; the others are counted."""
_ENDING_S: Final = 0.7
"""How much longer the end of an episode stays."""


@dataclass(frozen=True)
class _Seat:
    """What is known of one agent."""

    step: int = 0
    score: float = 0.0
    doing: str = ""
    num_actions: int = 0


class TerminalView:
    """Draws a game while it is played: entities with x and y on a grid, all else in tables.

    Hand it to `Game.run` as `watch`. On a terminal each frame takes the place of the last one;
    elsewhere frames are printed one below the other. In a game for several agents it shows what
    one of them sees: the first human, else the first.

    Args:
        game: whose schema and settings say what to draw.
        console: where to draw.
        fps: frames a second, on a terminal only; None = as fast as possible.
        humans: ids of the agents that people play. They see only what is visible to them, and
            their frames come from `show`, before they decide.
        wait: waits for so many seconds.
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
        self._looks = looks(game.schema, ascii_only=self._ascii_only)
        self._painter = Painter(console, fps=fps, wait=wait)
        self._humans = humans
        self._viewpoint = humans[0] if humans else 0
        self._seats = {agent_id: _Seat() for agent_id in range(game.num_agents)}
        self._grid = self._new_grid()
        self._episode = 0
        self._shown: Observation | None = None
        self._ended: set[int] = set()
        self._secret: dict[int, _Seat] = {}
        """What agents did that people must not know before they have decided as often."""

    def __enter__(self) -> TerminalView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._painter.close()

    def __call__(self, turn: Turn) -> None:
        """Draws what an agent saw and did, or how its episode ended."""
        self._begin(turn.agent_id)
        doing = describe_actions(turn.actions, turn.observation, self._space)
        if turn.episode is not None:
            doing = "cut short" if turn.episode.truncated else "game over"
        seat = _Seat(turn.step, turn.score, doing, num_actions=turn.step + (not turn.episode))
        if turn.agent_id == self._viewpoint and _shows_something(turn.observation):
            self._shown = turn.observation
        if turn.episode is not None:
            self._ended.add(turn.agent_id)
        elif self._is_secret(turn.agent_id, seat):
            self._secret[turn.agent_id] = seat
            return
        self._seats[turn.agent_id] = seat
        self._reveal()
        if self._shown is not None and (turn.agent_id not in self._humans or turn.episode):
            self._painter.paint(self._frame(), longer_s=_ENDING_S if turn.episode else 0.0)

    def show(self, agent_id: int, observation: Observation) -> None:
        """Draws what a person sees who is about to decide."""
        self._begin(agent_id)
        self._viewpoint = agent_id
        self._shown = observation
        seat = self._seats[agent_id]
        self._seats[agent_id] = replace(seat, score=seat.score + observation.reward)
        self._painter.paint(self._frame(), is_paced=False)

    def _begin(self, agent_id: int) -> None:
        """Clears the board when an agent goes on whose episode has ended."""
        if agent_id in self._ended:
            self._ended.clear()
            self._episode += 1
            self._grid = self._new_grid()
            self._seats = dict.fromkeys(self._seats, _Seat())
            self._secret.clear()

    def _new_grid(self) -> Grid:
        """An empty grid of the size that the settings of the game say, if they do."""
        size = _size(self._game, "board_size")
        columns = _size(self._game, "width") or size
        rows = _size(self._game, "height") or size
        return Grid(columns, rows, "." if self._ascii_only else Grid.empty)

    def _is_secret(self, agent_id: int, seat: _Seat) -> bool:
        """A person may be about to decide on the same turn: agents may move at once."""
        return agent_id not in self._humans and any(
            self._seats[human].num_actions < seat.num_actions for human in self._humans
        )

    def _reveal(self) -> None:
        for agent_id, seat in list(self._secret.items()):
            if not self._is_secret(agent_id, seat):
                self._seats[agent_id] = self._secret.pop(agent_id)

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
        """What the game looks like; None when there is no telling."""
        if not any(look.has_place for look in self._looks.values()):
            return draw_entity(entities, self._space, ascii_only=self._ascii_only)
        acting = _actor_ids(self._shown, self._space)
        placed = [entity for entity in entities if self._looks[entity.type].has_place]
        placed.sort(key=lambda entity: entity.id not in acting)
        return self._grid.draw(placed, self._looks)

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
        yield self._status()
        legend = self._legend(entities)
        if legend:
            yield Text()
            yield from legend
        yield from self._listed(entities)

    def _status(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for _ in range(4):
            table.add_column(no_wrap=True)
        for agent_id, seat in self._seats.items():
            who = [f"agent {agent_id}"] if len(self._seats) > 1 else []
            score = Text.assemble("score ", (describe_number(seat.score), "bold"))
            doing = Text(seat.doing, style="bold cyan")
            table.add_row(*who, f"step {seat.step}", score, doing)
        return table

    def _legend(self, entities: list[SeenEntity]) -> list[Text]:
        lines = []
        times = "x" if self._ascii_only else "×"
        for key, look in self._looks.items():
            if look.has_place:
                count = sum(entity.type == key for entity in entities)
                names = "".join(f" {letter}" for letter in look.members.values())
                symbol = Text(look.glyph, style=f"bold {look.color}") if not names else Text()
                lines.append(
                    Text.assemble(
                        symbol, names.lstrip(), f" {look.label}", (f" {times}{count}", "dim")
                    )
                )
        return lines

    def _listed(self, entities: list[SeenEntity]) -> Iterator[Text]:
        """What the grid cannot tell: global features, and entities without a place."""
        lines = [
            self._describe(entity)
            for entity in entities
            if len(entity.features)
            and (entity.type == GLOBAL_ENTITY or not self._looks[entity.type].has_place)
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
        return f"{self._looks[GLOBAL_ENTITY].label} {features}"


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
