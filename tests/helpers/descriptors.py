"""File descriptors of this process: their number, and simulated exhaustion."""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def num_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def files_to_spare(number: int) -> Iterator[None]:
    """Limits this process to `number` more file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + number + 1, hard))
    fillers = []
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        for _ in range(number):
            os.close(fillers.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)
