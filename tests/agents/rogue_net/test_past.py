"""Earlier steps that matter: each is compared with an agent that has not seen it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose

from entity_env import ActionSpace, Observation, ObsSpace
from entity_env.agents import policy_agent
from entity_env.agents.load import load_agent
from entity_env.agents.policy_agent import PolicyAgent, thoughts_to_show
from entity_env.agents.rogue_net import MLPConfig, NeuralAgent, NumpyAgent
from entity_env.agents.rogue_net.memory import Past, recur, recur_without_each
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.distributions import GaussianArrays
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.authoring.local_run import PastStep, Turn
from entity_env.cli.app import main
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    GlobalCategoricalActionMask,
    SelectEntityActionMask,
)
from examples.hidden_key import hidden_key
from tests import ROOT
from tests.agents.rogue_net.test_memory import (
    CALL,
    NETS,
    SIGNS,
    VECTOR,
    make_agents,
    make_net,
)

_MASKS: Mapping[str, ActionMask] = {
    "CategoricalActionSpace": CategoricalActionMask(actor_types=["A", "B"]),
    "GlobalCategoricalActionSpace": GlobalCategoricalActionMask(),
    "SelectEntityActionSpace": SelectEntityActionMask(actor_types=["A"], actee_types=["B", "A"]),
}


def observed(
    obs_space: ObsSpace, actions: Mapping[str, ActionSpace], count: int, seed: int = 0
) -> list[Observation]:
    """Consecutive observations of random entities."""
    rng = np.random.default_rng(seed)
    return [
        Observation(
            reward=0.0,
            global_features=rng.standard_normal(len(obs_space.global_features)),
            features={
                name: rng.standard_normal(
                    (1 if entity.is_single else rng.integers(1, 4), len(entity.features))
                )
                for name, entity in obs_space.entities.items()
            },
            actions={name: _MASKS[type(space).__name__] for name, space in actions.items()},
        )
        for _ in range(count)
    ]


def watched(agent: TrainedAgent, observations: Sequence[Observation]) -> TrainedAgent:
    agent.forget()
    for each in observations:
        agent.watch(each)
    return agent


def weigh_by_watching(
    agent: TrainedAgent, earlier: Sequence[Observation], now: Observation
) -> list[PastStep]:
    """`weigh_past` by agents that have not seen a step."""
    whole, found = watched(agent, earlier).think(now), []
    for i in range(len(earlier)):
        other = watched(agent, [*earlier[:i], *earlier[i + 1 :]]).think(now)
        moved = [
            np.abs(other.probabilities[name] - probs).sum(axis=1).max() / 2
            for name, probs in whole.probabilities.items()
        ]
        found.append(PastStep(i, i, float(max(moved)), other.value))
    watched(agent, earlier)
    return found


def require_equal(found: Sequence[PastStep], expected: Sequence[PastStep]) -> None:
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    assert_allclose([each.change for each in found], [each.change for each in expected], atol=1e-5)
    ours, theirs = (np.array([each.value for each in past]) for past in (found, expected))
    assert_allclose(ours, theirs, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 999))
def test_the_recurrence_without_each_step(num_steps: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gates = rng.standard_normal((num_steps, 3 * width)).astype(np.float32)
    weight = rng.standard_normal((3 * width, width)).astype(np.float32)
    start = rng.standard_normal((1, width)).astype(np.float32)

    def after(kept: np.ndarray[tuple[int, ...], np.dtype[np.float32]], state: object) -> object:
        lengths = np.array([len(kept)])
        states = recur(kept, weight, Past(np.array(state, np.float32), lengths)).states
        return states[-1] if len(kept) else np.array(state, np.float32)[0]

    expected = [
        after(gates, start),
        after(gates, np.zeros_like(start)),
        *(after(np.delete(gates, i, axis=0), start) for i in range(num_steps)),
    ]
    assert_allclose(recur_without_each(gates, weight, start), np.array(expected), atol=1e-6)


@pytest.mark.parametrize("name", NETS)
def test_past_steps_equal_agents_that_have_not_seen_them(name: str) -> None:
    net = make_net(name)
    *earlier, now = observed(*NETS[name][:2], 5)
    for agent in (NumpyAgent(net.weights()), NeuralAgent(net)):
        expected = weigh_by_watching(agent, earlier, now)
        found = agent.weigh_past(now)
        require_equal(found, expected)
        assert max(each.change for each in found) > 0.003
        agent.watch(now)
        require_equal(agent.weigh_past(now), expected)


def test_numbers_move_by_the_distance_of_normal_distributions() -> None:
    """Compared with an integral over both numbers of the actor that moves most."""
    mean = np.array([[[0.1, 0.3], [1.0, 2.0]], [[0.2, 0.2], [0.3, 2.4]]], np.float32)
    log_std = np.log(np.array([0.5, 0.8], np.float32))
    rows, bound = np.array([0, 0, 1, 1]), np.ones(2, np.float32)
    found = GaussianArrays(rows, mean.reshape(4, 2), log_std, -bound, bound).changes(2)
    axis = np.linspace(-6.0, 8.0, 400)
    density = [
        np.outer(
            *(np.exp(-(((axis - m) / s) ** 2) / 2) for m, s in zip(each, (0.5, 0.8), strict=True))
        )
        for each in mean[:, 1]
    ]
    moved = np.abs(density[0] - density[1]).sum() / (density[0].sum() + density[1].sum())
    assert_allclose(found, [0.0, moved], atol=1e-3)


def test_steps_before_those_that_are_kept_are_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_agent, "_NUM_KEPT", 3)
    net = make_net("attention")
    *earlier, now = observed(*NETS["attention"][:2], 9)
    agent = NumpyAgent(net.weights())
    expected = weigh_by_watching(agent, earlier, now)
    [before, *found] = agent.weigh_past(now)
    require_equal(found, expected[-3:])
    assert (before.words, found[0].words) == ("steps 0 to 4", "step 5")
    alone = watched(agent, earlier[-3:]).think(now)
    assert before.value is not None
    assert alone.value == pytest.approx(before.value, abs=1e-5)


def test_only_the_running_episode_is_weighed() -> None:
    *earlier, now = observed(*NETS["attention"][:2], 4)
    agent = watched(NumpyAgent(make_net("attention").weights()), earlier)
    assert len(agent.weigh_past(now)) == 3
    assert agent.copy_for_seat().weigh_past(now) == []
    copies = [copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
    unasked = copy.copy(now)
    unasked.actions = {}
    assert agent.weigh_past(unasked) == []
    agent.game_over()
    assert agent.weigh_past(now) == []
    agent.watch(earlier[0])
    assert [each.first for each in agent.weigh_past(now)] == [0]
    for each in copies:
        assert len(each.weigh_past(now)) == 3
    other = make_policy(VECTOR, CALL, MLPConfig((8,)))
    forgetful = watched(NumpyAgent(other.weights()), observed(VECTOR, CALL, 3))
    assert forgetful.weigh_past(observed(VECTOR, CALL, 1)[0]) == []


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_weighing_the_past_and_watching_change_no_decision(kind: int) -> None:
    def agent() -> NumpyAgent | NeuralAgent:
        made = make_agents()[kind]
        if isinstance(made, NumpyAgent):
            return NumpyAgent(made.weights, seed=5)
        return NeuralAgent(made.net, seed=5)

    weighed = agent()
    watcher = weighed.copy_for_seat()

    def watch(turn: Turn) -> None:
        thoughts = thoughts_to_show(weighed, turn.observation)
        assert thoughts is not None
        assert len(thoughts.past) == (turn.step if turn.episode is None else 0)
        watcher.watch(turn.observation)

    weighed_rewards = [SIGNS.run(weighed, seed=seed, watch=watch)[0].reward for seed in range(3)]
    plain = agent()
    assert weighed_rewards == [SIGNS.run(plain, seed=seed)[0].reward for seed in range(3)]


def test_a_key_that_was_shown_matters_most() -> None:
    """Written by hand: the memory opens for a key, keeps it, and the last layer reads it."""
    net = make_policy(VECTOR, CALL, MLPConfig((4,), norm_inputs=False, memory=2))
    features, width = 4, 2  # x, y, time, speed
    weights: dict[str, list[tuple[int, int, float]]] = {
        # Writes if x + y > 0; what is written is x and y.
        "memory.gates.weight": [
            *((width + i, j, 40.0) for i in range(width) for j in range(2)),
            *((2 * width + i, i, 3.0) for i in range(width)),
        ],
        "policy_net.0.weight": [(i, features + i, 5.0) for i in range(width)],
        "action_heads.call.proj.weight": [(i, i, 5.0) for i in range(width)],
    }
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.zero_()
            for row, column, value in weights.get(name, []):
                parameter[row, column] = value
        net.get_parameter("memory.gates.bias")[width : 2 * width] = -20.0
    observations = observed(VECTOR, CALL, 12)
    for step, each in enumerate(observations):
        each.features = {"A": np.array([[1.0, 0.0] if step == 4 else [0.0, 0.0]])}
    *earlier, now = observations
    for agent in (NumpyAgent(net.weights()), NeuralAgent(net)):
        past = watched(agent, earlier).weigh_past(now)
        changes = [each.change for each in past]
        assert int(np.argmax(changes)) == 4
        assert changes[4] > 0.6
        assert sum(changes) - changes[4] < 1e-3


@pytest.mark.slow
def test_the_key_of_a_trained_agent_matters_most(tmp_path: Path) -> None:
    game, out = str(ROOT / "examples" / "hidden_key.py"), str(tmp_path / "run")
    words = ["train", game, "--steps", "100000", "--set-train", "net.memory=32", "--out", out]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--seed", "1"])
    assert ended.value.code == 0
    agent = load_agent(out, greedy=True)
    assert isinstance(agent, PolicyAgent)

    mattered: list[bool] = []

    def watch(turn: Turn) -> None:
        if turn.step == 10 and turn.episode is None:
            [first, *others] = agent.weigh_past(turn.observation)
            assert first.words == "step 0"
            most = max(each.change for each in others)
            mattered.append(first.change > 0.2 and first.change > 3 * most)

    episodes = hidden_key.run(agent, seed=1, episodes=16, watch=watch)
    assert [episode.reward for episode in episodes] == [1.0] * 16
    # Without the key, the agent guesses one color, which is right in a quarter of the episodes.
    assert sum(mattered) >= 8
