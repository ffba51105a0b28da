"""HumanAgent: an agent that asks a person in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TextIO

import numpy as np

from entity_env.agents.human.prompt import Choice, Prompt, UserQuit, keyed_choices, numbered_choices
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.core.action_request import Question
from entity_env.core.observation import Action, EntityID, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.views.describe import describe_entity, describe_observation
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
    """

    def __init__(
        self,
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        show: Callable[[Observation], None] | None = None,
    ) -> None:
        super().__init__()
        self._out = sys.stdout if out is None else out
        self._show = show or self._list
        self._prompt = Prompt(sys.stdin if source is None else source, self._out)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        try:
            self._show(observation)
            return {
                question.name: self._answer(question, observation)
                for question in self.questions(observation)
            }
        except (UserQuit, KeyboardInterrupt):
            return None

    def _answer(self, question: Question, observation: Observation) -> Action:
        words = self._words(observation)
        chosen = [
            self._ask(question, actor, self._title(question, actor, words), words)
            for actor in range(len(question.actors))
        ]
        return question.action(chosen)

    def _ask(
        self, question: Question, actor: int, title: str, words: Mapping[EntityID, str]
    ) -> int | list[float]:
        if isinstance(question.space, ContinuousActionSpace):
            space = question.space
            bounds = zip(space.labels, space.low, space.high, strict=True)
            return [
                self._prompt.number(f"{title}, {label}", *low_high) for label, *low_high in bounds
            ]
        return self._prompt.choose(title, _choices(question, actor, words))

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


def _choices(question: Question, actor: int, words: Mapping[EntityID, str]) -> list[Choice]:
    allowed = np.flatnonzero(question.allowed[actor]).tolist()
    if isinstance(question.space, SelectEntityActionSpace):
        return numbered_choices([words[actee] for actee in question.actees], allowed)
    return keyed_choices(question.choices, allowed)
