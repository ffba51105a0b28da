"""Tasks that need memory, for both trainers of `benchmarks/memory.py`.

`repeat_previous` and `concentration` have the rules of popgym's easy versions: name the suit of the
card that was shown three before the present one, and find pairs of cards that lie face down.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env import Categorical, Game, Obs, SelectEntity
from entity_env.agents import Agent
from entity_env.interop.gymnasium import from_gymnasium

NUM_ENVS: Final = 8


@dataclass(frozen=True)
class MemoryTask:
    """A task: peers play `make_env`, ours the game of this name in this file, or GAME as named."""

    total_steps: int
    make_env: Callable[[], gymnasium.Env[Any, Any]]
    game: str
    settings: Mapping[str, object] = field(default_factory=dict)


class Rules(Protocol):
    """A game of one player with a fixed number of choices; `seen` has a fixed length."""

    num_choices: int

    def start(self, rng: random.Random) -> None: ...
    def seen(self) -> list[float]: ...
    def step(self, choice: int) -> tuple[float, bool]:
        """Reward, and whether this was the last step."""
        ...


class RepeatPrevious:
    """Cards are shown in turn; naming the suit of three before the present one earns 1 / 48."""

    num_choices = 4
    _AGO = 4
    _NUM_CARDS = 52

    def start(self, rng: random.Random) -> None:
        self.suits = [i % 4 for i in range(self._NUM_CARDS)]
        rng.shuffle(self.suits)
        self.shown = 1

    def seen(self) -> list[float]:
        return [float(self.suits[self.shown - 1] == suit) for suit in range(4)]

    def step(self, choice: int) -> tuple[float, bool]:
        reward = 0.0
        if self.shown >= self._AGO:
            is_right = choice == self.suits[self.shown - self._AGO]
            reward = (1 if is_right else -1) / (self._NUM_CARDS - self._AGO)
        is_last = self.shown == self._NUM_CARDS - 1
        self.shown += 1
        return reward, is_last


class Concentration:
    """Turns two of 52 cards at a time, which stay face up if their colors match.

    A pair earns 1 / 26; anything else loses 1 / 104 per card.
    """

    num_choices = 52
    _MAX_STEPS = math.ceil(2 * 52 - 52 / (2 * 52 - 1))

    def start(self, rng: random.Random) -> None:
        self.colors = [i % 2 for i in range(self.num_choices)]
        rng.shuffle(self.colors)
        self.is_up = [False] * self.num_choices
        self.turned: list[int] = []
        self.visible: set[int] = set()
        self.num_steps = 0

    def seen(self) -> list[float]:
        """Per card: is it face down, and is it red?"""
        return [
            float(each)
            for i, color in enumerate(self.colors)
            for each in (not self.shows(i), self.shows(i) and color == 1)
        ]

    def shows(self, card: int) -> bool:
        return self.is_up[card] or card in self.visible

    def step(self, choice: int) -> tuple[float, bool]:
        reward = 0.0
        self.turned.append(choice)
        self.visible = set(self.turned)
        if any(self.is_up[card] for card in self.turned):
            reward = -len(self.turned) / self._MAX_STEPS
            self.turned = []
        elif len(self.turned) == 2:
            one, other = self.turned
            self.turned = []
            if one != other and self.colors[one] == self.colors[other]:
                reward = 1 / 26
                self.is_up[one] = self.is_up[other] = True
            else:
                reward = -2 / self._MAX_STEPS
        self.num_steps += 1
        return reward, self.num_steps == self._MAX_STEPS or all(self.is_up)


class HiddenKey:
    """The rules of `examples/hidden_key.py`."""

    num_choices = 4

    def __init__(self, rooms: int) -> None:
        self.rooms = rooms

    def start(self, rng: random.Random) -> None:
        self.key = rng.randrange(4)
        self.left = self.rooms

    def seen(self) -> list[float]:
        shown = [float(self.left == self.rooms and self.key == color) for color in range(4)]
        return [self.left / self.rooms, *shown]

    def step(self, choice: int) -> tuple[float, bool]:
        is_last = self.left == 0
        self.left -= 1
        return float(is_last and choice == self.key), is_last


class RulesEnv(gymnasium.Env[NDArray[np.float32], int]):
    """Rules as an environment with a vector of numbers."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        rules.start(random.Random(0))
        self.observation_space = spaces.Box(0, 1, (len(rules.seen()),))
        self.action_space = spaces.Discrete(rules.num_choices)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._rules.start(random.Random(int(self.np_random.integers(2**62))))
        return np.array(self._rules.seen(), np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        reward, is_last = self._rules.step(int(action))
        return np.array(self._rules.seen(), np.float32), reward, is_last, False, {}


# ------------------------------------------------------------------------------------ our games


class Suit(Enum):
    """Suits of cards."""

    CLUBS = 0
    DIAMONDS = 1
    HEARTS = 2
    SPADES = 3


@dataclass
class Shown:
    """The last card that was shown."""

    suit: Suit


SUIT: Final = Categorical(Suit)


def play_repeat_previous(agent: Agent, *, seed: int) -> None:
    """See `RepeatPrevious`."""
    rules, score, is_over = RepeatPrevious(), 0.0, False
    rules.start(random.Random(seed))
    while not is_over:
        obs = Obs(score).actors([Shown(Suit(rules.suits[rules.shown - 1]))])
        answer = agent.act(obs, SUIT)
        if answer is None:
            return
        reward, is_over = rules.step(answer[0].value)
        score += reward
    agent.game_over(Obs(score))


@dataclass
class Player:
    """Turns cards."""

    num_turned: int


@dataclass
class Card:
    """A card on the table."""

    place: int
    is_down: bool
    is_red: bool


TURN: Final = SelectEntity(Card)


def play_concentration(agent: Agent, *, seed: int) -> None:
    """See `Concentration`."""
    rules, score, is_over = Concentration(), 0.0, False
    rules.start(random.Random(seed))
    while not is_over:
        cards = [
            Card(i, not rules.shows(i), rules.shows(i) and color == 1)
            for i, color in enumerate(rules.colors)
        ]
        answer = agent.act(Obs(score).actors([Player(len(rules.turned))]).entities(cards), TURN)
        if answer is None:
            return
        card = answer[0]
        reward, is_over = rules.step(0 if card is None else card.place)
        score += reward
    agent.game_over(Obs(score))


repeat_previous: Final = Game(
    play_repeat_previous, entities=(Shown,), actions=(SUIT,), name="repeat_previous"
)
concentration: Final = Game(
    play_concentration, entities=(Player, Card), actions=(TURN,), name="concentration"
)


# ------------------------------------------------------------------------------------ tasks


def cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole, whose velocities are hidden."""
    env = gymnasium.make("CartPole-v1")
    space = env.observation_space
    if not isinstance(space, spaces.Box):
        raise TypeError(f"expected a Box, got {space}")
    kept = spaces.Box(space.low[::2], space.high[::2])
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs[::2], kept)


def memory_s7() -> gymnasium.Env[Any, Any]:
    """MiniGrid's MemoryS7: which of two objects is the one that was seen at the start?"""
    from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper

    env = ImgObsWrapper(OneHotPartialObsWrapper(gymnasium.make("MiniGrid-MemoryS7-v0")))
    return gymnasium.wrappers.FlattenObservation(env)


cartpole_positions: Final = from_gymnasium(cartpole, name="cartpole_positions")
memory_room: Final = from_gymnasium(memory_s7, name="memory_room")

_KEY: Final = "examples/hidden_key.py"
_HERE: Final = "benchmarks/peers/memory_tasks.py"
TASKS: Final = {
    "keydoor_10": MemoryTask(100_000, lambda: RulesEnv(HiddenKey(10)), _KEY),
    "keydoor_40": MemoryTask(200_000, lambda: RulesEnv(HiddenKey(40)), _KEY, {"rooms": 40}),
    "cartpole_positions": MemoryTask(100_000, cartpole, f"{_HERE}:cartpole_positions"),
    "memory_s7": MemoryTask(300_000, memory_s7, f"{_HERE}:memory_room"),
    "repeat_previous": MemoryTask(
        100_000, lambda: RulesEnv(RepeatPrevious()), f"{_HERE}:repeat_previous"
    ),
    "concentration": MemoryTask(
        100_000, lambda: RulesEnv(Concentration()), f"{_HERE}:concentration"
    ),
}
