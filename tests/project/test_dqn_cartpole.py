"""The value-learning loop: stored transitions are correct; with wrong flags, values are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from entity_env import (
    ActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    VecActions,
    VecObs,
)
from entity_env.games.classic import CartPole
from entity_env.vec import BatchEnv, BatchSeed, BatchVecEnv, ReplayBuffer, ResetMask, StepResult
from entity_env.vec.batch_env.batch_env import BatchActions
from examples import dqn_cartpole
from examples.dqn_cartpole import (
    SOLVED,
    Moment,
    Run,
    Settings,
    evaluate,
    inputs,
    learn,
    new_network,
    picture,
    td_loss,
    train,
)

WALK, JUMP = 0, 1
NUM_CELLS = 5
MAX_STEPS = 3
GAMMA = 0.9
WALK_VALUE = 0.5 / (1 - GAMMA)
JUMP_VALUE = 1.0
TABLE = Settings(
    steps=8_000,
    num_envs=16,
    updates_per_step=1,
    batch_size=64,
    width=0,
    gamma=GAMMA,
    learning_rate=0.1,
    target_share=0.1,
    last_epsilon=1.0,  # all actions are random, so data do not depend on what was learned
)


class Ledge(BatchEnv):
    """A path along a ledge: walking earns 0.5 per step; jumping off earns 1 and terminates.

    The cells form a ring, observed one-hot, and jumping is optional; episodes are truncated after
    `MAX_STEPS`. So walking is worth `0.5 / (1 - gamma)` everywhere, and jumping 1.
    """

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, NUM_CELLS)
        self.cells = np.zeros(num_envs, dtype=np.int64)
        self.steps = np.zeros(num_envs, dtype=np.int64)
        self.result = StepResult(
            np.zeros((num_envs, NUM_CELLS), dtype=np.float32),
            np.zeros(num_envs, dtype=np.float32),
            np.zeros(num_envs, dtype=np.uint8),
            np.zeros(num_envs, dtype=np.uint8),
        )

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Walker": Entity([f"cell_{i}" for i in range(NUM_CELLS)])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(["WALK", "JUMP"])}

    def view(self) -> StepResult:
        self.result.observations[:] = np.eye(NUM_CELLS)[self.cells]
        return self.result

    def reset(self, seed: BatchSeed | None = None) -> None:
        self.begin(np.ones(self.num_envs, dtype=np.bool_))

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self.begin(mask.to_bool())

    def begin(self, chosen: NDArray[np.bool_]) -> None:
        self.cells[chosen] = np.arange(self.num_envs)[chosen] % NUM_CELLS
        self.steps[chosen] = 0
        self.result.terminals[chosen] = 0
        self.result.truncations[chosen] = 0

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        walks = np.asarray(actions) == WALK
        self.cells[walks] = (self.cells[walks] + 1) % NUM_CELLS
        self.steps += 1
        self.result.rewards[:] = np.where(walks, 0.5, 1.0)
        self.result.terminals[:] = ~walks
        self.result.truncations[:] = self.steps == MAX_STEPS
        return self.view()


class FlagsLost(BatchVecEnv):
    """Environments as seen by a loop with automatic resets that ignores the flags."""

    def act(self, actions: VecActions) -> VecObs:
        obs = super().act(actions)
        nothing = np.zeros(len(obs), dtype=np.bool_)
        return replace(obs, terminated=nothing, truncated=nothing, final=None, episodes=())


def disabled(env: BatchEnv) -> BatchVecEnv:
    """Environments without automatic resets, as in the example."""
    return BatchVecEnv(env, autoreset="disabled")


class Constant(nn.Module):
    """Has constant values of the actions."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = torch.tensor(values)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.values.expand(len(obs), -1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, as in the example; restores the number for other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def last(moments: Iterator[Moment]) -> Moment:
    *_, moment = moments
    return moment


def values_of(network: nn.Module) -> NDArray[np.float32]:
    """`(NUM_CELLS, 2)`: the value of every action in every cell."""
    with torch.no_grad():
        values: NDArray[np.float32] = network(torch.eye(NUM_CELLS)).numpy()
    return values


@pytest.mark.slow
def test_values_are_exact_and_with_flags_lost_they_are_wrong() -> None:
    """Exact: no value after termination, and truncation does not reduce values. Without the flags,
    a jump leads to the next start and is worth `1 + gamma * 10`, so jumping seems best."""
    true = last(learn(disabled(Ledge(TABLE.num_envs)), 2, TABLE)).network
    lost = last(learn(FlagsLost(Ledge(TABLE.num_envs)), 2, TABLE)).network

    assert_allclose(values_of(true), [[WALK_VALUE, JUMP_VALUE]] * NUM_CELLS, atol=0.15)
    forever = JUMP_VALUE / (1 - GAMMA)
    wrong = [[0.5 + GAMMA * forever, JUMP_VALUE + GAMMA * forever]] * NUM_CELLS
    assert_allclose(values_of(lost), wrong, atol=0.3)

    env = Ledge(10)
    assert_array_equal(evaluate(true, env, seed=0), [0.5 * MAX_STEPS] * 10)
    assert_array_equal(evaluate(lost, env, seed=0), [1.0] * 10)


@pytest.mark.slow
def test_what_is_remembered_is_true() -> None:
    """Every transition is one step of the physics, whatever happens to the episode."""
    max_steps, num_envs, num_steps = 10, 64, 60
    env = CartPole(num_envs, max_episode_steps=max_steps)
    settings = Settings(steps=num_envs * num_steps, width=16, updates_per_step=4)
    moments = list(learn(disabled(env), 2, settings))
    assert [moment.step for moment in moments] == [num_envs * (1 + i) for i in range(num_steps)]
    assert all(np.isfinite(moment.loss) for moment in moments)

    num = len(moments[-1].replay)
    assert num == settings.steps
    memory = moments[-1].replay.select(np.arange(num))
    obs, next_obs = inputs(memory.obs), inputs(memory.next_obs)
    rewards, terminals = memory.next_obs.reward, memory.next_obs.terminated
    actions = memory.actions["Push"].values
    again = CartPole(num)
    again.set_state(obs)
    result = again.step_no_reset_with_result(actions)
    assert_array_equal(next_obs, result.observations)
    assert_array_equal(rewards, result.rewards)
    assert_array_equal(terminals, result.terminals)

    # If an environment's next row starts elsewhere, an episode has ended.
    shape = (num_steps, num_envs, -1)
    obs, next_obs = obs.reshape(shape), next_obs.reshape(shape)
    ended = (obs[1:] != next_obs[:-1]).any(axis=2)
    falls = terminals.reshape(num_steps, num_envs)[:-1] == 1
    cuts = ended & ~falls
    assert (ended | ~falls).all()
    assert (np.abs(obs[1:][ended]) <= 0.05).all()
    assert (np.abs(next_obs[:-1][ended]) > 0.05).any(axis=1).all()
    assert falls.sum() > 50
    assert cuts.sum() > 50
    assert set(lengths_of(ended)[cuts]) == {max_steps}


def lengths_of(ended: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number of steps so far in the episode of each row."""
    lengths = np.zeros(ended.shape, dtype=np.int64)
    running = np.zeros(ended.shape[1], dtype=np.int64)
    for step, ends in enumerate(ended):
        running += 1
        lengths[step] = running
        running[ends] = 0
    return lengths


@pytest.mark.slow
def test_the_same_seed_learns_the_same() -> None:
    settings = Settings(steps=640, width=8)

    def weights(seed: int) -> NDArray[np.float32]:
        moment = last(learn(disabled(CartPole(64)), 2, replace(settings, seed=seed)))
        parameters: NDArray[np.float32] = (
            torch.cat([weight.flatten() for weight in moment.network.parameters()]).detach().numpy()
        )
        return parameters

    first = weights(1)
    torch.rand(7)  # random numbers of others do not matter
    assert_array_equal(weights(1), first)
    assert not np.allclose(weights(2), first)


def test_the_mean_return_is_that_of_episodes_that_ended() -> None:
    env = Ledge(4)
    moments = list(learn(disabled(env), 2, replace(TABLE, steps=4 * MAX_STEPS, last_epsilon=0.0)))
    shown = moments[-1].replay.select(np.arange(4 * MAX_STEPS)).next_obs
    rewards, ends = (each.reshape(MAX_STEPS, 4) for each in (shown.reward, shown.terminated))
    returns = []
    running = np.zeros((4, 2))
    for step, moment in enumerate(moments):
        for i in range(4):
            running[i] += (float(rewards[step, i]), 1)
            if ends[step, i] or running[i, 1] == MAX_STEPS:
                returns.append(running[i, 0])
                running[i] = 0
        assert moment.mean_return == pytest.approx(np.mean(returns or [0.0]))
    assert returns


def test_the_loss_by_hand() -> None:
    """The online network chooses the next action, the target network supplies its value."""
    replay = ReplayBuffer(2)
    env = disabled(Ledge(2))
    obs = env.reset().copy()
    next_obs = env.act({"Move": np.zeros(2, dtype=np.int64)}).copy()
    next_obs.reward[:], next_obs.terminated[:] = [1.0, 2.0], [False, True]
    replay.add(obs, {"Move": np.array([0, 1])}, next_obs)
    batch = replay.select([0, 1])
    # Targets 1 + 0.5 * 10 and 2, values 3 and 4: errors 3 and 2, with Huber losses 2.5 and 1.5.
    loss = td_loss(Constant(3.0, 4.0), Constant(20.0, 10.0), batch, gamma=0.5)
    assert float(loss) == 2.0


def test_epsilon_falls_and_stays() -> None:
    settings = Settings(steps=1000, exploration=0.5, last_epsilon=0.1)
    shown = [settings.epsilon(step) for step in (0, 250, 500, 1000)]
    assert shown == pytest.approx([1.0, 0.55, 0.1, 0.1])


@pytest.mark.parametrize("width", [0, 8])
def test_the_network_values_every_action(width: int) -> None:
    assert new_network(3, 2, width)(torch.zeros(5, 3)).shape == (5, 2)


def test_evaluation_counts_one_episode_each() -> None:
    env = CartPole(8)
    returns = evaluate(Constant(0.0, 1.0), env, seed=3)
    env.reset(3)
    for i, expected in enumerate(returns):
        one = CartPole(1)
        one.reset(int(env.env_seeds(3)[i]))
        length = 1
        while not one.step_no_reset_with_result(np.ones(1, dtype=np.int64)).is_done(0):
            length += 1
        assert length == expected


def test_the_best_of_a_run_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    grades = iter([10.0, 30.0, 30.0, 20.0])
    played: list[nn.Module] = []

    def graded(network: nn.Module, env: BatchEnv, seed: int) -> NDArray[np.float64]:
        played.append(network)
        return np.array([next(grades)])

    monkeypatch.setattr(dqn_cartpole, "evaluate", graded)
    settings = Settings(steps=1000, steps_per_evaluation=300, width=4, updates_per_step=1)
    run = train(settings, Console(quiet=True))
    assert [row[:2] for row in run.curve] == [(320, 10), (640, 30), (960, 30)]
    assert run.step == 960
    assert run.network is not played[-1]


def test_the_picture_shows_the_curve() -> None:
    curve = [(100, 20.0, 10.0), (200, 500.0, 30.0), (300, 250.0, 40.0)]
    svg = ElementTree.fromstring(picture(Run(nn.Identity(), 200, curve), "A title"))
    texts = [text.text for text in svg.findall("{*}text")]
    assert {"A title", "0", "500", "300", "mean return", "solved: 475"} <= set(texts)
    lines = [line.get("points") for line in svg.findall("{*}polyline")]
    assert "266.7,338.0 473.3,50.0 680.0,200.0" in lines
    assert "473.3,50.0 473.3,50.0" in lines  # the dot


@pytest.mark.slow
def test_the_script_reports_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "1280", "--seed", "2", "--out", str(tmp_path / "new")]
    mean = dqn_cartpole.main([*words, "--json"])
    said = capsys.readouterr()
    shown = json.loads(said.out)
    assert shown["mean_return"] == mean
    assert [row[0] for row in shown["curve"]] == [1280]
    ElementTree.parse(tmp_path / "new" / "learning_curve.svg")

    assert dqn_cartpole.main(words) == mean
    said = capsys.readouterr()
    assert "step   1,280" in said.out
    assert f"mean return {mean:.1f} (solved: 475)" in said.out
    assert said.err == ""


@pytest.mark.parametrize("words", [["--steps", "10"], ["--seed", "-1"]])
def test_the_script_refuses_what_makes_no_sense(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        dqn_cartpole.main(words)
    assert "--steps must be 64 or more, --seed 0 or more" in capsys.readouterr().err


def test_the_script_is_short_enough_to_be_read() -> None:
    assert len(Path(dqn_cartpole.__file__).read_text().splitlines()) <= 300


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cart_pole_is_solved(tmp_path: Path) -> None:
    assert dqn_cartpole.main(["--out", str(tmp_path)]) >= SOLVED


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cart_pole_is_not_solved_with_flags_lost() -> None:
    """Every state, even just before a fall, then seems worth nearly `1 / (1 - gamma)`, so no action
    is better than another."""
    settings = Settings(steps=64_000)
    moment = last(learn(FlagsLost(CartPole(settings.num_envs)), 2, settings))
    assert evaluate(moment.network, CartPole(100), seed=10_000).mean() < SOLVED / 4
    with torch.no_grad():
        obs = moment.replay.select(np.arange(settings.steps)).obs
        values = moment.network(torch.from_numpy(inputs(obs)))
    assert_allclose(values, 1 / (1 - settings.gamma), rtol=0.05)  # not fully converged
    assert float(values.max() - values.min()) < 1.0
