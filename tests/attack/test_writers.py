"""Functions that write files of users: a full disk or Ctrl-C leaves what there was."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from entity_env.agents import RandomAgent
from entity_env.agents.imitation import Dataset
from entity_env.agents.rogue_net import read_network
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.authoring.named_code.check import write_record
from entity_env.cli import main
from entity_env.core.files import write_file
from entity_env.errors import EntityEnvError
from entity_env.games import snake
from entity_env.replay import Replay, ReplayWriter
from tests import DATA
from tests.helpers.readers import GOOD

REPLAY = DATA / "replays" / "snake.replay"


def _command(*words: str) -> Callable[[Path], object]:
    def run(path: Path) -> None:
        result = CliRunner().invoke(main, [*words, str(path)])
        if result.exit_code == 130:
            raise KeyboardInterrupt
        if result.exit_code:
            raise OSError(result.output)

    return run


def _onnx(path: Path) -> None:
    pytest.importorskip("onnx")
    from entity_env.agents.rogue_net.onnx_net.file import write_onnx

    write_onnx(path, read_network(GOOD / "checkpoint"))


def _picture(path: Path) -> None:
    pytest.importorskip("PIL")
    _command("draw", str(REPLAY), "--out")(path)


def _record(path: Path) -> None:
    snake.run(RandomAgent(seed=1), watch=ReplayWriter(path))


WRITERS: dict[str, Callable[[Path], object]] = {
    "x.txt": lambda path: write_file(path, bytes(10_000)),
    "x.agent": lambda path: write_agent(path, read_network(GOOD / "checkpoint")),
    "x.onnx": _onnx,
    "x.npz": lambda path: Dataset.load(GOOD / "dataset.npz").save(path),
    "saved.replay": lambda path: Replay.load(REPLAY).save(path),
    "recorded.replay": _record,
    "x.html": _command("draw", str(REPLAY), "--out"),
    "x.svg": _command("draw", str(REPLAY), "--out"),
    "x.png": _picture,
    "report.html": _command("report", str(GOOD / "run"), "--out"),
    "report.csv": _command("report", str(GOOD / "run"), "--out"),
    "named": lambda path: write_record(path, b"x" * 1000, "y"),
    "exported.agent": _command("export", str(GOOD / "checkpoint")),
    "brand_new_game": _command("new"),
    "site": _command("page", "snake", "--out"),
}

SLOW_WRITERS = [pytest.param(each, marks=pytest.mark.slow) for each in ("x.gif", "site")]


@contextmanager
def full_disk() -> Iterator[None]:
    """Lets no file grow beyond 64 bytes: the system writes that much, then fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C at the end of the writing, before the file gets its name."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "link", "mkdir"):
            patch.setattr(os, name, _interrupt)
        yield


def _interrupt(*args: Any, **options: Any) -> None:  # noqa: ANN401 - of any function
    raise KeyboardInterrupt


def _content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of file sizes")
@pytest.mark.parametrize("fault", [full_disk, interrupted], ids=lambda each: each.__name__)
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("name", [*(each for each in WRITERS if each != "site"), *SLOW_WRITERS])
def test_a_failed_write_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_there: bool,
    fault: Callable[[], AbstractContextManager[None]],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    write = WRITERS.get(name, _picture)
    write(path)  # also imports what it needs
    if not is_there:
        for each in _content(tmp_path):
            (tmp_path / each).unlink()
        with suppress(OSError):
            for folder in sorted((p for p in tmp_path.rglob("*") if p.is_dir()), reverse=True):
                folder.rmdir()
    before = _content(tmp_path)
    with pytest.raises((OSError, EntityEnvError, KeyboardInterrupt)), fault():
        write(path)
    assert _content(tmp_path) == before
