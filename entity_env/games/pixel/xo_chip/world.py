"""XoChipWorld: many machines of the CHIP-8 family, run by kernels on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entity_env.core.validation import checked_index
from entity_env.errors import ClosedError, SchemaError
from entity_env.games.pixel.checks import require_count, require_tensor
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.machine_layout import (
    FIRST_MEMORY_WORD,
    HALT,
    NUM_REGISTERS,
    RANDOM,
    quirk_bits,
    row_of,
)
from entity_env.games.pixel.xo_chip.quirks import HEIGHT, KEYS, WIDTH, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.reference_machine import PlainMachine

# Threads that restore a machine together, so that they read and write words side by side.
_LANES: Final = {"cpu": 1, "cuda": 32}
# Small blocks, so that few machines lie on many processors.
_BLOCK: Final = 32
_GOLDEN: Final = 0x9E3779B9


class XoChipWorld:
    """Machines that run the same program: a `World`.

    A step holds a button for frames of a sixtieth of a second, each of some instructions. A machine
    that halts stands still from then on, screen and all, until it is reset; `halts` says why. The
    same buttons lead to the same bytes on every device, those of `PlainMachine`.

    The random numbers of machine i begin at `seed` XOR i · 0x9E3779B9 (modulo 2**32); they belong
    to its state, so that machines reset from one snapshot draw the same.

    Args:
        rom: the program, which lies in memory from 0x200.
        num_envs: how many machines.
        quirks: the dialect.
        frames: in a step.
        instructions: in a frame.
        num_slots: snapshots in the bank, at first all of the first machine switched on.
        seed: of the random numbers, from 1 to 2**32 - 1.
        device: where everything lies and runs, "cpu" or "cuda".

    Raises:
        MissingExtraError: Warp is not installed.
        SchemaError: a program that is empty or too large, a seed out of range.
        UsageError: a number below 1, no such device.
    """

    height: Final = HEIGHT
    width: Final = WIDTH

    def __init__(
        self,
        rom: bytes,
        num_envs: int,
        *,
        quirks: Quirks = XOCHIP,
        frames: int = 24,
        instructions: int = 30,
        num_slots: int = 1,
        seed: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_envs = require_count("num_envs", num_envs)
        self.num_slots = require_count("num_slots", num_slots)
        self.quirks = quirks
        self.frames = require_count("frames", frames)
        self.instructions = require_count("instructions", instructions)
        first = row_of(PlainMachine(rom, quirks, seed=seed))
        self.device = warp_runtime.device_of(device)
        self._state = torch.from_numpy(first).to(self.device).repeat(self.num_envs, 1)
        self._bank = self._state[:1].repeat(self.num_slots, 1)
        self._state[:, RANDOM] = _seeds(seed, self.num_envs).to(self.device)
        self._bind()
        self._is_closed = False

    @property
    def halts(self) -> Tensor:
        """(N,) int32: why each machine stands still, a `Halt`; 0 = it runs. A view."""
        return self._state[:, HALT]

    def step(self, actions: Tensor) -> None:
        """Run every machine with its button held; see `World.step`.

        Raises:
            ClosedError: after `close`.
            SchemaError: actions of another shape, dtype or device.
        """
        self._require_open("step")
        self._require("actions", actions, torch.int32)
        self._step.set(0, actions)
        self._step.launch()

    def render(self, pixels: Tensor) -> None:
        """Write what every screen shows; see `World.render`.

        Raises:
            ClosedError: after `close`.
            SchemaError: pixels of another shape, dtype or device, not contiguous, or that do not
                begin at a multiple of 4 bytes.
        """
        self._require_open("render")
        self._require("pixels", pixels, torch.uint8, HEIGHT, WIDTH)
        if not pixels.is_contiguous() or pixels.data_ptr() % 4:
            raise SchemaError(
                "pixels: expected a contiguous tensor that begins at a multiple of 4 bytes, got "
                f"strides {pixels.stride()} from {pixels.data_ptr()}"
            )
        self._render.set(1, pixels.view(torch.int32))
        self._render.launch()

    def snapshot(self, env: int, slot: int) -> None:
        """Copy the whole state of one machine into the bank; see `World.snapshot`.

        Raises:
            ClosedError: after `close`.
            UsageError: no such machine or slot.
        """
        self._require_open("snapshot")
        checked_index("env", env, self.num_envs)
        checked_index("slot", slot, self.num_slots)
        self._bank[slot].copy_(self._state[env])

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        """Restore the chosen machines; see `World.reset`. Slots out of range are clamped.

        Raises:
            ClosedError: after `close`.
            SchemaError: mask or slots of another shape, dtype or device.
        """
        self._require_open("reset")
        self._require("mask", mask, torch.bool)
        self._require("slots", slots, torch.int32)
        self._reset.set(0, mask)
        self._reset.set(1, slots)
        self._reset.launch()

    def state(self) -> Mapping[str, Tensor]:
        """Return the whole state; see `World.state`.

        Returns:
            registers (N, 64) int32, planes (N, 512) int32 and memory (N, 4096 or 65536) uint8, laid
            out as `kernels_layout` says.
        """
        return {
            "registers": self._state[:, :NUM_REGISTERS],
            "planes": self._state[:, NUM_REGISTERS:FIRST_MEMORY_WORD],
            "memory": self._state[:, FIRST_MEMORY_WORD:].view(torch.uint8),
        }

    def close(self) -> None:
        """Refuse to be used from now on; memory goes when the world does. May be called twice."""
        self._is_closed = True

    def _bind(self) -> None:
        warp = warp_runtime.start()
        from entity_env.games.pixel.xo_chip import kernels  # Only now: it imports Warp.

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((self.num_envs, *shape), dtype=dtype, device=self.device)

        keys = [1 << KEYS[button] for button in Button]
        held_keys = torch.tensor(keys, dtype=torch.int32, device=self.device)
        state = self._state.view(torch.int64), warp.uint64
        bank = self._bank.view(torch.int64), warp.uint64
        lanes = _LANES[self.device.type]
        # Actions, pixels, mask and slots are set at each call to those of the caller.
        self._step = warp_runtime.BoundKernel(
            kernels.step_machines,
            self.num_envs,
            (
                (zeros(torch.int32), warp.int32),
                (held_keys, warp.int32),
                state,
                self.quirks.memory_size,
                self.frames,
                self.instructions,
                quirk_bits(self.quirks),
            ),
            self.device,
            block_dim=_BLOCK,
        )
        self._render = warp_runtime.BoundKernel(
            kernels.render_machines,
            (self.num_envs, HEIGHT),
            (state, (zeros(torch.int32, HEIGHT, WIDTH // 4), warp.uint32)),
            self.device,
            block_dim=_BLOCK,
        )
        self._reset = warp_runtime.BoundKernel(
            kernels.reset_machines,
            (self.num_envs, lanes),
            ((zeros(torch.bool), warp.bool), (zeros(torch.int32), warp.int32), bank, state, lanes),
            self.device,
            block_dim=_BLOCK,
        )

    def _require(self, name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> None:
        require_tensor(name, tensor, (self.num_envs, *shape), dtype, self.device)

    def _require_open(self, method: str) -> None:
        if self._is_closed:
            raise ClosedError(f"XoChipWorld.{method}: the world is closed")


def _seeds(seed: int, num_envs: int) -> Tensor:
    """Return where the random numbers of each machine begin, (N,) int32, never 0."""
    mixed = np.arange(num_envs, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(2**32)
    seeds = mixed.astype(np.uint32) ^ np.uint32(seed)
    seeds[seeds == 0] = seed
    return torch.from_numpy(seeds.view(np.int32))
