"""PettingZoo: multi-agent games as PettingZoo environments, and the reverse.

From PettingZoo: `from_pettingzoo` converts an AEC or parallel environment to a `Game`, to play and
to train by self-play::

    with VecEnv(from_pettingzoo(connect_four_v3.env), 64) as vec:
        train(vec)

To PettingZoo: `GameParallelEnv` wraps any game, whether agents act simultaneously or in turn;
`GameAECEnv` wraps any game whose only action is one choice, and steps one agent at a time::

    env = GameAECEnv(tic_tac_toe)
    env.reset(seed=1)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        over = terminated or truncated
        env.step(None if over else env.action_space(agent).sample(observation["action_mask"]))

**Agents** are `player_0` and so on. `agent_selection` is the agent that acts next; the game
decides the order. Agents that the game asks at the same time take turns, lowest number first.

Agents that act simultaneously::

    env = GameParallelEnv(rock_paper_scissors)
    observations, infos = env.reset(seed=1)
    while env.agents:
        throws = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, rewards, terminations, truncations, infos = env.step(throws)

**Observations** are a dict: `observation`, float32, and `action_mask`, int8, 1 = allowed, all 0 for
agents that do not act. An action is one `Discrete`. A `GameParallelEnv` also supports other action
spaces; its observations are then flat arrays. An illegal action raises a `SchemaError` that names
the agent; with `illegal_actions="next"`, meant for policies that ignore masks, the next legal
action is taken, wrapping around.

**Rewards** of all agents are set in each step. Games report scores with observations, so what an
agent earns during other agents' turns arrives with its own next observation.

**Seeds** are as in `entity_env.interop.gymnasium`, and start the same episodes as in a `GameEnv`.
`infos[agent]["episode_seed"]` is the seed of the current episode.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    from pettingzoo import AECEnv as AECEnv
except ImportError as error:
    raise MissingExtraError(
        "pettingzoo>=1.24", "pettingzoo", "entity_env.interop.pettingzoo"
    ) from error

from entity_env.interop.gymnasium.padded import IllegalActions as IllegalActions
from entity_env.interop.pettingzoo.aec_env import GameAECEnv as GameAECEnv
from entity_env.interop.pettingzoo.from_pettingzoo import from_pettingzoo as from_pettingzoo
from entity_env.interop.pettingzoo.parallel_env import GameParallelEnv as GameParallelEnv

__all__ = [
    "GameAECEnv",
    "GameParallelEnv",
    "IllegalActions",
    "from_pettingzoo",
]
