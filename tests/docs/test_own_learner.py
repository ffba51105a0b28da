"""docs/reference/own_learner.md names every field of a learner's input, with its dtype."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import entity_env
from entity_env import Episode, RaggedArray, VecObs, vec
from entity_env.agents import random_actions
from entity_env.core import vec_obs
from entity_env.core.ragged import RaggedTensor
from entity_env.games import cherry_pick, multi_snake
from entity_env.vec import ReplayBuffer, Transitions, VecEnv
from tests import ROOT
from tests.docs.test_writing_games import call_of, sections

PAGE = (ROOT / "docs/reference/own_learner.md").read_text("utf-8")
CLASSES = [heading.strip("`") for heading in sections(PAGE) if heading.startswith("`")]
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)
_DTYPE = re.compile(r"\b(?:float|int|uint)\d+\b|\bbool\b")


def public(name: str) -> type:
    found: type = next(
        getattr(each, name) for each in (entity_env, vec, vec_obs) if hasattr(each, name)
    )
    return found


def fields_of(cls: type) -> list[str]:
    if cls is RaggedArray:
        return ["values", "lengths"]
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]  # a NamedTuple
    return list(fields)


def members_of(cls: type) -> Iterator[str]:
    """Public methods and properties, in the page's notation."""
    for name in dir(cls):
        if not name.startswith("_") and name not in fields_of(cls):
            member = getattr(cls, name)
            yield call_of(member, f".{name}") if callable(member) else f".{name}"


def dtypes_of(cls: str) -> dict[str, set[str]]:
    """The documented dtypes, by field."""
    text = PAGE.partition(f"## `{cls}`")[2].partition("\n## ")[0]
    return {name: set(_DTYPE.findall(shape)) for name, shape in _ROW.findall(text)}


def test_everything_that_a_learner_gets_has_a_section() -> None:
    masks = {each.__name__ for each in vec_obs.VecActionMask.__args__}
    assert {"VecObs", "Transitions", "Episode", "RaggedArray", "ObsTensors"} | masks == {*CLASSES}


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_is_a_row(name: str) -> None:
    rows = sections(PAGE)[f"`{name}`"]
    assert [row for kind, row in rows if kind == "field"] == fields_of(public(name))


@pytest.mark.parametrize("cls", [VecObs, RaggedArray])
def test_every_call_is_a_row(cls: type) -> None:
    rows = sections(PAGE)[f"`{cls.__name__}`"]
    listed = [row for kind, row in rows if kind == "call or attribute"]
    assert sorted(listed) == sorted(members_of(cls))


@cache
def batches() -> list[VecObs]:
    """A batch with finished episodes, for games with each kind of mask."""
    found, rng = [], np.random.default_rng(0)
    for game in (multi_snake.with_settings(board_size=5), cherry_pick):
        with VecEnv(game, 8, seed=1) as many:
            obs = many.reset()
            while obs.final is None:
                obs = many.act(random_actions(obs, many.action_space(), rng))
            found.append(obs.copy())
    return found


@pytest.mark.parametrize(
    "name", ["VecObs", *(f"Vec{n}ActionMask" for n in ("Categorical", "SelectEntity"))]
)
def test_dtypes_are_those_of_a_batch(name: str) -> None:
    said = dtypes_of(name)
    for obs in batches():
        for owner in (obs, *obs.action_masks.values()):
            if type(owner).__name__ != name:
                continue
            for field, dtypes in said.items():
                value = getattr(owner, field)
                values = value.values() if isinstance(value, dict) else [value]
                for each in values:
                    array = each.values if isinstance(each, RaggedArray) else each
                    if isinstance(array, np.ndarray):
                        assert {str(array.dtype)} == dtypes, field


def test_dtypes_are_those_of_an_episode() -> None:
    [episode, *_] = batches()[0].episodes
    types = {field: type(getattr(episode, field)).__name__ for field in fields_of(Episode)}
    said = dict(_ROW.findall(PAGE.partition("## `Episode`")[2]))
    assert {**said, "metrics": "dict"} == types


def test_transitions_are_as_on_the_page() -> None:
    buffer, rng = ReplayBuffer(50), np.random.default_rng(0)
    with VecEnv(cherry_pick, 4) as many:
        obs = many.reset().copy()
        actions = random_actions(obs, many.action_space(), rng)
        buffer.add(obs, actions, many.act(actions))
    found = buffer.sample(3, rng)
    assert isinstance(found, Transitions)
    assert (len(found.obs), len(found.next_obs)) == (3, 3)
    assert {str(each.values.dtype) for each in found.actions.values()} == {"int64"}


def test_ragged_tensors_have_what_the_page_says() -> None:
    said = re.search(r"`RaggedTensor`: (.*) \|", PAGE)
    assert said is not None
    assert re.findall(r"`(\w+)`", said[1]) == list(RaggedTensor._fields)
