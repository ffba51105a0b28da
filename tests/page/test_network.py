"""`network.mjs` decides as numpy does, for every kind of network, and refuses what it cannot."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from numpy.typing import NDArray

from benchmarks.peers.network_vectors import (
    NETWORK,
    NODE,
    NetworkInNode,
    dependent_vectors,
    episode_vectors,
    network_in_node,
    random_weights,
    vectors_of,
)
from entity_env import (
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    Game,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)
from entity_env.agents import policy_agent
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    NumpyAgent,
    RelposEncodingConfig,
    RogueNetConfig,
    TranslationConfig,
    Weights,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, read_agent
from entity_env.agents.rogue_net.config import GATES, POOLINGS, NetConfig
from entity_env.authoring.local_run import AgentRun, PastStep, Turn
from entity_env.core.spaces import Spaces
from entity_env.games.registry import GAMES
from entity_env.page.live import players
from entity_env.page.live.players import NetworkPlayer, RandomPlayer
from entity_env.views.page import minified_script
from examples.skirmish import skirmish
from tests import DATA, ROOT
from tests.helpers.strategies import action_spaces, obs_spaces, observations

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")

MAX_DIFFERENCE = 1e-5
HEADER = 16 + 4 + 32


@pytest.fixture(scope="module")
def node() -> Iterator[NetworkInNode]:
    with network_in_node() as running:
        yield running


def require_equal(found: Mapping[str, Any], num_choices: int | None = None) -> None:
    assert "error" not in found, found
    for kind in ("probabilities", "values", "numbers", "attention", "states"):
        assert found[kind] <= MAX_DIFFERENCE, found
    assert found["other_choices"] == 0
    if num_choices is not None:
        assert found["choices"] >= num_choices


# ---------------------------------------------------------------- episodes of games

SHIPPED = {
    "snake": "ship/snake.agent",
    "azul": "azul/azul.agent",
    **{
        name: f"gallery/{name}.agent"
        for name in (
            *("cartpole", "cherry_pick", "meteors", "mountain_car", "multi_snake", "pendulum"),
            *("rock_paper_scissors", "tic_tac_toe", "treasure_hunt"),
        )
    },
}
_SLOW = {"azul", "cartpole", "meteors", "mountain_car", "pendulum"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW)) for name in SHIPPED],
)
def test_shipped_agents_decide_the_same(name: str, node: NetworkInNode) -> None:
    weights = read_agent(ROOT / "examples" / SHIPPED[name])
    vectors = episode_vectors(GAMES[name], weights, 40)
    require_equal(node.compare(weights, vectors), 0 if name in ("pendulum",) else 40)


NETS: dict[str, RogueNetConfig] = {
    "attention": RogueNetConfig(),
    "grid": RogueNetConfig(relpos_encoding=RelposEncodingConfig((4, 4), ("x", "y"))),
    "distance": RogueNetConfig(
        relpos_encoding=RelposEncodingConfig((5,), ("x", "y"), distance=True, interpolate=True)
    ),
    "pooling": RogueNetConfig(pooling="meanmax", n_layer=1),
}


@pytest.mark.parametrize("config", NETS.values(), ids=NETS)
def test_new_networks_decide_the_same_in_a_game(
    config: RogueNetConfig, node: NetworkInNode
) -> None:
    """Two actions per unit; integer positions, which lie on the borders of buckets."""
    spaces = skirmish.schema.obs_space(), skirmish.schema.action_space()
    weights = random_weights(spaces, config)
    require_equal(node.compare(weights, episode_vectors(skirmish, weights, 20)), 100)


# ---------------------------------------------------------------- every option

ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(("a", "b", "c")),
    "a.b": SelectEntityActionSpace(),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
    "push": ContinuousActionSpace((-1.0, 5.0), (1.0, 6.5), ("l", "r")),
}
OBS = ObsSpace(("t",), {"A": Entity(("x", "y")), "keys": Entity(()), "B": Entity(("y", "x", "z"))})
LINKED = ObsSpace(
    ("t",),
    {
        **OBS.entities,
        "R": Entity(("of", "to", "d"), references=("B", "A")),
        "a.b": Entity(("from", "to"), references=("A", "A")),
    },
)
UNCOUNTED = ObsSpace((), {"A": Entity(("x",)), "R": Entity(("of", "to"), references=("A", "A"))})
PLACED = ObsSpace(
    ("t", "x", "y", "z"),
    {"A": Entity(("x", "y", "z")), "2": Entity(("z", "y", "x", "u")), "1": Entity(())},
)
FLAT = ObsSpace(
    ("t",), {"Car": Entity(("x", "v"), is_single=True), "Wall": Entity((), is_single=True)}
)
FLAT_ACTIONS = {name: ACTIONS[name] for name in ("mode", "push")}
SCREEN = ObsSpace(
    ("t",),
    {
        "Car": Entity(("x", "v"), is_single=True),
        "Screen": Entity([f"{i}" for i in range(126)], is_single=True, shape=(7, 9, 2)),
    },
)
PIXELS = ObsSpace(entities={"Screen": SCREEN.entities["Screen"]})

SMALL = partial(RogueNetConfig, d_model=16, d_qk=8)
Relpos = partial(RelposEncodingConfig, position_features=("x", "y"))
ANGLE: dict[str, Any] = {"rotation_angle_feature": "z"}
VECTOR: dict[str, Any] = {"rotation_vec_features": ("u", "z")}
Translate = partial(TranslationConfig, "__global__", ("x", "y"))


def placed(relpos: RelposEncodingConfig, **options: Any) -> RogueNetConfig:  # noqa: ANN401
    return SMALL(n_layer=1, relpos_encoding=relpos, **options)


CONFIGS: dict[str, tuple[ObsSpace, Mapping[str, ActionSpace], NetConfig]] = {
    "two layers": (OBS, ACTIONS, SMALL()),
    "no layer": (OBS, ACTIONS, SMALL(n_layer=0)),
    "16 heads": (OBS, ACTIONS, SMALL(n_head=16)),
    "separate value": (OBS, ACTIONS, SMALL(separate_value=True, value_scale=True)),
    "value scale": (OBS, ACTIONS, SMALL(value_scale=True)),
    "dropout": (OBS, ACTIONS, SMALL(dropout=0.1)),
    "memory": (OBS, ACTIONS, SMALL(memory=5)),
    "memory without layers": (OBS, ACTIONS, SMALL(memory=8, n_layer=0)),
    "memory and value": (OBS, ACTIONS, SMALL(memory=3, separate_value=True)),
    "memory and pooling": (OBS, ACTIONS, SMALL(memory=9, pooling="mean")),
    "memory and positions": (PLACED, ACTIONS, placed(Relpos((3, 4)), memory=5)),
    **{f"pooling {each}": (OBS, ACTIONS, SMALL(pooling=each)) for each in POOLINGS},
    **{
        f"gate {each}": (PLACED, ACTIONS, placed(Relpos((3, 4), value_gate=each)))
        for each in (None, *GATES)
    },
    "scale": (PLACED, ACTIONS, placed(Relpos((3, 4), scale=0.3))),
    "values per type": (PLACED, ACTIONS, placed(Relpos((3, 4), per_entity_values=True))),
    "three axes": (
        *(PLACED, ACTIONS),
        placed(RelposEncodingConfig((1, 2, 3), ("x", "z", "y"))),
    ),
    "projections": (
        *(PLACED, ACTIONS),
        placed(Relpos((2, 2), value_relpos_projection=True, key_relpos_projection=True)),
    ),
    "projections per type": (
        *(PLACED, ACTIONS),
        placed(Relpos((2, 2), key_relpos_projection=True, per_entity_projections=True)),
    ),
    "angles": (PLACED, ACTIONS, placed(Relpos((8,), radial=True, **ANGLE))),
    "angles to vectors": (PLACED, ACTIONS, placed(Relpos((5,), radial=True, **VECTOR))),
    "rings": (PLACED, ACTIONS, placed(Relpos((4,), distance=True, scale=0.5))),
    "polar": (
        *(PLACED, ACTIONS),
        placed(Relpos((6, 3), radial=True, distance=True, per_entity_values=True, **ANGLE)),
    ),
    "interpolated": (
        *(PLACED, ACTIONS),
        placed(Relpos((6, 3), radial=True, distance=True, interpolate=True, **VECTOR)),
    ),
    "extrapolated": (
        *(PLACED, ACTIONS),
        placed(
            Relpos((2,), distance=True, interpolate=True, enable_negative_distance_weight_bug=True)
        ),
    ),
    "positions of a value network": (
        *(PLACED, ACTIONS),
        placed(Relpos((3, 3), value_relpos_projection=True), separate_value=True),
    ),
    "translation": (PLACED, ACTIONS, SMALL(translation=Translate())),
    "translation and distance": (
        *(PLACED, ACTIONS),
        placed(Relpos((3, 3)), translation=Translate(add_dist_feature=True)),
    ),
    "turned by an angle": (
        *(PLACED, ACTIONS),
        placed(Relpos((3, 3)), translation=Translate(rotation_angle_feature="t")),
    ),
    "turned by a vector": (
        *(PLACED, ACTIONS),
        SMALL(translation=Translate(rotation_vec_features=("z", "t"), add_dist_feature=True)),
    ),
    "translated along three axes": (
        *(PLACED, ACTIONS),
        SMALL(translation=TranslationConfig("__global__", ("z", "y", "x"), add_dist_feature=True)),
    ),
    "only a global action": (
        *(ObsSpace(), {"mode": ACTIONS["mode"]}),
        SMALL(),
    ),
    "relations": (LINKED, ACTIONS, SMALL()),
    "relations without features": (UNCOUNTED, ACTIONS, SMALL(n_head=8)),
    "relations without selection": (LINKED, FLAT_ACTIONS, SMALL(n_layer=1)),
    "relations of a value network": (LINKED, ACTIONS, SMALL(separate_value=True, memory=3)),
    "relations and pooling": (LINKED, ACTIONS, SMALL(pooling="meanmax", memory=4)),
    "relations and positions": (
        replace(
            PLACED, entities={**PLACED.entities, "R": Entity(("x", "y"), references=("1", "A"))}
        ),
        ACTIONS,
        placed(
            Relpos((3, 4), per_entity_values=True), translation=Translate(add_dist_feature=True)
        ),
    ),
    "relations without layers": (LINKED, ACTIONS, SMALL(n_layer=0, memory=2)),
    "MLP": (FLAT, FLAT_ACTIONS, MLPConfig((16, 8))),
    "MLP without norm": (FLAT, FLAT_ACTIONS, MLPConfig((16,), norm_inputs=False)),
    "MLP with memory": (FLAT, FLAT_ACTIONS, MLPConfig((16, 8), memory=6)),
    "CNN with memory": (SCREEN, FLAT_ACTIONS, CNNConfig(memory=4)),
    "CNN": (SCREEN, FLAT_ACTIONS, CNNConfig()),
    "CNN of pixels": (PIXELS, FLAT_ACTIONS, CNNConfig(((3, 3, 2), (5, 2, 1)), ())),
    "MLP of pixels": (SCREEN, FLAT_ACTIONS, MLPConfig((16,))),
}


def observed(spaces: Spaces, seed: int, *, is_radial: bool = False) -> Observation:
    """A random observation that asks for every action, with masks and hidden entities.

    Every second one has positions on the borders of buckets, unless buckets are by angle: numpy's
    `arctan2` depends on the processor in the last bit, which decides between two angles.
    """
    is_on_borders = seed % 2 == 1 and not is_radial
    rng = np.random.default_rng(seed)
    obs_space, actions = spaces
    counts = {
        name: 1 if entity.is_single else int(rng.integers(0, 5))
        for name, entity in obs_space.entities.items()
    }
    features = {
        name: rng.normal(size=(count, len(obs_space.entities[name].features))) * 2
        for name, count in counts.items()
    }
    if is_on_borders:
        features = {name: rows.round() for name, rows in features.items()}
    refer(rng, obs_space, counts, features)
    ids = [(name, i) for name, count in counts.items() for i in range(count)]
    able = [each for each in ids if each[0] not in obs_space.relations]
    actors = [able[i] for i in rng.permutation(len(able))[:3]]
    asked: dict[str, Any] = {
        "move": CategoricalActionMask(actor_ids=actors, mask=_allowed(rng, len(actors), 3)),
        "a.b": SelectEntityActionMask(actor_ids=actors, mask=_allowed(rng, len(actors), len(ids))),
        "mode": GlobalCategoricalActionMask([True, bool(seed % 3)]),
        "push": ContinuousActionMask(actor_ids=actors),
    }
    return Observation(
        reward=0.0,
        features=features,
        global_features=rng.normal(size=len(obs_space.global_features)).round(
            0 if is_on_borders else 3
        ),
        actions={name: asked[name] for name in actions if seed % 4 or name == "move"},
        visible={
            name: rng.random(count) < 0.6 for name, count in counts.items() if seed % 3 and count
        },
    )


def refer(
    rng: np.random.Generator,
    obs_space: ObsSpace,
    counts: dict[str, int],
    features: dict[str, NDArray[Any]],
) -> None:
    """Replaces the references of all relations with random ones, in place."""
    for name, entity in obs_space.relations.items():
        ends = [counts[other] for other in entity.references or ()]
        counts[name] *= all(ends)
        features[name] = features[name][: counts[name]]
        for column, end in enumerate(ends):
            features[name][:, column] = rng.integers(0, max(end, 1), counts[name])


def _allowed(rng: np.random.Generator, num_actors: int, num_choices: int) -> Any:  # noqa: ANN401
    mask = rng.random((num_actors, num_choices)) < 0.6
    mask[:, :1] = True
    return mask


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_has_the_same_effect(name: str, node: NetworkInNode) -> None:
    obs_space, actions, config = CONFIGS[name]
    spaces = obs_space, actions
    weights = random_weights(spaces, config, seed=len(name))
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    is_radial = relpos is not None and relpos.radial
    shown = [observed(spaces, seed, is_radial=is_radial) for seed in range(1, 11)]
    require_equal(node.compare(weights, vectors_of(weights, shown)))


def test_every_entity_may_be_missing(node: NetworkInNode) -> None:
    for name in ("two layers", "pooling max", "separate value", "MLP", "CNN", "projections"):
        obs_space, actions, config = CONFIGS[name]
        weights = random_weights((obs_space, actions), config)
        zeros = np.zeros(len(obs_space.global_features))
        empty = Observation(reward=0.0, global_features=zeros)
        require_equal(node.compare(weights, vectors_of(weights, [empty])))


def test_a_reference_entity_is_at_the_origin(node: NetworkInNode) -> None:
    spaces = PLACED, {"move": ACTIONS["move"]}
    translation = TranslationConfig("A", ("x", "y"), None, "z", True)
    weights = random_weights(spaces, placed(Relpos((2, 2)), translation=translation))
    shown = [
        Observation(
            reward=0.0,
            global_features=[1, 2, 3, 4],
            features={"A": [[1.0, -2.0, turn]], "2": [[0.0, 2.0, 1.0, 5.0], [1.0, 1, 1, 1]]},
            actions={"move": CategoricalActionMask()},
        )
        for turn in (0.0, 0.5, np.pi / 2, -3.0)
    ]
    require_equal(node.compare(weights, vectors_of(weights, shown)), 4)
    found = vectors_of(weights, shown[:1])
    found[0]["observation"]["features"]["A"] *= 2
    assert "exactly one A" in node.compare(weights, found)["error"]


def counted(weights: Weights, count: float) -> Weights:
    """The weights with this number of counted features, which do not vary."""

    def changed(name: str, tensor: NDArray[Any]) -> NDArray[Any]:
        if name.endswith("count"):
            return np.array(count, np.float32)
        return np.zeros_like(tensor) if name.endswith("squares_sum") else tensor

    tensors = {name: changed(name, each) for name, each in weights.tensors.items()}
    return replace(weights, tensors=tensors)


def without_value(weights: Weights) -> Weights:
    """The weights with a value that was never trained."""
    tensors = {
        name: np.zeros_like(each) if "heads.value." in name else each
        for name, each in weights.tensors.items()
    }
    return replace(weights, tensors=tensors)


def test_uncounted_features_are_only_clipped(node: NetworkInNode) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    shown = [observed((OBS, ACTIONS), seed) for seed in range(4)]
    for count in (0.0, 1.0, 2.0):
        fresh = counted(weights, count)
        require_equal(node.compare(fresh, vectors_of(fresh, shown)))


def test_an_untrained_value_is_none(node: NetworkInNode) -> None:
    untrained = without_value(random_weights((OBS, ACTIONS), SMALL(separate_value=True)))
    vectors = vectors_of(untrained, [observed((OBS, ACTIONS), 1)])
    assert vectors[0]["value"] is None
    require_equal(node.compare(untrained, vectors))


@pytest.mark.parametrize("temperature", [0.01, 0.5, 3.0])
def test_a_temperature_has_the_same_effect(temperature: float, node: NetworkInNode) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    shown = [observed((OBS, ACTIONS), seed) for seed in range(1, 6)]
    found = node.compare(weights, vectors_of(weights, shown, temperature))
    assert found["probabilities"] <= MAX_DIFFERENCE / min(temperature, 1), found
    assert not found["other_choices"]


# ---------------------------------------------------------------- random networks


@st.composite
def configs(draw: st.DrawFn) -> RogueNetConfig:
    n_head = draw(st.integers(1, 4))
    return RogueNetConfig(
        d_model=n_head * draw(st.integers(8, 10)),
        n_layer=draw(st.integers(0, 2)),
        n_head=n_head,
        d_qk=draw(st.integers(1, 8)),
        separate_value=draw(st.booleans()),
        value_scale=draw(st.booleans()),
        pooling=draw(st.sampled_from([None, *POOLINGS])),
        memory=draw(st.sampled_from([0, 1, 6, 17])),
    )


@given(data=st.data())
def test_random_games_are_decided_the_same(data: st.DataObject, node: NetworkInNode) -> None:
    spaces = data.draw(obs_spaces()), data.draw(action_spaces())
    assume(spaces[0].entities)
    weights = random_weights(spaces, data.draw(configs()), data.draw(st.integers(0, 99)))
    shown = [data.draw(observations(*spaces)) for _ in range(3)]
    require_equal(node.compare(weights, vectors_of(weights, shown)))


@st.composite
def positions(draw: st.DrawFn) -> RelposEncodingConfig:
    is_radial, is_distance = draw(st.booleans()), draw(st.booleans())
    is_grid = not (is_radial or is_distance)
    return Relpos(
        draw(st.lists(st.integers(1, 6), min_size=(n := is_radial + is_distance or 2), max_size=n)),
        scale=draw(st.sampled_from([0.1, 0.5, 1.0, 3.0])),
        per_entity_values=draw(st.booleans()),
        value_relpos_projection=draw(st.booleans()),
        key_relpos_projection=draw(st.booleans()),
        per_entity_projections=draw(st.booleans()),
        radial=is_radial,
        distance=is_distance,
        interpolate=not is_grid and draw(st.booleans()),
        value_gate=draw(st.sampled_from([None, *GATES])),
        enable_negative_distance_weight_bug=draw(st.booleans()),
        **draw(st.sampled_from([ANGLE, VECTOR])),
    )


@given(relpos=positions(), seeds=st.lists(st.integers(0, 999), min_size=3, max_size=3))
def test_random_positions_have_the_same_effect(
    relpos: RelposEncodingConfig, seeds: Sequence[int], node: NetworkInNode
) -> None:
    weights = random_weights((PLACED, ACTIONS), placed(relpos), seeds[0])
    shown = [observed((PLACED, ACTIONS), seed, is_radial=relpos.radial) for seed in seeds]
    require_equal(node.compare(weights, vectors_of(weights, shown)))


# ---------------------------------------------------------------- actions that depend on others

DEPENDENT: dict[str, ActionSpace] = {
    "target": SelectEntityActionSpace(),
    "share": CategoricalActionSpace(("low", "mid", "high"), given=("target",)),
    "next": SelectEntityActionSpace(given=("target", "share")),
    "push": ContinuousActionSpace((-1.0, 5.0), (1.0, 6.5), ("l", "r"), given=("share", "next")),
    "turn": CategoricalActionSpace(("a", "b"), given=("push", "next")),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
    "free": CategoricalActionSpace(("x", "y")),
    "pair": GlobalCategoricalActionSpace(("x", "y", "z"), given=("mode",)),
    "last": GlobalCategoricalActionSpace(("x", "y"), given=("mode", "pair")),
}
FLAT_DEPENDENT = {name: DEPENDENT[name] for name in ("mode", "pair", "last")}
FLAT_NUMBERS: dict[str, ActionSpace] = {
    "push": ContinuousActionSpace((-1.0, 5.0), (1.0, 6.5), ("l", "r")),
    "move": CategoricalActionSpace(("a", "b", "c"), given=("push",)),
}
DEPENDENT_CONFIGS: dict[str, tuple[ObsSpace, Mapping[str, ActionSpace], NetConfig]] = {
    "entities": (OBS, DEPENDENT, SMALL()),
    "no layer": (OBS, DEPENDENT, SMALL(n_layer=0)),
    "separate value": (OBS, DEPENDENT, SMALL(separate_value=True)),
    "pooling": (OBS, DEPENDENT, SMALL(pooling="meanmax")),
    "memory": (OBS, DEPENDENT, SMALL(memory=5)),
    "positions": (PLACED, DEPENDENT, placed(Relpos((3, 4)))),
    "relations": (LINKED, DEPENDENT, SMALL()),
    "MLP": (FLAT, FLAT_DEPENDENT, MLPConfig((16, 8))),
    "MLP with numbers": (FLAT, FLAT_NUMBERS, MLPConfig((16,), memory=3)),
    "CNN": (SCREEN, FLAT_DEPENDENT, CNNConfig()),
}


def dependent_observation(spaces: Spaces, seed: int) -> Observation:
    """A random observation that asks the same actors for every action, with masks.

    Masks allow all, or do or do not depend on the action before.
    """
    rng = np.random.default_rng(seed)
    obs_space, actions = spaces
    counts = {
        name: 1 if entity.is_single else int(rng.integers(1, 5))
        for name, entity in obs_space.entities.items()
    }
    features = {
        name: rng.normal(size=(count, len(obs_space.entities[name].features))).astype(np.float32)
        for name, count in counts.items()
    }
    refer(rng, obs_space, counts, features)
    ids = [(name, i) for name, count in counts.items() for i in range(count)]
    able = [each for each in ids if each[0] not in obs_space.relations]
    actors = [able[i] for i in rng.permutation(len(able))[:3]]
    num_choices: dict[str, int] = {}
    asked: dict[str, Any] = {}
    for name, space in actions.items():
        is_global = isinstance(space, GlobalCategoricalActionSpace)
        actees = [ids[i] for i in rng.permutation(len(ids))[: rng.integers(1, 5)]]
        is_select = isinstance(space, SelectEntityActionSpace)
        count = len(actees) if is_select else len(space)  # type: ignore[arg-type]  # has labels
        num_actors = 1 if is_global else len(actors)
        before = num_choices.get(space.given[-1]) if space.given else None
        rows = [before] if before is not None and rng.random() < 0.7 else []
        mask = rng.random((num_actors, *rows, count)) < 0.5
        mask[..., rng.integers(count)] = True
        given_mask = mask if rng.random() < 0.8 else None
        if is_global:
            asked[name] = GlobalCategoricalActionMask(given_mask)
        elif isinstance(space, ContinuousActionSpace):
            asked[name] = ContinuousActionMask(actor_ids=actors)
            continue
        elif is_select:
            asked[name] = SelectEntityActionMask(
                actor_ids=actors, actee_ids=actees, mask=given_mask
            )
        else:
            asked[name] = CategoricalActionMask(actor_ids=actors, mask=given_mask)
        num_choices[name] = count
    return Observation(
        reward=0.0,
        features=features,
        global_features=rng.normal(size=len(obs_space.global_features)),
        actions=asked,
        visible={name: rng.random(count) < 0.7 for name, count in counts.items() if seed % 3},
    )


@st.composite
def dependent_spaces(draw: st.DrawFn) -> Spaces:
    """An entity type or more, and actions that depend on random earlier ones."""
    obs_space = draw(obs_spaces().filter(lambda space: space.entities))
    actions: dict[str, ActionSpace] = {}
    for name, space in draw(action_spaces()).items():
        is_global = isinstance(space, GlobalCategoricalActionSpace)
        earlier = [
            other
            for other, each in actions.items()
            if isinstance(each, GlobalCategoricalActionSpace) == is_global
        ]
        chosen = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        actions[name] = replace(space, given=tuple(chosen))
    return obs_space, actions


@pytest.mark.parametrize("name", DEPENDENT_CONFIGS)
def test_choices_decide_what_follows(name: str, node: NetworkInNode) -> None:
    obs_space, actions, config = DEPENDENT_CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=len(name))
    shown = [dependent_observation((obs_space, actions), seed) for seed in range(8)]
    require_equal(node.compare(weights, dependent_vectors(weights, shown, 5)), 8)


@given(spaces=dependent_spaces(), config=configs(), seed=st.integers(0, 999))
def test_choices_decide_what_follows_in_random_games(
    spaces: Spaces, config: RogueNetConfig, seed: int, node: NetworkInNode
) -> None:
    weights = random_weights(spaces, config, seed)
    shown = [dependent_observation(spaces, seed + i) for i in range(2)]
    require_equal(node.compare(weights, dependent_vectors(weights, shown, seed)))


_IN_ORDER = """
import {readFileSync} from "node:fs";
import {readAgent} from %s;
const network = readAgent(readFileSync(0)), observation = %s;
const found = [0, 0.3, 0.6, 0.9].map(at => network.choose(observation, {random: () => at}));
found.push(network.choose(observation, {greedy: true}));
const thoughts = found.map(chosen => network.think({...observation, chosen}).probabilities);
console.log(JSON.stringify({found, thoughts, plain: network.think(observation).probabilities}));
"""


@pytest.mark.parametrize("seed", range(4))
def test_choices_are_made_in_order(seed: int) -> None:
    """Every choice is drawn from the distribution that follows from the choices before."""
    weights = random_weights((OBS, DEPENDENT), SMALL(), seed)
    [vector] = dependent_vectors(weights, [dependent_observation((OBS, DEPENDENT), seed)], 0)
    asked = {**vector["observation"], "state": None}
    del asked["chosen"]
    script = _IN_ORDER % (json.dumps(NETWORK.as_uri()), json.dumps(asked))
    done = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", script],
        input=agent_bytes(weights),
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    for draw, chosen, thoughts in zip(
        (0, 0.3, 0.6, 0.9, None), found["found"], found["thoughts"], strict=True
    ):
        assert set(chosen) == set(DEPENDENT)
        for action, rows in thoughts.items():
            for row, index in zip(rows, chosen[action], strict=True):
                if draw is None:
                    assert row[index] >= max(row) - 2e-5
                    continue
                at = int((np.cumsum(row) <= draw).sum())
                assert index == at if at < len(row) else row[index] == max(row)
    assert found["plain"] == found["thoughts"][-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next": None}, "expected 2 actors of next, on which push depends, got 0"),
        ({"share": {"actors": [0]}}, "expected 1 actors of target, on which share depends, got 2"),
        ({"share": {"actors": [0, 1], "mask": [[[True] * 3]] * 2}}, "3 choices per actor of share"),
        ({"share": {"actors": [0, 1], "mask": [[[True]] * 2] * 2}}, "3 choices per actor of share"),
        ({"target": {"actors": [0, 1], "actees": [0], "mask": [[[True]]] * 2}}, "actor of target"),
        (
            {"share": {"actors": [0, 1], "mask": [[[False] * 3] * 2] * 2}},
            "expected a choice of share after target, got none",
        ),
    ],
)
def test_wrong_dependent_requests_are_refused(
    changes: Mapping[str, Any], message: str, node: NetworkInNode
) -> None:
    content = agent_bytes(random_weights((OBS, DEPENDENT), SMALL()))
    vector = {"probabilities": {}, "numbers": {}, "value": 0.0, "attention": None}
    asked: dict[str, Any] = {
        name: {"actors": [0, 1], "actees": [0, 1]} for name in DEPENDENT if name != "last"
    }
    good = {"features": {"A": [[1, 2], [3, 4]]}, "globals": [0], "actions": asked}
    assert "error" not in node.compare(content, [{**vector, "observation": good}])
    changed_actions = {name: each for name, each in {**asked, **changes}.items() if each}
    wrong = {**good, "actions": changed_actions}
    error = node.compare(content, [{**vector, "observation": wrong}])["error"]
    assert message in error
    assert "\n" not in error


@pytest.mark.parametrize("made", [[5], [0, 5], [0, -1], [0, 0.5], [0, "0"], [0, None]])
def test_wrong_choices_are_refused(made: list[Any], node: NetworkInNode) -> None:
    content = agent_bytes(random_weights((OBS, DEPENDENT), SMALL()))
    vector = {"probabilities": {}, "numbers": {}, "value": 0.0, "attention": None}
    asked = {name: {"actors": [0, 1], "actees": [0, 1]} for name in DEPENDENT}
    observation = {"features": {"A": [[1, 2], [3, 4]]}, "globals": [0], "actions": asked}
    wrong = {**observation, "chosen": {"target": made}}
    error = node.compare(content, [{**vector, "observation": wrong}])["error"]
    assert "expected choices of 2 actors of target, got" in error


# ---------------------------------------------------------------- files


def resealed(body: bytes) -> bytes:
    content = agent_bytes(random_weights((OBS, ACTIONS), SMALL()))
    return content[:20] + hashlib.sha256(body).digest() + body


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """An agent file whose description was changed."""
    body = agent_bytes(random_weights((OBS, ACTIONS), SMALL()))[HEADER:]
    length = int.from_bytes(body[:8], "little")
    description = json.loads(body[8 : 8 + length])
    change(description)
    text = json.dumps(description).encode()
    return resealed(len(text).to_bytes(8, "little") + text + body[8 + length :])


def renamed(old: bytes, new: bytes) -> bytes:
    body = agent_bytes(random_weights((OBS, ACTIONS), SMALL()))[HEADER:]
    assert body.count(old) == 1
    return resealed(body.replace(old, new))


def update(changes: Mapping[str, Any], description: dict[str, Any]) -> None:
    description.update(changes)


def drop(operations: list[Any], output: str) -> None:
    operations[:] = [each for each in operations if each[2] != output]


def with_option(kind: str, name: str, value: object) -> bytes:
    def change(description: dict[str, Any]) -> None:
        operation = next(each for each in description["operations"] if each[0] == kind)
        operation[4][name] = value

    return changed(change)


CONTENT = agent_bytes(random_weights((OBS, ACTIONS), SMALL()))
UPGRADE = "use the network.mjs of its release"
REFUSED = {
    "nothing": (b"", "expected an agent file: create one"),
    "another file": (
        b"PK" + CONTENT,
        'expected an agent file: create one with "entity-env export"',
    ),
    "another version": (
        CONTENT[:16] + b"\2" + CONTENT[17:],
        f"unknown version 2: {UPGRADE}",
    ),
    "only a header": (CONTENT[:50], "damaged: its checksum does not match; copy it"),
    "a wrong byte": (CONTENT[:500] + b"\0" + CONTENT[501:], "checksum does not match"),
    "a part": (CONTENT[:-1], "checksum does not match; copy it or export it again"),
    "a sealed part": (
        resealed(CONTENT[HEADER:-4]),
        "damaged: expected embedding.*3.weight of 16 F32, got {.*}; copy it",
    ),
    "an old file": (
        (DATA / "releases" / "0.2.0" / "catch.agent").read_bytes(),
        "lists no operations; copy it or export it again",
    ),
    "an unknown operation": (
        changed(lambda found: found["operations"].append(["constructor", [], "x", "", {}])),
        f"unknown operation constructor: {UPGRADE}",
    ),
    "an unknown option": (with_option("attend", "window", 8), "unknown option window of attend"),
    "an unknown activation": (with_option("linear", "activation", "swish"), "activation swish"),
    "an unknown pooling": (
        changed(
            lambda found: found["operations"].append(["pool", ["value"], "y", "", {"of": "sum"}])
        ),
        "unknown pooling sum",
    ),
    "a missing tensor": (
        renamed(b'"action_heads.move.proj.bias"', b'"action_heads.move.proj.BIAS"'),
        r"damaged: nothing computes action_heads.move.proj.bias; copy it",
    ),
    "a tensor of another size": (
        renamed(b'"shape": [1, 16]', b'"shape": [1, 17]'),
        r"expected .* of 17 F32, got",
    ),
    "a tensor of another type": (
        renamed(b'"F32", "shape": [1, 16]', b'"I32", "shape": [1, 16]'),
        r'of 16 F32, got {"dtype":"I32"',
    ),
    "a missing operation": (
        changed(lambda found: drop(found["operations"], "action/move")),
        "damaged: nothing computes action/move",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_refused(name: str, node: NetworkInNode) -> None:
    content, message = REFUSED[name]
    error = node.compare(content)["error"]
    assert re.search(message, error), error
    assert "\n" not in error


def test_files_of_any_length_are_read(node: NetworkInNode) -> None:
    """The checksum pads its input to 64 bytes."""
    for length in range(64):
        note = {"note": "x" * length}
        assert "error" not in node.compare(changed(partial(update, note)))


# ---------------------------------------------------------------- observations

GOOD: dict[str, Any] = {
    "features": {"A": [[1, 2]]},
    "globals": [0],
    "actions": {"move": {"actors": [0], "mask": [[True, False, False]]}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {"C": []}}, "expected one of A,keys,B, got C"),
        ({"features": {"A": [[1]]}}, r"expected 2 numbers of A \(x,y\), got 1"),
        ({"features": {"A": [[1, None]]}, "globals": ["x"]}, r"of the observation \(t\), got NaN"),
        ({"globals": []}, r"expected 1 numbers of the observation \(t\), got"),
        ({"actions": {"jump": {"actors": [0]}}}, "expected one of move,a.b,mode,push, got"),
        ({"actions": {"move": {"actors": [2]}}}, "expected actors of move from 0 to 1, got 2"),
        (
            {"actions": {"a.b": {"actors": [0], "actees": [0.5]}}},
            "actees of a.b from 0 to 1, got 0.5",
        ),
        (
            {"actions": {"a.b": {"actors": [0], "actees": []}}},
            "expected 0 choices per actor of a.b",
        ),
        ({"actions": {"move": {"actors": [0], "mask": [[False] * 3]}}}, "one allowed, got .*false"),
        (
            {"actions": {"move": {"actors": [0], "mask": [[True]]}}},
            "expected 3 choices per actor of move",
        ),
    ],
)
def test_wrong_observations_are_refused(
    changes: Mapping[str, Any], message: str, node: NetworkInNode
) -> None:
    vector = {"probabilities": {}, "numbers": {}, "value": 0.0, "attention": None}
    assert "error" not in node.compare(CONTENT, [{**vector, "observation": GOOD}])
    error = node.compare(CONTENT, [{**vector, "observation": {**GOOD, **changes}}])["error"]
    assert re.search(message, error), error


@pytest.mark.parametrize("wrong", [-1, 1, 0.5, 1000])
def test_references_to_no_entity_are_refused(wrong: float, node: NetworkInNode) -> None:
    content = agent_bytes(random_weights((LINKED, ACTIONS), SMALL()))
    features: dict[str, Any] = {"A": [[1, 2]], "B": [[1, 2, 3]] * 2, "R": [[0, 0, 5], [1, 0, 5]]}
    vector = {"probabilities": {}, "numbers": {}, "value": 0.0, "attention": None}
    right = {**vector, "observation": {**GOOD, "features": features}}
    assert "error" not in node.compare(content, [right])
    features["R"][1][1] = wrong
    error = node.compare(content, [right])["error"]
    assert f"expected A of R from 0 to 0, got {wrong:g}" in error
    features["R"][1][1] = 0
    actors_of_a_relation = {"move": {"actors": [3], "mask": [[True] * 3]}}
    asked = {
        **vector,
        "observation": {**GOOD, "features": features, "actions": actors_of_a_relation},
    }
    error = node.compare(content, [asked])["error"]
    assert "expected actors of move from 0 to 3, got 4" in error


# ---------------------------------------------------------------- choices

_CHOICES = """
import {readFileSync} from "node:fs";
import {readAgent} from %s;
const network = readAgent(readFileSync(0)), rows = [[1, 2], [3, 4]];
const ask = features => ({features, globals: [0.5], actions: {
  move: {actors: [0, 1]}, mode: {}, push: {actors: [1]}, "a.b": {actors: [0], actees: [1, 0]}}});
const observation = ask({A: rows}), flat = ask({A: new Float32Array(rows.flat())});
const random = [0, 0.25, 0.5, 0.75, 1 - 2 ** -53];
let state = 1;
const next = () => (state = state * 48271 %% 2147483647) / 2147483647;
console.log(JSON.stringify({
  spaces: network.spaces,
  thoughts: network.think(observation),
  flat: network.think(flat),
  drawn: random.map(each => network.choose(observation, {random: () => each})),
  many: Array.from({length: 4000}, () => network.choose(observation, {random: next}).push[0]),
}));
"""


def test_choices_are_drawn_from_the_distributions() -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    script = _CHOICES % json.dumps(NETWORK.as_uri())
    done = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", script],
        input=agent_bytes(weights),
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    thoughts = found["thoughts"]
    assert found["flat"] == thoughts
    assert [each["name"] for each in found["spaces"]["entities"]] == [*OBS.entities]
    assert not thoughts["attention"]
    for random, chosen in zip((0, 0.25, 0.5, 0.75, 1 - 2**-53), found["drawn"], strict=True):
        for action, rows in thoughts["probabilities"].items():
            for row, index in zip(rows, chosen[action], strict=True):
                sums = np.cumsum(row)
                at = int((sums <= random).sum())
                assert index == at if at < len(row) else row[index] == max(row)
    many = np.array(found["many"])
    [means], deviations = thoughts["means"]["push"], thoughts["deviations"]["push"]
    log_std = weights.tensors["action_heads.push.log_std"]
    np.testing.assert_allclose(deviations, np.exp(log_std) * [1.0, 0.75], rtol=1e-5)
    assert (many >= [-1, 5]).all()
    assert (many <= [1, 6.5]).all()
    samples = np.random.default_rng(0).normal(means, deviations, (100_000, 2))
    clipped = samples.clip([-1, 5], [1, 6.5])
    np.testing.assert_allclose(many.mean(axis=0), clipped.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(many.std(axis=0), clipped.std(axis=0), atol=0.06)


# ---------------------------------------------------------------- the past

_THINK = """
import {readFileSync} from "node:fs";
import {createInterface} from "node:readline";
import {readAgent} from %s;
let network = null;
for await (const line of createInterface({input: process.stdin})) {
  if (network) console.log(JSON.stringify(network.think(JSON.parse(line))));
  else network = readAgent(Buffer.from(line, "base64"));
}
"""


@contextmanager
def network_player(weights: Weights) -> Iterator[NetworkPlayer]:
    command = [str(NODE), "--input-type=module", "--eval", _THINK % json.dumps(NETWORK.as_uri())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as node:
        stdin, stdout = node.stdin, node.stdout
        assert stdin is not None
        assert stdout is not None

        def think(text: str) -> str:
            stdin.write(text + "\n")
            return stdout.readline()

        stdin.write(base64.b64encode(agent_bytes(weights)).decode() + "\n")
        yield NetworkPlayer(think, seed=0)
        stdin.close()


@pytest.mark.parametrize(
    ("game", "config", "num_kept"),
    [
        (skirmish, SMALL(memory=5), 64),
        (skirmish, SMALL(memory=3, separate_value=True), 2),
        (skirmish.with_settings(sight=5), SMALL(memory=3, separate_value=True), 64),
        pytest.param(GAMES["pendulum"], SMALL(memory=4), 64, marks=pytest.mark.slow),
    ],
    ids=["entities", "value network", "value network in fog", "numbers"],
)
def test_a_page_weighs_the_past_as_numpy_does(
    game: Game, config: NetConfig, num_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_agent, "_NUM_KEPT", num_kept)
    monkeypatch.setattr(players, "_NUM_WEIGHED", num_kept)
    spaces = game.schema.obs_space(), game.schema.action_space()
    weights = random_weights(spaces, config)
    with network_player(weights) as player:
        found: list[list[PastStep]] = []
        for agent in (NumpyAgent(weights), player):
            *earlier, now = observed_in(game, is_plain=agent is player)[:6]
            agent.join(AgentRun(game.schema))
            assert agent.weigh_past(now) == []
            for each in earlier:
                agent.watch(each)
            found.append([*agent.weigh_past(now)])
            agent.watch(now)
            assert [*agent.weigh_past(now)] == found[-1]
    assert len(found[0]) == min(len(earlier), num_kept + 1)
    assert [each[:2] for each in found[0]] == [each[:2] for each in found[1]]
    numbers = [np.array([each[2:] for each in past]) for past in found]
    np.testing.assert_allclose(numbers[1], numbers[0], atol=MAX_DIFFERENCE)
    assert numbers[0][:, 0].max() > 1e-3


def observed_in(game: Game, *, is_plain: bool) -> list[Observation]:
    """Observations of the first seat in an episode; plain ones have no arrays."""
    turns: list[Turn] = []

    def watch(turn: Turn) -> None:
        turns.append(turn)

    watch.takes_plain = is_plain  # type: ignore[attr-defined]
    game.run(*map(RandomPlayer, range(game.num_agents)), seed=1, watch=watch)
    return [turn.observation for turn in turns if turn.agent_id == 0 and turn.episode is None]


def test_what_a_page_loads_is_small() -> None:
    """At most 8.5 kB, as web servers send it; it needs no other file."""
    script = """
    const {brotliCompressSync} = require("node:zlib"), {readFileSync} = require("node:fs");
    console.log(brotliCompressSync(readFileSync(0)).length);
    """
    text = minified_script(NETWORK.read_text())
    done = subprocess.run(
        [str(NODE), "--eval", script], input=text, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 8500
    assert "import" not in [line.split(" ")[0] for line in NETWORK.read_text().splitlines()]
