"""Attention along relations, compared with one loop per entity."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.peers.network_vectors import random_weights
from entity_env import (
    CategoricalActionMask,
    Entity,
    Game,
    Observation,
    ObsSpace,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)
from entity_env.agents.rogue_net import (
    NeuralAgent,
    NumpyAgent,
    RogueNetConfig,
    action_index,
)
from entity_env.agents.rogue_net.adapt import FeatureAdaptor, renamed
from entity_env.agents.rogue_net.batch_layout import Batch, RelationLayout, lay_out
from entity_env.agents.rogue_net.changes import space_changes
from entity_env.agents.rogue_net.enn_trainer.config import spaces_to_ron
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net import functions
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.numpy_net.single import PlainSingleNet
from entity_env.agents.rogue_net.onnx_net.net import OnnxNet
from entity_env.agents.rogue_net.torch_net.attention import RelationAttention, relate
from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.rollout_policy import CompiledPolicy
from entity_env.agents.rogue_net.transfer import transfer
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import VecSelectEntityActionMask
from entity_env.errors import CheckpointError, SchemaError
from tests.games.relation_games import convoys, routes, travels
from tests.page.test_network import (
    ACTIONS,
    LINKED,
    OBS,
    PLACED,
    SMALL,
    Relpos,
    Translate,
    configs,
    observed,
)

MAX_DIFFERENCE = 1e-5
"""Relative to numbers beside it."""


def some_batch(seed: int, count: int = 3, obs_space: ObsSpace = LINKED) -> Batch:
    """A batch of random observations, some without relations."""
    agent = NumpyAgent(random_weights((obs_space, ACTIONS), RogueNetConfig(d_model=8, n_head=1)))
    batch = agent._batch_of(*(observed((obs_space, ACTIONS), seed + i) for i in range(count)))
    return batch.map_arrays(lambda array: RaggedArray(array.values.copy(), array.lengths.copy()))


def entity_index(batch: Batch, names: list[str], row: int, name: str, position: int) -> int:
    """Packed index of an entity, found by counting."""
    first = sum(len(batch.features[each].values) for each in names[: names.index(name)])
    return first + int(batch.features[name].lengths[:row].sum()) + position


def slow_relate(
    batch: Batch, inputs: Inputs, tensors: dict[str, Tensor], n_head: int
) -> tuple[Tensor, list[tuple[int, int]]]:
    """`relate` for one entity after another, and the two ends of each relation.

    Args:
        tensors: arguments of `relate` by name.
    """
    names = list(inputs.names)
    num_entities, width = tensors["query"].shape

    def seen(name: str, row: int, position: int) -> bool:
        return name not in batch.visible or bool(batch.visible[name][row][position])

    inbox: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(num_entities)]
    ends: list[tuple[int, int]] = []
    for name, types in inputs.references.items():
        for row in range(len(batch.features[name])):
            for position, relation in enumerate(batch.features[name][row]):
                at = len(ends)
                both = [
                    (
                        kind,
                        int(relation[column]),
                        entity_index(batch, names, row, kind, int(relation[column])),
                    )
                    for column, kind in enumerate(types)
                ]
                ends.append((both[0][2], both[1][2]))
                for half, (mine, other) in enumerate((both, both[::-1])):
                    is_visible = seen(name, row, position) and seen(other[0], row, other[1])
                    if seen(mine[0], row, mine[1]) and not is_visible:
                        continue
                    columns = slice(half * width, (half + 1) * width)
                    inbox[mine[2]].append(
                        (
                            tensors["key"][other[2]] + tensors["relation_key"][at, columns],
                            tensors["value"][other[2]] + tensors["relation_value"][at, columns],
                        )
                    )
    mixed = []
    for query, messages in zip(tensors["query"], inbox, strict=True):
        if not messages:
            mixed.append(torch.zeros_like(query))
            continue
        keys, values = (
            torch.stack(each).view(len(messages), n_head, -1)
            for each in zip(*messages, strict=True)
        )
        logits = (keys * query.view(n_head, -1)).sum(2) / math.sqrt(width // n_head)
        weights = torch.softmax(logits, dim=0)
        mixed.append((weights[:, :, None] * values).sum(0).view(-1))
    return torch.stack(mixed) if mixed else torch.zeros(0, width).double(), ends


def random_tensors(
    seed: int, relations: RelationLayout, num_entities: int, width: int
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    num_relations = len(relations.pairs)
    sizes = {
        "query": (num_entities, width),
        "key": (num_entities, width),
        "value": (num_entities, width),
        "relation_key": (num_relations, 2 * width),
        "relation_value": (num_relations, 2 * width),
    }
    return {
        name: (2 * torch.randn(size, generator=generator, dtype=torch.float64)).requires_grad_()
        for name, size in sizes.items()
    }


@given(seed=st.integers(0, 10_000), n_head=st.sampled_from([1, 2, 4]))
def test_every_entity_reads_its_relations(seed: int, n_head: int) -> None:
    """Values and gradients are those of a loop over entities; numpy agrees."""
    batch, inputs = some_batch(seed), Inputs(LINKED, ACTIONS)
    layout = lay_out(batch, inputs.names, inputs.references)
    assert layout.relations is not None
    tensors = random_tensors(seed, layout.relations, len(layout.order), 8)
    expected, ends = slow_relate(batch, inputs, tensors, n_head)
    assert layout.relations.pairs.tolist() == [list(each) for each in ends]
    found = relate(*tensors.values(), relations=layout.relations, n_head=n_head)
    assert_allclose(found.detach(), expected.detach(), atol=1e-12)
    given_gradient = torch.randn(expected.shape, dtype=torch.float64)
    inputs_of = [*tensors.values()]
    if expected.requires_grad:
        for one, other in zip(
            torch.autograd.grad(found, inputs_of, given_gradient),
            torch.autograd.grad(
                expected, inputs_of, given_gradient, allow_unused=True, materialize_grads=True
            ),
            strict=True,
        ):
            assert_allclose(one, other, atol=1e-10)
    arrays = (each.detach().float().numpy() for each in inputs_of)
    single = functions.relate(*arrays, relations=layout.relations, n_head=n_head)
    assert_allclose(single, expected.detach(), atol=2e-5)


@given(config=configs(), seed=st.integers(0, 10_000), count=st.integers(1, 4))
def test_torch_and_numpy_agree(config: RogueNetConfig, seed: int, count: int) -> None:
    weights, batch = random_weights((LINKED, ACTIONS), config, seed), some_batch(seed, count)
    arrays, array_values = NumpyNet(weights).distributions(batch)
    with torch.no_grad():
        found, values = RogueNet.of(weights).distributions(batch)
    assert_allclose(values, array_values, rtol=MAX_DIFFERENCE, atol=MAX_DIFFERENCE)
    for name, each in found.items():
        if isinstance(each, CategoricalDistribution):
            theirs: Any = arrays[name]
            probs = np.exp(theirs.logprobs).reshape(each.logprobs.shape)
            assert_allclose(each.logprobs.exp(), probs, atol=MAX_DIFFERENCE)


def small_net(**options: Any) -> RogueNet:  # noqa: ANN401
    return RogueNet(LINKED, ACTIONS, RogueNetConfig(d_model=16, n_head=2, **options))


def test_relations_do_not_enter_the_transformer() -> None:
    """Neither the compiled policy nor the quick network for one observation is used."""
    net = small_net()
    assert not CompiledPolicy.fits(net)
    assert not PlainSingleNet.fits(random_weights((LINKED, ACTIONS), net.config))
    assert [*net.inputs.names] == ["A", "keys", "B", "__global__"]
    assert [*net.inputs.references] == ["R", "a.b"]


def test_references_are_no_features() -> None:
    """The statistics of relations count only what comes after the references."""
    net, batch = small_net(), some_batch(2)
    net.update_statistics(batch)
    tensors = net.state_dict()
    values = batch.features["R"].values[:, 2]
    assert tensors["embedding.embeddings.R.0.mean"].shape == (2,)
    assert_allclose(tensors["embedding.embeddings.R.0.mean"][0], values.mean(), rtol=1e-5)


@pytest.mark.slow
def test_all_parameters_get_gradients() -> None:
    net, batch = small_net(), some_batch(1, 6)
    for parameter in net.auxiliary_heads["value"].parameters():
        torch.nn.init.normal_(parameter)
    distributions, values = net.distributions(batch)
    choice = distributions["a.b"]
    assert isinstance(choice, CategoricalDistribution)
    (values.square().sum() + choice.logprobs.exp().square().sum()).backward()  # type: ignore[no-untyped-call]
    for name, parameter in net.named_parameters():
        # No softmax depends on the bias of keys; the compared keys, on their own.
        if name.startswith("relations.") and not name.endswith("key.bias"):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_without_any_entity_or_relation_there_is_a_value() -> None:
    net = small_net()
    nothing = Observation(reward=0.0, features={}, global_features=[0.5])
    agent = NumpyAgent(random_weights((LINKED, ACTIONS), net.config))
    batch = agent._batch_of(nothing, nothing)
    _, values = net.distributions(batch)
    assert_array_equal(values.detach(), np.zeros(2))
    assert_array_equal(NumpyNet(agent.weights).distributions(batch)[1].shape, 2)


@pytest.mark.parametrize("wrong", [-1.0, 2.0, 0.5, np.nan, np.inf, 3e38])
@pytest.mark.parametrize("column", [0, 1])
def test_wrong_references_are_refused(wrong: float, column: int) -> None:
    obs_space = ObsSpace(
        (), {"A": Entity(("x",)), "R": Entity(("of", "to", "d"), references=("A", "A"))}
    )
    links = np.zeros((3, 3), np.float32)
    links[2, column] = wrong
    batch = Batch(
        {
            "A": RaggedArray(np.zeros((5, 1), np.float32), np.array([3, 2])),
            "R": RaggedArray(links, np.array([1, 2])),
        },
        {},
        {},
    )
    with pytest.raises(SchemaError, match=r"row 1: relation 'R' 1 refers to 'A' .*one of 2 entit"):
        RogueNet(obs_space, {}).values(batch)
    with pytest.raises(SchemaError, match=r"row 1: relation 'R' 1 refers to 'A' .*one of 2 entit"):
        NumpyNet(random_weights((obs_space, {}), RogueNetConfig())).distributions(batch)


def test_relations_do_not_act() -> None:
    shown = observed((LINKED, ACTIONS), 1)
    shown.actions = {"move": CategoricalActionMask(actor_ids=[("R", 0)])}
    agent = NumpyAgent(random_weights((LINKED, ACTIONS), RogueNetConfig(d_model=8)))
    with pytest.raises(SchemaError, match=r"actors of action 'move': .* relations do not act"):
        agent.choose(shown)


def test_positions_are_not_those_of_relations() -> None:
    """A relation may have features with the names of positions."""
    linked = Entity(("of", "to", "x", "y", "z"), references=("A", "2"))
    obs_space = replace(PLACED, entities={**PLACED.entities, "R": linked})
    config = SMALL(relpos_encoding=Relpos((3, 4)), translation=Translate())
    weights = random_weights((obs_space, ACTIONS), config)
    batch = some_batch(5, 3, obs_space)
    arrays = Inputs(obs_space, ACTIONS, config.translation).arrays(batch)
    assert_array_equal(arrays["R"][:, :5], batch.features["R"].values)
    values = RogueNet.of(weights).values(batch)
    assert_allclose(values, NumpyNet(weights).distributions(batch)[1], atol=1e-4)


# ---------------------------------------------------------------- changed games


def with_relations(shown: Observation) -> Observation:
    """The observation with two relations of a type, if there are such entities."""
    rows = np.array([[0, 0, 1.5], [0, 0, -2]])
    is_empty = not (shown.num_entities("A") and shown.num_entities("B"))
    return replace(shown, features={**shown.features, "R": rows[:0] if is_empty else rows})


@pytest.mark.parametrize("separate", [False, True])
def test_the_first_relations_have_no_effect_on_a_trained_network(separate: bool) -> None:
    config = SMALL(separate_value=separate, memory=3)
    actions = {name: space for name, space in ACTIONS.items() if name != "a.b"}
    old = random_weights((OBS, actions), config)
    fresh = random_weights((LINKED, actions), config, seed=1)
    start = replace(fresh, tensors=transfer(old, fresh).tensors)
    for seed in range(1, 9):
        shown = observed((OBS, actions), seed)
        expected = NumpyAgent(old).think(shown)
        found = NumpyAgent(start).think(with_relations(shown))
        assert found.value == pytest.approx(expected.value, abs=1e-5)
        for name, probs in expected.probabilities.items():
            assert_allclose(found.probabilities[name], probs, atol=1e-5)


def test_relations_of_a_trained_network_stay() -> None:
    """A new type of relations looks like the others; types that are gone are dropped."""
    weights = random_weights((LINKED, ACTIONS), SMALL())
    more = {**LINKED.entities, "N": Entity(("of", "to"), references=("B", "B"))}
    fresh = random_weights((replace(LINKED, entities=more), ACTIONS), SMALL(), seed=1)
    start = replace(fresh, tensors=transfer(weights, fresh).tensors)
    back = transfer(start, weights).tensors
    for name, tensor in weights.tensors.items():
        assert_array_equal(back[name], tensor, err_msg=name)
    assert space_changes((LINKED, ACTIONS), (fresh.obs_space, ACTIONS)) == [
        "relation N is new: seen as the mean of the others at first"
    ]
    assert space_changes((OBS, ACTIONS), (LINKED, ACTIONS)) == [
        "relation R is new: no effect at first",
        "relation a.b is new: no effect at first",
    ]


def test_other_names_and_features_are_adapted() -> None:
    weights = random_weights((LINKED, ACTIONS), SMALL())
    names = {"A": "Ship", "R": "Route", "d": "days", "B": "Port"}
    agent = NumpyAgent(renamed(weights, names), adapt=True)
    assert agent.weights.obs_space.relations["Route"] == Entity(
        ("of", "to", "days"), references=("Port", "Ship")
    )
    more = {
        "New": Entity(("x",)),
        **LINKED.entities,
        "S": Entity(("a", "b"), references=("A", "A")),
    }
    game = replace(LINKED, entities=more), ACTIONS
    adaptor = FeatureAdaptor((LINKED, ACTIONS), game)
    plain = NumpyAgent(weights)
    for seed in range(8):
        shown = observed((LINKED, ACTIONS), seed)
        ids = [(name, i) for name in LINKED.entities for i in range(shown.num_entities(name))]
        asked = {
            name: replace(mask, actee_ids=ids) if isinstance(mask, SelectEntityActionMask) else mask
            for name, mask in shown.actions.items()
        }
        shown = replace(shown, actions=asked)
        features = {"New": np.ones((2, 1)), **shown.features, "S": np.zeros((1, 2))}
        adapted = adaptor.observation(replace(shown, features=features))
        expected, found = plain.think(shown), plain.think(adapted)
        for name, probs in expected.probabilities.items():
            assert_array_equal(found.probabilities[name], probs)
        num_entities = sum(shown.num_entities(name) for name in OBS.entities)
        assert expected.attention is not None
        assert expected.attention.shape[2:] == (num_entities + 1, num_entities + 1)


def test_other_references_are_no_match() -> None:
    other = {**LINKED.entities, "R": Entity(("of", "to", "d"), references=("A", "A"))}
    game = replace(LINKED, entities=other), ACTIONS
    with pytest.raises(CheckpointError, match="the reference to"):
        FeatureAdaptor((LINKED, ACTIONS), game)


def test_other_files_refuse_relations() -> None:
    weights = random_weights((LINKED, ACTIONS), SMALL())
    with pytest.raises(SchemaError, match="relation 'R' cannot be written as ONNX"):
        OnnxNet(weights)
    with pytest.raises(CheckpointError, match="rogue-net has no relations, such as 'R'"):
        spaces_to_ron(LINKED, ACTIONS)


@pytest.mark.parametrize("game", [routes, travels, convoys], ids=lambda game: game.name)
def test_agents_play_games_with_relations(game: Game) -> None:
    """In torch and numpy, alone and in batches."""
    spaces = game.schema.obs_space(), game.schema.action_space()
    weights = random_weights(spaces, SMALL())
    for agent in (NumpyAgent(weights, seed=1), NeuralAgent(RogueNet.of(weights), seed=1)):
        assert len(game.run(agent, episodes=2, seed=3)) == 2


def selecting(seed: int, count: int) -> Batch:
    """Observations whose actors select relations, most of them not allowed."""
    rng, shown = np.random.default_rng(seed), []
    for i in range(count):
        each = observed((LINKED, ACTIONS), seed + i)
        num_relations = sum(map(each.num_entities, LINKED.relations))
        asked: Any = each.actions.get("a.b")
        actors = asked.actor_ids if num_relations and asked is not None else []
        allowed = rng.random((len(actors), num_relations)) < 0.3
        if num_relations:
            allowed[:, rng.integers(num_relations)] = True
        types = tuple(LINKED.relations)
        mask = SelectEntityActionMask(actors, actee_types=types, mask=allowed)
        shown.append(replace(each, actions={**each.actions, "a.b": mask}))
    agent = NumpyAgent(random_weights((LINKED, ACTIONS), RogueNetConfig(d_model=8, n_head=1)))
    return agent._batch_of(*shown)


def every_choice(
    mask: VecSelectEntityActionMask, flags: RaggedArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """In place of `action_index._options`: all choices are options."""
    rows, most = mask.actors.row_index, int(mask.actees.lengths.max())
    allowed = np.zeros((len(rows), most), np.bool_)
    at = 0
    for actor, row in enumerate(rows):
        length = mask.actees.lengths[row]
        allowed[actor, :length] = flags.values[at : at + length]
        at += length
    assert at == len(flags.values)
    return np.arange(most) * allowed, allowed


@pytest.mark.slow
@given(config=configs(), seed=st.integers(0, 10_000), count=st.integers(1, 4))
def test_actors_compare_only_the_relations_they_may_select(
    config: RogueNetConfig, seed: int, count: int
) -> None:
    """The distribution is the same as if they compared all."""
    weights = random_weights((LINKED, ACTIONS), config)
    batch, net, policy = selecting(seed, count), NumpyNet(weights), RogueNet.of(weights)
    with mock.patch.object(action_index, "_options", every_choice):
        expected: Any = net.distributions(batch)[0]["a.b"]
    ours: Any = net.distributions(batch)[0]["a.b"]
    with torch.no_grad():
        theirs: Any = policy.recalled(batch, None)[0]["a.b"]
    probs = expected.probs_of_choices
    num_actors, num_choices = probs.shape
    if not num_actors:
        return
    assert_allclose(ours.probs_of_choices, probs, atol=1e-5)
    assert_allclose(theirs.probs_of_choices(), probs, atol=1e-5)
    assert ours.logprobs.shape[1] == (probs > 0).sum(axis=1).max()
    assert_allclose(theirs.entropy(), -(probs * np.log(probs + (probs == 0))).sum(1), atol=1e-4)
    for choice in range(num_choices):
        found = theirs.logprob(torch.full((num_actors,), choice)).numpy()
        assert_allclose(np.exp(found), probs[:, choice], atol=1e-5)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    drawn = (
        ours.choose(False, rng),
        theirs.draw(generator).numpy(),
        ours.race(rng.random((1, 1)))[0],
    )
    for choices in (*drawn, theirs.best().numpy(), ours.choose(True, rng)):
        assert (probs[np.arange(num_actors), choices] > 0).all()
    best = probs[np.arange(num_actors), ours.choose(True, rng)]
    assert_allclose(best, probs.max(axis=1), atol=1e-4)


def many(num_relations: int) -> Batch:
    """One observation of 1000 entities."""
    rng = np.random.default_rng(0)
    links = rng.integers(0, 1000, (num_relations, 2)).astype(np.float32)
    counts = np.array([1000]), np.array([num_relations])
    a: NDArray[np.float32] = rng.normal(size=(1000, 1)).astype(np.float32)
    return Batch({"A": RaggedArray(a, counts[0]), "R": RaggedArray(links, counts[1])}, {}, {})


@pytest.mark.slow
def test_memory_grows_with_the_number_of_relations() -> None:
    obs_space = ObsSpace((), {"A": Entity(("x",)), "R": Entity(("s", "t"), references=("A", "A"))})
    net = NumpyNet(random_weights((obs_space, {}), RogueNetConfig(d_model=16, n_layer=0)))
    peaks = []
    for count in (10_000, 100_000):
        batch = many(count)
        tracemalloc.start()
        net.distributions(batch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 11 * peaks[0]
    found = RogueNet.of(net.weights).values(many(100_000))
    assert_allclose(found, net.distributions(many(100_000))[1], atol=1e-4)


def test_memory_does_not_grow_with_the_most_options_of_an_actor() -> None:
    """One of 100 actors has all other relations, or each has 20 more."""
    obs_space = ObsSpace((), {"A": Entity(("x",)), "R": Entity(("s", "t"), references=("A", "A"))})
    spaces = obs_space, {"Pick": SelectEntityActionSpace()}
    net = NumpyNet(random_weights(spaces, RogueNetConfig(d_model=64, n_layer=0, d_qk=64)))
    peaks = []
    for more in (np.repeat(np.arange(100), 20), np.zeros(2000, np.int64)):
        sources = np.concatenate([np.arange(100), more])
        batch = many(len(sources))
        batch.features["R"].values[:, 0] = sources
        flags = (np.arange(100)[:, None] == sources).flatten()
        actors = RaggedArray(np.arange(100), np.array([100]))
        actees = RaggedArray(1000 + np.arange(len(sources)), np.array([len(sources)]))
        mask = RaggedArray(flags, np.array([len(flags)]))
        batch = replace(
            batch, action_masks={"Pick": VecSelectEntityActionMask(actors, actees, mask)}
        )
        tracemalloc.start()
        net.distributions(batch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 3 * peaks[0]


def test_initial_relations_matter_little() -> None:
    attention = RelationAttention(RogueNetConfig(d_model=64), has_out=False)
    batch, inputs = some_batch(2), Inputs(LINKED, ACTIONS)
    relations = lay_out(batch, inputs.names, inputs.references).relations
    assert relations is not None
    sizes = [sum(len(batch.features[name].values) for name in inputs.names), len(relations.pairs)]
    x, embedded = (torch.randn(size, 64) for size in sizes)
    change = (attention(x, embedded, relations) - x).detach()
    assert 0.01 < change.square().mean().sqrt() < 0.5
