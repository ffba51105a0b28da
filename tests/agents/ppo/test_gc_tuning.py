"""Freed memory is kept, where the C library can do that; what lives long is passed over."""

import ctypes
import gc
import sys

import pytest

from entity_env.agents.ppo.gc_tuning import keep_freed_memory, settled


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


def test_what_there_is_counts_as_long_lived_until_the_end() -> None:
    assert not gc.get_freeze_count()
    with settled() as settle:
        assert not gc.get_freeze_count()
        settle()
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


def test_it_ends_with_an_error_too() -> None:
    def fail() -> None:
        with settled() as settle:
            settle()
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fail()
    assert not gc.get_freeze_count()


def test_what_others_have_frozen_stays_so() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with settled() as settle:
            settle()
        assert gc.get_freeze_count() >= count - 10  # some of them may have been freed
    finally:
        gc.unfreeze()
