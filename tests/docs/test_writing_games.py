"""docs/reference/writing_games.md names every public member and keyword, and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache, reduce
from typing import Any

import pytest

import entity_env
from entity_env import agents, check
from entity_env.authoring.action_type import ActionType
from entity_env.games import snake
from tests import ROOT

PAGE = (ROOT / "docs/reference/writing_games.md").read_text("utf-8")
_CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")


@cache
def sections(page: str = PAGE) -> dict[str, list[tuple[str, str]]]:
    """By heading: the first header cell of a table, and all names in its first column."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = kind = ""
    for line in _CODE_BLOCK.sub("", page).splitlines():
        cells = [cell.strip() for cell in line.replace(r"\|", "/").split("|")][1:-1]
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif not cells:
            kind = ""
        elif not kind:
            kind = cells[0]
        else:
            found.setdefault(heading, []).extend((kind, name) for name in _SPAN.findall(cells[0]))
    return found


def public(path: str) -> Any:  # noqa: ANN401 - a class or function
    """A public name, with a dot for a member."""
    first, *rest = path.split(".")
    places = (entity_env, agents, check)
    found = next((getattr(each, first) for each in places if hasattr(each, first)), None)
    assert found is not None, f"{first} is not public in entity_env, entity_env.agents or .check"
    return reduce(getattr, rest, found)


def call_of(function: Any, name: str) -> str:  # noqa: ANN401 - a class or function
    """A call in the page's notation: `name(keyword=default)`, without annotations and `self`."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    return name + text.replace("/, ", "").replace(", /", "")


def keywords_of(cls: type) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    is_many = inspect.Parameter.VAR_POSITIONAL
    return ["*" * (each.kind is is_many) + each.name for each in parameters]


def members_of(cls: type) -> Iterator[str]:
    """Public methods and attributes that are not constructor keywords."""
    example: object = snake if cls is entity_env.Game else cls
    for name in dir(example):
        if not name.startswith("_") and name not in keywords_of(cls):
            member = getattr(cls, name, None)
            is_call = inspect.isfunction(member)
            yield call_of(member, f".{name}") if is_call else f".{name}"


CLASSES = [heading.strip("`") for heading in sections() if _SPAN.fullmatch(heading)]


def test_the_classes_that_a_game_is_written_with_have_sections() -> None:
    assert {"Game", "Obs", "Agent", "Pending", "Features", "Episode", "Turn"} <= {*CLASSES}


@pytest.mark.parametrize("name", CLASSES)
def test_every_keyword_and_member_is_a_row(name: str) -> None:
    cls, rows = public(name), sections()[f"`{name}`"]
    if not getattr(cls, "_is_protocol", False):
        assert [row for kind, row in rows if kind == "keyword"] == keywords_of(cls)
    listed = [row for kind, row in rows if kind in ("call", "attribute") and row.startswith(".")]
    assert sorted(listed) == sorted(members_of(cls))


def test_every_function_is_called_with_its_keywords() -> None:
    calls = [
        row
        for rows in sections().values()
        for kind, row in rows
        if kind == "call" and "(" in row and not row.startswith(".")
    ]
    assert len(calls) > 8
    for call in calls:
        path = call.partition("(")[0]
        assert call == call_of(public(path), path)


def test_actions_and_functions_have_rows() -> None:
    rows = {row for each in sections().values() for _, row in each}
    public_types = [getattr(entity_env, name) for name in dir(entity_env)]
    actions = {
        each.__name__
        for each in public_types
        if isinstance(each, type) and issubclass(each, ActionType) and each is not ActionType
    }
    functions = {"RandomAgent", "HumanAgent", "load_agent", "against", "check_game"}
    assert len(actions) > 2
    assert actions | functions <= {row.partition("(")[0] for row in rows}


def test_methods_in_the_text_exist() -> None:
    known = {name for cls in map(public, CLASSES) for name in dir(cls)}
    text = _CODE_BLOCK.sub("", PAGE)
    named = {name for span in _SPAN.findall(text) for name in re.findall(r"\.(\w+)\(", span)}
    assert named - known == {"Random", "choose", "begin_episode"}
