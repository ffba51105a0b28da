"""Coins: an asyncio server where people play against agents over TCP.

Play it:   entity-env play examples/embed_asyncio.py --agent human
Train it:  entity-env train examples/embed_asyncio.py --out runs/coins
Serve it:  python examples/embed_asyncio.py 7777 runs/coins     (then: nc localhost 7777)

Every copy of a game that runs an event loop needs its own thread: `transport="thread"` below. If a
game does not set it, use `entity-env train GAME --transport thread`.
"""

import asyncio
import random
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, load_agent

SIZE, NUM_TURNS = 7, 40


@dataclass
class Me:
    x: int
    y: int


@dataclass
class Rival(Me):
    pass


@dataclass
class Coin(Me):
    pass


class Move(Enum):
    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)


class Client:
    """A person at the other end of a connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def move(self, obs: Obs) -> Move | None:
        shown = [*obs.of_class(Me), *obs.of_class(Rival), *obs.of_class(Coin)]
        try:
            while True:
                self.writer.write(f"{obs.score:+} {shown} u, d, l or r: ".encode())
                line = await self.reader.readline()
                key = line.decode(errors="replace").strip().upper()
                moves = [move for move in Move if key and move.name.startswith(key)]
                if moves or not line:  # without even the end of a line, the person has left
                    return moves[0] if moves else None
        except ConnectionError:  # the person has left, so the text did not arrive
            return None

    def game_over(self, obs: Obs) -> None:
        self.writer.write(f"{obs.score:+} The game is over.\n".encode())


class Bot:
    """An agent as a player; the server needs no other code for agents."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.game_over = agent, agent.game_over

    async def move(self, obs: Obs) -> Move | None:
        return await self.agent.act_async(obs, Move)


async def play_room(players: Sequence[Client | Bot], seed: int) -> None:
    """One game of the server: all players move at once; reaching the coin scores a point."""
    rng = random.Random(seed)
    cells, found = [(0, SIZE // 2), (SIZE - 1, SIZE // 2)], [0, 0]
    coin = SIZE // 2, rng.randrange(SIZE)

    def shown(i: int) -> Obs:
        obs = Obs(found[i] - found[1 - i]).entities([Me(*cells[i])])
        return obs.entities([Rival(*cells[1 - i])]).entities([Coin(*coin)])

    for _ in range(NUM_TURNS):
        moves = await asyncio.gather(*(each.move(shown(i)) for i, each in enumerate(players)))
        for i, move in enumerate(moves):
            if move is None:  # the person has left, or this game is being closed
                return
            (x, y), (dx, dy) = cells[i], move.value
            cells[i] = min(max(x + dx, 0), SIZE - 1), min(max(y + dy, 0), SIZE - 1)
        if coin in cells:
            found[rng.choice([i for i, cell in enumerate(cells) if cell == coin])] += 1
            coin = rng.randrange(SIZE), rng.randrange(SIZE)
    for i, player in enumerate(players):
        player.game_over(shown(i))


def play(agents: list[Agent], *, seed: int) -> None:
    asyncio.run(play_room([Bot(agent) for agent in agents], seed))


KINDS, MOVES = (Me, Rival, Coin), (Move,)
coins = Game(play, entities=KINDS, actions=MOVES, num_agents=2, name="coins", transport="thread")


async def serve(port: int, name: str) -> None:
    async def join(reader: StreamReader, writer: StreamWriter) -> None:
        await play_room(
            [Client(reader, writer), Bot(load_agent(name).for_game())], random.getrandbits(32)
        )
        writer.close()

    async with await asyncio.start_server(join, "localhost", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
