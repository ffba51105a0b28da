"""HumanAgent: a person decides, with keys in a terminal, in any game."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TextIO

import numpy as np

from entity_env.agents.human.describe import describe_entity, describe_observation, seen_entities
from entity_env.agents.human.prompt import Choice, HungUp, Prompt, keyed_choices, numbered_choices
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.core.action_request import Question
from entity_env.core.observation import Action, EntityID, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace


class HumanAgent(PolicyAgent):
    """Asks a person: arrow keys, letters and numbers, with labels from the game's schema.

    Only what is allowed can be chosen. Several actors are asked for one after the other. On a
    terminal single keys answer, and its mode is restored after every question; any other stream is
    read by lines, with the same keys or the labels themselves. q, Ctrl-C and the end of input hang
    up, so that the game leaves.

    Args:
        source: where answers come from; standard input when left out.
        out: where questions go; standard output when left out.
        show: called with every observation before the questions about it; lists the visible
            entities on `out` when left out.
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
        except (HungUp, KeyboardInterrupt):
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
        """Every entity in words, by id."""
        space = self.schema.obs_space()
        return {e.id: describe_entity(e, space) for e in seen_entities(observation, space)}

    def _list(self, observation: Observation) -> None:
        self._out.write(f"\n{describe_observation(observation, self.schema.obs_space())}\n")


def _choices(question: Question, actor: int, words: Mapping[EntityID, str]) -> list[Choice]:
    allowed = np.flatnonzero(question.allowed[actor]).tolist()
    if isinstance(question.space, SelectEntityActionSpace):
        return numbered_choices([words[actee] for actee in question.actees], allowed)
    return keyed_choices(question.choices, allowed)
