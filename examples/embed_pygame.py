"""Pong: a pygame program with its own main loop, in which an agent moves the right paddle.

Play it:   python examples/embed_pygame.py              (w and s; the right paddle follows the ball)
Train it:  entity-env train examples/embed_pygame.py --out runs/pong
Then:      python examples/embed_pygame.py runs/pong    (against the trained agent)

`Pong` is the original program. The code for agents is below it: what the agent sees, a paddle that
asks the agent, and `play`, which runs the same loop without a window for training.
"""

import random
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import pygame
from pygame import Rect, Vector2

from entity_env import Features, Game, Obs
from entity_env.agents import Agent, load_agent

FIELD = Rect(0, 0, 320, 240)


class Pong:
    """A program with its own main loop, events and drawing; it runs fast without a window."""

    def __init__(self, seed: int | None = None, *, has_window: bool = True) -> None:
        self.rng, self.points, self.is_running = random.Random(seed), [0, 0], True
        self.left, self.right = Rect(8, 100, 8, 40), Rect(304, 100, 8, 40)
        self.screen = pygame.display.set_mode(FIELD.size) if has_window else None
        self.clock = pygame.time.Clock()
        self.serve()

    def serve(self) -> None:
        self.ball = Vector2(160, self.rng.uniform(20, 220))
        self.speed = Vector2(self.rng.choice((-5, 5)), self.rng.uniform(-4, 4))

    def run(self) -> None:
        while self.is_running and max(self.points) < 3:
            self.left.y += 4 * self.left_paddle()
            self.right.y += 4 * self.right_paddle()
            self.update()
            if self.screen is not None:
                self.draw(self.screen)

    def left_paddle(self) -> int:
        if self.screen is None:
            return self.towards_ball(self.left)
        self.is_running &= not pygame.event.get(pygame.QUIT)
        keys = pygame.key.get_pressed()
        return keys[pygame.K_s] - keys[pygame.K_w]

    def right_paddle(self) -> int:
        return self.towards_ball(self.right)

    def towards_ball(self, paddle: Rect) -> int:
        return (self.ball.y > paddle.centery + 9) - (self.ball.y < paddle.centery - 9)

    def update(self) -> None:
        self.ball += self.speed
        if not 0 < self.ball.y < FIELD.height:
            self.speed.y = abs(self.speed.y) * (1 if self.ball.y < 100 else -1)
        for paddle, side in ((self.left, 1), (self.right, -1)):
            paddle.clamp_ip(FIELD)
            if paddle.inflate(8, 8).collidepoint(self.ball):  # faster with every hit, so games end
                self.speed.x = side * abs(self.speed.x) * 1.05
                self.speed.y = (self.ball.y - paddle.centery) / 4
        if not 0 < self.ball.x < FIELD.width:
            self.points[self.ball.x <= 0] += 1
            self.serve()

    def draw(self, screen: pygame.Surface) -> None:
        screen.fill("black")
        pygame.draw.rect(screen, "white", self.left)
        pygame.draw.rect(screen, "white", self.right)
        pygame.draw.circle(screen, "yellow", self.ball, 5)
        pygame.display.set_caption("{} : {}".format(*self.points))
        pygame.display.flip()
        self.clock.tick(60)


# ------------------------------------------------------------------ added for the agent


class Move(Enum):
    UP = -1
    STAY = 0
    DOWN = 1


@dataclass
class Ball:
    place: Annotated[Vector2, Features("x", "y")]
    speed: Annotated[Vector2, Features("x", "y")]


@dataclass
class Paddle:
    y: int
    is_own: bool


class PongWithAgent(Pong):
    def __init__(self, agent: Agent, seed: int | None = None, *, has_window: bool = True) -> None:
        super().__init__(seed, has_window=has_window)
        self.agent, self.frame, self.move = agent, 0, Move.STAY

    def seen(self) -> Obs:
        paddles = [Paddle(self.right.centery, True), Paddle(self.left.centery, False)]
        obs = Obs(self.points[1] - self.points[0]).entities([Ball(self.ball, self.speed)])
        return obs.entities(paddles)

    def right_paddle(self) -> int:
        if self.frame % 4 == 0:  # 15 decisions per second
            move = self.agent.act(self.seen(), Move)
            self.is_running &= move is not None  # None: the program that trains is closing the game
            self.move = move or self.move
        self.frame += 1
        return self.move.value


def play(agent: Agent, *, seed: int) -> None:
    program = PongWithAgent(agent, seed, has_window=False)
    program.run()
    if program.is_running:
        agent.game_over(program.seen())


pong = Game(play, entities=(Ball, Paddle), actions=(Move,), name="pong")

if __name__ == "__main__":
    pygame.display.init()
    program = PongWithAgent(load_agent(sys.argv[1]).for_game()) if len(sys.argv) > 1 else Pong()
    program.run()
    print("left {}, right {}".format(*program.points))
