"""All implementations of a network with memory agree over interleaved episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

from benchmarks.peers.network_vectors import random_weights
from entity_env import Observation, VecObs
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    NeuralAgent,
    NumpyAgent,
    RogueNetConfig,
    Weights,
)
from entity_env.agents.rogue_net.config import state_width
from entity_env.agents.rogue_net.memory import RowStates
from entity_env.agents.rogue_net.numpy_net import single
from entity_env.agents.rogue_net.numpy_net.single import PlainSingleNet
from entity_env.agents.rogue_net.torch_net.mlp import policy_of
from entity_env.agents.rogue_net.torch_net.rollout_policy import fastest_policy
from entity_env.agents.rogue_net.torch_net.tensors import torch_only
from entity_env.core.spaces import Spaces
from tests.page.test_network import (
    ACTIONS,
    FLAT,
    FLAT_ACTIONS,
    LINKED,
    OBS,
    PLACED,
    SCREEN,
    configs,
    observed,
    positions,
)

NUM_EPISODES = 3
"""Episodes that are played at the same time."""
LABELED = {name: ACTIONS[name] for name in ("move", "a.b", "mode")}
"""The actions that compiled kernels know."""
MEMORY = st.sampled_from([1, 2, 5, 16, 33])
AnyAgent: TypeAlias = NumpyAgent | NeuralAgent


@st.composite
def rogue_nets(draw: st.DrawFn) -> tuple[Spaces, RogueNetConfig]:
    actions = draw(st.sampled_from([ACTIONS, LABELED]))
    spaces = draw(st.sampled_from([OBS, LINKED])), actions
    return spaces, replace(draw(configs()), memory=draw(MEMORY))


@st.composite
def nets_with_positions(draw: st.DrawFn) -> tuple[Spaces, RogueNetConfig]:
    config = replace(draw(configs()), memory=draw(MEMORY), pooling=None)
    return (PLACED, ACTIONS), replace(config, relpos_encoding=draw(positions()))


def flat_nets(draw: st.DrawFn) -> tuple[Spaces, MLPConfig]:
    hidden = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    return (FLAT, FLAT_ACTIONS), MLPConfig(hidden, draw(st.booleans()), draw(MEMORY))


NETS: Mapping[str, st.SearchStrategy[tuple[Spaces, Any]]] = {
    "rogue_net": rogue_nets(),
    "positions": nets_with_positions(),
    "mlp": st.composite(flat_nets)(),
    "cnn": MEMORY.map(lambda memory: ((SCREEN, FLAT_ACTIONS), CNNConfig(memory=memory))),
}


def agents_of(weights: Weights) -> dict[str, AnyAgent]:
    """Agents that decide on single observations, by how they compute them."""
    agents: dict[str, AnyAgent] = {
        name: NumpyAgent(weights, greedy=True) for name in ("fastest", "numpy", "plain")
    }
    agents["torch"] = NeuralAgent(policy_of(weights).eval(), greedy=True)
    for name, agent in agents.items():
        if not isinstance(agent, NumpyAgent):
            continue
        if name == "fastest":
            assert isinstance(agent._single, PlainSingleNet) is not single.IS_COMPILED
        else:
            agent._single = None
    if PlainSingleNet.fits(weights):
        agents["plain"]._single = PlainSingleNet(weights)  # type: ignore[union-attr]
    else:
        del agents["plain"]
    return agents


class Seats:
    """An agent in all episodes at once, which decides on one observation after another."""

    def __init__(self, agent: AnyAgent) -> None:
        self.agents = [agent.copy_for_seat() for _ in range(NUM_EPISODES)]

    def decide(
        self, episode: int, observation: Observation, *, begins: bool, is_asked: bool
    ) -> dict[str, Any]:
        """Probabilities, greedy numbers and the state afterwards."""
        agent = self.agents[episode]
        if begins:
            agent.forget()
        chosen, probs = agent.choose(observation)
        state = agent._after
        agent._memory.add(observation, state, has_actor=is_asked)
        assert state is not None
        numbers = {name: each for name, each in chosen.items() if name == "push"}
        return {**numbers, **probs, "state": state.copy()}


def batch_of(agent: NumpyAgent, shown: Mapping[int, Observation], begins: set[int]) -> VecObs:
    """The observations of some episodes as a batch, in which each episode is an environment."""
    rows = []
    for episode, observation in shown.items():
        row = agent._batch_of(observation).copy()
        rows.append(replace(row, env_id=np.array([episode]), begins=np.array([episode in begins])))
    return VecObs.concat(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_all_implementations_agree(kind: str, data: st.DataObject) -> None:
    spaces, config = data.draw(NETS[kind])
    weights = random_weights(spaces, config, data.draw(st.integers(0, 99)))
    net, width = policy_of(weights).eval(), state_width(config)
    ways = {name: Seats(agent) for name, agent in agents_of(weights).items()}
    numpy_batch, torch_batch = NumpyAgent(weights, greedy=True), NeuralAgent(net, greedy=True)
    policy, of_policy, largest = fastest_policy(net), RowStates(width), 0.0
    for tick in range(data.draw(st.integers(2, 8))):
        episodes = data.draw(st.sets(st.integers(0, NUM_EPISODES - 1), min_size=1))
        begins = episodes if not tick else data.draw(st.sets(st.sampled_from([*episodes])))
        seeds = {episode: data.draw(st.integers(0, 999)) for episode in episodes}
        shown = {
            episode: observed(spaces, seed, is_radial=kind == "positions")
            for episode, seed in seeds.items()
        }
        obs = batch_of(numpy_batch, shown, begins)
        expected = {}
        for row, (episode, observation) in enumerate(shown.items()):
            how = {"begins": episode in begins, "is_asked": bool(obs.is_ready[row])}
            found = {
                name: seats.decide(episode, observation, **how) for name, seats in ways.items()
            }
            expected[episode] = found["torch"]
            for way, each in found.items():
                for name in (*observation.actions, *(["state"] if how["is_asked"] else [])):
                    wanted = expected[episode][name]
                    assert len(each[name]) == len(wanted)
                    if len(wanted):
                        assert_allclose(each[name], wanted, atol=1e-4, rtol=1e-4, err_msg=way)
        past = of_policy.past(obs)
        outputs = []
        for act in (policy.act, net.act):
            with torch_only():
                outputs.append(act(obs, generator=torch.Generator().manual_seed(tick), past=past))
        after, own_after = (output.states for output in outputs)
        assert after is not None
        assert own_after is not None
        assert_allclose(outputs[0].values, outputs[1].values, atol=1e-3, rtol=1e-4)
        assert_allclose(outputs[0].entropy, outputs[1].entropy, atol=1e-3, rtol=1e-4)
        of_policy.advance(obs, after)
        for agent in (numpy_batch, torch_batch):
            agent.choose_batch(obs)
        for row, episode in enumerate(shown):
            wanted = expected[episode]["state"][0]
            for batch_after in (after[row], own_after[row]):
                assert_allclose(batch_after, wanted, atol=1e-4)
            if obs.is_ready[row]:
                for agent in (numpy_batch, torch_batch):
                    assert_allclose(agent._rows._states(obs)[episode, 0], wanted, atol=1e-4)
            largest = max(largest, float(np.abs(wanted).max()))
    assert largest > 0
