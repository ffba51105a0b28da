"""The page of a report: complete, escaped, without local paths, and with replays."""

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from entity_env.agents import RandomAgent
from entity_env.agents.ppo.hints import Hint, hint_facts
from entity_env.agents.training.tracking.runs import (
    AGREEMENT,
    CURVES_FILE,
    EVALUATED,
    REWARD,
    TrainingRun,
)
from entity_env.cli.report import replays
from entity_env.cli.report.curve_words import _WORDS, curve_title, curve_words
from entity_env.cli.report.files import report_csv, report_svg
from entity_env.cli.report.page import report_body, report_html
from entity_env.cli.report.replays import replay_pages
from entity_env.cli.run_tables import runs_json
from entity_env.games import snake
from entity_env.replay import PlayLimits, Replay, record
from entity_env.views.chart import COLOURS, DARK_COLOURS
from tests import DATA, ROOT
from tests.cli.report.made_runs import (
    EVIL,
    evaluated,
    make,
    make_seeds,
    random_play,
    runs_of,
)

SPACE = "{http://www.w3.org/2000/svg}"


class Parsed(HTMLParser):
    """Tags, addresses and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def plots(text: str) -> list[ElementTree.Element]:
    """The drawings of a page, in order."""
    found = re.findall(r'<div class="plot">(<svg.*?</svg>)</div>', text, re.S)
    return [ElementTree.fromstring(each) for each in found]


@pytest.fixture
def seeds(tmp_path: Path) -> Sequence[TrainingRun]:
    return make_seeds(tmp_path)


def test_a_page_needs_no_other_file(seeds: Sequence[TrainingRun]) -> None:
    text = report_html(seeds)
    page = Parsed(text)
    assert page.addresses == []
    assert set(re.findall(r"https?://[^\"'\s]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in text
    assert "script" not in page.tags
    assert page.tags.count("main") == page.tags.count("h1") == 1
    assert {"3 training runs of snake", "Mean episode reward", "9.000 ± 0.198"} <= set(page.texts)
    assert page.tags.count("tr") == 3 + 4 + 2  # tables over seeds, of all runs, of settings
    assert text.index("Results over seeds") < text.index("<h2>Runs</h2>")
    assert any("Student's 95\xa0% interval of the mean" in each for each in page.texts)


def test_settings_of_a_few_groups_are_compared_row_by_row(seeds: Sequence[TrainingRun]) -> None:
    text = report_html(seeds)
    table = text[text.index("Settings that differ in snake</h2>") :]
    cells = re.findall(r'<td data-label="([^"]*)">([^<]*)</td>', table[: table.index("</table>")])
    assert cells == [("setting", "gamma"), ("mean of 2 seeds", "0.99"), ("c", "0.5")]
    runs = text[text.index("<h2>Runs</h2>") :]
    assert 'data-label="gamma"' not in runs[: runs.index("</table>")]


def test_settings_of_many_groups_are_columns(tmp_path: Path) -> None:
    for i in range(5):
        make(tmp_path / str(i), [1], gamma=0.9 + i / 100)
    text = report_html(runs_of(tmp_path))
    assert "Settings that differ" not in text
    assert text.count('data-label="gamma"') == 5


def test_runs_that_do_not_differ_have_no_comparison(tmp_path: Path) -> None:
    make(tmp_path / "a", [1, 2], seed=1)
    assert "Settings that differ" not in report_html(runs_of(tmp_path))


def test_training_and_evaluation_share_a_chart(tmp_path: Path) -> None:
    evaluated(tmp_path / "a", 5, about=random_play(1.0))
    first, *others = plots(report_html(runs_of(tmp_path)))
    dots = [each for each in first.iter(f"{SPACE}path") if each.get("stroke-linecap")]
    assert [each.findtext(f"{SPACE}title") for each in dots] == ["a, at 200: 5 (4.52 to 5.48)"]
    assert len(list(first.iter(f"{SPACE}polyline"))) == 2  # with random play
    assert len(list(first.iter(f"{SPACE}polygon"))) == 1
    assert [each.get("aria-label") for each in others] == [
        "Entropy of a decision, in nats: a from 1.000 to 0.500"
    ]


def test_a_normal_range_is_shaded_and_stated(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [])
    with (folder / CURVES_FILE).open("a") as file:
        for step, value in ((1, 0.0), (2, 0.02), (3, 0.04)):
            file.write(json.dumps({"step": step, "losses/approx_kl": value}) + "\n")
    text = report_html(runs_of(folder), ("losses/approx_kl",))
    assert "<strong>KL divergence per update</strong>" in text
    assert "<code>losses/approx_kl</code>, normal: 0.003 to 0.03 (shaded)" in text
    [plot] = plots(text)
    [area] = [each for each in plot.iter(f"{SPACE}rect") if each.get("class") == "good"]
    assert float(str(area.get("y"))) == pytest.approx(1000 * (1 - 0.03 / 0.04))
    assert float(str(area.get("height"))) == pytest.approx(1000 * 0.027 / 0.04)


def test_normal_values_are_those_of_the_docs() -> None:
    rows = re.findall(
        r"^\| `([\w/]+)` \| ([^|]*) \|", (ROOT / "docs/not_learning.md").read_text(), re.M
    )
    documented = {name: text.replace("**", "") for name, text in rows}
    for name, words in _WORDS.items():
        assert words.normal in ("", documented.get(name)), name
    assert curve_words("losses/approx_kl").has_range


def test_sections_of_the_docs_exist(seeds: Sequence[TrainingRun]) -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/not_learning.md").read_text(), re.M)
    found = {re.sub(r"\W+", "-", heading.lower()) for heading in headings}
    assert set(re.findall(r"\(#([\w-]+)\)", report_html(seeds))) == {"then-the-curves"}
    assert {"then-the-curves", "the-hints"} <= found


def test_curves_without_words_keep_their_names() -> None:
    assert curve_title("g", "x/y") == "g: x/y"
    assert curve_title("", REWARD) == "mean episode reward"
    assert curve_title("", "metrics/food.mean") == (
        "food, mean (from the game) (metrics/food.mean)"
    )
    assert "\x1b" not in curve_title("", f"metrics/{EVIL}.max")


def _luminance(color: str) -> float:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("ground", "colors"), [("#ffffff", COLOURS), ("#15181d", DARK_COLOURS)])
def test_lines_are_visible_on_their_ground(ground: str, colors: Sequence[str]) -> None:
    for color in colors:
        low, high = sorted((_luminance(color), _luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 3, color
    assert len(set(colors)) == len(COLOURS)
    page = report_html([TrainingRun(Path("a"))])
    for light, dark in zip(COLOURS, DARK_COLOURS, strict=True):
        assert f'[stroke="{light}"] {{ stroke: {dark}; }}' in page


def test_names_are_escaped(tmp_path: Path) -> None:
    about: dict[str, object] = {
        "settings": {EVIL: EVIL},
        "command": ["entity-env", EVIL],
        "opponents": {EVIL: 1.0},
        "init_from": {"path": EVIL},
        "options": {"eval_opponent": EVIL},
        "identity": {"package": EVIL, "sha256": EVIL, "version": EVIL, "git": EVIL},
        "default_config": {EVIL: EVIL},
        "num_agents": 2,
    }
    folder = make(tmp_path / "<b>&", [1, 2], game=EVIL, about=about)
    make(tmp_path / "x", [1, 2], game=EVIL, about={"settings": {EVIL: 3}})
    data = json.loads((folder / "run.json").read_text())
    data |= {"machine": {"cpu": EVIL, "platform": EVIL}, "versions": {EVIL: EVIL}, "began": EVIL}
    data["config"] |= {EVIL: EVIL}
    (folder / "run.json").write_text(json.dumps(data))
    with (folder / CURVES_FILE).open("a") as file:
        file.write(json.dumps({"step": 500, f"metrics/{EVIL}.mean": 1}) + "\n")
    text = report_html(runs_of(tmp_path))
    assert not {"script", "b"} & set(Parsed(text).tags)
    assert "\x1b" not in text
    assert len(plots(text)) == 3  # all of them are XML
    assert text.count("[2J") > 10


def test_a_metric_that_is_recorded_once_per_episode_has_one_chart(tmp_path: Path) -> None:
    folder = make(tmp_path / "run", [1, 2])
    with (folder / CURVES_FILE).open("a") as file:
        for step, food in ((500, 1.0), (600, 2.0)):
            names = ("food", "episode/food", "gold", "episode/gold")
            found = {f"metrics/{name}.mean": food for name in names}
            found["metrics/gold.mean"] = 3 * food
            file.write(json.dumps({"step": step, **found}) + "\n")
    text = report_html(runs_of(tmp_path)).lower()
    assert "food, mean" in text
    assert "food at the end of an episode" not in text
    assert "gold, mean" in text
    assert "gold at the end of an episode, mean" in text


def test_nothing_in_a_page_is_a_local_path(tmp_path: Path) -> None:
    local = "/home/me/secret"
    hints = hint_facts([Hint("value_loss", "the value loss is 58", {"norm_returns": True})])
    about: dict[str, object] = {
        **hints,
        "settings": {"rom": f"{local}/a.ch8"},
        "command": [f"{local}/entity-env", "train", f"{local}/g.py", f"--out={local}/a"],
        "opponents": {f"{local}/old.agent": 0.5},
        "init_from": {"path": f"{local}/init"},
        "options": {"eval_opponent": f"{local}/bot.py:Bot"},
        "identity": {"source": f"{local}/g.py:game"},
    }
    folder = make(tmp_path / "a", [1, 2, 3], game=f"{local}/g.py", about=about)
    make(tmp_path / "b", [1, 2, 3], game=f"{local}/g.py", about={**about, "settings": {"rom": "b"}})
    (folder / "replays").mkdir()
    record(snake, RandomAgent(1), seed=1).save(folder / "replays" / "step-200.replay")
    runs = runs_of(tmp_path)
    pages, problems = replay_pages(runs)
    assert (len(pages), problems) == (1, [])
    text = report_html(runs, (), pages)
    assert "secret" not in text
    assert str(tmp_path) not in text
    assert str(tmp_path).replace("/", "_2f_") not in text
    assert "entity-env train g.py --out=a" in text
    assert "init" in Parsed(text).texts


# ------------------------------------------------------------------ replays


def test_replays_along_a_run_are_shown_and_others_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1, 2, 3])
    (folder / "replays").mkdir()
    good = folder / "replays" / "step-000000200.replay"
    good.write_bytes((DATA / "replays" / "snake.replay").read_bytes())
    damaged = folder / "replays" / "step-000000300.replay"
    damaged.write_text("{")
    runs = runs_of(folder)
    pages, problems = replay_pages(runs)
    assert list(pages) == [good]
    assert len(problems) == 1
    assert problems[0].startswith(f"{damaged} cannot be shown: ")
    text = report_html(runs, (), pages)
    page = Parsed(text)
    [name] = set(page.addresses)
    assert page.addresses == [name, name]  # on the curve and in the text
    assert f'class="replay" id="{name[1:]}"' in text
    assert (page.tags.count("iframe"), page.tags.count("script")) == (1, 0)
    assert 'sandbox="allow-scripts"' in text
    assert 'title="Replay: the agent of a at step 200"' in text
    plot = plots(text)[0]
    [mark] = plot.iterfind(f".//{SPACE}a/{SPACE}svg")
    assert (mark.get("x"), mark.get("y")) == ("50.00%", "50.00%")  # the second of three points
    assert report_html(runs).count("iframe") == 0


class CountingBar:
    """A progress bar that counts."""

    found: list[tuple[int, int]]

    def __init__(self, total: int, what: str) -> None:
        assert what
        self.total = total
        self.done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.found.append((self.done, self.total))

    def count(self) -> None:
        self.done += 1


def test_progress_counts_every_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountingBar, "found", [], raising=False)
    monkeypatch.setattr(replays, "ProgressBar", CountingBar)
    folder = make(tmp_path / "a", [1])
    (folder / "replays").mkdir()
    record(snake, RandomAgent(1), seed=1).save(folder / "replays" / "step-1.replay")
    for step in (2, 3):
        (folder / "replays" / f"step-{step}.replay").write_text("damaged")
    pages, problems = replay_pages(runs_of(folder))
    assert (len(pages), len(problems)) == (1, 2)
    assert CountingBar.found == [(3, 3)]


def test_replays_of_a_report_share_its_limits(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1, 2, 3])
    (folder / "replays").mkdir()
    for step in (100, 200):
        replay = record(snake, RandomAgent(step))
        replay.save(folder / "replays" / f"step-{step}.replay")
    pages, problems = replay_pages(runs_of(folder), (), PlayLimits(timeout_s=1e-9))
    assert not pages
    assert problems == [
        "2 of 2 replays are not shown: drawing them takes longer than 1e-09 s: raise the limit, "
        "--timeout"
    ]
    pages, problems = replay_pages(runs_of(folder), (), PlayLimits(max_shown=1))
    assert not pages
    assert len(problems) == 2
    assert all("shows more than 1 entities" in problem for problem in problems)


def test_a_replay_of_a_game_that_is_elsewhere_is_drawn_from_what_was_seen(tmp_path: Path) -> None:
    replay = Replay.load(DATA / "replays" / "snake.replay")
    game = replay.find_game()
    (tmp_path / "away").mkdir()
    folder = make(tmp_path / "a", [1, 2, 3])
    (folder / "replays").mkdir()
    path = folder / "replays" / "step-1.replay"
    seen = record(game, RandomAgent(1))
    Replay(dataclasses.replace(seen.header, game="gone", source="away.py:gone"), seen.lines).save(
        path
    )
    pages, problems = replay_pages(runs_of(folder))
    assert (list(pages), problems) == ([path], [])


# ------------------------------------------------------------------ notes


def test_self_play_is_explained_and_evaluated_in_its_own_chart(tmp_path: Path) -> None:
    evaluated(tmp_path / "a", 1, game="tic_tac_toe", about={"num_agents": 2})
    text = report_html(runs_of(tmp_path))
    assert "play against each other" in text
    first, second, *_ = plots(text)
    assert not [each for each in first.iter(f"{SPACE}path") if each.get("stroke-linecap")]
    assert str(second.get("aria-label")).startswith("Mean reward in evaluations: a 1.000 in the")


def test_hints_of_a_run_are_shown_with_the_command_to_try(tmp_path: Path) -> None:
    hints = [
        Hint("value_loss", f"the value loss is 58 {EVIL}", {"norm_returns": True}),
        Hint("few_episodes", "each copy plays 3 episodes", {"num_envs": 32}),
    ]
    about: dict[str, object] = {"options": {}, **hint_facts(hints)}
    folder = make(tmp_path / "tower", [1, 2], game="tower.py", about=about)
    make(tmp_path / "snake", [1, 2])
    runs = runs_of(tmp_path)
    text = report_html(runs)
    page = Parsed(text[text.index('<h2 id="hints">') :])
    assert page.tags.count("li") == 2
    assert not {"script", "b"} & set(page.tags)
    told = " ".join(page.texts)
    assert "each copy plays 3 episodes; try --num-envs 32" in told
    command = (
        "entity-env train tower.py --config {}/run.json --set-train norm_returns=true "
        "--num-envs 32 --out {}-2"
    )
    assert command.format("tower", "tower") in told
    found: Any = json.loads(json.dumps(runs_json(runs)))
    [tower, snake] = sorted(found["runs"], key=lambda run: -len(run["hints"]))
    assert [hint["name"] for hint in tower["hints"]] == ["value_loss", "few_episodes"]
    assert tower["hints"][1]["settings"] == {"num_envs": 32}
    assert tower["to_try"] == command.format(folder, folder)
    assert (snake["hints"], snake["to_try"]) == ([], "")
    assert "Hints" not in report_html([run for run in runs if run.path != folder])


def test_agreement_with_a_teacher_is_a_chart_with_the_score(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1, 2, 4])
    lines = [json.loads(line) for line in (folder / CURVES_FILE).read_text().splitlines()]
    told = [{**line, AGREEMENT: 0.5} for line in lines]
    (folder / CURVES_FILE).write_text("".join(json.dumps(line) + "\n" for line in told))
    text = report_html(runs_of(folder))
    assert "<strong>Agreement with the teacher, and the score as a share" in text
    [_, plot, *_] = plots(text)
    lines_drawn = [str(each.get("points")).split() for each in plot.iter(f"{SPACE}polyline")]
    ends = [[float(line[i].split(",")[1]) for i in (0, -1)] for line in lines_drawn]
    assert sorted(ends) == [[500, 500], [1000, 0]]  # agreement 0.5, score from 0 to 1


numbers = st.floats(-1e100, 1e100)


_TEXTS: st.SearchStrategy[object] = st.text("ab/.:=<&\x1b")


def _nested(each: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(each, max_size=3) | st.dictionaries(_TEXTS, each, max_size=3)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.dictionaries(st.integers(0, 2**63 - 1), numbers)),
        min_size=1,
        max_size=5,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_runs_can_be_reported(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[int, dict[int, float]]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    for i, (seed, points) in enumerate(found):
        run = make(folder / str(i), [], seed=seed)
        with (run / CURVES_FILE).open("a") as file:
            for step in sorted(points):
                values = {REWARD: points[step], EVALUATED: points[step], "episode/std_reward": 1.0}
                file.write(json.dumps({"step": step, "episode/window": 9, **values}) + "\n")
    runs = runs_of(folder)
    ElementTree.fromstring(report_svg(runs))
    assert plots(report_html(runs))
    num_rows = report_csv(runs).count("\n")
    assert num_rows == 1 + sum(len(points) for _, points in found)


@given(st.recursive(st.none() | st.booleans() | st.floats() | _TEXTS, _nested, max_leaves=20))
def test_any_run_json_can_be_reported(about: object) -> None:
    keys = (
        *("command", "settings", "config", "default_config", "identity", "machine", "versions"),
        *("opponents", "options", "resumed", "began", "ended", "init_from", "num_envs", "seed"),
    )
    run = TrainingRun(Path("a"), dict.fromkeys(keys, about))
    assert "<h1>1 training run</h1>" in report_body([run])
