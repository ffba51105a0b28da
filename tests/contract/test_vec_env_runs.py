"""All vector environments follow the same rules: seeds, actions, views, sums over episodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    Episode,
    ProtocolError,
    RaggedArray,
    SchemaError,
    UsageError,
    VecObs,
)
from entity_env.vec import Autoreset, BatchVecEnv
from tests.contract.vec_envs import (
    ALL,
    KINDS,
    LENGTH,
    MODES,
    NUM_ENVS,
    WORKERS,
    Make,
    by_row,
    each_kind,
    each_mode,
    legal,
    num_steps_of,
    place,
    plain,
    played,
    steps,
)
from tests.helpers.strategies import untyped
from tests.helpers.worker_helpers import pid_of

# The first steps compile the games, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)


class TestSeeds:
    @pytest.mark.slow
    @each_mode(KINDS)
    def test_reset_with_a_seed_replays(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            first = played(vec)
            assert played(vec) == first
            assert played(two) == first
            assert played(vec, 6)[0] != first[0]

    @each_kind()
    def test_the_first_run_has_the_seed_of_the_constructor(self, make: Make) -> None:
        with make(NUM_ENVS, seed=5) as vec, make(NUM_ENVS) as zero:
            with pytest.raises(UsageError, match="seed must be an integer"):
                vec.reset(-1)
            first = plain(vec, vec.reset())
            assert first != plain(zero, zero.reset()) == plain(vec, vec.reset(0))
            assert plain(vec, vec.reset(5)) == first

    @pytest.mark.slow
    @each_kind(KINDS)
    def test_reset_without_a_seed_goes_on_to_the_next_episodes(self, make: Make) -> None:
        """However long the last episodes were."""
        with make(NUM_ENVS) as vec, make(NUM_ENVS) as twin:
            first, _ = plain(vec, vec.reset(5)), twin.reset(5)
            second = vec.reset()
            assert plain(vec, second).rows != first.rows
            vec.act(legal(vec, second))
            twin.reset()
            third = vec.reset()
            assert plain(vec, third) == plain(twin, twin.reset())
            assert plain(vec, third).rows != first.rows

    @each_kind()
    def test_an_environment_does_not_depend_on_the_others(self, make: Make) -> None:
        with make(NUM_ENVS) as vec, make(5) as more:
            for few, many in zip(played(vec, num_steps=0), played(more, num_steps=0), strict=True):
                assert many.rows[: vec.num_rows] == few.rows

    @each_mode()
    def test_wrong_ones_change_nothing(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            obs, _ = vec.reset(5), two.reset(5)
            resets: list[Callable[[Any], VecObs]] = [vec.reset]
            if vec.can_reset_envs:
                resets.append(lambda seed: vec.reset_envs(ALL, seed))
            for reset in resets:
                for seed in untyped((-1, 1.5, True, "1")):
                    with pytest.raises(UsageError, match="seed must be an integer"):
                        reset(seed)
            actions = legal(vec, obs)
            assert plain(vec, vec.act(actions)) == plain(two, two.act(actions))


WRONG: dict[str, tuple[Callable[[str, NDArray[Any]], Any], str]] = {
    "no mapping": (lambda name, right: [right], "must be a mapping .*: got a list"),
    "missing": (lambda name, right: {}, "'{name}' is missing: {n} actors wait .*first in env 0"),
    "unknown": (lambda name, right: {name: right, "Up": right}, "'Up' is not in the action space"),
    "too few": (
        lambda name, right: {name: right[1:]},
        "needs {n} values, one per actor: got {n-1}",
    ),
    "too many": (lambda name, right: {name: np.append(right, 0)}, "one per actor: got {n+1}"),
    "none": (lambda name, right: {name: []}, "one per actor: got 0"),
    "a number": (lambda name, right: {name: 1}, "one per actor: got a single number"),
    "floats": (lambda name, right: {name: right * 1.0}, "needs integers, got float64"),
    "bools": (lambda name, right: {name: right > 0}, "needs integers, got bool"),
    "texts": (lambda name, right: {name: ["UP"] * len(right)}, "needs integers, got <U2"),
    "columns": (lambda name, right: {name: right[:, None]}, "needs the shape .{n},.*got .{n}, 1"),
    "uneven": (lambda name, right: {name: [[0], [0, 1]]}, "needs an array of values"),
    "negative": (
        lambda name, right: {name: np.append(right[:-1], -1)},
        "env 2.* chose -1, expected 0 to",
    ),
    "negative, in a list": (lambda name, right: {name: [*right[:-1], -1]}, "env 2.* chose -1"),
    "int8": (lambda name, right: {name: np.array([*right[:-1], -1], np.int8)}, "chose -1, expect"),
    "uint64": (
        lambda name, right: {name: np.array([*right[:-1], 2**63 + 1], np.uint64)},
        "chose 9223372036854775809, expected 0 to",
    ),
    "ragged, one row": (
        lambda name, right: {name: RaggedArray(right, [len(right)])},
        "needs {rows} rows, one per agent: got 1",
    ),
    "ragged, of floats": (
        lambda name, right: {name: RaggedArray(right * 1.0, [len(right) // 3] * 3)},
        "needs integers, got float64|needs {rows} rows",
    ),
}


class TestActions:
    @pytest.mark.slow
    @each_kind(KINDS)
    def test_wrong_ones_change_nothing(self, make: Make) -> None:
        with make(NUM_ENVS) as vec, make(NUM_ENVS) as twin:
            obs, _ = vec.reset(5), twin.reset(5)
            before = plain(vec, obs)
            [(name, right)] = legal(vec, obs).items()
            wrong = [(make(name, right), words) for make, words in WRONG.values()]
            lengths = obs.action_masks[name].actors.lengths
            moved = np.append(lengths[0] - 1, lengths[1:])
            moved[-1] += 1
            wrong.append(({name: RaggedArray(right, moved)}, "env 0.* has {first} actors, got"))
            limit = len([row for row in before.rows if row.asked][-1].asked[name].allowed[-1])
            words = f"env 2.* chose {limit}, expected 0 to {limit - 1}"
            wrong.append(({name: np.append(right[:-1], limit)}, words))
            for actions, words in wrong:
                words = words.replace("{name}", name).replace("{rows}", str(vec.num_rows))
                words = words.replace("{first}", str(lengths[0]))
                for offset, text in ((0, "{n}"), (1, "{n+1}"), (-1, "{n-1}")):
                    words = words.replace(text, str(len(right) + offset))
                for call in (vec.act, vec.send):
                    with pytest.raises(SchemaError, match=words):
                        call(actions)
            assert plain(vec, obs) == before
            assert plain(vec, vec.act({name: right})) == plain(twin, twin.act({name: right}))
            assert vec.statistics().num_steps == 1

    @each_kind({name: KINDS[name] for name in ("games", "environments", "games-workers")})
    def test_that_a_mask_forbids_change_nothing(self, make: Make) -> None:
        with make(NUM_ENVS) as vec, make(NUM_ENVS) as twin:
            obs, _ = vec.reset(5), twin.reset(5)
            [(name, right)] = legal(vec, obs).items()
            allowed = [flags for row in plain(vec, obs).rows for flags in row.asked[name].allowed]
            forbidden = np.array([flags.index(False) for flags in allowed])
            with pytest.raises(SchemaError, match="env 0 chose 0, which its mask forbids"):
                vec.act({name: forbidden})
            assert plain(vec, vec.act({name: right})) == plain(twin, twin.act({name: right}))

    @each_kind()
    def test_in_any_form(self, make: Make) -> None:
        with make(NUM_ENVS) as vec:
            obs = vec.reset(5)
            [(name, right)] = legal(vec, obs).items()
            lengths = obs.action_masks[name].actors.lengths.tolist()
            expected = plain(vec, vec.act({name: right}))
            forms: list[Any] = [
                right.tolist(),
                tuple(right.tolist()),
                right.astype(np.int8),
                right.astype(np.uint64),
                np.repeat(right, 2)[::2],
                RaggedArray(right, lengths),
            ]
            for form in forms:
                vec.reset(5)
                assert plain(vec, vec.act({name: form})) == expected


class TestViews:
    @each_mode(KINDS)
    def test_stay_valid_until_recv(self, make: Make, autoreset: Autoreset) -> None:
        """`act` equals `send` and `recv`; `send` reads the actions."""
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            obs, other = vec.reset(5), two.reset(5)
            rng = np.random.default_rng(0)
            for _ in range(3 * LENGTH):
                before = plain(vec, obs)
                assert before == plain(two, other)
                if autoreset == "disabled" and vec.is_over.any():
                    mask = vec.is_over
                    obs, other = vec.reset_envs(mask), two.reset_envs(mask)
                    continue
                actions = legal(vec, obs, rng)
                other = two.act(actions)
                vec.send(actions)
                for values in actions.values():
                    values[:] = 0
                assert plain(vec, obs) == before
                obs = vec.recv()

    @each_mode()
    def test_of_episodes_stay_as_they_are(self, make: Make, autoreset: Autoreset) -> None:
        """Even if they are first read after later steps and another run."""
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            num_steps = num_steps_of(vec)
            early = [list(obs.episodes) for obs in steps(vec, vec.reset(5), num_steps)]
            late = [obs.episodes for obs in steps(two, two.reset(5), num_steps)]
            played(two, 6, num_steps=1)
            assert [list(episodes) for episodes in late] == early
            assert sum(map(len, early)) > 2
            several = next((each for each in late if len(each) > 1), [])
            assert list(several[:2]) == list(several)[:2]
            assert repr(several) == repr(list(several))


class TestEpisodes:
    @each_mode()
    def test_are_sums_of_their_steps(self, make: Make, autoreset: Autoreset) -> None:
        """Rewards and lengths add up; episode numbers start at 0 in every run."""
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            for _ in range(2):
                obs, reward, length = vec.reset(5), np.zeros(vec.num_rows), np.zeros(vec.num_rows)
                numbers: dict[tuple[int, int], list[int]] = {}
                while len(numbers) < vec.num_rows or min(map(len, numbers.values())) < 2:
                    if autoreset != "disabled" or not vec.is_over.any():
                        length += obs.is_ready
                    [obs] = steps(vec, obs, 1)
                    reward += obs.reward
                    for episode in obs.episodes:
                        row = episode.env_id * vec.num_agents + episode.agent_id
                        assert episode.reward == pytest.approx(reward[row], abs=1e-4)
                        assert episode.length == length[row]
                        reward[row] = length[row] = 0
                        numbers.setdefault(place(episode), []).append(episode.number)
                # With "next_step", a batch environment starts two episodes for each one returned.
                is_batch = isinstance(vec, BatchVecEnv) and autoreset == "next_step"
                for (_, agent_id), found in numbers.items():
                    if agent_id < 2:  # the third agent of `crew` does not take part in all
                        assert found == list(range(0, len(found) << is_batch, 1 + is_batch))


class TestStatistics:
    @each_mode(KINDS)
    def test_add_up(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            assert vec.statistics().num_steps == 0
            num_steps = num_episodes = 0
            for _ in range(2):
                obs = vec.reset(5)  # not a step
                for _ in range(num_steps_of(vec)):
                    num_steps += autoreset != "disabled" or not vec.is_over.any()
                    [obs] = steps(vec, obs, 1)
                    num_episodes += len(obs.episodes)
        found = vec.statistics()  # even after close
        assert (found.num_steps, found.num_env_steps) == (num_steps, NUM_ENVS * num_steps)
        assert found.num_episodes == num_episodes > 0
        assert sum(worker.num_envs for worker in found.workers) == NUM_ENVS
        assert len(found.workers) == max(1, vec.num_workers)
        assert found.num_restarts == 0
        assert min(found.waiting_s, found.transport_s, found.caller_s) > 0
        for worker in found.workers:
            assert worker.games_s > 0
            if vec.num_workers:
                assert min(worker.packing_s, worker.waiting_s) > 0

    @each_kind(KINDS)
    def test_of_workers_count_the_same_steps(self, make: Make) -> None:
        vec = make(NUM_ENVS)
        with vec:
            vec.act(legal(vec, vec.reset()))
            found = vec.statistics()
            assert [worker.num_steps for worker in found.workers] == [1] * len(found.workers)


@pytest.mark.parametrize(
    ("name", "num_workers"),
    [("games", 1), ("games", 2), ("games", NUM_ENVS), ("environments", 2), ("batch", 2)],
)
def test_workers_change_nothing(name: str, num_workers: int) -> None:
    make = KINDS[name].make
    for autoreset in MODES:
        with (
            make(NUM_ENVS, autoreset=autoreset) as vec,
            make(NUM_ENVS, autoreset=autoreset, num_workers=num_workers) as spread,
        ):
            assert played(spread) == played(vec)
            for i, mask in enumerate(np.random.default_rng(1).random((9, NUM_ENVS)) < 0.4):
                seed = 7 if i % 2 else None
                obs = vec.reset_envs(mask, seed)
                assert plain(spread, spread.reset_envs(mask, seed)) == plain(vec, obs)
                if not vec.is_over.any() or autoreset != "disabled":
                    actions = legal(vec, obs)
                    assert plain(spread, spread.act(actions)) == plain(vec, vec.act(actions))
            if autoreset == "disabled":
                obs = spread.reset(5)
                while not spread.is_over.any():
                    obs = spread.act(legal(spread, obs))
                with pytest.raises(ProtocolError, match="have ended: call reset_envs"):
                    spread.act(legal(spread, obs))


@pytest.mark.slow
@each_kind({name: kind for name, kind in WORKERS.items() if name != "games-workers"})
def test_a_killed_worker_of_a_batch_is_replaced(make: Make) -> None:
    """Its episodes are truncated; environments of the other worker are not affected."""
    with make(NUM_ENVS, on_error="restart") as vec, make(NUM_ENVS, num_workers=0) as two:
        obs, other = vec.reset(5), two.reset(5)
        lost: list[Episode] = []
        for step in range(2 * LENGTH):
            if step == LENGTH - 1:
                os.kill(pid_of(1), signal.SIGKILL)
            obs, other = (one.act(by_row(one, x, step)) for one, x in ((vec, obs), (two, other)))
            lost += [each for each in obs.episodes if each.metrics.get("error") == 1]
            rows, expected = plain(vec, obs).rows, plain(two, other).rows
            kept = np.flatnonzero(obs.env_id == 0)
            assert [rows[i] for i in kept] == [expected[i] for i in kept]
        assert {episode.env_id for episode in lost} == {1, 2}
        assert all(episode.truncated for episode in lost)
        assert vec.statistics().num_restarts == 2
