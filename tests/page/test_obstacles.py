"""`find_obstacles`: what a page lacks is named with its line, and the files of a game are found."""

import shutil
import textwrap
from functools import partial
from pathlib import Path

import pytest

from entity_env import Game, UsageError, WorkerError
from entity_env.agents import against
from entity_env.cli.app import main
from entity_env.cli.load_game import load_game
from entity_env.games import GAMES, snake, tic_tac_toe
from entity_env.page.obstacles import PageContents, find_obstacles
from tests import ROOT

BEGIN = """\
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

@dataclass
class Dot:
    x: float = 0.0

class Go(Enum):
    LEFT = 0
    RIGHT = 1

"""
END = """\

def play(agent, *, seed: int) -> None:
    agent.act(Obs().entities([Dot(value())]), Go)
    agent.game_over()

dots = Game(play, entities=(Dot,), actions=(Go,))
"""
FIRST = BEGIN.count("\n") + 1
"""The first line after `BEGIN`."""


def written(folder: Path, value: str, name: str = "dots.py") -> str:
    """A file with a game whose `value()` is defined by this code; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(BEGIN + textwrap.dedent(value).lstrip() + END)
    return str(folder / name)


def lines(found: PageContents) -> list[tuple[int, str]]:
    return [(each.line, each.problem) for each in found.obstacles]


def check(file: str, **options: object) -> PageContents:
    game = load_game(file)
    return find_obstacles(game, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------ games that can run


@pytest.mark.parametrize("name", ["my_game.py", "skirmish.py"])
def test_the_examples_can_run(name: str) -> None:
    found = check(str(ROOT / "examples" / name))
    assert found.obstacles == ()
    assert found.file == name
    assert (
        set(found.files) == {"my_game.py"} if name == "my_game.py" else {name, "skirmish_look.py"}
    )
    assert "entity_env.authoring.game" in found.modules
    assert not {
        each for each in found.modules if each.startswith(("entity_env.vec", "entity_env.cli"))
    }


def test_only_the_files_of_the_game_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "game"
    file = written(
        folder,
        """
        import json
        from pathlib import Path
        import lists.helper
        HERE = Path(__file__).parent
        SIZE = json.loads((HERE / "size.json").read_text())
        (HERE / "scores.txt").write_text("7")
        (HERE / "scores.txt").read_text()
        LEVELS = sorted(each.name for each in (HERE / "levels").iterdir())
        FOUND = sorted(each.name for each in HERE.glob("*.json"))

        def value():
            return SIZE + len(LEVELS) + lists.helper.value
        """,
    )
    for name, text in {
        "lists/__init__.py": "",
        "lists/helper.py": "value = 1",
        "size.json": "2",
        "private.json": "3",
        "levels/a.txt": "a",
        "levels/b.txt": "b",
        "levels/more/c.txt": "c",
        "dots_look.py": "from entity_env import views\nlook = views.Look()",
        "unused.py": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = check(file)
    assert lines(found) == []
    assert found.files == (
        *("dots.py", "dots_look.py", "levels/a.txt", "levels/b.txt"),
        *("lists/__init__.py", "lists/helper.py", "size.json"),
    )
    assert (found.file, found.module, found.name) == ("dots.py", "dots", "dots")
    for name in found.files:  # nothing else is needed
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, tmp_path / "copy" / name)
    assert check(str(tmp_path / "copy" / "dots.py")).obstacles == ()


def test_a_package_is_needed_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "walkers"
    written(folder, "from walkers.parts.arm import value\n", "game.py")
    for name in ("__init__.py", "parts/__init__.py", "parts/arm.py", "other.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("def value():\n    return 1.0" if "arm" in name else "")
    (tmp_path / "beside.py").write_text("")
    found = check(str(folder / "game.py"))
    assert lines(found) == []
    assert found.folder == tmp_path.resolve()
    assert (found.file, found.module) == ("walkers/game.py", "walkers.game")
    assert found.files == (
        *("walkers/__init__.py", "walkers/game.py", "walkers/other.py"),
        *("walkers/parts/__init__.py", "walkers/parts/arm.py"),
    )


def test_what_a_game_can_do_without_is_not_an_obstacle(tmp_path: Path) -> None:
    found = check(
        written(
            tmp_path,
            """
            import multiprocessing, os, socket, subprocess, sys, tarfile, tempfile, threading
            from importlib.metadata import version
            from importlib.util import find_spec
            from concurrent.futures import ThreadPoolExecutor
            try:
                import numpy as np
            except ImportError:
                np = None
            try:
                import pwd
            except ModuleNotFoundError:
                pwd = None
            if sys.platform != "emscripten":
                import resource
            try:
                open("/etc/passwd").close()
            except FileNotFoundError:
                pass

            def value():
                assert np is None and pwd is None and find_spec("numpy") is None
                assert version("numpy") and tempfile.TemporaryFile().write(b"x") == 1
                os.system("clear")
                try:
                    threading.Thread(target=print).start()
                except RuntimeError:
                    pass
                for attempt in (
                    lambda: socket.create_connection(("127.0.0.1", 9)),
                    lambda: subprocess.run(["true"]),
                    lambda: multiprocessing.Lock(),
                ):
                    try:
                        attempt()
                    except (OSError, ImportError):
                        continue
                    return np.pi
                return 1.0
            """,
        )
    )
    assert lines(found) == []


def test_all_kinds_of_actions_are_played(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(
        BEGIN
        + textwrap.dedent(
            """
            from entity_env import Categorical, SelectEntity
            EACH, PICK = Categorical(Go, "each"), SelectEntity(Dot)

            def play(agents, *, seed: int, size: int = 2, go: Go = Go.LEFT) -> None:
                for turn in range(3):
                    for agent in agents:
                        dots = [Dot(i) for i in range(size)]
                        obs = Obs(turn).actors(dots, EACH, PICK)
                        obs.mask(Go, [True, go is Go.LEFT])
                        obs.mask(PICK, [[False] + [True] * (size - 1)] * size)
                        chosen = agent.act(obs, Go, EACH, PICK)
                        assert len(chosen[1]) == len(chosen[2]) == size == 3, size
                        assert chosen[0] is Go.LEFT and go is Go.RIGHT
                for agent in agents:
                    agent.game_over(Obs(1))

            kinds = Game(play, entities=(Dot,), actions=(Go, EACH, PICK), num_agents=2)
            """
        )
    )
    game = load_game(str(tmp_path / "kinds.py"), ["size=3", "go=RIGHT"])
    assert lines(find_obstacles(game)) == []


def test_a_game_that_never_ends_is_left(tmp_path: Path) -> None:
    text = written(tmp_path, "def value():\n    return 1.0\n")
    Path(text).write_text(
        Path(text).read_text().replace("    agent.act", "    while True:\n        agent.act")
    )
    assert lines(check(text, num_decisions=20)) == []


@pytest.mark.slow
def test_what_a_page_does_can_be_tried_instead(tmp_path: Path) -> None:
    file = written(tmp_path, "def value():\n    return 1 / 0\n")
    assert lines(check(file, play=partial(str.format, "{}"))) == []  # the game itself is not played
    with pytest.raises(WorkerError, match="IndexError: Replacement index 2"):
        check(file, play=partial(str.format, "{2}"))


# ------------------------------------------------------------------ obstacles


def test_an_import_is_named_with_its_line(tmp_path: Path) -> None:
    value = """
    import math
    import numpy as np

    def value():
        return np.pi
    """
    file = written(tmp_path, value)
    found = check(file)
    [obstacle] = found.obstacles
    assert str(obstacle).startswith(
        f"dots.py:{FIRST + 1}: import numpy as np: a page has no package numpy: "
    )


@pytest.mark.slow
def test_every_obstacle_is_listed_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "outside_of_it.py").write_text("")
    (tmp_path / "levels.txt").write_text("")
    file = written(
        tmp_path / "game",
        """
        import ctypes, pathlib, socket, subprocess, sys, threading
        import numpy as np
        import pwd
        sys.path.append(__file__.rpartition("game")[0] + "elsewhere")
        import outside_of_it
        from own_helper import started
        WORDS = pathlib.Path(__file__.rpartition("game")[0], "levels.txt").read_text()
        FILES = __import__("os").listdir(__file__.rpartition("game")[0])

        def value():
            threading.Thread(target=str).start()
            subprocess.run([sys.executable, "--version"], capture_output=True)
            socket.create_server(("127.0.0.1", 0)).close()
            ctypes.CDLL("libm.so.6")
            return float(input())
        """,
    )
    (tmp_path / "game" / "own_helper.py").write_text("import rich\nstarted = 1")
    found = check(file)
    words = [
        *((1, "package numpy"), (2, "module pwd"), (4, "outside_of_it"), (0, "package rich")),
        *((6, "levels.txt"), (7, str(tmp_path)), (10, "threads"), (11, "programs")),
        *((12, "network"), (13, "libm.so.6"), (14, "no terminal")),
    ]
    assert [each.file for each in found.obstacles].count("own_helper.py") == 1
    assert [each.line for each in found.obstacles] == [
        1 if i == 3 else FIRST + line for i, (line, _) in enumerate(words)
    ]
    for obstacle, (_, text) in zip(found.obstacles, words, strict=True):
        assert text in obstacle.problem
        assert obstacle.source in (tmp_path / "game" / obstacle.file).read_text().splitlines() or (
            obstacle.source.strip() in (tmp_path / "game" / obstacle.file).read_text()
        )


@pytest.mark.slow
def test_only_what_is_needed_is_listed(tmp_path: Path) -> None:
    found = check(
        written(
            tmp_path,
            """
            import numpy as np
            import numpy.linalg
            try:
                import rich
            except ImportError:
                rich = None

            def value():
                return np.pi + len(rich.__name__)
            """,
        )
    )
    assert [(each.line, each.source) for each in found.obstacles] == [
        (FIRST, "import numpy as np"),
        (FIRST + 8, "return np.pi + len(rich.__name__)"),
    ]
    assert "'NoneType' object has no attribute '__name__', where it lacks rich" in str(
        found.obstacles[1]
    )


@pytest.mark.slow
def test_what_fails_later_is_named_where_it_fails(tmp_path: Path) -> None:
    found = check(
        written(
            tmp_path,
            """
            try:
                import numpy as np
            except ImportError:
                np = None

            def value():
                return np.pi
            """,
        )
    )
    [(line, problem)] = lines(found)
    assert line == FIRST + 6
    assert (
        "AttributeError: 'NoneType' object has no attribute 'pi', where it lacks numpy" in problem
    )


def test_a_file_relative_to_another_folder_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "game", "def value():\n    return len(open('game/a.txt').read())\n")
    (tmp_path / "game" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    [(line, problem)] = lines(check(file))
    assert line == FIRST + 1
    assert "FileNotFoundError" in problem


@pytest.mark.slow
def test_actions_that_need_numpy_are_named_where_they_are_requested(tmp_path: Path) -> None:
    file = tmp_path / "pull.py"
    file.write_text(
        BEGIN
        + textwrap.dedent(
            """
            from entity_env import Continuous
            PULL = Continuous("pull", low=[-1], high=[1])

            def play(agent, *, seed: int) -> None:
                agent.act(Obs().actors([Dot()], PULL), PULL)
                agent.game_over(Obs(1))

            pull = Game(play, entities=(Dot,), actions=(PULL,))
            """
        )
    )
    found = check(str(file))
    assert {each.source for each in found.obstacles} == {
        "agent.act(Obs().actors([Dot()], PULL), PULL)"
    }
    problem = found.obstacles[0].problem
    assert problem.startswith("this needs numpy: a page has no package numpy: use --pyodide cdn")
    assert check(str(file), available={"numpy"}).obstacles == ()


# ------------------------------------------------------------------ errors


@pytest.mark.slow
def test_a_game_that_raises_by_itself_is_an_error_of_the_game(tmp_path: Path) -> None:
    file = written(tmp_path, "def value():\n    raise ValueError('bad\\nluck')\n")
    with pytest.raises(
        WorkerError, match=rf"^dots raised ValueError: bad luck at dots.py:{FIRST + 1}"
    ):
        check(file)
    file = written(tmp_path / "b", "import sys\ndef value():\n    sys.exit(3)\n")
    with pytest.raises(WorkerError, match="exit"):
        check(file)


@pytest.mark.slow
def test_a_game_that_hangs_or_dies_is_ended(tmp_path: Path) -> None:
    hangs = written(tmp_path / "a", "def value():\n    while True: pass\n")
    with pytest.raises(WorkerError, match=r"^dots: playing took longer than 2 s$"):
        check(hangs, timeout_s=2.0)
    dies = written(tmp_path / "b", "import os\ndef value():\n    os.kill(os.getpid(), 9)\n")
    with pytest.raises(WorkerError, match=r"it died \(signal 9\)"):
        check(dies)


def test_a_game_must_be_in_a_file() -> None:
    for game in (
        against(tic_tac_toe, "random"),
        Game(snake.play, entities=(), actions=(), name="other"),
    ):
        with pytest.raises(UsageError, match="not defined at the top level of a Python file"):
            find_obstacles(game)


# ------------------------------------------------------------------ games of the package

PLAIN = {
    *("cherry_pick", "multi_snake", "rock_paper_scissors", "snake", "tic_tac_toe"),
    "treasure_hunt",
}
"""Games without numpy."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in PLAIN else pytest.mark.slow)
        for name in GAMES
        if name != "pixel"  # runs a user's file
    ],
)
def test_games_of_the_package(name: str) -> None:
    found = find_obstacles(GAMES[name], episodes=2)
    assert (found.folder, found.files, found.file) == (None, (), "")
    if not found.obstacles:
        assert found.module in found.modules
        assert "numpy" not in " ".join(found.modules)
    assert (not found.obstacles) == (name in PLAIN), found.obstacles


@pytest.mark.slow
def test_the_command_fails_and_writes_nothing_if_there_is_an_obstacle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "examples" / "my_game.py").read_text()
    (tmp_path / "catch.py").write_text(text.replace("import random\n", "import random, rich\n"))
    out = tmp_path / "page"
    words = ["page", str(tmp_path / "catch.py"), "--pyodide", "cdn", "--out", str(out)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert "catch.py:9: import random, rich: a page has no package" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_azul_needs_only_numpy() -> None:
    """Neither what draws it in a terminal, nor compilers."""
    assert find_obstacles(GAMES["azul"], available=("numpy",), episodes=1).obstacles == ()
