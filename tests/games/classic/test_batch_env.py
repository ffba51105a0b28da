"""CartPole, MountainCar and Pendulum as batches: observations, seeds, flags."""

import numpy as np
import pytest

from entity_env import (
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.games.classic import Backend, CartPole, MountainCar, Pendulum
from entity_env.games.classic.batch_env import ClassicEnv
from entity_env.vec.batch_env.batch_env import ResetMask
from tests.games.classic.histories import (
    BACKENDS,
    Game,
    Make,
    actions_of,
    play,
    same_bits,
    starts_of,
)

pytest_plugins = ["tests.games.classic.fixtures"]

# ------------------------------------------------------------------ shapes and spaces


def test_the_spaces_name_the_game_its_features_and_its_action(game: Game, make: Make) -> None:
    env = make(2)
    space = env.obs_space()
    assert isinstance(space, ObsSpace)
    [(name, entity)] = space.entities.items()
    assert name == game.__name__
    assert len(entity.features) == env.obs_size
    [(action, action_space)] = env.action_space().items()
    if game is Pendulum:
        assert action == "Torque"
        assert isinstance(action_space, ContinuousActionSpace)
        assert (list(action_space.low), list(action_space.high)) == ([-2], [2])
    else:
        assert action == "Push"
        assert isinstance(action_space, GlobalCategoricalActionSpace)
        assert len(action_space) == (2 if game is CartPole else 3)


# ------------------------------------------------------------------ seeds


@pytest.mark.parametrize("num_envs", [1, 2, 7, 8, 15, 16, 17, 33, 64, 65, 130])
def test_an_environment_does_not_depend_on_how_many_there_are(
    num_envs: int, game: Game, make: Make
) -> None:
    actions = actions_of(game, 130, 60)
    histories = []
    for size in (130, num_envs):
        env = make(size, max_episode_steps=25)
        env.reset(seed=5)
        history = play(env, [action[:size] for action in actions])
        histories.append([rows[:num_envs] for rows in history])
    assert same_bits(*histories)


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1, np.int64(5), np.uint64(2**64 - 2)])
def test_every_seed_of_64_bits_works(seed: int, make: Make) -> None:
    env = make(4)
    env.reset(seed=seed)
    assert len(set(starts_of(env))) == 4


def test_starts_are_where_they_should_be(game: Game, make: Make) -> None:
    env = make(20_000)
    env.reset(seed=0)
    state = env.state.astype(np.float64)
    low, high = {
        CartPole: ((-0.05,) * 4, (0.05,) * 4),
        MountainCar: ((-0.6, 0), (-0.4, 0)),
        Pendulum: ((-np.pi, -1), (np.pi, 1)),
    }[game]
    for column, least, most in zip(state.T, low, high, strict=True):
        assert column.min() >= least - 1e-7
        assert column.max() <= most + 1e-7
        if least < most:
            counts = np.histogram(column, bins=10, range=(least, most))[0]
            assert counts.min() > 1800  # 2000, with a standard deviation of 42
            assert counts.max() < 2200
    if game is CartPole:
        correlations = np.corrcoef(state.T) - np.eye(4)
        assert np.abs(correlations).max() < 0.04


# ------------------------------------------------------------------ flags and rewards


def test_an_episode_is_cut_at_its_length(game: Game, make: Make) -> None:
    env = make(3, max_episode_steps=4)
    env.reset(seed=2)
    for step, action in enumerate(actions_of(game, 3, 4)):
        result = env.step_no_reset_with_result(action)
        assert result.truncations.tolist() == [int(step == 3)] * 3
    assert not result.terminals.any()
    one = ResetMask(3)
    one.set(1)
    env.reset_envs(one)
    assert result.truncations.tolist() == [1, 0, 1]
    assert list(result.to_reset_mask().iter_set()) == [0, 2]


@pytest.mark.parametrize(("cls", "length"), [(CartPole, 500), (MountainCar, 200), (Pendulum, 200)])
def test_the_default_length_is_gymnasiums(cls: Game, length: int) -> None:
    env = cls(1)
    assert env.max_episode_steps == length
    env.reset(seed=1)
    for step in range(length):
        if cls is CartPole:  # held in place, so the episode lasts
            env._memory.state[:] = 0
        result = env.step_no_reset_with_result(
            np.zeros(1, np.float32) if cls is Pendulum else np.zeros(1, np.uint8)
        )
        assert result.is_truncated(0) is (step == length - 1)


def test_staggered_episodes_are_each_cut_at_their_length(game: Game, make: Make) -> None:
    """Deadlines may come in any order if environments were reset at different times."""
    env = make(6, max_episode_steps=10)
    env.reset(seed=2)
    ages = np.zeros(6, int)
    for step, action in enumerate(actions_of(game, 6, 60)):
        result = env.step_no_reset_with_result(action)
        ages += 1
        assert result.truncations.tolist() == (ages == 10).astype(int).tolist()
        mask = result.to_reset_mask()
        mask.set(step % 5)
        env.reset_envs(mask)
        ages[mask.to_bool()] = 0


def ended_for_good(game: Game, make: Make) -> ClassicEnv:
    """Two environments; the second is about to terminate."""
    env = make(2)
    if game is CartPole:
        env.set_state(np.array([[0, 0, 0, 0], [2.4, 5, 0, 0]], np.float32))
    else:
        env.set_state(np.array([[-0.5, 0], [0.49, 0.07]], np.float32))
    return env


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cls", [CartPole, MountainCar])
def test_terminals_are_cleared_by_every_reset(cls: Game, backend: Backend) -> None:
    def make(num_envs: int) -> ClassicEnv:
        return cls(num_envs, backend=backend)

    action = np.array([0, 2 if cls is MountainCar else 1])
    env = ended_for_good(cls, make)
    result = env.step_no_reset_with_result(action)
    assert result.terminals.tolist() == [0, 1]
    assert not result.truncations.any()
    assert result.rewards.tolist() == ([1, 1] if cls is CartPole else [-1, -1])
    env.reset_envs(result.to_reset_mask())
    assert not result.terminals.any()

    env = ended_for_good(cls, make)
    env.step(action)
    assert not env.view().terminals.any()
    assert env.view().rewards.tolist() == ([1, 1] if cls is CartPole else [-1, -1])

    env = ended_for_good(cls, make)
    env.step_no_reset(action)
    env.reset()
    assert not env.view().terminals.any()


def test_both_flags_when_the_last_step_ends_it(make: Make, game: Game) -> None:
    if game is Pendulum:
        pytest.skip("never ends by its rules")
    env = make(1, max_episode_steps=1)
    start = [2.4, 5, 0, 0] if game is CartPole else [0.49, 0.07]
    env.set_state(np.array([start], np.float32))
    result = env.step_no_reset_with_result(np.array([1 if game is CartPole else 2]))
    assert result.is_terminal(0)
    assert result.is_truncated(0)
    assert result.to_reset_mask().count() == 1
