"""Plan: the contenders of a group, and how they are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Median
from benchmarks.peers.contender import Contender
from benchmarks.vec import Progress

_ROUND_S = 0.3

Rounds = dict[str, list[float]]
"""Measurements of every contender, one per round: µs per environment and step."""


@dataclass(frozen=True)
class Setup:
    """Settings of all groups.

    Args:
        num_rounds: measurements of each contender; the median is used.
        say: called with a message about the progress.
    """

    num_rounds: int
    say: Callable[[str], None]


Groups = Mapping[str, Callable[[Setup], dict[str, float]]]
"""The groups of a script, by name and in order; each returns its figures by name."""


def measure_groups(groups: Groups, num_rounds: int) -> dict[str, float]:
    """Measures all groups, showing the progress; returns all figures."""
    progress = Progress()
    figures: dict[str, float] = {}
    for name, group in groups.items():

        def say(what: str, name: str = name) -> None:
            progress.say(f"{name}: {what}")

        figures |= group(Setup(num_rounds, say))
    progress.end()
    return figures


@dataclass(frozen=True)
class Entry:
    """A contender that has not been started.

    Args:
        make: `module:function` of `benchmarks.peers`.
        arguments: of that function.
        python: interpreter; default: the current one.
    """

    make: str
    arguments: tuple[int, ...]
    python: Path | None = None


def measured(entries: Mapping[str, Entry], setup: Setup) -> Rounds:
    """Starts all contenders, measures each once per round, and stops them."""
    contenders: dict[str, Contender] = {}
    rounds: Rounds = {name: [] for name in entries}
    try:
        for name, entry in entries.items():
            setup.say(f"starting {name}")
            contenders[name] = Contender(entry.make, *entry.arguments, python=entry.python)
        for i in range(setup.num_rounds):
            for name, contender in contenders.items():
                setup.say(f"round {i + 1} of {setup.num_rounds}: {name}")
                rounds[name].append(contender.round(_ROUND_S)["us"])
    finally:
        for contender in contenders.values():
            contender.close()
    return rounds


def median_us(rounds: Rounds, name: str) -> float:
    """Median of a contender's measurements."""
    return Median.of(rounds[name])


def ratio(rounds: Rounds, ours: str, theirs: str) -> float:
    """How many times faster ours is: the median of the ratios within a round."""
    return Median.of(b / a for a, b in zip(rounds[ours], rounds[theirs], strict=True))
