"""Games of Azul, move by move: thin wrappers around the rules in `kernels.engine`."""

from __future__ import annotations

from entity_env.core.validation import checked_index, is_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.azul.engine.actions import ACTIONS, Action, ActionEncoder, IllegalAction
from entity_env.games.azul.engine.rules import (
    CENTRE,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NUM_COLOURS,
    TILES_PER_FACTORY,
    num_dealt,
)
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng, deal_numbers
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    MAX_LEGAL,
    deal_packed,
    is_legal_packed,
    make_move,
    refill_bag,
    rows_of,
    start_game,
    write_ids,
)
from entity_env.games.azul.kernels.packed_state import NUM_WORDS, PackedState, unpack_tiles


def new_game(
    num_players: int,
    *,
    starting_player: int = 0,
    rng: RandomSource | None = None,
    draw: Draw | None = None,
) -> GameState:
    """Deals the first round.

    Args:
        num_players: 2 to 4.
        starting_player: index of the first player.
        rng: draws the tiles of all rounds; default: a generator with a random seed.
        draw: draws the tiles instead, to replay a recorded game; see `Draw`.

    Raises:
        UsageError: invalid `num_players`, `starting_player` or `rng`.
        SchemaError: `draw` returns a color that is not in the bag.
    """
    check_seats(num_players, starting_player)
    words = [0] * NUM_WORDS
    start_game(words, int(num_players), int(starting_player))
    state = GameState(words, checked_rng(rng), draw)
    deal(state.words, state.rng, draw)
    return state


def check_seats(num_players: int, starting_player: int) -> None:
    """Validates arguments of `new_game`."""
    if not is_index(num_players, MAX_PLAYERS + 1) or num_players < MIN_PLAYERS:
        raise UsageError(f"Azul: num_players must be 2, 3 or 4, got {num_players!r}")
    checked_index("Azul: starting_player", starting_player, num_players)


# ------------------------------------------------------------------------------------ legal actions


def legal_actions(state: GameState) -> list[Action]:
    """Legal actions in ascending order of id; empty when the game is over."""
    return [ACTIONS[action_id] for action_id in legal_ids(state)]


def legal_ids(state: GameState) -> list[int]:
    """Ids of the legal actions, in ascending order."""
    ids = [0] * MAX_LEGAL
    return ids[: write_ids(state.words, ids)]


def is_legal(state: GameState, action: Action) -> bool:
    """True if the action is one of the `legal_actions`."""
    source, colour, destination = action
    return is_legal_packed(state.words, source, 6 * colour + destination)


# -------------------------------------------------------------------------------------------- moves


def apply_action(state: GameState, action: Action) -> GameState:
    """State after an action; the given state is not changed.

    The last move of a round also tiles the walls, then deals the next round or ends the game.

    Raises:
        IllegalAction: the action is not legal, or the game is over.
        SchemaError: not an action, a field that is not an integer or is out of range, or `draw`
            returns a color that is not in the bag.
    """
    action = _checked(state, action)
    after = state.copy()
    apply_in_place(after, action, check=False)
    return after


def apply_in_place(state: GameState, action: Action, *, check: bool = True) -> None:
    """Applies an action in place.

    Args:
        state: modified; invalid afterward if `draw` raises or returns a color that is not in the
            bag.
        check: False skips the legality check: the action must be legal.

    Raises:
        IllegalAction, SchemaError: see `apply_action`. Unless `draw` is at fault, nothing has
            changed then.
    """
    if check:
        action = _checked(state, action)
    source, colour, destination = action
    words = state.words
    if make_move(words, source, 6 * colour + destination) and not words[at.END]:
        deal(words, state.rng, state.draw)


def _checked(state: GameState, action: Action) -> Action:
    """The action with integer fields: 2.0 equals 2, but is not a valid index."""
    checked = ActionEncoder.decode(ActionEncoder.encode(action))
    if not is_legal(state, checked):
        raise illegal(state, checked)
    return checked


def illegal(state: GameState, action: Action) -> IllegalAction:
    """Error for an illegal action, with the reason in board-game terms."""
    player = state.current_player
    return IllegalAction(f"Azul: player {player} may not take {action}: {why_not(state, action)}")


def why_not(state: GameState, action: Action) -> str:
    """Reason why an action is illegal."""
    if state.end is not None:
        return f"the game is over ({state.end})"
    source, colour, row = action
    is_centre = source == CENTRE
    num_sources = len(state.factories)
    if not is_centre and source >= num_sources:
        return f"{state.num_players} players have factories 0 to {num_sources - 1}"
    if not (state.centre if is_centre else state.factories[source])[colour]:
        return "there is none"
    player = state.players[state.current_player]
    if player.line_counts[row] > row:
        return "the line is full"
    if player.line_counts[row]:
        return "the line has another color"
    return "that row of the wall has the color"


# -------------------------------------------------------------------------------------------- deals


def deal(words: PackedState, rng: RandomSource, draw: Draw | None) -> None:
    """Fills the factories tile by tile; the last ones stay short if bag and lid run out."""
    count = num_dealt(words[at.NUM_PLAYERS])
    if draw is None:
        deal_packed(words, deal_numbers(rng, count).tolist())
        return
    for i in range(count):
        if not refill_bag(words):
            return
        bag = tuple(unpack_tiles(words[at.BAG]))
        tile = 1 << 6 * _checked_colour(draw(bag), bag)
        words[at.BAG] -= tile
        words[at.SOURCES + i // TILES_PER_FACTORY] += tile


def _checked_colour(colour: object, bag: tuple[int, ...]) -> int:
    if is_index(colour, NUM_COLOURS) and bag[colour]:
        return int(colour)
    raise SchemaError(
        f"Azul: draw must return a color that is in the bag, from 0 to {NUM_COLOURS - 1}: "
        f"got {colour!r}, the bag has {bag} of each"
    )


# ------------------------------------------------------------------------------------------ results


def winners(state: GameState) -> list[int]:
    """Players with the most points, ties broken by full rows; several players share a win.

    Before the end of the game: the leaders, not counting bonuses.
    """
    results = [(player.score, rows_of(player.wall)) for player in state.players]
    best = max(results)
    return [i for i, result in enumerate(results) if result == best]
