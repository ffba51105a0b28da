"""`PageServer`: serves pages and events to browsers on this machine, and receives answers.

The address contains a random key. Requests without it, or under another host name (as in DNS
rebinding), are refused. A page is what `get` returns for the exact text after the key: no path is
looked up. Requests read files and change state only through `get` and `post`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from entity_env.cli.display.console import echo
from entity_env.core.files import parse_json
from entity_env.errors import EntityEnvError
from entity_env.page.bounded_http import BoundedServer, Bounds, OneLineHandler
from entity_env.views.page import content_policy, player_sources, template

_ADDRESS: Final = "127.0.0.1"
_MAX_BODY: Final = 4096
_MAX_NAME: Final = 100
_MAX_CONNECTIONS: Final = 64
"""Limit for connections that have sent the key."""
_MAX_KEYLESS: Final = 32
"""Limit for others; a new connection replaces the oldest, so they cannot lock the page out."""
_MAX_STREAMS: Final = 8
_KEY_S: Final = 5.0
"""Time for a connection to send a request line and headers with the key."""
_SLOW_S: Final = 10
"""Time for a page to read what it was sent; then it must reconnect."""
_LOOK_S: Final = 0.5
"""Interval at which a stream without events checks whether its page is still connected."""
_LEAVE_S: Final = 2.0

Post: TypeAlias = Callable[[object], str]
"""Takes parsed JSON from a page; returns why it was refused, or ""."""


class Page(NamedTuple):
    """A document, and its Content-Security-Policy."""

    html: str
    policy: str

    @classmethod
    def of(cls, file: Path, style: str = "") -> Page:
        """A page of this package that talks to the server; `style` replaces `@STYLE@`."""
        html = template(file).replace("@STYLE@", style)
        frames = {"frame": "'self'"} if "<iframe" in html else {}
        policy = content_policy(html, connect="'self'", **frames)
        return cls(html, f"{policy}; frame-ancestors 'none'")

    @classmethod
    def of_animation(cls, html: str) -> Page:
        """The page of an `Animation` in a frame, which can reach neither its parent nor the server.

        Runs only the player's scripts, whatever the page's data.
        """
        policy = content_policy(player_sources())
        return cls(html, f"{policy}; frame-ancestors 'self'; sandbox allow-scripts")


class Download(NamedTuple):
    """A file for the browser to save, never to show.

    Args:
        name: proposed name of the file; other characters than letters, digits, `.`, `-` and `_` are
            replaced.
    """

    name: str
    content: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Headers that make the browser save the file."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", self.name)[:_MAX_NAME]
        return {"Content-Disposition": f'attachment; filename="{name}"'}


Get: TypeAlias = Callable[[str], Page | Download | None]
"""Returns what a route serves, if it exists."""


class Feed:
    """The latest event of each name, for any number of readers.

    Slow readers miss events that were replaced; nothing waits for them, and nothing piles up.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._latest: dict[str, tuple[int, bytes]] = {}
        self._version = 0
        self.is_closed = False
        self.num_readers = 0

    def put(self, name: str, data: object) -> None:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        with self._changed:
            self._version += 1
            self._latest.pop(name, None)  # to the end: events are sent in order
            self._latest[name] = (self._version, b"event: %b\ndata: %b\n\n" % (name.encode(), text))
            self._changed.notify_all()

    def newer(self, seen: int, wait_s: float) -> tuple[int, bytes]:
        """Number of the last event, and the events after number `seen`.

        Waits up to `wait_s` for an event if there is none.
        """
        with self._changed:
            if self._version == seen and not self.is_closed:
                self._changed.wait(wait_s)
            news = [text for version, text in self._latest.values() if version > seen]
            return self._version, b"".join(news)

    def join(self, step: int) -> bool:
        """Adds a reader, or removes one with -1; False if there are too many."""
        with self._changed:
            if step > 0 and (self.num_readers >= _MAX_STREAMS or self.is_closed):
                return False
            self.num_readers += step
            self._changed.notify_all()
            return True

    def wait_for_readers(self, wanted: bool, wait_s: float) -> bool:
        """Waits until there are readers, or none; False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: (self.num_readers > 0) == wanted, wait_s)

    def close(self) -> None:
        """Ends all readers after the present events."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()


class PageServer:
    """Serves pages on 127.0.0.1 until it is closed.

    `url` + "events" is a stream of server-sent events: a new connection first gets the latest event
    of each name. `url` + "answer" takes JSON of at most 4 kB by POST.

    Args:
        get: the page or file of a route, the exact text after `url`, if it exists. Called in other
            threads; an `EntityEnvError` is shown in one line.
        post: called in other threads, one call at a time.
    """

    def __init__(self, get: Get, post: Post | None = None) -> None:
        self.changed = threading.Condition()
        """Held while `post` runs, and notified afterwards."""
        self._feed = Feed()
        self._server = _Server(get, post and partial(self._posted, post), self._feed)
        self._server.start("page-server")

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address of the first page, with the key."""
        return f"http://{_ADDRESS}:{self.port}{self._server.prefix}"

    def announce(self, title: str, *, is_opened: bool) -> None:
        """Prints the address, and opens the browser on request if there is a screen."""
        echo(f"{title}: {self.url}")
        has_screen = sys.platform in ("darwin", "win32") or any(
            map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
        )
        if is_opened and has_screen:
            webbrowser.open(self.url)

    def _posted(self, post: Post, answer: object) -> str:
        with self.changed:
            problem = post(answer)
            self.changed.notify_all()
            return problem

    def sleep(self, wait_s: float) -> None:
        time.sleep(wait_s)

    def send(self, name: str, data: object) -> None:
        """Sends an event to all pages, also to later ones; never waits for them."""
        self._feed.put(name, data)

    def wait_for_page(self, wait_s: float = 0.0) -> bool:
        """Waits for a page; True if one is connected."""
        return self._feed.wait_for_readers(True, wait_s)

    def wait_for_leaving(self, wait_s: float) -> bool:
        """Waits until the last page is closed; True if none is connected."""
        return self._feed.wait_for_readers(False, wait_s)

    def close(self) -> None:
        """Sends the event `bye`, closes port and connections, and stops all threads."""
        if not self._feed.is_closed:
            self._feed.put("bye", None)
        self._feed.close()
        self._feed.wait_for_readers(False, _LEAVE_S)
        self._server.stop()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(BoundedServer):
    def __init__(self, get: Get, post: Post | None, feed: Feed) -> None:
        self.get, self.post, self.feed = get, post, feed
        self.prefix = f"/{secrets.token_urlsafe(24)}/"
        bounds = Bounds(_MAX_CONNECTIONS, _MAX_KEYLESS, _KEY_S)
        super().__init__((_ADDRESS, 0), _Handler, bounds)


class _Handler(OneLineHandler):
    server: _Server

    def do_GET(self) -> None:
        route = self._route()
        if route is None:
            return
        lengths = self.headers.get_all("Content-Length", [])
        if any(length != "0" for length in lengths) or "Transfer-Encoding" in self.headers:
            self.refuse(HTTPStatus.BAD_REQUEST, "a GET has no body")
        elif route == "events":
            self._stream(self.server.feed)
        else:
            try:
                found = self.server.get(route)
            except EntityEnvError as error:
                self.refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
                return
            if found is None:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            elif isinstance(found, Download):
                kind = "application/octet-stream"
                self.reply(HTTPStatus.OK, kind, found.content, found.headers)
            else:
                headers = {"Content-Security-Policy": found.policy}
                self.reply(HTTPStatus.OK, "text/html; charset=utf-8", found.html, headers)

    def do_POST(self) -> None:
        post, route = self.server.post, self._route()
        if route is None:
            return
        if route != "answer" or post is None:
            self.refuse(HTTPStatus.NOT_FOUND, "nothing is sent to this address")
            return
        body = self.body("application/json", _MAX_BODY)
        if body is None:
            return
        try:
            problem = post(parse_json(body))
        except ValueError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, f"expected JSON: {error}")
            return
        if problem:
            self.reply_line(HTTPStatus.CONFLICT, problem)
        else:
            self.reply(HTTPStatus.NO_CONTENT)

    def _route(self) -> str | None:
        """The text after the key; None after a refusal."""
        prefix, hosts = self.server.prefix, self.headers.get_all("Host", [])
        own = [f"{name}:{self.server.server_port}" for name in (_ADDRESS, "localhost")]
        origins = self.headers.get_all("Origin", [])
        key = self.path[: len(prefix)]
        if len(hosts) != 1 or hosts[0] not in own:
            self.refuse(HTTPStatus.FORBIDDEN, f"expected the address http://{own[0]}")
        elif any(origin != f"http://{hosts[0]}" for origin in origins):
            self.refuse(HTTPStatus.FORBIDDEN, "the request comes from another page")
        elif not secrets.compare_digest(key.encode(), prefix.encode()):
            self.refuse(HTTPStatus.FORBIDDEN, "the address lacks its key: copy all of it")
        elif not self.server.admit(self.connection):
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open: close one")
        else:
            return self.path.removeprefix(prefix)
        return None

    def _stream(self, feed: Feed) -> None:
        """Sends events until the page or the server is gone."""
        self.close_connection = True
        if not feed.join(1):
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open: close one")
            return
        try:
            self.connection.settimeout(_SLOW_S)
            self.send_response(HTTPStatus.OK)
            self.send_headers({"Content-Type": "text/event-stream", "Connection": "close"})
            self.wfile.write(b"retry: 500\n\n")
            seen = 0
            while True:
                is_last = feed.is_closed
                seen, news = feed.newer(seen, 0 if is_last else _LOOK_S)
                if news:
                    self.wfile.write(news)
                if is_last or (not news and self._is_page_gone()):
                    break
        finally:
            feed.join(-1)

    def _is_page_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
