"""Our own games as contenders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle

import numpy as np

from benchmarks.peers.stepper import Stepper
from entity_env import Game, Obs
from entity_env.agents import Agent
from entity_env.agents.channels.game_runner import GameRunner, TrainAgent
from entity_env.core.episode import Episode
from entity_env.games import meteors, multi_snake
from entity_env.games.meteor_shower import Meteors
from entity_env.games.multi_snake import Move
from entity_env.vec import BatchVecEnv, VecEnv
from entity_env.vec.options import Source

_NUM_BATCHES = 64
"""Number of precomputed batches of random actions."""


@dataclass(slots=True)
class Thing:
    """Every observation has eight."""

    x: int
    y: int
    z: int


class Choice(Enum):
    """An action without effect."""

    STAY = 0
    GO = 1


def play_nothing(agent: Agent, *, seed: int) -> None:
    """Never ends; every observation has the same entities."""
    things = [Thing(i, i + 1, seed % 7) for i in range(8)]
    while agent.act(Obs(0.0).entities(things), Choice) is not None:
        pass


NOTHING = Game(play_nothing, entities=(Thing,), actions=(Choice,), name="nothing")
ONE_SNAKE = multi_snake.with_settings(num_snakes=1)


def snake(num_envs: int, num_workers: int) -> Stepper:
    """Our multi_snake with one snake."""
    return stepper(ONE_SNAKE, num_envs, num_workers)


def nothing(num_envs: int, num_workers: int) -> Stepper:
    """A game without rules that shows 8 entities."""
    return stepper(NOTHING, num_envs, num_workers)


def meteors_loop(num_envs: int, num_workers: int) -> Stepper:
    """Meteors, written as a loop."""
    return stepper(meteors, num_envs, num_workers)


def meteors_numpy(num_envs: int) -> Stepper:
    """Meteors, with its rules in numpy."""
    return _stepper(BatchVecEnv(Meteors, num_envs))


def stepper(source: Source, num_envs: int, num_workers: int) -> Stepper:
    """Stepper for a `VecEnv` whose environments have one actor each; reads the first batch."""
    return _stepper(VecEnv(source, num_envs, num_workers))


def _stepper(vec: VecEnv) -> Stepper:
    num_envs = vec.num_envs
    vec.reset(seed=0)
    ((name, space),) = vec.action_space().items()
    num_choices = len(space)  # type: ignore[arg-type]  # a categorical one
    rng = np.random.default_rng(0)
    batches = cycle(rng.integers(0, num_choices, (_NUM_BATCHES, num_envs)))
    return Stepper(num_envs, lambda: vec.act({name: next(batches)}), lambda: _totals(vec))


def _totals(vec: VecEnv) -> Mapping[str, float]:
    """Seconds by activity: of the parent, and of one worker on average."""
    statistics = vec.statistics()
    share = 1 / len(statistics.workers)
    return {
        "games": statistics.games_s * share,
        "packing": statistics.packing_s * share,
        "idle": sum(worker.waiting_s for worker in statistics.workers) * share,
        "transport": statistics.transport_s,
        "waiting": statistics.waiting_s,
        "caller": statistics.caller_s,
    }


def bare_snake(num_envs: int) -> Stepper:
    """The games alone, in this process: given actions and resumed; observations are not read."""
    hosts = [GameRunner(ONE_SNAKE, env_id=i, on_end=_ignore) for i in range(num_envs)]
    for host in hosts:
        host.restart(0)
    rng = np.random.default_rng(0)
    moves = list(Move)
    batches = cycle(rng.integers(0, len(moves), (_NUM_BATCHES, num_envs)).tolist())
    pairs = [(host.agents[0].give, host.resume) for host in hosts]
    return Stepper(num_envs, lambda: _resume(pairs, moves, next(batches)))


def _resume(
    pairs: Sequence[tuple[Callable[[object], None], Callable[[], None]]],
    moves: list[Move],
    chosen: list[int],
) -> None:
    for (give, resume), index in zip(pairs, chosen, strict=True):
        give((moves[index],))
        resume()


def _ignore(agent: TrainAgent, obs: Obs, episode: Episode) -> None:
    """Ignores the last observation of an episode."""
