"""Advice: settings that are unusual for a kind of environment, and what a run's figures tell.

The rules, with what is behind each, are explained in docs/not_learning.md.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

from entity_env.agents.ppo.config import PPOConfig, values_of
from entity_env.agents.ppo.tracking.progress import TrainProgress
from entity_env.agents.ppo.tracking.rewards import MOST_UNFINISHED
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import is_flat
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import num_cores
from entity_env.core.vec_obs import VecEnvironment

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")

PAGE: Final = "docs/not_learning.md"
"""Where the rules are explained."""

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
"""Smallest and largest value that is usual for PPO."""
_LEAST_ROLLOUT: Final = 256
_LEAST_GRADIENT_STEPS: Final = 8

_LEAST_UPDATES: Final = 10
_MAX_POINTS: Final = 1024
_COLLAPSED: Final = 0.05
_UNCHANGED: Final = 0.98
_LEAST_EPISODES: Final = 20
"""The first ones to end are the shortest, and so not typical."""
_LEAST_EXPLAINED: Final = 0.2
_LARGE_VALUE_LOSS: Final = 100.0
_LARGE_KL: Final = 0.05
_STANDARD_ERRORS: Final = 3.0
_LARGEST_MEAN_OF_ZERO_SUM: Final = 0.02
"""Of the deviation of rewards: the last episodes may have those of one agent more than others."""


def unusual_settings(
    config: PPOConfig,
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    num_rows: int,
) -> list[str]:
    """Settings that are allowed but rarely right for an environment, a sentence each.

    Args:
        config: the settings.
        obs_space, action_space: of the environment.
        num_rows: rows of a batch of it.
    """
    found = []
    for name, (least, most) in _USUAL.items():
        # A schedule may end below what is usual, as one that goes down to 0.
        value = max(values_of(getattr(config, name)), default=None)
        if value is not None and not least <= value <= most and math.isfinite(value):
            found.append(f"{name}={value:g}: usual are {least:g} to {most:g}")
    if config.warmup_steps >= config.total_steps:
        found.append(
            f"warmup_steps={config.warmup_steps:,} of total_steps={config.total_steps:,}: the step "
            "size never gets to learning_rate"
        )
    rollout = config.num_steps * num_rows
    if rollout < _LEAST_ROLLOUT:
        found.append(
            f"a rollout has {rollout} decisions (num_steps={config.num_steps}, {num_rows} rows): "
            f"usual are {_LEAST_ROLLOUT} or more"
        )
    if is_flat(obs_space, action_space):
        first = config.at(0)
        num_minibatches = max(1, round(rollout / first.minibatch_size))
        gradient_steps = num_minibatches * first.update_epochs
        if gradient_steps < _LEAST_GRADIENT_STEPS:
            found.append(
                f"{gradient_steps} gradient steps a rollout (minibatch_size="
                f"{config.minibatch_size}, update_epochs={config.update_epochs}): observations of "
                f"fixed size are usually learnt with more"
            )
        if isinstance(config.net, RogueNetConfig):
            found.append(
                "net is a RogueNet: observations of fixed size are usually learnt by an MLPConfig"
            )
    return found


class RunHistory:
    """Figures of a run as it went on, at most so many points."""

    def __init__(self) -> None:
        self._points: list[TrainProgress] = []
        self._stride = 1
        self._num_updates = 0

    def add(self, progress: TrainProgress) -> None:
        """Counts an update."""
        if self._num_updates % self._stride == 0:
            self._points.append(progress)
        self._num_updates += 1
        if len(self._points) >= _MAX_POINTS:
            del self._points[1::2]
            self._stride *= 2

    def hints(self, last: TrainProgress, config: PPOConfig) -> tuple[str, ...]:
        """What to look at, if the run did not learn, a sentence each; see `hints_for`."""
        if not self._num_updates and config.max_train_time_s is not None:
            return (
                f"no update was finished in {config.max_train_time_s:g} s: entity-env check "
                "measures how long a step of the game takes; give more time, or use fewer "
                "environments (--num-envs)",
            )
        if last.unfinished > MOST_UNFINISHED:  # its mean rewards tell nothing
            return (
                f"{last.unfinished:.0%} of the episodes that still run are already longer than all "
                "of the last that ended: the mean reward of training is one of short episodes; "
                "compare runs by their evaluations, or train for longer",
            )
        return () if self._num_updates < _LEAST_UPDATES else hints_for(self._points, last, config)


def log_settings(vec: VecEnvironment, config: PPOConfig, num_threads: int) -> None:
    """Logs the settings of a run, and warns of unusual ones."""
    _LOGGER.info("%s rows, %s", vec.num_rows, config.summary())
    found = unusual_settings(config, vec.obs_space(), vec.action_space(), vec.num_rows)
    for sentence in [*found, *crowded_threads(num_threads, getattr(vec, "num_workers", 0))]:
        _LOGGER.warning("unusual: %s", sentence)


def crowded_threads(num_threads: int, num_workers: int) -> list[str]:
    """A sentence about more threads of torch and workers than cores; none if there are enough.

    Threads of torch wait for each other at every operation. Where a worker has the core of one,
    all wait until it is scheduled again: two threads and two workers on two cores once made 100
    steps per second instead of 7,000. One thread never waits for another.

    Args:
        num_threads: threads of torch in each rank.
        num_workers: worker processes of each rank.
    """
    ranks, cores = os.environ.get("LOCAL_WORLD_SIZE", ""), num_cores()  # as torchrun sets it
    num_ranks = int(ranks) if ranks.isdecimal() else 1
    if num_threads == 1 or num_ranks * (num_threads + num_workers) <= cores:
        return []
    of_ranks = f" in each of {num_ranks} ranks" if num_ranks > 1 else ""
    return [
        f"{num_threads} threads of torch and {num_workers} workers{of_ranks} share {cores} "
        f"core{'s' * (cores > 1)}: threads wait for each other, and training can take many times "
        "as long; use num_threads=1 (--num-threads 1), or fewer workers (--num-workers)"
    ]


def hints_for(
    points: Sequence[TrainProgress], last: TrainProgress, config: PPOConfig
) -> tuple[str, ...]:
    """What the figures of a run tell, if its reward did not rise or fell again; else nothing.

    Rewards are compared by the standard errors of their means over the last episodes. Where they
    tell nothing, because agents play against each other or the run was resumed and so may have
    risen before, nothing is said of a reward that did not rise.

    Args:
        points: some updates from the start of the run on.
        last: the last update.
        config: the settings.
    """
    if last.num_episodes == 0:
        return (
            f"no episode has ended in {last.step:,} steps: let the game truncate its episodes, or "
            "train for longer",
        )
    scored = [each for each in points if math.isfinite(each.mean_reward)]
    if len(scored) < 2 or "rating" in last.metrics:  # opponents become better as the policy does
        return ()
    many = (each for each in scored if each.num_episodes >= _LEAST_EPISODES)
    first = next(many, scored[0])
    best = max(scored, key=lambda each: each.mean_reward)
    if _is_above(last, first, config):
        if _is_above(best, last, config) and _lost_share(first, best, last) > 0.5:
            return (
                f"the mean reward was {best.mean_reward:.3g} at step {best.step:,} and fell to "
                f"{last.mean_reward:.3g}: {_smaller_updates(config)}",
            )
        return ()
    if points[0].update > 1 or _is_zero_sum([*scored, last]):
        return ()
    has_risen = last.mean_reward > first.mean_reward
    told = "rose no more than chance explains" if has_risen else "did not rise"
    figures = f"{first.mean_reward:.3g} at first, {last.mean_reward:.3g} at the end"
    causes = _causes(points[0], last, config, has_risen=has_risen)
    return (f"the mean reward {told}: {figures}", *causes)


def _is_above(high: TrainProgress, low: TrainProgress, config: PPOConfig) -> bool:
    """Whether a mean reward is larger by more than chance makes it."""
    errors = [
        each.std_reward / math.sqrt(max(1, min(each.num_episodes, config.episode_window)))
        for each in (high, low)
    ]
    return high.mean_reward - low.mean_reward > _STANDARD_ERRORS * math.hypot(*errors)


def _is_zero_sum(points: Sequence[TrainProgress]) -> bool:
    """Whether what one agent earns another one loses: the mean is always 0."""
    return any(each.std_reward > 0 for each in points) and all(
        abs(each.mean_reward) <= _LARGEST_MEAN_OF_ZERO_SUM * each.std_reward for each in points
    )


def _lost_share(first: TrainProgress, best: TrainProgress, last: TrainProgress) -> float:
    return (best.mean_reward - last.mean_reward) / (best.mean_reward - first.mean_reward)


def _causes(
    first: TrainProgress, last: TrainProgress, config: PPOConfig, *, has_risen: bool
) -> list[str]:
    found = []
    start, end = first.losses, last.losses
    if last.std_reward == 0:
        found.append(
            f"the last episodes all earned {last.mean_reward:.3g}: where more is possible the "
            "agent has not met it; try rewards on the way there, a larger ent_coef, or more steps"
        )
    if start.entropy > 0 and end.entropy < _COLLAPSED * start.entropy:
        found.append(
            f"the policy no longer explores (entropy {start.entropy:.3g}, then {end.entropy:.3g}): "
            f"try a larger ent_coef ({config.ent_coef}) or a smaller learning_rate "
            f"({config.learning_rate})"
        )
    elif start.entropy > 0 and end.entropy > start.entropy / _UNCHANGED:
        if not has_risen:  # the entropy also rises with the number of actors
            found.append(
                f"the policy is less sure than it was at first (entropy {start.entropy:.3g}, then "
                f"{end.entropy:.3g}): what it had learnt before is lost; "
                f"{_smaller_updates(config)}, or a smaller ent_coef ({config.ent_coef})"
            )
    elif start.entropy > 0 and end.entropy > _UNCHANGED * start.entropy:
        found.append(
            f"the policy hardly changed (entropy {start.entropy:.3g}, then {end.entropy:.3g}): try "
            "more steps, more gradient steps (smaller minibatch_size, more update_epochs), a "
            "larger learning_rate, or a smaller ent_coef"
        )
    if end.value_loss > _LARGE_VALUE_LOSS and not config.norm_returns:
        found.append(
            f"returns are large (value loss {end.value_loss:.3g}): try norm_returns=True, or "
            "rewards of about 1"
        )
    elif end.explained_variance < _LEAST_EXPLAINED and last.std_reward > 0:
        found.append(
            f"values do not tell returns (explained variance {end.explained_variance:.2f}): the "
            "observation may lack what the reward depends on; try norm_returns=True, a value "
            "network apart (separate_value=True), or another gamma "
            f"({config.gamma})"
        )
    if end.approx_kl > _LARGE_KL:
        found.append(
            f"updates are large (approx kl {end.approx_kl:.3g}): {_smaller_updates(config)}"
        )
    return found


def _smaller_updates(config: PPOConfig) -> str:
    now = config.target_kl
    limit = "target_kl=0.02" if now is None else f"a smaller target_kl ({now})"
    return f"try {limit}, or a smaller learning_rate ({config.learning_rate})"
