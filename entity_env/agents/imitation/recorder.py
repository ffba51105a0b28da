"""`DatasetRecorder`: watches games and collects every decision for a `Dataset`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.agent_identity import agent_identity
from entity_env.agents.imitation.dataset import Dataset, distinct_recordings
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game, RunWatcher
from entity_env.authoring.identity import all_settings, identity_of
from entity_env.authoring.local_run import Turn, Watch
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.action_request import chosen_values, questions
from entity_env.core.observation import Observation
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import (
    ActionSpace,
    ContinuousActionSpace,
    Spaces,
    briefly,
    differences,
)
from entity_env.core.vec_obs import EntityBatch, concat_entities
from entity_env.errors import ProtocolError, UsageError

_END_OF_SEEDS: Final = 2**64
_AT_ONCE: Final = 512
"""Number of observations buffered before they become arrays."""


class DatasetRecorder:
    """Watches `Game.run`, and collects every decision of every agent.

    To imitate without files, call `game.run(agent, episodes=100, watch=recorder)`, then
    `recorder.dataset()`. Several runs accumulate; their games must have the same spaces.

    Args:
        watch: another watcher, called with each turn and, if it is a `RunWatcher`, at the start and
            the end of every run.
        agents: names that the agents were loaded by; default: see `agent_identity`.
    """

    def __init__(self, watch: Watch | None = None, *, agents: Sequence[str] = ()) -> None:
        self._watch = watch
        self._names = tuple(agents)
        self._recordings: list[Mapping[str, object]] = []
        self._seed_of: Callable[[int], int | None] = _no_seed
        """Seed of an episode by its index in the run; None if unknown."""
        self._seeds: list[int | None] = []
        """Episode seed of each decision."""
        self._spaces: Spaces | None = None
        self._obs: _Collected | None = None
        self._final: _Collected | None = None
        self._final_rows: list[int] = []
        """Index of the decision before each final observation."""
        self._chosen: dict[str, list[Any]] = {}
        """Values of all actors by action, in order of decisions."""
        self._rows: dict[str, list[Any]] = {
            name: []
            for name in ("episode", "agent_id", "step", "reward", "terminated", "truncated")
        }
        self._open: dict[int, int] = {}
        """Index of each active agent's last decision."""
        self._first = 0
        """Index of the current run's first episode."""

    @property
    def num_decisions(self) -> int:
        return len(self._rows["reward"])

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int
    ) -> None:
        """See `RunWatcher`.

        Raises:
            UsageError: a game with other spaces was recorded before.
        """
        self._begin((game.obs_space(), game.action_space()), game.name)
        self._seed_of = seeds.__getitem__
        names = (*self._names, *[""] * len(agents))
        self._recordings.append(
            {
                "game": game.name,
                "settings": _as_json(all_settings(game)),
                "identity": identity_of(game),
                "agents": [
                    agent_identity(each, name) for each, name in zip(agents, names, strict=False)
                ],
                "seed": seeds.run_seed,
            }
        )
        if isinstance(self._watch, RunWatcher):
            self._watch.begin_run(game, agents, seeds, episodes)

    def end_run(self, error: BaseException | None) -> None:
        """Marks unfinished episodes as truncated."""
        self._end()
        if isinstance(self._watch, RunWatcher):
            self._watch.end_run(error)

    def _end(self) -> None:
        for row in self._open.values():
            self._rows["truncated"][row] = True
        self._open.clear()
        self._first = max(self._rows["episode"], default=-1) + 1

    def add_episode(
        self,
        spaces: Spaces,
        turns: Iterable[Turn],
        name: str,
        *,
        seed: int | None = None,
        recording: Mapping[str, object] | None = None,
    ) -> None:
        """Adds the turns of an episode, as from `Replay.turns`.

        Args:
            name: source of the turns, for errors.
            seed: of the episode; None if unknown.
            recording: an entry of `Dataset.recordings`; None if unknown.

        Raises:
            UsageError: a game with other spaces was recorded before.
        """
        self._begin(spaces, name)
        self._seed_of = _no_seed if seed is None else lambda _: seed
        if recording is not None:
            self._recordings.append(recording)
        for turn in turns:
            self._add(turn)
        self._end()

    def _begin(self, spaces: Spaces, name: str) -> None:
        if self._spaces is None:
            self._spaces = spaces
            self._obs, self._final = _Collected(spaces), _Collected(spaces, is_final=True)
            self._chosen = {action: [] for action in spaces[1]}
        names = {"expected_name": "what was recorded before", "got_name": name}
        if found := differences(self._spaces, spaces, **names):
            raise UsageError(f"{name} has different spaces: {briefly(found)}")

    def __call__(self, turn: Turn) -> None:
        self._add(turn)
        if self._watch is not None:
            self._watch(turn)

    def _add(self, turn: Turn) -> None:
        if self._spaces is None or self._obs is None or self._final is None:
            raise ProtocolError("a DatasetRecorder needs a run: call game.run(agent, watch=...)")
        rows, observation, agent_id = self._rows, turn.observation, turn.agent_id
        before = self._open.get(agent_id)
        if before is not None:
            rows["reward"][before] += float(observation.reward)
        if turn.episode is not None:
            if before is not None:
                del self._open[agent_id]
                rows["terminated"][before] = turn.episode.terminated
                rows["truncated"][before] = turn.episode.truncated
                self._final.add(observation)
                self._final_rows.append(before)
            return
        asked = [each for each in questions(observation, *self._spaces) if len(each.actors)]
        if not asked:  # there is no decision
            return
        chosen = chosen_values(asked, turn.actions)
        self._obs.add(observation)
        for name, values in chosen.items():
            self._chosen[name] += values
        self._open[agent_id] = len(rows["reward"])
        self._seeds.append(self._seed_of(turn.number))
        values_of = (self._first + turn.number, agent_id, turn.step, 0.0, False, False)
        for column, value in zip(rows.values(), values_of, strict=True):
            column.append(value)

    def dataset(self) -> Dataset:
        """The decisions so far; unfinished episodes count as truncated.

        Raises:
            UsageError: there are no decisions, or a reward or an action does not fit float32.
        """
        if not self.num_decisions or not (self._spaces and self._obs and self._final):
            raise UsageError("no decisions were recorded")
        obs = self._obs.batch()
        of_row = np.full(self.num_decisions, len(self._final_rows), dtype=np.int64)
        of_row[self._final_rows] = np.arange(len(self._final_rows))
        rows = self._rows
        truncated = np.array(rows["truncated"], dtype=np.bool_)
        truncated[list(self._open.values())] = True
        episode, agent_id, step = (
            np.array(rows[name], dtype=np.int64) for name in ("episode", "agent_id", "step")
        )
        return Dataset(
            *self._spaces,
            obs,
            {name: self._actions(name, space, obs) for name, space in self._spaces[1].items()},
            _floats(rows["reward"], "reward"),
            np.array(rows["terminated"], dtype=np.bool_),
            truncated & ~np.array(rows["terminated"], dtype=np.bool_),
            episode=episode,
            agent_id=agent_id,
            step=step,
            final=self._final.batch(with_empty=True).map_arrays(itemgetter(of_row)),
            seed=_seeds_as_array(self._seeds),
            recordings=distinct_recordings(self._recordings),
        )

    def _actions(self, name: str, space: ActionSpace, obs: EntityBatch) -> RaggedArray[Any]:
        values, lengths = self._chosen[name], obs.action_masks[name].actors.lengths.copy()
        if isinstance(space, ContinuousActionSpace):
            numbers = _floats(values, f"action {name!r}").reshape(len(values), len(space))
            return RaggedArray(numbers, lengths)
        return RaggedArray(np.array(values, dtype=np.int64), lengths)


def _no_seed(number: int) -> None:
    """None: the seed of every episode is unknown."""


def _seeds_as_array(seeds: Sequence[int | None]) -> NDArray[np.uint64] | None:
    """Seeds as an array; None if one is unknown, or too large for a file."""
    if any(seed is None or not 0 <= seed < _END_OF_SEEDS for seed in seeds):
        return None
    return np.array(seeds, dtype=np.uint64)


def _as_json(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings as JSON: Enums by name, and values that JSON lacks as strings."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        kept = value.name if isinstance(value, Enum) else value
        is_number = isinstance(kept, int) or (isinstance(kept, float) and math.isfinite(kept))
        found[name] = kept if is_number or isinstance(kept, str | None) else str(kept)
    return found


class _Collected:
    """Observations, converted to arrays in batches."""

    def __init__(self, spaces: Spaces, *, is_final: bool = False) -> None:
        where = f"{'final observation' if is_final else 'decision'} {{}}".format
        self._batcher = ObservationBatcher(*spaces, where, is_final=is_final)
        self._batches: list[EntityBatch] = []

    def add(self, observation: Observation) -> None:
        self._batcher.add(observation, ask=bool(observation.actions))
        if self._batcher.num_rows >= _AT_ONCE:
            self._flush()

    def batch(self, *, with_empty: bool = False) -> EntityBatch:
        """All observations, followed by an empty one if `with_empty`."""
        self._flush()
        if not with_empty:
            return concat_entities(self._batches)
        self._batcher.end_row()
        return concat_entities([*self._batches, self._arrays()])

    def _flush(self) -> None:
        if self._batcher.num_rows:
            self._batches.append(self._arrays())

    def _arrays(self) -> EntityBatch:
        none = np.zeros(self._batcher.num_rows, dtype=np.int64)
        flags = none.astype(np.bool_)
        obs = self._batcher.finish(none.astype(np.float32), flags, flags, none, none)
        batch = obs.map_arrays(RaggedArray.copy)
        self._batcher.clear()
        return batch


def _floats(values: list[Any], what: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        numbers = np.array(values, dtype=np.float32)
    if not np.isfinite(numbers).all():
        wrong = np.array(values)[~np.isfinite(numbers)]
        raise UsageError(
            f"{what}: expected finite numbers that fit float32, got {wrong[0]:g}; scale large "
            "numbers down"
        )
    return numbers
