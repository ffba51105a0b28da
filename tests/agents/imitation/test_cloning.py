import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from entity_env import Observation, UsageError
from entity_env.agents import RandomAgent, load_agent
from entity_env.agents.imitation import (
    CloneConfig,
    CloneResult,
    Dataset,
    DatasetRecorder,
    clone,
)
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.agents.ppo import MLPPolicy, Policy, PPOConfig, TrainProgress, train
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.torch_net.checkpoint import load_checkpoint, save_checkpoint
from entity_env.agents.rogue_net.torch_net.distributions import ActionDistribution
from entity_env.agents.training.tracking.runs import read_run
from entity_env.core.observation import Action
from entity_env.core.vec_obs import EntityBatch
from entity_env.errors import TrainingDivergedError
from entity_env.games import cherry_pick, treasure_hunt
from entity_env.vec import VecEnv
from tests.agents.imitation.decisions import dots, dots_dataset
from tests.helpers.continuous_games import bodies_game

SMALL = RogueNetConfig(d_model=16, n_layer=1, n_head=1)
NET = CloneConfig(epochs=15, minibatch_size=12, net=SMALL, learning_rate=0.01)
QUICK = CloneConfig(epochs=15, minibatch_size=12, learning_rate=0.1)
"""Settings for a `Table`, whose steps are fast."""


class Table(Policy):
    """A custom network: logits and a value for each position of the dot."""

    def __init__(self, *spaces: object) -> None:
        super().__init__(*spaces)  # type: ignore[arg-type]  # a pair
        self.logits, self.worth = nn.Embedding(3, 3), nn.Embedding(3, 1)

    def distributions(self, batch: EntityBatch) -> tuple[dict[str, ActionDistribution], Tensor]:
        place = torch.from_numpy(batch.features["Dot"].values[:, 0].astype(np.int64) + 1)
        logits = self.labels("Go", self.logits(place), batch)
        return {"Go": logits}, self.worth(place).squeeze(1)


def nll_of(net: Policy, dataset: Dataset) -> float:
    with torch.no_grad():
        samples = {name: each.values for name, each in dataset.actions.items()}
        return -float(net.evaluate(dataset.obs, samples).logprobs.mean())


@pytest.mark.slow
@pytest.mark.parametrize("policy", [None, Table, MLPPolicy])
def test_a_network_learns_what_was_chosen(policy: type[Policy] | None) -> None:
    dataset = dots_dataset(20)
    if policy is MLPPolicy:
        spaces = dataset.spaces
        single = replace(spaces[0].entities["Dot"], is_single=True)
        dataset = replace(dataset, obs_space=replace(spaces[0], entities={"Dot": single}))
    result = clone(dataset, QUICK if policy is Table else NET, policy=policy)
    assert result.held_out.accuracy == 1
    assert result.held_out.nll < 0.3
    assert (result.num_decisions, result.num_episodes, result.num_held_out) == (108, 18, 12)
    [episode] = dots.run(NeuralAgent(result.net, greedy=True), seed=99, length=50)
    assert episode.reward == 50


@pytest.mark.slow
def test_the_value_is_that_of_the_returns() -> None:
    result = clone(dots_dataset(20), replace(QUICK, gamma=0.0), policy=Table)
    # The reward is always 1, for any observation.
    values = result.net.values(dots_dataset(2, seed=9).obs)
    assert values == pytest.approx(np.ones(12), abs=0.1)
    # The number of steps left, 6 to 1, is not observed: 3.5 is the best guess.
    result = clone(dots_dataset(20), replace(QUICK, gamma=1.0), policy=Table)
    assert result.net.values(dots_dataset(2, seed=9).obs) == pytest.approx(3.5 * np.ones(12), abs=1)
    assert abs(result.held_out.explained_variance) < 0.3


def test_without_a_value_the_rewards_do_not_matter() -> None:
    dataset = dots_dataset(10)
    config = replace(QUICK, vf_coef=0.0, epochs=2)
    first = clone(dataset, config, policy=Table)
    others = replace(dataset, reward=dataset.reward * 1000)
    second = clone(others, config, policy=Table)
    assert np.isnan(first.held_out.explained_variance)
    assert first.held_out.nll == second.held_out.nll


@pytest.mark.slow
def test_real_numbers_are_learnt() -> None:
    class Pusher(PolicyAgent):
        def decide(self, observation: Observation) -> dict[str, Action]:
            [question] = self.questions(observation)
            x = np.asarray(observation.features.get("Body", np.zeros((0, 1))))[:, :1]
            return {question.name: question.action(np.hstack([1.6 * x, 50 - 40 * x]))}

    recorder = DatasetRecorder()
    bodies_game.run(Pusher(), seed=1, episodes=30, watch=recorder)
    dataset = recorder.dataset()
    result = clone(dataset, replace(NET, epochs=30))
    assert np.isnan(result.held_out.accuracy)
    assert result.held_out.nll < 2.5  # about 5 at first: a density of two numbers per actor
    chosen = result.net.act(dataset.obs, greedy=True).actions["push"]
    error = (chosen - dataset.actions["push"].values) / (2.0, 50.0)
    assert np.sqrt(np.square(error).mean()) < 0.25


@pytest.mark.slow
def test_the_best_network_is_kept(tmp_path: Path) -> None:
    # A network soon overfits to so few noisy decisions.
    dataset = dots_dataset(12, noise=0.7)
    seen: list[TrainProgress] = []
    config = replace(QUICK, epochs=400, held_out=0.4, minibatch_size=6)
    result = clone(dataset, config, policy=Table, on_update=seen.append)
    nlls = [progress.metrics["held_out/nll"] for progress in seen]
    assert result.epoch == 1 + int(np.argmin(nlls))
    assert result.held_out.nll == min(nlls)
    assert len(seen) < 400, "it ended early"
    held_out = np.setdiff1d(np.arange(12), held_episodes(result, dataset, config))
    assert len(held_out) == 7


def held_episodes(result: CloneResult, dataset: Dataset, config: CloneConfig) -> list[int]:
    """The held-out episodes: those on which the network has the reported figure."""
    rng = np.random.default_rng(config.seed)
    chosen = sorted(rng.permutation(np.unique(dataset.episode))[:5].tolist())
    part = dataset.filter(np.isin(dataset.episode, chosen))
    assert len(part) == result.num_held_out
    assert nll_of(result.net, part) == pytest.approx(result.held_out.nll, rel=1e-5)
    return chosen


def test_it_repeats_itself() -> None:
    dataset, config = dots_dataset(10), replace(NET, epochs=2)
    first, second = (clone(dataset, config).net.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = clone(dataset, replace(config, seed=2)).net.state_dict()
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_statistics_are_those_of_the_decisions() -> None:
    dataset = dots_dataset(20)
    result = clone(dataset, replace(NET, epochs=1, held_out=0))
    state = result.net.state_dict()
    [mean] = [value for name, value in state.items() if name.endswith("Dot.0.mean")] or [
        value for name, value in state.items() if "Dot" in name and name.endswith("mean")
    ]
    assert mean.item() == pytest.approx(dataset.obs.features["Dot"].values.mean(), abs=1e-5)


def test_without_held_out_episodes_the_last_network_is_kept() -> None:
    result = clone(dots_dataset(1), replace(QUICK, epochs=4, held_out=0), policy=Table)
    assert (result.epoch, result.num_held_out) == (4, 0)
    assert np.isnan(result.held_out.nll)


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    def interrupt(progress: TrainProgress) -> None:
        if progress.update == 3:
            os.kill(os.getpid(), signal.SIGINT)

    dataset = dots_dataset(20)
    result = clone(dataset, NET, out=tmp_path / "run", on_update=interrupt)
    assert result.is_interrupted
    assert result.progress.update == 3
    assert load_checkpoint(tmp_path / "run").training["epoch"] == result.epoch


def test_ctrl_c_in_the_first_epoch_leaves_a_network(tmp_path: Path) -> None:
    class Interrupted(Table):
        def evaluate(self, *args: object) -> object:  # type: ignore[override]
            if self.training:
                os.kill(os.getpid(), signal.SIGINT)
            return super().evaluate(*args)  # type: ignore[arg-type]

    dataset = dots_dataset(20)
    result = clone(dataset, replace(QUICK, minibatch_size=10), policy=Interrupted, out=tmp_path)
    assert result.is_interrupted
    assert result.progress.update == 0
    assert result.held_out.nll > 0
    assert (tmp_path / "checkpoint").is_dir()


def test_a_clone_replaces_no_trained_agent(tmp_path: Path) -> None:
    dataset, path = dots_dataset(3), tmp_path / "checkpoint"
    save_checkpoint(path, Table(*dataset.spaces))
    kept = {each: each.read_bytes() for each in path.iterdir()}
    with pytest.raises(UsageError, match="holds a trained agent: choose another folder"):
        clone(dataset, replace(QUICK, epochs=1), policy=Table, out=tmp_path)
    assert {each: each.read_bytes() for each in path.iterdir()} == kept


@pytest.mark.slow
def test_a_run_folder_like_that_of_training(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = clone(dots_dataset(20), NET, out=out, about={"game": "dots"})
    assert result.checkpoint == out / "checkpoint"
    run = read_run(out)
    assert run.about["algorithm"] == "behavioral cloning"
    assert min(run.curves["held_out/nll"].values) == pytest.approx(result.held_out.nll)
    assert json.loads((out / "run.json").read_text())["config"]["held_out"] == 0.1
    [episode] = dots.run(load_agent(out, greedy=True), seed=5, length=30)
    assert episode.reward == 30
    with VecEnv(dots, 4) as vec:  # PPO continues from the cloned network
        net = load_checkpoint(out).net
        config = PPOConfig.for_env(vec, total_steps=400, net=SMALL, num_steps=25)
        tuned = train(vec, config, policy=net)
    assert tuned.progress.mean_reward > 5.5


MISTAKES: list[tuple[dict[str, object], str]] = [
    ({"epochs": 0}, "epochs"),
    ({"held_out": 1.0}, "held_out must be a number from 0 to below 1"),
    ({"held_out": float("nan")}, "held_out"),
    ({"learning_rate": 0}, "above 0"),
    ({"learning_rate": float("inf")}, "learning_rate"),
    ({"gamma": 1.1}, "gamma must be a number from 0 to 1"),
    ({"net": "large"}, "net must be"),
    ({"seed": -1}, "seed"),
    ({"num_threads": 0}, "num_threads"),
]


@pytest.mark.parametrize(("settings", "problem"), MISTAKES)
def test_settings_that_cannot_work(settings: Mapping[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        CloneConfig(**settings)  # type: ignore[arg-type]  # of any type


def test_mistakes_are_named_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    dataset = dots_dataset(2)
    with pytest.raises(UsageError, match="no decisions"):
        clone(dataset.select([]), out=out)
    with pytest.raises(UsageError, match="only one episode"):
        clone(dots_dataset(1), out=out)
    recorder = DatasetRecorder()
    treasure_hunt.run(RandomAgent(1), episodes=2, watch=recorder)
    with pytest.raises(UsageError, match="made for other spaces"):
        clone(recorder.dataset(), policy=Table(*dataset.spaces), out=out)
    with pytest.raises(UsageError, match="device"):
        clone(dataset, CloneConfig(device="nowhere"), out=out)
    assert not out.exists()


def test_divergence_is_named_and_the_best_is_kept(tmp_path: Path) -> None:
    class Breaking(Table):
        count = 0

        def evaluate(self, *args: object) -> object:  # type: ignore[override]
            found = super().evaluate(*args)  # type: ignore[arg-type]
            self.count += self.training
            return (
                replace(found, logprobs=found.logprobs * float("nan")) if self.count > 9 else found
            )

    with pytest.raises(TrainingDivergedError, match=r"checkpoint has the network of epoch [123]"):
        clone(dots_dataset(30), replace(QUICK, minibatch_size=54), policy=Breaking, out=tmp_path)
    assert load_checkpoint(tmp_path, Table(*dots_dataset(1).spaces)).training["epoch"] in (1, 2, 3)


def test_an_mlp_of_another_size() -> None:
    dataset = dots_dataset(5)
    single = replace(dataset.obs_space.entities["Dot"], is_single=True)
    dataset = replace(dataset, obs_space=replace(dataset.obs_space, entities={"Dot": single}))
    result = clone(dataset, CloneConfig(epochs=1, held_out=0, net=MLPConfig(hidden=(7,))))
    assert isinstance(result.net, MLPPolicy)
    assert result.net.config.hidden == (7,)
    assert result.net.input_norm is not None
    mean, deviation = result.net.input_norm.scale()
    seen = dataset.obs.features["Dot"].values
    np.testing.assert_allclose(mean.numpy(), seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(deviation.numpy(), seen.std(axis=0, ddof=1), rtol=1e-5)


class BestCherry(PolicyAgent):
    """Picks the cherry with the largest feature."""

    def decide(self, observation: Observation) -> dict[str, Action]:
        [question] = self.questions(observation)
        return {question.name: question.action([np.argmax(observation.features["Cherry"])])}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_scripted_player_is_imitated(seed: int) -> None:
    recorder = DatasetRecorder()
    taught = cherry_pick.run(BestCherry(), seed=seed, episodes=60, watch=recorder)
    config = CloneConfig(epochs=25, net=SMALL, minibatch_size=16, learning_rate=0.005, seed=seed)
    result = clone(recorder.dataset(), config)
    assert result.held_out.accuracy > 0.6
    played = cherry_pick.run(NeuralAgent(result.net, greedy=True), seed=99, episodes=60)
    chance = cherry_pick.run(RandomAgent(seed), seed=99, episodes=60)
    teacher, reward, random = (
        np.mean([episode.reward for episode in episodes]) for episodes in (taught, played, chance)
    )
    assert reward - random > 0.9 * (teacher - random)
