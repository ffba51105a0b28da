"""Rollouts of a scripted environment: stored decisions, returns, and staggered starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import Episode, Game
from entity_env.agents.ppo import Callback, PPOConfig, TrainResult, TrainState, train
from entity_env.agents.ppo.ppo import collect, learn, ppo_loss
from entity_env.agents.ppo.rollout import Collector, staggered_starts
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.batch_layout import Batch as NetBatch
from entity_env.agents.rogue_net.torch_net.net import PolicyOutput
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionSpace, CategoricalActionSpace, Entity, ObsSpace
from entity_env.core.vec_obs import VecActions, VecCategoricalActionMask, VecEnvironment, VecObs
from entity_env.errors import ProtocolError
from entity_env.games.classic import CartPole
from entity_env.replay import Replay
from entity_env.vec import BatchVecEnv, VecEnv
from tests.agents.ppo.small_envs import Halves, VecTurns, VecXor, plain_obs, spoil
from tests.helpers.tiny_games import count, in_turn, together, walk

OBS = ObsSpace((), {"Thing": Entity(("worth",))})
ACTIONS: Mapping[str, ActionSpace] = {"go": CategoricalActionSpace(("a", "b"))}
CONFIG = PPOConfig(gamma=0.5, gae_lambda=1.0)


def seen(
    worth: list[float | None],
    *,
    reward: list[float] | None = None,
    terminated: list[int] | None = None,
    truncated: list[int] | None = None,
    final: VecObs | None = None,
    waiting: list[int] | None = None,
) -> VecObs:
    """A batch whose rows show a thing with some worth, or nothing."""
    n = len(worth)
    lengths = np.array([w is not None for w in worth], np.int64)
    values = np.array([[w] for w in worth if w is not None], np.float32).reshape(-1, 1)
    acts = lengths * (1 - np.array(waiting or [0] * n))
    actors = RaggedArray(np.zeros(int(acts.sum()), np.int64), acts)
    obs = plain_obs(
        {"Thing": RaggedArray(values, lengths)},
        {"go": VecCategoricalActionMask(actors)},
        np.array(reward or [0] * n, np.float32),
        np.array(terminated or [0] * n, np.bool_),
        np.array(truncated or [0] * n, np.bool_),
    )
    obs.final = final
    return obs


class Script(Halves):
    """Plays batches from a list; each overwrites the previous batch."""

    def __init__(self, *batches: VecObs) -> None:
        self._batches = list(batches)
        self._at = 0
        self.num_rows = len(batches[0])

    def obs_space(self) -> ObsSpace:
        """One kind of thing."""
        return OBS

    def action_space(self) -> Mapping[str, ActionSpace]:
        """One action."""
        return ACTIONS

    def reset(self, seed: int | None = None) -> VecObs:
        """The first batch."""
        return self._batches[0]

    def act(self, actions: VecActions) -> VecObs:
        """The next batch."""
        spoil(self._batches[self._at])
        self._at += 1
        return self._batches[self._at]

    def close(self) -> None:
        """Nothing to release."""


class WorthNet:
    """Values a row by the worth it observes."""

    action_space = ACTIONS
    memory_width = 0

    device = torch.device("meta")  # a device without compiled code

    def act(self, batch: NetBatch, *, generator: torch.Generator | None = None) -> PolicyOutput:
        """Always the first label."""
        actors = batch.action_masks["go"].actors
        logprobs = -np.arange(len(actors), dtype=np.float32)
        actions = {"go": np.zeros(len(actors.values), np.int64)}
        return PolicyOutput(actions, actions, logprobs, np.zeros_like(logprobs), self.values(batch))

    def values(self, batch: NetBatch) -> NDArray[np.float32]:
        """The worth; 0 for an empty row."""
        return np.array([t.sum() for t in batch.features["Thing"]], np.float32)


def collected(num_steps: int, *batches: VecObs) -> Rollout:
    script = Script(*batches)
    net = cast("RogueNet", WorthNet())
    collector = Collector(script, net, torch.Generator(), script.reset(), CONFIG.at(0))
    return collect(collector, num_steps, lambda _: None)


def test_a_cut_episode_is_worth_its_final_observation() -> None:
    final = seen([8.0, 6.0])
    final.env_id[:] = [2, 0]
    batch = collected(
        1,
        seen([1.0, 2.0, 3.0]),
        seen(
            [50.0, 50.0, 50.0],
            reward=[1, 1, 1],
            terminated=[1, 0, 0],
            truncated=[0, 0, 1],
            final=final,
        ),
    )
    # terminated: only the reward; running: half the next value; truncated: half the final value
    np.testing.assert_allclose(batch.returns, [1, 1 + 25, 1 + 4])
    np.testing.assert_allclose(batch.values, [1, 2, 3])
    assert batch.b_inds.tolist() == [0, 1, 2]


def test_final_rows_are_found_by_environment_and_agent() -> None:
    def two_agents(obs: VecObs, env_id: list[int], agent_id: list[int]) -> VecObs:
        obs.env_id[:], obs.agent_id[:] = env_id, agent_id
        return obs

    final = two_agents(seen([4.0, 2.0]), [1, 1], [1, 0])
    batch = collected(
        1,
        two_agents(seen([0.0] * 4), [0, 0, 1, 1], [0, 1, 0, 1]),
        two_agents(
            seen([0.0] * 4, truncated=[0, 0, 1, 1], final=final), [0, 0, 1, 1], [0, 1, 0, 1]
        ),
    )
    np.testing.assert_allclose(batch.returns, [0, 0, 1, 2])


def test_waiting_rows_decide_nothing_and_earn_for_their_last_decision() -> None:
    batch = collected(
        3,
        seen([1.0, None]),
        seen([None, 2.0], reward=[1, 64]),  # row 1 has made no decision that could earn the reward
        seen([None, None], reward=[2, 8], terminated=[0, 1]),
        seen([6.0, 4.0], reward=[4, 16]),
    )
    np.testing.assert_allclose(batch.values, [1, 2])
    np.testing.assert_allclose(batch.returns, [1 + 2 + 4 + 3, 8])
    np.testing.assert_allclose(batch.logprobs, [0, -1])


def test_an_unfinished_decision_is_not_learnt_from() -> None:
    batch = collected(2, seen([1.0, 1.0]), seen([2.0, 2.0]), seen([None, 4.0]))
    assert batch.b_inds.tolist() == [0, 1, 3]
    # A row that shows a thing but is not asked has no value to bootstrap from.
    batch = collected(1, seen([1.0, 1.0]), seen([2.0, 4.0], waiting=[1, 0]))
    assert batch.b_inds.tolist() == [1]


def test_decisions_survive_that_their_batch_is_spoilt() -> None:
    batch = collected(2, seen([1.0, None]), seen([2.0, 3.0]), seen([0.0, 0.0]))
    stored = batch.minibatch(np.array([2, 0]))
    np.testing.assert_array_equal(stored.obs.features["Thing"].values[:, 0], [3, 1])
    assert stored.samples["go"].tolist() == [0, 0]


@pytest.mark.slow
def test_what_cannot_be_learnt_from_is_refused() -> None:
    nothing = [seen([None]) for _ in range(6)]
    assert len(collected(2, *nothing[:3])) == 0  # one rank only: others may have decisions
    with pytest.raises(ProtocolError, match="no agent was asked for an action in 2 steps"):
        train(Script(*nothing[3:]), replace(CONFIG, num_steps=2))
    with pytest.raises(ProtocolError, match='autoreset="same_step"'):
        collected(1, seen([1.0]), seen([1.0], truncated=[1]))
    other = seen([1.0])
    other.env_id[:] = 5
    with pytest.raises(ProtocolError, match="env 0, agent 0 was truncated"):
        collected(1, seen([1.0]), seen([1.0], truncated=[1], final=other))


def test_visible_and_masks_that_come_and_go() -> None:
    first, second, last = seen([1.0, 2.0]), seen([3.0, 4.0]), seen([5.0, 6.0])
    second.visible["Thing"] = RaggedArray(np.array([True, False]), [1, 1])
    actors = second.action_masks["go"].actors
    allowed = RaggedArray(np.array([[True, False], [True, True]]), [1, 1])
    second.action_masks["go"] = VecCategoricalActionMask(actors, allowed)
    stored = collected(2, first, second, last).minibatch(np.arange(4))
    assert stored.obs.visible["Thing"].values.tolist() == [True, True, True, False]
    mask = stored.obs.action_masks["go"]
    assert isinstance(mask, VecCategoricalActionMask)
    assert mask.mask is not None
    assert mask.mask.values.tolist() == [[True, True], [True, True], [True, False], [True, True]]


def _real_batch(vec: VecEnvironment) -> tuple[RogueNet, Rollout]:
    net = RogueNet(vec.obs_space(), vec.action_space())
    collector = Collector(
        vec, net, torch.Generator().manual_seed(0), vec.reset(seed=0), CONFIG.at(0)
    )
    return net, collect(collector, 2, lambda _: None)


def test_a_batch_of_nothing_changes_nothing() -> None:
    # One step of three unfinished games; afterwards the agents that were asked are waiting.
    vec = VecTurns(3)
    net = RogueNet(vec.obs_space(), vec.action_space())
    collector = Collector(
        vec, net, torch.Generator().manual_seed(0), vec.reset(seed=1), CONFIG.at(0)
    )
    batch = collect(collector, 1, lambda _: None)
    assert batch.b_inds.size == 0
    before = [p.clone() for p in net.parameters()]
    optimizer = torch.optim.Adam(net.parameters())
    losses = learn(
        net, optimizer, batch, replace(CONFIG.at(0), ent_coef=0.1), np.random.default_rng(0)
    )
    assert np.isnan(losses.policy_loss)
    for parameter, old in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old, rtol=0, atol=0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_minibatch_without_actors_is_finite(count: int) -> None:
    net = RogueNet(OBS, ACTIONS)
    obs = seen([1.0] * max(count, 1), waiting=[1] * max(count, 1))
    rollout = Rollout(
        obs=obs,
        samples={"go": RaggedArray(np.zeros(0, np.int64), np.zeros(max(count, 1), np.int64))},
        b_inds=np.arange(count),
        logprobs=np.zeros(max(count, 1), np.float32),
        values=np.zeros(max(count, 1), np.float32),
        advantages=np.ones(max(count, 1), np.float32),
        returns=np.ones(max(count, 1), np.float32),
    )
    losses = learn(
        net,
        torch.optim.Adam(net.parameters()),
        rollout,
        replace(CONFIG.at(0), ent_coef=0.1),
        np.random.default_rng(0),
    )
    assert np.isfinite(losses.policy_loss) == (count > 0)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_the_policy_that_learns_is_the_one_that_played() -> None:
    net, batch = _real_batch(VecTurns(8))
    whole = batch.minibatch(batch.b_inds)
    _, figures = ppo_loss(
        net.evaluate(whole.obs, whole.samples), whole, replace(CONFIG.at(0), ent_coef=0.0)
    )
    assert abs(float(figures[3])) < 1e-6  # no divergence before the first step
    assert float(figures[4]) == 0


NUM_ENVS, LENGTH = 8, 20
SMALL = RogueNetConfig(d_model=8, n_layer=1, n_head=1)
STAGGERED = PPOConfig(
    total_steps=60 * NUM_ENVS, num_steps=5, staggered_steps=LENGTH, net=SMALL, episode_window=1000
)
steady = count.with_settings(length=LENGTH)
"""Number of steps of every episode; its dot counts them, and each is rewarded with 1."""


@given(st.integers(1, 50), st.integers(0, 300), st.integers(1, 40), st.integers(0, 9))
def test_starts_are_spread_evenly(num_envs: int, length: int, num_steps: int, seed: int) -> None:
    starts = staggered_starts(num_envs, length, num_steps, seed)
    assert (starts % num_steps == 0).all()
    ends = [min(start + num_steps, length) for start in range(0, length, num_steps)]
    for before, end in pairwise([0, *ends]):
        share = num_envs * (end - before) / length
        assert abs(np.count_nonzero(starts == before) - share) < 1
    assert (starts <= max(length - 1, 0)).all()
    again = staggered_starts(num_envs, length, num_steps, seed)
    assert starts.tolist() == again.tolist()


@pytest.mark.slow
@given(
    game=st.sampled_from([walk, steady, in_turn, together]),
    num_envs=st.integers(1, 6),
    length=st.integers(0, 20),
    num_steps=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_staggered_rollouts_are_those_of_resets_by_hand(
    game: Game, num_envs: int, length: int, num_steps: int, seed: int
) -> None:
    config = PPOConfig(num_steps=num_steps, staggered_steps=length)
    with VecEnv(game, num_envs) as vec, VecEnv(game, num_envs) as other:
        torch.manual_seed(0)
        net = RogueNet(vec.obs_space(), vec.action_space(), SMALL)
        found, by_hand = (
            Collector(one, net, torch.Generator().manual_seed(1), one.reset(seed), each.at(0), seed)
            for one, each in ((vec, config), (other, replace(config, staggered_steps=0)))
        )
        places = np.random.default_rng(seed).permutation(num_envs)
        for rollout in range(5):
            rows = found.stagger()
            assert by_hand.stagger().tolist() == []
            is_due = [
                bool(rollout) and place * length // num_envs // num_steps == rollout
                for place in places.tolist()
            ]
            assert set((rows // vec.num_agents).tolist()) == set(np.flatnonzero(is_due).tolist())
            if any(is_due):
                by_hand.next_obs = other.reset_envs(is_due)
            mine, theirs = (collect(each, num_steps, lambda _: None) for each in (found, by_hand))
            for name in ("logprobs", "values", "advantages", "returns", "b_inds"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            for name, features in mine.obs.features.items():
                np.testing.assert_array_equal(features.values, theirs.obs.features[name].values)


class Phases(Callback):
    """Records the episode step of all environments, step by step."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []

    def on_step(self, state: TrainState, obs: VecObs) -> None:
        self.found.append(obs.features["Dot"].values[:, 0].astype(int).tolist())


def phases_of(config: PPOConfig, **options: Any) -> tuple[TrainResult, list[list[int]]]:  # noqa: ANN401
    """Trains on `steady`."""
    phases = Phases()
    with VecEnv(steady, NUM_ENVS) as vec:
        result = train(vec, config, callbacks=[phases], **options)
    return result, phases.found


@pytest.mark.slow
def test_copies_do_not_run_in_lockstep() -> None:
    lockstep, found = phases_of(replace(STAGGERED, staggered_steps=0))
    assert all(len(set(each)) == 1 for each in found)
    result, found = phases_of(STAGGERED)
    for each in found[LENGTH:]:
        assert sorted(Counter(each).values()) == [2, 2, 2, 2]
    assert [each % 5 for each in found[LENGTH]] == [1] * NUM_ENVS
    # Interrupted episodes are not in the figures: only whole episodes, two or three per copy.
    for progress, num_episodes in ((lockstep.progress, 24), (result.progress, 18)):
        seen = progress.rollouts
        assert progress.num_episodes == num_episodes
        assert (progress.mean_length, progress.mean_reward, progress.std_reward) == (20, 20, 0)
        assert (seen.num_first, seen.first_length, seen.first_mean) == (NUM_ENVS, 20, 20)
        assert progress.unfinished == 0


@pytest.mark.slow
def test_a_resumed_run_is_staggered_again(tmp_path: Path) -> None:
    phases_of(replace(STAGGERED, total_steps=30 * NUM_ENVS), out=tmp_path)
    _, found = phases_of(STAGGERED, out=tmp_path, resume=True)
    assert len(set(found[0])) == 1
    assert sorted(Counter(found[-1]).values()) == [2, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        partial(VecEnv, walk, NUM_ENVS),
        partial(VecEnv, in_turn, NUM_ENVS, on_error="restart"),
        partial(BatchVecEnv, partial(CartPole, max_episode_steps=LENGTH), NUM_ENVS),
    ],
    ids=["game", "turns", "batch"],
)
def test_workers_change_nothing_of_a_staggered_run(make: Callable[[int], VecEnv]) -> None:
    results = []
    for num_workers in (0, 2):
        with make(num_workers) as vec:
            results.append(train(vec, STAGGERED))
    one, two = (result.net.state_dict() for result in results)
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert results[0].progress.num_episodes == results[1].progress.num_episodes
    assert results[0].progress.mean_reward == results[1].progress.mean_reward


@pytest.mark.slow
def test_environments_that_only_reset_together_start_together() -> None:
    results = [
        train(VecXor(), replace(STAGGERED, total_steps=2048, staggered_steps=staggered))
        for staggered in (0, LENGTH)
    ]
    one, two = (result.net.state_dict() for result in results)
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


@pytest.mark.slow
def test_replays_of_a_staggered_run_repeat_it(tmp_path: Path) -> None:
    seeds: list[tuple[int, int, int]] = []
    replays: list[Replay] = []

    def watch(ended: Sequence[Episode], replay: Callable[[], Replay]) -> None:
        seeds.append((ended[0].env_id, ended[0].number, ended[0].seed))
        replays.append(replay())

    with VecEnv(walk, NUM_ENVS, 2, failures=tmp_path / "failures") as vec:
        vec.watch_episodes(watch)
        train(vec, replace(STAGGERED, seed=3))
    assert len(set(seeds)) == len(seeds) > 50
    assert all(seed == EpisodeSeeds(3, env_id)[number] for env_id, number, seed in seeds)
    for replay in replays:
        assert replay.verify(walk) is None
