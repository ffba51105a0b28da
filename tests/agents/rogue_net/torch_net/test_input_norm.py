"""InputNorm recomputes its scale after every change of its statistics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from entity_env.agents.rogue_net.torch_net.embedding import InputNorm

NUMBERS = st.sampled_from([-3.0, -1.0, 0.5, 2.0, 4.0])
ROWS = torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])


@pytest.mark.parametrize("where", [nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made", [nullcontext, torch.inference_mode])
def test_follows_its_statistics(
    where: Callable[[], AbstractContextManager[object]],
    made: Callable[[], AbstractContextManager[object]],
) -> None:
    with made():
        norm = InputNorm(2)
    with torch.inference_mode():
        assert torch.equal(norm(ROWS), ROWS)
    with torch.inference_mode() if made is torch.inference_mode else where():
        norm.update(ROWS)
    with torch.inference_mode():
        torch.testing.assert_close(norm(ROWS), torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
    with torch.inference_mode() if made is torch.inference_mode else where():
        norm.update(ROWS + 100.0)
    with torch.inference_mode():
        assert norm(ROWS)[2, 0] < 0


def test_follows_what_is_loaded_and_moved() -> None:
    norm, other = InputNorm(2), InputNorm(2)
    other.update(ROWS)
    assert torch.equal(norm(ROWS), ROWS)
    norm.load_state_dict(other.state_dict())
    assert torch.equal(norm(ROWS), other(ROWS))
    norm.double().float()
    assert torch.equal(norm(ROWS), other(ROWS))


@given(
    old=hnp.arrays(np.float32, st.tuples(st.integers(2, 9), st.just(3)), elements=NUMBERS),
    new=st.lists(
        hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(3)), elements=NUMBERS),
        min_size=1,
        max_size=4,
    ),
    is_new=hnp.arrays(np.bool_, 3),
    restarts=st.booleans(),
)
def test_new_features_are_counted_as_if_alone(
    old: NDArray[np.float32],
    new: list[NDArray[np.float32]],
    is_new: NDArray[np.bool_],
    restarts: bool,
) -> None:
    """Only the statistics of new features restart; the others continue."""
    norm, of_all, of_new = InputNorm(3), InputNorm(3), InputNorm(3)
    norm.update(torch.from_numpy(old))
    norm.mean[torch.from_numpy(is_new)] = norm.squares_sum[torch.from_numpy(is_new)] = 0.0
    norm.go_on(torch.from_numpy(is_new))
    assert norm.has_statistics != is_new.any()
    if restarts:
        norm.update(torch.full((4, 3), 100.0))
        of_all.update(torch.full((4, 3), 100.0))
    of_all.update(torch.from_numpy(old))
    for i, rows in enumerate(new):
        norm.update(torch.from_numpy(rows), restart=restarts and not i)
        of_all.update(torch.from_numpy(rows))
        of_new.update(torch.from_numpy(rows))
    # After a single row, of_new knows the mean but does not normalize yet.
    expected_new = of_new.mean, of_new.scale()[1]
    for found, of_old, of_those in zip(norm.scale(), of_all.scale(), expected_new, strict=True):
        torch.testing.assert_close(
            found,
            torch.where(torch.from_numpy(is_new), of_those, of_old),
            rtol=1e-3,
            atol=1e-3,
        )
    taken = norm.take()
    assert not norm.count
    norm.put(taken)
    assert all(map(torch.equal, norm.scale(), taken.scale()))
