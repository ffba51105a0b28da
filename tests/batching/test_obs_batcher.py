"""ObsBatcher: writes a game's `Obs` directly into a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    GLOBAL_ENTITY,
    ActionType,
    Categorical,
    Continuous,
    Game,
    GlobalCategorical,
    Obs,
    Schema,
    SchemaError,
    SelectEntity,
    VecObs,
)
from entity_env.agents import Agent
from entity_env.authoring.to_observation import to_observation
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.vec import VecEnv
from tests.helpers.batches import assert_same, assert_shows, finish
from tests.helpers.strategies import (
    CALL,
    EAT,
    FEW,
    MOVE,
    SCHEMA,
    STEER,
    Food,
    Move,
    Point,
    Rock,
    Scene,
    Snake,
    Stance,
    World,
    scenes,
    untyped,
)

WORLD = World(0.5, Stance.CALM)


def snake(x: float = 0.0) -> Snake:
    return Snake(Point(x, 0), Stance.CALM, True, (0, 0.0))


@dataclass
class Stranger:
    x: int


def write(obs: Obs, *actions: ActionType[Any]) -> VecObs:
    """Adds one observation, which raises its errors."""
    writer = ObsBatcher(SCHEMA, where="env {}".format)
    writer.add(obs, actions)
    return finish(writer)


@FEW
@given(st.lists(scenes(), max_size=5))
def test_a_batch_shows_what_the_games_showed(shown: list[Scene]) -> None:
    writer = ObsBatcher(SCHEMA)
    for scene in shown:
        writer.add(scene.obs(), scene.asked)
    assert_shows(finish(writer), shown)


@FEW
@given(st.lists(scenes(), max_size=4), st.lists(scenes(), max_size=4))
def test_a_writer_can_be_used_again(first: list[Scene], second: list[Scene]) -> None:
    writer = ObsBatcher(SCHEMA)
    for shown in (first, second):
        writer.clear()
        for scene in shown:
            writer.add(scene.obs(), scene.asked)
        assert_shows(finish(writer), shown)


@FEW
@given(st.lists(scenes(), max_size=4))
def test_all_ways_to_write_make_the_same_batch(shown: list[Scene]) -> None:
    direct, frozen = ObsBatcher(SCHEMA), ObsBatcher(SCHEMA)
    stepped = ObservationBatcher(SCHEMA.obs_space(), SCHEMA.action_space())
    for scene in shown:
        direct.add(scene.obs(), scene.asked)
        frozen.add(scene.obs().frozen(), scene.asked)
        stepped.add(to_observation(scene.obs(), scene.asked, SCHEMA, reward=0.0))
    assert_same(finish(direct), finish(frozen))
    assert_same(finish(direct), finish(stepped))


def test_a_blank_last_observation_has_nothing_but_its_metrics() -> None:
    writer = ObsBatcher(SCHEMA)
    writer.add(Obs(3).metric("won", 1.0), ())
    writer.add(Obs(3).entities([Food(1.0)]).globals(WORLD), ())
    batch = finish(writer)
    assert [rows.lengths.tolist() for rows in batch.features.values()] == [
        [0, 0],
        [0, 1],
        [0, 0],
        [0, 1],
    ]
    assert batch.metrics["won"].mean == 1.0
    assert not batch.is_ready.any()


def test_a_global_entity_without_features_has_a_row() -> None:
    writer = ObsBatcher(Schema((Food,), (Move,)))
    writer.add(Obs().entities([Food(1.0)]), [CALL.__class__(Move)])
    batch = finish(writer)
    assert batch.features[GLOBAL_ENTITY].values.shape == (1, 0)
    assert batch.action_masks["Move"].actors.values.tolist() == [1]


def test_a_game_that_shows_nothing_can_still_be_asked() -> None:
    schema = Schema((), ())
    writer = ObsBatcher(schema)
    writer.add(Obs(), ())
    assert len(finish(writer)) == 1


def test_features_stay_until_the_writer_is_cleared() -> None:
    writer = ObsBatcher(SCHEMA)
    writer.add(Obs().entities([Food(1.0)]).globals(WORLD), ())
    features = finish(writer).features["Food"].values
    writer.clear()
    writer.add(Obs().entities([Food(2.0)]).globals(WORLD), ())
    finish(writer)
    assert features.tolist() == [[2.0]]  # a view, as documented


@pytest.mark.parametrize(
    ("obs", "actions", "message"),
    [
        (Obs().entities([Stranger(1)]), [CALL], "shows a Stranger.*declared are Snake, Food, Rock"),
        (Obs().actors([Stranger(1)]), [MOVE], "shows a Stranger"),
        (Obs().entities(np.zeros((1, 1)), of=Stranger), [CALL], "shows a Stranger"),
        (Obs().entities([Food(1.0), snake()]), [CALL], "sequence of Food holds a Snake"),
        (Obs().entities([snake()]), [MOVE], r"asks every actor.*obs\.actors"),
        (Obs().entities([snake()]).mask(CALL, [True] * 4), [MOVE], "asks every actor"),
        (Obs().actors([snake()]).mask(MOVE, [[True] * 3]), [MOVE], r"\(1, 4\).*got \(1, 3\)"),
        (Obs().actors([snake()]).mask(MOVE, [[False] * 4]), [MOVE], "actor 0 no legal choice"),
        (Obs().actors([snake()]).mask(STEER, [[True]]), [STEER], "takes no mask"),
        (Obs().mask(CALL, np.array([1, 2, 0, 0])), [CALL], "must hold bools"),
        (Obs().actors([snake()], Categorical(Move)), [MOVE], "actors for.*not declared"),
        (Obs().mask(Move, [True] * 4), [CALL], "a mask.*not declared; declared are"),
        (Obs().visible(Food, [True]), [CALL], "visible of Food needs 0 bools"),
        (
            Obs().entities([Food(1)]).visible(Food, untyped([0.5])),
            [CALL],
            "visible of Food needs 1 bools",
        ),
        (Obs().visible(Stranger, [True]), [CALL], "Stranger"),
        (Obs().globals(Food(1.0)), [CALL], "global features Food, expected World"),
        (Obs().entities([Food(float("nan"))]), [CALL], "'value' of row 0 must be finite, got nan"),
        (Obs().entities([Food(1e39)]), [CALL], "must be finite, got inf"),
    ],
)
def test_what_does_not_fit_is_refused(obs: Obs, actions: list[Any], message: str) -> None:
    if obs.global_features is None:
        obs.globals(WORLD)
    with pytest.raises(SchemaError, match=message):
        write(obs, *actions)


def test_global_features_without_a_field_are_no_entity() -> None:
    writer = ObsBatcher(Schema((Food,), (), Rock))
    writer.add(Obs().entities([Food(1.0)]).globals(Rock()), ())
    assert list(finish(writer).features) == ["Food"]


def test_missing_global_features_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"declared the global features World.*has none"):
        write(Obs(), CALL)


def test_undeclared_global_features_are_refused() -> None:
    for actions in ((), (Move,)):
        writer = ObsBatcher(Schema((Food,), actions))
        with pytest.raises(SchemaError, match="global features World, which were not declared"):
            writer.add(Obs().entities([Food(1.0)]).globals(WORLD), ())


@pytest.mark.parametrize("value", [None, "1", [1.0], pytest.param(10**400, id="huge"), 1j])
def test_what_is_no_number_is_named_with_its_place(value: object) -> None:
    writer = ObsBatcher(SCHEMA, where="env {}".format)
    good, bad = Food(1.0), Food(untyped(value))
    writer.add(Obs().entities([good]).globals(WORLD), ())
    writer.add(Obs().entities([good, good, bad]).globals(WORLD), ())
    with pytest.raises(SchemaError, match=r"env 1: entity Food: feature 'value' of row 2 .* got "):
        finish(writer)
    writer.clear()
    writer.add(Obs().entities([good]).globals(WORLD), ())
    assert finish(writer).features["Food"].values.tolist() == [[1.0]]


def test_what_is_no_number_is_found_when_an_array_follows_too() -> None:
    bad = Food(untyped(None))
    with pytest.raises(SchemaError, match="env 0: entity Food: feature 'value' of row 0"):
        write(Obs().globals(WORLD).entities([bad]).entities(np.zeros((1, 1)), of=Food), CALL)


def test_not_finite_names_the_observation() -> None:
    writer = ObsBatcher(SCHEMA, where="env {}".format)
    writer.add(Obs().entities(np.zeros((2, 1)), of=Food).globals(WORLD), ())
    writer.add(Obs().entities(np.array([[0.0], [np.nan]]), of=Food).globals(WORLD), ())
    with pytest.raises(SchemaError, match="env 1: entity Food: feature 'value' of row 1"):
        finish(writer)


def test_no_entity_at_all_needs_no_mask() -> None:
    pick = SelectEntity(Food)
    steer = Continuous("steer", low=[0], high=[1])
    writer = ObsBatcher(Schema((Rock, Food), (pick, steer, MOVE)))
    writer.add(Obs().actors([]).mask(pick, []).mask(MOVE, []), [pick, steer, MOVE])
    batch = finish(writer)
    assert not batch.is_ready.any()


class TestActorsWithoutATarget:
    """Such actors are not asked and are not in the batch."""

    def test_when_nothing_can_be_selected(self) -> None:
        batch = write(Obs().globals(WORLD).actors([snake(), snake()]), EAT)
        assert batch.action_masks["eat"].actors.lengths.tolist() == [0]
        assert not batch.is_ready.any()

    def test_when_their_row_of_the_mask_allows_nothing(self) -> None:
        snakes = [snake(), snake(), snake()]
        obs = Obs().globals(WORLD).entities([Food(1.0), Food(2.0)]).actors(snakes[:1])
        obs.actors(snakes[1:]).mask(EAT, [[False, False], [False, True], [True, False]])
        mask = untyped(write(obs, EAT).action_masks["eat"])
        assert mask.actors[0].tolist() == [1, 2]
        assert mask.mask[0].tolist() == [False, True, True, False]

    @pytest.mark.parametrize("mask", [[], np.zeros((2, 0)), [[], []]])
    def test_whatever_an_empty_mask_looks_like(self, mask: Any) -> None:  # noqa: ANN401
        obs = Obs().globals(WORLD).actors([snake(), snake()]).mask(EAT, mask)
        assert len(write(obs, EAT).action_masks["eat"].actors.values) == 0

    def test_but_a_mask_that_does_not_fit_is_refused(self) -> None:
        obs = Obs().globals(WORLD).actors([snake()]).mask(EAT, [[True]])
        with pytest.raises(SchemaError, match=r"\(1, 0\): got \(1, 1\)"):
            write(obs, EAT)


# Adding many at once equals adding them one by one.


@dataclass(slots=True)
class Head:
    x: int
    y: int


@dataclass
class Snack:
    x: float


@dataclass
class Nothing:
    """An entity without features."""


@dataclass(slots=True)
class Clock:
    step: int


class Turn(Enum):
    LEFT = 0
    RIGHT = 1


class Call(Enum):
    YES = 0
    NO = 1


@dataclass(slots=True)
class Marked:
    turn: Turn
    value: float


@dataclass
class Loose:
    turn: Turn
    value: float


@dataclass
class Odd(Loose):
    __slots__ = ("turn",)  # the other field is in its __dict__
    turn: Turn
    value: float


@dataclass(slots=True)
class Filled:
    turn: Turn
    value: float

    def __getattr__(self, name: str) -> float:
        return 0.0


@dataclass(slots=True)
class Guarded:
    turn: Turn
    value: float

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any field
        return 9 if name == "value" else object.__getattribute__(self, name)


ACT: Any = Categorical(Turn)
ASK: Any = GlobalCategorical(Call)
PLAIN = Schema((Head, Snack, Nothing), (ACT, ASK))
TIMED = Schema((Head, Snack, Nothing), (ACT,), global_features=Clock)


def of(*heads: int, food: Sequence[float] = ()) -> Obs:
    """An ordinary observation, without actors."""
    return Obs().entities([Head(x, -x) for x in heads]).entities([Snack(x) for x in food])


def acting(*heads: int, food: Sequence[float] = ()) -> Obs:
    """One group of actors."""
    return Obs().actors([Head(x, -x) for x in heads]).entities([Snack(x) for x in food])


Asked = tuple[ActionType[Any], ...]


def added_both_ways(schema: Schema, shown: Sequence[Obs | None], asked: Sequence[Asked]) -> None:
    """Adds observations both ways, twice, and compares the results."""
    fast, slow = ObsBatcher(schema), ObsBatcher(schema)
    for _ in range(2):
        fast.clear()
        slow.clear()
        fast.add_all(shown, asked)
        for obs, wanted in zip(shown, asked, strict=True):
            if obs is None:
                slow.end_row()
            else:
                slow.add(obs, wanted)
        assert fast.num_rows == slow.num_rows == len(shown)
        assert_same(finish(fast), finish(slow))


@pytest.mark.usefixtures("loops")
class TestEqualsTheLongWay:
    @FEW
    @given(st.lists(st.none() | scenes(), max_size=8))
    def test_whatever_is_shown(self, told: list[Scene | None]) -> None:
        added_both_ways(
            SCHEMA,
            [None if scene is None else scene.obs() for scene in told],
            [() if scene is None else tuple(scene.asked) for scene in told],
        )

    @FEW
    @given(st.data())
    def test_long_runs_of_what_looks_alike(self, data: st.DataObject) -> None:
        numbers = st.lists(st.integers(-9, 9), max_size=3)
        shown: list[Obs | None] = []
        asked: list[Asked] = []
        for kind in data.draw(st.lists(st.sampled_from("aaaaagggni"), max_size=40)):
            heads = data.draw(numbers)
            food = data.draw(numbers)
            if kind == "n":
                shown.append(None)
                asked.append(())
            elif kind == "i":  # different: an entity is hidden
                shown.append(of(*heads, food=food).visible(Head, [False] * len(heads)))
                asked.append((ASK,))
            elif kind == "a":
                shown.append(acting(*heads, food=food).metric("size", len(heads)))
                asked.append((ACT,))
            else:
                shown.append(of(*heads, food=food).entities([Nothing()] * len(food)))
                asked.append((ASK,))
        added_both_ways(PLAIN, shown, asked)

    def test_with_global_features(self) -> None:
        shown = [acting(i, i + 1, food=[0.5]).globals(Clock(i)) for i in range(5)]
        added_both_ways(TIMED, shown, [(ACT,)] * 5)

    def test_actors_that_come_after_others_of_their_class(self) -> None:
        shown = [
            Obs().entities([Head(7, 7)]).entities([Snack(1)]).actors([Head(i, i), Head(8, 8)])
            for i in range(4)
        ]
        added_both_ways(PLAIN, shown, [(ACT,)] * 4)

    @pytest.mark.parametrize("cls", [Marked, Odd, Loose, Guarded, Filled])
    def test_classes_with_and_without_slots(self, cls: type) -> None:
        things = [[cls(turn, number)] for turn in Turn for number in (1, 2.5, True, np.float64(7))]
        shown = [Obs().entities(each) for each in things]
        added_both_ways(Schema((cls,), (ASK,)), shown, [(ASK,)] * len(shown))

    def test_two_questions_at_once(self) -> None:
        added_both_ways(PLAIN, [acting(1), acting(2)], [(ACT, ASK)] * 2)

    def test_nothing_at_all(self) -> None:
        added_both_ways(PLAIN, [], [])

    def test_frozen_observations_show_what_they_did_when_frozen(self) -> None:
        head = Head(1, 1)
        frozen = Obs().actors([head]).frozen()
        head.x = 5
        writer = ObsBatcher(PLAIN)
        writer.add_all([frozen, Obs().actors([head])], [(ACT,), (ACT,)])
        assert finish(writer).features["Head"].values.tolist() == [[1, 1], [5, 1]]


def many_types(count: int) -> list[type]:
    return [make_dataclass(f"Kind{i}", [("x", float)], slots=True) for i in range(count)]


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("count", [63, 64, 65, 300])
class TestManyTypes:
    def test_of_one_observation(self, count: int) -> None:
        kinds = many_types(count)
        shown = [
            Obs().entities([kinds[0](i)]).actors([kinds[-1](i), kinds[-1](2)]).globals(Clock(i))
            for i in range(3)
        ]
        added_both_ways(Schema(tuple(kinds), (ACT,), Clock), shown, [(ACT,)] * len(shown))

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_of_a_game(self, count: int, num_workers: int) -> None:
        kinds = many_types(count)

        def play(agent: Agent, *, seed: int) -> None:
            for turn in range(4):
                obs = Obs()
                for i, kind in enumerate(kinds):
                    obs.entities([kind(float(i))] * ((i + turn) % 3))
                if agent.act(obs, Move) is None:
                    return
            agent.game_over()

        game = Game(play, entities=tuple(kinds), actions=(Move,))
        with VecEnv(game, 2, num_workers) as vec:
            batch = vec.reset()
            for turn in range(4):
                for i in range(count):
                    rows = batch.features[f"Kind{i}"]
                    assert rows.lengths.tolist() == [(i + turn) % 3] * 2
                    assert rows.values.tolist() == [[i]] * ((i + turn) % 3 * 2)
                batch = vec.act({"Move": np.zeros(2, dtype=np.int64)})


@pytest.mark.usefixtures("loops")
class TestWhatCannotBeAdded:
    """The slow path reports the error, and `num_rows` its position."""

    @pytest.mark.parametrize("first", [0, 3])
    def test_an_entity_of_another_class_in_the_middle_of_a_list(self, first: int) -> None:
        shown: list[Obs | None] = [of(1) for _ in range(6)]
        shown[first] = Obs().entities([Head(0, 0), Snack(0)])
        self.refused(shown, first, "Head", ASK)

    def test_an_undeclared_class(self) -> None:
        shown: list[Obs | None] = [of(1), of(2), Obs().entities([Clock(1)])]
        self.refused(shown, 2, "Clock, which was not declared", ASK)

    def test_missing_global_features(self) -> None:
        shown = [acting(1).globals(Clock(1)), acting(2)]
        writer = ObsBatcher(TIMED)
        with pytest.raises(SchemaError, match="an observation has none"):
            writer.add_all(shown, [(ACT,)] * 2)
        assert writer.num_rows == 1

    def test_global_features_that_nobody_declared(self) -> None:
        self.refused([of(1), of(1).globals(Clock(1))], 1, "which were not declared", ASK)

    def test_a_question_for_actors_without_any(self) -> None:
        self.refused([acting(1), of(2)], 1, "marks none", ACT)

    def refused(
        self, shown: Sequence[Obs | None], row: int, message: str, asked: ActionType[Any]
    ) -> None:
        writer = ObsBatcher(PLAIN)
        with pytest.raises(SchemaError, match=message):
            writer.add_all(shown, [(asked,)] * len(shown))
        assert writer.num_rows == row

    def test_a_field_that_was_never_set(self) -> None:
        empty = Head.__new__(Head)
        shown: list[Obs | None] = [of(1), Obs().entities([Head(2, 2), empty]), of(3)]
        self.refused(shown, 1, "cannot be read", ASK)

    def test_a_value_that_is_no_number_is_named_with_its_row(self) -> None:
        shown = [of(1, food=[0.5]), of(2, 3), of(4, food=[0.5, "x"])]  # type: ignore[list-item]
        writer = ObsBatcher(PLAIN, where="env {}".format)
        writer.add_all(shown, [(ASK,)] * 3)
        with pytest.raises(SchemaError, match=r"env 2: entity Snack: feature 'x' of row 1"):
            finish(writer)

    def test_a_writer_goes_on_after_an_error(self) -> None:
        writer = ObsBatcher(PLAIN)
        with pytest.raises(SchemaError):
            writer.add_all([acting(1), acting(2, food=[1]), of(3)], [(ACT,)] * 3)
        writer.clear()
        writer.add_all([acting(4)], [(ACT,)])
        batch = finish(writer)
        assert batch.features["Head"].values.tolist() == [[4, -4]]
        assert batch.features["Head"].values.dtype == np.float32
