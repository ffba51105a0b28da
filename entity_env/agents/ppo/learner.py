"""`Learner`: network, optimizer, random states and statistics of returns of a training run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.peers import ALONE, Peers
from entity_env.agents.rogue_net.config import NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.core.space_json import Spaces, differences
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import UsageError, shown

MakePolicy: TypeAlias = Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy]
"""Makes the network to train from the spaces of the environments."""
_RATE: Final = 0.05
"""Weight of the newest rollout, at least."""
_LEAST_STD: Final = 1e-6


class ReturnStatistics:
    """Running mean and deviation of returns, as a moving average over rollouts.

    Args:
        mean, square: means of the returns and of their squares.
        count: rollouts so far.
    """

    def __init__(self, mean: float = 0.0, square: float = 0.0, count: int = 0) -> None:
        self.mean = mean
        self.square = square
        self.count = count

    @property
    def std(self) -> float:
        """Deviation, at least a tenth of the root mean square: equal returns still have a scale."""
        variance = max(self.square - self.mean**2, 0.01 * self.square)
        return max(math.sqrt(variance), _LEAST_STD) if self.count else 1.0

    def update(self, returns: NDArray[np.float32], peers: Peers = ALONE) -> None:
        """Counts the returns of a rollout, of all ranks, if there are any."""
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
    """State of training, apart from the environments.

    Args:
        net: the network.
        optimizer: Adam, over the parameters of `net` in their order.
        generator: draws actions.
        rng: shuffles minibatches.
        step: decisions so far.
        update: rollouts learnt from so far.
        num_episodes: episodes that ended so far.
        elapsed_s: seconds of training so far.
        returns: mean and deviation of returns.
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


def new_learner(
    vec: VecEnvironment, config: PPOConfig, policy: Policy | MakePolicy | None = None
) -> Learner:
    """A network and its optimizer; torch's own random state stays as it is."""
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


def new_policy(
    spaces: Spaces, size: NetConfig, seed: int, policy: Policy | MakePolicy | None = None
) -> Policy:
    """A network: the given one, or a new one of that size; torch's random state stays as it is.

    Raises:
        UsageError: a `policy` that is none, or was made for other spaces.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if policy is None:
            return make_policy(*spaces, size)
        is_made = isinstance(policy, nn.Module) or not callable(policy)
        return _checked(policy if is_made else policy(*spaces), spaces)


def _checked(net: object, spaces: Spaces) -> Policy:
    """Checks that a network was made for the environments."""
    if not isinstance(net, Policy):
        raise UsageError(
            f"policy must be a Policy, or a function that returns one, got {shown(net)}: derive "
            "the class from entity_env.agents.ppo.Policy"
        )
    if found := differences((net.obs_space, net.action_space), spaces):
        raise UsageError(f"the policy was made for other spaces: {'; '.join(found)}")
    return net


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Sets the number of torch's threads, and restores it; None = as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def torch_device(name: str) -> torch.device:
    """A device that torch can use here.

    Raises:
        UsageError: it cannot.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"device must be one that torch can use here, got {name!r}: {reason}"
        ) from error
    return device
