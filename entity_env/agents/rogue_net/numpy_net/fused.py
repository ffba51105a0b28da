"""RogueNet for one observation at a time, in as few numpy calls as possible.

With ten entities a numpy call takes longer than its arithmetic, so everything that does not depend
on the observation is fused into the parameters once, by `layers`; `plan` arranges the calls. `net`
is an equivalent network in plain steps; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import product
from entity_env.agents.rogue_net.numpy_net.layers import (
    FusedAttention,
    FusedEmbedding,
    FusedFeedforward,
    fused_head,
)
from entity_env.agents.rogue_net.numpy_net.plan import Buffers, Plan, PlannedLayer, Size
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos
from entity_env.agents.rogue_net.operations import Operation
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName

_MAX_PLANS: Final = 256
"""Maximum number of cached plans, of about 30 kB each."""
_MAX_ENTITIES: Final = 256
"""Maximum number of entities for a cached plan; for more, creating a plan takes negligible time."""
_NO_FEATURES: Final = np.zeros((1, 0), dtype=np.float32)


class _Plans:
    """Plans by size, with their memory. Not thread-safe."""

    def __init__(self, embedding: FusedEmbedding, layers: Sequence[PlannedLayer]) -> None:
        self._layers = embedding, layers
        self._buffers = Buffers()
        self._plans: dict[Size, Plan] = {}

    def of(self, size: Size) -> Plan:
        plan = self._plans.get(size)
        if plan is None:
            if size.length > _MAX_ENTITIES:
                return Plan(*self._layers, size, Buffers())
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[size] = Plan(*self._layers, size, self._buffers)
        return plan


class FusedNet:
    """Embeddings and logits of one observation; agents in several threads may share an instance.

    Args:
        weights: as for `NumpyNet`, of a network that `fits`.

    Raises:
        SchemaError: the spaces and options of the network do not fit together.
    """

    def __init__(self, weights: Weights) -> None:
        listed = weights.operations()
        translation = weights.rogue_net_config().translation
        self._inputs = Inputs(weights.obs_space, weights.action_space, translation)
        tensors = {name: each.astype(np.float64) for name, each in weights.tensors.items()}
        self._names = self._inputs.names
        self._has_global = GLOBAL_ENTITY in self._inputs.features
        self._relpos = next(
            (NumpyRelpos(each, weights.tensors) for each in listed if each.kind == "positions"),
            None,
        )
        # Relative positions and translation need an entity's own and global features in one array;
        # otherwise `Plan` joins them.
        self._is_joined = self._relpos is not None or translation is not None
        num_shared = 0 if self._is_joined else len(weights.obs_space.global_features)
        embeddings = dict(zip(self._names, _embeddings(listed).values(), strict=True))
        self._embedding = FusedEmbedding(embeddings, tensors, num_shared)
        self._layers: list[PlannedLayer] = [
            FusedAttention(each, tensors)
            if FusedAttention.fits(each)
            else FusedFeedforward(each, tensors)
            for each in _layers(listed)
        ]
        self._idle: list[_Plans] = []
        """Plans not in use by any thread."""
        heads = {each.inputs[0]: each.of(tensors) for each in listed if each.kind == "linear"}
        self._actors: dict[ActionName, Floats] = {}
        self._actees: dict[ActionName, Floats] = {}
        for name in weights.action_space:
            actees = heads.get(f"actees/{name}")
            scale = 1.0 if actees is None else 1.0 / math.sqrt(len(actees["bias"]))
            self._actors[name] = fused_head(heads[f"actors/{name}"], scale)
            if actees is not None:
                self._actees[name] = fused_head(actees)

    @staticmethod
    def fits(listed: Sequence[Operation]) -> bool:
        """True if all operations can be fused; otherwise `NumpyNet` computes them."""
        return (
            any(each.kind == "concatenate" for each in listed)
            and all(map(FusedEmbedding.fits, _embeddings(listed).values()))
            and all(
                FusedAttention.fits(each) or FusedFeedforward.fits(each) for each in _layers(listed)
            )
        )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_idle": []}  # the arrays of plans share memory; copies would not

    def encode(
        self,
        own: Mapping[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None = None,
        wanted: NDArray[np.int64] | None = None,
    ) -> Floats | None:
        """States (see `layers`) of the entities in `wanted`; None = all, ordered by type.

        Returns None if there is no entity, or a feature is not finite or too large (about 1e19).
        """
        arrays = own
        with np.errstate(all="ignore"):
            if self._is_joined:
                arrays = self._inputs.of_one(own, shared)
            elif self._has_global:
                arrays = {**own, GLOBAL_ENTITY: _NO_FEATURES}
            counts = tuple([len(arrays[name]) if name in arrays else 0 for name in self._names])
            length = sum(counts)
            if not length:
                return None
            is_hidden = visible is not None and not visible.all()
            tables = None if self._relpos is None else self._relpos.look_up(arrays)
            size = Size(length, None if wanted is None else len(wanted), is_hidden)
            try:
                plans = self._idle.pop()
            except IndexError:
                plans = _Plans(self._embedding, self._layers)
            x = plans.of(size).run(counts, arrays, shared, visible, wanted, tables)
            self._idle.append(plans)
        return x

    def score_labels(self, name: ActionName, actors: Floats) -> Floats:
        """`(num_actors, num_labels)` logits, or means of a continuous action, from states."""
        return product(actors, self._actors[name])

    def score_actees(self, name: ActionName, actors: Floats, actees: Floats) -> Floats:
        """`(num_actors, num_actees)` logits from states."""
        return product(product(actors, self._actors[name]), product(actees, self._actees[name]).T)


def _embeddings(listed: Sequence[Operation]) -> dict[str, list[Operation]]:
    """Operations that embed a type of entities, by output buffer."""
    found: dict[str, list[Operation]] = {}
    for each in takewhile(lambda each: each.kind != "concatenate", listed):
        found.setdefault(each.output, []).append(each)
    return found


def _layers(listed: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Operations of each layer: from a `layer_norm` of all entities to the `add` of its result."""
    layer: list[Operation] = []
    for each in dropwhile(lambda each: each.kind != "concatenate", listed):
        if each.kind in ("actors", "mean", "normalize", "repeat"):
            return  # the rest reads the results
        if layer or each.kind == "layer_norm":
            layer.append(each)
        if each.kind == "add":
            yield layer
            layer = []
