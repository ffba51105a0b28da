"""World: machines with seven buttons and a four-shade screen; buttons as text.

Importing this does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

from entity_env.errors import UsageError, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Button(Enum):
    """Button held during a step. Every action holds a button."""

    A = 0
    B = 1
    START = 2
    UP = 3
    DOWN = 4
    LEFT = 5
    RIGHT = 6


class World(Protocol):
    """N machines that step together, and a bank of snapshots to reset them from.

    All tensors are on `device` and allocated once; their addresses never change. A world checks
    shapes, dtypes and devices but not values, which would synchronize with the device. Actions and
    slots out of range are clamped.

    Attributes:
        num_envs: N, number of machines.
        height, width: H and W, rows and columns of the screen.
        num_slots: S, number of snapshots in the bank.
        device: device of all tensors.

    Raises:
        ClosedError: all methods after `close`.
        SchemaError: all methods, for tensors of the wrong shape, dtype or device.
        UsageError: `snapshot`, if there is no such machine or slot.
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
        """Runs every machine for one step; actions (N,) int32, values of the `Button` held."""
        ...

    def render(self, pixels: Tensor) -> None:
        """Writes the screens into `pixels`, (N, H, W) uint8 of shades 0..3."""
        ...

    def snapshot(self, env: int, slot: int) -> None:
        """Copies the whole state of machine `env`, below N, into the bank at `slot`, below S."""
        ...

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        """Restores the machines in a mask, byte for byte; the others do not change.

        Args:
            mask: (N,) bool, True = restore.
            slots: (N,) int32, snapshot per machine; read only where the mask is set.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Whole state by name, (N, ...) each: views, valid while the world exists.

        Copies if the machines run in other processes.
        """
        ...

    def close(self) -> None:
        """Releases all resources; may be called twice."""
        ...


MAX_KEYS: Final = 1_000_000
_COMMENT: Final = re.compile(r"#.*")
_WORD: Final = re.compile(r"([A-Za-z]+)(?:\*([0-9]{1,9}))?")
_NAMES: Final = ", ".join(button.name for button in Button)


def parse_keys(text: str, where: str = "keys") -> tuple[Button, ...]:
    """Buttons, one per step, from text such as `RIGHT*3 DOWN, A*2`; may be empty.

    The buttons are separated by spaces, commas or newlines. Case is ignored, and `#` starts a
    comment. `where` names the text in errors.
    """
    buttons: list[Button] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in _COMMENT.sub("", line).replace(",", " ").split():
            button, count = _parse_word(word, f"{where}, line {number}")
            if len(buttons) + count > MAX_KEYS:
                raise UsageError(f"{where}: expected at most {MAX_KEYS} steps, got more: {word}")
            buttons += [button] * count
    return tuple(buttons)


def format_keys(buttons: Iterable[Button]) -> str:
    """Buttons as text for `parse_keys`."""
    runs = ((button.name, len(list(run))) for button, run in groupby(buttons))
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in runs)


def _parse_word(word: str, where: str) -> tuple[Button, int]:
    found = _WORD.fullmatch(word)
    name = found[1].upper() if found else ""
    if not found or name not in Button.__members__:
        raise UsageError(f"{where}: {shown(word)} is not a button: write {_NAMES}, or RIGHT*3")
    count = int(found[2] or 1)
    if count < 1:
        raise UsageError(f"{where}: {word}: expected at least one step")
    return Button[name], count
