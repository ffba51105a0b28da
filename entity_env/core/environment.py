"""Environment: a game stepped from outside. Names are those of entity-gym."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from entity_env.core.observation import Action, Features, Observation
from entity_env.core.spaces import ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.errors import SchemaError
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Environment(ABC):
    """A game stepped from outside: `reset`, then `act` until an observation is `done`.

    An environment written for entity-gym works once its import line is changed. Its `reset` may
    keep its signature, without `seed`.
    """

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """Observation space; identical on every call."""

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Action space by action name; identical on every call."""

    @abstractmethod
    def reset(self, *, seed: int | None = None) -> Observation:
        """Starts a new episode, whatever the current state, and returns its first observation.

        Args:
            seed: makes the episode reproducible; None continues the environment's own random
                stream. A class may define `reset` without this parameter, but then its episodes are
                not reproducible, and `EpisodeEnv.reset_with_index` refuses the environment.
        """

    @abstractmethod
    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        """Performs the actions requested by the last observation and returns the next one.

        After an observation that was `done`, call `reset` first: otherwise an environment raises
        `ProtocolError`, or returns another `done` observation.
        """

    def render(self) -> NDArray[np.uint8]:
        """Draws the state as `(height, width, 3)` uint8; NotImplementedError if unsupported."""
        raise NotImplementedError(f"{type(self).__name__} has no render()")

    def close(self) -> None:
        """Releases what the environment holds; may be called twice."""

    def reset_filter(self, obs_filter: ObsSpace) -> Observation:
        """Like `reset`, but returns only the entities and features named in `obs_filter`."""
        return filter_observation(self.reset(), self.obs_space(), obs_filter)

    def act_filter(self, actions: Mapping[ActionName, Action], obs_filter: ObsSpace) -> Observation:
        """Like `act`, filtered as in `reset_filter`."""
        return filter_observation(self.act(actions), self.obs_space(), obs_filter)


def filter_observation(
    observation: Observation, obs_space: ObsSpace, obs_filter: ObsSpace
) -> Observation:
    """A copy with only the entities and features that `obs_filter` names, in the filter's order.

    Action masks, reward and flags are unchanged.

    Raises:
        SchemaError: `obs_filter` names an entity or feature that `obs_space` does not have.
    """
    features: dict[EntityName, Features] = {}
    for name, wanted in obs_filter.entities.items():
        if name not in obs_space.entities:
            raise SchemaError(
                f"the filter names entity {name!r}, expected one of {', '.join(obs_space.entities)}"
            )
        columns = _columns(wanted.features, obs_space.entities[name].features, f"entity {name!r}")
        if name in observation.features:
            rows = observation.features[name]
            shape = (len(rows), len(obs_space.entities[name].features))
            features[name] = np.asarray(rows, dtype=np.float32).reshape(shape)[:, columns]
    columns = _columns(obs_filter.global_features, obs_space.global_features, "the globals")
    return Observation(
        reward=observation.reward,
        terminated=observation.terminated,
        truncated=observation.truncated,
        global_features=np.asarray(observation.global_features, dtype=np.float32)[columns],
        features=features,
        ids={name: ids for name, ids in observation.ids.items() if name in features},
        actions=observation.actions,
        visible={name: seen for name, seen in observation.visible.items() if name in features},
        metrics=observation.metrics,
    )


def _columns(wanted: Sequence[str], present: Sequence[str], where: str) -> list[int]:
    names, available = list(wanted), list(present)
    missing = [name for name in names if name not in available]
    if missing:
        raise SchemaError(
            f"the filter names feature {missing[0]!r} of {where}, which has {available}"
        )
    return [available.index(name) for name in names]
