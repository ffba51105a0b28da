"""With equal weights and decisions, our loss and gradients equal enn-trainer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from enn_trainer.config import PPOConfig as TheirConfig
from enn_trainer.ppo import ppo_loss, value_loss
from entity_gym.env.vec_env import batch_obs
from entity_gym.examples import ENV_REGISTRY
from entity_gym.simple_trace import Tracer
from numpy.typing import NDArray
from ragged_buffer import RaggedBufferF32, RaggedBufferI64
from torch import Tensor

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.ppo import normalized, ppo_loss as our_ppo_loss
from entity_env.agents.rogue_net import ObsBatch, RogueNet, RogueNetConfig, write_enn_checkpoint
from entity_env.agents.training.peers import Moments
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.ragged import RaggedArray
from entity_env.interop.entity_gym import from_entity_gym
from tests.helpers.batches import finish
from tests.upstream import both, enn

SINGLE: Mapping[str, Callable[[], Any]] = {
    "Xor": ENV_REGISTRY["Xor"],
    "CherryPick": partial(ENV_REGISTRY["CherryPick"], num_cherries=16),
    "MultiSnake": partial(ENV_REGISTRY["MultiSnake"], num_snakes=1),
    "TreasureHunt": ENV_REGISTRY["TreasureHunt"],
}
"""One actor at a time: enn-trainer counts each of several actors as a separate decision."""
ENT_COEF = 0.2
SPREAD = {"a fresh network": 0.1, "a decided one": 0.4}
"""Noise added to all weights; the second value makes some choices almost certain."""


@pytest.mark.parametrize("spread", SPREAD.values(), ids=SPREAD)
@pytest.mark.parametrize("name", SINGLE)
def test_loss_and_gradients_are_the_same(name: str, spread: float, tmp_path: Path) -> None:
    # Copies, because some games modify the lists after returning them.
    shown = [deepcopy(pair) for pair in both.observations(SINGLE[name], 160) if not pair[0].done]
    net = drawn(SINGLE[name], spread)
    writer = ObservationBatcher(net.obs_space, net.action_space)
    for observation, _ in shown:
        writer.add(observation)
    obs = finish(writer)
    batch = ObsBatch(obs.features, obs.visible, obs.action_masks)
    net.update_statistics(batch)
    played = decided(net, batch)
    config = PPOConfig()
    whole = played.minibatch(np.arange(len(shown)))
    advantages = normalized(whole.advantages, Moments.of(whole.advantages), None)
    whole = replace(whole, advantages=advantages)
    now = replace(config.at(0), ent_coef=ENT_COEF)
    loss, _ = our_ppo_loss(net.evaluate(whole.obs, whole.samples), whole, now)
    loss.backward()  # type: ignore[no-untyped-call]

    write_enn_checkpoint(tmp_path, net.weights(), step=1)
    real = enn.real_net(tmp_path)
    their_loss = loss_of_theirs(real, [each for _, each in shown], played, config)
    their_loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, their_loss, rtol=1e-4, atol=1e-5)
    theirs = dict(real.named_parameters())
    longest = max(float(p.grad.norm()) for p in theirs.values() if p.grad is not None)
    for parameter_name, parameter in net.named_parameters():
        wanted = theirs[parameter_name].grad
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        wanted = torch.zeros_like(parameter) if wanted is None else wanted
        distance = float((got - wanted).norm())
        assert distance <= 1e-4 * float(wanted.norm()) + 1e-5 * longest, parameter_name


def drawn(kind: Callable[[], Any], spread: float) -> RogueNet:
    env = from_entity_gym(kind)()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        net = RogueNet(env.obs_space(), env.action_space(), RogueNetConfig(d_model=16))
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    env.close()
    return net


def decided(net: RogueNet, batch: ObsBatch) -> Rollout:
    """Decisions of the network, with made-up outcomes and old policy."""
    rng = np.random.default_rng(0)
    decisions = net.act(batch, generator=torch.Generator().manual_seed(0))
    count = len(decisions.values)

    def around(values: NDArray[np.float32], spread: float) -> NDArray[np.float32]:
        return (values + rng.normal(scale=spread, size=count)).astype(np.float32)

    samples: dict[str, RaggedArray[np.int64 | np.float32]] = {
        name: RaggedArray(values, batch.action_masks[name].actors.lengths)
        for name, values in decisions.samples.items()
    }
    return Rollout(
        obs=batch,
        samples=samples,
        b_inds=np.arange(count),
        logprobs=around(decisions.logprobs, 0.15),
        values=around(decisions.values, 0.15),
        advantages=around(np.zeros(count, dtype=np.float32), 1.0),
        returns=around(decisions.values, 1.0),
    )


def loss_of_theirs(real: Any, shown: list[Any], played: Rollout, config: PPOConfig) -> Tensor:  # noqa: ANN401 - rogue-net ships no types
    """The loss as computed in enn-trainer's loop from its functions."""
    batch, tracer = batch_obs(shown, real.obs_space, real.action_space), Tracer(False)
    ((name, samples),) = played.samples.items()
    old = RaggedBufferF32.from_flattened(played.logprobs.reshape(-1, 1), samples.lengths)
    taken = RaggedBufferI64.from_flattened(samples.values.reshape(-1, 1), samples.lengths)
    _, logprobs, entropy, _, auxiliary, _ = real.get_action_and_auxiliary(
        batch.features, batch.visible, batch.action_masks, tracer, {name: taken}
    )
    settings = TheirConfig(
        clip_coef=config.clip_coef, vf_coef=config.vf_coef, ent_coef=ENT_COEF, norm_adv=True
    )
    advantages, returns, values = map(
        torch.from_numpy, (played.advantages, played.returns, played.values)
    )
    cpu = torch.device("cpu")
    policy, *_ = ppo_loss(settings, logprobs, {name: old}, advantages, cpu, tracer)
    value = value_loss(settings, auxiliary["value"], returns, values, tracer)
    spread = torch.cat(list(entropy.values())).mean()
    loss: Tensor = policy - ENT_COEF * spread + settings.vf_coef * value
    return loss
