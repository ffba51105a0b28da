"""load_agent: an agent from what a user names: random, human, or a checkpoint."""

from __future__ import annotations

import difflib
from pathlib import Path

from entity_env.agents.agent import Agent
from entity_env.agents.human import HumanAgent
from entity_env.agents.random import RandomAgent
from entity_env.agents.rogue_net.checkpoint_folder import find_checkpoint
from entity_env.errors import CheckpointError, MissingExtraError, UsageError

_NAMES = ("random", "human")
_MAX_NAMED = 8


def load_agent(source: str | Path, *, greedy: bool = False, seed: int | None = None) -> Agent:
    """Loads an agent to be handed to `Game.run`.

    Args:
        source: "random", "human" (asked in the terminal), or the folder of a checkpoint or of a
            training run. A folder that is called `random` is `./random`.
        greedy: a trained agent takes what it thinks best; otherwise it draws, as in training.
        seed: the same seed makes the same draws; None = a fresh one.

    Raises:
        UsageError: there is no such agent or folder.
        CheckpointError: the folder holds no checkpoint, or one that cannot be read. One of another
            game is found out when the agent is first asked.
        MissingExtraError: a checkpoint needs torch, which is not installed.
    """
    if source == "random":
        return RandomAgent(seed)
    if source == "human":
        return HumanAgent()
    return _load_checkpoint(_find(str(source)), greedy, seed)


def _find(name: str) -> Path:
    """The checkpoint folder that a user means.

    Raises:
        UsageError, CheckpointError: there is none; says what there is.
    """
    folder = Path(name)
    if not folder.is_dir() and not folder.with_name(f"{folder.name}.old").is_dir():
        raise UsageError(_no_such_agent(name, folder))
    try:
        return find_checkpoint(folder)
    except CheckpointError as error:
        inside = _checkpoints_in(folder)
        if not inside:
            raise
        raise CheckpointError(
            f"{folder} is no checkpoint itself; choose {_list(inside)}"
        ) from error


def _load_checkpoint(folder: Path, greedy: bool, seed: int | None) -> Agent:
    try:
        from entity_env.agents.rogue_net.torch_agent import NeuralAgent
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("torch", "safetensors"):
            raise
        raise MissingExtraError(package, "train", f"the trained agent {folder}") from error
    return NeuralAgent.load(folder, greedy=greedy, seed=seed)


def _no_such_agent(name: str, folder: Path) -> str:
    """What to tell a user who named a folder that does not exist."""
    if folder.is_file():
        return f"{name} is a file; expected 'random', 'human' or the folder of a checkpoint"
    around = _checkpoints_in(folder.parent)
    close = difflib.get_close_matches(name, [*_NAMES, *around], n=1)
    if close:
        return f"no agent {name!r}; did you mean {close[0]}?"
    exists = f"; trained agents there: {_list(around)}" if around else ""
    return (
        f"no agent {name!r}: expected 'random', 'human' or the folder of a checkpoint, "
        f"and there is no such folder{exists}"
    )


def _checkpoints_in(folder: Path) -> list[str]:
    """The folders directly inside that hold a checkpoint, or a training run with one."""
    found = []
    for path in sorted(folder.glob("*/")):
        try:
            find_checkpoint(path)
        except CheckpointError:
            continue
        found.append(str(path))
    return found


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
