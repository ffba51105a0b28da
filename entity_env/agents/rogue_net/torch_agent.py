"""NeuralAgent: a trained network that plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.agents.rogue_net.torch_checkpoint import load_checkpoint
from entity_env.agents.rogue_net.torch_distributions import CategoricalDistribution, choose
from entity_env.agents.rogue_net.torch_net import RogueNet, Samples
from entity_env.errors import CheckpointError
from entity_env.game_run import AgentRun
from entity_env.observation import (
    Action,
    CategoricalAction,
    GlobalCategoricalAction,
    Observation,
    SelectEntityAction,
)
from entity_env.observation_writer import ObservationWriter
from entity_env.schema import Schema
from entity_env.space_json import differences
from entity_env.spaces import ActionName
from entity_env.vec_obs import VecActions, VecObs


class NeuralAgent(PolicyAgent):
    """Plays as a trained network decides; its choices tell the probabilities of all others.

    The network is only read, never changed, so several agents can share one.

    Args:
        net: the network.
        greedy: take what is most probable, of real numbers the mean; otherwise draw, as in
            training.
        seed: the same seed and game make the same draws; None = a fresh one.

    Raises:
        CheckpointError: on the first decision, when the game declared another schema than the
            network was trained for; the message names every difference. A game whose `play` is
            called directly declares none: then only what it shows is checked.
    """

    def __init__(self, net: RogueNet, *, greedy: bool = False, seed: int | None = None) -> None:
        super().__init__()
        self.net = net
        self.greedy = greedy
        self._generator = torch.Generator(net.device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)
        self._writer = ObservationWriter(net.obs_space, net.action_space, "the observation".format)
        self._is_declared = False
        self._checked: Schema | None = None
        """The schema that batches come from."""

    @classmethod
    def load(
        cls, path: str | Path, *, greedy: bool = False, seed: int | None = None
    ) -> NeuralAgent:
        """Reads the network from a checkpoint, or from the folder of a training run.

        Raises:
            CheckpointError: there is none, or it cannot be read.
        """
        return cls(load_checkpoint(path).net, greedy=greedy, seed=seed)

    def join(self, run: AgentRun) -> None:
        super().join(run)
        self._is_declared = True

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        if self._is_declared:
            self._require_same(self.schema)
            self._is_declared = False  # once a game
        chosen, probs = self._choose(self._batch(observation))
        return {
            question.name: _with_probs(
                question.action(chosen[question.name]), probs.get(question.name)
            )
            for question in self.questions(observation)
        }

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        """See `BatchPolicy`."""
        if schema is not self._checked:
            self._require_same(schema)
            self._checked = schema
        return self.net.act(obs, greedy=self.greedy, generator=self._generator).actions

    @torch.inference_mode()
    def _choose(
        self, batch: VecObs
    ) -> tuple[dict[ActionName, Samples], dict[ActionName, NDArray[np.float32]]]:
        """Legal actions, and the probabilities of all labels and entities."""
        distributions, _ = self.net.distributions(batch)
        chosen = choose(distributions, greedy=self.greedy, generator=self._generator)
        return (
            {
                name: each.actions(chosen[name]).cpu().numpy()
                for name, each in distributions.items()
            },
            {
                name: each.logprobs.exp().cpu().numpy()
                for name, each in distributions.items()
                if isinstance(each, CategoricalDistribution)
            },
        )

    def _batch(self, observation: Observation) -> VecObs:
        self._writer.clear()
        self._writer.add(observation)
        flag, index = np.zeros(1, dtype=np.bool_), np.zeros(1, dtype=np.int64)
        return self._writer.finish(np.zeros(1, dtype=np.float32), flag, flag, index, index)

    def _require_same(self, schema: Schema) -> None:
        expected = (self.net.obs_space, self.net.action_space)
        got = (schema.obs_space(), schema.action_space())
        if found := differences(expected, got):
            raise CheckpointError(
                f"the checkpoint was trained for another game: {'; '.join(found)}. "
                "Play it with the game that it was trained on, or train it anew"
            )


def _with_probs(action: Action, probs: NDArray[np.float32] | None) -> Action:
    if probs is None:
        return action
    if isinstance(action, GlobalCategoricalAction):
        return replace(action, probs=probs[0])
    if isinstance(action, CategoricalAction | SelectEntityAction):
        return replace(action, probs=probs)
    return action
