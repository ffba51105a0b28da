"""The folder of a run: written data is read back; damage is skipped or reported in a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from entity_env.agents.intervals import student_t95
from entity_env.agents.ppo import Callback, Losses, PPOConfig, TrainProgress, TrainState, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.training.tracking import run_writer
from entity_env.agents.training.tracking.rewards import MeanReward
from entity_env.agents.training.tracking.run_writer import curve_writer, end_run, write_run
from entity_env.agents.training.tracking.runs import (
    CURVES_FILE,
    EVALUATED,
    REWARD,
    RUN_FILE,
    TrainingRun,
    read_about,
    read_run,
    replays_of,
)
from entity_env.authoring.identity import identity_of
from entity_env.core.validation import has_numba
from entity_env.core.vec_obs import Metric
from entity_env.errors import CheckpointError, EntityEnvError, UsageError
from entity_env.games import snake
from entity_env.vec import VecEnv
from tests.agents.ppo.small_envs import VecXor

CONFIG = PPOConfig(
    total_steps=512,
    net=RogueNetConfig(d_model=8, n_layer=1, n_head=1),
    num_steps=2,
    minibatch_size=64,
    update_epochs=1,
)
in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
numbers = st.floats(-1e100, 1e100) | st.sampled_from([math.nan, math.inf, -math.inf])


@pytest.fixture
def has_events() -> None:
    """Fixture for tests of TensorBoard's files."""


@pytest.fixture(autouse=True)
def without_events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables TensorBoard's files, which take most of the time, except in one test."""
    if "has_events" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)


def progress(step: int, reward: float = 1.0, entropy: float = 0.5) -> TrainProgress:
    losses = Losses(entropy=entropy)
    return TrainProgress(step, 10**6, mean_reward=reward, losses=losses, elapsed_s=step / 8)


def write(out: Path, points: list[tuple[int, float]], begin: int = 0) -> None:
    with curve_writer(out, begin) as write_curves:
        for step, reward in points:
            write_curves(progress(step, reward), {}, {})


def rewards(out: Path) -> list[tuple[int, float]]:
    found = read_run(out).curves.get(REWARD)
    return [] if found is None else list(zip(*(each.tolist() for each in found), strict=True))


# ------------------------------------------------------------------ contents of run.json


@pytest.mark.slow
def test_a_run_from_python_says_what_it_is_and_where_it_was_made(tmp_path: Path) -> None:
    game = snake.with_settings(board_size=5)
    with VecEnv(game, 8) as vec:
        train(vec, dataclasses.replace(CONFIG, total_steps=32), out=tmp_path)
    about = read_about(tmp_path)
    assert about["identity"] == identity_of(game)
    assert about["game_name"] == "snake"
    assert about["settings"] == {"board_size": 5}
    assert about["command"] == sys.argv
    assert about["machine"].keys() == {"host", "platform", "cpu", "num_cpus"}
    assert all(about["machine"].values())
    assert about["versions"].keys() >= {"python", "numpy", "torch"}
    assert (about["num_envs"], about["num_workers"], about["num_ranks"]) == (8, 0, 1)
    assert about["num_threads"] == torch.get_num_threads()
    assert (about["steps"], about["compiled_from_step"]) == (32, 0 if has_numba() else None)
    assert about["began"] <= about["ended"]


def test_a_run_that_fails_has_an_end_and_a_killed_one_has_none(tmp_path: Path) -> None:
    class Failing(Callback):
        def on_update(self, run: TrainState) -> None:
            assert "ended" not in read_about(tmp_path)
            if run.progress.update == 2:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        train(VecXor(64), CONFIG, out=tmp_path, callbacks=[Failing()])
    about = read_about(tmp_path)
    assert about["steps"] == 256
    assert "ended" in about


def test_an_end_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_run(tmp_path, CONFIG, 0, {})
    gone = tmp_path / "file"
    gone.write_text("")
    end_run(gone, run, 1, {})
    assert "cannot write" in caplog.text
    end_run(None, run, 1, {})


def test_a_run_that_goes_on_has_no_end(tmp_path: Path) -> None:
    end_run(tmp_path, write_run(tmp_path, CONFIG, 0, {}), 8, {"compiled_from_step": 4})
    about = write_run(tmp_path, CONFIG, 8, {}).about
    assert "ended" not in about
    assert about["compiled_from_step"] == 4


# ------------------------------------------------------------------ writing and reading


def test_a_notebook_shows_the_curve_and_stores_a_short_text(tmp_path: Path) -> None:
    write(tmp_path, [(10 * i, float(i)) for i in range(1, 100)])
    run = read_run(tmp_path)
    svg = run._repr_svg_()
    assert svg.count("<polyline ") == 1
    assert f"{tmp_path.name}: mean episode reward" in svg
    assert len(repr(run)) < len(str(tmp_path)) + 60
    assert "no points" in TrainingRun(tmp_path)._repr_svg_()


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=20))
@in_a_folder
def test_curves_are_read_back(tmp_path: Path, points: list[tuple[float, float, float]]) -> None:
    (tmp_path / CURVES_FILE).unlink(missing_ok=True)
    with curve_writer(tmp_path) as write_curves:
        for i, (reward, entropy, mean) in enumerate(points):
            metric = Metric()
            metric.push(mean)
            write_curves(progress(i + 1, reward, entropy), {"a/b": metric}, {"recorded": reward})
    run = read_run(tmp_path)
    assert run.num_broken == 0
    assert run.clock.steps.tolist() == list(range(1, len(points) + 1))
    assert run.clock.values.tolist() == [round((i + 1) / 8, 3) for i in range(len(points))]
    for name, column in (
        (REWARD, 0),
        ("recorded", 0),
        ("losses/entropy", 1),
        ("metrics/a/b.max", 2),
    ):
        told = [(i + 1, each[column]) for i, each in enumerate(points)]
        finite = [(step, value) for step, value in told if math.isfinite(value)]
        found = run.curves.get(name)
        assert (found is None) == (not finite)
        if found is not None:
            assert list(zip(*(each.tolist() for each in found), strict=True)) == finite


@given(
    num_before=st.integers(0, 12),
    checkpoint=st.integers(0, 12),
    num_after=st.integers(0, 5),
    cut=st.integers(0, 400),
)
@in_a_folder
def test_a_resumed_run_has_every_step_once(
    tmp_path: Path, num_before: int, checkpoint: int, num_after: int, cut: int
) -> None:
    """However much of the file is left after a kill, and whatever follows the checkpoint."""
    path = tmp_path / CURVES_FILE
    path.unlink(missing_ok=True)
    write(tmp_path, [(10 * i, float(i)) for i in range(1, num_before + 1)])
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut)])
    left = content[: max(0, len(content) - cut)].count(b"\n")
    assert [step for step, _ in rewards(tmp_path)] == [10 * i for i in range(1, left + 1)]
    later = [(10 * (checkpoint + i), -1.0) for i in range(1, num_after + 1)]
    write(tmp_path, later, begin=10 * checkpoint)
    kept = [(10 * i, float(i)) for i in range(1, min(left, checkpoint) + 1)]
    assert rewards(tmp_path) == [*kept, *later]
    assert read_run(tmp_path).num_broken == 0


def test_a_later_line_supersedes(tmp_path: Path) -> None:
    lines = [{"step": step, REWARD: value} for step, value in ((1, 1.0), (3, 2.0), (2, 3.0))]
    (tmp_path / CURVES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rewards(tmp_path) == [(1, 1.0), (2, 3.0)]


@pytest.mark.slow
def test_training_writes_its_settings_and_goes_on_with_its_curves(tmp_path: Path) -> None:
    def fail(progress: TrainProgress) -> None:
        if progress.update == 3:
            raise RuntimeError("the display broke")

    about = {"game": "xor", "settings": {"size": 3, "path": Path("a")}}
    with pytest.raises(RuntimeError, match="the display broke"):
        train(VecXor(64), CONFIG, out=tmp_path, on_update=fail, about=about)
    first = json.loads((tmp_path / RUN_FILE).read_text())
    assert first["game"] == "xor"
    assert first["settings"] == {"size": 3, "path": "a"}
    assert first["num_rows"] == 64
    assert first["resumed"] == []
    assert {"python", "numpy", "torch", "entity-env"} <= first["versions"].keys()
    assert PPOConfig.from_json(first["config"]) == CONFIG
    # After a kill: two updates after the checkpoint, and half a line.
    with (tmp_path / CURVES_FILE).open("a") as file:
        file.write('{"step": 512, "elapsed_s": 9}\n{"step": 640, "elapsed_s": 9}\n{"step": 7')
    train(VecXor(64), CONFIG, out=tmp_path, resume=True, about=about)
    run = read_run(tmp_path)
    assert run.clock.steps.tolist() == [128, 256, 384, 512]
    assert np.all(np.diff(run.clock.values) >= 0)
    assert (run.step, run.game, run.seed, run.num_broken) == (512, "xor", 1, 0)
    assert run.about["began"] == first["began"]
    resumed: Any = run.about["resumed"]
    assert [step for _, step in resumed] == [384]
    assert run.settings()["size"] == 3
    assert run.settings()["net.d_model"] == 8


def test_a_library_run_without_tensorboard(tmp_path: Path) -> None:
    result = train(VecXor(64), CONFIG, out=tmp_path)
    assert not (tmp_path / "tensorboard").exists()
    run = read_run(tmp_path)
    assert run.game == ""
    figures = result.progress
    assert run.final_reward == MeanReward.of(
        figures.mean_reward, figures.std_reward, figures.window, figures.step
    )


@pytest.mark.slow
def test_a_folder_with_only_a_checkpoint_is_a_run_without_curves(tmp_path: Path) -> None:
    train(VecXor(64), CONFIG, out=tmp_path)
    (tmp_path / RUN_FILE).unlink()
    (tmp_path / CURVES_FILE).unlink()
    run = read_run(tmp_path)
    assert (run.step, run.seed, run.curves, run.final_reward) == (512, 1, {}, None)
    assert run.settings()["gamma"] == CONFIG.gamma
    more = dataclasses.replace(CONFIG, total_steps=640)
    train(VecXor(64), more, out=tmp_path, resume=True)
    run = read_run(tmp_path)
    assert run.clock.steps.tolist() == [640]
    assert run.about["began"] is None


@pytest.mark.parametrize(
    ("name", "content"), [(RUN_FILE, "{}"), (RUN_FILE, "mine"), (CURVES_FILE, "my notes\n")]
)
def test_files_of_others_stay(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match="move it away"):
        train(VecXor(), CONFIG, out=tmp_path)
    assert (tmp_path / name).read_text() == content


@pytest.mark.parametrize("name", [RUN_FILE, CURVES_FILE])
def test_folders_in_the_way_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=name):
        train(VecXor(), CONFIG, out=tmp_path)


def _full_disk() -> IO[bytes]:
    return open("/dev/full", "ab")


def test_curves_on_a_full_disk_name_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "open", lambda *_: _full_disk(), raising=False)
    with (
        pytest.raises(OSError, match="No space left") as caught,
        curve_writer(tmp_path) as write_curves,
    ):
        write_curves(progress(1), {}, {})
    assert caught.value.filename == str(tmp_path / CURVES_FILE)


# ------------------------------------------------------------------ figures


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_the_interval_is_that_of_the_mean(values: list[float]) -> None:
    found = MeanReward.of(statistics.fmean(values), statistics.pstdev(values), len(values))
    expected = student_t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    assert found.ci95 == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_one_episode_has_no_interval() -> None:
    assert str(MeanReward.of(0.5, 0.0, 1)) == "0.500"
    assert str(MeanReward.of(0.5, 1.0, 101)) == "0.500 ± 0.198"
    assert str(MeanReward.of(0.5, 1.0, 5)) == "0.500 ± 1.388"


def test_a_mean_of_short_episodes_has_no_interval() -> None:
    found = MeanReward.of(1.0, 0.5, 132, unfinished=0.9)
    assert (str(found), found.words) == ("1.000", "1.000 (132 finished episodes only)")
    assert found.is_biased
    assert (
        MeanReward.of(1.0, 0.5, 132, unfinished=0.01).words == "1.000 ± 0.086 (95 %, 132 episodes)"
    )


def test_evaluations_are_those_of_the_curves(tmp_path: Path) -> None:
    lines = [
        {"step": 10, REWARD: 9.0, EVALUATED: 3.0, **_evaluated(1.0)},
        {"step": 20, REWARD: 9.5, EVALUATED: 3.0, **_evaluated(2.0)},
        {"step": 30, REWARD: 9.9, EVALUATED: 2.0, **_evaluated(0.5)},
        {"step": 40, REWARD: 10.0},
    ]
    text = "".join(json.dumps({**line, "elapsed_s": 1}) + "\n" for line in lines)
    (tmp_path / CURVES_FILE).write_text(text)
    run = read_run(str(tmp_path))
    last = MeanReward.of(2.0, 0.5, 20, 30)
    assert run.final_evaluation == run.score == last
    assert run.best_evaluation == MeanReward.of(3.0, 2.0, 20, 20)
    assert run.final_reward is not None
    assert (run.final_reward.mean, run.final_reward.step) == (10, 40)
    (tmp_path / CURVES_FILE).write_text(json.dumps({"step": 1, REWARD: 2.0}) + "\n")
    run = read_run(tmp_path)
    assert (run.final_evaluation, run.best_evaluation) == (None, None)
    assert run.score == run.final_reward


def _evaluated(deviation: float) -> dict[str, float]:
    return {"evaluation/std_reward": deviation, "evaluation/num_episodes": 20}


def test_runs_that_differ_in_the_seed_are_one_group(tmp_path: Path) -> None:
    def group(name: str, game: str = "snake", **changes: Any) -> object:  # noqa: ANN401
        folder = tmp_path / name
        folder.mkdir()
        write_run(folder, dataclasses.replace(CONFIG, **changes), 0, {"game": game, "num_envs": 4})
        return read_run(folder).group()

    first = group("a")
    assert group("b", seed=2) == first
    assert group("c", seed=3, num_threads=2, checkpoint_interval_s=1.0) == first
    others = [
        group("d", gamma=0.5),
        group("e", game="azul"),
        group("f", net=RogueNetConfig(d_model=16, n_layer=1, n_head=1)),
        TrainingRun(tmp_path / "x").group(),
        TrainingRun(tmp_path / "y").group(),
    ]
    assert len({first, *others}) == 6


def test_replays_lie_along_the_run(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path)
    assert replays_of(run) == []
    folder = tmp_path / "replays"
    folder.mkdir()
    for name in ("step-000020.replay", "step-000003.replay", "best.replay", "step-.replay"):
        (folder / name).touch()
    (folder / "loop.replay").symlink_to("loop.replay")
    assert replays_of(run) == [
        (3, folder / "step-000003.replay"),
        (20, folder / "step-000020.replay"),
    ]


# ------------------------------------------------------------------ hostile files

json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
lines = (
    st.binary().map(lambda raw: raw.replace(b"\n", b" ").replace(b"\r", b" "))
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["step", REWARD, "elapsed_s"]), json_values).map(
        lambda value: json.dumps(value).encode()
    )
    | st.sampled_from(
        [
            b'{"step": 1' + b"0" * 30 + b', "episode/mean_reward": 1}',
            b'{"step": -1, "episode/mean_reward": 1}',
            b'{"step": true, "episode/mean_reward": 1}',
            b'{"step": 5, "episode/mean_reward": 1e999}',
            b'{"step": 5, "episode/mean_reward": ' + b"9" * 5000 + b"}",
            b'{"step": 5, "episode/mean_reward": ' + b"9" * 400 + b"}",
            b"[" * 900,
            b'{"step": 5, "episode/mean_reward": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        ]
    )
)


@given(st.lists(lines, max_size=8))
@in_a_folder
def test_damaged_lines_are_left_out(tmp_path: Path, damaged: list[bytes]) -> None:
    good = [b'{"step": 9000000000000000001, "episode/mean_reward": 2.5, "elapsed_s": 1}']
    (tmp_path / CURVES_FILE).write_bytes(b"".join(line + b"\n" for line in [*damaged, *good]))
    run = read_run(tmp_path)
    assert run.num_broken <= len(damaged)
    reward = run.final_reward
    assert reward is not None
    assert (reward.mean, run.step) == (2.5, 9000000000000000001)
    for curve in (run.clock, *run.curves.values()):
        assert np.all(np.diff(curve.steps) > 0)
        assert np.isfinite(curve.values).all()


@given(json_values | st.dictionaries(st.sampled_from(["game", "config", "settings"]), json_values))
@in_a_folder
def test_any_json_is_a_run_or_a_sentence(tmp_path: Path, data: object) -> None:
    is_run = isinstance(data, dict)
    if isinstance(data, dict):
        data["format"] = "entity_env.run"
    (tmp_path / RUN_FILE).write_text(json.dumps(data))
    try:
        run = read_run(tmp_path)
    except EntityEnvError:
        assert not is_run
        return
    assert is_run
    assert isinstance(run.game, str)
    hash(run.group())
    for value in run.settings().values():
        assert isinstance(value, str | int | float | bool | None)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, '{"format": "x"}', "\0"])
def test_a_damaged_run_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN_FILE).write_text(content)
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        read_run(tmp_path)


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a training run: it has no run\.json"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="is not a training run: it is not a folder"):
        read_run(tmp_path / "nothing")
