"""Learns from one rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.advantages import compute_advantages
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.loss import Before, ppo_loss
from entity_env.agents.ppo.progress import Losses
from entity_env.agents.ppo.rollout import Rollout
from entity_env.agents.ppo.storage import FrozenDecisions
from entity_env.agents.rogue_net.torch_net import RogueNet


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
    """Finds out what every decision was worth."""
    what, place = rollout.trajectories, (rollout.steps, rollout.rows)
    advantages, is_known = compute_advantages(what, config.gamma, config.gae_lambda)
    return Batch(
        decisions=rollout.decisions,
        b_inds=np.flatnonzero(is_known[place]),
        logprobs=rollout.logprobs,
        values=what.values[place],
        advantages=advantages[place],
        returns=advantages[place] + what.values[place],
    )


def learn(
    net: RogueNet,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: PPOConfig,
    ent_coef: float,
    rng: np.random.Generator,
) -> Losses:
    """Improves the network by some epochs over a batch; a batch of nothing changes nothing."""
    num_minibatches = max(1, round(len(batch.b_inds) / config.minibatch_size))
    seen: list[Tensor] = []
    parameters = list(net.parameters())
    for _ in range(config.update_epochs if len(batch.b_inds) else 0):
        for mb_inds in np.array_split(rng.permutation(batch.b_inds), num_minibatches):
            loss, figures = minibatch_loss(net, batch, mb_inds, config, ent_coef)
            for parameter in parameters:
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            _clip(parameters, config.max_grad_norm)
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


def _clip(parameters: Sequence[Tensor], longest: float) -> None:
    """Shortens the gradient if it is longer than that."""
    if parameters[0].device.type != "cpu":
        nn.utils.clip_grad_norm_(parameters, longest)
        return
    # The same in a third of the time, for there is nothing to shorten most of the time.
    gradients = [each.grad for each in parameters if each.grad is not None]
    scale = longest / (float(torch.cat([each.reshape(-1) for each in gradients]).norm()) + 1e-6)
    if not scale >= 1:
        for each in gradients:
            each.mul_(scale)


def _explained_variance(batch: Batch) -> float:
    returns, values = batch.returns[batch.b_inds], batch.values[batch.b_inds]
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else float("nan")
