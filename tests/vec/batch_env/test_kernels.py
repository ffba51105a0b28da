"""Compiled kernels: cached on disk until a source changes, and usable without a cache folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.core import numba_utils as batch_compiled
from entity_env.core.numba_utils import (
    BYTES,
    FAST_MATH,
    LONGS,
    array_of,
    compiled,
    count_bits,
    loaded,
)
from entity_env.vec.batch_env.reset_mask_kernel import pack_flags

HELPER = """
from entity_env.core.numba_utils import compiled
@compiled()
def helped(x: int) -> int:
    return x + {}
"""
KERNEL = """
import sys
import helper
from entity_env.core.numba_utils import compiled
@compiled()
def kernel(x: int) -> int:
    return 2 * helper.helped(x)
print(kernel(1), sum(kernel.stats.cache_hits.values()))
"""


def outcome(folder: Path) -> list[int]:
    """The kernel's result, and its number of cache hits."""
    done = subprocess.run(
        [sys.executable, "kernel.py"],
        cwd=folder,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_a_change_in_another_file_compiles_anew(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "helper.py").write_text(HELPER.format(1))
    assert outcome(tmp_path) == [4, 0]
    assert outcome(tmp_path) == [4, 1]
    (tmp_path / "helper.py").write_text(HELPER.format(20))
    assert outcome(tmp_path) == [42, 0]


def test_without_a_place_for_a_cache_it_compiles_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(path: Path) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(batch_compiled, "_sources", nowhere)

    @compiled()
    def twice(x: int) -> int:
        return 2 * x

    assert twice(21) == 42


def test_a_division_by_zero_is_infinite() -> None:
    @compiled()
    def divided(x: float, y: float) -> float:
        return x / y

    assert divided(1.0, 0.0) == np.inf
    assert np.isnan(divided(0.0, 0.0))


def test_fast_math_leaves_order_and_exact_division_alone() -> None:
    assert not FAST_MATH & {"reassoc", "arcp", "fast"}


def test_loaded_code_refuses_what_has_items_of_another_size() -> None:
    pack = loaded(pack_flags, BYTES, BYTES, array_of("uint64"))
    words = np.zeros(1, np.uint64)
    flags = np.array([1, 0, 1], np.uint8)
    assert pack(flags, flags, words) == 2
    assert words[0] == 5
    for wrong in ([1, 0, 1], flags.astype(np.int64), None):
        with pytest.raises(TypeError):
            pack(wrong, flags, words)  # type: ignore[arg-type]


@given(st.integers(0, 2**64 - 1))
def test_count_bits(word: int) -> None:
    assert count_bits(np.uint64(word)) == word.bit_count()


def test_types_of_arrays() -> None:
    assert array_of("int64") == LONGS
    assert array_of("float32").dtype.name == "float32"
    assert array_of("uint8") == BYTES
