"""Exported agents play in the runner of the package, where only numpy is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from entity_env import Obs
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, write_agent
from entity_env.agents.rogue_net.numpy_net.agent import RogueNetAgent
from entity_env.authoring.identity import place_of
from entity_env.cli.app import main
from entity_env.cli.load_game import load_game
from entity_env.errors import UsageError
from entity_env.games import snake
from entity_env.interop.kaggle import ADAPTED, KaggleGame, adapted_game, play_kaggle
from entity_env.interop.kaggle.game import kaggle_env, observation
from entity_env.interop.kaggle.orbit_wars import orbit_wars
from entity_env.interop.kaggle.planet_wars import planet_wars
from entity_env.interop.kaggle.submission import Submission, trained_game, write_submission
from tests import ROOT
from tests.agents.rogue_net.test_adapt import spaces_of, weights_for

RUN = """
import sys


class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "click", "rich", "greenlet", "cloudpickle", "numba"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, OnlyNumpy())
from kaggle_environments import make

bot = sys.argv[3]
for seats in ([sys.argv[1], bot], [bot, sys.argv[1]]):
    env = make(sys.argv[2], {"seed": 3, "episodeSteps": 25}, debug=True)
    env.run(seats)
    print([state.status for state in env.steps[-1]], len(env.steps))
print(sys.modules["entity_env"].__file__)
"""


def played(file: Path, game: KaggleGame, bot: str) -> str:
    """Output of `RUN`: two lines about episodes, and the place of entity_env."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, str(file), game.adapter.environment, bot],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=file.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "entity_env.zip" in done.stdout.splitlines()[-1]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("game", "bot"), [(orbit_wars, "starter"), (planet_wars, "nearest_enemy")])
def test_plays_in_the_runner_with_numpy_alone(tmp_path: Path, game: KaggleGame, bot: str) -> None:
    file = tmp_path / "main.py"
    write_submission(file, agent_bytes(weights_for(spaces_of(game))), game)
    assert played(file, game, bot).count("['DONE', 'DONE'] 25") == 2


@pytest.fixture
def connectx(tmp_path: Path) -> Path:
    """The file of the adapter that the tutorial shows, in a folder of its own."""
    text = (ROOT / "docs" / "tutorials" / "kaggle.md").read_text("utf-8")
    file = tmp_path / "mine" / "connectx.py"
    file.parent.mkdir()
    file.write_text(text[text.index("# connectx.py") :].partition("```")[0])
    return file


@pytest.mark.slow
@pytest.mark.parametrize("is_split", [False, True])
def test_an_adapter_of_the_user_plays_in_the_runner(
    tmp_path: Path, connectx: Path, is_split: bool
) -> None:
    """Also if it imports modules next to it, one of which is in a package."""
    if is_split:
        code, cut = connectx.read_text(), "class ConnectX"
        before, after = code[: code.index("@dataclass")], code[code.index(cut) :]
        (connectx.parent / "discs").mkdir()
        (connectx.parent / "discs" / "__init__.py").write_text("from .disc import Disc as Disc\n")
        disc = code[code.index("@dataclass") : code.index(cut)]
        (connectx.parent / "discs" / "disc.py").write_text(
            f"from dataclasses import dataclass\n\n\n{disc}"
        )
        (connectx.parent / "unused.py").write_text("import torch\n")
        connectx.write_text(f"{before}from discs import Disc\n\n\n{after}")
    game = load_game(str(connectx))
    assert isinstance(game, KaggleGame)
    write_agent(tmp_path / "x.agent", weights_for(spaces_of(game)))
    out = tmp_path / "main.py"
    words = ["export", str(tmp_path / "x.agent"), str(out), "--kaggle", "--game", str(connectx)]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    shutil.rmtree(connectx.parent)
    assert played(out, game, "random").count("['DONE', 'DONE']") == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import pandas as pd", r"connectx.py:2 imports pandas, which a submission cannot contain"),
        ("def f():\n    from torch.nn import Linear", r"connectx.py:3 imports torch.nn, which"),
        (
            "from entity_env.vec import VecEnv",
            r"connectx.py cannot be loaded .*: connectx.py:2: .*No module named 'entity_env.vec'",
        ),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas", ""),
        ("try:\n    import pandas\nexcept ImportError:\n    pandas = None", ""),
        ("print('ready')", ""),
        ("try:\n    from . import discs\nexcept ImportError:\n    pass", ""),
        ("open(__file__)", r"cannot be loaded .*: connectx.py:2: NotADirectoryError"),
    ],
)
@pytest.mark.slow
def test_names_an_import_that_cannot_be_embedded(connectx: Path, line: str, words: str) -> None:
    game = load_game(str(connectx))
    assert isinstance(game, KaggleGame)
    connectx.write_text(f"# connectx.py\n{line}\n{connectx.read_text()}")
    out, network = connectx.parent / "main.py", agent_bytes(weights_for(spaces_of(game)))
    if not words:
        write_submission(out, network, game)
        return
    with pytest.raises(UsageError, match=words) as caught:
        write_submission(out, network, game)
    assert "\n" not in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize("game", [orbit_wars, planet_wars])
def test_decides_like_the_game(game: KaggleGame) -> None:
    weights = weights_for(spaces_of(game))
    submission = Submission(agent_bytes(weights), ":".join(place_of(game) or ()), greedy=True)
    compared = []

    class Both(game.adapter):  # type: ignore[misc,name-defined]
        def show(self, raw: Any, player: int) -> Obs:  # noqa: ANN401
            if player == 1:
                compared.append([submission(raw, self.configuration)])
            shown: Obs = super().show(raw, player)
            return shown

        def moves(self, answer: Any, player: int) -> list[Any]:  # noqa: ANN401
            found: list[Any] = super().moves(answer, player)
            if player == 1:
                compared[-1].append(found)
            return found

    played = game.with_settings(turns=20)
    played.play = partial(play_kaggle, Both)
    agents = [RogueNetAgent.of(weights, greedy=True) for _ in range(2)]
    played.play_episode(*agents, seed=4)
    pairs = [each for each in compared if len(each) == 2]
    assert len(pairs) >= 15
    assert all(one == other for one, other in pairs)


def test_knows_its_game() -> None:
    games = [adapted_game(name) for name in ADAPTED]
    for game in (orbit_wars, planet_wars):
        assert trained_game(spaces_of(game), games) is game
    with pytest.raises(UsageError, match="--kaggle needs an agent trained for orbit_wars or plan"):
        trained_game(spaces_of(snake), games)
    with pytest.raises(UsageError, match="snake is not a KaggleGame, which --kaggle needs"):
        trained_game(spaces_of(snake), [snake])


def test_a_player_without_actors_leaves_the_action_to_the_runner() -> None:
    place = ":".join(place_of(planet_wars) or ())
    submission = Submission(agent_bytes(weights_for(spaces_of(planet_wars))), place)
    env = kaggle_env("planet_wars")
    states = env.reset(2)
    raw = observation(states, 0)
    assert submission(raw, env.configuration) is not None
    neutral = [[*each[:3], 0, *each[4:]] for each in raw["planets"]]
    assert submission({**raw, "step": 1, "planets": neutral}, env.configuration) is None
    states = env.step([None, None])
    assert [(each.status, each.action) for each in states] == [("ACTIVE", [])] * 2


def test_another_episode_begins_with_an_earlier_step(connectx: Path) -> None:
    game = load_game(str(connectx))
    assert isinstance(game, KaggleGame)
    submission = Submission(
        agent_bytes(weights_for(spaces_of(game))), ":".join(place_of(game) or ())
    )
    seats = []
    for step in (1, 3, 1, 3):
        board = [0] * 42
        assert submission({"step": step, "mark": 2, "board": board}, {}) in range(7)
        seats.append(next(iter(submission._seats.values()))[0])
    assert seats[0] is seats[1]
    assert seats[1] is not seats[2]


def test_command_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_agent(tmp_path / "x.agent", weights_for(spaces_of(planet_wars)))
    for out, options, words in (
        ("main.py", ["--kaggle"], "an agent for planet_wars"),
        ("main.txt", ["--kaggle"], "the file must be named *.py"),
        ("y.agent", ["--game", "snake"], "--game is for --kaggle"),
    ):
        with pytest.raises(SystemExit):
            main(["export", str(tmp_path / "x.agent"), str(tmp_path / out), *options])
        captured = capsys.readouterr()
        assert words in captured.out + captured.err
