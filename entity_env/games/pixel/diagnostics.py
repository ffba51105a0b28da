"""Checks of a step and a reset by independent means, and the state of an environment as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.errors import EntityEnvError
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
# Tensors of the episode state that a step reads, and those that a reset writes.
_CARRIED: Final = ("prev_dist", "match_count", "episode_step")
_BEGUN: Final = (*_CARRIED, "stack", "tiles", "screen", "slot")


class PixelFault(EntityEnvError, RuntimeError):
    """A check of `PixelGoalEnv` failed: a bug of this package, or of the world.

    Attributes:
        env_id: the first environment for which it failed.
        report: `describe` of it.
    """

    def __init__(self, rule: str, env_id: int, report: str) -> None:
        self._arguments = (rule, env_id, report)
        self.env_id = env_id
        self.report = report
        super().__init__(f"{rule}: {report}")

    def __reduce__(self) -> tuple[type[PixelFault], tuple[str, int, str]]:
        return type(self), self._arguments


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


def describe(world: World, trackers: Trackers, env_id: int, before: Copies | None = None) -> str:
    """The state of an environment as text, enough to reproduce it; copies to the host.

    prev_dist is the distance before the last step if its `copy_before_step` is given, else the one
    before the next step.
    """
    t = trackers

    def value(tensor: Tensor) -> object:
        return tensor[env_id].item()

    was_reset = value(t.episode_step) == 0
    prev_dist = t.prev_dist if before is None else before["prev_dist"]
    machine = {name: tensor[env_id] for name, tensor in world.state().items()}
    return (
        f"env {env_id}: dist {value(t.dist)}, prev_dist {value(prev_dist)}, "
        f"episode_step {value(t.episode_step)}, match_count {value(t.match_count)}, "
        f"terminated {value(t.terminated)}, truncated {value(t.truncated)}, "
        f"was reset {was_reset}, slot {value(t.slot)}, pixels {hash_of(t.frames[env_id])}, "
        f"stack {hash_of(t.stack[env_id])}, memory {hash_of(machine)}"
    )


def check_step(
    world: World, trackers: Trackers, goal: Goal, config: RewardConfig, before: Copies
) -> None:
    """Check the results of a step, given its `copy_before_step`; copies to the host."""
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
        require_rule(rule, holds, world, trackers, before)


def check_reset(
    world: World, trackers: Trackers, mask: Tensor, starts: ResetStates, before: Copies
) -> None:
    """Check that a reset changed the environments in its mask alone; copies to the host."""
    t = trackers
    for name, tensor in _all_that_a_reset_writes(world, trackers):
        same = _equal(tensor, before[name]) | mask
        require_rule(f"a reset must leave {name} of the others alone", same, world, trackers)
    slot = before["slot"]
    frames = starts.frames.index_select(0, slot)
    start_dist = starts.dist.index_select(0, slot * starts.per_start + starts.offset)
    rules = {
        "a reset must begin an episode": (t.episode_step == 0) & (t.match_count == 0),
        "a reset must show the start": _equal(t.stack, frames[:, None]),
        "a reset must measure from the start": t.prev_dist == start_dist,
    }
    for rule, holds in rules.items():
        require_rule(rule, holds | ~mask, world, trackers)


def require_rule(
    rule: str, holds: Tensor, world: World, trackers: Trackers, before: Copies | None = None
) -> None:
    """Raise `PixelFault` for the first environment for which `holds`, (N,) bool, is false."""
    wrong = as_numpy(~holds)
    if wrong.any():
        env_id = int(wrong.argmax())
        raise PixelFault(rule, env_id, describe(world, trackers, env_id, before))


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """The values on the host: a view if they are there already."""
    return np.asarray(tensor.detach().cpu().numpy())


def _equal(a: Tensor, b: Tensor) -> Tensor:
    same = a == b
    return same if same.ndim == 1 else same.flatten(1).all(1)


def _all_that_a_reset_writes(world: World, trackers: Trackers) -> Iterator[tuple[str, Tensor]]:
    yield from world.state().items()
    yield from ((name, getattr(trackers, name)) for name in _BEGUN)


def _share(counts: Tensor, most: int) -> Tensor:
    # A tensor: CUDA divides by a host number as a product with its reciprocal.
    return counts / torch.full((), most, dtype=torch.float32, device=counts.device)
