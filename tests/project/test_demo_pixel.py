"""The pixel demo trains, reports results, and plays; the agent learns the maze."""

from pathlib import Path

import pytest

from entity_env.agents import load_agent
from entity_env.games import pixel_maze
from examples import demo_pixel

pytest.importorskip("torch")


@pytest.mark.slow
def test_it_trains_compares_and_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_pixel, "EVAL_EPISODES", 2)
    for _ in range(2):  # the second time over the files of the first
        demo_pixel.main(tmp_path / "demo", steps=512)
    shown = capsys.readouterr().out
    assert "$ entity-env train pixel:maze --seed=1" in shown
    assert "step 512 of 512" in shown
    assert "the shortest way takes 15 steps" in shown
    assert "random agent   reward" in shown
    assert "trained agent  reward" in shown
    assert "pixel:maze  episode 1" in shown
    assert (tmp_path / "demo" / "checkpoint" / "config.json").exists()


@pytest.mark.slow
def test_it_stops_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo_pixel.main(tmp_path / "demo", steps=10**9, limit_s=1)
    shown = capsys.readouterr().out
    assert "stopped: max_train_time_s=1 is over" in shown
    assert "pixel:maze  episode 1" in shown


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_agent_learns_the_maze(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo_pixel.main(tmp_path / "demo")
    del capsys
    [episode] = pixel_maze.run(load_agent(tmp_path / "demo", greedy=True, seed=1), seed=2)
    assert episode.terminated
    assert episode.length < 25
