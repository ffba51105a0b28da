"""One training run of `benchmarks/memory.py`: `python -m benchmarks.peers.recall WHO TASK SEED`.

WHO is "ours", the command line with a memory of 32 numbers; "forgetful", without memory; or
"recurrent_ppo": that of sb3-contrib with its defaults, in eight environments. Runs in the
environment that `benchmarks/learning.py` makes. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from time import process_time
from typing import Any, Final

import gymnasium
import numpy as np
import torch

from benchmarks.peers.environment import ROOT
from benchmarks.peers.memory_tasks import NUM_ENVS, TASKS, MemoryTask
from benchmarks.peers.serve import private_stdout

NUM_EPISODES: Final = 200
"""Number of episodes after training: greedy ones, and as many with sampled actions."""
_EVAL_SEED: Final = 10_000


def ours(task: MemoryTask, seed: int, *, remembers: bool) -> dict[str, float]:
    """Trains with the defaults of `entity-env train`."""
    settings = [f"--set={name}={value}" for name, value in task.settings.items()]
    train = ["--steps", str(task.total_steps), "--seed", str(seed), "--eval-interval", "0"]
    train += ["--set-train=net.memory=32"] if remembers else []
    with tempfile.TemporaryDirectory() as out:
        _run("train", task.game, *settings, *train, "--num-workers", "0", "--out", out + "/run")
        cpu_s = os.times().children_user + os.times().children_system
        agent = ["--agent", out + "/run", "--episodes", str(NUM_EPISODES)]
        played = ["eval", task.game, *settings, *agent, "--seed", str(_EVAL_SEED), "--json"]
        greedy, sampled = (
            json.loads(_run(*played, *more))["mean_reward"] for more in (["--greedy"], [])
        )
    return {"cpu_s": cpu_s, "steps": task.total_steps, "greedy": greedy, "sampled": sampled}


def _run(*words: str) -> str:
    command = [sys.executable, "-m", "entity_env", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")
    return done.stdout


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
    greedy, sampled = (_mean_reward(model, task, greedy=each) for each in (True, False))
    return {"cpu_s": cpu_s, "steps": model.num_timesteps, "greedy": greedy, "sampled": sampled}


def _mean_reward(model: Any, task: MemoryTask, *, greedy: bool) -> float:  # noqa: ANN401 - not installed where types are checked
    """Mean reward of episodes, greedy or with sampled actions."""
    count = 20
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = gymnasium.vector.SyncVectorEnv([task.make_env] * count, autoreset_mode=mode)
    obs, _ = envs.reset(seed=_EVAL_SEED)
    states, starts = None, np.ones(count, bool)
    totals, finished = np.zeros(count), [[] for _ in range(count)]  # type: ignore[var-annotated]
    while min(map(len, finished)) < NUM_EPISODES // count:
        actions, states = model.predict(obs, states, starts, deterministic=greedy)
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
    who, name, seed = arguments
    torch.set_num_threads(1)
    if who == "recurrent_ppo":
        result = recurrent_ppo(TASKS[name], int(seed))
    else:
        result = ours(TASKS[name], int(seed), remembers=who == "ours")
    answers.write(json.dumps(result) + "\n")
    answers.close()


if __name__ == "__main__":
    main(sys.argv[1:])
