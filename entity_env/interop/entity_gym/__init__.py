"""entity-gym: our games as its environments, and its environments as ours.

From us to entity-gym, and so to enn-trainer: `vec_env` is many copies of a game or environment as
a genuine `entity_gym.env.VecEnv`, `environment` one game as a genuine class of its environments,
and `factory` what `enn_trainer.train` takes::

    enn_trainer.train(state_manager, factory(multi_snake))
    enn_trainer.train(state_manager, factory(CartPole))  # a class of batch environments

From entity-gym to us: what `from_entity_gym` returns goes wherever an `Environment` or a function
that makes one goes::

    train(from_entity_gym(MultiSnake))
    VecEnv(from_entity_gym(partial(MultiSnake, num_snakes=4)), num_envs=64)

**What has no place there.** entity-gym knows one flag, `done`: an episode that was cut looks as if
it had ended by its rules, so a trainer takes the value of its last state for 0. The last
observation of an episode is not shown by `vec_env`, which shows the first of the next one instead.
Nor are there numbers as actions (`discretize` makes labels of them) and masks of selections: a game
that forbids somebody to be selected is refused.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    import entity_gym.env  # noqa: F401 - only whether it is there
    import ragged_buffer  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "entity-gym==0.1.10", "entity-gym", "entity_env.interop.entity_gym"
    ) from error

from entity_env.interop.entity_gym.env import environment as environment
from entity_env.interop.entity_gym.factory import factory as factory
from entity_env.interop.entity_gym.from_entity_gym import from_entity_gym as from_entity_gym
from entity_env.interop.entity_gym.vec_env import vec_env as vec_env

__all__ = ["environment", "factory", "from_entity_gym", "vec_env"]
