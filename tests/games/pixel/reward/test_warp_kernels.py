"""The kernels of a step: bit for bit equal to plain torch; also compiled for absent GPUs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from entity_env.errors import UsageError
from entity_env.games.pixel.episode_state import ResetStates, Trackers
from entity_env.games.pixel.reward.reward import (
    Goal,
    Metric,
    RewardConfig,
    distance_sum,
    grid_shape,
    measure_tiles,
    places,
)
from entity_env.games.pixel.reward.torch_ops import GoalOps, TorchGoalOps
from entity_env.games.pixel.reward.warp_ops import WarpGoalOps, tile_planes
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from tests import ROOT

CPU = torch.device("cpu")
METRICS: tuple[Metric, ...] = ("absolute", "squared")
Shape = tuple[int, int]


def shades(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(rng.integers(4, size=shape, dtype=np.uint8))


def starts_of(rng: np.random.Generator, num: int, goal: Goal, num_envs: int) -> ResetStates:
    """ResetStates as from `measure_reset_states`, for random screens."""
    frames = shades(rng, num, *goal.pixels.shape[-2:])
    num_goals = 1 if goal.pixels.ndim == 2 else num_envs
    where = places(*frames.shape[1:]).expand(num_goals, -1, -1)
    tiles, dist = [], []
    for frame in frames:
        measured = measure_tiles(frame.expand(num_goals, -1, -1).contiguous(), goal)
        tiles.append(torch.cat((where, measured), 2))
        dist.append(measured[:, :, -1].sum(1) / goal.divisor)
    offset = torch.arange(num_envs) if num_goals > 1 else torch.zeros(num_envs)
    return ResetStates(
        bank=torch.arange(num, dtype=torch.int32),
        frames=frames,
        tiles=torch.cat(tiles),
        dist=torch.cat(dist),
        offset=offset.to(torch.int32),
        per_start=num_goals,
    )


class Pair:
    """Two equal sets of trackers: for plain torch and for kernels."""

    def __init__(
        self,
        rng: np.random.Generator,
        goal: Goal,
        num_envs: int,
        stack_k: int,
        config: RewardConfig,
        num_starts: int = 3,
    ) -> None:
        self.goal = goal
        starts = starts_of(rng, num_starts, goal, num_envs)
        shape = grid_shape(*goal.pixels.shape[-2:])
        self.shape = (8 * shape[0], 8 * shape[1])
        self.plain, self.fused = (
            Trackers.allocate(num_envs, stack_k, *self.shape, CPU) for _ in range(2)
        )
        self.ops: tuple[GoalOps, GoalOps] = (
            TorchGoalOps(self.plain, goal, config, starts),
            WarpGoalOps(self.fused, goal, config, starts),
        )

    def step(self, frames: Tensor) -> None:
        for trackers, ops in zip((self.plain, self.fused), self.ops, strict=True):
            trackers.frames.copy_(frames)
            ops.observe()
            ops.judge()
        self.compare()

    def reset(self, mask: Tensor) -> None:
        for ops in self.ops:
            ops.reset(mask)
        self.compare()

    def compare(self) -> None:
        for field in fields(Trackers):
            plain, fused = getattr(self.plain, field.name), getattr(self.fused, field.name)
            # Compare bytes: -0.0 differs from 0.0.
            assert torch.equal(plain.view(torch.uint8), fused.view(torch.uint8)), field.name


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("is_own", [False, True], ids=["one goal", "a goal each"])
@pytest.mark.parametrize(("shape", "stack_k"), [((64, 128), 1), ((72, 80), 4), ((8, 8), 2)])
def test_steps_and_resets_are_those_of_plain_torch(
    metric: Metric, is_own: bool, shape: Shape, stack_k: int
) -> None:
    rng, num = np.random.default_rng(1), 13
    goal = Goal(shades(rng, *((num,) if is_own else ()), *shape), tau="0.2", metric=metric)
    config = RewardConfig(step_cost=-0.013, alpha=1.7, goal_bonus=10.1, match_k=2, max_steps=4)
    pair = Pair(rng, goal, num, stack_k, config)
    seen = np.zeros((3, num), np.bool_)
    for _ in range(12):
        near = torch.from_numpy(rng.random(num) < 0.6)[:, None, None]
        pair.step(torch.where(near, goal.pixels, shades(rng, num, *shape)))
        t = pair.fused
        seen |= np.stack([flag.numpy() for flag in (t.terminated, t.truncated, t.ended)])
        pair.reset(t.ended | torch.from_numpy(rng.random(num) < 0.1))
    assert seen.any(1).all()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 4),
    columns=st.integers(1, 5),
    metric=st.sampled_from(METRICS),
    step_cost=st.floats(-1e3, 1e3, width=32),
    alpha=st.floats(-1e6, 1e6),
    bonus=st.floats(-1e6, 1e6),
    match_k=st.integers(1, 3),
    max_steps=st.integers(1, 4),
)
def test_any_reward_is_that_of_plain_torch(
    seed: int,
    rows: int,
    columns: int,
    metric: Metric,
    step_cost: float,
    alpha: float,
    bonus: float,
    match_k: int,
    max_steps: int,
) -> None:
    rng = np.random.default_rng(seed)
    goal = Goal(shades(rng, 8 * rows, 8 * columns), tau=f"{rng.random():.3f}5", metric=metric)
    config = RewardConfig(step_cost, alpha, bonus, match_k, max_steps)
    pair = Pair(rng, goal, 5, 2, config)
    pair.plain.slot.copy_(torch.from_numpy(rng.integers(3, size=5)))
    pair.fused.slot.copy_(pair.plain.slot)
    for _ in range(4):
        pair.step(shades(rng, 5, 8 * rows, 8 * columns))
        pair.reset(torch.from_numpy(rng.random(5) < 0.4))


@pytest.mark.parametrize("metric", METRICS)
def test_every_pair_of_shades_has_its_distance(metric: Metric) -> None:
    rng = np.random.default_rng(2)
    frame = torch.arange(4, dtype=torch.uint8).repeat_interleave(16).view(1, 8, 8)
    goal = Goal(torch.arange(4, dtype=torch.uint8).repeat(16).view(8, 8), metric=metric)
    pair = Pair(rng, goal, 1, 1, RewardConfig())
    pair.step(frame)
    # Each of sixteen pairs four times: distance 1 six times, 2 four times, 3 twice.
    wanted = 4 * (6 + 2 * 4 + 3 * 2) if metric == "absolute" else 4 * (6 + 4 * 4 + 9 * 2)
    assert pair.fused.sums.tolist() == distance_sum(frame, goal).tolist() == [wanted]
    assert pair.fused.tiles[0, 0].tolist() == [0, 0, 16, 16, 16, 16, wanted]


def test_tiles_are_packed_without_losing_a_pixel() -> None:
    rng = np.random.default_rng(3)
    frames = shades(rng, 2, 16, 24)
    planes = tile_planes(frames)
    assert planes.shape == (2, 6, 2)
    for env, row, column in np.ndindex(2, 16, 24):
        place = 8 * (column % 8) + 2 * (row % 4) + row % 8 // 4
        low, high = (int(plane) >> place & 1 for plane in planes[env, row // 8 * 3 + column // 8])
        assert low + 2 * high == int(frames[env, row, column])


def test_masks_may_have_gaps_and_an_empty_one_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    goal = Goal(shades(rng, 8, 16))
    pair = Pair(rng, goal, 6, 2, RewardConfig())
    pair.step(shades(rng, 6, 8, 16))
    before = {field.name: getattr(pair.fused, field.name).clone() for field in fields(Trackers)}
    pair.reset(torch.zeros(6, dtype=torch.bool))
    for name, tensor in before.items():
        assert torch.equal(getattr(pair.fused, name), tensor), name
    pair.reset((torch.arange(12) % 3 == 0)[::2])


def test_starts_are_taken_in_turn() -> None:
    rng = np.random.default_rng(5)
    pair = Pair(rng, Goal(shades(rng, 8, 8)), 2, 1, RewardConfig(), num_starts=3)
    only_first = torch.tensor([True, False])
    slots = []
    for _ in range(4):
        pair.reset(only_first)
        slots.append(pair.fused.slot.tolist())
    assert slots == [[1, 0], [2, 0], [0, 0], [1, 0]]


def test_addresses_stay_where_they_are() -> None:
    rng = np.random.default_rng(6)
    pair = Pair(rng, Goal(shades(rng, 8, 8)), 3, 2, RewardConfig())
    before = [getattr(pair.fused, field.name).data_ptr() for field in fields(Trackers)]
    pair.step(shades(rng, 3, 8, 8))
    pair.reset(torch.ones(3, dtype=torch.bool))
    assert [getattr(pair.fused, field.name).data_ptr() for field in fields(Trackers)] == before


def test_a_number_cannot_become_a_tensor() -> None:
    from entity_env.games.pixel.xo_chip import kernels

    warp = warp_runtime.import_warp()
    mask, slots = torch.zeros(1, dtype=torch.bool), torch.zeros(1, dtype=torch.int32)
    rows = torch.zeros((1, 2), dtype=torch.int64)
    reset = warp_runtime.BoundKernel(
        kernels.reset_machines,
        (1, 1),
        ((mask, warp.bool), (slots, warp.int32), (rows, warp.uint64), (rows, warp.uint64), 1),
        CPU,
    )
    with pytest.raises(UsageError, match="argument 4 is 1, not a tensor"):
        reset.set(4, slots)


KERNELS = {
    "xo_chip.kernels": {"step_machines", "render_machines", "reset_machines"},
    "reward.warp_kernels": {"observe_screens", "judge_steps", "begin_episodes"},
}


@pytest.mark.slow
@pytest.mark.parametrize("module", KERNELS)
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles_for_gpus_where_there_is_none(tmp_path: Path, module: str, arch: int) -> None:
    warp = warp_runtime.import_warp()
    name = f"entity_env.games.pixel.{module}"
    __import__(name)
    with warp_runtime.quiet(warp):
        (path,) = warp.compile_aot_module(name, arch=arch, module_dir=tmp_path, use_ptx=True)
    code = Path(path).read_text()
    assert f".target sm_{arch}" in code
    entries = re.findall(r"\.entry (\w+?)_[0-9a-f]{8}_cuda_kernel_forward", code)
    assert set(entries) == KERNELS[module]
    # Each operation is rounded as on the CPU: no fused products, no approximate quotients.
    assert not re.search(r"\bfma\.|\bdiv\.(approx|full)", code)


@pytest.mark.parametrize("module", KERNELS)
def test_has_no_code_for_gradients(module: str) -> None:
    warp = warp_runtime.import_warp()
    loaded = warp.get_module(f"entity_env.games.pixel.{module}")
    assert {kernel.key for kernel in loaded.kernels.values()} == KERNELS[module]
    assert all(kernel.options["enable_backward"] is False for kernel in loaded.kernels.values())


def test_keeps_compiled_kernels_out_of_the_repository() -> None:
    warp = warp_runtime.import_warp()
    cache = Path(warp.config.kernel_cache_dir)
    assert not cache.is_relative_to(ROOT)
