"""A plain model of a `VecEnv` of the games in `told_games`, checked step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from entity_env import Episode, VecCategoricalActionMask, VecObs
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import Autoreset
from tests.attack.told_games import (
    SPLIT,
    ghost_rows,
    is_cut,
    is_masked,
    length_of,
    rate_of,
    told_rows,
)

_MOST_SKIPPED = 2000


@dataclass
class Played:
    """The current episode of an environment."""

    seeds: EpisodeSeeds
    number: int
    step: int = 0

    @property
    def seed(self) -> int:
        return self.seeds[self.number]

    @property
    def is_over(self) -> bool:
        return self.step == length_of(self.seed)


@dataclass
class ToldModel:
    """Model of the environments of a `VecEnv`; checks every batch.

    Args:
        num_envs: number of environments.
        autoreset: of the `VecEnv`.
        kind: of the game.
        seed: of the `VecEnv`.
        has_faults: episodes may be lost; those are read from `episodes`.
    """

    num_envs: int
    autoreset: Autoreset
    kind: str = "global"
    seed: int = 0
    has_faults: bool = False
    num_agents: int = 1
    num_episodes: int = 0
    num_env_steps: int = 0
    playing: dict[int, Played] = field(default_factory=dict)
    skips: bool = False
    """The next reset may skip episodes, because an interrupt or a failure has cut some short."""

    def __post_init__(self) -> None:
        self._runs = {e: (EpisodeSeeds(self.seed, e), 0) for e in range(self.num_envs)}
        """The seeds of every environment, and the number of its next episode."""
        self._cut_seeds: list[int] = []
        """Seeds of runs that were about to start."""
        self._seen: list[set[tuple[int, int]]] = [set() for _ in range(self.num_envs)]
        """Run seed and number of every observed episode, by environment."""
        self._run_of: list[int] = [0] * self.num_envs

    def begin_run(self, seed: int, env_ids: Iterable[int]) -> None:
        """Starts a new run at the next reset of each environment."""
        for env_id in env_ids:
            self._runs[env_id] = EpisodeSeeds(seed, env_id), 0
            self._run_of[env_id] += 1

    def cut(self, seed: int | None = None) -> None:
        """An interrupt or failure: the pending step is lost, and only a reset works.

        Args:
            seed: of the run that was about to start: the next reset starts it, or it never starts.
        """
        self.playing = {}
        self.skips = True
        if seed is not None:
            self._cut_seeds.append(seed)

    def after_reset(self, obs: VecObs, env_ids: Iterable[int] | None = None) -> None:
        """Checks a batch of `reset` or `reset_envs`."""
        chosen = set(range(self.num_envs) if env_ids is None else env_ids)
        assert obs.env_id.tolist() == [
            e for e in range(self.num_envs) for _ in range(self.num_agents)
        ]
        for seed in self._cut_seeds:
            begun = EpisodeSeeds(seed, 0)
            if _told(obs, 0)[0] in (begun[0], begun[1]):  # 1: only the return was interrupted
                self.begin_run(seed, chosen)
        self._cut_seeds = []
        for row, env_id in enumerate(obs.env_id.tolist()):
            if env_id in chosen and row % self.num_agents == 0:
                self._begin(obs, row, env_id)
            self._check_row(obs, row, env_id)
        assert not obs.reward.any(), f"rewards of a reset: {obs.reward}"
        for row, env_id in enumerate(obs.env_id.tolist()):
            played = self.playing[env_id]
            is_cut_, is_over = is_cut(played.seed), played.is_over
            assert (obs.terminated[row], obs.truncated[row]) == (
                is_over and not is_cut_,
                is_over and is_cut_,
            )
        assert list(obs.episodes) == [], f"a reset ends no episode: {obs.episodes}"
        assert obs.final is None
        self._check_metrics(obs)
        self.skips = False

    def after_act(self, obs: VecObs) -> None:
        """Checks a batch of `act` or `recv`: one more step of its environments."""
        episodes = {(e.env_id, e.agent_id): e for e in obs.episodes}
        assert len(episodes) == len(obs.episodes), f"ended twice: {obs.episodes}"
        self.num_episodes += len(obs.episodes)
        self.num_env_steps += len(obs) // self.num_agents
        finals = (
            []
            if obs.final is None
            else list(zip(obs.final.env_id.tolist(), obs.final.agent_id.tolist(), strict=True))
        )
        ended: list[tuple[int, int]] = []
        for row, env_id in enumerate(obs.env_id.tolist()):
            agent_id = int(obs.agent_id[row])
            is_first = agent_id == 0
            played = self.playing[env_id]
            episode = episodes.get((env_id, agent_id))
            if episode is not None and episode.metrics.get("error"):
                self._lose(obs, row, env_id, episode)
                continue
            if is_first:
                was_over = played.is_over
                if was_over:
                    assert self.autoreset == "next_step"
                    self._begin(obs, row, env_id)
                    reward, ends = 0.0, False
                else:
                    before = played
                    played.step += 1
                    reward, ends = float(rate_of(played.seed)), played.is_over
                    if ends and self.autoreset == "same_step":
                        self._begin(obs, row, env_id)
            assert obs.reward[row] == reward, (
                f"env {env_id}: reward {obs.reward[row]}, not {reward}"
            )
            flags = bool(obs.terminated[row]), bool(obs.truncated[row])
            if ends:
                self._check_episode(episode, before, env_id, agent_id)
                ended.append((env_id, agent_id))
                assert flags == (not is_cut(before.seed), is_cut(before.seed))
                if self.autoreset == "same_step":
                    self._check_final(obs, finals.index((env_id, agent_id)), before)
            else:
                assert flags == (False, False), f"env {env_id}: flags {flags}"
                assert episode is None, f"env {env_id} has not ended: {episode}"
            self._check_row(obs, row, env_id)
        self._check_metrics(obs)

    def _begin(self, obs: VecObs, row: int, env_id: int) -> None:
        """Finds the episode that a row starts, and checks that it never started before."""
        seed, step = _told(obs, row)
        seeds, number = self._runs[env_id]
        last = number + (_MOST_SKIPPED if self.skips or self.has_faults else 0)
        found = next((n for n in range(number, last + 1) if seeds[n] == seed), None)
        assert found is not None, (
            f"env {env_id} shows seed {seed} at step {step}, which is none from number {number} on"
        )
        assert step == 0, f"env {env_id} begins at step {step}"
        self._runs[env_id] = seeds, found + 1
        key = self._run_of[env_id], found
        assert key not in self._seen[env_id], f"env {env_id} plays number {found} twice"
        self._seen[env_id].add(key)
        self.playing[env_id] = Played(seeds, found)

    def _lose(self, obs: VecObs, row: int, env_id: int, episode: Episode) -> None:
        played = self.playing[env_id]
        assert self.has_faults
        assert (episode.number, episode.seed) == (played.number, played.seed), f"{episode}"
        assert episode.reward == played.step * rate_of(played.seed), f"{episode} {played}"
        assert episode.length in (played.step, played.step + 1), f"{episode} {played}"
        assert (episode.terminated, episode.truncated) == (False, True)
        assert (obs.terminated[row], obs.truncated[row]) == (False, True)
        self._begin(obs, row, env_id)
        self._check_row(obs, row, env_id)

    def _check_episode(
        self, episode: Episode | None, played: Played, env_id: int, agent_id: int
    ) -> None:
        assert episode is not None, f"env {env_id} ended, and no episode says so"
        length, rate = length_of(played.seed), rate_of(played.seed)
        told: Sequence[object] = (
            episode.reward,
            episode.length,
            episode.seed,
            episode.number,
            episode.truncated,
        )
        wanted: Sequence[object] = (
            length * rate,
            length,
            played.seed,
            played.number,
            is_cut(played.seed),
        )
        assert told == wanted, f"env {env_id}: {told}, not {wanted}"
        if self.num_agents == 1:
            assert dict(episode.metrics) == {"last": float(rate)}, f"{episode.metrics}"

    def _check_final(self, obs: VecObs, index: int, played: Played) -> None:
        assert obs.final is not None
        _check_features(obs.final, index, played.seed, length_of(played.seed))

    def _check_row(self, obs: VecObs, row: int, env_id: int) -> None:
        played = self.playing[env_id]
        seed, step = played.seed, played.step
        [(name, mask)] = obs.action_masks.items()
        num_actors = int(mask.actors.lengths[row])
        _check_features(obs, row, seed, step)
        wanted = 0 if played.is_over else 1
        if self.kind == "actors":
            wanted *= len(told_rows(seed, step))
            assert mask.actors[row].tolist() == list(range(wanted))
        assert num_actors == wanted, f"env {env_id}: {num_actors} actors of {name}, not {wanted}"
        if self.kind == "masked" and wanted:
            allowed = [not is_masked(seed, step), True, True]
            assert isinstance(mask, VecCategoricalActionMask)
            given = [[True] * 3] if mask.mask is None else mask.mask[row].tolist()
            assert given == [allowed], f"row {row} allows {given}, not {allowed}"

    def _check_metrics(self, obs: VecObs) -> None:
        shown = [e for e in obs.env_id.tolist() if not self.playing[e].is_over]
        count = obs.metrics["seen"].count if "seen" in obs.metrics else 0
        assert count == len(shown), f"{count} times the metric of {len(shown)} rows"


def _told(obs: VecObs, row: int) -> tuple[int, int]:
    """Seed and step in a row."""
    rows = obs.features["Told"][row]
    assert len(rows), f"row {row} shows nobody"
    return seed_of(rows[0])


def seed_of(told: Iterable[float]) -> tuple[int, int]:
    """Seed and step, from the features of a `Told`."""
    high, middle, low, step, _ = map(int, told)
    return (high * SPLIT + middle) * SPLIT + low, step


def _check_features(obs: VecObs, row: int, seed: int, step: int) -> None:
    told, ghosts = obs.features["Told"][row], obs.features["Ghost"][row]
    assert np.array_equal(told, np.array(told_rows(seed, step), np.float32)), (
        f"row {row} shows {told.tolist()}, not {told_rows(seed, step)}"
    )
    wanted = ghost_rows(seed, step)
    assert ghosts.tolist() == wanted, f"row {row} shows ghosts {ghosts.tolist()}, not {wanted}"


def actions_for(obs: VecObs, choices: Sequence[int] = (1,)) -> dict[str, NDArray[np.int64]]:
    """A legal action for every actor that is asked."""
    return {
        name: np.resize(np.array(choices, np.int64), len(mask.actors.values))
        for name, mask in obs.action_masks.items()
    }
