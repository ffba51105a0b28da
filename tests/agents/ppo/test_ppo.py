"""Losses and gradients of a PPO update equal formulas written in numpy."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env import ActionSpace, ObsSpace
from entity_env.agents.ppo import Policy, train
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.ppo import _Minibatches, collect, learn, normalized, ppo_loss
from entity_env.agents.ppo.rollout import Collector
from entity_env.agents.rogue_net import (
    ActionDistribution,
    ObsBatch,
    RogueNet,
    RogueNetConfig,
)
from entity_env.agents.rogue_net.torch_net.net import Evaluation
from entity_env.agents.training.peers import Moments
from entity_env.agents.training.rollout_buffer import Minibatch, Rollout
from entity_env.agents.training.tracking.progress import Losses
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import EntityBatch
from entity_env.games import snake
from entity_env.vec import VecEnv

Doubles = NDArray[np.float64]


class TableNet(nn.Module):
    """A table of log-probability, value and entropy per decision; the sample is the index."""

    device = torch.device("cpu")

    def __init__(self, logprobs: Doubles, values: Doubles, entropy: Doubles) -> None:
        super().__init__()
        self.logprobs = nn.Parameter(torch.tensor(logprobs, dtype=torch.float32))
        self.values = nn.Parameter(torch.tensor(values, dtype=torch.float32))
        self.entropy = nn.Parameter(torch.tensor(entropy, dtype=torch.float32))
        self.seen: list[list[int]] = []

    def evaluate(self, obs: ObsBatch, samples: dict[str, NDArray[np.int64]]) -> Evaluation:
        """Looks up the table."""
        index = torch.from_numpy(samples["go"])
        self.seen.append(index.tolist())
        return Evaluation(self.logprobs[index], self.entropy[index], self.values[index])

    def as_net(self) -> RogueNet:
        """The table, cast to the trainer's type."""
        return cast("RogueNet", self)


def table_net(rng: np.random.Generator, count: int) -> TableNet:
    return TableNet(rng.normal(size=count), rng.normal(size=count), rng.random(count))


def rollout_near(
    net: TableNet, rng: np.random.Generator, spread: float, b_inds: NDArray[np.int64] | None = None
) -> Rollout:
    """A rollout of a policy that differs from the network by about `spread`."""
    count = len(net.logprobs)
    names: NDArray[np.int64 | np.float32] = np.arange(count)
    samples = RaggedArray(names, np.ones(count, np.int64))
    old_logprobs = net.logprobs.detach().numpy() + rng.normal(size=count) * spread
    old_values = net.values.detach().numpy() + rng.normal(size=count) * spread
    return Rollout(
        obs=ObsBatch({}, {}, {}),
        samples={"go": samples},
        b_inds=np.arange(count) if b_inds is None else b_inds,
        logprobs=old_logprobs.astype(np.float32),
        values=old_values.astype(np.float32),
        advantages=rng.normal(size=count).astype(np.float32),
        returns=rng.normal(size=count).astype(np.float32),
    )


def loss_of(
    net: TableNet, rollout: Rollout, inds: NDArray[np.int64], config: PPOConfig, ent_coef: float
) -> tuple[Tensor, Tensor]:
    now = replace(config.at(0), ent_coef=ent_coef)
    minibatch = rollout.minibatch(inds)
    if config.norm_adv:
        advantages = minibatch.advantages
        advantages = normalized(advantages, Moments.of(advantages), None)
        minibatch = replace(minibatch, advantages=advantages)
    new = net.as_net().evaluate(minibatch.obs, minibatch.samples)
    return ppo_loss(new, minibatch, now)


class Reference:
    """Loss, figures and gradients of some decisions, one at a time."""

    def __init__(
        self, net: TableNet, rollout: Rollout, inds: list[int], config: PPOConfig, ent_coef: float
    ) -> None:
        count, config = len(inds), config.at(0)
        clip = config.clip_coef
        self.gradients: dict[str, Doubles] = {
            name: np.zeros(len(parameter)) for name, parameter in net.named_parameters()
        }
        weights = rollout.advantages[inds].astype(np.float64)
        if config.norm_adv and count > 1:
            weights = (weights - weights.mean()) / (weights.std(ddof=1) + 1e-8)
        policy, value, entropy, kl, clipped = np.zeros(5)
        now = {name: parameter.tolist() for name, parameter in net.named_parameters()}
        for i, weight in zip(inds, weights.tolist(), strict=True):
            log_ratio = now["logprobs"][i] - float(rollout.logprobs[i])
            ratio = np.exp(log_ratio)
            bounded = min(max(ratio, 1 - clip), 1 + clip)
            policy -= min(ratio * weight, bounded * weight)
            is_free = ratio * weight <= bounded * weight
            self.gradients["logprobs"][i] -= weight * ratio / count if is_free else 0.0

            new, old = now["values"][i], float(rollout.values[i])
            target = float(rollout.returns[i])
            near = old + min(max(new - old, -clip), clip)
            errors = (new - target) ** 2, (near - target) ** 2
            cut = config.clip_vloss and errors[1] > errors[0]
            value += 0.5 * errors[cut]
            moves = not cut or abs(new - old) < clip
            slope = (near if cut else new) - target
            self.gradients["values"][i] += config.vf_coef * slope / count if moves else 0.0

            entropy += now["entropy"][i]
            self.gradients["entropy"][i] -= ent_coef / count
            kl += ratio - 1 - log_ratio
            clipped += abs(ratio - 1) > clip
        self.figures = np.array([policy, value, entropy, kl, clipped]) / count
        policy, value, entropy = self.figures[:3]
        self.loss = policy - ent_coef * entropy + config.vf_coef * value

    @property
    def norm(self) -> float:
        """Length of the gradient."""
        return float(np.linalg.norm(np.concatenate(list(self.gradients.values()))))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 12),
    spread=st.sampled_from([0.0, 0.05, 0.5, 2.0]),
    clip_coef=st.sampled_from([0.1, 0.2, 0.7]),
    switches=st.tuples(st.booleans(), st.booleans()),
    coefs=st.sampled_from([(0.5, 0.0), (0.25, 0.1), (2.0, 0.5), (0.0, 0.02)]),
)
def test_loss_and_gradients_equal_the_formulas(
    seed: int,
    count: int,
    spread: float,
    clip_coef: float,
    switches: tuple[bool, bool],
    coefs: tuple[float, float],
) -> None:
    rng = np.random.default_rng(seed)
    net = table_net(rng, count)
    rollout = rollout_near(net, rng, spread)
    config = PPOConfig(
        clip_coef=clip_coef, norm_adv=switches[0], clip_vloss=switches[1], vf_coef=coefs[0]
    )
    inds = rng.permutation(count)[: int(rng.integers(1, count + 1))]
    loss, figures = loss_of(net, rollout, inds, config, coefs[1])
    expected = Reference(net, rollout, inds.tolist(), config, coefs[1])
    assert float(loss.detach()) == pytest.approx(expected.loss, rel=1e-3, abs=1e-3)
    np.testing.assert_allclose(figures, expected.figures, rtol=1e-3, atol=1e-3)
    assert not figures.requires_grad
    parameters = dict(net.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    for name, gradient in zip(parameters, gradients, strict=True):
        np.testing.assert_allclose(
            gradient, expected.gradients[name], rtol=1e-3, atol=1e-3, err_msg=name
        )


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "moves"),
    [
        (1.0, 0.5, False),  # good, and already much more likely
        (1.0, -0.5, True),  # good but less likely: it may come back
        (-1.0, 0.5, True),
        (-1.0, -0.5, False),
        (1.0, 0.1, True),
        (-1.0, -0.1, True),
    ],
)
def test_what_moved_far_enough_moves_no_further(
    advantage: float, log_ratio: float, moves: bool
) -> None:
    net = TableNet(np.array([log_ratio]), np.zeros(1), np.zeros(1))
    rollout = rollout_near(net, np.random.default_rng(0), 0.0)
    rollout.logprobs[:] = 0.0
    rollout.advantages[:] = advantage
    loss, _ = loss_of(net, rollout, rollout.b_inds, PPOConfig(vf_coef=0.0), 0.0)
    (gradient,) = torch.autograd.grad(loss, [net.logprobs])
    assert bool(gradient) is moves
    if moves:  # a step against the gradient makes good actions more likely
        assert float(gradient) * advantage < 0


@pytest.mark.parametrize("max_grad_norm", [0.01, 0.3, 1e6])
def test_a_long_gradient_is_followed_as_far_as_allowed(max_grad_norm: float) -> None:
    rng = np.random.default_rng(3)
    net = table_net(rng, 9)
    rollout = rollout_near(net, rng, 0.4)
    config = PPOConfig(update_epochs=1, max_grad_norm=max_grad_norm)
    expected = Reference(net, rollout, list(range(9)), config, 0.1)
    before = {name: each.detach().clone() for name, each in net.named_parameters()}
    learn(
        net.as_net(),
        torch.optim.SGD(net.parameters(), lr=1.0),
        rollout,
        replace(config.at(0), ent_coef=0.1),
        rng,
    )
    scale = min(1.0, max_grad_norm / expected.norm)
    assert (scale < 1) == (max_grad_norm < 1)
    for name, parameter in net.named_parameters():
        moved = (parameter.detach() - before[name]).numpy()
        np.testing.assert_allclose(moved, -scale * expected.gradients[name], rtol=1e-3, atol=1e-5)


def frozen(net: TableNet) -> torch.optim.Optimizer:
    """An optimizer with steps of length 0."""
    return torch.optim.SGD(net.parameters(), lr=0.0)


@settings(max_examples=40)
@given(
    count=st.integers(1, 30),
    minibatch_size=st.integers(1, 40),
    update_epochs=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_an_epoch_is_every_known_decision_once(
    count: int, minibatch_size: int, update_epochs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    net = table_net(rng, 40)
    known = np.sort(rng.choice(40, count, replace=False))
    config = PPOConfig(minibatch_size=minibatch_size, update_epochs=update_epochs)
    learn(
        net.as_net(),
        frozen(net),
        rollout_near(net, rng, 0.1, known),
        replace(config.at(0), ent_coef=0.0),
        rng,
    )
    num_minibatches = max(1, round(count / minibatch_size))
    assert len(net.seen) == update_epochs * num_minibatches
    sizes = {len(inds) for inds in net.seen}
    assert max(sizes) - min(sizes) <= 1
    for epoch in range(update_epochs):
        parts = net.seen[epoch * num_minibatches : (epoch + 1) * num_minibatches]
        assert sorted(chain.from_iterable(parts)) == known.tolist()


def test_epochs_are_shuffled_by_the_generator_that_is_given() -> None:
    orders = []
    for seed in (1, 1, 2):
        net = table_net(np.random.default_rng(0), 20)
        rollout = rollout_near(net, np.random.default_rng(0), 0.1)
        learn(
            net.as_net(),
            frozen(net),
            rollout,
            replace(PPOConfig().at(0), ent_coef=0.0),
            np.random.default_rng(seed),
        )
        orders.append(net.seen)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != orders[0][1]


def losses_of(net: TableNet, rollout: Rollout, config: PPOConfig) -> Losses:
    return learn(
        net.as_net(),
        frozen(net),
        rollout,
        replace(config.at(0), ent_coef=0.1),
        np.random.default_rng(0),
    )


@pytest.mark.parametrize("minibatch_size", [1, 4, 100])
def test_reported_figures_are_means_over_minibatches(minibatch_size: int) -> None:
    rng = np.random.default_rng(5)
    net = table_net(rng, 10)
    rollout = rollout_near(net, rng, 0.5)
    config = PPOConfig(minibatch_size=minibatch_size, update_epochs=2)
    losses = losses_of(net, rollout, config)
    parts = [Reference(net, rollout, inds, config, 0.1).figures for inds in net.seen]
    names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
    got = [getattr(losses, name) for name in names]
    np.testing.assert_allclose(got, np.mean(parts, axis=0), rtol=1e-3, atol=1e-4)


def test_divergence_ends_an_update_after_the_epoch_in_which_it_was_seen() -> None:
    rng = np.random.default_rng(6)
    net = table_net(rng, 8)
    rollout = rollout_near(net, rng, 0.5)
    kl = losses_of(net, rollout, PPOConfig(update_epochs=5)).approx_kl
    for target_kl, num_epochs in ((None, 5), (100 * kl, 5), (0.0, 1)):
        net.seen.clear()
        config = PPOConfig(update_epochs=5, minibatch_size=4, target_kl=target_kl)
        losses_of(net, rollout, config)
        assert len(net.seen) == 2 * num_epochs


@pytest.mark.parametrize(
    ("values", "returns", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], 0.0),
        ([5.0, 5.0, 5.0], [1.0, 2.0, 3.0], 0.0),  # a constant offset has no variance
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], -3.0),
        ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], float("nan")),
    ],
)
def test_explained_variance(values: list[float], returns: list[float], expected: float) -> None:
    rng = np.random.default_rng(0)
    net = table_net(rng, 4)
    rollout = rollout_near(net, rng, 0.1, np.array([0, 1, 3]))
    rollout.values[rollout.b_inds], rollout.returns[rollout.b_inds] = values, returns
    rollout.returns[2] = 1e6  # its outcome is unknown, so it does not count
    got = losses_of(net, rollout, PPOConfig()).explained_variance
    assert got == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_decisions_that_are_not_known_get_no_gradient() -> None:
    rng = np.random.default_rng(8)
    net = table_net(rng, 6)
    rollout = rollout_near(net, rng, 0.3, np.array([1, 4]))
    before: list[Tensor] = [each.detach().clone() for each in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    learn(net.as_net(), optimizer, rollout, replace(PPOConfig().at(0), ent_coef=0.1), rng)
    others = [0, 2, 3, 5]
    for parameter, old in zip(net.parameters(), before, strict=True):
        assert torch.equal(parameter.detach()[others], old[others])
    assert not torch.equal(net.values.detach()[[1, 4]], before[1][[1, 4]])


def one_decision(value: float, count: int) -> tuple[Evaluation, Minibatch]:
    """Decisions with probability 1 and value 0 before, advantage 1 and return 5."""
    zeros, values = torch.zeros(count), torch.full((count,), value)
    logprobs, entropy, values = (each.clone().requires_grad_() for each in (zeros, zeros, values))
    one, zero = np.ones(count, dtype=np.float32), np.zeros(count, dtype=np.float32)
    old = Minibatch(ObsBatch({}, {}, {}), {}, zero, zero, one, 5 * one)
    return Evaluation(logprobs, entropy, values), old


@pytest.mark.parametrize("at", [-0.2, 0.2])
def test_the_bound_itself_is_not_clipped(at: float) -> None:
    """If the step of the value equals the bound to the last bit, both terms are equal."""
    config = PPOConfig(norm_adv=False, clip_vloss=True, clip_coef=0.2)
    new, old = one_decision(at, 1)
    loss, figures = ppo_loss(new, old, replace(config.at(0), ent_coef=0.1))
    by_logprob, by_value = torch.autograd.grad(3 * loss, (new.logprobs, new.values))
    assert float(by_logprob) == -3.0
    assert float(by_value) == pytest.approx(3 * config.at(0).vf_coef * (at - 5))
    assert figures[4] == 0


def test_a_log_probability_of_nan_makes_the_loss_nan() -> None:
    new, old = one_decision(0.0, 3)
    with torch.no_grad():
        new.logprobs[1] = torch.nan
    loss, figures = ppo_loss(new, old, replace(PPOConfig().at(0), ent_coef=0.1))
    assert loss.isnan()
    assert figures[0].isnan()
    (gradient,) = torch.autograd.grad(loss, new.logprobs)
    assert gradient.isnan().tolist() == [False, True, False]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 12),
    most=st.integers(1, 12),
    norm_adv=st.booleans(),
    return_scale=st.sampled_from([None, 3.0]),
)
def test_microbatches_add_to_the_gradient_of_the_minibatch(
    seed: int, count: int, most: int, norm_adv: bool, return_scale: float | None
) -> None:
    rng = np.random.default_rng(seed)
    net = table_net(rng, count)
    rollout = rollout_near(net, rng, 0.3)
    found: list[list[Tensor]] = []
    for size in (None, most):
        config = PPOConfig(microbatch_size=size, norm_adv=norm_adv)
        net.zero_grad()
        net.seen.clear()
        minibatches = _Minibatches(
            net.as_net(), rollout, replace(config.at(0), ent_coef=0.1), return_scale
        )
        whole = Moments.of(rollout.advantages)
        loss, figures = minibatches.add_gradient(rng.permutation(count), whole, rng)
        assert max(map(len, net.seen)) <= (size or count)
        assert sorted(chain(*net.seen)) == list(range(count))
        gradients = [cast(Tensor, each.grad).clone() for each in net.parameters()]
        found.append([*gradients, figures, torch.tensor(loss)])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)


def test_the_ratio_is_one_before_the_first_step_with_dropout() -> None:
    size = RogueNetConfig(d_model=16, dropout=0.4)
    with VecEnv(snake, 16) as vec:
        net = RogueNet(vec.obs_space(), vec.action_space(), size)
        generator = torch.Generator().manual_seed(1)
        collector = Collector(vec, net, generator, vec.reset(seed=1), PPOConfig().at(0))
        rollout = collect(collector, 8, lambda obs: None)
    net.train()
    rng = np.random.default_rng(0)
    config = PPOConfig(norm_adv=False, clip_vloss=False)
    for old, is_zero in ((copy.deepcopy(net), True), (None, False)):
        minibatches = _Minibatches(net, rollout, replace(config.at(0), ent_coef=0.0), old=old)
        whole = Moments.of(rollout.advantages)
        _, (_, _, _, kl, _) = minibatches.add_gradient(rollout.b_inds, whole, rng)
        assert (abs(float(kl)) < 1e-7) is is_zero


@pytest.mark.slow
def test_a_network_of_ones_own_with_dropout_acts_without_and_learns_with_it() -> None:
    modes: list[tuple[bool, bool]] = []

    class Own(Policy):
        def __init__(self, obs: ObsSpace, actions: Mapping[str, ActionSpace]) -> None:
            super().__init__(obs, actions)
            self.drop, self.layer = nn.Dropout(0.5), nn.Linear(1, 5)

        def distributions(self, batch: EntityBatch) -> tuple[dict[str, ActionDistribution], Tensor]:
            modes.append((self.training, torch.is_grad_enabled()))
            x = self.layer(self.drop(torch.ones(len(batch.features["Head"]), 1)))
            return {"Move": self.labels("Move", x[:, :4], batch)}, x[:, 4]

    with VecEnv(snake, 4) as vec:
        train(vec, PPOConfig(total_steps=64), policy=Own)
    assert set(modes) == {(False, False), (True, True), (True, False)}
    assert modes.count((True, True)) == modes.count((True, False))


def test_the_step_size_rises_then_falls() -> None:
    config = PPOConfig(learning_rate=0.5, total_steps=1000, warmup_steps=200)

    def step_size(config: PPOConfig, step: int, num_decisions: int) -> float:
        return config.at(step, num_decisions).learning_rate

    sizes = [step_size(config, step, 100) for step in range(0, 1000, 100)]
    np.testing.assert_allclose(sizes, 0.5 * np.array([0.5, 1, 1, *np.arange(7, 0, -1) / 8]))
    level = replace(config, anneal_learning_rate=False)
    assert [step_size(level, step, 100) for step in (0, 100, 200, 900)] == [0.25, 0.5, 0.5, 0.5]
    assert step_size(replace(config, warmup_steps=0), 250, 50) == 0.5 * 0.75
    assert step_size(replace(config, warmup_steps=4000), 900, 100) == 0.125


@pytest.mark.slow
def test_training_warms_up_and_goes_on_with_it_in_microbatches(tmp_path: Path) -> None:
    rates: list[float] = []
    config = PPOConfig(
        total_steps=128, warmup_steps=256, num_steps=16, minibatch_size=32, microbatch_size=10
    )
    with VecEnv(snake, 4) as vec:
        for total in (128, 256):
            train(
                vec,
                replace(config, total_steps=total),
                out=tmp_path,
                resume=total > 128,
                on_update=lambda progress: rates.append(progress.learning_rate),
            )
    np.testing.assert_allclose(rates, config.learning_rate * np.array([0.25, 0.5, 0.75, 1.0]))
