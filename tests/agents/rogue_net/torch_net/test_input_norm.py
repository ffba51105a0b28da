"""InputNorm works its scale out anew whenever its statistics have changed, however they did."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from entity_env.agents.rogue_net.torch_net.embedding import InputNorm

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
