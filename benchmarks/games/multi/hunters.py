"""Hunters and prey: one agent moves three hunters, the other a prey. Two different roles."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Hunter:
    x: int
    y: int


@dataclass
class Prey:
    x: int
    y: int


class Step(Enum):
    STAY = (0, 0)
    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)


STEP = Categorical(Step)


def play(agents: Sequence[Agent], *, seed: int, board_size: int = 9, max_turns: int = 40) -> None:
    rng, inside, score = random.Random(seed), range(board_size), 0.0
    places = rng.sample([(x, y) for x in inside for y in inside], 4)
    hunters, prey = [Hunter(*place) for place in places[:3]], Prey(*places[3])

    def seen(seat: int) -> Obs:
        units: list[Hunter] | list[Prey] = [prey] if seat else hunters
        obs = Obs(-score if seat else score).actors(units)
        obs.entities(hunters if seat else [prey])
        can = [
            [each.x + s.value[0] in inside and each.y + s.value[1] in inside for s in Step]
            for each in units
        ]
        return obs.mask(STEP, can)

    is_caught = False
    for _ in range(max_turns):
        pending = [agent.act_async(seen(seat), STEP) for seat, agent in enumerate(agents)]
        steps = [each.get() for each in pending]
        if steps[0] is None or steps[1] is None:
            return
        was_at = (prey.x, prey.y)
        prey.x, prey.y = prey.x + steps[1][0].value[0], prey.y + steps[1][0].value[1]
        for hunter, step in zip(hunters, steps[0], strict=True):
            at = (hunter.x, hunter.y)
            hunter.x, hunter.y = hunter.x + step.value[0], hunter.y + step.value[1]
            here = (hunter.x, hunter.y)
            is_caught |= here == (prey.x, prey.y) or (here == was_at and at == (prey.x, prey.y))
        score += 1.0 if is_caught else -0.05
        if is_caught:
            break
    for seat, agent in enumerate(agents):
        agent.game_over(seen(seat), truncated=not is_caught)


hunters = Game(play, entities=(Hunter, Prey), actions=(STEP,), num_agents=2, name="hunters")


class Scripted(ScriptedAgent):
    """Hunters walk toward the prey; the prey walks away from the nearest hunter."""

    def choose(self, obs: Obs, *actions: object) -> object:
        hunters: list[Hunter] = obs.of_class(Hunter)
        prey: Prey = obs.of_class(Prey)[0]

        def gap(hunter: Hunter, step: Step, sign: int) -> int:
            dx, dy = step.value
            return abs(prey.x - hunter.x - sign * dx) + abs(prey.y - hunter.y - sign * dy)

        def room(step: Step) -> tuple[int, int]:
            return min(gap(each, step, -1) for each in hunters), sum(
                gap(each, step, -1) for each in hunters
            )

        allowed = obs.allowed(STEP)
        if isinstance(obs.actors_of(STEP)[0], Prey):
            return [max(allowed[0], key=room)]
        return [
            min(steps, key=lambda step, hunter=hunter: gap(hunter, step, 1))  # type: ignore[misc]
            for hunter, steps in zip(hunters, allowed, strict=True)
        ]
