"""Networks with memory: whole sequences against single steps, and all implementations."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor

from entity_env import (
    Categorical,
    Entity,
    Game,
    GlobalCategorical,
    Obs,
    ObsSpace,
    SchemaError,
    UsageError,
    VecObs,
)
from entity_env.agents import Agent, load_agent
from entity_env.agents.rogue_net import MLPConfig, RogueNetConfig, write_enn_checkpoint
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.config import (
    MAX_MEMORY,
    CNNConfig,
    RelposEncodingConfig,
    net_from_json,
    state_width,
)
from entity_env.agents.rogue_net.memory import Past, RowStates, recur
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.onnx_net.net import OnnxNet
from entity_env.agents.rogue_net.onnx_net.samples import sampled_batches
from entity_env.agents.rogue_net.torch_net import policy
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Memory, Policy
from entity_env.agents.rogue_net.torch_net.rollout_policy import fastest_policy
from entity_env.agents.rogue_net.torch_net.tensors import has_kernels, torch_only
from entity_env.agents.rogue_net.weights import Weights
from entity_env.agents.training.self_play.vec_env import Opponent, SelfPlayVecEnv
from entity_env.core.episode import Episode
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import EntityBatch, concat_entities
from entity_env.errors import CheckpointError
from entity_env.replay import branch, record
from entity_env.vec import VecEnv

ENTITIES = ObsSpace(
    ("time",), {"A": Entity(("x", "y")), "B": Entity(("x", "y", "z")), "C": Entity(())}
)
VECTOR = ObsSpace(("time", "speed"), {"A": Entity(("x", "y"), is_single=True)})
PICTURE = ObsSpace(
    ("time",), {"P": Entity([*map(str, range(72))], is_single=True, shape=(6, 6, 2))}
)
GO: dict[str, ActionSpace] = {
    "go": CategoricalActionSpace(["a", "b", "c"]),
    "call": GlobalCategoricalActionSpace(["d", "e"]),
    "pick": SelectEntityActionSpace(),
}
CALL: dict[str, ActionSpace] = {"call": GlobalCategoricalActionSpace(["d", "e", "f"])}
Config: TypeAlias = RogueNetConfig | MLPConfig | CNNConfig
SMALL = RogueNetConfig(d_model=8, n_layer=1, n_head=2, d_qk=4, memory=5)
RELPOS = RelposEncodingConfig(extent=[2, 2], position_features=["x", "y"])
NETS: dict[str, tuple[ObsSpace, dict[str, ActionSpace], Config]] = {
    "attention": (ENTITIES, GO, SMALL),
    "separate value": (ENTITIES, GO, replace(SMALL, separate_value=True)),
    "pooling": (ENTITIES, GO, replace(SMALL, pooling="meanmax")),
    "no layers": (ENTITIES, GO, replace(SMALL, n_layer=0)),
    "mlp": (VECTOR, CALL, MLPConfig((8, 8), memory=5)),
    "cnn": (PICTURE, CALL, CNNConfig(((4, 3, 1),), (8,), memory=5)),
}


def make_net(name: str) -> Policy:
    """A network with random heads, so its outputs depend on all that it remembers."""
    torch.manual_seed(1)
    net = make_policy(*NETS[name])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net.eval()


def batches_of(net: Policy, count: int) -> list[EntityBatch]:
    """Observations of the network, one row each."""
    return list(sampled_batches(net.weights(), count, has_visible=True))


def numbers(found: Sequence[object]) -> list[Tensor]:
    """Log-probabilities of every action, values and states."""
    distributions, values, states = found
    assert isinstance(distributions, dict)
    assert isinstance(values, Tensor)
    assert isinstance(states, Tensor)
    logprobs = [each.logprobs for each in distributions.values()]
    return [*logprobs, values[:, None], states]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any),
    st.integers(1, 5),
    st.integers(0, 999),
    st.booleans(),
)
def test_the_recurrence_and_its_gradient(
    lengths: list[int], width: int, seed: int, is_compiled: bool
) -> None:
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    states = rng.standard_normal((len(lengths), width)).astype(np.float32)
    past = Past(states, np.array(lengths), rng.random(total) < 0.2)
    torch.manual_seed(seed)
    memory = Memory(3, width)
    x, pull = torch.randn(total, 3), torch.randn(total, width)

    def step_by_step() -> Tensor:
        found, at, begins = [], 0, past.begins
        assert begins is not None
        for first, length in zip(states, lengths, strict=True):
            h = torch.from_numpy(first)
            for row in range(at, at + length):
                h = torch.zeros(width) if begins[row] else h
                own = torch.split(memory.gates(x[row]), width)
                products = torch.split(memory.weight @ h, width)
                reset, write = (torch.sigmoid(own[i] + products[i]) for i in range(2))
                h = h + write * (torch.tanh(own[2] + reset * products[2]) - h)
                found.append(h)
            at += length
        return torch.stack(found)

    with patch.object(policy, "use_kernels", lambda *_: is_compiled and has_kernels()):
        found = memory.forward(x, past)
    expected = step_by_step()
    assert_allclose(found.detach(), expected.detach(), atol=1e-5)
    parameters = [memory.gates.weight, memory.gates.bias, memory.weight]
    by_step, at_once = (
        torch.autograd.grad((each * pull).sum(), parameters) for each in (expected, found)
    )
    for one, other in zip(by_step, at_once, strict=True):
        assert_allclose(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_segments_give_the_same_as_single_steps(name: str) -> None:
    net, rng = make_net(name), np.random.default_rng(3)
    steps = [concat_entities(each) for each in zip(*[iter(batches_of(net, 24))] * 2, strict=True)]
    begins = rng.random((len(steps), 2)) < 0.25
    first = rng.standard_normal((2, net.memory_width)).astype(np.float32)
    states, single = first, []
    with torch.no_grad():
        for step, begun in zip(steps, begins, strict=True):
            found = net.recall(step, Past(np.where(begun[:, None], np.float32(0), states)))
            single.append(found[1:])
            states = found[2].numpy()
        rows = [[step.map_arrays(itemgetter([row])) for step in steps] for row in range(2)]
        whole = concat_entities([step for row in rows for step in row])
        past = Past(first, np.array([12, 12]), begins.T.reshape(-1))
        _, values, after = net.recall(whole, past)
    assert_allclose(values.reshape(2, 12).T, torch.stack([each[0] for each in single]), atol=2e-5)
    assert_allclose(after[11::12], single[-1][1], atol=2e-5)
    assert_allclose(net.values(whole, past), values, atol=2e-5)


@pytest.mark.parametrize("name", NETS)
def test_numpy_agrees_with_torch_over_whole_episodes(name: str) -> None:
    net = make_net(name)
    arrays, states = NumpyNet(net.weights()), np.zeros((1, net.memory_width), np.float32)
    for batch in batches_of(net, 30):
        with torch.no_grad():
            distributions, values, after = net.recall(batch, Past(states))
        found, own_values, own_after = arrays.recall(batch, Past(states))
        for action, each in distributions.items():
            assert isinstance(each, CategoricalDistribution)
            if not len(each.rows):
                continue
            assert_allclose(found[action].logprobs, each.logprobs, atol=1e-4)  # type: ignore[union-attr]
        assert_allclose(own_values, values, atol=1e-4)
        assert_allclose(own_after, after, atol=1e-5)
        states = own_after
    assert np.abs(states).max() > 0.1


@pytest.mark.parametrize("name", ["attention", "separate value", "no layers", "mlp"])
def test_the_policy_of_a_rollout_remembers_the_same(name: str) -> None:
    net = make_net(name)
    batch = concat_entities(batches_of(net, 40))
    past = Past(np.random.default_rng(1).random((40, net.memory_width), np.float32))
    with torch_only():
        expected = net.act(batch, generator=torch.Generator().manual_seed(1), past=past)
    found = fastest_policy(net).act(batch, generator=torch.Generator().manual_seed(1), past=past)
    assert expected.states is not None
    assert found.states is not None
    assert_allclose(found.states, expected.states, atol=1e-5)
    assert_allclose(found.values, expected.values, atol=1e-4)
    assert_allclose(found.entropy, expected.entropy, atol=1e-4)


def test_visible_entities_alone_are_remembered() -> None:
    net = make_net("attention")
    for batch in batches_of(net, 20):
        past = Past(np.zeros((1, net.memory_width), np.float32))
        hidden = EntityBatch(batch.features, batch.visible, batch.action_masks)
        flags = batch.visible.get("A")
        if flags is None or flags.values.all():
            continue
        features = dict(batch.features)
        changed = features["A"].copy()
        changed.values[~flags.values] += 7
        features["A"] = changed
        hidden = EntityBatch(features, batch.visible, batch.action_masks)
        with torch.no_grad():
            assert_allclose(net.recall(hidden, past)[2], net.recall(batch, past)[2], atol=1e-6)
        return
    pytest.fail("no batch has hidden entities")


def test_relative_positions_go_with_memory() -> None:
    space = ObsSpace((), {"A": Entity(("x", "y"))})
    net = make_policy(space, {"go": GO["go"]}, replace(SMALL, relpos_encoding=RELPOS))
    arrays = NumpyNet(net.weights())
    past = Past(np.ones((1, 5), np.float32))
    for batch in sampled_batches(net.weights(), 5, has_visible=False):
        with torch.no_grad():
            expected = numbers(net.recall(batch, past))
        assert_allclose(arrays.recall(batch, past)[2], expected[-1], atol=1e-5)


@pytest.mark.parametrize("memory", [-1, MAX_MEMORY + 1, 1.5, True])
def test_invalid_memory_is_refused(memory: int) -> None:
    for kind in (RogueNetConfig, MLPConfig, CNNConfig):
        with pytest.raises(UsageError, match="memory"):
            kind(memory=memory)


@pytest.mark.parametrize("name", NETS)
def test_configurations_with_and_without_memory(name: str) -> None:
    config = NETS[name][2]
    without = replace(config, memory=0)
    assert net_from_json(config.to_json()) == config
    assert "memory" not in without.to_json()
    assert net_from_json(without.to_json()) == without
    assert state_width(without) == 0
    net = make_policy(*NETS[name][:2], without)
    assert not [key for key in net.state_dict() if "memory" in key]
    assert not [each for each in net.weights().operations() if each.kind == "recur"]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("memory", [0, 4, 6])
def test_tensors_of_another_memory_size_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, memory: int
) -> None:
    weights, path = make_net(name).weights(), tmp_path / "changed.agent"
    changed = replace(weights, config=replace(NETS[name][2], memory=memory))
    with pytest.raises(CheckpointError, match="memory"):
        write_agent(path, changed)
    with monkeypatch.context() as patch:
        patch.setattr(Weights, "require_fit", lambda *_: None)
        write_agent(path, changed)
    with pytest.raises(CheckpointError, match=r"changed\.agent.*memory") as caught:
        load_agent(path)
    assert "\n" not in str(caught.value)


def test_other_formats_refuse_memory(tmp_path: Path) -> None:
    weights = make_net("attention").weights()
    with pytest.raises(CheckpointError, match="memory of 5 numbers"):
        write_enn_checkpoint(tmp_path / "theirs", weights)
    with pytest.raises(SchemaError, match=r"'recur' cannot be .* write an \.agent file"):
        OnnxNet(weights)


# ------------------------------------------------------------------ agents


@dataclass
class Sign:
    """A number that changes at every step."""

    x: float


@dataclass
class Unit:
    """An entity that decides."""

    x: float


class Turn(Enum):
    """What the agent answers."""

    LEFT = 0
    AHEAD = 1
    RIGHT = 2


TURN = GlobalCategorical(Turn)
EACH = Categorical(Turn)


def show(agent: Agent, rng: random.Random, score: float, worth: float) -> float | None:
    """One decision; the score identifies all decisions of an episode."""
    chosen = agent.act(Obs(score).entities([Sign(rng.uniform(-2, 2))]), TURN)
    return None if chosen is None else score + worth * chosen.value


def play(agent: Agent, *, seed: int) -> None:
    rng = random.Random(seed)
    score, worth = 0.0, 1.0
    for _ in range(rng.randrange(2, 12)):
        after = show(agent, rng, score, worth)
        if after is None:
            return
        score, worth = after, 3 * worth
    agent.game_over(Obs(score))


def play_two(agents: Sequence[Agent], *, seed: int) -> None:
    rngs = [random.Random(seed + i) for i in range(2)]
    scores, worth = [0.0, 0.0], 1.0
    for _ in range(8):
        for i, agent in enumerate(agents):
            after = show(agent, rngs[i], scores[i], worth)
            if after is None:
                return
            scores[i] = after
        worth *= 3
    for score, agent in zip(scores, agents, strict=True):
        agent.game_over(Obs(score))


SIGNS = Game(play, entities=(Sign,), actions=(TURN,), name="signs")
PAIR = Game(play_two, entities=(Sign,), actions=(TURN,), num_agents=2, name="pair")


def make_agents(game: Game = SIGNS) -> list[NumpyAgent | NeuralAgent]:
    """Agents with one network, which remembers enough for its decisions to depend on it."""
    spaces = game.schema.obs_space(), game.schema.action_space()
    net = make_policy(*spaces, replace(SMALL, d_model=16, memory=8))
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            size = 2.0 if name == "memory.context.weight" else 0.5 * (not name.endswith("bias"))
            parameter.copy_(size * torch.randn_like(parameter))
    net.eval()
    return [NumpyAgent(net.weights(), greedy=True), NeuralAgent(net, greedy=True)]


def rewards(agent: Agent, seeds: Sequence[int]) -> list[float]:
    return [SIGNS.play_episode(agent, seed=seed)[0].reward for seed in seeds]


@pytest.mark.slow
def test_an_episode_starts_without_memory() -> None:
    seeds = range(12)
    alone = [rewards(agent, [seed])[0] for seed in seeds for agent in make_agents()]
    assert alone[::2] == alone[1::2], "numpy and torch decide the same"
    assert len(set(alone)) > 4
    for agent in make_agents():
        assert rewards(agent, seeds) == alone[::2]


def test_decisions_depend_on_memory() -> None:
    [agent, _] = make_agents()
    [forgetful, _] = make_agents()
    choose = forgetful.choose

    def forget_and_choose(observation: object) -> object:
        forgetful.forget()
        return choose(observation)  # type: ignore[arg-type]

    forgetful.choose = forget_and_choose  # type: ignore[assignment,method-assign]
    assert rewards(agent, range(8)) != rewards(forgetful, range(8))


def test_interleaved_episodes_stay_separate() -> None:
    for agent, fresh in zip(make_agents(), make_agents(), strict=True):
        both = [each.reward for each in PAIR.play_episode(agent, agent, seed=3)]
        apart = [each.reward for each in PAIR.play_episode(agent, fresh, seed=3)]
        assert both == apart
        assert len(set(both)) == 2


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_rows_of_a_batch_remember_their_own_episodes(autoreset: str) -> None:
    for agent in make_agents():
        with VecEnv(SIGNS, 5, autoreset=autoreset) as vec:  # type: ignore[arg-type]  # one of three
            for _ in range(2):  # the second reset abandons running episodes
                check_rows(vec, agent, 20)


def check_rows(vec: VecEnv, agent: NumpyAgent | NeuralAgent, num_steps: int) -> None:
    """Compares episodes played in a batch with the same ones, played one by one."""
    [alone, _] = make_agents()
    obs = vec.reset(seed=4)
    episodes: list[Episode] = []
    for step in range(num_steps):
        if vec.autoreset == "disabled" and (obs.done.any() or step == 7):
            obs = vec.reset_envs(obs.done if step != 7 else np.arange(5) < 2)
            continue
        obs = vec.act(agent.decide_batch(obs, SIGNS.schema))
        episodes += obs.episodes
    assert len(episodes) > 5
    for episode in episodes:
        assert rewards(alone, [episode.seed]) == [episode.reward]


def play_units(agent: Agent, *, seed: int) -> None:
    """A unit that is not always there chooses."""
    rng, score = random.Random(seed), 0.0
    for i in range(6):
        units = [Unit(rng.uniform(-2, 2))] * rng.randrange(2)
        shown = Obs(score).entities([Sign(rng.uniform(-2, 2))]).actors(units, EACH)
        chosen = agent.act(shown, EACH)
        if chosen is None:
            return
        score += sum(each.value for each in chosen) * 3**i
    agent.game_over(Obs(score))


UNITS = Game(play_units, entities=(Unit, Sign), actions=(EACH,), name="units")


@pytest.mark.slow
def test_what_no_actor_decides_on_is_not_remembered() -> None:
    """In a batch, as in training, and one by one."""
    for agent, alone in zip(make_agents(UNITS), make_agents(UNITS), strict=True):
        with VecEnv(UNITS, 5) as vec:
            obs, num_episodes = vec.reset(seed=1), 0
            for _ in range(20):
                obs = vec.act(agent.decide_batch(obs, UNITS.schema))
                for each in obs.episodes:
                    assert UNITS.play_episode(alone, seed=each.seed)[0].reward == each.reward
                    num_episodes += 1
        assert num_episodes > 5


def test_groups_of_a_batch_in_any_order() -> None:
    rng, states = np.random.default_rng(1), RowStates(1)
    with VecEnv(PAIR, 4) as vec:
        obs = vec.reset(seed=1)
        expected = np.zeros((8, 1), np.float32)
        for _ in range(20):
            rows = rng.permutation(8)[:5]
            part = obs.select(rows)
            if obs.begins is not None:
                part.begins = np.zeros(5, np.bool_)
            before = states.past(part).states
            expected[rows[part.done]] = 0
            assert_array_equal(before, expected[rows])
            after = before + rng.random((5, 1), np.float32)
            states.advance(part, after)
            ready = part.is_ready
            expected[rows[ready]] = after[ready]


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_an_agent_copied_in_the_middle_of_an_episode(kind: int) -> None:
    agent = make_agents()[kind]
    observed: list[object] = []
    choose = agent.choose

    def keep(observation: object, choose: object = choose) -> object:
        observed.append(copy.deepcopy(observation))
        return choose(observation)  # type: ignore[operator]

    agent.choose = keep  # type: ignore[assignment,method-assign]
    rewards(agent, [1, 2])
    del agent.choose
    agent.forget()
    for observation in observed[:3]:
        agent.decide(observation)  # type: ignore[arg-type]
    copies = [copy.deepcopy(agent), copy.copy(agent), pickle.loads(pickle.dumps(agent))]
    copy.copy(agent).decide(observed[4])  # type: ignore[arg-type]
    fresh = agent.copy_for_seat()
    thoughts = agent.think(observed[3])  # type: ignore[arg-type]
    decided = agent.decide(observed[3])  # type: ignore[arg-type]
    again = agent.think(observed[3])  # type: ignore[arg-type]
    name = next(iter(decided))
    for each in (again, *(one.think(observed[3]) for one in copies)):
        assert_allclose(each.probabilities[name], thoughts.probabilities[name], atol=1e-6)
    for one in copies:
        one.decide(observed[3])
        assert_equal_choices(one.decide(observed[4]), copy.copy(agent).decide(observed[4]))  # type: ignore[arg-type]
    forgot = fresh.think(observed[3])  # type: ignore[arg-type]
    assert not np.allclose(forgot.probabilities[name], thoughts.probabilities[name])


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_an_agent_copied_in_the_middle_of_a_batch(kind: int) -> None:
    agent, other = make_agents()[kind], make_agents()[kind]
    with VecEnv(SIGNS, 5) as vec:
        obs = vec.reset(seed=4)
        for step in range(12):
            expected = agent.decide_batch(obs, SIGNS.schema)
            other.decide_batch(obs, SIGNS.schema)
            obs = vec.act(expected)
            copies = [copy.copy(agent), copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
            decided = [each.decide_batch(obs, SIGNS.schema) for each in (*copies, *copies)]
            [mine] = copy.deepcopy(other).decide_batch(obs, SIGNS.schema).values()
            for each in decided[: len(copies)]:
                assert_array_equal(each["Turn"], mine)
            if step == 6:  # copies that have decided twice leave the original as it was
                agent, other = other, agent


@dataclass
class _Interrupted:
    """Replaces a function: raises `KeyboardInterrupt` instead of one call, or after it."""

    function: Callable[..., Any]
    at: int
    is_after: bool = False
    num_calls: int = 0

    def __call__(self, *args: Any) -> Any:  # noqa: ANN401 - any function
        self.num_calls += 1
        if self.num_calls == self.at and not self.is_after:
            raise KeyboardInterrupt
        found = self.function(*args)
        if self.num_calls == self.at:
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_decision_interrupted_before_it_is_remembered(kind: int, is_after: bool) -> None:
    """The same question again gets the same answer, and what follows does not change."""
    agent, whole = make_agents()[kind], make_agents()[kind]
    observed: list[Any] = []
    for each in (agent, whole):
        each.decide = _kept(each.decide, observed)  # type: ignore[assignment,method-assign]
        rewards(each, [1])
        del each.decide
        each.forget()
    half = len(observed) // 2
    agent.choose = _Interrupted(agent.choose, 3, is_after)  # type: ignore[assignment,method-assign]
    for i, (observation, same) in enumerate(zip(observed[:half], observed[half:], strict=True)):
        if i == 2:
            with pytest.raises(KeyboardInterrupt):
                agent.decide(observation)
        assert_equal_choices(agent.decide(observation), whole.decide(same))


def _kept(decide: Callable[[Any], Any], observed: list[Any]) -> Callable[[Any], Any]:
    def keep_and_decide(observation: Any) -> Any:  # noqa: ANN401 - as `decide`
        observed.append(copy.deepcopy(observation))
        return decide(observation)

    return keep_and_decide


def assert_equal_choices(one: Any, other: Any) -> None:  # noqa: ANN401 - actions by name
    for name, each in one.items():
        assert each.index == other[name].index
        assert_allclose(each.probs, other[name].probs, atol=1e-6)


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_a_batch_interrupted_before_it_is_remembered(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agents()[kind]
    [alone, _] = make_agents()
    interrupted = _Interrupted(RowStates.advance, 7)
    monkeypatch.setattr(RowStates, "advance", lambda *args: interrupted(*args))
    episodes: list[Episode] = []
    with VecEnv(SIGNS, 5) as vec:
        obs = vec.reset(seed=4)
        for step in range(20):
            if step == 6:
                with pytest.raises(KeyboardInterrupt):
                    agent.decide_batch(obs, SIGNS.schema)
            obs = vec.act(agent.decide_batch(obs, SIGNS.schema))
            episodes += obs.episodes
    assert len(episodes) > 5
    for episode in episodes:
        assert rewards(alone, [episode.seed]) == [episode.reward]


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_one_agent_in_all_seats_of_self_play(kind: int) -> None:
    """Also as the learner, whose seat changes from game to game."""
    agent, alone = make_agents()[kind], make_agents()[0]

    def expected(episode: Episode) -> tuple[float, ...]:
        return tuple(each.reward for each in PAIR.play_episode(alone, alone, seed=episode.seed))

    opponents = [Opponent.of_agent(name, agent, PAIR.schema) for name in ("a", "b")]
    with SelfPlayVecEnv(VecEnv(PAIR, 6), opponents, share=0.7) as vec:
        obs, num_results = vec.reset(seed=3), 0
        for step in range(60):
            if step == 30:
                obs = vec.reset_envs(np.arange(6) < 3)
            obs = vec.act(agent.decide_batch(obs, PAIR.schema))
            for episode in obs.episodes:
                assert episode.reward == expected(episode)[episode.agent_id]
            for result in vec.take_results():
                assert result.rewards in [expected(each) for each in obs.episodes]
                num_results += 1
    assert num_results > 5


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_watching_is_as_good_as_deciding(kind: int) -> None:
    agent = make_agents()[kind]
    watcher = agent.copy_for_seat()
    decide = agent.decide

    def decide_and_show(observation: object, decide: object = decide) -> object:
        decided = decide(observation)  # type: ignore[operator]
        one, other = agent.think(observation), watcher.think(observation)  # type: ignore[arg-type]
        for name in decided:
            assert_allclose(one.probabilities[name], other.probabilities[name], atol=1e-5)
        watcher.watch(observation)  # type: ignore[arg-type]
        return decided

    agent.decide = decide_and_show  # type: ignore[assignment,method-assign]
    for seed in range(3):
        watcher.forget()
        rewards(agent, [seed])


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
@pytest.mark.parametrize("game", [SIGNS, PAIR], ids=str)
def test_who_takes_over_remembers_what_came_before(kind: int, game: Game) -> None:
    agent, seats = make_agents()[kind], game.num_agents
    for seed in range(2):
        replay = record(game, *[agent] * seats, seed=seed)
        for at in range(1, replay.num_decisions, 3):
            assert branch(replay, at, [agent] * seats, game=game).rewards == replay.rewards


def test_recur_of_a_batch_of_many_rows() -> None:
    rng = np.random.default_rng(1)
    gates, weight = rng.random((9, 6), np.float32), rng.random((6, 2), np.float32)
    past = Past(rng.random((9, 2), np.float32))
    whole = recur(gates, weight, past).states
    for row in range(9):
        part = recur(gates[[row]], weight, Past(past.states[[row]])).states
        assert_allclose(part[0], whole[row], atol=1e-6)


def test_batches_keep_the_rows_that_begin() -> None:
    with VecEnv(SIGNS, 3) as vec:
        obs = vec.reset(seed=1).copy()
        assert obs.begins is not None
        assert obs.begins.all()
        later = vec.act({name: np.zeros(3, np.int64) for name in vec.action_space()}).copy()
        assert later.begins is None
        joined = VecObs.concat([obs, later])
        assert joined.begins is not None
        assert joined.begins.tolist() == [True] * 3 + [False] * 3
        assert obs.select([2]).begins == np.array([True])
