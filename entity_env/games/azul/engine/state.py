"""GameState: everything that is on the table, as counts. Nothing in it is hidden from a player."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias

from entity_env.core.validation import checked_index
from entity_env.games.azul.engine.rules import (
    NO_COLOUR,
    NOBODY,
    NUM_LINES,
)
from entity_env.games.azul.engine.tile_draws import (
    Draw,
    RandomSource,
)

End: TypeAlias = Literal["row", "no_progress", "no_tiles"]
"""Why a game is over. `row`: somebody has filled a row of the wall. `no_progress`: no colour of bag
and lid fits any line of any player, so that no wall would ever change again. `no_tiles`: the same,
with nothing left to deal."""

ENDS: Final[tuple[End, ...]] = ("row", "no_progress", "no_tiles")


class Phase(Enum):
    """What happens next."""

    FactoryOffer = "FactoryOffer"
    """Somebody takes tiles."""
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
        """A board of its own."""
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

    Two states are equal when everything on the table is; where the next tiles are drawn from
    (`rng`, `draw`) does not count, and copies share it. `new_game` makes the first state.

    Attributes:
        num_players: 2 to 4.
        current_player: whose turn it is; at the end, who made the last move.
        starting_player: who began this round.
        marker: who holds the start marker, -1 while it lies in the centre.
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
        """Who would begin the next round if this one ended now."""
        return self.starting_player if self.marker == NOBODY else self.marker

    @property
    def scores(self) -> list[int]:
        """Points of every player so far."""
        return [player.score for player in self.players]

    def copy(self) -> GameState:
        """A state of its own, which draws from the same source."""
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
        """The same position, told as if `player` sat in seat 0.

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
        """The state that `to_dict` wrote down.

        Args:
            data: what `to_dict` returned, also after a way through JSON.
            rng: draws the tiles of later rounds; one with a seed of its own if left out.
            draw: draws them instead.

        Raises:
            SchemaError: something is missing or cannot be, or a colour has not 20 tiles.
            UsageError: `rng` is no source of random numbers.
        """
        from entity_env.games.azul.engine.state_json import read_state

        return read_state(data, rng=rng, draw=draw)


def is_table_empty(state: GameState) -> bool:
    """Whether factories and centre hold no tiles: the round is over."""
    return not any(state.centre) and not any(map(any, state.factories))
