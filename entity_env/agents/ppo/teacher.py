"""The teacher of a run: a network that the policy stays close to."""

from __future__ import annotations

import copy
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.rogue_net.checkpoints.folder import CONFIG, find_checkpoint
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.torch_net.checkpoint import load_checkpoint, save_checkpoint
from entity_env.agents.rogue_net.torch_net.distributions import given_samples
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy, evaluation_of
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.agents.training.peers import Peers
from entity_env.agents.training.rollout_buffer import Minibatch, Rollout, evaluate_minibatch
from entity_env.agents.training.schedule import values_of
from entity_env.core.spaces import briefly, differences
from entity_env.errors import CheckpointError, UsageError

TEACHER: Final = "teacher"
"""Subfolder of the teacher's network in a run."""


def has_teacher(config: PPOConfig) -> bool:
    """True if a run uses a teacher at any time."""
    return any(values_of(config.stay_close))


def frozen(net: Policy) -> Policy:
    """A copy of a network with frozen weights and feature statistics."""
    return copy.deepcopy(net).eval().requires_grad_(False)


def begin_teacher(start: Policy | None, peers: Peers, out: Path | None) -> Policy:
    """The teacher of a run; rank 0 also saves it in the run's folder.

    Args:
        start: the network at the start of the run; None if it is untrained.

    Raises:
        UsageError: `start` is None.
    """
    if start is None:
        raise UsageError(
            "stay_close needs a trained network to stay close to: pass --init-from, or in Python "
            "train(..., policy=initialized_from(path))"
        )
    teacher = frozen(start)
    peers.copy_from_first(teacher)
    if out is not None and not peers.rank:
        save_checkpoint(out / TEACHER, teacher)
    return teacher


def load_teacher(path: Path, net: Policy) -> Policy:
    """Loads the teacher of the run that the checkpoint at `path` belongs to.

    `net` is the network being trained, of the teacher's kind and size.

    Raises:
        CheckpointError: there is no teacher, or it is for another game.
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
        raise CheckpointError(f"{folder} was trained for a different game: {briefly(found)}")
    return teacher.to(net.device)


class TeacherMemory:
    """States of a teacher with memory in the running episode of every row.

    Args:
        num_rows: rows of the environments.
    """

    def __init__(self, teacher: Policy, num_rows: int) -> None:
        self._teacher = teacher
        self._states = np.zeros((num_rows, teacher.memory_width), np.float32)

    @torch.no_grad()
    def add_to(self, rollout: Rollout) -> Rollout:
        """The rollout with the teacher's states; remembers all of its decisions."""
        segments = rollout.segments
        if segments is None:
            return rollout
        order = np.argsort(segments.rows, kind="stable")
        rows, lengths = np.unique(segments.rows, return_counts=True)
        begins = segments.begins[order]
        past = Past(self._states[rows], lengths, begins)
        obs = rollout.obs.map_arrays(itemgetter(order))
        after = self._teacher.recall(obs, past)[2].cpu().numpy()
        last = np.cumsum(lengths) - 1
        before = np.roll(after, 1, axis=0)
        before[last - lengths + 1] = past.states
        before[begins] = 0
        states = np.empty_like(before)
        states[order] = before
        self._states[rows] = after[last]
        return replace(rollout, segments=replace(segments, teacher_states=states))


def evaluate_beside(
    teacher: Policy | None, net: Policy, minibatch: Minibatch, *, by_actor: bool = False
) -> Evaluation:
    """`Policy.evaluate` on a minibatch, compared with a teacher if there is one.

    With `by_actor`, also has `Evaluation.actors`.

    KL(teacher || policy) is the direction of AlphaStar (Vinyals et al. 2019), Kickstarting (Schmitt
    et al. 2018, as a cross-entropy) and the winner of Lux AI 2021. Its gradient is largest where
    the policy has given up a choice of the teacher. In the reverse direction, as in RLHF, such a
    choice has almost no gradient and is lost.
    """
    masks = minibatch.obs.action_masks if by_actor else None
    if teacher is None:
        if masks is None:
            return evaluate_minibatch(net, minibatch)
        recalled = net.recalled(minibatch.obs, minibatch.past)
        return evaluation_of(*recalled[:2], minibatch.samples, masks)
    chosen = {name: as_tensor(each, net.device) for name, each in minibatch.samples.items()}
    with torch.no_grad():
        remembered = teacher.recalled(minibatch.obs, minibatch.teacher_past)
        theirs = given_samples(remembered[0], chosen)
    distributions, values, _ = net.recalled(minibatch.obs, minibatch.past)
    distributions = given_samples(distributions, chosen)
    teacher_kl, agreed, counts = (torch.zeros_like(values) for _ in range(3))
    for name, own in distributions.items():
        rows = own.rows
        teacher_kl = teacher_kl.index_add(0, rows, own.kl_from(theirs[name]))
        with torch.no_grad():
            agrees: Tensor = own.agrees_with(theirs[name])
            agreed = agreed.index_add(0, rows, agrees.to(values.dtype))
            counts = counts.index_add(0, rows, torch.ones_like(agrees, dtype=values.dtype))
    agreement = torch.where(counts > 0, agreed / counts.clamp_min(1), 1.0)
    found = evaluation_of(distributions, values, minibatch.samples, masks)
    return replace(found, teacher_kl=teacher_kl, agreement=agreement)
