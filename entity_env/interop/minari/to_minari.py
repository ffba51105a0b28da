"""to_minari: converts a `Dataset` to a Minari dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import minari
import numpy as np
from minari import MinariDataset
from minari.data_collector import EpisodeBuffer
from numpy.typing import NDArray

from entity_env.agents.imitation import Dataset
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName
from entity_env.core.vec_obs import EntityBatch, VecObs
from entity_env.errors import UsageError
from entity_env.interop.gymnasium.padded import PaddedActions, PaddedEntities

_Tree: TypeAlias = Any
"""An array, or a dict of such trees, as in Minari."""


def to_minari(
    dataset: Dataset,
    dataset_id: str,
    *,
    max_entities: Mapping[EntityName, int] | None = None,
    max_actors: Mapping[ActionName, int] | None = None,
    **metadata: Any,  # noqa: ANN401 - as Minari's function
) -> MinariDataset:
    """Writes decisions as a Minari dataset, to Minari's folder of datasets.

    A Minari episode holds the decisions of one agent in one episode. Observations, actions, their
    spaces and `infos["action_mask"]` match a `GameEnv` with the same `max_entities` and
    `max_actors`; `infos["episode_seed"]` is the `Episode.seed`, if known. The last observation of
    an episode comes from `Dataset.final`. If it is missing there (the recording ended, or the file
    format is older), a terminated episode ends with an observation of zeros. Any other episode then
    loses its last decision, ends with that decision's observation and is marked as truncated; an
    episode of one decision is left out.

    Args:
        dataset: whole episodes; decisions missing from the middle of one are not detected.
        dataset_id: name of the Minari dataset, such as "snake/bot-v0"; it must not exist yet.
        max_entities: limits by type; default: those of `dataset`, for types that vary in number.
        max_actors: maximum number of actors by action; default: the maximum in `dataset`.
        metadata: for `minari.create_dataset_from_buffers`; the default `description` is
            `Dataset.recordings` as JSON.

    Raises:
        SchemaError: more entities or actors than the given maximum.
        UsageError: the end of an episode is missing, no decisions are left, or a name is unknown.
    """
    metadata = {"description": json.dumps(list(dataset.recordings)), **metadata}
    shown, final = _vec_obs(dataset, dataset.obs), _vec_obs(dataset, dataset.final or dataset.obs)
    has_final = np.any([each.lengths > 0 for each in final.features.values()], axis=0)
    has_final &= dataset.final is not None
    both = VecObs.concat([shown, final])
    entities = PaddedEntities(dataset.obs_space, both, _varying(both) | dict(max_entities or {}))
    actions = PaddedActions(dataset.action_space, entities, both, max_actors or {}, "raise")
    columns, ends = (
        _Columns(entities.observe(obs), actions.info(actions.masks(obs))) for obs in (shown, final)
    )
    if dataset.seed is not None:
        columns.infos["episode_seed"] = ends.infos["episode_seed"] = dataset.seed.astype(np.int64)
    chosen = actions.padded(shown, dataset.actions)
    episodes = [
        _episode(dataset, rows, columns, ends, chosen, has_final=bool(has_final[rows[-1]]))
        for rows in _trajectories(dataset)
    ]
    found = [replace(each, id=i) for i, each in enumerate(filter(None, episodes))]
    if not found:
        raise UsageError(
            "no decisions are left: the dataset is empty, or every episode is truncated after its "
            "first decision"
        )
    return minari.create_dataset_from_buffers(
        dataset_id,
        found,
        observation_space=entities.space(),
        action_space=actions.space(),
        **metadata,
    )


class _Columns(NamedTuple):
    observations: _Tree
    infos: dict[str, _Tree]


def _vec_obs(dataset: Dataset, batch: EntityBatch) -> VecObs:
    num = len(dataset)
    return VecObs(
        dict(batch.features),
        dict(batch.visible),
        dict(batch.action_masks),
        np.zeros(num, np.float32),
        np.zeros(num, np.bool_),
        np.zeros(num, np.bool_),
        dataset.episode,
        dataset.agent_id,
    )


def _varying(obs: VecObs) -> dict[EntityName, int]:
    found = {}
    for name, entities in obs.features.items():
        counts = np.unique(entities.lengths[obs.is_ready | (entities.lengths > 0)])
        if name != GLOBAL_ENTITY and (len(counts) != 1 or not counts[0]):
            found[name] = max(1, int(counts.max(initial=0)))
    return found


def _trajectories(dataset: Dataset) -> Iterator[NDArray[np.int64]]:
    """Rows of each agent in each episode, in order."""
    order = np.lexsort((dataset.step, dataset.agent_id, dataset.episode))
    keys = np.stack([dataset.episode, dataset.agent_id])[:, order]
    changes = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    for rows in np.split(order, changes) if len(order) else ():
        if not dataset.terminated[rows[-1]] and not dataset.truncated[rows[-1]]:
            raise UsageError(
                f"episode {dataset.episode[rows[0]]}: the last decision of agent "
                f"{dataset.agent_id[rows[0]]} is missing: keep whole episodes"
            )
        yield rows


def _episode(
    dataset: Dataset,
    rows: NDArray[np.int64],
    columns: _Columns,
    ends: _Columns,
    actions: _Tree,
    *,
    has_final: bool,
) -> EpisodeBuffer | None:
    """One trajectory; None if it has one decision, and neither terminates nor has a next
    observation to end with."""
    last = rows[-1:]
    is_cut = not has_final and not dataset.terminated[last[0]]
    seen, then = (rows[:-1], columns) if is_cut else (rows, ends)
    if not len(seen):
        return None
    if not has_final and not is_cut:  # not recorded, and its value is 0
        then = _Columns(_map(np.zeros_like, ends.observations), _map(np.zeros_like, ends.infos))

    def joined(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([before[seen], after[last]])

    truncated = dataset.truncated[seen].copy()
    truncated[-1] |= is_cut
    return EpisodeBuffer(
        observations=_map(joined, columns.observations, then.observations),
        actions=_map(lambda array: array[seen], actions),
        rewards=dataset.reward[seen],
        terminations=dataset.terminated[seen],
        truncations=truncated,
        infos=_map(joined, columns.infos, then.infos) or None,
    )


def _map(change: Callable[..., NDArray[Any]], tree: _Tree, *others: _Tree) -> _Tree:
    if isinstance(tree, dict):
        return {
            name: _map(change, each, *(other[name] for other in others))
            for name, each in tree.items()
        }
    return change(tree, *others)
