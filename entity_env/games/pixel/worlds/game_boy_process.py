"""The parent's end of one process of Game Boys."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path

from entity_env.errors import ClosedError, UsageError, WorkerError
from entity_env.games.pixel.worlds import game_boy_worker
from entity_env.games.pixel.worlds.game_boy_worker import write_message

_GRACE = 2.0  # seconds that a process has to end by itself


class GameBoyProcess:
    """A process that does one request at a time; `send` begins one, `receive` ends it.

    Args:
        worker: its number, for errors.
        settings, rom, start: as in `Machines`.
        timeout: seconds that an answer may take.
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
        # -P: the folder of that file has modules with names that other packages use too.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(game_boy_worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        line = json.dumps({**settings, "rom_bytes": len(rom)}).encode()
        self.send(b"I", line + b"\n" + rom + start)

    def started(self) -> None:
        """Wait until the machines stand ready.

        Raises:
            UsageError: the cartridge cannot be run, or not from that state.
            WorkerError: the process has died or says nothing.
        """
        letter, payload = self._reply()
        if letter == b"!":
            reason = payload.decode().strip().splitlines()[-1]
            raise UsageError(f"PyBoy cannot run this cartridge from this state: {reason}")

    def send(self, letter: bytes, payload: bytes = b"") -> None:
        """Begin a request.

        Raises:
            ClosedError: after `close`.
            WorkerError: the process has died.
        """
        stream = self._process.stdin
        if stream is None or stream.closed:
            raise ClosedError("this world is closed")
        try:
            write_message(stream, letter, payload)
        except BrokenPipeError:
            raise self._died() from None

    def receive(self) -> bytes:
        """Return what the request asked for.

        Raises:
            WorkerError: the process has died, says nothing, or could not do the request.
        """
        letter, payload = self._reply()
        if letter == b"!":
            text = payload.decode()
            raise WorkerError("a Game Boy failed", worker=self._worker, game_traceback=text)
        return payload

    def close(self) -> None:
        """End the process. Closing twice does nothing, nor does it in a fork of the owner."""
        if os.getpid() != self._owner:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                # After a death something may still wait to be written: it is for nobody.
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
            # It polls: select takes no descriptor above 1,023, which many workers use up.
            if left <= 0 or not wait([descriptor], left):
                raise WorkerError(f"no answer for {self._timeout:g} s", worker=self._worker)
            part = os.read(descriptor, size - len(read))
            if not part:
                raise self._died()
            read += part
        return bytes(read)

    def _died(self) -> WorkerError:
        return WorkerError(
            f"the process of these Game Boys died with code {self._process.wait()}",
            worker=self._worker,
        )
