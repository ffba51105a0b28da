"""Short runs without memory as JSON: digests of the weights and of decisions, by task.

`python weights_digest.py EXAMPLES` runs with the entity_env in PYTHONPATH, which may be a release
that had no memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    Entity,
    Environment,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
)
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import CNNConfig, MLPConfig, RogueNetConfig
from entity_env.games import snake
from entity_env.games.classic import CartPole, Pendulum
from entity_env.vec import BatchVecEnv, VecEnv

_SIZE = 6
_SMALL = RogueNetConfig(d_model=16, n_layer=1)


class Screen(Environment):
    """Shows a picture with one bright pixel; the score is 1 for the half of the screen it is in."""

    def obs_space(self) -> ObsSpace:
        pixels = [str(i) for i in range(_SIZE * _SIZE)]
        return ObsSpace(
            ("time",), {"Screen": Entity(pixels, is_single=True, shape=(_SIZE, _SIZE, 1))}
        )

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"half": GlobalCategoricalActionSpace(["left", "right"])}

    def reset(self, *, seed: int | None = None) -> Observation:
        self._rng = np.random.default_rng(seed)
        self._step = 0
        return self._shown(0.0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        action = actions["half"]
        is_right = self._place % _SIZE >= _SIZE // 2
        self._step += 1
        chosen = isinstance(action, GlobalCategoricalAction) and action.index
        return self._shown(float(chosen == is_right))

    def _shown(self, reward: float) -> Observation:
        self._place = int(self._rng.integers(_SIZE * _SIZE))
        pixels = np.zeros((1, _SIZE * _SIZE), np.float32)
        pixels[0, self._place] = 1
        is_over = self._step == 8
        return Observation(
            reward=reward,
            terminated=is_over,
            global_features=[self._step],
            features={"Screen": pixels},
            actions={} if is_over else {"half": GlobalCategoricalActionMask()},
        )


def tasks(examples: Path) -> dict[str, tuple[VecEnv, PPOConfig]]:
    """Environments and settings by name."""
    hidden_key = runpy.run_path(str(examples / "hidden_key.py"))["hidden_key"]
    mlp = MLPConfig((32, 32))
    kernels: dict[str, Any] = {"compile": "wait", "num_steps": 16, "minibatch_size": 64}
    plain = {**kernels, "compile": "never"}
    apart = RogueNetConfig(d_model=16, n_layer=2, separate_value=True, pooling="meanmax")
    return {
        "snake": (VecEnv(snake, 16), PPOConfig(net=_SMALL, **kernels)),
        "snake_apart": (VecEnv(snake, 16), PPOConfig(net=apart, norm_returns=True, **plain)),
        "hidden_key": (VecEnv(hidden_key, 16), PPOConfig(net=_SMALL, **plain)),
        "cartpole": (BatchVecEnv(CartPole, 16), PPOConfig(net=mlp, **plain)),
        "pendulum": (BatchVecEnv(Pendulum, 16), PPOConfig(net=mlp, **plain)),
        "pendulum_entities": (BatchVecEnv(Pendulum, 16), PPOConfig(net=_SMALL, **plain)),
        "pictures": (VecEnv(Screen, 16), PPOConfig(net=CNNConfig(((4, 3, 1),), (16,)), **plain)),
    }


def digest(vec: VecEnv, config: PPOConfig) -> str:
    """Of the weights after training and of the next decisions."""
    found = hashlib.sha256()
    with vec:
        net = train(vec, config.changed({"total_steps": 4096})).net
        for name, tensor in sorted(net.state_dict().items()):
            found.update(name.encode() + tensor.numpy().tobytes())
        obs, generator = vec.reset(seed=9), torch.Generator().manual_seed(9)
        for _ in range(10):
            output = net.act(obs, generator=generator)
            found.update(output.logprobs.tobytes() + output.values.tobytes())
            obs = vec.act(output.actions)
    return found.hexdigest()


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # hints
    named = {name: digest(*each) for name, each in tasks(Path(sys.argv[1])).items()}
    sys.stdout.write(json.dumps(named))
