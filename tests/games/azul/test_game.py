"""The game with its own loop: observations match the rules, and every option is legal."""

from collections.abc import Mapping
from inspect import getdoc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from entity_env import Turn, UsageError
from entity_env.agents import PolicyAgent, RandomAgent
from entity_env.authoring.entity_type import entity_type
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.games.azul import (
    ACTIONS,
    ActionEncoder,
    AzulEnv,
    GameState,
    apply_action,
    azul,
    azul_by_id,
    game as game_module,
    legal_actions,
    new_game,
    winners,
)
from entity_env.games.azul.entities import MoveId, Option, entities_of, options_of
from entity_env.games.azul.game import AzulGame
from entity_env.vec import VecEnv
from tests.games.azul.recorded_games import NUM_PLAYERS, SEEDS, board, position, states

GAMES = (azul, azul_by_id)
every_game = pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)


def random_agents(count: int) -> list[RandomAgent]:
    return [RandomAgent(seed=i) for i in range(count)]


@settings(max_examples=40, deadline=None)
@given(state=states())
def test_there_is_an_option_for_every_legal_move(state: GameState) -> None:
    options = options_of(state)
    assert [ACTIONS[option.action_id] for option in options] == legal_actions(state)
    for option in options[::5]:
        action = ACTIONS[option.action_id]
        assert (option.source, option.colour.value, option.destination) == action
        player = state.players[state.current_player]
        assert option.placed + option.overflow == option.count
        assert option.to_floor == (action.destination == 5)
        after = apply_action(state, action)
        if after.round == state.round and not after.is_over:
            mine = after.players[state.current_player]
            assert sum(mine.line_counts) - sum(player.line_counts) == option.placed
            added = option.overflow + option.takes_marker
            assert len(mine.floor) == min(7, len(player.floor) + added)
            assert option.takes_marker == (after.marker != state.marker)
            if not option.to_floor:
                row = action.destination
                assert option.completes == (mine.line_counts[row] == row + 1)


@settings(max_examples=30, deadline=None)
@given(state=states())
def test_entities_are_told_from_the_seat_of_the_observer(state: GameState) -> None:
    """A player's observation equals that of seat 0 in the rotated position."""
    for player in range(state.num_players):
        turned = state.rotated(player)
        assert entities_of(state, player) == entities_of(turned, 0)
    seen = entities_of(state, 0)
    assert len(seen.sources) == 2 * state.num_players + 2
    tiles = sum(map(sum, state.factories)) + sum(state.centre)
    assert sum(group.count for group in seen.groups) == tiles
    assert len(seen.groups) <= 41


def test_entities_of_a_position_made_by_hand() -> None:
    mine = board(score=7, lines=[(0, 0), (2, 1)], wall=[(0, 4), (1, 0)], floor=[5, 3])
    state = position(
        [board(score=1), mine],
        factories=[(2, 0, 1, 0, 1)],
        centre=(0, 3, 0, 0, 0),
        marker=1,
        current_player=1,
    )
    seen = entities_of(state, 1)
    [table] = seen.table
    assert (table.seat, table.marker_in_centre, table.num_players) == (1, False, 2)
    first = seen.seats[0]
    assert (first.seat, first.score, first.floor, first.floor_cost) == (0, 7, 2, 2)
    assert (first.next_slot_cost, first.holds_marker, first.starts_next) == (2, True, True)
    line = seen.lines[1]
    assert (line.colour.name, line.count, line.room, line.row) == ("RED", 1, 1, 1)
    rows = seen.walls
    assert rows[0].cells == (0, 0, 0, 0, 1)
    assert rows[0].has == (0, 0, 0, 0, 1)
    assert rows[1].cells == (0, 1, 0, 0, 0)
    assert rows[1].has == (1, 0, 0, 0, 0)
    groups = [(group.source, group.colour.name, group.rest) for group in seen.groups]
    assert groups == [(0, "BLUE", 2), (0, "RED", 3), (0, "WHITE", 3), (9, "YELLOW", 0)]
    red = next(option for option in options_of(state) if option.colour.name == "RED")
    assert (red.destination, red.completes, red.points, red.cost) == (0, True, 1, 0)
    second = next(o for o in options_of(state) if o.colour.name == "RED" and o.destination == 1)
    assert (second.completes, second.points, second.placed) == (True, 1, 1)
    floor = next(o for o in options_of(state) if o.colour.name == "YELLOW" and o.to_floor)
    assert (floor.cost, floor.overflow, floor.takes_marker) == (6, 3, False)


def test_the_id_of_an_option_is_no_feature() -> None:
    assert "action_id" not in entity_type(Option).features
    assert "action_id" not in azul.obs_space().entities["Option"].features
    assert "Option" not in azul_by_id.obs_space().entities


def test_members_are_ids() -> None:
    names = [member.name for member in MoveId]
    assert [member.value for member in MoveId] == list(range(300))
    assert names[0] == "blue_from_factory_0_to_line_0"
    assert names[299] == "white_from_centre_to_floor"
    for member in list(MoveId)[::17]:
        source, colour, place = ACTIONS[member.value]
        told = f"{'centre' if source == 9 else f'factory_{source}'}"
        assert f"_from_{told}_to_" in member.name
        assert ("floor" in member.name) == (place == 5)
        assert member.name.startswith(("blue", "yellow", "red", "black", "white")[colour])


class Witness(RandomAgent):
    """Chooses by id, equally in both games, and records the legal moves."""

    def __init__(self, seed: int, log: list[tuple[list[int], int]]) -> None:
        super().__init__(seed)
        self.random = np.random.default_rng(seed)
        self.log = log

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        [question] = self.questions(observation)
        [allowed] = question.allowed
        legal = np.flatnonzero(allowed).tolist()
        number = int(self.random.integers(len(legal)))
        self.log.append((legal, number))
        return {question.name: question.action([legal[number]])}


def played(game: AzulGame, num_players: int, seed: int) -> tuple[Any, list[Any]]:
    log: list[tuple[list[int], int]] = []
    agents = [Witness(10 * seed + i, log) for i in range(num_players)]
    return game.run(*agents, seed=seed, num_players=num_players), log


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS, num_players=NUM_PLAYERS)
def test_both_choices_play_the_same_games(seed: int, num_players: int) -> None:
    """Options correspond to legal ids, in the same order; rewards are equal."""
    episodes, log = played(azul, num_players, seed)
    by_id, log_by_id = played(azul_by_id, num_players, seed)
    assert [episode.reward for episode in episodes] == [episode.reward for episode in by_id]
    assert len(log) == len(log_by_id)
    for (options, number), (ids, other) in zip(log, log_by_id, strict=True):
        assert len(options) == len(ids)
        assert number == other


def test_what_is_allowed_is_what_the_rules_say() -> None:
    """The rules are played in parallel with the game, from the same seed."""
    log: list[tuple[list[int], int]] = []
    seed = 12
    agents = [Witness(i, log) for i in range(2)]
    azul_by_id.start(agents, seed)
    rng = np.random.default_rng(seed)
    state = new_game(2, starting_player=int(rng.integers(2)), rng=rng)
    for ids, number in log:
        assert ids == [ActionEncoder.encode(action) for action in legal_actions(state)]
        state = apply_action(state, ACTIONS[ids[number]])
    assert state.is_over
    assert winners(state)


@every_game
@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_as_many_agents_as_players(game: AzulGame, num_players: int) -> None:
    turns: list[Turn] = []
    agents = random_agents(num_players)
    episodes = game.run(*agents, num_players=num_players, watch=turns.append)
    assert len(episodes) == num_players
    assert all(episode.terminated for episode in episodes)
    lasts = [turn for turn in turns if turn.episode is not None]
    for turn in lasts:
        assert len(turn.observation.features["Seat"]) == num_players
        assert turn.observation.features["Seat"][0][1] == turn.score == turn.episode.reward  # type: ignore[union-attr]
        assert len(turn.observation.features.get("Option", ())) == 0
    with pytest.raises(UsageError, match=f"is for {num_players} agents"):
        game.run(*random_agents(num_players - 1), num_players=num_players)


@every_game
def test_settings(game: AzulGame) -> None:
    assert game.num_agents == 2
    four = game.with_settings(num_players="4")
    assert four.num_agents == 4
    assert four.with_settings(max_rounds=3).num_agents == 4
    assert game.with_settings(max_rounds=3).num_agents == 2
    for wrong in (1, 5):
        with pytest.raises(UsageError, match="num_players must be 2, 3 or 4"):
            game.with_settings(num_players=wrong)
    with pytest.raises(UsageError, match="max_rounds must be 0 or more"):
        game.run(*random_agents(2), max_rounds=-1)
    with pytest.raises(UsageError, match="3 players need as many agents, got 2"):
        game.play(random_agents(2), seed=0, num_players=3)


@every_game
def test_an_episode_can_be_cut(game: AzulGame) -> None:
    turns: list[Turn] = []
    episodes = game.run(*random_agents(2), max_rounds=2, watch=turns.append)
    assert [episode.truncated for episode in episodes] == [True, True]
    assert [turn.observation.features["Table"][0][0] for turn in turns[-2:]] == [3, 3]


class Quitter(PolicyAgent):
    """Leaves immediately."""

    def decide(self, observation: Observation) -> None:
        return None


@every_game
def test_it_leaves_when_an_agent_hangs_up(game: AzulGame) -> None:
    for seed in range(4):
        game.start([Quitter(), RandomAgent(seed=1)], seed)


def test_a_seed_says_who_begins() -> None:
    begins = set()
    for seed in range(12):
        turns: list[Turn] = []
        azul.run(*random_agents(2), seed=seed, max_rounds=1, watch=turns.append)
        begins.add(turns[0].agent_id)
        assert turns[0].observation.features["Table"][0][2] == 0
    assert begins == {0, 1}


@every_game
def test_many_at_once(game: AzulGame) -> None:
    with VecEnv(game.with_settings(num_players=3), num_envs=2, num_workers=0, seed=1) as vec:
        assert vec.num_rows == 6
        obs = vec.reset()
        chooser = RandomAgent(seed=1)
        for _ in range(50):
            obs = vec.act(chooser.decide_batch(obs, game.schema))
        assert obs.features["Table"].lengths.tolist().count(1) >= 2


@pytest.mark.slow
def test_rewards_are_those_of_the_environment() -> None:
    """Random play scores little, but equally in both."""
    scores = [episode.reward for episode in azul_by_id.run(*random_agents(2), episodes=20)]
    env = AzulEnv(seed=3)
    rng, theirs = np.random.default_rng(3), []
    for _ in range(20):
        step = env.reset()
        while not step.done:
            step = env.step(int(rng.choice(np.flatnonzero(step.legal_action_mask))))
        theirs += env.state.scores
    assert abs(np.mean(scores) - np.mean(theirs)) < 4
    assert min(scores) >= 0


def test_docstring_names_what_is_shown() -> None:
    text = game_module.__doc__ or ""
    for game in GAMES:
        for name in (*game.obs_space().entities, *game.action_space()):
            assert name in text
        for name in game.parameters:
            assert f"\n    {name}: " in (getdoc(game.play) or "")
