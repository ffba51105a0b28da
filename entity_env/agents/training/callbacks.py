"""`Callback`: what sees a training run and can steer it; `TrainState`, what it sees."""

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
    """Episodes that the network of a run has played apart from training.

    Args:
        step: decisions of training before it.
        mean_reward, std_reward, mean_length: of these episodes; the deviation is that of the
            episodes, not of a sample of them.
        num_episodes: how many there were.
        metrics: further figures by name, such as a rate of wins.
        greedy: whether the network took its most probable actions; otherwise it drew them.
    """

    step: int
    mean_reward: float
    std_reward: float
    mean_length: float
    num_episodes: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    greedy: bool = True


class TrainState(ABC):
    """A training run, as callbacks see it; `train` makes it.

    Objects are shared with the trainer, not copied. Change them only through these methods.

    Attributes:
        vec: the environments.
        config: the settings.
        net: the network that learns.
        optimizer: the optimizer of `net`.
        progress: figures after the last update.
        out: folder of the run, None if it has none.
        rank: of this process, 0 without a process group.
        is_resumed: the run goes on with an earlier one.
        error: what ends the run; None until then, and if nothing is wrong.
        stop_reason: what was given to `stop`; None until then, and where a signal ends the run.
        is_interrupted: a signal has come, as by Ctrl-C: return soon.
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
        """Ends the run: after this step, with a checkpoint, and `TrainResult.stop_reason`.

        The rollout that is being collected is not learnt from. In a process group all ranks end.
        """

    @abstractmethod
    def reserve_time(self, seconds: float) -> None:
        """Keeps so much of `max_train_time_s` for `on_end`, a tenth of it at most."""

    @abstractmethod
    def set_time_fraction(self, fraction: float) -> None:
        """Sets the fraction of the time, 0 to 1, that schedules follow from the next update on.

        It takes the place of that of the clock. In a process group that of rank 0 counts.
        """

    @abstractmethod
    def describe(self, **facts: object) -> None:
        """Adds facts, which are JSON, to the end of the run in `run.json`."""

    @abstractmethod
    def record(self, name: str, value: float) -> None:
        """Adds a point to the curve of that name at the present step, and to `progress.metrics`.

        What is not finite is left out. In `on_step` it counts for the next update; of several
        numbers with one name the last one counts.
        """

    @abstractmethod
    def add_evaluation(self, evaluation: EvaluationResult) -> None:
        """Calls `on_evaluation` of all callbacks, and adds the figures to the curves."""

    @abstractmethod
    def add_random_play(self, random_play: RandomPlay) -> None:
        """Sets `progress.random_play`, which `run.json` keeps, also for a run that is resumed."""

    @abstractmethod
    def save_copy(
        self, folder: Path, *, resumable: bool = True, notes: Mapping[str, object] | None = None
    ) -> None:
        """Replaces the checkpoint in a folder by one of the present network.

        Args:
            folder: of the checkpoint; made if it is not there.
            resumable: with the state of the optimizer, twice as large as the network, so that a
                run can go on from it; otherwise it can be played, and training can begin with it.
            notes: under "notes" in the checkpoint's `training`, as JSON.

        Raises:
            TrainingDivergedError: the network is not finite.
            UsageError: the folder holds something else.
        """

    @abstractmethod
    def make_agent(self, seed: int, *, greedy: bool = False) -> TrainedAgent:
        """An agent that plays the present network, with a seed of its draws.

        Also a `BatchPolicy`. Shares the network, so its play changes during training.
        """

    @abstractmethod
    def load_agent(self, folder: Path, seed: int, *, greedy: bool = False) -> TrainedAgent:
        """An agent that plays the network which `save_copy` has written to a folder.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """


class Callback:
    """Sees a training run; override what you need. An argument of `train`.

    The methods are called in the process that trains, with the same state each time; with several
    ranks in each of them. An exception ends the run after a checkpoint, and says which callback
    raised it. Ctrl-C waits until a method has returned. Draws of torch and numpy without a
    generator of their own are those of the whole program; the run does not use them.

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
        """Before the first step, when the environments were reset."""

    def on_step(self, state: TrainState, obs: VecObs) -> None:
        """After every step of the environments; `obs` is valid until the next one."""

    def on_update(self, state: TrainState) -> None:
        """After every update."""

    def on_evaluation(self, state: TrainState, evaluation: EvaluationResult) -> None:
        """After every evaluation; called from inside the evaluating callback's `on_update`."""

    def on_end(self, state: TrainState) -> None:
        """At the end, after the last checkpoint; also if the run failed, see `state.error`.

        Not called after a second Ctrl-C.
        """


class StopAtReward(Callback):
    """Ends a run when an evaluation has reached a mean reward; a callback of `train`.

    Something must evaluate, such as `entity_env.vec.Evaluator`.
    """

    def __init__(self, reward: float) -> None:
        self.reward = float(reward)

    def on_evaluation(self, state: TrainState, evaluation: EvaluationResult) -> None:
        if evaluation.mean_reward >= self.reward:
            found = f"the evaluation reward {evaluation.mean_reward:.3f}"
            state.stop(f"{found} has reached {self.reward:g}")


class CheckpointHistory(Callback):
    """Keeps checkpoints along a run, such as opponents of rising strength; a callback of `train`.

    `step-000120000` is the network after that many decisions. It can be played, or training can
    begin with it; without the optimizer, which would triple its size, no run goes on from it. A
    folder that is there already, as of a run that was resumed, is replaced by one of the same step;
    nothing else is removed.

    Args:
        num: how many, spread evenly over the run, the last one at its end; where
            `max_train_time_s` ends the run, over its time.
        every: decisions between them, in place of a number.
        folder: for them; None = `checkpoints` in the folder of the run.

    Raises:
        UsageError: a number below 1, or not one of `num` and `every`. When the run starts: no
            `folder`, and none of the run.
    """

    def __init__(
        self,
        num: int | None = None,
        *,
        every: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if (num is None) == (every is None):
            raise UsageError("CheckpointHistory needs either num or every, a number of decisions")
        self._num = None if num is None else checked_count("num", num)
        self._every = None if every is None else checked_count("every", every)
        self._folder = None if folder is None else Path(folder)
        self._count = 0
        """Of those that were due at the last update."""

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
