"""Both games: the contract, repeatability, and the same results as the runner of the package."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from entity_env import Obs, Turn
from entity_env.agents import RandomAgent, ScriptedAgent, against
from entity_env.agents.bots import has_bots
from entity_env.authoring.action_type import ActionKey
from entity_env.check import check_game
from entity_env.cli.load_game import AgentLoader, load_game, load_player
from entity_env.cli.opponents import against_bots, opponent_shares
from entity_env.errors import UsageError
from entity_env.interop.kaggle import KaggleAdapter, KaggleGame, play_kaggle
from entity_env.interop.kaggle.fleets import Share
from entity_env.interop.kaggle.game import KaggleObs, OwnRandom, kaggle_env
from entity_env.interop.kaggle.orbit_wars import OrbitWars, Send, orbit_wars
from entity_env.interop.kaggle.planet_wars import PlanetWars, planet_wars
from entity_env.views import SeenObservation, find_look
from entity_env.views.drawing import Drawing
from tests import ROOT

SEEDS = st.integers(0, 2**31 - 1)
GAMES = pytest.mark.parametrize(
    ("game", "players"), [(orbit_wars, 2), (orbit_wars, 4), (planet_wars, 2)]
)


@pytest.mark.slow
@GAMES
def test_keeps_the_contract(game: KaggleGame, players: int) -> None:
    check_game(game.with_settings(players=players, turns=30), episodes=2, new_process=False)


@GAMES
def test_repeats_an_episode(game: KaggleGame, players: int) -> None:
    def rewards() -> list[tuple[float, int]]:
        agents = [RandomAgent(i) for i in range(players)]
        episodes = game.play_episode(*agents, seed=3, players=players, turns=20)
        return [(each.reward, each.length) for each in episodes]

    assert rewards() == rewards()


@pytest.mark.slow
@GAMES
@given(seed=SEEDS, number=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_ends_like_the_runner_after_the_same_moves(
    game: KaggleGame, players: int, seed: int, number: int
) -> None:
    played: list[dict[int, list[Any]]] = []
    shown: list[Any] = []

    class Recorded(game.adapter):  # type: ignore[misc,name-defined]
        def show(self, raw: Any, player: int) -> Any:  # noqa: ANN401
            if player == 0:
                played.append({})
                shown.append(([*map(list, raw["planets"])], [*map(list, raw["fleets"])]))
            return super().show(raw, player)

        def moves(self, answer: Any, player: int) -> list[Any]:  # noqa: ANN401
            found: list[Any] = super().moves(answer, player)
            played[-1][player] = found
            return found

    def play(agents: Any, *, seed: int, players: int = 2, turns: int = 0) -> None:  # noqa: ANN401
        play_kaggle(Recorded, agents, seed=seed, players=players, turns=turns)

    copied = game.with_settings(players=players, turns=60)
    copied.play = play
    agents = [RandomAgent(number + i) for i in range(players)]
    episodes = copied.play_episode(*agents, seed=seed)
    env = kaggle_env(game.adapter.environment, 60).clone()
    env.configuration.seed, env.info = seed, {}
    env.reset(players)
    turn = 0
    while not env.done:
        now = env.state[0].observation
        assert ([*map(list, now.planets)], [*map(list, now.fleets)]) == shown[turn]
        env.step([played[turn].get(i, []) for i in range(players)])
        turn += 1
    # The first score is 0: all players are equal.
    assert [each.reward for each in env.state] == [each.reward for each in episodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "names"),
    [
        (orbit_wars, ("starter", "starter")),
        (planet_wars, ("nearest_enemy", "nearest_enemy")),
        (planet_wars, ("do_nothing", "nearest_enemy")),
    ],
)
def test_bots_play_as_in_the_runner(game: KaggleGame, names: tuple[str, str]) -> None:
    """Up to turn 70: later, a starter sends fleets into the sun, which no decision can."""
    env = kaggle_env(game.name, 70).clone()
    env.configuration.seed, env.info = 2, {}
    env.reset(2)
    env.run(list(names))
    agents = [load_player(game, name, 0, AgentLoader()) for name in names]
    episodes = game.play_episode(*agents, seed=2, turns=70)
    assert [each.reward for each in episodes] == [each.reward for each in env.state]


@GAMES
def test_bots_are_agents_by_name(game: KaggleGame, players: int) -> None:
    chosen = load_game(f"kaggle:{game.name}", [f"players={players}", "turns=40"])
    strong = "starter" if game is orbit_wars else "nearest_enemy"
    learner = against(chosen, [strong])
    episodes = learner.run(*[RandomAgent(1)] * players, seed=2)
    assert f"against/{strong}" in next(each for each in episodes if each.length).metrics


class _SendsOnce(ScriptedAgent):
    """Sends one fleet that is ENOUGH from the third turn on, and compares what happens."""

    def __init__(self) -> None:
        self.due: tuple[int, int, int] | None = None
        self.num_compared = 0
        self.target = -1

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        assert isinstance(obs, KaggleObs)
        assert isinstance(obs.seats, OrbitWars)
        seat = obs.seats._seats[obs.player]
        turn, answers = seat.orders.turn, obs.seats.answer([], obs.player)
        options = np.argwhere(seat.orders.allowed[seat.rows, Share.ENOUGH.value])
        if turn.step >= 2 and not turn.fleets and self.due is None and len(options):
            i, target = options[len(options) // 2]
            answers[i] = Send(Share.ENOUGH, seat.planets[target])
            self.target = turn.planets[target][0]
        elif turn.fleets and self.due is None:
            planet, turns = turn.route(turn.fleets[0])
            owner = int(turn.forecast.owners[planet, turns])
            assert turn.planets[planet][0] != self.target or owner == obs.player  # it is ENOUGH
            self.due = turn.step + turns, turn.planets[planet][0], owner
        elif self.due is not None and self.due[0] == turn.step:
            owners = {planet[0]: planet[1] for planet in turn.planets}
            assert owners[self.due[1]] == self.due[2]
            self.num_compared += 1
        return answers


@pytest.mark.slow
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_fleets_do_what_the_forecast_says(seed: int) -> None:
    agent = _SendsOnce()
    orbit_wars.play_episode(agent, ScriptedHolder(), seed=seed, turns=49)
    assume(agent.num_compared)  # it had no fleet that arrives before the end


class ScriptedHolder(ScriptedAgent):
    """Never sends a fleet."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        assert isinstance(obs, KaggleObs)
        return obs.seats.answer([], obs.player)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("kaggle:orbit_war", [], "kaggle-environments has no game 'orbit_war'; it has "),
        ("kaggle:rps", [], "no adapter for 'kaggle:rps'; there are orbit_wars, planet_wars, or "),
        ("kaggle:orbit_wars", ["players=0"], "players must be at least 1, got 0"),
    ],
)
def test_says_what_is_wrong(name: str, given: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_game(name, given)


def test_names_the_numbers_of_players() -> None:
    game = load_game("kaggle:orbit_wars", ["players=3"])
    with pytest.raises(UsageError, match="orbit_wars: players must be 2 or 4, got 3"):
        game.run(*map(RandomAgent, range(3)))


@pytest.mark.parametrize("adapter", [OrbitWars, PlanetWars])
@given(
    moves=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=12,
    )
)
@example(moves=[[True, False, False]])
@settings(max_examples=30, deadline=None)
def test_any_action_of_a_bot_becomes_a_decision(adapter: Any, moves: object) -> None:  # noqa: ANN401
    env = kaggle_env(adapter.environment, 0).clone()
    env.reset(2)
    seats = adapter(2, env.configuration)
    raw = {**env.state[0].observation, "step": 0}
    obs = seats.show(raw, 0)
    answer = seats.answer(moves, 0)
    assert len(answer) == len(obs.actors_of(adapter.actions[0]))
    seats.moves(answer, 0)


def test_a_bot_repeats_its_random_moves_and_leaves_the_module_random_alone() -> None:
    def played() -> list[float]:
        agents = [load_player(planet_wars, "random", seed, AgentLoader()) for seed in (1, 2)]
        found: list[float] = []
        planet_wars.play_episode(
            *agents, seed=1, turns=30, watch=lambda turn: found.append(turn.score)
        )
        return found

    random.seed(5)
    before = random.getstate()
    first = played()
    assert random.getstate() == before
    random.seed(6)
    assert played() == first


def test_starts_with_bots_as_opponents_in_training() -> None:
    game = load_game("kaggle:planet_wars", ["turns=10"])
    shares = opponent_shares(game, ["nearest_enemy", "do_nothing"])
    against_both, rest = against_bots(game, shares)
    assert not rest
    assert has_bots(against_both)
    assert against_bots(game, opponent_shares(game, [])) == (game, {"self": 0.2, "random": 0.1})
    with pytest.raises(UsageError, match="bots play in all environments"):
        opponent_shares(game, ["nearest_enemy=0.5"])


@GAMES
def test_look_draws_every_planet_and_fleet(game: KaggleGame, players: int) -> None:
    chosen = game.with_settings(players=players, turns=12)
    drawing, counts = Drawing(find_look(chosen), chosen.obs_space()), []

    def watch(turn: Turn) -> None:
        seen = SeenObservation(turn.observation, chosen.obs_space())
        drawing.include(seen)
        drawn = {shape.of for shape in drawing.draw(seen).shapes}
        counts.append(len(drawn))
        assert drawn >= {each.index for name in ("Planet", "Fleet") for each in seen[name]}

    chosen.play_episode(*map(RandomAgent, range(players)), seed=1, watch=watch)
    assert counts


def test_the_adapter_of_the_tutorial_plays_with_its_bots(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorials" / "kaggle.md").read_text("utf-8")
    file = tmp_path / "connectx.py"
    file.write_text(text[text.index("# connectx.py") :].partition("```")[0])
    game = load_game(str(file))
    check_game(game, episodes=1, new_process=False)
    bots = [load_player(game, name, 0, AgentLoader()) for name in ("negamax", "random")]
    episodes = game.play_episode(*bots, seed=1)
    assert [each.reward for each in episodes] == [1.0, -1.0]


class _Go(Enum):
    NORTH = "NORTH"
    EAST = "EAST"
    SOUTH = "SOUTH"
    WEST = "WEST"


@dataclass
class _Part:
    at: int
    player: int


class _Geese(KaggleAdapter):
    """A game whose rules read earlier states, replace observations and draw from `random`."""

    environment = "hungry_geese"
    actions = (_Go,)

    def show(self, raw: Any, player: int) -> Obs:  # noqa: ANN401
        geese = enumerate(raw["geese"])
        return Obs().entities([_Part(at, i) for i, goose in geese for at in goose])

    def moves(self, answer: Any, player: int) -> str:  # noqa: ANN401
        return str(answer.value)


def _play_geese(agents: Any, *, seed: int, players: int = 4, turns: int = 0) -> None:  # noqa: ANN401
    play_kaggle(_Geese, agents, seed=seed, players=players, turns=turns)


_GEESE: Final = KaggleGame(_play_geese, adapter=_Geese, entities=(_Part,), name="geese")


@pytest.mark.parametrize("players", [None, 2, 8])
def test_an_own_adapter_plays_any_game_with_the_players_of_its_setting(players: int | None) -> None:
    game = _GEESE.with_settings(**({} if players is None else {"players": players}))
    assert game.num_agents == (players or 4)
    outer = random.getstate()

    def rewards() -> list[tuple[float, int]]:
        agents = [RandomAgent(i) for i in range(game.num_agents)]
        return [(each.reward, each.length) for each in game.play_episode(*agents, seed=3)]

    first = rewards()
    assert random.getstate() == outer
    random.seed(7)
    assert rewards() == first


def test_rules_that_read_earlier_states_end_as_in_the_runner() -> None:
    """A goose that turns around dies; turns are rewarded; a limit of turns ends the episode."""

    def score(*moves: Sequence[str], turns: int) -> list[float]:
        env = kaggle_env("hungry_geese", turns).clone()
        env.configuration.seed = 5
        agents = [iter(each) for each in moves]
        with OwnRandom(5):
            env.reset(len(moves))
            while not env.done:
                env.step([next(each) for each in agents])
        return [float(each.reward or 0) for each in env.state]

    class Moves(ScriptedAgent):
        def __init__(self, moves: Sequence[str]) -> None:
            self._moves = iter(moves)

        def choose(self, obs: Obs, *actions: ActionKey) -> object:
            return _Go(next(self._moves))

    for moves in (["NORTH"] * 9, ["EAST", "WEST"] * 5):
        both = (moves, ["SOUTH"] * 9)
        episodes = _GEESE.play_episode(*map(Moves, both), seed=5, players=2, turns=6)
        assert [each.reward for each in episodes] == score(*both, turns=6)


def test_names_a_number_of_agents_that_play_does_not_pass_on() -> None:
    def play(agents: Any, *, seed: int) -> None:  # noqa: ANN401
        play_kaggle(_Geese, agents, seed=seed, players=4)

    game = KaggleGame(play, adapter=_Geese, entities=(_Part,), name="geese")
    with pytest.raises(UsageError, match=r"play_kaggle got 2 agents for players=4: give play the"):
        game.run(*map(RandomAgent, range(2)))
