"""Outputs of rogue-net 0.1.9 for its own checkpoints, and the parameters they belong to."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.layout import ObsBatch
from entity_env.agents.rogue_net.torch_net import RogueNet
from entity_env.ragged import RaggedArray
from entity_env.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.vec_obs import VecActionMask, VecCategoricalActionMask, VecSelectEntityActionMask

DATA = Path(__file__).parent / "data" / "roguenet"


@dataclass(frozen=True)
class Fixture:
    """A checkpoint's spaces and size."""

    name: str
    obs_space: ObsSpace
    action_space: Mapping[str, ActionSpace]
    config: RogueNetConfig

    def net(self) -> RogueNet:
        """The network with the checkpoint's parameters; every name and shape must fit."""
        net = RogueNet(self.obs_space, self.action_space, self.config)
        blob = (DATA / self.name / "state.agent.msgpack").read_bytes()
        net.load_state_dict({k: torch.from_numpy(v) for k, v in read_blob(blob).items()})
        return net

    def cases(self) -> list[Mapping[str, NDArray[np.float64]]]:
        """Inputs and outputs of one observation each."""
        with np.load(DATA / self.name / "outputs.npz") as arrays:
            keys = sorted(arrays.files)
            numbers = sorted({key.split("/", 1)[0] for key in keys})
            return [
                {key.split("/", 1)[1]: arrays[key] for key in keys if key.startswith(f"{n}/")}
                for n in numbers
            ]


SNAKE = Entity(("x", "y", "color"))
FIXTURES = [
    Fixture(
        "trained_xor",
        ObsSpace(("negate",), {"Input": Entity(("is_set",))}),
        {"output": GlobalCategoricalActionSpace(("0", "1"))},
        RogueNetConfig(d_model=16),
    ),
    Fixture(
        "trained_cherrypick",
        ObsSpace((), {"Cherry": Entity(("quality",)), "Player": Entity(())}),
        {"Pick Cherry": SelectEntityActionSpace()},
        RogueNetConfig(n_layer=1),
    ),
    Fixture(
        "trained_multisnake",
        ObsSpace(("step",), {"SnakeHead": SNAKE, "SnakeBody": SNAKE, "Food": SNAKE}),
        {"move": CategoricalActionSpace(("up", "down", "left", "right"))},
        RogueNetConfig(),
    ),
    Fixture(
        "made_d64_l2_h4",
        ObsSpace(
            ("step", "wind"),
            {"Ship": Entity(("x", "y", "hp")), "Rock": Entity(("x", "y")), "Flag": Entity(())},
        ),
        {
            "move": CategoricalActionSpace(("a", "b", "c", "d")),
            "aim": SelectEntityActionSpace(),
        },
        RogueNetConfig(d_model=64, n_head=4, d_qk=8),
    ),
]


def batch_of(fixture: Fixture, cases: list[Mapping[str, NDArray[np.float64]]]) -> ObsBatch:
    """Joins observations to one batch."""
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


def read_blob(blob: bytes) -> dict[str, NDArray[np.float32]]:
    """Reads the one form of msgpack that the checkpoints of hyperstate have."""
    tensors = _unpack(_Bytes(blob))
    if not isinstance(tensors, dict):
        raise TypeError("a blob is a map of tensors")
    return {
        name: np.frombuffer(t[b"data"], t[b"dtype"]).reshape(t[b"shape"]).copy()
        for name, t in tensors.items()
    }


class _Bytes:
    def __init__(self, blob: bytes) -> None:
        self._blob, self._at = blob, 0

    def take(self, count: int) -> bytes:
        self._at += count
        return self._blob[self._at - count : self._at]

    def number(self, code: str) -> int:
        (value,) = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))
        return int(value)


def _unpack(data: _Bytes) -> object:
    tag = data.number("B")
    if tag < 0x80:
        return tag
    if tag < 0x90:
        return dict(_pairs(data, tag & 0x0F))
    if tag < 0xA0:
        return [_unpack(data) for _ in range(tag & 0x0F)]
    if tag < 0xC0:
        return data.take(tag & 0x1F).decode()
    sizes = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xD9: "B", 0xDA: "H", 0xDE: "H", 0xDF: "I"}
    numbers = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q"}
    if tag in numbers:
        return data.number(numbers[tag])
    size = data.number(sizes[tag])
    if tag in (0xDE, 0xDF):
        return dict(_pairs(data, size))
    content = data.take(size)
    return content.decode() if tag in (0xD9, 0xDA) else content


def _pairs(data: _Bytes, count: int) -> Iterator[tuple[object, object]]:
    for _ in range(count):
        key = _unpack(data)
        yield key, _unpack(data)
