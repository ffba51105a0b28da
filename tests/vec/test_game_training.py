"""Training information of a game: settings, batch environment, environments for self-play."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env import Game, Obs, UsageError
from entity_env.agents import Agent
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.training.presets import PRESETS
from entity_env.games.classic import CartPole
from entity_env.vec import Autoreset, GameTraining, VecEnv
from entity_env.vec.batch_env import BatchSource
from entity_env.vec.batch_env.vec_env import BatchEnvSource
from entity_env.vec.game_training import (
    is_batch,
    make_training_env,
    make_vec_env,
    preset_of,
    self_play_of,
)
from entity_env.vec.process_batch import ProcessBatch


@dataclass
class Cart:
    x: float


class Push(Enum):
    LEFT = 0
    RIGHT = 1


def play(agent: Agent, *, seed: int, max_episode_steps: int = 3) -> None:
    for _ in range(max_episode_steps):
        if agent.act(Obs().entities([Cart(0)]), Push) is None:
            return
    agent.game_over(Obs())


def game(training: Any) -> Game:  # noqa: ANN401 - includes wrong ones
    return Game(play, entities=(Cart,), actions=(Push,), name="carts", training=training)


batch = GameTraining({"gamma": 0.5}, CartPole)
twelve = 12


def test_a_game_without_any_is_trained_as_others() -> None:
    nothing: list[Any] = [None, {}]
    for training in nothing:
        assert GameTraining.of(game(training)) == GameTraining()
        assert preset_of(game(training)) == PRESETS["entities"]
        assert not is_batch(game(training))
        assert self_play_of(game(training)) is None
        with make_training_env(game(training), 2) as vec:
            assert vec.game is not None


def test_settings_take_the_place_of_those_of_the_preset() -> None:
    own = preset_of(game({"gamma": 0.9, "net": {"n_layer": 1}, "num_envs": 7}))
    entities = PRESETS["entities"]
    assert (own.name, own.num_envs, own.is_fitted) == ("entities", 7, True)
    changes = {"gamma": 0.9, "net": RogueNetConfig(n_layer=1)}
    assert own.settings == {**entities.settings, **changes}


def test_a_preset_is_chosen_by_name_or_none_at_all() -> None:
    own = preset_of(game({"preset": "board", "gamma": 0.9}))
    assert own.settings == {**PRESETS["board"].settings, "gamma": 0.9}
    bare = preset_of(game({"preset": None, "gamma": 0.9}))
    assert (bare.name, bare.settings) == ("carts", {"gamma": 0.9})


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"gama": 0.9}, "training of carts: there is no setting 'gama'; did you mean gamma?"),
        ({"gamma": 2}, "training of carts: gamma"),
        ({"net": {"heads": 1}}, "carts: there is no setting 'net.heads'; did you mean net.n_head?"),
        ({"preset": "chess"}, "no preset 'chess'"),
        ("nowhere:training", "carts: training='nowhere:training': No module named 'nowhere'"),
        (f"{__name__}:nothing", "must name an instance of GameTraining as 'module:name', got None"),
        (f"{__name__}:twelve", "must name an instance of GameTraining as 'module:name', got 12"),
    ],
)
def test_what_cannot_be_names_the_game(training: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=message):
        preset_of(game(training))


def test_a_batch_takes_the_place_of_copies() -> None:
    carts = game(f"{__name__}:batch").with_settings(max_episode_steps=2)
    assert is_batch(carts)
    assert preset_of(carts).settings["gamma"] == 0.5
    for make in (make_vec_env, make_training_env):
        with make(carts, 3) as vec:
            assert vec.game is None
            vec.reset()
            for _ in range(2):
                obs = vec.act({"Push": np.zeros(3, np.int64)})
            assert [episode.length for episode in obs.episodes] == [2, 2, 2]


class Still(BatchSource):
    """Environments that a training steps instead of the game."""

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> ProcessBatch:
        return BatchEnvSource(CartPole).make(envs, num_envs, autoreset)


self_play = GameTraining(self_play=lambda _: Still())


@pytest.mark.parametrize("training", ["batch", "self_play"])
def test_arrays_follow_the_options_of_a_vec_env_or_refuse_them(
    training: str, tmp_path: Path
) -> None:
    carts = game(f"{__name__}:{training}")
    with make_training_env(carts, 2, 0, 7.5) as vec:
        assert vec._step_timeout_s == 7.5
    with pytest.raises(UsageError, match='on_error="restart" needs num_workers for array'):
        make_training_env(carts, 2, 0, None, "restart")
    with pytest.raises(UsageError, match="replays need a Game"):
        make_training_env(carts, 2, failures=tmp_path)
    with pytest.raises(UsageError, match="transport is for games"):
        VecEnv(Still(), 2, transport="thread")
