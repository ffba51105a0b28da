"""A failure of a game on the command line ends with the command that repeats its episode."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import entity_env
from entity_env.cli import main

AGAIN = "play this episode again: entity-env "
BUG = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0
    RIGHT = 1

@dataclass
class Unit:
    x: float

def play(agents, *, seed: int, one_in: int = 1000, shows: str = "numbers") -> None:
    is_bad = seed % one_in == 0
    agents = agents if isinstance(agents, list) else [agents]
    for step in range(4):
        for agent in agents:
            x = float("nan") if is_bad and step == 2 and shows == "nan" else 1.0
            if agent.act(Obs(step).entities([Unit(x)]), Move) is None:
                return
        if is_bad and step == 2:
            raise ValueError(f"unlucky {seed}")
    for agent in agents:
        agent.game_over(Obs(4))

alone = Game(play, entities=(Unit,), actions=(Move,))
pair = Game(play, entities=(Unit,), actions=(Move,), num_agents=2)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bug.py").write_text(BUG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str) -> Result:
    return CliRunner().invoke(main, shlex.split(line))


@pytest.mark.parametrize("shows", ["numbers", "nan"])
@pytest.mark.parametrize(
    "line",
    [
        "play bug.py:alone --no-render --episodes 100",
        "play bug.py:pair --no-render --episodes 100 --agent random",
        "eval bug.py:alone --num-workers 0",
        "eval bug.py:alone --num-workers 1 --step-timeout 20",
        "eval bug.py:pair --agent random --greedy",
        "eval bug.py:pair --agents random,random",
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in (
                "train bug.py:alone --num-envs 4 --num-workers 0 --steps 4096 --eval-interval 0",
                "train bug.py:pair --num-envs 4 --num-workers 1 --steps 4096 --opponent none",
            )
        ),
        "check bug.py:alone --episodes 100",
        "check bug.py:pair --episodes 100",
        "record bug.py:alone --episode-seed 10",
        "bench bug.py:alone --seconds 9",
    ],
)
def test_the_command_of_a_failure_fails_the_same(here: Path, line: str, shows: str) -> None:
    first = run(f"{line} --set one_in=5 --set shows={shows}")
    assert first.exit_code
    last = first.stderr.rstrip().partition(AGAIN)[2]
    assert last.startswith(f"play bug.py:{line.split()[1].partition(':')[2]} ")
    assert f"--set one_in=5 --set shows={shows} " in last
    again = run(last)
    what = r"unlucky \d+" if shows == "numbers" else "must be finite, got nan|field 'x' holds nan"
    assert (found := re.search(what, first.stderr)) is not None
    assert re.search(found[0] if shows == "numbers" else what, again.stderr)
    assert f"\nseed {last.split()[-1]}, episode 0, step " in again.stderr  # from its seed alone
    assert again.stderr.rstrip().partition(AGAIN)[2].split()[-2:] == last.split()[-2:]


WRONG = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

Move = Enum("Move", "LEFT RIGHT")

@dataclass
class Unit:
    x: float

class Other(Unit):
    pass

def play(agent, *, seed: int) -> None:
    if agent.act(Obs().entities([Unit(1.0)]), Move) is None:
        return
    agent.act({shown}, Move)  # wrong
    agent.game_over()

wrong = Game(play, entities=(Unit,), actions=(Move,))
"""


@pytest.mark.parametrize(
    "command",
    [
        "play wrong.py",
        "check wrong.py",
        "eval wrong.py --agent random",
        pytest.param("train wrong.py --num-workers 0 --steps 64", marks=pytest.mark.slow),
        pytest.param("train wrong.py --num-workers 1 --steps 64", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("Obs().entities([Other(1.0)])", "shows a Other, which was not declared"),
        ("Obs().entities([Unit('x')])", "entity Unit: "),
        ("Obs().entities(Unit(1.0))", "entities must be a list, tuple or other collection"),
        ("Obs().visible(Unit, [True, False])", "visible of Unit needs 0 bools"),
        ("Obs().mask(Move, [True])", "the mask of action 'Move' needs the shape"),
        ("Obs().allowed(Unit)", "an action must be an Enum"),
        ("Obs('x')", "the score must be a number, got 'x'"),
    ],
)
def test_a_mistake_in_an_observation_is_one_error_and_a_line_of_the_game(
    here: Path, command: str, shown: str, message: str
) -> None:
    text = WRONG.replace("{shown}", shown)
    (here / "wrong.py").write_text(text)
    line = 1 + text[: text.index("# wrong")].count("\n")
    error = run(command).stderr
    assert error.count(message) == 1
    assert re.search(rf'wrong.py("?, line |:){line}\b', error)
    assert f"{Path(entity_env.__file__).parent}/" not in error
    assert AGAIN in error


def test_options_of_agents_are_those_of_the_failure(here: Path) -> None:
    bot = here / "my bot.py"
    bot.write_text("def first(obs, *actions):\n    return obs.allowed(actions[0])[0]\n")
    line = f"eval bug.py:pair --agents 'random,{bot}:first' --rename A=B --set one_in=1"
    last = run(line).stderr.rstrip().partition(AGAIN)[2]
    assert re.fullmatch(
        rf"play bug.py:pair --agent random --agent '{bot}:first' --rename A=B --seed 0 "
        r"--set one_in=1 --episode-seed \d+",
        last,
    )


def test_a_run_that_is_played_again_begins_the_same(here: Path) -> None:
    """Even if the failure depends on the agents, which use --seed."""
    (here / "moves.py").write_text(
        BUG.replace("agent.act(", "(move := agent.act(")
        .replace("Move) is None", "Move)) is None")
        .replace("is_bad and step == 2:", "move is Move.RIGHT:")
    )
    first = run("play moves.py:alone --no-render")
    again = run(first.stderr.rstrip().partition(AGAIN)[2])
    places = [re.findall(r"^seed .*", each.stderr, re.MULTILINE) for each in (first, again)]
    assert places[0] == places[1]


def test_episodes_name_what_plays_them_again() -> None:
    lines = run("play snake --no-render --episodes 2 --seed 4").stdout.splitlines()
    assert lines[-1] == "seed 4"
    for line in lines[:2]:
        option = line.partition(" (")[2].rstrip(")")
        again = run(f"play snake --no-render {option}")
        assert f"({option})" in again.stdout
        assert re.search(rf"seed \d+, episode seed {option.split()[1]}\n$", again.stdout)


def test_mistakes_that_are_of_no_episode_name_none(here: Path) -> None:
    for line in ("play bug.py:alone --set one_in=x", "play no_game", "eval snake --agent nobody"):
        assert AGAIN not in run(line).stderr


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "loop.py"
    path.symlink_to(path)
    for words in (["play", str(path)], ["play", "snake", "--agent", f"{path}:Bot"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2
        assert result.stderr == f"entity-env: no file {path}\n"


@pytest.mark.parametrize("command", ["play", "record"])
def test_the_seed_of_the_agents_is_named_though_it_was_drawn(here: Path, command: str) -> None:
    result = run(f"{command} bug.py:alone --episode-seed 1000")
    # record stores the agents' thoughts; play needs an option to show them.
    thinking = " --think" if command == "record" else ""
    words = rf"play bug\.py:alone{thinking} --seed \d+ --episode-seed 1000"
    assert re.search(f"^{AGAIN}{words}$", result.stderr, re.MULTILINE)
