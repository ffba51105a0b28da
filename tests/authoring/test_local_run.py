"""AgentRun: score, steps and episodes; episodes that a run ends early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from entity_env import (
    Game,
    GameExit,
    GlobalCategorical,
    Obs,
    ProtocolError,
    Schema,
    SchemaError,
    Turn,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.local_run import AgentFailure, AgentRun, RunLimits
from entity_env.core.seeding import EpisodeSeeds
from entity_env.games import tic_tac_toe
from entity_env.replay import ReplayWriter
from tests.helpers.strategies import EAT, MOVE, SCHEMA, Food, Move, Rock, Stance, World
from tests.helpers.tiny_games import ask, dots_game

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


# ------------------------------------------------------------------ episodes that end early


class First(ScriptedAgent):
    def __init__(self) -> None:
        self.num_begun = 0

    def begin_episode(self) -> None:
        self.num_begun += 1

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return obs.allowed(actions[0])[0]


class Raising(First):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        if len(obs.allowed(actions[0])) < 7:
            raise IndexError("no square left")
        return super().choose(obs, *actions)


class Hanging(First):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        while True:
            time.sleep(0.01)


class Wrong(First):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return "no square"


class Exiting(First):
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        raise SystemExit(3)


def play_endless(agent: Agent, *, seed: int) -> None:
    score = 0
    while ask(agent, score=score) is not None:
        score += 1


def play_endless_episodes(agent: Agent, *, seed: int) -> None:
    while True:
        for score in range(3 + 100 * (agent.seed % 2)):
            if ask(agent, score=score) is None:
                return
        agent.game_over(Obs(3))


def play_pair(agents: Sequence[Agent], *, seed: int) -> None:
    score = 0
    while True:
        for agent in agents:
            if ask(agent, score=score) is None:
                return
            score += 1


ENDLESS = dots_game(play_endless)


def test_an_endless_episode_is_truncated_at_the_step_limit() -> None:
    played = ENDLESS.run(First(), seed=3, episodes=2, limits=RunLimits(max_steps=5))
    seeds = EpisodeSeeds(3)
    assert [(each.reward, each.length, each.seed) for each in played] == [
        (5, 5, seeds[0]),
        (5, 5, seeds[1]),
    ]
    assert all(each.truncated and not each.terminated for each in played)


def test_an_episode_that_ends_in_its_last_step_is_not_cut() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(5):
            if ask(agent) is None:
                return
        agent.game_over(Obs(1))

    turns: list[Turn] = []
    [played] = dots_game(play).run(First(), watch=turns.append, limits=RunLimits(max_steps=5))
    assert played.terminated
    assert not any(turn.is_cut for turn in turns)


def test_a_run_can_begin_with_any_episode() -> None:
    seeds, agent = EpisodeSeeds(7), RandomAgent(1)
    played = ENDLESS.run(agent, seed=7, episodes=2, limits=RunLimits(first_episode=40, max_steps=1))
    assert [(each.number, each.seed) for each in played] == [(40, seeds[40]), (41, seeds[41])]


def test_a_game_that_loops_over_episodes_continues_after_a_cut() -> None:
    game = dots_game(play_endless_episodes)
    played = game.run(First(), seed=1, episodes=8, limits=RunLimits(max_steps=10))
    assert [each.length for each in played] == [10 if each.seed % 2 else 3 for each in played]
    assert [each.truncated for each in played] == [bool(each.seed % 2) for each in played]
    assert [each.number for each in played] == list(range(8))
    assert {each.truncated for each in played} == {True, False}


def test_a_cut_ends_the_episode_of_every_agent() -> None:
    game = dots_game(play_pair, num_agents=2)
    played = game.run(First(), First(), episodes=2, limits=RunLimits(max_steps=3))
    assert [(each.agent_id, each.number, each.length, each.reward) for each in played] == [
        *((0, 0, 3, 6), (0, 1, 3, 6), (1, 0, 3, 4), (1, 1, 3, 4)),
    ]


def test_agents_are_told_of_episodes_that_are_cut() -> None:
    agent = First()
    ENDLESS.run(agent, episodes=3, limits=RunLimits(max_steps=2))
    assert agent.num_begun == 3


@pytest.mark.parametrize("see", [True, False])
def test_a_recording_that_was_cut_verifies(see: bool) -> None:
    for game, agents in ((ENDLESS, [First()]), (dots_game(play_pair, num_agents=2), [First()] * 2)):
        writer = ReplayWriter(see=see)
        game.run(*agents, episodes=2, watch=writer, limits=RunLimits(max_steps=4))
        for replay in writer.replays:
            assert replay.is_whole
            assert replay.verify(game) is None
            assert [turn.is_cut for turn in replay.turns(game) if turn.episode] == [True] * len(
                agents
            )


def test_a_recording_that_was_cut_differs_from_a_game_that_ends_there() -> None:
    writer = ReplayWriter()
    ENDLESS.run(First(), watch=writer, limits=RunLimits(max_steps=4))

    def play(agent: Agent, *, seed: int) -> None:
        for score in range(4):
            if ask(agent, score=score) is None:
                return
        agent.game_over(Obs(4))

    found = writer.replays[0].verify(dots_game(play))
    assert found is not None
    assert found.kind in ("end", "observation")


@pytest.mark.parametrize(
    ("bot", "reason"),
    [
        (Raising, "IndexError: no square left"),
        (Hanging, "hangs: no answer for 0.05 s"),
        (Wrong, "AnswerError: "),
        (Exiting, "SystemExit: 3"),
    ],
)
def test_an_agent_that_fails_ends_only_its_episode(bot: type[First], reason: str) -> None:
    failures: list[AgentFailure] = []
    limits = RunLimits(agent_timeout_s=0.05, on_failure=failures.append)
    played = tic_tac_toe.run(bot(), RandomAgent(1), seed=2, episodes=3, limits=limits)
    assert [each.number for each in failures] == [0, 1, 2]
    assert [each.seed for each in failures] == [EpisodeSeeds(2)[number] for number in range(3)]
    assert all(each.agent_id == 0 and reason in each.reason for each in failures)
    assert all(each.truncated for each in played)
    assert all("test_local_run.py" in each.place for each in failures if bot is not Wrong)


def test_a_recording_that_a_failing_agent_ended_verifies() -> None:
    writer = ReplayWriter()
    limits = RunLimits(on_failure=lambda failure: None)
    tic_tac_toe.run(First(), Raising(), seed=2, episodes=2, watch=writer, limits=limits)
    assert len(writer.replays) == 2
    for replay in writer.replays:
        assert replay.is_whole
        assert replay.verify(tic_tac_toe) is None


def test_without_a_handler_a_failing_agent_ends_the_run() -> None:
    with pytest.raises(IndexError, match="no square left"):
        tic_tac_toe.run(Raising(), RandomAgent(1))
    with pytest.raises(WorkerError, match=r"agent 0 .*Hanging\) hangs: no answer for 0.05 s"):
        tic_tac_toe.run(Hanging(), RandomAgent(1), limits=RunLimits(agent_timeout_s=0.05))


def test_the_time_of_an_agent_is_not_that_of_the_game() -> None:
    class Slow(First):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            time.sleep(0.06)
            return super().choose(obs, *actions)

    def play(agent: Agent, *, seed: int) -> None:
        ask(agent)
        agent.game_over(Obs(1))

    [played] = dots_game(play).run(Slow(), step_timeout_s=0.05)
    assert played.terminated


def test_a_game_that_ignores_a_cut_is_named() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        while True:
            ask(agent)

    with pytest.raises(ProtocolError, match="play continues after act returned None"):
        dots_game(play).run(First(), limits=RunLimits(max_steps=3))


@pytest.mark.parametrize(
    "wrong", [{"max_steps": 0}, {"first_episode": -1}, {"agent_timeout_s": 0}, {"max_steps": 1.5}]
)
def test_invalid_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RunLimits(**wrong)


def test_a_setting_of_the_game_may_be_called_max_steps() -> None:
    def play(agent: Agent, *, seed: int, max_steps: int = 3) -> None:
        for _ in range(max_steps):
            if ask(agent) is None:
                return
        agent.game_over(Obs(1))

    game: Game = dots_game(play)
    [played] = game.run(First(), max_steps=5)
    assert played.length == 5
