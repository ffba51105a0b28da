"""A shipped game plays with its trained agent, without the packages for training."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import venv
import zipapp
from pathlib import Path

import pytest

from benchmarks.latency import shipped
from entity_env.agents import load_agent
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.games import snake
from entity_env.interop.kaggle.embedding import require_alone
from entity_env.interop.kaggle.planet_wars import planet_wars
from entity_env.interop.kaggle.submission import write_submission
from examples.ship import play
from tests.agents.rogue_net.test_adapt import spaces_of, weights_for
from tools.check_wheel import ROOT, build_wheel

FOLDER = Path(play.__file__).parent
LAST_LINE = re.compile(r"The snake ate (\d+) times in (\d+) steps \(seed 3\)\.")
HIDDEN = ("torch", "safetensors", "msgpack", "numba", "gymnasium", "tensorboard")

LOOK = """
import importlib.util, sys
print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])
"""


def ran(*command: object, cwd: Path) -> str:
    """Output of a command, which must succeed without our search path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_shown(shown: str, num_frames: int) -> None:
    assert shown.count("@") == shown.count("\nstep ") == num_frames
    ending = LAST_LINE.search(shown)
    assert ending is not None, shown
    assert int(ending[1]) > 1
    assert int(ending[2]) > num_frames


def test_the_folder_holds_all_of_it() -> None:
    assert {"play.py", "snake.agent", "README.md"} <= {path.name for path in FOLDER.iterdir()}
    assert play.AGENT.stat().st_size < 200_000
    code = [line for line in Path(play.__file__).read_text().splitlines() if line.strip()]
    assert len(code) < 50


@pytest.mark.slow
def test_it_draws_a_game_and_repeats_it(tmp_path: Path) -> None:
    command = (sys.executable, FOLDER / "play.py", "--seed", 3, "--frames", 4, "--fast")
    first = ran(*command, cwd=tmp_path)
    check_shown(first, 4)
    assert ran(*command, cwd=tmp_path) == first


@pytest.mark.slow
def test_it_plays_as_one_file(tmp_path: Path) -> None:
    packed = tmp_path / "snake.pyz"
    names = ("play.py", "snake.agent")
    zipapp.create_archive(FOLDER, packed, main="play:main", filter=lambda path: path.name in names)
    words = ("--seed", 3, "--frames", 4, "--fast")
    check_shown(ran(sys.executable, packed, *words, cwd=tmp_path), 4)


def test_its_agent_is_trained() -> None:
    agent = load_agent(play.AGENT, temperature=0.5, seed=1)
    episodes = snake.run(agent, seed=1, episodes=20)
    assert statistics.fmean(episode.reward for episode in episodes) > 3  # random: 0.1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_with_a_loaded_agent_is_small() -> None:
    """It also does not import torch, which would fail."""
    _, mib = shipped("from entity_env.games import snake as game", play.AGENT)
    assert 5 < mib - of_numpy() <= 20  # numpy alone: 24 to 30, depending on the Python version


def of_numpy() -> float:
    """MiB of a process that only imports numpy."""
    code = "import numpy; print(open('/proc/self/statm').read().split()[1])"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    return int(done.stdout) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_plays_in_an_environment_without_extras(tmp_path: Path) -> None:
    """Only the wheel and its dependencies are installed."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    wheel = build_wheel(tmp_path)
    ran(*pip, "install", "-qq", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    installed = ran(*pip, "list", "--format=freeze", cwd=tmp_path).lower().split()
    names = {line.partition("==")[0].replace("_", "-") for line in installed}
    assert {"entity-env", "numpy", "greenlet"} <= names
    assert not names & set(HIDDEN)

    folder = tmp_path / "ship"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    check_shown(ran(python, "play.py", "--seed", 3, "--frames", 4, "--fast", cwd=folder), 4)
    assert ran(python, "-c", LOOK, *HIDDEN, "numpy", cwd=folder) == "['numpy']\n"
    where = ran(python, "-c", "import entity_env; print(entity_env.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(environment)


@pytest.mark.slow
def test_a_submission_imports_only_what_it_contains(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    network = agent_bytes(weights_for(spaces_of(planet_wars)))
    write_submission(file, network, planet_wars)
    require_alone(file.read_text(), file, [])
