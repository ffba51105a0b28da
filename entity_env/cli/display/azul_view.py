"""Azul in the terminal: a view for `play_game`, and a prompt for human players below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TextIO

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import UserQuit
from entity_env.cli.display.console import LiveDisplay
from entity_env.errors import UsageError
from entity_env.games.azul import (
    AgentInput,
    EnvStep,
    GameState,
    describe_move,
    draw_state,
    has_colours,
    legal_moves,
    read_move,
)

_HINT: Final = "Source, colour, line: '2 red 3', 'c black floor'.  ? shows all, q leaves."
_PROMPT: Final = "Your move: "
_QUIT: Final = ("q", "quit", "exit")
_HELP: Final = ("?", "h", "help")
_ENDING_S: Final = 0.7
_MAX_EVENTS: Final = 6
_MAX_NAME: Final = 16
_COSTS: Final = "1 1 2 2 2 3 3"
"""The line with the costs of the floor, the first that a small screen leaves out."""


class AzulView:
    """Draws a game while it is played: pass it to `play_game` as `watch`.

    With `is_drawn` it draws every move, else only the decisions of the seats in `humans`.
    """

    def __init__(
        self,
        console: Console,
        names: Sequence[str],
        humans: Sequence[int],
        *,
        fps: float | None,
        is_drawn: bool,
    ) -> None:
        self.names = shown_names(names, humans)
        self.console = console
        self._display = LiveDisplay(console, fps=fps)
        self._is_drawn = is_drawn
        self._humans = frozenset(humans)
        self._viewpoint = humans[0] if humans else 0
        self._events: list[str] = []
        """Moves and scores since the last move of a human."""
        self._before: GameState | None = None

    def __call__(self, step: EnvStep) -> None:
        """Draws the state after a step."""
        state = step.state
        if state is None:
            raise UsageError("AzulView needs EnvStep.state, which this game does not fill")
        if step.last_action is None or self._before is None:
            self._events.clear()
        else:
            self._add_events(self._before, state, step.last_action)
        self._before = state
        is_prompted = not step.done and state.current_player in self._humans
        if self._is_drawn and not is_prompted:  # the prompt calls `show`
            self._display.show(self._frame(state), extra_s=_ENDING_S if step.done else 0.0)

    def show(self, state: GameState, *notes: str) -> None:
        """Draws the state for the human to move, with some lines below."""
        self._viewpoint = state.current_player
        self._display.show(self._frame(state, *notes), is_paced=False)

    def note(self, state: GameState, *notes: str) -> None:
        """Replaces the lines below the state; outside a terminal, prints only these."""
        if self.console.is_terminal:
            self.show(state, *notes)
        else:
            self.console.file.write("".join(f"{note}\n" for note in notes))

    def close(self) -> None:
        """Leaves the last frame; may be called twice."""
        self._display.close()

    def _add_events(self, before: GameState, after: GameState, action_id: int) -> None:
        mover = before.current_player
        if mover in self._humans or not self._humans:
            self._events.clear()
        source, rest = divmod(action_id, 30)
        taken = (before.centre if source == 9 else before.factories[source])[rest // 6]
        self._events.append(f"{self.names[mover]}: {taken} {describe_move(action_id)}")
        if after.round > before.round or after.end is not None:
            gains = [new - old for old, new in zip(before.scores, after.scores, strict=True)]
            scored = ", ".join(
                f"{name} {gain:+d}" for name, gain in zip(self.names, gains, strict=True)
            )
            bonus = " with the final bonuses" if after.end is not None else ""
            self._events.append(f"round {before.round} is over: {scored}{bonus}")

    def _frame(self, state: GameState, *notes: str) -> RenderableType:
        drawn = draw_state(
            state,
            colours=has_colours(self.console.file),
            viewpoint=self._viewpoint,
            names=self.names,
            width=self.console.width,
        )
        events = self._events[-_MAX_EVENTS:] if len(notes) < _MAX_EVENTS else []
        below = ["", *events, *notes]
        room = max(1, self.console.height - 2) if self.console.is_terminal else None
        text = Text.from_ansi("\n".join(_fitting(drawn.split("\n"), below, room)))
        text.no_wrap, text.overflow = True, "crop"
        return Group(text)  # printed alone, a text ignores its own no_wrap


def _fitting(table: list[str], below: list[str], room: int | None) -> list[str]:
    """As much of both as fits on a screen, the least useful lines left out first."""
    variants = [
        table,
        [line for line in table if line],
        [line for line in table if line and _COSTS not in line],
        _up_to(table, 3),
        _up_to(table, 2),
    ]
    for each in variants:
        if room is None or len(each) + len(below) <= room:
            return [*each, *below]
    return [*variants[-1], *below][-(room or 0) :]


def _up_to(table: list[str], num_parts: int) -> list[str]:
    """The first parts: the player to move, the factories, and the board of the viewpoint."""
    ends = [i for i, line in enumerate(table) if not line][num_parts - 1 : num_parts]
    return [line for line in table[: ends[0] if ends else None] if line and _COSTS not in line]


class AzulPrompt:
    """An Azul agent that asks a human for moves below the view, until the answer is legal.

    Answers are lines of `source`; q or its end raises `UserQuit`.
    """

    needs_state: Final = True

    def __init__(self, view: AzulView, source: TextIO) -> None:
        self._view = view
        self._keyboard = Keyboard(source)

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        state = agent_input.state
        if state is None:
            raise UsageError("AzulPrompt needs AgentInput.state, which this game does not fill")
        self._view.show(state, _HINT)
        while True:
            answer = self._line()
            if answer is None or answer.lower() in _QUIT:
                raise UserQuit
            if answer.lower() in _HELP:
                self._view.note(state, *legal_moves(state), _HINT)
                continue
            try:
                return read_move(answer, state)
            except UsageError as error:
                self._view.note(state, str(error), _HINT)

    def _line(self) -> str | None:
        """The line that was typed; it is erased, so that the next frame replaces this one."""
        file = self._view.console.file
        is_terminal = self._view.console.is_terminal
        if is_terminal:
            self._view.console.show_cursor(True)
        file.write(_PROMPT)
        file.flush()
        answer = None
        try:
            answer = self._keyboard.line()
        finally:
            if answer is None or not self._keyboard.is_terminal:
                file.write("\n")  # Enter was not pressed
            if is_terminal:
                file.write("\r\x1b[1A\x1b[J")
            file.flush()
        return answer


def shown_names(names: Sequence[str], humans: Sequence[int]) -> list[str]:
    """Short, different names for the agents; humans are `you`."""
    shown = [
        "you" if seat in humans else name.rstrip("/\\").replace("\\", "/")
        for seat, name in enumerate(names)
    ]
    shown = [(name.rpartition("/")[2] or name)[-_MAX_NAME:] for name in shown]
    counts, seen = Counter(shown), Counter[str]()
    numbered = []
    for name in shown:
        seen[name] += 1
        numbered.append(f"{name} {seen[name]}" if counts[name] > 1 else name)
    return numbered
