"""Games move by move: recorded games, illegal moves, draws, and ends not covered by the rules."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import SchemaError, UsageError
from entity_env.games.azul import (
    Action,
    ActionEncoder,
    FastGame,
    GameState,
    IllegalAction,
    Phase,
    RandomSource,
    apply_action,
    apply_in_place,
    legal_actions,
    new_game,
    winners,
)
from entity_env.games.azul.engine.rules import FLOOR_COSTS, NOBODY
from entity_env.games.azul.engine.state import is_table_empty
from entity_env.games.azul.kernels.engine import rows_of, tile_walls_packed
from tests.games.azul.recorded_games import (
    DATA,
    POLICIES,
    SEEDS,
    WHOLE,
    Recorded,
    blocked,
    board,
    count_tiles,
    play_on,
    position,
    recorded_draw,
    recorded_games,
    states,
    take,
)

GAMES = recorded_games(DATA)


def mask_of(state: GameState) -> int:
    return sum(1 << ActionEncoder.encode(action) for action in legal_actions(state))


def lines_of(state: GameState) -> list[str]:
    return [
        "".join(
            f"{colour}{count}" if count else "-0"
            for colour, count in zip(player.line_colours, player.line_counts, strict=True)
        )
        for player in state.players
    ]


# --------------------------------------------------------------------------- recorded games


def replay(game: Recorded) -> None:
    """Plays a recorded game, also by ids, and compares everything with the record."""
    players, start = game["players"], game["start"]
    state = new_game(players, starting_player=start, draw=recorded_draw(game))
    fast = FastGame(players, starting_player=start, draw=recorded_draw(game))
    rounds = iter(game["rounds"])
    this_round = next(rounds)
    compare_deal(state, this_round)
    for i, fields in enumerate(game["moves"]):
        mover = state.current_player
        assert mover == int(game["player"][i])
        assert mask_of(state) == int(game["legal"][i], 16)
        assert fast == state
        fast.play(ActionEncoder.encode(Action(*fields)))
        before, after = state, apply_action(state, Action(*fields))
        take(before, Action(*fields))
        assert before.players[mover].floor == tuple(map(int, game["floor"][i]))
        if is_table_empty(before):
            assert i + 1 == this_round["moves"]
            compare_tiling(before, this_round)
            this_round = next(rounds, this_round)
            if after.end is None:
                compare_deal(after, this_round)
        state = after
    assert fast == state
    compare_end(state, game)


def compare_deal(state: GameState, recorded: Recorded) -> None:
    assert state.current_player == state.starting_player == recorded["start"]
    assert state.marker == NOBODY
    deal = [[tiles.count(str(colour)) for colour in range(5)] for tiles in recorded["deal"]]
    assert state.factories == tuple(map(tuple, deal))
    assert list(state.bag) == recorded["bag"]
    assert list(state.lid) == recorded["lid"]


def compare_tiling(state: GameState, recorded: Recorded) -> None:
    assert [len(player.floor) for player in state.players] == recorded["floor_len"]
    assert [FLOOR_COSTS[len(player.floor)] for player in state.players] == recorded["loss"]
    gains = zip(state.scores, recorded["gain"], recorded["loss"], strict=True)
    assert [max(0, before + gain - loss) for before, gain, loss in gains] == recorded["scores"]
    tile_walls_packed(state.words)
    assert state.scores == recorded["scores"]
    assert [player.wall for player in state.players] == recorded["walls"]
    assert lines_of(state) == recorded["lines"]
    assert state.marker == recorded["marker"]


def compare_end(state: GameState, game: Recorded) -> None:
    last = game["rounds"][-1]
    assert state.phase is Phase.GameOver
    assert state.is_over
    assert state.end == game["end"]
    assert list(state.bag) == last["bag_end"]
    assert list(state.lid) == last["lid_end"]
    assert [rows_of(player.wall) for player in state.players] == [each[0] for each in game["bonus"]]
    assert state.scores == game["final"]
    assert winners(state) == game["winners"]
    assert state.current_player == int(game["player"][-1]), "the last move passes no turn on"
    assert legal_actions(state) == []


@pytest.mark.parametrize("game", GAMES, ids=[game["id"] for game in GAMES])
def test_a_recorded_game(game: Recorded) -> None:
    replay(game)


def test_the_recorded_games_have_every_special_case() -> None:
    tags = {(tag, game["players"]) for game in GAMES for tag in game["tags"]}
    everywhere = ["refill_mid_deal", "floor_overflow", "marker_full_floor", "column_bonus"]
    assert {(tag, players) for tag in everywhere for players in (2, 3, 4)} <= tags
    assert {tag for tag, _ in tags} >= {"tiles_ran_out", "marker_never_taken", "shared_win"}


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE.exists(), reason="the whole set of recorded games is not here")
def test_the_whole_set_of_recorded_games() -> None:
    games = recorded_games(WHOLE)
    assert len(games) == 240
    for game in games:
        replay(game)


# --------------------------------------------------------------------------- refusals


@given(state=states(), action_id=st.integers(0, 299))
def test_whatever_is_not_legal_is_refused(state: GameState, action_id: int) -> None:
    action = ActionEncoder.decode(action_id)
    if action in legal_actions(state):
        return
    before = state.copy()
    for apply in (apply_action, apply_in_place):
        with pytest.raises(IllegalAction, match=f"may not take {action}: "):
            apply(state, action)
        assert state == before


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Action(7, 0, 0), "2 players have factories 0 to 4"),
        (Action(5, 0, 0), "2 players have factories 0 to 4"),
        (Action(9, 0, 0), "there is none"),
        (Action(1, 0, 5), "there is none"),
        (Action(0, 1, 0), "the line is full"),
        (Action(0, 0, 1), "the line has another color"),
        (Action(0, 1, 2), "that row of the wall has the color"),
    ],
)
def test_a_refusal_gives_a_reason(action: Action, reason: str) -> None:
    mine = board(lines=[(1, 1), (2, 1)], wall=[(2, 1)])
    state = position([mine, board()], factories=[(1, 3, 0, 0, 0)])
    with pytest.raises(IllegalAction, match=f"player 0 may not take {action}: {reason}"):
        apply_action(state, action)


@pytest.mark.parametrize("apply", [apply_action, apply_in_place])
@pytest.mark.parametrize(
    "wrong",
    [
        (0, 0, 2.0),
        (0.0, 0, 2),
        (0, 0.0, 2),
        (False, 0, 2),
        (0, 0),
        (0, 0, float("nan")),
        (0, 0, "2"),
        None,
        2,
    ],
)
def test_what_is_no_action_changes_nothing(apply: Callable[..., object], wrong: object) -> None:
    """Even if it equals a legal action: 2.0 == 2, but there is no line 2.0."""
    state = position([board(), board()], factories=[(1, 3, 0, 0, 0)])
    before = state.copy()
    with pytest.raises(SchemaError, match=r"Azul: .* action must be"):
        apply(state, wrong)
    assert state == before


def test_fields_may_be_integers_of_numpy() -> None:
    state = position([board(), board()], factories=[(1, 3, 0, 0, 0)])
    action: Any = Action(*np.array([0, 1, 2], np.int8))
    after = apply_action(state, action)
    assert after == apply_action(state, Action(0, 1, 2))
    assert after.players[0].line_counts == (0, 0, 3, 0, 0)
    json.dumps(after.to_dict())


@given(state=states(), seed=SEEDS)
def test_the_pure_way_and_the_way_in_place_agree(state: GameState, seed: int) -> None:
    before = state.copy()
    for action in legal_actions(state)[:: max(1, len(legal_actions(state)) // 4)]:
        state.rng = np.random.default_rng(seed)
        after = apply_action(state, action)
        assert state == before, "the pure way changes nothing"
        assert after != before
        in_place = state.copy()
        in_place.rng = np.random.default_rng(seed)
        apply_in_place(in_place, action)
        assert in_place == after


# --------------------------------------------------------------------------- deals


def test_a_draw_is_asked_tile_by_tile_with_the_bag() -> None:
    bags: list[tuple[int, ...]] = []

    def draw(bag: Sequence[int]) -> int:
        bags.append(tuple(bag))
        return len(bags) % 5

    state = new_game(2, draw=draw)
    assert len(bags) == 20
    assert bags[:3] == [(20,) * 5, (20, 19, 20, 20, 20), (20, 19, 19, 20, 20)]
    assert state.factories[0] == (0, 1, 1, 1, 1)
    assert state.factories[1] == (1, 1, 1, 1, 0)


@pytest.mark.parametrize("answer", [5, -1, 1.0, None, True, "0"])
def test_a_draw_that_answers_nonsense(answer: int) -> None:
    with pytest.raises(SchemaError, match="draw must return a color that is in the bag"):
        new_game(2, draw=lambda bag: answer)


def test_a_draw_from_an_empty_colour_changes_nothing_in_the_pure_way() -> None:
    state = position([board(), board()], centre=(1, 0, 0, 0, 0), lid=(19, 0, 0, 0, 0))
    state.draw = lambda bag: 0
    before = state.copy()
    with pytest.raises(SchemaError, match=r"got 0, the bag has \(0, 20, 20, 20, 20\) of each"):
        apply_action(state, Action(9, 0, 5))
    assert state == before


def test_a_draw_may_answer_with_integers_of_numpy() -> None:
    state = new_game(2, draw=lambda bag: np.int64(np.argmax(bag)))  # type: ignore[arg-type, return-value]
    assert all(type(count) is int for tiles in state.factories for count in tiles)


@pytest.mark.parametrize("num_players", [1, 5, 0, -2, 2.0, True, None])
def test_players_that_cannot_be(num_players: int) -> None:
    with pytest.raises(UsageError, match="num_players must be 2, 3 or 4, got"):
        new_game(num_players)


@pytest.mark.parametrize("starting_player", [2, -1, 0.0, True, None])
def test_a_starting_player_that_cannot_be(starting_player: int) -> None:
    with pytest.raises(UsageError, match="starting_player must be an integer from 0 to 1: got"):
        new_game(2, starting_player=starting_player)


@pytest.mark.parametrize("rng", [random.Random(1), 7])
def test_a_source_of_numbers_that_cannot_be(rng: RandomSource) -> None:
    for make in (new_game, FastGame):
        with pytest.raises(UsageError, match=r"rng must be a numpy\.random\.Generator"):
            make(2, rng=rng)


class Short:
    """A source that returns too few numbers."""

    def random(self, size: int, /) -> NDArray[np.float64]:
        return np.zeros(size - 1)


def test_a_source_that_answers_too_little() -> None:
    for make in (new_game, FastGame):
        with pytest.raises(SchemaError, match=r"Short.random\(20\) must return an array of that"):
            make(2, rng=Short())


def test_without_a_source_of_numbers_every_game_is_another() -> None:
    assert len({new_game(2) for _ in range(5)}) == 5


def test_a_game_follows_from_its_source_of_numbers() -> None:
    for seed in range(3):
        games = [new_game(4, rng=np.random.default_rng(seed)) for _ in range(2)]
        for state in games:
            for _ in play_on(state, POLICIES[0], random.Random(seed)):
                pass
        assert games[0] == games[1]


def test_the_lid_goes_into_the_bag_when_a_draw_needs_it() -> None:
    bags: list[tuple[int, ...]] = []

    def draw(bag: Sequence[int]) -> int:
        bags.append(tuple(bag))
        return int(np.argmax(bag))

    players = [board(), board()]
    state = position(players, centre=(1, 0, 0, 0, 0), lid=(19, 20, 20, 20, 10))
    state.draw = draw
    state.lid, state.bag = [19, 20, 20, 20, 17], [0, 0, 0, 0, 3]
    apply_in_place(state, Action(9, 0, 5))
    assert bags[:3] == [(0, 0, 0, 0, 3), (0, 0, 0, 0, 2), (0, 0, 0, 0, 1)]
    assert bags[3] == (20, 20, 20, 20, 17), "the lid with the floors of the round before"
    assert state.lid == (0,) * 5
    assert state.factories[0] == (1, 0, 0, 0, 3)


# --------------------------------------------------------------------------- the end


def test_a_full_row_ends_the_game_after_all_have_tiled() -> None:
    row = [(0, colour) for colour in range(1, 5)]
    mine, other = board(lines=[(0, 1)], wall=row), board(lines=[(2, 1)], score=1)
    state = position([other, mine], centre=(0, 0, 1, 0, 0), current_player=0, marker=1)
    state = apply_action(state, Action(9, 2, 3))
    assert state.end == "row"
    assert state.scores == [1 + 1, 5 + 2]
    assert winners(state) == [1]
    assert state.factories == ((0,) * 5,) * 5, "there is no next deal"
    assert state.marker == 1
    with pytest.raises(IllegalAction, match=r"the game is over \(row\)"):
        apply_action(state, Action(9, 2, 3))


@pytest.mark.parametrize(("fours_left", "end"), [(True, "no_progress"), (False, "no_tiles")])
def test_a_game_in_which_no_wall_can_ever_change_is_over(fours_left: bool, end: str) -> None:
    state = blocked(fours_left)
    state = apply_action(state, Action(9, 4, 5 if fours_left else 2))
    assert state.end == end
    assert state.phase is Phase.GameOver
    cost = 2 if fours_left else 1
    before = 3 if fours_left else 0
    assert state.scores == [before + 30] * 3 + [max(0, before - cost) + 30]
    assert winners(state) == ([0, 1, 2] if fours_left else [0, 1, 2, 3])
    assert state.current_player == 3
    assert state.marker == 3


def test_a_game_goes_on_as_long_as_one_colour_fits_one_line_of_one_player() -> None:
    state = blocked(fours_left=True)
    state.players[2].set_line(1, -1, 0)
    state.lid = (*state.lid[:3], state.lid[3] + 1, state.lid[4])
    assert count_tiles(state) == [20] * 5
    assert apply_action(state, Action(9, 4, 5)).end is None
