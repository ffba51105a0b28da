"""Progress of a training run: metrics and episode means."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.training.schedule import reached_fraction, reached_step
from entity_env.agents.training.tracking.rewards import RandomPlay
from entity_env.agents.training.tracking.rollout_figures import RolloutFigures
from entity_env.core.vec_obs import Metric, VecObs, merge_metrics

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.torch_net.policy import Policy


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses and related metrics of an update; NaN if it had no minibatches.

    All except `explained_variance` are means over the minibatches.

    Args:
        policy_loss: the negative clipped objective.
        value_loss: half the squared error of the value, see `clip_vloss` and `norm_returns`.
        entropy: nats per decision.
        approx_kl: divergence of the new policy from the rollout's, (r - 1) - log r for the ratio r
            of their probabilities, http://joschu.net/blog/kl-approx.html.
        clip_fraction: share of clipped ratios: of decisions or, with `ratio="actor"`, of actors,
            as the mean over decisions.
        explained_variance: 1 - Var(return - value) / Var(return) before the update.
        teacher_kl: divergence from the teacher in nats per decision; NaN without a teacher.
        teacher_agreement: share of choices whose most probable value equals the teacher's.
    """

    policy_loss: float = float("nan")
    value_loss: float = float("nan")
    entropy: float = float("nan")
    approx_kl: float = float("nan")
    clip_fraction: float = float("nan")
    explained_variance: float = float("nan")
    teacher_kl: float = float("nan")
    teacher_agreement: float = float("nan")


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """Metrics of a training run after an update.

    Args:
        step: number of decisions so far, including those before a resume.
        total: `total_steps` of the run.
        update: number of rollouts used so far.
        steps_per_s: decisions per second over the last ten seconds, at least over one update.
        mean_reward: mean over recent episodes, see `EpisodeMeter`; NaN before any has ended.
        mean_length: mean number of actions in these episodes.
        num_episodes: number of finished episodes so far.
        losses: of the last update.
        learning_rate, ent_coef: values in the last update.
        elapsed_s: wall-clock seconds of training so far, including those before a resume.
        eta_s: seconds left: the smaller of an estimate at the current speed and the time until
            `max_train_time_s`. Infinite if neither is known, see `SpeedMeter`.
        metrics: means of the games' metrics in the last rollout, and values from
            `TrainState.record` and schedules.
        std_reward: standard deviation of the rewards behind `mean_reward`.
        window: number of these rewards.
        unfinished: share of running episodes already longer than all of the last `episode_window`
            finished ones. If large, the means are biased toward short episodes.
        is_compiling: torch still computes, but the run will switch to compiled kernels, see
            `PPOConfig.compile`.
        rollouts: rollout statistics, the basis of hints.
        random_play: results of random play, see `entity_env.vec.RandomBaseline`, if measured.
        time_fraction: elapsed fraction of time, as used by schedules, at the start of the last
            rollout: measured against `max_train_time_s` minus the reserved time, or set by
            `TrainState.set_time_fraction`; else 0.
    """

    step: int
    total: int
    update: int = 0
    steps_per_s: float = 0.0
    mean_reward: float = float("nan")
    mean_length: float = float("nan")
    num_episodes: int = 0
    losses: Losses = field(default_factory=Losses)
    learning_rate: float = 0.0
    ent_coef: float = 0.0
    elapsed_s: float = 0.0
    eta_s: float = float("inf")
    metrics: Mapping[str, float] = field(default_factory=dict)
    std_reward: float = float("nan")
    window: int = 0
    unfinished: float = 0.0
    is_compiling: bool = False
    rollouts: RolloutFigures = field(default_factory=RolloutFigures)
    random_play: RandomPlay | None = None
    time_fraction: float = 0.0

    @property
    def fraction(self) -> float:
        """Completed fraction of the run, 0 to 1: of steps or time, whichever is larger."""
        return min(1.0, reached_fraction(self.step, self.total, self.time_fraction))

    @property
    def scheduled_step(self) -> int:
        """Step that schedules follow: `step`, or more if time is further along."""
        return int(reached_step(self.step, self.total, self.time_fraction))


_SPEED_WINDOW_S: Final = 10.0
_RECENT_SHARE: Final = 0.1
"""Share of all episodes so far that the means cover."""
_LEAST_EPISODES: Final = 20
_FEW_UPDATES: Final = 3
"""Number of updates before the time left is estimated."""
WriteCurves: TypeAlias = Callable[[TrainProgress, Mapping[str, Metric], Mapping[str, float]], None]
"""Function that writes the metrics of an update, of the games, and of callbacks."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Result of a training run.

    Args:
        progress: metrics at the end.
        is_interrupted: True if a signal ended the run early.
        checkpoint: the folder of the last checkpoint; None without `out`.
        hints: reasons why the run may not have learned, and what to try, one sentence each; empty
            if the reward rose and did not fall again, and no mistake in the game was detected. See
            docs/not_learning.md.
        stop_reason: why a callback or `max_train_time_s` ended the run early; else None.
    """

    net: Policy
    progress: TrainProgress
    is_interrupted: bool = False
    checkpoint: Path | None = None
    hints: tuple[str, ...] = ()
    stop_reason: str | None = None


class SpeedMeter:
    """Steps per second over the last ten seconds, and the estimated time left.

    The first update after a start compiles or loads functions, so the speeds after later updates
    leave it out. The time left is unknown until the fourth update.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._points: deque[tuple[float, int]] = deque()
        self._num_updates = 0
        """Number of updates since `start` or `restart`, including the first."""
        self.steps_per_s = 0.0

    def start(self, step: int) -> None:
        self._points.append((self._clock(), step))
        self.restart()

    def restart(self) -> None:
        """Treats the next update as the first after a start."""
        self._num_updates = 0

    def add(self, step: int) -> None:
        points, now = self._points, self._clock()
        points.append((now, step))
        while len(points) > 2 and now - points[1][0] >= _SPEED_WINDOW_S:
            points.popleft()
        self._num_updates += 1
        is_first = self._num_updates == 1
        since, before = points[-2 if is_first else 0]
        self.steps_per_s = (step - before) / max(now - since, 1e-9)
        while is_first and len(points) > 1:
            points.popleft()

    def eta_s(self, steps_left: int) -> float:
        """Estimated seconds for `steps_left`; infinite if unknown."""
        if not steps_left:
            return 0.0
        if self._num_updates <= _FEW_UPDATES or not self.steps_per_s:
            return math.inf
        return steps_left / self.steps_per_s


class EpisodeMeter:
    """Means over recent episodes, and metrics of the games over a rollout.

    Means cover the last episodes of every row, equally many from each. Simply taking the most
    recent episodes could draw them from just a few rows. If all rows start at once, the first
    episodes to finish are also the short ones, which would bias the means.

    The means cover a tenth of all episodes so far, so they lag only a little behind the current
    policy; but at least 20 episodes, at most `window`, and at least one per row that has finished
    one.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._rows: dict[tuple[int, int], deque[tuple[float, int]]] = {}
        """Rewards and lengths of the last episodes of each environment and agent.

        About `window` in total, but at least one each.
        """
        self._ages = np.zeros(0, np.int64)
        """Number of decisions in every row's running episode, including the next one."""
        self.num_episodes = 0
        self.metrics: dict[str, Metric] = {}

    def add(self, obs: VecObs) -> None:
        if len(self._ages) != len(obs.done):
            self._ages = np.zeros(len(obs.done), np.int64)
        self._ages[obs.done] = 0
        self._ages += obs.is_ready
        for episode in obs.episodes:
            recent = self._rows.setdefault((episode.env_id, episode.agent_id), deque())
            recent.append((episode.reward, episode.length))
            while len(recent) > self._most_per_row():
                recent.popleft()
            for name, value in episode.metrics.items():
                self.metrics.setdefault(f"episode/{name}", Metric()).push(value)
        self.num_episodes += len(obs.episodes)
        merge_metrics(self.metrics, obs.metrics)

    def restart(self, rows: NDArray[np.int64]) -> None:
        """Discards the running episodes of rows that were reset between rollouts."""
        self._ages[rows] = 0

    def _most_per_row(self) -> int:
        return max(1, self._window // max(1, len(self._rows)))

    def _recent(self) -> list[tuple[float, int]]:
        """Rewards and lengths of the episodes that means cover."""
        wanted = max(_LEAST_EPISODES, _RECENT_SHARE * self.num_episodes)
        count = min(self._most_per_row(), math.ceil(wanted / max(1, len(self._rows))))
        return [each for row in self._rows.values() for each in list(row)[-count:]]

    def _unfinished(self) -> float:
        """Share of running episodes that are longer than all episodes in `_rows`."""
        if not self._rows:
            return 0.0
        longest = max(length for row in self._rows.values() for _, length in row)
        is_longer, is_running = self._ages > longest, self._ages > 0
        return float(is_longer.sum() / max(1, is_running.sum()))

    def start_rollout(self) -> None:
        """Discards the metrics; keeps the episodes."""
        self.metrics = {}

    def figures(self) -> EpisodeFigures:
        recent = self._recent()
        rewards, lengths = [reward for reward, _ in recent], [length for _, length in recent]
        nothing = float("nan")
        return EpisodeFigures(
            self.num_episodes,
            len(rewards),
            float(np.mean(rewards)) if rewards else nothing,
            float(np.std(rewards)) if rewards else nothing,
            float(np.mean(lengths)) if lengths else nothing,
            self._unfinished(),
            dict(self.metrics),
        )


class EpisodeFigures(NamedTuple):
    """Number of finished episodes, means over recent ones, and metrics of the games.

    Args:
        window: number of recent episodes behind the means; if 0, the means are NaN.
        unfinished: as in `TrainProgress`.
    """

    num_episodes: int
    window: int
    mean_reward: float
    std_reward: float
    mean_length: float
    unfinished: float
    metrics: Mapping[str, Metric]

    def to_json(self) -> list[object]:
        return [*self[:-1], {name: asdict(metric) for name, metric in self.metrics.items()}]

    @classmethod
    def merged(cls, reports: Sequence[Any]) -> EpisodeFigures:
        """Combines the figures of several meters, each as in `to_json`."""
        parts = [
            cls._make([*figures, {name: Metric(**metric) for name, metric in metrics.items()}])
            for *figures, metrics in reports
        ]
        if len(parts) == 1:
            return parts[0]
        window = sum(part.window for part in parts)
        metrics: dict[str, Metric] = {}
        reward = length = variance = 0.0 if window else float("nan")
        for part in parts:
            merge_metrics(metrics, part.metrics)
            if part.window:
                reward += part.mean_reward * part.window / window
                length += part.mean_length * part.window / window
        for part in parts:
            if part.window:
                distance = part.mean_reward - reward
                variance += (part.std_reward**2 + distance**2) * part.window / window
        num_episodes = sum(part.num_episodes for part in parts)
        unfinished = sum(part.unfinished for part in parts) / len(parts)  # assumes equal row counts
        deviation = math.sqrt(variance)
        return cls(num_episodes, window, reward, deviation, length, unfinished, metrics)
