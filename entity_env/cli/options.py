"""Arguments and options that several commands have."""

from __future__ import annotations

import math
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex, TypeAlias, get_args

import click

from entity_env.authoring.game import Transport
from entity_env.cli.game_errors import episode_named
from entity_env.cli.load_game import AgentLoader
from entity_env.core.validation import num_cores
from entity_env.errors import UsageError
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits
from entity_env.vec.options import OnError

_Command: TypeAlias = Callable[..., Any]
_GIB: Final = 1 << 30


class FiniteFloat(click.types.FloatParamType):
    """A finite number; click's own floats may be NaN or infinite."""

    def convert(
        self,
        value: SupportsFloat | SupportsIndex,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class FiniteRange(FiniteFloat, click.FloatRange):
    """A finite number within bounds."""

    name = "float"


class WholeRange(click.IntRange):
    """A whole number within bounds, also one such as 1e6."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d\d?", value.strip()):
            number = Decimal(value)
            value = int(number) if number == int(number) else value
        try:
            whole = int(value)  # type: ignore[call-overload]  # click gives a text, or a default
        except ValueError:
            self.fail(f"{value!r} is not a whole number, such as 1000 or 1e6.", param, ctx)
        return super().convert(whole, param, ctx)


def require_writable(folder: Path, option: str = "--out") -> None:
    """Checks that files can be written to a folder, which need not exist yet.

    Raises:
        UsageError: they cannot; it names the option that chooses the folder.
    """
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        with suppress(OSError):  # another run has begun there
            for each in missing:
                each.rmdir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {folder}: {reason}; choose another {option}") from error


SEED: Final = WholeRange(min=0, max=2**63 - 1)
"""Seeds that torch, numpy and the generators of games all accept."""
COUNT: Final = WholeRange(min=1, max=10**9)
ENVS: Final = WholeRange(min=1, max=10**6)
WORKERS: Final = WholeRange(min=0, max=1024)


def game_argument(command: _Command) -> _Command:
    """Adds GAME; errors of its episodes say how to begin them again."""

    @wraps(command)
    def with_episode_named(**options: object) -> object:
        with episode_named(click.get_current_context()):
            return command(**options)

    return click.argument("game", metavar="GAME")(with_episode_named)


_NAMED_SETTINGS: Final = {
    "rom": ("FILE", "For pixel: the program that the machine runs; the same as --set rom=FILE."),
    "goal": ("DIR", "For pixel: a folder of entity-env capture-goal; the same as --set goal=DIR."),
    "quirks": ("NAME", "For pixel: xochip, superchip or chip8; the same as --set quirks=NAME."),
}


def set_option(command: _Command) -> _Command:
    """Adds --set, and an option per file setting; the command gets all of them as `settings`."""

    @wraps(command)
    def with_settings(settings: Sequence[str], **options: object) -> object:
        named = {name: options.pop(name) for name in _NAMED_SETTINGS}
        given = (f"{name}={value}" for name, value in named.items() if value is not None)
        return command(settings=(*given, *settings), **options)

    decorated = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the game, such as board_size=6. May be repeated.",
    )(with_settings)
    for name, (metavar, text) in reversed(_NAMED_SETTINGS.items()):
        decorated = click.option(f"--{name}", metavar=metavar, help=text)(decorated)
    return decorated


step_timeout_option = click.option(
    "--step-timeout",
    "step_timeout_s",
    type=FiniteRange(min=0, max=1e6),
    default=30,
    metavar="SECONDS",
    callback=lambda context, parameter, value: value or None,
    help="Time a game may take between two actions before it counts as hanging; 0 = no limit. "
    "Without workers only games that hang in Python code can be stopped.",
)


def limit_options(command: _Command, *, max_shown: int | None = None) -> _Command:
    """Adds the limits of playing a replay again; the command gets them as `limits`.

    With `max_shown` also a limit of what a replay shows, whose default that is.
    """

    @click.option(
        "--timeout",
        "timeout_s",
        type=FiniteRange(min=0, min_open=True, max=1e6),
        default=PLAY_LIMITS.timeout_s,
        metavar="SECONDS",
        help="Time that playing a file again may take; of a report, all its replays together.",
    )
    @click.option(
        "--max-memory",
        "max_gib",
        type=FiniteRange(min=0, min_open=True, max=1e6),
        default=(PLAY_LIMITS.max_memory or 0) / _GIB,
        metavar="GIB",
        help="Memory that playing a file again may take, on Linux.",
    )
    @step_timeout_option
    @wraps(command)
    def with_limits(
        *,
        timeout_s: float,
        max_gib: float,
        step_timeout_s: float | None,
        max_shown: int | None = None,
        **options: object,
    ) -> object:
        limits = PlayLimits(timeout_s, step_timeout_s, int(max_gib * _GIB), max_shown)
        return command(limits=limits, **options)

    if max_shown is None:
        return with_limits
    return click.option(
        "--max-shown",
        type=WholeRange(min=1),
        default=max_shown,
        show_default=f"{max_shown:,}",
        metavar="N",
        help="Entities and their features that one replay may show, in all its decisions together.",
    )(with_limits)


drawing_limit_options = partial(limit_options, max_shown=PLAY_LIMITS.max_shown)
"""As `limit_options`, for commands that draw replays."""

reading_limit_options = partial(limit_options, max_shown=100_000_000)
"""As `limit_options`, for commands that read replays, which takes a tenth of the time."""


def agent_options(command: _Command) -> _Command:
    """Adds the options that say which agents play and how; the command gets `agents` and `load`."""

    @click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="AGENT",
        help="random, human, a bot FILE.py:CLASS, the folder of a checkpoint or training run, or "
        "an exported *.agent. In a game for several agents, repeat the option, once per agent; "
        "agents that are not given are random.",
    )
    @click.option(
        "--greedy",
        is_flag=True,
        help="Trained agents take the most probable action instead of sampling.",
    )
    @click.option(
        "--temperature",
        type=FiniteRange(min=0, min_open=True),
        default=1.0,
        help="How randomly trained agents choose: above 1 more evenly, below 1 closer to --greedy.",
    )
    @click.option(
        "--adapt",
        is_flag=True,
        help="Trained agents also play a game that has more entities and features than the one "
        "they were trained on; they ignore the additions.",
    )
    @click.option(
        "--rename",
        multiple=True,
        metavar="THEIRS=OURS",
        help="What the game calls an entity, feature, action or choice that trained agents know by "
        "another name. May be repeated.",
    )
    @wraps(command)
    def with_loader(
        *,
        greedy: bool,
        temperature: float,
        adapt: bool,
        rename: Sequence[str],
        **options: object,
    ) -> object:
        pairs = [pair.partition("=") for pair in rename]
        for pair, (theirs, _, ours) in zip(rename, pairs, strict=True):
            if not (theirs and ours):
                raise UsageError(f"--rename needs THEIRS=OURS, got {pair!r}")
        names = {theirs: ours for theirs, _, ours in pairs} or None
        return command(load=AgentLoader(greedy, temperature, adapt, names), **options)

    return with_loader


on_error_option = click.option(
    "--on-error",
    type=click.Choice(get_args(OnError)),
    default="raise",
    help="When a copy of the game raises, hangs or dies: stop, or restart it with its next episode "
    "and count the failed one as truncated.",
)

transport_option = click.option(
    "--transport",
    type=click.Choice(get_args(Transport)),
    help="How copies of the game wait for their actions: greenlet, all in one thread, or thread, "
    "each in one of its own, for games that run an event loop (asyncio).  [default: that of the "
    "game]",
)

failures_option = click.option(
    "--failures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for replays of episodes that raise, hang or die.",
)

ray_option = click.option(
    "--ray",
    "address",
    metavar="ADDRESS",
    help="Run on a Ray cluster: auto (the one of this machine, or a new one), local, HOST:PORT or "
    "ray://HOST:PORT.",
)

jobs_option = click.option(
    "--jobs",
    "num_jobs",
    type=WholeRange(min=1, max=1024),
    metavar="N",
    help="Training runs at once, each in a process.  [default: one per core]",
)

clock_option = click.option(
    "--clock",
    "clock_s",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    metavar="SECONDS",
    help="Time of a person for each decision after the first of an episode; then it is the choice "
    "that does nothing (STAY, WAIT, NOOP, NONE, PASS), or else the last one again, or else the "
    "first. Up to 1 second the game runs in real time: it goes on when the time is over, not "
    "before.",
)

# Drawn by click, so that what is said after a failure names it.
run_seed_option = click.option(
    "--seed",
    type=SEED,
    default=lambda: secrets.randbelow(2**31),
    show_default="random",
    help="Seed of the run, and of the agents.",
)

look_option = click.option("--look", metavar="FILE.py|MODULE:NAME", help="Draw it by this look.")

open_option = click.option(
    "--open/--no-open",
    "is_opened",
    default=True,
    help="Open the browser, if there is a screen; the address is printed in any case.",
)


def default_workers(num_envs: int, num_ranks: int = 1) -> int:
    """The number of worker processes for so many environments: one per core, 0 on one core.

    `num_ranks` processes share the cores.
    """
    cores = num_cores() // num_ranks
    return 0 if cores <= 1 else min(cores, num_envs)
