"""MultiSnakeBatch equals the game multi_snake: observations, ends, error messages."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import (
    MissingExtraError,
    Obs,
    RaggedArray,
    SchemaError,
    UsageError,
    VecEnvironment,
    VecObs,
)
from entity_env.agents import RandomAgent
from entity_env.core.seeding import EpisodeSeeds, SplitMix64
from entity_env.core.vec_env_base import splitmix64
from entity_env.games import multi_snake
from entity_env.games.multi_snake import Move, play
from entity_env.games.multi_snake_batch import Autoreset, MultiSnakeBatch, boards
from entity_env.games.multi_snake_batch.draws import index_of, seed_pools
from entity_env.games.multi_snake_batch.state import DRAWN, NEXT, RUN
from entity_env.vec import VecEnv
from tests.helpers.batches import assert_same
from tests.helpers.scripted_agent import ScriptedAgent

MODES: tuple[Autoreset, ...] = ("same_step", "next_step", "disabled")


def batch(
    num_envs: int, *, seed: int = 0, autoreset: Autoreset = "same_step", **changes: int
) -> VecEnv:
    return VecEnv(MultiSnakeBatch(**changes), num_envs, seed=seed, autoreset=autoreset)


small = partial(batch, board_size=4, num_snakes=2, max_snake_length=3, max_step=12)
each_mode = pytest.mark.parametrize("autoreset", MODES)


def acted(vec: VecEnv, *moves: int) -> VecObs:
    return vec.act({"Move": np.array(moves, dtype=np.int64)})


def both(num_envs: int, seed: int, autoreset: Autoreset, changes: dict[str, Any]) -> list[VecEnv]:
    plain = VecEnv(multi_snake.with_settings(**changes), num_envs, seed=seed, autoreset=autoreset)
    return [plain, batch(num_envs, seed=seed, autoreset=autoreset, **changes)]


def _reset(seed: int | None, one: VecEnv) -> VecObs:
    return one.reset(seed)


def _reset_envs(mask: NDArray[np.bool_], seed: int | None, one: VecEnv) -> VecObs:
    return one.reset_envs(mask, seed)


def assert_equal(first: VecObs, second: VecObs) -> None:
    """Compares two batches and their finished episodes."""
    assert_same(first, second)
    for name in ("reward", "terminated", "truncated", "env_id", "agent_id"):
        one, two = getattr(first, name), getattr(second, name)
        assert one.dtype == two.dtype, name
        assert_array_equal(one, two, err_msg=name)
    assert list(first.episodes) == list(second.episodes)
    assert (first.final is None) == (second.final is None)
    if first.final is not None and second.final is not None:
        assert_equal(first.final, second.final)


def chosen(obs: VecObs, rng: np.random.Generator, greed: float) -> NDArray[np.int64]:
    """Moves of all actors, mostly toward their food."""
    acts = np.repeat(obs.is_ready, obs.features["Head"].lengths)
    way = obs.features["Food"].values[acts, :2] - obs.features["Head"].values[acts, :2]
    x, y = way.T
    across = np.where(x > 0, 3, 2)
    along = np.where(y > 0, 0, 1)
    moves = np.where(abs(x) > abs(y), across, along)
    return np.where(rng.random(len(moves)) < greed, moves, rng.integers(0, 4, len(moves)))


class Lockstep:
    """Several executors that get equal calls and are compared after each."""

    def __init__(self, executors: list[VecEnv]) -> None:
        self.executors = executors
        self.obs = self.do(lambda one: one.reset())

    def do(self, call: Callable[[VecEnv], VecObs]) -> VecObs:
        first, *others = [call(one) for one in self.executors]
        for other in others:
            assert_equal(first, other)
        self.obs = first
        return first

    def act(self, moves: NDArray[np.int64]) -> VecObs:
        return self.do(lambda one: one.act({"Move": moves}))

    def close(self) -> None:
        for one in self.executors:
            one.close()


@st.composite
def game_settings(draw: st.DrawFn) -> dict[str, int]:
    num_snakes = draw(st.integers(1, 4))
    max_snake_length = draw(st.integers(2, 5))
    least = int(np.ceil(np.sqrt(num_snakes * (max_snake_length + 1))))
    return {
        "board_size": draw(st.integers(least, least + 3)),
        "num_snakes": num_snakes,
        "max_snake_length": max_snake_length,
        "max_step": draw(st.integers(1, 40)),
    }


@pytest.mark.slow
@settings(max_examples=40)
@given(
    changes=game_settings(),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 2**130),
    autoreset=st.sampled_from(MODES),
    greed=st.sampled_from([0.0, 0.7, 0.9, 1.0]),
    actions_seed=st.integers(0, 2**32),
)
def test_it_plays_the_plain_game_move_for_move(
    changes: dict[str, Any],
    num_envs: int,
    seed: int,
    autoreset: Autoreset,
    greed: float,
    actions_seed: int,
) -> None:
    run = Lockstep(both(num_envs, seed, autoreset, changes))
    rng = np.random.default_rng(actions_seed)
    for _ in range(25):
        over = run.obs.done
        if autoreset == "disabled" and over.any():
            mask = over | (rng.random(num_envs) < 0.2)
            again = None if rng.random() < 0.7 else int(rng.integers(99))
            run.do(partial(_reset_envs, mask, again))
        run.act(chosen(run.obs, rng, greed))
        if rng.random() < 0.05:
            again = None if rng.random() < 0.5 else int(rng.integers(9))
            run.do(partial(_reset, again))
    run.close()


@pytest.mark.slow
def test_everything_that_can_happen_does() -> None:
    """The test above reaches every rule that it compares."""
    seen: Counter[str] = Counter()
    rng = np.random.default_rng(1)
    for num_snakes in (1, 2):
        changes = {"board_size": 4, "num_snakes": num_snakes, "max_snake_length": 3, "max_step": 9}
        run = Lockstep(both(8, 1, "same_step", changes))
        before = run.obs.features["Food"].values.copy()
        for _ in range(100):
            obs = run.act(chosen(run.obs, rng, greed=0.9))
            food = obs.features["Food"].values.copy()
            moved = (food != before).reshape(8, -1).any(axis=1)
            before = food
            seen["grew"] += int((obs.reward > 0).sum())
            seen["ate at full length"] += int((moved & (obs.reward == 0) & ~obs.done).sum())
            seen["all grown"] += sum(episode.reward == 1 for episode in obs.episodes)
            seen["cut"] += int(obs.truncated.sum())
            seen["crashed"] += sum(e.terminated and e.reward < 1 for e in obs.episodes)
        run.close()
    assert set(+seen) == {"grew", "ate at full length", "all grown", "cut", "crashed"}


def test_a_full_size_batch_plays_the_plain_game_too() -> None:
    plain = VecEnv(multi_snake, 64, seed=5)
    run = Lockstep([plain, batch(64, seed=5)])
    rng = np.random.default_rng(0)
    for _ in range(60):
        run.act(chosen(run.obs, rng, greed=0.9))
    assert run.obs.features["Segment"].lengths.max() > 3
    run.close()


def test_the_plain_game_repeats_an_episode_from_its_seed() -> None:
    rng = np.random.default_rng(3)
    vec = batch(1, seed=3, autoreset="next_step")
    obs = vec.reset()
    moves: list[list[Move]] = []
    heads = [obs.features["Head"].values[:, :2].tolist()]
    while not obs.episodes:
        indices = chosen(obs, rng, greed=0.9)
        moves.append([list(Move)[index] for index in indices])
        obs = vec.act({"Move": indices})
        heads.append(obs.features["Head"].values[:, :2].tolist())
    [episode] = obs.episodes
    shown: list[list[list[int]]] = []

    def answer(obs: Obs) -> list[Move]:
        shown.append([[head.x, head.y] for head in obs.groups[0]])
        return moves[len(shown) - 1]

    agent = ScriptedAgent(answer, episodes=1)
    play(agent, seed=episode.seed)
    shown.append([[head.x, head.y] for head in agent.end.obs.groups[0]])
    assert shown == heads
    assert agent.end.num_steps == episode.length
    assert agent.end.score == episode.reward


class TestDraws:
    @given(
        seed=st.integers(0, 2**200),
        env_ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3),
        number=st.integers(0, 2**37),
    )
    def test_seeds_are_those_of_every_other_executor(
        self, seed: int, env_ids: list[int], number: int
    ) -> None:
        from entity_env.games.multi_snake_batch.kernels import _seed_of

        rows = np.zeros((len(env_ids), DRAWN + 1), dtype=np.uint64)
        rows[:, : RUN + 1] = seed_pools(seed, np.array(env_ids, dtype=np.int64))
        rows[:, NEXT] = number
        seeds = [int(_seed_of(i, rows)) for i in range(len(env_ids))]
        assert seeds == [EpisodeSeeds(seed, env_id)[number] for env_id in env_ids]

    @given(seed=st.integers(0, 2**64 - 1), num_items=st.integers(1, 2**20))
    def test_python_and_numpy_draw_the_same(self, seed: int, num_items: int) -> None:
        draws = SplitMix64()
        draws.seed(seed)
        states = [(seed + k * 0x9E3779B97F4A7C15) % 2**64 for k in range(1, 6)]
        indices = index_of(
            splitmix64(np.array(states, dtype=np.uint64)), np.full(5, num_items, dtype=np.uint64)
        )
        assert indices.tolist() == [draws.choice(range(num_items)) for _ in states]

    def test_they_are_those_of_splitmix64(self) -> None:
        """The first outputs for the seed 1234567, which other implementations use as a check."""
        draws = SplitMix64()
        draws.seed(1234567)
        whole = range(2**32)
        wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]
        assert [draws.choice(whole) for _ in wanted] == [z >> 32 for z in wanted]

    def test_all_cells_are_drawn_about_equally(self) -> None:
        draws = SplitMix64()
        counts = Counter(
            draws.choice(range(10)) for seed in range(2000) for _ in _seeded(draws, seed)
        )
        assert min(counts.values()) > 850
        assert max(counts.values()) < 1150


def _seeded(draws: SplitMix64, seed: int) -> range:
    draws.seed(seed)
    return range(5)


class TestSpaces:
    def test_they_are_those_of_the_plain_game(self) -> None:
        vec: VecEnvironment = batch(2)
        assert vec.obs_space() == multi_snake.obs_space()
        assert vec.action_space() == multi_snake.action_space()
        assert vec.num_rows == 2


class TestCalls:
    def test_what_was_shown_may_be_spoilt(self) -> None:
        """Boards do not read positions back from the returned arrays."""
        one, other = (small(4, seed=2) for _ in range(2))
        first, second = one.reset(), other.reset()
        rng = np.random.default_rng(0)
        for _ in range(30):
            moves = chosen(first, rng, greed=0.9)
            for ragged in second.features.values():
                ragged.values[:] = np.nan
            second.reward[:] = 7
            second.terminated[:] = True
            first, second = one.act({"Move": moves}), other.act({"Move": moves})
            assert_equal(first, second)


class TestActions:
    def test_only_those_who_act_are_named(self) -> None:
        """The first of two boards is over: only the second has actors."""
        for autoreset in MODES[1:]:
            vec = small(2, seed=0, autoreset=autoreset)
            obs = vec.reset()
            rng = np.random.default_rng(0)
            while not (obs.done[0] and not obs.done[1]):
                if autoreset == "disabled" and obs.done.any():
                    obs = vec.reset_envs(obs.done)
                obs = vec.act({"Move": chosen(obs, rng, greed=0.5)})
            if autoreset == "next_step":
                with pytest.raises(SchemaError, match="actor 1 of env 1 chose 4"):
                    acted(vec, 0, 4)
                with pytest.raises(SchemaError, match="env 0 has 0 actors, got 1 values"):
                    vec.act({"Move": RaggedArray(np.zeros(2, dtype=np.int64), [1, 1])})
                with pytest.raises(SchemaError, match="2 actors wait for it, the first in env 1"):
                    vec.act({})


class TestSettings:
    @pytest.mark.parametrize(
        "changes",
        [
            {"num_snakes": 0},
            {"max_step": 0},
            {"max_snake_length": 1},
            {"board_size": 0},
            {"board_size": 4},
            {"board_size": 5.0},
            {"num_snakes": "two"},
            {"max_step": True},
        ],
        ids=str,
    )
    def test_it_refuses_what_the_plain_game_refuses(self, changes: dict[str, Any]) -> None:
        with pytest.raises(UsageError) as expected:
            multi_snake.run(RandomAgent(seed=1), **changes)
        with pytest.raises(UsageError) as refused:
            batch(1, **changes)
        assert str(refused.value) == str(expected.value)

    def test_it_reads_what_the_plain_game_reads(self) -> None:
        """Settings as text, such as from a command line."""
        changes: dict[str, Any] = {"num_snakes": "3", "board_size": "6"}
        with batch(2, **changes) as vec:
            assert vec.reset().features["Head"].lengths.tolist() == [3, 3]

    def test_an_episode_may_be_as_long_as_one_likes(self) -> None:
        vec = batch(1, max_step=10**30)
        assert not vec.reset().done.any()
        assert len(acted(vec, 0, 0)) == 1


def test_a_place_without_a_cache_compiles_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba import njit

    from entity_env.games.multi_snake_batch import kernels as compiled

    def uncached(**options: Any) -> Any:  # noqa: ANN401
        if "cache" in options:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(compiled, "njit", uncached)

    def first(values: NDArray[np.int64]) -> int:
        return int(values[0])

    assert compiled._entered(first)(np.array([7])) == 7


class TestWithoutNumba:
    @pytest.fixture(autouse=True)
    def no_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boards, "has_numba", lambda: False)

    def test_the_error_names_the_extra(self) -> None:
        with pytest.raises(MissingExtraError, match=r"numba.*entity-env\[fast\]"):
            batch(3)


@pytest.mark.slow
def test_importing_it_does_not_import_numba(run_python: Callable[[str], str]) -> None:
    code = "import sys, entity_env.games.multi_snake_batch; print('numba' in sys.modules)"
    assert run_python(code) == "False"


@pytest.fixture
def run_python() -> Callable[[str], str]:
    import subprocess

    def run(code: str) -> str:
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert not result.returncode, result.stderr
        return result.stdout.strip()

    return run


@pytest.mark.slow
def test_an_agent_trained_on_it_plays_the_plain_game(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert torch
    from entity_env.agents.load import load_agent
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.agents.rogue_net import RogueNetConfig

    config = PPOConfig(
        total_steps=256,
        num_steps=8,
        minibatch_size=64,
        net=RogueNetConfig(d_model=16, n_layer=1),
    )
    with batch(16, num_snakes=2) as vec:
        result = train(vec, config, out=tmp_path)
    assert result.progress.step == 256
    episodes = multi_snake.run(load_agent(tmp_path), episodes=3)
    assert len(episodes) == 3
