"""Violations: each kind is reported once, with the difference or the undeclared attribute."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import ContractError, Obs
from entity_env.authoring.schema import Schema
from entity_env.check.violations import (
    Snapshot,
    Violations,
    difference,
    is_finite,
    obs_violations,
    require_same,
)
from tests.helpers.strategies import (
    FEW,
    SCHEMA,
    Food,
    Point,
    Scene,
    Snake,
    Stance,
    World,
    scenes,
    untyped,
)

KINDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), min_size=1, max_size=12)


def snake(pos: object = None, stance: object = Stance.CALM, cooldowns: object = (1, 2.0)) -> Snake:
    here = Point(1.0, 2) if pos is None else pos
    return Snake(untyped(here), untyped(stance), True, untyped(cooldowns))


@given(told=KINDS)
def test_violations_that_differ_in_numbers_alone_are_one(told: list[tuple[str, int]]) -> None:
    violations = Violations("zoo")
    for step, (kind, number) in enumerate(told):
        violations.place = f"step {step}"
        violations.add(f"{kind} holds {number}")
    kinds = list(dict.fromkeys(kind for kind, _ in told))
    assert len(violations) == len(kinds)
    with pytest.raises(ContractError) as caught:
        violations.raise_if_any()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.name, again.problems) == ("zoo", caught.value.problems)
    for kind, problem in zip(kinds, caught.value.problems, strict=True):
        step = next(i for i, (other, _) in enumerate(told) if other == kind)
        count = sum(other == kind for other, _ in told)
        more = {1: "", 2: " (seen twice)"}.get(count, f" (seen {count} times)")
        assert problem == f"step {step}: {kind} holds {told[step][1]}{more}"


def test_nothing_found_raises_nothing_and_the_first_cause_is_kept() -> None:
    violations = Violations("zoo")
    violations.raise_if_any()
    first, second = KeyError("x"), OSError("y")
    violations.raised("reset", first)
    violations.raised("act", second)
    assert violations.extend(iter(["one", "two"])) == 2
    with pytest.raises(
        ContractError, match=r"4 violations(.|\n)*reset raised KeyError: 'x'"
    ) as caught:
        violations.raise_if_any()
    assert caught.value.__cause__ is first


@pytest.mark.parametrize(
    "value", [0, True, -1.5, np.int8(3), np.float32(1), np.bool_(True), 10**30]
)
def test_numbers_are_finite(value: object) -> None:
    assert is_finite(value)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, np.float32("-inf"), 10**400, "1", None, [1], 1j]
)
def test_anything_else_is_not(value: object) -> None:
    assert not is_finite(value)


def test_the_first_step_that_differs_is_named_and_no_other() -> None:
    rows = np.zeros((1, 2)), ("x", "y")
    one: Snapshot = {"the reward": (np.array(1.0), ()), "entity 'A'": rows}
    two: Snapshot = {"the reward": (np.array(2.0), ()), "entity 'A'": rows}
    less: Snapshot = {"the reward": (np.array(1.0), ())}
    assert difference(one, {**one}) is None
    assert difference(one, two) == "the reward is first 1. and then 2."
    assert difference(one, less) == "entity 'A' is missing the second time"
    assert difference(less, one) == "entity 'A' appears the second time"
    violations = Violations("zoo")
    require_same([("step 0", one), ("step 1", one)], [("step 0", one), ("step 1", one)], violations)
    assert len(violations) == 0
    require_same([("step 0", one), ("step 1", one)], [("step 0", two), ("step 2", one)], violations)
    with pytest.raises(ContractError, match=r"1 violation of .*\n.* step 0: the reward is first 1"):
        violations.raise_if_any()


@pytest.mark.parametrize("num_rows", [1, 40])
def test_the_feature_that_differs_is_named(num_rows: int) -> None:
    """Even if the text of all rows would not show it."""
    was, names = np.zeros((num_rows, 3)), ("x", "y", "z")
    now = was.copy()
    now[num_rows // 2, 1] = 7
    of_row = " of row 20" if num_rows > 1 else ""
    words = f"entity 'A': feature 'y'{of_row} is first 0.0 and then 7.0"
    assert difference({"entity 'A'": (was, names)}, {"entity 'A'": (now, names)}) == words
    more = np.zeros((num_rows + 2, 3))
    words = f"entity 'A' has first {num_rows} rows and then {num_rows + 2}"
    assert difference({"entity 'A'": (was, names)}, {"entity 'A'": (more, names)}) == words


@given(scene=scenes())
@FEW
def test_what_is_declared_is_no_violation(scene: Scene) -> None:
    assert obs_violations(scene.obs(), SCHEMA) == []


@pytest.mark.parametrize(
    ("entity", "violation"),
    [
        (snake(pos=(1.0, 2)), "entity Snake: field 'pos' holds (1.0, 2), declared Point"),
        (snake(pos=Point(1.0, untyped("2"))), "field 'pos.y' holds '2', declared int"),
        (snake(pos=Point(math.inf, 2)), "field 'pos.x' holds inf, expected a finite number"),
        (snake(pos=Point(1e39, 2)), "holds 1e+39, expected a finite number that fits float32"),
        (snake(stance="calm"), "holds 'calm', declared one of CALM, ANGRY, ASLEEP"),
        (snake(cooldowns=(1, 2.0, 3)), "field 'cooldowns' holds 3 items, declared 2: (1, 2.0, 3)"),
        (snake(cooldowns=7), "field 'cooldowns' holds 7, declared a tuple of 2"),
        (snake(cooldowns=(1, None)), "field 'cooldowns.1' holds None, declared float"),
        (Food(math.nan), "entity Food: field 'value' holds nan, expected a finite number"),
    ],
)
def test_each_value_that_is_not_declared_is_named(entity: object, violation: str) -> None:
    obs = Obs().entities([snake(), entity] if isinstance(entity, Snake) else [entity])
    (found,) = obs_violations(obs.globals(World(1.0, Stance.CALM)), SCHEMA)
    assert violation in found


@dataclass
class Narrow:
    half: np.float16
    byte: np.int8


@pytest.mark.parametrize("half", [np.float16(65504), np.float16(-1)])
def test_numbers_of_few_bits_fit(half: np.float16) -> None:
    schema = Schema((Narrow,), ())
    assert obs_violations(Obs().entities([Narrow(half, np.int8(-128))]), schema) == []
    (found,) = obs_violations(Obs().entities([Narrow(np.float16(np.inf), np.int8(1))]), schema)
    assert "expected a finite number" in found
