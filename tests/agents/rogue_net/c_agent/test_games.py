"""Games in C that an agent plays in the same program have the episodes of Python."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.peers.network_in_c import HEADERS
from benchmarks.peers.network_vectors import random_weights
from entity_env import Game
from entity_env.agents import load_agent
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.core.spaces import ContinuousActionSpace, ObsSpace
from tests import ROOT
from tests.vec.external.twins import parts, roads, twin_of

SNAKE = ROOT / "examples" / "ship" / "snake.agent"
ODD = ROOT / "tests" / "vec" / "external" / "odd_games.c"
PLAYER = Path(__file__).with_name("player.c")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="gcc and g++ are not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(300),  # compiles with sanitizers
]


def _compiled(source: Path, target: Path, *words: str) -> Path:
    strict = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(HEADERS)]
    subprocess.run([*words, *strict, str(source), "-o", str(target), "-lm"], check=True)
    return target


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("options", [(), SANITIZERS], ids=["plain", "sanitized"])
def test_a_shipped_program_plays_as_python(options: tuple[str, ...], tmp_path: Path) -> None:
    program = _compiled(HEADERS / "ship.cpp", tmp_path / "ship", "g++", "-std=c++11", *options)
    for seed in range(6):
        [episode] = twin_of("snake").run(load_agent(SNAKE, greedy=True), seed=seed)
        found = _output(str(program), str(SNAKE), str(episode.seed))
        assert found == f"The snake ate {episode.reward:.0f} times.\n"


@pytest.mark.parametrize("name", ["snake", "cherry_pick", "multi_snake", "tic_tac_toe"])
def test_whole_episodes_equal_those_of_python(name: str, tmp_path: Path) -> None:
    """Selections, several agents, masks, games that own their loop, and agents that remember."""
    trained = SNAKE if name == "snake" else ROOT / "examples" / "gallery" / f"{name}.agent"
    game = f'-DGAME="games/{name}.c"'
    program = _compiled(PLAYER, tmp_path / "player", "gcc", "-std=c99", game, *SANITIZERS)
    twin, remembers = twin_of(name), tmp_path / "remembers.agent"
    spaces, size = (twin.obs_space(), twin.action_space()), RogueNetConfig(d_model=16, memory=8)
    write_agent(remembers, random_weights(spaces, size))
    for path, seed in itertools.product((trained, remembers), range(4)):
        agents = [load_agent(path, greedy=True) for _ in range(twin.num_agents)]
        episodes = twin.run(*agents, seed=seed)
        wanted = [f"{episode.reward:.6f}" for episode in episodes]
        assert _output(str(program), str(path), str(episodes[0].seed)).split() == wanted


def test_an_agent_of_another_game_is_refused(tmp_path: Path) -> None:
    program = _compiled(HEADERS / "ship.cpp", tmp_path / "ship", "g++", "-std=c++11")
    other = ROOT / "examples" / "gallery" / "cherry_pick.agent"
    done = subprocess.run([str(program), str(other)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "the agent expects" in done.stderr
    missing = subprocess.run([str(program), "nothing"], capture_output=True, text=True)
    assert (missing.returncode, missing.stderr) == (1, "nothing: cannot open nothing\n")


@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations_equal_those_of_python(
    twin: Game, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    spaces = twin.obs_space(), twin.action_space()
    net = RogueNet(*spaces, RogueNetConfig(d_model=16, n_layer=1))
    path = tmp_path / "untrained.agent"
    write_agent(path, net.weights())
    words = f'-DGAME="{ODD}"', f'-DWORD="{twin.name}"', *SANITIZERS
    program = _compiled(PLAYER, tmp_path / "player", "gcc", "-std=c99", *words)
    for seed in range(8):
        [episode] = twin.run(load_agent(path, greedy=True), seed=seed)
        found = float(_output(str(program), str(path), str(episode.seed)))
        assert found == pytest.approx(episode.reward, abs=1 / 15)  # one number rounded otherwise


def test_an_agent_whose_parts_are_independent_actions_is_refused(tmp_path: Path) -> None:
    spaces = dict(parts.action_space())
    weight = spaces["Haul.weight"]
    assert isinstance(weight, ContinuousActionSpace)
    spaces["Haul.weight"] = replace(weight, given=())
    path = tmp_path / "apart.agent"
    net = RogueNet(parts.obs_space(), spaces, RogueNetConfig(d_model=16, n_layer=1))
    write_agent(path, net.weights())
    game = f'-DGAME="{ODD}"'
    program = _compiled(PLAYER, tmp_path / "player", "gcc", "-std=c99", game)
    done = subprocess.run([str(program), str(path), "1"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "expects Haul.weight 0 actions before it, but the game has 3 directly" in done.stderr


def test_an_agent_of_other_relations_is_refused(tmp_path: Path) -> None:
    entities = dict(roads.obs_space().entities)
    entities["Road"] = replace(entities["Road"], references=("Car", "Car"))
    other = ObsSpace(entities=entities)
    path = tmp_path / "other.agent"
    net = RogueNet(other, roads.action_space(), RogueNetConfig(d_model=16, n_layer=1))
    write_agent(path, net.weights())
    words = f'-DGAME="{ODD}"', '-DWORD="roads"'
    program = _compiled(PLAYER, tmp_path / "player", "gcc", "-std=c99", *words)
    done = subprocess.run([str(program), str(path), "1"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "the agent expects a reference to Car, but the game has Rock" in done.stderr
