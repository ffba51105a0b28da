"""The page of an animation in Chromium: controls, moves, plots, saved files."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env.authoring.local_run import PastStep
from entity_env.cli.browser.server import Page, PageServer
from entity_env.views import Scene
from entity_env.views.animation import Animation, Still
from entity_env.views.page import as_iframe, page
from entity_env.views.parts.bars import ActorBars, Bar
from tests.helpers.chromium import Chromium

pytest.importorskip("PIL")
from PIL import Image

pytestmark = pytest.mark.slow
Open: TypeAlias = Callable[..., Chromium]
SIZE = 4
UP = Bar("UP", 0.75, True, [(2.5, 2.5), (2.5, 0.5)])
RIGHT = Bar("RIGHT", 0.2, False, [(2.5, 2.5), (3.5, 2.5)])
LEFT = Bar("LEFT", 0.05, False, [(2.5, 2.5), (0.5, 2.5)])
DOWN = Bar("DOWN", None, False, is_allowed=False)
TO_BASE64 = """(async blob => {
  const url = await new Promise(done => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.readAsDataURL(blob);
  });
  return url.split(",")[1];
})"""


def animation(num: int = 5, *bars: Bar, agents: int = 1, **more: Any) -> Animation:  # noqa: ANN401
    """A disc that moves along the diagonal; agents take turns."""
    scene = Scene(SIZE, SIZE)
    for i in range(num):
        x = 0.5 + i * (SIZE - 1) / max(num - 1, 1)
        scene.circle(x, x, 0.3, "#0072b2 #56b4e9", of=0)
    ground = Scene(SIZE, SIZE)
    ground.rect(0, 0, SIZE, SIZE, "#ffffff #202224")
    actors = [ActorBars("Move", bars)] if bars else []
    stills = [
        Still(i % agents, i // agents, i / 100, [i], ["Disc </b>"], "", actors, i % 3 - 1.0)
        for i in range(num)
    ]
    names = [f"player {i}" for i in range(agents)]
    legend = [("Disc", scene.shapes[:1])]
    return Animation(
        "discs",
        [("seed", "7")],
        (SIZE, SIZE),
        agents,
        ground.shapes,
        scene.shapes,
        stills,
        **{"names": names, "legend": legend, "headline": "discs: player 0", **more},
    )


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Open:
    """Opens an animation, or the text of a page, and waits for its first picture."""

    def show(shown: Animation | str, address: str = "") -> Chromium:
        file = tmp_path / "page.html"
        file.write_text(shown if isinstance(shown, str) else shown.html())
        browser.go(f"{file.as_uri()}{address}")
        browser.wait_for("document.body.dataset.ready")
        return browser

    return show


def text_of(browser: Chromium, selector: str) -> str:
    return str(browser.value(f"document.querySelector({selector!r}).innerText"))


def at(browser: Chromium) -> int:
    """The picture that is shown."""
    browser.wait_for("pending == 0")
    return int(text_of(browser, "#out").partition("/")[0])


def pixels(browser: Chromium, script: str = "$('board')") -> NDArray[np.int64]:
    """A canvas as `(height, width, 3)`."""
    data = browser.value(f"{script}.toDataURL()").partition(",")[2]
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return np.asarray(image.convert("RGB"), np.int64)


def color_at(browser: Chromium, x: float, y: float) -> str:
    """The color of the board at a place, in units."""
    shown = pixels(browser)
    row, column = (int(each / SIZE * len(shown)) for each in (y, x))
    return "#" + "".join(f"{value:02x}" for value in shown[row, column])


# ------------------------------------------------------------------ steps


def test_keys_and_the_address_move_between_steps(show: Open) -> None:
    browser = show(animation(31), "#3")
    assert (at(browser), text_of(browser, "#out")) == (3, "3/30")
    for key, step in [
        *(("ArrowRight", 4), ("End", 30), ("ArrowRight", 30), ("ArrowLeft", 29), ("PageDown", 25)),
        *(("PageUp", 29), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1)),
    ]:
        browser.press(key)
        assert (key, at(browser)) == (key, step)
    browser.wait_for("location.hash == '#1'")
    browser.value("location.hash = '#12'")
    browser.wait_for("now == 12")
    browser.value("location.hash = '#1e9'")
    browser.wait_for("now == 1")
    browser.press("l")
    assert browser.value("$('loop').ariaPressed") == "true"
    browser.press("?")
    assert browser.value("$('keys').open") is True
    browser.press("End")
    browser.value("$('close').click()")
    assert browser.value("$('keys').open") is False
    assert at(browser) == 1
    assert browser.problems == []


def test_buttons_and_the_slider_move_between_steps(show: Open) -> None:
    browser = show(animation(9))
    for button, step in [("last", 8), ("back", 7), ("first", 0), ("next", 1)]:
        x, y, width, height = browser.box(f"#{button}")
        browser.click(x + width / 2, y + height / 2)
        assert (button, at(browser)) == (button, step)
    browser.value("$('at').value = 5; $('at').oninput()")
    assert at(browser) == 5
    x, y, width, height = browser.box("#curve")
    browser.click(x + width - 8, y + height / 2)
    assert at(browser) == 8
    assert browser.value("$('curve').ariaValueNow") == "8"


def test_playing_ends_at_the_last_step_and_is_not_announced(show: Open) -> None:
    browser = show(animation(4))
    assert browser.value("$('state').ariaLive") == "polite"
    browser.press(" ")
    assert browser.value("[$('state').ariaLive, $('play').title]") == ["off", "Pause (space)"]
    browser.wait_for("!isPlaying()")
    assert at(browser) == 3
    assert browser.value("[$('state').ariaLive, $('play').title]") == ["polite", "Play (space)"]


@pytest.mark.parametrize(
    ("address", "motion", "plays"),
    [
        ("?play", "no-preference", True),
        ("?play#1", "no-preference", True),
        ("?play#1", "reduce", False),
        ("#1", "no-preference", False),
    ],
)
def test_a_page_plays_at_once_where_its_address_says_so(
    show: Open, browser: Chromium, address: str, motion: str, plays: bool
) -> None:
    browser.emulate(1000, 640, prefers_reduced_motion=motion)
    show(animation(), address)
    assert browser.value("[isPlaying(), loops]") == [plays, plays]
    if plays:
        browser.wait_for("now > 2")
    else:
        assert at(browser) == int(address[-1])


def test_ten_thousand_steps_open_and_are_scrubbed_without_drawing_curves_again(show: Open) -> None:
    one = animation(2)
    stills = [replace(one.stills[i % 2], step=i, score=i % 7, value=i % 11) for i in range(10_000)]
    browser = show(replace(one, stills=stills), "#5000")
    assert text_of(browser, "#out") == "5000/9999"
    browser.value("window.drawn = layer; window.calls = 0; paintPlot = () => calls++; 0")
    for _ in range(20):
        browser.press("PageDown")
        browser.press("ArrowRight")
    assert at(browser) == 1
    assert browser.value("[drawn == layer, calls]") == [True, 0]
    assert browser.value("document.querySelectorAll('*').length") < 150
    assert browser.value("gifIndices().length") <= 301


# ------------------------------------------------------------------ the board


def test_the_chosen_move_is_solid_and_alternatives_are_thin(show: Open) -> None:
    browser = show(animation(5, UP, RIGHT, LEFT, DOWN))
    ink, paper = "#1b1e21", "#ffffff"
    assert color_at(browser, 2.5, 1.3) == ink
    assert color_at(browser, 2.43, 1.3) == paper  # its halo
    shown = pixels(browser)
    unit = len(shown) / SIZE

    def ink_across(x: float, y: float, dx: float, dy: float) -> list[float]:
        """Darkness along a line of one unit through a point, in steps of a pixel."""
        steps = np.arange(-unit / 2, unit / 2)
        rows, columns = (y * unit + dy * steps).astype(int), (x * unit + dx * steps).astype(int)
        return [float(255 - value) for value in shown[rows, columns].mean(axis=1)]

    chosen = sum(ink_across(2.5, 1.3, 1, 0))
    likely = sum(ink_across(3.2, 2.5, 0, 1))
    assert chosen > 2 * likely > 0
    # An unlikely choice is dashed: along its line there are gaps.
    along = ink_across(1.4, 2.5, 1, 0)
    assert min(along) == 0 < max(along)
    assert min(ink_across(3.2, 2.5, 0.2, 0)) > 0


@pytest.mark.parametrize("is_open", [True, False])
def test_the_last_moves_of_others_are_shown_where_observations_are_open(
    show: Open, is_open: bool
) -> None:
    one = animation(4, UP, agents=2, is_open=is_open)
    [actor] = one.stills[0].actors
    aside = Bar("RIGHT", None, True, [(0.5, 3.5), (3.5, 3.5)])
    stills = list(one.stills)
    stills[1] = replace(stills[1], actors=[replace(actor, bars=[aside])])
    browser = show(replace(one, stills=stills), "#2")
    shown = pixels(browser)
    row = shown[round(3.5 / SIZE * len(shown))]
    is_orange = (row[:, 0] > 180) & (row[:, 2] < 100)
    assert is_orange.any() == is_open
    assert is_orange.mean() < 0.75  # dashed


def test_a_ring_is_around_what_is_selected(show: Open) -> None:
    browser = show(animation(1, Bar("Disc", 1.0, True, [(0.5, 0.5)])))
    colors = [color_at(browser, 0.5 + x, 0.5) for x in (0, 0.2, 0.28)]
    assert colors == ["#0072b2", "#0072b2", "#1b1e21"]


def test_the_frame_around_a_row_of_a_table_is_thin_and_not_a_ring(show: Open) -> None:
    """As `draw_mark` does in pictures."""
    one = animation(1, Bar("Disc", 1.0, True, [(2.0, 1.0)]))
    scene = Scene(SIZE, SIZE)
    scene.rect(0.2, 0.8, 3.6, 0.4, "#ffffff00", of=0)
    browser = show(
        replace(
            one, shapes=[*one.shapes, *scene.shapes], stills=[replace(one.stills[0], shapes=[0, 1])]
        )
    )
    box = browser.value("boxAt(data.ground, data.shapes, [2, 1], data.size)?.[3]")
    assert box == [3.6, 0.4]
    assert color_at(browser, 2, 0.8) == "#1b1e21"
    assert {color_at(browser, 2, y) for y in (0.6, 0.9, 1.0, 1.1, 1.4)} == {"#ffffff"}


def test_colors_follow_the_palette(show: Open) -> None:
    browser = show(animation(1))
    light = color_at(browser, 0.5, 0.5), color_at(browser, 3, 1)
    browser.emulate(1000, 640, prefers_color_scheme="dark")
    browser.wait_for("legendIsDark && pending == 0")
    assert light == ("#0072b2", "#ffffff")
    assert (color_at(browser, 0.5, 0.5), color_at(browser, 3, 1)) == ("#56b4e9", "#202224")


def test_the_pointer_tells_the_entity(show: Open) -> None:
    browser = show(animation(3))
    left, top, width, _ = browser.box("#board")

    def point(x: float, y: float) -> str:
        where = {"x": left + x * width / SIZE, "y": top + y * width / SIZE}
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", **where)
        return str(browser.value("$('tip').hidden ? '' : $('tip').textContent"))

    assert [point(0.5, 0.5), point(2, 2), point(0.7, 0.6)] == ["Disc </b>", "", "Disc </b>"]
    browser.press("ArrowRight")  # the disc moves, the pointer stays
    browser.wait_for("now == 1 && pending == 0")
    assert browser.value("$('tip').hidden") is True


def test_a_tap_tells_the_entity_after_the_finger_has_left(show: Open) -> None:
    browser = show(animation(1))
    left, top, width, _ = browser.box("#board")
    at = {"x": left + width / 8, "y": top + width / 8}
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[at])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
    browser.wait_for("!$('tip').hidden")
    assert text_of(browser, "#tip") == "Disc </b>"


# ------------------------------------------------------------------ the panel


def test_bars_say_what_is_chosen_and_what_is_not_allowed(show: Open) -> None:
    browser = show(animation(3, UP, replace(RIGHT, share=0.0004), LEFT, DOWN))
    rows = browser.value("[...$('bars').querySelectorAll('.bar')].map(row => row.innerText)")
    words = [" ".join(row.split()) for row in rows]
    assert words == ["● UP 75%", "RIGHT <1%", "LEFT 5%", "DOWN not allowed"]
    assert text_of(browser, "h1") == "discs: player 0"
    assert text_of(browser, "#state").splitlines() == [
        "step 0 · score 0 · value -1",
        "chosen: UP",
    ]
    assert text_of(browser, "#legend") == "Disc"
    assert "seed" not in text_of(browser, "aside")
    browser.value("$('about').parentNode.open = true")
    assert "seed" in text_of(browser, "aside")
    scores = [browser.value(f"number({value})") for value in (0.05, -0.1, 1 / 3, 3, 1234.5)]
    assert scores == ["0.05", "-0.1", "0.333", "3", "1234.5"]


def test_a_bar_of_the_past_names_its_step_and_goes_there(show: Open) -> None:
    plain = animation(12, UP, agents=2)
    [still] = [each for each in plain.stills if (each.agent_id, each.step) == (1, 4)]
    past = [PastStep(0, 1, 0.5, 0.25), PastStep(2, 2, 0.0, 1.0), PastStep(3, 3, 0.125, None)]
    stills = [replace(each, past=past) if each is still else each for each in plain.stills]
    browser = show(replace(plain, stills=stills), f"#{plain.stills.index(still)}")
    heights = browser.value("[...document.querySelectorAll('.past i')].map(i => i.style.height)")
    assert heights == ["100%", "0%", "25%"]
    assert "without steps 0 to 1, 50% of the choice moves" in text_of(browser, "#bars")
    assert "value" not in text_of(browser, "#bars")
    browser.value("document.querySelector('.past').scrollIntoView()")
    x, y, width, height = browser.box(".past div:nth-child(3)")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width / 2, y=y + height / 2)
    assert "without step 3, 13% of the choice moves" in text_of(browser, "#bars")
    browser.click(x + width / 2, y + height / 2)
    shown = plain.stills[at(browser)]
    assert (shown.agent_id, shown.step) == (1, 3)
    assert browser.value("document.querySelector('.past')") is None
    assert not browser.problems


def test_every_control_has_a_name_and_the_bars_take_the_focus(show: Open) -> None:
    browser = show(animation(3, UP))
    nameless = browser.value(
        "[...document.querySelectorAll('button, select, input, canvas, [tabindex]')].filter("
        "e => !(e.title || e.ariaLabel || e.textContent.trim() || e.closest('label')"
        " || e.closest('#legend'))).map(e => e.outerHTML)"
    )
    assert nameless == []
    assert browser.value("($('bars').focus(), document.activeElement.id)") == "bars"
    browser.press("ArrowRight")
    at(browser)
    assert "step 1" in browser.value("$('board').ariaLabel")


@pytest.mark.parametrize("size", [(1280, 800), (690, 500), (390, 844), (390, 620), (844, 390)])
def test_controls_are_large_and_always_in_the_window(
    show: Open, browser: Chromium, size: tuple[int, int]
) -> None:
    browser.emulate(*size)
    show(animation(5, *[replace(UP, label=f"UP {i}") for i in range(40)]))
    names = ["first", "back", "play", "next", "last", "loop", "at"]
    more = ["speed", "png", "gif", "help"]
    for name in names:
        left, top, width, height = browser.box(f"#{name}")
        assert min(width, height) >= 44, name
        assert left >= 0, name
        assert top >= 0, name
        assert left + width <= size[0], name
        assert top + height <= size[1], name
    if size[0] <= 1000:
        assert browser.box("#speed")[3] == 0
        browser.value("$('menu').click()")
    for name in more:
        left, top, width, height = browser.box(f"#{name}")
        assert min(width, height) >= 44, name
        assert 0 <= left <= left + width <= size[0], name
        assert 0 <= top <= top + height <= size[1], name
    if size[0] == 390:  # the slider is alone in its row
        assert browser.box("#at")[1] + 44 <= browser.box("#play")[1]
    # The board fills its room in one direction.
    browser.wait_for("pending == 0")
    view, board = browser.box("#view"), browser.box("#board")
    assert max(board[2] / view[2], board[3] / view[3]) == pytest.approx(1, abs=0.01)
    assert browser.value("document.documentElement.scrollWidth") <= size[0]


# ------------------------------------------------------------------ files


def test_a_gif_holds_the_pictures_of_the_page(show: Open) -> None:
    browser = show(animation(5, UP, RIGHT))
    data = browser.value(f"gifBlob(() => 0).then({TO_BASE64})")
    with Image.open(io.BytesIO(base64.b64decode(data))) as gif:
        assert gif.n_frames == 5  # type: ignore[attr-defined]  # of files with several pictures
        for i in range(5):
            gif.seek(i)
            found = np.asarray(gif.convert("RGB"), np.int64)
            expected = pixels(
                browser,
                f"(([canvas, clear]) => (paintPicture(clear(), {i}), canvas))(newCanvas(480))",
            )
            assert found.shape == expected.shape == (480, 480, 3)
            assert np.abs(found - expected).max() <= 16
            assert np.abs(found - expected).mean() < 0.1
            assert gif.info["duration"] == (500 + 1500 * (i == 4))


def test_a_gif_of_many_colors_and_of_pictures_that_do_not_compress(browser: Chromium) -> None:
    folder = Path(__file__).parents[2] / "entity_env/views"
    browser.go("about:blank")
    script = (folder / "gif.js").read_text()
    bytes_ = browser.value(f"""(() => {{
      {script}
      let state = 1;
      const random = () => state = state * 48271 % 2147483647;
      // 200 colors that the palette tells apart, at random, twice: the table of codes fills up.
      const noise = () => Uint8Array.from({{length: 4 * 120 * 90}}, () => 255);
      const pictures = [noise(), noise()];
      for (const picture of pictures) {{
        for (let i = 0; i < picture.length; i += 4) {{
          const color = random() % 200;
          picture[i] = (color & 15) << 4;
          picture[i + 1] = (color >> 4) << 4;
          picture[i + 2] = 77;
        }}
      }}
      const palette = gifPalette(pictures);
      const parts = [gifHeader(120, 90, palette), ...pictures.map((picture, i) =>
        [...gifPicture(120, 90, picture, pictures[i - 1] ?? null, palette, 7)]), [0x3b]];
      return [parts.flat(), pictures.map(picture => [...picture])];
    }})()""")
    data, pictures = bytes_
    with Image.open(io.BytesIO(bytes(data))) as gif:
        for i, expected in enumerate(pictures):
            gif.seek(i)
            found = np.asarray(gif.convert("RGB"))
            assert (found == np.reshape(expected, (90, 120, 4))[..., :3]).all()


def test_a_gif_can_be_canceled(show: Open) -> None:
    browser = show(animation(50))
    script = "gifBlob(share => isCanceled = share > 0.1)"
    assert browser.value(f"{script}.then(blob => [blob, isCanceled])") == [None, True]
    browser.value("saveGif(); 0")
    assert browser.value("$('notice').innerText") == "GIF\nCancel"


def test_a_link_can_be_copied_by_hand_where_the_clipboard_is_not_allowed(show: Open) -> None:
    browser = show(animation(), "#2")
    browser.value("navigator.clipboard.writeText = () => Promise.reject()")
    browser.value("copyLink()")
    link = browser.value("document.activeElement.value")
    assert link.startswith("file://")
    assert link.endswith("page.html#2")
    assert browser.value("getSelection().toString()") == link


# ------------------------------------------------------------------ elsewhere


PROBE = """<script>
setTimeout(() => parent.postMessage([
  document.body.dataset.ready > 0,
  ...["png", "gif", "link", "full"].map(id => document.getElementById(id).hidden),
], "*"), 500);
</script>"""


def test_a_sandboxed_frame_shows_the_board_and_hides_what_it_may_not_do(
    browser: Chromium, tmp_path: Path
) -> None:
    html = animation(2).html().replace("</html>", f"{PROBE}</html>")
    outer = tmp_path / "outer.html"
    outer.write_text(
        "<!doctype html><script>onmessage = e => window.found = e.data</script>"
        f'<body style="margin:0">{as_iframe(html)}'
    )
    browser.go(outer.as_uri())
    found = browser.wait_for("window.found")
    assert found == [True] * 5
    shot = tmp_path / "shot.png"
    browser.screenshot(shot)
    with Image.open(shot) as image:
        colors = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (colors == [0x00, 0x72, 0xB2]).all(axis=1).sum() > 1000


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def test_without_scripts_a_page_shows_its_first_picture_and_no_controls(
    browser: Chromium, tmp_path: Path
) -> None:
    html = animation(3).html()
    assert not {"button", "input", "select", "canvas"} & {*Tags(html).found}
    assert "allow scripts" in html
    assert html.count('cx="0.5" cy="0.5"') == 1
    file = tmp_path / "page.html"
    file.write_text(html)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.go(file.as_uri())
        assert browser.value("document.querySelector('nav, #code + *')?.tagName") == "SCRIPT"
        shot = tmp_path / "shot.png"
        browser.screenshot(shot)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    with Image.open(shot) as image:
        colors = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (colors == [0x00, 0x72, 0xB2]).all(axis=1).sum() > 1000


def test_a_damaged_page_says_so(browser: Chromium, tmp_path: Path) -> None:
    html = re.sub(r'(id="code">)[^<]{100}', r"\1", animation(1).html())
    file = tmp_path / "page.html"
    file.write_text(html)
    browser.go(file.as_uri())
    browser.wait_for("document.body.innerText.startsWith('This page cannot be read')")


def test_a_server_lets_the_player_run_and_nothing_else(browser: Chromium) -> None:
    shown = Page.of_animation(animation(3, UP).html())
    with PageServer(lambda route: shown if route == "" else None, lambda answer: "") as server:
        browser.go(server.url)
        browser.wait_for("document.body.dataset.ready")
        browser.press("ArrowRight")
        assert at(browser) == 1
        assert browser.value("getComputedStyle(document.body).display") == "grid"
        assert browser.value("[$('png').hidden, $('gif').hidden]") == [True, True]
        assert browser.problems == []
        browser.value("document.body.append(Object.assign(make('script'), {text: 'window.x = 1'}))")
        assert browser.value("window.x") is None


def test_titles_never_become_markup(show: Open) -> None:
    title = "</script><script>document.title='wrong'</script><!--"
    browser = show(replace(animation(2), headline=title, legend=[(title, [])]))
    assert browser.value("[document.title, $('title').textContent]") == [title] * 2
    assert browser.problems == []


# ------------------------------------------------------------------ colors


def luminance(color: str) -> float:
    digits = color.lstrip("#")
    wide = "".join(2 * each for each in digits) if len(digits) == 3 else digits
    parts = [int(wide[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(colors: Sequence[str]) -> float:
    low, high = sorted(map(luminance, colors))
    return (high + 0.05) / (low + 0.05)


def test_colors_of_the_page_have_enough_contrast_in_both_palettes() -> None:
    css = (Path(__file__).parents[2] / "entity_env/views/page.css").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#\w+);", part)) for part in css.split("@media")[:2])
    assert light.keys() == dark.keys()
    texts = ["ink", "dim", "value", "score", "problem"]
    lines = ["edge", "focus", "choice", "share", "playhead", "attention"]
    for palette in (light, dark):
        assert {*texts, *lines, "paper", "soft"} == palette.keys()
        for name in texts:
            assert contrast([palette[name], palette["paper"]]) >= 4.5, name
        assert contrast([palette["ink"], palette["soft"]]) >= 4.5
        for name in lines:
            assert contrast([palette[name], palette["paper"]]) >= 3, name
        roles = [palette[name] for name in ("choice", "value", "score", "playhead", "attention")]
        assert len({*roles}) == 5


def test_sizes_are_within_bounds() -> None:
    assert len(page("", "", {})) <= 18_000


# ------------------------------------------------------------------ last moves, long episodes


def test_the_end_shows_the_last_move(show: Open) -> None:
    shown = animation(2, UP)
    last = replace(shown.stills[1], actors=[], end="over")
    browser = show(replace(shown, stills=[shown.stills[0], last]), "#1")
    assert browser.value("[...lastMoves(1).keys()]") == [0]
    assert browser.value("lastMoves(0).size") == 0
    line = {color_at(browser, 2.5, y / 10) for y in range(12, 24)}
    assert len(line - {"#ffffff"}) >= 1  # the dashed line of the arrow
    assert color_at(browser, 2.5, 0.55) == "#ffffff"  # it ends before what moved


def test_a_rectangle_is_marked_by_a_box(show: Open) -> None:
    scene = Scene(SIZE, SIZE)
    scene.rect(1, 1, 0.8, 0.8, "#ffffff00", of=0)
    here = Bar("HERE", 1.0, True, [(1.4, 1.4)])
    shown = replace(animation(1, here), shapes=scene.shapes, legend=[])
    browser = show(shown)
    assert color_at(browser, 1.02, 1.02) != "#ffffff"  # a corner, where no ring is
    assert color_at(browser, 1.4, 1.4) == "#ffffff"


def test_an_episode_of_ten_thousand_steps_is_scrubbed(show: Open) -> None:
    num = 10_000
    browser = show(animation(num, UP, RIGHT))
    assert browser.value("frames.length") == num
    browser.press("End")
    assert at(browser) == num - 1
    for index in range(0, num, num // 40):
        browser.value(f"$('at').value = {index}; $('at').dispatchEvent(new Event('input'))")
        assert at(browser) == index
        assert f"step {index} " in text_of(browser, "#state")
    assert browser.problems == []
