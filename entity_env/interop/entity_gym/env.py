"""environment: a class of `entity_gym.env.Environment` that plays a game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import entity_gym.env as theirs
import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.core.observation import EntityID
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.entity_gym.spaces import (
    action_grids,
    their_action_space,
    their_obs_space,
)
from entity_env.interop.entity_gym.vec_env import on_grid
from entity_env.vec import VecEnv
from entity_env.vec.options import Source


def environment(source: Source, *, discretize: Mapping[ActionName, int] | None = None) -> type[Any]:
    """A new subclass of `entity_gym.env.Environment` that plays a game.

    Its constructor takes the `seed` of the run; None = a random one. The id of an entity is its
    index in the observation. The last observation of an episode has `done`, also if the episode was
    truncated.

    Args:
        source: a game for one agent, a class of environments, or a function that returns one.
        discretize: as for `vec_env`.

    Raises:
        SchemaError: an invalid source; from the constructor, a continuous action that is not in
            `discretize`.
        UsageError: a game for several agents, which `vec_env` supports.
    """
    if isinstance(source, Game) and source.num_agents > 1:
        raise UsageError(
            f"an environment of entity-gym has one agent, {source.name} has {source.num_agents}: "
            "use vec_env"
        )
    if not callable(source) and not isinstance(source, Game):
        raise SchemaError(
            "environment needs a Game, an Environment class, or a function that returns an "
            f"Environment: got {source!r}"
        )

    class OurGame(EntityGymEnvironment):
        def __init__(self, seed: int | None = None) -> None:
            super().__init__(source, seed, discretize)

    OurGame.__doc__ = f"{_name_of(source)}, as an environment of entity-gym."
    return OurGame


class EntityGymEnvironment(theirs.Environment):  # type: ignore[misc]  # entity-gym ships no types
    """One copy of a game as an `entity_gym.env.Environment`; arguments as for `environment`."""

    def __init__(
        self, source: Source, seed: int | None, discretize: Mapping[ActionName, int] | None
    ) -> None:
        seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        self._vec = VecEnv(source, 1, seed=seed, autoreset="disabled")
        try:
            self._actions = self._vec.action_space()
            self._grids = action_grids(self._actions, discretize)
        except BaseException:
            self._vec.close()
            raise
        self._shown: VecObs | None = None

    def obs_space(self) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """An `entity_gym.env.ObsSpace`."""
        return their_obs_space(self._vec.obs_space())

    def action_space(self) -> dict[ActionName, Any]:
        """Action spaces of entity-gym; discretized ones are categorical."""
        return their_action_space(self._actions, self._grids)

    def reset(self) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """Begins the next episode and returns its first observation."""
        self._shown = self._vec.reset()
        return self._their_observation(self._shown)

    def act(self, actions: Mapping[ActionName, Any]) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """Performs the actions and returns the next observation."""
        if self._shown is None:
            raise ProtocolError("nothing is being played: call reset first")
        unknown = [name for name in actions if name not in self._actions]
        if unknown:
            raise SchemaError(f"no action {unknown[0]!r}; there are {', '.join(self._actions)}")
        chosen = {
            name: self._chosen(name, action, self._shown.action_masks[name])
            for name, action in actions.items()
        }
        self._shown = self._vec.act(chosen)
        return self._their_observation(self._shown)

    def render(self, **kwargs: object) -> NDArray[np.uint8]:
        """An image of the game, `(height, width, 3)` uint8."""
        return self._vec.render()

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._vec.close()

    def _their_observation(self, obs: VecObs) -> Any:  # noqa: ANN401 - entity-gym ships no types
        features = {
            name: np.array(rows.values, dtype=np.float32)
            for name, rows in obs.features.items()
            if name != GLOBAL_ENTITY
        }
        stops = list(accumulate(map(len, features.values())))
        ids = {
            name: list(range(stop - len(rows), stop))
            for (name, rows), stop in zip(features.items(), stops, strict=True)
        }
        common = obs.features.get(GLOBAL_ENTITY)
        num_globals = len(self._vec.obs_space().global_features)
        shown = np.zeros(num_globals, dtype=np.float32)
        if common is not None and common.values.size:
            shown[:] = common.values[0]
        return theirs.Observation(
            features=features,
            ids=ids,
            global_features=shown,
            actions={name: self._their_mask(name, each) for name, each in obs.action_masks.items()},
            reward=float(obs.reward[0]),
            done=bool(obs.done[0]),
            visible={
                name: np.array(flags.values, dtype=np.bool_) for name, flags in obs.visible.items()
            },
            metrics={name: metric.mean for name, metric in obs.metrics.items()},
        )

    def _their_mask(self, name: ActionName, mask: VecActionMask) -> Any:  # noqa: ANN401 - entity-gym ships no types
        actors = mask.actors.values.tolist()
        space = self._actions[name]
        if isinstance(mask, VecSelectEntityActionMask):
            allowed = None
            if mask.mask is not None:
                allowed = np.array(mask.mask.values, dtype=np.bool_).reshape(len(actors), -1)
            return theirs.SelectEntityActionMask(
                actor_ids=actors, actee_ids=mask.actees.values.tolist(), mask=allowed
            )
        rows: NDArray[np.bool_] | None = None
        if isinstance(mask, VecCategoricalActionMask) and mask.mask is not None and actors:
            rows = np.array(mask.mask.values, dtype=np.bool_).reshape(len(actors), -1)
        if isinstance(space, GlobalCategoricalActionSpace):
            return theirs.GlobalCategoricalActionMask(rows)
        return theirs.CategoricalActionMask(actor_ids=actors, mask=rows)

    def _chosen(
        self,
        name: ActionName,
        action: Any,  # noqa: ANN401 - entity-gym ships no types
        mask: VecActionMask,
    ) -> RaggedArray[Any]:
        """One value per actor, in the order of the mask."""
        space = self._actions[name]
        actors = mask.actors.values.tolist()
        if isinstance(space, GlobalCategoricalActionSpace):
            values = np.full(len(actors), action.index, dtype=np.int64)
            return RaggedArray(values, [len(actors)])
        if isinstance(space, SelectEntityActionSpace) and isinstance(
            mask, VecSelectEntityActionMask
        ):
            place = {each: i for i, each in enumerate(mask.actees.values.tolist())}
            picks = [place.get(actee, -1) for actee in action.actees]
        else:
            picks = np.asarray(action.indices, dtype=np.int64).reshape(-1).tolist()
        indices = _in_order(name, action.actors, picks, actors)
        if name in self._grids:
            return RaggedArray(on_grid(name, indices, self._grids[name]), [len(actors)])
        return RaggedArray(indices, [len(actors)])


def _in_order(
    name: ActionName, given: Sequence[EntityID], picks: Sequence[int], actors: Sequence[int]
) -> NDArray[np.int64]:
    """The choice of each actor, in the order of the mask."""
    if len(given) != len(picks) or set(given) != set(actors):
        raise SchemaError(
            f"action {name!r} needs one choice of each actor {list(actors)}: got "
            f"{len(picks)} of {list(given)}"
        )
    choice = dict(zip(given, picks, strict=True))
    return np.array([choice[actor] for actor in actors], dtype=np.int64)


def _name_of(source: object) -> str:
    return str(getattr(source, "name", None) or getattr(source, "__name__", "A game"))
