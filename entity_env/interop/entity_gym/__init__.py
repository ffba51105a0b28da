"""entity-gym: entity_env games as entity-gym environments, and the reverse.

To entity-gym, and therefore to enn-trainer: `vec_env` wraps many copies of a game or environment as
an `entity_gym.env.VecEnv`; `environment` wraps one game as a class of `entity_gym.env.Environment`;
`factory` returns the function that `enn_trainer.train` takes::

    enn_trainer.train(state_manager, factory(multi_snake))
    enn_trainer.train(state_manager, factory(CartPole))  # a class of batch environments

From entity-gym: `from_entity_gym` returns an `Environment`, or a function that makes one::

    train(from_entity_gym(MultiSnake))
    VecEnv(from_entity_gym(partial(MultiSnake, num_snakes=4)), num_envs=64)

**Limits of entity-gym.** It has only the flag `done`: a truncated episode looks terminated, so a
trainer treats the value of its last state as 0. In place of an episode's last observation,
`vec_env` returns the first observation of the next episode. Continuous actions need `discretize`,
which converts them to labels. `vec_env` raises an error if a mask forbids a selection: entity-gym's
batches have no masks of selections.
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
