"""Transfers weights of a trained network to a changed game, matching names.

Behavior in the common part is preserved: an observation of the old game, shown in the new one, gets
the same values, and the same probabilities among the old choices. One exception: if actions for the
whole observation are new or gone, entities see their actor as one more entity, or no longer do.

- A new feature has weights of zero, and new statistics. A removed feature counts as its mean, or
  as zero if features are not normalized, as in a CNN.
- A new entity type gets the mean embedding of the old types, whatever its features: an untrained
  embedding can upset everything that attends to it.
- A new action, and a new number of a continuous action, starts untrained.
- A new choice of an action starts with the mean logit of the others: its probability is their
  geometric mean. A removed choice leaves its share to the others.
- Changed bounds of a continuous action do not change the samples, apart from clipping.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.changes import (
    NO_EFFECT,
    NameChanges,
    is_same_kind,
    labels_of,
    rename_hint,
    space_changes,
)
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, RogueNetConfig, state_width
from entity_env.agents.rogue_net.features import DISTANCE_FEATURE, Inputs
from entity_env.agents.rogue_net.numpy_net.distributions import middle_and_half
from entity_env.agents.rogue_net.operations import (
    RELATIONS,
    RELPOS,
    VALUE_NET,
    Picture,
    projections,
)
from entity_env.agents.rogue_net.weights import MEMORY_GATES, Tensors, Weights, value_head
from entity_env.core.ragged import Floats
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ContinuousActionSpace,
    EntityName,
    SelectEntityActionSpace,
    Spaces,
    briefly,
    differences,
    entity_widths,
)
from entity_env.errors import CheckpointError

Column: TypeAlias = tuple[EntityName, str]
"""A feature of an entity type, or of `GLOBAL_ENTITY`."""

_LINEAR: Final = ("weight", "bias")
_STATISTICS: Final = ("count", "mean", "squares_sum")
_EMBEDDING: Final = "embedding.embeddings."
_INPUT_NORM: Final = "input_norm."
_MAX_LISTED: Final = 5
_EPSILON: Final = 1e-5
"""Added to the variance in a layer norm, as in torch."""
_LEAST_DEVIATION: Final = 1e-6
"""A float32 feature with a smaller deviation, relative to its mean, was constant up to rounding."""


@dataclass(frozen=True)
class Transferred:
    """Parameters for the new spaces.

    Args:
        tensors: by name, as in `expected_tensors` of the new network.
        is_new: `(num_features,)` bool per `InputNorm`, by the prefix of its tensors: True for
            features with new statistics.
    """

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    is_new: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


def require_transferable(old: Weights, spaces: Spaces, *, adapt: bool, where: str) -> list[str]:
    """Checks that a network can initialize one for other spaces.

    Returns the sentences of `space_changes`, and one each for features that never varied and for
    values that were not trained or were left out by an export.

    Args:
        adapt: the spaces may differ.
        where: name of the network, for errors.

    Raises:
        CheckpointError: the spaces differ without `adapt`, have nothing in common, or have a
            picture of another size. The message names the differences.
    """
    theirs = (old.obs_space, old.action_space)
    found = differences(theirs, spaces)
    if not found:
        return _untrained(old, spaces)
    if not adapt:
        hint = rename_hint(theirs, spaces)
        renames = f"{hint[0].upper()}{hint[1:]}. " if hint else ""
        raise CheckpointError(
            f"{where} was trained for a different game: {briefly(found)}. {renames}Add --adapt "
            "(in Python adapt=True): parts in both games are kept, and only new parts start "
            "untrained"
        )
    if problem := untransferable(theirs, spaces):
        raise CheckpointError(f"{where} {problem}")
    return [*space_changes(theirs, spaces), *_untrained(old, spaces)]


def fine_tuning(path: str | PurePath) -> str:
    """How to continue with the network at a path, for a game that has changed."""
    return (
        "fine-tune it for this game: entity-env train GAME --init-from "
        f"{shlex.quote(str(path))} --adapt --out runs/new, in Python train(..., "
        f"policy=initialized_from({str(path)!r}, adapt=True))"
    )


def untransferable(theirs: Spaces, spaces: Spaces) -> str:
    """Why a network for `theirs` cannot start one for `spaces`, even with `adapt`; "" if it can."""
    (old_obs, old_actions), (obs_space, action_space) = theirs, spaces
    common = old_obs.entities.keys() & obs_space.entities.keys()
    if not common and not old_actions.keys() & action_space.keys():
        return (
            "has no entity and no action in common with the game, so there is nothing to start "
            f"from: {'; '.join(differences(theirs, spaces))}"
        )
    for name in sorted(common):
        before, after = old_obs.entities[name].shape, obs_space.entities[name].shape
        if before != after:
            return (
                f"cannot be adapted: {name} is {_size(after)}, was {_size(before)}, and pixels of "
                "another size mean something else; train from scratch"
            )
    return ""


def _untrained(old: Weights, spaces: Spaces) -> list[str]:
    found = [] if old.has_value else ["the values were never trained, or left out by an export"]
    for name, entity in spaces[0].entities.items():
        constant = [each for each in _constant_features(old, name) if each in entity.features]
        if len(constant) == 1:
            found.append(f"feature {name}.{constant[0]} has never changed: {NO_EFFECT}")
        elif constant:
            more = len(constant) - _MAX_LISTED
            listed = ", ".join(constant[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
            found.append(f"features of {name} have never changed: {listed}: {NO_EFFECT}")
    return found


def _constant_features(old: Weights, name: EntityName) -> list[str]:
    """Features of an entity type that were constant; [] if features are not normalized."""
    columns, prefix = _flat_columns(old), _INPUT_NORM
    if isinstance(old.config, RogueNetConfig):
        columns, prefix = _columns(old).get(name, []), f"{_EMBEDDING}{name}.0."
    if f"{prefix}mean" not in old.tensors:
        return []
    varied = _varied(_statistics(old.tensors, prefix))
    pairs = zip(columns, varied, strict=True)
    return [feature for (owner, feature), flag in pairs if owner == name and not flag]


def _size(shape: tuple[int, int, int] | None) -> str:
    return "no picture" if shape is None else "a picture of " + " x ".join(map(str, shape))


def transfer(old: Weights, fresh: Weights) -> Transferred:
    """Parameters for `fresh` that behave like `old`, see the module; or raises `CheckpointError`.

    Args:
        fresh: an untrained network of equal kind and size; parameters without a source keep its
            values. If only it has a memory, nothing reads it at first.
    """
    if state_width(fresh.config) > state_width(old.config):
        found = transfer(old, fresh.without_memory())
        return replace(found, tensors=fresh.with_memory_beside(found.tensors))
    if isinstance(fresh.config, RogueNetConfig):
        return _rogue_net(old, fresh)
    return _flat(old, fresh)


# ------------------------------------------------------------------ RogueNet


def _rogue_net(old: Weights, fresh: Weights) -> Transferred:
    config = fresh.rogue_net_config()
    found = Transferred()
    columns = _columns(fresh)
    _embeddings(old, fresh, columns, found)
    if config.relpos_encoding is not None:
        _relpos(old, fresh, [*columns], found)
    if config.separate_value:
        apart = _rogue_net(old.value_net(), fresh.value_net())
        found.tensors.update({VALUE_NET + name: each for name, each in apart.tensors.items()})
        found.is_new.update({VALUE_NET + name: each for name, each in apart.is_new.items()})
    for name in fresh.action_space:
        found.tensors.update(_head(name, old, fresh))
    if not config.separate_value:
        found.tensors.update(_value_head(old, fresh, "auxiliary_heads.value"))
    return _completed(found, old, fresh)


def _completed(found: Transferred, old: Weights, fresh: Weights) -> Transferred:
    """Adds the tensors that do not depend on spaces; the first relations have no effect yet."""
    for name, tensor in fresh.tensors.items():
        if name not in found.tensors:
            start = np.zeros_like(tensor) if name.startswith(f"{RELATIONS}proj.") else tensor
            found.tensors[name] = np.array(old.tensors.get(name, start), tensor.dtype)
    return found


def _columns(weights: Weights) -> dict[EntityName, list[Column]]:
    config = weights.rogue_net_config()
    inputs = Inputs(weights.obs_space, weights.action_space, config.translation)
    shared = [(GLOBAL_ENTITY, name) for name in weights.obs_space.global_features]
    columns: dict[EntityName, list[Column]] = {}
    for name, width in inputs.widths.items():
        own = () if name == GLOBAL_ENTITY else weights.obs_space.entities[name].features
        own = own[2:] if name in inputs.references else own
        columns[name] = [*((name, each) for each in own), *shared]
        columns[name] += [(name, DISTANCE_FEATURE)] * (width - len(columns[name]))
    return columns


def _embeddings(
    old: Weights, fresh: Weights, columns: Mapping[EntityName, list[Column]], found: Transferred
) -> None:
    theirs = _columns(old)
    trained = {
        name: {
            part: old.tensors[f"{_EMBEDDING}{name}.{part}"] for part in _embedding_parts(columns)
        }
        for name, columns in theirs.items()
    }
    places = {name: _at_means(each) for name, each in trained.items()}
    relations = {*old.obs_space.relations, *fresh.obs_space.relations}
    for name, own in columns.items():
        others = [
            each
            for other, each in places.items()
            if other != GLOBAL_ENTITY and (other in relations) == (name in relations)
        ]
        mean: Floats = np.mean(others or [*places.values()], axis=0, dtype=np.float32)
        prefix = f"{_EMBEDDING}{name}."
        if not own:
            found.tensors[f"{prefix}embedding"] = places.get(name, mean)
            continue
        start = {part: fresh.tensors[prefix + part] for part in _embedding_parts(own)}
        if theirs.get(name):
            tensors, is_new = _with_columns(trained[name], start, theirs[name], own)
        else:
            tensors = _with_features(places.get(name, mean), start)
            is_new = np.ones(len(own), np.bool_)
        found.tensors.update({prefix + part: each for part, each in tensors.items()})
        found.is_new[f"{prefix}0."] = is_new


def _embedding_parts(columns: Sequence[Column]) -> list[str]:
    if not columns:
        return ["embedding"]
    linear = [f"{at}.{part}" for at in (1, 3) for part in _LINEAR]
    return [*(f"0.{part}" for part in _STATISTICS), *linear]


def _with_columns(
    before: Tensors, start: Tensors, old: Sequence[Column], new: Sequence[Column]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """An embedding with other columns; and a mask of columns with new statistics."""
    source = np.array(NameChanges(old, new).source, np.int64)
    statistics, is_new = _with_statistics(_statistics(before, "0."), source)
    tensors = dict(start) | {"1.bias": before["1.bias"]}
    tensors |= {f"0.{part}": each for part, each in statistics.items()}
    tensors |= {f"3.{part}": before[f"3.{part}"] for part in _LINEAR}
    tensors["1.weight"] = np.where(is_new, 0, before["1.weight"][:, source]).astype(np.float32)
    return tensors, is_new | (before["0.count"] < 2)


def _statistics(tensors: Tensors, prefix: str) -> dict[str, NDArray[Any]]:
    return {part: tensors[prefix + part] for part in _STATISTICS}


def _with_statistics(
    before: Tensors, source: NDArray[np.int64]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Statistics of columns from their old places (-1 = new); and a mask of untrained columns.

    Untrained columns are new or were constant. The weights of a constant column were never trained,
    and its deviation of nearly zero would blow up the column as soon as it varies.
    """
    is_new = (source < 0) | ~_varied(before)[source]
    taken = {
        part: np.where(source < 0, 0, before[part][source]).astype(np.float32)
        for part in ("mean", "squares_sum")
    }
    return {"count": before["count"], **taken}, is_new


def _varied(statistics: Tensors) -> NDArray[np.bool_]:
    """`(num_features,)`: False if known to have been constant."""
    count, mean, squares_sum = (statistics[part] for part in _STATISTICS)
    deviation = np.sqrt(squares_sum / np.maximum(count - 1, 1))
    varied: NDArray[np.bool_] = (deviation > _LEAST_DEVIATION * np.abs(mean)) | (count < 2)
    return varied


def _at_means(before: Tensors) -> Floats:
    """`(1, d_model)` embedding of an entity whose features are all at their means."""
    if "embedding" in before:
        return np.array(before["embedding"])
    return (_normed(before["1.bias"]) * before["3.weight"] + before["3.bias"])[None]


def _with_features(embedding: Floats, start: Tensors) -> dict[str, NDArray[Any]]:
    """An embedding whose features have no effect yet."""
    tensors = dict(start)
    tensors["1.weight"] = np.zeros_like(start["1.weight"])
    tensors["3.bias"] = embedding[0] - _normed(start["1.bias"]) * start["3.weight"]
    return tensors


def _normed(bias: Floats) -> Floats:
    """Unscaled layer norm of the ReLU of `bias`, which a linear layer outputs for zero input."""
    hidden = np.maximum(bias, 0)
    normed: Floats = (hidden - hidden.mean()) / np.sqrt(hidden.var() + np.float32(_EPSILON))
    return normed


def _relpos(old: Weights, fresh: Weights, names: list[EntityName], found: Transferred) -> None:
    """Tables and projections with parts per type; a new type gets a table's mean part, or zeros."""
    relpos = fresh.rogue_net_config().relpos_encoding
    if relpos is None:
        return
    before = [*_columns(old)]
    source = NameChanges(before, names).source
    if relpos.per_entity_projections and before[0] != names[0]:
        raise CheckpointError(
            f"the first entity type is {names[0]}, was {before[0]}: with per_entity_projections, "
            f"relative positions apply to entities of the first type; keep {before[0]} first"
        )

    def rows(name: str, num_each: int) -> None:
        table = fresh.tensors[RELPOS + name].copy()
        blocks = table.reshape(len(names), num_each, -1)
        theirs = old.tensors[RELPOS + name].reshape(len(before), num_each, -1)
        for i, at in enumerate(source):
            blocks[i] = theirs[at] if at >= 0 else theirs.mean(axis=0)
        found.tensors[RELPOS + name] = table

    rows("distance_values.weight", 1)
    if relpos.per_entity_values:
        rows("values.weight", relpos.num_buckets)
    if relpos.has_projection:
        found.is_new[f"{RELPOS}relpos_norm."] = np.zeros(3, np.bool_)
    if relpos.per_entity_projections:
        # All projections are added up, so keep their sum.
        theirs, mine = ({*projections(relpos, tuple(each))} for each in (before, names))
        for prefix in mine:
            for part in _LINEAR:
                name = f"{RELPOS}{prefix}{part}"
                kept = old.tensors[name] if prefix in theirs else 0 * fresh.tensors[name]
                found.tensors[name] = np.array(kept)
        for prefix in theirs - mine:
            first = f"{prefix.split('.', 1)[0]}.{names[0]}."
            for part in _LINEAR:
                found.tensors[f"{RELPOS}{first}{part}"] += old.tensors[f"{RELPOS}{prefix}{part}"]


# ------------------------------------------------------------------ heads


def _value_head(old: Weights, fresh: Weights, name: str) -> dict[str, NDArray[Any]]:
    """Tensors of the value head, with a return scale if the new network has one."""
    tensors, scale = old.tensors, f"{name}_scale."
    mine = [f"{name}.{part}" for part in _LINEAR]
    has_old, has_new = (f"{scale}mean" in each.tensors for each in (old, fresh))
    if has_old and not has_new:
        return dict(zip(mine, value_head(tensors), strict=True))
    if has_new and not has_old:
        mine += [f"{scale}mean", f"{scale}std"]
        tensors = {**fresh.tensors, **tensors}  # 0 and 1: no effect
    return {each: np.array(tensors[each]) for each in mine}


def _head(name: ActionName, old: Weights, fresh: Weights) -> dict[str, NDArray[Any]]:
    space, theirs = fresh.action_space[name], old.action_space.get(name)
    prefix = f"action_heads.{name}."
    is_select = isinstance(space, SelectEntityActionSpace)
    layers = ("query_proj", "key_proj") if is_select else ("proj",)
    parts = [f"{layer}.{part}" for layer in layers for part in _LINEAR]
    if isinstance(space, ContinuousActionSpace):
        parts.append("log_std")
    mine = {part: fresh.tensors[prefix + part] for part in parts}
    labels = NameChanges(() if theirs is None else labels_of(theirs), labels_of(space))
    if theirs is not None and is_same_kind(theirs, space) and (is_select or labels.kept):
        before = {part: old.tensors[prefix + part] for part in parts}
        if is_select:
            mine = before
        elif isinstance(space, ContinuousActionSpace) and isinstance(theirs, ContinuousActionSpace):
            mine = _numbers(before, mine, labels, theirs, space)
        else:
            mine = {part: _choices(before[part], labels) for part in parts}
    found = {prefix + part: np.array(each) for part, each in mine.items()}
    return found | _conditioning(name, old, fresh)


def _conditioning(name: ActionName, old: Weights, fresh: Weights) -> dict[str, NDArray[Any]]:
    """Tensors for earlier choices; new choices and actions have no effect at first."""
    prefix, given = f"conditionings.{name}.", fresh.action_space[name].given
    layers = [f"{prefix}{layer}.{part}" for layer in ("hidden", "out") for part in _LINEAR]
    found = {each: old.tensors.get(each, fresh.tensors[each]) for each in layers if given}
    if f"{prefix}out.weight" not in old.tensors:
        found |= {each: np.zeros_like(found[each]) for each in found if ".out." in each}
    for other in given:
        weight, bias = (f"{prefix}choices.{other}.{part}" for part in _LINEAR)
        space, theirs = fresh.action_space[other], old.action_space.get(other)
        found |= {each: np.zeros_like(fresh.tensors[each]) for each in (weight, bias)}
        if theirs is None or not is_same_kind(theirs, space) or weight not in old.tensors:
            continue
        found[bias] = old.tensors[bias]
        source = np.arange(found[weight].shape[1])
        if not isinstance(space, SelectEntityActionSpace):
            source = np.array(NameChanges(labels_of(theirs), labels_of(space)).source)
        found[weight][:, source >= 0] = old.tensors[weight][:, source[source >= 0]]
    return {each: np.array(tensor) for each, tensor in found.items()}


def _choices(before: Floats, labels: NameChanges) -> Floats:
    """Rows of the choices; a new row, and so its logits, is the mean of the remaining rows."""
    source = np.array(labels.source)
    rows: Floats = before[source]
    rows[source < 0] = rows[source >= 0].mean(axis=0)
    return rows


def _numbers(
    before: Tensors,
    start: Tensors,
    labels: NameChanges,
    old: ContinuousActionSpace,
    new: ContinuousActionSpace,
) -> dict[str, NDArray[Any]]:
    """Rows of a continuous action's numbers, rescaled to keep the samples if the bounds changed.

    Outputs are in units of half the range, from its middle.
    """
    tensors = {part: np.array(each) for part, each in start.items()}
    for i, at in enumerate(labels.source):
        if at < 0:
            continue
        middle, half = middle_and_half(float(new.low[i]), float(new.high[i]))
        theirs, their_half = middle_and_half(float(old.low[at]), float(old.high[at]))
        is_same = (middle, half) == (theirs, their_half)
        scale, shift = (1.0, 0.0) if is_same else (their_half / half, (theirs - middle) / half)
        tensors["proj.weight"][i] = before["proj.weight"][at] * scale
        tensors["proj.bias"][i] = before["proj.bias"][at] * scale + shift
        tensors["log_std"][i] = before["log_std"][at] + np.log(scale)
    return tensors


# ------------------------------------------------------------------ MLP and CNN


def _flat(old: Weights, fresh: Weights) -> Transferred:
    found = Transferred()
    columns, theirs = _flat_columns(fresh), _flat_columns(old)
    heads: dict[str, NDArray[Any]] = {}
    for name in fresh.action_space:
        heads |= _head(name, old, fresh)
    found.tensors.update(heads | _value_head(old, fresh, "value_head"))
    readers = ["policy_net.0.weight", "value_net.0.weight"]
    num_before = 0
    if isinstance(fresh.config, CNNConfig):
        picture = Picture.of(fresh.obs_space, fresh.action_space, fresh.config)
        num_before = picture.num_convolved
        found.is_new["picture_norm."] = np.zeros(picture.shape[2], np.bool_)
        readers = ["hidden.0.weight"]
        if not picture.config.hidden:
            if columns != theirs:
                raise CheckpointError(
                    "a CNN without hidden layers cannot be adapted to other features: train from "
                    "scratch"
                )
            readers = []
    source = np.array(NameChanges(theirs, columns).source, np.int64)
    is_new = source < 0
    if isinstance(fresh.config, MLPConfig) and fresh.config.norm_inputs:
        statistics, is_new = _with_statistics(_statistics(old.tensors, _INPUT_NORM), source)
        found.tensors.update({_INPUT_NORM + part: each for part, each in statistics.items()})
        found.is_new[_INPUT_NORM] = is_new | (statistics["count"] < 2)
    if readers and state_width(fresh.config):
        readers.append(MEMORY_GATES)
    for name in readers:
        places = [num_before, num_before + len(theirs)]
        kept, taken, remembered = np.split(old.tensors[name], places, axis=1)
        taken = np.where(is_new, 0, taken[:, source])
        parts = kept, taken, remembered
        found.tensors[name] = np.concatenate(parts, axis=1).astype(np.float32)
    return _completed(found, old, fresh)


def _flat_columns(weights: Weights) -> list[Column]:
    """Features in the vector that an MLP or CNN reads."""
    left_out = None
    if isinstance(weights.config, CNNConfig):
        left_out = Picture.of(weights.obs_space, weights.action_space, weights.config).name
    columns: list[Column] = []
    for name in entity_widths(weights.obs_space, weights.action_space):
        if name == GLOBAL_ENTITY:
            columns += [(name, each) for each in weights.obs_space.global_features]
        elif name != left_out:
            columns += [(name, each) for each in weights.obs_space.entities[name].features]
    return columns
