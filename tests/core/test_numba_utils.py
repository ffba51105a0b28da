"""The existence of cached machine code is known before compilation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from entity_env.authoring.load_module import load_module

pytest.importorskip("numba")

from numba import config, njit

from entity_env.core.numba_utils import compiled, is_cached

SOURCE = """
from entity_env.core.numba_utils import compiled

@compiled()
def twice(x):
    return x + x
"""


def test_a_function_is_cached_once_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "doubling.py").write_text(SOURCE)
    module = load_module(tmp_path / "doubling.py")
    assert is_cached(module.twice) is False
    assert module.twice(21) == 42
    assert is_cached(module.twice) is True
    monkeypatch.setattr(
        type(module.twice.targetctx.codegen()), "magic_tuple", lambda _: ("another machine",)
    )
    assert is_cached(module.twice) is False


def test_what_cannot_be_kept_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.caching.FunctionCache.__init__", refuse)
    assert is_cached(compiled()(lambda x: x)) is None
    assert is_cached(njit(lambda x: x)) is None
    assert is_cached(sys.exit) is None
