"""PixelGoalEnv: batch environment rewarded for bringing a screen closer to a goal picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import require_choice
from entity_env.errors import ProtocolError, UsageError
from entity_env.games.pixel import entities
from entity_env.games.pixel.episode_state import (
    Trackers,
    measure_reset_states,
    require_goal,
    require_slots,
    take_snapshots,
)
from entity_env.games.pixel.reward.reward import Goal, RewardConfig, grid_shape
from entity_env.games.pixel.reward.torch_ops import GoalOps, TorchGoalOps
from entity_env.games.pixel.reward.warp_ops import WarpGoalOps
from entity_env.games.pixel.worlds.checks import require_count, require_tensor
from entity_env.games.pixel.worlds.world import Button, World
from entity_env.vec.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
    checked_actions,
    require_reset_mask,
)


class HostRows:
    """A reused `StepResult` that the episode state is copied into.

    `is_stale`: the episode state may have changed since the last copy.
    """

    def __init__(self, trackers: Trackers, obs_size: int) -> None:
        num_envs = len(trackers.reward)
        self.is_stale = True
        self._trackers = trackers
        self._result = StepResult(
            np.zeros((num_envs, obs_size), np.float32),
            np.zeros(num_envs, np.float32),
            np.zeros(num_envs, np.uint8),
            np.zeros(num_envs, np.uint8),
        )
        observations = torch.from_numpy(self._result.observations)
        num_tile_numbers = trackers.tiles[0].numel()
        self._tiles = observations[:, :num_tile_numbers].view_as(trackers.tiles)
        self._screen = observations[:, num_tile_numbers:]

    def read(self) -> StepResult:
        """The result, copied first if stale."""
        if self.is_stale:
            t, result = self._trackers, self._result
            self._tiles.copy_(t.tiles)
            self._screen.copy_(t.screen)
            torch.from_numpy(result.rewards).copy_(t.reward)
            is_playing = t.episode_step > 0  # after a reset, flags read as 0
            torch.from_numpy(result.terminals).copy_(t.terminated & is_playing)
            torch.from_numpy(result.truncations).copy_(t.truncated & is_playing)
            self.is_stale = False
        return self._result

    def is_over(self) -> NDArray[np.bool_]:
        """`(num_envs,)` bool: the episode has ended and waits for a reset."""
        if self.is_stale:
            t = self._trackers
            over: NDArray[np.bool_] = (t.ended & (t.episode_step > 0)).cpu().numpy()
            return over
        return (self._result.terminals | self._result.truncations).astype(np.bool_)


Backend = Literal["auto", "torch", "warp"]


class PixelGoalEnv(BatchEnv):
    """A batch of machines, rewarded for bringing their screens closer to a goal picture.

    There are two interfaces. On the device, `step_tensors` and `reset_mask` read and write tensors,
    without synchronization or host copies::

        trackers = env.trackers
        env.reset(seed=0)
        while learning:
            env.step_tensors(choose(trackers.tiles, trackers.screen))
            remember(trackers.reward, trackers.terminated)
            env.reset_mask(trackers.ended)

    On the host it is a `BatchEnv` of numpy arrays, copied by `to_host`. A row of `observations`
    holds the features of all tiles, then those of the screen; see
    `entity_env.games.pixel.entities`.

    An episode is `terminated` when `match_k` consecutive screens match the goal, not counting the
    initial screen, and `truncated` after `max_steps`. If both are true, do not bootstrap. Only
    `step`, and `step_tensors` with `autoreset`, reset automatically. Episode k of an environment
    with its own seed s (`env_seeds`) starts from reset state (s + k) modulo the number of reset
    states.

    Args:
        world: the machines; owned by this environment, which closes them.
        goal: the picture, on the world's device.
        config: rewards and limits of an episode.
        stack_k: number of screens in `stack`.
        warm_ups: for each reset state, the buttons that the first machine holds before its
            snapshot; snapshots fill the slots of the world's bank from 0. None = one reset state,
            the current state.
        slots: existing snapshots in the bank to start from instead.
        backend: "torch" computes everything but the machine in torch; "warp" does so in a few
            kernels, bit for bit equal; "auto" is "warp" if Warp is installed, else "torch".

    Raises:
        SchemaError: a goal with the wrong shape or device, a reset state that already matches it,
            or a screen that is not a whole number of tiles.
        UsageError: invalid `stack_k`, `warm_ups`, `slots` or `backend`, or both `warm_ups` and
            `slots`.
        MissingExtraError: backend "warp" without Warp.

    Attributes:
        trackers: observations and state of the episodes, always the same tensor objects.
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
    ) -> None:
        rows, columns = grid_shape(world.height, world.width)
        self.num_entities = rows * columns
        obs_size = self.num_entities * entities.NUM_TILE + entities.NUM_SCREEN
        super().__init__(world.num_envs, obs_size)
        require_goal(goal, world)
        require_count("stack_k", stack_k)
        if warm_ups is not None and slots is not None:
            raise UsageError("starts come from warm_ups or from slots, got both")
        if slots is None:
            chosen = take_snapshots(world, ((),) if warm_ups is None else warm_ups)
        else:
            chosen = require_slots(slots, world.num_slots)
        reset_states = measure_reset_states(world, chosen, goal)
        self.config = config or RewardConfig()
        self.goal = goal
        self.device = world.device
        self.trackers = Trackers.allocate(
            world.num_envs, stack_k, world.height, world.width, world.device
        )
        self.world: Final = world
        self._reset_states = reset_states
        require_choice("backend", backend, get_args(Backend))
        is_plain = backend == "torch" or (backend == "auto" and find_spec("warp") is None)
        make_ops: Callable[..., GoalOps] = TorchGoalOps if is_plain else WarpGoalOps
        self._ops = make_ops(self.trackers, goal, self.config, reset_states)
        self._actions = torch.zeros(world.num_envs, dtype=torch.int32, device=world.device)
        self._all_envs = torch.ones(world.num_envs, dtype=torch.bool, device=world.device)
        # False if reset state i is in slot i of the bank, as after `warm_ups`.
        self._is_renumbered = reset_states.bank.tolist() != list(range(len(reset_states.bank)))
        self._host = HostRows(self.trackers, self.obs_size)

    @property
    def pixels(self) -> Tensor:
        """Observed screens, (N, H, W) uint8; a view of the newest in `stack`."""
        return self.trackers.stack[:, -1]

    @property
    def stack(self) -> Tensor:
        """Observed screens, (N, stack_k, H, W) uint8, newest last."""
        return self.trackers.stack

    @property
    def final_pixels(self) -> Tensor:
        """Screens after the last step, even of environments that were reset since, (N, H, W) uint8.

        After `reset`, these are the initial screens.
        """
        return self.trackers.frames

    @property
    def final_dist(self) -> Tensor:
        """Distances of `final_pixels` from the goal, (N,) float32."""
        return self.trackers.dist

    def obs_space(self) -> ObsSpace:
        return entities.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return entities.action_space()

    def step_tensors(self, actions: Tensor, *, autoreset: bool = False) -> Trackers:
        """Steps every machine on the device, without host copies or synchronization.

        With `autoreset`, environments whose episode ends are then reset; `trackers` keeps their
        flags (`ended`, `terminated`, `truncated`), last screen and distance (`frames`, `dist`).

        Args:
            actions: (N,) int32 or int64 on the device, values of `Button`; values out of range are
                clamped. Reset ended environments first; only the host interface checks this.

        Returns:
            `trackers`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
            SchemaError: actions of the wrong shape, dtype or device.
        """
        self._require_begun("step_tensors")
        dtypes = (torch.int32, torch.int64)
        require_tensor("actions", actions, (self.num_envs,), dtypes, self.device)
        self._step(actions)
        if autoreset:
            self._reset(self.trackers.ended)
        return self.trackers

    def reset_mask(self, mask: Tensor) -> None:
        """Starts episodes in a mask of environments, on the device; the others do not change.

        Results of the last step in `trackers`, including flags and reward, stay.

        Args:
            mask: (N,) bool on the device, True = reset, whether ended or not.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
            SchemaError: a mask of the wrong shape, dtype or device.
        """
        self._require_begun("reset_mask")
        require_tensor("mask", mask, (self.num_envs,), torch.bool, self.device)
        self._reset(mask)

    def reset(self, seed: BatchSeed | None = None) -> None:
        self._require_open("reset")
        if seed is None and not self._is_reset:
            seed = self._new_seed()
        if seed is not None:
            self._begin_from(np.ones(self.num_envs, np.bool_), seed)
        t = self.trackers
        self._reset(self._all_envs)
        for tensor in (t.reward, t.terminated, t.truncated, t.ended):
            tensor.zero_()
        t.frames.copy_(t.stack[:, -1])
        t.dist.copy_(t.prev_dist)
        t.sums.copy_(t.tiles[:, :, -1].sum(1))
        self._is_reset = True
        self._host.is_stale = True

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self._require_begun("reset_envs")
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
        """Copies observations, rewards and flags to the host.

        The arrays are reused: valid until the next call of `to_host`, `view` or a host step. Flags
        of reset environments are cleared.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
        """
        self._require_begun("to_host")
        return self._host.read()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.world.close()

    def _step(self, actions: Tensor) -> None:
        """The only code that steps machines, screens, rewards and flags."""
        self._host.is_stale = True
        if actions.dtype != torch.int32 or not actions.is_contiguous():
            actions = self._actions.copy_(actions)
        self.world.step(actions)
        self.world.render(self.trackers.frames)
        self._ops.observe()
        self._ops.judge()

    def _reset(self, mask: Tensor) -> None:
        """The only code that resets machines and episode state."""
        self._host.is_stale = True
        slot = self.trackers.slot
        if self._is_renumbered:
            slot = self._reset_states.bank.index_select(0, slot)
        self.world.reset(mask, slot)
        self._ops.reset(mask)

    def _step_host(self, method: str, given: BatchActions) -> None:
        self._require_begun(method)
        where = f"PixelGoalEnv: {entities.PRESS.name}"
        actions = checked_actions(where, given, self.num_envs, entities.PRESS.space).astype(
            np.int32
        )
        over = np.flatnonzero(self._host.is_over())
        if len(over):
            raise ProtocolError(
                f"the episodes of environments {over[:20].tolist()} have ended: reset them before "
                "the next step"
            )
        self._step(torch.from_numpy(actions).to(self.device))

    def _begin_from(self, chosen: NDArray[np.bool_], seed: BatchSeed) -> None:
        own = self.env_seeds(seed) % np.uint64(len(self._reset_states.bank))
        kept = self.trackers.slot.cpu().numpy()
        slots = np.where(chosen, own, kept).astype(np.int32)
        self.trackers.slot.copy_(torch.from_numpy(slots))
