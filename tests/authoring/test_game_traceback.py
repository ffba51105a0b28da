"""Tracebacks of games as text."""

from collections.abc import Callable
from typing import Any

import pytest

from entity_env import Obs
from entity_env.authoring.game_traceback import suggestion_of, trace_of

OBS: Any = Obs()
NUMBERS: Any = []


class Odd:
    """Lists no attributes."""

    def __dir__(self) -> list[str]:
        raise RuntimeError


def misspelled_name() -> None:
    observation = Obs()
    observatoin.entities([])  # type: ignore[name-defined]  # noqa: F821
    del observation


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("call", "suggestion"),
    [
        (lambda: OBS.entity([]), ". Did you mean: 'entities'?"),
        (lambda: OBS.actor([]), ". Did you mean: 'actors'?"),
        (lambda: NUMBERS.apend(1), ". Did you mean: 'append'?"),
        (misspelled_name, ". Did you mean: 'observation'?"),
        (lambda: OBS.fly_to_the_moon, ""),
        (lambda: NUMBERS[3], ""),
    ],
)
def test_misspelled_names_are_suggested(call: Callable[[], object], suggestion: str) -> None:
    error = error_of(call)
    assert suggestion_of(error) == suggestion
    error.add_note("a note")
    message, note = trace_of(error).splitlines()[-2:]
    assert message == f"{type(error).__name__}: {error}{suggestion}"
    assert note == "a note"


def test_objects_without_a_list_of_attributes_get_no_suggestion() -> None:
    error = error_of(lambda: Odd().speed)  # type: ignore[attr-defined]
    assert trace_of(error).endswith(f"AttributeError: {error}")
