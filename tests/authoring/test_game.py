"""Game: properties read from `play`, settings, and running it with agents."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    Action,
    ContractError,
    Game,
    GlobalCategoricalAction,
    Obs,
    Observation,
    ProtocolError,
    SchemaError,
    Turn,
    UsageError,
    WorkerError,
)
from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game_traceback import line_of_error
from entity_env.authoring.step_timeout import GameHangs, StepTimeout, _Watchdog
from entity_env.check import check_game
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.vec_env_base import Autoreset
from entity_env.vec import VecEnv
from tests.helpers.strategies import Move, untyped
from tests.helpers.tiny_games import ask, dots_game

if TYPE_CHECKING:
    from nowhere import Nothing  # type: ignore[import-not-found]

    from entity_env.agents import Agent


class Speed(Enum):
    SLOW = 1
    FAST = 2


@dataclass
class Step:
    number: int


def play(
    agent: Agent,
    *,
    seed: int,
    length: int = 3,
    speed: Speed = Speed.SLOW,
    mode: Literal["easy", "hard"] = "easy",
) -> None:
    """One episode; each step is rewarded with the speed."""
    for number in range(length):
        obs = Obs(number * speed.value).entities([Step(number)])
        if agent.act(obs, Move) is None:
            return
    agent.game_over(Obs(length * speed.value), truncated=mode == "hard")


def play_on(agent: Agent, *, seed: int) -> None:
    """Episodes without end, with the seeds given by the agent."""
    seeds = [seed]
    while agent.act(Obs().metric("seed", seeds[-1] % 1000), Move) is not None:
        agent.game_over(Obs(1).metric("seed", seeds[-1] % 1000))
        seeds.append(agent.seed)


def both(agents: Sequence[Agent], *, seed: int) -> None:
    """Two agents; only the first one acts, and the second one loses a point."""
    if agents[0].act(Obs(0), Move) is None:
        return
    agents[0].game_over(Obs(1))
    agents[1].game_over(Obs(-1))


counter = Game(play, entities=(Step,), actions=(Move,), name="counter")
duel = Game(both, entities=(), actions=(Move,), num_agents=2)


def run(play: Callable[..., None], **kwargs: Any) -> Any:  # noqa: ANN401
    return Game(play, entities=(Step,), actions=(Move,)).run(RandomAgent(1), **kwargs)


def test_is_named_for_its_function_or_its_module() -> None:
    assert counter.name == "counter"
    assert duel.name == "both"
    assert Game(play, entities=(), actions=()).name == "test_game"
    assert Game(functools.partial(play), entities=(), actions=()).name == "partial"


def test_reads_the_settings_of_play() -> None:
    assert list(counter.parameters) == ["length", "speed", "mode"]
    assert counter.parameters["length"].default == 3
    assert counter.parameters["speed"].annotation is Speed
    assert duel.parameters == {}
    made = Game(functools.partial(play, length=2), entities=(Step,), actions=(Move,))
    assert made.parameters["speed"].annotation is Speed
    assert made.run(RandomAgent(1))[0].length == 2


def test_spaces_are_those_of_the_schema() -> None:
    assert counter.obs_space() == counter.schema.obs_space()
    assert counter.action_space() == counter.schema.action_space()


def test_settings_may_be_text() -> None:
    changed = counter.with_settings(length="5", speed="FAST", mode="hard")
    assert changed.settings == {"length": 5, "speed": Speed.FAST, "mode": "hard"}
    assert counter.settings == {}
    assert changed.schema is counter.schema
    assert changed.with_settings(length=1).settings == {**changed.settings, "length": 1}
    assert repr(changed) == "Game(counter, length=5, speed=<Speed.FAST: 2>, mode='hard')"


def test_the_transport_stays_with_the_game() -> None:
    assert counter.transport == "greenlet"
    assert counter.with_transport(None) is counter
    threads = counter.with_transport("thread")
    assert threads.with_settings(length=5).transport == "thread"
    assert (counter.transport, threads.schema) == ("greenlet", counter.schema)
    with pytest.raises(UsageError, match="transport must be one of greenlet, thread, got 'fork'"):
        counter.with_transport("fork")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="transport must be one of"):
        Game(play, entities=(Step,), actions=(Move,), transport=1)  # type: ignore[arg-type]


def test_runs_episodes_with_seeds_of_their_own() -> None:
    episodes = counter.run(RandomAgent(1), seed=7, episodes=3, speed="FAST")
    seeds = EpisodeSeeds(7)
    assert [episode.seed for episode in episodes] == [seeds[0], seeds[1], seeds[2]]
    assert [episode.number for episode in episodes] == [0, 1, 2]
    assert {(e.reward, e.length, e.terminated, e.truncated) for e in episodes} == {
        (6, 3, True, False)
    }
    [cut] = counter.run(RandomAgent(1), mode="hard")
    assert (cut.terminated, cut.truncated) == (False, True)


def test_a_game_may_play_many_episodes_in_one_call() -> None:
    game = Game(play_on, entities=(), actions=(Move,))
    episodes = game.run(RandomAgent(1), seed=7, episodes=3)
    assert [episode.metrics["seed"] for episode in episodes] == [
        episode.seed % 1000 for episode in episodes
    ]
    assert [episode.length for episode in episodes] == [1, 1, 1]


def test_every_agent_has_its_episodes() -> None:
    episodes = duel.run(RandomAgent(1), RandomAgent(2), episodes=2)
    assert [(e.agent_id, e.number, e.reward, e.length) for e in episodes] == [
        *((0, 0, 1, 1), (0, 1, 1, 1)),
        *((1, 0, 0, 0), (1, 1, 0, 0)),  # never asked, so its earlier score is unknown
    ]


def test_a_watcher_sees_every_turn() -> None:
    turns: list[Turn] = []
    [episode] = counter.run(RandomAgent(1), watch=turns.append)
    assert [turn.step for turn in turns] == [0, 1, 2, 3]
    assert [turn.score for turn in turns] == [0, 1, 2, 3]
    assert [turn.observation.reward for turn in turns] == [0, 1, 1, 1]
    assert [list(turn.actions) for turn in turns] == [["Move"]] * 3 + [[]]
    assert [turn.episode for turn in turns] == [None, None, None, episode]
    assert turns[-1].observation.terminated


def resolved_only_when_checked(agent: Nothing, *, seed: int, size: int = 3) -> None:
    """The annotation of `agent` exists only for type checkers."""


def unresolved(agent: Agent, *, seed: int, size: Nothing = 3) -> None:
    """The annotation of a setting must exist."""


def test_annotations_of_agents_may_be_for_type_checkers_only() -> None:
    game = Game(resolved_only_when_checked, entities=(), actions=())
    assert game.parameters["size"].annotation is int
    with pytest.raises(SchemaError, match=r"size: the annotation 'Nothing' names 'Nothing'"):
        Game(unresolved, entities=(), actions=())


def test_a_game_may_come_from_a_module_that_nobody_imported() -> None:
    names: dict[str, Any] = {"__name__": "unheard_of"}
    exec("def play(agent, *, seed: int, size: int | None = 3): ...", names)  # noqa: S102 - like a loader
    game = Game(names["play"], entities=(), actions=())
    assert game.name == "unheard_of"
    assert game.parameters["size"].annotation == int | None


class Machine:
    """A game can be an object."""

    def __call__(self, agent: Agent, *, seed: int, size: int = 3) -> None:
        agent.act(Obs(), Move)
        agent.game_over()


def test_an_object_may_be_a_game() -> None:
    game = Game(Machine(), entities=(), actions=(Move,))
    assert game.name == "Machine"
    assert game.parameters["size"].annotation is int
    assert len(game.run(RandomAgent(1))) == 1


def no_seed(agent: Agent) -> None: ...


async def waits(agent: Agent, *, seed: int) -> None: ...


def yields(agent: Agent, *, seed: int) -> Iterator[None]:
    yield


class Waiting:
    async def __call__(self, agent: Agent, *, seed: int) -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Game(no_seed, entities=(), actions=()), r"play must take a keyword argument seed"),
        (lambda: Game(untyped(waits), entities=(), actions=()), "plain function, not async"),
        (lambda: Game(untyped(functools.partial(waits)), entities=(), actions=()), "not async"),
        (lambda: Game(untyped(Waiting()), entities=(), actions=()), "not async"),
        (lambda: Game(untyped(yields), entities=(), actions=()), "without yield"),
        (lambda: Game(play, entities=(), actions=(), num_agents=0), "num_agents must be at least"),
        (lambda: Game(play, entities=(int,), actions=()), "must be a dataclass"),
        (lambda: Game(play, entities=untyped(Step), actions=()), "entities must be a tuple"),
    ],
)
def test_what_is_no_game_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 3}, "counter has no setting 'size'; it has length, speed, mode"),
        ({"length": "six"}, "counter: setting 'length' must be an integer, got 'six'"),
        ({"length": 0.5}, "must be an integer, got 0.5"),
        ({"speed": "QUICK"}, "must be one of SLOW, FAST, got 'QUICK'"),
        ({"mode": "medium"}, "'mode' must be one of"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        counter.with_settings(**settings)


def test_a_game_needs_its_agents_and_at_least_one_episode() -> None:
    with pytest.raises(UsageError, match="both is for 2 agents, got 1"):
        duel.run(RandomAgent(1))
    with pytest.raises(UsageError, match="episodes must be at least 1, got 0"):
        counter.run(RandomAgent(1), episodes=0)
    with pytest.raises(UsageError, match="a seed must be an integer"):
        counter.run(RandomAgent(1), seed=-1)
    with pytest.raises(UsageError, match="both has no setting 'size'; it has none"):
        duel.with_settings(size=3)


def stops(agent: Agent, *, seed: int) -> None:
    agent.act(Obs(), Move)


def does_nothing(agent: Agent, *, seed: int) -> None: ...


def never_leaves(agent: Agent, *, seed: int) -> None:
    while True:
        agent.act(Obs(), Move)
        agent.game_over()


def breaks(agent: Agent, *, seed: int) -> None:
    raise KeyError("broken")


def needs_an_answer(agent: Agent, *, seed: int) -> None:
    while True:
        assert ask(agent).name  # type: ignore[union-attr]
        agent.game_over()


def test_an_error_after_act_returned_none_says_so() -> None:
    with pytest.raises(AttributeError, match="'NoneType'") as caught:
        dots_game(needs_an_answer).run(RandomAgent(1), episodes=2)
    assert "act had returned None before" in caught.value.__notes__[0]
    with pytest.raises(KeyError) as other:
        dots_game(breaks).run(RandomAgent(1))
    assert not any("None" in note for note in other.value.__notes__)


def asks_for_nothing(agent: Agent, *, seed: int) -> None:
    untyped(agent).act(Obs())


@pytest.mark.parametrize(
    ("play", "error", "message"),
    [
        (stops, ProtocolError, "play returned without game_over for agent 0.*begins another"),
        (does_nothing, ProtocolError, "play returned without game_over"),
        (never_leaves, ProtocolError, "continues after act returned None"),
        (breaks, KeyError, "broken"),
        (asks_for_nothing, SchemaError, "at least one action"),
    ],
)
def test_a_game_that_breaks_the_rules_is_stopped(
    play: Callable[..., None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(play)


def loops_over(agents: Sequence[Agent], *, seed: int) -> None:
    for agent in agents:
        agent.game_over()


def takes_the_first(agents: Sequence[Agent], *, seed: int) -> None:
    agents[0].game_over()


def counts(agents: Sequence[Agent], *, seed: int) -> None:
    for i in range(len(agents)):
        agents[i].game_over()


def unpacks(agents: Sequence[Agent], *, seed: int) -> None:
    first, second = agents
    first.game_over(untyped(second))


@pytest.mark.parametrize("play", [loops_over, takes_the_first, counts, unpacks])
def test_a_forgotten_number_of_agents_is_said(play: Callable[..., None]) -> None:
    """Also by `check_game` and when stepping the game; names the line of the game."""
    game = Game(play, entities=(), actions=(Move,), name="many")
    message = r"many: play gets one agent, not a list: Game\(num_agents=2\) has two"
    with pytest.raises(SchemaError, match=message) as refused:
        game.run(RandomAgent(1))
    assert line_of_error(refused.value).endswith(f"in {play.__name__}")
    with pytest.raises(ContractError, match=rf"{message} .*{__file__}:\d+ in {play.__name__}"):
        check_game(game)
    with (
        VecEnv(game, 1) as vec,
        pytest.raises(SchemaError, match=rf"{message} .* in {play.__name__}"),
    ):
        vec.reset()


def test_so_are_agents_that_are_used_as_one() -> None:
    def acts(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(), Move)

    with pytest.raises(SchemaError, match="play gets a list of agents: for a game with one"):
        Game(acts, entities=(), actions=(Move,), num_agents=2).run(RandomAgent(1), RandomAgent(2))


@pytest.mark.parametrize("value", [5, None, [1]])
def test_other_errors_of_types_are_the_games(value: object) -> None:
    """Also in games with one or several agents."""

    def adds(agent: Agent, *, seed: int) -> None:
        untyped(value).x += agent

    for num_agents in (1, 2):
        game = Game(adds, entities=(), actions=(Move,), num_agents=num_agents)
        with pytest.raises(AttributeError, match="object has no attribute 'x'"):
            game.run(*[RandomAgent(i) for i in range(num_agents)])


NO_OBS: dict[str, tuple[object, str]] = {
    "entities": (Obs(untyped([Step(1)])), r"got \[Step\(.*: Obs\(score\) takes the score so far"),
    "no score": (Obs(untyped(None)), "score must be a number, got None"),
    "score": (5, r"shown 5 \(int\), expected an Obs: write Obs\(5\)"),
    "list": ([Step(1)], r"expected an Obs: write Obs\(score\)\.entities"),
    "class": (Obs, "expected an Obs"),
    "none": (None, "shown None"),
}


@pytest.mark.parametrize(("shown", "message"), NO_OBS.values(), ids=NO_OBS)
@pytest.mark.parametrize("call", ["act", "act_async", "game_over"])
def test_what_is_no_observation_is_refused(call: str, shown: object, message: str) -> None:
    """By agents that play and by agents that are stepped; names the line of the game."""

    def shows(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Step(1)]), Move)
        getattr(agent, call)(shown, *(() if call == "game_over" else (Move,)))

    if call == "game_over" and shown is None:  # keeps the last score
        return
    game = Game(shows, entities=(Step,), actions=(Move,))
    with pytest.raises(SchemaError, match=message) as refused:
        game.run(RandomAgent(1))
    assert line_of_error(refused.value).endswith("in shows")
    with VecEnv(game, 1) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match=rf"{message}.*{__file__}:\d+ in shows"):
            vec.act({"Move": np.array([0])})
    env = TrainAgentEnv(game)
    env.reset()
    with pytest.raises(SchemaError, match=message):
        env.act({"Move": GlobalCategoricalAction(0, "A")})
    env.close()


def dies(agents: Sequence[Agent], *, seed: int, call: str = "act") -> None:
    """The second agent dies at the third turn, and is called once more."""
    for turn in range(6):
        for i, agent in enumerate(agents):
            if i == 1 and turn > 2:
                continue
            if agent.act(Obs(turn), Move) is None:
                return
        if turn == 2:
            agents[1].game_over(Obs(-1))
            if call == "game_over":
                agents[1].game_over()
            elif call and getattr(agents[1], call)(Obs(), Move) is None:
                return
    agents[0].game_over()


def steps(game: Game, num_steps: int, autoreset: Autoreset = "same_step") -> None:
    """Steps copies of a game with random actions."""
    rng = np.random.default_rng(1)
    with VecEnv(game, 2, autoreset=autoreset) as vec:
        obs = vec.reset()
        for _ in range(num_steps):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))


OVER = "agent( 1)? was (asked|given game_over) after its game_over, while other agents still play"


@pytest.mark.parametrize("call", ["act", "act_async", "game_over"])
@pytest.mark.parametrize("episodes", [1, 3])
def test_an_agent_that_is_over_is_not_asked_before_the_others_are(call: str, episodes: int) -> None:
    game = Game(dies, entities=(), actions=(Move,), num_agents=2).with_settings(call=call)
    with pytest.raises(ProtocolError, match=OVER) as refused:
        game.run(RandomAgent(1), RandomAgent(2), episodes=episodes)
    assert line_of_error(refused.value).endswith("in dies")
    with pytest.raises(ContractError, match=rf"{OVER}.*{__file__}:\d+ in dies"):
        check_game(game)
    for autoreset in get_args(Autoreset):
        with pytest.raises(ProtocolError, match=rf"{OVER}.*{__file__}:\d+ in dies"):
            steps(game, 9, autoreset)


def test_unless_the_game_respawns() -> None:
    game = Game(dies, entities=(), actions=(Move,), num_agents=2, respawns=True)
    game = game.with_settings(call="game_over")
    ended = game.run(RandomAgent(1), RandomAgent(2), episodes=2)
    assert [episode.length for episode in ended if episode.agent_id] == [3, 0]
    steps(game, 20)
    with pytest.raises(ProtocolError, match='only with autoreset "same_step"'):
        steps(game, 9, "disabled")


@given(
    matches=st.lists(
        st.lists(st.integers(1, 4), min_size=1, max_size=3).flatmap(st.permutations),
        min_size=1,
        max_size=4,
    ),
    loops=st.booleans(),
    is_at_once=st.booleans(),
)
def test_matches_of_any_agents_follow_each_other(
    matches: list[list[int]], loops: bool, is_at_once: bool
) -> None:
    """Matches of the first agents with these numbers of turns, in one call of `play` or several."""
    played = count()

    def play(agents: Sequence[Agent], *, seed: int) -> None:
        while True:
            lengths = matches[next(played) % len(matches)]
            for turn in range(max(lengths) + 1):
                for agent, length in zip(agents, lengths, strict=False):
                    if turn == length:
                        agent.game_over()
                pending = [
                    agent.act_async(Obs(turn), Move) if is_at_once else agent.act(Obs(turn), Move)
                    for agent, length in zip(agents, lengths, strict=False)
                    if turn < length
                ]
                if None in [each.get() if is_at_once else each for each in untyped(pending)]:
                    return
            if not loops:
                return

    game = Game(play, entities=(), actions=(Move,), num_agents=3)
    steps(game, 25)
    ended = game.run(*map(RandomAgent, range(3)), episodes=2)
    assert all(episode.length in range(5) for episode in ended)


def test_a_player_who_leaves_ends_the_match_of_all() -> None:
    """The game may then call agents whose episodes have ended."""

    class Leaves(RandomAgent):
        def decide(self, observation: Observation) -> Mapping[str, Action]:
            leaves = self._run.num_steps == 4
            return untyped(None) if leaves else super().decide(observation)

    def tidies(agents: Sequence[Agent], *, seed: int) -> None:
        try:
            dies(agents, seed=seed, call="")
        finally:
            for agent in reversed(agents):
                agent.game_over()

    game = Game(tidies, entities=(), actions=(Move,), num_agents=2)
    assert len(game.run(Leaves(1), RandomAgent(2), episodes=2)) == 3


def test_a_setting_without_a_default_must_be_given() -> None:
    def play(agent: Agent, *, seed: int, size: int) -> None:
        agent.game_over(Obs(size))

    game = Game(play, entities=(), actions=(Move,), name="sized")
    with pytest.raises(UsageError, match="sized: setting 'size' has no default"):
        game.run(RandomAgent(1))
    with pytest.raises(UsageError, match="with_settings"):
        VecEnv(game, 1)
    assert game.run(RandomAgent(1), size=3)[0].seed >= 0


def play_hang(agent: Agent, *, seed: int, when: int = 1) -> None:
    for number in range(2):
        while number == when:
            pass
        if agent.act(Obs().entities([Step(number)]), Move) is None:
            return
    agent.game_over()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no SIGALRM here")
class TestStepTimeout:
    game = Game(play_hang, entities=(Step,), actions=(Move,))

    def test_a_game_that_hangs_is_ended_and_named(self) -> None:
        before = signal.getsignal(signal.SIGALRM)
        with pytest.raises(WorkerError, match="the game hangs: no answer") as caught:
            self.game.run(RandomAgent(), seed=7, step_timeout_s=0.1)
        error = caught.value
        assert (error.seed, error.episode, error.step) == (EpisodeSeeds(7)[0], 0, 1)
        assert "in play_hang" in error.game_traceback
        assert signal.getsignal(signal.SIGALRM) == before

    def test_before_the_first_question(self) -> None:
        with pytest.raises(WorkerError, match="hangs") as caught:
            self.game.run(RandomAgent(), when=0, step_timeout_s=0.1)
        assert caught.value.step == 0

    @pytest.mark.slow
    def test_the_agent_and_the_watcher_may_take_their_time(self) -> None:
        class Slow(RandomAgent):
            def decide(self, observation: Observation) -> Mapping[str, Action]:
                Event().wait(0.15)
                return super().decide(observation)

        def watch(turn: Turn) -> None:
            Event().wait(0.15)

        [episode] = self.game.run(Slow(), watch=watch, when=9, step_timeout_s=0.1)
        assert episode.length == 2

    def test_a_process_that_was_stopped_is_not_taken_for_a_game_that_hangs(self) -> None:
        """All missed time counts as a single tick of the timer."""
        timeout = StepTimeout(0.2)
        with timeout:
            tick = signal.getsignal(signal.SIGALRM)
            assert callable(tick)
            for _ in range(3):
                tick(signal.SIGALRM, None)
            with pytest.raises(GameHangs):
                tick(signal.SIGALRM, None)

    def test_a_step_that_ends_as_the_watchdog_fires_raises_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(signal, "setitimer")
        with StepTimeout(0.02) as timeout:
            watchdog = timeout._timer
            assert isinstance(watchdog, _Watchdog)
            with watchdog._lock:  # it fires before the main thread notices
                watchdog._has_fired = True
        assert not watchdog._has_fired
        Event().wait(0.05)  # longer than the timeout, but outside a step


def test_a_loop_over_episodes_that_ask_nothing_ends() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs(), Move)
        while True:
            agent.game_over(Obs())

    game = Game(play, entities=(), actions=(Move,), name="endless")
    (episode,) = game.play_episode(RandomAgent(seed=1), seed=1)
    assert episode.length == 1


@pytest.mark.parametrize("is_loop", [False, True], ids=["one", "loop"])
@pytest.mark.parametrize(("when", "step"), [("before", 0), ("in", 1), ("after", 0)])
def test_an_error_of_a_game_names_the_seed_of_its_episode(
    when: str, step: int, is_loop: bool
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        number = 0
        while not number or is_loop:
            number += 1
            is_last = agent.seed == last
            for place in ("before", "in", "after"):
                if is_last and when == place:
                    raise RuntimeError("unlucky")
                if place == "before" and ask(agent) is None:
                    return
                if place == "in":
                    agent.game_over(Obs())

    last = EpisodeSeeds(5)[2]
    with pytest.raises(RuntimeError, match="unlucky") as failed:
        dots_game(play).run(RandomAgent(), seed=5, episodes=9)
    number = 1 if is_loop and when == "before" else 2  # in a loop: the episode before
    assert failed.value.__notes__ == [
        f"seed {EpisodeSeeds(5)[number]}, episode {number}, step {step}"
    ]
