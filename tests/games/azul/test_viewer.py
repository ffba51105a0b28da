"""The drawn table, and moves as typed by people."""

import io
import re

import pytest
from hypothesis import given, settings, strategies as st

from entity_env import UsageError
from entity_env.games.azul import (
    ACTIONS,
    ActionEncoder,
    GameState,
    InvalidActionId,
    describe_end,
    describe_move,
    draw_state,
    has_colours,
    legal_actions,
    legal_moves,
    read_move,
    winners,
)
from tests.games.azul.recorded_games import board, position, states

STYLED = re.compile(r"\x1b\[[0-9;]*m")


@settings(max_examples=40, deadline=None)
@given(state=states(), seat=st.integers(0, 3))
def test_colours_change_nothing_but_colours(state: GameState, seat: int) -> None:
    viewpoint = seat % state.num_players
    plain = draw_state(state, colours=False, viewpoint=viewpoint)
    painted = draw_state(state, colours=True, viewpoint=viewpoint)
    assert "\x1b" not in plain
    assert [line.rstrip() for line in STYLED.sub("", painted).split("\n")] == plain.split("\n")
    assert all(len(line) <= 79 for line in plain.split("\n"))


@settings(max_examples=40, deadline=None)
@given(state=states())
def test_everything_is_there(state: GameState) -> None:
    text = draw_state(state, colours=False)
    for i, player in enumerate(state.players):
        assert f"Player {i + 1}: {player.score} points" in text
    walls = sum(player.wall.bit_count() for player in state.players)
    lines = sum(sum(player.line_counts) for player in state.players)
    rows = [cell for line in text.split("\n") for cell in _boards(line)]
    assert sum(map(str.isupper, "".join(rows))) == walls + lines
    assert sum(map(str.islower, "".join(rows))) == 25 * state.num_players - walls
    if state.is_over:
        best = [f"Player {player + 1}" for player in winners(state)]
        assert ("wins" if len(best) == 1 else " and ".join(best)) in text
    else:
        assert f"round {state.round}: Player {state.current_player + 1} to take" in text


def _boards(line: str) -> list[str]:
    """The drawing of lines and walls."""
    halves = line.split("|")
    return [half for half in halves if re.match(r"^\s+[1-5] [ .BYRKW]{9}  ", half)]


def test_a_position_made_by_hand() -> None:
    mine = board(score=12, lines=[(0, 1), (0, 0), (2, 2)], wall=[(0, 4), (4, 0)], floor=[5, 3])
    state = position([mine, board()], factories=[(2, 0, 1, 0, 1)], centre=(0, 3, 0, 0, 0), marker=0)
    lines = draw_state(state, colours=False).split("\n")
    assert lines[2] == "Factories   1 BBRW   2 ----   3 ----   4 ----   5 ----"
    assert lines[3] == "Center      Y 3"
    left = [line.split("|")[0].rstrip() for line in lines[6:]]
    assert left == [
        "> Player 1: 12 points, starts next",
        "      1         B   b y r k W",
        "      2       . .   w b y r k",
        "      3     . R R   k w b y r",
        "      4   . . . .   r k w b y",
        "      5 . . . . .   y r k w B",
        "  Floor 1 K . . . . .",
        "        1 1 2 2 2 3 3",
    ]
    turned = draw_state(state, colours=False, viewpoint=1).split("\n")
    assert turned[6].startswith("  Player 2: 0 points ")
    with pytest.raises(UsageError, match="viewpoint must be from 0 to 1, got 2"):
        draw_state(state, colours=False, viewpoint=2)


def test_players_may_have_names() -> None:
    mine = board(score=134)
    state = position([mine, board(), board()], centre=(1, 0, 0, 0, 0), marker=0, current_player=1)
    text = draw_state(state, colours=False, names=["a-checkpoint-with-a-long-name", "you", "rush"])
    lines = text.split("\n")
    assert lines[0] == "Azul, round 1: you to take tiles"
    assert "  a-check..: 134 points, starts next  |  > you: 0 points" in lines
    assert all(len(line) < 80 for line in lines)
    assert "  rush: 0 points" in lines
    with pytest.raises(UsageError, match="draw_state: 3 players, got 2 names"):
        draw_state(state, colours=False, names=["a", "b"])


@settings(max_examples=20, deadline=None)
@given(state=states(), width=st.integers(20, 200))
def test_boards_lie_side_by_side_as_they_fit(state: GameState, width: int) -> None:
    lines = draw_state(state, colours=False, width=width).split("\n")
    assert max(map(len, lines)) < max(width, 80)
    titles = [line for line in lines if "Player 1: " in line and "points" in line]
    side_by_side = titles[0].count("|") + 1
    assert side_by_side == min(state.num_players, max(2, (width + 4) // 41))


def test_who_is_told_to_start_next_has_a_next_round() -> None:
    ended = position([board(), board()], marker=0)
    ended.end = "row"
    text = draw_state(ended, colours=False)
    assert "starts next" not in text
    assert "over after round 1 (a row is full): Player 1 and Player 2 share" in text
    assert describe_end("no_tiles") == "there are no tiles left"
    assert legal_moves(ended) == []


def test_what_is_legal_is_listed_by_source() -> None:
    mine = board(lines=[(0, 0), (0, 2), (1, 1)], wall=[(0, 0)])
    state = position([mine, board()], factories=[(2, 0, 1, 0, 1)], centre=(0, 3, 0, 0, 0))
    assert legal_moves(state) == [
        "     1  B 4 5   R 1 4 5   W 1 4 5",
        "center  Y 1 3 4 5",
        " floor  takes all of these",
    ]


@settings(max_examples=30, deadline=None)
@given(state=states(max_moves=80))
def test_every_legal_move_can_be_written(state: GameState) -> None:
    for action in legal_actions(state)[::3]:
        action_id = ActionEncoder.encode(action)
        source = "centre" if action.source == 9 else str(action.source + 1)
        place = "floor" if action.destination == 5 else str(action.destination + 1)
        name = ("blue", "yellow", "red", "black", "white")[action.colour]
        letter = "BYRKW"[action.colour]
        assert read_move(f"{source} {name} {place}", state) == action_id
        assert read_move(f" {source[:1]},{letter} {place[:1]} ", state) == action_id
        assert read_move(describe_move_as_typed(source, name, place), state) == action_id


def describe_move_as_typed(source: str, name: str, place: str) -> str:
    where = source if source == "centre" else f"Factory {source}"
    return f"{where} {name} to {place if place == 'floor' else f'line {place}'}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write source, color and place"),
        ("1 red", "write source, color and place"),
        ("6 red 1", "there are factories 1 to 5, and the center: got 6"),
        ("0 red 1", "factories 1 to 5"),
        ("1 bl 1", "colors are blue, yellow"),
        ("1 green 1", "got 'green'"),
        ("1 red 6", "there are lines 1 to 5, and the floor: got 6"),
        ("2 red 1", "red from factory 2 to line 1: there is none"),
        ("1 red 3", "red from factory 1 to line 3: the line has another color"),
        ("1 blue 1", "blue from factory 1 to line 1: that row of the wall has the color"),
        ("1 blue 2", "blue from factory 1 to line 2: the line is full"),
    ],
)
def test_what_is_no_legal_move_is_explained(text: str, message: str) -> None:
    mine = board(lines=[(0, 0), (0, 2), (1, 1)], wall=[(0, 0)])
    state = position([mine, board()], factories=[(2, 0, 1, 0, 1)])
    with pytest.raises(UsageError, match=message):
        read_move(text, state)


def test_moves_in_words() -> None:
    assert describe_move(0) == "blue from factory 1 to line 1"
    assert describe_move(299) == "white from the center to the floor"
    assert len({describe_move(i) for i in range(len(ACTIONS))}) == 300
    with pytest.raises(InvalidActionId):
        describe_move(300)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_where_the_terminal_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert has_colours(Terminal())
    assert not has_colours(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    assert not has_colours(Terminal())
