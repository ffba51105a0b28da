"""Divides the time between the attack tests; prints seeds and counts at the end."""

import os
import zlib

import pytest

from tests.attack.budget import SECONDS_VARIABLE, SHARE_S, Attack, run_seed
from tests.attack.interrupter import EARLIER, suspended_games

_RUN_SEED = run_seed()
_DONE: dict[str, Attack] = {}
_GRACE_S = 120.0


def _weight(item: pytest.Item) -> float:
    marker = item.get_closest_marker("attack")
    return float(marker.args[0]) if marker is not None and marker.args else 1.0


def _seconds(item: pytest.Item) -> float:
    total = os.environ.get(SECONDS_VARIABLE)
    if total is None:
        return SHARE_S * _weight(item)
    weights = sum(map(_weight, filter(_is_attack, item.session.items)))
    return float(total) * _weight(item) / weights


def _is_attack(item: pytest.Item) -> bool:
    return "attack" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises the timeouts of attack tests that run with a full budget."""
    if SECONDS_VARIABLE in os.environ:
        for item in filter(_is_attack, items):
            longest_s = float(os.environ[SECONDS_VARIABLE]) + _GRACE_S
            item.add_marker(pytest.mark.timeout(longest_s))


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    """Time budget, random generator and counts for one attack."""
    item = request.node
    given = Attack(_RUN_SEED ^ zlib.crc32(item.nodeid.encode()), _seconds(item))
    _DONE[item.nodeid] = given
    return given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the counts, and the seed that repeats the run."""
    if not _DONE or SECONDS_VARIABLE not in os.environ:
        return
    terminalreporter.section(f"attacks, seed {_RUN_SEED}")
    for name, given in _DONE.items():
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(given.counts.items()))
        terminalreporter.write_line(f"{name.rpartition('::')[2]}: {counts or 'no counts'}")


@pytest.fixture(autouse=True)
def games_of_earlier_tests() -> None:
    """Ignores games that earlier tests left suspended on purpose."""
    EARLIER.clear()
    EARLIER.extend(suspended_games())
