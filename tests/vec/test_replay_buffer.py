"""ReplayBuffer: compared with a list of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import ProtocolError, RaggedArray, SchemaError, UsageError, VecObs
from entity_env.agents import random_actions
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecCategoricalActionMask
from entity_env.games import multi_snake, snake, tic_tac_toe
from entity_env.games.classic import CartPole
from entity_env.vec import BatchVecEnv, ReplayBuffer, Transitions, VecEnv
from tests.agents.ppo.small_envs import spoil
from tests.attack.interrupter import Interrupter
from tests.helpers.batches import facts, random_obs

FLAT = ("reward", "terminated", "truncated", "env_id", "agent_id")
Pair = tuple[dict[str, Any], dict[str, Any]]


def pairs(found: Transitions) -> list[Pair]:
    """Every transition as lists."""
    samples = {name: chosen.values for name, chosen in found.actions.items()}
    return [
        (facts(found.obs, samples, row), facts(found.next_obs, {}, row))
        for row in range(len(found.obs))
    ]


def whole(buffer: ReplayBuffer) -> list[Pair]:
    """Every transition of a buffer, oldest first."""
    return pairs(buffer.select(np.arange(len(buffer))))


class Reference:
    """A reference buffer: a list of transitions."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.waiting: list[Pair] = []

    def add(self, obs: VecObs, samples: Mapping[str, NDArray[Any]], next_obs: VecObs) -> None:
        shown = [facts(next_obs, {}, row) for row in range(len(next_obs))]
        if next_obs.final is not None:
            for row, at in enumerate(next_obs.final_rows().tolist()):
                kept = {name: shown[at][name] for name in FLAT}
                shown[at] = {**facts(next_obs.final, {}, row), **kept}
        by_agent = {agent(one): one for one in shown}
        found = []
        for before, last in self.waiting:
            now = by_agent[agent(before)]
            reward = np.float32(last["reward"]) + np.float32(now["reward"])
            found.append((before, {**now, "reward": reward.item()}))
        acted = np.flatnonzero(obs.is_ready).tolist()
        found += [(facts(obs, samples, row), shown[row]) for row in acted]
        self.waiting = [pair for pair in found if not is_known(pair[1])]
        self.pairs += [pair for pair in found if is_known(pair[1])]


def agent(shown: dict[str, Any]) -> tuple[int, int]:
    return shown["env_id"], shown["agent_id"]


def is_known(shown: dict[str, Any]) -> bool:
    """Whether a row ends an episode or asks for an action."""
    asks = any(shown[name] for name in shown if name.endswith(" actors"))
    return shown["terminated"] or shown["truncated"] or asks


def random_step(rng: np.random.Generator, num_rows: int) -> tuple[VecObs, dict[str, NDArray[Any]]]:
    """A random batch of a step, including final observations."""
    obs, samples = random_obs(rng, num_rows)
    done = rng.permutation(np.flatnonzero(obs.done))
    if rng.random() < 0.7:
        obs.final, _ = random_obs(rng, len(done))
        obs.final.env_id = done
    return obs, samples


@given(
    seed=st.integers(0, 2**32),
    capacity=st.integers(1, 14),
    num_rows=st.integers(0, 5),
    num_steps=st.integers(1, 12),
)
def test_it_remembers_what_a_list_would(
    seed: int, capacity: int, num_rows: int, num_steps: int
) -> None:
    rng = np.random.default_rng(seed)
    buffer, reference = ReplayBuffer(capacity), Reference()
    for _ in range(num_steps):
        (obs, samples), (next_obs, _) = (random_step(rng, num_rows) for _ in range(2))
        reference.add(obs, samples, next_obs)
        given = {
            name: RaggedArray(values, obs.action_masks[name].actors.lengths)
            if rng.random() < 0.5
            else values
            for name, values in samples.items()
            if len(values) or rng.random() < 0.5
        }
        buffer.add(obs, given, next_obs)
        spoil(obs)
        spoil(next_obs)
        expected = reference.pairs[-capacity:]
        assert len(buffer) == len(expected)
        assert whole(buffer) == expected
        assert not expected or pairs(buffer.select([-1])) == expected[-1:]
        if not expected:
            continue
        seed = int(rng.integers(2**32))
        wanted = np.random.default_rng(seed).integers(len(expected), size=7).tolist()
        batch = buffer.sample(7, np.random.default_rng(seed))
        assert pairs(batch) == [expected[i] for i in wanted]
        spoil(batch.obs)
        spoil(batch.next_obs)
        assert whole(buffer) == expected


def envs(name: str, autoreset: Autoreset) -> VecEnv:
    if name == "cart_pole":
        return BatchVecEnv(CartPole(3, max_episode_steps=9), autoreset=autoreset)
    games = {"snake": snake, "multi_snake": multi_snake, "tic_tac_toe": tic_tac_toe}
    return VecEnv(games[name], 3, autoreset=autoreset)


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("name", ["snake", "multi_snake", "tic_tac_toe", "cart_pole"])
def test_environments_of_every_kind_in_every_mode(name: str, autoreset: Autoreset) -> None:
    rng, buffer, reference = np.random.default_rng(1), ReplayBuffer(100), Reference()
    with envs(name, autoreset) as vec:
        obs = vec.reset().copy()
        ends = 0
        for _ in range(60):
            actions = random_actions(obs, vec.action_space(), rng)
            next_obs = vec.act(actions)
            reference.add(obs, actions, next_obs)
            buffer.add(obs, actions, next_obs)
            ends += int(next_obs.done.sum())
            if autoreset == "disabled" and next_obs.done.any():
                num_agents = len(next_obs) // vec.num_envs
                next_obs = vec.reset_envs(next_obs.done[::num_agents])
            obs = next_obs.copy()
    assert ends
    assert not reference.waiting or name == "tic_tac_toe"
    assert whole(buffer) == reference.pairs[-100:]
    asked = buffer.select(np.arange(len(buffer))).next_obs
    assert (asked.is_ready == ~asked.terminated).all()


@pytest.mark.slow
@pytest.mark.parametrize("by_instruction", [False, True])
def test_an_interrupt_leaves_whole_transitions(by_instruction: bool) -> None:
    rng = np.random.default_rng(5)
    given = [(*random_obs(rng, 3), random_obs(rng, 3)[0]) for _ in range(4)]
    number, is_struck = 0, True
    while is_struck:
        number += 1 + number // 20
        buffer, reference = ReplayBuffer(5), Reference()
        for step in range(2):
            buffer.add(*given[step])
            reference.add(*given[step])
        before = list(reference.pairs)
        with Interrupter(by_instruction=by_instruction) as interrupter:
            is_struck = interrupter.strike(partial(buffer.add, *given[2]), number)
        reference.add(*given[2])
        if whole(buffer) != reference.pairs[-5:]:
            assert whole(buffer) == before[len(before) - len(buffer) :], interrupter.place
            buffer.add(*given[2])
        for step in range(3, 9):
            assert whole(buffer) == reference.pairs[-5:], interrupter.place
            buffer.add(*given[step % 4])
            reference.add(*given[step % 4])
    assert number > 30


def test_memory_grows_with_the_rows_in_use_and_not_with_those_of_the_past() -> None:
    """Four rows per observation at first, one later: the flat arrays wrap around."""
    buffer = ReplayBuffer(32)
    sizes = []
    for step in range(40):
        obs = dots(count=4 if step < 20 else 1, num_rows=8)
        go = {"go": np.zeros(8, dtype=np.int64)}
        buffer.add(obs, go, dots(count=1, num_rows=8, done=True))
        sizes.append(buffer.num_bytes)
    first = next(i for i, size in enumerate(sizes) if size == sizes[-1])
    assert first == 2  # 24 observations of 4 rows: rounded up to 32, a power of two
    features, slots = 4 * (128 + 32), 2 * 32 * (22 + 2 * 16)
    acting = 32 * (8 + 8) + 16 * 8  # actors and choices; later no actors, with minimal memory
    assert sizes[-1] == features + slots + acting


def dots(count: int, num_rows: int, *, done: bool = False) -> VecObs:
    """Rows of `count` entities, of which the first acts."""
    rng = np.random.default_rng(0)
    obs, _ = random_obs(rng, num_rows)
    lengths = np.full(num_rows, count, dtype=np.int64)
    obs.features = {"Dot": RaggedArray(np.zeros((count * num_rows, 1), np.float32), lengths)}
    obs.visible = {}
    ones = np.full(num_rows, int(not done), dtype=np.int64)
    actors = RaggedArray(np.zeros(ones.sum(), dtype=np.int64), ones)
    obs.action_masks = {"go": VecCategoricalActionMask(actors)}
    obs.terminated[:] = done
    return obs


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    buffer, rng = ReplayBuffer(9), np.random.default_rng(3)
    (obs, samples), (next_obs, _) = (random_obs(rng, 3) for _ in range(2))
    with pytest.raises(UsageError, match="the buffer is empty"):
        buffer.sample(1, rng)
    buffer.add(obs, samples, next_obs)
    before = whole(buffer)

    other, _ = random_obs(rng, 4)
    with pytest.raises(UsageError, match=r"got 4 rows of environments \[0, 1, 2, 3\]"):
        buffer.add(obs, samples, other)
    other, _ = random_obs(rng, 3)
    other.features["A"] = RaggedArray(np.zeros((3, 9), np.float32), [1, 1, 1])
    with pytest.raises(SchemaError, match="next_obs has different spaces"):
        buffer.add(obs, samples, other)
    with pytest.raises(SchemaError, match=r"^obs has different spaces"):
        buffer.add(dots(1, 3), {"go": np.zeros(3, np.int64)}, dots(1, 3))
    with pytest.raises(SchemaError, match=r"'push' needs \d+ values, one per actor of obs: got \("):
        buffer.add(obs, {**samples, "push": samples["push"][:-1]}, next_obs)
    with pytest.raises(SchemaError, match=r"'push' needs .* got none"):
        buffer.add(obs, {"go": samples["go"], "pick": samples["pick"]}, next_obs)
    with pytest.raises(SchemaError, match=r"'push': chosen must have rows of shape \(2,\)"):
        buffer.add(obs, {**samples, "push": samples["push"][:, :1]}, next_obs)
    other = next_obs.copy()
    other.final = other.select([])
    other.terminated[:] = True
    with pytest.raises(ProtocolError, match="each of the 3 rows"):
        buffer.add(obs, samples, other)
    for rows in ([len(buffer)], 0):
        with pytest.raises(UsageError, match="transitions of the buffer are chosen by"):
            buffer.select(rows)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="batch_size must be"):
        buffer.sample(0, rng)
    assert whole(buffer) == before
    with pytest.raises(UsageError, match="capacity must be"):
        ReplayBuffer(0)


@pytest.mark.parametrize("wrong", [np.array([0.7, 1]), np.zeros((2, 1), int), np.array(["a", "b"])])
def test_actions_of_another_kind_are_refused(wrong: NDArray[Any]) -> None:
    with pytest.raises(SchemaError, match=r"'go' needs integers, \(num_actors,\): got"):
        ReplayBuffer(9).add(dots(1, 2), {"go": wrong}, dots(1, 2))


def test_an_agent_that_waits_is_missed() -> None:
    buffer = ReplayBuffer(9)
    waits = dots(1, 2, done=True)
    waits.terminated[:] = waits.truncated[:] = False
    acts = dots(1, 2)
    acts.truncated[:] = False
    go = {"go": np.zeros(2, dtype=np.int64)}
    buffer.add(acts, go, waits)
    assert len(buffer) == 0
    with pytest.raises(UsageError, match=r"agent of env 1 .* still waits"):
        buffer.add(acts.select([0]), {"go": go["go"][:1]}, waits.select([0]))
    buffer.add(waits, {}, acts)
    assert len(buffer) == 2
