"""Compiles the network's kernels in a child process, while training starts in torch.

A thread would not help: numba holds Python's global lock while it compiles. The child makes one
update on a small part of an early rollout, which compiles everything the run needs into numba's
cache on disk.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import IO, Final, NamedTuple

import numpy as np
import torch

from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.ppo import learn
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.rogue_net.torch_net.rollout_policy import CompiledPolicy, fastest_policy
from entity_env.agents.rogue_net.torch_net.tensors import has_kernels, torch_only
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.processes import kill_group, start_group

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")
_NUM_DECISIONS: Final = 256
"""Largest number of decisions in the child's rollout."""
_CHILD: Final = (
    "import sys; sys.path += sys.argv[2:]; from entity_env.agents.ppo.compiling import main; main()"
)


class KernelSwitch:
    """Switches a run from torch to compiled kernels.

    With "background", if the kernels can be cached on disk but some are not cached yet, the run
    starts in torch while a child compiles; the run switches after the update in which the child
    exits. With a number of steps, the run uses torch up to that step, even if the kernels are
    cached. With "never", the run always uses torch; with "wait", it uses kernels from the start.

    Args:
        mode: `PPOConfig.compile`.
    """

    def __init__(self, mode: str | int, net: Policy) -> None:
        self._at = mode if isinstance(mode, int) else None
        is_cold = (mode == "background" or self._at is not None) and _must_compile(net)
        self._needs_child = is_cold
        self.is_compiling = is_cold or self._at is not None
        """True while the run still uses torch but will switch to kernels."""
        self._is_torch = mode == "never" or self.is_compiling
        self.from_step: int | None = None
        """Number of decisions before the first update with kernels; None if there was none."""
        self._held = ExitStack()
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = io.BytesIO()
        """Standard error of the child; a pipe that is not read may fill up."""

    @contextmanager
    def running(self, step: int) -> Iterator[None]:
        """Context of a run that starts after `step` decisions.

        On exit, kills the child, which also exits by itself when this process is gone.
        """
        if self._at is not None and step >= self._at:  # a run resumed after the switch
            self.is_compiling = self._is_torch = False
        with self._held:
            if self._is_torch:
                self._held.enter_context(torch_only())
            elif has_kernels():
                self.from_step = step
            try:
                yield
            finally:
                self._stop_child()

    def advance(self, net: Policy, rollout: Rollout, config: CurrentConfig, step: int) -> bool:
        """Starts the child, or switches to kernels, when it is time; call it after every update.

        Args:
            rollout, config: of the update.
            step: number of decisions so far.

        Returns:
            True if it switched.
        """
        if not self.is_compiling:
            return False
        try:
            if self._child is None and self._needs_child and len(rollout.b_inds):
                self._start_child(net, rollout, config)
                if self._at is None:
                    return False
            if step < self._at if self._at is not None else not self._is_child_done():
                return False
            if self._child is not None and (code := self._child.wait()):
                self._errors.seek(0)
                output = self._errors.read().decode(errors="replace")
                lines = [f"exit code {code}", *output.splitlines()[-1:]]
                _LOGGER.warning("compiling in a child process failed: %s", ", ".join(lines))
        except OSError as error:
            _LOGGER.warning("no child process can compile: %s", error)
        # Also after a failure: then this process compiles.
        self.is_compiling = False
        self._stop_child()
        self._held.close()
        self.from_step = step if has_kernels() else None
        return True

    def _is_child_done(self) -> bool:
        return self._child is not None and self._child.poll() is not None

    def _start_child(self, net: Policy, rollout: Rollout, config: CurrentConfig) -> None:
        if not isinstance(net, RogueNet):
            raise TypeError(f"only a RogueNet has kernels, got {type(net).__name__}")
        job = _Job(net.obs_space, net.action_space, net.config, _head(rollout), config)
        self._errors = self._held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed by `running`
        with tempfile.TemporaryFile() as file:
            pickle.dump(job, file)
            file.seek(0)
            self._child = start_group(  # Ctrl-C is for the run, which stops the child
                # -P: Python's own modules take precedence over those in the current folder.
                [sys.executable, "-P", "-c", _CHILD, str(file.fileno()), *sys.path],
                stdin=subprocess.PIPE,  # closed when this process exits
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[file.fileno()],
            )

    def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            kill_group(child)
            with child:  # closes its pipe
                child.wait()


class _Job(NamedTuple):
    """A small rollout for the child to learn from, with the spaces and settings."""

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    net_config: RogueNetConfig
    rollout: Rollout
    config: CurrentConfig

    def run(self) -> None:
        net = RogueNet(self.obs_space, self.action_space, self.net_config)
        rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
        fastest_policy(net).act(self.rollout.obs, generator=generator)
        if net.memory_width:
            count = len(self.rollout)
            sequence = np.array([count]), np.zeros(count, np.bool_)
            past = Past(np.zeros((1, net.memory_width), np.float32), *sequence)
            net.recall(self.rollout.obs, past)[2].sum().backward()  # type: ignore[no-untyped-call]
        config = replace(self.config, update_epochs=1, minibatch_size=len(self.rollout))
        learn(net, torch.optim.SGD(net.parameters(), lr=0.0), self.rollout, config, rng)


def _must_compile(net: Policy) -> bool:
    """True if every layer has kernels that can be cached on disk, and some are not cached yet."""
    if type(net) is not RogueNet or not CompiledPolicy.fits(net) or net.config.dropout:
        return False
    if os.name != "posix" or not sys.executable:
        return False
    # Late import: numba is slow to load, and optional.
    from entity_env.agents.rogue_net.kernels import attention, block, recurrence
    from entity_env.core.numba_utils import is_cached

    blocks = (block.to_qkv, block.to_out, block.to_out_backward, block.to_qkv_backward)
    recur = (recurrence.recur_rows, recurrence.recur_rows_backward) if net.memory_width else ()
    found = [is_cached(each) for each in (*attention.kernels(), *blocks, *recur)]
    return None not in found and not all(found)


def _head(rollout: Rollout) -> Rollout:
    """The first decisions with a known outcome, at most `_NUM_DECISIONS`."""
    index = rollout.b_inds[:_NUM_DECISIONS]
    figures = ("logprobs", "values", "advantages", "returns")
    return Rollout(
        rollout.obs.map_arrays(lambda each: each[index]),
        {name: each[index] for name, each in rollout.samples.items()},
        np.arange(len(index)),
        **{name: getattr(rollout, name)[index] for name in figures},
    )


def main() -> None:
    """Entry point of the child process: runs the job in the file that `sys.argv[1]` describes.

    That argument is a file descriptor.
    """
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    gc.disable()  # saves a tenth of the compile time
    torch.set_num_threads(1)
    with open(int(sys.argv[1]), "rb") as file:
        job: _Job = pickle.load(file)  # noqa: S301 - from the parent, in an unnamed file
    job.run()


def _exit_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is closed, also if its process dies
    os._exit(1)
