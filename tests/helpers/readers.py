"""Every reader of untrusted files, with valid files and its error.

`tests/data/corpus` has valid files, and files that once broke a reader.
"""

from __future__ import annotations

import io
import json
import resource
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from entity_env.agents.imitation import Dataset
from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net import load_checkpoint, read_network
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_from_bytes
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.enn_trainer.checkpoint import FILES, parse_enn_checkpoint, read_tar
from entity_env.agents.rogue_net.enn_trainer.msgpack_tensors import read_blob
from entity_env.agents.rogue_net.enn_trainer.ron import parse_ron
from entity_env.agents.training.tracking.runs import read_run
from entity_env.agents.training.tracking.settings_file import read_settings
from entity_env.cli.display.console import Console
from entity_env.cli.display.terminal_view import Frames
from entity_env.cli.report.files import report_csv, report_svg
from entity_env.cli.report.page import report_html
from entity_env.cluster.sweep import STATE_FILE, read_trials
from entity_env.errors import (
    CheckpointError,
    EntityEnvError,
    ReplayError,
    SchemaError,
    UsageError,
)
from entity_env.games.azul import GameState
from entity_env.games.pixel.reward.goal_files import load_goal
from entity_env.page.folder import require_page_folder
from entity_env.page.pyodide import FILES as PYODIDE_FILES, Pyodide
from entity_env.replay import Replay
from entity_env.vec.external.game import _options_of, program_code
from entity_env.views import Look
from tests import DATA

CORPUS: Final = DATA / "corpus"
GOOD: Final = CORPUS / "good"
_ENN: Final = DATA / "roguenet"
_REPLAYS: Final = "cherry_pick", "rock_paper_scissors", "tic_tac_toe", "treasure_hunt"
_ENN_NAMES: Final = ("options_projected", "options_translate", "made_relpos_polar")

CPU_S: Final = 5.0
"""Limit of processor time for a file of a few kilobytes: the slowest readers take 0.1 s."""
MEMORY: Final = 512 << 20
"""Limit of additional address space, in bytes."""


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    Args:
        read: reads a file's content; it may write files to the folder.
        error: the exception for invalid files.
        seeds: valid files.
    """

    read: Callable[[bytes, Path], object]
    error: type[EntityEnvError]
    seeds: tuple[bytes, ...]


class TookTooLongError(BaseException):
    """A reader exceeded the time of `limits`; not caught by `except Exception`."""


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TookTooLongError("more processor time than a test allows")


@contextmanager
def limits(cpu_s: float = CPU_S, memory: int = MEMORY) -> Iterator[None]:
    """Limits memory and processor time of the block, for one reading or many.

    Args:
        cpu_s: per reading; `begin_reading` starts the next one.
        memory: bytes of additional address space.

    Raises:
        TookTooLongError: the time is exceeded.
        MemoryError: the memory is exceeded.
    """
    before = signal.signal(signal.SIGVTALRM, _too_long)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if statm.exists():  # elsewhere memory is not limited
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, hard))
    begin_reading(cpu_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


def begin_reading(cpu_s: float = CPU_S) -> None:
    """Restarts the processor time of a reading."""
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)


def _in_folder(
    folder: Path, name: str, read: Callable[[Path], object]
) -> Callable[[bytes, Path], object]:
    """Reads a valid folder with one file replaced."""

    def with_content(content: bytes, place: Path) -> object:
        copy = place / folder.name
        if not copy.exists():
            shutil.copytree(folder, copy)
        (copy / name).write_bytes(content)
        try:
            return read(copy)
        finally:
            shutil.copyfile(folder / name, copy / name)

    return with_content


def _checkpoint(folder: Path) -> object:
    return read_network(folder), load_checkpoint(folder)


def _enn(name: str) -> Reader:
    files = {each: (_ENN / _ENN_NAMES[0] / each).read_bytes() for each in FILES}

    def read(content: bytes, _: Path) -> object:
        return parse_enn_checkpoint({**files, name: content}, "input")

    return Reader(read, CheckpointError, (files[name],))


def _archive(content: bytes, _: Path) -> object:
    members = read_tar(content, "input")
    if all(name in members for name in FILES):
        return parse_enn_checkpoint({name: bytes(members[name]) for name in FILES}, "input")
    return members


def _azul(content: bytes, _: Path) -> object:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):  # raised by the caller's JSON parser
        return None
    return GameState.from_dict(data)


def _dataset(content: bytes, folder: Path) -> object:
    path = folder / "input.npz"
    path.write_bytes(content)
    dataset = Dataset.load(path)
    if len(dataset):
        dataset.returns(0.9)
        dataset.known_share(0.9)
        Dataset.concat([dataset, dataset.filter(min_reward=-1e300).select([0, -1])])
    return dataset


def _replay(content: bytes, _: Path) -> object:
    """Reads and draws a replay; only reads a replay that would have to run a game."""
    replay = Replay.from_bytes(content, "input")
    if not replay.has_observations:
        return replay
    header, turns = replay.header, replay.turns()
    frames = Frames(
        *replay.spaces,
        name=header.game,
        num_agents=header.num_agents,
        agent_names=[each.get("name", "") for each in header.agents],
    )
    moments = frames.moments(turns)
    if moments:
        console = Console(file=io.StringIO(), width=80)
        console.print(frames.frame(moments[-1], 80))
    return replay.animation(look=Look()).html()


def _run(folder: Path) -> object:
    run = read_run(folder)
    return report_html([run]), report_svg([run]), report_csv([run])


def _settings(content: bytes, folder: Path) -> object:
    path = folder / "input.toml"
    path.write_bytes(content)
    return PPOConfig().changed(read_settings(path).trainer, "input")


def _sweep(content: bytes, folder: Path) -> object:
    (folder / STATE_FILE).write_bytes(content)
    _, trials = read_trials(folder)
    return [trial.name for trial in trials]


def _pyodide(content: bytes, folder: Path) -> object:
    for name in PYODIDE_FILES:
        (folder / name).touch()
    (folder / "pyodide-lock.json").write_bytes(content)
    (folder / "numpy.whl").touch()
    return Pyodide.find(str(folder)).packages_of(["numpy"])


def _page(content: bytes, folder: Path) -> object:
    (folder / "pyodide").mkdir(exist_ok=True)
    (folder / "game.json").write_bytes(content)
    require_page_folder(folder)
    return None


def _program(content: bytes, folder: Path) -> object:
    path = folder / "input.toml"
    path.write_bytes(content)
    return _options_of(path), program_code(str(path)).digest()


def _plain(
    read: Callable[[bytes, str], object], error: type[EntityEnvError], *seeds: Path
) -> Reader:
    return Reader(lambda content, _: read(content, "input"), error, _contents(*seeds))


def _contents(*paths: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in paths)


_FOLDERS: Final = {
    "config.json": ("checkpoint", _checkpoint, CheckpointError),
    "model.safetensors": ("checkpoint", _checkpoint, CheckpointError),
    "optimizer.safetensors": ("checkpoint", _checkpoint, CheckpointError),
    "goal.json": ("goal", load_goal, UsageError),
    "goal.npy": ("goal", load_goal, UsageError),
    "start.npz": ("goal", load_goal, UsageError),
    "run.json": ("run", _run, CheckpointError),
    "curves.jsonl": ("run", _run, CheckpointError),
}

READERS: Final[dict[str, Reader]] = {
    **{
        name: Reader(_in_folder(GOOD / folder, name, read), error, _contents(GOOD / folder / name))
        for name, (folder, read, error) in _FOLDERS.items()
    },
    "agent": _plain(agent_from_bytes, CheckpointError, GOOD / "net.agent"),
    "safetensors": _plain(
        read_safetensors,
        CheckpointError,
        GOOD / "checkpoint" / "model.safetensors",
        GOOD / "checkpoint" / "optimizer.safetensors",
    ),
    "ron": _plain(parse_ron, CheckpointError, *(_ENN / name / FILES[0] for name in _ENN_NAMES)),
    "msgpack": _plain(read_blob, CheckpointError, _ENN / _ENN_NAMES[0] / FILES[2]),
    **{name: _enn(name) for name in FILES},
    "tar": Reader(_archive, CheckpointError, _contents(_ENN / "trained_multisnake.roguenet")),
    "dataset": Reader(_dataset, UsageError, _contents(GOOD / "dataset.npz")),
    "replay": Reader(
        _replay, ReplayError, _contents(*(DATA / "replays" / f"{name}.replay" for name in _REPLAYS))
    ),
    "settings": Reader(_settings, UsageError, _contents(GOOD / "settings.toml")),
    "sweep": Reader(_sweep, UsageError, _contents(GOOD / "sweep.json")),
    "pyodide": Reader(_pyodide, UsageError, _contents(GOOD / "pyodide-lock.json")),
    "page": Reader(_page, UsageError, _contents(GOOD / "game.json")),
    "program": Reader(_program, UsageError, _contents(GOOD / "program.toml")),
    "azul": Reader(_azul, SchemaError, _contents(GOOD / "azul.json")),
}
"""Readers by the name of their folder in `tests/data/corpus/broken`."""
