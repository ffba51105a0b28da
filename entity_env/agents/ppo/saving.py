"""What a training run writes down so that another can go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.rogue_net.torch_checkpoint import Checkpoint, save_checkpoint
from entity_env.agents.rogue_net.torch_net import RogueNet
from entity_env.errors import CheckpointError

GENERATOR = "generator"
"""Name of the random state among the optimizer's tensors; parameters have dots in their names."""


@dataclass(slots=True)
class Learner:
    """All that changes while training, apart from the environments.

    Args:
        net: the network.
        optimizer: Adam, over the parameters of `net` in their order.
        generator: draws actions.
        rng: shuffles minibatches.
        step: decisions so far.
        update: rollouts learnt from so far.
        num_episodes: episodes that ended so far.
        elapsed_s: seconds of training so far.
    """

    net: RogueNet
    optimizer: torch.optim.Adam
    generator: torch.Generator
    rng: np.random.Generator
    step: int = 0
    update: int = 0
    num_episodes: int = 0
    elapsed_s: float = 0.0


def save_learner(path: Path, learner: Learner, config: PPOConfig) -> None:
    """Writes a checkpoint from which `load_learner` goes on."""
    save_checkpoint(
        path,
        learner.net,
        training={
            "config": config.to_json(),
            "step": learner.step,
            "update": learner.update,
            "num_episodes": learner.num_episodes,
            "elapsed_s": learner.elapsed_s,
            "rng": learner.rng.bit_generator.state,
        },
        optimizer=_optimizer_tensors(learner),
    )


def load_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Puts a checkpoint's state into `learner`, whose network has the same size and spaces.

    Raises:
        CheckpointError: the checkpoint holds no state of a training run, or one that does not fit.
    """
    training = checkpoint.training
    try:
        counts = [_number(training, key) for key in ("step", "update", "num_episodes")]
        learner.step, learner.update, learner.num_episodes = (int(count) for count in counts)
        learner.elapsed_s = _number(training, "elapsed_s")
        learner.rng.bit_generator.state = _object(training, "rng")
        learner.generator.set_state(checkpoint.optimizer[GENERATOR].cpu())
        _fill_optimizer(learner.optimizer, learner.net, checkpoint.optimizer)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} cannot be resumed: what the trainer noted is missing or does not "
            f"fit ({type(error).__name__}: {error}); a checkpoint that was shipped without its "
            "optimizer can only be played"
        ) from error
    learner.net.load_state_dict(checkpoint.net.state_dict())


def _number(training: Mapping[str, object], key: str) -> float:
    value = training[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r}, not a number")
    return value


def _object(training: Mapping[str, object], key: str) -> dict[str, object]:
    value = training[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is {value!r}, not an object")
    return value


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {GENERATOR: learner.generator.get_state()}
    for name, parameter in learner.net.named_parameters():
        # A parameter that had no gradient yet has no state.
        for key, value in learner.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value
    return tensors


def _fill_optimizer(
    optimizer: torch.optim.Adam, net: RogueNet, tensors: Mapping[str, Tensor]
) -> None:
    for name, parameter in net.named_parameters():
        found = {
            key: tensors[f"{name}.{key}"]
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"{name}.{key}" in tensors
        }
        if not found:
            continue
        shapes = {value.shape for key, value in found.items() if key != "step"}
        if len(found) != 3 or shapes != {parameter.shape}:
            raise ValueError(f"the optimizer's state of {name} does not fit it")
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in found.items()
        }
