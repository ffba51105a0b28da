"""Set-up for all tests: they leave nothing behind, and CI uses the same examples every time."""

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from entity_env.errors import ContractError, MissingExtraError
from tests import ROOT
from tests.helpers.leaks import holdings, leaked_since, watch_segments

# Tensors here are small: a second thread only adds waiting time, more on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Commands record names given by the user here: a folder of the tests, emptied after each.
_CONFIG = tempfile.TemporaryDirectory(prefix="entity-env-tests-", ignore_cleanup_errors=True)
os.environ["XDG_CONFIG_HOME"] = _CONFIG.name

# Runs of the command line never compile in the background, so all are reproducible.
os.environ["ENTITY_ENV_COMPILE"] = "wait"

# No deadline: a slow machine is not a bug. On CI, no randomness, so failures can be repeated.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make test` tries a few examples per property, `make test-all` all of them.
_FEW_EXAMPLES = 10
settings.register_profile("fast", settings.get_profile("dev"), max_examples=_FEW_EXAMPLES)
settings.register_profile("ci-fast", settings.get_profile("ci"), max_examples=_FEW_EXAMPLES)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Full garbage collections run only at the end of each file: 60 in a process took 7 s.
gc.set_threshold(5_000, 10, 1_000)

# The fork server preloads modules: a worker starts in 30 ms, not in 500, or 900 with numba.
multiprocessing.set_forkserver_preload(
    [
        "entity_env.vec.workers.process",
        "tests.helpers.worker_games",
        "tests.helpers.executors",
        "pytest",
        "hypothesis.stateful",
        *(
            ["entity_env.vec.batch_env.reset_mask_kernel", "tests.numba_registries"]
            if find_spec("numba")
            else []
        ),
    ]
)

watch_segments()

# A shell that runs the tests in the background ignores Ctrl-C, nohup ignores SIGHUP; undo both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


_MANY_TESTS = 100
# The slowest files, slowest first. Others follow by their number of tests.
_LONG_FILES = (
    "tests/agents/ppo/test_trainer.py",
    "tests/contract/test_executors.py",
    "tests/contract/test_vec_env_runs.py",
    "tests/contract/test_vec_envs.py",
    "tests/replay/test_round_trip.py",
    "tests/project/test_layout.py",
    "tests/cli/test_app.py",
    "tests/games/pixel/test_without_extras.py",
    "tests/vec/workers/test_worker_faults.py",
    "tests/interop/gymnasium/test_gymnasium_games.py",
    "tests/vec/workers/test_worker_attacks.py",
    "tests/cli/commands/test_azul.py",
    "tests/batching/test_obs_batcher.py",
    "tests/vec/test_episode_seeds.py",
)
_OPTIONAL = ("msgpack", "numba", "pyboy", "ray", "safetensors", "tensorboard", "torch", "warp")
_MISSING = tuple(name for name in _OPTIONAL if find_spec(name) is None)


def pytest_configure(config: pytest.Config) -> None:
    """Starts the fork server in processes that run tests, not in one that only distributes them."""
    if getattr(config.option, "numprocesses", None):
        config.option.loadscopereorder = False  # not only by number of tests
        return
    # Now, while the current folder is on the path: started by a VecEnv, it would find no tests.
    multiprocessing.forkserver.ensure_running()
    gc.disable()  # importing tests leaves little garbage; looking for it takes 10 % longer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slowest files first, and limits the examples of properties.

    Then all processes end at about the same time. Properties that set their own number of examples
    are limited, too.
    """
    _sort_by_length(items)
    if settings.default is None or settings.default.max_examples != _FEW_EXAMPLES:
        return
    for item in items:
        function = getattr(item, "function", None)
        own: settings | None = getattr(function, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples > _FEW_EXAMPLES:
            vars(function)["_hypothesis_internal_use_settings"] = settings(
                own, max_examples=_FEW_EXAMPLES
            )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles once, in the process that distributes tests, before several processes would."""
    if getattr(session.config.option, "numprocesses", None):
        _compile(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles the kernels of training before the tests; a single test would time out."""
    gc.enable()
    if len(session.items) >= _MANY_TESTS and not session.config.option.collectonly:
        _compile(session.config)
    # Half a million objects of tests and packages live as long as the process. A full garbage
    # collection that visits them takes half a second, and there were hundreds.
    gc.collect()
    gc.freeze()


def _compile(config: pytest.Config) -> None:
    """Compiles the kernels of training, unless done since the last change of the package."""
    if "PYTEST_XDIST_WORKER" in os.environ or {"numba", "torch"} & set(_MISSING):
        return
    newest = max(path.stat().st_mtime for path in (ROOT / "entity_env").rglob("*.py"))
    state = [newest, sys.version, version("numba")]
    cache = getattr(config, "cache", None)  # the plugin may be disabled
    if cache is not None and cache.get("entity_env/compiled", None) == state:
        return
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.games import cherry_pick, multi_snake
    from entity_env.vec import VecEnv

    for game in (multi_snake, cherry_pick):
        with VecEnv(game, 40) as vec:
            train(vec, PPOConfig(total_steps=160, num_steps=2))
    if cache is not None:
        cache.set("entity_env/compiled", state)


def _sort_by_length(items: list[pytest.Item]) -> None:
    """Files stay together, with their tests in order."""
    sizes = Counter(_file(item) for item in items)
    ranks = {file: (1, -size) for file, size in sizes.items()}
    ranks.update({file: (0, rank) for rank, file in enumerate(_LONG_FILES)})
    first = {file: number for number, file in enumerate(sizes)}
    items.sort(key=lambda item: (ranks[_file(item)], first[_file(item)]))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skips files that import an optional package that is not installed."""
    report = yield
    if report.failed and isinstance(collector, pytest.Module):
        for name in _MISSING:
            if re.search(rf"(No module named '{name}|needs {name}\\b)", report.longreprtext):
                report.outcome = "skipped"
                report.longrepr = (str(collector.path), 0, f"Skipped: {name} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skips tests whose fixtures need a missing optional package."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skips tests that need a missing optional package."""
    return (yield from _skipping())


def _skipping() -> Generator[None, None, None]:
    try:
        return (yield)
    except (ModuleNotFoundError, MissingExtraError, ContractError) as error:
        _skip_if_missing(str(error))
        raise


def _skip_if_missing(message: str) -> None:
    if found := [name for name in _MISSING if f"'{name}" in message]:
        pytest.skip(f"{found[0]} is not installed")


def _invoke_or_skip(runner: CliRunner, *args: Any, **keywords: Any) -> Result:  # noqa: ANN401
    """Skips the test if the command line reports a missing package in one line."""
    result = _invoke(runner, *args, **keywords)
    if result.exit_code and "which is not installed" in result.output:
        _skip_if_missing(result.output)
    return result


if _MISSING:
    _invoke = CliRunner.invoke
    CliRunner.invoke = _invoke_or_skip  # type: ignore[assignment, method-assign]


@pytest.fixture(params=["compiled", "python"], scope="class")
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test with the loops in C and with those in Python."""
    from entity_env.authoring import speedups

    if request.param == "compiled" and not speedups.IS_COMPILED:
        pytest.skip("needs the module in C, which was not built here")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(speedups, "IS_COMPILED", False)
            patch.setattr("entity_env.batching.obs_batcher.gather", None)
        yield


@pytest.fixture(autouse=True)
def named_nothing_before() -> Iterator[None]:
    """Forget the names recorded by commands after each test."""
    yield
    shutil.rmtree(os.path.join(_CONFIG.name, "entity-env"), ignore_errors=True)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaks a thread, a child process or a segment of shared memory."""
    before = holdings()
    yield
    if leaked := leaked_since(before):
        pytest.fail("left behind: " + "; ".join(leaked), pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def leaves_no_orphans() -> Iterator[None]:
    """Fail the last test of a file that leaves grandchild processes behind."""
    before = holdings(orphans=True)
    yield
    if leaked := leaked_since(before, orphans=True):
        pytest.fail("left behind: " + "; ".join(leaked), pytrace=False)
    gc.collect()
    gc.freeze()  # modules and compiled functions loaded since the last file
