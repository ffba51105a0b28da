"""SharedBlock: memory that several processes share.

The memory comes from the first of these that the system supports:

- `memfd_create` (Linux): leaves no name behind, and is not limited by /dev/shm.
- `SharedMemory` (macOS, other POSIX): its name is removed at once. Except on macOS, its pages are
  reserved: otherwise, if /dev/shm is too small, a write would kill the process with SIGBUS.
- a named mapping (Windows): freed with the last process that has it open.

On POSIX a block is only a file descriptor, so a killed process leaves nothing behind.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import sys
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import wait
from multiprocessing.context import get_spawning_popen
from multiprocessing.shared_memory import SharedMemory
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import ClosedError, ProtocolError, WorkerError

Scalar = TypeVar("Scalar", bound=np.generic)
_Handle: TypeAlias = int | str
"""A file descriptor, or on Windows the name of a mapping."""


class _DupFd(Protocol):
    """Transfers a file descriptor to a starting process."""

    def detach(self) -> int:
        """The descriptor, in the other process."""


_MESSAGE: Final = struct.Struct("<qq64s")
"""Number, size and, on Windows, name of a block. Negative size: that many bytes of data follow."""
_NO_HANDLE: Final = -1
"""Handle of private memory."""
_RECEIVE_TIMEOUT_S: Final = 5.0
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SHM_FOLDER: Final = "/dev/shm"


class SharedBlock:
    """Memory shared with the processes that the block is sent to; initially zero.

    A block reaches another process as an argument of a `multiprocessing.Process` that is started
    with spawn or forkserver, or later by `send` and `receive`. Each process closes its copy; the
    memory is freed with the last copy. Views stay valid after `close`: they keep the memory mapped
    in their process.
    """

    def __init__(self, handle: _Handle, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._handle = handle
        # No other reference may exist: the memory is unmapped with its last view.
        self._memory: mmap.mmap | None = None
        is_file = isinstance(handle, int) and handle != _NO_HANDLE
        release: Callable[..., object] = os.close if is_file else _do_nothing
        self._release = weakref.finalize(self, release, handle)
        try:
            self._memory = _map(handle, num_bytes)
        except OSError as error:
            self._release()
            raise machine_error(f"map {_mebibytes(num_bytes)} of shared memory", error) from error

    @classmethod
    def create(cls, num_bytes: int) -> SharedBlock:
        if num_bytes <= 0:
            raise ValueError(f"num_bytes must be positive, got {num_bytes}")
        try:
            handle = _new_handle(num_bytes)
        except OSError as error:
            raise machine_error(f"get {_mebibytes(num_bytes)} of shared memory", error) from error
        return cls(handle, num_bytes)

    @property
    def is_closed(self) -> bool:
        return self._memory is None

    @property
    def buffer(self) -> memoryview:
        """The whole memory as writable bytes."""
        return memoryview(self._mapped())

    def array(self, offset: int, count: int, dtype: type[Scalar]) -> NDArray[Scalar]:
        """Writable array `(count,)`, a view of the memory."""
        memory = self._mapped()
        size = np.dtype(dtype).itemsize
        end = offset + count * size
        if offset < 0 or count < 0 or end > self.num_bytes or offset % size:
            raise ValueError(
                f"{count} elements of {size} bytes from byte {offset} on must lie within "
                f"{self.num_bytes} bytes, and begin at a multiple of {size}"
            )
        return np.frombuffer(memory, dtype, count, offset)

    def send(self, end: socket.socket, number: int = 0) -> None:
        """Sends the block to the process at the other end of a socket, which calls `receive`.

        Keep the block open until it is received. One system call sends it: after an exception it is
        sent completely or not at all.
        """
        self._mapped()
        if sys.platform != "win32" and isinstance(self._handle, int):
            socket.send_fds(end, [_MESSAGE.pack(number, self.num_bytes, b"")], [self._handle])
        else:
            end.sendall(_MESSAGE.pack(number, self.num_bytes, str(self._handle).encode()))

    @classmethod
    def receive(
        cls, end: socket.socket, number: int = 0, timeout_s: float | None = _RECEIVE_TIMEOUT_S
    ) -> SharedBlock:
        """Waits for a block from the other end.

        Closes blocks with a smaller number, which belong to interrupted commands. Raises
        `TimeoutError` if none comes in time, `EOFError` if the other end is closed.
        """
        while True:
            if not wait([end], timeout_s):
                raise TimeoutError("no shared memory was sent")
            found, num_bytes, handle = _received(end)
            block = cls(handle, abs(num_bytes))
            if num_bytes < 0:
                block.buffer[:] = _exactly(end, -num_bytes)
            if found >= number:
                return block
            block.close()

    @staticmethod
    def send_copy(data: bytes, end: socket.socket, number: int) -> None:
        """Sends data through the socket, without shared memory, to a process that calls `receive`.

        For short messages when no memory is left; an exception may leave them half sent.
        """
        end.sendall(_MESSAGE.pack(number, -len(data), b"") + data)

    def close(self) -> None:
        """Releases the memory in this process; may be called twice."""
        self._memory = None
        self._release()

    def __reduce__(self) -> tuple[Callable[..., SharedBlock], tuple[object, int]]:
        self._mapped()
        if get_spawning_popen() is None:
            raise ProtocolError(
                "a SharedBlock can be pickled only as an argument of a process that is being "
                "started; hand it to a running one with send() and receive()"
            )
        carrier: object = self._handle
        if sys.platform != "win32" and isinstance(self._handle, int):
            carrier = reduction.DupFd(self._handle)
        return _attach, (carrier, self.num_bytes)

    def _mapped(self) -> mmap.mmap:
        if self._memory is None:
            raise ClosedError("the shared memory is closed")
        return self._memory


def _received(end: socket.socket) -> tuple[int, int, _Handle]:
    """Number, size and handle of the next block in a socket."""
    if hasattr(socket, "recv_fds"):
        message, descriptors, _, _ = socket.recv_fds(end, _MESSAGE.size, 1, _CLOSE_ON_EXEC)
    else:
        message, descriptors = end.recv(_MESSAGE.size, socket.MSG_WAITALL), [_NO_HANDLE]
    if not message:
        raise EOFError
    number, num_bytes, name = _MESSAGE.unpack(message)
    if num_bytes < 0:
        return number, num_bytes, _NO_HANDLE
    if name := name.rstrip(b"\0"):
        return number, num_bytes, name.decode()
    if not descriptors:  # sent, but this process has no descriptor left
        full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise machine_error("receive shared memory", full)
    return number, num_bytes, descriptors[0]


def _exactly(end: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        more = end.recv(num_bytes - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def machine_error(what: str, error: OSError) -> WorkerError:
    """Error for a limit of the machine, with a remedy if one is known."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        reason = f"{reason}: {error.filename}"
    return WorkerError(f"cannot {what}: {reason}{_remedy(error.errno)}")


def _remedy(number: int | None) -> str:
    if number in (errno.EMFILE, errno.ENFILE):
        return f"; {_file_limit()}: raise the limit with `ulimit -n`, or use fewer workers"
    if number == errno.ENOENT:
        return "; the current folder and that for temporary files (TMPDIR) must exist"
    if number == errno.ENOMEM:
        return "; use fewer environments"
    if sys.platform != "win32" and number == errno.ENOSPC and os.path.isdir(_SHM_FOLDER):
        stat = os.statvfs(_SHM_FOLDER)
        free, total = (n * stat.f_frsize for n in (stat.f_bavail, stat.f_blocks))
        return (
            f"; {_SHM_FOLDER} has {_mebibytes(free)} free of {_mebibytes(total)}: make it larger "
            "(`docker run --shm-size=2g`, `mount -o remount,size=2g /dev/shm`), or use fewer "
            "environments"
        )
    return ""


def _file_limit() -> str:
    if sys.platform == "win32":
        return "there are too many open files"
    else:
        import resource

        return f"this process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files open"


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"


def _attach(carrier: str | _DupFd, num_bytes: int) -> SharedBlock:
    return SharedBlock(carrier if isinstance(carrier, str) else carrier.detach(), num_bytes)


def _do_nothing(_: object) -> None:
    """Release of a name or private memory, which the system does itself."""


def _map(handle: _Handle, num_bytes: int) -> mmap.mmap:
    if isinstance(handle, str):
        return _map_name(handle, num_bytes)
    return mmap.mmap(handle, num_bytes)


def _map_name(name: str, num_bytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, num_bytes, tagname=name)
    else:
        raise NotImplementedError("mappings have names only on Windows")


def _new_memfd(num_bytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        return _new_shm(num_bytes)
    try:
        fd: int = os.memfd_create("entity_env")
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES):  # a sandbox forbids it
            return _new_shm(num_bytes)
        raise
    try:
        os.ftruncate(fd, num_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _new_shm(num_bytes: int) -> int:
    """Segment of shared memory with reserved pages; its name is removed at once.

    If the name were kept, multiprocessing's resource tracker would remove the segment while other
    processes use it, or warn of a leak.
    """
    segment = SharedMemory(create=True, size=num_bytes)
    try:
        fd = os.dup(segment._fd)  # type: ignore[attr-defined]  # no public name
    finally:
        segment.close()
        segment.unlink()
    try:
        if hasattr(os, "posix_fallocate"):  # macOS lacks it, and has no /dev/shm to run out of
            os.posix_fallocate(fd, 0, num_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _new_name(num_bytes: int) -> str:
    """Unique name of a mapping, which Windows creates on first use."""
    return f"entity_env-{os.getpid()}-{os.urandom(8).hex()}"


_new_handle: Callable[[int], _Handle] = _new_name if sys.platform == "win32" else _new_memfd
