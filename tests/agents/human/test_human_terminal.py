"""HumanAgent on a terminal: single keys; screen and terminal mode are restored."""

import io
import math
import termios
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Categorical, Continuous, Game, Obs, Observation, SelectEntity, UsageError
from entity_env.agents import Agent
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.move_clock import MoveClock
from entity_env.agents.human.prompt import Asked, Choice, Prompt, TimeIsUp, UserQuit
from entity_env.authoring.action_type import ActionKey
from entity_env.core.observation import EntityID
from tests.helpers.terminals import Terminal

Answer = TypeVar("Answer")

UP, DOWN, LEFT, RIGHT = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"
CTRL_D = "\x04"


class Move(Enum):
    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3


@dataclass
class Unit:
    x: int


UNITS = [Unit(x) for x in range(12)]
PICK = SelectEntity(Unit)
PUSH = Continuous("Push", low=[-1.0], high=[1.0])


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal() as opened:
        yield opened


def answer(terminal: Terminal, typed: str, ask: Callable[[Agent], Answer]) -> Answer:
    terminal.type(typed)
    agent = HumanAgent(source=terminal.source, out=terminal.out, show=lambda _: None)
    answered = ask(agent)
    assert terminal.is_restored
    return answered


def ask_move(agent: Agent) -> Move | None:
    return agent.act(Obs().entities(UNITS), Move)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (UP, Move.UP),
        (DOWN, Move.DOWN),
        (LEFT, Move.LEFT),
        (RIGHT, Move.RIGHT),
        ("\x1bOA", Move.UP),
        ("W", Move.UP),
        ("\x1b[3~xé\nd", Move.RIGHT),
        ("q", None),
    ],
)
def test_answers_with_single_keys(terminal: Terminal, keys: str, expected: Move | None) -> None:
    assert answer(terminal, keys, ask_move) is expected


def test_an_escape_key_alone_is_no_arrow_and_control_d_ends(terminal: Terminal) -> None:
    keyboard = Keyboard(terminal.source)
    with keyboard.single_keys():
        terminal.type("\x1b")
        assert keyboard.key() == "\x1b"
        terminal.type(CTRL_D)
        assert keyboard.key() == ""


def test_the_end_of_input_hangs_up(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyboard, "key", lambda _: "")
    assert answer(terminal, "", ask_move) is None


def test_leaves_the_screen_as_it_was(terminal: Terminal) -> None:
    answer(terminal, UP, ask_move)
    shown = terminal.shown()
    assert "↑ UP" in shown
    assert shown.endswith("\r\x1b[1A\x1b[J")


def test_keys_that_were_typed_ahead_count(terminal: Terminal) -> None:
    def ask_twice(agent: Agent) -> list[Move | None]:
        return [ask_move(agent), ask_move(agent)]

    assert answer(terminal, f"{UP}{LEFT}", ask_twice) == [Move.UP, Move.LEFT]


def test_few_entities_are_selected_with_one_key(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[Unit | None] | None:
        return agent.act(Obs().actors(UNITS[:1]).entities(UNITS[1:3]), PICK)

    assert answer(terminal, "93", ask) == [UNITS[2]]


def test_many_entities_are_selected_with_a_number_and_enter(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[Unit | None] | None:
        return agent.act(Obs().actors(UNITS[:1]).entities(UNITS[1:]), PICK)

    assert answer(terminal, "99\n12\n", ask) == [UNITS[11]]
    shown = terminal.shown()
    assert "'99' is not among the choices" in shown
    lines = shown[shown.index("SelectUnit") : shown.index("> ")].count("\n")
    assert f"\r\x1b[{lines + 1}A\x1b[J" in shown


def test_numbers_are_typed(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[list[float]] | None:
        pushed = agent.act(Obs().actors(UNITS[:1]), PUSH)
        return None if pushed is None else pushed.tolist()

    assert answer(terminal, "-0.25\n", ask) == [[-0.25]]
    assert answer(terminal, CTRL_D, ask) is None


# --------------------------------------------------------------------------- on a board


@dataclass
class Tower:
    x: int


@dataclass
class Enemy:
    x: float
    y: float


SHOOT = SelectEntity(Enemy)


class BoardOf:
    """Knows the positions of enemies and towers, and records the questions."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def places(
        self, agent_id: int, observation: Observation
    ) -> Mapping[EntityID, tuple[float, float]]:
        found: dict[EntityID, tuple[float, float]] = {}
        for name, rows in observation.features.items():
            for entity_id, row in zip(observation.ids[name], rows, strict=True):
                found[entity_id] = (float(row[0]), float(row[1]) if len(row) > 1 else 0.0)
        return found

    def show(
        self, agent_id: int, observation: Observation, *notes: str, asked: Asked | None = None
    ) -> None:
        if asked is not None:
            self.asked.append(asked)


def shots(
    terminal: Terminal, keys: str, enemies: list[Enemy], *, num_towers: int = 3, steps: int = 1
) -> tuple[list[Any], list[Asked]]:
    """Targets of the towers in each step, and all questions."""
    board, answers = BoardOf(), []
    towers = [Tower(x) for x in range(num_towers)]

    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(steps):
            obs = Obs().actors(towers).entities(enemies)
            answers.append(agent.act(obs, SHOOT))
            if answers[-1] is None:
                return
        agent.game_over()

    terminal.type(keys)
    game = Game(play, entities=(Tower, Enemy), actions=(SHOOT,), name="shots")
    game.run(HumanAgent(source=terminal.source, out=terminal.out, board=board))
    assert terminal.is_restored
    return answers, board.asked


ENEMIES = [Enemy(5, 0), Enemy(1, 0), Enemy(1, 3), Enemy(8, 0)]


def test_entities_on_a_board_are_selected_by_one_key_each(terminal: Terminal) -> None:
    many = [Enemy(x, 0) for x in range(40)]
    [targets], asked = shots(terminal, "1aB", many)
    assert targets == [many[0], many[9], many[35]]
    assert [each.actor for each in asked] == [0, 1, 2]
    keys = list(asked[0].keys.values())
    assert len({*keys}) == len(keys) == 40
    assert not {"q", "Q", "."} & {*keys}
    shown = terminal.shown()
    assert "Enemy x=7 y=0" not in shown, "they are on the board"
    assert "keys on the board" in shown


def test_few_entities_on_a_board_are_in_the_menu_too(terminal: Terminal) -> None:
    shots(terminal, "111", ENEMIES)
    assert "1 Enemy x=5 y=0" in terminal.shown()


def test_enter_selects_the_nearest_and_arrows_and_tab_move(terminal: Terminal) -> None:
    [targets], asked = shots(terminal, f"\n{RIGHT}{RIGHT}\n{UP}\t\n", ENEMIES)
    assert targets == [ENEMIES[1], ENEMIES[3], ENEMIES[3]]
    focused = [each.focus for each in asked]
    ids = [3, 4, 5, 6]  # after the towers
    assert focused == [ids[1], ids[1], ids[0], ids[3], ids[1], ids[2], ids[3]]


def test_enter_and_a_dot_repeat_what_each_actor_did_last(terminal: Terminal) -> None:
    answers, _ = shots(terminal, "134\n..", ENEMIES, steps=3)
    assert answers == [[ENEMIES[0], ENEMIES[2], ENEMIES[3]]] * 3
    assert ". all as before" in terminal.shown()


def test_backspace_goes_back_to_the_previous_actor(terminal: Terminal) -> None:
    answers, _ = shots(terminal, "\x7f12\x7f\x7f41\b34", ENEMIES)
    assert answers == [[ENEMIES[3], ENEMIES[2], ENEMIES[3]]]
    assert "backspace undo" in terminal.shown()


def test_a_choice_taken_back_is_not_the_next_default(terminal: Terminal) -> None:
    """Enter repeats the choice of the last turn."""
    answers, _ = shots(terminal, "1344\b\n.", ENEMIES, steps=2)
    assert answers == [[ENEMIES[0], ENEMIES[2], ENEMIES[3]]] * 2


def test_backspace_takes_back_what_a_dot_chose(terminal: Terminal) -> None:
    """The dot answers for both units, but numbers have no default."""
    obs = Obs().actors(UNITS[:2]).entities(UNITS[2:4])

    def ask(agent: Agent) -> Any:  # noqa: ANN401
        return agent.act(obs, PICK, PUSH)

    picked, pushed = answer(terminal, ".undo\n20.5\n3-0.5\n", ask)
    assert picked == UNITS[1:3]
    np.testing.assert_allclose(pushed, [[0.5], [-0.5]])


def test_numbers_are_taken_back_one_by_one(terminal: Terminal) -> None:
    push = Continuous("Push", low=[-1.0, 0.0], high=[1.0, 2.0])
    steer = Obs().actors([Unit(0), Unit(1)], push)
    typed = "0.1 undo 0.2 2 0.3 undo undo 0.2 1 0.4 0.5 ".replace(" ", "\n")
    found = answer(terminal, typed, lambda agent: agent.act(steer, push))
    np.testing.assert_allclose(np.array(found), [[0.2, 1.0], [0.4, 0.5]])


@given(data=st.data())
@settings(max_examples=20)
def test_every_entity_on_a_board_can_be_reached_without_its_key(data: st.DataObject) -> None:
    """Including entities that share a cell, and more entities than keys."""
    places = st.tuples(st.integers(0, 3), st.integers(0, 3))
    enemies = [Enemy(x, y) for x, y in data.draw(st.lists(places, min_size=1, max_size=70))]
    wanted = data.draw(st.integers(0, len(enemies) - 1))
    with Terminal() as terminal:
        # Tab cycles; the first in focus is one of the nearest.
        near = min(range(len(enemies)), key=lambda i: math.dist((0, 0), astuple(enemies[i])))
        keys = "\t" * ((wanted - near) % len(enemies)) + "\n"
        [targets], _ = shots(terminal, keys, enemies, num_towers=1)
    assert targets[0] is enemies[wanted]


def test_the_menu_is_never_cut(terminal: Terminal) -> None:
    words = [f"choice {i} " + "with many words " * 12 + f"end {i}" for i in range(30)]
    terminal.type("7\n")
    prompt = Prompt(terminal.source, terminal.out)
    choices = [Choice(i, text, (str(i + 1),)) for i, text in enumerate(words)]
    assert prompt.choose("Pick", choices) == 6
    shown = " ".join(terminal.shown().split())
    assert all(f"end {i}" in shown for i in range(30))


class Player:
    """A person with a clock; presses keys when a step of a game is shown."""

    def __init__(self, terminal: Terminal, keys: dict[int, str], clock_s: float) -> None:
        self._terminal, self._keys = terminal, keys
        self._agent = HumanAgent(
            source=terminal.source, out=terminal.out, show=self._show, clock_s=clock_s
        )
        self._step = 0

    def _show(self, observation: Observation) -> None:
        self._terminal.type(self._keys.get(self._step, ""))
        self._step += 1

    def play(self, *actions: ActionKey, steps: int, episodes: int = 1, seats: int = 1) -> list[Any]:
        answers = []

        def play(agents: Agent | list[Agent], *, seed: int) -> None:
            agents = agents if isinstance(agents, list) else [agents]
            for agent in agents * steps:
                answers.append(agent.act(Obs().actors(UNITS[:1], *actions[:1]), *actions))
                if answers[-1] is None:
                    return
            for agent in agents:
                agent.game_over()

        game = Game(play, entities=(Unit,), actions=actions, num_agents=seats, name="clocked")
        game.run(*[self._agent] * seats, episodes=episodes)
        assert self._terminal.is_restored
        return answers


MOVES = Categorical(Move, "Moves")


class TestAClock:
    """Keys are typed before the question, so a slow machine misses none."""

    def test_the_last_key_counts_until_the_next_one(self, terminal: Terminal) -> None:
        player = Player(terminal, {0: RIGHT, 2: UP}, clock_s=0.01)
        moves = [each[0] for each in player.play(MOVES, steps=4)]
        assert moves == [Move.RIGHT, Move.RIGHT, Move.UP, Move.UP]
        shown = terminal.shown()
        assert "(no limit, then 0.01 s each)" in shown
        assert "(0.01 s, then RIGHT)" in shown

    def test_every_episode_waits_for_its_first_key(self, terminal: Terminal) -> None:
        player = Player(terminal, {0: RIGHT, 2: LEFT}, clock_s=0.01)
        moves = [each[0] for each in player.play(MOVES, steps=2, episodes=2)]
        assert moves == [Move.RIGHT, Move.RIGHT, Move.LEFT, Move.LEFT]

    def test_every_seat_of_one_person_has_its_own_clock(self, terminal: Terminal) -> None:
        player = Player(terminal, {0: RIGHT, 1: LEFT}, clock_s=0.01)
        moves = [each[0] for each in player.play(MOVES, steps=2, seats=2)]
        assert moves == [Move.RIGHT, Move.LEFT, Move.RIGHT, Move.LEFT]

    def test_q_leaves(self, terminal: Terminal) -> None:
        assert Player(terminal, {0: RIGHT, 1: "q"}, clock_s=9).play(MOVES, steps=3)[1:] == [None]

    @pytest.mark.parametrize("typed", ["q", "Q", "0.5q", "qqq", "1\x7f\x7fq"])
    def test_q_leaves_while_a_number_is_typed(self, terminal: Terminal, typed: str) -> None:
        assert Player(terminal, {0: "0.5\n", 1: typed}, clock_s=9).play(PUSH, steps=3)[1:] == [None]

    def test_numbers_stay_and_half_a_number_is_dropped(self, terminal: Terminal) -> None:
        player = Player(terminal, {0: "0.5\n", 1: "0.", 3: "-1\n"}, clock_s=0.01)
        pushes = [each.tolist()[0][0] for each in player.play(PUSH, steps=4)]
        assert pushes == [0.5, 0.5, 0.5, -1]

    def test_a_longer_time_waits_for_nothing_once_a_key_is_pressed(
        self, terminal: Terminal
    ) -> None:
        keys = {0: RIGHT, 1: UP, 2: LEFT}
        moves = [each[0] for each in Player(terminal, keys, clock_s=1e6).play(MOVES, steps=3)]
        assert moves == [Move.RIGHT, Move.UP, Move.LEFT]

    def test_a_key_that_is_held_counts_once_and_two_more_are_kept(self, terminal: Terminal) -> None:
        clock = MoveClock(0.05, now=lambda: 0.0)
        clock.begin(0)
        clock.begin(1)
        prompt = Prompt(terminal.source, terminal.out, clock)
        choices = [Choice(i, key, (key,)) for i, key in enumerate(("up", "left", "o"))]
        terminal.type(UP * 20 + LEFT * 20 + "oo")
        assert [prompt.choose("Move", choices) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(TimeIsUp):
            prompt.choose("Move", choices)

    def test_only_the_last_question_of_a_decision_waits_for_the_time(
        self, terminal: Terminal
    ) -> None:
        waits = []

        def choose(
            prompt: Prompt, title: str, choices: object, *, is_last: bool, **_: object
        ) -> int:
            waits.append(is_last)
            return 0

        with mock.patch.object(Prompt, "choose", choose):
            agent = HumanAgent(source=terminal.source, out=terminal.out, show=lambda _: None)
            agent.act(Obs().actors(UNITS[:2], PICK, MOVES).entities(UNITS[:3]), PICK, MOVES)
        assert waits == [False, False, False, True]

    def test_it_needs_a_terminal(self) -> None:
        with pytest.raises(UsageError, match="a clock needs a terminal"):
            HumanAgent(source=io.StringIO(""), out=io.StringIO(), clock_s=1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_restores_the_terminal_after_any_error(
    terminal: Terminal, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def fail(keyboard: Keyboard) -> str:
        modes.append(terminal.mode)
        raise error

    monkeypatch.setattr(Keyboard, "key", fail)
    prompt = Prompt(terminal.source, terminal.out)
    with pytest.raises(error):
        prompt.choose("Move", [Choice(0, "UP", ("up",))])
    assert not modes[0][3] & termios.ICANON
    assert terminal.is_restored
    assert terminal.shown().endswith("\x1b[J")


def test_an_interrupted_line_is_erased_too(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(keyboard: Keyboard) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Keyboard, "line", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Prompt(terminal.source, terminal.out).number("Push", -1, 1)
    assert terminal.shown().endswith("> \r\n\r\x1b[2A\x1b[J")


def test_a_terminal_that_is_gone_hangs_up() -> None:
    with Terminal() as terminal:
        prompt = Prompt(terminal.source, terminal.out)
        terminal.type("\x04")
        with pytest.raises(UserQuit):
            prompt.number("Push", -1, 1)
