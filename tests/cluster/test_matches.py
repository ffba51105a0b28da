"""Blocks of episodes and games give equal results wherever they are played."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from entity_env import Game
from entity_env.agents import RandomAgent
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.cli import main
from entity_env.cluster.matches import chunks, play_blocks
from entity_env.cluster.session import Portable, connect
from entity_env.errors import UsageError, WorkerError
from entity_env.games import snake, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.vec import VecEnv
from entity_env.vec.evaluation.episodes import block_seed
from entity_env.vec.evaluation.matches import MatchGames

slow = pytest.mark.slow
with_ray = pytest.mark.timeout(300)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


def as_json(*words: str) -> object:
    code, stdout, stderr = run("eval", *words, "--json")
    assert code == 0, stderr
    return json.loads(stdout)


# ------------------------------------------------------------------ blocks


@given(num_blocks=st.integers(1, 500), num_cpus=st.integers(1, 20))
def test_chunks_hold_every_block_once(num_blocks: int, num_cpus: int) -> None:
    found = chunks(num_blocks, num_cpus)
    assert [block for chunk in found for block in chunk] == list(range(num_blocks))
    assert len(found) == min(num_blocks, 8 * num_cpus)
    lengths = [len(chunk) for chunk in found]
    assert max(lengths) - min(lengths) <= 1


def test_the_first_block_has_the_seed_of_the_run() -> None:
    assert block_seed(7, 0) == 7
    assert len({block_seed(seed, block) for seed in (7, 8) for block in range(50)}) == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "game", [tic_tac_toe, azul.with_settings(max_rounds=1)], ids=["tic_tac_toe", "azul"]
)
def test_a_match_is_its_blocks(game: Game) -> None:
    """Blocks played one at a time, in reverse order, equal the match."""
    games = MatchGames(
        game=game, names="abc", make=lambda name, seed: RandomAgent(seed), num_games=24, seed=3
    )
    whole = games.run()
    count = len(games.blocks)
    found = [games.play(range(i, i + 1), lambda _: None) for i in reversed(range(count))]
    assert tuple(result for part in reversed(found) for result in part) == whole.games
    assert len(whole.games) == 72
    assert len({game.scores for game in whole.games}) > 1


def test_workers_are_for_a_run_without_ray() -> None:
    assert (
        "--num-workers cannot be combined with --ray"
        in run("eval", "snake", "--ray=auto", "--num-workers=2")[2]
    )


def test_agents_are_refused_before_ray_starts() -> None:
    for words in (["--agent", "randm"], ["--agents", "random,randm"]):
        code, _, stderr = run("eval", "tic_tac_toe", "--ray", "nowhere", *words)
        assert code == 2
        assert "did you mean random?" in stderr
    assert "not the address of a Ray cluster" in run("eval", "snake", "--ray", "nowhere")[2]


def test_a_portable_value_brings_the_path_and_the_folder_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_there.py").write_text("VALUE = 5\n\n\ndef value():\n    return VALUE\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import found_there  # type: ignore[import-not-found]

    sent = cloudpickle.dumps(Portable(found_there.value))
    code = "import os, pickle, sys; print(pickle.load(sys.stdin.buffer).value(), os.getcwd())"
    got = subprocess.run([sys.executable, "-c", code], input=sent, stdout=-1, cwd="/", check=True)
    assert got.stdout.decode().split() == ["5", str(tmp_path)]
    assert pickle.loads(sent).value is found_there.value


# ------------------------------------------------------------------ with Ray


@slow
@with_ray
def test_results_with_ray_are_those_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of one and of several random agents; the agent's folder is a relative path."""
    monkeypatch.chdir(tmp_path)
    with VecEnv(snake, 16) as vec:
        train(vec, PPOConfig(total_steps=256, net=RogueNetConfig(16, 1)), out="trained")
    one = ("snake", "--agent", "trained", "--episodes", "1100", "--seed", "5")
    several = ("rock_paper_scissors", "--episodes", "250")
    match = ("tic_tac_toe", "--agents", "random,./random", "--games", "60")
    with VecEnv(tic_tac_toe, 16) as vec:
        train(vec, PPOConfig(total_steps=256, net=RogueNetConfig(16, 1)), out="random")
    with connect("local", num_cpus=1):
        for words in (one, several, match, ("azul", "--agents", "greedy,random", "--games", "60")):
            assert as_json(*words, "--ray", "auto") == as_json(*words)


def dies_once(folder: Path, blocks: range) -> list[int]:
    mark = folder / str(blocks.start)
    if blocks.start % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [block * block for block in blocks]


def always_dies(blocks: range) -> list[int]:
    os._exit(1)


def refuses(blocks: range) -> list[int]:
    raise UsageError(f"no blocks {blocks}")


@slow
@with_ray
def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    told: list[int] = []
    with connect("local", num_cpus=1):
        found = play_blocks(partial(dies_once, tmp_path), 40, on_result=told.append)
        assert any(tmp_path.iterdir())
        assert found == [block * block for block in range(40)]
        assert sorted(told) == found
        with pytest.raises(WorkerError, match="died 4 times"):
            play_blocks(always_dies, 1)
        with pytest.raises(UsageError, match="no blocks range"):
            play_blocks(refuses, 3)


@slow
@with_ray
def test_an_error_of_a_game_is_shown_with_its_traceback(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text(
        "from enum import Enum\nfrom entity_env import Game, Obs\n"
        "Move = Enum('Move', 'A B')\n"
        "def play(agent, *, seed: int) -> None:\n"
        "    if agent.act(Obs(), Move) is not None:\n"
        "        raise ValueError('as expected')\n"
        "game = Game(play, entities=(), actions=(Move,))\n"
    )
    code, stdout, stderr = run("eval", str(file), "--ray", "local")
    assert code == 1
    assert not stdout
    assert stderr == run("eval", str(file), "--num-workers=0")[2]
    assert 'fails.py", line 6' in stderr
    assert "ValueError: as expected" in stderr
