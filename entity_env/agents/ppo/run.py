"""`Run`: state and updates of one `train` call."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from entity_env.agents.ppo.advice import RunHistory, log_hints
from entity_env.agents.ppo.compiling import KernelSwitch
from entity_env.agents.ppo.config import SCHEDULED, CurrentConfig, PPOConfig
from entity_env.agents.ppo.hints import Hint, hint_facts
from entity_env.agents.ppo.learner import load_learner, new_learner, save_learner
from entity_env.agents.ppo.ppo import collect, update
from entity_env.agents.ppo.rollout import Collector, require_finite_output
from entity_env.agents.ppo.teacher import TeacherMemory, begin_teacher, has_teacher, load_teacher
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER, find_checkpoint
from entity_env.agents.rogue_net.config import OwnNetConfig
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.torch_net.checkpoint import load_checkpoint, not_finite
from entity_env.agents.rogue_net.torch_net.policy import Policy, past_argument
from entity_env.agents.rogue_net.transfer import fine_tuning
from entity_env.agents.training.callbacks import Callback, EvaluationResult, TrainState
from entity_env.agents.training.network import MakePolicy
from entity_env.agents.training.peers import Peers, require_same_run
from entity_env.agents.training.process import HeldInterrupt
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.agents.training.schedule import Schedule, reached_fraction
from entity_env.agents.training.tracking.progress import (
    EpisodeFigures,
    EpisodeMeter,
    Losses,
    SpeedMeter,
    TrainProgress,
    TrainResult,
    WriteCurves,
)
from entity_env.agents.training.tracking.provenance import about_training
from entity_env.agents.training.tracking.recorders import Recorder, require_recorders
from entity_env.agents.training.tracking.rewards import PolicyScores, RandomPlay
from entity_env.agents.training.tracking.rollout_figures import RolloutFigures
from entity_env.agents.training.tracking.run_writer import (
    add_random_play,
    curve_writer,
    end_run,
    note_run,
    write_run,
)
from entity_env.agents.training.tracking.runs import TrainingRun
from entity_env.agents.training.tracking.time_limit import TIME_FRACTION, TimeLimit
from entity_env.authoring.game_traceback import (
    add_note,
    exit_error,
    require_error,
    text_of,
)
from entity_env.authoring.identity import known_game
from entity_env.core.spaces import briefly, differences, spaces_to_json
from entity_env.core.validation import metric_problem
from entity_env.core.vec_obs import EntityBatch, VecEnvironment, VecObs
from entity_env.errors import (
    CheckpointError,
    ProtocolError,
    TrainingDivergedError,
    UsageError,
    shown,
)

_LEAST_ENTROPY: Final = 0.05
"""Smallest divisor for `norm_entropy`, in nats; without choices, the divisor would be 0."""


class Run(TrainState):
    """State of one `train` call."""

    def __init__(
        self,
        vec: VecEnvironment,
        config: PPOConfig,
        policy: Policy | MakePolicy | None,
        out: Path | None,
        peers: Peers,
        callbacks: Sequence[Callback],
        recorders: Sequence[Recorder],
    ) -> None:
        require_recorders(recorders)
        self.recorders = () if peers.rank else recorders
        self.callbacks = _checked_callbacks(callbacks)
        self.vec = vec
        self.config = config
        self.peers = peers
        self.rank = peers.rank
        self.out = out
        self.folder = out / SUBFOLDER if out is not None else None
        self.written = None if peers.rank else out
        self.error = None
        self.is_resumed = False
        self.is_stopping = False
        """True if this rank requested an early stop, or stopped early because another rank did."""
        self.stop_reason = None
        self.learner = new_learner(vec, config, policy)
        self.net, self.optimizer = self.learner.net, self.learner.optimizer
        net = self.net.net_config
        self._advised = config if isinstance(net, OwnNetConfig) else replace(config, net=net)
        """The settings, with those of the network even if it was given; for hints."""
        self._is_given = policy is not None
        self._teacher: Policy | None = None
        self._teacher_memory: TeacherMemory | None = None
        self.meter = EpisodeMeter(math.ceil(config.episode_window / peers.size))
        self.episodes = self.meter.figures()
        """Episode statistics of all ranks, at the last update."""
        self.rollouts = RolloutFigures()
        self.num_rows = vec.num_rows
        self.history = RunHistory()
        self.progress = TrainProgress(step=0, total=config.total_steps)
        self._described = TrainingRun(Path())
        self._recorded: dict[str, float] = {}
        """Values for the next point of the curves, from callbacks and schedules."""
        self._facts: dict[str, object] = {}
        """Entries to add to `run.json` at the end."""
        self._hints: list[Hint] = []  # set by `end`
        self._has_ended = False
        """True once `end` has been called."""
        self.limit = TimeLimit(config.max_train_time_s)
        self.interrupt = HeldInterrupt()
        self._saved = time.monotonic()
        self._saved_update = 0
        self._begins_statistics = False
        """True while features are normalized only by the first observations."""
        self._decisions_per_step = 0.0
        """In the last rollout, of all ranks together; below `num_rows` if agents take turns."""
        self._elapsed_before = 0.0
        self._episodes_before = 0
        self.speed = SpeedMeter()
        self.kernels = KernelSwitch("wait" if peers.size > 1 else config.compile, self.net)

    _last_step: int | None = None
    _stopped_after = 0, 0.0
    """Steps of the last rollout, and seconds since the start, when the time was over."""

    # ------------------------------------------------------------------ for callbacks

    @property
    def is_interrupted(self) -> bool:
        return self.interrupt.signum is not None

    def stop(self, reason: str = "") -> None:
        self.stop_reason = reason
        self.is_stopping = True

    def stop_at(self, step: int) -> None:
        self._last_step = step

    def reserve_time(self, seconds: float) -> None:
        self.limit.reserve(seconds)

    def set_time_fraction(self, fraction: float) -> None:
        self.limit.set_fraction(fraction)

    def describe(self, **facts: object) -> None:
        self._facts |= facts
        if self._has_ended:
            end_run(self.written, self._described, self.learner.step, self._facts)

    def record(self, name: str, value: float) -> None:
        if problem := metric_problem(name, value):
            raise UsageError(problem)
        if math.isfinite(value):
            self._recorded[name] = float(value)
            metrics = {**self.progress.metrics, name: float(value)}
            self.progress = replace(self.progress, metrics=metrics)

    def add_evaluation(self, evaluation: EvaluationResult) -> None:
        for name in ("mean_reward", "std_reward", "mean_length", "num_episodes"):
            self.record(f"evaluation/{name}", getattr(evaluation, name))
        for name, value in evaluation.metrics.items():
            self.record(f"evaluation/{name}", value)
        self.call("on_evaluation", evaluation)

    def add_random_play(self, random_play: RandomPlay) -> None:
        self.progress = replace(self.progress, random_play=random_play)
        self._described = add_random_play(self.written, self._described, random_play)

    def save_copy(
        self, folder: Path, *, resumable: bool = True, notes: Mapping[str, object] | None = None
    ) -> None:
        save_learner(folder, self.learner, self.config, resumable=resumable, notes=notes)

    def make_agent(self, seed: int, *, greedy: bool = False) -> NeuralAgent:
        return NeuralAgent(self.net, greedy=greedy, seed=seed)

    def load_agent(self, folder: Path, seed: int, *, greedy: bool = False) -> NeuralAgent:
        net = load_checkpoint(folder, copy.deepcopy(self.net)).net
        return NeuralAgent(net.eval(), greedy=greedy, seed=seed)

    def call(self, name: str, *args: object) -> None:
        for callback in self.callbacks:
            with _naming(callback, name):
                self.stopping_call(getattr(callback, name), self, *args)

    def stopping_call(self, function: Callable[..., object], *args: object) -> None:
        """Calls a function; a Ctrl-C in it requests a stop, so all ranks end together."""
        try:
            function(*args)
        except KeyboardInterrupt as error:
            if exit_error(error) is not None:
                raise
            self.is_stopping = True

    def take_recorded(self) -> dict[str, float]:
        """Takes the values that callbacks and schedules have recorded since the last call."""
        recorded, self._recorded = self._recorded, {}
        return recorded

    def end(self, error: BaseException | None = None) -> None:
        """Calls `on_end` of all callbacks and completes `run.json`; does nothing the second time.

        Exceptions of callbacks become notes on `error`. Without `error`, the first exception is
        raised after all calls, with the others as notes.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self.error = error
        self.interrupt.is_ending = True
        self.describe(compiled_from_step=self._compiled_from_step())
        for callback in self.callbacks:
            try:
                with _naming(callback, "on_end"):
                    self.stopping_call(callback.on_end, self)
            except Exception as failure:
                if self.error is None:
                    self.error = failure
                else:
                    name = f"{type(callback).__name__}.on_end"
                    add_note(self.error, f"{name} failed, too: {text_of(failure)}")
        scores = PolicyScores.from_json(self._facts.get("evaluated"))
        self._hints = self.history.hints(self.progress, self._advised, scores, self._stopped_after)
        self.describe(**hint_facts(self._hints))
        if error is None and self.error is not None:
            raise self.error

    def _compiled_from_step(self) -> int | None:
        """Step at which kernels first ran, in this or an earlier part of the run; None = never."""
        earlier = self._described.about.get("compiled_from_step")
        return earlier if isinstance(earlier, int) else self.kernels.from_step

    def result(self, signum: int | None) -> TrainResult:
        is_interrupted = (self.is_stopping and self.stop_reason is None) or signum is not None
        hints = tuple(map(str, self._hints))
        progress = self.progress
        if progress.elapsed_s <= self._elapsed_before:  # no update has ended
            elapsed_s = self._elapsed_before + self.limit.elapsed_s
            progress = replace(progress, elapsed_s=elapsed_s)
        reason = self.stop_reason
        return TrainResult(self.net, progress, is_interrupted, self.folder, hints, reason)

    # ------------------------------------------------------------------ the loop

    def resume(self, path: Path) -> None:
        net = self.net
        own = net if isinstance(net.net_config, OwnNetConfig) else None  # others are compared below
        checkpoint = load_checkpoint(path, own)
        theirs = (checkpoint.net.obs_space, checkpoint.net.action_space)
        differing = differences(theirs, (net.obs_space, net.action_space))
        found, wanted = checkpoint.net.net_config, net.net_config
        mend = f". The checkpoint is from another game: {fine_tuning(path)}" if differing else ""
        if found != wanted:
            differing.append(f"its network is {found}, but {wanted} was requested")
        if differing:
            raise CheckpointError(f"cannot resume from {path}: {briefly(differing)}{mend}")
        load_learner(checkpoint, self.learner)
        self.is_resumed = True
        folder = None if self.folder is None else self.folder.resolve()
        is_own = find_checkpoint(path).resolve() == folder
        self._saved_update = self.learner.update if is_own else 0
        self._elapsed_before = self.learner.elapsed_s
        self._episodes_before = self.learner.num_episodes
        self.progress = self._figures(Losses(), self.config.at(self.learner.step))
        if has_teacher(self.config):
            self._teacher = load_teacher(path, net)

    def writer(self, given: Mapping[str, object]) -> AbstractContextManager[WriteCurves]:
        """Writes `run.json`; returns the writer of the curves."""
        step, net = self.learner.step, self.net
        about = about_training(self.vec, net, self.peers.size, given)
        self.learner.game = known_game(about)
        self._described = write_run(self.written, self.config, step, about)
        self.progress = replace(self.progress, random_play=self._described.random_play)
        return curve_writer(self.written, step, self.recorders, self._described)

    def begin(self) -> Collector:
        learner, peers = self.learner, self.peers
        settings = replace(self.config, device="cpu", num_threads=None).to_json()
        same = {
            "update of the checkpoint": learner.update,
            "spaces": spaces_to_json(learner.net.obs_space, learner.net.action_space),
            **{f"setting {name}": value for name, value in settings.items()},
        }
        self.num_rows = require_same_run(peers, self.vec.num_rows, same, self.out)
        peers.copy_from_first(learner.net)
        seed, entropy = self.config.seed, [self.config.seed, learner.update]
        if peers.rank:
            draws = np.random.SeedSequence([*entropy, peers.rank]).generate_state(3, np.uint32)
            seed, learner.rng = int(draws[0]), np.random.default_rng(draws[1])
            learner.generator.manual_seed(int(draws[2]))
        elif learner.update:
            seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
        next_obs = self.vec.reset(seed=seed)
        config, generator = self.config.at(0), learner.generator
        collector = Collector(self.vec, learner.net, generator, next_obs, config, seed)
        self._begins_statistics = not learner.net.has_statistics
        if self._begins_statistics:
            self._count(next_obs)
        if has_teacher(self.config):
            start = learner.net if self._is_given else None
            self._teacher = begin_teacher(self._teacher or start, peers, self.out)
            self._teacher_memory = TeacherMemory(self._teacher, len(next_obs))
        self.speed.start(learner.step)
        return collector

    def update(self, collector: Collector, check: Callable[[], None]) -> None:
        config, learner = self.config, self.learner
        time_fraction = self.limit.start_update(self.peers.gather_reports)
        collector.config = config.at(learner.step, time_fraction=time_fraction)
        rollout, num_decisions = self._collect(collector, check)
        now = self._now(num_decisions, time_fraction)
        # The first rollout was normalized by the first observations only. Do not count them twice:
        # restart the statistics from this rollout, before learning.
        if begins_statistics := self._begins_statistics:
            self._count(rollout.obs, restart=True)
            self._begins_statistics = False
        teacher = self._teacher if now.stay_close else None
        is_awaited = teacher is not None or self._awaits_teacher(time_fraction)
        if self._teacher_memory is not None and is_awaited:
            rollout = self._teacher_memory.add_to(rollout)
        losses = update(learner, rollout, now, self.peers, teacher)
        # Count only after learning: until then, the learning policy must equal the one that played.
        if not begins_statistics:
            self._count(rollout.obs)

        learner.step += num_decisions
        learner.update += 1
        self._recorded |= ({TIME_FRACTION: time_fraction} if self.limit.is_set else {}) | {
            f"charts/{name}": float(getattr(now, name))
            for name in SCHEDULED
            if isinstance(getattr(config, name), Schedule)
        }
        self.speed.add(learner.step)
        self.progress = self._figures(losses, now)
        self.history.add(self.progress)
        if not self.peers.rank and (news := self.history.news(self.progress, self._advised)):
            log_hints(news)
            note_run(self.written, self._described, hint_facts(self.history.shown.values()))
        if self.kernels.advance(learner.net, rollout, now, learner.step):
            self.speed.restart()

    def _awaits_teacher(self, time_fraction: float) -> bool:
        """True if the policy stays close to the teacher later in the run, which must remember."""
        weight, total = self.config.stay_close, self.config.total_steps
        reached = reached_fraction(self.learner.step, total, time_fraction)
        return isinstance(weight, Schedule) and not weight.is_zero_after(reached)

    def _now(self, num_decisions: int, time_fraction: float) -> CurrentConfig:
        """Settings of an update; `norm_entropy` divides `ent_coef` by random play's entropy."""
        now = self.config.at(self.learner.step, num_decisions, time_fraction=time_fraction)
        if now.norm_entropy:
            unit = max(self.rollouts.random_entropy, _LEAST_ENTROPY)
            now = replace(now, ent_coef=now.ent_coef / unit)
        return now

    def _collect(self, collector: Collector, check: Callable[[], None]) -> tuple[Rollout, int]:
        """Collects a rollout of this rank; returns it and the number of decisions of all ranks.

        Raises `KeyboardInterrupt` on all ranks if one stops.
        """

        watching = [each for each in self.callbacks if type(each).on_step is not Callback.on_step]
        per_step = self._decisions_per_step or self.num_rows
        steps_left = math.ceil((self.config.total_steps - self.learner.step) / per_step)
        num_steps = min(self.config.num_steps, steps_left)
        done_steps = num_decisions = num_next = 0

        def after_step(obs: VecObs) -> bool:
            nonlocal done_steps, num_decisions, num_next
            done_steps, num_decisions = done_steps + 1, num_decisions + num_next
            num_next = int(np.count_nonzero(obs.is_ready))
            self.meter.add(obs)
            for callback in watching:
                with _naming(callback, "on_step"):
                    callback.on_step(self, obs)
            is_last = self._is_last_step(done_steps, num_steps, num_decisions)
            if self.is_stopping and not is_last:
                raise KeyboardInterrupt
            check()
            return is_last

        self.meter.start_rollout()
        rollout = None
        try:
            check()
            if not self.is_stopping:
                self.meter.restart(collector.stagger())
                num_next = int(np.count_nonzero(collector.next_obs.is_ready))
                rollout = collect(collector, num_steps, after_step)
        except KeyboardInterrupt:
            self.is_stopping = True
        num_decisions = -1 if rollout is None else len(rollout)
        figures = self.meter.figures().to_json(), [*collector.meter.figures]
        stops = self.is_stopping, self.stop_reason
        reports = self.peers.gather_reports((num_decisions, figures, stops))
        counts = [count for count, *_ in reports]
        if any(stops for *_, (stops, _) in reports):
            self.is_stopping = True
            reasons = (reason for *_, (_, reason) in reports if reason is not None)
            self.stop_reason = next(reasons, None)
        if rollout is None or min(counts) < 0:
            raise KeyboardInterrupt
        if not any(counts):
            raise ProtocolError(
                f"no agent was asked for an action in {num_steps} steps of {self.num_rows} rows: "
                "there is nothing to learn from"
            )
        self.episodes = EpisodeFigures.merged([each for _, (each, _), _ in reports])
        self.rollouts = RolloutFigures.merged([each for _, (_, each), _ in reports])
        self._decisions_per_step = sum(counts) / num_steps
        return rollout, sum(counts)

    def _is_last_step(self, done_steps: int, num_steps: int, num_decisions: int) -> bool:
        """True if the rollout ends after this step, because the run ends after its update.

        Also stops the run if its time is over. Its last rollout then counts if at least half of it
        is done, or if there was no update yet and more than one step is done.

        Args:
            done_steps, num_decisions: of this rollout so far.
            num_steps: of a whole rollout.
        """
        if self.is_stopping:
            return False
        if self.limit.is_over:
            self.stop(f"max_train_time_s={self.limit.limit_s:g} is over")
            self._stopped_after = done_steps, self.limit.elapsed_s
            return done_steps > 1 and (2 * done_steps >= num_steps or not self.learner.update)
        step = None if self.peers.size > 1 else self._last_step
        return step is not None and self.learner.step + num_decisions >= step

    def save_if_due(self, collector: Collector) -> None:
        if time.monotonic() - self._saved >= self.config.checkpoint_interval_s:
            self.require_sound(collector)
            self.save()

    def require_sound(self, collector: Collector) -> None:
        """Raises `TrainingDivergedError` if the network's next output is not finite."""
        past = past_argument(collector.memory.past)
        require_finite_output(self.net.act(collector.next_obs, greedy=True, **past))

    def save(self) -> None:
        if self.folder is not None and not self.peers.rank:
            save_learner(self.folder, self.learner, self.config)
        self._saved, self._saved_update = time.monotonic(), self.learner.update

    def save_after(self, error: BaseException) -> None:
        """Writes a checkpoint after an error, if there was an update since the last checkpoint.

        Adds a note to the error: the checkpoint to resume from, or why saving failed.
        """
        try:
            if self.learner.update != self._saved_update:
                self.save()
        except Exception as failure:
            add_note(error, f"training since the last checkpoint is lost: {failure}")
        else:
            if self.folder is not None and self.learner.update and not self.peers.rank:
                add_note(
                    error, f"{self.folder} has step {self.learner.step:,}: resume continues from it"
                )

    def explained(self, error: TrainingDivergedError) -> TrainingDivergedError:
        """A new error with the message of `error`, the run's last checkpoint, and advice."""
        kept = "; nothing was saved"
        if self.folder is not None and self._saved_update:
            kept = f"; {self.folder} has update {self._saved_update}"
        return TrainingDivergedError(
            f"training diverged in update {self.learner.update + 1}, after {self.learner.step:,} "
            f"steps: {error}{kept}. Try a smaller learning_rate ({self.config.learning_rate}), "
            "or rewards and observations scaled to about 1"
        )

    def _count(self, batch: EntityBatch, *, restart: bool = False) -> None:
        """Adds observations to the normalization statistics."""
        net = self.net
        self.peers.update_statistics(net, batch, restart=restart)
        if bad := not_finite(dict(net.named_buffers())):
            raise TrainingDivergedError(
                f"observations are so large that {bad[0]} of the network is not finite"
            )

    def _figures(self, losses: Losses, now: CurrentConfig) -> TrainProgress:
        learner, episodes, is_compiling = self.learner, self.episodes, self.kernels.is_compiling
        learner.elapsed_s = self._elapsed_before + self.limit.elapsed_s
        learner.num_episodes = self._episodes_before + episodes.num_episodes
        steps_left = max(0, self.config.total_steps - learner.step)
        return TrainProgress(
            step=learner.step,
            total=self.config.total_steps,
            update=learner.update,
            steps_per_s=self.speed.steps_per_s,
            mean_reward=episodes.mean_reward,
            mean_length=episodes.mean_length,
            num_episodes=learner.num_episodes,
            losses=losses,
            learning_rate=now.learning_rate,
            ent_coef=now.ent_coef,
            elapsed_s=learner.elapsed_s,
            eta_s=min(self.speed.eta_s(steps_left), self.limit.left_s),
            metrics={
                **{name: metric.mean for name, metric in episodes.metrics.items()},
                **self._recorded,
            },
            std_reward=episodes.std_reward,
            window=episodes.window,
            unfinished=episodes.unfinished,
            is_compiling=is_compiling,
            rollouts=self.rollouts,
            random_play=self.progress.random_play,
            time_fraction=self.limit.update_fraction,
        )


@contextmanager
def _naming(callback: Callback, method: str) -> Iterator[None]:
    """Context in which errors get a note with the name of the callback."""
    name = f"{type(callback).__name__}.{method}, a callback of the run"
    try:
        yield
    except BaseException as error:
        require_error(error, name)
        add_note(error, f"raised by {name}")
        raise


def _checked_callbacks(callbacks: Sequence[Callback]) -> Sequence[Callback]:
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UsageError(f"callbacks must be instances of Callback, got {shown(callback)}")
    return callbacks
