"""The questions of a turn as JSON for a page, the checks of its answers, and the answers so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from entity_env.agents.human.prompt import keyed_choices
from entity_env.core.action_request import Question, choose_in_order, require_in_bounds
from entity_env.core.observation import Action
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import is_number
from entity_env.errors import SchemaError
from entity_env.views.describe import describe_number

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
UNDO: Final = object()
"""Result of a check: back to the previous question of the turn."""

Json: TypeAlias = Any
Check: TypeAlias = Callable[[Mapping[str, Json]], Json]
"""The value of an answer; raises SchemaError if it is not allowed."""


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
        self._values: list[Json] = []

    @property
    def is_complete(self) -> bool:
        return len(self._values) == len(self._order)

    @property
    def open_question(self) -> tuple[Question, int]:
        """The first question without an answer, and the position of its actor.

        Its mask for this actor is the one after the actor's answers so far.
        """
        question, actor = self._order[len(self._values)]
        earlier: dict[ActionName, list[Json]] = {}
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

    def keep(self, value: Json) -> None:
        """Answers the open question, with a value of `Question.action`."""
        self._values.append(value)

    def undo(self) -> None:
        """Opens the previous question again."""
        self._values.pop()

    def __iter__(self) -> Iterator[tuple[Question, int, Json]]:
        """The answered questions, with the positions of their actors and the values."""
        for (question, actor), value in zip(self._order, self._values, strict=False):
            yield question, actor, value

    def actions(self) -> dict[ActionName, Action]:
        """The actions of the turn, when all questions have answers."""
        chosen: dict[ActionName, list[Json]] = {each.name: [] for each in self._questions}
        for question, _, value in self:
            chosen[question.name].append(value)
        return choose_in_order(self._questions, lambda asked: chosen[asked.name])


def question_as_json(
    question: Question,
    actor: int,
    entities: Sequence[int],
    labels: Sequence[str],
    path: Callable[[int], list[Json]],
) -> tuple[dict[str, Json], Check]:
    """The question to one actor for `live.js`, and the check of its answer.

    Args:
        entities: indices of the actees of a select action, -1 if hidden.
        labels: of the choices, in words.
        path: of a choice, where it points to: `[[x, y, words], ...]`.
    """
    space = question.space
    if isinstance(space, ContinuousActionSpace):
        bounds = zip(space.labels, map(float, space.low), map(float, space.high), strict=True)
        return {"choices": [], "values": list(bounds)}, partial(_checked_values, question)
    allowed = question.legal(actor)
    if isinstance(space, SelectEntityActionSpace):
        keys: Sequence[Sequence[str]] = [(str(i + 1),) for i in range(len(labels))]
        of = entities
    else:
        names = list(question.choices)
        keys = [choice.keys for choice in keyed_choices(names, range(len(names)))]
        of = [-1] * len(names)
    pressed = _single_keys(keys)
    choices = [[i, labels[i], pressed[i], of[i], path(i)] for i in allowed]
    return {"choices": choices, "values": []}, partial(checked_choice, allowed=allowed)


def said(asked: Mapping[str, Json], answer: Json) -> str:
    """An answer to a question in words."""
    if isinstance(answer, list):
        return ", ".join(map(describe_number, answer))
    return next(str(label) for choice, label, *_ in asked["choices"] if choice == answer)


def _single_keys(keys: Sequence[Sequence[str]]) -> list[list[str]]:
    """Single keys: numbers above 9 become letters while these suffice."""
    taken = {key for each in keys for key in each}
    spare = [letter for letter in _LETTERS if letter not in taken]
    return [
        [key for key in each if len(key) == 1 or not key.isdecimal()]
        or spare[int(each[0]) - 10 : int(each[0]) - 9]
        for each in keys
    ]


def checked_choice(answer: Mapping[str, Json], allowed: Sequence[int]) -> int:
    """The choice of an answer; raises SchemaError unless it is allowed."""
    choice = answer.get("choice")
    if type(choice) is not int or choice not in allowed:
        raise SchemaError(f"expected a choice that is allowed: {', '.join(map(str, allowed))}")
    return choice


def checked_again(answer: Mapping[str, Json]) -> None:
    """Raises SchemaError unless an answer asks for the next episode or run."""
    if answer.get("again") is not True:
        raise SchemaError('the episode is over: expected "again": true')


def with_undo(check: Check) -> Check:
    """A check that also accepts `"undo": true`."""
    return lambda answer: UNDO if answer.get("undo") is True else check(answer)


def _checked_values(question: Question, answer: Mapping[str, Json]) -> list[float]:
    values, space = answer.get("values"), question.space
    if not isinstance(values, list) or not all(
        is_number(value) and type(value) is not bool for value in values
    ):
        raise SchemaError(f"action {question.name!r} needs a list of numbers")
    if isinstance(space, ContinuousActionSpace):
        require_in_bounds(question.name, space, [values])
    return values
