"""Masks of the classic batches: they never change, whatever the caller and the batch do next."""

import copy

import numpy as np
import pytest

from entity_env import ClosedError
from entity_env.games.classic import CartPole
from entity_env.vec.batch_env.batch_env import NUM_SLOTS, ResetMask, StepResult
from tests.games.classic.histories import Game, Make, random_actions

pytest_plugins = ["tests.games.classic.fixtures"]

NUM = 70


def ended(result: StepResult) -> list[bool]:
    flags: list[bool] = (result.terminals | result.truncations).astype(bool).tolist()
    return flags


@pytest.mark.parametrize("seed", range(4))
def test_masks_are_right_whatever_is_done_with_them(game: Game, make: Make, seed: int) -> None:
    """Kept or dropped, requested twice, modified, used late, with a seed, or not used."""
    rng = np.random.default_rng(seed)
    env = make(NUM, max_episode_steps=3)
    env.reset(seed=seed)
    env.reset_envs(ResetMask.from_bool(rng.random(NUM) < 0.5))
    kept: list[tuple[ResetMask, list[bool]]] = []
    for _ in range(120):
        result = env.step_no_reset_with_result(random_actions(game, rng, NUM))
        while any(flags := ended(result)):
            mask = result.to_reset_mask()
            for _ in range(rng.integers(3)):
                again = result.to_reset_mask()
                assert again is not mask
                assert again.to_bool().tolist() == flags
                kept.append((again, flags))
            assert mask.to_bool().tolist() == flags
            assert mask.count() == sum(flags)
            for env_id in rng.integers(0, NUM, rng.integers(3)).tolist():
                (mask.set if rng.random() < 0.5 else mask.clear)(env_id)
            bits = mask.to_bool().tolist()
            way = rng.integers(6)
            if way == 0:
                env.reset()
                assert not any(ended(result))
                break
            used = ResetMask.from_bool(np.array(bits)) if way == 1 else mask
            if way == 2 and kept:
                used, bits = kept[int(rng.integers(len(kept)))]
            env.reset_envs(used, *([int(rng.integers(99))] if way == 3 else []))
            assert ended(result) == [a and not b for a, b in zip(flags, bits, strict=True)]
            if rng.random() < 0.6:
                kept.append((used, bits))
            if rng.random() < 0.4:
                kept = kept[int(rng.integers(len(kept) + 1)) :]
            del mask, used
        assert not result.to_reset_mask().any()
        for mask, bits in kept:
            assert mask.to_bool().tolist() == bits


def test_a_loop_that_keeps_no_mask_gets_the_same_ones_again() -> None:
    """The reuse makes the loop as fast as steps with automatic resets."""
    pytest.importorskip("numba")
    env = CartPole(NUM, max_episode_steps=1)
    env.reset(seed=0)
    masks = set()
    for step in range(20):
        mask = env.step_no_reset_with_result(np.zeros(NUM, np.uint8)).to_reset_mask()
        assert mask.count() == NUM
        env.reset_envs(mask)
        if step:
            masks.add(id(mask))
    assert len(masks) == NUM_SLOTS


def test_what_a_mask_has_shown_outlives_it() -> None:
    env = CartPole(NUM, max_episode_steps=1)
    env.reset(seed=0)
    shown, copies = [], []
    for step in range(12):
        mask = env.step_no_reset_with_result(np.zeros(NUM, np.uint8)).to_reset_mask()
        for env_id in range(step):
            mask.clear(env_id)
        shown.append(mask.chunks)
        copies += [mask.copy(), copy.copy(mask), copy.deepcopy(mask)][step % 3 : step % 3 + 1]
        env.reset_envs(mask)
        env.reset()
    for step, (chunks, copied) in enumerate(zip(shown, copies, strict=True)):
        bits = sum(int(chunk) << (64 * k) for k, chunk in enumerate(chunks))
        assert bits == (1 << NUM) - (1 << step)
        assert copied.indices().tolist() == list(range(step, NUM))


def test_a_closed_batch_refuses_its_last_mask() -> None:
    env = CartPole(2, max_episode_steps=1)
    env.reset(seed=0)
    for _ in range(3):
        mask = env.step_no_reset_with_result(np.zeros(2, np.uint8)).to_reset_mask()
        env.reset_envs(mask)
    env.close()
    with pytest.raises(ClosedError, match="reset_envs"):
        env.reset_envs(mask)
