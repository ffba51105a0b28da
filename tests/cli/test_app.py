"""Commands without torch: their output, and one line for every error."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from entity_env.agents import RandomAgent
from entity_env.cli import main
from entity_env.games import GAMES, snake
from tests import ROOT
from tests.helpers.readers import GOOD
from tests.helpers.terminals import Terminal

PROGRAM = Path(sys.executable).with_name("entity-env")
BROKEN = """
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0

def step(score):
    return 1 / score

def play(agent, *, seed: int) -> None:
    agent.act(Obs(), Move)
    step(0)

broken = Game(play, entities=(), actions=(Move,))
"""


def run(*args: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, args, input=typed)


def run_program(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *args], text=True, capture_output=True, check=False)


def test_help_is_shown_without_a_command() -> None:
    for args in ([], ["--help"], ["-h"]):
        result = run(*args)
        assert result.exit_code == 0
        assert "my_game.py" in result.stdout
        assert all(name in result.stdout for name in ("games", "play", "train", "eval", "doctor"))


def test_games_lists_all_with_their_settings() -> None:
    result = run("games")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in GAMES)
    assert "board_size=10" in result.stdout
    assert "cheat=False" in result.stdout
    assert "one snake on a" in result.stdout


def test_play_draws_and_reports() -> None:
    result = run("play", "snake", "--seed", "1", "--set", "board_size=5")
    assert result.exit_code == 0
    assert "│ · · · · · │" in result.stdout
    assert re.search(r"episode 1: reward \d+, \d+ steps, over \S+ \d+\)\nseed 1\n$", result.stdout)


@pytest.mark.slow
def test_a_reader_that_ends_is_no_mistake_of_the_game() -> None:
    """Like `entity-env play snake | head -1`."""
    words = [str(PROGRAM), "play", "snake", "--seed", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""


def test_play_repeats_itself_with_the_seed_that_it_names() -> None:
    first = run("play", "snake", "--no-render", "--episodes", "3")
    seed = first.stdout.split()[-1]
    again = run("play", "snake", "--no-render", "--episodes", "3", "--seed", seed)
    assert again.stdout == first.stdout
    assert first.stdout.count("episode ") == 3


def test_play_names_the_agents_of_a_game_for_several() -> None:
    result = run("play", "tic_tac_toe", "--agent", "random", "--no-render", "--seed", "1")
    assert "episode 1, agent 0: reward" in result.stdout
    assert "episode 1, agent 1: reward" in result.stdout


def test_play_draws_by_a_look_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_look.py"
    file.write_text(
        "from rich.text import Text\n"
        "from entity_env.views import Look\n"
        "def draw_text(seen, width):\n"
        "    return Text(f'a head of {len(seen[\"Segment\"])} segments')\n"
        "short = Look(draw_text=draw_text)\n"
    )
    for name in (str(file), f"{file}:short"):
        result = run("play", "snake", "--seed", "1", "--look", name)
        assert result.exit_code == 0
        assert "a head of 0 segments" in result.stdout
    missing = run("play", "snake", "--look", str(tmp_path / "none.py"))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert "there is no such file" in missing.stderr


def test_play_shows_what_an_agent_thinks() -> None:
    agent = str(ROOT / "examples" / "azul" / "azul.agent")
    words = ("--agent", agent, "--set", "max_rounds=1", "--seed", "1")
    result = run("play", "azul", *words, "--think")
    assert result.exit_code == 0
    assert re.search(r"^ *\d+% █* +\d \w+ from factory \d to line \d", result.stdout, re.M)
    assert re.search(r"^value -?\d", result.stdout, re.M)
    assert "value" not in run("play", "azul", *words).stdout


def test_a_person_plays_and_leaves() -> None:
    result = run("play", "snake", "--agent", "human", "--seed", "2", typed="q\n")
    assert result.exit_code == 0
    assert "w UP" in result.stdout
    assert result.stdout.endswith("left before the end\nseed 2\n")


def test_a_person_leaves_a_game_for_two() -> None:
    result = run("play", "rock_paper_scissors", "--agent", "human", typed="r\nq\n")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_person_plays_without_a_picture() -> None:
    typed = "r\np\ns\nr\nr\n"
    result = run(
        "play", "rock_paper_scissors", "--agent", "human", "--no-render", "--seed", "1", typed=typed
    )
    assert "Player strength=" in result.stdout
    assert "Opponent" not in result.stdout
    assert "episode 1, agent 0: reward" in result.stdout


@pytest.mark.slow
def test_eval_reports_figures() -> None:
    result = run("eval", "snake", "--episodes", "20", "--json", "--seed", "3")
    figures = json.loads(result.stdout)
    rewards = figures["rewards"]
    mean = sum(rewards) / 20
    deviation = (sum((reward - mean) ** 2 for reward in rewards) / 19) ** 0.5
    assert len({*rewards}) > 1
    episodes = snake.run(RandomAgent(3), seed=3, episodes=20)
    assert figures["seeds"] == [episode.seed for episode in episodes]
    assert figures["mean_reward"] == pytest.approx(mean)
    assert figures["std_reward"] == pytest.approx(deviation)
    assert figures["ci95"] == pytest.approx(2.093024 * deviation / 20**0.5, rel=1e-6)
    assert figures["episodes"] == 20
    assert result.stderr == ""


def test_eval_of_one_episode_has_no_interval() -> None:
    figures = json.loads(run("eval", "snake", "--episodes", "1", "--json").stdout)
    assert (figures["std_reward"], figures["ci95"]) == (0, None)
    assert run("eval", "snake", "--episodes", "1").stdout.splitlines()[1].split()[2] == "-"


@pytest.mark.slow
def test_eval_is_the_same_with_workers() -> None:
    args = ("eval", "snake", "--episodes", "30", "--json", "--seed", "4")
    alone = json.loads(run(*args, "--num-workers", "0").stdout)
    assert alone["episodes"] == 30
    assert json.loads(run(*args, "--num-workers", "2").stdout) == alone


def test_eval_reports_every_agent() -> None:
    result = run("eval", "rock_paper_scissors", "--episodes", "3", "--json")
    figures = json.loads(result.stdout)
    assert figures["mean_reward"] == figures["agents"][0]["mean_reward"]
    assert figures["agents"][0]["mean_reward"] == -figures["agents"][1]["mean_reward"]
    table = run("eval", "rock_paper_scissors", "--episodes", "3").stdout
    assert table.count("random") == 2
    assert "mean reward" in table


def test_bench_measures_both_ways() -> None:
    result = run("bench", "snake", "--seconds", "0.01", "--num-envs", "2")
    assert result.exit_code == 0
    assert result.stdout.count("steps/s") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("number", "played"), [("1", "29 episodes"), ("40", "40 episodes")])
def test_check_of_a_sound_game_says_so(number: str, played: str) -> None:
    result = run("check", "rock_paper_scissors", "--episodes", number, "--seed", "3")
    assert result.exit_code == 0
    assert result.stdout == f"rock_paper_scissors: no violation of the contract in {played}\n"


CHECKED = """
import random, sys
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0

@dataclass
class Dot:
    x: float

def play(agent, *, seed: int, fault: str) -> None:
    if agent.act(Obs(untyped[fault]).entities([Dot(0)]), Move) is None:
        return
    while fault == "hangs":
        pass
    if fault == "exits":
        sys.exit(0)
    if fault == "shown":
        agent.act(5, Move)
    agent.game_over(Obs(1))

untyped = {"score": [1]}
untyped.update(dict.fromkeys(["hangs", "exits", "shown"], 0), constant=1)
checked = Game(play, entities=(Dot,), actions=(Move,))
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("hangs", ["play hangs, no answer for 0.3 s", ", in play"]),
        ("exits", ["the game called sys.exit(0): return from play instead", ":20 in play"]),
        ("score", ["the score must be a number, got [1] (list)", ":15 in play"]),
        ("shown", ["step 1: an agent was shown 5 (int)", ":22 in play"]),
    ],
)
def test_check_lists_what_is_wrong_with_a_game(
    tmp_path: Path, fault: str, words: Sequence[str]
) -> None:
    file = tmp_path / "checked_game.py"
    file.write_text(CHECKED)
    result = run("check", str(file), "--set", f"fault={fault}", "--step-timeout", "0.3")
    assert result.exit_code == 1
    assert "checked_game: 1 violation of the contract:\n  - " in result.stderr
    assert all(word in result.stderr for word in words)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("sys.exit(0)", "sys.exit(0) was called at "),
        ("raise KeyboardInterrupt", "KeyboardInterrupt was raised at "),
    ],
)
@pytest.mark.parametrize(
    "command", [("play",), ("eval", "--episodes=1"), ("record", "--out=a.replay")]
)
def test_a_bot_that_ends_the_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Sequence[str], how: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leaving_bot.py").write_text(
        f"import sys\n\nclass Leaves:\n    def choose(self, obs, *actions):\n        {how}\n"
    )
    result = run(command[0], "snake", "--agent", "leaving_bot.py:Leaves", *command[1:])
    assert result.exit_code == 2
    file = tmp_path / "leaving_bot.py"
    assert f"entity-env: {words}{file}:5 in choose: it ends the program" in result.stderr


def test_check_shows_the_lines_of_a_game_that_raises(tmp_path: Path) -> None:
    file = tmp_path / "broken_game.py"
    file.write_text(BROKEN)
    result = run("check", str(file))
    assert result.exit_code == 1
    assert "play raised ZeroDivisionError" in result.stderr
    assert "return 1 / score" in result.stderr
    assert "entity_env/" not in result.stderr


def test_check_shows_an_error_whose_class_cannot_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "odd_game.py"
    odd = "class Odd(Exception):\n    __class__ = property(lambda self: 1 / 0)\n\n\n"
    file.write_text(odd + BROKEN.replace("return 1 / score", "raise Odd"))
    result = run("check", str(file))
    assert result.exit_code == 1
    assert "play raised Odd" in result.stderr
    assert "entity_env/" not in result.stderr


@pytest.mark.slow
def test_check_warns_of_a_score_that_never_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "checked_game.py"
    file.write_text(CHECKED)
    assert run("check", str(file), "--set", "fault=constant").exit_code == 0
    assert "checked_game: the score did not change in 1000 episodes" in caplog.text
    caplog.clear()
    assert run("check", "rock_paper_scissors").exit_code == 0
    assert caplog.text == ""


@pytest.mark.slow
@pytest.mark.parametrize(("is_terminal", "patience_s"), [(True, 0.0), (True, 100.0), (False, 0.0)])
def test_check_shows_its_stages_on_a_terminal_when_it_takes_long(
    is_terminal: bool, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    display = "entity_env.cli.display.console"
    monkeypatch.setattr(f"{display}._PATIENCE_S", patience_s)
    monkeypatch.setattr(f"{display}._REFRESH_S", 0.0)
    monkeypatch.setattr(
        f"{display}.Console", lambda stderr: Console(file=shown, force_terminal=is_terminal)
    )
    assert run("check", "rock_paper_scissors").exit_code == 0
    stages = ("playing", "playing two copies in turn", "playing in another process")
    is_shown = is_terminal and not patience_s
    assert [stage in shown.getvalue() for stage in stages] == [is_shown] * 3


def test_check_stops_when_its_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    result = run("check", "multi_snake", "--max-time", "1e-9")
    assert result.exit_code == 3
    assert result.stdout == (
        "multi_snake: unfinished, no violation of the contract in the first steps of an episode "
        "before the time ran out: try --max-time 1\n"
    )
    assert "the check stopped after 2 steps: a larger --max-time" in caplog.text


def test_doctor_reports_what_is_there_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package in ("numba", "jsonschema"):
            raise PackageNotFoundError
        return "1.2.3"

    monkeypatch.setattr("entity_env.cli.commands.info.version", version)
    result = run("doctor")
    assert result.exit_code == 0
    assert re.search(r"^numpy +1\.2\.3$", result.stdout, re.M)
    assert re.search(r"^suspending +works$", result.stdout, re.M)
    assert "torch 1.2.3" in result.stdout
    assert "numba missing: pip install 'entity-env[fast]'" in result.stdout
    assert "jsonschema missing: pip install --no-deps kaggle-environments==" in result.stdout


@pytest.mark.slow
def test_without_greenlet_most_commands_work_and_the_others_name_it() -> None:
    without = "import sys; sys.modules['greenlet'] = None; from entity_env.cli import main; main()"

    def words(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", without, *args]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "suspending   broken: reinstall greenlet" in words("doctor").stdout
    assert words("play", "snake", "--seed", "1").returncode == 0
    for args in (["check", "snake"], ["eval", "snake", "--num-workers", "0"]):
        found = words(*args)
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr.endswith(
            "needs the package 'greenlet', which is not installed: pip install greenlet\n"
        )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["plya", "snake"], "no command 'plya'; did you mean play?"),
        (["walk", "snake"], "no command 'walk'; entity-env --help lists the commands"),
        (["play", "snaek"], "did you mean snake?"),
        (["play", "nowhere.py"], "no file nowhere.py"),
        (["play", "snake", "--agent", "randm"], "did you mean random?"),
        (["play", "snake", "--agent", "no/such/run"], "no/such/run"),
        (
            ["play", "snake", "--agent", "random", "--agent", "random"],
            "snake is for 1 agent, got 2",
        ),
        (["play", "snake", "--set", "board_size=1"], "board_size must be at least 2, got 1"),
        (["play", "snake", "--set", "size=6"], "snake has no setting 'size'; it has board_size"),
        (["play", "snake", "--fsp", "3"], "--fps"),
        (["play", "snake", "--fps", "0"], "--fps"),
        (["play", "snake", "--seed", "-1"], "--seed"),
        (["eval", "snake", "--episodes", "many"], "many"),
        (["eval", "snake", "--agent", "human"], "entity-env play --agent human"),
        (["play", "snake", "--clock", "1"], "--clock is for human players: add --agent human"),
        (["record", "snake", "--clock", "1"], "--clock is for human players: add --agent human"),
        (["play", "snake", "--agent", "human", "--clock", "1"], "a clock needs a terminal"),
        (["play", "azul", "--agent", "human", "--clock", "1"], "are typed in the terminal"),
        (["play", "snake", "--agent", "human", "--clock", "0"], "--clock"),
        (["bench", "snake", "--set", "board_size=0"], "board_size must be at least 2"),
        (["check", "snaek"], "did you mean snake?"),
        (["check", "snake", "--set", "board_size=0"], "board_size must be at least 2"),
        (["check", "snake", "--episodes", "0"], "--episodes"),
        (["train", "snaek"], "did you mean snake?"),
        (["train", "snake", "--steps", "0"], "--steps"),
        (["train", "snake", "--gamma", "2", "--out", "unused"], "must be a number from 0 to 1"),
        (["train", "snake", "--resume", "--out", "unused"], "no checkpoint at unused"),
    ],
)
def test_one_line_says_what_is_wrong(args: Sequence[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("entity-env: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("args", "message", "then"),
    [
        (["play"], "argument 'GAME'", "usage: main play [OPTIONS] GAME"),
        (["verify"], "argument 'FILES...'", "usage: main verify [OPTIONS] FILES..."),
        (["draw", "x.replay"], "option '--out'", "usage: main draw [OPTIONS] FILE"),
        (["play", "snake", "azul"], "argument (azul)", "usage: main play [OPTIONS] GAME"),
        (["play", "snake", "--xyz"], "option '--xyz'", "main play --help lists the options"),
        (["--xyz"], "option '--xyz'", "main --help lists the options"),
    ],
)
def test_a_second_line_says_what_to_type(args: Sequence[str], message: str, then: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("entity-env: ")
    assert message in first
    assert second == then


@pytest.mark.parametrize("command", ["play", "eval", "bench"])
def test_a_bug_in_a_game_is_shown_from_its_own_frames_on(tmp_path: Path, command: str) -> None:
    file = tmp_path / "broken_game.py"
    file.write_text(BROKEN)
    result = run(command, str(file))
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{file}", line 13, in play'
    assert "ZeroDivisionError" in result.stderr
    assert "entity_env" not in result.stderr.replace(str(tmp_path), "")


HANGS = """
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0

def search():
    while True:
        pass

def play(agent, *, seed: int, fails: bool = False) -> None:
    agent.act(Obs(), Move)
    if fails and seed % 2:
        raise RuntimeError("stumbled")
    if not fails:
        search()
    agent.game_over(Obs(1.0))

hangs = Game(play, entities=(), actions=(Move,))
"""


@pytest.fixture
def hangs(tmp_path: Path) -> str:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS)
    return str(path)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no SIGALRM here")
@pytest.mark.parametrize(
    "command",
    [
        ("play", "--no-render"),
        ("eval", "--num-workers=0"),
        ("eval", "--num-workers=1", "--episodes=2"),
    ],
    ids=" ".join,
)
def test_a_game_that_hangs_is_shown_where_it_hangs(hangs: str, command: Sequence[str]) -> None:
    name, *options = command
    result = run(name, hangs, *options, "--step-timeout=0.2")
    assert result.exit_code == 1
    assert re.search(r'hangs.py", line \d+,? in search', result.stderr)
    assert re.search(
        r"hangs: no answer for 0.2 s.*\(.*seed \d+, episode 0, step 1\)", result.stderr
    )


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no SIGALRM here")
@pytest.mark.parametrize(
    "command",
    [
        "play snake --no-render --agent",
        "record snake --out {folder}/new.replay --agent",
        "replay {folder}/old.replay --game snake --take-over 2 --out {folder}/new.replay --agent",
        "dataset --game snake --out {folder}/new.npz --play",
        "clone snake --out {folder}/run --play",
        "eval snake --episodes 2 --agent",
    ],
)
def test_a_bot_that_hangs_is_shown_where_it_hangs(tmp_path: Path, command: str) -> None:
    bot = tmp_path / "bot.py"
    bot.write_text("def choose(obs, *actions):\n    while True:\n        pass\n")
    assert run("record", "snake", "--seed=1", f"--out={tmp_path / 'old.replay'}").exit_code == 0
    words = command.format(folder=tmp_path).split()
    result = run(*words, f"{bot}:choose", "--step-timeout=0.2")
    assert result.exit_code == 1, result.output
    assert re.search(r'bot.py", line \d+,? in choose', result.stderr)
    assert "bot.py:choose) hangs: no answer for 0.2 s" in result.stderr


@pytest.mark.parametrize("num_workers", [0, 1])
def test_eval_goes_on_with_restart_and_says_what_failed(hangs: str, num_workers: int) -> None:
    words = ("eval", hangs, "--set", "fails=true", "--episodes=40", "--json")
    result = run(*words, f"--num-workers={num_workers}", "--on-error=restart")
    assert result.exit_code == 0
    failed = re.search(r"^(\d+) of 40 episodes failed, and count with their reward", result.stderr)
    assert failed
    assert json.loads(result.stdout)["mean_reward"] == pytest.approx(1 - int(failed[1]) / 40)
    stopped = run(*words, f"--num-workers={num_workers}")
    assert stopped.exit_code == 1
    assert "stumbled" in stopped.stderr


@pytest.mark.parametrize("seconds", ["nan", "-1", "x", "inf"])
def test_a_step_timeout_that_makes_no_sense(seconds: str) -> None:
    for command in ("play", "eval", "train"):
        result = run(command, "snake", f"--step-timeout={seconds}")
        assert result.exit_code == 2
        assert "--step-timeout" in result.stderr


def test_restart_where_games_are_played_one_by_one() -> None:
    for words in (("--episodes=1",), ("--agents=random,random", "--games=2")):
        assert run("eval", "tic_tac_toe", *words, "--on-error=restart").exit_code == 0


def test_a_violation_of_the_contract_is_shown_where_the_game_breaks_it(tmp_path: Path) -> None:
    file = tmp_path / "undeclared_game.py"
    file.write_text(BROKEN.replace("actions=(Move,)", "actions=()"))
    result = run("play", str(file))
    assert result.exit_code == 1
    assert "agent.act(Obs(), Move)" in result.stderr
    assert "asked for the action Move, which was not declared" in result.stderr


@pytest.mark.slow
def test_the_program_itself_exits_as_it_should() -> None:
    played = run_program("play", "snake", "--no-render", "--seed", "1")
    assert (played.returncode, played.stderr) == (0, "")
    refused = run_program("play", "snaek")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == "entity-env: no game 'snaek'; did you mean snake?\n"


@pytest.mark.slow
def test_the_command_line_loads_no_torch() -> None:
    script = (
        "import sys, entity_env.cli\n"
        "try: entity_env.cli.main(['eval', 'snake', '--episodes', '1'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "code"), [("\x1b[Aq", 0), ("\x03", 0)])
def test_a_person_plays_on_a_terminal_and_leaves_it_as_it_was(keys: str, code: int) -> None:
    with Terminal() as terminal:
        process = subprocess.Popen(
            [PROGRAM, "play", "snake", "--agent", "human", "--seed", "1"],
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"},
        )
        try:
            assert "↑ UP" in terminal.wait_for("q quit")
            if keys == "\x03":
                process.send_signal(signal.SIGINT)
            else:
                terminal.type(keys)
            terminal.wait_for("seed 1")
            assert process.wait() == code
        finally:
            process.kill()
            process.wait()
        assert terminal.is_restored


@pytest.mark.slow
@pytest.mark.parametrize("command", ["play", "record"])
def test_a_person_plays_with_a_clock(command: str, tmp_path: Path) -> None:
    """After the first key, the snake runs into the wall by itself."""
    with Terminal() as terminal:
        process = subprocess.Popen(
            [PROGRAM, command, "snake", "--agent", "human", "--seed", "8", "--clock", "0.01"],
            cwd=tmp_path,
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"},
        )
        try:
            terminal.wait_for("Move (no limit, then 0.01 s each)")
            terminal.type("d")
            assert "(0.01 s, then RIGHT)" in terminal.wait_for("game over")
            terminal.wait_for("seed 8" if command == "play" else "see it again")
            assert process.wait() == 0
        finally:
            process.kill()
            process.wait()
        assert terminal.is_restored


LONG = "x" * 300


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["play", f"{LONG}.py"], "no game .*: File name too long"),
        (["play", LONG], "no game .*: File name too long"),
        (["play", "snake", "--agent", LONG], "no agent .*: File name too long"),
        (["eval", "snake", "--agent", f"{LONG}.agent"], "no agent .*: File name too long"),
        (["export", LONG, "x.agent"], "cannot read .*: File name too long"),
        (["play", "snake", "--fps", "nan"], "must be a number.*, got '(nan|inf)'"),
        (["play", "snake", "--fps", "1e-300"], "must be a number, 0.001 or more, got"),
        (["play", "snake", "--temperature", "inf"], "must be a number.*, got '(nan|inf)'"),
        (["eval", "snake", "--seed", str(10**26)], "must be an integer from [01] to .*, got '1000"),
        (
            ["eval", "snake", "--episodes", str(10**26)],
            "must be an integer from [01] to .*, got '1000",
        ),
        (["bench", "snake", "--seconds", "nan"], "must be a number.*, got '(nan|inf)'"),
        (
            ["bench", "snake", "--num-envs", str(10**9)],
            "must be an integer from [01] to .*, got '1000",
        ),
        (["train", "pixel", "--num-workers", "0"], "setting 'rom' has no default"),
        (
            ["train", "snake", "--seed", str(10**26)],
            "must be an integer from [01] to .*, got '1000",
        ),
        (
            ["train", "snake", "--steps", str(10**26)],
            "must be an integer from [01] to .*, got '1000",
        ),
        (
            ["train", "snake", "--num-steps", str(10**26)],
            "must be an integer from [01] to .*, got '1000",
        ),
        (["train", "snake", "--learning-rate", "inf"], "must be a number.*, got '(nan|inf)'"),
        (
            ["train", "snake", "--set-train", "net.d_model=99999999"],
            "d_model must be an integer from 1 to 65536",
        ),
        (
            ["train", "snake", "--set-train", "net.n_layer=99999999"],
            "n_layer must be an integer from 0 to 1000",
        ),
        (["train", "snake", "--set-train", "net.d_model=65536"], "more than 268435456 parameters"),
        (["train", "snake", "--out", "\udcff"], "--out must be text in UTF-8"),
    ],
)
def test_values_beyond_all_bounds_are_one_line(args: Sequence[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert re.fullmatch(rf"entity-env: .*{message}.*\n", result.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("args", [("doctor",), ("games",), ("-h",)])
def test_a_full_disk_as_stdout_is_one_line(args: Sequence[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "entity-env: No space left on device\n")


@pytest.mark.slow
def test_a_closed_stdout_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" doctor >&-', PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise MemoryError("Unable to allocate 1. TiB")

    monkeypatch.setattr("platform.platform", fail)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stderr == ("entity-env: not enough memory: Unable to allocate 1. TiB\n")


@pytest.mark.slow
def test_names_that_are_no_text_are_shown(tmp_path: Path) -> None:
    agent = os.fsencode(tmp_path) + b"/\xff.agent"
    done = subprocess.run(
        [os.fsencode(PROGRAM), b"export", os.fsencode(GOOD / "checkpoint"), agent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\udcff.agent: " in done.stdout
