"""RogueNet: a transformer over entities, with a head for each action and one for the value.

Names and numbers are those of rogue-net 0.1.9 in evaluation mode, so its parameters fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.choices import Choices, find_choices
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.layout import Batch, Layout, lay_out
from entity_env.agents.rogue_net.torch_embedding import EntityEmbedding
from entity_env.agents.rogue_net.torch_heads import make_head
from entity_env.agents.rogue_net.torch_named_modules import NamedModules
from entity_env.agents.rogue_net.torch_tensors import as_tensor
from entity_env.agents.rogue_net.torch_transformer import Transformer, slots_of
from entity_env.errors import SchemaError
from entity_env.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
)


@dataclass(frozen=True, slots=True)
class ActionDistribution:
    """What every actor of one action would choose.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        logprobs: `(num_actors, num_choices)` float32, normalized; what is not allowed has the
            smallest float32 instead of minus infinity. For a select action the choices are places
            in the list of actees, padded to the longest list.
    """

    rows: Tensor
    logprobs: Tensor


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a network decided for a batch, in arrays of its own.

    Args:
        actions: per action `(num_actors,)` int64, what `VecEnvironment.act` takes.
        logprobs: `(num_rows,)` float32, log-probability of all that a row chose together; 0 for a
            row without actors.
        entropy: `(num_rows,)` float32 nats, summed over the actors of a row.
        values: `(num_rows,)` float32, the discounted reward that the network expects.
    """

    actions: dict[ActionName, NDArray[np.int64]]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Given actions as the network sees them now: `(num_rows,)` tensors with gradients."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


class _Head(Protocol):
    def __call__(self, x: Tensor, choices: Choices) -> Tensor: ...


class RogueNet(nn.Module):
    """Decides from entities: who acts how, and what the future is worth.

    Nothing but `update_statistics` and an optimizer changes the network; there is no difference
    between training and evaluation mode. Arrays of a batch are only read during a call.

    Args:
        obs_space: what can be observed; the order of entities and features counts.
        action_space: what can be done; labels and selected entities, no continuous actions.
        config: its size.

    Raises:
        SchemaError: a continuous action, or no entity.
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
        widths = input_widths(obs_space, action_space)
        if not widths:
            raise SchemaError("there is no entity to learn from: declare one, or a global action")
        self._names = tuple(widths)
        d_model = self.config.d_model
        self.embedding = EntityEmbedding(widths, d_model)
        self.backbone = Transformer(self.config)
        self.action_heads = NamedModules(
            {name: make_head(name, space, self.config) for name, space in action_space.items()}
        )
        value = nn.Linear(d_model, 1)
        nn.init.zeros_(value.weight)
        nn.init.zeros_(value.bias)
        self.auxiliary_heads = NamedModules({"value": value})

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @torch.inference_mode()
    def act(
        self, batch: Batch, *, greedy: bool = False, generator: torch.Generator | None = None
    ) -> Decisions:
        """Chooses an action for every actor.

        Args:
            batch: observations; rows without entities or actors are fine.
            greedy: take what is most probable instead of drawing.
            generator: where draws come from; torch's own when None.

        Raises:
            SchemaError: an actor that has nothing to choose from, or an index out of range.
        """
        distributions, values = self.distributions(batch)
        chosen = choose(distributions, greedy=greedy, generator=generator)
        logprobs, entropy = _sum_over_actors(distributions, chosen, values)
        return Decisions(
            actions={name: choice.cpu().numpy() for name, choice in chosen.items()},
            logprobs=logprobs.cpu().numpy(),
            entropy=entropy.cpu().numpy(),
            values=values.cpu().numpy(),
        )

    def evaluate(self, batch: Batch, actions: Mapping[ActionName, NDArray[np.int64]]) -> Evaluation:
        """Weighs actions that were chosen before; every action of the space must be given."""
        distributions, values = self.distributions(batch)
        chosen = {name: as_tensor(actions[name], self.device) for name in distributions}
        logprobs, entropy = _sum_over_actors(distributions, chosen, values)
        return Evaluation(logprobs, entropy, values)

    @torch.inference_mode()
    def values(self, batch: Batch) -> NDArray[np.float32]:
        """`(num_rows,)` float32: the discounted reward that the network expects of each row."""
        layout = lay_out(batch, self._names)
        values: NDArray[np.float32] = self._value(self._encode(batch, layout), layout).cpu().numpy()
        return values

    def distributions(self, batch: Batch) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        """What every actor would choose, per action, and the `(num_rows,)` values."""
        layout = lay_out(batch, self._names)
        choices = {
            name: find_choices(name, batch.action_masks[name], layout) for name in self.action_space
        }
        x = self._encode(batch, layout)
        distributions: dict[ActionName, ActionDistribution] = {}
        for name, module in self.action_heads.items():
            head: _Head = module
            rows = as_tensor(choices[name].rows, x.device)
            distributions[name] = ActionDistribution(rows, head(x, choices[name]))
        return distributions, self._value(x, layout)

    def update_statistics(self, batch: Batch, *, restart: bool = False) -> None:
        """Counts a batch of observations into the statistics that normalize features.

        Call it once for each batch that is learnt from; `restart` forgets what came before.
        """
        self.embedding.update_statistics(self._inputs(batch), restart=restart)

    @property
    def has_statistics(self) -> bool:
        """Whether any batch was counted yet; without, features are not normalized."""
        return self.embedding.has_statistics

    def _encode(self, batch: Batch, layout: Layout) -> Tensor:
        x: Tensor = self.embedding(self._inputs(batch))
        if layout.num_padded:
            x = self.backbone(x, slots_of(layout, self.config.n_head, x.device))
        return x

    def _inputs(self, batch: Batch) -> dict[EntityName, Tensor]:
        """Features of every type, the global ones appended to each entity's own."""
        if not self.obs_space.global_features:
            return {name: self._tensor(batch.features[name].values) for name in self._names}
        shared = batch.features[GLOBAL_ENTITY]
        # A row without a `GLOBAL_ENTITY` has no other entity either.
        place = shared.offsets[:-1]
        inputs: dict[EntityName, Tensor] = {}
        for name in self._names:
            own = batch.features[name]
            values = own.values
            if name != GLOBAL_ENTITY:
                values = np.concatenate((values, shared.values[place[own.row_index]]), axis=1)
            inputs[name] = self._tensor(values)
        return inputs

    def _tensor(self, values: NDArray[np.float32]) -> Tensor:
        return as_tensor(values, self.device)

    def _value(self, x: Tensor, layout: Layout) -> Tensor:
        rows = as_tensor(layout.rows, x.device)
        total = x.new_zeros(len(layout.lengths), x.shape[1]).index_add(0, rows, x)
        count = as_tensor(np.maximum(layout.lengths, 1).astype(np.float32), x.device)
        value: Tensor = self.auxiliary_heads["value"](total / count.unsqueeze(1))
        return value.squeeze(1)


def input_widths(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[EntityName, int]:
    """Features that the network reads per entity type: own ones, then the global ones.

    `GLOBAL_ENTITY` is an entity of its own, the last one, only if some action is global.
    """
    num_global = len(obs_space.global_features)
    widths = {name: len(e.features) + num_global for name, e in obs_space.entities.items()}
    if any(isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values()):
        widths[GLOBAL_ENTITY] = num_global
    return widths


def choose(
    distributions: Mapping[ActionName, ActionDistribution],
    *,
    greedy: bool,
    generator: torch.Generator | None,
) -> dict[ActionName, Tensor]:
    """Per action `(num_actors,)` int64: what is most probable, or a draw."""
    return {
        name: each.logprobs.argmax(dim=1) if greedy else _draw(each.logprobs, generator)
        for name, each in distributions.items()
    }


def _draw(logprobs: Tensor, generator: torch.Generator | None) -> Tensor:
    """One choice a row, by an exponential race: the smallest of `Exp(1) / p` has probability p."""
    # On the CPU an exponential draw can be 0, and 0 / 0 would win every race.
    race = torch.empty_like(logprobs).exponential_(generator=generator).clamp_min_(1e-30)
    return (logprobs.exp() / race).argmax(dim=1)


def _sum_over_actors(
    distributions: Mapping[ActionName, ActionDistribution],
    chosen: Mapping[ActionName, Tensor],
    values: Tensor,
) -> tuple[Tensor, Tensor]:
    """Log-probability of `chosen` and entropy, `(num_rows,)`, over all actors of each row."""
    logprobs = torch.zeros_like(values)
    entropy = torch.zeros_like(values)
    for name, each in distributions.items():
        if not len(each.rows):
            continue
        picked = each.logprobs.gather(1, chosen[name].unsqueeze(1)).squeeze(1)
        logprobs = logprobs.index_add(0, each.rows, picked)
        spread = -(each.logprobs.exp() * each.logprobs).sum(dim=1)
        entropy = entropy.index_add(0, each.rows, spread)
    return logprobs, entropy
