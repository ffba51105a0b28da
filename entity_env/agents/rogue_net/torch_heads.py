"""Action heads: from the vectors of the entities to log-probabilities of what each may choose."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.choices import Actees, Choices
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_tensors import as_tensor
from entity_env.errors import SchemaError
from entity_env.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)

FORBIDDEN = -1e30
"""Logit of what is not allowed: finite, so that 0 probability times it is 0 and not NaN."""


class CategoricalHead(nn.Module):
    """Scores every label for each actor."""

    def __init__(self, d_model: int, num_choices: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, num_choices)
        nn.init.orthogonal_(self.proj.weight, 0.01)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x: Tensor, choices: Choices) -> Tensor:
        """Packed `(num_entities, d_model)` to `(num_actors, num_choices)` log-probabilities."""
        return _log_probabilities(self.proj(_pick(x, choices.packed)), choices)


class SelectEntityHead(nn.Module):
    """Compares each actor with every entity that it may select."""

    def __init__(self, d_model: int, d_qk: int) -> None:
        super().__init__()
        self.query_proj = nn.Linear(d_model, d_qk)
        self.key_proj = nn.Linear(d_model, d_qk)
        self.scale = 1.0 / math.sqrt(d_qk)

    def forward(self, x: Tensor, choices: Choices) -> Tensor:
        """Packed `(num_entities, d_model)` to `(num_actors, max_actees)` log-probabilities."""
        actees = choices.actees
        if actees is None or not len(choices.packed):
            return x.new_zeros(0, 1)
        return _log_probabilities(self._compare(x, choices, actees), choices)

    def _compare(self, x: Tensor, choices: Choices, actees: Actees) -> Tensor:
        queries = self.query_proj(_pick(x, choices.packed)) * self.scale
        keys = self.key_proj(_pick(x, actees.packed))
        actor_slots = as_tensor(actees.actor_slots, x.device)
        actee_slots = as_tensor(actees.slots, x.device)
        padded_queries = x.new_zeros(actees.num_rows * actees.max_actors, queries.shape[1])
        padded_keys = x.new_zeros(actees.num_rows * actees.max_actees, keys.shape[1])
        logits = torch.bmm(
            padded_queries.index_copy(0, actor_slots, queries).view(
                actees.num_rows, actees.max_actors, -1
            ),
            padded_keys.index_copy(0, actee_slots, keys)
            .view(actees.num_rows, actees.max_actees, -1)
            .transpose(1, 2),
        )
        return logits.flatten(0, 1).index_select(0, actor_slots)


def make_head(name: ActionName, space: ActionSpace, config: RogueNetConfig) -> nn.Module:
    """The head for an action.

    Raises:
        SchemaError: the action is continuous.
    """
    if isinstance(space, CategoricalActionSpace | GlobalCategoricalActionSpace):
        return CategoricalHead(config.d_model, len(space))
    if isinstance(space, SelectEntityActionSpace):
        return SelectEntityHead(config.d_model, config.d_qk)
    raise SchemaError(
        f"action {name!r} is continuous, but RogueNet chooses labels and entities: "
        "give the action a set of labels to choose from"
    )


def _pick(x: Tensor, packed: NDArray[np.int64]) -> Tensor:
    return x.index_select(0, as_tensor(packed, x.device))


def _log_probabilities(logits: Tensor, choices: Choices) -> Tensor:
    if choices.allowed is not None:
        forbidden = as_tensor(~choices.allowed, logits.device)
        logits = logits.masked_fill(forbidden, FORBIDDEN)
    return torch.log_softmax(logits, dim=-1)
