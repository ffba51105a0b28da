"""PPO's ratio for each actor equals a plain sum over actors; a single actor's is the decision's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent
from entity_env.agents.ppo import Policy, train
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.ppo import _Minibatches, collect
from entity_env.agents.ppo.rollout import Collector
from entity_env.agents.rogue_net import MLPConfig, RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.torch_net.distributions import given_samples
from entity_env.agents.rogue_net.torch_net.mlp import MLPPolicy
from entity_env.agents.training.peers import Moments
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.games import snake
from entity_env.vec import VecEnv
from tests.games.composite_games import SEND, Base, Planet, Share

CLIP = 0.2


class Step(Enum):
    LEFT = 0
    RIGHT = 1


@dataclass
class Ship:
    x: float


STEP = Categorical(Step)


def play_fleet(agent: Agent, *, seed: int) -> None:
    """Any number of actors of two types, with one or four actions, and a global one."""
    rng, score = Random(seed), 0.0
    for _ in range(4):
        planets = [Planet(rng.random()) for _ in range(rng.randrange(3))]
        obs = Obs(score).entities(planets)
        obs.actors([Ship(rng.random()) for _ in range(rng.randrange(3))], STEP)
        obs.actors([Base(rng.random()) for _ in range(rng.randrange(3))], SEND, STEP)
        if agent.act(obs, Share, STEP, SEND) is None:
            return
        score += rng.random()
    agent.game_over(Obs(score))


fleet = Game(play_fleet, entities=(Planet, Ship, Base), actions=(Share, STEP, SEND))
NET = RogueNetConfig(d_model=16, n_layer=1)
CONFIG = PPOConfig(ratio="actor", clip_coef=CLIP, norm_adv=False, clip_vloss=False)


def rollout_of(game: Game, net: RogueNetConfig, seed: int) -> tuple[RogueNet, Rollout]:
    torch.manual_seed(seed)
    with VecEnv(game, 5) as vec:
        policy = RogueNet(vec.obs_space(), vec.action_space(), net)
        generator = torch.Generator().manual_seed(seed)
        collector = Collector(vec, policy, generator, vec.reset(seed=seed), CONFIG.at(0))
        return policy, collect(collector, 6, lambda obs: None)


def move(net: nn.Module, seed: int) -> None:
    """Changes the network, so ratios differ from 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in net.parameters():
            each.add_(torch.randn(each.shape, generator=generator), alpha=0.1)


def own_gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def by_actor(net: Policy, rollout: Rollout, at: int) -> dict[int, Tensor]:
    """Log-probability of each actor of one decision, action by action and actor by actor."""
    minibatch = rollout.minibatch(np.array([at]))
    chosen = {name: torch.from_numpy(each) for name, each in minibatch.samples.items()}
    distributions = given_samples(net.distributions(minibatch.obs)[0], chosen)
    found: dict[int, Any] = {}
    for name, each in distributions.items():
        actors = minibatch.obs.action_masks[name].actors.values.tolist()
        if actors:
            for actor, logprob in zip(actors, each.logprob(chosen[name]), strict=True):
                found[actor] = logprob + found.get(actor, 0.0)
    return found


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 2**16), most=st.sampled_from([None, 1, 4]))
def test_the_gradient_is_that_of_a_plain_sum(seed: int, most: int | None) -> None:
    net, rollout = rollout_of(fleet, NET, seed)
    inds = np.random.default_rng(seed).permutation(rollout.b_inds)[:12]
    old = [{k: v.item() for k, v in by_actor(net, rollout, i).items()} for i in inds]
    config = replace(CONFIG, microbatch_size=most, vf_coef=0.0, ent_coef=0.0).at(0)
    minibatches = _Minibatches.of(net, rollout, config, None, None)
    move(net, seed)

    loss, clipped = torch.zeros(()), 0.0
    for i, before in zip(inds, old, strict=True):
        advantage = float(rollout.advantages[i])
        now = by_actor(net, rollout, i)
        assert now.keys() == before.keys()
        for actor, logprob in now.items():
            ratio = (logprob - before[actor]).exp()
            bounded = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = loss - torch.minimum(ratio * advantage, bounded * advantage) / len(inds)
            clipped += (abs(ratio.item() - 1) > CLIP) / len(now) / len(inds)
    parameters = list(net.parameters())
    wanted = torch.autograd.grad(loss, parameters, materialize_grads=True, allow_unused=True)

    whole = Moments.of(rollout.advantages[inds])
    net.zero_grad()
    got, figures = minibatches.add_gradient(inds, whole, np.random.default_rng(0))
    assert got == pytest.approx(loss.item(), abs=1e-4)
    assert float(figures[4]) == pytest.approx(clipped, abs=1e-5)
    for parameter, each in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(own_gradient(parameter), each, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "net", [NET, replace(NET, dropout=0.3), replace(NET, memory=8)], ids=["plain", "drop", "memory"]
)
def test_before_the_first_step_both_ratios_have_the_same_gradient(net: RogueNetConfig) -> None:
    policy, rollout = rollout_of(fleet, net, seed=3)
    segments = rollout.segments
    inds = rollout.b_inds if segments is None else segments.decisions.values
    policy.train()
    found: list[list[Tensor]] = []
    for ratio in ("actor", "decision"):
        config = replace(CONFIG, ratio=ratio, microbatch_size=7).at(0)
        minibatches = _Minibatches.of(policy, rollout, config, None, None)
        policy.zero_grad()
        whole = Moments.of(rollout.advantages[inds])
        _, figures = minibatches.add_gradient(inds, whole, np.random.default_rng(1))
        assert abs(float(figures[3])) < 1e-6
        assert figures[4] == 0
        found.append([own_gradient(each).clone() for each in policy.parameters()])
    for actor, decision in zip(*found, strict=True):
        torch.testing.assert_close(actor, decision, rtol=1e-3, atol=1e-5)


def _states(*ratios: str, net: Any = NET, game: Game = snake) -> list[dict[str, Tensor]]:  # noqa: ANN401
    config = PPOConfig(total_steps=256, num_steps=8, minibatch_size=32, net=net)
    found = []
    for ratio in ratios:
        with VecEnv(game, 8) as vec:
            found.append(train(vec, replace(config, ratio=ratio)).net.state_dict())
    return found


@pytest.mark.slow
def test_the_ratios_of_a_single_actor_are_equal() -> None:
    actors, decisions = _states("actor", "decision")
    for actor, decision in zip(actors.values(), decisions.values(), strict=True):
        torch.testing.assert_close(actor, decision, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_ratios_of_several_actors_train_different_networks() -> None:
    actor, again, decision = _states("actor", "actor", "decision", game=fleet)
    assert all(torch.equal(a, b) for a, b in zip(actor.values(), again.values(), strict=True))
    pairs = zip(actor.values(), decision.values(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_an_mlp_with_one_actor_learns_in_numpy_with_both() -> None:
    from entity_env.games.classic import CartPole
    from entity_env.vec import BatchVecEnv

    found = []
    for ratio in ("actor", "decision"):
        with BatchVecEnv(CartPole, 4) as vec:
            config = PPOConfig(total_steps=256, net=MLPConfig((8,)), ratio=ratio)
            net = train(vec, config).net
            assert type(net) is MLPPolicy
            found.append(net.state_dict())
    for actor, decision in zip(*(each.values() for each in found), strict=True):
        assert torch.equal(actor, decision)
