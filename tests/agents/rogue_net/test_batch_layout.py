"""Positions of entities and legal choices equal plain loops over entities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Choices, find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, ObsBatch, lay_out
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError

Counts = Sequence[tuple[int, ...]]
NAMES = ["B", "A", "C"]
COUNTS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=5)
"""Number of entities of each type, per observation."""


def ragged_index(rows: list[list[int]]) -> RaggedArray[np.int64]:
    lengths = [len(row) for row in rows]
    return RaggedArray(np.array([*chain.from_iterable(rows)], dtype=np.int64), lengths)


def batch_with(counts: Counts, hiding: dict[str, NDArray[np.bool_]]) -> ObsBatch:
    lengths = {name: [row[i] for row in counts] for i, name in enumerate(NAMES)}
    features = {
        name: RaggedArray(np.zeros((sum(own), 1), dtype=np.float32), own)
        for name, own in lengths.items()
    }
    visible = {name: RaggedArray(flags, lengths[name]) for name, flags in hiding.items()}
    return ObsBatch(features, visible, {})


def plain_order(counts: Counts) -> list[list[int]]:
    """Packed entities per observation, type by type."""
    packed: dict[tuple[int, int, int], int] = {}
    for kind, row in product(range(3), range(len(counts))):
        for i in range(counts[row][kind]):
            packed[row, kind, i] = len(packed)
    return [
        [packed[row, kind, i] for kind in range(3) for i in range(own[kind])]
        for row, own in enumerate(counts)
    ]


@given(COUNTS)
def test_compiled_layouts_are_the_same(counts: Counts) -> None:
    pytest.importorskip("numba")
    batch = batch_with(counts, {})
    plain, compiled = lay_out(batch, NAMES), lay_out(batch, NAMES, is_compiled=True)
    for name in ("lengths", "offsets", "rows", "places", "order"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name))


@given(COUNTS, st.sets(st.sampled_from(NAMES)), st.integers(0, 2**32))
def test_everything_lies_where_a_loop_puts_it(counts: Counts, hiding: set[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    flags = {
        name: rng.random(sum(row[NAMES.index(name)] for row in counts)) < 0.5 for name in hiding
    }
    layout = lay_out(batch_with(counts, flags), NAMES)
    order = plain_order(counts)
    assert layout.lengths.tolist() == [len(own) for own in order]
    assert layout.order.tolist() == [*chain.from_iterable(order)]
    assert layout.offsets.tolist() == [sum(map(len, order[:i])) for i in range(len(order) + 1)]
    for row, own in enumerate(order):
        assert (layout.rows[own] == row).all()
    assert layout.places[layout.order].tolist() == list(range(len(layout.order)))
    check_slots(layout, [own for own in order if own])
    seen = [
        flags.get(name, np.ones(sum(row[i] for row in counts), np.bool_))
        for i, name in enumerate(NAMES)
    ]
    check_hidden(layout, [own for own in order if own], np.concatenate(seen), bool(hiding))


def check_slots(layout: Layout, order: list[list[int]]) -> None:
    assert layout.num_padded == len(order)
    assert layout.max_length == max([len(own) for own in order], default=1)
    padded = layout.source.reshape(layout.num_padded, layout.max_length)
    slots = layout.slots
    for row, own in enumerate(order):
        assert padded[row, : len(own)].tolist() == own
        assert (padded[row, len(own) :] == 0).all()
        first = row * layout.max_length
        assert slots[own].tolist() == list(range(first, first + len(own)))


def check_hidden(
    layout: Layout, order: list[list[int]], visible: NDArray[np.bool_], hides: bool
) -> None:
    """The entity in the first slot is hidden from the one in the second."""
    assert (layout.visible is not None) == hides
    size = layout.max_length
    expected = np.zeros((len(order), size, size), dtype=np.bool_)
    for row, one, two in product(range(len(order)), range(size), range(size)):
        own = order[row]
        if one >= len(own):
            expected[row, one, two] = True
        elif two < len(own):
            expected[row, one, two] = visible[own[two]] and not visible[own[one]]
    if layout.hidden is None:
        assert not expected.any()
        return
    got = np.broadcast_to(layout.hidden, expected.shape)
    for row, own in enumerate(order):  # the mask of an empty slot does not matter
        assert np.array_equal(got[row, :, : len(own)], expected[row, :, : len(own)])


@given(COUNTS, st.data())
def test_indices_of_an_observation_are_found(counts: Counts, data: st.DataObject) -> None:
    order = plain_order(counts)
    chosen = [
        data.draw(st.lists(st.integers(0, len(own) - 1), max_size=4)) if own else []
        for own in order
    ]
    layout = lay_out(batch_with(counts, {}), NAMES)
    packed = layout.packed_index(ragged_index(chosen), "them")
    wanted = [own[i] for own, some in zip(order, chosen, strict=True) for i in some]
    assert packed.tolist() == wanted
    row = data.draw(st.integers(0, len(counts) - 1))
    wrong = data.draw(st.sampled_from([-1, len(order[row]), len(order[row]) + 7]))
    chosen[row].append(wrong)
    size = len(order[row])
    message = f"them: row {row} names entity {wrong}, which is not among its {size} entities"
    with pytest.raises(SchemaError, match=message):
        layout.packed_index(ragged_index(chosen), "them")


THREE = [(1, 1, 0), (0, 0, 0), (2, 1, 1)]
LAYOUT = lay_out(batch_with(THREE, {}), NAMES)


@given(st.data())
def test_categorical_choices_are_those_of_a_loop(data: st.DataObject) -> None:
    order = plain_order(THREE)
    actors = [
        data.draw(st.lists(st.sampled_from(range(len(own))), unique=True)) if own else []
        for own in order
    ]
    count = sum(map(len, actors))
    rows = [row for row, own in enumerate(actors) for _ in own]
    packed = [order[row][i] for row, own in enumerate(actors) for i in own]
    allowed = np.array(
        data.draw(st.lists(st.tuples(*[st.booleans()] * 3), min_size=count, max_size=count)),
        dtype=np.bool_,
    ).reshape(count, 3)
    mask = RaggedArray(allowed, [len(own) for own in actors])
    ways: list[VecActionMask] = [
        VecCategoricalActionMask(ragged_index(actors)),
        VecContinuousActionMask(ragged_index(actors)),
        VecCategoricalActionMask(ragged_index(actors), mask),
    ]
    for way in ways:
        is_masked = isinstance(way, VecCategoricalActionMask) and way.mask is not None
        stuck = [row for row, free in zip(rows, allowed.tolist(), strict=True) if not any(free)]
        if is_masked and stuck:
            with pytest.raises(SchemaError, match=f"actor in row {stuck[0]} has nothing to choose"):
                find_choices("go", way, LAYOUT)
            continue
        choices = find_choices("go", way, LAYOUT)
        assert choices.packed.tolist() == packed
        assert choices.rows.tolist() == rows
        assert choices.actees is None
        assert choices.num_picked == count
        if is_masked:
            assert choices.allowed is not None
            assert choices.allowed.tolist() == allowed.tolist()
        else:
            assert choices.allowed is None


@given(st.data())
def test_select_choices_are_those_of_a_loop(data: st.DataObject) -> None:
    order = plain_order(THREE)
    some = [
        st.lists(st.sampled_from(range(len(own))), unique=True) if own else st.just([])
        for own in order
    ]
    actors, actees = ([data.draw(each) for each in some] for _ in range(2))
    shapes = [(len(a), len(b)) for a, b in zip(actors, actees, strict=True)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    is_masked = data.draw(st.booleans())
    free = [rng.random(shape) < 0.7 if is_masked else np.ones(shape, np.bool_) for shape in shapes]
    flat = np.concatenate([each.reshape(-1) for each in free])
    mask = VecSelectEntityActionMask(
        ragged_index(actors),
        ragged_index(actees),
        RaggedArray(flat, [a * b for a, b in shapes]) if is_masked else None,
    )
    stuck = [row for row, each in enumerate(free) if not each.any(axis=1).all()]
    if stuck:
        with pytest.raises(SchemaError, match=f"actor in row {stuck[0]} has nothing to choose"):
            find_choices("pick", mask, LAYOUT)
        return
    choices = find_choices("pick", mask, LAYOUT)
    check_actees(choices, order, actors, actees)
    width = max(map(len, actees))
    wanted = [[*own, *[False] * (width - len(own))] for each in free for own in each.tolist()]
    if choices.allowed is None:
        assert all(all(own) for own in wanted)
    else:
        assert choices.allowed.tolist() == wanted


def check_actees(
    choices: Choices, order: list[list[int]], actors: list[list[int]], actees: list[list[int]]
) -> None:
    found = choices.actees
    assert found is not None
    assert found.num_rows == 3
    assert found.max_actors == max(map(len, actors))
    assert found.max_actees == max(map(len, actees))
    assert choices.num_picked == sum(map(len, actors)) + sum(map(len, actees))
    assert found.packed.tolist() == [order[row][i] for row, own in enumerate(actees) for i in own]
    for slots, lists, size in (
        (found.slots, actees, found.max_actees),
        (found.actor_slots, actors, found.max_actors),
    ):
        wanted = [row * size + place for row, own in enumerate(lists) for place in range(len(own))]
        assert slots.tolist() == wanted


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            VecCategoricalActionMask(ragged_index([[2], [], []])),
            "actors of action 'x': row 0 names entity 2",
        ),
        (
            VecContinuousActionMask(ragged_index([[], [0], []])),
            "row 1 names entity 0, which is not among its 0",
        ),
        (
            VecSelectEntityActionMask(ragged_index([[], [], [0]]), ragged_index([[], [], [4]])),
            "actees of action 'x': row 2 names entity 4, which is not among its 4",
        ),
        (
            VecSelectEntityActionMask(ragged_index([[0], [], [0]]), ragged_index([[], [], [1]])),
            "actor in row 0 has nothing to choose from; allow it at least one choice",
        ),
    ],
)
def test_what_cannot_be_chosen_raises(mask: VecActionMask, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        find_choices("x", mask, LAYOUT)
