"""GameState: a position as counts, fully visible to all players; conversion to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NoReturn, Self, TypeAlias

from entity_env.core.validation import checked_index, is_index, is_integer
from entity_env.errors import SchemaError, shown
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
    COLOURS,
    FLOOR_SLOTS,
    MARKER,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NO_COLOUR,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    NUM_SOURCES,
    TILES_PER_COLOUR,
    TILES_PER_FACTORY,
    column_of,
    num_factories,
)
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import seat, write_fits
from entity_env.games.azul.kernels.packed_state import (
    FIELD,
    NUM_WORDS,
    PackedState,
    pack_tiles,
    unpack_tiles,
)

End: TypeAlias = Literal["row", "no_progress", "no_tiles"]
"""Why a game is over. `row`: a row of a wall is full. `no_progress`: no color in bag or lid fits
any line of any player, so no wall could ever change. `no_tiles`: no progress because nothing is
left to deal."""

ENDS: Final[tuple[End, ...]] = ("row", "no_progress", "no_tiles")
"""All reasons why a game can end."""


class Phase(Enum):
    """Stage of a game."""

    FactoryOffer = "FactoryOffer"
    """A player takes tiles."""
    GameOver = "GameOver"
    """The game is over; the scores are final."""


class _Word:
    """Descriptor: an attribute as a word of the packed state."""

    def __init__(self, at: int) -> None:
        self._at: Final = at

    def __get__(self, view: Player | GameState, _: object = None) -> int:
        return int(view.words[view.first + self._at])

    def __set__(self, view: Player | GameState, value: int) -> None:
        view.words[view.first + self._at] = int(value)


class _Tiles:
    """Descriptor: tiles by color, packed in a word."""

    def __init__(self, at: int) -> None:
        self._at: Final = at

    def __get__(self, state: GameState, _: object = None) -> tuple[int, ...]:
        return tuple(unpack_tiles(state.words[self._at]))

    def __set__(self, state: GameState, counts: Sequence[int]) -> None:
        state.words[self._at] = pack_tiles(counts)


class Player:
    """Board of one player: a view of a `GameState`, or a standalone empty board.

    `score`, `wall` and `floor` can be set, and lines with `set_line`; sequences are copies.

    Attributes:
        score: points so far, 0 or more.
        line_colours: color of each pattern line, -1 if empty.
        line_counts: tiles on each pattern line; line i has room for i + 1.
        wall: 25 bits, cell `5 * row + column`.
        floor: contents of the floor from left to right, at most 7: colors, and 5 for the marker.
    """

    __slots__ = ("first", "words")

    def __init__(self, words: PackedState | None = None, first: int = 0) -> None:
        self.words = [0] * at.PLAYER_WORDS if words is None else words
        self.first: Final = first
        if words is None:
            write_fits(self.words, first)

    score = _Word(at.SCORE)

    @property
    def wall(self) -> int:
        return int(self.words[self.first + at.WALL])

    @wall.setter
    def wall(self, cells: int) -> None:
        self.words[self.first + at.WALL] = int(cells)
        write_fits(self.words, self.first)

    @property
    def line_counts(self) -> tuple[int, ...]:
        return tuple(line & 7 for line in self._lines())

    @property
    def line_colours(self) -> tuple[int, ...]:
        return tuple(line >> 3 if line & 7 else NO_COLOUR for line in self._lines())

    def _lines(self) -> list[int]:
        lines = int(self.words[self.first + at.LINES])
        return [lines >> 6 * row & FIELD for row in range(NUM_LINES)]

    def set_line(self, row: int, colour: int, count: int) -> None:
        """Sets the tiles of a pattern line; `colour` is ignored if `count` is 0."""
        line = count | colour << 3 if count else 0
        lines = int(self.words[self.first + at.LINES]) & ~(FIELD << 6 * row)
        self.words[self.first + at.LINES] = lines | line << 6 * row
        write_fits(self.words, self.first)

    @property
    def floor(self) -> tuple[int, ...]:
        tiles = int(self.words[self.first + at.FLOOR_TILES])
        length = self.words[self.first + at.FLOOR_LENGTH]
        return tuple(tiles >> 3 * slot & 7 for slot in range(length))

    @floor.setter
    def floor(self, tiles: Sequence[int]) -> None:
        packed = sum(tile << 3 * slot for slot, tile in enumerate(tiles))
        self.words[self.first + at.FLOOR_TILES] = packed
        self.words[self.first + at.FLOOR_LENGTH] = len(tiles)

    def key(self) -> tuple[int, ...]:
        """The whole board as a hashable tuple."""
        return tuple(map(int, self.words[self.first : self.first + at.PLAYER_WORDS]))

    def to_dict(self) -> dict[str, object]:
        """The board as plain values; see `GameState.to_dict`."""
        return {
            "score": self.score,
            "lines": [list(line) for line in zip(self.line_colours, self.line_counts, strict=True)],
            "wall": self.wall,
            "floor": list(self.floor),
        }


class GameState:
    """Position between two moves: a view of a packed state.

    States are equal if their positions are equal; the tile sources `rng` and `draw` do not count,
    and copies share them. `new_game` makes the first state. Attributes can be set; sequences are
    copies.

    Attributes:
        num_players: 2 to 4.
        current_player: player to move; when the game is over, the player of the last move.
        starting_player: first player of this round.
        marker: holder of the start marker, -1 while it lies in the center.
        round: round number, from 1.
        end: why the game is over; None while it continues; see `End`.
        factories: tiles of each factory by color, `2 * num_players + 1` tuples of 5.
        centre: tiles in the center by color.
        bag: tiles in the bag by color.
        lid: discarded tiles by color; they refill the empty bag.
        players: the boards; setting them copies the given boards.
        rng: draws the tiles of later rounds.
        draw: draws the tiles instead, if not None.
        words: the packed position; see `kernels.packed_state`.
    """

    __slots__ = ("draw", "rng", "words")

    first: Final = 0
    words: PackedState
    rng: RandomSource
    draw: Draw | None

    def __init__(self, words: PackedState, rng: RandomSource, draw: Draw | None = None) -> None:
        self.words = words
        self.rng = rng
        self.draw = draw

    num_players = _Word(at.NUM_PLAYERS)
    current_player = _Word(at.CURRENT)
    starting_player = _Word(at.START)
    marker = _Word(at.HOLDER)
    round = _Word(at.ROUND)
    bag = _Tiles(at.BAG)
    lid = _Tiles(at.LID)
    centre = _Tiles(at.SOURCES + CENTRE)

    @property
    def end(self) -> End | None:
        end = self.words[at.END]
        return ENDS[end - 1] if end else None

    @end.setter
    def end(self, end: End | None) -> None:
        self.words[at.END] = 0 if end is None else 1 + ENDS.index(end)

    @property
    def factories(self) -> tuple[tuple[int, ...], ...]:
        dealt = self.words[at.SOURCES : at.SOURCES + num_factories(self.num_players)]
        return tuple(tuple(unpack_tiles(tiles)) for tiles in dealt)

    @factories.setter
    def factories(self, factories: Sequence[Sequence[int]]) -> None:
        missing = [()] * (CENTRE - len(factories))
        for i, counts in enumerate([*factories, *missing]):
            self.words[at.SOURCES + i] = pack_tiles(counts)

    @property
    def players(self) -> tuple[Player, ...]:
        return tuple(Player(self.words, seat(i)) for i in range(self.num_players))

    @players.setter
    def players(self, players: Sequence[Player]) -> None:
        for i, key in enumerate([player.key() for player in players]):
            self.words[seat(i) : seat(i) + at.PLAYER_WORDS] = list(key)

    @property
    def phase(self) -> Phase:
        """`Phase.FactoryOffer` or `Phase.GameOver`."""
        return Phase.FactoryOffer if self.end is None else Phase.GameOver

    @property
    def is_over(self) -> bool:
        """True if the game is over."""
        return bool(self.words[at.END])

    @property
    def starting_player_next_round(self) -> int:
        """First player of the next round if this round ended now."""
        return self.starting_player if self.marker == NOBODY else self.marker

    @property
    def scores(self) -> list[int]:
        """Points of each player so far."""
        return [player.score for player in self.players]

    def copy(self) -> Self:
        """Independent copy that draws from the same source."""
        other = self.__new__(type(self))
        other.words, other.rng, other.draw = self.words.copy(), self.rng, self.draw
        return other

    def __copy__(self) -> Self:
        return self.copy()

    def rotated(self, player: int) -> Self:
        """Copy of the position with `player` in seat 0.

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
        """Hash of the current position: do not play on with a state in a set or dict."""
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"GameState(num_players={self.num_players}, round={self.round}, "
            f"current_player={self.current_player}, scores={self.scores}, end={self.end!r})"
        )

    def _key(self) -> tuple[int, ...]:
        return tuple(map(int, self.words))

    def to_dict(self) -> dict[str, object]:
        """The state except `rng` and `draw` as numbers, strings, lists and dicts, ready for JSON.

        Keys are the attribute names. A player has `score`, `lines` (pairs of color and count; color
        -1 = none), `wall` and `floor`.
        """
        return {
            "num_players": self.num_players,
            "current_player": self.current_player,
            "starting_player": self.starting_player,
            "marker": self.marker,
            "round": self.round,
            "end": self.end,
            "factories": [list(tiles) for tiles in self.factories],
            "centre": list(self.centre),
            "bag": list(self.bag),
            "lid": list(self.lid),
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
        """State from a dict of `to_dict`, also after a round trip through JSON.

        Args:
            rng, draw: as for `new_game`.

        Raises:
            SchemaError: something is missing or invalid, or a color does not have 20 tiles.
            UsageError: `rng` is not a source of random numbers.
        """
        given = _Given(data, "data")
        state = GameState([0] * NUM_WORDS, checked_rng(rng), draw)
        state.num_players = given.integer("num_players", MIN_PLAYERS, MAX_PLAYERS)
        last = state.num_players - 1
        state.current_player = given.integer("current_player", 0, last)
        state.starting_player = given.integer("starting_player", 0, last)
        state.marker = given.integer("marker", NOBODY, last)
        state.round = given.integer("round", 1, 2**31)
        state.end = _checked_end(given.value("end"))
        factories = enumerate(given.items("factories", num_factories(state.num_players)))
        state.factories = [_factory(tiles, f"factories[{i}]") for i, tiles in factories]
        state.centre = _counts(given.value("centre"), "centre")
        state.bag = _counts(given.value("bag"), "bag")
        state.lid = _counts(given.value("lid"), "lid")
        players = enumerate(given.items("players", state.num_players))
        state.players = [_player(player, f"players[{i}]") for i, player in players]
        _check_tiles(state)
        return state


def is_table_empty(state: GameState) -> bool:
    """Whether factories and center are empty, which ends the round."""
    return not any(state.words[at.SOURCES : at.SOURCES + NUM_SOURCES])


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
                f"players[{i}].floor", f"must not have the marker if marker={state.marker}", MARKER
            )


def count_tiles(state: GameState) -> list[int]:
    """Tiles of each color in all places; 20 each in a valid state."""
    places = [state.bag, state.lid, state.centre, *state.factories]
    counts = [sum(tiles) for tiles in zip(*places, strict=True)]
    for player in state.players:
        for colour, number in zip(player.line_colours, player.line_counts, strict=True):
            counts[colour] += number  # 0 for no color
        for colour in range(NUM_COLOURS):
            counts[colour] += player.floor.count(colour)
            counts[colour] += (player.wall & COLOUR_CELLS[colour]).bit_count()
    return counts


class _Given:
    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            _fail(where, "must be a mapping", data)
        self._data: Final = data
        self._prefix: Final = "" if where == "data" else f"{where}."

    def value(self, name: str) -> object:
        if name not in self._data:
            _fail(f"{self._prefix}{name}", "must be there", "nothing")
        return self._data[name]

    def integer(self, name: str, least: int, most: int) -> int:
        value = self.value(name)
        if not is_integer(value) or not least <= value <= most:
            _fail(f"{self._prefix}{name}", f"must be from {least} to {most}", value)
        return int(value)

    def items(self, name: str, count: int) -> Sequence[object]:
        values = self.value(name)
        if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
            _fail(f"{self._prefix}{name}", f"must be {count} items", values)
        return values


def _checked_end(end: object) -> End | None:
    if end is not None and not (isinstance(end, str) and end in ENDS):
        _fail("end", f"must be None or one of {', '.join(ENDS)}", end)
    return None if end is None else ENDS[ENDS.index(end)]


def _player(data: object, where: str) -> Player:
    given = _Given(data, where)
    player = Player()
    player.score = given.integer("score", 0, 2**31)
    player.wall = given.integer("wall", 0, 2**25 - 1)
    for row, line in enumerate(given.items("lines", NUM_LINES)):
        colour, count = _pair(line, f"{where}.lines[{row}]", row)
        player.set_line(row, colour, count)
        if count and player.wall >> 5 * row + column_of(row, colour) & 1:
            _fail(f"{where}.lines[{row}]", "must not have a color of its wall row", line)
    floor = given.value("floor")
    if not isinstance(floor, Sequence) or len(floor) > FLOOR_SLOTS:
        _fail(f"{where}.floor", f"must be at most {FLOOR_SLOTS} tiles", floor)
    if not all(is_index(tile, MARKER + 1) for tile in floor) or list(floor).count(MARKER) > 1:
        _fail(f"{where}.floor", "must be colors, 0 to 4, and at most one marker, 5", floor)
    player.floor = [int(tile) for tile in floor]
    return player


def _pair(line: object, where: str, row: int) -> tuple[int, int]:
    if not isinstance(line, Sequence) or len(line) != 2:
        _fail(where, "must be a color and a count", line)
    colour, count = line
    is_empty = colour == NO_COLOUR and count == 0
    if not is_empty and not (is_index(colour, NUM_COLOURS) and is_index(count, row + 2) and count):
        _fail(where, f"must be [-1, 0], or a color and a count from 1 to {row + 1}", line)
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


def _fail(where: str, what: str, got: object) -> NoReturn:
    raise SchemaError(f"Azul: GameState.from_dict: {where} {what}, got {shown(got)}")
