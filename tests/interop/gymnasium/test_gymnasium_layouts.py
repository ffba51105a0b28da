"""Entities and actions as arrays with fixed shapes: places, room, masks and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    RaggedArray,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    UsageError,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.interop.gymnasium.padded import (
    IllegalActions,
    PaddedActions,
    PaddedEntities,
    require_counts,
)
from entity_env.interop.gymnasium.vector_env import (
    EntityVectorEnv,
    past_idle,
    start_of,
    vector_info,
)
from tests.helpers.batches import finish
from tests.helpers.strategies import FEW, untyped

SPACE = ObsSpace(["t"], {"A": Entity(["x", "y"]), "B": Entity([]), "C": Entity(["z"])})
CALL: dict[str, ActionSpace] = {"call": GlobalCategoricalActionSpace(["yes", "no", "why"])}
PICK: dict[str, ActionSpace] = {"pick": SelectEntityActionSpace()}
MOVE: dict[str, ActionSpace] = {"move": CategoricalActionSpace(["up", "down"])}
STEER: dict[str, ActionSpace] = {"steer": ContinuousActionSpace((-1.0, 0.0), (1.0, 2.0))}
ROOM = {"A": 4, "B": 3, "C": 5}

Counts = tuple[int, int, int]
COUNTS = st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 5))


def shown(counts: Counts, **changes: Any) -> Observation:  # noqa: ANN401
    a, b, c = counts
    features: dict[str, Any] = {
        "A": [[10 + i, 20 + i] for i in range(a)],
        "B": [[]] * b,
        "C": [[30 + i] for i in range(c)],
    }
    given: dict[str, Any] = {"reward": 0.0, "global_features": [0.5], "features": features}
    return Observation(**{**given, **changes})


def batch_of(
    observations: Sequence[Observation], actions: Mapping[str, ActionSpace], space: ObsSpace = SPACE
) -> VecObs:
    writer = ObservationBatcher(space, actions)
    for one in observations:
        writer.add(one)
    return finish(writer)


def asking(*counts: Counts) -> VecObs:
    """Batches in which every actor is asked."""
    asked = {"call": GlobalCategoricalActionMask()}
    return batch_of([shown(each, actions=asked) for each in counts], CALL)


class TestEntities:
    @FEW
    @given(st.lists(COUNTS, min_size=1, max_size=4), st.sets(st.sampled_from("ABC")))
    def test_arrays_are_of_the_space_and_the_caller_s(
        self, counts: list[Counts], varying: set[str]
    ) -> None:
        first = (2, 1, 3)
        counts = [
            untyped(
                tuple(n if k in varying else m for k, n, m in zip("ABC", each, first, strict=True))
            )
            for each in counts
        ]
        layout = PaddedEntities(SPACE, asking(first), {name: ROOM[name] for name in varying})
        obs, space = asking(*counts), layout.space()
        got = layout.observe(obs)
        assert list(got) == [
            key
            for key in ("A", "A_mask", "B", "B_mask", "C", "C_mask", "global")
            if key[0] in varying or "_" not in key
        ]
        assert set(got) == set(space)
        for row, each in enumerate(counts):
            assert space.contains({key: array[row] for key, array in got.items()})
            for name, count in zip("ABC", each, strict=True):
                assert_array_equal(got[name][row][:count], obs.features[name][row])
                assert not got[name][row][count:].any()
                if name in varying:
                    assert got[f"{name}_mask"][row].tolist() == [
                        int(i < count) for i in range(ROOM[name])
                    ]
        for name, ragged in obs.features.items():
            key = "global" if name.startswith("__") else name
            assert not np.shares_memory(got[key], ragged.values)

    @FEW
    @given(st.lists(COUNTS, min_size=1, max_size=4), st.data())
    def test_places_of_entities(self, counts: list[Counts], data: st.DataObject) -> None:
        """Every entity index of a row, in any order, maps to the place with that entity."""
        layout = PaddedEntities(SPACE, asking((1, 1, 1)), ROOM)
        asked = [data.draw(st.permutations(range(sum(each)))) for each in counts]
        indices = RaggedArray.from_rows(asked, np.int64)
        places = layout.slots_of(asking(*counts), indices).tolist()
        wanted: list[int] = []
        for each, chosen in zip(counts, asked, strict=True):
            firsts = (0, ROOM["A"], ROOM["A"] + ROOM["B"])
            by_index = [first + i for first, n in zip(firsts, each, strict=True) for i in range(n)]
            wanted += [by_index[index] for index in chosen]
        assert places == wanted
        assert layout.num_slots == sum(ROOM.values())

    def test_who_is_asked_nothing_may_show_nothing(self) -> None:
        layout = PaddedEntities(SPACE, asking((2, 1, 3)), {})
        over = Observation(reward=0.0, terminated=True, global_features=[0.5])
        got = layout.observe(batch_of([over], CALL))
        assert got["A"].tolist() == [[[0, 0], [0, 0]]]
        assert set(got) == {"A", "B", "C", "global"}

    @pytest.mark.parametrize(
        ("counts", "room", "message"),
        [
            ((1, 1, 3), {}, r"env 1: 1 entities of type 'A', but there were 2 at first: .*varies"),
            ((2, 0, 3), {}, r"env 1: 0 entities of type 'B', .*max_entities=\{'B': ...\}"),
            ((2, 1, 4), {"C": 3}, r"env 1: 4 entities of type 'C', but max_entities\['C'\] is 3"),
        ],
    )
    def test_other_numbers_than_there_is_room_for(
        self, counts: Counts, room: dict[str, int], message: str
    ) -> None:
        layout = PaddedEntities(SPACE, asking((2, 1, 3)), room)
        with pytest.raises(SchemaError, match=message):
            layout.observe(asking((2, 1, 3), counts))

    def test_rows_with_more_of_what_is_fixed_are_refused_though_nobody_is_asked(self) -> None:
        layout = PaddedEntities(SPACE, asking((2, 1, 3)), {})
        with pytest.raises(SchemaError, match="env 0: 1 entities of type 'A', but there were 2"):
            layout.observe(batch_of([shown((1, 1, 3))], CALL))

    def test_an_entity_may_not_be_called_as_the_global_features_are(self) -> None:
        space = ObsSpace(["t"], {"global": Entity(["x"])})
        one = Observation(
            reward=0.0,
            global_features=[1],
            features={"global": [[2]]},
            actions={"call": GlobalCategoricalActionMask()},
        )
        layout = PaddedEntities(space, batch_of([one], CALL, space), {})
        with pytest.raises(SchemaError, match="two parts of the observation would be called 'glob"):
            layout.space()

    @pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
    def test_counts_are_positive_integers(self, count: Any) -> None:  # noqa: ANN401
        with pytest.raises(UsageError, match=r"max_entities\['A'\]"):
            require_counts("max_entities", {"A": count}, SPACE.entities)

    def test_counts_of_what_there_is(self) -> None:
        require_counts("max_actors", {"A": 1, "B": untyped(np.int64(2))}, SPACE.entities)
        with pytest.raises(UsageError, match="max_actors names 'D'; there are A, B, C"):
            require_counts("max_actors", {"D": 1}, SPACE.entities)
        with pytest.raises(UsageError, match="max_actors names 'D'; there are none"):
            require_counts("max_actors", {"D": 1}, {})


def picking(*counts: Counts, mask: Any = None) -> VecObs:  # noqa: ANN401
    """All entities of type A select among those of types C and A, in that order."""
    asked = SelectEntityActionMask(actor_types=["A"], actee_types=["C", "A"], mask=mask)
    return batch_of([shown(each, actions={"pick": asked}) for each in counts], PICK)


def layout_of(
    obs: VecObs, actions: Mapping[str, ActionSpace], illegal: IllegalActions = "raise", **most: int
) -> PaddedActions:
    return PaddedActions(actions, PaddedEntities(SPACE, obs, ROOM), obs, most, illegal)


class TestSelecting:
    @FEW
    @given(st.lists(COUNTS, min_size=1, max_size=4), st.integers(0, 2**16))
    def test_what_the_masks_allow_is_who_is_at_that_place(
        self, counts: list[Counts], seed: int
    ) -> None:
        obs = picking(*counts)
        entities = PaddedEntities(SPACE, obs, ROOM)
        layout = PaddedActions(PICK, entities, obs, {"pick": 4}, "raise")
        masks, rng = layout.masks(obs), np.random.default_rng(seed)
        allowed = masks["pick"]
        assert allowed.shape == (len(counts), 4, 12)
        table = np.zeros((len(counts), 4), np.int64)
        for row, actor in np.argwhere(allowed.any(axis=2)):
            table[row, actor] = rng.choice(np.flatnonzero(allowed[row, actor]))
        answer = layout.answer(obs, masks, table)["pick"]
        asked = obs.action_masks["pick"]
        assert isinstance(asked, VecSelectEntityActionMask)
        actors = [(row, i) for row, (a, _, _) in enumerate(counts) for i in range(a)]
        assert [*map(tuple, np.argwhere(allowed.any(axis=2)).tolist())] == actors
        places = entities.slots_of(obs, asked.actees)
        for (row, actor), position in zip(actors, np.asarray(answer).tolist(), strict=True):
            assert places[asked.actees.offsets[row] + position] == table[row, actor]
        assert allowed.sum() == sum(a * (a + c) for a, _, c in counts)

    @pytest.mark.parametrize("illegal", ["raise", "next"])
    @pytest.mark.parametrize("place", [12, -1, 99])
    def test_a_place_that_there_is_not_is_never_replaced(
        self, illegal: IllegalActions, place: int
    ) -> None:
        obs = picking((1, 1, 1), (1, 1, 2))
        layout = layout_of(obs, PICK, illegal)
        message = rf"env 1: action 'pick' selects place {place}, expected one of \[0, 7, 8\]"
        with pytest.raises(SchemaError, match=message):
            layout.answer(obs, layout.masks(obs), [0, place])

    @pytest.mark.parametrize(
        ("place", "position"), [(1, 0), (4, 0), (7, 0), (8, 1), (9, 2), (0, 2)]
    )
    def test_the_next_one_that_is_allowed_goes_round(self, place: int, position: int) -> None:
        """Places 0 (itself), 7 and 8 have an entity; positions count type C first."""
        obs = picking((1, 1, 2))
        layout = layout_of(obs, PICK, "next")
        given = np.array([place])
        answer = layout.answer(obs, layout.masks(obs), given)["pick"]
        assert np.asarray(answer).tolist() == [position]
        assert given.tolist() == [place]  # the caller's copy

    def test_a_mask_of_pairs(self) -> None:
        mask = np.array([[True, False, False, True], [False, True, True, False]])
        obs = picking((2, 0, 2), mask=mask)
        allowed = layout_of(obs, PICK).masks(obs)["pick"][0]
        assert [np.flatnonzero(each).tolist() for each in allowed] == [[1, 7], [0, 8]]


class TestShapes:
    def moving(self, *num_actors: int) -> VecObs:
        asked = {"move": CategoricalActionMask(actor_types=["A"])}
        return batch_of([shown((n, 0, 0), actions=asked) for n in num_actors], MOVE)

    def steering(self, *num_actors: int) -> VecObs:
        asked = {"steer": ContinuousActionMask(actor_types=["A"])}
        return batch_of([shown((n, 0, 0), actions=asked) for n in num_actors], STEER)

    def test_spaces(self) -> None:
        one, many = self.moving(1), self.moving(1, 3)
        assert layout_of(one, MOVE).space() == spaces.Discrete(2)
        assert layout_of(one, MOVE, move=1).space() == spaces.MultiDiscrete([2])
        assert layout_of(many, MOVE).space() == spaces.MultiDiscrete([2, 2, 2])
        box = layout_of(self.steering(2), STEER, steer=3).space()
        assert box == spaces.Box(np.float32([[-1, 0]] * 3), np.float32([[1, 2]] * 3))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "given",
        [0, [0], [0, 1, 0], [[0], [1]], [0.0, 1.0], [True, False], ["a", "b"], [[0], [1, 0]], None],
    )
    def test_choices_of_another_shape_or_type(self, given: object) -> None:
        obs = self.moving(1, 1)
        layout = layout_of(obs, MOVE)
        with pytest.raises(SchemaError, match=r"action 'move' needs (the shape|an array)"):
            layout.answer(obs, layout.masks(obs), given)

    def test_absent_actors_are_left_out(self) -> None:
        obs = self.moving(1, 3, 2)
        layout = layout_of(obs, MOVE)
        table = np.array([[1, 9, 9], [0, 1, 1], [1, 0, 9]], np.int32)
        answer = np.asarray(layout.answer(obs, layout.masks(obs), table)["move"])
        assert answer.tolist() == [1, 0, 1, 1, 1, 0]
        assert answer.dtype == np.int64
        numbers = np.arange(12).reshape(2, 3, 2)
        obs = self.steering(1, 3)
        layout = layout_of(obs, STEER)
        answer = np.asarray(layout.answer(obs, layout.masks(obs), numbers)["steer"])
        assert answer.tolist() == [[0, 1], [6, 7], [8, 9], [10, 11]]
        assert answer.dtype == np.float32

    def test_infos_are_new_arrays(self) -> None:
        obs = self.moving(1, 1)
        layout = layout_of(obs, MOVE)
        masks = layout.masks(obs)
        told = layout.info(masks)["action_mask"]
        assert (told.tolist(), told.dtype) == ([[1, 1], [1, 1]], np.int8)
        told[:] = 0
        assert masks["move"].all()
        assert layout_of(self.steering(1), STEER).info({}) == {}


class TestInfos:
    @FEW
    @given(st.lists(st.booleans(), min_size=1, max_size=5))
    def test_say_who_has_them(self, told: list[bool]) -> None:
        flags, ones = np.array(told), np.ones((len(told), 2), np.int8)
        infos = vector_info({"mask": {"go": ones.copy()}, "n": ones.copy()}, flags)
        assert list(infos) == ["mask", "_mask", "n", "_n"]
        wanted = [[int(is_told)] * 2 for is_told in told]
        assert infos["mask"]["go"].tolist() == infos["n"].tolist() == wanted
        flags[:] = False  # the receiver keeps a copy
        assert infos["_n"].tolist() == infos["_mask"].tolist() == told
        assert infos["mask"]["_go"].tolist() == told

    def test_starts_of_seeds_are_episodes_that_differ(self) -> None:
        seeds = [*range(50), 2**31, 2**32, 2**63, 2**64, 2**64 + 1, 2**200]
        starts = [start_of(seed) for seed in seeds]
        assert len(set(starts)) == len(seeds)
        assert starts == [start_of(seed) for seed in seeds]
        assert all(0 <= start < 2**63 for start in starts)

    def test_a_picture_of_what_cannot_be_drawn(self) -> None:
        env = EntityVectorEnv.__new__(EntityVectorEnv)
        env.render_mode, env._vec = "rgb_array", untyped(object())
        with pytest.raises(NotImplementedError, match=r"object has no render\(\)"):
            env.render()

    def test_past_idle_resets_those_of_the_mask_alone(self) -> None:
        """Two environments end at once; only one of them is in the mask."""
        resets: list[list[bool]] = []
        flags = np.array([True, True, False])

        def batch() -> VecObs:
            obs = asking((1, 0, 0), (1, 0, 0), (1, 0, 0))
            obs.terminated[:] = flags
            return obs

        class Vec:
            def reset_envs(self, mask: Any) -> VecObs:  # noqa: ANN401
                resets.append(mask.tolist())
                flags[0] = len(resets) < 3
                return batch()

        obs = past_idle(untyped(Vec()), batch(), np.array([True, False, True]))
        assert resets == [[True, False, False]] * 3
        assert obs.done.tolist() == [False, True, False]
