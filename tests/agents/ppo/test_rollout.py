"""What a rollout keeps of a scripted environment, and what it learns to be worth what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.ppo.rollout import Collector
from entity_env.agents.ppo.rollout_buffer import Rollout
from entity_env.agents.ppo.update import learn, ppo_loss
from entity_env.agents.rogue_net import RogueNet
from entity_env.agents.rogue_net.batch_layout import Batch as NetBatch
from entity_env.agents.rogue_net.torch_net.net import PolicyOutput
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionSpace, CategoricalActionSpace, Entity, ObsSpace
from entity_env.core.vec_obs import VecActions, VecCategoricalActionMask, VecEnvironment, VecObs
from entity_env.errors import ProtocolError
from tests.agents.ppo.small_envs import Halves, VecTurns, plain_obs, spoil

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
    """A batch whose rows show a thing of some worth, or nothing at all."""
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
    """Plays batches from a list; each spoils the one before."""

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
    """Values a row by the worth that it sees."""

    action_space = ACTIONS

    device = torch.device("meta")  # nowhere that compiled code could decide

    def act(self, batch: NetBatch, *, generator: torch.Generator | None = None) -> PolicyOutput:
        """Always the first label."""
        actors = batch.action_masks["go"].actors
        logprobs = -np.arange(len(actors), dtype=np.float32)
        actions = {"go": np.zeros(len(actors.values), np.int64)}
        return PolicyOutput(actions, actions, logprobs, np.zeros_like(logprobs), self.values(batch))

    def values(self, batch: NetBatch) -> NDArray[np.float32]:
        """The worth, 0 for nothing."""
        return np.array([t.sum() for t in batch.features["Thing"]], np.float32)


def collect(num_steps: int, *batches: VecObs) -> Rollout:
    script = Script(*batches)
    net = cast("RogueNet", WorthNet())
    collector = Collector(script, net, torch.Generator(), script.reset(), CONFIG.at(0))
    return collector.collect(num_steps, lambda _: None)


def test_a_cut_episode_is_worth_its_final_observation() -> None:
    final = seen([8.0, 6.0])
    final.env_id[:] = [2, 0]
    batch = collect(
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
    # terminated: its reward alone; running: half of what is seen next; cut: half of its end
    np.testing.assert_allclose(batch.returns, [1, 1 + 25, 1 + 4])
    np.testing.assert_allclose(batch.values, [1, 2, 3])
    assert batch.b_inds.tolist() == [0, 1, 2]


def test_final_rows_are_found_by_environment_and_agent() -> None:
    def two_agents(obs: VecObs, env_id: list[int], agent_id: list[int]) -> VecObs:
        obs.env_id[:], obs.agent_id[:] = env_id, agent_id
        return obs

    final = two_agents(seen([4.0, 2.0]), [1, 1], [1, 0])
    batch = collect(
        1,
        two_agents(seen([0.0] * 4), [0, 0, 1, 1], [0, 1, 0, 1]),
        two_agents(
            seen([0.0] * 4, truncated=[0, 0, 1, 1], final=final), [0, 0, 1, 1], [0, 1, 0, 1]
        ),
    )
    np.testing.assert_allclose(batch.returns, [0, 0, 1, 2])


def test_waiting_rows_decide_nothing_and_earn_for_their_last_decision() -> None:
    batch = collect(
        3,
        seen([1.0, None]),
        seen([None, 2.0], reward=[1, 64]),  # row 1 has no decision yet that could have earned it
        seen([None, None], reward=[2, 8], terminated=[0, 1]),
        seen([6.0, 4.0], reward=[4, 16]),
    )
    np.testing.assert_allclose(batch.values, [1, 2])
    np.testing.assert_allclose(batch.returns, [1 + 2 + 4 + 3, 8])
    np.testing.assert_allclose(batch.logprobs, [0, -1])


def test_an_unfinished_decision_is_not_learnt_from() -> None:
    batch = collect(2, seen([1.0, 1.0]), seen([2.0, 2.0]), seen([None, 4.0]))
    assert batch.b_inds.tolist() == [0, 1, 3]
    # Row that shows something but is not asked: nothing to bootstrap from either.
    batch = collect(1, seen([1.0, 1.0]), seen([2.0, 4.0], waiting=[1, 0]))
    assert batch.b_inds.tolist() == [1]


def test_decisions_survive_that_their_batch_is_spoilt() -> None:
    batch = collect(2, seen([1.0, None]), seen([2.0, 3.0]), seen([0.0, 0.0]))
    stored = batch.minibatch(np.array([2, 0]))
    np.testing.assert_array_equal(stored.obs.features["Thing"].values[:, 0], [3, 1])
    assert stored.samples["go"].tolist() == [0, 0]


def test_what_cannot_be_learnt_from_is_refused() -> None:
    nothing = [seen([None]) for _ in range(6)]
    assert len(collect(2, *nothing[:3])) == 0  # of one rank: others may have some
    with pytest.raises(ProtocolError, match="no agent was asked for an action in 2 steps"):
        train(Script(*nothing[3:]), replace(CONFIG, num_steps=2))
    with pytest.raises(ProtocolError, match='autoreset="same_step"'):
        collect(1, seen([1.0]), seen([1.0], truncated=[1]))
    other = seen([1.0])
    other.env_id[:] = 5
    with pytest.raises(ProtocolError, match="env 0, agent 0 was truncated"):
        collect(1, seen([1.0]), seen([1.0], truncated=[1], final=other))


def test_visible_and_masks_that_come_and_go() -> None:
    first, second, last = seen([1.0, 2.0]), seen([3.0, 4.0]), seen([5.0, 6.0])
    second.visible["Thing"] = RaggedArray(np.array([True, False]), [1, 1])
    actors = second.action_masks["go"].actors
    allowed = RaggedArray(np.array([[True, False], [True, True]]), [1, 1])
    second.action_masks["go"] = VecCategoricalActionMask(actors, allowed)
    stored = collect(2, first, second, last).minibatch(np.arange(4))
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
    return net, collector.collect(2, lambda _: None)


def test_a_batch_of_nothing_changes_nothing() -> None:
    # One step of three games that go on: whoever was asked waits afterwards.
    vec = VecTurns(3)
    net = RogueNet(vec.obs_space(), vec.action_space())
    collector = Collector(
        vec, net, torch.Generator().manual_seed(0), vec.reset(seed=1), CONFIG.at(0)
    )
    batch = collector.collect(1, lambda _: None)
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
