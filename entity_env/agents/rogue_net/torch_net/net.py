"""RogueNet: a transformer over entities, with a head for each action and one for the value.

Names and numbers are those of rogue-net 0.1.9 in evaluation mode, so its parameters fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import Choices, find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, lay_out
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.agents.rogue_net.torch_net.attention import attention_layout
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    at_temperature,
    sample_actions,
)
from entity_env.agents.rogue_net.torch_net.embedding import EntityEmbedding
from entity_env.agents.rogue_net.torch_net.heads import make_head
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_tensor, use_kernels
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities, Transformer
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
)
from entity_env.core.vec_obs import EntityBatch

Samples: TypeAlias = NDArray[np.int64] | NDArray[np.float32]
"""One value an actor: `(num_actors,)` int64 or `(num_actors, num_labels)` float32."""


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """Actions, log-probabilities and values of a batch, in arrays of their own.

    Args:
        actions: per action what `VecEnvironment.act` takes: `(num_actors,)` int64, or
            `(num_actors, num_labels)` float32 within the bounds of a continuous action.
        samples: per action what `RogueNet.evaluate` takes: the same array, but for a continuous
            action the draw before it was clipped (see `GaussianDistribution`).
        logprobs: `(num_rows,)` float32, joint log-probability of the samples of a row; 0 for a row
            without actors. Of real numbers it is a density, which can exceed 0.
        entropy: `(num_rows,)` float32 nats, summed over the actors of a row.
        values: `(num_rows,)` float32 value estimates.
    """

    actions: Mapping[ActionName, Samples]
    samples: Mapping[ActionName, Samples]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32]
    values: NDArray[np.float32]


Decisions: TypeAlias = PolicyOutput


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Log-probabilities, entropy and values of given samples: `(num_rows,)`, with gradients."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


class _Head(Protocol):
    def __call__(self, x: EncodedEntities, choices: Choices) -> ActionDistribution: ...


class RogueNet(nn.Module):
    """Policy and value network over entities.

    Only `update_statistics` and an optimizer change the network; training and evaluation mode are
    the same. Arrays of a batch are only read during a call.

    Args:
        obs_space: the order of entities and features matters.
        action_space: labels, selected entities, real numbers.
        config: size and options.

    Raises:
        SchemaError: no entity, a bound of a continuous action that float32 cannot hold, options
            that name features which are not there, or too many features or parameters.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: RogueNetConfig | None = None,
    ) -> None:
        super().__init__()
        self.obs_space = obs_space
        self.action_space = dict(action_space)
        self.config = config or RogueNetConfig()
        expected_tensors(obs_space, action_space, self.config)  # raises where it is too large
        self.inputs = Inputs(obs_space, action_space, self.config.translation)
        relpos = self.config.relpos_encoding
        self._relpos = None if relpos is None else Relpos(relpos, self.inputs.features)
        self._names = self.inputs.names
        d_model = self.config.d_model
        self.embedding = EntityEmbedding(self.inputs.widths, d_model)
        self.backbone = Transformer(self.config, self._names)
        self.action_heads = NamedModules(
            {name: make_head(name, space, self.config) for name, space in action_space.items()}
        )
        value = nn.Linear(d_model, 1)
        nn.init.zeros_(value.weight)
        nn.init.zeros_(value.bias)
        self.auxiliary_heads = NamedModules({"value": value})

    @classmethod
    def of(cls, weights: Weights) -> RogueNet:
        """The network with these weights, copied, on the CPU.

        Raises:
            SchemaError: no network has such spaces and options.
        """
        net = cls(weights.obs_space, weights.action_space, weights.config)
        cpu = torch.device("cpu")
        net.load_state_dict({name: as_tensor(t, cpu) for name, t in weights.tensors.items()})
        return net

    def weights(self) -> Weights:
        """The parameters as copies, for other programs and for `NumpyAgent`."""
        tensors = {name: t.detach().cpu().numpy().copy() for name, t in self.state_dict().items()}
        return Weights(self.obs_space, self.action_space, self.config, tensors)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        # Read many times a step; iterating over parameters takes three times as long.
        return cast(nn.Linear, self.auxiliary_heads["value"]).weight.device

    @torch.inference_mode()
    def act(
        self,
        batch: EntityBatch,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyOutput:
        """Samples an action of every actor.

        Args:
            batch: observations; rows without entities or actors are allowed.
            greedy: take the most probable action, of real numbers the mean, instead of drawing.
            temperature: of the distributions, see `ActionDistribution.at_temperature`; applies to
                log-probabilities and entropy too.
            generator: source of the draws; None = torch's default.

        Raises:
            SchemaError: an actor that has nothing to choose from, or an index out of range.
        """
        distributions, values = self.distributions(batch)
        if temperature != 1.0:
            distributions = at_temperature(distributions, temperature)
        chosen = sample_actions(distributions, greedy=greedy, generator=generator)
        logprobs, entropy = _sum_over_actors(distributions, chosen, values)
        samples = {name: choice.cpu().numpy() for name, choice in chosen.items()}
        return PolicyOutput(
            actions=_to_actions(distributions, chosen, samples),
            samples=samples,
            logprobs=logprobs.cpu().numpy(),
            entropy=entropy.cpu().numpy(),
            values=values.cpu().numpy(),
        )

    def evaluate(
        self, batch: EntityBatch, samples: Mapping[ActionName, NDArray[np.int64 | np.float32]]
    ) -> Evaluation:
        """Evaluates samples that `act` returned, of every action of the space."""
        distributions, values = self.distributions(batch)
        chosen = {name: as_tensor(samples[name], self.device) for name in distributions}
        logprobs, entropy = _sum_over_actors(distributions, chosen, values)
        return Evaluation(logprobs, entropy, values)

    @torch.inference_mode()
    def values(self, batch: EntityBatch) -> NDArray[np.float32]:
        """`(num_rows,)` float32 value estimates."""
        layout = self._lay_out(batch)
        values: NDArray[np.float32] = (
            self._value(self._encode(batch, layout, 0), layout).cpu().numpy()
        )
        return values

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        """The distribution of every action, and the `(num_rows,)` values."""
        layout = self._lay_out(batch)
        choices = {
            name: find_choices(name, batch.action_masks[name], layout) for name in self.action_space
        }
        x = self._encode(batch, layout, sum(each.num_picked for each in choices.values()))
        distributions: dict[ActionName, ActionDistribution] = {}
        for name, module in self.action_heads.items():
            head: _Head = module
            distributions[name] = head(x, choices[name])
        return distributions, self._value(x, layout)

    def update_statistics(self, batch: EntityBatch, *, restart: bool = False) -> None:
        """Counts a batch of observations into the statistics that normalize features.

        Call it once for each batch that is learnt from; `restart` resets the statistics first.
        """
        inputs = self.inputs.arrays(batch)
        self.embedding.update_statistics(self._tensors(inputs), restart=restart)
        if self._relpos is not None and self._relpos.config.has_projection:
            self._update_relpos(self._relpos, inputs, lay_out(batch, self._names), restart)

    @property
    def has_statistics(self) -> bool:
        """Whether any batch was counted; before that, features are not normalized."""
        return self.embedding.has_statistics

    def _update_relpos(
        self,
        relpos: Relpos,
        inputs: Mapping[EntityName, NDArray[np.float32]],
        layout: Layout,
        restart: bool,
    ) -> None:
        """Counts the relative positions of all pairs, without empty slots."""
        encoding, pairs = self.backbone.relpos_encoding, relpos.buckets(inputs, layout)
        if encoding is None or pairs.relative is None:
            return
        flat = np.zeros(layout.num_padded * layout.max_length, dtype=np.bool_)
        flat[layout.slots] = True
        is_full = flat.reshape(layout.num_padded, layout.max_length)
        counted = pairs.relative[is_full[:, :, None] & is_full[:, None, :]]
        encoding.relpos_norm.update(as_tensor(counted, self.device), restart=restart)

    def _encode(self, batch: EntityBatch, layout: Layout, num_gathered: int) -> EncodedEntities:
        """The encoded entities, of which heads will gather `num_gathered`."""
        inputs = self.inputs.arrays(batch)
        x = self.embedding.forward(self._tensors(inputs))
        if not len(layout.order):
            return EncodedEntities(x)
        pairs = None if self._relpos is None else self._relpos.buckets(inputs, layout)
        tables = None if pairs is None else self.backbone.look_up(pairs)
        place = attention_layout(layout, self.config, x.device, tables)
        if 2 * num_gathered > len(x):
            return EncodedEntities(self.backbone.forward(x, place))
        return self.backbone.encode(x, place)

    def _lay_out(self, batch: EntityBatch) -> Layout:
        size = sum(len(batch.features[name].values) for name in self._names)
        return lay_out(batch, self._names, is_compiled=use_kernels(size, self.device))

    def _tensors(
        self, arrays: Mapping[EntityName, NDArray[np.float32]]
    ) -> dict[EntityName, Tensor]:
        return {name: as_tensor(values, self.device) for name, values in arrays.items()}

    def _value(self, x: EncodedEntities, layout: Layout) -> Tensor:
        value: Tensor = self.auxiliary_heads["value"](x.mean_pool(layout))
        return value.squeeze(1)


def _to_actions(
    distributions: Mapping[ActionName, ActionDistribution],
    chosen: Mapping[ActionName, Tensor],
    samples: Mapping[ActionName, Samples],
) -> dict[ActionName, Samples]:
    """Samples in the units of the action space; `samples` are `chosen` as arrays."""
    actions: dict[ActionName, Samples] = {}
    for name, each in distributions.items():
        action = each.actions(chosen[name])
        # Most actions are their samples: these are copied from a device only once.
        actions[name] = samples[name] if action is chosen[name] else action.cpu().numpy()
    return actions


def _sum_over_actors(
    distributions: Mapping[ActionName, ActionDistribution],
    chosen: Mapping[ActionName, Tensor],
    values: Tensor,
) -> tuple[Tensor, Tensor]:
    """Log-probability of `chosen` and entropy, `(num_rows,)`, summed over the actors of a row."""
    logprobs = torch.zeros_like(values)
    entropy = torch.zeros_like(values)
    for name, each in distributions.items():
        if not len(each.rows):
            continue
        logprob, own_entropy = each.weigh(chosen[name])
        logprobs = logprobs.index_add(0, each.rows, logprob)
        entropy = entropy.index_add(0, each.rows, own_entropy)
    return logprobs, entropy
