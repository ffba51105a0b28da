"""`SourceCheck`: common code of the checks of environments and batch environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from entity_env.check.violations import CannotContinueError, Violations, nothing_left_behind
from entity_env.core.environment import Environment
from entity_env.vec.batch_env.batch_env import BatchEnv

T = TypeVar("T", Environment, BatchEnv)


class SourceCheck(ABC, Generic[T]):
    """One check of a kind of environment, given one or a function that makes them.

    `call` names the current call, for messages about exceptions.
    """

    def __init__(self, source: T | Callable[..., T], seed: int, max_steps: int) -> None:
        self.call = ""
        self._source: T | Callable[..., T] = source
        self._violations = Violations(getattr(source, "__name__", type(source).__name__))
        self._seed = seed
        self._max_steps = max_steps
        self._made: list[T] = []

    def run(self, episodes: int) -> None:
        """Plays, then closes every environment twice.

        Raises:
            ContractError: there are violations.
        """
        with nothing_left_behind(self._violations):
            try:
                self.play(episodes)
            except CannotContinueError:
                pass
            except Exception as error:
                self._violations.raised(self.call, error)
            finally:
                for env in self._made:
                    self._close(env)
        self._violations.raise_if_any()
        self._violations.log_likely_mistakes()

    @abstractmethod
    def play(self, episodes: int) -> None:
        """Plays the given number of episodes and adds violations."""

    def _close(self, env: T) -> None:
        for call in ("close", "close for the second time"):
            self._violations.place = ""
            try:
                env.close()
            except Exception as error:
                self._violations.raised(call, error)

    def _keep(self, env: T) -> T:
        if env not in self._made:
            self._made.append(env)
        return env

    def _stop(self, violation: str) -> NoReturn:
        self._violations.add(violation)
        raise CannotContinueError
