import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from entity_env.cluster.session import connect, end_cluster
from entity_env.errors import MissingExtraError, UsageError


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def refused(address: str) -> str:
    with pytest.raises(UsageError) as caught, connect(address):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_ray_is_an_extra(without_ray: None) -> None:
    with pytest.raises(MissingExtraError, match=r"'ray'.*entity-env\[cluster\]"), connect("local"):
        pass


@pytest.mark.parametrize(
    "address", ["", "here", "host", "host:port", ":6379", "host:99999", "http://host:8265"]
)
def test_what_is_no_address_is_refused_before_ray_is_imported(
    address: str, without_ray: None
) -> None:
    assert "expected auto, local, HOST:PORT or ray://HOST:PORT" in refused(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_nobody_answers_is_refused_at_once(scheme: str, without_ray: None) -> None:
    address = f"{scheme}127.0.0.1:{free_port()}"
    begun = time.monotonic()
    assert f"no Ray cluster answers at {address}" in refused(address)
    assert time.monotonic() - begun < 5


def test_a_server_of_something_else_is_refused(without_ray: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            with server.accept()[0] as client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert f"what answers at {address} is not a Ray cluster" in refused(address)
        thread.join()


def test_auto_is_the_cluster_of_the_environment(
    without_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert f"no Ray cluster answers at RAY_ADDRESS={address}" in refused("auto")


def test_auto_starts_a_cluster_if_the_last_one_has_ended(
    without_ray: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(MissingExtraError), connect("auto"):  # fails only because Ray is missing
        pass


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_cluster_here_leaves_no_file_and_no_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = set(Path(tempfile.gettempdir()).glob("ray-*"))
    with connect("local") as num_cpus:
        assert num_cpus >= 1
        with connect("local", num_cpus=num_cpus) as again:  # reuses the connection
            assert again == num_cpus
        assert ray.is_initialized()
        need = f"{num_cpus + 1} processes need a CPU each"
        with pytest.raises(UsageError, match=need), connect(num_cpus=num_cpus + 1):
            pass
        version = metadata.version
        other = {"entity-env": "9.9.9"}
        monkeypatch.setattr(metadata, "version", lambda name: other.get(name) or version(name))
        place = rf"{socket.gethostname()}.* has entity-env {version('entity-env')}, .* 9\.9\.9"
        with pytest.raises(UsageError, match=place), connect():
            pass
    assert not ray.is_initialized()
    assert list(tmp_path.iterdir()) == []
    assert set(Path(tempfile.gettempdir()).glob("ray-*")) <= before


_DAEMON = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(worker.pid, flush=True)
worker.wait()
"""


def test_an_interrupted_end_of_a_cluster_leaves_no_process(tmp_path: Path) -> None:
    """Ray kills only its daemon, whose workers can take seconds to notice."""
    pytest.importorskip("ray")
    import psutil  # comes with Ray

    def shutdown() -> None:
        raise KeyboardInterrupt

    command = [sys.executable, "-c", _DAEMON, f"--session-dir={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        worker = psutil.Process(int(daemon.stdout.readline()))
        with pytest.raises(KeyboardInterrupt):
            end_cluster(SimpleNamespace(shutdown=shutdown), str(tmp_path))
        assert not psutil.pid_exists(daemon.pid)
        assert not worker.is_running()
