"""One training run on a game: `python -m benchmarks.games.train GAME SETTINGS SEED`.

SETTINGS is a name in `SETTINGS`, a preset, or "default" (the choice of `entity-env train`), and
may be followed by changes: `default,learning_rate=0.001,net.n_head=8`. In addition to the fields of
`PPOConfig` there are `envs`, the number of environments, and `opponents=none`.

Prints one line of JSON with the scores of sampled and greedy play after training, where 0 is random
play and 1 the scripted player (see `normalized`), and the curve of mean training rewards. Runs in
one process and one thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.games.measure import measure, normalized
from benchmarks.games.registry import BENCHMARK_GAMES, BenchmarkGame
from benchmarks.peers.serve import private_stdout
from entity_env import Game
from entity_env.agents import Agent, RandomAgent
from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.agents.rogue_net.config import MLPConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import is_flat
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.rogue_net.weights import Weights
from entity_env.agents.training.presets import DEFAULT_OPPONENTS, PRESETS
from entity_env.agents.training.tracking.settings_file import parse_setting_text
from entity_env.cli.opponents import make_pool
from entity_env.cli.training import defaults_of
from entity_env.vec import VecEnv
from entity_env.vec.game_training import preset_of

DEFAULT: Final = "default"


@dataclass(frozen=True)
class Settings:
    """Settings used for every game.

    Args:
        num_envs: number of environments.
        fields: of `PPOConfig`.
        has_mlp: use an MLP in place of a RogueNet if observations have a fixed size.
    """

    num_envs: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    has_mlp: bool = False


_CAREFUL: Final[Mapping[str, Any]] = {
    "minibatch_size": 256,
    "update_epochs": 4,
    "target_kl": 0.05,
    "norm_returns": True,
    "clip_vloss": False,
    "ent_coef": 0.02,
    "norm_entropy": True,
    "max_grad_norm": 0.5,
}
SETTINGS: Final[Mapping[str, Settings]] = {
    "class": Settings(128),
    "many": Settings(
        128,
        {"learning_rate": 0.001, "minibatch_size": 256, "ent_coef": 0.1, "target_kl": 0.02},
    ),
    "board": Settings(
        128,
        {
            "net": RogueNetConfig(n_head=8),
            "num_steps": 32,
            "minibatch_size": 384,
            "update_epochs": 10,
            "learning_rate": 0.01,
            "norm_returns": True,
            "clip_vloss": False,
            "ent_coef": 0.1,
            "target_kl": 0.3,
            "max_grad_norm": 0.5,
        },
    ),
    "control": Settings(
        16,
        {
            "num_steps": 128,
            "norm_returns": True,
            "minibatch_size": 256,
            "update_epochs": 8,
            "learning_rate": 0.001,
            "gamma": 0.995,
            "ent_coef": 0.01,
            "clip_vloss": False,
            "max_grad_norm": 0.5,
        },
        has_mlp=True,
    ),
    "sb3": Settings(
        8,
        {
            "num_steps": 256,
            "minibatch_size": 64,
            "update_epochs": 10,
            "learning_rate": 0.0003,
            "anneal_learning_rate": False,
            "ent_coef": 0.0,
            "clip_vloss": False,
            "max_grad_norm": 0.5,
        },
    ),
    "long": Settings(32, {"num_steps": 64, "norm_returns": True, "ent_coef": 0.02, "gamma": 0.95}),
    "careful": Settings(64, {**_CAREFUL, "num_steps": 32, "learning_rate": 0.001}),
    "apart": Settings(
        32, {**_CAREFUL, "num_steps": 64, "net": RogueNetConfig(separate_value=True)}
    ),
}
"""The eight settings that the default is compared with: four current or former presets or defaults
("class", "many", "board", "control"), those of Stable-Baselines3, and three educated guesses."""


def final_scores(game: BenchmarkGame, weights: Weights) -> dict[str, float]:
    """Normalized scores of a network: `sampled` and `greedy`."""
    episodes = 200 if game.seats > 1 else 100

    def score(*, greedy: bool) -> float:
        def player(seed: int) -> Agent:
            return NumpyAgent(weights, greedy=greedy, seed=seed)

        others = game.scripted if game.has_company else RandomAgent
        return normalized(game, measure(game, player, others, episodes).score)

    return {"sampled": score(greedy=False), "greedy": score(greedy=True)}


def planned(
    game: BenchmarkGame, made: Game, text: str, seed: int
) -> tuple[int, Mapping[str, float], PPOConfig]:
    """Number of environments, shares of opponents, and settings of a run."""
    name, *pairs = text.split(",")
    given: list[Any] = [parse_setting_text(pair) for pair in pairs]
    changes: dict[str, Any] = {key: value for each in given for key, value in each.items()}
    if "net" in changes:
        changes["net"] = {
            key: value for each in given for key, value in each.get("net", {}).items()
        }
    shares = {} if game.seats == 1 or "opponents" in changes else DEFAULT_OPPONENTS
    changes.pop("opponents", None)
    num_envs = changes.pop("envs", None)
    if name in SETTINGS:
        fixed = SETTINGS[name]
        num_envs, fields = num_envs or fixed.num_envs, dict(fixed.fields)
        if fixed.has_mlp and is_flat(made.obs_space(), made.action_space()):
            fields["net"] = MLPConfig()
    else:
        preset = preset_of(made) if name == DEFAULT else PRESETS[name]
        sizes = (game.steps, num_envs, changes.get("num_steps"))
        num_envs, fields, _ = defaults_of(made, preset, sizes)
    start = PPOConfig(**{**fields, "total_steps": game.steps, "seed": seed})
    return num_envs, shares, start.changed(changes)


def main(name: str, text: str, seed: int) -> dict[str, Any]:
    """Trains a network and measures it."""
    game = BENCHMARK_GAMES[name]
    made = game.make()
    num_envs, shares, config = planned(game, made, text, seed)
    curve: list[tuple[int, float]] = []

    def on_update(progress: TrainProgress) -> None:
        curve.append((progress.step, progress.mean_reward))

    cpu_s, wall_s = time.process_time(), time.perf_counter()
    with VecEnv(made, num_envs) as vec:
        pool = make_pool(made, vec, shares, seed) if shares else None
        envs, callbacks = (pool.vec, [pool]) if pool else (vec, [])
        result = train(envs, config, callbacks=callbacks, on_update=on_update)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    known = [point for point in curve if point[1] == point[1]]
    return {
        "steps": result.progress.step,
        "num_envs": num_envs,
        "num_steps": config.num_steps,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        **final_scores(game, result.net.weights()),
        "curve": known,
    }


if __name__ == "__main__":
    answers = private_stdout()
    answers.write(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))) + "\n")
    answers.close()
