"""A network as plain arrays: its spaces, its configuration, and its parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import MAX_NUMBERS, RelposEncodingConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError, SchemaError

Tensors: TypeAlias = Mapping[str, NDArray[Any]]

RELPOS: Final = "backbone.relpos_encoding."
MAX_TENSORS: Final = 1 << 17
"""In one file, with those of an optimizer."""
_MAX_LISTED: Final = 5


class TensorSpec(NamedTuple):
    """Shape and dtype of one parameter."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.float32)


@dataclass(frozen=True)
class Weights:
    """A network, for any backend.

    Args:
        obs_space, action_space: its spaces.
        config: its sizes and options.
        tensors: its parameters and statistics by name; they may be read-only.
    """

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    config: RogueNetConfig
    tensors: Tensors

    def require_fit(self, where: str, source: str) -> None:
        """Checks that the tensors are those of the configuration.

        Args:
            where: name of the tensors, for errors.
            source: name of their description, for errors.

        Raises:
            CheckpointError: a tensor is missing, unknown, of another shape or dtype, or not
                finite; or no network has such spaces and options.
        """
        try:
            expected = expected_tensors(self.obs_space, self.action_space, self.config)
        except SchemaError as error:
            raise CheckpointError(f"{source}: {error}") from error
        faults = sorted(_faults(expected, self.tensors))
        if not faults:
            faults = sorted(_contradictions(self.config.relpos_encoding, self.tensors))
        if faults:
            more = f", and {len(faults) - _MAX_LISTED} more" if len(faults) > _MAX_LISTED else ""
            listed = "; ".join(faults[:_MAX_LISTED])
            raise CheckpointError(f"{where} does not fit the network in {source}: {listed}{more}")


def expected_tensors(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: RogueNetConfig
) -> dict[str, TensorSpec]:
    """Every parameter and statistic of a network, by its name in rogue-net 0.1.9."""
    inputs = Inputs(obs_space, action_space, config.translation)
    specs: dict[str, TensorSpec] = {}
    for name, width in inputs.widths.items():
        specs |= _prefixed(f"embedding.embeddings.{name}.", _embedding(width, config.d_model))
    if config.relpos_encoding is not None:
        Relpos(config.relpos_encoding, inputs.features)
        specs |= _prefixed(RELPOS, _relpos(config, config.relpos_encoding, inputs))
    for i in range(config.n_layer):
        specs |= _prefixed(f"backbone.blocks.{i}.", _block(config.d_model))
    for action, space in action_space.items():
        specs |= _prefixed(f"action_heads.{action}.", _head(space, config))
    specs |= _prefixed("auxiliary_heads.value.", _linear(config.d_model, 1))
    num_numbers = sum(prod(spec.shape) for spec in specs.values())
    if num_numbers > MAX_NUMBERS:
        raise SchemaError(
            f"the network would have {num_numbers} parameters, at most {MAX_NUMBERS} go: choose a "
            "smaller one"
        )
    return specs


def num_bytes(specs: Iterable[TensorSpec]) -> int:
    """Size of these tensors."""
    return sum(prod(spec.shape) * spec.dtype.itemsize for spec in specs)


def _embedding(width: int, d_model: int) -> dict[str, TensorSpec]:
    if not width:
        return {"embedding": TensorSpec((1, d_model))}
    return {
        **_prefixed("0.", _input_norm(width)),
        **_prefixed("1.", _linear(width, d_model)),
        **_prefixed("3.", _layer_norm(d_model)),
    }


def _input_norm(width: int) -> dict[str, TensorSpec]:
    both = TensorSpec((width,))
    return {"count": TensorSpec(()), "mean": both, "squares_sum": both}


def _linear(num_inputs: int, num_outputs: int) -> dict[str, TensorSpec]:
    return {"weight": TensorSpec((num_outputs, num_inputs)), "bias": TensorSpec((num_outputs,))}


def _layer_norm(width: int) -> dict[str, TensorSpec]:
    return {"weight": TensorSpec((width,)), "bias": TensorSpec((width,))}


def _block(d_model: int) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for name in ("ln1", "ln2"):
        specs |= _prefixed(f"{name}.", _layer_norm(d_model))
    for name in ("key", "query", "value", "proj"):
        specs |= _prefixed(f"attn.{name}.", _linear(d_model, d_model))
    specs |= _prefixed("mlp.0.", _linear(d_model, 4 * d_model))
    return specs | _prefixed("mlp.2.", _linear(4 * d_model, d_model))


def _relpos(
    config: RogueNetConfig, relpos: RelposEncodingConfig, inputs: Inputs
) -> dict[str, TensorSpec]:
    d_head, num_types = config.d_head, len(inputs.names)
    num_values = relpos.num_buckets * (num_types if relpos.per_entity_values else 1)
    specs = {
        "strides": TensorSpec((1, len(relpos.strides))),
        "extent_tensor": TensorSpec((1, 1, 1, len(relpos.extent)), np.dtype(np.int64)),
        "keys.weight": TensorSpec((relpos.num_buckets, d_head)),
        "values.weight": TensorSpec((num_values, d_head)),
        "distance_values.weight": TensorSpec((num_types, d_head)),
    }
    for prefix in projections(relpos, inputs.names):
        specs |= _prefixed(prefix, _linear(3, d_head))
    if relpos.has_projection:
        specs |= _prefixed("relpos_norm.", _input_norm(3))
    if relpos.value_gate is not None:
        specs |= _prefixed("value_gate_proj.", _linear(config.d_model, d_head))
    return specs


def projections(relpos: RelposEncodingConfig, names: tuple[str, ...]) -> list[str]:
    """Prefixes of the projections of positions."""
    used = {"vproj": relpos.value_relpos_projection, "kproj": relpos.key_relpos_projection}
    inner = [f"{name}." for name in names] if relpos.per_entity_projections else [""]
    return [f"{part}.{name}" for part, is_used in used.items() if is_used for name in inner]


def _head(space: ActionSpace, config: RogueNetConfig) -> dict[str, TensorSpec]:
    if isinstance(space, SelectEntityActionSpace):
        return {
            **_prefixed("query_proj.", _linear(config.d_model, config.d_qk)),
            **_prefixed("key_proj.", _linear(config.d_model, config.d_qk)),
        }
    specs = _prefixed("proj.", _linear(config.d_model, len(space)))
    if isinstance(space, ContinuousActionSpace):
        specs["log_std"] = TensorSpec((len(space),))
    return specs


def _prefixed(prefix: str, specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    return {prefix + name: spec for name, spec in specs.items()}


def _faults(expected: Mapping[str, TensorSpec], tensors: Tensors) -> Iterator[str]:
    yield from (f"{name} is missing" for name in expected.keys() - tensors.keys())
    for name in tensors.keys() - expected.keys():
        yield f"{name[:200]} belongs to no part of the network"
    for name in expected.keys() & tensors.keys():
        spec, tensor = expected[name], tensors[name]
        if spec != (tensor.shape, tensor.dtype):
            yield (
                f"{name} has shape {tensor.shape} of {tensor.dtype}, "
                f"expected {spec.shape} of {spec.dtype}"
            )
        elif not np.isfinite(tensor).all():
            yield f"{name} holds numbers that are not finite"


def _contradictions(relpos: RelposEncodingConfig | None, tensors: Tensors) -> Iterator[str]:
    """Tensors that contradict the configuration from which they follow."""
    for name, expected in relpos_constants(relpos).items():
        found = tensors[RELPOS + name]
        if not np.array_equal(found, expected):
            yield (
                f"{RELPOS}{name} is {found.ravel().tolist()}, expected {expected.ravel().tolist()}"
            )


def relpos_constants(relpos: RelposEncodingConfig | None) -> dict[str, NDArray[Any]]:
    """Tensors of relative positions that follow from the configuration."""
    if relpos is None:
        return {}
    return {
        "strides": np.array([relpos.strides], dtype=np.float32),
        "extent_tensor": np.array(relpos.extent, dtype=np.int64).reshape(1, 1, 1, -1),
    }
