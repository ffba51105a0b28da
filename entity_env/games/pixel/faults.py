"""Says what is wrong with a machine, with all that it takes to find it again."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from entity_env.errors import EntityEnvError
from entity_env.games.pixel.core import NUM_SHADES, Goal, distance_sum
from entity_env.games.pixel.trackers import Trackers
from entity_env.games.pixel.world import World

_HASH_BYTES: Final = 8


class PixelFault(EntityEnvError, RuntimeError):
    """An environment broke one of its own rules: a bug of this package, or of the world.

    Attributes:
        env_id: the first environment that did.
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
    """Return 16 hex digits of BLAKE2b over the bytes in order, names and shapes included.

    It copies to the host, so it is not for the hot path.
    """
    named = {"": tensors} if isinstance(tensors, Tensor) else tensors
    digest = blake2b(digest_size=_HASH_BYTES)
    for name, tensor in named.items():
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def describe(world: World, trackers: Trackers, env_id: int) -> str:
    """Say where an environment is: what it takes to reproduce it. Copies to the host."""
    t = trackers

    def value(tensor: Tensor) -> object:
        return tensor[env_id].item()

    was_reset = bool(value(t.ended)) and value(t.episode_step) == 0
    machine = {name: tensor[env_id] for name, tensor in world.state().items()}
    return (
        f"env {env_id}: dist {value(t.dist)}, prev_dist {value(t.prev_dist)}, "
        f"episode_step {value(t.episode_step)}, match_count {value(t.match_count)}, "
        f"terminated {value(t.terminated)}, truncated {value(t.truncated)}, "
        f"was reset {was_reset}, slot {value(t.slot)}, pixels {hash_of(t.frames[env_id])}, "
        f"stack {hash_of(t.stack[env_id])}, memory {hash_of(machine)}"
    )


def check_step(world: World, trackers: Trackers, goal: Goal, max_steps: int, match_k: int) -> None:
    """Check what a step has written, by other means than it was written by. Copies to the host.

    Raises:
        PixelFault: a rule that does not hold, and for whom.
    """
    t = trackers
    sums = distance_sum(t.frames, goal)
    tile_sums = t.tiles[:, :, -1].double().sum(1)
    rules = {
        "pixels must be shades 0..3": t.frames.amax((1, 2)) < NUM_SHADES,
        "the newest screen of the stack must be the rendered one": _equal(t.stack[:, -1], t.frames),
        "the distance must be that of the rendered screen": t.sums == sums,
        "the distances of the tiles must add up to the screen's": tile_sums == sums,
        "the histograms must count all pixels": _equal(
            t.tiles[:, :, 2:6].sum(2), t.tiles.new_full((1,), 64.0)
        ),
        "the distance must be from 0 to 1": (t.dist >= 0) & (t.dist <= 1),
        "episode_step must be from 1 to max_steps": (t.episode_step >= 1)
        & (t.episode_step <= max_steps),
        "match_count must be from 0 to match_k": (t.match_count >= 0) & (t.match_count <= match_k),
        "terminated must mean match_k matches": t.terminated == (t.match_count == match_k),
        "truncated must mean max_steps steps": t.truncated == (t.episode_step == max_steps),
        "the reward must be a number": t.reward.isfinite(),
    }
    for rule, holds in rules.items():
        require_rule(rule, holds, world, trackers)


def check_reset(
    world: World,
    trackers: Trackers,
    mask: Tensor,
    before: Mapping[str, Tensor],
) -> None:
    """Check that a reset left the others alone, and began for the chosen. Copies to the host.

    Args:
        world, trackers: as they are now.
        mask: who was reset.
        before: copies of the state from before.

    Raises:
        PixelFault: a rule that does not hold, and for whom.
    """
    for name, tensor in world.state().items():
        same = _equal(tensor, before[name]) | mask
        require_rule(f"a reset must leave {name} of the others alone", same, world, trackers)
    begins = (trackers.episode_step == 0) & (trackers.match_count == 0) | ~mask
    require_rule("a reset must begin an episode", begins, world, trackers)


def require_rule(rule: str, holds: Tensor, world: World, trackers: Trackers) -> None:
    """Check (N,) bool, true where a rule holds.

    Raises:
        PixelFault: it does not for everyone.
    """
    wrong = as_numpy(~holds)
    if wrong.any():
        env_id = int(wrong.argmax())
        raise PixelFault(rule, env_id, describe(world, trackers, env_id))


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return the values on the host: a view if they are there already."""
    return np.asarray(tensor.detach().cpu().numpy())


def _equal(a: Tensor, b: Tensor) -> Tensor:
    same = a == b
    return same if same.ndim == 1 else same.flatten(1).all(1)
