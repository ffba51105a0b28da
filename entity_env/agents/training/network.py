"""The initial network of a trainer, and its device and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import nn

from entity_env.agents.rogue_net.config import NetConfig
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.authoring.game_traceback import no_exits
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ObsSpace,
    Spaces,
    briefly,
    differences,
)
from entity_env.errors import UsageError, shown

MakePolicy: TypeAlias = Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy]


def new_policy(
    spaces: Spaces, size: NetConfig, seed: int, policy: Policy | MakePolicy | None = None
) -> Policy:
    """The network `policy`, the one that the function `policy` makes, or a new one of this size.

    Does not change torch's global random state.

    Raises:
        UsageError: `policy` is or makes something other than a `Policy`, or one for other spaces.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if policy is None:
            return make_policy(*spaces, size)
        is_made = isinstance(policy, nn.Module) or not callable(policy)
        with no_exits("policy"):
            return _checked(policy if is_made else policy(*spaces), spaces)


def _checked(net: object, spaces: Spaces) -> Policy:
    if not isinstance(net, Policy):
        raise UsageError(
            f"policy must be a Policy, or a function that returns one, got {shown(net)}: derive "
            "the class from entity_env.agents.ppo.Policy"
        )
    if found := differences((net.obs_space, net.action_space), spaces):
        raise UsageError(f"the policy was made for other spaces: {briefly(found)}")
    return net


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Context that sets the number of torch's threads; None = unchanged."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def torch_device(name: str) -> torch.device:
    """A device that torch can use here.

    Raises:
        UsageError: it is not available.
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
