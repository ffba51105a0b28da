"""Batches of games for several agents show what a plain loop over the same games shows.

The plain loop calls `play` with recording agents and derives every batch from the record: with
agents that end early, come late or take no part, in turn or at once, in every mode of autoreset,
with and without workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest

from entity_env import Episode, Game, Obs, VecObs
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import Autoreset, ReplayBuffer, VecEnv
from tests.helpers.tiny_games import Move, crew, dots_game, masked_dot

NUM_AGENTS, SEED = crew.num_agents, 5
MODES: tuple[Autoreset, ...] = get_args(Autoreset)


def play_arena(agents: Sequence[Agent], *, seed: int) -> None:
    """Agents start their next episodes while others still play."""
    rng = Random(seed)
    health, scores, is_in = [2, 3, 1], [0.0] * NUM_AGENTS, [False] * NUM_AGENTS
    for turn in range(7):
        for i, agent in enumerate(agents):
            if i == turn % 4:
                continue
            answer = agent.act(masked_dot(scores[i], 10 * health[i] + turn), Move)
            if answer is None:
                return
            is_in[i] = True
            scores[i] += answer.value
            health[i] -= rng.randrange(2)
            if health[i] <= 0:
                agent.game_over(masked_dot(scores[i], 0.25))
                health[i], scores[i], is_in[i] = 2, 0.0, False
    for i, agent in enumerate(agents):
        if is_in[i]:
            agent.game_over(masked_dot(scores[i], 0.75), truncated=True)


arena = dots_game(play_arena, NUM_AGENTS, respawns=True)


def choose(x: float, agent_id: int) -> Move:
    """The only policy of this file: a function of the observation."""
    return list(Move)[1 + (int(x) + agent_id) % 2]


# ------------------------------------------------------------------ the plain loop


@dataclass
class Frame:
    """What agents are asked and which have ended, between two waits of a game."""

    asked: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Score and place, by agent."""
    ended: dict[int, tuple[float, float | None, bool]] = field(default_factory=dict)
    """Score, place if shown, and whether truncated; of agents that ended before being asked."""
    has_failed: bool = False


class Recorder(Agent):
    """Answers by `choose`, and records frames that all agents of a game share."""

    seed = 0  # no game of this file asks for it

    def __init__(self, frames: list[Frame], agent_id: int, agents: list[Recorder]) -> None:
        self.frames, self.agent_id, self.agents = frames, agent_id, agents
        self.answer: Move | None = None

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - overloads of Agent
        return self.act_async(obs, *actions).get()

    def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - overloads of Agent
        [[dot]] = obs.groups
        self.frames[-1].asked[self.agent_id] = obs.score, dot.x
        self.answer = None
        return self

    def get(self) -> Move:
        if self.answer is None:  # the game waits: all agents that are asked answer
            for i, (_, x) in self.frames[-1].asked.items():
                self.agents[i].answer = choose(x, i)
            self.frames.append(Frame())
        if self.answer is None:
            raise AssertionError
        return self.answer

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        obs = Obs() if obs is None else obs
        x = obs.groups[0][0].x if obs.groups else None
        self.frames[-1].ended[self.agent_id] = obs.score, x, truncated


def frames_of(game: Game, seed: int) -> list[Frame]:
    """One call of `play`."""
    frames, agents = [Frame()], list[Recorder]()
    agents += [Recorder(frames, i, agents) for i in range(NUM_AGENTS)]
    try:
        game.play(agents, seed=seed, **game.settings)
    except OSError:
        frames[-1].has_failed = True
    return frames


class Row(NamedTuple):
    """One row of a batch, or of its final observations."""

    reward: float
    terminated: bool
    truncated: bool
    x: float | None
    is_ready: bool


@dataclass
class PlainEnv:
    """One environment, stepped as the docstrings of `VecEnv` and `VecObs` say."""

    game: Game
    env_id: int
    mode: Autoreset
    rows: list[Row] = field(default_factory=list)
    final: dict[int, Row] = field(default_factory=dict)
    episodes: list[Episode] = field(default_factory=list)
    is_over: bool = False

    def begin_run(self, seed: int) -> None:
        self.seeds = EpisodeSeeds(seed, self.env_id)
        self.number, self.last_started = [0] * NUM_AGENTS, -1
        self.first: dict[int, float] = {}

    def begin(self) -> None:
        """Starts the next episode; a running one is abandoned, and its seed not used again."""
        used = [n + (i in self.first) for i, n in enumerate(self.number)]
        number = max(*used, self.last_started + 1)
        self.number, self.last_started = [number] * NUM_AGENTS, number
        self.frames = iter(frames_of(self.game, self.seeds[number]))
        self.first, self.last, self.length = {}, dict[int, float](), [0] * NUM_AGENTS
        self.is_over = False
        self.episodes, self.final = [], {}
        self._take(next(self.frames))

    def repeat(self) -> None:
        """The batch after a reset of other environments."""
        self.episodes, self.final = [], {}
        self.rows = [
            row._replace(
                reward=0.0,
                terminated=row.terminated and self.is_over,
                truncated=row.truncated and self.is_over,
            )
            for row in self.rows
        ]

    def act(self) -> None:
        if self.is_over:
            assert self.mode == "next_step"
            self.begin()
            return
        for i, row in enumerate(self.rows):
            self.length[i] += row.is_ready
        self.episodes, self.final = [], {}
        self._take(next(self.frames))

    def _take(self, frame: Frame) -> None:
        before, self.rows = self.rows, [Row(0.0, False, False, None, False)] * NUM_AGENTS
        for i, (score, x, is_cut) in frame.ended.items():
            self._end(i, score, x, is_cut)
        if frame.has_failed:
            for i in list(self.first):
                self._end(i, self.last[i], before[i].x, True, {"error": 1.0})
        for i, (score, x) in frame.asked.items() if not frame.has_failed else ():
            if i not in self.first:
                self.first[i] = self.last[i] = score
                self.length[i] = 0
            reward = self.rows[i].reward + score - self.last[i]
            self.rows[i] = self.rows[i]._replace(reward=reward, x=x, is_ready=True)
            self.last[i] = score
        if frame.has_failed or (not frame.asked and self.mode == "same_step"):
            self._begin_at_once()
        else:
            self.is_over = not frame.asked

    def _begin_at_once(self) -> None:
        rows, final, episodes = self.rows, self.final, self.episodes
        self.begin()
        for i, old in enumerate(rows):
            flags = {"terminated": old.terminated, "truncated": old.truncated}
            self.rows[i] = self.rows[i]._replace(reward=old.reward, **flags)
        self.final, self.episodes = final, episodes

    def _end(
        self,
        i: int,
        score: float,
        x: float | None,
        is_cut: bool,
        metrics: dict[str, float] | None = None,
    ) -> None:
        reward = score - self.last[i]
        metrics = ({} if x is None else {"x": x}) if metrics is None else metrics
        total, number = score - self.first.pop(i), self.number[i]
        numbers = self.length[i], not is_cut, is_cut, self.seeds[number], number
        self.episodes.append(Episode(total, *numbers, self.env_id, i, metrics))
        can_act = is_cut and "error" not in metrics
        self.final[i] = Row(reward, not is_cut, is_cut, x, can_act)
        holds = self.mode != "same_step" and "error" not in metrics
        self.rows[i] = Row(reward, not is_cut, is_cut, x if holds else None, False)
        self.number[i] += 1


# ------------------------------------------------------------------ comparison


def rows_of(obs: VecObs) -> list[Row]:
    ready, dots = obs.is_ready, obs.features["Dot"]
    return [
        Row(
            float(obs.reward[i]),
            bool(obs.terminated[i]),
            bool(obs.truncated[i]),
            float(dots[i][0, 0]) if len(dots[i]) else None,
            bool(ready[i]),
        )
        for i in range(len(obs))
    ]


def by_place(episodes: Sequence[Episode]) -> list[Episode]:
    return sorted(episodes, key=lambda each: (each.env_id, each.agent_id, each.number))


def require_same(vec: VecEnv, obs: VecObs, envs: Sequence[PlainEnv]) -> None:
    """Compares a batch with the plain environments that it shows."""
    ids = obs.env_id[:: vec.num_agents].tolist()
    mine = [envs[env_id] for env_id in ids]
    assert rows_of(obs) == [row for env in mine for row in env.rows]
    assert obs.env_id.tolist() == np.repeat(ids, vec.num_agents).tolist()
    assert obs.agent_id.tolist() == list(range(vec.num_agents)) * len(mine)
    assert by_place(obs.episodes) == by_place([each for env in mine for each in env.episodes])
    finals = {(env.env_id, i): row for env in mine for i, row in env.final.items()}
    if obs.final is None:
        assert not finals
    else:
        keys = zip(obs.final.env_id.tolist(), obs.final.agent_id.tolist(), strict=True)
        found = dict(zip(keys, rows_of(obs.final), strict=True))
        assert found == finals
        rows = obs.final_rows()
        assert obs.env_id[rows].tolist() == obs.final.env_id.tolist()
        assert obs.agent_id[rows].tolist() == obs.final.agent_id.tolist()
        outcome = rows_of(obs.with_final())
        for (env_id, i), last in finals.items():
            row = outcome[ids.index(env_id) * vec.num_agents + i]
            assert (row.x, row.is_ready) == (last.x, last.is_ready)
    assert vec.is_over[ids].tolist() == [env.is_over for env in mine]


def actions_of(obs: VecObs) -> dict[str, Any]:
    """Actions by `choose`; the last rows of ended episodes need none."""
    rows = [(float(obs.features["Dot"][i][0, 0]), int(obs.agent_id[i])) for i in ready_rows(obs)]
    return {"Move": np.array([list(Move).index(choose(*row)) for row in rows], np.int64)}


def ready_rows(obs: VecObs) -> list[int]:
    return np.flatnonzero(obs.is_ready).tolist()


class Play(NamedTuple):
    """A `VecEnv` and the plain environments that it must equal."""

    vec: VecEnv
    envs: list[PlainEnv]

    def reset(self, seed: int | None = None, mask: Sequence[bool] | None = None) -> VecObs:
        before = None if mask is None else [env.rows for env in self.envs]
        for i, env in enumerate(self.envs):
            if mask is not None and not mask[i]:
                env.repeat()
                continue
            if seed is not None:
                env.begin_run(seed)
            env.begin()
            if self.vec.autoreset != "same_step":
                env.final = {}  # the rows show them
        obs = self.vec.reset(seed) if mask is None else self.vec.reset_envs(mask, seed)
        assert obs.begins is not None
        if mask is not None and before is not None:
            pairs = zip(mask, before, strict=True)
            begun = [is_new or row.terminated or row.truncated for is_new, e in pairs for row in e]
            assert (obs.begins | ~np.array(begun) | obs.done).all()
        require_same(self.vec, obs, self.envs)
        return obs

    def act(self, obs: VecObs) -> VecObs:
        for env in self.envs:
            env.act()
        obs = self.vec.act(actions_of(obs))
        assert obs.begins is None
        require_same(self.vec, obs, self.envs)
        return obs


def opened(
    game: Game,
    mode: Autoreset,
    num_envs: int = 4,
    num_workers: int = 0,
    **how: Any,  # noqa: ANN401
) -> Play:
    envs = [PlainEnv(game, i, mode) for i in range(num_envs)]
    return Play(VecEnv(game, num_envs, num_workers, autoreset=mode, **how), envs)


each_mode = pytest.mark.parametrize("mode", MODES)
WORKERS = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))]
each_number_of_workers = pytest.mark.parametrize("num_workers", WORKERS)


@each_number_of_workers
@each_mode
def test_every_batch_equals_the_plain_loop(mode: Autoreset, num_workers: int) -> None:
    """Also after resets of environments that are over, that still play, and of none."""
    rng, play = np.random.default_rng(1), opened(crew, mode, 4, num_workers)
    num_partly, num_ended = 0, 0
    with play.vec:
        obs = play.reset(SEED)
        for step in range(150):
            num_ended += len(obs.episodes)
            done = obs.done.reshape(4, NUM_AGENTS).any(axis=1)
            num_partly += int(np.count_nonzero(done & ~play.vec.is_over))
            if mode == "disabled" and play.vec.is_over.any() and step % 3:
                obs = play.reset(mask=play.vec.is_over.tolist())
            elif step % 5 == 4 or (mode == "disabled" and play.vec.is_over.any()):
                obs = play.reset(mask=(rng.random(4) < 0.3).tolist(), seed=step % 2 or None)
            else:
                obs = play.act(obs)
        obs = play.reset()
    assert num_ended > 50
    assert num_partly > 10


@each_number_of_workers
def test_agents_that_respawn(num_workers: int) -> None:
    play = opened(arena, "same_step", 3, num_workers)
    with play.vec:
        obs, num_back = play.reset(SEED), 0
        for step in range(60):
            num_back += int(np.count_nonzero(obs.done & obs.is_ready))
            obs = play.reset(mask=[False, True, False]) if step % 7 == 6 else play.act(obs)
        assert num_back > 4


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@each_mode
def test_games_that_fail_are_truncated_for_agents_that_play(
    mode: Autoreset, num_workers: int
) -> None:
    play = opened(crew.with_settings(fails=True), mode, 4, num_workers, on_error="restart")
    num_failed = 0
    with play.vec:
        obs = play.reset(SEED)
        for _ in range(80):
            if mode == "disabled" and play.vec.is_over.any():
                obs = play.reset(mask=play.vec.is_over.tolist())
            else:
                obs = play.act(obs)
            num_failed += sum("error" in each.metrics for each in obs.episodes)
    assert num_failed > 5


@pytest.mark.slow
@pytest.mark.parametrize("min_envs", [1, 3, 4])
@each_mode
def test_parts_of_a_batch_equal_the_plain_loop(mode: Autoreset, min_envs: int) -> None:
    """`send` for some environments while others play."""
    play = opened(crew, mode, 4, 2)
    vec, envs = play
    with vec:
        batches, num_parts, num_ended = [play.reset(SEED)], 0, 0
        for _ in range(80):
            over = vec.is_over
            waiting = [each for each in batches if mode == "disabled" and over[each.env_id].any()]
            for batch in batches:
                if not any(batch is each for each in waiting):
                    vec.send(actions_of(batch), batch.env_id[:: vec.num_agents])
                    for env_id in set(batch.env_id.tolist()):
                        envs[env_id].act()
            num_busy = 4 - sum(len(each) for each in waiting) // vec.num_agents
            if not num_busy:
                batches = [play.reset(mask=over.tolist())]
                continue
            obs = vec.recv(min(min_envs, num_busy))
            assert len(obs) >= min(min_envs, num_busy) * vec.num_agents
            require_same(vec, obs, envs)
            num_parts += len(obs) < vec.num_rows
            num_ended += len(obs.episodes)
            batches = [*waiting, obs.copy()]
        assert num_ended > 20
        assert (num_parts > 0) == (min_envs == 1)  # workers have two environments each


@pytest.mark.slow
@each_mode
def test_transitions_lead_from_turn_to_turn_of_each_agent(mode: Autoreset) -> None:
    """In a `ReplayBuffer`; those of abandoned episodes are left out."""
    play, buffer = opened(crew, mode), ReplayBuffer(10_000)
    vec, envs = play
    rng, num_kept = np.random.default_rng(1), 0
    expected: list[tuple[float, float, float, float | None, bool, bool]] = []
    acted: dict[tuple[int, int], tuple[float, float]] = {}
    """By environment and agent, the place where it acted and the rewards since then."""
    with vec:
        obs = play.reset(SEED).copy()
        for step in range(120):
            for env in envs:
                for i, row in enumerate(env.rows):
                    if row.is_ready and row.x is not None:
                        acted[env.env_id, i] = row.x, 0.0
            actions, before = actions_of(obs), obs
            obs = play.act(obs)
            buffer.add(before, actions, obs)
            for env in envs:
                for i, row in enumerate(env.rows):
                    if (env.env_id, i) not in acted:
                        continue
                    x, reward = acted[env.env_id, i]
                    last = env.final.get(i)
                    acted[env.env_id, i] = x, reward + row.reward
                    if last is None and not row.is_ready:
                        num_kept += 1
                        continue
                    shown = row if last is None else last
                    flags = row.terminated, row.truncated
                    choice = float(list(Move).index(choose(x, i)))
                    expected.append((x, choice, reward + row.reward, shown.x, *flags))
                    del acted[env.env_id, i]
            if mode == "disabled" and vec.is_over.any():
                obs = play.reset(mask=vec.is_over.tolist())
            elif step % 6 == 5:
                mask = (rng.random(4) < 0.4).tolist()
                obs = play.reset(mask=mask)
                acted = {key: each for key, each in acted.items() if not mask[key[0]]}
            obs = obs.copy()
    assert num_kept > 20, "no agent waited"
    found = buffer.select(range(len(buffer)))
    dots, after = found.obs.features["Dot"], found.next_obs.features["Dot"]
    rows = [
        (
            float(dots[i][0, 0]),
            float(found.actions["Move"][i][0]),
            float(found.next_obs.reward[i]),
            float(after[i][0, 0]) if len(after[i]) else None,
            bool(found.next_obs.terminated[i]),
            bool(found.next_obs.truncated[i]),
        )
        for i in range(len(buffer))
    ]
    assert sorted(rows, key=str) == sorted(expected, key=str)
