"""ResetMask equals a plain list of bools, compiled or not; bad input gets named errors."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import SchemaError, UsageError
from entity_env.vec.batch_env import reset_mask
from entity_env.vec.batch_env.batch_env import ResetMask

FLAGS = st.lists(st.booleans(), min_size=1, max_size=300)


@pytest.fixture(params=["compiled", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations of packing and listing bits."""
    if request.param == "plain":
        plain = reset_mask._Kernels()
        plain.pack_flags = reset_mask.pack_flags_plain
        plain.list_bits = reset_mask.list_bits_plain
        monkeypatch.setattr(reset_mask, "_KERNELS", plain)


pytestmark = [pytest.mark.usefixtures("kernels"), pytest.mark.filterwarnings("error")]


def check(mask: ResetMask, model: list[bool]) -> None:
    """Compares all properties of a mask with the list."""
    indices = [i for i, is_set in enumerate(model) if is_set]
    assert mask.num_envs == len(model)
    assert mask.any() is any(model)
    assert mask.count() == len(indices)
    assert list(mask.iter_set()) == indices
    assert mask.indices().tolist() == indices
    assert mask.indices().dtype == np.int64
    assert mask.to_bool().tolist() == model
    assert [mask.is_set(i) for i in range(len(model))] == model
    assert mask.chunks.dtype == np.uint64
    assert mask.chunks.shape == ((len(model) + 63) // 64,)
    bits = sum(int(chunk) << (64 * k) for k, chunk in enumerate(mask.chunks))
    assert bits == sum(1 << i for i in indices)


@given(st.data())
def test_from_done_flags_equals_the_list(data: st.DataObject) -> None:
    terminals = data.draw(FLAGS)
    size = len(terminals)
    truncations = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    model = [a or b for a, b in zip(terminals, truncations, strict=True)]
    first, second = np.array(terminals), np.array(truncations)
    mask = ResetMask.from_done_flags(first, second)
    check(mask, model)
    assert mask == ResetMask.from_done_flags(first.astype(np.uint8), second.astype(np.uint8))
    assert mask == ResetMask.from_bool(np.array(model))
    check(ResetMask.from_terminals(np.array(terminals, np.uint8)), terminals)
    check(ResetMask.from_bool(np.array(terminals)), terminals)


@given(FLAGS, st.integers(0, 9), st.integers(1, 3))
def test_flags_may_lie_anywhere_in_memory(model: list[bool], offset: int, stride: int) -> None:
    room = np.zeros(offset + stride * len(model), np.uint8)
    flags = room[offset::stride]
    flags[:] = model
    check(ResetMask.from_done_flags(flags, np.zeros(len(model), np.uint8)), model)
    check(ResetMask.from_done_flags(np.zeros(len(model), np.uint8), flags), model)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=200))
def test_every_flag_but_0_is_set(flags: list[int]) -> None:
    mask = ResetMask.from_terminals(np.array(flags, np.uint8))
    check(mask, [flag != 0 for flag in flags])


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.sampled_from(["set", "clear"]), st.integers(0, 199)), max_size=30),
)
def test_set_and_clear_equal_the_list(num_envs: int, calls: list[tuple[str, int]]) -> None:
    mask, model = ResetMask.new(num_envs), [False] * num_envs
    for name, place in calls:
        env_id = place % num_envs
        model[env_id] = name == "set"
        getattr(mask, name)(np.int64(env_id))
    check(mask, model)


@given(FLAGS, FLAGS)
def test_equality_is_that_of_the_lists(first: list[bool], second: list[bool]) -> None:
    masks = [ResetMask.from_bool(np.array(model)) for model in (first, second)]
    assert (masks[0] == masks[1]) is (first == second)
    assert masks[0] == masks[0].copy()
    assert masks[0] != first


def test_an_emptied_mask_equals_a_new_one() -> None:
    mask = ResetMask(70)
    mask.set(69)
    assert mask != ResetMask.new(70)
    mask.clear(69)
    assert mask == ResetMask.new(70)
    assert not mask.any()


def test_a_copy_and_indices_are_the_callers_own() -> None:
    mask = ResetMask.from_bool(np.array([True, False, True]))
    copy, indices = mask.copy(), mask.indices()
    mask.clear(0)
    assert list(copy.iter_set()) == [0, 2]
    assert indices.tolist() == [0, 2]


def test_a_mask_keeps_its_bits_when_the_flags_change() -> None:
    flags = np.array([1, 0, 1], np.uint8)
    mask = ResetMask.from_terminals(flags)
    flags[:] = 0
    assert list(mask.iter_set()) == [0, 2]


def test_iter_set_goes_on_when_the_mask_changes() -> None:
    mask = ResetMask.from_bool(np.ones(100, np.bool_))
    seen = []
    for env_id in mask.iter_set():
        mask.clear(env_id)
        seen.append(env_id)
    assert seen == list(range(100))
    assert not mask.any()


def test_chunks_cannot_be_written() -> None:
    mask = ResetMask(3)
    mask.set(1)
    with pytest.raises(ValueError, match="read-only"):
        mask.chunks[0] = 7
    assert mask.chunks.tolist() == [2]


def test_repr_names_the_first() -> None:
    mask = ResetMask(100)
    assert repr(mask) == "ResetMask(num_envs=100, set=[])"
    mask.set(3)
    mask.set(99)
    assert repr(mask) == "ResetMask(num_envs=100, set=[3, 99])"
    many = ResetMask.from_bool(np.ones(50, np.bool_))
    assert "0, 1, 2, 3, 4, 5, 6, 7, ... 50 in all" in repr(many)


def test_a_mask_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(ResetMask(1))


@pytest.mark.parametrize("num_envs", [0, -1, 1.5, True, "3", None])
def test_a_number_of_envs_that_makes_no_sense(num_envs: int) -> None:
    with pytest.raises(UsageError, match="num_envs must be an integer, 1 or more: got"):
        ResetMask(num_envs)


@pytest.mark.parametrize("env_id", [-1, 5, 1.0, True, None])
@pytest.mark.parametrize("method", ["set", "clear", "is_set"])
def test_an_index_out_of_range(method: str, env_id: int) -> None:
    mask = ResetMask(5)
    with pytest.raises(UsageError, match="env_id must be an integer from 0 to 4: got"):
        getattr(mask, method)(env_id)
    assert mask == ResetMask(5)


@pytest.mark.parametrize(
    "flags",
    [
        np.zeros(4, np.int64),
        np.zeros(4, np.float32),
        np.zeros((2, 2), np.uint8),
        np.zeros(0, np.uint8),
        np.array(1, np.uint8),
        [0, 1, 0, 0],
        None,
    ],
)
def test_flags_that_are_none(flags: NDArray[np.uint8]) -> None:
    good = np.zeros(4, np.uint8)
    with pytest.raises(SchemaError, match=r"terminals must be \(num_envs,\) uint8 or bool"):
        ResetMask.from_done_flags(flags, good)
    with pytest.raises(SchemaError, match=r"truncations must be \(num_envs,\) uint8 or bool"):
        ResetMask.from_done_flags(good, flags)
    with pytest.raises(SchemaError, match=r"mask must be \(num_envs,\) bool"):
        getattr(ResetMask, "from_bool")(flags)  # noqa: B009 - a type error


def test_flags_of_two_lengths() -> None:
    with pytest.raises(SchemaError, match="got 3 and 4"):
        ResetMask.from_done_flags(np.zeros(3, np.uint8), np.zeros(4, np.uint8))
