"""Presets by kind of environment, and warnings about unusual settings."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig, advice, train
from entity_env.agents.ppo.advice import crowded_threads, unusual_settings
from entity_env.agents.rogue_net.config import MLPConfig, RogueNetConfig
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.agents.training.network import torch_threads
from entity_env.agents.training.presets import PRESETS, preset_for
from entity_env.core.spaces import Entity, ObsSpace, Spaces
from entity_env.errors import UsageError
from entity_env.games import snake, tic_tac_toe, treasure_hunt
from entity_env.games.classic import CartPole
from entity_env.vec import BatchVecEnv, VecEnv

pytest.importorskip("torch")

_CONTROL: Spaces = CartPole(1).obs_space(), CartPole(1).action_space()
_ENTITIES: Spaces = snake.obs_space(), snake.action_space()
_CONFIG = PPOConfig(episode_window=100)


class TestPresets:
    def test_by_kind_of_environment(self) -> None:
        hunt = treasure_hunt.obs_space(), treasure_hunt.action_space()
        for spaces, name in ((_CONTROL, "control"), (_ENTITIES, "entities"), (hunt, "entities")):
            assert preset_for(*spaces).name == name

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
        wanted = min(sorted((2048, total_steps // 240, 8192))[1], total_steps // 4)
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
            ({"learning_rate": 0.5}, "learning_rate=0.5: typical values are 1e-05 to 0.01"),
            ({"gamma": 0.1}, "gamma=0.1"),
            ({"target_kl": 5.0}, "target_kl=5"),
            ({"warmup_steps": 100_000}, "the step size never reaches learning_rate"),
            ({"num_steps": 1}, "a rollout has 16 decisions"),
            ({"total_steps": 10_000}, "gives 5 rollouts of 2,048 decisions"),
            ({"update_epochs": 1, "minibatch_size": 2048}, "1 gradient steps per rollout"),
            ({"net": RogueNetConfig()}, "net is a RogueNet"),
        ],
    )
    def test_are_told(self, settings: dict[str, object], told: str) -> None:
        own = PRESETS["control"].settings_for(16, 100_000)
        config = PPOConfig(**{**own, **settings})
        found = unusual_settings(config, *_CONTROL, 16)
        assert any(told in sentence for sentence in found), found

    @pytest.mark.slow
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
            assert "use num_threads=1 (--set-train num_threads=1), or fewer workers" in found[0]

    @pytest.mark.slow
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


def test_games_for_several_agents_have_the_same_preset() -> None:
    spaces = tic_tac_toe.obs_space(), tic_tac_toe.action_space()
    assert preset_for(*spaces, num_agents=2).name == "entities"
    with VecEnv(tic_tac_toe, 2) as vec:
        config = PPOConfig.for_env(vec)
    assert config.update_epochs == PRESETS["entities"].settings["update_epochs"]


def test_several_agents_that_see_a_fixed_size_have_an_mlp_and_a_look_at_the_game() -> None:
    preset = preset_for(*_CONTROL, num_agents=2)
    assert (preset.name, preset.is_fitted) == ("entities", True)
    assert preset.settings["net"] == MLPConfig()
    assert preset_for(*_CONTROL).name == "control"
