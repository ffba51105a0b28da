"""The PPO update: loss and optimizer steps over one rollout."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.learner import evaluate_beside
from entity_env.agents.ppo.peers import ALONE, Peers
from entity_env.agents.ppo.rollout_buffer import Minibatch, Rollout
from entity_env.agents.ppo.tracking.progress import Losses
from entity_env.agents.rogue_net.torch_net.mlp import MLPGradient
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.core.ragged import Floats
from entity_env.errors import TrainingDivergedError

_NUM_FIGURES: Final = 5
_NUM_TEACHER_FIGURES: Final = 2
"""More of them with a teacher: the divergence from it, and the agreement."""
_MOST_ROWS: Final = 1024
"""Of a minibatch in arrays: where there are more, torch can use several threads."""
_LEAST_DEVIATION: Final = 0.1
"""Of advantages, in deviations of returns: what is below that is mostly errors of the value."""


def learn(
    net: Policy,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    config: CurrentConfig,
    rng: np.random.Generator,
    return_scale: float | None = None,
    peers: Peers = ALONE,
    teacher: Policy | None = None,
) -> Losses:
    """Some epochs of minibatches over a rollout; changes nothing if no outcome is known.

    A minibatch has a part of the rollout of every rank, and all take the same step: the gradient
    is the mean over the decisions of all. Its network is in training mode meanwhile. What dropout
    zeroes depends on `rng` alone. `teacher` is the network to stay close to.
    """
    total, explained = _explained_variance(rollout, peers)
    net.train()
    try:
        old = copy.deepcopy(net) if _has_dropout(net) else None
        arrays = None
        if teacher is None and old is None:
            samples = {name: each.values for name, each in rollout.samples.items()}
            arrays = MLPGradient.of(net, rollout.obs, samples)
        minibatches = _Minibatches(net, old, rollout, config, return_scale, peers, teacher, arrays)
        seen = _descend(minibatches, optimizer, rng, total)
    finally:
        net.eval()
    if not seen:
        return Losses()
    figures = torch.stack(seen).mean(0).tolist()
    return Losses(*[*figures[:_NUM_FIGURES], explained, *figures[_NUM_FIGURES:]])


class _Moments(NamedTuple):
    """Number, mean and deviation of the advantages of a minibatch, of all ranks."""

    number: float
    mean: float
    std: float

    @classmethod
    def of(cls, number: float, mean: float, squares: float) -> _Moments:
        return cls(number, mean, math.sqrt(squares / max(number - 1, 1)))


class _Minibatches(NamedTuple):
    """What the gradient of a minibatch depends on.

    Args:
        old: a copy of the network before it learnt, if it has dropout.
        teacher: the network to stay close to, if there is one.
        arrays: what computes the gradient instead of torch, if it can.
    """

    net: Policy
    old: Policy | None
    rollout: Rollout
    config: CurrentConfig
    return_scale: float | None
    peers: Peers = ALONE
    teacher: Policy | None = None
    arrays: MLPGradient | None = None

    def add_gradient(
        self,
        mb_inds: NDArray[np.int64],
        rng: np.random.Generator,
        moments: _Moments,
    ) -> tuple[float, Tensor]:
        """Adds the gradient of the decisions of that index; returns their loss and figures.

        `moments` are those of the advantages of all ranks, whose shares add up to 1.
        """
        num_figures = _NUM_FIGURES + (_NUM_TEACHER_FIGURES if self.teacher is not None else 0)
        loss_sum, figures = 0.0, torch.zeros(num_figures, device=self.net.device)
        for inds, advantages, share in self._parts(mb_inds, moments):
            if self.arrays is not None and len(inds) <= _MOST_ROWS:
                loss, own = self._add_array_gradient(self.arrays, inds, advantages, share)
            else:
                minibatch = replace(self.rollout.minibatch(inds), advantages=advantages)
                new, minibatch = self._evaluate(minibatch, rng)
                loss_tensor, own = ppo_loss(new, minibatch, self.config, self.return_scale)
                (loss_tensor * share).backward()  # type: ignore[no-untyped-call]  # torch leaves it so
                loss = float(loss_tensor.detach())
            loss_sum += loss * share
            figures = figures + own * share
        return loss_sum, figures

    def _parts(
        self, mb_inds: NDArray[np.int64], moments: _Moments
    ) -> Iterator[tuple[NDArray[np.int64], Floats, float]]:
        """Indices of microbatches, with their advantages, and their shares of the whole."""
        advantages = self.rollout.advantages[mb_inds]
        if self.config.norm_adv:
            advantages = _normalized(advantages, moments, self.return_scale)
        most = self.config.microbatch_size or max(len(mb_inds), 1)
        num_parts = math.ceil(len(mb_inds) / most)
        for at in np.array_split(np.arange(len(mb_inds)), num_parts) if num_parts else ():
            yield mb_inds[at], advantages[at], len(at) / moments.number

    def _add_array_gradient(
        self,
        arrays: MLPGradient,
        inds: NDArray[np.int64],
        advantages: Floats,
        share: float,
    ) -> tuple[float, Tensor]:
        """Adds a share of the gradient of `ppo_loss`; returns its loss and figures.

        The slopes are those of torch: of the larger of two that are equal, half of each.
        """
        config, number, before = self.config, len(inds), self.rollout
        clip = config.clip_coef
        with np.errstate(over="ignore", invalid="ignore"):  # see `TrainingDivergedError`
            new = arrays.evaluate(inds)
            logratio = new.logprobs - before.logprobs[inds]
            ratio = np.exp(logratio)
            weights = -advantages
            unclipped = weights * ratio
            clipped = weights * np.clip(ratio, 1 - clip, 1 + clip)
            larger = np.maximum(unclipped, clipped)
            of_logprobs = weights * (unclipped >= clipped) * ratio

            values, returns = new.values, before.returns[inds]
            slope = error = values - returns
            squares = error * error
            scale = _value_unit(config, self.return_scale)
            if config.clip_vloss:
                most, old_values = clip * scale, before.values[inds]
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
                slope * (config.vf_coef * share / (number * scale**2)),
            )
            kl, is_clipped = ratio - 1 - logratio, np.abs(ratio - 1) > clip
            summed = (larger, squares, new.entropy, kl, is_clipped)
            pg_loss, v_loss, entropy, *others = (float(np.add.reduce(e)) / number for e in summed)
        v_loss *= 0.5 / scale**2
        loss = pg_loss - config.ent_coef * entropy + config.vf_coef * v_loss
        return loss, torch.tensor((pg_loss, v_loss, entropy, *others))

    def moments(self, splits: Sequence[NDArray[np.int64]]) -> list[_Moments]:
        """Those of the advantages of every minibatch, of all ranks."""
        parts = np.stack(self.peers.moments([self.rollout.advantages[each] for each in splits]), 1)
        return [_Moments.of(*each) for each in parts.tolist()]

    def _evaluate(
        self, minibatch: Minibatch, rng: np.random.Generator
    ) -> tuple[Evaluation, Minibatch]:
        """The samples by the network; with dropout, also by the one before, in the minibatch.

        A ratio of probabilities compares two policies: with dropout, those with the same units
        zeroed, which are equal before the first step.
        """
        if self.old is None:
            return evaluate_beside(self.teacher, self.net, minibatch), minibatch
        seed = int(rng.integers(2**63))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            with torch.no_grad():
                old = self.old.evaluate(minibatch.obs, minibatch.samples)
            torch.manual_seed(seed)
            new = evaluate_beside(self.teacher, self.net, minibatch)
        logprobs, values = (each.cpu().numpy() for each in (old.logprobs, old.values))
        return new, replace(minibatch, logprobs=logprobs, values=values)


def _has_dropout(net: nn.Module) -> bool:
    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    return any(isinstance(module, kinds) and module.p > 0 for module in net.modules())


def _descend(
    minibatches: _Minibatches,
    optimizer: torch.optim.Optimizer,
    rng: np.random.Generator,
    total: int,
) -> list[Tensor]:
    """The figures of every minibatch, after a step of the optimizer for each.

    `total` is the number of decisions of all ranks with a known outcome.
    """
    config, b_inds = minibatches.config, minibatches.rollout.b_inds
    peers = minibatches.peers
    num_minibatches = max(1, round(total / config.minibatch_size))
    seen: list[Tensor] = []
    parameters = list(minibatches.net.parameters())

    for _ in range(config.update_epochs if total else 0):
        splits = np.array_split(rng.permutation(b_inds), num_minibatches)
        for mb_inds, moments in zip(splits, minibatches.moments(splits), strict=True):
            for parameter in parameters:
                parameter.grad = None
            loss, figures = minibatches.add_gradient(mb_inds, rng, moments)
            loss, figures = peers.sum_gradients(parameters, loss, figures)
            norm = _clip_gradient(parameters, config.max_grad_norm)
            if not math.isfinite(norm + loss):
                raise TrainingDivergedError(_not_finite_figures(norm, figures))
            optimizer.step()
            seen.append(figures)
        if config.target_kl is not None and seen[-1][3] > config.target_kl:
            break
    return seen


def ppo_loss(
    new: Evaluation,
    minibatch: Minibatch,
    config: CurrentConfig,
    return_scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO loss: clipped policy objective, clipped value loss, entropy bonus.

    Where `new` was compared with a teacher, the divergence from it is added.
    `return_scale` is the deviation of returns, the unit of the value loss with `norm_returns`.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), equations 7 and 9; the value
    loss is clipped as in OpenAI's baselines.
    """
    old_logprobs, old_values, advantages, returns = (
        as_tensor(each, new.values.device)
        for each in (minibatch.logprobs, minibatch.values, minibatch.advantages, minibatch.returns)
    )
    scale = _value_unit(config, return_scale)
    logratio = new.logprobs - old_logprobs
    ratio = logratio.exp()
    clipped = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
    pg_loss = torch.max(-advantages * ratio, -advantages * clipped).mean()
    error = (new.values - returns).square()
    if config.clip_vloss:
        most = config.clip_coef * scale
        step = (new.values - old_values).clamp(-most, most)
        error = torch.max(error, (old_values + step - returns).square())
    v_loss = 0.5 * error.mean() / scale**2
    entropy = new.entropy.mean()
    loss = pg_loss - config.ent_coef * entropy + config.vf_coef * v_loss
    with torch.no_grad():
        approx_kl = (ratio - 1 - logratio).mean()
        clip_fraction = ((ratio - 1).abs() > config.clip_coef).float().mean()
        figures = torch.stack((pg_loss, v_loss, entropy, approx_kl, clip_fraction))
    if new.teacher_kl is not None and new.agreement is not None:
        teacher_kl = new.teacher_kl.mean()
        loss = loss + config.stay_close * teacher_kl
        compared = torch.stack((teacher_kl.detach(), new.agreement.mean()))
        figures = torch.cat((figures, compared))
    return loss, figures


def _value_unit(config: CurrentConfig, return_scale: float | None) -> float:
    return return_scale if config.norm_returns and return_scale is not None else 1.0


def _normalized(advantages: Floats, moments: _Moments, return_scale: float | None) -> Floats:
    """Advantages with mean 0 and about deviation 1 over the whole minibatch.

    They are divided by their deviation, but by no less than a share of that of returns: where all
    outcomes are equal, they are errors of the value, which must not become large ones.
    """
    if moments.number < 2:
        return advantages
    least = 1e-8 + _LEAST_DEVIATION * (return_scale or 0.0)
    return (advantages - moments.mean) / max(moments.std, least)


def _not_finite_figures(norm: float, figures: Tensor) -> str:
    names = (
        *("policy loss", "value loss", "entropy", "divergence of the policy", "clipped share"),
        "divergence from the teacher",
    )
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


def _explained_variance(rollout: Rollout, peers: Peers) -> tuple[int, float]:
    """Number of decisions of all ranks with a known outcome, and the explained variance."""
    returns = rollout.returns[rollout.b_inds].astype(np.float64)
    errors = returns - rollout.values[rollout.b_inds]
    (total, _), _, (variance, left) = peers.moments((returns, errors))
    return int(total), float(1 - left / variance) if variance else float("nan")
