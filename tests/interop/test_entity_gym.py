"""Tests without entity-gym; tests that need it are in tests/upstream, for `make interop`."""

from __future__ import annotations

import sys

import pytest

import entity_env.interop
from entity_env import MissingExtraError


def test_without_entity_gym_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "entity_gym", None)
    monkeypatch.delitem(sys.modules, "entity_env.interop.entity_gym", raising=False)
    with pytest.raises(MissingExtraError, match=r"entity-env\[entity-gym\]"):
        _ = entity_env.interop.entity_gym
