"""The rules of snake."""

from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, UsageError
from entity_env.agents import RandomAgent
from entity_env.games import snake
from entity_env.games.snake import Move, play
from tests.helpers.scripted_agent import ScriptedAgent

Cell = tuple[int, int]


@dataclass(frozen=True)
class Board:
    """Content of one observation."""

    score: float
    head: Cell
    body: tuple[Cell, ...]
    food: tuple[Cell, ...]

    @classmethod
    def of(cls, obs: Obs) -> "Board":
        [head], body, food = (tuple((e.x, e.y) for e in group) for group in obs.groups)
        return cls(obs.score, head, body, food)

    def ahead(self, move: Move) -> Cell:
        return self.head[0] + move.dx, self.head[1] + move.dy


class Player(ScriptedAgent):
    """Follows `choose` and records all boards and moves."""

    def __init__(self, moves: list[Move | None], board_size: int) -> None:
        super().__init__(self._choose)
        self.boards: list[Board] = []
        self.moves: list[Move] = []
        self._wanted = moves
        self._board_size = board_size

    def _choose(self, obs: Obs) -> Move:
        board = Board.of(obs)
        wanted = self._wanted[len(self.moves)] if len(self.moves) < len(self._wanted) else None
        move = around(board.head, self._board_size) if wanted is None else wanted
        self.boards.append(board)
        self.moves.append(move)
        return move

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        super().game_over(obs, truncated=truncated)
        assert obs is not None
        self.boards.append(Board.of(obs))


def around(head: Cell, board_size: int) -> Move:
    """The next move of a tour through all cells of a board with even size."""
    x, y = head
    if x == 0:
        return Move.DOWN if y > 0 else Move.RIGHT
    if y % 2 == 0:
        return Move.RIGHT if x < board_size - 1 else Move.UP
    return Move.LEFT if x > 1 or y == board_size - 1 else Move.UP


def toward_food(obs: Obs) -> Move:
    board = Board.of(obs)
    (x, y), (food_x, food_y) = board.head, board.food[0]
    if x != food_x:
        return Move.RIGHT if x < food_x else Move.LEFT
    return Move.UP if y < food_y else Move.DOWN


def check_step(before: Board, move: Move, after: Board) -> None:
    """Checks one move that did not end the game against the rules."""
    assert after.head == before.ahead(move)
    if after.head in before.food:
        assert after.score == before.score + 1
        assert set(after.body) == {before.head, *before.body}
    else:
        assert after.score == before.score
        assert after.food == before.food
        assert set(after.body) == {before.head, *before.body[1:]} - (
            set() if before.body else {before.head}
        )


def check_board(board: Board, board_size: int) -> None:
    cells = [board.head, *board.body, *board.food]
    assert len(set(cells)) == len(cells), "nothing shares a cell"
    assert all(0 <= x < board_size and 0 <= y < board_size for x, y in cells)
    assert board.score == len(board.body), "the snake grows by what it eats"


@given(
    seed=st.integers(0, 2**63 - 1),
    board_size=st.sampled_from([2, 4, 6]),
    moves=st.lists(st.one_of(st.none(), st.sampled_from(Move)), max_size=60),
)
def test_every_step_follows_the_rules(seed: int, board_size: int, moves: list[Move | None]) -> None:
    player = Player(moves, board_size)
    play(player, seed=seed, board_size=board_size)
    last = player.boards[-1]
    crashed = not player.end.truncated and bool(last.food)
    for board in player.boards:
        check_board(board, board_size)
    survived = len(player.moves) - crashed
    for i in range(survived):
        check_step(player.boards[i], player.moves[i], player.boards[i + 1])
    if crashed:
        assert last == player.boards[-2]
        x, y = cell = last.ahead(player.moves[-1])
        is_outside = not (0 <= x < board_size and 0 <= y < board_size)
        assert is_outside or cell in last.body[1:]


@pytest.mark.parametrize("move", Move)
@pytest.mark.parametrize("seed", range(5))
def test_walls_end_the_game(move: Move, seed: int) -> None:
    agent = ScriptedAgent(lambda obs: move)
    play(agent, seed=seed)
    assert not agent.end.truncated
    assert 1 <= agent.end.num_steps <= 10


def test_food_is_worth_one_each() -> None:
    agent = ScriptedAgent(toward_food)
    play(agent, seed=1)
    assert set(agent.end.gains) == {0, 1}
    assert sum(agent.end.gains) == agent.end.score > 0


def test_a_tour_fills_the_board() -> None:
    player = Player([], board_size=6)
    play(player, seed=2, board_size=6)
    assert player.end.score == 35
    assert not player.end.truncated
    assert player.boards[-1].food == ()


@pytest.mark.parametrize(("num_segments", "survives"), [(3, True), (4, False)])
def test_only_the_cell_that_the_end_leaves_is_free(num_segments: int, survives: bool) -> None:
    """A circle of four steps returns to the cell of the fourth segment, not the third."""
    for seed in range(100):
        moves = circle_after(num_segments, seed)
        if moves is None:
            continue
        player = Player(moves, board_size=6)
        play(player, seed=seed, board_size=6)
        assert (len(player.moves) > len(moves)) == survives
        return
    pytest.fail("no seed gives room for a circle")


def circle_after(num_segments: int, seed: int) -> list[Move | None] | None:
    """Moves that grow the snake, then circle; None unless it is straight and has room."""
    tour = Player([], board_size=6)
    play(tour, seed=seed, board_size=6)
    start = next(i for i, board in enumerate(tour.boards) if board.score == num_segments)
    board = tour.boards[start]
    x, y = board.head
    corner = {(x, y + 1), (x - 1, y + 1), (x - 1, y)}
    is_straight = set(board.body) == {(x - i - 1, y) for i in range(num_segments)}
    if y != 2 or not is_straight or corner & set(board.food):
        return None
    return [*tour.moves[:start], Move.UP, Move.LEFT, Move.DOWN, Move.RIGHT]


@pytest.mark.parametrize("board_size", [4, 5])
def test_an_episode_without_food_is_cut(board_size: int) -> None:
    agent = ScriptedAgent(lambda obs: back_and_forth(Board.of(obs), board_size))
    play(agent, seed=3, board_size=board_size)
    assert agent.end.truncated
    assert agent.end.score == 0
    assert agent.end.num_steps == board_size**2
    assert Board.of(agent.end.obs).food, "the state still has a value, so it is shown"


def back_and_forth(board: Board, board_size: int) -> Move:
    """Stays on two cells without food."""
    x, y = board.head
    move = Move.RIGHT if x % 2 == 0 else Move.LEFT
    if not 0 <= x + move.dx < board_size or board.ahead(move) in board.food:
        return Move.UP if y % 2 == 0 else Move.DOWN
    return move


def test_food_takes_the_count_back() -> None:
    size = 6
    player = Player([], board_size=size)
    play(player, seed=4, board_size=size)
    assert player.end.num_steps > size**2, "a tour finds food in time, again and again"


def test_the_board_can_be_set() -> None:
    games = [snake.with_settings(board_size=2), snake.with_settings(board_size="2")]
    for game in games:
        episodes = game.run(RandomAgent(seed=1), episodes=10)
        assert max(episode.reward for episode in episodes) <= 3


@pytest.mark.parametrize("board_size", [1, 0, -3])
def test_a_board_without_room_is_refused(board_size: int) -> None:
    with pytest.raises(UsageError, match=f"at least 2, got {board_size}"):
        play(ScriptedAgent(lambda obs: None), seed=0, board_size=board_size)
