"""How long does `import entity_env` take, what does it import, and how soon does training report?

The import is timed in fresh interpreters; the figure is the median. The script fails if torch,
numba or gymnasium are imported.

- `first_progress_s`: from the start of `entity-env train snake` to its first line of figures, each
  time with an empty numba cache.
- `first_progress_cpu_s`: processor time of that process, without its workers, until then.
- `first_progress_wait_s`, `first_progress_wait_cpu_s`: the same with `--compile wait`, once.
- `first_progress_enn_trainer_s`: time to the end of enn-trainer's first update on MultiSnake, if it
  is installed (`make interop`).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.common import interleaved, median, report, rounds_and_json
from benchmarks.peers.trainee import Trainee, interop_python
from benchmarks.peers.training import TASKS

_TASK = "multi_snake"
_UNWANTED = ("torch", "numba", "gymnasium")

_CODE = """
import sys
from time import perf_counter
begin = perf_counter()
import {module}
print((perf_counter() - begin) * 1e3)
print(*(name for name in {unwanted!r} if name in sys.modules))
"""


def import_ms(module: str) -> float:
    """Milliseconds to import a module in a fresh interpreter.

    Raises:
        SystemExit: the import has loaded an unwanted package.
    """
    code = _CODE.format(module=module, unwanted=_UNWANTED)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    elapsed, loaded = result.stdout.split("\n")[:2]
    if loaded:
        raise SystemExit(f"import {module} loads {loaded}")
    return float(elapsed)


def first_progress_s(*options: str) -> tuple[float, float]:
    """Seconds until a run prints its first figures, by the clock and by processor; nothing cached.

    Raises:
        SystemExit: the run ended before that.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "entity_env", "train", "snake", "--steps=1e9", f"--out={folder}/run"]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONUNBUFFERED": "1"}
        begin = perf_counter()
        with subprocess.Popen(
            [sys.executable, *command, *options], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            for line in process.stdout or ():
                if line.startswith("step "):
                    wall_s, cpu_s = perf_counter() - begin, _cpu_s(process.pid)
                    process.terminate()  # it saves, and stops its workers and the compiler
                    process.communicate()
                    return wall_s, cpu_s
    raise SystemExit("training has ended before its first figures")


def _cpu_s(pid: int) -> float:
    """Processor time of a process in seconds; NaN if /proc does not provide it."""
    stat = Path("/proc", str(pid), "stat")
    if not stat.exists():
        return float("nan")
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def first_progress_enn_trainer_s() -> float:
    """Seconds until enn-trainer finishes its first update."""
    begin = perf_counter()
    Trainee("train_theirs", _TASK, TASKS[_TASK], 1).close()
    return perf_counter() - begin


def _first_progress(rounds: int) -> dict[str, float]:
    walls, cpus = zip(*(first_progress_s() for _ in range(rounds)), strict=True)
    found = {
        "first_progress_s": statistics.median(walls),
        "first_progress_cpu_s": statistics.median(cpus),
    }
    wall_s, cpu_s = first_progress_s("--compile=wait")
    found |= {"first_progress_wait_s": wall_s, "first_progress_wait_cpu_s": cpu_s}
    try:
        interop_python()
    except SystemExit:
        return found
    return found | {"first_progress_enn_trainer_s": median(first_progress_enn_trainer_s, rounds)}


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    times = interleaved(
        {
            "import_ms": lambda: import_ms("entity_env"),
            "import_numpy_ms": lambda: import_ms("numpy"),
        },
        max(rounds, 11),
    )
    figures = times | _first_progress(rounds)
    packages = ["numpy", "greenlet", "torch", "numba", "entity-env"]
    report("Importing and first progress", figures, packages, as_json)


if __name__ == "__main__":
    main()
