"""`Learner`: network, optimizer, random states and return statistics of a run; checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.checkpoint import (
    Checkpoint,
    not_finite,
    save_checkpoint,
)
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.network import MakePolicy, new_policy, torch_device
from entity_env.agents.training.peers import ALONE, Peers
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import CheckpointError, TrainingDivergedError

_MOST: Final = 2**63 - 1
GENERATOR: Final = "generator"
"""Key of the random state among the optimizer's tensors; parameter names contain dots."""
_RATE: Final = 0.05
"""Smallest weight of the newest rollout in `ReturnStatistics`."""
_LEAST_STD: Final = 1e-6


class ReturnStatistics:
    """Running mean and standard deviation of returns, a moving average over rollouts.

    Args:
        mean, square: means of the returns and of their squares.
        count: number of rollouts so far.
    """

    def __init__(self, mean: float = 0.0, square: float = 0.0, count: int = 0) -> None:
        self.mean = mean
        self.square = square
        self.count = count

    @property
    def std(self) -> float:
        """Standard deviation, at least 1e-6 and a tenth of the root mean square; 1 at the start."""
        variance = max(self.square - self.mean**2, 0.01 * self.square)
        return max(math.sqrt(variance), _LEAST_STD) if self.count else 1.0

    def update(self, returns: NDArray[np.float32], peers: Peers = ALONE) -> None:
        """Adds the returns of a rollout, from all ranks."""
        squares = np.square(returns, dtype=np.float64)
        whole, of_squares = peers.moments((returns, squares))
        if not whole.number:
            return
        self.count += 1
        rate = max(1 / self.count, _RATE)
        self.mean += rate * (whole.mean - self.mean)
        self.square += rate * (of_squares.mean - self.square)


@dataclass(slots=True)
class Learner:
    """State of training, without the environments.

    Args:
        optimizer: AdamW, over the parameters of `net` in order.
        generator: samples actions.
        rng: shuffles minibatches.
        step: number of decisions so far.
        update: number of rollouts used so far.
        num_episodes: number of finished episodes so far.
        elapsed_s: wall-clock seconds of training so far.
        game: name and identity of the game, for checkpoints; see `Weights`.
    """

    net: Policy
    optimizer: torch.optim.Adam
    generator: torch.Generator
    rng: np.random.Generator
    step: int = 0
    update: int = 0
    num_episodes: int = 0
    elapsed_s: float = 0.0
    returns: ReturnStatistics = field(default_factory=ReturnStatistics)
    game: Mapping[str, object] = field(default_factory=dict)


def new_learner(
    vec: VecEnvironment, config: PPOConfig, policy: Policy | MakePolicy | None = None
) -> Learner:
    """A learner at step 0, with the given or a new network.

    Does not change torch's global random state.
    """
    device = torch_device(config.device)
    spaces, size = (vec.obs_space(), vec.action_space()), config.net
    if isinstance(size, RogueNetConfig):
        size = replace(size, value_scale=config.norm_returns)
    net = new_policy(spaces, size, config.seed, policy).to(device).eval()
    return Learner(
        net=net,
        optimizer=torch.optim.AdamW(
            net.parameters(), eps=1e-5, weight_decay=config.at(0).weight_decay, fused=True
        ),
        generator=torch.Generator(device).manual_seed(config.seed),
        rng=np.random.default_rng(config.seed),
    )


def save_learner(
    path: Path,
    learner: Learner,
    config: PPOConfig,
    *,
    resumable: bool = True,
    notes: Mapping[str, object] | None = None,
) -> None:
    """Writes a checkpoint, from which `load_learner` can continue if `resumable`.

    Raises:
        TrainingDivergedError: the network or, if `resumable`, the optimizer's state is not finite.
    """
    optimizer = _optimizer_tensors(learner) if resumable else {}
    for owner, tensors in (("network", learner.net.state_dict()), ("optimizer", optimizer)):
        if bad := not_finite(tensors):
            raise TrainingDivergedError(f"{bad[0]} of the {owner} is not finite")
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
            "returns": [learner.returns.mean, learner.returns.square, learner.returns.count],
            **({} if notes is None else {"notes": dict(notes)}),
            **({"game": dict(learner.game)} if learner.game else {}),
        },
        optimizer=optimizer,
    )


def load_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Loads a checkpoint into `learner`; sizes and spaces of both networks must be equal.

    Raises:
        CheckpointError: the checkpoint has no training state, or a damaged one.
    """
    training = checkpoint.training
    if GENERATOR not in checkpoint.optimizer or "update" not in training:
        raise CheckpointError(
            f"{checkpoint.path} cannot be resumed: it has no training state, like networks that "
            "were cloned, kept along a run or shipped without their optimizer; to start a new run "
            "from it, use entity-env train --init-from, or initialized_from(path)"
        )
    try:
        step, update, num_episodes = (
            int(_number(training, key, int)) for key in ("step", "update", "num_episodes")
        )
        elapsed_s = float(_number(training, "elapsed_s", int | float))
        learner.rng.bit_generator.state = _object(training, "rng")
        learner.returns = _returns(training)
        learner.generator.set_state(checkpoint.optimizer[GENERATOR].cpu())
        _fill_optimizer(learner.optimizer, learner.net, checkpoint.optimizer)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} cannot be resumed: the state of the trainer is missing or does not "
            f"fit ({type(error).__name__}: {error})"
        ) from error
    learner.step, learner.update, learner.num_episodes = step, update, num_episodes
    learner.elapsed_s = elapsed_s
    learner.net.load_state_dict(checkpoint.net.state_dict())


def _number(training: Mapping[str, object], key: str, kinds: type | UnionType) -> float:
    value = training[key]
    is_bool = isinstance(value, bool)
    if isinstance(value, int | float) and isinstance(value, kinds) and not is_bool:
        number: float = value
        if 0 <= number <= _MOST:
            return number
    name = "an integer" if kinds is int else "a number"
    raise ValueError(f"{key} must be {name} from 0 to 2**63 - 1, got {repr(value)[:40]}")


def _returns(training: Mapping[str, object]) -> ReturnStatistics:
    given = training.get("returns", [0.0, 0.0, 0])  # earlier releases had none
    if not isinstance(given, list) or len(given) != 3:
        raise TypeError(f"returns must be three numbers, got {repr(given)[:40]}")
    mean, square, count = (float(each) for each in given)
    if not (math.isfinite(mean) and 0 <= square < math.inf and 0 <= count < math.inf):
        raise ValueError(
            f"returns must be three finite numbers, the last two 0 or more, got {repr(given)[:40]}"
        )
    return ReturnStatistics(mean, square, int(count))


def _object(training: Mapping[str, object], key: str) -> dict[str, object]:
    value = training[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} must be an object, got {repr(value)[:40]}")
    return value


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {GENERATOR: learner.generator.get_state()}
    for name, parameter in learner.net.named_parameters():
        # A parameter that had no gradient yet has no state.
        for key, value in learner.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value
    return tensors


def _fill_optimizer(
    optimizer: torch.optim.Adam, net: Policy, tensors: Mapping[str, Tensor]
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
        step = found.get("step", parameter)
        is_step = step.shape == () and bool(step >= 0)
        dtypes = {value.dtype for value in found.values()}
        is_fit = len(found) == 3 and shapes == {parameter.shape} and dtypes == {parameter.dtype}
        if not is_fit or not is_step or not_finite(found):
            raise ValueError(f"the optimizer's state of {name} does not fit the parameter")
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in found.items()
        }
