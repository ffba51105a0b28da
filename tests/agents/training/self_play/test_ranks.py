"""Opponents, callbacks, evaluations and recorders in a run with several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.training.test_peers import start_ranks, told_by

CODE = """
from entity_env.agents.ppo import Callback
from entity_env.agents.training.self_play.pool import OpponentPool
from entity_env.games import tic_tac_toe
from entity_env.vec import Evaluator, VecEnv

class Stops(Callback):
    num = 0
    def on_update(self, state):
        self.num += 1
        if rank == 1 and self.num == 3:
            state.stop("rank 1 says so")

class Points:
    def __init__(self):
        self.steps = []
    def start(self, run):
        pass
    def write(self, step, points):
        self.steps.append(step)
    def close(self):
        self.steps.append("closed")

def learn(resume):
    points = Points()
    endless = replace(config, total_steps=10**6, num_steps=8)
    with VecEnv(tic_tac_toe, 8) as vec:
        pool = OpponentPool(vec, tic_tac_toe.schema, {"self": 0.5, "random": 0.25},
                            snapshot_every=40)
        callbacks = [pool, Evaluator(tic_tac_toe, episodes=2, interval=50), Stops()]
        result = train(pool.vec, endless, out=out / "run", resume=resume, callbacks=callbacks,
                       recorders=[points])
    return [facts(result)[:6], result.stop_reason, points.steps]

class Fails(Callback):
    def on_update(self, state):
        if rank == 1:
            raise LookupError("boom")

tell("new", lambda: learn(False))
tell("resumed", lambda: learn(True))
tell("fails", lambda: facts(train(VecXor(), config, callbacks=[Fails()])))
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_ranks_play_against_opponents_and_stop_together(tmp_path: Path) -> None:
    first, second = told_by(start_ranks(CODE, str(tmp_path)))
    before = 0
    for name in ("new", "resumed"):
        (facts, reason, steps), (other_facts, other_reason, other_steps) = first[name], second[name]
        assert facts == other_facts
        assert reason == other_reason == "rank 1 says so"
        assert isinstance(steps, list)
        assert isinstance(facts, list)
        assert steps == [*sorted(steps[:-1]), "closed"]
        assert before < steps[0] < steps[-2] == facts[2]
        assert other_steps == []
        before = facts[2]
    folder = tmp_path / "run" / "opponents"
    kept = json.loads((folder / "pool.json").read_text())["self"]
    assert len(kept) >= 6
    assert {each["file"] for each in kept} == {path.name for path in folder.glob("*.agent")}
    assert (tmp_path / "run" / "best" / "config.json").exists()
    assert second["fails"] == ["LookupError", "boom"]
    assert first["fails"][0] == "WorkerError"
    assert "LookupError: boom" in str(first["fails"][1])
