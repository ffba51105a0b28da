"""Differences of two games in sentences, for a network that comes from one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
    Spaces,
)

NO_EFFECT: Final = "no effect at first"
_LIKE_OTHERS: Final = "seen as the mean of the others at first"


def space_changes(old: Spaces, new: Spaces) -> list[str]:
    """Additions, removals and other changes, one sentence each."""
    (old_obs, old_actions), (new_obs, new_actions) = old, new
    spaces = old_obs, new_obs
    shared = NameChanges(old_obs.global_features, new_obs.global_features)
    relations = NameChanges([*old_obs.relations], [*new_obs.relations])
    entities = NameChanges(
        *([name for name in each.entities if name not in each.relations] for each in spaces)
    )
    actions = NameChanges([*old_actions], [*new_actions])
    return [
        *shared.sentences("global feature {}", "the global features", NO_EFFECT),
        *entities.sentences("entity {}", "the entities", _LIKE_OTHERS),
        *relations.sentences(
            "relation {}", "the relations", _LIKE_OTHERS if old_obs.relations else NO_EFFECT
        ),
        *chain.from_iterable(
            NameChanges(old_obs.entities[name].features, new_obs.entities[name].features).sentences(
                f"feature {name}.{{}}", f"the features of {name}", NO_EFFECT
            )
            for name in (*entities.kept, *relations.kept)
        ),
        *actions.sentences("action {}", "the actions", "starts untrained"),
        *chain.from_iterable(
            _action_changes(name, old_actions[name], new_actions[name]) for name in actions.kept
        ),
        *_global_entity_changes(old_actions, new_actions),
    ]


def rename_hint(old: Spaces, new: Spaces) -> str:
    """How to give a network the game's new names, if it seems that only names have changed.

    They seem to have if one name is gone where another one is new; "" otherwise.
    """
    (old_obs, old_actions), (new_obs, new_actions) = old, new
    both = [
        (old_obs.global_features, new_obs.global_features),
        ([*old_obs.entities], [*new_obs.entities]),
        ([*old_actions], [*new_actions]),
    ]
    entities, actions = new_obs.entities.keys(), new_actions.keys()
    both += [
        (old_obs.entities[name].features, new_obs.entities[name].features)
        for name in old_obs.entities.keys() & entities
    ]
    both += [
        (labels_of(old_actions[name]), labels_of(new_actions[name]))
        for name in old_actions.keys() & actions
    ]
    pairs: dict[str, str] = {}
    for before, after in both:
        found = NameChanges(before, after)
        if len(found.gone) == len(found.added) == 1:
            pairs[found.gone[0]] = found.added[0]
    if not pairs:
        return ""
    words = " ".join(f"--rename {theirs}={ours}" for theirs, ours in sorted(pairs.items()))
    return f"if only names have changed: {words} (in Python names={dict(sorted(pairs.items()))})"


class NameChanges:
    """Names or columns in the old game and in the new one."""

    def __init__(self, old: Sequence[Any], new: Sequence[Any]) -> None:
        before, after = set(old), set(new)
        self.old, self.new = old, new
        self.kept = [name for name in new if name in before]
        self.added = [name for name in new if name not in before]
        self.gone = [name for name in old if name not in after]

    @property
    def source(self) -> list[int]:
        """Index of each new name among the old names; -1 = added."""
        place = {name: i for i, name in enumerate(self.old)}
        return [place.get(name, -1) for name in self.new]

    def sentences(self, one: str, all_of_them: str, of_new: str) -> Iterator[str]:
        yield from (f"{one.format(name)} is new: {of_new}" for name in self.added)
        yield from (f"{one.format(name)} is gone: dropped" for name in self.gone)
        if self.kept != [name for name in self.old if name in set(self.new)]:
            yield f"{all_of_them} are in a different order: matched by name"


def _action_changes(name: ActionName, old: ActionSpace, new: ActionSpace) -> Iterator[str]:
    if not is_same_kind(old, new):
        yield f"action {name} has a different kind: starts untrained"
        return
    continuous = isinstance(new, ContinuousActionSpace)
    one = "number" if continuous else "choice"
    labels = NameChanges(labels_of(old), labels_of(new))
    yield from labels.sentences(
        f"{one} {{}} of {name}",
        f"the {one}s of {name}",
        "starts untrained" if continuous else "starts as likely as the others are on average",
    )
    earlier = NameChanges(old.given, new.given)
    yield from earlier.sentences(
        f"the dependence of {name} on {{}}", f"the actions on which {name} depends", NO_EFFECT
    )
    if isinstance(old, ContinuousActionSpace) and isinstance(new, ContinuousActionSpace):
        yield from (
            f"{name}.{label} is from {new.low[i]:g} to {new.high[i]:g}, was from {old.low[at]:g} "
            f"to {old.high[at]:g}: the same numbers are drawn, within the new bounds"
            for i, (label, at) in enumerate(zip(labels.new, labels.source, strict=True))
            if at >= 0 and (new.low[i], new.high[i]) != (old.low[at], old.high[at])
        )


def _global_entity_changes(
    old: Mapping[ActionName, ActionSpace], new: Mapping[ActionName, ActionSpace]
) -> Iterator[str]:
    before, after = (
        any(isinstance(each, GlobalCategoricalActionSpace) for each in spaces.values())
        for spaces in (old, new)
    )
    if before != after:
        yield (
            f"actions for the whole observation are {'new' if after else 'gone'}, so entities "
            f"{'now' if after else 'no longer'} see their actor as one more entity: known behavior "
            "changes, too"
        )


def is_same_kind(old: ActionSpace, new: ActionSpace) -> bool:
    """True if both actions have choices, numbers or entities to select, for actors or not."""
    return type(old) is type(new)


def labels_of(space: ActionSpace) -> Sequence[str]:
    """Names of choices or numbers; empty if entities are selected."""
    if isinstance(space, SelectEntityActionSpace):
        return ()
    return space.labels if isinstance(space, ContinuousActionSpace) else space.index_to_label
