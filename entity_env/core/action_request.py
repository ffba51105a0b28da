"""`Question`: a requested action of an observation, with its actors and legal choices."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from entity_env.core.masks import is_nested, nested_mask, shape_of
from entity_env.core.observation import (
    Action,
    ActionMask,
    CategoricalAction,
    CategoricalActionMask,
    ContinuousAction,
    ContinuousActionMask,
    EntityID,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    Observation,
    PlainObservation,
    SelectEntityAction,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import is_index, is_number
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import is_array, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MASK_OF_SPACE: Mapping[type[ActionSpace], type[ActionMask]] = {
    CategoricalActionSpace: CategoricalActionMask,
    GlobalCategoricalActionSpace: GlobalCategoricalActionMask,
    SelectEntityActionSpace: SelectEntityActionMask,
    ContinuousActionSpace: ContinuousActionMask,
}

Asked: TypeAlias = tuple[int, Sequence[EntityID], Sequence[EntityID]]
"""Row of an observation, ids of its actors and, for a select action, ids of its actees."""

GLOBAL_ACTORS: Final[tuple[EntityID, ...]] = (None,)


@dataclass(frozen=True, init=False)
class Question:
    """One requested action.

    Args:
        actors: ids of the actors; `(None,)` for a global action.
        actees: ids of the selectable entities; empty unless it is a select action.
        allowed: `(num_actors, num_choices) bool`, True = allowed; all True if continuous. If the
            mask depends on an earlier action, `(num_actors, num_earlier, num_choices)`, see
            `after`. Lists if the observation is a `PlainObservation`.
    """

    name: ActionName
    space: ActionSpace
    actors: Sequence[EntityID]
    actees: Sequence[EntityID]
    allowed: NDArray[np.bool_]

    def __init__(
        self,
        name: ActionName,
        space: ActionSpace,
        actors: Sequence[EntityID],
        actees: Sequence[EntityID],
        allowed: NDArray[np.bool_],
    ) -> None:
        fields = self.__dict__  # for speed, as in `CategoricalActionMask`
        fields["name"] = name
        fields["space"] = space
        fields["actors"] = actors
        fields["actees"] = actees
        fields["allowed"] = allowed

    @property
    def is_global(self) -> bool:
        return isinstance(self.space, GlobalCategoricalActionSpace)

    @property
    def choices(self) -> Sequence[str]:
        """The labels, or the ids of the actees as text."""
        match self.space:
            case SelectEntityActionSpace():
                return [str(actee) for actee in self.actees]
            case ContinuousActionSpace():
                return self.space.labels
            case _:
                return self.space.index_to_label

    def action(self, chosen: Sequence[Any] | NDArray[Any]) -> Action:
        """The action with these values, one per actor, as in `VecActions`.

        Raises:
            SchemaError: wrong number of values, or a choice that is not allowed.
        """
        self._require_legal(chosen)
        if not is_array(self.allowed):
            return self._plain_action(chosen)
        return next(actions_of(self.name, self.space, [(0, self.actors, self.actees)], chosen))

    def after(self, earlier: Mapping[ActionName, Sequence[Any]]) -> Question:
        """The question once the earlier actions are chosen: `allowed` has two dimensions.

        Args:
            earlier: by action, the values that are chosen, one per actor; those of the actions in
                `space.given`.
        """
        if not self.space.given or not is_nested(self.allowed):
            return self
        chosen = earlier[self.space.given[-1]]
        if len(chosen) != len(self.actors):
            raise other_actors(self.name, self.space.given[-1], len(self.actors), len(chosen))
        rows: Any = [row[int(i)] for row, i in zip(self.allowed, chosen, strict=True)]
        if is_array(self.allowed):
            rows = np.array(rows, dtype=np.bool_).reshape(len(rows), self.allowed.shape[2])
        return Question(self.name, self.space, self.actors, self.actees, rows)

    def legal(self, actor: int) -> list[int]:
        """Indices of the choices allowed to the actor at a position."""
        row: Any = self.allowed[actor]
        if is_nested(self.allowed):
            return [i for i in range(len(self.choices)) if any(each[i] for each in row)]
        if is_array(row):
            return list(np.flatnonzero(row).tolist())
        return [i for i, is_allowed in enumerate(row) if is_allowed]

    def _plain_action(self, chosen: Any) -> Action:  # noqa: ANN401 - as in `action`
        match self.space:
            case GlobalCategoricalActionSpace():
                return GlobalCategoricalAction(chosen[0], self.space.index_to_label[chosen[0]])
            case CategoricalActionSpace():
                return CategoricalAction(self.actors, chosen, self.space.index_to_label)
            case SelectEntityActionSpace():
                return SelectEntityAction(self.actors, [self.actees[i] for i in chosen])
            case ContinuousActionSpace():
                return ContinuousAction(self.actors, chosen)

    def chosen(self, action: Action | None) -> list[Any]:
        """The values of an action, one per actor, as in `VecActions`.

        Raises:
            SchemaError: no action, the wrong kind, other actors, or a choice that is not allowed.
        """
        values: list[Any]
        match self.space, action:
            case GlobalCategoricalActionSpace(), GlobalCategoricalAction():
                values = [action.index]
            case CategoricalActionSpace(), CategoricalAction():
                values = self._given(action.indices)
            case SelectEntityActionSpace(), SelectEntityAction():
                values = self._positions(action.actees)
            case ContinuousActionSpace(), ContinuousAction():
                values = self._given(action.values)
            case _:
                raise SchemaError(
                    f"action {self.name!r} needs a {self._kind()}, got "
                    f"{'none' if action is None else type(action).__name__}"
                )
        self._require_same_actors(action)
        self._require_legal(values)
        return values

    def _given(self, values: Any) -> list[Any]:  # noqa: ANN401 - array-like
        return list(np.atleast_1d(values).tolist() if is_array(self.allowed) else values)

    def _kind(self) -> str:
        return type(self.space).__name__.removesuffix("Space")

    def _positions(self, selected: Sequence[EntityID]) -> list[int]:
        position_of = {actee: i for i, actee in enumerate(self.actees)}
        found = []
        for actee in selected:
            try:
                found.append(position_of[actee])
            except (KeyError, TypeError):  # TypeError: not hashable
                raise SchemaError(
                    f"action {self.name!r} selects {actee!r}, which is not among those that can be "
                    f"selected: {list(self.actees)[:20]}"
                ) from None
        return found

    def _require_same_actors(self, action: Action) -> None:
        actors = getattr(action, "actors", self.actors)
        if actors is not self.actors and list(actors) != list(self.actors):
            raise SchemaError(
                f"action {self.name!r} needs the actors {list(self.actors)[:20]}, in this order: "
                f"got {list(actors)[:20]}"
            )

    def _require_legal(self, chosen: Sequence[Any] | NDArray[Any]) -> None:
        if len(chosen) != len(self.actors):
            needed = "one value" if self.is_global else f"{len(self.actors)} values, one per actor"
            raise SchemaError(f"action {self.name!r} needs {needed}: got {len(chosen)}")
        if isinstance(self.space, ContinuousActionSpace):
            require_in_bounds(self.name, self.space, chosen)
            return
        choices = chosen.tolist() if is_array(chosen) else chosen
        for i, choice in enumerate(choices):
            self._require_allowed(i, choice)

    def _require_allowed(self, actor: int, choice: int) -> None:
        row = self.allowed[actor]
        count = len(row)
        chose = "got" if self.is_global else f"actor {actor} chose"
        if not is_index(choice, count):
            raise SchemaError(
                f"action {self.name!r}: {chose} {choice!r}, expected an integer "
                f"from 0 to {count - 1}"
            )
        if not row[choice]:
            allowed = [self.choices[i] for i in self.legal(actor)]
            raise SchemaError(
                f"action {self.name!r}: {chose} {self.choices[int(choice)]!r}, which "
                f"its mask forbids; allowed are {', '.join(allowed)}"
            )


def questions(
    observation: Observation, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> list[Question]:
    """The requested actions of an observation, in action space order.

    Raises:
        SchemaError: an action outside the space, a mask of the wrong type or shape, an actor or
            actee that was not observed, or an actor without a legal choice.
    """
    unknown = [name for name in observation.actions if name not in action_space]
    if unknown:
        raise SchemaError(
            f"action {unknown[0]!r} is not in the action space, which has "
            f"{', '.join(action_space) or 'none'}"
        )
    asked = [
        _question(name, space, observation, obs_space)
        for name, space in action_space.items()
        if name in observation.actions
    ]
    if any(each.space.given or is_nested(each.allowed) for each in asked):
        _require_choice_after({question.name: question for question in asked})
    return asked


def _require_choice_after(asked: Mapping[ActionName, Question]) -> None:
    """Raises `SchemaError` if an actor has no legal choice after a legal choice before.

    Also raises it if an action is requested of other actors than those on which it depends.
    """
    for question in asked.values():
        for other in question.space.given:
            actors = asked[other].actors if other in asked else ()
            if list(actors) != list(question.actors):
                raise other_actors(question.name, other, len(question.actors), len(actors))
        if not is_nested(question.allowed):
            continue
        before = asked[question.space.given[-1]] if question.space.given else None
        if before is None or isinstance(before.space, ContinuousActionSpace):
            shape = len(question.actors), len(question.choices)
            is_global = question.is_global
            nested_mask(
                question.allowed, shape, question.name, depends=False, is_global=is_global
            )  # raises
            continue
        for actor, rows in enumerate(question.allowed):
            if len(rows) != len(before.choices):
                raise wrong_num_earlier(question.name, len(before.choices), len(rows))
            for choice in before.legal(actor):
                if not any(rows[choice]):
                    raise no_choice_after(
                        question.name,
                        question.space,
                        actor if len(question.actors) > 1 else None,
                        before.space,
                        choice,
                    )


def other_actors(
    action: ActionName, before: ActionName, num_actors: int, num_before: int
) -> SchemaError:
    """Error for an action whose actors are not those of an action on which it depends."""
    return SchemaError(
        f"action {action!r} depends on {before!r}, so both must be requested of the same actors, "
        f"in the same order: {num_actors} actors of {action!r}, {num_before} of {before!r}"
    )


def wrong_num_earlier(action: ActionName, needed: int, found: int) -> SchemaError:
    """Error for a mask with another number of choices of the action on which it depends."""
    return SchemaError(
        f"the mask of action {action!r} needs {needed} rows, one for each choice of the action "
        f"before: got {found}"
    )


def no_choice_after(
    action: ActionName, space: ActionSpace, actor: int | None, before: ActionSpace, choice: int
) -> SchemaError:
    """Error for a mask that forbids everything after a legal choice of the action before.

    Args:
        actor: its index; None if the observation has only one, as for a global action.
        before: the space of that action.
    """
    labels = getattr(before, "index_to_label", None)
    words = f"target {choice}" if labels is None else repr(labels[choice])
    who = "there is" if actor is None else f"actor {actor} has"
    return SchemaError(
        f"action {action!r}: {who} no legal choice after {words} of "
        f"{space.given[-1]!r}: forbid that choice, or allow something after it"
    )


def choose_in_order(
    asked: Iterable[Question], choose: Callable[[Question], Sequence[Any] | NDArray[Any]]
) -> dict[ActionName, Action]:
    """The actions of an observation, each chosen after those on which it depends.

    Args:
        choose: the values of a question, one per actor, as in `VecActions`.

    Raises:
        SchemaError: a choice that is not allowed.
    """
    values: dict[ActionName, Any] = {}
    actions: dict[ActionName, Action] = {}
    for each in asked:
        question = each.after(values)
        values[each.name] = chosen = choose(question)
        actions[each.name] = question.action(chosen)
    return actions


def chosen_values(
    asked: Iterable[Question], actions: Mapping[ActionName, Action]
) -> dict[ActionName, list[Any]]:
    """The values of all actions, one per actor, see `Question.chosen`, which also says the errors.

    Checks each action with the mask that follows from the others.
    """
    values: dict[ActionName, list[Any]] = {}
    for question in asked:
        values[question.name] = question.after(values).chosen(actions.get(question.name))
    return values


def random_action(question: Question, rng: np.random.Generator) -> Action:
    """A legal action, drawn uniformly.

    Raises:
        SchemaError: its mask depends on an earlier action: use `random_answers` for all questions.
    """
    return question.action(_random_values(question, rng))


def random_answers(asked: Iterable[Question], rng: np.random.Generator) -> dict[ActionName, Action]:
    """A legal action for every question, each part drawn uniformly after those before it."""
    return choose_in_order(asked, lambda question: _random_values(question, rng))


def _random_values(question: Question, rng: np.random.Generator) -> Sequence[Any] | NDArray[Any]:
    if isinstance(question.space, ContinuousActionSpace):
        shape = (len(question.actors), len(question.space))
        return rng.uniform(question.space.low, question.space.high, size=shape)
    if is_nested(question.allowed):
        raise SchemaError(
            f"the mask of action {question.name!r} depends on {question.space.given[-1]!r}: "
            "choose that first, then call question.after"
        )
    return [int(rng.choice(np.flatnonzero(row))) for row in question.allowed]


def actions_of(
    name: ActionName,
    space: ActionSpace,
    asked: Sequence[Asked],
    values: Sequence[Any] | NDArray[Any],
) -> Iterator[Action]:
    """The actions with these values, one per row of `asked`."""
    require_one_an_actor(name, asked, values)
    actors = [each for _, each, _ in asked]
    match space:
        case GlobalCategoricalActionSpace():
            chosen = list(map(int, values))
            labels = space.index_to_label
            made = {i: GlobalCategoricalAction(i, labels[i]) for i in set(chosen)}
            return map(made.__getitem__, chosen)  # immutable: may be shared
        case CategoricalActionSpace():
            indices = shares(actors, np.asarray(values, dtype=np.int64))
            return map(CategoricalAction, actors, indices, repeat(space.index_to_label))
        case SelectEntityActionSpace():
            return map(SelectEntityAction, actors, selected(asked, values))
        case ContinuousActionSpace():
            numbers = np.asarray(values, dtype=np.float32).reshape(-1, len(space))
            return map(ContinuousAction, actors, shares(actors, numbers))


def require_one_an_actor(
    name: ActionName, asked: Sequence[Asked], values: Sequence[Any] | NDArray[Any]
) -> None:
    """Raises `SchemaError` unless each actor has one value."""
    num_actors = sum([len(actors) for _, actors, _ in asked])
    if len(values) != num_actors:
        raise SchemaError(
            f"action {name!r} needs {num_actors} values, one per actor: got {len(values)}"
        )


def shares(actors: Sequence[Sequence[EntityID]], values: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """Splits values, one per actor, into one view per row."""
    counts = list(map(len, actors))
    if len(set(counts)) == 1:
        return values.reshape(len(counts), counts[0], *values.shape[1:])
    stops = list(accumulate(counts))
    return [values[stop - count : stop] for count, stop in zip(counts, stops, strict=True)]


def selected(
    asked: Sequence[Asked], values: Sequence[int] | NDArray[Any]
) -> Iterator[list[EntityID]]:
    """Ids of the selected actees for each row, given their positions."""
    chosen = map(int, values)
    for _, actors, actees in asked:
        if len(actors) == 1:
            yield [actees[next(chosen)]]
        else:
            yield [actees[i] for i in islice(chosen, len(actors))]


def require_in_bounds(
    name: ActionName, space: ContinuousActionSpace, values: Sequence[Any] | NDArray[Any]
) -> None:
    """Raises `SchemaError` unless `(num_actors, num_labels)` real numbers are within the bounds."""
    if not len(values):
        return
    shape = shape_of(values)
    if shape is None:
        raise SchemaError(
            f"action {name!r} needs numbers of the shape (num_actors, {len(space)}), got "
            f"{shown(values)}"
        )
    if len(shape) != 2 or shape[1] != len(space):
        raise SchemaError(
            f"action {name!r} needs the shape (num_actors, {len(space)}), got {shape}"
        )
    # Also allow each bound as a float32, since rounding can move a clipped value past the bound.
    low = list(map(min, space.low, array("f", space.low)))
    high = list(map(max, space.high, array("f", space.high)))
    if is_array(values) and values.dtype.kind in "iuf" and _is_inside(values, low, high):
        return
    for actor, row in enumerate(values):
        for i, value in enumerate(row):
            if not is_number(value):
                raise SchemaError(f"action {name!r} needs numbers, got {shown(value)}")
            if not low[i] <= float(value) <= high[i]:
                raise SchemaError(
                    f"action {name!r}: actor {actor} chose {float(value)} for {space.labels[i]!r}, "
                    f"expected {space.low[i]} to {space.high[i]}"
                )


def _is_inside(values: NDArray[Any], low: Sequence[float], high: Sequence[float]) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def _question(
    name: ActionName,
    space: ActionSpace,
    observation: Observation,
    obs_space: ObsSpace,
) -> Question:
    mask = observation.actions[name]
    if not isinstance(mask, MASK_OF_SPACE[type(space)]):
        raise SchemaError(
            f"action {name!r} needs a {MASK_OF_SPACE[type(space)].__name__}, "
            f"got a {type(mask).__name__}"
        )
    actees: list[EntityID] = []
    actors: list[EntityID] = [*GLOBAL_ACTORS]
    if not isinstance(mask, GlobalCategoricalActionMask):
        actors = observation.actor_ids(name, obs_space)
    elif observation.ids:
        observation.entity_ids(obs_space)  # raises if the number of ids is wrong
    if isinstance(mask, SelectEntityActionMask):
        actees = observation.actee_ids(name, obs_space)
        num_choices = len(actees)
        if actors and not actees:
            raise SchemaError(
                f"action {name!r}: {len(actors)} actors have no legal choice, since no entity can "
                "be selected: request the action only if there is one"
            )
    else:
        num_choices = len(space)  # type: ignore[arg-type]  # only select spaces have no length
    given = getattr(mask, "mask", None)
    shape = (len(actors), num_choices)
    if isinstance(observation, PlainObservation):
        rows: Any = [[True] * num_choices for _ in actors] if given is None else given
        return Question(name, space, actors, actees, rows)
    if given is None:
        return Question(name, space, actors, actees, np.ones(shape, dtype=np.bool_))
    is_global = isinstance(mask, GlobalCategoricalActionMask)
    allowed = nested_mask(given, shape, name, is_global=is_global)
    return Question(name, space, actors, actees, allowed)
