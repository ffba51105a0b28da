"""A page as in a browser, in Python: a stream of events, and answers by POST."""

import http.client
import json
import re
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any

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
