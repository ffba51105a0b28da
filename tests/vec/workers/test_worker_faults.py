"""Faults of workers: every fault is named and leaves nothing behind.

`docs/reliability_tests.md` has figures about these faults.
"""

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np
import pytest

from entity_env import Environment, SchemaError, WorkerError
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.validation import num_cores
from entity_env.vec import VecEnv
from entity_env.vec.workers import shared_memory as shared_block
from tests import ROOT
from tests.helpers.children import dawdle
from tests.helpers.descriptors import files_to_spare, num_files
from tests.helpers.executors import Batch, plain_batch
from tests.helpers.leaks import processes_of_this_run
from tests.helpers.tiny_games import ask, count, dots_game
from tests.helpers.worker_games import (
    LENGTH,
    BrokenLamp,
    DeadLamp,
    DyingLamp,
    HangingLamp,
    Lamp,
    faulty,
    gated,
    tell,
)
from tests.helpers.worker_helpers import (
    is_running,
    pid_of,
    plain_reset,
    plain_step,
    script,
    stay,
)

SEED = EpisodeSeeds(0, 3)[1]
"""Seed of the failing episode: the second of environment 3, in worker 1 of 2."""
VICTIM = {"victim": SEED, "at": 2}
STEPS_BEFORE = LENGTH + 2 - 1
"""Number of successful steps before the fault."""


def steps(vec: VecEnv, number: int) -> list[Batch]:
    return [plain_step(vec) for _ in range(number)]


def reference(num_steps: int, num_envs: int = 4) -> list[Batch]:
    """Observations without a fault."""
    with VecEnv(faulty, num_envs) as vec:
        return [plain_reset(vec), *steps(vec, num_steps)]


def assert_untouched(batches: list[Batch], expected: list[Batch], env_ids: list[int]) -> None:
    """Checks that these environments were not affected."""
    for batch, wanted in zip(batches, expected, strict=True):
        for env_id in env_ids:
            assert batch.rows[env_id] == wanted.rows[env_id]
        for told in (batch, wanted):
            told.final = [one for one in told.final if one[0] in env_ids]
            told.episodes = [one for one in told.episodes if one.env_id in env_ids]
        assert batch.final == wanted.final
        assert batch.episodes == wanted.episodes


def assert_adds_up(batches: list[Batch]) -> None:
    """Checks that rewards and lengths of episodes are the sums of their steps."""
    reward = np.zeros(len(batches[0].rows))
    length = np.zeros(len(batches[0].rows), dtype=int)
    number = np.zeros(len(batches[0].rows), dtype=int)
    for i, batch in enumerate(batches):
        reward += [row.reward for row in batch.rows]
        length += i > 0
        for episode in batch.episodes:
            env_id = episode.env_id
            assert episode.reward == reward[env_id]
            assert episode.length == length[env_id]
            assert episode.number >= number[env_id]
            assert episode.seed == EpisodeSeeds(0, env_id)[episode.number]
            reward[env_id] = length[env_id] = 0
            number[env_id] = episode.number + 1
        ends = [(e.env_id, e.agent_id, e.terminated, e.truncated) for e in batch.episodes]
        final = [(env, agent, row.terminated, row.truncated) for env, agent, row in batch.final]
        assert sorted(final) == sorted(ends)
        for env_id, row in enumerate(batch.rows):
            mine = [end for end in ends if end[0] == env_id]
            assert row.terminated == any(end[2] for end in mine)
            assert row.truncated == any(end[3] for end in mine)


needs_own_mounts = pytest.mark.skipif(
    subprocess.run(
        ["sh", "-c", "unshare -m mount -t tmpfs tmpfs /dev/shm"], capture_output=True
    ).returncode
    != 0,
    reason="may not mount a /dev/shm of its own",
)
"""Root on Linux can usually do this."""


class TestAGameThatRaises:
    def test_is_named(self) -> None:
        game = faulty.with_settings(**VICTIM, fault="raise")
        with VecEnv(game, 4, 2) as vec:
            vec.reset()
            steps(vec, STEPS_BEFORE)
            with pytest.raises(WorkerError, match="the game raised OSError: the board") as caught:
                vec.act(stay(4))
            error = caught.value
            assert (error.env_id, error.worker, error.seed) == (3, 1, SEED)
            assert (error.episode, error.step) == (1, 2)
            assert f"(env 3, worker 1, seed {SEED}, episode 1, step 2)" in str(error)
            assert 'raise OSError("the board is 100 % on fire")' in error.game_traceback
            assert "in play_faulty" in error.game_traceback
            vec.reset()
            assert len(steps(vec, 3)) == 3

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_is_begun_anew(self, num_workers: int) -> None:
        game = faulty.with_settings(**VICTIM, fault="raise")
        with VecEnv(game, 4, num_workers, on_error="restart") as vec:
            batches = [plain_reset(vec), *steps(vec, 20)]
            assert vec.statistics().num_restarts == 1
        batch = batches[STEPS_BEFORE + 1]
        [episode] = batch.episodes
        assert (episode.env_id, episode.number, episode.length, episode.reward) == (3, 1, 2, 1.0)
        assert (episode.terminated, episode.truncated) == (False, True)
        assert episode.metrics == {"error": 1.0}
        [(env_id, _, last)] = batch.final
        assert (env_id, last.features) == (3, {"Dot": [[1.0]]})  # its last observation
        assert batch.rows[3].features == {"Dot": [[0.0]]}
        assert batch.rows[3].truncated
        assert_adds_up(batches)
        assert_untouched(batches, reference(20), [0, 1, 2])

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_at_the_start_of_an_episode(self, num_workers: int) -> None:
        game = faulty.with_settings(victim=SEED, at=0, fault="raise")
        with VecEnv(game, 4, num_workers, on_error="restart") as vec:
            batches = [plain_reset(vec), *steps(vec, 2 * LENGTH)]
            numbers = [e.number for b in batches for e in b.episodes if e.env_id == 3]
        assert numbers == [0, 2]  # the second has no observations
        assert_adds_up(batches)

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_at_reset(self, num_workers: int) -> None:
        game = faulty.with_settings(victim=EpisodeSeeds(0, 3)[0], at=0, fault="raise")
        with VecEnv(game, 4, num_workers, on_error="restart") as vec:
            batches = [plain_reset(vec), *steps(vec, 2 * LENGTH)]
            numbers = [e.number for b in batches for e in b.episodes if e.env_id == 3]
        assert numbers == [1, 2]

    def test_always(self) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            raise OSError("never works")

        with (
            VecEnv(dots_game(play), 2, 2, on_error="restart") as vec,
            pytest.raises(WorkerError, match="never works"),
        ):
            vec.reset()

    def test_an_environment(self) -> None:
        class Burning(Lamp):
            def act(self, actions: Any) -> Any:  # noqa: ANN401 - raises
                if self.left == 2:
                    raise OSError("too hot")
                return super().act(actions)

        with VecEnv(Burning, 3, 2, on_error="restart") as vec:
            vec.reset()
            vec.act(stay(3))
            batch = vec.act(stay(3))
            assert batch.truncated.tolist() == [True] * 3
            assert [(e.length, e.reward, dict(e.metrics)) for e in batch.episodes] == [
                (1, 1.0, {"error": 1.0})
            ] * 3
            assert batch.final is not None
            assert batch.final.features["Dot"].values.tolist() == [[2]] * 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("not a number", "env 3: entity Dot: feature 'x' of row 0 must be finite, got nan"),
        ("undeclared", "a Ghost, which was not declared"),
        ("score", "env 3: the score, or reward, must be finite: got nan"),
    ],
)
def test_a_bad_observation_is_named(fault: str, message: str) -> None:
    with VecEnv(faulty.with_settings(**VICTIM, fault=fault), 4, 2) as vec:
        vec.reset()
        steps(vec, STEPS_BEFORE)
        with pytest.raises(SchemaError, match=message) as caught:
            vec.act(stay(4))
        told = "\n".join([str(caught.value), *caught.value.__notes__])
        assert "env 3" in told
        assert "worker 1" in told
        vec.reset()
        steps(vec, 2)


DEATHS = {"killed": "signal 9", "os._exit": "exit code 3"}
each_death = pytest.mark.parametrize(("fault", "how"), DEATHS.items(), ids=DEATHS)


class TestAWorkerThatDies:
    @each_death
    def test_is_named(self, fault: str, how: str) -> None:
        with VecEnv(faulty.with_settings(**VICTIM, fault=fault), 4, 2) as vec:
            vec.reset()
            steps(vec, STEPS_BEFORE)
            begin = monotonic()
            with pytest.raises(WorkerError, match=how) as caught:
                vec.act(stay(4))
            assert monotonic() - begin < 10.0
            error = caught.value
            assert (error.env_id, error.worker, error.seed) == (3, 1, SEED)
            assert (error.episode, error.step) == (1, 2)
            assert "worker 1, which runs env 2 to 3, died" in str(error)
            assert "while it stepped env 3" in str(error)
            vec.reset()  # starts a new worker
            steps(vec, 2)

    @each_death
    def test_is_replaced(self, fault: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
        game = faulty.with_settings(**VICTIM, fault=fault)
        with VecEnv(game, 4, 2, on_error="restart") as vec:
            batches = [plain_reset(vec), *steps(vec, 20)]
            told = vec.statistics()
        assert told.num_restarts == 2  # counts environments
        assert [worker.num_steps for worker in told.workers] == [20, 20]
        assert how in caplog.text
        lost = batches[STEPS_BEFORE + 1].episodes
        assert [(e.env_id, e.number, e.length, e.truncated) for e in lost] == [
            (2, 1, 2, True),
            (3, 1, 2, True),
        ]
        assert all(episode.metrics == {"error": 1.0} for episode in lost)
        assert [row.features for _, _, row in batches[STEPS_BEFORE + 1].final] == [
            {"Dot": [[1.0]]}
        ] * 2
        assert_adds_up(batches)
        assert_untouched(batches, reference(20), [0, 1])

    @pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
    def test_is_replaced_in_other_modes(self, autoreset: Any) -> None:  # noqa: ANN401
        game = faulty.with_settings(victim=EpisodeSeeds(0, 3)[0], at=2, fault="killed")
        with VecEnv(game, 4, 2, on_error="restart", autoreset=autoreset) as vec:
            vec.reset()
            vec.act(stay(4))
            batch = vec.act(stay(4))
            assert batch.truncated.tolist() == [False, False, True, True]
            assert batch.final is not None
            assert batch.final.env_id.tolist() == [2, 3]
            assert batch.final.features["Dot"].values.tolist() == [[1], [1]]
            assert batch.features["Dot"].values.tolist() == [[2], [2], [0], [0]]
            batch = vec.act(stay(4))
            assert batch.features["Dot"].values.tolist() == [[3], [3], [1], [1]]

    def test_while_it_waits(self) -> None:
        with VecEnv(faulty, 4, 2) as vec:
            vec.reset()
            steps(vec, 3)
            os.kill(pid_of(1), signal.SIGKILL)
            begin = monotonic()
            with pytest.raises(WorkerError, match=r"env 2 to 3, died \(signal 9\)") as caught:
                vec.act(stay(4))
            assert monotonic() - begin < 10.0
            assert (caught.value.worker, caught.value.env_id) == (1, None)
            assert "while it stepped" not in str(caught.value)
            vec.reset()

    def test_before_a_reset(self) -> None:
        """Nothing is lost, so there is no warning: a new worker takes over."""
        with VecEnv(faulty, 4, 2, on_error="restart") as vec:
            vec.reset()
            vec.act(stay(4))
            os.kill(pid_of(1), signal.SIGKILL)
            batch = vec.reset()
            assert batch.episodes == []
            assert batch.final is None
            for _ in range(LENGTH):
                batch = vec.act(stay(4))
            assert [(e.env_id, e.length) for e in batch.episodes] == [(i, LENGTH) for i in range(4)]
            assert [e.number for e in batch.episodes[:2]] == [1, 1]

    def test_during_reset_envs(self) -> None:
        """Environments being reset lose nothing; the others of that worker lose their episodes."""
        with VecEnv(faulty, 4, 2, on_error="restart", autoreset="disabled") as vec:
            vec.reset()
            vec.act(stay(4))
            os.kill(pid_of(1), signal.SIGKILL)
            batch = vec.reset_envs([False, False, False, True])
            assert [(e.env_id, e.length) for e in batch.episodes] == [(2, 1)]
            assert batch.truncated.tolist() == [False, False, True, False]
            assert batch.final is not None
            assert batch.final.features["Dot"].values.tolist() == [[1]]
            assert batch.features["Dot"].values.tolist() == [[1], [1], [0], [0]]

    def test_all_of_them_at_once(self) -> None:
        with VecEnv(faulty, 4, 2, on_error="restart") as vec:
            batches = [plain_reset(vec), *steps(vec, 2)]
            for worker in range(2):
                os.kill(pid_of(worker), signal.SIGKILL)
            batches += steps(vec, 6)
            assert [e.env_id for e in batches[3].episodes] == [0, 1, 2, 3]
        assert_adds_up(batches)

    def test_while_groups_move_apart(self) -> None:
        """The last observation is found although the other group has continued."""
        with VecEnv(faulty, 4, 2, on_error="restart") as vec:
            vec.reset()
            vec.act(stay(4))
            os.kill(pid_of(1), signal.SIGSTOP)
            vec.send(stay(4))
            for i in range(2, 4):
                batch = vec.recv(min_envs=1)
                assert batch.env_id.tolist() == [0, 1]
                assert batch.features["Dot"].values.tolist() == [[i], [i]]
                vec.send(stay(2))
            os.kill(pid_of(1), signal.SIGKILL)
            batch = vec.recv()
            assert batch.final is not None
            last = dict(
                zip(
                    batch.final.env_id.tolist(),
                    batch.final.features["Dot"].values.ravel().tolist(),
                    strict=True,
                )
            )
            assert last == {0: 4, 1: 4, 2: 1, 3: 1}

    def test_when_it_has_gone_ahead(self) -> None:
        """The other group's pending batch also contains it, but in its earlier state."""
        with VecEnv(faulty, 4, 2, on_error="restart") as vec:
            vec.reset()
            vec.act(stay(4))
            os.kill(pid_of(1), signal.SIGSTOP)
            vec.send(stay(4))
            for i in range(2, 4):
                batch = vec.recv(min_envs=1)
                assert batch.env_id.tolist() == [0, 1]
                assert batch.features["Dot"].values.tolist() == [[i], [i]]
                if i == 3:
                    os.kill(pid_of(0), signal.SIGKILL)
                vec.send(stay(2))
            os.kill(pid_of(1), signal.SIGCONT)
            batch = vec.recv()
            assert batch.env_id.tolist() == [0, 1, 2, 3]
            assert batch.final is not None
            assert batch.final.env_id.tolist() == [0, 1]
            assert batch.final.features["Dot"].values.tolist() == [[3], [3]]
            assert [(e.env_id, e.length) for e in batch.episodes] == [(0, 4), (1, 4)]

    @pytest.mark.slow
    def test_at_any_moment(self) -> None:
        kill_again_and_again(5)

    @pytest.mark.slow
    def test_at_any_moment_a_hundred_times_in_a_row(self) -> None:
        kill_again_and_again(100)

    @pytest.mark.slow
    def test_that_was_spawned(self) -> None:
        game = faulty.with_settings(**VICTIM, fault="killed")
        with VecEnv(game, 4, 2, on_error="restart", start_method="spawn") as vec:
            batches = [plain_reset(vec), *steps(vec, 12)]
        assert [e.env_id for e in batches[STEPS_BEFORE + 1].episodes] == [2, 3]
        assert_adds_up(batches)

    def test_when_it_always_does(self) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent)
            os._exit(9)

        with VecEnv(dots_game(play), 2, 1, on_error="restart") as vec:
            vec.reset()
            for _ in range(3):
                batch = vec.act(stay(2))
                assert [e.truncated for e in batch.episodes] == [True, True]

    def test_when_it_always_does_at_once(self) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            os._exit(9)

        with (
            VecEnv(dots_game(play), 2, 1, on_error="restart") as vec,
            pytest.raises(WorkerError, match="exit code 9"),
        ):
            vec.reset()

    def test_while_it_draws(self) -> None:
        with VecEnv(DyingLamp, 4, 2) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="exit code 5"):
                vec.render(3)
            with pytest.raises(WorkerError, match="exit code 5"):
                vec.act(stay(4))
            vec.reset()
            vec.act(stay(4))


def kill_again_and_again(num_kills: int) -> None:
    """Kills workers at random moments between wake-up and the end of a step; nothing is lost."""
    random = Random(5)
    with VecEnv(faulty, 6, 2, on_error="restart") as vec:
        spaces = vec.obs_space(), vec.action_space()
        batches = [plain_reset(vec)]
        num_lost = 0
        for _ in range(num_kills):
            batches += steps(vec, random.randrange(3))
            victim = pid_of(random.randrange(2))
            vec.send(stay(6))
            dawdle(random, 3_000)
            os.kill(victim, signal.SIGKILL)
            batches.append(plain_batch(vec.recv(), spaces))
            batches += steps(vec, 1)  # it may have died after its answer
        for batch in batches:
            num_lost += sum(dict(episode.metrics) == {"error": 1.0} for episode in batch.episodes)
        assert num_lost == 3 * num_kills == vec.statistics().num_restarts
    assert_adds_up(batches)


class TestAGameThatHangs:
    @pytest.mark.parametrize(
        ("fault", "place"), [("waits", "stare_at_the_wall"), ("loops", "run_in_circles")]
    )
    def test_is_named_with_the_place_where_it_hangs(self, fault: str, place: str) -> None:
        with VecEnv(faulty.with_settings(**VICTIM, fault=fault), 4, 2, step_timeout_s=0.3) as vec:
            vec.reset()
            steps(vec, STEPS_BEFORE)
            begin = monotonic()
            with pytest.raises(WorkerError, match=r"hangs: no answer for 0\.3 s") as caught:
                vec.act(stay(4))
            assert 0.3 <= monotonic() - begin < 10.0
            error = caught.value
            assert (error.env_id, error.worker, error.seed) == (3, 1, SEED)
            assert (error.episode, error.step) == (1, 2)
            assert place in error.game_traceback
            assert "play_faulty" in error.game_traceback
            vec.reset()
            steps(vec, 2)

    def test_is_replaced(self) -> None:
        game = faulty.with_settings(**VICTIM, fault="waits")
        with VecEnv(game, 4, 2, on_error="restart", step_timeout_s=0.3) as vec:
            batches = [plain_reset(vec), *steps(vec, 12)]
        assert [e.env_id for e in batches[STEPS_BEFORE + 1].episodes] == [2, 3]
        assert_adds_up(batches)
        assert_untouched(batches, reference(12), [0, 1])

    @pytest.mark.slow
    def test_so_that_it_cannot_even_say_where(self) -> None:
        """The process has been stopped."""
        game = faulty.with_settings(**VICTIM, fault="stopped")
        with VecEnv(game, 4, 2, step_timeout_s=0.3) as vec:
            vec.reset()
            steps(vec, STEPS_BEFORE)
            with pytest.raises(WorkerError, match="while it stepped env 3"):
                vec.act(stay(4))

    def test_while_it_draws(self) -> None:
        with VecEnv(HangingLamp, 2, 1, step_timeout_s=0.3) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="hangs") as caught:
                vec.render(1)
            assert "in render" in caught.value.game_traceback

    def test_that_merely_takes_long_is_left_alone_without_a_limit(self) -> None:
        with VecEnv(count, 2, 1, step_timeout_s=30.0) as vec:
            vec.reset()
            vec.act(stay(2))

    def test_is_closed_all_the_same(self) -> None:
        """It gives the other workers time to exit, but does not wait forever."""
        vec = VecEnv(faulty.with_settings(**VICTIM, fault="loops"), 4, 2, step_timeout_s=0.2)
        vec.reset()
        steps(vec, STEPS_BEFORE)
        vec.send(stay(4))
        vec.close()


def test_an_interrupted_step_can_be_followed_by_a_reset(tmp_path: Path) -> None:
    """As after Ctrl-C in a notebook: the pending step is awaited and dropped."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def interrupt() -> None:
        with open(gate, "w"):  # opens when the game reaches it
            os.kill(os.getpid(), signal.SIGINT)
            is_interrupted.wait(20.0)

    is_interrupted = threading.Event()
    game = gated.with_settings(victim=EpisodeSeeds(0, 0)[0], gate=str(gate))
    with VecEnv(game, 4, 2) as vec:
        vec.reset()
        vec.act(stay(4))
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            vec.act(stay(4))
        is_interrupted.set()
        thread.join()
        batch = vec.reset()
        assert batch.features["Dot"].values.tolist() == [[0]] * 4
        for i in range(1, 5):
            assert vec.act(stay(4)).features["Dot"].values.tolist() == [[i]] * 4


class TestStart:
    def test_environments_that_cannot_be_made(self) -> None:
        before = num_files()
        with pytest.raises(WorkerError, match="OSError: no such bulb") as caught:
            VecEnv(BrokenLamp, 4, 2)
        assert caught.value.worker == 0
        assert "in __init__" in caught.value.game_traceback
        caught.value.__traceback__ = None
        del caught
        assert num_files() <= before

    def test_a_failure_that_comes_too_late_is_not_printed(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """The other workers also fail, after the first failure has closed their sockets."""
        for _ in range(3):
            with pytest.raises(WorkerError, match="no such bulb"):
                VecEnv(BrokenLamp, 8, 8)
        assert capfd.readouterr().err == ""

    def test_one_of_many_that_cannot_be_made(self) -> None:
        def make() -> Environment:
            made.append(1)
            if len(made) == 3:
                raise OSError("out of bulbs")
            return Lamp()

        made: list[int] = []
        begin = monotonic()
        with pytest.raises(WorkerError, match="out of bulbs"):
            VecEnv(make, 5, 2)
        assert monotonic() - begin < 4.0  # does not wait for the other worker in vain

    def test_environments_that_die_when_they_are_made(self) -> None:
        with pytest.raises(WorkerError, match=r"worker 0 died while it made .*exit code 7"):
            VecEnv(DeadLamp, 4, 2)

    def test_too_many_open_files(self) -> None:
        VecEnv(count, 2, 2).close()
        before, number = num_files(), 0
        while (error := self.error_with_files(number)) is not None:
            assert "ulimit -n" in error
            assert num_files() == before
            number += 4
        assert 4 <= number < 60

    def error_with_files(self, number: int) -> str | None:
        """The error of a VecEnv that can open this many files."""
        try:
            with files_to_spare(number), VecEnv(count, 2, 2) as vec:
                vec.reset()
        except WorkerError as error:
            return str(error)
        return None

    def test_shared_memory_that_is_too_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = num_files()
        for number in range(2):
            blocks = iter(range(10))
            original = shared_block._new_handle

            def new_handle(num_bytes: int) -> Any:  # noqa: ANN401 - a descriptor
                if next(blocks) == number:  # noqa: B023 - called in this iteration
                    raise OSError(28, os.strerror(28))
                return original(num_bytes)  # noqa: B023

            with monkeypatch.context() as patch:
                patch.setattr(shared_block, "_new_handle", new_handle)
                with pytest.raises(WorkerError, match=r"shared memory: No space left.*shm") as e:
                    VecEnv(count, 2, 2)
                e.value.__traceback__ = None
                del e
            assert num_files() == before

    @pytest.mark.slow
    @needs_own_mounts
    @pytest.mark.parametrize("num_kib", [16, 120])
    def test_a_really_small_dev_shm(self, tmp_path: Path, num_kib: int) -> None:
        """On systems without anonymous memory files: in the parent and in a worker."""
        (tmp_path / "sitecustomize.py").write_text("import os; del os.memfd_create\n")
        (tmp_path / "main.py").write_text(
            "import os\n"
            "from entity_env.games import snake\n"
            "from entity_env.vec import VecEnv\n"
            "try:\n"
            "    VecEnv(snake, 64, 2)\n"
            "except Exception as error:\n"
            "    print(type(error).__name__, error)\n"
            "print('left:', os.listdir('/dev/shm'))\n"
        )
        mount = f"mount -t tmpfs -o size={num_kib}k tmpfs /dev/shm"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f"{mount} && exec '{sys.executable}' main.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=50,
        )
        told = r"WorkerError cannot get 0\.[01] MiB of shared memory: No space"
        assert re.match(told, done.stdout)
        assert done.stdout.endswith("left: []\n")
        assert not done.stderr

    def test_a_worker_that_lacks_memory(self) -> None:
        class Greedy(Lamp):
            """Prevents its worker from getting shared memory."""

            def __init__(self) -> None:
                super().__init__()

                def new_handle(num_bytes: int) -> int:
                    raise OSError(28, os.strerror(28))

                from entity_env.vec.workers import shared_memory as shared_block

                shared_block._new_handle = new_handle

        with pytest.raises(WorkerError, match="shared memory: No space left"):
            VecEnv(Greedy, 4, 2)


class TestEnd:
    """`told` is a file to which every game appends a line when it ends."""

    @pytest.fixture
    def told(self, tmp_path: Path) -> Path:
        path = tmp_path / "told"
        path.touch()
        return path

    @pytest.fixture
    def vec(self, told: Path) -> Iterator[VecEnv]:
        vec = VecEnv(faulty.with_settings(told=str(told)), 6, 2)
        vec.reset()
        vec.act(stay(6))
        yield vec
        vec.close()

    def assert_ended(self, told: Path) -> None:
        seeds = sorted(int(line) for line in told.read_text().splitlines())
        assert seeds == sorted(EpisodeSeeds(0, i)[0] for i in range(6))

    def test_close_twice(self, told: Path, vec: VecEnv) -> None:
        vec.close()
        self.assert_ended(told)
        vec.close()
        self.assert_ended(told)

    def test_close_while_a_step_is_under_way(self, told: Path, vec: VecEnv) -> None:
        vec.send(stay(6))
        vec.close()
        self.assert_ended(told)

    def test_close_while_a_block_is_handed_over(self) -> None:
        from tests.helpers.worker_games import crowd

        vec = VecEnv(crowd, 2, 2)
        vec.reset()
        vec.send(stay(2))
        vec.close()

    def test_close_after_a_worker_has_died(self, vec: VecEnv) -> None:
        os.kill(pid_of(1), signal.SIGKILL)
        vec.close()

    def test_close_after_an_error(self, told: Path) -> None:
        vec = VecEnv(faulty.with_settings(**VICTIM, fault="raise", told=str(told)), 4, 2)
        vec.reset()
        steps(vec, STEPS_BEFORE)
        with pytest.raises(WorkerError):
            vec.act(stay(4))
        vec.close()
        assert len(told.read_text().splitlines()) == 8

    def test_an_exception_of_the_caller(self, told: Path) -> None:
        game = faulty.with_settings(told=str(told))
        with pytest.raises(ZeroDivisionError):
            self.fail_within(VecEnv(game, 6, 2), VecEnv.act)
        self.assert_ended(told)

    def test_an_exception_between_send_and_recv(self, told: Path) -> None:
        game = faulty.with_settings(told=str(told))
        with pytest.raises(ZeroDivisionError):
            self.fail_within(VecEnv(game, 6, 2), VecEnv.send)
        self.assert_ended(told)

    def fail_within(self, vec: VecEnv, call: Callable[[VecEnv, Any], object]) -> None:
        with vec:
            vec.reset()
            call(vec, stay(6))
            raise ZeroDivisionError

    def test_no_close_at_all(self, told: Path) -> None:
        vec = VecEnv(faulty.with_settings(told=str(told)), 6, 2)
        vec.reset()
        del vec
        gc.collect()
        self.assert_ended(told)

    def test_games_that_fail_on_the_way_out(self, told: Path) -> None:
        path = str(told)

        def play(agent: Agent, *, seed: int) -> None:
            try:
                ask(agent)
            finally:
                tell(path, seed)
                raise OSError("the door is stuck")

        vec = VecEnv(dots_game(play), 6, 2)
        vec.reset()
        with pytest.raises(WorkerError, match="the door is stuck") as caught:
            vec.close()
        assert caught.value.worker == 0
        self.assert_ended(told)
        vec.close()


SCRIPT = """
    import os, signal, sys
    import numpy as np
    from entity_env.core.seeding import EpisodeSeeds
    from entity_env.vec import VecEnv
    from tests.helpers.worker_games import faulty

    fault = sys.stdin.readline().strip()
    victim = EpisodeSeeds(0, 3)[0] if fault else -1
    game = faulty.with_settings(victim=victim, at=2, fault=fault, told=os.path.abspath("told"))
    moves = {"Move": np.ones(4, np.int64)}
    vec = VecEnv(game, 4, 2)
    vec.reset()
    vec.act(moves)
    """


@contextmanager
def running(tmp_path: Path, rest: str, fault: str = "") -> Iterator[Any]:
    """A script with four games that have asked twice; reports when it is ready."""
    with script(tmp_path, SCRIPT + rest) as process:
        assert process.stdin is not None
        process.stdin.write(f"{fault}\n")
        process.stdin.flush()
        yield process


def num_told(tmp_path: Path) -> int:
    told = tmp_path / "told"
    return len(told.read_text().splitlines()) if told.exists() else 0


READY = """
    print("ready", flush=True)
    """
STEPS = """
    while True:
        vec.act(moves)
    """


class TestTheParent:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("rest", "fault"),
        [
            pytest.param(READY + "signal.pause()", "", id="while it is idle"),
            pytest.param(READY + STEPS, "", id="while it steps"),
            pytest.param("vec.send(moves)" + READY + "vec.recv()", "waits", id="a game waits"),
            pytest.param("vec.send(moves)" + READY + "vec.recv()", "loops", id="a game loops"),
        ],
    )
    def test_is_killed(self, tmp_path: Path, rest: str, fault: str) -> None:
        """No process is left two seconds later; every test checks for leaked memory."""
        with running(tmp_path, rest, fault) as process:
            assert process.stdout.readline() == "ready\n"
            ours = processes_of_this_run() - {os.getpid()}
            assert len(ours) >= 3
            process.kill()
            process.wait()
            deadline = monotonic() + 2.0
            while any(map(is_running, ours)) and monotonic() < deadline:
                dawdle(Random(0), 1000)
            assert not any(map(is_running, ours))
            assert process.stderr.read() == ""
        # One second is too short with twice as many busy processes as cores.
        if not fault and os.getloadavg()[0] < 1.75 * num_cores():
            assert num_told(tmp_path) >= 4

    @pytest.mark.slow
    def test_is_interrupted(self, tmp_path: Path) -> None:
        """Ctrl-C, which reaches all processes of the group: the only traceback is the caller's."""
        with running(tmp_path, READY + STEPS) as process:
            assert process.stdout.readline() == "ready\n"
            os.killpg(process.pid, signal.SIGINT)
            begin = monotonic()
            assert process.wait(10.0) == -signal.SIGINT
            assert monotonic() - begin < 10.0
            errors = process.stderr.read()
            assert errors.count("Traceback") == 1
            assert errors.strip().endswith("KeyboardInterrupt")
        assert num_told(tmp_path) % 4 == 0
        assert num_told(tmp_path) >= 4

    @pytest.mark.slow
    @pytest.mark.parametrize("rest", ["", "raise SystemExit(3)", "vec.send(moves)"])
    def test_ends_without_close(self, tmp_path: Path, rest: str) -> None:
        with running(tmp_path, rest) as process:
            assert process.wait(20.0) == (3 if "3" in rest else 0)
            assert process.stderr.read() == ""
        assert num_told(tmp_path) == 4

    @pytest.mark.slow
    def test_fails_without_close(self, tmp_path: Path) -> None:
        with running(tmp_path, "1 / 0") as process:
            assert process.wait(20.0) == 1
            errors = process.stderr.read()
            assert errors.count("Traceback") == 1
            assert errors.strip().endswith("ZeroDivisionError: division by zero")
        assert num_told(tmp_path) == 4


MAIN = """
    import sys
    from dataclasses import dataclass
    from enum import Enum
    import numpy as np
    from entity_env import Game, Obs
    from entity_env.vec import VecEnv

    class Move(Enum):
        LEFT = 0
        STAY = 1

    @dataclass(slots=True)
    class Thing:
        x: float

    LENGTH = 3

    def length():
        return LENGTH

    def play(agent, *, seed):
        for i in range(length()):
            move = agent.act(Obs(i).entities([Thing(i)]), Move)
            if move is None:
                return
            assert move is Move.STAY
        agent.game_over(Obs(length()))

    game = Game(play, entities=(Thing,), actions=(Move,))
    with VecEnv(game, 4, 2, start_method=sys.stdin.readline().strip()) as vec:
        vec.reset()
        for _ in range(3):
            batch = vec.act({"Move": np.ones(4, np.int64)})
    print([episode.reward for episode in batch.episodes], flush=True)
    """


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_game_of_a_script_without_a_guard(tmp_path: Path, start_method: str) -> None:
    """All code is in `__main__`, which is not run again in the workers."""
    with script(tmp_path, MAIN) as process:
        out, errors = process.communicate(f"{start_method}\n", timeout=30.0)
    assert errors == ""
    assert out == "[3.0, 3.0, 3.0, 3.0]\n"


@pytest.mark.slow
def test_a_module_that_starts_workers_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(textwrap.dedent(MAIN))
    main = "import sys; sys.path.insert(0, '.'); import mine"
    with script(tmp_path, main) as process:
        _, errors = process.communicate("forkserver\n", timeout=30.0)
    assert "UsageError: a worker process cannot have workers itself: a module that" in errors


def test_every_fault_is_a_function_of_one_agent() -> None:
    """Guards against misspelled faults above, which would raise a KeyError instead."""
    from tests.helpers.worker_games import FAULTS

    faults: dict[str, Callable[[Agent], None]] = FAULTS
    assert {"raise", *DEATHS, "waits", "loops", "stopped", "sys.exit"} <= set(faults)
