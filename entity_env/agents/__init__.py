"""Who decides: agents that a game asks for actions."""

from entity_env.agents.agent import Agent as Agent
from entity_env.agents.agent import Pending as Pending
from entity_env.agents.policy_agent import PolicyAgent as PolicyAgent
from entity_env.agents.random import RandomAgent as RandomAgent
from entity_env.agents.random import random_action as random_action
from entity_env.agents.random import random_actions as random_actions
from entity_env.agents.channel import Transport as Transport
from entity_env.agents.train_agent import TrainAgent as TrainAgent
from entity_env.agents.train_agent_env import TrainAgentEnv as TrainAgentEnv
