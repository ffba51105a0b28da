"""The end of an evaluated run: the better network is kept, and weak greedy play is reported."""

from __future__ import annotations

import itertools
import os
import random
import signal
from pathlib import Path

import pytest

from entity_env import Game, Obs
from entity_env.agents import Agent, RandomAgent, ScriptedAgent
from entity_env.agents.ppo import Callback, EvaluationResult, TrainState, train
from entity_env.agents.rogue_net import (
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    read_network,
    save_checkpoint,
)
from entity_env.agents.training.tracking.runs import read_about, read_run
from entity_env.authoring.action_type import ActionKey
from entity_env.core.episode import Episode
from entity_env.replay.replay import Replay
from entity_env.vec import Evaluator, VecEnv
from entity_env.vec.evaluation.evaluator import BEST
from entity_env.vec.evaluation.final import is_clearly_better, is_much_worse, plays_greedily
from entity_env.vec.evaluation.games import Played
from tests.agents.ppo.small_envs import Clock
from tests.helpers.tiny_games import Move, ask, dots_game
from tests.vec.evaluation.test_evaluator import CONFIG, Always, Run, Scores, play_two, seeded, stay


def play_one(agent: Agent, *, seed: int) -> None:
    action = agent.act(Obs(), Scores)
    agent.game_over(Obs(0 if action is None else action.value))


one = Game(play_one, entities=(), actions=(Scores,))
two = Game(play_two, entities=(), actions=(Scores,), num_agents=2)


def finished(run: Run, evaluator: Evaluator, last: object, *, is_interrupted: bool = False) -> None:
    """A run whose best network is from step 25 and is evaluated with `run.agent`."""
    evaluator.on_start(run.at(0))
    evaluator.on_update(run.at(25))
    run.agent = run.sampled = last
    evaluator.on_end(run.at(80, is_interrupted=is_interrupted))


class Ticking(Clock):
    """A clock that advances each time it is read."""

    def __init__(self, tick_s: float) -> None:
        super().__init__()
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now


@pytest.mark.parametrize(("value", "kept"), [(0, 80), (1, 80), (2, 25)])
def test_fresh_episodes_decide_which_network_is_kept(tmp_path: Path, value: int, kept: int) -> None:
    """On a tie, the last; earlier evaluations do not count."""
    run = Run(Always(2), tmp_path)
    run.kept = Always(value)
    evaluator = Evaluator(one, episodes=4, interval=25, clock=Clock())
    finished(run, evaluator, Always(1))
    facts = run.facts["evaluated"]
    assert (facts["kept"], len(run.saved)) == (kept, 1 + (kept == 80))
    assert (facts["policy"], facts["last"]["step"], facts["best"]["step"]) == ("greedy", 80, 25)
    assert facts["best"]["mean_reward"] == value
    assert (facts["last"]["mean_reward"], facts["last"]["num_episodes"]) == (1, 100)
    assert run.results[-1].step == 80


@pytest.mark.parametrize(("value", "kept"), [(0, 80), (1, 80), (2, 25)])
def test_networks_of_a_game_for_two_play_each_other(tmp_path: Path, value: int, kept: int) -> None:
    run = Run(Always(2), tmp_path)
    run.kept = Always(value)
    finished(run, Evaluator(two, episodes=4, interval=25, clock=Clock()), Always(1))
    facts = run.facts["evaluated"]
    wins = {0: 1.0, 1: 0.5, 2: 0.0}[value]
    assert facts["kept"] == kept
    assert facts["match"] == {"win_rate": wins, "num_episodes": 100}


def test_after_a_signal_there_is_little_time(tmp_path: Path) -> None:
    """No evaluation from the fixed starts; the networks are compared if possible."""
    for seconds, num_saved in ((0.0, 2), (1.0, 1)):
        run = Run(Always(2), tmp_path)
        run.kept = Always(0)
        evaluator = Evaluator(one, episodes=4, interval=25, clock=Ticking(seconds))
        finished(run, evaluator, Always(1), is_interrupted=True)
        assert [each.step for each in run.results] == [25]
        assert len(run.saved) == num_saved
        assert bool(run.facts) == (num_saved == 2)


def test_without_time_the_last_one_is_kept_unless_the_other_is_clearly_better() -> None:
    def found(mean: float, deviation: float, num_episodes: int) -> EvaluationResult:
        return EvaluationResult(1, mean, deviation, 1.0, num_episodes)

    assert not is_clearly_better(found(285, 8, 4), found(282, 10, 9))
    assert is_clearly_better(found(385, 8, 4), found(282, 10, 9))
    assert not is_clearly_better(found(1, 0, 4), found(1, 0, 4))


def played(rewards: list[float], num_cut: int = 0) -> Played:
    episodes = [Episode(each, 1, True, False, 0, number=i) for i, each in enumerate(rewards)]
    return Played(random.Random(3).sample(episodes, len(episodes)), [], num_cut)


def test_greedy_play_is_much_worse_only_by_more_than_chance() -> None:
    low, high = [-1000.0] * 100, [-20.0, -10.0] * 50
    assert is_much_worse(played(low), played(high))
    assert not is_much_worse(played(high), played(low))
    assert not is_much_worse(played(low[:99]), played(high[:99]))  # too few
    assert not is_much_worse(played([0.0, 10.0] * 50), played([1.0, 11.0] * 50))
    assert not is_much_worse(played([100.0] * 100), played([101.0] * 100))


def test_greedy_play_must_earn_more_on_equal_starts() -> None:
    sampled = [float(i % 10) for i in range(100)]
    assert plays_greedily(played([x + 0.5 for x in sampled]), played(sampled)) is True
    assert plays_greedily(played(sampled), played(sampled)) is False
    assert plays_greedily(played([x - 0.5 for x in sampled]), played(sampled)) is False
    noise = [x + 0.1 + 2 * (-1) ** i for i, x in enumerate(sampled)]
    assert plays_greedily(played(noise), played(sampled)) is False
    # In circles, it plays for ever.
    assert plays_greedily(played([x + 5 for x in sampled], 6), played(sampled)) is False
    assert plays_greedily(played([x + 5 for x in sampled], 5), played(sampled)) is True
    assert plays_greedily(played([x + 0.5 for x in sampled[:8]]), played(sampled[:8])) is True
    assert plays_greedily(played([x + 0.5 for x in sampled[:7]]), played(sampled[:7])) is None
    for few in (played(sampled[:99]), None):
        assert plays_greedily(few, few) is None
        assert plays_greedily(few, played(sampled)) is None


@pytest.mark.parametrize(("last", "sampled", "greedy"), [(2, 1, True), (1, 2, False)])
def test_networks_are_stored_with_the_better_policy(
    tmp_path: Path, last: int, sampled: int, *, greedy: bool
) -> None:
    net = RogueNet(one.obs_space(), one.action_space(), RogueNetConfig(d_model=4, n_head=1))
    for folder in ("checkpoint", BEST):
        save_checkpoint(tmp_path / folder, net, training={"step": 80})
    run = Run(Always(last), tmp_path)
    run.sampled = Always(sampled)
    evaluator = Evaluator(one, episodes=4, interval=80, clock=Clock())
    evaluator.on_start(run.at(0))
    evaluator.on_update(run.at(80))
    evaluator.on_end(run.at(80))
    assert run.facts["evaluated"]["plays"] == ("greedy" if greedy else "sampled")
    for folder in ("checkpoint", BEST):
        found = read_network(tmp_path / folder)
        assert found.greedy is greedy
        assert NumpyAgent(found).greedy is greedy
        assert load_checkpoint(tmp_path / folder).training["step"] == 80


class Stuck(ScriptedAgent):
    """Does not move."""

    choose_batch = staticmethod(stay)

    def choose(self, obs: Obs, *actions: ActionKey) -> Move:
        return Move.STAY


def test_greedy_play_in_circles_leaves_a_replay(tmp_path: Path) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        steps = 0
        while (move := ask(agent, score=-steps)) is not None:
            steps += 1
            if move is not Move.STAY:
                return agent.game_over(Obs(-steps))

    game = dots_game(play)
    drawn = RandomAgent(3)
    drawn.choose_batch = lambda obs: drawn.decide_batch(obs, game.schema)  # type: ignore[attr-defined]
    run = Run(Stuck(), tmp_path)
    run.sampled = drawn
    evaluator = Evaluator(game, episodes=20, max_length=40, replays=game, clock=Clock())
    evaluator.on_start(run.at(0))
    evaluator.on_end(run.at(80))
    facts = run.facts["evaluated"]
    assert facts["greedy_is_worse"]
    assert (facts["last"]["cut"], facts["last"]["mean_reward"]) == (1, -40)
    assert facts["other_policy"]["num_episodes"] == 100
    assert facts["replay"] == "replays/greedy.replay"
    assert len(Replay.load(tmp_path / facts["replay"]).lines) >= 40


class Interrupting(Callback):
    """Sends Ctrl-C after the second update, and again at the end of the run."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end

    def on_update(self, state: TrainState) -> None:
        if state.progress.update == 2:
            os.kill(os.getpid(), signal.SIGINT)

    def on_end(self, state: TrainState) -> None:
        if self.at_end:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("is_twice", [False, True])
def test_ctrl_c_ends_a_run_with_both_networks_whole(tmp_path: Path, is_twice: bool) -> None:
    evaluator = Evaluator(seeded, episodes=4, interval=128, clock=Clock())
    with VecEnv(seeded, 8) as vec:
        callbacks = [Interrupting(is_twice), evaluator]
        result = train(vec, CONFIG, out=tmp_path, callbacks=callbacks)
    assert result.is_interrupted
    assert (result.progress.step, read_about(tmp_path)["steps"]) == (256, 256)
    for name in ("checkpoint", BEST):
        assert load_checkpoint(tmp_path / name).training["step"] in (128, 256)
    assert "evaluated" in read_about(tmp_path)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_comparison(tmp_path: Path) -> None:
    presses = itertools.count()

    def play(agent: Agent, *, seed: int) -> None:
        if evaluator._evaluated_step and next(presses) < 2:
            os.kill(os.getpid(), signal.SIGINT)
        if ask(agent) is not None:
            agent.game_over(Obs(1))

    game = dots_game(play)
    evaluator = Evaluator(game, episodes=4, interval=10**6, clock=Clock())
    with VecEnv(dots_game(lambda agent, *, seed: play_once(agent)), 8) as vec:
        result = train(vec, CONFIG, out=tmp_path, callbacks=[evaluator])
    assert result.is_interrupted
    assert read_run(tmp_path).final_evaluation is not None


def play_once(agent: Agent) -> None:
    if ask(agent) is not None:
        agent.game_over(Obs(1))
