"""The policy that calls compiled code directly decides like its network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.batch_layout import Batch, ObsBatch
from entity_env.agents.rogue_net.torch_net.rollout_policy import CompiledPolicy, fastest_policy
from entity_env.authoring.game import Game
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError
from entity_env.games import cherry_pick, multi_snake, snake, tic_tac_toe, treasure_hunt
from entity_env.vec import VecEnv
from tests.agents.rogue_net.fixtures import FIXTURES, OPTIONS, Fixture, batch_of
from tests.games.composite_games import pair, send

pytest.importorskip("numba")


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def assert_alike(net: RogueNet, batch: Batch) -> None:
    """Both sample the same actions with the same log-probabilities, from equal generators."""
    plain = net.act(batch, generator=generator())
    fast = fastest_policy(net).act(batch, generator=generator())
    assert plain.samples.keys() == fast.samples.keys() == fast.actions.keys()
    for name, samples in plain.samples.items():
        assert fast.samples[name].dtype == samples.dtype
        np.testing.assert_array_equal(fast.samples[name], samples)
    for one, two in (
        (fast.logprobs, plain.logprobs),
        (fast.entropy, plain.entropy),
        (fast.values, plain.values),
    ):
        assert one.dtype == two.dtype == np.float32
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=5e-5)


def randomized(net: RogueNet) -> RogueNet:
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.3, generator=source)
    return net


@pytest.mark.parametrize("fixture", FIXTURES + OPTIONS, ids=lambda fixture: fixture.name)
def test_networks_of_others(fixture: Fixture) -> None:
    net = fixture.net()
    assert CompiledPolicy.fits(net) is (fixture.config.relpos_encoding is None)
    assert_alike(net, batch_of(fixture, fixture.cases()))
    assert_alike(net, batch_of(fixture, fixture.cases() * 40))


@pytest.mark.parametrize(
    "game",
    [cherry_pick, multi_snake, snake, tic_tac_toe, treasure_hunt, send, pair],
    ids=lambda game: game.name,
)
def test_whole_games(game: Game) -> None:
    with VecEnv(game, 12) as vec:
        net = randomized(RogueNet(vec.obs_space(), vec.action_space()))
        obs = vec.reset(seed=3)
        net.update_statistics(obs)
        assert CompiledPolicy.fits(net)
        policy, source = fastest_policy(net), generator()
        for _ in range(12):
            assert_alike(net, obs)
            obs = vec.act(policy.act(obs, generator=source).actions)


def test_it_follows_the_network_only_when_it_is_made_anew() -> None:
    fixture = FIXTURES[3]
    net, batch = fixture.net(), batch_of(fixture, fixture.cases())
    for _ in range(3):
        assert_alike(net, batch)
        randomized(net)
        net.update_statistics(batch)


SPACE = ObsSpace(["time"], {"A": Entity(["x"]), "none": Entity([])})
ACTIONS: dict[str, ActionSpace] = {
    "go": CategoricalActionSpace(["a", "b", "c"]),
    "say": GlobalCategoricalActionSpace(["yes", "no"]),
    "take": SelectEntityActionSpace(),
}


@pytest.mark.parametrize(
    ("actions", "config", "fits"),
    [
        (ACTIONS, RogueNetConfig(d_model=8, n_layer=0), True),
        (ACTIONS, RogueNetConfig(d_model=128, n_head=2), True),
        (ACTIONS, RogueNetConfig(d_model=136, n_head=4), False),
        (ACTIONS, RogueNetConfig(d_model=80, n_head=1), False),
        ({"aim": ContinuousActionSpace([0.0], [1.0], ["x"])}, RogueNetConfig(), False),
    ],
)
def test_what_fits_no_compiled_code_is_left_to_the_network(
    actions: dict[str, ActionSpace], config: RogueNetConfig, fits: bool
) -> None:
    net = RogueNet(SPACE, actions, config)
    assert CompiledPolicy.fits(net) is fits
    assert (fastest_policy(net) is net) is not fits


def test_without_numba_the_network_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    from entity_env.agents.rogue_net.torch_net import tensors as torch_tensors

    net = RogueNet(SPACE, ACTIONS)
    monkeypatch.setattr(torch_tensors, "has_numba", lambda: False)
    assert fastest_policy(net) is net


def test_rows_of_nothing_are_fine() -> None:
    net = randomized(RogueNet(SPACE, ACTIONS))
    lengths = np.array([2, 0, 1])
    features = {
        "A": RaggedArray(np.ones((3, 1), dtype=np.float32), lengths),
        "none": RaggedArray(np.zeros((1, 0), dtype=np.float32), np.array([0, 0, 1])),
        "__global__": RaggedArray(np.ones((2, 1), dtype=np.float32), np.array([1, 0, 1])),
    }
    for values in (features["A"].values, features["__global__"].values):
        values.setflags(write=False)
    nobody: RaggedArray[np.int64] = RaggedArray(np.zeros(0, dtype=np.int64), np.zeros(3, int))
    some = RaggedArray(np.array([1, 0, 2]), np.array([1, 0, 2]))
    masks: dict[str, VecActionMask] = {
        "go": VecCategoricalActionMask(some, None),
        "say": VecCategoricalActionMask(nobody, None),
        "take": VecSelectEntityActionMask(some, some, None),
    }
    assert_alike(net, ObsBatch(features, {}, masks))
    masks["take"] = VecSelectEntityActionMask(nobody, nobody, None)
    assert_alike(net, ObsBatch(features, {}, masks))


@pytest.mark.parametrize("num_rows", [0, 2])
def test_a_batch_of_nothing_is_fine(num_rows: int) -> None:
    net, lengths = randomized(RogueNet(SPACE, ACTIONS)), np.zeros(num_rows, dtype=int)
    features = {
        name: RaggedArray(np.zeros((0, width), dtype=np.float32), lengths)
        for name, width in (("A", 1), ("none", 0), ("__global__", 1))
    }
    nobody: RaggedArray[np.int64] = RaggedArray(np.zeros(0, dtype=np.int64), lengths)
    masks: dict[str, VecActionMask] = {
        "go": VecCategoricalActionMask(nobody, None),
        "say": VecCategoricalActionMask(nobody, None),
        "take": VecSelectEntityActionMask(nobody, nobody, None),
    }
    assert_alike(net, ObsBatch(features, {}, masks))


def masked(*allowed: bool) -> ObsBatch:
    with VecEnv(snake, 1) as vec:
        obs = vec.reset(seed=0)
    ((name, mask),) = obs.action_masks.items()
    assert isinstance(mask, VecCategoricalActionMask)
    flags = RaggedArray(np.array([allowed]), mask.actors.lengths)
    flags.values.setflags(write=False)
    masks = {name: VecCategoricalActionMask(mask.actors, flags)}
    return ObsBatch(obs.features, obs.visible, masks)


def test_masks_hold_and_an_actor_without_a_choice_is_told() -> None:
    net = randomized(RogueNet(snake.obs_space(), snake.action_space()))
    policy = fastest_policy(net)
    for only in range(4):
        obs = masked(*(label == only for label in range(4)))
        assert_alike(net, obs)
        decisions = policy.act(obs, generator=None)
        assert [each.tolist() for each in decisions.actions.values()] == [[only]]
    with pytest.raises(SchemaError, match="has nothing to choose from"):
        policy.act(masked(False, False, False, False), generator=None)
