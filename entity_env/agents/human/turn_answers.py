"""The answers of a person to the questions of one turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.observation import Action
from entity_env.core.spaces import ActionName, SelectEntityActionSpace


class TurnAnswers:
    """The questions of one turn in the order in which a person is asked, and the answers so far.

    Questions to the same actors are asked actor by actor: the step and then the target of the first
    unit, then those of the second one.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = questions
        by_actors: dict[tuple[Any, ...], list[Question]] = {}
        for question in questions:
            by_actors.setdefault(tuple(question.actors), []).append(question)
        self._order = [
            (question, actor)
            for group in by_actors.values()
            for actor in range(len(group[0].actors))
            for question in group
        ]
        self._values: list[Any] = []

    @property
    def has_selection(self) -> bool:
        """True if a question selects entities."""
        return any(isinstance(each.space, SelectEntityActionSpace) for each in self._questions)

    @property
    def is_complete(self) -> bool:
        return len(self._values) == len(self._order)

    @property
    def open_question(self) -> tuple[Question, int]:
        """The first question without an answer, and the position of its actor.

        Its mask for this actor is the one after the actor's answers so far.
        """
        question, actor = self._order[len(self._values)]
        earlier: dict[ActionName, list[Any]] = {}
        for answered, place, value in self:
            earlier.setdefault(answered.name, [0] * len(answered.actors))[place] = value
        return question.after(earlier), actor

    @property
    def progress(self) -> tuple[int, int] | None:
        """Number of the open question, from 1, and number of questions; None for a single one."""
        number = len(self._order)
        return None if number == 1 else (len(self._values) + 1, number)

    @property
    def can_undo(self) -> bool:
        return bool(self._values)

    @property
    def is_last(self) -> bool:
        """True if the open question is the last one."""
        return len(self._values) + 1 == len(self._order)

    def keep(self, value: Any) -> None:  # noqa: ANN401 - as `Question.action`
        """Answers the open question, with a value of `Question.action`."""
        self._values.append(value)

    def undo(self) -> None:
        """Opens the previous question again."""
        self._values.pop()

    def __iter__(self) -> Iterator[tuple[Question, int, Any]]:
        """The answered questions, with the positions of their actors and the values."""
        for (question, actor), value in zip(self._order, self._values, strict=False):
            yield question, actor, value

    def actions(self) -> dict[ActionName, Action]:
        """The actions of the turn, when all questions have answers."""
        chosen: dict[ActionName, list[Any]] = {each.name: [] for each in self._questions}
        for question, _, value in self:
            chosen[question.name].append(value)
        return choose_in_order(self._questions, lambda asked: chosen[asked.name])
