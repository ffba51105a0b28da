"""A network adapted to a changed game acts like its origin on everything both games share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import CheckpointError
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    RelposEncodingConfig,
    RogueNetConfig,
    TranslationConfig,
    initialized_from,
    load_checkpoint,
    read_network,
    save_checkpoint,
)
from entity_env.agents.rogue_net.changes import space_changes
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.checkpoints.folder import network_digest
from entity_env.agents.rogue_net.config import NetConfig
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    GaussianDistribution,
)
from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    ContinuousActionMask,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    Spaces,
)
from entity_env.core.vec_obs import VecObs
from entity_env.games import snake
from entity_env.vec import VecEnv
from tests.agents.rogue_net.fixtures import FIXTURES

Scene: TypeAlias = Mapping[str, NDArray[np.float64]]

SIZE = RogueNetConfig(d_model=8, n_layer=2, n_head=2, d_qk=4)
GRID = RelposEncodingConfig([3, 3], ["x", "y"])
CONFIGS: Mapping[str, NetConfig] = {
    "plain": SIZE,
    "separate": replace(SIZE, separate_value=True, value_scale=True),
    "pooling": replace(SIZE, pooling="meanmax", value_scale=True),
    "relpos": replace(
        SIZE, relpos_encoding=replace(GRID, per_entity_values=True, value_relpos_projection=True)
    ),
    "mlp": MLPConfig([8, 8]),
    "raw mlp": MLPConfig([8, 8], norm_inputs=False),
    "memory": replace(SIZE, memory=5),
    "memory and separate": replace(SIZE, memory=3, separate_value=True, value_scale=True),
    "memory of an mlp": MLPConfig([8, 8], memory=6),
    "translation": replace(
        SIZE, translation=TranslationConfig("Unit", ["x", "y"], None, None, True)
    ),
}
OLD: Spaces = (
    ObsSpace(["day", "rain"], {"Unit": Entity(["x", "y", "hp"]), "Rock": Entity(["x", "y"])}),
    {
        "Move": CategoricalActionSpace(["LEFT", "RIGHT", "STAY"]),
        "Mood": GlobalCategoricalActionSpace(["CALM", "WILD"]),
        "Pick": SelectEntityActionSpace(),
        "Aim": ContinuousActionSpace([-1.0, 0.0], [2.0, 1.0], ["angle", "force"]),
    },
)
FLAT: Spaces = (
    ObsSpace(["day", "rain"], {"Unit": Entity(["x", "y", "hp"], True)}),
    {"Move": GlobalCategoricalActionSpace(["LEFT", "RIGHT", "STAY"]), "Aim": OLD[1]["Aim"]},
)


LOCAL: Spaces = OLD[0], {name: space for name, space in OLD[1].items() if name != "Mood"}
"""Spaces without an action for the whole observation, which has no position."""
SPACES: Mapping[str, Spaces] = {
    **dict.fromkeys(("mlp", "raw mlp", "memory of an mlp"), FLAT),
    "relpos": LOCAL,
}
_FIXED = ("strides", "extent_tensor", "mean", "std", "count", "squares_sum")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mixed(draw: st.DrawFn, names: Sequence[str], added: Sequence[str]) -> list[str]:
    """All names and some of the added ones, in any order."""
    more = draw(st.lists(st.sampled_from(added), unique=True))
    return draw(st.permutations([*names, *more]))


@st.composite
def grown_spaces(draw: st.DrawFn, old: Spaces, *, flat: bool = False) -> Spaces:
    """Spaces that contain the old ones, in any order, and more."""
    obs_space, actions = old
    entities = {
        name: Entity(mixed(draw, entity.features, ["shield", "mana"]), flat)
        for name, entity in obs_space.entities.items()
    }
    if not flat:
        entities["Healer"] = Entity(mixed(draw, ["x", "y"], ["hp"]))
    names = draw(st.permutations([*entities]))
    grown: dict[str, ActionSpace] = {}
    for name, space in actions.items():
        if isinstance(space, ContinuousActionSpace):
            labels = mixed(draw, space.labels, ["spin"])
            low, high = (
                dict(zip(space.labels, each, strict=True)) for each in (space.low, space.high)
            )
            wider = draw(st.sampled_from([0.0, 0.5]))
            grown[name] = ContinuousActionSpace(
                [low.get(each, 0.0) - wider for each in labels],
                [high.get(each, 1.0) + 2 * wider for each in labels],
                labels,
            )
        elif isinstance(space, SelectEntityActionSpace):
            grown[name] = space
        else:
            grown[name] = type(space)(mixed(draw, space.index_to_label, ["HEAL", "JUMP"]))
    grown["Sing"] = (
        CategoricalActionSpace(["LA", "LALA"])
        if not flat
        else ContinuousActionSpace([0.0], [1.0], ["tone"])
    )
    shared = mixed(draw, obs_space.global_features, ["wind"])
    order = draw(st.permutations([*grown]))
    return ObsSpace(shared, {name: entities[name] for name in names}), {x: grown[x] for x in order}


def observation(spaces: Spaces, values: Scene, seed: int) -> Observation:
    """One scene in any spaces: features not in `values` are random, new choices are masked."""
    rng = np.random.default_rng(seed)
    (obs_space, actions), masks = spaces, dict[str, ActionMask]()

    def column(key: str, count: int) -> NDArray[np.float64]:
        return values.get(key, rng.normal(3.0, 2.0, count))

    features = {
        name: np.stack(
            [column(f"{name}.{x}", len(values[f"{name}.x"])) for x in entity.features], 1
        )
        for name, entity in obs_space.entities.items()
        if f"{name}.x" in values
    }
    known = [name for name in ("Unit", "Rock") if name in features]
    ids = {name: [f"{name} {i}" for i in range(len(rows))] for name, rows in features.items()}
    units = ids["Unit"]
    for name, space in actions.items():
        if name == "Sing":
            continue
        if isinstance(space, SelectEntityActionSpace):
            every = [each for x in known for each in ids[x]]
            masks[name] = SelectEntityActionMask(actor_ids=units, actee_ids=every)
        elif isinstance(space, ContinuousActionSpace):
            masks[name] = ContinuousActionMask(actor_ids=units)
        else:
            allowed = np.array([each not in ("HEAL", "JUMP") for each in space.index_to_label])
            if isinstance(space, GlobalCategoricalActionSpace):
                masks[name] = GlobalCategoricalActionMask(allowed)
            else:
                masks[name] = CategoricalActionMask(
                    actor_ids=units, mask=np.tile(allowed, (len(units), 1))
                )
    shared = np.array([column(f".{x}", 1)[0] for x in obs_space.global_features])
    return Observation(
        reward=0.0, global_features=shared, features=features, ids=ids, actions=masks
    )


def batch_of(spaces: Spaces, scenes: Sequence[Observation]) -> VecObs:
    batcher = ObservationBatcher(*spaces, "row {}".format)
    for each in scenes:
        batcher.add(each)
    flags, index = np.zeros(len(scenes), np.bool_), np.zeros(len(scenes), np.int64)
    return batcher.finish(np.zeros(len(scenes), np.float32), flags, flags, index, index)


def scene(
    rng: np.random.Generator, num_units: int, num_rocks: int
) -> dict[str, NDArray[np.float64]]:
    """Values of the features of `OLD`, by type and name."""
    counts = {"Unit": num_units, "Rock": num_rocks}
    found = {
        f"{name}.{feature}": rng.normal(5.0, 3.0, counts[name])
        for name, entity in OLD[0].entities.items()
        for feature in entity.features
    }
    return found | {f".{name}": rng.normal(5.0, 3.0, 1) for name in OLD[0].global_features}


def trained(spaces: Spaces, config: NetConfig, seed: int) -> Policy:
    """A network with statistics, whose weights are all random."""
    torch.manual_seed(seed)
    net = make_policy(*spaces, config)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if "norm" not in name and not name.endswith(_FIXED):
                tensor.add_(0.3 * torch.randn_like(tensor))
    rng = np.random.default_rng(seed)
    scenes = [observation(spaces, scene(rng, 1, 2), seed) for _ in range(20)]
    net.update_statistics(batch_of(spaces, scenes))
    net.scale_values(3.0, 2.0)
    return net


def behaviour(
    net: Policy, batch: VecObs
) -> tuple[NDArray[Any], dict[str, dict[str, NDArray[Any]]]]:
    """Values and, per action, probabilities or moments in units of the game, by label.

    If the network has a memory, given that it remembers random numbers; and the states afterwards.
    """
    shape = len(batch), net.memory_width
    past = Past(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    with torch.no_grad():
        distributions, values, states = net.recall(batch, past)
    found: dict[str, dict[str, NDArray[Any]]] = {"memory": {"states": states.numpy()}}
    for name, each in distributions.items():
        space = net.action_space[name]
        if isinstance(each, GaussianDistribution) and isinstance(space, ContinuousActionSpace):
            low, high = (torch.tensor(bound) for bound in (space.low, space.high))
            half = (high - low) / 2
            mean, std = (low + high) / 2 + half * each.mean, half * each.log_std.exp()
            found[name] = {
                x: torch.stack([mean[:, i], std[i].expand(len(mean))], 1).detach().numpy()
                for i, x in enumerate(space.labels)
            }
        elif isinstance(each, CategoricalDistribution):
            probs = each.logprobs.exp().numpy()
            names: Sequence[object] = range(probs.shape[1])
            if isinstance(space, CategoricalActionSpace | GlobalCategoricalActionSpace):
                names = space.index_to_label
            found[name] = {str(x): probs[:, i] for i, x in enumerate(names)}
    return values.numpy(), found


def require_same_behaviour(
    old: Policy, new: Policy, seed: int, counts: Sequence[tuple[int, int]]
) -> None:
    rng = np.random.default_rng(seed)
    scenes = [scene(rng, *each) for each in counts]
    before, after = (
        behaviour(
            net,
            batch_of(
                (net.obs_space, net.action_space),
                [observation((net.obs_space, net.action_space), each, seed) for each in scenes],
            ),
        )
        for net in (old, new)
    )
    np.testing.assert_allclose(after[0], before[0], rtol=1e-4, atol=1e-4)
    if not old.memory_width:
        del before[1]["memory"]
    for name, labels in before[1].items():
        for label, expected in labels.items():
            np.testing.assert_allclose(after[1][name][label], expected, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Policy, Path]]:
    """Trained networks of both games, and their files."""
    made: dict[str, tuple[Policy, Path]] = {}
    for seed, (kind, config) in enumerate(CONFIGS.items()):
        net = trained(SPACES.get(kind, OLD), config, seed)
        path = tmp_path_factory.mktemp(kind) / "old.agent"
        write_agent(path, net.weights())
        made[kind] = net, path
    return made


@pytest.mark.parametrize("kind", CONFIGS)
@settings(max_examples=15)
@given(data=st.data())
def test_what_both_games_have_stays_the_same(
    kind: str, data: st.DataObject, networks: Mapping[str, tuple[Policy, Path]]
) -> None:
    old, path = networks[kind]
    grown = data.draw(grown_spaces(SPACES.get(kind, OLD), flat="mlp" in kind))
    new = initialized_from(path, adapt=True)(*grown)
    counts = st.lists(st.tuples(st.just(1), st.integers(0, 3)), min_size=1, max_size=3)
    require_same_behaviour(old, new, data.draw(st.integers(0, 1000)), data.draw(counts))


@pytest.mark.parametrize("kind", [each for each in CONFIGS if "memory" not in each])
@settings(max_examples=5)
@given(data=st.data())
def test_a_memory_comes_with_a_changed_game(
    kind: str, data: st.DataObject, networks: Mapping[str, tuple[Policy, Path]]
) -> None:
    old, path = networks[kind]
    config = CONFIGS[kind]
    assert isinstance(config, RogueNetConfig | MLPConfig)
    grown = data.draw(grown_spaces(SPACES.get(kind, OLD), flat="mlp" in kind))
    new = initialized_from(path, adapt=True, net=replace(config, memory=4))(*grown)
    assert new.memory_width in (4, 8)
    assert "it can remember now: no effect at first" in str(new.origin)
    require_same_behaviour(old, new, data.draw(st.integers(0, 1000)), [(1, 2), (1, 0)])


@pytest.mark.parametrize("kind", [each for each in CONFIGS if "memory" in each])
@pytest.mark.parametrize("memory", [0, 2, 9])
def test_a_memory_keeps_its_size(
    kind: str, memory: int, networks: Mapping[str, tuple[Policy, Path]]
) -> None:
    config = CONFIGS[kind]
    assert isinstance(config, RogueNetConfig | MLPConfig)
    words = f"its memory is {config.memory}, but {memory} was requested"
    with pytest.raises(CheckpointError, match=words) as caught:
        initialized_from(networks[kind][1], adapt=True, net=replace(config, memory=memory))
    assert "\n" not in str(caught.value)


def changed(spaces: Spaces, **features: Sequence[str]) -> Spaces:
    """Spaces whose entities have only these features."""
    return ObsSpace((), {x: Entity(each) for x, each in features.items()}), spaces[1]


@pytest.mark.parametrize("kind", ["plain", "separate", "relpos"])
def test_what_is_gone_counts_as_its_mean(
    kind: str, networks: Mapping[str, tuple[Policy, Path]]
) -> None:
    """A feature that is always at its mean has the same effect as none."""
    old, path = networks[kind]
    new = initialized_from(path, adapt=True)(*changed(LOCAL, Rock=("y", "x"), Unit=("y", "x")))
    reference = initialized_from(path, adapt=True)(OLD[0], new.action_space)
    means = {
        name: dict(
            zip(
                (*OLD[0].entities[name].features, "day", "rain"),
                old.state_dict()[f"embedding.embeddings.{name}.0.mean"].tolist(),
                strict=True,
            )
        )
        for name in ("Unit", "Rock")
    }
    rng = np.random.default_rng(1)
    rows = dict(scene(rng, 2, 1))
    rows["Unit.hp"] = np.full(2, means["Unit"]["hp"])
    # Units and rocks saw the same days, so both have the same mean of global features.
    rows |= {f".{each}": np.array([means["Unit"][each]]) for each in ("day", "rain")}
    before, after = (
        behaviour(net, batch_of(spaces, [observation(spaces, rows, 1)]))
        for net in (reference, new)
        for spaces in [(net.obs_space, net.action_space)]
    )
    np.testing.assert_allclose(after[0], before[0], atol=1e-4)
    for name in ("Move", "Pick"):
        for label, expected in before[1][name].items():
            np.testing.assert_allclose(after[1][name][label], expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["mlp", "raw mlp"])
def test_a_feature_of_an_mlp_that_is_gone_counts_as_its_mean(
    kind: str, networks: Mapping[str, tuple[Policy, Path]]
) -> None:
    """Counts as zero if features are not normalized."""
    old, path = networks[kind]
    names = ("x", "y", "hp", "day", "rain")
    means = dict.fromkeys(names, 0.0)
    if kind == "mlp":
        means = dict(zip(names, old.get_buffer("input_norm.mean").tolist(), strict=True))
        assert min(map(abs, means.values())) > 1
    fewer: Spaces = ObsSpace(["rain"], {"Unit": Entity(["hp", "x"], True)}), FLAT[1]
    new = initialized_from(path, adapt=True)(*fewer)
    rows = scene(np.random.default_rng(3), 1, 0)
    rows |= {"Unit.y": np.array([means["y"]]), ".day": np.array([means["day"]])}
    before, after = (
        behaviour(net, batch_of(spaces, [observation(spaces, rows, 1)]))
        for net, spaces in ((old, FLAT), (new, fewer))
    )
    np.testing.assert_allclose(after[0], before[0], atol=1e-4)
    for label, expected in before[1]["Move"].items():
        np.testing.assert_allclose(after[1]["Move"][label], expected, atol=1e-4)


def test_statistics_of_an_mlp_follow_their_features(
    networks: Mapping[str, tuple[Policy, Path]],
) -> None:
    """Statistics of a new feature start from zero."""
    old, path = networks["mlp"]
    grown: Spaces = ObsSpace(["rain", "day"], {"Unit": Entity(["mana", "y", "x"], True)}), FLAT[1]
    new = initialized_from(path, adapt=True)(*grown)
    norm, theirs = new.get_submodule("input_norm"), old.get_submodule("input_norm")
    assert isinstance(norm, InputNorm)
    assert isinstance(theirs, InputNorm)
    # Indices into the old vector x, y, hp, day, rain.
    for mine, before in zip(norm.scale(), theirs.scale(), strict=True):
        torch.testing.assert_close(mine[1:], before[[1, 0, 4, 3]])
    had_statistics = new.has_statistics
    scenes = [observation(grown, scene(np.random.default_rng(i), 1, 0), i) for i in range(9)]
    batch = batch_of(grown, scenes)
    new.update_statistics(batch)
    assert (had_statistics, new.has_statistics) == (False, True)
    assert norm.count == theirs.count + 9
    mana = batch.features["Unit"].values[:, 0]
    mean, deviation = (each.numpy() for each in norm.scale())
    np.testing.assert_allclose((mean[0], deviation[0]), (mana.mean(), mana.std(ddof=1)), rtol=1e-4)


def test_an_mlp_with_normalization_does_not_start_one_without(
    networks: Mapping[str, tuple[Policy, Path]],
) -> None:
    for kind, has_norm in (("mlp", True), ("raw mlp", False)):
        _, path = networks[kind]
        told = f"its norm_inputs is {has_norm}, but {not has_norm} was requested.*"
        told += "Leave out those options"
        with pytest.raises(CheckpointError, match=told):
            initialized_from(path, net=MLPConfig([8, 8], norm_inputs=not has_norm))
        assert initialized_from(path)(*FLAT).net_config == CONFIGS[kind]


def test_choices_that_are_gone_leave_their_share(
    networks: Mapping[str, tuple[Policy, Path]],
) -> None:
    """A new choice starts with the geometric mean of the remaining ones."""
    old, path = networks["plain"]
    actions = {**OLD[1], "Move": CategoricalActionSpace(["HEAL", "RIGHT", "LEFT"])}
    new = initialized_from(path, adapt=True)(OLD[0], actions)
    rows = scene(np.random.default_rng(2), 3, 2)
    with torch.no_grad():
        before, after = (
            net.distributions(batch_of(spaces, [with_all_moves(observation(spaces, rows, 1))]))[0]
            for net in (old, new)
            for spaces in [(net.obs_space, net.action_space)]
        )
    heal, right, left = logprobs(after["Move"]).T
    old_left, old_right, _ = logprobs(before["Move"]).T
    torch.testing.assert_close(right - left, old_right - old_left)
    torch.testing.assert_close(heal, (right + left) / 2)


def logprobs(distribution: ActionDistribution) -> torch.Tensor:
    assert isinstance(distribution, CategoricalDistribution)
    return distribution.logprobs


def with_all_moves(observation: Observation) -> Observation:
    mask = observation.actions["Move"]
    assert isinstance(mask, CategoricalActionMask)
    move = CategoricalActionMask(mask.actor_ids)
    observation.actions = {**observation.actions, "Move": move}
    return observation


def test_features_come_to_a_type_that_had_none_and_go_again(tmp_path: Path) -> None:
    bare: Spaces = ObsSpace((), {"Unit": Entity(())}), {"Pick": SelectEntityActionSpace()}
    rich: Spaces = ObsSpace((), {"Unit": Entity(("x",))}), bare[1]
    old = make_policy(*bare, SIZE)
    write_agent(tmp_path / "old.agent", old.weights())
    new = initialized_from(tmp_path / "old.agent", adapt=True)(*rich)
    write_agent(tmp_path / "new.agent", new.weights())
    again = initialized_from(tmp_path / "new.agent", adapt=True)(*bare)
    units = ["a", "b"]
    mask = {"Pick": SelectEntityActionMask(actor_ids=units, actee_ids=units)}

    def outcome(net: Policy, rows: NDArray[np.float32]) -> NDArray[Any]:
        spaces = net.obs_space, net.action_space
        shown = Observation(reward=0.0, features={"Unit": rows}, ids={"Unit": units}, actions=mask)
        values, found = behaviour(net, batch_of(spaces, [shown]))
        return np.append(values, [*found["Pick"].values()])

    expected = outcome(old, np.zeros((2, 0), np.float32))
    np.testing.assert_allclose(
        outcome(new, np.array([[3.0], [7.0]], np.float32)), expected, atol=1e-5
    )
    np.testing.assert_allclose(outcome(again, np.zeros((2, 0), np.float32)), expected, atol=1e-5)


def test_a_new_type_looks_like_the_mean_of_the_others(
    networks: Mapping[str, tuple[Policy, Path]],
) -> None:
    _, path = networks["plain"]
    entities = {**OLD[0].entities, "Wolf": Entity(("x", "speed"))}
    new = initialized_from(path, adapt=True)(replace(OLD[0], entities=entities), OLD[1])
    embeddings = {
        name: new.get_submodule(f"embedding.embeddings.{name}")(
            new.get_buffer(f"embedding.embeddings.{name}.0.mean")[None]
        )
        for name in entities
    }
    torch.testing.assert_close(
        embeddings["Wolf"], (embeddings["Unit"] + embeddings["Rock"]) / 2, atol=1e-5, rtol=1e-4
    )


def test_without_adapt_every_difference_is_named(
    networks: Mapping[str, tuple[Policy, Path]],
) -> None:
    _, path = networks["plain"]
    with pytest.raises(
        CheckpointError, match=r"(?s)old.agent was trained for a different game.*'hp'.*--adapt"
    ):
        initialized_from(path)(*changed(OLD, Unit=("x", "y"), Rock=("x", "y")))
    same = initialized_from(path)(*OLD)
    assert same.has_statistics
    digest = network_digest(path)
    assert same.origin == {"init_from": {"path": str(path), "sha256": digest, "changes": []}}


def test_changes_are_sentences() -> None:
    new: Spaces = (
        ObsSpace(["rain"], {"Unit": Entity(["y", "mana", "x"]), "Healer": Entity(["x"])}),
        {
            "Move": CategoricalActionSpace(["LEFT", "STAY", "HEAL"]),
            "Aim": ContinuousActionSpace([-1.0, 0.0], [2.0, 3.0], ["angle", "force"]),
            "Pick": GlobalCategoricalActionSpace(["ONE"]),
        },
    )
    assert space_changes(OLD, new) == [
        "global feature day is gone: dropped",
        "entity Healer is new: seen as the mean of the others at first",
        "entity Rock is gone: dropped",
        "feature Unit.mana is new: no effect at first",
        "feature Unit.hp is gone: dropped",
        "the features of Unit are in a different order: matched by name",
        "action Mood is gone: dropped",
        "the actions are in a different order: matched by name",
        "choice HEAL of Move is new: starts as likely as the others are on average",
        "choice RIGHT of Move is gone: dropped",
        "Aim.force is from 0 to 3, was from 0 to 1: the same numbers are drawn, within the new "
        "bounds",
        "action Pick has a different kind: starts untrained",
    ]
    assert space_changes(OLD, OLD) == []


def test_what_cannot_be_a_start_is_one_error(
    networks: Mapping[str, tuple[Policy, Path]], tmp_path: Path
) -> None:
    _, path = networks["plain"]
    nothing: Spaces = (
        ObsSpace((), {"Tile": Entity(("x",))}),
        {"Go": GlobalCategoricalActionSpace(["A"])},
    )
    with pytest.raises(CheckpointError, match="no entity and no action in common"):
        initialized_from(path, adapt=True)(*nothing)
    with pytest.raises(
        CheckpointError, match=r"its d_model is 8, but 16 was requested; its n_layer is 2"
    ):
        initialized_from(path, net=replace(SIZE, d_model=16, n_layer=1, dropout=0.5))
    with pytest.raises(CheckpointError, match="it is of kind RogueNet, but MLP was requested"):
        initialized_from(path, net=MLPConfig())
    _, relpos = networks["relpos"]
    message = r"cannot be adapted: relative positions \(--relpos\) cannot be used.* has no 'x'"
    with pytest.raises(CheckpointError, match=message):
        initialized_from(relpos, adapt=True)(*OLD)
    _, mlp = networks["mlp"]
    with pytest.raises(CheckpointError, match=r"cannot be adapted: .* use a RogueNet"):
        initialized_from(mlp, adapt=True)(*OLD)


def test_a_cnn_keeps_its_picture(tmp_path: Path) -> None:
    def spaces(side: int, *features: str) -> Spaces:
        pixels = [f"p{i}" for i in range(side * side)]
        screen = Entity(pixels, is_single=True, shape=(side, side, 1))
        return ObsSpace(features, {"Screen": screen}), {
            "Move": GlobalCategoricalActionSpace(["A", "B"])
        }

    def shown(net: Policy, values: Sequence[float]) -> tuple[Any, Any]:
        pixels = np.random.default_rng(1).normal(size=(1, 36))
        each = Observation(
            reward=0.0,
            global_features=values,
            features={"Screen": pixels},
            actions={"Move": GlobalCategoricalActionMask()},
        )
        return behaviour(net, batch_of((net.obs_space, net.action_space), [each]))

    old = make_policy(*spaces(6, "time"), CNNConfig(((4, 3, 1),), (8,)))
    write_agent(tmp_path / "old.agent", old.weights())
    start = initialized_from(tmp_path / "old.agent", adapt=True)
    before, after = shown(old, [2.0]), shown(start(*spaces(6, "lives", "time")), [5.0, 2.0])
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
    np.testing.assert_allclose(after[1]["Move"]["A"], before[1]["Move"]["A"], rtol=1e-5)
    with pytest.raises(
        CheckpointError, match="Screen is a picture of 7 x 7 x 1, was a picture of 6 x 6 x 1"
    ):
        start(*spaces(7, "time"))


def test_a_feature_that_never_changed_counts_as_new(tmp_path: Path) -> None:
    """The old run learned nothing about it, and dividing by its deviation of 0 would blow it up."""
    spaces: Spaces = ObsSpace((), {"Unit": Entity(("x", "hp"))}), {"Move": OLD[1]["Move"]}
    old = make_policy(*spaces, SIZE)
    torch.nn.init.ones_(old.get_parameter("auxiliary_heads.value.bias"))
    rows = np.random.default_rng(1).normal(size=(50, 2))
    rows[:, 1] = 10.1
    mask = CategoricalActionMask()
    shown = Observation(reward=0.0, features={"Unit": rows}, actions={"Move": mask})
    old.update_statistics(batch_of(spaces, [shown]))
    write_agent(tmp_path / "old.agent", old.weights())
    new = initialized_from(tmp_path / "old.agent")(*spaces)
    assert new.origin["init_from"] == {
        "path": str(tmp_path / "old.agent"),
        "sha256": network_digest(tmp_path / "old.agent"),
        "changes": ["feature Unit.hp has never changed: no effect at first"],
    }
    np.testing.assert_allclose(
        behaviour(new, batch_of(spaces, [shown]))[0],
        behaviour(old, batch_of(spaces, [shown]))[0],
        atol=1e-5,
    )
    rows[:, 1] = np.random.default_rng(2).normal(size=50)
    new.update_statistics(batch_of(spaces, [shown]))
    [norm] = [x for x in new.modules() if isinstance(x, InputNorm)]
    np.testing.assert_allclose(norm.scale()[1][1], rows[:, 1].std(ddof=1), rtol=1e-4)


def test_features_of_an_mlp_that_never_changed_count_as_new(tmp_path: Path) -> None:
    """They are listed in one line, because a one-hot observation may have hundreds."""
    names = ["x", *(f"is{i}" for i in range(9))]
    spaces: Spaces = ObsSpace((), {"Unit": Entity(names, True)}), {"Move": FLAT[1]["Move"]}
    old = make_policy(*spaces, MLPConfig([8]))
    rows = np.random.default_rng(1).normal(size=(50, 1))

    def shown(first: float) -> VecObs:
        scenes = [
            Observation(
                reward=0.0,
                features={"Unit": np.append(x, [first] * 9)[None]},
                actions={"Move": GlobalCategoricalActionMask()},
            )
            for x in rows
        ]
        return batch_of(spaces, scenes)

    old.update_statistics(shown(10.1))
    write_agent(tmp_path / "old.agent", old.weights())
    new = initialized_from(tmp_path / "old.agent")(*spaces)
    begun = new.origin["init_from"]
    assert isinstance(begun, dict)
    assert begun["changes"] == [
        "features of Unit have never changed: is0, is1, is2, is3, is4 and 4 more: "
        "no effect at first"
    ]
    np.testing.assert_allclose(old.values(shown(10.1)), new.values(shown(10.1)), atol=1e-5)
    np.testing.assert_allclose(new.values(shown(-3.0)), new.values(shown(10.1)), atol=1e-5)


def test_starts_from_what_enn_trainer_trained() -> None:
    fixture = FIXTURES[1]
    new = initialized_from(fixture.path)(fixture.obs_space, fixture.action_space)
    expected = load_checkpoint(fixture.path).net.state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in new.state_dict().items())


class Own(Policy):
    """A network of a different class."""

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[str, ActionSpace]) -> None:
        super().__init__(obs_space, action_space)
        self.weight = torch.nn.Parameter(torch.randn(3))

    def distributions(self, batch: Any) -> Any:  # noqa: ANN401 - not called
        raise NotImplementedError


def test_networks_of_other_classes_start_with_equal_spaces_only(tmp_path: Path) -> None:
    old = Own(*FLAT)
    save_checkpoint(tmp_path, old)
    new = initialized_from(tmp_path, policy=Own)(*FLAT)
    assert isinstance(new, Own)
    assert torch.equal(new.weight, old.weight)
    with pytest.raises(CheckpointError, match="cannot be adapted"):
        initialized_from(tmp_path, policy=Own, adapt=True)(*OLD)
    with pytest.raises(CheckpointError, match="which only its own program can make"):
        initialized_from(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)  # may have to compile the kernels
def test_a_run_goes_on_from_the_level_of_the_old_one(tmp_path: Path) -> None:
    """Counters restart, statistics of known features continue, and the run records its origin."""
    with VecEnv(snake.with_settings(board_size=4), 8, seed=1) as vec:
        config = PPOConfig(total_steps=128, num_steps=8, minibatch_size=64, net=SIZE)
        train(vec, config, out=tmp_path / "old")
        start = initialized_from(tmp_path / "old", net=config.net)
        before = float(read_network(tmp_path / "old").tensors["embedding.embeddings.Head.0.count"])
        result = train(vec, config, policy=start, out=tmp_path / "new")
        again = train(vec, replace(config, total_steps=256), out=tmp_path / "new", resume=True)
    assert result.progress.step == 128
    assert again.progress.step == 256
    after = read_network(tmp_path / "new").tensors["embedding.embeddings.Head.0.count"]
    assert before == 128
    assert after == 3 * 128
    about = json.loads((tmp_path / "new" / "run.json").read_text())
    digest = network_digest(tmp_path / "old")
    begun = {"path": str(tmp_path / "old"), "sha256": digest, "changes": []}
    assert about["init_from"] == begun
