"""RogueNet matches rogue-net 0.1.9, and accepts every shape of batch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entity_env.agents.rogue_net import (
    ActionDistribution,
    CategoricalDistribution,
    ObsBatch,
    RogueNet,
    RogueNetConfig,
)
from entity_env.agents.rogue_net.torch_net.distributions import at_temperature
from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.weights import expected_tensors
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import VecCategoricalActionMask, VecSelectEntityActionMask
from entity_env.errors import SchemaError, UsageError
from tests.agents.rogue_net.fixtures import FIXTURES, OPTIONS, Fixture, batch_of

Case = Mapping[str, NDArray[np.float64]]


def _logprobs(distribution: ActionDistribution) -> torch.Tensor:
    assert isinstance(distribution, CategoricalDistribution)
    return distribution.logprobs


def _check(fixture: Fixture, net: RogueNet, cases: list[Case]) -> None:
    with torch.inference_mode():
        distributions, values = net.distributions(batch_of(fixture, cases))
    expected = [case["value"] for case in cases]
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-5, rtol=0)
    for action, distribution in distributions.items():
        for row, case in enumerate(cases):
            wanted: NDArray[np.float32] = case[f"logprobs/{action}"].astype(np.float32)
            got = _logprobs(distribution)[distribution.rows == row].numpy()[:, : wanted.shape[1]]
            allowed = wanted > -1e29
            np.testing.assert_allclose(got[allowed], wanted[allowed], rtol=1e-5, atol=2e-5)
            assert (got[~allowed] < -1e29).all()
            np.testing.assert_array_equal(got.argmax(axis=1), wanted.argmax(axis=1))


@pytest.mark.parametrize("fixture", FIXTURES + OPTIONS, ids=lambda fixture: fixture.name)
def test_numbers_equal_upstream(fixture: Fixture) -> None:
    net, cases = fixture.net(), fixture.cases()
    assert len(cases) == (6 if fixture in OPTIONS else 12)
    for case in cases:
        _check(fixture, net, [case])
    _check(fixture, net, cases)


def test_action_heads_tell_the_chosen_probability() -> None:
    fixture = FIXTURES[3]
    net, batch = fixture.net(), batch_of(fixture, fixture.cases())
    decisions = net.act(batch, generator=torch.Generator().manual_seed(1))
    evaluation = net.evaluate(batch, decisions.samples)
    np.testing.assert_allclose(evaluation.logprobs.detach().numpy(), decisions.logprobs, rtol=1e-5)
    np.testing.assert_allclose(evaluation.entropy.detach().numpy(), decisions.entropy, rtol=1e-5)
    np.testing.assert_allclose(evaluation.values.detach().numpy(), decisions.values, atol=1e-6)
    np.testing.assert_allclose(net.values(batch), decisions.values, atol=1e-6)
    total = np.zeros(len(decisions.values))
    for name, each in net.distributions(batch)[0].items():
        assert decisions.samples[name] is decisions.actions[name]
        logprobs = _logprobs(each).detach().numpy()
        picked = logprobs[np.arange(len(each.rows)), decisions.actions[name]]
        np.add.at(total, each.rows.numpy(), picked)
    np.testing.assert_allclose(total, decisions.logprobs, rtol=1e-5)


def test_draws_follow_the_probabilities_and_a_generator() -> None:
    fixture = FIXTURES[2]
    net, case = fixture.net(), fixture.cases()[0]
    batch = batch_of(fixture, [case] * 4000)
    first = net.act(batch, generator=torch.Generator().manual_seed(3))
    again = net.act(batch, generator=torch.Generator().manual_seed(3))
    np.testing.assert_array_equal(first.actions["move"], again.actions["move"])
    shares = np.bincount(first.actions["move"], minlength=4) / 4000
    np.testing.assert_allclose(shares, np.exp(case["logprobs/move"][0].astype(float)), atol=0.03)
    greedy = net.act(batch, greedy=True)
    assert set(greedy.actions["move"]) == {int(case["logprobs/move"].argmax())}


@pytest.mark.parametrize("fixture", FIXTURES + OPTIONS, ids=lambda fixture: fixture.name)
def test_names_and_shapes_are_those_that_checkpoints_are_checked_against(fixture: Fixture) -> None:
    expected = expected_tensors(fixture.obs_space, fixture.action_space, fixture.config)
    state = fixture.net().state_dict()
    assert {name: (tuple(t.shape), t.numpy().dtype) for name, t in state.items()} == expected
    # Parameters that rogue-net does not read are not trained.
    trained = {name for name, p in fixture.net().named_parameters() if p.requires_grad}
    assert "backbone.relpos_encoding.distance_values.weight" not in trained


def test_options_are_trained_and_count_their_statistics() -> None:
    for fixture in OPTIONS:
        net, batch = fixture.net(), batch_of(fixture, fixture.cases())
        evaluation = net.evaluate(batch, net.act(batch).samples)
        loss = evaluation.logprobs.sum() + evaluation.values.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        for name, parameter in net.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, (fixture.name, name)
                assert torch.isfinite(parameter.grad).all()
        net.update_statistics(batch, restart=True)
        count = net.state_dict().get("backbone.relpos_encoding.relpos_norm.count")
        if count is not None:
            lengths = sum(batch.features[name].lengths for name in net.obs_space.entities)
            if "__global__" in batch.features:
                lengths = lengths + batch.features["__global__"].lengths
            assert count == float(np.square(lengths).sum())


def test_a_temperature_flattens_or_sharpens() -> None:
    fixture = FIXTURES[3]
    net, batch = fixture.net(), batch_of(fixture, fixture.cases())
    plain = net.distributions(batch)[0]
    for temperature in (0.001, 0.5, 1.0, 3.0, 1e6):
        warm = at_temperature(plain, temperature)
        for name, each in plain.items():
            logprobs = _logprobs(each).detach()
            allowed = logprobs > -1e29
            expected = torch.softmax((logprobs / temperature).masked_fill(~allowed, -1e35), dim=1)
            got = _logprobs(warm[name]).detach()
            torch.testing.assert_close(got.exp(), expected, rtol=1e-4, atol=1e-6)
            assert torch.isfinite(warm[name].entropy()).all()
            assert (got.exp()[~allowed] == 0).all()
    even = net.act(batch, temperature=1e6, generator=torch.Generator().manual_seed(0))
    assert even.entropy.sum() > net.act(batch).entropy.sum()
    for name, indices in net.act(batch, temperature=1e-6).actions.items():
        np.testing.assert_array_equal(indices, net.act(batch, greedy=True).actions[name])


OBS = ObsSpace(("t",), {"A": Entity(("x", "y")), "B": Entity(("x",))})
ACTIONS: dict[str, ActionSpace] = {
    "keys": CategoricalActionSpace(("a", "b", "c")),
    "a.b": SelectEntityActionSpace(),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
}


def test_any_name_loads() -> None:
    torch.manual_seed(0)
    net, other = RogueNet(OBS, ACTIONS), RogueNet(OBS, ACTIONS)
    other.load_state_dict(net.state_dict())
    for name, tensor in RogueNet.of(net.weights()).state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    with pytest.raises(RuntimeError, match=r"Unexpected key.*action_heads\.a\.c\.x"):
        other.load_state_dict({**net.state_dict(), "action_heads.a.c.x": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def _ragged(lengths: list[int], width: int = 0) -> RaggedArray[np.float32]:
    rng = np.random.default_rng(sum(lengths))
    return RaggedArray(rng.normal(size=(sum(lengths), width)).astype(np.float32), lengths)


def _ints(rows: list[list[int]]) -> RaggedArray[np.int64]:
    return RaggedArray.from_rows(rows, np.int64)


def _batch() -> ObsBatch:
    """Three rows: a full one, an empty one, and one in which only the agent itself acts."""
    return ObsBatch(
        features={
            "A": _ragged([2, 0, 0], 2),
            "B": _ragged([1, 0, 1], 1),
            "__global__": _ragged([1, 0, 1], 1),
        },
        visible={},
        action_masks={
            "keys": VecCategoricalActionMask(_ints([[1, 0], [], []])),
            "a.b": VecSelectEntityActionMask(
                _ints([[2, 0], [], []]),
                _ints([[0, 1, 2], [], []]),
                RaggedArray(np.array([0, 1, 0, 1, 1, 0], np.bool_), [6, 0, 0]),
            ),
            "mode": VecCategoricalActionMask(
                _ints([[3], [], [1]]), RaggedArray(np.array([[1, 0], [1, 1]], np.bool_), [1, 0, 1])
            ),
        },
    )


def test_rows_without_entities_are_no_trouble() -> None:
    net = RogueNet(OBS, ACTIONS)
    decisions = net.act(_batch())
    assert decisions.logprobs[1] == 0
    assert decisions.entropy[1] == 0
    assert np.isfinite(decisions.values).all()
    assert {name: len(each) for name, each in decisions.actions.items()} == {
        "keys": 2,
        "a.b": 2,
        "mode": 2,
    }
    assert decisions.actions["a.b"][0] == 1  # all that its mask allows
    assert decisions.actions["a.b"][1] in (0, 1)
    assert decisions.actions["mode"][0] == 0


def _nothing(num_rows: int) -> ObsBatch:
    none = _ints([[]] * num_rows)
    return ObsBatch(
        features={name: _ragged([0] * num_rows, w) for name, w in {"A": 2, "B": 1}.items()}
        | {"__global__": _ragged([0] * num_rows, 1)},
        visible={},
        action_masks={
            "keys": VecCategoricalActionMask(none),
            "a.b": VecSelectEntityActionMask(none, none),
            "mode": VecCategoricalActionMask(none),
        },
    )


@pytest.mark.parametrize("greedy", [True, False])
def test_a_batch_without_any_entity(greedy: bool) -> None:
    net = RogueNet(OBS, ACTIONS)
    with torch.no_grad():
        dict(net.named_parameters())["auxiliary_heads.value.bias"].fill_(0.5)
    decisions = net.act(_nothing(4), greedy=greedy)
    np.testing.assert_array_equal(decisions.values, [0.5] * 4)
    np.testing.assert_array_equal(decisions.logprobs, [0.0] * 4)
    evaluation = net.evaluate(_nothing(4), decisions.samples)
    loss = evaluation.logprobs.sum() + evaluation.entropy.sum() + evaluation.values.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in net.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_rows_do_not_see_each_other() -> None:
    net = RogueNet(OBS, ACTIONS, RogueNetConfig(d_model=16, n_head=4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.5)
    batch = _batch()
    alone = ObsBatch(
        features={name: values[[0]] for name, values in batch.features.items()},
        visible={},
        action_masks={
            "keys": VecCategoricalActionMask(_ints([[1, 0]])),
            "a.b": VecSelectEntityActionMask(_ints([[2, 0]]), _ints([[0, 1, 2]])),
            "mode": VecCategoricalActionMask(_ints([[3]])),
        },
    )
    joint, single = net.distributions(batch), net.distributions(alone)
    torch.testing.assert_close(joint[1][:1], single[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        _logprobs(joint[0]["keys"]), _logprobs(single[0]["keys"]), rtol=1e-4, atol=1e-4
    )


def test_gradients_equal_those_of_plain_indexing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = RogueNet(OBS, ACTIONS)
    samples = net.act(_batch()).samples

    def gradients() -> list[torch.Tensor]:
        net.zero_grad()
        evaluation = net.evaluate(_batch(), samples)
        loss = evaluation.logprobs.sum() + evaluation.values.sum() + evaluation.entropy.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return [p.grad.clone() for p in net.parameters() if p.grad is not None]

    fast = gradients()
    module = "entity_env.agents.rogue_net.torch_net.attention"
    monkeypatch.setattr(f"{module}.pad", lambda x, _, source: x.index_select(0, source))
    for ours, plain in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)


def test_hidden_entities_change_no_policy_of_visible_entities() -> None:
    net = RogueNet(OBS, ACTIONS)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.5)
    batch = _batch()
    hidden = dataclasses.replace(
        batch, visible={"B": RaggedArray(np.array([False, True]), [1, 0, 1])}
    )
    moved = {**batch.features, "B": _ragged([1, 0, 1], 1)}
    moved["B"].values[0] += 3
    changed = dataclasses.replace(hidden, features=moved)
    before, after = net.distributions(hidden), net.distributions(changed)
    torch.testing.assert_close(_logprobs(before[0]["keys"]), _logprobs(after[0]["keys"]))
    assert not torch.equal(before[1][0], after[1][0])


def test_only_update_statistics_changes_them() -> None:
    net = RogueNet(OBS, ACTIONS)
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    decisions = net.act(_batch())
    loss = net.evaluate(_batch(), decisions.samples).values.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    net.values(_batch())
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    net.update_statistics(_batch())
    assert net.has_statistics
    assert net.state_dict()["embedding.embeddings.A.0.count"] == 2
    assert net.state_dict()["embedding.embeddings.B.0.count"] == 2


def test_statistics_of_batches_equal_those_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    data = torch.from_numpy(rng.normal(3, 2, size=(100, 3)).astype(np.float32))
    norm = InputNorm(3)
    for part in torch.split(data, [1, 0, 60, 39]):
        norm.update(part)
    torch.testing.assert_close(norm.mean, data.mean(0))
    torch.testing.assert_close((norm.squares_sum / 99).sqrt(), data.std(0))
    expected = ((data - data.mean(0)) / data.std(0)).clamp(-5, 5)
    torch.testing.assert_close(norm(data), expected, rtol=1e-4, atol=1e-4)
    norm.update(data[:10], restart=True)
    assert norm.count == 10
    torch.testing.assert_close(norm.mean, data[:10].mean(0))


def test_constant_features_and_fresh_statistics_are_finite() -> None:
    norm = InputNorm(1)
    torch.testing.assert_close(norm(torch.tensor([[100.0]])), torch.tensor([[5.0]]))
    norm.update(torch.full((3, 1), 7.0))
    torch.testing.assert_close(norm(torch.tensor([[7.0], [8.0]])), torch.tensor([[0.0], [1.0]]))


def _broken(**masks: VecCategoricalActionMask | VecSelectEntityActionMask) -> ObsBatch:
    batch = _batch()
    return dataclasses.replace(
        batch,
        action_masks={**batch.action_masks, **{k.replace("_", "."): m for k, m in masks.items()}},
    )


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            _broken(
                keys=VecCategoricalActionMask(
                    _ints([[1], [], []]), RaggedArray(np.zeros((1, 3), np.bool_), [1, 0, 0])
                )
            ),
            "action 'keys': an actor in row 0 has nothing to choose from",
        ),
        (
            _broken(a_b=VecSelectEntityActionMask(_ints([[], [], [0]]), _ints([[0], [], []]))),
            "action 'a.b': an actor in row 2 has nothing to choose from",
        ),
        (
            _broken(a_b=VecSelectEntityActionMask(_ints([[0], [], []]), _ints([[], [], []]))),
            "action 'a.b': an actor in row 0 has nothing to choose from",
        ),
        (
            _broken(keys=VecCategoricalActionMask(_ints([[], [], [2]]))),
            "actors of action 'keys': row 2 names entity 2, which is not among its 2 entities",
        ),
    ],
)
def test_impossible_choices_raise(batch: ObsBatch, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        RogueNet(OBS, ACTIONS).act(batch)


def test_what_it_cannot_do_raises() -> None:
    with pytest.raises(SchemaError, match="no entity"):
        RogueNet(ObsSpace(), {"pick": SelectEntityActionSpace()})
    with pytest.raises(UsageError, match="multiple of n_head"):
        RogueNetConfig(d_model=10, n_head=4)
    with pytest.raises(UsageError, match="d_qk must be an integer from 1 to 65536"):
        RogueNetConfig(d_qk=0)


def test_no_layers_and_read_only_features() -> None:
    net = RogueNet(OBS, ACTIONS, RogueNetConfig(n_layer=0))
    batch = _batch()
    for values in batch.features.values():
        values.values.flags.writeable = False
    assert np.isfinite(net.act(batch).values).all()


CODE = """
import sys
import entity_env.agents.rogue_net
import entity_env.agents.ppo
assert "torch" not in sys.modules, "torch was imported"
from entity_env.errors import MissingExtraError
sys.modules["torch"] = None
for package, name in ((entity_env.agents.rogue_net, "RogueNet"), (entity_env.agents.ppo, "train")):
    try:
        getattr(package, name)
    except MissingExtraError as error:
        assert "entity-env[train]" in str(error)
    else:
        raise AssertionError("no error")
"""


def test_torch_is_loaded_late_and_missed_in_words() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=50)
