"""Odd environments of other libraries: every importer shows what a plain loop does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from pettingzoo.utils.conversions import parallel_to_aec

from entity_env import Episode, Game, VecCategoricalActionMask, VecObs
from entity_env.agents import RandomAgent
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.local_run import Turn
from entity_env.core.observation import Action, Observation
from entity_env.interop.gymnasium import GameEnv, GymnasiumVecEnv, from_gymnasium, make_vector_env
from entity_env.interop.pettingzoo import GameAECEnv, from_pettingzoo
from entity_env.replay import Replay, record
from entity_env.vec import Autoreset, VecEnv
from tests.interop.odd_envs import (
    ODD,
    SEATS,
    Allowed,
    Alone,
    End,
    Fold,
    Moment,
    OddSeats,
    Row,
    Trace,
    choices,
    plain_loop,
    plain_seats,
)

NUM_STEPS: Final = 24
WITHOUT_METHODS: Final = [name for name in ODD if "method" not in name]
"""Environments for PettingZoo, which knows no method for masks."""
each_env = pytest.mark.parametrize("name", ODD)


def require_plain(
    name: str, traces: Sequence[Trace], least: int, *, has_metrics: bool = True
) -> None:
    """Compares whole episodes with a plain loop; the observation shows their number."""
    assert len(traces) >= least
    for trace in traces:
        expected = plain_loop(ODD[name]().unwrapped, int(trace[0].row[0]))
        for got, wanted in zip(trace, expected, strict=True):
            metrics = wanted.metrics if has_metrics else got.metrics
            assert got == wanted._replace(metrics=metrics), f"episode {trace[0].row[0]}"


def row_of(features: Any) -> Row:  # noqa: ANN401 - an array
    values = np.asarray(features, np.float64).ravel()
    if len(values) == 2:
        return tuple(values.tolist())
    return float(values[:1000].argmax()), float(values[1000:].argmax())  # of one-hots


class Scribe(PolicyAgent):
    """Decides like the plain loop."""

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        asked = self.questions(observation)
        row = row_of(observation.features["Env"])
        allowed = tuple(tuple(np.flatnonzero(each.allowed[0]).tolist()) for each in asked)
        chosen = choices(row, allowed)
        return {each.name: each.action([i]) for each, i in zip(asked, chosen, strict=True)}


def played(game: Game, episodes: int = 6) -> list[Trace]:
    """Episodes of `Game.run`."""
    traces: list[Trace] = [[]]

    def watch(turn: Turn) -> None:
        seen, end = turn.observation, turn.episode
        allowed: Allowed | None = tuple(
            tuple(range(len(space)) if mask.mask is None else np.flatnonzero(mask.mask).tolist())  # type: ignore[arg-type,union-attr]
            for name, space in game.action_space().items()
            if (mask := seen.actions.get(name)) is not None
        )
        flags = None if end is None else (end.terminated, end.truncated)
        metrics = {} if end is None else dict(end.metrics)
        if end is not None and end.terminated:
            allowed = None
        row = row_of(seen.features["Env"])
        traces[-1].append(Moment(row, seen.reward, allowed, flags, metrics))
        if end is not None:
            assert end.reward == pytest.approx(sum(each.reward for each in traces[-1]))
            assert end.length == len(traces[-1]) - 1
            traces.append([])

    game.run(Scribe(), seed=3, episodes=episodes, watch=watch)
    return traces[:-1]


def allowed_in(obs: VecObs, sizes: Mapping[str, int], row: int) -> Allowed:
    found = []
    for name, size in sizes.items():
        mask = obs.action_masks[name]
        assert isinstance(mask, VecCategoricalActionMask)
        first = int(mask.actors.offsets[row])
        flags = np.ones(size) if mask.mask is None else mask.mask.values[first]
        found.append(tuple(np.flatnonzero(flags).tolist()))
    return tuple(found)


def stepped(vec: VecEnv, seed: int = 5) -> list[Trace]:
    """Whole episodes of a `VecEnv`, with every agent's own choices."""
    sizes = {name: len(space) for name, space in vec.action_space().items()}  # type: ignore[arg-type]
    with vec:
        obs = vec.reset(seed=seed)
        running: list[Trace] = [[] for _ in range(len(obs))]
        traces: list[Trace] = []
        for _ in range(NUM_STEPS):
            traces += _ends(obs, sizes, running)
            chosen = []
            for row in np.flatnonzero(obs.is_ready).tolist():
                is_first = not running[row]
                seen = row_of(obs.features["Env"][row])
                allowed = allowed_in(obs, sizes, row)
                reward = 0.0 if is_first else float(obs.reward[row])
                running[row].append(Moment(seen, reward, allowed))
                chosen.append(choices(seen, allowed))
            if vec.autoreset == "disabled" and not obs.is_ready.all():
                for row in np.flatnonzero(obs.is_ready).tolist():
                    running[row].pop()  # it is shown again
                kept = obs.reward.copy()
                obs = vec.reset_envs(~obs.is_ready)
                obs.reward[:] = np.where(obs.is_ready & (obs.reward == 0), kept, obs.reward)
                continue
            actions = np.array(chosen, np.int64).reshape(-1, len(sizes))
            obs = vec.act({name: actions[:, i] for i, name in enumerate(sizes)})
    return traces


def _ends(obs: VecObs, sizes: Mapping[str, int], running: list[Trace]) -> Iterator[Trace]:
    final = obs.final
    if final is None:
        return
    for i, episode in enumerate(final.episodes):
        row = int(final.env_id[i])
        allowed = allowed_in(final, sizes, i) if episode.truncated else None
        flags = bool(final.terminated[i]), bool(final.truncated[i])
        seen = row_of(final.features["Env"][i])
        metrics = dict(episode.metrics)
        running[row].append(Moment(seen, float(final.reward[i]), allowed, flags, metrics))
        trace, running[row] = running[row], []
        assert flags == (episode.terminated, episode.truncated)
        assert episode.reward == pytest.approx(sum(each.reward for each in trace))
        assert episode.length == len(trace) - 1
        yield trace


def alone(name: str) -> Alone:
    return Alone(ODD[name])


def alone_in_turn(name: str) -> Any:  # noqa: ANN401 - untyped
    return parallel_to_aec(alone(name))


def sync(name: str, num_envs: int, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:  # noqa: ANN401
    return SyncVectorEnv([ODD[name]] * num_envs, autoreset_mode=mode)


@each_env
def test_games_play_like_a_plain_loop(name: str) -> None:
    require_plain(name, played(from_gymnasium(ODD[name])), 6)


@pytest.mark.parametrize("name", WITHOUT_METHODS)
@pytest.mark.parametrize("make", [alone, alone_in_turn])
def test_games_of_pettingzoo_play_like_a_plain_loop(make: Callable[..., Any], name: str) -> None:
    require_plain(name, played(from_pettingzoo(partial(make, name))), 6)


@each_env
@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_copies_step_like_a_plain_loop(autoreset: Autoreset, name: str) -> None:
    game = from_gymnasium(ODD[name])
    require_plain(name, stepped(VecEnv(game, 3, autoreset=autoreset)), 9)
    if name in WITHOUT_METHODS:
        both = from_pettingzoo(partial(alone, name))
        require_plain(name, stepped(VecEnv(both, 2, autoreset=autoreset)), 6)


@pytest.mark.slow
@each_env
@pytest.mark.parametrize("num_workers", [1, 2])
def test_copies_in_workers_step_like_a_plain_loop(num_workers: int, name: str) -> None:
    require_plain(name, stepped(VecEnv(from_gymnasium(ODD[name]), 3, num_workers)), 9)
    vec = GymnasiumVecEnv(partial(sync, name), 3, num_workers)
    require_plain(name, stepped(vec), 9)


@each_env
@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments_step_like_a_plain_loop(mode: AutoresetMode, name: str) -> None:
    require_plain(name, stepped(GymnasiumVecEnv(sync(name, 3, mode))), 6)


@pytest.mark.slow
@each_env
@pytest.mark.parametrize("mode", AutoresetMode)
def test_environments_in_processes_step_like_a_plain_loop(mode: AutoresetMode, name: str) -> None:
    """Gymnasium reads their results itself, in their processes."""
    if name in ("arrays of one number", "numbers of several types in infos"):
        pytest.skip("Gymnasium refuses or rounds them")
    if mode == AutoresetMode.SAME_STEP and ("method" in name or "in place" in name):
        pytest.skip("Gymnasium resets the environment before it shows the last observation")
    env: Any = AsyncVectorEnv([ODD[name]] * 2, autoreset_mode=mode)
    require_plain(name, stepped(GymnasiumVecEnv(env)), 3)


@each_env
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_game_made_an_environment_again_steps_like_a_plain_loop(
    mode: AutoresetMode, name: str
) -> None:
    around = GymnasiumVecEnv(make_vector_env(from_gymnasium(ODD[name]), 2, autoreset_mode=mode))
    require_plain(name, stepped(around), 4, has_metrics=False)
    if mode == AutoresetMode.SAME_STEP:  # it makes new objects for every observation
        alone: Any = SyncVectorEnv([lambda: GameEnv(from_gymnasium(ODD[name]))])
        require_plain(name, stepped(GymnasiumVecEnv(alone)), 2, has_metrics=False)


# ------------------------------------------------------------------ several agents


def ends_of(episodes: Sequence[Episode]) -> Iterator[tuple[int, dict[str, End]]]:
    """Ends of every seat, by the number that the environment was reset with."""
    by_match: dict[tuple[int, int], dict[str, Episode]] = {}
    for episode in episodes:
        match = by_match.setdefault((episode.env_id, episode.number), {})
        match[SEATS[episode.agent_id]] = episode
    for match in by_match.values():
        [seed] = {episode.seed for episode in match.values()}
        if set(match) == set(SEATS):
            yield seed % 2**31 % 1000, {name: end_of(match[name]) for name in SEATS}


def end_of(episode: Episode) -> End:
    return episode.reward, episode.length, episode.terminated, episode.truncated


def in_turn() -> Any:  # noqa: ANN401 - untyped
    return parallel_to_aec(OddSeats())


def test_every_seat_ends_like_in_a_plain_loop() -> None:
    episodes = from_pettingzoo(OddSeats).run(*(Scribe() for _ in SEATS), seed=2, episodes=40)
    matches = list(ends_of(episodes))
    assert len(matches) == 40
    assert {number % 6 for number, _ in matches} == set(range(6))
    for number, ends in matches:
        assert ends == plain_seats(number), number


@pytest.mark.parametrize(
    "num_workers",
    [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_every_seat_of_copies_ends_like_in_a_plain_loop(
    autoreset: Autoreset, num_workers: int
) -> None:
    episodes: list[Episode] = []
    with VecEnv(from_pettingzoo(OddSeats), 2, num_workers, autoreset=autoreset) as vec:
        obs = vec.reset(seed=2)
        earned = np.zeros(len(obs))
        for _ in range(60):
            episodes += obs.episodes
            earned += obs.reward
            waiting = np.array([obs.is_ready[: len(SEATS)].any(), obs.is_ready[len(SEATS) :].any()])
            if autoreset == "disabled" and not waiting.all():
                for row in np.flatnonzero(~waiting.repeat(len(SEATS))).tolist():
                    env_id, agent_id = divmod(row, len(SEATS))
                    own = [e for e in episodes if (e.env_id, e.agent_id) == (env_id, agent_id)]
                    assert earned[row] == own[-1].reward
                    earned[row] = 0
                obs = vec.reset_envs(~waiting)
                continue
            rows = obs.features["Env"]
            seen = [row_of(rows[i]) for i in np.flatnonzero(obs.is_ready)]
            chosen = [choices(row, ((0, 1, 2, 3),))[0] for row in seen]
            obs = vec.act({"Action": np.array(chosen, np.int64)})
        matches = list(ends_of(episodes))
    assert len(matches) > 8
    for number, ends in matches:
        assert ends == plain_seats(number), number


@pytest.mark.parametrize("first", [0.0, 0.5])
@pytest.mark.parametrize("around", [False, True])
def test_rewards_before_the_first_turn_arrive(first: float, around: bool) -> None:
    """Player b wins if a folds, without a turn of its own."""
    game = from_pettingzoo(Fold, first=first)
    if around:
        game = from_pettingzoo(partial(GameAECEnv, game))
    episodes = game.run(RandomAgent(1), RandomAgent(2), episodes=40)
    ends = {(e.number, e.agent_id): e for e in episodes}
    lengths = set()
    for number in range(40):
        mine, theirs = ends[number, 0], ends[number, 1]
        lengths.add((mine.length, theirs.length))
        loser = mine if mine.length > theirs.length else theirs
        sign = 1 if loser is mine else -1
        assert (mine.reward, theirs.reward) == (first - sign, sign - first)
    assert {(1, 0), (1, 1)} <= lengths


def test_rewards_before_the_first_turn_are_in_files(tmp_path: Path) -> None:
    replay = record(from_pettingzoo(Fold, first=0.5), RandomAgent(1), RandomAgent(2), seed=4)
    replay.save(tmp_path / "fold.replay")
    turns = Replay.load(tmp_path / "fold.replay").turns()
    earned = [sum(t.observation.reward for t in turns if t.agent_id == i) for i in (0, 1)]
    ends = [t.episode.reward for t in turns if t.episode is not None]
    assert sorted(earned) == sorted(ends)
    assert earned[0] == -earned[1] != 0
