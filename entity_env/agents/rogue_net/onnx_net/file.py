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

All outputs are float32. Indices of actors and actees count all entities, in the order of the types.
The metadata of the file has `game` (may be empty), `spaces` and `net` as in an `.agent` file, the
`version` of this table, and the `checksum` that an `.agent` file of the network has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, checksum_of
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays, Distribution
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
"""Allowed difference of probabilities from numpy's."""
_MAX_ERROR: Final = 1e-4
"""The same for other outputs, relative to the largest number."""
_NUM_SAMPLES: Final = 24
_DTYPES: Final = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}


def write_onnx(
    path: Path, weights: Weights, *, game: str = "", has_visible: bool = False
) -> tuple[str, ...]:
    """Writes a network atomically, after comparing it with `NumpyNet` for random observations.

    Args:
        game: name of the game, for the metadata.
        has_visible: adds the inputs `visible/TYPE`.

    Returns:
        A line for every input and output: its name, dtype and shape.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
        SchemaError: the network cannot be written as ONNX.
        CheckpointError: another suffix, or different results.
        OSError: the file cannot be written.
    """
    if path.suffix != ONNX_SUFFIX:
        raise CheckpointError(f"an ONNX file must be named *{ONNX_SUFFIX}, got {path.name!r}")
    weights.require_fit("the network", "its description")
    content = onnx_bytes(weights, game=game, has_visible=has_visible)
    session = _session_of(content)
    _require_same(weights, session, f"{path} (not written)")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    write_file(path, content)
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
        "checksum": checksum_of(agent_bytes(weights)),
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
    """Raises `CheckpointError` if a result differs from numpy's."""
    names = [each.name for each in session.get_inputs()]
    outputs = [each.name for each in session.get_outputs()]
    net = NumpyNet(weights)
    has_visible = any(name.startswith("visible/") for name in names)
    for batch in sampled_batches(weights, _NUM_SAMPLES, has_visible=has_visible):
        with np.errstate(all="ignore"):  # numbers that are not finite are a difference
            distributions, values = net.distributions(batch)
            expected = {"value": values, **_expected(distributions)}
        given = inputs_of(batch, weights, names)
        try:
            found = dict(zip(outputs, session.run(outputs, given), strict=True))
        except Exception as error:
            raise CheckpointError(
                f"{where}: onnxruntime failed {_counted(given)}: {error}"
            ) from error
        for name in outputs:
            problem = _difference(name, found[name], expected[name])
            if problem:
                raise CheckpointError(
                    f"{where}: {name} of onnxruntime {problem} {_counted(given)}; "
                    "export an .agent file instead"
                )


def _counted(given: Mapping[str, NDArray[Any]]) -> str:
    counts = [
        f"{len(each)} {name.partition('/')[2]}"
        for name, each in given.items()
        if name.startswith("features/")
    ]
    return f"for an observation with {', '.join(counts) or 'no entity types'}"


def _expected(distributions: Mapping[str, Distribution]) -> dict[str, NDArray[np.float32]]:
    found = dict[str, NDArray[np.float32]]()
    for action, each in distributions.items():
        if isinstance(each, CategoricalArrays):
            found[f"logprobs/{action}"] = each.logprobs
            continue
        half = np.float32(0.5) * each.high - np.float32(0.5) * each.low
        middle = np.float32(0.5) * each.high + np.float32(0.5) * each.low
        found[f"mean/{action}"] = middle + half * each.mean
        found[f"std/{action}"] = np.broadcast_to(half * np.exp(each.log_std), each.mean.shape)
    return found


def _difference(name: str, found: NDArray[np.float32], expected: NDArray[np.float32]) -> str:
    """How a result differs; "" if it does not."""
    if not len(expected) and name.startswith(("logprobs/", "mean/", "std/")):
        return ""  # a compared action has no actors: numpy's arrays have other widths
    limit = _MAX_DIFFERENCE
    if name.startswith("logprobs/"):
        found, expected = np.exp(found), np.exp(expected)
    else:
        limit = _MAX_ERROR * max(1.0, float(np.abs(expected).max(initial=0)))
        if len(found) == 1 != len(expected):  # one row for all actors
            found = np.broadcast_to(found, expected.shape)
    if found.shape != expected.shape:
        return f"has the shape {found.shape}, expected {expected.shape}"
    most = float(np.abs(found - expected).max(initial=0))
    return (
        ""
        if most <= limit
        else f"differs by {most:.2g} from numpy's, at most {limit:.2g} is allowed,"
    )
