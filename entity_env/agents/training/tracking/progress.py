"""Progress of a training run: figures and episode means."""

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

from entity_env.agents.training.tracking.rewards import RandomPlay
from entity_env.agents.training.tracking.rollout_figures import RolloutFigures
from entity_env.core.vec_obs import Metric, VecObs, merge_metrics

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.torch_net.policy import Policy


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over the minibatches of one update; NaN if there were none.

    Args:
        policy_loss: the negative clipped objective.
        value_loss: half the squared error of the value.
        entropy: nats per decision.
        approx_kl: divergence of the new policy from the rollout's, (r - 1) - log r,
            http://joschu.net/blog/kl-approx.html.
        clip_fraction: share of decisions with a clipped ratio.
        explained_variance: 1 - Var(return - value) / Var(return) before the update.
        teacher_kl: nats per decision that the policy differs from its teacher's; NaN without one.
        teacher_agreement: share of the choices whose most probable one is the teacher's.
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
    """Figures of a training run after an update.

    Args:
        step: decisions so far, including those before a resume.
        total: decisions at the end.
        update: rollouts learnt from so far.
        steps_per_s: decisions per second, over the last seconds, one update at least.
        mean_reward: mean reward of recent episodes, see `EpisodeMeter`; NaN before the first has
            ended.
        mean_length: mean number of actions of the same episodes.
        num_episodes: episodes that ended so far.
        losses: of the last update.
        learning_rate, ent_coef: as annealed for the last update.
        elapsed_s: seconds so far, including those before a resume.
        eta_s: seconds left at that speed, which compiled code will raise, or until
            `max_train_time_s` is over, whichever is less; infinite until that says something, see
            `SpeedMeter`.
        metrics: means of the games' named numbers in the last rollout.
        std_reward: standard deviation of the rewards that `mean_reward` is the mean of.
        window: number of these rewards.
        unfinished: share of the running episodes that are longer already than all that these means
            are of. If it is large, the means are of the short episodes.
        is_compiling: kernels are compiled in the background, and all is computed in torch.
        rollouts: what rollouts showed, which hints are based on.
        random_play: what random play gets, see `entity_env.vec.RandomBaseline`; None if that was
            not measured.
        time_fraction: fraction of `max_train_time_s` that has passed; 0 without that limit.
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
        """How much of the run is over, 0 to 1: that of the steps or of the time, the larger one."""
        return min(1.0, max(self.step / self.total, self.time_fraction))

    @property
    def scheduled_step(self) -> int:
        """The step that schedules are at: `step`, or a later one where the time is ahead."""
        return max(self.step, int(self.time_fraction * self.total))


_SPEED_WINDOW_S: Final = 10.0
_RECENT_SHARE: Final = 0.1
"""Of all episodes so far, that means go over."""
_LEAST_EPISODES: Final = 20
_FEW_UPDATES: Final = 3
"""After so many the time that is left is not known yet."""
WriteCurves: TypeAlias = Callable[[TrainProgress, Mapping[str, Metric], Mapping[str, float]], None]
"""Takes the figures of an update, metrics of the games, and what callbacks recorded."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Result of a training run.

    Args:
        net: the trained network.
        progress: figures at the end.
        is_interrupted: a signal ended the run early.
        checkpoint: the folder of the last checkpoint; None without `out`.
        hints: why the run may not have learned, and what to try, a sentence each, from its figures;
            empty if the reward rose and no mistake of the game was seen. See docs/not_learning.md.
        stop_reason: of a callback that ended the run early; None if none did.
    """

    net: Policy
    progress: TrainProgress
    is_interrupted: bool = False
    checkpoint: Path | None = None
    hints: tuple[str, ...] = ()
    stop_reason: str | None = None


class SpeedMeter:
    """Steps per second over the last seconds, and the time that is left at that speed.

    The first update after a start compiles or loads functions: it is left out of the speed of all
    later ones, and after it some have to be seen before the time that is left is known.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._points: deque[tuple[float, int]] = deque()
        self._num_updates = 0
        """Since the start, the first one included."""
        self.steps_per_s = 0.0

    def start(self, step: int) -> None:
        """Starts at a step."""
        self._points.append((self._clock(), step))
        self.restart()

    def restart(self) -> None:
        """The next update is a first one again."""
        self._num_updates = 0

    def add(self, step: int) -> None:
        """Counts an update, which ended at that step."""
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
        """Seconds for that many steps; infinite if it is not known."""
        if not steps_left:
            return 0.0
        if self._num_updates <= _FEW_UPDATES or not self.steps_per_s:
            return math.inf
        return steps_left / self.steps_per_s


class EpisodeMeter:
    """Means over recent episodes, and metrics of the games over a rollout.

    Means go over the last episodes of every row, as many of each: the last ones to end in any row
    would be those of few rows, and, while all began together, the short ones. There are a tenth of
    all so far, but 20 at least, so that they do not lag by more of a run; at most `window`, but at
    least one of every row that has ended one.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._rows: dict[tuple[int, int], deque[tuple[float, int]]] = {}
        """Rewards and lengths of the last episodes, by environment and agent; about `window`."""
        self._ages = np.zeros(0, np.int64)
        """Of the running episode of every row the number of times that it asked for an action."""
        self.num_episodes = 0
        self.metrics: dict[str, Metric] = {}

    def add(self, obs: VecObs) -> None:
        """Counts the finished episodes and the metrics of a batch."""
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
        """Forgets the running episodes of some rows, which were cut off between rollouts."""
        self._ages[rows] = 0

    def _most_per_row(self) -> int:
        return max(1, self._window // max(1, len(self._rows)))

    def _recent(self) -> list[tuple[float, int]]:
        """Rewards and lengths of the episodes that means go over."""
        wanted = max(_LEAST_EPISODES, _RECENT_SHARE * self.num_episodes)
        count = min(self._most_per_row(), math.ceil(wanted / max(1, len(self._rows))))
        return [each for row in self._rows.values() for each in list(row)[-count:]]

    def _unfinished(self) -> float:
        """Share of the running episodes that are longer than all that are kept."""
        if not self._rows:
            return 0.0
        longest = max(length for row in self._rows.values() for _, length in row)
        is_longer, is_running = self._ages > longest, self._ages > 0
        return float(is_longer.sum() / max(1, is_running.sum()))

    def start_rollout(self) -> None:
        """Resets the metrics, not the episodes."""
        self.metrics = {}

    def figures(self) -> EpisodeFigures:
        """The means so far."""
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
    """Episodes that ended, means over recent ones, and metrics of the games.

    Args:
        num_episodes: number of all that ended.
        window: number of the recent ones, which the means are of; NaN if there are none.
        unfinished: share of the running ones that are longer than all of these.
    """

    num_episodes: int
    window: int
    mean_reward: float
    std_reward: float
    mean_length: float
    unfinished: float
    metrics: Mapping[str, Metric]

    def to_json(self) -> list[object]:
        """As JSON."""
        return [*self[:-1], {name: asdict(metric) for name, metric in self.metrics.items()}]

    @classmethod
    def merged(cls, reports: Sequence[Any]) -> EpisodeFigures:
        """Those of several meters together, given each as JSON."""
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
        unfinished = sum(part.unfinished for part in parts) / len(parts)  # of as many rows each
        deviation = math.sqrt(variance)
        return cls(num_episodes, window, reward, deviation, length, unfinished, metrics)
