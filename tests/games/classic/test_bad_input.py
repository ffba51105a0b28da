"""Wrong call order and bad input of the classic batches: named errors, without side effects."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import (
    ClosedError,
    MissingExtraError,
    ProtocolError,
    SchemaError,
    UsageError,
)
from entity_env.core import validation
from entity_env.games.classic import CartPole, Pendulum
from entity_env.vec.batch_env.batch_env import BatchActions, ResetMask
from tests.games.classic.histories import GAMES, Game, Make, actions_of, play, same_bits

pytest_plugins = ["tests.games.classic.fixtures"]


def test_states_before_reset_and_after_close(game: Game, make: Make) -> None:
    env = make(2)
    with pytest.raises(ProtocolError, match=rf"{game.__name__}\.\w+: call reset first"):
        _ = env.state
    env.reset(seed=1)
    env.close()
    with pytest.raises(ClosedError, match="the environments are closed"):
        env.set_state(np.zeros((2, 4 if game is CartPole else 2), np.float32))


def test_stepping_ended_environments_names_them(game: Game, make: Make) -> None:
    env = make(40, max_episode_steps=3)
    env.reset(seed=1)
    actions = actions_of(game, 40, 3)
    some = ResetMask(40)
    for env_id in (0, 5, 39):
        some.set(env_id)
    for action in actions:
        result = env.step_no_reset_with_result(action)
    before = (env.state, result.rewards.copy())
    for step in (env.step, env.step_no_reset, env.step_no_reset_with_result):
        with pytest.raises(ProtocolError, match="0, 1, 2, 3, 4, 5, 6, 7 and 32 more have ended"):
            step(actions[0])
    others = ResetMask.from_bool(~some.to_bool())
    env.reset_envs(others)
    with pytest.raises(ProtocolError, match="episodes of environments 0, 5, 39 have ended: reset"):
        env.step(actions[0])
    state, rewards = before
    assert np.array_equal(env.state[some.to_bool()], state[some.to_bool()])
    assert np.array_equal(result.rewards, rewards)
    env.reset_envs(some)
    env.step(actions[0])


def test_no_copies_that_would_share_memory(make: Make) -> None:
    env = make(2)
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="can be neither copied nor pickled"):
            copying(env)


# ------------------------------------------------------------------ bad input


def test_the_first_of_several_bad_actions_is_named(make: Make, game: Game) -> None:
    env = make(300)
    env.reset(seed=1)
    actions: Any = np.zeros(300, np.float32 if game is Pendulum else np.uint8)
    actions[[7, 250, 299]] = 100
    with pytest.raises(SchemaError, match="for environment 7, and 2 more out of range"):
        env.step(actions)


def test_every_dtype_and_layout_gives_the_same_bits(game: Game, make: Make) -> None:
    is_torque = game is Pendulum
    actions: list[Any] = [np.round(a) if is_torque else a for a in actions_of(game, 21, 10)]
    dtypes: list[type[np.generic]] = [np.float64, np.float16, np.float32]
    if not is_torque:
        dtypes = [np.uint8, np.int64, np.int32, np.uint64, np.int8, np.uint16]
    histories = []
    for dtype in dtypes:
        env = make(21)
        env.reset(seed=8)
        histories.append(play(env, [action.astype(dtype) for action in actions]))
    forms: list[Callable[[BatchActions], Any]] = [
        lambda action: np.repeat(action, 3)[::3],
        lambda action: action[::-1].copy()[::-1],
        lambda action: action.astype(action.dtype.newbyteorder(">")),
        lambda action: action.tolist(),
    ]
    for form in forms:
        env = make(21)
        env.reset(seed=8)
        histories.append(play(env, [form(action) for action in actions]))
    for history in histories[1:]:
        assert same_bits(histories[0], history)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None])
def test_numbers_that_make_no_sense(number: int, make: Make) -> None:
    with pytest.raises(UsageError, match="max_episode_steps must be an integer, 1 or more"):
        make(1, max_episode_steps=number)
    with pytest.raises(UsageError, match=r"max_episode_steps must be at most 2\*\*62: got"):
        make(1, max_episode_steps=2**64)


def test_states_that_do_not_fit_are_refused(game: Game, make: Make) -> None:
    env = make(2)
    env.reset(seed=1)
    before = env.state
    size = before.shape[1]
    far, nan = np.zeros((2, size), np.float32), np.zeros((2, size), np.float32)
    far[1, 0], nan[1, 1] = 99, np.nan
    wrong: list[Any] = [np.zeros((2, size + 1), np.float32), np.zeros((2, size), np.int64)]
    for states in [*wrong, far, nan]:
        with pytest.raises(SchemaError):
            env.set_state(states)
    assert np.array_equal(env.state, before)


def test_set_state_begins_episodes_there(game: Game, make: Make) -> None:
    env = make(2, max_episode_steps=2)
    [action] = actions_of(game, 2, 1)
    given = np.array([[0.1] * (4 if game is CartPole else 2)] * 2, np.float32) / 2
    env.set_state(given)  # also before any reset
    assert np.array_equal(env.state, given)
    env.step_no_reset(action)
    env.set_state(given)
    env.step_no_reset(action)
    assert not env.view().truncations.any()
    env.step_no_reset(action)
    assert env.view().truncations.all()


# ------------------------------------------------------------------ without numba


def test_numba_missing_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "has_numba", lambda: False)
    for cls in GAMES:
        with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[fast\]'"):
            cls(2, backend="numba")
        env = cls(2)
        assert not env._is_compiled


def test_an_unknown_backend() -> None:
    with pytest.raises(UsageError, match="backend must be one of auto, numba, numpy, got 'cuda'"):
        CartPole(2, backend="cuda")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_plain_version_and_masks_never_import_numba() -> None:
    script = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
import numpy as np
from entity_env.games.classic import CartPole
env = CartPole(3, max_episode_steps=1)
env.reset(seed=1)
mask = env.step_no_reset_with_result(np.zeros(3, np.int64)).to_reset_mask()
env.reset_envs(mask)
assert list(mask.iter_set()) == [0, 1, 2]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_first_choice_beyond_the_last_is_refused(make: Make, game: Game) -> None:
    env = make(3)
    env.reset(seed=1)
    actions: Any = np.zeros(3, np.float32 if game is Pendulum else np.uint8)
    env.step(actions)  # later steps with this dtype are checked by compiled code
    actions[1] = {"CartPole": 2, "MountainCar": 3, "Pendulum": np.nextafter(np.float32(2), 3)}[
        game.__name__
    ]
    with pytest.raises(SchemaError, match="for environment 1"):
        env.step(actions)
