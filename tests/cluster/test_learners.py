import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from entity_env.cluster.learners import RunControl, run_learners
from entity_env.errors import CheckpointError, UsageError, WorkerError
from tests import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


class Counted(NamedTuple):
    step: int
    total: float
    restarts: int
    was_stopped: bool


def count(
    control: RunControl,
    out: Path,
    num_steps: int,
    at_step: Callable[[int, int], object] = lambda rank, step: None,
) -> Counted:
    """Adds up the number of learners at each step, with a checkpoint every tenth step."""
    import torch
    import torch.distributed as dist

    assert os.environ["TORCHELASTIC_RESTART_COUNT"] == str(control.restarts)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    file = out / "checkpoint.json"
    step, total = json.loads(file.read_text()) if control.restarts else (0, 0.0)
    logging.getLogger("entity_env.count").warning("rank %d begins at %d", control.rank, step)
    was_stopped = False
    while step < num_steps and not was_stopped:
        sums = torch.tensor([1.0, float(control.stop_requested())])
        dist.all_reduce(sums)
        step, total, was_stopped = step + 1, total + sums[0].item(), bool(sums[1])
        at_step(control.rank, step)
        if control.rank == 0 and (step % 10 == 0 or was_stopped):
            new = file.with_suffix(".new")
            new.write_text(json.dumps([step, total]))
            new.replace(file)
        control.report((step, total))
        time.sleep(0.02)
    return Counted(step, total, control.restarts, was_stopped)


def kill_once(marks: Path, deaths: set[tuple[int, int]], rank: int, step: int) -> None:
    mark = marks / f"{rank}-{step}"
    if (rank, step) in deaths and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def fail(error: Exception, rank: int, step: int) -> None:
    if (rank, step) == (1, 5):
        raise error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_learners": 0}, "number of learners must be at least 1, got 0"),
        ({"num_learners": 1, "max_failures": -1}, "number of failures must be at least 0, got -1"),
    ],
)
def test_numbers_are_checked_first(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=message):
        run_learners(lambda _: None, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def train_xor(control: RunControl, out: Path) -> tuple[int, int, int, float]:
    """Trains; rank 1 dies in its fifth update, the first time."""
    from entity_env.agents.ppo import PPOConfig, TrainProgress, train
    from entity_env.agents.rogue_net import RogueNetConfig
    from tests.agents.ppo.small_envs import VecXor

    updates: list[int] = []

    def on_update(progress: TrainProgress) -> None:
        updates.append(progress.update)
        kill_once(out, {(1, 5)}, control.rank, progress.update)

    net = RogueNetConfig(d_model=16, n_layer=1)
    config = PPOConfig(total_steps=8 * 256, net=net, num_steps=2, checkpoint_interval_s=0)
    resume = control.restarts > 0
    result = train(VecXor(), config, out=out, resume=resume, on_update=on_update)
    weights = sum(float(each.double().sum()) for each in result.net.state_dict().values())
    return updates[0], updates[-1], result.progress.step, weights


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_training_goes_on_from_the_checkpoint_after_a_death(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    first, last, step, _ = run_learners(
        partial(train_xor, out=tmp_path),
        address="local",
        num_learners=2,
        max_failures=1,
        out=tmp_path,
    )
    assert first in (5, 6)
    assert (last, step) == (8, 8 * 256)
    assert (tmp_path / "1-5").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_learners_resume_after_deaths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("ray")
    updates: list[tuple[int, float]] = []
    kill = partial(kill_once, tmp_path, {(1, 25), (0, 45)})
    result = run_learners(
        partial(count, out=tmp_path, num_steps=60, at_step=kill),
        address="local",
        num_learners=2,
        max_failures=2,
        out=tmp_path,
        on_update=updates.append,
    )
    assert result == Counted(60, 120.0, restarts=2, was_stopped=False)
    assert updates[0] == (1, 2.0)
    assert updates[-1] == (60, 120.0)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if text.startswith("rank")] == [
        f"rank 0 begins at {step}" for step in (0, 20, 40)
    ]
    deaths = [text for text in warnings if " died: " in text]
    assert [text[:14] for text in deaths] == ["learner 1 of 2", "learner 0 of 2"]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.json", "1-25", "0-45"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_errors_of_a_learner_are_those_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from entity_env.cluster.session import connect

    def run(error: Exception, max_failures: int) -> None:
        run_learners(
            partial(count, out=tmp_path, num_steps=60, at_step=partial(fail, error)),
            num_learners=2,
            max_failures=max_failures,
            out=tmp_path,
        )

    with connect("local", num_cpus=2):
        with pytest.raises(CheckpointError, match=r"^of another game$"):
            run(CheckpointError("of another game"), 3)  # not restarted, because it would fail again
        with pytest.raises(WorkerError, match=r"^learner 1 of 2 on .*: KeyError: 'x'\n") as caught:
            run(KeyError("x"), 0)
    assert "in fail" in caught.value.game_traceback


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_machine_is_lost(
    is_replaced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "60" if is_replaced else "5")
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 120 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    node = cluster.add_node(**size)
    steps = []

    def swap_machines(update: tuple[int, float]) -> None:
        steps.append(update[0])
        if len(steps) == 20:
            cluster.remove_node(node)
            if is_replaced:
                cluster.add_node(**size)

    run = partial(
        run_learners,
        partial(count, out=tmp_path, num_steps=400),
        address=cluster.address,
        num_learners=2,
        max_failures=1,
        out=tmp_path,
        on_update=swap_machines,
    )
    try:
        cluster.wait_for_nodes()
        if is_replaced:
            assert run() == Counted(400, 800.0, restarts=1, was_stopped=False)
        else:
            with pytest.raises(WorkerError, match=r"learner \d of 2 on .* died.*; then the learn"):
                run()
    finally:
        cluster.shutdown()


SCRIPT = """
import sys
from functools import partial
from pathlib import Path
from entity_env.cluster.learners import run_learners
from tests.cluster.test_learners import count

out = Path(sys.argv[1])
run = partial(count, out=out, num_steps=10**6)
show = partial(print, "update", flush=True)
print(run_learners(run, address="local", num_learners=2, out=out, on_update=show))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_stops_the_learners_with_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        killer = threading.Timer(200, program.kill)
        killer.start()
        lines = []
        for line in program.stdout:
            lines.append(line)
            if line.startswith("update"):
                break
        os.killpg(program.pid, signal.SIGINT)  # like a terminal
        lines += program.stdout.readlines()
        assert program.wait() == 0, "".join(lines)
        killer.cancel()
        killer.join()
    step, total = json.loads((tmp_path / "checkpoint.json").read_text())
    assert lines[-1].strip() == str(Counted(step, total, restarts=0, was_stopped=True))
    others = [line for line in lines[:-1] if not line.startswith("update")]
    assert others == ["rank 0 begins at 0\n"]  # no output of Ray
