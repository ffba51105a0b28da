"""Agents that choose actions for a game: random, human, trained, scripted, or your own.

`ppo` and `imitation` train agents, `training` holds the parts that both share, and `rogue_net`
holds the networks. The `Agent` interface is in `authoring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.authoring.agent import Agent as Agent, Pending as Pending
from entity_env.authoring.local_run import (
    AgentFailure as AgentFailure,
    AgentRun as AgentRun,
    RunLimits as RunLimits,
)
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.agents.bots import against as against
    from entity_env.agents.channels.channel import Transport as Transport
    from entity_env.agents.channels.game_runner import TrainAgent as TrainAgent
    from entity_env.agents.channels.train_agent_env import (
        TrainAgentEnv as TrainAgentEnv,
        TrainEnvBuilder as TrainEnvBuilder,
    )
    from entity_env.agents.game_agents import GameAgents as GameAgents
    from entity_env.agents.human.human_agent import HumanAgent as HumanAgent
    from entity_env.agents.load import load_agent as load_agent
    from entity_env.agents.policy_agent import (
        BatchPolicy as BatchPolicy,
        PolicyAgent as PolicyAgent,
    )
    from entity_env.agents.random import (
        RandomAgent as RandomAgent,
        random_action as random_action,
        random_actions as random_actions,
    )
    from entity_env.agents.rogue_net.numpy_net.agent import RogueNetAgent as RogueNetAgent
    from entity_env.agents.scripted_agent import ScriptedAgent as ScriptedAgent

# Imported on first use: a game needs only the types of its agents.
_LATE = {
    "against": "bots",
    "Transport": "channels.channel",
    "TrainAgent": "channels.game_runner",
    **dict.fromkeys(("TrainAgentEnv", "TrainEnvBuilder"), "channels.train_agent_env"),
    "GameAgents": "game_agents",
    "HumanAgent": "human.human_agent",
    "load_agent": "load",
    **dict.fromkeys(("BatchPolicy", "PolicyAgent"), "policy_agent"),
    **dict.fromkeys(("RandomAgent", "random_action", "random_actions"), "random"),
    "RogueNetAgent": "rogue_net.numpy_net.agent",
    "ScriptedAgent": "scripted_agent",
}

__getattr__ = late_names(__name__, _LATE)
