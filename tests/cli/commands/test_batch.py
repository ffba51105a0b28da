"""The commands with games that are batch environments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from entity_env import Action, Observation, Turn
from entity_env.agents import PolicyAgent, RandomAgent
from entity_env.agents.rogue_net.checkpoints.folder import find_checkpoint, read_header
from entity_env.check import check_game
from entity_env.cli import main
from entity_env.cli.load_game import load_game
from entity_env.core.spaces import differences
from entity_env.games import GAMES, cartpole, snake
from entity_env.vec.batch_env.vec_env import BatchEnvSource
from entity_env.vec.game_training import is_batch, make_vec_env, preset_of
from tests.helpers.batches import BATCHES

SMALL = ("--num-envs=4", "--set-train=net={d_model=8,n_layer=1,n_head=1}")
# `pixel` needs a program to run, and has its own tests.
PLAYED = {name: make for name, make in BATCHES.items() if name != "pixel"}
each_name = pytest.mark.parametrize("name", PLAYED)


def run(*args: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, args, input=typed)


class Steady(PolicyAgent):
    """Always chooses the first label, or the lowest torque."""

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        return {
            question.name: question.action([[-2.0]] if question.name == "Torque" else [0])
            for question in self.questions(observation)
        }


class TestGames:
    @each_name
    def test_have_the_spaces_of_their_batch(self, name: str) -> None:
        game, env = GAMES[name], PLAYED[name](1)
        ours, theirs = ((each.obs_space(), each.action_space()) for each in (game, env))
        assert differences(ours, theirs) == []

    @each_name
    def test_play_what_their_batch_plays(self, name: str) -> None:
        turns: list[Turn] = []
        [episode] = GAMES[name].run(Steady(), seed=4, watch=turns.append, max_episode_steps=30)
        env = PLAYED[name](3, max_episode_steps=30)
        env.reset(seed=episode.seed)
        [space] = env.action_space().values()
        action = -2.0 if hasattr(space, "low") else 0
        score = 0.0
        for i, turn in enumerate(turns):
            [rows] = turn.observation.features.values()
            numbers = np.append(np.ravel(rows), turn.observation.global_features)
            np.testing.assert_array_equal(numbers.astype(np.float32), env.view().obs(0))
            assert turn.score == pytest.approx(score)
            assert turn.observation.done == env.view().is_done(0) == (i == len(turns) - 1)
            assert turn.observation.terminated == env.view().is_terminal(0)
            if not turn.observation.done:
                mask = env.view().to_reset_mask()
                env.reset_envs(mask)
                env.step_no_reset(np.full(3, action))
                score += float(env.view().rewards[0])
        assert episode.length == len(turns) - 1
        assert episode.reward == pytest.approx(score)

    @pytest.mark.slow
    @each_name
    def test_keep_the_contract(self, name: str) -> None:
        check_game(GAMES[name], new_process=not GAMES[name].name.startswith("pixel"))

    @each_name
    def test_repeat_themselves(self, name: str) -> None:
        one, other = (GAMES[name].run(RandomAgent(1), seed=3, episodes=4) for _ in range(2))
        assert one == other
        assert len({episode.seed for episode in one}) == 4

    @each_name
    def test_every_setting_is_documented(self, name: str) -> None:
        for setting in GAMES[name].parameters:
            assert f"\n    {setting}: " in (getdoc(GAMES[name].play) or "")


class TestCopies:
    @each_name
    def test_are_a_batch_with_the_settings_of_the_game(self, name: str) -> None:
        game = load_game(name, ["max_episode_steps=3"])
        with make_vec_env(game, 5) as vec:
            assert isinstance(vec._source, BatchEnvSource)
            obs = vec.reset()
            agent = RandomAgent(1)
            for _ in range(3):
                obs = vec.act(agent.decide_batch(obs, game.schema))
            assert [episode.length for episode in obs.episodes] == [3] * 5

    def test_of_other_games_are_games(self) -> None:
        assert not is_batch(snake)
        with make_vec_env(snake, 2) as vec:
            assert not isinstance(vec._source, BatchEnvSource)

    def test_a_game_of_the_same_name_is_another_one(self, tmp_path: Path) -> None:
        text = "from entity_env.games.snake import *\ncartpole = Game(play, entities=(Head, "
        text += 'Segment, Food), actions=(Move,), name="cartpole")\n'
        (tmp_path / "own.py").write_text(text)
        assert not is_batch(load_game(f"{tmp_path / 'own.py'}:cartpole"))


class TestCommands:
    def test_games_lists_them(self) -> None:
        result = run("games")
        assert result.exit_code == 0
        assert all(name in result.stdout for name in BATCHES)
        assert "Keep a pole upright" in result.stdout
        assert "max_episode_steps=500" in result.stdout

    @each_name
    def test_play_draws_and_reports(self, name: str) -> None:
        result = run("play", name, "--seed", "1", "--set", "max_episode_steps=4")
        assert result.exit_code == 0
        assert f"{name}  episode 1" in result.stdout
        assert any(mark in result.stdout for mark in ("⣿█" if "pixel" in name else "◉─●"))
        end = r"episode 1: reward \S+, 4 steps, truncated \(--episode-seed \d+\)\nseed 1\n$"
        assert re.search(end, result.stdout)

    def test_a_person_pushes(self) -> None:
        result = run("play", "cartpole", "--agent", "human", "--seed", "1", typed="a\nd\nq\n")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "▟███▙" in result.stdout
        assert result.stdout.endswith("left before the end\nseed 1\n")

    def test_a_person_turns(self) -> None:
        typed = "1.5\n-2\nq\n"
        result = run("play", "pendulum", "--agent", "human", "--seed", "1", typed=typed)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "left before the end" in result.stdout

    @each_name
    def test_eval_reports_figures(self, name: str) -> None:
        words = ("--episodes", "5", "--num-workers", "0", "--json", "--set", "max_episode_steps=6")
        figures = json.loads(run("eval", name, *words).stdout)
        assert figures["episodes"] == 5
        assert figures["mean_length"] == 6

    def test_bench_measures_the_batch(self) -> None:
        result = run("bench", "cartpole", "--seconds", "0.05", "--num-envs", "16")
        assert result.exit_code == 0
        assert "16 copies in a BatchVecEnv" in result.stdout

    def test_an_unknown_setting(self) -> None:
        result = run("train", "cartpole", "--set", "gravity=3")
        assert result.exit_code == 2
        assert "gravity" in result.stderr

    @pytest.mark.parametrize("steps", ["0", "-3"])
    def test_a_length_that_makes_no_sense(self, steps: str) -> None:
        result = run("train", "cartpole", "--set", f"max_episode_steps={steps}", *SMALL)
        assert result.exit_code == 2
        assert "max_episode_steps" in result.stderr

    @pytest.mark.slow
    @each_name
    def test_trains_plays_and_evaluates(self, name: str, tmp_path: Path) -> None:
        out = tmp_path / "run"
        words = ("--set", "max_episode_steps=20")
        result = run("train", name, *SMALL, "--steps", "256", "--out", str(out), *words)
        assert (result.exit_code, result.stderr) == (0, "")
        assert re.search(r"^trained \d+ steps", result.stdout, re.M)
        played = run("play", name, "--agent", str(out), "--no-render", "--seed", "2", *words)
        assert re.search(r"episode 1: reward \S+, \d+ steps", played.stdout)
        evaluate = ("--episodes", "3", "--num-workers", "0", "--greedy", "--json", *words)
        assert json.loads(run("eval", name, "--agent", str(out), *evaluate).stdout)["episodes"] == 3

    @pytest.mark.slow
    def test_training_goes_on_with_the_same_settings(self, tmp_path: Path) -> None:
        words = ("train", "cartpole", *SMALL, "--out", str(tmp_path))
        run(*words, "--steps", "128", "--gamma", "0.9")
        result = run(*words[:3], "--out", str(tmp_path), "--resume", "--steps", "256")
        assert result.exit_code == 0
        config = settings_in(tmp_path)
        assert (config["gamma"], config["clip_vloss"]) == (0.9, False)


def settings_in(out: Path) -> dict[str, Any]:
    config = read_header(find_checkpoint(out)).training["config"]
    assert isinstance(config, dict)
    return config


def test_games_have_settings_of_their_own() -> None:
    assert preset_of(cartpole).num_envs == 16
    assert preset_of(snake).name == "entities"
    assert preset_of(load_game("gymnasium:CartPole-v1")).name == "control"
