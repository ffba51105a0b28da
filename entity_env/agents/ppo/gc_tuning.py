"""Memory while training: what is freed is kept warm, what stays is not looked at again."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

# Names of settings and the largest block that may come from the heap, from glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_LARGEST_BLOCK: Final = 2**25
_KEPT: Final = 2**30


@cache
def keep_freed_memory() -> None:
    """Lets the C library keep up to a GiB that was freed, instead of giving it back each time.

    Every operation on a batch makes a tensor of some MiB and frees one. By default glibc hands
    such blocks back to the system, which clears every page anew: that took more than half of a
    forward pass over 6,000 entities. It holds for the whole process, for as long as it lives, and
    for glibc alone; elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
    mallopt(_TRIM_THRESHOLD, _KEPT)


@contextmanager
def settled() -> Iterator[Callable[[], None]]:
    """Gives a function that takes all objects there are for long-lived, until the block ends.

    The garbage collector passes such objects over. Thousands of environments and compiled functions
    are hundreds of thousands of objects, which the many small ones that come and go with every
    step have it search again and again: that was a quarter of the time of learning games of one
    step. It holds for the whole process; whoever has frozen objects already is not interfered with.
    """
    is_ours = not gc.get_freeze_count()

    def settle() -> None:
        if is_ours:
            gc.collect()
            gc.freeze()

    try:
        yield settle
    finally:
        if is_ours:
            gc.unfreeze()
