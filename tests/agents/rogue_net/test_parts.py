"""Networks for decisions in several parts: numpy and torch agree, and networks can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import (
    ActionSpace,
    CheckpointError,
    ContinuousActionSpace,
    Game,
    GlobalCategoricalActionSpace,
    VecCategoricalActionMask,
    VecObs,
    questions,
)
from entity_env.agents import TrainAgentEnv, load_agent, random_actions
from entity_env.agents.load import Backend
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.ppo.teacher import evaluate_beside, frozen
from entity_env.agents.rogue_net import (
    MLPConfig,
    NumpyAgent,
    RogueNetConfig,
    initialized_from,
)
from entity_env.agents.rogue_net.adapt import renamed
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.config import NetConfig
from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    Chooser,
    GaussianArrays,
)
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.numpy_net.single import IS_COMPILED
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    GaussianDistribution,
    given_samples,
)
from entity_env.agents.rogue_net.torch_net.mlp import make_policy, policy_of
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.rollout_buffer import Minibatch
from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.spaces import Spaces
from entity_env.replay import record
from entity_env.vec import VecEnv
from tests.contract.test_parts import RULES
from tests.games.composite_games import NUM_STEPS, RandomGame, Rules, Share, order, pair, send

SMALL = RogueNetConfig(d_model=8, n_layer=1, n_head=2, d_qk=4)
FLAT = MLPConfig(hidden=(8,))
LABELS = tuple(each.name for each in Share)
QUICK = PPOConfig(total_steps=256, num_steps=8, minibatch_size=32, net=SMALL)


def random_policy(spaces: Spaces, config: NetConfig, seed: int, scale: float = 0.5) -> Policy:
    """A network whose choices depend on everything."""
    torch.manual_seed(seed)
    net = make_policy(*spaces, config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    return net


def spaces_of(game: Game) -> Spaces:
    return game.obs_space(), game.action_space()


def batch_of(game: Game, seed: int, num_steps: int = 2) -> VecObs:
    rng = np.random.default_rng(seed)
    with VecEnv(game, 4, seed=seed) as vec:
        obs = vec.reset()
        for _ in range(num_steps):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        return obs.copy()


def given_choices(
    net: Policy, obs: VecObs, actions: Mapping[str, NDArray[Any]]
) -> dict[str, ActionDistribution]:
    """The distributions of a network, given choices of all actions in units of the game."""
    samples = {}
    for name, values in actions.items():
        space = net.action_space[name]
        chosen = np.asarray(values)
        if isinstance(space, ContinuousActionSpace):
            low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
            chosen = (chosen - low) / (high - low) * 2 - 1
        samples[name] = torch.from_numpy(chosen)
    with torch.no_grad():
        return given_samples(net.distributions(obs)[0], samples)


@pytest.mark.slow
@settings(max_examples=25)
@given(RULES, st.integers(0, 99))
def test_numpy_computes_what_torch_computes(rules: Rules, seed: int) -> None:
    game = RandomGame(rules)
    obs = batch_of(game, seed)
    chosen: dict[str, Any] = dict(
        random_actions(obs, game.action_space(), np.random.default_rng(seed))
    )
    configs: list[NetConfig] = [SMALL, FLAT] if rules.has_global_parts else [SMALL]
    for config in configs:
        net = random_policy(spaces_of(game), config, seed)
        chooser = Chooser()
        chooser.chosen.update(chosen)
        found, values = NumpyNet(net.weights()).distributions(obs, chooser)
        wanted = given_choices(net, obs, chosen)
        assert list(found) == list(wanted)
        np.testing.assert_allclose(values, net.values(obs), rtol=1e-4, atol=1e-5)
        for name, each in wanted.items():
            mine = found[name]
            if not len(each.rows):
                continue
            if isinstance(each, GaussianDistribution):
                assert isinstance(mine, GaussianArrays)
                np.testing.assert_allclose(mine.mean, each.mean, rtol=1e-4, atol=1e-5)
            else:
                assert isinstance(mine, CategoricalArrays)
                assert isinstance(each, CategoricalDistribution)
                probs = each.logprobs.exp().numpy()
                np.testing.assert_allclose(np.exp(mine.logprobs), probs, atol=1e-5)


@pytest.mark.parametrize("config", [SMALL, FLAT], ids=["rogue_net", "mlp"])
def test_later_parts_depend_on_the_choice_and_stay_legal(config: NetConfig) -> None:
    net, obs = random_policy(spaces_of(pair), config, 0), batch_of(pair, 0)
    ones = np.ones(len(obs), np.int64)
    found = []
    for first in (0, 1):
        choices = {"Pair.first": ones * first, "Pair.second": ones * 2, "Pair.third": ones}
        each = given_choices(net, obs, choices)["Pair.second"]
        assert isinstance(each, CategoricalDistribution)
        assert not each.logprobs.exp()[:, first].any()
        found.append(each.logprobs[:, 2])
    assert not torch.allclose(found[0], found[1], atol=1e-3)


@pytest.mark.parametrize("game", [send, pair, order], ids=lambda game: game.name)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_agents_play_record_and_think(game: Game, backend: Backend, tmp_path: Path) -> None:
    write_agent(tmp_path / "a.agent", random_policy(spaces_of(game), SMALL, 1).weights())
    replay = record(game, load_agent(tmp_path / "a.agent", backend=backend), seed=2)
    assert replay.verify(game) is None
    turns = [turn for turn in replay.turns(game) if turn.actions]
    assert turns
    for turn in turns:
        assert turn.thoughts is not None
        probabilities = [np.asarray(each) for each in turn.thoughts.probabilities.values()]
        for each in probabilities:
            np.testing.assert_allclose(each.sum(axis=1), 1, atol=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not IS_COMPILED, reason="the package was installed without a compiler")
@settings(max_examples=25)
@given(RULES, st.integers(0, 99), st.sampled_from([0, 4]), st.sampled_from([0.5, 1.0]))
def test_single_decisions_are_those_of_a_batch(
    rules: Rules, seed: int, memory: int, temperature: float
) -> None:
    """In the same order of draws, so a seed gives the same samples without a compiler."""
    game = RandomGame(rules)
    size = replace(SMALL, memory=memory)
    weights = random_policy(spaces_of(game), size, seed, scale=0.2).weights()
    one, other = (NumpyAgent(weights, seed=seed, temperature=temperature) for _ in range(2))
    in_c, kinds = one._single, rules.kinds
    assert (in_c is None) == ("number" in kinds[:-1])
    one._choose_from_batch = Mock(side_effect=one._choose_from_batch)  # type: ignore[method-assign]
    other._single = None
    env = TrainAgentEnv(game, seed=seed)
    observation = env.reset()
    for _ in range(2 * NUM_STEPS):
        (chosen, probs), (wanted, expected) = (agent.choose(observation) for agent in (one, other))
        assert chosen.keys() == wanted.keys()
        assert probs.keys() == expected.keys()
        for name, each in wanted.items():
            np.testing.assert_allclose(chosen[name], each, atol=1e-4)
        for name, rows in expected.items():
            if len(rows):  # without actors, the batch has another width
                np.testing.assert_allclose(probs[name], rows, atol=1e-4)
        if memory:
            assert one._after is not None
            assert other._after is not None
            np.testing.assert_allclose(one._after, other._after, atol=1e-4)
        asked = questions(observation, *spaces_of(game))
        observation = env.act(choose_in_order(asked, partial(_value_of, wanted)))
        if observation.terminated or observation.truncated:
            observation = env.reset()
    assert in_c is None or not one._choose_from_batch.called
    env.close()


def _value_of(chosen: Mapping[str, Any], question: Question) -> Any:  # noqa: ANN401
    return chosen[question.name]


def test_names_change_everywhere() -> None:
    net = random_policy(spaces_of(send), SMALL, 0)
    names = {"Send.target": "Send.goal", "LOW": "FEW"}
    other = policy_of(renamed(net.weights(), names))
    given = [space.given for space in other.action_space.values()]
    assert given == [(), ("Send.goal",), ("Send.goal", "Send.share")]
    obs = batch_of(send, 0)
    chosen: dict[str, Any] = dict(
        random_actions(obs, send.action_space(), np.random.default_rng(0))
    )
    wanted = given_choices(net, obs, chosen)
    masks = {names.get(name, name): mask for name, mask in obs.action_masks.items()}
    obs.action_masks = masks
    chosen = {names.get(name, name): each for name, each in chosen.items()}
    found = given_choices(other, obs, chosen)
    for name, each in wanted.items():
        assert torch.equal(_logprobs(each), _logprobs(found[names.get(name, name)]))


# ------------------------------------------------------------------ training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "config"), [(send, SMALL), (pair, SMALL), (pair, FLAT), (order, SMALL)]
)
def test_a_run_repeats_itself(game: Game, config: NetConfig) -> None:
    found = []
    for _ in range(2):
        with VecEnv(game, 8, seed=1) as vec:
            result = train(vec, PPOConfig(**{**vars(QUICK), "net": config}))
        found.append(result.net.state_dict())
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(each, found[1][name]) for name, each in found[0].items())


def test_the_divergence_from_a_teacher_sees_the_choices() -> None:
    obs = batch_of(pair, 0)
    actions = random_actions(obs, pair.action_space(), np.random.default_rng(0))
    samples = {name: np.asarray(each) for name, each in actions.items()}
    teacher = frozen(random_policy(spaces_of(pair), SMALL, 1))
    for seed in (1, 2):
        net = random_policy(spaces_of(pair), SMALL, seed)
        found = evaluate_beside(teacher, net, _minibatch(obs, samples)).teacher_kl
        assert found is not None
        wanted = torch.zeros(len(obs))
        theirs = given_choices(teacher, obs, samples)
        for name, own in given_choices(net, obs, samples).items():
            logprobs = _logprobs(theirs[name])
            wanted += (logprobs.exp() * (logprobs - _logprobs(own))).sum(dim=1)
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-3, atol=1e-5)
        assert bool((found.detach() < 1e-5).all()) == (seed == 1)


def _minibatch(obs: VecObs, samples: Mapping[str, NDArray[Any]]) -> Minibatch:
    zeros = np.zeros(len(obs), np.float32)
    return Minibatch(obs, samples, zeros, zeros, zeros, zeros)


def _logprobs(each: ActionDistribution) -> torch.Tensor:
    assert isinstance(each, CategoricalDistribution)
    return each.logprobs


# ------------------------------------------------------------------ changed games


def changed(net: Policy, actions: Mapping[str, ActionSpace], path: Path) -> Policy:
    """The network for a game with these actions."""
    write_agent(path / "old.agent", net.weights())
    made = initialized_from(path / "old.agent", adapt=True)(net.obs_space, actions)
    assert list(made.action_space) == list(actions)
    return made


def without_masks(obs: VecObs, actions: Mapping[str, ActionSpace]) -> VecObs:
    """A batch of `pair` that asks for these actions, all choices allowed."""
    actors = obs.action_masks["Pair.first"].actors
    masks: dict[str, Any] = {name: VecCategoricalActionMask(actors) for name in actions}
    return replace(obs, action_masks=masks)


@pytest.mark.parametrize("config", [SMALL, FLAT], ids=["rogue_net", "mlp"])
def test_a_label_of_an_earlier_part_is_added(config: NetConfig, tmp_path: Path) -> None:
    net = random_policy(spaces_of(pair), config, 3)
    first = net.action_space["Pair.first"]
    assert isinstance(first, GlobalCategoricalActionSpace)
    grown = {**net.action_space, "Pair.first": replace(first, index_to_label=("NEW", *LABELS))}
    other, obs = changed(net, grown, tmp_path), without_masks(batch_of(pair, 0), net.action_space)
    rng = np.random.default_rng(0)
    chosen: dict[str, Any] = {
        name: rng.integers(0, count, len(obs))
        for name, count in (("Pair.first", 3), ("Pair.second", 3), ("Pair.third", 2))
    }
    wanted = given_choices(net, obs, chosen)
    found = given_choices(other, obs, {**chosen, "Pair.first": chosen["Pair.first"] + 1})
    assert not torch.allclose(_logprobs(found["Pair.first"])[:, 0].exp(), torch.zeros(1))
    known = _logprobs(found["Pair.first"])[:, 1:].log_softmax(dim=1)
    assert torch.allclose(known, _logprobs(wanted["Pair.first"]), atol=1e-4)
    for name in ("Pair.second", "Pair.third"):
        assert torch.allclose(_logprobs(found[name]), _logprobs(wanted[name]), atol=1e-4)


@pytest.mark.parametrize("config", [SMALL, FLAT], ids=["rogue_net", "mlp"])
def test_a_part_is_added(config: NetConfig, tmp_path: Path) -> None:
    obs_space, grown = spaces_of(pair)
    third = replace(grown["Pair.third"], given=("Pair.first",))
    net = random_policy(
        (obs_space, {"Pair.first": grown["Pair.first"], "Pair.third": third}), config, 4
    )
    other, obs = changed(net, grown, tmp_path), without_masks(batch_of(pair, 0), grown)
    words = "the dependence of Pair.third on Pair.second is new: no effect at first"
    assert words in str(other.origin)
    ones = np.ones(len(obs), np.int64)
    chosen = {"Pair.first": ones, "Pair.third": ones}
    old = replace(obs, action_masks={name: obs.action_masks[name] for name in net.action_space})
    wanted = given_choices(net, old, chosen)
    for second in range(3):
        found = given_choices(other, obs, {**chosen, "Pair.second": ones * second})
        for name, each in wanted.items():
            assert torch.allclose(_logprobs(found[name]), _logprobs(each), atol=1e-4)


def test_without_adapt_another_dependence_is_named(tmp_path: Path) -> None:
    obs_space, actions = spaces_of(pair)
    net = random_policy((obs_space, actions), SMALL, 5)
    write_agent(tmp_path / "old.agent", net.weights())
    freed = {name: replace(space, given=()) for name, space in actions.items()}
    with pytest.raises(CheckpointError, match=r"Pair\.second.*earlier action.*Pair\.first"):
        initialized_from(tmp_path / "old.agent")(obs_space, freed)
