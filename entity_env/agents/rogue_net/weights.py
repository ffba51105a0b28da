"""A network as plain arrays: its spaces, its configuration, and its parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import (
    MAX_NUMBERS,
    CNNConfig,
    MLPConfig,
    NetConfig,
    OwnNetConfig,
    RelposEncodingConfig,
    RogueNetConfig,
)
from entity_env.agents.rogue_net.features import FlatFeatures, Inputs, picture_of
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError, SchemaError

Tensors: TypeAlias = Mapping[str, NDArray[Any]]

RELPOS: Final = "backbone.relpos_encoding."
VALUE_NET: Final = "value_net."
MAX_TENSORS: Final = 1 << 17
"""In one file, with those of an optimizer."""
_MAX_LISTED: Final = 5
_LINEAR: Final = ("weight", "bias")


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
    config: NetConfig
    tensors: Tensors

    def value_net(self) -> Weights:
        """The network of the value alone, where it is apart."""
        config = replace(self.rogue_net_config(), separate_value=False)
        tensors = {
            name.removeprefix(VALUE_NET): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(VALUE_NET)
        }
        return Weights(self.obs_space, {}, config, tensors)

    @property
    def has_value(self) -> bool:
        """Whether it predicts values: a head of zeros was not trained, or left out by an export."""
        if not isinstance(self.config, RogueNetConfig):
            return True
        prefix = (VALUE_NET if self.config.separate_value else "") + "auxiliary_heads.value."
        return any(self.tensors[prefix + part].any() for part in _LINEAR)

    def as_rogue_net(self) -> Weights:
        """The network without options that rogue-net lacks; a value network apart is left out."""
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
        return Weights(self.obs_space, self.action_space, config, tensors)

    def rogue_net_config(self) -> RogueNetConfig:
        """The configuration; raises `SchemaError` for another kind of network."""
        if not isinstance(self.config, RogueNetConfig):
            raise SchemaError(f"it needs a RogueNet, this is a network of {self.config}")
        return self.config

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
            faults = sorted(_contradictions(self.config, self.tensors))
        if faults:
            more = f", and {len(faults) - _MAX_LISTED} more" if len(faults) > _MAX_LISTED else ""
            listed = "; ".join(faults[:_MAX_LISTED])
            raise CheckpointError(f"{where} does not fit the network in {source}: {listed}{more}")


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
    """Every parameter and statistic of a network by name; of a RogueNet as in rogue-net 0.1.9."""
    if isinstance(config, OwnNetConfig):
        raise SchemaError(
            f"it is a network of the class {config.name}, which only its own program can make: "
            "make it there, and load_checkpoint(path, policy=it)"
        )
    if isinstance(config, MLPConfig):
        specs = _mlp(FlatFeatures(obs_space, action_space).width, action_space, config)
    elif isinstance(config, CNNConfig):
        specs = _cnn(obs_space, action_space, config)
    else:
        specs = _rogue_net(obs_space, action_space, config)
    num_numbers = sum(prod(spec.shape) for spec in specs.values())
    if num_numbers > MAX_NUMBERS:
        raise SchemaError(
            f"the network would have {num_numbers} parameters, at most {MAX_NUMBERS} go: choose a "
            "smaller one"
        )
    return specs


def _mlp(
    width: int, action_space: Mapping[ActionName, ActionSpace], config: MLPConfig
) -> dict[str, TensorSpec]:
    sizes = (width, *config.hidden)
    specs = _prefixed("input_norm.", _input_norm(width)) if config.norm_inputs else {}
    specs |= _prefixed("policy_net.", _layers(sizes)) | _prefixed("value_net.", _layers(sizes))
    return specs | _flat_heads(sizes[-1], action_space)


class Picture(NamedTuple):
    """What a CNN reads.

    Args:
        name: the entity type that is a picture.
        shape: its height, width and channels.
        config: sizes of the network, all of them.
        width: length of the vector of all else.
        num_convolved: numbers that the last convolution gives.
    """

    name: EntityName
    shape: tuple[int, int, int]
    config: CNNConfig
    width: int
    num_convolved: int

    @classmethod
    def of(
        cls,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: CNNConfig,
    ) -> Picture:
        """Raises `SchemaError` unless `is_flat` with one picture, or for too large a kernel."""
        name = picture_of(obs_space)
        width = FlatFeatures(obs_space, action_space, name).width
        shape = None if name is None else obs_space.entities[name].shape
        if name is None or shape is None:
            found = ", ".join(name for name, each in obs_space.entities.items() if each.shape)
            raise SchemaError(
                f"a CNN reads one entity that is a picture, and there are {found or 'none'}: "
                "declare its shape, as Entity(features, is_single=True, shape=(height, width, "
                "channels)), or use an MLP"
            )
        config = config.of_shape(shape)
        return cls(name, shape, config, width, prod(config.out_sizes(shape)[-1]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of input and output of the layers after the convolutions."""
        return (self.num_convolved + self.width, *(self.config.hidden or ()))


def _cnn(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: CNNConfig
) -> dict[str, TensorSpec]:
    picture = Picture.of(obs_space, action_space, config)
    num_inputs = picture.shape[2]
    specs = _prefixed("picture_norm.", _input_norm(num_inputs))
    for i, (num_outputs, kernel, _) in enumerate(picture.config.layers or ()):
        weight = TensorSpec((num_outputs, num_inputs, kernel, kernel))
        specs[f"convolutions.{2 * i}.weight"] = weight
        specs[f"convolutions.{2 * i}.bias"] = TensorSpec((num_outputs,))
        num_inputs = num_outputs
    specs |= _prefixed("hidden.", _layers(picture.sizes))
    return specs | _flat_heads(picture.sizes[-1], action_space)


def _layers(sizes: Sequence[int]) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for i, (num_inputs, num_outputs) in enumerate(pairwise(sizes)):
        specs |= _prefixed(f"{2 * i}.", _linear(num_inputs, num_outputs))
    return specs


def _flat_heads(
    width: int, action_space: Mapping[ActionName, ActionSpace]
) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for action, space in action_space.items():
        specs |= _prefixed(f"action_heads.{action}.", _label_head(space, width))
    specs |= _prefixed("value_head.", _linear(width, 1))
    return specs | _prefixed("value_scale.", _value_scale())


def _rogue_net(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: RogueNetConfig
) -> dict[str, TensorSpec]:
    inputs = Inputs(obs_space, action_space, config.translation)
    specs: dict[str, TensorSpec] = {}
    for name, width in inputs.widths.items():
        specs |= _prefixed(f"embedding.embeddings.{name}.", _embedding(width, config.d_model))
    if config.relpos_encoding is not None:
        Relpos(config.relpos_encoding, inputs.features)
        specs |= _prefixed(RELPOS, _relpos(config, config.relpos_encoding, inputs))
    for i in range(config.n_layer):
        specs |= _prefixed(f"backbone.blocks.{i}.", _block(config.d_model, config.pooling))
    for action, space in action_space.items():
        specs |= _prefixed(f"action_heads.{action}.", _head(space, config))
    if config.separate_value:
        value_net = _rogue_net(obs_space, {}, replace(config, separate_value=False))
        return specs | _prefixed(VALUE_NET, value_net)
    specs |= _prefixed("auxiliary_heads.value.", _linear(config.d_model, 1))
    if config.value_scale:
        specs |= _prefixed("auxiliary_heads.value_scale.", _value_scale())
    return specs


def _value_scale() -> dict[str, TensorSpec]:
    return {"mean": TensorSpec(()), "std": TensorSpec(())}


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


def _block(d_model: int, pooling: str | None) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for name in ("ln1", "ln2"):
        specs |= _prefixed(f"{name}.", _layer_norm(d_model))
    num_pooled = 2 * d_model if pooling == "meanmax" else d_model
    for name in ("key", "query", "value") if pooling is None else ("prepool",):
        specs |= _prefixed(f"attn.{name}.", _linear(d_model, d_model))
    specs |= _prefixed("attn.proj.", _linear(num_pooled, d_model))
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
    return _label_head(space, config.d_model)


def _num_labels(space: ActionSpace) -> int:
    return 0 if isinstance(space, SelectEntityActionSpace) else len(space)


def _label_head(space: ActionSpace, width: int) -> dict[str, TensorSpec]:
    specs = _prefixed("proj.", _linear(width, _num_labels(space)))
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


def _contradictions(config: NetConfig, tensors: Tensors) -> Iterator[str]:
    """Tensors that contradict the configuration from which they follow."""
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
    """Tensors of relative positions that follow from the configuration."""
    if relpos is None:
        return {}
    return {
        "strides": np.array([relpos.strides], dtype=np.float32),
        "extent_tensor": np.array(relpos.extent, dtype=np.int64).reshape(1, 1, 1, -1),
    }
