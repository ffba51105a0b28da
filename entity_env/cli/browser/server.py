"""`PageServer`: serves pages and events to browsers on this machine, and receives answers.

The address contains a random key. Requests without it, or under another host name (as in DNS
rebinding), are refused. A page is what `get` returns for the exact text after the key: no path is
looked up. Requests read files and change state only through `get` and `post`.
"""

from __future__ import annotations

import json
import logging
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
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Final, NamedTuple, TypeAlias

from entity_env.cli.display.console import echo
from entity_env.core.files import parse_json
from entity_env.errors import EntityEnvError
from entity_env.views.page import content_policy, player_sources, template
from entity_env.views.scene import one_line

_ADDRESS: Final = "127.0.0.1"
_MAX_BODY: Final = 4096
_MAX_LINE: Final = 500
_MAX_NAME: Final = 100
_MAX_CONNECTIONS: Final = 64
"""Limit for connections that have sent the key."""
_MAX_KEYLESS: Final = 32
"""Limit for others; a new connection replaces the oldest, so they cannot lock the page out."""
_MAX_STREAMS: Final = 8
_KEY_S: Final = 5.0
"""Time for a connection to send a request line and headers with the key."""
_IDLE_S: Final = 120
_REQUEST_LINE: Final = re.compile(rb"[^\s]+ [^\s]+ HTTP/1\.[0-9]\r?\n")
_SLOW_S: Final = 10
"""Time for a page to read what it was sent; then it must reconnect."""
_LOOK_S: Final = 0.5
"""Interval at which a stream without events checks whether its page is still connected."""
_LEAVE_S: Final = 2.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TEXT: Final = "text/plain; charset=utf-8"
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'"

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
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="page-server", daemon=True
        )
        self._thread.start()

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
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.drop_connections(_LEAVE_S)

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Tracks threads and connections, to end them with the server."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, get: Get, post: Post | None, feed: Feed) -> None:
        self.get, self.post, self.feed = get, post, feed
        self.prefix = f"/{secrets.token_urlsafe(24)}/"
        self._open: dict[socket.socket, threading.Thread] = {}
        self._keyless: dict[socket.socket, float] = {}
        """When to drop each connection without the key, oldest first."""
        self._lock = threading.Lock()
        super().__init__((_ADDRESS, 0), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's method queries a name server
        self.server_name, self.server_port = _ADDRESS, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as there
        thread = threading.Thread(
            target=self._handle, args=(request, client_address), name="page", daemon=True
        )
        with self._lock:
            is_full = len(self._keyless) >= _MAX_KEYLESS
            oldest = list(self._keyless)[:1] if is_full else []
            self._open[request] = thread
            self._keyless[request] = time.monotonic() + _KEY_S
        self._drop(oldest, _LEAVE_S)
        thread.start()

    def service_actions(self) -> None:
        """Drops connections that missed the deadline for the key; called at least every 0.05 s."""
        now = time.monotonic()
        with self._lock:
            late = [request for request, deadline in self._keyless.items() if deadline <= now]
        self._drop(late, _LEAVE_S)

    def admit(self, request: socket.socket) -> bool:
        """Counts a connection that sent the key; False if there are too many."""
        with self._lock:
            if request in self._keyless:
                if len(self._open) - len(self._keyless) >= _MAX_CONNECTIONS:
                    return False
                del self._keyless[request]
            return True

    def _handle(self, request: socket.socket, client_address: Any) -> None:  # noqa: ANN401
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
                self._keyless.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as there
        logging.getLogger(__name__).exception("a request failed")

    def drop_connections(self, wait_s: float) -> None:
        with self._lock:
            found = list(self._open)
        self._drop(found, wait_s)

    def _drop(self, requests: list[socket.socket], wait_s: float) -> None:
        with self._lock:
            threads = [self._open[request] for request in requests if request in self._open]
        for request in requests:
            with suppress(OSError):  # closed in between
                request.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + wait_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    raw_requestline: bytes
    timeout = _IDLE_S
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):  # the page is gone
            self.close_connection = True

    def parse_request(self) -> bool:
        """Refuses versions other than HTTP/1.x with a status line, which the base class omits."""
        if _REQUEST_LINE.fullmatch(self.raw_requestline):
            return super().parse_request()
        self.command, self.requestline, self.request_version = "", "", self.protocol_version
        self._refuse(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1")
        return False

    def handle_expect_100(self) -> bool:
        """Sends nothing: `_body` does, once the request is valid."""
        return True

    def do_GET(self) -> None:
        route = self._route()
        if route is None:
            return
        lengths = self.headers.get_all("Content-Length", [])
        if any(length != "0" for length in lengths) or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.BAD_REQUEST, "a GET has no body")
        elif route == "events":
            self._stream(self.server.feed)
        else:
            try:
                found = self.server.get(route)
            except EntityEnvError as error:
                self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
                return
            if found is None:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            elif isinstance(found, Download):
                kind = "application/octet-stream"
                self._reply(HTTPStatus.OK, kind, found.content, found.headers)
            else:
                headers = {"Content-Security-Policy": found.policy}
                self._reply(HTTPStatus.OK, "text/html; charset=utf-8", found.html, headers)

    def do_POST(self) -> None:
        post, route = self.server.post, self._route()
        if route is None:
            return
        if route != "answer" or post is None:
            self._refuse(HTTPStatus.NOT_FOUND, "nothing is sent to this address")
            return
        body = self._body()
        if body is None:
            return
        try:
            problem = post(parse_json(body))
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"expected JSON: {error}")
            return
        if problem:
            self._reply(HTTPStatus.CONFLICT, _TEXT, f"{one_line(problem)[:_MAX_LINE]}\n")
        else:
            self._reply(HTTPStatus.NO_CONTENT, _TEXT, "")

    def _route(self) -> str | None:
        """The text after the key; None after a refusal."""
        prefix, hosts = self.server.prefix, self.headers.get_all("Host", [])
        own = [f"{name}:{self.server.server_port}" for name in (_ADDRESS, "localhost")]
        origins = self.headers.get_all("Origin", [])
        key = self.path[: len(prefix)]
        if len(hosts) != 1 or hosts[0] not in own:
            self._refuse(HTTPStatus.FORBIDDEN, f"expected the address http://{own[0]}")
        elif any(origin != f"http://{hosts[0]}" for origin in origins):
            self._refuse(HTTPStatus.FORBIDDEN, "the request comes from another page")
        elif not secrets.compare_digest(key.encode(), prefix.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the address lacks its key: copy all of it")
        elif not self.server.admit(self.connection):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open: close one")
        else:
            return self.path.removeprefix(prefix)
        return None

    def _body(self) -> bytes | None:
        """The body of a POST; None after a refusal."""
        length = self.headers.get_all("Content-Length") or []
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        elif len(length) != 1 or not re.fullmatch("[0-9]{1,9}", length[0], re.ASCII):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "expected one Content-Length")
        elif int(length[0]) > _MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {_MAX_BODY} bytes")
        elif "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a body without Transfer-Encoding")
        else:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.send_response_only(HTTPStatus.CONTINUE)
                self.end_headers()
            body = self.rfile.read(int(length[0]))
            if len(body) == int(length[0]):
                return body
            self.close_connection = True  # the page left midway
        return None

    def _stream(self, feed: Feed) -> None:
        """Sends events until the page or the server is gone."""
        self.close_connection = True
        if not feed.join(1):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open: close one")
            return
        try:
            self.connection.settimeout(_SLOW_S)
            self.send_response(HTTPStatus.OK)
            self._send_headers({"Content-Type": "text/event-stream", "Connection": "close"})
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

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One line, also for refusals of the base class."""
        text = HTTPStatus(code).phrase.lower() if message is None else message
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, text = HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or POST"
        self._refuse(HTTPStatus(code), text)

    def _refuse(self, status: HTTPStatus, problem: str) -> None:
        self.close_connection = True
        self._reply(status, _TEXT, f"{one_line(problem)[:_MAX_LINE]}\n", {"Connection": "close"})

    def _reply(
        self,
        status: HTTPStatus,
        kind: str,
        content: str | bytes,
        headers: dict[str, str] | None = None,
    ) -> None:
        body = content.encode(errors="replace") if isinstance(content, str) else content
        self.send_response(status)
        of_body = {"Content-Type": kind, "Content-Length": str(len(body))}
        if status is HTTPStatus.NO_CONTENT:
            of_body = {}
        policy = {"Content-Security-Policy": f"{_NOTHING}; frame-ancestors 'self'; sandbox"}
        self._send_headers({**of_body, **policy, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_headers(self, headers: dict[str, str]) -> None:
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "entity-env"

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the command prints what matters."""
