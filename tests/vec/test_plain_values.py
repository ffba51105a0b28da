"""Scalars given to games, watchers, callbacks and callers are plain Python, never numpy's.

`random.Random` refuses numpy's integers as seeds, `json` all of its scalars, and differences of its
unsigned integers wrap around.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pytest

from entity_env import (
    Categorical,
    Composite,
    Continuous,
    EpisodeEnv,
    Game,
    Metric,
    Obs,
    Observation,
    Range,
    questions,
)
from entity_env.agents import Agent, RandomAgent, TrainAgentEnv, random_actions
from entity_env.agents.training.callbacks import Callback
from entity_env.core.episode_stats import LazyEpisodes
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.validation import plain_number
from entity_env.vec import Autoreset, VecEnv
from tests.helpers.strategies import untyped


class Go(Enum):
    BACK = -1
    ON = 1


@dataclass(eq=False)
class Unit:
    x: int


@dataclass(frozen=True)
class Send:
    how: Go
    boost: bool
    amount: Annotated[float, Range(-1.0, 2.0)]


SEND, GO = Composite(Send), Categorical(Go)
STEER = Continuous("steer", low=(-1.0, 0.0), high=(1.0, 2.0), labels=("wheel", "gas"))

to_game: list[tuple[str, object]] = []
"""What `play` got in this process."""


def play(
    agent: Agent,
    *,
    seed: int,
    length: int = 3,
    width: float = 1.5,
    fast: bool = False,
    level: Literal[1, 2] = 1,
    start: int | None = None,
) -> None:
    """Scores, metrics and features are of numpy, as in games about an array."""
    to_game.append(("settings", (length, width, fast, level, start)))
    to_game.append(("seed", (seed, agent.seed)))
    Random(seed)  # refuses numpy's integers
    score = np.zeros(3, np.uint8)
    for step in range(length):
        units = [Unit(untyped(np.int64(step))), Unit(2)]
        asked = (SEND, STEER, GO)[step % 3]
        obs = Obs(untyped(score.sum())).actors(units).metric("steps", untyped(np.int32(step)))
        answers: Any = agent.act(obs, asked)
        if answers is None:
            return
        # A continuous answer is an array, as documented.
        to_game.append((asked.name, [a for a in answers if not isinstance(a, np.ndarray)]))
        score[step % 3] += 1
        if step == 1:
            score[:] = 0  # the sum, an unsigned integer, falls
    last = Obs(untyped(score.sum())).metric("share", untyped(np.float32(0.1)))
    agent.game_over(last.metric("won", untyped(np.bool_(True))))


numbers = Game(play, entities=(Unit,), actions=(SEND, STEER, GO), name="numbers")


def foreign(value: object, path: str = "") -> list[str]:
    """Places of numpy's scalars in nested data."""
    if isinstance(value, np.generic):
        return [f"{path}: {value!r}"]
    if is_dataclass(value) and not isinstance(value, type):
        named = [(f".{f.name}", getattr(value, f.name)) for f in fields(value)]
        return [each for name, part in named for each in foreign(part, path + name)]
    if isinstance(value, Mapping):
        parts: Iterable[tuple[object, object]] = value.items()
        parts = [pair for key, part in parts for pair in ((key, part), (f"key {key}", key))]
    elif isinstance(value, list | tuple | LazyEpisodes):
        parts = enumerate(value)
    else:
        return []
    return [each for key, part in parts for each in foreign(part, f"{path}[{key}]")]


def require_plain(**values: object) -> None:
    assert foreign({**values, "to the game": to_game}) == []
    to_game.clear()


NUMPY_SETTINGS: list[tuple[str, object]] = [
    ("length", np.int64(4)),
    ("length", np.uint8(4)),
    ("width", np.float64(2)),
    ("width", np.float32(2)),
    ("width", np.int64(2)),
    ("fast", np.bool_(True)),
    ("level", np.int64(2)),
    ("start", np.int16(2)),
]


@pytest.mark.parametrize(("name", "value"), NUMPY_SETTINGS, ids=lambda x: repr(x))
def test_settings(name: str, value: object) -> None:
    game = numbers.with_settings(**{name: value})
    [episode] = game.run(RandomAgent(seed=1))
    require_plain(settings=game.settings, episode=episode)
    json.dumps(dict(game.settings))


@pytest.mark.parametrize("seed", [np.int64(5), np.uint64(2**63 + 5), np.int8(5)], ids=repr)
def test_games_played_here(seed: Any) -> None:  # noqa: ANN401 - numpy's integers, allowed at runtime
    turns: list[object] = []
    played = numbers.run(RandomAgent(seed=1), seed=seed, episodes=2, watch=turns.append)
    played += numbers.play_episode(RandomAgent(seed=1), seed=seed, watch=turns.append)
    assert played[-1].seed == int(seed)
    assert len(turns) == 12
    require_plain(episodes=played, turns=turns, seeds=[EpisodeSeeds(seed)[i] for i in range(3)])
    for episode in played:
        json.dumps([episode.reward, dict(episode.metrics), episode.seed])


@pytest.mark.parametrize("transport", ["greenlet", "thread"])
def test_one_environment(transport: Any) -> None:  # noqa: ANN401 - a `Transport`
    seed: Any = np.int64(5)
    with closing(TrainAgentEnv(numbers, seed=seed, transport=transport)) as env:
        shown: list[Observation] = [env.reset(seed=seed)]
        while not shown[-1].done:
            shown.append(env.act(first_actions(shown[-1], env)))
        parts = [(each.reward, each.terminated, each.truncated, each.metrics) for each in shown]
        require_plain(shown=parts, episodes=list(env.episodes))


def first_actions(shown: Observation, env: Any) -> dict[str, Any]:  # noqa: ANN401 - has spaces
    """The first choice, or zeros, of every actor."""
    found = {}
    for asked in questions(shown, env.obs_space(), env.action_space()):
        labels = getattr(asked.space, "labels", None)
        shape = (len(asked.actors), len(labels)) if labels else len(asked.actors)
        found[asked.name] = asked.action(np.zeros(shape, np.float32 if labels else np.int64))
    return found


class NumpyRewards(TrainAgentEnv):
    """An `Environment` with a reward of numpy, as ports of Gymnasium's have."""

    def act(self, actions: Mapping[str, Any]) -> Observation:
        shown = super().act(actions)
        shown.reward = untyped(np.float32(shown.reward))
        shown.metrics = {"steps": untyped(np.int64(1))}
        return shown


ENVIRONMENTS: dict[str, Any] = {"game": numbers, "environment": partial(NumpyRewards, numbers)}


@pytest.mark.parametrize("source", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_one_episode_at_a_time(source: Any) -> None:  # noqa: ANN401 - of `EpisodeEnv.of`
    seed: Any = np.int64(5)
    with EpisodeEnv.of(source, seed=seed) as env:
        shown: Any = env.reset_with_index(untyped(np.int64(2)))
        is_over = False
        while not is_over:
            step, record = env.step(first_actions(shown, env))
            shown, is_over = step.obs, step.is_done()
            require_plain(step=(step.reward, step.is_terminated, step.is_truncated, step.info))
            require_plain(is_over=is_over, record=[record[name] for name in record])


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_many(kind: str, autoreset: Autoreset, num_workers: int) -> None:
    source, seed = ENVIRONMENTS[kind], untyped(np.int64(5))
    rng, num_ended, watched = np.random.default_rng(1), 0, list[object]()
    total = Metric()
    with VecEnv(source, 2, num_workers, seed=seed, autoreset=autoreset) as vec:
        if kind == "game":
            vec.watch_episodes(lambda episodes, replay: watched.append((episodes, replay())))
        obs = vec.reset(seed)
        for _ in range(9):
            rewards = obs.reward
            assert np.abs(rewards).max() <= 2, "an unsigned score wrapped around"
            require_plain(seeds=vec.episode_seeds(), episodes=obs.episodes, metrics=obs.metrics)
            assert all(type(each) is int for each in vec.episode_seeds() or ())
            num_ended += len(obs.episodes)
            for episode in obs.episodes:
                json.dumps([episode.reward, dict(episode.metrics), episode.seed])
                total.push(episode.reward)
            if vec.is_over.any() and autoreset == "disabled":
                obs = vec.reset_envs(vec.is_over, seed, starts=np.arange(2))
            else:
                obs = vec.act(random_actions(obs, vec.action_space(), rng))
        require_plain(statistics=vec.statistics(), watched=watched, total=total)
    assert num_ended >= 4
    assert bool(watched) == (kind == "game")


class Seen(Callback):
    """Keeps what callbacks are given."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def on_update(self, state: Any) -> None:  # noqa: ANN401 - a `TrainState`
        self.values += [state.progress, state.rank, state.is_interrupted]

    def on_evaluation(self, state: Any, evaluation: object) -> None:  # noqa: ANN401
        self.values.append(evaluation)


@pytest.mark.slow
def test_callbacks() -> None:
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.vec import Evaluator

    with VecEnv(numbers, 4, seed=untyped(np.int64(1))) as vec:
        config = PPOConfig.for_env(vec, total_steps=64, num_steps=4)
        seen = Seen()
        train(vec, config, callbacks=[Evaluator(numbers, episodes=4, at_start=True), seen])
    assert len(seen.values) > 4
    require_plain(values=seen.values)


def test_a_number_stays_what_it_is() -> None:
    pairs: Sequence[tuple[Any, Callable[[Any], float]]] = [
        (3, int),
        (2**60 + 1, int),
        (0.1, float),
        (True, float),
        (np.int64(2**60 + 1), int),
        (np.float32(0.5), float),
        (np.array(2.0), float),
    ]
    for value, kind in pairs:
        found = plain_number(value)
        assert type(found) is kind
        assert found == value
