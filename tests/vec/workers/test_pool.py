"""VecEnv with workers, without faults; faults are in `test_worker_faults`."""

import multiprocessing
import os
import pickle
import threading
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from entity_env import (
    Categorical,
    Environment,
    Game,
    Obs,
    ProtocolError,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from tests.contract.test_executors import played, spaces_of
from tests.helpers.executors import SteppedGame, Vectorized, plain_batch
from tests.helpers.tiny_games import Dot, Move, ask, chaos, count, dots_game
from tests.helpers.worker_games import (
    Lamp,
    crowd,
    ever_other_lamps,
    gated,
    refuse,
    without_pickles,
)
from tests.helpers.worker_helpers import pid_of, processor_s, stay


@pytest.mark.slow
def test_spawned_workers() -> None:
    with (
        VecEnv(chaos, 3, 2, start_method="spawn") as vec,
        VecEnv(chaos, 3) as reference,
    ):
        expected = played(Vectorized(reference), chaos, "same_step")
        assert played(Vectorized(vec), chaos, "same_step") == expected


class TestSource:
    def test_an_environment_class(self) -> None:
        with VecEnv(Lamp, 3, 2) as vec:
            assert vec.reset().features["Dot"].values.tolist() == [[3]] * 3
            for _ in range(3):
                batch = vec.act(stay(3))
            assert [(e.env_id, e.length, e.reward) for e in batch.episodes] == [
                (i, 3, 3.0) for i in range(3)
            ]

    def test_a_lambda(self) -> None:
        with VecEnv(lambda: SteppedGame(chaos, "greenlet"), 3, 2) as vec, VecEnv(chaos, 3) as game:
            expected = played(Vectorized(game), chaos, "same_step")
            assert played(Vectorized(vec), chaos, "same_step") == expected

    def test_a_closure(self) -> None:
        length = 2

        def play(agent: Agent, *, seed: int) -> None:
            for i in range(length):
                if ask(agent, x=i + length) is None:
                    return
            agent.game_over()

        with VecEnv(dots_game(play), 2, 2) as vec:
            assert vec.reset().features["Dot"].values.tolist() == [[2], [2]]

    def test_a_class_that_is_made_in_a_function(self) -> None:
        class Bright(Lamp):
            def __init__(self) -> None:
                super().__init__()

        with VecEnv(Bright, 2, 2) as vec:
            assert len(vec.reset()) == 2

    def test_what_cannot_be_pickled(self) -> None:
        lock = threading.Lock()

        def play(agent: Agent, *, seed: int) -> None:
            with lock:
                ask(agent)

        with pytest.raises(WorkerError, match=r"cannot be pickled.*lock.*num_workers=0"):
            VecEnv(dots_game(play), 2, 1)

    def test_environments_of_different_kinds(self) -> None:
        with pytest.raises(WorkerError, match="worker 1 has other spaces than worker 0"):
            VecEnv(ever_other_lamps, 2, 2)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"start_method": "fork"}, "start_method must be one of forkserver, spawn, got 'fork'"),
        ({"on_error": "ignore"}, "on_error must be one of raise, restart"),
    ],
)
def test_arguments_that_make_no_sense(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        VecEnv(count, **{"num_envs": 2, "num_workers": 1, **keywords})


class TestWhoeverIsReady:
    """Groups of environments proceed independently: 0 and 1 in one worker, 2 and 3 in another."""

    @pytest.fixture
    def gate(self, tmp_path: Path) -> str:
        """A named pipe on which env 0 waits after every second step."""
        os.mkfifo(tmp_path / "gate")
        return str(tmp_path / "gate")

    def vec(self, gate: str) -> VecEnv:
        return VecEnv(gated.with_settings(victim=EpisodeSeeds(0, 0)[0], gate=gate), 4, 2)

    def test_a_slow_environment_holds_up_only_its_own_group(self, gate: str) -> None:
        with self.vec(gate) as vec:
            vec.reset()
            vec.act(stay(4))
            vec.send(stay(4))
            for i in range(2, 30):
                batch = vec.recv(min_envs=1)
                assert batch.env_id.tolist() == [2, 3]
                assert batch.features["Dot"].values.tolist() == [[i], [i]]
                vec.send(stay(2))
            with open(gate, "w"):
                pass
            seen = {int(env_id) for env_id in vec.recv().env_id}
            assert seen == {0, 1, 2, 3}

    def test_no_environment_starves(self, gate: str) -> None:
        """A fast group does not take the turn of a slow group that is ready."""
        with self.vec(gate) as vec:
            vec.reset()
            vec.send(stay(4))
            turns = {0: 0, 2: 0}
            while turns[0] < 4:
                batch = vec.recv(min_envs=1)
                for first in set(batch.env_id.tolist()) & {0, 2}:
                    turns[first] += 1
                assert batch.features["Dot"].values.ravel().tolist() == [
                    turns[int(env_id) // 2 * 2] for env_id in batch.env_id
                ]
                vec.send(stay(len(batch)))
                if turns[0] % 2 == 1 and 0 in batch.env_id:
                    with open(gate, "w"):
                        pass
            vec.recv()

    def test_all_that_are_ready_come_together(self) -> None:
        with VecEnv(count, 4, 2) as vec:
            vec.reset()
            vec.send(stay(4))
            assert vec.recv(min_envs=3).env_id.tolist() == [0, 1, 2, 3]

    def test_batches_that_came_apart_are_answered_apart(self, gate: str) -> None:
        with self.vec(gate) as vec:
            vec.reset()
            vec.act(stay(4))
            vec.send(stay(4))
            fast = vec.recv(min_envs=1)
            assert fast.env_id.tolist() == [2, 3]
            with open(gate, "w"):
                pass
            slow = vec.recv()
            assert slow.env_id.tolist() == [0, 1]
            with pytest.raises(ProtocolError, match="continue with send and recv, or reset"):
                vec.act(stay(4))
            for wrong in ([0], [0, 1, 2, 3], [1, 2], [7], []):
                with pytest.raises(ProtocolError, match="the environments of one batch"):
                    vec.send(stay(2), np.array(wrong, dtype=np.int64))
            vec.send(stay(2), fast.env_id)
            with pytest.raises(ProtocolError, match="the environments of one batch"):
                vec.send(stay(2), fast.env_id)
            vec.send(stay(2), np.array([1, 0]))  # in any order
            batch = vec.recv()
            assert batch.env_id.tolist() == [0, 1, 2, 3]
            assert batch.features["Dot"].values.ravel().tolist() == [3, 3, 3, 3]

    def test_every_environment_plays_what_it_would_play_alone(self) -> None:
        """In any order of the groups."""
        game = chaos
        with VecEnv(game, 6, 3, seed=4, autoreset="next_step") as vec:
            expected = VecEnv(game, 6, seed=4, autoreset="next_step")
            spaces = spaces_of(game)
            rows: list[list[Any]] = [[] for _ in range(6)]
            wanted: list[list[Any]] = [[] for _ in range(6)]
            vec.send(first_choices(vec.reset(), game))
            for _ in range(60):
                batch = vec.recv(min_envs=2)
                for env_id, row in zip(batch.env_id, plain_batch(batch, spaces).rows, strict=True):
                    rows[env_id].append(row)
                vec.send(first_choices(batch, game))
            batch = expected.reset()
            for _ in range(60):
                batch = expected.act(first_choices(batch, game))
                for env_id, row in enumerate(plain_batch(batch, spaces).rows):
                    wanted[env_id].append(row)
            expected.close()
            for mine, theirs in zip(rows, wanted, strict=True):
                assert len(mine) >= 15
                assert mine == theirs[: len(mine)]


def first_choices(batch: Any, game: Game) -> dict[str, Any]:  # noqa: ANN401 - a VecObs
    """The first legal choice of each actor."""
    choices: dict[str, Any] = {}
    for name, space in game.action_space().items():
        mask = batch.action_masks[name]
        num_actors = len(mask.actors.values)
        if hasattr(space, "low"):
            choices[name] = np.tile(np.asarray(space.low, np.float32), (num_actors, 1))
        elif getattr(mask, "mask", None) is None:
            choices[name] = np.zeros(num_actors, np.int64)
        elif hasattr(mask, "actees"):
            widths = mask.actees.lengths[mask.actors.row_index]
            ends = np.cumsum(widths)
            flags = mask.mask.values
            choices[name] = np.array(
                [
                    flags[end - width : end].argmax()
                    for end, width in zip(ends, widths, strict=True)
                ],
                dtype=np.int64,
            )
        else:
            choices[name] = mask.mask.values.argmax(axis=1)
    return choices


class TestStatistics:
    def test_blocks_that_grow(self) -> None:
        with VecEnv(crowd, 2, 1) as vec:
            vec.reset()
            [before] = vec.statistics().workers
            vec.act(stay(2))
            [after] = vec.statistics().workers
            assert after.num_bytes >= before.num_bytes + 2 * 4 * 100_000


def test_a_hundred_thousand_entities_at_once() -> None:
    with VecEnv(crowd, 3, 2) as vec:
        vec.reset()
        for counts in ([100_000] * 3, [1] * 3):
            batch = vec.act(stay(3))
            assert batch.features["Dot"].lengths.tolist() == counts
            for row in batch.features["Dot"]:
                assert_array_equal(row[:, 0], np.arange(counts[0]))
        batch = vec.act(stay(3))
        assert batch.final is not None
        assert batch.final.features["Dot"].lengths.tolist() == [100_000] * 3
        assert (batch.final.features["Dot"].values == 1).all()


def test_blocks_of_actions_grow() -> None:
    """One action per entity, with more entities at every step."""
    each = Categorical(Move)

    def play(agent: Agent, *, seed: int) -> None:
        number = 1
        while True:
            moves = agent.act(Obs().actors([Dot(i) for i in range(number)]), each)
            if moves is None:
                return
            right = [Move(i % 3) for i in range(number)]
            if list(moves) != right:
                raise ValueError(f"{number} actors: {moves}")
            number *= 5

    game = Game(play, entities=(Dot,), actions=(each,))
    with VecEnv(game, 2, 2) as vec:
        vec.reset()
        for power in range(6):
            vec.act({"Move": np.tile(np.arange(5**power) % 3, 2)})


def test_nothing_is_pickled_by_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither here nor in the workers, where the game forbids pickling; blocks grow meanwhile."""
    with VecEnv(without_pickles, 4, 2) as vec:
        vec.reset()
        with monkeypatch.context() as patch:
            for owner in (pickle, multiprocessing.reduction.ForkingPickler):
                for name in ("dump", "dumps", "load", "loads"):
                    patch.setattr(owner, name, refuse, raising=False)
            episodes = 0
            for _ in range(12):
                episodes += len(vec.act(stay(4)).episodes)
            vec.send(stay(4))
            vec.recv(min_envs=1)
        assert episodes == 16
        with pytest.raises(WorkerError, match=r"died \(exit code 1\)"):
            vec.reset()  # not a step: proves that pickling in a worker is detected


def test_an_idle_vec_env_uses_no_processor_time() -> None:
    with VecEnv(count, 4, 2) as vec:
        vec.reset()
        vec.act(stay(4))
        pids = [pid_of(0), pid_of(1)]
        never = threading.Event()
        for _ in range(40):  # on a busy machine, workers take a while to go to sleep
            workers, ours = [processor_s(pid) for pid in pids], process_time()
            never.wait(0.5)
            if [processor_s(pid) for pid in pids] == workers and process_time() - ours < 0.02:
                break
        else:
            pytest.fail("the workers or this process compute while nothing is asked of them")
        vec.act(stay(4))


def test_a_vec_env_that_waits_uses_no_processor_time(tmp_path: Path) -> None:
    """In `recv`, while a game is slow."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    game = gated.with_settings(victim=EpisodeSeeds(0, 0)[0], gate=str(gate))
    with VecEnv(game, 2, 2) as vec:
        vec.reset()
        vec.act(stay(2))
        vec.send(stay(2))
        opener = threading.Timer(0.5, partial(Path.write_text, gate, ""))
        opener.start()
        ours = process_time()
        vec.recv()
        assert process_time() - ours < 0.1
        opener.join()


class TestViews:
    def test_stay_valid_until_the_next_step(self) -> None:
        with VecEnv(chaos, 6, 3, autoreset="next_step") as vec:
            spaces = spaces_of(chaos)
            batch = vec.reset()
            for _ in range(30):
                before = plain_batch(batch, spaces)
                vec.send(first_choices(batch, chaos))
                after = vec.recv()
                assert plain_batch(batch, spaces) == before  # through the view
                batch = after

    def test_one_worker_copies_nothing(self) -> None:
        with VecEnv(count, 2, 1) as vec:
            batch = vec.reset()
            assert not batch.features["Dot"].values.flags.owndata
            torch = pytest.importorskip("torch")
            tensor = torch.from_numpy(batch.features["Dot"].values)
            assert tensor.data_ptr() == batch.features["Dot"].values.ctypes.data


def test_another_thread_may_step_and_close() -> None:
    """Unlike games in this process: games in workers have their own thread there."""
    vec = VecEnv(count, 2, 2)
    vec.reset()
    rewards: list[list[float]] = []

    def step() -> None:
        rewards.append(vec.act(stay(2)).reward.tolist())
        vec.close()

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert rewards == [[1, 1]]


def test_two_at_once() -> None:
    with VecEnv(count, 2, 2) as one, VecEnv(Lamp, 2, 1) as other:
        assert issubclass(Lamp, Environment)
        one.reset()
        other.reset()
        one.send(stay(2))
        other.send(stay(2))
        assert other.recv().features["Dot"].values.tolist() == [[2], [2]]
        assert one.recv().features["Dot"].values.tolist() == [[1], [1]]
