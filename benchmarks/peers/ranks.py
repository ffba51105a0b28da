"""One rank of a training run, in a separate process: `python ranks.py MEASURE ARGUMENTS`.

ARGUMENTS is one JSON object; rank 0 prints a JSON list with the result of every rank. Rank and
world size come from the variables that torchrun sets; without them there is one rank. `timed` uses
only names that an earlier release has too, so two checkouts can be compared.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.cli.load_game import load_game
from entity_env.vec.game_training import make_training_env

RANK = int(os.environ.get("RANK", "0"))
_SKIPPED = 3
"""Number of first updates that are not timed, because they compile."""


def _digest(net: torch.nn.Module) -> int:
    digest = 0
    for value in net.state_dict().values():
        digest = zlib.crc32(value.numpy().tobytes(), digest)
    return digest


def timed(game: str, num_envs: int, updates: int, **settings: Any) -> dict[str, float]:  # noqa: ANN401 - JSON
    """Decisions per second of this rank's share of a run, by processor time and by the clock."""
    marks: list[tuple[int, float, float]] = []

    def mark(progress: TrainProgress) -> None:
        if progress.update >= _SKIPPED:
            marks.append((progress.step, time.process_time(), time.perf_counter()))

    size = dist.get_world_size() if dist.is_initialized() else 1
    total = updates * 16 * num_envs * size
    config = PPOConfig(total_steps=total, num_steps=16, **settings)
    with make_training_env(load_game(game, ()), num_envs, 0, None, "raise") as vec:
        result = train(vec, config, on_update=mark)
    steps, cpu, wall = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    return {
        "steps_per_cpu_s": steps / size / cpu,
        "steps_per_s": steps / wall,
        "reward": result.progress.mean_reward,
        "digest": _digest(result.net),
    }


class _Prescribed:
    """Random generator that returns a given permutation."""

    def __init__(self, order: NDArray[np.int64]) -> None:
        self._order = order

    def permutation(self, _: object) -> NDArray[np.int64]:
        return self._order


def difference(game: str, weights: list[int]) -> dict[str, float]:
    """Largest parameter difference to a single process, after an update on equal minibatches."""
    from entity_env.agents.ppo.learner import new_learner
    from entity_env.agents.ppo.ppo import collect, learn
    from entity_env.agents.ppo.rollout import Collector
    from entity_env.agents.training.peers import ALONE, Peers, TorchPeers

    num_minibatches, part = 2, sum(weights)
    with make_training_env(load_game(game, ()), 64, 0, None, "raise") as vec:
        config = PPOConfig.for_env(vec, target_kl=None)
        learner = new_learner(vec, config)
        obs = vec.reset(seed=1)
        learner.net.update_statistics(obs)
        collector = Collector(vec, learner.net, learner.generator, obs, config.at(0))
        rollout = collect(collector, 16, lambda _: None)
    used = len(rollout.b_inds) // (num_minibatches * part) * num_minibatches * part
    rollout = replace(rollout, b_inds=rollout.b_inds[:used])
    config = replace(config, minibatch_size=used // num_minibatches)
    # Each rank gets its share, in proportion to its weight, of every minibatch.
    parts = rollout.b_inds.reshape(num_minibatches, -1, part)
    before = sum(weights[:RANK])
    own = parts[:, :, before : before + weights[RANK]].reshape(-1)

    def learnt(order: NDArray[np.int64], peers: Peers) -> torch.nn.Module:
        net = copy.deepcopy(learner.net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=config.at(0).learning_rate, eps=1e-5)
        rng: Any = _Prescribed(order)
        learn(
            net,
            optimizer,
            replace(rollout, b_inds=order),
            replace(config.at(0), ent_coef=0.01),
            rng,
            1.0,
            peers,
        )
        return net

    alone = learnt(parts.reshape(-1), ALONE)
    peers = TorchPeers(torch.device("cpu"), 60)
    together = learnt(own, peers)
    peers.close()
    pairs = [*zip(alone.parameters(), together.parameters(), strict=True)]
    moved = [*zip(alone.parameters(), learner.net.parameters(), strict=True)]
    return {
        "difference": max(float((a - b).detach().abs().max()) for a, b in pairs),
        "moved": max(float((a - b).detach().abs().max()) for a, b in moved),
    }


def main() -> None:
    """Measures; rank 0 prints the results of all ranks."""
    torch.set_num_threads(1)
    is_group = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_group:
        dist.init_process_group("gloo")
    measures: dict[str, Callable[..., dict[str, float]]] = {
        "timed": timed,
        "difference": difference,
    }
    found = measures[sys.argv[1]](**json.loads(sys.argv[2]))
    ranks: list[Any] = [found]
    if is_group:
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, found)
        dist.destroy_process_group()
    if not RANK:
        print(json.dumps(ranks))


if __name__ == "__main__":
    main()
