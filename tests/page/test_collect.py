"""`ReplayCollector` and `entity-env collect`: which replays are kept, and what is refused."""

import gzip
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from entity_env import Game, ReplayError, UsageError
from entity_env.agents import RandomAgent
from entity_env.cli import main
from entity_env.games import cherry_pick, snake
from entity_env.page import bounded_http, collect as module
from entity_env.page.collect import (
    KIND,
    CollectSettings,
    PlayedReplay,
    ReplayCollector,
    played_replay,
)
from entity_env.replay import Replay, record
from entity_env.replay.new_process import PLAY_LIMITS
from tests.helpers.descriptors import num_files
from tests.helpers.leaks import holdings, leaked_since

WAIT_S = 30.0
PROGRAM = Path(sys.executable).with_name("entity-env")
SHORT = cherry_pick.with_settings(num_good=2)


def replay_of(game: Game, seed: int = 1) -> Replay:
    return record(game, *(RandomAgent(seed=i) for i in range(game.num_agents)), seed=seed)


def with_lines(replay: Replay, change: Callable[[list[dict[str, Any]]], None]) -> bytes:
    """The file with other JSON in its lines."""
    lines = [json.loads(line) for line in gzip.decompress(replay.to_bytes()).splitlines()]
    change(lines)
    return gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode())


class Kept:
    """A collector in a folder, and what it reports."""

    def __init__(self, folder: Path, game: Game = SHORT, **settings: object) -> None:
        self.folder, self.lines = folder, list[str]()
        self.collector = ReplayCollector(
            game,
            folder,
            self.lines.append,
            CollectSettings(key="a-key-of-a-test", **settings),  # type: ignore[arg-type]
        )

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.collector._server.server_port), WAIT_S)

    def send(
        self, content: bytes, path: str = "/a-key-of-a-test", method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        named = {"Content-Type": KIND} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.collector._server.server_port, timeout=WAIT_S
        )
        try:
            connection.request(method, path, content, named)
            response = connection.getresponse()
            found = {key.lower(): value for key, value in response.getheaders()}
            return response.status, found, response.read().decode()
        finally:
            connection.close()


@contextmanager
def collecting(folder: Path, game: Game = SHORT, **settings: object) -> Iterator[Kept]:
    kept = Kept(folder, game, **settings)
    with kept.collector:
        yield kept


# ------------------------------------------------------------------ what is kept


@pytest.mark.slow
def test_a_valid_replay_is_kept_once(tmp_path: Path) -> None:
    sent = replay_of(SHORT).to_bytes()
    with collecting(tmp_path / "out") as kept:
        assert kept.names == []
        status, _, text = kept.send(sent)
        assert (status, text) == (201, f"kept: {kept.lines[0].split(': ')[1].split(', from')[0]}\n")
        [name] = kept.names
        before = (tmp_path / "out" / name).read_bytes()
        other = gzip.compress(gzip.decompress(sent), 1)
        for again in (sent, other):
            assert kept.send(again)[::2] == (200, "kept before\n")
        assert kept.names == [name]
        assert (tmp_path / "out" / name).read_bytes() == before
        assert kept.collector.counts == {"kept": 1, "again": 2}
    assert re.fullmatch(rf"kept {name}: \d+ decisions, reward .*, from 127\.0\.0\.1", kept.lines[0])
    assert kept.lines[1:] == [f"sent again: {name}, from 127.0.0.1"] * 2
    found = Replay.load(tmp_path / "out" / name)
    assert found.verify(cherry_pick) is None
    assert found.is_whole
    assert found.has_observations
    assert found.header.settings == {"num_good": 2}


@pytest.mark.slow
def test_kept_replays_are_found_by_the_next_collector(tmp_path: Path) -> None:
    sent = replay_of(SHORT).to_bytes()
    for status in (201, 200):
        with collecting(tmp_path) as kept:
            assert kept.send(sent)[0] == status
    assert len(kept.names) == 1


def test_what_is_kept_is_written_by_this_game() -> None:
    replay = replay_of(SHORT)
    honest = played_replay(replay, SHORT)
    assert honest.problem == ""

    def lie(lines: list[dict[str, Any]]) -> None:
        lines[0]["source"] = "os:system"
        lines[0]["agents"] = [{"name": "x" * 500, "sha": "0" * 16}]
        lines[0]["parent"] = {"sha": "1" * 16, "at": 3}
        for line in lines[1:]:
            line["v"] = 5.0
            line["s"] = 99.0
            line["o"] = {name: [] for name in line["o"]}

    forged = Replay.from_bytes(with_lines(replay, lie))
    assert forged.lines[0].score == 99.0
    found = played_replay(forged, SHORT)
    assert found.problem == ""
    kept = Replay.from_bytes(found.content)
    assert kept.header.source == "entity_env.games.cherry_pick:cherry_pick"
    assert kept.header.parent is None
    assert kept.header.agents == [{"name": "x" * 100}]
    assert kept.lines == Replay.from_bytes(honest.content).lines
    assert kept.lines[0].score == 0


def of_two(lines: list[dict[str, Any]]) -> None:
    lines[0] |= {"num_agents": 2, "agents": []}


def changed(name: str, value: object) -> Callable[[list[dict[str, Any]]], None]:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[0][name] = value

    return change


def other_action(lines: list[dict[str, Any]]) -> None:
    lines[2]["c"] ^= 1


def left(lines: list[dict[str, Any]]) -> None:
    del lines[-1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (changed("game", "chess"), "it is a replay of the game 'chess', expected 'cherry_pick'"),
        (changed("settings", {"num_good": 3}), "it was played with num_good=3, expected 2"),
        (changed("settings", {"rounds": 3}), "no setting 'rounds'"),
        (of_two, "2 agents"),
        (changed("episode_seed", 1), "it diverges: "),
        (other_action, "it diverges: "),
        (left, "its episode has not ended"),
    ],
)
def test_other_replays_are_refused(
    change: Callable[[list[dict[str, Any]]], None], problem: str
) -> None:
    replay = Replay.from_bytes(with_lines(replay_of(SHORT), change))
    try:
        found = played_replay(replay, SHORT).problem
    except ReplayError as error:
        found = str(error)
    assert problem in found


@pytest.mark.slow
def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    whole = replay_of(SHORT).to_bytes()
    with collecting(tmp_path) as kept:
        for content, problem in (
            (b"", "not a replay"),
            (b"\x00" * 100, "not a replay"),
            (b"import os", "not a replay"),
            (whole[:-12], "not ended, or the file is incomplete"),
            (replay_of(snake).to_bytes(), "of the game 'snake', expected 'cherry_pick'"),
        ):
            status, _, text = kept.send(content)
            assert status == 422
            assert problem in text
            assert "\n" not in text[:-1]
            assert (
                kept.lines[-1] == f"refused, from 127.0.0.1: {text.removeprefix('refused: ')[:-1]}"
            )
        assert kept.names == []
        assert kept.collector.counts["refused"] == len(kept.lines) == 5
        assert kept.send(whole)[0] == 201


def test_a_replay_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    limits = PLAY_LIMITS._replace(timeout_s=0.01)
    with collecting(tmp_path, play=limits) as kept:
        status, _, text = kept.send(replay_of(SHORT).to_bytes())
        assert (status, text) == (
            422,
            "refused: cherry_pick: playing took longer than 0.01 s\n",
        )


# ------------------------------------------------------------------ requests


def played(*_: object) -> PlayedReplay:
    """A stand-in for playing."""
    return PlayedReplay("", b"content", "3 decisions, reward 1")


@pytest.fixture
def unplayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayCollector, "_played", played)


@pytest.mark.usefixtures("unplayed")
def test_only_requests_with_the_key_are_read(tmp_path: Path) -> None:
    with collecting(tmp_path) as kept:
        for path in (
            "/",
            "/a-key",
            "/a-key-of-a-test/",
            "/A-KEY-OF-A-TEST",
            "/../a-key-of-a-test",
            "*",
        ):
            status, _, text = kept.send(b"x", path)
            assert (status, text) == (403, "the address lacks its key: copy all of it\n")
        assert kept.send(b"x", "/", Authorization="Bearer wrong-key")[0] == 403
        assert kept.names == kept.lines == []
        assert kept.send(b"x", "/", Authorization="Bearer a-key-of-a-test")[0] == 201
        for method in ("GET", "PUT", "DELETE", "HEAD"):
            assert kept.send(b"", method=method)[0] == 405
    with (
        ReplayCollector(SHORT, tmp_path, print) as one,
        ReplayCollector(SHORT, tmp_path, print) as two,
    ):
        assert one.key != two.key
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{16}", one.url)


@pytest.mark.usefixtures("unplayed")
def test_pages_of_allowed_origins_may_send(tmp_path: Path) -> None:
    with collecting(tmp_path / "any") as kept:
        asked = kept.send(b"", method="OPTIONS", Origin="https://a.example")
        assert asked[::2] == (204, "")
        assert asked[1]["access-control-allow-origin"] == "*"
        assert asked[1]["access-control-allow-methods"] == "POST"
        assert "content-type" in asked[1]["access-control-allow-headers"].lower()
        for content, path in ((b"x", "/a-key-of-a-test"), (b"x", "/wrong-key")):
            found = kept.send(content, path, Origin="https://a.example")[1]
            assert found["access-control-allow-origin"] == "*"
    origins = ("https://a.example", "http://localhost:8000")
    with collecting(tmp_path / "some", origins=origins) as kept:
        for origin in origins:
            status, found, _ = kept.send(b"x", Origin=origin)
            assert status in (200, 201)
            assert found["access-control-allow-origin"] == origin
            assert found["vary"] == "Origin"
        for headers in ({"Origin": "https://b.example"}, {"Origin": "null"}, {}):
            for method in ("POST", "OPTIONS"):
                status, found, text = kept.send(b"x", method=method, **headers)
                assert (status, text) == (403, "this page may not send replays here\n")
                assert "access-control-allow-origin" not in found
    for origin in ("https://a.example/", "*", "a.example"):
        with pytest.raises(UsageError, match=r"origin must be like https://example\.com"):
            CollectSettings(origins=[origin])
    for key in ("short", "with space", "a/b/c/d/e", "x" * 129):
        with pytest.raises(UsageError, match="8 to 128 letters"):
            CollectSettings(key=key)


@pytest.mark.usefixtures("unplayed")
def test_large_and_odd_bodies_are_refused(tmp_path: Path) -> None:
    with collecting(tmp_path, max_kb=1) as kept:
        assert kept.send(b"x" * 1024)[0] == 201
        assert kept.send(b"x" * 1025)[::2] == (413, "at most 1024 bytes\n")
        assert kept.lines[-1] == "refused, from 127.0.0.1: too large, at most 1024 bytes"
        for kind in ("text/plain", "application/json", ""):
            assert kept.send(b"x", Content_Type=kind)[::2] == (415, f"expected {KIND}\n")
        assert kept.send(b"", Transfer_Encoding="chunked")[0] in (400, 411)


def test_what_grows_by_its_observations_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplayCollector, "_played", lambda *_: PlayedReplay("", b"x" * 1025, ""))
    with collecting(tmp_path, max_kb=1) as kept:
        assert kept.send(b"x")[::2] == (
            422,
            "refused: with its observations it has 1025 bytes\n",
        )
    assert kept.names == []


@pytest.mark.usefixtures("unplayed")
def test_a_sender_may_send_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(tmp_path, per_minute=3, is_proxied=True) as kept:
        one, two = {"X_Forwarded_For": "9.9.9.9, 1.2.3.4"}, {"X_Forwarded_For": "1.2.3.5"}
        assert [kept.send(b"x", **one)[0] for _ in range(5)] == [201, 200, 200, 429, 429]
        assert kept.lines[3:] == ["refused, from 1.2.3.4: more replays per minute than allowed"]
        assert kept.send(b"x", **two)[0] == 200
        assert kept.send(b"x", "/wrong-key", **one)[0] == 403
        same = {"X_Forwarded_For": "2001:db8::1"}, {"X_Forwarded_For": "2001:db8::ffff:2"}
        assert [kept.send(b"x", **same[i % 2])[0] for i in range(4)] == [200, 200, 200, 429]
        with monkeypatch.context() as later:
            later.setattr(module, "_MINUTE_S", 0.0)
            assert kept.send(b"x", **one)[0] == 200
        assert kept.collector.counts["refused"] == 3
    with collecting(tmp_path, per_minute=1) as kept:  # without a proxy, the header is not believed
        assert [kept.send(b"x", **each)[0] for each in (one, two)] == [200, 429]


def test_the_folder_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "older.replay").write_bytes(b"kept before")
    number = iter(range(9))
    monkeypatch.setattr(
        ReplayCollector, "_played", lambda *_: PlayedReplay("", b"%d" % next(number), "3 decisions")
    )
    with collecting(tmp_path, max_replays=3) as kept:
        assert [kept.send(b"%d" % i)[0] for i in range(4)] == [201, 201, 507, 507]
        assert kept.send(b"0")[0] == 200
        assert kept.lines[-2] == f"refused, from 127.0.0.1: {tmp_path} has 3 replays"
    assert (tmp_path / "older.replay").read_bytes() == b"kept before"


@pytest.mark.usefixtures("unplayed")
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with collecting(tmp_path) as kept:
        monkeypatch.setattr(module, "write_file", fail)
        assert kept.send(b"x")[0] == 507
        assert "No space left on device" in kept.lines[0]
        monkeypatch.undo()
        monkeypatch.setattr(ReplayCollector, "_played", played)
        assert kept.send(b"x")[0] == 201


def test_at_most_so_many_replays_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 1)
    begun, may_end = threading.Semaphore(0), threading.Event()

    def wait(*_: object) -> PlayedReplay:
        begun.release()
        may_end.wait(WAIT_S)
        return played()

    monkeypatch.setattr(ReplayCollector, "_played", wait)
    statuses: list[int] = []
    with collecting(tmp_path, per_minute=9) as kept:

        def send(content: bytes) -> None:
            statuses.append(kept.send(content)[0])

        senders = [threading.Thread(target=send, args=(b"%d" % i,)) for i in range(2)]
        for sender in senders:
            sender.start()
        assert begun.acquire(timeout=WAIT_S)
        while kept.collector._waiting._value:
            pass
        assert kept.send(b"9")[::2] == (503, "too many replays are waiting: try again\n")
        may_end.set()
        for sender in senders:
            sender.join(WAIT_S)
    assert sorted(statuses) == [200, 201]


@pytest.mark.usefixtures("unplayed")
def test_a_slow_sender_is_dropped_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UPLOAD_S", 0.3)
    head = f"POST /a-key-of-a-test HTTP/1.1\r\nContent-Type: {KIND}\r\nContent-Length: 9\r\n\r\n"
    with collecting(tmp_path) as kept, kept.connect() as slow:
        slow.sendall(head.encode() + b"abc")
        assert kept.send(b"x")[0] == 201
        with suppress(ConnectionResetError):
            assert slow.recv(1) == b""
    assert len(kept.names) == 1
    assert len(kept.lines) == 1


def test_a_flood_of_connections_does_not_lock_senders_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplayCollector, "_played", played)
    monkeypatch.setattr(module, "Bounds", lambda: bounded_http.Bounds(max_keyless=4))
    with collecting(tmp_path) as kept:
        idle = [kept.connect() for _ in range(12)]
        assert kept.send(b"x")[0] == 201
        for each in idle[:8]:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""
        for each in idle:
            each.close()


# ------------------------------------------------------------------ its end


@pytest.mark.slow
def test_nothing_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\nfrom enum import Enum\nfrom entity_env import Game, Obs\n"
        "class Go(Enum):\n    ON = 0\n"
        "def play(agent, *, seed: int, pause: float = 0.0) -> None:\n"
        "    time.sleep(pause)\n    agent.act(Obs(), Go)\n    agent.game_over(Obs(1))\n"
        "slow = Game(play, entities=(), actions=(Go,))\n"
    )
    from entity_env.cli.load_game import load_game

    game = load_game(str(tmp_path / "slow.py"))
    replay = replay_of(game)
    sleepy = game.with_settings(pause=100.0)
    sent = Replay(replace(replay.header, settings={"pause": 100.0}), replay.lines).to_bytes()
    before, files = holdings(), num_files()
    kept = Kept(tmp_path / "out", sleepy, play=PLAY_LIMITS)
    answers: list[Any] = []

    def send() -> None:
        with suppress(OSError, http.client.HTTPException):
            answers.append(kept.send(sent)[0])

    sender, idle = threading.Thread(target=send), kept.connect()
    sender.start()
    while kept.collector._process is None:
        pass
    kept.collector.close()
    kept.collector.close()
    sender.join(WAIT_S)
    assert not sender.is_alive()
    assert answers in ([], [503])
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        kept.connect()
    assert kept.names == []
    assert kept.lines == []
    assert leaked_since(before, orphans=True) == []
    assert num_files() == files


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_receives_until_it_is_interrupted(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    words = ["collect", "cherry_pick", "--set", "num_good=2", "--out", str(out), "--port", "0"]
    sent = replay_of(SHORT).to_bytes()
    with subprocess.Popen([PROGRAM, *words], text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = re.fullmatch(
            r"replays of cherry_pick are received at http://127\.0\.0\.1:(\d+)(/[\w-]+)\n",
            process.stdout.readline(),
        )
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=WAIT_S)
        connection.request("POST", found[2], sent, {"Content-Type": KIND})
        assert connection.getresponse().status == 201
        connection.close()
        assert process.stdout.readline().startswith("kept ")
        process.send_signal(number)
        assert process.stdout.read() == f"kept 1 in {out}, refused 0\n"
        assert process.wait(WAIT_S) == 0
    [file] = out.iterdir()
    result = CliRunner().invoke(main, ["verify", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{file}: same, ")


def test_errors_of_the_command_are_one_line(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(main, ["collect", *words])
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        return result.stderr

    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = run("snake", "--out", str(tmp_path), "--port", port)
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in text
    assert "cannot listen on nowhere.invalid" in run(
        "snake", "--out", str(tmp_path), "--host", "nowhere.invalid"
    )
    assert "choose another --out" in run("snake", "--out", str(tmp_path / "file" / "below"))
    assert "8 to 128 letters" in run("snake", "--out", str(tmp_path), "--key", "x")
    assert "no game" in run("nosuch", "--out", str(tmp_path))
