"""Connection to a Ray cluster: an existing one, or a temporary one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import cloudpickle

from entity_env.authoring.load_module import to_pickle
from entity_env.authoring.named_code.finder import ImportState
from entity_env.errors import MissingExtraError, UsageError, shown

T = TypeVar("T")
_CONNECT_S: Final = 5.0
_REQUEST_S: Final = 15  # how long Ray waits for a node on this machine; its default is 60
_VERSIONS_S: Final = 60.0
_REMOVE_S: Final = 5.0
_END_S: Final = 5.0
_HTTP2_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_HTTP2_SETTINGS: Final = 4
_FORMS: Final = "expected auto, local, HOST:PORT or ray://HOST:PORT"
_QUIET: Final = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default; otherwise Ray warns
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # drops its daemons' lines about processes that died
}
WORKER_ENV: Final = {"OMP_NUM_THREADS": "1"}
"""Environment variables of processes on the cluster, which have one CPU each."""


class Portable(Generic[T]):
    """A value that is unpickled with this process's `sys.path` and current folder.

    The other process therefore finds games in files, and relative paths, if its machine has the
    files at the same paths.

    Args:
        value: any value that cloudpickle can pickle.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Callable[..., Portable[T]], tuple[ImportState, str, bytes]]:
        return _unpickled, (ImportState.of_this_process(), os.getcwd(), to_pickle(self.value))


def _unpickled(imports: ImportState, folder: str, data: bytes) -> Portable[Any]:
    with contextlib.suppress(OSError):  # another machine may not have these folders, nor need them
        os.chdir(folder)
    own = [folder for folder in sys.path if folder not in imports.path]
    ImportState([*own, *imports.path], imports.code).restore()
    return Portable(cloudpickle.loads(data))


@contextlib.contextmanager
def connect(address: str = "auto", *, num_cpus: int = 1) -> Iterator[int]:
    """Connects to a Ray cluster; yields its number of CPUs.

    A cluster started here ends with the context, and its files are removed. An existing cluster
    continues. An existing connection of this process is used and kept.

    Args:
        address: `HOST:PORT` of a cluster that this machine belongs to; `ray://HOST:PORT` of another
            cluster; `local` for a new cluster on this machine; or `auto`: the cluster in
            `RAY_ADDRESS` (which may be `local`), else the cluster started by `ray start` on this
            machine, else a new cluster.
        num_cpus: minimum number of CPUs.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: no cluster at the address, too few CPUs, or a machine with another version of
            Python or of this package.
    """
    found = _resolve(address)
    if found is not None:  # Ray reads the variable when it is imported
        os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", str(_REQUEST_S))
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    ray = import_ray()
    with contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            stack.enter_context(_kept_handler())
            _init(ray, found, stack)
        total = int(ray.cluster_resources().get("CPU", 0))
        if total < num_cpus:
            raise UsageError(
                f"{num_cpus} processes need a CPU each, but the Ray cluster has {total}: "
                "ask for fewer, or add machines to it"
            )
        _check_versions(ray)
        yield total


def import_ray() -> Any:  # noqa: ANN401 - its types exist only where Ray is installed
    """The module `ray`; `MissingExtraError` if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "cluster", "running on a cluster") from error
    return ray


def _init(ray: Any, address: str | None, stack: contextlib.ExitStack) -> None:  # noqa: ANN401
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "runtime_env": {"env_vars": WORKER_ENV},
    }
    if address is None:
        # Without a token, Ray writes one into the home folder. A random one is enough, because
        # only this program joins the new cluster.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        folder = tempfile.mkdtemp(prefix="ray-")  # short: socket paths have at most 107 characters
        stack.callback(_remove, folder)
        options |= {"include_dashboard": False, "_temp_dir": folder}
        stack.callback(end_cluster, ray, folder)
    else:
        stack.callback(ray.shutdown)
    try:
        with _blocked_signals() if address is None else contextlib.nullcontext():
            ray.init(address="local" if address is None else address, **options)
    except (Exception, SystemExit) as error:  # Ray ends the program if a node is lost
        what = "start a Ray cluster here" if address is None else f"join the Ray cluster {address}"
        raise UsageError(f"cannot {what}: {_reason(error)}") from error


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Delays Ctrl-C and SIGHUP until a cluster's daemons run and Ray can end them.

    The daemons inherit the block, so a closed terminal ends only the program, which then ends them.
    """
    if sys.platform == "win32":
        yield
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_cluster(ray: Any, folder: str) -> None:  # noqa: ANN401
    """Ends a cluster started here, and waits until all its processes have exited.

    Ray gives its daemon one second, then kills it and relies on the workers to notice.
    """
    import psutil  # comes with Ray

    processes = []
    for daemon in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just exited
            if any(folder in word for word in daemon.cmdline()):
                processes += [daemon, *daemon.children(recursive=True)]
    try:
        ray.shutdown()
        psutil.wait_procs(processes, timeout=_END_S)
    finally:  # even if Ctrl-C interrupts Ray
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=_END_S)


def _remove(folder: str) -> None:
    """Removes the files of a cluster, which exiting daemons may still write."""
    end = time.monotonic() + _REMOVE_S
    while os.path.exists(folder) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _reason(error: BaseException) -> str:
    """Cause of a Ray error, in one line."""
    text = str(error.__cause__ or error).strip()
    if "Traceback" in text:
        text = text.rpartition("\n")[2]
    return " ".join(text.split())[:300] or type(error).__name__


def _resolve(address: str) -> str | None:
    """Address of a cluster that answers, or None for a new one; raises if a given one does not."""
    if address == "local":
        return None
    if address != "auto":
        _probe(address, address)
        return address
    given = os.environ.get("RAY_ADDRESS", "")
    if given not in ("", "auto", "local"):
        _probe(given, f"RAY_ADDRESS={given}")
        return given
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray")
    try:
        latest = (folder / "ray_current_cluster").read_text().strip()  # written by `ray start`
        _probe(latest, latest)
    except (OSError, UsageError):  # none, or it has ended
        return None
    return latest if given != "local" else None


def _probe(address: str, name: str) -> None:
    """Raises `UsageError` unless a gRPC server answers; without one, Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) >= 2**16:
        raise UsageError(f"{shown(name)} is not the address of a Ray cluster: {_FORMS}")
    help_text = "start one with `ray start --head`, or use --ray local"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S) as server:
            if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
                return
            server.sendall(_HTTP2_HELLO)
            answer = server.recv(9)
    except OSError as error:
        raise UsageError(f"no Ray cluster answers at {name} ({error}): {help_text}") from error
    if len(answer) < 4 or answer[3] != _HTTP2_SETTINGS:
        raise UsageError(f"what answers at {name} is not a Ray cluster: {help_text}")


@contextlib.contextmanager
def _kept_handler() -> Iterator[None]:
    """Restores the SIGTERM handler, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if previous is not None:  # None: not installed from Python
            signal.signal(signal.SIGTERM, previous)


def _check_versions(ray: Any) -> None:  # noqa: ANN401
    """Checks that every machine has the same versions of Python and of this package."""

    def versions() -> dict[str, str]:  # sent by value: the package may be missing on the machine
        import sys
        from importlib.metadata import PackageNotFoundError, version

        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        try:
            return {"Python": python, "entity-env": version("entity-env")}
        except PackageNotFoundError:
            return {"Python": python, "entity-env": "missing"}

    here = versions()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(versions)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    ]
    for node, answer in zip(nodes, asked, strict=True):
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            there = ray.get(answer, timeout=_VERSIONS_S)
        except ray.exceptions.RayError as error:
            raise UsageError(f"node {name} runs no tasks: {_reason(error)}") from error
        for package, ours in here.items():
            if there[package] != ours:
                raise UsageError(
                    f"node {name} has {package} {there[package]}, and this program {ours}: "
                    "install the same version on every machine"
                )
