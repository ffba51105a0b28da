"""How fast are games in other languages, compared with the same game in Python?

- Steps: snake with random actions in a `VecEnv` without workers; all copies of a program in one
  process. The versions take turns; a ratio is the median over rounds of the ratio within a round.
- Godot: steps per second of 64 copies of snake in GDScript, in one process of Godot 3.
- Training: `train` on snake with the same settings, in C and in Python, update by update in turns.
- An exchange: a request and its answer, of one copy in C over a Unix socket.
- A decision: `entity_agent.h`, an observation in and a sampled choice out, relative to the agent in
  numpy (`benchmarks/latency.py`) with the same weights and observations, in turns.

Needs gcc; versions in languages that are not installed are left out.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.common import Median, median, report, rounds_and_json
from benchmarks.peers import decision_ours
from benchmarks.peers.decision import ACTION, shown, weights
from benchmarks.peers.environment import ROOT
from benchmarks.peers.network_in_c import CAgent, CLibrary
from benchmarks.replay import trainee
from entity_env import Game
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.games import snake
from entity_env.vec import ExternalGame, VecEnv
from entity_env.vec.external.messages import Kind

_CLIENTS = ROOT / "clients"
_SIZES = (128, 1024)
_NUM_GODOT_ENVS = 64
_ROUND_S = 0.5
_NUM_ACTIONS = 64
_NUM_EXCHANGES = 2000
_WARM_UP = 4
_UPDATES_A_ROUND = 6
_NUM_ENTITIES = (10, 100)
_NUM_DECISIONS = 5000
_PACKAGES = ["entity-env", "numpy", "torch"]


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    if shutil.which("gcc") is None:
        raise SystemExit("install gcc: the games in C are compiled")
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: ExternalGame(words) for name, words in commands(Path(folder)).items()}
        figures: dict[str, float] = {}
        for num_envs in _SIZES:
            figures |= steps(programs, num_envs, rounds)
        if godot := shutil.which("godot3-server"):
            figures["godot_steps_per_s"] = godot_speed(godot, rounds)
        figures["train_steps_per_s_vs_python"] = training(programs["c"], rounds)
        figures["exchange_us_1"] = median(lambda: exchange_us(programs["c"]), rounds)
        library = CLibrary(Path(folder))
        for num_entities in _NUM_ENTITIES:
            figures |= decisions(library, num_entities, rounds)
    report("Games in other languages", figures, _PACKAGES, as_json)


def commands(folder: Path) -> dict[str, Sequence[str]]:
    """Commands of snake by language, as far as it can be built or started here."""
    c = folder / "snake"
    source = _CLIENTS / "c" / "games" / "snake.c"
    subprocess.run(["gcc", "-std=c99", "-O2", str(source), "-o", str(c), "-lm"], check=True)
    found: dict[str, Sequence[str]] = {"c": [str(c)]}
    if shutil.which("cargo") and (_CLIENTS / "rust").exists():
        target = folder / "rust"
        build = ["cargo", "build", "--quiet", "--release", "--offline", "--examples"]
        place = [
            "--manifest-path",
            str(_CLIENTS / "rust" / "Cargo.toml"),
            "--target-dir",
            str(target),
        ]
        subprocess.run([*build, *place], check=True)
        found["rust"] = [str(target / "release" / "examples" / "snake")]
    if shutil.which("node"):
        found["js"] = ["node", str(_CLIENTS / "javascript" / "games" / "snake.mjs")]
    return found


# ----------------------------------------------------------------------------------------- steps


def steps(programs: Mapping[str, Game], num_envs: int, rounds: int) -> dict[str, float]:
    """Steps per second of each version, and relative to Python."""
    speeds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        games: dict[str, Game] = {"python": snake, **programs}
        envs = {
            name: stack.enter_context(VecEnv(game, num_envs, num_workers=0))
            for name, game in games.items()
        }
        measures = {name: speed_of(vec) for name, vec in envs.items()}
        for measure in measures.values():
            measure()
        for _ in range(rounds):
            for name, measure in measures.items():
                speeds.setdefault(name, []).append(measure())
    python = speeds.pop("python")
    figures: dict[str, float] = {f"python_steps_per_s_{num_envs}": Median.of(python)}
    for name, found in speeds.items():
        ratios = [one / other for one, other in zip(found, python, strict=True)]
        figures[f"{name}_steps_per_s_vs_python_{num_envs}"] = Median.of(ratios)
    return figures


def speed_of(vec: VecEnv) -> Callable[[], float]:
    """A function that measures steps per second with random actions."""
    rng = np.random.default_rng(1)
    num_envs = len(vec.reset(1))
    actions = [{"Move": rng.integers(0, 4, num_envs)} for _ in range(_NUM_ACTIONS)]

    def measure() -> float:
        num_steps, begin = 0, perf_counter()
        while perf_counter() - begin < _ROUND_S:
            for each in actions:
                vec.act(each)
            num_steps += len(actions)
        return num_envs * num_steps / (perf_counter() - begin)

    return measure


def godot_speed(program: str, rounds: int) -> Median:
    """Steps per second of snake in GDScript."""
    words = [program, "--path", str(_CLIENTS / "godot"), "--no-window", "-s", "games/snake.gd"]
    with VecEnv(ExternalGame(words, link="tcp"), _NUM_GODOT_ENVS, num_workers=0) as vec:
        measure = speed_of(vec)
        measure()
        return median(measure, rounds)


# -------------------------------------------------------------------------- training, exchanges


def training(program: ExternalGame, rounds: int) -> Median:
    """Time of an update in Python divided by that in C, with 256 environments and one thread."""
    with ExitStack() as stack:
        ours = stack.enter_context(trainee(256, None))
        theirs = stack.enter_context(trainee(256, None, program))
        ratios = []
        for i in range(_WARM_UP + rounds * _UPDATES_A_ROUND):
            begin = perf_counter()
            ours.update()
            between = perf_counter()
            theirs.update()
            if i >= _WARM_UP:
                ratios.append((between - begin) / (perf_counter() - between))
    return Median.of(ratios)


def exchange_us(program: ExternalGame) -> float:
    """Microseconds from sending a request to having received its answer."""
    connection = program.start_program()
    try:
        connection.start(1, program.values())
        connection.request(Kind.RESET, [np.array([1, 0, 5], dtype="<u8").tobytes()])
        request = [np.array([7, 0], dtype="<u8").tobytes()]
        begin = perf_counter()
        for _ in range(_NUM_EXCHANGES):
            connection.request(Kind.ACT, request)
        return (perf_counter() - begin) / _NUM_EXCHANGES * 1e6
    finally:
        connection.close()


# ------------------------------------------------------------------------------------- decisions


def decisions(library: CLibrary, num_entities: int, rounds: int) -> dict[str, float]:
    """Microseconds per decision in C, and relative to the agent in numpy."""
    observations = [
        {
            "features": {name: rows.tolist() for name, rows in features.items()},
            "globals": [],
            "actions": {ACTION.name: {"actors": [0]}},
        }
        for features in shown(num_entities)
    ]
    numpy_agent = decision_ours.numpy_agent(num_entities)
    ours, theirs = [], []
    with CAgent(library, agent_bytes(weights())) as agent:
        for_c = [agent.observation(each) for each in observations]
        for _ in range(rounds):
            ours.append(agent.microseconds(for_c, _NUM_DECISIONS // num_entities))
            theirs.append(numpy_agent.round(_ROUND_S)["us"])
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {
        f"c_decision_{num_entities}_vs_numpy": Median.of(ratios),
        f"c_decision_us_{num_entities}": Median.of(ours),
    }


if __name__ == "__main__":
    main()
