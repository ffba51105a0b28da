"""Pooling and dropout of a RogueNet: compared with formulas, in numpy, files and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import CheckpointError, UsageError
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import (
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    read_network,
    save_checkpoint,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.batch_layout import lay_out
from entity_env.agents.rogue_net.config import POOLINGS, RelposEncodingConfig
from entity_env.agents.rogue_net.torch_net.attention import Pool, PooledLayout
from entity_env.agents.rogue_net.torch_net.rollout_policy import CompiledPolicy, fastest_policy
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import EntityBatch
from entity_env.games import multi_snake, snake
from entity_env.vec import VecEnv
from tests.agents.rogue_net.torch_net.test_policy import require_same

CPU = torch.device("cpu")
POOLED = pytest.mark.parametrize("pooling", POOLINGS)


def random_net(config: RogueNetConfig) -> RogueNet:
    torch.manual_seed(5)
    net = RogueNet(multi_snake.obs_space(), multi_snake.action_space(), config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.5)
    return net


@pytest.fixture(scope="module")
def batch() -> EntityBatch:
    with VecEnv(multi_snake, 6, seed=4) as vec:
        return vec.reset()


def hide(batch: EntityBatch, seed: int) -> EntityBatch:
    """The observation with about half of the entities hidden."""
    rng = np.random.default_rng(seed)
    visible = {
        name: RaggedArray(rng.random(len(each.values)) < 0.5, each.lengths)
        for name, each in batch.features.items()
        if name in multi_snake.obs_space().entities
    }
    return EntityBatch(batch.features, visible, batch.action_masks)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    seed=st.integers(0, 999),
    hides=st.booleans(),
    pooling=st.sampled_from(POOLINGS),
)
def test_pools_are_those_of_the_visible_entities(
    lengths: list[int], seed: int, hides: bool, pooling: str
) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array([lengths, rng.permutation(lengths)])
    shown = {
        name: RaggedArray(rng.normal(size=(count.sum(), 4)).astype(np.float32), count)
        for name, count in zip("ab", counts, strict=True)
    }
    visible = {"b": RaggedArray(rng.random(counts[1].sum()) < 0.5, counts[1])} if hides else {}
    layout = lay_out(EntityBatch(shown, visible, {}), "ab")
    x = np.concatenate([each.values for each in shown.values()])
    pool = Pool(RogueNetConfig(d_model=4, pooling=pooling))
    got = pool(torch.from_numpy(x), PooledLayout.of(layout, CPU)).detach().numpy()
    flags = np.ones(len(x), np.bool_)
    if hides:
        flags[counts[0].sum() :] = visible["b"].values
    hidden = pool.prepool(torch.from_numpy(x)).detach().numpy()
    for entity, row in enumerate(layout.rows):
        members = hidden[(layout.rows == row) & flags]
        mean, largest = (
            (members.mean(0), members.max(0)) if len(members) else (np.zeros(4), np.zeros(4))
        )
        parts = {"mean": [mean], "max": [largest], "meanmax": [mean, largest]}[pooling]
        pooled = torch.from_numpy(np.concatenate(parts).astype(np.float32))
        np.testing.assert_allclose(got[entity], pool.proj(pooled).detach(), atol=1e-5)


class TestPooling:
    @POOLED
    def test_is_the_same_in_numpy(self, pooling: str, batch: EntityBatch) -> None:
        net = random_net(RogueNetConfig(d_model=8, pooling=pooling))
        net.update_statistics(batch)
        require_same(net, batch)
        for seed in range(3):
            require_same(net, hide(batch, seed))

    def test_is_no_attention(self, batch: EntityBatch) -> None:
        values = [
            random_net(RogueNetConfig(d_model=8, pooling=pooling)).values(batch)
            for pooling in (None, *POOLINGS)
        ]
        assert len({each.tobytes() for each in values}) == 1 + len(POOLINGS)

    @POOLED
    def test_plays_and_comes_back_from_a_checkpoint(
        self, pooling: str, batch: EntityBatch, tmp_path: Path
    ) -> None:
        net = random_net(RogueNetConfig(d_model=8, pooling=pooling))
        assert fastest_policy(net) is net  # no kernel supports pooling
        save_checkpoint(tmp_path / "checkpoint", net)
        found = load_checkpoint(tmp_path / "checkpoint").net
        assert found.net_config == net.config
        np.testing.assert_array_equal(found.values(batch), net.values(batch))
        agent = NumpyAgent(read_network(tmp_path / "checkpoint"), greedy=True)
        with VecEnv(multi_snake, 6, seed=4) as vec:
            obs = vec.reset()
            chosen = net.act(obs, greedy=True).actions["Move"]
            np.testing.assert_array_equal(agent.choose_batch(obs)["Move"], chosen)

    def test_is_not_written_for_enn_trainer(self, tmp_path: Path) -> None:
        net = random_net(RogueNetConfig(d_model=8, pooling="max"))
        with pytest.raises(CheckpointError, match=r"pools \(max\) instead of attending"):
            write_enn_checkpoint(tmp_path / "x", net.weights())
        assert not (tmp_path / "x").exists()

    @pytest.mark.slow
    def test_is_trained_and_resumed(self, tmp_path: Path) -> None:
        config = PPOConfig(
            total_steps=128, net=RogueNetConfig(d_model=16, n_layer=1, pooling="meanmax")
        )
        with VecEnv(snake, 8) as vec:
            before = train(vec, config, out=tmp_path).net
            resumed = train(vec, replace(config, total_steps=256), out=tmp_path, resume=True)
        assert resumed.progress.step == 256
        assert resumed.net.net_config == before.net_config

    def test_of_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(UsageError, match="pooling must be one of"):
            RogueNetConfig(pooling="sum")
        relpos = RelposEncodingConfig((3, 3), ("x", "y"))
        with pytest.raises(UsageError, match="pooling cannot be combined with relpos_encoding"):
            RogueNetConfig(pooling="max", relpos_encoding=relpos)


DROPPING = [
    RogueNetConfig(d_model=16, dropout=0.3),
    RogueNetConfig(d_model=16, dropout=0.3, pooling="mean"),
    RogueNetConfig(d_model=16, dropout=0.3, separate_value=True, n_layer=1),
    RogueNetConfig(
        d_model=16, dropout=0.3, n_layer=1, relpos_encoding=RelposEncodingConfig((3, 3), ("x", "y"))
    ),
]


class TestDropout:
    @pytest.mark.parametrize("config", DROPPING, ids=str)
    def test_changes_training_mode_alone(self, config: RogueNetConfig, batch: EntityBatch) -> None:
        net, plain = random_net(config), random_net(replace(config, dropout=0.0))
        assert not net.training
        require_same(net, batch)
        np.testing.assert_array_equal(net.values(batch), plain.values(batch))
        generators = [torch.Generator().manual_seed(1) for _ in range(2)]
        outputs = [
            each.act(batch, generator=generator)
            for each, generator in zip((net, plain), generators, strict=True)
        ]
        np.testing.assert_array_equal(outputs[0].logprobs, outputs[1].logprobs)
        samples = outputs[0].samples
        kept = plain.evaluate(batch, samples)
        torch.testing.assert_close(net.evaluate(batch, samples).logprobs, kept.logprobs)
        net.train()
        one, other = (net.evaluate(batch, samples) for _ in range(2))
        for name in ("logprobs", "values"):
            assert not torch.equal(getattr(one, name), getattr(other, name))
            assert not torch.equal(getattr(one, name), getattr(kept, name))
        plain.train()
        torch.testing.assert_close(plain.evaluate(batch, samples).values, kept.values)

    @pytest.mark.slow
    def test_keeps_the_mean_of_activations(self, batch: EntityBatch) -> None:
        config = RogueNetConfig(d_model=16, n_layer=0, dropout=0.25)
        net = random_net(config)
        kept = torch.from_numpy(net.values(batch))
        net.train()
        with torch.no_grad():
            torch.manual_seed(0)
            means = torch.stack([net.distributions(batch)[1] for _ in range(1500)]).mean(0)
        torch.testing.assert_close(means, kept, rtol=0.05, atol=0.05)

    def test_acts_by_kernels(self) -> None:
        pytest.importorskip("numba")
        assert isinstance(fastest_policy(random_net(DROPPING[0])), CompiledPolicy)

    def test_is_written_as_none_for_enn_trainer(self, tmp_path: Path, batch: EntityBatch) -> None:
        net = random_net(DROPPING[0])
        write_enn_checkpoint(tmp_path / "x", net.weights())
        assert "pdrop: 0.0" in (tmp_path / "x" / "config.ron").read_text()
        found = load_checkpoint(tmp_path / "x").net
        np.testing.assert_array_equal(found.values(batch), net.values(batch))

    def test_is_no_setting_of_files_without_it(self) -> None:
        assert "dropout" not in RogueNetConfig().to_json()
        config = RogueNetConfig(dropout=0.1)
        assert RogueNetConfig.from_json(config.to_json()) == config

    @pytest.mark.parametrize("dropout", [-0.1, 1, 1.0, float("nan"), "0.1", True, None])
    def test_that_is_no_share_is_refused(self, dropout: float) -> None:
        with pytest.raises(UsageError, match="dropout must be a number from 0 to below 1"):
            RogueNetConfig(dropout=dropout)

    @pytest.mark.slow
    def test_training_repeats_itself_and_resumes(self, tmp_path: Path) -> None:
        net = RogueNetConfig(d_model=16, n_layer=1, dropout=0.2)
        config = PPOConfig(total_steps=64, net=net, num_steps=8, minibatch_size=32)

        def trained(
            config: PPOConfig, out: Path | None = None
        ) -> Mapping[str, NDArray[np.float32]]:
            with VecEnv(snake, 8) as vec:
                result = train(vec, config, out=out)
            assert not result.net.training
            return result.net.weights().tensors

        state = torch.get_rng_state()
        one = trained(config)
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(99)
        other = trained(config, tmp_path)
        for name, tensor in one.items():
            np.testing.assert_array_equal(tensor, other[name])
        plain = trained(replace(config, net=replace(net, dropout=0.0)))
        assert any(not np.array_equal(one[name], plain[name]) for name in one)
        with VecEnv(snake, 8) as vec:
            resumed = train(vec, replace(config, total_steps=128), out=tmp_path, resume=True)
            assert resumed.progress.step == 128
            with pytest.raises(CheckpointError, match="its network is"):
                train(
                    vec, replace(config, net=replace(net, dropout=0.5)), out=tmp_path, resume=True
                )
