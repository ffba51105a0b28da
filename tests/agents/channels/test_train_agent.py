"""The game's side: guarantees of an agent to a game that is driven from outside."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Protocol, get_args

import numpy as np
import pytest

from entity_env import (
    Game,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    Obs,
    ProtocolError,
    SchemaError,
    questions,
)
from entity_env.agents import Agent, TrainAgentEnv
from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.game_runner import TrainAgent
from tests.helpers.tiny_games import (
    EACH,
    PICK,
    Dog,
    Dot,
    Ghost,
    Move,
    Play,
    Turn,
    Weather,
    ask,
    chaos,
    dots_game,
)

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
LEFT, STAY, RIGHT = ({"Move": GlobalCategoricalAction(move.value, move.name)} for move in Move)


def show(x: float = 0, score: float = 0) -> Obs:
    return Obs(score).entities([Dot(x)])


class Driven(Protocol):
    """Makes an environment of a play function."""

    def __call__(self, play: Play, num_agents: int = 1) -> TrainAgentEnv: ...


@pytest.fixture(params=TRANSPORTS)
def driven(request: pytest.FixtureRequest) -> Iterator[Driven]:
    """Makes environments that are closed after the test."""
    envs: list[TrainAgentEnv] = []

    def make(play: Play, num_agents: int = 1) -> TrainAgentEnv:
        envs.append(TrainAgentEnv(dots_game(play, num_agents), transport=request.param))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


class TestAct:
    def test_returns_what_the_driver_chose(self, driven: Driven) -> None:
        moves: list[Move | None] = []

        def play(agent: Agent, *, seed: int) -> None:
            while True:
                moves.append(ask(agent))

        env = driven(play)
        env.reset()
        for choice in (LEFT, STAY, RIGHT):
            env.act(choice)
        assert moves == [Move.LEFT, Move.STAY, Move.RIGHT]

    def test_shows_what_the_game_shows(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent, score=1.5, x=7)
            ask(agent, score=4, x=8)

        env = driven(play)
        first = env.reset()
        assert np.asarray(first.features["Dot"]).tolist() == [[7]]
        assert first.reward == 0
        second = env.act(STAY)
        assert np.asarray(second.features["Dot"]).tolist() == [[8]]
        assert second.reward == 2.5

    def test_without_a_question(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            act: Any = agent.act
            act(show())

        with pytest.raises(SchemaError, match="act needs at least one action"):
            driven(play).reset()

    @pytest.mark.parametrize("action", [Turn, EACH, [Move], 3])
    def test_with_an_undeclared_action(self, driven: Driven, action: type[Enum]) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            agent.act(show(), action)

        with pytest.raises(SchemaError, match=r"not declared; declared are Move"):
            driven(play).reset()

    def test_a_refused_question_leaves_the_agent_ready(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            with pytest.raises(SchemaError):
                agent.act(show(), Turn)
            ask(agent, x=5)

        assert np.asarray(driven(play).reset().features["Dot"]).tolist() == [[5]]

    def test_several_questions_at_once(self) -> None:
        answers: list[Any] = []
        dogs = [Dog(Turn.ON, i) for i in range(3)]

        def play(agent: Agent, *, seed: int) -> None:
            ghosts = [Ghost(), Ghost()]
            obs = Obs().globals(Weather(0)).entities(dogs).actors(ghosts)
            answers.append(agent.act(obs, Move, EACH, PICK))

        env = TrainAgentEnv(_with_play(play))
        observation = env.reset()
        assert list(observation.actions) == ["Move", "Turn", "SelectDog"]
        asked = questions(observation, env.obs_space(), env.action_space())
        chosen = [[2], [0, 1], [2, 0]]
        with pytest.raises(ProtocolError):  # play returns without game_over
            env.act({q.name: q.action(c) for q, c in zip(asked, chosen, strict=True)})
        [(move, turns, picked)] = answers
        assert move is Move.RIGHT
        assert turns == [Turn.BACK, Turn.ON]
        assert picked == [dogs[2], dogs[0]]
        env.close()


def _with_play(play: Play) -> Game:
    schema = chaos.schema
    return Game(
        play,
        entities=[kind.cls for kind in schema.entities],
        actions=list(schema.actions),
        global_features=Weather,
    )


class TestActAsync:
    def test_several_agents_decide_together(self, driven: Driven) -> None:
        moves: list[Move | None] = []

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            pending = [agent.act_async(show(i), Move) for i, agent in enumerate(agents)]
            moves.extend(answer.get() for answer in pending)
            for agent in agents:
                agent.game_over()

        env = driven(play, num_agents=3)
        observations = env.reset_all()
        assert [np.asarray(o.features["Dot"]).tolist() for o in observations] == [
            [[0]],
            [[1]],
            [[2]],
        ]
        env.act_all([LEFT, STAY, RIGHT])
        assert moves == [Move.LEFT, Move.STAY, Move.RIGHT]
        assert env.is_over

    def test_get_before_every_agent_has_observed_cannot_deadlock(self, driven: Driven) -> None:
        moves: list[Move | None] = []

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            moves.append(agents[0].act_async(show(0), Move).get())
            moves.append(agents[1].act_async(show(1), Move).get())
            for agent in agents:
                agent.game_over()

        env = driven(play, num_agents=2)
        one, other = env.reset_all()
        assert one.actions
        assert not other.actions
        one, other = env.act_all([LEFT, None])
        assert not one.actions
        assert other.actions
        env.act_all([None, RIGHT])
        assert moves == [Move.LEFT, Move.RIGHT]

    def test_the_answer_stays_the_same(self, driven: Driven) -> None:
        answers: list[Move | None] = []

        def play(agent: Agent, *, seed: int) -> None:
            first = agent.act_async(show(), Move)
            answers.append(first.get())
            second = agent.act_async(show(), Move)
            answers.extend([second.get(), first.get(), second.get()])
            agent.game_over()

        env = driven(play)
        env.reset()
        env.act(LEFT)
        env.act(RIGHT)
        assert answers == [Move.LEFT, Move.RIGHT, Move.LEFT, Move.RIGHT]

    def test_an_answer_that_came_with_anothers_is_not_waited_for(self, driven: Driven) -> None:
        answers: list[Move | None] = []

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            pending = agents[0].act_async(show(), Move)
            answers.append(agents[1].act(show(), Move))
            answers.append(pending.get())
            for agent in agents:
                agent.game_over()

        env = driven(play, num_agents=2)
        env.reset_all()
        env.act_all([LEFT, RIGHT])
        assert answers == [Move.RIGHT, Move.LEFT]
        assert env.is_over

    def test_an_answer_need_not_be_read(self, driven: Driven) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            for x in range(2):
                _ = agents[0].act_async(show(x), Move)
                agents[1].act(show(x), Move)
            for agent in agents:
                agent.game_over()

        env = driven(play, num_agents=2)
        env.reset_all()
        observation, _ = env.act_all([LEFT, LEFT])
        assert np.asarray(observation.features["Dot"]).tolist() == [[1]]

    def test_what_changes_later_is_not_shown(self, driven: Driven) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            dot = Dot(1)
            dots = [dot]
            pending = agents[0].act_async(Obs().entities(dots), Move)
            dot.x = 2
            dots.append(Dot(3))
            agents[1].act(Obs().entities(dots), Move)
            pending.get()

        env = driven(play, num_agents=2)
        one, other = env.reset_all()
        assert np.asarray(one.features["Dot"]).tolist() == [[1]]
        assert np.asarray(other.features["Dot"]).tolist() == [[2], [3]]


class TestAskedTwice:
    """Asked again before the first answer arrives."""

    @pytest.mark.parametrize("first", ["act_async"])
    @pytest.mark.parametrize("second", ["act", "act_async"])
    def test_is_refused(self, driven: Driven, first: str, second: str) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            getattr(agents[1], first)(show(), Move)
            getattr(agents[1], second)(show(), Move)

        with pytest.raises(ProtocolError, match=r"agent 1 was asked before .*call \.get\(\)"):
            driven(play, num_agents=2).reset_all()

    def test_game_over_with_a_question_open_is_refused(self, driven: Driven) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            _ = agents[1].act_async(show(), Move)
            agents[1].game_over()

        with pytest.raises(ProtocolError, match=r"agent 1 was given game_over before .*\.get\(\)"):
            driven(play, num_agents=2).reset_all()


class TestGameOver:
    def test_shows_the_last_observation(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent, score=1)
            obs = show(9, score=5).metric("turns", 2).mask(Move, [True, False, True])
            agent.game_over(obs, truncated=True)

        env = driven(play)
        env.reset()
        last = env.act(STAY)
        assert np.asarray(last.features["Dot"]).tolist() == [[9]]
        assert last.reward == 4
        assert (last.terminated, last.truncated) == (False, True)
        assert last.metrics == {"turns": 2}
        assert last.actions == {"Move": GlobalCategoricalActionMask([True, False, True])}
        [episode] = env.episodes
        assert (episode.reward, episode.length, episode.metrics) == (4, 1, {"turns": 2})

    def test_without_an_observation_the_score_stays(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent, score=1)
            ask(agent, score=3)
            agent.game_over()

        env = driven(play)
        env.reset()
        env.act(STAY)
        last = env.act(STAY)
        assert last.terminated
        assert last.reward == 0
        assert not last.features
        assert env.episodes[0].reward == 2

    def test_before_the_first_question_earns_nothing(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            agent.game_over(show(score=100))

        env = driven(play)
        last = env.reset()
        assert last.done
        assert last.reward == 0
        assert (env.episodes[0].reward, env.episodes[0].length) == (0, 0)

    def test_the_first_score_of_an_episode_earns_nothing(self, driven: Driven) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent, score=100)
            agent.game_over(show(score=101))

        env = driven(play)
        for _ in range(2):
            assert env.reset().reward == 0
            assert env.act(STAY).reward == 1

    def test_while_the_others_play_on(self, driven: Driven) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            for i, agent in enumerate(agents):
                for j, other in enumerate(agents[i:]):
                    other.act(show(score=j), Move)
                agent.game_over(show(score=10))

        env = driven(play, num_agents=2)
        env.reset_all()
        env.act_all([STAY, None])
        one, other = env.act_all([None, STAY])
        assert (one.done, other.done, env.is_over) == (True, False, False)
        assert other.actions
        assert [episode.agent_id for episode in env.episodes] == [0]
        one, other = env.act_all([None, STAY])
        assert (one.done, other.done, env.is_over) == (False, True, True)  # reported once
        assert not one.features
        assert [episode.agent_id for episode in env.episodes] == [1]

    @pytest.mark.parametrize("again", ["act", "act_async", "game_over"])
    def test_an_agent_that_is_over_waits_for_the_others(self, driven: Driven, again: str) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            agents[0].game_over()
            if again == "game_over":
                agents[0].game_over()
            else:
                getattr(agents[0], again)(show(), Move)

        with pytest.raises(ProtocolError, match=r"after its game_over, while other.*respawns=True"):
            driven(play, num_agents=2).reset_all()

    def test_an_agent_that_never_observed_still_has_to_end(self, driven: Driven) -> None:
        """The episode is not over when only the agents that observed something have ended."""

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            agents[0].act(show(), Move)
            agents[0].game_over()
            agents[1].act(show(), Move)
            agents[1].game_over()

        env = driven(play, num_agents=2)
        env.reset_all()
        one, other = env.act_all([STAY, None])
        assert (one.done, other.done, env.is_over) == (True, False, False)
        one, other = env.act_all([None, STAY])
        assert (one.done, other.done, env.is_over) == (False, True, True)

    def test_an_agent_that_took_no_part_need_not_end(self, driven: Driven) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            agents[0].act(show(), Move)
            agents[0].game_over()

        env = driven(play, num_agents=2)
        for number in range(3):
            env.reset_all()
            one, other = env.act_all([STAY, None])
            assert one.done
            assert not other.done
            assert env.is_over
            assert [(e.agent_id, e.number) for e in env.episodes] == [(0, number)]

    def test_in_a_finally_block_of_a_game_that_is_closed(self, driven: Driven) -> None:
        notes: list[str] = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                while True:
                    ask(agent)
            finally:
                agent.game_over(show(score=3))
                notes.append("cleaned up")

        env = driven(play)
        env.reset()
        env.reset()
        assert env.episodes == []
        env.close()
        assert notes == ["cleaned up"] * 2


class TestSeed:
    def test_is_that_of_the_episode(self, driven: Driven) -> None:
        seeds: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            while True:
                seeds.append(agent.seed)
                ask(agent)
                seeds.append(agent.seed)
                agent.game_over()

        env = driven(play)
        reported = []
        for _ in range(2):
            env.reset()
            env.act(STAY)
            reported += [env.episodes[0].seed] * 2
        assert seeds == reported
        assert len(set(seeds)) == 2


def test_a_train_agent_cannot_be_handed_to_a_game() -> None:
    agents: list[Agent] = []

    def play(agent: Agent, *, seed: int) -> None:
        agents.append(agent)
        ask(agent)

    game = dots_game(play)
    env = TrainAgentEnv(game)
    env.reset()
    assert isinstance(agents[0], TrainAgent)
    with pytest.raises(ProtocolError, match="TrainAgent is driven by its environment"):
        game.run(agents[0])
    env.close()


def test_an_agent_whose_game_was_never_started() -> None:
    env = TrainAgentEnv(dots_game(lambda agent, *, seed: None))
    with pytest.raises(ProtocolError, match="reset its environment first"):
        ask(env._host.agents[0])
    env.close()
