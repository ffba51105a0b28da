"""Hints about runs that do not learn: rules, applied to figures, recorded runs and live runs."""

from __future__ import annotations

import json
import logging
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig, TrainProgress, TrainResult, run as ppo_run, train
from entity_env.agents.ppo.advice import RunHistory
from entity_env.agents.ppo.hints import (
    SETTINGS,
    Hint,
    command_to_try,
    final_hints,
    hint_facts,
    hints_of,
    train_options,
)
from entity_env.agents.ppo.run_view import RunView
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.training.tracking.progress import Losses
from entity_env.agents.training.tracking.rewards import MeanReward, PolicyScores, RandomPlay
from entity_env.agents.training.tracking.rollout_figures import RolloutFigures
from entity_env.agents.training.tracking.runs import read_about
from entity_env.cli.load_game import load_game
from entity_env.interop.gymnasium import GymnasiumVecEnv
from entity_env.vec import VecEnv
from entity_env.vec.game_training import make_training_env
from tests import ROOT
from tests.agents.ppo.failing_games import signs

pytest.importorskip("torch")

_CONFIG = PPOConfig(episode_window=100)
_RECORDED = ROOT / "tests" / "data" / "hints" / "learning_runs.json"


def _point(reward: float, std: float = 1.0, *, step: int = 0, **losses: float) -> TrainProgress:
    figures = {"entropy": 1.0, "explained_variance": 0.9, "value_loss": 0.1, "approx_kl": 0.01}
    return TrainProgress(
        step=step,
        total=100_000,
        mean_reward=reward,
        std_reward=std,
        num_episodes=200,
        losses=Losses(**(figures | losses)),
    )


def _hints(
    points: Sequence[TrainProgress], last: TrainProgress, config: PPOConfig = _CONFIG
) -> list[str]:
    """Hints at the end of a run whose last updates all equal `last`."""
    last = replace(last, step=last.total)
    return [str(hint) for hint in final_hints(RunView([*points, *[last] * 5], last, config))]


class TestComparison:
    def test_none_where_the_reward_rose(self) -> None:
        assert _hints([_point(0), _point(5)], _point(10)) == []

    def test_a_reward_that_chance_explains_did_not_rise(self) -> None:
        told, *_ = _hints([_point(0), _point(0.1)], _point(0.2))
        figures = "0 at first, 0.2 at the end"
        assert told == f"the mean reward rose no more than chance explains: {figures}"
        told, *_ = _hints([_point(0), _point(0.1)], _point(-0.2))
        assert told == "the mean reward did not rise: 0 at first, -0.2 at the end"

    def test_short_episodes_that_end_first_are_not_what_rewards_are_compared_with(self) -> None:
        """Episodes of a tower defense: bad episodes end first, and the mean of all is 76."""
        first = RolloutFigures(
            *(128, 128, 2048, 2048, 0, 2048, 0.0),
            *(128, 12_800, 128 * 76.0, 128 * (76.0**2 + 20.0**2)),
        )
        short = replace(_point(43.5, 5.0), num_episodes=30, rollouts=first._replace(num_first=30))
        last = replace(_point(79.5, 20.0), num_episodes=390, rollouts=first)
        told, *_ = _hints([short, replace(last, num_episodes=128)], last)
        assert (
            told == "the mean reward rose no more than chance explains: 76 at first, 79.5 at "
            "the end"
        )
        assert not _hints([short, replace(last, num_episodes=128)], replace(last, mean_reward=99))

    def test_first_episodes_that_end_late_say_nothing(self) -> None:
        first = RolloutFigures(64, 64, num_first=64, first_reward=64 * 5.0, first_squares=64 * 26.0)
        late = replace(_point(5, step=80_000), rollouts=first)
        assert _hints([late], replace(_point(5), rollouts=first)) == []
        running = first._replace(num_first=20)
        last = replace(_point(5), rollouts=running)
        assert _hints([last], last) == []

    def test_random_play_is_what_rewards_are_compared_with(self) -> None:
        random_play = RandomPlay(76.0, 20.0, 100.0, 100)
        last = replace(_point(79.5, 20.0), step=100_000, random_play=random_play)
        told, *_ = final_hints(RunView([_point(43.5)] * 10, last, _CONFIG))
        assert str(told) == "the reward is no better than random play: 79.5, random 76"

    def test_few_episodes_with_a_large_deviation_show_nothing(self) -> None:
        """Episodes of a cliff walk: the first ones to end are long, and the last ones optimal."""
        first = _point(-311.0, 400.0, step=16_384)
        last = replace(_point(-15.0, 1.0), num_episodes=2000)
        few = [replace(first, num_episodes=20)] * 2
        assert _hints(few, last) == []
        assert _hints([replace(first, window=20)] * 2, replace(last, mean_reward=-300.0)) == []
        assert _hints([replace(first, window=400)] * 2, replace(last, mean_reward=-300.0))

    def test_a_network_that_plays_better_than_random_has_risen(self) -> None:
        """Greedy play of a 2048 earns more than random play, its samples do not."""
        random_play = RandomPlay(297.0, 90.0, 100.0, 100)
        last = replace(_point(269.0, 90.0), step=100_000, random_play=random_play)
        points = [_point(300.0, 90.0)] * 10
        told = [hint.name for hint in final_hints(RunView(points, last, _CONFIG))]
        assert "no_rise" in told
        scores = PolicyScores(MeanReward.of(480.0, 200.0, 20), MeanReward.of(269.0, 90.0, 20))
        assert final_hints(RunView(points, last, _CONFIG, scores)) == []
        figures = {"mean_reward": 480.0, "std_reward": 200.0, "num_episodes": 20.0}
        metrics = {f"evaluation/{name}": value for name, value in figures.items()}
        assert final_hints(RunView(points, replace(last, metrics=metrics), _CONFIG)) == []
        metrics["evaluation/mean_reward"] = 290.0
        assert final_hints(RunView(points, replace(last, metrics=metrics), _CONFIG))

    @pytest.mark.parametrize("change", [{"unfinished": 0.5}, {"num_episodes": 0}])
    def test_memory_is_suggested_if_too_few_episodes_end(self, change: Mapping[str, Any]) -> None:
        repeated = RolloutFigures(
            num_repeated=500, num_repetitions=10, repeated_squares=100.0, unexplained_squares=90.0
        )
        last = replace(_point(0.0), step=100_000, rollouts=repeated, **change)
        told = [hint.name for hint in final_hints(RunView([_point(0.0)] * 10, last, _CONFIG))]
        assert told[-1] == "hidden"
        random_play = RandomPlay(-5.0, 1.0, 100.0, 100)
        scores = PolicyScores(MeanReward.of(0.0, 1.0, 100), None)
        better = RunView(
            [_point(0.0)] * 10, replace(last, random_play=random_play), _CONFIG, scores
        )
        assert "hidden" not in [hint.name for hint in final_hints(better)]

    def test_of_games_against_each_other_the_mean_tells_nothing(self) -> None:
        odd = 1.0 / _CONFIG.episode_window  # three agents: one extra episode of the winner
        assert _hints([_point(0), _point(odd)], _point(-odd)) == []
        assert _hints([_point(0), _point(0)], _point(0, 0.0)) == []
        assert _hints([_point(0, 0.0), _point(0, 0.0)], _point(0, 0.0))
        versus = replace(_point(0.25), rollouts=RolloutFigures(8, 16))
        assert _hints([versus, versus], versus) == []

    def test_bots_opponents_that_become_better_it_tells_nothing(self) -> None:
        points = [_point(-0.5 * i, 0.1) for i in range(4)]
        assert _hints(points, points[-1])
        assert _hints(points, replace(points[-1], metrics={"rating": 1000.0})) == []

    def test_a_resumed_run_may_have_risen_before(self) -> None:
        points = [replace(_point(9), update=50), replace(_point(9), update=51)]
        assert _hints(points, _point(9)) == []
        points = [replace(_point(0), update=50), _point(10), _point(4)]
        assert "fell to 3" in _hints(points, _point(3))[0]

    def test_what_was_learned_and_lost(self) -> None:
        (told,) = _hints([_point(0), _point(10, step=500), _point(4)], _point(3))
        assert told.startswith(
            "the mean reward was 10 at step 500 and fell to 3; try --set-train target_kl="
        )
        assert _hints([_point(0), _point(10), _point(9)], _point(9)) == []

    def test_the_best_of_few_short_episodes_was_not_learned(self) -> None:
        first = RolloutFigures(64, 64, num_first=64, first_reward=0.0, first_squares=64.0)
        lucky = replace(_point(10, 0.1), rollouts=first._replace(num_first=20), num_episodes=20)
        assert _hints([lucky, replace(_point(0), rollouts=first)], _point(3)) == []


class TestCauses:
    @pytest.mark.parametrize(
        ("std", "losses", "told"),
        [
            (0.0, {}, "all earned 1"),
            (1.0, {"entropy": 0.01}, "no longer explores (entropy 1, then 0.01)"),
            (1.0, {"entropy": 0.99}, "hardly changed"),
            (1.0, {"entropy": 1.5}, "less certain than at first (entropy 1, then 1.5)"),
            (
                1.0,
                {"value_loss": 5_000, "explained_variance": 0.3},
                "try --set-train norm_returns=true",
            ),
            (1.0, {"explained_variance": -0.1}, "explained variance -0.10"),
            (1.0, {"approx_kl": 0.2}, "try --set-train target_kl=0.02"),
        ],
    )
    def test_are_told(self, std: float, losses: dict[str, Any], told: str) -> None:
        last = _point(1, std, **({"entropy": 0.5} | losses))
        found = _hints([_point(1), _point(1)], last)
        assert len(found) == 2, found
        assert told in found[1]

    def test_more_choices_with_more_entropy_are_not_what_was_lost(self) -> None:
        few = RolloutFigures(num_decisions=1, uniform_entropy=2.0)
        last = replace(_point(1, entropy=1.5), rollouts=few._replace(uniform_entropy=4.0))
        assert len(_hints([replace(_point(1), rollouts=few)], last)) == 1

    def test_a_limit_that_was_set_is_to_be_smaller(self) -> None:
        config = replace(_CONFIG, target_kl=0.01)
        found = _hints([_point(1), _point(1)], _point(1, entropy=0.5, approx_kl=0.2), config)
        assert "try --set-train target_kl=0.003 --learning-rate" in found[1]

    def test_no_episode(self) -> None:
        last = replace(_point(math.nan), num_episodes=0)
        told, *_ = _hints([last], last)
        assert told.startswith("no episode has ended in 100,000 steps")

    def test_episodes_that_are_longer_than_those_that_ended(self) -> None:
        told, *_ = _hints([_point(0)], replace(_point(0), unfinished=0.4))
        assert told.startswith("40% of the running episodes are already longer")


class TestHistory:
    def test_long_runs_keep_few_points(self) -> None:
        history = RunHistory()
        for i in range(10_000):
            history.add(_point(i))
        assert len(history._points) < 1024
        assert history._points[0].mean_reward == 0
        assert history._points[-1].mean_reward > 9_900

    def test_a_short_run_is_not_judged(self) -> None:
        history = RunHistory()
        history.add(_point(0))
        history.add(_point(0))
        assert history.hints(_point(0), _CONFIG) == []

    def test_each_hint_is_news_once(self) -> None:
        history, forced = RunHistory(), RolloutFigures(num_decisions=10, num_forced=10)
        assert history.news(_point(0), _CONFIG) == []
        news = []
        for _ in range(3):
            history.add(last := replace(_point(0), rollouts=forced))
            news += history.news(last, _CONFIG)
        assert [hint.name for hint in news] == ["forced"] == [*history.shown]

    def test_a_limit_of_time_that_is_over_before_the_first_update(self) -> None:
        limited = replace(_CONFIG, max_train_time_s=15.0)
        (told,) = RunHistory().hints(_point(0), limited, late=(1, 20.0))
        assert str(told).startswith(
            "no update was finished within 15 s: a step of all environments took 20 s; give more "
        )
        assert RunHistory().hints(_point(0), limited) == []  # it was stopped for another reason
        assert RunHistory().hints(_point(0), _CONFIG) == []


class TestStored:
    hint = Hint("value_loss", "the value loss is 58", {"norm_returns": True, "num_envs": 32})

    def test_comes_back_from_json(self) -> None:
        facts = json.loads(json.dumps(hint_facts([self.hint])))
        assert hints_of(facts) == [self.hint]
        assert (
            str(self.hint)
            == "the value loss is 58; try --set-train norm_returns=true --num-envs 32"
        )

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["hints", "name", "text", "settings", "num_envs"]), inner
                )
            ),
        )
    )
    def test_anything_else_is_left_out(self, data: Any) -> None:  # noqa: ANN401
        found = hints_of({"hints": data if isinstance(data, list) else [data]})
        for hint in found:
            assert set(hint.settings) <= set(SETTINGS)
            str(hint)

    def test_command_to_try(self, tmp_path: Path) -> None:
        about: Mapping[str, object] = {"game": "my game.py", "options": {}}
        first = tmp_path / "tower"
        (tmp_path / "tower-2").mkdir()
        words = shlex.split(command_to_try(first, about, [self.hint]))
        assert words == [
            *("entity-env", "train", "my game.py", "--config", str(first / "run.json")),
            *(
                "--set-train",
                "norm_returns=true",
                "--num-envs",
                "32",
                "--out",
                str(tmp_path / "tower-3"),
            ),
        ]
        assert command_to_try(first, {"game": "snake"}, [self.hint]) == ""  # a run of a program
        assert command_to_try(first, about, [Hint("forced", "nothing to set")]) == ""

    @pytest.mark.parametrize(
        ("name", "following"),
        [
            ("my-run", "my-run-2"),  # the suffix is not a number
            ("run-3", "run-4"),
            ("run-1", "run-1-2"),
            ("-3", "-3-2"),
            ("run-0003", "run-0003-2"),
        ],
    )
    def test_folder_to_try(self, tmp_path: Path, name: str, following: str) -> None:
        words = command_to_try(tmp_path / name, {"game": "snake.py", "options": {}}, [self.hint])
        assert shlex.split(words)[-1] == str(tmp_path / following)

    def test_options_are_those_of_the_command(self) -> None:
        from entity_env.cli.app import command_of

        known = {option for each in command_of("train").params for option in each.opts}
        settings = dict.fromkeys(SETTINGS, 1.0)
        assert {word for word in train_options(settings) if word.startswith("--")} <= known


# ------------------------------------------------------------------ runs


@dataclass(frozen=True)
class _Case:
    """A run that fails, and the expected hints: during the run and at its end."""

    game: Mapping[str, object]
    settings: Mapping[str, object]
    early: str
    option: str = ""
    num_envs: int = 32
    late: tuple[str, ...] = ()


_SMALL = RogueNetConfig(d_model=16, n_layer=1, n_head=2)
_FAILING = {
    "few episodes": _Case(
        {"length": 60, "is_hidden": True},
        {"total_steps": 15_000},
        "few_episodes",
        "--num-envs",
        64,
        ("no_rise",),
    ),
    "only beginnings": _Case(
        {"length": 70, "is_hidden": True},
        {"total_steps": 15_000},
        "only_beginnings",
        "--num-steps",
        64,
    ),
    "large rewards": _Case(
        {"reward": 100.0, "is_hidden": True}, {}, "value_loss", "--set-train", late=("no_rise",)
    ),
    "small steps": _Case({}, {"learning_rate": 1e-6}, "small_updates", "--learning-rate"),
    "no exploration": _Case(
        {"is_hidden": True},
        {
            **{"learning_rate": 0.1, "ent_coef": 0.0, "update_epochs": 8, "minibatch_size": 64},
            "max_grad_norm": 100.0,
        },
        "no_exploration",
        "--ent-coef",
    ),
    "large bonus": _Case(
        {"num_signs": 8, "is_hidden": True}, {"ent_coef": 0.5}, "large_bonus", "--ent-coef"
    ),
    "same rewards": _Case({"is_given": True}, {}, "same_rewards"),
    "nothing to decide": _Case({"forced": 0.95}, {}, "forced"),
    "score per step": _Case({"is_per_step": True}, {}, "score_per_step"),
    "hidden": _Case({"is_hidden": True}, {}, "", late=("no_rise", "hidden", "poor_value")),
}
_SLOW = _FAILING.keys() - {"few episodes", "small steps", "nothing to decide", "score per step"}


def _train(case: _Case, out: Path | None = None) -> TrainResult:
    settings: dict[str, Any] = {
        **{"total_steps": 8_000, "num_steps": 16, "net": _SMALL, "minibatch_size": 128},
        **{"learning_rate": 0.003, "ent_coef": 0.01, "compile": "never", "num_threads": 1},
        **case.settings,
    }
    with VecEnv(signs.with_settings(**case.game), case.num_envs) as vec:
        return train(vec, PPOConfig(**settings), out=out)


class TestFailingRuns:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name",
        [pytest.param(each, marks=[pytest.mark.slow] * (each in _SLOW)) for each in _FAILING],
    )
    def test_say_why(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        case, news = _FAILING[name], list[Hint]()
        monkeypatch.setattr(ppo_run, "log_hints", news.extend)
        result = _train(case, tmp_path)
        hints = hints_of(read_about(tmp_path))
        assert [str(hint) for hint in hints] == [*result.hints]
        names = {hint.name for hint in hints}
        assert names >= {*case.late, case.early} - {""}, names
        early = {hint.name: str(hint) for hint in news}
        assert len(early) == len(news)
        assert case.option in early.get(case.early, ""), early

    @pytest.mark.slow
    def test_staggered_copies_are_not_at_the_same_part(self) -> None:
        case = _FAILING["only beginnings"]
        staggered = replace(case, settings={**case.settings, "staggered_steps": 70})
        assert not any("same part" in hint for hint in _train(staggered).hints)

    @pytest.mark.slow
    def test_a_run_that_learns_has_no_hints(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            result = _train(_Case({}, {}, ""))
        assert result.progress.mean_reward > 8
        assert result.hints == ()
        assert "hint:" not in caplog.text

    @pytest.mark.slow
    def test_mountain_car_never_reaches_its_goal_by_chance(self) -> None:
        gymnasium = pytest.importorskip("gymnasium")
        envs = gymnasium.make_vec("MountainCar-v0", 8, vectorization_mode="sync")
        with GymnasiumVecEnv(envs) as vec:
            config = PPOConfig.for_env(
                vec, total_steps=4_800, num_steps=50, update_epochs=1, minibatch_size=400
            )
            hints = train(vec, config).hints
        assert any("the last episodes all earned -200" in hint for hint in hints)
        part = "each of 8 environments plays 3 episodes of 200 decisions"
        assert any(part in hint for hint in hints)


@cache
def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORDED.read_text())
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@cache
def _history(label: str) -> tuple[PPOConfig, list[TrainProgress]]:
    """A recorded run: its settings and its updates; for long runs, a selection of updates."""
    run = _recorded()[label]
    points = []
    for losses, rollouts, own in run["points"]:
        found: dict[str, Any] = {name: _number(value) for name, value in own.items()}
        found["losses"] = Losses(*map(_number, losses))
        sums: Any = zip(RolloutFigures._fields, map(_number, rollouts), strict=False)
        found["rollouts"] = RolloutFigures()._replace(**dict(sums))
        points.append(TrainProgress(**found))
    return PPOConfig.from_json(run["config"]), points


class TestLearningRuns:
    @pytest.mark.parametrize("label", _recorded())
    def test_have_no_hints(self, label: str) -> None:
        config, points = _history(label)
        history = RunHistory()
        for point in points:
            history.add(point)
            assert [str(hint) for hint in history.news(point, config)] == []
        assert [str(hint) for hint in history.hints(points[-1], config)] == []

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("label", _recorded())
    def test_have_none_live(self, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
        run, news = _recorded()[label], list[Hint]()
        monkeypatch.setattr(ppo_run, "log_hints", news.extend)
        path = ROOT / run["game"]
        game = load_game(str(path) if path.is_file() else run["game"], ())
        with make_training_env(game, run["num_envs"], 0, None, "raise", None) as vec:
            result = train(vec, PPOConfig.from_json(run["config"]))
        assert (news, result.hints) == ([], ())
