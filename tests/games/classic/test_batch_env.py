"""CartPole, MountainCar and Pendulum as batches: what they show, seeds, flags."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
    UsageError,
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


def test_what_it_shows(game: Game, make: Make) -> None:
    env = make(5)
    env.reset(seed=1)
    result = env.step_no_reset_with_result(actions_of(game, 5, 1)[0])
    assert result.observations.shape == (5, env.obs_size)
    assert result.observations.flags.c_contiguous
    assert result.observations.dtype == result.rewards.dtype == np.float32
    assert result.terminals.dtype == result.truncations.dtype == np.uint8
    for column in (result.rewards, result.terminals, result.truncations):
        assert column.shape == (5,)


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


def test_results_are_views_of_the_present(game: Game, make: Make) -> None:
    env = make(3)
    env.reset(seed=1)
    first = env.view()
    second = env.step_no_reset_with_result(actions_of(game, 3, 1)[0])
    assert np.shares_memory(first.observations, second.observations)
    assert np.array_equal(first.observations, second.observations)
    shown = np.zeros((3, env.obs_size), np.float32)
    env.write_observations(shown)
    assert np.array_equal(shown, second.observations)
    assert not np.shares_memory(shown, second.observations)


def test_what_a_caller_writes_into_a_result_changes_no_episode(game: Game, make: Make) -> None:
    histories = []
    for spoils in (False, True):
        env = make(9, max_episode_steps=7)
        env.reset(seed=3)
        history = []
        for action in actions_of(game, 9, 20):
            result = env.step_no_reset_with_result(action)
            history.append(result.observations.copy())
            history.append(result.rewards.copy())
            mask = result.to_reset_mask()
            if spoils:
                for array in (result.observations, result.rewards):
                    array[:] = np.nan
                result.terminals[:] = result.truncations[:] = 1
            env.reset_envs(mask)
        histories.append(history)
    assert same_bits(*histories)


# ------------------------------------------------------------------ seeds


def test_a_batch_of_one_with_the_seed_of_an_environment_starts_as_it_does(make: Make) -> None:
    env, alone = make(70), make(1)
    env.reset(seed=100)
    starts, seeds = starts_of(env), env.env_seeds(100)
    assert len(set(starts)) == 70
    for i in (0, 1, 63, 64, 69):
        alone.reset(seed=int(seeds[i]))
        assert starts_of(alone) == [starts[i]]


def test_environments_take_seeds_of_their_own(make: Make) -> None:
    env, other = make(5), make(5)
    env.reset(seed=3)
    other.reset(seed=env.env_seeds(3)[::-1])
    assert starts_of(other) == starts_of(env)[::-1]
    mask = ResetMask.from_bool(np.array([True, False, True, False, False]))
    other.reset_envs(mask, seed=env.env_seeds(3))
    assert starts_of(other) == [
        *starts_of(env)[:1],
        starts_of(env)[3],
        *starts_of(env)[2:0:-1],
        starts_of(env)[0],
    ]


@pytest.mark.parametrize(
    "seeds",
    [np.arange(4), np.zeros((5, 1), np.int64), np.zeros(5), np.arange(5) - 1, np.ones(5, np.bool_)],
)
def test_bad_seeds_of_environments_change_nothing(seeds: NDArray[Any], make: Make) -> None:
    env = make(5)
    env.reset(seed=3)
    before = starts_of(env)
    with pytest.raises(UsageError, match=r"seeds must be \(5,\) integers, 0 or more, one per env"):
        env.reset(seed=seeds)
    with pytest.raises(UsageError, match=r"seeds must be \(5,\) integers"):
        env.reset_envs(ResetMask(5), seed=seeds)
    assert starts_of(env) == before


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


def test_later_resets_never_repeat_a_start(game: Game, make: Make) -> None:
    env = make(50)
    everyone = ResetMask.from_bool(np.ones(50, np.bool_))
    env.reset(seed=7)
    seen = set(starts_of(env))
    for k in range(20):
        if k % 2:
            env.reset()
        else:
            env.reset_envs(everyone)
        starts = starts_of(env)
        # A car starts from one of 2**24 places: two of a thousand may meet by chance.
        assert len(seen & set(starts)) <= (1 if game is MountainCar else 0)
        seen |= set(starts)
    assert len(seen) >= 21 * 50 - (2 if game is MountainCar else 0)


def test_a_start_of_one_is_not_the_next_start_of_its_neighbour(make: Make) -> None:
    """As it would be if every reset counted one seed up."""
    env = make(30)
    env.reset(seed=7)
    before = starts_of(env)
    for _ in range(5):
        env.reset()
        now = starts_of(env)
        assert not set(now[:-1]) & set(before[1:])
        assert not set(now[1:]) & set(before[:-1])
        before = now


def test_the_mask_pattern_of_others_changes_nothing(game: Game, make: Make) -> None:
    actions = actions_of(game, 40, 60)
    rng = np.random.default_rng(1)
    histories = []
    for disturbs in (False, True):
        env = make(40, max_episode_steps=30)
        env.reset(seed=5)
        history = []
        for action in actions:
            result = env.step_no_reset_with_result(action)
            history.append(result.observations[:20].copy())
            mask = result.to_reset_mask()
            if disturbs:
                for env_id in range(20, 40):
                    if rng.random() < 0.3:
                        mask.set(env_id)
            env.reset_envs(mask)
            history.append(env.view().observations[:20].copy())
        histories.append(history)
    assert same_bits(*histories)


def test_reset_envs_with_a_seed_begins_anew(make: Make) -> None:
    env, other = make(10), make(10)
    env.reset(seed=1)
    env.reset()
    other.reset(seed=77)
    mask = ResetMask(10)
    mask.set(3)
    mask.set(8)
    before = starts_of(env)
    env.reset_envs(mask, seed=77)
    fresh = starts_of(other)
    assert starts_of(env) == [fresh[i] if i in (3, 8) else before[i] for i in range(10)]
    env.reset_envs(mask)
    other.reset_envs(mask)
    assert starts_of(env)[3] == starts_of(other)[3]


def test_reset_with_the_same_seed_repeats_everything(game: Game, make: Make) -> None:
    env = make(12, max_episode_steps=20)
    histories = []
    for _ in range(2):
        env.reset(seed=9)
        histories.append(play(env, actions_of(game, 12, 50)))
    assert same_bits(*histories)


def test_without_a_seed_runs_differ(make: Make) -> None:
    starts = []
    for _ in range(2):
        env = make(3)
        env.reset()
        starts += starts_of(env)
    assert len(set(starts)) == 6


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1, np.int64(5), np.uint64(2**64 - 2)])
def test_every_seed_of_64_bits_works(seed: int, make: Make) -> None:
    env = make(4)
    env.reset(seed=seed)
    assert len(set(starts_of(env))) == 4


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "1"])
def test_bad_seeds_change_nothing(seed: int, make: Make) -> None:
    env = make(4)
    env.reset(seed=3)
    before = starts_of(env)
    mask = ResetMask.from_bool(np.ones(4, np.bool_))
    with pytest.raises(UsageError, match=r"a seed must be an integer from 0 to 2\*\*64 - 1: got"):
        env.reset(seed=seed)
    with pytest.raises(UsageError, match="a seed must be an integer"):
        env.reset_envs(mask, seed=seed)
    assert starts_of(env) == before
    assert not any(state in starts_of_next(env) for state in before)


def starts_of_next(env: ClassicEnv) -> list[bytes]:
    env.reset()
    return starts_of(env)


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
        if cls is CartPole:  # held in place, so that it lasts
            env._memory.state[:] = 0
        result = env.step_no_reset_with_result(
            np.zeros(1, np.float32) if cls is Pendulum else np.zeros(1, np.uint8)
        )
        assert result.is_truncated(0) is (step == length - 1)


def test_staggered_episodes_are_each_cut_at_their_length(game: Game, make: Make) -> None:
    """Deadlines come in any order when environments were reset at different times."""
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


def test_every_reset_clears_flags_and_leaves_rewards(game: Game, make: Make) -> None:
    env = make(4, max_episode_steps=1)
    [action] = actions_of(game, 4, 1)
    env.reset(seed=1)
    result = env.step_no_reset_with_result(action)
    rewards = result.rewards.copy()
    assert result.truncations.all()
    env.reset_envs(result.to_reset_mask())
    assert not result.truncations.any()
    assert not result.terminals.any()
    assert np.array_equal(result.rewards, rewards)
    assert not result.to_reset_mask().any()

    env.step_no_reset(action)
    assert env.view().truncations.all()
    env.reset()
    assert not env.view().truncations.any()
    assert not env.view().rewards.any()


def ended_for_good(game: Game, make: Make) -> ClassicEnv:
    """Two environments, of which the second is about to end by the rules."""
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


def test_step_is_the_loop_with_resets_at_once(game: Game, make: Make) -> None:
    auto, manual = make(33, max_episode_steps=20), make(33, max_episode_steps=20)
    auto.reset(seed=4)
    manual.reset(seed=4)
    for action in actions_of(game, 33, 70):
        auto.step(action)
        result = manual.step_no_reset_with_result(action)
        manual.reset_envs(result.to_reset_mask())
        assert np.array_equal(auto.view().observations, result.observations)
        assert np.array_equal(auto.view().rewards, result.rewards)
        assert not auto.view().truncations.any()


def test_a_result_keeps_the_last_observation_until_the_reset(make: Make) -> None:
    env = make(1, max_episode_steps=1)
    env.reset(seed=1)
    actions: Any = np.zeros(1, np.float32 if env.obs_size == 3 else np.int64)
    result = env.step_no_reset_with_result(actions)
    last = result.obs(0).copy()
    mask = result.to_reset_mask()
    assert np.array_equal(result.obs(0), last)
    env.reset_envs(mask)
    assert not np.array_equal(result.obs(0), last)
    assert mask.count() == 1  # the caller's own
