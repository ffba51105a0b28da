"""How fast do many games run at once, compared with other vectorized environments?

- Snake with one agent and one snake on 10 x 10 cells, with precomputed random moves.
- A game without rules that shows 8 entities, which measures the cost of the framework.
- Meteors, as a loop and with its rules in numpy.

Peers: entity-gym's `EnvList` and `ParallelEnvList` on its own MultiSnake, entity-gym-rs'
`RustVecEnv`, Gymnasium's `AsyncVectorEnv`. `ParallelEnvList`, `RustVecEnv` and ours have two
workers unless a name says otherwise; `EnvList`, bare games and meteors have none, and
`AsyncVectorEnv` has one per environment. Every contender runs in a separate process and sleeps
unless it is being measured; a ratio is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.common import Median, report, rounds_and_json
from benchmarks.peers.contender import Contender
from benchmarks.peers.environment import peers_python

_ROUND_S = 0.4
_NUM_STARTS = 5
_PACKAGES = [
    *("entity-env", "numpy", "greenlet"),
    *("entity-gym", "entity-gym-rs", "ragged-buffer", "gymnasium"),
]


@dataclass(frozen=True)
class Plan:
    """A contender that has not been started: its maker, arguments, and virtual environment."""

    make: str
    arguments: tuple[int, ...]
    is_peer: bool = False


# Contenders run in this order: those compared with each other are next to each other.
PLANS: dict[str, Plan] = {
    "env_list_256": Plan("entity_gym_lists:snake_list", (256,), True),
    "ours_256": Plan("ours:snake", (256, 2)),
    "parallel_env_list_256": Plan("entity_gym_lists:snake_processes", (256,), True),
    "ours_entity_gym_multi_snake_256": Plan("entity_gym_adapter:snake_as_ours", (256,), True),
    "rust_vec_env_256": Plan("entity_gym_lists:snake_rust", (256,), True),
    "env_list_1024": Plan("entity_gym_lists:snake_list", (1024,), True),
    "ours_1024": Plan("ours:snake", (1024, 2)),
    "parallel_env_list_1024": Plan("entity_gym_lists:snake_processes", (1024,), True),
    "rust_vec_env_1024": Plan("entity_gym_lists:snake_rust", (1024,), True),
    "ours_1024_1_worker": Plan("ours:snake", (1024, 1)),
    "bare_games_1024": Plan("ours:bare_snake", (512,)),  # the share of one of two workers
    "nothing_ours_1024": Plan("ours:nothing", (1024, 2)),
    "nothing_parallel_env_list_1024": Plan("entity_gym_lists:nothing_processes", (1024,), True),
    "nothing_env_list_256": Plan("entity_gym_lists:nothing_list", (256,), True),
    "nothing_ours_256_in_process": Plan("ours:nothing", (256, 0)),
    "nothing_ours_64": Plan("ours:nothing", (64, 2)),
    "nothing_gymnasium_async_64": Plan("gymnasium_async:nothing_async", (64,)),
    "nothing_ours_2": Plan("ours:nothing", (2, 2)),
    "nothing_ours_2_in_process": Plan("ours:nothing", (2, 0)),
    "meteors_numpy_4096": Plan("ours:meteors_numpy", (4096,)),
    "meteors_loop_1024_in_process": Plan("ours:meteors_loop", (1024, 0)),
}

RATIOS = {
    "vs_parallel_env_list_256": ("ours_256", "parallel_env_list_256"),
    "vs_parallel_env_list_1024": ("ours_1024", "parallel_env_list_1024"),
    "vs_env_list_256": ("ours_256", "env_list_256"),
    "vs_env_list_1024": ("ours_1024", "env_list_1024"),
    "vs_rust_vec_env_256": ("ours_256", "rust_vec_env_256"),
    "vs_rust_vec_env_1024": ("ours_1024", "rust_vec_env_1024"),
    "entity_gym_multi_snake_vs_parallel_env_list_256": (
        "ours_entity_gym_multi_snake_256",
        "parallel_env_list_256",
    ),
    "nothing_vs_parallel_env_list_1024": (
        "nothing_ours_1024",
        "nothing_parallel_env_list_1024",
    ),
    "in_process_vs_env_list_256": ("nothing_ours_256_in_process", "nothing_env_list_256"),
    "nothing_vs_gymnasium_async_64": ("nothing_ours_64", "nothing_gymnasium_async_64"),
    "numpy_vs_loop_4096": ("meteors_numpy_4096", "meteors_loop_1024_in_process"),
    "2_workers_vs_1_worker_1024": ("ours_1024", "ours_1024_1_worker"),
}
"""By figure: our contender and theirs, for the ratio of steps per second."""

Rounds = dict[str, list[dict[str, float]]]
"""Measurements of every contender, one per round."""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    progress = Progress()
    python = peers_python(progress.say)
    starts = [_start_s(progress, i) for i in range(_NUM_STARTS)]
    contenders: dict[str, Contender] = {}
    try:
        for name, plan in PLANS.items():
            progress.say(f"starting {name}")
            peer = python if plan.is_peer else None
            contenders[name] = Contender(plan.make, *plan.arguments, python=peer)
        rounds = _measured(contenders, num_rounds, progress)
        more = contenders["ours_1024"].num_bytes() - contenders["ours_1024_1_worker"].num_bytes()
    finally:
        for contender in contenders.values():
            contender.close()
        progress.end()
    figures = {
        **_ratios(rounds),
        "framework_us_per_env_1024": _median(rounds["nothing_ours_1024"]),
        "two_env_step_us": 2 * _median(rounds["nothing_ours_2"]),
        "two_env_in_process_us": 2 * _median(rounds["nothing_ours_2_in_process"]),
        "mb_per_worker": more / 1e6,
        "start_s": Median.of(starts),
        **_split(rounds["ours_1024"], rounds["bare_games_1024"]),
        **{f"steps_per_s_{name}": 1e6 / _median(rounds[name]) for name in PLANS},
    }
    report("Many games at once", figures, _PACKAGES, as_json)


def _start_s(progress: Progress, number: int) -> float:
    """Seconds in a fresh process to the first batch of 1,024 snake games in 2 workers."""
    progress.say(f"start {number + 1} of {_NUM_STARTS}")
    contender = Contender("ours:snake", 1024, 2)
    contender.close()
    return contender.start_s


def _measured(contenders: Mapping[str, Contender], num_rounds: int, progress: Progress) -> Rounds:
    rounds: Rounds = {name: [] for name in contenders}
    for i in range(num_rounds):
        for name, contender in contenders.items():
            progress.say(f"round {i + 1} of {num_rounds}: {name}")
            rounds[name].append(contender.round(_ROUND_S))
    return rounds


def _median(rounds: Sequence[Mapping[str, float]], part: str = "us") -> float:
    return Median.of(one[part] for one in rounds)


def _ratios(rounds: Rounds) -> dict[str, float]:
    return {
        figure: Median.of(
            b["us"] / a["us"] for a, b in zip(rounds[ours], rounds[theirs], strict=True)
        )
        for figure, (ours, theirs) in RATIOS.items()
    }


def _split(
    ours: Sequence[Mapping[str, float]], bare: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Breakdown of a step, in µs per environment; workers count by the mean of both.

    `games` is measured separately, as half the time of the same games in one process. `waking` is
    the parent's waiting time minus a worker's working time: wake-ups, reading actions, and the
    slower worker.
    """
    games, worked = _median(bare) / 2, _median(ours, "games")
    packing = _median(ours, "packing")
    return {
        "split_games_us": games,
        "split_reading_us": worked - games,
        "split_packing_us": packing,
        "split_waking_us": _median(ours, "waiting") - worked - packing,
        "split_gathering_us": _median(ours, "transport"),
    }


class Progress:
    """A progress line on stderr, if stderr is a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def say(self, what: str) -> None:
        """Replaces the line."""
        if self._is_shown:
            sys.stderr.write(f"\r\033[K{what}")
            sys.stderr.flush()

    def end(self) -> None:
        """Erases the line."""
        self.say("")


if __name__ == "__main__":
    main()
