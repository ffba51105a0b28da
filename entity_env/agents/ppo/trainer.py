"""`train`: the training loop of proximal policy optimization (PPO)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from entity_env.agents.ppo.advice import log_settings
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.run import Run
from entity_env.agents.rogue_net.torch_net.checkpoint import require_safetensors
from entity_env.agents.rogue_net.torch_net.mlp import (
    CNNPolicy as CNNPolicy,
    MLPPolicy as MLPPolicy,
)
from entity_env.agents.rogue_net.torch_net.policy import Policy as Policy
from entity_env.agents.training.callbacks import Callback
from entity_env.agents.training.network import MakePolicy, torch_device, torch_threads
from entity_env.agents.training.peers import find_peers
from entity_env.agents.training.process import freeze_gc, tune_malloc
from entity_env.agents.training.run_folder import require_new_run, run_folder
from entity_env.agents.training.tracking.progress import TrainProgress, TrainResult
from entity_env.agents.training.tracking.recorders import Recorder
from entity_env.authoring.game_traceback import is_a, no_exits
from entity_env.core.vec_env_base import require_vec_env
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import TrainingDivergedError, UsageError


def train(
    vec: VecEnvironment,
    config: PPOConfig | None = None,
    *,
    policy: Policy | MakePolicy | None = None,
    out: str | Path | None = None,
    resume: bool | str | Path = False,
    on_update: Callable[[TrainProgress], None] | None = None,
    callbacks: Sequence[Callback] = (),
    recorders: Sequence[Recorder] = (),
    about: Mapping[str, object] | None = None,
) -> TrainResult:
    """Trains a network on environments.

    On a CPU, a seed repeats a run exactly, without `max_train_time_s` and `compile="background"`.

    If `torch.distributed` is initialized, its ranks train one network, each on its own
    environments; all ranks call this function with the same settings. Steps, minibatches and
    episodes are totals over all ranks. Rank 0 writes `out`, which all ranks must see. If a rank is
    lost (see `WorkerError`), the others raise; rank 0, if among them, writes a checkpoint first.

    Ctrl-C, SIGTERM and SIGHUP end the run at the next step, with a checkpoint; a second Ctrl-C
    ends it immediately. Errors other than `TrainingDivergedError` also end it with a checkpoint.
    After SIGTERM or SIGHUP, the program's handler is called before `train` returns.

    Args:
        vec: the environments, with autoreset "same_step". `train` resets but does not close them.
        config: None = `PPOConfig.for_env(vec)`.
        policy: the network, or a function that makes one from an observation space and an action
            space, such as `rogue_net.initialized_from(path)` for the weights of another run. None =
            `config.net`. Your own network derives from `Policy`.
        out: folder for `checkpoint`, `run.json` (settings), `curves.jsonl` (one line per update)
            and `tensorboard`, if installed; other files stay. None = writes nothing.
        resume: True = continue from the checkpoint in `out`; a path = from the checkpoint there,
            and overwrite any checkpoint in `out`. Restores the network, optimizer, random states
            and counters. Environments cannot be saved: they start new episodes, with new seeds.
        on_update: called with the metrics after every update.
        callbacks: observe the run, and can stop it; called in order, before `on_update`.
        recorders: receive the settings and curves of the run; see `Recorder`.
        about: further entries of `run.json`, such as "game" and "settings" for `entity-env runs`.

    Raises:
        CheckpointError: the checkpoint to resume is missing, damaged, or for another game or size.
        MissingExtraError: a package is missing: safetensors for `out`, or a recorder's own.
        ProtocolError: a rollout has no decisions, or a truncated episode no final observation.
        SchemaError: a reward or feature is not finite, or `vec` is not a vector environment.
        StoppedBySignal: SIGTERM or SIGHUP that the program does not handle; a `SystemExit`.
        TrainingDivergedError: a loss, a gradient or the network is not finite. Nothing is saved.
        UsageError: an invalid argument, such as `resume=True` without `out`, or a checkpoint in
            `out` without `resume`; an unusable folder or recorder; ranks that do not fit together.
        WorkerError: a rank exited, or did not answer for `config.peer_timeout_s`; names the rank.
    """
    require_vec_env(vec, "train", autoreset="same_step")
    config = config or PPOConfig.for_env(vec)
    log_settings(vec, config, config.num_threads or torch.get_num_threads())
    device = torch_device(config.device)
    with torch_threads(config.num_threads), find_peers(device, config.peer_timeout_s) as peers:
        folder = None if out is None else Path(out)
        run = Run(vec, config, policy, folder, peers, callbacks, recorders)
        return _train(run, resume, on_update, about or {})


def _train(
    run: Run,
    resume: bool | str | Path,
    on_update: Callable[[TrainProgress], None] | None,
    about: Mapping[str, object],
) -> TrainResult:
    tune_malloc()
    config, peers = run.config, run.peers
    if run.out is not None:
        require_safetensors()
    resume_path = _resume_path(resume, run.out) if resume else None
    cause = None
    with run_folder(run.written), run.interrupt as interrupt:
        if resume_path is not None:
            run.resume(resume_path)
        elif run.written is not None:
            require_new_run(run.written)
        computing = run.kernels.running(run.learner.step)
        with run.writer(about) as write_curves, freeze_gc() as freeze, computing:
            try:
                try:
                    collector, begun = run.begin(), run.learner.update
                    run.call("on_start")
                    if not begun and (recorded := run.take_recorded()):
                        write_curves(run.progress, {}, recorded)
                    while run.learner.step < config.total_steps:
                        run.update(collector, interrupt.check)
                        if run.learner.update == begun + 1:
                            freeze()  # after one update all long-lived objects exist
                        run.call("on_update")
                        write_curves(run.progress, run.episodes.metrics, run.take_recorded())
                        if on_update is not None:
                            with no_exits("on_update"):
                                run.stopping_call(on_update, run.progress)
                        run.save_if_due(collector)
                    run.require_sound(collector)
                except KeyboardInterrupt:
                    if peers.size > 1 and not run.is_stopping:
                        raise  # a second Ctrl-C, unknown to the other ranks
                    run.is_stopping = True
                run.save()
                run.end()
                if recorded := run.take_recorded():  # by `on_end` of callbacks
                    write_curves(run.progress, run.episodes.metrics, recorded)
                peers.gather_reports("saved")  # no rank exits before all are done
            except KeyboardInterrupt:
                raise  # a second Ctrl-C: end immediately
            except TrainingDivergedError as error:
                run.end(error)
                raise run.explained(error) from error
            except BaseException as error:
                run.save_after(error)
                run.end(error)
                if not is_a(error, Exception) or not interrupt.ends_program:
                    raise
                cause = error  # probably due to the signal, which may also have hit a worker
    result = run.result(interrupt.signum)
    interrupt.deliver(result, cause)
    return result


def _resume_path(resume: Literal[True] | str | Path, out: str | Path | None) -> Path:
    if resume is not True:
        return Path(resume)
    if out is None:
        raise UsageError("resume=True continues from the checkpoint in `out`: name that folder")
    return Path(out)
