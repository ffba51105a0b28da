"""Learning through time: segments, stored states, and everything that a run can do."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from entity_env import Game, GlobalCategorical, Obs
from entity_env.agents import Agent, load_agent
from entity_env.agents.ppo import PPOConfig, Schedule, TrainProgress, train
from entity_env.agents.ppo.learner import new_learner
from entity_env.agents.ppo.ppo import collect, learn, update
from entity_env.agents.ppo.rollout import Collector, RowMemory
from entity_env.agents.ppo.teacher import TeacherMemory
from entity_env.agents.rogue_net import MLPConfig, NumpyAgent, RogueNetConfig, initialized_from
from entity_env.agents.rogue_net.memory import RowStates
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.peers import Peers
from entity_env.agents.training.rollout_buffer import Rollout, Segments, evaluate_minibatch
from entity_env.agents.training.self_play.pool import OpponentPool
from entity_env.core.vec_obs import EntityBatch, VecObs
from entity_env.errors import CheckpointError
from entity_env.vec import Evaluator, VecEnv
from tests.agents.training.test_peers import distance, learnt, on_ranks
from tests.helpers.worker_games import faulty
from tests.helpers.worker_helpers import pid_of

NET: Final = RogueNetConfig(d_model=16, n_layer=1, memory=8)
SMALL: Final = PPOConfig(
    net=NET, num_steps=12, memory_steps=5, minibatch_size=24, total_steps=288, target_kl=0.1
)


@dataclass
class Card:
    """What is seen: a suit, at first, or nothing."""

    suit: int
    is_question: bool


class Suit(Enum):
    """The answers."""

    RED = 0
    BLUE = 1


SUIT = GlobalCategorical(Suit)


def _turn(agent: Agent, suit: int, t: int, delay: int) -> float | None:
    shown = Card(suit if t == 0 else -1, t == delay)
    chosen = agent.act(Obs(0.0).entities([shown]), SUIT)
    return None if chosen is None else float(chosen.value == suit)


def play(agent: Agent, *, seed: int, delay: int = 3, is_cut: bool = True) -> None:
    rng, is_right = random.Random(seed), 0.0
    suit = rng.randrange(2)
    for t in range(delay + 1):
        found = _turn(agent, suit, t, delay)
        if found is None:
            return
        is_right = found
        if is_cut and rng.random() < 0.1:
            agent.game_over(Obs(0.0).entities([Card(-1, False)]), truncated=True)
            return
    agent.game_over(Obs(is_right))


def play_in_turn(agents: Sequence[Agent], *, seed: int) -> None:
    rng = random.Random(seed)
    suits, right = [rng.randrange(2) for _ in agents], [0.0, 0.0]
    for t in range(rng.randrange(2, 5)):
        for i, agent in enumerate(agents):
            found = _turn(agent, suits[i], t, 2)
            if found is None:
                return
            right[i] = found
    for agent, score in zip(agents, right, strict=True):
        agent.game_over(Obs(score))


RECALL = Game(play, entities=(Card,), actions=(SUIT,), name="recall")
WHOLE = Game(partial(play, is_cut=False), entities=(Card,), actions=(SUIT,), name="whole")
TABLE = Game(play_in_turn, entities=(Card,), actions=(SUIT,), num_agents=2, name="table")


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 7))
def test_segments_cover_the_decisions_of_every_row(
    data: st.DataObject, num_rows: int, memory_steps: int
) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=40)))
    rng = np.random.default_rng(len(rows))
    states, begins = rng.random((len(rows), 2), np.float32), rng.random(len(rows)) < 0.3
    last = [np.flatnonzero(rows == row)[-1] for row in np.unique(rows)]
    inds = np.setdiff1d(np.arange(len(rows)), [i for i in last if rng.random() < 0.5])
    segments = Segments.cut(states, begins, rows, inds, memory_steps)
    assert sorted(segments.decisions.values.tolist()) == inds.tolist()
    for place in range(len(segments.decisions.lengths)):
        own = segments.decisions[place]
        assert 0 < len(own) <= memory_steps
        assert (segments.of[own] == place).all()
        everything = np.flatnonzero(rows == rows[own[0]])
        start = int(np.flatnonzero(everything == own[0])[0])
        assert_array_equal(everything[start : start + len(own)], own)
        assert start % memory_steps == 0
    several = rng.permutation(len(segments.decisions.lengths))
    chosen = segments.decisions[several]
    past = segments.past(chosen.values, states)
    assert_array_equal(past.lengths, chosen.lengths)
    if len(chosen.values):
        assert_array_equal(past.states, states[chosen.values[chosen.offsets[:-1]]])


def rollouts(
    game: Game, config: PPOConfig, count: int, num_envs: int = 6
) -> tuple[Policy, list[Rollout]]:
    """A network with random heads, and its rollouts."""
    with VecEnv(game, num_envs) as vec:
        net, collector = random_collector(vec, config)
        found = []
        for _ in range(count):
            collector.stagger()
            found.append(collect(collector, config.num_steps, ignore))
        return net, found


def random_collector(vec: VecEnv, config: PPOConfig) -> tuple[Policy, Collector]:
    """A network with random heads, and its collector."""
    learner = new_learner(vec, config)
    net = learner.net
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net, Collector(vec, net, learner.generator, vec.reset(seed=3), config.at(0), 1)


def ignore(_: VecObs) -> None: ...


@pytest.mark.parametrize("game", [RECALL, TABLE], ids=lambda game: game.name)
@pytest.mark.parametrize(
    "net", [NET, replace(NET, separate_value=True), replace(NET, n_layer=0)], ids=str
)
@pytest.mark.parametrize("memory_steps", [1, 5, 100])
def test_learning_sees_what_acting_saw(game: Game, net: RogueNetConfig, memory_steps: int) -> None:
    config = replace(SMALL, net=net, memory_steps=memory_steps, staggered_steps=30)
    policy, found = rollouts(game, config, 4)
    for rollout in found:
        assert_learning_sees_what_acting_saw(policy, rollout)
    assert max(np.abs(rollout.values).max() for rollout in found) > 0


def begin_in(obs: EntityBatch) -> NDArray[np.bool_]:
    """Rows that show the first observation of an episode: only there, a suit is shown."""
    if "Dot" in obs.features:
        return np.asarray(obs.features["Dot"].values[:, 0] == 0)
    return np.asarray(obs.features["Card"].values[:, 0] >= 0)


def assert_learning_sees_what_acting_saw(policy: Policy, rollout: Rollout) -> None:
    (inds,) = rollout.splits(np.random.default_rng(1), 1)
    assert sorted(inds.tolist()) == rollout.b_inds.tolist()
    assert rollout.segments is not None
    is_first = begin_in(rollout.obs)
    assert_array_equal(rollout.segments.begins, is_first)
    assert not rollout.segments.states[is_first].any()
    minibatch = rollout.minibatch(inds)
    new = evaluate_minibatch(policy, minibatch)
    assert_allclose(new.logprobs.detach(), minibatch.logprobs, atol=1e-4)
    assert_allclose(new.values.detach(), minibatch.values, atol=1e-4)


def test_a_failed_episode_ends_with_the_value_before_its_last_decision() -> None:
    """Its last observation is that of its last decision, which is not remembered twice."""

    def fail(agent: Agent, *, seed: int) -> None:
        _turn(agent, seed % 2, 0, 1)
        raise ArithmeticError("stumbled")

    game = Game(fail, entities=(Card,), actions=(SUIT,), name="failing")
    with VecEnv(game, 4, on_error="restart") as vec:
        _, collector = random_collector(vec, replace(SMALL, gamma=0.9))
        rollout = collect(collector, 6, ignore)
    assert np.abs(rollout.values).min() > 0
    assert_allclose(rollout.advantages, (0.9 - 1) * rollout.values, rtol=1e-4)


def test_an_episode_longer_than_rollouts_and_segments() -> None:
    policy, found = rollouts(WHOLE.with_settings(delay=40), SMALL, 5)
    begins = [each.segments.begins for each in found if each.segments is not None]
    assert [int(each.sum()) for each in begins] == [6, 0, 0, 6, 0]
    for rollout in found:
        assert_learning_sees_what_acting_saw(policy, rollout)


@pytest.mark.slow
def test_a_killed_worker_is_forgotten_in_the_middle_of_a_segment() -> None:
    with VecEnv(faulty, 6, 2, on_error="restart") as vec:
        net, collector = random_collector(vec, SMALL)
        num_steps, states = 0, RowStates(1)
        states.advance(collector.next_obs, states.past(collector.next_obs).states + 1)

        def count_and_kill(obs: VecObs) -> None:
            nonlocal num_steps
            num_steps += 1
            counts = states.past(obs).states
            assert_array_equal(counts[:, 0] == 0, begin_in(obs))
            states.advance(obs, counts + 1)
            if num_steps in (3, 17):
                os.kill(pid_of(1), signal.SIGKILL)

        for _ in range(3):
            assert_learning_sees_what_acting_saw(net, collect(collector, 12, count_and_kill))
        assert vec.statistics().num_restarts == 6


@pytest.mark.parametrize("where", ["advance", "after_step"])
def test_an_interrupted_rollout_leaves_nothing_half_stored(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    num_steps = 0

    def after_step(_: VecObs) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 5:
            if where == "after_step":
                raise KeyboardInterrupt
            patch.setattr(RowMemory, "advance", interrupt)

    with VecEnv(RECALL, 6) as vec:
        net, collector = random_collector(vec, SMALL)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            collect(collector, 12, after_step)
        for _ in range(2):
            assert_learning_sees_what_acting_saw(net, collect(collector, 12, ignore))


@pytest.mark.slow
def test_a_run_interrupted_before_it_remembers_can_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, num_calls = RowMemory.advance, 0

    def interrupted(*args: Any) -> None:  # noqa: ANN401 - as `advance`
        nonlocal num_calls
        num_calls += 1
        if num_calls == 30:
            raise KeyboardInterrupt
        advance(*args)

    monkeypatch.setattr(RowMemory, "advance", interrupted)
    with VecEnv(RECALL, 8) as vec:
        first = train(vec, SMALL, out=tmp_path)
        assert first.is_interrupted
        assert first.progress.step == 192  # two whole rollouts
        resumed = train(vec, SMALL, out=tmp_path, resume=True)
        assert (resumed.is_interrupted, resumed.progress.step) == (False, 288)


def test_a_teacher_remembers_on_its_own() -> None:
    policy, found = rollouts(TABLE, SMALL, 4)
    memory = TeacherMemory(policy, 12)
    for rollout in found:
        segments = memory.add_to(rollout).segments
        assert segments is not None
        assert segments.teacher_states is not None
        assert_allclose(segments.teacher_states, segments.states, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "num_remembered"), [(((0.4, 0), (0.6, 1)), 8), (((0.2, 1), (0.6, 0)), 5)]
)
def test_a_teacher_remembers_while_it_is_not_needed_yet(
    points: tuple[tuple[float, float], ...], num_remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_to, num_calls = TeacherMemory.add_to, 0

    def counted(memory: TeacherMemory, rollout: Rollout) -> Rollout:
        nonlocal num_calls
        num_calls += 1
        return add_to(memory, rollout)

    monkeypatch.setattr(TeacherMemory, "add_to", counted)
    with VecEnv(WHOLE, 6) as vec:
        net = make_policy(vec.obs_space(), vec.action_space(), NET)
        config = replace(SMALL, num_steps=6, stay_close=Schedule(points))
        train(vec, config, policy=net)
    assert num_calls == num_remembered


@pytest.mark.slow
def test_microbatches_of_segments_add_up() -> None:
    policy, [rollout] = rollouts(RECALL, SMALL, 1, 20)
    gradients = []
    for size in (None, 1, 7, 30, 10_000):
        config = replace(SMALL, microbatch_size=size, minibatch_size=10_000, update_epochs=1)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
        learn(policy, optimizer, rollout, config.at(0), np.random.default_rng(1))
        gradients.append([each.grad for each in policy.parameters() if each.grad is not None])
        for one, other in zip(gradients[0], gradients[-1], strict=True):
            assert_allclose(one, other, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 9))
def test_parts_keep_segments_whole(seed: int, most: int, memory_steps: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 6, 80)
    nothing = np.zeros((80, 0), np.float32)
    inds = np.arange(80)
    segments = Segments.cut(nothing, np.zeros(80, np.bool_), rows, inds, memory_steps)
    values = np.zeros(80, np.float32)
    _, [example] = EXAMPLE
    rollout = replace(example, b_inds=inds, segments=segments, values=values)
    for mb_inds in rollout.splits(rng, 3):
        parts = rollout.parts(mb_inds, most)
        assert np.concatenate(parts).tolist() == list(range(len(mb_inds)))
        owners = [set(segments.of[mb_inds[part]].tolist()) for part in parts]
        assert sum(map(len, owners)) == len(set().union(*owners))
        assert all(len(part) <= max(most, memory_steps) for part in parts)


EXAMPLE: Final = rollouts(RECALL, SMALL, 1)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_ranks_with_different_numbers_of_segments(share: float) -> None:
    policy, [_, rollout] = rollouts(TABLE, SMALL, 2, 10)
    segments = rollout.segments
    assert segments is not None
    is_mine = np.random.default_rng(1).random(rollout.num_units) < share
    alone, figures = learnt(policy, rollout, replace(SMALL, minibatch_size=10**6, update_epochs=2))

    def work(peers: Peers, minibatch_size: int = 10**6) -> tuple[Policy, list[float]]:
        decisions = segments.decisions[np.flatnonzero(is_mine == (peers.rank == 1))]
        own = replace(segments, decisions=decisions)
        part = replace(rollout, b_inds=np.sort(decisions.values), segments=own)
        config = replace(SMALL, minibatch_size=minibatch_size, update_epochs=2)
        return learnt(policy, part, config, peers)

    for net, theirs in on_ranks(2, work):
        assert distance(policy, alone) > 0
        assert distance(alone, net) < 2e-5
        assert_allclose(theirs, figures, rtol=1e-3, atol=1e-4)
    first, second = on_ranks(2, partial(work, minibatch_size=1))
    assert distance(first[0], second[0]) == 0


@pytest.mark.slow
def test_ranks_with_different_numbers_of_decisions_and_rows() -> None:
    """One rank plays a game in turns in 3 copies, the other a longer one in 7."""
    sources = [(TABLE, 3), (WHOLE.with_settings(delay=30), 7)]
    config = replace(SMALL, minibatch_size=20)

    def work(peers: Peers) -> tuple[Policy, list[int]]:
        game, num_envs = sources[peers.rank]
        with VecEnv(game, num_envs) as vec:
            learner = new_learner(vec, config)
            peers.copy_from_first(learner.net)  # threads share torch's random generator
            obs = vec.reset(seed=peers.rank)
            collector = Collector(vec, learner.net, learner.generator, obs, config.at(0), 1)
            units = []
            for _ in range(3):
                rollout = collect(collector, config.num_steps, ignore)
                units += [len(rollout), rollout.num_units]
                update(learner, rollout, config.at(0), peers)
            return learner.net, units

    (first, units), (second, others) = on_ranks(2, work)
    assert all(one != other for one, other in zip(units, others, strict=True))
    assert distance(first, second) == 0


# ------------------------------------------------------------------ runs


@pytest.mark.slow
def test_a_run_with_everything(tmp_path: Path) -> None:
    config = replace(
        SMALL,
        microbatch_size=10,
        ent_coef=Schedule(((0.0, 0.1), (1.0, 0.0))),
        staggered_steps=20,
        norm_returns=True,
    )
    with VecEnv(RECALL, 8) as vec:
        evaluator = Evaluator(RECALL, episodes=4, interval=96)
        result = train(vec, config, out=tmp_path, callbacks=[evaluator])
        assert result.progress.step == 288
        assert "evaluation/mean_reward" in result.progress.metrics
        longer = replace(config, total_steps=480)
        resumed = train(vec, longer, out=tmp_path, resume=True)
        assert resumed.progress.step == 480
        other = replace(longer, net=replace(NET, memory=4))
        with pytest.raises(CheckpointError, match="memory=4"):
            train(vec, other, out=tmp_path, resume=True)
    agent = load_agent(tmp_path / "checkpoint")
    assert RECALL.play_episode(agent, seed=1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run() -> None:
    weights = []
    for _ in range(2):
        with VecEnv(RECALL, 8) as vec:
            net = train(vec, SMALL).net
        weights.append(torch.cat([each.reshape(-1) for each in net.state_dict().values()]))
    assert torch.equal(*weights)


@pytest.mark.slow
def test_opponents_and_past_selves_remember(tmp_path: Path) -> None:
    with VecEnv(RECALL, 4) as vec:
        train(vec, SMALL, out=tmp_path / "alone")
    with VecEnv(TABLE, 8) as vec:
        old = str(tmp_path / "alone" / "checkpoint")
        shares = {"self": 0.5, old: 0.3}
        for resume in (False, True):
            pool = OpponentPool(vec, TABLE.schema, shares, snapshot_every=50)
            config = replace(SMALL, total_steps=300 * (1 + resume))
            train(pool.vec, config, out=tmp_path / "run", resume=resume, callbacks=[pool])
    assert list((tmp_path / "run" / "opponents").glob("*.agent"))


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 4])
def test_only_a_network_without_memory_is_advised_to_get_one(memory: int) -> None:
    """Also if the network is given, whatever the settings say."""
    small = RogueNetConfig(d_model=8, n_layer=0, n_head=1)
    with VecEnv(WHOLE, 16) as vec:
        net = make_policy(vec.obs_space(), vec.action_space(), replace(small, memory=memory))
        config = replace(SMALL, net=small, num_steps=64, total_steps=10_240, learning_rate=1e-9)
        config = replace(config, minibatch_size=1024, update_epochs=1)
        hints = train(vec, config, policy=net).hints
    assert any("net.memory=32" in hint for hint in hints) == (memory == 0)


NETS: Final[dict[str, RogueNetConfig | MLPConfig]] = {
    "rogue_net": replace(NET, memory=0, value_scale=True),
    "separate": replace(NET, memory=0, value_scale=True, separate_value=True),
    "mlp": MLPConfig((8, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETS)
def test_a_network_gets_a_memory_without_effect_at_first(tmp_path: Path, kind: str) -> None:
    game, net = RECALL, NETS[kind]
    small = replace(SMALL, net=net, norm_returns=True)
    if kind == "mlp":
        game = FLAT
    with VecEnv(game, 8) as vec:
        old = train(vec, small, out=tmp_path).net
        wanted = replace(net, memory=6)
        make = initialized_from(tmp_path, net=wanted)
        new = make(vec.obs_space(), vec.action_space())
        obs = vec.reset(seed=1)
        for _ in range(5):
            decided = [
                each.act(obs, generator=torch.Generator().manual_seed(1)) for each in (old, new)
            ]
            assert_allclose(decided[0].logprobs, decided[1].logprobs, atol=1e-5)
            assert_allclose(decided[0].values, decided[1].values, atol=1e-5)
            obs = vec.act(decided[0].actions)
        tuned = replace(small, net=wanted, stay_close=0.1)
        result = train(vec, tuned, policy=make, out=tmp_path / "tuned")
        assert result.progress.losses.teacher_kl >= 0
        again = replace(tuned, total_steps=400)
        train(vec, again, out=tmp_path / "tuned", resume=True)
        with pytest.raises(CheckpointError, match="memory"):
            initialized_from(tmp_path / "tuned", net=replace(wanted, memory=3))
        with pytest.raises(CheckpointError, match="memory"):
            initialized_from(tmp_path / "tuned", net=replace(wanted, memory=0))


def play_flat(agent: Agent, *, seed: int) -> None:
    rng = random.Random(seed)
    suit, is_right = rng.randrange(2), 0.0
    for t in range(4):
        shown = Card(suit if t == 0 else -1, t == 3)
        chosen = agent.act(Obs(0.0).globals(shown), SUIT)
        if chosen is None:
            return
        is_right = float(chosen.value == suit)
    agent.game_over(Obs(is_right))


FLAT = Game(play_flat, entities=(), global_features=Card, actions=(SUIT,), name="flat_recall")


@pytest.mark.slow
@pytest.mark.parametrize("net", [replace(NET, memory=16), MLPConfig((32, 32), memory=16)], ids=str)
def test_memory_is_learned(net: RogueNetConfig | MLPConfig) -> None:
    game = FLAT if isinstance(net, MLPConfig) else RECALL
    with VecEnv(game, 16) as vec:
        config = PPOConfig.for_env(vec, total_steps=16_000, net=net, num_steps=64)
        seen: list[TrainProgress] = []
        result = train(vec, config, on_update=seen.append)
    agent = NumpyAgent(result.net.weights(), greedy=True)
    whole = game if game is FLAT else WHOLE
    scores = [whole.play_episode(agent, seed=seed)[0].reward for seed in range(60)]
    assert np.mean(scores) > 0.95
