"""factory: makes environments for `enn_trainer.train`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from entity_env.agents.rogue_net.enn_trainer.writer import refused_names
from entity_env.authoring.game import Game
from entity_env.core.spaces import ActionName, EntityName
from entity_env.errors import SchemaError, UsageError
from entity_env.interop.entity_gym.vec_env import AnySource, EntityGymVecEnv

Factory: TypeAlias = "Callable[[Any, int, int, int], EntityGymVecEnv]"
"""Arguments: the trainer's `EnvConfig`, number of environments and processes, first index."""


def factory(
    source: AnySource,
    *,
    seed: int = 0,
    discretize: Mapping[ActionName, int] | None = None,
    hides: Sequence[EntityName] = (),
) -> Factory:
    """A function that makes environments for `enn_trainer.train`; arguments as for `vec_env`.

    From the trainer's configuration it takes the number of environments and of processes, which
    includes this one, and `env.kwargs`: settings of the game, or keyword arguments of the class.
    The first call is for training, later ones are for evaluations: these always play the same
    episodes, different from those of training. Make one factory per training run. If agents often
    have no action, use large minibatches: enn-trainer's loss is NaN for one without actions.

    The function raises the errors of `vec_env`; also UsageError if `env.kwargs` is not a JSON
    object or has unknown settings, and SchemaError for a name that rogue-net does not support.
    """
    calls = count()

    def make(config: Any, num_envs: int, processes: int, first_env: int) -> EntityGymVecEnv:  # noqa: ANN401 - the trainer's own
        envs = EntityGymVecEnv(
            _with_settings(source, getattr(config, "kwargs", "{}")),
            num_envs,
            processes if processes > 1 else 0,
            _seed_of(seed, first_env, is_training=next(calls) == 0),
            discretize,
            hides,
            needs_entity=True,
        )
        try:
            _require_names([*envs.obs_space().entities, *envs.action_space()])
        except SchemaError:
            envs.close()
            raise
        return envs

    return make


def _seed_of(seed: int, first_env: int, *, is_training: bool) -> int:
    sequence = np.random.SeedSequence((seed, first_env, int(is_training)))
    return int(sequence.generate_state(1, np.uint32)[0])


def _require_names(names: Sequence[str]) -> None:
    for name in refused_names(names):
        raise SchemaError(
            f"the name {name!r} is not valid for a torch module, so enn-trainer cannot make a "
            "network for it: rename the entity or the action"
        )


def _with_settings(source: AnySource, text: str) -> AnySource:
    """The source with the settings of `env.kwargs`, a JSON object."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise UsageError(
            f'env.kwargs must be a JSON object, such as {{"board_size": 8}}: got {text!r}'
        )
    if isinstance(source, Game):
        return source.with_settings(**settings)
    if not settings:
        return source
    if not callable(source):
        raise UsageError(f"env.kwargs has settings, and {source!r} takes none: got {text}")
    try:
        inspect.signature(source).bind_partial(**settings)
    except TypeError as error:
        raise UsageError(f"env.kwargs does not fit {source!r}, {error}: got {text}") from error
    return partial(source, **settings)
