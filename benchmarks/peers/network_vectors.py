"""Decisions of numpy as JSON, for networks in other languages, and their comparison in Node."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from entity_env import Game
from entity_env.agents import RandomAgent
from entity_env.agents.rogue_net import NumpyAgent, Weights
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.agents.rogue_net.config import NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.numpy_net.distributions import Chooser, GaussianArrays
from entity_env.agents.rogue_net.weights import expected_tensors, relpos_constants
from entity_env.core.masks import is_nested
from entity_env.core.observation import Observation
from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace, Spaces

NODE: Final = shutil.which("node")
NETWORK: Final = Path(__file__).parents[2] / "entity_env" / "page" / "network.mjs"
_SCRIPT: Final = Path(__file__).with_suffix(".mjs")

Vector: TypeAlias = dict[str, Any]
"""An observation as `network.mjs` reads it, and what numpy computes: `probabilities` at a
`temperature`, `numbers` (means of continuous actions), `value`, `attention`, the state `after` it,
and the state that is `kept`: without an actor, the one before. Observations are those of one
episode: the state of one is kept from the one before. If actions depend on others, `chosen` in the
observation has the choices of these.
"""


def random_weights(spaces: Spaces, config: NetConfig, seed: int = 0) -> Weights:
    """A network with random parameters and statistics, about as large as in training."""
    rng = np.random.default_rng(seed)
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    tensors = {}
    for name, spec in expected_tensors(*spaces, config).items():
        part = name.rpartition(".")[2]
        constant = relpos_constants(relpos).get(part)
        if constant is not None:
            tensors[name] = constant
            continue
        values = rng.normal(size=spec.shape)
        if part == "count":
            values = np.array(20.0)
        elif part in ("squares_sum", "std"):
            values = rng.uniform(0.2, 2, spec.shape) * (19 if part == "squares_sum" else 1)
        elif part == "weight" and values.ndim > 1:
            values /= np.sqrt(np.prod(spec.shape[1:]))
        elif part == "weight":
            values = 1 + 0.2 * values
        tensors[name] = np.asarray(values, spec.dtype)
    return Weights(*spaces, config, tensors)


def vectors_of(
    weights: Weights, observations: Iterable[Observation], temperature: float = 1.0
) -> list[Vector]:
    """Observations with numpy's decisions."""
    agent = NumpyAgent(weights, greedy=True, temperature=temperature)
    return [_vector(agent, each) for each in observations]


def dependent_vectors(
    weights: Weights, observations: Iterable[Observation], seed: int
) -> list[Vector]:
    """As `vectors_of`, for actions that depend on others, given random choices of these."""
    agent = NumpyAgent(weights, greedy=True)
    found = []
    for i, each in enumerate(observations):
        past = agent._past()
        vector = _vector(agent, each)
        chooser = Chooser(np.random.default_rng(seed + i), greedy=False)
        found.append(given_choices(weights, each, vector, chooser, past))
    return found


def given_choices(
    weights: Weights,
    observation: Observation,
    vector: Vector,
    chooser: Chooser,
    past: Past | None = None,
) -> Vector:
    """The vector with these choices of actions on which others depend, and what follows from them.

    Args:
        chooser: makes the choices, or has them.
    """
    agent = NumpyAgent(weights)
    net, batch = agent._net, agent._batch_of(observation)
    read = net.distributions(batch, chooser) if past is None else net.recall(batch, past, chooser)
    distributions = {name: read[0][name] for name in observation.actions}
    chosen = {
        name: chooser.chosen[name].tolist() for name in distributions if name in chooser.chosen
    }
    greedy = Chooser()
    probabilities, numbers = {}, {}
    for name, each in distributions.items():
        if isinstance(each, GaussianArrays):
            numbers[name] = chosen.get(name, greedy.choose(name, each).tolist())
        else:
            probabilities[name] = np.exp(each.logprobs).tolist()
    asked = {**vector["observation"], "chosen": chosen}
    return {**vector, "observation": asked, "probabilities": probabilities, "numbers": numbers}


def episode_vectors(game: Game, weights: Weights, count: int, seed: int = 0) -> list[Vector]:
    """Observations of whole episodes of a game, in which the network plays the first seat."""
    recorder = _Recorder(weights, seed=seed)
    while len(recorder.vectors) < count:
        others = [RandomAgent(seed=seed + i) for i in range(1, game.num_agents)]
        game.run(recorder, *others, seed=seed)
        seed += 1
    return recorder.vectors[:count]


class _Recorder(NumpyAgent):
    """Samples actions, and keeps a vector per decision."""

    def __init__(self, weights: Weights, *, seed: int | None = None, **_: object) -> None:
        super().__init__(weights, seed=seed)
        self.vectors: list[Vector] = []
        self._greedy = NumpyAgent(weights, greedy=True)

    def choose(self, observation: Observation) -> Any:  # noqa: ANN401 - as in the base class
        self.vectors.append(_vector(self._greedy, observation))
        return super().choose(observation)


def _vector(agent: NumpyAgent, observation: Observation) -> Vector:
    spaces = agent.weights.obs_space, agent.weights.action_space
    thoughts, numbers = agent.think(observation), {}
    state = _remembered(agent)
    if any(isinstance(spaces[1][name], ContinuousActionSpace) for name in observation.actions):
        chosen = agent.choose(observation)[0]
        numbers = {
            name: chosen[name].tolist()
            for name in observation.actions
            if isinstance(spaces[1][name], ContinuousActionSpace)
        }
    after = agent.choose_rows(agent._batch_of(observation), agent._past())[1]
    agent.watch(observation)
    return {
        "observation": {**_as_json(observation, spaces), "state": state},
        "after": [] if after is None else after[0].tolist(),
        "kept": _remembered(agent),
        "temperature": agent.choosing.temperature,
        "probabilities": {name: rows.tolist() for name, rows in thoughts.probabilities.items()},
        "numbers": numbers,
        "value": thoughts.value,
        "attention": None if thoughts.attention is None else thoughts.attention.tolist(),
    }


def _remembered(agent: NumpyAgent) -> list[float]:
    past = agent._past()
    found: list[float] = [] if past is None else past.states[0].tolist()
    return found


def _as_json(observation: Observation, spaces: Spaces) -> dict[str, Any]:
    obs_space, action_space = spaces
    actions = {}
    for name, mask in observation.actions.items():
        actors = observation.actor_indices(name, obs_space).tolist()
        request: dict[str, Any] = {"actors": actors}
        if isinstance(action_space[name], SelectEntityActionSpace):
            request["actees"] = observation.actee_indices(name, obs_space).tolist()
        given = getattr(mask, "mask", None)
        if given is not None and actors:
            num_earlier = np.shape(given)[1:2] if is_nested(given) else ()
            shape = (len(actors), *num_earlier, -1)
            request["mask"] = np.reshape(given, shape).astype(np.bool_).tolist()
        actions[name] = request
    return {
        "features": {
            name: np.asarray(rows, np.float32).tolist()
            for name, rows in observation.features.items()
        },
        "globals": np.asarray(observation.global_features, np.float32).tolist(),
        "visible": {
            name: np.asarray(flags, np.bool_).tolist()
            for name, flags in observation.visible.items()
        },
        "actions": actions,
    }


class NetworkInNode:
    """A process of Node that runs `network.mjs`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def compare(
        self, agent: bytes | Weights, vectors: Iterable[Vector] = (), seconds: float = 0.0
    ) -> Mapping[str, Any]:
        """The largest differences from `vectors` by what differs, see `network_vectors.mjs`.

        Args:
            agent: the network, or content of an `.agent` file.
            seconds: how long to measure the time per decision; 0 = not at all.

        Returns `{"error": message}` if the network raised an error.
        """
        content = agent_bytes(agent) if isinstance(agent, Weights) else agent
        line = {"agent": base64.b64encode(content).decode(), "vectors": list(vectors)}
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("Node was started without pipes")
        stdin.write(json.dumps({**line, "seconds": seconds}) + "\n")
        stdin.flush()
        found: Mapping[str, Any] = json.loads(stdout.readline())
        return found


@contextmanager
def network_in_node(command: Sequence[str] = ()) -> Iterator[NetworkInNode]:
    """Starts Node; ends it on exit."""
    started = [*(command or [str(NODE)]), str(_SCRIPT), str(NETWORK)]
    with subprocess.Popen(
        started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield NetworkInNode(process)
