"""TransitionLog: every decision once, with all rewards, whichever player's move earned them."""

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import ProtocolError
from entity_env.games.azul import AzulEnv, EnvConfig, EnvStep, Transition, TransitionLog
from tests.games.azul.recorded_games import NUM_PLAYERS, SEEDS


def logged(env: AzulEnv, seed: int) -> tuple[list[EnvStep], list[Transition]]:
    rng = random.Random(seed)
    steps, transitions = [env.reset(seed=seed)], []
    log = TransitionLog(steps[0])
    while not log.step.done:
        action_id = rng.choice(np.flatnonzero(log.step.legal_action_mask).tolist())
        steps.append(env.step(action_id))
        transitions += log.add(steps[-1])
    return steps, transitions


@settings(max_examples=20)
@given(
    seed=SEEDS,
    num_players=NUM_PLAYERS,
    scheme=st.sampled_from(("DenseScoreDelta", "TerminalOnly")),
    max_rounds=st.sampled_from((None, 1, 3)),
)
def test_transitions_lead_from_decision_to_decision(
    seed: int, num_players: int, scheme: str, max_rounds: int | None
) -> None:
    config = EnvConfig(num_players, scheme, max_rounds=max_rounds)  # type: ignore[arg-type]
    steps, transitions = logged(AzulEnv(config), seed)
    assert len(transitions) == len(steps) - 1
    for player in range(num_players):
        mine = [transition for transition in transitions if transition.player == player]
        turns = [i for i, step in enumerate(steps[:-1]) if step.current_player == player]
        assert len(mine) == len(turns)
        for transition, now, after in zip(mine, turns, [*turns[1:], len(steps) - 1], strict=True):
            check(transition, steps, now, after)
        total = sum(float(step.rewards[player]) for step in steps)
        assert sum(transition.reward for transition in mine) == pytest.approx(total)


def check(transition: Transition, steps: list[EnvStep], now: int, after: int) -> None:
    player = transition.player
    assert transition.action_id == steps[now + 1].last_action
    assert transition.mask_before[transition.action_id]
    np.testing.assert_array_equal(transition.mask_before, steps[now].legal_action_mask)
    np.testing.assert_array_equal(transition.observation_before, steps[now].observations[player])
    np.testing.assert_array_equal(transition.mask_after, steps[after].legal_action_mask)
    np.testing.assert_array_equal(transition.observation_after, steps[after].observations[player])
    earned = sum(float(step.rewards[player]) for step in steps[now + 1 : after + 1])
    assert transition.reward == pytest.approx(earned)
    is_last = after == len(steps) - 1
    assert transition.done == is_last
    assert transition.truncated == (is_last and steps[-1].truncated)
    assert transition.mask_after.any() == (not is_last)


def test_everybody_gets_what_the_last_move_of_somebody_else_gave() -> None:
    env = AzulEnv(EnvConfig(4, include_full_state_in_step=True))
    steps, transitions = logged(env, 3)
    state = steps[-1].state
    assert state is not None
    for player in range(4):
        earned = sum(t.reward for t in transitions if t.player == player)
        assert earned == state.scores[player]
    assert [t.player for t in transitions[-4:]] == [0, 1, 2, 3]
    assert all(t.done for t in transitions[-4:])
    assert not any(t.done for t in transitions[:-4])


def test_a_log_is_for_one_episode() -> None:
    env = AzulEnv(seed=1)
    log = TransitionLog(env.reset())
    with pytest.raises(ProtocolError, match="a reset begins another episode; make a new log"):
        log.add(env.reset())
    log = TransitionLog(env.reset())
    while not log.step.done:
        log.add(env.step(int(np.flatnonzero(log.step.legal_action_mask)[0])))
    with pytest.raises(ProtocolError, match="its episode is over; make a new log"):
        log.add(log.step)


def test_rewards_before_the_first_decision_belong_to_no_transition() -> None:
    env = AzulEnv(seed=1)
    step = env.reset()
    log = TransitionLog(step)
    first = step.current_player
    action_id = int(np.flatnonzero(step.legal_action_mask)[0])
    after = env.step(action_id)._replace(rewards=np.array([2, 5, 0, 0], np.float32))
    assert log.add(after) == []
    again = env.step(int(np.flatnonzero(after.legal_action_mask)[0]))
    (transition,) = log.add(again)
    assert transition.player == first
    assert transition.reward == (2, 5)[first]
