"""PolicyAgent: an agent made from one function."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from entity_env import (
    Action,
    CategoricalAction,
    Game,
    GlobalCategoricalAction,
    Obs,
    Observation,
    ProtocolError,
    SchemaError,
    SelectEntityAction,
)
from entity_env.agents import Agent, PolicyAgent, RunLimits
from entity_env.vec import VecEnv
from tests.agents.rogue_net.test_memory import SIGNS, Sign, Turn, make_agents
from tests.helpers.strategies import (
    CALL,
    EAT,
    MOVE,
    STEER,
    Food,
    Move,
    Rock,
    Stance,
    World,
    untyped,
)

Decide = Callable[[Observation], Mapping[str, Action] | None]


class Scripted(PolicyAgent):
    """Decides with a function, and records its observations."""

    def __init__(self, decide: Decide | None = None) -> None:
        super().__init__()
        self.seen: list[Observation] = []
        self._decide = decide or self._first

    def decide(self, observation: Observation) -> Mapping[str, Action] | None:
        self.seen.append(observation)
        return self._decide(observation)

    def _first(self, observation: Observation) -> Mapping[str, Action]:
        """The first legal choice of every actor."""
        answers: dict[str, Action] = {}
        for question in self.questions(observation):
            first = [int(row.argmax()) for row in question.allowed]
            if question.name == "steer":
                answers["steer"] = question.action([[0.0, 1.0]] * len(question.actors))
            else:
                answers[question.name] = question.action(first)
        return answers


FOODS = [Food(1.0), Food(2.0)]


def obs() -> Obs:
    return Obs(1.0).actors([Rock(), Rock()]).entities(FOODS).globals(World(0.0, Stance.CALM))


def test_answers_what_it_is_asked() -> None:
    agent = Scripted()
    assert agent.act(obs(), Move) is Move.UP
    assert agent.act(obs().mask(Move, [False, True, True, True]), Move) is Move.DOWN
    assert agent.act(obs(), MOVE) == [Move.UP, Move.UP]
    picked = agent.act(obs(), EAT)
    assert picked is not None
    assert all(food is FOODS[0] for food in picked)
    answers = agent.act(obs(), MOVE, STEER)
    assert answers is not None
    moves, values = answers
    assert moves == [Move.UP, Move.UP]
    assert values.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    three = agent.act(obs(), CALL, MOVE, EAT)
    assert three == (Move.UP, [Move.UP] * 2, [FOODS[0]] * 2)


def test_answers_at_once_when_it_need_not() -> None:
    pending = Scripted().act_async(obs(), Move)
    assert pending.get() is Move.UP
    assert pending.get() is Move.UP


def test_rewards_follow_the_score_without_a_game_too() -> None:
    agent = Scripted()
    for score in (1.0, 4.0):
        agent.act(Obs(score), Move)
    agent.game_over(Obs(5.0))
    agent.act(Obs(7.0), Move)
    assert [seen.reward for seen in agent.seen] == [0.0, 3.0, 0.0]


def test_none_hangs_up() -> None:
    agent = Scripted(lambda observation: None)
    assert agent.act(obs(), Move) is None
    assert agent.act(obs(), Move) is None
    assert len(agent.seen) == 1  # not asked


def test_has_no_schema_before_it_is_asked() -> None:
    agent = Scripted()
    with pytest.raises(ProtocolError, match="Scripted has no game yet"):
        _ = agent.schema
    agent.act(obs(), Move)
    assert list(agent.schema.action_space()) == ["Move"]


def test_a_game_binds_it_to_its_schema() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        if agent.act(Obs(), Move) is not None:
            agent.game_over()

    game = Game(play, entities=(Food,), actions=(Move, MOVE))
    agent = Scripted()
    [episode] = game.run(agent, seed=5)
    assert agent.schema is game.schema
    assert episode.seed != agent.seed  # the seed of the next episode
    agent.close()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "Scripted gave an illegal answer: action 'move' needs a CategoricalAction, got none"),
        ({"move": GlobalCategoricalAction(0, "UP")}, "got GlobalCategoricalAction"),
        ({"move": CategoricalAction([0, 1], np.array([0, 4]), [])}, "actor 1 chose 4"),
        ({"move": CategoricalAction([1, 0], np.array([0, 0]), [])}, "in this order"),
        ({"move": SelectEntityAction([0, 1], [2, 2])}, "got SelectEntityAction"),
    ],
)
def test_illegal_answers_are_refused(answers: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Scripted(lambda observation: answers).act(obs(), MOVE)


def test_what_cannot_be_shown_or_asked_is_refused() -> None:
    agent = Scripted()
    with pytest.raises(SchemaError, match="asks every actor"):
        agent.act(Obs(), MOVE)
    with pytest.raises(SchemaError, match="an action must be an Enum"):
        agent.act(Obs(), untyped([Move]))
    with pytest.raises(SchemaError, match="at least one action"):
        untyped(agent).act(Obs())


def test_an_agent_of_its_own_kind_cannot_join_a_game() -> None:
    class Driven(Scripted):
        join = Agent.join

    with pytest.raises(ProtocolError, match="Driven is driven by its environment"):
        Game(lambda agent, *, seed: None, entities=(), actions=()).run(Driven())


# ------------------------------------------------------------------ several games at once


def in_rooms(players: Sequence[Agent], seeds: Sequence[int]) -> list[list[object]]:
    """The answers of direct calls, with all rooms taking turns."""
    rngs = [random.Random(seed) for seed in seeds]
    answers: list[list[object]] = [[] for _ in seeds]
    for step in range(6):
        for player, rng, mine in zip(players, rngs, answers, strict=True):
            obs = Obs(float(step)).entities([Sign(rng.uniform(-2, 2))])
            mine.append(player.act(obs, Turn))
    for player in players:
        player.game_over(Obs(0.0))
    return answers


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_rooms_with_agents_for_each_game_are_kept_apart(kind: int) -> None:
    agent = make_agents()[kind]
    alone = [in_rooms([agent.for_game()], [seed])[0] for seed in range(4)]
    assert in_rooms([agent.for_game() for _ in range(4)], range(4)) == alone
    assert len({tuple(each) for each in alone}) > 1
    again = [agent.for_game()]
    assert [in_rooms(again, [seed])[0] for seed in range(4)] == alone  # one game after the other


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_a_direct_call_of_an_agent_with_memory_must_say_which_game_it_is(kind: int) -> None:
    agent = make_agents()[kind]
    with pytest.raises(ProtocolError, match=r"agent with memory .* player = agent.for_game\(\)"):
        agent.act(Obs(0.0).entities([Sign(1.0)]), Turn)
    with pytest.raises(ProtocolError, match="agent with memory"):
        agent.act_async(Obs(0.0).entities([Sign(1.0)]), Turn)


def test_one_agent_with_memory_plays_in_several_threads() -> None:
    [agent, _] = make_agents()
    seeds = range(12)
    alone = [SIGNS.play_episode(agent, seed=seed)[0].reward for seed in seeds]
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(SIGNS.play_episode, agent, seed=seed) for seed in seeds]
        assert [each.result()[0].reward for each in found] == alone


def test_one_agent_with_memory_plays_several_batches_in_turn() -> None:
    [agent, _] = make_agents()

    def played(seeds: Sequence[int]) -> list[list[float]]:
        """Rewards in one `VecEnv` per seed, which take turns."""
        with ExitStack() as stack:
            vecs = [stack.enter_context(VecEnv(SIGNS, 3)) for _ in seeds]
            batches = [vec.reset(seed) for vec, seed in zip(vecs, seeds, strict=True)]
            found: list[list[float]] = [[] for _ in seeds]
            for _ in range(25):
                for i, vec in enumerate(vecs):
                    batches[i] = vec.act(agent.decide_batch(batches[i], SIGNS.schema))
                    found[i] += [episode.reward for episode in batches[i].episodes]
        return found

    assert played([1, 2]) == [played([1])[0], played([2])[0]]


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_an_agent_forgets_an_episode_that_was_cut(kind: int) -> None:
    agent = make_agents()[kind]
    limits = RunLimits(max_steps=3)
    played = SIGNS.run(agent, seed=4, episodes=8, limits=limits)
    assert any(each.truncated for each in played)
    for each in played:
        [alone] = SIGNS.play_episode(agent, seed=each.seed, limits=limits)
        assert alone.reward == each.reward
