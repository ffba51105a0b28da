"""Pages of games in Chromium, with the real Pyodide; skipped without them."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from entity_env import games
from entity_env.agents import load_agent
from entity_env.page import pyodide
from entity_env.page.collect import ReplayCollector
from entity_env.page.pyodide import FILES, cache_folder
from entity_env.replay import Replay, ReplayWriter
from tests.helpers.chromium import Chromium, axe_core
from tests.page.browser import (
    IN_CHROMIUM,
    SharedFiles,
    begin,
    saved_replay,
    served,
    submit,
    text,
    write,
)

ROOT = Path(__file__).parents[2]
SNAKE = ROOT / "examples" / "ship" / "snake.agent"

pytestmark = IN_CHROMIUM


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "examples" / "my_game.py", folder / "my_game.py")
    write(folder / "snake", "snake", "--agent", f"Good={SNAKE}", "--clock", "0.3")
    write(folder / "tic_tac_toe", "tic_tac_toe", "--title", "X & O <b>")
    write(folder / "my_game", str(folder / "my_game.py"), "--edit")
    with served(folder) as url:
        yield folder, url


def test_a_game_is_played_with_keys_watched_again_and_its_replay_verified(
    site: tuple[Path, str], profile: Path
) -> None:
    _, url = site
    with Chromium(f"{url}/snake/", profile) as page:
        begin(page)
        assert text(page, "#title") == "snake"
        assert text(page, "#status").startswith("Your turn")
        page.wait_for("frame.asked")
        page.press("ArrowUp")
        page.wait_for("frame.over")
        assert text(page, "#headline").startswith("Score ")
        replay = saved_replay(page)
        page.value("document.getElementById('watch').click()")
        page.wait_for("document.getElementById('film').srcdoc.length > 1000")
        page.press("Escape")
        page.value("document.getElementById('again').click()")
        page.wait_for("frame.asked?.choices.length")
        assert page.problems == []
    assert replay.header.agents[0]["name"] == "human"
    assert replay.verify(games.snake) is None


def test_an_agent_plays_move_for_move_as_in_python(site: tuple[Path, str], profile: Path) -> None:
    _, url = site
    with Chromium(f"{url}/snake/", profile) as page:
        page.wait_for("config")
        page.value("config.start.seed = 5")
        page.value("document.querySelector('select').value = 'snake.agent'")
        page.value("document.querySelector('#speed input').value = 31")
        begin(page)
        page.wait_for("frame.over && frame.asked")
        replay = saved_replay(page)
        assert page.problems == []
    writer = ReplayWriter(agents=["snake.agent"])
    games.snake.run(load_agent(SNAKE, greedy=True), seed=5, watch=writer)
    mine = writer.replays[0]
    assert [line.actions for line in replay.lines] == [line.actions for line in mine.lines]
    assert replay.verify(games.snake) is None


def test_a_game_is_played_by_mouse_and_touch_on_a_phone(
    site: tuple[Path, str], profile: Path
) -> None:
    _, url = site
    with Chromium(f"{url}/tic_tac_toe/", profile, (390, 844)) as page:
        page.emulate(390, 844, is_mobile=True)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.wait_for("config")
        assert text(page, "#name") == "X & O <b>"
        x, y, width, height = page.box("#setup > button")
        tap(page, x + width / 2, y + height / 2)
        page.wait_for("document.body.classList.contains('begun') && frame?.seats")
        is_tap = True
        while page.wait_for("frame.asked") and not page.value("frame.over"):
            number = page.value("frame.asked.number")
            left, top, width, height = page.box("#board")
            columns, rows = page.value("ground.size")
            spot_x, spot_y = page.value("lit[0].spot.slice(0, 2)")
            at = left + spot_x * width / columns, top + spot_y * height / rows
            (tap if is_tap else Chromium.click)(page, *at)
            is_tap = not is_tap
            page.wait_for(f"frame.over || frame.asked?.number > {number}")
        assert page.value("document.documentElement.scrollWidth") <= 390
        replay = saved_replay(page)
        assert page.problems == []
    assert replay.verify(games.tic_tac_toe) is None


def tap(page: Chromium, x: float, y: float) -> None:
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        page.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def test_the_second_visit_starts_from_the_kept_memory(
    site: tuple[Path, str], profile: Path
) -> None:
    _, url = site
    with Chromium(f"{url}/tic_tac_toe/", profile) as page:
        begin(page)
        page.wait_for("caches.open('entity_env').then(c => c.keys()).then(found => found.length)")
        page.go(f"{url}/tic_tac_toe/")
        begin(page)
        page.wait_for("frame.asked")
        seeds = page.value("saved = null")
        assert seeds is None
        assert page.problems == []


def test_a_visitor_edits_the_game_and_sees_the_line_of_an_error(
    site: tuple[Path, str], profile: Path
) -> None:
    _, url = site
    with Chromium(f"{url}/my_game/", profile) as page:
        page.wait_for("config && original")
        game = page.value("original")
        assert game == (ROOT / "examples" / "my_game.py").read_text()
        broken = game.replace("def play(", "def plai(", 1)
        page.value(f"document.getElementById('source').value = {json.dumps(broken)}")
        submit(page)
        page.wait_for("document.getElementById('failure').textContent")
        assert "NameError" in text(page, "#failure")
        selected = page.value("source.value.slice(source.selectionStart, source.selectionEnd)")
        assert "play" in selected
        page.value(f"document.getElementById('source').value = {json.dumps(game)}")
        begin(page)
        page.wait_for("frame.asked")


def endless(game: str) -> str:
    """The game with a loop that never ends."""
    found = game.replace("agent.act(", "(lambda *_: any(iter(int, 1)))(", 1)
    assert found != game
    return found


def test_a_game_that_never_returns_is_replaced(site: tuple[Path, str], profile: Path) -> None:
    _, url = site
    with Chromium(f"{url}/my_game/", profile) as page:
        page.wait_for("config && original")
        game = page.value("original")
        page.value(f"document.getElementById('source').value = {json.dumps(endless(game))}")
        page.value("waitMs = 500")
        submit(page)
        page.wait_for("isReady")
        page.value(f"document.getElementById('source').value = {json.dumps(game)}")
        submit(page)
        page.value("take('begun', wanted.id - 1)")  # of the first game, late
        page.wait_for("frame?.asked")


def test_a_game_that_hangs_is_stopped_by_itself(site: tuple[Path, str], profile: Path) -> None:
    _, url = site
    with Chromium(f"{url}/my_game/", profile) as page:
        page.wait_for("config && original")
        page.value("config.step_timeout_s = 5")
        source = json.dumps(endless(page.value("original")))
        page.value(f"document.getElementById('source').value = {source}")
        submit(page)
        page.wait_for("document.getElementById('failure').textContent")
        assert text(page, "#failure") == "The game gave no answer for 5 s and was stopped."
        page.value("config.step_timeout_s = 60")
        page.value("document.getElementById('source').value = original")
        begin(page)
        page.wait_for("frame.asked")


HANGING_LOOK = """
def draw(seen, scene):
    while __file__.startswith("/game/"):  # in a browser
        pass
"""


def test_a_look_that_hangs_is_stopped_by_itself(tmp_path: Path, profile: Path) -> None:
    shutil.copy(ROOT / "examples" / "my_game.py", tmp_path / "my_game.py")
    (tmp_path / "my_game_look.py").write_text(HANGING_LOOK)
    write(tmp_path / "site", str(tmp_path / "my_game.py"))
    with served(tmp_path / "site") as url, Chromium(url, profile) as page:
        page.wait_for("config")
        page.value("config.step_timeout_s = 5")
        page.value("document.querySelector('select').value = 'random'")
        submit(page)
        page.wait_for("document.getElementById('failure').textContent")
        assert text(page, "#failure") == "The game gave no answer for 5 s and was stopped."


HANGS = """
def bot(obs, action):
    while __file__.startswith("/game/"):  # in a browser
        pass
    return obs.allowed(action)[0]
"""
SOONER = """
const begun = limit;
limit = asked => begun(asked?.seat == 1 ? {...asked, seconds: asked.seconds / 60} : asked);
"""


def test_an_agent_that_hangs_is_named_and_the_next_game_starts(
    tmp_path: Path, profile: Path
) -> None:
    (tmp_path / "slow.py").write_text(HANGS)
    bot = f"Slow={tmp_path / 'slow.py'}:bot"
    write(tmp_path / "site", "tic_tac_toe", "--agent", bot, "--step-timeout", "60")
    with served(tmp_path / "site") as url, Chromium(url, profile) as page:
        page.wait_for("config")
        page.value("config.start.seed = 6")  # player 1 begins
        begin(page)
        page.wait_for("frame.asked")
        assert page.value("config.step_timeout_s") == 60
        page.value(SOONER)
        page.value("post({number: frame.asked.number, choice: frame.asked.choices[0][0]}), 0")
        page.wait_for("document.getElementById('failure').textContent")
        words = "Slow (player 2) gave no answer for 1 s and was stopped."
        assert text(page, "#failure") == words
        assert not page.value("document.body.classList.contains('begun')")
        page.value("limit = begun")  # a second is the limit of the bot that hangs
        page.value("document.querySelectorAll('select')[1].value = 'random'")
        begin(page)
        page.wait_for("frame.asked && !frame.over")
        assert text(page, "#failure") == ""


def test_dragging_shows_what_the_network_would_do(site: tuple[Path, str], profile: Path) -> None:
    _, url = site
    with Chromium(f"{url}/snake/", profile) as page:
        page.wait_for("config")
        page.value("document.querySelector('select').value = 'snake.agent'")
        page.value("document.querySelector('#speed input').value = 31")
        begin(page)
        page.wait_for("frame.over && !document.getElementById('review').hidden")
        page.value("slider.value = 3; slider.oninput()")
        page.wait_for("frame.episode.startsWith('step 4 of')")
        before = page.wait_for("frame.think && JSON.stringify(frame.think)")
        x, y, width, height = page.box("#board")
        columns, rows = page.value("ground.size")
        food = page.wait_for("frame.shapes.findLast(s => /food/i.test(frame.words[s[7]]))")
        from_x, from_y = x + food[1] * width / columns, y + food[2] * height / rows
        to_x = x + (columns - food[1]) * width / columns
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=from_x, y=from_y)
        mouse = partial(page.call, "Input.dispatchMouseEvent", button="left", clickCount=1)
        mouse(type="mousePressed", x=from_x, y=from_y)
        mouse(type="mouseMoved", x=to_x, y=from_y, buttons=1)
        page.wait_for(f"JSON.stringify(frame.think) != {json.dumps(before)}")
        mouse(type="mouseReleased", x=to_x, y=from_y)
        assert page.problems == []


AXE = """
axe.run(document, {runOnly: [
  "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
  .then(found => found.violations.map(each => [each.id, each.nodes.map(node => node.html)]))
"""


def test_every_state_is_accessible_and_fits_a_phone(site: tuple[Path, str], profile: Path) -> None:
    script = axe_core() or pytest.skip("needs axe-playwright-python")
    _, url = site

    def check(page: Chromium, state: str) -> None:
        for width, scheme in product((390, 1280), ("light", "dark")):
            page.emulate(width, 844, is_mobile=width == 390, prefers_color_scheme=scheme)
            page.value(
                "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            assert page.value(AXE) == [], (state, width, scheme)
            assert page.value("document.documentElement.scrollWidth") <= width, state

    with Chromium(f"{url}/snake/", profile) as page:
        page.value(f"{script};0")
        page.wait_for("config")
        check(page, "form")
        page.value("document.querySelector('[name=clock]').click()")
        page.value("document.querySelector('[name=think]').click()")
        begin(page)
        page.wait_for("frame.asked")
        check(page, "turn")
        page.value("document.getElementById('new').click(); frame = null")
        page.value("document.querySelector('select').value = 'snake.agent'")
        page.value("document.querySelector('#speed input').value = 31")
        begin(page)
        page.wait_for("frame.over && frame.asked")
        check(page, "end")
        page.value("slider.value = 3; slider.oninput()")
        page.wait_for("frame.think && frame.episode.startsWith('step 4 of')")
        check(page, "look back")
        page.value("document.getElementById('watch').click()")
        page.wait_for("document.getElementById('film').srcdoc.length > 1000")
        check(page, "watch")


def test_nothing_else_can_be_reached(site: tuple[Path, str], profile: Path) -> None:
    """Neither by the page, nor by the code of the game."""
    folder, url = site
    policy = (folder / "snake" / "index.html").read_text().split('content="')[1].split('"')[0]
    assert "unsafe-inline" not in policy
    assert "'unsafe-eval'" not in policy
    with Chromium(f"{url}/my_game/", profile) as page:
        page.wait_for("config && original")
        code = "import js\nassert not hasattr(js, 'fetch') or js.fetch is None, js.fetch\n"
        game = code + page.value("original")
        page.value(f"document.getElementById('source').value = {json.dumps(game)}")
        submit(page)
        page.wait_for(
            "document.body.classList.contains('begun')"
            " || document.getElementById('failure').textContent"
        )
        assert "AssertionError" not in text(page, "#failure")
        refused = "fetch('https://example.com').then(() => 'reached', () => 'refused')"
        assert page.value(refused) == "refused"


def test_a_file_says_what_to_do(site: tuple[Path, str], profile: Path) -> None:
    folder, _ = site
    with Chromium((folder / "snake" / "index.html").as_uri(), profile) as page:
        assert "python3 -m http.server" in text(page, "#failure")
        assert page.value("setup.hidden")


def test_a_finished_game_is_sent_after_consent_and_kept(tmp_path: Path, profile: Path) -> None:
    lines: list[str] = []
    kept = tmp_path / "kept"
    with ReplayCollector(games.snake, kept, lines.append) as collector:
        write(tmp_path / "site" / "snake", "snake", "--send", collector.url)
        with served(tmp_path / "site") as url, Chromium(f"{url}/snake/", profile) as page:
            page.wait_for("config")
            label = text(page, "#sending")
            assert "127.0.0.1" in label
            for is_wanted in (False, True):
                page.value(
                    f"document.querySelector('[name=send]').checked = {str(is_wanted).lower()}"
                )
                page.value("document.querySelector('select').value = 'random'")
                page.value("document.querySelector('#speed input').value = 31")
                begin(page)
                page.wait_for("frame.over && frame.asked")
                if is_wanted:
                    assert page.wait_for("document.getElementById('sent').textContent") == "Sent."
                else:
                    assert not lines
                page.value("document.getElementById('new').click(); frame = null")
            assert page.problems == []
    assert len(lines) == 1
    [file] = kept.iterdir()
    assert Replay.load(file).verify(games.snake) is None


@pytest.mark.parametrize("wrong", [None, *FILES])
def test_files_of_another_server_are_checked(
    tmp_path: Path, profile: Path, wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `--pyodide cdn`; a second server stands in for that one."""
    copies = tmp_path / "cdn"
    shutil.copytree(cache_folder(), copies)
    if wrong is not None:
        with (copies / wrong).open("ab") as file:
            file.write(b"\n")
    with served(copies, handler=SharedFiles) as cdn:
        monkeypatch.setattr(pyodide, "_URL", f"{cdn}/")
        write(tmp_path / "site" / "snake", "snake", "--pyodide", "cdn")
        with served(tmp_path / "site") as url, Chromium(f"{url}/snake/", profile) as page:
            submit(page)
            page.wait_for(
                "document.body.classList.contains('begun')"
                " || document.getElementById('failure').textContent"
            )
            assert page.value("document.body.classList.contains('begun')") == (wrong is None)
            if wrong is not None:
                assert text(page, "#failure").endswith("is not the expected file")
