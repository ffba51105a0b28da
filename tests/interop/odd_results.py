"""Environments of Gymnasium and PettingZoo that return what a test gives, or fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

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


class Hook:
    """Calls `fault` in a method, and replaces values by those of a test.

    Args:
        method: name of the method or attribute; "" = none.
        fault: raises an error.
        given: values, by the name of the method or result.
    """

    num_steps = 0
    has_begun = False

    def __init__(
        self,
        method: str = "",
        fault: Callable[[], object] = object,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.method, self.fault, self.given = method, fault, given or {}

    def hit(self, method: str, value: Any = None) -> Any:  # noqa: ANN401
        if method == self.method:
            self.fault()
        return self.given.get(method, value)

    @property
    def is_last(self) -> bool:
        return self.num_steps >= 2

    def begin(self) -> None:
        self.hit("reset")
        self.num_steps, self.has_begun = 0, True

    def close(self) -> None:
        if self.has_begun:  # not the one that shows its spaces
            self.hit("close")

    def render(self) -> Any:  # noqa: ANN401
        return self.hit("render", "frame")


class _FailsForAgents(Hook):
    metadata: ClassVar[dict[str, Any]] = {"name": "fails", "is_parallelizable": True}
    render_mode = "ansi"

    @property
    def possible_agents(self) -> Any:  # noqa: ANN401
        return self.hit("possible_agents", ["a", "b"])

    @property
    def agents(self) -> Any:  # noqa: ANN401
        return self.hit("agents", [] if self.is_last else ["a", "b"])

    def observation_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.hit("observation_space", Returns.observation_space)

    def action_space(self, agent: str) -> Any:  # noqa: ANN401
        return self.hit("action_space", Returns.action_space)

    def by_agent(self, name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
        return dict.fromkeys("ab", self.hit(name, value))


class FailsAtOnce(_FailsForAgents, ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """A `Hook` for agents that act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.begin()
        return self.by_agent("observe", ZEROS), self.by_agent("info", {})

    def step(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self.hit("step")
        self.num_steps += 1
        rewards, ends = self.by_agent("reward", 1.0), self.by_agent("terminated", self.is_last)
        cuts, infos = self.by_agent("truncated", False), self.by_agent("info", {})
        return self.by_agent("observe", ZEROS), rewards, ends, cuts, infos


class FailsInTurn(_FailsForAgents, AECEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """A `Hook` for agents that act in turn."""

    @property
    def agent_selection(self) -> Any:  # noqa: ANN401
        return self.hit("agent_selection", "ab"[self.num_steps % 2])

    @property
    def rewards(self) -> Any:  # noqa: ANN401
        return self.by_agent("reward", 1.0)

    _cumulative_rewards = rewards

    @property
    def terminations(self) -> Any:  # noqa: ANN401
        return self.by_agent("terminated", self.is_last)

    @property
    def truncations(self) -> Any:  # noqa: ANN401
        return self.by_agent("truncated", False)

    @property
    def infos(self) -> Any:  # noqa: ANN401
        return self.by_agent("info", {})

    def reset(self, seed: int | None = None, options: Any = None) -> None:  # noqa: ANN401
        self.begin()

    def observe(self, agent: str) -> Any:  # noqa: ANN401
        return self.hit("observe", ZEROS)

    def step(self, action: Any) -> None:  # noqa: ANN401
        self.hit("step")
        self.num_steps += 1


class FailsAlone(Hook, gymnasium.Env[Any, Any]):
    """A `Hook` for one agent."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - as in Gymnasium
    render_mode = "ansi"
    observation_space = Returns.observation_space
    action_space = Returns.action_space

    def action_masks(self) -> Any:  # noqa: ANN401
        return self.hit("action_masks", [1, 1])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.begin()
        return ZEROS, {}

    def step(self, action: Any) -> Any:  # noqa: ANN401
        self.hit("step")
        self.num_steps += 1
        return ZEROS, 1.0, self.is_last, False, {}
