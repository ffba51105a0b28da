"""Reports of runs: a line with a band per setting, tables of differences, self-contained files."""

import csv
import dataclasses
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from entity_env.agents import RandomAgent
from entity_env.agents.ppo import PPOConfig, RandomPlay
from entity_env.agents.ppo.hints import Hint, hint_facts
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.training.tracking.run_writer import write_run
from entity_env.agents.training.tracking.runs import (
    AGREEMENT,
    CURVES_FILE,
    EVALUATED,
    REWARD,
    TrainingRun,
)
from entity_env.cli.report import (
    _lines,
    replay_pages,
    report_csv,
    report_html,
    report_svg,
    require_curves,
)
from entity_env.cli.run_tables import find_runs, run_table, runs_csv, runs_json, seed_table
from entity_env.errors import UsageError
from entity_env.games import snake
from entity_env.replay import PlayLimits, Replay, record
from tests import ROOT

SPACE = "{http://www.w3.org/2000/svg}"
EVIL = "</script><b>&\"'\x1b[2J"


def make(
    folder: Path,
    rewards: Sequence[float],
    game: str = "snake",
    about: dict[str, object] | None = None,
    **changes: Any,  # noqa: ANN401
) -> Path:
    folder.mkdir(parents=True)
    config = dataclasses.replace(PPOConfig(), **changes)
    write_run(folder, config, 0, {"game": game, "settings": {"board_size": 6}, **(about or {})})
    with (folder / CURVES_FILE).open("w") as file:
        for i, reward in enumerate(rewards, 1):
            point = {"step": 100 * i, "elapsed_s": i, REWARD: reward, "losses/entropy": 1 / i}
            more = {"episode/std_reward": 1.0, "episode/window": 101.0}
            file.write(json.dumps({**point, **more}) + "\n")
    return folder


def runs_of(*folders: Path) -> Sequence[TrainingRun]:
    found = find_runs(folders)
    assert found.problems == []
    return found.runs


@pytest.fixture
def seeds(tmp_path: Path) -> Sequence[TrainingRun]:
    """Two seeds with one setting, and one with another."""
    make(tmp_path / "a", [0, 2, 4], seed=1)
    make(tmp_path / "b", [0, 4, 8, 9], seed=2)
    make(tmp_path / "c", [1, 1, 1, 5], seed=1, gamma=0.5)
    return runs_of(tmp_path)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


# ------------------------------------------------------------------ finding and comparing


def test_the_best_is_first_and_what_differs_is_told(seeds: Sequence[TrainingRun]) -> None:
    table = run_table(seeds)
    assert table.settings == ["gamma"]
    assert [Path(row[0][0]).name for row in table.rows] == ["b", "c", "a"]
    assert table.rows[0][0][1] == "snake"
    assert table.rows[0][1:] == (
        ["0.99"],
        ["400", "0:00:04", "-", "9.000 ± 0.198", "-", "2"],
    )


def test_settings_that_a_run_lacks_differ_within_a_game_alone(tmp_path: Path) -> None:
    make(tmp_path / "a", [1], net=MLPConfig())
    make(tmp_path / "b", [2])
    make(tmp_path / "c", [3], game="azul", about={"settings": {"num_players": 3}}, gamma=0.5)
    table = run_table(runs_of(tmp_path))
    assert {"net.d_model", "net.hidden"} <= set(table.settings)
    assert not {"num_players", "board_size", "gamma"} & set(table.settings)


def test_a_folder_that_is_none_is_one_sentence_and_the_others_are_read(tmp_path: Path) -> None:
    make(tmp_path / "a", [1])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    make(tmp_path / "many" / "x", [2])
    make(tmp_path / "many" / "y", [3])
    (tmp_path / "many" / "tune").mkdir()
    found = find_runs([*sorted(tmp_path.iterdir()), tmp_path / "a", tmp_path / "nothing"])
    assert [run.path.name for run in found.runs] == ["y", "x", "a"]
    assert len(found.problems) == 4
    for name, problem in zip(("damaged", "empty", "file", "nothing"), found.problems, strict=True):
        assert str(tmp_path / name) in problem


def test_lines_that_are_damaged_are_counted(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1])
    with (folder / CURVES_FILE).open("a") as file:
        file.write("broken\n{}\n")
    found = find_runs([folder])
    assert found.problems == [f"{folder}: 2 lines of its curves are damaged, and left out"]
    assert len(found.runs) == 1


def evaluated(folder: Path, reward: float, **changes: Any) -> Path:  # noqa: ANN401
    """A run with an evaluation, and uninformative training rewards."""
    make(folder, [50, 50 - reward], **changes)
    point = {"step": 200, EVALUATED: reward, "evaluation/std_reward": 1.0}
    with (folder / CURVES_FILE).open("a") as file:
        file.write(json.dumps({**point, "evaluation/num_episodes": 20}) + "\n")
    return folder


def test_runs_are_ranked_by_their_evaluation(tmp_path: Path) -> None:
    make(tmp_path / "none", [99])
    for i, reward in enumerate((3, 9, 6)):
        evaluated(tmp_path / str(reward), reward, seed=i)
    table = run_table(runs_of(tmp_path))
    assert [Path(row[0][0]).name for row in table.rows] == ["9", "6", "3", "none"]
    assert table.columns == ["steps", "time", "evaluation", "training", "random", "seed"]
    assert table.rows[0][2] == ["200", "0:00:02", "9.000 ± 0.480", "41.000", "-", "1"]
    assert table.rows[3][2] == ["100", "0:00:01", "-", "99.000 ± 0.198", "-", "1"]
    assert table.notes == []


def random_play(reward: float, *, is_like_training: bool = True) -> dict[str, object]:
    found = RandomPlay(reward, 0.5, 7.0, 100, is_like_training)
    return {"random_play": found.to_json()}


def test_random_play_has_a_column_and_figures(tmp_path: Path) -> None:
    make(tmp_path / "a", [1], about=random_play(0.25))
    runs = runs_of(tmp_path)
    assert run_table(runs).rows[0][2][4] == "0.250"
    [found] = cast(list[dict[str, Any]], runs_json(runs)["runs"])
    assert (found["random"]["mean"], found["random"]["num_episodes"]) == (0.25, 100)
    assert found["random"]["ci95"] == pytest.approx(0.0997, abs=1e-3)
    assert re.search(
        r",random,random_ci95,random_episodes,.*\n.*,0\.25,0\.09\d+,100,", runs_csv(runs)
    )


def test_random_play_is_a_dashed_line_where_it_compares(tmp_path: Path) -> None:
    make(tmp_path / "a", [1, 3], about=random_play(2.0))
    evaluated(tmp_path / "b", 5, about=random_play(1.0, is_like_training=False), gamma=0.5)
    trained, of_evaluation = (_lines(runs_of(tmp_path), name) for name in (REWARD, EVALUATED))
    [line] = [each for each in trained if each.is_dashed]
    assert (line.name, line.x.tolist(), line.y.tolist()) == ("random", [100, 200], [2, 2])
    [line] = [each for each in of_evaluation if each.is_dashed]
    assert line.y.tolist() == [1.5, 1.5]
    assert "stroke-dasharray" in report_svg(runs_of(tmp_path))
    about = {**random_play(8.0), "settings": {"board_size": 9}}
    make(tmp_path / "c", [1, 3], about=about)
    names = [each.name for each in _lines(runs_of(tmp_path), REWARD) if each.is_dashed]
    assert sorted(names) == ["random (board_size=6)", "random (board_size=9)"]
    assert not any(each.is_dashed for each in _lines(runs_of(tmp_path), "losses/entropy"))


def test_a_mean_of_short_episodes_is_marked(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1])
    with (folder / CURVES_FILE).open("a") as file:
        file.write(json.dumps({"step": 100, "episode/unfinished": 0.9}) + "\n")
    table = run_table(runs_of(tmp_path))
    assert table.rows[0][2][3] == "1.000 *"
    assert len(table.notes) == 1


def test_settings_are_compared_over_seeds(tmp_path: Path) -> None:
    for seed, reward in enumerate((8, 9, 10, 9, 9), 1):
        evaluated(tmp_path / "sweep" / "slow" / f"seed-{seed}", reward, seed=seed)
    for seed, reward in enumerate((10, 12), 1):
        evaluated(tmp_path / "fast" / f"seed-{seed}", reward, seed=seed, learning_rate=0.01)
    evaluated(
        tmp_path / "fast" / "seed-1-again", 99, seed=1, learning_rate=0.01, device="cuda"
    )  # the same seed
    evaluated(tmp_path / "azul", 5, game="azul")
    make(tmp_path / "more", [1], seed=3, gamma=0.5)
    runs = runs_of(tmp_path)
    assert len(runs) == 10
    table = seed_table(runs)
    assert table is not None
    assert [name for name in table.settings if name != "device"] == ["learning_rate", "gamma"]
    [fast, slow, other] = [row[2] for row in table.rows if row[0] == ("snake",)]
    assert fast[:4] == ["2", "200", "11.000 ± 12.706", "11.000 [10.000, 12.000]"]
    assert fast[4] == "-"
    assert slow[:3] == ["5", "200", "9.000 ± 0.878"]
    assert slow[3].startswith("9.000 [8.333, 9.667")
    assert slow[4] == "0.95 [0.80, 1.00]"  # 1 of 10 pairs is a tie
    assert other == ["1", "100", "1.000", "1.000", "-"]
    found: Any = runs_json(runs)
    groups = [each for each in found["groups"] if each["game"] == "snake"]
    assert [each["seeds"] for each in groups] == [[1, 2], [1, 2, 3, 4, 5], [3]]
    assert [each["scores_of"] for each in groups] == ["evaluation", "evaluation", "training"]
    assert groups[1]["scores"] == (8, 9, 10, 9, 9)
    assert groups[1]["first_is_better"]["value"] == pytest.approx(0.95)
    assert groups[2]["mean"] == {"value": 1, "low": None, "high": None}
    assert json.loads(json.dumps(found, allow_nan=False))["runs"][0]["evaluation"] == {
        **{"mean": 99, "num_episodes": 20, "step": 200, "is_biased": False},
        "ci95": pytest.approx(0.48017, abs=1e-4),
    }
    rows = list(csv.DictReader(io.StringIO(runs_csv(runs))))
    assert [float(row["evaluation"]) for row in rows[:3]] == [99, 12, 10]
    assert rows[-1]["evaluation"] == rows[-1]["evaluation_ci95"] == ""
    assert {"learning_rate", "seed", "training_is_biased"} <= rows[0].keys()
    page = report_html(runs)
    assert "11.000 ± 12.706" in page
    assert page.index("Over seeds") < page.index("<h2>Runs</h2>")


def test_one_run_of_each_setting_has_no_table_over_seeds(tmp_path: Path) -> None:
    make(tmp_path / "a", [1])
    make(tmp_path / "b", [1], gamma=0.5)
    assert seed_table(runs_of(tmp_path)) is None


@pytest.mark.parametrize(
    "about",
    [
        {"opponents": {"random": 1.0}},
        {"init_from": "runs/other"},
        {"options": {"eval_opponent": "bot.py:Bot"}},
    ],
)
def test_runs_with_other_opponents_or_begins_are_no_group(
    tmp_path: Path, about: dict[str, object]
) -> None:
    make(tmp_path / "a", [1], seed=1)
    make(tmp_path / "b", [1], seed=2, about=about)
    assert seed_table(runs_of(tmp_path)) is None


# ------------------------------------------------------------------ curves


def test_seeds_are_a_band_as_far_as_both_have_come(seeds: Sequence[TrainingRun]) -> None:
    svg = drawn(report_svg(seeds))
    assert len(list(svg.iter(f"{SPACE}polyline"))) == 2
    [band] = svg.iter(f"{SPACE}polygon")
    assert len(str(band.get("points")).split()) == 6
    texts = {each.text for each in svg.iter(f"{SPACE}text")}
    assert "gamma=0.99 (mean and range of 2 seeds)" in texts
    assert f"gamma=0.5 ({seeds[1].path})" in texts


def test_a_useless_value_does_not_hide_the_rest(tmp_path: Path) -> None:
    """If all returns are equal, the explained variance may be arbitrarily negative."""
    name = "losses/explained_variance"
    folder = make(tmp_path / "a", [])
    with (folder / CURVES_FILE).open("a") as file:
        for step, value in ((1, 0.5), (2, -1e14)):
            file.write(json.dumps({"step": step, name: value}) + "\n")
    runs = runs_of(folder)
    assert max(map(len, re.findall(r'text-anchor="end">([^<]*)<', report_svg(runs, [name])))) < 5
    assert "-100000000000000.0" in report_csv(runs, [name])


def test_games_have_charts_of_their_own(tmp_path: Path) -> None:
    make(tmp_path / "a", [1, 2])
    make(tmp_path / "b", [1, 2], game="azul")
    svg = drawn(report_svg(runs_of(tmp_path), (REWARD, "losses/entropy")))
    titles = [each.text for each in svg.iter(f"{SPACE}text") if each.get("font-weight")]
    assert sorted(map(str, titles)) == [
        *("azul: losses/entropy", "azul: mean episode reward"),
        *("snake: losses/entropy", "snake: mean episode reward"),
    ]
    charts = [each for each in svg.iter(f"{SPACE}svg") if each is not svg]
    assert float(str(svg.get("height"))) == sum(float(str(each.get("height"))) for each in charts)


def test_a_curve_that_no_run_has_is_told(seeds: Sequence[TrainingRun]) -> None:
    with pytest.raises(UsageError, match=r"'losses/entrop'; did you mean losses/entropy\?"):
        require_curves(seeds, ["losses/entrop"])
    require_curves(seeds, [REWARD])


def test_csv_has_every_point(seeds: Sequence[TrainingRun]) -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv(seeds))))
    assert len(rows) == 3 + 4 + 4
    for run in seeds:
        own = [row for row in rows if row["run"] == str(run.path)]
        curve = run.curves[REWARD]
        assert [int(row["step"]) for row in own] == curve.steps.tolist()
        assert [float(row[REWARD]) for row in own] == curve.values.tolist()
        assert {row["gamma"] for row in own} == {str(run.settings()["gamma"])}
        assert {row["seed"] for row in own} == {str(run.seed)}
        assert [float(row["elapsed_s"]) for row in own] == run.clock.values.tolist()


# ------------------------------------------------------------------ page


class _Page(HTMLParser):
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
        self.texts.append(data)


def test_a_page_needs_no_other_file(seeds: Sequence[TrainingRun]) -> None:
    text = report_html(seeds)
    page = _Page(text)
    assert page.addresses == []
    assert set(re.findall(r"https?://[^\"']*", text)) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in text
    assert "script" not in page.tags
    assert any("in a band from the lowest to the highest" in each for each in page.texts)
    assert page.tags.count("tr") == 3 + 4  # table over seeds, and table of all runs
    assert page.texts.count("Over seeds") == 1
    assert {"losses/entropy", "mean episode reward", "9.000 ± 0.198"} <= set(page.texts)


def test_names_are_escaped(tmp_path: Path) -> None:
    about: dict[str, object] = {"settings": {EVIL: EVIL}}
    folder = make(tmp_path / "<b>&", [1, 2], game=EVIL, about=about)
    make(tmp_path / "x", [1, 2], game=EVIL, about={"settings": {EVIL: 3}})
    with (folder / CURVES_FILE).open("a") as file:
        file.write(json.dumps({"step": 500, f"metrics/{EVIL}.mean": 1}) + "\n")
    runs = runs_of(tmp_path)
    text = report_html(runs)
    assert not {"script", "b"} & set(_Page(text).tags)
    assert "\x1b" not in text
    drawn(report_svg(runs, (f"metrics/{EVIL}.mean",)))
    for chart in re.findall(r"<svg.*?</svg>", text, re.S):
        drawn(chart)
    assert "\x1b" not in report_csv(runs)


def test_replays_along_a_run_are_shown_and_others_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1, 2, 3])
    (folder / "replays").mkdir()
    good = folder / "replays" / "step-000000200.replay"
    good.write_bytes((ROOT / "tests" / "data" / "replays" / "snake.replay").read_bytes())
    damaged = folder / "replays" / "step-000000300.replay"
    damaged.write_text("{")
    runs = runs_of(folder)
    pages, problems = replay_pages(runs)
    assert list(pages) == [good]
    assert len(problems) == 1
    assert problems[0].startswith(f"{damaged} cannot be shown: ")
    text = report_html(runs, (), pages)
    page = _Page(text)
    [name] = set(page.addresses)
    assert page.addresses == [name, name]  # on the curve and in the text
    assert f'class="replay" id="{name[1:]}"' in text
    assert (page.tags.count("iframe"), page.tags.count("script")) == (1, 0)
    svg = drawn(re.findall(r"<svg.*?</svg>", text, re.S)[0])
    [point] = svg.iterfind(f".//{SPACE}a/{SPACE}circle")
    [line] = svg.iter(f"{SPACE}polyline")
    at = f"{point.get('cx')},{point.get('cy')}"
    assert str(line.get("points")).split()[1] == at
    assert report_html(runs).count("iframe") == 0


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
    replay = Replay.load(ROOT / "tests" / "data" / "replays" / "snake.replay")
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


def test_self_play_is_explained(tmp_path: Path) -> None:
    make(tmp_path / "a", [0, 0, 0], game="tic_tac_toe", about={"num_agents": 2})
    text = report_html(runs_of(tmp_path))
    assert "play against each other" in text
    svg = drawn(re.findall(r"<svg.*?</svg>", text, re.S)[0])
    [line] = svg.iter(f"{SPACE}polyline")
    heights = {point.split(",")[1] for point in str(line.get("points")).split()}
    assert len(heights) == 1


def test_hints_of_a_run_are_shown_with_the_command_to_try(tmp_path: Path) -> None:
    hints = [
        Hint("value_loss", f"the value loss is 58 {EVIL}", {"norm_returns": True}),
        Hint("few_episodes", "each copy plays 3 episodes", {"num_envs": 32}),
    ]
    about: dict[str, object] = {"options": {}, **hint_facts(hints)}
    folder = make(tmp_path / "tower", [1, 2], game="tower.py", about=about)
    make(tmp_path / "snake", [1, 2])
    runs = runs_of(tmp_path)
    page = _Page(report_html(runs))
    assert page.tags.count("li") == 2
    assert not {"script", "b"} & set(page.tags)
    told = " ".join(page.texts)
    assert "each copy plays 3 episodes; try --num-envs 32" in told
    command = (
        f"entity-env train tower.py --config {folder / 'run.json'} --set-train norm_returns=true "
        f"--num-envs 32 --out {tmp_path / 'tower-2'}"
    )
    assert command in told
    found: Any = json.loads(json.dumps(runs_json(runs)))
    [tower, snake] = sorted(found["runs"], key=lambda run: -len(run["hints"]))
    assert [hint["name"] for hint in tower["hints"]] == ["value_loss", "few_episodes"]
    assert tower["hints"][1]["settings"] == {"num_envs": 32}
    assert tower["to_try"] == command
    assert (snake["hints"], snake["to_try"]) == ([], "")
    assert "Hints" not in report_html([run for run in runs if run.path != folder])


def test_a_teacher_and_the_score_are_one_chart(tmp_path: Path) -> None:
    make(tmp_path / "a", [0, 3, 1])
    assert "agreement" not in report_html(runs_of(tmp_path / "a"))
    out = make(tmp_path / "b", [2, 4, 3], stay_close=0.2)
    lines = [json.loads(line) for line in (out / CURVES_FILE).read_text().splitlines()]
    told = [{**line, AGREEMENT: 0.5} for line in lines]
    (out / CURVES_FILE).write_text("".join(json.dumps(line) + "\n" for line in told))
    charts = re.findall(r"<svg.*?</svg>", report_html(runs_of(tmp_path)), re.S)
    [chart] = [each for each in charts if "agreement with the teacher" in each]
    assert "agreement, " in chart
    assert f"{REWARD} from 2 (0) to 4 (1), " in chart
    assert len([*drawn(chart).iter(f"{SPACE}polyline")]) == 2


numbers = st.floats(-1e100, 1e100)


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
                file.write(json.dumps({"step": step, REWARD: points[step]}) + "\n")
    runs = runs_of(folder)
    drawn(report_svg(runs))
    assert "</html>" in report_html(runs)
    num_rows = report_csv(runs).count("\n")
    assert num_rows == 1 + sum(len(points) for _, points in found)
    assert len(run_table(runs).rows) == len(found)
