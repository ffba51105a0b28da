"""Verifies replays in a process of its own, where sets of texts have another order."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from entity_env.authoring.game import Game
from entity_env.errors import ReplayError
from entity_env.replay.divergence import Divergence
from entity_env.replay.replay import Replay
from entity_env.replay.writer import place_of

_MAIN: Final = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from entity_env.replay.new_process import main; main()"
)


def verify_in_new_process(
    game: Game,
    replays: Sequence[Replay],
    *,
    timeout_s: float | None = 60.0,
    step_timeout_s: float | None = None,
) -> list[Divergence | None]:
    """`Replay.verify` of several replays of a game, in a new process with another hash seed.

    Args:
        game: is imported there by its name, or pickled, as where it is defined in `__main__`.
        replays: of that game.
        timeout_s: for all of them together; None = no limit.
        step_timeout_s: as for `Game.run`.

    Raises:
        ReplayError: the game cannot be pickled, the process died or took too long, or a replay
            cannot be played.
    """
    import cloudpickle  # takes 10 ms

    place = place_of(game)
    try:
        # By its name where it can be imported: classes made by `make_dataclass` cannot be pickled.
        sent = place if place is not None and place[0] != "__main__" else game
        job = cloudpickle.dumps((sent, [replay.to_bytes() for replay in replays], step_timeout_s))
    except Exception as error:
        raise ReplayError(
            f"{game.name} cannot be sent to another process: {type(error).__name__}: {error}"
        ) from error
    seed = os.environ.get("PYTHONHASHSEED", "random")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if seed != "1" else "2"}
    command = [sys.executable, "-c", _MAIN]
    given = pickle.dumps(sys.path) + job
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise ReplayError(f"{game.name}: playing again took longer than {timeout_s} s") from error
    marker = done.stdout.rfind(_MARK)
    if done.returncode or marker < 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with the code {done.returncode}"
        raise ReplayError(f"{game.name} cannot be played in another process: {reason}")
    found: list[Divergence | None] | str = pickle.loads(  # noqa: S301 - of our own process
        done.stdout[marker + len(_MARK) :]
    )
    if isinstance(found, str):
        raise ReplayError(found)
    return found


_MARK: Final = b"\0entity-env\0"
"""Before the answer, after what the game prints."""


def main() -> None:
    """The new process: reads the job from standard input, and writes what it found."""
    game, contents, step_timeout_s = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own process
    if isinstance(game, tuple):
        game = getattr(import_module(game[0]), game[1])
    found: list[Divergence | None] | str = []
    try:
        found = [
            Replay.from_bytes(content).verify(game, step_timeout_s=step_timeout_s)
            for content in contents
        ]
    except ReplayError as error:
        found = str(error)
    sys.stdout.flush()
    sys.stdout.buffer.write(_MARK + pickle.dumps(found))
    sys.stdout.buffer.flush()
