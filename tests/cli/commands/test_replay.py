"""`record`, `replay`, `verify` and `draw`: episodes as files, as users run them."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entity_env.agents import load_agent
from entity_env.cli import main
from entity_env.replay import Replay
from tests import ROOT
from tests.helpers.terminals import Terminal

GOLDEN = ROOT / "tests" / "data" / "replays"
GAME = """
import random
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

@dataclass
class Dot:
    x: int

class Go(Enum):
    LEFT = 0
    RIGHT = 1

def play(agent, *, seed: int, length: int = 5) -> None:
    rng, x = random.Random(seed), 0
    for _ in range(length):
        go = agent.act(Obs(x).entities([Dot(x)]), Go)
        if go is None:
            return
        x += go.value + rng.randrange(3)
    agent.game_over(Obs(x))

dots = Game(play, entities=(Dot,), actions=(Go,), name="dots")
"""


def run(*args: str | Path | int) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dots.py").write_text(GAME)
    return tmp_path


def recorded(path: Path, seed: int = 1) -> Replay:
    assert run("record", "dots.py", "--seed", str(seed), "--out", path).exit_code == 0
    return Replay.load(path)


def test_an_episode_is_recorded_and_verified(here: Path) -> None:
    result = run("record", "dots.py", "--seed", "3")
    assert result.exit_code == 0
    assert re.fullmatch(
        r"dots\.replay: 5 decisions, reward \d+, \d+ bytes\n"
        r"see it again: entity-env replay dots\.replay\n",
        result.output,
    )
    replay = Replay.load(here / "dots.replay")
    assert replay.header.source == "dots.py:dots"
    assert replay.header.run == {"seed": 3, "episode": 0}
    assert replay.header.agents == [{"name": "random"}]
    result = run("verify", "dots.replay")
    assert (result.exit_code, result.output) == (0, "dots.replay: same, 5 decisions\n")


def test_an_episode_is_found_by_its_own_seed(here: Path) -> None:
    seed = recorded(here / "a.replay").header.episode_seed
    assert run("record", "dots.py", "--episode-seed", seed, "--out", "b.replay").exit_code == 0
    assert Replay.load(here / "b.replay").header.episode_seed == seed
    result = run("play", "dots.py", "--episode-seed", seed, "--no-render")
    assert result.output.endswith(f"episode seed {seed}\n")
    result = run("play", "dots.py", "--episode-seed", seed, "--episodes", 2)
    assert result.exit_code == 2
    assert "--episode-seed plays one episode: leave out --episodes 2" in result.output


@pytest.mark.slow
def test_a_changed_game_is_found(here: Path) -> None:
    recorded(here / "x.replay")
    (here / "dots.py").write_text(GAME.replace("rng.randrange(3)", "rng.randrange(3) + 1"))
    result = run("verify", "x.replay", GOLDEN / "snake.replay")
    assert result.exit_code == 1
    assert re.match(
        r"x\.replay: diverged: agent 0, step 1: Dot 0: x was \d, is \d now\n", result.output
    )
    assert "snake.replay: same" in result.output


@pytest.mark.slow
def test_a_game_that_hangs_now_is_stopped(here: Path) -> None:
    recorded(here / "x.replay")
    hanging = GAME.replace(
        "        x += go", "        while x > 2:\n            pass\n        x += go"
    )
    (here / "dots.py").write_text(hanging)
    result = run("verify", "x.replay", "--step-timeout", "0.5")
    assert result.exit_code == 1
    assert "x.replay: diverged" in result.output
    assert "0.5 s" in result.output


def test_what_cannot_be_played(here: Path) -> None:
    recorded(here / "x.replay")
    (here / "dots.py").unlink()
    (here / "y.replay").write_text("hello\n")
    result = run("verify", "x.replay", "y.replay", "z.replay")
    assert result.exit_code == 2
    assert (
        "x.replay is a replay of the game 'dots' in dots.py:dots, which is not here"
        in result.output
    )
    assert "y.replay is not a replay: line 1 is not JSON" in result.output
    assert "cannot read z.replay: No such file" in result.output


def test_a_replay_from_anywhere_loads_nothing_but_what_is_below(here: Path) -> None:
    (here / "evil.py").write_text("open('loaded', 'w')\n" + GAME)
    recorded(here / "x.replay")
    sub = here / "sub"
    sub.mkdir()
    for source in ("../evil.py:dots", str(here / "evil.py") + ":dots", "evil:dots"):
        replay = Replay.load(here / "x.replay")
        object.__setattr__(replay.header, "source", source)
        replay.save(sub / "y.replay")
        os.chdir(sub)
        assert run("verify", "y.replay").exit_code == 2
    assert not list(here.rglob("loaded"))


def test_a_replay_is_shown_step_by_step_outside_of_a_terminal(here: Path) -> None:
    recorded(here / "x.replay")
    result = run("replay", "x.replay", "--from", 3)
    assert result.exit_code == 0
    assert all(word in result.output for word in ("step 3", "step 4", "game over"))
    assert "step 2" not in result.output
    result = run("replay", "x.replay", "--from", 6)
    assert result.exit_code == 2
    assert "x.replay has 6 frames: --from must be below, got 6" in result.output


@pytest.mark.slow
def test_other_agents_take_over(here: Path) -> None:
    before = recorded(here / "x.replay")
    result = run("replay", "x.replay", "--take-over", 2, "--agent", "random", "--seed", 5)
    assert result.exit_code == 0, result.output
    after = Replay.load(here / "x-from-2.replay")
    assert after.lines[:2] == before.lines[:2]
    assert after.header.parent == {"sha": before.sha, "at": 2}
    assert after.is_whole
    assert run("verify", "x-from-2.replay").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--take-over", "9"], "x.replay has 5 decisions: expected 0 to 5, got 9"),
        (["--agent", "random"], "--agent and --out go with --take-over"),
        (["--debug", "1", "--take-over", "1"], "--debug and --take-over cannot be combined"),
        (["--debug", "5"], "x.replay has 5 decisions: there is no decision 5"),
        (["--take-over", "1", "--out", "x.json"], "a replay must be called NAME.replay"),
        (["--take-over", "1", "--out", "dots.py"], "a replay must be called NAME.replay"),
    ],
)
def test_options_that_cannot_be(here: Path, options: list[str], message: str) -> None:
    recorded(here / "x.replay")
    result = run("replay", "x.replay", *options)
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["agent.act(", "agent.act_async("])
def test_debug_stops_in_the_game(here: Path, ask: str) -> None:
    game = GAME.replace("agent.act(", ask)
    if "async" in ask:
        game = game.replace("[Dot(x)]), Go)", "[Dot(x)]), Go).get()")
    (here / "dots.py").write_text(game)
    recorded(here / "x.replay")
    done = subprocess.run(
        [Path(sys.executable).with_name("entity-env"), "replay", "x.replay", "--debug", "-1"],
        input="p 'x is', x, go\nc\n",
        text=True,
        capture_output=True,
        check=True,
    )
    assert "decision 4 of 5" in done.stdout
    assert "dots.py" in done.stdout
    assert re.search(r"\('x is', \d+, <Go\.", done.stdout)
    assert done.stdout.endswith("the game played as recorded\n")


@pytest.mark.slow
def test_a_terminal_pauses_steps_and_leaves(here: Path) -> None:
    recorded(here / "x.replay")
    with Terminal() as terminal:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("entity-env"), "replay", "x.replay", "--fps", "0.01"],
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        try:
            terminal.wait_for("0/5, 0.01 per second")
            terminal.type(" ")
            terminal.wait_for("0/5, paused")
            terminal.type("\x1b[C")
            terminal.wait_for("1/5, paused")
            terminal.type("\x1b[C\x1b[C\x1b[D")
            terminal.wait_for("3/5, paused")
            terminal.wait_for("2/5, paused")
            terminal.type("q")
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
        assert terminal.is_restored


@pytest.mark.slow
def test_into_a_pipe_a_replay_runs_to_its_end_without_keys(here: Path) -> None:
    recorded(here / "x.replay")
    with Terminal() as terminal:
        shown = subprocess.run(
            [Path(sys.executable).with_name("entity-env"), "replay", "x.replay", "--fps", "0.01"],
            stdin=terminal.theirs,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        )
    assert "game over" in shown.stdout


@pytest.mark.parametrize("name", ["x.html", "x.svg"])
def test_a_replay_is_drawn(here: Path, name: str) -> None:
    recorded(here / "x.replay")
    result = run("draw", "x.replay", "--out", name)
    assert re.fullmatch(rf"{re.escape(name)}: \d+ KiB, from 6 pictures\n", result.output)
    assert "dots" in (here / name).read_text()


def test_a_film_of_several_agents_is_named_after_the_one_whose_view_it_shows(here: Path) -> None:
    replay = GOLDEN / "rock_paper_scissors.replay"
    count = len(Replay.load(replay).animation())
    for name, words in {
        "x.svg": f"{count // 2} pictures, as RandomAgent 1 sees them",
        "x.html": f"{count} pictures",
        "x.png": f"{count} pictures",
    }.items():
        result = run("draw", replay, "--out", name)
        assert re.fullmatch(rf"{re.escape(name)}: \d+ KiB, from {words}\n", result.output)


def test_a_file_name_adds_no_line_to_the_report(here: Path) -> None:
    recorded(here / "x.replay")
    name = "a\nb.replay: same, 9 decisions"
    (here / "x.replay").rename(here / name)
    assert len(run("verify", name).output.splitlines()) == 1
    (here / name).write_bytes(b"")
    assert len(run("verify", name).output.splitlines()) == 1


def test_a_replay_is_drawn_without_its_game(here: Path) -> None:
    recorded(here / "x.replay")
    (here / "dots.py").unlink()
    assert run("draw", "x.replay", "--out", "x.html").exit_code == 0
    result = run("draw", "x.replay", "--out", "x.bmp")
    assert result.exit_code == 2
    assert "expected a file with the ending" in result.output


@pytest.mark.slow
def test_what_an_agent_thinks_is_drawn(here: Path) -> None:
    agent = ROOT / "examples" / "ship" / "snake.agent"
    replay = Replay.load(GOLDEN / "snake.replay")
    stills = replay.animation(thinker=load_agent(agent)).stills  # type: ignore[arg-type]  # trained
    assert all(len(still.attention) == len(still.words) for still in stills if not still.end)
    assert {len(still.actors[0].bars) for still in stills if not still.end} == {4}
    for ending in ("html", "svg", "png", "gif"):
        sizes = []
        for words in ((), ("--agent", agent)):
            result = run("draw", GOLDEN / "snake.replay", "--out", f"x.{ending}", *words)
            assert result.exit_code == 0
            sizes.append((here / f"x.{ending}").stat().st_size)
        assert sizes[0] < sizes[1], f"thoughts are in a .{ending}"
    result = run("draw", GOLDEN / "snake.replay", "--out", "x.html", "--agent", "random")
    assert (result.exit_code, "a RandomAgent does not compute probabilities" in result.output) == (
        2,
        True,
    )


@pytest.mark.slow
def test_a_file_writes_no_control_characters_to_the_terminal() -> None:
    recorded(Path("x.replay"))
    replay = Replay.load("x.replay")
    failed = Replay(replay.header, replay.lines, failure="\x1b]0;title\x07 boom")
    failed.save("x.replay")
    for command in ("verify", "replay"):
        output = run(command, "x.replay").output
        assert "\\x1b]0;title\\x07 boom" in output
        assert not {"\x1b", "\x07"} & set(output)


@pytest.mark.parametrize(
    "command",
    [
        ["draw", "a.replay", "--out", "a.html"],
        ["draw", "a.replay", "--out", "a.png"],
        ["replay", "a.replay"],
        ["dataset", "a.replay", "--out", "a.npz"],
        ["clone", "dots.py", "a.replay", "--out", "clone"],
    ],
    ids=lambda command: command[0],
)
def test_a_replay_that_shows_too_much_is_refused_in_a_line(here: Path, command: list[str]) -> None:
    recorded(here / "a.replay")
    result = run(*command, "--max-shown", 10)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "a.replay shows more than 10 entities and features" in line
    assert "--max-shown" in line
    assert not {*here.glob("a.[hpn]*"), *here.glob("clone")}


@pytest.mark.slow
def test_a_replay_of_too_many_agents_is_not_shown_in_the_terminal(here: Path) -> None:
    replay = recorded(here / "a.replay")
    header = dataclasses.replace(replay.header, num_agents=10**6, agents=(), source="gone.py:gone")
    Replay(header, replay.lines).save(here / "many.replay")
    result = run("replay", "many.replay", "--max-shown", 5_000_000)
    assert result.exit_code == 2
    assert "shows 1000000 agents" in result.stderr
    assert "--max-shown" in result.stderr
    assert run("draw", "many.replay", "--out", "many.html").exit_code == 0
