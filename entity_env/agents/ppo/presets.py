"""Presets: settings of PPO by kind of environment.

The trainer and the command line both take their defaults from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import is_flat, picture_of
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import UsageError


@dataclass(frozen=True)
class Preset:
    """Settings that suit a kind of environment.

    Args:
        name: what `PPOConfig.for_env` calls it.
        kind: the environments that it suits, in a few words.
        num_envs: how many to train on, where nothing speaks for another number.
        settings: fields of `PPOConfig` that differ from its defaults.
        rollout_sizes: least and most decisions of a rollout, whatever the number of environments;
            between them a run has `num_rollouts`. None = as many as `num_steps` makes.
        num_rollouts: of a run.
    """

    name: str
    kind: str
    num_envs: int = 128
    settings: Mapping[str, Any] = field(default_factory=dict)
    rollout_sizes: tuple[int, int] | None = None
    num_rollouts: int = 40

    def settings_for(self, num_rows: int, total_steps: int | None = None) -> dict[str, Any]:
        """Fields of `PPOConfig`.

        Args:
            num_rows: rows of a batch of the environments.
            total_steps: decisions of the run; None = those of the preset.
        """
        settings = dict(self.settings)
        if total_steps is not None:
            settings["total_steps"] = total_steps
        if self.rollout_sizes is None:
            return settings
        least, most = self.rollout_sizes
        size = max(least, min(settings["total_steps"] // self.num_rollouts, most))
        return {"num_steps": max(size // num_rows, 8), **settings}


# More gradient steps than for entities, and values in units of their deviation: returns are in the
# hundreds. A long run can afford long rollouts, whose gradients are less noisy: LunarLander hovers
# without end with 2,048 decisions and a gamma of 0.99.
_CONTROL: Final = Preset(
    "control",
    "observations of fixed size",
    num_envs=16,
    settings={
        "total_steps": 300_000,
        "net": MLPConfig(),
        "norm_returns": True,
        "minibatch_size": 256,
        "update_epochs": 8,
        "learning_rate": 0.001,
        "gamma": 0.995,
        "ent_coef": 0.01,
        "clip_vloss": False,
        "max_grad_norm": 0.5,
    },
    rollout_sizes=(2048, 8192),
)
_PICTURES: Final = replace(
    _CONTROL,
    name="pictures",
    kind="pictures",
    settings={**_CONTROL.settings, "net": CNNConfig(), "learning_rate": 0.0005},
)
PRESETS: Final[Mapping[str, Preset]] = {
    preset.name: preset
    for preset in (
        # Xor: with the larger steps of `PPOConfig`, or less reward for entropy, the policy is sure
        # of itself before it is right, and stays so; without `target_kl` it may lose what it has.
        Preset(
            "entities",
            "any number of entities",
            settings={
                "learning_rate": 0.001,
                "minibatch_size": 256,
                "ent_coef": 0.1,
                "target_kl": 0.02,
            },
        ),
        _CONTROL,
        _PICTURES,
        # A RogueNet takes many gradient steps before it tells one position of a board from
        # another: with the smaller steps of "entities" tic-tac-toe is sure of itself, and wrong.
        Preset(
            "versus",
            "several agents, with any number of entities",
            settings={
                # Eight heads learn perfect moves in half the steps of two, at the same price.
                "net": RogueNetConfig(n_head=8),
                "num_steps": 32,
                "minibatch_size": 384,
                "update_epochs": 10,
                "learning_rate": 0.01,
                "norm_returns": True,
                "clip_vloss": False,
                "ent_coef": 0.1,
                "target_kl": 0.3,
                "max_grad_norm": 0.5,
            },
        ),
        # Over a hundred tiles attend to each other, so the network is small. Episodes have about
        # ten steps, so later rewards hardly count.
        Preset(
            "screen",
            "the tiles of a screen",
            num_envs=32,
            settings={
                "total_steps": 40_000,
                "net": RogueNetConfig(d_model=16, n_layer=1, n_head=1),
                "minibatch_size": 128,
                "update_epochs": 4,
                "gamma": 0.95,
            },
        ),
        # Without blocks each legal move is scored from its own features, at ten times the speed;
        # see the results in `examples/azul`. Games are short, and rewards immediate.
        Preset(
            "azul",
            "Azul by self-play",
            settings={
                "total_steps": 800_000,
                "net": RogueNetConfig(d_model=64, n_layer=0, n_head=2, d_qk=32),
                "gamma": 0.995,
                "gae_lambda": 0.9,
                "ent_coef": 0.005,
                "clip_vloss": False,
                "max_grad_norm": 1.0,
            },
        ),
    )
}

RANDOM_OPENINGS: Final = 0.5
"""Share of the games in turns, of several agents, whose first decision is drawn at random."""
DEFAULT_OPPONENTS: Final[Mapping[str, float]] = {"self": 0.2, "random": 0.1}
"""Shares of the environments of a game for several agents that have an opponent, by its name."""

_OF_GAMES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    **dict.fromkeys(("pixel", "pixel:grid", "pixel:maze"), ("screen", {})),
    # Late catches count as much as early ones.
    "pixel:catch": ("screen", {"gamma": 0.98}),
    "cartpole": ("control", {"total_steps": 100_000}),
    # A push shows its effect within ten steps.
    "pendulum": ("control", {"total_steps": 150_000, "gamma": 0.9}),
    # Few positions and short games: with one block, and moves drawn as freely until the end, a run
    # leaves no reply untried that perfect play could win from.
    "tic_tac_toe": ("versus", {"net": RogueNetConfig(n_layer=1), "anneal_entropy": False}),
    "azul": ("azul", {}),
}
"""By name of a game: its preset, and what else is different."""


def preset_for(
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    *,
    game: str | None = None,
    num_agents: int = 1,
) -> Preset:
    """The preset that suits an environment.

    Args:
        obs_space, action_space: of the environment.
        num_agents: agents of the game.
        game: name of one of the package's own games, which may have settings of its own.
    """
    if game is not None and game in _OF_GAMES:
        name, settings = _OF_GAMES[game]
        preset = PRESETS[name]
        return replace(preset, settings={**preset.settings, **settings})
    if not is_flat(obs_space, action_space):
        return PRESETS["entities" if num_agents == 1 else "versus"]
    return PRESETS["control" if picture_of(obs_space) is None else "pictures"]


def named_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in tuple(PRESETS):  # a name of any type
        raise UsageError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
