"""`PageServer`: refused requests, slow pages, and clean-up."""

import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from entity_env.cli.browser import server as module
from entity_env.cli.browser.server import Feed, Page, PageServer
from entity_env.errors import ReplayError
from entity_env.page.live.game_page import LIVE_PAGE
from entity_env.views.page import page as page_of
from tests.cli.browser.page import WAIT_S, LivePage, request
from tests.helpers.descriptors import num_files
from tests.helpers.leaks import holdings, leaked_since

JSON = "application/json"


def get(route: str) -> Page | None:
    if route == "broken":
        raise ReplayError("cannot be shown:\nits <b>name</b> is odd")
    return Page.of(LIVE_PAGE) if route == "" else None


@pytest.fixture
def answers() -> list[object]:
    return []


@pytest.fixture
def server(answers: list[object]) -> Iterator[PageServer]:
    def post(answer: object) -> str:
        answers.append(answer)
        return "too\nlate" if answer == "late" else ""

    with PageServer(get, post) as server:
        yield server


def test_a_page_has_a_strict_policy(server: PageServer) -> None:
    status, headers, text = request(server.url)
    assert status == 200
    assert text == Page.of(LIVE_PAGE).html
    policy = headers["content-security-policy"]
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
        assert rule in policy
    assert "frame-ancestors 'none'" in policy
    assert re.search(r"script-src 'sha256-[\w+/]{43}='(;|$)", policy)
    assert not re.search("unsafe|http:|[*]|script-src[^;]*data:", policy)
    assert "frame-src 'self';" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert not {name for name in headers if name.startswith("access-control")}
    assert "python" not in str(headers).lower()


def test_only_this_address_and_the_key_are_served(server: PageServer) -> None:
    key = server.url.split("/")[3]
    assert len(key) == 32
    port = server.port
    assert request(server.url, Host=f"localhost:{port}")[0] == 200
    for host in (
        *("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", "absent"),
        *(f"[::1]:{port}", f"127.0.0.1:{port}.evil.example", "", f"127.0.0.1:{port}@evil.org"),
    ):
        assert request(server.url, Host=host)[0] == 403, host
    other = key[:-1] + ("y" if key[-1] == "x" else "x")
    for target in (
        *("/", f"/{key}", f"/{other}/", "/../etc/passwd", "/%2e%2e/etc/passwd", "*"),
        *(f"/{key.swapcase()}/", f"/x/{key}/", f"http://127.0.0.1:{port}/{key}/", f"/?{key}/"),
    ):
        status, headers, text = request(server.url, target=target)
        assert status == 403, target
        assert text == "the address lacks its key: copy all of it\n"
        assert headers["content-type"] == "text/plain; charset=utf-8"


def test_there_is_nothing_but_the_pages(server: PageServer) -> None:
    prefix = f"/{server.url.split('/')[3]}/"
    for route in (
        *("..", "../", "../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd"),
        *(
            "/",
            "/etc/passwd",
            "index.html",
            "live.html",
            "server.py",
            "./",
            "?",
            "?x=1",
            "%",
            "%00",
            "answer",
            "\xff",
        ),
    ):
        assert request(server.url, target=prefix + route)[::2] == (404, "there is no such page\n")
    assert request(server.url, target=prefix + "x" * 70_000)[0] == 414


def test_errors_of_pages_are_one_line_of_text(server: PageServer) -> None:
    status, headers, text = request(server.url + "broken")
    assert (status, text) == (422, "cannot be shown: its <b>name</b> is odd\n")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in headers["content-security-policy"]


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_other_methods_are_refused(server: PageServer, method: str) -> None:
    status, headers, text = request(server.url, method)
    assert status == 405
    assert text == ("" if method == "HEAD" else "expected GET or POST\n")
    assert "access-control-allow-origin" not in headers


def test_only_small_json_of_its_own_page_is_taken(
    server: PageServer, answers: list[object]
) -> None:
    url = server.url + "answer"

    def post(body: bytes, **headers: str) -> tuple[int, str]:
        return request(url, "POST", "", body, **{"Content_Type": JSON, **headers})[::2]

    assert post(b'{"a": 1}') == (204, "")
    assert post(b"[]", Content_Type=f"{JSON}; charset=utf-8") == (204, "")
    assert post(b'"late"') == (409, "too late\n")
    own = server.url.rsplit("/", 2)[0]
    assert post(b"1", Origin=own) == (204, "")
    assert answers == [{"a": 1}, [], "late", 1]
    for origin in ("http://evil.example", "null", own + "0", own.replace("http", "https")):
        assert post(b"1", Origin=origin)[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert post(b"1", Content_Type=kind) == (415, "expected application/json\n")
    assert post(b"1", Host="evil.example")[0] == 403
    assert post(b" " * 4096 + b"1")[0] == 413
    assert post(b"1", Content_Length="99999999999")[0] == 411
    for length in ("-1", "1e1", "0x1", "absent", "٣".encode().decode("latin1")):
        assert post(b"1", Content_Length=length)[0] == 411, length
    for body in (b"", b"{", b"[" * 4000, b"\xff", b"1 2"):
        assert post(body, Content_Length=str(len(body)))[0] == 400, body[:9]
    assert post(b"1", Transfer_Encoding="chunked")[0] == 400
    assert request(server.url, "POST", "", b"1", Content_Type=JSON)[0] == 404
    assert request(server.url[:-2] + "/answer", "POST", "", b"1", Content_Type=JSON)[0] == 403
    assert len(answers) == 4


def test_a_page_that_connects_gets_the_latest_events(server: PageServer) -> None:
    for i in range(5):
        server.send("frame", i)
    server.send("ground", "</script>\u2028\n")
    with LivePage(server.url) as page:
        assert [page.read(), page.read()] == ["frame", "ground"]
        assert page.events == {"frame": 4, "ground": "</script>\u2028\n"}
        server.send("frame", 5)
        assert page.read() == "frame"
        assert page.events["frame"] == 5


def test_a_slow_page_holds_nobody_up_and_keeps_nothing(server: PageServer) -> None:
    with LivePage(server.url) as slow, LivePage(server.url) as page:
        for i in range(200):
            server.send("frame", [i, "x" * 100_000])  # 20 MB: more than sockets buffer
        while page.events.get("frame", [0])[0] < 199:
            assert page.read()
        num_read = 1
        slow.read()
        while slow.events["frame"][0] < 199:
            slow.read()
            num_read += 1
        assert num_read < 200


def test_pages_that_leave_are_noticed(server: PageServer) -> None:
    assert not server.wait_for_page()
    pages = [LivePage(server.url) for _ in range(3)]
    assert server.wait_for_page(WAIT_S)
    for page in pages:
        page.close()
    assert server.wait_for_leaving(WAIT_S)


def test_there_are_not_too_many_pages(server: PageServer) -> None:
    pages = [LivePage(server.url) for _ in range(module._MAX_STREAMS)]
    assert request(server.url + "events")[0] == 503
    pages.pop().close()
    for page in pages:
        page.close()
    assert server.wait_for_leaving(WAIT_S)
    LivePage(server.url).close()


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), WAIT_S)


def is_dropped(connection: socket.socket) -> bool:
    """Waits until the server sends something; True if it is the end of the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_without_the_key_are_bounded_and_never_lock_a_page_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_KEYLESS", 4)
    before = threading.active_count()
    with PageServer(get) as server, ExitStack() as stack:
        page = stack.enter_context(LivePage(server.url))
        idle = [stack.enter_context(connect(server)) for _ in range(12)]
        assert all(map(is_dropped, idle[:8]))
        assert threading.active_count() <= before + 6
        for _ in range(10):
            assert request(server.url)[0] == 200
        server.send("frame", 1)
        assert page.read() == "frame"


def test_connections_with_the_key_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CONNECTIONS", 2)
    with PageServer(get) as server, LivePage(server.url) as page, LivePage(server.url):
        status, _, text = request(server.url)
        assert (status, text) == (503, "too many pages are open: close one\n")
        page.close()
        server.send("frame", 1)  # its stream ends
        while request(server.url)[0] != 200:
            pass


def test_the_key_must_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEY_S", 0.1)
    with PageServer(get) as server, LivePage(server.url) as page:
        for begin in (b"", b"GET / HTTP/1.1\r\nHost: "):
            with connect(server) as slow, suppress(ConnectionError):
                slow.sendall(begin)
                while not select.select([slow], [], [], 0.01)[0]:
                    slow.sendall(b"x" if begin else b"")  # each byte before the deadline
                assert is_dropped(slow)
        server.send("frame", 1)
        assert page.read() == "frame"  # no deadline after the key was sent


def exchange(server: PageServer, *lines: str) -> bytes:
    """The response to these lines and an empty line, with the right Host."""
    own = f"Host: 127.0.0.1:{server.port}"
    with connect(server) as connection:
        connection.sendall("\r\n".join([lines[0], own, *lines[1:], "", ""]).encode("latin1"))
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "version",
    [
        *(" HTTP/2.0", " HTTP/0.9", " HTTP/3", " HTTP/1." + "1" * 5000, " HTTP/01.1", " http/1.1"),
        *("", " HTTP/1.1 x", " HTTP/1.x", " FTP/1.1", " HTTP/-1.1"),
    ],
)
def test_other_versions_are_refused_with_a_status_line(server: PageServer, version: str) -> None:
    answer = exchange(server, f"GET /{server.url.split('/')[3]}/{version}")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(b"\r\n\r\nexpected a request of HTTP/1.1\n")


def test_every_origin_and_host_is_checked(server: PageServer) -> None:
    own = f"127.0.0.1:{server.port}"
    line = f"GET /{server.url.split('/')[3]}/ HTTP/1.1"
    fine, evil = f"Origin: http://{own}", "Origin: http://evil.example"
    assert b" 200 " in exchange(server, line, fine).splitlines()[0]
    for others in ([fine, evil], [evil, fine], ["Host: evil.example"], [f"Host: {own}"]):
        assert b" 403 " in exchange(server, line, *others).splitlines()[0]
    two = ("Content-Length: 0", "Content-Length: 60")
    assert b" 400 " in exchange(server, line, *two).splitlines()[0]


def test_a_body_is_asked_for_only_if_it_would_be_taken(
    server: PageServer, answers: list[object]
) -> None:
    key = server.url.split("/")[3]
    wanted = ("Expect: 100-continue", f"Content-Type: {JSON}")
    for line, *others in (
        ("POST /x/answer HTTP/1.1", *wanted, "Content-Length: 1"),
        (f"POST /{key}/answer HTTP/1.1", *wanted, "Content-Length: 5000"),
        (f"POST /{key}/answer HTTP/1.1", *wanted, "Content-Length: 1", "Origin: null"),
    ):
        assert re.match(rb"HTTP/1.1 4(03|13) ", exchange(server, line, *others))
    with connect(server) as connection:
        head = [f"POST /{key}/answer HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *wanted]
        connection.sendall("\r\n".join([*head, "Content-Length: 1", "", ""]).encode())
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"7")
        assert connection.recv(4096).startswith(b"HTTP/1.1 204 ")
    assert answers == [7]


def test_nothing_outlives_it() -> None:
    before, files = holdings(), num_files()
    server = PageServer(get)
    page = LivePage(server.url)
    idle, half = connect(server), connect(server)
    half.sendall(b"POST / HTTP/1.1\r\nContent-Le")
    server.close()
    assert page.read() == "bye"
    assert page.read() == ""
    server.close()
    server.send("frame", 1)  # too late, and without readers
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), WAIT_S)
    for each in (idle, half):
        with suppress(ConnectionResetError):
            assert each.recv(1) == b""
        each.close()
    page.close()
    assert leaked_since(before) == []
    assert num_files() == files


def test_a_feed_replaces_what_was_not_read() -> None:
    feed = Feed()
    feed.put("a", 1)
    feed.put("b", 2)
    feed.put("a", 3)
    seen, news = feed.newer(0, 0)
    assert news == b"event: b\ndata: 2\n\nevent: a\ndata: 3\n\n"
    assert feed.newer(seen, 0) == (seen, b"")
    with pytest.raises(ValueError, match="JSON"):
        feed.put("a", float("nan"))


def test_scripts_in_an_animation_are_not_those_that_its_policy_allows() -> None:
    html = page_of("title", "", {})
    evil = html.replace("</title>", "</title><script>alert(1)</script>")
    assert evil != html
    assert Page.of_animation(evil).policy == Page.of_animation(html).policy
    policy = Page.of_animation(evil).policy
    assert "sandbox allow-scripts;" in f"{policy};"
    assert "connect-src" not in policy
    assert "frame-ancestors 'self'" in policy
