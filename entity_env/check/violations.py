"""`Violations` of the contract, and the comparisons and leak checks that find some of them."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.observation import Observation, SelectEntityActionMask
from entity_env.core.spaces import ObsSpace
from entity_env.errors import ContractError

_GRACE_S: Final = 2.0  # a thread or process that is ending needs a moment
_NUMBER: Final = re.compile(r"\d+")

Snapshot: TypeAlias = Mapping[str, NDArray[np.generic]]
"""Copies of the parts of an observation, except its ids, which may be any object."""
Trace: TypeAlias = Sequence[tuple[str, Snapshot]]
"""All observations of a run, each with its place."""


class Violations:
    """List of violations: each kind once, with the place of the first and their number.

    Args:
        name: of the environment or game.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = ""
        """Current place: "episode 0 (seed 7), step 3"."""
        self.cause: BaseException | None = None
        """First unexpected exception, for its traceback."""
        self.line = ""
        """Current line of the game: "game.py:12 in play"."""
        self._found: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, violation: str) -> None:
        """Adds one violation; texts that differ only in their numbers are one kind."""
        text = f"{self.place}: {violation}" if self.place else violation
        if self.line:
            text = f"{text} ({self.line})"
        kind = _NUMBER.sub("#", violation)
        first, count = self._found.get(kind, (text, 0))
        self._found[kind] = first, count + 1

    def extend(self, violations: Iterable[str]) -> int:
        """Adds several; returns how many."""
        found = list(violations)
        for violation in found:
            self.add(violation)
        return len(found)

    def raised(self, call: str, error: Exception) -> None:
        """Adds an exception that a call raised."""
        self.cause = self.cause or error
        self.add(f"{call} raised {type(error).__name__}: {error} ({_origin(error)})")

    def raise_if_any(self) -> None:
        """Raises a ContractError with all violations, if there are any."""
        if self._found:
            problems = [text + _repeats(count) for text, count in self._found.values()]
            raise ContractError(self.name, problems) from self.cause


@contextmanager
def nothing_left_behind(violations: Violations) -> Iterator[None]:
    """Adds a violation for each thread and child process started in the block and not ended."""
    import multiprocessing  # 15 ms, which importing the package need not pay

    threads = set(threading.enumerate())
    processes = set(multiprocessing.active_children())
    yield
    violations.place = "after close"
    for thread in set(threading.enumerate()) - threads:
        thread.join(_GRACE_S)
        if thread.is_alive():
            violations.add(f"the thread {thread.name!r} is left behind: join it")
    for process in set(multiprocessing.active_children()) - processes:
        process.join(_GRACE_S)
        if process.is_alive():
            violations.add(f"the process {process.name!r} is left behind: join it")


def is_finite(value: object) -> bool:
    """Whether a value is a finite number or a bool."""
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond any float
        return False


def snapshot(observation: Observation, obs_space: ObsSpace) -> Snapshot:
    """Copies of the parts of a valid observation, for comparison."""
    parts: dict[str, NDArray[np.generic]] = {
        "the reward": np.array(observation.reward),
        "terminated": np.array(observation.terminated),
        "truncated": np.array(observation.truncated),
        "the global features": np.array(observation.global_features),
    }
    for name, rows in observation.features.items():
        if len(rows):
            parts[f"entity {name!r}"] = np.array(rows)
    for name, seen in observation.visible.items():
        parts[f"the visible {name!r}"] = np.array(seen)
    for name, mask in observation.actions.items():
        parts[f"the actors of {name!r}"] = observation.actor_indices(name, obs_space)
        parts[f"the mask of {name!r}"] = np.array(getattr(mask, "mask", None))
        if isinstance(mask, SelectEntityActionMask):
            parts[f"the actees of {name!r}"] = observation.actee_indices(name, obs_space)
    return parts


def difference(first: Snapshot, second: Snapshot) -> str | None:
    """Sentence about the first part in which two observations differ; None when they agree."""
    for part in dict.fromkeys([*first, *second]):
        one, two = first.get(part), second.get(part)
        if one is None or two is None:
            return f"{part} {'appears' if one is None else 'is missing'} the second time"
        if not np.array_equal(one, two):
            return f"{part} is first {_brief(one)} and then {_brief(two)}"
    return None


def require_same(first: Trace, second: Trace, violations: Violations) -> None:
    """Adds a violation for the first step in which two runs of the same seed differ."""
    violations.place = ""
    for (place, one), (other_place, two) in zip(first, second, strict=False):
        differs = f"then comes {other_place}" if place != other_place else difference(one, two)
        if differs:
            violations.add(f"not the same twice for one seed: {place}: {differs}")
            return


def _repeats(count: int) -> str:
    return {1: "", 2: " (and once more)"}.get(count, f" (and {count - 1} times more)")


def _brief(array: NDArray[np.generic]) -> str:
    return np.array2string(array, threshold=20, edgeitems=2, separator=", ").replace("\n", "")


def _origin(error: Exception) -> str:
    """File and line where an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
