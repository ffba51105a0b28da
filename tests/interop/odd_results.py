"""An environment of Gymnasium or PettingZoo that returns what a test gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

ZEROS: Final = np.zeros(2, np.float32)


class Returns(gymnasium.Env[Any, Any]):
    """One step per episode; returns what the test gives."""

    observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        self.given = given

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        return self.given.get("reset", (ZEROS, self.given.get("info", {})))

    def step(self, action: Any) -> Any:  # noqa: ANN401
        given = {"reward": 1.0, "terminated": True, "truncated": False, "info": {}} | self.given
        return self.given.get("step", (ZEROS, *(given[name] for name in list(given)[:4])))


class AloneReturns(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """`Returns` as the only agent of a parallel environment."""

    metadata: ClassVar[dict[str, Any]] = {"name": "returns"}

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        self.env = Returns(**given)
        self.possible_agents = ["me"]
        self.agents: list[str] = []
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.agents = ["me"]
        result = self.env.reset()
        return tuple({"me": each} for each in result) if isinstance(result, tuple) else result

    def step(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self.agents = []
        return tuple({"me": each} for each in self.env.step(actions["me"]))
