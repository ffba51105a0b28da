"""Freed memory is kept, where the C library can do that."""

import ctypes
import sys

import pytest

from entity_env.agents.ppo.memory import keep_freed_memory


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    keep_freed_memory.cache_clear()


def test_may_be_asked_for_twice() -> None:
    keep_freed_memory()
    keep_freed_memory()


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("no library is looked for")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    monkeypatch.setattr(sys, "platform", "darwin")
    keep_freed_memory()


def test_a_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(sys, "platform", "linux")
    keep_freed_memory()
