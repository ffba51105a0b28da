"""`Program`: the process of a game in another language, and the connection to it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from entity_env.core.validation import require_choice
from entity_env.errors import ClosedError, UsageError, WorkerError
from entity_env.processes import kill_group, start_group
from entity_env.vec.external.messages import (
    HEADER,
    MAGIC,
    MAX_BYTES,
    VERSION,
    HelloMessage,
    Kind,
    Place,
    ReadyMessage,
    hello_of,
    json_payload,
    read_json,
    ready_of,
    size_of,
    text_of_error,
)

_LOGGER: Final = logging.getLogger("entity_env.vec.external")
Read = TypeVar("Read")
Link: TypeAlias = Literal["unix", "tcp", "stdio"]
"""How the program is connected: a Unix socket, a TCP connection to this machine, or its standard
input and output."""

START_TIMEOUT_S: Final = 60.0
WAIT_TIMEOUT_S: Final = 600.0
"""Seconds that a program which somebody else starts may take to connect."""
STEP_TIMEOUT_S: Final = 300.0
"""Seconds until an answer counts as missing, if the caller sets no limit."""
_EXIT_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
_QUIET_S: Final = 1.0
_PAUSE_S: Final = 0.005
_SOCKET_BYTES: Final = 2**20
_FIRST_BYTES: Final = 2**16
"""Initial size of the memory for payloads."""


class Program:
    """A running program that plays copies of a game; started by the constructor.

    Payloads are received into two alternating buffers: a payload is valid until the second next
    one arrives.

    Args:
        command: the program and its arguments; empty = somebody else starts it.
        folder: its working folder; None = the current one.
        link: how it is connected.
        address: where to wait for a program that somebody else starts, see `Address`.
        quiet: True = discards what it prints to standard error.

    Raises:
        UsageError: the program cannot be started, or the address cannot be used.
        MessageError: it says something else than the protocol allows.
        WorkerError: it exits, or does not answer within the time limit.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        link: Link = "unix",
        timeout_s: float = START_TIMEOUT_S,
        *,
        address: str = "",
        quiet: bool = False,
    ) -> None:
        self.name = shlex.join(command) or f"the program at {address}"
        self.num_received = 0
        self.is_closed = False
        self._last_kind = Kind.HELLO.name
        self._buffers = [bytearray(_FIRST_BYTES), bytearray(_FIRST_BYTES)]
        token = "" if address or link != "tcp" else secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        if address:
            self._socket = _awaited(Address.of(address))
        deadline = monotonic() + timeout_s
        if not address:
            self._process, self._socket = _started(
                command, folder, link, token, deadline, quiet=quiet
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self._socket, 0.0)
        try:
            self._configure()
            payload = self._receive((Kind.HELLO, Kind.ERROR), deadline)
            self.hello: HelloMessage = hello_of(read_json(payload, self.place), token, self.place)
        except BaseException:
            self.kill()
            raise

    def start(
        self,
        num_envs: int,
        settings: dict[str, object],
        *,
        first_env: int = 0,
        hold: bool = False,
        timeout_s: float = START_TIMEOUT_S,
    ) -> ReadyMessage:
        """Sends `START` and reads `READY`; errors as for the constructor."""
        start = {
            "protocol": VERSION,
            "num_envs": num_envs,
            "first_env": first_env,
            "hold": hold,
            "settings": settings,
        }
        payload = self.request(Kind.START, [json_payload(start)], timeout_s)
        ready = self.read(payload, lambda data, place: ready_of(read_json(data, place), place))
        obs_space, action_space = ready.spaces
        num_lines = 1 + len(ready.metrics) + len(obs_space.entities) + len(action_space)
        if 8 * num_lines * num_envs * ready.num_agents > MAX_BYTES:
            self.refuse(f"with {num_envs} copies, each STEP would have more than {MAX_BYTES} bytes")
        return ready

    def request(
        self, kind: Kind, parts: Sequence[bytes | memoryview], timeout_s: float | None = None
    ) -> memoryview:
        """Sends a message and returns the payload of the answer.

        Ends the program after an interrupt or an error, because the next answer could then belong
        to this request.

        Raises:
            MessageError: the answer violates the protocol.
            WorkerError: the program reports an error, exits, or does not answer in time.
        """
        if self.is_closed:
            raise ClosedError(f"{self.name} has been closed")
        limit_s = STEP_TIMEOUT_S if timeout_s is None else timeout_s
        deadline = monotonic() + limit_s
        due = Kind.READY if kind is Kind.START else Kind.STEP
        try:
            self._send(kind, parts, deadline)
            return self._receive((due, Kind.ERROR), deadline)
        except BaseException:
            self.kill()
            raise

    def read(self, payload: memoryview, reader: Callable[[memoryview, Place], Read]) -> Read:
        """The last answer, read by a function; ends the program if that raises."""
        try:
            return reader(payload, self.place)
        except BaseException:
            self.kill()
            raise

    def refuse(self, problem: str) -> NoReturn:
        """Ends the program and raises `MessageError` about the last answer."""
        self.kill()
        self.place.refuse(problem)

    @property
    def place(self) -> Place:
        """The last message, for errors."""
        return Place(self.num_received, self._last_kind)

    def last_words(
        self,
        sent: Sequence[bytes],
        timeout_s: float,
        *,
        ends: bool,
        is_enough: Callable[[bytes], bool],
    ) -> tuple[bytes, int | None]:
        """Sends bytes that need not be messages, and waits until the program exits; ends it.

        Args:
            sent: pieces, sent with pauses of 5 ms.
            ends: end the connection after them.
            is_enough: True for received bytes after which nothing else matters.

        Returns:
            The first bytes that it has sent, and its exit code, or None if it still runs.
        """
        self.is_closed = True
        deadline, received = monotonic() + timeout_s, b""
        try:
            buffer = memoryview(bytearray(_FIRST_BYTES))
            with contextlib.suppress(OSError):
                for piece in sent:
                    self._send_all(piece, deadline)
                    sleep(_PAUSE_S)
                if ends:
                    self._socket.shutdown(socket.SHUT_WR)
                while (count := self._receive_into(buffer, deadline)) and monotonic() < deadline:
                    received = (received + buffer[:count])[:_FIRST_BYTES]
                    if is_enough(received):
                        return received, None
            if self._process is None:  # the end of its connection is all that is known
                return received, 0 if monotonic() < deadline else None
            with contextlib.suppress(subprocess.TimeoutExpired):
                return received, self._process.wait(max(deadline - monotonic(), 0.0))
            return received, None
        finally:
            self.kill()

    def close(self) -> None:
        """Asks the program to exit, and ends it if it does not; may be called twice."""
        if self.is_closed:
            return
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._send_all(HEADER.pack(MAGIC, Kind.CLOSE, 0), monotonic() + _EXIT_TIMEOUT_S)
        self._finalizer.detach()
        _end(self._process, self._socket, _EXIT_TIMEOUT_S)

    def kill(self) -> None:
        """Ends the program at once; may be called twice."""
        self.is_closed = True
        self._finalizer()

    def _configure(self) -> None:
        self._socket.setblocking(True)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        if self._socket.family == socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Limits one call, after which `_has_exited` looks at the process. Not `settimeout` where it
        # can be avoided, because that takes a second system call.
        if sys.platform == "win32":
            self._socket.settimeout(_POLL_S)
        else:
            limit = struct.pack("@ll", 0, int(_POLL_S * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def _send(self, kind: Kind, parts: Sequence[bytes | memoryview], deadline: float) -> None:
        size = sum(map(len, parts))
        try:
            self._send_all(b"".join((HEADER.pack(MAGIC, kind, size), *parts)), deadline)
        except TimeoutError:
            self._fail_hanging()
        except OSError:
            self._fail_exited()

    def _send_all(self, data: bytes, deadline: float) -> None:
        """Sends bytes; TimeoutError after the deadline, another OSError if the program is gone."""
        view = memoryview(data)
        while view:
            is_full = False
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, TimeoutError):
                is_full = True
            if is_full and self._has_exited():
                raise BrokenPipeError
            if view and monotonic() > deadline:
                raise TimeoutError

    def _receive(self, due: Sequence[Kind], deadline: float) -> memoryview:
        self._last_kind = due[0].name
        self.num_received += 1
        buffers = self._buffers
        buffers.reverse()
        buffer = memoryview(buffers[0])
        done = self._fill(buffer, 0, HEADER.size, deadline)
        kind, size = size_of(bytes(buffer[: HEADER.size]), due, self.num_received)
        self._last_kind = kind.name
        whole = HEADER.size + size
        if done < whole:
            if len(buffer) < whole:
                buffers[0] = bytearray(whole + whole // 2)
                memoryview(buffers[0])[:done] = buffer[:done]
                buffer = memoryview(buffers[0])
            done = self._fill(buffer[:whole], done, whole, deadline)
        if done > whole:
            self.place.refuse(f"{done - whole} more bytes arrived than its header announces")
        payload = buffer[HEADER.size : whole]
        if kind is Kind.ERROR:
            message, trace = text_of_error(read_json(payload, self.place))
            raise WorkerError(f"{self.name}: {message}", game_traceback=trace)
        return payload

    def _fill(self, buffer: memoryview, done: int, wanted: int, deadline: float) -> int:
        """Receives bytes into a buffer until it has the wanted number; returns how many it has."""
        while done < wanted:
            try:
                count = self._receive_into(buffer[done:], deadline)
            except TimeoutError:
                self._fail_hanging()
            if not count:
                self._fail_exited()
            done += count
            if done < wanted and monotonic() > deadline:
                self._fail_hanging()
        return done

    def _receive_into(self, buffer: memoryview, deadline: float) -> int:
        """Receives some bytes, 0 if the program is gone; TimeoutError after the deadline.

        A child process of the program may keep the connection open, so the process is also watched.
        """
        has_exited = False
        while True:
            try:
                return self._socket.recv_into(buffer)
            except (BlockingIOError, TimeoutError):
                if has_exited:  # before the last attempt
                    return 0
                has_exited = self._has_exited()
                if not has_exited and monotonic() > deadline:
                    raise TimeoutError from None
            except OSError:
                return 0

    def _has_exited(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _fail_hanging(self) -> None:
        raise WorkerError(
            f"{self.name} did not send message {self.num_received} ({self._last_kind}) in time"
        )

    def _fail_exited(self) -> None:
        reason = "closed the connection"
        where = ""
        if self._process is not None:
            where = "; if it printed an error, that is above"
            with contextlib.suppress(subprocess.TimeoutExpired):
                reason = reason_of_exit(self._process.wait(_EXIT_TIMEOUT_S))
        raise WorkerError(
            f"{self.name} {reason} before message {self.num_received} ({self._last_kind}) was "
            f"complete{where}"
        )


def reason_of_exit(code: int) -> str:
    """How a program ended, from its exit code: "exited with code 1"."""
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _started(
    command: Sequence[str],
    folder: Path | None,
    link: Link,
    token: str,
    deadline: float,
    *,
    quiet: bool,
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a program and connects it."""
    require_choice("link", link, ("unix", "tcp", "stdio"))
    popen = partial(_popen, command, folder, token, quiet=quiet)
    if link == "tcp":
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"tcp:127.0.0.1:{server.getsockname()[1]}"
            process = popen(address)
            return process, _accepted(server, process, shlex.join(command), deadline)
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise UsageError(f"this system has no Unix sockets: use link='tcp' instead of {link!r}")
    if link == "stdio":
        ours, theirs = socket.socketpair()
        with theirs:
            process = popen("stdio", theirs)
        return process, ours
    with (
        tempfile.TemporaryDirectory(prefix="entity_env-") as private,
        socket.socket(family, socket.SOCK_STREAM) as server,
    ):
        path = str(Path(private, "s"))
        server.bind(path)
        server.listen(1)
        process = popen(f"unix:{path}")
        return process, _accepted(server, process, shlex.join(command), deadline)


def _popen(
    command: Sequence[str],
    folder: Path | None,
    token: str,
    address: str,
    stdio: socket.socket | None = None,
    *,
    quiet: bool,
) -> subprocess.Popen[bytes]:
    program = command[0]
    if folder is not None and not Path(program).is_absolute() and Path(folder, program).is_file():
        program = str(Path(folder, program).resolve())
    if shutil.which(program) is None:
        raise UsageError(f"cannot start {program!r}: {_why_not(Path(folder or '.', program))}")
    try:
        return start_group(
            [program, *command[1:]],
            cwd=folder,
            env={**os.environ, "ENTITY_ENV_ADDRESS": address, "ENTITY_ENV_TOKEN": token},
            stdin=subprocess.DEVNULL if stdio is None else stdio.fileno(),
            stdout=None if stdio is None else stdio.fileno(),
            stderr=subprocess.DEVNULL if quiet else None,
        )
    except OSError as error:
        raise UsageError(f"cannot start {program!r}: {error}") from error


def _why_not(file: Path) -> str:
    """Why this is not a program, and what to do."""
    if not file.is_file():
        return "no such program; install it or correct the command"
    if os.access(file, os.X_OK):
        return f"it is not on the PATH; write ./{file}"
    return "it is not executable; name its interpreter first, or the program compiled from it"


def _accepted(
    server: socket.socket, process: subprocess.Popen[bytes], name: str, deadline: float
) -> socket.socket:
    """The connection of a program that was just started."""
    server.settimeout(_POLL_S)
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                return server.accept()[0]
            code = process.poll()
            if code is not None or monotonic() > deadline:
                what = "did not connect in time"
                if code is not None:
                    what = f"{reason_of_exit(code)} before it connected"
                raise WorkerError(
                    f"{name} {what}: its last line must serve the game, such as serve(game) in "
                    "JavaScript, at ENTITY_ENV_ADDRESS; if it printed an error, that is above"
                )
    except BaseException:
        _end(process, None, 0.0)
        raise


class Address(NamedTuple):
    """Where a program connects: `unix:PATH` or `tcp:127.0.0.1:PORT`."""

    text: str
    path: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Raises `UsageError` for other texts."""
        kind, _, place = text.partition(":")
        if kind == "unix" and place and hasattr(socket, "AF_UNIX"):
            return cls(text, place, 0)
        host, _, port = place.rpartition(":")
        if kind == "tcp" and host == "127.0.0.1" and port.isdecimal() and 0 < int(port) < 65536:
            return cls(text, "", int(port))
        raise UsageError(
            f"the address of a program is unix:PATH or tcp:127.0.0.1:PORT, got {text!r}"
        )

    def listening(self) -> socket.socket:
        """A socket that listens; only this user can connect to a path."""
        if self.path:
            server = socket.socket(getattr(socket, "AF_UNIX"))  # noqa: B009 - missing on Windows
        else:
            server = socket.socket(socket.AF_INET)
        try:
            if self.path:
                server.bind(self.path)
                Path(self.path).chmod(0o600)
            else:
                if sys.platform != "win32":  # where it would let others take the port
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", self.port))
            server.listen(1)
        except BaseException:
            server.close()
            raise
        return server


def _awaited(address: Address) -> socket.socket:
    """The connection of a program that somebody else starts.

    Waits until other processes, which wait for their own programs, have released the address.
    """
    begin, is_told = monotonic(), False
    while (waited_s := monotonic() - begin) < WAIT_TIMEOUT_S:
        if waited_s > _QUIET_S and not is_told:
            is_told = True
            _LOGGER.warning("waiting for a program with ENTITY_ENV_ADDRESS=%s", address.text)
        try:
            server = address.listening()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or waited_s > START_TIMEOUT_S:
                raise UsageError(
                    f"cannot wait for a program at {address.text}: {error.strerror}"
                ) from error
            sleep(_POLL_S)
            continue
        with server:
            try:
                server.settimeout(_QUIET_S)
                with contextlib.suppress(TimeoutError):
                    return server.accept()[0]
            finally:
                if address.path:
                    Path(address.path).unlink()
    raise WorkerError(f"no program connected to {address.text} within {WAIT_TIMEOUT_S:g} s")


def _end(
    process: subprocess.Popen[bytes] | None, connection: socket.socket | None, timeout_s: float
) -> None:
    """Ends a program and its group: it has `timeout_s` to exit by itself."""
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
    if process is None:
        if connection is not None:
            connection.close()
        return
    try:
        if timeout_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
    finally:
        kill_group(process)
        process.wait()
        if connection is not None:
            connection.close()
