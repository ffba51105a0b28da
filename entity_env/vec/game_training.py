"""`GameTraining`: a game's own training settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from entity_env.agents.game_agents import named_part
from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.training.presets import Preset, named_preset, preset_for
from entity_env.authoring.game import Game
from entity_env.core.vec_env_base import Autoreset
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import BatchSource
from entity_env.vec.batch_env.vec_env import BatchEnvSource
from entity_env.vec.options import OnError
from entity_env.vec.vec_env import VecEnv


@dataclass(frozen=True)
class GameTraining:
    """A game's own training settings.

    `Game(training="module:name")` names an instance, which is imported to train or evaluate. A game
    that only changes settings passes them directly: `Game(training={"gamma": 0.9})`.

    Args:
        settings: fields of `PPOConfig` that differ from the preset of the game's spaces (those of
            the network under "net"). Also allowed are "num_envs", and "preset": the name of another
            preset, or None for the defaults of `PPOConfig`.
        batch: makes a batch environment of the game, given the number of environments and the
            game's settings by name. The batch has the game's spaces, and replaces copies of the
            game wherever many are played.
        self_play: given the game with its settings, returns the source of environments in which all
            seats learn; None = copies of the game. These environments have the game's spaces, and
            replace the game only in training.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    batch: Callable[..., BatchEnv] | None = None
    self_play: Callable[[Game], BatchSource | None] | None = None

    @classmethod
    def of(cls, game: Game) -> GameTraining:
        """Training settings of a game, which may be empty.

        Raises:
            UsageError: `Game.training` does not name a `GameTraining`.
        """
        given = game.training
        if isinstance(given, str):
            return named_part(game, "training", GameTraining)
        return cls(given or {})


def is_batch(game: Game) -> bool:
    """True if a batch environment replaces copies of the game."""
    return GameTraining.of(game).batch is not None


def self_play_of(game: Game) -> BatchSource | None:
    """Source of the game's own environments for training; None = copies of the game."""
    find = GameTraining.of(game).self_play
    return None if find is None else find(game)


def is_trained_in_arrays(game: Game) -> bool:
    """True if training steps the game's own array environments instead of copies."""
    return is_batch(game) or self_play_of(game) is not None


def preset_of(game: Game) -> Preset:
    """Default settings of a game: the preset of its spaces, overridden by its own settings.

    The game's own settings do not apply if its `self_play` returns None.

    Raises:
        UsageError: an unknown or invalid setting in `GameTraining`.
    """
    preset = preset_for(game.obs_space(), game.action_space(), num_agents=game.num_agents)
    training = GameTraining.of(game)
    own: dict[str, Any] = dict(training.settings)
    if not own or (training.self_play is not None and self_play_of(game) is None):
        return preset
    if "preset" in own:
        name = own.pop("preset")
        preset = Preset(game.name, game.name) if name is None else named_preset(name)
    envs = {"num_envs": own.pop("num_envs")} if "num_envs" in own else {}
    config = PPOConfig(**preset.settings).changed(own, f"training of {game.name}")
    changes = {name: getattr(config, name) for name in own}
    settings = {**preset.settings, **changes}
    return replace(preset, settings=settings, own={**changes, **envs}, **envs)


def make_vec_env(
    game: Game,
    num_envs: int,
    num_workers: int = 0,
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
    failures: Path | None = None,
    *,
    autoreset: Autoreset = "same_step",
    source: BatchSource | None = None,
) -> VecEnv:
    """Many copies of a game with its settings: its batch environment, if it has one, else the game.

    Arguments as for `VecEnv`; environments of `source` replace both.
    """
    make = GameTraining.of(game).batch
    if source is None and make is not None:
        game.require_settings()  # without a timeout, because a batch may take long to compile
        source = BatchEnvSource(partial(make, **game.settings))
    return VecEnv(
        source or game,
        num_envs,
        num_workers,
        autoreset=autoreset,
        step_timeout_s=step_timeout_s,
        on_error=on_error,
        failures=failures,
    )


def make_training_env(
    game: Game,
    num_envs: int,
    num_workers: int = 0,
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
    failures: Path | None = None,
) -> VecEnv:
    """Like `make_vec_env`, but with the environments of `GameTraining.self_play`, if any."""
    limits = step_timeout_s, on_error, failures
    return make_vec_env(game, num_envs, num_workers, *limits, source=self_play_of(game))
