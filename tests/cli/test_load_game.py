"""Games by name or file: what is found, and what is said of what is not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entity_env import UsageError
from entity_env.cli.load_game import GameFailed, load_game
from entity_env.games import GAMES

HEAD = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0
    RIGHT = 1

def play(agent, *, seed: int, rounds: int = 3) -> None:
    agent.game_over(Obs(rounds))
"""
ONE = HEAD + "walk = Game(play, entities=(), actions=(Move,))\n"
TWO = ONE + "run = Game(play, entities=(), actions=(Move,), name='run')\n"


@pytest.fixture(autouse=True)
def modules_and_path() -> Iterator[None]:
    """Forgets the modules and folders of the games that a test loads."""
    path, modules = sys.path.copy(), sys.modules.copy()
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", list(GAMES))
def test_finds_a_game_by_name(name: str) -> None:
    assert load_game(name) is not None
    assert load_game(name).name == name


def test_settings_are_applied() -> None:
    assert load_game("snake", ["board_size=6"]).settings == {"board_size": 6}


def test_finds_the_only_game_of_a_file(folder: Path) -> None:
    (folder / "walking.py").write_text(ONE)
    assert load_game("walking.py").name == "walking"
    assert load_game(str(folder / "walking.py"), ["rounds=5"]).settings == {"rounds": 5}


def test_finds_a_game_of_a_file_by_name(folder: Path) -> None:
    (folder / "walking.py").write_text(TWO)
    assert load_game("walking.py:run").name == "run"


def test_two_names_of_one_game_are_one_game(folder: Path) -> None:
    (folder / "walking.py").write_text(ONE + "same = walk\n")
    assert load_game("walking.py").name == "walking"


def test_games_that_a_file_only_imports_do_not_count(folder: Path) -> None:
    (folder / "walking.py").write_text("from entity_env.games import snake\n" + ONE)
    assert load_game("walking.py").name == "walking"
    (folder / "passing_on.py").write_text("from entity_env.games import snake\n")
    assert load_game("passing_on.py").name == "snake"


def test_a_file_may_import_what_lies_beside_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "beside_it.py").write_text("NUMBER = 3\n")
    (folder / "sub" / "walking.py").write_text("from beside_it import NUMBER\n" + ONE)
    assert load_game("sub/walking.py").name == "walking"


def test_a_file_is_read_anew(folder: Path) -> None:
    (folder / "walking.py").write_text(ONE)
    load_game("walking.py")
    (folder / "other").mkdir()
    (folder / "other" / "walking.py").write_text(TWO)
    assert load_game("other/walking.py:run").name == "run"


def test_a_file_hides_no_module(folder: Path) -> None:
    (folder / "json.py").write_text(ONE)
    loaded = sys.modules["json"]
    assert load_game("json.py").name == "json_game"
    assert sys.modules["json"] is loaded


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("snaek", "no game 'snaek'; did you mean snake?"),
        ("chess", "no game 'chess'; there are snake, multi_snake"),
        ("walking", "no game 'walking'; did you mean the file walking.py?"),
        ("walkign.py", "no file walkign.py; did you mean walking.py?"),
        ("nowhere/walking.py", "no file nowhere/walking.py"),
        ("walking.py:rum", "walking.py holds no game 'rum'; did you mean run?"),
        ("walking.py:chess", "walking.py holds no game 'chess'; it has walk, run"),
        ("walking.py", "holds 2 games, choose one: walking.py:walk, walking.py:run"),
        ("nothing.py", "nothing.py holds no game: make one"),
        ("typo.py", "typo.py, line 2: "),
        ("wrong.py", "wrong.py, line 6: entity Bag: field 'things' of type list[int]"),
        ("leaving.py", "leaving.py ends the program when it is loaded: sys.exit(3)"),
    ],
)
def test_says_what_there_is_instead(folder: Path, name: str, message: str) -> None:
    (folder / "walking.py").write_text(TWO)
    (folder / "nothing.py").write_text("x = 1\n")
    (folder / "typo.py").write_text("x = 1\ndef play(:\n")
    (folder / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "wrong.py").write_text(
        "from dataclasses import dataclass\nfrom entity_env import Game\n"
        "@dataclass\nclass Bag:\n    things: list[int]\n"
        "game = Game(lambda agent, *, seed: None, entities=(Bag,), actions=())\n"
    )
    with pytest.raises(UsageError) as error:
        load_game(name)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("board_size", "--set needs name=value, got 'board_size'"),
        ("=3", "--set needs name=value, got '=3'"),
        ("boardsize=3", "snake has no setting 'boardsize'; it has board_size"),
        ("board_size=x", "snake: setting 'board_size' needs int, got 'x'"),
    ],
)
def test_says_what_is_wrong_with_a_setting(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load_game("snake", [setting])
    assert str(error.value) == message


def test_a_bug_in_a_file_is_shown_from_its_own_frames_on(folder: Path) -> None:
    (folder / "broken.py").write_text("def half(x):\n    return x / 0\n\nhalf(1)\n")
    with pytest.raises(GameFailed) as error:
        load_game("broken.py")
    trace = error.value.trace
    assert "half(1)" in trace
    assert "ZeroDivisionError" in trace
    assert "find.py" not in trace
    assert "importlib" not in trace
