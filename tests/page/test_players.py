"""`NetworkPlayer` plays a network in JavaScript as `NumpyAgent` does in Python."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.network_vectors import NETWORK, NODE, random_weights
from entity_env import Game, Obs
from entity_env.agents import Agent
from entity_env.agents.rogue_net import MLPConfig, NumpyAgent, RogueNetConfig, Weights
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.agents.rogue_net.config import NetConfig
from entity_env.page.live.players import NetworkPlayer
from tests.games.composite_games import PAIR, SEND, Base, Planet, Share, View, order

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


def send(agent: Agent, *, seed: int) -> None:
    """Every base picks a planet, then a share that the size of this planet allows."""
    rng, score = random.Random(seed), 0.0
    for _ in range(5):
        planets = [Planet(float(rng.randrange(3))) for _ in range(rng.randrange(1, 4))]
        bases = [Base(rng.random()) for _ in range(2)]
        obs = Obs(score).actors(bases, SEND).entities(planets)
        shares = [[share.value != (planet.size + 1) % 3 for share in Share] for planet in planets]
        mask: Any = [shares for _ in bases]
        obs.mask(SEND.share, mask, given=SEND.target)
        answer = agent.act(obs, SEND)
        if answer is None:
            return
        for each in answer:
            assert each is not None
            assert each.share.value != (each.target.size + 1) % 3
            score += each.target.size + 10 * each.share.value + 100 * each.is_fast
    agent.game_over(Obs(score))


def pair(agent: Agent, *, seed: int) -> None:
    """Two different labels."""
    rng, score = random.Random(seed), 0.0
    for _ in range(5):
        obs = Obs(score).globals(View(rng.randrange(3)))
        obs.mask(PAIR.second, [[a is not b for a in Share] for b in Share], given=PAIR.first)
        answer: Any = agent.act(obs, PAIR)
        if answer is None:
            return
        assert answer.first is not answer.second
        score += answer.first.value + 10 * answer.second.value + 100 * answer.third
    agent.game_over(Obs(score))


GAMES: dict[str, tuple[Game, NetConfig]] = {
    "send": (
        Game(send, entities=(Base, Planet), actions=(SEND,), name="send"),
        RogueNetConfig(d_model=16, d_qk=8),
    ),
    "memory": (
        Game(send, entities=(Base, Planet), actions=(SEND,), name="send"),
        RogueNetConfig(d_model=16, d_qk=8, memory=4),
    ),
    "pair": (
        Game(pair, entities=(), actions=(PAIR,), global_features=View, name="pair"),
        MLPConfig((16,)),
    ),
    "order": (order, RogueNetConfig(d_model=16, d_qk=8, memory=4)),
}

_THINK = """
import {readFileSync} from "node:fs";
import {createInterface} from "node:readline";
import {readAgent} from %s;
const network = readAgent(readFileSync(%s));
for await (const line of createInterface({input: process.stdin})) {
  console.log(JSON.stringify(network.think(JSON.parse(line))));
}
"""


@contextmanager
def thinking(weights: Weights, folder: Path) -> Iterator[Callable[[str], str]]:
    """The network in Node, as the worker of a page offers it."""
    path = folder / "net.agent"
    path.write_bytes(agent_bytes(weights))
    script = _THINK % (json.dumps(NETWORK.as_uri()), json.dumps(str(path)))
    command = [str(NODE), "--input-type=module", "--eval", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def think(given: str) -> str:
            stdin.write(given + "\n")
            stdin.flush()
            return stdout.readline()

        yield think


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_decisions_in_several_parts_equal_those_of_python(name: str, tmp_path: Path) -> None:
    game, config = GAMES[name]
    spaces = game.schema.obs_space(), game.schema.action_space()
    weights = random_weights(spaces, config)
    with thinking(weights, tmp_path) as think:
        for seed in range(4):
            [wanted] = game.run(NumpyAgent(weights, greedy=True), seed=seed)
            [found] = game.run(NetworkPlayer(think, 1, greedy=True), seed=seed)
            assert found.reward == pytest.approx(wanted.reward, abs=1e-5)  # of numbers
        rewards = {
            game.run(NetworkPlayer(think, seed), seed=1)[0].reward for seed in range(6)
        }  # the game checks that choices are legal
        assert len(rewards) > 1
