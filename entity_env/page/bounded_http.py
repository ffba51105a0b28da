"""`BoundedServer`, `OneLineHandler`: HTTP with limited connections, deadlines, and short refusals.

The base of servers whose address holds a key. Connections that have not sent it are few and short,
so they cannot lock out those that have.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar, Final, NamedTuple

from entity_env.errors import UsageError
from entity_env.views.scene import one_line

NOTHING_ALLOWED: Final = "default-src 'none'; base-uri 'none'; form-action 'none'"
"""Start of a Content-Security-Policy."""
_MAX_LINE: Final = 500
_LEAVE_S: Final = 2.0
_POLL_S: Final = 0.05
_REQUEST_LINE: Final = re.compile(rb"[^\s]+ [^\s]+ HTTP/1\.[0-9]\r?\n")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TEXT: Final = "text/plain; charset=utf-8"


class Bounds(NamedTuple):
    """Limits of a `BoundedServer`.

    Args:
        max_connections: limit for connections that have sent the key.
        max_keyless: limit for others; a new connection replaces the oldest.
        key_s: time for a connection to send a request line and headers with the key.
    """

    max_connections: int = 64
    max_keyless: int = 32
    key_s: float = 5.0


class BoundedServer(ThreadingHTTPServer):
    """HTTP server that tracks its threads and connections, to limit them and to end them with it.

    Args:
        address: host and port; port 0 = any free port.
        handler: answers requests; calls `admit` for those with the key.
        bounds: limits of connections.

    Raises:
        UsageError: the address cannot be used.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(
        self, address: tuple[str, int], handler: type[OneLineHandler], bounds: Bounds
    ) -> None:
        self._bounds = bounds
        self._open: dict[socket.socket, threading.Thread] = {}
        self._keyless: dict[socket.socket, float] = {}
        """When to drop each connection without the key, oldest first."""
        self._admitted: dict[socket.socket, float] = {}
        """When to drop each connection with the key."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, handler)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"cannot listen on {address[0]}, port {address[1]}: {reason}"
            ) from error

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's method queries a name server
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )

    def start(self, name: str) -> None:
        """Serves requests in a thread with this name, until `stop`."""
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name=name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Closes port and connections, and waits for the threads; may be called twice."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._lock:
            found = list(self._open)
        self._drop(found)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as there
        thread = threading.Thread(
            target=self._handle, args=(request, client_address), name="request", daemon=True
        )
        with self._lock:
            is_full = len(self._keyless) >= self._bounds.max_keyless
            oldest = list(self._keyless)[:1] if is_full else []
            self._open[request] = thread
            self._keyless[request] = time.monotonic() + self._bounds.key_s
        self._drop(oldest)
        thread.start()

    def service_actions(self) -> None:
        """Drops connections that missed their deadline; called at least every 0.05 s."""
        now = time.monotonic()
        with self._lock:
            deadlines = [*self._keyless.items(), *self._admitted.items()]
        self._drop([request for request, deadline in deadlines if deadline <= now])

    def admit(self, request: socket.socket, within_s: float = math.inf) -> bool:
        """Counts a connection that sent the key; False if there are too many.

        Args:
            within_s: time to the end of the connection. A further call sets it again.
        """
        with self._lock:
            if request in self._keyless:
                if len(self._admitted) >= self._bounds.max_connections:
                    return False
                del self._keyless[request]
            self._admitted[request] = time.monotonic() + within_s
            return True

    def _handle(self, request: socket.socket, client_address: Any) -> None:  # noqa: ANN401
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
                self._keyless.pop(request, None)
                self._admitted.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as there
        logging.getLogger(__name__).exception("a request failed")

    def _drop(self, requests: list[socket.socket]) -> None:
        with self._lock:
            threads = [self._open[request] for request in requests if request in self._open]
        for request in requests:
            with suppress(OSError):  # closed in between
                request.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _LEAVE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class OneLineHandler(BaseHTTPRequestHandler):
    """Handler of HTTP/1.1 requests that refuses with one line of text, and logs nothing."""

    METHODS: ClassVar = "GET or POST"
    """The methods that subclasses implement, for messages."""
    protocol_version = "HTTP/1.1"
    raw_requestline: bytes
    timeout = 120
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):  # the client is gone
            self.close_connection = True

    def parse_request(self) -> bool:
        """Refuses versions other than HTTP/1.x with a status line, which the base class omits."""
        if _REQUEST_LINE.fullmatch(self.raw_requestline):
            return super().parse_request()
        self.command, self.requestline, self.request_version = "", "", self.protocol_version
        self.refuse(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1.1")
        return False

    def handle_expect_100(self) -> bool:
        """Sends nothing: `body` does, once the request is valid."""
        return True

    def body(self, kind: str, max_bytes: int) -> bytes | None:
        """The body of a POST with this content type; None after a refusal."""
        length = self.headers.get_all("Content-Length") or []
        given = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if given != kind:
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected {kind}")
        elif len(length) != 1 or not re.fullmatch("[0-9]{1,9}", length[0], re.ASCII):
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "expected one Content-Length")
        elif int(length[0]) > max_bytes:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {max_bytes} bytes")
        elif "Transfer-Encoding" in self.headers:
            self.refuse(HTTPStatus.BAD_REQUEST, "expected a body without Transfer-Encoding")
        else:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.send_response_only(HTTPStatus.CONTINUE)
                self.end_headers()
            body = self.rfile.read(int(length[0]))
            if len(body) == int(length[0]):
                return body
            self.close_connection = True  # the client left midway
        return None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """One line, also for refusals of the base class."""
        text = HTTPStatus(code).phrase.lower() if message is None else message
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, text = HTTPStatus.METHOD_NOT_ALLOWED, f"expected {self.METHODS}"
        self.refuse(HTTPStatus(code), text)

    def refuse(self, status: HTTPStatus, problem: str) -> None:
        """Sends a problem in one line, and closes the connection."""
        self.close_connection = True
        self.reply_line(status, problem, {"Connection": "close"})

    def reply_line(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends a text in one line."""
        self.reply(status, _TEXT, f"{one_line(text)[:_MAX_LINE]}\n", headers)

    def reply(
        self,
        status: HTTPStatus,
        kind: str = _TEXT,
        content: str | bytes = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Sends a response; without a body if the status has none."""
        body = content.encode(errors="replace") if isinstance(content, str) else content
        self.send_response(status)
        of_body = {"Content-Type": kind, "Content-Length": str(len(body))}
        if status is HTTPStatus.NO_CONTENT:
            of_body = {}
        policy = {"Content-Security-Policy": f"{NOTHING_ALLOWED}; frame-ancestors 'self'; sandbox"}
        self.send_headers({**of_body, **policy, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_headers(self, headers: Mapping[str, str]) -> None:
        """Sends these headers and those of every response, and ends the headers."""
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "entity-env"

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: the command prints what matters."""
