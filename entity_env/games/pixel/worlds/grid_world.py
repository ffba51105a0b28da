"""GridWorld: a figure on a grid, in torch; the example of a `World`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.worlds.checks import CheckedWorld
from entity_env.games.pixel.worlds.world import Button

CELL: Final = 8
"""Pixels per side of a cell."""
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
"""The default grid."""

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


class GridWorld(CheckedWorld):
    """`World` in which a button moves a figure by one cell, unless a wall blocks it.

    The state of a machine is the cell of the figure, plus an invisible count of the steps with A, B
    or START. The same buttons give identical bytes on every device.

    Args:
        grid: rows of equal length: `#` is a wall, `.` floor, one `S` the start of the figure, and
            at most one `F` its destination, drawn as floor.
        num_slots: snapshots in the bank, initially all of the start.

    Raises:
        SchemaError: an invalid grid.
        UsageError: a number below 1, or an unknown device.
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
        super().__init__(num_envs, num_slots)
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

    def grid_cell(self, mark: str) -> int:
        """Index of the cell with a mark, `S` or `F`, row by row; UsageError if missing."""
        cell = "".join(self.grid).find(mark)
        if cell < 0 or len(mark) != 1:
            raise UsageError(f"the grid has no cell {mark!r}: {list(self.grid)}")
        return cell

    def goal_frame(self) -> Tensor:
        """Screen with the figure on `F`, (H, W) uint8, a copy on `device`."""
        return self._pictures[self.grid_cell(FINISH)].clone()

    def state(self) -> Mapping[str, Tensor]:
        """`cell` and `presses`, (N,) int32 each; see `World.state`."""
        return dict(self._state)

    def _step(self, actions: Tensor) -> None:
        buttons = actions.clamp(0, _NUM_BUTTONS - 1)
        cell, presses = self._state["cell"], self._state["presses"]
        presses.add_(buttons <= Button.START.value)
        cell.copy_(self._targets.index_select(0, cell * _NUM_BUTTONS + buttons))

    def _render(self, pixels: Tensor) -> None:
        pixels.copy_(self._pictures.index_select(0, self._state["cell"]))

    def _snapshot(self, env: int, slot: int) -> None:
        for name, bank in self._bank.items():
            bank[slot].copy_(self._state[name][env])

    def _reset(self, mask: Tensor, slots: Tensor) -> None:
        chosen = slots.clamp(0, self.num_slots - 1)
        for name, state in self._state.items():
            state.copy_(torch.where(mask, self._bank[name].index_select(0, chosen), state))


def _usable(device: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, TypeError, AssertionError) as error:  # AssertionError: torch without CUDA
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device: torch cannot use {str(device)!r}: {reason}") from error


def _pictures(grid: Sequence[str]) -> Tensor:
    """Screens by cell of the figure, (cells, H, W) uint8."""
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
    """Cell reached by each button from each cell, (cells * buttons,) int32."""
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
