"""`Game`: a play function with its declared entities and actions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.agent import Agent, one_per_seat
from entity_env.authoring.entity_type import without_aliases
from entity_env.authoring.game_traceback import add_note, is_a, refuse_exit, text_of
from entity_env.authoring.local_run import AFTER_NONE, AgentRun, RunLimits, Turn, Watch
from entity_env.authoring.schema import Schema
from entity_env.authoring.settings import check_setting, is_plain_setting, parse_setting
from entity_env.authoring.step_timeout import GameHangs, StepTimeout
from entity_env.core.episode import Episode
from entity_env.core.seeding import EpisodeSeeds, SeedsFrom
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import parameters_of, require_choice
from entity_env.errors import (
    EntityEnvError,
    GameExit,
    MissingExtraError,
    ProtocolError,
    SchemaError,
    UsageError,
    WorkerError,
    shown,
)

_MAX_VERSION: Final = 64
"""Maximum length of a version that is text, in characters."""
Transport: TypeAlias = Literal["greenlet", "thread"]
"""How a stepped game waits for its actions.

`greenlet`: all games of a process share one thread, and switching takes 1 to 2 µs
(`benchmarks/inversion.py`). `thread`: one OS thread per game, for games that run an event loop
(asyncio) or are called back from C."""


@runtime_checkable
class RunWatcher(Protocol):
    """A watcher that is also called at the start and end of a run."""

    def __call__(self, turn: Turn, /) -> None:
        """Called for a decision, or the end of an episode."""

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int, /
    ) -> None:
        """Called before the first observation."""

    def end_run(self, error: BaseException | None, /) -> None:
        """Called after the last observation, with the error about to leave `Game.run`, if any."""


class Game:
    """A game that owns its loop, `play(agent, *, seed, ...)`.

    `play` ends each episode with `agent.game_over(...)` and returns when `act` returns None. It may
    return after one episode and is then called again with the next seed, or it may loop over
    episodes.

    Args:
        play: the loop. With several agents its first argument is a list of them. It must take
            `seed`; its other keyword-only arguments are the game's settings.
        entities: dataclasses in observations, in the order of the observation space.
        actions: Enums, frozen dataclasses of Enums, and `ActionType`s such as `Categorical(Move)`.
        global_features: dataclass of the features of the whole observation.
        relations: dataclasses about pairs of entities, such as a route between two planets: two
            fields hold an entity each. They follow the entities in the observation space.
        respawns: True lets an agent whose episode has ended start the next one while others still
            play (in a `VecEnv`, this needs autoreset "same_step"). False makes the agent wait until
            the episodes of all participating agents have ended.
        name: default: the name of `play`, or of its module if the function is called `play`.
        look: `module:name` of an `entity_env.views.Look` that draws the game, imported only for
            drawing; default: a module `NAME_look` next to the file of `play`, if it exists.
        players: `module:name` of the `entity_env.agents.GameAgents` included with the game,
            imported only to load agents by name.
        training: trainer settings that differ from the defaults, by name,
            `{"preset": "board", "net": {"n_layer": 1}}`; or the `module:name` of an
            `entity_env.vec.GameTraining`, imported only to train or evaluate.
        max_entities: the largest number of entities with the default settings, by name of the
            entity type, for types whose number varies. Adapters to other libraries make arrays of
            this size.
        transport: how the game waits for its actions in a `VecEnv`, see `Transport`; "thread" for a
            game that runs an event loop. The `VecEnv` may override it.
        version: version of the rules, a line of 1 to 64 characters or an integer; change it when
            you change the rules. Stored in runs, datasets and replays; commands report differences.

    Raises:
        UsageError: an unknown transport or an invalid version.
        SchemaError: a class that cannot be featurized, fewer than one agent, a `play` that has no
            `seed`, is `async` or is a generator, or an annotation of a setting with unknown names.
    """

    def __init__(
        self,
        play: Callable[..., None],
        *,
        entities: Iterable[type],
        actions: Iterable[ActionKey],
        global_features: type | None = None,
        relations: Iterable[type] = (),
        num_agents: int = 1,
        respawns: bool = False,
        name: str | None = None,
        look: str | None = None,
        players: str | None = None,
        training: str | Mapping[str, object] | None = None,
        max_entities: Mapping[str, int] | None = None,
        transport: Transport = "greenlet",
        version: str | int | None = None,
    ) -> None:
        require_choice("transport", transport, get_args(Transport))
        _require_version(version)
        self.version = version
        self.play = play
        self.name = name or _name_of(play)
        self.num_agents = num_agents
        self.respawns = respawns
        self.look = look
        self.players = players
        self.training = training
        self.max_entities: Mapping[str, int] = dict(max_entities or {})
        self.transport: Transport = transport
        self.schema = Schema(entities, actions, global_features, self.name, relations)
        self.parameters = _parameters_of(play, self.name)
        """Settings of `play`, by name."""
        self.settings: Mapping[str, Any] = {}
        """Values that differ from the defaults."""
        if num_agents < 1:
            raise SchemaError(f"{self.name}: num_agents must be at least 1, got {num_agents}")

    def obs_space(self) -> ObsSpace:
        """The observation space."""
        return self.schema.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """The action space."""
        return self.schema.action_space()

    def with_settings(self, /, **settings: object) -> Game:
        """A copy of the game with other values for some keyword arguments of `play`.

        Strings are parsed according to the annotation, as on the command line.

        Raises:
            UsageError: an argument that `play` does not have, or a value of the wrong type.
        """
        game = Game.__new__(Game)
        game.__dict__.update(self.__dict__)
        game.settings = {**self.settings, **{k: self._checked(k, v) for k, v in settings.items()}}
        return game

    def open_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """The settings that could name a file or anything else outside the game.

        Settings that `play` does not have are left out. So are numbers, flags, None, and members
        of an Enum or a `Literal`, because these are safe to take from a file.
        """
        return {
            name: value
            for name, value in settings.items()
            if name in self.parameters
            and not is_plain_setting(value, self.parameters[name].annotation)
        }

    def with_transport(self, transport: Transport | None) -> Game:
        """A copy of the game with another transport; None = no change.

        Raises:
            UsageError: an unknown transport.
        """
        if transport is None:
            return self
        require_choice("transport", transport, get_args(Transport))
        game: Game = object.__new__(type(self))
        game.__dict__.update(self.__dict__, transport=transport)
        return game

    def require_settings(self) -> None:
        """Raises UsageError if a setting has neither a default nor a value."""
        for name, parameter in self.parameters.items():
            if parameter.default is parameter.empty and name not in self.settings:
                raise UsageError(
                    f"{self.name}: setting {name!r} has no default: give it a value, "
                    f"with_settings({name}=...) or --set {name}=..."
                )

    def start(self, agents: Sequence[Agent], seed: int) -> None:
        """Calls `play` once.

        Raises:
            SchemaError: `play` uses its single agent as a list, or its list as a single agent.
        """
        first = agents[0] if self.num_agents == 1 else list(agents)
        try:
            with Ungrouped():
                self.play(first, seed=seed, **self.settings)
        except (AttributeError, TypeError) as error:
            if not (problem := _wrong_number(first, error)):
                raise
            trace = error.__traceback__
            raise SchemaError(f"{self.name}: {problem} ({error})").with_traceback(trace) from None

    def run(
        self,
        *agents: Agent,
        seed: int = 0,
        episodes: int = 1,
        watch: Watch | None = None,
        step_timeout_s: float | None = None,
        limits: RunLimits | None = None,
        **settings: object,
    ) -> list[Episode]:
        """Plays episodes in this thread.

        Args:
            agents: `num_agents` agents. One object may fill several seats: it plays the first, and
                copies with their own state play the others. The copies share one network and one
                random stream, so they choose differently than separate agents with equal seeds.
            seed: seed of the run, 0 or more.
            episodes: number of episodes; afterwards `act` returns None.
            watch: called with a `Turn` after every decision and at the end of every episode; a
                `RunWatcher` such as a `ReplayWriter` is also called when the run starts and ends.
            step_timeout_s: maximum seconds between two calls of `act` before the game counts as
                hanging; None = no limit. `StepTimeout` lists the hangs that can be interrupted.
            limits: the first episode, and limits of the agents; None = no limits.
            settings: as for `with_settings`.

        Returns:
            The episodes of every agent, in the order of the agents.

        Raises:
            UsageError: an invalid argument, such as the wrong number of agents; an invalid or
                missing setting; or an agent that fills several seats and cannot be copied.
            ProtocolError: `play` returned without `game_over`, or continues after `act` returned
                None.
            WorkerError: the game or an agent hangs, or the game calls `sys.exit()` or raises some
                other exception that is not an `Exception`. An `Exception` of the game, any
                exception of an agent, and Ctrl-C are raised unchanged.
        """
        limits = RunLimits() if limits is None else limits
        seeds = EpisodeSeeds(seed)
        return self._run(agents, seeds, episodes, watch, step_timeout_s, limits, settings)

    def play_episode(
        self,
        *agents: Agent,
        seed: int,
        watch: Watch | None = None,
        step_timeout_s: float | None = None,
        limits: RunLimits | None = None,
        **settings: object,
    ) -> list[Episode]:
        """Plays the one episode with this seed.

        Args:
            seed: seed of the episode itself, as in `Episode.seed`; `run` derives it from the seed
                of the run.
            agents, watch, step_timeout_s, settings: as for `run`.
            limits: as for `run`, without `first_episode`.

        Returns:
            The episode of every agent, in the order of the agents.

        Raises:
            UsageError, ProtocolError, WorkerError: as `run`.
        """
        limits = RunLimits() if limits is None else replace(limits, first_episode=0)
        return self._run(agents, SeedsFrom(seed), 1, watch, step_timeout_s, limits, settings)

    def _run(
        self,
        agents: Sequence[Agent],
        seeds: EpisodeSeeds,
        episodes: int,
        watch: Watch | None,
        step_timeout_s: float | None,
        limits: RunLimits,
        settings: Mapping[str, object],
    ) -> list[Episode]:
        game = self.with_settings(**settings) if settings else self
        if episodes < 1:
            raise UsageError(f"{game.name}: episodes must be at least 1, got {episodes}")
        game.require_settings()
        if len(agents) != game.num_agents:
            raise UsageError(f"{game.name} is for {game.num_agents} agents, got {len(agents)}")
        timeout = StepTimeout(step_timeout_s, limits.agent_timeout_s, limits.timer)
        runs = [
            AgentRun(game.schema, i, episodes, seeds, watch, timeout, limits)
            for i in range(len(agents))
        ]
        for run in runs:
            run.seats = runs
            run.match = () if game.respawns else runs
            run.is_running = True
        try:
            seats = _seats(agents, runs)
            if not isinstance(watch, RunWatcher):
                return game._play_episodes(seats, runs, seeds, timeout)
            watch.begin_run(game, seats, seeds, episodes)
            try:
                played = game._play_episodes(seats, runs, seeds, timeout)
            except BaseException as error:
                watch.end_run(error)
                raise
            watch.end_run(None)
            return played
        finally:
            for run in runs:
                run.is_running = False

    def _play_episodes(
        self,
        agents: Sequence[Agent],
        runs: Sequence[AgentRun],
        seeds: EpisodeSeeds,
        timeout: StepTimeout,
    ) -> list[Episode]:
        with timeout:
            while True:
                number = max(run.number for run in runs)
                for run in runs:  # including agents that skipped the last episode
                    run.number = number
                try:
                    self._play_once(agents, runs, seeds[number])
                    is_cut = any(run.is_cut for run in runs)
                    for run in runs if is_cut else ():
                        run.returned()
                    if any(run.is_stopped for run in runs):
                        break  # possibly mid-episode, in a multi-agent game
                    if is_cut:
                        continue
                    unfinished = [run.agent_id for run in runs if run.is_playing]
                    if unfinished or all(run.number == number for run in runs):
                        raise no_game_over(self.name, unfinished or [0])
                except (UsageError, MissingExtraError):
                    raise  # unrelated to an episode
                except Exception as error:
                    if is_a(error, WorkerError) and error.seed is not None:
                        raise  # its location is known
                    if any(run.has_refused for run in runs):
                        add_note(error, AFTER_NONE)
                    add_note(error, _place_of(runs, seeds, number))
                    raise
        return [episode for run in runs for episode in run.episodes]

    def _play_once(self, agents: Sequence[Agent], runs: Sequence[AgentRun], seed: int) -> None:
        """Calls `play` once; turns a hang, a program exit or an ignored None into an error."""
        try:
            self.start(agents, seed)
        except GameExit:
            if any(run.is_left for run in runs):
                return
            raise ProtocolError(
                f"{self.name}: play continues after act returned None: it must return"
            ) from None
        except BaseException as error:
            if is_a(error, GameHangs) or not any(run.is_deciding for run in runs):
                refuse_exit(
                    error,
                    seed=max(runs, key=lambda run: run.number).seed,
                    episode=max(run.number for run in runs),
                    step=max(run.num_steps for run in runs),
                )
            raise

    def _checked(self, name: str, value: object) -> object:
        if name not in self.parameters:
            known = ", ".join(self.parameters) or "none"
            raise UsageError(f"{self.name} has no setting {name!r}; it has {known}")
        where = f"{self.name}: setting {name!r}"
        parameter = self.parameters[name]
        if isinstance(value, str):
            return parse_setting(value, parameter.annotation, where)
        return check_setting(value, parameter.annotation, where)

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"Game({self.name}{settings})"


class Ungrouped:
    """Context that unwraps this package's errors from exception groups.

    A game may wrap errors in a group, as `asyncio.TaskGroup` does. Groups with other errors pass
    unchanged. This is not a `contextmanager` generator, because a generator sets the traceback of
    every exception that passes, which fails for an exception that is a frozen dataclass.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        group: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if group is None or not is_a(group, BaseExceptionGroup):
            return
        _, others = group.split((GameExit, GameHangs, EntityEnvError))
        if others is None:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None


def _seats(agents: Sequence[Agent], runs: Sequence[AgentRun]) -> list[Agent]:
    """One agent per run: an agent that fills several seats is copied."""
    seats: list[Agent] = []
    for agent, run in zip(agents, runs, strict=True):
        seat = agent.take_seat(run)
        if any(seat is other for other in seats):
            raise one_per_seat(agent, "its state cannot be told apart by seat")
        seats.append(seat)
    return seats


def _place_of(runs: Sequence[AgentRun], seeds: EpisodeSeeds, first: int) -> str:
    """Seed, episode and step of an error in a call of `play` that began with episode `first`."""
    playing = [run for run in runs if run.is_playing]
    last = max(first, *(run.number - 1 for run in runs))  # the ended episode, if none is running
    number = max((run.number for run in playing), default=last)
    step = max((run.num_steps for run in playing), default=0)
    return f"seed {seeds[number]}, episode {number}, step {step}"


def no_game_over(game: str, agent_ids: Sequence[int]) -> ProtocolError:
    """Error for a `play` that returned during an episode, or without playing one."""
    which = ", ".join(map(str, agent_ids))
    return ProtocolError(
        f"{game}: play returned without game_over for agent {which}; end every episode with "
        "agent.game_over(Obs(score=...)), and return only then or when act returns None; act after "
        "game_over begins another episode"
    )


def _wrong_number(first: Agent | list[Agent], error: AttributeError | TypeError) -> str:
    """How to fix a `play` that expects one agent and gets a list, or vice versa; else empty."""
    if isinstance(first, list):
        is_one = isinstance(error, AttributeError) and error.obj is first
        return "play gets a list of agents: for a game with one, num_agents=1" if is_one else ""
    text = text_of(error)
    is_list = re.search(rf"\b{type(first).__name__}\b", text) and re.search(
        r"itera|subscript|len\(\)|item|revers", text
    )
    return "play gets one agent, not a list: Game(num_agents=2) has two" if is_list else ""


def _require_version(version: object) -> None:
    is_text = (
        isinstance(version, str) and version.isprintable() and 0 < len(version) <= _MAX_VERSION
    )
    if not (is_text or version is None or type(version) is int):
        raise UsageError(
            f"version must be an integer or a line of 1 to {_MAX_VERSION} characters, got "
            f"{shown(version)}"
        )


def _name_of(play: Callable[..., None]) -> str:
    name = getattr(play, "__name__", type(play).__name__)
    return str(play.__module__.rpartition(".")[2]) if name == "play" else str(name)


def _parameters_of(play: Callable[..., None], name: str) -> dict[str, inspect.Parameter]:
    called = (play, type(play).__call__)  # a game may also be a callable object
    if any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in called):
        raise SchemaError(
            f"{name}: play must be a plain function, not async: def play(agent, *, seed), which "
            'may call asyncio.run(...), in a Game(transport="thread")'
        )
    if any(map(inspect.isgeneratorfunction, called)):
        raise SchemaError(f"{name}: play must be a plain function, without yield")
    parameters = parameters_of(play)
    if "seed" not in parameters:
        raise SchemaError(f"{name}: play must take a keyword argument seed: play(agent, *, seed)")
    return {
        key: parameter.replace(annotation=_evaluated(parameter.annotation, play, f"{name}: {key}"))
        for key, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key != "seed"
    }


def _evaluated(annotation: object, play: Callable[..., None], where: str) -> object:
    """The evaluated annotation of a setting.

    The annotation of `agent` is not evaluated: it may use imports that exist only for type
    checkers.
    """
    try:
        if isinstance(annotation, str):
            function = inspect.unwrap(play.func if isinstance(play, partial) else play)
            names = getattr(function, "__globals__", None) or type(function).__call__.__globals__
            return without_aliases(eval(annotation, dict(names)))
        return without_aliases(annotation)
    except NameError as error:
        raise SchemaError(
            f"{where}: the annotation {annotation!r} names {error.name!r}, which its module lacks"
        ) from error
