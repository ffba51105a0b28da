"""Names in files for others: no absolute path, and different runs keep different names."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.training.tracking.runs import TrainingRun
from entity_env.cli.report.shared_names import shared_command, shared_runs, without_folders


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("/home/me/games/robots.py", "robots.py"),
        ("/home/me/games/robots.py:game", "robots.py:game"),
        ("--out=/home/me/runs/a", "--out=a"),
        ("/home/me/x.agent:0.5", "x.agent:0.5"),
        ("~/x.agent", "x.agent"),
        ("~me/x.agent", "x.agent"),
        ("/home/me/runs/", "runs"),
        ("C:\\Users\\me\\robots.py", "robots.py"),
        ("\\\\server\\me\\robots.py", "robots.py"),
        ("file:///home/me/db", "file:db"),
        ("rom=/home/me/a.ch8,size=3", "rom=a.ch8,size=3"),
        ("net.path=/home/my files/a", "net.path=a"),
        ("runs/a", "runs/a"),
        ("robots.py:game", "robots.py:game"),
        ("x=6,y=6", "x=6,y=6"),
        ("ray://head:10001", "ray://head:10001"),
        ("--ray=ray://head:10001", "--ray=ray://head:10001"),
        ("", ""),
    ],
)
def test_absolute_paths_are_reduced_to_their_last_part(word: str, wanted: str) -> None:
    assert without_folders(word) == wanted


@given(st.lists(st.text("ab .-:", min_size=1), min_size=2, max_size=5))
def test_no_folder_of_a_path_remains(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    assert without_folders(path) == parts[-1]
    assert without_folders(f"--option={path}") == f"--option={parts[-1]}"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["/home/me/bin/entity-env", "train", "snake"], "entity-env train snake"),
        (["C:\\me\\Scripts\\entity-env.exe", "train"], "entity-env train"),
        (["/site/entity_env/__main__.py", "train", "a b"], "entity-env train 'a b'"),
        (["/home/me/study.py", "/home/me/out"], "python study.py out"),
        ([], ""),
        (None, ""),
        ("train", ""),
        (["entity-env", 3, {"a": 1}, "x"], "entity-env x"),
    ],
)
def test_commands_are_words_that_others_can_type(command: object, wanted: str) -> None:
    assert shared_command(command) == wanted
    assert shlex.split(wanted) == shlex.split(shared_command(command))


def named(*paths: str, game: str = "snake") -> list[str]:
    runs = [TrainingRun(Path(path), {"game": game}) for path in paths]
    return [str(run.path) for run in shared_runs(runs)]


def test_runs_are_named_within_the_folder_that_they_share() -> None:
    assert named("/home/me/runs/snake") == ["snake"]
    assert named("/home/me/runs/a/seed-1", "/home/me/runs/b/seed-1") == ["a/seed-1", "b/seed-1"]
    assert named("runs/a", "/home/me/b") == ["runs/a", "b"]
    assert named("b", "/home/me/b", "../b", "/b/b") == ["b", "home/me/b", "../b", "b/b"]
    assert named("b", "/home/me/b") == ["b", "b (2)"]
    assert named(".") == [Path.cwd().name]


def test_games_are_named_without_folders_and_stay_different() -> None:
    games = ["/home/me/old/robots.py", "/home/me/new/robots.py", "snake", ""]
    runs = [TrainingRun(Path(str(i)), {"game": game}) for i, game in enumerate(games)]
    assert [run.game for run in shared_runs([*runs, runs[0]])] == [
        *("robots.py", "robots.py (2)", "snake", "", "robots.py")
    ]
    assert shared_runs([]) == []
