"""NumpyAgent: computes its network without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self, TypeAlias

import numpy as np

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.config import state_width
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.neural_agent import Choosing, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    Chooser,
    Distribution,
    bounds,
    choose_label,
    deviations,
    middle_and_half,
    require_usable,
)
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.numpy_net.single import SingleNet, single_net
from entity_env.agents.rogue_net.numpy_net.single_reader import (
    RequestedAction,
    SingleObservation,
    SingleObservationReader,
)
from entity_env.agents.rogue_net.weights import Weights
from entity_env.authoring.local_run import Thoughts
from entity_env.core.observation import Observation
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, ContinuousActionSpace, has_dependent
from entity_env.core.vec_obs import VecActions
from entity_env.errors import CheckpointError, SchemaError

Choice: TypeAlias = tuple[dict[ActionName, Samples], dict[ActionName, Floats]]
"""Samples and probabilities, see `TrainedAgent.choose`."""


class NumpyAgent(TrainedAgent):
    """Plays a trained network in numpy, in a fraction of torch's time per observation.

    A seed gives the same samples on every machine, but not those of `NeuralAgent`.

    Args:
        weights: tensors must fit their description, see `Weights.require_fit`.
        greedy, temperature: see `Choosing`; None = as `weights.plays_greedily`.
        adapt: see `TrainedAgent`.

    Raises:
        UsageError: a temperature below 1e-6, or not finite.
        CheckpointError: the spaces and options of the network do not fit together. Also raised on
            the first decision, see `TrainedAgent`.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        greedy: bool | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> None:
        obs_space, action_space = weights.obs_space, weights.action_space
        width = state_width(weights.config)
        choosing = Choosing(weights.plays_greedily(greedy, temperature), temperature)
        super().__init__((obs_space, action_space), choosing, width, adapt=adapt)
        try:
            self._net = NumpyNet(weights)
            self._single = single_net(weights)
        except SchemaError as error:
            raise CheckpointError(str(error)) from error
        self.weights = weights
        self._rng = np.random.default_rng(seed)
        self._reader = SingleObservationReader(obs_space, action_space)
        self._is_dependent = has_dependent(action_space)
        given = [name for space in action_space.values() for name in space.given]
        self._order = [*dict.fromkeys((*given, *action_space))]
        """Actions in the order in which `NumpyNet` draws their choices."""
        self._gaussians: dict[ActionName, tuple[Floats, Floats, Floats]] = {}
        """Bounds and deviations of continuous actions, in the units of their spaces."""
        for name, space in action_space.items():
            if isinstance(space, ContinuousActionSpace):
                low, high = bounds(space)
                _, half = middle_and_half(low, high)
                deviation = deviations(weights.tensors[f"action_heads.{name}.log_std"])
                spread = np.float32(math.sqrt(temperature))
                self._gaussians[name] = low, high, spread * half * deviation

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        greedy: bool | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        return cls(weights, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)

    def choose(self, observation: Observation) -> Choice:
        net, past = self._single, self._past()
        one = None if net is None else self._reader.read(observation)
        if net is not None and one is not None and self._is_dependent and one.asked:
            return self._choose_in_order(net, one, past) or self._choose_from_batch(observation)
        state = None if past is None else past.states.copy()
        if net is None or one is None or not net.decide(*one, self.choosing.temperature, state):
            return self._choose_from_batch(observation)
        self._after = state
        chosen: dict[ActionName, Samples] = {}
        probs: dict[ActionName, Floats] = {}
        for asked in one.asked:
            self._draw(asked, chosen, probs)
        return chosen, probs

    def _choose_in_order(
        self, net: SingleNet, one: SingleObservation, past: Past | None
    ) -> Choice | None:
        """`choose` if actions depend on others; None if the network cannot decide.

        Each pass answers all actions whose given ones are chosen, with masks that allow only these
        choices.
        """
        spaces, asked = self.weights.action_space, {each.name: each for each in one.asked}
        chosen: dict[ActionName, Samples] = {}
        probs: dict[ActionName, Floats] = {}
        answered: set[ActionName] = set()
        for name in self._order:
            if name not in asked:
                continue
            if name not in answered:
                ready = [
                    each
                    for each in one.asked
                    if each.name not in answered and chosen.keys() >= set(spaces[each.name].given)
                ]
                made = dict.fromkeys(name for each in ready for name in spaces[each.name].given)
                requests = [asked[given].only(chosen[given]) for given in made]
                for each in ready:
                    given = spaces[each.name].given
                    requests.append(each.after(chosen[given[-1]]) if given else each)
                state = None if past is None else past.states.copy()
                inputs = one._replace(asked=requests)
                if not net.decide(*inputs, self.choosing.temperature, state):
                    return None
                self._after = state
                answered |= {each.name for each in ready}
            self._draw(asked[name], chosen, probs)
        return chosen, probs

    def _draw(
        self,
        asked: RequestedAction,
        chosen: dict[ActionName, Samples],
        probs: dict[ActionName, Floats],
    ) -> None:
        """Chooses the values of an action from its answers."""
        if isinstance(self.weights.action_space[asked.name], ContinuousActionSpace):
            chosen[asked.name] = self._numbers(asked.name, asked.answers)
        else:
            probs[asked.name] = asked.answers
            chosen[asked.name] = choose_label(asked.answers, self.choosing.greedy, self._rng)

    def thoughts(self, obs: Batch, past: Past | None) -> Thoughts:
        distributions, values, attention = self._net.attended(obs, past)
        has_value = self.weights.has_value
        value = float(require_usable(values, "the value")[0]) if has_value else None
        return Thoughts(_probs_of(self._tempered(distributions)), value, attention)

    def numpy_net(self) -> NumpyNet:
        return self._net

    def states_after(self, obs: Batch, past: Past) -> Floats:
        return self._net.recall(obs, past)[2]

    def choose_rows(self, obs: Batch, past: Past | None) -> tuple[VecActions, Floats | None]:
        chooser, states = self._chosen(obs, past)
        return chooser.chosen, states

    def _numbers(self, name: ActionName, means: Floats) -> Floats:
        low, high, deviation = self._gaussians[name]
        if not self.choosing.greedy:
            noise = self._rng.standard_normal(means.shape, dtype=np.float32)
            means = means + deviation * noise
        return np.clip(means, low, high)

    def _choose_from_batch(self, observation: Observation) -> Choice:
        """`choose` with a batch of one observation, which converts and checks everything."""
        batch = self._batch_of(observation)
        chooser, self._after = self._chosen(batch, self._past())
        return chooser.chosen, _probs_of(chooser.distributions)

    def _chosen(self, obs: Batch, past: Past | None) -> tuple[Chooser, Floats | None]:
        choosing = self.choosing
        chooser = Chooser(self._rng, greedy=choosing.greedy, temperature=choosing.temperature)
        states = None
        if past is None:
            distributions, _ = self._net.distributions(obs, chooser)
        else:
            distributions, _, states = self._net.recall(obs, past, chooser)
        for name, each in distributions.items():
            chooser.choose(name, each)
        return chooser, states

    def _tempered(
        self, distributions: dict[ActionName, Distribution]
    ) -> dict[ActionName, Distribution]:
        temperature = self.choosing.temperature
        if temperature == 1.0:
            return distributions
        return {name: each.at_temperature(temperature) for name, each in distributions.items()}


def _probs_of(distributions: Mapping[ActionName, Distribution]) -> dict[ActionName, Floats]:
    return {
        name: each.probs_of_choices
        for name, each in distributions.items()
        if isinstance(each, CategoricalArrays)
    }


RogueNetAgent: TypeAlias = NumpyAgent
"""`NumpyAgent` by its name in entity-gym-rs; `RogueNetAgent.load(path)` also reads checkpoints of
enn-trainer.
"""
