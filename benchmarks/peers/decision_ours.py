"""Our agents as contenders: each step is one decision, from an observation to actions."""

from __future__ import annotations

from itertools import cycle

from benchmarks.peers.decision import ACTION, GAME, Food, Head, Segment, shown, weights
from benchmarks.peers.stepper import Stepper
from entity_env import Obs
from entity_env.agents.rogue_net import NumpyAgent, RogueNetConfig
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.single import PlainSingleNet
from entity_env.authoring.local_run import AgentRun
from entity_env.core.observation import CategoricalActionMask, Observation


def agent(num_entities: int) -> Stepper:
    """The shipped agent, called like the real rogue-net: an observation in, an action out."""
    return _stepper(NumpyAgent(weights(), seed=1), num_entities)


def remembering_agent(num_entities: int) -> Stepper:
    """The shipped agent with a memory of the size that `train` suggests."""
    return _stepper(NumpyAgent(weights(RogueNetConfig(memory=32)), seed=1), num_entities)


def numpy_agent(num_entities: int) -> Stepper:
    """The agent of an installation without a compiler."""
    deciding = NumpyAgent(weights(), seed=1)
    deciding._single = PlainSingleNet(weights())
    return _stepper(deciding, num_entities)


def torch_agent(num_entities: int) -> Stepper:
    """Our network in torch, called like the real rogue-net."""
    import torch

    from entity_env.agents.rogue_net import NeuralAgent, RogueNet

    torch.set_num_threads(1)
    return _stepper(NeuralAgent(RogueNet.of(weights()), seed=1), num_entities)


def game(num_entities: int) -> Stepper:
    """The shipped agent, called by a game: dataclasses in, a list of enum members out."""
    deciding = _joined(NumpyAgent(weights(), seed=1))
    observations = cycle(
        [
            Obs(0.0)
            .actors([Head(*row) for row in features["Head"].tolist()])
            .entities([Segment(*row) for row in features["Segment"].tolist()])
            .entities([Food(*row) for row in features["Food"].tolist()])
            for features in shown(num_entities)
        ]
    )
    return Stepper(1, lambda: deciding.act(next(observations), ACTION))


def _stepper(deciding: TrainedAgent, num_entities: int) -> Stepper:
    _joined(deciding)
    actions = {ACTION.name: CategoricalActionMask(actor_types=["Head"])}
    observations = [
        Observation(reward=0.0, features=features, actions=actions)
        for features in shown(num_entities)
    ]
    endless = cycle(observations)
    return Stepper(1, lambda: deciding.decide(next(endless)))


def _joined(deciding: TrainedAgent) -> TrainedAgent:
    """Joins the agent to the game and makes a first decision."""
    deciding.join(AgentRun(GAME.schema))
    deciding.act(Obs(0.0).actors([Head(0.0, 0.0)]), ACTION)
    return deciding
