"""`load_agent` loads the random agent, a human agent, a bot or a trained network."""

from __future__ import annotations

import difflib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, runtime_checkable

from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.scripted_agent import is_bot_file, load_bot
from entity_env.authoring.agent import Agent
from entity_env.errors import CheckpointError, MissingExtraError, UsageError, shown

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.neural_agent import TrainedAgent
    from entity_env.agents.rogue_net.weights import Weights

Backend: TypeAlias = Literal["auto", "numpy", "torch"]

_BACKENDS: Final = ("auto", "numpy", "torch")
_NAMES: Final = ("random", "human")
_MAX_NAMED: Final = 8
_SUFFIXES: Final = (".agent", ".roguenet")
"""Of exported agents, and of archives of enn-trainer."""
_EXPECTED: Final = (
    "'random', 'human', a bot FILE.py:CLASS, the folder of a checkpoint, or a file "
    f"*{_SUFFIXES[0]} or *{_SUFFIXES[1]}"
)


@runtime_checkable
class BinaryFile(Protocol):
    """A file object opened to read bytes, such as `io.BytesIO`."""

    def read(self) -> bytes: ...


@runtime_checkable
class Resource(Protocol):
    """A package resource from `importlib.resources.files`, or a `zipfile.Path`."""

    def read_bytes(self) -> bytes: ...


AgentSource: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile | Resource
)
"""Accepted sources of `load_agent`."""


def load_agent(
    source: AgentSource,
    *,
    greedy: bool | None = None,
    temperature: float = 1.0,
    seed: int | None = None,
    backend: Backend = "auto",
    adapt: bool = False,
    names: Mapping[str, str] | None = None,
) -> Agent:
    """Loads an agent for `Game.run`.

    Args:
        source: "random", "human" (asks in the terminal), a bot `FILE.py:CLASS` (see
            `ScriptedAgent`), or a trained network: the folder of a checkpoint or a training run, an
            exported `.agent` file, the folder of an enn-trainer checkpoint, or a `.roguenet`
            archive. For a folder called `random`, pass `./random`. The path of an exported agent
            may lead into a zip: in a game packed by zipapp, `Path(__file__).with_name(...)` finds
            it. The content of an exported agent is also accepted: `bytes`, an open binary file
            (read to its end, left open), or a package resource, `importlib.resources.files(...)`.
        greedy: a trained agent takes the most probable action; False = it samples. None = what
            plays better, see `Weights.plays_greedily`; it samples if that is unknown.
        temperature: above 1, samples are more even; below 1, less even; 1 = as in training.
        seed: seed of a random or trained agent, or of a bot; None = random, but 0 for a bot.
        backend: of a trained network: "numpy" needs no other package and is faster for single
            observations, "torch" is faster for large batches. "auto" is numpy, even if torch is
            installed, because a seed then gives the same samples everywhere.
        adapt: a trained agent also plays a game with more features (in any order) or more entity
            types than it was trained on. It ignores the additions, and can neither act for nor
            select entities of the new types. By default every difference is an error.
        names: maps names in a trained network (of entity types, features, actions and choices) to
            the game's names, such as `{"SnakeHead": "Head"}`; `games.MULTI_SNAKE_NAMES` is for
            agents of entity-gym's MultiSnake.

    Raises:
        UsageError: no such agent, folder or backend; a temperature below 1e-6; a name in `names`
            that the network lacks.
        CheckpointError: the source holds no readable network. Also raised at the first observation
            if the network was trained for another game: the message lists the differences, or both
            games' types and actions if they share none. With `adapt`, only a missing feature or
            entity type or a different action is an error.
        MissingExtraError: the torch backend, or an enn-trainer checkpoint, needs a package that is
            not installed.
    """
    if backend not in _BACKENDS:
        raise UsageError(f"no backend {backend!r}: expected one of {', '.join(_BACKENDS)}")
    if isinstance(source, str) and source == "random":
        return _random_agent(seed)
    if isinstance(source, str) and source == "human":
        return HumanAgent()
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    if is_bot_file(path):
        return load_bot(path)(0 if seed is None else seed)
    kind = _numpy_agent()
    if backend == "torch":
        kind = _torch_agent(path or "the agent")
    weights = _renamed(_read(source), names) if names else _read(source)
    agent = kind.of(weights, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)
    agent.path = path
    return agent


# These import late: games that import `load_agent` run where there is no numpy.


def _random_agent(seed: int | None) -> Agent:
    from entity_env.agents.random import RandomAgent

    return RandomAgent(seed)


def _renamed(weights: Weights, names: Mapping[str, str]) -> Weights:
    from entity_env.agents.rogue_net.adapt import renamed

    return renamed(weights, names)


def _read(source: AgentSource) -> Weights:
    from entity_env.agents.rogue_net.checkpoints.agent_file import agent_from_bytes
    from entity_env.agents.rogue_net.checkpoints.reader import read_network

    if not isinstance(source, str | os.PathLike):
        return agent_from_bytes(*_content(source))
    path = Path(source)
    if (packed := _packed(path)) is not None:
        return agent_from_bytes(*_content(packed, str(path)))
    return read_network(_find(os.fspath(source)))


def _packed(path: Path) -> Resource | None:
    """The resource at a path inside a zip, such as `__file__` of a module in a zipapp."""
    try:
        packed = next((each for each in path.parents if each.is_file()), None)
        if packed is None or not zipfile.is_zipfile(packed):
            return None
    except OSError:  # the name is too long: `_find` reports it
        return None
    return zipfile.Path(packed, path.relative_to(packed).as_posix())


def _content(source: object, path: str | None = None) -> tuple[bytes, str]:
    """Bytes of a source, and its name for errors: its path, if it has one."""
    if isinstance(source, bytes | bytearray | memoryview):
        content, where = bytes(source), "the bytes of the agent"
    elif isinstance(source, Resource | BinaryFile):
        name = path or getattr(source, "name", None)
        where = name if isinstance(name, str) else f"the {type(source).__name__}"
        try:
            if isinstance(source, zipfile.Path) and source.is_file():
                _require_size(source.root.getinfo(source.at).file_size)
            read: object = source.read_bytes() if isinstance(source, Resource) else source.read()
        except Exception as error:  # file objects may raise anything
            raise CheckpointError(
                f"cannot read {where}: {shown(error)}; expected the content of a file "
                f"*{_SUFFIXES[0]}, which `entity-env export` writes"
            ) from error
        if not isinstance(read, bytes):
            raise UsageError(
                f"{where} gives {type(read).__name__}, expected bytes: open it with mode 'rb'"
            )
        content = read
    else:
        raise UsageError(
            f"expected {_EXPECTED}, bytes, a binary file, or a package resource; got "
            f"{shown(source)}"
        )
    if not content:
        raise CheckpointError(f"{where} is empty, or was read before: expected an exported agent")
    return content, where


def _require_size(size: int) -> None:
    """Raises `ValueError` for a member of a zip that is too large, before it is unpacked."""
    from entity_env.agents.rogue_net.checkpoints.agent_file import MAX_AGENT_BYTES

    if size > MAX_AGENT_BYTES:
        raise ValueError(f"{size} bytes are too many, at most {MAX_AGENT_BYTES} are read")


def _find(name: str) -> Path:
    """Path of the checkpoint with this name; errors list existing ones."""
    from entity_env.agents.rogue_net.checkpoints.folder import old_of
    from entity_env.agents.rogue_net.checkpoints.reader import find_network

    path = Path(name)
    try:
        is_file = path.is_file() and path.suffix in _SUFFIXES
        is_there = is_file or path.is_dir() or old_of(path).is_dir()
    except OSError as error:  # the name is too long, or the folder not readable
        raise UsageError(f"no agent {name!r}: {error.strerror}") from error
    if not is_there:
        raise UsageError(_no_such_agent(name, path))
    try:
        return find_network(path)
    except CheckpointError as error:
        inside = _checkpoints_in(path)
        if not inside:
            raise
        listed = _list(inside)
        raise CheckpointError(f"{path} is not a checkpoint; choose one of {listed}") from error


def _numpy_agent() -> type[TrainedAgent]:
    from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent

    return NumpyAgent


def _torch_agent(found: str) -> type[TrainedAgent]:
    try:
        from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "torch":
            raise
        raise MissingExtraError(package, "train", f"{found} with the backend torch") from error
    return NeuralAgent


def _no_such_agent(name: str, path: Path) -> str:
    if path.is_file():
        return f"{name} is a file; expected {_EXPECTED}"
    around = _checkpoints_in(path.parent)
    close = difflib.get_close_matches(name, [*_NAMES, *around], n=1)
    if close:
        return f"no agent {name!r}; did you mean {close[0]}?"
    exists = f"; trained agents found: {_list(around)}" if around else ""
    return f"no agent {name!r}: expected {_EXPECTED}, and there is no such folder{exists}"


def _checkpoints_in(folder: Path) -> list[str]:
    """Checkpoints, and runs that have one, directly in a folder."""
    from entity_env.agents.rogue_net.checkpoints.reader import find_network

    found = []
    files = [file for suffix in _SUFFIXES for file in folder.glob(f"*{suffix}")]
    for path in sorted([*folder.glob("*/"), *files]):
        try:
            find_network(path)
        except CheckpointError:
            continue
        found.append(str(path))
    return found


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
