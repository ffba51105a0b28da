"""Ranks learn the same as one process, stop together, and name missing ranks."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.learner import ReturnStatistics, new_learner
from entity_env.agents.ppo.ppo import collect, learn
from entity_env.agents.ppo.rollout import Collector
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.folder import read_header
from entity_env.agents.rogue_net.config import RelposEncodingConfig
from entity_env.agents.rogue_net.torch_net.mlp import MLPPolicy
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.rogue_net.torch_net.tensors import torch_only
from entity_env.agents.training.peers import ALONE, Peers, Ranks, _is_running
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.agents.training.run_folder import LOCK
from entity_env.cli.load_game import load_game
from entity_env.core.vec_obs import EntityBatch, VecEnvironment
from entity_env.games.classic import CartPole
from entity_env.vec import BatchVecEnv
from entity_env.vec.game_training import make_training_env
from tests import ROOT
from tests.agents.ppo.small_envs import VecCherryPick, VecSigns, VecXor

T = TypeVar("T")

_PATIENCE_S = 100
"""Time limit of a rank on a busy machine; reached only if something is broken."""

CONFIG = PPOConfig(
    net=RogueNetConfig(d_model=16, n_layer=1), num_steps=2, minibatch_size=10**6, update_epochs=2
)


class ThreadPeers(Ranks):
    """Ranks in threads of this process."""

    def __init__(self, rank: int, shared: list[Tensor | None], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(shared)
        self._shared, self._barrier = shared, barrier

    def sum(self, values: Tensor) -> Tensor:
        """Sums in rank order."""
        return torch.stack(self.gather(values)).sum(0)

    def gather(self, values: Tensor) -> list[Tensor]:
        """Gathers copies."""
        self._shared[self.rank] = values.clone()
        self._barrier.wait(_PATIENCE_S)
        gathered = [each.clone() for each in self._shared if each is not None]
        self._barrier.wait(_PATIENCE_S)
        return gathered


def on_ranks(size: int, work: Callable[[Peers], T]) -> list[T]:
    """The results of all ranks."""
    shared: list[Tensor | None] = [None] * size
    barrier = threading.Barrier(size)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadPeers(rank, shared, barrier))
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(size)]


def rollout_of(make_env: Callable[[], VecEnvironment], seed: int) -> tuple[Policy, Rollout]:
    vec = make_env()
    learner = new_learner(vec, replace(CONFIG, seed=seed))
    obs = vec.reset(seed=seed)
    learner.net.update_statistics(obs)
    collector = Collector(vec, learner.net, learner.generator, obs, CONFIG.at(0))
    return learner.net, collect(collector, CONFIG.num_steps, lambda _: None)


def learnt(
    net: Policy, rollout: Rollout, config: PPOConfig, peers: Peers = ALONE
) -> tuple[Policy, list[float]]:
    """A copy of the network after learning, and the figures."""
    net = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-5)
    rng = np.random.default_rng(peers.rank)
    losses = learn(net, optimizer, rollout, replace(config.at(0), ent_coef=0.01), rng, 1.0, peers)
    return net, list(astuple(losses))


def distance(a: Policy, b: Policy) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    kind=st.sampled_from([VecXor, VecCherryPick, VecSigns]),
    weights=st.lists(st.integers(0, 4), min_size=2, max_size=3).filter(any),
    microbatch=st.sampled_from([None, 7]),
    norm_adv=st.booleans(),
    seed=st.integers(0, 100),
)
def test_ranks_learn_what_one_process_learns_from_all(
    kind: type[VecXor], weights: list[int], microbatch: int | None, norm_adv: bool, seed: int
) -> None:
    """Shares of any size, including empty ones."""
    net, rollout = rollout_of(kind, seed)
    config = replace(CONFIG, microbatch_size=microbatch, norm_adv=norm_adv)
    owner = np.random.default_rng(seed).choice(
        len(weights), len(rollout.b_inds), p=np.array(weights) / sum(weights)
    )
    alone, figures = learnt(net, rollout, replace(config, microbatch_size=None))

    def work(peers: Peers) -> tuple[Policy, list[float]]:
        share = replace(rollout, b_inds=rollout.b_inds[owner == peers.rank])
        return learnt(net, share, config, peers)

    ranks = on_ranks(len(weights), work)
    assert distance(net, alone) > 1e-4
    for other, theirs in ranks:
        assert distance(alone, other) < 2e-5
        assert distance(ranks[0][0], other) == 0
        assert theirs == ranks[0][1]
        np.testing.assert_allclose(theirs, figures, rtol=1e-3, atol=1e-4)


@contextmanager
def in_float64(net: Policy) -> Iterator[None]:
    """Computes in float64 with float32 arrays."""
    from_numpy = torch.from_numpy

    def widened(array: NDArray[np.generic]) -> Tensor:
        tensor = from_numpy(array)
        return tensor.double() if tensor.is_floating_point() else tensor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "from_numpy", widened)
        net.double()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(1, 4), (2, 3)], ids=str)
@pytest.mark.parametrize("game", ["snake", "multi_snake", "azul"])
def test_unequal_shares_learn_what_one_process_learns(game: str, weights: tuple[int, int]) -> None:
    """In float32, the gradients of one step are equal; in float64, the weights after many are.

    Rounding can move a ratio or a value across the edge of its clip range and change the gradient:
    after several steps in float32, weights differ by up to 1e-3.
    """
    net, rollout = rollout_of(lambda: make_training_env(load_game(game), 10), 1)
    owner = np.arange(len(rollout.b_inds)) % sum(weights) >= weights[0]

    def difference(config: PPOConfig, values_of: Callable[[Policy], Iterable[Tensor]]) -> float:
        """Differences between each of two ranks and one process."""

        def work(peers: Peers) -> Policy:
            share = replace(rollout, b_inds=rollout.b_inds[owner == peers.rank])
            with torch_only():
                return learnt(net, share, config, peers)[0]

        with torch_only():
            alone = [*values_of(learnt(net, rollout, config)[0])]
        pairs = [zip(alone, values_of(rank), strict=True) for rank in on_ranks(2, work)]
        return max(float((x - y).detach().abs().max()) for pair in pairs for x, y in pair)

    one_step = replace(CONFIG, update_epochs=1)
    assert (
        difference(one_step, lambda net: (p.grad for p in net.parameters() if p.grad is not None))
        < 1e-6
    )
    with in_float64(net):
        assert difference(replace(CONFIG, update_epochs=4), Policy.parameters) < 1e-12


def test_the_number_of_minibatches_is_that_of_all_decisions() -> None:
    """An uneven share makes as many steps as the others; a divergence stops all ranks."""
    net, rollout = rollout_of(VecXor, 1)
    few = rollout.b_inds[:3]

    def work(peers: Peers) -> Policy:
        share = replace(rollout, b_inds=few if peers.rank else rollout.b_inds[3:])
        config = replace(CONFIG, minibatch_size=16, update_epochs=4, target_kl=1e-4)
        return learnt(net, share, config, peers)[0]

    first, second = on_ranks(2, work)
    assert distance(first, second) == 0
    assert distance(first, net) > 0


def counted_on_ranks(
    net: Policy, first: EntityBatch, second: EntityBatch, *, restart: bool
) -> list[Policy]:
    """The networks of two ranks, after rank 0 has shown the first batch and rank 1 the second."""
    nothing = first.map_arrays(itemgetter(np.zeros(0, np.int64)))
    parts = {0: (first, nothing), 1: (nothing, second)}

    def work(peers: Peers) -> Policy:
        own = copy.deepcopy(net)
        peers.update_statistics(own, parts[peers.rank][0], restart=restart)
        peers.update_statistics(own, parts[peers.rank][1], restart=False)
        return own

    return on_ranks(2, work)


class Counting(RogueNet):
    """Has a custom buffer, which cannot be merged."""

    seen: Tensor

    def update_statistics(self, batch: EntityBatch, *, restart: bool = False) -> None:
        super().update_statistics(batch, restart=restart)
        self.seen += len(next(iter(batch.features.values())))


RELPOS = RelposEncodingConfig(extent=[2], position_features=["x"], per_entity_values=True)


@pytest.mark.parametrize("relpos", [None, RELPOS], ids=["features", "relative positions"])
def test_statistics_are_those_of_all_observations(relpos: RelposEncodingConfig | None) -> None:
    vec = VecSigns()
    config = RogueNetConfig(d_model=16, n_layer=1, relpos_encoding=relpos)
    net = Counting(vec.obs_space(), vec.action_space(), config)
    net.register_buffer("seen", torch.zeros(()))
    first, second = vec.reset(seed=1).copy(), vec.reset(seed=2).copy()
    together = copy.deepcopy(net)
    for batch in (first, second):
        together.update_statistics(batch)
    together.seen -= VecSigns().num_rows  # rows that rank 0 did not see
    for own in counted_on_ranks(net, first, second, restart=True):
        for name, value in together.state_dict().items():
            torch.testing.assert_close(own.state_dict()[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("restart", [False, True])
def test_statistics_of_an_mlp_are_those_of_all_observations(restart: bool) -> None:
    with BatchVecEnv(CartPole(5)) as vec:
        net = MLPPolicy(vec.obs_space(), vec.action_space())
        earlier, first, second = (vec.reset(seed=seed).copy() for seed in range(3))
    net.update_statistics(earlier)
    together = copy.deepcopy(net)
    together.update_statistics(first, restart=restart)
    together.update_statistics(second)
    for own in counted_on_ranks(net, first, second, restart=restart):
        for name, value in together.state_dict().items():
            torch.testing.assert_close(own.state_dict()[name], value, rtol=1e-5, atol=1e-5)


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=9), min_size=1, max_size=3))
@settings(deadline=None, max_examples=20)
def test_means_and_statistics_of_returns_are_those_of_all(ranks: list[list[float]]) -> None:
    arrays: list[NDArray[np.float32]] = [np.array(each, np.float32) for each in ranks]
    every = np.concatenate(arrays).astype(np.float64)

    def work(peers: Peers) -> tuple[float, ...]:
        [(total, mean, squares)] = peers.moments([arrays[peers.rank]])
        statistics = ReturnStatistics()
        statistics.update(arrays[peers.rank], peers)
        assert (total, statistics.count) == (len(every), int(len(every) > 0))
        return mean, squares, statistics.mean, statistics.square

    results = on_ranks(len(ranks), work)
    assert len(set(results)) == 1
    if len(every):
        expected = (every.mean(), every.var() * len(every), every.mean(), np.square(every).mean())
        np.testing.assert_allclose(results[0], expected, rtol=1e-9, atol=1e-6)


def test_reports_may_differ_in_length() -> None:
    def work(peers: Peers) -> list[dict[str, object]]:
        return peers.gather_reports({"rank": peers.rank, "text": "é" * 999 * peers.rank})

    for reports in on_ranks(3, work):
        assert reports == [{"rank": i, "text": "é" * 999 * i} for i in range(3)]


def test_the_first_network_is_that_of_all() -> None:
    nets = [new_learner(VecXor(), replace(CONFIG, seed=seed)).net for seed in (1, 2)]
    expected = copy.deepcopy(nets[0])
    on_ranks(2, lambda peers: peers.copy_from_first(nets[peers.rank]))
    assert distance(nets[0], expected) == distance(nets[1], expected) == 0


# Two processes connected by gloo.

_RANK = """
import gc, json, os, sys, time
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
import torch, torch.distributed as dist
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from tests.agents.ppo.small_envs import VecXor, VecSigns
gc.freeze()  # training does so once a run, after half a second of collection
rank, out = int(os.environ["RANK"]), Path(sys.argv[1])
dist.init_process_group("gloo", timeout=timedelta(hours=1))
config = PPOConfig(total_steps=512, net=RogueNetConfig(d_model=16, n_layer=1), num_steps=2,
                   minibatch_size=64, peer_timeout_s=3600)
errors = []  # kept, as by a program that ends with one

def tell(name, work):
    try:
        told = work()
    except BaseException as error:
        told = [type(error).__name__, str(error)]
        errors.append(error)
    print(json.dumps([name, told]), flush=True)

def facts(result):
    net = torch.cat([each.reshape(-1).double() for each in result.net.state_dict().values()])
    progress = result.progress
    return [net.sum().item(), net.abs().sum().item(), progress.step, progress.update,
            progress.mean_reward, progress.num_episodes, result.is_interrupted]
"""


def start_ranks(
    code: str, *arguments: str, size: int = 2, **variables: str
) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", _RANK + code, *arguments],
            cwd=ROOT,
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def told_by(
    processes: list[subprocess.Popen[str]],
) -> list[dict[str, list[object]]]:
    """Output of each rank, by name."""
    told = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=_PATIENCE_S)
            told.append(dict(json.loads(line) for line in output.splitlines()))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return told


_ENDLESS = """
def slowly(progress):
    if progress.update == 2:
        (out / f"ready{rank}").touch()
    time.sleep(0.02)

endless = replace(config, total_steps=10**9, peer_timeout_s=float(sys.argv[2]))
tell("endless", lambda: facts(train(VecXor(), endless, out=out / "endless", on_update=slowly)))
dist.destroy_process_group()
names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
tell("threads", lambda: [name for name in names if "gloo" in name])
"""


def told_after(
    how: signal.Signals, processes: list[subprocess.Popen[str]], folder: Path
) -> list[dict[str, list[object]]]:
    """Output of two ranks; the second gets a signal in `_ENDLESS`.

    The first rank then stops: at once if the second was killed, after `peer_timeout_s` if it hangs.
    Ctrl-C stops both with one save.
    """
    try:
        while not all((folder / f"ready{rank}").exists() for rank in range(2)):
            assert all(process.poll() is None for process in processes)
            time.sleep(0.05)
        processes[1].send_signal(how)
        processes[0].wait(_PATIENCE_S)
        place = f"rank 1 of 2 ({socket.gethostname()}, process {processes[1].pid})"
        if how == signal.SIGSTOP:
            processes[1].kill()
        first, second = told_by(processes)
    finally:
        for process in processes:
            process.kill()
    assert (folder / "endless" / "checkpoint" / "config.json").exists()
    if how == signal.SIGINT:
        assert first["endless"] == second["endless"]
        assert first["endless"][-1] is True
    else:
        word = "its process ended" if how == signal.SIGKILL else "does not answer"
        assert first["endless"] == ["WorkerError", f"{place}: {word}"]
    assert first["threads"] == []  # a thread that outlives its group can abort an exiting process
    return [first, second]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_processes_train_one_network_until_one_is_killed(tmp_path: Path) -> None:
    code = """
class Raising(VecXor):
    def act(self, actions):
        if rank == 1 and getattr(self, "steps", 0) == 2:
            raise ValueError("out of cherries")
        self.steps = getattr(self, "steps", 0) + 1
        return super().act(actions)

def stopping(progress):
    if progress.update == 1:
        raise ValueError("enough")

tell("run", lambda: facts(train(VecXor(), config, out=out / "run")))
longer = replace(config, total_steps=1024)
tell("resumed", lambda: facts(train(VecXor(), longer, out=out / "run", resume=True)))
tell("raises", lambda: facts(train(Raising(), config, out=out / "raises")))
tell("on_update", lambda: facts(train(VecXor(), config, on_update=None if rank else stopping)))
def stop(progress):
    import signal

    signal.raise_signal(signal.SIGINT)

longest = replace(config, total_steps=10**6)
tell("stops", lambda: facts(train(VecXor(), longest, on_update=stop if rank else None)))
tell("settings", lambda: facts(train(VecXor(), replace(config, gamma=0.5 + rank / 4))))
tell("spaces", lambda: facts(train(VecSigns() if rank else VecXor(), config)))
tell("out", lambda: facts(train(VecXor(), config, out=out / f"own{rank}")))
tell("again", lambda: facts(train(VecXor(), config)))
"""
    processes = start_ranks(code + _ENDLESS, str(tmp_path), "3600")
    first, second = told_after(signal.SIGKILL, processes, tmp_path)
    rows = VecXor().num_rows
    for name in ("run", "resumed", "stops", "again"):
        assert first[name] == second[name], name
    assert first["run"][2:4] == [512, 512 // (2 * 2 * rows)]
    assert first["resumed"][2] == 1024
    assert first["stops"][2:] == [256, 1, *first["stops"][4:6], True]
    assert first["again"][:2] == first["run"][:2]
    assert second["raises"] == ["ValueError", "out of cherries"]
    kind, message = first["raises"]
    assert kind == "WorkerError"
    assert str(message).startswith(f"rank 1 of 2 ({socket.gethostname()}, process ")
    assert str(message).endswith("): ValueError: out of cherries")
    assert (tmp_path / "raises" / "checkpoint").exists()
    assert first["on_update"] == ["ValueError", "enough"]
    assert "rank 0 of 2" in str(second["on_update"][1])
    for each in (first, second):
        assert each["settings"][0] == each["spaces"][0] == each["out"][0] == "UsageError"
        same = "rank 1 of 2 must have the same"
        assert f"{same} setting gamma as rank 0: got 0.75, rank 0 has 0.5" in str(
            each["settings"][1]
        )
        assert f"{same} spaces as rank 0: got" in str(each["spaces"][1])
        assert "`out` must be a folder that all ranks share" in str(each["out"][1])


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGINT])
def test_a_rank_that_hangs_or_is_interrupted_stops_the_others(
    how: signal.Signals, tmp_path: Path
) -> None:
    limit_s = "10" if how == signal.SIGSTOP else "3600"
    told_after(how, start_ranks(_ENDLESS, str(tmp_path), limit_s), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_ranks_that_torchrun_starts_again_find_each_other(tmp_path: Path) -> None:
    """torchrun's store still has the addresses of the dead ranks."""
    out = tmp_path / "run"
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
            *("--max-restarts=1", "-m", "entity_env", "train", "snake", "--steps=20000"),
            *("--num-envs=32", f"--out={out}"),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        curves = out / "curves.jsonl"
        while not curves.exists() or not curves.stat().st_size > 200:
            assert launcher.poll() is None
            time.sleep(0.05)
        lock = json.loads((out / LOCK).read_text())  # of rank 0
        os.kill(lock["pid"], signal.SIGKILL)
        output, _ = launcher.communicate(timeout=120)
    finally:
        launcher.terminate()
        launcher.wait()
    assert launcher.returncode == 0, output
    assert "trained 20," in output
    assert int(str(read_header(out / "checkpoint").training["step"])) >= 20_000


def test_no_signal_asks_for_a_process_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, signal 0 is Ctrl-C."""
    assert not _is_running(2**22 + 1)  # above all process ids of Linux
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "kill")
    assert _is_running(2**22 + 1)
