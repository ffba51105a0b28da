"""The examples work, in shortened form."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env import Turn
from entity_env.agents import RandomAgent, against
from entity_env.cli import main
from entity_env.games import tic_tac_toe
from entity_env.views import SeenObservation, find_look
from entity_env.views.drawing import Drawing
from examples import bot, demo, my_game, skirmish, skirmish_look

GAME = Path(my_game.__file__)
SMALL = ("--num-envs=4", "--set-train=net={d_model=8,n_layer=1,n_head=1}")


def test_the_game_counts_what_it_catches() -> None:
    episodes = my_game.catch.run(RandomAgent(seed=1), episodes=20, num_apples=5)
    assert {episode.length for episode in episodes} == {5 * 7}
    assert 0 < sum(episode.reward for episode in episodes) < 20 * 5


def test_the_game_is_short_enough_to_be_read() -> None:
    code = [line for line in GAME.read_text().splitlines() if line.strip()]
    assert len(code) < 50


@pytest.mark.slow
def test_the_game_is_played_trained_and_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        result = CliRunner().invoke(main, args)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    assert "● Basket ×1" in run("play", str(GAME), "--seed", "1")
    run("train", str(GAME), "--steps", "64", "--out", "runs/catch", *SMALL)
    assert "runs/catch" in run("eval", str(GAME), "--agent", "runs/catch", "--episodes", "2")
    run("export", "runs/catch", "catch.agent")
    shipped = subprocess.run([sys.executable, GAME], text=True, capture_output=True, check=True)
    assert re.fullmatch(r"The basket caught \d+ apples\.\n", shipped.stdout)


@pytest.mark.slow
def test_the_skirmish_is_played_checked_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(Path(skirmish.__file__))
    code = [line for line in Path(file).read_text().splitlines() if line.strip()]
    assert len(code) <= 65
    train = ["train", file, "--steps", "64", "--out", "runs/skirmish"]
    train += ["--eval-interval=0", "--num-workers=0", "--keep=none"]
    for command, shown in (
        (["play", file, "--set", "max_turns=2", "--seed", "1"], "K KNIGHT  A ARCHER"),
        (["check", file, "--episodes", "1", "--set", "max_turns=5"], "no violation"),
        ([*train, *SMALL], "saved in runs/skirmish"),
        (["eval", file, "--agents", "runs/skirmish,random", "--games", "2"], "skirmish  "),
    ):
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        assert shown in result.stdout


@pytest.mark.slow
def test_the_sides_of_the_skirmish_win_what_the_other_loses() -> None:
    agents = [RandomAgent(seed=i) for i in range(2)]
    rewards = skirmish.skirmish.run(*agents, episodes=20)
    for number in range(20):
        one, other = (each for each in rewards if each.number == number)
        assert one.reward == pytest.approx(-other.reward)
        assert one.truncated == other.truncated
    assert sum(each.terminated for each in rewards) > 20


def test_units_of_the_skirmish_can_be_told_apart() -> None:
    """Sides by color, whoever observes; kinds by shape; none hides another in its cell."""
    turns: list[Turn] = []
    game, agents = skirmish.skirmish, [RandomAgent(seed=i) for i in range(2)]
    game.run(*agents, seed=3, watch=turns.append, max_turns=12)
    space, shared = game.obs_space(), 0
    drawing = Drawing(find_look(game), space)
    for turn in turns:
        seen = SeenObservation(turn.observation, space, turn.agent_id)
        drawing.include(seen)
        tokens = {s.of: s for s in reversed(drawing.draw(seen).shapes) if s.of >= 0}
        assert {*tokens} == {unit.index for unit in seen.entities}
        assert len({token.center for token in tokens.values()}) == len(tokens)
        shared += len({tuple(unit.features[-3:-1]) for unit in seen.entities}) < len(tokens)
        for unit in seen.entities:
            token = tokens[unit.index]
            assert token.kind == ("rect" if unit["kind"] == "KNIGHT" else "polygon")
            agent = turn.agent_id if unit.type == "Unit" else 1 - turn.agent_id
            assert token.fill == skirmish_look.SIDES[agent]
    assert shared, "some units shared a cell"


@pytest.mark.slow
def test_the_bots_play_on_the_command_line_and_against_a_learner() -> None:
    file = str(Path(bot.__file__))
    assert len(Path(file).read_text().splitlines()) <= 60
    names = f"{file}:Careful,{file}:corners,random"
    played = CliRunner().invoke(
        main, ["eval", "tic_tac_toe", "--agents", names, "--games", "40", "--json"]
    )
    assert (played.exit_code, played.stderr) == (0, "")
    rows = json.loads(played.stdout)["agents"]
    assert rows[0]["name"] == f"{file}:Careful"
    assert rows[0]["win_rate"] > 0.8
    learners = [RandomAgent(seed=i) for i in range(2)]
    episodes = against(tic_tac_toe, [bot.Careful, bot.corners]).run(*learners, episodes=60)
    careful = [e.metrics["against/Careful"] for e in episodes if "against/Careful" in e.metrics]
    assert 20 < len(careful) < 40
    assert sum(careful) / len(careful) < 0.3


@pytest.mark.slow
def test_the_demo_trains_compares_and_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(demo, "EVAL_EPISODES", 3)
    for _ in range(2):  # the second time over the files of the first
        demo.main(tmp_path / "demo", steps=1024)
    shown = capsys.readouterr().out
    assert "$ entity-env train snake --steps=1024" in shown
    assert "step 1,024 of 1,024" in shown
    assert "random agent" in shown
    assert "trained agent" in shown
    assert "● Head ×1" in shown
    assert (tmp_path / "demo" / "checkpoint" / "config.json").exists()


def test_the_demo_ends_with_the_first_command_that_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as error:
        demo.command("play", "snaek")
    assert error.value.code == 2
    assert "did you mean snake?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_of_ones_own_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from examples import own_network

    own_network.main(steps=2_000)
    assert "foods per episode after 2,0" in capsys.readouterr().out
