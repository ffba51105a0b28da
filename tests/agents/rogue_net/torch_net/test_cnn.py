"""CNNPolicy: equal in torch and numpy, from files, and trained on Gymnasium's pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import ActionSpace, CheckpointError, Entity, ObsSpace, SchemaError, UsageError
from entity_env.agents.ppo import CNNPolicy, PPOConfig, train
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    NumpyAgent,
    load_checkpoint,
    read_network,
    save_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, agent_from_bytes
from entity_env.agents.rogue_net.config import net_from_json
from entity_env.agents.rogue_net.features import is_flat, picture_of
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import GlobalCategoricalActionSpace, SelectEntityActionSpace
from entity_env.core.vec_obs import EntityBatch, VecCategoricalActionMask
from entity_env.interop.gymnasium import GymnasiumVecEnv
from tests.agents.rogue_net.torch_net.test_policy import require_same

PUSH: dict[str, ActionSpace] = {"Push": GlobalCategoricalActionSpace(("L", "R", "N"))}


def screen(shape: tuple[int, int, int], shared: tuple[str, ...] = (), **others: Entity) -> ObsSpace:
    names = [f"{i}" for i in range(int(np.prod(shape)))]
    return ObsSpace(shared, {**others, "Screen": Entity(names, is_single=True, shape=shape)})


def batch_of(obs_space: ObsSpace, num_rows: int, seed: int = 0) -> EntityBatch:
    """Random bytes; the last row has no entity and no actor."""
    rng = np.random.default_rng(seed)
    lengths = np.ones(num_rows, np.int64)
    lengths[-1] = 0
    widths = {name: len(each.features) for name, each in obs_space.entities.items()}
    widths["__global__"] = len(obs_space.global_features)
    features = {
        name: RaggedArray(rng.integers(0, 256, (num_rows - 1, width)).astype(np.float32), lengths)
        for name, width in widths.items()
    }
    actors = RaggedArray(np.zeros(num_rows - 1, np.int64) + len(widths) - 1, lengths)
    return EntityBatch(features, {}, {"Push": VecCategoricalActionMask(actors)})


def random_cnn(obs_space: ObsSpace, config: CNNConfig | None = None) -> CNNPolicy:
    torch.manual_seed(3)
    net = CNNPolicy(obs_space, PUSH, config)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias") or "head" in name:
                parameter.normal_()
    net.update_statistics(batch_of(obs_space, 8, 5))
    net.scale_values(-3.0, 2.0)
    return net


@settings(max_examples=25, deadline=None)
@given(
    sides=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
    num_shared=st.integers(0, 2),
    num_rows=st.integers(1, 4),
    data=st.data(),
)
def test_is_the_same_in_numpy(
    sides: tuple[int, int, int], num_shared: int, num_rows: int, data: st.DataObject
) -> None:
    layers: list[tuple[int, int, int]] | None = None
    if data.draw(st.booleans()):
        kernels = st.integers(1, min(sides[:2]))
        layers = [(data.draw(st.integers(1, 5)), data.draw(kernels), data.draw(st.integers(1, 3)))]
    others = {"Bat": Entity(("x", "v"), is_single=True)} if data.draw(st.booleans()) else {}
    obs_space = screen(sides, tuple("tu"[:num_shared]), **others)
    config = CNNConfig(layers, data.draw(st.sampled_from([None, (), (7, 5)])))
    net, batch = random_cnn(obs_space, config), batch_of(obs_space, num_rows + 1)
    theirs, values = net.distributions(batch)
    require_same(net, batch)
    output = net.act(batch, generator=torch.Generator().manual_seed(1))
    evaluation = net.evaluate(batch, output.samples)
    logprobs = evaluation.logprobs.detach().numpy()
    np.testing.assert_allclose(logprobs, output.logprobs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(net.values(batch), values.detach().numpy(), rtol=1e-5, atol=1e-4)
    assert theirs.keys() == PUSH.keys()


class TestCNN:
    def test_reads_pixels_and_all_else(self) -> None:
        obs_space = screen((6, 7, 2), ("t",), Bat=Entity(("x",), is_single=True))
        net, batch = random_cnn(obs_space), batch_of(obs_space, 3)
        before = net.values(batch)[0]
        for name in batch.features:
            for column in (0, -1):
                own = batch.features[name]
                values = own.values.copy()
                values[0, column] += 100
                features = {**batch.features, name: RaggedArray(values, own.lengths)}
                changed = EntityBatch(features, {}, batch.action_masks)
                assert net.values(changed)[0] != before, (name, column)

    def test_normalizes_channels(self) -> None:
        obs_space = screen((5, 5, 2))
        net, rng = CNNPolicy(obs_space, PUSH), np.random.default_rng(0)
        assert not net.has_statistics
        pixels = rng.normal((100, 3), (50, 0.25), (4, 25, 2)).astype(np.float32)
        rows = RaggedArray(pixels.reshape(4, -1), np.ones(4, np.int64))
        for restart in (False, True):
            net.update_statistics(EntityBatch({"Screen": rows}, {}, {}), restart=restart)
            assert net.picture_norm.count == 100
            mean, deviation = net.picture_norm.scale()
            np.testing.assert_allclose(mean.numpy(), pixels.mean((0, 1)), rtol=1e-5)
            np.testing.assert_allclose(deviation.numpy(), pixels.std((0, 1)), rtol=1e-2)

    def test_statistics_of_many_pixels_are_those_of_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        obs_space = screen((5, 5, 2))
        whole, parts = CNNPolicy(obs_space, PUSH), CNNPolicy(obs_space, PUSH)
        batch = batch_of(obs_space, 9)
        whole.update_statistics(batch)
        parts.update_statistics(batch_of(obs_space, 4, 7))
        monkeypatch.setattr("entity_env.agents.rogue_net.torch_net.mlp._COUNTED", 17)
        parts.update_statistics(batch, restart=True)
        for one, other in zip(whole.buffers(), parts.buffers(), strict=True):
            torch.testing.assert_close(one, other)

    def test_comes_back_from_files(self, tmp_path: Path) -> None:
        obs_space = screen((6, 7, 2), ("t",))
        net = random_cnn(obs_space)
        save_checkpoint(tmp_path / "checkpoint", net)
        read = read_network(tmp_path / "checkpoint")
        assert read.config == CNNConfig(((16, 3, 1), (32, 3, 1)), (128,))
        assert read.obs_space.entities["Screen"].shape == (6, 7, 2)
        again = agent_from_bytes(agent_bytes(read), "it")
        for name, tensor in net.state_dict().items():
            np.testing.assert_array_equal(again.tensors[name], tensor.numpy())
        found = load_checkpoint(tmp_path / "checkpoint").net
        assert isinstance(found, CNNPolicy)
        batch = batch_of(obs_space, 4)
        np.testing.assert_array_equal(found.values(batch), net.values(batch))
        agent = NumpyAgent(again, greedy=True)
        np.testing.assert_array_equal(
            agent.choose_rows(batch, None)[0]["Push"],
            net.act(batch, greedy=True).actions["Push"],
        )

    def test_of_other_tensors_is_refused(self) -> None:
        weights = random_cnn(screen((6, 7, 2))).weights()
        tensors = {**weights.tensors, "convolutions.0.weight": np.zeros((1, 1), np.float32)}
        other = type(weights)(weights.obs_space, weights.action_space, weights.config, tensors)
        with pytest.raises(CheckpointError, match=r"convolutions\.0\.weight has shape \(1, 1\)"):
            other.require_fit("it", "its description")

    @pytest.mark.parametrize(
        ("obs_space", "actions", "words"),
        [
            (ObsSpace((), {"Dot": Entity(("x",), is_single=True)}), PUSH, "declare its shape"),
            (screen((2, 2, 1), Two=Entity((*"abcd",), True, (2, 2, 1))), PUSH, "needs exactly one"),
            (screen((2, 2, 1), Many=Entity(("x",))), PUSH, "any number of 'Many' entities"),
            (screen((2, 2, 1)), {"Pick": SelectEntityActionSpace()}, "'Pick' selects entities"),
        ],
    )
    def test_refuses_what_is_no_picture(
        self, obs_space: ObsSpace, actions: dict[str, ActionSpace], words: str
    ) -> None:
        with pytest.raises(SchemaError, match=words):
            CNNPolicy(obs_space, actions)

    def test_refuses_a_kernel_larger_than_its_input(self) -> None:
        with pytest.raises(SchemaError, match="convolution 2 has a kernel of 3, but reads 2 x 3"):
            CNNPolicy(screen((4, 5, 1)), PUSH, CNNConfig([(4, 3, 1), (4, 3, 1)]))


class TestConfig:
    @pytest.mark.parametrize(
        ("shape", "kernels", "hidden"),
        [
            ((84, 84, 4), [8, 4, 3], (512,)),
            ((36, 90, 3), [8, 4, 3], (512,)),
            ((28, 28, 1), [4, 4], (256,)),
            ((10, 10, 4), [3, 3], (128,)),
            ((7, 7, 3), [3, 3], (128,)),
            ((2, 9, 3), [2], (128,)),
        ],
    )
    def test_sizes_follow_the_picture(
        self, shape: tuple[int, int, int], kernels: list[int], hidden: tuple[int, ...]
    ) -> None:
        config = CNNConfig().of_shape(shape)
        assert [kernel for _, kernel, _ in config.layers or ()] == kernels
        assert config.hidden == hidden
        assert min(min(size) for size in config.out_sizes(shape)) > 0

    def test_given_sizes_stay(self) -> None:
        config = CNNConfig([[4, 3, 2]], [])
        assert config.of_shape((84, 84, 4)) == config
        assert config == CNNConfig(((4, 3, 2),), ())

    @pytest.mark.parametrize(
        "layers", [(), 7, [3], [(3, 3)], [(0, 3, 1)], [(3, 3, 0)], [(3, True, 1)], [(3, 2000, 1)]]
    )
    def test_layers_that_make_no_sense_are_refused(self, layers: object) -> None:
        with pytest.raises(
            UsageError, match=r"layers (needs channels, kernel|must be a list of lists)"
        ):
            CNNConfig(layers)  # type: ignore[arg-type]

    def test_hidden_that_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"hidden (needs|must be)"):
            CNNConfig(hidden=[0])

    @pytest.mark.parametrize(
        "net",
        [
            CNNConfig(),
            CNNConfig([(4, 3, 2)], (7,)),
            MLPConfig((3,)),
            MLPConfig((3,), norm_inputs=False),
        ],
    )
    def test_comes_back_from_json(self, net: CNNConfig | MLPConfig) -> None:
        assert net_from_json(net.to_json()) == net
        assert PPOConfig.from_json(PPOConfig(net=net).to_json()).net == net


class Catch(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """A ball falls in a picture of bytes, channels first; the paddle must be below it."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 6, 5), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:  # noqa: ANN401
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(5)), 2
        return self.picture(), {}

    def step(self, action: np.int64) -> Any:  # noqa: ANN401
        self.paddle = min(max(self.paddle + int(action) - 1, 0), 4)
        self.row += 1
        is_over = self.row == 5
        reward = float(self.column == self.paddle) if is_over else 0.0
        return self.picture(), reward, is_over, False, {}

    def picture(self) -> NDArray[np.uint8]:
        pixels = np.zeros((2, 6, 5), np.uint8)
        pixels[0, self.row, self.column] = pixels[1, 5, self.paddle] = 255
        return pixels


def catch(num_envs: int) -> GymnasiumVecEnv:
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return GymnasiumVecEnv(gymnasium.vector.SyncVectorEnv([Catch] * num_envs, autoreset_mode=mode))


class TestGymnasium:
    def test_pictures_have_channels_last(self) -> None:
        with catch(2) as vec:
            obs_space, obs = vec.obs_space(), vec.reset(seed=1)
            picture = picture_of(obs_space)
            assert picture == "Env"
            assert is_flat(obs_space, vec.action_space())
            entity = obs_space.entities[picture]
            assert entity.shape == (6, 5, 2)
            pixels = obs.features[picture].values.reshape(2, 6, 5, 2)
            assert np.argwhere(pixels[0, :, :, 1]).tolist() == [[5, 2]]
            assert entity.features[np.flatnonzero(obs.features[picture].values[0])[-1]] == "1.5.2"

    @pytest.mark.slow
    def test_is_learnt_and_resumed(self, tmp_path: Path) -> None:
        config = PPOConfig(
            total_steps=4096, net=CNNConfig(), num_steps=32, minibatch_size=128, norm_returns=True
        )
        with catch(16) as vec:
            train(vec, config, out=tmp_path)
            longer = PPOConfig.from_json({**config.to_json(), "total_steps": 12_288})
            result = train(vec, longer, out=tmp_path, resume=True)
            assert result.progress.mean_reward > 0.6  # a random paddle catches 0.2
            assert result.net.net_config == CNNConfig().of_shape((6, 5, 2))
            obs = vec.reset(seed=3)
            agent = NumpyAgent.load(tmp_path, greedy=True)
            caught: list[float] = []
            while len(caught) < 32:
                obs = vec.act(agent.choose_batch(obs))
                caught += [episode.reward for episode in obs.episodes]
            assert np.mean(caught) > 0.6
