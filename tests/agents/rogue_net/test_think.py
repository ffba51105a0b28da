"""Thoughts: equal in numpy and torch, in the game's order, without side effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from entity_env import (
    Action,
    ActionSpace,
    CheckpointError,
    Entity,
    Game,
    ObsSpace,
    ProtocolError,
    SchemaError,
)
from entity_env.agents import PolicyAgent, RandomAgent, load_agent
from entity_env.agents.load import Backend
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    NeuralAgent,
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    Weights,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.adapt import FeatureAdaptor
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.config import NetConfig
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.torch_net.distributions import ActionDistribution
from entity_env.agents.rogue_net.torch_net.mlp import make_policy, policy_of
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.authoring.local_run import AgentRun, Thoughts, Turn
from entity_env.core.observation import (
    CategoricalActionMask,
    ContinuousActionMask,
    GlobalCategoricalActionMask,
    Observation,
)
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ContinuousActionSpace, GlobalCategoricalActionSpace, Spaces
from entity_env.core.vec_obs import EntityBatch
from entity_env.games import cherry_pick, multi_snake, rock_paper_scissors, snake
from tests.agents.rogue_net.fixtures import DATA
from tests.agents.rogue_net.numpy_net.test_net import (
    ACTIONS,
    CONFIGS,
    OBS,
    POSITIONED,
    POSITIONED_CONFIGS,
    observations,
)
from tests.agents.rogue_net.test_adapt import grown_games, shown, weights_for
from tests.agents.rogue_net.torch_net.test_cnn import PUSH, screen
from tests.helpers.strategies import untyped


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_policy(
    obs_space: ObsSpace,
    config: NetConfig,
    action_space: Mapping[str, ActionSpace] = ACTIONS,
    seed: int = 0,
) -> Policy:
    torch.manual_seed(seed)
    net = make_policy(obs_space, action_space, config)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("count", "squares_sum", "std")):
                tensor.uniform_(2, 20)
            elif tensor.dtype == torch.float32 and not name.endswith("strides"):
                tensor.normal_(std=0.4)
    return net.eval()


def both(net: Policy, temperature: float = 1.0) -> list[TrainedAgent]:
    return [
        NumpyAgent(net.weights(), temperature=temperature, seed=0),
        NeuralAgent(net, temperature=temperature, seed=0),
    ]


@contextmanager
def softmaxes() -> Iterator[list[Floats]]:
    """Attention weights of torch's padded attention, query before key."""
    found: list[Floats] = []
    softmax = torch.softmax

    def record(x: torch.Tensor, dim: int) -> torch.Tensor:
        y = softmax(x, dim=dim)
        assert dim in (1, -1)
        found.append((y.transpose(1, 2) if dim == 1 else y[0]).numpy().copy())
        return y

    with mock.patch.object(torch, "softmax", record):
        yield found


def reference(agent: NeuralAgent, observation: Observation) -> Thoughts:
    """Reference in torch, for a network in which every layer attends to all entities."""
    net = agent.net
    assert isinstance(net, RogueNet)
    batch = agent._batch_of(observation)
    with torch.inference_mode(), softmaxes() as found:
        values = net.distributions(batch)[1]
    size = sum(len(batch.features[name].values) for name in net.inputs.names)
    shape = net.config.n_layer, net.config.n_head, size, size
    attention = np.array(found[: net.config.n_layer]).reshape(shape)
    for i in np.flatnonzero(~np.asarray(observation.visible.get("A", []), np.bool_)):
        attention[:, :, i] = attention[:, :, :, i] = 0  # of the first type
    probs = agent.choose(observation)[1]
    if not len(probs["a.b"]):
        probs = {**probs, "a.b": np.zeros((0, sum(map(len, observation.ids.values()))), np.float32)}
    return Thoughts(probs, values.item(), attention if len(attention) else None)


def require_close(ours: Thoughts, theirs: Thoughts) -> None:
    for name in ours.probabilities.keys() | theirs.probabilities.keys():
        one, two = ours.probabilities[name], theirs.probabilities[name]
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(one.sum(axis=1), 1, rtol=1e-5)
    assert ours.value == pytest.approx(theirs.value, rel=1e-4, abs=1e-4)
    if ours.attention is None or theirs.attention is None:
        assert ours.attention is theirs.attention
    else:
        assert ours.attention.dtype == np.float32
        np.testing.assert_allclose(ours.attention, theirs.attention, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(
    ("space", "config"),
    [
        *((OBS, config) for config in CONFIGS),
        *((POSITIONED, config) for config in POSITIONED_CONFIGS),
        (OBS, RogueNetConfig(d_model=8, separate_value=True, value_scale=True)),
    ],
    ids=lambda each: "" if isinstance(each, ObsSpace) else f"d{each.d_model}",
)
@settings(max_examples=25)
@given(data=st.data())
def test_both_backends_think_what_torch_computes(
    space: ObsSpace, config: RogueNetConfig, data: st.DataObject
) -> None:
    observation = data.draw(observations(space))
    ours, torchs = both(random_policy(space, config, seed=data.draw(st.integers(0, 3))))
    assert isinstance(torchs, NeuralAgent)
    expected = reference(torchs, observation)
    for agent in (ours, torchs):
        found = agent.think(observation)
        assert found.probabilities.keys() == {"move", "a.b", "mode"}
        require_close(found, expected)
        if found.attention is None:
            assert not config.n_layer
            continue
        sums = found.attention.sum(axis=-1)
        hidden = np.flatnonzero(~np.asarray(observation.visible.get("A", []), np.bool_))
        assert not sums[:, :, hidden].any()
        np.testing.assert_allclose(np.delete(sums, hidden, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "meanmax"])
@settings(max_examples=10)
@given(data=st.data())
def test_a_network_that_pools_has_no_attention(pooling: str, data: st.DataObject) -> None:
    observation = data.draw(observations(OBS))
    ours, theirs = both(random_policy(OBS, RogueNetConfig(d_model=8, pooling=pooling)))
    assert ours.think(observation).attention is None
    require_close(ours.think(observation), theirs.think(observation))


@pytest.mark.parametrize("config", [MLPConfig((5,)), CNNConfig()], ids=["mlp", "cnn"])
def test_flat_networks_have_values_and_no_attention(config: NetConfig) -> None:
    if isinstance(config, CNNConfig):
        space = screen((6, 6, 1), ("t",))
        features = {"Screen": np.random.default_rng(0).normal(size=(1, 36))}
    else:
        space = ObsSpace(("t",), {"A": Entity(("x", "y"), is_single=True)})
        features = {"A": np.array([[1.0, -2.0]])}
    net = random_policy(space, config, PUSH)
    observation = Observation(
        reward=0.0,
        global_features=[3.0],
        features=features,
        actions={"Push": GlobalCategoricalActionMask([1, 0, 1])},
    )
    for temperature in (1.0, 0.3):
        ours, theirs = both(net, temperature)
        found = ours.think(observation)
        assert found.attention is None
        assert found.probabilities["Push"][0, 1] == 0
        require_close(found, theirs.think(observation))
        require_close(found, Thoughts(theirs.choose(observation)[1], found.value))
        batch = theirs._batch_of(observation)
        assert found.value == pytest.approx(net.values(batch)[0], rel=1e-4)


def test_a_continuous_action_has_no_probabilities() -> None:
    space = ObsSpace((), {"A": Entity(("x",), is_single=True)})
    steer: dict[str, ActionSpace] = {"Steer": ContinuousActionSpace((-1.0,), (1.0,))}
    features = {"A": np.ones((1, 1))}
    actions = {"Steer": ContinuousActionMask(actor_types=["A"])}
    observation = Observation(reward=0.0, features=features, actions=actions)
    configs: list[NetConfig] = [MLPConfig(), RogueNetConfig(d_model=4)]
    for config in configs:
        for agent in both(random_policy(space, config, steer)):
            found = agent.think(observation)
            assert found.probabilities == {}
            assert found.value is not None


GAMES = [cherry_pick, multi_snake, snake, rock_paper_scissors]


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_it_leaves_no_trace(game: Game, temperature: float) -> None:
    """Samples and probabilities do not depend on calls of `think` in between."""
    spaces = game.obs_space(), game.action_space()
    net = random_policy(spaces[0], RogueNetConfig(d_model=8, n_layer=2), spaces[1])

    def turns(kind: int, thinks: bool) -> list[Turn]:
        agents = [both(net, temperature)[kind] for _ in range(game.num_agents)]
        seen: list[Turn] = []

        def watch(turn: Turn) -> None:
            if thinks:
                agents[turn.agent_id].think(seen[-1].observation if seen else turn.observation)
                thoughts = agents[turn.agent_id].think(turn.observation)
                turn = replace(turn, thoughts=thoughts)
            seen.append(turn)

        game.run(*agents, seed=3, episodes=2, watch=watch)
        return seen

    for kind in range(2):
        for plain, thought in zip(turns(kind, False), turns(kind, True), strict=True):
            assert plain.actions.keys() == thought.actions.keys()
            assert thought.thoughts is not None
            for name, action in plain.actions.items():
                require_same_action(action, thought.actions[name])
                probs = np.atleast_2d(vars(action)["probs"])
                np.testing.assert_allclose(
                    thought.thoughts.probabilities[name], probs, rtol=1e-3, atol=1e-5
                )
                if kind == 1:
                    np.testing.assert_array_equal(thought.thoughts.probabilities[name], probs)


def require_same_action(one: Action, two: Action) -> None:
    assert type(one) is type(two)
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, vars(two)[name])


def joined(agent: TrainedAgent, spaces: Spaces) -> TrainedAgent:
    """The agent, joined to a game with these spaces."""
    schema = SimpleNamespace(obs_space=lambda: spaces[0], action_space=lambda: spaces[1])
    agent.join(AgentRun(untyped(schema)))
    return agent


def labels(observation: Observation, spaces: Spaces) -> list[object]:
    """The id of every entity in the order of the space; `None` for the global features."""
    ids = observation.entity_ids(spaces[0])
    kinds = map(type, spaces[1].values())
    return [*ids, None] if GlobalCategoricalActionSpace in kinds else ids


@settings(max_examples=60)
@given(data=st.data())
def test_attention_is_in_the_order_of_the_game(data: st.DataObject) -> None:
    known, game = data.draw(grown_games())
    observation = data.draw(shown(known, game))
    weights = weights_for(known)
    policy = policy_of(weights)
    for adapting, strict in (
        (NumpyAgent(weights, adapt=True), NumpyAgent(weights)),
        (NeuralAgent(policy, adapt=True), NeuralAgent(policy)),
    ):
        agent = joined(adapting, game)
        adapted = FeatureAdaptor(known, game).observation(observation)
        found, expected = agent.think(observation), strict.think(adapted)
        assert found.attention is not None
        assert expected.attention is not None
        there = labels(observation, game)
        assert found.attention.shape[2:] == (len(there), len(there))
        wanted = np.zeros_like(found.attention)
        here = labels(adapted, known)
        for i, one in enumerate(here):
            for j, two in enumerate(here):
                wanted[:, :, there.index(one), there.index(two)] = expected.attention[:, :, i, j]
        np.testing.assert_allclose(found.attention, wanted, atol=1e-5)
        assert found.probabilities.keys() == expected.probabilities.keys()
        for name, probabilities in found.probabilities.items():
            np.testing.assert_allclose(probabilities, expected.probabilities[name], atol=1e-5)


def test_the_value_sees_what_the_policy_does_not() -> None:
    def see(x: float) -> Observation:
        return Observation(
            reward=0.0,
            global_features=[0.0],
            features={"A": np.array([[1.0, 2.0], [x, x], [0.0, 1.0]])},
            actions={"move": CategoricalActionMask(actor_types=["A"])},
            visible={"A": [True, False, True]},
        )

    for agent in both(random_policy(OBS, CONFIGS[0])):
        one, two = agent.think(see(1.0)), agent.think(see(-3.0))
        assert one.attention is not None
        assert not one.attention[:, :, 1].any()
        assert not one.attention[:, :, :, 1].any()
        rows = [0, 2]
        first, second = one.probabilities["move"], two.probabilities["move"]
        np.testing.assert_allclose(first[rows], second[rows], atol=1e-6)
        assert abs(untyped(one.value) - untyped(two.value)) > 1e-3


@pytest.mark.parametrize("separate", [False, True])
def test_values_are_in_units_of_the_score(separate: bool) -> None:
    """New statistics of returns, as in PPO, do not change the values."""
    config = RogueNetConfig(d_model=8, separate_value=separate, value_scale=True)
    net = random_policy(OBS, config)
    observation = Observation(reward=0.0, global_features=[1.0], features={"A": np.ones((2, 2))})
    before = [agent.think(observation).value for agent in both(net)]
    net.scale_values(100.0, 30.0)
    after = [agent.think(observation).value for agent in both(net)]
    assert before == pytest.approx([before[0]] * 2, rel=1e-4)
    assert after == pytest.approx(before, rel=1e-3, abs=1e-3)


def test_a_value_that_was_never_trained_is_none(tmp_path: Path) -> None:
    fresh = RogueNet(OBS, ACTIONS, CONFIGS[0])
    observation = Observation(reward=0.0, global_features=[1.0], features={"A": np.ones((2, 2))})
    for agent in both(fresh):
        assert agent.think(observation).value is None
    labelled = {"move": ACTIONS["move"]}
    config = RogueNetConfig(d_model=8, separate_value=True)
    space = ObsSpace(OBS.global_features, {"A": OBS.entities["A"]})
    weights = random_policy(space, config, labelled).weights()
    assert NumpyAgent(weights).think(observation).value is not None
    write_enn_checkpoint(tmp_path / "enn", weights)
    for backend in ("numpy", "torch"):
        loaded = load_agent(tmp_path / "enn", backend=backend)
        assert isinstance(loaded, TrainedAgent)
        assert loaded.think(observation).value is None


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_loaded_agents_think(tmp_path: Path, backend: Backend) -> None:
    """A checkpoint of enn-trainer and a file of ours."""
    source = DATA / "trained_multisnake"
    first = load_agent(source, backend=backend)
    assert isinstance(first, NumpyAgent | NeuralAgent)
    weights = first.weights if isinstance(first, NumpyAgent) else first.net.weights()
    write_agent(tmp_path / "x.agent", weights)
    again = load_agent(tmp_path / "x.agent", backend=backend)
    assert isinstance(again, TrainedAgent)
    rng = np.random.default_rng(0)
    features = {
        name: rng.normal(size=(2, len(entity.features)))
        for name, entity in weights.obs_space.entities.items()
    }
    observation = Observation(
        reward=0.0,
        global_features=rng.normal(size=len(weights.obs_space.global_features)),
        features=features,
        actions={
            name: CategoricalActionMask(actor_types=[next(iter(features))])
            for name in weights.action_space
        },
    )
    found = first.think(observation)
    assert found.value is not None
    assert found.attention is not None
    np.testing.assert_allclose(found.attention.sum(axis=-1), 1, rtol=1e-5)
    require_close(found, again.think(observation))


def test_little_to_think_about() -> None:
    for agent in both(random_policy(OBS, CONFIGS[0])):
        none = agent.think(Observation(reward=0.0, global_features=[1.0]))
        assert none.probabilities == {}
        assert none.value is not None
        assert none.attention is not None
        assert none.attention.shape == (2, 2, 1, 1)  # the entity of the global features
        blank = Observation(reward=0.0, terminated=True)
        assert agent.think(blank) == Thoughts({})
        actions = {"move": CategoricalActionMask(actor_ids=[])}
        unasked = agent.think(Observation(reward=0.0, global_features=[1.0], actions=actions))
        assert unasked.probabilities["move"].shape == (0, 3)
        stuck = Observation(
            reward=0.0,
            global_features=[1.0],
            features={"A": np.ones((1, 2))},
            actions={"move": CategoricalActionMask(actor_types=["A"], mask=[[0, 0, 0]])},
        )
        with pytest.raises(SchemaError, match="no legal choice"):
            agent.think(stuck)
        with pytest.raises(SchemaError, match="'Z' is not in the observation space"):
            agent.think(Observation(reward=0.0, global_features=[1], features={"Z": [[1]]}))
    labelled = {"move": ACTIONS["move"]}
    for agent in both(random_policy(OBS, CONFIGS[0], labelled)):
        empty = agent.think(Observation(reward=0.0, global_features=[1.0]))
        assert empty.attention is not None
        assert empty.attention.shape == (2, 2, 0, 0)


def test_a_game_is_needed_to_adapt_to_it() -> None:
    weights = weights_for((snake.obs_space(), snake.action_space()))
    turns: list[Turn] = []
    snake.run(RandomAgent(0), seed=0, watch=turns.append)
    observation = turns[0].observation
    strict = NumpyAgent(weights).think(observation)  # no game: the order of the network
    adapting = NumpyAgent(weights, adapt=True)
    with pytest.raises(ProtocolError, match=r"NumpyAgent has no game yet: .*agent\.join\("):
        adapting.think(observation)
    adapting.join(AgentRun(snake.schema))
    require_close(adapting.think(observation), strict)
    adapting.join(AgentRun(multi_snake.schema))
    with pytest.raises(CheckpointError, match="cannot be adapted"):
        adapting.think(observation)


def test_an_agent_without_a_network_has_no_thoughts() -> None:
    observation = Observation(reward=0.0)
    assert RandomAgent(0).think(observation) is None

    class Same(PolicyAgent):
        def decide(self, observation: Observation) -> Mapping[str, Action]:
            return {}

    assert Same().think(observation) is None


class Uniform(Policy):
    """A custom network: all labels are equally likely, and the value is 7."""

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[str, ActionDistribution], torch.Tensor]:
        num_rows = len(next(iter(batch.features.values())))
        logits = torch.zeros(num_rows, 3)
        return {"Push": self.labels("Push", logits, batch)}, torch.full((num_rows,), 7.0)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")


def test_a_network_of_ones_own_has_no_attention() -> None:
    agent = NeuralAgent(Uniform(ObsSpace(("t",)), PUSH))
    actions = {"Push": GlobalCategoricalActionMask([1, 1, 0])}
    found = agent.think(Observation(reward=0.0, global_features=[1.0], actions=actions))
    np.testing.assert_allclose(found.probabilities["Push"], [[0.5, 0.5, 0]])
    assert (found.value, found.attention) == (7.0, None)


def test_thoughts_own_their_arrays() -> None:
    """The agent reuses its buffers for the next observation."""

    def see(x: float) -> Observation:
        return Observation(
            reward=0.0,
            global_features=[x],
            features={"A": np.full((2, 2), x)},
            actions={"move": CategoricalActionMask(actor_types=["A"])},
        )

    def parts(thoughts: Thoughts) -> list[Any]:
        return [thoughts.probabilities["move"].tolist(), untyped(thoughts.attention).tolist()]

    for agent in both(random_policy(OBS, CONFIGS[0])):
        first = agent.think(see(1.0))
        kept = parts(first)
        assert parts(agent.think(see(-2.0))) != kept
        assert parts(first) == kept


def test_weights_of_a_value_apart_count() -> None:
    config = RogueNetConfig(d_model=4, separate_value=True)
    fresh = RogueNet(OBS, ACTIONS, config).weights()
    assert not fresh.has_value
    tensors = dict(fresh.tensors)
    tensors["value_net.auxiliary_heads.value.bias"] = np.ones(1, np.float32)
    assert Weights(OBS, ACTIONS, config, tensors).has_value
