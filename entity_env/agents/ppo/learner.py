"""`Learner`: network, optimizer and random states of a training run; and its teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from entity_env.agents.ppo.config import PPOConfig, values_of
from entity_env.agents.ppo.gae import ReturnStatistics
from entity_env.agents.ppo.peers import Peers
from entity_env.agents.ppo.rollout_buffer import Minibatch
from entity_env.agents.rogue_net.checkpoints.folder import CONFIG, find_checkpoint
from entity_env.agents.rogue_net.config import NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.torch_net.checkpoint import load_checkpoint, save_checkpoint
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy, evaluation_of
from entity_env.core.space_json import Spaces, differences
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import CheckpointError, UsageError, shown

MakePolicy: TypeAlias = Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy]
"""Makes the network to train from the spaces of the environments."""
TEACHER: Final = "teacher"
"""Folder of the teacher's network, in the folder of the run."""


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


# ------------------------------------------------------------------ teacher


def has_teacher(config: PPOConfig) -> bool:
    """Whether a run stays close to a teacher at any time."""
    return any(values_of(config.stay_close))


def frozen(net: Policy) -> Policy:
    """A copy that does not learn, with its statistics of features as they are."""
    return copy.deepcopy(net).eval().requires_grad_(False)


def begin_teacher(start: Policy | None, peers: Peers, out: Path | None) -> Policy:
    """The teacher of a run, which rank 0 also keeps in the folder of the run.

    Args:
        start: the network that the run began with; None = an untrained one.
        peers: the ranks of the run.
        out: its folder, if there is one.

    Raises:
        UsageError: the network is untrained.
    """
    if start is None:
        raise UsageError(
            "stay_close needs a trained network to stay close to: --init-from, in Python "
            "train(..., policy=initialized_from(path))"
        )
    teacher = frozen(start)
    peers.copy_from_first(teacher)
    if out is not None and not peers.rank:
        save_checkpoint(out / TEACHER, teacher)
    return teacher


def load_teacher(path: Path, net: Policy) -> Policy:
    """The teacher of the run whose checkpoint is at a path, for a run of `net`.

    Raises:
        CheckpointError: the run has none, or one of another game.
    """
    folder = find_checkpoint(path).parent / TEACHER
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"stay_close needs the network that the run began with, and {folder} is not there: "
            "resume with --stay-close 0, or begin a new run from the checkpoint with --init-from"
        )
    teacher = load_checkpoint(folder, copy.deepcopy(net)).net
    theirs = teacher.obs_space, teacher.action_space
    if found := differences(theirs, (net.obs_space, net.action_space)):
        raise CheckpointError(f"{folder} is of another game: {'; '.join(found)}")
    return teacher.to(net.device)


def evaluate_beside(teacher: Policy | None, net: Policy, minibatch: Minibatch) -> Evaluation:
    """`Policy.evaluate` of a minibatch, compared with a teacher if there is one.

    KL(teacher || policy) is the direction of AlphaStar (Vinyals et al. 2019), Kickstarting (Schmitt
    et al. 2018, as a cross-entropy) and the winner of Lux AI 2021. Its gradient is largest where
    the policy has given up a choice of the teacher; in the reverse direction, as in RLHF, such a
    choice has hardly a gradient, and what is lost stays lost.
    """
    if teacher is None:
        return net.evaluate(minibatch.obs, minibatch.samples)
    with torch.no_grad():
        theirs, _ = teacher.distributions(minibatch.obs)
    distributions, values = net.distributions(minibatch.obs)
    teacher_kl, agreed, counts = (torch.zeros_like(values) for _ in range(3))
    for name, own in distributions.items():
        rows = own.rows
        teacher_kl = teacher_kl.index_add(0, rows, own.kl_from(theirs[name]))
        with torch.no_grad():
            agrees: Tensor = own.agrees_with(theirs[name])
            agreed = agreed.index_add(0, rows, agrees.to(values.dtype))
            counts = counts.index_add(0, rows, torch.ones_like(agrees, dtype=values.dtype))
    agreement = torch.where(counts > 0, agreed / counts.clamp_min(1), 1.0)
    found = evaluation_of(distributions, values, minibatch.samples)
    return replace(found, teacher_kl=teacher_kl, agreement=agreement)
