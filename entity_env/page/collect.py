"""`ReplayCollector`: receives replays from pages by HTTP, and keeps those that play again equally.

A sender chooses only the actions and the seed of an episode. The collector's game plays them again
in a process with limits, and writes the file to keep: without the sender's bytes, observations,
thoughts, or names of code.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final, NamedTuple

from entity_env.authoring.game import Game
from entity_env.authoring.identity import all_settings
from entity_env.core.files import write_file
from entity_env.errors import ReplayError, UsageError, shown
from entity_env.page.bounded_http import BoundedServer, Bounds, OneLineHandler
from entity_env.processes import kill_group
from entity_env.replay.file import SUFFIX
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits, in_new_process
from entity_env.replay.play_again import game_with_settings
from entity_env.replay.replay import Replay
from entity_env.replay.writer import header_of, played_again
from entity_env.views.describe import describe_number
from entity_env.views.scene import one_line

KIND: Final = "application/octet-stream"
"""Content type of a replay in a request."""
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")
_ORIGIN: Final = re.compile(r"https?://[^\s/]+")
_UPLOAD_S: Final = 30.0
"""Time for a connection with the key to send its replay."""
_MINUTE_S: Final = 60.0
_MAX_WAITING: Final = 8
"""Replays that wait for the one that is played."""
_MAX_SENDERS: Final = 10_000
"""Senders of the last minute; further ones have to wait."""
_MAX_NAME: Final = 100
_PLAY: Final = PLAY_LIMITS._replace(timeout_s=60.0)


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """Address and limits of a `ReplayCollector`.

    Args:
        host, port: address to listen on; port 0 = any free port.
        key: in the address; "" = random.
        origins: pages that may send, such as "https://example.com"; none = all.
        is_proxied: requests come from a proxy that adds the sender's address to X-Forwarded-For.
        max_kb: largest replay, as sent and as kept.
        per_minute: replays per minute and sender.
        max_replays: replays in the folder.
        play: limits of playing one.

    Raises:
        UsageError: an invalid key or origin.
    """

    host: str = "127.0.0.1"
    port: int = 0
    key: str = ""
    origins: Collection[str] = ()
    is_proxied: bool = False
    max_kb: int = 1024
    per_minute: int = 20
    max_replays: int = 10_000
    play: PlayLimits = _PLAY

    def __post_init__(self) -> None:
        if self.key and not _KEY.fullmatch(self.key):
            raise UsageError(
                "a key must be 8 to 128 letters, digits, - and _ (a random one is made without "
                f"--key): got {shown(self.key)}"
            )
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise UsageError(
                    f"an origin must be like https://example.com, without a path: got "
                    f"{shown(origin)}"
                )


class PlayedReplay(NamedTuple):
    """A replay that was played again.

    Args:
        problem: why it is refused, or "".
        content: the file to keep.
        about: its decisions and rewards, in words.
    """

    problem: str
    content: bytes = b""
    about: str = ""


def played_replay(
    replay: Replay, game: Game, *, step_timeout_s: float | None = None
) -> PlayedReplay:
    """Plays a replay from an unknown sender again, in this process.

    Raises:
        ReplayError: as `play_again`.
    """
    header = replay.header
    if header.game != game.name:
        name = shown(header.game)
        return PlayedReplay(f"it is a replay of the game {name}, expected {game.name!r}")
    given, own = all_settings(game_with_settings(replay, game)), all_settings(game)
    if differing := [name for name in given if name not in own or given[name] != own[name]]:
        name = differing[0]
        expected = shown(own[name]) if name in own else "no value"
        return PlayedReplay(f"it was played with {name}={shown(given[name])}, expected {expected}")
    if replay.is_cut or not replay.is_whole:
        return PlayedReplay("its episode has not ended, or the file is incomplete")
    played, difference = played_again(replay, game, step_timeout_s)
    if difference is not None:
        return PlayedReplay(f"it diverges: {difference}")
    # Observations, ends and texts are those of this game; only names and versions are the sender's.
    own_header = replace(
        header_of(game),
        episode_seed=header.episode_seed,
        run=header.run,
        made_with=header.made_with,
        agents=[{"name": agent.get("name", "")[:_MAX_NAME]} for agent in header.agents],
    )
    kept = Replay(own_header, played.lines)
    rewards = ", ".join("-" if each is None else describe_number(each) for each in kept.rewards)
    return PlayedReplay("", kept.to_bytes(), f"{kept.num_decisions} decisions, reward {rewards}")


class ReplayCollector:
    """Receives replays at `url` until it is closed; a context manager.

    A POST of `KIND` with a replay is answered in one line: 201 if it is kept, 200 if it was kept
    before, 422 if it is refused. One replay is played at a time.

    Args:
        game: the game, with its settings; other replays are refused.
        folder: for the replays, named by their content. No file in it is ever replaced or deleted.
        report: called with one line per received replay, in other threads, one call at a time.
        settings: address and limits.

    Raises:
        UsageError: the address cannot be used, or the folder cannot be created.
    """

    def __init__(
        self,
        game: Game,
        folder: Path,
        report: Callable[[str], None],
        settings: CollectSettings | None = None,
    ) -> None:
        self._game, self._folder, self._report = game, folder, report
        self.settings = settings or CollectSettings()
        self.key = self.settings.key or secrets.token_urlsafe(12)
        self.counts: Counter[str] = Counter()
        """Number of replays that were `kept`, sent `again`, and `refused`."""
        self._rate = _Rate(self.settings.per_minute)
        self._sent: dict[bytes, str] = {}
        """Digests of received files whose replays are kept, and the names of these."""
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING + 1)
        self._turn = threading.Lock()
        """Held while a replay is played and kept."""
        self._lock, self._reporting = threading.Lock(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._num_kept = sum(1 for _ in folder.glob(f"*{SUFFIX}"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot write to {folder}: {reason}; choose another --out") from error
        self._server = _ReplayServer(self)
        self._server.start("collector")

    @property
    def url(self) -> str:
        """Address for replays, with the key."""
        host = self._server.server_name
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self._server.server_port}/{self.key}"

    def allows(self, sender: str) -> bool:
        """Whether a sender may send a replay now; counts it."""
        is_allowed, is_first = self._rate.count(sender, time.monotonic())
        if not is_allowed:
            self.refused(sender, "more replays per minute than allowed", is_shown=is_first)
        return is_allowed

    def take(self, content: bytes, sender: str) -> tuple[HTTPStatus, str]:
        """Plays a replay and keeps it if it is valid; returns the answer to the sender."""
        if not self._waiting.acquire(blocking=False):
            self.refused(sender, "too many replays are waiting")
            return HTTPStatus.SERVICE_UNAVAILABLE, "too many replays are waiting: try again"
        try:
            with self._turn:
                return self._take(content, sender)
        finally:
            self._waiting.release()

    def refused(self, sender: str, problem: str, *, is_shown: bool = True) -> None:
        """Counts and reports a replay that is not kept."""
        self._count("refused", f"refused, from {sender}: {problem}" if is_shown else "")

    def _take(self, content: bytes, sender: str) -> tuple[HTTPStatus, str]:
        digest = hashlib.sha256(content).digest()
        if (name := self._sent.get(digest)) is not None:
            return self._again(name, sender)
        if self._num_kept >= self.settings.max_replays:
            self.refused(sender, f"{self._folder} has {self._num_kept} replays")
            return HTTPStatus.INSUFFICIENT_STORAGE, "no more replays are kept"
        played = self._played(content)
        if self._is_closed:
            return HTTPStatus.SERVICE_UNAVAILABLE, "the receiver is closing"
        if not played.problem and len(played.content) > self.settings.max_kb << 10:
            played = PlayedReplay(f"with its observations it has {len(played.content)} bytes")
        if played.problem:
            self.refused(sender, played.problem)
            return HTTPStatus.UNPROCESSABLE_ENTITY, f"refused: {played.problem}"
        name = f"{hashlib.sha256(played.content).hexdigest()[:32]}{SUFFIX}"
        try:
            write_file(self._folder / name, played.content, replaces=False)
        except FileExistsError:
            self._sent[digest] = name
            return self._again(name, sender)
        except OSError as error:
            self.refused(sender, f"cannot write {self._folder / name}: {error.strerror}")
            return HTTPStatus.INSUFFICIENT_STORAGE, "the replay cannot be stored now"
        self._sent[digest] = name
        self._num_kept += 1
        self._count("kept", f"kept {name}: {played.about}, from {sender}")
        return HTTPStatus.CREATED, f"kept: {played.about}"

    def _played(self, content: bytes) -> PlayedReplay:
        limits = self.settings.play
        options = {"step_timeout_s": limits.step_timeout_s}
        sent = [(content, "the file")]
        try:
            [found] = in_new_process(
                self._game, played_replay, sent, limits, options, self._started
            )
        except ReplayError as error:
            return PlayedReplay(str(error))
        return found

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
            if self._is_closed:
                kill_group(process)

    def _again(self, name: str, sender: str) -> tuple[HTTPStatus, str]:
        self._count("again", f"sent again: {name}, from {sender}")
        return HTTPStatus.OK, "kept before"

    def _count(self, what: str, line: str) -> None:
        with self._lock:
            self.counts[what] += 1
        if line:
            with self._reporting:  # may wait for a terminal, and must not delay `close`
                if not self._is_closed:
                    self._report(one_line(line))

    def close(self) -> None:
        """Closes the port and all connections, and ends the game that is played."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                kill_group(self._process)
        self._server.stop()

    def __enter__(self) -> ReplayCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Rate:
    """Counts the replays of each sender in the last minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._times: dict[str, deque[float]] = {}
        """Times of replays by sender, the last sender last; one more than allowed."""
        self._lock = threading.Lock()

    def count(self, sender: str, now: float) -> tuple[bool, bool]:
        """Whether a replay is allowed, and whether it is the first that is not."""
        with self._lock:
            self._forget(now - _MINUTE_S)
            times = self._times.pop(sender, None)
            if times is None:
                if len(self._times) >= _MAX_SENDERS:
                    return False, False
                times = deque()
            self._times[sender] = times
            if len(times) <= self._per_minute:
                times.append(now)
                return len(times) <= self._per_minute, len(times) > self._per_minute
            return False, False

    def _forget(self, before: float) -> None:
        for sender, times in [*self._times.items()]:
            while times and times[0] <= before:
                times.popleft()
            if not times:
                del self._times[sender]


class _ReplayServer(BoundedServer):
    def __init__(self, collector: ReplayCollector) -> None:
        self.collector = collector
        settings = collector.settings
        super().__init__((settings.host, settings.port), _ReplayHandler, Bounds())


class _ReplayHandler(OneLineHandler):
    METHODS = "POST"
    server: _ReplayServer

    def do_OPTIONS(self) -> None:
        """Allows a page to send its replay, before it does."""
        if self._is_known():
            self.reply(HTTPStatus.NO_CONTENT)

    def do_POST(self) -> None:
        collector, sender = self.server.collector, self._sender()
        if not self._is_known():
            return
        if not self.server.admit(self.connection, _UPLOAD_S):
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many replays are sent: try again")
        elif not collector.allows(sender):
            self.refuse(HTTPStatus.TOO_MANY_REQUESTS, "wait a minute before the next replay")
        elif (body := self.body(KIND, collector.settings.max_kb << 10)) is not None:
            self.server.admit(self.connection)  # it may take long to play it
            self.close_connection = True
            status, text = collector.take(body, sender)
            self.reply_line(status, text, {"Connection": "close"})

    def refuse(self, status: HTTPStatus, problem: str) -> None:
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            self.server.collector.refused(self._sender(), f"too large, {problem}")
        super().refuse(status, problem)

    def send_headers(self, headers: Mapping[str, str]) -> None:
        """Also lets pages of allowed origins read the answer."""
        allowed = self.server.collector.settings.origins
        origin = self.headers.get("Origin", "") if hasattr(self, "headers") else ""
        of_page = {"Access-Control-Allow-Origin": "*"}
        if allowed:
            of_page = {"Vary": "Origin"}
            if origin in allowed:
                of_page["Access-Control-Allow-Origin"] = origin
        if self.command == "OPTIONS":
            of_page |= {
                "Access-Control-Allow-Methods": "POST",
                "Access-Control-Allow-Headers": "Content-Type, Authorization",
                "Access-Control-Max-Age": "3600",
            }
        super().send_headers({**headers, **of_page})

    def _is_known(self) -> bool:
        """Whether key and origin are right; False after a refusal."""
        collector = self.server.collector
        allowed, origins = collector.settings.origins, self.headers.get_all("Origin", [])
        given = self.path.removeprefix("/")
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        if not given and scheme.lower() == "bearer":
            given = key.strip()
        # A page is not allowed to send the header in the request that asks for permission.
        is_asking = self.command == "OPTIONS" and not given
        is_right = secrets.compare_digest(given.encode(), collector.key.encode())
        if not (is_right or is_asking):
            self.refuse(HTTPStatus.FORBIDDEN, "the address lacks its key: copy all of it")
        elif allowed and (len(origins) != 1 or origins[0] not in allowed):
            self.refuse(HTTPStatus.FORBIDDEN, "this page may not send replays here")
        else:
            return True
        return False

    def _sender(self) -> str:
        """Address of the sender; for IPv6, its network."""
        address = str(self.client_address[0])
        if self.server.collector.settings.is_proxied:
            last = ",".join(self.headers.get_all("X-Forwarded-For", [])).rpartition(",")[2]
            address = last.strip() or address
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return "an unknown address"
        return str(found) if found.version == 4 else str(ip_network(f"{found}/64", strict=False))
