"""Matches: an agent that fails loses its game, and results are told by agent and by seat."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env import CheckpointError, Obs
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.agents.ratings import Match, Result
from entity_env.authoring.action_type import ActionKey
from entity_env.cli import main
from entity_env.cli.display.match_tables import failure_lines, match_json
from entity_env.games import rock_paper_scissors, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.vec.evaluation.matches import MatchGames
from tests.helpers.tiny_games import ask, dots_game


class First(ScriptedAgent):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return obs.allowed(actions[0])[0]


class Raising(ScriptedAgent):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        raise ValueError("lost the map")


class Hanging(ScriptedAgent):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        while True:
            time.sleep(0.01)


AGENTS: dict[str, Callable[[], Agent]] = {"first": First, "raising": Raising, "hanging": Hanging}


def make(name: str, seed: int) -> Agent:
    return AGENTS[name]() if name in AGENTS else RandomAgent(seed)


def play_four(agents: Sequence[Agent], *, seed: int) -> None:
    for score in range(3):
        for i, agent in enumerate(agents):
            if ask(agent, score=score * i) is None:
                return
    for i, agent in enumerate(agents):
        agent.game_over(Obs(3 * i))


FOUR = dots_game(play_four, num_agents=4)


@pytest.mark.parametrize(("bad", "reason"), [("raising", "ValueError"), ("hanging", "hangs")])
def test_an_agent_that_fails_loses_its_games_and_the_match_continues(bad: str, reason: str) -> None:
    games = MatchGames(
        game=tic_tac_toe, names=["random", bad], make=make, num_games=6, step_timeout_s=0.05
    )
    match = games.run()
    assert len(match.games) == 6
    rows = {row.name: row for row in match.table()}
    assert (rows["random"].win_rate, rows[bad].win_rate) == (1, 0)
    assert (rows["random"].num_failed, rows[bad].num_failed) == (0, 6)
    assert [each.step for each in match.failures(bad)] == [0] * 6
    [line] = failure_lines(match.failures(bad))
    assert line.startswith("6 games because it ")
    assert reason in line
    assert "test_matches.py" in line


def test_the_others_tie_if_an_agent_of_four_fails() -> None:
    games = MatchGames(game=FOUR, names=["a", "b", "c", "raising"], make=make, num_games=4)
    match = games.run()
    for game in match.games:
        assert game.failure is not None
        assert sum(game.shares) == pytest.approx(1)
        assert [share == 0 for share in game.shares] == [name == "raising" for name in game.names]
        lowest = game.scores[game.names.index("raising")]
        assert lowest == min(game.scores)
    assert match.win_rate("a", "raising")[0] == 1
    assert match.win_rate("a", "b")[0] == 0.5


def test_agents_that_move_at_the_same_time_can_fail_too() -> None:
    games = MatchGames(game=rock_paper_scissors, names=["a", "raising"], make=make, num_games=4)
    assert games.run().win_rate("a", "raising")[0] == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_bot_that_fails_loses_in_a_game_with_its_own_matches() -> None:
    for bad in ("raising", "hanging"):
        games = MatchGames(game=azul, names=["a", bad], make=make, num_games=4, step_timeout_s=2)
        match = games.run()
        assert match.win_rate("a", bad)[0] == 1
        assert len(match.failures(bad)) == 4


def test_win_rates_are_told_by_seat() -> None:
    games = MatchGames(game=FOUR, names=["first", "b", "c", "d"], make=make, num_games=8)
    match = games.run()
    assert [(each.seat, each.win_rate) for each in match.seats()] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
    ]
    assert [each.num_games for each in match.seats("first")] == [2] * 4
    assert [each.mean_score for each in match.seats("first")] == [0, 3, 6, 9]
    told = match_json(match)
    assert [each["win_rate"] for each in told["seats"]] == [0, 0, 0, 1]  # type: ignore[attr-defined]
    json.dumps(told)


def test_seats_of_games_in_which_a_seat_took_no_part_keep_their_numbers() -> None:
    games = (Result(("a", "b"), (1, 0), seats=(1, 2)), Result(("b", "a"), (1, 0), seats=(0, 2)))
    assert [each.seat for each in Match(("a", "b"), games).seats("a")] == [1, 2]


def test_games_that_do_not_end_are_truncated_and_counted() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        while all(ask(agent, score=i) is not None for i, agent in enumerate(agents)):
            pass

    game = dots_game(play, num_agents=2)
    games = MatchGames(game=game, names=["a", "b"], make=make, num_games=2, max_steps=5)
    match = games.run()
    assert [each.is_cut for each in match.games] == [True, True]
    assert match_json(match)["num_truncated"] == 2


def test_a_game_that_fails_ends_the_match_unless_it_is_restarted() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        for agent in agents:
            if ask(agent) is None:
                return
        if seed % 2:
            raise OSError("no such board")
        for i, agent in enumerate(agents):
            agent.game_over(Obs(i))

    game = dots_game(play, num_agents=2)
    options = {"game": game, "names": ["a", "b"], "make": make, "num_games": 20}
    with pytest.raises(OSError, match="no such board") as caught:
        MatchGames(**options).run()  # type: ignore[arg-type]
    assert any("agents: " in note for note in caught.value.__notes__)
    assert 0 < len(MatchGames(**options, on_error="restart").run().games) < 20  # type: ignore[arg-type]


BOTS = """
from entity_env.agents import ScriptedAgent
class Buggy(ScriptedAgent):
    def choose(self, obs, *actions):
        return obs.allowed(actions[0])[3]
"""


@pytest.mark.parametrize("more", [[], ["--on-error", "restart"]])
def test_the_command_tells_which_bot_failed_where(tmp_path: Path, more: list[str]) -> None:
    bots = tmp_path / "bots.py"
    bots.write_text(BOTS)
    words = ["eval", "tic_tac_toe", "--games", "6", "--agents", f"{bots}:Buggy,random", *more]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "Buggy lost" in text
    assert "IndexError: list index out of range" in text
    assert "bots.py:5 in choose" in text
    assert "win rate in seat" in text
    told = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    [row] = [each for each in told["agents"] if each["num_failed"]]
    assert row["failures"][0]["reason"] == "IndexError: list index out of range"
    assert sum(each["count"] for each in row["failures"]) == row["num_failed"]


def test_an_agent_of_another_game_ends_the_match() -> None:
    class Other(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            raise CheckpointError("the checkpoint was trained for a different game")

    games = MatchGames(
        game=tic_tac_toe, names=["a", "b"], make=lambda name, seed: Other(), num_games=2
    )
    with pytest.raises(CheckpointError, match="different game"):
        games.run()
