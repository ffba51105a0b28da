"""`entity-env play azul`: the table of the board game, for people and for those who watch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final, TextIO

import click
import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import HungUp
from entity_env.cli.azul.agents import Load, azul_agent, max_rounds_of, with_seats
from entity_env.cli.display.live_display import Painter
from entity_env.cli.players import HUMAN
from entity_env.errors import UsageError
from entity_env.games.azul import (
    AgentInput,
    AzulAgent,
    AzulGame,
    EnvStep,
    GameResult,
    GameState,
    describe_end,
    describe_move,
    draw_state,
    has_colours,
    legal_moves,
    play_game,
    read_move,
)

_HINT: Final = "Source, colour, line: '2 red 3', 'c black floor'.  ? shows all, q leaves."
_PROMPT: Final = "Your move: "
_QUIT: Final = ("q", "quit", "exit")
_HELP: Final = ("?", "h", "help")
_ENDING_S: Final = 0.7
_MAX_TOLD: Final = 6
_MAX_NAME: Final = 16
_COSTS: Final = "1 1 2 2 2 3 3"
"""What the slots of a floor cost: who has played before knows it."""


def play_azul(
    game: AzulGame,
    names: Sequence[str],
    load: Load,
    *,
    seed: int,
    episodes: int,
    fps: float,
    render: bool,
    console: Console | None = None,
    source: TextIO | None = None,
) -> None:
    """Plays and draws games; seats are taken in turn by who begins.

    Args:
        game: with its settings.
        names: of the agents, by seat; random ones sit where nobody was named.
        load: loads trained agents.
        seed: the first game's; they count up.
        episodes: how many games.
        fps: frames a second, on a terminal.
        render: draw what others do, too, and not only what people decide about.
        console, source: where it is drawn and where people answer; the standard ones.

    Raises:
        UsageError, CheckpointError, MissingExtraError: an agent that cannot play.
    """
    console = Console() if console is None else console
    source = sys.stdin if source is None else source
    game, names = with_seats(game, names)
    max_rounds = max_rounds_of(game)
    table = Table(console, names, fps=fps, is_drawn=render)
    agents: list[AzulAgent] = [
        Person(table, source, seat)
        if name == HUMAN
        else azul_agent(name, (seed + seat) % 2**32, load)
        for seat, name in enumerate(names)
    ]
    try:
        for number in range(episodes):
            result = play_game(
                agents,
                seed=seed + number,
                names=table.names,
                starting_player=number % len(names),
                max_rounds=max_rounds,
                watch=table,
            )
            table.close()
            click.echo(f"game {number + 1}: {describe_result(result)}")
    except (HungUp, KeyboardInterrupt):
        click.echo("left before the end")
    finally:
        table.close()
    click.echo(f"seed {seed}")


def describe_result(result: GameResult) -> str:
    """Who won, by how much and why it was over, in a line."""
    scores = ", ".join(
        f"{name} {score}" for name, score in zip(result.names, result.scores, strict=True)
    )
    if result.end is None:
        return f"{scores}; cut after {result.num_rounds - 1} rounds"
    first = [name for name, share in zip(result.names, result.shares, strict=True) if share]
    won = "won by" if len(first) == 1 else "shared by"
    return (
        f"{scores}; {won} {' and '.join(first)} after {result.num_rounds} rounds "
        f"({describe_end(result.end)})"
    )


def called(names: Sequence[str]) -> list[str]:
    """What seats are called on the table: you, and names that differ."""
    shown = ["you" if name == HUMAN else name.rstrip("/\\").replace("\\", "/") for name in names]
    shown = [(name.rpartition("/")[2] or name)[-_MAX_NAME:] for name in shown]
    counts, seen = Counter(shown), Counter[str]()
    told = []
    for name in shown:
        seen[name] += 1
        told.append(f"{name} {seen[name]}" if counts[name] > 1 else name)
    return told


class Table:
    """Shows a game while it is played: hand it to `play_game` as `watch`.

    On a terminal each frame takes the place of the last one; elsewhere they follow each other.

    Args:
        console: where to draw.
        names: of the agents by seat, `human` for people.
        fps: frames a second, on a terminal only.
        is_drawn: draw every move; otherwise only what `show` is asked for.
    """

    def __init__(
        self, console: Console, names: Sequence[str], *, fps: float | None, is_drawn: bool
    ) -> None:
        self.names = called(names)
        """What the agents are called."""
        self.console = console
        self._painter = Painter(console, fps=fps)
        self._is_drawn = is_drawn
        people = [seat for seat, name in enumerate(names) if name == HUMAN]
        self._people = frozenset(people)
        self._viewpoint = people[0] if people else 0
        self._told: list[str] = []
        """What has happened since a person moved last."""
        self._before: GameState | None = None

    def __call__(self, step: EnvStep) -> None:
        """Shows what a step led to."""
        state = step.state
        if state is None:
            raise UsageError("a table is drawn from EnvStep.state, which this game does not fill")
        if step.last_action is None or self._before is None:
            self._told.clear()
        else:
            self._tell(self._before, state, step.last_action)
        self._before = state
        is_asked = not step.done and state.current_player in self._people
        if self._is_drawn and not is_asked:  # who is asked is shown the table by `show`
            self._painter.paint(self._frame(state), longer_s=_ENDING_S if step.done else 0.0)

    def show(self, state: GameState, *notes: str) -> None:
        """Shows a person what to decide about, and some lines below."""
        self._viewpoint = state.current_player
        self._painter.paint(self._frame(state, *notes), is_paced=False)

    def note(self, state: GameState, *notes: str) -> None:
        """The same, once more with other lines; elsewhere than on a terminal these alone."""
        if self.console.is_terminal:
            self.show(state, *notes)
        else:
            self.console.file.write("".join(f"{note}\n" for note in notes))

    def close(self) -> None:
        """Leaves the last frame; may be called twice."""
        self._painter.close()

    def _tell(self, before: GameState, after: GameState, action_id: int) -> None:
        mover = before.current_player
        if mover in self._people or not self._people:
            self._told.clear()
        taken = _taken(before, action_id)
        self._told.append(f"{self.names[mover]}: {taken} {describe_move(action_id)}")
        if after.round > before.round or after.end is not None:
            gains = [new - old for old, new in zip(before.scores, after.scores, strict=True)]
            told = ", ".join(
                f"{name} {gain:+d}" for name, gain in zip(self.names, gains, strict=True)
            )
            bonus = " with the final bonuses" if after.end is not None else ""
            self._told.append(f"round {before.round} is over: {told}{bonus}")

    def _frame(self, state: GameState, *notes: str) -> RenderableType:
        drawn = draw_state(
            state,
            colours=has_colours(self.console.file),
            viewpoint=self._viewpoint,
            names=self.names,
            width=self.console.width,
        )
        told = self._told[-_MAX_TOLD:] if len(notes) < _MAX_TOLD else []
        below = ["", *told, *notes]
        room = max(1, self.console.height - 2) if self.console.is_terminal else None
        text = Text.from_ansi("\n".join(_fitting(drawn.split("\n"), below, room)))
        text.no_wrap, text.overflow = True, "crop"
        return Group(text)  # printed by itself, a text forgets that it must not wrap


def _fitting(table: list[str], below: list[str], room: int | None) -> list[str]:
    """As much of both as a screen has room for; what is left out first tells least."""
    tables = [
        table,
        [line for line in table if line],
        [line for line in table if line and _COSTS not in line],
        _up_to(table, 3),
        _up_to(table, 2),
    ]
    for each in tables:
        if room is None or len(each) + len(below) <= room:
            return [*each, *below]
    return [*tables[-1], *below][-(room or 0) :]


def _up_to(table: list[str], num_parts: int) -> list[str]:
    """The first parts: who is to move, what can be taken, and the boards of whoever looks."""
    ends = [i for i, line in enumerate(table) if not line][num_parts - 1 : num_parts]
    return [line for line in table[: ends[0] if ends else None] if line and _COSTS not in line]


def _taken(state: GameState, action_id: int) -> int:
    """How many tiles a move takes."""
    source, rest = divmod(action_id, 30)
    tiles = state.centre if source == 9 else state.factories[source]
    return tiles[rest // 6]


class Person:
    """Asks a person for moves, below the table, again until the answer is one.

    Args:
        table: shows it.
        source: where answers come from, a line each; q or its end leave by `HungUp`.
        seat: where the person sits.
    """

    needs_state: Final = True

    def __init__(self, table: Table, source: TextIO, seat: int) -> None:
        self._table = table
        self._keyboard = Keyboard(source)
        self._seat = seat

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        state = agent_input.state
        if state is None:
            raise UsageError("a person needs AgentInput.state, which this game does not fill")
        self._table.show(state, _HINT)
        while True:
            answer = self._line()
            if answer is None or answer.lower() in _QUIT:
                raise HungUp
            if answer.lower() in _HELP:
                self._table.note(state, *legal_moves(state), _HINT)
                continue
            try:
                return read_move(answer, state)
            except UsageError as error:
                self._table.note(state, str(error), _HINT)

    def _line(self) -> str | None:
        """What a person typed; the line is erased, so that the next frame lies where this does."""
        file = self._table.console.file
        is_terminal = self._table.console.is_terminal
        if is_terminal:
            self._table.console.show_cursor(True)
        file.write(_PROMPT)
        file.flush()
        answer = None
        try:
            answer = self._keyboard.line()
        finally:
            if answer is None or not self._keyboard.is_terminal:
                file.write("\n")  # nobody has pressed Enter here
            if is_terminal:
                file.write("\r\x1b[1A\x1b[J")
            file.flush()
        return answer
