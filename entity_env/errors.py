"""Exception classes of entity_env, and who is responsible for each.

EntityEnvError
├── SchemaError        a type, observation or action contradicts its declaration: the game's author
│   ├── ContractError  `check_env` or `check_game` found violations, and lists all: the same author
│   └── AnswerError    a scripted agent chose an action that was not requested or not allowed: the
│                      agent's author
├── ProtocolError      calls in an order that can never work: the caller
├── ClosedError        an object was used after it was closed: the caller
├── WorkerError        a game raised or hung, or a process died: the game, or the machine
├── TrainingDivergedError  a number in training is no longer finite: training settings, or rewards
├── CheckpointError    a checkpoint is unreadable or of a game with another schema: the file
├── ReplayError        a replay is unreadable or cannot be played: the file
├── UsageError         a name, path, setting or argument does not exist or is invalid: the user
└── MissingExtraError  an optional package is not installed: the installation

A message says what was expected, what was given, where, and how to fix it.
`GameExit` is not an error: it unwinds a game that is being closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Final

_LONGEST_SHOWN: Final = 80


def shown(value: object) -> str:
    """`repr(value)` for a message, truncated to 80 characters; the type if `repr` raises."""
    is_text = isinstance(value, str | bytes)
    try:
        text = repr(value[:_LONGEST_SHOWN] if is_text else value)  # type: ignore[index]  # a text
    except Exception:  # deep lists; integers of over 4,300 digits; half-initialized objects
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class EntityEnvError(Exception):
    """Base class of all errors of this package."""


class SchemaError(EntityEnvError, ValueError):
    """A type, an observation or an action does not match its declaration."""


class ContractError(SchemaError):
    """An environment or a game violates the contract.

    Args:
        name: the environment or game.
        problems: all violations found, one sentence each.
    """

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        self.name = name
        self.problems = tuple(problems)
        count = f"{len(self.problems)} violation{'s' if len(self.problems) > 1 else ''}"
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{name}: {count} of the contract:{lines}")

    def __reduce__(self) -> tuple[type[ContractError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.name, self.problems)


class AnswerError(SchemaError):
    """A scripted agent chose an action that was not requested or is not allowed."""


class ProtocolError(EntityEnvError, RuntimeError):
    """Calls in an impossible order; the message names the expected call."""


class ClosedError(EntityEnvError, RuntimeError):
    """An object was used after `close()`."""


class TrainingDivergedError(EntityEnvError, ArithmeticError):
    """A loss, gradient or parameter is no longer finite; none of these values was saved."""


class CheckpointError(EntityEnvError, ValueError):
    """A checkpoint is unreadable, or belongs to a game with another schema."""


class ReplayError(EntityEnvError, ValueError):
    """A replay is unreadable, or cannot be played again."""


class UsageError(EntityEnvError, ValueError):
    """A game, file, setting or argument from the user does not exist or is invalid."""


class MissingExtraError(EntityEnvError, ImportError):
    """A package is not installed; `extra` is "" for one that the package itself needs."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self._arguments = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package {package!r}, {_state_of(package)}: "
            + (f"pip install 'entity-env[{extra}]'" if extra else f"pip install {package}")
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        return type(self), self._arguments


def _state_of(package: str) -> str:
    """Whether a package, such as `gymnasium>=1.1`, is missing or too old."""
    from importlib.metadata import PackageNotFoundError, version  # takes 20 ms

    name, _, wanted = package.partition(">=")
    try:
        return f"but version {version(name)} is installed" if wanted else "which is not installed"
    except PackageNotFoundError:
        return "which is not installed"


def install_hint(error: ImportError, name: str) -> str:
    """ ": pip install X" if an import failed since its package is not installed, else "".

    Args:
        name: what was imported, if the error does not name it, such as `ale_py:ALE/Pong-v5`.
    """
    from importlib.util import find_spec

    package = (error.name or name).partition(":")[0].partition(".")[0]
    is_missing = isinstance(error, ModuleNotFoundError) and find_spec(package) is None
    return f": pip install {package}" if is_missing else ""


class WorkerError(EntityEnvError, RuntimeError):
    """A game raised or hung, or a process that runs games or learns died or failed.

    Attributes:
        reason: what happened, without the location.
        env_id: index of the environment; None if the error does not concern a single one, and in
            `Game.run`.
        worker: index of the worker process; None if there is none, as for a game in this process.
        seed: seed of the episode; None, like `episode` and `step`, if the episode is unknown.
        episode: number of the episode in its environment or run, from 0.
        step: number of actions taken in that episode.
        game_traceback: the game's own traceback as text, empty if there is none.
        replay: file of the episode up to the error, empty if there is none.
    """

    def __init__(
        self,
        message: str,
        *,
        env_id: int | None = None,
        worker: int | None = None,
        seed: int | None = None,
        episode: int | None = None,
        step: int | None = None,
        game_traceback: str = "",
    ) -> None:
        self.reason = message
        self.env_id = env_id
        self.worker = worker
        self.seed = seed
        self.episode = episode
        self.step = step
        self.game_traceback = game_traceback
        self.replay = ""
        where = {
            "env": env_id,
            "worker": worker,
            "seed": seed,
            "episode": episode,
            "step": step,
        }
        place = ", ".join(f"{name} {value}" for name, value in where.items() if value is not None)
        text = f"{message} ({place})" if place else message
        super().__init__(f"{text}\n{game_traceback}" if game_traceback else text)

    def name_replay(self, path: str) -> None:
        """Sets `replay` and adds it to the message."""
        self.replay = path
        text = str(self)
        trace = f"\n{self.game_traceback}" if self.game_traceback else ""
        self.args = (
            f"{text.removesuffix(trace)}; replay: {path}; entity-env replay {quote(path)} "
            f"--debug -1 stops just before the failure{trace}",
        )


class GameExit(BaseException):
    """Raised inside `agent.act` when a suspended game is closed.

    In `Game.run`, `act` and `game_over` also raise it in a game that has continued for 100 calls
    after `act` returned None.
    A `BaseException`: `except Exception` in a game does not catch it.
    """
