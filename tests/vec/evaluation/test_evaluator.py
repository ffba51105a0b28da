"""Episodes from fixed starts equal those of the game; evaluations do not affect a run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import Game, Obs
from entity_env.agents import Agent, RandomAgent, ScriptedAgent, against, load_agent
from entity_env.agents.ppo import (
    Callback,
    EvaluationResult,
    PPOConfig,
    TrainProgress,
    TrainResult,
    TrainState,
    train,
)
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.folder import OPTIMIZER, read_header
from entity_env.agents.training.tracking.runs import read_run
from entity_env.authoring.action_type import ActionKey
from entity_env.core.episode import Episode
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.vec_obs import VecObs
from entity_env.errors import UsageError, WorkerError
from entity_env.games import tic_tac_toe
from entity_env.games.classic import CartPole
from entity_env.vec import BatchVecEnv, Evaluator, VecEnv
from entity_env.vec.evaluation.evaluator import best_reward
from entity_env.vec.evaluation.games import EvaluationGames
from entity_env.vec.evaluation.starts import play_starts
from tests.agents.ppo.small_envs import Clock
from tests.helpers.tiny_games import Move, ask, dots_game

CONFIG = PPOConfig(
    total_steps=1024,
    num_steps=16,
    num_threads=1,
    net=RogueNetConfig(d_model=8, n_layer=1, n_head=1, dropout=0.2),
)


def play_seeded(agent: Agent, *, seed: int) -> None:
    """Zero to 14 decisions with rewards from the seed; uses the shared random generators."""
    for i in range(seed % 15):
        if ask(agent, score=i * (seed % 7 - 3), x=random.random()) is None:
            return
    agent.game_over(Obs(seed % 15 * (seed % 7 - 3)).metric("odd", seed % 2))


seeded = dots_game(play_seeded)


def stay(obs: VecObs, _: object = None) -> dict[str, NDArray[np.int64]]:
    return {
        name: np.ones(len(mask.actors.values), np.int64) for name, mask in obs.action_masks.items()
    }


@given(
    num_envs=st.integers(1, 5),
    first=st.integers(0, 20),
    count=st.integers(1, 12),
    seed=st.integers(0, 2**40),
    max_length=st.none() | st.integers(1, 12),
)
def test_starts_are_played_as_the_game_plays_them(
    num_envs: int, first: int, count: int, seed: int, max_length: int | None
) -> None:
    seeds = EpisodeSeeds(seed)
    starts = [first + i for i in range(count) if seeds[first + i] % 15]
    with VecEnv(seeded, num_envs, autoreset="disabled") as vec:
        found = {}
        for start in starts:  # without episodes that end before the first decision
            played = play_starts(vec, stay, range(start, start + 1), seed, max_length=max_length)
            [([one], is_cut)] = played
            length = seeds[start] % 15
            assert is_cut == (max_length is not None and length > max_length)
            steps = min(length, max_length or length)
            reward = steps * (seeds[start] % 7 - 3)
            found[start] = one
            assert (one.reward, one.length, one.seed) == (reward, steps, seeds[start])
            assert (one.number, one.terminated, one.truncated) == (start, not is_cut, is_cut)
        if starts == list(range(first, first + count)):
            together = play_starts(
                vec, stay, range(first, first + count), seed, max_length=max_length
            )
            assert {one.number: one for [one], _ in together} == found


@pytest.mark.parametrize("num_calls", range(6))
def test_starts_that_run_when_time_is_over_are_truncated_not_lost(num_calls: int) -> None:
    with BatchVecEnv(CartPole, 3, autoreset="disabled") as vec:
        calls = itertools.count()
        played = play_starts(vec, stay, range(9), 1, is_over=lambda: next(calls) >= num_calls)
        found = {one.number: (one.length, one.truncated) for [one], _ in played}
    assert found == dict.fromkeys(range(3), (num_calls, True))


def test_environments_that_are_too_few_or_too_many_are_closed_and_replaced() -> None:
    made: list[VecEnv] = []

    def make(num_envs: int) -> VecEnv:
        made.append(VecEnv(seeded, num_envs, autoreset="disabled"))
        return made[-1]

    games = EvaluationGames(make, 8, RandomAgent, seed=1)
    for num_episodes, num_made in ((8, 1), (5, 1), (15, 1), (4, 2), (8, 3)):
        games._fit(num_episodes)
        assert len(made) == num_made
        assert games.vec is made[-1]
        assert [vec._is_closed for vec in made] == [*[True] * (num_made - 1), False]
    games.close()
    assert all(vec._is_closed for vec in made)


@given(num_envs=st.integers(1, 4), max_length=st.sampled_from([None, 15, 60]))
def test_a_batch_environment_plays_the_same_starts(num_envs: int, max_length: int | None) -> None:
    def played(count: int) -> dict[int, Episode]:
        with BatchVecEnv(CartPole, count, autoreset="disabled") as vec:
            found = play_starts(vec, stay, range(6), 2**61, max_length=max_length)
            return {one.number: one for [one], _ in found}

    first = played(6)
    lengths = {start: (one.reward, one.length, one.truncated) for start, one in first.items()}
    others = played(num_envs)
    assert {start: (e.reward, e.length, e.truncated) for start, e in others.items()} == lengths
    assert sorted(lengths) == list(range(6))


class Scores(Enum):
    """The action is the reward."""

    LOW = 0
    MIDDLE = 1
    HIGH = 2


def play_two(agents: tuple[Agent, Agent], *, seed: int) -> None:
    said = [agent.act_async(Obs(), Scores) for agent in agents]
    for agent, answer in zip(agents, said, strict=True):
        action = answer.get()
        agent.game_over(Obs(0 if action is None else action.value))


class Always:
    """A constant action; records whether it was for the learner or the opponent."""

    def __init__(self, value: int) -> None:
        self.value = value

    def decide_batch(self, obs: VecObs, schema: object = None) -> dict[str, NDArray[np.int64]]:
        [(name, mask)] = obs.action_masks.items()
        return {name: np.full(len(mask.actors.values), self.value)}

    choose_batch = decide_batch


class Run:
    """A run of 100 decisions from the point of view of an `Evaluator`."""

    def __init__(self, agent: object, out: Path | None = None) -> None:
        self.agent = agent
        self.sampled = agent
        self.kept: object = None
        """Action of the best network."""
        self.facts: dict[str, Any] = {}
        self.results: list[EvaluationResult] = []
        self.saved: list[Mapping[str, Any]] = []
        self.out = out

    def at(
        self,
        step: int,
        *,
        is_resumed: bool = False,
        stop_reason: str | None = None,
        is_interrupted: bool = False,
        error: Exception | None = None,
    ) -> TrainState:
        state = SimpleNamespace(
            error=error,
            stop_reason=stop_reason,
            progress=TrainProgress(step, 100, mean_length=5.0, steps_per_s=1e6),
            rank=0,
            out=self.out,
            is_resumed=is_resumed,
            net=SimpleNamespace(net_config=None),
            is_interrupted=is_interrupted,
            make_agent=lambda seed, greedy: self.agent if greedy else self.sampled,
            load_agent=lambda folder, seed, greedy: self.kept,
            reserve_time=lambda seconds: None,
            describe=lambda **facts: self.facts.update(facts),
            add_evaluation=self.results.append,
            save_copy=lambda folder, resumable, notes: self.saved.append(notes),
        )
        return cast(TrainState, state)


def evaluated(evaluator: Evaluator, run: Run, *steps: int) -> list[EvaluationResult]:
    evaluator.on_start(run.at(0))
    for step in steps:
        evaluator.on_update(run.at(step))
    evaluator.on_end(run.at(100))
    return run.results


def test_the_learner_has_every_seat_in_turn_and_the_opponent_the_others() -> None:
    two = Game(play_two, entities=(), actions=(Scores,), num_agents=2)
    for mine, theirs, rate in ((2, 1, 1.0), (1, 1, 0.5), (0, 2, 0.0)):
        opponent = cast(Callable[[int], Agent], lambda seed, theirs=theirs: Always(theirs))
        evaluator = Evaluator(two, episodes=6, opponent=opponent)
        [result] = evaluated(evaluator, Run(Always(mine)), 100)
        assert (result.mean_reward, result.metrics) == (mine, {"win_rate": rate})
        assert (result.num_episodes, result.std_reward, result.mean_length) == (6, 0, 1)


def test_bots_bots_the_learner_alone_is_asked() -> None:
    class Middle(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> Scores:
            return Scores.MIDDLE

    two = Game(play_two, entities=(), actions=(Scores,), num_agents=2)
    for mine, rate in ((2, 1.0), (1, 0.5), (0, 0.0)):
        evaluator = Evaluator(against(two, Middle), episodes=8)
        [result] = evaluated(evaluator, Run(Always(mine)), 100)
        assert (result.mean_reward, result.num_episodes) == (mine, 8)
        assert result.metrics == {"against/Middle": rate, "win_rate": rate}


@pytest.mark.slow
def test_random_moves_are_even_and_turns_are_counted() -> None:
    agent = RandomAgent(3)
    agent.choose_batch = lambda obs: agent.decide_batch(obs, tic_tac_toe.schema)  # type: ignore[attr-defined]
    [result] = evaluated(Evaluator(tic_tac_toe, episodes=300), Run(agent), 100)
    assert abs(result.mean_reward) < 0.2
    assert result.metrics["win_rate"] == pytest.approx(0.5 + result.mean_reward / 2)
    assert 2 < result.mean_length < 5


def test_an_interval_is_exact_and_the_end_is_always_evaluated() -> None:
    run = Run(SimpleNamespace(choose_batch=stay))
    results = evaluated(Evaluator(seeded, episodes=9, interval=25), run, 10, 24, 26, 49, 90, 100)
    assert [one.step for one in results] == [26, 90, 100]
    assert len({(one.mean_reward, one.mean_length, one.std_reward) for one in results}) == 1
    assert 0 < results[0].metrics["odd"] < 1


@pytest.mark.slow
def test_a_start_is_the_first_best_and_changes_no_bit(tmp_path: Path) -> None:
    plain, draws = trained(None)
    evaluator = Evaluator(seeded, interval=512, at_start=True)
    other, other_draws = trained(tmp_path, evaluator)
    assert draws == other_draws
    state = other.net.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in plain.net.state_dict().items())
    curves = read_run(tmp_path).curves
    assert curves["evaluation/mean_reward"].steps[0] == 0
    assert min(each.steps[0] for name, each in curves.items() if "evaluation" not in name) > 0
    assert best_reward(tmp_path / "best") == curves["evaluation/mean_reward"].values.max()


def test_a_start_is_kept_until_something_better_comes(tmp_path: Path) -> None:
    rewards = chain([3.0, 1.0, 2.0], repeat(2.0))  # at the end both networks are equal

    def play(agent: Agent, *, seed: int) -> None:
        if ask(agent) is not None:
            agent.game_over(Obs(next(rewards)))

    run = Run(SimpleNamespace(choose_batch=stay), tmp_path)
    run.kept = run.agent
    evaluator = Evaluator(dots_game(play), episodes=1, interval=50, at_start=True)
    evaluated(evaluator, run, 50, 100)
    assert [each.step for each in run.results] == [0, 50, 100]
    assert [each["evaluation"]["mean_reward"] for each in run.saved] == [3.0, 2.0]
    resumed = Run(None)
    evaluator.on_start(resumed.at(50, is_resumed=True))
    assert not resumed.results


@pytest.mark.parametrize("max_length", [None, 7])
def test_episodes_without_end_are_cut(
    max_length: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    def endless(agent: Agent, *, seed: int) -> None:
        score = 0
        while ask(agent, score=score) is not None:
            score += 1

    run = Run(SimpleNamespace(choose_batch=stay))
    evaluator = Evaluator(dots_game(endless), episodes=2, interval=50, max_length=max_length)
    first, _ = evaluated(evaluator, run, 50, 100)
    length = max_length or 300
    assert (first.mean_reward, first.mean_length, first.metrics) == (length, length, {"cut": 1.0})
    assert caplog.text.count("100 % of the evaluation episodes did not end in ") == 1


@pytest.mark.parametrize("reason", [None, "time is over"])
def test_a_run_that_is_stopped_ends_with_an_evaluation(reason: str | None) -> None:
    """Not after a signal, and not twice at one step."""
    is_interrupted = reason is None
    run = Run(SimpleNamespace(choose_batch=stay))
    evaluator = Evaluator(seeded, episodes=1, interval=25)
    evaluator.on_start(run.at(0))
    evaluator.on_update(run.at(25))
    evaluator.on_end(run.at(40, stop_reason=reason, is_interrupted=is_interrupted))
    assert [each.step for each in run.results] == [25, *([40] if reason else [])]
    evaluator.on_end(run.at(40, stop_reason=reason, is_interrupted=is_interrupted))
    assert len(run.results) == (2 if reason else 1)


def test_the_best_one_is_replaced_by_one_that_is_as_good(tmp_path: Path) -> None:
    rewards = itertools.chain([1.0, 3.0, 3.0], itertools.repeat(2.0))

    def play(agent: Agent, *, seed: int) -> None:
        if ask(agent) is not None:
            agent.game_over(Obs(next(rewards)))

    run = Run(SimpleNamespace(choose_batch=stay), tmp_path)
    run.kept = run.agent
    evaluator = Evaluator(dots_game(play), episodes=1, interval=25, clock=Clock())
    evaluated(evaluator, run, 25, 50, 75, 100)
    kept = [1.0, 3.0, 3.0, 2.0]  # and at the end the last, which is as good as step 75
    assert [each["evaluation"]["mean_reward"] for each in run.saved] == kept
    assert {each["evaluation"]["policy"] for each in run.saved} == {"greedy"}


def trained(out: Path | None, *callbacks: Callback) -> tuple[TrainResult, list[float]]:
    """A run, and the game's numbers from the shared random generators."""
    random.seed(5)
    np.random.seed(5)
    with VecEnv(seeded, 8) as vec:
        result = train(vec, CONFIG, out=out, callbacks=callbacks)
    return result, [random.random(), np.random.random()]


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [True, False])
def test_the_network_is_the_same_bit_by_bit(tmp_path: Path, greedy: bool) -> None:
    plain, draws = trained(None)
    evaluator = Evaluator(seeded, interval=128, greedy=greedy)
    other, other_draws = trained(tmp_path, evaluator)
    assert draws == other_draws
    state = other.net.state_dict()
    for name, tensor in plain.net.state_dict().items():
        assert torch.equal(tensor, state[name])
    curve = read_run(tmp_path).curves["evaluation/mean_reward"]
    assert len(curve.steps) == 8
    again = tmp_path / "again"
    trained(again, Evaluator(seeded, interval=128, greedy=greedy))
    assert np.array_equal(curve.values, read_run(again).curves["evaluation/mean_reward"].values)


@pytest.mark.slow
def test_the_best_one_plays_and_a_resumed_run_remembers_it(tmp_path: Path) -> None:
    trained(tmp_path, Evaluator(seeded, interval=512))
    best = tmp_path / "best"
    kept = read_header(best)
    values = read_run(tmp_path).curves["evaluation/mean_reward"].values
    step, facts = kept.training["step"], read_run(tmp_path).about["evaluated"]
    assert isinstance(facts, dict)
    assert facts["kept"] == step
    assert best_reward(best) in (values.max(), facts["last"]["mean_reward"])
    assert OPTIMIZER not in kept.files
    assert len(seeded.run(load_agent(best, seed=1), episodes=2)) == 2
    resumed = Evaluator(seeded)
    resumed.on_start(Run(None, tmp_path).at(50, is_resumed=True))
    run = Run(SimpleNamespace(choose_batch=stay), tmp_path)
    resumed.on_update(run.at(100))
    resumed.on_end(run.at(100))
    assert run.results[0].mean_reward == best_reward(best)
    assert len(run.saved) == 1  # on a tie, the last
    assert read_header(best).save == kept.save


def test_an_error_of_a_game_says_where_it_was(tmp_path: Path) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        if ask(agent) is Move.STAY:
            raise ArithmeticError("stumbled")
        agent.game_over()

    game = dots_game(play)
    run = Run(SimpleNamespace(choose_batch=stay))
    evaluator = Evaluator(game, episodes=3)
    evaluator.on_start(run.at(0))
    with pytest.raises(WorkerError, match=r"stumbled.*seed \d+") as caught:
        evaluator.on_update(run.at(100))
    assert "in an evaluation, after 100 decisions of training" in caught.value.__notes__
    evaluator.on_end(run.at(100, error=caught.value))
    restarting = Evaluator(
        lambda count: VecEnv(game, count, autoreset="disabled", on_error="restart"), episodes=3
    )
    [result] = evaluated(restarting, Run(SimpleNamespace(choose_batch=stay)), 100)
    assert result.metrics == {"failed": 1.0}


def test_what_cannot_be_evaluated_is_refused(tmp_path: Path) -> None:
    run = Run(SimpleNamespace(choose_batch=stay), tmp_path)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not a checkpoint but holds 'notes\.txt'"):
        Evaluator(seeded).on_start(run.at(0))
    with pytest.raises(UsageError, match="episodes"):
        Evaluator(seeded, episodes=0)
    running = Evaluator(lambda count: VecEnv(seeded, count), folder=tmp_path / "other")
    running.on_start(run.at(0))
    with pytest.raises(UsageError, match='with autoreset="disabled", got autoreset='):
        running.on_update(run.at(100))
    person = Evaluator(
        tic_tac_toe, opponent=lambda seed: load_agent("human"), folder=tmp_path / "other"
    )
    person.on_start(run.at(0))
    with pytest.raises(UsageError, match="must decide for batches") as caught:
        person.on_update(run.at(100))
    person.on_end(run.at(100, error=caught.value))
