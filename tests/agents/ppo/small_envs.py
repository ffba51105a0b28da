"""Small numpy environments for training, and a clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    Metric,
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)


class Clock:
    """Returns `now`, which only the test advances."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def ragged(rows: list[list[int]]) -> RaggedArray[np.int64]:
    """One list of indices per row."""
    return RaggedArray.from_rows(rows, np.int64)


class Halves(ABC):
    """Implements `send` and `recv` with `act`."""

    _sent: VecActions

    @abstractmethod
    def act(self, actions: VecActions) -> VecObs:
        """Sends and receives."""

    def send(self, actions: VecActions) -> None:
        """Stores the actions; the last batch stays valid."""
        self._sent = actions

    def recv(self) -> VecObs:
        """Performs the stored actions."""
        return self.act(self._sent)


class VecRiddle(Halves):
    """Asks every row one question: an episode is one step, rewarded by the quality of the answer.

    Each call overwrites the previous batch, as `VecEnvironment` allows.
    """

    num_rows: int

    def __init__(self, num_rows: int = 64) -> None:
        self.num_rows = num_rows
        self.num_closed = 0
        self._rng = np.random.default_rng(0)
        self._last: VecObs | None = None

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """Observation space."""

    @abstractmethod
    def action_space(self) -> Mapping[str, ActionSpace]:
        """Action space."""

    @abstractmethod
    def ask(
        self, rng: np.random.Generator
    ) -> tuple[dict[str, RaggedArray[np.float32]], dict[str, VecActionMask]]:
        """New questions."""

    @abstractmethod
    def judge(self, actions: VecActions) -> NDArray[np.float32]:
        """`(num_rows,)` quality of the answers, at most 1."""

    def reset(self, seed: int | None = None) -> VecObs:
        """Restarts all rows."""
        self._rng = np.random.default_rng(seed)
        return self._observe(np.zeros(self.num_rows, np.float32), np.zeros(self.num_rows, np.bool_))

    def act(self, actions: VecActions) -> VecObs:
        """Rewards the answers and asks again."""
        reward = self.judge(actions)
        spoil(self._last)
        obs = self._observe(reward, np.ones(self.num_rows, np.bool_))
        obs.episodes = [
            Episode(float(r), 1, True, False, 0, env_id=i, metrics={"score": float(r)})
            for i, r in enumerate(reward)
        ]
        obs.metrics = {"asked": Metric(self.num_rows, float(self.num_rows), 1.0, 1.0)}
        return obs

    def close(self) -> None:
        """Counts the calls."""
        self.num_closed += 1

    def _observe(self, reward: NDArray[np.float32], done: NDArray[np.bool_]) -> VecObs:
        features, masks = self.ask(self._rng)
        self._last = plain_obs(features, masks, reward, done)
        return self._last


def plain_obs(
    features: Mapping[str, RaggedArray[np.float32]],
    masks: Mapping[str, VecActionMask],
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_] | None = None,
) -> VecObs:
    """A batch with one agent per environment."""
    num_rows = len(reward)
    return VecObs(
        features=dict(features),
        visible={},
        action_masks=dict(masks),
        reward=reward,
        terminated=terminated,
        truncated=np.zeros(num_rows, np.bool_) if truncated is None else truncated,
        env_id=np.arange(num_rows),
        agent_id=np.zeros(num_rows, np.int64),
    )


def spoil(obs: VecObs | None) -> None:
    """Overwrites all data of a batch."""
    if obs is None:
        return
    for features in obs.features.values():
        features.values[:] = np.nan
        features.lengths[:] = -1
    for mask in obs.action_masks.values():
        mask.actors.values[:] = -1
        if isinstance(mask, VecSelectEntityActionMask):
            mask.actees.values[:] = -1
        if not isinstance(mask, VecCategoricalActionMask | VecSelectEntityActionMask):
            continue
        if mask.mask is not None:
            mask.mask.values[:] = False
    obs.reward[:] = np.nan
    obs.terminated[:] = True
    spoil(obs.final)


class VecXor(VecRiddle):
    """A global action: the input, possibly negated."""

    def obs_space(self) -> ObsSpace:
        return ObsSpace(("negate",), {"Input": Entity(("is_set",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"output": GlobalCategoricalActionSpace(("0", "1"))}

    def ask(
        self, rng: np.random.Generator
    ) -> tuple[dict[str, RaggedArray[np.float32]], dict[str, VecActionMask]]:
        inputs = rng.integers(0, 2, self.num_rows)
        negate = rng.integers(0, 2, self.num_rows)
        self._answers = inputs ^ negate
        features = {
            "Input": RaggedArray(
                inputs.reshape(-1, 1).astype(np.float32), np.ones(self.num_rows, np.int64)
            ),
            "__global__": RaggedArray(
                negate.reshape(-1, 1).astype(np.float32), np.ones(self.num_rows, np.int64)
            ),
        }
        actors = RaggedArray(np.ones(self.num_rows, np.int64), np.ones(self.num_rows, np.int64))
        return features, {"output": VecCategoricalActionMask(actors)}

    def judge(self, actions: VecActions) -> NDArray[np.float32]:
        output = np.asarray(actions["output"])
        right: NDArray[np.bool_] = output == self._answers
        return right.astype(np.float32)


class VecCherryPick(VecRiddle):
    """A select action: pick the best of two to five cherries."""

    def obs_space(self) -> ObsSpace:
        return ObsSpace((), {"Cherry": Entity(("quality",)), "Player": Entity(())})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"pick": SelectEntityActionSpace()}

    def ask(
        self, rng: np.random.Generator
    ) -> tuple[dict[str, RaggedArray[np.float32]], dict[str, VecActionMask]]:
        counts = rng.integers(2, 6, self.num_rows)
        quality = rng.normal(size=(int(counts.sum()), 1)).astype(np.float32)
        self._cherries = RaggedArray(quality.copy(), counts.copy())
        features = {
            "Cherry": RaggedArray(quality, counts.copy()),
            "Player": RaggedArray(
                np.zeros((self.num_rows, 0), np.float32), np.ones(self.num_rows, np.int64)
            ),
        }
        mask = VecSelectEntityActionMask(
            actors=ragged([[n] for n in counts]), actees=ragged([list(range(n)) for n in counts])
        )
        return features, {"pick": mask}

    def judge(self, actions: VecActions) -> NDArray[np.float32]:
        picked = np.asarray(actions["pick"])
        quality = [c[i, 0] - c.max() for c, i in zip(self._cherries, picked, strict=True)]
        return (1 + np.array(quality)).astype(np.float32)


class VecSigns(VecRiddle):
    """Two categorical actions, one to three actors per row: name the sign; one label is masked."""

    def obs_space(self) -> ObsSpace:
        return ObsSpace((), {"Unit": Entity(("x",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {
            "sign": CategoricalActionSpace(("minus", "plus", "forbidden")),
            "same": CategoricalActionSpace(("no", "yes")),
        }

    def ask(
        self, rng: np.random.Generator
    ) -> tuple[dict[str, RaggedArray[np.float32]], dict[str, VecActionMask]]:
        counts = rng.integers(1, 4, self.num_rows)
        total = int(counts.sum())
        x = rng.choice([-1.0, 1.0], size=(total, 1)).astype(np.float32)
        self._x, self._counts = RaggedArray(x.copy(), counts.copy()), counts.copy()
        allowed = np.ones((total, 3), np.bool_)
        allowed[:, 2] = False
        actors = ragged([list(range(n)) for n in counts])
        first = RaggedArray(np.zeros(self.num_rows, np.int64), np.ones(self.num_rows, np.int64))
        return {"Unit": RaggedArray(x, counts.copy())}, {
            "sign": VecCategoricalActionMask(actors, RaggedArray(allowed, counts.copy())),
            "same": VecCategoricalActionMask(first),
        }

    def judge(self, actions: VecActions) -> NDArray[np.float32]:
        sign = np.asarray(actions["sign"])
        if (sign == 2).any():
            raise ValueError("a forbidden label was chosen")
        right = RaggedArray(sign == (self._x.values[:, 0] > 0), self._counts)
        is_same = np.array([np.ptp(x) == 0 for x in self._x])
        same: NDArray[np.bool_] = np.asarray(actions["same"]) == is_same
        share: NDArray[np.float32] = np.array([r.mean() for r in right], np.float32)
        return np.asarray((share + same) / 2, np.float32)


class VecTurns(Halves):
    """A game for two that take turns, one row each: name what you see; the other is not asked.

    An episode has four turns. A row gets the reward for its answer while it waits, and at the
    end both rows are told that the episode ended.
    """

    def __init__(self, num_envs: int = 32) -> None:
        self.num_envs = num_envs
        self.num_rows = 2 * num_envs
        self._rng = np.random.default_rng(0)
        self._last: VecObs | None = None

    def obs_space(self) -> ObsSpace:
        """One entity, `Sight`."""
        return ObsSpace((), {"Sight": Entity(("x",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        """One global action."""
        return {"say": GlobalCategoricalActionSpace(("minus", "plus"))}

    def reset(self, seed: int | None = None) -> VecObs:
        """Restarts all rows."""
        self._rng = np.random.default_rng(seed)
        self._turn = np.arange(self.num_envs) % 4
        self._sums = np.zeros((self.num_envs, 2))
        return self._observe(np.zeros((self.num_envs, 2)), np.zeros(self.num_envs, np.bool_))

    def act(self, actions: VecActions) -> VecObs:
        """Rewards the row that was asked."""
        said = np.asarray(actions["say"])
        reward = np.zeros((self.num_envs, 2))
        reward[np.arange(self.num_envs), self._turn % 2] = said == (self._x > 0)
        self._sums += reward
        self._turn += 1
        done = self._turn == 4
        self._turn[done] = 0
        spoil(self._last)
        obs = self._observe(reward, done)
        obs.episodes = [
            Episode(float(self._sums[i, a]), 2, True, False, 0, env_id=int(i), agent_id=a)
            for i in np.flatnonzero(done)
            for a in (0, 1)
        ]
        self._sums[done] = 0
        return obs

    def close(self) -> None:
        """No resources to release."""

    def _observe(self, reward: NDArray[np.float64], done: NDArray[np.bool_]) -> VecObs:
        self._x = self._rng.choice([-1.0, 1.0], self.num_envs)
        asked = np.zeros((self.num_envs, 2), np.int64)
        asked[np.arange(self.num_envs), self._turn % 2] = 1
        lengths = asked.reshape(-1)
        x = self._x.reshape(-1, 1).astype(np.float32)
        nothing = np.zeros((self.num_envs, 0), np.float32)
        self._last = VecObs(
            features={
                "Sight": RaggedArray(x, lengths.copy()),
                "__global__": RaggedArray(nothing, lengths.copy()),
            },
            visible={},
            action_masks={
                "say": VecCategoricalActionMask(
                    RaggedArray(np.ones(self.num_envs, np.int64), lengths.copy())
                )
            },
            reward=reward.reshape(-1).astype(np.float32),
            terminated=np.repeat(done, 2),
            truncated=np.zeros(self.num_rows, np.bool_),
            env_id=np.repeat(np.arange(self.num_envs), 2),
            agent_id=np.tile(np.arange(2), self.num_envs),
        )
        return self._last
