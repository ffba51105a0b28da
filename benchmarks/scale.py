"""How well does training scale to several processes, and do they learn the same thing?

Ranks are processes on this machine, connected by gloo. Runs with one and two ranks take turns.

- `weak`: each rank has the environments and the minibatch of the single process; `strong`: half
  of both.
- Efficiency: decisions per second of total processor time, relative to one process. `apart` is the
  efficiency of two independent processes at once, each with the share of a rank.
- Difference: the largest parameter difference after an update, between two ranks that share a
  rollout and one process with all of it.
- `--before FOLDER` compares one process with another checkout.
- RLlib's PPO on padded observations is measured if ray[rllib] is installed.

`--kills N` measures reliability instead: N runs under torchrun, in each of which a rank is killed
at a random moment. It counts the runs that still finish normally.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common import report
from benchmarks.vec import Progress

_ROOT = Path(__file__).parents[1]
_RANK = _ROOT / "benchmarks" / "peers" / "ranks.py"
_ENVS, _MINIBATCH = 128, 1024
_SHARES = {"1_1": [1, 1], "1_4": [1, 4], "1_0": [1, 0]}
_GAMES = ("snake", "multi_snake", "azul")
_SEEDS = 5


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs; prints the median")
    parser.add_argument("--before", type=Path, help="another checkout, for `alone_vs_before`")
    parser.add_argument("--kills", type=int, default=0, help="runs in which to kill a rank")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    arguments = parser.parse_args()
    progress = Progress()
    if arguments.kills:
        figures = _kills(progress, arguments.kills)
        progress.end()
        report("Ranks that are killed", figures, ("torch",), arguments.json)
        return
    figures = {**_differences(progress), **_speeds(progress, max(arguments.rounds, 5))}
    figures |= _rewards(progress)
    if arguments.before is not None:
        figures |= _before(progress, arguments.before.resolve(), max(arguments.rounds, 5))
    if find_spec("ray") is not None and find_spec("ray.rllib") is not None:
        progress.say("rllib")
        figures |= _rllib()
    progress.end()
    report("Ranks", figures, ("torch", "numpy", "numba", "ray"), arguments.json)


def ranks(
    size: int, measure: str, arguments: Mapping[str, object], *, checkout: Path = _ROOT
) -> list[dict[str, float]]:
    """Measurements of each of `size` processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    if size > 1:
        common |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, str(_RANK), measure, json.dumps(arguments)]
    processes = [
        subprocess.Popen(
            command,
            cwd=checkout,
            env={**common, **({"RANK": str(rank)} if size > 1 else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise SystemExit(f"a rank failed, {measure} {arguments}:\n{errors}")
    found: list[dict[str, float]] = json.loads(outputs[0][0].splitlines()[-1])
    return found


def _differences(progress: Progress) -> dict[str, float]:
    figures = {}
    for game in _GAMES:
        for name, weights in _SHARES.items():
            progress.say(f"difference {game} {name}")
            found = ranks(2, "difference", {"game": game, "weights": weights})
            figures[f"parameter_difference_{game}_{name}"] = max(r["difference"] for r in found)
    return {"max_parameter_difference_2_ranks": max(figures.values()), **figures}


def _run(size: int, envs: int, minibatch: int, **more: object) -> Mapping[str, float]:
    """One run: speed by processor time and by the clock, and whether all ranks ended equal."""
    settings = {"updates": 24, "minibatch_size": minibatch, **more}
    found = ranks(size, "timed", {"game": "snake", "num_envs": envs, **settings})
    return {
        "cpu": statistics.harmonic_mean([rank["steps_per_cpu_s"] for rank in found]),
        "wall": found[0]["steps_per_s"],
        "reward": found[0]["reward"],
        "equal": float(len({rank["digest"] for rank in found}) == 1),
    }


def _apart(envs: int, minibatch: int) -> Mapping[str, float]:
    """Speed of two independent processes at once: the limit set by the machine."""
    with ThreadPoolExecutor(2) as threads:
        runs = list(threads.map(lambda _: _run(1, envs, minibatch), range(2)))
    return {**runs[0], "cpu": statistics.harmonic_mean([run["cpu"] for run in runs])}


def _speeds(progress: Progress, rounds: int) -> dict[str, float]:
    kinds: dict[str, Callable[[], Mapping[str, float]]] = {
        "alone": lambda: _run(1, _ENVS, _MINIBATCH),
        "weak": lambda: _run(2, _ENVS, 2 * _MINIBATCH),
        "strong": lambda: _run(2, _ENVS // 2, _MINIBATCH),
        "apart_weak": lambda: _apart(_ENVS, _MINIBATCH),
        "apart_strong": lambda: _apart(_ENVS // 2, _MINIBATCH // 2),
    }
    samples: dict[str, list[Mapping[str, float]]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind, run in kinds.items():
            progress.say(f"speed {kind} {number + 1} of {rounds}")
            samples[kind].append(run())

    def ratio(kind: str, figure: str) -> float:
        pairs = zip(samples[kind], samples["alone"], strict=True)
        return statistics.median(run[figure] / alone[figure] for run, alone in pairs)

    meeting = [run for kind in ("weak", "strong") for run in samples[kind]]
    return {
        "ranks_bit_equal": min(run["equal"] for run in meeting),
        **{f"cpu_efficiency_{kind}_2": ratio(kind, "cpu") for kind in kinds if kind != "alone"},
        "wall_speedup_weak_2": ratio("weak", "wall"),
        "wall_speedup_strong_2": ratio("strong", "wall"),
        "steps_per_cpu_s_alone": statistics.median(run["cpu"] for run in samples["alone"]),
    }


def _rewards(progress: Progress) -> dict[str, float]:
    """Rewards after equal numbers of decisions: one rank, and two with half the environments."""
    rewards: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(1, _SEEDS + 1):
        for size, found in rewards.items():
            progress.say(f"reward {size} rank, seed {seed}")
            run = _run(size, _ENVS // size, _MINIBATCH, updates=60, seed=seed)
            found.append(run["reward"])
    return {
        "reward_1_rank": statistics.mean(rewards[1]),
        "reward_1_rank_std": statistics.stdev(rewards[1]),
        "reward_2_ranks": statistics.mean(rewards[2]),
        "reward_2_ranks_std": statistics.stdev(rewards[2]),
    }


def _before(progress: Progress, checkout: Path, rounds: int) -> dict[str, float]:
    ratios, digests = [], set()
    settings = {"game": "snake", "num_envs": _ENVS, "updates": 24, "minibatch_size": _MINIBATCH}
    for number in range(rounds):
        progress.say(f"before and now {number + 1} of {rounds}")
        [before] = ranks(1, "timed", settings, checkout=checkout)
        [now] = ranks(1, "timed", settings)
        ratios.append(now["steps_per_cpu_s"] / before["steps_per_cpu_s"])
        digests |= {before["digest"], now["digest"]}
    return {
        "alone_vs_before": statistics.median(ratios),
        "same_bits_as_before": float(len(digests) == 1),
    }


def _kills(progress: Progress, count: int) -> dict[str, float]:
    killed = finished = 0
    for number in range(count):
        progress.say(f"kill {number + 1} of {count}")
        with tempfile.TemporaryDirectory() as folder:
            run = ["--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.2", "-m"]
            train = ["entity_env", "train", "snake", "--steps=24000", f"--out={folder}/run"]
            process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *run, *train],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            time.sleep(random.Random(number).uniform(4, 14))
            for rank in _ranks_of(process.pid)[number % 2 :][:1]:
                os.kill(rank, signal.SIGKILL)
                killed += 1
                output, _ = process.communicate()
                finished += process.returncode == 0 and "trained 24," in output
            process.communicate()
    return {"killed": killed, "finished": finished}


def _ranks_of(launcher: int) -> list[int]:
    """Process ids of the ranks, in order of rank."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == launcher:
                environment = (status.parent / "environ").read_text().split("\0")
                names = dict(each.partition("=")[::2] for each in environment)
                found[int(names["RANK"])] = int(status.parent.name)
    return [found[rank] for rank in sorted(found)]


def _rllib() -> dict[str, float]:
    """RLlib's processor time per step of snake, divided by ours per decision."""
    script = _RANK.with_name("rllib_snake.py")
    process = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if process.returncode:
        raise SystemExit(f"RLlib failed:\n{process.stderr}")
    theirs = float(process.stdout.splitlines()[-1])
    ours = 1e6 / _run(1, 32, _MINIBATCH)["cpu"]
    return {"rllib_cpu_us_a_step": theirs, "rllib_cpu_us_vs_ours": theirs / ours}


if __name__ == "__main__":
    main()
