"""AgentRun: score, steps and episodes."""

from __future__ import annotations

import pytest

from entity_env import (
    GameExit,
    GlobalCategorical,
    Obs,
    Schema,
    SchemaError,
    Turn,
)
from entity_env.authoring.local_run import AgentRun
from entity_env.core.seeding import EpisodeSeeds
from tests.helpers.strategies import EAT, MOVE, SCHEMA, Food, Move, Rock, Stance, World

MOVES = Schema((), (Move,))
KINDS = [GlobalCategorical(Move)]


def step(run: AgentRun, score: float) -> float:
    """Observes and acts; returns the reward."""
    observation = run.observe(Obs(score), KINDS, MOVES)
    run.acted(observation, {})
    return observation.reward


def test_rewards_add_up_to_final_minus_initial_score() -> None:
    run = AgentRun(MOVES)
    assert [step(run, score) for score in (5.0, 7.0, 4.0)] == [0.0, 2.0, -3.0]
    run.game_over(Obs(9.0), truncated=False)
    [episode] = run.episodes
    assert (episode.reward, episode.length) == (4.0, 3)
    assert step(run, 1.0) == 0.0  # a new episode


def test_the_score_stays_when_left_out() -> None:
    run = AgentRun(MOVES)
    step(run, 1.0)
    step(run, 3.0)
    run.game_over(None, truncated=True)
    assert run.episodes[0].reward == 2.0
    assert run.episodes[0].truncated


def test_an_agent_that_was_never_asked_earned_nothing() -> None:
    turns: list[Turn] = []
    run = AgentRun(MOVES, watch=turns.append)
    step(run, 1.0)
    run.game_over(Obs(5.0), truncated=False)
    run.game_over(Obs(8.0), truncated=False)
    assert [episode.reward for episode in run.episodes] == [4.0, 0.0]
    assert turns[-1].observation.reward == 0.0


def test_knows_when_it_plays_and_with_which_seed() -> None:
    run = AgentRun(MOVES, seeds=EpisodeSeeds(3))
    seeds = EpisodeSeeds(3)
    assert (run.is_playing, run.num_steps, run.seed) == (False, 0, seeds[0])
    step(run, 0.0)
    assert (run.is_playing, run.num_steps, run.seed) == (True, 1, seeds[0])
    run.game_over(None, truncated=False)
    assert (run.is_playing, run.num_steps, run.seed) == (False, 0, seeds[1])
    assert run.episodes[0].seed == seeds[0]


def test_hangs_up_after_the_last_episode() -> None:
    run = AgentRun(MOVES, agent_id=2, episodes=1)
    step(run, 0.0)
    run.game_over(None, truncated=False)
    assert run.is_stopped
    run.game_over(None, truncated=False)  # the game repeats the call on exit
    assert len(run.episodes) == 1
    assert run.episodes[0].agent_id == 2


def test_loses_patience_in_the_end() -> None:
    run = AgentRun(MOVES)
    for _ in range(100):
        run.stop()
    with pytest.raises(GameExit):
        run.stop()


def test_metrics_of_the_last_observation_are_kept() -> None:
    run = AgentRun(MOVES)
    step(run, 0.0)
    metrics = Obs(1.0).metric("won", 1.0)
    run.game_over(metrics, truncated=False)
    metrics.metric("won", 2.0)
    assert run.episodes[0].metrics == {"won": 1.0}


def test_with_a_schema_actions_must_be_declared() -> None:
    assert AgentRun(MOVES).kinds([Move]) == KINDS
    with pytest.raises(SchemaError, match="not declared"):
        AgentRun(MOVES).kinds([Stance])
    with pytest.raises(SchemaError, match="at least one action"):
        AgentRun(MOVES).kinds([])


def test_without_a_schema_anything_goes() -> None:
    run = AgentRun()
    kinds = run.kinds([EAT, Stance])
    obs = Obs().actors([Rock()], MOVE).globals(World(0.0, Stance.CALM)).entities([])
    obs.mask(Move, [True] * 4)
    schema = run.schema_of(obs, kinds)
    assert [kind.cls for kind in schema.entities] == [Rock, Food]
    assert list(schema.action_space()) == ["eat", "Stance", "Move", "move"]
    assert schema.globals is not None
    assert AgentRun(SCHEMA).schema_of(obs, kinds) is SCHEMA
