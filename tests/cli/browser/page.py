"""Games in a page, and the page as in a browser, in Python: events, and answers by POST."""

import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any
from unittest import mock

from entity_env import Game
from entity_env.agents import Agent, RandomAgent
from entity_env.cli.browser.play import play_in_browser
from entity_env.cli.browser.server import PageServer
from entity_env.cli.options import PlayOptions
from entity_env.core.episode import Episode
from entity_env.views import find_look

WAIT_S = 30.0


class LivePage:
    """A page of a `PageServer`, connected to its events.

    Attributes:
        events: the latest data of each event.
    """

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"http://(127\.0\.0\.1:\d+)(/[\w-]{32}/)", url)
        assert found is not None, url
        self.host, self.path = found[1], found[2]
        self.events: dict[str, Any] = {}
        self._stream = http.client.HTTPConnection(self.host, timeout=WAIT_S)
        self._stream.request("GET", f"{self.path}events")
        self._response = self._stream.getresponse()
        assert self._response.status == 200, self._response.read()
        self._answers = http.client.HTTPConnection(self.host, timeout=WAIT_S)

    def read(self) -> str:
        """Reads one event and returns its name; "" at the end of the stream."""
        name = ""
        while line := self._response.readline():
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                self.events[name] = json.loads(value)
            elif not line.strip() and name:
                return name
        return ""

    def wait_for(self, is_there: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Reads until a frame meets a condition, and returns it."""
        while "frame" not in self.events or not is_there(self.events["frame"]):
            assert self.read(), "the stream has ended"
        frame: dict[str, Any] = self.events["frame"]
        return frame

    def question(self) -> dict[str, Any]:
        """The next question that has not been answered."""
        asked: dict[str, Any] = self.wait_for(lambda frame: frame["asked"])["asked"]
        return asked

    def answer(self, **answer: object) -> None:
        """Answers the question and waits for the next frame."""
        number = self.question()["number"]
        assert self.post({"number": number, **answer}) == (204, "")
        self.wait_for(lambda frame: not frame["asked"] or frame["asked"]["number"] > number)

    def again(self) -> None:
        """Asks for the next episode or run."""
        self.answer(again=True)

    def press(self, key: str) -> None:
        """Answers with the choice that has a key."""
        choices = self.question()["choices"]
        self.answer(choice=next(each[0] for each in choices if key in each[2]))

    def post(self, data: object) -> tuple[int, str]:
        """Status and text of the response to a POST."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        headers = {"Content-Type": "application/json"}
        self._answers.request("POST", f"{self.path}answer", body, headers)
        response = self._answers.getresponse()
        return response.status, response.read().decode()

    def get(self, route: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the response to a GET."""
        self._answers.request("GET", self.path + route)
        response = self._answers.getresponse()
        headers = {key.lower(): value for key, value in response.getheaders()}
        return response.status, headers, response.read()

    def close(self) -> None:
        """Closes the page."""
        self._response.close()
        self._stream.close()
        self._answers.close()

    def __enter__(self) -> "LivePage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Played:
    """A game played in another thread; `options` are those of `play_in_browser`."""

    def __init__(
        self,
        game: Game,
        names: Sequence[str],
        clock_s: float | None = None,
        load: Callable[[str, int], Agent] | None = None,
        **options: object,
    ) -> None:
        self.episodes: list[Episode] = []
        self._error: BaseException | None = None
        self.url = ""
        self._has_url = threading.Event()
        start = PlayOptions(seed=1, step_timeout_s=None, clock_s=clock_s)
        own = {"look": find_look(game), "start": start, "episodes": 1, "fps": 1000.0}
        own |= {"is_opened": False, **options}
        self._load = load or (lambda _, seed: RandomAgent(seed=seed))
        self._thread = threading.Thread(target=self._play, args=(game, names, own), daemon=True)
        self._thread.start()
        assert self._has_url.wait(WAIT_S)

    def _play(self, game: Game, names: Sequence[str], options: dict[str, Any]) -> None:
        def load(seed: int) -> list[Agent]:
            return [self._load(name, seed + i) for i, name in enumerate(names)]

        def announce(server: PageServer, title: str, *, is_opened: bool) -> None:
            self.url = server.url
            self._has_url.set()

        try:
            with mock.patch.object(PageServer, "announce", announce):
                play_in_browser(game, names, load, ended=self.episodes.append, **options)
        except BaseException as error:  # raised in the test
            self._error = error
        finally:
            self._has_url.set()

    def page(self) -> LivePage:
        return LivePage(self.url)

    def finish(self) -> list[Episode]:
        """Takes the first choices until the last episode is over, and joins."""
        with self.page() as page:
            while not (frame := page.wait_for(lambda frame: frame["asked"]))["over"]:
                asked = frame["asked"]
                if asked["values"]:
                    page.answer(values=[low for _, low, _ in asked["values"]])
                else:
                    page.answer(choice=asked["choices"][0][0])
        return self.join()

    def join(self) -> list[Episode]:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self.episodes


def request(
    url: str, method: str = "GET", target: str = "", body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of a raw request; `Content_Type` is the header Content-Type."""
    found = re.match(r"http://(127\.0\.0\.1):(\d+)(/.*)", url)
    assert found is not None
    named = {"Host": f"{found[1]}:{found[2]}", "Connection": "close"}
    named |= {"Content-Length": str(len(body))} if body else {}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {target or found[3]} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in named.items() if value != "absent"]
    with socket.create_connection((found[1], int(found[2])), WAIT_S) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin1") + body)
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        text = response.read().decode()
    return response.status, {key.lower(): value for key, value in response.getheaders()}, text
