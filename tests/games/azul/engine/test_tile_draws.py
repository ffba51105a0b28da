"""Draws: every source of tiles draws colors in proportion to the bag."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.core.seeding import GAMMA, splitmix64_int
from entity_env.errors import SchemaError, UsageError
from entity_env.games.azul import GameState, new_game
from entity_env.games.azul.engine.tile_draws import (
    SplitMix,
    checked_rng,
    deal_numbers,
)
from entity_env.games.azul.kernels.engine import colour_at
from entity_env.games.azul.kernels.packed_state import pack_tiles

WORDS = st.integers(0, 2**64 - 1)
BAGS = st.lists(st.integers(0, 20), min_size=5, max_size=5).map(tuple).filter(any)
BELOW_ONE = 1 - 2**-53


def drawn(bag: tuple[int, ...], number: float) -> int:
    """The color drawn by a number from 0 to 1."""
    return colour_at(pack_tiles(bag), int(number * sum(bag)))


@given(bag=BAGS, number=st.floats(0, BELOW_ONE))
def test_a_number_picks_the_tile_of_the_sorted_bag(bag: tuple[int, ...], number: float) -> None:
    tiles = [colour for colour, count in enumerate(bag) for _ in range(count)]
    assert drawn(bag, number) == tiles[int(number * len(tiles))]


@given(bag=BAGS)
def test_the_ends_of_the_range_are_the_ends_of_the_bag(bag: tuple[int, ...]) -> None:
    present = [colour for colour, count in enumerate(bag) if count]
    assert drawn(bag, 0.0) == present[0]
    assert drawn(bag, BELOW_ONE) == present[-1]


def test_every_tile_of_a_bag_is_as_likely() -> None:
    bag = (1, 0, 4, 2, 3)
    numbers = np.linspace(0, 1, 1000, endpoint=False)
    found = np.bincount([drawn(bag, number) for number in numbers.tolist()], minlength=5)
    assert found.tolist() == [100 * count for count in bag]


@given(word=WORDS)
def test_the_sequence_is_counted_on(word: int) -> None:
    numbers = SplitMix(word)
    one_by_one = [numbers.uniform() for _ in range(5)]
    at_once = SplitMix(word)
    assert at_once.random(5).tolist() == one_by_one
    assert at_once.word == numbers.word == (word + 5 * GAMMA) % 2**64
    assert all(0 <= number < 1 for number in one_by_one)


@given(word=WORDS)
def test_a_sequence_can_be_taken_up_where_it_stopped(word: int) -> None:
    numbers = SplitMix(word)
    numbers.random(3)
    assert SplitMix(numbers.word).random(4).tolist() == numbers.random(4).tolist()


@given(words=st.sets(WORDS, min_size=2, max_size=50))
def test_mixing_loses_nothing(words: set[int]) -> None:
    """The output function is a bijection: different words have different outputs."""
    assert len({splitmix64_int(word) for word in words}) == len(words)
    assert all(0 <= splitmix64_int(word) < 2**64 for word in words)


@given(word=WORDS)
def test_words_beyond_64_bits_are_cut(word: int) -> None:
    assert splitmix64_int(word + 2**64) == splitmix64_int(word)
    assert SplitMix(word + 2**64).word == SplitMix(word).word == word


def test_uniform_numbers_are_uniform() -> None:
    numbers = SplitMix(7).random(20_000)
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert abs(counts - 2000).max() < 200
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


class Constant:
    """Returns a given number."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[int] = []

    def random(self, size: int, /) -> Any:  # noqa: ANN401
        self.asked.append(size)
        return self.answer


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_a_deal_asks_once(num_players: int) -> None:
    size = 4 * (2 * num_players + 1)
    source = Constant(np.zeros(size))
    state = new_game(num_players, rng=source)
    assert source.asked == [size]
    assert sum(map(sum, state.factories)) == size
    # Always the first tile of the bag: 20 blue tiles, then yellow ones.
    assert state.bag == (0, max(0, 40 - size), *(20,) * 3)


@pytest.mark.parametrize("answer", [np.zeros(19), np.zeros((20, 1)), 0.5, np.zeros(0)])
def test_a_source_with_another_number_of_numbers(answer: object) -> None:
    with pytest.raises(SchemaError, match=r"Constant.random\(20\) must return an array of that"):
        deal_numbers(Constant(answer), 20)


def test_what_a_source_answers_becomes_float64() -> None:
    numbers = deal_numbers(Constant([0, 0.5]), 2)
    assert numbers.dtype == np.float64
    assert numbers.flags.c_contiguous
    assert deal_numbers(Constant(np.zeros(4, np.float32)[::2]), 2).flags.c_contiguous


@pytest.mark.parametrize("rng", [random.Random(1), 5, "numpy", object(), random.SystemRandom()])
def test_what_is_no_source(rng: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=r"rng must be a numpy\.random\.Generator"):
        checked_rng(rng)


def test_a_source_is_taken_as_it_is() -> None:
    rng = np.random.default_rng(1)
    assert checked_rng(rng) is rng
    numbers = SplitMix(1)
    assert checked_rng(numbers) is numbers
    assert isinstance(checked_rng(None), np.random.Generator)


def test_who_draws_is_asked_instead_of_the_source() -> None:
    source = Constant(np.zeros(20))

    def last(bag: tuple[int, ...]) -> int:
        return max(colour for colour, count in enumerate(bag) if count)

    state: GameState = new_game(2, rng=source, draw=last)
    assert source.asked == []
    assert state.bag == (20, 20, 20, 20, 0)
