"""HumanAgent: asks a person at a terminal for actions."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, Self, TextIO

from entity_env.agents.human.move_clock import LastChoices, MoveClock, Place, idle_choice
from entity_env.agents.human.prompt import (
    Asked,
    Choice,
    Draw,
    Prompt,
    RestAsBefore,
    TimeIsUp,
    Undo,
    UserQuit,
    board_choices,
    keyed_choices,
    numbered_choices,
)
from entity_env.agents.human.turn_answers import TurnAnswers
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.core.action_request import Question
from entity_env.core.observation import Action, EntityID, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.views.describe import describe_number, describe_observation, label_of, words_of
from entity_env.views.load_look import with_words
from entity_env.views.look import Look
from entity_env.views.seen import seen_entities

_MAX_LISTED: Final = 6
"""If at most this many choices are allowed, the menu also lists those on the board."""


class BoardView(Protocol):
    """Draws observations, with the questions for the person."""

    def places(self, agent_id: int, observation: Observation) -> Mapping[EntityID, Place]:
        """Positions of entities on the board; empty without a board."""

    def show(
        self, agent_id: int, observation: Observation, *notes: str, asked: Asked | None = None
    ) -> None:
        """Draws an observation with its question, and the notes below it."""


class HumanAgent(PolicyAgent):
    """Asks a person for actions: arrow keys, letters and numbers, with labels from the schema.

    Offers only allowed actions, one actor at a time. On a terminal it reads single keys if every
    choice has one, and restores the terminal's mode after every question. Otherwise it reads lines,
    each with a key, a label or a number. Backspace, or the line `undo`, goes back to the previous
    question of the turn. q, Ctrl-C and the end of input stop the game.

    With a board on a terminal, entities that can be selected show their keys there, and arrows move
    between them. On a terminal, Enter takes a default, except for continuous actions. For labels,
    this is the actor's last choice. For entities on a board, it is the one nearest to the actor's
    last target, at first to the actor itself. Otherwise a single actor has no default; with several
    actors, the default is a choice that does nothing or, if there is none, the first allowed
    choice. `.` takes the defaults of all remaining questions of the turn that have one. With a
    clock, the defaults are those of `MoveClock.default`, and the last actor of an action cannot
    take them by a key.

    Args:
        source: input; None = standard input.
        out: output; None = standard output.
        show: called with every observation before its questions; None = lists the visible entities
            on `out`.
        board: draws every question, instead of `show`.
        look: describes entities and choices; None = the `__str__` of their classes.
        clock_s: time per decision on a terminal; when it expires, `MoveClock.default` chooses. None
            = no limit.

    Raises:
        UsageError: a clock without a terminal, or a time that is not above 0.
    """

    def __init__(
        self,
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        show: Callable[[Observation], None] | None = None,
        board: BoardView | None = None,
        clock_s: float | None = None,
        look: Look | None = None,
    ) -> None:
        super().__init__()
        self._look = look
        self._clock = None if clock_s is None else MoveClock(clock_s)
        self._takes_plain = show is None and board is None
        self._out = sys.stdout if out is None else out
        self._show = show
        self._board = board
        self._last = LastChoices() if self._clock is None else self._clock.last
        self._prompt = Prompt(sys.stdin if source is None else source, self._out, self._clock)

    def copy_for_seat(self) -> Self:
        """A copy for another seat of the same person, with its own clock."""
        copied = copy.copy(self)
        copied._last = LastChoices()
        if self._clock is not None:
            copied._clock = MoveClock(self._clock.seconds)
            copied._last = copied._clock.last
            copied._prompt = self._prompt.with_clock(copied._clock)
        return copied

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        if self._clock is not None:
            self._clock.begin(self._run.num_steps)
            if not self._run.num_steps:
                self._prompt.forget_keys()  # keys typed in the last episode
        if not self._run.num_steps:
            self._last.clear()
        answers = TurnAnswers(self.questions(observation))
        try:
            if self._board is None:
                (self._show or self._list)(observation)
            self._complete(answers, observation)
        except (UserQuit, KeyboardInterrupt):
            return None
        return answers.actions()

    def _complete(self, answers: TurnAnswers, observation: Observation) -> None:
        """Asks until all questions have answers; time that expires and `.` choose defaults."""
        asking_of, takes_defaults = self._asking_of(observation, answers), False
        while not answers.is_complete:
            question, actor = answers.open_question
            asking = asking_of(question)
            value = default = self._default(asking, actor)
            if default is None or not takes_defaults:
                try:
                    value = self._ask(asking, actor, default, answers)
                except RestAsBefore:
                    takes_defaults = True
                except Undo:
                    answers.undo()
                    takes_defaults = False
                    continue
                except TimeIsUp:
                    pass
            answers.keep(value)
        for question, actor, value in answers:
            self._keep(asking_of(question), actor, value)

    def _asking_of(
        self, observation: Observation, answers: TurnAnswers
    ) -> Callable[[Question], _Asking]:
        """Makes the `_Asking` of each question; words and places are computed once per turn."""
        space = self.schema.obs_space()
        look = self._look or with_words(Look(), self.schema)
        words = {each.id: words_of(each, look) for each in seen_entities(observation, space)}
        if self._board is None:
            return partial(_Asking, words=words, look=look)
        agent_id = self._run.agent_id
        has_places = self._prompt.is_terminal and answers.has_selection
        places = self._board.places(agent_id, observation) if has_places else {}
        draw = partial(self._board.show, agent_id, observation)
        asking = partial(_Asking, words=words, look=look, places=places)
        return partial(asking, draw=lambda asked: draw(asked=asked))

    def _ask(
        self,
        asking: _Asking,
        actor: int,
        default: Any,  # noqa: ANN401 - as `Question.action`
        answers: TurnAnswers,
    ) -> int | list[float]:
        question, num_left = asking.question, len(asking.question.actors) - actor
        title = asking.title(actor)
        for earlier, place, value in answers:
            if place == actor and earlier.name in question.space.given:
                title += f", {replace(asking, question=earlier).said(value)}"
        if self._clock is not None:
            title += f" ({self._clock.describe(asking.said(default))})"
        if isinstance(question.space, ContinuousActionSpace):
            return self._numbers(question.space, title, asking.drawer(actor, ()), answers)
        choices = asking.choices(actor)
        is_offered = self._prompt.is_terminal and (self._clock is None or num_left > 1)
        return self._prompt.choose(
            title,
            choices,
            is_last=answers.is_last,
            default=default if is_offered else None,
            has_rest=is_offered and len(question.actors) > 1 and not answers.is_last,
            can_undo=answers.can_undo,
            draw=asking.drawer(actor, choices),
        )

    def _numbers(
        self, space: ContinuousActionSpace, title: str, draw: Draw, answers: TurnAnswers
    ) -> list[float]:
        bounds = list(zip(space.labels, space.low, space.high, strict=True))
        values: list[float] = []
        while len(values) < len(bounds):
            label, low, high = bounds[len(values)]
            try:
                value = self._prompt.number(
                    f"{title}, {label}",
                    low,
                    high,
                    is_last=answers.is_last and len(values) + 1 == len(bounds),
                    can_undo=answers.can_undo or bool(values),
                    draw=draw,
                )
            except Undo:
                if not values:
                    raise
                values.pop()
            else:
                values.append(value)
        return values

    def _default(self, asking: _Asking, actor: int) -> Any:  # noqa: ANN401 - as `Question.action`
        """The choice for Enter and for expired time; None = no default."""
        question = asking.question
        if isinstance(question.space, ContinuousActionSpace):
            return None if self._clock is None else self._clock.default(question, actor)
        nearest = self._last.nearest(question, actor, asking.places)
        if self._clock is not None:
            return self._clock.default(question, actor, nearest)
        allowed = question.legal(actor)
        found = [nearest, self._last.of(question, actor)]
        if len(question.actors) > 1:
            found += [idle_choice(question, actor), allowed[0]]
        return next((choice for choice in found if choice is not None), None)

    def _keep(self, asking: _Asking, actor: int, chosen: Any) -> None:  # noqa: ANN401 - as above
        self._last.keep(asking.question, actor, chosen, asking.places)

    def _list(self, observation: Observation) -> None:
        self._out.write(f"\n{describe_observation(observation, self.schema.obs_space())}\n")


@dataclass(frozen=True)
class _Asking:
    """A question about an observation, in words and on the board.

    Args:
        question: for all actors of an action.
        look: describes choices.
        places: positions of entities on the board; empty without a board.
        draw: draws the observation and the question.
    """

    question: Question
    words: Mapping[EntityID, str]
    look: Look
    places: Mapping[EntityID, Place] = field(default_factory=dict)
    draw: Callable[[Asked], None] = lambda asked: None

    def title(self, actor: int) -> str:
        question = self.question
        entity = question.actors[actor]
        if entity not in self.words:  # asked once
            return question.name
        count = len(question.actors)
        place = f" ({actor + 1} of {count})" if count > 1 else ""
        return f"{question.name} of {self.words[entity]}{place}"

    def choices(self, actor: int) -> list[Choice]:
        question = self.question
        allowed = question.legal(actor)
        if not self._is_select:
            found = keyed_choices(question.choices, allowed)
            return [replace(each, text=self._label(each.text)) for each in found]
        texts = [self.words[actee] for actee in question.actees]
        places = [self.places.get(actee) for actee in question.actees]
        if any(places[i] for i in allowed):
            return board_choices(texts, allowed, places, _MAX_LISTED)
        return numbered_choices(texts, allowed)

    def drawer(self, actor: int, choices: Sequence[Choice]) -> Callable[[int | None, int], None]:
        """Function that draws an actor's question; see `Draw` for its arguments."""
        actees = self.question.actees if self._is_select else ()
        on_board = {actees[c.index]: c.keys[0] for c in choices if c.place is not None and c.keys}
        menu = frozenset(actees[c.index] for c in choices if actees and c.place is None)

        def draw(focus: int | None, num_lines: int) -> None:
            selected = actees[focus] if actees and focus is not None else None
            actor_id = self.question.actors[actor]
            actor_id = actor_id if actor_id in self.words else None
            self.draw(Asked(actor_id, on_board, selected, menu, num_lines))

        return draw

    def said(self, chosen: Any) -> str:  # noqa: ANN401 - as `Question.action`
        if isinstance(chosen, list):
            return ", ".join(map(describe_number, chosen))
        question = self.question
        if self._is_select:
            return self.words[question.actees[chosen]]
        return self._label(question.choices[chosen])

    def _label(self, label: str) -> str:
        return label_of(self.question.name, label, self.look)

    @property
    def _is_select(self) -> bool:
        return isinstance(self.question.space, SelectEntityActionSpace)
