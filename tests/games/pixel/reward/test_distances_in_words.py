"""Sums over eight pixels at a time equal sums pixel by pixel."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from entity_env.games.pixel.reward import reward
from entity_env.games.pixel.reward.reward import Goal, distance_sum, distances_in_words, fits_words


def shades(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 4, shape, dtype=torch.uint8, generator=generator)


def plain(frames: Tensor, goal: Tensor) -> Tensor:
    return (frames.to(torch.int32) - goal.to(torch.int32)).abs().sum((1, 2)).to(torch.int32)


@given(
    num=st.integers(0, 9),
    size=st.tuples(st.integers(1, 40), st.integers(1, 6)),
    is_high=st.booleans(),
    own_goals=st.booleans(),
    chunk=st.integers(1, 3000),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_sums_of_any_size(
    num: int, size: tuple[int, int], is_high: bool, own_goals: bool, chunk: int, seed: int
) -> None:
    height, width = (8 * size[0], size[1]) if is_high else (size[0], 8 * size[1])
    frames = shades(num, height, width, seed=seed)
    goal = shades(*([num] if own_goals else []), height, width, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward, "_CHUNK_PIXELS", chunk)
        found = distances_in_words(frames, goal)
    assert found.dtype == torch.int32
    assert found.tolist() == plain(frames, goal).tolist()


@pytest.mark.parametrize(
    "shape", [(72, 80), (144, 160), (64, 128), (8, 8), (1, 8 * 89), (512, 512), (1024, 1024)]
)
@pytest.mark.parametrize(("shade", "wanted"), [(0, 3), (3, 0), (3, 3), (2, 1)])
def test_no_counter_overflows(shape: tuple[int, int], shade: int, wanted: int) -> None:
    frames = torch.full((3, *shape), shade, dtype=torch.uint8)
    goal = torch.full(shape, wanted, dtype=torch.uint8)
    expected = abs(shade - wanted) * shape[0] * shape[1]
    assert distances_in_words(frames, goal).tolist() == [expected] * 3


def test_tells_what_it_can_read() -> None:
    frames = shades(5, 16, 16)
    assert fits_words(frames)
    assert fits_words(frames[2:])
    assert not fits_words(frames[:, :, ::2])
    assert not fits_words(frames.transpose(1, 2))
    assert not fits_words(shades(2, 3, 5))
    assert not fits_words(shades(2 * 24 + 3)[3:].view(2, 4, 6))


@pytest.mark.parametrize("begin", range(9))
def test_the_distance_is_the_same_however_frames_lie(begin: int) -> None:
    pixels = shades(4 * 64 + 8, seed=begin)
    frames, goal = pixels[begin : begin + 256].view(4, 8, 8), Goal(shades(8, 8, seed=9))
    assert distance_sum(frames, goal).tolist() == plain(frames, goal.pixels).tolist()


def test_changes_nothing_it_is_given() -> None:
    frames, goal = shades(3, 8, 16), shades(8, 16, seed=1)
    before = frames.clone(), goal.clone()
    distances_in_words(frames, goal)
    assert torch.equal(frames, before[0])
    assert torch.equal(goal, before[1])
