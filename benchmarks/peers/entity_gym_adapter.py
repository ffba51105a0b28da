"""entity-gym's own MultiSnake, unchanged, as one of our environments.

Runs only in the peers' environment, with our package on the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import entity_gym.env as theirs

from benchmarks.peers import ours
from benchmarks.peers.entity_gym_lists import make_snake
from benchmarks.peers.stepper import Stepper
from entity_env import (
    Action,
    ActionSpace,
    CategoricalAction,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Environment,
    Observation,
    ObsSpace,
)


def snake_as_ours(num_envs: int) -> Stepper:
    """entity-gym's MultiSnake in our `VecEnv`, with two workers."""
    return ours.stepper(SnakeAsOurs, num_envs, 2)


class SnakeAsOurs(Environment):
    """entity-gym's MultiSnake with its rows, ids and masks converted to our types."""

    def __init__(self) -> None:
        self._snake: Any = make_snake()
        self._labels: list[str] = self._snake.action_space()["move"].index_to_label

    def obs_space(self) -> ObsSpace:
        space = self._snake.obs_space()
        entities = {name: Entity(entity.features) for name, entity in space.entities.items()}
        return ObsSpace(space.global_features, entities)

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"move": CategoricalActionSpace(self._labels)}

    def reset(self, *, seed: int | None = None) -> Observation:
        return _observation(self._snake.reset())

    def act(self, actions: Mapping[str, Action]) -> Observation:
        move = actions["move"]
        if not isinstance(move, CategoricalAction):
            raise TypeError(f"move needs a CategoricalAction, got {move!r}")
        action = theirs.CategoricalAction(move.actors, move.indices, self._labels)
        return _observation(self._snake.act({"move": action}))


def _observation(shown: Any) -> Observation:  # noqa: ANN401 - entity_gym ships no types
    return Observation(
        reward=shown.reward,
        done=shown.done,
        global_features=shown.global_features,
        features=shown.features,
        ids=shown.ids,
        actions={
            name: CategoricalActionMask(mask.actor_ids, mask.actor_types, mask.mask)
            for name, mask in shown.actions.items()
        },
    )
