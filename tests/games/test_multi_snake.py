"""The rules of multi_snake, checked against a second, slow implementation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Obs, UsageError
from entity_env.agents import RandomAgent
from entity_env.games import multi_snake
from entity_env.games.multi_snake import Clock, Move, play
from tests.helpers.scripted_agent import ScriptedAgent

Cell = tuple[int, int]


@dataclass
class Board:
    """Content of one observation."""

    score: float
    step: int
    heads: list[Cell]
    segments: list[set[Cell]]
    food: list[Cell]

    @classmethod
    def of(cls, obs: Obs) -> "Board":
        heads, segments, food = obs.groups
        colors = range(len(heads))
        assert [head.color for head in heads] == list(colors)
        assert [piece.color for piece in food] == list(colors)
        assert isinstance(obs.global_features, Clock)
        return cls(
            obs.score,
            obs.global_features.step,
            [(head.x, head.y) for head in heads],
            [{(s.x, s.y) for s in segments if s.color == color} for color in colors],
            [(piece.x, piece.y) for piece in food],
        )


class Rules:
    """The rules, with lists: `advance` moves all snakes and returns the events."""

    def __init__(self, board: Board, board_size: int, max_snake_length: int) -> None:
        self.snakes = [[head] for head in board.heads]  # heads first
        self.board_size = board_size
        self.max_snake_length = max_snake_length
        self.num_eaten = 0

    def advance(self, moves: Sequence[Move], food: Sequence[Cell]) -> Counter[str]:
        events: Counter[str] = Counter()
        eaten: list[Cell] = []
        for color, move in enumerate(moves):
            snake = self.snakes[color]
            cell = snake[0][0] + move.dx, snake[0][1] + move.dy
            fatal = self.fatal(color, cell, [f if f not in eaten else (-9, -9) for f in food])
            if fatal:
                events[fatal] += 1
                continue
            snake.insert(0, cell)
            if cell == food[color]:
                eaten.append(cell)
            if cell == food[color] and len(snake) <= self.max_snake_length:
                self.num_eaten += 1
                events["grew"] += 1
            else:
                events["ate at full length"] += cell == food[color]
                snake.pop()
        if all(len(snake) == self.max_snake_length for snake in self.snakes):
            events["all grown"] += 1
        return +events

    def fatal(self, color: int, cell: Cell, food: Sequence[Cell]) -> str:
        if not (0 <= cell[0] < self.board_size and 0 <= cell[1] < self.board_size):
            return "wall"
        if cell in self.snakes[color]:
            return "itself"
        if any(cell in snake for snake in self.snakes):
            return "other snake"
        return "wrong food" if cell in food and cell != food[color] else ""


ENDINGS = {"wall", "itself", "other snake", "wrong food", "all grown"}


class Referee(ScriptedAgent):
    """Mostly plays toward food, and checks every step against `Rules`."""

    def __init__(
        self, seed: int, *, board_size: int, max_snake_length: int, max_step: int, greed: float
    ) -> None:
        super().__init__(self._choose, episodes=1)
        self.rng = Random(seed)
        self.board_size = board_size
        self.max_snake_length = max_snake_length
        self.max_step = max_step
        self.greed = greed
        self.rules: Rules | None = None
        self.food: list[Cell] = []
        self.events: Counter[str] = Counter()
        self.last: Counter[str] = Counter()
        self.num_boards = 0

    def _choose(self, obs: Obs) -> list[Move]:
        board = Board.of(obs)
        self.check(board)
        assert not ENDINGS & set(self.last), "the game went on after its end"
        assert self.rules is not None
        moves = [self.move(color, board) for color in range(len(board.heads))]
        self.last = self.rules.advance(moves, board.food)
        self.events += self.last
        return moves

    def move(self, color: int, board: Board) -> Move:
        if self.rng.random() > self.greed:
            return self.rng.choice(list(Move))
        x, y = board.heads[color]
        goal_x, goal_y = board.food[color]
        assert self.rules is not None
        safe = [
            move
            for move in Move
            if not self.rules.fatal(color, (x + move.dx, y + move.dy), board.food)
        ]
        return min(
            safe or Move,
            key=lambda move: abs(x + move.dx - goal_x) + abs(y + move.dy - goal_y),
        )

    def check(self, board: Board) -> None:
        if self.rules is None:
            self.rules = Rules(board, self.board_size, self.max_snake_length)
        snakes = self.rules.snakes
        assert board.step == self.num_boards
        assert board.heads == [snake[0] for snake in snakes]
        assert board.segments == [set(snake[1:]) for snake in snakes]
        total = (self.max_snake_length - 1) * len(snakes)
        assert board.score == pytest.approx(self.rules.num_eaten / total)
        taken = [*board.food, *(cell for snake in snakes for cell in snake)]
        assert len(set(taken)) == len(taken), "nothing shares a cell"
        moved = sum(before != after for before, after in zip(self.food, board.food, strict=False))
        assert moved <= self.last["grew"] + self.last["ate at full length"]
        self.food = board.food
        self.num_boards += 1

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        super().game_over(obs, truncated=truncated)
        assert obs is not None
        self.check(Board.of(obs))
        assert truncated == (not ENDINGS & set(self.last))
        if truncated:
            assert self.end.num_steps == self.max_step
            self.events["cut"] += 1


def referee(
    seed: int,
    num_snakes: int,
    greed: float,
    board_size: int = 6,
    max_snake_length: int = 5,
    max_step: int = 60,
) -> Referee:
    agent = Referee(
        seed,
        board_size=board_size,
        max_snake_length=max_snake_length,
        max_step=max_step,
        greed=greed,
    )
    play(
        agent,
        seed=seed,
        board_size=board_size,
        num_snakes=num_snakes,
        max_snake_length=max_snake_length,
        max_step=max_step,
    )
    return agent


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**63 - 1),
    num_snakes=st.integers(1, 4),
    board_size=st.integers(4, 7),
    max_snake_length=st.integers(2, 3),
    max_step=st.integers(1, 60),
    greed=st.sampled_from([0.5, 0.95, 1.0]),
)
def test_every_step_follows_the_rules(
    seed: int,
    num_snakes: int,
    board_size: int,
    max_snake_length: int,
    max_step: int,
    greed: float,
) -> None:
    referee(seed, num_snakes, greed, board_size, max_snake_length, max_step)


def test_everything_that_can_happen_does() -> None:
    """The test above reaches every rule that it checks."""
    events: Counter[str] = Counter()
    for seed in range(60):
        for num_snakes in (1, 3):
            for greed in (0.9, 1.0):
                events += referee(seed, num_snakes, greed, max_step=25).events
    assert set(events) == ENDINGS | {"grew", "ate at full length", "cut"}


@pytest.mark.parametrize("num_snakes", [1, 2, 3])
def test_a_perfect_episode_is_worth_one(num_snakes: int) -> None:
    agents = [referee(seed, num_snakes, greed=1.0) for seed in range(30)]
    grown = [agent for agent in agents if agent.last["all grown"]]
    assert grown
    for agent in grown:
        assert agent.end.score == 1
        assert sum(agent.end.gains) == pytest.approx(1)
        assert min(gain for gain in agent.end.gains if gain) == pytest.approx(1 / 4 / num_snakes)


@pytest.mark.parametrize("move", Move)
def test_a_wall_ends_the_game(move: Move) -> None:
    agent = ScriptedAgent(lambda obs: [move], episodes=10)
    play(agent, seed=1, num_snakes=1)
    assert len(agent.ends) == 10
    for end in agent.ends:
        assert not end.truncated
        assert 1 <= end.num_steps <= 10


def test_a_snake_cannot_turn_back_into_its_only_segment() -> None:
    def answer(obs: Obs) -> list[Move]:
        board = Board.of(obs)
        [(x, y)], [neck], [(food_x, food_y)] = board.heads, board.segments, board.food
        if neck:
            [(back_x, back_y)] = neck
            return [next(m for m in Move if (x + m.dx, y + m.dy) == (back_x, back_y))]
        if x != food_x:
            return [Move.RIGHT if x < food_x else Move.LEFT]
        return [Move.UP if y < food_y else Move.DOWN]

    agent = ScriptedAgent(answer, episodes=1)
    play(agent, seed=1, num_snakes=1)
    assert not agent.end.truncated
    assert agent.end.score == pytest.approx(1 / 10)


def test_it_goes_on_for_many_episodes_with_the_seeds_of_the_agent() -> None:
    first: list[Board] = []

    def answer(obs: Obs) -> list[Move]:
        board = Board.of(obs)
        if board.step == 0:
            first.append(board)
        return [Move.UP, Move.DOWN]

    agent = ScriptedAgent(answer, seeds=[8, 7, 8], episodes=4)
    play(agent, seed=7)
    assert len(agent.ends) == len(first) == 4
    assert first[0] == first[2]
    assert first[1] == first[3]
    assert first[0] != first[1]


def test_one_play_is_many_episodes_of_a_run() -> None:
    episodes = multi_snake.run(RandomAgent(seed=1), seed=1, episodes=50, num_snakes=3)
    assert [episode.number for episode in episodes] == list(range(50))
    assert len({episode.seed for episode in episodes}) == 50


def test_what_was_shown_at_an_end_stays_as_it_was() -> None:
    """The next episode has new entities, so the end can be read after its start."""
    boards: list[Board] = []

    class Keeper(ScriptedAgent):
        def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
            super().game_over(obs, truncated=truncated)
            assert obs is not None
            boards.append(Board.of(obs))

    keeper = Keeper(lambda obs: [Move.UP] * 2, episodes=5)
    play(keeper, seed=1)
    assert [Board.of(end.obs) for end in keeper.ends] == boards


def test_max_step_cuts() -> None:
    episodes = multi_snake.run(RandomAgent(seed=1), episodes=20, max_step=1, num_snakes=1)
    assert {episode.length for episode in episodes} == {1}
    assert any(episode.truncated for episode in episodes)
    assert any(episode.terminated for episode in episodes), "a wall counts, even on the last step"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_snakes": 0}, "at least 1"),
        ({"max_step": 0}, "at least 1"),
        ({"max_snake_length": 1}, "max_snake_length 2"),
        ({"board_size": 0}, "too small"),
        ({"board_size": 4}, "board_size of 4 is too small .*: 24 cells"),
    ],
)
def test_settings_that_cannot_be_played_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        multi_snake.with_settings(**changes).run(RandomAgent(seed=1))


def test_the_smallest_board_is_enough() -> None:
    for seed in range(20):
        referee(seed, num_snakes=2, greed=1.0, board_size=4, max_snake_length=7)
