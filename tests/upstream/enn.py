"""Runs the real enn-trainer, and the real rogue-net."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from enn_trainer import (
    State,
    TrainConfig,
    init_train_state,
    load_agent,
    train,
)
from entity_gym.env import VecEnv as TheirVecEnv
from entity_gym.env.vec_env import batch_obs
from entity_gym.simple_trace import Tracer
from hyperstate import StateManager
from numpy.typing import NDArray

from entity_env.core.spaces import ActionName

SMALL = ("rollout.processes=1", "optim.lr=0.003", "cuda=false")


def run(env: object, folder: Path, settings: Sequence[str]) -> Path:
    """Trains an agent with enn-trainer and returns its checkpoint.

    Args:
        env: a class of entity-gym's environments, or a factory of vector environments.
        folder: an empty folder for all output.
        settings: changes to enn-trainer's defaults and to `SMALL`.
    """
    overrides = [*SMALL, f"data_dir={folder}", *settings]
    manager = StateManager(
        TrainConfig, State, init_train_state, checkpoint_dir=folder, overrides=overrides
    )
    train(manager, env)
    (checkpoint,) = folder.glob("latest-step*")
    return checkpoint


class Watched(TheirVecEnv):  # type: ignore[misc]  # entity-gym ships no types
    """Records the reward of every finished episode.

    Args:
        envs: the environments.
        rewards: list for the rewards, in the order in which episodes end.
    """

    def __init__(self, envs: Any, rewards: list[float]) -> None:  # noqa: ANN401
        self.envs = envs
        self.rewards = rewards
        self.totals = np.zeros(len(envs))

    def obs_space(self) -> Any:  # noqa: ANN401
        return self.envs.obs_space()

    def action_space(self) -> Any:  # noqa: ANN401
        return self.envs.action_space()

    def reset(self, obs_config: object) -> Any:  # noqa: ANN401
        return self.envs.reset(obs_config)

    def act(self, actions: Mapping[str, Any], obs_filter: object) -> Any:  # noqa: ANN401
        obs = self.envs.act(actions, obs_filter)
        self.totals += obs.reward
        self.rewards += self.totals[obs.done].tolist()
        self.totals[obs.done] = 0
        return obs

    def render(self, **kwargs: object) -> Any:  # noqa: ANN401
        return self.envs.render(**kwargs)

    def __len__(self) -> int:
        return len(self.envs)

    def close(self) -> None:
        self.envs.close()


def watched(make: Callable[..., Any], rewards: list[float]) -> Callable[..., Any]:
    """A factory whose environments record their rewards."""
    return lambda *arguments: Watched(make(*arguments), rewards)


def real_agent(checkpoint: Path) -> Any:  # noqa: ANN401 - enn-trainer ships no types
    """The agent that enn-trainer makes from a checkpoint, with frozen statistics."""
    agent = load_agent(str(checkpoint))
    agent.agent.eval()
    return agent


def real_net(checkpoint: Path) -> Any:  # noqa: ANN401 - rogue-net ships no types
    """The real rogue-net of a checkpoint."""
    return real_agent(checkpoint).agent


def real_outputs(
    net: Any,  # noqa: ANN401 - rogue-net ships no types
    observations: Sequence[Any],
) -> tuple[dict[ActionName, NDArray[np.float32]], NDArray[np.float32]]:
    """Log-probabilities per action, `(num_actors, num_choices)`, and `(num_rows,)` values.

    Selections of several observations are padded: pass one observation at a time.
    """
    batch = batch_obs(list(observations), net.obs_space, net.action_space)
    with torch.no_grad():
        *_, auxiliary, logprobs = net.get_action_and_auxiliary(
            batch.features, batch.visible, batch.action_masks, tracer=Tracer(False)
        )
    return (
        {name: _rows(each) for name, each in logprobs.items()},
        auxiliary["value"].flatten().numpy(),
    )


def _rows(logprobs: torch.Tensor) -> NDArray[np.float32]:
    """One row per actor; no rows for a selection without actors, whatever its shape."""
    width = logprobs.shape[-1] if logprobs.numel() else 0
    rows: NDArray[np.float32] = logprobs.reshape(logprobs.numel() // max(width, 1), width).numpy()
    return rows
