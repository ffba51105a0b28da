"""The folder of a page: what is written, replaced and refused."""

import json
import shutil
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from entity_env.cli.app import main
from entity_env.cli.commands.page import PageFiles
from entity_env.errors import UsageError
from entity_env.page.folder import PageAgent, PageOptions, require_page_folder, write_page
from entity_env.page.obstacles import PageContents
from entity_env.page.pyodide import FILES, Pyodide, Wheel
from tests import ROOT
from tests.helpers.chromium import serving

CONTENTS = PageContents((), None, (), "", "entity_env.games.snake", "snake", {}, (), ())


def network(name: str) -> PageAgent:
    return PageAgent(name, name, "network", b"numbers")


@pytest.fixture
def pyodide(tmp_path: Path) -> Pyodide:
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text(name)
    return Pyodide(folder, "pyodide/", 10)


def contents_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_page_replaces_an_earlier_one_and_leaves_other_files(
    tmp_path: Path, pyodide: Pyodide
) -> None:
    out = tmp_path / "site"
    write_page(
        out, CONTENTS, [network("a.agent"), network("b.agent")], pyodide, PageOptions(title="")
    )
    (out / "CNAME").write_text("example.com")
    (out / "agents" / "mine.txt").write_text("mine")
    require_page_folder(out)
    cdn = Pyodide.find("cdn")
    sizes = write_page(out, CONTENTS, [network("b.agent")], cdn, PageOptions(title="new"))
    assert {*contents_of(out)} == {*sizes, "CNAME", "agents/mine.txt"}
    assert ".nojekyll" in sizes
    assert not (out / "pyodide").exists()
    assert json.loads((out / "game.json").read_text())["title"] == "new"


@pytest.mark.parametrize("is_old", [False, True])
def test_an_interrupt_leaves_the_folder_as_it_was(
    is_old: bool, tmp_path: Path, pyodide: Pyodide, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "site"
    if is_old:
        write_page(out, CONTENTS, [network("a.agent")], pyodide, PageOptions(title="old"))
    before = contents_of(out)

    def interrupted(
        source: Path, target: Path, copy: Callable[..., object] = shutil.copyfile
    ) -> None:
        copy(source, target)
        if source.name == FILES[2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_page(out, CONTENTS, [], pyodide, PageOptions(title="new"))
    assert contents_of(out) == before
    assert out.exists() == is_old


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "{", '{"agents": {}, "files": {}}', '{"name": "my other program"}']
)
def test_a_folder_with_another_game_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "game.json").write_text(text)
    with pytest.raises(UsageError, match="has other files, and no page"):
        require_page_folder(tmp_path)


def test_files_outside_the_folder_are_never_deleted(tmp_path: Path) -> None:
    out, mine = tmp_path / "site", tmp_path / "mine.txt"
    cdn = Pyodide.find("cdn")
    write_page(out, CONTENTS, [network("a.agent")], cdn, PageOptions(title=""))
    mine.write_text("mine")
    config = json.loads((out / "game.json").read_text())
    config["files"] = {"../../mine.txt": "game/../../mine.txt"}
    (out / "game.json").write_text(json.dumps(config))
    write_page(out, CONTENTS, [], cdn, PageOptions(title=""))
    assert mine.read_text() == "mine"
    assert not (out / "agents").exists()


def test_only_packages_that_the_game_uses_are_copied(tmp_path: Path, pyodide: Pyodide) -> None:
    assert pyodide.folder is not None
    for name in ("sums.whl", "base.whl", "big.whl"):
        (pyodide.folder / name).write_text(name)
    packages = {
        "sums": Wheel("sums.whl", ["sums"], ["base"], 1_000_000),
        "base": Wheel("base.whl", ["base"], ["sums"], 1_000_000),
        "big": Wheel("big.whl", ["big"], [], 300_000_000),
        "torn": Wheel("torn.whl", ["torn"], ["gone"], 1),
    }
    pyodide = Pyodide(pyodide.folder, "pyodide/", 10, packages)
    uses = replace(CONTENTS, packages=("sums",))
    sizes = write_page(tmp_path / "site", uses, [], pyodide, PageOptions(title=""))
    assert {name for name in sizes if name.endswith(".whl")} == {
        "pyodide/sums.whl",
        "pyodide/base.whl",
    }
    config = json.loads((tmp_path / "site" / "game.json").read_text())
    assert (sorted(config["packages"]), config["mb"]) == (["base", "sums"], 2)
    torn = replace(CONTENTS, packages=("torn",))
    with pytest.raises(UsageError, match="the file of the package gone is missing, which torn"):
        write_page(tmp_path / "torn", torn, [], pyodide, PageOptions(title=""))
    assert not (tmp_path / "torn").exists()


# ------------------------------------------------------------------ the command


def run(out: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(["page", *words, "--pyodide", "cdn", "--out", str(out)])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--send", "http:nothing"], "--send needs an address such as https://example.com/key"),
        (["--send", "https://a;script-src/*"], "--send needs an address"),
        (["--send", 'https://a.b/">'], "--send needs an address"),
        (["--edit"], "--edit: snake is part of this package; copy it to a file"),
        (["--agent", "A=bot.py", "--agent", "B=bot.py"], "--agent B=bot.py: this agent is named"),
        (["--agent", "uses.py"], "uses.py:2: import click"),
        (["--agent", "imports.py"], "imports.py:2: import bot"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_and_nothing_is_written(
    words: list[str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    bot = "class Bot:\n    def choose(self, obs, move): return next(iter(move))\n"
    for name, first in {"bot": "", "uses": "click", "imports": "bot"}.items():
        Path(f"{name}.py").write_text(f"import sys\nimport {first or 'json'}\n{bot}")
    code, err = run(tmp_path / "site", capsys, "snake", *words)
    assert code
    assert problem in err
    assert not Path("site").exists()


@pytest.mark.slow
def test_a_page_is_not_written_into_the_package_that_it_contains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "pages_own_game"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(ROOT / "examples" / "my_game.py", package / "game.py")
    code, err = run(package / "site", capsys, str(package / "game.py"))
    assert code
    assert "is in the package of the game" in err
    assert not (package / "site").exists()


@pytest.mark.slow
def test_equal_names_of_agents_have_numbers_and_paths_may_have_any_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = []
    for name in ("a", "b", "rate=0.1"):
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / "examples/ship/snake.agent", tmp_path / name / "sn é#.agent")
        words += ["--agent", str(tmp_path / name / "sn é#.agent")]
    assert run(tmp_path / "site", capsys, "snake", *words, "--agent", f"Top={words[-1]}")[0] == 0
    config = json.loads((tmp_path / "site" / "game.json").read_text())
    assert config["players"] == [
        ["sn_.agent", "sn é#"],
        ["sn_-2.agent", "sn é#-2"],
        ["sn_-3.agent", "sn é#-3"],
        ["sn_-4.agent", "Top"],
        ["random", "Random moves"],
    ]
    assert len(list((tmp_path / "site" / "agents").iterdir())) == 4


@pytest.mark.parametrize("name", ["%00", "%ed%a0%80", "a" * 5_000, "..%2f..%2fetc%2fpasswd"])
def test_a_name_that_no_file_can_have_is_not_found(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, PageFiles) as url:
        address = urlsplit(url)
        connection = HTTPConnection(str(address.hostname), address.port or 0, timeout=20)
        connection.request("GET", f"/{name}")
        assert connection.getresponse().status == HTTPStatus.NOT_FOUND
        connection.close()
    assert capsys.readouterr().err == ""


def test_a_browser_that_leaves_is_no_error(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    has_left = Event()

    class Files(PageFiles):
        def handle(self) -> None:
            try:
                super().handle()
            except OSError as error:
                errors.append(error)
            has_left.set()

    (tmp_path / "large").write_bytes(bytes(1 << 24))
    with serving(tmp_path, Files) as url:
        address = urlsplit(url)
        with socket.create_connection((str(address.hostname), address.port or 0)) as client:
            client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            assert client.recv(1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert has_left.wait(20)
    assert errors == []
