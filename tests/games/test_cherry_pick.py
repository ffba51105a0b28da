"""The rules of cherry_pick."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, Turn, UsageError
from entity_env.agents import RandomAgent
from entity_env.games import cherry_pick
from entity_env.games.cherry_pick import Cherry, play
from tests.helpers.scripted_agent import ScriptedAgent


def cherries(obs: Obs) -> list[Cherry]:
    return obs.of_class(Cherry)


def pick(choose: Callable[[list[Cherry]], Cherry]) -> ScriptedAgent:
    return ScriptedAgent(lambda obs: [choose(cherries(obs))])


def best(left: list[Cherry]) -> Cherry:
    return max(left, key=lambda cherry: cherry.quality)


def worst(left: list[Cherry]) -> Cherry:
    return min(left, key=lambda cherry: cherry.quality)


@given(seed=st.integers(0, 2**63 - 1), num_good=st.integers(1, 40), num_bad=st.integers(1, 40))
def test_all_good_cherries_are_worth_one(seed: int, num_good: int, num_bad: int) -> None:
    agent = pick(best)
    play(agent, seed=seed, num_good=num_good, num_bad=num_bad)
    assert agent.end.score == pytest.approx(1)
    assert agent.end.num_steps == num_good
    assert not agent.end.truncated
    assert agent.end.gains == sorted(agent.end.gains, reverse=True)
    left = [cherry.quality for cherry in cherries(agent.end.obs)]
    assert len(left) == num_bad
    assert sum(left) == pytest.approx(-1)
    assert max(left) < 0 < min(agent.end.gains)


def test_all_bad_cherries_cost_one() -> None:
    agent = pick(worst)
    play(agent, seed=1)
    assert agent.end.score == pytest.approx(-1)


def test_the_reward_is_the_quality_of_what_was_taken() -> None:
    taken: list[Cherry] = []
    sizes: list[int] = []

    def third(obs: Obs) -> list[Cherry]:
        left = cherries(obs)
        assert not set(left) & set(taken), "a cherry is taken once"
        sizes.append(len(left))
        taken.append(left[2])
        return [left[2]]

    agent = ScriptedAgent(third)
    play(agent, seed=2, num_good=6, num_bad=3)
    assert sizes == [9, 8, 7, 6, 5, 4]
    assert agent.end.gains == pytest.approx([cherry.quality for cherry in taken])


def test_good_and_bad_are_mixed() -> None:
    """Always taking the first cherry earns nothing."""
    scores = []
    for seed in range(200):
        agent = pick(lambda left: left[0])
        play(agent, seed=seed)
        scores.append(agent.end.score)
    assert abs(sum(scores) / len(scores)) < 0.1


def test_what_an_agent_selects_is_what_the_game_receives() -> None:
    turns: list[Turn] = []
    cherry_pick.run(RandomAgent(seed=1), episodes=5, watch=turns.append)
    for turn, after in pairwise(turns):
        if turn.episode is not None:
            continue
        before = turn.observation.features["Cherry"]
        assert len(before) - len(after.observation.features["Cherry"]) == 1
        assert any(after.observation.reward == pytest.approx(float(row[0])) for row in before)
        assert len(turn.observation.features["Picker"]) == 1


def test_settings_are_set() -> None:
    game = cherry_pick.with_settings(num_good="3", num_bad=1)
    assert {episode.length for episode in game.run(RandomAgent(seed=1), episodes=5)} == {3}


@pytest.mark.parametrize("changes", [{"num_good": 0}, {"num_bad": 0}, {"num_good": -2}])
def test_too_few_cherries_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        cherry_pick.with_settings(**changes).run(RandomAgent(seed=1))
