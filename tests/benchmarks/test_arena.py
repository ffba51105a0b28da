"""Runs of `benchmarks/arena.py` are kept, measured once, and summarized."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import arena
from benchmarks.common import Median
from entity_env.agents.training.tracking.runs import REWARD, Curve


def test_each_part_of_a_run_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def run(module: str, *words: str) -> str:
        made.append(words[0] if module == "entity_env" else module)
        if words[0] == "train":
            Path(words[words.index("--out") + 1]).mkdir()
        if len(made) == 3:
            raise SystemExit("interrupted")
        if words[0] != "eval":
            return json.dumps({"decisions_per_s": float(len(made))})
        rows = [{"name": "starter"}, {"name": "run", "win_rate": 0.75, "num_games": 8}]
        return json.dumps({"agents": rows})

    monkeypatch.setattr(arena, "_run", run)
    monkeypatch.setattr(arena, "read_run", lambda _: SimpleNamespace(elapsed_s=90.0, step=7))
    task = arena.TASKS["orbit_wars"]
    run_folder = arena.trained(tmp_path, task, 1, None)
    with pytest.raises(SystemExit):
        arena.measured(run_folder, task, 8)
    assert arena.trained(tmp_path, task, 1, 60.0) == run_folder
    found = arena.measured(run_folder, task, 8)
    assert arena.measured(run_folder, task, 8) == found
    assert made == ["train", "eval", *["benchmarks.peers.arena_speed"] * 4]
    figures = arena.figures_of(task, [found, {**found, "vs_pct": 85.0}])
    assert figures["orbit_wars_vs_starter_pct"] == 80.0
    assert figures["orbit_wars_vs_starter_pct_least"] == 75.0
    assert figures["orbit_wars_minutes"] == 1.5
    speed = figures["orbit_wars_decisions_per_s"]
    assert isinstance(speed, Median)
    assert (speed.low, speed, speed.high) == (4.0, 5.0, 6.0)
    assert arena.trained(tmp_path, task, 1, 2.0) != run_folder
    assert made[-1] == "train"


def test_curves_leave_out_the_first_short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = Curve(np.arange(1, 1001) * 10, np.linspace(1, 0, 1000))
    monkeypatch.setattr(arena, "read_run", lambda _: SimpleNamespace(curves={REWARD: curve}))
    found = arena.curve_of(Path())
    assert 20 < len(found) < 200
    assert (found[0][0], found[-1]) == (1000, (10_000, 0.0))
