"""Settings that a game is trained with unless others are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.cli.vectors import is_batch
from entity_env.game import Game


@dataclass(frozen=True)
class TrainSettings:
    """What a training run begins with.

    Args:
        config: of the trainer.
        num_envs: copies of the game.
    """

    config: PPOConfig = field(default_factory=PPOConfig)
    num_envs: int = 128


# One entity of a few numbers needs but a small network. Returns of hundreds, or of minus hundreds,
# are far from the value of a new network: it has to move by more than a clipped loss lets it, and
# weighs little beside the policy.
_SMALL: Final = RogueNetConfig(d_model=32, n_layer=1, n_head=2)
_CLASSIC: Final[Mapping[str, TrainSettings]] = {
    "cartpole": TrainSettings(
        PPOConfig(
            total_steps=200_000,
            net=_SMALL,
            num_steps=32,
            minibatch_size=256,
            update_epochs=4,
            ent_coef=0.0,
            clip_vloss=False,
            vf_coef=0.05,
        ),
        num_envs=32,
    ),
    "pendulum": TrainSettings(
        PPOConfig(
            total_steps=300_000,
            net=_SMALL,
            num_steps=64,
            minibatch_size=256,
            update_epochs=6,
            learning_rate=0.002,
            gamma=0.9,
            ent_coef=0.0,
            clip_vloss=False,
            vf_coef=0.01,
        ),
        num_envs=16,
    ),
}


def settings_of(game: Game) -> TrainSettings:
    """The settings of a game, or those of all games without any of their own."""
    return _CLASSIC.get(game.name, TrainSettings()) if is_batch(game) else TrainSettings()
