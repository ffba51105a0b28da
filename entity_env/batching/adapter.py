"""`Adapter`: converters with which batches step another package's environments directly."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from entity_env.core.action_request import actions_of
from entity_env.core.environment import Environment
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import EntityName


@dataclass(frozen=True)
class Adapter:
    """Converters between one package's observations and actions and those of this package.

    An observation of that package needs the attributes of `Observation`, but `done` may replace
    `terminated` and `truncated`. A mask needs the attributes of the type to which `masks` maps it.

    Args:
        observation: converts an observation to an `Observation`.
        flags: returns `(terminated, truncated)` of the last observation of an episode.
        masks: maps the mask types of that package to those of this package.
        actions: creates actions of that package; arguments as for `actions_of`.
        type_named: takes, for each observation, the ids of the actors (or actees), and the ids of
            all entities by type. Returns the one type whose ids equal those of the actors (or
            actees) in every observation. None if no type or several types match, or if the
            adapter never searches; observations are then added to the batch one by one.
    """

    observation: Callable[[Any], Observation]
    flags: Callable[[Any], tuple[bool, bool]]
    masks: Mapping[type, type[ActionMask]]
    actions: Callable[..., Iterator[Any]]
    type_named: Callable[
        [Sequence[Sequence[EntityID]], Sequence[Mapping[EntityName, Sequence[EntityID]]]],
        EntityName | None,
    ]


class AdaptedEnvironment(Environment):
    """An `Environment` that wraps an environment of another package."""

    @property
    @abstractmethod
    def adapter(self) -> Adapter:
        """The adapter of that package."""

    @property
    @abstractmethod
    def game(self) -> Any:  # noqa: ANN401 - a class of that package
        """The wrapped environment; it has `reset` and `act`."""


def _no_type(*_: object) -> None:
    """Always None, so `ObservationBatcher` looks up each id."""


_KINDS: Final = (CategoricalActionMask, GlobalCategoricalActionMask, SelectEntityActionMask)

OURS: Final = Adapter(
    observation=lambda observation: observation,
    flags=attrgetter("terminated", "truncated"),
    masks={kind: kind for kind in _KINDS},
    actions=actions_of,
    type_named=_no_type,
)
"""Adapter for environments of this package; it changes nothing."""


def unwrap_all(envs: Sequence[Environment]) -> tuple[Sequence[Any], Adapter]:
    """The objects to step, and their adapter.

    Returns the wrapped environments and their adapter if all share one adapter, other than `OURS`,
    and have equal action spaces; otherwise returns `envs` and `OURS`.
    """
    adapters = [env.adapter if isinstance(env, AdaptedEnvironment) else OURS for env in envs]
    first = envs[0].action_space()
    if any(each is not adapters[0] for each in adapters) or adapters[0] is OURS:
        return envs, OURS
    if any(env.action_space() != first for env in envs):  # `actions` takes only one space
        return envs, OURS
    return [env.game for env in envs if isinstance(env, AdaptedEnvironment)], adapters[0]
