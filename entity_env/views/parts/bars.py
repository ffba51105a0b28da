"""`ActorBars`: the choices of one actor with their probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from entity_env.authoring.local_run import PastStep, Turn
from entity_env.core.action_request import chosen_values, questions
from entity_env.core.observation import (
    Action,
    CategoricalAction,
    ContinuousAction,
    GlobalCategoricalAction,
    SelectEntityAction,
)
from entity_env.core.spaces import ActionName, ActionSpace, ContinuousActionSpace, ObsSpace
from entity_env.errors import SchemaError
from entity_env.lazy_imports import is_array
from entity_env.views.describe import action_words, describe_number, label_of, words_of
from entity_env.views.parts.spots import Pointer
from entity_env.views.scene import Point, clipped
from entity_env.views.seen import SeenEntity, SeenObservation

_MAX_ACTORS: Final = 8
_MAX_CHOICES: Final = 12
_MATTERS: Final = 0.005
"""Smallest change of a decision that is named."""
NOT_ALLOWED: Final = "not allowed"
_LEAST_HEIGHT: Final = 0.05
_DIGITS: Final = 3


@dataclass(frozen=True)
class Bar:
    """One choice of an actor.

    Args:
        label: the choice in words.
        share: its probability; for a number, its position between the bounds; None = unknown.
        path: where it points, in units of the picture: a place, or several for an arrow.
        is_allowed: False if the game forbids it.
    """

    label: str
    share: float | None
    is_chosen: bool
    path: Sequence[Point] = ()
    is_allowed: bool = True

    @property
    def share_text(self) -> str:
        """`93%`, "not allowed", or "" if the share is unknown."""
        return share_text(self.share, self.is_allowed)


def share_text(share: float | None, is_allowed: bool) -> str:
    """See `Bar.share_text`; also in `player.js`."""
    if not is_allowed:
        return NOT_ALLOWED
    return "" if share is None else f"{share:.0%}"


@dataclass(frozen=True)
class ActorBars:
    """The choices of one actor in the order of the space; the most probable if more than 12.

    Args:
        title: the action, and the actor if it is one of several entities of its type.
        num_more: number of omitted choices; if there are no bars, of omitted actors.
    """

    title: str
    bars: Sequence[Bar]
    num_more: int = 0


def actors_of(
    turn: Turn, action_space: Mapping[ActionName, ActionSpace], pointer: Pointer
) -> Iterator[ActorBars]:
    """The choices of the first 8 actors of each action of a turn.

    Args:
        pointer: finds where they point, in the drawn observation of the turn.
    """
    thoughts = {} if turn.thoughts is None else turn.thoughts.probabilities
    seen, look = pointer.seen, pointer.look
    at = {entity.index: entity for entity in seen.entities}
    legal = legal_choices(turn, seen.obs_space, action_space)
    for name, action in turn.actions.items():
        ids = [None] if isinstance(action, GlobalCategoricalAction) else list(action.actors)
        index_of = {} if ids == [None] else turn.observation.index_of_ids(seen.obs_space)
        space, title = action_space[name], action_words(name)
        for row, entity_id in enumerate(ids[:_MAX_ACTORS]):
            entity = None if entity_id is None else at.get(index_of[entity_id])
            is_one_of_many = entity is not None and len(seen[entity.type]) > 1
            words = f": {clipped(words_of(entity, look), 40)}" if entity and is_one_of_many else ""
            if isinstance(action, ContinuousAction):
                bars = _number_bars(action, space, row)
                if bars:
                    numbers = [float(value) for value in action.values[row]]
                    path = tuple((spot.x, spot.y) for spot in pointer.path(name, entity, numbers))
                    bars[0] = replace(bars[0], path=path)
                yield ActorBars(f"{title}{words}", bars)
                continue
            choices = _choices_of(name, action, space, seen, at)
            probs = _row_of(thoughts.get(name, action.probs), row, len(choices))
            allowed = legal[name][row] if row < len(legal.get(name, ())) else None
            chosen = _chosen_in(action, row, choices)
            bars = _choice_bars(name, entity, choices, chosen, probs, allowed, pointer)
            yield ActorBars(
                f"{title}{words}", bars, 0 if probs is None else len(choices) - len(bars)
            )
        if len(ids) > _MAX_ACTORS:
            yield ActorBars(f"{title}: more actors", (), len(ids) - _MAX_ACTORS)


def legal_choices(
    turn: Turn, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[ActionName, list[list[int]]]:
    """By action and actor, the indices of the choices that were legal after those made before.

    Empty for an observation whose masks cannot be read.
    """
    try:
        asked = questions(turn.observation, obs_space, action_space)
        values = chosen_values(asked, turn.actions) if turn.actions else {}
    except SchemaError:
        return {}
    asked = [question.after(values) if values else question for question in asked]
    return {
        question.name: [question.legal(i) for i in range(len(question.actors))]
        for question in asked
        if not isinstance(question.space, ContinuousActionSpace)
    }


def past_that_matters(past: Sequence[PastStep]) -> list[PastStep]:
    """Earlier steps without which a decision would differ, most important first."""
    found = [step for step in past if step.change >= _MATTERS]
    return sorted(found, key=lambda step: -step.change)


def highest(past: Sequence[PastStep]) -> float:
    """The change that is drawn with full height."""
    return max(_LEAST_HEIGHT, *(step.change for step in past))


def past_fields(past: Sequence[PastStep]) -> list[Any]:
    """Earlier steps for `pastOf` in `board.js`: the last one of the first entry, the changes, and
    the values or None. Each further entry is one step; the first entry begins at step 0.
    """
    values = [None if step.value is None else round(step.value, _DIGITS) for step in past]
    changes = [round(step.change, _DIGITS) for step in past]
    return [past[0].last, changes, None if None in values else values]


def _number_bars(action: ContinuousAction, space: ActionSpace, row: int) -> list[Bar]:
    if not isinstance(space, ContinuousActionSpace) or row >= len(action.values):
        return []
    values = [float(value) for value in action.values[row][:_MAX_CHOICES]]
    columns = (space.labels, values, space.low, space.high)
    return [
        Bar(f"{label} {describe_number(value)}", (value - low) / (high - low), True)
        for label, value, low, high in zip(*columns, strict=False)
    ]


def _choices_of(
    name: ActionName,
    action: Action,
    space: ActionSpace,
    seen: SeenObservation,
    at: Mapping[int, SeenEntity],
) -> Sequence[str | SeenEntity]:
    """The labels, or the selectable entities."""
    if isinstance(action, SelectEntityAction):
        indices = seen.observation.actee_positions(name, seen.obs_space)
        return [at[i] for i in indices]
    labels: Sequence[str] = getattr(space, "index_to_label", ())
    return labels


def _chosen_in(action: Action, row: int, choices: Sequence[str | SeenEntity]) -> int:
    match action:
        case GlobalCategoricalAction():
            return int(action.index)
        case CategoricalAction():
            return int(action.indices[row])
        case SelectEntityAction():
            ids = [getattr(choice, "id", None) for choice in choices]
            return ids.index(action.actees[row])
    return -1


def _row_of(
    rows: Any,  # noqa: ANN401 - an array or lists, or None
    row: int,
    num_choices: int,
) -> list[float] | None:
    """One actor's row, if there is one that fits the choices."""
    found = [] if rows is None else number_rows(rows)
    return found[row] if row < len(found) and len(found[row]) == num_choices else None


def number_rows(values: Any) -> list[list[float]]:  # noqa: ANN401 - an array, or nested lists
    """The rows of numbers for several actors; a single row if there is only one dimension."""
    listed: list[Any] = values.tolist() if is_array(values) else list(values)
    return [listed] if listed and not isinstance(listed[0], Sequence) else listed


def most_probable(
    probs: Sequence[float], allowed: Sequence[int] | None, chosen: int, most: int
) -> list[int]:
    """Indices of the most probable choices in their order, at most `most`, always with `chosen`.

    Args:
        allowed: indices of the legal choices, which come first; None = all.
    """
    key = [-each if allowed is None or i in allowed else 1.0 for i, each in enumerate(probs)]
    likely = sorted(range(len(key)), key=key.__getitem__)[:most]
    return sorted(likely if chosen in likely else {*likely[: most - 1], chosen})


def _choice_bars(
    name: ActionName,
    actor: SeenEntity | None,
    choices: Sequence[str | SeenEntity],
    chosen: int,
    probs: Sequence[float] | None,
    allowed: Sequence[int] | None,
    pointer: Pointer,
) -> list[Bar]:
    shown = [chosen]
    if probs is not None:
        shown = most_probable(probs, allowed, chosen, _MAX_CHOICES)
    look = pointer.look
    bars = []
    for i in shown:
        choice = choices[i]
        words = label_of(name, choice, look) if isinstance(choice, str) else words_of(choice, look)
        path = tuple((spot.x, spot.y) for spot in pointer.path(name, actor, choice))
        is_allowed = allowed is None or i in allowed
        share = None if probs is None else float(probs[i])
        bars.append(Bar(words, share, i == chosen, path, is_allowed))
    return bars
