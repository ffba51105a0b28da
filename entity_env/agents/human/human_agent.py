"""HumanAgent: an agent that asks a person in a terminal."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Self, TextIO

import numpy as np

from entity_env.agents.human.move_clock import MoveClock
from entity_env.agents.human.prompt import (
    Choice,
    Prompt,
    TimeIsUp,
    UserQuit,
    keyed_choices,
    numbered_choices,
)
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.core.action_request import Question
from entity_env.core.observation import Action, EntityID, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.views.describe import describe_entity, describe_number, describe_observation
from entity_env.views.seen import seen_entities


class HumanAgent(PolicyAgent):
    """Asks a person for actions: arrow keys, letters and numbers, with labels from the schema.

    Only allowed actions can be chosen; several actors are asked for one after the other. A terminal
    is read by single keys, and its mode is restored after every question; any other stream is read
    by lines, with the same keys or the labels. q, Ctrl-C and the end of input make the game leave.

    Args:
        source: input; None = standard input.
        out: output; None = standard output.
        show: called with every observation before its questions; None = lists the visible entities
            on `out`.
        clock_s: time for each decision on a terminal; see `MoveClock` for what is done when it is
            over. None = no limit.

    Raises:
        UsageError: a clock without a terminal, or a time that is not above 0.
    """

    def __init__(
        self,
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        show: Callable[[Observation], None] | None = None,
        clock_s: float | None = None,
    ) -> None:
        super().__init__()
        self._clock = None if clock_s is None else MoveClock(clock_s)
        self._out = sys.stdout if out is None else out
        self._show = show
        self._prompt = Prompt(sys.stdin if source is None else source, self._out, self._clock)

    def copy_for_seat(self) -> Self:
        """A copy that plays in another seat, for the same person, with its own clock."""
        copied = copy.copy(self)
        if self._clock is not None:
            copied._clock = MoveClock(self._clock.seconds)
            copied._prompt = self._prompt.with_clock(copied._clock)
        return copied

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        if self._clock is not None:
            self._clock.begin(self._run.num_steps)
            if not self._run.num_steps:
                self._prompt.forget_keys()  # they were meant for the last episode
        asked = self.questions(observation)
        try:
            (self._show or self._list)(observation)
            return {
                question.name: self._answer(question, observation, is_last=question is asked[-1])
                for question in asked
            }
        except (UserQuit, KeyboardInterrupt):
            return None

    def _answer(self, question: Question, observation: Observation, *, is_last: bool) -> Action:
        words, num_actors = self._words(observation), len(question.actors)
        return question.action(
            [
                self._ask(question, actor, words, is_last=is_last and actor == num_actors - 1)
                for actor in range(num_actors)
            ]
        )

    def _ask(
        self, question: Question, actor: int, words: Mapping[EntityID, str], *, is_last: bool
    ) -> int | list[float]:
        title = self._title(question, actor, words)
        if self._clock is None:
            return self._asked_of_person(question, actor, title, words, is_last=is_last)
        default = self._clock.default(question, actor)
        try:
            title += f" ({self._clock.describe(_said(question, default, words))})"
            chosen = self._asked_of_person(question, actor, title, words, is_last=is_last)
        except TimeIsUp:
            chosen = default
        self._clock.decided(question, actor, chosen)
        return chosen

    def _asked_of_person(
        self,
        question: Question,
        actor: int,
        title: str,
        words: Mapping[EntityID, str],
        *,
        is_last: bool,
    ) -> int | list[float]:
        if isinstance(question.space, ContinuousActionSpace):
            space, end = question.space, len(question.space.labels) - 1
            bounds = zip(space.labels, space.low, space.high, strict=True)
            return [
                self._prompt.number(f"{title}, {label}", low, high, is_last=is_last and i == end)
                for i, (label, low, high) in enumerate(bounds)
            ]
        return self._prompt.choose(title, _choices(question, actor, words), is_last=is_last)

    def _title(self, question: Question, actor: int, words: Mapping[EntityID, str]) -> str:
        entity = question.actors[actor]
        if entity is None:
            return question.name
        count = len(question.actors)
        place = f" ({actor + 1} of {count})" if count > 1 else ""
        return f"{question.name} of {words[entity]}{place}"

    def _words(self, observation: Observation) -> dict[EntityID, str]:
        """Descriptions of all entities, by id."""
        space = self.schema.obs_space()
        return {e.id: describe_entity(e, space) for e in seen_entities(observation, space)}

    def _list(self, observation: Observation) -> None:
        self._out.write(f"\n{describe_observation(observation, self.schema.obs_space())}\n")


def _said(question: Question, chosen: int | list[float], words: Mapping[EntityID, str]) -> str:
    """A value of `Question.action` in words."""
    if isinstance(chosen, list):
        return ", ".join(map(describe_number, chosen))
    is_select = isinstance(question.space, SelectEntityActionSpace)
    return words[question.actees[chosen]] if is_select else question.choices[chosen]


def _choices(question: Question, actor: int, words: Mapping[EntityID, str]) -> list[Choice]:
    allowed = np.flatnonzero(question.allowed[actor]).tolist()
    if isinstance(question.space, SelectEntityActionSpace):
        return numbered_choices([words[actee] for actee in question.actees], allowed)
    return keyed_choices(question.choices, allowed)
