"""Presets by kind of environment, unusual settings, and hints about a run that did not learn."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import gymnasium
import pytest
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.agents.ppo.learner import torch_threads
from entity_env.agents.ppo.presets import PRESETS, preset_for
from entity_env.agents.ppo.tracking import advice
from entity_env.agents.ppo.tracking.advice import (
    RunHistory,
    crowded_threads,
    hints_for,
    unusual_settings,
)
from entity_env.agents.ppo.tracking.progress import Losses
from entity_env.agents.rogue_net.config import MLPConfig, RogueNetConfig
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.core.space_json import Spaces
from entity_env.core.spaces import Entity, ObsSpace
from entity_env.errors import UsageError
from entity_env.games import snake, tic_tac_toe, treasure_hunt
from entity_env.games.classic import CartPole
from entity_env.interop.gymnasium import GymnasiumVecEnv
from entity_env.vec import BatchVecEnv, VecEnv

pytest.importorskip("torch")

_CONTROL: Spaces = CartPole(1).obs_space(), CartPole(1).action_space()
_ENTITIES: Spaces = snake.obs_space(), snake.action_space()
_CONFIG = PPOConfig(episode_window=100)


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


class TestPresets:
    def test_by_kind_of_environment(self) -> None:
        hunt = treasure_hunt.obs_space(), treasure_hunt.action_space()
        for spaces, name in ((_CONTROL, "control"), (_ENTITIES, "entities"), (hunt, "entities")):
            assert preset_for(*spaces).name == name

    def test_games_have_settings_of_their_own(self) -> None:
        own = preset_for(*_CONTROL, game="cartpole").settings
        assert own == {**PRESETS["control"].settings, "total_steps": 100_000}
        assert (
            preset_for(*_CONTROL, game="a game of somebody").settings == PRESETS["control"].settings
        )

    @pytest.mark.parametrize("name", PRESETS)
    def test_all_are_settings_of_ppo(self, name: str) -> None:
        with VecEnv(snake, 2) as vec:
            config = PPOConfig.for_env(vec, preset=name, total_steps=77)
        assert config.total_steps == 77
        for field, value in PRESETS[name].settings.items():
            assert field == "total_steps" or getattr(config, field) == value

    @given(num_rows=st.integers(1, 10_000), total_steps=st.integers(1, 10**7))
    def test_rollouts_of_control_grow_with_the_run(self, num_rows: int, total_steps: int) -> None:
        settings = PRESETS["control"].settings_for(num_rows, total_steps)
        assert settings["total_steps"] == total_steps
        size = settings["num_steps"] * num_rows
        wanted = sorted((2048, total_steps // 40, 8192))[1]
        assert settings["num_steps"] == 8 or wanted - num_rows < size <= wanted

    @pytest.mark.parametrize("num_pictures", [0, 1, 2])
    def test_only_a_single_picture_is_read_by_a_cnn(self, num_pictures: int) -> None:
        picture = Entity(["a", "b"], is_single=True, shape=(1, 2, 1))
        spaces = ObsSpace(["x"], {f"E{i}": picture for i in range(num_pictures)}), _CONTROL[1]
        preset = preset_for(*spaces)
        assert preset.name == ("pictures" if num_pictures == 1 else "control")
        make_policy(*spaces, PPOConfig(**preset.settings_for(1)).net)

    @pytest.mark.parametrize("name", ["contrl", ["control"]])
    def test_unknown_ones_are_refused(self, name: Any) -> None:  # noqa: ANN401
        with (
            VecEnv(snake, 1) as vec,
            pytest.raises(UsageError, match="there is no preset"),
        ):
            PPOConfig.for_env(vec, preset=name)

    @pytest.mark.parametrize("spaces", [_CONTROL, _ENTITIES])
    def test_nothing_of_them_is_unusual(self, spaces: Spaces) -> None:
        preset = preset_for(*spaces)
        config = PPOConfig(**preset.settings_for(preset.num_envs))
        assert unusual_settings(config, *spaces, preset.num_envs) == []


class TestUnusual:
    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({"learning_rate": 0.5}, "learning_rate=0.5: usual are 1e-05 to 0.01"),
            ({"gamma": 0.1}, "gamma=0.1"),
            ({"target_kl": 5.0}, "target_kl=5"),
            ({"warmup_steps": 100_000}, "the step size never gets to learning_rate"),
            ({"num_steps": 1}, "a rollout has 16 decisions"),
            ({"update_epochs": 1, "minibatch_size": 2048}, "1 gradient steps a rollout"),
            ({"net": RogueNetConfig()}, "net is a RogueNet"),
        ],
    )
    def test_are_told(self, settings: dict[str, object], told: str) -> None:
        own = PRESETS["control"].settings_for(16, 100_000)
        config = PPOConfig(**{**own, **settings})
        found = unusual_settings(config, *_CONTROL, 16)
        assert any(told in sentence for sentence in found), found

    def test_training_tells_them(self, caplog: pytest.LogCaptureFixture) -> None:
        with BatchVecEnv(CartPole, 4) as vec, caplog.at_level(logging.WARNING):
            train(vec, PPOConfig.for_env(vec, total_steps=32, num_steps=8, net=MLPConfig((8,))))
        assert "unusual: a rollout has 32 decisions" in caplog.text


class TestCrowdedThreads:
    @pytest.mark.parametrize(
        ("cores", "ranks", "threads", "workers", "is_crowded"),
        [
            (2, "", 1, 2, False),  # the default
            (2, "", 1, 64, False),
            (2, "", 2, 0, False),
            (2, "", 2, 2, True),
            (1, "", 2, 0, True),
            (8, "", 4, 4, False),
            (8, "2", 4, 1, True),
            (8, "2", 2, 2, False),
            (8, "two", 4, 1, False),
        ],
    )
    def test_are_told(
        self,
        monkeypatch: pytest.MonkeyPatch,
        cores: int,
        ranks: str,
        threads: int,
        workers: int,
        is_crowded: bool,
    ) -> None:
        monkeypatch.setattr(advice, "num_cores", lambda: cores)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        found = crowded_threads(threads, workers)
        assert len(found) == is_crowded
        if is_crowded:
            assert f"{threads} threads of torch and {workers} workers" in found[0]
            assert "use num_threads=1 (--num-threads 1), or fewer workers" in found[0]

    @pytest.mark.parametrize("num_threads", [2, None])
    def test_training_tells_them(
        self,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        num_threads: int | None,
    ) -> None:
        monkeypatch.setattr(advice, "num_cores", lambda: 2)
        config = PPOConfig(total_steps=32, num_steps=8, num_threads=num_threads)
        with (
            torch_threads(2),
            VecEnv(snake, 4, num_workers=2) as vec,
            caplog.at_level(logging.WARNING),
        ):
            train(vec, config)
        assert "2 threads of torch and 2 workers share 2 cores: threads wait" in caplog.text


class TestHints:
    def test_none_where_the_reward_rose(self) -> None:
        assert hints_for([_point(0), _point(5)], _point(10), _CONFIG) == ()

    def test_a_reward_that_chance_explains_did_not_rise(self) -> None:
        (told, *_) = hints_for([_point(0), _point(0.1)], _point(0.2), _CONFIG)
        figures = "0 at first, 0.2 at the end"
        assert told == f"the mean reward rose no more than chance explains: {figures}"
        (told, *_) = hints_for([_point(0), _point(0.1)], _point(-0.2), _CONFIG)
        assert told == "the mean reward did not rise: 0 at first, -0.2 at the end"

    def test_the_first_episodes_to_end_are_not_typical(self) -> None:
        points = [replace(_point(41, 19), num_episodes=2), _point(56, 5)]
        assert hints_for(points, _point(58.2, 2.8), _CONFIG) == ()

    def test_more_actors_with_a_higher_reward_are_not_what_was_lost(self) -> None:
        found = hints_for([_point(0), _point(0.1)], _point(0.2, entropy=1.5), _CONFIG)
        assert not any("what it had learnt" in hint for hint in found)

    @pytest.mark.parametrize(
        ("std", "losses", "told"),
        [
            (0.0, {}, "all earned 1"),
            (1.0, {"entropy": 0.01}, "no longer explores (entropy 1, then 0.01)"),
            (1.0, {"entropy": 0.99}, "hardly changed"),
            (1.0, {"entropy": 1.5}, "less sure than it was at first (entropy 1, then 1.5)"),
            (1.0, {"value_loss": 5_000}, "norm_returns=True"),
            (1.0, {"explained_variance": -0.1}, "explained variance -0.10"),
            (1.0, {"approx_kl": 0.2}, "target_kl=0.02"),
        ],
    )
    def test_causes(self, std: float, losses: dict[str, Any], told: str) -> None:
        last = _point(1, std, **({"entropy": 0.5} | losses))
        found = hints_for([_point(1), _point(1)], last, _CONFIG)
        assert len(found) == 2
        assert told in found[1]

    def test_a_limit_that_was_set_is_to_be_smaller(self) -> None:
        config = replace(_CONFIG, target_kl=0.5)
        found = hints_for([_point(1), _point(1)], _point(1, entropy=0.5, approx_kl=0.2), config)
        assert "try a smaller target_kl (0.5), or a smaller learning_rate" in found[1]

    def test_of_games_against_each_other_the_mean_tells_nothing(self) -> None:
        odd = 1.0 / _CONFIG.episode_window  # three agents: one more episode of the winner
        assert hints_for([_point(0), _point(odd)], _point(-odd), _CONFIG) == ()
        assert hints_for([_point(0), _point(0)], _point(0, 0.0), _CONFIG) == ()
        assert hints_for([_point(0, 0.0), _point(0, 0.0)], _point(0, 0.0), _CONFIG)

    def test_a_resumed_run_may_have_risen_before(self) -> None:
        points = [replace(_point(9), update=50), replace(_point(9), update=51)]
        assert hints_for(points, _point(9), _CONFIG) == ()
        points = [replace(_point(0), update=50), _point(10), _point(4)]
        assert "fell to 3" in hints_for(points, _point(3), _CONFIG)[0]

    def test_what_was_learnt_and_lost(self) -> None:
        points = [_point(0), _point(10, step=500), _point(4)]
        (told,) = hints_for(points, _point(3), _CONFIG)
        assert told.startswith("the mean reward was 10 at step 500 and fell to 3: try target_kl")
        assert hints_for([_point(0), _point(10), _point(9)], _point(9), _CONFIG) == ()

    def test_no_episode(self) -> None:
        last = replace(_point(float("nan")), num_episodes=0, step=640)
        (told,) = hints_for([last], last, _CONFIG)
        assert told.startswith("no episode has ended in 640 steps")

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
        assert history.hints(_point(0), _CONFIG) == ()

    def test_a_limit_of_time_that_is_over_before_the_first_update(self) -> None:
        (told,) = RunHistory().hints(_point(0), replace(_CONFIG, max_train_time_s=15.0))
        assert told.startswith("no update was finished in 15 s: entity-env check measures")
        assert RunHistory().hints(_point(0), _CONFIG) == ()

    def test_of_a_real_run(self) -> None:
        """Mountain car never reaches its goal by chance, so that all episodes earn -200."""
        envs = gymnasium.make_vec("MountainCar-v0", 8, vectorization_mode="sync")
        with GymnasiumVecEnv(envs) as vec:
            config = PPOConfig.for_env(
                vec, total_steps=4_800, num_steps=50, update_epochs=1, minibatch_size=400
            )
            hints = train(vec, config).hints
        assert hints[0] == "the mean reward did not rise: -200 at first, -200 at the end"
        assert "the last episodes all earned -200" in hints[1]


def test_games_for_several_agents_have_a_preset_of_their_own() -> None:
    spaces = tic_tac_toe.obs_space(), tic_tac_toe.action_space()
    assert preset_for(*spaces).name == "entities"
    assert preset_for(*spaces, num_agents=2).name == "versus"
    with VecEnv(tic_tac_toe, 2) as vec:
        config = PPOConfig.for_env(vec)
    assert config.update_epochs == PRESETS["versus"].settings["update_epochs"]


def test_rewards_against_opponents_that_become_better_are_no_reason_for_hints() -> None:
    points = [
        TrainProgress(step, 9, step, mean_reward=-0.5 * step, std_reward=0.1, num_episodes=99)
        for step in range(1, 5)
    ]
    assert hints_for(points, points[-1], PPOConfig())
    rated = replace(points[-1], metrics={"rating": 100.0})
    assert hints_for(points, rated, PPOConfig()) == ()
