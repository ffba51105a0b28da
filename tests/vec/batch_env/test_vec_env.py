"""BatchVecEnv equals batches of one stepped by hand, in all processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    GLOBAL_ENTITY,
    CategoricalActionSpace,
    Entity,
    Episode,
    GlobalCategoricalActionSpace,
    ObsSpace,
    ProtocolError,
    SchemaError,
    SelectEntityActionSpace,
    UsageError,
    VecObs,
    WorkerError,
)
from entity_env.agents import random_actions
from entity_env.core.spaces import ActionName, ActionSpace
from entity_env.core.vec_env_base import env_seeds
from entity_env.games.azul import AzulBatch
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.vec import Autoreset
from entity_env.vec.batch_env.batch_env import BatchEnv, StepResult
from entity_env.vec.batch_env.stepper import BatchEnvStepper
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.helpers.executors import (
    Asked,
    Batch,
    Choices,
    Executor,
    Row,
    Spaces,
    Vectorized,
    choose,
    plain_batch,
)
from tests.vec.batch_env.corridor import Corridor, Parade, Spoilt, Strided, Walled

Make: TypeAlias = Callable[[int], BatchEnv]
Way: TypeAlias = Literal["act", "send", "workers"]

# Short episodes: in each test some terminate and some are truncated.
MAKES: dict[str, Make] = {
    "corridor": Corridor,
    "corridor-categorical": partial(Corridor, kind="categorical"),
    "corridor-continuous": partial(Corridor, kind="continuous"),
    "parade": Parade,
    "strided": Strided,
    "walled": Walled,
    "walled-categorical": partial(Walled, kind="categorical"),
    "azul": partial(AzulBatch, max_rounds=1),
    "cart_pole": partial(CartPole, max_episode_steps=11, backend="numpy"),
    "mountain_car": partial(MountainCar, max_episode_steps=5, backend="numpy"),
    "pendulum": partial(Pendulum, max_episode_steps=4, backend="numpy"),
}
BY_WORKERS = [
    MAKES[name] for name in ("corridor", "corridor-continuous", "parade", "walled", "cart_pole")
]
"""Executors with workers, which are slow to start."""
MODES: tuple[Autoreset, ...] = get_args(Autoreset)
WAYS: tuple[Way, ...] = get_args(Way)
each_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
each_mode = pytest.mark.parametrize("autoreset", MODES)
each_way_of_seeds = pytest.mark.parametrize("way", ["act", "workers"])


def seeds_of(seed: int, num_envs: int) -> list[int]:
    return [int(each) for each in env_seeds(seed, np.arange(num_envs))]


class ByHand:
    """Batches of one environment, one after another, as simply as possible."""

    def __init__(self, make: Make, num_envs: int, seed: int, autoreset: Autoreset) -> None:
        self._envs = [make(1) for _ in range(num_envs)]
        self._seeds = seeds_of(seed, num_envs)
        self._is_new = [True] * num_envs
        self._autoreset = autoreset
        self._numbers = [-1] * num_envs
        self._earned: list[list[float]] = [[] for _ in range(num_envs)]
        self._rows: list[Row] = [Row(0.0, False, False)] * num_envs
        self._final: list[tuple[int, int, Row]] = []
        self._episodes: list[Episode] = []

    @property
    def is_over(self) -> list[bool]:
        return [env.view().is_done(0) for env in self._envs]

    def reset(self, seed: int | None = None) -> Batch:
        return self.reset_envs([True] * len(self._envs), seed)

    def reset_envs(self, mask: Sequence[bool], seed: int | None = None) -> Batch:
        self._final, self._episodes = [], []
        for i in range(len(self._envs)):
            self._rows[i] = replace(self._rows[i], reward=0.0)
            if mask[i]:
                if seed is not None:
                    self._is_new[i], self._numbers[i] = True, -1
                    self._seeds[i] = seeds_of(seed, len(self._envs))[i]
                self._begin(i)
        return self._batch()

    def act(self, choices: Choices) -> Batch:
        [values] = choices.values()
        left = list(values.reshape(-1))
        self._final, self._episodes = [], []
        for i, env in enumerate(self._envs):
            if env.view().is_done(0):
                self._reset(i)  # the episode in between is skipped
                self._numbers[i] += 1
                self._begin(i)
            else:
                self._step(i, env, left.pop(0))
        assert not left, "more choices than actors"
        return self._batch()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _step(self, i: int, env: BatchEnv, value: float) -> None:
        result = env.step_no_reset_with_result(np.array([value]))
        reward = float(result.rewards[0])
        self._earned[i].append(reward)
        row = self._rows[i] = self._row(i, reward)
        if not result.is_done(0):
            return
        self._episodes.append(
            Episode(
                reward=sum(self._earned[i]),
                length=len(self._earned[i]),
                terminated=row.terminated,
                truncated=row.truncated,
                seed=self._seeds[i],
                number=self._numbers[i],
                env_id=i,
            )
        )
        offered = {} if row.terminated else self._asked(i)
        self._final.append((i, 0, replace(row, asked=offered)))
        if self._autoreset == "same_step":
            self._begin(i)
            self._rows[i] = replace(
                self._rows[i],
                reward=reward,
                terminated=row.terminated,
                truncated=row.truncated,
            )

    def _begin(self, i: int) -> None:
        self._reset(i)
        self._numbers[i] += 1
        self._earned[i] = []
        self._rows[i] = self._row(i, 0.0)

    def _reset(self, i: int) -> None:
        self._envs[i].reset(self._seeds[i] if self._is_new[i] else None)
        self._is_new[i] = False

    def _row(self, i: int, reward: float) -> Row:
        env, result = self._envs[i], self._envs[i].view()
        [entity] = env.obs_space().entities
        numbers, num_globals = result.observations[0].tolist(), len(env.obs_space().global_features)
        width = (len(numbers) - num_globals) // env.num_entities
        each = [numbers[width * e : width * (e + 1)] for e in range(env.num_entities)]
        shared = [numbers[width * env.num_entities :]]
        return Row(
            reward=reward,
            terminated=result.is_terminal(0),
            truncated=result.is_truncated(0),
            features={entity: each} | ({GLOBAL_ENTITY: shared} if num_globals else {}),
            asked={} if result.is_done(0) else self._asked(i),
        )

    def _asked(self, i: int) -> dict[str, Asked]:
        env = self._envs[i]
        [(action, space)] = env.action_space().items()
        is_global = isinstance(space, GlobalCategoricalActionSpace)
        assert not isinstance(space, SelectEntityActionSpace)
        legal = env.legal_masks
        allowed = [True] * len(space) if legal is None else legal[0].tolist()
        return {action: Asked([env.num_entities * is_global], [], [allowed])}

    def _batch(self) -> Batch:
        return Batch(list(self._rows), self._final, self._episodes, {})


class Sent(Vectorized):
    """A `VecEnv` with `send` and `recv` in place of `act`."""

    def act(self, choices: Choices) -> Batch:
        self.vec.send(choices)
        return plain_batch(self.vec.recv(), self._spaces)


def executor(
    make: Make, num_envs: int, seed: int, autoreset: Autoreset, way: Way = "act"
) -> Executor:
    num_workers = min(2, num_envs) if way == "workers" else 0
    vec = BatchVecEnv(make, num_envs, num_workers, seed=seed, autoreset=autoreset)
    return Sent(vec) if way == "send" else Vectorized(vec)


def played(
    run: Executor,
    spaces: Spaces,
    autoreset: Autoreset,
    num_steps: int = 14,
    seed: int | None = None,
) -> list[Batch]:
    """Plays random legal actions, equal for equal batches, with the necessary resets."""
    rng = np.random.default_rng(3)
    batches = [run.reset(seed)]
    for _ in range(num_steps):
        over = [row.terminated or row.truncated for row in batches[-1].rows]
        if autoreset == "disabled" and any(over):
            batches.append(run.reset_envs(over))
        else:
            batches.append(run.act(choose(batches[-1], spaces, rng)))
    return batches


def spaces_of(make: Make) -> Spaces:
    env = make(1)
    return env.obs_space(), env.action_space()


def results(
    make: Make, autoreset: Autoreset, way: Way | None, num_envs: int = 3, seed: int = 5
) -> list[Batch]:
    """Results of an executor; without one, of the slow reference."""
    run: Executor = (
        ByHand(make, num_envs, seed, autoreset)
        if way is None
        else executor(make, num_envs, seed, autoreset, way)
    )
    try:
        return played(run, spaces_of(make), autoreset)
    finally:
        run.close()


@each_mode
@each_make
def test_all_show_what_stepping_by_hand_shows(make: Make, autoreset: Autoreset) -> None:
    expected = results(make, autoreset, None)
    assert any(batch.episodes for batch in expected)
    for way in WAYS:
        if way == "workers" and make not in BY_WORKERS:
            continue
        for step, (batch, wanted) in enumerate(
            zip(results(make, autoreset, way), expected, strict=True)
        ):
            assert batch == wanted, f"{way}, step {step}"


@settings(max_examples=40)
@given(
    make=st.sampled_from([*MAKES.values()]),
    autoreset=st.sampled_from(MODES),
    way=st.sampled_from(["act", "send"]),
    num_envs=st.integers(1, 5),
    seed=st.integers(0, 2**62),
)
def test_whatever_the_seed_and_the_number(
    make: Make, autoreset: Autoreset, way: Way, num_envs: int, seed: int
) -> None:
    by_hand = results(make, autoreset, None, num_envs, seed)
    assert results(make, autoreset, way, num_envs, seed) == by_hand


@each_make
def test_it_is_the_batch_with_auto_reset(make: Make) -> None:
    """The observations after `step`, the rewards, and the ends that `step` hides."""
    env = make(4)
    env.reset(seed=7)
    rng = np.random.default_rng(1)
    with BatchVecEnv(make(4), seed=7) as vec:
        [name], space = vec.action_space(), vec.action_space()
        obs = vec.reset()
        for _ in range(30):
            actions = random_actions(obs, space, rng)
            obs = vec.act(actions)
            env.step(actions[name].reshape(-1))
            shown = [ragged.values.reshape(4, -1) for ragged in obs.features.values()]
            np.testing.assert_array_equal(np.hstack(shown), env.view().observations)
            np.testing.assert_array_equal(obs.reward, env.view().rewards)


@each_mode
def test_what_episodes_report_repeats_them(autoreset: Autoreset) -> None:
    """A batch of one with the reported seed has the same episode at the reported number."""
    rng = np.random.default_rng(2)
    actions: list[list[int]] = [[] for _ in range(3)]
    episodes: list[tuple[Episode, list[int]]] = []
    with BatchVecEnv(Corridor, 3, seed=4, autoreset=autoreset) as vec:
        obs = vec.reset()
        while len(episodes) < 12:
            chosen = random_actions(obs, vec.action_space(), rng)
            mask = obs.action_masks[next(iter(chosen))]
            for env_id, action in zip(mask.actors.row_index, *chosen.values(), strict=True):
                actions[env_id].append(int(action))
            obs = vec.act(chosen)
            for episode in obs.episodes:
                episodes.append((episode, actions[episode.env_id]))
                actions[episode.env_id] = []
            if autoreset == "disabled" and obs.done.any():
                obs = vec.reset_envs(obs.done)
    assert len({episode.number for episode, _ in episodes}) > 2
    for episode, taken in episodes:
        env = Corridor(1)
        env.reset(episode.seed)
        for _ in range(episode.number):
            env.reset()
        rewards = [float(env.step_no_reset_with_result(np.array([a])).rewards[0]) for a in taken]
        assert (len(taken), sum(rewards)) == (episode.length, episode.reward)
        view = env.view()
        assert (view.is_terminal(0), view.is_truncated(0)) == (
            episode.terminated,
            episode.truncated,
        )


class TestSeeds:
    @each_way_of_seeds
    def test_equal_starts_are_equal_episodes(self, way: Way) -> None:
        num_workers = 2 if way == "workers" else 0
        with BatchVecEnv(CartPole, 4, num_workers, autoreset="disabled") as vec:
            [rows] = [shown(vec.reset(3, starts=[2, 0, 2, 9]))]
            assert rows[0] == rows[2] != rows[1]
            expected = shown(vec.reset(3))
            assert rows[0] == expected[2]
            assert rows[1] == expected[0]
            again = shown(vec.reset_envs([False, True, False, True], 3, starts=[9, 2, 9, 1]))
            assert again == [expected[0], expected[2], expected[2], expected[1]]
            obs = vec.act({"Push": np.zeros(4, np.int64)})
            while not obs.episodes:
                obs = vec.act({"Push": np.zeros(4, np.int64)})
            assert {e.env_id: e.seed for e in obs.episodes}.items() <= {
                0: 3,
                1: seeds_of(3, 3)[2],
                2: seeds_of(3, 3)[2],
                3: seeds_of(3, 2)[1],
            }.items()

    @pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
    def test_that_are_too_large(self, seed: int) -> None:
        with pytest.raises(UsageError, match="seed must be"):
            BatchVecEnv(Corridor, 3, seed=seed)
        with BatchVecEnv(Corridor(3), autoreset="disabled", seed=8) as vec:
            with pytest.raises(UsageError, match="seed must be"):
                vec.reset(seed)
            first = shown(vec.reset())
            with pytest.raises(UsageError, match="seed must be"):
                vec.reset_envs([True] * 3, seed)
            assert shown(vec.reset(8)) == first

    def test_the_largest(self) -> None:
        with BatchVecEnv(CartPole, 3, seed=2**63 - 1) as vec:
            obs = vec.reset()
            while not any(e.env_id == 0 for e in obs.episodes):
                obs = vec.act({"Push": np.zeros(3, np.int64)})
            assert max(e.seed for e in obs.episodes) == 2**63 - 1


def shown(obs: VecObs) -> list[list[float]]:
    rows: list[list[float]] = next(iter(obs.features.values())).values.tolist()
    return rows


class TestViews:
    def test_features_and_rewards_are_the_environments_own(self) -> None:
        env = CartPole(6)
        with BatchVecEnv(env) as vec:
            obs = vec.reset()
            assert np.shares_memory(obs.features["CartPole"].values, env.view().observations)
            for _ in range(3):
                obs = vec.act({"Push": np.ones(6, np.int64)})
                assert np.shares_memory(obs.features["CartPole"].values, env.view().observations)
                assert np.shares_memory(obs.reward, env.view().rewards)
                vec.send({"Push": np.ones(6, np.int64)})
                before = obs.features["CartPole"].values.copy()
                np.testing.assert_array_equal(obs.features["CartPole"].values, before)
                obs = vec.recv()
                assert np.shares_memory(obs.features["CartPole"].values, env.view().observations)

    def test_masks_are_made_once(self) -> None:
        with BatchVecEnv(CartPole(3, max_episode_steps=2)) as vec:
            vec.reset()
            first, second = (vec.act({"Push": np.ones(3, np.int64)}) for _ in range(2))
            assert second.action_masks is first.action_masks
            assert second.env_id is first.env_id
            assert GLOBAL_ENTITY in first.features


class TestActions:
    @pytest.mark.parametrize(
        ("torques", "message"),
        [
            (np.full((3, 1), np.nan, np.float32), "env 0: action 'Torque': actor 0 chose nan"),
            (np.array([[0], [2.5], [0]]), "env 1: action 'Torque': actor 0 chose 2.5 for"),
            (np.zeros(3, np.float32), r"'Torque' needs the shape \(num_actors, 1\)"),
            (np.zeros((2, 1)), "'Torque' needs 3 values, one per actor: got 2"),
        ],
    )
    def test_torques_that_do_not_fit(self, torques: Any, message: str) -> None:  # noqa: ANN401
        with BatchVecEnv(Pendulum(3)) as vec:
            before = shown(vec.reset())
            with pytest.raises(SchemaError, match=message):
                vec.act({"Torque": torques})
            assert shown(vec.reset(0)) == before
            vec.act({"Torque": np.zeros((3, 1), np.float32)})

    def test_torques_of_any_floats(self) -> None:
        for dtype in (np.float32, np.float64):
            with BatchVecEnv(Pendulum(3)) as vec:
                vec.reset()
                torques: Any = np.full((3, 1), 2, dtype)
                vec.act({"Torque": torques})


class TestEnvironment:
    def test_is_closed(self) -> None:
        env = Corridor(2)
        BatchVecEnv(env).close()
        assert env.is_closed

    def test_that_fails(self) -> None:
        class Fragile(Corridor):
            def step_no_reset_with_result(self, actions: Any) -> StepResult:  # noqa: ANN401
                if self.result.observations[:, 1].max() == 1:
                    raise OSError("it broke")
                return super().step_no_reset_with_result(actions)

        with BatchVecEnv(Fragile(2)) as vec:
            vec.reset()
            vec.act({"Walk": np.ones(2, np.int64)})
            with pytest.raises(WorkerError, match="it broke"):
                vec.act({"Walk": np.ones(2, np.int64)})
            with pytest.raises(ProtocolError, match="call reset first"):
                vec.act({"Walk": np.ones(2, np.int64)})
            vec.reset()
            vec.act({"Walk": np.ones(2, np.int64)})
        with BatchVecEnv(Fragile, 2, 1) as vec:
            vec.reset()
            vec.act({"Walk": np.ones(2, np.int64)})
            with pytest.raises(WorkerError, match="it broke"):
                vec.act({"Walk": np.ones(2, np.int64)})


class Crowd(Corridor):
    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={name: Entity(("x", "time")) for name in "AB"})


class Chooser(Corridor):
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Walk": SelectEntityActionSpace()}


class Cramped(Parade):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.obs_size = 7


class Leaderless(Parade):
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Walk": CategoricalActionSpace(("BACK", "STAY", "ON"))}


class TestSources:
    @pytest.mark.parametrize(
        ("make", "kind", "message"),
        [
            (Crowd, SchemaError, r"Crowd: .* entities \['A', 'B'\]"),
            (Chooser, SchemaError, "Chooser: action 'Walk' must not select entities"),
            (
                partial(Corridor, obs_size=3),
                SchemaError,
                r"obs_size must be 2 \(2 features of Walker\), got 3",
            ),
            (
                Cramped,
                SchemaError,
                r"obs_size must be 8 \(3 \* 2 features of Walker \+ 2 global features\), got 7",
            ),
            (Leaderless, SchemaError, "'Walk' must be global .* which of 3 entities acts"),
            (lambda _: Corridor(5), SchemaError, "called with 2 and returned one of 5"),
            (lambda _: "corridor", SchemaError, "called with 2 and returned str"),
        ],
    )
    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_that_cannot_be_shown(
        self,
        make: Any,  # noqa: ANN401 - wrong on purpose
        kind: type[Exception],
        message: str,
        num_workers: int,
    ) -> None:
        with pytest.raises(kind, match=message):
            BatchVecEnv(make, 2, num_workers)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((Corridor,), "num_envs is missing"),
            ((Corridor(2), 3), "num_envs must be None or 2, as made; got 3"),
            ((Corridor(2), 2, 1), r"BatchVecEnv\(make, 2, num_workers=1\)"),
        ],
    )
    def test_with_numbers_that_make_no_sense(self, arguments: Any, message: str) -> None:  # noqa: ANN401
        with pytest.raises(UsageError, match=message):
            BatchVecEnv(*arguments)

    def test_that_are_none(self) -> None:
        source: Any = 3
        with pytest.raises(SchemaError, match="needs a BatchEnv, or a function"):
            BatchVecEnv(source, 2)


def test_renders_what_has_a_place() -> None:
    class Square(Corridor):
        def obs_space(self) -> ObsSpace:
            return ObsSpace(entities={"Walker": Entity(("x", "y"))})

    with BatchVecEnv(Square(2)) as vec:
        vec.reset()
        assert vec.render(1).shape[2] == 3


@settings(max_examples=60)
@given(num_envs=st.integers(1, 200), seed=st.integers(0, 2**32), mode=st.sampled_from(MODES))
def test_compiled_books_are_the_plain_ones(num_envs: int, seed: int, mode: Autoreset) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(seed)

    def steps(is_compiled: bool) -> BatchEnvStepper:
        env = Pendulum(num_envs, max_episode_steps=4, backend="numpy")
        made = BatchEnvStepper(env, mode, is_compiled)
        env.reset(seed)
        made.begin(range(num_envs), {})
        return made

    compiled, plain = steps(True), steps(False)
    for _ in range(9):
        torques = rng.uniform(-2, 2, num_envs).astype(np.float32)
        for each in (compiled, plain):
            if mode == "disabled" and each.over is not None:
                each.begin(np.flatnonzero(each.over).tolist(), {})
            each.step(torques)
        assert state_of(compiled) == state_of(plain)


def state_of(steps: BatchEnvStepper) -> object:
    finished = steps.finished
    episodes = None
    if finished is not None:
        episodes = [list(finished.episodes()), finished.env_ids.tolist()]
        episodes += [finished.reward.tolist(), finished.flags.tolist()]
    over = None if steps.over is None else steps.over.tolist()
    return (
        episodes,
        over,
        steps.terminated.tolist(),
        steps.truncated.tolist(),
        steps.reward.tolist(),
    )


@pytest.mark.slow
def test_a_reset_of_more_environments_than_a_pipe_holds() -> None:
    with BatchVecEnv(partial(CartPole, backend="numpy"), 50_000, 1) as vec:
        assert len(vec.reset(seed=1)) == 50_000


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("what", "steps", "words"),
    [
        ("reward", 3, "episode 0, step 3: the reward must be finite, got inf"),
        ("reward", 8, "episode 1, step 2: the reward must be finite, got inf"),
        ("observation", 6, r"episode 0, step 6: number 1 of the observation .*, got nan"),
        ("start", 6, r"episode 1, step 0: number 0 of the observation .*, got -inf"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    num_workers: int, what: str, steps: int, words: str
) -> None:
    # With workers, the environment is the last in the first worker.
    spoilt = partial(Spoilt, what=what, steps=steps)
    num_envs = 10 if num_workers else 5
    with BatchVecEnv(spoilt, num_envs, num_workers) as vec:
        vec.reset(seed=0)
        for _ in range(steps - 1):
            vec.act({"Walk": np.ones(num_envs, np.int64)})
        with pytest.raises(SchemaError, match=f"env 4, {words}"):
            vec.act({"Walk": np.ones(num_envs, np.int64)})
