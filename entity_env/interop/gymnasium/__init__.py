"""Gymnasium: our games as its environments, and its vector environments as ours.

From us to Gymnasium: `GameEnv` is one game as a `gymnasium.Env`, `EntityVectorEnv` any `VecEnv` and
`BatchVectorEnv` any `BatchEnv` as a `gymnasium.vector.VectorEnv`; `make_vector_env` makes whichever
fits, and is what `gymnasium.register` takes::

    gymnasium.register(
        "snake-v0",
        entry_point="entity_env.interop.gymnasium:GameEnv",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": snake, "max_entities": {"Segment": 99}},
        max_episode_steps=1000,
    )
    envs = gymnasium.make_vec("snake-v0", num_envs=64)

From Gymnasium to us: `GymnasiumVecEnv` is a vector environment of Gymnasium as a `VecEnvironment`,
which our trainer takes::

    train(GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", num_envs=64)))

**What an agent of Gymnasium sees** of a game with entities is a `Dict` of arrays, one a type:

- `observation[type]`, `(count, num_features)` float32. Types of which there is always the same
  number are as they are. The others are named in `max_entities`: rows without an entity are zeros,
  and `observation[f"{type}_mask"]`, `(count,)` int8, is 1 where there is one. More entities than
  that are an error: nothing is ever cut off. Entities that the game hides count as absent.
- `observation["global"]`, `(num_global_features,)` float32, if there are any.
- The last observation of an episode may show nothing: then all of it is zeros.

Who wants one flat array puts Gymnasium's `FlattenObservation` around it.

**What it does**: one action of the game is its space, several are a `Dict` by name. One choice of a
label is a `Discrete`, that of several actors a `MultiDiscrete`, one an actor in the order of the
game; numbers are a `Box`. An actor that selects an entity chooses its place: the rows of all types
one after another, in the order of the game's `obs_space()`. What is said for an actor that is not
there is ignored.

**What is allowed**: `info["action_mask"]`, int8, 1 = allowed: `(num_choices,)`, or
`(num_actors, num_choices)`, for several actions a dict by name. `action_space.sample(mask)` takes
it, of a `MultiDiscrete` as a tuple. All zeros = nobody is asked. A choice that is not allowed is a
`SchemaError`, or with `illegal_actions="next"` the next one that is, going round: for agents that
know of no masks.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    from gymnasium.vector import AutoresetMode as AutoresetMode
except ImportError as error:
    raise MissingExtraError(
        "gymnasium>=1.1", "gymnasium", "entity_env.interop.gymnasium"
    ) from error

from entity_env.interop.gymnasium.batch_vector_env import BatchVectorEnv as BatchVectorEnv
from entity_env.interop.gymnasium.env import GameEnv as GameEnv
from entity_env.interop.gymnasium.from_gymnasium import GymnasiumVecEnv as GymnasiumVecEnv
from entity_env.interop.gymnasium.make import make_vector_env as make_vector_env
from entity_env.interop.gymnasium.padded_actions import IllegalActions as IllegalActions
from entity_env.interop.gymnasium.vector_env import EntityVectorEnv as EntityVectorEnv

__all__ = [
    "AutoresetMode",
    "BatchVectorEnv",
    "EntityVectorEnv",
    "GameEnv",
    "GymnasiumVecEnv",
    "IllegalActions",
    "make_vector_env",
]
