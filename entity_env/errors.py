"""The errors of entity_env, and whose fault each one is.

EntityEnvError
├── SchemaError        a type, observation or action does not fit what was declared: the game's
│   ├── ContractError  author; `check_env` and `check_game` list all that they find
│   └── AnswerError    a scripted agent answered what was not asked or not allowed: its author
├── ProtocolError      calls in an order that can never work: the caller
├── ClosedError        something was used after it was closed: the caller
├── WorkerError        a game raised, hung, or its process died: the game, or the machine
├── TrainingDivergedError  training no longer computes with finite numbers: its settings, or rewards
├── CheckpointError    a checkpoint cannot be read, or belongs to another game: the file
├── ReplayError        a replay cannot be read, or not be played: the file
├── UsageError         a name, path or setting that the user typed does not exist: the user
└── MissingExtraError  an optional package is not installed: the installation

A message says what was expected, what came, where, and how to mend it.
`GameExit` is not an error: it unwinds a suspended game when its driver closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Final

_LONGEST_SHOWN: Final = 80


def shown(value: object) -> str:
    """`repr(value)` for a message, cut to 80 characters: the value may come from any file."""
    is_text = isinstance(value, str | bytes)
    try:
        text = repr(value[:_LONGEST_SHOWN] if is_text else value)  # type: ignore[index]  # a text
    except Exception:  # deep lists; integers of more than 4,300 digits; an object half made
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class EntityEnvError(Exception):
    """Base of every error that this package raises on purpose."""


class SchemaError(EntityEnvError, ValueError):
    """A type, an observation or an action does not fit what was declared."""


class ContractError(SchemaError):
    """An environment or a game breaks the contract.

    Args:
        name: which environment or game.
        problems: every violation that was found, one sentence each.
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
    """A scripted agent answered what was not asked, or what is not allowed."""


class ProtocolError(EntityEnvError, RuntimeError):
    """Calls came in an order that can never work; the message names the call that was expected."""


class ClosedError(EntityEnvError, RuntimeError):
    """Something was used after `close()`."""


class TrainingDivergedError(EntityEnvError, ArithmeticError):
    """A loss, a gradient or a parameter is no longer finite; nothing of that was saved."""


class CheckpointError(EntityEnvError, ValueError):
    """A checkpoint cannot be read, or it belongs to a game with another schema."""


class ReplayError(EntityEnvError, ValueError):
    """A replay cannot be read, or not be played again."""


class UsageError(EntityEnvError, ValueError):
    """A game, file or setting that the user named does not exist or cannot be read."""


class MissingExtraError(EntityEnvError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self._arguments = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: "
            f"pip install 'entity-env[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        return type(self), self._arguments


class WorkerError(EntityEnvError, RuntimeError):
    """A game raised, hung, or the process that ran it died.

    Attributes:
        reason: what happened, without the place.
        env_id: index of the environment, or None when a whole worker is meant.
        worker: index of the worker process, or None when the game ran in this process.
        seed: of the episode; None before the first one.
        episode: number of the episode in its environment, from 0.
        step: number of actions taken in that episode.
        game_traceback: the game's own traceback as text, empty when there is none.
        replay: file of the episode up to there, empty when there is none.
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
        """Sets `replay`, and adds it to the message."""
        self.replay = path
        text = str(self)
        trace = f"\n{self.game_traceback}" if self.game_traceback else ""
        self.args = (
            f"{text.removesuffix(trace)}; replay: {path}; entity-env replay {quote(path)} "
            f"--debug -1 stops just before it{trace}",
        )


class GameExit(BaseException):
    """Raised inside a suspended `agent.act` when the game is closed.

    A `BaseException`, so that `except Exception` in a game lets it pass and `finally` blocks run.
    """
