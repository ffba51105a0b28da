"""What an update makes small: Schulman et al., "Proximal Policy Optimization Algorithms" (2017).

Equations 7 and 9, with the value clipped as it is usually done, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.rogue_net.torch_net.net import Evaluation
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor


class Before(NamedTuple):
    """The decisions of a rollout as they were made; `(num_decisions,)` float32 arrays."""

    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]


def ppo_loss(
    new: Evaluation, old: Before, mb_inds: NDArray[np.int64], config: PPOConfig, ent_coef: float
) -> tuple[Tensor, Tensor]:
    """The loss of some decisions, and its figures: the first five fields of `Losses`.

    Args:
        new: the decisions of the minibatch as the network sees them now.
        old: all decisions of the rollout.
        mb_inds: which of them the minibatch has.
        config: settings.
        ent_coef: reward for entropy, in nats a decision.
    """
    picked = (as_tensor(each[mb_inds], new.values.device) for each in old)
    old_logprobs, old_values, advantages, returns = picked
    logratio = new.logprobs - old_logprobs
    ratio = logratio.exp()
    if config.norm_adv and len(mb_inds) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    clipped = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
    pg_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
    v_loss = _value_loss(new.values, old_values, returns, config)
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
