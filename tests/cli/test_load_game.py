"""Games by name or file, and tracebacks of games that raise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gymnasium.envs.classic_control import CartPoleEnv

from entity_env import (
    CheckpointError,
    EntityEnvError,
    Game,
    MissingExtraError,
    Obs,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.cli import main
from entity_env.cli.game_errors import GameFailed, game_errors, trace_from
from entity_env.cli.load_game import game_against, load_game
from entity_env.core.seeding import EpisodeSeeds
from entity_env.replay.writer import ReplayWriter
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.strategies import untyped

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
def modules_and_path(tmp_path: Path) -> Iterator[None]:
    """Unloads the modules and folders of the games that a test loads.

    Installed packages stay: loading a C module twice may break the process.
    """
    path, modules = sys.path.copy(), sys.modules.copy()
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", list(PLAIN_GAMES))
def test_finds_a_game_by_name(name: str) -> None:
    assert load_game(name) is not None
    assert load_game(name).name == name


def test_settings_are_applied() -> None:
    assert load_game("snake", ["board_size=6"]).settings == {"board_size": 6}


def test_finds_the_only_game_of_a_file(folder: Path) -> None:
    (folder / "walking.py").write_text(ONE)
    assert load_game("walking.py").name == "walking"
    assert load_game(str(folder / "walking.py"), ["rounds=5"]).settings == {"rounds": 5}


@pytest.mark.parametrize("name", ["sh walking.py", "sort/walking.py", "cut me/walking.py"])
def test_a_file_whose_name_begins_like_a_command_is_a_file(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(ONE)
    assert load_game(name).name == load_game(f"{name}:walk").name


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
        ("sh walking.sh", "no game 'sh walking.sh'; did you mean \"exec:sh walking.sh\"?"),
        ("walking.mjs", "no game 'walking.mjs'; did you mean \"exec:node walking.mjs\"?"),
        ("walking.lua", 'did you mean "exec+stdio:lua5.4 walking.lua"?'),
        ("./walker", "no game './walker'; did you mean \"exec:./walker\"?"),
        ("notes.txt", "notes.txt is not a game: expected a Python file, *.py, or a program, exec"),
        ("./notes.txt", "./notes.txt is not a game: expected a Python file, *.py, or a program"),
        ("notes.md", "no game 'notes.md': there is no module 'notes'"),
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
    for name_of_program in ("walking.mjs", "walking.lua", "walker"):
        (folder / name_of_program).touch(0o755)
    (folder / "notes.txt").write_text("hello\n")
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


ADDS_ITSELF = """
import gymnasium
from gymnasium import spaces

class Nothing(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)

gymnasium.register("Nothing-v3", Nothing)
"""


def test_finds_an_environment_of_gymnasium(folder: Path) -> None:
    game = load_game("gymnasium:CartPole-v1")
    assert (game.name, game.num_agents, game.settings) == ("CartPole-v1", 1, {})
    lake = load_game("gymnasium:FrozenLake-v1", ["map_name=8x8", "is_slippery=False"])
    assert lake.settings == {"map_name": "8x8", "is_slippery": False, "render_mode": "ansi"}
    assert load_game("gymnasium:FrozenLake-v1", ["render_mode=None"]).settings == {
        "render_mode": None
    }
    (folder / "adds_itself.py").write_text(ADDS_ITSELF)
    sys.path.insert(0, str(folder))
    assert load_game("gymnasium:adds_itself:Nothing-v3").name == "Nothing-v3"


@pytest.fixture
def families(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two families with their own environments."""
    for family, game in (("old_family", "duel_v1"), ("new_family", "brawl_v2")):
        (folder / family).mkdir()
        (folder / family / "__init__.py").write_text("")
        (folder / family / f"{game}.py").write_text(
            "from tests.interop.pettingzoo.test_from_pettingzoo import Brawl\n"
            "from pettingzoo.utils.conversions import parallel_to_aec\n"
            "def env(**settings):\n    return parallel_to_aec(Brawl(**settings))\n"
            + ("parallel_env = Brawl\n" if game == "brawl_v2" else "")
        )
    (folder / "old_family" / "odd_v1.py").write_text("import no_such_package\n")
    sys.path.insert(0, str(folder))
    found = {"old": "old_family", "new": "new_family", "gone": "gone_family"}
    monkeypatch.setattr("entity_env.cli.load_game._FAMILIES", found | {"mpe2": "gone_mpe2"})


def test_finds_an_environment_of_pettingzoo(families: None) -> None:
    del families
    for name in ("duel_v1", "old/duel_v1"):
        assert load_game(f"pettingzoo:{name}").name == "duel_v1"
    brawl = load_game("pettingzoo:brawl_v2", ["num_agents=2"])
    assert (brawl.num_agents, brawl.settings) == (2, {"num_agents": 2})
    assert brawl.run(RandomAgent(1), RandomAgent(2))
    for place, name in (
        ("new_family.brawl_v2", "brawl_v2"),
        ("new_family.brawl_v2:Brawl", "Brawl"),
    ):
        game = load_game(f"pettingzoo:{place}", ["num_agents=2"])
        assert (game.name, game.num_agents) == (name, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gymnasium:CartPol-v1", "no environment 'CartPol-v1'"),
        ("gymnasium:CartPol-v1", "Did you mean: `CartPole`?"),
        ("gymnasium:CartPole-v9", "versioned environments: [ `v0`, `v1` ]"),
        ("gymnasium:Far/Pong-v5", "If a package registers it, name its module: MODULE:Far/Pong-v5"),
        ("gymnasium:json:Pong", "no environment 'json:Pong'"),
        ("gymnasium:no_such:X-v1", "No module named 'no_such'"),
        ("gymnasium:no_such:X-v1", ": pip install no_such"),
        ("gymnasium:a b", "no environment 'a b': Malformed environment ID"),
        ("gymnasium:", "no game 'gymnasium:'"),
        ("pettingzoo:duel_v2", "no environment 'pettingzoo:duel_v2'; did you mean duel_v1?"),
        ("pettingzoo:new/duel_v1", "no environment 'pettingzoo:new/duel_v1'"),
        ("pettingzoo:json.decoder", "json.decoder has no parallel_env or env that makes an env"),
        ("pettingzoo:json:duel_v1", "the module json has no duel_v1 that makes an environment"),
        ("pettingzoo:new_family.old_v1", "No module named 'new_family.old_v1'"),
        ("pettingzoo:no_such.duel_v1", "No module named 'no_such': pip install no_such"),
        ("pettingzoo:..duel.v1", "no environment 'pettingzoo:..duel.v1'"),
        ("pettingzoo:gone/old.v1", "needs a package"),
        ("pettingzoo:new/zzz", "One of another package is pettingzoo:PACKAGE.MODULE or"),
        ("pettingzoo:chess_v99", "mpe2 is a separate package: pip install mpe2"),
        ("pettingzoo:odl/duel_v1", "pettingzoo has no family 'odl'; did you mean old?"),
        ("pettingzoo:x/duel_v1", "no family 'x'; there are old, new, gone, mpe2"),
        ("pettingzoo:gone/duel_v1", "pettingzoo:gone/duel_v1 needs a package: pip install gone_fa"),
        ("pettingzoo:odd_v1", "No module named 'no_such_package': pip install no_such_package"),
    ],
)
def test_says_which_environments_there_are(families: None, name: str, message: str) -> None:
    del families
    with pytest.raises(UsageError) as error:
        load_game(name)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["pettingzoo:new_family.old_v1", "gymnasium:new_family.x:A-v0"])
def test_an_installed_package_without_the_module_needs_no_installation(
    families: None, name: str
) -> None:
    del families
    with pytest.raises(UsageError, match="No module named 'new_family") as error:
        load_game(name)
    assert "pip install" not in str(error.value)


def test_settings_that_an_environment_does_not_take() -> None:
    with pytest.raises(UsageError, match="unexpected keyword argument 'colour'"):
        load_game("gymnasium:CartPole-v1", ["colour=red"])


def test_an_environment_with_text_but_no_argument_for_it_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Plain(CartPoleEnv):
        def __init__(self) -> None:
            super().__init__()
            self.metadata = {"render_modes": ["ansi"]}

    monkeypatch.setattr("gymnasium.make", lambda env_id: Plain())
    assert load_game("gymnasium:Plain-v1").name == "Plain-v1"


@pytest.mark.parametrize("package", ["gymnasium", "pettingzoo"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(f"entity_env.interop.{package}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.vector", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'entity-env\[{package}\]'"):
        load_game(f"{package}:x_v1")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("board_size", "--set needs name=value, got 'board_size'"),
        ("=3", "--set needs name=value, got '=3'"),
        ("boardsize=3", "snake has no setting 'boardsize'; it has board_size"),
        ("board_size=x", "snake: setting 'board_size' must be an integer, got 'x'"),
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


# --------------------------------------------------------------------------- errors of a game

BROKEN = """
from enum import Enum
from entity_env import Game

class Move(Enum):
    GO = 0

def helper(text):
    return int(text)

def play(agent, *, seed):
    helper("x")

class Player:
    def __call__(self, agent, *, seed):
        helper("y")

by_function = Game(play, entities=(), actions=(Move,))
by_object = Game(Player(), name="by_object", entities=(), actions=(Move,))
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken_game_of_failures.py"
    path.write_text(BROKEN)
    return path


class Move(Enum):
    GO = 0


def play(agent: Agent, *, seed: int) -> None:
    raise ZeroDivisionError("of the game")


def raised(error: BaseException) -> BaseException:
    """The error, with a traceback that does not pass through a game."""
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("name", ["by_function", "by_object"])
def test_a_trace_begins_in_the_game(broken: Path, name: str) -> None:
    game = load_game(f"{broken}:{name}")
    with pytest.raises(GameFailed) as failed, game_errors(game):
        game.run(RandomAgent(seed=0))
    trace = failed.value.trace
    assert trace == str(failed.value)
    files = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert len(files) == 2  # the game, and the helper that raised; none of our files
    assert all(str(broken) in file for file in files)
    assert trace.splitlines()[-2].startswith("ValueError: invalid literal")
    assert isinstance(failed.value.__cause__, ValueError)


def game_of(play: Callable[..., None]) -> Game:
    return Game(play, name="broken", entities=(), actions=(Move,))


GAME = game_of(play)


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no such file"),
        CheckpointError("another game"),
        MissingExtraError("torch", "train", "training"),
    ],
)
def test_what_the_user_can_mend_passes_also_out_of_a_game(error: EntityEnvError) -> None:
    def asks(agent: Agent, *, seed: int) -> None:
        raise error

    game = game_of(asks)
    with pytest.raises(type(error)) as passed, game_errors(game):
        asks(RandomAgent(seed=0), seed=0)
    assert passed.value is error


@pytest.mark.parametrize("error", [KeyError("ours"), KeyboardInterrupt()])
def test_what_no_frame_of_the_game_has_raised_passes(error: BaseException) -> None:
    def fails() -> None:
        raise error

    game = load_game("snake")
    with pytest.raises(type(error)) as passed, game_errors(game):
        fails()
    assert passed.value is error


def test_a_game_that_ends_the_program_is_named_with_its_line() -> None:
    """Without this error, a command would stop silently."""

    def exits(agent: Agent, *, seed: int) -> None:
        sys.exit(0)

    game = game_of(exits)
    with pytest.raises(GameFailed) as failed, game_errors(game):
        game.run(RandomAgent(seed=0))
    assert "in exits\n    sys.exit(0)" in failed.value.trace
    message = "the game called sys.exit(0): return from play instead (seed "
    assert f"SystemExit: 0\n{message}" in failed.value.trace


def test_an_agent_that_ends_the_program_is_named_with_its_line() -> None:
    class Leaving(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            sys.exit()

    def asks(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(), Move)

    game, line = game_of(asks), rf"{__file__}:\d+ in choose"
    message = rf"sys\.exit\(\) was called at {line}: .*"
    with pytest.raises(UsageError, match=message), game_errors(game):
        game.run(Leaving())


def test_ctrl_c_in_a_game_is_no_failure_of_it() -> None:
    def interrupted(agent: Agent, *, seed: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), game_errors(game_of(interrupted)):
        interrupted(RandomAgent(seed=0), seed=0)


def worker_error(cause: BaseException | None) -> WorkerError:
    error = WorkerError("play raised", env_id=3, seed=5, game_traceback="its own\n  traceback\n")
    error.__cause__ = cause
    return error


def test_of_a_worker_the_traceback_that_it_sent_is_shown_and_where_it_was() -> None:
    with pytest.raises(GameFailed) as failed, game_errors(GAME):
        raise worker_error(None)
    assert failed.value.trace == "its own\n  traceback\nplay raised (env 3, seed 5)\n"


@pytest.mark.parametrize("shown", [Obs(untyped([1])), 5], ids=["score", "number"])
def test_of_mistakes_that_the_package_finds_only_the_frames_of_the_game_are_shown(
    shown: object,
) -> None:
    def asks(agent: Agent, *, seed: int) -> None:
        untyped(agent).act(shown, Move)

    game = game_of(asks)
    with pytest.raises(GameFailed) as failed, game_errors(game):
        game.run(RandomAgent(seed=0))
    files = [line for line in failed.value.trace.splitlines() if line.startswith("  File ")]
    assert all(__file__ in file for file in files)
    assert files[-1].endswith("in asks")
    *_, last, place = failed.value.trace.splitlines()
    assert last.startswith("entity_env.errors.SchemaError: ")
    assert place.endswith(", episode 0, step 0")


def test_nor_what_they_were_raised_from_unless_that_is_the_games() -> None:
    @dataclass
    class Thing:
        x: int

    def asks(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Thing(untyped("1"))]), Move)

    game = Game(asks, entities=(Thing,), actions=(Move,))
    with pytest.raises(GameFailed) as failed, game_errors(game):
        game.run(RandomAgent(seed=0))
    assert failed.value.trace.count("File ") == failed.value.trace.count(__file__)
    assert "direct cause" not in failed.value.trace
    assert "feature 'x' of row 0 must be a number" in failed.value.trace


def test_of_this_process_the_frames_of_the_game_are_shown() -> None:
    cause: BaseException | None = None
    try:
        play(RandomAgent(seed=0), seed=0)
    except ZeroDivisionError as error:
        cause = error
    with pytest.raises(GameFailed) as failed, game_errors(GAME):
        raise worker_error(cause)
    lines = failed.value.trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ZeroDivisionError: of the game", "play raised (env 3, seed 5)"]
    assert "its own" not in failed.value.trace


def test_a_wrapped_play_is_found_by_what_it_wraps(broken: Path) -> None:
    inner = load_game(f"{broken}:by_function")

    def wrapper(agent: Agent, *, seed: int) -> None:
        inner.play(agent, seed=seed)

    wrapper.__wrapped__ = inner.play  # type: ignore[attr-defined]  # as functools.wraps does
    game = game_of(wrapper)
    with pytest.raises(GameFailed) as failed, game_errors(game):
        wrapper(RandomAgent(seed=0), seed=0)
    assert str(Path(__file__)) not in failed.value.trace


def test_no_frame_no_trace() -> None:
    calls: list[Callable[[], BaseException]] = [lambda: raised(OSError("x")), lambda: OSError("x")]
    for call in calls:
        assert trace_from(call(), "/no/such/file.py") is None


# --------------------------------------------------------------------------- bots of files

BOTS = """
from entity_env.agents import ScriptedAgent
from entity_env.games.tic_tac_toe import Square

class First(ScriptedAgent):
    def choose(self, obs, *actions):
        return obs.allowed(Square)[0]

class Wrong(ScriptedAgent):
    def choose(self, obs, *actions):
        return Square.A1

class Broken(ScriptedAgent):
    def choose(self, obs, *actions):
        return [][0]

class Unmade(First):
    def __init__(self):
        self.book = open("no/book")
"""


def entity_env(*args: str) -> Result:
    return CliRunner().invoke(main, args)


@pytest.mark.slow
def test_a_bot_plays_wherever_agents_are_named(folder: Path) -> None:
    (folder / "bots.py").write_text(BOTS)
    two = ("--agent", "bots.py:First", "--agent", "random")
    for args in (
        ("play", "tic_tac_toe", *two, "--no-render", "--seed", "1"),
        ("eval", "tic_tac_toe", *two, "--episodes", "3"),
        ("eval", "tic_tac_toe", "--agents", "bots.py:First,random,bots.py:First", "--games", "2"),
        ("record", "tic_tac_toe", *two, "--seed", "1", "--out", "a.replay"),
        ("verify", "a.replay"),
        ("replay", "a.replay", "--take-over", "2", *two, "--seed", "3"),
        ("eval", "azul", "--agents", "greedy,azul_bot.py:least", "--games", "2"),
    ):
        (folder / "azul_bot.py").write_text(
            "def least(obs, pick):\n    return [obs.allowed(pick)[0][0]]\n"
        )
        result = entity_env(*args)
        assert (result.exit_code, result.stderr) == (0, ""), args
    assert (
        "bots.py:First#2"
        in entity_env(
            *("eval", "tic_tac_toe", "--agents", "bots.py:First,bots.py:First", "--games", "2")
        ).stdout
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bots.py:Frst", "bots.py has no bot 'Frst'; did you mean First?"),
        ("bot.py:First", "no file bot.py; did you mean bots.py?"),
        ("bots.py:Square", "bots.py:Square is not a bot: expected a subclass of"),
        (
            "bots.py:Unmade",
            "bots.py:Unmade, line 19: its constructor, called with no arguments, raised",
        ),
        ("bots.py:Wrong", "bots.py:Wrong answered Square.A1 to the action 'Square': its mask"),
        ("syntax.py:A", "syntax.py, line 1: "),
        ("leaves.py:A", "leaves.py ends the program when it is loaded: sys.exit(3)"),
    ],
)
def test_one_line_says_what_is_wrong_with_a_bot(name: str, message: str, folder: Path) -> None:
    (folder / "bots.py").write_text(BOTS)
    (folder / "syntax.py").write_text("x =\n")
    (folder / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    for game in ("tic_tac_toe", "azul"):
        if game == "azul" and "Wrong" in name:
            continue
        result = entity_env("play", game, "--agent", name, "--no-render", "--seed", "1")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith(f"entity-env: {message}")


def test_a_bug_in_a_bot_is_shown_from_its_own_frames_on(folder: Path) -> None:
    (folder / "bots.py").write_text(BOTS)
    (folder / "raises.py").write_text("def half(x):\n    return x / 0\n\nhalf(1)\n")
    for name, first, error in (
        ("bots.py:Broken", "return [][0]", "IndexError"),
        ("raises.py:A", "half(1)", "ZeroDivisionError"),
    ):
        trace = entity_env("play", "tic_tac_toe", "--agent", name, "--no-render").stderr
        assert trace.splitlines()[2].strip() == first
        assert error in trace
        assert "tic_tac_toe.py" not in trace
        assert "scripted_agent.py" not in trace


def test_a_game_against_bots_by_name(folder: Path) -> None:
    (folder / "bots.py").write_text(BOTS)
    (folder / "raises.py").write_text("1 / 0\n")
    game = game_against(load_game("tic_tac_toe"), ["bots.py:First", "random"])
    episodes = game.run(RandomAgent(1), RandomAgent(2), episodes=8)
    names = {name for each in episodes for name in each.metrics}
    assert names == {"against/First", "against/random"}
    with pytest.raises(GameFailed, match="ZeroDivisionError"):
        game_against(game, ["raises.py:A"])
    with pytest.raises(UsageError, match="did you mean First"):
        game_against(game, ["bots.py:Firs"])
    with pytest.raises(UsageError, match="snake is for 1 agent"):
        game_against(load_game("snake"), ["bots.py:First"])


ROYALE = """
from dataclasses import dataclass
from enum import Enum
from random import Random
from entity_env import Game, Obs

@dataclass
class Me:
    x: int

class Go(Enum):
    LEFT = -1
    RIGHT = 1

def play(agents, *, seed):
    rng = Random(seed)
    present = sorted(rng.sample(range(len(agents)), rng.randint(1, len(agents))))
    for i in present:
        go = agents[i].act(Obs().entities([Me(i)]), Go)
        if go is None:
            return
        agents[i].game_over(Obs(go.value))

royale = Game(play, entities=(Me,), actions=(Go,), num_agents=4)
"""


def test_agents_may_be_absent(folder: Path) -> None:
    (folder / "royale.py").write_text(ROYALE)
    played = entity_env("play", "royale.py", "--episodes", "6", "--no-render", "--seed", "3")
    lines = played.stdout.splitlines()
    assert lines[-1] == "seed 3"
    numbers = [int(line.split(",")[0].removeprefix("episode ")) for line in lines[:-1]]
    assert sorted(numbers) == numbers
    assert set(numbers) == {1, 2, 3, 4, 5, 6}
    assert 6 < len(numbers) < 24
    game = load_game("royale.py")
    episodes = game.run(*[RandomAgent(i) for i in range(4)], seed=3, episodes=6)
    assert {(each.number, each.seed) for each in episodes} == {
        (i, EpisodeSeeds(3)[i]) for i in range(6)
    }
    (folder / "right.py").write_text(
        "from royale import Go\ndef right(obs, go):\n    return Go.RIGHT\n"
    )
    told = json.loads(
        entity_env(
            *("eval", "royale.py", "--agents", "right.py:right,random", "--games", "40", "--json")
        ).stdout
    )
    best, worst = told["agents"]
    assert best["name"] == "right.py:right"
    assert best["num_games"] == worst["num_games"] < 40
    assert best["wins"] + worst["wins"] == pytest.approx(best["num_games"])
    assert best["mean_score"] == 1
    table = entity_env("eval", "royale.py", "--agent", "right.py:right", "--episodes", "20").stdout
    counts = [int(line.split()[-2]) for line in table.splitlines()[1:]]
    assert all(0 < count < 20 for count in counts)
    writer = ReplayWriter()
    game.run(*[RandomAgent(i) for i in range(4)], seed=3, episodes=6, watch=writer)
    assert [replay.header.run["episode"] for replay in writer.replays] == list(range(6))
    assert [replay.verify(game) for replay in writer.replays] == [None] * 6
