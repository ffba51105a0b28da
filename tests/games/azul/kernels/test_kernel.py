"""Kernels: compiled on request, equal to their Python source."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.core.seeding import splitmix64_int
from entity_env.games.azul.kernels import kernel as module
from entity_env.games.azul.kernels.kernel import (
    WORD,
    as_word,
    bits_of,
    fastest,
    kernel,
    machine_code,
    new_floats,
    new_ints,
)
from tests.games.azul.recorded_games import interpreted

# The first calls compile, which takes a while on shared cores.
pytestmark = pytest.mark.timeout(240)

SQUARES = (0, 1, 4, 9)
HALVES = (0.0, 0.5)


@kernel(inline=True)
def square(number: int) -> int:
    """Reads a table."""
    return SQUARES[number]


@kernel()
def sum_of_squares(numbers: list[int]) -> int:
    """Calls another kernel."""
    total = 0
    for i in range(len(numbers)):
        total += square(numbers[i])
    return total


@kernel()
def primitives(number: int, word: int) -> tuple[int, int, int, float]:
    """Calls all functions that have a separate compiled version."""
    word = splitmix64_int(as_word(word)) + splitmix64_int(as_word(number)) & WORD
    return bits_of(number), word, len(new_ints(3)) + new_ints(1)[0], new_floats(1)[0] + HALVES[1]


def test_a_kernel_is_the_function_itself() -> None:
    assert sum_of_squares([1, 2, 3]) == 14
    with interpreted():
        assert fastest(sum_of_squares) is sum_of_squares


def test_machine_code_calls_machine_code_and_reads_arrays() -> None:
    compiled = machine_code(sum_of_squares)
    assert compiled is machine_code(sum_of_squares) is fastest(sum_of_squares)
    assert compiled(np.array([1, 2, 3])) == 14
    globals_of = compiled.py_func.__globals__
    assert globals_of["square"] is machine_code(square) is not square
    assert globals_of["SQUARES"].dtype == np.int64
    assert globals_of["HALVES"].dtype == np.float64
    assert SQUARES == (0, 1, 4, 9)
    assert sum_of_squares.__globals__["square"] is square


@pytest.mark.slow
@given(number=st.integers(0, 2**62 - 1), word=st.integers(0, 2**64 - 1))
def test_both_forms_count_and_draw_alike(number: int, word: int) -> None:
    bits, mixed, size, half = primitives(number, word)
    assert bits == number.bit_count()
    assert (size, half) == (3, 0.5)
    assert machine_code(primitives)(number, np.uint64(word)) == (bits, mixed, size, half)


def test_threads_may_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_COMPILED", "_GLOBALS"):
        monkeypatch.setattr(module, name, {})
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: machine_code(sum_of_squares), range(4)))
    assert len(set(made)) == 1
    assert made[0](np.array([2])) == 4


SCRIPT = """
import sys
from entity_env.agents import RandomAgent
from entity_env.games.azul import azul
azul.run(RandomAgent(seed=1), RandomAgent(seed=2), max_rounds=1)
print(*{"numba", "llvmlite"} & set(sys.modules))
"""


@pytest.mark.slow
def test_who_plays_a_game_waits_for_no_compiler() -> None:
    """A shipped agent starts within a second, in 45 MiB, even if numba is installed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], text=True, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.strip() == ""
