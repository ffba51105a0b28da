"""`Dataset`: decisions of recorded episodes, for training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.imitation.dataset_file import (
    FINAL,
    FLAT,
    FLAT_OPTIONAL,
    Column,
    ColumnKind,
    flat_columns,
    ragged_columns,
    read_dataset,
    shown_columns,
    write_dataset,
)
from entity_env.core.ragged import RaggedArray, chosen_rows
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    Spaces,
    briefly,
    differences,
    entity_widths,
)
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
    concat_entities,
    num_mask_rows,
    wrong_relation,
)
from entity_env.errors import SchemaError, UsageError

_MAX_RECORDINGS: Final = 1000
_PARTS: Final = "actors", "actees", "mask", "per_actor"
_TOLERANCE: Final = 1e-5
"""Tolerance for sums of float32 rewards, relative to the larger of 1 and the largest absolute
sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Decisions of agents, one per row, in arrays that the caller owns.

    A decision is everything that one agent does on one observation. Rows may be in any order:
    `episode`, `agent_id` and `step` define the sequence.

    Args:
        obs_space, action_space: of the game.
        actions: per action one value per actor, in the order of `obs.action_masks[name].actors`:
            int64 index of a label or position in the list of actees, or `(num_actors, num_labels)`
            float32 in the units of the action space.
        reward: `(num_decisions,)` float32, earned until the agent's next decision or, after its
            last one, until the end of its episode.
        terminated: `(num_decisions,)` bool, the episode terminated after this decision.
        truncated: `(num_decisions,)` bool, the episode was truncated after this decision, or the
            recording ended.
        episode: `(num_decisions,)` int64, shared by all agents of an episode.
        agent_id: `(num_decisions,)` int64.
        step: `(num_decisions,)` int64, number of the agent's earlier turns in this episode,
            including turns without a question.
        seed: `(num_decisions,)` uint64, `Episode.seed`; None if any row's seed is too large or
            unknown, as in files of earlier releases.
        recordings: sources of the decisions as JSON, one entry per game, agents and run: `game`,
            its name; `settings`; `identity` of its rules; `agents`, with `name` and `sha256`;
            `seed` of the run. Empty if unknown.
        final: one row per decision: the agent's final observation, if the episode ended after this
            decision, with actors and masks if it was truncated, as in `VecObs.final`. Other rows
            are empty, including those where the recording ended. None if unknown, as in files of
            earlier releases.
    """

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    obs: EntityBatch
    actions: Mapping[ActionName, RaggedArray[Any]]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    episode: NDArray[np.int64]
    agent_id: NDArray[np.int64]
    step: NDArray[np.int64]
    final: EntityBatch | None = None
    seed: NDArray[np.uint64] | None = None
    recordings: Sequence[Mapping[str, object]] = ()

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def num_episodes(self) -> int:
        """Number of distinct episodes."""
        return len(np.unique(self.episode))

    @property
    def spaces(self) -> Spaces:
        return self.obs_space, self.action_space

    def returns(self, gamma: float = 1.0) -> NDArray[np.float32]:
        """`(num_decisions,)` float32: sum of rewards from each decision to the end of its episode.

        Args:
            gamma: discount per decision of the agent, 0 to 1.

        Raises:
            UsageError: a discount outside 0 to 1, or returns that do not fit float32.
        """
        _require_discount(gamma)
        order, starts = self._trajectories()
        is_last = np.append(starts[1:], True)[: len(starts)]
        rewards = self.reward[order].astype(np.float64).tolist()
        found, later = [0.0] * len(order), 0.0
        for i, last in zip(range(len(order) - 1, -1, -1), is_last[::-1].tolist(), strict=True):
            later = rewards[i] if last else rewards[i] + gamma * later
            found[i] = later
        returns = np.empty(len(order), dtype=np.float32)
        with np.errstate(over="ignore"):
            returns[order] = found
        if not np.isfinite(returns).all():
            raise UsageError("rewards add up to returns that do not fit float32: scale them down")
        return returns

    def known_share(self, gamma: float) -> NDArray[np.float32]:
        """`(num_decisions,)` float32: known share of each return, 0 to 1.

        1 if the agent's episode terminates. Otherwise `1 - gamma**n`, where `n` is the number of
        decisions up to the truncation: the share of these decisions in the weights of an endless
        discounted sum.

        Raises:
            UsageError: a discount outside 0 to 1.
        """
        _require_discount(gamma)
        order, starts = self._trajectories()
        known = np.ones(len(order), dtype=np.float32)
        if len(order):
            firsts = np.flatnonzero(starts)
            ends = np.append(firsts[1:], len(order))
            lengths = ends - firsts
            num_left = np.repeat(ends, lengths) - np.arange(len(order))
            is_whole = np.repeat(np.logical_or.reduceat(self.terminated[order], firsts), lengths)
            known[order] = np.where(is_whole, 1.0, 1.0 - gamma**num_left)
        return known

    def filter(
        self,
        rows: NDArray[np.bool_] | None = None,
        *,
        winners: bool = False,
        min_reward: float | None = None,
    ) -> Dataset:
        """Some of the decisions, such as those of successful agents.

        Args:
            rows: `(num_decisions,)` bool, decisions to keep, such as `dataset.agent_id == 0`;
                None = all.
            winners: only agents with the largest reward of their episode, including ties; compares
                all agents of the dataset, not only those in `rows`.
            min_reward: only agents that earned at least this much in their episode.

        Raises:
            UsageError: `winners` is set but every episode has a single agent, `winners` or
                `min_reward` leave no decisions, or `rows` has a wrong length.
        """
        keep = np.ones(len(self), dtype=np.bool_)
        if rows is not None:
            keep[np.setdiff1d(np.arange(len(self)), chosen_rows(rows, len(self), "decisions"))] = 0
        if len(self) and (winners or min_reward is not None):
            of_row, totals = self._totals()
            slack = _TOLERANCE * max(1.0, float(np.abs(totals).max()))
            if min_reward is not None:
                keep &= totals[of_row] >= min_reward - slack
            if winners:
                keep &= totals[of_row] >= self._best(of_row, totals)[of_row] - slack
            if not keep.any():
                raise UsageError(
                    f"none of {len(self)} decisions are left: agents earned {totals.min():g} to "
                    f"{totals.max():g} per episode"
                )
        return self.select(keep)

    def _totals(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """`(num_decisions,)` index of each decision's trajectory, and each trajectory's reward."""
        order, starts = self._trajectories()
        of_row = np.empty(len(order), dtype=np.int64)
        of_row[order] = np.cumsum(starts) - 1
        rewards = self.reward[order].astype(np.float64)
        return of_row, np.add.reduceat(rewards, np.flatnonzero(starts))

    def _best(self, of_row: NDArray[np.int64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each trajectory, the largest reward of any trajectory in its episode."""
        episodes = np.empty(len(totals), dtype=np.int64)
        episodes[of_row] = self.episode
        firsts = np.flatnonzero(np.append(True, episodes[1:] != episodes[:-1]))
        if len(firsts) == len(totals):
            raise UsageError(
                "every episode has one agent, which always wins: use min_reward instead of winners"
            )
        counts = np.diff(np.append(firsts, len(totals)))
        return np.repeat(np.maximum.reduceat(totals, firsts), counts)

    def _trajectories(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows sorted by episode, agent and step; and a mask of those that start a trajectory."""
        order = np.lexsort((self.step, self.agent_id, self.episode))
        keys = self.episode[order], self.agent_id[order]
        starts = np.ones(len(order), dtype=np.bool_)
        starts[1:] = (keys[0][1:] != keys[0][:-1]) | (keys[1][1:] != keys[1][:-1])
        return order, starts

    def select(self, rows: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> Dataset:
        """Copies of some decisions, in the given order; see `VecObs.select`.

        Raises:
            UsageError: a row that does not exist, or a mask with a wrong length.
        """
        index = chosen_rows(rows, len(self), "decisions")
        return replace(
            self,
            obs=self.obs.map_arrays(itemgetter(index)),
            final=None if self.final is None else self.final.map_arrays(itemgetter(index)),
            actions={name: values[index] for name, values in self.actions.items()},
            **{name: values[index] for name, values in self._flat_columns().items()},
        )

    @staticmethod
    def concat(datasets: Sequence[Dataset]) -> Dataset:
        """The decisions of several datasets, with episodes renumbered.

        The result has final observations, and seeds, only if all datasets have them.

        Raises:
            SchemaError: there are no datasets, or their spaces differ.
        """
        if not datasets:
            raise SchemaError("expected at least one dataset, got none")
        first = datasets[0]
        for i, other in enumerate(datasets):
            names = {"expected_name": "dataset 0", "got_name": f"dataset {i}"}
            if found := differences(first.spaces, other.spaces, **names):
                raise SchemaError(f"datasets have different spaces: {briefly(found)}")
        finals = [each.final for each in datasets if each.final is not None]
        before, episodes = 0, []
        for each in datasets:
            numbers, index = np.unique(each.episode, return_inverse=True)
            episodes.append(before + index.reshape(-1))
            before += len(numbers)
        parts = [each._flat_columns() for each in datasets]
        flat: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts])
            for name in parts[0]
            if all(name in part for part in parts)
        }
        recordings = distinct_recordings(each for part in datasets for each in part.recordings)
        return replace(
            first,
            obs=concat_entities([each.obs for each in datasets]),
            final=concat_entities(finals) if len(finals) == len(datasets) else None,
            actions={
                name: RaggedArray.concat([each.actions[name] for each in datasets])
                for name in first.action_space
            },
            **{"seed": None, **flat, "episode": np.concatenate(episodes)},
            recordings=recordings,
        )

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Writes a file: `NAME.npz`, or `NAME.parquet` with one row per decision.

        Both formats hold `columns` and a JSON header: the format, its version, the spaces,
        `recordings`, and the release of entity_env. In an npz, a ragged column `x` is two arrays,
        `x.values` and `x.lengths`; in a parquet file, it is a list in every row. An existing
        dataset with this name is replaced atomically.

        Raises:
            UsageError: another suffix, another kind of file with this name, a folder that is not
                writable, or a dataset that `load` would refuse.
            MissingExtraError: parquet needs pyarrow: `pip install 'entity-env[parquet]'`.
        """
        content = self.spaces, self.columns(), self.recordings
        write_dataset(Path(path), content, Dataset.from_columns)

    @classmethod
    def load(cls, path: str | Path) -> Dataset:
        """Reads a file that `save` wrote.

        Raises:
            UsageError: the file cannot be read, is not a dataset, is damaged, or is too large.
            MissingExtraError: parquet needs pyarrow.
        """
        return read_dataset(Path(path), cls.from_columns)

    def columns(self) -> dict[str, Column]:
        """All arrays by name.

        Flat columns are `episode`, `agent_id`, `step`, `reward`, `terminated`, `truncated`, and
        `seed` if known. Ragged columns are `features/ENTITY`, `visible/ENTITY`, `actors/ACTION`,
        `actees/ACTION`, `mask/ACTION`, `per_actor/ACTION` and `chosen/ACTION`; `visible` and `mask`
        exist only if something is hidden or forbidden, and `per_actor` only for actions whose masks
        can depend on others. Final observations have the prefix `final/`.
        """
        found: dict[str, Column] = {**self._flat_columns()}
        found |= _columns_of(self.obs)
        found |= {f"chosen/{name}": values for name, values in self.actions.items()}
        if self.final is not None:
            found |= {f"{FINAL}{name}": each for name, each in _columns_of(self.final).items()}
        return found

    def _flat_columns(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in (*FLAT, *FLAT_OPTIONAL)}
        return {name: values for name, values in found.items() if values is not None}

    @classmethod
    def from_columns(
        cls,
        spaces: Spaces,
        columns: Mapping[str, Column],
        recordings: Sequence[Mapping[str, object]] = (),
    ) -> Dataset:
        """Makes a dataset from columns, after checking them.

        Raises:
            SchemaError: a column is missing, or does not fit the spaces and the other columns.
        """
        flat: Any = {name: _flat(columns, name, dtype) for name, dtype in flat_columns(columns)}
        num_rows = len(flat["reward"])
        if any(len(values) != num_rows for values in flat.values()):
            raise SchemaError("columns differ in their number of decisions")
        if (flat["terminated"] & flat["truncated"]).any():
            raise SchemaError("a decision is both terminated and truncated")
        if min(flat[name].min(initial=0) for name in ("episode", "agent_id", "step")) < 0:
            raise SchemaError("episode, agent_id and step must be 0 or more")
        ragged = {
            name: _ragged(columns, name, kind, num_rows)
            for name, kind in ragged_columns(spaces).items()
            if name in columns or not kind.is_optional
        }
        obs = _batch(spaces, ragged, "", np.ones(num_rows, dtype=np.bool_))
        actions = {name: ragged[f"chosen/{name}"] for name in spaces[1]}
        checked_vec_actions(actions, obs.action_masks, spaces[1], "decision {}".format)
        final = None
        if any(name.startswith(FINAL) for name in ragged):
            final = _batch(spaces, ragged, FINAL, flat["terminated"] | flat["truncated"])
        return cls(*spaces, obs, actions, **flat, final=final, recordings=recordings)


def _columns_of(batch: EntityBatch) -> dict[str, Column]:
    found: dict[str, Column] = {f"features/{name}": each for name, each in batch.features.items()}
    found |= {f"visible/{name}": each for name, each in batch.visible.items()}
    for name, mask in batch.action_masks.items():
        for part in _PARTS:
            values = getattr(mask, part, None)
            if values is not None:
                found[f"{part}/{name}"] = values
    return found


def _batch(
    spaces: Spaces,
    ragged: Mapping[str, RaggedArray[Any]],
    prefix: str,
    is_shown: NDArray[np.bool_],
) -> EntityBatch:
    """Checks and returns the observations in the columns with a prefix.

    Rows must be empty where `is_shown` is False.
    """
    missing = [
        name
        for name, kind in shown_columns(spaces).items()
        if not (kind.is_optional or name.startswith("chosen/") or prefix + name in ragged)
    ]
    if missing:
        raise SchemaError(f"column {prefix + missing[0]!r} is missing")
    features = {name: ragged[f"{prefix}features/{name}"] for name in entity_widths(*spaces)}
    visible = {
        name: ragged[f"{prefix}visible/{name}"]
        for name in features
        if f"{prefix}visible/{name}" in ragged
    }
    for name, flags in visible.items():
        _require_lengths(f"{prefix}visible/{name}", flags, features[name].lengths)
    counts = sum((each.lengths for each in features.values()), np.zeros(len(is_shown), np.int64))
    if wrong := np.flatnonzero((counts > 0) & ~is_shown).tolist():
        raise SchemaError(
            f"columns {prefix}... have {counts[wrong[0]]} entities in decision {wrong[0]}, after "
            "which the episode continues"
        )
    if wrong_row := wrong_relation(spaces[0].relations, features):
        raise SchemaError(
            f"columns {prefix}features/... in decision {wrong_row[0]}: {wrong_row[1]}"
        )
    if GLOBAL_ENTITY in features:
        found = features[GLOBAL_ENTITY]
        ones = is_shown.astype(np.int64)
        if prefix:  # a final observation may show nothing but a score
            ones = np.minimum(found.lengths, ones)
        _require_lengths(f"{prefix}features/{GLOBAL_ENTITY}", found, ones)
    masks: dict[ActionName, VecActionMask] = {}
    for name in spaces[1]:
        masks[name] = _mask(name, spaces[1], ragged, counts, prefix, masks)
    return EntityBatch(features, visible, masks)


def distinct_recordings(
    recordings: Iterable[Mapping[str, object]],
) -> tuple[Mapping[str, object], ...]:
    """Distinct entries of `Dataset.recordings`, in order, at most 1,000."""
    texts = {json.dumps(each, sort_keys=True, default=str): each for each in recordings}
    return tuple(islice(texts.values(), _MAX_RECORDINGS))


def _require_discount(gamma: float) -> None:
    if not 0 <= gamma <= 1:
        raise UsageError(f"gamma, the discount, must be a number from 0 to 1, got {gamma!r}")


def _flat(columns: Mapping[str, Column], name: str, dtype: type[np.generic]) -> NDArray[Any]:
    values = columns.get(name)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype != dtype:
        raise SchemaError(f"column {name!r} needs one {np.dtype(dtype)} per decision")
    if name == "reward" and not np.isfinite(values).all():
        raise SchemaError("column 'reward' has a number that is not finite")
    return values


def _ragged(
    columns: Mapping[str, Column], name: str, kind: ColumnKind, num_rows: int
) -> RaggedArray[Any]:
    found = columns.get(name)
    shape = () if kind.width is None else (kind.width,)
    if (
        not isinstance(found, RaggedArray)
        or found.values.dtype != kind.dtype
        or found.values.shape[1:] != shape
    ):
        rows = f"rows of {kind.width} " if shape else ""
        raise SchemaError(f"column {name!r} needs lists of {rows}{np.dtype(kind.dtype)}")
    if len(found) != num_rows:
        raise SchemaError(f"column {name!r} has {len(found)} decisions, others have {num_rows}")
    if kind.dtype is np.float32 and not np.isfinite(found.values).all():
        raise SchemaError(f"column {name!r} has a number that is not finite")
    return found


def _require_lengths(name: str, values: RaggedArray[Any], lengths: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(values.lengths != lengths)
    if len(wrong):
        row = int(wrong[0])
        raise SchemaError(
            f"column {name!r} has {values.lengths[row]} values in decision {row}, expected "
            f"{lengths[row]}"
        )


def _mask(
    name: ActionName,
    action_space: Mapping[ActionName, ActionSpace],
    ragged: Mapping[str, RaggedArray[Any]],
    counts: NDArray[np.int64],
    prefix: str,
    earlier: Mapping[ActionName, VecActionMask],
) -> VecActionMask:
    """The actors and legal choices of an action.

    Args:
        counts: entities per decision.
        earlier: masks of the earlier actions.
    """
    space = action_space[name]
    of_actors, of_actees, of_mask, of_counts = (f"{prefix}{part}/{name}" for part in _PARTS)
    actors, mask, per_actor = ragged[of_actors], ragged.get(of_mask), ragged.get(of_counts)
    for other in space.given:
        if earlier[other].actors != actors:
            raise SchemaError(
                f"column {of_actors!r} needs the actors of {other!r}, on which {name!r} depends"
            )
    _require_entities(of_actors, actors, counts)
    if isinstance(space, GlobalCategoricalActionSpace) and not np.array_equal(
        actors.values, counts[actors.row_index] - 1
    ):
        raise SchemaError(f"column {of_actors!r} has an actor other than the last entity")
    if isinstance(space, ContinuousActionSpace):
        return VecContinuousActionMask(actors)
    if per_actor is not None:
        _require_per_actor(
            of_counts, per_actor, action_space[space.given[-1]], earlier[space.given[-1]]
        )
    found: VecCategoricalActionMask | VecSelectEntityActionMask
    found = VecCategoricalActionMask(actors, mask, per_actor)
    if isinstance(space, SelectEntityActionSpace):
        actees = ragged[of_actees]
        _require_entities(of_actees, actees, counts)
        found = VecSelectEntityActionMask(actors, actees, mask, per_actor)
    if mask is not None:
        _require_lengths(of_mask, mask, num_mask_rows(found))
    return found


def _require_per_actor(
    name: str, per_actor: RaggedArray[np.int64], space: ActionSpace, mask: VecActionMask
) -> None:
    """Requires the number of choices of the action with this space and mask."""
    ones = np.ones(len(per_actor), np.int64)
    _require_lengths(name, per_actor, ones)
    if isinstance(mask, VecSelectEntityActionMask):
        wanted = mask.actees.lengths
    else:
        wanted = ones * len(space)  # type: ignore[arg-type]  # categorical
    wrong = np.flatnonzero(per_actor.values != wanted)
    if len(wrong):
        row = int(wrong[0])
        raise SchemaError(
            f"column {name!r} has {per_actor.values[row]} choices in decision {row}, expected "
            f"{wanted[row]}"
        )


def _require_entities(name: str, values: RaggedArray[np.int64], counts: NDArray[np.int64]) -> None:
    limits = counts[values.row_index]
    wrong = np.flatnonzero((values.values < 0) | (values.values >= limits))
    if len(wrong):
        row = int(values.row_index[wrong[0]])
        raise SchemaError(
            f"column {name!r} names entity {values.values[wrong[0]]} in decision {row}, which has "
            f"{counts[row]} entities"
        )
