"""What does it cost if the game owns its loop?

The cost is the time of a round trip of `agent.act` through a TrainAgent pair, minus the time of the
same game and observation with an agent that returns immediately. It is measured for 1, 1,000 and
10,000 suspended games in one thread. For a game in its own thread, `thread_us_1` is the whole round
trip. `greenlet_bytes_per_game` is the memory of a suspended game.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env import Game, Obs
from entity_env.agents import Agent, Transport
from entity_env.agents.channels.game_runner import GameRunner, OnEnd, TrainAgent
from entity_env.core.episode import Episode

_NUM_ACTS = 200_000
_DEPTH = 10
"""Number of Python frames between the loop of a game and its call of `act`."""


@dataclass(slots=True)
class Entity:
    """Every observation has eight."""

    x: int
    y: int


class Move(Enum):
    """Two choices; the second is never taken."""

    STAY = 0
    GO = 1


def play(agent: Agent, *, seed: int) -> None:
    """Calls `act` forever, ten calls deep."""
    entities = [Entity(i, seed % 7) for i in range(8)]
    while _ask(agent, entities, _DEPTH) is not None:
        pass


def _ask(agent: Agent, entities: list[Entity], depth: int) -> Move | None:
    if depth:
        return _ask(agent, entities, depth - 1)
    return agent.act(Obs(0.0).entities(entities), Move)


GAME = Game(play, entities=(Entity,), actions=(Move,), name="eight entities")


class Direct:
    """Baseline of the comparison: `act` returns a constant action."""

    def __init__(self) -> None:
        self.left = _NUM_ACTS

    def act(self, obs: Obs, /, *actions: Any) -> Move | None:  # noqa: ANN401 - as Agent.act
        """Returns immediately; None after the last step."""
        self.left -= 1
        return Move.STAY if self.left else None


def measure_direct() -> float:
    """µs per `act` without a pair."""
    agent: Any = Direct()
    begin = perf_counter()
    play(agent, seed=0)
    return (perf_counter() - begin) / _NUM_ACTS * 1e6


def measure_pair(num_games: int, transport: Transport = "greenlet") -> Callable[[], float]:
    """µs per `act` through pairs: give each game its action and resume it, in turn."""

    def measure() -> float:
        hosts = make_hosts(num_games, transport)
        num_steps = max(_NUM_ACTS // num_games // (10 if transport == "thread" else 1), 5)
        pairs = [(host.agents[0].give, host.resume) for host in hosts]
        answer = Move.STAY
        begin = perf_counter()
        for _ in range(num_steps):
            for give, resume in pairs:
                give(answer)
                resume()
        elapsed = perf_counter() - begin
        for host in hosts:
            host.close()
        return elapsed / num_steps / num_games * 1e6

    return measure


def make_hosts(num_games: int, transport: Transport) -> list[GameRunner]:
    """Games suspended in their first `act`."""
    on_end: OnEnd = _ignore
    hosts = [
        GameRunner(GAME, transport=transport, env_id=i, on_end=on_end) for i in range(num_games)
    ]
    for host in hosts:
        host.restart(0)
    return hosts


def measure_bytes(num_games: int = 10_000) -> float:
    """Resident bytes per suspended game, including its agent and entities."""
    gc.collect()
    before = _resident_bytes()
    hosts = make_hosts(num_games, "greenlet")
    per_game = (_resident_bytes() - before) / num_games
    for host in hosts:
        host.close()
    return per_game


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def _ignore(agent: TrainAgent, obs: Obs, episode: Episode) -> None:
    """The games never end."""


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    bytes_per_game = measure_bytes()
    times = interleaved(
        {
            "direct": measure_direct,
            "1": measure_pair(1),
            "1000": measure_pair(1000),
            "10000": measure_pair(10_000),
            "thread": measure_pair(1, "thread"),
        },
        rounds,
    )
    figures = {
        "direct_us": times["direct"],
        "greenlet_extra_us_1": times["1"] - times["direct"],
        "greenlet_extra_us_1000": times["1000"] - times["direct"],
        "greenlet_extra_us_10000": times["10000"] - times["direct"],
        "greenlet_bytes_per_game": bytes_per_game,
        "thread_us_1": times["thread"],
    }
    report("A round trip of agent.act", figures, ["greenlet", "numpy", "entity-env"], as_json)


if __name__ == "__main__":
    main()
