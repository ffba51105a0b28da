"""The classic batches equal Gymnasium's environments; compiled steps equal plain ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env.core import seeding, vec_env_base
from entity_env.games.classic import Backend, CartPole, MountainCar, Pendulum
from entity_env.games.classic.batch_env import ClassicEnv, start_draws
from tests.games.classic.histories import BACKENDS, GAMES, Game, random_actions, wide_states

GYMNASIUM = {CartPole: "CartPole-v1", MountainCar: "MountainCar-v0", Pendulum: "Pendulum-v1"}


def theirs(game: Game) -> Any:  # noqa: ANN401 - its type has no such attributes
    """Gymnasium's environment without its step limit, which is a separate wrapper."""
    return gymnasium.make(GYMNASIUM[game]).unwrapped


def put(env: Any, state: NDArray[np.floating]) -> None:  # noqa: ANN401
    """Sets the state of a Gymnasium environment."""
    env.reset(seed=0)
    env.state = np.array(state, np.float64)
    if hasattr(env, "steps_beyond_terminated"):
        env.steps_beyond_terminated = None


def their_step(
    env: Any,  # noqa: ANN401
    action: np.generic,
) -> tuple[NDArray[np.float64], float, bool]:
    """Observation in double precision, reward, and termination."""
    given = np.array([action]) if isinstance(action, np.floating) else action
    _, reward, terminated, _, _ = env.step(given)
    state = np.array(env.state, np.float64)
    if len(state) == 2 and hasattr(env, "max_torque"):
        state = np.array([np.cos(state[0]), np.sin(state[0]), state[1]])
    return state, float(reward), bool(terminated)


def near_a_threshold(game: Game, observation: NDArray[np.float64]) -> bool:
    """Whether rounding may make float32 and float64 disagree about termination."""
    if game is CartPole:
        return bool(np.abs(np.abs(observation[[0, 2]]) - [2.4, np.pi / 15]).min() < 1e-6)
    return game is MountainCar and bool(np.abs(observation[0] - 0.5) < 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("game", GAMES)
def test_one_step_from_the_same_state(game: Game, backend: Backend) -> None:
    rng = np.random.default_rng(1)
    env, other = game(500, backend=backend), theirs(game)
    actions = random_actions(game, rng, 500)
    states = wide_states(game, rng, 500)
    env.set_state(states)
    result = env.step_no_reset_with_result(actions)
    num_ended = 0
    for i in range(500):
        put(other, states[i])
        observation, reward, terminated = their_step(other, actions[i])
        assert np.abs(result.observations[i] - observation).max() < 1e-6
        assert abs(result.rewards[i] - reward) < 1e-6
        assert result.is_terminal(i) is terminated or near_a_threshold(game, observation)
        num_ended += terminated
    assert num_ended == 0 if game is Pendulum else 5 < num_ended < 400


@pytest.mark.parametrize("backend", BACKENDS)
def test_cart_pole_episodes(backend: Backend) -> None:
    """Equal starts and actions give equal lengths, rewards and ends."""
    num_envs = 40
    env = CartPole(num_envs, backend=backend)
    env.reset(seed=3)
    starting = env.state
    rng = np.random.default_rng(2)
    others = [theirs(CartPole) for _ in range(num_envs)]
    for i, other in enumerate(others):
        put(other, starting[i])
    lives = np.ones(num_envs, bool)
    worst = 0.0
    while lives.any():
        actions = rng.integers(0, 2, num_envs)
        result = env.step_no_reset_with_result(actions)
        for i in np.flatnonzero(lives).tolist():
            observation, reward, terminated = their_step(others[i], actions[i])
            worst = max(worst, float(np.abs(result.observations[i] - observation).max()))
            assert result.rewards[i] == reward == 1
            assert result.is_terminal(i) is terminated
            lives[i] = not terminated
        env.reset_envs(result.to_reset_mask())
    assert worst < 1e-4


def cart_pole_gap(backend: Backend, seed: int, num_steps: int, is_balanced: bool) -> float:
    """Largest difference to Gymnasium in whole episodes, which start and end together."""
    env, other, worst = CartPole(1, backend=backend), theirs(CartPole), 0.0
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    put(other, env.state[0])
    for _ in range(num_steps):
        action = int(rng.integers(2))
        if is_balanced:  # push to the side that the pole falls to
            action = int(other.state[2] + other.state[3] > 0)
        result = env.step_no_reset_with_result(np.array([action]))
        observation, _, terminated = their_step(other, np.int64(action))
        worst = max(worst, float(np.abs(result.observations[0] - observation).max()))
        assert result.is_terminal(0) is terminated
        if result.is_done(0):
            env.reset_envs(result.to_reset_mask())
            put(other, env.state[0])
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 8, 10, 24])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cart_pole_is_where_gymnasiums_is_for_ten_thousand_steps(
    backend: Backend, seed: int
) -> None:
    gap = cart_pole_gap(backend, seed, 10_000, is_balanced=False)
    assert gap < (1e-6 if backend == "numpy" else 1e-3)


def test_a_balanced_pole_in_numpy_is_where_gymnasiums_is() -> None:
    """Episodes of 500 steps, in which the smallest rounding error would grow to a whole unit."""
    assert cart_pole_gap("numpy", 3, 2_000, is_balanced=True) < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("game", GAMES)
def test_a_state_goes_on_elsewhere_to_the_last_digit(game: Game, backend: Backend) -> None:
    rng = np.random.default_rng(5)
    env, other = (game(30, 100, backend=backend) for _ in range(2))
    env.reset(seed=2)
    for _ in range(5):
        env.step_no_reset(random_actions(game, rng, 30))
    other.set_state(env.state)
    actions = random_actions(game, rng, 30)
    for each in (env, other):
        each.step_no_reset(actions)
    assert env.state.tobytes() == other.state.tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_pendulums_pay_what_gymnasiums_do_for_ten_thousand_steps(backend: Backend) -> None:
    """Starts each step from equal states, because a pendulum amplifies any rounding."""
    num_envs, rng, worst = 500, np.random.default_rng(7), 0.0
    env, other = Pendulum(num_envs, backend=backend), theirs(Pendulum)
    env.reset(seed=5)
    put(other, env.state[0])
    for _ in range(10_000 // num_envs):
        actions = rng.uniform(-2, 2, num_envs).astype(np.float32)
        states = env.state.astype(np.float64)
        rewards = env.step_no_reset_with_result(actions).rewards
        for state, action, reward in zip(states, actions, rewards, strict=True):
            other.state = state
            worst = max(worst, abs(float(reward) - float(other.step(np.array([action]))[1])))
    assert worst < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_mountain_car_episodes(backend: Backend) -> None:
    """With a policy that reaches the flag by pushing in the direction of motion."""
    env, other = MountainCar(1, backend=backend), theirs(MountainCar)
    for seed in range(5):
        env.reset(seed=seed)
        put(other, env.state[0])
        terminated, num_steps = False, 0
        while not terminated:
            action = np.where(env.state[:, 1] < 0, 0, 2)
            result = env.step_no_reset_with_result(action)
            observation, reward, terminated = their_step(other, action[0])
            assert np.abs(result.observations[0] - observation).max() < 1e-4
            assert result.rewards[0] == reward == -1
            assert result.is_terminal(0) is terminated
            num_steps += 1
        assert 50 < num_steps < 200


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("game", GAMES)
def test_the_flags_of_wrapped_environments(game: Game, backend: Backend) -> None:
    """With Gymnasium's own limit: equal flags for equal actions and starts.

    Not longer than this, because a balanced pole with equal pushes doubles any rounding error every
    nine steps.
    """
    limit = 60
    env: ClassicEnv = game(1, limit, backend=backend)
    other = gymnasium.make(GYMNASIUM[game], max_episode_steps=limit)
    rng = np.random.default_rng(4)
    env.reset(seed=1)
    other.reset(seed=0)
    inner: Any = other.unwrapped
    inner.state = env.state[0].astype(np.float64)
    for step in range(limit):
        actions = random_actions(game, rng, 1)
        if game is CartPole:  # keep the pole up: push to the side that it falls to
            actions = np.array([int(inner.state[2] + inner.state[3] > 0)])
        result = env.step_no_reset_with_result(actions)
        action: Any = actions if game is Pendulum else int(actions[0])
        _, _, terminated, truncated, _ = other.step(action)
        assert result.is_terminal(0) is bool(terminated) is False
        assert result.is_truncated(0) is bool(truncated) is (step == limit - 1)


def test_cart_pole_rewards_the_step_that_ends_it() -> None:
    env = CartPole(1)
    env.set_state(np.array([[2.4, 3, 0, 0]], np.float32))
    result = env.step_no_reset_with_result(np.array([1]))
    assert result.is_terminal(0)
    assert result.rewards[0] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_pendulum_pays_for_the_state_before_the_step(backend: Backend) -> None:
    env = Pendulum(1, backend=backend)
    env.set_state(np.array([[1.0, 2.0]], np.float32))
    result = env.step_no_reset_with_result(np.array([0.5], np.float32))
    before = 1.0**2 + 0.1 * 2.0**2 + 0.001 * 0.5**2
    angle, spin = env.state[0].tolist()
    after = angle**2 + 0.1 * spin**2 + 0.001 * 0.5**2
    assert result.rewards[0] == pytest.approx(-before, abs=1e-6)
    assert abs(before - after) > 0.1


@pytest.mark.parametrize("backend", BACKENDS)
def test_pendulum_shows_points_of_the_circle(backend: Backend) -> None:
    """A Taylor series over the whole circle would be wrong by 0.5 or more."""
    env = Pendulum(4001, backend=backend)
    angles = np.linspace(-np.pi, np.pi, 4001)
    env.set_state(np.stack([angles, np.zeros(4001)], axis=1).astype(np.float32))
    for _ in range(30):
        shown = env.step_no_reset_with_result(np.full(4001, 2, np.float32)).observations
        angle = env.state[:, 0].astype(np.float64)
        assert np.abs(angle).max() < np.pi + 1e-6
        assert np.abs(shown[:, 0] - np.cos(angle)).max() < 3e-7
        assert np.abs(shown[:, 1] - np.sin(angle)).max() < 3e-7
        assert np.abs(shown[:, 0] ** 2 + shown[:, 1] ** 2 - 1).max() < 1e-6


def test_compiled_waves_are_those_of_the_library() -> None:
    from entity_env.games.classic import kernels as compiled

    for x in np.linspace(-10, 10, 20_001, dtype=np.float32):
        assert abs(float(compiled.cosine(x)) - np.cos(float(x))) < 4e-7
    for x in np.linspace(-np.pi, np.pi, 20_001, dtype=np.float32):
        assert abs(float(compiled.sine_within_pi(x)) - np.sin(float(x))) < 2e-7
        assert abs(float(compiled.cosine_within_pi(x)) - np.cos(float(x))) < 2e-7


# ------------------------------------------------------------------ compiled and plain


def both(game: Game, num_envs: int, max_episode_steps: int = 100) -> list[ClassicEnv]:
    return [game(num_envs, max_episode_steps, backend=backend) for backend in BACKENDS]


@given(
    game=st.sampled_from(GAMES),
    num_envs=st.integers(1, 150),
    seed=st.integers(0, 2**64 - 1),
    num_resets=st.integers(0, 3),
)
@settings(max_examples=60)
def test_starts_are_equal_bit_for_bit(
    game: Game, num_envs: int, seed: int, num_resets: int
) -> None:
    compiled, plain = both(game, num_envs)
    for env in (compiled, plain):
        env.reset(seed=seed)
        for _ in range(num_resets):
            env.reset()
    assert np.array_equal(compiled.state, plain.state)
    # Libraries may differ in the last bit of a double's cosine, far below a float's precision.
    gap = np.abs(compiled.view().observations - plain.view().observations).max()
    assert gap <= (6e-8 if game is Pendulum else 0)


@given(game=st.sampled_from(GAMES), num_envs=st.integers(1, 150), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_one_compiled_step_equals_the_plain_one(game: Game, num_envs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    actions, states = random_actions(game, rng, num_envs), wide_states(game, rng, num_envs)
    results = []
    for env in both(game, num_envs):
        env.set_state(states)
        results.append(env.step_no_reset_with_result(actions))
    compiled, plain = results
    assert np.abs(compiled.observations - plain.observations).max() < 1e-6
    assert np.abs(compiled.rewards - plain.rewards).max() < 3e-6
    assert np.array_equal(compiled.truncations, plain.truncations)
    for i in np.flatnonzero(compiled.terminals != plain.terminals):
        assert near_a_threshold(game, plain.observations[i].astype(np.float64))


@given(
    game=st.sampled_from(GAMES),
    num_envs=st.integers(1, 80),
    max_episode_steps=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_compiled_episodes_equal_plain_ones(
    game: Game, num_envs: int, max_episode_steps: int, seed: int
) -> None:
    """With any masks, equal episodes start and end, until rounding decides an end."""
    rng = np.random.default_rng(seed)
    compiled, plain = both(game, num_envs, max_episode_steps)
    for env in (compiled, plain):
        env.reset(seed=seed)
    for _ in range(25):
        actions = random_actions(game, rng, num_envs)
        first = compiled.step_no_reset_with_result(actions)
        second = plain.step_no_reset_with_result(actions)
        if np.any(first.terminals != second.terminals):
            return
        assert np.array_equal(first.truncations, second.truncations)
        assert np.abs(first.observations - second.observations).max() < 1e-3
        mask = first.to_reset_mask()
        assert mask == second.to_reset_mask()
        mask.set(int(rng.integers(num_envs)))
        fresh = int(rng.integers(2**32)) if rng.random() < 0.2 else None
        for env in (compiled, plain):
            env.reset_envs(mask, seed=fresh)
        chosen = mask.to_bool()
        assert np.array_equal(compiled.state[chosen], plain.state[chosen])


# ------------------------------------------------------------------ draws


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_mixing_is_split_mix_64(words: list[int]) -> None:
    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    assert vec_env_base.splitmix64(np.array(words, np.uint64)).tolist() == [
        mixed(word) for word in words
    ]


def test_draws_are_those_of_the_published_sequence() -> None:
    """SplitMix64 from 1234567, as printed with its reference implementation."""
    published = [6457827717110365317, 3203168211198807973]
    draws, streams = start_draws(np.array([1234567], np.uint64))
    expected = [
        part - 2**23 for word in published for part in (word >> 40, (word >> 8) & (2**24 - 1))
    ]
    assert draws[:, 0].tolist() == expected
    assert int(streams[0]) == (1234567 + 2 * seeding.GAMMA) % 2**64
