"""Learns from one rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.advantages import compute_advantages
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.progress import Losses
from entity_env.agents.ppo.rollout import Rollout
from entity_env.agents.ppo.storage import FrozenDecisions
from entity_env.agents.rogue_net.torch_net import RogueNet
from entity_env.agents.rogue_net.torch_tensors import as_tensor


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
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
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
    """The loss of some decisions, and its figures: the first five fields of `Losses`.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), equations 7 and 9.
    """

    def pick(values: NDArray[np.float32]) -> Tensor:
        return as_tensor(values[mb_inds], net.device)

    stored = batch.decisions.gather(mb_inds)
    new = net.evaluate(stored.obs, stored.samples)
    logratio = new.logprobs - pick(batch.logprobs)
    ratio = logratio.exp()
    advantages = pick(batch.advantages)
    if config.norm_adv and len(mb_inds) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    clipped = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
    pg_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
    v_loss = _value_loss(new.values, pick(batch.values), pick(batch.returns), config)
    entropy = new.entropy.mean()
    loss = pg_loss - ent_coef * entropy + config.vf_coef * v_loss
    with torch.no_grad():
        approx_kl = (ratio - 1 - logratio).mean()
        clip_fraction = ((ratio - 1).abs() > config.clip_coef).float().mean()
        figures = torch.stack((pg_loss, v_loss, entropy, approx_kl, clip_fraction))
    return loss, figures


def _value_loss(values: Tensor, old_values: Tensor, returns: Tensor, config: PPOConfig) -> Tensor:
    error = (values - returns).square()
    if config.clip_vloss:
        near = old_values + (values - old_values).clamp(-config.clip_coef, config.clip_coef)
        error = torch.max(error, (near - returns).square())
    return 0.5 * error.mean()


def _explained_variance(batch: Batch) -> float:
    returns, values = batch.returns[batch.b_inds], batch.values[batch.b_inds]
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else float("nan")
