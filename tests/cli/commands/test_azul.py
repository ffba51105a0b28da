"""Azul on the command line: people who play, people who watch, and matches."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from rich.console import Console

from entity_env import Game, Obs, Turn, UsageError
from entity_env.agents import Agent, RandomAgent as RandomEntities
from entity_env.cli import main
from entity_env.cli.commands.eval import split_names
from entity_env.cli.display.console import ProgressBar
from entity_env.cli.display.match_tables import match_json, match_table
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.load_game import AgentLoader, load_player, load_players, player_names
from entity_env.games import tic_tac_toe
from entity_env.games.azul import (
    GameState,
    GreedyAgent,
    MCTSAgent,
    RandomAgent,
    RushAgent,
    azul,
    azul_by_id,
    legal_actions,
    legal_moves,
)
from entity_env.games.azul.players.named import PositionAgent, players
from entity_env.games.tic_tac_toe import Square
from entity_env.vec.evaluation.matches import MatchGames
from tests.games.azul.recorded_games import observation_of, states
from tests.helpers.terminals import Terminal

PROGRAM = Path(sys.executable).with_name("entity-env")


def run(*args: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, args, input=typed)


def without_progress(text: str) -> str:
    """Without the lines of progress that a busy machine prints."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("playing: "))


# --------------------------------------------------------------------------- watching


def test_games_lists_azul() -> None:
    listed = CliRunner().invoke(main, ["games"], env={"COLUMNS": "400"}).stdout
    assert re.search(r"^azul +2 .* two to four players take tiles in turn", listed, re.M)
    assert re.search(r"^azul_by_id +2 .* Azul with moves chosen by id", listed, re.M)


@pytest.mark.slow
def test_agents_are_watched() -> None:
    result = run("play", "azul", "--agent", "greedy", "--seed", "1")
    assert (result.exit_code, without_progress(result.stderr)) == (0, "")
    frames = result.stdout.split("Azul, ")
    assert frames[1].startswith("round 1: ")
    assert "over after round" in frames[-1]
    assert "greedy: 0 points" in frames[1]
    assert "random: 0 points" in frames[1]
    told = r"^greedy  step \d+ +score \d+ +\d \w+ from factory \d to line \d$"
    assert re.search(told, result.stdout, re.M)
    assert re.search(r"episode 1: greedy \d+, random \d+; won by greedy after", result.stdout)
    assert result.stdout.endswith("seed 1\n")


@pytest.mark.slow
def test_a_seed_repeats_the_games() -> None:
    args = ("play", "azul", "--agent", "rush", "--episodes", "3", "--no-render")
    first = run(*args)
    seed = first.stdout.split()[-1]
    assert run(*args, "--seed", seed).stdout == first.stdout
    assert len(re.findall(r"^episode \d: rush \d+, random \d+; won by", first.stdout, re.M)) == 3


@pytest.mark.slow
def test_there_are_seats_for_everybody_who_was_named() -> None:
    result = run("play", "azul", "--no-render", *["--agent", "greedy"] * 3, "--seed", "1")
    assert re.search(r"greedy 1 \d+, greedy 2 \d+, greedy 3 \d+; ", result.stdout)
    result = run("play", "azul", "--no-render", "--set", "num_players=4", "--seed", "1")
    assert "random 4" in result.stdout


def test_a_game_that_is_cut() -> None:
    result = run("play", "azul", "--no-render", "--set", "max_rounds=2", "--seed", "1")
    assert re.search(r"random 2 \d+; truncated after 2 rounds \S+ \d+\)$", result.stdout, re.M)


# --------------------------------------------------------------------------- a person


def test_a_person_plays_a_round_and_leaves() -> None:
    typed = "1 w 9\nnonsense\n?\nc b 2\n1 w 2\nq\n"
    agents, seed = ("--agent", "human", "--agent", "greedy"), "6917894511507739707"
    result = run("play", "azul", *agents, "--seed", "14", "--episode-seed", seed, typed=typed)
    assert (result.exit_code, without_progress(result.stderr)) == (0, "")
    out = result.stdout
    assert "there are lines 1 to 5, and the floor: got 9" in out
    assert "write source, color and place" in out
    assert "floor  takes all of these" in out
    assert "blue from the center to line 2: there is none" in out
    assert "Azul, round 1: you to take tiles" in out
    assert re.search(r"^you     step 0  score 0  2 white from factory 1 to line 2", out, re.M)
    assert re.search(r"^greedy  step 0  score 0  \d \w+ from ", out, re.M)
    assert out.endswith(f"left before the end\nseed 14, episode seed {seed}\n")
    # Only questions are drawn again; errors are printed alone.
    assert out.count("Azul, round 1: you to take tiles") == 2


@pytest.mark.parametrize("typed", ["", "quit\n", "Q\n", "exit\n"])
def test_a_person_leaves_at_once(typed: str) -> None:
    result = run("play", "azul", "--agent", "human", "--seed", "1", typed=typed)
    assert result.exit_code == 0
    assert result.stdout.endswith("left before the end\nseed 1\n")


def test_a_person_plays_to_the_end_without_pictures_of_the_others() -> None:
    typed = "".join(f"{source} {colour} f\n" for source in "12345c" for colour in "byrkw") * 30
    result = run(
        "play",
        "azul",
        *("--agent", "human", "--no-render", "--set", "max_rounds=2", "--seed", "5"),
        typed=typed,
    )
    assert result.exit_code == 0
    assert "truncated after 2 rounds" in result.stdout
    assert "random to take tiles" not in result.stdout


@settings(max_examples=20, deadline=None)
@given(state=states(max_moves=80))
def test_the_list_of_what_is_legal_is_complete(state: GameState) -> None:
    listed = set()
    for line in legal_moves(state)[:-1]:
        source, *groups = re.split(r"\s{2,}", line.strip())
        for group in groups:
            colour, *places = group.split()
            listed |= {(source, colour, place) for place in places}
        assert len(line) < 80
    legal = {
        ("center" if s == 9 else str(s + 1), "BYRKW"[c], str(d + 1))
        for s, c, d in legal_actions(state)
        if d < 5
    }
    assert listed == legal


def frame_of(state: GameState, player: int, width: int, height: int, *notes: str) -> list[str]:
    """The frame that a person in a seat sees before deciding."""
    seen = observation_of(state, player)
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    names = ["greedy"] * state.num_players
    game = azul.with_settings(num_players=state.num_players)
    with TerminalView(game, console, humans=(player,), names=names) as view:
        view.show(player, seen, *notes)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", console.file.getvalue()).replace("\r", "")
    return text.rstrip("\n").split("\n")


@settings(max_examples=20, deadline=None)
@given(state=states(max_moves=100))
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_a_frame_fits_the_terminal(width: int, height: int, state: GameState) -> None:
    player = state.current_player
    for notes in (["what to type"], [*legal_moves(state), "what to type"]):
        lines = frame_of(state, player, width, height, *notes)
        assert len(lines) <= height - 2
        assert all(len(line) <= width for line in lines)
        assert lines[-len(notes) :] == notes
        text = "\n".join(lines)
        assert "Azul, " in text
        assert "you: " in text
        if len(notes) == 1:
            assert "Floor" in text
            assert "you   " in text
            assert "step 0" in text


def test_what_others_did_is_told_before_a_person_moves() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    game = azul.with_settings(num_players=3)
    names = ["human", "greedy", "rush"]
    turns: list[Turn] = []
    agents = load_players(game, ["random", "greedy", "rush"], 1, AgentLoader())
    game.run(*agents, watch=turns.append)
    with TerminalView(game, console, humans=(0,), names=names) as view:
        for turn in turns[:6]:
            view(turn)
        view.show(0, turns[6].observation)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().split("azul  episode 1")[-1]
    assert len(re.findall(r"(you|greedy|rush) +step \d  score 0  \d \w+ from", last)) == 3


@pytest.mark.slow
def test_on_a_terminal_frames_take_the_place_of_each_other() -> None:
    with Terminal() as terminal:
        process = subprocess.Popen(
            [PROGRAM, "play", "azul", "--agent", "human", "--agent", "greedy", "--seed", "14"],
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        )
        try:
            first = terminal.wait_for("Your move: ")
            assert "\x1b[" in first
            assert "q leaves" in first
            terminal.type("1 purple 2\n")
            wrong = terminal.wait_for("Your move: ")
            assert "got 'purple'" in wrong
            assert re.search(r"\x1b\[\d+A", wrong), "it goes back to where the table began"
            terminal.type("1 w 2\n")
            answer = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", terminal.wait_for("Your move: "))
            assert re.search(r"greedy  step 0  score 0  \d \w+ from", answer)
            terminal.type("q\n")
            assert "left before the end" in terminal.wait_for("seed 14")
            assert process.wait() == 0
        finally:
            process.kill()
            process.wait()
        assert terminal.is_restored


# --------------------------------------------------------------------------- agents


def test_agents_by_name() -> None:
    load = AgentLoader()
    kinds = {"random": RandomAgent, "greedy": GreedyAgent, "rush": RushAgent, "mcts": MCTSAgent}
    for name, kind in {**kinds, "mcts:0.5": MCTSAgent}.items():
        agent = load_player(azul, name, 0, load)
        assert isinstance(agent, PositionAgent)
        assert type(agent.agent) is kind
    assert players.names == (*kinds, "mcts:SECONDS")


@pytest.mark.parametrize("name", ["mcts:", "mcts:0", "mcts:-1", "mcts:x", "mcts:inf", "mcts:nan"])
def test_seconds_that_cannot_be(name: str) -> None:
    with pytest.raises(UsageError, match=f"mcts needs seconds per move, above 0.*got '{name}'"):
        load_player(azul, name, 0, AgentLoader())


def test_seats() -> None:
    assert players.seated(azul, 3).num_agents == 3
    assert players.seated(azul, 9).num_agents == 4
    assert players.seated(azul, 1) is azul
    assert players.seated(azul.with_settings(num_players=2), 3).num_agents == 2
    three = azul.with_settings(num_players=3, max_rounds=7)
    assert player_names(three, ["greedy"]) == ("greedy", "random", "random")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A barely trained checkpoint for each of the games."""
    ppo = pytest.importorskip("entity_env.agents.ppo")
    from entity_env.agents.rogue_net import RogueNetConfig
    from entity_env.games import snake
    from entity_env.vec import VecEnv

    folder = tmp_path_factory.mktemp("trained")
    config = ppo.PPOConfig(
        total_steps=64,
        num_steps=8,
        minibatch_size=32,
        update_epochs=1,
        net=RogueNetConfig(d_model=16, n_layer=1, n_head=1),
    )
    for game in (azul, azul_by_id, tic_tac_toe, snake):
        with VecEnv(game, 2) as vec:
            ppo.train(vec, config, out=folder / game.name)
    return {name: folder / name for name in ("azul", "azul_by_id", "tic_tac_toe", "snake")}


@pytest.mark.slow
def test_trained_agents_play(trained: dict[str, Path]) -> None:
    for name in ("azul", "azul_by_id"):
        agents = load_players(azul, [str(trained[name]), "random"], 1, AgentLoader())
        assert isinstance(agents[0], PositionAgent) is (name == "azul_by_id")
        assert len(azul.with_settings(max_rounds=2).run(*agents)) == 2
    names = f"{trained['azul']},{trained['azul_by_id']},random"
    told = run("eval", "azul", "--agents", names, "--games", "2", "--set", "max_rounds=1", "--json")
    assert {row["name"] for row in json.loads(told.stdout)["agents"]} == set(names.split(","))
    watched = run(
        "play", "azul", "--agent", str(trained["azul"]), "--no-render", "--set", "max_rounds=1"
    )
    assert watched.stdout.startswith("episode 1: azul ")


@pytest.mark.slow
def test_trained_agents_repeat_themselves(trained: dict[str, Path]) -> None:
    args = ("eval", "azul", "--agents", f"{trained['azul']},random", "--games", "4", "--json")
    short = (*args, "--set", "max_rounds=2", "--seed", "9")
    assert run(*short).stdout == run(*short).stdout
    assert run(*short, "--greedy").exit_code == 0


@pytest.mark.slow
def test_agents_of_another_game_are_refused(trained: dict[str, Path]) -> None:
    result = run("eval", "azul", "--agents", f"{trained['snake']},random", "--games", "2")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "the checkpoint was trained for a different game" in result.stderr


# --------------------------------------------------------------------------- matches


def test_a_match_reports_rates_and_ratings() -> None:
    args = ("eval", "azul", "--agents", "greedy, random", "--games", "10", "--seed", "2")
    result = run(*args)
    assert (result.exit_code, without_progress(result.stderr)) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["agent", "Elo", "win", "rate", "95", "%", "mean", "score", "games"]
    assert re.match(r"greedy +\+\d+ +100\.0% +72\.2% to 100\.0% +\d\d\.\d\d +10", lines[1])
    assert lines[2].startswith("random ")
    told = json.loads(run(*args, "--json").stdout)
    greedy, random = told["agents"]
    assert (greedy["name"], greedy["wins"], greedy["num_games"]) == ("greedy", 10, 10)
    assert greedy["elo"] == pytest.approx(-random["elo"])
    assert told["num_games"] == 10
    assert told["duels"] == [
        {
            "name": "greedy",
            "other": "random",
            "win_rate": 1.0,
            "low": pytest.approx(0.7225, abs=1e-3),
            "high": pytest.approx(1),
        }
    ]


def test_a_match_of_three_tells_who_was_ahead_of_whom() -> None:
    result = run("eval", "azul", "--agents", "rush,greedy,random", "--games", "2")
    lines = result.stdout.splitlines()
    [start] = [i for i, line in enumerate(lines) if line.startswith("ahead of")]
    assert sorted(lines[start].split()[2:]) == ["greedy", "random", "rush"]
    assert len(lines) == start + 4
    told = json.loads(
        run("eval", "azul", "--agents", "rush,greedy,random", "--games", "2", "--json").stdout
    )
    assert told["num_games"] == 6
    assert len(told["duels"]) == 3


@pytest.mark.parametrize("num_players", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_match_at_larger_tables(num_players: int) -> None:
    names = ["greedy", "rush", "random", "mcts:0.001"][:num_players]
    args = ("--set", f"num_players={num_players}", "--set", "max_rounds=2")
    result = run(
        "eval", "azul", "--agents", ",".join(names), "--games", str(num_players), "--json", *args
    )
    told = json.loads(result.stdout)
    assert told["num_games"] == num_players
    assert {row["num_games"] for row in told["agents"]} == {num_players}


def test_games_when_left_out_are_a_hundred_or_a_few_more() -> None:
    args = ("eval", "azul", "--agents", "random,greedy,rush", "--json", "--set", "max_rounds=1")
    told = json.loads(run(*args, "--set", "num_players=3").stdout)
    assert told["num_games"] == 102


def test_a_match_of_another_game(tmp_path: Path) -> None:
    """Any game for several agents works; in this one the first seat wins."""
    file = tmp_path / "first_wins.py"
    file.write_text(
        "from enum import Enum\n"
        "from entity_env import Game, Obs\n"
        "class Move(Enum):\n"
        "    ON = 0\n"
        "def play(agents, *, seed: int) -> None:\n"
        "    for agent in agents:\n"
        "        if agent.act(Obs(), Move) is None:\n"
        "            return\n"
        "    for i, agent in enumerate(agents):\n"
        "        agent.game_over(Obs(1.0 - i))\n"
        "game = Game(play, entities=(), actions=(Move,), num_agents=2, name='first_wins')\n"
    )
    refused = run("eval", str(file), "--agents", "random")
    assert "--agents needs at least two agents, got random" in refused.stderr
    unknown = run("eval", str(file), "--agents", "random,randm")
    assert "did you mean random?" in unknown.stderr


def test_matches_with_neighbouring_seeds_share_no_start() -> None:
    """Two sets of blocks; each agent has both seats at every start."""
    starts: list[int] = []

    def play(agents: Sequence[Agent], *, seed: int) -> None:
        starts.append(seed)
        for agent in agents:
            agent.game_over(Obs())

    game = Game(play, entities=(), actions=(Square,), num_agents=2, name="noted")
    agents = {"a": "random", "b": "random"}
    for seed in range(5):
        make = lambda _, own: RandomEntities(own)  # noqa: E731
        MatchGames(game=game, names=tuple(agents), make=make, num_games=40, seed=seed).run()
    assert len(starts) == 200
    assert set(Counter(starts).values()) == {2}


def test_any_game_for_several_has_matches() -> None:
    """Rewards decide who is ahead; games of a set start alike, with every agent in every seat."""

    def load(name: str, seed: int) -> RandomEntities:
        return RandomEntities(seed)

    games = MatchGames(game=tic_tac_toe, names="abc", make=load, num_games=4, seed=3)
    match = games.run()
    assert len(match.games) == 12
    seats = Counter((name, i) for game in match.games for i, name in enumerate(game.names))
    assert set(seats.values()) == {4}
    for game in match.games:
        assert sum(game.scores) == 0
        assert max(game.shares) in (0.5, 1)
    assert games.run() == match
    drawn = Console(width=100, file=io.StringIO(), record=True)
    drawn.print(match_table(match))
    text = drawn.export_text()
    assert text.count("\n") == 15
    assert "ahead of" in text
    assert match_json(match)["num_games"] == 12


def test_a_trained_agent_has_matches_in_its_own_game(trained: dict[str, Path]) -> None:
    names = f"{trained['tic_tac_toe']},random"
    told = json.loads(
        run("eval", "tic_tac_toe", "--agents", names, "--games", "6", "--json").stdout
    )
    assert told["num_games"] == 6
    assert sum(row["wins"] for row in told["agents"]) == 6


def test_a_bar_is_shown_on_a_terminal_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_env.cli.display.console._PATIENCE_S", 0.0)
    shown = io.StringIO()
    monkeypatch.setattr(
        "entity_env.cli.display.console.Console",
        lambda stderr: Console(file=shown, force_terminal=True, width=80),
    )
    with ProgressBar(3) as bar:
        for _ in range(3):
            bar.count()
    assert "playing" in shown.getvalue()
    assert "3/3" in shown.getvalue()
    assert run("eval", "azul", "--agents", "greedy,random", "--games", "2").exit_code == 0


def test_no_bar_elsewhere_and_none_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, patience_s in ((False, 0.0), (True, 100.0)):
        shown = io.StringIO()
        monkeypatch.setattr("entity_env.cli.display.console._PATIENCE_S", patience_s)
        monkeypatch.setattr(
            "entity_env.cli.display.console.Console",
            lambda stderr, file=shown, on=is_terminal: Console(file=file, force_terminal=on),
        )
        with ProgressBar(1) as bar:
            bar.count()
        assert shown.getvalue() == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["eval", "azul", "--agents", "greedy,gredy"], "no agent 'gredy'; did you mean greedy?"),
        (["eval", "azul", "--agents", "greedy,xyz"], "random, greedy, rush, mcts, mcts:SECONDS"),
        (
            ["eval", "azul", "--agents", "greedy"],
            "to play an agent against itself: --agents greedy,greedy",
        ),
        (["eval", "azul", "--agents", "greedy,"], "names separated by commas"),
        (["eval", "azul", "--agents", "greedy,human"], "entity-env play --agent human"),
        (["eval", "azul", "--agents", "a,b", "--agent", "random"], "leave out --agent"),
        (
            ["eval", "azul", "--agents", "greedy,random", "--games", "5"],
            "--games must be a multiple of 2",
        ),
        (["eval", "azul", "--games", "4"], "--games goes with --agents A,B"),
        (["eval", "snake", "--agents", "random,a"], "snake is for 1 agent"),
        (["eval", "azul", "--agents", "greedy,random", "--set", "max_rounds=-1"], "max_rounds"),
        (["play", "azul", "--agent", "gredy"], "did you mean greedy?"),
        (["play", "azul", "--agent", "humn"], "did you mean human?"),
        (["play", "azul", "--agent", "no/such/run"], "no/such/run"),
        (["play", "azul", "--set", "num_players=5"], "num_players must be 2, 3 or 4, got 5"),
        (["play", "azul", *["--agent", "greedy"] * 5], "azul is for 4 agents, got 5"),
    ],
)
def test_one_line_says_what_is_wrong(args: Sequence[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("entity-env: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_names_are_split_at_commas() -> None:
    assert split_names("a, b ,c,b,b") == {"a": "a", "b": "b", "c": "c", "b#2": "b", "b#3": "b"}
