"""What holds for every test: it leaves nothing behind, and CI sees the same examples each time."""

import multiprocessing
import multiprocessing.forkserver
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.leaks import holdings, leaked_since, watch_segments

# Tensors here are small: a second thread only waits for the first, and longer on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: a slow machine is not a bug. On CI no luck either, so that a red run can be repeated.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Workers begin with what they would import anyway: 30 ms each rather than 500.
multiprocessing.set_forkserver_preload(
    ["entity_env.vec.workers.process", "tests.helpers.worker_games"]
)
# Now, while the current folder is searched: a VecEnv starts it without that, and finds no tests.
multiprocessing.forkserver.ensure_running()

watch_segments()

# A shell that runs the tests in the background has Ctrl-C ignored, nohup SIGHUP, and so would they.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


_MANY_TESTS = 100


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles what training needs before many tests: a single one would take too long over it."""
    if len(session.items) < _MANY_TESTS or session.config.option.collectonly:
        return
    if find_spec("numba") is None or find_spec("torch") is None:
        return
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.games import cherry_pick, multi_snake
    from entity_env.vec import VecEnv

    for game in (multi_snake, cherry_pick):
        with VecEnv(game, 40) as vec:
            train(vec, PPOConfig(total_steps=160, num_steps=2))


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaks a thread, a child process or a segment of shared memory."""
    before = holdings()
    yield
    if leaked := leaked_since(before):
        pytest.fail("left behind: " + "; ".join(leaked), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def leaves_no_orphans() -> Iterator[None]:
    """Fail the last test of a file that leaves processes of processes behind."""
    before = holdings(orphans=True)
    yield
    if leaked := leaked_since(before, orphans=True):
        pytest.fail("left behind: " + "; ".join(leaked), pytrace=False)
