"""tune_malloc keeps freed memory if the C library can; freeze_gc skips long-lived objects."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from entity_env.agents.training.process import freeze_gc, tune_malloc


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tune_malloc.cache_clear()
    # A new process has few objects; collecting those of all tests takes half a second.
    monkeypatch.setattr(gc, "collect", partial(gc.collect, 0))
    gc.unfreeze()
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.freeze()


def test_may_be_asked_for_twice() -> None:
    tune_malloc()
    tune_malloc()


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("no library is looked for")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    monkeypatch.setattr(sys, "platform", "darwin")
    tune_malloc()


def test_a_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(sys, "platform", "linux")
    tune_malloc()


@pytest.mark.slow
def test_what_there_is_counts_as_long_lived_until_the_end() -> None:
    assert not gc.get_freeze_count()
    with freeze_gc() as freeze:
        assert not gc.get_freeze_count()
        freeze()
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


def test_it_ends_with_an_error_too() -> None:
    def fail() -> None:
        with freeze_gc() as freeze:
            freeze()
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fail()
    assert not gc.get_freeze_count()


@pytest.mark.slow
def test_what_others_have_frozen_stays_so() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with freeze_gc() as freeze:
            freeze()
        assert gc.get_freeze_count() >= count - 10  # some of them may have been freed
    finally:
        gc.unfreeze()


def test_collections_are_rare_until_the_end() -> None:
    gc.set_threshold(700, 11, 12)
    with freeze_gc() as freeze:
        assert gc.get_threshold() == (700, 11, 12)
        freeze()
        assert gc.get_threshold() == (20_000, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("threshold", [0, 50_000])
def test_a_program_that_collects_never_or_less_often_keeps_its_threshold(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 10)
    with freeze_gc() as freeze:
        freeze()
        assert gc.get_threshold() == (threshold, 10, 10)
