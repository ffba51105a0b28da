"""All batch environments follow the same rules: call order, arguments, seeds, arrays, masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import ClosedError, ContinuousActionSpace, ProtocolError, SchemaError, UsageError
from entity_env.check import check_batch_env
from entity_env.games.azul import AzulBatch
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.vec import BatchEnv, ResetMask
from tests.helpers.batches import BATCHES
from tests.helpers.strategies import untyped

# The first steps compile the games, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

Make: TypeAlias = Callable[[int], BatchEnv]

NUM_ENVS = 3
KINDS: Mapping[str, Make] = {
    # The game `pixel` needs a file of the user.
    **{name: make for name, make in BATCHES.items() if name != "pixel"},
    "azul": AzulBatch,
    **{
        f"{cls.__name__}-numpy": partial(cls, backend="numpy")
        for cls in (CartPole, MountainCar, Pendulum)
    },
}
DRAWN = {name: make for name, make in KINDS.items() if not name.startswith("pixel")}
"""Environments with random initial states."""
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def _needs_torch(request: pytest.FixtureRequest) -> None:
    if "pixel" in request.node.name and find_spec("torch") is None:
        pytest.skip("the pixel games need torch")


def actions_of(env: BatchEnv, rng: np.random.Generator) -> NDArray[Any]:
    """Legal actions, after `reset`."""
    [space] = env.action_space().values()
    if isinstance(space, ContinuousActionSpace):
        return rng.uniform(space.low[0], space.high[0], env.num_envs).astype(np.float32)
    masks, size = env.legal_masks, len(untyped(space))
    if masks is None:
        return rng.integers(size, size=env.num_envs)
    actions: NDArray[np.int64] = (rng.random(masks.shape) * masks).argmax(axis=1)
    return actions


def arrays_of(env: BatchEnv) -> dict[str, NDArray[Any]]:
    """A copy of all arrays."""
    shown = env.view()
    names = ("observations", "rewards", "terminals", "truncations")
    arrays = {name: getattr(shown, name).copy() for name in names}
    if env.legal_masks is not None:
        arrays["legal_masks"] = env.legal_masks.copy()
    return arrays


def assert_same(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]]) -> None:
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert_array_equal(array, second[name], err_msg=name)


def played(env: BatchEnv, num_steps: int = 12) -> list[dict[str, NDArray[Any]]]:
    """Results of some steps, with actions that depend only on them."""
    rng, shown = np.random.default_rng(0), [arrays_of(env)]
    for _ in range(num_steps):
        env.step(actions_of(env, rng))
        shown.append(arrays_of(env))
    return shown


def calls(env: BatchEnv, actions: NDArray[Any]) -> dict[str, Callable[[], object]]:
    """Every call except `reset`, by the method named in its error."""
    return {
        "step": lambda: env.step(actions),
        "step_no_reset": lambda: env.step_no_reset(actions),
        "step_no_reset_with_result": lambda: env.step_no_reset_with_result(actions),
        "reset_envs": lambda: env.reset_envs(ResetMask(NUM_ENVS)),
        "view": env.view,
        "write_rewards": lambda: env.write_rewards(np.zeros(NUM_ENVS, np.float32)),
    }


@each_kind
def test_the_whole_contract(make: Make) -> None:
    check_batch_env(make, num_envs=NUM_ENVS, episodes=1)


class TestOrderOfCalls:
    @each_kind
    def test_before_reset(self, make: Make) -> None:
        env = make(NUM_ENVS)
        for call in calls(env, np.zeros(NUM_ENVS, np.int64)).values():
            with pytest.raises(ProtocolError, match=rf"{type(env).__name__}\.\w+: call reset fir"):
                call()
        env.close()

    @each_kind
    @pytest.mark.parametrize("is_reset", [True, False])
    def test_after_close(self, make: Make, is_reset: bool) -> None:
        env, actions = make(NUM_ENVS), np.zeros(NUM_ENVS, np.int64)
        if is_reset:
            env.reset(1)
            actions = actions_of(env, np.random.default_rng(0))
        for _ in range(2):
            env.close()
        for call in (env.reset, *calls(env, actions).values()):
            with pytest.raises(ClosedError, match=rf"{type(env).__name__}\.\w+: the environments"):
                call()


class TestArguments:
    @pytest.mark.parametrize("num_envs", [0, -1, 1.5, True, None])
    @each_kind
    def test_a_number_of_environments_that_makes_no_sense(
        self, make: Make, num_envs: object
    ) -> None:
        with pytest.raises(UsageError, match="num_envs must be an integer"):
            untyped(make)(num_envs)

    @each_kind
    def test_seeds_that_make_no_sense_change_nothing(self, make: Make) -> None:
        env, mask = make(NUM_ENVS), ResetMask.from_bool(np.array([True, False, False]))
        env.reset(1)
        before = arrays_of(env)
        few: list[Any] = [np.arange(2), -np.ones(NUM_ENVS, np.int64), np.ones(NUM_ENVS)]
        for seed in (-1, 2**64, 1.5, True, "1", *few):
            for call in (partial(env.reset, seed), partial(env.reset_envs, mask, seed)):
                with pytest.raises(UsageError, match="seed"):
                    call()
        assert_same(arrays_of(env), before)
        env.close()

    @each_kind
    def test_what_is_no_mask_of_it_changes_nothing(self, make: Make) -> None:
        env = make(NUM_ENVS)
        env.reset(1)
        before = arrays_of(env)
        for mask in untyped((np.ones(NUM_ENVS, np.bool_), [0], None, ResetMask(4), ResetMask(2))):
            with pytest.raises(SchemaError, match="ResetMask of 3 environments, got"):
                env.reset_envs(mask)
        assert_same(arrays_of(env), before)
        env.close()

    @each_kind
    def test_actions_that_do_not_fit_change_nothing(self, make: Make) -> None:
        env, twin = make(NUM_ENVS), make(NUM_ENVS)
        for one in (env, twin):
            one.reset(1)
        [space] = env.action_space().values()
        good = actions_of(env, np.random.default_rng(0))
        has_numbers = isinstance(space, ContinuousActionSpace)
        wrong_values: list[float] = [np.nan, -np.inf, 99, -99]
        if not has_numbers:
            wrong_values = [-1, len(untyped(space)), 2**40, -(2**63)]
        wrong: list[Any] = [good[:2], np.append(good, good[:1]), good.reshape(-1, 1), good[:0]]
        wrong += [good.astype(np.int64 if has_numbers else np.float32), good > 0, ["1"] * 3, None]
        for value in wrong_values:
            wrong.append(good.copy())
            wrong[-1][1] = value
        if (masks := env.legal_masks) is not None and not masks[1].all():
            wrong.append(good.copy())
            wrong[-1][1] = masks[1].argmin()
        for actions in wrong:
            for step in (env.step, env.step_no_reset, env.step_no_reset_with_result):
                with pytest.raises(SchemaError, match=r"got|may not"):
                    step(actions)
        assert_same(arrays_of(env), arrays_of(twin))
        for one in (env, twin):
            one.step(good)
        assert_same(arrays_of(env), arrays_of(twin))
        for one in (env, twin):
            one.close()


class TestSeeds:
    @each_kind
    def test_repeat_episodes(self, make: Make) -> None:
        env, twin = make(NUM_ENVS), make(NUM_ENVS)
        for one in (env, twin):
            one.reset(5)
        first = played(env)
        for shown, again in zip(first, played(twin), strict=True):
            assert_same(shown, again)
        env.reset(5)
        for shown, again in zip(first, played(env), strict=True):
            assert_same(shown, again)
        for one in (env, twin):
            one.close()

    @pytest.mark.parametrize("make", DRAWN.values(), ids=DRAWN)
    def test_are_new_ones_where_none_are_given(self, make: Make) -> None:
        shown = []
        for env in (make(1), make(1)):
            for _ in range(2):
                env.reset()
                shown.append(env.view().observations.tobytes())
            env.close()
        assert len(set(shown)) == 4

    @each_kind
    def test_of_an_environment_begin_its_episode_in_another_batch(self, make: Make) -> None:
        env, one = make(NUM_ENVS), make(1)
        env.reset(5)
        one.reset(int(env.env_seeds(5)[2]))
        assert_array_equal(env.view().observations[2:], one.view().observations)
        for each in (env, one):
            each.close()


class TestArrays:
    @each_kind
    def test_have_their_shapes_and_dtypes(self, make: Make) -> None:
        env = make(NUM_ENVS)
        env.reset(1)
        rng = np.random.default_rng(0)
        for shown in (env.view(), env.step_no_reset_with_result(actions_of(env, rng))):
            assert shown.observations.shape == (NUM_ENVS, env.obs_size)
            assert shown.observations.flags.c_contiguous
            assert shown.observations.dtype == shown.rewards.dtype == np.float32
            assert shown.terminals.dtype == shown.truncations.dtype == np.uint8
            for array in (shown.rewards, shown.terminals, shown.truncations):
                assert array.shape == (NUM_ENVS,)
        env.close()

    @each_kind
    def test_are_written_where_the_caller_wants_them(self, make: Make) -> None:
        env = make(NUM_ENVS)
        env.reset(1)
        env.step(actions_of(env, np.random.default_rng(0)))
        for name, array in arrays_of(env).items():
            if name != "legal_masks":
                out = np.full_like(array, 7)
                getattr(env, f"write_{name}")(out)
                assert_array_equal(out, array)
        env.close()
