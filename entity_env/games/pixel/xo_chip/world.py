"""XoChipWorld: machines of the CHIP-8 family, run by Warp kernels on CPU or GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entity_env.errors import SchemaError
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from entity_env.games.pixel.worlds.checks import CheckedWorld, require_count
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.machine_layout import (
    FIRST_MEMORY_WORD,
    HALT,
    NUM_REGISTERS,
    RANDOM,
    quirk_bits,
    switched_on,
)
from entity_env.games.pixel.xo_chip.quirks import HEIGHT, KEYS, WIDTH, XOCHIP, Quirks, double

# Threads that together restore one machine, for coalesced access to its words.
_LANES: Final = {"cpu": 1, "cuda": 32}
# Small blocks spread few machines over many processors.
_BLOCK: Final = 32
_GOLDEN: Final = 0x9E3779B9


class XoChipWorld(CheckedWorld):
    """`World` of CHIP-8 family machines that run one program.

    A step holds a button for `frames` frames of a sixtieth of a second, each of `instructions`
    instructions. The state of a halted machine does not change until its reset; `halts` has the
    reason. The same buttons give identical bytes on every device. `render` needs contiguous pixels
    that begin at a multiple of 4 bytes.

    The random numbers of machine i start at `seed` XOR i · 0x9E3779B9 (modulo 2**32), or at `seed`
    if that is 0. They are part of the state, so machines reset from one snapshot draw identical
    numbers.

    Args:
        rom: the program, loaded at address 0x200.
        quirks: the dialect.
        num_slots: snapshots in the bank, initially all of the first machine, just switched on.
        seed: seed of the random numbers, from 1 to 2**32 - 1.
        device: "cpu" or "cuda".

    Raises:
        MissingExtraError: Warp is not installed.
        SchemaError: a program that is empty or too large, a seed out of range.
        UsageError: a number below 1, or an unknown device.
    """

    height = HEIGHT
    width = WIDTH

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
        super().__init__(num_envs, num_slots)
        self.quirks = quirks
        self.frames = require_count("frames", frames)
        self.instructions = require_count("instructions", instructions)
        first = switched_on(rom, quirks, seed)
        self.device = warp_runtime.device_of(device)
        self._state = torch.from_numpy(first).to(self.device).repeat(self.num_envs, 1)
        self._bank = self._state[:1].repeat(self.num_slots, 1)
        self._state[:, RANDOM] = _seeds(seed, self.num_envs).to(self.device)
        self._bind()

    @property
    def halts(self) -> Tensor:
        """`Halt` of each machine, (N,) int32, a view; 0 = running."""
        return self._state[:, HALT]

    def state(self) -> Mapping[str, Tensor]:
        """Registers (N, 64) int32, planes (N, 512) int32 and memory (N, 4096 or 65536) uint8.

        Views, with the layout of `machine_layout`; see `World.state`.
        """
        return {
            "registers": self._state[:, :NUM_REGISTERS],
            "planes": self._state[:, NUM_REGISTERS:FIRST_MEMORY_WORD],
            "memory": self._state[:, FIRST_MEMORY_WORD:].view(torch.uint8),
        }

    def _step(self, actions: Tensor) -> None:
        self._step_kernel.set(0, actions)
        self._step_kernel.launch()

    def _render(self, pixels: Tensor) -> None:
        if not pixels.is_contiguous() or pixels.data_ptr() % 4:
            raise SchemaError(
                "pixels: expected a contiguous tensor that begins at a multiple of 4 bytes, got "
                f"strides {pixels.stride()} from {pixels.data_ptr()}"
            )
        self._render_kernel.set(1, pixels.view(torch.int32))
        self._render_kernel.launch()

    def _snapshot(self, env: int, slot: int) -> None:
        self._bank[slot].copy_(self._state[env])

    def _reset(self, mask: Tensor, slots: Tensor) -> None:
        self._reset_kernel.set(0, mask)
        self._reset_kernel.set(1, slots)
        self._reset_kernel.launch()

    def _bind(self) -> None:
        warp = warp_runtime.import_warp()
        from entity_env.games.pixel.xo_chip import kernels  # Imports Warp, so only now.

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((self.num_envs, *shape), dtype=dtype, device=self.device)

        keys = [1 << KEYS[button] for button in Button]
        held_keys = torch.tensor(keys, dtype=torch.int32, device=self.device)
        doubles = torch.tensor(
            [double(byte, 8) for byte in range(256)], dtype=torch.int32, device=self.device
        )
        state = self._state.view(torch.int64), warp.uint64
        bank = self._bank.view(torch.int64), warp.uint64
        lanes = _LANES[self.device.type]
        # Actions, pixels, mask and slots are placeholders, replaced in each call.
        self._step_kernel = warp_runtime.BoundKernel(
            kernels.step_machines,
            self.num_envs,
            (
                zeros(torch.int32),
                held_keys,
                (doubles, warp.uint32),
                state,
                self.quirks.memory_size,
                self.frames,
                self.instructions,
                quirk_bits(self.quirks),
            ),
            self.device,
            block_dim=_BLOCK,
        )
        self._render_kernel = warp_runtime.BoundKernel(
            kernels.render_machines,
            (self.num_envs, HEIGHT),
            (state, (zeros(torch.int32, HEIGHT, WIDTH // 4), warp.uint32)),
            self.device,
            block_dim=_BLOCK,
        )
        self._reset_kernel = warp_runtime.BoundKernel(
            kernels.reset_machines,
            (self.num_envs, lanes),
            (zeros(torch.bool), zeros(torch.int32), bank, state, lanes),
            self.device,
            block_dim=_BLOCK,
        )


def _seeds(seed: int, num_envs: int) -> Tensor:
    """Initial random states, (N,) int32, never 0."""
    mixed = np.arange(num_envs, dtype=np.uint64) * np.uint64(_GOLDEN) % np.uint64(2**32)
    seeds = mixed.astype(np.uint32) ^ np.uint32(seed)
    seeds[seeds == 0] = seed
    return torch.from_numpy(seeds.view(np.int32))
