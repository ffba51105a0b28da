"""Options of `entity-env train`: their types, and one for each main setting of the trainer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import click

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.config import COMPILE_MODES
from entity_env.agents.rogue_net.config import POOLINGS, RelposEncodingConfig
from entity_env.cli.options import SEED, FiniteFloat, WholeRange
from entity_env.cli.training import KEPT, RayOptions, ReplayOptions, RunEnd


class _Relpos(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Relative positions: `x=10,y=10`, features and the largest distance along each in cells."""

    name = "relpos"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> RelposEncodingConfig:
        pairs = [pair.partition("=") for pair in str(value).split(",")]
        if not all(name and extent.isdecimal() for name, _, extent in pairs):
            self.fail(f"{value!r} is not of the form NAME=CELLS,NAME=CELLS.", param, ctx)
        return RelposEncodingConfig(
            extent=[int(extent) for _, _, extent in pairs],
            position_features=[name for name, _, _ in pairs],
        )


class Keep(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Names of what to keep: `best,failed`; `none`."""

    name = "keep"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in str(value).split(",")) if value != "none" else ()
        for name in names:
            if name not in KEPT:
                self.fail(f"{name!r} is none of {', '.join(KEPT)}.", param, ctx)
        return names


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Seconds, of `90`, `30m`, `2h` and `1h30m`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = r"(\d{1,9}(?:\.\d{1,6})?)"
        form = rf"(?:{number}d)?(?:{number}h)?(?:{number}m)?(?:{number}s?)?"
        match = re.fullmatch(form, str(value))
        if match is None or not any(match.groups()):
            self.fail(f"{value!r} is not a time such as 90, 30m, 2h or 1h30m.", param, ctx)
        units = (86400, 3600, 60, 1)
        return sum(float(part) * unit for part, unit in zip(match.groups("0"), units, strict=True))


class Compile(click.Choice):  # type: ignore[type-arg]  # generic in new releases alone
    """When to compile: a mode, or a number of steps."""

    name = "compile"

    def __init__(self) -> None:
        super().__init__(COMPILE_MODES)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        if str(value).isdecimal():
            return WholeRange(min=1, max=2**63 - 1).convert(value, param, ctx)
        mode: str = super().convert(value, param, ctx)
        return mode


_INTEGER: Final = WholeRange(max=2**31 - 1)
_PPO_OPTIONS: Final = {
    "seed": "Seed of the run.",
    "learning_rate": "Learning rate of Adam at the start; annealed to 0.",
    "warmup_steps": "Decisions over which the learning rate rises first.",
    "num_steps": "Steps of each environment in a rollout.",
    "minibatch_size": "Decisions in a minibatch.",
    "microbatch_size": "Decisions in memory at once: gradients of a minibatch are added up.",
    "update_epochs": "Epochs over each rollout.",
    "gamma": "Discount factor, per decision.",
    "gae_lambda": "Lambda of generalized advantage estimation.",
    "clip_coef": "How far the probability of an action may move.",
    "norm_returns": "Learn values in units of the deviation of returns.",
    "vf_coef": "Weight of the value's loss.",
    "ent_coef": "Entropy coefficient at the start; annealed to 0.",
    "weight_decay": "Weight decay of AdamW.",
    "max_grad_norm": "Longest gradient.",
    "target_kl": "Divergence that ends learning from a rollout early.",
    "stay_close": "With --init-from: weight of the divergence from that network; by default 0.2, "
    "falling to 0 over the first half.",
}
_NET_OPTIONS: Final = {
    "d_model": "Size of an entity's embedding.",
    "n_layer": "Transformer blocks.",
    "n_head": "Attention heads per block.",
    "separate_value": "A network apart for the value.",
    "pooling": "Pool all entities instead of attention.",
    "dropout": "Share of activations zeroed while learning.",
    "relpos_encoding": "Relative positions in attention: features, and the largest distance along "
    "each in cells.",
}
_KINDS: Final[Mapping[str, Any]] = {
    "seed": SEED,
    "microbatch_size": _INTEGER,
    "target_kl": FiniteFloat(),
    "pooling": click.Choice(POOLINGS),
    "relpos_encoding": _Relpos(),
}
"""Of settings whose default does not say it; `PPOConfig` checks more."""
DEFAULTS: Final = PPOConfig()


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each main setting; its value is None if it is not given."""
    for config, texts in ((DEFAULTS.net, _NET_OPTIONS), (DEFAULTS, _PPO_OPTIONS)):
        for name, text in reversed(texts.items()):
            default = getattr(config, name)
            option = name.removesuffix("_encoding").replace("_", "-")
            kind = _KINDS.get(name) or (FiniteFloat() if type(default) is float else _INTEGER)
            text = f"{text}  [default: {'none' if default is None else default}]"
            if type(default) is bool:
                option_or_not = f"--{option}/--no-{option}"
                command = click.option(option_or_not, name, default=None, help=text)(command)
            else:
                metavar = "NAME=CELLS,..." if isinstance(kind, _Relpos) else None
                add = click.option(f"--{option}", name, type=kind, metavar=metavar, help=text)
                command = add(command)
    return command


CONFIG_HELP: Final = """\b
--config FILE.toml; options and --set-train replace what it says:
  learning_rate = [[0, 0.003], [1, 0]]  # any field of PPOConfig; most
  gamma = 0.99                          # numbers may change over the run
  [net]
  kind = "mlp"                          # rogue_net, mlp or cnn,
  hidden = [64, 64]                     # and fields of its config
  [game]
  board_size = 6                        # as --set
  [run]
  game = "snake"                        # GAME, and other options by
  num_envs = 64                         # their names
"""


def packed(
    name: str, kind: type[RayOptions] | type[ReplayOptions] | type[RunEnd]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Hands the options that are fields of a tuple to a command as one argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def withpacked(**options: object) -> object:
            own: dict[str, Any] = {each: options.pop(each) for each in kind._fields}
            return command(**{name: kind(**own)}, **options)

        return withpacked

    return decorate
