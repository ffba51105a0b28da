"""Choices of actors with their probabilities: `ActorShares`, and `ActorBars` on a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from entity_env.authoring.local_run import PastStep, Turn
from entity_env.core.action_request import Question, chosen_values, questions
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
from entity_env.views.describe import action_words, describe_number, label_of, percent, words_of
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
_SHARE_DIGITS: Final = 4


@dataclass(frozen=True)
class Bar:
    """One choice of an actor.

    Args:
        label: the choice in words.
        share: its probability; for a number, its position between the bounds; None = unknown.
        path: where it points, in units of the picture: a place, or several for an arrow.
        is_allowed: False if the game forbids it.
        is_number: it is one of the numbers of a continuous action.
    """

    label: str
    share: float | None
    is_chosen: bool
    path: Sequence[Point] = ()
    is_allowed: bool = True
    is_number: bool = False

    @property
    def share_text(self) -> str:
        """`93%`, "not allowed", or "" for a number or an unknown share; `barsOf` in `board.js`."""
        if not self.is_allowed:
            return NOT_ALLOWED
        return "" if self.share is None or self.is_number else percent(self.share)


@dataclass(frozen=True)
class ActorShares:
    """The probabilities of one actor's choices, and which of them is chosen.

    Args:
        actor: its position among the actors of the question.
        shares: by choice, in the order of the space, with four decimals.
        legal: indices of the choices that are legal after those of earlier actions.
        chosen: index of the choice, or of the most probable legal one if nothing is chosen yet;
            None if that is unknown.
    """

    question: Question
    actor: int
    shares: Sequence[float] | None
    legal: Sequence[int]
    chosen: int | None

    def most_probable(self, most: int) -> list[int]:
        """Indices of at most `most` choices in their order: `chosen`, and the most probable ones.

        The legal choices come first. Only `chosen` if the probabilities are unknown.
        """
        legal, shares = {*self.legal}, self.shares or ()
        ranked = sorted(range(len(shares)), key=lambda i: (i not in legal, -shares[i]))[:most]
        if self.chosen is None or self.chosen in ranked:
            return sorted(ranked)
        return sorted([*ranked[: most - 1], self.chosen])


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
    seen, look = pointer.seen, pointer.look
    at = {entity.index: entity for entity in seen.entities}
    shares = shares_of(turn, seen.obs_space, action_space)
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
            found = shares[name][row] if name in shares else None
            bars = _choice_bars(
                name, entity, choices, _chosen_in(action, row, choices), found, pointer
            )
            num_more = 0 if found is None or found.shares is None else len(choices) - len(bars)
            yield ActorBars(f"{title}{words}", bars, num_more)
        if len(ids) > _MAX_ACTORS:
            yield ActorBars(f"{title}: more actors", (), len(ids) - _MAX_ACTORS)


def shares_of(
    turn: Turn, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[ActionName, list[ActorShares]]:
    """The shares of every actor, by action in action space order, without continuous actions.

    They are the thoughts of the turn, else the probabilities of its actions. Empty if the
    observation requests nothing, as at the end of some episodes, or not these actions.
    """
    try:
        asked = questions(turn.observation, obs_space, action_space)
        values = chosen_values(asked, turn.actions) if turn.actions else {}
    except SchemaError:
        return {}
    thoughts = {} if turn.thoughts is None else turn.thoughts.probabilities
    found: dict[ActionName, list[ActorShares]] = {}
    for question in asked:
        if isinstance(question.space, ContinuousActionSpace):
            continue
        name = question.name
        after = question.after(values) if values.keys() >= {*question.space.given} else question
        given = thoughts.get(name, getattr(turn.actions.get(name), "probs", None))
        rows = [] if given is None else number_rows(given)
        legal = [after.legal(actor) for actor in range(len(question.actors))]
        known = [_known_shares(rows, actor, question) for actor in range(len(legal))]
        rows_known = [row for row in known if row is not None]
        if name not in values and len(rows_known) == len(legal):
            pairs = zip(legal, rows_known, strict=True)
            values[name] = [max(choices, key=row.__getitem__) for choices, row in pairs]
        chosen = values.get(name, [None] * len(legal))
        found[name] = [
            ActorShares(question, actor, *each)
            for actor, each in enumerate(zip(known, legal, chosen, strict=True))
        ]
    return found


def _known_shares(
    rows: Sequence[Sequence[float]], actor: int, question: Question
) -> list[float] | None:
    """One actor's row, if there is one that fits the choices."""
    row = rows[actor] if actor < len(rows) else ()
    if len(row) != len(question.choices) or not all(map(math.isfinite, row)):
        return None
    return [round(float(share), _SHARE_DIGITS) for share in row]


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
        Bar(f"{label} {describe_number(value)}", _position(value, low, high), True, is_number=True)
        for label, value, low, high in zip(*columns, strict=False)
    ]


def _position(value: float, low: float, high: float) -> float:
    """Where a number is between its bounds, 0 to 1; as a float32, it may be just outside."""
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return round(min(max((value - low) / (high - low), 0.0), 1.0), _SHARE_DIGITS)


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


def number_rows(values: Any) -> list[list[float]]:  # noqa: ANN401 - an array, or nested lists
    """The rows of numbers for several actors; a single row if there is only one dimension."""
    listed: list[Any] = values.tolist() if is_array(values) else list(values)
    return [listed] if listed and not isinstance(listed[0], Sequence) else listed


def _choice_bars(
    name: ActionName,
    actor: SeenEntity | None,
    choices: Sequence[str | SeenEntity],
    chosen: int,
    found: ActorShares | None,
    pointer: Pointer,
) -> list[Bar]:
    look = pointer.look
    bars = []
    for i in [chosen] if found is None else found.most_probable(_MAX_CHOICES):
        choice = choices[i]
        words = label_of(name, choice, look) if isinstance(choice, str) else words_of(choice, look)
        path = tuple((spot.x, spot.y) for spot in pointer.path(name, actor, choice))
        share = None if found is None or found.shares is None else found.shares[i]
        bars.append(Bar(words, share, i == chosen, path, found is None or i in found.legal))
    return bars
