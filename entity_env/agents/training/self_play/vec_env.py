"""`SelfPlayVecEnv`: environments of a game for several agents, some with opponents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.random import random_actions
from entity_env.authoring.agent import Agent
from entity_env.authoring.schema import Schema
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, ActionSpace, ContinuousActionSpace, ObsSpace
from entity_env.core.validation import checked_count
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_env_base import Autoreset, partial_reset, row_name
from entity_env.core.vec_obs import (
    Metric,
    VecActions,
    VecContinuousActionMask,
    VecEnvironment,
    VecObs,
)
from entity_env.errors import CheckpointError, ProtocolError, SchemaError, UsageError

Decide: TypeAlias = Callable[[VecObs], VecActions]
"""Chooses the actions of a batch, which is valid only during the call; see `BatchPolicy`.

`VecObs.begins` marks the rows in which the opponent has not decided yet in this episode.
"""

LEARNER: Final = -1
"""Owner of a row that the learner plays."""
_OPENING: Final = -2
"""Owner of all rows of a game with a random opening, until its first decision."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Opponent:
    """Plays seats that are not the learner's.

    Args:
        name: for messages.
        decide: chooses the actions of a batch.
        kind: opponents of one kind share the metric `wins_KIND`.
    """

    name: str
    decide: Decide
    kind: str

    @classmethod
    def of_agent(cls, name: str, agent: Agent, schema: Schema, kind: str = "") -> Opponent:
        """An opponent from an agent that decides in batches, such as a `RandomAgent`.

        Raises:
            UsageError: the agent decides only one by one, such as a human.
        """
        if not isinstance(agent, BatchPolicy):
            raise UsageError(
                f"an opponent must decide for batches (decide_batch), as random and trained agents "
                f"do: {name} is a {type(agent).__name__}"
            )
        policy: BatchPolicy = agent
        return cls(name, lambda obs: policy.decide_batch(obs, schema), kind or name)


class SeatResult(NamedTuple):
    """Result of a game of the learner against an opponent.

    Args:
        opponent: the player of all other seats.
        score: 1 for a win, 0.5 for a draw, 0 for a loss, by the rewards of the game; the mean over
            the other seats.
        rewards: total reward of every seat in the game.
        seat: of the learner.
    """

    opponent: Opponent
    score: float
    rewards: tuple[float, ...]
    seat: int


class MultiAgentVec(VecEnvironment, Protocol):
    """Environments with one row per agent, such as a `VecEnv` of a game for several agents.

    Row `env_id * num_agents + agent_id` belongs to an agent of an environment.
    """

    num_envs: int
    num_agents: int
    autoreset: Autoreset


class SelfPlayVecEnv:
    """Environments in which a learner plays against opponents, itself, or both.

    In a share of the environments, the learner has one seat and one opponent all others; in the
    rest, the learner has all seats. Each new game moves the learner's seat by one and draws an
    opponent, which stays until the game ends, except as in `set_opponents`. A game ends when the
    episodes of all its agents have ended and no new episode has begun: if agents begin new episodes
    while others still play, seats stay until all end together.

    Rows played by an opponent are empty: no entities, no actors, a reward of 0, never done.
    `episodes` and `final` cover the learner's rows. `episodes` omits environments in which the
    learner has all seats, unless these are all environments. `metrics` has the metrics of the
    games, over all seats, and `wins_KIND`, the scores (see `SeatResult`) against opponents of a
    kind. Arrays are valid until the next call that returns a batch.

    Args:
        vec: environments for two agents or more, with autoreset "same_step"; `close` closes them.
        opponents: see `set_opponents`; without any the learner has all seats.
        share: share of the environments that have an opponent, above 0, up to 1; at least one
            environment.
        max_opponents: largest number that play at a time, each with its own forward pass.
        random_openings: share of all games, 0 to 1, whose first decision is random, whichever agent
            makes it. Only games that one agent begins alone can open at random. Random openings
            show more positions to a learner that always makes the same first moves. The decision
            itself is hidden from the learner.
        seed: of the random openings, and of the draws of opponents.

    Raises:
        UsageError: environments for one agent or with another autoreset, or an invalid number.

    Example:
        >>> from entity_env.agents import RandomAgent, random_actions
        >>> from entity_env.games import tic_tac_toe
        >>> from entity_env.vec import VecEnv
        >>> random = Opponent.of_agent("random", RandomAgent(seed=1), tic_tac_toe.schema)
        >>> vec = SelfPlayVecEnv(VecEnv(tic_tac_toe, 4), [random])
        >>> obs = vec.reset()
        >>> int(obs.is_ready.sum()) < 4  # where the opponent begins, the learner waits
        True
        >>> vec.close()
    """

    def __init__(
        self,
        vec: MultiAgentVec,
        opponents: Sequence[Opponent] = (),
        *,
        share: float = 1.0,
        max_opponents: int = 8,
        random_openings: float = 0.0,
        seed: int = 0,
    ) -> None:
        if vec.num_agents < 2:
            raise UsageError("opponents need a game for several agents: this game is for one agent")
        if vec.autoreset != "same_step":
            raise UsageError(f'opponents need autoreset="same_step", got {vec.autoreset!r}')
        if not 0 < share <= 1:
            raise UsageError(f"the share with opponents must be above 0, up to 1, got {share!r}")
        if not 0 <= random_openings <= 1:
            raise UsageError(f"random_openings must be a share, 0 to 1, got {random_openings!r}")
        self.vec = vec
        self.random_openings = random_openings
        self.num_envs = vec.num_envs
        self.num_agents = vec.num_agents
        self.autoreset: Autoreset = vec.autoreset
        self.can_reset_envs = partial_reset(vec) is not None
        self.max_opponents = checked_count("max_opponents", max_opponents)
        self._rng = np.random.default_rng(seed)
        self._opening_rng = np.random.default_rng([seed, 1])
        steps = np.floor(np.arange(self.num_envs + 1) * max(share, 1 / self.num_envs) + 1e-9)
        self._versus: Final = np.flatnonzero(np.diff(steps))
        self._num_games = np.arange(len(self._versus))
        """Number of games of each environment in `_versus`; starts at 0, 1, 2 ... to vary seats."""
        self._seat_of = np.full(self.num_envs, LEARNER)
        """The learner's seat; -1 = all."""
        self._opponent_of = np.full(self.num_envs, LEARNER)
        self._was_replaced = np.zeros(self.num_envs, np.bool_)
        self._active: dict[int, float] = {}
        """Weight of each opponent in new games, by key."""
        self._playing: dict[int, Opponent] = {}
        """Active opponents, and those in running games, by ascending key."""
        self._num_keys = 0
        self._tried: WeakSet[Opponent] = WeakSet()
        """Opponents that have decided before."""
        self._owner = np.full(vec.num_rows, LEARNER)
        """`(num_rows,)` key of the opponent that plays a row, or `LEARNER` or `_OPENING`."""
        self._inner: VecObs | None = None
        self._obs: VecObs | None = None
        self._is_idle = np.zeros(vec.num_rows, np.bool_)
        """True where a row's episode has ended and the next has not begun."""
        self._begins = np.ones(vec.num_rows, np.bool_)
        """True where the owner of a row has not decided yet in the row's episode."""
        self._rewards = np.zeros(vec.num_rows)
        """`(num_rows,)` total reward in the current game."""
        self._results: list[SeatResult] = []
        self._has_opened = np.empty(0, np.int64)
        """Environments whose random opening was in the last `send`."""
        space = self.action_space()
        self._random: Final = Opponent(
            "random", lambda obs: random_actions(obs, space, self._opening_rng), "random"
        )
        self.set_opponents(opponents)

    @property
    def num_rows(self) -> int:
        return self.vec.num_rows

    @property
    def opponents(self) -> list[Opponent]:
        """Opponents in running games, or available for new games."""
        return list(self._playing.values())

    def obs_space(self) -> ObsSpace:
        return self.vec.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self.vec.action_space()

    def set_opponents(
        self, opponents: Sequence[Opponent], weights: Sequence[float] | None = None
    ) -> None:
        """Sets the opponents of new games.

        Running games keep their opponents. If more than `max_opponents` would play at a time, games
        of some dropped opponents continue with new ones, and have no result.

        Args:
            opponents: identified by object; if empty, the learner has all seats of new games.
            weights: for drawing them, above 0; None = equal.

        Raises:
            UsageError: more than `max_opponents`, or weights that do not fit.
        """
        chances = [1.0] * len(opponents) if weights is None else [float(each) for each in weights]
        if len(chances) != len(opponents) or not all(0 < each < np.inf for each in chances):
            raise UsageError(f"weights must be {len(opponents)} numbers above 0, got {weights!r}")
        if len(opponents) > self.max_opponents:
            raise UsageError(
                f"at most {self.max_opponents} opponents play at the same time (max_opponents), "
                f"got {len(opponents)}"
            )
        keys = {id(each): key for key, each in self._playing.items()}
        self._active = {}
        for opponent, chance in zip(opponents, chances, strict=True):
            key = keys.setdefault(id(opponent), self._num_keys)
            self._num_keys = max(self._num_keys, key + 1)
            self._playing[key] = opponent
            self._active[key] = self._active.get(key, 0.0) + chance
        self._replace_surplus()
        self._forget_unused()

    def take_results(self) -> list[SeatResult]:
        """Games against opponents that ended since the last call, at most the newest 10,000."""
        results, self._results = self._results, []
        return results

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new game in every environment; running games have no result."""
        self._inner = None
        inner = self.vec.reset(seed)
        self._begin_games(np.arange(self.num_envs), inner)
        self._is_idle[:] = False
        self._begins[:] = True
        self._inner = inner
        return self._show(inner)

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new game in the masked environments; running games there have no result.

        Arguments and errors as for the `reset_envs` of `vec`.

        Raises:
            ProtocolError: `vec` has no such method, see `VecEnvironment`.
        """
        reset_envs = partial_reset(self.vec)
        if reset_envs is None:
            raise ProtocolError(
                f"{type(self.vec).__name__} cannot reset some environments while others play on"
            )
        inner = reset_envs(mask, seed)
        begun = np.array(mask)
        begun |= inner.done.reshape(self.num_envs, self.num_agents).any(axis=1)
        self._begin_games(np.flatnonzero(begun), inner)
        self._is_idle.reshape(self.num_envs, self.num_agents)[begun] = False
        self._begins |= inner.done | begun[inner.env_id]
        self._inner = inner
        return self._show(inner)

    def act(self, actions: VecActions) -> VecObs:
        """Gives every actor of the last batch its action, and returns the next batch."""
        self.send(actions)
        return self.recv()

    def send(self, actions: VecActions) -> None:
        """First half of `act`: opponents decide here; the last batch stays valid.

        Raises:
            CheckpointError: an opponent's network cannot play; the message names the opponent.
            ProtocolError: before `reset`, or after another `send`.
            SchemaError: actions of the learner or of an opponent do not fit; the message names an
                opponent at fault. Nothing is sent.
        """
        obs, inner = self._obs, self._inner
        if obs is None or inner is None:
            self.vec.send(actions)  # reports the missing call
            raise ProtocolError("call reset before send")
        values = checked_vec_actions(actions, obs.action_masks, self.action_space(), self._name_row)
        parts: dict[int, Mapping[ActionName, NDArray[Any]]] = {LEARNER: values}
        waiting = np.flatnonzero((self._owner != LEARNER) & inner.is_ready)
        self._try_new(inner, waiting)
        owners = self._owner[waiting]
        for key in np.unique(owners).tolist():
            rows = waiting[owners == key]
            by = self._random if key == _OPENING else self._playing[key]
            parts[key] = self._decided(by, inner, rows)
        self.vec.send(values if len(parts) == 1 else self._joined(inner, parts))
        self._begins[inner.is_ready & (self._owner != _OPENING)] = False
        self._inner = None  # until `recv`: another `send` raises
        self._has_opened = np.unique(waiting[owners == _OPENING] // self.num_agents)

    def recv(self) -> VecObs:
        """Second half of `act`: waits for the next batch."""
        inner = self.vec.recv()
        self._rewards += inner.reward
        self._is_idle |= inner.done
        self._begins |= inner.done
        is_over = self._is_idle.reshape(self.num_envs, self.num_agents).all(axis=1)
        is_theirs = self._owner != LEARNER
        final, episodes = inner.final, inner.episodes
        if is_theirs.any():
            final = _without(final, is_theirs, self.num_agents)
            if len(episodes):
                counts = self._opponent_of != LEARNER
                if not counts.any():  # no opponents: only random openings hide rows
                    counts[:] = True
                episodes = [
                    one
                    for one in episodes
                    if counts[one.env_id]
                    and not is_theirs[one.env_id * self.num_agents + one.agent_id]
                ]
        shown = replace(
            inner,
            reward=np.where(is_theirs, np.float32(0), inner.reward),
            terminated=inner.terminated & ~is_theirs,
            truncated=inner.truncated & ~is_theirs,
            final=final,
            metrics=dict(inner.metrics),
            episodes=episodes,
            begins=self._begins.copy(),  # a row may have a new owner
        )
        self._assign(self._has_opened)
        ended = np.flatnonzero(is_over)
        if len(ended):
            self._count(ended, shown.metrics)
            self._begin_games(ended, inner)
            self._is_idle[np.repeat(is_over, self.num_agents)] = False
        self._is_idle &= ~inner.is_ready
        self._inner = inner
        return self._show(shown)

    def close(self) -> None:
        """Closes the environments; may be called twice."""
        self.vec.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ games and seats

    def _begin_games(self, env_ids: NDArray[np.int64], inner: VecObs) -> None:
        """Assigns the seats of new games, whose first observations are in `inner`."""
        places = np.flatnonzero(np.isin(self._versus, env_ids))
        envs = self._versus[places]
        if self._active:
            self._seat_of[envs] = self._num_games[places] % self.num_agents
            self._num_games[places] += 1
            self._opponent_of[envs] = self._draw(len(envs))
        else:
            self._seat_of[envs] = self._opponent_of[envs] = LEARNER
        self._was_replaced[env_ids] = False
        rows = self._rewards.reshape(self.num_envs, self.num_agents)
        rows[env_ids] = 0
        self._assign(env_ids)
        if self.random_openings:
            opened = self._opening_rng.random(len(env_ids)) < self.random_openings
            num_ready = inner.is_ready.reshape(self.num_envs, self.num_agents)[env_ids].sum(axis=1)
            opened &= num_ready == 1
            self._owner.reshape(self.num_envs, self.num_agents)[env_ids[opened]] = _OPENING
        self._forget_unused()

    def _draw(self, count: int) -> NDArray[np.int64]:
        keys, weights = list(self._active), np.array(list(self._active.values()))
        return self._rng.choice(keys, size=count, p=weights / weights.sum())

    def _assign(self, envs: NDArray[np.int64]) -> None:
        owner = self._owner.reshape(self.num_envs, self.num_agents)
        owner[envs] = self._opponent_of[envs, None]
        owner[envs, self._seat_of[envs]] = LEARNER  # no change if the learner has all seats

    def _replace_surplus(self) -> None:
        """Reassigns games of retired opponents to active ones if `max_opponents` is exceeded."""
        old, counts = np.unique(self._opponent_of, return_counts=True)
        retired = [
            (count, key)
            for key, count in zip(old.tolist(), counts.tolist(), strict=True)
            if key != LEARNER and key not in self._active
        ]
        surplus = len(self._active) + len(retired) - self.max_opponents
        if self._active and surplus > 0:
            gone = [key for _, key in sorted(retired)[:surplus]]
            envs = np.flatnonzero(np.isin(self._opponent_of, gone))
            self._opponent_of[envs] = self._draw(len(envs))
            self._was_replaced[envs] = True
            owner = self._owner.reshape(self.num_envs, self.num_agents)
            self._begins.reshape(owner.shape)[envs] = True  # new owners have seen nothing so far
            self._assign(envs[(owner[envs] != _OPENING).all(axis=1)])

    def _forget_unused(self) -> None:
        used = {*self._active, *np.unique(self._opponent_of).tolist()}
        self._playing = {key: each for key, each in self._playing.items() if key in used}

    def _count(self, ended: NDArray[np.int64], metrics: dict[str, Metric]) -> None:
        envs = ended[(self._opponent_of[ended] != LEARNER) & ~self._was_replaced[ended]]
        rewards = self._rewards.reshape(self.num_envs, self.num_agents)[envs]
        seats = self._seat_of[envs]
        mine = rewards[np.arange(len(envs)), seats][:, None]
        compared = (mine > rewards) + 0.5 * (mine == rewards)
        # Minus the 0.5 of the learner's seat compared with itself.
        scores = (compared.sum(axis=1) - 0.5) / (self.num_agents - 1)
        parts = (self._opponent_of[envs], scores, rewards, seats)
        for key, score, each, seat in zip(*(part.tolist() for part in parts), strict=True):
            opponent = self._playing[key]
            self._results.append(SeatResult(opponent, score, tuple(each), seat))
            metrics.setdefault(f"wins_{opponent.kind}", Metric()).push(score)
        del self._results[:-_MAX_RESULTS]

    # ------------------------------------------------------------------ batches

    def _show(self, obs: VecObs) -> VecObs:
        """The batch without the opponents' observations."""
        is_mine = self._owner == LEARNER
        if not is_mine.all():

            def mine(each: RaggedArray[Any]) -> RaggedArray[Any]:
                kept = each.values[np.repeat(is_mine, each.lengths)]
                return RaggedArray.unchecked(kept, each.lengths * is_mine)

            batch = obs.map_arrays(mine)
            masks = dict(batch.action_masks)
            for name, mask in obs.action_masks.items():
                if not isinstance(mask, VecContinuousActionMask) and mask.per_actor is not None:
                    shown: Any = masks[name]
                    masks[name] = replace(shown, per_actor=mask.per_actor)  # one per row
            obs = replace(
                obs,
                features=dict(batch.features),
                visible=dict(batch.visible),
                action_masks=masks,
            )
        self._obs = obs
        return obs

    def _try_new(self, inner: VecObs, waiting: NDArray[np.int64]) -> None:
        """Lets new opponents decide once, to find invalid ones before they play."""
        for opponent in self._playing.values():
            if opponent not in self._tried and len(waiting):
                self._decided(opponent, inner, waiting[:1])
                self._tried.add(opponent)

    def _decided(
        self, opponent: Opponent, inner: VecObs, rows: NDArray[np.int64]
    ) -> Mapping[ActionName, NDArray[Any]]:
        batch = inner.map_arrays(itemgetter(rows))
        obs = VecObs(
            dict(batch.features),
            dict(batch.visible),
            dict(batch.action_masks),
            inner.reward[rows],
            inner.terminated[rows],
            inner.truncated[rows],
            inner.env_id[rows],
            inner.agent_id[rows],
            begins=self._begins[rows],
        )
        try:
            answer = opponent.decide(obs)
            return checked_vec_actions(
                answer,
                obs.action_masks,
                self.action_space(),
                lambda row: self._name_row(int(rows[row])),
            )
        except (CheckpointError, SchemaError) as error:
            raise type(error)(f"the opponent {opponent.name} cannot play: {error}") from error

    def _joined(
        self, inner: VecObs, parts: Mapping[int, Mapping[ActionName, NDArray[Any]]]
    ) -> dict[ActionName, NDArray[Any]]:
        """The actions of all rows; those of each part are in row order."""
        joined: dict[ActionName, NDArray[Any]] = {}
        for name, space in self.action_space().items():
            owner = self._owner[inner.action_masks[name].actors.row_index]
            if isinstance(space, ContinuousActionSpace):
                values: NDArray[Any] = np.empty((len(owner), len(space)), np.float32)
            else:
                values = np.empty(len(owner), np.int64)
            for key, part in parts.items():
                chosen = owner == key
                if chosen.any():
                    values[chosen] = part[name]
            joined[name] = values
        return joined

    def _name_row(self, row: int) -> str:
        return row_name(row, self.num_agents)


_MAX_RESULTS: Final = 10_000


def _without(final: VecObs | None, is_theirs: NDArray[np.bool_], num_agents: int) -> VecObs | None:
    """Final observations without those of opponents; None if none are left."""
    if final is None:
        return None
    is_mine = ~is_theirs[final.env_id * num_agents + final.agent_id]
    if is_mine.all():
        return final
    return final.select(is_mine) if is_mine.any() else None
