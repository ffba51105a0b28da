"""A network decides on the device from what lies there, as it does from a batch of the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entity_env import Entity, GlobalCategoricalActionSpace, ObsSpace, SchemaError
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, TranslationConfig
from entity_env.agents.rogue_net.torch_net.torch_fixed import FixedNet
from entity_env.core.spaces import CategoricalActionSpace
from entity_env.core.vec_obs import VecObs
from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.games.pixel.reward.device_guard import no_host_copies
from tests.games.pixel.worlds.all_worlds import small_env

CONFIG = RogueNetConfig(d_model=16, n_layer=2, n_head=2)


def net_of(env: PixelGoalEnv, *, counted: bool = True) -> tuple[RogueNet, VecObs]:
    torch.manual_seed(3)
    net = RogueNet(env.obs_space(), env.action_space(), CONFIG)
    vec = BatchVecEnv(env)
    obs = vec.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        if counted:
            net.update_statistics(obs)
        obs = vec.act({"Press": rng.integers(7, size=env.num_envs)})
    return net, obs


@pytest.mark.parametrize("counted", [True, False])
def test_decides_as_from_the_host(counted: bool) -> None:
    env = small_env(3)
    net, obs = net_of(env, counted=counted)
    fixed = FixedNet(net, env.num_envs, env.num_entities)
    wanted = net.act(obs, greedy=True)
    t = env.trackers
    decided = fixed.act(t.tiles, t.screen, greedy=True)
    assert decided.actions.tolist() == wanted.actions["Press"].tolist()
    for mine, theirs in (
        (decided.logprobs, wanted.logprobs),
        (decided.entropy, wanted.entropy),
        (decided.values, wanted.values),
    ):
        assert mine.tolist() == pytest.approx(theirs.tolist(), abs=1e-5)


def test_draws_as_from_the_host() -> None:
    env = small_env(3)
    net, obs = net_of(env)
    fixed = FixedNet(net, env.num_envs, env.num_entities)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(10):
        wanted = net.act(obs, generator=generators[0]).actions["Press"]
        decided = fixed.act(env.trackers.tiles, env.trackers.screen, generator=generators[1])
        assert decided.actions.tolist() == wanted.tolist()


def test_a_loop_of_deciding_and_stepping_copies_nothing_to_the_host() -> None:
    net, _ = net_of(small_env(4))
    env = small_env(4, max_steps=6)
    env.reset(0)
    fixed = FixedNet(net, env.num_envs, env.num_entities)
    generator = torch.Generator().manual_seed(1)
    t = env.trackers
    ends = torch.zeros((), dtype=torch.int64)
    with torch.no_grad(), no_host_copies():
        for _ in range(20):
            decided = fixed.act(t.tiles, t.screen, generator=generator)
            env.step_tensors(decided.actions, autoreset=True)
            ends += t.ended.sum()
    assert int(ends) >= 12


def test_learns_by_the_parameters_of_the_network() -> None:
    env = small_env(3)
    net, _ = net_of(env)
    fixed = FixedNet(net, env.num_envs, env.num_entities)
    distribution, values = fixed.distribution(env.trackers.tiles, env.trackers.screen)
    (distribution.entropy().sum() + values.sum()).backward()  # type: ignore[no-untyped-call]
    with_gradient = [name for name, p in net.named_parameters() if p.grad is not None]
    assert len(with_gradient) == len(list(net.parameters()))


def test_refresh_takes_over_statistics() -> None:
    env = small_env(3)
    net, obs = net_of(env, counted=False)
    fixed = FixedNet(net, env.num_envs, env.num_entities)
    net.update_statistics(obs)
    fixed.refresh()
    decided = fixed.act(env.trackers.tiles, env.trackers.screen, greedy=True)
    assert decided.values.tolist() == pytest.approx(net.values(obs).tolist(), abs=1e-5)


class TestWhatDoesNotFit:
    def test_tensors(self) -> None:
        env = small_env(3)
        net, _ = net_of(env)
        fixed = FixedNet(net, 3, env.num_entities)
        t = env.trackers
        with pytest.raises(SchemaError, match=r"features: expected \(3, 9, 7\) .*got \(2, 9, 7\)"):
            fixed.act(t.tiles[:2], t.screen)
        with pytest.raises(SchemaError, match=r"shared: .* got .* torch.float64"):
            fixed.act(t.tiles, t.screen.double())
        with pytest.raises(SchemaError, match="network's device cpu, got meta"):
            fixed.act(t.tiles.to("meta"), t.screen)

    def test_networks(self) -> None:
        press = {"Press": GlobalCategoricalActionSpace(("A", "B"))}
        tile = {"Tile": Entity(("x", "y"))}
        two = RogueNet(ObsSpace(entities={**tile, "B": Entity(("x",))}), press)
        own = RogueNet(ObsSpace(entities=tile), {"Press": CategoricalActionSpace(("A", "B"))})
        for net in (two, own):
            with pytest.raises(SchemaError, match="one entity type and one global action"):
                FixedNet(net, 1, 1)
        config = RogueNetConfig(translation=TranslationConfig("Tile", ("x", "y")))
        with pytest.raises(SchemaError, match="features as they are"):
            FixedNet(RogueNet(ObsSpace(entities=tile), press, config), 1, 1)
