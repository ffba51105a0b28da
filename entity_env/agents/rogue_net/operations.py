"""A network as a list of operations over named buffers: plain data, for any backend.

`operations` returns the list for a configuration, including all tensors of the network. Operations
run in order, and later ones may overwrite a buffer that earlier ones wrote. A RogueNet starts with
one buffer `features/TYPE` per type of entities or relations, an array of `Inputs`; an MLP with
`features`, the vector of `FlatFeatures`; and a CNN with `picture`, `(num_rows, height, width,
channels)`, and, if the observations have other features, `features`. At the end, `action/NAME` is
the distribution of the action NAME, and `value` has one number per row (observation).

Agent files contain the list for `page/network.mjs` and `clients/c/entity_agent.h`, which know
nothing else of a configuration but `translation`, and refuse unknown kinds and constants: whatever
changes decisions belongs in here.

| kind | output |
|---|---|
| `normalize` | the columns from `start`, standardized by `count`, `mean`, `squares_sum`; clipped |
| `linear` | `x @ weight.T + bias`, then the `activation`, if any: `gelu`, `relu`, … |
| `layer_norm` | rows with mean 0 and deviation 1, times `weight` plus `bias` |
| `add` | the first input, with the second added in place |
| `repeat` | the tensor `embedding` for every row of the input |
| `concatenate` | the rows of all inputs; with `entities`, these entity types, in this order |
| `pairs` | the rows of both entities of each relation; `references` has its type, and theirs |
| `relate` | attention in pairs: query, key, value; keys and values of relations; the pairs |
| `ends` | the columns of both entities of each relation |
| `positions` | keys and values of every pair of entities, with the `options` of `Relpos` |
| `attend` | attention with `n_head` heads: query, key, value and, if used, positions and gate |
| `pool` | per observation the `mean`, `max` or `meanmax` of its visible entities, 0 without any |
| `spread` | for every entity, the row of its observation |
| `recur` | per observation the new state of a GRU, from its gates, see `memory.recur` |
| `mean` | per observation the mean of its entities, 0 if it has none |
| `convolve` | pictures, with a `stride` and an `activation` |
| `flatten` | each picture as a vector, channel by channel |
| `join` | columns of both inputs |
| `actors`, `actees` | rows of the `action`'s actors or actees; in an MLP or CNN, of observations |
| `choice` | what actors chose of the `action`: one-hot labels, numbers, or rows of the entities |
| `compare` | dot products of actors and actees, divided by the square root of their width |
| `categorical` | a distribution over the allowed choices of the `action`, from logits |
| `gaussian` | normal, from means and `log_std`, in units where -1 is `low` and 1 is `high` |
| `scale` | the input times `std` plus `mean` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

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
from entity_env.agents.rogue_net.memory import NUM_GATES
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError

MEMORY_POOLING: Final = "meanmax"
"""Pooling of embedded entities for the memory of a RogueNet."""
RELPOS: Final = "backbone.relpos_encoding."
RELATIONS: Final = "relations."
VALUE_NET: Final = "value_net."
Actions: TypeAlias = Mapping[ActionName, ActionSpace]
_Tensor = TypeVar("_Tensor")


class TensorSpec(NamedTuple):
    """Shape and dtype of a parameter or statistic."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a network.

    Args:
        kind: see the top of the module.
        inputs: buffers that the operation reads.
        output: buffer that it writes.
        layer: prefix of the names of its tensors.
        tensors: parameters and statistics, by their names without the prefix.
        constants: options of the operation, as JSON values.
    """

    kind: str
    inputs: Sequence[str]
    output: str
    layer: str
    tensors: Mapping[str, TensorSpec]
    constants: Mapping[str, Any]

    def of(self, tensors: Mapping[str, _Tensor]) -> dict[str, _Tensor]:
        """The tensors of this operation, by their names without the prefix."""
        return {part: tensors[self.layer + part] for part in self.tensors}

    def to_json(self) -> list[object]:
        """`[kind, inputs, output, layer, constants]`; the kind implies the names of the tensors."""
        return [self.kind, list(self.inputs), self.output, self.layer, dict(self.constants)]


_LARGEST_BOUND: Final = float(np.finfo(np.float32).max)


def operations(
    obs_space: ObsSpace, action_space: Actions, config: NetConfig
) -> tuple[Operation, ...]:
    """The operations of a network, in order.

    Raises:
        SchemaError: `config` does not fit the spaces, is an `OwnNetConfig`, or makes a network
            that is too large.
    """
    if isinstance(config, OwnNetConfig):
        raise SchemaError(
            f"the network has the class {config.name}, which only its own program can make: "
            "create it there and call load_checkpoint(path, policy=...) with it"
        )
    if isinstance(config, MLPConfig):
        found = _mlp(FlatFeatures(obs_space, action_space).width, action_space, config)
    elif isinstance(config, CNNConfig):
        found = _cnn(Picture.of(obs_space, action_space, config), action_space)
    else:
        found = _rogue_net(obs_space, action_space, config)
    listed = tuple(found)
    num_numbers = sum(prod(spec.shape) for spec in tensors_of(listed).values())
    if num_numbers > MAX_NUMBERS:
        raise SchemaError(
            f"the network would have {num_numbers} parameters, but at most {MAX_NUMBERS} are "
            "allowed: choose a smaller network"
        )
    return listed


def tensors_of(listed: Sequence[Operation]) -> dict[str, TensorSpec]:
    """Every parameter and statistic by name; names of a RogueNet are those of rogue-net 0.1.9."""
    return {each.layer + part: spec for each in listed for part, spec in each.tensors.items()}


def _operation(
    kind: str,
    inputs: Sequence[str],
    output: str,
    layer: str = "",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    **constants: object,
) -> Operation:
    tensors = {part: TensorSpec(shape) for part, shape in (shapes or {}).items()}
    return Operation(kind, inputs, output, layer, tensors, constants)


def _linear(
    layer: str, x: str, y: str, num_inputs: int, num_outputs: int, activation: str = ""
) -> Operation:
    shapes = {"weight": (num_outputs, num_inputs), "bias": (num_outputs,)}
    constants = {"activation": activation} if activation else {}
    return _operation("linear", (x,), y, layer, shapes, **constants)


def _normalize(layer: str, x: str, y: str, width: int, start: int = 0) -> Operation:
    shapes = {"count": (), "mean": (width,), "squares_sum": (width,)}
    constants = {"start": start} if start else {}
    return _operation("normalize", (x,), y, layer, shapes, **constants)


def _actors(
    action: ActionName, actions: Actions, x: str, width: int, everything: str
) -> Iterator[Operation]:
    """Operations from entities to the vectors of an action's actors.

    If the action depends on others, the vectors depend on what was chosen: labels, numbers, or rows
    of the buffer `everything`.
    """
    at, layer = f"actors/{action}", f"conditionings.{action}."
    given = actions[action].given
    for i, other in enumerate(given):
        space, part = actions[other], "context" if i == 0 else "more"
        is_select = isinstance(space, SelectEntityActionSpace)
        num_inputs = width if is_select else len(space)  # type: ignore[arg-type]  # has labels
        yield _operation("choice", (f"action/{other}", everything), "choice", action=other)
        yield _linear(f"{layer}choices.{other}.", "choice", part, num_inputs, width)
        if i:
            yield _operation("add", ("context", "more"), "context")
    yield _operation("actors", (x,), at, action=action)  # whose mask may depend on the choices
    if given:
        yield _operation("join", (at, "context"), "context")
        yield _linear(f"{layer}hidden.", "context", "context", 2 * width, width, "gelu")
        yield _linear(f"{layer}out.", "context", "context", width, width)
        yield _operation("add", (at, "context"), at)


def _label_head(
    action: ActionName, actions: Actions, x: str, width: int, everything: str
) -> Iterator[Operation]:
    layer, at, out = f"action_heads.{action}.", f"actors/{action}", f"action/{action}"
    space = actions[action]
    num_labels = 0 if isinstance(space, SelectEntityActionSpace) else len(space)
    yield from _actors(action, actions, x, width, everything)
    yield _linear(f"{layer}proj.", at, at, width, num_labels)
    if isinstance(space, ContinuousActionSpace):
        _require_bounds(action, space)
        constants = {"action": action, "low": [*space.low], "high": [*space.high]}
        yield _operation("gaussian", (at,), out, layer, {"log_std": (num_labels,)}, **constants)
    else:
        yield _operation("categorical", (at,), out, action=action)


def _require_bounds(action: ActionName, space: ContinuousActionSpace) -> None:
    bounds = [*map(float, space.low), *map(float, space.high)]
    if not all(abs(bound) <= _LARGEST_BOUND for bound in bounds):
        raise SchemaError(
            f"action {action!r} is bounded by {bounds}, but actions are float32, at most "
            f"{_LARGEST_BOUND:.3g}: choose larger units"
        )


def _value_scale(layer: str) -> Operation:
    return _operation("scale", ("value",), "value", layer, {"mean": (), "std": ()})


# ------------------------------------------------------------------ RogueNet


def has_selection(action_space: Actions) -> bool:
    """True if an action selects entities, and so perhaps relations."""
    return any(isinstance(space, SelectEntityActionSpace) for space in action_space.values())


def _rogue_net(
    obs_space: ObsSpace, action_space: Actions, config: RogueNetConfig
) -> Iterator[Operation]:
    inputs, width = Inputs(obs_space, action_space, config.translation), config.d_model
    for name, num_features in inputs.widths.items():
        yield from _embedding(
            name, num_features, width, start=2 if name in inputs.references else 0
        )
    embedded = [f"embedded/{name}" for name in inputs.names]
    yield _operation("concatenate", embedded, "x", entities=inputs.names)
    if config.memory:
        yield _operation("pool", ("x",), "gates", of=MEMORY_POOLING)
        yield from _memory(config.memory, "gates", 2 * width)
        yield _linear("memory.context.", "memory", "context", config.memory, width)
        yield _operation("spread", ("context",), "context")
        yield _operation("add", ("x", "context"), "x")
    if inputs.references:
        yield from _relations(config, inputs)
    if config.relpos_encoding is not None:
        yield _positions(config, config.relpos_encoding, inputs)
    for i in range(config.n_layer):
        yield from _block(f"backbone.blocks.{i}.", config)
    everything = "x"
    if inputs.references and has_selection(action_space):
        everything = "all"
        yield _operation("ends", ("x", "pairs"), "ends")
        yield _operation("join", ("relations", "ends"), "ends")
        yield _linear(f"{RELATIONS}out.", "ends", "ends", 3 * width, width, "gelu")
        yield _operation("concatenate", ("x", "ends"), everything)
    for action, space in action_space.items():
        if isinstance(space, SelectEntityActionSpace):
            yield from _select_head(action, action_space, config, everything)
        else:
            yield from _label_head(action, action_space, "x", width, everything)
    if config.separate_value:
        for each in _rogue_net(obs_space, {}, replace(config, separate_value=False)):
            constants = each.constants
            if each.kind == "recur":  # the second half of the state
                constants = {**constants, "start": config.memory}
            yield replace(each, layer=VALUE_NET + each.layer, constants=constants)
        return
    yield _operation("mean", ("x",), "value")
    yield _linear("auxiliary_heads.value.", "value", "value", width, 1)
    if config.value_scale:
        yield _value_scale("auxiliary_heads.value_scale.")


def _memory(width: int, x: str, num_inputs: int) -> Iterator[Operation]:
    """Operations from a vector per observation to the buffer `memory`, the state after it.

    The constant `start` is the first column of these numbers in the whole state of the network.
    """
    num_gates = NUM_GATES * width
    yield _linear("memory.gates.", x, "gates", num_inputs, num_gates)
    shapes = {"weight": (num_gates, width)}
    yield _operation("recur", ("gates",), "memory", "memory.", shapes, start=0)


def _relations(config: RogueNetConfig, inputs: Inputs) -> Iterator[Operation]:
    """Attention of entities to those to which they have a relation; adds the result to `x`."""
    width, names = config.d_model, [*inputs.references]
    yield _operation("concatenate", [f"embedded/{name}" for name in names], "relations")
    read = [f"features/{name}" for name in names]
    references = [[name, *types] for name, types in inputs.references.items()]
    yield _operation("pairs", read, "pairs", references=references)
    yield _layer_norm(f"{RELATIONS}ln.", "x", "normed", width)
    for name in ("query", "key", "value"):
        yield _linear(f"{RELATIONS}{name}.", "normed", name, width, width)
    for name in ("relation_key", "relation_value"):  # for the source, then for the target
        yield _linear(f"{RELATIONS}{name}.", "relations", name, width, 2 * width)
    read = ["query", "key", "value", "relation_key", "relation_value", "pairs"]
    yield _operation("relate", read, "mixed", n_head=config.n_head)
    yield _linear(f"{RELATIONS}proj.", "mixed", "mixed", width, width)
    yield _operation("add", ("x", "mixed"), "x")


def _embedding(name: EntityName, num_features: int, width: int, start: int) -> Iterator[Operation]:
    layer, x, y = f"embedding.embeddings.{name}.", f"features/{name}", f"embedded/{name}"
    if not num_features:
        yield _operation("repeat", (x,), y, layer, {"embedding": (1, width)})
        return
    yield _normalize(f"{layer}0.", x, y, num_features, start)
    yield _linear(f"{layer}1.", y, y, num_features, width, "relu")
    yield _layer_norm(f"{layer}3.", y, y, width)


def _layer_norm(layer: str, x: str, y: str, width: int) -> Operation:
    return _operation("layer_norm", (x,), y, layer, {"weight": (width,), "bias": (width,)})


def _positions(config: RogueNetConfig, relpos: RelposEncodingConfig, inputs: Inputs) -> Operation:
    Relpos(relpos, inputs.features)  # raises if a type lacks a position feature
    d_head, num_types = config.d_head, len(inputs.names)
    num_values = relpos.num_buckets * (num_types if relpos.per_entity_values else 1)
    layers = [_linear(layer, "", "", 3, d_head) for layer in projections(relpos, inputs.names)]
    if relpos.has_projection:
        layers.append(_normalize("relpos_norm.", "", "", 3))
    if relpos.value_gate is not None:
        layers.append(_linear("value_gate_proj.", "", "", config.d_model, d_head))
    tensors = {
        "strides": TensorSpec((1, len(relpos.strides))),
        "extent_tensor": TensorSpec((1, 1, 1, len(relpos.extent)), np.dtype(np.int64)),
        "keys.weight": TensorSpec((relpos.num_buckets, d_head)),
        "values.weight": TensorSpec((num_values, d_head)),
        "distance_values.weight": TensorSpec((num_types, d_head)),
        **tensors_of(layers),
    }
    read = [f"features/{name}" for name in inputs.names]
    constants = {"options": asdict(relpos), "features": inputs.features}
    return Operation("positions", read, "positions", RELPOS, tensors, constants)


def projections(relpos: RelposEncodingConfig, names: Sequence[EntityName]) -> list[str]:
    """Prefixes of the layers that project positions."""
    used = {"vproj": relpos.value_relpos_projection, "kproj": relpos.key_relpos_projection}
    inner = [f"{name}." for name in names] if relpos.per_entity_projections else [""]
    return [f"{part}.{name}" for part, is_used in used.items() if is_used for name in inner]


def _block(layer: str, config: RogueNetConfig) -> Iterator[Operation]:
    width = config.d_model
    yield _layer_norm(f"{layer}ln1.", "x", "normed", width)
    if config.pooling is None:
        yield from _attention(f"{layer}attn.", config)
    else:
        yield _linear(f"{layer}attn.prepool.", "normed", "mixed", width, width)
        yield _operation("pool", ("mixed",), "mixed", of=config.pooling)
        num_pooled = 2 * width if config.pooling == "meanmax" else width
        yield _linear(f"{layer}attn.proj.", "mixed", "mixed", num_pooled, width)
        yield _operation("spread", ("mixed",), "mixed")
    yield _operation("add", ("x", "mixed"), "x")
    yield _layer_norm(f"{layer}ln2.", "x", "normed", width)
    yield _linear(f"{layer}mlp.0.", "normed", "hidden", width, 4 * width, "gelu")
    yield _linear(f"{layer}mlp.2.", "hidden", "mixed", 4 * width, width)
    yield _operation("add", ("x", "mixed"), "x")


def _attention(layer: str, config: RogueNetConfig) -> Iterator[Operation]:
    width, relpos = config.d_model, config.relpos_encoding
    read = ["query", "key", "value"]
    for name in ("key", "query", "value"):
        yield _linear(f"{layer}{name}.", "normed", name, width, width)
    if relpos is not None:
        read.append("positions")
        if relpos.value_gate is not None:
            read.append("gate")
            gate = f"{RELPOS}value_gate_proj.", "normed", "gate", width, config.d_head
            yield _linear(*gate, "" if relpos.value_gate == "linear" else relpos.value_gate)
    yield _operation("attend", read, "mixed", n_head=config.n_head)
    yield _linear(f"{layer}proj.", "mixed", "mixed", width, width)


def _select_head(
    action: ActionName, actions: Actions, config: RogueNetConfig, everything: str
) -> Iterator[Operation]:
    layer, read = f"action_heads.{action}.", (f"actors/{action}", f"actees/{action}")
    for part, at in zip(("query", "key"), read, strict=True):
        if part == "query":
            yield from _actors(action, actions, "x", config.d_model, everything)
        else:
            yield _operation("actees", (everything,), at, action=action)
        yield _linear(f"{layer}{part}_proj.", at, at, config.d_model, config.d_qk)
    yield _operation("compare", read, read[0], action=action)
    yield _operation("categorical", read[:1], f"action/{action}", action=action)


# ------------------------------------------------------------------ MLP and CNN


def _mlp(width: int, action_space: Actions, config: MLPConfig) -> Iterator[Operation]:
    x = "features"
    if config.norm_inputs:
        yield _normalize("input_norm.", x, "x", width)
        x = "x"
    if config.memory:
        yield from _memory(config.memory, x, width)
        yield _operation("join", (x, "memory"), "x")
        x = "x"
    sizes = (width + config.memory, *config.hidden)
    yield from _layers("policy_net.", x, "policy", sizes, "tanh")
    yield from _layers("value_net.", x, "value", sizes, "tanh")
    yield from _flat_heads(action_space, "policy", "value", sizes[-1])


def _cnn(picture: Picture, action_space: Actions) -> Iterator[Operation]:
    channels = picture.shape[2]
    yield _normalize("picture_norm.", "picture", "x", channels)
    for i, (num_outputs, kernel, stride) in enumerate(picture.config.layers or ()):
        shapes = {"weight": (num_outputs, channels, kernel, kernel), "bias": (num_outputs,)}
        layer = f"convolutions.{2 * i}."
        constants = {"stride": stride, "activation": "relu"}
        yield _operation("convolve", ("x",), "x", layer, shapes, **constants)
        channels = num_outputs
    yield _operation("flatten", ("x",), "x")
    if picture.width:
        yield _operation("join", ("x", "features"), "x")
    if memory := picture.config.memory:
        yield from _memory(memory, "x", picture.num_read)
        yield _operation("join", ("x", "memory"), "x")
    yield from _layers("hidden.", "x", "x", picture.sizes, "relu")
    yield from _flat_heads(action_space, "x", "x", picture.sizes[-1])


def _layers(net: str, x: str, y: str, sizes: Sequence[int], activation: str) -> Iterator[Operation]:
    for i, (num_inputs, num_outputs) in enumerate(pairwise(sizes)):
        yield _linear(f"{net}{2 * i}.", y if i else x, y, num_inputs, num_outputs, activation)


def _flat_heads(action_space: Actions, x: str, of_value: str, width: int) -> Iterator[Operation]:
    for action in action_space:
        yield from _label_head(action, action_space, x, width, x)
    yield _linear("value_head.", of_value, "value", width, 1)
    yield _value_scale("value_scale.")


class Picture(NamedTuple):
    """Inputs of a CNN.

    Args:
        name: the entity type that is a picture.
        shape: height, width and channels.
        config: sizes of the network, none of them None.
        width: length of the vector of all other features.
        num_convolved: numbers in the last convolution's output.
    """

    name: EntityName
    shape: tuple[int, int, int]
    config: CNNConfig
    width: int
    num_convolved: int

    @classmethod
    def of(cls, obs_space: ObsSpace, action_space: Actions, config: CNNConfig) -> Picture:
        """The inputs for these spaces.

        Raises:
            SchemaError: the spaces are not flat or do not have exactly one picture, or the picture
                is too small for a kernel.
        """
        name = picture_of(obs_space)
        width = FlatFeatures(obs_space, action_space, name).width
        shape = None if name is None else obs_space.entities[name].shape
        if name is None or shape is None:
            found = ", ".join(name for name, each in obs_space.entities.items() if each.shape)
            raise SchemaError(
                f"a CNN needs exactly one entity that is a picture, got {found or 'none'}: "
                "declare its shape, as Entity(features, is_single=True, shape=(height, width, "
                "channels)), or use an MLP"
            )
        config = config.of_shape(shape)
        return cls(name, shape, config, width, prod(config.out_sizes(shape)[-1]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs of the layers after the convolutions, then the width of each layer."""
        return (self.num_read + self.config.memory, *(self.config.hidden or ()))

    @property
    def num_read(self) -> int:
        """Numbers in the last convolution's output, and all other features."""
        return self.num_convolved + self.width
