"""Gymnasium: entity_env games as Gymnasium environments, and the reverse.

To Gymnasium: `GameEnv` wraps one game as a `gymnasium.Env`. `EntityVectorEnv` wraps a `VecEnv`, and
`BatchVectorEnv` a `BatchEnv`, as a `gymnasium.vector.VectorEnv`. `make_vector_env` makes the one
that fits and is a `vector_entry_point` for `gymnasium.register`::

    gymnasium.register(
        "snake-v0",
        entry_point="entity_env.interop.gymnasium:GameEnv",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": snake, "max_entities": {"Segment": 99}},
        max_episode_steps=1000,
    )
    envs = gymnasium.make_vec("snake-v0", num_envs=64)

Importing this module registers the package's single-agent games, with room for the entities of
their default settings (see `game_ids`)::

    import entity_env.interop.gymnasium
    env = gymnasium.make("entity_env/Snake-v0")
    env = gymnasium.make("entity_env.interop.gymnasium:entity_env/Snake-v0")  # without the import

From Gymnasium: `GymnasiumVecEnv` wraps a Gymnasium vector environment as a `VecEnv`, for the
trainer. `from_gymnasium` converts an environment to a `Game`, to play or to train in a `VecEnv`
with workers::

    train(GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", num_envs=64)))
    from_gymnasium("CartPole-v1").run(RandomAgent())

**Observations** of a game with entities are a `Dict` of arrays, one per entity type:

- `observation[type]`, `(count, num_features)` float32. A type whose number of entities varies must
  be in `max_entities`: its array is padded with rows of zeros, and `observation[f"{type}_mask"]`,
  `(count,)` int8, is 1 for entities. More entities raise an error; none is dropped. A hidden entity
  is a row of zeros, with mask 0 if there is a mask. `max_entities="auto"` measures the numbers in
  random episodes.
- `observation["global"]`, `(num_global_features,)` float32, if there are any.
- The last observation of an episode may be all zeros.

For a flat array, use Gymnasium's `FlattenObservation`.

**Actions**: the space of the game's only action, or a `Dict` by name for several actions. Choosing
a label is a `Discrete`, or a `MultiDiscrete` with one choice per actor, in the game's order;
numbers are a `Box`. An actor that selects an entity chooses a place among the rows of all types,
concatenated in the order of the game's `obs_space()`. Actions of padded actors are ignored.

**Action masks**: `info["action_mask"]`, int8, 1 = allowed, `(num_choices,)` or
`(num_actors, num_choices)`; for several actions a dict by name. Pass it to
`action_space.sample(mask)`, as a tuple for a `MultiDiscrete`. All zeros = no action is needed. For
a truncated episode, `info` or `final_info` has the mask of the last observation, to compute a
target over legal actions. An illegal choice raises `SchemaError`. For agents that cannot use masks,
`illegal_actions="next"` replaces it with the next legal choice, wrapping around. The parts of a
`Composite` are several actions. A mask that depends on an earlier part raises `SchemaError`,
because these masks cannot show it.

**Seeds**: `reset(seed=s)` starts at episode `s * 2**31` of the run with seed `2**62`; later resets
continue from there. `info["episode_seed"]` is the seed of the current episode. `Game.play_episode`
and `entity-env play --episode-seed` start that episode again.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    from gymnasium.vector import AutoresetMode as AutoresetMode
except ImportError as error:
    raise MissingExtraError(
        "gymnasium>=1.1", "gymnasium", "entity_env.interop.gymnasium"
    ) from error

from entity_env.interop.gymnasium.env import GameEnv as GameEnv, make_vector_env as make_vector_env
from entity_env.interop.gymnasium.from_gymnasium import GymnasiumVecEnv as GymnasiumVecEnv
from entity_env.interop.gymnasium.game import from_gymnasium as from_gymnasium
from entity_env.interop.gymnasium.ids import game_ids as game_ids, register_games
from entity_env.interop.gymnasium.padded import IllegalActions as IllegalActions
from entity_env.interop.gymnasium.vector_env import (
    BatchVectorEnv as BatchVectorEnv,
    EntityVectorEnv as EntityVectorEnv,
)

__all__ = [
    "AutoresetMode",
    "BatchVectorEnv",
    "EntityVectorEnv",
    "GameEnv",
    "GymnasiumVecEnv",
    "IllegalActions",
    "from_gymnasium",
    "game_ids",
    "make_vector_env",
]

register_games()
