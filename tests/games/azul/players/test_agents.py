"""Agents: legal everywhere, and as strong as they should be."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from entity_env import UsageError
from entity_env.games.azul import (
    ACTIONS,
    AgentInput,
    AzulAgent,
    AzulEnv,
    EnvConfig,
    EpisodeDone,
    GameState,
    GreedyAgent,
    HumanAgent,
    MCTSAgent,
    RandomAgent,
    RushAgent,
    legal_actions,
    play_match,
)
from entity_env.games.azul.engine.actions import ActionEncoder
from tests.games.azul.recorded_games import SEEDS, interpreted, reached, states, to_lines

AGENTS: dict[str, AzulAgent] = {
    "random": RandomAgent(),
    "greedy": GreedyAgent(),
    "rush": RushAgent(),
    "mcts": MCTSAgent(rollouts=20),
}


def input_of(state: GameState) -> AgentInput:
    mask = np.zeros(300, np.bool_)
    mask[[ActionEncoder.encode(action) for action in legal_actions(state)]] = True
    return AgentInput(np.zeros(306, np.float32), mask, state.current_player, state)


@pytest.mark.timeout(300)  # the first call compiles the search: a minute on a busy machine
@settings(max_examples=25, deadline=None)
@given(state=states(max_moves=100), seed=SEEDS)
def test_they_answer_legally_and_leave_the_state_as_it_is(state: GameState, seed: int) -> None:
    assume(not state.is_over)
    given_input, before = input_of(state), state.copy()
    for agent in AGENTS.values():
        action_id = agent.select_action(given_input, np.random.default_rng(seed))
        assert type(action_id) is int
        assert given_input.legal_action_mask[action_id]
        again = agent.select_action(given_input, np.random.default_rng(seed))
        assert again == action_id, "equal draws, equal answers"
    assert state == before


def test_an_input_of_a_step() -> None:
    env = AzulEnv(EnvConfig(num_players=3, starting_player=2), seed=1)
    step = env.reset()
    agent_input = AgentInput.of(step)
    assert agent_input.current_player == 2
    np.testing.assert_array_equal(agent_input.observation, step.observations[2])
    assert agent_input.legal_action_mask is step.legal_action_mask
    assert RandomAgent().select_action(agent_input, np.random.default_rng(0)) >= 0


@pytest.mark.parametrize("agent", [GreedyAgent(), RushAgent(), MCTSAgent(rollouts=1)])
def test_who_needs_the_state_says_so(agent: AzulAgent) -> None:
    assert agent.needs_state
    step = AzulEnv(seed=1).reset()
    with pytest.raises(UsageError, match=r"needs AgentInput\.state: .*include_full_state_in_step"):
        agent.select_action(AgentInput.of(step), np.random.default_rng(0))


@pytest.mark.parametrize(
    "agent",
    [
        RandomAgent(),
        GreedyAgent(),
        RushAgent(),
        MCTSAgent(rollouts=3),
        HumanAgent(lambda prompt: "1 blue 1", lambda text: None),
    ],
    ids=lambda agent: type(agent).__name__,
)
def test_when_the_game_is_over_there_is_nothing_to_choose(agent: AzulAgent) -> None:
    state = reached(3, 2, 2000, to_lines)
    assert state.is_over
    nothing = np.zeros(300, np.bool_)
    agent_input = AgentInput(np.zeros(306, np.float32), nothing, state.current_player, state)
    with pytest.raises(EpisodeDone, match=r"Agent has no legal action: the game is over"):
        agent.select_action(agent_input, np.random.default_rng(0))


def test_random_is_uniform() -> None:
    mask = np.zeros(300, np.bool_)
    mask[[3, 70, 299]] = True
    given_input = AgentInput(np.zeros(306, np.float32), mask, 0)
    rng = np.random.default_rng(1)
    drawn = [RandomAgent().select_action(given_input, rng) for _ in range(600)]
    ids, counts = np.unique(drawn, return_counts=True)
    assert ids.tolist() == [3, 70, 299]
    assert counts.min() > 150


@pytest.mark.parametrize("better", ["greedy", "rush"])
def test_a_rule_of_thumb_beats_random(better: str) -> None:
    pair = {name: AGENTS[name] for name in (better, "random")}
    match = play_match(pair, 60)
    assert match.table()[0].name == better
    assert match.win_rate(better, "random")[0] > 0.95
    score = {"greedy": 50, "rush": 40}[better]
    assert match.table()[0].mean_score > score


def test_greedy_beats_rush() -> None:
    match = play_match({name: AGENTS[name] for name in ("greedy", "rush")}, 100)
    assert match.win_rate("greedy", "rush")[0] > 0.55


@pytest.mark.slow
def test_a_small_search_beats_random_and_greedy() -> None:
    searching = MCTSAgent(rollouts=60)
    assert (
        play_match({"mcts": searching, "random": RandomAgent()}, 10).win_rate("mcts", "random")[0]
        == 1
    )
    assert (
        play_match({"mcts": searching, "greedy": GreedyAgent()}, 30).win_rate("mcts", "greedy")[0]
        > 0.7
    )


def test_a_search_without_numba_plays_well_too() -> None:
    with interpreted():
        slow = MCTSAgent(rollouts=10, rounds=0)
        match = play_match({"mcts": slow, "random": RandomAgent()}, 2)
    assert match.win_rate("mcts", "random")[0] == 1


def test_a_search_keeps_to_its_time() -> None:
    step = AzulEnv(EnvConfig(include_full_state_in_step=True), seed=1).reset()
    agent = MCTSAgent(seconds=0.2)
    agent.select_action(AgentInput.of(step), np.random.default_rng(0))  # loads the machine code
    visits, start = agent.num_visits, time.perf_counter()
    agent.select_action(AgentInput.of(step), np.random.default_rng(0))
    assert 0.19 < time.perf_counter() - start < 10
    assert agent.num_visits > visits + 100
    assert agent.num_moves > agent.num_visits


def test_the_first_limit_counts() -> None:
    step = AzulEnv(EnvConfig(include_full_state_in_step=True), seed=1).reset()
    agent = MCTSAgent(seconds=60, rollouts=37)
    agent.select_action(AgentInput.of(step), np.random.default_rng(0))
    assert agent.num_visits == 37


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "seconds must be above 0"),
        ({"seconds": "1"}, "seconds must be above 0"),
        ({"seconds": True}, "seconds must be above 0"),
        ({"seconds": float("nan")}, "seconds must be above 0"),
        ({"seconds": float("inf")}, "seconds must be above 0 and finite"),
        ({"rollouts": 0}, "rollouts must be an integer, 1 or more"),
        ({"rollouts": 1.5}, "rollouts must be an integer, 1 or more"),
        ({"rounds": -1}, "rounds must be an integer, 0 or more"),
    ],
)
def test_settings_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MCTSAgent(**arguments)


def test_a_person_is_asked_until_the_answer_is_legal() -> None:
    state = AzulEnv(EnvConfig(include_full_state_in_step=True), seed=2).reset().state
    assert state is not None
    colour = next(i for i, count in enumerate(state.factories[0]) if count)
    answers = iter(["nonsense", "1 x 3", "c blue 1", f"1 {'byrkw'[colour]} 3"])
    told: list[str] = []
    agent = HumanAgent(lambda prompt: next(answers), told.append)
    action_id = agent.select_action(input_of(state), np.random.default_rng(0))
    assert ACTIONS[action_id] == (0, colour, 2)
    assert "Player 1: 0 points" in told[0]
    assert [text.split(":")[0] for text in told[1:]] == [
        "write source, color and place, such as '2 red 3' or 'center k floor'",
        "the colors are blue, yellow, red, black, white, or B Y R K W",
        "blue from the center to line 1",
    ]
