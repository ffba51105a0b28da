"""Action heads: from encoded entities to a distribution for every actor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from entity_env.agents.rogue_net.action_index import Actees, Choices
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    DependentDistribution,
    GaussianDistribution,
    masked_log_softmax,
)
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_tensor
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_actions import narrowed
from entity_env.core.vec_obs import VecActionMask


class CategoricalHead(nn.Module):
    """Logits of every label for each actor."""

    def __init__(self, d_model: int, num_choices: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, num_choices)
        nn.init.orthogonal_(self.proj.weight, 0.01)
        nn.init.zeros_(self.proj.bias)

    def forward(
        self, x: EncodedEntities, choices: Choices, actors: Tensor | None = None
    ) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `num_choices` labels.

        Args:
            actors: `(num_actors, d_model)` instead of those of `x`.
        """
        return _categorical(self.proj(_actors(x, choices, actors)), choices)


class SelectEntityHead(nn.Module):
    """Logits of every actee for each actor: dot products of queries and keys."""

    def __init__(self, d_model: int, d_qk: int) -> None:
        super().__init__()
        self.query_proj = nn.Linear(d_model, d_qk)
        self.key_proj = nn.Linear(d_model, d_qk)
        self.scale = 1.0 / math.sqrt(d_qk)

    def forward(
        self, x: EncodedEntities, choices: Choices, actors: Tensor | None = None
    ) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `max_actees` positions."""
        actees = choices.actees
        if actees is None or not len(choices.packed):
            return CategoricalDistribution(_rows(x.x, choices), x.x.new_zeros(0, 1))
        queries = self.query_proj(_actors(x, choices, actors)) * self.scale
        if choices.options is not None:
            keys = self.key_proj(x.gather(actees.packed))
            pairs = choices.pairs(actees, choices.options)
            row, column, place = (as_tensor(each, keys.device) for each in pairs)
            compared = (keys.index_select(0, place) * queries.index_select(0, row)).sum(1)
            logits = compared.new_zeros(choices.options.shape).index_put((row, column), compared)
            return _categorical(logits, choices)
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
        for part, bounds in (("low", space.low), ("high", space.high)):
            numbers = torch.tensor([*map(float, bounds)], dtype=torch.float32)
            self.register_buffer(part, numbers, persistent=False)

    def forward(
        self, x: EncodedEntities, choices: Choices, actors: Tensor | None = None
    ) -> ActionDistribution:
        """Maps packed `(num_entities, d_model)` to a distribution over `num_labels` numbers."""
        mean = self.proj(_actors(x, choices, actors))
        rows = _rows(mean, choices)
        return GaussianDistribution(rows, mean, self.log_std, self.low, self.high)


class Conditioning(nn.Module):
    """Changes the vectors of actors by what they have chosen before, for a dependent action.

    The choices become vectors: of labels, rows of a table; of entities, a linear map of the chosen
    entity; of numbers, a linear map of the samples. An actor's vector gets the output of a small
    network with one hidden layer, which reads the vector and the sum of these.

    Args:
        given: spaces of the earlier actions, in order.
        width: of the actors' vectors.
    """

    def __init__(self, given: Mapping[ActionName, ActionSpace], width: int) -> None:
        super().__init__()
        choices = {
            name: nn.Linear(
                width if isinstance(each, SelectEntityActionSpace) else len(each), width
            )
            for name, each in given.items()
        }
        self.choices = NamedModules(choices)
        self.hidden = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        actors: Tensor,
        x: EncodedEntities,
        earlier: Mapping[ActionName, Choices],
        chosen: Mapping[ActionName, Tensor],
    ) -> Tensor:
        """`(num_actors, width)`, given the actors and choices of the earlier actions."""
        context = torch.zeros_like(actors)
        for name, module in self.choices.items():
            layer, samples, place = cast(nn.Linear, module), chosen[name], earlier[name]
            if samples.is_floating_point():
                context = context + layer.forward(samples.clamp(-1.0, 1.0))
            elif place.actees is None:
                context = context + layer.weight.t().index_select(0, samples) + layer.bias
            else:
                picked = place.actees.picked(place.rows, samples.cpu().numpy())
                context = context + layer.forward(x.gather(picked))
        hidden = functional.gelu(self.hidden(torch.cat((actors, context), dim=1)))
        changed: Tensor = actors + self.out(hidden)
        return changed


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


def conditionings(action_space: Mapping[ActionName, ActionSpace], width: int) -> NamedModules:
    """A `Conditioning` for every action that depends on others."""
    return NamedModules(
        {
            name: Conditioning({other: action_space[other] for other in space.given}, width)
            for name, space in action_space.items()
            if space.given
        }
    )


class Heads(NamedTuple):
    """Heads and conditionings of a network, by action."""

    heads: NamedModules
    conditionings: NamedModules

    def distributions(
        self,
        x: EncodedEntities,
        masks: Mapping[ActionName, VecActionMask],
        find: Callable[[ActionName, VecActionMask], Choices],
    ) -> dict[ActionName, ActionDistribution]:
        """The distribution of every action.

        Args:
            find: `find_choices` for the batch, of an action and its mask.
        """
        found: dict[ActionName, ActionDistribution] = {}
        places: dict[ActionName, Choices] = {}
        for name, module in self.heads.items():
            head = cast(_Head, module)
            if name not in self.conditionings:
                places[name] = find(name, masks[name])
                found[name] = head(x, places[name])
                continue
            found[name] = _dependent(
                name,
                head,
                cast(Conditioning, self.conditionings[name]),
                x,
                masks[name],
                find,
                places,
                found,
            )
        return found


def _dependent(
    name: ActionName,
    head: _Head,
    conditioning: Conditioning,
    x: EncodedEntities,
    mask: VecActionMask,
    find: Callable[[ActionName, VecActionMask], Choices],
    places: dict[ActionName, Choices],
    found: Mapping[ActionName, ActionDistribution],
) -> DependentDistribution:
    before = list(conditioning.choices.items())[-1][0]

    def make(chosen: Mapping[ActionName, Tensor]) -> ActionDistribution:
        for other, _ in conditioning.choices.items():
            if other not in places:  # the distribution of an earlier action was not made
                found[other].given(chosen)
        narrow = narrowed(mask, chosen[before].detach().cpu().numpy())
        places[name] = choices = find(name, narrow)
        actors = x.gather(choices.packed)
        return head(x, choices, conditioning(actors, x, places, chosen))

    return DependentDistribution(as_tensor(mask.actors.row_index, x.x.device), make)


class _Head(Protocol):
    def __call__(
        self, x: EncodedEntities, choices: Choices, actors: Tensor | None = None
    ) -> ActionDistribution: ...


def _actors(x: EncodedEntities, choices: Choices, actors: Tensor | None) -> Tensor:
    return x.gather(choices.packed) if actors is None else actors


def _rows(x: Tensor, choices: Choices) -> Tensor:
    return as_tensor(choices.rows, x.device)


def _categorical(logits: Tensor, choices: Choices) -> CategoricalDistribution:
    logprobs = masked_log_softmax(logits, choices.allowed)
    if choices.options is None:
        return CategoricalDistribution(_rows(logits, choices), logprobs)
    options = as_tensor(choices.options, logits.device)
    return CategoricalDistribution(_rows(logits, choices), logprobs, options, choices.num_choices)
