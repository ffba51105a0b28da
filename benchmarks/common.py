"""Shared by all benchmarks: medians, the description of the machine, and printing."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from entity_env.core.validation import num_cores


class Median(float):
    """Median of the rounds of a measurement; arithmetic with it gives an ordinary number.

    Attributes:
        low, high: smallest and largest value of the rounds.
    """

    low: float
    high: float

    @classmethod
    def of(cls, rounds: Iterable[float]) -> Median:
        """The median of one number or more."""
        values = list(rounds)
        found = cls(statistics.median(values))
        found.low, found.high = min(values), max(values)
        return found


def median(measure: Callable[[], float], rounds: int = 5) -> Median:
    """Median of several measurements."""
    return Median.of(measure() for _ in range(rounds))


def interleaved(measures: Mapping[str, Callable[[], float]], rounds: int = 5) -> dict[str, float]:
    """`Median` of each measurement. They take turns so that noise affects all of them."""
    samples: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            samples[name].append(measure())
    return {name: Median.of(values) for name, values in samples.items()}


def rounds_and_json(description: str) -> tuple[int, bool]:
    """Parses the command line of most benchmarks: `--rounds N`, at least 5, and `--json`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=7, help="measurements; prints the median")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    arguments = parser.parse_args()
    # Interpreters that a benchmark starts keep compiled modules, as those of users do.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return max(arguments.rounds, 5), bool(arguments.json)


def report(
    title: str, figures: Mapping[str, float], packages: Sequence[str], as_json: bool
) -> None:
    """Prints figures as a table, or as one JSON object with date, machine and versions.

    The object also has the spread of each figure that is a `Median`: smallest and largest round.
    """
    machine = {
        "processor": _processor(),
        "cores": num_cores(),
        "system": platform.platform(),
    }
    versions = {"python": platform.python_version(), **{name: _version(name) for name in packages}}
    if as_json:
        result = {"date": datetime.now(UTC).date().isoformat(), "machine": machine}
        medians = ((name, value) for name, value in figures.items() if isinstance(value, Median))
        spread = {name: [value.low, value.high] for name, value in medians}
        result |= {"versions": versions, "figures": dict(figures), "spread": spread}
        print(json.dumps(result))
        return
    table = Table("figure", "median", title=title)
    for name, value in figures.items():
        table.add_row(name, f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}")
    console = Console()
    console.print(table)
    console.print(f"{machine['processor']}, {machine['cores']} cores; {versions}", style="dim")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
