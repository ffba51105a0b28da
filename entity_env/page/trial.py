"""`play_trial`: plays one episode as a page does, with random answers instead of a visitor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from entity_env.agents.human.prompt import HUMAN
from entity_env.errors import EntityEnvError
from entity_env.page.live.questions import Json
from entity_env.page.live.worker import PageWorker, page_game

_MAX_ANSWERS: Final = 300


class _Left(BaseException):
    """The trial is over."""


class TrialFailed(EntityEnvError):
    """A game cannot be played in a page.

    Attributes:
        trace: traceback of the game.
    """

    def __init__(self, error: str, trace: str) -> None:
        super().__init__(error)
        self.trace = trace


class _Visitor:
    """Answers the questions of a page at random, and then asks for the replay and the animation."""

    def __init__(self, seats: Sequence[str], seed: int) -> None:
        self._rng = Random(seed)
        self._first: dict[str, Json] | None = {"start": {"seats": seats, "seed": seed}}
        self._frame: Mapping[str, Any] = {}
        self._wanted = ["save", "watch"]
        self._num_answers = 0

    def post(self, name: str, text: str) -> None:
        if name == "frame":
            self._frame = json.loads(text)
        elif name == "failed":
            failure = json.loads(text)
            raise TrialFailed(failure["error"], failure["trace"])

    def receive(self, wait_ms: float) -> str:
        if self._first is not None:
            message, self._first = self._first, None
            return json.dumps(message)
        asked = self._frame.get("asked")
        self._num_answers += 1
        if asked is None or self._num_answers > _MAX_ANSWERS:
            raise _Left
        if self._frame.get("over"):
            if not self._wanted:
                raise _Left
            return json.dumps({"get": self._wanted.pop(0)})
        answer: dict[str, Json] = {"number": asked["number"]}
        if asked["values"]:
            answer["values"] = [self._rng.uniform(low, high) for _, low, high in asked["values"]]
        else:
            answer["choice"] = self._rng.choice(asked["choices"])[0]
        return json.dumps({"answer": answer})


def play_trial(
    agents: Mapping[str, str], config: Mapping[str, Json], folder: str, seed: int = 0
) -> None:
    """Plays an episode of a page's game with people, and one with each agent in the first seat.

    Of each episode, at most 300 decisions; and draws it.

    Args:
        agents: kinds of agents by name, as in `PageWorker`; without networks.
        config: see `PageContents.config`.
        folder: with the game's own files.

    Raises:
        TrialFailed: the game's code raised.
    """
    game = page_game(config, Path(folder))
    people = [HUMAN] * game.num_agents
    for seats in (people, *([name, *people[1:]] for name in agents)):
        visitor = _Visitor(seats, seed)
        worker = PageWorker(
            {**config, "agents": agents},
            Path(folder),
            post=visitor.post,
            receive=visitor.receive,
            think=lambda name, given: "",
        )
        with suppress(_Left):
            worker.run()
