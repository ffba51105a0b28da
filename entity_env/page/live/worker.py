"""`PageWorker`: plays a game in the worker of its page; `worker.mjs` runs it in Pyodide."""

from __future__ import annotations

import json
import math
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic
from types import TracebackType
from typing import Final, Self, TypeAlias

from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.agents.scripted_agent import is_bot_file, load_bot
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import game_traceback, line_of_error, summary_of
from entity_env.authoring.load_module import import_named, load_module
from entity_env.authoring.local_run import AgentRun, RunLimits
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.episode import MAX_STEPS
from entity_env.errors import UsageError
from entity_env.page.live.game_page import BrowserAgent, GamePage
from entity_env.page.live.last_replay import LastReplay
from entity_env.page.live.players import NetworkPlayer, RandomPlayer
from entity_env.page.live.questions import Json
from entity_env.replay.file import SUFFIX
from entity_env.views.load_look import find_look

RANDOM: Final = "random"
_NUM_SEEDS: Final = 2**31
_FPS: Final = 8.0

Post: TypeAlias = Callable[[str, str], None]
"""Sends an event to the page: its name, and JSON."""
Receive: TypeAlias = Callable[[float], str]
"""Waits for a message of the page, up to some milliseconds; "" if there is none."""
Think: TypeAlias = Callable[[str, str], str]
"""`Network.think` of an agent's file, with JSON for its argument and its result."""


class PageWorker:
    """Plays a game as its page asks for, with people and agents; a `Browser` of `GamePage`.

    Messages of the page are JSON objects with one key. "start": who plays, see `_play`; ends the
    current episode; the event "begun" confirms it with its "id". "answer": to a question, see
    `GamePage.answer`; the event "answered" says why it was refused, or "". "fps": turns per second
    for spectators, 0 = paused. "get": "watch" or "save", the last episode as an animation or a
    replay, in an event of that name. "step": a turn of the last episode, see `_show_step`. The
    event "limit" begins a time limit of the game or of the agent in a seat, or with null ends it.

    Args:
        config: see `PageConfig`.
        folder: with the game's own files.
    """

    def __init__(
        self,
        config: Mapping[str, Json],
        folder: Path,
        *,
        post: Post,
        receive: Receive,
        think: Think,
    ) -> None:
        self._config, self._folder = config, folder
        self._post, self._receive, self._think = post, receive, think
        self._start: Mapping[str, Json] | None = None
        self._page: GamePage | None = None
        self._last: LastReplay | None = None
        self._game: Game | None = None
        self._timer = _PageTimer(self.send)
        self._limit_s: float | None = config.get("step_timeout_s")
        self._has_pace_changed = False

    def run(self) -> None:
        """Plays one game after the other, until `receive` raises."""
        while True:
            with suppress(KeyboardInterrupt):
                self.wait_for(lambda: self._start is not None)
            start, self._start = self._start or {}, None
            try:
                with suppress(KeyboardInterrupt):
                    self._play(start)
            except Exception as error:  # the code of a game
                self.send("failed", self._failure(error))

    def _play(self, start: Mapping[str, Json]) -> None:
        """Plays episodes until the page asks for another start.

        Args:
            start: "seats", a name per agent: "human", "random", or that of an agent in the
                configuration. Optional: "id", a number; "seed" of the first run; "clock_s" per
                decision of a person; "fps", "think"; "greedy", by name of an agent with a network,
                whether it takes its most probable action; "files", new texts of files of the game.
        """
        self.send("begun", start.get("id"))
        for name, text in start.get("files", {}).items():
            (self._folder / name).write_text(text, encoding="utf-8")
        limited = StepTimeout(self._limit_s, timer=self._timer)
        with limited:
            game = self._game = page_game(self._config, self._folder, is_new="files" in start)
            look = find_look(game)
        seats: Sequence[str] = start["seats"]
        seed = start.get("seed")
        seed = Random().randrange(_NUM_SEEDS) if seed is None else int(seed)
        page = self._page = GamePage(
            game,
            seats,
            look,
            self,
            fps=_FPS,
            episodes=1,
            ended=lambda _: None,
            thinks=bool(start.get("think")),
            labels=dict(self._config.get("players", ())),
        )
        self._set_pace(start.get("fps", _FPS))
        while self._start is None:
            with limited:
                agents = [self._agent(page, name, seed + i, start) for i, name in enumerate(seats)]
            self._last = page.begin_run(seats, agents, self._config["source"], limited)
            limit = None if HUMAN in seats else MAX_STEPS
            limits = RunLimits(max_steps=limit, agent_timeout_s=self._limit_s, timer=self._timer)
            game.run(
                *agents, seed=seed, watch=self._last, step_timeout_s=self._limit_s, limits=limits
            )
            if self._start is None:
                page.wants_more()
            seed += 1

    def _agent(self, page: GamePage, name: str, seed: int, start: Mapping[str, Json]) -> Agent:
        if name == HUMAN:
            return BrowserAgent(page, start.get("clock_s"))
        if name == RANDOM:
            return RandomPlayer(seed)
        kind = self._config["agents"].get(name)
        if kind == "network":
            greedy = bool(start.get("greedy", {}).get(name, True))
            return NetworkPlayer(lambda given: self._think(name, given), seed, greedy=greedy)
        if kind == "bot" and is_bot_file(name):
            return load_bot(str(self._folder / name))(seed)
        own = game_agents(self._game_now).load(name, seed) if kind == "own" else None
        if own is None:
            known = ", ".join([HUMAN, RANDOM, *self._config["agents"]])
            raise UsageError(f"no player {name!r}: expected one of {known}")
        return own

    def _failure(self, error: Exception) -> dict[str, str]:
        """An error of a game's code: in one line, its line, and the traceback from the game on."""
        found = {
            "error": summary_of(error),
            "line": line_of_error(error),
            "trace": game_traceback(error),
        }
        folder = f"{self._folder}{os.sep}"
        return {name: text.replace(folder, "") for name, text in found.items()}

    @property
    def _game_now(self) -> Game:
        if self._game is None:
            raise UsageError("no game has been started")
        return self._game

    # ------------------------------------------------------------------ as `Browser`

    @property
    def changed(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Does nothing: there are no threads."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Takes messages until the predicate is true; False on timeout.

        Takes those that have come also if the timeout is 0.

        Raises:
            KeyboardInterrupt: the page asks for another start.
        """
        self._timer.stop()
        end_s = math.inf if timeout is None else monotonic() + timeout
        while not predicate():
            left_s = max(0.0, end_s - monotonic())
            text = self._receive(1000 * min(left_s, 3600.0))
            if text:
                self._take(json.loads(text))
            elif not left_s:
                return False
        return True

    def send(self, name: str, data: Json) -> None:
        self._post(name, json.dumps(data, separators=(",", ":"), allow_nan=False))

    def wait_for_page(self, wait_s: float = 0.0) -> bool:
        return True

    def sleep(self, wait_s: float) -> None:
        self._has_pace_changed = False
        self.wait_for(lambda: self._has_pace_changed, wait_s)

    # ------------------------------------------------------------------ messages

    def _take(self, message: Mapping[str, Json]) -> None:
        if "start" in message:
            self._start = message["start"]
            raise KeyboardInterrupt
        if "fps" in message:
            self._set_pace(message["fps"])
        elif "get" in message:
            self._send_last(message["get"])
        elif "step" in message:
            self._show_step(**message["step"])
        elif "answer" in message and self._page is not None:
            self.send("answered", self._page.answer(message["answer"]))

    def _set_pace(self, fps: float) -> None:
        self._has_pace_changed = True
        if self._page is not None:
            self._page.turn_s = 1 / fps if fps > 0 else math.inf

    def _show_step(self, turn: int, places: Mapping[str, Sequence[float]], player: str) -> None:
        """Shows a turn of the last episode, with what an agent would choose there."""
        turns = () if self._last is None else self._last.turns
        if self._page is None or not 0 <= turn < len(turns):
            return
        kind = self._config["agents"].get(player)
        agent = self._agent(self._page, player, 0, {}) if kind == "network" else None
        if isinstance(agent, PolicyAgent):
            agent.join(AgentRun(self._game_now.schema))
            for earlier in turns[:turn]:
                if earlier.agent_id == turns[turn].agent_id:
                    agent.watch(earlier.observation)
        moved = {int(index): (float(x), float(y)) for index, (x, y) in places.items()}
        title = f"step {turn + 1} of {len(turns)}"
        self._page.show_again(turns[turn], moved, agent, title)

    def _send_last(self, wanted: str) -> None:
        replay = None if self._last is None else self._last.replay
        if self._last is None or replay is None:
            return
        if wanted == "save":
            name = f"{self._game_now.name}-{replay.header.episode_seed}{SUFFIX}"
            self.send("save", [name, b64encode(replay.to_bytes()).decode()])
        elif animation := self._last.animation(self._game_now, find_look(self._game_now)):
            self.send("watch", animation.html())


class _PageTimer:
    """A timer in the page, which replaces a worker that has not stopped it in time.

    Nothing in a worker can interrupt Python. Waiting for the page stops it, too.
    """

    def __init__(self, send: Callable[[str, Json], None]) -> None:
        self._send = send
        self._is_running = False

    def open(self) -> None:
        """Does nothing."""

    def start(self, timeout_s: float, agent_id: int | None) -> None:
        self._is_running = True
        self._send("limit", {"seconds": timeout_s, "seat": agent_id})

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._send("limit", None)

    def close(self) -> None:
        """Does nothing."""


def page_game(config: Mapping[str, Json], folder: Path, *, is_new: bool = False) -> Game:
    """The game of a page.

    Args:
        config: see `PageConfig`.
        folder: with the game's own files.
        is_new: its files have changed: loads their modules again.
    """
    if is_new:
        for name, module in list(sys.modules.items()):
            if (file := getattr(module, "__file__", None)) and Path(file).is_relative_to(folder):
                del sys.modules[name]
    place, name = config["place"], config["name"]
    module = load_module(folder / place) if config["is_file"] else import_named(place)
    game = getattr(module, name, None)
    if not isinstance(game, Game):
        raise UsageError(f"{place} has no game {name!r}")
    return game.with_settings(**config["settings"])


def run_in_pyodide(
    config: str, post: Post, receive: Callable[[float], object], think: Think
) -> None:
    """Runs a `PageWorker` in Pyodide; must be called with `callPromising`.

    Args:
        config: as JSON.
        receive: as `Receive`, but returns a promise.

    Raises:
        UsageError: the browser cannot suspend Python.
    """
    from pyodide.ffi import (  # type: ignore[import-not-found]  # only in a browser
        can_run_sync,
        run_sync,
    )

    if not can_run_sync():
        raise UsageError(
            "this browser cannot suspend a program until the next move (JavaScript Promise "
            "Integration): use a current Chrome, Edge or another browser of their family"
        )
    PageWorker(
        json.loads(config),
        Path("/game"),
        post=post,
        receive=lambda wait_ms: str(run_sync(receive(wait_ms))),
        think=think,
    ).run()
