"""Tables of runs: the best is first, settings that differ, groups over seeds, JSON and CSV."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.training.tracking.runs import CURVES_FILE, TrainingRun
from entity_env.cli.run_tables import find_runs, run_table, runs_csv, runs_json, seed_table
from tests.cli.report.made_runs import evaluated, make, make_seeds, random_play, runs_of


@pytest.fixture
def seeds(tmp_path: Path) -> Sequence[TrainingRun]:
    return make_seeds(tmp_path)


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


def test_settings_of_ppo_do_not_differ_from_a_clone_without_them(tmp_path: Path) -> None:
    make(tmp_path / "a", [1], gamma=0.9)
    make(tmp_path / "b", [2], gamma=0.99)
    about = json.loads((make(tmp_path / "clone", [3]) / "run.json").read_text())
    about["config"] = {"batch_size": 64}
    (tmp_path / "clone" / "run.json").write_text(json.dumps(about))
    assert run_table(runs_of(tmp_path)).settings == ["gamma"]


def test_a_run_of_a_script_has_the_name_of_its_game(tmp_path: Path) -> None:
    about = json.loads((folder := make(tmp_path / "a", [1]) / "run.json").read_text())
    about["game_name"] = about.pop("game")
    folder.write_text(json.dumps(about))
    [(labels, _, _)] = run_table(runs_of(tmp_path)).rows
    assert labels[1] == about["game_name"]


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
        **{"mean": 99, "std": 1, "num_episodes": 20, "step": 200, "is_biased": False},
        "ci95": pytest.approx(0.48017, abs=1e-4),
    }
    rows = list(csv.DictReader(io.StringIO(runs_csv(runs))))
    assert [float(row["evaluation"]) for row in rows[:3]] == [99, 12, 10]
    assert rows[-1]["evaluation"] == rows[-1]["evaluation_ci95"] == ""
    assert {"learning_rate", "seed", "training_is_biased"} <= rows[0].keys()


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
