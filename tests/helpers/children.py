"""Functions that tests run in other processes; separate, so that children do not import pytest."""

import multiprocessing as mp
import os
import select
import signal
import socket
from random import Random
from time import process_time

import numpy as np

from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.wakeup_event import NUM_BYTES, Wake, WakeUpEvent

WAIT_S = 30.0
"""Longer than any operation, shorter than a test's timeout."""


def double_blocks(first: SharedBlock, connection: socket.socket) -> None:
    """Answers two blocks, the second one later, with blocks that contain theirs twice."""
    _double(first).send(connection)
    twice = _double(SharedBlock.receive(connection))
    twice.send(connection)
    connection.recv(8)  # the blocks must stay open until here


def _double(block: SharedBlock) -> SharedBlock:
    twice = SharedBlock.create(2 * block.num_bytes)
    twice.buffer[:] = bytes(block.buffer) * 2
    block.buffer[:] = b"taken".ljust(block.num_bytes)
    return twice


def answer(event: WakeUpEvent, seed: int, longest_pause: int) -> None:
    """Notifies after a random pause, until the parent is gone."""
    random = Random(seed)
    while event.wait(WAIT_S) is Wake.NOTIFIED:
        dawdle(random, longest_pause)
        event.notify()


def dawdle(random: Random, longest: int) -> None:
    """Counts to a random number: often zero, rarely ten times as large."""
    for _ in range(random.choice((0, 1, 1, 1, 10)) * random.randrange(longest + 1)):
        pass


def report_processor_time(event: WakeUpEvent, block: SharedBlock) -> None:
    """Writes its processor time before each answer."""
    seconds = block.array(NUM_BYTES, 1, np.float64)
    while event.wait(WAIT_S) is Wake.NOTIFIED:
        seconds[0] = process_time()
        event.notify()


def fork_and_hang(event: WakeUpEvent) -> None:
    """Forks a child that keeps the worker's end of the wake-up event open, then notifies once."""
    event.wait(WAIT_S)
    is_child = os.fork() == 0
    if is_child:
        while not event.is_peer_gone():
            select.select([event._socket], [], [])
        os._exit(0)
    event.notify()
    signal.pause()


def start_a_worker(start_method: str) -> None:
    """A parent process that will be killed: prints a line after its worker has answered."""
    block = SharedBlock.create(NUM_BYTES)
    ours, theirs = WakeUpEvent.pair(block, 0)
    mp.set_start_method(start_method)
    mp.Process(target=answer, args=(theirs, 1, 0)).start()
    theirs.close()
    ours.notify()
    os.write(1, ours.wait(WAIT_S).name.encode() + b"\n")
    ours.wait()
    signal.pause()
