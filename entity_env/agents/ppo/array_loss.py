"""`ppo_loss` of an MLP and its gradient in numpy; faster than torch for small minibatches."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.rogue_net.torch_net.mlp import MLPGradient
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.core.ragged import Floats


def add_array_gradient(
    arrays: MLPGradient,
    rollout: Rollout,
    inds: NDArray[np.int64],
    advantages: Floats,
    share: float,
    config: CurrentConfig,
    value_unit: float,
) -> tuple[float, Tensor]:
    """Adds `share` times the gradient of `ppo_loss`; returns the whole loss and its metrics.

    Uses torch's subgradients: if two operands of a maximum are equal, each gets half.

    Args:
        arrays: evaluates the network and adds to its gradient.
        inds: decisions of a microbatch.
        advantages: advantages of the microbatch; already normalized if `norm_adv` is set.
        share: the microbatch's share of the minibatch's decisions on all ranks.
        value_unit: standard deviation of returns with `norm_returns`, else 1.
    """
    number = len(inds)
    clip = config.clip_coef
    with np.errstate(over="ignore", invalid="ignore"):  # `learn` checks the loss
        new = arrays.evaluate(inds)
        logratio = new.logprobs - rollout.logprobs[inds]
        ratio = np.exp(logratio)
        weights = -advantages
        unclipped = weights * ratio
        clipped = weights * np.clip(ratio, 1 - clip, 1 + clip)
        larger = np.maximum(unclipped, clipped)
        of_logprobs = weights * (unclipped >= clipped) * ratio

        values, returns = new.values, rollout.returns[inds]
        slope = error = values - returns
        squares = error * error
        if config.clip_vloss:
            most, old_values = clip * value_unit, rollout.values[inds]
            step = values - old_values
            bounded = np.clip(step, -most, most)
            near = old_values + bounded - returns
            near_squares = near * near
            is_first = 0.5 + 0.5 * np.sign(squares - near_squares)
            slope = is_first * error + (1 - is_first) * near * (step == bounded)
            squares = np.maximum(squares, near_squares)

        arrays.add(
            new,
            of_logprobs * (share / number),
            -config.ent_coef * share / number,
            slope * (config.vf_coef * share / (number * value_unit**2)),
        )
        kl, is_clipped = ratio - 1 - logratio, np.abs(ratio - 1) > clip
        summed = (larger, squares, new.entropy, kl, is_clipped)
        pg_loss, v_loss, entropy, *others = (float(np.add.reduce(e)) / number for e in summed)
    v_loss *= 0.5 / value_unit**2
    loss = pg_loss - config.ent_coef * entropy + config.vf_coef * v_loss
    return loss, torch.tensor((pg_loss, v_loss, entropy, *others))
