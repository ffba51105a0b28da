"""Continuous actions, end to end: Gaussian head, storage, learning, playing, checkpoints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor
from torch.distributions import Normal

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent, RandomAgent
from entity_env.agents.load import load_agent
from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.ppo.ppo import collect, ppo_loss
from entity_env.agents.ppo.rollout import Collector
from entity_env.agents.rogue_net import (
    GaussianDistribution,
    NeuralAgent,
    ObsBatch,
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    save_checkpoint,
)
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.authoring.local_run import Turn
from entity_env.core.action_request import require_in_bounds
from entity_env.core.observation import ContinuousAction, GlobalCategoricalAction
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    ObsSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
)
from entity_env.errors import CheckpointError, SchemaError
from entity_env.vec import VecEnv
from tests.agents.ppo.small_envs import ragged
from tests.helpers.continuous_games import PUSH, Body, VecTargets, Wall, bodies_game
from tests.helpers.tiny_games import chaos

SMALL = RogueNetConfig(d_model=16, n_layer=1)
CONFIG = PPOConfig(
    total_steps=512, net=SMALL, num_steps=2, minibatch_size=64, learning_rate=0.005, ent_coef=0.01
)


def _gaussian(
    num_actors: int = 5, low: Sequence[float] = (-1.0, 0.0, 5.0), high: Sequence[float] = (1, 9, 6)
) -> GaussianDistribution:
    rng = torch.Generator().manual_seed(num_actors)
    return GaussianDistribution(
        rows=torch.zeros(num_actors, dtype=torch.int64),
        mean=torch.randn(num_actors, len(low), generator=rng),
        log_std=torch.randn(len(low), generator=rng),
        low=torch.tensor(low, dtype=torch.float32),
        high=torch.tensor(high, dtype=torch.float32),
    )


def _torch_s(mean: Tensor, std: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density and entropy by torch's own normal distribution, `(num_actors,)`."""
    normal = Normal(mean, std.expand_as(mean))
    each = normal.log_prob(samples), normal.entropy()  # type: ignore[no-untyped-call]
    return each[0].sum(1), each[1].sum(1)


@pytest.mark.parametrize("num_actors", [0, 1, 5])
def test_density_and_entropy_are_those_of_torch(num_actors: int) -> None:
    ours = _gaussian(num_actors)
    samples = 3 * torch.randn(num_actors, 3)
    logprob, entropy = _torch_s(ours.mean, ours.log_std.exp(), samples)
    torch.testing.assert_close(ours.logprob(samples), logprob)
    torch.testing.assert_close(ours.entropy(), entropy)
    assert ours.entropy().shape == (num_actors,)


def test_in_units_of_the_space_they_differ_by_a_constant() -> None:
    """See `GaussianDistribution`: ratios and gradients are therefore equal."""
    ours = _gaussian()
    half, middle = (ours.high - ours.low) / 2, (ours.high + ours.low) / 2
    inside = dataclasses.replace(ours, mean=ours.mean / 100, log_std=ours.log_std - 5)
    samples = inside.draw(torch.Generator().manual_seed(0))
    assert samples.abs().max() < 1
    logprob, entropy = _torch_s(
        middle + half * inside.mean, half * inside.log_std.exp(), inside.actions(samples)
    )
    log_half = half.log().sum()
    torch.testing.assert_close(inside.logprob(samples) - log_half, logprob, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(inside.entropy() + log_half, entropy)


def test_gradients_equal_finite_differences() -> None:
    ours = _gaussian()
    samples = torch.randn(5, 3, dtype=torch.float64)

    def weigh(mean: Tensor, log_std: Tensor) -> Tensor:
        each = dataclasses.replace(ours, mean=mean, log_std=log_std)
        return torch.cat([each.logprob(samples), each.entropy()])

    parameters = [p.double().requires_grad_() for p in (ours.mean, ours.log_std)]
    torch.autograd.gradcheck(weigh, parameters)


def test_draws_have_the_mean_and_deviation_and_follow_a_generator() -> None:
    one = _gaussian(1)
    many = dataclasses.replace(one, mean=one.mean.expand(20_000, -1))
    samples = many.draw(torch.Generator().manual_seed(3))
    torch.testing.assert_close(samples, many.draw(torch.Generator().manual_seed(3)))
    error = (samples.mean(0) - one.mean[0]) / one.log_std.exp()
    assert error.abs().max() < 0.03
    assert (samples.std(0) / one.log_std.exp() - 1).abs().max() < 0.03
    torch.testing.assert_close(many.best(), many.mean)


bounds = st.floats(allow_nan=False, allow_infinity=False, width=32)


@example([(0.0, 1.401298464324817e-45)])  # half of it is 0
@given(st.lists(st.tuples(bounds, bounds).filter(lambda ends: ends[0] < ends[1]), min_size=1))
def test_actions_are_legal_within_any_bounds(ends: list[tuple[float, float]]) -> None:
    low, high = zip(*ends, strict=True)
    ours = _gaussian(1, low, high)
    steps = torch.tensor([-float("inf"), -50.0, -1.0, -0.3, 0.0, 0.9, 1.0, 50.0, float("inf")])
    samples = steps[:, None].expand(-1, len(low))
    actions = ours.actions(samples)
    require_in_bounds("a", ContinuousActionSpace(low, high), actions.numpy())
    torch.testing.assert_close(actions[0], ours.low, rtol=0, atol=0)
    torch.testing.assert_close(actions[-1], ours.high, rtol=0, atol=0)
    assert (actions.diff(dim=0) >= 0).all()


def test_bounds_are_legal_although_float32_cannot_hold_them() -> None:
    space = ContinuousActionSpace((0.1, 1.0), (0.3, 1.0 + 1e-12))
    net = RogueNet(OBS, {"push": space})
    batch = _batch([1, 2], {"push"})
    for values in (net.act(batch, greedy=True).actions, net.act(batch).actions):
        require_in_bounds("push", space, values["push"])


def test_bounds_beyond_float32_are_refused() -> None:
    with pytest.raises(
        SchemaError, match=r"action 'push' is bounded by \[0\.0, 1e\+300\].*float32"
    ):
        RogueNet(OBS, {"push": ContinuousActionSpace((0.0,), (1e300,))})


OBS = ObsSpace((), {"Wall": Entity(()), "Unit": Entity(("x", "y"))})
ACTIONS: dict[str, ActionSpace] = {
    "turn": CategoricalActionSpace(("left", "right", "on")),
    "push": ContinuousActionSpace((-1.0, 0.0, 5.0), (1.0, 9.0, 6.0), ("a", "b", "c")),
}


def _batch(counts: list[int], asked: set[str], seed: int = 0) -> ObsBatch:
    """A wall and some units per row; every unit acts."""
    features = np.random.default_rng(seed).normal(size=(sum(counts), 2)).astype(np.float32)
    walls = RaggedArray(np.zeros((len(counts), 0), np.float32), [1] * len(counts))
    everyone = ragged([list(range(1, n + 1)) for n in counts])
    masks: dict[str, VecActionMask] = {
        "turn": VecCategoricalActionMask(everyone),
        "push": VecContinuousActionMask(everyone),
    }
    return ObsBatch(
        features={"Wall": walls, "Unit": RaggedArray(features, counts)},
        visible={},
        action_masks={name: mask for name, mask in masks.items() if name in asked},
    )


def _net(seed: int = 0, actions: dict[str, ActionSpace] = ACTIONS) -> RogueNet:
    """A network with parameters unlike those of a fresh one."""
    torch.manual_seed(seed)
    net = RogueNet(OBS, actions, SMALL)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "heads" in name:
                parameter.normal_(std=0.5)
    return net


def test_a_fresh_network_chooses_around_the_middle_over_the_whole_range() -> None:
    net = RogueNet(OBS, ACTIONS)
    each = net.distributions(_batch([3], {"turn", "push"}))[0]["push"]
    assert isinstance(each, GaussianDistribution)
    assert each.mean.abs().max() < 0.1
    assert each.log_std.tolist() == [0, 0, 0]
    middle = each.actions(torch.zeros(1, 3))
    torch.testing.assert_close(middle, torch.tensor([[0.0, 4.5, 5.5]]))


def test_any_number_of_actors_a_row() -> None:
    """Rows of a batch equal single rows; several actions and actors add up."""
    net, counts = _net(), [2, 0, 1, 3]
    whole = _batch(counts, {"turn", "push"})
    decisions = net.act(whole, generator=torch.Generator().manual_seed(1))
    assert decisions.actions["push"].shape == decisions.samples["push"].shape == (6, 3)
    assert decisions.actions["push"].dtype == np.float32
    assert decisions.logprobs[1] == decisions.entropy[1] == 0
    evaluation = net.evaluate(whole, decisions.samples)
    np.testing.assert_allclose(evaluation.logprobs.detach(), decisions.logprobs, rtol=1e-5)
    np.testing.assert_allclose(evaluation.entropy.detach(), decisions.entropy, rtol=1e-5)
    samples: dict[str, RaggedArray[np.int64 | np.float32]] = {
        name: RaggedArray(each, counts) for name, each in decisions.samples.items()
    }
    units = whole.features["Unit"]
    for row, count in enumerate(counts):
        alone = _batch([count], {"turn", "push"})
        alone.features["Unit"].values[:] = units[row]
        single = net.evaluate(alone, {name: each[row] for name, each in samples.items()})
        assert single.logprobs.item() == pytest.approx(decisions.logprobs[row], rel=1e-4)
        assert single.entropy.item() == pytest.approx(decisions.entropy[row], rel=1e-4)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_batch_without_any_actor(greedy: bool) -> None:
    net, batch = _net(), _batch([0, 0], {"turn", "push"})
    decisions = net.act(batch, greedy=greedy)
    assert decisions.actions["push"].shape == (0, 3)
    assert decisions.actions["push"].dtype == np.float32
    evaluation = net.evaluate(batch, decisions.samples)
    loss = evaluation.logprobs.sum() + evaluation.entropy.sum() + evaluation.values.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in net.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_greedy_is_the_clipped_mean() -> None:
    net, batch = _net(), _batch([4, 4], {"turn", "push"})
    each = net.distributions(batch)[0]["push"]
    assert isinstance(each, GaussianDistribution)
    decisions = net.act(batch, greedy=True)
    np.testing.assert_array_equal(decisions.samples["push"], each.mean.detach())
    space = ACTIONS["push"]
    assert isinstance(space, ContinuousActionSpace)
    low, high = np.array(space.low), np.array(space.high)
    expected = (low + high) / 2 + (high - low) / 2 * each.mean.detach().numpy()
    np.testing.assert_allclose(
        decisions.actions["push"], np.clip(expected, low, high), rtol=1e-5, atol=1e-5
    )


def test_gradients_through_the_network_are_those_of_torch_s_normal() -> None:
    net = _net(actions={"push": ACTIONS["push"]})
    batch = _batch([2, 0, 3], {"push"})
    samples = net.act(batch).samples

    def gradients(logprobs: Tensor, entropy: Tensor) -> dict[str, Tensor]:
        net.zero_grad()
        (logprobs.sum() + 0.3 * entropy.sum()).backward()  # type: ignore[no-untyped-call]
        return {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}

    ours = net.evaluate(batch, samples)
    got = gradients(ours.logprobs, ours.entropy)
    each = net.distributions(batch)[0]["push"]
    assert isinstance(each, GaussianDistribution)
    drawn = torch.from_numpy(samples["push"])
    expected = gradients(*_torch_s(each.mean, each.log_std.exp(), drawn))
    assert "action_heads.push.log_std" in got
    assert got.keys() == expected.keys()
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)


def _rollout(net: RogueNet) -> Rollout:
    vec = VecTargets(8)
    collector = Collector(
        vec, net, torch.Generator().manual_seed(0), vec.reset(seed=0), CONFIG.at(0)
    )
    return collect(collector, 3, lambda _: None)


def test_what_was_drawn_is_learnt_from_and_what_is_clipped_is_performed() -> None:
    """`VecTargets` rejects values out of bounds, and overwrites its last batch."""
    net = RogueNet(VecTargets().obs_space(), VecTargets().action_space(), SMALL)
    with torch.no_grad():
        dict(net.named_parameters())["action_heads.aim.log_std"].fill_(1.5)
    batch = _rollout(net)
    drawn = batch.samples["aim"]
    assert (np.abs(drawn.values) > 1).mean() > 0.5
    # Rows without actors decide nothing and are not stored.
    assert drawn.lengths.min() == 1
    assert drawn.values.dtype == np.float32
    whole = batch.minibatch(batch.b_inds)
    _, figures = ppo_loss(
        net.evaluate(whole.obs, whole.samples),
        whole,
        dataclasses.replace(CONFIG.at(0), ent_coef=0.0),
    )
    assert abs(float(figures[3])) < 1e-6  # no divergence before the first step
    assert float(figures[4]) == 0


def test_stored_decisions_come_back_in_any_order() -> None:
    net = RogueNet(VecTargets().obs_space(), VecTargets().action_space(), SMALL)
    batch = _rollout(net)
    picked = np.array([5, 0, 5, 2])
    stored = batch.minibatch(picked)
    expected = np.concatenate([batch.samples["aim"][i] for i in picked])
    np.testing.assert_array_equal(stored.samples["aim"], expected)
    mask = stored.obs.action_masks["aim"]
    assert isinstance(mask, VecContinuousActionMask)
    assert mask.actors.lengths.tolist() == [len(batch.samples["aim"][i]) for i in picked]
    logprobs = net.evaluate(stored.obs, stored.samples).logprobs.detach().numpy()
    np.testing.assert_allclose(logprobs, batch.logprobs[picked], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_learns_what_no_random_and_no_blind_policy_can() -> None:
    config = dataclasses.replace(
        CONFIG,
        total_steps=8000,
        num_steps=4,
        minibatch_size=128,
        learning_rate=0.02,
        anneal_learning_rate=False,
        ent_coef=0.0,
    )
    judge = VecTargets(2000)

    def judged(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        return float(judge.judge({"aim": values}).mean())

    obs = judge.reset(seed=9)
    count = (len(judge.targets.values), 2)
    uniform = np.random.default_rng(0).uniform(judge.space.low, judge.space.high, count)
    assert judged(uniform.astype(np.float32)) < 0.65
    assert judged(np.broadcast_to(judge.targets.values.mean(0), count).astype(np.float32)) < 0.86
    result = train(VecTargets(), config)
    assert result.progress.mean_reward > 0.95  # with sampled actions
    aim = result.net.act(obs, greedy=True).actions["aim"]
    assert judged(aim.astype(np.float32)) > 0.99
    assert result.progress.losses.entropy < 0


@pytest.mark.slow
def test_a_seed_makes_training_repeat_itself() -> None:
    first, again = (train(VecTargets(), CONFIG).net.state_dict() for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert first["action_heads.aim.log_std"].abs().min() > 0


@pytest.fixture(params=[0, 2], ids=["here", "workers"])
def bodies_vec(request: pytest.FixtureRequest) -> Iterator[VecEnv]:
    vec = VecEnv(bodies_game, 5, request.param, seed=1)
    yield vec
    vec.close()


def test_actions_reach_the_games_as_they_were_chosen(bodies_vec: VecEnv) -> None:
    net = RogueNet(bodies_vec.obs_space(), bodies_vec.action_space(), SMALL)
    generator = torch.Generator().manual_seed(0)
    obs = bodies_vec.reset(seed=1)
    for _ in range(12):
        lengths = obs.action_masks["push"].actors.lengths.copy()
        actions = net.act(obs, generator=generator).actions
        wanted = RaggedArray(actions["push"], lengths)
        sums = [float(row.sum(dtype=np.float64)) for row in wanted]
        obs = bodies_vec.act(actions)
        np.testing.assert_allclose(obs.reward, sums, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_workers_and_this_process_learn_the_same() -> None:
    nets = []
    for num_workers in (0, 2):
        vec = VecEnv(chaos, 4, num_workers, seed=1)
        try:
            config = dataclasses.replace(CONFIG, total_steps=64, num_steps=4, minibatch_size=16)
            nets.append(train(vec, config).net.state_dict())
        finally:
            vec.close()
    assert all(torch.equal(value, nets[1][name]) for name, value in nets[0].items())
    assert all(torch.isfinite(value).all() for value in nets[0].values())


def _pushes(agent: NeuralAgent | RandomAgent, game: Game = bodies_game) -> list[list[list[float]]]:
    turns: list[Turn] = []
    game.run(agent, episodes=3, seed=5, watch=turns.append)
    actions = [turn.actions["push"] for turn in turns if turn.actions]
    assert all(isinstance(action, ContinuousAction) for action in actions)
    return [np.asarray(a.values).tolist() for a in actions if isinstance(a, ContinuousAction)]


def _bodies_net(seed: int = 0) -> RogueNet:
    torch.manual_seed(seed)
    return RogueNet(bodies_game.obs_space(), bodies_game.action_space(), SMALL)


def test_a_network_plays() -> None:
    net = _bodies_net()
    drawn = _pushes(NeuralAgent(net, seed=1))
    assert drawn == _pushes(NeuralAgent(net, seed=1))
    assert drawn != _pushes(NeuralAgent(net, seed=2))
    greedy = _pushes(NeuralAgent(net, greedy=True))
    assert greedy == _pushes(NeuralAgent(net, greedy=True, seed=4))
    assert [len(each) for each in drawn] == [len(each) for each in greedy]
    assert {len(each) for each in drawn} > {0, 1}
    assert len(_pushes(RandomAgent(1))) == len(drawn)


def test_a_network_is_called_without_a_game() -> None:
    agent = NeuralAgent(_bodies_net(), greedy=True)
    pushes = agent.act(Obs().entities([Wall(0.5)]).actors([Body(0.1), Body(0.2)]), PUSH)
    assert pushes is not None
    assert pushes.shape == (2, 2)
    np.testing.assert_allclose(pushes, [[0, 50]] * 2, atol=5)


def test_several_kinds_of_actions_in_one_answer() -> None:
    torch.manual_seed(0)
    agent = NeuralAgent(RogueNet(chaos.obs_space(), chaos.action_space(), SMALL), seed=1)
    turns: list[Turn] = []
    chaos.run(agent, episodes=8, seed=5, watch=turns.append)
    asked = [turn.actions for turn in turns]
    assert any({"Move", "steer"} <= actions.keys() for actions in asked)
    for actions in asked:
        move = actions.get("Move")
        if isinstance(move, GlobalCategoricalAction):
            assert move.probs is not None
            assert move.probs.sum() == pytest.approx(1)


@pytest.mark.parametrize("greedy", [False, True])
def test_it_decides_for_batches(bodies_vec: VecEnv, greedy: bool) -> None:
    for agent in (NeuralAgent(_bodies_net(), greedy=greedy, seed=1), RandomAgent(1)):
        assert isinstance(agent, BatchPolicy)
        obs = bodies_vec.reset(seed=2)
        for _ in range(5):
            obs = bodies_vec.act(agent.decide_batch(obs, bodies_game.schema))


def test_checkpoints_keep_the_head_and_its_bounds(tmp_path: Path) -> None:
    net = _net(1)
    save_checkpoint(tmp_path, net)
    loaded = load_checkpoint(tmp_path).net
    assert loaded.action_space == net.action_space
    batch = _batch([2, 0, 3], {"turn", "push"})
    first, again = (
        each.act(batch, generator=torch.Generator().manual_seed(0)) for each in (net, loaded)
    )
    np.testing.assert_array_equal(first.actions["push"], again.actions["push"])
    np.testing.assert_array_equal(first.logprobs, again.logprobs)
    names = safetensors.torch.load_file(tmp_path / "model.safetensors").keys()
    head = {name.removeprefix("action_heads.push.") for name in names if ".push." in name}
    assert head == {"proj.weight", "proj.bias", "log_std"}
    described = json.loads((tmp_path / "config.json").read_text())["spaces"]["actions"][1]
    assert (described["low"], described["high"]) == ([-1, 0, 5], [1, 9, 6])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Continuous("push", low=(-2, 0), high=(2, 90), labels=("force", "angle")),
            r"action 'push': the checkpoint has the bounds \[-2\.0, 0\.0\] to \[2\.0, 100\.0\], "
            r"the game has \[-2\.0, 0\.0\] to \[2\.0, 90\.0\]",
        ),
        (
            Continuous("push", low=(-2, 0), high=(2, 100), labels=("force", "turn")),
            "the checkpoint has the label 'angle', the game does not",
        ),
        (
            Continuous("push", low=(-2,), high=(2,), labels=("force",)),
            "the checkpoint has the label 'angle', the game does not",
        ),
    ],
    ids=["bounds", "labels", "fewer"],
)
def test_other_bounds_and_labels_are_refused(
    tmp_path: Path, other: Continuous, message: str
) -> None:
    save_checkpoint(tmp_path / "checkpoint", _bodies_net())
    agent = load_agent(tmp_path, greedy=True, backend="torch")
    assert isinstance(agent, NeuralAgent)
    assert _pushes(agent)

    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Wall(0.0)]).actors([Body(0.0)]), other)

    game = Game(play, entities=(Wall, Body), actions=(other,))
    with pytest.raises(CheckpointError, match=message):
        game.run(agent, episodes=1)
    with pytest.raises(CheckpointError, match=message):
        agent.decide_batch(VecTargets().reset(), game.schema)


@pytest.mark.slow
def test_training_resumes(tmp_path: Path) -> None:
    half = dataclasses.replace(CONFIG, total_steps=128)
    train(VecTargets(), half, out=tmp_path)
    first = load_checkpoint(tmp_path)
    assert "action_heads.aim.log_std.exp_avg" in first.optimizer
    result = train(
        VecTargets(), dataclasses.replace(half, total_steps=256), out=tmp_path, resume=True
    )
    assert result.progress.step >= 256
    ours, theirs = (n.state_dict()["action_heads.aim.log_std"] for n in (first.net, result.net))
    assert not torch.equal(ours, theirs)
