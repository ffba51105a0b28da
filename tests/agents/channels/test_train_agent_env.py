"""A game as an `Environment`: order of calls, bad actions, several agents, and the end."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from entity_env import (
    Action,
    CategoricalAction,
    ClosedError,
    ContinuousAction,
    Environment,
    Game,
    GlobalCategoricalAction,
    Obs,
    ProtocolError,
    SchemaError,
    SelectEntityAction,
    UsageError,
    questions,
)
from entity_env.agents import Agent, TrainAgentEnv
from entity_env.agents.channels.channel import Transport
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from tests.helpers.tiny_games import (
    EACH,
    PICK,
    STEER,
    Cat,
    Dog,
    Dot,
    Ghost,
    Move,
    Turn,
    Weather,
    ask,
    count,
    dots_game,
)

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
STAY = {"Move": GlobalCategoricalAction(1, "STAY")}

pytestmark = pytest.mark.parametrize("transport", TRANSPORTS)


def test_it_is_an_environment(transport: Transport) -> None:
    with_settings = count.with_settings(length=2)
    env = TrainAgentEnv(with_settings, transport=transport)
    assert isinstance(env, Environment)
    assert env.obs_space() == count.obs_space()
    assert env.action_space() == count.action_space()
    observation = env.reset()
    steps = 0
    while not observation.done:
        observation = env.act(STAY)
        steps += 1
    assert steps == 2
    env.close()


class TestOrderOfCalls:
    def test_act_before_reset(self, transport: Transport) -> None:
        env = TrainAgentEnv(count, transport=transport)
        with pytest.raises(ProtocolError, match="nothing is being played: call reset"):
            env.act(STAY)
        env.reset()
        env.close()

    def test_act_after_the_end(self, transport: Transport) -> None:
        env = TrainAgentEnv(count, transport=transport)
        env.reset()
        for _ in range(3):
            env.act(STAY)
        assert env.is_over
        for _ in range(2):
            with pytest.raises(ProtocolError, match="the episode has ended: call reset"):
                env.act(STAY)
        assert not env.reset().done
        env.act(STAY)
        env.close()

    def test_after_close(self, transport: Transport) -> None:
        env = TrainAgentEnv(count, transport=transport)
        env.reset()
        env.close()
        env.close()
        for call in (env.reset, lambda: env.act(STAY), env.reset_all, lambda: env.act_all([STAY])):
            with pytest.raises(ClosedError, match="make a new environment"):
                call()

    def test_after_an_error_of_the_game_only_reset_helps(self, transport: Transport) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent)
            raise OSError("broken")

        env = TrainAgentEnv(dots_game(play), transport=transport)
        for _ in range(2):
            env.reset()
            with pytest.raises(OSError, match="broken"):
                env.act(STAY)
            with pytest.raises(ProtocolError, match="nothing is being played: call reset"):
                env.act(STAY)
        env.close()

    def test_a_game_for_one_agent_may_be_stepped_as_one_for_several(
        self, transport: Transport
    ) -> None:
        env = TrainAgentEnv(count, transport=transport)
        [observation] = env.reset_all()
        assert observation.actions
        [observation] = env.act_all([STAY])
        assert observation.reward == 1
        env.close()


class TestSeeds:
    def test_the_constructors_is_that_of_the_first_reset(self, transport: Transport) -> None:
        one = TrainAgentEnv(count, transport=transport, seed=5)
        other = TrainAgentEnv(count, transport=transport, seed=6)
        seeds = []
        for env in (one, other):
            for _ in range(2):
                env.reset()
                for _ in range(3):
                    env.act(STAY)
                seeds.append(env.episodes[0].seed)
            env.close()
        assert seeds == [EpisodeSeeds(seed, 0)[i] for seed in (5, 6) for i in range(2)]

    def test_that_of_a_reset_is_the_episodes_as_of_any_environment(
        self, transport: Transport
    ) -> None:
        seen = []

        def play(agent: Agent, *, seed: int) -> None:
            seen.append(seed)
            agent.act(Obs().entities([Dot(0)]), Move)
            agent.game_over(Obs())

        env = TrainAgentEnv(dots_game(play), transport=transport)
        for seed in (6, None, 7):
            env.reset(seed=seed)
            env.act(STAY)
            assert env.episodes[0].seed == seen[-1]
        assert seen == [6, EpisodeSeeds(6)[1], 7]
        env.reset_all(seed=EpisodeSeeds(6, env_id=3))
        assert seen[-1] == EpisodeSeeds(6, 3)[0]
        env.close()
        source = partial(TrainAgentEnv, dots_game(play), transport=transport)
        with VecEnv(source, 2, seed=9) as vec:
            vec.reset()
            batch = vec.act({"Move": np.zeros(2, np.int64)})
        assert {episode.seed for episode in batch.episodes} <= set(seen)

    def test_bad_ones_are_refused_at_once(self, transport: Transport) -> None:
        with pytest.raises(UsageError, match="seed"):
            TrainAgentEnv(count, transport=transport, seed=-1)
        env = TrainAgentEnv(count, transport=transport, seed=3)
        bad: Any = "three"
        with pytest.raises(UsageError, match="seed"):
            env.reset(seed=bad)
        env.reset()
        for _ in range(3):
            env.act(STAY)
        same = TrainAgentEnv(count, transport=transport, seed=3)
        same.reset()
        for _ in range(3):
            same.act(STAY)
        assert env.episodes == same.episodes
        env.close()
        same.close()


def play_all(agent: Agent, *, seed: int) -> None:
    """Asks for all actions at once, with masks; the score counts the actions."""
    act: Any = agent.act
    score = 0
    while True:
        obs = Obs(score).globals(Weather(0)).entities([Cat(1, 2)])
        obs.entities([Dog(Turn.ON, i) for i in range(3)])
        obs.actors([Ghost(), Ghost()])
        obs.mask(Move, [True, True, False]).mask(EACH, [[True, False], [True, True]])
        obs.mask(PICK, [[True, False, True], [True, True, True]])
        if act(obs, Move, EACH, PICK, STEER) is None:
            return
        score += 1


EVERYTHING = Game(
    play_all,
    entities=(Cat, Dog, Ghost),
    actions=(Move, EACH, PICK, STEER),
    global_features=Weather,
)
LABELS = ("BACK", "ON")
GOOD: dict[str, Action] = {
    "Move": GlobalCategoricalAction(1, "STAY"),
    "Turn": CategoricalAction([4, 5], np.array([0, 1]), LABELS),
    "SelectDog": SelectEntityAction([4, 5], [3, 2]),
    "steer": ContinuousAction([4, 5], np.array([[0.5, 1], [-1, 2]], np.float32)),
}
BAD: dict[str, tuple[str, Action | None, str]] = {
    "missing": ("Turn", None, "'Turn' needs a CategoricalAction, got none"),
    "masked": ("Move", GlobalCategoricalAction(2, "RIGHT"), "'Move'.*'RIGHT', which its mask"),
    "actee": ("SelectDog", SelectEntityAction([4, 5], [3, 0]), "'SelectDog' selects 0"),
    "bounds": (
        "steer",
        ContinuousAction([4, 5], np.array([[0, 1], [0, 2.5]], np.float32)),
        "'steer': actor 1 chose 2.5 for 'gas', expected 0.0 to 2.0",
    ),
    "unasked": ("Jump", GlobalCategoricalAction(0, ""), "'Jump' was not requested; requested: "),
}


@pytest.mark.parametrize(("name", "action", "message"), BAD.values(), ids=BAD)
def test_a_bad_action_is_refused_and_nothing_happens(
    transport: Transport, name: str, action: Action | None, message: str
) -> None:
    env = TrainAgentEnv(EVERYTHING, transport=transport)
    env.reset()
    assert env.act(GOOD).reward == 1
    bad = {key: value for key, value in {**GOOD, name: action}.items() if value is not None}
    with pytest.raises(SchemaError, match=message):
        env.act(bad)
    assert env.act(GOOD).reward == 1
    env.close()


class TestSeveralAgents:
    def make(self, transport: Transport) -> TrainAgentEnv:
        """Three agents; the first and the last are asked."""

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            score = 0
            while True:
                obs = [Obs(score).entities([Dot(i)]) for i in range(3)]
                pending = [agents[i].act_async(obs[i], Move) for i in (0, 2)]
                if pending[0].get() is None:
                    return
                score += 1

        return TrainAgentEnv(dots_game(play, num_agents=3), transport=transport)

    @pytest.mark.parametrize(
        ("answers", "message"),
        [
            (
                [STAY, STAY, STAY],
                "agents 0, 2 are waiting for an action, but answers came for 0, 1, 2",
            ),
            ([STAY, None, None], "agents 0, 2 are waiting .* came for 0:"),
            ([None, None, None], "agents 0, 2 are waiting .* came for none:"),
            ([STAY, None], r"expected one answer per agent \(3\), got 2"),
        ],
    )
    def test_answers_for_others_than_those_that_wait(
        self,
        transport: Transport,
        answers: list[Mapping[str, Action] | None],
        message: str,
    ) -> None:
        env = self.make(transport)
        env.reset_all()
        with pytest.raises(ProtocolError, match=message):
            env.act_all(answers)
        assert env.act_all([STAY, None, STAY])[0].reward == 1
        env.close()

    def test_those_that_are_not_asked_see_nothing(self, transport: Transport) -> None:
        env = self.make(transport)
        _, idle, _ = env.reset_all()
        assert not idle.actions
        assert not idle.features
        assert not idle.done
        assert questions(idle, env.obs_space(), env.action_space()) == []
        env.close()

    def test_are_not_for_reset_and_act(self, transport: Transport) -> None:
        env = self.make(transport)
        with pytest.raises(ProtocolError, match="is for 3 agents: call reset_all"):
            env.reset()
        env.reset_all()
        with pytest.raises(ProtocolError, match="is for 3 agents: call act_all"):
            env.act(STAY)
        env.close()


def test_a_last_observation_that_does_not_fit_is_an_error_of_the_game(
    transport: Transport,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        ask(agent)
        agent.game_over(Obs().entities([Dot(float("inf"))]))

    env = TrainAgentEnv(dots_game(play), transport=transport)
    env.reset()
    with pytest.raises(SchemaError, match="entity Dot: feature 'x' of row 0 must be finite"):
        env.act(STAY)
    env.close()


def test_observations_stay_as_they_were(transport: Transport) -> None:
    dot = Dot(0)

    def play(agent: Agent, *, seed: int) -> None:
        while True:
            agent.act(Obs(dot.x).entities([dot]), Move)
            dot.x += 1

    env = TrainAgentEnv(dots_game(play), transport=transport)
    observations = [env.reset()] + [env.act(STAY) for _ in range(3)]
    assert [np.asarray(o.features["Dot"]).tolist() for o in observations] == [
        [[x]] for x in range(4)
    ]
    env.close()


def test_the_observation_belongs_to_the_caller(transport: Transport) -> None:
    """Changes by the caller do not affect the game."""
    dots = [Dot(1.0)]

    def play(agent: Agent, *, seed: int) -> None:
        while True:
            agent.act(Obs().entities(np.array([[dot.x] for dot in dots]), of=Dot), Move)

    env = TrainAgentEnv(dots_game(play), transport=transport)
    first = env.reset()
    np.asarray(first.features["Dot"])[:] = 7
    assert np.asarray(env.act(STAY).features["Dot"]).tolist() == [[1]]
    env.close()
