"""NeuralAgent: plays a trained network with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.neural_agent import Choosing, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    at_temperature,
    sample_actions,
)
from entity_env.agents.rogue_net.torch_net.mlp import policy_of
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.rogue_net.weights import Weights
from entity_env.authoring.local_run import Thoughts
from entity_env.core.observation import Observation
from entity_env.core.spaces import ActionName
from entity_env.core.vec_obs import VecActions
from entity_env.errors import CheckpointError, SchemaError


class NeuralAgent(TrainedAgent):
    """Plays a trained network with torch; its actions come with the probabilities of all choices.

    The network is never changed, so several agents can share one.

    Args:
        greedy, temperature: see `Choosing`.
        adapt: see `TrainedAgent`.

    Raises:
        UsageError: a temperature below 1e-6, or not finite.
        CheckpointError: on the first decision, see `TrainedAgent`.
    """

    def __init__(
        self,
        net: Policy,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> None:
        super().__init__(
            (net.obs_space, net.action_space), Choosing(greedy, temperature), adapt=adapt
        )
        self.net = net
        self._generator = torch.Generator(net.device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        try:
            net = policy_of(weights)
        except SchemaError as error:
            raise CheckpointError(str(error)) from error
        return cls(net, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)

    @torch.inference_mode()
    def choose(
        self, observation: Observation
    ) -> tuple[dict[ActionName, Samples], Mapping[ActionName, NDArray[np.float32]]]:
        distributions, _ = self._distributions(self._batch_of_one(observation))
        chosen = sample_actions(
            distributions, greedy=self.choosing.greedy, generator=self._generator
        )
        return (
            {
                name: each.actions(chosen[name]).cpu().numpy()
                for name, each in distributions.items()
            },
            _probs_of(distributions),
        )

    @torch.inference_mode()
    def thoughts(self, obs: Batch) -> Thoughts:
        distributions, values = self._distributions(obs)
        probabilities, value = _probs_of(distributions), values.item()
        if not isinstance(self.net, RogueNet):
            return Thoughts(probabilities, value)
        # In numpy: the kernels of torch_net do not keep the attention weights.
        weights = self.net.weights()
        attention = NumpyNet(weights).attended(obs)[2]
        return Thoughts(probabilities, value if weights.has_value else None, attention)

    def choose_batch(self, obs: Batch) -> VecActions:
        return self.net.act(
            obs,
            greedy=self.choosing.greedy,
            temperature=self.choosing.temperature,
            generator=self._generator,
        ).actions

    def _distributions(self, obs: Batch) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        distributions, values = self.net.distributions(obs)
        if self.choosing.temperature != 1.0:
            distributions = at_temperature(distributions, self.choosing.temperature)
        return distributions, values


def _probs_of(
    distributions: Mapping[ActionName, ActionDistribution],
) -> dict[ActionName, NDArray[np.float32]]:
    return {
        name: each.logprobs.exp().cpu().numpy()
        for name, each in distributions.items()
        if isinstance(each, CategoricalDistribution)
    }
