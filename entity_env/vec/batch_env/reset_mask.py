"""ResetMask: the environments of a batch to reset, one bit each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import Flags
from entity_env.core.validation import MISFIT, checked_count, checked_index, has_numba
from entity_env.errors import SchemaError

_UINT64 = np.dtype(np.uint64)
_INT64 = np.dtype(np.int64)
_empty = np.empty
_new = object.__new__
_MOST_SHOWN = 8


class ResetMask:
    """Set of environments of a batch as bits: environment i is bit `i % 64` of chunk `i // 64`.

    A mask owns its bits: they do not change with the environments. A new mask has no bit set.

    Args:
        num_envs: number of environments, at least 1.

    Raises:
        UsageError: an invalid number.
    """

    __slots__ = ("_count", "_words", "num_envs")

    num_envs: int

    def __init__(self, num_envs: int) -> None:
        self.num_envs = checked_count("num_envs", num_envs)
        self._count = 0
        # None until a bit is set: most steps of a small batch end no episode.
        self._words: NDArray[np.uint64] | None = None

    @classmethod
    def new(cls, num_envs: int) -> ResetMask:
        """Equals `ResetMask(num_envs)`."""
        return cls(num_envs)

    @classmethod
    def from_done_flags(cls, terminals: Flags, truncations: Flags) -> ResetMask:
        """Mask of the environments whose episode is terminated or truncated.

        Args:
            terminals, truncations: `(num_envs,)` flags; see `Flags`.

        Raises:
            SchemaError: wrong shape or dtype, or different lengths.
        """
        count = MISFIT
        try:
            if terminals.ndim == 1 == truncations.ndim:
                num_envs = len(terminals)
                words = _empty((num_envs + 63) >> 6, _UINT64)
                count = _KERNELS.pack_flags(terminals, truncations, words)
        except (AttributeError, TypeError):  # not arrays, or not one byte per flag
            pass
        if count < 0:
            return _of_any_flags(terminals, truncations)
        mask = _new(ResetMask)
        mask.num_envs = num_envs
        mask._words = words
        mask._count = count
        return mask

    @classmethod
    def from_terminals(cls, terminals: Flags) -> ResetMask:
        """Mask of the environments whose episode is terminated."""
        return cls.from_done_flags(terminals, terminals)

    @classmethod
    def from_bool(cls, mask: NDArray[np.bool_]) -> ResetMask:
        """Mask of the environments where `mask`, `(num_envs,)` bool, is True.

        Raises:
            SchemaError: wrong shape or dtype.
        """
        flags = _flags("mask", mask, "bool")
        return cls.from_done_flags(flags, flags)

    @property
    def chunks(self) -> NDArray[np.uint64]:
        """The bits, `((num_envs + 63) // 64,)` uint64; bits past the last environment are 0.

        A read-only copy.
        """
        # Not a view: it could outlive the mask, whose memory a batch may reuse (`PackedResult`).
        chunks = self._own_words().copy()
        chunks.flags.writeable = False
        return chunks

    def any(self) -> bool:
        """True if any environment is set; constant time."""
        return self._count > 0

    def count(self) -> int:
        """Number of environments that are set; constant time."""
        return self._count

    def set(self, env_id: int) -> None:
        """Sets one environment.

        Raises:
            UsageError: an index out of range.
        """
        word, bit = self._place(env_id)
        words = self._own_words()
        self._count += not words[word] & bit
        words[word] |= bit

    def clear(self, env_id: int) -> None:
        """Clears one environment.

        Raises:
            UsageError: an index out of range.
        """
        word, bit = self._place(env_id)
        words = self._own_words()
        self._count -= bool(words[word] & bit)
        words[word] &= ~bit

    def is_set(self, env_id: int) -> bool:
        """True if one environment is set.

        Raises:
            UsageError: an index out of range.
        """
        word, bit = self._place(env_id)
        return self._words is not None and bool(self._words[word] & bit)

    def indices(self) -> NDArray[np.int64]:
        """`(count,)` int64 indices of the environments that are set, ascending; a copy.

        The time depends on `count` and, slightly, on the number of chunks. For a batch of 4,096
        with 5 % set, building and listing take a fifth of the time of `np.flatnonzero`
        (`benchmarks/batch.py`).
        """
        indices = _empty(self._count, _INT64)
        if self._words is not None and self._count:
            _KERNELS.list_bits(self._words, indices)
        return indices

    def iter_set(self) -> Iterator[int]:
        """Iterates over the environments that are set now, ascending."""
        return iter(self.indices().tolist())

    def to_bool(self) -> NDArray[np.bool_]:
        """`(num_envs,)` bool, True where set; a copy."""
        mask = np.zeros(self.num_envs, np.bool_)
        mask[self.indices()] = True
        return mask

    def copy(self) -> ResetMask:
        return self.of_words(self.num_envs, self._own_words().copy(), self._count)

    __copy__ = copy

    @classmethod
    def of_words(cls, num_envs: int, words: NDArray[np.uint64] | None, count: int) -> ResetMask:
        """Mask of packed bits, unchecked; for batch environments.

        Args:
            words: bits laid out like `chunks`, with 0 past the last environment; None if nothing is
                set. The mask takes ownership of the array.
        """
        mask = cls.__new__(cls)
        mask.num_envs = num_envs
        mask._words = words
        mask._count = count
        return mask

    def words(self) -> NDArray[np.uint64] | None:
        """The mask's own bits, laid out like `chunks`; None if none was ever set.

        For batch environments. Read the bits at once: they may change when no caller holds the mask
        any longer. Never write them: this would break `any` and `count`.
        """
        return self._words

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResetMask):
            return NotImplemented
        return (
            self.num_envs == other.num_envs
            and self._count == other._count
            and (not self._count or np.array_equal(self._own_words(), other._own_words()))
        )

    __hash__ = None  # type: ignore[assignment] # mutable

    def __repr__(self) -> str:
        shown = [str(i) for i in self.indices()[:_MOST_SHOWN]]
        if self._count > _MOST_SHOWN:
            shown.append(f"... {self._count} in all")
        return f"ResetMask(num_envs={self.num_envs}, set=[{', '.join(shown)}])"

    def _own_words(self) -> NDArray[np.uint64]:
        if self._words is None:
            self._words = np.zeros((self.num_envs + 63) >> 6, _UINT64)
        return self._words

    def _place(self, env_id: int) -> tuple[int, np.uint64]:
        env_id = checked_index("env_id", env_id, self.num_envs)
        return env_id >> 6, np.uint64(1 << (env_id & 63))


def require_reset_mask(owner: str, mask: object, num_envs: int) -> None:
    """Validates the argument of `owner.reset_envs`."""
    if not isinstance(mask, ResetMask) or mask.num_envs != num_envs:
        got = f"one of {mask.num_envs}" if isinstance(mask, ResetMask) else type(mask).__name__
        raise SchemaError(
            f"{owner}.reset_envs: mask must be a ResetMask of {num_envs} environments, got {got}; "
            "ResetMask.from_bool converts an array"
        )


def _of_any_flags(terminals: object, truncations: object) -> ResetMask:
    """Slow path of `from_done_flags`: checks, and copies flags that kernels cannot read."""
    first, second = _flags("terminals", terminals), _flags("truncations", truncations)
    if len(first) != len(second):
        raise SchemaError(
            f"terminals and truncations need one flag per environment each: got {len(first)} "
            f"and {len(second)}"
        )
    return ResetMask.from_done_flags(first, second)


def _flags(name: str, given: object, dtypes: str = "uint8 or bool") -> NDArray[np.uint8]:
    """Copy of flags that every kernel can read."""
    flags = np.asarray(given)
    if flags.dtype.name not in dtypes.split(" or ") or flags.ndim != 1 or not len(flags):
        raise SchemaError(
            f"{name} must be (num_envs,) {dtypes}, one or more: got {flags.shape} {flags.dtype}"
        )
    are_set: NDArray[np.bool_] = flags != 0
    return are_set.view(np.uint8)


class _Kernels:
    """Loops of a mask, compiled with numba if installed; loaded on first use.

    `pack_flags(first, second, words)` sets bit i of `words` if flag i of either is not 0, and
    returns the count; it returns `MISFIT` or raises TypeError if it cannot read the flags.
    `list_bits(words, indices)` writes the indices of all set bits, ascending.
    """

    __slots__ = ("list_bits", "pack_flags")

    pack_flags: Callable[[Flags, Flags, NDArray[np.uint64]], int]
    list_bits: Callable[[NDArray[np.uint64], NDArray[np.int64]], None]

    def __init__(self) -> None:
        self.pack_flags = self._first_pack_flags
        self.list_bits = self._first_list_bits

    def _first_pack_flags(self, first: Flags, second: Flags, words: NDArray[np.uint64]) -> int:
        self._find()
        return self.pack_flags(first, second, words)

    def _first_list_bits(self, words: NDArray[np.uint64], indices: NDArray[np.int64]) -> None:
        self._find()
        self.list_bits(words, indices)

    def _find(self) -> None:
        if not has_numba():
            self.pack_flags, self.list_bits = pack_flags_plain, list_bits_plain
        else:
            from entity_env.vec.batch_env import reset_mask_kernel

            self.pack_flags = reset_mask_kernel.load_pack_flags()
            self.list_bits = reset_mask_kernel.load_list_bits()


_KERNELS: Final = _Kernels()


def pack_flags_plain(first: Flags, second: Flags, words: NDArray[np.uint64]) -> int:
    """See `_Kernels`."""
    arrays: tuple[object, ...] = (first, second)
    if not all(isinstance(flags, np.ndarray) and flags.dtype.itemsize == 1 for flags in arrays):
        return MISFIT
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        return MISFIT
    ended = (first != 0) | (second != 0)
    packed = np.packbits(ended, bitorder="little")
    words[:] = 0
    words.view(np.uint8)[: len(packed)] = packed
    return int(np.count_nonzero(ended))


def list_bits_plain(words: NDArray[np.uint64], indices: NDArray[np.int64]) -> None:
    """See `_Kernels`."""
    places = np.flatnonzero(words)
    bits = np.unpackbits(words[places].view(np.uint8), bitorder="little").reshape(-1, 64)
    rows, columns = np.nonzero(bits)
    indices[:] = places[rows] * 64 + columns
