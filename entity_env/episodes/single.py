"""EpisodeOfEnvironment: one `Environment` whose episodes the caller begins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np

from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName
from entity_env.episodes.base import EpisodeEnv, Step
from entity_env.episodes.record import Record
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError


class EpisodeOfEnvironment(EpisodeEnv[Observation, Mapping[ActionName, Action], float, bool]):
    """Steps one environment; the seed of episode `n` is `EpisodeSeeds(seed)[n]`.

    An observation stays as it is as long as the environment leaves its arrays alone. `reset`
    returns one that is `done` if the episode was over before it asked anything: reset again then.

    Args:
        env: what to step; this object closes it.
        seed: decides the starts.

    Raises:
        UsageError: a seed that is no integer, or negative.
    """

    def __init__(self, env: Environment, seed: int = 0) -> None:
        self._seeds = EpisodeSeeds(seed)
        self._env = env
        self._takes_seed = "seed" in inspect.signature(env.reset).parameters
        self._number = -1
        """Of the episode that was begun last: the index of its start."""
        self._reward = 0.0
        self._length = 0
        self._shown: Observation | None = None
        """What the next action answers; None before the first reset, and after an error."""
        self._is_closed = False

    @classmethod
    def build(cls, config: Callable[[], Environment], seed: int) -> Self:
        """A new environment.

        Args:
            config: a class of environments, or a function that returns a new one.
            seed: decides the starts.

        Raises:
            SchemaError: it returned something else.
            UsageError: a seed that is no integer, or negative.
        """
        EpisodeSeeds(seed)  # refuses a bad one before anything is made
        return cls(made_by(config), seed)

    def reset(self, is_done: bool | None = None) -> Observation:
        self._require_open()
        if is_done is not None:
            if not isinstance(is_done, bool | np.bool_):
                raise SchemaError(f"is_done must be a bool, or None to reset: got {is_done!r}")
            shown = self._require_shown("reset it without is_done first")
            if not is_done:
                return shown
        return self._start(self._number + 1, has_jumped=False)

    def reset_with_index(self, ix: int) -> Observation:
        self._require_open()
        number = require_index(ix)
        if not self._takes_seed:
            raise ProtocolError(
                f"{type(self._env).__name__}.reset takes no seed, so its starts cannot be chosen: "
                "give it the keyword argument seed"
            )
        return self._start(number, has_jumped=True)

    def step(
        self, act: Mapping[ActionName, Action]
    ) -> tuple[Step[Observation, Mapping[ActionName, Action], float, bool], Record]:
        self._require_open()
        shown = self._require_shown("reset it before step")
        if shown.done:
            raise ProtocolError("the episode has ended: reset the environment before step")
        obs = self._act(act)
        self._shown = obs
        self._reward += obs.reward
        self._length += 1
        record = Record({f"metrics/{name}": value for name, value in obs.metrics.items()})
        info: dict[str, object] = {}
        if obs.done:
            episode = self._episode(obs)
            info["episodes"] = (episode,)
            record = record.merge(record_of([episode]))
        return Step(act, obs, obs.reward, obs.terminated, obs.truncated, info), record

    def close(self) -> None:
        self._is_closed = True
        self._env.close()

    def _begin(self, number: int, has_jumped: bool) -> Observation:
        """Has the environment begin an episode; `has_jumped` when it is not the next one."""
        return self._env.reset(seed=self._seeds[number]) if self._takes_seed else self._env.reset()

    def _act(self, act: Mapping[ActionName, Action]) -> Observation:
        try:
            return self._env.act(act)
        except SchemaError:
            raise  # what it refuses has not happened
        except BaseException:
            self._shown = None
            raise

    def _start(self, number: int, *, has_jumped: bool) -> Observation:
        self._shown = None
        self._number = number
        self._reward = 0.0
        self._length = 0
        self._shown = self._begin(number, has_jumped)
        return self._shown

    def _episode(self, last: Observation) -> Episode:
        return Episode(
            reward=self._reward,
            length=self._length,
            terminated=last.terminated,
            truncated=last.truncated,
            seed=self._seeds[self._number],
            number=self._number,
            metrics=dict(last.metrics),
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this EpisodeEnv is closed: make a new one")

    def _require_shown(self, how: str) -> Observation:
        if self._shown is None:
            raise ProtocolError(f"nothing is being played: {how}")
        return self._shown


def made_by(make: Callable[[], object]) -> Environment:
    """The environment that a class or function makes.

    Raises:
        SchemaError: it made something else.
    """
    env = make()
    if not isinstance(env, Environment):
        raise SchemaError(
            f"an EpisodeEnv needs a function that returns an Environment: {make!r} returned a "
            f"{type(env).__name__}"
        )
    return env


def require_index(ix: object) -> int:
    """The index of a start as a plain integer.

    Raises:
        UsageError: it is no integer, or negative.
    """
    if not isinstance(ix, int | np.integer) or isinstance(ix, bool) or ix < 0:
        raise UsageError(f"the index of a start must be an integer, 0 or more: got {ix!r}")
    return int(ix)


def record_of(episodes: Sequence[Episode]) -> Record:
    """Mean reward, mean length and number of episodes that have ended, at least one."""
    count = len(episodes)
    return Record(
        {
            "episode/reward": sum(episode.reward for episode in episodes) / count,
            "episode/length": sum(episode.length for episode in episodes) / count,
            "episode/count": count,
        }
    )


class EpisodeOfGame(EpisodeOfEnvironment):
    """Steps a game for one agent; the seed of episode `n` is that of episode `n` of `Game.run`.

    A game that goes on by itself from episode to episode does so here as well, unless one is cut
    short, or begun by its index.

    Args:
        game: what to play.
        seed: decides the starts.
        transport: how the game waits for its actions; see `TrainAgentEnv`.

    Raises:
        UsageError: a seed that is no integer, or negative; or a game for several agents.
    """

    def __init__(self, game: Game, seed: int = 0, *, transport: Transport = "greenlet") -> None:
        if game.num_agents != 1:
            raise UsageError(
                f"{game.name} is for {game.num_agents} agents, and an EpisodeEnv shows one: "
                "step it as a TrainAgentEnv or VecEnv"
            )
        self._game_env = _GameEnv(game, seed=seed, transport=transport)
        self._run_seed = seed
        super().__init__(self._game_env, seed)

    @classmethod
    def build(cls, config: Game, seed: int) -> Self:  # type: ignore[override]  # see EpisodeEnv
        """A new environment.

        Args:
            config: the game, with its settings.
            seed: decides the starts.

        Raises:
            UsageError: as for the constructor.
        """
        return cls(config, seed)

    def _begin(self, number: int, has_jumped: bool) -> Observation:
        if has_jumped:
            return self._game_env.begin(self._run_seed, number)
        return self._game_env.reset()


class _GameEnv(TrainAgentEnv):
    """Can also begin a run with a later episode than the first."""

    def begin(self, seed: int, number: int) -> Observation:
        """Begins episode `number` of the run of a seed; a game in the middle of one is unwound."""
        self._seed = None
        self._ends.ended.clear()
        self._observations = []
        self._host.restart(seed, number)
        return self._observe_all()[0]
