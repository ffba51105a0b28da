"""RLlib's PPO on snake with padded observations: prints microseconds of processor time per step.

Our Gymnasium environment pads entities to a fixed number, and RLlib flattens them for its default
MLP. The number of environments and the minibatch size are ours. The first iterations, for warm-up,
are not counted.
"""

from __future__ import annotations

import statistics
import time

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.tune.registry import register_env

from entity_env.games import snake
from entity_env.interop.gymnasium import GameEnv

_ITERATIONS, _WARM_UP = 7, 2


def main() -> None:
    """Measures and prints the median."""
    torch.set_num_threads(1)
    register_env("snake", lambda _: GameEnv(snake, max_entities={"Segment": 99}))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    config = (
        PPOConfig()
        .environment("snake")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=32,
            rollout_fragment_length=64,
            env_to_module_connector=lambda *_, **__: FlattenObservations(),
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=2048, minibatch_size=1024, num_epochs=3)
    )
    algorithm = config.build_algo()
    costs = []
    for _ in range(_ITERATIONS):
        begin = time.process_time()
        result = algorithm.train()
        steps = result["env_runners"]["num_env_steps_sampled"]
        costs.append((time.process_time() - begin) / float(steps) * 1e6)
    algorithm.stop()
    ray.shutdown()
    print(statistics.median(costs[_WARM_UP:]))


if __name__ == "__main__":
    main()
