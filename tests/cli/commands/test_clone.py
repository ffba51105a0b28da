"""`dataset` and `clone`, as users run them."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from entity_env.agents.imitation import Dataset
from entity_env.agents.ppo import MLPPolicy, TrainProgress
from entity_env.agents.rogue_net import RogueNet, load_checkpoint
from entity_env.cli import main
from entity_env.cli.display.console import ProgressBar
from tests import ROOT
from tests.agents.imitation import decisions
from tests.agents.imitation.decisions import assert_same_dataset

GAME = Path(decisions.__file__).read_text()


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def refused(*args: str | Path | int) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def replays(here: Path) -> Path:
    for seed in range(3):
        out = here / "games" / f"{seed}.replay"
        assert run("record", "rock_paper_scissors", "--seed", seed, "--out", out).exit_code == 0
    return here / "games"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relation_games.py:travels", "composite_games.py:send"])
def test_a_parquet_file_of_parts_and_relations_is_cloned(name: str) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    game = ROOT / "tests" / "games" / name
    play = ("--game", game, "--play", "random", "--episodes", 8)
    for words in (
        ("dataset", *play, "--out", "a.parquet"),
        ("dataset", "a.parquet", "--out", "b.npz"),
        ("dataset", "a.parquet", "b.npz", "--out", "c.parquet"),
        ("clone", game, "c.parquet", "--epochs", 1, "--out", "clone"),
    ):
        result = run(*words)
        assert result.exit_code == 0, result.output
    assert_same_dataset(Dataset.load("a.parquet"), Dataset.load("b.npz"))
    assert len(Dataset.load("c.parquet")) == 2 * len(Dataset.load("a.parquet"))


def test_a_dataset_of_replays(here: Path, replays: Path) -> None:
    result = run("dataset", "games", "--out", "all.npz")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(
        r"all\.npz: [\d,]+ decisions of 3 episodes, [\d,]+ bytes\n"
        r"imitate them: entity-env clone GAME all\.npz\n",
        result.output,
    )
    every = Dataset.load(here / "all.npz")
    assert run("dataset", "all.npz", "games", "--out", "both.npz", "--agent", 0).exit_code == 0
    both = Dataset.load(here / "both.npz")
    assert (both.num_episodes, set(both.agent_id)) == (6, {0})
    assert len(both) == 2 * (every.agent_id == 0).sum()


def test_a_dataset_of_agents_that_play_now(here: Path) -> None:
    args = ("--game", "snake", "--play", "random", "--episodes", 4, "--out", "now.npz")
    assert run("dataset", *args, "--set", "board_size=5").exit_code == 0
    dataset = Dataset.load(here / "now.npz")
    assert dataset.num_episodes == 4
    assert dataset.obs.features["Head"].values.max() == 4
    # Agents that only fill the other seats are not imitated.
    others = ("--game", "rock_paper_scissors", "--play", "random", "--episodes", 2)
    assert run("dataset", *others, "--out", "one.npz").exit_code == 0
    assert set(Dataset.load(here / "one.npz").agent_id) == {0}
    assert run("dataset", *others, "--play", "random", "--out", "two.npz").exit_code == 0
    assert set(Dataset.load(here / "two.npz").agent_id) == {0, 1}


def test_a_dataset_is_shown_and_attributed(here: Path, replays: Path) -> None:
    (here / "mine.py").write_text(GAME)
    (here / "bot.py").write_text(
        "from entity_env.agents import ScriptedAgent\nclass Bot(ScriptedAgent):\n"
        "    def choose(self, obs, *actions): return obs.allowed(actions[0])[0]\n"
    )
    args = ("--game", "mine.py", "--play", "bot.py:Bot", "--episodes", 7, "--seed", 3)
    assert run("dataset", *args, "--out", "mine.npz").exit_code == 0
    shown = run("dataset", "mine.npz")
    assert shown.exit_code == 0, shown.output
    digest = hashlib.sha256(GAME.encode()).hexdigest()
    bot = hashlib.sha256((here / "bot.py").read_bytes()).hexdigest()
    for line in (
        "mine.npz: 42 decisions of 7 episodes",
        "recorded with dots",
        "  settings: length=6",
        f"  identity: source=mine.py:dots, sha256={digest}",
        f"  agents: name=bot.py:Bot, sha256={bot}",
        "  seed: 3",
    ):
        assert line in shown.stdout.splitlines()
    assert re.search(r"^episode seeds: (\d+, ){4}\d+ and 2 more$", shown.stdout, re.M)
    assert run("dataset", "games", "--out", "games.npz").exit_code == 0
    assert run("dataset", "games.npz").stdout.count("recorded with rock_paper_scissors") == 3
    assert "name the file to write" in refused("dataset", "games")
    assert "name the file to write" in refused("dataset", "mine.npz", "--play", "random")


def test_a_dataset_of_another_game_is_said_and_used(here: Path) -> None:
    (here / "mine.py").write_text(GAME)
    (here / "yours.py").write_text(GAME.replace('name="dots"', 'name="spots"'))
    args = ("--play", "random", "--episodes", 2)
    assert run("dataset", "--game", "mine.py", *args, "--out", "mine.npz").exit_code == 0
    again = ("mine.npz", "--out", "again.npz")
    assert run("dataset", *again, "--game", "mine.py").stderr == ""
    told = run("dataset", *again, "--game", "yours.py")
    assert told.stderr == "mine.npz was recorded with dots, not with spots\n"
    assert told.exit_code == 0
    (here / "mine.py").write_text(f"{GAME}\n")
    told = run("dataset", *again, "--game", "mine.py")
    assert told.stderr.startswith("the game has changed since mine.npz was recorded: source digest")


def test_clone_and_what_it_says(here: Path, replays: Path) -> None:
    result = run("clone", "rock_paper_scissors", "games", "--epochs", 2, "--out", "run")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^cloned [\d,]+ decisions in \d+ s, kept epoch [12] of 2, held-out nll \d\.\d+, "
        r"accuracy [\d.]+% \(\d+ decisions\), saved in run$",
        result.output,
        re.MULTILINE,
    )
    commands = re.findall(r"^[a-z-]+: entity-env (.*)$", result.output, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["play", "eval", "train"]
    assert run(*commands[1].split(), "--episodes", 3).exit_code == 0
    about = json.loads((here / "run" / "run.json").read_text())
    assert about["game"] == "rock_paper_scissors"
    assert about["imitates"] == ["games"]
    assert run("runs", "run").exit_code == 0
    refusal = refused("clone", "rock_paper_scissors", "games", "--out", "run")
    assert "holds a trained agent" in refusal


def test_control_c_keeps_the_best_and_has_its_own_exit_code(
    here: Path, replays: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(bar: ProgressBar, done: object = None) -> None:
        if isinstance(done, TrainProgress):
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "count", interrupt)
    result = run("clone", "rock_paper_scissors", "games", "--epochs", 3, "--out", "run")
    assert (result.exit_code, result.stderr) == (130, "")
    assert "stopped early, cloned" in result.stdout
    assert "kept epoch 1 of 1" in result.stdout


def test_clone_of_a_trained_agent(here: Path) -> None:
    teacher = Path(__file__).parents[3] / "examples" / "ship" / "snake.agent"
    args = ("--play", teacher, "--episodes", 3, "--epochs", 1, "--vf-coef", 0, "--held-out", 0)
    result = run("clone", "snake", *args)
    assert result.exit_code == 0, result.output
    assert "kept epoch 1 of 1, saved in runs/snake-clone" in result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "kind"), [("rock_paper_scissors", RogueNet), ("cartpole", MLPPolicy)]
)
def test_settings_of_the_network(here: Path, game: str, kind: type) -> None:
    args = ("clone", game, "--play", "random", "--episodes", 3, "--epochs", 1)
    result = run(*args, "--out", "run", "--set-train", "net.memory=7")
    assert result.exit_code == 0, result.output
    net = load_checkpoint(here / "run").net
    assert isinstance(net, kind)
    assert net.memory_width == 7
    tuned = ("train", game, "--init-from", "run", "--out", "tuned", "--steps", 100)
    assert run(*tuned).exit_code == 0
    assert load_checkpoint(here / "tuned").net.memory_width == 7
    for text, problem in (
        ("net.memory=-1", "--set-train net.memory=-1: net: memory must be"),
        ("net.memory=100000", "--set-train net.memory=100000: net: memory must be"),
        ("memory=7", "--set-train memory=7: expected a setting of the network, net.NAME=VALUE"),
        ("net.memories=7", "--set-train net.memories=7: "),
        ("memory", "expected a setting NAME=VALUE"),
    ):
        assert problem in refused(*args, "--out", "other", "--set-train", text)
    assert not (here / "other").exists()


@pytest.mark.parametrize("game", ["cartpole", "pendulum"])
def test_a_batch_game_gets_an_mlp(here: Path, game: str) -> None:
    result = run("clone", game, "--play", "random", "--episodes", 2, "--epochs", 1, "--out", "run")
    assert result.exit_code == 0, result.output
    assert isinstance(load_checkpoint(here / "run").net, MLPPolicy)
    assert run("play", game, "--agent", "run", "--no-render").exit_code == 0


@pytest.mark.slow
def test_mistakes_are_one_line(here: Path, replays: Path) -> None:
    assert run("dataset", "games", "--out", "d.npz").exit_code == 0
    for args, problem in (
        (("clone", "snake", "games"), "was recorded with a different game than snake"),
        (("clone", "snake", "d.npz"), "d.npz was recorded with a different game than snake"),
        (("clone", "snake"), "give replays"),
        (("clone", "snake", "none.replay"), "no file none.replay"),
        (("clone", "snake", "--play", "human"), "record GAME --agent human"),
        (("clone", "snake", "--play", "nobody"), "no agent 'nobody'"),
        (
            ("clone", "snake", "--play", "random", "--agent", "greedy"),
            "not one of the agents that play",
        ),
        (("clone", "snake", "--play", "random", "--winners"), "always wins"),
        (("clone", "snake", "--play", "random", "--min-reward", 99), "none of"),
        (("clone", "rock_paper_scissors", "d.npz", "--agent", "x"), "does not name its agents"),
        (("clone", "rock_paper_scissors", "d.npz", "--agent", 7), "the agents are [0, 1]"),
        (("clone", "rock_paper_scissors", "games/0.replay"), "only one episode"),
        (("dataset", "games", "--out", "d.csv"), "NAME.npz"),
        (("dataset", "--out", "e.npz"), "give replays"),
        (("dataset", "--play", "random", "--out", "e.npz"), "--game GAME"),
        (("dataset", "games", "--set", "rounds=1", "--out", "e.npz"), "--game GAME"),
    ):
        assert problem in refused(*args), args
    assert not (here / "runs").exists()


@pytest.mark.slow
def test_replays_of_actions_alone_need_their_game(here: Path) -> None:
    (here / "game.py").write_text(
        GAME[GAME.index("@dataclass\nclass Dot") : GAME.index("class Follower")].replace(
            "@dataclass",
            "from dataclasses import dataclass\nfrom enum import Enum\nfrom random import Random\n"
            "from entity_env import Game, Obs\nfrom entity_env.agents import Agent\n@dataclass",
            1,
        )
    )
    assert run("record", "game.py", "--no-see", "--out", "games/a.replay").exit_code == 0
    assert run("dataset", "games", "--out", "a.npz").exit_code == 0  # the file is in this folder
    (here / "game.py").rename(here / "moved.py")
    assert "add --game" in refused("dataset", "games", "--out", "b.npz")
    assert run("dataset", "games", "--game", "moved.py", "--out", "b.npz").exit_code == 0
    first, second = (Dataset.load(here / f"{name}.npz") for name in "ab")
    assert np.array_equal(first.reward, second.reward)
