"""Games with decisions in several parts: two fixed ones, and random ones with their plain rules."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from functools import cache
from random import Random
from typing import Annotated, Any, TypeAlias

import numpy as np

from entity_env import Composite, Game, GlobalComposite, Obs, Range
from entity_env.agents import Agent

Flags: TypeAlias = list[Any]
"""Nested lists of bools."""


@dataclass
class Base:
    x: float


@dataclass(eq=False)
class Planet:
    size: float


class Share(Enum):
    LOW = 0
    MID = 1
    HIGH = 2


@dataclass(frozen=True)
class Send:
    target: Planet
    share: Share
    is_fast: bool


SEND = Composite(Send)


def play_send(agent: Agent, *, seed: int) -> None:
    """A share scores if it is the size of its target; one other share is illegal."""
    rng, score = Random(seed), 0.0
    for _ in range(5):
        planets = [Planet(float(rng.randrange(3))) for _ in range(rng.randrange(1, 4))]
        bases = [Base(rng.random()) for _ in range(2)]
        obs = Obs(score).actors(bases, SEND).entities(planets)
        legal = [[share.value != (each.size + 1) % 3 for share in Share] for each in planets]
        answers = agent.act(obs.mask(SEND.share, [legal] * 2, given=SEND.target), SEND)
        if answers is None:
            return
        for send in answers:
            assert isinstance(send, Send)
            assert send.target in planets
            assert isinstance(send.is_fast, bool)
            assert send.share.value != (send.target.size + 1) % 3
            score += float(send.share.value == send.target.size) / 10
    agent.game_over(Obs(score))


send = Game(play_send, entities=(Base, Planet), actions=(SEND,), name="send")


@dataclass
class View:
    number: float


@dataclass(frozen=True)
class Pair:
    first: Share
    second: Share
    third: bool


PAIR = GlobalComposite(Pair)


def play_pair(agent: Agent, *, seed: int) -> None:
    """Two parts that must differ; which difference scores depends on the observation."""
    rng, score = Random(seed), 0.0
    for _ in range(10):
        number = rng.randrange(3)
        obs = Obs(score).globals(View(number))
        obs.mask(PAIR.second, [[a != b for a in Share] for b in Share], given=PAIR.first)
        pair = agent.act(obs, PAIR)
        if pair is None:
            return
        assert isinstance(pair, Pair)
        assert pair.first != pair.second
        score += (pair.second.value == (pair.first.value + 1 + number % 2) % 3) / 10
    agent.game_over(Obs(score))


pair = Game(play_pair, entities=(), actions=(PAIR,), global_features=View, name="pair")


def play_fixed(agent: Agent, *, seed: int) -> None:
    """Some choices of the second part are forbidden, whatever the first part is."""
    for i in range(4):
        obs = Obs(i).globals(View(i))
        if agent.act(obs.mask(PAIR.second, [True, i % 2 == 0, True]), PAIR) is None:
            return
    agent.game_over(Obs(4))


fixed = Game(play_fixed, entities=(), global_features=View, actions=(PAIR,), name="fixed")


def play_duel(agents: Any, *, seed: int) -> None:  # noqa: ANN401 - two agents
    """Two players choose a `Pair`; the larger second part wins a point."""
    rng, scores = Random(seed), [0, 0]
    for _ in range(4):
        pending = []
        for agent, score in zip(agents, scores, strict=True):
            obs = Obs(score).globals(View(rng.randrange(3)))
            obs.mask(PAIR.second, [[a != b for a in Share] for b in Share], given=PAIR.first)
            pending.append(agent.act_async(obs, PAIR))
        answers = [each.get() for each in pending]
        if None in answers:
            return
        values = [each.second.value for each in answers]
        scores = [scores[0] + (values[0] > values[1]), scores[1] + (values[1] > values[0])]
    for agent, score, other in zip(agents, scores, scores[::-1], strict=True):
        agent.game_over(Obs(score - other))


duel = Game(
    play_duel, entities=(), actions=(PAIR,), global_features=View, num_agents=2, name="duel"
)


@dataclass(frozen=True)
class Order:
    share: Share
    target: Planet
    amount: Annotated[float, Range(0.0, 2.0)]


ORDER = GlobalComposite(Order)


def play_order(agent: Agent, *, seed: int) -> None:
    """One order per turn, although bases could act; its amount should be the size of the target."""
    rng, score = Random(seed), 0.0
    for _ in range(5):
        planets = [Planet(float(rng.randrange(3))) for _ in range(rng.randrange(1, 4))]
        obs = Obs(score).actors([Base(rng.random())]).entities(planets)
        smaller = [[each.size <= share.value for each in planets] for share in Share]
        obs.mask(ORDER.share, [any(row) for row in smaller])
        order = agent.act(obs.mask(ORDER.target, smaller, given=ORDER.share), ORDER)
        if order is None:
            return
        assert isinstance(order, Order)
        assert order.target in planets
        assert order.target.size <= order.share.value
        score -= abs(order.amount - order.target.size) / 10
    agent.game_over(Obs(score))


order = Game(play_order, entities=(Base, Planet), actions=(ORDER,), name="order")

# ------------------------------------------------------------------ random games


@dataclass
class Moon:
    x: float


@dataclass
class Where:
    scene: float
    step: float


KINDS: dict[str, Any] = {
    "share": Share,
    "bool": bool,
    "planet": Planet,
    "moon": Moon,
    "number": Annotated[float, Range(-1.0, 2.0)],
}
NUM_SCENES = 2**16
NUM_STEPS = 4


@dataclass(frozen=True)
class Rules:
    """Rules of a random game: kinds of the parts, and whether each observation asks once."""

    kinds: tuple[str, ...]
    is_global: bool = False

    @property
    def has_global_parts(self) -> bool:
        return self.is_global and {"share", "bool"} >= {*self.kinds}


@dataclass
class Scene:
    """What an agent sees in a step, and which combinations are legal."""

    num_bases: int
    num_actees: dict[str, int]
    masks: dict[int, Flags] = field(default_factory=dict)
    """By part: `(num_bases, num_choices)`, or with a row for every choice of the part before."""
    nested: set[int] = field(default_factory=set)
    """Parts whose masks depend on the part before."""

    def num_choices(self, kind: str) -> int:
        return {"share": 3, "bool": 2, "number": 0}.get(kind) or self.num_actees.get(kind, 0)

    def legal(self, kinds: tuple[str, ...], part: int, actor: int, before: int) -> list[bool]:
        """The legal choices of a part, after a choice of the part before."""
        if part not in self.masks:
            return [True] * self.num_choices(kinds[part])
        row = self.masks[part][actor]
        found: list[bool] = row[before] if part in self.nested else row
        return found

    def is_asked(self, kinds: tuple[str, ...], actor: int) -> bool:
        """Whether the actor has a target in every part that selects an entity."""
        for part, kind in enumerate(kinds):
            if kind in self.num_actees:
                row = self.masks.get(part, {actor: [True] * self.num_choices(kind)})[actor]
                if not any(map(any, row) if part in self.nested else row):
                    return False
        return True


@cache
def scene_of(rules: Rules, number: int, step: int) -> Scene:
    """The scene of a step; the same for the same arguments. A global decision has a target."""
    rng = Random(f"{rules}/{number}/{step}")
    scene = _random_scene(rules, rng)
    while rules.is_global and not scene.is_asked(rules.kinds, 0):
        scene = _random_scene(rules, rng)
    return scene


def _random_scene(rules: Rules, rng: Random) -> Scene:
    actees = {"planet": rng.choice((0, 1, 2, 3)), "moon": rng.choice((0, 1, 2, 2))}
    scene = Scene(1 if rules.is_global else rng.randrange(4), actees)
    for part, kind in enumerate(rules.kinds):
        if kind == "number" or rng.random() < 0.25:
            continue
        before = rules.kinds[part - 1] if part else "number"
        is_nested = before != "number" and rng.random() < 0.7
        num, width = scene.num_choices(before) if is_nested else 0, scene.num_choices(kind)
        rows: Flags = []
        for actor in range(scene.num_bases):
            if is_nested:
                row: Flags = [_flags(rng, width) for _ in range(num)]
                if num and kind in actees and rng.random() < 0.1:
                    row = [[False] * width] * num
                for choice in range(num):  # what is illegal needs no choice after it
                    was_legal = part == 1 or part - 1 not in scene.nested
                    if was_legal and not scene.legal(rules.kinds, part - 1, actor, 0)[choice]:
                        row[choice] = [False] * width
                rows.append(row)
            elif kind in actees and rng.random() < 0.1:
                rows.append([False] * width)
            else:
                rows.append(_flags(rng, width))
        scene.masks[part] = rows
        if is_nested:
            scene.nested.add(part)
    return scene


def _flags(rng: Random, width: int) -> list[bool]:
    flags = [rng.random() < 0.6 for _ in range(width)]
    if width and not any(flags):
        flags[rng.randrange(width)] = True
    return flags


class Play:
    """`play` of a random game: asserts that every answer is legal, and scores its digits."""

    def __init__(self, rules: Rules, decision: Composite[Any] | GlobalComposite[Any]) -> None:
        self.rules, self.decision = rules, decision

    def __call__(self, agent: Agent, *, seed: int) -> None:
        rules, score, number = self.rules, 0.0, seed % NUM_SCENES
        for step in range(NUM_STEPS):
            scene = scene_of(rules, number, step)
            rng = Random(f"{number}/{step}")
            obs, entities = self._obs(scene, rng, score, number, step)
            answers: Any = agent.act(obs, self.decision)
            if answers is None:
                return
            if rules.is_global:
                score += self._checked(scene, 0, answers, entities)
                continue
            assert len(answers) == scene.num_bases
            for actor, answer in enumerate(answers):
                assert (answer is not None) == scene.is_asked(rules.kinds, actor)
                if answer is not None:
                    score += self._checked(scene, actor, answer, entities) * (actor + 1)
        agent.game_over(Obs(score).globals(Where(number, NUM_STEPS)), truncated=bool(seed % 2))

    def _obs(
        self, scene: Scene, rng: Random, score: float, number: int, step: int
    ) -> tuple[Obs, dict[str, list[Any]]]:
        entities: dict[str, list[Any]] = {
            "planet": [Planet(i) for i in range(scene.num_actees["planet"])],
            "moon": [Moon(i) for i in range(scene.num_actees["moon"])],
        }
        obs = Obs(score).globals(Where(number, step))
        if not self.rules.has_global_parts:
            shown = [entities["planet"], entities["moon"]]
            rng.shuffle(shown)
            obs.entities(shown[0])
            if self.rules.is_global:  # bystanders
                obs.actors([Base(i) for i in range(rng.randrange(3))])
            else:
                obs.actors([Base(i) for i in range(scene.num_bases)], self.decision)
            obs.entities(shown[1])
        parts = self.decision.elements
        for part, flags in scene.masks.items():
            mask: Any = flags[0] if self.rules.is_global else flags
            if rng.random() < 0.5:
                mask = np.array(mask, dtype=np.bool_)
            given = parts[part - 1] if part in scene.nested else None
            obs.mask(parts[part], mask, given=given)
        return obs, entities

    def _checked(
        self, scene: Scene, actor: int, answer: object, entities: dict[str, list[Any]]
    ) -> float:
        """The score of a legal answer, different for different answers."""
        before, digits = 0, 0.0
        for part, kind in enumerate(self.rules.kinds):
            value = getattr(answer, f"p{part}")
            if kind == "number":
                assert isinstance(value, float)
                assert -1.0 <= value <= 2.0
                digits = digits * 4 + value
                continue
            if kind in entities:
                choice = [each is value for each in entities[kind]].index(True)
            else:
                assert isinstance(value, KINDS[kind])
                choice = value.value if isinstance(value, Share) else int(value)
            assert scene.legal(self.rules.kinds, part, actor, before)[choice]
            before, digits = choice, digits * 4 + choice
        return digits


class RandomGame(Game):
    """The game of some rules; a copy in another process makes its classes again."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        fields = [(f"p{i}", KINDS[kind]) for i, kind in enumerate(rules.kinds)]
        cls = make_dataclass("Decision", fields, frozen=True)
        self.decision: Composite[Any] | GlobalComposite[Any]
        self.decision = GlobalComposite(cls) if rules.is_global else Composite(cls)
        super().__init__(
            Play(rules, self.decision),
            entities=() if rules.has_global_parts else (Base, Planet, Moon),
            actions=(self.decision,),
            global_features=Where,
            name="random_parts",
        )

    def __reduce__(self) -> tuple[type[RandomGame], tuple[Rules]]:
        return RandomGame, (self.rules,)
