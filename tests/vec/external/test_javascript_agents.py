"""Agents in JavaScript decide as numpy does, in whole episodes of games in JavaScript."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.peers.network_vectors import random_weights
from entity_env import Game
from entity_env.agents.rogue_net import NumpyAgent, RogueNet, RogueNetConfig, Weights
from entity_env.agents.rogue_net.checkpoints.agent_file import read_agent, write_agent
from entity_env.core.observation import Observation
from tests import ROOT
from tests.vec.external.test_javascript import node
from tests.vec.external.twins import parts, roads, twin_of

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.slow,
]
MAX_DIFFERENCE = 1e-5
AGENTS = {
    "snake": "ship/snake",
    "multi_snake": "gallery/multi_snake",
    "cherry_pick": "gallery/cherry_pick",
    "tic_tac_toe": "gallery/tic_tac_toe",
}
NUM_EPISODES = 3


def path_of(name: str) -> Path:
    return ROOT / "examples" / f"{AGENTS[name]}.agent"


EPISODES = """
import {loadAgent} from "./entity-env.mjs";
import {game} from "./games/NAME.mjs";

const found = [], agents = [];
let shown;
for (let index = 0; index < game.numAgents; index++) {
  const agent = (await loadAgent(SOURCE, {game, index, greedy: true})).forGame();
  const network = agent._network;
  agents.push(agent);
  agent._network = {choose(observation, options) {
    const {probabilities} = network.think(observation);
    const choice = network.choose(observation, options);
    shown.push([index, probabilities, choice]);
    return choice;
  }};
}
for (const seed of SEEDS) {
  shown = [];
  const players = agents.length === 1 ? agents[0] : agents;
  await game.play(players, {seed: BigInt(seed), ...game.settings});
  found.push([shown, agents.map(({score}) => score)]);
}
console.log(JSON.stringify(found));
"""


class Watched(NumpyAgent):
    """Adds its number, the probabilities and the choices of every turn to a list."""

    def __init__(self, weights: Weights, index: int, shown: list[Any]) -> None:
        super().__init__(weights, greedy=True)
        self.index, self.shown = index, shown

    def choose(self, observation: Observation) -> Any:  # noqa: ANN401 - as in the base class
        thoughts = self.think(observation).probabilities
        choice = super().choose(observation)
        chosen = {name: np.asarray(each).tolist() for name, each in choice[0].items()}
        probabilities = {name: rows.tolist() for name, rows in thoughts.items()}
        self.shown.append((self.index, probabilities, chosen))
        return choice


Episodes = list[tuple[list[Any], list[float]]]
"""What agents have shown and chosen in each episode, and their scores."""


def in_numpy(name: str) -> tuple[list[str], Episodes]:
    """Seeds and episodes of greedy agents in Python."""
    return episodes_of(twin_of(name), path_of(name))


def episodes_of(twin: Game, path: Path) -> tuple[list[str], Episodes]:
    weights = read_agent(path)
    expected: Episodes = []
    seeds = []
    for seed in range(NUM_EPISODES):
        shown: list[Any] = []
        agents = [Watched(weights, i, shown) for i in range(twin.num_agents)]
        episodes = sorted(twin.run(*agents, seed=seed), key=lambda each: each.agent_id)
        expected.append((shown, [each.reward for each in episodes]))
        seeds.append(str(episodes[0].seed))
    return seeds, expected


def in_javascript(name: str, seeds: list[str], source: str) -> str:
    """A module that prints these episodes with the agent at an address."""
    code = EPISODES.replace("NAME", name).replace("SEEDS", json.dumps(seeds))
    return code.replace("SOURCE", json.dumps(source))


def require_equal_episodes(found: Episodes, expected: Episodes) -> None:
    for (turns, rewards), (found_turns, scores) in zip(expected, found, strict=True):
        assert len(found_turns) == len(turns) > 1
        for (i, probabilities, choice), (index, rows, chosen) in zip(
            turns, found_turns, strict=True
        ):
            assert (index, chosen) == (i, choice)
            assert rows.keys() == probabilities.keys()
            for action, numbers in probabilities.items():
                difference = np.abs(np.array(rows[action]) - np.array(numbers))
                assert difference.max() < MAX_DIFFERENCE
        assert scores == rewards


@pytest.mark.parametrize("name", AGENTS)
def test_greedy_episodes_are_those_of_numpy(name: str) -> None:
    seeds, expected = in_numpy(name)
    found = node(in_javascript(name, seeds, str(path_of(name))))
    require_equal_episodes(found, expected)


def test_agents_remember_the_running_episode(tmp_path: Path) -> None:
    path, game = tmp_path / "remembers.agent", twin_of("cherry_pick")
    spaces, size = (game.obs_space(), game.action_space()), RogueNetConfig(d_model=16, memory=8)
    write_agent(path, random_weights(spaces, size))
    seeds, expected = episodes_of(game, path)
    require_equal_episodes(node(in_javascript("cherry_pick", seeds, str(path))), expected)


@pytest.fixture(scope="module")
def parts_agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained agent for a game with decisions in several parts."""
    return untrained(parts, tmp_path_factory.mktemp("agent"))


def untrained(game: Game, folder: Path) -> Path:
    torch.manual_seed(4)
    net = RogueNet(game.obs_space(), game.action_space(), RogueNetConfig(d_model=16, n_layer=1))
    path = folder / f"{game.name}.agent"
    write_agent(path, net.weights())
    return path


PARTS = Path(__file__).with_name("parts.mjs")


def test_decisions_in_several_parts_are_those_of_numpy(parts_agent: Path) -> None:
    seeds, expected = episodes_of(parts, parts_agent)
    code = in_javascript("NAME", seeds, str(parts_agent)).replace("./games/NAME.mjs", str(PARTS))
    found: Episodes = node(code)
    for (turns, _), (found_turns, _) in zip(expected, found, strict=True):
        for (_, _, choice), (_, _, chosen) in zip(turns, found_turns, strict=True):
            numbers = chosen.pop("Haul.weight")
            np.testing.assert_allclose(numbers, choice.pop("Haul.weight"), atol=MAX_DIFFERENCE)
            assert chosen == choice


def test_decisions_about_relations_are_those_of_numpy(tmp_path: Path) -> None:
    path = untrained(roads, tmp_path)
    seeds, expected = episodes_of(roads, path)
    code = in_javascript("NAME", seeds, str(path)).replace("./games/NAME.mjs", str(PARTS))
    require_equal_episodes(node(code.replace("{game}", "{roads as game}")), expected)


def test_an_agent_of_other_relations_is_refused(tmp_path: Path) -> None:
    found = node(
        'import {Game, categorical, loadAgent, selectEntity} from "./entity-env.mjs";\n'
        f'import {{roads}} from "{PARTS}";\n'
        "const {name, play, entities, actions} = roads;\n"
        "const Road = {references: {start: 'Car', end: 'Car'}, features: ['hours']};\n"
        "const game = new Game({name, play, entities, actions,"
        " relations: {Gap: roads.relations.Gap, Road}});\n"
        f"const error = await loadAgent({json.dumps(str(untrained(roads, tmp_path)))}, {{game}})"
        ".catch(error => error.message);\n"
        "console.log(JSON.stringify(error));"
    )
    assert "it has relation Road with features start, end, hours between Car and Rock, but" in found
    assert "the game has relation Road with features start, end, hours between Car and Car" in found


RELATIONS = """
import {Obs, loadAgent} from "./entity-env.mjs";
import {roads as game} from "PARTS";
const agent = await loadAgent(SOURCE, {game, greedy: true});
const cars = [{x: 1}, {x: 2}], rocks = [{size: 1}, {size: 2}], [car] = cars, [rock, other] = rocks;
const show = (...roads) =>
  new Obs(0).actors("Car", cars).entities("Rock", rocks).relations("Road", roads);
const road = {start: car, end: rock, hours: 1};
const found = [];
for (const call of [CALLS]) {
  try {
    found.push(await agent.act(call(), "SelectRoad"));
  } catch (error) {
    found.push(error.message);
  }
}
console.log(JSON.stringify(found));
"""
WRONG_RELATIONS = {
    "show(road, {start: {x: 1}, end: rock, hours: 1})": (
        "start of Road 1 must be a Car that the observation shows, got an object: show the same "
    ),
    "show({start: rock, end: rock, hours: 1})": "start of Road 0 must be a Car that the observa",
    "show({start: car, end: 0, hours: 1})": "end of Road 0 must be a Rock that the observation sh",
    "show({start: car, end: rock, hours: NaN})": "hours of Road 0 must be a finite number, got N",
    "show({start: car, end: rock})": "hours of Road 0 must be a finite number, got undefined: give",
    "show(null)": "Road 0 must be an object, got null: give each Road start, end, hours",
    "new Obs(0).actors('Car', cars).relations('Road', [road])": (
        "end of Road 0 must be a Rock that the observation shows"
    ),
    "show(...Array(20).fill(road))": (
        "an observation has 20 entities of the type Road, more than its maxEntities, 19"
    ),
    "show().relations('Route', [])": 'the type "Route", which the game has not declared; declared',
    "show().relations('Rock', [])": "Rock is an entity type: add its entities with obs.entities",
    "show().entities('Road', [road])": "Road is a relation, which cannot act: add it with obs.rela",
    "show().actors('Road', [road])": "Road is a relation, which cannot act",
    "show(road).actors('Rock', [other])": (
        "SelectRoad: an actor chooses among the relations Road that start at it, so it must be"
    ),
    "show(road).mask('SelectRoad', [true, false])": "for actor 0 needs 1 flags, one per Road,",
    "show(road, road).mask('SelectRoad', [[1, 1]])": "needs a list of flags for each of 2 actors",
    "show(road).mask('SelectRoad', [[1], [2]])": "for actor 1 must have booleans, got 2 at 0",
}


def test_wrong_relations_are_refused(tmp_path: Path) -> None:
    """Relations of an entity with itself and equal ones are allowed, as in Python."""
    legal = [
        "show(road, road, {start: car, end: other, hours: 2}).mask('SelectRoad', [0, 1, 0])",
        "show(road).mask('SelectRoad', [false])",
        "show()",
        "show(road).relations('Gap', [{one: rock, other: rock}, {one: rock, other: rock}])",
    ]
    calls = ", ".join(f"() => {each}" for each in [*WRONG_RELATIONS, *legal])
    code = RELATIONS.replace("CALLS", calls).replace("PARTS", str(PARTS))
    source = json.dumps(str(untrained(roads, tmp_path)))
    found = node(code.replace("SOURCE", source))
    for call, message in zip(WRONG_RELATIONS, found, strict=False):
        assert WRONG_RELATIONS[call] in message, call
    road = {"start": {"x": 1}, "end": {"size": 1}, "hours": 1}
    assert found[len(WRONG_RELATIONS) :] == [[road, None], [None, None], [None, None], [road, None]]


SHOWN = """
const cars = [{x: 1}, {x: 2}], rocks = [{size: 1}, {size: 2}], all = [[1, 1, 1], [1, 1, 1]];
const show = () => new Obs(0).actors("Car", cars).entities("Rock", rocks);
const found = [];
for (const [obs, ...asked] of CALLS) {
  try {
    found.push(await agent.act(obs, ...asked));
  } catch (error) {
    found.push(error.message);
  }
}
console.log(JSON.stringify(found));
"""
WRONG_PARTS = {
    'show(), "Haul.rock"': 'asks for the action "Haul.rock", expected Signal, Haul',
    'show().mask("Haul", [[1, 1], [1, 1]]), "Haul"': 'a mask or actors for the action "Haul"',
    'show().mask("Haul.load", [all, all], "Haul.weight"), "Haul"': (
        'the mask of Haul.load is given "Haul.weight", but it can depend only on Haul.rock'
    ),
    'show().mask("Haul.rock", [all, all], "Haul.load"), "Haul"': (
        "but no labels or entities are chosen directly before"
    ),
    'show().mask("Haul.load", [all, all]), "Haul"': (
        "the mask of Haul.load for actor 0 needs 3 flags, one per label, got 2"
    ),
    'show().mask("Haul.load", [all, [[1, 1, 1]]], "Haul.rock"), "Haul"': (
        "the mask of Haul.load for actor 1 needs 2 lists of flags, one per choice of Haul.rock"
    ),
    'show().mask("Haul.load", [all, [[1, 1, 1], [1, 1]]], "Haul.rock"), "Haul"': (
        "the mask of Haul.load for actor 1 after Rock 1 needs 3 flags, one per label, got 2"
    ),
    'show().mask("Haul.load", [all, [[0, 0, 0], [1, 1, 1]]], "Haul.rock"), "Haul"': (
        "the mask of Haul.load allows nothing after Rock 0 of Haul.rock, which is allowed"
    ),
}


def test_wrong_masks_of_parts_are_refused(parts_agent: Path) -> None:
    """A choice that is forbidden needs nothing after it, and an actor without a target no mask."""
    legal = (
        'show().mask("Haul.rock", [[0, 1], [0, 0]])'
        '.mask("Haul.load", [[[0, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]], "Haul.rock"), "Haul"'
    )
    calls = ", ".join(f"[{each}]" for each in [*WRONG_PARTS, legal])
    *errors, [first, second] = node(
        'import {Obs, loadAgent} from "./entity-env.mjs";\n'
        f'import {{game}} from "{PARTS}";\n'
        f"const agent = await loadAgent({json.dumps(str(parts_agent))}, {{game}});\n"
        + SHOWN.replace("CALLS", f"[{calls}]")
    )
    for message, wanted in zip(errors, WRONG_PARTS.values(), strict=True):
        assert wanted in message
    assert (first["rock"], first["load"], second) == ({"size": 2}, "MID", None)


def loaded(source: str, options: str = "{}", more: str = "", name: str = "snake") -> Any:  # noqa: ANN401
    """What a module finds with an agent, or its error."""
    return node(
        'import {Game, Obs, Random, categorical, loadAgent} from "./entity-env.mjs";\n'
        f'import {{game}} from "./games/{name}.mjs";\n'
        "try {\n"
        f"  const agent = await loadAgent({source}, {options});\n"
        f"  {more}\n"
        "} catch (error) { console.log(JSON.stringify(`${error.name}: ${error.message}`)); }"
    )


SNAKE = json.dumps(str(path_of("snake")))
SCORES = (
    "const scores = [];"
    "for (const seed of [1n, 2n]) {"
    "  await game.play(agent, {seed, ...game.settings}); scores.push(agent.score);"
    "}"
    "console.log(JSON.stringify(scores))"
)


def test_a_seed_repeats_the_samples() -> None:
    """Also without a game, from bytes, and as a URL."""
    first = loaded(SNAKE, "{seed: 5, temperature: 2}", SCORES)
    assert loaded(SNAKE, "{seed: 5n, temperature: 2, game}", SCORES) == first
    assert loaded(f'new URL("file://" + {SNAKE})', "{seed: 5, temperature: 2}", SCORES) == first
    content = f"await (await import('node:fs/promises')).readFile({SNAKE})"
    assert loaded(content, "{seed: 5, temperature: 2}", SCORES) == first
    others = [loaded(SNAKE, f"{{seed: {seed}, temperature: 2}}", SCORES) for seed in (6, 7, 8)]
    assert any(other != first for other in others)


@pytest.mark.parametrize(
    ("source", "options", "name", "message"),
    [
        (SNAKE, "{greed: true}", "snake", "unknown option greed; it has game, seed, greedy"),
        (SNAKE, "{greedy: 1}", "snake", "greedy must be a boolean, got 1"),
        (SNAKE, "{seed: '1'}", "snake", 'the seed must be a BigInt or an integer, got "1"'),
        (SNAKE, "{temperature: 0}", "snake", "temperature must be a number from 1e-6, got 0"),
        (SNAKE, "{index: -1}", "snake", "index must be an integer from 0, got -1"),
        (SNAKE, "{game: {}}", "snake", "game must be a Game, got an object"),
        ("7", "{}", "snake", "expects the path or address of an .agent file, or its content"),
        ('"/none.agent"', "{}", "snake", "ENOENT"),
        ("new Uint8Array(64)", "{}", "snake", "expected an agent file"),
        (
            SNAKE,
            "{game}",
            "multi_snake",
            "Error: game multi_snake: the agent was trained for another game: it has "
            "global features none; entity Head with features x, y;",
        ),
        (
            json.dumps(str(path_of("cherry_pick"))),
            "{}",
            "snake",
            "SelectCherry selects entities, and the file does not say of which type",
        ),
    ],
)
def test_agents_that_cannot_be_loaded(source: str, options: str, name: str, message: str) -> None:
    assert message in loaded(source, options, "console.log(1)", name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("await agent.act(new Obs(0), 'Jump')", 'agent: act asks for the action "Jump"'),
        ("await agent.act(new Obs(0).entities('Tree', []), 'Move')", 'the type "Tree"'),
        ("await agent.act(new Obs(0).entities('Head', [{x: 1}]), 'Move')", "y of Head 0 must be"),
        ("await agent.act(new Obs(0).mask('Move', [true]), 'Move')", "needs 4 flags"),
        ("agent.gameOver({})", "expected an Obs"),
        ("agent.gameOver(new Obs(1), {cut: true})", "unknown option cut"),
    ],
)
def test_wrong_calls_of_an_agent(call: str, message: str) -> None:
    found = loaded(SNAKE, "{}", f"{call}; console.log(1)")
    assert found.startswith("TypeError: ")
    assert message in found


def test_agents_need_neither_process_nor_files() -> None:
    """As in a browser, with an address that `fetch` reads."""
    found = node(
        "import {readFileSync} from 'node:fs';\n"
        f"const content = readFileSync({SNAKE}).toString('base64');\n"
        "const {log} = console; delete globalThis.process;\n"
        "const {loadAgent} = await import('./entity-env.mjs');\n"
        "const {game} = await import('./games/snake.mjs');\n"
        "const agent = await loadAgent(`data:application/octet-stream;base64,${content}`,"
        " {game, greedy: true});\n"
        "await game.play(agent, {seed: 1n, ...game.settings});\n"
        "log(JSON.stringify(agent.score));"
    )
    assert found > 0


def test_a_missing_address(tmp_path: Path) -> None:
    found = node(
        "import {createServer} from 'node:http';\n"
        "const {loadAgent} = await import('./entity-env.mjs');\n"
        "const server = createServer((_, answer) => { answer.writeHead(404); answer.end(); });\n"
        "server.listen(0, '127.0.0.1', async () => {\n"
        "  const error = await loadAgent(`http://127.0.0.1:${server.address().port}/x.agent`)"
        ".catch(error => error.message);\n"
        "  console.log(JSON.stringify(error));\n"
        "  server.closeAllConnections(); server.close();\n"
        "});"
    )
    assert "/x.agent: the server answered 404" in found
