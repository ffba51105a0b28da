"""Outputs of rogue-net 0.1.9 for its own checkpoints, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import ObsBatch
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)
from tests import DATA as DATA_ROOT

DATA = DATA_ROOT / "roguenet"


@dataclass(frozen=True)
class Fixture:
    """A checkpoint of enn-trainer, and rogue-net's outputs for some observations."""

    name: str

    @property
    def path(self) -> Path:
        """The folder of the checkpoint."""
        return DATA / self.name

    @cached_property
    def weights(self) -> Weights:
        """The checkpoint as arrays."""
        return read_network(self.path)

    @property
    def obs_space(self) -> ObsSpace:
        return self.weights.obs_space

    @property
    def action_space(self) -> Mapping[str, ActionSpace]:
        return self.weights.action_space

    @property
    def config(self) -> RogueNetConfig:
        return self.weights.rogue_net_config()

    def net(self) -> RogueNet:
        """The network with the checkpoint's parameters."""
        return RogueNet.of(self.weights)

    def cases(self) -> list[Mapping[str, NDArray[np.float64]]]:
        """Inputs and outputs of one observation each."""
        with np.load(DATA / self.name / "outputs.npz") as arrays:
            keys = sorted(arrays.files)
            numbers = sorted({key.split("/", 1)[0] for key in keys})
            return [
                {key.split("/", 1)[1]: arrays[key] for key in keys if key.startswith(f"{n}/")}
                for n in numbers
            ]


FIXTURES = [
    Fixture(name)
    for name in (
        "trained_xor",
        "trained_cherrypick",
        "trained_multisnake",
        "made_d64_l2_h4",
        "made_relpos_grid",
        "made_relpos_polar",
        "made_translate",
    )
]
OPTIONS = [Fixture(path.name) for path in sorted(DATA.glob("options_*"))]
"""Small random networks, one for each option of rogue-net."""


def batch_of(fixture: Fixture, cases: list[Mapping[str, NDArray[np.float64]]]) -> ObsBatch:
    """Joins observations into one batch."""
    widths = entity_widths(fixture.obs_space, fixture.action_space)

    def rows(case: Mapping[str, NDArray[np.float64]], name: str) -> NDArray[np.float32]:
        key = "global" if name == "__global__" else f"features/{name}"
        count = 1 if key == "global" else len(case[key])
        return case[key].reshape(count, widths[name]).astype(np.float32)

    return ObsBatch(
        features={
            name: RaggedArray.from_rows([rows(case, name) for case in cases], np.float32)
            for name in widths
        },
        visible={
            name: RaggedArray.from_rows(
                [
                    case.get(f"visible/{name}", np.ones(len(case[f"features/{name}"]), np.bool_))
                    for case in cases
                ],
                np.bool_,
            )
            for name in fixture.obs_space.entities
            if any(f"visible/{name}" in case for case in cases)
        },
        action_masks={name: _mask(fixture, name, cases) for name in fixture.action_space},
    )


def _mask(
    fixture: Fixture, action: str, cases: list[Mapping[str, NDArray[np.float64]]]
) -> VecActionMask:
    actors = RaggedArray.from_rows([case[f"actors/{action}"] for case in cases], np.int64)
    masks: RaggedArray[np.bool_] | None = None
    if any(f"mask/{action}" in case for case in cases):
        everything = [np.ones_like(case[f"logprobs/{action}"], np.bool_) for case in cases]
        found = [
            case.get(f"mask/{action}", allowed)
            for case, allowed in zip(cases, everything, strict=True)
        ]
        if isinstance(fixture.action_space[action], SelectEntityActionSpace):
            found = [mask.reshape(-1) for mask in found]
        masks = RaggedArray.from_rows(found, np.bool_)
    if isinstance(fixture.action_space[action], SelectEntityActionSpace):
        actees = RaggedArray.from_rows([case[f"actees/{action}"] for case in cases], np.int64)
        return VecSelectEntityActionMask(actors, actees, masks)
    return VecCategoricalActionMask(actors, masks)
