"""Proximal policy optimization (PPO): the training loop."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import nn

from entity_env.agents.ppo.advice import RunHistory, unusual_settings
from entity_env.agents.ppo.checkpoint import (
    Learner,
    has_lock,
    load_learner,
    run_folder,
    save_learner,
)
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.gc_tuning import freeze_gc, tune_malloc
from entity_env.agents.ppo.logging import (
    EpisodeFigures,
    EpisodeMeter,
    Losses,
    TrainProgress,
    TrainResult,
)
from entity_env.agents.ppo.peers import (
    Peers,
    copy_from_first,
    find_peers,
    gather_reports,
    update_statistics,
)
from entity_env.agents.ppo.rollout import Collector, require_finite_output
from entity_env.agents.ppo.rollout_buffer import Rollout
from entity_env.agents.ppo.runs import curve_writer, write_run
from entity_env.agents.ppo.signals import HeldInterrupt
from entity_env.agents.ppo.update import learn, step_size
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.torch_net.checkpoint import load_checkpoint, not_finite
from entity_env.agents.rogue_net.torch_net.mlp import (
    CNNPolicy as CNNPolicy,
    MLPPolicy as MLPPolicy,
    make_policy,
)
from entity_env.agents.rogue_net.torch_net.policy import Policy as Policy
from entity_env.authoring.agent import Agent
from entity_env.core.space_json import Spaces, differences, spaces_to_json
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.vec_obs import EntityBatch, VecEnvironment, VecObs
from entity_env.errors import (
    CheckpointError,
    ProtocolError,
    TrainingDivergedError,
    UsageError,
    shown,
)

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")

MakePolicy: TypeAlias = Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy]
"""Makes the network to train from the spaces of the environments."""


class RunReplays(Protocol):
    """What keeps replays of a run; see `entity_env.vec.TrainingReplays`."""

    def update(
        self, step: int, total: int, make_agent: Callable[[int], Agent], *, is_resumed: bool
    ) -> None:
        """Before the first update and after every one; `make_agent` makes an agent that plays the
        present network, with a seed of its draws."""

    def finish(self) -> None:
        """At the end."""


def train(
    vec: VecEnvironment,
    config: PPOConfig | None = None,
    *,
    policy: Policy | MakePolicy | None = None,
    out: str | Path | None = None,
    resume: bool | str | Path = False,
    on_update: Callable[[TrainProgress], None] | None = None,
    about: Mapping[str, object] | None = None,
    replays: RunReplays | None = None,
) -> TrainResult:
    """Trains a network on environments.

    The same settings, environments and number of threads give the same network on a CPU.

    If `torch.distributed` is initialized, its ranks train one network together, each on its own
    environments; all call this with the same settings. Gradients, statistics and the ends of the
    run are those of all ranks: steps, minibatches and episodes are counted over all of them.
    Rank 0 writes `out`, which all must see. If a rank ends or does not answer for
    `config.peer_timeout_s`, the others raise, after a checkpoint.

    Ctrl-C, SIGTERM and SIGHUP end the run at the next step, after a checkpoint; a second Ctrl-C
    ends it at once. After SIGTERM or SIGHUP the program goes on only if it handles that signal:
    its handler is called then. Errors of a game or of `on_update` end the run after a checkpoint,
    too. A network that is no longer finite is never saved.

    Args:
        vec: the environments, with autoreset "same_step". They are reset here, and not closed.
        config: the settings; None = `PPOConfig.for_env(vec)`.
        policy: the network to train, or a function that makes one from an observation and an
            action space; None = the one of `config.net`. A network of your own derives from
            `Policy`.
        out: folder for `checkpoint`, `run.json` (settings), `curves.jsonl` (a line per update) and
            `tensorboard`, where that is installed; None writes nothing. Only one run at a time can
            use it. Other files in it stay as they are.
        resume: True continues from the checkpoint in `out`, a path from that checkpoint. Network,
            optimizer, random states and counters are restored. Environments cannot be saved: they
            start new episodes, with seeds that were not used before.
        on_update: called after every update; an exception ends the run.
        about: what else `run.json` says, as "game" and "settings", which `entity-env runs` shows.
        replays: keeps replays of the run, such as a `TrainingReplays`; of rank 0 alone.

    Raises:
        CheckpointError: no checkpoint to resume from, or one of another game or size.
        ProtocolError: environments without actions, or without final observations.
        SchemaError: a reward or an observation that is not finite.
        StoppedBySignal: SIGTERM or SIGHUP that the program does not handle; a `SystemExit`.
        TrainingDivergedError: a loss, a gradient or the network is no longer finite.
        UsageError: `resume=True` without `out`, another run is training there, or a checkpoint
            cannot be written there without touching other files; ranks that cannot train together.
        WorkerError: a rank ended, or did not answer in time; names it.
    """
    config = config or PPOConfig.for_env(vec)
    _log_settings(vec, config)
    tune_malloc()
    with (
        _threads(config.num_threads),
        find_peers(_device(config.device), config.peer_timeout_s) as peers,
    ):
        return _train(vec, config, policy, out, resume, on_update, about or {}, peers, replays)


def _log_settings(vec: VecEnvironment, config: PPOConfig) -> None:
    _LOGGER.info("%s rows, %s", vec.num_rows, config.summary())
    for sentence in unusual_settings(config, vec.obs_space(), vec.action_space(), vec.num_rows):
        _LOGGER.warning("unusual: %s", sentence)


def _train(
    vec: VecEnvironment,
    config: PPOConfig,
    policy: Policy | MakePolicy | None,
    out: str | Path | None,
    resume: bool | str | Path,
    on_update: Callable[[TrainProgress], None] | None,
    about: Mapping[str, object],
    peers: Peers,
    replays: RunReplays | None,
) -> TrainResult:
    resume_path = _resume_path(resume, out) if resume else None
    cause = None
    written = None if out is None or peers.rank else Path(out)
    with run_folder(written), HeldInterrupt() as interrupt:
        run = _Run(vec, config, policy, None if out is None else Path(out), peers)
        run.replays = None if peers.rank else replays
        if resume_path is not None:
            run.resume(resume_path)
        if written is not None:
            write_run(written, config, run.learner.step, run.about(about))
        with curve_writer(written, run.learner.step) as write_curves, freeze_gc() as freeze:
            try:
                try:
                    collector, begun = run.begin(), run.learner.update
                    run.keep_replays(is_resumed=begun > 0)
                    while run.learner.step < config.total_steps:
                        progress = run.update(collector, interrupt.check)
                        if progress.update == begun + 1:
                            freeze()  # after one update everything long-lived exists
                        write_curves(progress, run.episodes.metrics)
                        if on_update is not None:
                            run.call(on_update)
                        run.keep_replays(is_resumed=begun > 0)
                        run.save_if_due(collector)
                    run.require_sound(collector)
                except KeyboardInterrupt:
                    if peers.size > 1 and not run.is_stopping:
                        raise  # the second one, of which the other ranks know nothing
                    run.is_stopping = True
                run.save()
                run.finish_replays()
                gather_reports(peers, "saved")  # no rank leaves before that
            except KeyboardInterrupt:
                raise  # the second one, in the middle of the save
            except TrainingDivergedError as error:
                run.finish_replays()
                raise run.explained(error) from error
            except BaseException as error:
                run.save_after(error)
                run.finish_replays()
                if not isinstance(error, Exception) or not interrupt.ends_program:
                    raise
                cause = error  # of that signal, likely: a terminal, a worker that is gone, too
        is_interrupted = run.is_stopping or interrupt.signum is not None
    hints = run.history.hints(run.progress, config)
    result = TrainResult(run.learner.net, run.progress, is_interrupted, run.folder, hints)
    interrupt.deliver(result, cause)
    return result


class _Run:
    """State of one call of `train`."""

    def __init__(
        self,
        vec: VecEnvironment,
        config: PPOConfig,
        policy: Policy | MakePolicy | None,
        out: Path | None,
        peers: Peers,
    ) -> None:
        self.vec = vec
        self.config = config
        self.peers = peers
        self.out = out
        self.folder = out / SUBFOLDER if out is not None else None
        self.is_stopping = False
        """Whether this rank wants to end the run early, and at the end whether all do."""
        self.learner = new_learner(vec, config, policy)
        self.replays: RunReplays | None = None
        self.meter = EpisodeMeter(math.ceil(config.episode_window / peers.size))
        self.episodes = self.meter.figures()
        """Of all ranks, at the last update."""
        self.num_rows = vec.num_rows
        self.history = RunHistory()
        self.progress = TrainProgress(step=0, total=config.total_steps)
        self._started = self._saved = time.monotonic()
        self._saved_update = 0
        self._elapsed_before = 0.0
        self._episodes_before = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)

    def resume(self, path: Path) -> None:
        """Loads a checkpoint."""
        net = self.learner.net
        checkpoint = load_checkpoint(path, net)
        theirs = (checkpoint.net.obs_space, checkpoint.net.action_space)
        differing = differences(theirs, (net.obs_space, net.action_space))
        found, wanted = checkpoint.net.net_config, net.net_config
        if found != wanted:
            differing.append(f"its network is {found}, asked for {wanted}")
        if differing:
            raise CheckpointError(f"cannot resume from {path}: {'; '.join(differing)}")
        load_learner(checkpoint, self.learner)
        self._saved_update = self.learner.update
        self._elapsed_before = self.learner.elapsed_s
        self._episodes_before = self.learner.num_episodes
        self.progress = self._progress(Losses(), 0.0, 0.0)

    def about(self, given: Mapping[str, object]) -> dict[str, object]:
        """What `run.json` says about the environments."""
        net = self.learner.net
        found = {"entities": list(net.obs_space.entities), "actions": list(net.action_space)}
        return {**found, "num_rows": self.vec.num_rows, "num_ranks": self.peers.size, **given}

    def begin(self) -> Collector:
        """Resets the environments."""
        learner, peers = self.learner, self.peers
        self.num_rows = self._require_same_run()
        copy_from_first(learner.net, peers)
        seed, entropy = self.config.seed, [self.config.seed, learner.update]
        if peers.rank:
            draws = np.random.SeedSequence([*entropy, peers.rank]).generate_state(3, np.uint32)
            seed, learner.rng = int(draws[0]), np.random.default_rng(draws[1])
            learner.generator.manual_seed(int(draws[2]))
        elif learner.update:
            seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
        next_obs = self.vec.reset(seed=seed)
        collector = Collector(self.vec, learner.net, learner.generator, next_obs, self.config)
        if not learner.net.has_statistics:
            self._count(next_obs)
        self._recent.append((time.monotonic(), learner.step))
        return collector

    def update(self, collector: Collector, check: Callable[[], None]) -> TrainProgress:
        """Collects one rollout and learns from it."""
        config, learner = self.config, self.learner
        left = 1 - learner.step / config.total_steps
        ent_coef = config.ent_coef * (left if config.anneal_entropy else 1)

        rollout, num_decisions = self._collect(collector, check)
        learning_rate = step_size(config, learner.step, num_decisions)
        learner.optimizer.param_groups[0]["lr"] = learning_rate
        learner.returns.update(rollout.returns[rollout.b_inds], self.peers)
        scale = learner.returns.std
        if config.norm_returns:
            learner.net.scale_values(learner.returns.mean, scale)
        optimizer, rng = learner.optimizer, learner.rng
        losses = learn(learner.net, optimizer, rollout, config, ent_coef, rng, scale, self.peers)
        # After learning, so that the policy which learns is the one that played. The first rollout
        # was normalized by its first observations, which must not be counted twice: restart.
        self._count(rollout.obs, restart=learner.update == 0)

        learner.step += num_decisions
        learner.update += 1
        self.progress = self._progress(losses, learning_rate, ent_coef)
        self.history.add(self.progress)
        return self.progress

    def _collect(self, collector: Collector, check: Callable[[], None]) -> tuple[Rollout, int]:
        """A rollout of this rank, and the number of decisions of all; they stop together."""

        def after_step(obs: VecObs) -> None:
            self.meter.add(obs)
            check()

        steps_left = math.ceil((self.config.total_steps - self.learner.step) / self.num_rows)
        num_steps = min(self.config.num_steps, steps_left)
        self.meter.start_rollout()
        rollout = None
        try:
            check()
            if not self.is_stopping:
                rollout = collector.collect(num_steps, after_step)
        except KeyboardInterrupt:
            self.is_stopping = True
        num_decisions = -1 if rollout is None else len(rollout)
        reports = gather_reports(self.peers, (num_decisions, self.meter.figures().to_json()))
        counts = [count for count, _ in reports]
        if rollout is None or min(counts) < 0:
            self.is_stopping = True
            raise KeyboardInterrupt
        if not any(counts):
            raise ProtocolError(
                f"no agent was asked for an action in {num_steps} steps of {self.num_rows} rows: "
                "there is nothing to learn from"
            )
        self.episodes = EpisodeFigures.merged([figures for _, figures in reports])
        return rollout, sum(counts)

    def _require_same_run(self) -> int:
        """Checks that all ranks train the same network; returns the rows of all."""
        net, peers = self.learner.net, self.peers
        config = replace(self.config, device="cpu", num_threads=None)
        own = {
            "release of entity_env": version("entity-env"),
            "update of the checkpoint": self.learner.update,
            "spaces": spaces_to_json(net.obs_space, net.action_space),
            **{f"setting {name}": value for name, value in config.to_json().items()},
        }
        reports = gather_reports(peers, (self.vec.num_rows, own))
        for rank, (_, other) in enumerate(reports):
            for name, value in reports[0][1].items():
                if other.get(name) != value:
                    raise UsageError(
                        f"rank {rank} of {peers.size} must train the same as rank 0, whose {name} "
                        f"is {shown(value)}; its own is {shown(other.get(name))}"
                    )
        # Rank 0 holds the lock by now.
        sees = gather_reports(peers, self.out is None or has_lock(self.out))
        if not all(sees):
            raise UsageError(
                f"rank {sees.index(False)} of {peers.size} does not see what rank 0 writes to "
                f"{self.out}: `out` must be a folder that all ranks share"
            )
        return sum(num_rows for num_rows, _ in reports)

    def call(self, on_update: Callable[[TrainProgress], None]) -> None:
        """Calls `on_update`; Ctrl-C in it ends the run when the other ranks know of it."""
        try:
            on_update(self.progress)
        except KeyboardInterrupt:
            self.is_stopping = True

    def keep_replays(self, *, is_resumed: bool) -> None:
        """Lets `replays` look at the network."""
        if self.replays is not None:
            step, total = self.learner.step, self.config.total_steps

            def make_agent(seed: int) -> Agent:
                return NeuralAgent(self.learner.net, seed=seed)

            self.replays.update(step, total, make_agent, is_resumed=is_resumed)

    def finish_replays(self) -> None:
        """Lets `replays` write what is left."""
        if self.replays is not None:
            self.replays.finish()

    def save_if_due(self, collector: Collector) -> None:
        """Writes a checkpoint if the last one is old."""
        if time.monotonic() - self._saved >= self.config.checkpoint_interval_s:
            self.require_sound(collector)
            self.save()

    def require_sound(self, collector: Collector) -> None:
        """Raises `TrainingDivergedError` if outputs of the network are not finite."""
        require_finite_output(self.learner.net.act(collector.next_obs, greedy=True))

    def save(self) -> None:
        """Writes a checkpoint, on rank 0."""
        if self.folder is not None and not self.peers.rank:
            save_learner(self.folder, self.learner, self.config)
        self._saved, self._saved_update = time.monotonic(), self.learner.update

    def save_after(self, error: BaseException) -> None:
        """Writes a checkpoint after an error, if there was an update since the last one."""
        if self.learner.update == self._saved_update:
            return
        try:
            self.save()
        except Exception as failure:
            error.add_note(f"what was learnt since the last checkpoint is lost: {failure}")

    def explained(self, error: TrainingDivergedError) -> TrainingDivergedError:
        """The error, with the run's last checkpoint and advice."""
        kept = "; nothing was saved"
        if self.folder is not None and self._saved_update:
            kept = f"; {self.folder} has update {self._saved_update}"
        return TrainingDivergedError(
            f"training diverged in update {self.learner.update + 1}, after {self.learner.step:,} "
            f"steps: {error}{kept}. Try a smaller learning_rate ({self.config.learning_rate:g}), "
            "or rewards and observations of smaller size, about 1"
        )

    def _count(self, batch: EntityBatch, *, restart: bool = False) -> None:
        """Counts observations into the statistics that normalize them."""
        net = self.learner.net
        update_statistics(net, batch, self.peers, restart=restart)
        if bad := not_finite(dict(net.named_buffers())):
            raise TrainingDivergedError(
                f"observations are so large that {bad[0]} of the network is not finite"
            )

    def _progress(self, losses: Losses, learning_rate: float, ent_coef: float) -> TrainProgress:
        learner, episodes, now = self.learner, self.episodes, time.monotonic()
        learner.elapsed_s = self._elapsed_before + now - self._started
        learner.num_episodes = self._episodes_before + episodes.num_episodes
        since, step = self._recent[0] if self._recent else (self._started, learner.step)
        self._recent.append((now, learner.step))
        steps_per_s = (learner.step - step) / max(now - since, 1e-9)
        steps_left = max(0, self.config.total_steps - learner.step)
        return TrainProgress(
            step=learner.step,
            total=self.config.total_steps,
            update=learner.update,
            steps_per_s=steps_per_s,
            mean_reward=episodes.mean_reward,
            mean_length=episodes.mean_length,
            num_episodes=learner.num_episodes,
            losses=losses,
            learning_rate=learning_rate,
            ent_coef=ent_coef,
            elapsed_s=learner.elapsed_s,
            eta_s=steps_left / steps_per_s if steps_per_s else float("inf"),
            metrics={name: metric.mean for name, metric in episodes.metrics.items()},
            std_reward=episodes.std_reward,
            window=episodes.window,
        )


def new_learner(
    vec: VecEnvironment, config: PPOConfig, policy: Policy | MakePolicy | None = None
) -> Learner:
    """A network and its optimizer; torch's own random state stays as it is."""
    device = _device(config.device)
    obs_space, action_space = vec.obs_space(), vec.action_space()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if policy is None:
            size = config.net
            if isinstance(size, RogueNetConfig):
                size = replace(size, value_scale=config.norm_returns)
            net: object = make_policy(obs_space, action_space, size)
        else:
            is_made = isinstance(policy, nn.Module) or not callable(policy)
            net = policy if is_made else policy(obs_space, action_space)
        checked = _checked(net, (obs_space, action_space)).to(device).eval()
    return Learner(
        net=checked,
        optimizer=torch.optim.AdamW(
            checked.parameters(), eps=1e-5, weight_decay=config.weight_decay, fused=True
        ),
        generator=torch.Generator(device).manual_seed(config.seed),
        rng=np.random.default_rng(config.seed),
    )


def _checked(net: object, spaces: Spaces) -> Policy:
    """Checks that a network was made for the environments."""
    if not isinstance(net, Policy):
        raise UsageError(
            f"policy must be a Policy, or a function that returns one, got {shown(net)}: derive "
            "the class from entity_env.agents.ppo.Policy"
        )
    if found := differences((net.obs_space, net.action_space), spaces):
        raise UsageError(f"the policy was made for other spaces: {'; '.join(found)}")
    return net


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Sets the number of torch's threads, and restores it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _resume_path(resume: Literal[True] | str | Path, out: str | Path | None) -> Path:
    if resume is not True:
        return Path(resume)
    if out is None:
        raise UsageError("resume=True goes on from the checkpoint in `out`: name that folder")
    return Path(out)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"device must be one that torch can use here, got {name!r}: {reason}"
        ) from error
    return device
