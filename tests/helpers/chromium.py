"""A headless Chromium, controlled through its debugging pipe, without extra packages."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_S = 30.0
_START = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""  # moves the pipes to the descriptors that the browser expects, which may be in use here


@contextmanager
def serving(folder: Path, handler: type[SimpleHTTPRequestHandler]) -> Iterator[str]:
    """Serves a folder on this machine; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Chromium:
    """One page; close it after use.

    Args:
        url: of the page.
        profile: a new folder.
    """

    def __init__(self, url: str, profile: Path, size: tuple[int, int] = (1000, 640)) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        flags = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs_in), str(theirs_out), str(PROGRAM), *flags],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._reader, self._writer = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self._numbers = itertools.count(1)
        self._unread = b""
        self._session = ""
        self.problems: list[str] = []
        """What the browser logged: refused scripts, exceptions, failed requests."""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.go(url)

    def go(self, url: str) -> None:
        """Opens a page and waits until it is loaded."""
        self.value("window.isOld = true")
        self.call("Page.navigate", url=url)
        self.wait_for("!window.isOld && document.readyState == 'complete'")

    def emulate(self, width: int, height: int, *, is_mobile: bool = False, **features: str) -> None:
        """Sets the size of the window, and media features such as `prefers_color_scheme`."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        named = [{"name": k.replace("_", "-"), "value": value} for k, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def call(self, method: str, **params: object) -> Any:  # noqa: ANN401 - any JSON
        """The result of a method of the protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == number:
                if "error" in found:
                    raise AssertionError(f"{method}: {found['error']}")
                return found["result"]
            if found.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.problems.append(json.dumps(found["params"])[:500])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = self._reader.read(1 << 16)
            if not more:
                raise AssertionError("the browser has ended")
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def value(self, script: str) -> Any:  # noqa: ANN401 - any JSON
        """The value of an expression in the page; awaits promises."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, script: str) -> Any:  # noqa: ANN401 - any JSON
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.value(script)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{script} is {found} after {WAIT_S} s")
            time.sleep(0.02)
        return found

    def press(self, key: str) -> None:
        """Presses a key like a person."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text)

    def click(self, x: float, y: float) -> None:
        """Clicks at a point of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """Writes a PNG of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, in pixels of the window."""
        x, y, width, height = self.value(
            f"(b => [b.x, b.y, b.width, b.height])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        return x, y, width, height

    def close(self) -> None:
        """Ends the browser."""
        try:
            self._session = ""
            self.call("Browser.close")
        except (AssertionError, OSError):  # it has already ended
            pass
        finally:
            self._reader.close()
            self._writer.close()
            self._process.wait(WAIT_S)

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@cache
def axe_core() -> str:
    """The script of axe-core; "" if it is not installed."""
    spec = find_spec("axe_playwright_python")
    folders: Any = spec.submodule_search_locations if spec else []
    return "".join((Path(each) / "axe.min.js").read_text("utf-8") for each in folders)
