"""enn-trainer's agent as a contender: each step is one decision of the real rogue-net in torch.

Runs in the environment from `make interop`, with a replacement for `torch_scatter`.
"""

# ruff: noqa: E402 - enn-trainer can be imported once torch_scatter can
from __future__ import annotations

import tempfile
from itertools import cycle
from pathlib import Path

from benchmarks.peers.decision import ACTION, shown, weights
from benchmarks.peers.stepper import Stepper
from entity_env.agents.rogue_net import write_enn_checkpoint
from tests.upstream.torch_scatter import provide_torch_scatter

provide_torch_scatter()

import torch
from enn_trainer import load_agent
from entity_gym.env import CategoricalActionMask, Observation


def agent(num_entities: int) -> Stepper:
    """The agent that enn-trainer loads from a checkpoint, with frozen statistics."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        write_enn_checkpoint(path, weights())
        deciding = load_agent(str(path))
    deciding.agent.eval()
    observations = cycle(
        [
            Observation(
                reward=0.0,
                done=False,
                features=dict(features),
                ids={"Head": [0]},
                actions={ACTION.name: CategoricalActionMask(actor_types=["Head"])},
            )
            for features in shown(num_entities)
        ]
    )
    return Stepper(1, lambda: deciding.act(next(observations)))
