"""Networks in plain numpy, for batches; `fused` is several times faster for one observation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import (
    Actees,
    Choices,
    find_choices,
    find_row_choices,
)
from entity_env.agents.rogue_net.batch_layout import Batch, Layout, RelationLayout, lay_out
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, state_width
from entity_env.agents.rogue_net.features import FlatFeatures, Inputs
from entity_env.agents.rogue_net.memory import Past, recur, recur_without_each
from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    Chooser,
    Distribution,
    GaussianArrays,
    require_usable,
)
from entity_env.agents.rogue_net.numpy_net.functions import (
    HIDDEN,
    OPERATIONS,
    InputScale,
    product,
    relate,
    softmax,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos, RelposArrays
from entity_env.agents.rogue_net.operations import Operation, Picture
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_actions import narrowed
from entity_env.errors import SchemaError

_Step: TypeAlias = tuple[Callable[..., Any], Sequence[str], str]
"""Function of buffers, with tensors and constants bound; its input buffers; its output buffer."""
_RUN: Final = "run"
"""Buffer of the `_Run` itself."""


class NumpyNet:
    """Action distributions and values of batches; does not modify a batch.

    Args:
        weights: tensors must fit their description, see `Weights.require_fit`.

    Raises:
        SchemaError: the spaces and options of the network do not fit together.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._width = state_width(weights.config)
        self._reader = _Reader(weights)
        self._steps = [_bound(each, weights.tensors) for each in weights.operations()]
        given = {name: each.given for name, each in weights.action_space.items()}
        self._before = {name: others[-1] for name, others in given.items() if others}
        memories = [i for i, each in enumerate(weights.operations()) if each.kind == "recur"]
        self._num_until_states = memories[-1] + 1 if memories else 0
        self._norms = [each for each, _, _ in self._steps if isinstance(each, InputScale)]

    def read_statistics(self) -> None:
        """Rereads the tensors of feature statistics, which may have changed in place."""
        for norm in self._norms:
            norm.read()

    def distributions(
        self, batch: Batch, chooser: Chooser | None = None
    ) -> tuple[dict[ActionName, Distribution], Floats]:
        """The distribution of every action, and the `(num_rows,)` values.

        `chooser` makes the choices on which other actions depend; None = the most probable ones.

        A network with memory remembers nothing: every row begins an episode.

        Raises:
            SchemaError: an actor without an allowed choice, or an index out of range.
            CheckpointError: a logit, mean or state cannot be used, see `require_usable`.
        """
        return self._run(_Run(batch, self._width, None, chooser, self._before))

    def recall(
        self, batch: Batch, past: Past, chooser: Chooser | None = None
    ) -> tuple[dict[ActionName, Distribution], Floats, Floats]:
        """`distributions`, given what was remembered, and the states after every row."""
        run = _Run(batch, self._width, past, chooser, self._before)
        return *self._run(run), require_usable(run.states, "its memory")

    def states_without_each(self, batch: Batch, state: Floats) -> Floats:
        """States after a batch of consecutive steps, if some had not been seen.

        Args:
            state: `(1, width)` before the first step.

        Returns:
            `(num_rows + 2, width)`, see `recur_without_each`.
        """
        run = _Run(batch, self._width, Past(state), None, self._before)
        run.without = np.zeros((len(run.states) + 2, self._width), np.float32)
        self._compute(run, self._steps[: self._num_until_states])
        return run.without

    def attended(
        self, batch: Batch, past: Past | None = None
    ) -> tuple[dict[ActionName, Distribution], Floats, Floats | None]:
        """`distributions` of a batch of one observation, and its attention weights.

        The weights are `(n_layer, n_head, num_entities, num_entities)`, query before key; None if
        the network has no attention. Entities are in the order of the space; the actor of global
        actions, if any, is last.
        """
        run = _Run(batch, self._width, past, None, self._before)
        run.attention = []
        distributions, values = self._run(run)
        if not run.attention:
            return distributions, values, None
        config = self.weights.rogue_net_config()
        # The rest belongs to a value network.
        found = np.array(run.attention[: config.n_layer], np.float32)
        size = found.shape[-1] if found.size else 0
        shape = config.n_layer, config.n_head, size, size
        return distributions, values, found.reshape(shape)

    def _run(self, run: _Run) -> tuple[dict[ActionName, Distribution], Floats]:
        buffers = self._compute(run, self._steps)
        distributions = {name: buffers[f"action/{name}"] for name in self.weights.action_space}
        return distributions, buffers["value"][:, 0]

    def _compute(self, run: _Run, steps: Sequence[_Step]) -> dict[str, Any]:
        buffers = self._reader.read(run.batch)
        buffers[_RUN] = run
        # Some kernels of OpenBLAS report invalid values for products of finite numbers. Sums that
        # overflow reach the results, see `require_usable`.
        with np.errstate(invalid="ignore", over="ignore"):
            for compute, inputs, output in steps:
                if len(inputs) == 1:  # most steps, in half the time
                    buffers[output] = compute(buffers[inputs[0]])
                else:
                    buffers[output] = compute(*map(buffers.__getitem__, inputs))
        return buffers


def _bound(operation: Operation, tensors: Mapping[str, NDArray[Any]]) -> _Step:
    inputs, output = operation.inputs, operation.output
    given: dict[str, Any] = {**operation.of(tensors), **operation.constants}
    if operation.kind == "normalize":
        return InputScale(operation.of(tensors), **operation.constants), inputs, output
    if operation.kind == "positions":
        given = {"relpos": NumpyRelpos(operation, tensors)}
    if operation.kind in OPERATIONS:
        return partial(OPERATIONS[operation.kind], **given), inputs, output
    return partial(getattr(_Run, operation.kind), **given), (_RUN, *inputs), output


class _Reader:
    """Creates the initial buffers of a network, see `operations`."""

    def __init__(self, weights: Weights) -> None:
        spaces, config = (weights.obs_space, weights.action_space), weights.config
        self._inputs: Inputs | None = None
        self._picture: Picture | None = None
        if not isinstance(config, MLPConfig | CNNConfig):
            self._inputs = Inputs(*spaces, weights.rogue_net_config().translation)
            return
        if isinstance(config, CNNConfig):
            self._picture = Picture.of(*spaces, config)
        self._flat = FlatFeatures(*spaces, None if self._picture is None else self._picture.name)

    def read(self, batch: Batch) -> dict[str, Any]:
        if self._inputs is not None:
            arrays = self._inputs.arrays(batch)
            return {f"features/{name}": array for name, array in arrays.items()}
        picture = self._picture
        if picture is None:
            return {"features": self._flat.array(batch)}
        pixels = self._flat.part(picture.name, batch).reshape(-1, *picture.shape)
        if not picture.width:
            return {"picture": pixels}
        return {"picture": pixels, "features": self._flat.array(batch)}


class _Run:
    """Operations that also read the batch, one method per kind."""

    def __init__(
        self,
        batch: Batch,
        width: int,
        past: Past | None,
        chooser: Chooser | None,
        before: Mapping[ActionName, ActionName],
    ) -> None:
        self.batch = batch
        self._chooser = chooser or Chooser()
        self._before = before
        """For every action that depends on others, the last of these."""
        num_rows = len(next(iter(batch.features.values())))
        self.states = np.zeros((num_rows, width), np.float32)
        """`(num_rows, width)` what the network remembers after every row."""
        self.past = Past(np.zeros_like(self.states)) if past is None else past
        self.attention: list[Floats] | None = None
        self.without: Floats | None = None
        """See `NumpyNet.states_without_each`."""
        self._layout: Layout | None = None
        """Layout of the concatenated entities; None = one vector per row."""
        self._names: Sequence[EntityName] = ()
        """Their types."""
        self._choices: dict[ActionName, Choices] = {}

    @property
    def _entities(self) -> Layout:
        if self._layout is None:
            raise TypeError("no entities were concatenated")
        return self._layout

    def _choices_of(self, action: ActionName) -> Choices:
        found = self._choices.get(action)
        if found is None:
            mask = self.batch.action_masks[action]
            if action in self._before:
                mask = narrowed(mask, self._chooser.chosen[self._before[action]])
            if self._layout is None:
                found = find_row_choices(action, mask)
            else:
                found = find_choices(action, mask, self._layout)
            self._choices[action] = found
        return found

    def _actees_of(self, action: ActionName) -> Actees:
        found = self._choices_of(action).actees
        if found is None:
            raise SchemaError(f"action {action!r} selects entities, but its mask has no actees")
        return found

    def concatenate(self, *parts: Floats, entities: Sequence[EntityName] | None = None) -> Floats:
        if entities is not None:
            self._names, self._layout = entities, lay_out(self.batch, entities)
        return np.concatenate(parts)

    def pairs(self, *_: Floats, references: Sequence[Sequence[EntityName]]) -> RelationLayout:
        types = {name: both for name, *both in references}
        found = RelationLayout.of(self.batch, self._names, types)
        self._layout = replace(self._entities, relations=found)
        return found

    def relate(self, *parts: Any, n_head: int) -> Floats:  # noqa: ANN401 - arrays and relations
        *arrays, pairs = parts
        return relate(*arrays, relations=pairs, n_head=n_head)

    def ends(self, x: Floats, pairs: RelationLayout) -> Floats:
        return x[pairs.pairs].reshape(len(pairs.pairs), 2 * x.shape[1])

    def positions(self, *features: Floats, relpos: NumpyRelpos) -> RelposArrays | None:
        layout = self._entities
        if not layout.num_padded:
            return None
        return relpos.look_up(dict(zip(relpos.names, features, strict=True)), layout)

    def attend(
        self,
        query: Floats,
        key: Floats,
        value: Floats,
        positions: RelposArrays | None = None,
        gate: Floats | None = None,
        *,
        n_head: int,
    ) -> Floats:
        layout = self._entities
        if not layout.num_padded:
            if self.attention is not None:
                self.attention.append(np.zeros((n_head, 0, 0), np.float32))
            return query
        shape = layout.num_padded, layout.max_length
        # (num_padded, n_head, max_length, d_head)
        q, k, v = (
            each[layout.source].reshape(*shape, n_head, -1).transpose(0, 2, 1, 3)
            for each in (query, key, value)
        )
        logits = q @ k.swapaxes(-1, -2)
        if positions is not None:
            logits = logits + positions.logits(q)
        logits = logits * np.float32(1.0 / math.sqrt(q.shape[-1]))
        if layout.hidden is not None:
            logits = np.where(layout.hidden.swapaxes(1, 2)[:, None], HIDDEN, logits)
        attention = softmax(logits)
        if self.attention is not None:
            self.attention.append(attention)
        y = attention @ v
        if positions is not None:
            gated = None if gate is None else gate[layout.source].reshape(*shape, -1)
            y = y + positions.values(attention, gated)
        mixed: Floats = y.transpose(0, 2, 1, 3).reshape(-1, query.shape[1])[layout.slots]
        return mixed

    def pool(self, x: Floats, of: str) -> Floats:
        return self._entities.pooled(x, of)

    def spread(self, x: Floats) -> Floats:
        own: Floats = x[self._entities.rows]
        return own

    def recur(self, gates: Floats, weight: Floats, start: int) -> Floats:
        columns = slice(start, start + weight.shape[1])
        past = self.past.part(columns)
        if self.without is not None:
            self.without[:, columns] = recur_without_each(gates, weight, past.states)
            # Later operations are only computed for a value network, which reads its own states.
            return np.zeros((len(gates), weight.shape[1]), np.float32)
        found = np.empty((len(gates), weight.shape[1]), np.float32)
        found[past.order.rows] = recur(gates, weight, past).states
        self.states[:, columns] = found
        return found

    def mean(self, x: Floats) -> Floats:
        layout = self._entities
        total = np.zeros((len(layout.lengths), x.shape[1]), dtype=np.float32)
        np.add.at(total, layout.rows, x)
        return total / np.maximum(layout.lengths, 1).astype(np.float32)[:, None]

    def actors(self, x: Floats, action: ActionName) -> Floats:
        rows: Floats = x[self._choices_of(action).packed]
        return rows

    def actees(self, x: Floats, action: ActionName) -> Floats:
        rows: Floats = x[self._actees_of(action).packed]
        return rows

    def choice(self, distribution: Distribution, x: Floats, action: ActionName) -> Floats:
        """The choices of all actors: one-hot vectors, numbers from -1 to 1, or chosen entities."""
        chosen: NDArray[Any] = self._chooser.choose(action, distribution)
        if isinstance(distribution, GaussianArrays):
            return distribution.units(chosen)
        place = self._choices_of(action)
        if place.actees is not None:
            picked: Floats = x[place.actees.picked(place.rows, chosen)]
            return picked
        hot = np.zeros(distribution.logprobs.shape, np.float32)
        hot[np.arange(len(hot)), chosen] = 1
        return hot

    def compare(self, actors: Floats, actees: Floats, action: ActionName) -> Floats:
        """`(num_actors, max_actees)`, by batched products over padded observations.

        If actors have options, `(num_actors, num_options)`.
        """
        if not len(actors):
            return np.zeros((0, 1), dtype=np.float32)
        place, width, choices = self._actees_of(action), actors.shape[1], self._choices_of(action)
        if choices.options is not None:
            row, column, index = choices.pairs(place, choices.options)
            compared = np.zeros(choices.options.shape, np.float32)
            compared[row, column] = np.einsum("ij,ij->i", actees[index], actors[row])
            return compared * np.float32(1.0 / math.sqrt(width))
        queries = np.zeros((place.num_rows * place.max_actors, width), dtype=np.float32)
        keys = np.zeros((place.num_rows * place.max_actees, width), dtype=np.float32)
        queries[place.actor_slots] = actors
        keys[place.slots] = actees
        logits = product(
            queries.reshape(place.num_rows, place.max_actors, width),
            keys.reshape(place.num_rows, place.max_actees, width).swapaxes(1, 2),
        )
        flat = logits.reshape(-1, place.max_actees)[place.actor_slots]
        return flat * np.float32(1.0 / math.sqrt(width))

    def categorical(self, logits: Floats, action: ActionName) -> CategoricalArrays:
        choices = self._choices_of(action)
        require_usable(logits, action)
        return CategoricalArrays.of(
            choices.rows, logits, choices.allowed, choices.options, choices.num_choices
        )

    def gaussian(
        self,
        mean: Floats,
        action: ActionName,
        log_std: Floats,
        low: Sequence[float],
        high: Sequence[float],
    ) -> GaussianArrays:
        bounds = (np.array(each, np.float32) for each in (low, high))
        require_usable(mean, action)
        return GaussianArrays(self._choices_of(action).rows, mean, log_std, *bounds)
