"""Action heads: from encoded entities to a distribution for every actor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import Actees, Choices
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    GaussianDistribution,
    masked_log_softmax,
)
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError


class CategoricalHead(nn.Module):
    """Logits of every label for each actor."""

    def __init__(self, d_model: int, num_choices: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, num_choices)
        nn.init.orthogonal_(self.proj.weight, 0.01)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x: EncodedEntities, choices: Choices) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `num_choices` labels."""
        return _categorical(self.proj(x.gather(choices.packed)), choices)


class SelectEntityHead(nn.Module):
    """Logits of every actee for each actor: dot products of queries and keys."""

    def __init__(self, d_model: int, d_qk: int) -> None:
        super().__init__()
        self.query_proj = nn.Linear(d_model, d_qk)
        self.key_proj = nn.Linear(d_model, d_qk)
        self.scale = 1.0 / math.sqrt(d_qk)

    def forward(self, x: EncodedEntities, choices: Choices) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `max_actees` positions."""
        actees = choices.actees
        if actees is None or not len(choices.packed):
            return CategoricalDistribution(_rows(x.x, choices), x.x.new_zeros(0, 1))
        queries = self.query_proj(x.gather(choices.packed)) * self.scale
        return _categorical(self._compare(x, queries, actees), choices)

    def _compare(self, x: EncodedEntities, queries: Tensor, actees: Actees) -> Tensor:
        """The logits, by batched products over padded observations.

        With fewer actors than actees, multiplies queries with the key layer first, which takes
        fewer multiplications.
        """
        keys, shift = x.gather(actees.source), queries.new_zeros(())
        if len(queries) < len(actees.packed):
            shift = torch.mv(queries, self.key_proj.bias).unsqueeze(1)
            queries = queries @ self.key_proj.weight
        else:
            keys = self.key_proj(keys)
        slots = as_tensor(actees.actor_slots, keys.device)
        padded = keys.new_zeros(actees.num_rows * actees.max_actors, queries.shape[1])
        logits = torch.bmm(
            padded.index_copy(0, slots, queries).view(actees.num_rows, actees.max_actors, -1),
            keys.view(actees.num_rows, actees.max_actees, -1).transpose(1, 2),
        )
        return logits.flatten(0, 1).index_select(0, slots) + shift


class GaussianHead(nn.Module):
    """A mean for every label and actor, and a standard deviation for every label.

    An untrained network samples around the middle of the bounds, with a standard deviation of half
    the range.

    Raises:
        SchemaError: a bound that float32 cannot hold.
    """

    low: Tensor
    high: Tensor

    def __init__(self, name: ActionName, space: ContinuousActionSpace, d_model: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, len(space))
        nn.init.orthogonal_(self.proj.weight, 0.01)
        nn.init.zeros_(self.proj.bias)
        self.log_std = nn.Parameter(torch.zeros(len(space)))
        # Not saved: a checkpoint's action space has them.
        self.register_buffer("low", _bounds(name, space.low), persistent=False)
        self.register_buffer("high", _bounds(name, space.high), persistent=False)

    def forward(self, x: EncodedEntities, choices: Choices) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `num_labels` numbers."""
        mean = self.proj(x.gather(choices.packed))
        rows = _rows(mean, choices)
        return GaussianDistribution(rows, mean, self.log_std, self.low, self.high)


def make_head(name: ActionName, space: ActionSpace, config: RogueNetConfig) -> nn.Module:
    """The head for an action."""
    if isinstance(space, SelectEntityActionSpace):
        return SelectEntityHead(config.d_model, config.d_qk)
    return label_head(name, space, config.d_model)


def label_head(
    name: ActionName,
    space: CategoricalActionSpace | GlobalCategoricalActionSpace | ContinuousActionSpace,
    width: int,
) -> nn.Module:
    """The head for an action that does not select entities; `width` is its input size."""
    if isinstance(space, ContinuousActionSpace):
        return GaussianHead(name, space, width)
    return CategoricalHead(width, len(space))


def _bounds(name: ActionName, bounds: Sequence[float]) -> Tensor:
    tensor = torch.tensor([float(bound) for bound in bounds], dtype=torch.float32)
    if not tensor.isfinite().all():
        raise SchemaError(
            f"action {name!r} is bounded by {[float(bound) for bound in bounds]}, but actions are "
            f"float32, at most {torch.finfo(torch.float32).max:.3g}: choose larger units"
        )
    return tensor


def _rows(x: Tensor, choices: Choices) -> Tensor:
    return as_tensor(choices.rows, x.device)


def _categorical(logits: Tensor, choices: Choices) -> CategoricalDistribution:
    return CategoricalDistribution(
        _rows(logits, choices), masked_log_softmax(logits, choices.allowed)
    )
