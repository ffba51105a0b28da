"""A network as plain data: spaces, configuration, and parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import (
    CNNConfig,
    NetConfig,
    OwnNetConfig,
    RelposEncodingConfig,
    RogueNetConfig,
)
from entity_env.agents.rogue_net.operations import (
    RELPOS,
    VALUE_NET,
    Operation,
    TensorSpec,
    operations,
    tensors_of,
)
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import CheckpointError, SchemaError

Tensors: TypeAlias = Mapping[str, NDArray[Any]]

LARGEST_PARAMETER: Final = np.float32(1e18)
"""Limit for all numbers that are not statistics: the sums of a single larger one overflow."""
_STATISTICS: Final = ("count", "mean", "squares_sum", "std")
"""Last parts of names."""
MAX_TENSORS: Final = 1 << 17
"""Maximum number of tensors in a file, including those of an optimizer."""
_MAX_LISTED: Final = 5
_LINEAR: Final = ("weight", "bias")
_MEMORY: Final = "memory."
_CONTEXT: Final = "memory.context."
MEMORY_GATES: Final = "memory.gates.weight"
_READERS: Final = ("policy_net.0.weight", "value_net.0.weight", "hidden.0.weight")
"""Layers of an MLP or CNN that also read the memory, in their last columns."""


@dataclass(frozen=True)
class Weights:
    """A network, for any backend.

    Args:
        tensors: parameters and statistics by name; may be read-only.
        greedy: the network plays better if it takes its most probable actions, by the evaluation at
            the end of its training; agents that are not told otherwise then do so. False = sampling
            is better or equal; None = unknown.
        game: name and identity of the game that it was trained on, see `authoring.identity`; empty
            if unknown.
    """

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    config: NetConfig
    tensors: Tensors
    greedy: bool | None = None
    game: Mapping[str, str | int] = field(default_factory=dict)

    def plays_greedily(
        self, greedy: bool | None, temperature: float = 1.0, *, if_unknown: bool = False
    ) -> bool:
        """Whether an agent takes the most probable actions.

        Args:
            greedy: as requested; None = what plays better, but a temperature requests samples.
            if_unknown: the answer if neither is known.
        """
        if greedy is not None:
            return greedy
        if temperature != 1.0:
            return False
        return if_unknown if self.greedy is None else self.greedy

    def operations(self) -> tuple[Operation, ...]:
        return operations(self.obs_space, self.action_space, self.config)

    def value_net(self) -> Weights:
        """The separate value network alone."""
        config = replace(self.rogue_net_config(), separate_value=False)
        tensors = {
            name.removeprefix(VALUE_NET): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(VALUE_NET)
        }
        return replace(self, action_space={}, config=config, tensors=tensors)

    def without_memory(self) -> Weights:
        """This network without its memory.

        Raises:
            CheckpointError: a CNN without hidden layers, whose heads read the memory.
        """
        if isinstance(self.config, OwnNetConfig):
            return self
        if isinstance(self.config, CNNConfig) and self.config.hidden == ():
            raise CheckpointError(
                "a CNN without hidden layers cannot get a memory later: train from scratch"
            )
        tensors = {
            name: tensor[:, : tensor.shape[1] - self.config.memory] if name in _READERS else tensor
            for name, tensor in self.tensors.items()
            if not name.startswith((_MEMORY, VALUE_NET + _MEMORY))
        }
        config = replace(self.config, memory=0)
        return replace(self, config=config, tensors=tensors)

    def with_memory_beside(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
        """Tensors of a network without memory, and the memory of this one, which nothing reads."""
        found = dict(tensors)
        for name, tensor in self.tensors.items():
            if name in _READERS:
                unread = np.zeros((len(tensor), tensor.shape[1] - tensors[name].shape[1]))
                found[name] = np.concatenate((tensors[name], unread), axis=1).astype(np.float32)
            elif name not in tensors:
                is_read = name.removeprefix(VALUE_NET).startswith(_CONTEXT)
                found[name] = np.zeros_like(tensor) if is_read else tensor
        return found

    @property
    def has_value(self) -> bool:
        """False if the value head of a RogueNet is all 0: untrained, or left out of an export."""
        if not isinstance(self.config, RogueNetConfig):
            return True
        prefix = (VALUE_NET if self.config.separate_value else "") + "auxiliary_heads.value."
        return any(self.tensors[prefix + part].any() for part in _LINEAR)

    def as_rogue_net(self) -> Weights:
        """This RogueNet without `separate_value` and `value_scale`, which rogue-net does not have.

        rogue-net is the package whose networks enn-trainer trains. A separate value network is
        dropped, and the value head becomes 0. Otherwise the value head absorbs the value scale.
        """
        config = self.rogue_net_config()
        if not (config.separate_value or config.value_scale):
            return self
        if config.separate_value:
            width = config.d_model
            weight, bias = np.zeros((1, width), np.float32), np.zeros(1, np.float32)
        else:
            weight, bias = value_head(self.tensors)
        left_out = (VALUE_NET, "auxiliary_heads.value_scale.")
        tensors = {
            name: tensor for name, tensor in self.tensors.items() if not name.startswith(left_out)
        }
        tensors |= {"auxiliary_heads.value.weight": weight, "auxiliary_heads.value.bias": bias}
        config = replace(config, separate_value=False, value_scale=False)
        return replace(self, config=config, tensors=tensors)

    def rogue_net_config(self) -> RogueNetConfig:
        """The configuration of a RogueNet; raises `SchemaError` for other networks."""
        if not isinstance(self.config, RogueNetConfig):
            raise SchemaError(f"expected a RogueNet, got a network with {self.config}")
        return self.config

    def require_fit(self, where: str, source: str) -> None:
        """Checks that the tensors match the configuration.

        Args:
            where: where the tensors are, for errors.
            source: where the spaces and the configuration are, for errors.

        Raises:
            CheckpointError: a tensor is missing or unexpected, has the wrong shape or dtype, or
                numbers that are not finite or above `LARGEST_PARAMETER`; a constant tensor
                contradicts the configuration; or `operations` refuses the spaces and the
                configuration.
        """
        try:
            expected = expected_tensors(self.obs_space, self.action_space, self.config)
        except SchemaError as error:
            raise CheckpointError(f"{source}: {error}") from error
        faults = sorted(_faults(expected, self.tensors))
        if not faults:
            faults = sorted(_contradictions(self.config, self.tensors))
        if faults:
            more = f", and {len(faults) - _MAX_LISTED} more" if len(faults) > _MAX_LISTED else ""
            listed = "; ".join(faults[:_MAX_LISTED])
            raise CheckpointError(f"{where} does not match {source}: {listed}{more}")


def facts_to_json(weights: Weights) -> dict[str, object]:
    """Facts about a network other than its parameters, as JSON."""
    found: dict[str, object] = {} if weights.greedy is None else {"greedy": weights.greedy}
    return found | ({"game": dict(weights.game)} if weights.game else {})


def facts_from_json(data: Mapping[str, object]) -> tuple[bool | None, dict[str, str | int]]:
    """`greedy` and `game` of `Weights`; unknown for other types."""
    greedy, game = data.get("greedy"), data.get("game")
    known = game.items() if isinstance(game, dict) else ()
    return (
        greedy if isinstance(greedy, bool) else None,
        {str(name): each for name, each in known if isinstance(each, str | int)},
    )


def value_head(tensors: Tensors) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`(1, d_model)` weight and `(1,)` bias of a RogueNet's value head, in units of the reward."""
    weight, bias = (tensors[f"auxiliary_heads.value.{part}"] for part in _LINEAR)
    scale = [tensors.get(f"auxiliary_heads.value_scale.{part}") for part in ("mean", "std")]
    mean, std = scale
    if mean is None or std is None:
        return weight, bias
    return weight * std, bias * std + mean


def expected_tensors(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: NetConfig
) -> dict[str, TensorSpec]:
    """Spec of every parameter and statistic, by name; raises the errors of `operations`."""
    return tensors_of(operations(obs_space, action_space, config))


def num_bytes(specs: Iterable[TensorSpec]) -> int:
    """Size of tensors with these specs."""
    return sum(prod(spec.shape) * spec.dtype.itemsize for spec in specs)


def _faults(expected: Mapping[str, TensorSpec], tensors: Tensors) -> Iterator[str]:
    yield from (f"{name} is missing" for name in expected.keys() - tensors.keys())
    for name in tensors.keys() - expected.keys():
        yield f"{name[:200]} does not belong to the network"
    for name in expected.keys() & tensors.keys():
        spec, tensor = expected[name], tensors[name]
        if spec != (tensor.shape, tensor.dtype):
            yield (
                f"{name} has shape {tensor.shape} of {tensor.dtype}, "
                f"expected {spec.shape} of {spec.dtype}"
            )
        elif not np.isfinite(tensor).all():
            yield f"{name} holds numbers that are not finite"
        elif (
            name.rpartition(".")[2] not in _STATISTICS
            and np.abs(tensor).max(initial=0) > LARGEST_PARAMETER
        ):
            yield f"{name} holds numbers above {LARGEST_PARAMETER:g}"


def _contradictions(config: NetConfig, tensors: Tensors) -> Iterator[str]:
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    is_separate = isinstance(config, RogueNetConfig) and config.separate_value
    for name, expected in relpos_constants(relpos).items():
        for prefix in (RELPOS, VALUE_NET + RELPOS) if is_separate else (RELPOS,):
            found = tensors[prefix + name]
            if not np.array_equal(found, expected):
                yield (
                    f"{prefix}{name} is {found.ravel().tolist()}, "
                    f"expected {expected.ravel().tolist()}"
                )


def relpos_constants(relpos: RelposEncodingConfig | None) -> dict[str, NDArray[Any]]:
    """Relative position tensors whose values follow from the configuration."""
    if relpos is None:
        return {}
    return {
        "strides": np.array([relpos.strides], dtype=np.float32),
        "extent_tensor": np.array(relpos.extent, dtype=np.int64).reshape(1, 1, 1, -1),
    }
