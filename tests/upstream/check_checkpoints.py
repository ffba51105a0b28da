"""Checkpoints work both ways: we read enn-trainer's, and enn-trainer reads ours."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from entity_gym.examples import ENV_REGISTRY

from entity_env.agents import load_agent
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import (
    RelposEncodingConfig as Relpos,
    RogueNet,
    RogueNetConfig,
    TranslationConfig,
    read_network,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.config import GATES
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.games import multi_snake
from entity_env.interop.entity_gym import environment
from entity_env.vec import VecEnv
from tests.upstream import both, enn
from tests.upstream.sky import Places, Signals, Sky

FEW = ("rollout.num_envs=8", "rollout.steps=16", "total_timesteps=256", "optim.bs=64")
OPTIONS = {
    "value network": ("CherryPick", ["vf_net.d_model=16", "vf_net.n_layer=1"]),
    "relative positions": (
        "MultiSnake",
        ["net.relpos_encoding.extent=[5, 5]", 'net.relpos_encoding.position_features=["x", "y"]'],
    ),
}


def two_updates(name: str, folder: Path, *settings: str) -> Path:
    """Two updates of enn-trainer on one of entity-gym's examples."""
    sizes = ["net.d_model=16", "net.n_layer=2", f"env.id={name}"]
    return enn.run(ENV_REGISTRY[name], folder, [*FEW, *sizes, *settings])


@pytest.mark.parametrize("name", ENV_REGISTRY)
def test_a_checkpoint_of_enn_trainer_is_read(name: str, tmp_path: Path) -> None:
    checkpoint = two_updates(name, tmp_path)
    weights, kind = read_network(checkpoint), ENV_REGISTRY[name]
    both.require_same_network(enn.real_net(checkpoint), weights, kind, 40)
    require_same_agents(checkpoint, kind)


def test_an_archive_of_it_is_read(tmp_path: Path) -> None:
    checkpoint = two_updates("Xor", tmp_path)
    with tarfile.open(tmp_path / "xor.roguenet", "w") as archive:
        archive.add(checkpoint, checkpoint.name)
    folder, single = read_network(checkpoint), read_network(tmp_path / "xor.roguenet")
    assert folder.tensors.keys() == single.tensors.keys()
    assert all((folder.tensors[name] == single.tensors[name]).all() for name in folder.tensors)


@pytest.mark.parametrize(("name", "settings"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_the_network_are_read(name: str, settings: list[str], tmp_path: Path) -> None:
    checkpoint = two_updates(name, tmp_path, *settings)
    both.require_same_network(
        enn.real_net(checkpoint), read_network(checkpoint), ENV_REGISTRY[name], 40
    )


def require_same_agents(checkpoint: Path, kind: Callable[[], Any]) -> None:
    """Checks that `load_agent` and the real agent have equal probabilities for a checkpoint."""
    net = enn.real_net(checkpoint)
    agents = {
        "numpy": load_agent(checkpoint, backend="numpy"),
        "torch": load_agent(checkpoint, backend="torch"),
    }
    for ours, real in both.observations(kind, 10):
        wanted, _ = enn.real_outputs(net, [real])
        for backend, agent in agents.items():
            assert isinstance(agent, TrainedAgent)
            _, probs = agent.choose(ours)
            for action, each in probs.items():
                np.testing.assert_allclose(
                    each.reshape(-1),
                    np.exp(wanted[action]).reshape(-1),
                    rtol=1e-4,
                    atol=2e-5,
                    err_msg=f"{backend}, {action}",
                )


at = partial(Relpos, position_features=("x", "y"))
moved = partial(TranslationConfig, "Base", ("x", "y"))
LOOKS = ("cos", "sin")
RELPOS = {
    **{f"grid, gate {gate}": at([2, 3], value_gate=gate, scale=1.5) for gate in (None, *GATES)},
    "values by type": at([2, 3], per_entity_values=True),
    "angles": at([6], radial=True, rotation_vec_features=LOOKS),
    "mixed angles": at([6], radial=True, rotation_angle_feature="angle", interpolate=True),
    "rings": at([4], distance=True),
    "mixed rings": at([4], distance=True, interpolate=True),
    "old rings": at([4], distance=True, interpolate=True, enable_negative_distance_weight_bug=True),
    "polar": at([6, 4], radial=True, distance=True, rotation_vec_features=LOOKS),
    "mixed polar": at(
        [6, 4], radial=True, distance=True, rotation_vec_features=LOOKS, interpolate=True
    ),
    "projections": at([2, 3], value_relpos_projection=True, key_relpos_projection=True),
    "projections by type": at(
        [2, 3],
        value_relpos_projection=True,
        key_relpos_projection=True,
        per_entity_projections=True,
    ),
}
TRANSLATION = {
    "moved": moved(),
    "moved and turned": moved(rotation_vec_features=LOOKS),
    "turned by angle": moved(rotation_angle_feature="angle"),
    "with distance": moved(rotation_angle_feature="angle", add_dist_feature=True),
}
small = partial(RogueNetConfig, d_model=16)
NETWORKS: dict[str, tuple[type[Sky], RogueNetConfig]] = {
    "plain": (Sky, RogueNetConfig()),
    "four heads": (Signals, RogueNetConfig(d_model=24, n_layer=1, n_head=4, d_qk=8)),
    "no layer": (Signals, RogueNetConfig(n_layer=0)),
    **{name: (Sky, small(relpos_encoding=each)) for name, each in RELPOS.items()},
    "grid, with a signal": (Places, small(relpos_encoding=at([2, 3]))),
    **{name: (Sky, small(translation=each)) for name, each in TRANSLATION.items()},
    "moved, with a grid": (
        Sky,
        small(translation=moved(rotation_vec_features=LOOKS), relpos_encoding=at([2, 3])),
    ),
}


@pytest.mark.parametrize(("kind", "config"), NETWORKS.values(), ids=NETWORKS)
def test_a_network_of_ours_is_read_by_rogue_net(
    kind: type[Sky], config: RogueNetConfig, tmp_path: Path
) -> None:
    net = drawn(kind, config)
    write_enn_checkpoint(tmp_path / "ours", net.weights(), step=7)
    both.require_same_network(enn.real_net(tmp_path / "ours"), net.weights(), environment(kind), 12)


def drawn(kind: type[Sky], config: RogueNetConfig) -> RogueNet:
    """A network with random parameters, and statistics from some observations."""
    env = kind()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        net = RogueNet(env.obs_space(), env.action_space(), config)
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    with VecEnv(kind, 16, seed=2) as vec:
        net.update_statistics(vec.reset())
    return net


def test_what_our_trainer_learnt_plays_for_enn_trainer(tmp_path: Path) -> None:
    game = multi_snake.with_settings(num_snakes=1)
    config = PPOConfig(total_steps=512, num_steps=16, net=RogueNetConfig(d_model=16))
    with VecEnv(game, 16, seed=1) as vec:
        net = train(vec, config).net
    write_enn_checkpoint(tmp_path, net.weights(), step=512)
    both.require_same_network(enn.real_net(tmp_path), net.weights(), environment(game), 20)
    agent, env = enn.real_agent(tmp_path), environment(game)(seed=3)
    observation, num_steps = env.reset(), 0
    while not observation.done:
        actions, value = agent.act(observation)
        assert np.isfinite(value)
        observation = env.act(actions)
        num_steps += 1
    assert num_steps
    env.close()
