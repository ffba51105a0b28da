"""Azul: recorded games, reachable positions, and positions made by hand."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from hypothesis import strategies as st

from entity_env import Observation
from entity_env.authoring.to_observation import to_observation
from entity_env.games.azul import (
    Action,
    GameState,
    Player,
    apply_in_place,
    azul,
    batch,
    legal_actions,
    new_game,
    single_game,
)
from entity_env.games.azul.engine.rules import NOBODY
from entity_env.games.azul.entities import options_of
from entity_env.games.azul.game import observe
from entity_env.games.azul.kernels import kernel
from entity_env.games.azul.kernels.engine import take_packed
from entity_env.games.azul.kernels.heuristics import move_value, write_worths
from entity_env.games.azul.kernels.packed_state import NUM_WORDS
from tests import DATA as DATA_ROOT, ROOT

DATA: Final = DATA_ROOT / "azul"
# The complete set, of which DATA has a part, if it is next to the repository.
WHOLE: Final = ROOT.parent / "shared" / "data" / "azul"

Recorded: TypeAlias = dict[str, Any]
Policy: TypeAlias = Callable[[GameState, list[Action], random.Random], Action]


def recorded_games(path: Path = DATA) -> list[Recorded]:
    """The recorded games; `tests/data/azul/README.md` describes the format."""
    with gzip.open(path / "games.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def tables() -> dict[str, list[list[int]]]:
    """The recorded tables."""
    with gzip.open(DATA / "tables.json.gz", "rt") as text:
        loaded: dict[str, list[list[int]]] = json.load(text)
    return loaded


def recorded_draw(game: Recorded) -> Callable[[Sequence[int]], int]:
    """Repeats a recorded draw, and checks that it is possible."""
    tiles = iter(map(int, game["draws"]))

    def draw(bag: Sequence[int]) -> int:
        tile = next(tiles)
        assert bag[tile] > 0
        return tile

    return draw


# --------------------------------------------------------------------------- random play


def uniform(state: GameState, actions: list[Action], rng: random.Random) -> Action:
    return rng.choice(actions)


def to_lines(state: GameState, actions: list[Action], rng: random.Random) -> Action:
    """Takes tiles to a line if possible: walls fill, and rounds give points."""
    return rng.choice([action for action in actions if action.destination < 5] or actions)


def to_floor(state: GameState, actions: list[Action], rng: random.Random) -> Action:
    """Mostly takes tiles to the floor: floors overflow, and the bag is refilled often."""
    floors = [action for action in actions if action.destination == 5]
    return rng.choice(actions if rng.random() < 0.2 else floors)


def from_centre(state: GameState, actions: list[Action], rng: random.Random) -> Action:
    return rng.choice([action for action in actions if action.source == 9] or actions)


def hoarding(state: GameState, actions: list[Action], rng: random.Random) -> Action:
    """Avoids completing lines: boards fill, and tiles run short."""
    player = state.players[state.current_player]

    def is_open(action: Action) -> bool:
        _, colour, row = action
        counts = state.centre if action.source == 9 else state.factories[action.source]
        return row < 5 and player.line_counts[row] + counts[colour] <= row

    return rng.choice(list(filter(is_open, actions)) or actions)


POLICIES: Final[tuple[Policy, ...]] = (uniform, to_lines, to_floor, from_centre, hoarding)


def play_on(
    state: GameState, policy: Policy, rng: random.Random, limit: int = 2000
) -> Iterator[tuple[GameState, list[Action], Action]]:
    """Plays in place; yields state, legal actions and chosen action before each move."""
    for _ in range(limit):
        actions = legal_actions(state)
        if not actions:
            return
        action = policy(state, actions, rng)
        yield state, actions, action
        apply_in_place(state, action, check=False)


def reached(seed: int, num_players: int, num_moves: int, policy: Policy) -> GameState:
    """A position reached by random play; `num_moves` may exceed the length of the game."""
    rng = random.Random(seed)
    state = new_game(
        num_players,
        starting_player=seed % num_players,
        rng=np.random.default_rng(seed),
    )
    for _ in play_on(state, policy, rng, num_moves):
        pass
    return state


SEEDS: Final = st.integers(0, 2**32 - 1)
NUM_PLAYERS: Final = st.sampled_from((2, 3, 4))


def states(min_moves: int = 0, max_moves: int = 160) -> st.SearchStrategy[GameState]:
    """Positions reached by random play, some of them after the end."""
    moves = st.integers(min_moves, max_moves)
    return st.builds(reached, SEEDS, NUM_PLAYERS, moves, st.sampled_from(POLICIES))


def observation_of(state: GameState, player: int) -> Observation:
    """A player's observation in `azul`: at the end, or with the options of the current player."""
    obs, schema = observe(state, player), azul.schema
    if state.is_over:
        return to_observation(obs, (), schema, reward=0.0, terminated=True)
    if player == state.current_player:
        obs = obs.entities(options_of(state))
    return to_observation(obs, list(schema.actions.values()), schema, reward=0.0)


# --------------------------------------------------------------------------- made by hand


def board(
    *,
    score: int = 0,
    lines: Sequence[tuple[int, int]] = (),
    wall: Sequence[tuple[int, int]] = (),
    floor: Sequence[int] = (),
) -> Player:
    """A board: `lines` from the top (color, count), `wall` as (row, color)."""
    player = Player()
    player.score = score
    for row, (colour, count) in enumerate(lines):
        player.set_line(row, colour, count)
    player.wall = sum(1 << 5 * row + (row + colour) % 5 for row, colour in wall)
    player.floor = list(floor)
    return player


def position(
    players: Sequence[Player],
    *,
    centre: Sequence[int] = (0, 0, 0, 0, 0),
    factories: Sequence[Sequence[int]] = (),
    lid: Sequence[int] = (0, 0, 0, 0, 0),
    marker: int = NOBODY,
    current_player: int = 0,
) -> GameState:
    """A position with all other tiles in the bag."""
    state = GameState([0] * NUM_WORDS, np.random.default_rng(0))
    state.num_players = len(players)
    state.current_player = current_player
    state.starting_player = 0
    state.marker = marker
    state.round = 1
    state.factories = factories
    state.centre, state.lid, state.players = centre, lid, players
    state.bag = [20 - count for count in count_tiles(state)]
    assert min(state.bag) >= 0
    return state


def take(state: GameState, action: tuple[int, int, int]) -> None:
    """A move without its consequences: the turn does not pass, and the round does not end."""
    source, colour, destination = action
    take_packed(state.words, source, 6 * colour + destination)


def move_values(state: GameState, actions: Sequence[Action], idea: int) -> list[int]:
    """Values of the legal moves according to a heuristic."""
    worths = [0] * 30
    write_worths(state.words, idea, worths)
    return [move_value(state.words, a.source, 6 * a.colour + a[2], worths) for a in actions]


@contextmanager
def interpreted() -> Iterator[None]:
    """Runs code as if numba were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (kernel, single_game, batch):
            patch.setattr(module, "has_numba", lambda: False)
        yield


def count_tiles(state: GameState) -> list[int]:
    """Number of tiles of each color, anywhere; intentionally independent of the library."""
    counts = np.array([state.bag, state.lid, state.centre, *state.factories]).sum(axis=0)
    for player in state.players:
        for colour, count in zip(player.line_colours, player.line_counts, strict=True):
            counts[colour] += count
        for tile in player.floor:
            if tile < 5:
                counts[tile] += 1
        for cell in range(25):
            row, column = divmod(cell, 5)
            counts[(column - row) % 5] += player.wall >> cell & 1
    return [int(count) for count in counts]


def blocked(fours_left: bool) -> GameState:
    """Four players and one tile on the table, after which no wall can ever change again.

    Every row of every wall has blue, yellow and red, the first also white; all black tiles are on
    lines. With `fours_left`, sixteen white tiles are left, which fit nowhere; otherwise they are on
    lines, too, and there is nothing left to deal.
    """
    wall = [(row, colour) for row in range(5) for colour in (0, 1, 2)] + [(0, 4)]
    threes, none = [(0, 0), (3, 1), (3, 1), (3, 1), (3, 2)], (0, 0)
    if fours_left:
        players = [board(score=3, lines=threes, wall=wall) for _ in range(4)]
        return position(players, centre=(0, 0, 0, 0, 1), current_player=3)
    full = [(0, 0), (3, 1), (3, 2), (3, 3), (3, 4)]
    white = [(0, 0), (4, 1), (4, 2), (4, 3), (4, 4)]
    players = [
        board(lines=full, wall=wall),
        board(lines=full, wall=wall),
        board(lines=white, wall=wall),
        board(lines=[none, (4, 1), (4, 1), (4, 3), none], wall=wall),
    ]
    return position(players, centre=(0, 0, 0, 0, 1), current_player=3)
