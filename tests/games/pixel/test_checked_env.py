"""A broken rule is detected at the step or reset that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.episode_state import Trackers
from entity_env.games.pixel.worlds.grid_world import GridWorld
from tests.games.pixel.checked_env import (
    PixelFault,
    check_reset,
    check_step,
    copy_before_reset,
    copy_before_step,
)
from tests.games.pixel.worlds.all_worlds import actions_of, small_env

NUM = 3
STEP_WRITES = sorted({field.name for field in fields(Trackers)} - {"slot"})
RESET_WRITES = (
    "stack",
    "tiles",
    "screen",
    "prev_dist",
    "match_count",
    "episode_step",
    "slot",
)


def playing(num_steps: int, seed: int = 0, **more: object) -> PixelGoalEnv:
    """An environment in the middle of its episodes, without checks."""
    env = small_env(NUM, stack_k=2, max_steps=50, **more)  # type: ignore[arg-type]
    env.reset(0)
    for actions in actions_of(NUM, num_steps, seed):
        env.step_tensors(actions, autoreset=True)
    return env


def change(tensor: Tensor, env_id: int, place: int) -> None:
    """Change one number of one environment."""
    row = tensor[env_id].view(-1) if tensor.ndim > 1 else tensor[env_id : env_id + 1]
    at = place % len(row)
    row[at] = ~row[at] if row.dtype == torch.bool else row[at] + 1


def stepped(env: PixelGoalEnv, spoil: Callable[[], None]) -> None:
    """Step, corrupt the results, and check them."""
    before = copy_before_step(env.trackers)
    env.step_tensors(actions_of(NUM, 1, 9)[0])
    spoil()
    check_step(env.trackers, env.goal, env.config, before)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(STEP_WRITES),
    env_id=st.integers(0, NUM - 1),
    place=st.integers(0, 10_000),
    num_steps=st.integers(0, 6),
)
def test_any_wrong_number_of_a_step_is_found(
    name: str, env_id: int, place: int, num_steps: int
) -> None:
    env = playing(num_steps)
    stepped(env, lambda: None)
    before = env.trackers.slot.clone()
    with pytest.raises(PixelFault) as caught:
        stepped(env, lambda: spoil(env, name, env_id, place))
    assert caught.value.env_id == env_id
    assert torch.equal(before, env.trackers.slot)


def spoil(env: PixelGoalEnv, name: str, env_id: int, place: int) -> None:
    """Corrupt a tracker where a step has written it: not tile positions, not old screens."""
    tensor = getattr(env.trackers, name)
    if name == "stack":
        tensor = tensor[:, -1:].flatten(1)
        change(tensor, env_id, place)
        env.trackers.stack[:, -1] = tensor.view_as(env.trackers.stack[:, -1])
    elif name == "tiles":
        tile = place % tensor.shape[1]
        tensor[env_id, tile, 2 + place % 5] += 1
    else:
        change(tensor, env_id, place)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from((*RESET_WRITES, "cell", "presses")),
    others=st.booleans(),
    place=st.integers(0, 10_000),
)
def test_whom_a_reset_must_leave_alone_is_watched(name: str, others: bool, place: int) -> None:
    env = playing(4)
    mask = torch.tensor([True, False, True])
    before = copy_before_reset(env.world, env.trackers)
    env.reset_mask(mask)
    check_reset(env.world, env.trackers, mask, env._reset_states, before)
    names = {**env.world.state(), **{each: getattr(env.trackers, each) for each in RESET_WRITES}}
    seen_of_chosen = ("stack", "prev_dist", "match_count", "episode_step")
    env_id = 1 if others or name not in seen_of_chosen else 2
    change(names[name], env_id, place)
    with pytest.raises(PixelFault, match=rf"a reset must .*: env {env_id}$") as caught:
        check_reset(env.world, env.trackers, mask, env._reset_states, before)
    assert caught.value.env_id == env_id
    if env_id == 1:
        assert f"must leave {name} of the others alone" in str(caught.value)


@pytest.mark.parametrize("backend", ["torch", "warp"])
def test_checks_find_nothing_where_nothing_is_wrong(backend: str) -> None:
    """A run writes the same with and without checks."""
    pytest.importorskip("warp", reason="Warp is not installed")
    checked = small_env(4, stack_k=3, max_steps=7, match_k=1, backend=backend, checked=True)
    plain = small_env(4, stack_k=3, max_steps=7, match_k=1, backend=backend)
    checked.reset(3)
    plain.reset(3)
    rng = torch.Generator().manual_seed(5)
    for actions in actions_of(4, 40, 2):
        for env in (checked, plain):
            env.step_tensors(actions)
        mask = checked.trackers.ended | (torch.rand(4, generator=rng) < 0.2)
        for env in (checked, plain):
            env.reset_mask(mask)
        for field in fields(Trackers):
            ours, theirs = (getattr(env.trackers, field.name) for env in (checked, plain))
            assert torch.equal(ours, theirs), field.name


def test_copies_from_before_are_copies() -> None:
    env = playing(2)
    kept: list[Mapping[str, Tensor]] = [
        copy_before_step(env.trackers),
        copy_before_reset(env.world, env.trackers),
    ]
    values = [{name: tensor.clone() for name, tensor in each.items()} for each in kept]
    for actions in actions_of(NUM, 5, 4):
        env.step_tensors(actions, autoreset=True)
    for each, expected in zip(kept, values, strict=True):
        assert all(torch.equal(each[name], value) for name, value in expected.items())
    assert {"cell", "presses"} <= set(kept[1])


def test_a_world_that_restores_another_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    env = playing(3, checked=True)
    reset = GridWorld.reset

    def broken(world: GridWorld, mask: Tensor, slots: Tensor) -> None:
        reset(world, mask.roll(1), slots)

    monkeypatch.setattr(GridWorld, "reset", broken)
    with pytest.raises(PixelFault, match=r"a reset must leave (cell|presses) of the others alone"):
        env.reset_mask(torch.tensor([True, False, False]))
