"""Advice: settings that are unusual for an environment, and diagnoses of a run's metrics.

docs/not_learning.md explains the rules and their reasons.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping
from typing import Final

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.hints import (
    LEAST_UPDATES,
    Hint,
    early_hints,
    final_hints,
)
from entity_env.agents.ppo.run_view import RunView
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import is_flat
from entity_env.agents.training.schedule import values_of
from entity_env.agents.training.tracking.progress import TrainProgress
from entity_env.agents.training.tracking.rewards import MOST_UNFINISHED, UNKNOWN, PolicyScores
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import num_cores
from entity_env.core.vec_obs import VecEnvironment

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")

PAGE: Final = "docs/not_learning.md"

_USUAL: Final[Mapping[str, tuple[float, float]]] = {
    "learning_rate": (1e-5, 1e-2),
    "gamma": (0.8, 0.9999),
    "gae_lambda": (0.5, 1.0),
    "clip_coef": (0.05, 0.5),
    "vf_coef": (0.01, 2.0),
    "ent_coef": (0.0, 0.3),
    "max_grad_norm": (0.1, 100.0),
    "update_epochs": (1, 30),
    "target_kl": (0.003, 0.3),
    "weight_decay": (0.0, 0.1),
}
"""Smallest and largest usual values of PPO settings."""
_LEAST_ROLLOUT: Final = 256
_LEAST_GRADIENT_STEPS: Final = 8

_MAX_POINTS: Final = 1024


def unusual_settings(
    config: PPOConfig,
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    num_rows: int,
) -> list[str]:
    """Settings that are allowed but rarely right for an environment, one sentence each."""
    found = []
    for name, (least, most) in _USUAL.items():
        # Only the largest value of a schedule counts: the schedule may end below the range.
        value = max(values_of(getattr(config, name)), default=None)
        if value is not None and not least <= value <= most and math.isfinite(value):
            found.append(f"{name}={value:g}: typical values are {least:g} to {most:g}")
    if config.warmup_steps >= config.total_steps:
        found.append(
            f"warmup_steps={config.warmup_steps:,} of total_steps={config.total_steps:,}: the step "
            "size never reaches learning_rate"
        )
    rollout = config.num_steps * num_rows
    num_rollouts = math.ceil(config.total_steps / rollout)
    if num_rollouts < LEAST_UPDATES:
        found.append(
            f"total_steps={config.total_steps:,} gives {num_rollouts} rollouts of {rollout:,} "
            f"decisions (num_steps={config.num_steps}, {num_rows} rows): a typical number is "
            f"{LEAST_UPDATES} or more"
        )
    if rollout < _LEAST_ROLLOUT:
        found.append(
            f"a rollout has {rollout} decisions (num_steps={config.num_steps}, {num_rows} rows): "
            f"a typical number is {_LEAST_ROLLOUT} or more"
        )
    if is_flat(obs_space, action_space):
        first = config.at(0)
        num_minibatches = max(1, round(rollout / first.minibatch_size))
        gradient_steps = num_minibatches * first.update_epochs
        if gradient_steps < _LEAST_GRADIENT_STEPS:
            found.append(
                f"{gradient_steps} gradient steps per rollout (minibatch_size="
                f"{config.minibatch_size}, update_epochs={config.update_epochs}): observations of "
                f"fixed size usually need more"
            )
        if isinstance(config.net, RogueNetConfig):
            found.append(
                "net is a RogueNet: observations of fixed size usually train better with an "
                "MLPConfig"
            )
    return found


class RunHistory:
    """Metrics over the course of a run, at a limited number of points, and hints about them."""

    def __init__(self) -> None:
        self._points: list[TrainProgress] = []
        self._stride = 1
        self._num_updates = 0
        self.shown: dict[str, Hint] = {}
        """Hints already returned by `news`, by name."""

    def add(self, progress: TrainProgress) -> None:
        if self._num_updates % self._stride == 0:
            self._points.append(progress)
        self._num_updates += 1
        if len(self._points) >= _MAX_POINTS:
            del self._points[1::2]
            self._stride *= 2

    def news(self, last: TrainProgress, config: PPOConfig) -> list[Hint]:
        """Hints after an update, except those whose name an earlier call has returned."""
        found = early_hints(RunView(self._points, last, config)) if self._points else []
        news = [hint for hint in found if hint.name not in self.shown]
        self.shown |= {hint.name: hint for hint in news}
        return news

    def hints(
        self,
        last: TrainProgress,
        config: PPOConfig,
        scores: PolicyScores = UNKNOWN,
        late: tuple[int, float] = (0, 0.0),
    ) -> list[Hint]:
        """Hints at the end of a run, with the `scores` of its last network.

        Before the first update, a hint about `max_train_time_s` if it is over; `late` has the steps
        of the rollout and the seconds since the start at that time. After fewer than
        `LEAST_UPDATES` updates, `early_hints`, unless too many episodes are unfinished; otherwise
        `final_hints`.
        """
        if not self._num_updates:
            limit_s = config.max_train_time_s
            return [_no_update(limit_s, *late)] if limit_s is not None and late[0] else []
        run = RunView(self._points, last, config, scores)
        is_whole = self._num_updates >= LEAST_UPDATES or last.unfinished > MOST_UNFINISHED
        return final_hints(run) if is_whole else early_hints(run)


def _no_update(limit_s: float, num_steps: int, elapsed_s: float) -> Hint:
    steps = "a step" if num_steps == 1 else f"{num_steps} steps"
    return Hint(
        "no_update",
        f"no update was finished within {limit_s:g} s: {steps} of all environments took "
        f"{elapsed_s:.3g} s; give more time, or use fewer environments (--num-envs); entity-env "
        "check measures how long a step of the game takes",
    )


def log_settings(vec: VecEnvironment, config: PPOConfig, num_threads: int) -> None:
    """Logs the settings of a run, and warns about unusual ones."""
    _LOGGER.info("%s rows, %s", vec.num_rows, config.summary())
    found = unusual_settings(config, vec.obs_space(), vec.action_space(), vec.num_rows)
    for sentence in [*found, *crowded_threads(num_threads, getattr(vec, "num_workers", 0))]:
        _LOGGER.warning("unusual: %s", sentence)


def log_hints(hints: Iterable[Hint]) -> None:
    """Logs hints while a run continues."""
    for hint in hints:
        _LOGGER.warning("hint: %s", hint)


def crowded_threads(num_threads: int, num_workers: int) -> list[str]:
    """A list with one sentence if torch's threads and the workers outnumber the cores; else empty.

    Also empty with one thread per rank, which never waits. Several threads of torch wait for each
    other at every operation. If a worker takes one thread's core, all threads wait: two threads and
    two workers on two cores once made 100 steps per second instead of 7,000.

    Args:
        num_threads: torch threads per rank.
        num_workers: worker processes per rank.
    """
    ranks, cores = os.environ.get("LOCAL_WORLD_SIZE", ""), num_cores()  # set by torchrun
    num_ranks = int(ranks) if ranks.isdecimal() else 1
    if num_threads == 1 or num_ranks * (num_threads + num_workers) <= cores:
        return []
    of_ranks = f" in each of {num_ranks} ranks" if num_ranks > 1 else ""
    return [
        f"{num_threads} threads of torch and {num_workers} workers{of_ranks} share {cores} "
        f"core{'s' * (cores > 1)}: threads wait for each other, and training can take many times "
        "as long; use num_threads=1 (--set-train num_threads=1), or fewer workers "
        "(--num-workers)"
    ]
