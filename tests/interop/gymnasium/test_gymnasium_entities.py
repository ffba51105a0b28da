"""Parts of a Gymnasium observation as entities, compared with a plain reference; nested actions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import SchemaError, UsageError, VecObs
from entity_env.agents import random_actions
from entity_env.check import check_game
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.spaces import ObsConverter, leaves
from tests.helpers.executors import check_form
from tests.interop.gymnasium.test_gymnasium_source import Echo

AnySpace: TypeAlias = spaces.Space[Any]
Part: TypeAlias = "str | tuple[str, str]"
Rows: TypeAlias = list[list[float]]
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED

PLAIN: tuple[AnySpace, ...] = (
    spaces.Box(-1, 1, (2,), np.float64),
    spaces.Box(-1, 1, ()),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 3], start=[0, 5]),
    spaces.MultiBinary((2, 2)),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[AnySpace, dict[str, Part]]:
    """A space, and the names of its parts that are entities."""
    own: dict[str, AnySpace] = {}
    parts: dict[str, Part] = {}
    for i in range(draw(st.integers(0, 3))):
        count, width = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        kind = draw(st.sampled_from(["all", "bits", "floats", "bools", "list", "stack"]))
        if kind in ("list", "stack"):
            element = draw(st.sampled_from(PLAIN))
            own[f"t{i}"] = spaces.Sequence(element, stack=kind == "stack")
            parts[f"T{i}"] = f"t{i}"
            continue
        deep = draw(st.booleans())
        own[f"t{i}"] = spaces.Box(-5, 5, (count, width, 2) if deep else (count, width))
        masks: dict[str, AnySpace] = {
            "bits": spaces.MultiBinary(count),
            "floats": spaces.Box(0, 1, (count,)),
            "bools": spaces.Box(0, 1, (count,), np.bool_),
        }
        parts[f"T{i}"] = f"t{i}"
        if kind in masks:
            own[f"a{i}"] = masks[kind]
            parts[f"T{i}"] = (f"t{i}", f"a{i}")
    for i in range(draw(st.integers(0 if parts else 1, 2))):
        own[f"x{i}"] = draw(st.sampled_from(PLAIN))
    if draw(st.booleans()):
        return spaces.Dict(own), parts
    nested = spaces.Tuple([spaces.Discrete(2), spaces.Dict({"deep": spaces.Dict(own)})])

    def path(part: str) -> str:
        return f"1.deep.{part}"

    return nested, {
        name: path(part) if isinstance(part, str) else (path(part[0]), path(part[1]))
        for name, part in parts.items()
    }


def sampled(space: AnySpace, rng: np.random.Generator) -> Any:  # noqa: ANN401
    """A value of the space, with masks of 0 and 1, and Sequences of any length."""
    match space:
        case spaces.Dict():
            return {key: sampled(part, rng) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(sampled(part, rng) for part in space.spaces)
        case spaces.Sequence():
            found = [space.feature_space.sample() for _ in range(rng.integers(4))]
            if not space.stack:
                return tuple(found)
            room: Any = create_empty_array(space.feature_space, len(found))
            return concatenate(space.feature_space, found, room) if found else room
        case spaces.Box() if space.low.min() == 0:
            return rng.integers(2, size=space.shape).astype(space.dtype)
    return space.sample()


def of_path(value: Any, path: str) -> Any:  # noqa: ANN401
    for key in path.split("."):
        value = value[int(key) if isinstance(value, tuple) else key]
    return value


def expected_rows(space: AnySpace, value: Any, part: Part) -> Rows:  # noqa: ANN401
    """The rows of one entity type in an observation, one by one."""
    path, mask = (part, None) if isinstance(part, str) else part
    table = of_path(value, path)
    [inner] = [leaf.space for leaf in leaves(space) if leaf.path == path]
    if isinstance(inner, spaces.Sequence):
        flat: list[Any] = [spaces.flatten(inner.feature_space, one) for one in table]
        return [np.asarray(row, np.float32).tolist() for row in flat]
    flags = [True] * len(table) if mask is None else of_path(value, mask)
    return [
        row.ravel().tolist() for row, is_there in zip(table, flags, strict=True) if is_there == 1
    ]


def expected_single(space: AnySpace, value: Any, parts: Mapping[str, Part]) -> list[float]:  # noqa: ANN401
    named = {
        path for part in parts.values() for path in ([part] if isinstance(part, str) else part)
    }
    row: list[float] = []
    for leaf in leaves(space):
        if leaf.path not in named:
            flat: Any = spaces.flatten(leaf.space, of_path(value, leaf.path))
            row += np.asarray(flat, np.float32).tolist()
    return row


@given(worlds(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_rows_are_those_of_a_plain_reference(
    world: tuple[AnySpace, dict[str, Part]], num_envs: int, seed: int
) -> None:
    space, parts = world
    space.seed(seed)
    rng = np.random.default_rng(seed)
    values = [sampled(space, rng) for _ in range(num_envs)]
    room: Any = create_empty_array(space, num_envs)
    converter = ObsConverter(space, "Env", parts)
    rows = converter.rows(concatenate(space, values, room), num_envs)
    assert list(rows) == list(converter.obs_space.entities)
    for name, part in parts.items():
        found = [each.tolist() for each in rows[name]]
        assert found == [expected_rows(space, value, part) for value in values]
        width = len(converter.obs_space.entities[name].features)
        assert rows[name].values.shape[1:] == (width,)
        assert rows[name].values.dtype == np.float32
    singles = [expected_single(space, value, parts) for value in values]
    if converter.single is None:
        assert singles == [[]] * num_envs
    else:
        assert [each.tolist() for each in rows["Env"]] == [[single] for single in singles]


SKIRMISH = spaces.Dict(
    {
        "units": spaces.Box(-1, 1, (4, 2)),
        "unit_mask": spaces.MultiBinary(4),
        "shots": spaces.Sequence(spaces.Box(-1, 1, (3,)), stack=True),
        "gold": spaces.Box(0, 9, (1,)),
        "map": spaces.Dict({"cells": spaces.Box(0, 1, (2, 2))}),
    }
)
PARTS: dict[str, Part] = {"Unit": ("units", "unit_mask"), "Shot": "shots", "Cell": "map.cells"}


class Skirmish(Echo):
    """Keeps its last observation, and has actions with many parts."""

    def __init__(self) -> None:
        look = spaces.Box(np.float32(-2), np.float32(3), (2,))
        moves = spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)])
        super().__init__(
            spaces.Dict({"look": look, "moves": moves, "pick": spaces.MultiDiscrete([2, 3])}),
            deepcopy(SKIRMISH),
        )
        self.shown: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        if seed is not None:
            self.observation_space.seed(seed)
        obs, info = super().reset(seed=seed, options=options)
        self.shown.append(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        obs, *rest = super().step(action)
        self.shown.append(obs)
        return obs, *rest


def assert_shows(obs: VecObs, row: int, value: dict[str, Any]) -> None:
    for name, part in PARTS.items():
        assert obs.features[name][row].tolist() == expected_rows(SKIRMISH, value, part)
    assert obs.features["Env"][row].tolist() == [value["gold"].tolist()]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_entities_and_actions_of_a_vector_environment(mode: AutoresetMode) -> None:
    source: Any = SyncVectorEnv([Skirmish] * 3, autoreset_mode=mode)
    with GymnasiumVecEnv(source, entities=PARTS, features={"Env": ["gold"]}) as vec:
        assert {name: list(each.features) for name, each in vec.obs_space().entities.items()} == {
            "Env": ["gold"],
            "Unit": ["units.0", "units.1"],
            "Shot": ["shots.0", "shots.1", "shots.2"],
            "Cell": ["map.cells.0", "map.cells.1"],
        }
        names = ["look", "moves.0", "moves.1.0", "moves.1.1", "pick.0", "pick.1"]
        assert list(vec.action_space()) == [f"Action.{name}" for name in names]
        obs = vec.reset(seed=1)
        rng = np.random.default_rng(1)
        for _ in range(7):
            check_form(obs, (vec.obs_space(), vec.action_space()))
            for row, env in enumerate(source.envs):
                assert_shows(obs, row, env.shown[-1])
                counts = sum(rows.lengths[row] for rows in obs.features.values())
                actors = obs.action_masks["Action.moves.0"].actors[row].tolist()
                assert actors == ([counts - 1] if obs.is_ready[row] else [])
                lookers = obs.action_masks["Action.look"].actors[row].tolist()
                assert lookers == ([0] if obs.is_ready[row] else [])
            if obs.final is not None:
                for row, env_id in enumerate(obs.final.env_id.tolist()):
                    shown = source.envs[env_id].shown
                    assert_shows(obs.final, row, shown[-1 if mode == NEXT else -2])
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        for env in source.envs:
            assert len(env.actions) == (5 if mode == NEXT else 7)
            assert all(action in env.action_space for action in env.actions)
            assert len({str(action) for action in env.actions}) > 1


@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=1, max_size=4))
def test_actions_go_back_to_the_parts_they_came_from(seed: int, ready: list[bool]) -> None:
    space = Skirmish().action_space
    converter = ActionConverter(space, "Do")
    rng = np.random.default_rng(seed)
    asked = np.array(ready)
    count = int(asked.sum())
    look = rng.uniform(-2, 3, (count, 2)).astype(np.float32)
    sizes = {"moves.0": 3, "moves.1.0": 2, "moves.1.1": 2, "pick.0": 2, "pick.1": 3}
    picks = {f"Do.{name}": rng.integers(size, size=count) for name, size in sizes.items()}
    batch = converter.batch({"Do.look": look, **picks}, asked)
    place = 0
    for env_id, is_asked in enumerate(ready):
        whole = {
            "look": batch["look"][env_id],
            "moves": tuple(part[env_id] for part in batch["moves"]),
            "pick": batch["pick"][env_id],
        }
        assert whole in space
        if not is_asked:
            continue
        one = converter.one(
            {"Do.look": look[place], **{name: values[place] for name, values in picks.items()}}
        )
        assert one in space
        assert str(one) == str(whole)
        assert whole["look"].tolist() == look[place].tolist()
        assert whole["moves"][0] == picks["Do.moves.0"][place] + 1
        bits = [picks["Do.moves.1.0"][place], picks["Do.moves.1.1"][place]]
        assert whole["moves"][1].tolist() == bits
        assert whole["pick"].tolist() == [picks["Do.pick.0"][place], picks["Do.pick.1"][place]]
        place += 1


def test_the_whole_observation_may_be_a_table() -> None:
    converter = ObsConverter(spaces.Box(0, 1, (3, 2)), "Env", {"Unit": ""})
    assert list(converter.obs_space.entities) == ["Unit"]
    rows = converter.rows(np.arange(12).reshape(2, 3, 2), 2)
    assert rows["Unit"].lengths.tolist() == [3, 3]
    assert rows["Unit"].values[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
    with_actor = ObsConverter(spaces.Box(0, 1, (3, 2)), "Env", {"Unit": ""}, has_actor=True)
    assert {n: list(e.features) for n, e in with_actor.obs_space.entities.items()} == {
        "Env": [],
        "Unit": ["0", "1"],
    }


@pytest.mark.parametrize(
    ("entities", "features", "message"),
    [
        ({"U": "unit"}, {}, r"no part 'unit', it has 'gold', 'map.cells', .*: entities=\{\"units"),
        ({"U": "map"}, {}, "has no part 'map'"),
        ({"U": ("units", "mask")}, {}, "has no part 'mask'"),
        ({"U": "gold"}, {}, r"'gold' is a Box.*, expected a Box with a row of features per entity"),
        ({"U": ("units", "gold")}, {}, r"its mask 'gold' is a .* of shape \(4,\), a flag for each"),
        ({"U": ("shots", "unit_mask")}, {}, "write entities={\"U\": 'shots'}, without a mask"),
        ({"U": ["units"]}, {}, r"'U' needs the name of a part, .*: got \['units'\]"),
        ({"U": ("units",)}, {}, r"needs the name of a part, .*: got \('units',\)"),
        ({"Unit": "units"}, {}, r"'shots' is a Sequence.*entities=\{\"units\": 'shots'\}"),
        ({"Env": "shots"}, {}, "names 'Env', which is the entity of all other parts"),
        ({"S": "shots"}, {"T": ["a"]}, "features names 'T'; the entities are Env, S"),
        ({"S": "shots"}, {"S": ["a"]}, r"3 names are needed, one each for shots.0, .*got \['a'\]"),
        ({"S": "shots"}, {"S": "abc"}, "3 names are needed"),
        ({"S": "shots"}, {"S": 3}, "3 names are needed, .*got 3"),
        ({"S": "shots"}, ["a"], "features must be a dict with names of entities as keys"),
        (["units"], {}, r"entities must be a dict with names of entities as keys: got \['units'\]"),
        ({3: "units"}, {}, "entities must be a dict with names of entities as keys: got {3: "),
        ({"U": ("units", ["mask"])}, {}, r"has no part \['mask'\]"),
    ],
)
def test_parts_that_cannot_be_entities(
    entities: Any,  # noqa: ANN401
    features: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(UsageError, match=message):
        ObsConverter(SKIRMISH, "Env", entities, features)


def test_strings_are_refused_by_name() -> None:
    mission = spaces.Dict({"image": spaces.Box(0, 1, (2,)), "mission": spaces.Text(9)})
    with pytest.raises(
        UsageError, match=r"'mission' is a Text.*FilterObservation\(env, \['image'\]\)"
    ):
        ObsConverter(mission, "Env")
    space = spaces.Dict({"words": spaces.Box(0, 1, (2,))})
    converter = ObsConverter(space, "Env")
    for words in (np.array([["go", "up"]]), np.array([["go", None]], object), [["1", "2"]]):
        with pytest.raises(SchemaError, match=r"'words' must hold numbers.* such as '(go|1)'"):
            converter.rows({"words": words}, 1)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("units", np.zeros((1, 4, 3)), r"'units' needs the shape \(4, 2\): got \(4, 3\)"),
        ("unit_mask", np.zeros((1, 3)), r"'unit_mask' needs the shape \(4,\)"),
        ("unit_mask", np.full((1, 4), 2), "'unit_mask' is a mask of 0 and 1: got 2"),
        ("unit_mask", np.full((1, 4), 0.5), "'unit_mask' holds 0.5, .* int8 cannot hold it"),
        ("shots", (np.zeros((2, 4)),), r"'shots' needs the shape \(3,\): got \(4,\)"),
        ("shots", (np.array([["a", "b", "c"]]),), "'shots' must hold numbers"),
        ("gold", [[1], [2, 3]], r"'gold' needs the shape \(1, 1\): setting an array"),
    ],
)
def test_observations_that_do_not_fit_their_space(part: str, value: object, message: str) -> None:
    whole: dict[str, Any] = {
        "units": np.zeros((1, 4, 2)),
        "unit_mask": np.zeros((1, 4)),
        "shots": (np.zeros((2, 3)),),
        "gold": np.zeros((1, 1)),
        "map": {"cells": np.zeros((1, 2, 2))},
    }
    converter = ObsConverter(SKIRMISH, "Env", PARTS)
    converter.rows(whole, 1)
    with pytest.raises(SchemaError, match=message):
        converter.rows({**whole, part: value}, 1)


def test_a_number_that_is_not_finite_is_named_by_entity() -> None:
    class Broken(Skirmish):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
            obs, *rest = super().step(action)
            obs["map"]["cells"] = np.full((2, 2), np.nan, np.float32)
            return obs, *rest

    source: Any = SyncVectorEnv([Skirmish, Broken], autoreset_mode=SAME)
    with GymnasiumVecEnv(source, entities=PARTS) as vec:
        obs = vec.reset(seed=1)
        actions = random_actions(obs, vec.action_space(), np.random.default_rng(1))
        with pytest.raises(SchemaError, match=r"env 1, .*'map.cells.0' of the observation must be"):
            vec.act(actions)


def test_a_mask_belongs_to_the_actors_of_ragged_rows() -> None:
    class Masked(Skirmish):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Discrete(3)

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
            obs, _ = super().reset(**options)
            return obs, {"action_mask": np.array([0, 1, 1], np.int8)}

    source: Any = SyncVectorEnv([partial(Masked) for _ in range(2)], autoreset_mode=DISABLED)
    with GymnasiumVecEnv(source, entities=PARTS) as vec:
        obs = vec.reset(seed=1)
        allowed: NDArray[np.bool_] = obs.action_masks["Action"].mask.values  # type: ignore[union-attr]
        assert allowed.tolist() == [[False, True, True]] * 2
        with pytest.raises(SchemaError, match="its mask forbids"):
            vec.act({"Action": np.zeros(2, np.int64)})


@pytest.mark.parametrize("shape", [(4, 3, 2), (2, 4, 3)])
def test_the_rest_may_be_a_picture_beside_entities(shape: tuple[int, int, int]) -> None:
    space = spaces.Dict({"screen": spaces.Box(0, 255, shape), "units": spaces.Box(0, 1, (2, 2))})
    converter = ObsConverter(space, "Env", {"Unit": "units"}, {"Env": [f"p{i}" for i in range(24)]})
    env = converter.obs_space.entities["Env"]
    assert (env.shape, env.is_single) == ((4, 3, 2), True)
    screen = np.arange(24).reshape(1, *shape)
    rows = converter.rows({"screen": screen, "units": np.zeros((1, 2, 2))}, 1)["Env"].values
    last = screen[0] if shape == (4, 3, 2) else screen[0].transpose(1, 2, 0)
    assert rows.reshape(4, 3, 2).tolist() == last.tolist()
    assert ObsConverter(space, "Env").obs_space.entities["Env"].shape is None


class Shows(Env[Any, Any]):
    """Shows one value of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], value: object) -> None:
        self.observation_space = spaces.Dict({"part": space})
        self.value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        return {"part": self.value}, {}

    def step(self, action: Any) -> Any:  # noqa: ANN401
        return {"part": self.value}, float(action), True, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (
            spaces.Box(0, 2**30, (1,), np.int64),
            np.array([2**24 + 1]),
            "the observation 'part' holds 16777217, which agents see as 16777216: float32 cannot",
        ),
        (
            spaces.Box(0, 2e9, (1,), np.float64),
            np.array([1_700_000_000.25]),
            "holds 1700000000.25, which agents see as 1.7e+09",
        ),
        (spaces.Box(0, 2**30, (1,), np.int64), np.array([2**24 + 2]), None),
        (spaces.Box(0, 1, (2,), np.float64), np.array([0.1, 0.2]), None),
        (spaces.Box(0, 9, (2,)), np.array([1, 12], np.float32), "holds 12.0, which is outside of"),
        (spaces.Box(0, 9, (2,)), np.ones((1, 2), np.float32), r"has the shape (1, 2), its space"),
        (spaces.Box(0, 9, (2,), np.uint8), np.array([0.0, 1]), "holds float64, its space uint8"),
        (
            spaces.Box(0, 9999, (1,), np.float16),
            np.array([2049.0]),
            "holds 2049.0, which agents see as 2048: float16 cannot hold every number beyond 2,048",
        ),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "holds 2, which is outside of"),
        (spaces.Sequence(spaces.Box(0, 9, (1,))), (np.array([12.0]),), "holds 12.0, which is"),
    ],
)
def test_check_warns_of_values_that_agents_do_not_see_as_they_are(
    space: spaces.Space[Any], value: object, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    parts = {"Part": "part"} if isinstance(space, spaces.Sequence) else None
    game = from_gymnasium(partial(Shows, space, value), entities=parts)
    check_game(game, episodes=3, new_process=False)
    found = [record.message for record in caplog.records if "'part'" in record.message]
    assert len(found) == (0 if words is None else 1)
    assert words is None or words in found[0]
