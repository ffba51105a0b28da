"""Buttons that load games on the site, their pages, and the download of Pyodide."""

from __future__ import annotations

import io
import json
import re
import tarfile
from functools import partial
from pathlib import Path

import pytest

from entity_env.page.obstacles import find_obstacles
from entity_env.page.pyodide import CDN, FILES, VERSION, Pyodide
from entity_env.page.trial import play_trial
from tests.helpers.chromium import PROGRAM, Chromium
from tests.page.browser import begin, served, submit
from tools.docs import games, play, pyodide
from tools.golden_replays import GAMES_BY_NAME, ROOT

BUTTON = '<button type="button" class="play-here" data-title="'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with files of the right names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    folder = tmp_path / "entity_env" / f"pyodide-{VERSION}"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("{}")
    (folder / "pyodide-lock.json").write_text(json.dumps({"packages": {}}))
    with (folder / "pyodide.asm.wasm").open("wb") as file:
        file.truncate(13_600_000)
    return folder


def test_a_comment_becomes_a_button_with_the_size_only_if_pyodide_is_there(cache: Path) -> None:
    text = play.with_buttons("a\n\n<!--play: snake-->\n\nb", "games/snake.md")
    assert f'{BUTTON}snake" data-src="../play/snake/index.html?play">Play here (14 MB)<' in text
    assert 'data-src="play/snake/' in play.with_buttons("<!--play: snake-->", "index.md")
    edited = play.with_buttons("<!--play: crystals-->", "tutorials/first_game.md")
    assert 'data-src="../play/crystals/index.html?edit">Edit and play here' in edited
    (cache / "pyodide.mjs").unlink()
    assert play.with_buttons("<!--play: snake-->", "index.md") == ""
    assert list(play.files()) == []


def test_every_game_with_a_page_has_the_comment_of_its_button() -> None:
    for name, text in games.pages().items():
        game = name.removeprefix("games/").removesuffix(".md")
        assert (f"\n<!--play: {game}-->\n" in text) == (game in play.GAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES_BY_NAME)
def test_games_with_a_page_are_those_that_need_no_numpy(name: str) -> None:
    if name.startswith("pixel"):
        pytest.importorskip("warp")
    found = find_obstacles(GAMES_BY_NAME[name], available=(), play=partial(play_trial, {}))
    assert (not found.obstacles) == (name in play.GAMES), found.obstacles


@pytest.mark.slow
def test_the_games_of_the_site_share_python_and_the_package(cache: Path) -> None:
    files = dict(play.files())
    configs = {
        name: json.loads(files[f"play/{name}/game.json"])
        for name in (*play.GAMES, *play.EXAMPLES, play.TUTORIAL)
    }
    assert {config["pyodide"] for config in configs.values()} == {"../pyodide/"}
    assert len({config["version"] for config in configs.values()}) == 1
    assert {name.split("/")[2] for name in files if "/pyodide/" in name} == {*FILES}
    assert configs["crystals"]["editable"] == "crystals.py"
    assert files["play/crystals/game/crystals.py"].decode() == play.tutorial_game()
    assert "play/tic_tac_toe/agents/tic_tac_toe.agent" in files
    assert {"play/skirmish/game/skirmish.py", "play/skirmish/game/skirmish_look.py"} <= {*files}
    assert configs["skirmish"]["seats"] == ["human", "random"]


def test_every_button_of_the_written_pages_has_a_game() -> None:
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    found = {name for text in pages for name in re.findall(r"^<!--play: (\w+)-->$", text, re.M)}
    assert found == {"snake", *play.EXAMPLES, play.TUTORIAL}


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
@pytest.mark.skipif(not pyodide.is_there(), reason="needs Pyodide: make pyodide")
def test_the_game_of_the_tutorial_is_edited_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "GAMES", ())
    monkeypatch.setattr(play, "EXAMPLES", ())
    for name, content in play.files():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    button = play.with_buttons("<!--play: crystals-->", "tutorials/first_game.md")
    place = button.partition('data-src="../')[2].partition('"')[0]
    with (
        served(tmp_path / "site") as url,
        Chromium(f"{url}/{place}", tmp_path / "profile") as page,
    ):
        page.wait_for("document.getElementById('edit').open")
        assert page.value("source.value") == play.tutorial_game()
        page.value("source.value = original.replace('def play(', 'def play(:')")
        submit(page)
        assert "crystals.py" in page.wait_for("document.getElementById('failure').textContent")
        selected = "source.value.slice(source.selectionStart, source.selectionEnd)"
        assert page.value(selected).startswith("def play(:")
        page.value("source.value = original.replace('crystals = Game(', 'crystals = Game(\\n')")
        begin(page)
        page.wait_for("frame.asked")
        assert page.problems == []


# ------------------------------------------------------------------ the download


def archive(folder: Path, content: bytes, names: tuple[str, ...] = FILES) -> Path:
    """An npm package with files of this content."""
    path = folder / "package.tgz"
    with tarfile.open(path, "w:gz") as package:
        for name in names:
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            package.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("names", "problem"), [(FILES, "its hash differs"), (FILES[1:], "pyodide.mjs is missing")]
)
def test_an_archive_with_other_files_is_refused(
    names: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    out = tmp_path / "cache" / "pyodide"
    with pytest.raises(ValueError, match=problem):
        pyodide.unpack(archive(tmp_path, b"other", names), out)
    assert not out.exists()


def test_the_files_of_an_archive_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SHA-384 of "", as openssl prints it.
    empty = "sha384-OLBgp1GsljhM2TJ+sbHjaiH9txEUvgdDTAzHv2P24donTt6/529l+9Ua0vFImLlb"
    known = Pyodide(None, "", 0, hashes=dict.fromkeys(FILES, empty))
    monkeypatch.setattr(Pyodide, "find", lambda place: known if place == CDN else None)
    out = tmp_path / "cache" / "pyodide"
    out.mkdir(parents=True)
    (out / "old").touch()
    pyodide.unpack(archive(tmp_path, b""), out)
    assert {path.name for path in out.iterdir()} == {*FILES}
    assert [path.name for path in out.parent.iterdir()] == ["pyodide"]


def test_without_npm_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    pyodide.main()
    assert capsys.readouterr().out == "Pyodide is not downloaded: npm not found\n"
