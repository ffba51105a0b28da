"""`ExternalGame`: a game in another language as a `Game`."""

from __future__ import annotations

import hashlib
import inspect
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.action_type import (
    ActionKey,
    ActionType,
    GlobalCategorical,
    SelectEntity,
    kind_of_space,
)
from entity_env.authoring.agent import Agent
from entity_env.authoring.entity_type import class_of_features
from entity_env.authoring.game import Game
from entity_env.authoring.obs import Obs, Rows
from entity_env.batching.frame import Frame, FrameLayout
from entity_env.core.files import MAX_CODE_BYTES, below, file_digest, read_file, real_path
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ContinuousActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import VecActionMask
from entity_env.errors import SchemaError, UsageError, WorkerError
from entity_env.vec.external.frames import (
    FAILED,
    STARTED,
    TRUNCATED,
    UNKNOWN_FAILURE,
    WAITS,
    StepMessage,
    StepParser,
    packed,
)
from entity_env.vec.external.messages import HelloMessage, Kind, ReadyMessage
from entity_env.vec.external.program import Link, Program

PREFIX: Final = "exec"
"""`exec:COMMAND` is the name of a game in a program; `exec+tcp:COMMAND` also names the link."""
LISTEN: Final = "listen"
"""`listen:ADDRESS` is the name of a game in a program that somebody else starts."""
_MAX_FILE_BYTES: Final = 1 << 20
_FILE_KEYS: Final = ("command", "address", "folder", "link", "settings")


class ExternalGame(Game):
    """A game played by a program in any language::

        game = ExternalGame("node snake.mjs", board_size=8)
        with VecEnv(game, 1024) as vec:
            train(vec, PPOConfig.for_env(vec))

    A `VecEnv` starts one program for all its environments, or one per worker. Everything else
    plays one copy at a time, in a program that is kept until `close` or until this object is
    collected. `docs/reference/protocol.md` specifies what the program does.

    Args:
        command: program and arguments, as a shell would split them, or as a list.
        folder: working folder of the program; None = the current one.
        link: how it is connected: "unix" (a Unix socket), "tcp" (this machine only) or "stdio"
            (standard input and output). On Windows only "tcp".
        address: `unix:PATH` or `tcp:127.0.0.1:PORT`, where to wait for a program that somebody else
            starts, instead of a command. This object, every process of a `VecEnv`, and every other
            use wait there for a separate program.
        settings: of the game; strings are parsed as for `Game.with_settings`.

    Raises:
        UsageError: the program cannot be started, or has no such setting.
        MessageError: it violates the protocol.
        WorkerError: it exits or does not answer.
    """

    def __init__(
        self,
        command: str | Sequence[str] = (),
        *,
        folder: str | Path | None = None,
        link: Link = "unix",
        address: str = "",
        **settings: object,
    ) -> None:
        self.command = tuple(shlex.split(command) if isinstance(command, str) else command)
        if bool(self.command) == bool(address):
            raise UsageError(
                "an ExternalGame needs either a command to run, or an address to wait at"
            )
        self.address = address
        self.folder = None if folder is None else Path(folder)
        self.link: Link = link
        words = "" if link == "unix" else f"+{link}"
        self.source = f"{LISTEN}:{address}" if address else f"{PREFIX}{words}:"
        self.source += shlex.join(self.command)
        """Name of the game, for `named`."""
        program = self.start_program()
        try:
            self.hello: HelloMessage = program.hello
            self.name = self.hello.name
            self.parameters = _parameters_of(self.hello)
            self.settings = {name: self._checked(name, each) for name, each in settings.items()}
            ready = program.start(1, self.values(), hold=True)
            try:
                self._describe(ready)
            except SchemaError as error:
                program.refuse(str(error))
        finally:
            program.close()

    def _describe(self, ready: ReadyMessage) -> None:
        """Makes the classes and actions of the program's spaces."""
        self.ready = ready
        settings = self.settings
        obs_space, action_space = self.ready.spaces
        classes: dict[str, type] = {}
        for name, entity in obs_space.entities.items():  # relations come last
            references = [classes[other] for other in entity.references or ()]
            classes[name] = class_of_features(name, entity.features, references)
        relations = [classes[name] for name in obs_space.relations]
        global_features = (
            class_of_features(GLOBAL_ENTITY, obs_space.global_features)
            if obs_space.global_features
            else None
        )
        kinds = [
            SelectEntity(classes[self.ready.selects[name]], name, space.given)
            if isinstance(space, SelectEntityActionSpace)
            else kind_of_space(name, space)
            for name, space in action_space.items()
        ]
        play = _Loop(self, classes, global_features, kinds)
        super().__init__(
            play,
            entities=[cls for cls in classes.values() if cls not in relations],
            relations=relations,
            actions=tuple(map(_key_of, kinds)),
            global_features=global_features,
            num_agents=self.ready.num_agents,
            name=self.name,
            max_entities=self.ready.max_entities,
            version=self.hello.version,
        )
        self.settings = settings
        self._obs_space = obs_space

    @classmethod
    def named(cls, name: str, settings: Mapping[str, object] | None = None) -> ExternalGame:
        """The game of a name.

        A name is `exec:COMMAND`, `exec+LINK:COMMAND`, `listen:ADDRESS`, or a file `NAME.toml`. The
        file has the keys `command` (text or list) or `address`, `folder` (relative to the file;
        default: its own folder), `link` and `settings`.

        Raises:
            UsageError: another name, or a file that cannot be read.
        """
        given: dict[str, Any] = dict(settings or {})
        if name.endswith(".toml"):
            options, own = _options_of(Path(name))
            game = cls(**options, **{**own, **given})
            game.source = below(Path(name))
            return game
        if name.startswith(f"{LISTEN}:"):
            return cls(address=name.partition(":")[2], **given)
        command, link = _command_of(name)
        return cls(command, link=link, **given)

    def code_digest(self) -> str:
        """SHA-256 of the files that the command names; "" if it names none.

        Raises:
            OSError: a file is too large or unreadable.
        """
        return _digest_of(self.command, self.folder or Path())

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def values(self) -> dict[str, object]:
        """A value for every setting of the program."""
        return {**self.hello.settings, **self.settings}

    def start_program(self, *, quiet: bool = False) -> Program:
        """Starts the program; arguments and errors as for `Program`."""
        return Program(self.command, self.folder, self.link, address=self.address, quiet=quiet)

    def close(self) -> None:
        """Ends the programs that are kept for `run`; the next `run` starts a new one."""
        self.play.close()  # type: ignore[attr-defined]  # a `_Loop`

    def with_settings(self, /, **settings: object) -> ExternalGame:
        """The game with other settings; its spaces may differ."""
        if not settings:
            return self
        game = ExternalGame(
            self.command,
            folder=self.folder,
            link=self.link,
            address=self.address,
            **{**self.settings, **settings},
        )
        game.source = self.source
        return game

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker generates the classes again: a pickled copy of such a dataclass has no fields.
        names = ("command", "folder", "link", "address", "source", "hello", "settings")
        return _again, ({name: getattr(self, name) for name in names}, self.ready)


class ProgramCode(NamedTuple):
    """The code that the game of a name runs.

    Args:
        name: with the folder in which it was given.
        file: `NAME.toml`, which has the command; None if the name has it.
        command: of the program; empty for `listen:ADDRESS`.
    """

    name: str
    file: Path | None
    command: tuple[str, ...]

    def digest(self) -> str:
        """SHA-256 of the files that the command names, and of `NAME.toml`.

        Raises:
            OSError: a file is too large.
        """
        command, folder = self.command, Path()
        if self.file is not None:
            with suppress(UsageError):  # of a file that names no game
                options, _ = _options_of(self.file)
                command, folder = options["command"], options["folder"]
            command = (str(self.file), *command)
        return _digest_of(command, folder) or "no files"


def program_code(name: str) -> ProgramCode:
    """The code of a program that is a game; opens nothing.

    Raises:
        UsageError: the name is invalid.
    """
    if name.endswith(".toml"):
        file = real_path(Path(name))
        return ProgramCode(f"program {file}", file, ())
    if name.startswith(f"{LISTEN}:"):
        return ProgramCode(name, None, ())
    return ProgramCode(f"{name} in {Path.cwd()}", None, tuple(_command_of(name)[0]))


def _command_of(name: str) -> tuple[list[str], Link]:
    start, _, command = name.partition(":")
    kind, _, link = start.partition("+")
    for each in get_args(Link):
        if kind == PREFIX and (link or "unix") == each:
            try:
                return shlex.split(command), each
            except ValueError as error:
                raise UsageError(f"the command in {name!r} cannot be split: {error}") from error
    choices = ", ".join(f"{PREFIX}+{each}:COMMAND" for each in get_args(Link))
    raise UsageError(
        f"a program is named {PREFIX}:COMMAND, {choices}, or {LISTEN}:ADDRESS: got {name!r}"
    )


def _digest_of(command: Sequence[str], folder: Path) -> str:
    """SHA-256 of the files among the words of a command; "" if there are none."""
    digests = []
    for word in command:
        with suppress(ValueError):
            path = Path(folder, word)
            if _is_file(path):
                digests.append(file_digest(path, MAX_CODE_BYTES))
    if len(digests) < 2:
        return "".join(digests)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a name
        return False


def _options_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of an `ExternalGame` in a file, and the settings."""
    try:
        data = tomllib.loads(read_file(path, _MAX_FILE_BYTES).decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    unknown = [key for key in data if key not in _FILE_KEYS]
    if unknown or not ("command" in data) ^ ("address" in data):
        problem = f"an unknown key {unknown[0]!r}" if unknown else "no command, or also an address"
        raise UsageError(
            f"{path} has {problem}; a game's file has the keys {', '.join(_FILE_KEYS)}"
        )
    command, settings = data.get("command", ()), data.get("settings", {})
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise UsageError(f"{path}: the command {command!r} cannot be split: {error}") from error
    is_text = isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
    if not is_text or ("command" in data and not words):
        raise UsageError(f"{path}: command must be a text or a list of texts, got {command!r}")
    folder, address = data.get("folder", "."), data.get("address", "")
    if not (isinstance(settings, dict) and isinstance(folder, str) and isinstance(address, str)):
        raise UsageError(f"{path}: folder and address must be texts, and settings a table")
    link = data.get("link", "unix")
    options = {"command": words, "folder": path.parent / folder, "link": link, "address": address}
    return options, settings


def _parameters_of(hello: HelloMessage) -> dict[str, inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return {
        name: inspect.Parameter(name, kind, default=value, annotation=type(value))
        for name, value in hello.settings.items()
    }


def _again(fields: Mapping[str, Any], ready: ReadyMessage) -> ExternalGame:
    """A game that was described before, without another start of its program."""
    game = ExternalGame.__new__(ExternalGame)
    vars(game).update(fields, name=fields["hello"].name)
    game._describe(ready)
    return game


class _Loop:
    """`play` of an `ExternalGame`: plays one copy in a program, which is kept for the next call."""

    def __init__(
        self,
        game: ExternalGame,
        classes: Mapping[str, type],
        global_features: type | None,
        kinds: Sequence[ActionType[Any]],
    ) -> None:
        # Not a method of the game: in a cycle, its programs would outlive it for a while.
        self._start = partial(Program, game.command, game.folder, game.link, address=game.address)
        self._values = game.values()
        self._ready = game.ready
        self._classes = classes
        self._globals = global_features
        self._kinds = kinds
        self._reader = StepParser(FrameLayout(*game.ready.spaces), game.ready)
        # A program that somebody else has started may be the only one.
        self._keeps = not game.address
        self._idle: list[Program] = []
        parameters = [
            inspect.Parameter("agents", inspect.Parameter.POSITIONAL_ONLY),
            inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY),
            *_parameters_of(game.hello).values(),
        ]
        self.__signature__ = inspect.Signature(parameters)
        self.__doc__ = game.hello.doc

    def __call__(self, agents: Any, /, *, seed: int, **settings: object) -> None:  # noqa: ANN401
        program = self._idle.pop() if self._idle else self._started()
        try:
            self._play(program, [agents] if self._ready.num_agents == 1 else agents, seed)
        finally:
            if self._keeps and not program.is_closed:
                self._idle.append(program)
            else:
                program.close()

    def close(self) -> None:
        """Ends the programs that wait for the next call."""
        while self._idle:
            self._idle.pop().close()

    def _started(self) -> Program:
        program = self._start()
        program.start(1, self._values, hold=True)
        return program

    def _play(self, program: Program, agents: Sequence[Agent], seed: int) -> None:
        reset = np.array([1, 0, seed], dtype="<u8").tobytes()
        step = self._request(program, Kind.RESET, [reset])
        if not step.copies[0] & STARTED:
            program.refuse("the copy has not started an episode after RESET")
        is_over = [False] * len(agents)
        while True:
            self._end(step, agents, is_over, program)
            waits = bool(step.copies[0] & WAITS)
            if waits == step.asks.any():
                program.refuse(
                    "the copy waits for a seed while its agents play"
                    if waits
                    else "the copy neither asks an agent nor waits for a seed"
                )
            if waits:
                return
            answers = self._ask(step, agents)
            if answers is None:
                return
            step = self._request(program, Kind.ACT, [bytes(8), *answers])

    def _request(self, program: Program, kind: Kind, parts: Sequence[bytes]) -> StepMessage:
        return program.read(program.request(kind, parts), partial(self._reader.read, 1))

    def _end(
        self, step: StepMessage, agents: Sequence[Agent], is_over: list[bool], program: Program
    ) -> None:
        """Ends the episodes of agents, or raises the error of the game."""
        ends = step.ends
        if ends is None:
            return
        for i, (row, flags) in enumerate(zip(ends.rows.tolist(), ends.flags.tolist(), strict=True)):
            if flags & FAILED:
                failure = step.failures.get(row, UNKNOWN_FAILURE)
                raise WorkerError(failure.message, game_traceback=failure.traceback)
            if is_over[row]:
                program.refuse(f"agent {row} has ended its episode twice")
            is_over[row] = True
            obs, _ = self._obs(ends.frame, i, float(ends.scores[i]), ends.metrics[:, i])
            agents[row].game_over(obs, truncated=bool(flags & TRUNCATED))

    def _ask(self, step: StepMessage, agents: Sequence[Agent]) -> list[bytes] | None:
        """The answers of all agents that are asked, for `ACT`; None if the game is to stop."""
        asked = np.flatnonzero(step.asks).tolist()
        shown = [
            self._obs(step.frame, row, float(step.scores[row]), step.metrics[:, row])
            for row in asked
        ]
        given: list[Any]
        if len(asked) == 1:
            [(obs, kinds)] = shown
            given = [agents[asked[0]].act(obs, *map(_key_of, kinds))]
        else:
            pending = [
                agents[row].act_async(obs, *map(_key_of, kinds))
                for row, (obs, kinds) in zip(asked, shown, strict=True)
            ]
            given = [each.get() for each in pending]
        if any(answer is None for answer in given):
            return None
        values: dict[str, list[Any]] = {kind.name: [] for kind in self._kinds}
        for answer, (_, kinds) in zip(given, shown, strict=True):
            answers = (answer,) if len(kinds) == 1 else answer
            for kind, each in zip(kinds, answers, strict=True):
                values[kind.name] += _values_of(kind, each)
        return [packed(kind.space, values[kind.name]) for kind in self._kinds]

    def _obs(
        self, frame: Frame, row: int, score: float, metrics: NDArray[np.float64]
    ) -> tuple[Obs, list[ActionType[Any]]]:
        """One row of a frame as an `Obs`, with the actions that it asks for."""
        obs = Obs(score)
        masks = frame.action_masks
        kinds = [kind for kind in self._kinds if len(masks[kind.name].actors[row])]
        acting: dict[int, tuple[ActionType[Any], ...]] = {}
        for kind in kinds:
            if not _is_global(kind):
                for index in masks[kind.name].actors[row].tolist():
                    acting[index] = (*acting.get(index, ()), kind)
        first = 0
        for name, cls in self._classes.items():
            values = frame.features[name][row].copy()
            if name in self._ready.spaces[0].relations:
                obs.relations(Rows(cls, values, range(len(values))))
            else:
                mine = {i - first: k for i, k in acting.items() if i >= first}
                _add_groups(obs, cls, values, mine)
            if name in frame.visible:
                obs.visible(cls, frame.visible[name][row].copy())
            first += len(values)
        if self._globals is not None and len(frame.features[GLOBAL_ENTITY][row]):
            obs.globals(Rows(self._globals, frame.features[GLOBAL_ENTITY][row].copy()))
        for kind in kinds:
            allowed = getattr(masks[kind.name], "mask", None)
            if allowed is not None:
                obs.mask(kind, _mask_of(kind, masks[kind.name], allowed[row].copy(), row))
        for name, value in zip(self._ready.metrics, metrics.tolist(), strict=True):
            if value == value:  # not NaN
                obs.metric(name, value)
        if obs.actor_groups is None:
            obs.actor_groups = []
        return obs, kinds or [kind for kind in self._kinds if not _is_global(kind)]


def _add_groups(
    obs: Obs, cls: type, values: NDArray[np.float32], acting: Mapping[int, tuple[Any, ...]]
) -> None:
    """Adds the entities of a class, in groups of neighbors that perform the same actions."""
    begin = 0
    while begin < len(values):
        kinds = acting.get(begin, ())
        end = begin + 1
        while end < len(values) and acting.get(end, ()) == kinds:
            end += 1
        rows = Rows(cls, values[begin:end], range(begin, end))
        obs.actors(rows, *kinds) if kinds else obs.entities(rows)
        begin = end


def _mask_of(
    kind: ActionType[Any], mask: VecActionMask, allowed: NDArray[np.bool_], row: int
) -> NDArray[np.bool_]:
    """The flags of one row as a mask for `Obs.mask`; three dimensions if it depends on others."""
    per_actor = getattr(mask, "per_actor", None)
    num_actors = len(mask.actors[row])
    if per_actor is not None:
        return allowed.reshape(num_actors, int(per_actor.values[row]), -1)
    return allowed.reshape(-1) if _is_global(kind) else allowed.reshape(num_actors, -1)


def _is_global(kind: ActionType[Any]) -> bool:
    return isinstance(kind, GlobalCategorical)


def _key_of(kind: ActionType[Any]) -> ActionKey:
    """Argument of `act` for an action: the Enum of a global action, as in games in Python.

    An action that depends on others is its own key, because the Enum does not name these.
    """
    if isinstance(kind, GlobalCategorical) and not kind.space.given:
        return type(kind.choices[0])
    return kind


def _values_of(kind: ActionType[Any], answer: Any) -> list[Any]:  # noqa: ANN401
    if isinstance(kind, GlobalCategorical):
        return [answer.value]
    if isinstance(kind.space, ContinuousActionSpace | SelectEntityActionSpace):
        return list(answer)
    return [each.value for each in answer]
