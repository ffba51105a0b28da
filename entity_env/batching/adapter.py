"""Dialect: how environments of another package are stepped and read as they are, many at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from entity_env.core.action_request import legal_actions
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
class Dialect:
    """What a package shows and is told.

    Its observations have the attributes of `Observation`, save for the flags, of which only `done`
    must be there. Its masks have the attributes of the masks that they stand for.

    Args:
        observation: makes an `Observation` of one of its observations.
        flags: `terminated` and `truncated` of the last observation of an episode.
        masks: its types of masks, and ours that they stand for.
        actions: makes its actions, as `legal_actions` makes ours.
        type_named: the one type whose entities are the actors (or actees) of every observation,
            given the ids of both; None = some observation names others, or names them twice.
    """

    observation: Callable[[Any], Observation]
    flags: Callable[[Any], tuple[bool, bool]]
    masks: Mapping[type, type[ActionMask]]
    actions: Callable[..., Iterator[Any]]
    type_named: Callable[
        [Sequence[Sequence[EntityID]], Sequence[Mapping[EntityName, Sequence[EntityID]]]],
        EntityName | None,
    ]


class ForeignEnvironment(Environment):
    """Stands for an environment of another package, and shows and does just what that does."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """How to speak with it."""

    @property
    @abstractmethod
    def game(self) -> Any:  # noqa: ANN401 - whatever that package has
        """The environment; it has `reset` and `act`."""


def _same(observation: Observation) -> Observation:
    return observation


def _nobody(*_: object) -> None:
    """Ids are looked up one by one."""


_KINDS: Final = (CategoricalActionMask, GlobalCategoricalActionMask, SelectEntityActionMask)

OURS: Final = Dialect(
    observation=_same,
    flags=attrgetter("terminated", "truncated"),
    masks={kind: kind for kind in _KINDS},
    actions=legal_actions,
    type_named=_nobody,
)
"""Of every `Environment`."""


def games_of(envs: Sequence[Environment]) -> tuple[Sequence[Any], Dialect]:
    """What is stepped, and how to speak with it: the environments, or those they all stand for."""
    dialects = [env.dialect if isinstance(env, ForeignEnvironment) else OURS for env in envs]
    first = envs[0].action_space()
    if any(each is not dialects[0] for each in dialects) or dialects[0] is OURS:
        return envs, OURS
    if any(env.action_space() != first for env in envs):  # labels are told with every action
        return envs, OURS
    return [env.game for env in envs if isinstance(env, ForeignEnvironment)], dialects[0]
