"""Gymnasium's vector environments as ours, in all modes and spaces; our trainer on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import (
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    MissingExtraError,
    ProtocolError,
    SchemaError,
    UsageError,
    VecCategoricalActionMask,
    VecObs,
)
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.authoring.load_module import load_module
from entity_env.games import cherry_pick
from entity_env.games.classic import CartPole, Pendulum
from entity_env.interop.gymnasium import BatchVectorEnv, GymnasiumVecEnv, make_vector_env
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.masks import AllowedActions, MaskReader
from entity_env.interop.gymnasium.spaces import ObsConverter, feature_names
from entity_env.vec import BatchSeed, VecEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.helpers.executors import check_form
from tests.interop.gymnasium.counting_envs import GymCount

each_mode = pytest.mark.parametrize("mode", AutoresetMode)
if TYPE_CHECKING:
    Sync = SyncVectorEnv[Any, Any]
else:  # generic since Gymnasium 1.3
    Sync = SyncVectorEnv

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


def counting(mode: AutoresetMode, lasts: Sequence[int] = (2, 3)) -> Sync:
    return SyncVectorEnv([partial(GymCount, last) for last in lasts], autoreset_mode=mode)


def shown(obs: VecObs) -> list[float]:
    return obs.features["Env"].values.ravel().tolist()


def test_the_time_of_the_environments_is_within_that_of_their_steps() -> None:
    with GymnasiumVecEnv(counting(SAME, (30, 30))) as vec:
        begin = perf_counter()
        vec.reset()
        [name] = vec.action_space()
        for _ in range(20):
            vec.act({name: np.ones(2, np.int64)})
        elapsed = perf_counter() - begin
        assert 0 < vec.statistics().games_s <= elapsed


def earn(vec: GymnasiumVecEnv, obs: VecObs) -> VecObs:
    """A step with reward i + 1 in environment i."""
    asked = np.flatnonzero(obs.is_ready)
    obs = vec.act({"Action": asked + 1})
    check_form(obs, (vec.obs_space(), vec.action_space()))
    return obs


def test_next_step_asks_nothing_while_the_source_resets() -> None:
    with GymnasiumVecEnv(counting(NEXT)) as vec:
        obs = earn(vec, earn(vec, vec.reset()))
        assert (shown(obs), obs.terminated.tolist()) == ([2, 2], [True, False])
        assert obs.is_ready.tolist() == [False, True]
        assert obs.final is not None
        assert (shown(obs.final), obs.final.env_id.tolist()) == ([2], [0])
        obs = earn(vec, obs)
        assert (shown(obs), obs.reward.tolist()) == ([0, 3], [0, 2])
        assert obs.is_ready.tolist() == [True, False]
        assert [(e.env_id, e.reward) for e in obs.episodes] == [(1, 6)]
        obs = earn(vec, obs)
        assert (shown(obs), obs.reward.tolist(), obs.final) == ([1, 0], [1, 0], None)
        obs = earn(vec, obs)
        assert [(e.env_id, e.number, e.length) for e in obs.episodes] == [(0, 1, 2)]


class SeededAsGymnasiums(CartPole):
    """Environment i has the seed 4 + i, as after Gymnasium's `reset(seed=4)`."""

    def reset(self, seed: BatchSeed | None = None) -> None:
        super().reset(None if seed is None else 4 + np.arange(self.num_envs))


@pytest.mark.parametrize("mode", [SAME, DISABLED])
def test_there_and_back_is_the_same(mode: AutoresetMode) -> None:
    """A batch of ours equals the one converted to Gymnasium and back."""
    straight = BatchVecEnv(SeededAsGymnasiums(20, 15, backend="numpy"))
    batch = BatchVectorEnv(CartPole(20, 15, backend="numpy"), autoreset_mode=mode)
    around = GymnasiumVecEnv(batch, entity="CartPole", action="Push")
    names = [f"CartPole: {name}" for name in around.obs_space().entities["CartPole"].features]
    assert names == ["CartPole: 0", "CartPole: 1", "CartPole: 2", "CartPole: 3"]
    first, second = straight.reset(seed=4), around.reset(seed=4)
    rng = np.random.default_rng(1)
    num_ended = 0
    for _ in range(80):
        assert_same_rows(first, second)
        assert (first.final is None) == (second.final is None)
        if first.final is not None and second.final is not None:
            assert_same_rows(first.final, second.final)
            np.testing.assert_array_equal(first.final.env_id, second.final.env_id)
        mine, theirs = list(first.episodes), list(second.episodes)
        assert [(e.reward, e.length, e.env_id, e.number) for e in mine] == [
            (e.reward, e.length, e.env_id, e.number) for e in theirs
        ]
        num_ended += len(theirs)
        pushes = {"Push": rng.integers(2, size=20)}
        first, second = straight.act(pushes), around.act(pushes)
    assert num_ended > 100
    straight.close()
    around.close()


def assert_same_rows(first: VecObs, second: VecObs) -> None:
    np.testing.assert_array_equal(
        first.features["CartPole"].values, second.features["CartPole"].values
    )
    np.testing.assert_array_equal(first.reward, second.reward)
    np.testing.assert_array_equal(first.terminated, second.terminated)
    # A batch may set both flags; an imported episode has one.
    np.testing.assert_array_equal(first.truncated & ~first.terminated, second.truncated)


@each_mode
def test_truncated_is_not_terminated(mode: AutoresetMode) -> None:
    with GymnasiumVecEnv(
        gymnasium.make_vec(
            "Pendulum-v1",
            2,
            "sync",
            vector_kwargs={"autoreset_mode": mode},
            max_episode_steps=4,
        )
    ) as vec:
        assert isinstance(vec.action_space()["Action"], ContinuousActionSpace)
        obs = vec.reset(seed=1)
        for _ in range(4):
            obs = vec.act({"Action": np.full((2, 1), 1.5, np.float32)})
        assert obs.truncated.all()
        assert not obs.terminated.any()
        assert obs.final is not None
        assert len(obs.final) == 2
        # The last observation is not the first of the next episode, which starts at rest.
        expected = mode == NEXT
        again = np.array_equal(obs.final.features["Env"].values, obs.features["Env"].values)
        assert again == expected


@pytest.mark.parametrize("make", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.slow
def test_gymnasium_s_own(make: Any) -> None:  # noqa: ANN401
    vec = GymnasiumVecEnv(make([partial(gymnasium.make, "CartPole-v1")] * 2))
    obs = vec.reset(seed=1)
    lengths = []
    for _ in range(100):
        obs = vec.act({"Action": np.ones(int(obs.is_ready.sum()), np.int64)})
        lengths += [episode.length for episode in obs.episodes]
    assert lengths
    assert set(lengths) <= {8, 9, 10, 11}  # how long a pole stands under pushes to one side
    vec.close()


BOX = spaces.Box(-1, 1, (2, 3), np.float64)
SHOWN: dict[str, tuple[spaces.Space[Any], list[str]]] = {
    "box": (BOX, ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]),
    "number": (spaces.Box(-1, 1, ()), ["value"]),
    "images": (spaces.Box(0, 255, (1, 2), np.uint8), ["0.0", "0.1"]),
    "discrete": (spaces.Discrete(3, start=-1), ["value=-1", "value=0", "value=1"]),
    "discretes": (spaces.MultiDiscrete([2, 3], start=[0, 5]), ["0=0", "0=1", "1=5", "1=6", "1=7"]),
    "table": (spaces.MultiDiscrete(np.array([[2], [2]])), ["0.0=0", "0.0=1", "1.0=0", "1.0=1"]),
    "bits": (spaces.MultiBinary(2), ["0", "1"]),
    "dict": (
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
        ["a.0", "a.1", "b=0", "b=1"],
    ),
    "nested": (
        spaces.Tuple([spaces.Dict({"x": spaces.Box(0, 1, (1,))}), spaces.MultiBinary(1)]),
        ["0.x.0", "1.0"],
    ),
}


@pytest.mark.parametrize(("space", "names"), SHOWN.values(), ids=SHOWN)
def test_observations_are_flattened_as_gymnasium_does(
    space: spaces.Space[Any], names: list[str]
) -> None:
    batched = batch_space(space, 5)
    batched.seed(1)
    for _ in range(10):
        batch = batched.sample()
        rows = list(gymnasium.vector.utils.iterate(batched, batch))
        expected = [np.asarray(spaces.flatten(space, row), np.float32) for row in rows]
        got = ObsConverter(space, "Env").rows(batch, 5)["Env"].values
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, np.stack(expected))
    listed = feature_names(space)
    assert sorted(listed) == sorted(names)
    assert len(set(listed)) == len(listed) == got.shape[1]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({"words": spaces.Text(3)}),
        spaces.Graph(spaces.Discrete(2), None),
    ],
    ids=["text", "sequence", "dict", "graph"],
)
def test_observations_that_cannot_be_flattened(space: spaces.Space[Any]) -> None:
    with pytest.raises(UsageError, match="which has no fixed size: "):
        feature_names(space)


class Echo(gymnasium.Env[Any, Any]):
    """Records its actions."""

    def __init__(self, action_space: spaces.Space[Any], observation_space: Any = None) -> None:  # noqa: ANN401
        self.observation_space = observation_space or spaces.Box(-1, 1, (1,))
        self.action_space = action_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        self.actions.append(action)
        return self.observation_space.sample(), 1.0, len(self.actions) % 2 == 0, False, {}


DONE: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=-1),
    "discretes": spaces.MultiDiscrete([2, 3], start=[0, 5]),
    "table": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "bits": spaces.MultiBinary(3),
    "many bits": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(np.array([0.1, -2], np.float32), np.array([0.2, 3], np.float32)),
    "wide box": spaces.Box(-1, 1, (2, 3), np.float64),
}


@pytest.mark.parametrize("space", DONE.values(), ids=DONE)
@each_mode
def test_actions_are_those_of_the_space(space: spaces.Space[Any], mode: AutoresetMode) -> None:
    source: Any = SyncVectorEnv([partial(Echo, space)] * 3, autoreset_mode=mode)
    with GymnasiumVecEnv(source) as vec:
        obs = vec.reset(seed=1)
        rng = np.random.default_rng(1)
        for _ in range(6):
            obs = vec.act(random_answers(vec, obs, rng))
        for echo in source.envs:
            assert len(echo.actions) == (4 if mode == NEXT else 6)
            assert all(action in space for action in echo.actions)
            assert len({str(action) for action in echo.actions}) > 1


def random_answers(vec: GymnasiumVecEnv, obs: VecObs, rng: np.random.Generator) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for name, space in vec.action_space().items():
        count = int(obs.action_masks[name].actors.lengths.sum())
        if isinstance(space, ContinuousActionSpace):
            answers[name] = rng.uniform(space.low, space.high, (count, len(space))).astype("f4")
        else:
            assert isinstance(space, GlobalCategoricalActionSpace)
            answers[name] = rng.integers(len(space), size=count)
    return answers


def test_labels_are_the_values() -> None:
    reader = ActionConverter(spaces.MultiDiscrete([2, 3], start=[0, 5]), "Go")
    labels = {n: list(s.index_to_label) for n, s in reader.spaces.items()}  # type: ignore[union-attr]
    assert labels == {"Go.0": ["0", "1"], "Go.1": ["5", "6", "7"]}
    values = {"Go.0": np.array([1]), "Go.1": np.array([2])}
    assert reader.batch(values, np.array([False, True]))[1].tolist() == [1, 7]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, 1, (1,)), "which has no bounds"),
        (
            spaces.Box(0, 5000, (1,), np.int64),
            "one integer has 5,001 values: wrap the environment in one with at most 1,024 choices",
        ),
        (spaces.Dict({"a": spaces.Text(2)}), "the action 'Action.a' is a Text.*expected a Disc"),
        (spaces.Dict({}), "which leaves nothing to choose"),
        (spaces.Text(3), "expected a Discrete"),
    ],
)
def test_actions_that_cannot_be_shown(space: spaces.Space[Any], message: str) -> None:
    source: Any = SyncVectorEnv([partial(Echo, space)])
    with pytest.raises(UsageError, match=message):
        GymnasiumVecEnv(source)


@each_mode
def test_observations_of_many_parts(mode: AutoresetMode) -> None:
    nested = SHOWN["dict"][0]
    make = partial(Echo, spaces.Discrete(2), nested)
    source: Any = SyncVectorEnv([make] * 2, autoreset_mode=mode)
    with GymnasiumVecEnv(source, entity="Echo", action="Say") as vec:
        assert list(vec.obs_space().entities["Echo"].features) == ["a.0", "a.1", "b=0", "b=1"]
        vec.reset(seed=1)
        obs = vec.act({"Say": np.array([0, 1])})
        obs = vec.act({"Say": np.array([0, 1])})
        assert obs.final is not None
        assert obs.final.features["Echo"].values.shape == (2, 4)
        assert (obs.final.features["Echo"].values[:, 2:].sum(1) == 1).all()


@each_mode
def test_masks_are_those_of_the_info(mode: AutoresetMode) -> None:
    source = make_vector_env(cherry_pick, 3, autoreset_mode=mode, max_entities={"Cherry": 16})
    with GymnasiumVecEnv(source) as vec:
        obs = vec.reset(seed=1)
        rng = np.random.default_rng(1)
        episodes = 0
        for _ in range(60):
            mask = obs.action_masks["Action"]
            assert isinstance(mask, VecCategoricalActionMask)
            assert mask.mask is not None
            picks = [rng.choice(np.flatnonzero(row)) for row in mask.mask.values]
            obs = vec.act({"Action": np.array(picks, np.int64)})
            episodes += len(obs.episodes)
        assert episodes >= 6
        with pytest.raises(SchemaError, match="its mask forbids"):
            vec.act({"Action": np.full(int(obs.is_ready.sum()), 0)})  # selects the picker itself


class Generous(Sync):
    """Returns a reward and an end even in the step in which it resets."""

    def step(self, actions: Any) -> Any:  # noqa: ANN401
        waited = self._autoreset_envs.copy()
        obs, rewards, terminations, truncations, infos = super().step(actions)
        return obs, rewards + waited, terminations | waited, truncations | waited, infos


def test_nothing_is_earned_in_the_step_in_which_a_source_resets() -> None:
    with GymnasiumVecEnv(Generous([partial(GymCount, 2)], autoreset_mode=NEXT)) as vec:
        obs = earn(vec, earn(vec, vec.reset()))
        assert obs.terminated.all()
        obs = earn(vec, obs)
        assert (shown(obs), obs.reward.tolist(), obs.final) == ([0], [0], None)
        assert not obs.done.any()


class Told(Sync):
    """Returns given results."""

    told: dict[str, Any]

    def step(self, actions: Any) -> Any:  # noqa: ANN401
        return *super().step(actions)[:4], self.told


@pytest.mark.parametrize(
    ("told", "kind", "message"),
    [
        ({}, ProtocolError, r"of env 1 has ended, but info\['final_obs'\] has no observation"),
        ({"action_mask": np.ones((2, 4))}, SchemaError, r"of env 0: .* = \(5,\): got \(4,\)"),
        (
            {"action_mask": np.zeros((2, 5)), "final_obs": [None, np.zeros(1)]},
            SchemaError,
            r"the mask of env 0 allows nothing for action 'Action'",
        ),
    ],
)
def test_infos_that_cannot_be(told: dict[str, Any], kind: type[Exception], message: str) -> None:
    source = Told([partial(GymCount, last) for last in (3, 1)], autoreset_mode=SAME)
    source.told = told
    with GymnasiumVecEnv(source) as vec:
        vec.reset(seed=1)
        with pytest.raises(kind, match=message):
            vec.act({"Action": np.array([1, 1])})


def test_modes_that_cannot_be() -> None:
    source: Any = counting(SAME)
    with pytest.raises(UsageError, match='autoreset="disabled" needs one with'):
        GymnasiumVecEnv(source, autoreset="disabled")
    with pytest.raises(UsageError, match="autoreset must be one of same_step, disabled"):
        GymnasiumVecEnv(source, autoreset="never")  # type: ignore[arg-type]
    del source.metadata["autoreset_mode"]
    with pytest.raises(UsageError, match=r"set env\.metadata\['autoreset_mode'\]"):
        GymnasiumVecEnv(source)


def make_poles(num_envs: int) -> Any:  # noqa: ANN401 - any vector environment
    return gymnasium.make_vec("CartPole-v1", num_envs, "sync")


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_step_the_same_environments(num_workers: int) -> None:
    here = GymnasiumVecEnv(make_poles, 3, seed=4)
    with here, GymnasiumVecEnv(make_poles, 3, num_workers, seed=4) as there:
        obs, other = here.reset(), there.reset()
        for _ in range(40):
            assert shown(obs) == shown(other)
            assert list(obs.episodes) == list(other.episodes)
            assert (obs.final is None) == (other.final is None)
            actions = {"Action": np.ones(int(obs.is_ready.sum()), np.int64)}
            obs, other = here.act(actions), there.act(actions)
        assert here.statistics().num_episodes == there.statistics().num_episodes > 2


def test_starts_are_seeds_further_on() -> None:
    with GymnasiumVecEnv(make_poles, 3) as vec:
        counted, chosen = shown(vec.reset(seed=6)), shown(vec.reset(seed=4, starts=[3, 2, 4]))
    poles = [counted[4 * i : 4 * i + 4] for i in range(3)]
    assert chosen == [*poles[1], *poles[0], *poles[2]]


def test_environments_with_one_generator_have_one_seed() -> None:
    with GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", 3)) as vec:
        assert shown(vec.reset(seed=6)) == shown(vec.reset(seed=4, starts=[2, 2, 2]))


@pytest.mark.parametrize(
    ("source", "how", "kind", "message"),
    [
        (counting(SAME), {"num_workers": 2}, UsageError, "made already cannot be split"),
        (counting(SAME), {"num_envs": 5}, UsageError, "must be None or 2, as made; got 5"),
        (make_poles, {}, UsageError, "num_envs is missing"),
        (lambda _: make_poles(2), {"num_envs": 3}, SchemaError, "with 3 and returned one of 2"),
        ("CartPole-v1", {}, SchemaError, "a GymnasiumVecEnv needs a VectorEnv, or a function"),
    ],
)
def test_sources_that_cannot_be(
    source: Any,  # noqa: ANN401
    how: Any,  # noqa: ANN401
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        GymnasiumVecEnv(source, **how)


def cart_poles(mode: AutoresetMode) -> Any:  # noqa: ANN401 - any vector environment
    if mode == NEXT:
        return gymnasium.make_vec("CartPole-v1", 64)  # its own array version
    return gymnasium.make_vec("CartPole-v1", 64, "sync", vector_kwargs={"autoreset_mode": mode})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "steps", "least"), [(NEXT, 22_000, 100), (SAME, 12_000, 40), (DISABLED, 12_000, 40)]
)
def test_our_trainer_learns_the_cart_pole_of_gymnasium(
    mode: AutoresetMode, steps: int, least: int
) -> None:
    """A random policy lasts 22 steps."""
    with GymnasiumVecEnv(cart_poles(mode)) as vec:
        config = PPOConfig.for_env(vec, total_steps=steps, episode_window=50)
        result = train(vec, config)
    assert result.progress.mean_reward > least
    assert result.progress.mean_length == result.progress.mean_reward


@pytest.mark.slow
def test_our_trainer_takes_numbers() -> None:
    config = PPOConfig(
        total_steps=400, net=RogueNetConfig(d_model=16, n_head=1, n_layer=1), minibatch_size=64
    )
    batch = Pendulum(8, 20, backend="numpy")
    with GymnasiumVecEnv(BatchVectorEnv(batch, autoreset_mode=SAME)) as vec:
        result = train(vec, config)
    assert result.progress.num_episodes > 0
    assert result.progress.mean_length == 20


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], text=True, capture_output=True, check=False
    )


def test_without_gymnasium_one_line_says_what_to_install() -> None:
    done = run("import sys; sys.modules['gymnasium'] = None\nimport entity_env.interop.gymnasium")
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith(f"{MissingExtraError.__module__}.MissingExtraError: ")
    assert "pip install 'entity-env[gymnasium]'" in line


@pytest.mark.slow
def test_gymnasium_is_imported_when_it_is_asked_for() -> None:
    done = run(
        "import sys, entity_env.interop as interop\n"
        "assert 'gymnasium' not in sys.modules\n"
        "interop.gymnasium.GameEnv\n"
        "assert 'gymnasium' in sys.modules and 'torch' not in sys.modules\n"
        "try:\n    interop.chess\nexcept AttributeError as error: print(error)"
    )
    assert done.stderr == ""
    assert done.stdout == "module 'entity_env.interop' has no attribute 'chess'\n"


class GymSpoilt(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps; one step, counted over all episodes, has a non-finite number.

    Args:
        what: "reward" or "observation".
        at: number of that step; None = never.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, what: str, at: int | None) -> None:
        self.what = what
        self.at = at
        self.steps = self.num_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.num_steps += 1
        bad = self.what if self.num_steps == self.at else ""
        shown = np.array([0, np.nan if bad == "observation" else 0], np.float32)
        reward = float("inf") if bad == "reward" else 0.0
        return shown, reward, self.steps == 5, False, {}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("what", "at", "words"),
    [
        ("observation", 3, r"episode 0, step 3: '1' of the observation .* got nan"),
        ("observation", 5, r"episode 0, step 5: .* of the last observation must be finite"),
        ("observation", 8, "episode 1, step 3: .* of the observation must be finite"),
        ("reward", 3, "episode 0, step 3: the reward must be finite, got inf"),
        ("reward", 5, "episode 0, step 5: the reward must be finite, got inf"),
        ("reward", 8, "episode 1, step 3: the reward must be finite, got inf"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    mode: AutoresetMode, what: str, at: int, words: str
) -> None:
    makes = [partial(GymSpoilt, what, at if i == 1 else None) for i in range(3)]
    with GymnasiumVecEnv(SyncVectorEnv(makes, autoreset_mode=mode)) as vec:
        obs = vec.reset(seed=0)

        def play() -> None:
            nonlocal obs
            for _ in range(12):
                num_asked = len(obs.action_masks["Action"].actors.values)
                obs = vec.act({"Action": np.zeros(num_asked, np.int64)})

        with pytest.raises(SchemaError, match=f"env 1, {words}"):
            play()


NUM_ENVS = 3
Flags = list[bool]
FLAGS = st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS)


def flags(*values: bool) -> NDArray[np.bool_]:
    return np.array(values, np.bool_)


def allowed_actions(space: spaces.Space[Any], name: str = "source") -> AllowedActions:
    return AllowedActions(NUM_ENVS, MaskReader(ActionConverter(space, "Go")), name)


def test_nothing_is_forbidden_before_a_mask_is_given() -> None:
    allowed = allowed_actions(spaces.Discrete(2))
    allowed.read({})
    allowed.read({"action_mask": None})
    assert allowed.of(flags(True, True, True)) is None


@given(FLAGS, FLAGS, FLAGS)
def test_a_mask_lasts_until_its_environment_is_stepped(
    given: Flags, stepped: Flags, ready: Flags
) -> None:
    allowed = allowed_actions(spaces.Discrete(2))
    first, second = np.tile([True, False], (NUM_ENVS, 1)), np.tile([False, True], (NUM_ENVS, 1))
    allowed.read({"action_mask": first.astype(np.int8)})
    info = {"action_mask": second, "_action_mask": np.array(given)}
    allowed.read(info, rows=np.array(stepped))
    found = allowed.of(np.array(ready))
    assert found is not None
    assert found.dtype == np.bool_
    after = {
        (False, False): [True, False],
        (False, True): [True, False],
        (True, True): [False, True],
    }
    rows = [after.get(pair, [True, True]) for pair in zip(stepped, given, strict=True)]
    assert found.tolist() == [row for row, is_ready in zip(rows, ready, strict=True) if is_ready]


def test_a_mask_of_numbers_is_refused() -> None:
    allowed = allowed_actions(spaces.Box(-1, 1, (2,)))
    with pytest.raises(SchemaError, match=r"a Box\(.*\) has no mask, got .*: expected None"):
        allowed.read({"action_mask": np.zeros((NUM_ENVS, 9))})


def test_masks_that_cannot_be_are_named() -> None:
    allowed = allowed_actions(spaces.Discrete(2), "CartPole")
    for masks in (np.ones(3), np.ones((3, 3)), np.full((3, 2), np.nan), [["a", "b"]] * 3):
        with pytest.raises(
            SchemaError, match=r"CartPole: info\['action_mask'\].*the mask of action"
        ):
            allowed.read({"action_mask": masks})
    with pytest.raises(SchemaError, match="needs one mask for each of 3 environments"):
        allowed.read({"action_mask": np.ones((2, 2))})
    assert allowed.of(flags(True, True, True)) is None  # the rejected calls had no effect
    allowed.read({"action_mask": [[1, 0], [0, 0], [1, 1]]})
    with pytest.raises(SchemaError, match="the mask of env 1 allows nothing"):
        allowed.of(flags(True, True, False))
    assert allowed.of(flags(True, False, True)) is not None  # that environment is not asked


REGISTERS = """
import gymnasium
import numpy as np
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}

gymnasium.register("NAME-v0", ENTRY)
by_id = from_gymnasium("NAME-v0")
by_function = from_gymnasium(lambda: gymnasium.make("NAME-v0"))
def batch(num_workers):
    return GymnasiumVecEnv(lambda num: gymnasium.make_vec("NAME-v0", num), 2, num_workers)
"""


@pytest.mark.slow  # starts workers
@pytest.mark.parametrize("entry", ["class", "text", "lambda"])
def test_workers_know_what_a_file_registers(tmp_path: Path, entry: str) -> None:
    """Also if the environment is made by a lambda, which is sent without its module."""
    name = f"registers_{entry}"
    entries = {"class": "Walk", "text": f"'{name}:Walk'", "lambda": "lambda: Walk()"}
    text = REGISTERS.replace("NAME", name.title()).replace("ENTRY", entries[entry])
    (tmp_path / f"{name}.py").write_text(text)
    module = load_module(tmp_path / f"{name}.py")
    for game in (module.by_id, module.by_function):
        with VecEnv(game, 1, 1) as vec:
            assert len(vec.reset()) == 1
    with module.batch(1) as vec:
        assert len(vec.reset()) == 2
