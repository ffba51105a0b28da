"""The PPO update: loss and optimizer steps over one rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.logging import Losses
from entity_env.agents.ppo.rollout_buffer import Minibatch, Rollout
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.errors import TrainingDivergedError

_LEAST_DEVIATION: Final = 0.02


def learn(
    net: Policy,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    config: PPOConfig,
    ent_coef: float,
    rng: np.random.Generator,
    return_scale: float | None = None,
) -> Losses:
    """Some epochs of minibatches over a rollout; changes nothing if no outcome is known."""
    num_minibatches = max(1, round(len(rollout.b_inds) / config.minibatch_size))
    seen: list[Tensor] = []
    parameters = list(net.parameters())
    for _ in range(config.update_epochs if len(rollout.b_inds) else 0):
        for mb_inds in np.array_split(rng.permutation(rollout.b_inds), num_minibatches):
            loss, figures = minibatch_loss(net, rollout, mb_inds, config, ent_coef, return_scale)
            for parameter in parameters:
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            norm = _clip_gradient(parameters, config.max_grad_norm)
            if not math.isfinite(norm + float(loss.detach())):
                raise TrainingDivergedError(_not_finite_figures(norm, figures))
            optimizer.step()
            seen.append(figures)
        if config.target_kl is not None and seen[-1][3] > config.target_kl:
            break
    if not seen:
        return Losses()
    policy_loss, value_loss, entropy, approx_kl, clip_fraction = torch.stack(seen).mean(0).tolist()
    return Losses(
        policy_loss, value_loss, entropy, approx_kl, clip_fraction, _explained_variance(rollout)
    )


def minibatch_loss(
    net: Policy,
    rollout: Rollout,
    mb_inds: NDArray[np.int64],
    config: PPOConfig,
    ent_coef: float,
    return_scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`ppo_loss` of some decisions of a rollout."""
    minibatch = rollout.minibatch(mb_inds)
    new = net.evaluate(minibatch.obs, minibatch.samples)
    return ppo_loss(new, minibatch, config, ent_coef, return_scale)


def ppo_loss(
    new: Evaluation,
    minibatch: Minibatch,
    config: PPOConfig,
    ent_coef: float,
    return_scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO loss: clipped policy objective, clipped value loss, entropy bonus.

    The value loss is in units of `return_scale`, the deviation of returns; None = raw returns.
    Advantages are divided by their own deviation, but by no less than a share of that scale: where
    all outcomes are equal, they are errors of the value, which must not become large ones.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), equations 7 and 9; the value
    loss is clipped as in OpenAI's baselines.
    """
    old_logprobs, old_values, advantages, returns = (
        as_tensor(each, new.values.device)
        for each in (minibatch.logprobs, minibatch.values, minibatch.advantages, minibatch.returns)
    )
    scale = 1.0 if return_scale is None else return_scale
    logratio = new.logprobs - old_logprobs
    ratio = logratio.exp()
    if config.norm_adv and len(advantages) > 1:
        deviation = advantages.std().clamp_min(1e-8 + _LEAST_DEVIATION * (return_scale or 0.0))
        advantages = (advantages - advantages.mean()) / deviation

    clipped = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
    pg_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
    error = (new.values - returns).square()
    if config.clip_vloss:
        most = config.clip_coef * scale
        step = (new.values - old_values).clamp(-most, most)
        error = torch.max(error, (old_values + step - returns).square())
    v_loss = 0.5 * error.mean() / scale**2
    entropy = new.entropy.mean()
    loss = pg_loss - ent_coef * entropy + config.vf_coef * v_loss
    with torch.no_grad():
        approx_kl = (ratio - 1 - logratio).mean()
        clip_fraction = ((ratio - 1).abs() > config.clip_coef).float().mean()
        figures = torch.stack((pg_loss, v_loss, entropy, approx_kl, clip_fraction))
    return loss, figures


def _not_finite_figures(norm: float, figures: Tensor) -> str:
    names = ("policy loss", "value loss", "entropy", "divergence of the policy")
    given = dict(zip(names, figures.tolist(), strict=False))
    bad = [f"{name} {value}" for name, value in given.items() if not math.isfinite(value)]
    return f"not finite: {', '.join([*bad, f'length of the gradient {norm}'])}"


def _clip_gradient(parameters: Sequence[Tensor], max_norm: float) -> float:
    """Scales the gradient to at most that norm; returns the norm before."""
    if parameters[0].device.type != "cpu":
        return float(nn.utils.clip_grad_norm_(parameters, max_norm))
    # The same in a third of the time, for most gradients are short enough.
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = float(torch.cat([each.reshape(-1) for each in gradients]).norm())
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:
        for each in gradients:
            each.mul_(scale)
    return norm


def _explained_variance(rollout: Rollout) -> float:
    returns, values = rollout.returns[rollout.b_inds], rollout.values[rollout.b_inds]
    variance = float(np.var(returns))
    return 1 - float(np.var(returns - values)) / variance if variance else float("nan")
