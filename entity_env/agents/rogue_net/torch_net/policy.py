"""Policy: base class of networks that PPO trains, and their outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.action_index import Samples, find_row_choices
from entity_env.agents.rogue_net.config import NetConfig, OwnNetConfig, state_width
from entity_env.agents.rogue_net.memory import (
    NUM_GATES,
    Past,
    recur,
    recur_backward,
    write_biases,
)
from entity_env.agents.rogue_net.torch_net.distributions import (
    ActionDistribution,
    CategoricalDistribution,
    at_temperature,
    given_samples,
    masked_log_softmax,
    sample_actions,
)
from entity_env.agents.rogue_net.torch_net.tensors import as_array, as_tensor, use_kernels
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats, RaggedArray
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """Actions, log-probabilities and values of a batch, in newly allocated arrays.

    Args:
        actions: input of `VecEnvironment.act`: per action `(num_actors,)` int64, or
            `(num_actors, num_labels)` float32 within the bounds of a continuous action.
        samples: input of `Policy.evaluate`: like `actions`, but samples of a continuous action
            before clipping (see `GaussianDistribution`).
        logprobs: `(num_rows,)` float32, joint log-probability of the samples in a row; 0 without
            actors. For a continuous action a log-density, which can exceed 0.
        entropy: `(num_rows,)` float32 nats, summed over the actors of a row.
        values: `(num_rows,)` float32 value estimates, in units of the reward.
        states: `(num_rows, memory_width)` float32, what the network remembers after each row; None
            without memory.
    """

    actions: Mapping[ActionName, Samples]
    samples: Mapping[ActionName, Samples]
    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32]
    values: NDArray[np.float32]
    states: Floats | None = None


Decisions: TypeAlias = PolicyOutput
"""Alias of `PolicyOutput`."""


class ActorLogprobs(NamedTuple):
    """Joint log-probability of all samples of each actor, for all actions.

    Actors are in order of their rows and, within a row, of their index; the actor of global actions
    is the last.

    Args:
        rows: `(num_actors,)` int64, the row of each actor.
        logprobs: `(num_actors,)` float32, with gradients.
    """

    rows: Tensor
    logprobs: Tensor


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Log-probabilities, entropy and values of given samples: `(num_rows,)`, with gradients.

    Args:
        teacher_kl: KL(teacher || policy) in nats, summed over the actors and actions of a row; None
            without a teacher.
        agreement: share of the choices in a row that equal the teacher's, see
            `ActionDistribution.agrees_with`, without gradients; 1 without actors; None without a
            teacher.
        actors: log-probabilities of the actors, if they are needed.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    teacher_kl: Tensor | None = None
    agreement: Tensor | None = None
    actors: ActorLogprobs | None = None


class Policy(nn.Module, ABC):
    """Policy and value network over batches of observations; base class for PPO.

    Your own network implements `distributions`. `act`, `evaluate` and `values` follow from it; you
    may override them with faster ones. The trainer acts in evaluation mode and learns in training
    mode. Do not modify the arrays of a batch, or keep them after a call.
    """

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> None:
        super().__init__()
        self.obs_space = obs_space
        self.action_space = dict(action_space)
        self.origin: Mapping[str, object] = {}
        """Origin of the initial weights, as JSON; see `initialized_from`."""

    @abstractmethod
    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        """The distribution of every action, and the `(num_rows,)` float32 values, with gradients.

        Args:
            batch: observations; rows may have no entities or actors.
        """

    def recall(
        self, batch: EntityBatch, past: Past
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor, Tensor]:
        """`distributions`, given what was remembered, and the states after every row.

        The states are `(num_rows, memory_width)` float32, with gradients. Networks with memory
        implement this, and `distributions` for rows that each begin an episode.
        """
        distributions, values = self.distributions(batch)
        return distributions, values, values.new_zeros(len(values), 0)

    @property
    def memory_width(self) -> int:
        """How many numbers the network remembers; 0 = it has no memory."""
        return state_width(self.net_config)

    @property
    def net_config(self) -> NetConfig:
        """Kind and size, for checkpoints."""
        return OwnNetConfig(f"{type(self).__module__}.{type(self).__qualname__}")

    def weights(self) -> Weights:
        """Copies of parameters and statistics, for other programs and for `NumpyAgent`."""
        tensors = {name: t.detach().cpu().numpy().copy() for name, t in self.state_dict().items()}
        return Weights(self.obs_space, self.action_space, self.net_config, tensors)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def has_statistics(self) -> bool:
        """True if `update_statistics` was called, or has no effect."""
        return True

    def update_statistics(self, batch: EntityBatch, *, restart: bool = False) -> None:
        """Adds a batch of observations to the feature statistics, if any.

        Trainers call it once for each batch of new observations; `restart` resets the statistics
        first.
        """

    def labels(
        self, action: ActionName, logits: Tensor, batch: EntityBatch
    ) -> CategoricalDistribution:
        """The distribution of an action with labels, for networks that compute logits per row.

        Args:
            logits: `(num_rows, num_labels)`; each actor takes those of its row.
            batch: the observations, with the masks.

        Raises:
            SchemaError: an actor without any allowed choice, or an action that selects entities.
        """
        choices = find_row_choices(action, batch.action_masks[action])
        rows = as_tensor(choices.rows, logits.device)
        logprobs = masked_log_softmax(logits.index_select(0, rows), choices.allowed)
        return CategoricalDistribution(rows, logprobs)

    def scale_values(self, mean: float, std: float) -> None:
        """Sets new return statistics without changing predicted values. Does nothing by default.

        Args:
            mean, std: of recent returns, in units of the reward.
        """

    @torch.inference_mode()
    def act(
        self,
        batch: EntityBatch,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        past: Past | None = None,
    ) -> PolicyOutput:
        """Samples an action for every actor.

        Args:
            batch: rows without entities or actors are allowed.
            greedy: take the most probable action, or the mean of a continuous action, instead of
                sampling.
            temperature: see `ActionDistribution.at_temperature`; also applies to log-probabilities
                and entropy.
            generator: None = torch's default.
            past: what a network with memory remembers; None = every row begins an episode.

        Raises:
            SchemaError: an actor without any allowed choice, or an index out of range.
        """
        distributions, values, states = self.recalled(batch, past)
        if temperature != 1.0:
            distributions = at_temperature(distributions, temperature)
        chosen, distributions = sample_actions(distributions, greedy=greedy, generator=generator)
        logprobs, entropy = _sum_over_actors(_weigh(distributions, chosen), values)
        samples = {name: choice.cpu().numpy() for name, choice in chosen.items()}
        return PolicyOutput(
            actions=_to_actions(distributions, chosen, samples),
            samples=samples,
            logprobs=logprobs.cpu().numpy(),
            entropy=entropy.cpu().numpy(),
            values=values.cpu().numpy(),
            states=None if states is None else states.cpu().numpy(),
        )

    def evaluate(
        self,
        batch: EntityBatch,
        samples: Mapping[ActionName, NDArray[np.int64 | np.float32]],
        past: Past | None = None,
    ) -> Evaluation:
        """Evaluates samples from `act`, for every action of the space; `past` as for `act`."""
        return evaluation_of(*self.recalled(batch, past)[:2], samples)

    @torch.inference_mode()
    def values(self, batch: EntityBatch, past: Past | None = None) -> NDArray[np.float32]:
        """`(num_rows,)` float32 value estimates, in units of the reward.

        `batch` needs no masks; `past` is as for `act`.
        """
        if not batch.action_masks:
            batch = self._without_actors(batch)
        values: NDArray[np.float32] = self.recalled(batch, past)[1].cpu().numpy()
        return values

    def recalled(
        self, batch: EntityBatch, past: Past | None
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor, Tensor | None]:
        """`recall`, or, without memory, `distributions` and None."""
        if not self.memory_width:
            return *self.distributions(batch), None
        return self.recall(batch, no_past(self, batch) if past is None else past)

    def _without_actors(self, batch: EntityBatch) -> EntityBatch:
        num_rows = len(next(iter(batch.features.values())))
        none = RaggedArray(np.zeros(0, np.int64), np.zeros(num_rows, np.int64))
        masks: dict[ActionName, VecActionMask] = {}
        for name, space in self.action_space.items():
            if isinstance(space, SelectEntityActionSpace):
                masks[name] = VecSelectEntityActionMask(none, none)
            elif isinstance(space, ContinuousActionSpace):
                masks[name] = VecContinuousActionMask(none)
            else:
                masks[name] = VecCategoricalActionMask(none)
        return EntityBatch(batch.features, batch.visible, masks)


class PastArgument(TypedDict, total=False):
    """Argument `past` of the methods of a `Policy`, see `past_argument`."""

    past: Past


def past_argument(past: Past | None) -> PastArgument:
    """The argument `past`, or none: custom networks without memory may not take it."""
    return {} if past is None else {"past": past}


class ValueScale(nn.Module):
    """Mean and deviation of returns, which turn the output of a value head into a value.

    The head predicts normalized returns, so one learning rate suits rewards of any size. When the
    statistics change, the head's layer changes to keep values constant (PopArt): van Hasselt et
    al., "Learning values across many orders of magnitude" (2016), equations 3 to 5.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))

    def forward(self, normalized: Tensor) -> Tensor:
        return normalized * self.std + self.mean

    @torch.no_grad()
    def change(self, mean: float, std: float, head: nn.Linear) -> None:
        """Sets new statistics, and adapts `head` so values stay equal."""
        ratio = float(self.std) / std
        head.weight.mul_(ratio)
        head.bias.mul_(ratio).add_((float(self.mean) - mean) / std)
        self.mean.fill_(mean)
        self.std.fill_(std)


_WRITE_GAIN: Final = 6.0
"""Factor of torch's initial weights of the write gates of numbers that are kept for long. Whether a
gate opens then depends on the observation from the start, so rare observations are kept apart from
frequent ones.
"""
_OPEN: Final = 3.0
"""Initial biases of the gates of the other numbers, which are nearly always open."""
_FEW: Final = 0.1
"""Factor of the initial recurrent weights of these gates, which then hardly read the state."""
_CONTEXT_GAIN: Final = 4.0
"""Factor of torch's initial weights of the layer that entities read the memory through."""


class Memory(nn.Module):
    """A gated recurrent unit, see `recur`, over the rows of a batch.

    Args:
        num_inputs: length of the vector per row that it reads.
        width: how many numbers it remembers.
        num_outputs: width of the entities that read the state; 0 = the state is read as it is.
    """

    def __init__(self, num_inputs: int, width: int, num_outputs: int = 0) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Linear(num_inputs, NUM_GATES * width)
        self.weight = nn.Parameter(torch.empty(NUM_GATES * width, width))
        for part in torch.split(self.weight.detach(), width):
            nn.init.orthogonal_(part)
        self.context = nn.Linear(width, num_outputs) if num_outputs else None
        with torch.no_grad():
            self._begin(width - width // 4)
            if self.context is not None:
                self.context.weight *= _CONTEXT_GAIN

    def _begin(self, num_kept: int) -> None:
        """Sets the initial weights: the first numbers are kept for long, the others shifted.

        The write gates of the first numbers are mostly closed. Those of the others are open, and
        their candidates read an orthogonal map of themselves: like a shift register, they hold the
        last few inputs, in an order that can be read.
        """
        width = self.width
        kept, shifted = slice(width, width + num_kept), slice(width + num_kept, 2 * width)
        self.gates.weight[kept] *= _WRITE_GAIN
        self.gates.bias[kept] = torch.from_numpy(write_biases(num_kept))
        if num_kept == width:
            return
        for gates in (slice(num_kept, width), shifted):
            self.gates.bias[gates] = _OPEN
            self.weight[gates] *= _FEW
        own = self.weight[2 * width + num_kept :]
        own[:, :num_kept] = 0
        nn.init.orthogonal_(own[:, num_kept:])

    def forward(self, x: Tensor, past: Past) -> Tensor:
        """The states after every row, `(num_rows, width)`, from `(num_rows, num_inputs)`."""
        is_minibatch = torch.is_grad_enabled() and past.lengths is not None
        function: type[torch.autograd.Function] = _Recur
        if is_minibatch and use_kernels(len(x), x.device):
            function = _KernelRecur
        states: Tensor = function.apply(self.gates(x), self.weight, past)  # type: ignore[no-untyped-call]
        return states


class _KernelRecur(torch.autograd.Function):
    """`recur` for a minibatch, in numba kernels."""

    @staticmethod
    def forward(ctx: FunctionCtx, gates: Tensor, weight: Tensor, past: Past) -> Tensor:
        from entity_env.agents.rogue_net.kernels.recurrence import recur_rows

        given, layer = np.ascontiguousarray(as_array(gates)), as_array(weight)
        count, width = len(given), layer.shape[1]
        lengths = np.ones(count, np.int64) if past.lengths is None else past.lengths
        begins = np.zeros(count, np.bool_) if past.begins is None else past.begins
        states, before, candidates, read = np.empty((4, count, width), np.float32)
        opened = np.empty((count, 2 * width), np.float32)
        first = np.array(past.states, np.float32, order="C")
        saved = before, opened, candidates, read
        recur_rows(given, np.array(layer.T, order="C"), first, lengths, begins, states, *saved)
        ctx.saved = layer, lengths, begins, saved  # type: ignore[attr-defined]  # takes attributes
        return torch.from_numpy(states)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        from entity_env.agents.rogue_net.kernels.recurrence import recur_rows_backward

        weight, lengths, begins, saved = ctx.saved  # type: ignore[attr-defined]  # set in forward
        by_states = np.ascontiguousarray(as_array(gradient))
        by_gates, by_products = np.empty((2, len(by_states), len(weight)), np.float32)
        before, *rest = saved
        place = by_states, weight, lengths, begins, before
        recur_rows_backward(*(*place, *rest, by_gates, by_products))
        return torch.from_numpy(by_gates), torch.from_numpy(by_products.T @ saved[0]), None


class _Recur(torch.autograd.Function):
    """`recur`, in numpy: it is many operations on few numbers, which torch takes long to call."""

    @staticmethod
    def forward(ctx: FunctionCtx, gates: Tensor, weight: Tensor, past: Past) -> Tensor:
        arrays = as_array(gates.cpu()), as_array(weight.cpu())
        found = recur(*arrays, past)
        ctx.saved = arrays[1], past, found, gates.device  # type: ignore[attr-defined]  # takes attributes
        states = np.empty_like(found.states)
        states[past.order.rows] = found.states
        return as_tensor(states, gates.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, past, found, device = ctx.saved  # type: ignore[attr-defined]  # set in forward
        by_gates, by_weight = recur_backward(as_array(gradient.cpu()), weight, past, found)
        return as_tensor(by_gates, device), as_tensor(by_weight, device), None


def no_past(net: Policy, batch: EntityBatch) -> Past:
    """The past of rows that each begin an episode."""
    num_rows = len(next(iter(batch.features.values())))
    return Past(np.zeros((num_rows, net.memory_width), np.float32))


def evaluation_of(
    distributions: Mapping[ActionName, ActionDistribution],
    values: Tensor,
    samples: Mapping[ActionName, NDArray[np.int64 | np.float32]],
    masks: Mapping[ActionName, VecActionMask] | None = None,
) -> Evaluation:
    """The evaluation of samples, given the result of `Policy.distributions`.

    Args:
        masks: those of the batch, for `Evaluation.actors`; None = without it.
    """
    chosen = {name: as_tensor(samples[name], values.device) for name in distributions}
    weighed = _weigh(given_samples(distributions, chosen), chosen)
    logprobs, entropy = _sum_over_actors(weighed, values)
    actors = None if masks is None else _sum_by_actor(weighed, values, masks)
    return Evaluation(logprobs, entropy, values, actors=actors)


def _to_actions(
    distributions: Mapping[ActionName, ActionDistribution],
    chosen: Mapping[ActionName, Tensor],
    samples: Mapping[ActionName, Samples],
) -> dict[ActionName, Samples]:
    """Samples in the units of the action space; `samples` are `chosen` as arrays."""
    actions: dict[ActionName, Samples] = {}
    for name, each in distributions.items():
        action = each.actions(chosen[name])
        # Most actions equal their samples: copy these from a device only once.
        actions[name] = samples[name] if action is chosen[name] else action.cpu().numpy()
    return actions


class _Weighed(NamedTuple):
    """Row, log-probability and entropy of each actor of one action, `(num_actors,)` each."""

    rows: Tensor
    logprobs: Tensor
    entropy: Tensor


def _weigh(
    distributions: Mapping[ActionName, ActionDistribution], chosen: Mapping[ActionName, Tensor]
) -> dict[ActionName, _Weighed]:
    """Weighs the samples of every action that has actors."""
    return {
        name: _Weighed(each.rows, *each.weigh(chosen[name]))
        for name, each in distributions.items()
        if len(each.rows)
    }


def _sum_over_actors(
    weighed: Mapping[ActionName, _Weighed], values: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy, `(num_rows,)`, summed over a row's actors."""
    logprobs = torch.zeros_like(values)
    entropy = torch.zeros_like(values)
    for each in weighed.values():
        logprobs = logprobs.index_add(0, each.rows, each.logprobs)
        entropy = entropy.index_add(0, each.rows, each.entropy)
    return logprobs, entropy


def _sum_by_actor(
    weighed: Mapping[ActionName, _Weighed],
    values: Tensor,
    masks: Mapping[ActionName, VecActionMask],
) -> ActorLogprobs:
    """The log-probability of every actor, summed over its actions."""
    actors = [masks[name].actors for name in weighed]
    ids = [np.zeros((2, 0), np.int64), *(np.stack((a.row_index, a.values)) for a in actors)]
    (rows, _), which = np.unique(np.concatenate(ids, axis=1), axis=1, return_inverse=True)
    logprobs = values.new_zeros(len(rows))
    ends = np.cumsum([len(each.values) for each in actors])
    for each, index in zip(weighed.values(), np.split(which.reshape(-1), ends), strict=False):
        logprobs = logprobs.index_add(0, as_tensor(index, values.device), each.logprobs)
    return ActorLogprobs(as_tensor(rows, values.device), logprobs)
