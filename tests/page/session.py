"""A page's conversation with a `PageWorker`, without a browser."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from entity_env.page.live.worker import PageWorker

Message: TypeAlias = Mapping[str, Any] | None
Script: TypeAlias = "Callable[[Session], Iterator[Message]]"
"""Yields the messages of a visitor, None for a wait without one."""


class Closed(BaseException):
    """The page was closed."""


class Session:
    """Plays a script: the worker gets the next message whenever it waits for one.

    Attributes:
        events: the latest data of each event.
        log: all events in order.
        waits: how long the worker waited, in milliseconds.
    """

    def __init__(self, script: Script, think: Callable[[str, str], str] | None = None) -> None:
        self.events: dict[str, Any] = {}
        self.log: list[tuple[str, Any]] = []
        self.waits: list[float] = []
        self._messages = script(self)
        self._think = think

    def post(self, name: str, text: str) -> None:
        self.events[name] = json.loads(text)
        self.log.append((name, self.events[name]))

    def receive(self, wait_ms: float) -> str:
        self.waits.append(wait_ms)
        try:
            message = next(self._messages)
        except StopIteration:
            raise Closed from None
        return "" if message is None else json.dumps(message)

    def run(self, config: Mapping[str, Any], folder: Path) -> "Session":
        think = self._think or (lambda name, given: "")
        worker = PageWorker(config, folder, post=self.post, receive=self.receive, think=think)
        with suppress(Closed):
            worker.run()
        return self

    @property
    def frame(self) -> dict[str, Any]:
        assert "frame" in self.events, self.events
        found: dict[str, Any] = self.events["frame"]
        return found

    @property
    def replay(self) -> bytes:
        return b64decode(self.events["save"][1])

    def answer(self, **answer: object) -> Message:
        """An answer to the open question."""
        return {"answer": {"number": self.frame["asked"]["number"], **answer}}

    def first_choice(self) -> Message:
        """Answers the open question with its first choice, or with the lowest numbers."""
        asked = self.frame["asked"]
        if asked["values"]:
            return self.answer(values=[low for _, low, _ in asked["values"]])
        return self.answer(choice=asked["choices"][0][0])

    def to_end(self) -> Iterator[Message]:
        """Answers until the episode is over."""
        while not self.frame["over"]:
            yield self.first_choice()


def start(*seats: str, seed: int = 1, **more: object) -> Message:
    return {"start": {"seats": seats, "seed": seed, **more}}


def config_of(place: str, name: str, **more: object) -> dict[str, Any]:
    """The configuration of a page for a game of this package, or of a file."""
    is_file = place.endswith(".py")
    fixed = {"source": "", "settings": {}, "agents": {}}
    return {"place": place, "name": name, "is_file": is_file, **fixed, **more}
