"""Room for entities and actors, checked or measured in random episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents import random_actions
from entity_env.core.spaces import GLOBAL_ENTITY
from entity_env.core.vec_obs import VecObs
from entity_env.episodes.episode_env import ResettableVec
from entity_env.errors import SchemaError
from entity_env.interop.gymnasium.padded import IllegalActions, PaddedActions, PaddedEntities

Room: TypeAlias = Mapping[str, int] | Literal["auto"]
"""Maximum numbers by name, or "auto" to measure them."""

Range: TypeAlias = tuple[int, int]
"""Smallest and largest number."""

_MIN_ROOM: Final = 8


def padded(
    vec: ResettableVec,
    begin: Callable[[], VecObs],
    max_entities: Room | None,
    max_actors: Room | None,
    illegal: IllegalActions,
) -> tuple[PaddedEntities, PaddedActions, VecObs]:
    """Converters for a vector environment, and its first observations.

    Args:
        vec: the environments; they may be reset and stepped at random to count.
        begin: resets the environments; returns their first observations.
        max_entities, max_actors, illegal: as for `GameEnv`.

    Raises:
        SchemaError: a number without a given maximum varies, or a maximum is too small.
        UsageError: an unknown name, or a setting that is neither numbers nor "auto".
    """
    most_entities, most_actors = measured(vec, max_entities, max_actors)
    first = begin()
    obs_space = vec.obs_space()
    entities = PaddedEntities(obs_space, first, most_entities)
    actions = PaddedActions(vec.action_space(), entities, first, most_actors, illegal)
    if all(entity.is_single for entity in obs_space.entities.values()):
        return entities, actions, first
    fixed = [name for name in entities.fixed if not obs_space.entities[name].is_single]
    acting = {name: most for name, most in actions.capacities.items() if name not in most_actors}
    if fixed or acting:
        counts = play_at_random(vec, num_episodes=4, num_steps=16)
        for name in fixed:
            _require_fixed(name, "entities of type", counts.entities.get(name), "max_entities")
        for name, most in acting.items():
            low, high = counts.actors.get(name, (0, 0))
            if high > most:
                _require_fixed(name, "actors of action", (min(low, most), high), "max_actors")
        first = begin()
    return entities, actions, first


def _require_fixed(name: str, what: str, found: Range | None, setting: str) -> None:
    if found is not None and found[0] != found[1]:
        raise SchemaError(
            f"the number of {what} {name!r} varies, {found[0]} to {found[1]} in random episodes: "
            f'give the largest number, {setting}={{{name!r}: ...}}, or {setting}="auto"'
        )


def measured(
    vec: ResettableVec, max_entities: Room | None, max_actors: Room | None
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Both settings with numbers in place of "auto": twice the largest number in random play, at
    least 8.

    With "auto", a type whose number did not vary gets no maximum, and so no mask. Without
    `max_entities`, the game's own numbers are used. The caller must reset `vec` afterward.
    """
    if max_entities is None:
        max_entities = getattr(getattr(vec, "game", None), "max_entities", {})
    entities, actors = max_entities or {}, max_actors or {}
    if entities == "auto" or actors == "auto":
        counts = play_at_random(vec, num_episodes=8, num_steps=128)
        if entities == "auto":
            entities = _room(counts.entities)
        if actors == "auto":
            actors = _room(counts.actors)
    return entities, actors


def _room(found: Mapping[str, Range]) -> dict[str, int]:
    return {name: max(2 * high, _MIN_ROOM) for name, (low, high) in found.items() if low != high}


@dataclass(frozen=True)
class Counts:
    """Observed numbers of entities by type, and of actors by action."""

    entities: dict[str, Range] = field(default_factory=dict)
    actors: dict[str, Range] = field(default_factory=dict)

    def add(self, obs: VecObs) -> None:
        """Adds the numbers in a batch, except zeros of actors, and of agents that are not asked."""
        for name, rows in obs.features.items():
            if name != GLOBAL_ENTITY:
                _widen(self.entities, name, rows.lengths[obs.is_ready | (rows.lengths > 0)])
        for name, mask in obs.action_masks.items():
            _widen(self.actors, name, mask.actors.lengths[mask.actors.lengths > 0])


def _widen(found: dict[str, Range], name: str, counts: NDArray[np.int64]) -> None:
    if len(counts):
        low, high = found.get(name, (int(counts[0]), 0))
        found[name] = min(low, int(counts.min())), max(high, int(counts.max()))


def play_at_random(vec: ResettableVec, num_episodes: int, num_steps: int) -> Counts:
    """Counts in `num_steps` random steps from each of at least `num_episodes` starts;
    deterministic."""
    counts, rng, action_space = Counts(), np.random.default_rng(0), vec.action_space()
    for seed in range(-(-num_episodes // vec.num_envs)):
        obs = vec.reset(seed=seed)
        counts.add(obs)
        for _ in range(num_steps):
            is_over = ~np.any(obs.is_ready.reshape(vec.num_envs, -1), axis=1)
            if vec.autoreset == "disabled" and is_over.any():
                obs = vec.reset_envs(is_over)
            else:
                obs = vec.act(random_actions(obs, action_space, rng))
            counts.add(obs)
            if obs.final is not None:
                counts.add(obs.final)
    return counts
