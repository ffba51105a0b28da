"""check_game finds broken games and accepts correct ones."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from entity_env import HIDDEN, ContractError, Game, GameExit, Obs, check_game
from entity_env.agents import Agent
from entity_env.authoring.action_type import ActionKey
from entity_env.check import direct_play
from entity_env.check.violations import obs_violations
from tests.helpers.strategies import (
    CALL,
    EAT,
    MOVE,
    STEER,
    Food,
    Move,
    Point,
    Rock,
    Snake,
    Stance,
    World,
    untyped,
)


@dataclass
class Fish:
    """Has a field of every kind."""

    at: tuple[Point, Annotated[float, "in metres"]]
    stance: Stance
    cooldowns: tuple[int, int]
    name: str = field(default="", metadata=HIDDEN)
    weight: int | float = 1


def fish(**changes: Any) -> Fish:  # noqa: ANN401
    good = Fish((Point(0.0, 1), 2.0), Stance.CALM, (0, 1))
    return dataclasses.replace(good, **changes)


WORLD = World(0.0, Stance.CALM)
ENTITIES = (Fish, Food, Rock)
ACTIONS: tuple[ActionKey, ...] = (Move, MOVE, CALL, EAT, STEER)
Play = Callable[..., None]


def game_of(play: Play, **kwargs: Any) -> Game:  # noqa: ANN401
    given: dict[str, Any] = {"entities": ENTITIES, "actions": ACTIONS, "global_features": World}
    return Game(play, **{**given, **kwargs})


def everything(agent: Agent, *, seed: int) -> None:
    """Uses all kinds of entities and actions, for three steps."""
    rng = random.Random(seed)
    for step in range(3):
        foods = [Food(rng.random()), Food(rng.random())]
        obs = Obs(step).actors([fish()]).actors([Rock()], MOVE).entities(foods).globals(WORLD)
        obs.entities(np.array([[rng.random()]]), of=Food).metric("step", step)
        obs.mask(CALL, [True, True, False, True]).visible(Food, [True, False, True])
        answers = agent.act(obs, CALL, MOVE, EAT)
        if answers is None:
            return
        assert isinstance(answers[0], Move)
        assert answers[0] is not Move.LEFT
        assert len(answers[1]) == 2
        assert len(answers[2]) == 1
        if agent.act(obs, STEER) is None:
            return
    agent.game_over(Obs(9), truncated=seed % 2 == 0)


def episode_after_episode(agent: Agent, *, seed: int) -> None:
    """Plays endless episodes, with the seeds given by the agent."""
    while True:
        rng = random.Random(seed)
        for _ in range(rng.randrange(1, 4)):
            if agent.act(Obs(rng.random()).globals(WORLD), Move) is None:
                return
        agent.game_over()
        seed = agent.seed


def simultaneous(agents: Sequence[Agent], *, seed: int) -> None:
    """Two simultaneous agents."""
    for _ in range(3):
        pending = [agent.act_async(Obs().globals(WORLD), Move) for agent in agents]
        if None in [each.get() for each in pending]:
            return
    for agent in agents:
        agent.game_over()


def in_turn(agents: Sequence[Agent], *, seed: int) -> None:
    """Two agents in turn; the second might never act."""
    for agent in agents[: 1 + seed % 2]:
        if agent.act(Obs().globals(WORLD), Move) is None:
            return
    for agent in agents:
        agent.game_over()


@pytest.mark.slow
@pytest.mark.parametrize(
    "game",
    [
        game_of(everything),
        game_of(episode_after_episode),
        game_of(simultaneous, num_agents=2),
        game_of(in_turn, num_agents=2),
    ],
    ids=lambda game: game.name,
)
def test_a_sound_game_passes(game: Game) -> None:
    check_game(game, new_process=game.play is everything)


def showing(obs: Callable[[], Obs], *actions: ActionKey) -> Play:
    """A game with this observation in its second step."""

    def play(agent: Agent, *, seed: int) -> None:
        for one in (Obs().globals(WORLD), obs()):
            if one.global_features is None:
                one.globals(WORLD)
            if untyped(agent).act(one, *(actions if one.groups or one.masks else (Move,))) is None:
                return
        agent.game_over(Obs())

    return play


def entity(entity: object) -> Play:
    return showing(lambda: Obs().entities([entity]), Move)


NAN, HUGE = float("nan"), 10**400
BROKEN_OBSERVATIONS: list[tuple[Play, str]] = [
    (entity(fish(cooldowns=(1, 2, 3))), r"Fish: field 'cooldowns' holds 3 items, declared 2"),
    (entity(fish(cooldowns=(1,))), "field 'cooldowns' holds 1 items, declared 2"),
    (entity(fish(cooldowns=7)), "field 'cooldowns' holds 7, declared a tuple of 2"),
    (entity(fish(cooldowns=(1, "2"))), r"field 'cooldowns\.1' holds '2', declared int"),
    (
        entity(fish(stance="calm")),
        "field 'stance' holds 'calm', declared one of CALM, ANGRY, ASLEEP",
    ),
    (entity(fish(stance=None)), "field 'stance' holds None, declared one of"),
    (entity(fish(at=((1, 2), 3))), r"field 'at\.0' holds \(1, 2\), declared Point"),
    (entity(fish(at=(Point(NAN, 1), 2))), r"field 'at\.0\.x' holds nan, expected a finite number"),
    (entity(fish(at=(Point(1.0, 1), None))), r"field 'at\.1' holds None, declared float"),
    (entity(fish(weight="heavy")), r"field 'weight' holds 'heavy', declared int \| float"),
    (entity(fish(weight=HUGE)), "field 'weight' holds 1000+, expected a finite number that fits"),
    (entity(fish(weight=1e39)), r"holds 1e\+39, expected a finite number that fits float32"),
    (entity(Snake), "shows a type, which was not declared"),
    (entity(World(0.0, Stance.CALM)), "shows a World, which was not declared; declared are Fish"),
    (showing(lambda: Obs().entities([fish(), Rock()]), Move), "a sequence of Fish holds a Rock"),
    (
        showing(lambda: Obs().entities(np.array([[0.0], [np.inf]]), of=Food), Move),
        "entity Food: feature 'value' of row 1 must be finite, got inf",
    ),
    (
        showing(lambda: Obs().mask(CALL, [True]), CALL),
        r"\(num_choices,\) = \(4,\): got \(1,\)",
    ),
    (showing(lambda: Obs().mask(CALL, [False] * 4), CALL), "'call' leaves no legal choice: allow"),
    (
        showing(lambda: Obs().entities([Rock()]), MOVE),
        "asks every actor, but the observation marks",
    ),
    (showing(lambda: Obs().actors([Rock()]).mask(STEER, [[True]]), STEER), "takes no mask"),
    (
        showing(lambda: Obs().entities([Rock()]).visible(Rock, []), Move),
        r"visible of Rock needs 1 bools, one per entity: got \[\]",
    ),
    (
        showing(lambda: Obs().entities([Rock()]), Stance),
        "asked for the action Stance, which was not",
    ),
    (showing(lambda: Obs().entities([Rock()])), "act needs at least one action"),
    (showing(lambda: Obs().entities([Rock()]).globals(Rock()), Move), "Rock, expected World"),
    (
        showing(lambda: Obs().entities([Rock()]).globals(World(NAN, Stance.CALM)), Move),
        "entity World: field 'time' holds nan",
    ),
    (showing(lambda: Obs(NAN).entities([Rock()]), Move), "the score is nan, expected a finite"),
    (showing(lambda: Obs(untyped("5")).entities([]), Move), "the score must be a number, got '5'"),
    (
        showing(lambda: Obs().entities([]).metric("won", untyped(None)), Move),
        "the metric 'won' is None",
    ),
]


WORLD = World(0.0, Stance.CALM)


def hangs(agent: Agent, *, seed: int) -> None:
    agent.act(Obs().globals(WORLD).entities([Rock()]), Move)
    while True:
        pass


def hangs_when_it_should_leave(agent: Agent, *, seed: int) -> None:
    for _ in range(3):
        while agent.act(Obs().globals(WORLD).entities([Rock()]), Move) is None:
            while True:
                pass
    agent.game_over()


@pytest.mark.slow
@pytest.mark.parametrize("play", [hangs, hangs_when_it_should_leave])
def test_a_game_that_hangs_is_found_with_its_stack(play: Play) -> None:
    with pytest.raises(ContractError, match=r"play hangs, no answer for 0\.2 s") as caught:
        check_game(game_of(play), step_timeout_s=0.2)
    [problem] = caught.value.problems
    assert re.search(rf"{Path(__file__).name}\", line \d+, in {play.__name__}", problem)


@pytest.mark.slow
def test_time_that_an_agent_takes_is_not_the_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit does not include the agent's time."""

    def look_slowly(*args: Any) -> list[str]:  # noqa: ANN401
        threading.Event().wait(0.3)
        return obs_violations(*args)

    def asks_twice(agent: Agent, *, seed: int) -> None:
        for _ in range(2):
            if agent.act(Obs().globals(WORLD).entities([Rock()]), Move) is None:
                return
        agent.game_over()

    monkeypatch.setattr(direct_play, "obs_violations", look_slowly)
    check_game(game_of(asks_twice), episodes=1, step_timeout_s=0.2, new_process=False)


@pytest.mark.slow
def test_an_actor_without_a_target_is_no_violation() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        food = Food(1.0)
        for foods, mask in (([], None), ([food], None), ([food], [[False]])):
            obs = Obs().globals(WORLD).actors([Rock()]).entities(foods)
            answer = agent.act(obs if mask is None else obs.mask(EAT, mask), EAT)
            if answer is None:
                return
            assert answer == [food if foods and mask is None else None]
        agent.game_over()

    check_game(game_of(play), new_process=False)


def test_a_game_that_does_not_expect_it_is_named_with_its_line() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        answer = agent.act(Obs().globals(WORLD).actors([Rock()]), EAT)
        if answer is not None:
            [food] = answer
            untyped(food).value += 1
        agent.game_over()

    message = rf"step 0: play raised AttributeError: 'NoneType' .*{Path(__file__).name}:\d+ in play"
    with pytest.raises(ContractError, match=message):
        check_game(game_of(play))


def test_an_answer_that_is_a_list_is_named() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        food = agent.act(Obs().globals(WORLD).actors([Rock()]).entities([Food(1)]), EAT)
        if food is not None:
            untyped(food).value += 1
        agent.game_over()

    message = r"'list' object .*; the list is an answer of act, with one value per actor"
    with pytest.raises(ContractError, match=message):
        check_game(game_of(play))


@pytest.mark.parametrize(("play", "message"), BROKEN_OBSERVATIONS)
def test_what_a_game_shows_wrongly_is_found(play: Play, message: str) -> None:
    place = r"episode 0 \(seed \d+\), step [01]"
    line = rf".*\({__file__}:\d+ in \w+\)"
    with pytest.raises(ContractError, match=f"{place}: .*{message}{line}") as caught:
        check_game(game_of(play), episodes=1)
    assert len(caught.value.problems) == 1


def ask(agent: Agent) -> Move | None:
    return agent.act(Obs().globals(WORLD), Move)


def raises(agent: Agent, *, seed: int) -> None:
    ask(agent)
    raise ZeroDivisionError("no fish left")


def shows_a_score(agent: Agent, *, seed: int) -> None:
    agent.act(untyped(5), Move)


def ends_with_a_score(agent: Agent, *, seed: int) -> None:
    ask(agent)
    agent.game_over(untyped(5))


def ends_with_a_stranger(agent: Agent, *, seed: int) -> None:
    ask(agent)
    agent.game_over(Obs().entities([WORLD]).globals(WORLD))


def just_returns(agent: Agent, *, seed: int) -> None:
    ask(agent)


def does_nothing(agent: Agent, *, seed: int) -> None: ...


def never_ends(agent: Agent, *, seed: int) -> None:
    while ask(agent) is not None:
        pass


def ends_before_it_began(agent: Agent, *, seed: int) -> None:
    agent.game_over()


def ends_twice(agent: Agent, *, seed: int) -> None:
    if ask(agent) is None:
        return
    agent.game_over()
    agent.game_over()


def ignores_none(agent: Agent, *, seed: int) -> None:
    while True:
        for _ in range(3):
            ask(agent)
        agent.game_over()


def only_says_game_over(agent: Agent, *, seed: int) -> None:
    if ask(agent) is None:
        while True:
            agent.game_over()
    agent.game_over()


def forgets_the_seed(agent: Agent, *, seed: int) -> None:
    for _ in range(3):
        if agent.act(Obs().entities([Food(random.random())]).globals(WORLD), Move) is None:
            return
    agent.game_over()


def lasts_by_chance(agent: Agent, *, seed: int) -> None:
    STEPS.append(0)
    for _ in STEPS:
        if ask(agent) is None:
            return
    agent.game_over()


STEPS: list[int] = []


def exits(agent: Agent, *, seed: int) -> None:
    ask(agent)
    sys.exit(3)


class OddError(BaseException):
    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: type) -> None: ...


def raises_another_exception(agent: Agent, *, seed: int) -> None:
    ask(agent)
    raise OddError("x")


def raises_generator_exit(agent: Agent, *, seed: int) -> None:
    ask(agent)
    raise GeneratorExit


def raises_in_the_package(agent: Agent, *, seed: int) -> None:
    agent.act(Obs().entities(untyped(iter([]))), Move)


def asks_twice_at_once(agent: Agent, *, seed: int) -> None:
    first = agent.act_async(Obs().globals(WORLD), Move)
    second = agent.act_async(Obs().globals(WORLD), Move)
    if first.get() is None or second.get() is None:
        return
    agent.game_over()


def ends_before_the_answer(agent: Agent, *, seed: int) -> None:
    _ = agent.act_async(Obs().globals(WORLD), Move)
    agent.game_over()


def asks_after_the_end(agent: Agent, *, seed: int) -> None:
    for i in range(4):
        if ask(agent) is None:
            return
        if i == 2:
            agent.game_over()


def raises_at_none(agent: Agent, *, seed: int) -> None:
    """Fails at only one of its two calls of `act`."""
    if ask(agent) is None:
        return
    untyped(agent.act(Obs().globals(WORLD), Move)).value.real  # noqa: B018 - raises
    agent.game_over()


def asks_on_after_the_end(agent: Agent, *, seed: int) -> None:
    agent.act(Obs().globals(WORLD), Move)
    agent.game_over()
    while agent.act(Obs().globals(WORLD), Move) is not None:
        pass


def mistypes(agent: Agent, *, seed: int) -> None:
    untyped(Obs()).entity([])


BROKEN_GAMES: list[tuple[Play, str]] = [
    (raises, r"step 0: play raised ZeroDivisionError: no fish left \(.*:\d+ in raises\)"),
    (shows_a_score, r"an agent was shown 5 \(int\), expected an Obs: write Obs\(5\)"),
    (ends_with_a_score, r"an agent was shown 5 \(int\), expected an Obs: write Obs\(5\)"),
    (ends_with_a_stranger, "shows a World, which was not declared"),
    (
        just_returns,
        r"episode 0 \(seed \d+\), step 1: play returned without game_over: call it before every "
        rf"return \({__file__}:{just_returns.__code__.co_firstlineno + 1} in just_returns\)",
    ),
    (
        asks_after_the_end,
        rf"act after game_over began another episode at {__file__}:\d+ in ask, which play left "
        r"without game_over: return after game_over, or end that episode, too \(.* in asks_after",
    ),
    (
        asks_on_after_the_end,
        r"no game_over within \d+ steps of an episode that act after game_over began at "
        rf"{__file__}:\d+ in asks_on_after_the_end: end the episode",
    ),
    (
        raises_at_none,
        r"play raised AttributeError: 'NoneType' object has no attribute 'value' \(.*\); act had "
        rf"returned None before \({__file__}:\d+ in raises_at_none\), as it does when the program "
        "closes the game: return then",
    ),
    (mistypes, "has no attribute 'entity'. Did you mean: 'entities'?"),
    (does_nothing, "play returns again and again without calling act"),
    (never_ends, "no game_over within 50 steps: end the episode"),
    (ends_before_it_began, r"game_over came before the first act of this episode \("),
    (
        ends_twice,
        r"game_over came before the first act of this episode, after game_over at .*:\d+ in "
        r"ends_twice: return after it \(.*:\d+ in ends_twice\)",
    ),
    (ignores_none, "play continues after act returned None: return from play"),
    (only_says_game_over, "play continues after act returned None"),
    (
        exits,
        rf"the game called sys\.exit\(3\): return from play instead \({__file__}:\d+ in exits\)",
    ),
    (raises_another_exception, r"the game raised OddError: x \(.*in raises_another_exception\)"),
    (raises_generator_exit, r"the game raised GeneratorExit.* \(.*in raises_generator_exit\)"),
    (
        raises_in_the_package,
        rf"episode 0 \(seed \d+\), step 0: entities must be .*\({__file__}:\d+ in raises_in",
    ),
    (
        forgets_the_seed,
        "one seed gives different episodes: episode 0 .* entity 'Food': feature 'value' is first 0",
    ),
    (lasts_by_chance, "one seed gives different episodes: .*"),
    (asks_twice_at_once, r"an agent was asked again before .get\(\) of its last act_async"),
    (ends_before_the_answer, r"game_over came before .get\(\) of the last act_async"),
]


@pytest.mark.parametrize(("play", "message"), BROKEN_GAMES)
def test_games_that_break_the_contract_are_found(play: Play, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_game(game_of(play), max_steps=50)


def test_the_return_that_forgets_one_agent_is_named() -> None:
    def forgets_one(agents: Sequence[Agent], *, seed: int) -> None:
        for agent in agents:
            if ask(agent) is None:
                return
        agents[0].game_over()
        return

    with pytest.raises(ContractError) as caught:
        check_game(game_of(forgets_one, num_agents=2))
    [problem] = caught.value.problems
    assert "step 1, agent 1: play returned without game_over for agent 1" in problem
    assert f":{forgets_one.__code__.co_firstlineno + 5} in forgets_one)" in problem


@pytest.mark.slow
def test_act_returns_none_at_every_place_where_it_is_called() -> None:
    left: set[int] = set()

    def play(agent: Agent, *, seed: int) -> None:
        for i in range(6):
            if ask(agent) is None:
                left.add(0)
                return
            if i % 2 and ask(agent) is None:
                left.add(1)
                return
        if agent.act(Obs().globals(WORLD), Move) is None:
            left.add(2)
            return
        agent.game_over()

    check_game(game_of(play), new_process=False)
    assert left == {0, 1, 2}


@pytest.mark.slow
def test_a_slow_game_is_checked_as_far_as_the_time_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = itertools.count(step=0.1)
    monkeypatch.setattr(direct_play, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr("entity_env.check.game.perf_counter", lambda: next(seconds))
    num_asked: list[int] = []

    def play(agent: Agent, *, seed: int) -> None:
        for i in range(1000):
            num_asked.append(i)
            if agent.act(Obs(i).globals(WORLD), Move) is None:
                return
        agent.game_over()

    stages: list[str] = []
    assert check_game(game_of(play), max_time_s=20.0, on_step=stages.append) == 0
    assert max(num_asked) < 200
    assert list(dict.fromkeys(stages)) == [
        "playing",
        "looking for clocks",
        "playing two copies in turn",
        "closing it",
        "recording",
        "playing in another process",
    ]
    [record] = caplog.records
    assert re.search(
        r"a step takes 100 ms: 1,000,000 steps of training take 28 hours in one process; .*; the "
        r"check stopped after \d+ steps: a larger --max-time, or max_time_s",
        record.getMessage(),
    )


def test_an_agent_whose_episode_never_ends_is_found() -> None:
    def forgets_one(agents: Sequence[Agent], *, seed: int) -> None:
        if ask(agents[0]) is not None:
            agents[0].game_over()
        while ask(agents[1]) is not None:
            pass

    with pytest.raises(ContractError, match=r"step 50, agent 1: no game_over within 50 steps"):
        check_game(game_of(forgets_one, num_agents=2), max_steps=50)


def test_a_game_that_swallows_everything_is_left_behind() -> None:
    is_released = False

    def swallows(agent: Agent, *, seed: int) -> None:
        while not is_released:
            try:
                ask(agent)
            except BaseException:
                continue

    with pytest.raises(ContractError) as caught:
        check_game(game_of(swallows), max_steps=5)
    found = str(caught.value)
    assert "play continues after act returned None: return from play" in found
    assert "play swallows GameExit: catch Exception, not BaseException" in found
    is_released = True


def test_finally_blocks_of_a_game_that_ignores_none_run() -> None:
    unwound: list[str] = []

    def ignores(agent: Agent, *, seed: int) -> None:
        try:
            while True:
                ask(agent)
        except GameExit:
            unwound.append("exit")
            raise
        finally:
            unwound.append("finally")

    with pytest.raises(ContractError, match="continues after act returned None"):
        check_game(game_of(ignores), max_steps=5)
    assert unwound == ["exit", "finally"] * 2


@pytest.mark.slow
def test_a_thread_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_env.check.violations._GRACE_S", 0.01)
    stop = threading.Event()

    def feeds(agent: Agent, *, seed: int) -> None:
        threading.Thread(target=stop.wait, name="fish feeder", daemon=True).start()
        ask(agent)
        agent.game_over()

    with pytest.raises(ContractError, match="after close: the thread 'fish feeder' is left behind"):
        check_game(game_of(feeds))
    stop.set()


def test_every_violation_of_one_observation_is_said() -> None:
    with pytest.raises(ContractError) as caught:
        check_game(game_of(entity(fish(cooldowns=(1, 2, 3), stance="calm", weight=NAN))))
    stance, cooldowns, weight = caught.value.problems
    assert "'stance'" in stance
    assert "'cooldowns'" in cooldowns
    assert "'weight'" in weight


@pytest.mark.slow
def test_settings_are_checked_as_given() -> None:
    def play(agent: Agent, *, seed: int, num_steps: int = 1) -> None:
        for _ in range(num_steps):
            if ask(agent) is None:
                return
        agent.game_over()

    check_game(game_of(play), new_process=False)
    with pytest.raises(ContractError, match="before the first act of this episode"):
        check_game(game_of(play).with_settings(num_steps=0))


@pytest.mark.slow
def test_a_reward_that_random_moves_rarely_earn_is_looked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    episodes: list[int] = []

    def rarely_pays(agent: Agent, *, seed: int, one_in: int = 10) -> None:
        episodes.append(seed)
        if agent.act(Obs().globals(WORLD), Move) is None:
            return
        agent.game_over(Obs(float(seed % one_in == 0)))

    game = game_of(rarely_pays)
    assert check_game(game, seed=1, new_process=False, max_time_s=None) == 300
    assert not caplog.records
    num_rewards = sum(seed % 10 == 0 for seed in {*episodes})
    assert 24 <= num_rewards < 60
    check_game(game.with_settings(one_in=10**30), seed=1, new_process=False, max_time_s=None)
    [record] = caplog.records
    assert "the score did not change in 1000 episodes, which teaches nothing" in record.message
    caplog.clear()
    check_game(game.with_settings(one_in=1), seed=1, new_process=False, max_time_s=None)
    assert not caplog.records
