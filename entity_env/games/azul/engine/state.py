"""GameState: a position as counts, all known to all players; to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NoReturn, TypeAlias

from entity_env.core.validation import checked_index, is_index, is_integer
from entity_env.errors import SchemaError, shown
from entity_env.games.azul.engine.rules import (
    COLOURS,
    FLOOR_SLOTS,
    MARKER,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NO_COLOUR,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    TILES_PER_COLOUR,
    TILES_PER_FACTORY,
    column_of,
    num_factories,
)
from entity_env.games.azul.engine.tile_draws import (
    Draw,
    RandomSource,
    checked_rng,
)

End: TypeAlias = Literal["row", "no_progress", "no_tiles"]
"""Why a game is over. `row`: a row of a wall is full. `no_progress`: no colour of bag
and lid fits any line of any player, so that no wall would ever change again. `no_tiles`: the same,
with nothing left to deal."""

ENDS: Final[tuple[End, ...]] = ("row", "no_progress", "no_tiles")
"""Why a game can end."""


class Phase(Enum):
    """What happens next."""

    FactoryOffer = "FactoryOffer"
    """A player takes tiles."""
    GameOver = "GameOver"
    """Nothing: the scores are final."""


class Player:
    """The board of one player.

    Attributes:
        score: points so far, never negative.
        line_colours: colour of each pattern line, -1 where it is empty.
        line_counts: tiles on each pattern line; line i has room for i + 1.
        wall: 25 bits, cell `5 * row + column`.
        floor: what lies on the floor from left to right, at most 7: colours, and 5 for the marker.
    """

    __slots__ = ("floor", "line_colours", "line_counts", "score", "wall")

    def __init__(self) -> None:
        self.score = 0
        self.line_colours = [NO_COLOUR] * NUM_LINES
        self.line_counts = [0] * NUM_LINES
        self.wall = 0
        self.floor: list[int] = []

    def copy(self) -> Player:
        """An independent copy."""
        other = Player.__new__(Player)
        other.score = self.score
        other.line_colours = self.line_colours[:]
        other.line_counts = self.line_counts[:]
        other.wall = self.wall
        other.floor = self.floor[:]
        return other

    def key(self) -> tuple[object, ...]:
        """All of it, hashable."""
        lines = (*self.line_colours, *self.line_counts)
        return self.score, lines, self.wall, tuple(self.floor)

    def to_dict(self) -> dict[str, object]:
        """Plain values; see `GameState.to_dict`."""
        return {
            "score": self.score,
            "lines": [list(line) for line in zip(self.line_colours, self.line_counts, strict=True)],
            "wall": self.wall,
            "floor": self.floor[:],
        }


class GameState:
    """A position of the game, between two moves.

    Two states are equal when their positions are; the sources of the next tiles (`rng`, `draw`) do
    not count, and copies share them. `new_game` makes the first state.

    Attributes:
        num_players: 2 to 4.
        current_player: the player to move; at the end, the player of the last move.
        starting_player: the player that began this round.
        marker: the holder of the start marker, -1 while it lies in the centre.
        round: number of the round, from 1.
        end: None as long as the game goes on, and then why it is over; see `End`.
        factories: tiles of each factory by colour, `2 * num_players + 1` tuples of 5.
        centre: tiles of the centre by colour.
        bag: tiles in the bag by colour.
        lid: tiles in the lid by colour: discarded, until the bag is empty.
        players: the boards.
        rng: draws the tiles of later rounds.
        draw: draws them instead, if not None.
    """

    __slots__ = (
        "bag",
        "centre",
        "current_player",
        "draw",
        "end",
        "factories",
        "lid",
        "marker",
        "num_players",
        "players",
        "rng",
        "round",
        "starting_player",
    )

    num_players: int
    current_player: int
    starting_player: int
    marker: int
    round: int
    end: End | None
    factories: list[tuple[int, ...]]
    centre: list[int]
    bag: list[int]
    lid: list[int]
    players: list[Player]
    rng: RandomSource
    draw: Draw | None

    @property
    def phase(self) -> Phase:
        """`Phase.FactoryOffer`, or `Phase.GameOver`."""
        return Phase.FactoryOffer if self.end is None else Phase.GameOver

    @property
    def is_over(self) -> bool:
        """Whether the game is over."""
        return self.end is not None

    @property
    def starting_player_next_round(self) -> int:
        """The player that would begin the next round if this one ended now."""
        return self.starting_player if self.marker == NOBODY else self.marker

    @property
    def scores(self) -> list[int]:
        """Points of every player so far."""
        return [player.score for player in self.players]

    def copy(self) -> GameState:
        """An independent copy that draws from the same source."""
        other = GameState.__new__(GameState)
        other.num_players = self.num_players
        other.current_player = self.current_player
        other.starting_player = self.starting_player
        other.marker = self.marker
        other.round = self.round
        other.end = self.end
        other.factories = self.factories[:]
        other.centre = self.centre[:]
        other.bag = self.bag[:]
        other.lid = self.lid[:]
        other.players = [player.copy() for player in self.players]
        other.rng = self.rng
        other.draw = self.draw
        return other

    def rotated(self, player: int) -> GameState:
        """The same position with `player` in seat 0.

        Raises:
            UsageError: no such player.
        """
        player = checked_index("Azul: player", player, self.num_players)
        other = self.copy()
        other.players = other.players[player:] + other.players[:player]
        other.current_player = (self.current_player - player) % self.num_players
        other.starting_player = (self.starting_player - player) % self.num_players
        if self.marker != NOBODY:
            other.marker = (self.marker - player) % self.num_players
        return other

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, GameState) else NotImplemented

    def __hash__(self) -> int:
        """Of the position as it is now: a state in a set or a dict must not be played on."""
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"GameState(num_players={self.num_players}, round={self.round}, "
            f"current_player={self.current_player}, scores={self.scores}, end={self.end!r})"
        )

    def _key(self) -> tuple[object, ...]:
        return (
            (self.current_player, self.starting_player, self.marker, self.round, self.end),
            (*self.factories, tuple(self.centre), tuple(self.bag), tuple(self.lid)),
            tuple(player.key() for player in self.players),
        )

    def to_dict(self) -> dict[str, object]:
        """Everything but `rng` and `draw`, as numbers, strings, lists and dicts, ready for JSON.

        The keys are the attributes; a player has `score`, `lines` (a pair of colour and count each,
        -1 for no colour), `wall` and `floor`.
        """
        return {
            "num_players": self.num_players,
            "current_player": self.current_player,
            "starting_player": self.starting_player,
            "marker": self.marker,
            "round": self.round,
            "end": self.end,
            "factories": [list(tiles) for tiles in self.factories],
            "centre": self.centre[:],
            "bag": self.bag[:],
            "lid": self.lid[:],
            "players": [player.to_dict() for player in self.players],
        }

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, object],
        *,
        rng: RandomSource | None = None,
        draw: Draw | None = None,
    ) -> GameState:
        """The state of a dict from `to_dict`, also if it was JSON in between.

        Args:
            data: the dict.
            rng, draw: as for `new_game`.

        Raises:
            SchemaError: something is missing or invalid, or a colour has not 20 tiles.
            UsageError: `rng` is no source of random numbers.
        """
        return read_state(data, rng=rng, draw=draw)


def is_table_empty(state: GameState) -> bool:
    """Whether factories and centre hold no tiles: the round is over."""
    return not any(state.centre) and not any(map(any, state.factories))


def read_state(
    data: Mapping[str, object], *, rng: RandomSource | None, draw: Draw | None
) -> GameState:
    """See `GameState.from_dict`."""
    if not isinstance(data, Mapping):
        _fail("data", "must be a mapping", data)
    state = GameState()
    state.num_players = _index(data, "num_players", MIN_PLAYERS, MAX_PLAYERS)
    last = state.num_players - 1
    state.current_player = _index(data, "current_player", 0, last)
    state.starting_player = _index(data, "starting_player", 0, last)
    state.marker = _index(data, "marker", NOBODY, last)
    state.round = _index(data, "round", 1, 2**31)
    end = _value(data, "end")
    if end is not None and not (isinstance(end, str) and end in ENDS):
        _fail("end", f"must be None or one of {', '.join(ENDS)}", end)
    state.end = None if end is None else ENDS[ENDS.index(end)]
    factories = _items(data, "factories", num_factories(state.num_players))
    state.factories = [_factory(tiles, f"factories[{i}]") for i, tiles in enumerate(factories)]
    state.centre = _counts(_value(data, "centre"), "centre")
    state.bag = _counts(_value(data, "bag"), "bag")
    state.lid = _counts(_value(data, "lid"), "lid")
    players = _items(data, "players", state.num_players)
    state.players = [_player(player, f"players[{i}]") for i, player in enumerate(players)]
    state.rng = checked_rng(rng)
    state.draw = draw
    _check_tiles(state)
    return state


def _check_tiles(state: GameState) -> None:
    for colour, count in enumerate(count_tiles(state)):
        if count != TILES_PER_COLOUR:
            _fail("the state", f"must have {TILES_PER_COLOUR} {COLOURS[colour]} tiles", count)
    if is_table_empty(state) is (state.end is None):
        got = "neither" if state.end is None else "both"
        _fail("the state", "must have tiles on the table, or an end", got)
    for i, player in enumerate(state.players):
        if MARKER in player.floor and state.marker != i:
            _fail(
                f"players[{i}].floor", f"must not have the marker of player {state.marker}", MARKER
            )


def count_tiles(state: GameState) -> list[int]:
    """Tiles of each colour in all places: always 20."""
    return [_count_colour(state, colour) for colour in range(NUM_COLOURS)]


def _count_colour(state: GameState, colour: int) -> int:
    count = state.bag[colour] + state.lid[colour] + state.centre[colour]
    count += sum(tiles[colour] for tiles in state.factories)
    for player in state.players:
        lines = zip(player.line_colours, player.line_counts, strict=True)
        count += sum(number for other, number in lines if other == colour)
        count += player.floor.count(colour)
        count += sum(player.wall >> 5 * row + column_of(row, colour) & 1 for row in range(5))
    return count


def _player(data: object, where: str) -> Player:
    if not isinstance(data, Mapping):
        _fail(where, "must be a mapping", data)
    player = Player()
    player.score = _index(data, "score", 0, 2**31, where)
    player.wall = _index(data, "wall", 0, 2**25 - 1, where)
    for row, line in enumerate(_items(data, "lines", NUM_LINES, where)):
        colour, count = _pair(line, f"{where}.lines[{row}]", row)
        player.line_colours[row], player.line_counts[row] = colour, count
        if count and player.wall >> 5 * row + column_of(row, colour) & 1:
            _fail(f"{where}.lines[{row}]", "must not have a colour of its wall row", line)
    floor = _value(data, "floor", where)
    if not isinstance(floor, Sequence) or len(floor) > FLOOR_SLOTS:
        _fail(f"{where}.floor", f"must be at most {FLOOR_SLOTS} tiles", floor)
    if not all(is_index(tile, MARKER + 1) for tile in floor) or list(floor).count(MARKER) > 1:
        _fail(f"{where}.floor", "must be colours, 0 to 4, and at most one marker, 5", floor)
    player.floor = [int(tile) for tile in floor]
    return player


def _pair(line: object, where: str, row: int) -> tuple[int, int]:
    if not isinstance(line, Sequence) or len(line) != 2:
        _fail(where, "must be a colour and a count", line)
    colour, count = line
    is_empty = colour == NO_COLOUR and count == 0
    if not is_empty and not (is_index(colour, NUM_COLOURS) and is_index(count, row + 2) and count):
        _fail(where, f"must be [-1, 0], or a colour and a count from 1 to {row + 1}", line)
    return int(colour), int(count)


def _factory(values: object, where: str) -> tuple[int, ...]:
    counts = _counts(values, where, TILES_PER_FACTORY)
    if sum(counts) > TILES_PER_FACTORY:
        _fail(where, f"must be at most {TILES_PER_FACTORY} tiles", values)
    return tuple(counts)


def _counts(values: object, where: str, most: int = TILES_PER_COLOUR) -> list[int]:
    if not isinstance(values, Sequence) or len(values) != NUM_COLOURS:
        _fail(where, f"must be {NUM_COLOURS} counts", values)
    if not all(is_index(count, most + 1) for count in values):
        _fail(where, f"must be counts from 0 to {most}", values)
    return [int(count) for count in values]


def _index(data: Mapping[str, object], name: str, least: int, most: int, where: str = "") -> int:
    value = _value(data, name, where)
    if not is_integer(value) or not least <= value <= most:
        _fail(f"{where}.{name}" if where else name, f"must be from {least} to {most}", value)
    return int(value)


def _items(data: Mapping[str, object], name: str, count: int, where: str = "") -> Sequence[object]:
    values = _value(data, name, where)
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        _fail(f"{where}.{name}" if where else name, f"must be {count} items", values)
    return values


def _value(data: Mapping[str, object], name: str, where: str = "") -> object:
    if name not in data:
        _fail(f"{where}.{name}" if where else name, "must be there", "nothing")
    return data[name]


def _fail(where: str, what: str, got: object) -> NoReturn:
    raise SchemaError(f"Azul: GameState.from_dict: {where} {what}, got {shown(got)}")
