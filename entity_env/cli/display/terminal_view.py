"""Games in a terminal: `Frames` draws any turn, `TerminalView` a running game."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import Asked
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.display.console import LiveDisplay, printable
from entity_env.core.observation import EntityID, Observation
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, ObsSpace
from entity_env.views import Board, Look, find_look
from entity_env.views.describe import (
    describe_actions,
    describe_number,
    shown_names,
)
from entity_env.views.scene import one_line
from entity_env.views.seen import SeenEntity, SeenObservation
from entity_env.views.text import (
    MAX_ROWS,
    Grid,
    in_ascii,
    legend,
    listed,
    thoughts_of,
)
from entity_env.views.text_style import entity_styles

_ENDING_S: Final = 0.7
"""Additional time for the last frame of an episode."""
_INFO_WIDTH: Final = 34
"""Columns of text next to a picture."""
_MIN_INFO_WIDTH: Final = 24
"""Columns of that text if the board would otherwise be cut."""
_BORDER: Final = 4
_GAP: Final = 2
_PROMPT: Final = "Your move: "
_QUIT: Final = ("q", "quit", "exit")
_QUESTION_LINES: Final = 2
"""Lines for a person's question below a frame."""


@dataclass(frozen=True)
class _AgentStatus:
    """Last known step, score and action of an agent."""

    step: int = 0
    score: float = 0.0
    doing: str = ""
    num_actions: int = 0


@dataclass(frozen=True)
class Moment:
    """State after a turn: everything that its frame needs.

    Args:
        grid: the board, shared by all moments of an episode.
        episode: number of the episode, from 0.
        status: of every agent.
        turn: the last turn, if any.
        shown: the turn whose observation is drawn, if any.
        ended: agents whose episode is over.
    """

    grid: Grid
    episode: int = 0
    status: Mapping[int, _AgentStatus] = field(default_factory=dict)
    turn: Turn | None = None
    shown: Turn | None = None
    ended: frozenset[int] = frozenset()


class Frames:
    """Draws the turns of a live game or a replay, from observations.

    Entities with coordinates are on a board, all else is text, unless the look has a `draw_text`.
    In a game for several agents, only the observations of humans are drawn, or without humans those
    of the first agent; if the look is open, those of every agent.

    Args:
        agent_names: default: `agent 0` and so on.
        humans: ids of human agents: only what they see is drawn.
        ascii_only: use only ASCII characters.

    Example:
        >>> from entity_env.agents import RandomAgent
        >>> from entity_env.games import snake
        >>> turns = []
        >>> episodes = snake.run(RandomAgent(seed=1), watch=turns.append)
        >>> frames = Frames(snake.obs_space(), snake.action_space(), name="snake")
        >>> moments = frames.moments(turns)
        >>> len(moments) == len(turns)
        True
        >>> frame = frames.frame(moments[-1], width=80, height=24)
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        look: Look | None = None,
        *,
        name: str = "",
        num_agents: int = 1,
        agent_names: Sequence[str] = (),
        humans: Sequence[int] = (),
        ascii_only: bool = False,
    ) -> None:
        self._obs_space = obs_space
        self._action_space = action_space
        self._look = look = look or Look()
        look.require_fits(obs_space)
        self.is_open = look.is_open
        self._name = one_line(name)
        self._num_agents = num_agents
        self._agent_names = list(map(one_line, agent_names))
        self._humans = humans
        self._ascii_only = ascii_only
        self._styles = entity_styles(obs_space, look, ascii_only=ascii_only)
        self._has_board = any(style.has_place for style in self._styles.values())

    # -------------------------------------------------------------- turns

    def first(self) -> Moment:
        """The moment before any turn."""
        board = self._look.board or Board()
        grid = Grid(board.columns, board.rows, *("." if self._ascii_only else ()))
        return Moment(grid, status=dict.fromkeys(range(self._num_agents), _AgentStatus()))

    def moments(self, turns: Iterable[Turn]) -> list[Moment]:
        """The moment after each turn, of one or more episodes."""
        return list(accumulate(turns, self.after, initial=self.first()))[1:]

    def begin(self, moment: Moment, agent_id: int) -> Moment:
        """The moment before an agent's turn: of a new episode, if its last one is over."""
        if agent_id not in moment.ended:
            return moment
        return replace(self.first(), episode=moment.episode + 1, shown=moment.shown)

    def after(self, moment: Moment, turn: Turn) -> Moment:
        """The moment after a turn; before the decision, if the turn has no actions."""
        moment = self.begin(moment, turn.agent_id)
        status, shown, ended = dict(moment.status), moment.shown, moment.ended
        doing = status[turn.agent_id].doing
        num_actions = turn.step
        if turn.actions:
            doing = describe_actions(turn.actions, turn.observation, self._obs_space, self._look)
            num_actions += 1
        if turn.episode is not None:
            doing = "truncated" if turn.episode.truncated else "game over"
            ended |= {turn.agent_id}
        status[turn.agent_id] = _AgentStatus(turn.step, turn.score, doing, num_actions)
        is_viewed = self.is_open or turn.agent_id in (self._humans or (0,))
        if is_viewed and not turn.observation.is_blank:
            shown = turn
            moment.grid.cover(self._placed(self._entities(turn)), self._styles)
        return Moment(moment.grid, moment.episode, status, turn, shown, ended)

    def _entities(self, turn: Turn | None) -> list[SeenEntity]:
        """Entities of an observation that may be shown, global features first."""
        if turn is None:
            return []
        seen = self._seen(turn)
        return [seen.globals, *seen.entities] if len(seen.globals.features) else seen.entities

    def _seen(self, turn: Turn) -> SeenObservation:
        return SeenObservation(
            turn.observation,
            self._obs_space,
            turn.agent_id,
            hidden=self.is_open or not self._humans,
            agent_names=self._agent_names,
            viewer=turn.agent_id if turn.agent_id in self._humans else [*self._humans, 0][0],
        )

    def _placed(self, entities: Iterable[SeenEntity]) -> list[SeenEntity]:
        return [entity for entity in entities if self._styles[entity.type].has_place]

    # -------------------------------------------------------------- frames

    def frame(
        self,
        moment: Moment,
        width: int,
        height: int | None = None,
        *,
        notes: Sequence[str] = (),
        picture: Callable[[int, int], Text | None] | None = None,
        asked: Asked | None = None,
    ) -> RenderableType:
        """The frame of a moment.

        Args:
            width: columns of the terminal.
            height: maximum number of lines; to fit, the picture or board is cut, or, without one,
                the lists.
            notes: lines below the frame, never cut; several notes may replace the agents' statuses.
            picture: called with columns and lines; returns a picture to show instead of the
                observation, or None.
            asked: question to a person, to mark on the board.
        """
        entities = self._entities(moment.shown)
        head = [*self._head(moment)]
        menu = frozenset[EntityID]() if asked is None else asked.menu
        listed = [entity for entity in entities if entity.id not in menu]
        words = self._words(moment, listed, width)
        below = [Text(note, no_wrap=True, overflow="crop") for note in notes]
        room = None if height is None else height - len(below)
        num_lines = len(head) + len(words)
        drawn = self._drawn(moment, width, MAX_ROWS if room is None else room - num_lines, picture)
        if drawn is None and not self._has_board:
            return Group(*_shortened([*self._cut(head, width), *words], room), *below)
        if drawn is None:
            columns, rows = moment.grid.size
            has_room = room is None or rows <= room - num_lines - 3
            beside = self._columns_beside(columns, width, is_below=has_room)
            if beside:
                room_of_words = width - 2 * min(columns, beside) - _BORDER - _GAP
                words = self._words(moment, listed, room_of_words)
                rows = MAX_ROWS if room is None else room - 3
                drawn = self._board(moment, entities, (beside, rows), asked)
            else:
                if not has_room:
                    words = self._words(moment, listed, width, has_legend=False)
                    num_lines = len(head) + len(words)
                rows = MAX_ROWS if room is None else room - num_lines - 3
                drawn = self._board(moment, entities, ((width - _BORDER + 1) // 2, rows), asked)
            return self._framed(drawn, head, words, below, width, is_beside=bool(beside))
        columns = max((line.cell_len for line in drawn.split("\n")), default=0)
        if columns + _BORDER + _GAP + _INFO_WIDTH <= width:
            return self._framed(drawn, head, words, below, width, is_beside=True)
        lines = list(drawn.split("\n", allow_blank=True))
        if room is not None and len(lines) > room - num_lines:
            if len(below) > 1:
                num_lines -= len(head) - 1
                head = head[:1]
            lines = [line for line in lines if line.plain.strip()][: max(0, room - num_lines)]
        text = Text("\n", no_wrap=True, overflow="crop").join(lines)
        return Group(*self._cut(head, width), text, *words, *below)

    def _drawn(
        self,
        moment: Moment,
        width: int,
        rows: int,
        picture: Callable[[int, int], Text | None] | None,
    ) -> Text | None:
        """The picture of the environment itself, or of the look, if any."""
        own = None if picture is None else picture(width, max(1, rows))
        if own is None and self._look.draw_text is not None and moment.shown is not None:
            own = self._look.call("draw_text", self._seen(moment.shown), width)
        if own is not None and self._ascii_only:
            own = in_ascii(own)
        return own

    def _columns_beside(self, wanted: int, width: int, *, is_below: bool) -> int:
        """Columns of a board next to the text; 0 = the text is above and below it.

        `is_below`: all rows of the board have room between the text above and the text below.
        """
        most = (width - _INFO_WIDTH - _BORDER - _GAP + 1) // 2
        if wanted <= (width - _MIN_INFO_WIDTH - _BORDER - _GAP + 1) // 2:
            return max(most, wanted)
        is_whole = is_below and wanted <= (width - _BORDER + 1) // 2
        return most if wanted <= most or (width > 2 * _INFO_WIDTH and not is_whole) else 0

    def _board(
        self,
        moment: Moment,
        entities: list[SeenEntity],
        limit: tuple[int, int],
        asked: Asked | None,
    ) -> Text:
        placed = self._placed(entities)
        acting = [] if moment.shown is None else self._acting(moment.shown, placed)
        limit = max(1, limit[0]), max(1, limit[1])
        keys, focus = None, None
        if asked is not None:
            if asked.actor is not None:
                acting = [entity for entity in placed if entity.id == asked.actor]
            index_of = {entity.id: entity.index for entity in placed if entity.id is not None}
            focus = index_of.get(asked.focus)
            keys = {index_of[each]: key for each, key in asked.keys.items() if each in index_of}
        chosen = {focus, *(keys or ())}
        actors = {entity.index for entity in acting}
        placed.sort(key=lambda e: (e.index != focus, e.index not in chosen, e.index not in actors))
        return moment.grid.draw(placed, self._styles, limit, acting, keys, focus)

    def places(self, turn: Turn) -> dict[EntityID, tuple[float, float]]:
        """Positions on the board of a turn's entities, by id."""
        placed = self._placed(self._entities(turn))
        return {e.id: self._styles[e.type].place(e) for e in placed if e.id is not None}

    def _acting(self, turn: Turn, placed: Sequence[SeenEntity]) -> list[SeenEntity]:
        """The actors; for a global action, the only entity of the first type."""
        observation = turn.observation
        actors = {
            int(i)
            for name in (() if observation.done else observation.actions)
            for i in observation.actor_indices(name, self._obs_space)
        }
        acting = [entity for entity in placed if entity.index in actors]
        first = [entity for entity in placed if entity.type == placed[0].type]
        return acting or (first if len(first) == 1 else [])

    def _framed(
        self,
        drawn: Text,
        head: list[Text],
        words: list[Text],
        below: list[Text],
        width: int,
        *,
        is_beside: bool,
    ) -> RenderableType:
        board = Panel.fit(drawn, padding=(0, 1), border_style="dim")
        if not is_beside:
            return Group(*self._cut(head, width), board, *words, *below)
        columns = max(line.cell_len for line in drawn.split("\n"))
        beside = self._cut(head, width - columns - _BORDER - _GAP)
        space = [Text()] if words else []
        table = Table.grid(Column(no_wrap=True), padding=(0, _GAP))
        table.add_row(board, Padding(Group(*beside, *space, *words), (1, 0, 0, 0)))
        return Group(table, *below)

    def _cut(self, lines: Iterable[Text], width: int) -> list[Text]:
        """The lines, cut to fit."""
        more = ".." if self._ascii_only else "…"
        cut = []
        for line in lines:
            if line.cell_len > width:
                line = line.copy()
                line.truncate(max(0, width - len(more)))
                line.append(more)
            line.no_wrap = True
            cut.append(line)
        return cut

    def _head(self, moment: Moment) -> Iterator[Text]:
        """The game and the episode; each agent's status."""
        yield Text.assemble((self._name, "bold"), (f"  episode {moment.episode + 1}", "dim"))
        names = self._agent_names or [f"agent {i}" for i in range(self._num_agents)]
        rows = [
            (
                names[agent_id] if self._num_agents > 1 else "",
                f"step {status.step}",
                f"score {describe_number(status.score)}",
            )
            for agent_id, status in moment.status.items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for (name, step, score), status in zip(rows, moment.status.values(), strict=True):
            line = Text(f"{name:{widths[0]}}  " if widths[0] else "")
            line.append(f"{step:{widths[1]}}  score ").append(score.removeprefix("score "), "bold")
            line.append(" " * (widths[2] - len(score) + 2)).append(status.doing, "bold cyan")
            yield line

    def _words(
        self, moment: Moment, entities: list[SeenEntity], width: int, *, has_legend: bool = True
    ) -> list[Text]:
        """Thoughts, the legend, and lists of what is not on the board, separated by blank lines."""
        if self._look.draw_text is not None:
            entities = [entity for entity in entities if entity.type == GLOBAL_ENTITY]
        spaces, is_ascii = (self._obs_space, self._action_space), self._ascii_only
        parts = [[*listed(entities, self._styles, width, ascii_only=is_ascii)]]
        if has_legend and self._has_board and self._look.draw_text is None:
            parts.insert(0, [*legend(entities, self._styles, ascii_only=is_ascii)])
        if moment.turn is not None:
            parts.insert(0, [*thoughts_of(moment.turn, *spaces, self._look, ascii_only=is_ascii)])
        lines = [line for part in parts if part for line in (Text(), *part)]
        return lines[1:]


def _shortened(lines: list[Text], room: int | None) -> list[Text]:
    """As many lines as fit; the last one counts the omitted lines."""
    if room is None or len(lines) <= room:
        return lines
    num_shown = max(0, room - 1)
    left = f"({len(lines) - num_shown} more lines: enlarge the window)"
    return [*lines[:num_shown], Text(left, "dim")]


class TerminalView:
    """Draws a running game: pass it to `Game.run` as `watch`.

    Human agents see only visible entities, in frames that `show` draws before they decide;
    simultaneous decisions of others are drawn afterward.

    Args:
        fps: frames per second on a terminal; None = no pauses.
        humans: ids of human agents.
        names: default: `agent 0` and so on.
        look: None = the game's.
        source: human input; None = standard input.
        wait: sleeps for a number of seconds.
    """

    def __init__(
        self,
        game: Game,
        console: Console,
        *,
        fps: float | None = None,
        humans: tuple[int, ...] = (),
        names: Sequence[str] = (),
        look: Look | None = None,
        source: TextIO | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._console = console
        self._humans = humans
        self._picture: Callable[..., Text | str | None] | None = getattr(game.play, "text", None)
        self.look = find_look(game) if look is None else look
        """How the game is drawn."""
        self._frames = Frames(
            game.obs_space(),
            game.action_space(),
            self.look,
            name=game.name,
            num_agents=game.num_agents,
            agent_names=shown_names(names, humans),
            humans=humans,
            ascii_only=console.options.ascii_only,
        )
        self._display = LiveDisplay(console, fps=fps, wait=wait)
        self._keyboard = Keyboard(sys.stdin if source is None else source)
        self._asked: Observation | None = None
        self._moment = self._frames.first()
        self._held: dict[int, Turn] = {}
        """Turns that humans must not see before they have made as many decisions."""

    def __enter__(self) -> TerminalView:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def __call__(self, turn: Turn) -> None:
        """Draws an agent's observation and action, or the end of its episode."""
        self._begin(turn.agent_id)
        if turn.episode is None and self._is_hidden(turn):
            self._held[turn.agent_id] = turn
            return
        self._held.pop(turn.agent_id, None)
        self._moment = self._frames.after(self._moment, turn)
        for held in list(self._held.values()):
            if not self._is_hidden(held):
                self._moment = self._frames.after(self._moment, self._held.pop(held.agent_id))
        is_drawn = turn.agent_id not in self._humans or turn.episode
        if self._moment.shown is not None and is_drawn:
            self._display.show(self._frame(), extra_s=_ENDING_S if turn.episode else 0.0)

    def show(
        self, agent_id: int, observation: Observation, *notes: str, asked: Asked | None = None
    ) -> None:
        """Draws an observation for a human agent to decide on, with lines below.

        Marks `asked` on the board; with `asked`, an observation that was just drawn is drawn again
        only on a terminal.
        """
        if asked is not None and not self._console.is_terminal:
            if observation is self._asked:
                return
            self._asked = observation
        self._begin(agent_id)
        turn = self._turn(agent_id, observation)
        drawn, self._moment = self._frames.after(self._moment, turn), self._moment
        self._display.show(self._frame(drawn, notes, asked), is_paced=False)
        self._moment = replace(self._moment, shown=drawn.shown)

    def places(
        self, agent_id: int, observation: Observation
    ) -> Mapping[EntityID, tuple[float, float]]:
        return self._frames.places(self._turn(agent_id, observation))

    def _turn(self, agent_id: int, observation: Observation) -> Turn:
        status = self._moment.status[agent_id]
        return Turn(agent_id, status.num_actions, status.score + observation.reward, observation)

    def ask(self, agent_id: int, observation: Observation, notes: Sequence[str]) -> str | None:
        """Reads a line typed by a human below the frame and the notes; None = the human leaves.

        Erases the line, so the next frame replaces it. If asked again about an observation, only
        the notes are written outside of a terminal.
        """
        file, is_terminal = self._console.file, self._console.is_terminal
        if is_terminal or observation is not self._asked:
            self.show(agent_id, observation, *notes)
        else:
            file.write("".join(f"{printable(note)}\n" for note in notes))
        self._asked = observation
        if is_terminal:
            self._console.show_cursor(True)
        file.write(_PROMPT)
        file.flush()
        answer = None
        try:
            answer = self._keyboard.line()
        except KeyboardInterrupt:
            return None
        finally:
            if answer is None or not self._keyboard.is_terminal:
                file.write("\n")  # Enter was not pressed
            if is_terminal:
                file.write("\r\x1b[1A\x1b[J")
            file.flush()
        return None if answer is None or answer.lower() in _QUIT else answer

    def _begin(self, agent_id: int) -> None:
        """Begins the next episode if the agent's last one is over."""
        if agent_id in self._moment.ended:
            self._moment = self._frames.begin(self._moment, agent_id)
            self._held.clear()

    def _is_hidden(self, turn: Turn) -> bool:
        """True if a human who decides at the same time has not decided yet."""
        is_open = self._frames.is_open or turn.agent_id in self._humans
        return (turn.is_async and not is_open) and any(
            self._moment.status[human].num_actions <= turn.step for human in self._humans
        )

    def _frame(
        self,
        moment: Moment | None = None,
        notes: Sequence[str] = (),
        asked: Asked | None = None,
    ) -> RenderableType:
        height = None
        if self._console.is_terminal:
            lines = _QUESTION_LINES if asked is None else max(asked.num_lines, _QUESTION_LINES)
            height = self._console.height - 2 - (lines if self._humans else 0)
        moment = self._moment if moment is None else moment
        size = self._console.width, height
        return self._frames.frame(
            moment, *size, notes=notes, picture=self._own_picture, asked=asked
        )

    def _own_picture(self, columns: int, rows: int) -> Text | None:
        """The frame of an environment that draws itself as text."""
        if self._picture is None:
            return None
        drawn = self._picture(
            columns,
            rows,
            has_colors=self._console.color_system is not None,
            ascii_only=self._console.options.ascii_only,
        )
        return Text.from_ansi(drawn) if isinstance(drawn, str) and drawn else drawn or None
