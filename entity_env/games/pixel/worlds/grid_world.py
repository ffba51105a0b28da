"""GridWorld: a figure on a grid of cells, in plain torch; the readable example of a `World`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from entity_env.core.validation import checked_index
from entity_env.errors import ClosedError, SchemaError, UsageError
from entity_env.games.pixel.checks import require_count, require_tensor
from entity_env.games.pixel.worlds.world import Button

CELL: Final = 8
"""Pixels along each side of a cell."""
WALL: Final = "#"
FLOOR: Final = "."
START: Final = "S"
FINISH: Final = "F"
GRID: Final = (
    "S..#F",
    ".#...",
    ".#.#.",
    "...#.",
)
"""The grid unless another one is given."""

_FIGURE: Final = (
    "..1111..",
    ".133331.",
    "13133131",
    "13333331",
    "13133131",
    "13311331",
    ".133331.",
    "..1111..",
)
_BRICKS: Final = (
    "22222221",
    "22222221",
    "22222221",
    "11111111",
    "22212222",
    "22212222",
    "22212222",
    "11111111",
)
_MOVES: Final[Mapping[Button, tuple[int, int]]] = {
    Button.UP: (-1, 0),
    Button.DOWN: (1, 0),
    Button.LEFT: (0, -1),
    Button.RIGHT: (0, 1),
}
_NUM_BUTTONS: Final = len(Button)


class GridWorld:
    """Moves a figure by a cell a step, where no wall is in its way: a `World`.

    A machine is two numbers: the cell of the figure, and how often A, B or START were held, which
    cannot be seen. The same buttons lead to the same bytes on every device.

    Args:
        num_envs: how many machines.
        grid: rows of cells, all as long: `#` a wall, `.` floor, one `S` where the figure starts,
            and an `F` where it is to go, or none; that one is floor and cannot be seen.
        num_slots: snapshots in the bank, at first all of the start.
        device: where everything lies.

    Raises:
        SchemaError: a grid that is none.
        UsageError: a number below 1, or no such device.
    """

    def __init__(
        self,
        num_envs: int,
        grid: Sequence[str] = GRID,
        *,
        num_slots: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        _require_grid(grid)
        self.num_envs = require_count("num_envs", num_envs)
        self.num_slots = require_count("num_slots", num_slots)
        self.grid = tuple(grid)
        self.height, self.width = CELL * len(grid), CELL * len(grid[0])
        self.device = _usable(device)
        self._pictures = _pictures(self.grid).to(self.device)
        self._targets = _targets(self.grid).to(self.device)
        start = self.grid_cell(START)
        self._state = {
            name: torch.full((self.num_envs,), value, dtype=torch.int32, device=self.device)
            for name, value in (("cell", start), ("presses", 0))
        }
        self._bank = {
            name: torch.full((self.num_slots,), value, dtype=torch.int32, device=self.device)
            for name, value in (("cell", start), ("presses", 0))
        }
        self._is_closed = False

    def grid_cell(self, mark: str) -> int:
        """Return the index of the cell with a mark, `S` or `F`, counted row after row.

        Raises:
            UsageError: there is none.
        """
        cell = "".join(self.grid).find(mark)
        if cell < 0 or len(mark) != 1:
            raise UsageError(f"the grid has no cell {mark!r}: {list(self.grid)}")
        return cell

    def goal_frame(self) -> Tensor:
        """Return the screen with the figure on `F`, (H, W) uint8, a copy on `device`.

        Raises:
            UsageError: the grid has no `F`.
        """
        return self._pictures[self.grid_cell(FINISH)].clone()

    def step(self, actions: Tensor) -> None:
        """Hold a button for a step; see `World.step`."""
        self._require_open("step")
        require_tensor("actions", actions, (self.num_envs,), torch.int32, self.device)
        buttons = actions.clamp(0, _NUM_BUTTONS - 1)
        cell, presses = self._state["cell"], self._state["presses"]
        presses.add_(buttons <= Button.START.value)
        cell.copy_(self._targets.index_select(0, cell * _NUM_BUTTONS + buttons))

    def render(self, pixels: Tensor) -> None:
        """Draw every screen; see `World.render`."""
        self._require_open("render")
        shape = (self.num_envs, self.height, self.width)
        require_tensor("pixels", pixels, shape, torch.uint8, self.device)
        pixels.copy_(self._pictures.index_select(0, self._state["cell"]))

    def snapshot(self, env: int, slot: int) -> None:
        """Keep a machine; see `World.snapshot`.

        Raises:
            UsageError: no such machine or slot.
        """
        self._require_open("snapshot")
        checked_index("env", env, self.num_envs)
        checked_index("slot", slot, self.num_slots)
        for name, bank in self._bank.items():
            bank[slot].copy_(self._state[name][env])

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        """Restore the chosen machines; see `World.reset`."""
        self._require_open("reset")
        require_tensor("mask", mask, (self.num_envs,), torch.bool, self.device)
        require_tensor("slots", slots, (self.num_envs,), torch.int32, self.device)
        chosen = slots.clamp(0, self.num_slots - 1)
        for name, state in self._state.items():
            state.copy_(torch.where(mask, self._bank[name].index_select(0, chosen), state))

    def state(self) -> Mapping[str, Tensor]:
        """Return `cell` and `presses`, (N,) int32 each; see `World.state`."""
        return dict(self._state)

    def close(self) -> None:
        """Refuse all further steps; there is nothing else to release."""
        self._is_closed = True

    def _require_open(self, method: str) -> None:
        if self._is_closed:
            raise ClosedError(f"GridWorld.{method}: the world is closed")


def _usable(device: torch.device | str) -> torch.device:
    """The device that tensors made there say they are on."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, TypeError, AssertionError) as error:  # the last one: torch without CUDA
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device: torch cannot use {str(device)!r}: {reason}") from error


def _pictures(grid: Sequence[str]) -> Tensor:
    """The screen for every cell that the figure may be on, (cells, H, W) uint8."""
    bricks, figure = _drawn(_BRICKS), _drawn(_FIGURE)
    empty = torch.zeros_like(bricks)
    rows = [torch.cat([bricks if mark == WALL else empty for mark in row], 1) for row in grid]
    num_columns = len(grid[0])
    pictures = torch.cat(rows).repeat(len(grid) * num_columns, 1, 1)
    for cell, picture in enumerate(pictures):
        top, left = (CELL * place for place in divmod(cell, num_columns))
        picture[top : top + CELL, left : left + CELL] = figure
    return pictures


def _drawn(rows: Sequence[str]) -> Tensor:
    shades = [[0 if mark == "." else int(mark) for mark in row] for row in rows]
    return torch.tensor(shades, dtype=torch.uint8)


def _targets(grid: Sequence[str]) -> Tensor:
    """Where each button leads from each cell, (cells * buttons,) int32."""
    targets = []
    for row, marks in enumerate(grid):
        for column in range(len(marks)):
            for button in Button:
                down, right = _MOVES.get(button, (0, 0))
                to = row + down, column + right
                at = to if _is_free(grid, *to) else (row, column)
                targets.append(at[0] * len(marks) + at[1])
    return torch.tensor(targets, dtype=torch.int32)


def _is_free(grid: Sequence[str], row: int, column: int) -> bool:
    return 0 <= row < len(grid) and 0 <= column < len(grid[0]) and grid[row][column] != WALL


def _require_grid(grid: Sequence[str]) -> None:
    marks = "".join(grid)
    is_even = bool(marks) and len({len(row) for row in grid}) == 1
    if not is_even or not set(marks) <= {WALL, FLOOR, START, FINISH}:
        raise SchemaError(
            f"grid: expected rows of equal length of the marks # . S F, got {list(grid)}"
        )
    if marks.count(START) != 1 or marks.count(FINISH) > 1:
        raise SchemaError(
            f"grid: expected one S and at most one F, got {marks.count(START)} and "
            f"{marks.count(FINISH)} in {list(grid)}"
        )
