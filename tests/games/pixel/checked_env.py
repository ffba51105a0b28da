"""A PixelGoalEnv with independent checks of every step and reset, and a hash of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final, TypeAlias

import torch
from torch import Tensor

from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.episode_state import ResetStates, Trackers
from entity_env.games.pixel.reward.reward import (
    NUM_SHADES,
    Goal,
    RewardConfig,
    distance_sum,
    normalize_sums,
    reward,
    truncate,
    update_match,
)
from entity_env.games.pixel.worlds.world import World

Copies: TypeAlias = Mapping[str, Tensor]
"""Copies of tensors before a step or a reset, by name."""
_HASH_BYTES: Final = 8
# Tensors of the episode state read by a step, and those written by a reset.
_CARRIED: Final = ("prev_dist", "match_count", "episode_step")
_BEGUN: Final = (*_CARRIED, "stack", "tiles", "screen", "slot")


class PixelFault(AssertionError):
    """A violated rule.

    Attributes:
        env_id: the first environment that violates it.
    """

    def __init__(self, rule: str, env_id: int) -> None:
        self.env_id = env_id
        super().__init__(f"{rule}: env {env_id}")


class CheckedPixelGoalEnv(PixelGoalEnv):
    """Raises `PixelFault` if a step or a reset breaks a rule."""

    def _step(self, actions: Tensor) -> None:
        before = copy_before_step(self.trackers)
        super()._step(actions)
        check_step(self.trackers, self.goal, self.config, before)

    def _reset(self, mask: Tensor) -> None:
        before = copy_before_reset(self.world, self.trackers)
        super()._reset(mask)
        if self._is_reset:  # the first reset fills the trackers
            check_reset(self.world, self.trackers, mask, self._reset_states, before)


def hash_of(tensors: Mapping[str, Tensor] | Tensor) -> str:
    """16 hex digits of BLAKE2b over names, shapes and bytes, in order; copies to the host."""
    named = {"": tensors} if isinstance(tensors, Tensor) else tensors
    digest = blake2b(digest_size=_HASH_BYTES)
    for name, tensor in named.items():
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def copy_before_step(trackers: Trackers) -> Copies:
    """Copies of the tensors that `check_step` needs from before the step."""
    return {name: getattr(trackers, name).clone() for name in _CARRIED}


def copy_before_reset(world: World, trackers: Trackers) -> Copies:
    """Copies of the tensors that `check_reset` needs from before the reset."""
    return {name: tensor.clone() for name, tensor in _all_that_a_reset_writes(world, trackers)}


def check_step(trackers: Trackers, goal: Goal, config: RewardConfig, before: Copies) -> None:
    """Check the results of a step with its `copy_before_step`; copies to the host."""
    t = trackers
    sums = distance_sum(t.frames, goal)
    tile_sums = t.tiles[:, :, -1].double().sum(1)
    counts, terminated = update_match(sums, before["match_count"], goal.threshold, config.match_k)
    steps, truncated = truncate(before["episode_step"], config.max_steps)
    paid = reward(before["prev_dist"], t.dist, terminated, config)
    rules = {
        "pixels must be shades 0..3": t.frames.amax((1, 2)) < NUM_SHADES,
        "the newest screen of the stack must be the rendered one": _equal(t.stack[:, -1], t.frames),
        "the distance must be that of the rendered screen": t.sums == sums,
        "the distances of the tiles must add up to the screen's": tile_sums == sums,
        "the histograms must count all pixels": _equal(
            t.tiles[:, :, 2:6].sum(2), t.tiles.new_full((1,), 64.0)
        ),
        "dist must be the share of the largest distance": t.dist == normalize_sums(sums, goal),
        "prev_dist must be what the next step is measured from": t.prev_dist == t.dist,
        "episode_step must count the step": t.episode_step == steps,
        "match_count must count matches in a row": t.match_count == counts,
        "terminated must mean match_k matches": t.terminated == terminated,
        "truncated must mean max_steps steps": t.truncated == truncated,
        "ended must mean terminated or truncated": t.ended == (t.terminated | t.truncated),
        "the reward must be what the step won": t.reward == paid,
        "the numbers of the screen must be those of the episode": _equal(
            t.screen,
            torch.stack(
                (t.dist, _share(counts, config.match_k), _share(steps, config.max_steps)), 1
            ),
        ),
    }
    for rule, holds in rules.items():
        require_rule(rule, holds)


def check_reset(
    world: World, trackers: Trackers, mask: Tensor, starts: ResetStates, before: Copies
) -> None:
    """Check that a reset changed only the environments in its mask; copies to the host."""
    t = trackers
    for name, tensor in _all_that_a_reset_writes(world, trackers):
        same = _equal(tensor, before[name]) | mask
        require_rule(f"a reset must leave {name} of the others alone", same)
    slot = before["slot"]
    frames = starts.frames.index_select(0, slot)
    start_dist = starts.dist.index_select(0, slot * starts.per_start + starts.offset)
    rules = {
        "a reset must begin an episode": (t.episode_step == 0) & (t.match_count == 0),
        "a reset must show the start": _equal(t.stack, frames[:, None]),
        "a reset must measure from the start": t.prev_dist == start_dist,
    }
    for rule, holds in rules.items():
        require_rule(rule, holds | ~mask)


def require_rule(rule: str, holds: Tensor) -> None:
    """Raise `PixelFault` for the first environment for which `holds`, (N,) bool, is false."""
    if not holds.all():
        raise PixelFault(rule, int((~holds).int().argmax()))


def _equal(a: Tensor, b: Tensor) -> Tensor:
    same = a == b
    return same if same.ndim == 1 else same.flatten(1).all(1)


def _all_that_a_reset_writes(world: World, trackers: Trackers) -> Iterator[tuple[str, Tensor]]:
    yield from world.state().items()
    yield from ((name, getattr(trackers, name)) for name in _BEGUN)


def _share(counts: Tensor, most: int) -> Tensor:
    # A tensor, because CUDA divides by a host number by multiplying with its reciprocal.
    return counts / torch.full((), most, dtype=torch.float32, device=counts.device)
