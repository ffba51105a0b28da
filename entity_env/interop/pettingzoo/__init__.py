"""PettingZoo: our games in which agents take turns, as its AEC environments.

`AzulAECEnv` is Azul by the 300 ids of its actions and the numbers of its `FeatureExtractor`,
`GameAECEnv` any other game for several agents who are asked one after the other, by its entities::

    env = AzulAECEnv(num_players=3)
    env = GameAECEnv(tic_tac_toe, max_entities={"Empty": 9, "Mine": 5, "Theirs": 5})
    env.reset(seed=1)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        over = terminated or truncated
        env.step(None if over else env.action_space(agent).sample(observation["action_mask"]))

**Agents** are `player_0` and so on. `agent_selection` is whomever the game asks, which need not go
round: in Azul who took the start marker begins the next round.

**Observations** are a dict: `observation`, float32, and `action_mask`, int8, 1 = allowed, all 0 for
whoever is not to move. An action is one `Discrete`. One that is not allowed is a `SchemaError` that
names the agent, or with `illegal_actions="next"` the next one that is, going round: for agents that
know of no masks.

**Rewards** are told to every agent in each step, as they are earned. In a `GameAECEnv` an agent
that waits learns of them when it is asked again, since games tell scores then.
"""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    from pettingzoo import AECEnv as AECEnv
except ImportError as error:
    raise MissingExtraError(
        "pettingzoo>=1.24", "pettingzoo", "entity_env.interop.pettingzoo"
    ) from error

from entity_env.interop.gymnasium.padded_actions import IllegalActions as IllegalActions
from entity_env.interop.pettingzoo.aec_base import Seen as Seen, TurnAECEnv as TurnAECEnv
from entity_env.interop.pettingzoo.azul_aec_env import AzulAECEnv as AzulAECEnv
from entity_env.interop.pettingzoo.game_aec_env import GameAECEnv as GameAECEnv

__all__ = ["AzulAECEnv", "GameAECEnv", "IllegalActions", "Seen", "TurnAECEnv"]
