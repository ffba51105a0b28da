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
from entity_env.agents.rogue_net.config import OwnNetConfig
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.neural_agent import Choosing, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.distributions import require_usable
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.torch_net.distributions import (
    FORBIDDEN,
    ActionDistribution,
    CategoricalDistribution,
    GaussianDistribution,
    at_temperature,
    sample_actions,
)
from entity_env.agents.rogue_net.torch_net.mlp import policy_of
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Policy, past_argument
from entity_env.agents.rogue_net.weights import Weights
from entity_env.authoring.local_run import Thoughts
from entity_env.core.observation import Observation
from entity_env.core.ragged import Floats
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
        spaces, choosing = (net.obs_space, net.action_space), Choosing(greedy, temperature)
        super().__init__(spaces, choosing, net.memory_width, adapt=adapt)
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
        greedy: bool | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        try:
            net = policy_of(weights)
        except SchemaError as error:
            raise CheckpointError(str(error)) from error
        greedy = weights.plays_greedily(greedy, temperature)
        return cls(net, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)

    @torch.inference_mode()
    def choose(
        self, observation: Observation
    ) -> tuple[dict[ActionName, Samples], Mapping[ActionName, NDArray[np.float32]]]:
        batch = self._batch_of(observation)
        distributions, _, states = self._distributions(batch, self._past())
        chosen, distributions = sample_actions(
            distributions, greedy=self.choosing.greedy, generator=self._generator
        )
        _require_usable(distributions, states)
        self._after = None if states is None else states.cpu().numpy()
        return (
            {
                name: each.actions(chosen[name]).cpu().numpy()
                for name, each in distributions.items()
            },
            _probs_of(distributions),
        )

    @torch.inference_mode()
    def thoughts(self, obs: Batch, past: Past | None) -> Thoughts:
        distributions, values, _ = self._distributions(obs, past)
        _, distributions = sample_actions(distributions, greedy=True, generator=None)
        _require_usable(distributions, values)
        probabilities, value = _probs_of(distributions), values.item()
        if not isinstance(self.net, RogueNet):
            return Thoughts(probabilities, value)
        # In numpy: the kernels of torch_net do not keep the attention weights.
        weights = self.net.weights()
        attention = NumpyNet(weights).attended(obs, past)[2]
        return Thoughts(probabilities, value if weights.has_value else None, attention)

    def numpy_net(self) -> NumpyNet | None:
        if isinstance(self.net.net_config, OwnNetConfig):
            return None
        return NumpyNet(self.net.weights())

    @torch.inference_mode()
    def states_after(self, obs: Batch, past: Past) -> Floats:
        states: Floats = self.net.recall(obs, past)[2].cpu().numpy()
        return states

    def choose_rows(self, obs: Batch, past: Past | None) -> tuple[VecActions, Floats | None]:
        output = self.net.act(
            obs,
            greedy=self.choosing.greedy,
            temperature=self.choosing.temperature,
            generator=self._generator,
            **past_argument(past),
        )
        require_usable(output.logprobs, "an action")
        return output.actions, output.states

    def _distributions(
        self, obs: Batch, past: Past | None
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor, Tensor | None]:
        distributions, values, states = self.net.recalled(obs, past)
        if self.choosing.temperature != 1.0:
            distributions = at_temperature(distributions, self.choosing.temperature)
        return distributions, values, states


def _require_usable(
    distributions: Mapping[ActionName, ActionDistribution], others: Tensor | None
) -> None:
    """See `require_usable`; logits are only seen as log-probabilities."""
    for name, each in distributions.items():
        if isinstance(each, GaussianDistribution):
            require_usable(each.mean.cpu().numpy(), name)
        elif isinstance(each, CategoricalDistribution):
            # Those of choices that are not allowed have a magnitude of about `FORBIDDEN`.
            require_usable(each.logprobs.clamp(min=0.5 * FORBIDDEN).cpu().numpy(), name)
    if others is not None:
        require_usable(others.cpu().numpy(), "the value or its memory")


def _probs_of(
    distributions: Mapping[ActionName, ActionDistribution],
) -> dict[ActionName, NDArray[np.float32]]:
    return {
        name: each.probs_of_choices()
        for name, each in distributions.items()
        if isinstance(each, CategoricalDistribution)
    }
