"""A row-by-row reference of `SelfPlayVecEnv`, and opponents for tests."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from entity_env.agents import random_actions
from entity_env.agents.ppo.self_play import Opponent
from entity_env.core.episode import Episode
from entity_env.core.spaces import ActionSpace, ContinuousActionSpace
from entity_env.core.vec_obs import EntityBatch, VecActions, VecObs
from entity_env.vec import VecEnv

Row = dict[str, Any]
"""Observation of a row, as lists."""


def hashing_opponent(name: str, action_space: Mapping[str, ActionSpace]) -> Opponent:
    """Legal actions that depend only on the name and on the observation of the row."""

    def decide(obs: VecObs) -> VecActions:
        rows = [obs.select([row]) for row in range(len(obs))]
        chosen = [
            random_actions(row, action_space, np.random.default_rng(_digest(name, row)))
            for row in rows
        ]
        return {each: np.concatenate([row[each] for row in chosen]) for each in action_space}

    return Opponent(name, decide, name)


def _digest(name: str, obs: EntityBatch) -> int:
    text = repr([name, *(each.values.tolist() for each in obs.features.values())])
    return zlib.crc32(text.encode())


def shown(batch: EntityBatch, row: int) -> Row:
    """Entities and actors of a row."""
    found = {name: each[row].tolist() for name, each in batch.features.items()}
    found |= {f"visible {name}": each[row].tolist() for name, each in batch.visible.items()}
    for name, mask in batch.action_masks.items():
        for part in fields(mask):
            array = getattr(mask, part.name)
            found[f"{name} {part.name}"] = None if array is None else array[row].tolist()
    return found


def _place(obs: VecObs, row: int) -> tuple[int, int]:
    return int(obs.env_id[row]), int(obs.agent_id[row])


def listed(obs: VecObs) -> dict[str, Any]:
    """A batch as lists, without the metrics of the games."""
    final = obs.final
    return {
        "rows": [shown(obs, row) for row in range(len(obs))],
        "reward": obs.reward.tolist(),
        "terminated": obs.terminated.tolist(),
        "truncated": obs.truncated.tolist(),
        "final": []
        if final is None
        else [(*_place(final, row), shown(final, row)) for row in range(len(final))],
        "episodes": list(obs.episodes),
        "wins": {
            name: (metric.count, metric.sum)
            for name, metric in obs.metrics.items()
            if name.startswith("wins_")
        },
    }


class PlainSelfPlay:
    """Plays like `SelfPlayVecEnv`; batches are in the form of `listed`."""

    def __init__(
        self, vec: VecEnv, opponents: Sequence[Opponent], share: float, openings: float, seed: int
    ) -> None:
        self.vec, self.opponents, self.openings = vec, opponents, openings
        self.rng, self.opening_rng = np.random.default_rng(seed), np.random.default_rng([seed, 1])
        self.is_opening: dict[int, bool] = {}
        num_envs, self.agents = vec.num_envs, range(vec.num_agents)
        share = max(share, 1 / num_envs)
        bounds = [math.floor(env * share + 1e-9) for env in range(num_envs + 1)]
        self.versus = [env for env in range(num_envs) if bounds[env + 1] > bounds[env]]
        self.game = {env: number for number, env in enumerate(self.versus)}
        self.playing: dict[int, Opponent] = {}
        self.seat: dict[int, int] = {}
        self.is_idle: dict[tuple[int, int], bool] = {}
        self.score: dict[tuple[int, int], float] = {}

    def reset(self, seed: int) -> dict[str, Any]:
        self.inner = self.vec.reset(seed)
        for env in range(self.vec.num_envs):
            self._begin(env)
        self._draw_openings(list(range(self.vec.num_envs)))
        found = listed(self.inner)
        self._hide(found)
        return found

    def reset_envs(self, mask: Sequence[bool]) -> dict[str, Any]:
        """Starts new games; interrupted games are not counted."""
        self.inner = self.vec.reset_envs(mask)
        envs = np.flatnonzero(mask).tolist()
        for env in envs:
            self._begin(env)
        self._draw_openings(envs)
        found = listed(self.inner)
        self._hide(found)
        return found

    def act(self, actions: VecActions) -> dict[str, Any]:
        """Steps with the learner's actions for the rows that it plays."""
        inner = self.inner
        taken = dict.fromkeys(actions, 0)
        joined: dict[str, list[Any]] = {name: [] for name in actions}
        opening = [
            row
            for row in np.flatnonzero(inner.is_ready).tolist()
            if self.is_opening[row // len(self.agents)]
        ]
        drawn = self._random_actions(opening)
        for row in range(len(inner)):
            env, agent = divmod(row, len(self.agents))
            if self.is_opening[env]:
                for name in actions:
                    count = int(inner.action_masks[name].actors.lengths[row])
                    joined[name] += [drawn[name].pop(0) for _ in range(count)]
            elif self._is_mine(env, agent):
                for name, values in actions.items():
                    count = int(inner.action_masks[name].actors.lengths[row])
                    joined[name] += list(values)[taken[name] : taken[name] + count]
                    taken[name] += count
            else:
                alone = replace(inner, final=None).select([row])
                decided = self.playing[env].decide(alone)
                for name in actions:
                    joined[name] += list(decided[name])
        dtypes = {name: np.asarray(values).dtype for name, values in actions.items()}
        spaces = self.vec.action_space()
        arrays = {
            name: np.array(values, dtypes[name]).reshape(len(values), *_width(spaces[name]))
            for name, values in joined.items()
        }
        self.inner = inner = self.vec.act(arrays)
        found = listed(inner)
        for row in range(len(inner)):
            env, agent = divmod(row, len(self.agents))
            self.score[env, agent] += float(inner.reward[row])
            if inner.terminated[row] or inner.truncated[row]:
                self.is_idle[env, agent] = True
            if not self._is_mine(env, agent):
                found["reward"][row] = 0.0
                found["terminated"][row] = found["truncated"][row] = False
        found["final"] = [one for one in found["final"] if self._is_mine(*one[:2])]
        found["episodes"] = [one for one in found["episodes"] if self._counts(one)]
        for row in opening:
            self.is_opening[row // len(self.agents)] = False
        ended = [
            env
            for env in range(self.vec.num_envs)
            if all(self.is_idle[env, agent] for agent in self.agents)
        ]
        for env in ended:
            self._count(env, found["wins"])
            self._begin(env)
        self._draw_openings(ended)
        for row in np.flatnonzero(inner.is_ready).tolist():
            self.is_idle[divmod(row, len(self.agents))] = False
        self._hide(found)
        return found

    def _is_mine(self, env: int, agent: int) -> bool:
        return not self.is_opening[env] and self.seat.get(env, agent) == agent

    def _draw_openings(self, envs: list[int]) -> None:
        drawn = self.opening_rng.random(len(envs)) if self.openings else np.ones(len(envs))
        for env, number in zip(envs, drawn.tolist(), strict=True):
            rows = [env * len(self.agents) + agent for agent in self.agents]
            is_one = sum(bool(self.inner.is_ready[row]) for row in rows) == 1
            self.is_opening[env] = is_one and number < self.openings

    def _random_actions(self, rows: list[int]) -> dict[str, list[Any]]:
        """Random actions of these rows, drawn one value at a time."""
        spaces = self.vec.action_space()
        if not rows:
            return {name: [] for name in spaces}
        batch = replace(self.inner, final=None).select(rows)
        return {
            name: list(values)
            for name, values in random_actions(batch, spaces, self.opening_rng).items()
        }

    def _counts(self, one: Episode) -> bool:
        return one.env_id in self.seat and self._is_mine(one.env_id, one.agent_id)

    def _begin(self, env: int) -> None:
        for agent in self.agents:
            self.is_idle[env, agent], self.score[env, agent] = False, 0.0
        if env in self.game:
            self.seat[env] = self.game[env] % len(self.agents)
            self.game[env] += 1
            count = len(self.opponents)
            self.playing[env] = self.opponents[self.rng.choice(count, p=[1 / count] * count)]

    def _count(self, env: int, wins: dict[str, tuple[int, float]]) -> None:
        if env not in self.seat:
            return
        mine = self.score[env, self.seat[env]]
        others = [self.score[env, agent] for agent in self.agents if agent != self.seat[env]]
        points = [1.0 if mine > other else 0.5 if mine == other else 0.0 for other in others]
        name = f"wins_{self.playing[env].kind}"
        count, total = wins.get(name, (0, 0.0))
        wins[name] = count + 1, total + sum(points) / len(points)

    def _hide(self, found: dict[str, Any]) -> None:
        for row, content in enumerate(found["rows"]):
            if not self._is_mine(*divmod(row, len(self.agents))):
                for name, value in content.items():
                    content[name] = None if value is None else []


def _width(space: ActionSpace) -> tuple[int, ...]:
    return (len(space),) if isinstance(space, ContinuousActionSpace) else ()
