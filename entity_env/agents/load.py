"""load_agent: the random agent, the human agent, or one from a checkpoint, by name."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.random import RandomAgent
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX as AGENT_SUFFIX
from entity_env.agents.rogue_net.checkpoints.folder import old_of
from entity_env.agents.rogue_net.checkpoints.reader import find_network
from entity_env.agents.rogue_net.enn_trainer.checkpoint import SUFFIX
from entity_env.authoring.agent import Agent
from entity_env.errors import CheckpointError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.neural_agent import TrainedAgent

Backend: TypeAlias = Literal["auto", "numpy", "torch"]

_BACKENDS: Final = ("auto", "numpy", "torch")
_NAMES: Final = ("random", "human")
_MAX_NAMED: Final = 8
_EXPECTED: Final = (
    f"'random', 'human', the folder of a checkpoint, or a file *{AGENT_SUFFIX} or *{SUFFIX}"
)


def load_agent(
    source: str | Path,
    *,
    greedy: bool = False,
    temperature: float = 1.0,
    seed: int | None = None,
    backend: Backend = "auto",
    adapt: bool = False,
) -> Agent:
    """Loads an agent for `Game.run`.

    Args:
        source: "random", "human" (asks in the terminal), or a trained network: the folder of a
            checkpoint or of a training run, an exported `.agent` file, the folder of a checkpoint
            of enn-trainer, or a `.roguenet` archive. A folder called `random` is `./random`.
        greedy: a trained agent takes the most probable action; otherwise it samples, as in
            training.
        temperature: of the samples: above 1 they are more even, below 1 less; 1 = as in training.
        seed: of the samples; None = a random one.
        backend: of a trained network: "numpy" needs no other package and is faster for single
            observations, "torch" for large batches. "auto" is numpy, even if torch is installed, so
            that a seed gives the same samples everywhere.
        adapt: a trained agent also plays a game with more features (in any order) or more entity
            types than it was trained on; it ignores them, and can neither act for nor select such
            entities. By default every difference is an error.

    Raises:
        UsageError: there is no such agent, folder or backend, or the temperature is not above 0.
        CheckpointError: the folder or file holds no network, or one that cannot be read. A network
            of another game raises at the first observation; the error names every difference, with
            `adapt` those that cannot be ignored: a missing feature or type, or another action.
        MissingExtraError: the backend torch, or a checkpoint of enn-trainer, needs a package that
            is not installed.
    """
    if backend not in _BACKENDS:
        raise UsageError(f"no backend {backend!r}: expected one of {', '.join(_BACKENDS)}")
    if source == "random":
        return RandomAgent(seed)
    if source == "human":
        return HumanAgent()
    found = _find(str(source))
    kind = _torch_agent(found) if backend == "torch" else _numpy_agent()
    return kind.load(found, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)


def _find(name: str) -> Path:
    """The checkpoint of that name; errors list those that exist."""
    path = Path(name)
    try:
        is_file = path.is_file() and path.suffix in (SUFFIX, AGENT_SUFFIX)
        is_there = is_file or path.is_dir() or old_of(path).is_dir()
    except OSError as error:  # a name that is too long, a folder without permission
        raise UsageError(f"no agent {name!r}: {error.strerror}") from error
    if not is_there:
        raise UsageError(_no_such_agent(name, path))
    try:
        return find_network(path)
    except CheckpointError as error:
        inside = _checkpoints_in(path)
        if not inside:
            raise
        raise CheckpointError(f"{path} is no checkpoint itself; choose {_list(inside)}") from error


def _numpy_agent() -> type[TrainedAgent]:
    from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent  # here: few programs need it

    return NumpyAgent


def _torch_agent(found: Path) -> type[TrainedAgent]:
    try:
        from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "torch":
            raise
        raise MissingExtraError(package, "train", f"{found} with the backend torch") from error
    return NeuralAgent


def _no_such_agent(name: str, path: Path) -> str:
    """Message for a name without an agent."""
    if path.is_file():
        return f"{name} is a file; expected {_EXPECTED}"
    around = _checkpoints_in(path.parent)
    close = difflib.get_close_matches(name, [*_NAMES, *around], n=1)
    if close:
        return f"no agent {name!r}; did you mean {close[0]}?"
    exists = f"; trained agents there: {_list(around)}" if around else ""
    return f"no agent {name!r}: expected {_EXPECTED}, and there is no such folder{exists}"


def _checkpoints_in(folder: Path) -> list[str]:
    """Checkpoints, and training runs with one, directly in a folder."""
    found = []
    files = [*folder.glob(f"*{AGENT_SUFFIX}"), *folder.glob(f"*{SUFFIX}")]
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
