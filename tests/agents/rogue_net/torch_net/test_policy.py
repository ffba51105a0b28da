"""Other policies than RogueNet: an MLP, a separate value network, scaled values, custom ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env import ActionSpace, CheckpointError, Entity, ObsSpace, SchemaError, UsageError
from entity_env.agents.ppo import MLPPolicy, Policy, PPOConfig, train
from entity_env.agents.rogue_net import (
    ActionDistribution,
    MLPConfig,
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    read_network,
    save_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, agent_from_bytes
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays, GaussianArrays
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.operations import tensors_of
from entity_env.agents.rogue_net.torch_net.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
)
from entity_env.agents.rogue_net.torch_net.policy import ValueScale
from entity_env.agents.rogue_net.torch_net.rollout_policy import (
    ArrayPolicy,
    CompiledPolicy,
    fastest_policy,
)
from entity_env.agents.training.presets import PRESETS, GameFigures
from entity_env.cli.training import settings_of_run
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import has_numba
from entity_env.core.vec_obs import (
    EntityBatch,
    VecCategoricalActionMask,
    VecContinuousActionMask,
)
from entity_env.games import multi_snake, snake
from entity_env.games.classic import CartPole
from entity_env.vec import BatchVecEnv, VecEnv

CART = ObsSpace(("time",), {"Cart": Entity(("x", "v"), is_single=True)})
PUSH: dict[str, ActionSpace] = {
    "Push": GlobalCategoricalActionSpace(("L", "R", "N")),
    "Force": ContinuousActionSpace((-1.0, 0.0), (1.0, 4.0)),
}


def cart_batch(num_rows: int, seed: int = 0) -> EntityBatch:
    """Observations of carts; the last row has no entity and no actor, the first has a mask."""
    rng = np.random.default_rng(seed)
    lengths = np.ones(num_rows, np.int64)
    lengths[-1] = 0
    own = rng.normal(size=(num_rows - 1, 2)).astype(np.float32)
    shared = rng.normal(size=(num_rows - 1, 1)).astype(np.float32)
    allowed = np.ones((num_rows - 1, 3), np.bool_)
    allowed[0, 0] = False
    actors = RaggedArray(np.ones(num_rows - 1, np.int64), lengths)
    return EntityBatch(
        {"Cart": RaggedArray(own, lengths), "__global__": RaggedArray(shared, lengths)},
        {},
        {
            "Push": VecCategoricalActionMask(actors, RaggedArray(allowed, lengths)),
            "Force": VecContinuousActionMask(
                RaggedArray(np.zeros(num_rows - 1, np.int64), lengths)
            ),
        },
    )


def random_mlp(*, norm_inputs: bool = True) -> MLPPolicy:
    torch.manual_seed(3)
    net = MLPPolicy(CART, PUSH, MLPConfig((8, 5), norm_inputs))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    net.update_statistics(cart_batch(30, 5))
    net.scale_values(-3.0, 7.0)
    return net


def scaled(batch: EntityBatch, scale: float, shift: float) -> EntityBatch:
    """The batch with features of very different sizes."""
    features = {
        name: RaggedArray(
            (each.values * [scale**i for i in range(each.values.shape[1])] + shift).astype(
                np.float32
            ),
            each.lengths,
        )
        for name, each in batch.features.items()
    }
    return EntityBatch(features, batch.visible, batch.action_masks)


def rows_of(*columns: list[float], name: str = "Cart") -> EntityBatch:
    """Observations of carts without a request; the time is 0."""
    values = np.array(columns, np.float32).T
    ones = np.ones(len(values), np.int64)
    time = np.zeros((len(values), 1), np.float32)
    return EntityBatch(
        {name: RaggedArray(values, ones), "__global__": RaggedArray(time, ones)}, {}, {}
    )


def require_same(net: Policy, batch: EntityBatch) -> None:
    """Compares a network's operations and its numpy version with the network."""
    listed = net.weights().operations()
    state = net.state_dict()
    assert tensors_of(listed) == {
        name: (tuple(each.shape), each.numpy().dtype) for name, each in state.items()
    }
    assert json.loads(json.dumps([each.to_json() for each in listed]))
    theirs, values = net.distributions(batch)
    ours, our_values = NumpyNet(net.weights()).distributions(batch)
    np.testing.assert_allclose(our_values, values.detach().numpy(), rtol=1e-4, atol=1e-4)
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        other = theirs[name]
        np.testing.assert_array_equal(one.rows, other.rows.numpy())
        if not len(one.rows):
            continue  # any number of columns
        if isinstance(one, CategoricalArrays):
            assert isinstance(other, CategoricalDistribution)
            np.testing.assert_allclose(
                one.logprobs, other.logprobs.detach().numpy(), rtol=1e-4, atol=1e-4
            )
        else:
            assert isinstance(one, GaussianArrays)
            assert isinstance(other, GaussianDistribution)
            np.testing.assert_allclose(one.mean, other.mean.detach().numpy(), rtol=1e-5, atol=1e-4)


@given(
    norm_inputs=st.booleans(),
    num_rows=st.integers(2, 9),
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    shift=st.sampled_from([0.0, -4.0, 100.0]),
)
def test_an_mlp_decides_the_same_everywhere(
    norm_inputs: bool, num_rows: int, seeds: tuple[int, int], scale: float, shift: float
) -> None:
    """In torch and numpy, in a rollout and while learning from it, on any features."""
    net = random_mlp(norm_inputs=norm_inputs)
    if norm_inputs:
        net.update_statistics(scaled(cart_batch(20, seeds[0]), scale, shift), restart=True)
        batch = scaled(cart_batch(num_rows, seeds[1]), scale, shift)
    else:
        batch = cart_batch(num_rows, seeds[1])
    require_same(net, batch)
    theirs = net.act(batch, generator=torch.Generator().manual_seed(1))
    ours = fastest_policy(net).act(batch, generator=torch.Generator().manual_seed(1))
    evaluation = net.evaluate(batch, ours.samples)
    for found in (ours, theirs):
        for name, of_samples in (
            ("logprobs", evaluation.logprobs),
            ("values", evaluation.values),
            ("entropy", evaluation.entropy),
        ):
            np.testing.assert_allclose(
                getattr(found, name), of_samples.detach().numpy(), rtol=1e-3, atol=1e-3
            )
    np.testing.assert_allclose(net.values(batch), theirs.values, rtol=1e-4, atol=1e-4)


class TestNormalization:
    """Normalization of an MLP's features."""

    def test_statistics_change_only_when_they_are_updated(self) -> None:
        net, batch = random_mlp(), cart_batch(9)
        before = copy.deepcopy(net.state_dict())
        output = fastest_policy(net).act(batch, generator=None)
        net.train()
        torch.autograd.grad(
            net.evaluate(batch, output.samples).logprobs.sum(), [*net.policy_net.parameters()]
        )
        net.act(batch)
        net.values(batch)
        for name, tensor in net.state_dict().items():
            assert torch.equal(tensor, before[name])
        net.update_statistics(batch)
        assert net.input_norm is not None
        assert net.input_norm.count == 29 + 8

    def test_rows_that_show_nothing_are_not_counted(self) -> None:
        net = MLPPolicy(CART, PUSH)
        assert net.input_norm is not None
        had_statistics, batch = net.has_statistics, cart_batch(9)
        for restart in (False, True):
            net.update_statistics(batch, restart=restart)
            assert (had_statistics, net.has_statistics) == (False, True)
            assert net.input_norm.count == 8
            values = np.hstack([batch.features[name].values for name in ("Cart", "__global__")])
            mean, deviation = net.input_norm.scale()
            np.testing.assert_allclose(mean.numpy(), values.mean(0), atol=1e-6)
            np.testing.assert_allclose(deviation.numpy(), values.std(0, ddof=1), rtol=1e-5)

    @pytest.mark.parametrize(
        "change",
        [
            lambda net: net.update_statistics(scaled(cart_batch(9), 3.0, 1.0)),
            lambda net: net.update_statistics(scaled(cart_batch(30), 3.0, 1.0), restart=True),
            lambda net: net.load_state_dict(MLPPolicy(CART, PUSH, net.config).state_dict()),
        ],
    )
    def test_arrays_follow_the_statistics(self, change: Callable[[MLPPolicy], object]) -> None:
        net, batch = random_mlp(), cart_batch(9)
        policy = fastest_policy(net)
        before = policy.act(batch, generator=None).values
        change(net)
        after = policy.act(batch, generator=None).values
        assert np.abs(after - before).max() > 0.1
        np.testing.assert_allclose(after, net.values(batch), rtol=1e-4, atol=1e-4)

    def test_constant_features_and_rare_ones_stay_small(self) -> None:
        """Most states of a one-hot observation are rarely visited, some never."""
        num_states = 500
        obs_space = ObsSpace((), {"Cart": Entity([str(i) for i in range(num_states)], True)})
        net = MLPPolicy(obs_space, PUSH)
        visited = np.minimum(np.random.default_rng(1).geometric(0.2, 2000), 400) - 1
        visited[0] = 450
        lengths = np.ones(len(visited), np.int64)

        def shown(states: NDArray[np.int64]) -> EntityBatch:
            values = np.eye(num_states, dtype=np.float32)[states]
            return EntityBatch({"Cart": RaggedArray(values, lengths[: len(values)])}, {}, {})

        for part in np.array_split(visited, 7):
            net.update_statistics(shown(part))
        assert net.input_norm is not None
        with torch.no_grad():
            x = net.input_norm(torch.eye(num_states))
        assert x.isfinite().all()
        assert x.abs().max() <= 5
        # All states can be distinguished, and the input has the size of a single state.
        assert (x.diagonal() >= 1).all()
        assert (x.square().sum(dim=1) < 30).all()
        assert x[499, 499] == 1  # never seen
        assert x[450, 450] == 5  # seen once

    def test_a_constant_that_changes_is_clipped(self) -> None:
        net = MLPPolicy(CART, PUSH)
        for _ in range(50):
            net.update_statistics(rows_of([10.1] * 7, list(range(7))))
        assert net.input_norm is not None
        with torch.no_grad():
            x = net.input_norm(torch.tensor([[10.1, 3.0, 0.0], [1e6, 3.0, 0.0]]))
        assert x[0].abs().max() < 1e-3
        assert x[1, 0] == 5

    def test_without_it_nothing_is_as_before_it_existed(self) -> None:
        """Without it, parameters and plain features are the same as in earlier releases."""
        torch.manual_seed(7)
        net = MLPPolicy(CART, PUSH, MLPConfig((8, 5), norm_inputs=False))
        torch.manual_seed(7)
        other = MLPPolicy(CART, PUSH, MLPConfig((8, 5)))
        assert net.input_norm is None
        assert net.has_statistics
        batch = rows_of([100.0, -3.0, 0.0], [0.5, 7.0, 2.0])
        before = copy.deepcopy(net.state_dict())
        net.update_statistics(batch)
        assert list(before) == [name for name in other.state_dict() if "input_norm" not in name]
        for name, tensor in net.state_dict().items():
            assert torch.equal(tensor, before[name])
            assert torch.equal(tensor, other.state_dict()[name])
        x = torch.tensor([[100.0, 0.5, 0.0], [-3.0, 7.0, 0.0], [0.0, 2.0, 0.0]])
        expected = net.value_head(net.value_net(x)).squeeze(1)
        np.testing.assert_array_equal(net.values(batch), expected.detach().numpy())

    def test_makes_the_size_of_features_irrelevant(self) -> None:
        batch = cart_batch(50)
        values: list[NDArray[np.float32]] = []
        for scale in (1.0, 1000.0):
            torch.manual_seed(1)
            net = MLPPolicy(CART, PUSH)
            own = scaled(batch, scale, 0.0)
            net.update_statistics(own)
            values.append(net.values(own)[:-1])
        np.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-4)


class TestFilesOfEarlierReleases:
    """Their networks are stored as `{"hidden": [...]}`, without normalization."""

    OLD = MLPConfig((8, 5), norm_inputs=False)

    def test_checkpoints(self, tmp_path: Path) -> None:
        net = random_mlp(norm_inputs=False)
        config = PPOConfig(net=self.OLD).to_json()
        save_checkpoint(tmp_path, net, training={"config": config})
        path = tmp_path / "config.json"
        data = json.loads(path.read_text())
        assert data["net"] == {"hidden": [8, 5]}
        data["training"]["config"]["net"] = {"hidden": [8, 5]}
        path.write_text(json.dumps(data))
        assert read_network(tmp_path).config == self.OLD
        found, batch = load_checkpoint(tmp_path), cart_batch(5)
        assert found.net.net_config == self.OLD
        np.testing.assert_array_equal(found.net.values(batch), net.values(batch))
        assert settings_of_run(tmp_path)["net"] == self.OLD

    def test_agents(self) -> None:
        content = agent_bytes(random_mlp(norm_inputs=False).weights())
        assert b'"net": {"hidden": [8, 5]}' in content
        assert agent_from_bytes(content, "it").config == self.OLD
        content = agent_bytes(random_mlp().weights())
        assert agent_from_bytes(content, "it").config == MLPConfig((8, 5))

    def test_settings_of_runs(self, tmp_path: Path) -> None:
        path = tmp_path / "run.json"
        data = {"format": "entity_env.run", "config": {"net": {"hidden": [8, 5]}, "gamma": 0.5}}
        path.write_text(json.dumps(data))
        for start in (PPOConfig(), PPOConfig(net=MLPConfig())):
            config = PPOConfig.from_file(path, start)
            assert (config.net, config.gamma) == (self.OLD, 0.5)
        assert PPOConfig.from_json({"net": {"hidden": [8, 5]}}).net == self.OLD


class TestMLP:
    @pytest.mark.parametrize("norm_inputs", [False, True])
    def test_evaluates_what_it_sampled(self, norm_inputs: bool) -> None:
        net, batch = random_mlp(norm_inputs=norm_inputs), cart_batch(20)
        output = net.act(batch, generator=torch.Generator().manual_seed(1))
        evaluation = net.evaluate(batch, output.samples)
        np.testing.assert_allclose(evaluation.logprobs.detach().numpy(), output.logprobs, atol=1e-5)
        np.testing.assert_allclose(evaluation.values.detach().numpy(), output.values, atol=1e-5)
        np.testing.assert_allclose(net.values(batch), output.values, atol=1e-5)
        assert output.samples["Push"][0] != 0
        assert output.logprobs[-1] == 0

    @pytest.mark.parametrize("num_rows", [2, 9, 4000])
    def test_plays_rollouts_by_arrays(self, num_rows: int) -> None:
        net, batch = random_mlp(), cart_batch(num_rows, num_rows)
        policy = fastest_policy(net)
        assert isinstance(policy, ArrayPolicy)
        theirs = net.act(batch, generator=torch.Generator().manual_seed(1))
        ours = policy.act(batch, generator=torch.Generator().manual_seed(1))
        np.testing.assert_array_equal(ours.samples["Push"], theirs.samples["Push"])
        for name in PUSH:
            assert ours.samples[name].dtype == theirs.samples[name].dtype
            np.testing.assert_allclose(ours.samples[name], theirs.samples[name], atol=1e-4)
            np.testing.assert_allclose(ours.actions[name], theirs.actions[name], atol=1e-4)
        for name in ("logprobs", "entropy", "values"):
            one, other = getattr(ours, name), getattr(theirs, name)
            assert one.dtype == np.float32
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        assert (np.abs(theirs.samples["Force"]) > 1).any()

    def test_of_ones_own_plays_by_itself(self) -> None:
        class Mine(MLPPolicy):
            """May compute anything."""

        net = Mine(CART, PUSH)
        assert fastest_policy(net) is net

    def test_comes_back_from_files(self, tmp_path: Path) -> None:
        net = random_mlp()
        save_checkpoint(tmp_path / "checkpoint", net)
        read = read_network(tmp_path / "checkpoint")
        assert read.config == MLPConfig((8, 5))
        assert read.obs_space.entities["Cart"].is_single
        again = agent_from_bytes(agent_bytes(read), "it")
        for name, tensor in net.state_dict().items():
            np.testing.assert_array_equal(again.tensors[name], tensor.numpy())
        found = load_checkpoint(tmp_path / "checkpoint").net
        assert isinstance(found, MLPPolicy)
        NumpyAgent(again)

    @pytest.mark.parametrize(
        ("obs_space", "actions", "words"),
        [
            (ObsSpace((), {"Dot": Entity(("x",))}), PUSH, "any number of 'Dot' entities"),
            (CART, {"Pick": SelectEntityActionSpace()}, "'Pick' selects entities"),
            (ObsSpace(), PUSH, "at least one feature"),
        ],
    )
    def test_refuses_what_has_no_fixed_size(
        self, obs_space: ObsSpace, actions: dict[str, ActionSpace], words: str
    ) -> None:
        with pytest.raises(SchemaError, match=words):
            MLPPolicy(obs_space, actions)

    def test_refuses_a_second_entity(self) -> None:
        batch = cart_batch(3)
        lengths = np.array([2, 0, 0])
        batch.features = {
            **batch.features,
            "Cart": RaggedArray(np.ones((2, 2), np.float32), lengths),
        }
        with pytest.raises(SchemaError, match="row 0 has 2 entities of type 'Cart'"):
            random_mlp().values(batch)

    def test_of_a_flag_that_is_none(self) -> None:
        with pytest.raises(UsageError, match="norm_inputs must be true or false, got 1"):
            MLPConfig(norm_inputs=1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("hidden", [(), (0,), (3.5,), 7, [8, True]])
    def test_of_sizes_that_make_no_sense(self, hidden: object) -> None:
        with pytest.raises(UsageError, match=r"hidden (needs|must be)"):
            MLPConfig(hidden)  # type: ignore[arg-type]


@given(
    changes=st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4)), min_size=1, max_size=5)
)
def test_values_stay_when_their_scale_changes(changes: list[tuple[float, float]]) -> None:
    torch.manual_seed(0)
    head, scale, x = nn.Linear(4, 1).double(), ValueScale().double(), torch.randn(6, 4).double()
    before = scale(head(x)).detach()
    for mean, std in changes:
        scale.change(mean, std, head)
    torch.testing.assert_close(scale(head(x)).detach(), before, rtol=1e-6, atol=1e-6)
    assert (float(scale.mean), float(scale.std)) == changes[-1]


class TestOptionsOfRogueNet:
    """A separate value network, and scaled values."""

    @pytest.fixture(params=[(True, False), (False, True), (True, True)], ids=str)
    def net(self, request: pytest.FixtureRequest) -> RogueNet:
        separate, scaled = request.param
        torch.manual_seed(5)
        config = RogueNetConfig(d_model=8, separate_value=separate, value_scale=scaled)
        net = RogueNet(multi_snake.obs_space(), multi_snake.action_space(), config)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.normal_(std=0.5)
        net.scale_values(2.0, 5.0)
        return net

    @pytest.fixture
    def batch(self) -> EntityBatch:
        with VecEnv(multi_snake, 6, seed=4) as vec:
            return vec.reset()

    def test_are_the_same_in_numpy_and_compiled(self, net: RogueNet, batch: EntityBatch) -> None:
        net.update_statistics(batch)
        require_same(net, batch)
        if has_numba():
            generator = torch.Generator().manual_seed(1)
            output = CompiledPolicy(net).act(batch, generator=generator)
            np.testing.assert_allclose(output.values, net.values(batch), rtol=1e-3, atol=1e-3)

    def test_come_back_from_a_checkpoint(
        self, net: RogueNet, batch: EntityBatch, tmp_path: Path
    ) -> None:
        save_checkpoint(tmp_path / "checkpoint", net)
        found = load_checkpoint(tmp_path / "checkpoint").net
        assert found.net_config == net.config
        np.testing.assert_array_equal(found.values(batch), net.values(batch))

    def test_leave_what_rogue_net_has(self, net: RogueNet, batch: EntityBatch) -> None:
        plain = RogueNet.of(net.weights().as_rogue_net())
        assert not plain.config.separate_value
        assert not plain.config.value_scale
        if not net.config.separate_value:
            np.testing.assert_allclose(plain.values(batch), net.values(batch), rtol=1e-4, atol=1e-4)
        one, other = (each.distributions(batch)[0]["Move"] for each in (plain, net))
        torch.testing.assert_close(one.entropy(), other.entropy())


class Own(Policy):
    """Sums the features of heads, and decides by the sum."""

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[str, ActionSpace]) -> None:
        super().__init__(obs_space, action_space)
        self.layer = nn.Linear(2, 5)

    def distributions(self, batch: EntityBatch) -> tuple[dict[str, ActionDistribution], Tensor]:
        heads = batch.features["Head"]
        x = torch.zeros(len(heads), 5)
        x = x.index_add(0, torch.tensor(heads.row_index), self.layer(torch.tensor(heads.values)))
        return {"Move": self.labels("Move", x[:, :4], batch)}, x[:, 4]


class TestOwn:
    @pytest.mark.slow
    def test_is_trained_saved_and_resumed(self, tmp_path: Path) -> None:
        with VecEnv(snake, 8) as vec:
            config = PPOConfig(total_steps=512)
            before = Own(vec.obs_space(), vec.action_space())
            first = {name: tensor.clone() for name, tensor in before.state_dict().items()}
            result = train(vec, config, policy=before, out=tmp_path)
            assert result.net is before
            assert not torch.equal(first["layer.weight"], before.layer.weight)
            longer = PPOConfig(total_steps=1024)
            resumed = train(vec, longer, policy=Own, out=tmp_path, resume=True)
            assert resumed.progress.step == 1024
        fresh = Own(snake.obs_space(), snake.action_space())
        assert load_checkpoint(tmp_path, fresh).net is fresh
        with pytest.raises(
            CheckpointError, match=r"network has the class .*Own, which only its own"
        ):
            read_network(tmp_path)

    def test_of_other_spaces_is_refused(self) -> None:
        own = Own(multi_snake.obs_space(), multi_snake.action_space())
        with VecEnv(snake, 2) as vec, pytest.raises(UsageError, match="made for other spaces"):
            train(vec, PPOConfig(total_steps=16), policy=own)

    @pytest.mark.parametrize("policy", [3, nn.Linear(1, 1), lambda obs, actions: nn.Linear(1, 1)])
    def test_that_is_no_policy_is_refused(self, policy: object) -> None:
        with VecEnv(snake, 2) as vec, pytest.raises(UsageError, match="policy must be a Policy"):
            train(vec, PPOConfig(total_steps=16), policy=policy)  # type: ignore[arg-type]


class TestForEnv:
    def test_of_control_tasks_is_an_mlp(self) -> None:
        with BatchVecEnv(CartPole(16)) as vec:
            config = PPOConfig.for_env(vec, total_steps=7, gamma=0.5)
        assert isinstance(config.net, MLPConfig)
        assert (config.total_steps, config.gamma, config.num_steps) == (7, 0.5, 8)

    def test_of_entities_is_a_rogue_net(self) -> None:
        with VecEnv(snake, 2) as vec:
            config = PPOConfig.for_env(vec)
            seen = GameFigures.of(vec)
        fitted = PRESETS["entities"].defaults_for(1, seen=seen, num_envs=2)
        assert config == PPOConfig(**fitted.settings)
        assert isinstance(config.net, RogueNetConfig)

    def test_refuses_what_is_no_setting(self) -> None:
        with VecEnv(snake, 2) as vec, pytest.raises(UsageError, match="no setting 'lr'"):
            PPOConfig.for_env(vec, lr=3)

    @pytest.mark.slow
    def test_learns_the_cart_pole(self) -> None:
        with BatchVecEnv(CartPole(16)) as vec:
            result = train(vec, PPOConfig.for_env(vec, total_steps=30_000))
        assert result.progress.mean_reward > 60  # random play reaches 22
