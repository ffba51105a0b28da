"""Learns from one rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.gae import compute_advantages
from entity_env.agents.ppo.logging import Losses
from entity_env.agents.ppo.loss import Before, ppo_loss
from entity_env.agents.ppo.rollout import Rollout
from entity_env.agents.ppo.rollout_buffer import FrozenDecisions
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.errors import TrainingDivergedError


@dataclass(frozen=True, slots=True)
class Batch:
    """The decisions of a rollout that can be learnt from; `(num_decisions,)` arrays.

    Args:
        decisions: what was observed and done, all decisions of the rollout.
        b_inds: `(num_learnable,)` int64, those among them whose outcome is known.
        logprobs, values: float32, as the policy of the rollout gave them.
        advantages, returns: float32.
    """

    decisions: FrozenDecisions
    b_inds: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]


def make_batch(rollout: Rollout, config: PPOConfig) -> Batch:
    """Finds out what every decision was worth.

    Raises:
        TrainingDivergedError: more than float32 can hold.
    """
    what, place = rollout.trajectories, (rollout.steps, rollout.rows)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        advantages, is_known = compute_advantages(what, config.gamma, config.gae_lambda)
        returns = advantages[place] + what.values[place]
    if not np.isfinite(returns).all():
        largest = float(np.abs(what.rewards).max())
        raise TrainingDivergedError(
            f"the returns are beyond float32: a reward of this rollout was {largest:.3g} or -"
            f"{largest:.3g}"
        )
    return Batch(
        decisions=rollout.decisions,
        b_inds=np.flatnonzero(is_known[place]),
        logprobs=rollout.logprobs,
        values=what.values[place],
        advantages=advantages[place],
        returns=returns,
    )


def learn(
    net: RogueNet,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: PPOConfig,
    ent_coef: float,
    rng: np.random.Generator,
) -> Losses:
    """Improves the network by some epochs over a batch; a batch of nothing changes nothing.

    Raises:
        TrainingDivergedError: a loss or gradient is not finite; the optimizer has not used it.
    """
    num_minibatches = max(1, round(len(batch.b_inds) / config.minibatch_size))
    seen: list[Tensor] = []
    parameters = list(net.parameters())
    for _ in range(config.update_epochs if len(batch.b_inds) else 0):
        for mb_inds in np.array_split(rng.permutation(batch.b_inds), num_minibatches):
            loss, figures = minibatch_loss(net, batch, mb_inds, config, ent_coef)
            for parameter in parameters:
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            norm = _clip(parameters, config.max_grad_norm)
            if not math.isfinite(norm + float(loss.detach())):
                raise TrainingDivergedError(_what_diverged(norm, figures))
            optimizer.step()
            seen.append(figures)
        if config.target_kl is not None and seen[-1][3] > config.target_kl:
            break
    if not seen:
        return Losses()
    policy_loss, value_loss, entropy, approx_kl, clip_fraction = torch.stack(seen).mean(0).tolist()
    return Losses(
        policy_loss, value_loss, entropy, approx_kl, clip_fraction, _explained_variance(batch)
    )


def minibatch_loss(
    net: RogueNet,
    batch: Batch,
    mb_inds: NDArray[np.int64],
    config: PPOConfig,
    ent_coef: float,
) -> tuple[Tensor, Tensor]:
    """The loss of some decisions, and its figures: the first five fields of `Losses`."""
    stored = batch.decisions.gather(mb_inds)
    new = net.evaluate(stored.obs, stored.samples)
    old = Before(batch.logprobs, batch.values, batch.advantages, batch.returns)
    return ppo_loss(new, old, mb_inds, config, ent_coef)


def _what_diverged(norm: float, figures: Tensor) -> str:
    names = ("policy loss", "value loss", "entropy", "divergence of the policy")
    given = dict(zip(names, figures.tolist(), strict=False))
    bad = [f"{name} {value}" for name, value in given.items() if not math.isfinite(value)]
    return f"not finite: {', '.join([*bad, f'length of the gradient {norm}'])}"


def _clip(parameters: Sequence[Tensor], longest: float) -> float:
    """Shortens the gradient if it is longer than that; returns how long it was."""
    if parameters[0].device.type != "cpu":
        return float(nn.utils.clip_grad_norm_(parameters, longest))
    # The same in a third of the time, for there is nothing to shorten most of the time.
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = float(torch.cat([each.reshape(-1) for each in gradients]).norm())
    scale = longest / (norm + 1e-6)
    if not scale >= 1:
        for each in gradients:
            each.mul_(scale)
    return norm


def _explained_variance(batch: Batch) -> float:
    returns, values = batch.returns[batch.b_inds], batch.values[batch.b_inds]
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else float("nan")
