"""Odd environments of Gymnasium, and a plain loop that plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

Allowed: TypeAlias = tuple[tuple[int, ...], ...]
"""The legal choices of every action, as indices."""
Row: TypeAlias = tuple[float, ...]


class Moment(NamedTuple):
    """A decision, or the end of an episode if `flags` is set."""

    row: Row
    reward: float
    """Reward since the previous observation."""
    allowed: Allowed | None
    """None at an end that is terminated."""
    flags: tuple[bool, bool] | None = None
    metrics: Mapping[str, float] = {}


Trace: TypeAlias = list[Moment]


class OddEnv(gymnasium.Env[Any, Any]):
    """Episodes of 1 to 4 steps, whose length depends on their number, which they show.

    The number is the seed, or follows the last one. Subclasses make one thing odd.
    """

    observation_space: spaces.Space[Any] = spaces.Box(0, 2**20, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(4)
    counts: ClassVar[Sequence[int]] = (4,)
    """Number of choices of every action."""

    def __init__(self) -> None:
        self.number = -1
        self.time = 0
        self.last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        self.number = self.number + 1 if seed is None else seed % 1000
        self.time = 0
        return self.shown(), self.info()

    def step(self, action: Any) -> Any:  # noqa: ANN401
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        chosen = self.indices(action)
        for index, legal in zip(chosen, self.allowed(), strict=True):
            assert index in legal, f"{index} is not in {legal}"
        self.time += 1
        reward = self.number % 7 + self.time / 4 + sum(chosen) / 8
        return self.shown(), self.reward(reward), *self.flags(), self.info()

    def row(self) -> Row:
        return (float(self.number), float(self.time))

    def shown(self) -> Any:  # noqa: ANN401
        return np.array(self.row(), np.float32)

    def reward(self, value: float) -> Any:  # noqa: ANN401
        return value

    @property
    def is_last(self) -> bool:
        return self.time == 1 + self.number % 4

    def flags(self) -> tuple[Any, Any]:
        return self.is_last and self.number % 3 > 0, self.is_last and self.number % 3 < 2

    def info(self) -> dict[str, Any]:
        return {}

    def allowed(self) -> Allowed:
        return tuple(tuple(range(count)) for count in self.counts)

    def indices(self, action: Any) -> Sequence[int]:  # noqa: ANN401
        return [int(action)]

    def action(self, indices: Sequence[int]) -> Any:  # noqa: ANN401
        return indices[0]


def choices(row: Row, allowed: Allowed) -> list[int]:
    """The choices of an agent, which depend on what it sees."""
    place = int(row[0] * 3 + row[1] * 5)
    return [legal[(place + i) % len(legal)] for i, legal in enumerate(allowed)]


def plain_loop(env: OddEnv, number: int) -> Trace:
    """Plays an episode as the documentation of Gymnasium does."""
    _, info = env.reset(seed=number)
    trace: Trace = []
    reward, metrics = 0.0, dict[str, float]()
    while True:
        trace.append(Moment(env.row(), reward, env.allowed(), None))
        _, earned, terminated, truncated, info = env.step(
            env.action(choices(env.row(), env.allowed()))
        )
        reward = float(np.reshape(earned, ()))
        metrics = {f"info/{k}": float(v) for k, v in info.items() if k in ("found", "ratio", "won")}
        if terminated or truncated:
            allowed = None if terminated else env.allowed()
            trace.append(
                Moment(
                    env.row(),
                    reward,
                    allowed,
                    (bool(terminated), bool(truncated) and not terminated),
                    metrics,
                )
            )
            return trace


# ------------------------------------------------------------------ odd things


class FalseMask(OddEnv):
    """Base class: choices 0 to `time` are illegal."""

    def allowed(self) -> Allowed:
        first = (self.number + self.time) % 3
        return tuple(tuple(range(min(first, n - 1), n)) for n in self.counts)

    def flat(self) -> list[Any]:
        pairs = zip(self.counts, self.allowed(), strict=True)
        return [np.isin(np.arange(n), legal).astype(np.int8) for n, legal in pairs]


class InInfo(FalseMask):
    def info(self) -> dict[str, Any]:
        return {"action_mask": self.flat()[0]}


class Sometimes(InInfo):
    """A mask only in the second step."""

    def allowed(self) -> Allowed:
        return ((0, 2),) if self.time == 1 else OddEnv.allowed(self)

    def info(self) -> dict[str, Any]:
        return super().info() if self.time == 1 else {}


class AtTheEnd(InInfo):
    """A mask only at the end of an episode, where it allows one choice."""

    def allowed(self) -> Allowed:
        return ((1,),) if self.is_last else OddEnv.allowed(self)

    def info(self) -> dict[str, Any]:
        return super().info() if self.is_last else {}


class BlankAtTheEnd(AtTheEnd):
    """The mask of an end is all zeros: everything is allowed."""

    def allowed(self) -> Allowed:
        return OddEnv.allowed(self)

    def flat(self) -> list[Any]:
        return [np.zeros(4, np.int8)]


class InObservation(FalseMask):
    observation_space = spaces.Dict(
        {"observation": OddEnv.observation_space, "action_mask": spaces.MultiBinary(4)}
    )

    def shown(self) -> Any:  # noqa: ANN401
        return {"observation": super().shown(), "action_mask": self.flat()[0]}


class ByMethod(FalseMask):
    def action_masks(self) -> Any:  # noqa: ANN401
        return self.flat()[0].astype(np.bool_)


def by_method_in_a_wrapper() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TransformReward(ByMethod(), lambda reward: reward)


class Discretes(FalseMask):
    action_space = spaces.MultiDiscrete([3, 2])
    counts = (3, 2)

    def info(self) -> dict[str, Any]:
        return {"action_mask": tuple(self.flat())}

    def indices(self, action: Any) -> Sequence[int]:  # noqa: ANN401
        return [int(each) for each in action]

    def action(self, indices: Sequence[int]) -> Any:  # noqa: ANN401
        return np.array(indices)


class FlatDiscretes(Discretes):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.concatenate(self.flat())}


class DiscretesInObservation(Discretes):
    observation_space = spaces.Dict(
        {"observation": OddEnv.observation_space, "action_mask": spaces.Box(0, 1, (5,), np.int8)}
    )

    def shown(self) -> Any:  # noqa: ANN401
        return {"observation": super().shown(), "action_mask": np.concatenate(self.flat())}

    def info(self) -> dict[str, Any]:
        return {}


class Nested(FalseMask):
    """Masks of a `Dict` with a `Tuple`, in part."""

    action_space = spaces.Dict(
        {
            "go": spaces.Discrete(3, start=-1),
            "use": spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]),
        }
    )
    counts = (3, 2, 2)

    def allowed(self) -> Allowed:
        return (*super().allowed()[:2], (0, 1))

    def info(self) -> dict[str, Any]:
        go, tool, _ = self.flat()
        return {"action_mask": {"go": go, "use": (tool, None)}}

    def indices(self, action: Any) -> Sequence[int]:  # noqa: ANN401
        return [int(action["go"]) + 1, int(action["use"][0]), int(action["use"][1][0])]

    def action(self, indices: Sequence[int]) -> Any:  # noqa: ANN401
        go, tool, bit = indices
        return {"go": go - 1, "use": (tool, np.array([bit], np.int8))}


class InPlace(OddEnv):
    """One array, which every step changes."""

    def shown(self) -> Any:  # noqa: ANN401
        if self.last is None:
            self.last = np.zeros(2, np.float32)
        self.last[:] = self.row()
        return self.last


class OneNumber(OddEnv):
    """A reward of shape (1,), numpy flags, and a float64 observation of shape (1, 2)."""

    def shown(self) -> Any:  # noqa: ANN401
        return np.array([self.row()])

    def reward(self, value: float) -> Any:  # noqa: ANN401
        return np.array([value])

    def flags(self) -> tuple[Any, Any]:
        return np.bool_(super().flags()[0]), np.array([super().flags()[1]])


class WholeRewards(OddEnv):
    def reward(self, value: float) -> Any:  # noqa: ANN401
        return np.int64(value * 8)


class Infos(OddEnv):
    """Numbers of several types in infos, some only at times."""

    def info(self) -> dict[Any, Any]:
        ratio = 1 if self.number % 2 else np.array(0.25 * self.time)
        found = {"found": self.time} if self.time % 2 else {}
        return {
            **found,
            "ratio": ratio,
            "won": np.bool_(True),
            "text": "x",
            "parts": {"n": 1},
            3: [1],
        }


class Labels(OddEnv):
    """Integers with a negative start, as observation and action."""

    observation_space = spaces.Tuple([spaces.MultiDiscrete([1000, 9], start=[0, -4])])
    action_space = spaces.Discrete(4, start=-2)

    def shown(self) -> Any:  # noqa: ANN401
        return (np.array([self.number, self.time - 4]),)

    def indices(self, action: Any) -> Sequence[int]:  # noqa: ANN401
        return [int(action) + 2]

    def action(self, indices: Sequence[int]) -> Any:  # noqa: ANN401
        return indices[0] - 2


ODD: Final[Mapping[str, Callable[[], Any]]] = {
    "a mask in the info": InInfo,
    "a mask in some steps": Sometimes,
    "a mask at the end": AtTheEnd,
    "a blank mask at the end": BlankAtTheEnd,
    "a mask in the observation": InObservation,
    "a mask by a method": ByMethod,
    "a mask by a method in a wrapper": by_method_in_a_wrapper,
    "masks of a MultiDiscrete": Discretes,
    "a flat mask of a MultiDiscrete": FlatDiscretes,
    "a flat mask in the observation": DiscretesInObservation,
    "masks of nested actions": Nested,
    "an array changed in place": InPlace,
    "arrays of one number": OneNumber,
    "whole rewards": WholeRewards,
    "numbers of several types in infos": Infos,
    "integers with a negative start": Labels,
}


class Alone(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """An environment of Gymnasium with one agent, for PettingZoo."""

    metadata: ClassVar[dict[str, Any]] = {"name": "alone"}

    def __init__(self, make: Callable[[], Any]) -> None:
        self.env: gymnasium.Env[Any, Any] = make()
        self.possible_agents = ["me"]
        self.agents: list[str] = []
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.env.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.agents = ["me"]
        obs, info = self.env.reset(seed=seed)
        return {"me": obs}, {"me": info}

    def step(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        result = self.env.step(actions["me"])
        if np.any(result[2]) or np.any(result[3]):
            self.agents = []
        return tuple({"me": each} for each in result)


# ------------------------------------------------------------------ several agents

SEATS: Final = ("a", "b", "c", "d")
End: TypeAlias = tuple[float, int, bool, bool]
"""Return, length, terminated and truncated of an agent's episode."""


class OddSeats(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """Every episode, by its number modulo 6: at most 4 steps for up to 4 agents.

    Agent b dies early, c comes late, and d never comes; c and d earn before they come, and d at the
    end. Some episodes have no step, some are truncated, or both. Results lack agents, have others,
    and have keys that are no agents.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "odd_seats", "is_parallelizable": True}

    def __init__(self) -> None:
        self.possible_agents = list(SEATS)
        self.agents: list[str] = []
        self.render_mode = None
        self.number = -1

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return OddEnv.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return OddEnv.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.number = self.number + 1 if seed is None else seed % 1000
        self.time = 0
        self.agents = [] if self.number % 6 == 0 else ["a", "b"]
        return self._seen(self.agents), {"common": {}}

    def step(self, actions: Mapping[str, int]) -> Any:  # noqa: ANN401
        assert list(actions) == self.agents
        self.time += 1
        old, kind = self.agents, self.number % 6
        rewards = {name: (1 + SEATS.index(name)) * self.time + actions[name] / 8 for name in old}
        if self.time == 1:
            rewards |= {"c": 0.5, "d": -2.0}
        is_over = self.time == min(kind, 4)
        ends = {name: is_over or (name == "b" and self.time == 2) for name in old}
        self.agents = [] if is_over else [name for name in old if not ends[name]]
        self.agents += ["c"] * (self.time == 2 and not is_over)
        terminated = {name: np.bool_(end and kind % 2 == 1) for name, end in ends.items()}
        truncated = {name: np.bool_(end and kind != 3) for name, end in ends.items()}
        return (
            self._seen({*old, *self.agents}),
            rewards,
            terminated,
            truncated,
            {"a": {"found": self.time}},
        )

    def _seen(self, names: Any) -> dict[str, Any]:  # noqa: ANN401
        return {name: np.array([self.number, self.time], np.float32) for name in names}


def plain_seats(number: int) -> dict[str, End]:
    """The ends of all agents in an episode, from a loop as in the documentation of PettingZoo."""
    env = OddSeats()
    obs, _ = env.reset(seed=number)
    earned, lengths = dict.fromkeys(SEATS, 0.0), dict.fromkeys(SEATS, 0)
    ends: dict[str, End] = {}
    while env.agents:
        allowed = ((0, 1, 2, 3),)
        actions = {name: choices(tuple(obs[name].tolist()), allowed)[0] for name in env.agents}
        obs, rewards, terminated, truncated, _ = env.step(actions)
        for name in actions:
            lengths[name] += 1
        for name, reward in rewards.items():
            earned[name] += reward
        for name in actions:
            if terminated[name] or truncated[name]:
                is_over = bool(terminated[name])
                ends[name] = earned[name], lengths[name], is_over, not is_over
    # Agents without a flag end with the episode.
    return {name: (earned[name], lengths[name], True, False) for name in SEATS} | ends


class Fold(AECEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """Two players in turn; a player that chooses 0 loses 1 to the other. Rewards at the reset."""

    metadata: ClassVar[dict[str, Any]] = {"name": "fold"}

    def __init__(self, first: float = 0.0) -> None:
        super().__init__()
        self.possible_agents = ["a", "b"]
        self.first = first
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return OddEnv.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:  # noqa: ANN401
        self.agents = list(self.possible_agents)
        self.time = 0
        self.agent_selection = "a"
        self.rewards = {"a": self.first, "b": -self.first}
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> Any:  # noqa: ANN401
        return np.array([0, self.time], np.float32)

    def step(self, action: int | None) -> None:
        mine = self.agent_selection
        if self.terminations[mine]:
            self._was_dead_step(action)
            return
        self.time += 1
        self._cumulative_rewards[mine] = 0.0
        [other] = {*self.possible_agents} - {mine}
        self._clear_rewards()
        if action == 0 or self.time == 6:
            self.rewards = {mine: -1.0, other: 1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other
        self._accumulate_rewards()
