"""KaggleAdapter: what a player sees and decides; KaggleGame: the game that steps their rules."""

from __future__ import annotations

import io
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from copy import copy, deepcopy
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from types import TracebackType
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.obs import Obs
from entity_env.errors import UsageError, shown
from entity_env.interop.results import called, checked_reward

Raw: TypeAlias = Mapping[str, Any]
"""An observation or configuration of kaggle-environments."""
Orders: TypeAlias = Callable[[int, int], Any]
"""The action of a player in a turn, as in kaggle-environments."""

INSTALL: Final = (
    "pip install --no-deps kaggle-environments==1.33.2; pip install numpy jsonschema requests"
)
"""Commands that install the package without the libraries of its other games."""
_NUM_SEEDS: Final = 2**31


class KaggleAdapter(ABC):
    """One episode of a game of kaggle-environments, seen as entities and decisions.

    Everything is computed from the observations of the package, so an adapter works in its runner,
    too.

    Args:
        num_players: number of players.
        configuration: configuration of the episode.

    Attributes:
        environment: name of the game in kaggle-environments.
        actions: the actions that every player is asked for.
        is_copied: whether the rules get copies of the states, as in the runner. False is faster,
            for rules that read no earlier state and end the episode themselves.
    """

    environment: ClassVar[str]
    actions: ClassVar[tuple[ActionKey, ...]]
    is_copied: ClassVar[bool] = True

    def __init__(self, num_players: int, configuration: Raw) -> None:
        self.num_players = num_players
        self.configuration = configuration

    @classmethod
    def seat_of(cls, raw: Raw) -> tuple[int, int]:
        """The player's index and the number of players, from its first observation.

        The default is for two players, with an index `player` from 0, or `mark` from 1.
        """
        if "player" in raw:
            return int(raw["player"]), 2
        if isinstance(raw.get("mark"), int):
            return raw["mark"] - 1, 2
        raise UsageError(f"{cls.environment}: its adapter must define seat_of")

    @abstractmethod
    def show(self, raw: Raw, player: int) -> Obs:
        """The observation of a player. A player without actors is not asked this turn.

        Args:
            raw: the player's observation in kaggle-environments; not to be modified.
            player: index of the player, from 0.
        """

    @abstractmethod
    def moves(self, answer: Any, player: int) -> Any:  # noqa: ANN401 - of any action
        """The action in kaggle-environments for an answer to the last `show` of this player."""

    def answer(self, moves: object, player: int) -> Any:  # noqa: ANN401 - of any action
        """The answer to the last `show` of this player that is nearest to an action.

        Needed for the bots of the package and for its replays. Text of any kind may be in `moves`:
        it is checked here.
        """
        raise UsageError(
            f"{self.environment}: actions of bots cannot be converted: define "
            f"{type(self).__name__}.answer(moves, player), or choose other agents (--agent random)"
        )


class KaggleObs(Obs):
    """An observation of an adapter, with the data that bots of kaggle-environments need.

    Attributes:
        raw: the player's observation in kaggle-environments.
        seats: the adapter of the episode.
        player: index of the player.
    """

    __slots__ = ("player", "raw", "seats")

    def __init__(self, obs: Obs, raw: Raw, seats: KaggleAdapter, player: int) -> None:
        for name in Obs.__slots__:
            setattr(self, name, getattr(obs, name))
        self.raw = raw
        self.seats = seats
        self.player = player


class OwnRandom:
    """Context in which `random` and `numpy.random` continue a separate sequence of numbers.

    The rules of most games and their bots draw from these modules, which all copies share.
    """

    def __init__(self, seed: int) -> None:
        self._own = (
            random.Random(seed).getstate(),
            np.random.RandomState(seed % 2**32).get_state(legacy=False),
        )

    def __enter__(self) -> None:
        self._swap()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._swap()

    def _swap(self) -> None:
        others = random.getstate(), np.random.get_state(legacy=False)
        random.setstate(self._own[0])
        np.random.set_state(self._own[1])
        self._own = others


class KaggleGame(Game):
    """A game with an adapter; its settings `players` and `turns` are those of `play_kaggle`.

    The number of agents is the setting `players`, and 2 if `play` has none.

    Args:
        play: a function `play(agents, *, seed, players, turns)` that calls `play_kaggle`.
        adapter: class of the adapter.
        settings: keyword arguments of `Game`, such as entities.
    """

    def __init__(
        self,
        play: Callable[..., None],
        *,
        adapter: type[KaggleAdapter],
        **settings: Any,  # noqa: ANN401 - of Game
    ) -> None:
        super().__init__(
            play,
            actions=adapter.actions,
            num_agents=2,
            players=f"{adapter.__module__}:bots",
            **settings,
        )
        self.adapter = adapter
        self.num_agents = self._num_players()

    def with_settings(self, /, **settings: object) -> KaggleGame:
        """See `Game.with_settings`; `players` is the number of agents."""
        game = KaggleGame.__new__(KaggleGame)
        game.__dict__.update(super().with_settings(**settings).__dict__)
        game.num_agents = game._num_players()
        return game

    def _num_players(self) -> int:
        declared = self.parameters.get("players", Parameter("players", Parameter.KEYWORD_ONLY))
        default = 2 if declared.default is declared.empty else declared.default
        players = self.settings.get("players", default)
        if type(players) is not int or players < 1:
            raise UsageError(f"{self.name}: players must be at least 1, got {shown(players)}")
        return players


def play_kaggle(
    adapter: type[KaggleAdapter],
    agents: Sequence[Agent],
    *,
    seed: int,
    players: int = 2,
    turns: int = 0,
    orders: Orders | None = None,
) -> None:
    """Plays one episode by calling the rules of kaggle-environments once per turn.

    Skips what its runner does around them: time limits, and for an adapter without `is_copied` also
    the copies and checks of every state. The rules draw from `random` and `numpy.random` as seeded
    by the episode. The final score is the reward of the runner.

    Args:
        agents: the players.
        seed: seed of the episode; modulo 2**31 it is the seed in kaggle-environments.
        players: number of players.
        turns: length of an episode, as `episodeSteps`; 0 = that of the package.
        orders: replaces the moves of all players, for replays of the package.

    Raises:
        UsageError: the package is missing, or the game is not for so many players.
    """
    env = _env_for(adapter.environment, len(agents), players, turns)
    env.configuration.seed = seed % _NUM_SEEDS
    own_random, place = OwnRandom(env.configuration.seed), f"kaggle:{env.name}"
    with own_random:
        called(f"{place}: env.reset", env.reset, players)
    seats = adapter(players, env.configuration)
    idle = import_module("kaggle_environments.utils").default_schema(env.specification.action, None)
    while not env.done:
        pending = []
        for player, agent in enumerate(agents):
            if env.state[player].status != "ACTIVE":
                continue  # it is another player's turn
            raw = observation(env.state, player)
            obs = seats.show(raw, player)
            if has_actors(obs):
                shown = KaggleObs(obs, raw, seats, player)
                pending.append((player, agent.act_async(shown, *adapter.actions)))
        answers = {player: each.get() for player, each in pending}
        if any(answer is None for answer in answers.values()):
            return
        turn = env.state[0].observation.step
        moves: list[Any] = []
        for player, state in enumerate(env.state):
            if orders is not None:
                moves.append(orders(turn, player))
            elif player in answers:
                moves.append(seats.moves(answers[player], player))
            else:  # it has nothing to decide, or it is another player's turn
                moves.append(idle if state.status == "ACTIVE" else None)
        with own_random:
            _step(env, moves, place, is_copied=adapter.is_copied)
    for player, agent in enumerate(agents):
        obs = seats.show(observation(env.state, player), player)
        obs.score, obs.masks = checked_reward(env.state[player].reward or 0, env.name), None
        agent.game_over(obs)


def _env_for(name: str, num_agents: int, players: int, turns: int) -> Any:  # noqa: ANN401
    """An environment for one episode of so many players."""
    env = copy(kaggle_env(name, turns))
    if players not in env.specification.agents:
        allowed = " or ".join(map(str, env.specification.agents))
        raise UsageError(f"{env.name}: players must be {allowed}, got {players}")
    if num_agents != players:
        raise UsageError(
            f"{env.name}: play_kaggle got {num_agents} agents for players={players}: give play "
            f"the setting players: int = {players}, and pass it on"
        )
    env.info, env.logs, env.configuration = {}, [], deepcopy(env.configuration)
    return env


def _step(env: Any, moves: Sequence[Any], place: str, *, is_copied: bool) -> None:  # noqa: ANN401
    if is_copied:
        called(f"{place}: env.step", env.step, moves)
        return
    turn = env.state[0].observation.step
    for state, move in zip(env.state, moves, strict=True):
        state.action = move
    env.state = called(f"{place}: env.interpreter", env.interpreter, env.state, env)
    env.state[0].observation.step = turn + 1


def adapted_game(name: str) -> KaggleGame:
    """The game of an adapter in this package: one of `ADAPTED`."""
    game: KaggleGame = getattr(import_module(f"{__package__}.{name}"), name)
    return game


def observation(states: Sequence[Any], player: int) -> Raw:
    """A player's observation, with the parts that all players share."""
    return {**states[0].observation, **states[player].observation}


def has_actors(obs: Obs) -> bool:
    """False if the player has nothing to decide, because it has no actors."""
    return obs.actor_groups is None or any(obs.groups[i] for i, _ in obs.actor_groups)


@lru_cache(maxsize=8)
def kaggle_env(name: str, turns: int = 0) -> Any:  # noqa: ANN401 - untyped library
    """An environment of kaggle-environments, to be copied for every episode.

    Raises:
        UsageError: the package is missing or has no such game.
    """
    if find_spec("kaggle_environments") is None:
        raise UsageError(f"kaggle:{name} needs the package kaggle-environments: {INSTALL}")
    with redirect_stdout(io.StringIO()):  # it reports games whose libraries are missing
        import kaggle_environments as kaggle
    before = random.getstate()  # it draws an id
    if name not in kaggle.environments:
        there = ", ".join(sorted(kaggle.environments))
        raise UsageError(f"kaggle-environments has no game {name!r}; it has {there}")
    env = kaggle.make(name, configuration={"episodeSteps": turns} if turns else {})
    random.setstate(before)
    return env
