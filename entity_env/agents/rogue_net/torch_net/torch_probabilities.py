"""Log-probabilities of choices and what follows from them, compiled where numba is installed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.torch_net.attention import is_compiled
from entity_env.agents.rogue_net.torch_net.tensors import as_array, as_tensor

FORBIDDEN = -1e30
"""Logit of what is not allowed: finite, so that 0 probability times it is 0 and not NaN."""
ALL = np.empty((0, 0), dtype=np.bool_)
"""Says that all choices are allowed."""


def log_softmax(logits: Tensor, allowed: NDArray[np.bool_] | None) -> Tensor:
    """Normalizes logits; what is not allowed gets a finite logarithm of 0.

    Args:
        logits: `(num_actors, num_choices)` float32.
        allowed: the same shape; None = everything is.
    """
    if not is_compiled(logits.shape[0], logits.device):
        if allowed is not None:
            logits = logits.masked_fill(as_tensor(~allowed, logits.device), FORBIDDEN)
        return torch.log_softmax(logits, dim=-1)
    if not torch.is_grad_enabled():
        return _normalized(logits, ALL if allowed is None else allowed)
    logprobs: Tensor = _LogSoftmax.apply(logits, ALL if allowed is None else allowed)  # type: ignore[no-untyped-call]
    return logprobs


def weigh(logprobs: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probability of a choice of each actor, and the entropy over all: `(num_actors,)`.

    Args:
        logprobs: `(num_actors, num_choices)` float32, normalized.
        samples: `(num_actors,)` int64.

    Raises:
        RuntimeError: there is no such choice.
    """
    if not is_compiled(logprobs.shape[0], logprobs.device):
        chosen = logprobs.gather(1, samples.unsqueeze(1)).squeeze(1)
        return chosen, -(logprobs.exp() * logprobs).sum(dim=1)
    if not torch.is_grad_enabled():
        return _weighed(logprobs, samples)
    both: tuple[Tensor, Tensor] = _Weigh.apply(logprobs, samples)  # type: ignore[no-untyped-call]
    return both


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, logits: Tensor, allowed: NDArray[np.bool_]) -> Tensor:
        logprobs = _normalized(logits, allowed)
        # Not as it is given: a graph that holds itself is only freed by chance.
        ctx.kept = as_array(logprobs), allowed  # type: ignore[attr-defined]  # takes attributes
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_logprobs: Tensor) -> tuple[Tensor, None]:
        from entity_env.agents.rogue_net.kernels.categorical import log_softmax_backward

        logprobs, allowed = ctx.kept  # type: ignore[attr-defined]  # set in forward
        by_logits = by_logprobs.new_empty(by_logprobs.shape)
        log_softmax_backward(as_array(by_logprobs), allowed, logprobs, by_logits.numpy())
        return by_logits, None


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, logprobs: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        ctx.kept = as_array(logprobs), samples.contiguous().numpy()  # type: ignore[attr-defined]
        return _weighed(logprobs, samples)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_chosen: Tensor, by_entropy: Tensor) -> tuple[Tensor, None]:
        from entity_env.agents.rogue_net.kernels.categorical import weigh_backward

        logprobs, samples = ctx.kept  # type: ignore[attr-defined]  # set in forward
        by_logprobs = by_chosen.new_empty(logprobs.shape)
        slopes = as_array(by_chosen), as_array(by_entropy)
        weigh_backward(*slopes, logprobs, samples, by_logprobs.numpy())
        return by_logprobs, None


def _normalized(logits: Tensor, allowed: NDArray[np.bool_]) -> Tensor:
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.categorical import log_softmax as write

    logprobs = logits.new_empty(logits.shape)
    write(as_array(logits), allowed, logprobs.numpy())
    return logprobs


def _weighed(logprobs: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    from entity_env.agents.rogue_net.kernels.categorical import weigh as write

    chosen, entropy = logprobs.new_empty(2, logprobs.shape[0]).unbind()
    places = samples.contiguous().numpy()
    if not write(as_array(logprobs), places, chosen.numpy(), entropy.numpy()):
        logprobs.gather(1, samples.unsqueeze(1))  # raises what it does without numba
    return chosen, entropy
