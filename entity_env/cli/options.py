"""Arguments and options that several commands have."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar, cast, get_args

import click

from entity_env.vec.in_process.base import OnError

_Command = TypeVar("_Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A finite number within bounds; plain ranges let NaN pass, and infinities where none is."""

    name = "float"

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


SEED: Final = click.IntRange(min=0, max=2**63 - 1)
"""What torch, numpy and a game's own generators all take."""
COUNT: Final = click.IntRange(min=1, max=10**9)
"""Of episodes or games: more would never end."""
ENVS: Final = click.IntRange(min=1, max=10**6)
WORKERS: Final = click.IntRange(min=0, max=1024)

game_argument = click.argument("game", metavar="GAME")
_NAMED_SETTINGS: Final = {
    "rom": ("FILE", "pixel: the program that the machine runs, as --set rom=FILE."),
    "goal": ("DIR", "pixel: what entity-env capture-goal recorded, as --set goal=DIR."),
    "quirks": ("NAME", "pixel: xochip, superchip or chip8, as --set quirks=NAME."),
}


def set_option(command: _Command) -> _Command:
    """Adds --set, and options of their own for settings that are files; all are `settings`."""

    @wraps(command)
    def with_settings(settings: Sequence[str], **options: object) -> object:
        named = {name: options.pop(name) for name in _NAMED_SETTINGS}
        given = (f"{name}={value}" for name, value in named.items() if value is not None)
        return command(settings=(*given, *settings), **options)

    decorated: Any = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the game, as board_size=6; may be repeated.",
    )(with_settings)
    for name, (metavar, text) in reversed(_NAMED_SETTINGS.items()):
        decorated = click.option(f"--{name}", metavar=metavar, help=text)(decorated)
    return cast(_Command, decorated)


agent_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="AGENT",
    help="random, human, the folder of a checkpoint or training run, or an exported *.agent; "
    "repeated for each agent of a game for several. Random for those left out.",
)
greedy_option = click.option(
    "--greedy", is_flag=True, help="Trained agents take what they think best, instead of drawing."
)
temperature_option = click.option(
    "--temperature",
    type=FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Above 1 trained agents draw more evenly, below 1 more often what they think best.",
)
adapt_option = click.option(
    "--adapt",
    is_flag=True,
    help="Trained agents play also if the game shows more now than they were trained on; they do "
    "not see it.",
)


def _seconds(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value or None


step_timeout_option = click.option(
    "--step-timeout",
    "step_timeout_s",
    type=click.FloatRange(min=0, max=1e6),
    default=30,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="A game that takes longer between two questions counts as hanging; 0 = for ever. Without "
    "workers only those that hang in Python can be ended.",
)
on_error_option = click.option(
    "--on-error",
    type=click.Choice(get_args(OnError)),
    default="raise",
    show_default=True,
    help="When a copy of the game raises, hangs or dies: stop, or begin its next episode and count "
    "the lost one as cut.",
)


def default_workers(num_envs: int) -> int:
    """How many processes play so many environments: one a core, none where there is but one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 0 if cores is None or cores == 1 else min(cores, num_envs)
