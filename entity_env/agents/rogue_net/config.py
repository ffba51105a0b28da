"""Sizes and options of a RogueNet, an MLP and a CNN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Final, TypeAlias

from entity_env.core.validation import OneOf, Range, check_settings
from entity_env.errors import CheckpointError, SchemaError, UsageError, shown

MAX_LAYERS: Final = 1000
MAX_WIDTH: Final = 1 << 16
"""Largest `d_model`, `n_head` and `d_qk`."""
MAX_MEMORY: Final = 4096
"""Largest `memory`."""
MAX_NUMBERS: Final = 1 << 28
"""Maximum number of parameters of a network: 1 GiB of float32."""
GATES: Final = OneOf(("linear", "relu", "gelu", "sigmoid"))
"""Activations of value gates."""
POOLINGS: Final = OneOf(("mean", "max", "meanmax"))
"""Poolings that can replace attention."""

MAX_BUCKETS: Final = 1_000_000
_LEAST_SCALE: Final = 1e-30
"""Below this, the inverse times the largest position might not be a number."""
_OFF_AT_ZERO: Final = ("dropout", "memory")
"""Settings of a RogueNet that files leave out if they are 0."""

MAX_POSITIONS: Final = 16

Names: TypeAlias = Sequence[str]
_Width: TypeAlias = Annotated[int, Range(1, MAX_WIDTH)]
_Memory: TypeAlias = Annotated[int, Range(0, MAX_MEMORY)]


@dataclass(frozen=True)
class RelposEncodingConfig:
    """Relative positions in attention, as in rogue-net 0.1.9.

    Every pair of entities falls into a bucket, which has a learned key and value. Buckets are cells
    of a grid; with `radial`, angles; with `distance`, rings; with both, angles within rings.

    Args:
        extent: for a grid, the largest distance in cells per position feature; otherwise the
            number of angles, the number of rings, or both in this order.
        position_features: names of the position features of every entity.
        scale: size of a cell or ring.
        per_entity_values: values also depend on the type of the key entity.
        exclude_entities: types without a position; as in rogue-net, these must not be types of the
            game.
        value_relpos_projection, key_relpos_projection: also adds a learned projection of the
            relative position to the values or keys.
        per_entity_projections: one projection per type. As in rogue-net, the sum of all of them is
            added for queries of the first type, and nothing for other queries.
        radial: use buckets by angle.
        distance: use buckets by distance.
        rotation_vec_features: two features, the direction of an entity; angles are relative to the
            direction.
        rotation_angle_feature: the direction as one angle, in radians. The direction of a type
            without direction features is 0.
        interpolate: interpolates between neighboring angles or rings.
        value_gate: activation of the gate, a projection of the key entity that multiplies the
            values: "linear", "relu", "gelu" or "sigmoid"; None = no gate.
        enable_negative_distance_weight_bug: weights beyond the last ring are extrapolated, as in
            configurations before version 4.

    Raises:
        UsageError: settings that contradict each other.
    """

    extent: Sequence[Annotated[int, Range(0, MAX_BUCKETS)]]
    position_features: Names
    scale: Annotated[float, Range(0, is_above=True)] = 1.0
    per_entity_values: bool = False
    exclude_entities: Names = ()
    value_relpos_projection: bool = False
    key_relpos_projection: bool = False
    per_entity_projections: bool = False
    radial: bool = False
    distance: bool = False
    rotation_vec_features: Names | None = None
    rotation_angle_feature: str | None = None
    interpolate: bool = False
    value_gate: Annotated[str | None, GATES] = "relu"
    enable_negative_distance_weight_bug: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        _require_buckets(self)
        _require_positions(self.position_features)
        _require_rotation(self.rotation_vec_features, self.rotation_angle_feature)
        expected = self.radial + self.distance or len(self.position_features)
        if len(self.extent) != expected:
            raise UsageError(
                f"extent must have length {expected} for {self.kind} buckets of the positions "
                f"{', '.join(self.position_features)}: got {list(self.extent)}"
            )
        _require_kind(self)

    def __str__(self) -> str:
        """The syntax of --relpos, `x=10,y=10`, or TOML (see --set-train) for more settings."""
        own = {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }
        if own.keys() == {"extent", "position_features"}:
            pairs = zip(self.position_features, self.extent, strict=True)
            return ",".join(f"{name}={cells}" for name, cells in pairs)
        return "{" + ", ".join(f"{name}={json.dumps(each)}" for name, each in own.items()) + "}"

    @property
    def kind(self) -> str:
        """Kind of buckets: "grid", "radial", "distance" or "polar"."""
        if self.radial:
            return "polar" if self.distance else "radial"
        return "distance" if self.distance else "grid"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of buckets per axis."""
        if self.kind == "grid":
            return tuple(2 * extent + 1 for extent in self.extent)
        return tuple(self.extent)

    @property
    def num_buckets(self) -> int:
        return math.prod(self.sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Difference between the indices of neighboring buckets, per axis."""
        return tuple(math.prod(self.sizes[:axis]) for axis in range(len(self.sizes)))

    @property
    def has_projection(self) -> bool:
        """True if positions themselves are also projected."""
        return self.value_relpos_projection or self.key_relpos_projection


@dataclass(frozen=True)
class TranslationConfig:
    """Moves positions so that a reference entity is at the origin, as in rogue-net 0.1.9.

    Args:
        reference_entity: type of the reference entity. An observation with entities to move must
            contain exactly one. The features of the reference entity do not change.
        position_features: names of the position features; types without them do not change.
        rotation_vec_features: two features, the direction of the reference as a unit vector:
            positions are rotated to make it point along the first axis.
        rotation_angle_feature: the direction as one angle, in radians.
        add_dist_feature: adds the distance to the reference as the last feature of moved types.

    Raises:
        UsageError: settings that contradict each other.
    """

    reference_entity: str
    position_features: Names
    rotation_vec_features: Names | None = None
    rotation_angle_feature: str | None = None
    add_dist_feature: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        _require_positions(self.position_features)
        _require_rotation(self.rotation_vec_features, self.rotation_angle_feature)
        if self.is_rotated and len(self.position_features) != 2:
            raise UsageError(
                f"expected two position features to rotate, got {len(self.position_features)}: "
                f"{', '.join(self.position_features)}"
            )

    @property
    def is_rotated(self) -> bool:
        return self.rotation_vec_features is not None or self.rotation_angle_feature is not None


def _require_buckets(config: RelposEncodingConfig) -> None:
    if config.kind != "grid" and 0 in config.extent:
        raise UsageError(
            f"extent must be integers from 1 to {MAX_BUCKETS}, got {shown(config.extent)}"
        )
    if len(config.extent) > MAX_POSITIONS:
        raise UsageError(
            f"extent must be at most {MAX_POSITIONS} integers, got {len(config.extent)}"
        )
    if config.scale < _LEAST_SCALE:
        raise UsageError(f"scale must be at least {_LEAST_SCALE}, got {config.scale}")
    if config.num_buckets > MAX_BUCKETS:
        raise UsageError(
            f"extent {list(config.extent)} makes {config.num_buckets} buckets, at most "
            f"{MAX_BUCKETS} are allowed"
        )


def _require_kind(config: RelposEncodingConfig) -> None:
    """Refuses combinations that rogue-net cannot run."""
    num_positions = len(config.position_features)
    if not num_positions:
        raise UsageError("position_features must name at least one feature")
    if config.radial:
        if config.rotation_vec_features is None and config.rotation_angle_feature is None:
            raise UsageError(
                "radial positions are relative to a direction: set rotation_vec_features or "
                "rotation_angle_feature"
            )
        if num_positions < 2:
            raise UsageError("radial positions need two position features, got one")
    if config.kind == "grid" and config.interpolate:
        raise UsageError("positions in a grid cannot be interpolated")
    if config.has_projection and num_positions != 2:
        raise UsageError(f"projections need two position features, got {num_positions}")


def _require_positions(names: Names) -> None:
    if len(names) > MAX_POSITIONS:
        raise UsageError(
            f"position_features has {len(names)} names, at most {MAX_POSITIONS} are allowed"
        )


def _require_rotation(vector: Names | None, angle: str | None) -> None:
    if vector is not None and len(vector) != 2:
        raise UsageError(f"rotation_vec_features needs two names, got {shown(list(vector))}")
    if vector is not None and angle is not None:
        raise UsageError("set rotation_vec_features or rotation_angle_feature, not both")


_SIZES: Final = ("d_model", "n_layer", "n_head", "d_qk")


@dataclass(frozen=True)
class RogueNetConfig:
    """Sizes and options of a RogueNet.

    Args:
        d_model: width of an entity embedding; a multiple of `n_head`.
        n_layer: number of transformer blocks; 0 = entities do not see each other.
        n_head: number of attention heads of each block.
        d_qk: width of the queries and keys of select actions.
        relpos_encoding: relative positions in attention; None = none.
        translation: moves positions so that one entity is at the origin; None = no move.
        separate_value: the value has its own network, of the same size, instead of a head on the
            policy's network.
        value_scale: the value head predicts normalized returns, see `ValueScale`.
        pooling: "mean", "max" or "meanmax" of all visible entities instead of attention, at a cost
            that grows linearly with their number; None = attention. Excludes `relpos_encoding`, and
            `n_head` has no effect.
        dropout: share of activations (of embeddings, attention weights and the output of each
            layer) that are zeroed in training; 0 = none. Never used while acting.
        memory: numbers that the network remembers from one decision of an episode to the next, see
            `Past`; 0 = it decides on each observation alone. With `separate_value`, the value
            network has a memory of the same size.

    `relpos_encoding` and `translation` may also be given as JSON objects.

    Raises:
        UsageError: a size is invalid or beyond `MAX_LAYERS`, `MAX_WIDTH` or `MAX_NUMBERS`, or
            options contradict each other.
    """

    d_model: _Width = 32
    n_layer: Annotated[int, Range(0, MAX_LAYERS)] = 2
    n_head: _Width = 2
    d_qk: _Width = 16
    relpos_encoding: RelposEncodingConfig | None = None
    translation: TranslationConfig | None = None
    separate_value: bool = False
    value_scale: bool = False
    pooling: Annotated[str | None, POOLINGS] = None
    dropout: Annotated[float, Range(0, 1, is_below=True)] = 0.0
    memory: _Memory = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if self.pooling is not None and self.relpos_encoding is not None:
            raise UsageError("pooling cannot be combined with relpos_encoding (--relpos)")
        if self.d_model % self.n_head:
            raise UsageError(
                f"d_model must be a multiple of n_head: got d_model {self.d_model} "
                f"with n_head {self.n_head}"
            )
        if 12 * self.d_model**2 * self.n_layer > MAX_NUMBERS:
            raise UsageError(
                f"{self.n_layer} layers with d_model {self.d_model} have more than {MAX_NUMBERS} "
                "parameters: choose a smaller network"
            )

    @property
    def d_head(self) -> int:
        """Width of an attention head's queries, keys and values."""
        return self.d_model // self.n_head

    def to_json(self) -> dict[str, object]:
        """JSON, without options that are off."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value is not False and (name not in _OFF_AT_ZERO or value)
        }

    @classmethod
    def from_json(cls, data: object) -> RogueNetConfig:
        """Reads the JSON of `to_json`.

        Raises:
            UsageError: a size is missing, or a setting is unknown or invalid.
        """
        known = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or not set(_SIZES) <= set(data) <= known:
            got = ", ".join(map(str, data))[:200] if isinstance(data, dict) else shown(data)
            raise UsageError(
                f"the network needs {', '.join(sorted(_SIZES))} and may have "
                f"{', '.join(sorted(known - set(_SIZES)))}; got {got}"
            )
        return cls(**data)


@dataclass(frozen=True)
class MLPConfig:
    """Sizes and options of an `MLPPolicy`.

    Args:
        hidden: widths of the hidden layers, at least one, of both the policy and the value.
        norm_inputs: features are normalized by their running mean and deviation, see `InputNorm`.
            In a file, a missing setting means false, as in networks of earlier releases.
        memory: as for `RogueNetConfig`; the policy and the value read the same memory.

    Raises:
        UsageError: no width or more than `MAX_LAYERS`, or a width that is not an integer from 1 to
            `MAX_WIDTH`; `norm_inputs` that is neither true nor false; `memory` above `MAX_MEMORY`.
    """

    hidden: Sequence[_Width] = (64, 64)
    norm_inputs: bool = True
    memory: _Memory = 0

    def __post_init__(self) -> None:
        check_settings(self)
        if not 0 < len(self.hidden) <= MAX_LAYERS:
            raise UsageError(f"hidden needs 1 to {MAX_LAYERS} widths, got {len(self.hidden)}")

    def to_json(self) -> dict[str, object]:
        """JSON, without unused options."""
        normed = {"norm_inputs": True} if self.norm_inputs else {}
        return {"hidden": list(self.hidden), **normed, **_memory_json(self.memory)}


CNN_LAYERS: Final = {
    36: (((32, 8, 4), (64, 4, 2), (64, 3, 1)), (512,)),
    16: (((32, 4, 2), (64, 4, 2)), (256,)),
    1: (((16, 3, 1), (32, 3, 1)), (128,)),
}
"""Default layers and hidden widths of a `CNNConfig`, by the minimum length in pixels of the
picture's shorter side. Those for large pictures are from Mnih et al., "Human-level control through
deep reinforcement learning" (2015).
"""
_MAX_KERNEL: Final = 1024


@dataclass(frozen=True)
class CNNConfig:
    """Sizes of a `CNNPolicy`.

    Args:
        layers: channels, kernel size and stride of every convolution; None = chosen by the size of
            the picture, see `CNN_LAYERS`.
        hidden: widths of the hidden layers after the convolutions, which also read all other
            features; None = chosen by the size of the picture. May be empty.
        memory: as for `MLPConfig`. It reads the output of the convolutions and all other features.

    Raises:
        UsageError: `layers` is empty or has a layer that is not three integers above 0, or a size
            or the number of layers is too large.
    """

    layers: Sequence[Sequence[_Width]] | None = None
    hidden: Sequence[_Width] | None = None
    memory: _Memory = 0

    def __post_init__(self) -> None:
        check_settings(self)
        layers = self.layers
        if layers is not None and not (
            0 < len(layers) <= MAX_LAYERS
            and all(len(each) == 3 and max(each[1:]) <= _MAX_KERNEL for each in layers)
        ):
            raise UsageError(
                "layers needs channels, kernel size and stride of one or more convolutions, "
                f"kernels and strides of at most {_MAX_KERNEL}: got {shown(layers)}"
            )
        if self.hidden is not None and len(self.hidden) > MAX_LAYERS:
            raise UsageError(
                f"hidden has {len(self.hidden)} widths, at most {MAX_LAYERS} are allowed"
            )

    def of_shape(self, shape: tuple[int, int, int]) -> CNNConfig:
        """A copy with all sizes set, for pictures of this height, width and number of channels."""
        side = min(shape[:2])
        layers, hidden = next(each for least, each in CNN_LAYERS.items() if side >= least)
        if self.layers is not None:
            layers = self.layers  # type: ignore[assignment]  # checked
        elif side < 5:
            layers = tuple((channels, min(kernel, side), 1) for channels, kernel, _ in layers[:1])
        return replace(self, layers=layers, hidden=hidden if self.hidden is None else self.hidden)

    def out_sizes(self, shape: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """Channels, height and width after every convolution; all sizes must be set.

        Raises:
            SchemaError: a kernel is larger than its input.
        """
        height, width, _ = shape
        sizes: list[tuple[int, int, int]] = []
        for channels, kernel, stride in self.layers or ():
            if kernel > min(height, width):
                raise SchemaError(
                    f"convolution {len(sizes) + 1} has a kernel of {kernel}, but reads {height} x "
                    f"{width} pixels: choose other layers for pictures of {shape[0]} x {shape[1]}"
                )
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
            sizes.append((channels, height, width))
        return sizes

    def to_json(self) -> dict[str, object]:
        return {
            "layers": None if self.layers is None else [list(each) for each in self.layers],
            "hidden": None if self.hidden is None else list(self.hidden),
            **_memory_json(self.memory),
        }


def _memory_json(memory: int) -> dict[str, object]:
    """Networks without memory are the same in files as in releases that had none."""
    return {"memory": memory} if memory else {}


@dataclass(frozen=True)
class OwnNetConfig:
    """Stands for a network of a custom class, which only the program with the class can create.

    Args:
        name: module and name of the class.
    """

    name: str

    def to_json(self) -> dict[str, object]:
        return {"class": self.name}


NetConfig: TypeAlias = RogueNetConfig | MLPConfig | CNNConfig | OwnNetConfig


def state_width(config: NetConfig) -> int:
    """Number of remembered numbers, of the policy and a separate value network together."""
    memory: int = getattr(config, "memory", 0)
    return 2 * memory if isinstance(config, RogueNetConfig) and config.separate_value else memory


def require_same_net(old: NetConfig, wanted: NetConfig, where: str) -> None:
    """Checks that a network has the wanted kind and size.

    `dropout` and `value_scale` may differ, because behavior does not depend on them. A network
    without memory can get one.

    Raises:
        CheckpointError: kind or size differ; the message names both networks' values.
    """
    if not state_width(old) and type(old) is type(wanted) and not isinstance(old, OwnNetConfig):
        old = replace(old, memory=getattr(wanted, "memory", 0))
    if isinstance(old, RogueNetConfig) and isinstance(wanted, RogueNetConfig):
        wanted = replace(wanted, dropout=old.dropout, value_scale=old.value_scale)
    if old == wanted:
        return
    found = f"it is of kind {_kind(old)}, but {_kind(wanted)} was requested"
    if type(old) is type(wanted):
        found = "; ".join(
            f"its {each.name} is {getattr(old, each.name)}, "
            f"but {getattr(wanted, each.name)} was requested"
            for each in fields(old)
            if getattr(old, each.name) != getattr(wanted, each.name)
        )
    raise CheckpointError(
        f"{where} has a network of a different size: {found}. Leave out those options, or train "
        "from scratch"
    )


def _kind(config: NetConfig) -> str:
    return type(config).__name__.removesuffix("Config")


def stored_net(data: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Kind ("rogue_net", "mlp" or "cnn") and fields of a network's configuration in a file.

    Missing fields get values without effect, which are not always the class defaults.
    """
    if "layers" in data:
        return "cnn", dict(data)
    if "hidden" in data:
        return "mlp", {"norm_inputs": False, **data}
    return "rogue_net", dict(data)


def net_from_json(data: object) -> NetConfig:
    """Reads the JSON of any network's `to_json`; raises `UsageError`."""
    if isinstance(data, dict) and {"hidden"} <= set(data) <= {"hidden", "norm_inputs", "memory"}:
        return MLPConfig(**stored_net(data)[1])  # type: ignore[arg-type]  # checked by the class
    if isinstance(data, dict) and {"layers", "hidden"} == set(data) - {"memory"}:
        return CNNConfig(**data)
    if isinstance(data, dict) and set(data) == {"class"}:
        return OwnNetConfig(str(data["class"]))
    return RogueNetConfig.from_json(data)
