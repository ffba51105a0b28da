"""Settings that a game is trained with unless others are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.authoring.game import Game
from entity_env.cli.make_vec_env import is_batch, is_tables


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
# More than a hundred tiles attend to each other, so the network is as small as can be. Episodes of
# some ten steps: what comes later hardly counts.
_PIXEL: Final = TrainSettings(
    PPOConfig(
        total_steps=40_000,
        net=RogueNetConfig(d_model=16, n_layer=1, n_head=1),
        num_steps=16,
        minibatch_size=128,
        update_epochs=4,
        learning_rate=0.003,
        gamma=0.95,
    ),
    num_envs=32,
)
_OWN: Final[Mapping[str, TrainSettings]] = {
    "pixel:grid": _PIXEL,
    "pixel:maze": _PIXEL,
    # What is caught late counts as much.
    "pixel:catch": replace(_PIXEL, config=replace(_PIXEL.config, gamma=0.98)),
    "pixel": _PIXEL,
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

# Without blocks every option is weighed by what it tells of itself, at ten times the speed, and
# `examples/azul` has what that comes to. A game is short, and its rewards come as they are earned.
_AZUL: Final = TrainSettings(
    PPOConfig(
        total_steps=1_200_000,
        net=RogueNetConfig(d_model=64, n_layer=0, n_head=2, d_qk=32),
        learning_rate=0.003,
        gamma=0.995,
        gae_lambda=0.9,
        ent_coef=0.005,
        clip_vloss=False,
        max_grad_norm=1.0,
    ),
    num_envs=128,
)


def settings_of(game: Game) -> TrainSettings:
    """The settings of a game, or those of all games without any of their own."""
    if is_tables(game):
        return _AZUL
    return _OWN.get(game.name, TrainSettings()) if is_batch(game) else TrainSettings()
