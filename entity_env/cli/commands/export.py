"""`entity-env export`: a trained agent as one file, to be shipped with a game."""

from __future__ import annotations

from pathlib import Path

import click

from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX, write_agent
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.errors import UsageError


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("agent", type=click.Path(path_type=Path))
def export(checkpoint: Path, agent: Path) -> None:
    """Write the network of CHECKPOINT to the file AGENT, called *.agent.

    CHECKPOINT is the folder of a checkpoint or of a training run, one of enn-trainer, or a
    .roguenet archive. Playing what is exported needs numpy only.
    """
    if agent.suffix != SUFFIX:
        raise UsageError(f"the file must be called *{SUFFIX}, got {agent}")
    weights = read_network(checkpoint)
    try:
        write_agent(agent, weights)
    except OSError as error:
        raise UsageError(f"cannot write {agent}: {error}") from error
    num_parameters = sum(tensor.size for tensor in weights.tensors.values())
    entities = ", ".join(weights.obs_space.entities) or "no entities"
    actions = ", ".join(weights.action_space) or "none"
    size = agent.stat().st_size / 1024
    click.echo(f"{agent}: {num_parameters} numbers, {size:.0f} KiB")
    click.echo(f"sees {entities}; actions {actions}")
