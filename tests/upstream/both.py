"""Equal observations from entity-gym and from us, and the decisions on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import entity_gym.env as theirs
import numpy as np
import torch
from numpy.typing import NDArray

from entity_env import Environment, Observation, questions
from entity_env.agents import random_action
from entity_env.agents.rogue_net import NumpyNet, RogueNet, Weights
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays
from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.interop.entity_gym import from_entity_gym
from tests.helpers.batches import finish
from tests.upstream.enn import real_outputs

Answers = tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]
"""Log-probabilities of every actor, by action, and the `(num_rows,)` values."""


class Remembers(theirs.Environment):  # type: ignore[misc]  # entity-gym ships no types
    """Keeps the last observation of another environment.

    Every entity gets an id: of types without, entity-gym 0.1.10 forgets to count the entities, and
    mistakes another entity for the actor.
    """

    def __init__(self, env: Any) -> None:  # noqa: ANN401
        self.env = env
        self.last: Any = None

    def obs_space(self) -> Any:  # noqa: ANN401
        return self.env.obs_space()

    def action_space(self) -> Any:  # noqa: ANN401
        return self.env.action_space()

    def reset(self) -> Any:  # noqa: ANN401
        return self.remember(self.env.reset())

    def act(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        return self.remember(self.env.act(actions))

    def remember(self, observation: Any) -> Any:  # noqa: ANN401
        ids = {
            name: observation.ids.get(name, [(name, i) for i in range(len(rows))])
            for name, rows in observation.features.items()
        }
        self.last = copy(observation)
        self.last.ids = ids
        return self.last


def observations(
    kind: Callable[[], Any], count: int, seed: int = 1
) -> Iterator[tuple[Observation, Any]]:
    """Plays an entity-gym environment at random; returns both observations of every step."""
    remembers, rng = Remembers(kind()), np.random.default_rng(seed)
    env: Environment = from_entity_gym(lambda: remembers)()
    obs_space, action_space = env.obs_space(), env.action_space()
    observation = env.reset()
    for _ in range(count):
        yield observation, remembers.last
        if observation.done:
            observation = env.reset()
            continue
        asked = questions(observation, obs_space, action_space)
        observation = env.act({each.name: random_action(each, rng) for each in asked})


def our_answers(weights: Weights, shown: Sequence[Observation]) -> Iterator[tuple[str, Answers]]:
    """Outputs of our networks, in numpy and in torch."""
    writer = ObservationBatcher(weights.obs_space, weights.action_space)
    for observation in shown:
        writer.add(observation)
    batch = finish(writer)
    arrays, values = NumpyNet(weights).distributions(batch)
    logprobs = {}
    for name, each in arrays.items():
        assert isinstance(each, CategoricalArrays)
        logprobs[name] = each.logprobs
    yield "numpy", (logprobs, values)
    with torch.inference_mode():
        distributions, tensor = RogueNet.of(weights).distributions(batch)
    logprobs = {}
    for name, distribution in distributions.items():
        assert isinstance(distribution, CategoricalDistribution)
        logprobs[name] = distribution.logprobs.numpy()
    yield "torch", (logprobs, tensor.numpy())


def require_equal(got: Answers, wanted: Answers, context: str) -> int:
    """Compares the outputs for one observation; returns the number of probabilities."""
    np.testing.assert_allclose(got[1], wanted[1], rtol=0, atol=1e-5, err_msg=context)
    assert set(got[0]) == set(wanted[0])
    total = 0
    for name, logprobs in wanted[0].items():
        if not logprobs.size:
            assert not got[0][name].size, context
            continue
        allowed = logprobs > -1e8
        np.testing.assert_allclose(
            got[0][name][allowed], logprobs[allowed], rtol=1e-5, atol=2e-5, err_msg=context
        )
        assert (got[0][name][~allowed] < -1e8).all(), context
        total += int(allowed.sum())
    return total


def require_same_network(
    net: Any,  # noqa: ANN401 - rogue-net ships no types
    weights: Weights,
    kind: Callable[[], Any],
    count: int,
) -> None:
    """Checks that the real rogue-net and ours agree on every observation of random play."""
    num_probabilities = 0
    for step, (ours, real) in enumerate(observations(kind, count)):
        wanted = real_outputs(net, [real])
        for backend, got in our_answers(weights, [ours]):
            num_probabilities += require_equal(got, wanted, f"{backend}, observation {step}")
    assert num_probabilities >= count
