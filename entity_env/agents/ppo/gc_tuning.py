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
_MANY_OBJECTS: Final = 20_000
"""New objects, less those that are gone, until the garbage collector looks at them."""


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
    """A function that calls `gc.freeze` and lets collections be rare, undone at the end.

    Thousands of environments and compiled functions are hundreds of thousands of objects, which the
    garbage collector scans again and again: a quarter of the training time of games of one step.
    The observations of a step are thousands of new ones, of which none is garbage yet: collections
    after every 700 of them took a tenth. Does nothing in a process that has frozen objects already;
    a threshold that is larger, or 0, stays.
    """
    is_ours, before = not gc.get_freeze_count(), gc.get_threshold()

    def freeze() -> None:
        if is_ours:
            gc.collect()
            gc.freeze()
            if 0 < before[0] < _MANY_OBJECTS:
                gc.set_threshold(_MANY_OBJECTS, *before[1:])

    try:
        yield freeze
    finally:
        if is_ours:
            gc.unfreeze()
            gc.set_threshold(*before)
