"""Inputs of a network as an ONNX graph, and the buffers with which its operations start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, TranslationConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.onnx_net.graph import OnnxGraph, Value
from entity_env.agents.rogue_net.operations import Picture
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.errors import SchemaError


class OnnxInputs:
    """The inputs, by entity type or action; see `onnx_net/file.py` for their shapes.

    Args:
        has_visible: adds an input `visible/TYPE` for every entity type.

    Raises:
        SchemaError: the network does not distinguish hidden entities, but `has_visible` is set.
    """

    def __init__(self, graph: OnnxGraph, weights: Weights, *, has_visible: bool) -> None:
        self._graph, self._weights = graph, weights
        self.is_flat = isinstance(weights.config, MLPConfig | CNNConfig)
        """The network reads one vector per observation."""
        if has_visible and self.is_flat:
            raise SchemaError(
                "--visible is for networks that read entities one by one: an MLP or CNN reads "
                "hidden entities like visible ones"
            )
        entities, shared = weights.obs_space.entities, weights.obs_space.global_features
        self.features: dict[EntityName, Value] = {
            name: graph.input(f"features/{name}", np.float32, (f"num_{name}", len(each.features)))
            for name, each in entities.items()
        }
        for name, each in entities.items():
            if each.features:
                self.features[name] = graph.limited(self.features[name])
        self.visible: dict[EntityName, Value] = {
            name: graph.input(f"visible/{name}", np.bool_, (f"num_{name}",))
            for name in entities
            if has_visible
        }
        self._shared: Value = ""
        """`(1, num_global_features)`."""
        if shared:
            one = graph.limited(graph.input("globals", np.float32, (len(shared),)))
            self._shared = graph.reshape(one, 1, len(shared))
        self.actors: dict[ActionName, Value] = {}
        self.actees: dict[ActionName, Value] = {}
        self.masks: dict[ActionName, Value] = {}
        for action in weights.action_space:
            self._request(action)

    def _request(self, action: ActionName) -> None:
        """Declares the inputs of an action."""
        space, graph = self._weights.action_space[action], self._graph
        num_actors: int | str = f"actors_{action}"
        if isinstance(space, GlobalCategoricalActionSpace):
            num_actors = 1
        elif not self.is_flat:
            self.actors[action] = graph.input(f"actors/{action}", np.int64, (num_actors,))
        if isinstance(space, ContinuousActionSpace):
            return
        num_choices: int | str
        if isinstance(space, SelectEntityActionSpace):
            num_choices = f"actees_{action}"
            self.actees[action] = graph.input(f"actees/{action}", np.int64, (num_choices,))
        else:
            num_choices = len(space)
        self.masks[action] = graph.input(f"mask/{action}", np.bool_, (num_actors, num_choices))

    def buffers(self) -> dict[str, Value]:
        """The first buffers, as described in `operations.py`, of one observation."""
        config = self._weights.config
        spaces = self._weights.obs_space, self._weights.action_space
        if not isinstance(config, MLPConfig | CNNConfig):
            translation = self._weights.rogue_net_config().translation
            inputs = Inputs(*spaces, translation)
            arrays = {name: self._joined(name) for name in inputs.names}
            if translation is not None:
                self._translate(arrays, inputs.features, translation)
            return {f"features/{name}": array for name, array in arrays.items()}
        picture = Picture.of(*spaces, config) if isinstance(config, CNNConfig) else None
        parts = {name: self._first(name) for name, n in entity_widths(*spaces).items() if n}
        found: dict[str, Value] = {}
        if picture is not None:
            pixels = self._graph.reshape(parts.pop(picture.name), 1, *picture.shape)
            found["picture"] = self._graph.transpose(pixels, 0, 3, 1, 2)
        if parts:
            found["features"] = self._graph.concat([*parts.values()], 1)
        return found

    def _first(self, name: EntityName) -> Value:
        """`(1, num_features)` of a single entity, 0 if it is missing."""
        if name == GLOBAL_ENTITY:
            return self._shared
        width = len(self._weights.obs_space.entities[name].features)
        return self._graph.first_row(self.features[name], width)

    def _joined(self, name: EntityName) -> Value:
        """`(num_entities, width)`: own features, then global features."""
        graph = self._graph
        if name == GLOBAL_ENTITY:
            # Without features, only the number of rows matters.
            return self._shared or graph.op("Identity", np.zeros((1, 1), np.float32))
        own = self.features[name]
        if not self._shared:
            return own
        shared = graph.repeat(self._shared, graph.count(own))
        if not self._weights.obs_space.entities[name].features:
            return shared
        return graph.concat([own, shared], 1)

    def _translate(
        self,
        arrays: dict[EntityName, Value],
        features: Mapping[EntityName, Sequence[str]],
        config: TranslationConfig,
    ) -> None:
        """Moves and rotates positions as `features.Inputs` does.

        Reads the first reference entity; without one, its features are 0.
        """
        graph, named = self._graph, config.reference_entity
        reference = graph.first_row(arrays[named], len(features[named]))

        def number(feature: str) -> Value:
            return graph.columns(reference, [features[named].index(feature)])

        turn: tuple[Value, Value] | None = None
        if config.rotation_angle_feature is not None:
            angle = number(config.rotation_angle_feature)
            turn = graph.op("Cos", angle), graph.op("Sin", angle)
        elif config.rotation_vec_features is not None:
            cosine, sine = map(number, config.rotation_vec_features)
            turn = cosine, sine
        for name, own in features.items():
            if name == named or not set(config.position_features) <= set(own):
                continue
            at = [own.index(feature) for feature in config.position_features]
            position = [
                graph.op("Sub", graph.columns(arrays[name], [column]), number(feature))
                for column, feature in zip(at, config.position_features, strict=True)
            ]
            if turn is not None:
                position = _rotated(graph, position, turn)
            position = [graph.limited(each) for each in position]
            added = position
            if config.add_dist_feature:
                added = [*position, graph.length(position)]
            order = [len(own) + at.index(i) if i in at else i for i in range(len(own))]
            order += range(len(own) + len(position), len(own) + len(added))
            arrays[name] = graph.columns(graph.concat([arrays[name], *added], 1), order)


def _rotated(graph: OnnxGraph, position: Sequence[Value], turn: tuple[Value, Value]) -> list[Value]:
    (x, y), (cosine, sine) = position, turn
    return [
        graph.op("Add", graph.op("Mul", x, cosine), graph.op("Mul", y, sine)),
        graph.op("Sub", graph.op("Mul", y, cosine), graph.op("Mul", x, sine)),
    ]
