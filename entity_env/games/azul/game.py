"""Azul: two to four players take tiles in turn and place them on their walls.

Entities and features:
    Table: the actor. round; num_players; seat, number of players before the observer in this round;
        marker_in_centre; bag and lid, tiles by color; tiles, number on offer; lead, points ahead of
        the best opponent if the round ended now; my_row and their_row, tiles in the fullest row of
        the observer and of all opponents, counting full lines. Of the observer and the next player:
        floor and next_floor, tiles there; my_room and next_room, free places by line; my_points and
        next_points, by line, points that a started line would score if it were full and the round
        ended now.
    Source: a factory, or the center, which comes last. is_centre; tiles, by color; total;
        has_marker.
    Group: tiles that can be taken together. source; colour; count; is_centre; brings_marker; rest,
        the other tiles of the source, which move to the center or stay there.
    Seat: a player; seats count from the observer, seat 0. seat; score; floor; floor_cost;
        next_slot_cost; holds_marker; starts_next; pending, points of full lines; fullest_row.
    Line: a pattern line. seat; row; colour; count; room.
    WallRow: a row of a wall. seat; row; cells, 1 where there is a tile; has, 1 for each color
        present.
    Option: a legal move.
        Its tiles: source, colour, count, rest, takes_marker, ends_round (they are the last tiles).
        Destination: destination, to_floor, line (1 at the line's place), is_fresh (the line is
            empty), placed, overflow, left (room left in the line), completes, cost (of the floor).
        Its points: points, gained if the walls were tiled now; line_points, gained if the line were
            full; row_tiles, column_tiles and colour_tiles, tiles that share row, column or color
            with the new tile, counting full lines; fills_row.
        After the move: elsewhere, tiles of the color at other sources; exact and enough, number of
            these sources with exactly, or at least, as many tiles as the room left; groups, number
            of groups; centre, tiles in the center by color; my_lines and next_lines, for each other
            line of the player and each line of the next player, number of colors with a group large
            enough to complete it; my_drop and next_drop, tiles without room in the other lines of
            the player, and in those of the next player, if they take the group that fits best;
            next_held and next_room, tiles and room of the next player's started lines of the color.
            No feature is a heuristic value of the move.
Actions:
    SelectOption: the table picks one of the options.
    MoveId: replaces SelectOption in `azul_by_id`, which shows no options: one of 300 ids, with a
        mask.
Reward:
    the change of the player's score at the end of each round, including final bonuses.
Terminated when:
    a row of a wall is full, or no wall can ever change again.
Truncated when:
    max_rounds rounds have been played, unless max_rounds is 0.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games.azul import azul
    >>> agents = [RandomAgent(seed=i) for i in range(3)]
    >>> episodes = azul.run(*agents, num_players=3)
    >>> [episode.terminated for episode in episodes]
    [True, True, True]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from entity_env import Game, Obs, SelectEntity, UsageError
from entity_env.agents import Agent
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS
from entity_env.games.azul.engine.engine import apply_in_place, legal_ids, new_game
from entity_env.games.azul.engine.rules import MAX_PLAYERS, MIN_PLAYERS
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.entities import ENTITIES, MoveId, Option, entities_of, options_of

PICK: Final = SelectEntity(Option)

Ask: TypeAlias = Callable[[Agent, Obs, GameState], int | None]
"""Asks an agent for a move in a position; returns an id, or None if the agent stopped."""


class AzulGame(Game):
    """A game for `num_players` agents."""

    def with_settings(self, /, **settings: object) -> AzulGame:
        """See `Game.with_settings`.

        Raises:
            UsageError: an invalid setting or number of players.
        """
        game = AzulGame.__new__(AzulGame)
        game.__dict__.update(super().with_settings(**settings).__dict__)
        game.num_agents = game.settings.get("num_players", MIN_PLAYERS)
        if not MIN_PLAYERS <= game.num_agents <= MAX_PLAYERS:
            raise UsageError(f"{self.name}: num_players must be 2, 3 or 4, got {game.num_agents}")
        names = game.max_entities
        game.max_entities = {n: x for n, x in _most_entities(game.num_agents).items() if n in names}
        return game


def _most_entities(num_players: int) -> dict[str, int]:
    """Groups: four per factory, one per color in the center. Options: six per group."""
    groups = 4 * (2 * num_players + 1) + 5
    return {"Group": groups, "Option": 6 * groups}


def play(agents: Sequence[Agent], *, seed: int, num_players: int = 2, max_rounds: int = 0) -> None:
    """Plays one episode with moves chosen among options.

    Args:
        agents: the players.
        seed: determines the starting player and the deals.
        num_players: 2 to 4.
        max_rounds: rounds after which an episode is truncated; 0 = never.

    Raises:
        UsageError: invalid settings.
    """
    _play(agents, seed, num_players, max_rounds, ask_for_option)


def play_by_id(
    agents: Sequence[Agent], *, seed: int, num_players: int = 2, max_rounds: int = 0
) -> None:
    """Azul with moves chosen by id, out of 300, with a mask.

    Args:
        agents, seed: as for `play`.
        num_players: 2 to 4.
        max_rounds: rounds after which an episode is truncated; 0 = never.
    """
    _play(agents, seed, num_players, max_rounds, ask_for_id)


def _play(agents: Sequence[Agent], seed: int, num_players: int, max_rounds: int, ask: Ask) -> None:
    if max_rounds < 0:
        raise UsageError(f"azul: max_rounds must be 0 or more, got {max_rounds}")
    if len(agents) != num_players:
        raise UsageError(f"azul: {num_players} players need as many agents, got {len(agents)}")
    rng = np.random.default_rng(seed)
    state = new_game(num_players, starting_player=int(rng.integers(num_players)), rng=rng)
    while state.end is None and not 0 < max_rounds < state.round:
        player = state.current_player
        action_id = ask(agents[player], observe(state, player), state)
        if action_id is None:
            return
        apply_in_place(state, ACTIONS[action_id], check=False)
    for player, agent in enumerate(agents):
        agent.game_over(observe(state, player), truncated=state.end is None)


def ask_for_option(agent: Agent, obs: Obs, state: GameState) -> int | None:
    """Id of the picked option; None if the agent stopped."""
    picked = agent.act(obs.entities(options_of(state)), PICK)
    option = None if picked is None else picked[0]
    return None if option is None else option.action_id


def ask_for_id(agent: Agent, obs: Obs, state: GameState) -> int | None:
    """The chosen id; None if the agent stopped."""
    mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
    mask[legal_ids(state)] = True
    chosen: Any = agent.act(obs.mask(MoveId, mask), MoveId)
    return None if chosen is None else int(chosen.value)


def observe(state: GameState, player: int) -> Obs:
    """One player's view of a position, without options."""
    seen = entities_of(state, player)
    return (
        Obs(state.players[player].score)
        .actors(seen.table)
        .entities(seen.sources)
        .entities(seen.groups)
        .entities(seen.seats)
        .entities(seen.lines)
        .entities(seen.walls)
    )


_game = partial(
    AzulGame,
    num_agents=2,
    look="entity_env.games.azul.look:look",
    players="entity_env.games.azul.players.named:players",
)
azul: AzulGame = _game(
    play,
    entities=(*ENTITIES, Option),
    actions=(PICK,),
    name="azul",
    training="entity_env.games.azul.self_play:training",
    max_entities=_most_entities(MIN_PLAYERS),
)
"""Azul with moves chosen among entities."""
azul_by_id: AzulGame = _game(
    play_by_id,
    entities=ENTITIES,
    actions=(MoveId,),
    name="azul_by_id",
    max_entities={"Group": _most_entities(MIN_PLAYERS)["Group"]},
)
"""Azul with moves chosen by id."""
