"""What does a game in a web page cost, and does it play as in Python?

- `equal_episodes_*`: of 40 episodes of a greedy network, those whose actions in the page, with
  Python in the browser and the network in JavaScript, are those of CPython and numpy. Shipped
  agents play snake and tic_tac_toe; networks with random parameters play the others.
- `ready_first_s`, `ready_again_s`: from opening the page of snake to its first picture, in a
  browser that has never been there, and on a later visit. `pyodide_first_s` is a first visit of a
  page that only loads Pyodide.
- `mb`: what the page of snake loads without its agent, in megabytes, as a server compresses it
  (brotli, quality 9).
- `decision_ms`: a turn of snake in the page: the rules, the observation, the network, the replay,
  and pictures 60 times per second.
- `network_max_abs_difference`: of probabilities, between JavaScript and numpy, for shipped agents
  and random networks with every option. `network_kb`: size of `network.mjs`, in kB (brotli).

Needs Chromium, Node and Pyodide (`make pyodide`). `--quick` measures two episodes per game.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.common import Median, report
from benchmarks.peers.environment import ROOT
from benchmarks.peers.network_vectors import (
    NODE,
    episode_vectors,
    network_in_node,
    random_weights,
    vectors_of,
)
from entity_env import Game
from entity_env.agents import load_agent
from entity_env.agents.rogue_net.checkpoints.agent_file import read_agent, write_agent
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.cli.load_game import load_game
from entity_env.games import GAMES
from entity_env.page.pyodide import FILES, cache_folder
from entity_env.replay import Replay, ReplayWriter
from tests.helpers.chromium import PROGRAM, Chromium
from tests.page.browser import served
from tests.page.test_network import CONFIGS, SHIPPED, observed

_GAMES: Final[Mapping[str, tuple[str, str | None]]] = {
    "snake": ("snake", "examples/ship/snake.agent"),
    "tic_tac_toe": ("tic_tac_toe", "examples/gallery/tic_tac_toe.agent"),
    "skirmish": ("examples/skirmish.py", None),
    "my_game": ("examples/my_game.py", None),
}
_NUM_EPISODES: Final = 40
_NUM_VECTORS: Final = 100
_FASTEST: Final = 1e9
_PACKAGES: Final = ["entity-env", "numpy"]

_ONLY_PYODIDE: Final = """<!doctype html><title>Pyodide</title><script type="module">
const {loadPyodide} = await import("/snake/pyodide/pyodide.mjs");
await loadPyodide({indexURL: "/snake/pyodide/"});
window.frame = {shapes: []};
</script>
"""
_COLLECT: Final = """
window.replays = [];
window.times = [];
let asking = 0, began = 0;
startWorker();
worker.onmessage = ({data: [name, text]}) => {
  const data = JSON.parse(text);
  if (name == "failed") window.gameFailure = data;
  if (name == "ready") {
    began = performance.now();
    tell({start: {seats: SEATS, seed: 1, fps: FPS, greedy: true}});
  }
  if (name == "frame" && data.over && data.asked) {
    asking = data.asked.number;
    times.push((performance.now() - began) / data.over.turns);
    tell({get: "save"});
  }
  if (name == "save") {
    replays.push(data[1]);
    began = performance.now();
    tell({answer: {number: asking, again: true}});
  }
};
"""


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two episodes per game")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    arguments = parser.parse_args()
    has_pyodide = all((cache_folder() / name).is_file() for name in FILES)
    needed = {"Chromium": PROGRAM, "Node": NODE, "Pyodide (make pyodide)": has_pyodide}
    if missing := [name for name, has in needed.items() if not has]:
        raise SystemExit(f"install {' and '.join(missing)}: these figures need a browser")
    count = 2 if arguments.quick else _NUM_EPISODES
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as url:
        site = Path(name)
        figures: dict[str, float] = {}
        for game in _GAMES:
            equal, times = episodes(site, url, game, count)
            figures[f"equal_episodes_{game}"] = equal
            if game == "snake":
                figures["decision_ms"] = Median.of(times)
        figures |= ready(site, f"{url}/snake/?play")
        figures["mb"] = compressed_mb(site / "snake")
        figures["network_kb"] = brotli(site / "snake" / "network.mjs", 11) / 1000
    figures["network_max_abs_difference"] = difference()
    report("Pages of games", figures, _PACKAGES, arguments.json)


# ------------------------------------------------------------------ playing


def episodes(site: Path, url: str, name: str, count: int) -> tuple[int, list[float]]:
    """Episodes with equal actions, and milliseconds per turn of each episode in the page."""
    source, agent_file = _GAMES[name]
    game = load_game(source if agent_file else str(ROOT / source))
    agent = site / f"{name}.agent"
    if agent_file is None:
        spaces = game.obs_space(), game.action_space()
        write_agent(agent, random_weights(spaces, RogueNetConfig()))
    else:
        shutil.copy(ROOT / agent_file, agent)
    write(source, agent, site / name)
    with Chromium(f"{url}/{name}/", site / f"profile_{name}") as page:
        page.wait_for("config")
        seats = json.dumps([agent.name] * game.num_agents)
        page.value(_COLLECT.replace("SEATS", seats).replace("FPS", str(_FASTEST)))
        for number in range(count):
            page.wait_for(f"window.gameFailure || replays.length > {number}")
        if failure := page.value("window.gameFailure"):
            raise SystemExit(f"{name}: {failure['error']} {failure['trace']}")
        found = [Replay.from_bytes(base64.b64decode(each)) for each in page.value("replays")]
        times: list[float] = page.value("times")
    same = [is_equal(game, agent, replay, 1 + i) for i, replay in enumerate(found[:count])]
    return sum(same), times[:count]


def write(source: str, agent: Path, out: Path) -> None:
    """Writes the page of a game, with the command."""
    command = [sys.executable, "-m", "entity_env", "page", source, "--agent", str(agent)]
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def is_equal(game: Game, agent: Path, replay: Replay, seed: int) -> bool:
    """Whether a greedy agent in numpy plays the same actions, and the replay verifies."""
    writer = ReplayWriter(agents=[agent.name] * game.num_agents)
    players = [load_agent(agent, greedy=True) for _ in range(game.num_agents)]
    game.run(*players, seed=seed, watch=writer)
    mine = writer.replays[0]
    actions = [line.actions for line in mine.lines]
    return [line.actions for line in replay.lines] == actions and replay.verify(game) is None


def ready(site: Path, url: str) -> dict[str, float]:
    """Seconds until the first picture, on the first and on later visits."""
    (site / "pyodide.html").write_text(_ONLY_PYODIDE)
    first, again, bare = [], [], []
    for number in range(5):
        with Chromium("about:blank", site / f"stranger_{number}") as page:
            bare.append(first_picture_s(page, url.replace("snake/?play", "pyodide.html")))
        with Chromium("about:blank", site / f"visitor_{number}") as page:
            first.append(first_picture_s(page, url))
            page.wait_for(
                "caches.open('entity_env').then(all => all.keys()).then(all => all.length)"
            )
            again.append(first_picture_s(page, url))
    return {
        "ready_first_s": Median.of(first),
        "ready_again_s": Median.of(again),
        "pyodide_first_s": Median.of(bare),
    }


def first_picture_s(page: Chromium, url: str) -> float:
    """From the start of the navigation."""
    page.go("about:blank")
    page.go(url)
    page.wait_for("typeof frame != 'undefined' && Boolean(frame?.shapes)")
    found: float = page.value("performance.now()")
    return found / 1000


# ------------------------------------------------------------------ sizes and numbers


def compressed_mb(folder: Path) -> float:
    """Of all files of a page, except for its agents."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".agent"]
    return sum(brotli(path, 9) for path in files) / 1e6


def brotli(path: Path, quality: int) -> int:
    """Compressed size in bytes."""
    script = """
    const zlib = require("node:zlib"), content = require("node:fs").readFileSync(process.argv[1]);
    const params = {[zlib.constants.BROTLI_PARAM_QUALITY]: +process.argv[2]};
    console.log(zlib.brotliCompressSync(content, {params}).length);
    """
    command = [str(NODE), "--eval", script, str(path), str(quality)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def difference() -> float:
    """The largest difference of a probability between JavaScript and numpy."""
    largest = 0.0
    with network_in_node() as node:
        for name, file in SHIPPED.items():
            weights = read_agent(ROOT / "examples" / file)
            found = node.compare(weights, episode_vectors(GAMES[name], weights, _NUM_VECTORS))
            largest = max(largest, found["probabilities"])
        for seed, (obs, actions, config) in enumerate(CONFIGS.values()):
            weights = random_weights((obs, actions), config, seed)
            relpos = getattr(config, "relpos_encoding", None)
            is_radial = relpos is not None and relpos.radial
            spaces = obs, actions
            shown = [observed(spaces, i, is_radial=is_radial) for i in range(1, _NUM_VECTORS)]
            found = node.compare(weights, vectors_of(weights, shown))
            largest = max(largest, found["probabilities"])
    return largest


if __name__ == "__main__":
    main()
