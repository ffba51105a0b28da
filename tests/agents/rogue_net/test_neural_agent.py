"""A trained network plays games, reports its probabilities, and refuses other games."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from entity_env.agents.rogue_net import NeuralAgent, RogueNet, save_checkpoint
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.observation import (
    CategoricalAction,
    GlobalCategoricalAction,
    SelectEntityAction,
)
from entity_env.errors import CheckpointError
from entity_env.games import cherry_pick, multi_snake, snake


def _net(game: Game) -> RogueNet:
    torch.manual_seed(0)
    net = RogueNet(game.obs_space(), game.action_space())
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "heads" in name:
                parameter.normal_(std=0.5)
    return net


def _play(game: Game, agent: NeuralAgent, episodes: int = 2) -> list[Turn]:
    turns: list[Turn] = []
    game.run(agent, episodes=episodes, seed=3, watch=turns.append)
    return [turn for turn in turns if turn.actions]


@pytest.mark.parametrize("game", [cherry_pick, multi_snake, snake], ids=lambda game: game.name)
def test_it_plays_and_tells_its_probabilities(game: Game) -> None:
    turns = _play(game, NeuralAgent(_net(game), seed=1))
    assert turns
    for turn in turns:
        for action in turn.actions.values():
            assert isinstance(
                action, CategoricalAction | GlobalCategoricalAction | SelectEntityAction
            )
            assert action.probs is not None
            np.testing.assert_allclose(action.probs.sum(axis=-1), 1, rtol=1e-5)


def test_a_seed_repeats_and_greedy_takes_the_most_probable() -> None:
    net = _net(multi_snake)
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def moves(agent: NeuralAgent) -> list[list[int]]:
        turns = _play(multi_snake, agent)
        actions = [turn.actions["Move"] for turn in turns]
        return [a.indices.tolist() for a in actions if isinstance(a, CategoricalAction)]

    assert moves(NeuralAgent(net, seed=1)) == moves(NeuralAgent(net, seed=1))
    for turn in _play(multi_snake, NeuralAgent(net, greedy=True)):
        action = turn.actions["Move"]
        assert isinstance(action, CategoricalAction)
        assert action.probs is not None
        np.testing.assert_array_equal(action.indices, action.probs.argmax(axis=1))
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_it_loads_and_refuses_other_games(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", _net(multi_snake))
    agent = NeuralAgent.load(tmp_path, seed=0)
    assert _play(multi_snake, agent)
    with pytest.raises(CheckpointError, match=r"the checkpoint has the feature 'color', the game"):
        snake.run(agent, episodes=1)
