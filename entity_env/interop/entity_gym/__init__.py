"""entity-gym: our games as its environments, and its environments as ours.

From us to entity-gym, and so to enn-trainer: `vec_env` is many copies of a game or environment as
an `entity_gym.env.VecEnv`, `environment` one game as a class of `entity_gym.env.Environment`, and
`factory` the function that `enn_trainer.train` takes::

    enn_trainer.train(state_manager, factory(multi_snake))
    enn_trainer.train(state_manager, factory(CartPole))  # a class of batch environments

From entity-gym to us: `from_entity_gym` returns an `Environment`, or a function that makes one::

    train(from_entity_gym(MultiSnake))
    VecEnv(from_entity_gym(partial(MultiSnake, num_snakes=4)), num_envs=64)

**Limits of entity-gym.** It has one flag, `done`: a truncated episode looks terminated, so a
trainer takes the value of its last state for 0. `vec_env` returns the first observation of the next
episode instead of the last one. Continuous actions need `discretize`, which makes labels of them.
Masks of selections are not supported: a game with entities that cannot be selected is an error.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    import entity_gym.env  # noqa: F401 - checks that it is installed
    import ragged_buffer  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "entity-gym==0.1.10", "entity-gym", "entity_env.interop.entity_gym"
    ) from error

from entity_env.interop.entity_gym.from_entity_gym import from_entity_gym as from_entity_gym
from entity_env.interop.entity_gym.vec_env import (
    environment as environment,
    factory as factory,
    vec_env as vec_env,
)

__all__ = ["environment", "factory", "from_entity_gym", "vec_env"]
