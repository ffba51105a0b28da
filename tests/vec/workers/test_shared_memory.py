"""Shared memory: visible to all holders, on every system, and freed with the last one."""

import errno
import mmap
import os
import socket
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.errors import ClosedError, ProtocolError, WorkerError
from entity_env.vec.workers import shared_memory as shared_block
from entity_env.vec.workers.shared_memory import SharedBlock
from tests.helpers.children import double_blocks
from tests.helpers.descriptors import files_to_spare, num_files

SHM = Path("/dev/shm")
CONTEXTS = [get_context("spawn"), get_context("forkserver")]
NEW_HANDLES = [shared_block._new_memfd, shared_block._new_shm]
DTYPES: list[type[np.generic]] = [np.uint8, np.int32, np.float32, np.int64, np.bool_]
CHILD_S = 30.0


@pytest.fixture(params=NEW_HANDLES, ids=["memfd", "shm"])
def new_handle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way to create blocks on POSIX."""
    monkeypatch.setattr(shared_block, "_new_handle", request.param)


@pytest.mark.usefixtures("new_handle")
def test_is_zero_and_as_large_as_asked() -> None:
    block = SharedBlock.create(10_001)
    assert block.num_bytes == len(block.buffer) == 10_001
    assert bytes(block.buffer) == bytes(10_001)
    block.close()


@given(st.data())
def test_arrays_and_the_buffer_are_the_same_memory(data: st.DataObject) -> None:
    num_bytes = data.draw(st.integers(1, 300))
    dtype: type[np.generic] = data.draw(st.sampled_from(DTYPES))
    size = np.dtype(dtype).itemsize
    offset = data.draw(st.integers(0, num_bytes // size)) * size
    count = data.draw(st.integers(0, (num_bytes - offset) // size))
    block = SharedBlock.create(num_bytes)
    array = block.array(offset, count, dtype)
    assert array.shape == (count,)
    assert array.dtype == np.dtype(dtype)
    array[:] = 1
    expected = bytearray(num_bytes)
    expected[offset : offset + count * size] = np.ones(count, dtype).tobytes()
    assert bytes(block.buffer) == expected
    block.close()


@pytest.mark.parametrize(
    ("offset", "count"), [(-8, 1), (0, -1), (0, 3), (8, 2), (24, 0), (4, 1), (1 << 70, 1)]
)
def test_arrays_stay_inside_and_aligned(offset: int, count: int) -> None:
    block = SharedBlock.create(16)
    with pytest.raises(ValueError, match="must lie within 16 bytes, and begin at a multiple of 8"):
        block.array(offset, count, np.int64)
    block.close()


@pytest.mark.parametrize("num_bytes", [0, -1])
def test_a_block_has_bytes(num_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"must be positive, got {num_bytes}"):
        SharedBlock.create(num_bytes)


@pytest.mark.usefixtures("new_handle")
def test_close_twice_gives_everything_back() -> None:
    before = num_files()
    block = SharedBlock.create(4096)
    block.close()
    block.close()
    assert num_files() == before
    uses: list[Callable[[], object]] = [lambda: block.buffer, lambda: block.array(0, 1, np.int8)]
    for use in uses:
        with pytest.raises(ClosedError):
            use()


@pytest.mark.usefixtures("new_handle")
def test_a_forgotten_block_gives_everything_back() -> None:
    before = num_files()
    SharedBlock.create(4096).array(0, 8, np.float64)[:] = 1
    assert num_files() == before


@pytest.mark.usefixtures("new_handle")
def test_views_outlive_their_block() -> None:
    before = num_files()
    block = SharedBlock.create(4096)
    array, buffer = block.array(0, 512, np.float64), block.buffer[8:]
    block.close()
    array[:] = 7.0
    assert array.sum() == 512 * 7.0
    assert buffer[:8] == array[:1].tobytes()
    del array, buffer, block
    assert num_files() == before


def test_leaves_no_name_behind_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_block, "_new_handle", shared_block._new_shm)
    before = sorted(SHM.iterdir())
    block = SharedBlock.create(4096)
    assert sorted(SHM.iterdir()) == before
    block.close()


def test_a_sandbox_without_memfd_gets_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(name: str) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "memfd_create", forbidden)
    monkeypatch.setattr(shared_block, "_new_handle", shared_block._new_memfd)
    block = SharedBlock.create(4096)
    assert len(block.buffer) == 4096
    block.close()


def test_a_system_without_memfd_uses_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    segments: list[int] = []
    monkeypatch.setattr(shared_block, "_new_shm", segments.append)
    shared_block._new_memfd(8)
    assert segments == [8]


def test_says_that_dev_shm_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.statvfs(SHM)
    monkeypatch.setattr(shared_block, "_new_handle", shared_block._new_shm)
    before, segments = num_files(), sorted(SHM.iterdir())
    too_much = stat.f_blocks * stat.f_frsize + 2**30
    with pytest.raises(WorkerError) as caught:
        SharedBlock.create(too_much)
    message = str(caught.value)
    for part in (
        f"cannot get {too_much / 2**20:,.1f} MiB",
        "/dev/shm has",
        "free of",
        "--shm-size",
    ):
        assert part in message
    assert isinstance(caught.value.__cause__, OSError)
    del caught
    assert (num_files(), sorted(SHM.iterdir())) == (before, segments)


@pytest.mark.usefixtures("new_handle")
def test_says_that_memory_is_too_small() -> None:
    before = num_files()
    with pytest.raises(WorkerError, match="MiB of shared memory"):
        SharedBlock.create(2**62)
    assert num_files() == before


@pytest.mark.usefixtures("new_handle")
def test_says_that_too_many_files_are_open() -> None:
    before = num_files()
    for number in range(2):  # no descriptor for the block; none to map it
        with (
            files_to_spare(number),
            pytest.raises(WorkerError, match=r"this process may have \d+ files open: .*ulimit -n"),
        ):
            SharedBlock.create(64)
    assert num_files() == before


@pytest.mark.slow
@pytest.mark.usefixtures("new_handle")
@pytest.mark.parametrize("context", CONTEXTS)
def test_other_processes_get_blocks_and_give_them(
    context: SpawnContext | ForkServerContext,
) -> None:
    ours, theirs = socket.socketpair()
    first, second = SharedBlock.create(5), SharedBlock.create(6)
    first.buffer[:] = b"first"
    process = context.Process(target=double_blocks, args=(first, theirs))
    process.start()  # passes on the first
    theirs.close()
    before = num_files()
    doubled = SharedBlock.receive(ours, timeout_s=CHILD_S)
    assert bytes(first.buffer) == b"taken"
    assert bytes(doubled.buffer) == b"firstfirst"
    second.buffer[:] = b"second"
    second.send(ours)
    doubled_again = SharedBlock.receive(ours, timeout_s=CHILD_S)
    ours.send(b"received")
    process.join(CHILD_S)
    assert process.exitcode == 0
    assert bytes(second.buffer) == b"taken "
    assert bytes(doubled_again.buffer) == b"secondsecond"
    for block in (first, second, doubled, doubled_again):
        block.buffer[:1] = b"!"  # still valid, although its creator is gone
        block.close()
    assert num_files() == before - 2 * 2  # descriptors of the first two
    ours.close()


def test_receiving_from_nobody() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(EOFError):
        SharedBlock.receive(ours)
    block = SharedBlock.create(8)
    with pytest.raises(OSError, match="Broken pipe"):
        block.send(ours)
    block.close()
    ours.close()


def test_blocks_that_are_wanted_no_more_are_passed_over() -> None:
    ours, theirs = socket.socketpair()
    before = num_files()
    for number in (1, 2, 3):
        block = SharedBlock.create(8)
        block.buffer[0] = number
        block.send(ours, number)
        block.close()
    received = SharedBlock.receive(theirs, 2)
    assert received.buffer[0] == 2
    received.close()
    received = SharedBlock.receive(theirs, 3)
    assert received.buffer[0] == 3
    received.close()
    assert num_files() == before
    with pytest.raises(TimeoutError, match="no shared memory was sent"):
        SharedBlock.receive(theirs, 4, timeout_s=0.01)
    ours.close()
    theirs.close()


def test_receiving_with_no_file_to_spare() -> None:
    ours, theirs = socket.socketpair()
    block = SharedBlock.create(8)
    block.send(theirs)
    before = num_files()
    with files_to_spare(0), pytest.raises(WorkerError, match="ulimit -n"):
        SharedBlock.receive(ours)
    assert num_files() == before
    block.close()
    ours.close()
    theirs.close()


def test_is_not_pickled_out_of_place() -> None:
    block = SharedBlock.create(8)
    with pytest.raises(ProtocolError, match="only as an argument of a process"):
        block.__reduce__()
    block.close()
    with pytest.raises(ClosedError):
        block.__reduce__()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks as on Windows: the next process opens a mapping by name."""
    mappings: dict[str, mmap.mmap] = {}

    def map_name(name: str, num_bytes: int) -> mmap.mmap:
        return mappings.setdefault(name, mmap.mmap(-1, num_bytes))

    monkeypatch.setattr(shared_block, "_map_name", map_name)
    monkeypatch.setattr(shared_block, "_new_handle", shared_block._new_name)


@pytest.mark.usefixtures("named")
def test_named_mappings_are_handed_over_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    block, other = SharedBlock.create(8), SharedBlock.create(8)
    block.send(ours)
    received = SharedBlock.receive(theirs)
    monkeypatch.setattr(shared_block, "get_spawning_popen", lambda: object())
    rebuild: Callable[..., SharedBlock]
    rebuild, arguments = block.__reduce__()
    attached = rebuild(*arguments)
    block.array(0, 1, np.int64)[:] = 7
    for view in (received, attached):
        assert view.array(0, 1, np.int64) == 7
    assert other.array(0, 1, np.int64) == 0
    for each in (block, other, received, attached):
        each.close()
        each.close()
    ours.close()
    theirs.close()


def test_names_are_for_windows() -> None:
    with pytest.raises(NotImplementedError):
        shared_block._map_name("name", 8)
