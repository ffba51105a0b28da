"""The numpy gradient of an `MLPPolicy` equals torch's; unsupported cases are left to torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env import ActionSpace, Entity, ObsSpace
from entity_env.agents.ppo import MLPPolicy, PPOConfig, train
from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.ppo import _Minibatches, learn
from entity_env.agents.rogue_net import ActionDistribution, MLPConfig
from entity_env.agents.rogue_net.torch_net.mlp import MLPEvaluation, MLPGradient
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.peers import Moments
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
)
from entity_env.vec import BatchVecEnv
from tests.helpers.batches import BATCHES

OBS = ObsSpace(("time",), {"Cart": Entity(("x", "v"), is_single=True)})
SPACES: dict[str, ActionSpace] = {
    "Push": CategoricalActionSpace(("L", "R", "N", "Jump")),
    "Only": GlobalCategoricalActionSpace(("Stay",)),
    "Force": ContinuousActionSpace((-1.0, 0.0, -3.0), (1.0, 4.0, 3.0)),
}
DEFAULT = PPOConfig().at(0)


def random_net(
    rng: np.random.Generator,
    actions: tuple[str, ...] = ("Push",),
    config: MLPConfig | None = None,
    make: type[MLPPolicy] = MLPPolicy,
) -> MLPPolicy:
    """A network with random weights and statistics of features and returns."""
    torch.manual_seed(int(rng.integers(1 << 30)))
    net = make(OBS, {name: SPACES[name] for name in actions}, config or MLPConfig((7, 5)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.7)
    net.update_statistics(random_obs(rng, 9, {}))
    net.scale_values(float(rng.normal()), float(rng.uniform(0.5, 4)))
    return net.train()


def random_obs(
    rng: np.random.Generator, count: int, masks: dict[str, VecActionMask]
) -> EntityBatch:
    one = np.ones(count, np.int64)
    features = {"Cart": (2.0 * rng.normal(size=(count, 2))), "__global__": rng.random((count, 1))}
    return EntityBatch(
        {name: RaggedArray(each.astype(np.float32), one) for name, each in features.items()},
        {},
        masks,
    )


def random_rollout(
    rng: np.random.Generator,
    net: Policy,
    count: int,
    *,
    has_masks: bool = False,
    num_actors: int = 1,
) -> Rollout:
    """Samples of a policy that differs not at all, a little or too much, in both directions."""
    lengths = np.ones(count, np.int64)
    lengths[-1] = num_actors
    total = int(lengths.sum())
    masks: dict[str, VecActionMask] = {}
    for name, space in net.action_space.items():
        actors = RaggedArray(np.zeros(total, np.int64), lengths)
        if not isinstance(space, CategoricalActionSpace | GlobalCategoricalActionSpace):
            masks[name] = VecContinuousActionMask(actors)
            continue
        allowed = rng.random((total, len(space))) < 0.5
        allowed[np.arange(total), rng.integers(len(space), size=total)] = True
        mask = RaggedArray(allowed, lengths) if has_masks else None
        masks[name] = VecCategoricalActionMask(actors, mask)
    obs = random_obs(rng, count, masks)
    found = net.act(obs, generator=torch.Generator().manual_seed(int(rng.integers(1 << 30))))

    def near(figures: NDArray[np.float32]) -> NDArray[np.float32]:
        steps = rng.choice([0.0, 0.05, -0.05, 0.6, -0.6, 5.0, -5.0], len(figures))
        moved: NDArray[np.float32] = (figures + steps).astype(np.float32)
        return moved

    return Rollout(
        obs=obs,
        samples={name: RaggedArray(each, lengths) for name, each in found.samples.items()},
        b_inds=np.arange(count),
        logprobs=near(found.logprobs),
        values=near(found.values),
        advantages=rng.normal(size=count).astype(np.float32),
        returns=(found.values + rng.normal(size=count)).astype(np.float32),
    )


def arrays_of(net: Policy, rollout: Rollout) -> MLPGradient | None:
    samples = {name: each.values for name, each in rollout.samples.items()}
    return MLPGradient.of(net, rollout.obs, samples)


def gradient_of(
    minibatches: _Minibatches, index: NDArray[np.int64], moments: Moments | None = None
) -> list[Tensor]:
    """Gradients of all parameters, figures and loss."""
    minibatches.net.zero_grad()
    whole = moments or Moments.of(minibatches.rollout.advantages[index])
    loss, figures = minibatches.add_gradient(index, whole, np.random.default_rng(0))
    gradients = [each.grad for each in minibatches.net.parameters() if each.grad is not None]
    assert len(gradients) == len(list(minibatches.net.parameters()))
    return [*(each.clone() for each in gradients), figures, torch.tensor(loss)]


def require_equal(
    net: MLPPolicy,
    rollout: Rollout,
    index: NDArray[np.int64],
    config: CurrentConfig,
    return_scale: float | None = None,
    moments: Moments | None = None,
) -> None:
    arrays = arrays_of(net, rollout)
    assert arrays is not None
    minibatches = _Minibatches(net, rollout, config, return_scale)
    expected = gradient_of(minibatches, index, moments)
    found = gradient_of(minibatches._replace(arrays=arrays), index, moments)
    for own, other in zip(found, expected, strict=True):
        assert own.dtype == other.dtype
        scale = float(other.abs().max()) + 1e-3
        torch.testing.assert_close(own, other, rtol=1e-4, atol=3e-5 * scale)


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 20),
    action=st.sampled_from(list(SPACES)),
    hidden=st.sampled_from([(7, 5), (6,), (3, 4, 5)]),
    flags=st.tuples(*[st.booleans() for _ in range(5)]),
    ent_coef=st.sampled_from([0.0, 0.01, 30.0]),
    return_scale=st.sampled_from([None, 0.3, 5.0]),
    microbatch_size=st.sampled_from([None, 3]),
)
def test_loss_figures_and_gradient_are_those_of_torch(
    seed: int,
    count: int,
    action: str,
    hidden: tuple[int, ...],
    flags: tuple[bool, ...],
    ent_coef: float,
    return_scale: float | None,
    microbatch_size: int | None,
) -> None:
    norm_inputs, has_masks, clip_vloss, norm_returns, norm_adv = flags
    rng = np.random.default_rng(seed)
    net = random_net(rng, (action,), MLPConfig(hidden, norm_inputs))
    rollout = random_rollout(rng, net, 20, has_masks=has_masks)
    config = replace(
        DEFAULT,
        ent_coef=ent_coef,
        clip_vloss=clip_vloss,
        norm_returns=norm_returns,
        norm_adv=norm_adv,
        microbatch_size=microbatch_size,
    )
    require_equal(net, rollout, rng.permutation(20)[:count], config, return_scale)


def test_it_takes_the_moments_of_other_ranks() -> None:
    rng = np.random.default_rng(1)
    net = random_net(rng)
    rollout = random_rollout(rng, net, 12)
    require_equal(net, rollout, np.arange(9), DEFAULT, moments=Moments(30.0, 0.2, 29 * 1.4**2))


def test_products_that_are_left_to_torch() -> None:
    rng = np.random.default_rng(2)
    net = random_net(rng, ("Force",), MLPConfig((80, 70)))
    rollout = random_rollout(rng, net, 100)
    require_equal(net, rollout, np.arange(100), DEFAULT)


def test_large_minibatches_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    net = random_net(rng)
    rollout = random_rollout(rng, net, 8)
    uses: list[int] = []
    evaluate = MLPGradient.evaluate

    def counted(arrays: MLPGradient, index: NDArray[np.int64]) -> MLPEvaluation:
        uses.append(len(index))
        return evaluate(arrays, index)

    monkeypatch.setattr(MLPGradient, "evaluate", counted)
    monkeypatch.setattr("entity_env.agents.ppo.ppo._MOST_ROWS", 5)
    for count in (5, 6):
        require_equal(net, rollout, np.arange(count), DEFAULT)
    assert uses == [5]


@pytest.mark.parametrize("action", SPACES)
def test_a_gradient_that_is_not_finite_is_not_hidden(action: str) -> None:
    rng = np.random.default_rng(3)
    net = random_net(rng, (action,))
    rollout = random_rollout(rng, net, 6)
    rollout.logprobs[0] = -1000.0
    minibatches = _Minibatches(net, rollout, DEFAULT, arrays=arrays_of(net, rollout))
    assert not all(each.isfinite().all() for each in gradient_of(minibatches, np.arange(6)))


class Changed(MLPPolicy):
    """A custom subclass, which may do anything."""


def _replace_activation(net: MLPPolicy) -> None:
    net.policy_net[1] = nn.ReLU()


def _freeze(net: MLPPolicy) -> None:
    net.policy_net.requires_grad_(False)


def _hook(net: MLPPolicy) -> None:
    net.value_net.register_forward_hook(lambda module, given, found: found * 2)


def _hook_parameter(net: MLPPolicy) -> None:
    next(net.parameters()).register_hook(lambda gradient: gradient * 2)  # type: ignore[no-untyped-call]


def _drop_bias(net: MLPPolicy) -> None:
    net.value_head = nn.Linear(5, 1, bias=False)


@pytest.mark.parametrize(
    "change",
    [_replace_activation, _freeze, _hook, _hook_parameter, _drop_bias, MLPPolicy.double],
)
def test_a_network_that_was_changed_is_left_to_torch(change: Callable[[MLPPolicy], None]) -> None:
    rng = np.random.default_rng(4)
    net = random_net(rng)
    rollout = random_rollout(rng, net, 6)
    assert arrays_of(net, rollout) is not None
    change(net)
    assert arrays_of(net, rollout) is None


def test_what_is_left_to_torch_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    one, two = random_net(rng), random_net(rng, ("Push", "Force"))
    own = random_net(rng, make=Changed)
    cases: list[tuple[MLPPolicy, Rollout, Policy | None]] = [
        (two, random_rollout(rng, two, 8), None),
        (one, random_rollout(rng, one, 8, num_actors=2), None),
        (one, random_rollout(rng, one, 8, num_actors=0), None),
        (own, random_rollout(rng, own, 8), None),
        (one, random_rollout(rng, one, 8), copy.deepcopy(one)),
    ]
    calls: list[Policy] = []
    distributions = MLPPolicy.distributions

    def counted(net: MLPPolicy, batch: EntityBatch) -> tuple[dict[str, ActionDistribution], Tensor]:
        calls.append(net)
        return distributions(net, batch)

    monkeypatch.setattr(MLPPolicy, "distributions", counted)
    for net, rollout, teacher in cases:
        net = copy.deepcopy(net)
        before = [each.detach().clone() for each in net.parameters()]
        calls.clear()
        config = replace(DEFAULT, stay_close=0.1, minibatch_size=8, update_epochs=1)
        optimizer = torch.optim.AdamW(net.parameters())
        losses = learn(net, optimizer, rollout, config, np.random.default_rng(0), teacher=teacher)
        assert calls
        assert np.isfinite(losses.policy_loss)
        after = list(net.parameters())
        assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("game", ["cartpole", "pendulum"])
def test_training_in_arrays_is_training_in_torch(
    game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PPOConfig(
        total_steps=128,
        num_steps=16,
        minibatch_size=32,
        update_epochs=2,
        norm_returns=True,
        net=MLPConfig((16, 16)),
        seed=1,
    )
    found: list[list[Tensor]] = []
    uses: list[bool] = []
    accepts = MLPGradient.of
    for is_torch in (False, True):

        def of(*given: object, is_torch: bool = is_torch) -> MLPGradient | None:
            arrays = None if is_torch else accepts(*given)  # type: ignore[arg-type]
            uses.append(arrays is not None)
            return arrays

        monkeypatch.setattr(MLPGradient, "of", of)
        with BatchVecEnv(BATCHES[game], 8) as vec:
            net = train(vec, config).net
        found.append([each.detach() for each in net.parameters()])
    assert uses == [True, False]
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-4)
