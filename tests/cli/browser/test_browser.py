"""Games in a real browser, played by mouse alone and by keyboard alone."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from entity_env.cli.load_game import load_game
from entity_env.games import cherry_pick, snake, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.page.live import game_page
from entity_env.replay import Replay
from tests.cli.browser.page import WAIT_S, Played
from tests.helpers.chromium import PROGRAM, Chromium

SKIRMISH = str(Path(__file__).parents[3] / "examples" / "skirmish.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="without Chromium"),
]
ARROWS = ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight")
PLACES = """
(() => {
  const box = board.getBoundingClientRect();
  const scale = box.width / ground.size[0];
  return lit.map(({spot: [x, y]}) => [box.left + x * scale, box.top + y * scale]);
})()
"""
READY = "typeof frame == 'object' && frame && frame.asked"
BUTTONS = """
[...document.querySelectorAll('#choices button')].map(button => {
  const box = button.getBoundingClientRect();
  return [box.left + 5, box.top + 5];
})
"""
STATE = "JSON.stringify([frame.asked?.number ?? 0, picks.length, Boolean(frame.over), isSent])"


@pytest.fixture(autouse=True)
def short_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_page, "_RELOAD_S", 0.1)
    monkeypatch.setattr(game_page, "_WAKE_S", 0.05)


@contextmanager
def browsing(game: Played, folder: Path, width: int = 1280) -> Iterator[Chromium]:
    with Chromium(game.url, folder / "profile") as browser:
        browser.emulate(width, 800, is_mobile=width < 500)
        browser.wait_for(READY)
        yield browser
        assert browser.problems == []  # such as scripts or styles blocked by the policy


def next_state(browser: Chromium, state: str) -> str:
    """Waits until a pick or an answer has changed the page."""
    browser.wait_for(f"{STATE} != {state!r} && !isSent")
    return str(browser.value(STATE))


def play_by_mouse(browser: Chromium, rng: Random) -> int:
    """Clicks places on the board until the episode is over; returns the number of clicks."""
    num_clicks, state = 0, str(browser.value(STATE))
    while not browser.value("Boolean(frame.over)"):
        places = browser.value(PLACES) or browser.value(BUTTONS)  # two foes may share a place
        browser.click(*rng.choice(places))
        num_clicks += 1
        state = next_state(browser, state)
    return num_clicks


def play_by_keyboard(browser: Chromium, rng: Random) -> int:
    """Presses arrow keys and Enter until the episode is over; returns the number of picks."""
    num_picks, state = 0, str(browser.value(STATE))
    while not browser.value("Boolean(frame.over)"):
        for _ in range(rng.randrange(1, 4)):
            browser.press(rng.choice(ARROWS))
            if browser.value(STATE) != state:  # the arrow was a move
                break
        else:
            browser.press("Enter")
        num_picks += 1
        state = next_state(browser, state)
    return num_picks


def saved_replay(browser: Chromium, folder: Path) -> bytes:
    """Content of the file that the page offers to save."""
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.value("$('save').click()")
    deadline = time.monotonic() + WAIT_S
    while not (found := [*folder.glob("*.replay")]):
        assert time.monotonic() < deadline, [*folder.glob("*")]
        time.sleep(0.02)
    return found[0].read_bytes()


@pytest.mark.parametrize("play", [play_by_mouse, play_by_keyboard])
@pytest.mark.parametrize("name", ["azul", SKIRMISH])
def test_a_whole_game(name: str, play: Callable[[Chromium, Random], int], tmp_path: Path) -> None:
    game = load_game(name)
    played = Played(game, ["human", "random"])
    with browsing(played, tmp_path) as browser:
        num_picks = play(browser, Random(1))
        assert re.search("won|shared|No winner", browser.value("$('headline').textContent"))
        shown = "[...document.querySelectorAll('#over button, #over a')].map(e => !e.hidden)"
        assert browser.value(shown) == [True, True, True]  # again, watch, save
        assert browser.value("$('reasons').children.length") >= 1
        content = saved_replay(browser, tmp_path / "downloads")
        browser.value("$('watch').click()")
        browser.wait_for("!$('film').hidden && !view.offsetParent")
        browser.press("Escape")
        browser.wait_for("$('film').hidden && view.offsetParent != null")
    episodes = played.join()
    replay = Replay.from_bytes(content)
    assert replay.verify(game) is None
    num_decisions = sum(line.agent_id == 0 and line.end is None for line in replay.lines)
    assert num_decisions == episodes[0].length
    assert num_picks >= num_decisions
    if name == "azul":
        assert num_picks > 1.5 * num_decisions  # most moves are two clicks


def test_choices_of_two_steps_and_undo(tmp_path: Path) -> None:
    game = Played(azul, ["human", "random"])
    with browsing(game, tmp_path) as browser:
        state = str(browser.value(STATE))
        num_choices = browser.value("frame.asked.choices.length")
        buttons = "document.querySelectorAll('#choices button')"
        first = browser.value(f"[...{buttons}].map(b => b.textContent)")
        assert len(first) < num_choices / 4
        assert browser.value("canUndo()") is False
        for undo in ("Escape", "Backspace", "click"):
            browser.click(*browser.value(PLACES)[0])
            state = next_state(browser, state)
            assert browser.value("picks.length") == 1
            assert "line 1" in browser.value(f"[...{buttons}].map(b => b.textContent).join()")
            if undo == "click":
                browser.value("$('undo').click()")
            else:
                browser.press(undo)
            state = next_state(browser, state)
            assert browser.value("picks.length") == 0
            assert browser.value(f"[...{buttons}].map(b => b.textContent)") == first
        # The same by buttons and keys; the focus stays among the buttons.
        browser.value("$('list').firstChild.click()")
        browser.value(f"{buttons}[2].focus()")
        browser.press("Enter")
        state = next_state(browser, state)
        assert browser.value("$('choices').contains(document.activeElement)")
        browser.press("1")
        state = next_state(browser, state)
        moves = browser.value("frame.moves.filter(move => move.startsWith('you'))")
        assert moves[0].startswith(f"you: {first[2][1:]} to ")
    game.finish()


def test_undo_goes_back_to_the_previous_question_of_the_turn(tmp_path: Path) -> None:
    game = Played(load_game(SKIRMISH, ["max_turns=1"]), ["human", "random"])
    with browsing(game, tmp_path) as browser:
        first, state = browser.value("frame.asked.title"), str(browser.value(STATE))
        browser.press("Escape")  # nothing to undo
        assert browser.value(STATE) == state
        browser.press("1")
        state = next_state(browser, state)
        assert browser.value("frame.asked.title") != first
        assert browser.value("$('progress').getAttribute('aria-label')") == "question 2 of 8"
        browser.press("Escape")
        state = next_state(browser, state)
        assert browser.value("frame.asked.title") == first
        assert browser.value("$('undo').hidden")
    game.finish()


def test_the_last_episode_plays_without_access_to_the_game(tmp_path: Path) -> None:
    game = Played(snake, ["human"])
    with game.page() as page:
        while not page.wait_for(lambda frame: frame["asked"])["over"]:
            page.press("up")
        with Chromium(game.url + "watch", tmp_path / "profile") as browser:
            browser.wait_for("Number(document.body.dataset.ready) > 0")
            assert browser.problems == []
            assert browser.value("origin") == "null"
            for route in ("", "save", "events", "answer"):
                tried = f"fetch({game.url + route!r}).then(() => 'read', () => 'refused')"
                assert browser.value(tried) == "refused"
    game.join()


def test_clicks_elsewhere_do_nothing(tmp_path: Path) -> None:
    game = Played(tic_tac_toe, ["human", "random"])
    with browsing(game, tmp_path, 390) as browser:
        state = str(browser.value(STATE))
        places = browser.value(PLACES)
        box = browser.value(
            "(() => {const box = board.getBoundingClientRect();"
            " return [box.left, box.top, box.right, box.bottom]})()"
        )
        assert all(box[0] < x < box[2] and box[1] < y < box[3] for x, y in places)
        browser.click(box[0] + 1, box[1] + 1)
        browser.value("document.activeElement.blur()")
        browser.press("q")
        assert browser.value(STATE) == state
        browser.click(*places[0])
        next_state(browser, state)
        [mine] = browser.value("frame.moves.filter(move => move.startsWith('you'))")
        assert len(browser.value(PLACES)) <= len(places) - 1
        assert mine
    game.finish()


def test_buttons_are_large_enough_for_fingers(tmp_path: Path) -> None:
    game = Played(load_game(SKIRMISH, ["max_turns=1"]), ["human", "random"])
    with browsing(game, tmp_path, 390) as browser:
        sizes = browser.value(
            "[...document.querySelectorAll('button, summary')].filter(e => e.offsetParent)"
            ".map(e => [e.offsetWidth, e.offsetHeight])"
        )
        assert len(sizes) >= 5
        assert all(width >= 44 and height >= 44 for width, height in sizes)
        assert browser.value("document.documentElement.scrollWidth") <= 390
    game.finish()


def test_a_browser_plays(tmp_path: Path) -> None:
    game = Played(cherry_pick.with_settings(num_good=2, num_bad=2), ["human"])
    with Chromium(game.url, tmp_path) as browser:
        browser.wait_for(READY)
        x, y = browser.value(PLACES)[0]
        number = browser.value("frame.asked.number")
        browser.click(x, y)
        browser.wait_for(f"frame.asked.number > {number}")
        browser.press("1")
        browser.wait_for("frame.over")
        assert browser.value("document.querySelectorAll('#moves li').length") == 2
        assert browser.problems == []  # such as scripts or styles blocked by the policy
        browser.value("fetch('http://127.0.0.1:1/').catch(() => 0)")
        while "Content Security Policy" not in str(browser.problems):
            browser.value("0")  # reads the browser's messages
    assert game.join()[0].length == 2


def test_a_browser_plays_in_real_time(tmp_path: Path) -> None:
    game = Played(snake, ["human"], clock_s=0.3)
    with Chromium(game.url, tmp_path) as browser:
        browser.wait_for(READY)
        assert browser.value("document.getElementById('left').hidden") is True
        browser.press("s")
        browser.wait_for("frame.asked && frame.asked.left_s > 0")
        assert browser.value("document.getElementById('left').hidden") is False
        browser.wait_for("frame.over")
        assert browser.problems == []
    assert game.join()[0].length > 1
