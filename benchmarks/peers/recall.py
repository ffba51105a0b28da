"""One training run of `benchmarks/memory.py`: `python -m benchmarks.peers.recall WHO TASK SEED`.

WHO is "ours" or "recurrent_ppo": that of sb3-contrib with its defaults, in eight environments. Runs
in the environment that `benchmarks/learning.py` makes. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import process_time
from typing import Any, Final

import gymnasium
import numpy as np
import torch

from benchmarks.peers.memory_tasks import NUM_ENVS, TASKS, MemoryTask, cartpole
from benchmarks.peers.serve import private_stdout

NUM_EPISODES: Final = 200
"""Number of greedy episodes after training."""
_EVAL_SEED: Final = 10_000


def recurrent_ppo(task: MemoryTask, seed: int) -> dict[str, float]:
    """Trains with RecurrentPPO and its defaults."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env

    vec = make_vec_env(task.make_env, n_envs=NUM_ENVS, seed=seed)
    model = RecurrentPPO("MlpLstmPolicy", vec, seed=seed, device="cpu")
    cpu_s = process_time()
    model.learn(task.total_steps)
    cpu_s = process_time() - cpu_s
    vec.close()
    return {"cpu_s": cpu_s, "steps": model.num_timesteps, "reward": _greedy(model, task)}


def _greedy(model: Any, task: MemoryTask) -> float:  # noqa: ANN401 - not installed where types are checked
    """Mean reward of greedy episodes."""
    count = 20
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = gymnasium.vector.SyncVectorEnv([task.make_env] * count, autoreset_mode=mode)
    obs, _ = envs.reset(seed=_EVAL_SEED)
    states, starts = None, np.ones(count, bool)
    totals, finished = np.zeros(count), [[] for _ in range(count)]  # type: ignore[var-annotated]
    while min(map(len, finished)) < NUM_EPISODES // count:
        actions, states = model.predict(obs, states, starts, deterministic=True)
        obs, rewards, terminated, truncated, _ = envs.step(actions)
        totals += rewards
        starts = terminated | truncated
        for i in np.flatnonzero(starts).tolist():
            finished[i].append(float(totals[i]))
            totals[i] = 0.0
    envs.close()
    # Equally many of each copy: short episodes must not count more often.
    return float(np.mean([each[: NUM_EPISODES // count] for each in finished]))


def main(arguments: Sequence[str]) -> None:
    """Makes one run."""
    answers = private_stdout()
    _who, name, seed = arguments
    torch.set_num_threads(1)
    whole = MemoryTask(100_000, lambda: cartpole(hides=False))
    task = whole if name == "cartpole" else TASKS[name]
    result = recurrent_ppo(task, int(seed))
    answers.write(json.dumps(result) + "\n")
    answers.close()


if __name__ == "__main__":
    main(sys.argv[1:])
