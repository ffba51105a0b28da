"""Every world in a PixelGoalEnv: episodes, resets and ends, as a user sees them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_env.errors import ClosedError, ProtocolError, SchemaError
from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.reward import Goal, RewardConfig, distance
from entity_env.games.pixel.worlds.world import Button, World
from entity_env.vec.batch_env.batch_env import ResetMask
from tests.games.pixel.checked_env import CheckedPixelGoalEnv, hash_of
from tests.games.pixel.worlds.all_worlds import (
    HOST_WORLDS,
    WORLDS,
    MakeWorld,
    actions_of,
    bytes_of,
    screens,
)

NUM, STACK_K, MAX_STEPS = 4, 3, 6
WARM_UPS = ((), (Button.RIGHT, Button.A))
EVERY_WORLD = {**WORLDS, **HOST_WORLDS}


def negative(world: World) -> Goal:
    """A goal far from all screens of these worlds."""
    one_pixel = Fraction(1, 3 * world.height * world.width)
    return Goal((3 - screens(world)[0]).to(world.device), tau=one_pixel)


def make_env(
    make: MakeWorld, kind: type[PixelGoalEnv] = CheckedPixelGoalEnv, **more: object
) -> PixelGoalEnv:
    world = make(NUM, 2, "cpu")
    config = RewardConfig(max_steps=MAX_STEPS)
    settings = {"stack_k": STACK_K, "warm_ups": WARM_UPS, **more}
    return kind(world, negative(world), config, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=EVERY_WORLD)
def env(request: pytest.FixtureRequest) -> Iterator[PixelGoalEnv]:
    made = make_env(EVERY_WORLD[request.param])
    yield made
    made.close()


@pytest.mark.slow
def test_episodes_of_every_world(env: PixelGoalEnv) -> None:
    """Resets during and after episodes, with a mask that is a strided view."""
    env.reset(1)
    t, world = env.trackers, env.world
    starts = screens(world)
    rng = torch.Generator().manual_seed(1)
    slots, steps = t.slot.clone(), torch.zeros(NUM, dtype=torch.int32)
    by_slot = {int(slot): bytes_of(world) for slot in slots}
    assert len(by_slot) == 2
    shown = {(int(slots[i]) + 1) % 2: starts[i] for i in range(NUM)}
    for actions in actions_of(NUM, MAX_STEPS + 2, 3):
        first = t.prev_dist.clone()
        env.step_tensors(actions)
        steps += 1
        assert torch.equal(t.frames, screens(world))
        assert torch.equal(t.episode_step, steps)
        assert torch.equal(t.truncated, steps == MAX_STEPS)
        assert torch.equal(t.dist, distance(t.frames, env.goal))
        torch.testing.assert_close(t.reward, first - t.dist - 0.01)
        wide = torch.zeros(2 * NUM, dtype=torch.bool)
        wide[::2] = t.ended | (torch.rand(NUM, generator=rng) < 0.2)
        mask = wide[::2]
        before, stack, last = bytes_of(world), t.stack.clone(), t.frames.clone()
        chosen_slots = t.slot.clone()
        env.reset_mask(mask)
        after = bytes_of(world)
        for name, value in after.items():
            assert torch.equal(value[~mask], before[name][~mask]), name
        assert torch.equal(t.stack[~mask], stack[~mask])
        for i in mask.nonzero().flatten().tolist():
            picture = shown[int(chosen_slots[i])]
            assert torch.equal(t.stack[i], picture.expand(STACK_K, -1, -1))
            assert torch.equal(screens(world)[i], picture)
        assert torch.equal(t.frames, last)
        steps[mask] = 0


@pytest.mark.slow
def test_a_reset_restores_byte_for_byte(env: PixelGoalEnv) -> None:
    env.reset(0)
    start = bytes_of(env.world)
    slots = env.trackers.slot.clone()
    for actions in actions_of(NUM, 5, 8):
        env.step_tensors(actions)
    moved = bytes_of(env.world)
    assert any(not torch.equal(moved[name], start[name]) for name in start)
    env.reset(0)
    assert torch.equal(env.trackers.slot, slots)
    for name, value in bytes_of(env.world).items():
        assert torch.equal(value, start[name]), name


@pytest.mark.slow
def test_autoreset_keeps_the_final_frame_and_distance(env: PixelGoalEnv) -> None:
    env.reset(0)
    actions = actions_of(NUM, MAX_STEPS, 5)
    for row in actions[:-1]:
        env.step_tensors(row)
    finals = _twin(env, actions)
    env.step_tensors(actions[-1], autoreset=True)
    t = env.trackers
    assert t.ended.all()
    assert t.truncated.all()
    assert not t.terminated.any()
    assert torch.equal(env.final_pixels, finals)
    assert torch.equal(env.final_dist, distance(finals, env.goal))
    assert torch.equal(env.pixels, screens(env.world))
    assert torch.equal(t.prev_dist, distance(env.pixels.contiguous(), env.goal))
    assert t.episode_step.tolist() == t.match_count.tolist() == [0] * NUM


def _twin(env: PixelGoalEnv, actions: Tensor) -> Tensor:
    """The final screens of the same run without a reset; `env` does not change."""
    env.reset(0)
    for row in actions:
        env.step_tensors(row)
    finals = env.final_pixels.clone()
    env.reset(0)
    for row in actions[:-1]:
        env.step_tensors(row)
    return finals


@pytest.mark.slow
def test_who_has_ended_is_not_stepped(env: PixelGoalEnv) -> None:
    env.reset(0)
    zeros = np.zeros(NUM, np.int64)
    for _ in range(MAX_STEPS):
        result = env.step_no_reset_with_result(zeros)
    assert result.truncations.tolist() == [1] * NUM
    before = bytes_of(env.world)
    with pytest.raises(ProtocolError, match=r"environments \[0, 1, 2, 3\] have ended: reset"):
        env.step_no_reset(zeros)
    assert all(torch.equal(value, before[name]) for name, value in bytes_of(env.world).items())
    env.reset_envs(ResetMask.from_bool(np.array([True, False, True, False])))
    with pytest.raises(ProtocolError, match=r"environments \[1, 3\]"):
        env.step(zeros)
    env.reset_envs(result.to_reset_mask())
    env.step(zeros)


@pytest.mark.slow
def test_bad_actions_and_masks_change_nothing(env: PixelGoalEnv) -> None:
    env.reset(0)
    before = bytes_of(env.world)
    for actions in (
        torch.zeros(NUM + 1, dtype=torch.int32),
        torch.zeros(NUM),
    ):
        with pytest.raises(SchemaError, match=r"got \(5,\)|got torch.float32"):
            env.step_tensors(actions)
    for mask in (torch.ones(NUM - 1, dtype=torch.bool), torch.ones(NUM, dtype=torch.int32)):
        with pytest.raises(SchemaError, match=r"mask: expected .* got (\(3,\)|torch.int32)"):
            env.reset_mask(mask)
    assert all(torch.equal(value, before[name]) for name, value in bytes_of(env.world).items())


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_WORLD)
def test_closing_closes_the_world(name: str) -> None:
    env = make_env(EVERY_WORLD[name], PixelGoalEnv, warm_ups=None)
    env.reset(0)
    env.close()
    env.close()
    with pytest.raises(ClosedError, match="the environments are closed"):
        env.step_tensors(torch.zeros(NUM, dtype=torch.int32))
    with pytest.raises(ClosedError, match="closed"):
        env.world.step(torch.zeros(NUM, dtype=torch.int32))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_WORLD)
def test_a_run_can_be_repeated(name: str) -> None:
    """Equal starts and buttons give equal screens, rewards and resets."""

    def trace() -> list[object]:
        env = make_env(EVERY_WORLD[name], PixelGoalEnv)
        env.reset(2)
        seen: list[object] = []
        for actions in actions_of(NUM, MAX_STEPS + 3, 6):
            t = env.step_tensors(actions, autoreset=True)
            seen.append((hash_of(t.frames), hash_of(t.stack), t.reward.tolist(), t.ended.tolist()))
        seen.append(hash_of(env.world.state()))
        env.close()
        return seen

    assert trace() == trace()
