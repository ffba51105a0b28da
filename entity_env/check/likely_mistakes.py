"""Likely mistakes: valid, but rarely intended; and choices lost as aliases: violations."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum, Flag
from functools import partial
from itertools import groupby, pairwise
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.entity_type import declared_fields, features_of_class
from entity_env.authoring.game import Game
from entity_env.authoring.obs import Obs
from entity_env.authoring.schema import Schema
from entity_env.authoring.settings import is_settable
from entity_env.check.violations import LikelyMistake

_MIN_RETURNS: Final = 6
"""Number of returns to one score that make a pattern. By chance, only 1 in 64 random walks with
steps of size 1 starts with so many returns in a row."""
_MAX_AWAY: Final = 2.0
"""Largest mean number of consecutive observations with other scores."""
_MIN_SHARE: Final = 0.7
"""Smallest share of departures from a score whose next change leads back to it."""
_MIN_EPISODES: Final = 2
_MIN_SCORES: Final = 10
"""An episode needs more observations than this to show that its score stays constant."""
_LARGE_REWARD: Final = 1e6
_SLOW_S: Final = 0.01
"""Seconds per step: a million steps take three hours."""
_STEPS: Final = 1_000_000
"""Steps of a short training run, for messages."""


class Score(NamedTuple):
    """An observed score, with its place and the line of the game."""

    value: float
    place: str
    line: str


def missing_choices(schema: Schema) -> Iterator[str]:
    """Sentences about names in action Enums that no agent can choose."""
    for action in schema.kinds:
        choices = getattr(action, "choices", ())
        for enum in _enums_of(choices[0]) if choices else ():
            listed = {member.name for member in enum}
            for name, member in enum.__members__.items():
                if name in listed:
                    continue
                where = f"action {enum.__name__}: {name}"
                if member.name == name:
                    yield f"{where} is not a single bit, so agents cannot choose it: use an Enum"
                    continue
                yield (
                    f"{where} has the value of {member.name}, {member.value!r}, so Python makes it "
                    f"an alias of {member.name} and agents cannot choose it: give each its own "
                    f"value; if it is intended, write {name} = {enum.__name__}.{member.name} below "
                    f"the class{_place_of(enum)}"
                )


def _enums_of(choice: object) -> list[type[Enum]]:
    if isinstance(choice, Enum):
        return [type(choice)]
    if not (dataclasses.is_dataclass(choice) and not isinstance(choice, type)):
        return []
    return [type(getattr(choice, field.name)) for field in dataclasses.fields(choice)]


def unseen_attributes(schema: Schema) -> Iterator[str]:
    """Sentences about values in entity classes that are not fields: they lack an annotation.

    Ignores private names and constants (uppercase names).
    """
    declared = [*schema.entities, *([schema.globals] if schema.globals else [])]
    for cls in (kind.cls for kind in declared):
        bases = [base for base in cls.__mro__ if "__dataclass_fields__" in vars(base)]
        annotated = {name for base in bases for name in inspect.get_annotations(base)}
        for base in bases:
            for name, value in vars(base).items():
                if name in annotated or name.startswith("_") or name.isupper():
                    continue
                if _could_be_feature(value):
                    kind = "... | None" if value is None else type(value).__name__
                    yield (
                        f"entity {cls.__name__}: {name} = {value!r} has no annotation, so it is "
                        f"not a field and agents do not see it: write {name}: {kind} = {value!r}, "
                        f"or {name}: ClassVar[{kind}] if that is intended{_place_of(base)}"
                    )


def aliased_members(schema: Schema) -> Iterator[str]:
    """Sentences about aliases in the Enums of entity fields."""
    declared = [*schema.entities, *([schema.globals] if schema.globals else [])]
    for cls in (kind.cls for kind in declared):
        references = schema.references_of(cls)
        for field, enum in _enums_in_fields(cls):
            if field.partition(".")[0] in references:
                continue
            yield from (
                f"entity {cls.__name__}: {name} of {field} has the value of {member.name}, "
                f"{member.value!r}, so they are one member of {enum.__name__} and agents cannot "
                f"tell them apart: give each its own value; if it is intended, write {name} = "
                f"{enum.__name__}.{member.name} below the class{_place_of(enum)}"
                for name, member in enum.__members__.items()
                if name != member.name
            )


def _enums_in_fields(cls: type) -> Iterator[tuple[str, type[Enum]]]:
    """Field names and Enums of a dataclass and its nested dataclasses, once per field."""
    for field, kind in declared_fields(cls).items():
        for part in dict.fromkeys(_parts_of(kind)):
            if issubclass(part, Enum) and not issubclass(part, Flag):
                yield field, part
            elif dataclasses.is_dataclass(part):
                yield from ((f"{field}.{name}", enum) for name, enum in _enums_in_fields(part))


def _parts_of(kind: object) -> Iterator[type]:
    if isinstance(kind, type) and not typing.get_args(kind):
        yield kind
    elif features_of_class(kind) is None:  # `Features` reads an object of any class
        for each in typing.get_args(kind):
            yield from _parts_of(each)


def _could_be_feature(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_could_be_feature, value))
    if value is None or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return True
    return isinstance(value, int | float | Enum | np.number | np.bool_)


def odd_scores(
    episodes: Sequence[Sequence[Score]], num_whole: int, *, is_cut: bool = False
) -> Iterator[str]:
    """Sentences about scores that teach nothing, or something unintended.

    Args:
        num_whole: number of whole episodes.
        is_cut: no more were played because the time ran out.
    """
    changes = [
        (abs(now.value - before.value), now)
        for episode in episodes
        for before, now in pairwise(episode)
        if now.value != before.value
    ]
    if not changes:
        if num_whole:
            played = "an episode" if num_whole == 1 else f"{num_whole} episodes"
            played += " before the time ran out" * is_cut
            yield (
                f"the score did not change in {played}, which teaches nothing: observe with "
                "Obs(score), the score so far; or check more episodes, if it is rarely earned"
            )
        return
    largest, at = max(changes, key=lambda change: change[0])
    if largest >= _LARGE_REWARD:
        yield (
            f"{at.place}: the score changes by {largest:g} at once ({at.line}): rewards of about 1 "
            "are learned best, so divide the score, or train with "
            "--set-train norm_returns=true"
        )
    if _changes_at_first_alone(episodes):
        first, second, *_ = episodes[0]
        yield (
            f"the score changes only at the first step, by {second.value - first.value:g} in "
            f"every episode, which teaches nothing ({at.line}): Obs(score) needs the score so far, "
            "score += reward; or check more episodes, if it is rarely earned"
        )
    yield from _per_step(episodes)


def _changes_at_first_alone(episodes: Sequence[Sequence[Score]]) -> bool:
    """Whether all of several long episodes have the same single reward, at their first step."""
    if len(episodes) < _MIN_EPISODES or any(len(each) <= _MIN_SCORES for each in episodes):
        return False
    values = [[score.value for score in episode] for episode in episodes]
    changes = {second - first for first, second, *_ in values}
    return len(changes) == 1 and all(len({*after}) == 1 for _, *after in values)


def _per_step(episodes: Sequence[Sequence[Score]]) -> Iterator[str]:
    """A sentence if the score usually returns to its most common value soon after a change."""
    values = Counter(score.value for episode in episodes for score in episode)
    base, num_base = values.most_common(1)[0]
    num_away = values.total() - num_base
    num_runs, num_left, num_back, returns = 0, 0, 0, []
    for episode in episodes:
        changed = [value for value, _ in groupby(score.value for score in episode)]
        num_left += sum(value == base for value in changed[:-2])
        num_back += sum(a == c == base for a, c in zip(changed, changed[2:], strict=False))
        runs = [list(run) for _, run in groupby(episode, key=lambda score: score.value == base)]
        num_runs += sum(run[0].value != base for run in runs)
        returns += [
            (run[-1], after[0])
            for before, run, after in zip(runs, runs[1:], runs[2:], strict=False)
            if before[0].value == base
        ]
    is_typical = num_base >= num_away and num_away <= _MAX_AWAY * num_runs
    # A running total that goes up and down by chance returns at once half of the time.
    is_typical = is_typical and num_back >= _MIN_SHARE * num_left
    if len(returns) < _MIN_RETURNS or not is_typical:
        return
    away, back = returns[0]
    yield (
        f"{back.place}: the score looks like the reward of a step: it is {away.value:g} and then "
        f"{base:g} again, as after {len(returns)} changes ({away.line}); Obs(score) needs the "
        "score so far, score += reward, and its changes are the rewards"
    )


def unused_masks(obs: Obs, kinds: Sequence[ActionType[Any]]) -> Iterator[LikelyMistake]:
    """Sentences about masks of unrequested actions that were probably meant for requested ones.

    The requested action has the same choices and no mask.
    """
    masked = [] if obs.masks is None else [*obs.masks]
    for kind in (each for each in kinds if each not in masked):
        for other in (each for each in masked if each not in kinds):
            if _subject(kind) is not None and _subject(kind) == _subject(other):
                yield LikelyMistake(
                    f"the mask of {other!r} is not used, since act asks for {kind!r}, "
                    "which has none: give the mask to the action that is asked for"
                )


def _subject(kind: ActionType[Any]) -> object:
    return getattr(kind, "choices", None) or getattr(kind, "actee", None)


def slow_steps(
    step_times_s: Sequence[float], num_answered: int, *, is_cut: bool, repeated: int | None = None
) -> str:
    """A sentence about a slow game, a check that was cut short, or both; else empty.

    Args:
        is_cut: not all requested episodes were played.
        repeated: number of steps that were played again; None = all.
    """
    typical_s = median(step_times_s) if step_times_s else 0.0
    # Excludes one pause, such as compilation.
    longest_s, others = max(step_times_s, default=0.0), max(len(step_times_s) - 1, 1)
    average_s = max((sum(step_times_s) - longest_s) / others, typical_s)
    is_slow = average_s >= _SLOW_S
    if not (is_slow or is_cut or repeated is not None):
        return ""
    hours = average_s * _STEPS / 3600
    slow = f": {_STEPS:,} steps of training take {hours:,.0f} hours in one process; aim at 1 ms"
    cut = ""
    if is_cut or repeated is not None:
        what = f"the check stopped after {num_answered} steps"
        if not is_cut:
            what = f"only the first {repeated} of {num_answered} steps were played again"
        cut = f"; {what}: a larger --max-time, or max_time_s of check_game, lets it continue"
    is_uneven = average_s >= 2 * typical_s
    at_times = f" on average, one of them {longest_s:.3g} s" * is_uneven
    return f"a step takes {average_s * 1000:.3g} ms{at_times}{slow * is_slow}{cut}"


def single_choice(num_answered: int, num_choices: int) -> str:
    """A sentence about a game in which an agent never has a choice; else empty."""
    if num_choices or num_answered < _MIN_SCORES:
        return ""
    return (
        f"each of {num_answered} decisions had a single legal choice, which teaches nothing: "
        "declare more choices, or ask only if there is one"
    )


_SHARED_DEFAULTS: Final = (list, dict, set, bytearray)


def odd_settings(game: Game) -> Iterator[str]:
    """Sentences about settings with a default that all episodes share, or of impossible types."""
    for name, parameter in game.parameters.items():
        if isinstance(parameter.default, _SHARED_DEFAULTS):
            yield (
                f"the default of {name} is a {type(parameter.default).__name__}, which all copies "
                f"and episodes share: write {name}=None, and create it in play"
            )
        elif not is_settable(parameter.annotation):
            yield (
                f"setting {name!r} is declared {_type_name(parameter.annotation)}, which --set and "
                "files cannot give: use int, float, bool, str, an Enum or a Literal"
            )


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def compared_with_text(game: Game) -> Iterator[str]:
    """Sentences about comparisons of an answer of `act` with a text, which are never equal."""
    play = game.play.func if isinstance(game.play, partial) else game.play
    function = inspect.unwrap(play)
    enums = {
        name: type(choice).__name__
        for kind in game.schema.kinds
        for choice in getattr(kind, "choices", ())
        if isinstance(choice, Enum) and not isinstance(choice, str)
        for name in type(choice).__members__
    }
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    answers = _answers_in(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        texts = [each.value for each in sides if isinstance(each, ast.Constant)]
        if any(_is_answer(each, answers) for each in sides):
            yield from (
                f"play compares an answer of act with the text {text!r}, which it never equals: "
                f"write {enums[text]}.{text} "
                f"({inspect.getfile(function)}:{first + node.lineno - 1})"
                for text in texts
                if text in enums
            )


def _answers_in(tree: ast.AST) -> set[str]:
    """Names of variables with answers of `act`, and with parts of them."""
    found: set[str] = set()
    while True:
        before = len(found)
        for node in ast.walk(tree):
            targets, value = _bound(node)
            if _asks(value) or _is_answer(value, found):
                for target in targets:
                    found |= {x.id for x in ast.walk(target) if isinstance(x, ast.Name)}
        if len(found) == before:
            return found


def _bound(node: ast.AST) -> tuple[Sequence[ast.expr], ast.expr | None]:
    """Targets of an assignment or loop, and what is bound to them."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, ast.AnnAssign | ast.NamedExpr):
        return [node.target], node.value
    if isinstance(node, ast.For | ast.comprehension):
        return [node.target], node.iter
    return [], None


def _asks(value: ast.expr | None) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in ("act", "act_async")


def _is_answer(value: ast.expr | None, answers: set[str]) -> bool:
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Name) and value.id in answers


def _place_of(cls: type) -> str:
    try:
        return f" ({inspect.getfile(cls)}:{inspect.getsourcelines(cls)[1]})"
    except (OSError, TypeError):
        return ""
