"""Figures of `entity-env bench`, with a clock that advances by 1 s per reading."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from entity_env.cli.commands import info
from entity_env.games import rock_paper_scissors


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "time", SimpleNamespace(perf_counter=count().__next__))


def test_one_game_counts_every_decision_of_all_agents() -> None:
    game = rock_paper_scissors.with_settings(num_rounds=3)
    # Read at 0, 1, 2 (two episodes), 3 (stop), 4 (end): 2 * 3 rounds * 2 agents in 4 s.
    assert info._direct(game, 2.5) == 2 * 3 * 2 / 4


def test_many_environments_count_a_step_each() -> None:
    rate, _ = info._vectorized(rock_paper_scissors, 8, 2.5)
    assert rate == 2 * 8 / 4  # two steps, in 4 s as above
