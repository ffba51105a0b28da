"""An environment of ours that uses every option of the network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from entity_env import (
    Action,
    ActionMask,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)

PLACE = ["x", "y", "cos", "sin", "angle"]


class Sky(Environment):
    """Ships turn and choose a ship or rock to follow, around one base.

    All positions change in every step; an episode has five steps.
    """

    common: tuple[str, ...] = ()
    has_global = False
    hides = True

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.step = 0

    def obs_space(self) -> ObsSpace:
        kinds = {"Rock": PLACE, "Base": PLACE, "Ship": [*PLACE, "fuel"]}
        return ObsSpace(self.common, {name: Entity(each) for name, each in kinds.items()})

    def action_space(self) -> Mapping[str, ActionSpace]:
        actions: dict[str, ActionSpace] = {
            "turn": CategoricalActionSpace(["left", "right", "on"]),
            "follow": SelectEntityActionSpace(),
        }
        if self.has_global:
            actions["signal"] = GlobalCategoricalActionSpace(["red", "green"])
        return actions

    def reset(self, *, seed: int | None = None) -> Observation:
        self.rng = np.random.default_rng(seed)
        self.step = 0
        return self.show()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        self.step += 1
        return self.show()

    def show(self) -> Observation:
        rng = self.rng
        num_rocks, num_ships = int(rng.integers(4)), int(rng.integers(1, 4))
        features = {
            name: self.places(count, len(entity.features))
            for (name, entity), count in zip(
                self.obs_space().entities.items(), (num_rocks, 1, num_ships), strict=True
            )
        }
        masks: dict[str, ActionMask] = {
            "turn": CategoricalActionMask(
                actor_types=["Ship"], mask=rng.random((num_ships, 3)) < [1.0, 0.5, 0.5]
            ),
            "follow": SelectEntityActionMask(
                actor_types=["Ship"], actee_types=["Rock", "Base", "Ship"]
            ),
        }
        if self.has_global:
            masks["signal"] = GlobalCategoricalActionMask()
        visible = rng.random(num_ships) < 0.5
        return Observation(
            reward=0.0,
            done=self.step == 5,
            features=features,
            global_features=rng.normal(size=len(self.common)).astype(np.float32),
            actions=masks,
            visible={"Ship": visible} if self.hides else {},
        )

    def places(self, count: int, width: int) -> np.ndarray:
        angle = self.rng.uniform(-3, 3, count)
        rows = [self.rng.normal(0, 3, count), self.rng.normal(0, 3, count), np.cos(angle)]
        rows += [np.sin(angle), angle, self.rng.random(count)]
        return np.stack(rows[:width], axis=1).astype(np.float32)


class Signals(Sky):
    """Sky with a global signal, and features shared by all types."""

    common: tuple[str, ...] = ("wind",)
    has_global = True


class Places(Signals):
    """Signals with a position for the signal, because relative positions need one everywhere."""

    common = tuple(PLACE)
