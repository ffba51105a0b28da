"""Breaches of the contract: collecting them, and what is compared or left behind."""

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

_GRACE_S: Final = 2.0  # a thread or process that has been told to end needs a moment to be gone
_NUMBER: Final = re.compile(r"\d+")

Snapshot: TypeAlias = Mapping[str, NDArray[np.generic]]
"""What an observation holds, part by part, as copies; ids are left out, which may be any object."""
Trace: TypeAlias = Sequence[tuple[str, Snapshot]]
"""All observations of a run, with where they were made."""


class Breaches:
    """Collects breaches, each kind once, with the place where it was seen first.

    Args:
        name: which environment or game.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = ""
        """Where the next breach will be seen: "episode 0 (seed 7), step 3"."""
        self.cause: BaseException | None = None
        """The first exception that was not expected, for its traceback."""
        self.line = ""
        """The line of the game that shows what is looked at: "game.py:12 in play"."""
        self._found: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, breach: str) -> None:
        """Adds one breach; those that differ in numbers alone count as one."""
        text = f"{self.place}: {breach}" if self.place else breach
        if self.line:
            text = f"{text} ({self.line})"
        kind = _NUMBER.sub("#", breach)
        first, count = self._found.get(kind, (text, 0))
        self._found[kind] = first, count + 1

    def extend(self, breaches: Iterable[str]) -> int:
        """Adds several and returns how many there were."""
        found = list(breaches)
        for breach in found:
            self.add(breach)
        return len(found)

    def raised(self, call: str, error: Exception) -> None:
        """Adds an exception that came out of a call."""
        self.cause = self.cause or error
        self.add(f"{call} raised {type(error).__name__}: {error} ({_origin(error)})")

    def raise_if_any(self) -> None:
        """Says everything that was found.

        Raises:
            ContractError: there was something.
        """
        if self._found:
            problems = [text + _repeats(count) for text, count in self._found.values()]
            raise ContractError(self.name, problems) from self.cause


@contextmanager
def nothing_left_behind(breaches: Breaches) -> Iterator[None]:
    """Adds a breach for each thread and child process that came in the block and stays."""
    import multiprocessing  # 15 ms, which importing the package need not pay

    threads = set(threading.enumerate())
    processes = set(multiprocessing.active_children())
    yield
    breaches.place = "after close"
    for thread in set(threading.enumerate()) - threads:
        thread.join(_GRACE_S)
        if thread.is_alive():
            breaches.add(f"the thread {thread.name!r} is left behind: join it")
    for process in set(multiprocessing.active_children()) - processes:
        process.join(_GRACE_S)
        if process.is_alive():
            breaches.add(f"the process {process.name!r} is left behind: join it")


def is_finite(value: object) -> bool:
    """Tells whether `value` is a number (or bool), and neither infinite nor NaN."""
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond any float
        return False


def snapshot(observation: Observation, obs_space: ObsSpace) -> Snapshot:
    """What a sound observation holds, to be compared with another one."""
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
        parts[f"what is visible of {name!r}"] = np.array(seen)
    for name, mask in observation.actions.items():
        parts[f"who performs {name!r}"] = observation.actor_indices(name, obs_space)
        parts[f"the mask of {name!r}"] = np.array(getattr(mask, "mask", None))
        if isinstance(mask, SelectEntityActionMask):
            parts[f"who is selected by {name!r}"] = observation.actee_indices(name, obs_space)
    return parts


def difference(first: Snapshot, second: Snapshot) -> str | None:
    """The first part in which two observations differ, in words; None when they agree."""
    for part in dict.fromkeys([*first, *second]):
        one, two = first.get(part), second.get(part)
        if one is None or two is None:
            return f"{part} {'appears' if one is None else 'is missing'} the second time"
        if not np.array_equal(one, two):
            return f"{part} is first {_brief(one)} and then {_brief(two)}"
    return None


def require_same(first: Trace, second: Trace, breaches: Breaches) -> None:
    """Adds a breach for the first step in which two runs with the same seeds and actions differ."""
    breaches.place = ""
    for (place, one), (other_place, two) in zip(first, second, strict=False):
        differs = f"then comes {other_place}" if place != other_place else difference(one, two)
        if differs:
            breaches.add(f"not the same twice for one seed: {place}: {differs}")
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
