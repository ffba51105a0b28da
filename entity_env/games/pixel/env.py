"""PixelGoalEnv: machines whose screen is to become a picture, rewarded by how near it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_index, checked_seed, require_choice
from entity_env.errors import ClosedError, ProtocolError, UsageError
from entity_env.games.pixel import diagnostics as faults, entities
from entity_env.games.pixel.checks import require_count, require_tensor
from entity_env.games.pixel.episode_state import Starts, Trackers
from entity_env.games.pixel.host_arrays import HostRows, checked_actions
from entity_env.games.pixel.reset_states import look_at, require_goal, require_slots, take_snapshots
from entity_env.games.pixel.reward.reward import Goal, RewardConfig
from entity_env.games.pixel.reward.tiles import grid_shape
from entity_env.games.pixel.reward.torch_ops import GoalOps, TorchGoalOps
from entity_env.games.pixel.reward.warp_ops import WarpGoalOps
from entity_env.games.pixel.worlds.world import Button, World
from entity_env.vec.batch_env.batch_env import BatchActions, BatchEnv, ResetMask, StepResult
from entity_env.vec.batch_env.reset_mask import require_reset_mask

Backend = Literal["auto", "torch", "warp"]
_NUM_BUTTONS: Final = len(Button)


class PixelGoalEnv(BatchEnv):
    """Steps the machines of a world, and pays them for coming nearer to a picture.

    It has two faces. On the device, `step_tensors` and `reset_mask` take and leave tensors, wait
    for nothing and copy nothing to the host::

        trackers = env.trackers
        env.reset(seed=0)
        while learning:
            env.step_tensors(choose(trackers.tiles, trackers.screen))
            remember(trackers.reward, trackers.terminated)
            env.reset_mask(trackers.ended)

    On the host it is a `BatchEnv` of numpy arrays, copied by `to_host`. A row of `observations` is
    the features of all tiles, one tile after another, then those of the screen; see
    `entity_env.games.pixel.entities`.

    An episode is `terminated` when `match_k` screens in a row match the goal, the start's not
    counted, and `truncated` after `max_steps`; both may be true, and then bootstrap by
    `terminated`. Nothing is reset but by `reset_mask`, `reset_envs`, and where it is asked for.
    Episode k of environment i, with seed s, begins from start (s + i + k) modulo their number.

    Args:
        world: the machines, which are closed with this. From here on nobody else steps them.
        goal: the picture, on the world's device.
        config: what a step pays and when an episode ends.
        stack_k: how many screens `stack` shows.
        warm_ups: what the first machine does before the snapshot of each start; the starts take
            the slots of the world's bank from 0 on. None = one start, the machine as it is.
        slots: snapshots in the bank to begin from instead.
        backend: "torch" does all but the machine in plain torch, "warp" in few kernels, with the
            same bits; "auto" takes the latter where Warp is installed.
        checked: check actions and results at every step, for finding bugs: that waits for the
            device.

    Raises:
        SchemaError: a goal that does not fit the world, a start that matches it already, a screen
            that is no whole number of tiles.
        UsageError: `stack_k`, `warm_ups` or `slots` that cannot be.
        MissingExtraError: backend "warp" without Warp.

    Attributes:
        trackers: observations and bookkeeping, always the same tensors.
    """

    trackers: Trackers

    is_always_finite = True

    def __init__(
        self,
        world: World,
        goal: Goal,
        config: RewardConfig | None = None,
        *,
        stack_k: int = 1,
        warm_ups: Sequence[Sequence[Button]] | None = None,
        slots: Sequence[int] | None = None,
        backend: Backend = "auto",
        checked: bool = False,
    ) -> None:
        rows, columns = grid_shape(world.height, world.width)
        self.num_entities = rows * columns
        obs_size = self.num_entities * entities.NUM_TILE + entities.NUM_SCREEN
        super().__init__(world.num_envs, obs_size)
        require_goal(goal, world)
        require_count("stack_k", stack_k)
        starts = _starts(world, goal, warm_ups, slots)
        self.config = config or RewardConfig()
        self.goal = goal
        self.device = world.device
        self.checked = checked
        self.trackers = Trackers.allocate(
            world.num_envs, stack_k, world.height, world.width, world.device
        )
        self._world = world
        self._starts = starts
        self._ops = _ops(backend, self.trackers, goal, self.config, starts)
        self._actions = torch.zeros(world.num_envs, dtype=torch.int32, device=world.device)
        self._everyone = torch.ones(world.num_envs, dtype=torch.bool, device=world.device)
        # Slots of the bank are numbered as the starts are, unless others were given.
        self._is_renumbered = starts.bank.tolist() != list(range(len(starts.bank)))
        self._host = HostRows(self.trackers, self.obs_size)
        self._is_reset = self._is_closed = False

    @property
    def world(self) -> World:
        """The machines."""
        return self._world

    @property
    def pixels(self) -> Tensor:
        """(N, H, W) uint8: the screens that are shown, a view of the stack's newest."""
        return self.trackers.stack[:, -1]

    @property
    def stack(self) -> Tensor:
        """(N, stack_k, H, W) uint8: the screens that are shown, the newest last."""
        return self.trackers.stack

    @property
    def final_pixels(self) -> Tensor:
        """(N, H, W) uint8: the screens that the last step led to, before any reset."""
        return self.trackers.frames

    @property
    def final_dist(self) -> Tensor:
        """(N,) float32: how far those are from the goal."""
        return self.trackers.dist

    def obs_space(self) -> ObsSpace:
        return entities.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return entities.action_space()

    def supports_no_reset(self) -> bool:
        return True

    def step_tensors(self, actions: Tensor, *, autoreset: bool = False) -> Trackers:
        """Step every machine, on the device: nothing is copied to the host or waited for.

        Machine, screen, stack, distance, match, truncation and reward; then, if that is asked for,
        the reset of those whose episode has ended: `trackers` says who and how (`ended`,
        `terminated`, `truncated`), and keeps the last screen and its distance (`frames`, `dist`).

        Args:
            actions: (N,) int32 or int64 on the device, values of `Button`; those out of range are
                clamped, or refused if `checked`. Whoever has ended must be reset first; without
                `checked` nobody looks, and its episode counts on.
            autoreset: reset those whose episode ends.

        Returns:
            `trackers`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`; if `checked`, an episode that has ended was not reset.
            SchemaError: actions of another shape, dtype or device; if `checked`, out of range.
            PixelFault: if `checked`, a rule that does not hold.
        """
        self._require_reset("step_tensors")
        dtypes = (torch.int32, torch.int64)
        require_tensor("actions", actions, (self.num_envs,), dtypes, self.device)
        if self.checked:
            checked_actions(faults.as_numpy(actions), self.num_envs)
            self._require_playing(faults.as_numpy(self._is_over()))
        self._step(actions)
        if autoreset:
            self._reset(self.trackers.ended)
        return self.trackers

    def reset_mask(self, mask: Tensor) -> None:
        """Begin an episode on the chosen machines, on the device; the others keep every byte.

        What the last step led to stays to be read in `trackers`, flags and reward included.

        Args:
            mask: (N,) bool on the device, ended or not.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
            SchemaError: a mask of another shape, dtype or device.
            PixelFault: if `checked`, a rule that does not hold.
        """
        self._require_reset("reset_mask")
        require_tensor("mask", mask, (self.num_envs,), torch.bool, self.device)
        self._reset(mask)

    def reset(self, seed: int | None = None) -> None:
        self._require_open("reset")
        if seed is None and not self._is_reset:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        if seed is not None:
            self._begin_from(np.ones(self.num_envs, np.bool_), seed)
        t = self.trackers
        self._reset(self._everyone, is_first=not self._is_reset)
        for tensor in (t.reward, t.terminated, t.truncated, t.ended):
            tensor.zero_()
        t.frames.copy_(t.stack[:, -1])
        t.dist.copy_(t.prev_dist)
        t.sums.copy_(t.tiles[:, :, -1].sum(1))
        self._is_reset = True
        self._host.is_stale = True

    def reset_envs(self, mask: ResetMask, seed: int | None = None) -> None:
        self._require_reset("reset_envs")
        require_reset_mask(type(self).__name__, mask, self.num_envs)
        chosen = mask.to_bool()
        if seed is not None:
            self._begin_from(chosen, seed)
        self._reset(torch.from_numpy(chosen).to(self.device))

    def step(self, actions: BatchActions) -> None:
        self._step_host("step", actions)
        self._reset(self.trackers.ended)

    def step_no_reset(self, actions: BatchActions) -> None:
        self._step_host("step_no_reset", actions)

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self._step_host("step_no_reset_with_result", actions)
        return self.to_host()

    def view(self) -> StepResult:
        return self.to_host()

    def to_host(self) -> StepResult:
        """Copy observations, rewards and flags to the host; see `StepResult`.

        Always the same arrays; they change at the next call of this, of `view`, or of a step of the
        host's face. Flags of those that were reset are cleared.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
        """
        self._require_reset("to_host")
        return self._host.read()

    def describe(self, env_id: int) -> str:
        """Say where an environment is, with hashes of screen and memory, so that it can be found.

        Raises:
            UsageError: no such environment.
        """
        env_id = checked_index("env_id", env_id, self.num_envs)
        return faults.describe(self._world, self.trackers, env_id)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._world.close()

    def _step(self, actions: Tensor) -> None:
        """Machine, screen, and what follows from it: the only place where that is done."""
        self._host.is_stale = True
        before = faults.before_step(self.trackers) if self.checked else {}
        if actions.dtype != torch.int32 or not actions.is_contiguous():
            actions = self._actions.copy_(actions)
        self._world.step(actions)
        self._world.render(self.trackers.frames)
        self._ops.observe()
        self._ops.judge()
        if self.checked:
            faults.check_step(self._world, self.trackers, self.goal, self.config, before)

    def _reset(self, mask: Tensor, *, is_first: bool = False) -> None:
        """Machine and trackers of the chosen: the only place where that is done."""
        self._host.is_stale = True
        slot = self.trackers.slot
        is_checked = self.checked and not is_first
        before = faults.before_reset(self._world, self.trackers) if is_checked else {}
        if self._is_renumbered:
            slot = self._starts.bank.index_select(0, slot)
        self._world.reset(mask, slot)
        self._ops.reset(mask)
        if is_checked:
            faults.check_reset(self._world, self.trackers, mask, self._starts, before)

    def _step_host(self, method: str, given: BatchActions) -> None:
        self._require_reset(method)
        actions = checked_actions(given, self.num_envs)
        self._require_playing(self._host.is_over())
        self._step(torch.from_numpy(actions).to(self.device))

    def _begin_from(self, chosen: NDArray[np.bool_], seed: int) -> None:
        """The next start of the chosen is that of a seed."""
        seed = checked_seed(seed, bits=64)
        num_starts = len(self._starts.bank)
        own = (np.arange(self.num_envs) + seed % num_starts) % num_starts
        kept = self.trackers.slot.cpu().numpy()
        slots = np.where(chosen, own, kept).astype(np.int32)
        self.trackers.slot.copy_(torch.from_numpy(slots))

    def _is_over(self) -> Tensor:
        """(N,) bool: ended, and not reset since."""
        return self.trackers.ended & (self.trackers.episode_step > 0)

    def _require_playing(self, is_over: NDArray[np.bool_]) -> None:
        if is_over.any():
            over = np.flatnonzero(is_over)
            raise ProtocolError(
                f"the episodes of environments {over[:20].tolist()} have ended: reset them before "
                f"the next step; {self.describe(int(over[0]))}"
            )

    def _require_open(self, method: str) -> None:
        if self._is_closed:
            raise ClosedError(f"PixelGoalEnv.{method}: the environments are closed")

    def _require_reset(self, method: str) -> None:
        self._require_open(method)
        if not self._is_reset:
            raise ProtocolError(f"PixelGoalEnv.{method}: call reset first")


def _starts(
    world: World,
    goal: Goal,
    warm_ups: Sequence[Sequence[Button]] | None,
    slots: Sequence[int] | None,
) -> Starts:
    if warm_ups is not None and slots is not None:
        raise UsageError("starts come from warm_ups or from slots, got both")
    if slots is None:
        return look_at(world, take_snapshots(world, ((),) if warm_ups is None else warm_ups), goal)
    return look_at(world, require_slots(slots, world.num_slots), goal)


def _ops(
    backend: Backend, trackers: Trackers, goal: Goal, config: RewardConfig, starts: Starts
) -> GoalOps:
    require_choice("backend", backend, get_args(Backend))
    if backend == "torch" or (backend == "auto" and find_spec("warp") is None):
        return TorchGoalOps(trackers, goal, config, starts)
    return WarpGoalOps(trackers, goal, config, starts)
