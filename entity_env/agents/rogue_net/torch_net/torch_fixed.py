"""FixedNet: a RogueNet for observations of always the same entities, which stay on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.agents.rogue_net.torch_net.embedding import CLIP, InputNorm
from entity_env.agents.rogue_net.torch_net.heads import CategoricalHead
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.transformer import Slots
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    EntityName,
    GlobalCategoricalActionSpace,
)
from entity_env.errors import SchemaError


@dataclass(frozen=True, slots=True)
class FixedDecisions:
    """What a network decided for every row, on its device.

    Args:
        actions: (num_rows,) int64, the index of the label.
        logprobs: (num_rows,) float32, their log-probability.
        entropy: (num_rows,) float32 nats.
        values: (num_rows,) float32, the discounted reward that the network expects.
    """

    actions: Tensor
    logprobs: Tensor
    entropy: Tensor
    values: Tensor


class FixedNet:
    """Runs a RogueNet on tensors, with nothing copied to the host or waited for.

    Every row has the same number of entities of one type, nothing is hidden, and there is one
    action, a global one that allows everything. So who is where is the same for every batch, and is
    found out once. The parameters are the network's own; the statistics that normalize features are
    those of the last `refresh`.

    Args:
        net: the network, on the device that it is to run on.
        num_rows: rows of every batch.
        num_entities: entities in a row, at least 1.

    Raises:
        SchemaError: a network for other spaces, or one that looks at relative positions.
    """

    def __init__(self, net: RogueNet, num_rows: int, num_entities: int) -> None:
        self.net = net
        self._entity, action = _require_fixed(net)
        self._head = _head_of(net, action)
        self._slots = _slots(num_rows, num_entities, net.device)
        self._rows = torch.arange(num_rows, device=net.device)
        self._shape = num_rows, num_entities
        self._value_head = net.auxiliary_heads["value"]
        self._count = torch.full((), num_entities + 1, dtype=torch.float32, device=net.device)
        self.refresh()

    def refresh(self) -> None:
        """Take over the network's statistics of features; waits for the device."""
        self._moments = {
            name: _moments(module) for name, module in self.net.embedding.embeddings.items()
        }

    def act(
        self,
        features: Tensor,
        shared: Tensor,
        *,
        greedy: bool = False,
        generator: torch.Generator | None = None,
    ) -> FixedDecisions:
        """Choose an action for every row.

        Args:
            features: (num_rows, num_entities, num_features) float32 on the network's device.
            shared: (num_rows, num_global_features) float32, so.
            greedy: take what is most probable instead of drawing.
            generator: where draws come from; torch's own when None.

        Raises:
            SchemaError: tensors of another shape, dtype or device.
        """
        distribution, values = self.distribution(features, shared)
        actions = distribution.best() if greedy else distribution.draw(generator)
        return FixedDecisions(
            actions, distribution.logprob(actions), distribution.entropy(), values
        )

    def distribution(
        self, features: Tensor, shared: Tensor
    ) -> tuple[CategoricalDistribution, Tensor]:
        """Say what every row would do, and the (num_rows,) values, with gradients; see `act`."""
        entities, actors = self._encode(features, shared)
        logits = self._head.proj(actors)
        distribution = CategoricalDistribution(self._rows, torch.log_softmax(logits, dim=-1))
        total = entities.sum(1) + actors
        value: Tensor = self._value_head(total / self._count)
        return distribution, value.squeeze(1)

    def _encode(self, features: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
        """(num_rows, num_entities, d_model) of the entities, (num_rows, d_model) of who acts."""
        num_rows, num_entities = self._shape
        self._require("features", features, (num_rows, num_entities), self._entity)
        self._require("shared", shared, (num_rows,), GLOBAL_ENTITY)
        repeated = shared[:, None].expand(-1, num_entities, -1)
        own = torch.cat((features, repeated), 2).flatten(0, 1)
        parts = [self._embed(self._entity, own), self._embed(GLOBAL_ENTITY, shared)]
        x: Tensor = self.net.backbone(torch.cat(parts), self._slots)
        num_own = num_rows * num_entities
        return x[:num_own].view(num_rows, num_entities, -1), x[num_own:]

    def _embed(self, name: EntityName, features: Tensor) -> Tensor:
        module = self.net.embedding.embeddings[name]
        moments = self._moments[name]
        if moments is None or not isinstance(module, nn.Sequential):
            embedded: Tensor = module(features)
            return embedded
        mean, deviation = moments
        x = ((features - mean) / deviation).clamp(-CLIP, CLIP)
        for layer in list(module.children())[1:]:
            x = layer(x)
        return x

    def _require(
        self, what: str, tensor: Tensor, leading: tuple[int, ...], name: EntityName
    ) -> None:
        space = self.net.obs_space
        names = space.global_features if name == GLOBAL_ENTITY else space.entities[name].features
        wanted = (*leading, len(names))
        if tensor.shape != wanted or tensor.dtype != torch.float32:
            raise SchemaError(
                f"{what}: expected {wanted} torch.float32, got {tuple(tensor.shape)} {tensor.dtype}"
            )
        if tensor.device != self.net.device:
            raise SchemaError(
                f"{what}: expected the network's device {self.net.device}, got {tensor.device}"
            )


def _require_fixed(net: RogueNet) -> tuple[EntityName, ActionName]:
    """The one entity type and the one action of a network."""
    entities, actions = list(net.obs_space.entities), net.action_space
    is_global = all(isinstance(s, GlobalCategoricalActionSpace) for s in actions.values())
    if len(entities) != 1 or len(actions) != 1 or not is_global:
        raise SchemaError(
            "a FixedNet needs one entity type and one global action, got the entities "
            f"{entities} and the actions {dict(actions)}"
        )
    if net.config.relpos_encoding is not None or net.config.translation is not None:
        raise SchemaError(
            "a FixedNet takes features as they are: no relpos_encoding or translation"
        )
    return entities[0], next(iter(actions))


def _head_of(net: RogueNet, action: ActionName) -> CategoricalHead:
    head = net.action_heads[action]
    if not isinstance(head, CategoricalHead):
        raise SchemaError(f"action {action!r} has no head of labels: {head}")
    return head


def _slots(num_rows: int, num_entities: int, device: torch.device) -> Slots:
    """Where attention finds each row side by side: its entities, and who acts behind them.

    Packed are first the entities of all rows, then the actors of all rows.
    """
    each = num_entities + 1
    slots = torch.arange(num_rows * each, device=device).view(num_rows, each)
    packed = torch.cat((slots[:, :-1].flatten(), slots[:, -1]))
    return Slots(packed, packed.argsort(), num_rows, each, bias=None)


def _moments(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Mean and deviation of the features of a type; None for a type without any."""
    norm = module[0] if isinstance(module, nn.Sequential) else None
    if not isinstance(norm, InputNorm):
        return None
    if not norm.count > 1:
        return torch.zeros_like(norm.mean), torch.ones_like(norm.mean)
    deviation = torch.sqrt(norm.squares_sum / (norm.count - 1))
    return norm.mean.clone(), deviation.masked_fill(deviation == 0, 1.0)
