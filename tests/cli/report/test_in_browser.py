"""The page in Chromium: it fits a phone, its texts are legible, and axe-core finds nothing."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from entity_env.agents import RandomAgent
from entity_env.agents.ppo.hints import Hint, hint_facts
from entity_env.agents.training.tracking.runs import CURVES_FILE, TrainingRun
from entity_env.cli.report.page import report_html
from entity_env.cli.report.replays import replay_pages
from entity_env.games import snake
from entity_env.replay import record
from tests.cli.report.made_runs import evaluated, make, random_play, runs_of
from tests.helpers.chromium import PROGRAM, Chromium, axe_core

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium"),
    pytest.mark.slow,
]
LEAST_PX = 11
TEXTS = """
[...document.querySelectorAll("body *")].filter(each =>
  each.checkVisibility() && !["STYLE", "SCRIPT", "title"].includes(each.tagName) &&
  [...each.childNodes].some(node => node.nodeType == Node.TEXT_NODE && node.data.trim())
).map(each => {
  const m = each.getScreenCTM?.();
  return parseFloat(getComputedStyle(each).fontSize) * (m ? Math.hypot(m.c, m.d) : 1);
})
"""
OUTSIDE = """
[...document.querySelectorAll("body *")].filter(each =>
  each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1 &&
  !each.closest(".table, pre, .plot svg svg")
).map(each => each.outerHTML.slice(0, 80))
"""
UNREACHABLE = """
[...document.querySelectorAll("body *")].filter(each =>
  each.scrollWidth > each.clientWidth + 1 && each.tabIndex < 0 &&
  ["auto", "scroll"].includes(getComputedStyle(each).overflowX)
).map(each => each.outerHTML.slice(0, 80))
"""


def make_report(folder: Path) -> str:
    """A page with everything: seeds, evaluations, random play, replays, hints, long names."""
    hints = hint_facts([Hint("value_loss", "the value loss is 58", {"norm_returns": True})])
    about: dict[str, object] = {**hints, **random_play(1.0), "options": {}}
    about["command"] = ["entity-env", "train", "snake", *(f"--setting-{i}=1" for i in range(30))]
    for seed in range(3):
        evaluated(folder / f"seed-{seed}", 4 + seed, seed=seed, about=about)
    long = make(folder / ("a-very-long-name-of-a-run-" * 3), [1, 2, 3], gamma=0.5)
    with (long / CURVES_FILE).open("a") as file:
        file.write(json.dumps({"step": 400, "metrics/" + "x" * 70 + ".mean": 1}) + "\n")
        file.write(json.dumps({"step": 401, "losses/approx_kl": 0.01}) + "\n")
    (folder / "seed-0" / "replays").mkdir()
    record(snake, RandomAgent(1), seed=1).save(folder / "seed-0" / "replays" / "step-200.replay")
    runs = runs_of(folder)
    pages, problems = replay_pages(runs)
    assert problems == []
    return report_html(runs, (), pages)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(make_report(folder / "runs"), "utf-8")
    with Chromium((folder / "report.html").as_uri(), folder / "profile") as browser:
        yield browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_a_page_is_legible_at_every_width(page: Chromium, width: int, scheme: str) -> None:
    page.emulate(width, 900, is_mobile=width == 390, prefers_color_scheme=scheme)
    page.wait_for(f"innerWidth == {width}")
    assert page.value("document.documentElement.scrollWidth") <= width
    assert min(page.value(TEXTS)) >= LEAST_PX
    assert page.value(OUTSIDE) == []
    assert page.value(UNREACHABLE) == []
    assert page.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(page: Chromium, width: int, scheme: str) -> None:
    if not axe_core():
        pytest.skip("needs axe-core")
    page.emulate(width, 900, is_mobile=width == 390, prefers_color_scheme=scheme)
    page.wait_for(f"innerWidth == {width}")
    page.value(f"{axe_core()};0")
    found = "axe.run(document, {resultTypes: ['violations'], iframes: false})"
    names = "found.violations.flatMap(rule => rule.nodes.map(node => [rule.id, node.html]))"
    assert page.value(f"{found}.then(found => {names})") == []


def test_tables_are_lists_on_a_phone(page: Chromium) -> None:
    rows = "document.querySelector('[aria-label=Runs] tbody tr').children"
    tops = f"new Set([...{rows}].map(each => each.getBoundingClientRect().top)).size"
    page.emulate(1280, 900)
    assert page.value(tops) == 1
    page.emulate(390, 900, is_mobile=True)
    assert page.value(f"{tops} == {rows}.length")
    label = f"getComputedStyle({rows}[0], '::before').content"
    assert page.value(label) == '"run"'


def test_a_mark_opens_its_replay_with_visible_controls(page: Chromium) -> None:
    page.emulate(390, 700, is_mobile=True)
    assert page.value("document.querySelector('.replay').checkVisibility()") is False
    page.value("document.querySelector('.plot a').dispatchEvent(new MouseEvent('click'))")
    page.wait_for("document.querySelector('.replay').checkVisibility()")
    assert page.value("document.querySelector('.player').clientHeight <= innerHeight")
    page.value("location.hash = ''")


def test_no_runs_are_wider_than_the_page(tmp_path: Path) -> None:
    runs = [
        dataclasses.replace(TrainingRun(Path("x" * 300)), about={"game": "y" * 300}),
    ]
    (tmp_path / "report.html").write_text(report_html(runs), "utf-8")
    with Chromium((tmp_path / "report.html").as_uri(), tmp_path / "profile") as browser:
        browser.emulate(390, 900, is_mobile=True)
        browser.wait_for("innerWidth == 390")
        assert browser.value("document.documentElement.scrollWidth") <= 390
