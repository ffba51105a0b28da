"""A world: many machines side by side, each with seven buttons and a screen of four shades."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # whoever only names the buttons needs no torch
    import torch
    from torch import Tensor


class Button(Enum):
    """What an environment can do in a step: hold one button. There is none that does nothing."""

    A = 0
    B = 1
    START = 2
    UP = 3
    DOWN = 4
    LEFT = 5
    RIGHT = 6


class World(Protocol):
    """Machines that step together, and a bank of snapshots that they are reset from.

    All tensors lie on `device` and are allocated once; their addresses never change. A world checks
    shapes, dtypes and devices, but never values: that would wait for the device. An action out of
    range is clamped into it.

    Attributes:
        num_envs: N, how many machines there are.
        height: H, rows of the screen.
        width: W, columns of the screen.
        num_slots: S, how many snapshots the bank holds.
        device: where everything lies.
    """

    @property
    def num_envs(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def num_slots(self) -> int: ...
    @property
    def device(self) -> torch.device: ...

    def step(self, actions: Tensor) -> None:
        """Run every machine for one step with its button held.

        Args:
            actions: (N,) int32, values of `Button`.
        """
        ...

    def render(self, pixels: Tensor) -> None:
        """Write what every screen shows.

        Args:
            pixels: (N, H, W) uint8, written with shades 0..3.
        """
        ...

    def snapshot(self, env: int, slot: int) -> None:
        """Copy the whole state of one machine into the bank.

        Args:
            env: the machine, 0 .. N - 1.
            slot: where in the bank, 0 .. S - 1.
        """
        ...

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        """Restore the chosen machines byte for byte; the others keep every byte.

        Args:
            mask: (N,) bool, the machines to restore.
            slots: (N,) int32, from which snapshot each; read only where the mask is set.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Return the whole state by name, each (N, ...): views, valid as long as the world is."""
        ...

    def close(self) -> None:
        """Release what the world holds. Closing twice does nothing."""
        ...
