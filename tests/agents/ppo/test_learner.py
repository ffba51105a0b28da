"""The learner's teacher: its divergence matches the textbook and keeps a policy close to it."""

from __future__ import annotations

import copy
import json
import math
import shutil
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import (
    ActionSpace,
    CategoricalActionSpace,
    CheckpointError,
    ContinuousActionSpace,
    Entity,
    ObsSpace,
    SelectEntityActionSpace,
    UsageError,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from entity_env.agents.ppo import Policy, PPOConfig, Schedule, TrainResult, train
from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.ppo import learn, ppo_loss
from entity_env.agents.ppo.teacher import TEACHER, evaluate_beside, frozen
from entity_env.agents.rogue_net import (
    CNNConfig,
    MLPConfig,
    RogueNetConfig,
    initialized_from,
    load_checkpoint,
)
from entity_env.agents.rogue_net.torch_net.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
)
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.training.network import new_policy
from entity_env.agents.training.peers import ALONE, Peers
from entity_env.agents.training.rollout_buffer import Minibatch, Rollout
from entity_env.agents.training.tracking.progress import Losses
from entity_env.agents.training.tracking.runs import AGREEMENT, read_run
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import EntityBatch, VecActionMask
from tests.agents.ppo.small_envs import VecCherryPick, VecSigns, VecXor
from tests.agents.ppo.test_trainer import Continuing, Stop
from tests.agents.rogue_net.torch_net.test_cnn import catch
from tests.agents.training.test_peers import on_ranks, rollout_of

SMALL = RogueNetConfig(d_model=16, n_layer=1)
CONFIG = PPOConfig(total_steps=256, net=SMALL, num_steps=2, minibatch_size=64, update_epochs=2)
WITH = replace(CONFIG, stay_close=0.5)
OBS_SPACE = ObsSpace(entities={"Unit": Entity(["x", "y"]), "Foe": Entity(["hp"])})
ACTION_SPACE: dict[str, ActionSpace] = {
    "go": CategoricalActionSpace(["a", "b", "c"]),
    "call": CategoricalActionSpace(["p", "q"]),
    "hit": SelectEntityActionSpace(),
    "push": ContinuousActionSpace([-1, 0], [1, 5], ["u", "v"]),
}


def config_at(weight: float) -> CurrentConfig:
    return replace(CONFIG.at(0), stay_close=weight)


class Asked:
    """Random observations, and the legal choices of every row and actor."""

    def __init__(self, rng: np.random.Generator, num_rows: int) -> None:
        self.num_rows = num_rows
        units, foes = rng.integers(0, 4, num_rows), rng.integers(1, 4, num_rows)
        self.actors = {
            name: [rng.permutation(count)[: rng.integers(0, count + 1)] for count in units]
            for name in ACTION_SPACE
        }
        actees = [own + rng.permutation(count) for own, count in zip(units, foes, strict=True)]
        self.allowed = {
            name: [
                _allowed(rng, len(actors), len(them) if num_labels is None else num_labels)
                for actors, them in zip(self.actors[name], actees, strict=True)
            ]
            for name, num_labels in (("go", 3), ("call", 2), ("hit", None))
        }
        actors = {name: RaggedArray.from_rows(each, np.int64) for name, each in self.actors.items()}
        masks: dict[str, VecActionMask] = {"push": VecContinuousActionMask(actors["push"])}
        for name in ("go", "call"):
            flags = np.concatenate(self.allowed[name])
            masks[name] = VecCategoricalActionMask(
                actors[name], RaggedArray(flags, actors[name].lengths)
            )
        pairs = [each.reshape(-1) for each in self.allowed["hit"]]
        masks["hit"] = VecSelectEntityActionMask(
            actors["hit"],
            RaggedArray.from_rows(actees, np.int64),
            RaggedArray.from_rows(pairs, np.bool_),
        )
        features = {
            "Unit": RaggedArray(rng.normal(size=(units.sum(), 2)).astype(np.float32), units),
            "Foe": RaggedArray(rng.normal(size=(foes.sum(), 1)).astype(np.float32), foes),
        }
        self.obs = EntityBatch(features, {}, {name: masks[name] for name in ACTION_SPACE})


def _allowed(rng: np.random.Generator, num_actors: int, num_choices: int) -> NDArray[np.bool_]:
    flags = rng.random((num_actors, num_choices)) < 0.5
    flags[np.arange(num_actors), rng.integers(0, num_choices, num_actors)] = True
    return flags


def network(rng: np.random.Generator, spread: float) -> Policy:
    net = make_policy(OBS_SPACE, ACTION_SPACE, SMALL)
    with torch.no_grad():
        for each in net.parameters():
            each.add_(torch.from_numpy(rng.normal(size=each.shape)), alpha=spread)
    return net


def by_book(asked: Asked, teacher: Policy, net: Policy) -> tuple[list[float], list[float]]:
    """Divergence and agreement of every row, choice by choice."""
    with torch.no_grad():
        theirs, mine = (each.distributions(asked.obs)[0] for each in (teacher, net))
    kls = [0.0] * asked.num_rows
    agreements: list[list[bool]] = [[] for _ in kls]
    for name in ACTION_SPACE:
        one, two, at = theirs[name], mine[name], 0
        for row, actors in enumerate(asked.actors[name]):
            for i in range(len(actors)):
                if isinstance(one, GaussianDistribution) and isinstance(two, GaussianDistribution):
                    kl, agrees = _of_gaussians(one, two, at)
                else:
                    free = np.flatnonzero(asked.allowed[name][row][i])
                    kl, agrees = _of_choices(one, two, at, free)
                kls[row] += kl
                agreements[row].append(agrees)
                at += 1
    return kls, [float(np.mean(each)) if each else 1.0 for each in agreements]


def _of_choices(one: object, two: object, at: int, free: NDArray[np.int64]) -> tuple[float, bool]:
    assert isinstance(one, CategoricalDistribution)
    assert isinstance(two, CategoricalDistribution)
    p, q = (each.logprobs[at].double().numpy()[free] for each in (one, two))
    kl = sum(math.exp(a) * (a - b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    return kl, bool(p.argmax() == q.argmax())


def _of_gaussians(
    one: GaussianDistribution, two: GaussianDistribution, at: int
) -> tuple[float, bool]:
    kl, agrees = 0.0, True
    for i in range(one.mean.shape[1]):
        (m, s), (n, t) = (
            (float(each.mean[at, i]), math.exp(float(each.log_std.detach()[i])))
            for each in (one, two)
        )
        kl += math.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5
        agrees &= abs(m - n) <= s
    return kl, agrees


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32), num_rows=st.integers(1, 5), spread=st.sampled_from([0.0, 0.1, 0.4])
)
def test_the_divergence_of_a_decision_is_the_sum_over_actors_and_actions(
    seed: int, num_rows: int, spread: float
) -> None:
    """Labels, selected entities and real numbers, with masks; rows without actors occur."""
    rng = np.random.default_rng(seed)
    asked = Asked(rng, num_rows)
    teacher = frozen(network(rng, spread))
    net = network(rng, spread)
    samples = net.act(asked.obs).samples
    zero = np.zeros(num_rows, np.float32)
    minibatch = Minibatch(asked.obs, samples, zero, zero, zero, zero)
    found = evaluate_beside(teacher, net, minibatch)
    assert found.teacher_kl is not None
    assert found.agreement is not None
    kls, agreements = by_book(asked, teacher, net)
    np.testing.assert_allclose(found.teacher_kl.detach(), kls, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.agreement, agreements, atol=1e-6)
    assert not found.agreement.requires_grad
    alone = net.evaluate(asked.obs, samples)
    for name in ("logprobs", "entropy", "values"):
        torch.testing.assert_close(getattr(found, name), getattr(alone, name))
    same = evaluate_beside(frozen(net), net, minibatch)
    assert same.teacher_kl is not None
    assert float(same.teacher_kl.detach().abs().max()) < 1e-6
    assert same.agreement is not None
    assert bool((same.agreement == 1).all())


def test_the_loss_grows_by_the_mean_divergence() -> None:
    rng = np.random.default_rng(1)
    asked = Asked(rng, 9)
    teacher, net = frozen(network(rng, 0.2)), network(rng, 0.2)
    figures = rng.normal(size=(4, 9)).astype(np.float32)
    minibatch = Minibatch(asked.obs, net.act(asked.obs).samples, *figures)
    new = evaluate_beside(teacher, net, minibatch)
    losses = {
        weight: ppo_loss(new, minibatch, config_at(weight))[0].item() for weight in (0.0, 0.7)
    }
    kls, agreements = by_book(asked, teacher, net)
    assert losses[0.7] - losses[0.0] == pytest.approx(0.7 * np.mean(kls), rel=1e-4)
    _, found = ppo_loss(new, minibatch, config_at(0.7))
    assert found[5:].tolist() == pytest.approx([np.mean(kls), np.mean(agreements)], rel=1e-4)
    loss, alone = ppo_loss(replace(new, teacher_kl=None), minibatch, config_at(0.7))
    assert loss.item() == losses[0.0]
    assert torch.equal(alone, found[:5])


def learnt(
    net: Policy,
    rollout: Rollout,
    config: PPOConfig,
    teacher: Policy | None,
    peers: Peers = ALONE,
) -> tuple[Policy, Losses]:
    """A copy of the network after learning, and the figures."""
    net = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-5)
    rng = np.random.default_rng(peers.rank)
    losses = learn(net, optimizer, rollout, config.at(0), rng, 1.0, peers, teacher)
    return net, losses


def distance(a: Policy, b: Policy) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VecXor, VecCherryPick, VecSigns])
def test_ranks_and_microbatches_learn_what_one_process_learns(kind: type[VecXor]) -> None:
    """Includes a rank without decisions."""
    net, rollout = rollout_of(kind, 1)
    teacher = frozen(rollout_of(kind, 2)[0])
    config = replace(WITH, minibatch_size=10**6, stay_close=3.0)
    alone, losses = learnt(net, rollout, config, teacher)
    assert losses.teacher_kl > 0
    parts, others = learnt(net, rollout, replace(config, microbatch_size=7), teacher)
    assert distance(alone, parts) < 2e-5
    np.testing.assert_allclose(astuple(others), astuple(losses), rtol=1e-3, atol=1e-4)
    owner = np.arange(len(rollout.b_inds)) % 3 % 2 * 2

    def work(peers: Peers) -> tuple[Policy, Losses]:
        share = replace(rollout, b_inds=rollout.b_inds[owner == peers.rank])
        return learnt(net, share, config, teacher, peers)

    for other, theirs in on_ranks(3, work):
        assert distance(alone, other) < 2e-5
        np.testing.assert_allclose(astuple(theirs), astuple(losses), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_large_weight_keeps_the_policy_where_it_is(dropout: float) -> None:
    net, rollout = rollout_of(VecXor, 1)
    if dropout:
        size = replace(SMALL, dropout=dropout)
        net = new_policy((net.obs_space, net.action_space), size, seed=1)
    start = {name: each.clone() for name, each in net.state_dict().items()}
    config = replace(CONFIG, update_epochs=8, net=replace(SMALL, dropout=dropout))
    found = {}
    for weight in (1e-9, 30.0):
        teacher = frozen(net)
        _, losses = learnt(net, rollout, replace(config, stay_close=weight), teacher)
        found[weight] = losses
        assert not teacher.training
        for name, each in teacher.state_dict().items():
            assert torch.equal(each, start[name])
    assert found[30.0].teacher_kl < 0.5 * found[1e-9].teacher_kl


@pytest.mark.slow
def test_without_a_weight_there_is_no_teacher(tmp_path: Path) -> None:
    first, begun = train(VecXor(), CONFIG).net, train(VecXor(), CONFIG).net
    nets = []
    for weight, name in ((0.0, "none"), (Schedule([(0, 0), (1, 0)]), "never")):
        out = tmp_path / name
        config = replace(CONFIG, stay_close=weight)
        result = train(VecXor(), config, policy=copy.deepcopy(begun), out=out)
        nets.append(result.net)
        assert not (out / TEACHER).exists()
        assert not {"losses/teacher_kl", AGREEMENT} & set(read_run(out).curves)
        assert math.isnan(result.progress.losses.teacher_kl)
    assert distance(*nets) == 0
    assert distance(first, nets[0]) > 0


@pytest.mark.slow
def test_a_run_goes_on_without_the_agent_that_it_began_with(tmp_path: Path) -> None:
    """The run equals one that was never stopped."""
    old, out = tmp_path / "old", tmp_path / "new"
    train(VecXor(), CONFIG, out=old)
    start = initialized_from(old)

    def go_on(
        out: Path, vec: VecXor, updates: int | None = None, resume: bool = False
    ) -> TrainResult:
        return train(
            vec,
            replace(WITH, stay_close=Schedule([(0, 0.5), (1, 0)])),
            policy=None if resume else start,
            out=out,
            on_update=None if updates is None else Stop(updates),
            resume=resume,
        )

    whole = go_on(tmp_path / "whole", Continuing())
    vec = Continuing()
    assert go_on(out, vec, 1).is_interrupted
    teacher = load_checkpoint(out / TEACHER).net
    assert distance(teacher, load_checkpoint(old).net) == 0
    shutil.rmtree(old)
    resumed = go_on(out, vec, resume=True)
    assert distance(whole.net, resumed.net) == 0
    assert distance(load_checkpoint(out / TEACHER).net, teacher) == 0
    curves = read_run(out).curves
    assert curves["losses/teacher_kl"].values.min() >= 0
    assert 0 <= curves[AGREEMENT].values.min() <= curves[AGREEMENT].values.max() <= 1
    assert curves["charts/stay_close"].values[0] == 0.5
    shutil.rmtree(out / TEACHER)
    with pytest.raises(CheckpointError, match=r"stay_close needs the network .* is not there"):
        go_on(out, VecXor(), resume=True)
    about = json.loads((out / "run.json").read_text())
    assert about["init_from"]["path"] == str(old)


@pytest.mark.slow
def test_a_checkpoint_elsewhere_brings_its_teacher(tmp_path: Path) -> None:
    train(VecXor(), CONFIG, out=tmp_path / "old")
    start = initialized_from(tmp_path / "old")
    train(VecXor(), WITH, policy=start, out=tmp_path / "new", on_update=Stop(1))
    for place in ("new", "new/checkpoint"):
        out = tmp_path / place.replace("/", "-again-")
        train(VecXor(), WITH, out=out, resume=tmp_path / place)
        first, second = (load_checkpoint(each / TEACHER).net for each in (tmp_path / "new", out))
        assert distance(first, second) == 0


def test_there_must_be_something_to_stay_close_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a trained network.*policy=initialized_from"):
        train(VecXor(), WITH)
    for wrong in (-1.0, math.nan, "0.2", [[0, 0.2], [1, -1]]):
        with pytest.raises(UsageError, match="stay_close must be"):
            CONFIG.changed({"stay_close": wrong})


@pytest.mark.slow
@pytest.mark.parametrize("net", [MLPConfig(hidden=(8,)), CNNConfig([(4, 3, 2)], (7,))])
def test_networks_of_fixed_size_have_teachers(net: MLPConfig | CNNConfig) -> None:
    config = replace(CONFIG, total_steps=64, net=net, norm_returns=True)
    with catch(8) as vec:
        start = train(vec, config).net
        found = train(vec, replace(config, stay_close=1.0), policy=start).progress.losses
    assert found.teacher_kl > 0


@pytest.mark.slow
def test_a_resumed_teacher_of_another_game_is_refused(tmp_path: Path) -> None:
    train(VecXor(), CONFIG, out=tmp_path / "old")
    train(VecXor(), WITH, policy=initialized_from(tmp_path / "old"), out=tmp_path / "new")
    train(VecSigns(), CONFIG, out=tmp_path / "signs")
    shutil.rmtree(tmp_path / "new" / TEACHER)
    shutil.copytree(tmp_path / "signs" / "checkpoint", tmp_path / "new" / TEACHER)
    with pytest.raises(CheckpointError, match="teacher does not fit the network: the"):
        train(VecXor(), replace(WITH, total_steps=512), out=tmp_path / "new", resume=True)
