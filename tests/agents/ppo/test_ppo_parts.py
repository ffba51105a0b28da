"""Small parts of the trainer: settings, storage, meters, deferred interrupts, records."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.learner import Learner, load_learner, save_learner
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, load_checkpoint
from entity_env.agents.rogue_net.torch_net.checkpoint import Checkpoint
from entity_env.agents.training import rollout_buffer as storage_module
from entity_env.agents.training.process import HeldInterrupt
from entity_env.agents.training.rollout_buffer import (
    Rollout,
    RolloutBuffer,
)
from entity_env.agents.training.tracking.progress import EpisodeFigures, EpisodeMeter
from entity_env.agents.training.tracking.rewards import MOST_UNFINISHED
from entity_env.core.episode import Episode
from entity_env.core.spaces import CategoricalActionSpace, Entity, ObsSpace
from entity_env.core.validation import has_numba
from entity_env.core.vec_obs import (
    EntityBatch,
    Metric,
    VecObs,
)
from entity_env.errors import CheckpointError, UsageError
from tests.agents.ppo.small_envs import plain_obs, spoil
from tests.helpers.batches import facts, random_obs


@pytest.mark.parametrize(
    ("name", "bad", "good", "words"),
    [
        ("total_steps", 0, 1, "an integer from 1 to .*"),
        ("num_steps", 0, 1, "an integer from 1 to .*"),
        ("minibatch_size", -4, 1, "an integer from 1 to .*"),
        ("update_epochs", 0, 1, "an integer from 1 to .*"),
        ("episode_window", 0, 1, "an integer from 1 to .*"),
        ("num_threads", 0, None, "an integer from 1 to .*"),
        ("seed", -1, 0, "an integer from 0 to .*"),
        ("learning_rate", 0.0, 1e-9, "above 0"),
        ("clip_coef", -0.1, 1e-3, "a number above 0"),
        ("max_grad_norm", 0.0, 1e-3, "a number above 0"),
        ("gamma", -0.01, 0.0, "a number from 0 to 1"),
        ("gamma", float("nan"), 1.0, "a number from 0 to 1"),
        ("gae_lambda", 1.01, 1.0, "a number from 0 to 1"),
        ("learning_rate", float("nan"), 1.0, "a number, 0 or more"),
        ("learning_rate", float("inf"), 1.0, "a number, 0 or more"),
        ("learning_rate", 10**400, 1.0, "a number, 0 or more"),
        ("num_steps", 10**12, 16, "an integer from 1 to .*"),
        ("total_steps", 1e3, 1, "an integer from 1 to .*"),
        ("norm_adv", 1, True, "true or false"),
        ("device", 3, "cpu", "a name"),
    ],
)
def test_settings_that_cannot_work_are_told(
    name: str, bad: object, good: object, words: str
) -> None:
    with pytest.raises(UsageError, match=f"{name} must be {words}, got {str(bad)[:20]}"):
        PPOConfig.from_json({name: bad})
    assert getattr(PPOConfig.from_json({name: good}), name) == good


def test_settings_are_json_through_and_through() -> None:
    config = PPOConfig(net=RogueNetConfig(d_model=8), target_kl=0.1, num_threads=None, seed=5)
    assert PPOConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert PPOConfig.from_json({}) == PPOConfig()
    with pytest.raises(UsageError, match="'net' must be a table of settings, got 3"):
        PPOConfig.from_json({"net": 3})


def gathered(
    obs: EntityBatch, samples: Mapping[str, Any], mb_inds: NDArray[np.int64]
) -> list[dict[str, Any]]:
    size = max(mb_inds, default=-1) + 1
    figures = np.arange(size, dtype=np.float32)
    rollout = Rollout(
        obs, samples, mb_inds, figures, figures + 1, figures + 2, figures + 3, segments=None
    )
    stored = rollout.minibatch(mb_inds)
    got = stored.logprobs, stored.values, stored.advantages, stored.returns
    assert [each.tolist() for each in got] == [(mb_inds + i).tolist() for i in range(4)]
    return [facts(stored.obs, stored.samples, row) for row in range(len(mb_inds))]


@pytest.mark.parametrize("is_compiled", [True, False])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_stored_decision_comes_back_in_any_order(
    seed: int, sizes: list[int], is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_it = is_compiled and has_numba()
    monkeypatch.setattr(storage_module, "has_kernels", lambda: has_it)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        buffer = RolloutBuffer()
        expected: list[dict[str, Any]] = []
        for num_rows in sizes:
            obs, samples = random_obs(rng, num_rows)
            rows = None if rng.random() < 0.3 else np.flatnonzero(rng.random(num_rows) < 0.6)
            chosen = range(num_rows) if rows is None else rows.tolist()
            shown = EntityBatch(obs.features, obs.visible, obs.action_masks)
            expected += [facts(shown, samples, row) for row in chosen]
            buffer.add(obs, samples, rows)
            spoil(obs)
        stored = buffer.joined()
        for _ in range(2):
            mb_inds = rng.permutation(len(expected))[: rng.integers(0, len(expected) + 1)]
            assert gathered(*stored, mb_inds) == [expected[i] for i in mb_inds]


def ended(rewards: list[float], **metrics: Metric) -> VecObs:
    nothing = np.zeros(1, np.float32)
    obs = plain_obs({}, {}, nothing, nothing > 0)
    obs.episodes = [
        Episode(reward, i + 1, True, False, 0, metrics={"score": reward})
        for i, reward in enumerate(rewards)
    ]
    obs.metrics = metrics
    return obs


@given(st.lists(st.lists(st.integers(-9, 9).map(float), max_size=4), max_size=6), st.integers(1, 5))
def test_means_go_over_the_last_episodes(batches: list[list[float]], window: int) -> None:
    meter = EpisodeMeter(window)
    assert math.isnan(meter.figures().mean_reward)
    assert math.isnan(meter.figures().mean_length)
    for rewards in batches:
        meter.add(ended(rewards))
    every = [reward for rewards in batches for reward in rewards]
    lengths = [i + 1 for rewards in batches for i in range(len(rewards))]
    assert meter.num_episodes == len(every)
    if not every:
        assert meter.metrics == {}
        return
    assert meter.figures().mean_reward == pytest.approx(np.mean(every[-window:]))
    assert meter.figures().mean_length == pytest.approx(np.mean(lengths[-window:]))
    score = meter.metrics["episode/score"]  # over all episodes of the rollout
    assert score == Metric(len(every), sum(every), min(every), max(every))
    meter.start_rollout()
    assert meter.metrics == {}
    assert meter.num_episodes == len(every)
    assert meter.figures().mean_reward == pytest.approx(np.mean(every[-window:]))


@given(st.lists(st.lists(st.integers(-9, 9).map(float), max_size=5), min_size=1, max_size=4))
def test_figures_of_several_meters_are_those_of_all_episodes(ranks: list[list[float]]) -> None:
    reports = []
    for rewards in ranks:
        meter = EpisodeMeter(5)
        meter.add(ended(rewards, speed=Metric(1, 2.0, 2.0, 2.0)))
        reports.append(json.loads(json.dumps(meter.figures().to_json())))
    figures = EpisodeFigures.merged(reports)
    every = [reward for rewards in ranks for reward in rewards]
    assert figures.num_episodes == figures.window == len(every)
    assert figures.metrics["speed"] == Metric(len(ranks), 2.0 * len(ranks), 2.0, 2.0)
    if not every:
        assert math.isnan(figures.mean_reward)
        return
    lengths = [i + 1 for rewards in ranks for i in range(len(rewards))]
    assert figures.mean_reward == pytest.approx(np.mean(every))
    assert figures.std_reward == pytest.approx(np.std(every), abs=1e-6)
    assert figures.mean_length == pytest.approx(np.mean(lengths))


def test_running_episodes_that_are_longer_than_finished_ones_are_counted() -> None:
    """Of 4 rows, one ends at every step, when the others have been running longer."""
    meter, is_ready = EpisodeMeter(3), np.ones(4, np.bool_)

    def step(length: int, *rows: int) -> float:
        done = np.isin(np.arange(4), rows)
        episodes = [Episode(1.0, length, True, False, 0, env_id=row) for row in rows]
        obs = SimpleNamespace(done=done, is_ready=is_ready, episodes=episodes, metrics={})
        meter.add(cast(VecObs, obs))
        return meter.figures().unfinished

    assert meter.figures().unfinished == 0
    assert [step(1, 0) for _ in range(4)] == [0, 0.75, 0.75, 0.75]
    assert step(4, 1, 2) == 0.25  # only row 3 has been running longer
    assert step(6, 3) == 0
    is_ready[:] = False  # no row is asked, so no episode gets longer
    assert [step(2, 0) for _ in range(3)] == [0, 0, 0]


def played(
    lengths: Iterator[int], num_rows: int, num_steps: int, reward: Callable[[int, int], float]
) -> Iterator[EpisodeMeter]:
    """A meter after each step of rows that start together; `reward` gets length and number."""
    meter, left = EpisodeMeter(200), np.array([next(lengths) for _ in range(num_rows)])
    whole, number = left.copy(), np.zeros(num_rows, np.int64)
    for _ in range(num_steps):
        left -= 1
        done = left == 0
        episodes = [
            Episode(reward(int(whole[i]), int(number[i])), int(whole[i]), True, False, 0, env_id=i)
            for i in np.flatnonzero(done).tolist()
        ]
        for i in np.flatnonzero(done).tolist():
            left[i] = whole[i] = next(lengths)
            number[i] += 1
        is_ready = np.ones(num_rows, np.bool_)
        obs = SimpleNamespace(done=done, is_ready=is_ready, episodes=episodes, metrics={})
        meter.add(cast(VecObs, obs))
        yield meter


@pytest.mark.parametrize(
    ("num_rows", "count", "lag"), [(128, 3, 0), (128, 90, 0), (8, 37, 2), (1, 300, 15), (300, 2, 0)]
)
def test_means_lag_by_a_twentieth_of_the_run_or_one_episode(
    num_rows: int, count: int, lag: int
) -> None:
    """The n-th episode of every row has the reward n."""
    every = [*played(itertools.repeat(1), num_rows, count, lambda _, number: number)]
    figures = every[-1].figures()
    assert figures.num_episodes == num_rows * count
    assert count - 1 - figures.mean_reward <= lag
    assert figures.window <= max(200, num_rows)


@pytest.mark.parametrize("num_rows", [40, 400])
def test_means_are_not_those_of_short_episodes(num_rows: int) -> None:
    """Half the episodes have 2 steps and half 20: at first, most of the last 200 are short."""
    rng = np.random.default_rng(1)
    lengths = iter(rng.choice([2, 20], size=100_000).tolist())
    steps = []
    for step, meter in enumerate(played(lengths, num_rows, 100, lambda length, _: length)):
        figures = meter.figures()
        if step > 1 and figures.unfinished <= MOST_UNFINISHED:  # before that, all are equally old
            steps.append(step)
            error = 4 * 9 / math.sqrt(figures.window)
            assert figures.mean_reward == pytest.approx(11, abs=error)
    assert steps == [*range(19, 100)]


def test_rows_count_alike_whatever_the_length_of_their_episodes() -> None:
    """A row with short episodes finishes more of them, and more of them are recent."""
    meter = EpisodeMeter(200)
    for step in range(1, 101):
        done = np.array([True, step % 10 == 0])
        episodes = [Episode(0.0, 1, True, False, 0)]
        if done[1]:
            episodes.append(Episode(1.0, 10, True, False, 0, env_id=1))
        obs = SimpleNamespace(
            done=done, is_ready=np.ones(2, np.bool_), episodes=episodes, metrics={}
        )
        meter.add(cast(VecObs, obs))
    assert meter.figures().mean_reward > 0.4


def test_metrics_of_batches_are_joined_and_left_alone() -> None:
    meter = EpisodeMeter(3)
    first, second = Metric(2, 3.0, 1.0, 2.0), Metric(1, -5.0, -5.0, -5.0)
    for metric in (first, Metric(), second):
        meter.add(ended([], speed=metric))
    assert meter.metrics == {"speed": Metric(3, -2.0, -5.0, 2.0)}
    assert first == Metric(2, 3.0, 1.0, 2.0)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_interrupt_waits_and_the_second_strikes() -> None:
    before = signal.getsignal(signal.SIGINT)
    with HeldInterrupt() as held:
        held.check()
        press()
        with pytest.raises(KeyboardInterrupt):
            press()
        with pytest.raises(KeyboardInterrupt):
            held.check()
        held.check()  # reported once
        press()  # counts as a first press again
        with pytest.raises(KeyboardInterrupt):
            held.check()
    assert signal.getsignal(signal.SIGINT) is before


def test_while_a_run_ends_the_second_interrupt_strikes() -> None:
    with HeldInterrupt() as held:
        held.is_ending = True
        press()
        with pytest.raises(KeyboardInterrupt):
            held.check()  # the run has dealt with the first press
        with pytest.raises(KeyboardInterrupt):
            press()


def test_the_handler_comes_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)

    def fail() -> None:
        with HeldInterrupt():
            assert signal.getsignal(signal.SIGINT) is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_the_handler_alone() -> None:
    found: list[object] = []

    def hold() -> None:
        with HeldInterrupt() as held:
            found.append(signal.getsignal(signal.SIGINT))
            held.check()

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def learner(seed: int) -> Learner:
    torch.manual_seed(seed)
    actions = {"go": CategoricalActionSpace(["a", "b"])}
    net = RogueNet(ObsSpace([], {"A": Entity(["x"])}), actions, RogueNetConfig(d_model=4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    return Learner(net, optimizer, generator, np.random.default_rng(seed))


def descend(one: Learner) -> list[torch.Tensor]:
    """A step that depends on all state: parameters, moments, and both random states."""
    noise = torch.randn(1, generator=one.generator) + float(one.rng.normal())
    one.optimizer.zero_grad()
    total = torch.stack([(each * noise).sin().sum() for each in one.net.parameters()]).sum()
    total.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    one.optimizer.step()
    return [each.detach().clone() for each in one.net.parameters()]


def saved(tmp_path: Path) -> tuple[Learner, Checkpoint]:
    one = learner(1)
    descend(one)
    one.step, one.update, one.num_episodes, one.elapsed_s = 100, 7, 3, 1.5
    save_learner(tmp_path / "checkpoint", one, PPOConfig(seed=9))
    return one, load_checkpoint(tmp_path / "checkpoint")


def test_a_learner_goes_on_as_if_it_had_not_been_written_down(tmp_path: Path) -> None:
    one, checkpoint = saved(tmp_path)
    other = learner(2)
    load_learner(checkpoint, other)
    assert (other.step, other.update, other.num_episodes, other.elapsed_s) == (100, 7, 3, 1.5)
    for _ in range(3):
        for mine, its in zip(descend(one), descend(other), strict=True):
            assert torch.equal(mine, its)
    config = checkpoint.training["config"]
    assert isinstance(config, dict)
    assert PPOConfig.from_json(config) == PPOConfig(seed=9)


def rng_state(number: object) -> dict[str, object]:
    """A generator state with a different number in it."""
    state = np.random.default_rng(0).bit_generator.state
    return {**state, "state": {"state": number, "inc": 1}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": None}, "step must be an integer from 0 to .* got None"),
        ({"step": math.inf}, "step must be an integer from 0 to .* got inf"),
        ({"step": -5}, "step must be an integer from 0 to .* got -5"),
        ({"update": -1}, "update must be an integer from 0 to .* got -1"),
        ({"update": 2**200}, "got 1606938"),
        ({"num_episodes": True}, "num_episodes must be an integer from 0 to .* got True"),
        ({"elapsed_s": math.nan}, "elapsed_s must be a number from 0 to .* got nan"),
        ({"rng": rng_state(-1)}, "does not fit"),
        ({"rng": rng_state(2**200)}, "does not fit"),
        ({"rng": rng_state("x")}, "does not fit"),
        ({"elapsed_s": "long"}, "elapsed_s must be a number from 0 to .* got 'long'"),
        ({"rng": 3}, "rng must be an object, got 3"),
        ({"rng": {"bit_generator": "MT19937"}}, "does not fit"),
    ],
)
def test_notes_that_do_not_fit_are_told(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    _, found = saved(tmp_path)
    other = learner(2)
    wrong = Checkpoint(found.net, {**found.training, **changes}, found.optimizer, found.path)
    with pytest.raises(CheckpointError, match=words):
        load_learner(wrong, other)


def test_an_optimizer_that_does_not_fit_is_told(tmp_path: Path) -> None:
    _, found = saved(tmp_path)
    name = next(key for key in found.optimizer if key.endswith(".exp_avg"))
    whole = dict(found.optimizer)
    less = {key: value for key, value in whole.items() if key != name}
    wider = {**whole, name: torch.zeros(99)}
    noted = "the state of the trainer"
    for optimizer, words in ((less, noted), (wider, noted), ({}, "it has no training state")):
        wrong = Checkpoint(found.net, found.training, optimizer, found.path)
        with pytest.raises(CheckpointError, match=f"cannot be resumed: {words}"):
            load_learner(wrong, learner(2))
