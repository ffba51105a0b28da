"""Process-wide memory settings for training: glibc's malloc and the garbage collector."""

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
def tune_malloc() -> None:
    """Lets glibc keep up to 1 GiB of freed memory; does nothing with other C libraries.

    Every operation on a batch allocates and frees tensors of some MiB. By default glibc returns
    such blocks to the system, which clears every page of the next one: that took more than half of
    a forward pass over 6,000 entities. Applies to the whole process until it ends.
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
def freeze_gc() -> Iterator[Callable[[], None]]:
    """A function that calls `gc.freeze`, undone at the end of the block.

    Thousands of environments and compiled functions are hundreds of thousands of objects, which the
    garbage collector scans again and again: a quarter of the training time of games of one step.
    Does nothing in a process that has frozen objects already.
    """
    is_ours = not gc.get_freeze_count()

    def freeze() -> None:
        if is_ours:
            gc.collect()
            gc.freeze()

    try:
        yield freeze
    finally:
        if is_ours:
            gc.unfreeze()
