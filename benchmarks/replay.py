"""What do replays cost: in training, on disk, and when they are replayed?

- Overhead: training snake with the replays that `entity-env train` keeps, compared with training
  without replays. The two alternate update by update; the figure is the median over the pairs, in
  processor time.
- Files: bytes per decision of zipped replays with actions and checksums, and milliseconds of
  processor time per decision to replay and compare them. A trained agent plays the episodes.
- Pages: HTML pages of that agent, and of the Azul agent against random opponents, with
  probabilities and values. `html_ready_ms` is the slower of the two in headless Chromium, from the
  first script to the first picture.
- Faults of pages: `axe_violations` are elements that break rules of axe-core, in the pages of all
  golden replays, at two widths and in both palettes. `contrast_failures` are texts and shapes that
  are hard to see, in the same replays and palettes.
- Clicks: `click_to_frame_ms` is the time from sending a person's answer in a page of Azul, against
  a random opponent, to receiving the event with the next question.

Needs Chromium and axe-core (`pip install --no-deps axe-playwright-python`).
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

from benchmarks.common import median, report, rounds_and_json
from benchmarks.peers.environment import ROOT
from entity_env import Game
from entity_env.agents import RandomAgent, load_agent
from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.cli.browser.play import ServedGame
from entity_env.games import snake
from entity_env.games.azul import azul
from entity_env.page.live.game_page import BrowserAgent
from entity_env.replay import Replay, TrainingReplays, record
from entity_env.vec import VecEnv
from entity_env.views import find_look
from entity_env.views.page import page
from entity_env.views.parts.contrast import contrast_failures
from tests.cli.browser.page import LivePage
from tests.helpers.chromium import PROGRAM, Chromium, axe_core

_AGENT = ROOT / "examples" / "ship" / "snake.agent"
_GOLDEN = ROOT / "tests" / "data" / "replays"
_AZUL_AGENT = ROOT / "examples" / "azul" / "azul.agent"
_NUM_EPISODES = 20
_NUM_AZUL_EPISODES = 5
_NUM_ENVS = (64, 256)
_PAIRS_A_ROUND = 6
_WARM_UP = 4
"""Number of updates before the measurement."""
_PACKAGES = ["entity-env", "numpy", "torch"]


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    if missing := [
        name for name, has in (("Chromium", PROGRAM), ("axe-core", axe_core())) if not has
    ]:
        raise SystemExit(f"install {' and '.join(missing)}: these figures need a browser")
    overheads = {
        f"recording_overhead_pct_{num_envs}": overhead(num_envs, rounds) for num_envs in _NUM_ENVS
    }
    figures = {
        "recording_overhead_pct": max(overheads.values()),
        **overheads,
        **files(rounds),
        **pages(rounds),
        **faults(),
        "click_to_frame_ms": median(click_to_frame_ms, rounds),
    }
    report("Replays", figures, _PACKAGES, as_json)


# ------------------------------------------------------------------ training


class Trainee:
    """A training run in a separate thread that makes one update per request."""

    def __init__(self, num_envs: int, folder: Path | None, game: Game = snake) -> None:
        self.num_envs = num_envs
        self.game = game
        self.folder = folder
        self._may_go = threading.Semaphore(0)
        self._is_done = threading.Semaphore(0)
        self._is_over = False
        self._used_s = 0.0
        self._thread = threading.Thread(target=self._train)
        self._thread.start()
        self._is_done.acquire()

    def update(self) -> float:
        """Makes the next update; returns its processor time in seconds, including the games."""
        before = self._used_s
        self._may_go.release()
        self._is_done.acquire()
        return self._used_s - before

    def close(self) -> None:
        """Ends the run."""
        self._is_over = True
        self._may_go.release()
        self._thread.join()

    def _train(self) -> None:
        config = PPOConfig(total_steps=10**9, num_steps=16, minibatch_size=256, num_threads=1)
        failures = None if self.folder is None else self.folder / "failures"
        with VecEnv(self.game, self.num_envs, failures=failures) as vec:
            callbacks = []
            if self.folder is not None:
                callbacks.append(TrainingReplays(self.game, self.folder / "replays", vec))
            with suppress(_Over):
                train(vec, config, on_update=self._pause, callbacks=callbacks)

    def _pause(self, progress: TrainProgress) -> None:
        # Replays kept after this call count toward the next update.
        self._used_s = thread_time()
        self._is_done.release()
        self._may_go.acquire()
        if self._is_over:
            raise _Over


class _Over(Exception):
    """Stops a run."""


@contextmanager
def trainee(num_envs: int, folder: Path | None, game: Game = snake) -> Iterator[Trainee]:
    """A training run."""
    one = Trainee(num_envs, folder, game)
    try:
        yield one
    finally:
        one.close()


def overhead(num_envs: int, rounds: int) -> float:
    """Extra time of an update with replays, in percent: the median over alternating pairs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain = stack.enter_context(trainee(num_envs, None))
        keeping = stack.enter_context(trainee(num_envs, folder))
        for _ in range(_WARM_UP):
            plain.update()
            keeping.update()
        ratios = []
        for i in range(_PAIRS_A_ROUND * rounds):
            if i % 2:
                without, with_replays = plain.update(), keeping.update()
            else:
                with_replays, without = keeping.update(), plain.update()
            ratios.append(with_replays / without)
    return 100 * (statistics.median(ratios) - 1)


# ------------------------------------------------------------------ files


def files(rounds: int) -> dict[str, float]:
    """Bytes and milliseconds per decision in a trained agent's episodes of snake."""
    agent = load_agent(_AGENT, seed=1)
    replays = [
        record(snake, agent, seed=seed, see=False, think=False) for seed in range(_NUM_EPISODES)
    ]
    num_decisions = sum(replay.num_decisions for replay in replays)
    num_bytes = sum(len(replay.to_bytes()) for replay in replays)
    return {
        "bytes_per_decision_snake": num_bytes / num_decisions,
        "replay_ms_per_decision_snake": median(partial(verified_ms, replays), rounds)
        / num_decisions,
    }


def verified_ms(replays: list[Replay]) -> float:
    """Milliseconds of processor time to replay and compare all of them.

    Raises:
        SystemExit: an episode differs.
    """
    begin = process_time()
    for replay in replays:
        found = replay.verify(snake)
        if found is not None:
            raise SystemExit(f"{replay}: {found}")
    return (process_time() - begin) * 1e3


# ------------------------------------------------------------------ pages


def pages(rounds: int) -> dict[str, float]:
    """Kilobytes per page, medians over episodes, and milliseconds until the pages are ready."""
    of_snake = [
        record(snake, load_agent(_AGENT, seed=seed), seed=seed).animation().html()
        for seed in range(_NUM_EPISODES)
    ]
    of_azul = [
        record(azul, load_agent(_AZUL_AGENT, seed=seed), RandomAgent(seed=seed), seed=seed)
        .animation()
        .html()
        for seed in range(_NUM_AZUL_EPISODES)
    ]
    figures = {
        "html_kb_snake": statistics.median(map(len, of_snake)) / 1e3,
        "html_kb_azul": statistics.median(map(len, of_azul)) / 1e3,
        "player_kb": len(page("", "", {})) / 1e3,
    }
    figures["html_ready_ms"] = max(
        statistics.median(ready_ms(html) for _ in range(rounds))
        for html in (of_snake[0], of_azul[0])
    )
    return figures


def ready_ms(html: str) -> float:
    """Milliseconds until a page shows its first picture, as reported by the page."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/user")
        command = [
            str(PROGRAM),
            *options,
            "--virtual-time-budget=5000",
            "--dump-dom",
            file.as_uri(),
        ]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r'data-ready="([\d.]+)"', shown.stdout)
    if found is None:
        raise SystemExit("the page did not become ready")
    return float(found[1])


def faults() -> dict[str, float]:
    """Faults of the pages of all golden replays."""
    animations = [Replay.load(path).animation() for path in sorted(_GOLDEN.glob("*.replay"))]
    hard_to_see = sum(
        len(contrast_failures(each.size, [*each.ground, *each.shapes_of(index)], dark=dark))
        for each in animations
        for index in range(len(each))
        for dark in (False, True)
    )
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(animations):
            each.write(Path(folder) / f"{number}.html")
        urls = [(Path(folder) / f"{number}.html").as_uri() for number in range(len(animations))]
        with Chromium(urls[0], Path(folder) / "profile") as browser:
            violations = sum(num_violations(browser, url) for url in urls)
    return {"axe_violations": violations, "contrast_failures": hard_to_see}


def num_violations(browser: Chromium, url: str) -> int:
    """Elements of a page that break rules of axe-core, at two widths and in both palettes."""
    found = 0
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.emulate(width, 900, is_mobile=width == 390, prefers_color_scheme=scheme)
            browser.go(url)
            browser.wait_for("document.body.dataset.ready")
            run = "axe.run(document, {resultTypes: ['violations']})"
            nodes = "found.violations.flatMap(rule => rule.nodes.map(node => [rule.id, node.html]))"
            broken = browser.value(f"{axe_core()};{run}.then(found => {nodes})")
            for rule, element in broken:
                sys.stderr.write(f"{url}, {width} px, {scheme}: {rule}: {element[:200]}\n")
            found += len(broken)
    return found


# ------------------------------------------------------------------ clicks


def click_to_frame_ms() -> float:
    """Milliseconds from an answer in a page to the next question, median over a game of Azul."""
    served = ServedGame(
        azul, ["human", "random"], find_look(azul), fps=10, episodes=1, ended=lambda _: None
    )
    agents = [BrowserAgent(served.page), RandomAgent(seed=1)]
    watch = served.page.begin_run(["human", "random"], agents, "")
    game = threading.Thread(target=partial(azul.run, *agents, seed=1, watch=watch))
    times = []
    with served.server, LivePage(served.server.url) as live:
        game.start()
        while not (frame := live.wait_for(lambda frame: frame["asked"] or frame["over"]))["over"]:
            number = frame["asked"]["number"]
            begin = perf_counter()
            live.post({"number": number, "choice": frame["asked"]["choices"][0][0]})
            live.wait_for(partial(_is_next, number))
            times.append((perf_counter() - begin) * 1e3)
        game.join()
    return statistics.median(times)


def _is_next(number: int, frame: dict[str, Any]) -> bool:
    return bool(frame["over"] or (frame["asked"] and frame["asked"]["number"] > number))


if __name__ == "__main__":
    main()
