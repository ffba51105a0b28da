"""Matches: seats, errors that name the agent with an illegal move, intervals and ratings."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import UsageError
from entity_env.agents.ratings import elo_ratings, wilson
from entity_env.games.azul import (
    AgentInput,
    AzulAgent,
    EnvStep,
    GameResult,
    GreedyAgent,
    IllegalAction,
    InvalidActionId,
    Match,
    RandomAgent,
    play_game,
    play_match,
)
from tests.games.azul.recorded_games import interpreted


class Scripted:
    """Decides with a function, and counts its decisions by seat."""

    needs_state = False

    def __init__(self, answer: Callable[[AgentInput], Any]) -> None:
        self.answer = answer
        self.seats: Counter[int] = Counter()

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        self.seats[agent_input.current_player] += 1
        action_id: int = self.answer(agent_input)
        return action_id


def first(agent_input: AgentInput) -> int:
    return int(agent_input.legal_action_mask.argmax())


def result(*seats: tuple[str, int], rows: tuple[int, ...] | None = None) -> GameResult:
    names, scores = zip(*seats, strict=True)
    return GameResult(names, scores, rows or (1,) * len(seats), 50, 5, "row")


@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "1", [1, 2]])
def test_a_seed_that_cannot_be(seed: Any) -> None:  # noqa: ANN401
    agents = [RandomAgent(), RandomAgent()]
    with pytest.raises(UsageError, match="a seed must be an integer, 0 or more: got"):
        play_game(agents, seed=seed)


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_a_game(num_players: int) -> None:
    everybody: list[AzulAgent] = [RandomAgent(), GreedyAgent(), RandomAgent(), RandomAgent()]
    agents = everybody[:num_players]
    steps: list[EnvStep] = []
    game = play_game(agents, seed=3, watch=steps.append)
    assert game == play_game(agents, seed=3)
    assert game != play_game(agents, seed=4)
    assert game.names[:2] == ("RandomAgent", "GreedyAgent")
    assert game.num_moves == len(steps) - 1 > 20
    state = steps[-1].state
    assert state is not None
    assert game.scores == tuple(state.scores)
    assert (game.end, game.num_rounds) == (state.end, state.round)
    assert game.shares[1] == 1, "greedy wins"


def test_without_numba_a_game_is_the_same() -> None:
    agents = [RandomAgent(), RandomAgent()]
    with interpreted():
        plain = play_game(agents, seed=5)
    assert plain == play_game(agents, seed=5)


def test_a_game_that_is_cut() -> None:
    game = play_game([RandomAgent()] * 2, max_rounds=2, starting_player=1)
    assert game.end is None
    assert game.num_rounds == 3


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda shown: int((~shown.legal_action_mask).argmax()), IllegalAction, "may not take"),
        (lambda shown: 300, InvalidActionId, "got 300"),
        (lambda shown: None, InvalidActionId, "got None"),
        (lambda shown: 1.0, InvalidActionId, "got 1.0"),
        (lambda shown: True, InvalidActionId, "got True"),
    ],
)
def test_who_answers_illegally_is_named(
    answer: Callable[[AgentInput], object], error: type[Exception], message: str
) -> None:
    turns = iter(range(100))
    cheat = Scripted(lambda shown: answer(shown) if next(turns) == 2 else first(shown))
    with pytest.raises(
        error, match=f"cheat in seat 1, move 5 chose an illegal action: .*{message}"
    ):
        play_game([RandomAgent(), cheat], names=["honest", "cheat"])


def test_what_an_agent_raises_passes_through() -> None:
    def fail(shown: AgentInput) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play_game([Scripted(fail), RandomAgent()])


@pytest.mark.parametrize(("num_players", "num_groups"), [(2, 6), (3, 4), (4, 1)])
def test_everybody_sits_everywhere_as_often(num_players: int, num_groups: int) -> None:
    agents = {name: Scripted(first) for name in "abcd"}
    seen: list[GameResult] = []
    match = play_match(
        agents, 2 * num_players, num_players=num_players, max_rounds=1, on_game=seen.append
    )
    assert list(match.games) == seen
    assert len(seen) == num_groups * 2 * num_players
    seats = Counter((name, i) for game in seen for i, name in enumerate(game.names))
    assert len(set(seats.values())) == 1
    assert len(seats) == 4 * num_players
    for agent in agents.values():
        assert set(agent.seats) == set(range(num_players))


def first_deals(num_games: int, seed: int) -> list[bytes]:
    """Contents of the factories at the start of each game in a match of two."""
    shown: list[bytes] = []

    def note(agent_input: AgentInput) -> int:
        tiles, marker_in_centre = agent_input.observation[:45], agent_input.observation[50]
        if tiles.sum() == 5 and marker_in_centre:  # all factories are full
            shown.append(tiles.tobytes())
        return first(agent_input)

    play_match({"a": Scripted(note), "b": Scripted(note)}, num_games, seed=seed, max_rounds=1)
    return shown


def test_games_of_a_set_have_the_same_first_deal() -> None:
    shown = first_deals(4, seed=0)
    assert len(shown) == 4
    assert shown[0] == shown[1] != shown[2] == shown[3]


def test_matches_with_neighbouring_seeds_share_no_deal() -> None:
    deals = [set(first_deals(20, seed)) for seed in range(5)]
    assert [len(each) for each in deals] == [10] * 5
    assert len(set().union(*deals)) == 50


def test_a_match_can_be_repeated() -> None:
    pair: dict[str, AzulAgent] = {"greedy": GreedyAgent(), "random": RandomAgent()}
    assert play_match(pair, 4, seed=7) == play_match(pair, 4, seed=7)
    assert play_match(pair, 4, seed=7) != play_match(pair, 4, seed=70)


@pytest.mark.parametrize(
    ("agents", "arguments", "message"),
    [
        ("a", (2,), "2 players need as many agents: got a"),
        ("ab", (3,), "num_games must be a multiple of 2"),
        ("ab", (0,), "num_games must be a multiple"),
        ("ab", (2.0,), "num_games must be a multiple"),
    ],
)
def test_numbers_that_cannot_be(agents: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        play_match({name: RandomAgent() for name in agents}, *arguments)


def test_games_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="num_players"):
        play_game([RandomAgent()])
    with pytest.raises(UsageError, match="2 agents need as many names, got 1"):
        play_game([RandomAgent()] * 2, names=["a"])
    with pytest.raises(UsageError, match="num_players"):
        play_match({name: RandomAgent() for name in "abcde"}, 5, num_players=5)


def test_shares_of_a_win() -> None:
    assert result(("a", 5), ("b", 3)).shares == (1, 0)
    assert result(("a", 5), ("b", 5)).shares == (0.5, 0.5)
    assert result(("a", 5), ("b", 5), rows=(1, 2)).shares == (0, 1)
    assert result(("a", 5), ("b", 5), ("c", 5)).shares == (1 / 3,) * 3


def test_standings() -> None:
    games = (result(("a", 5), ("b", 3)), result(("b", 4), ("a", 4)), result(("a", 9), ("b", 1)))
    match = Match(("b", "a"), games)
    best, worst = match.table()
    assert (best.name, best.wins, best.num_games, best.mean_score) == ("a", 2.5, 3, 6)
    assert (worst.name, worst.wins) == ("b", 0.5)
    assert worst.win_rate == pytest.approx(1 / 6)
    assert best.elo == pytest.approx(-worst.elo)
    assert best.low < best.win_rate < best.high
    assert match.win_rate("a", "b")[0] == pytest.approx(2.5 / 3)
    lines = str(match).splitlines()
    assert lines[0].split() == ["agent", "elo", "win", "rate", "95", "%", "score", "games"]
    assert lines[1].startswith("a ")
    assert "83.3%" in lines[1]
    with pytest.raises(UsageError, match="'a' and 'c' have not played each other"):
        match.win_rate("a", "c")


def test_intervals_are_those_of_wilson() -> None:
    """Values of the formula, computed independently."""
    low, high = wilson(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    low, high = wilson(0, 20)
    assert low == 0
    assert round(high, 4) == 0.1611
    assert wilson(20, 20)[1] == 1


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    for rate in (0.5, 0.9):
        wins = rng.binomial(80, rate, size=2000)
        held = [low <= rate <= high for low, high in (wilson(int(n), 80) for n in wins)]
        assert 0.92 < np.mean(held) < 0.98


def test_ratings_fit_odds() -> None:
    """Odds of ten to one are 400 points, minus the effect of one drawn game."""
    games = [result(("a", 1), ("b", 0))] * 1000 + [result(("b", 1), ("a", 0))] * 100
    one, other = elo_ratings(["a", "b"], games)
    assert one + other == pytest.approx(0)
    assert one - other == pytest.approx(400, abs=2)


def test_ratings_are_transitive_and_finite() -> None:
    games = [result(("a", 1), ("b", 0))] * 30 + [result(("b", 1), ("c", 0))] * 30
    a, b, c = elo_ratings(["a", "b", "c"], games)
    assert a > b > c
    assert a - b == pytest.approx(b - c, rel=1e-3)
    assert 300 < a - b < 1200
    assert elo_ratings(["a", "b"], []) == [0, 0]
