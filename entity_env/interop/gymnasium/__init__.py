"""Gymnasium: our games as its environments, and its vector environments as ours.

From us to Gymnasium: `GameEnv` is one game as a `gymnasium.Env`; `EntityVectorEnv` is a `VecEnv`
and `BatchVectorEnv` a `BatchEnv` as a `gymnasium.vector.VectorEnv`. `make_vector_env` makes the one
that fits, and is a `vector_entry_point` for `gymnasium.register`::

    gymnasium.register(
        "snake-v0",
        entry_point="entity_env.interop.gymnasium:GameEnv",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": snake, "max_entities": {"Segment": 99}},
        max_episode_steps=1000,
    )
    envs = gymnasium.make_vec("snake-v0", num_envs=64)

The games of this package for one agent are registered when this module is imported, with room for
the entities of their default settings (see `game_ids`)::

    import entity_env.interop.gymnasium
    env = gymnasium.make("entity_env/Snake-v0")
    env = gymnasium.make("entity_env.interop.gymnasium:entity_env/Snake-v0")  # without the import

From Gymnasium to us: `GymnasiumVecEnv` is a vector environment of Gymnasium as a `VecEnv`,
for our trainer, and `from_gymnasium` an environment as a `Game`, which can be played as well, or
trained in a `VecEnv` with workers::

    train(GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", num_envs=64)))
    from_gymnasium("CartPole-v1").run(RandomAgent())

**Observations** of a game with entities are a `Dict` of arrays, one per type:

- `observation[type]`, `(count, num_features)` float32. A type whose number of entities varies must
  be in `max_entities`: its array is padded with rows of zeros, and `observation[f"{type}_mask"]`,
  `(count,)` int8, is 1 for entities. More entities than that are an error: none is dropped. Hidden
  entities count as absent. `max_entities="auto"` measures the numbers in random episodes.
- `observation["global"]`, `(num_global_features,)` float32, if there are any.
- The last observation of an episode may be all zeros.

For one flat array use Gymnasium's `FlattenObservation`.

**Actions**: the space of the game's only action, or a `Dict` by name for several. A choice of a
label is a `Discrete`, or a `MultiDiscrete` with one choice per actor, in the order of the game;
numbers are a `Box`. An actor that selects an entity chooses its place among the rows of all types,
one type after another in the order of the game's `obs_space()`. Actions of padded actors are
ignored.

**Action masks**: `info["action_mask"]`, int8, 1 = allowed, `(num_choices,)` or
`(num_actors, num_choices)`; for several actions a dict by name. `action_space.sample(mask)` takes
it, for a `MultiDiscrete` as a tuple. All zeros = no action is needed. A truncated episode ends
with the mask of its last observation, in `info` or `final_info`, so that a target over legal
actions can be computed. An illegal choice is a
`SchemaError`; with `illegal_actions="next"`, for agents without masks, the next legal choice is
taken, wrapping around.

**Seeds**: `reset(seed=s)` begins with episode `s * 2**31` of the run with seed 0, and the next ones
follow. `info["episode_seed"]` is the seed of the episode itself, with which `Game.play_episode` and
`entity-env play --episode-seed` begin it again.
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
