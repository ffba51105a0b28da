"""Exported agents play in the runner of the package, where only numpy is installed."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from entity_env import Obs
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, write_agent
from entity_env.agents.rogue_net.numpy_net.agent import RogueNetAgent
from entity_env.cli.app import main
from entity_env.errors import UsageError
from entity_env.games import snake
from entity_env.interop.kaggle import ADAPTED, KaggleGame, play_kaggle
from entity_env.interop.kaggle.orbit_wars import orbit_wars
from entity_env.interop.kaggle.planet_wars import planet_wars
from entity_env.interop.kaggle.submission import Submission, game_of_spaces, write_submission
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


@pytest.mark.slow
@pytest.mark.parametrize(("game", "bot"), [(orbit_wars, "starter"), (planet_wars, "nearest_enemy")])
def test_plays_in_the_runner_with_numpy_alone(tmp_path: Path, game: KaggleGame, bot: str) -> None:
    file = tmp_path / "main.py"
    write_submission(file, agent_bytes(weights_for(spaces_of(game))), game.name)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(file), game.name, bot],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['DONE', 'DONE'] 25") == 2, done.stdout
    assert "entity_env.zip" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("game", [orbit_wars, planet_wars])
def test_decides_like_the_game(game: KaggleGame) -> None:
    weights = weights_for(spaces_of(game))
    submission = Submission(agent_bytes(weights), game.name, greedy=True)
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
    for game in (orbit_wars, planet_wars):
        assert game_of_spaces(spaces_of(game), ADAPTED) == game.name
    with pytest.raises(UsageError, match="--kaggle needs an agent trained for kaggle:orbit_wars"):
        game_of_spaces(spaces_of(snake), ADAPTED)


def test_command_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_agent(tmp_path / "x.agent", weights_for(spaces_of(planet_wars)))
    for out, options, words in (
        ("main.py", ["--kaggle"], "an agent for planet_wars"),
        ("main.txt", ["--kaggle"], "the file must be named *.py"),
        ("y.agent", ["--greedy"], "--greedy is for --kaggle"),
    ):
        with pytest.raises(SystemExit):
            main(["export", str(tmp_path / "x.agent"), str(tmp_path / out), *options])
        captured = capsys.readouterr()
        assert words in captured.out + captured.err
