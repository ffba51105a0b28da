"""NumpyAgent: a trained network that plays without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.agents.rogue_net.neural_agent import Choosing, Samples, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.distributions import (
    FORBIDDEN,
    CategoricalArrays,
    GaussianArrays,
    bounds,
    choose,
    choose_label,
    tempered,
)
from entity_env.agents.rogue_net.numpy_net.functions import softmax
from entity_env.agents.rogue_net.numpy_net.fused import FusedNet
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.numpy_net.single_observation import Asked, One, OneReader
from entity_env.agents.rogue_net.weights import Weights
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.observation import Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace
from entity_env.core.vec_obs import VecActions
from entity_env.errors import CheckpointError, SchemaError

Float: TypeAlias = NDArray[np.float32]
Choice: TypeAlias = tuple[dict[ActionName, Samples], dict[ActionName, Float]]
"""Per action what was chosen, and the probabilities of all choices."""


class NumpyAgent(TrainedAgent):
    """Plays as a trained network decides, with numpy alone; tells all probabilities.

    A decision on one observation takes a fraction of the time that torch needs. The same seed makes
    the same draws wherever it runs, but others than `NeuralAgent` does.

    Args:
        weights: the network, which fits its own description.
        greedy: take what is most probable, of real numbers the mean; otherwise draw, as in
            training.
        temperature: how evenly it draws, see `Choosing`; 1 = as in training.
        seed: the same seed and game make the same draws; None = a fresh one.
        adapt: plays also in a game that shows more than the network was trained for; see
            `TrainedAgent`.

    Raises:
        UsageError: a temperature that is not above 0.
        CheckpointError: at once, when no network has such parts; and on the first decision, when
            the game declared another schema than the network was trained for, see `TrainedAgent`.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> None:
        obs_space, action_space = weights.obs_space, weights.action_space
        super().__init__((obs_space, action_space), Choosing(greedy, temperature), adapt=adapt)
        try:
            self._fused, self._net = FusedNet(weights), NumpyNet(weights)
        except SchemaError as error:
            raise CheckpointError(str(error)) from error
        self.weights = weights
        self._rng = np.random.default_rng(seed)
        self._reader = OneReader(obs_space, action_space)
        self._writer = ObservationBatcher(obs_space, action_space, "the observation".format)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> NumpyAgent:
        weights = read_network(path)
        return cls(weights, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)

    def choose(self, observation: Observation) -> Choice:
        one = self._reader.read(observation)
        x = None if one is None else self._encode(one)
        if one is None or x is None:
            return self._choose_from_batch(observation)
        chosen: dict[ActionName, Samples] = {}
        probs: dict[ActionName, Float] = {}
        stop = 0
        for asked in one.asked:
            start, middle = stop, stop + len(asked.actors)
            stop = middle + (0 if asked.actees is None else len(asked.actees))
            actors, actees = x[start:middle], x[middle:stop]
            space = self.weights.action_space[asked.name]
            if isinstance(space, ContinuousActionSpace):
                chosen[asked.name] = self._numbers(asked, space, actors)
            else:
                probs[asked.name] = self._probs(asked, actors, actees)
                chosen[asked.name] = choose_label(
                    probs[asked.name], self.choosing.greedy, self._rng
                )
        return chosen, probs

    def choose_batch(self, obs: Batch) -> VecActions:
        distributions, _ = self._net.distributions(obs)
        return choose(tempered(distributions, self.choosing.temperature), self.choosing, self._rng)

    def _encode(self, one: One) -> Float | None:
        """Vectors of actors and actees, action after action; None when there are none."""
        asked = [each for action in one.asked for each in (action.actors, action.actees)]
        present = [each for each in asked if each is not None and len(each)]
        if not present:
            return None
        wanted = present[0] if len(present) == 1 else np.concatenate(present)
        return self._fused.encode(one.own, one.shared, one.visible, wanted)

    def _probs(self, asked: Asked, actors: Float, actees: Float) -> Float:
        if asked.actees is None:
            logits = self._fused.score_labels(asked.name, actors)
        else:
            logits = self._fused.score_actees(asked.name, actors, actees)
        if self.choosing.temperature != 1.0:
            logits /= np.float32(self.choosing.temperature)
        if asked.allowed is not None:
            logits = np.where(asked.allowed, logits, FORBIDDEN)
        return softmax(logits) if logits.size else logits

    def _numbers(self, asked: Asked, space: ContinuousActionSpace, actors: Float) -> Float:
        mean = self._fused.score_labels(asked.name, actors)
        log_std = self.weights.tensors[f"action_heads.{asked.name}.log_std"]
        numbers = GaussianArrays(asked.actors, mean, log_std, *bounds(space))
        return numbers.at_temperature(self.choosing.temperature).choose(
            self.choosing.greedy, self._rng
        )

    def _choose_from_batch(self, observation: Observation) -> Choice:
        """The same by way of a batch of one, which checks everything and says what is wrong."""
        self._writer.clear()
        self._writer.add(observation)
        flag, index = np.zeros(1, dtype=np.bool_), np.zeros(1, dtype=np.int64)
        batch = self._writer.finish(np.zeros(1, dtype=np.float32), flag, flag, index, index)
        distributions, _ = self._net.distributions(batch)
        distributions = tempered(distributions, self.choosing.temperature)
        return (
            choose(distributions, self.choosing, self._rng),
            {
                name: each.probs
                for name, each in distributions.items()
                if isinstance(each, CategoricalArrays)
            },
        )
