"""Plays replays again in a new process, with limits and another order of sets."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import summary_of
from entity_env.authoring.identity import place_of
from entity_env.authoring.load_module import execute_file, to_pickle
from entity_env.authoring.local_run import Turn
from entity_env.authoring.named_code.finder import ImportState
from entity_env.errors import ReplayError
from entity_env.processes import Started, run_group
from entity_env.replay.divergence import Divergence
from entity_env.replay.replay import Replay

if sys.platform == "linux":
    import resource

T = TypeVar("T")
_MAIN: Final = (
    "import pickle, sys; paths = pickle.load(sys.stdin.buffer); sys.path += paths; "
    "from entity_env.processes import exit_with_parent; exit_with_parent({parent}); "
    "from {module} import main; pickle.load(sys.stdin.buffer).restore(); main()"
)
"""Loads Python's own modules first, because a game may be named `random.py`."""


class PlayLimits(NamedTuple):
    """Limits for playing a replay again and reading what it shows.

    Untrusted files need limits: one of 200 bytes can request a board of any size.

    Args:
        timeout_s: seconds for all replays of a call together; None = no limit.
        step_timeout_s: as for `Game.run`.
        max_memory: bytes of private memory of the process, on Linux; None = no limit.
        max_shown: limit per replay, as for `Replay.turns`.
    """

    timeout_s: float | None = 600.0
    step_timeout_s: float | None = 30.0
    max_memory: int | None = 4 << 30
    max_shown: int | None = 10_000_000


PLAY_LIMITS: Final = PlayLimits()
"""Default limits for untrusted files."""


def verify_in_new_process(
    game: Game,
    replays: Sequence[Replay],
    *,
    timeout_s: float | None = 60.0,
    step_timeout_s: float | None = None,
    max_memory: int | None = PLAY_LIMITS.max_memory,
) -> list[Divergence | None]:
    """`Replay.verify` of several replays of a game, in a new process with another hash seed.

    Args:
        game: imported there by name, or pickled, for example if it is defined in `__main__`.
        timeout_s, max_memory: as in `PlayLimits`.
        step_timeout_s: as for `play_again`.

    Raises:
        ReplayError: the game cannot be pickled, the process died or took too long, or a replay
            cannot be played.
    """
    limits = PlayLimits(timeout_s, step_timeout_s, max_memory)
    return in_new_process(
        game, Replay.verify, _contents(replays), limits, {"step_timeout_s": step_timeout_s}
    )


def turns_in_new_process(
    replays: Sequence[Replay], game: Game, limits: PlayLimits = PLAY_LIMITS
) -> list[list[Turn]]:
    """`Replay.turns` of several replays of a game, in a new process with limits.

    Raises:
        ReplayError: as `Replay.turns` and `verify_in_new_process`.
    """
    options = {"step_timeout_s": limits.step_timeout_s, "max_shown": limits.max_shown}
    return in_new_process(game, Replay.turns, _contents(replays), limits, options)


def _contents(replays: Sequence[Replay]) -> list[tuple[bytes, str]]:
    return [(replay.to_bytes(), replay.name) for replay in replays]


def in_new_process(
    game: Game,
    function: Callable[..., T],
    contents: Sequence[tuple[bytes, str]],
    limits: PlayLimits,
    options: Mapping[str, float | None],
    started: Started | None = None,
) -> list[T]:
    """Calls `function(replay, game, **options)` for replays of a game, in a new process.

    Args:
        game: as for `verify_in_new_process`.
        function: of a module; its results are pickled.
        contents: content and name of each file, which only the new process reads.
        limits: of time and memory.
        started: see `run_group`.

    Raises:
        ReplayError: as `verify_in_new_process`, or raised by the function.
    """
    try:
        # By name if possible: classes made by `make_dataclass` cannot be pickled.
        place = _place_and_file(game)
        # Pickled separately: settings may have classes of the module, which must be loaded first.
        rest = to_pickle((None if place else game, game.settings, list(contents)))
        job = pickle.dumps((place, rest, function, limits.max_memory, options))
    except Exception as error:
        raise ReplayError(
            f"{game.name} cannot be sent to another process: {summary_of(error)}"
        ) from error
    found: list[T] | str = run_main(__name__, job, game.name, limits.timeout_s, started)
    if isinstance(found, str):
        raise ReplayError(found)
    return found


def run_main(
    module: str, job: bytes, game: str, timeout_s: float | None, started: Started | None = None
) -> Any:  # noqa: ANN401 - what the process sends
    """Runs `main()` of a module, which plays a game, in a new process with another hash seed.

    Args:
        job: what `main` reads from standard input.
        game: its name, for messages.
        timeout_s: None = no limit.
        started: see `run_group`.

    Returns:
        The object that it gives to `send_result`.

    Raises:
        ReplayError: the process failed, died or took too long.
    """
    seed = os.environ.get("PYTHONHASHSEED", "random")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if seed != "1" else "2"}
    # -P: do not import from the current folder either.
    main = _MAIN.format(module=module, parent=os.getpid())
    imports = pickle.dumps(sys.path) + pickle.dumps(ImportState.of_this_process())
    command = [sys.executable, "-P", "-c", main]
    done = run_group(command, imports + job, timeout_s, env=environment, started=started)
    if done is None:
        raise ReplayError(f"{game}: playing took longer than {timeout_s:g} s")
    marker = done.output.rfind(_MARK)
    if done.code or marker < 0:
        lines = done.errors.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with the code {done.code}"
        if done.code < 0:
            reason = f"it died (signal {-done.code})"
        raise ReplayError(f"{game} cannot be played in another process: {reason}")
    return pickle.loads(done.output[marker + len(_MARK) :])  # noqa: S301 - from our own process


def send_result(found: object) -> None:
    """Sends what `run_main` returns; called once, at the end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(_MARK + pickle.dumps(found))
    sys.stdout.buffer.flush()


def _place_and_file(game: Game) -> tuple[str, str, str | None] | None:
    """Module and name of a game, and the file of a standalone module.

    None for a script, and for a module that other processes cannot import. A standalone module is
    loaded from its file, because its name may belong to another module in the new process.
    """
    import cloudpickle  # takes 10 ms

    place = place_of(game)
    top = "__main__" if place is None else place[0].partition(".")[0]
    if place is None or top in {"__main__", *cloudpickle.list_registry_pickle_by_value()}:
        return None
    module = sys.modules[place[0]]
    is_alone = "." not in place[0] and not hasattr(module, "__path__")
    return *place, getattr(module, "__file__", None) if is_alone else None


_MARK: Final = b"\0entity-env\0"
"""Precedes the result, after the game's own output."""


def main() -> None:
    """Runs in the new process: reads the job from standard input, writes the results."""
    place, rest, function, max_memory, options = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    if max_memory is not None:
        _limit_memory(max_memory)
    module = None
    if place is not None:
        name, attribute, file = place
        module = import_module(name) if file is None else execute_file(name, Path(file))
    game, settings, contents = pickle.loads(rest)  # noqa: S301 - from our own process
    if module is not None:
        game = getattr(module, attribute)
    game.settings = settings  # including those that a replay cannot store
    found: list[Any] | str = []
    try:
        replays = [Replay.from_bytes(content, name) for content, name in contents]
        found = [function(each, game, **options) for each in replays]
    except ReplayError as error:
        found = str(error)
    send_result(found)


def _limit_memory(num_bytes: int) -> None:
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = num_bytes if hard == resource.RLIM_INFINITY else min(num_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
