"""`Callback` observes and steers a training run, which it sees as a `TrainState`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from entity_env.agents.training.tracking.progress import TrainProgress
from entity_env.agents.training.tracking.rewards import RandomPlay
from entity_env.core.validation import checked_count
from entity_env.core.vec_obs import VecEnvironment, VecObs
from entity_env.errors import UsageError

if TYPE_CHECKING:
    import torch

    from entity_env.agents.ppo.config import PPOConfig
    from entity_env.agents.rogue_net.neural_agent import TrainedAgent
    from entity_env.agents.rogue_net.torch_net.policy import Policy


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Statistics of episodes that a run's network played outside training.

    Args:
        step: number of training decisions before the evaluation.
        mean_reward, std_reward, mean_length: over these episodes; `std_reward` is the population
            standard deviation (divides by n).
        metrics: further metrics by name, such as a win rate.
        greedy: True if the network took its most probable actions instead of sampling.
    """

    step: int
    mean_reward: float
    std_reward: float
    mean_length: float
    num_episodes: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    greedy: bool = True


class TrainState(ABC):
    """A training run as seen by callbacks; created by `train`.

    The attributes are the trainer's own objects; change them only through these methods.

    Attributes:
        progress: metrics after the last update.
        out: folder of the run, if any.
        rank: number of this process in its process group, from 0; 0 without a group.
        is_resumed: True if the run continues an earlier one.
        error: the error that ends the run; None without one.
        stop_reason: the reason passed to `stop`; None until it is called, and when a signal ends
            the run.
        is_interrupted: True if a signal, such as Ctrl-C, has arrived: callbacks should return soon.
    """

    vec: VecEnvironment
    config: PPOConfig
    net: Policy
    optimizer: torch.optim.Optimizer
    progress: TrainProgress
    out: Path | None
    rank: int
    is_resumed: bool
    error: BaseException | None
    stop_reason: str | None

    @property
    @abstractmethod
    def is_interrupted(self) -> bool: ...

    @abstractmethod
    def stop(self, reason: str = "") -> None:
        """Ends the run after this step, with a checkpoint, and sets `TrainResult.stop_reason`.

        An unfinished rollout is discarded. All ranks of a process group end. When
        `max_train_time_s` is over, in contrast, the run also learns from half a rollout or more.
        """

    @abstractmethod
    def stop_at(self, step: int) -> None:
        """Ends the run after the update that reaches a step.

        If there is a single rank, its rollout ends at that step, as that of a run whose time was
        over there. Schedules still follow `total_steps`.
        """

    @abstractmethod
    def reserve_time(self, seconds: float) -> None:
        """Reserves part of `max_train_time_s`, if set, for `on_end`: at most a tenth."""

    @abstractmethod
    def set_time_fraction(self, fraction: float) -> None:
        """Sets the elapsed fraction (0 to 1) of the run's time, for schedules from the next update.

        Schedules use the larger of this and the fraction of steps done. Replaces the fraction
        measured by the clock. In a process group, only rank 0's call counts.

        Raises:
            UsageError: the fraction is outside 0 to 1.
        """

    @abstractmethod
    def describe(self, **facts: object) -> None:
        """Adds facts to `run.json`, as JSON; written at the end of the run, in `on_end` at once."""

    @abstractmethod
    def record(self, name: str, value: float) -> None:
        """Adds a point to a curve at the current step, and to `progress.metrics`.

        Ignores numbers that are not finite. Values from `on_step` belong to the next update. Of
        several values with the same name, the last one counts.

        Raises:
            UsageError: the value is not a number, or the name is invalid.
        """

    @abstractmethod
    def add_evaluation(self, evaluation: EvaluationResult) -> None:
        """Calls `on_evaluation` of all callbacks, and adds the metrics to the curves."""

    @abstractmethod
    def add_random_play(self, random_play: RandomPlay) -> None:
        """Sets `progress.random_play`, and writes it to `run.json`; a resumed run keeps it."""

    @abstractmethod
    def save_copy(
        self, folder: Path, *, resumable: bool = True, notes: Mapping[str, object] | None = None
    ) -> None:
        """Saves the current network as the checkpoint in a folder, replacing any checkpoint there.

        Args:
            folder: of the checkpoint; created if missing.
            resumable: include the optimizer's state, so a run can resume from the checkpoint.
                This state is twice the size of the network. Without it, the checkpoint can only be
                played or initialize training.
            notes: JSON-serializable data, stored as `training["notes"]` in the checkpoint's
                `config.json`.

        Raises:
            TrainingDivergedError: the network or, if `resumable`, the optimizer's state is not
                finite.
            UsageError: the folder has other files.
        """

    @abstractmethod
    def make_agent(self, seed: int, *, greedy: bool = False) -> TrainedAgent:
        """An agent that plays the current network, with its own sampling seed.

        Also a `BatchPolicy`. Shares the network, so its play changes during training.
        """

    @abstractmethod
    def load_agent(self, folder: Path, seed: int, *, greedy: bool = False) -> TrainedAgent:
        """An agent that plays a network from `save_copy`.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
        """


class Callback:
    """Observes a training run; override the methods you need.

    Pass instances to `train(callbacks=[...])`. Each process (rank) calls the methods of its own
    callbacks, with one state object per process. An exception ends the run after a checkpoint, and
    gets a note that names the callback; `sys.exit()` becomes a `UsageError`: call `state.stop`. A
    first Ctrl-C does not interrupt a method: check `is_interrupted`. A second one, or one in
    `on_end` after a signal, raises KeyboardInterrupt in the method. The run does not use the global
    generators of torch and numpy, so callbacks may.

    Example:
        >>> from entity_env.agents.ppo import Callback, PPOConfig, train
        >>> from entity_env.games import snake
        >>> from entity_env.vec import VecEnv
        >>> class Patience(Callback):
        ...     def on_update(self, state):
        ...         if state.progress.mean_reward > 0.1:
        ...             state.stop("good enough")
        >>> with VecEnv(snake, 16) as vec:  # doctest: +SKIP
        ...     train(vec, PPOConfig(), callbacks=[Patience()]).stop_reason
        'good enough'
    """

    def on_start(self, state: TrainState) -> None:
        """Before the first step, after the environments are reset."""

    def on_step(self, state: TrainState, obs: VecObs) -> None:
        """After every step of the environments; `obs` is valid until the next step."""

    def on_update(self, state: TrainState) -> None:
        """After every update."""

    def on_evaluation(self, state: TrainState, evaluation: EvaluationResult) -> None:
        """After every evaluation, within the method of the callback that evaluates."""

    def on_end(self, state: TrainState) -> None:
        """At the end, after the last checkpoint; also if the run failed, see `state.error`.

        Not called if Ctrl-C interrupts the last checkpoint or, in a process group, stops this rank
        before the others know.
        """


class StopAtReward(Callback):
    """Callback that ends a run when an evaluation reaches a mean reward.

    Requires evaluations, such as from `entity_env.vec.Evaluator`.
    """

    def __init__(self, reward: float) -> None:
        self.reward = float(reward)

    def on_evaluation(self, state: TrainState, evaluation: EvaluationResult) -> None:
        if evaluation.mean_reward >= self.reward:
            found = f"the evaluation reward {evaluation.mean_reward:.3f}"
            state.stop(f"{found} has reached {self.reward:g}")


class CheckpointHistory(Callback):
    """Callback that keeps checkpoints along a run, such as opponents of rising strength.

    The folder `step-000120000` has the network after that many decisions. It can be played, and can
    initialize training, but a run cannot resume from it: it lacks the optimizer's state, which
    would triple its size. An existing folder for the same step is replaced (this happens when a
    resumed run repeats steps); nothing else is removed.

    Args:
        num: number of checkpoints, spread evenly over the run, the last at its end. If
            `max_train_time_s` ends the run, they are spread over its time, and the last is missing.
        every: number of decisions between checkpoints, instead of `num`.
        folder: None = `checkpoints` in the folder of the run.

    Raises:
        UsageError: a number below 1, or not exactly one of `num` and `every`. When the run starts:
            no `folder`, and the run has none.
    """

    def __init__(
        self,
        num: int | None = None,
        *,
        every: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if (num is None) == (every is None):
            raise UsageError(
                "CheckpointHistory: pass exactly one of num (how many checkpoints) and every "
                "(decisions between checkpoints)"
            )
        self._num = None if num is None else checked_count("num", num)
        self._every = None if every is None else checked_count("every", every)
        self._folder = None if folder is None else Path(folder)
        self._count = 0
        """Number of checkpoints due at the last update."""

    def on_start(self, state: TrainState) -> None:
        if self._folder is None:
            if state.out is None:
                raise UsageError("CheckpointHistory needs a folder: this run has none")
            self._folder = state.out / "checkpoints"
        self._count = self._num_due(state.progress)

    def on_update(self, state: TrainState) -> None:
        count, self._count = self._count, self._num_due(state.progress)
        if self._count > count and not state.rank and self._folder is not None:
            num_digits = max(9, len(str(state.progress.total)))
            name = f"step-{state.progress.step:0{num_digits}}"
            state.save_copy(self._folder / name, resumable=False)

    def _num_due(self, progress: TrainProgress) -> int:
        if self._every is not None:
            return progress.step // self._every
        return min(progress.scheduled_step * (self._num or 1) // progress.total, self._num or 1)
