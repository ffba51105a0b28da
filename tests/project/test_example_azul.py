"""The trained agent of `examples/azul`: it plays, wins and is fast; and its curve is correct."""

import csv
import importlib.util
import math
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from entity_env.agents import load_agent
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.games.azul import (
    AgentInput,
    AzulAgent,
    EntityAgent,
    GameState,
    GreedyAgent,
    RandomAgent,
    azul,
    new_game,
    play_game,
)
from entity_env.games.azul.engine.tile_draws import SplitMix
from tests import ROOT

FOLDER = ROOT / "examples" / "azul"
AGENT = FOLDER / "azul.agent"


@pytest.fixture(scope="module")
def trained() -> EntityAgent:
    return EntityAgent(load_agent(AGENT, greedy=True))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`curve.py`, which is not in a package."""
    spec = importlib.util.spec_from_file_location("azul_curve", FOLDER / "curve.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def share_of(trained: EntityAgent, other: AzulAgent, num_pairs: int) -> float:
    """The trained agent's share of wins, with every deal played from both seats."""
    total = 0.0
    for number in range(2 * num_pairs):
        seat = number % 2
        agents: list[AzulAgent] = [trained, other] if seat == 0 else [other, trained]
        total += play_game(agents, seed=5000 + number // 2).shares[seat]
    return total / (2 * num_pairs)


def test_it_was_trained_for_the_game_as_it_is() -> None:
    """A new feature of the game requires a new agent."""
    weights = read_network(AGENT)
    assert weights.obs_space == azul.obs_space()
    assert dict(weights.action_space) == dict(azul.action_space())
    assert AGENT.stat().st_size < 100_000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_beats_the_greedy_agent(trained: EntityAgent) -> None:
    """It wins 356 of 400 games, so it very rarely wins fewer than 16 of these 24."""
    assert share_of(trained, GreedyAgent(), 12) >= 16 / 24


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_it_beats_the_random_agent(trained: EntityAgent) -> None:
    assert share_of(trained, RandomAgent(), 5) == 1


@pytest.mark.slow
def test_its_draws_do_not_make_it_weak() -> None:
    drawing = EntityAgent(load_agent(AGENT, seed=1))
    assert share_of(drawing, RandomAgent(), 2) == 1


@pytest.mark.parametrize("num_players", [3, 4])
def test_it_can_sit_at_larger_tables(trained: EntityAgent, num_players: int) -> None:
    """It has learned with two players, but understands the observations."""
    others = [RandomAgent() for _ in range(num_players - 1)]
    result = play_game([trained, *others], seed=1)
    assert result.end is not None
    assert result.scores[0] == max(result.scores)


def asked(state: GameState) -> AgentInput:
    return AgentInput(np.zeros(0, np.float32), np.zeros(0, np.bool_), state.current_player, state)


def test_a_move_takes_less_than_20_ms(trained: EntityAgent) -> None:
    """Processor time of the first moves of rounds, which have the most options."""
    times = []
    for seed in range(15):
        state = new_game(2, rng=SplitMix(seed))
        begin = time.process_time()
        trained.select_action(asked(state), np.random.default_rng(0))
        times.append(time.process_time() - begin)
    assert sorted(times)[len(times) // 2] < 0.02


def test_the_curve_tells_how_it_got_there() -> None:
    with (FOLDER / "curve.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert len(rows) >= 30
    assert [row["decisions"] for row in rows] == sorted(row["decisions"] for row in rows)
    assert rows[0]["wins_greedy"] < 0.3
    assert rows[-1]["wins_greedy"] > 0.5
    assert rows[-1]["wins_random"] >= 0.99
    assert rows[-1]["minutes"] < 60
    assert rows[-1]["entropy"] < rows[0]["entropy"]


def test_the_readme_names_commands_that_there_are() -> None:
    from entity_env.cli.app import COMMANDS

    text = (FOLDER / "README.md").read_text()
    used = set(re.findall(r"^    entity-env (\w+) ", text, re.M))
    assert {"train", "export", "eval", "play"} <= used
    assert used <= set(COMMANDS)
    for file in ("azul.agent", "curve.csv", "curve.svg", "curve.py"):
        assert file in text
        assert (FOLDER / file).is_file()


def test_a_curve_is_the_mean_of_its_parts(script: ModuleType) -> None:
    clock = [(100 * i, i / 2) for i in range(1, 81)]
    told = {
        "wins_greedy": [(step, step / 8000) for step, _ in clock],
        "wins_rush": [(8000, 0.25), (7900, 0.75)],
    }
    rows = script.curve(told, clock)
    assert len(rows) == script.NUM_POINTS
    assert rows[0]["decisions"] == 200
    assert rows[0]["minutes"] == 1
    assert rows[0]["wins_greedy"] == pytest.approx(150 / 8000)
    assert math.isnan(rows[0]["wins_rush"])
    assert rows[-1]["wins_rush"] == 0.5
    assert rows[-1]["minutes"] == 40


def test_the_picture_is_one(script: ModuleType) -> None:
    rows = [
        {"decisions": 100.0 * i, "wins_greedy": i / 10, "wins_rush": math.nan, "wins_random": 1.0}
        for i in range(1, 11)
    ]
    root = ElementTree.fromstring(script.picture(rows))
    lines = {
        str(line.findtext("{*}title")): str(line.get("points")).split()
        for line in root.iterfind("{*}polyline")
    }
    assert list(lines) == ["games won, greedy", "games won, random"]  # the other has no points
    heights = [float(point.split(",")[1]) for point in lines["games won, greedy"]]
    assert len(heights) == 10
    assert heights == sorted(heights, reverse=True)  # y points down
    top = {float(point.split(",")[1]) for point in lines["games won, random"]}
    assert top == {heights[-1]}


@pytest.mark.slow
def test_it_reads_what_a_run_has_written(script: ModuleType, tmp_path: Path) -> None:
    """Reads the curves of a short run."""
    pytest.importorskip("torch")
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.agents.rogue_net import RogueNetConfig
    from entity_env.games.azul import AzulSelfPlay
    from entity_env.vec import VecEnv

    others = {"greedy": 1.0, "rush": 1.0, "random": 1.0, "self": 1.0}
    net = RogueNetConfig(d_model=8, n_layer=0, n_head=1)
    with VecEnv(AzulSelfPlay(others=others), 16) as tables:
        train(tables, PPOConfig(total_steps=1024, net=net, num_steps=8), out=tmp_path)
    script.main(str(tmp_path), str(tmp_path))
    with (tmp_path / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0].keys() == {"decisions", "minutes", *script.COLUMNS}
    assert float(rows[-1]["decisions"]) == 1024
    ElementTree.parse(tmp_path / "curve.svg")
