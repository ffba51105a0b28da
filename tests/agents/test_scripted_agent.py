"""ScriptedAgent: the game's own objects become actions; errors name bot and action."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    AnswerError,
    Game,
    Obs,
    SchemaError,
    SelectEntity,
    Turn,
    UsageError,
)
from entity_env.agents import Agent, RandomAgent, ScriptedAgent, against, load_agent
from entity_env.agents.scripted_agent import Bot
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.obs import num_actors
from tests.games.composite_games import (
    PAIR,
    SEND,
    Pair,
    Planet,
    Send,
    Share,
    View,
    duel,
    pair,
    send,
)
from tests.helpers.tiny_games import (
    EACH,
    PICK,
    STEER,
    TINY_GAMES,
    Cat,
    Dog,
    DrawingBot,
    Ghost,
    Move,
    Turn as Direction,
    Weather,
    chaos,
)


class Places(RandomAgent):
    """Records its actions, with selected entities by their positions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.answers: list[list[Any]] = []

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - as of Agent
        answer = super().act(obs, *actions)
        if answer is not None:
            parts = [answer] if len(actions) == 1 else answer
            dogs = obs.of_class(Dog)
            self.answers.append(
                [
                    [None if each is None else dogs.index(each) for each in part]
                    if action == PICK
                    else part
                    for action, part in zip(actions, parts, strict=True)
                ]
            )
        return answer


class Repeating(ScriptedAgent):
    """Repeats recorded actions with the objects of the current observation."""

    def __init__(self, answers: list[list[Any]]) -> None:
        self.answers = iter(answers)

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        dogs = obs.of_class(Dog)
        parts = [
            [None if each is None else dogs[each] for each in part] if action == PICK else part
            for action, part in zip(actions, next(self.answers), strict=True)
        ]
        return parts[0] if len(parts) == 1 else tuple(parts)


@pytest.mark.parametrize("name", TINY_GAMES)
@given(seed=st.integers(0, 2**32))
def test_answers_are_the_actions_that_they_came_from(name: str, seed: int) -> None:
    game = TINY_GAMES[name]
    first: list[Turn] = []
    agents = [Places(seed + i) for i in range(game.num_agents)]
    played = game.run(*agents, seed=seed, watch=first.append, episodes=2)
    again: list[Turn] = []
    bots = [Repeating(agent.answers) for agent in agents]
    assert game.run(*bots, seed=seed, watch=again.append, episodes=2) == played
    assert repr(again) == repr(first)


@given(seed=st.integers(0, 2**32))
def test_what_is_allowed_is_legal_and_nothing_else(seed: int) -> None:
    turns: list[Turn] = []
    game = TINY_GAMES["together"]
    bots = [DrawingBot(seed + i) for i in range(3)]
    game.run(*bots, seed=seed, watch=turns.append)
    assert sum(turn.episode is not None for turn in turns) == 3


def look(*, masks: bool = False) -> Obs:
    """One cat, two ghosts that act, three dogs."""
    dogs = [Dog(Direction.ON, i) for i in range(3)]
    obs = (
        Obs(1).globals(Weather(0.5)).entities([Cat(1, 2)]).entities(dogs).actors([Ghost(), Ghost()])
    )
    if masks:
        obs.mask(Move, [True, False, True]).mask(EACH, [[True, False], [True, True]])
        obs.mask(PICK, [[False, True, True], [False, False, False]])
    return obs


def test_a_bot_asks_what_is_allowed_after_the_part_before() -> None:
    class Fitting(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            targets = [planets[-1] for planets in obs.allowed(SEND.target)]
            shares = obs.allowed(SEND.share, after=targets)
            return [
                Send(target, allowed[0], is_fast=True)
                for target, allowed in zip(targets, shares, strict=True)
            ]

    class Illegal(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            target = obs.of_class(Planet)[0]
            share = Share((int(target.size) + 1) % 3)
            return [Send(target, share, is_fast=True)] * 2

    class Equal(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            first = obs.allowed(PAIR.first)[0]
            assert obs.allowed(PAIR.second, after=first) == [
                each for each in Share if each != first
            ]
            return Pair(first, first, third=True)

    send.run(Fitting())
    with pytest.raises(AnswerError, match="its mask forbids"):
        send.run(Illegal())
    with pytest.raises(AnswerError, match=r"its mask forbids Share\.LOW, allowed are .*MID.*HIGH"):
        pair.run(Equal())


def test_opponents_cannot_choose_what_is_illegal_after_the_part_before() -> None:
    class Equal(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return Pair(Share.LOW, Share.LOW, third=True)

    with pytest.raises(AnswerError, match="its mask forbids"):
        against(duel, Equal).run(RandomAgent(seed=0), RandomAgent(seed=1))


@pytest.mark.parametrize("after", [None, Share.LOW, [Share.LOW], "LOW"])
def test_after_names_a_choice_of_the_part_before(after: object) -> None:
    flags = [[a != b for a in Share] for b in Share]
    obs = Obs().globals(View(0.0)).mask(PAIR.second, flags, given=PAIR.first)
    if after in (None, Share.LOW):
        assert obs.allowed(PAIR.second, after=after) == list(Share)[1 if after else 0 :]
    else:
        with pytest.raises(SchemaError, match=r"is not a choice of Pair\.first"):
            obs.allowed(PAIR.second, after=after)


def test_obs_lists_what_is_allowed() -> None:
    obs = look(masks=True)
    dogs = obs.of_class(Dog)
    assert obs.allowed(Move) == [Move.LEFT, Move.RIGHT]
    assert obs.allowed(EACH) == [[Direction.BACK], list(Direction)]
    assert obs.allowed(PICK) == [dogs[1:], []]
    assert look().allowed(Move) == list(Move)
    assert look().allowed(EACH) == [list(Direction)] * 2
    assert [len(row) for row in look().allowed(PICK)] == [3, 3]
    with pytest.raises(SchemaError, match="asks for real numbers"):
        obs.allowed(STEER)


def test_obs_lists_who_acts() -> None:
    ghosts, dogs = [Ghost(), Ghost()], [Dog(Direction.ON, 1)]
    obs = Obs().actors(ghosts, EACH).entities([Cat(1, 2)]).actors(dogs)
    assert obs.actors_of(EACH) == [*ghosts, *dogs]
    assert obs.actors_of(PICK) == dogs
    assert Obs().entities(dogs).actors_of(PICK) == []
    for kind in (EACH, PICK, STEER):
        assert len(obs.actors_of(kind)) == num_actors(kind, obs)


def answered(obs: Obs, actions: tuple[Any, ...], answer: Callable[[Obs], object]) -> Any:  # noqa: ANN401
    """The action that a game gets from a bot with this answer."""
    found = []

    class Bot(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return answer(obs)

    def play(agent: Agent, *, seed: int) -> None:
        act: Any = agent.act
        found.append(act(obs, *actions))
        agent.game_over()

    game = Game(
        play,
        entities=(Cat, Dog, Ghost),
        actions=(Move, EACH, PICK, STEER),
        global_features=Weather,
        name="one",
    )
    game.run(Bot())
    return found[0]


@pytest.mark.parametrize(
    ("actions", "answer", "message"),
    [
        ((Move,), lambda obs: Move.STAY, "its mask forbids Move.STAY, allowed are Move.LEFT, "),
        ((Move,), lambda obs: 0, "answered 0 to the action 'Move': expected a Move, one of Move.L"),
        ((Move,), lambda obs: None, "answered None to the action 'Move'"),
        ((Move,), lambda obs: [Move.LEFT], "answered [Move.LEFT] to the action 'Move'"),
        ((EACH,), lambda obs: [Direction.ON] * 3, "expected a list of 2, one choice per actor"),
        ((EACH,), lambda obs: Direction.ON, "expected a list of 2, one choice per actor"),
        (
            (EACH,),
            lambda obs: [Direction.ON] * 2,
            "actor 0: its mask forbids Turn.ON, allowed",
        ),
        (
            (EACH,),
            lambda obs: [Direction.BACK, Move.LEFT],
            "actor 1: expected a Turn, one of",
        ),
        ((PICK,), lambda obs: [obs.of_class(Dog)[0], None], "actor 0: its mask forbids Dog("),
        ((PICK,), lambda obs: [obs.of_class(Dog)[1]] * 2, " and all others: expected None"),
        ((PICK,), lambda obs: [Dog(Direction.ON, 1), None], "not among the 3 Dog objects of the"),
        ((PICK,), lambda obs: [None, None], "actor 0: None is not among the 3 Dog objects"),
        ((PICK,), lambda obs: [obs.of_class(Dog)[1]], "expected a list of 2, one entity per actor"),
        ((STEER,), lambda obs: [[0, 1]], "numbers of shape (2, 2): wheel, gas of each actor"),
        ((STEER,), lambda obs: [[0, 1], [0, "x"]], "expected numbers of shape (2, 2)"),
        (
            (STEER,),
            lambda obs: [[0, 1], [0, 7]],
            "actor 1 chose 7.0 for 'gas', expected 0.0 to",
        ),
        ((STEER,), lambda obs: [[0, 1], [float("nan"), 1]], "actor 1 chose nan for 'wheel'"),
        ((Move, EACH), lambda obs: Move.LEFT, "a tuple of 2 answers, one each for Move, Turn"),
        ((Move, EACH), lambda obs: (Move.LEFT,), "a tuple of 2 answers, one each for Move, Turn"),
        ((Move, EACH), lambda obs: (Move.LEFT, []), "answered [] to the action 'Turn'"),
    ],
)
def test_an_illegal_answer_is_one_line(
    actions: tuple[Any, ...], answer: Callable[[Obs], object], message: str
) -> None:
    with pytest.raises(AnswerError) as error:
        answered(look(masks=True), actions, answer)
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith("test_scripted_agent.py:Bot answered ")
    assert message in text


def test_legal_answers_of_all_kinds() -> None:
    numbers = answered(look(), (STEER,), lambda obs: np.array([[0, 1], [1, 2]]))
    assert numbers.dtype == np.float32
    assert numbers.tolist() == [[0, 1], [1, 2]]
    obs = look(masks=True)
    dog = obs.of_class(Dog)[2]
    found = answered(
        obs, (PICK, Move, EACH), lambda obs: ([dog, None], Move.LEFT, (Direction.BACK,) * 2)
    )
    assert found == ([dog, None], Move.LEFT, [Direction.BACK] * 2)


def test_an_entity_of_an_array_is_its_row() -> None:
    rows = np.array([[1.0, 1], [1, 1], [3, 3]])
    pick = SelectEntity(Cat)
    seen = []

    def play(agent: Agent, *, seed: int) -> None:
        obs = Obs().actors([Ghost()]).entities(rows, of=Cat).mask(pick, [False, True, True])
        picked = agent.act(obs, pick)
        assert picked is not None
        seen.append(np.asarray(picked[0]).tolist())
        agent.game_over()

    game = Game(play, entities=(Cat, Ghost), actions=(pick,))

    class Last(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return [obs.allowed(actions[0])[0][-1]]

    class First(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return [obs.of_class(Cat)[0]]

    game.run(Last())
    assert seen == [[3, 3]]
    with pytest.raises(AnswerError, match="its mask forbids"):
        game.run(First())


def test_episodes_begin() -> None:
    class Counting(ScriptedAgent):
        num_episodes = 0

        def begin_episode(self) -> None:
            self.num_episodes += 1

        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return Move.RIGHT

    bot = Counting()
    TINY_GAMES["count"].run(bot, episodes=4)
    assert bot.num_episodes == 4


# ------------------------------------------------------------------ bots of files

FILE = """
from entity_env.agents import ScriptedAgent

class Last(ScriptedAgent):
    def choose(self, obs, *actions):
        return obs.allowed(actions[0])[-1]

class Seeded(ScriptedAgent):
    def __init__(self, seed):
        self.given = seed
    def choose(self, obs, *actions):
        return obs.allowed(actions[0])[-1]

class Plain:
    began = 0
    def begin_episode(self):
        self.began += 1
    def act(self, obs, action):
        return obs.allowed(action)[self.began - 1]

class Raising(Plain):
    def __init__(self):
        raise KeyError("no book")

class Demanding(Plain):
    def __init__(self, level):
        pass

class Unfinished(ScriptedAgent):
    pass

def last(obs, action):
    return obs.allowed(action)[-1]

answer = 42
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path, modules = sys.path.copy(), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_bots.py").write_text(FILE)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["Last", "Seeded", "last"])
def test_bots_are_loaded_from_files(name: str, folder: Path) -> None:
    bot = load_agent(f"some_bots.py:{name}", seed=7)
    assert TINY_GAMES["count"].run(bot, episodes=2)[0].length == 3
    assert getattr(bot, "given", 7) == 7


def test_a_class_of_ones_own_is_a_bot(folder: Path) -> None:
    seen: list[Turn] = []
    TINY_GAMES["count"].run(load_agent("some_bots.py:Plain"), episodes=2, watch=seen.append)
    assert [str(turn.actions["Move"].label) for turn in seen if turn.actions] == (  # type: ignore[union-attr]
        ["LEFT"] * 3 + ["STAY"] * 3
    )


def test_a_file_is_executed_once(folder: Path) -> None:
    first, second = (load_agent("some_bots.py:Last") for _ in range(2))
    assert type(first) is type(second)
    (folder / "other").mkdir()
    (folder / "other" / "some_bots.py").write_text(FILE)
    other = load_agent("other/some_bots.py:Last")
    assert type(other) is not type(first)
    assert sys.modules["some_bots"].Last is type(first)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("some_bots.py:Lst", "some_bots.py has no bot 'Lst'; did you mean Last?"),
        ("some_bots.py:Qqqq", "some_bots.py has no bot 'Qqqq'; it has Last, Seeded, Plain, "),
        ("some_bot.py:Last", "no file some_bot.py; did you mean some_bots.py?"),
        ("some_bots.py:answer", "some_bots.py:answer is not a bot: expected a subclass of"),
        ("some_bots.py:Unfinished", "some_bots.py:Unfinished is not a bot"),
        ("some_bots.py:Raising", "line 23: its constructor, called with no arguments, raised Key"),
        ("leaving.py:A", "leaving.py:A: its constructor: sys.exit(3) was called at "),
        ("some_bots.py:Demanding", "missing 1 required positional argument: 'level'"),
        ("some_bots.py", "some_bots.py has 5 bots: choose one, some_bots.py:Last, "),
        ("empty.py", "empty.py has no class with choose or act"),
        ("broken.py:A", "broken.py, line 2: "),
        ("x" * 300 + ".py:A", "File name too long"),
    ],
)
def test_says_what_is_wrong_with_a_name(name: str, message: str, folder: Path) -> None:
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("x = 1\ny = \n")
    (folder / "leaving.py").write_text(
        "import sys\nclass A:\n    def __init__(self): sys.exit(3)\n"
        "    def choose(self, obs): ...\n"
    )
    with pytest.raises(UsageError) as error:
        load_agent(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_classes_of_another_module_are_named() -> None:
    class Move2(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return other.RIGHT

    other: Any = Enum("Move", "LEFT RIGHT")  # type: ignore[misc]  # a different name
    with pytest.raises(
        AnswerError, match=r"expected the game's tests.*, got a different class with that name, "
    ):
        TINY_GAMES["count"].run(Move2())


def test_seeds_follow_from_the_seed_of_a_bot() -> None:
    bot = Bot(DrawingBot)
    one, same, other = (
        [turn.actions for turn in seen] for seen in (_turns(bot(1)), _turns(bot(1)), _turns(bot(2)))
    )
    assert repr(one) == repr(same) != repr(other)


def _turns(agent: Agent) -> list[Turn]:
    seen: list[Turn] = []
    chaos.run(agent, episodes=5, watch=seen.append)
    return seen


def test_errors_of_the_game_are_found_with_bots_too() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Cat(1, 2)]), Move)

    game = Game(play, entities=(Dog,), actions=(Move,), name="undeclared")
    with pytest.raises(SchemaError, match=re.escape("shows a Cat, which was not declared")):
        game.run(DrawingBot(1))
