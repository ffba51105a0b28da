"""Solves CartPole with DQN and manual resets, in about a minute on one core.

    python examples/dqn_cartpole.py --seed 1 --out runs/dqn_cartpole

Value learning needs to know how an episode ended, and its final observation. After termination
there is no future reward; after truncation at the time limit the state still has value. So
automatic resets are off: a batch of CartPoles is stepped, the transitions go to a `ReplayBuffer`,
and then finished environments are reset. The rest is double DQN (van Hasselt, Guez and Silver
2016) with layer norms.

Returns rise and fall while DQN learns. Every few thousand steps, therefore, the network plays 100
episodes without exploring, and the best network is kept. The 100 episodes at the end use new seeds.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from entity_env import VecObs
from entity_env.games.classic import CartPole
from entity_env.vec import BatchEnv, BatchVecEnv, ReplayBuffer, Transitions, VecEnv

NUM_EPISODES = 100
SOLVED = 475.0  # the mean return at which CartPole counts as solved; the maximum is 500


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    seed: int = 1
    steps: int = 128_000  # sum over all environments
    num_envs: int = 64
    updates_per_step: int = 12  # per step of the whole batch
    batch_size: int = 128
    capacity: int = 200_000  # transitions in the replay buffer: here, all of them
    width: int = 128  # units in each of the two hidden layers; 0 = none, a linear function
    gamma: float = 0.99
    learning_rate: float = 7e-4  # initial value; decays to 0
    target_share: float = 0.03  # how far the target network moves with every update
    last_epsilon: float = 0.05
    exploration: float = 0.2  # share of all steps over which epsilon falls to last_epsilon
    steps_per_evaluation: int = 4_000

    def epsilon(self, step: int) -> float:
        done = min(step / (self.exploration * self.steps), 1.0)
        return 1.0 + done * (self.last_epsilon - 1.0)


def inputs(obs: VecObs) -> NDArray[np.float32]:
    """`(num_rows, num_features)`: a row has one entity of each type."""
    return np.concatenate([entities.values for entities in obs.features.values()], axis=1)


def new_network(obs_size: int, num_actions: int, width: int) -> nn.Sequential:
    """From `(n, obs_size)` to `(n, num_actions)`: the value of every action."""
    layers: list[nn.Module] = []
    for size in (obs_size, width) if width else ():
        layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width or obs_size, num_actions))


@torch.no_grad()
def best_actions(network: nn.Module, obs: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.asarray(network(torch.from_numpy(obs)).argmax(dim=1))


def td_loss(online: nn.Module, target: nn.Module, batch: Transitions, gamma: float) -> Tensor:
    """Double-DQN loss: values compared with the reward plus the discounted next value."""
    next_obs, (chosen,) = batch.next_obs, batch.actions.values()
    with torch.no_grad():
        after = torch.from_numpy(inputs(next_obs))
        best = online(after).argmax(dim=1, keepdim=True)
        goes_on = torch.from_numpy(~next_obs.terminated)  # truncated states keep their value
        next_values = target(after).gather(1, best).squeeze(1) * goes_on
        goals = torch.from_numpy(next_obs.reward) + gamma * next_values
    values = online(torch.from_numpy(inputs(batch.obs)))
    values = values.gather(1, torch.from_numpy(chosen.values)[:, None]).squeeze(1)
    return nn.functional.smooth_l1_loss(values, goals)


class Learner:
    """The online network, and the target network that follows it slowly."""

    def __init__(self, obs_size: int, num_actions: int, settings: Settings) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.online = new_network(obs_size, num_actions, settings.width)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), fused=True)

    def update(self, batch: Transitions, part_done: float) -> float:
        """Takes one gradient step; returns the loss before it."""
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * (1.0 - part_done)
        loss = td_loss(self.online, self.target, batch, self.settings.gamma)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
        for follower, leader in pairs:
            follower.data.lerp_(leader.data, self.settings.target_share)
        return loss.item()


@dataclass(frozen=True)
class Moment:
    """State of learning after one step of the whole batch."""

    step: int
    mean_return: float  # of the last 100 episodes, including exploration; 0 before the first
    loss: float  # of the last update
    network: nn.Module  # keeps learning: copy it if you need this state
    replay: ReplayBuffer


def learn(vec: VecEnv, num_actions: int, settings: Settings) -> Iterator[Moment]:
    """Learns the values of all actions; yields its state after every step."""
    (action,), num_envs = vec.action_space(), vec.num_envs
    obs = vec.reset(settings.seed).copy()
    learner = Learner(inputs(obs).shape[1], num_actions, settings)
    replay = ReplayBuffer(settings.capacity)
    rng = np.random.default_rng(settings.seed)
    returns: deque[float] = deque(maxlen=100)
    loss = 0.0

    for step in range(num_envs, settings.steps + 1, num_envs):
        guesses = rng.integers(num_actions, size=num_envs)
        explores = rng.random(num_envs) < settings.epsilon(step)
        actions = np.where(explores, guesses, best_actions(learner.online, inputs(obs)))

        next_obs = vec.act({action: actions})
        replay.add(obs, {action: actions}, next_obs)
        returns.extend(episode.reward for episode in next_obs.episodes)
        if vec.is_over.any():
            next_obs = vec.reset_envs(vec.is_over)
        obs = next_obs.copy()  # reset environments: the first observation of the new episode

        for _ in range(settings.updates_per_step):
            batch = replay.sample(settings.batch_size, rng)
            loss = learner.update(batch, part_done=step / settings.steps)
        mean_return = statistics.fmean(returns or [0.0])
        yield Moment(step, mean_return, loss, learner.online, replay)


def evaluate(network: nn.Module, env: BatchEnv, seed: int) -> NDArray[np.float64]:
    """`(num_envs,)`: the return of one greedy episode in every environment."""
    env.reset(seed)
    returns = np.zeros(env.num_envs)
    is_running = np.ones(env.num_envs, dtype=np.bool_)
    while is_running.any():
        result = env.step_no_reset_with_result(best_actions(network, env.view().observations))
        returns += result.rewards * is_running
        ended = result.to_reset_mask()
        is_running &= ~ended.to_bool()
        if ended.any():
            env.reset_envs(ended)  # they keep playing but no longer count
    return returns


class Run(NamedTuple):
    """The best network of a run, and one row per evaluation."""

    network: nn.Module
    step: int  # at which it was copied
    curve: list[tuple[int, float, float]]  # step, mean return of greedy play and while exploring


def train(settings: Settings, console: Console) -> Run:
    """Learns CartPole, and keeps the network with the best evaluation."""
    vec = BatchVecEnv(CartPole(settings.num_envs), autoreset="disabled")
    others = CartPole(NUM_EPISODES)
    run = Run(nn.Identity(), 0, [])
    columns = (BarColumn(9), TextColumn("{task.description}"), TimeRemainingColumn(compact=True))
    start_s = time.perf_counter()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=settings.steps)
        for now in learn(vec, 2, settings):
            pace = now.step / (time.perf_counter() - start_s)
            line = f"step {now.step:>7,}  return {now.mean_return:5.1f}  loss {now.loss:.2f}"
            line += f"  epsilon {settings.epsilon(now.step):.2f}  {pace:,.0f} steps/s"
            progress.update(bar, completed=now.step, description=line)
            due = settings.steps_per_evaluation * (len(run.curve) + 1)
            if now.step < min(due, settings.steps - vec.num_envs + 1):
                continue
            greedy = float(evaluate(now.network, others, settings.seed + 10_000).mean())
            console.print(f"{line}  greedy {greedy:5.1f}", soft_wrap=True)
            run.curve.append((now.step, greedy, now.mean_return))
            if greedy == max(row[1] for row in run.curve):  # on a tie, the later network
                run = Run(copy.deepcopy(now.network), now.step, run.curve)
    return run


def picture(run: Run, title: str) -> str:
    """The learning curve as SVG."""
    steps, greedy, exploring = (list(column) for column in zip(*run.curve, strict=True))

    def line(xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        places = [(60 + 620 * x / steps[-1], 350 - 0.6 * y) for x, y in zip(xs, ys, strict=True)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{points}" fill="none" {style}/>')

    def text(x: float, y: float, words: str, style: str) -> None:
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>')

    middle, end = (f'text-anchor="{where}"' for where in ("middle", "end"))
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 420" width="720" ']
    parts += ['fill="#444" font-family="sans-serif" font-size="12">']
    parts += ['<path d="M0 0H720V420H0Z" fill="white"/>']
    for i in range(6):
        line((0, steps[-1]), (100 * i, 100 * i), 'stroke="#e3e3e3"')
        text(54, 354 - 60 * i, f"{100 * i}", end)
        text(60 + 124 * i, 370, f"{steps[-1] * i / 5:,.0f}", middle)
    line((0, steps[-1]), (SOLVED, SOLVED), 'stroke="#2a8f4a" stroke-dasharray="5 4"')
    line(steps, exploring, 'stroke="#d9822b" stroke-width="2"')
    line(steps, greedy, 'stroke="#1f5fbf" stroke-width="2"')
    dot = 'stroke="#1f5fbf" stroke-width="10" stroke-linecap="round"'
    line((run.step, run.step), (max(greedy), max(greedy)), dot)
    text(60, 26, title, 'font-size="15" fill="#111"')
    text(370, 400, "steps of all environments", middle)
    text(16, 200, "mean return", f'{middle} transform="rotate(-90 16 200)"')
    text(676, 364 - 0.6 * SOLVED, f"solved: {SOLVED:.0f}", f'{end} fill="#2a8f4a"')
    text(676, 320, "greedy, 100 episodes; ● the network that is kept", f'{end} fill="#1f5fbf"')
    text(676, 338, "while exploring, last 100 episodes", f'{end} fill="#d9822b"')
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--steps", type=int, default=Settings.steps, help="of all environments")
    parser.add_argument("--out", type=Path, default=Path("runs/dqn_cartpole"))
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    options = parser.parse_args(arguments)
    if options.steps < Settings.num_envs or options.seed < 0:
        parser.error(f"--steps must be {Settings.num_envs} or more, --seed 0 or more")

    torch.set_num_threads(1)  # a network this small gains nothing from a second thread
    start_s = time.perf_counter()
    settings = Settings(seed=options.seed, steps=options.steps)
    run = train(settings, Console(quiet=options.json, highlight=False))
    returns = evaluate(run.network, CartPole(NUM_EPISODES), settings.seed + 20_000)
    mean, seconds = float(returns.mean()), time.perf_counter() - start_s
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "learning_curve.svg"
    file.write_text(picture(run, f"DQN on CartPole, seed {settings.seed}"), encoding="utf-8")
    if options.json:
        figures = {"seed": settings.seed, "step": run.step, "mean_return": mean}
        print(json.dumps({**figures, "seconds": seconds, "curve": run.curve}))
    else:
        print(f"\nThe network of step {run.step:,}, {NUM_EPISODES} new greedy episodes: ", end="")
        print(f"mean return {mean:.1f} (solved: {SOLVED:.0f}); {seconds:.0f} s. Curve: {file}")
    return mean


if __name__ == "__main__":
    main()
