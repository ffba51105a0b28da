"""The driver's side: a host starts, resumes and ends a game, and counts its episodes."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol, get_args

import pytest

from entity_env import ClosedError, Episode, GameExit, Obs, ProtocolError, UsageError
from entity_env.agents import Agent
from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.game_runner import GameRunner, TrainAgent
from entity_env.core.seeding import EpisodeSeeds
from tests.agents.channels.test_greenlet_channel import in_thread
from tests.attack.interrupter import Interrupter
from tests.helpers.tiny_games import Move, Play, ask, dots_game

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)


class Host(GameRunner):
    """Records every finished episode."""

    def __init__(self, play: Play, num_agents: int, transport: Transport, holds: bool) -> None:
        self.ended: list[Episode] = []
        game = dots_game(play, num_agents)
        super().__init__(game, transport=transport, env_id=4, on_end=self._note, holds_at_end=holds)

    def _note(self, agent: TrainAgent, obs: Obs, episode: Episode) -> None:
        self.ended.append(episode)

    def step(self) -> None:
        """Observes and acts for every waiting agent, then resumes the game."""
        self.observe()
        for agent in self.waiting:
            agent.give(Move.STAY)
        self.resume()
        self.require_waiting()

    def observe(self) -> None:
        for agent in self.waiting:
            agent.is_playing = True


class MakeHost(Protocol):
    def __call__(self, play: Play, num_agents: int = 1, holds: bool = True) -> Host: ...


@pytest.fixture(params=TRANSPORTS)
def make(request: pytest.FixtureRequest) -> Iterator[MakeHost]:
    hosts: list[Host] = []

    def make_host(play: Play, num_agents: int = 1, holds: bool = True) -> Host:
        hosts.append(Host(play, num_agents, request.param, holds))
        return hosts[-1]

    yield make_host
    for host in hosts:
        host.close()


each_hold = pytest.mark.parametrize("holds", [False, True])


class Plays(list[int]):
    """Seeds passed to `play`; the game asks `length` times per episode."""

    def __init__(self, length: int = 2) -> None:
        super().__init__()
        self.length = length

    def play(self, agent: Agent, *, seed: int) -> None:
        self.append(seed)
        for _ in range(self.length):
            ask(agent)
        agent.game_over()


def seed_of(number: int, run: int = 0) -> int:
    return EpisodeSeeds(run, 4)[number]


class TestRestart:
    def test_runs_until_an_agent_waits(self, make: MakeHost) -> None:
        plays = Plays()
        host = make(plays.play)
        assert plays == []
        host.restart(0)
        assert plays == [seed_of(0)]
        assert host.waiting == host.agents

    @each_hold
    def test_in_the_middle_goes_on_to_the_next_episode(self, make: MakeHost, holds: bool) -> None:
        plays = Plays()
        host = make(plays.play, holds=holds)
        host.restart(0)
        host.observe()
        host.restart()
        assert plays == [seed_of(0), seed_of(1)]
        assert host.ended == []
        assert host.episode == 1

    def test_at_the_end_lets_the_game_go_on(self, make: MakeHost) -> None:
        plays = Plays(length=1)
        host = make(plays.play)
        host.restart(0)
        host.step()
        assert (host.is_over, host.waiting) == (True, [])
        host.restart()
        assert (host.is_over, host.waiting) == (False, host.agents)
        assert plays == [seed_of(0), seed_of(1)]

    @each_hold
    def test_with_a_seed_begins_a_run(self, make: MakeHost, holds: bool) -> None:
        plays = Plays(length=1)
        host = make(plays.play, holds=holds)
        for run in (0, 9, 9):
            host.restart(run)
            host.step()
        assert [episode.seed for episode in host.ended] == [seed_of(0, run) for run in (0, 9, 9)]
        assert [episode.number for episode in host.ended] == [0, 0, 0]

    def test_a_bad_seed_changes_nothing(self, make: MakeHost) -> None:
        plays = Plays()
        host = make(plays.play)
        host.restart(3)
        with pytest.raises(UsageError):
            host.restart(-1)
        host.observe()
        host.restart()
        assert plays == [seed_of(0, 3), seed_of(1, 3)]

    def test_after_an_error_before_the_first_question_takes_the_next_episode(
        self, make: MakeHost
    ) -> None:
        plays: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            plays.append(seed)
            if len(plays) == 1:
                raise OSError("no such level")
            ask(agent)

        host = make(play)
        with pytest.raises(OSError, match="level"):
            host.restart(0)
        host.restart()
        assert plays == [seed_of(0), seed_of(1)]

    def test_after_an_error_in_the_middle(self, make: MakeHost) -> None:
        plays: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            plays.append(seed)
            ask(agent)
            raise OSError("out of paper")

        host = make(play)
        host.restart(0)
        for _ in range(2):
            with pytest.raises(OSError, match="paper"):
                host.step()
            host.restart()
        assert plays == [seed_of(i) for i in range(3)]

    def test_after_an_error_while_it_was_unwound(self, make: MakeHost) -> None:
        plays: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            plays.append(seed)
            try:
                ask(agent)
            finally:
                if len(plays) == 1:
                    raise OSError("on the way out")

        host = make(play)
        host.restart(0)
        with pytest.raises(OSError, match="on the way out"):
            host.restart()
        host.restart()
        assert len(plays) == 2
        host.close()  # ends the game without a restart
        assert len(plays) == 2

    def test_refused_in_another_thread_changes_nothing(self) -> None:
        plays = Plays(length=2)
        host = Host(plays.play, 1, "greenlet", holds=True)
        host.restart(0)
        host.step()
        for seed in (None, 5):
            assert isinstance(in_thread(partial(host.restart, seed)), ProtocolError)
        host.step()
        assert [(e.number, e.length) for e in host.ended] == [(0, 2)]
        host.restart()
        assert plays == [seed_of(0), seed_of(1)]
        host.close()

    def test_of_a_game_that_leaves_without_a_word(self, make: MakeHost) -> None:
        plays: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            plays.append(seed)
            try:
                ask(agent)
            except GameExit:
                return

        host = make(play)
        host.restart(0)
        host.observe()
        host.restart()
        host.restart(7)
        assert plays == [seed_of(0), seed_of(1), seed_of(0, 7)]

    def test_after_an_interrupt_before_any_line_of_the_first(self, make: MakeHost) -> None:
        """The next call starts the game, which can then be resumed."""
        for number in itertools.count(1):
            host = make(Plays().play)
            with Interrupter() as interrupter:
                is_struck = interrupter.strike(partial(host.restart, 0), number)
            host.settle()
            host.restart(0)
            host.step()
            host.close()
            if not is_struck:
                break
        assert number > 10

    def test_after_close(self, make: MakeHost) -> None:
        host = make(Plays().play)
        host.close()
        with pytest.raises(ClosedError, match="make a new environment"):
            host.restart()


class TestEpisodes:
    @each_hold
    def test_have_their_number_and_seed(self, make: MakeHost, holds: bool) -> None:
        host = make(Plays(length=2).play, holds=holds)
        host.restart(5)
        for _ in range(3):
            host.step()
            host.step()
            if holds:
                host.restart()
        assert [(e.number, e.seed, e.length) for e in host.ended] == [
            (i, seed_of(i, 5), 2) for i in range(3)
        ]
        assert {episode.env_id for episode in host.ended} == {4}

    @each_hold
    def test_within_one_call_of_play(self, make: MakeHost, holds: bool) -> None:
        seeds: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            while True:
                seeds.append(seed)
                ask(agent)
                agent.game_over()
                seed = agent.seed

        host = make(play, holds=holds)
        host.restart(0)
        for _ in range(3):
            host.step()
            if holds:
                host.restart()
        assert seeds == [seed_of(i) for i in range(4)]
        assert [episode.seed for episode in host.ended] == seeds[:3]

    def test_of_the_error_are_those_of_who_plays(self, make: MakeHost) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            ask(agents[1])
            agents[0].game_over()
            ask(agents[1])

        host = make(play, num_agents=2)
        host.restart(0)
        host.step()
        host.observe()
        assert host.episode == 0
        host.restart()
        assert host.episode == 1

    def test_of_agents_that_took_no_part_count_too(self, make: MakeHost) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            who = agents[len(host.ended) % 2]
            ask(who)
            who.game_over()

        host = make(play, num_agents=2, holds=False)
        host.restart(0)
        for _ in range(4):
            host.step()
        assert [(e.agent_id, e.number) for e in host.ended] == [(0, 0), (1, 1), (0, 2), (1, 3)]


class TestNoGameOver:
    @each_hold
    def test_after_a_question_is_refused(self, make: MakeHost, holds: bool) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent)

        host = make(play, holds=holds)
        host.restart(0)
        with pytest.raises(ProtocolError, match="play returned without game_over for agent 0"):
            host.step()

    @each_hold
    def test_without_any_question_is_refused(self, make: MakeHost, holds: bool) -> None:
        host = make(lambda agent, *, seed: None, holds=holds)
        with pytest.raises(ProtocolError, match="play returned without game_over for agent 0"):
            host.restart(0)

    def test_with_questions_open_is_refused(self, make: MakeHost) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            agents[0].game_over()
            for agent in agents[1:]:
                _ = agent.act_async(Obs(), Move)

        host = make(play, num_agents=3)
        with pytest.raises(ProtocolError, match="without game_over for agent 1, 2"):
            host.restart(0)


class TestNothingToTrain:
    """Games that never ask never return to their driver."""

    def test_episodes_within_one_call_of_play(self, make: MakeHost) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            while True:
                agent.game_over()

        with pytest.raises(ProtocolError, match="1000 episodes in a row ended without asking"):
            make(play, holds=False).restart(0)

    def test_one_call_of_play_after_another(self, make: MakeHost) -> None:
        host = make(Plays(length=0).play, holds=False)
        with pytest.raises(ProtocolError, match="1000 episodes in a row ended without asking"):
            host.restart(0)
        assert len(host.ended) == 1001

    def test_is_no_error_while_the_driver_sees_every_end(self, make: MakeHost) -> None:
        host = make(Plays(length=0).play)
        for _ in range(1200 if host._transport == "greenlet" else 3):
            host.restart()
            assert host.is_over

    def test_a_few_are_skipped(self, make: MakeHost) -> None:
        calls: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            calls.append(seed)
            if len(calls) % 500 == 0:
                ask(agent)
            agent.game_over()

        host = make(play, holds=False)
        host.restart(0)
        for _ in range(4):
            host.step()
        assert len(host.ended) == 4 * 500 + 499


class TestClose:
    def test_before_the_first_restart(self, make: MakeHost) -> None:
        plays = Plays()
        host = make(plays.play)
        host.close()
        assert plays == []

    def test_at_the_end_of_an_episode(self, make: MakeHost) -> None:
        ends: list[str] = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                ask(agent)
                agent.game_over()
            finally:
                ends.append("finally")

        host = make(play)
        host.restart(0)
        host.step()
        assert ends == []
        host.close()
        host.close()
        assert ends == ["finally"]

    def test_resume_afterwards(self, make: MakeHost) -> None:
        host = make(Plays().play)
        host.restart(0)
        host.close()
        with pytest.raises(ClosedError):
            host.resume()

    def test_resume_before_the_first_restart(self, make: MakeHost) -> None:
        with pytest.raises(ClosedError, match="reset it first"):
            make(Plays().play).resume()

    def test_an_error_on_the_way_out(self, make: MakeHost) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            try:
                ask(agent)
            finally:
                raise OSError("on the way out")

        host = make(play)
        host.restart(0)
        with pytest.raises(OSError, match="on the way out"):
            host.close()
        host.close()
        assert host.is_closed
