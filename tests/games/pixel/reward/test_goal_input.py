"""Invalid input is rejected with its value, before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_env.errors import (
    ClosedError,
    EntityEnvError,
    ProtocolError,
    SchemaError,
    UsageError,
)
from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.reward import Goal
from entity_env.games.pixel.worlds.grid_world import GridWorld
from entity_env.games.pixel.worlds.world import Button
from entity_env.vec.batch_env.batch_env import ResetMask
from tests.games.pixel.worlds.all_worlds import actions_of, bytes_of, small_env

NUM = 4


def picture(*shape: int, shade: int = 3) -> Tensor:
    return torch.full(shape, shade, dtype=torch.uint8)


def state_of(env: PixelGoalEnv) -> dict[str, Tensor]:
    trackers = {f.name: getattr(env.trackers, f.name).clone() for f in fields(env.trackers)}
    return {**bytes_of(env.world), **trackers}


def assert_unchanged(env: PixelGoalEnv, before: dict[str, Tensor]) -> None:
    for name, value in state_of(env).items():
        assert torch.equal(value, before[name]), name


@pytest.fixture
def env() -> PixelGoalEnv:
    made = small_env(NUM)
    made.reset(0)
    for actions in actions_of(NUM, 3):
        made.step_tensors(actions)
    return made


Call = Callable[[PixelGoalEnv], object]
ZEROS = np.zeros(NUM, np.int64)
REFUSED: dict[str, tuple[Call, type[EntityEnvError], str]] = {
    "too many actions": (lambda e: e.step(np.zeros(5, np.int64)), SchemaError, r"\(5,\)"),
    "actions of two dimensions": (lambda e: e.step(ZEROS[:, None]), SchemaError, r"\(4, 1\)"),
    "actions of floats": (lambda e: e.step(np.zeros(NUM)), SchemaError, "float64"),
    "actions of bools": (lambda e: e.step(np.zeros(NUM, np.bool_)), SchemaError, "bool"),  # type: ignore[arg-type]
    "an action too large": (
        lambda e: e.step_no_reset(np.array([0, 7, 0, 9])),
        SchemaError,
        "0 = A, 1 = B, .* got 7 for environment 1, and 1 more",
    ),
    "an action below 0": (
        lambda e: e.step_no_reset_with_result(np.array([0, 0, 0, -1])),
        SchemaError,
        "got -1 for environment 3",
    ),
    "ragged actions": (lambda e: e.step([[1], [1, 2]]), SchemaError, "integers"),  # type: ignore[arg-type]
    "a list of names": (lambda e: e.step(["A"] * 4), SchemaError, "<U1"),  # type: ignore[arg-type]
    "tensors: another length": (
        lambda e: e.step_tensors(torch.zeros(5, dtype=torch.int32)),
        SchemaError,
        r"shape \(4,\), got \(5,\)",
    ),
    "tensors: floats": (
        lambda e: e.step_tensors(torch.zeros(NUM)),
        SchemaError,
        "torch.int32 or torch.int64, got torch.float32",
    ),
    "tensors: bytes": (
        lambda e: e.step_tensors(torch.zeros(NUM, dtype=torch.uint8)),
        SchemaError,
        "got torch.uint8",
    ),
    "tensors: elsewhere": (
        lambda e: e.step_tensors(torch.zeros(NUM, dtype=torch.int32, device="meta")),
        SchemaError,
        "device cpu, got meta",
    ),
    "tensors: an array": (lambda e: e.step_tensors(ZEROS), SchemaError, "got ndarray"),  # type: ignore[arg-type]
    "a mask of another length": (
        lambda e: e.reset_mask(torch.ones(3, dtype=torch.bool)),
        SchemaError,
        r"mask: expected shape \(4,\), got \(3,\)",
    ),
    "a mask of bytes": (
        lambda e: e.reset_mask(torch.ones(NUM, dtype=torch.uint8)),
        SchemaError,
        "torch.bool, got torch.uint8",
    ),
    "a mask elsewhere": (
        lambda e: e.reset_mask(torch.ones(NUM, dtype=torch.bool, device="meta")),
        SchemaError,
        "got meta",
    ),
    "a reset mask for others": (lambda e: e.reset_envs(ResetMask(5)), SchemaError, "one of 5"),
    "no reset mask": (
        lambda e: e.reset_envs(np.ones(NUM, np.bool_)),  # type: ignore[arg-type]
        SchemaError,
        "got ndarray",
    ),
    "a negative seed": (lambda e: e.reset(-1), UsageError, "got -1"),
    "a seed of 65 bits": (lambda e: e.reset(2**64), UsageError, str(2**64)),
    "a seed of half": (lambda e: e.reset(0.5), UsageError, "got 0.5"),  # type: ignore[arg-type]
    "a seed of some": (
        lambda e: e.reset_envs(ResetMask.from_bool(np.ones(NUM, np.bool_)), -2),
        UsageError,
        "got -2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_nothing_has_changed(env: PixelGoalEnv, name: str) -> None:
    call, kind, message = REFUSED[name]
    before = state_of(env)
    with pytest.raises(kind, match=message):
        call(env)
    assert_unchanged(env, before)
    env.step(ZEROS)


class TestEnded:
    """Finished environments cannot be stepped without a reset."""

    @pytest.fixture
    def ended(self) -> PixelGoalEnv:
        env = small_env(NUM, max_steps=2)
        env.reset(0)
        env.step(ZEROS)
        env.step_no_reset(ZEROS)
        some = ResetMask.from_bool(np.array([True, False, True, False]))
        env.reset_envs(some)
        return env

    MESSAGE = r"environments \[1, 3\] have ended: reset them"

    @pytest.mark.parametrize(
        "call",
        [
            lambda env: env.step(ZEROS),
            lambda env: env.step_no_reset(ZEROS),
            lambda env: env.step_no_reset_with_result(ZEROS),
        ],
    )
    def test_is_told(self, ended: PixelGoalEnv, call: Call) -> None:
        for look in (lambda: None, ended.to_host):
            look()
            before = state_of(ended)
            with pytest.raises(ProtocolError, match=self.MESSAGE):
                call(ended)
            assert_unchanged(ended, before)
        ended.reset_mask(torch.tensor([False, True, False, True]))
        call(ended)

    def test_is_not_looked_for_on_the_device(self) -> None:
        env = small_env(NUM, max_steps=2)
        env.reset(0)
        for _ in range(4):
            trackers = env.step_tensors(torch.zeros(NUM, dtype=torch.int32))
        assert trackers.episode_step.tolist() == [2] * NUM


BEFORE_RESET: dict[str, Call] = {
    "step_tensors": lambda e: e.step_tensors(torch.zeros(NUM, dtype=torch.int32)),
    "reset_mask": lambda e: e.reset_mask(torch.ones(NUM, dtype=torch.bool)),
}


@pytest.mark.parametrize("name", BEFORE_RESET)
def test_before_reset_and_after_close(name: str) -> None:
    env = small_env(NUM)
    with pytest.raises(ProtocolError, match=f"{name}: call reset first"):
        BEFORE_RESET[name](env)
    env.reset()
    env.close()
    with pytest.raises(ClosedError, match=f"{name}: the environments are closed"):
        BEFORE_RESET[name](env)


def make(**changes: Any) -> PixelGoalEnv:  # noqa: ANN401 - wrong on purpose
    world = GridWorld(3, ("S.", ".F"), num_slots=2)
    given = {"goal": Goal(world.goal_frame(), tau=0.001), **changes}
    return PixelGoalEnv(world, **given)


MISMADE: list[tuple[Callable[[], object], type[EntityEnvError], str]] = [
    (lambda: make(goal=Goal(picture(16, 24))), SchemaError, r"\(16, 16\).* got \(16, 24\)"),
    (lambda: make(goal=Goal(picture(2, 16, 16))), SchemaError, r"got \(2, 16, 16\)"),
    (lambda: make(goal=Goal(picture(16, 16, shade=4))), SchemaError, "0..3, got 4"),
    (lambda: make(goal=Goal(torch.zeros(16, 16))), SchemaError, "uint8, got torch.float32"),
    (lambda: make(goal=Goal(picture(16, 16), tau=0)), SchemaError, "above 0, got 0"),
    (lambda: make(stack_k=0), UsageError, "stack_k must .* got 0"),
    (lambda: make(stack_k=2.0), UsageError, "stack_k must .* got 2.0"),
    (lambda: make(warm_ups=()), UsageError, "1 to 2 sequences, .* got 0"),
    (lambda: make(warm_ups=[()] * 3), UsageError, "1 to 2 sequences, .* got 3"),
    (lambda: make(warm_ups=[[Button.A, 3]]), UsageError, "sequences of Button, got 3"),
    (lambda: make(slots=()), UsageError, r"slots: .* got \[\]"),
    (lambda: make(slots=(0, 2)), UsageError, r"from 0 to 1, got \[2\]"),
    (lambda: make(slots=(True,)), UsageError, r"got \[True\]"),
    (lambda: make(slots=(0,), warm_ups=((),)), UsageError, "got both"),
    (
        lambda: make(backend="cuda"),
        UsageError,
        "backend must be one of auto, torch, warp, got 'cuda'",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), MISMADE)
def test_what_cannot_be_made(
    call: Callable[[], object], kind: type[EntityEnvError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_a_goal_elsewhere() -> None:
    goal = Goal(picture(16, 16))
    object.__setattr__(goal, "pixels", goal.pixels.to("meta"))
    with pytest.raises(SchemaError, match="goal: expected the world's device cpu, got meta"):
        make(goal=goal)


def test_a_screen_of_no_whole_tiles() -> None:
    world = GridWorld(1)
    world.width += 1
    with pytest.raises(SchemaError, match="multiples of 8: got 32 x 41"):
        PixelGoalEnv(world, Goal(picture(32, 41)))


def test_without_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain torch works without Warp; a request for kernels names the extra."""
    from entity_env.errors import MissingExtraError
    from entity_env.games.pixel import env as pixel_goal_env
    from entity_env.games.pixel.reward.torch_ops import TorchGoalOps
    from entity_env.games.pixel.warp_utils import runtime as warp_runtime

    def missing() -> None:
        raise MissingExtraError("warp-lang", "pixel", "a Warp kernel")

    monkeypatch.setattr(pixel_goal_env, "find_spec", lambda _: None)
    monkeypatch.setattr(warp_runtime, "import_warp", missing)
    assert isinstance(make()._ops, TorchGoalOps)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[pixel\]'"):
        make(backend="warp")
