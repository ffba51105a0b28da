"""Proximal policy optimization (PPO), in reading order.

`collect` plays a rollout, `compute_advantages` estimates the advantages, and `update` learns from
the rollout: `learn` runs epochs of minibatches, with one optimizer step on `ppo_loss` per
minibatch. `Run.update` (run.py) does all this once; `_train` (trainer.py) repeats it until the run
ends.

- Another advantage estimator: replace `compute_advantages`.
- Another loss: change `ppo_loss`, and `array_loss.py`, the equivalent loss of an MLP in numpy.
- An auxiliary target: record it in `collect`, add a field to `Rollout` and `Minibatch`
  (training/rollout_buffer.py), and add its loss in `ppo_loss` and in `array_loss.py`, or make
  `MLPGradient.of` return None.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.ppo.array_loss import add_array_gradient
from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.learner import Learner
from entity_env.agents.ppo.rollout import (
    Collector,
    FinalObservations,
    decide,
    require_finite_output,
)
from entity_env.agents.ppo.teacher import evaluate_beside
from entity_env.agents.rogue_net.torch_net.mlp import MLPGradient
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy, past_argument
from entity_env.agents.rogue_net.torch_net.rollout_policy import fastest_policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.agents.training.peers import ALONE, Moments, Peers
from entity_env.agents.training.rollout_buffer import (
    Minibatch,
    Rollout,
    RolloutBuffer,
    Trajectories,
)
from entity_env.agents.training.tracking.progress import Losses
from entity_env.core.ragged import Floats, RaggedArray
from entity_env.core.vec_obs import VecObs
from entity_env.errors import TrainingDivergedError

_FIGURES: Final = (
    *("policy loss", "value loss", "entropy", "divergence of the policy", "clipped share"),
    *("divergence from the teacher", "agreement with the teacher"),
)
"""Metrics from `ppo_loss`; the last two only with a teacher."""
_NUM_WITHOUT_TEACHER: Final = 5
_MOST_ROWS: Final = 1024
"""Most decisions per microbatch for numpy; on larger ones torch can use several threads."""
_LEAST_DEVIATION: Final = 0.1
"""Smallest divisor of advantages, in standard deviations of returns: advantages below it are mostly
value errors.
"""


def collect(
    collector: Collector, num_steps: int, after_step: Callable[[VecObs], bool | None]
) -> Rollout:
    """Plays `num_steps` steps, continuing from the last rollout.

    If `after_step` returns True, the rollout ends there. Raises `TrainingDivergedError` if outputs
    of the network or returns are not finite, `SchemaError` if a reward or feature is not, and
    `ProtocolError` if the final observation of a truncated episode is missing.
    """
    vec, net, policy = collector.vec, collector.net, fastest_policy(collector.net)
    trajectories = Trajectories.empty(num_steps, len(collector.next_obs))
    logprobs = np.zeros_like(trajectories.rewards)
    buffer, finals, memory = RolloutBuffer(), FinalObservations(), collector.memory
    memory.history = []  # an interrupted rollout leaves its own
    for t in range(num_steps):
        next_obs = collector.next_obs
        output = decide(policy, next_obs, collector.generator, memory)
        require_finite_output(output)
        is_ready = next_obs.is_ready
        rows = None if is_ready.all() else np.flatnonzero(is_ready)
        vec.send(output.actions)
        # Copied while the environments step: `next_obs` stays valid until `recv`.
        buffer.add(next_obs, output.samples, rows)
        trajectories.is_ready[t] = is_ready
        trajectories.values[t] = output.values
        logprobs[t] = output.logprobs

        collector.next_obs = next_obs = vec.recv()
        trajectories.rewards[t] = next_obs.reward
        trajectories.terminated[t] = next_obs.terminated
        trajectories.truncated[t] = next_obs.truncated
        collector.require_finite(trajectories, t)
        finals.add(next_obs, t, memory.before_ends(next_obs))
        memory.restart(next_obs.done)
        if after_step(next_obs):
            trajectories, logprobs = trajectories.first(t + 1), logprobs[: t + 1]
            break
    trajectories.is_ready[-1] = collector.next_obs.is_ready
    if not trajectories.done[-1].all():  # unused if every episode has just ended
        trajectories.values[-1] = net.values(collector.next_obs, **past_argument(memory.past))
    finals.fill(trajectories.final_values, net)

    config, decided = collector.config, np.nonzero(trajectories.is_ready[:-1])
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        advantages, is_known = compute_advantages(trajectories, config.gamma, config.gae_lambda)
        returns = advantages[decided] + trajectories.values[decided]
    _require_finite_returns(returns, trajectories.rewards)
    obs, samples = buffer.joined()
    collector.count(trajectories, obs, samples)
    return Rollout(
        obs=obs,
        samples=samples,
        b_inds=(b_inds := np.flatnonzero(is_known[decided])),
        segments=memory.segments(decided, b_inds, config.memory_steps),
        logprobs=logprobs[decided],
        values=trajectories.values[decided],
        advantages=advantages[decided],
        returns=returns,
    )


def _require_finite_returns(returns: NDArray[np.float32], rewards: NDArray[np.float32]) -> None:
    if not np.isfinite(returns).all():
        raise TrainingDivergedError(
            "the returns do not fit float32: rewards of this rollout reach "
            f"{float(np.abs(rewards).max()):.3g} in absolute value"
        )


def compute_advantages(
    trajectories: Trajectories, gamma: float, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """`(num_steps, num_rows)` advantage of every decision, and whether its outcome is known.

    They are 0 and False where the row makes no decision or the outcome is unknown. An outcome is
    known if, within the rollout, the episode ends or the row decides again.

    Rewards between two decisions of a row belong to the earlier one. The value after an episode is
    0 if it terminated, and the value of its final observation if it was truncated.

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
    (2016), equation 16.
    """
    num_steps = len(trajectories.rewards)
    advantages = np.zeros_like(trajectories.rewards)
    is_known = np.zeros_like(trajectories.terminated)
    # Per row, backward in time: rewards from step t until the next decision or episode end; the
    # value and advantage there; and whether the rollout contains such a decision or end.
    earned = np.zeros_like(trajectories.values[0])
    next_value = trajectories.values[-1].copy()
    next_advantage = np.zeros_like(next_value)
    has_next = trajectories.is_ready[-1].copy()
    done = trajectories.done
    end_values = np.where(trajectories.terminated, np.float32(0), trajectories.final_values)
    for t in reversed(range(num_steps)):
        ended = done[t]
        earned = np.where(ended, 0, earned) + trajectories.rewards[t]
        next_value = np.where(ended, end_values[t], next_value)
        next_advantage = np.where(ended, 0, next_advantage)
        has_next |= ended
        decided = trajectories.is_ready[t]
        is_known[t] = decided & has_next
        delta = earned + gamma * next_value - trajectories.values[t]
        advantages[t] = np.where(is_known[t], delta + gamma * gae_lambda * next_advantage, 0)
        earned = np.where(decided, 0, earned)
        next_value = np.where(decided, trajectories.values[t], next_value)
        next_advantage = np.where(decided, advantages[t], next_advantage)
        has_next |= decided
    return advantages, is_known


def update(
    learner: Learner,
    rollout: Rollout,
    config: CurrentConfig,
    peers: Peers = ALONE,
    teacher: Policy | None = None,
) -> Losses:
    """Learns from a rollout; with `norm_returns`, scales values by the statistics of returns."""
    group = learner.optimizer.param_groups[0]
    group["lr"], group["weight_decay"] = config.learning_rate, config.weight_decay
    learner.returns.update(rollout.returns[rollout.b_inds], peers)
    scale = learner.returns.std
    if config.norm_returns:
        learner.net.scale_values(learner.returns.mean, scale)
    net, optimizer, rng = learner.net, learner.optimizer, learner.rng
    return learn(net, optimizer, rollout, config, rng, scale, peers, teacher)


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
    """Runs epochs of minibatches over a rollout; does nothing if no outcome is known.

    A minibatch contains a part of every rank's rollout, and all ranks take the same step: the
    gradient is the mean over all decisions of the minibatch. The network is in training mode
    meanwhile. Dropout masks depend only on `rng`. `return_scale` is as in `ppo_loss`; `teacher` is
    the network to stay close to. With `target_kl`, stops after an epoch in whose last minibatch
    `approx_kl` exceeded it.

    Raises `TrainingDivergedError` if a loss or a gradient is not finite.
    """
    total, num_units, explained = _explained_variance(rollout, peers)
    num_minibatches = max(1, round(total / config.minibatch_size))
    if rollout.segments is not None:  # every minibatch needs a segment on some rank
        num_minibatches = min(num_minibatches, max(1, num_units // peers.size))
    parameters = list(net.parameters())
    seen: list[Tensor] = []
    net.train()
    try:
        minibatches = _Minibatches.of(net, rollout, config, return_scale, teacher)
        for _ in range(config.update_epochs if total else 0):
            splits = rollout.splits(rng, num_minibatches)
            moments = peers.moments([rollout.advantages[mb_inds] for mb_inds in splits])
            for mb_inds, whole in zip(splits, moments, strict=True):
                for parameter in parameters:
                    parameter.grad = None
                loss, figures = minibatches.add_gradient(mb_inds, whole, rng)
                loss, figures = peers.sum_gradients(parameters, loss, figures)
                norm = _clip_gradient(parameters, config.max_grad_norm)
                if not math.isfinite(norm + loss):
                    raise TrainingDivergedError(_not_finite_figures(norm, figures))
                optimizer.step()
                seen.append(figures)
            if config.target_kl is not None and seen[-1][3] > config.target_kl:
                break
    finally:
        net.eval()
    if not seen:
        return Losses()
    means: list[float] = torch.stack(seen).mean(0).tolist()
    means.insert(_NUM_WITHOUT_TEACHER, explained)
    return Losses(*means)


class _Minibatches(NamedTuple):
    """Computes the gradients of an update's minibatches from these inputs.

    Args:
        old: a copy of the network before the update, if it has dropout.
        teacher: the network to stay close to, if any.
        by_actor: the ratio is that of each actor, see `PPOConfig.ratio`.
        arrays: computes the gradients of small microbatches in numpy; None = always torch.
    """

    net: Policy
    rollout: Rollout
    config: CurrentConfig
    return_scale: float | None = None
    old: Policy | None = None
    teacher: Policy | None = None
    arrays: MLPGradient | None = None
    by_actor: bool = False

    @classmethod
    def of(
        cls,
        net: Policy,
        rollout: Rollout,
        config: CurrentConfig,
        return_scale: float | None,
        teacher: Policy | None,
    ) -> _Minibatches:
        old = copy.deepcopy(net) if _has_dropout(net) else None
        arrays = None
        if teacher is None and old is None:
            samples = {name: each.values for name, each in rollout.samples.items()}
            arrays = MLPGradient.of(net, rollout.obs, samples)
        # For `arrays`, decisions have one actor each: both ratios are equal.
        by_actor = config.ratio == "actor" and arrays is None
        if by_actor and old is None:
            rollout = _with_actor_logprobs(rollout, net, config)
        return cls(net, rollout, config, return_scale, old, teacher, arrays, by_actor)

    def add_gradient(
        self, mb_inds: NDArray[np.int64], whole: Moments, rng: np.random.Generator
    ) -> tuple[float, Tensor]:
        """Adds the gradient of the decisions with these indices; returns their loss and metrics.

        `whole` has the moments of the minibatch's advantages on all ranks. Losses and metrics are
        weighted by this rank's share of the decisions, so their sum over all ranks is a mean.
        """
        config, scale = self.config, self.return_scale
        num_figures = _NUM_WITHOUT_TEACHER if self.teacher is None else len(_FIGURES)
        loss_sum, figures = 0.0, torch.zeros(num_figures, device=self.net.device)
        for inds, advantages, share in self._parts(mb_inds, whole):
            if self.arrays is not None and len(inds) <= _MOST_ROWS:
                unit = _value_unit(config, scale)
                loss, own = add_array_gradient(
                    self.arrays, self.rollout, inds, advantages, share, config, unit
                )
            else:
                minibatch = replace(self.rollout.minibatch(inds), advantages=advantages)
                new, minibatch = self._evaluate(minibatch, rng)
                loss_tensor, own = ppo_loss(new, minibatch, config, scale)
                (loss_tensor * share).backward()  # type: ignore[no-untyped-call]  # untyped
                loss = float(loss_tensor.detach())
            loss_sum += loss * share
            figures = figures + own * share
        return loss_sum, figures

    def _parts(
        self, mb_inds: NDArray[np.int64], whole: Moments
    ) -> Iterator[tuple[NDArray[np.int64], Floats, float]]:
        """Microbatches: indices, advantages, share of the minibatch's decisions on all ranks.

        The advantages are normalized if `norm_adv` is set.
        """
        advantages = self.rollout.advantages[mb_inds]
        if self.config.norm_adv:
            advantages = normalized(advantages, whole, self.return_scale)
        most = self.config.microbatch_size or max(len(mb_inds), 1)
        parts = self.rollout.parts(mb_inds, most)
        if len(parts) == 1:
            yield mb_inds, advantages, len(mb_inds) / whole.number
        else:
            for at in parts:
                yield mb_inds[at], advantages[at], len(at) / whole.number

    def _evaluate(
        self, minibatch: Minibatch, rng: np.random.Generator
    ) -> tuple[Evaluation, Minibatch]:
        """Evaluates the network; returns its output and the minibatch.

        With dropout, the old network is evaluated again with the same mask, and the minibatch gets
        its log-probabilities and values, so both networks agree before the first step.
        """
        if self.old is None:
            return self._new(minibatch), minibatch
        seed = int(rng.integers(2**63))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            with torch.no_grad():
                old = evaluate_beside(None, self.old, minibatch, by_actor=self.by_actor)
            torch.manual_seed(seed)
            new = self._new(minibatch)
        logprobs, values = (each.cpu().numpy() for each in (old.logprobs, old.values))
        actors = None if old.actors is None else old.actors.logprobs.cpu().numpy()
        return new, replace(minibatch, logprobs=logprobs, values=values, actor_logprobs=actors)

    def _new(self, minibatch: Minibatch) -> Evaluation:
        return evaluate_beside(self.teacher, self.net, minibatch, by_actor=self.by_actor)


@torch.no_grad()
def _with_actor_logprobs(rollout: Rollout, net: Policy, config: CurrentConfig) -> Rollout:
    """The rollout with the log-probabilities of actors: the network must still be that of it."""
    segments, b_inds = rollout.segments, rollout.b_inds
    order = b_inds if segments is None else segments.decisions.values
    place, lengths = np.zeros(len(rollout), np.int64), np.zeros(len(order), np.int64)
    place[order] = np.arange(1, len(order) + 1)
    logprobs = [np.zeros(0, np.float32)]
    for at in rollout.parts(order, config.microbatch_size or config.minibatch_size):
        found = evaluate_beside(None, net, rollout.minibatch(order[at]), by_actor=True).actors
        if found is not None:
            logprobs.append(found.logprobs.cpu().numpy())
            lengths[at] = np.bincount(found.rows.cpu().numpy(), minlength=len(at))
    # The first sequence is for all decisions without a known outcome.
    ragged = RaggedArray.unchecked(np.concatenate(logprobs), np.concatenate(([0], lengths)))
    return replace(rollout, actor_logprobs=ragged[place])


def _has_dropout(net: nn.Module) -> bool:
    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    return any(isinstance(module, kinds) and module.p > 0 for module in net.modules())


def ppo_loss(
    new: Evaluation,
    minibatch: Minibatch,
    config: CurrentConfig,
    return_scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO loss: clipped policy objective, clipped value loss, entropy bonus; and its metrics.

    With a ratio for each actor, the policy objective is the sum over the actors, which has the
    gradient of the joint ratio until the first step. Adds the divergence from a teacher if `new`
    was compared with one. The metrics are in the order of `_FIGURES`, without gradients.
    `return_scale` is the standard deviation of returns, the unit of the value loss with
    `norm_returns`.

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
    if new.actors is None or minibatch.actor_logprobs is None:
        objective, is_clipped = _clipped(ratio, advantages, config)
    else:
        rows, logprobs = new.actors
        old_actors = as_tensor(minibatch.actor_logprobs, rows.device)
        by_actor = _clipped((logprobs - old_actors).exp(), advantages[rows], config)
        objective, is_clipped, counts = (
            torch.zeros_like(ratio).index_add(0, rows, each)
            for each in (*by_actor, torch.ones_like(logprobs))
        )
        is_clipped = is_clipped / counts.clamp_min(1)
    pg_loss = objective.mean()
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
        figures = torch.stack((pg_loss, v_loss, entropy, approx_kl, is_clipped.mean()))
    if new.teacher_kl is not None and new.agreement is not None:
        teacher_kl = new.teacher_kl.mean()
        loss = loss + config.stay_close * teacher_kl
        compared = torch.stack((teacher_kl.detach(), new.agreement.mean()))
        figures = torch.cat((figures, compared))
    return loss, figures


def _clipped(ratio: Tensor, advantages: Tensor, config: CurrentConfig) -> tuple[Tensor, Tensor]:
    """The clipped policy loss of each ratio, and 1.0 where the ratio is out of bounds."""
    clipped = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
    loss = torch.max(-advantages * ratio, -advantages * clipped)
    return loss, ((ratio.detach() - 1).abs() > config.clip_coef).float()


def _value_unit(config: CurrentConfig, return_scale: float | None) -> float:
    return return_scale if config.norm_returns and return_scale is not None else 1.0


def normalized(advantages: Floats, whole: Moments, return_scale: float | None) -> Floats:
    """Advantages with mean 0 and a standard deviation of at most 1 over the whole minibatch.

    The divisor is at least a tenth of the standard deviation of returns: if all outcomes are equal,
    advantages are only value errors, and must not be scaled up. A single advantage stays as is.
    """
    if whole.number < 2:
        return advantages
    least = 1e-8 + _LEAST_DEVIATION * (return_scale or 0.0)
    return (advantages - whole.mean) / max(whole.std, least)


def _clip_gradient(parameters: Sequence[Tensor], max_norm: float) -> float:
    """Scales the gradient to at most this norm; returns the original norm."""
    if parameters[0].device.type != "cpu":
        return float(nn.utils.clip_grad_norm_(parameters, max_norm))
    # Takes a third of the time of torch's function, because most gradients need no scaling.
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = float(torch.cat([each.reshape(-1) for each in gradients]).norm())
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:
        for each in gradients:
            each.mul_(scale)
    return norm


def _not_finite_figures(norm: float, figures: Tensor) -> str:
    given = [*zip(_FIGURES, figures.tolist(), strict=False), ("norm of the gradient", norm)]
    bad = [f"{name} {value}" for name, value in given if not math.isfinite(value)]
    return f"not finite: {', '.join(bad) or 'the loss'}"


def _explained_variance(rollout: Rollout, peers: Peers) -> tuple[int, int, float]:
    """Decisions with a known outcome and `Rollout.num_units`, on all ranks; explained variance.

    The last is `Losses.explained_variance`.
    """
    returns = rollout.returns[rollout.b_inds].astype(np.float64)
    errors = returns - rollout.values[rollout.b_inds]
    all_, left, units = peers.moments((returns, errors, np.zeros(rollout.num_units)))
    explained = 1 - left.squares / all_.squares if all_.squares else float("nan")
    return int(all_.number), int(units.number), explained
