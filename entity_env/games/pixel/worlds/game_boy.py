"""PyBoyWorld: real Game Boys, emulated on the CPU by PyBoy in processes of their own."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entity_env.core.validation import checked_index
from entity_env.errors import ClosedError, MissingExtraError, SchemaError, UsageError
from entity_env.games.pixel.checks import require_count, require_tensor
from entity_env.games.pixel.worlds.game_boy_process import GameBoyProcess
from entity_env.games.pixel.worlds.world import Button

SCREEN: Final = (144, 160)
"""Rows and columns of a Game Boy's screen."""
MAX_ROM: Final = 8 * 1024 * 1024
"""Bytes of the largest cartridge."""


class PyBoyWorld:
    """Runs one cartridge on many Game Boys: a `World` on the CPU.

    The cartridge is the user's own; none comes with this package. What it would save when switched
    off is saved nowhere. The same buttons from the same state lead to the same screens, except for
    a cartridge with a clock.

    Args:
        rom: the cartridge, as in a `.gb` file.
        num_envs: how many machines.
        start: a state of this cartridge as PyBoy's `save_state` writes it; None to switch on. It
            does not say which cartridge it is of: one of another size is refused, but another
            cartridge of the same size goes on with what it finds.
        boot_frames: frames to run before the first step, with no button held.
        frames: frames of a step, 60 of them a second; only the last one is drawn.
        hold_frames: frames of them that the button is held, from the first one. Games that ask
            whether a button went down need fewer of them than `frames`.
        shrink: 1 for the whole screen, 144 x 160; 2 for every other row and column, 72 x 80.
        num_slots: snapshots in the bank, at first all of the start.
        num_workers: processes; None for one a processor, at most one a machine.
        timeout: seconds that the machines of one process may take for a step.

    Raises:
        MissingExtraError: PyBoy is not installed.
        UsageError: a number out of range, or PyBoy cannot run this cartridge or read that state.
        SchemaError: an empty cartridge, or one larger than any; a state that is no bytes.
        WorkerError: a process died or gave no answer.
    """

    def __init__(
        self,
        rom: bytes,
        num_envs: int,
        *,
        start: bytes | None = None,
        boot_frames: int = 0,
        frames: int = 24,
        hold_frames: int = 8,
        shrink: int = 2,
        num_slots: int = 1,
        num_workers: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        _check_rom(rom)
        self._num_envs = require_count("num_envs", num_envs)
        self._num_slots = require_count("num_slots", num_slots)
        check_step(frames, hold_frames, shrink)
        if boot_frames != 0:
            require_count("boot_frames", boot_frames)
        _check_start(start)
        _check_timeout(timeout)
        settings = {
            "boot_frames": boot_frames,
            "frames": frames,
            "hold_frames": hold_frames,
            "shrink": shrink,
        }
        workers = os.cpu_count() or 1 if num_workers is None else num_workers
        workers = min(require_count("num_workers", workers), num_envs)
        if importlib.util.find_spec("pyboy") is None:
            raise MissingExtraError("pyboy", "pyboy", "PyBoyWorld")
        self._height, self._width = (-(-side // shrink) for side in SCREEN)
        # Where each process' machines begin, and the end.
        self._bounds = [0, *accumulate(_shares(num_envs, workers))]
        self._closed = False
        self._processes: list[GameBoyProcess] = []
        try:
            for worker, machines in enumerate(np.diff(self._bounds).tolist()):
                shared = {**settings, "machines": machines}
                process = GameBoyProcess(worker, shared, rom, start or b"", timeout)
                self._processes.append(process)
            for process in self._processes:
                process.started()
            begun = self._saved(0)
            for slot in range(num_slots):
                self._keep(slot, begun)
        except BaseException:
            self.close()
            raise

    @property
    def num_envs(self) -> int:
        return self._num_envs

    @property
    def height(self) -> int:
        return self._height

    @property
    def width(self) -> int:
        return self._width

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def step(self, actions: Tensor) -> None:
        """Run every machine for one step, the processes side by side.

        Raises:
            SchemaError: actions are no (N,) int32 on the CPU.
            WorkerError: a process died or gave no answer; the world is closed then.
            ClosedError: after `close`.
        """
        require_tensor("actions", actions, (self._num_envs,), torch.int32, self.device)
        buttons = actions.clamp(0, len(Button) - 1).to(torch.uint8).numpy()
        self._ask_all(b"S", [part.tobytes() for part in self._parts(buttons)])

    def render(self, pixels: Tensor) -> None:
        """Write what every screen showed at the end of the last step.

        Raises:
            SchemaError: pixels is no (N, H, W) uint8 on the CPU.
            WorkerError: a process died or gave no answer.
            ClosedError: after `close`.
        """
        shape = (self._num_envs, self._height, self._width)
        require_tensor("pixels", pixels, shape, torch.uint8, self.device)
        replies = self._ask_all(b"P", [b""] * len(self._processes))
        flat = np.frombuffer(b"".join(replies), np.uint8)
        pixels.copy_(torch.from_numpy(flat.reshape(shape).copy()))

    def snapshot(self, env: int, slot: int) -> None:
        """Copy the whole state of one machine into the bank, which every process has.

        Raises:
            UsageError: there is no such machine or slot.
            ClosedError: after `close`.
        """
        checked_index("env", env, self._num_envs)
        checked_index("slot", slot, self._num_slots)
        self._keep(slot, self._saved(env))

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        """Restore the chosen machines, with their screens.

        Raises:
            SchemaError: mask is no (N,) bool or slots no (N,) int32 on the CPU, or a chosen slot is
                none of the bank's.
            ClosedError: after `close`.
        """
        require_tensor("mask", mask, (self._num_envs,), torch.bool, self.device)
        require_tensor("slots", slots, (self._num_envs,), torch.int32, self.device)
        chosen, wanted = mask.numpy(), slots.numpy()
        wrong = chosen & ((wanted < 0) | (wanted >= self._num_slots))
        if wrong.any():
            env = int(wrong.argmax())
            raise SchemaError(
                f"slots: expected 0 to {self._num_slots - 1}, got {wanted[env]} for env {env}"
            )
        pairs = []
        for chosen_part, slots_part in zip(self._parts(chosen), self._parts(wanted), strict=True):
            machines = np.flatnonzero(chosen_part).astype(np.int32)
            pairs.append(np.stack([machines, slots_part[machines]], axis=1).tobytes())
        self._ask_all(b"R", pairs)

    def state(self) -> Mapping[str, Tensor]:
        """Return the whole state as PyBoy saves it: `machine`, (N, bytes) uint8, a copy."""
        states = [self._saved(env) for env in range(self._num_envs)]
        flat = np.frombuffer(b"".join(states), np.uint8).reshape(self._num_envs, -1)
        return {"machine": torch.from_numpy(flat.copy())}

    def save_state(self, env: int) -> bytes:
        """Return the whole state of one machine; PyBoy's `load_state` reads it, and `start` does.

        Raises:
            UsageError: there is no such machine.
        """
        return self._saved(checked_index("env", env, self._num_envs))

    def close(self) -> None:
        """End the processes. Closing twice does nothing."""
        self._closed = True
        for process in self._processes:
            process.close()

    def __enter__(self) -> PyBoyWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        for process in getattr(self, "_processes", ()):
            process.close()

    def _parts(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, self._bounds[1:-1])

    def _ask_all(self, letter: bytes, payloads: Sequence[bytes]) -> list[bytes]:
        if self._closed:
            raise ClosedError("this world is closed")
        try:
            for process, payload in zip(self._processes, payloads, strict=True):
                process.send(letter, payload)
            return [process.receive() for process in self._processes]
        except BaseException:
            self.close()  # the answers that still come belong to no later request
            raise

    def _saved(self, env: int) -> bytes:
        if self._closed:
            raise ClosedError("this world is closed")
        worker = int(np.searchsorted(self._bounds, env, side="right")) - 1
        process = self._processes[worker]
        process.send(b"G", (env - self._bounds[worker]).to_bytes(4, "little"))
        return process.receive()

    def _keep(self, slot: int, state: bytes) -> None:
        payload = slot.to_bytes(4, "little") + state
        self._ask_all(b"B", [payload] * len(self._processes))


def _shares(num_envs: int, workers: int) -> list[int]:
    """Return how many machines each process gets: as many as the others, or one more."""
    share, more = divmod(num_envs, workers)
    return [share + (worker < more) for worker in range(workers)]


def _check_rom(rom: bytes) -> None:
    if not isinstance(rom, bytes):
        raise SchemaError(f"rom: expected bytes, got {type(rom).__name__}")
    if not 0x150 <= len(rom) <= MAX_ROM:
        raise SchemaError(f"rom: expected {0x150} to {MAX_ROM} bytes, got {len(rom)}")


def check_step(frames: int, hold_frames: int, shrink: int) -> None:
    """Check what a step of a Game Boy is made of; see `PyBoyWorld`.

    Raises:
        UsageError: a number out of range.
    """
    require_count("frames", frames)
    if require_count("hold_frames", hold_frames) > frames:
        raise UsageError(f"hold_frames: expected 1 to {frames}, all frames, got {hold_frames}")
    if isinstance(shrink, bool) or shrink not in (1, 2):
        raise UsageError(f"shrink: expected 1 or 2, got {shrink!r}")


def _check_start(start: object) -> None:
    if start is not None and not (isinstance(start, bytes) and start):
        got = "none" if isinstance(start, bytes) else type(start).__name__
        raise SchemaError(f"start: expected bytes as PyBoy saves them, got {got}")


def _check_timeout(timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout: expected seconds above 0, got {timeout!r}")
