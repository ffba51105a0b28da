"""How long does one decision take in a shipped game, and how much memory does the agent need?

One observation in, one action out, on one thread: our agent without torch, compared with the real
rogue-net in torch, with the same weights (2 layers, width 32) and one actor among 10 or 100
entities. Each runs in a separate process and sleeps unless it is being measured; a ratio is the
median over rounds of the ratio within a round.

Memory and the time to the first action are those of a fresh process that loads an exported agent
and plays snake. The time is also measured for a custom game, which does not import all the games of
this package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.common import Median, report, rounds_and_json
from benchmarks.peers.contender import Contender
from benchmarks.peers.decision import weights
from benchmarks.peers.environment import ROOT
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent

_INTEROP = ROOT / ".venv-interop"
_SNAKE = ROOT / "examples" / "ship" / "snake.agent"
_ROUND_S = 0.3
_SIZES = (10, 100)
_MAKERS = {
    "rogue_net": "decision_theirs:agent",
    "ours": "decision_ours:agent",
    "ours_in_a_game": "decision_ours:game",
    "ours_numpy": "decision_ours:numpy_agent",
    "ours_torch": "decision_ours:torch_agent",
}
_PACKAGES = ["entity-env", "numpy", "torch", "rogue-net", "enn-trainer", "entity-gym"]

_SHIPPED = """
from time import perf_counter
begin = perf_counter()
import sys
from entity_env.agents import load_agent
{game}
agent = load_agent(sys.argv[1], seed=1)
times = []
def watch(turn):
    times.append(perf_counter())
game.run(agent, seed=1, watch=watch)
print((times[0] - begin) * 1e3)
for line in open("/proc/self/status"):
    if line.startswith("VmRSS"):
        print(int(line.split()[1]) / 1024)
if "torch" in sys.modules:
    sys.exit("torch was imported")
"""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    python = interop_python()
    starts = started(max(num_rounds, 11))
    figures: dict[str, float] = {}
    for size in _SIZES:
        figures |= decisions(python, size, num_rounds)
    report("One decision", figures | starts, _PACKAGES, as_json)


def interop_python() -> Path:
    """The interpreter of the environment with enn-trainer; adds its packages to `sys.path`.

    Raises:
        SystemExit: the environment does not exist yet.
    """
    python = _INTEROP / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{_INTEROP.name} with rogue-net and enn-trainer is missing: make interop")
    sys.path += [str(path) for path in _INTEROP.glob("lib/*/site-packages")]
    return python


def decisions(python: Path, num_entities: int, num_rounds: int) -> dict[str, float]:
    """Microseconds per decision of all contenders, and the speedups of ours."""
    contenders: dict[str, Contender] = {}
    rounds: dict[str, list[float]] = {name: [] for name in _MAKERS}
    try:
        for name, make in _MAKERS.items():
            contenders[name] = Contender(
                make, num_entities, python=python if name == "rogue_net" else None
            )
        for _ in range(num_rounds):
            for name, contender in contenders.items():
                rounds[name].append(contender.round(_ROUND_S)["us"])
    finally:
        for contender in contenders.values():
            contender.close()
    size = f"{num_entities}_entities"
    return {
        f"ratio_{size}": ratio(rounds, "ours"),
        f"ratio_{size}_in_a_game": ratio(rounds, "ours_in_a_game"),
        f"ratio_{size}_in_numpy": ratio(rounds, "ours_numpy"),
        f"ratio_{size}_in_torch": ratio(rounds, "ours_torch"),
        **{f"us_{size}_{name}": Median.of(each) for name, each in rounds.items()},
    }


def ratio(rounds: Mapping[str, Sequence[float]], name: str) -> float:
    """Time of the real rogue-net divided by ours."""
    pairs = zip(rounds["rogue_net"], rounds[name], strict=True)
    return Median.of(theirs / ours for theirs, ours in pairs)


def started(num_rounds: int) -> dict[str, float]:
    """Milliseconds to the first action in snake and in a custom game, and MiB for snake."""
    snake, own = [], []
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "own.agent"
        write_agent(agent, weights())
        for _ in range(num_rounds):
            snake.append(shipped("from entity_env.games import snake as game", _SNAKE))
            own.append(shipped("from benchmarks.peers.decision import GAME as game", agent))
    return {
        "first_action_ms": Median.of(first for first, _ in snake),
        "first_action_ms_own_game": Median.of(first for first, _ in own),
        "rss_mib": Median.of(rss for _, rss in snake),
    }


def shipped(game: str, agent: Path) -> tuple[float, float]:
    """Milliseconds from the first import to the first action, and MiB after an episode.

    Raises:
        SystemExit: the process failed, or imported torch.
    """
    code = _SHIPPED.replace("{game}", game)
    result = subprocess.run(
        [sys.executable, "-c", code, str(agent)], capture_output=True, text=True, cwd=ROOT
    )
    if result.returncode:
        raise SystemExit(result.stderr)
    first, rss = map(float, result.stdout.split())
    return first, rss


if __name__ == "__main__":
    main()
