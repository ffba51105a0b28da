"""The pages of the site: every page is in the navigation, and generated ones are up to date."""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks.common import Median, report
from entity_env import errors
from entity_env.agents import RandomAgent
from entity_env.cli.app import COMMANDS, command_of, main
from tests import ROOT
from tools.docs import curves, gallery, games, plots, reference, stage
from tools.docs.figures import read
from tools.docs.gallery import RECIPES, TRAINED
from tools.docs.scripted import SCRIPTED
from tools.golden_replays import GAMES_BY_NAME


@cache
def pages() -> dict[str, str]:
    return stage.pages()


def players_of(name: str) -> tuple[str, ...]:
    return ("random", "scripted", "trained") if name in SCRIPTED else ("random", "trained")


def test_every_page_is_in_the_navigation() -> None:
    assert stage.misplaced(pages(), stage.CONFIG.read_text()) == []


def test_orphans_and_entries_without_a_page_are_named() -> None:
    config = "docs_dir: docs\n\nnav:\n  - one.md\n  - Two: folder/two.md\n"
    assert stage.misplaced({"one.md": "", "three.md": ""}, config) == [
        "three.md: not in nav in mkdocs.yml, add an entry",
        "mkdocs.yml: nav lists folder/two.md, which does not exist",
    ]


def test_the_navigation_has_the_titles_of_the_pages() -> None:
    nav = stage.CONFIG.read_text().partition("\nnav:")[2]
    entries = re.findall(r"^ +- (?:'?(.+?)'?: )?([\w./-]+\.md)$", nav, re.M)
    assert len(entries) == len(pages())
    for title, page in entries:
        found = re.search(r"^# `?(.+?)`?$", pages()[page], re.M)
        heading = found[1] if found else ""
        # A title may leave out what follows a colon. Without one, it is the heading.
        assert title in ("", heading, heading.partition(": ")[0]), page


@pytest.mark.parametrize("name", [str(path) for path in (*stage.sources(), "README.md")])
def test_links_to_the_glossary_lead_to_a_term_once(name: str) -> None:
    terms = re.findall(
        r"^\S.* \{ #([\w-]+) \}\n:   \S", (stage.DOCS / "glossary.md").read_text(), re.M
    )
    assert terms == sorted({*terms})
    linked = re.findall(r"glossary\.md#([\w-]+)\)", (ROOT / name).read_text())
    assert {*linked} <= {*terms}
    assert len(linked) == len({*linked})


@pytest.mark.parametrize("name", [str(path) for path in (*stage.sources(), "README.md")])
def test_links_lead_somewhere(name: str) -> None:
    path = PurePosixPath(name)
    for target in stage.targets((ROOT / path).read_text(), path):
        is_made = target.is_relative_to("docs") and str(stage.place(target)) in pages()
        assert is_made or (ROOT / target).exists(), target


def test_links_are_moved_with_the_files() -> None:
    text = "[s](../../SECURITY.md#a) [e](../../examples/bot.py) [x](../index.md) `[c](../../no.md)`"
    assert stage.moved(text, PurePosixPath("docs/how-to/ship.md")) == (
        "[s](../project/SECURITY.md#a) [e](../files/examples/bot.py) [x](../index.md) "
        "`[c](../../no.md)`"
    )


@pytest.mark.slow
def test_what_is_staged_stays_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    stage.stage(tmp_path, with_replays=False)
    page = tmp_path / "index.md"
    before = page.stat().st_mtime_ns
    (tmp_path / "old.md").write_text("gone")
    (tmp_path / "pictures" / "snake.png").write_bytes(b"another")
    stage.stage(tmp_path, with_replays=False)
    assert page.stat().st_mtime_ns == before
    assert not (tmp_path / "old.md").exists()
    picture = ROOT / "docs" / "pictures" / "snake.png"
    assert (tmp_path / "pictures" / "snake.png").read_bytes() == picture.read_bytes()
    assert (tmp_path / "files" / "examples" / "tour.ipynb").exists()


def test_every_command_is_in_the_reference() -> None:
    page = pages()["reference/command_line.md"]
    for name in COMMANDS:
        command = command_of(name)
        part = page[page.index(f"## `entity-env {name}`") :].partition("\n## ")[0]
        for parameter in command.params:
            for option in (each for each in parameter.opts if each.startswith("--")):
                assert part.count(f"{{ #{name}{option} }}") == 1, (name, option)


def test_the_reference_has_every_default() -> None:
    page = pages()["reference/command_line.md"]
    for name in COMMANDS:
        shown = CliRunner().invoke(main, [name, "--help"], env={"COLUMNS": "100"}).stdout
        part = page[page.index(f"## `entity-env {name}`") :].partition("\n## ")[0]
        defaults = re.findall(r"\[default:\s", shown)
        of_arguments = part.count(r"\[default: ")
        of_options = len(re.findall(r"^    \*Default: ", part, re.M))
        assert of_arguments + of_options == len(defaults), name


def test_every_error_is_in_the_reference() -> None:
    page = pages()["reference/errors.md"]
    for name, each in vars(errors).items():
        if inspect.isclass(each) and each.__module__ == errors.__name__:
            assert f"[`{name}`][entity_env.{name}]" in page


def test_every_public_name_is_described_once() -> None:
    described: dict[str, str] = {}
    for package, names in reference.public_packages().items():
        page = pages()[f"reference/api/{package}.md"]
        for name in names:
            assert re.search(rf"(^::: {re.escape(package)}\.{name}$|`{name}`)", page, re.M), name
        for path in re.findall(r"^::: (\S+)$", page, re.M):
            assert described.setdefault(path, package) == package
    assert {"entity_env.Game", "entity_env.vec.VecEnv", "entity_env.check.check_game"} <= {
        *described
    }


def test_a_game_has_its_picture_rules_settings_and_scores() -> None:
    for name, game in GAMES_BY_NAME.items():
        page = pages()[f"games/{games.slug(name)}.md"]
        assert (ROOT / "docs" / "pictures" / f"{games.slug(name)}.png").exists()
        for title in (
            "## Entities",
            "## Actions",
            "**Reward:**",
            "**Terminated when:**",
            "**Truncated when:**",
        ):
            assert title in page, (name, title)
        for entity in game.obs_space().entities:
            assert re.search(rf"^\| `{entity}` \| .* \| \S.* \|$", page, re.M), (name, entity)
        for setting in game.parameters:
            assert re.search(rf"^\| `{setting}` \| `.*` \| \S.* \|$", page, re.M), (name, setting)
        for who in players_of(name):
            row = rf"^\| {who}.* \| -?[\d.,]+ ± [\d.]+ \|"
            assert re.search(row, page, re.M), (name, who)
        assert f"[`{name}`](games/{games.slug(name)}.md)" in pages()["games.md"]


def test_a_replay_is_a_page_of_its_own() -> None:
    name, text = next(games.replay_pages())
    assert name == "replays/snake.html"
    assert text.startswith("<!doctype html>")
    assert f'src="{name}?play"' in pages()["index.md"]
    assert str(ROOT) not in str(gallery.animation("snake", 1).about)


def test_scores_are_of_the_games_that_there_are() -> None:
    scores = json.loads(games.SCORES.read_text())
    assert scores.keys() == GAMES_BY_NAME.keys()
    known = scores["snake"]["random"]
    measured = games.measure(GAMES_BY_NAME["snake"], RandomAgent(seed=1), episodes=200)
    assert measured["reward"] == known["reward"], "python -m tools.docs.games"


def test_every_game_has_the_scores_of_its_players() -> None:
    assert {*GAMES_BY_NAME} - {*SCRIPTED} == {"rock_paper_scissors"}  # no script beats chance
    for name, scores in json.loads(games.SCORES.read_text()).items():
        assert tuple(scores) == players_of(name), name
        games.replay_seed(scores)
        if gallery.is_trained(name):
            assert scores["trained"]["agent"] == TRAINED[name]
        if gallery.is_trained(name) and name in RECIPES:
            told = f"python -m tools.docs.games --train {name}"
            assert scores["trained"]["steps"] == RECIPES[name].steps, told


def test_the_gallery_is_that_of_the_scores() -> None:
    page = games.GALLERY.read_text("utf-8")
    assert games.with_gallery(page) == page, "python -m tools.docs.games"
    for name in GAMES_BY_NAME:
        assert page.count(f"pictures/{games.slug(name)}.gif") == 1


def test_the_agents_of_the_gallery_are_small() -> None:
    files = [*gallery.AGENTS.glob("*")]
    assert {path.stem for path in files} <= {*map(games.slug, RECIPES)}
    assert sum(path.stat().st_size for path in files) <= 200_000


def test_the_gallery_says_what_was_not_learned() -> None:
    page = games.GALLERY.read_text("utf-8")
    for name, scores in json.loads(games.SCORES.read_text()).items():
        random, trained = scores["random"], scores["trained"]
        most = random["reward"] + random["half_width"]
        is_learned = trained["reward"] - trained["half_width"] > most
        card = page[page.index(f"**[`{name}`]") :].partition("\n")[0]
        assert ("has not learned" in card) == (gallery.is_trained(name) and not is_learned), name
        assert ("a random agent" in card) != gallery.is_trained(name), name


@pytest.mark.parametrize("name", SCRIPTED)
def test_scripted_players_beat_random_ones(name: str) -> None:
    scores = json.loads(games.SCORES.read_text())[name]
    least = scores["scripted"]["reward"] - scores["scripted"]["half_width"]
    assert least > scores["random"]["reward"] + scores["random"]["half_width"]
    if name.startswith("pixel"):
        pytest.importorskip("torch")
        pytest.importorskip("warp")
    if not name.startswith("azul"):  # its first move compiles
        measured = games.measure(GAMES_BY_NAME[name], SCRIPTED[name](1), episodes=3)
        assert float(measured["reward"]) > scores["random"]["reward"]


def test_how_an_agent_was_trained_stays_unless_it_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(games, "measure", lambda *_: {"reward": 1})
    monkeypatch.setattr(gallery, "best_seed", lambda _: 3)
    monkeypatch.setattr(gallery, "train", lambda _: 2.4)
    monkeypatch.setattr(gallery, "agent_of", lambda _: RandomAgent())
    known = {"trained": {"agent": "an earlier one", "steps": 5, "cpu_s": 7, "reward": 0}}
    kept = games.measure_all("cherry_pick", known, trains=False)["trained"]
    agent = {"agent": TRAINED["cherry_pick"], "reward": 1, "replay_seed": 3}
    assert kept == {**agent, "steps": 5, "cpu_s": 7}
    steps = RECIPES["cherry_pick"].steps
    trained = games.measure_all("cherry_pick", known, trains=True)["trained"]
    assert trained == {**agent, "steps": steps, "cpu_s": 2}
    assert games.measure_all("azul", {}, trains=True)["trained"]["agent"] == TRAINED["azul"]
    monkeypatch.setattr(games, "is_trained", lambda _: False)
    found = games.measure_all("cherry_pick", {"trained": {"agent": "another"}}, trains=False)
    assert found["trained"] == {"agent": "another"}
    assert found["random"]["replay_seed"] == 3


@pytest.mark.slow
def test_an_agent_is_trained_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    recipe = RECIPES["cherry_pick"]._replace(steps=1000)
    monkeypatch.setattr(gallery, "RECIPES", {"cherry_pick": recipe})
    monkeypatch.setattr(gallery, "TRAINED", {"cherry_pick": str(tmp_path / "small.agent")})
    assert gallery.train("cherry_pick") > 0
    measured = games.measure(
        GAMES_BY_NAME["cherry_pick"], gallery.agent_of("cherry_pick"), episodes=5
    )
    assert -1 <= float(measured["reward"]) <= 1


def test_plots_are_those_of_the_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for path, text in plots.pictures().items():
        assert path.read_text() == text, "python -m tools.docs.plots"
        assert f"({path.relative_to(ROOT / 'docs').as_posix()})" in page
        assert len(text.encode()) <= 40_000


def test_plots_have_the_color_of_the_page() -> None:
    page = pages()["benchmarks.md"]
    assert page.count('<svg role="img" aria-label="') == len(plots.pictures())
    assert "prefers-color-scheme" not in page
    assert ".svg)" not in page
    other = "![layout](pictures/layout.svg)"
    assert stage.inlined(other, PurePosixPath("docs/benchmarks.md")) == other


def drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, figures: dict[str, float], unit: str = "×"
) -> list[ElementTree.Element]:
    """Elements of a plot of what a benchmark prints."""
    report("some benchmark", figures, ["numpy"], as_json=True)
    (tmp_path / "vec.json").write_text(capsys.readouterr().out)
    dots = plots.Dots("<ratio>", "about", {name: f"of {name}" for name in figures}, unit)
    return list(ElementTree.fromstring(plots.svg(dots, read(tmp_path / "vec.json"))).iter())


def numbers(elements: list[ElementTree.Element], tag: str, attribute: str) -> list[float]:
    return [float(each.attrib[attribute]) for each in elements if each.tag.endswith(f"}}{tag}")]


def test_dots_are_sorted_on_a_logarithmic_axis(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = drawn(capsys, tmp_path, {"b": 10.0, "a": 1000.0, "c": 0.1})
    x, y = (numbers(found, "circle", name) for name in ("cx", "cy"))
    assert y == sorted(y)
    assert x[0] - x[1] == pytest.approx(x[1] - x[2], abs=0.2)
    texts = [each.text for each in found if each.text]
    assert [text for text in texts if text.startswith("of ")] == ["of a", "of b", "of c"]
    assert {"<ratio>", "as fast as the peer", "1,000×", "100×", "1k×"} <= {*texts}
    assert min(numbers(found, "svg", "width")) == curves.WIDTH


def test_rounds_are_lines_behind_the_dots(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [
        sum(each.get("stroke-width") == "3" for each in drawn(capsys, tmp_path, {"a": value}))
        for value in (2.0, Median.of([2.0, 1.0, 4.0]))
    ]
    assert lines == [0, 1]
    assert "lines: from the smallest to the largest round" in [
        each.text for each in drawn(capsys, tmp_path, {"a": Median.of([1.0, 2.0])})
    ]


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        ([3.1, 3.9], (1.0, 5.0), [1.0, 2.0, 5.0]),
        ([1.0, 8570.0], (0.5, 10_000.0), [1.0, 10.0, 100.0, 1000.0, 10_000.0]),
    ],
)
def test_a_logarithmic_axis_has_round_ends(
    values: list[float], ends: tuple[float, float], ticks: list[float]
) -> None:
    axis = plots.LogAxis(values, 1.0, 100, 200)
    assert (axis.low, axis.high) == pytest.approx(ends)
    assert axis.ticks == pytest.approx(ticks)
    assert (axis.at(axis.low), axis.at(axis.high)) == pytest.approx((100, 200))


def test_a_curve_is_the_median_of_the_seeds_with_their_range() -> None:
    runs = [{"curve": [[0, value], [50, value], [200, value + 100]]} for value in (1.0, 2.0, 6.0)]
    line = curves.summary("ours", runs, steps=100, num_points=10)
    assert (line.x[0], line.x[-1]) == (0, 100)
    assert (line.low[0], line.y[0], line.high[0]) == (1, 2, 6)
    assert line.y[-1] == pytest.approx(2 + 100 / 3)
    assert not curves.summary("ours", runs[:1], steps=100, num_points=10).has_band
