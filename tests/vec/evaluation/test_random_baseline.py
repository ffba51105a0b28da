"""Random play is measured before a run, within its time, and does not affect the run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent, against, load_agent
from entity_env.agents.ppo import Callback, PPOConfig, RandomPlay, TrainResult, read_run, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.authoring.action_type import ActionKey
from entity_env.errors import UsageError
from entity_env.games import tic_tac_toe
from entity_env.vec import RandomBaseline, VecEnv
from entity_env.vec.evaluation import random_baseline
from tests.helpers.tiny_games import Move, ask, dots_game
from tests.vec.evaluation.test_evaluator import Always, Scores, play_two, seeded

CONFIG = PPOConfig(
    total_steps=256, num_steps=16, num_threads=1, net=RogueNetConfig(d_model=8, n_layer=1, n_head=1)
)


def trained(
    game: Game,
    *callbacks: Callback,
    out: Path | None = None,
    about: Mapping[str, object] | None = None,
    **settings: object,
) -> tuple[TrainResult, list[float]]:
    """A run, and the game's numbers from the shared random generators."""
    random.seed(5)
    np.random.seed(5)
    resume = bool(settings)
    with VecEnv(game, 8) as vec:
        result = train(
            vec, CONFIG.changed(settings), out=out, resume=resume, callbacks=callbacks, about=about
        )
    return result, [random.random(), np.random.random()]


def measured(baseline: RandomBaseline, game: Game) -> RandomPlay | None:
    return trained(game, baseline)[0].progress.random_play


@pytest.mark.slow
def test_a_run_stays_the_same_bit_by_bit_and_keeps_the_figures(tmp_path: Path) -> None:
    plain, draws = trained(seeded)
    other, other_draws = trained(seeded, RandomBaseline(seeded), out=tmp_path)
    assert draws == other_draws
    state = other.net.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in plain.net.state_dict().items())
    found = other.progress.random_play
    assert plain.progress.random_play is None
    assert found is not None
    assert found.is_like_training
    assert found == read_run(tmp_path).random_play
    again = RandomBaseline(seeded, episodes=3)  # a resumed run does not measure again
    resumed, _ = trained(seeded, again, out=tmp_path, total_steps=512)
    assert resumed.progress.random_play == found == read_run(tmp_path).random_play
    about = {"settings": {"size": 3}}  # a different game
    changed, _ = trained(seeded, again, out=tmp_path, about=about, total_steps=768)
    assert changed.progress.random_play == read_run(tmp_path).random_play != found


@pytest.mark.slow
def test_it_is_the_mean_of_random_actions() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        score = 0
        for _ in range(3):
            score += ask(agent, score=score) is Move.RIGHT
        agent.game_over(Obs(score))

    found = measured(RandomBaseline(dots_game(play), episodes=100), dots_game(play))
    assert found is not None
    assert found.mean_reward == pytest.approx(1.0, abs=0.3)  # 3.7 standard errors
    assert found.std_reward == pytest.approx((3 * 2 / 9) ** 0.5, abs=0.2)
    assert found.mean_length == 3
    assert abs(found.reward.mean - 1.0) <= 2 * found.reward.ci95


def endless_if(is_endless: Callable[[int], bool]) -> Game:
    def play(agent: Agent, *, seed: int) -> None:
        score = 0
        while ask(agent, score=score) is not None and is_endless(seed):
            score += 1
        agent.game_over(Obs(score))

    return dots_game(play)


@pytest.mark.slow
@pytest.mark.parametrize("is_endless", [lambda seed: True, lambda seed: seed % 2 == 0])
def test_short_episodes_alone_say_nothing(
    is_endless: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_baseline, "_BUDGET_S", 0.025)
    game = endless_if(is_endless)
    assert measured(RandomBaseline(game), game) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_s", "episodes", "count"), [(0.0, 100, 100), (0.0, 3, 3), (0.4, 100, 20), (0.8, 100, 4)]
)
def test_slow_games_play_fewer_episodes(
    step_s: float, episodes: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock sees two of the first four steps; 16 more episodes cost four times as much."""
    now = [0.0]

    def clock() -> float:
        now[0] += step_s
        return now[0]

    def play(agent: Agent, *, seed: int) -> None:
        for _ in range(4):
            ask(agent)
        agent.game_over()

    game = dots_game(play)
    monkeypatch.setattr(random_baseline, "perf_counter", clock)
    found = measured(RandomBaseline(game, episodes=episodes), game)
    assert found is not None
    assert found.num_episodes == count


@pytest.mark.slow
def test_a_zero_sum_game_is_zero_and_not_like_training() -> None:
    found = measured(RandomBaseline(tic_tac_toe, episodes=9), tic_tac_toe)
    assert found is not None
    assert (found.mean_reward, found.std_reward, found.num_episodes) == (0, 0, 9)
    assert not found.is_like_training


@pytest.mark.slow
def test_an_opponent_has_all_seats_but_one() -> None:
    two = Game(play_two, entities=(), actions=(Scores,), num_agents=2)
    opponent = cast(Callable[[int], Agent], lambda seed: Always(2))
    found = measured(RandomBaseline(two, opponent=opponent, episodes=60), two)
    assert found is not None
    assert 0.6 < found.mean_reward < 1.4  # from 0 to 2; the opponent always gets 2


@pytest.mark.slow
def test_bots_play_as_in_training() -> None:
    class Middle(ScriptedAgent):
        def choose(self, obs: Obs, *actions: ActionKey) -> Scores:
            return Scores.MIDDLE

    two = Game(play_two, entities=(), actions=(Scores,), num_agents=2)
    game = against(two, Middle)
    found = measured(RandomBaseline(game, episodes=60), game)
    assert found is not None
    assert found.is_like_training
    assert 0.6 < found.mean_reward < 1.4
    other = measured(RandomBaseline(game, episodes=4), two)  # self-play
    assert other is not None
    assert not other.is_like_training


@pytest.mark.slow
def test_a_game_that_fails_is_trained_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        raise ArithmeticError("stumbled")

    assert measured(RandomBaseline(dots_game(play)), seeded) is None
    assert "random play cannot be measured: " in caplog.text
    assert "stumbled" in caplog.text


@pytest.mark.slow
def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UsageError, match="episodes"):
        RandomBaseline(seeded, episodes=0)
    with pytest.raises(UsageError, match='with autoreset="disabled", got autoreset='):
        trained(seeded, RandomBaseline(lambda count: VecEnv(seeded, count)))
    person = RandomBaseline(tic_tac_toe, opponent=lambda seed: load_agent("human"))
    with pytest.raises(UsageError, match="must decide for batches"):
        trained(tic_tac_toe, person)


def test_damaged_figures_are_none() -> None:
    right = RandomPlay(1.0, 0.5, 3.0, 7, False)
    assert RandomPlay.from_json(right.to_json()) == right
    for name, value in (("mean_reward", "x"), ("std_reward", float("nan")), ("num_episodes", 0)):
        assert RandomPlay.from_json({**right.to_json(), name: value}) is None
    assert RandomPlay.from_json(None) is None
    assert RandomPlay.from_json([1]) is None
