"""PyBoyWorld: Game Boys, emulated by PyBoy in worker processes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entity_env.core.validation import checked_index
from entity_env.errors import ClosedError, MissingExtraError, SchemaError, UsageError, WorkerError
from entity_env.games.pixel.worlds import game_boy_worker
from entity_env.games.pixel.worlds.checks import CheckedWorld, require_count
from entity_env.games.pixel.worlds.game_boy_worker import write_message
from entity_env.games.pixel.worlds.world import Button

_GRACE = 2.0  # seconds for a process to exit by itself
_POLL_S: Final = 0.1
"""Interval at which a wait for a reply looks whether the process still runs."""
_PIPE_BYTES: Final = 1 << 15
"""Payloads that every pipe takes at once, even if the process does not read."""


class GameBoyProcess:
    """A process of Game Boys. It handles one request at a time: `send`, then `receive` the reply.

    Args:
        worker: index of the worker, for errors.
        settings, rom, start: as for `game_boy_worker.Machines`.
        timeout: seconds to wait for a reply.
    """

    def __init__(
        self,
        worker: int,
        settings: Mapping[str, int],
        rom: bytes,
        start: bytes,
        timeout: float,
    ) -> None:
        self._worker = worker
        self._timeout = timeout
        self._owner = os.getpid()
        # -P: the folder of that file has modules named like other packages.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(game_boy_worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = json.dumps({**settings, "rom_bytes": len(rom)}).encode()
        self.send(b"I", line + b"\n" + rom + start)

    def wait_until_ready(self) -> None:
        """Waits for the machines; UsageError if PyBoy cannot run them."""
        letter, payload = self._reply()
        if letter == b"!":
            reason = payload.decode().strip().splitlines()[-1]
            raise UsageError(f"PyBoy cannot run this cartridge from this state: {reason}")

    def send(self, letter: bytes, payload: bytes = b"") -> None:
        stream = self._process.stdin
        if stream is None or stream.closed:
            raise ClosedError("this world is closed")
        # A process that hangs does not read, either: a pipe takes only so much.
        is_large = len(payload) > _PIPE_BYTES
        deadline = time.monotonic() + self._timeout
        timer = threading.Timer(self._timeout, self._process.kill) if is_large else None
        try:
            if timer is not None:
                timer.start()
            write_message(stream, letter, payload)
        except BrokenPipeError:
            is_late = is_large and time.monotonic() >= deadline
            raise (self._no_answer() if is_late else self._died()) from None
        finally:
            if timer is not None:
                timer.cancel()

    def receive(self) -> bytes:
        """Receives a reply; WorkerError for a failure, a dead process or a timeout."""
        letter, payload = self._reply()
        if letter == b"!":
            text = payload.decode()
            raise WorkerError("a Game Boy failed", worker=self._worker, game_traceback=text)
        return payload

    def close(self) -> None:
        """Ends the process; no effect if called again, or in a fork of the owner."""
        if os.getpid() != self._owner:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                # Data may still be buffered for a dead process.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _reply(self) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + self._timeout
        head = self._read(5, deadline)
        return head[:1], self._read(int.from_bytes(head[1:], "little"), deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        if self._process.stdout is None or self._process.stdout.closed:
            raise ClosedError("this world is closed")
        descriptor = self._process.stdout.fileno()
        read = bytearray()
        while len(read) < size:
            left = deadline - time.monotonic()
            # Polls: `select` takes no descriptor above 1,023, which many workers use up.
            has_exited = self._process.poll() is not None
            if not wait([descriptor], min(max(left, 0.0), _POLL_S)):
                if has_exited:
                    raise self._died()
                if left <= 0:
                    raise self._no_answer()
                continue
            part = os.read(descriptor, size - len(read))
            if not part:
                raise self._died()
            read += part
        return bytes(read)

    def _no_answer(self) -> WorkerError:
        return WorkerError(f"no answer for {self._timeout:g} s", worker=self._worker)

    def _died(self) -> WorkerError:
        how = "closed its output"
        with contextlib.suppress(subprocess.TimeoutExpired):
            how = f"died with code {self._process.wait(_GRACE)}"
        return WorkerError(f"the process of these Game Boys {how}", worker=self._worker)


SCREEN: Final = (144, 160)
"""Rows and columns."""
MAX_ROM: Final = 8 * 1024 * 1024
"""Maximum bytes of a cartridge."""


class PyBoyWorld(CheckedWorld):
    """`World` of Game Boys with one cartridge, on the CPU, stepped in parallel processes.

    This package contains no cartridges, and battery-backed memory is not saved. A state and a
    sequence of buttons determine the screens, unless the cartridge has a clock. Slots out of range
    raise SchemaError instead of being clamped.

    Args:
        rom: contents of a `.gb` file.
        start: a state of this cartridge, written by PyBoy's `save_state`; None = power-on. PyBoy
            detects another cartridge's state only if its size differs.
        boot_frames: frames to run before the first step, with no button held.
        frames: frames per step, 60 per second; only the last is drawn.
        hold_frames: frames at the start of a step for which the button is held. Games that react
            to new presses need fewer than `frames`.
        shrink: 1 for the whole screen, 144 x 160; 2 for every other row and column, 72 x 80.
        num_slots: snapshots in the bank, initially all of the start.
        num_workers: processes, at most one per machine; None = one per processor.
        timeout: maximum seconds for a process to reply to a request, such as a step.

    Raises:
        MissingExtraError: PyBoy is not installed.
        UsageError: a number out of range, or PyBoy cannot run this cartridge or load that state.
        SchemaError: a cartridge that is not bytes, too small or too large; a state that is not
            bytes.
        WorkerError: a process failed, died or did not reply; raised by all methods except `close`,
            which also close the world.
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
        super().__init__(num_envs, num_slots)
        self.device = torch.device("cpu")
        check_step_settings(frames, hold_frames, shrink)
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
        self.height, self.width = (-(-side // shrink) for side in SCREEN)
        # Index of the first machine of each process, and the end.
        self._bounds = [0, *accumulate(_shares(num_envs, workers))]
        self._processes: list[GameBoyProcess] = []
        try:
            for worker, machines in enumerate(np.diff(self._bounds).tolist()):
                shared = {**settings, "machines": machines}
                process = GameBoyProcess(worker, shared, rom, start or b"", timeout)
                self._processes.append(process)
            for process in self._processes:
                process.wait_until_ready()
            initial = self._saved(0)
            for slot in range(num_slots):
                self._keep(slot, initial)
        except BaseException:
            self.close()
            raise

    def state(self) -> Mapping[str, Tensor]:
        """Whole state as saved by PyBoy: `machine`, (N, bytes) uint8, a copy."""
        states = [self._saved(env) for env in range(self.num_envs)]
        flat = np.frombuffer(b"".join(states), np.uint8).reshape(self.num_envs, -1)
        return {"machine": torch.from_numpy(flat.copy())}

    def save_state(self, env: int) -> bytes:
        """Whole state of one machine, for PyBoy's `load_state` and the argument `start`.

        Raises:
            UsageError: no such machine.
        """
        return self._saved(checked_index("env", env, self.num_envs))

    def close(self) -> None:
        super().close()
        for process in self._processes:
            process.close()

    def __enter__(self) -> PyBoyWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        for process in getattr(self, "_processes", ()):
            process.close()

    def _step(self, actions: Tensor) -> None:
        buttons = actions.clamp(0, len(Button) - 1).to(torch.uint8).numpy()
        self._request_all(b"S", [part.tobytes() for part in self._parts(buttons)])

    def _render(self, pixels: Tensor) -> None:
        replies = self._request_all(b"P", [b""] * len(self._processes))
        flat = np.frombuffer(b"".join(replies), np.uint8)
        pixels.copy_(torch.from_numpy(flat.reshape(pixels.shape).copy()))

    def _snapshot(self, env: int, slot: int) -> None:
        self._keep(slot, self._saved(env))

    def _reset(self, mask: Tensor, slots: Tensor) -> None:
        chosen, wanted = mask.numpy(), slots.numpy()
        wrong = chosen & ((wanted < 0) | (wanted >= self.num_slots))
        if wrong.any():
            env = int(wrong.argmax())
            raise SchemaError(
                f"slots: expected 0 to {self.num_slots - 1}, got {wanted[env]} for env {env}"
            )
        pairs = []
        for chosen_part, slots_part in zip(self._parts(chosen), self._parts(wanted), strict=True):
            machines = np.flatnonzero(chosen_part).astype(np.int32)
            pairs.append(np.stack([machines, slots_part[machines]], axis=1).tobytes())
        self._request_all(b"R", pairs)

    def _parts(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, self._bounds[1:-1])

    def _request_all(self, letter: bytes, payloads: Sequence[bytes]) -> list[bytes]:
        return self._request(self._processes, letter, payloads)

    def _saved(self, env: int) -> bytes:
        self._require_open("state")
        worker = int(np.searchsorted(self._bounds, env, side="right")) - 1
        machine = (env - self._bounds[worker]).to_bytes(4, "little")
        return self._request([self._processes[worker]], b"G", [machine])[0]

    def _request(
        self, processes: Sequence[GameBoyProcess], letter: bytes, payloads: Sequence[bytes]
    ) -> list[bytes]:
        try:
            for process, payload in zip(processes, payloads, strict=True):
                process.send(letter, payload)
            return [process.receive() for process in processes]
        except BaseException:
            self.close()  # late replies would be mistaken for replies to the next request
            raise

    def _keep(self, slot: int, state: bytes) -> None:
        payload = slot.to_bytes(4, "little") + state
        self._request_all(b"B", [payload] * len(self._processes))


def _shares(num_envs: int, workers: int) -> list[int]:
    share, more = divmod(num_envs, workers)
    return [share + (worker < more) for worker in range(workers)]


def _check_rom(rom: bytes) -> None:
    if not isinstance(rom, bytes):
        raise SchemaError(f"rom: expected bytes, got {type(rom).__name__}")
    if not 0x150 <= len(rom) <= MAX_ROM:
        raise SchemaError(f"rom: expected {0x150} to {MAX_ROM} bytes, got {len(rom)}")


def check_step_settings(frames: int, hold_frames: int, shrink: int) -> None:
    """Checks settings of `PyBoyWorld`."""
    require_count("frames", frames)
    if require_count("hold_frames", hold_frames) > frames:
        raise UsageError(f"hold_frames: expected 1 to frames ({frames}), got {hold_frames}")
    if isinstance(shrink, bool) or shrink not in (1, 2):
        raise UsageError(f"shrink: expected 1 or 2, got {shrink!r}")


def _check_start(start: object) -> None:
    if start is not None and not (isinstance(start, bytes) and start):
        got = "none" if isinstance(start, bytes) else type(start).__name__
        raise SchemaError(f"start: expected bytes as PyBoy saves them, got {got}")


def _check_timeout(timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise UsageError(f"timeout: expected seconds above 0, got {timeout!r}")
