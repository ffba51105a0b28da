"""`OpponentPool`: past selves and other opponents of a training run, with ratings."""

from __future__ import annotations

import copy
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from entity_env.agents.load import load_agent
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX, read_agent, write_agent
from entity_env.agents.rogue_net.memory import RowStates
from entity_env.agents.rogue_net.torch_net.policy import Policy, past_argument
from entity_env.agents.rogue_net.torch_net.rollout_policy import ActingPolicy, fastest_policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensors
from entity_env.agents.training.callbacks import Callback, TrainState
from entity_env.agents.training.presets import RANDOM_OPENINGS
from entity_env.agents.training.self_play.ratings import LARGEST_DEVIATION, PairRecord, Rating
from entity_env.agents.training.self_play.vec_env import (
    MultiAgentVec,
    Opponent,
    SeatResult,
    SelfPlayVecEnv,
)
from entity_env.authoring.agent import Agent
from entity_env.authoring.schema import Schema
from entity_env.core.files import parse_json, read_file, write_file
from entity_env.core.validation import checked_count
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import CheckpointError, EntityEnvError, ProtocolError, UsageError

SELF: Final = "self"
"""Name of the past selves."""
FOLDER: Final = "opponents"
"""Subfolder of a run, with the pool."""

_POOL_FILE: Final = "pool.json"
_FORMAT: Final = "entity_env.opponents"
_MAX_BYTES: Final = 1 << 20
_NUM_SNAPSHOTS: Final = 40
"""Default number of snapshots per run."""
_DRIFT: Final = 40.0
"""Elo points by which the learner's strength may change per update."""
_MEMORY: Final = 0.95
"""Weight of earlier games in a win rate, per update."""
_HARDNESS: Final = 2.0
_FLOOR: Final = 0.05
_SAVE_INTERVAL_S: Final = 20.0
_NUM_JUDGED: Final = 300
"""Number of games after which the pool decides whether the game is cooperative."""

_log: Final = logging.getLogger(__name__)


class _PastSelf:
    """Decides with a network, once `remember` has set it."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator
        self.policy: ActingPolicy | None = None
        self._rows = RowStates(0)

    def remember(self, net: Policy, generator: torch.Generator) -> None:
        """Sets the network, which must not change afterwards."""
        self.policy, self.generator = fastest_policy(net.eval()), generator
        self._rows = RowStates(net.memory_width)

    def __call__(self, obs: VecObs) -> VecActions:
        if self.policy is None:
            raise ProtocolError("the pool is a callback, too: train(pool.vec, callbacks=[pool])")
        past = past_argument(self._rows.past(obs) if self._rows.width else None)
        output = self.policy.act(obs, generator=self.generator, **past)
        if output.states is not None:
            self._rows.advance(obs, output.states)
        return output.actions


@dataclass
class _Member:
    """An opponent in the pool: a past self, if `step` is set, or another agent."""

    opponent: Opponent
    rating: Rating
    step: int | None = None
    count: float = 0.0
    score: float = 0.0
    """Sum of the learner's scores in `count` games; both fade with every update."""

    @property
    def win_rate(self) -> float:
        """The learner's win rate; near 0.5 after few games."""
        return (self.score + 1) / (self.count + 2)

    @property
    def file(self) -> str:
        return f"step-{self.step:09d}{SUFFIX}"


class OpponentPool(Callback):
    """Opponents of a training run, with ratings: `train(pool.vec, callbacks=[pool])`.

    Past selves are copies of the network, the first from before training. Beyond `size`, the pool
    drops those whose steps are close to others: the first and the newest stay, and gaps grow toward
    the past. After every update, the pool draws the past selves for new games, each with a weight
    of (1 - p)^2, at least 0.05, where p is the learner's win rate against it (prioritized
    fictitious self-play, Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent
    reinforcement learning").

    The curve `rating` is the learner's rating, in Elo points above the network before training; 400
    more = 10 times the odds. A new past self starts with the learner's current rating. The curves
    `metrics/wins_NAME` are win rates; draws count half. `mean_reward` covers only games against
    opponents, unless the learner has all seats in all environments.

    The folder `opponents` of the run has the past selves, as `.agent` files, and `pool.json` with
    the ratings; a resumed run continues with them. Unreadable entries are skipped, with one
    warning. With several ranks, each has a pool of equal past selves and rates them by its own
    games; rank 0 writes, and its rating is the curve.

    If, in each of the first 300 games, all seats earn equal amounts, and these amounts vary between
    games, the game counts as cooperative: from then on, the learner gets all seats.

    Args:
        vec: environments of the game, with autoreset "same_step".
        shares: shares of the environments by opponent name, 1 at most in total. "self" stands for
            the past selves; any other name is loaded by `load_agent`, such as "random", a
            checkpoint or an `.agent` file. In the remaining environments the learner has all seats.
        agents: agents for names in `shares`, instead of loading them; further names are ignored.
        size: largest number of past selves, at least 2.
        num_playing: number of past selves drawn at every update for the next games.
        snapshot_every: number of decisions between snapshots; None = 40 snapshots, spread evenly
            over the run's steps or time.
        random_openings: share of all games, see `SelfPlayVecEnv`.

    Raises:
        UsageError: a game for one agent, invalid shares, or an unknown opponent.
        CheckpointError: a checkpoint that cannot be read.

    Attributes:
        vec: the environments to train on.
    """

    def __init__(
        self,
        vec: MultiAgentVec,
        schema: Schema,
        shares: Mapping[str, float],
        *,
        agents: Mapping[str, Agent] | None = None,
        size: int = 20,
        num_playing: int = 2,
        snapshot_every: int | None = None,
        random_openings: float = RANDOM_OPENINGS,
        seed: int = 0,
    ) -> None:
        total = sum(shares.values())
        if not shares or min(shares.values()) <= 0 or total > 1 + 1e-9:
            raise UsageError(
                f"shares of opponents must be above 0 and add up to at most 1, got {dict(shares)}"
            )
        self._size = checked_count("size", size, 2)
        self._num_playing = checked_count("num_playing", num_playing)
        self._snapshot_every = snapshot_every
        self._snapshot_at = 0
        """Step at the last snapshot; `scheduled_step` if `snapshot_every` is None."""
        self._shares = dict(shares)
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._generator: torch.Generator | None = None
        self._members: list[_Member] = []
        """Past selves, oldest first."""
        found = {name: each for name, each in (agents or {}).items() if name in shares}
        for name in shares:
            if name != SELF and name not in found:
                found[name] = load_agent(name, seed=seed)
        self._others = [
            _Member(Opponent.of_agent(name, agent, schema, _kind(name)), Rating())
            for name, agent in found.items()
        ]
        self._first = _PastSelf()
        self.rating = Rating()
        self._saved = 0.0
        self._num_judged = self._num_equal = 0
        self._totals: set[float] = set()
        most = 2 * self._num_playing + len(self._others)
        self.vec = SelfPlayVecEnv(
            vec,
            share=min(total, 1.0),
            max_opponents=most,
            random_openings=random_openings,
            seed=seed,
        )
        if SELF in shares:
            self._members = [_Member(Opponent("step 0", self._first, SELF), Rating(0.0, 0.0), 0)]
        self._set_opponents()

    # ------------------------------------------------------------------ the run

    def on_start(self, state: TrainState) -> None:
        rank_seed = self._seed if not state.rank else [self._seed, state.rank]
        drawn = int(np.random.SeedSequence(rank_seed).generate_state(1)[0])
        self._generator = torch.Generator(state.net.device).manual_seed(drawn)
        self._rng = np.random.default_rng(drawn)
        folder = self._folder(state)
        is_loaded = state.is_resumed and folder is not None and self._load(folder, state)
        if not is_loaded and SELF in self._shares:
            self._first.remember(copy.deepcopy(state.net), self._generator)
            self._members[0].step = state.progress.step
            self._save(state, self._members[0])
        self._set_opponents()

    def on_update(self, state: TrainState) -> None:
        results = self.vec.take_results()
        if self._shares and self._is_cooperative(results):
            _log.warning(
                "all seats earn the same in this game: from now on, the learner takes all seats"
            )
            self._shares = {}
            self.vec.set_opponents([])
        if not self._shares:
            return
        self._rate(results)
        state.record("rating", self.rating.value)
        step = state.progress.step
        every, reached = self._snapshot_every, step
        if every is None:  # by the fraction of the run's steps or time
            reached = state.progress.scheduled_step
            every = max(state.progress.total // _NUM_SNAPSHOTS, 1)
        if self._members and reached - max(self._members[-1].step or 0, self._snapshot_at) >= every:
            self._add_snapshot(state)
            self._snapshot_at = reached
        elif time.monotonic() - self._saved > _SAVE_INTERVAL_S:
            self._save(state)
        self._set_opponents()

    def on_end(self, state: TrainState) -> None:
        if self._shares:
            self._save(state)

    def _add_snapshot(self, state: TrainState) -> None:
        past, step = _PastSelf(), state.progress.step
        past.remember(copy.deepcopy(state.net), self._require_generator())
        member = _Member(Opponent(f"step {step}", past, SELF), self.rating, step)
        self._members.append(member)
        gone = []
        while len(self._members) > self._size:
            gone.append(self._members.pop(crowded([each.step or 0 for each in self._members])))
        self._save(state, member)
        folder = self._folder(state)
        if folder is not None and not state.rank:
            for each in gone:
                (folder / each.file).unlink(missing_ok=True)

    def _require_generator(self) -> torch.Generator:
        if self._generator is None:
            raise ProtocolError("the run has not started")
        return self._generator

    def _set_opponents(self) -> None:
        """Draws the past selves of the next games, and sets all opponents."""
        playing = [(each.opponent, self._shares[each.opponent.name]) for each in self._others]
        if self._members:
            weights = np.array([max((1 - m.win_rate) ** _HARDNESS, _FLOOR) for m in self._members])
            count = min(self._num_playing, len(weights))
            chosen = self._rng.choice(len(weights), count, replace=False, p=weights / weights.sum())
            playing += [(self._members[i].opponent, self._shares[SELF] / count) for i in chosen]
        self.vec.set_opponents([each for each, _ in playing], [share for _, share in playing])

    def _is_cooperative(self, results: Sequence[SeatResult]) -> bool:
        if self._num_judged >= _NUM_JUDGED:
            return False
        for result in results:
            self._num_equal += len(set(result.rewards)) == 1
            self._totals.add(sum(result.rewards))
        self._num_judged += len(results)
        is_judged = self._num_judged >= _NUM_JUDGED
        return is_judged and self._num_equal == self._num_judged and len(self._totals) > 1

    def _rate(self, results: Sequence[SeatResult]) -> None:
        """Updates all ratings with the games since the last update."""
        before = self.rating = self.rating.loosened(_DRIFT)
        records = []
        for member in (*self._members, *self._others):
            scores = [one.score for one in results if one.opponent is member.opponent]
            member.count = _MEMORY * member.count + len(scores)
            member.score = _MEMORY * member.score + sum(scores)
            if scores:
                lost = len(scores) - sum(scores)
                records.append(PairRecord(member.rating, len(scores), sum(scores)))
                member.rating = member.rating.updated([PairRecord(before, len(scores), lost)])
        self.rating = before.updated(records)

    # ------------------------------------------------------------------ files

    def _folder(self, state: TrainState) -> Path | None:
        return None if state.out is None else state.out / FOLDER

    def _save(self, state: TrainState, new: _Member | None = None) -> None:
        """Writes the ratings and a new past self, on rank 0."""
        folder = self._folder(state)
        self._saved = time.monotonic()
        if folder is None or state.rank:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if new is not None:
            write_agent(folder / new.file, state.net.weights())
        data = {
            "format": _FORMAT,
            "step": state.progress.step,
            "learner": _to_json(self.rating),
            SELF: [{"file": m.file, "step": m.step, **_entry(m)} for m in self._members],
            "others": {each.opponent.name: _entry(each) for each in self._others},
        }
        write_file(folder / _POOL_FILE, (json.dumps(data, indent=1) + "\n").encode())

    def _load(self, folder: Path, state: TrainState) -> bool:
        """Reads the pool of an earlier run; False if no past self could be read."""
        problems: list[str] = []
        data: Any = {}
        try:
            data = parse_json(read_file(folder / _POOL_FILE, _MAX_BYTES))
            if not isinstance(data, dict) or data.get("format") != _FORMAT:
                raise ValueError("it is not a pool file")
            self.rating = _from_json(data["learner"])
            entries = [dict(each) for each in data[SELF]]
            others = {str(name): dict(each) for name, each in data["others"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            problems.append(f"{folder / _POOL_FILE}: {error}")
            entries, others = [], {}
        for each in self._others:
            if each.opponent.name in others:
                _fill(each, others[each.opponent.name], problems)
        members: list[_Member] = []
        for entry in entries if SELF in self._shares else ():
            try:
                step = int(entry["step"])
                if step > state.progress.step:
                    continue  # newer than the checkpoint
                member = _Member(Opponent(f"step {step}", self._first, SELF), Rating(), step)
                past = self._first if not members else _PastSelf()
                past.remember(_net(folder / member.file, state.net), self._require_generator())
            except EntityEnvError as error:  # names the file
                problems.append(str(error))
                continue
            except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
                problems.append(f"{folder / _POOL_FILE}: {type(error).__name__}: {error}")
                continue
            if members:
                member.opponent = Opponent(f"step {step}", past, SELF)
            else:
                member.opponent = self._members[0].opponent
            _fill(member, entry, problems)
            members.append(member)
        if problems:
            _log.warning("opponents of the earlier run are missing: %s", "; ".join(problems[:3]))
        if members:
            self._members = members
        return bool(members)


def crowded(steps: Sequence[int]) -> int:
    """Index to drop from ascending steps, neither the first nor the last.

    Picks the step whose neighbors are closest together, relative to its distance to the last.
    """
    gaps = [
        (steps[i + 1] - steps[i - 1]) / max(steps[-1] - steps[i], 1)
        for i in range(1, len(steps) - 1)
    ]
    return 1 + int(np.argmin(gaps))


def _kind(name: str) -> str:
    """Metric name of an opponent: of a file, its name without folder and suffix."""
    return Path(name).name.removesuffix(SUFFIX) or name


def _net(path: Path, like: Policy) -> Policy:
    """A network of the kind of `like`, with the weights from a file."""
    net = copy.deepcopy(like)
    try:
        net.load_state_dict(as_tensors(read_agent(path).tensors))
    except RuntimeError as error:  # raised by torch
        raise CheckpointError(f"{path} has a network of another kind or size") from error
    return net


def _entry(member: _Member) -> dict[str, object]:
    return {"rating": _to_json(member.rating), "count": member.count, "score": member.score}


def _fill(member: _Member, entry: Mapping[str, Any], problems: list[str]) -> None:
    try:
        rating, count, score = _from_json(entry["rating"]), entry["count"], entry["score"]
        if not 0 <= score <= count < math.inf:
            raise ValueError(f"expected a score from 0 to {count!r} games, got {score!r}")
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"the rating of {member.opponent.name}: {error}")
        return
    member.rating, member.count, member.score = rating, float(count), float(score)


def _to_json(rating: Rating) -> list[float]:
    return [round(rating.value, 2), round(rating.deviation, 2)]


def _from_json(data: object) -> Rating:
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError(f"a rating has two numbers, got {data!r:.40}")
    value, deviation = (float(each) for each in data)
    if not (math.isfinite(value) and 0 <= deviation <= LARGEST_DEVIATION):
        raise ValueError(
            f"a rating has a finite value and a deviation from 0 to {LARGEST_DEVIATION:g}, got "
            f"{data!r:.40}"
        )
    return Rating(value, deviation)
