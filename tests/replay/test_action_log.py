"""Replays made from a `VecEnv`'s actions: the same lines as `Game.run` writes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Episode
from entity_env.agents import Agent
from entity_env.agents.random import random_actions
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecObs
from entity_env.errors import UsageError
from entity_env.replay import Decision, Replay, action_log
from entity_env.replay.writer import played_again
from entity_env.vec import BatchVecEnv, VecEnv
from tests.helpers.tiny_games import TINY_GAMES, ask, count, dots_game
from tests.helpers.worker_games import Lamp
from tests.replay.games import ALL, with_random_settings
from tests.vec.batch_env.corridor import Corridor

MODES: tuple[Autoreset, ...] = ("same_step", "next_step", "disabled")
# Looping games are excluded: after the wanted episode they might never ask again.
ENDING = [name for name in ALL if not name.endswith("forever")]


class Keeping:
    """Steps a `VecEnv` at random, and keeps the replay of every third episode."""

    def __init__(self, vec: VecEnv, seed: int) -> None:
        self.vec = vec
        self.rng = np.random.default_rng(seed)
        self.replays: list[Replay] = []
        self.ended: list[list[Episode]] = []
        vec.watch_episodes(self.watch)

    def watch(self, episodes: Sequence[Episode], replay: Callable[[], Replay]) -> None:
        self.ended.append(list(episodes))
        if len(self.ended) % 3 == 1:
            self.replays.append(replay())
            told = [(one.reward, one.seed) for one in episodes]
            seed = self.replays[-1].header.episode_seed
            assert told == [(reward, seed) for reward in self.replays[-1].rewards]

    def play(self, num_steps: int) -> None:
        """Plays at least `num_steps` steps, and until there is a replay."""
        obs = self.vec.reset(seed=int(self.rng.integers(99)))
        while num_steps > 0 or not self.replays:
            obs = self.step(obs)
            num_steps -= 1

    def step(self, obs: VecObs) -> VecObs:
        vec, rng = self.vec, self.rng
        if vec.autoreset == "disabled":
            over = np.zeros(vec.num_envs, np.bool_)
            over[obs.env_id[obs.done]] = True
            over &= self.are_over(obs)
            if over.any() or rng.random() < 0.05:  # also in the middle of an episode
                mask = over | (rng.random(vec.num_envs) < 0.05)
                return vec.reset_envs(mask)
        if vec.autoreset == "disabled" or vec.num_workers < 2 or rng.random() < 0.5:
            return vec.act(random_actions(obs, vec.action_space(), rng))
        # Batches are returned in parts and answered in a different order.
        vec.send(random_actions(obs, vec.action_space(), rng))
        waiting = [vec.recv(1)]
        while sum(len(each) for each in waiting) < vec.num_rows:
            waiting.append(vec.recv(1))
        for i in rng.permutation(len(waiting)):
            ids = np.unique(waiting[i].env_id)
            vec.send(random_actions(waiting[i], vec.action_space(), rng), ids)
        return vec.recv()

    def are_over(self, obs: VecObs) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Environments without waiting agents: their episodes have ended."""
        return np.array([not any(ready) for ready in obs.is_ready.reshape(self.vec.num_envs, -1)])


def lines_of(replay: Replay) -> dict[int, list[Decision]]:
    """Actions and ends by agent, without empty actions, which a batch does not have."""
    found: dict[int, list[Decision]] = {i: [] for i in range(replay.header.num_agents)}
    for line in replay.lines:
        actions = {name: value for name, value in line.actions.items() if value != []}
        mine = found[line.agent_id]
        if actions or line.end is not None:
            mine.append(Decision(line.agent_id, len(mine), actions, end=line.end))
    return found


def check(name: str, data: st.DataObject, num_workers: int, seed: int) -> None:
    """Checks that lines written for batches equal those of `Game.run` when it repeats them."""
    game = data.draw(with_random_settings(ALL[name]))
    mode, num_envs = data.draw(st.sampled_from(MODES)), data.draw(st.integers(1, 5))
    with VecEnv(game, num_envs, min(num_workers, num_envs), autoreset=mode) as vec:
        keeping = Keeping(vec, seed)
        keeping.play(60)
    for replay in keeping.replays:
        read = Replay.from_bytes(replay.to_bytes())
        assert read.lines == replay.lines
        assert read.is_whole
        seen, found = played_again(read, game)
        assert found is None
        assert seen.has_observations
        assert lines_of(seen) == lines_of(read)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDING)
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_batches_write_the_lines_of_a_run(name: str, data: st.DataObject, seed: int) -> None:
    check(name, data, 0, seed)


@pytest.mark.slow
@given(data=st.data(), name=st.sampled_from(ENDING), workers=st.integers(1, 3))
@settings(max_examples=40)
def test_any_number_of_workers(data: st.DataObject, name: str, workers: int) -> None:
    check(name, data, workers, seed=workers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chaos", "together"])
def test_batches_that_come_apart(name: str) -> None:
    with VecEnv(TINY_GAMES[name], 4, 2) as vec:
        keeping = Keeping(vec, seed=3)
        keeping.play(60)
    assert all(replay.verify(TINY_GAMES[name]) is None for replay in keeping.replays)


def test_a_wrong_action_is_found() -> None:
    with VecEnv(TINY_GAMES["chaos"], 3) as vec:
        keeping = Keeping(vec, 0)
        keeping.play(40)
    found = 0
    for replay in keeping.replays:
        lines = [line for line in replay.lines if line.actions.get("Move") is not None]
        for line in lines:
            line.actions["Move"] = (line.actions["Move"] + 1) % 3  # type: ignore[index]
        found += bool(lines) and replay.verify(TINY_GAMES["chaos"]) is not None
    assert found


def test_a_watcher_that_comes_later_misses_what_runs() -> None:
    with VecEnv(count, 2) as vec:
        vec.reset()
        vec.act({"Move": np.ones(2, np.int64)})
        keeping = Keeping(vec, 0)
        for _ in range(2 + 3):
            vec.act({"Move": np.ones(2, np.int64)})
    assert [episodes[0].number for episodes in keeping.ended] == [1, 1]
    assert keeping.replays[0].verify(count) is None


def test_memory_is_freed_though_an_agent_has_no_part() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        ask(agents[0])
        agents[0].game_over()

    with VecEnv(dots_game(play, num_agents=2), 1, failures="unused") as vec:
        vec.reset()
        for _ in range(20):
            vec.act({"Move": np.ones(1, np.int64)})
            assert vec._log is not None
            assert len(vec._log._sent) <= 1


def test_memory_is_freed_as_episodes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with VecEnv(count, 2, failures="unused") as vec:
        log = vec._log
        assert log is not None
        vec.reset()
        sizes = []
        for _ in range(12):
            vec.act({"Move": np.ones(2, np.int64)})
            sizes.append(len(log._sent))
        assert sizes == [1, 2, 0] * 4
        assert log._num_bytes == 0

    def play(agent: Agent, *, seed: int) -> None:
        while ask(agent) is not None:
            pass

    monkeypatch.setattr(action_log, "_MAX_BYTES", 20_000)
    with VecEnv(dots_game(play), 2, failures="unused") as vec:
        vec.reset()
        for _ in range(500):
            vec.act({"Move": np.ones(2, np.int64)})
        assert vec._log is not None
        assert vec._log._num_bytes < 25_000


@pytest.mark.parametrize("source", [Lamp, "batch"])
def test_what_is_no_game_is_refused(source: Any, tmp_path: Path) -> None:  # noqa: ANN401
    def refused() -> Any:  # noqa: ANN401
        return pytest.raises(UsageError, match=r"replays need a Game.*is ")

    if source == "batch":
        with BatchVecEnv(Corridor, 2) as vec, refused():
            vec.watch_episodes(lambda episodes, replay: None)
        return
    with refused():
        VecEnv(source, 2, failures=tmp_path)
