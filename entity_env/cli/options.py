"""Arguments and options that several commands have."""

from __future__ import annotations

import os

import click

game_argument = click.argument("game", metavar="GAME")
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the game, as board_size=6; may be repeated.",
)
agent_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="AGENT",
    help="random, human, or the folder of a checkpoint or training run; repeated for each agent "
    "of a game for several. Random for those left out.",
)
greedy_option = click.option(
    "--greedy", is_flag=True, help="Trained agents take what they think best, instead of drawing."
)


def default_workers(num_envs: int) -> int:
    """How many processes play so many environments: one a core, none where there is but one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 0 if cores is None or cores == 1 else min(cores, num_envs)
