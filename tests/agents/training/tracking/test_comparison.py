"""Two runs are compared number by number; other differences are listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.training.tracking.comparison import compare_runs
from entity_env.agents.training.tracking.runs import TrainingRun, read_run
from entity_env.core.files import file_digest
from entity_env.errors import CheckpointError

ABOUT: dict[str, Any] = {
    "seed": 1,
    "versions": {"torch": "2.5", "numpy": "2"},
    "machine": {"host": "a", "cpu": "fast", "num_cpus": 2, "platform": "Linux"},
    "identity": {"sha256": "0" * 64},
    "num_threads": 1,
    "compiled_from_step": 0,
    "config": {"gamma": 0.99, "compile": "wait", "seed": 1},
    "settings": {"board_size": 6},
}
LINES = (
    '{"step": 8, "charts/steps_per_s": 1, "losses/policy": 0.5}',
    '{"step": 16, "charts/steps_per_s": 2, "losses/policy": 0.25, "episode/mean_reward": 1}',
)


def run_of(folder: Path, *lines: str, network: bytes = b"x", **about: object) -> TrainingRun:
    checkpoint = folder / SUBFOLDER
    checkpoint.mkdir(parents=True)
    (folder / "curves.jsonl").write_text("".join(f"{line}\n" for line in lines or LINES))
    (checkpoint / "model.safetensors").write_bytes(network)
    found = read_run(folder)
    return TrainingRun(folder, {**ABOUT, **about}, found.curves, found.clock)


@pytest.fixture(autouse=True)
def without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks in these tests are just a few bytes."""
    where = "entity_env.agents.training.tracking.comparison"

    def find(path: Path) -> Path:
        if not (path / SUBFOLDER).exists():
            raise CheckpointError("none")
        return path / SUBFOLDER

    monkeypatch.setattr(f"{where}.find_checkpoint", find)
    monkeypatch.setattr(
        f"{where}.network_digest", lambda path: file_digest(find(path) / "model.safetensors")
    )


def test_speed_and_host_may_differ(tmp_path: Path) -> None:
    fast = (LINES[0].replace("1,", "9,"), LINES[1])
    machine = {**ABOUT["machine"], "host": "b"}
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", *fast, machine=machine))
    assert found.is_equal
    assert (found.num_curves, found.num_steps, found.causes) == (2, 2, ())


def test_the_first_step_that_differs_is_named(tmp_path: Path) -> None:
    other = (LINES[0], LINES[1].replace("0.25", "0.2500000001"))
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", *other))
    assert not found.is_equal
    assert found.first_step == 16
    assert found.differing == (("losses/policy", "0.25", "0.2500000001"),)


def test_a_point_that_one_run_lacks_differs(tmp_path: Path) -> None:
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", LINES[0]))
    assert found.first_step == 16
    assert found.differing[0] == ("episode/mean_reward", "1.0", "none")


def test_an_evaluation_counts_where_both_runs_have_one(tmp_path: Path) -> None:
    """Evaluations are scheduled by their share of the time."""
    lines = [line.replace('"losses', '"evaluation/mean_reward": 1, "losses') for line in LINES]
    first = run_of(tmp_path / "a", *lines)
    assert compare_runs(first, run_of(tmp_path / "b", LINES[0], lines[1])).is_equal
    other = lines[1].replace('reward": 1, "loss', 'reward": 2, "loss')
    found = compare_runs(first, run_of(tmp_path / "c", LINES[0], other))
    assert found.differing == (("evaluation/mean_reward", "1.0", "2.0"),)


def test_evaluations_of_other_numbers_of_episodes_do_not_count(tmp_path: Path) -> None:
    runs = []
    for name, reward, count in (("a", 1, 20), ("b", 2, 9)):
        figures = f'"evaluation/mean_reward": {reward}, "evaluation/num_episodes": {count}, "losses'
        runs.append(run_of(tmp_path / name, *(line.replace('"losses', figures) for line in LINES)))
    assert compare_runs(runs[0], runs[1]).is_equal


@pytest.mark.parametrize("network", [b"y", None])
def test_the_network_counts(tmp_path: Path, network: bytes | None) -> None:
    second = run_of(tmp_path / "b", network=network or b"x")
    if network is None:
        (second.path / SUBFOLDER / "model.safetensors").unlink()
        (second.path / SUBFOLDER).rmdir()
    found = compare_runs(run_of(tmp_path / "a"), second)
    assert found.first_step is None
    assert not found.is_equal


@pytest.mark.parametrize(
    ("about", "cause"),
    [
        ({"versions": {"torch": "2.6", "numpy": "2"}}, "torch: 2.5, now 2.6"),
        ({"versions": {"torch": "2.5"}}, "numpy: 2, now none"),
        ({"machine": {**ABOUT["machine"], "cpu": "slow"}}, "cpu: fast, now slow"),
        ({"identity": {"sha256": "f" * 64}}, f"sha256 of the game: {'0' * 64}, now {'f' * 64}"),
        ({"num_threads": 2}, "num_threads: 1, now 2"),
        ({"compiled_from_step": 128}, "compiled_from_step: 0, now 128"),
        ({"compiled_from_step": None}, "compiled_from_step: 0, now none"),
        ({"config": {**ABOUT["config"], "gamma": 0.5}}, "gamma: 0.99, now 0.5"),
        ({"settings": {"board_size": 8}}, "board_size: 6, now 8"),
        ({"seed": 2}, "seed: 1, now 2"),
    ],
)
def test_what_is_not_the_same_is_named(tmp_path: Path, about: dict[str, Any], cause: str) -> None:
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", **about))
    assert found.causes == (cause,)


def test_how_it_was_compiled_is_named_once(tmp_path: Path) -> None:
    config = {**ABOUT["config"], "compile": 128}
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", config=config))
    assert found.causes == ()


def test_a_run_that_was_resumed_is_named(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", resumed=[["2026-01-01", 8]])
    assert "a was resumed" in compare_runs(first, run_of(tmp_path / "b")).causes[0]


def test_an_older_run_says_less(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a")
    older = TrainingRun(first.path, {"config": ABOUT["config"]}, first.curves, first.clock)
    causes = compare_runs(older, run_of(tmp_path / "b")).causes
    assert not any(cause.startswith(("num_threads", "compiled_from_step")) for cause in causes)
