"""Writes a network as an ONNX file, which computes the decisions for one observation.

| input | shape | dtype | |
|---|---|---|---|
| `features/TYPE` | `(num_TYPE, num_features)` | float32 | for every entity type; may have no rows |
| `globals` | `(num_global_features,)` | float32 | if there are global features |
| `visible/TYPE` | `(num_TYPE,)` | bool | on request; False hides an entity from the policy |
| `actors/ACTION` | `(num_actors,)` | int64 | neither for global actions nor in an MLP or CNN |
| `actees/ACTION` | `(num_actees,)` | int64 | for actions that select entities |
| `mask/ACTION` | `(num_actors, num_choices)` | bool | True = allowed; not for continuous actions |

| output | shape | |
|---|---|---|
| `logprobs/ACTION` | `(num_actors, num_choices)` | log-probabilities; about -1e30 if not allowed |
| `mean/ACTION`, `std/ACTION` | `(num_actors, num_numbers)` | of continuous actions, not clipped |
| `value` | `(1,)` | unless the value is untrained |

A graph cannot refuse: of features that are not finite, or parameters that are too large for an
observation, outputs are NaN or beyond 1e30, where other readers of the network raise an error.
Inputs that have no effect are left out. All outputs are float32. Indices of actors and actees count
all entities, in the order of the types.

The metadata of the file has `game` (may be empty), `spaces` and `net` as in an `.agent` file, the
`version` of this table, and the `checksum` that an `.agent` file of the network has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, agent_checksum
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays, middle_and_half
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.onnx_net.samples import sampled_batches
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.files import write_file
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
    spaces_to_json,
)
from entity_env.core.vec_obs import VecContinuousActionMask, VecSelectEntityActionMask
from entity_env.errors import CheckpointError, MissingExtraError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

ONNX_SUFFIX: Final = ".onnx"
_VERSION: Final = 1
_MAX_DIFFERENCE: Final = 1e-5
"""Allowed difference from numpy's probabilities and numbers."""
_MAX_ROUNDING: Final = 16.0
"""More is allowed if numpy is not that exact itself: this many times the difference that one more
rounding of all parameters makes. Deep and very certain networks multiply rounding errors.
"""
_NUM_SAMPLES: Final = 24
_MAX_NAMED: Final = 5
_DTYPES: Final = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}


def write_onnx(
    path: str | Path, weights: Weights, *, game: str = "", has_visible: bool = False
) -> tuple[str, ...]:
    """Writes a network as an ONNX file, if ONNX Runtime computes the same decisions as numpy.

    Compares them for random observations first; the file is written atomically.

    Args:
        game: name of the game, for the metadata.
        has_visible: adds an input `visible/TYPE` per entity type, with which a program marks
            entities as hidden from the policy. Without it, leave out hidden entities.

    Returns:
        A line for every input and output: its name, dtype and shape.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        SchemaError: the network cannot be written as ONNX.
        CheckpointError: another suffix, or different results.
        OSError: the file cannot be written.
    """
    file = Path(path)
    if file.suffix != ONNX_SUFFIX:
        raise CheckpointError(f"an ONNX file must be named *{ONNX_SUFFIX}, got {file.name!r}")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {file.parent}")
    weights.require_fit("the network", "its description")
    content = onnx_bytes(weights, game=game, has_visible=has_visible)
    session = _session_of(content)
    _require_same(weights, session, f"{file} (not written)")
    write_file(file, content)
    return tuple(
        f"{kind} {each.name}: {_DTYPES[each.type]} ({', '.join(map(str, each.shape))})"
        for kind, ports in (("input", session.get_inputs()), ("output", session.get_outputs()))
        for each in ports
    )


def onnx_bytes(weights: Weights, *, game: str = "", has_visible: bool = False) -> bytes:
    """Content of an ONNX file; arguments and errors as for `write_onnx`."""
    try:
        from entity_env.agents.rogue_net.onnx_net.net import OnnxNet
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    metadata = {
        "game": game,
        "spaces": json.dumps(
            spaces_to_json(weights.obs_space, weights.action_space), ensure_ascii=False
        ),
        "net": json.dumps(weights.config.to_json(), ensure_ascii=False),
        "version": str(_VERSION),
        "checksum": agent_checksum(agent_bytes(weights)),
    }
    graph = OnnxNet(weights, has_visible=has_visible).graph
    content: bytes = graph.model(metadata, version("entity-env")).SerializeToString()
    return content


def _missing(error: ModuleNotFoundError) -> MissingExtraError:
    return MissingExtraError(error.name or "onnx", "onnx", f"a file *{ONNX_SUFFIX}")


def _session_of(content: bytes) -> InferenceSession:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except Exception as error:
        raise CheckpointError(f"onnxruntime cannot read the network: {error}") from error


# ------------------------------------------------------------------ comparison


def inputs_of(batch: Batch, weights: Weights, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The inputs of these names for a batch of one observation.

    Actions that the observation does not request have no actors; for global actions, everything is
    allowed.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, ragged in batch.features.items():
        found[f"features/{name}"] = ragged.values
        seen = batch.visible.get(name)
        found[f"visible/{name}"] = (
            np.ones(len(ragged.values), np.bool_) if seen is None else seen.values
        )
    found["globals"] = np.zeros(len(weights.obs_space.global_features), np.float32)
    for row in batch.features[GLOBAL_ENTITY].values if GLOBAL_ENTITY in batch.features else ():
        found["globals"] = row
    for action, space in weights.action_space.items():
        mask = batch.action_masks[action]
        found[f"actors/{action}"] = mask.actors.values
        if isinstance(mask, VecContinuousActionMask):
            continue
        if isinstance(mask, VecSelectEntityActionMask):
            found[f"actees/{action}"] = mask.actees.values
            num_choices = len(mask.actees.values)
        else:
            num_choices = 0 if isinstance(space, SelectEntityActionSpace) else len(space)
        is_global = isinstance(space, GlobalCategoricalActionSpace)
        shape = 1 if is_global else len(mask.actors.values), num_choices
        given = mask.mask if len(mask.actors.values) else None
        found[f"mask/{action}"] = (
            np.ones(shape, np.bool_) if given is None else given.values.reshape(shape)
        )
    return {name: found[name] for name in names}


def _require_same(weights: Weights, session: InferenceSession, where: str) -> None:
    """Raises `CheckpointError` if results differ from numpy's by more than rounding."""
    names = [each.name for each in session.get_inputs()]
    outputs = [each.name for each in session.get_outputs()]
    net, most = NumpyNet(weights), _MAX_DIFFERENCE
    has_visible = any(name.startswith("visible/") for name in names)
    batches = tuple(sampled_batches(weights, _NUM_SAMPLES, has_visible=has_visible))
    for batch in batches:
        given = inputs_of(batch, weights, names)
        expected = _results(net, batch)
        try:
            found = dict(zip(outputs, session.run(outputs, given), strict=True))
        except Exception as error:
            raise CheckpointError(
                f"{where}: onnxruntime failed {_counted(given)}: {error}"
            ) from error
        for name in outputs:
            difference = _difference(name, found[name], expected[name])
            if difference > most:
                most = max(most, _MAX_ROUNDING * _rounding(weights, batches))
            if difference > most:
                raise CheckpointError(
                    f"{where}: {name} of onnxruntime differs by {difference:.2g} from numpy's "
                    f"{_counted(given)}, expected at most {most:.2g}; export an .agent file instead"
                )


def _rounding(weights: Weights, batches: Sequence[Batch]) -> float:
    """Largest difference if every parameter is the next float32 above or below."""
    rng, low, high = np.random.default_rng(0), np.float32(-np.inf), np.float32(np.inf)
    tensors = {
        name: np.nextafter(each, np.where(rng.random(each.shape) < 0.5, low, high))
        for name, each in weights.tensors.items()
        if each.dtype == np.float32
    }
    nets = NumpyNet(weights), NumpyNet(replace(weights, tensors={**weights.tensors, **tensors}))
    found = [
        _difference(name, other[name], own[name])
        for batch in batches
        for own, other in [[_results(net, batch) for net in nets]]
        for name in own
    ]
    return max((each for each in found if math.isfinite(each)), default=0.0)


def _counted(given: Mapping[str, NDArray[Any]]) -> str:
    """The entities of an observation, for errors."""
    counts = [
        f"{len(rows)} {name.removeprefix('features/')[:80]}"
        for name, rows in given.items()
        if name.startswith("features/") and len(rows)
    ]
    more = ", ..." if len(counts) > _MAX_NAMED else ""
    return f"for an observation with {', '.join(counts[:_MAX_NAMED]) or 'no entities'}{more}"


@np.errstate(all="ignore")
def _results(net: NumpyNet, batch: Batch) -> dict[str, NDArray[Any]]:
    """All outputs, as numpy computes them."""
    distributions, values = net.distributions(batch)
    found: dict[str, NDArray[Any]] = {"value": values}
    for action, each in distributions.items():
        if isinstance(each, CategoricalArrays):
            found[f"logprobs/{action}"] = each.logprobs
            continue
        middle, half = middle_and_half(each.low, each.high)
        found[f"mean/{action}"] = middle + half * each.mean
        found[f"std/{action}"] = np.broadcast_to(half * np.exp(each.log_std), each.mean.shape)
    return found


@np.errstate(all="ignore")
def _difference(name: str, found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference of probabilities, or of numbers relative to the largest one above 1."""
    if not len(expected):  # no actors
        return 0.0
    scale = 1.0
    if not np.isfinite(expected).all():
        return math.inf
    if name.startswith("logprobs/"):
        found, expected = np.exp(found), np.exp(expected)
    else:
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        if len(found) == 1:  # of all actors, in an MLP or CNN
            found = np.repeat(found, len(expected), axis=0)
    if found.shape != expected.shape:
        return math.inf
    most = float(np.abs(found - expected).max(initial=0)) / scale
    return math.inf if math.isnan(most) else most
