"""The questions of a turn as JSON for a page, and the checks of its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from entity_env.agents.human.prompt import keyed_choices
from entity_env.core.action_request import Question, require_in_bounds
from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import is_number
from entity_env.errors import SchemaError
from entity_env.views.describe import describe_number

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
UNDO: Final = object()
"""Result of a check: back to the previous question of the turn."""

Json: TypeAlias = Any
Check: TypeAlias = Callable[[Mapping[str, Json]], Json]
"""The value of an answer; raises SchemaError if it is not allowed."""


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
