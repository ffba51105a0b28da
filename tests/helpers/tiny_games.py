"""Tiny games in which seed and actions determine every episode: any error in the transport of an
observation or an action changes everything after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, TypeAlias

import numpy as np

from entity_env import HIDDEN, Categorical, Continuous, Game, Obs, SelectEntity
from entity_env.agents import Agent, ScriptedAgent
from entity_env.authoring.action_type import ActionKey

Play: TypeAlias = Callable[..., None]


class Move(Enum):
    LEFT = 0
    STAY = 1
    RIGHT = 2


class Turn(Enum):
    BACK = 0
    ON = 1


@dataclass(slots=True)
class Dot:
    """The only entity of the simplest games."""

    x: float


@dataclass(slots=True)
class Cat:
    x: float
    y: int


@dataclass(slots=True, eq=False)
class Dog:
    turn: Turn
    number: int = field(metadata=HIDDEN)


@dataclass(slots=True)
class Ghost:
    """An entity without features."""


@dataclass(slots=True)
class Weather:
    wind: float


EACH = Categorical(Turn)
PICK = SelectEntity(Dog)
STEER = Continuous("steer", low=(-1.0, 0.0), high=(1.0, 2.0), labels=("wheel", "gas"))


def dots_game(play: Play, num_agents: int = 1, *, respawns: bool = False) -> Game:
    """A game that shows dots and asks for a `Move`."""
    return Game(play, entities=(Dot,), actions=(Move,), num_agents=num_agents, respawns=respawns)


def ask(agent: Agent, score: float = 0.0, x: float = 0.0) -> Move | None:
    """Shows a dot and asks for a `Move`."""
    return agent.act(Obs(score).entities([Dot(x)]), Move)


def play_count(agent: Agent, *, seed: int, length: int = 3) -> None:
    """Asks `length` times; the score and the dot count the answers."""
    for i in range(length):
        if ask(agent, score=i, x=i) is None:
            return
    agent.game_over(Obs(length).entities([Dot(length)]))


count = dots_game(play_count)


def play_walk(agent: Agent, *, seed: int) -> None:
    """Walks right from a random place; terminated or truncated after two to four steps."""
    rng = Random(seed)
    start, score = float(rng.randrange(1000)), 0
    for _ in range(rng.randrange(2, 5)):
        obs = Obs(score).entities([Dot(start + score)]).mask(Move, [False, True, True])
        move = agent.act(obs, Move)
        if move is None:
            return
        score += move.value
    agent.game_over(Obs(score).entities([Dot(start + score)]), truncated=bool(seed % 2))


walk = dots_game(play_walk)


def _look(rng: Random, score: float) -> tuple[Obs, list[Dog]]:
    """A random observation."""
    cats = [Cat(rng.random(), rng.randrange(9)) for _ in range(rng.randrange(4))]
    dogs = [Dog(rng.choice(list(Turn)), i) for i in range(rng.randrange(4))]
    obs = Obs(score).globals(Weather(rng.random()))
    if rng.random() < 0.5:
        obs.entities(cats)
    else:
        obs.entities(np.array([[cat.x, cat.y] for cat in cats]).reshape(-1, 2), of=Cat)
    if rng.random() < 0.3:
        obs.visible(Cat, [rng.random() < 0.5 for _ in cats])
    if rng.random() < 0.3:
        obs.metric("cats", len(cats))
    show_dogs = obs.actors if rng.random() < 0.5 else obs.entities
    show_dogs(dogs)
    ghosts = [Ghost() for _ in range(rng.randrange(3))]
    obs.actors(ghosts, *rng.choice([(), (EACH,), (EACH, STEER)]))
    return obs, dogs


def _questions(rng: Random, obs: Obs, dogs: Sequence[Dog]) -> list[Any]:
    """The questions for a random observation; masks some of them."""
    asked = rng.sample([Move, EACH, STEER, PICK], k=rng.randint(1, 3))
    if Move in asked and rng.random() < 0.5:
        obs.mask(Move, _allowed(rng, len(Move)))
    turning = sum(len(obs.groups[i]) for i, _ in obs.actor_groups or ())
    if EACH in asked and turning and rng.random() < 0.5:
        obs.mask(EACH, [_allowed(rng, len(Turn)) for _ in range(turning)])
    picking = sum(len(obs.groups[i]) for i, performs in obs.actor_groups or () if not performs)
    if PICK in asked and picking and rng.random() < 0.5:
        obs.mask(PICK, [[rng.random() < 0.5 for _ in dogs] for _ in range(picking)])
    return asked


def _allowed(rng: Random, count: int) -> list[bool]:
    allowed = [rng.random() < 0.5 for _ in range(count)]
    allowed[rng.randrange(count)] = True
    return allowed


def _worth(answers: object) -> float:
    """A number that differs between answers."""
    if isinstance(answers, Enum):
        return float(answers.value)
    if answers is None:  # from a ghost without targets
        return 0.5
    if isinstance(answers, Dog):
        return float(answers.number)
    if isinstance(answers, np.ndarray):
        return round(16 * float(answers.sum())) / 16  # such sums are exact in any order
    parts: Any = answers  # a tuple of answers to several questions, or a list with one per actor
    return sum((i * _worth(part) for i, part in enumerate(parts, 1)), 0.0)


def _end(agent: Agent, rng: Random, score: float) -> None:
    """Ends an episode in a random way."""
    match rng.randrange(4):
        case 0:
            agent.game_over()
        case 1:
            agent.game_over(Obs(score).metric("ends", rng.randrange(5)))
        case 2:
            agent.game_over(_look(rng, score)[0])
        case _:
            obs, dogs = _look(rng, score)
            _questions(rng, obs, dogs)  # masks some of the choices
            agent.game_over(obs, truncated=True)


def play_chaos(agent: Agent, *, seed: int, loops: bool = False) -> None:
    """Random observations and questions; some episodes end before the first question."""
    act: Any = agent.act
    while True:
        rng = Random(seed)
        score = rng.randrange(16) / 16
        for _ in range(rng.choice([0, 1, 2, 3, 6])):
            obs, dogs = _look(rng, score)
            answers = act(obs, *_questions(rng, obs, dogs))
            if answers is None:
                return
            score += _worth(answers)
        _end(agent, rng, score)
        if not loops:
            return
        seed = agent.seed


def play_together(agents: Sequence[Agent], *, seed: int, loops: bool = False) -> None:
    """Asks several agents at once; each leaves at its own time, some immediately."""
    while True:
        rng = Random(seed)
        scores = [rng.randrange(16) / 16 for _ in agents]
        left = [rng.randrange(4) for _ in agents]
        while True:
            for i, agent in enumerate(agents):
                if left[i] == 0:
                    _end(agent, rng, scores[i])
                left[i] -= 1
            asked = [i for i in range(len(agents)) if left[i] >= 0]
            if not asked:
                break
            pending = []
            for i in asked:
                obs, dogs = _look(rng, scores[i])
                act_async: Any = agents[i].act_async
                pending.append((i, act_async(obs, *_questions(rng, obs, dogs))))
                for dog in dogs:
                    dog.turn = Turn.ON  # too late: the observation is a copy
            rng.shuffle(pending)
            for i, answer in pending:
                answers = answer.get()
                if answers is None:
                    return
                scores[i] += _worth(answers)
        if not loops:
            return
        seed = agents[0].seed


def play_in_turn(agents: Sequence[Agent], *, seed: int) -> None:
    """Asks one agent after another; the last agent ends later than the others."""
    rng = Random(seed)
    scores = [0.0] * len(agents)
    for turn in range(rng.randint(1, 7)):
        i = turn % len(agents)
        obs, dogs = _look(rng, scores[i])
        act: Any = agents[i].act
        answers = act(obs, *_questions(rng, obs, dogs))
        if answers is None:
            return
        scores[rng.randrange(len(agents))] += _worth(answers)
    for agent, score in zip(agents[:-1], scores, strict=False):
        _end(agent, rng, score)
    while agents[-1].act(Obs(scores[-1]).globals(Weather(0.0)), Move) is Move.STAY:
        scores[-1] += 1
    _end(agents[-1], rng, scores[-1])


def masked_dot(score: float, x: float) -> Obs:
    """A dot, without the choice of its first `Move`; its place is also a metric."""
    return Obs(score).entities([Dot(x)]).mask(Move, [False, True, True]).metric("x", x)


def play_crew(agents: Sequence[Agent], *, seed: int, fails: bool = False) -> None:
    """The second agent ends early; the third comes late, or takes no part."""
    rng = Random(seed)
    places = [rng.randrange(1000) + 0.5 * i for i in range(len(agents))]
    begins = [0, 0, rng.choice([0, 1, 2, 9])]
    ends = [rng.randrange(2, 6), rng.randrange(1, 3), 5]
    scores = [float(rng.randrange(9)) for _ in agents]
    for turn in range(6):
        playing = [i for i in range(len(agents)) if begins[i] <= turn < ends[i]]
        if fails and turn == 2 and rng.random() < 0.3:
            raise OSError("no more")
        answers: dict[int, Move | None] = {}
        if rng.random() < 0.5:
            for i in playing:
                answers[i] = agents[i].act(masked_dot(scores[i], places[i] + turn), Move)
                scores[rng.choice(playing)] += 1  # also points in the turns of others
        else:
            shown = {i: masked_dot(scores[i], places[i] + turn) for i in playing}
            pending = {i: agents[i].act_async(obs, Move) for i, obs in shown.items()}
            answers = {i: each.get() for i, each in pending.items()}
        if None in answers.values():
            return
        for i, answer in answers.items():
            scores[i] += answer.value + 1 if answer is not None else 0
        for i in playing:
            if turn + 1 == ends[i]:
                is_cut = rng.random() < 0.5
                obs = masked_dot(scores[i], places[i] + ends[i])
                agents[i].game_over(obs if is_cut else Obs(scores[i]), truncated=is_cut)


def _chaos_game(play: Play, num_agents: int = 1) -> Game:
    return Game(
        play,
        entities=(Cat, Dog, Ghost),
        actions=(Move, EACH, PICK, STEER),
        global_features=Weather,
        num_agents=num_agents,
    )


chaos = _chaos_game(play_chaos)
together = _chaos_game(play_together, num_agents=3)
in_turn = _chaos_game(play_in_turn, num_agents=2)
crew = dots_game(play_crew, num_agents=3)

TINY_GAMES = {
    "count": count,
    "chaos": chaos,
    "chaos_forever": chaos.with_settings(loops=True),
    "together": together,
    "together_forever": together.with_settings(loops=True),
    "in_turn": in_turn,
    "crew": crew,
}
"""Games for one agent or several that play a single episode or loop forever."""


class DrawingBot(ScriptedAgent):
    """Chooses random legal actions in any game."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        parts = [self._part(obs, action) for action in actions]
        return parts[0] if len(parts) == 1 else parts

    def _part(self, obs: Obs, action: ActionKey) -> object:
        if isinstance(action, Continuous):
            return [[self.rng.random() for _ in action.space.labels] for _ in obs.actors_of(action)]
        allowed = obs.allowed(action)
        if isinstance(action, type):
            return self.rng.choice(allowed)
        return [self.rng.choice(choices) if choices else None for choices in allowed]
