"""`check_batch_env`: contract tests for a `BatchEnv`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.check.batch_arrays import (
    FLAGS,
    MASK,
    OBSERVATION,
    Difference,
    arrays_of,
    first_difference,
    flags_of,
    misshapen,
    wrong_values,
)
from entity_env.check.source_check import SourceCheck
from entity_env.check.violations import (
    CannotContinueError,
    LikelyMistake,
    Snapshot,
    difference,
    is_of,
)
from entity_env.core.environment import Environment
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.validation import checked_count
from entity_env.errors import EntityEnvError, ProtocolError, SchemaError
from entity_env.vec.batch_env.batch_env import (
    BatchActions,
    BatchActionSpace,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
)
from entity_env.vec.batch_env.batch_spaces import require_batch_env

_SHORT: Final = 50
"""Maximum steps of a replay that finds a violation early or not at all."""
_NUM_STARTS: Final = 3
"""Resets without a seed that must not all start the same episodes."""
_MIN_REWARDS: Final = 5
"""Steps an episode needs to show that rewards only grow."""

_Change: TypeAlias = Callable[[BatchEnv, BatchActions], BatchActions]
"""Called before a step of a replay; returns the actions to take."""


def check_batch_env(
    source: BatchEnv | Callable[[int], BatchEnv],
    *,
    num_envs: int = 5,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
) -> None:
    """Checks the contract of a batch environment, with random legal actions.

    Finds

    - arrays of the wrong shape or dtype, flags other than 0 and 1, non-finite numbers, masks
      without a legal choice;
    - arrays that share memory, change before the next step, or hold the state, so writing to them
      changes episodes;
    - a `step_no_reset` that resets, or continues an ended episode;
    - a `reset_envs` that touches other environments or the rewards, or starts the same episode
      again;
    - episodes that differ in a second run with the same seed, with `step`, with actions of another
      dtype, or in a batch of one with the environment's seed;
    - invalid actions that are accepted or change something, and calls accepted before `reset`;
    - episodes that never end, a `close` that fails, and threads and processes left running.

    The logger `entity_env.check` warns of likely mistakes, which are not violations: rewards that
    look like a running score, and a batch of one with different rounding.

    Args:
        source: a class or function that makes a batch of a given number of environments; or one
            batch environment, which is closed at the end. One batch environment is not compared
            with a batch of one, and not called before `reset`.
        num_envs: number of environments in the batch; ignored if `source` is a batch environment.
        episodes: episodes to end in each environment, if `max_steps` allows.
        max_steps: maximum number of steps; an environment that ends no episode within them counts
            as endless.
        seed: seed of episodes and actions.

    Raises:
        ContractError: all violations, one sentence each, in `problems`.
        SchemaError: `source` is a `Game` or an `Environment`, which have their own checks.
    """
    for kind, command in ((Game, "check_game"), (Environment, "check_env")):
        if is_of(source, kind):
            raise SchemaError(f"{source!r} is not a batch environment: use {command}")
    num_envs = source.num_envs if isinstance(source, BatchEnv) else num_envs
    checked_count("num_envs", num_envs)
    _BatchCheck(source, seed, max_steps, num_envs).run(episodes)


class _Step(NamedTuple):
    place: str
    actions: BatchActions
    after: Snapshot
    ended: NDArray[np.bool_]
    resets: NDArray[np.bool_]
    """`(num_envs,)`, environments reset after the step: those that ended, and sometimes another."""
    begun: Snapshot
    """Arrays after the resets."""


class _BatchCheck(SourceCheck[BatchEnv]):
    def __init__(
        self,
        source: BatchEnv | Callable[[int], BatchEnv],
        seed: int,
        max_steps: int,
        num_envs: int,
    ) -> None:
        super().__init__(source, seed, max_steps)
        self._num_envs = num_envs
        self._rng = np.random.default_rng(seed)
        self._columns: Sequence[str] = ()
        self._space: BatchActionSpace
        self._first: Snapshot = {}
        self._steps: list[_Step] = []
        self._num_passed = 0
        """Number of violations that do not stop the check: those of calls before `reset`."""

    def play(self, episodes: int) -> None:
        env = self._make(self._num_envs)
        self._read_spaces(env)
        is_fresh = env is not self._source
        if is_fresh:
            self._call_before_reset(self._make(self._num_envs))
            self._num_passed = len(self._violations)
        self._record(env, episodes)
        self._stop_if_broken()
        self._violations.extend(LikelyMistake(each) for each in _odd_rewards(self._steps))
        alone = (self._alone,) if is_fresh else ()
        for stage in (self._again, *alone, self._reset_by_seeds, self._refuse, self._vary):
            self._violations.place = ""
            stage(env)
            self._stop_if_broken()

    # ------------------------------------------------------------------ stages

    def _make(self, num_envs: int) -> BatchEnv:
        self.call = f"making a batch of {num_envs}"
        made: object = (
            self._source if isinstance(self._source, BatchEnv) else self._source(num_envs)
        )
        if not isinstance(made, BatchEnv):
            self._stop(f"{self.call} gave a {type(made).__name__}, expected a BatchEnv")
        if self._keep(made).num_envs != num_envs:
            self._stop(f"{self.call} gave a batch of {made.num_envs}")
        return made

    def _read_spaces(self, env: BatchEnv) -> None:
        self.call = "reading the spaces"
        try:
            entity, parts, _, self._space = require_batch_env(env)
        except EntityEnvError as error:
            self._stop(str(error))
        space = env.obs_space()
        names = space.entities[entity].features
        of_entity = range(parts.num_entities) if parts.num_entities > 1 else [None]
        own = [name if i is None else f"{name} of entity {i}" for i in of_entity for name in names]
        self._columns = [*own, *space.global_features]

    def _call_before_reset(self, env: BatchEnv) -> None:
        actions = self._any_actions()
        calls: Mapping[str, Callable[[], object]] = {
            "view": env.view,
            "step": lambda: env.step(actions),
            "step_no_reset": lambda: env.step_no_reset(actions),
            "step_no_reset_with_result": lambda: env.step_no_reset_with_result(actions),
            "reset_envs": lambda: env.reset_envs(ResetMask(self._num_envs)),
        }
        for name, call in calls.items():
            self._must_refuse(f"{name} before reset", call, ProtocolError)

    def _record(self, env: BatchEnv, episodes: int) -> None:
        """Steps until every environment has ended `episodes` episodes, or `max_steps` times."""
        self._violations.place, self.call = "step 0", "reset"
        env.reset(self._seed)
        self._first = self._begun(env)
        for (one, array), (two, other) in combinations(_arrays(env).items(), 2):
            if np.shares_memory(array, other):
                self._violations.add(f"{one} and {two} share memory: make an array for each")
        self._reset_some(env, np.zeros(self._num_envs, np.bool_), self._first)
        num_ended = np.zeros(self._num_envs, np.int64)
        for number in range(1, self._max_steps + 1):
            self._violations.place = f"step {number}"
            step = self._step(env, is_first_end=not num_ended.any())
            self._stop_if_broken()
            self._steps.append(step)
            num_ended += step.ended
            if num_ended.min() >= episodes:
                return
        if not num_ended.all():
            self._violations.place = ""
            self._violations.add(
                f"environment {num_ended.argmin()} ends no episode within {self._max_steps} "
                "steps: end or truncate the episode, or pass a larger max_steps; if step_no_reset "
                "resets, the check cannot see the end: leave flags and last observation as they "
                "are until reset_envs"
            )

    def _step(self, env: BatchEnv, *, is_first_end: bool) -> _Step:
        actions = self._legal_actions(env)
        given = actions.copy()
        self.call = "step_no_reset_with_result"
        result: object = env.step_no_reset_with_result(given)
        if not np.array_equal(given, actions):
            self._violations.add(f"{self.call} writes to the actions: copy them first")
        after = self._snapshot(env, result)
        self.call = "view"
        if found := difference(after, self._snapshot(env, env.view())):
            self._violations.add(f"view differs from the result of the step: {found}")
        if found := difference(after, self._snapshot(env, result)):
            self._violations.add(f"view changes the result of the step: {found}")
        ended = flags_of(after)
        resets = ended.copy()
        if ended.any():
            if is_first_end:
                self._step_while_over(env, after, ended)
            if len(self._steps) < _SHORT and not ended.all():
                resets[self._rng.choice(np.flatnonzero(~ended))] = True
        begun = self._reset_some(env, resets, after) if ended.any() else after
        return _Step(self._violations.place, actions, after, ended, resets, begun)

    def _step_while_over(self, env: BatchEnv, after: Snapshot, ended: NDArray[np.bool_]) -> None:
        ids = np.flatnonzero(ended).tolist()
        self._must_refuse(
            f"step_no_reset while the episodes of environments {ids} have ended",
            lambda: env.step_no_reset(self._any_actions()),
            ProtocolError,
        )
        if found := difference(after, self._snapshot(env, env.view())):
            self._violations.add(f"a refused step changes what view shows: {found}")
        self._stop_if_broken()

    def _reset_some(self, env: BatchEnv, resets: NDArray[np.bool_], before: Snapshot) -> Snapshot:
        """Resets environments; the others and all rewards must not change."""
        self.call = "reset_envs"
        env.reset_envs(ResetMask.from_bool(resets))
        begun = self._snapshot(env, env.view())
        if found := first_difference(before, begun, np.flatnonzero(~resets)):
            self._violations.add(
                f"reset_envs changes an environment that is not in its mask: {found.text}"
            )
        if not np.array_equal(before["rewards"][0], begun["rewards"][0]):
            self._violations.add(
                "reset_envs changes the rewards: leave them, they are those of the last step"
            )
        if still := np.flatnonzero(flags_of(begun) & resets).tolist():
            self._violations.add(f"reset_envs leaves the flags of environments {still} set")
        return begun

    def _again(self, env: BatchEnv) -> None:
        other = self._make(self._num_envs)
        self._require_same("one seed gives different episodes", self._replay(other, self._seed))
        theirs = _arrays(other)
        for name, array in _arrays(env).items() if other is not env else ():
            if np.shares_memory(array, theirs[name]):
                self._violations.add(
                    f"{name} of two batches share memory: make the arrays in __init__"
                )

    def _reset_by_seeds(self, env: BatchEnv) -> None:
        """Resets all environments with a seed each, then some with a seed, then without seeds."""
        self.call = "reset"
        env.reset(env.env_seeds(self._seed))
        everyone, some = np.arange(self._num_envs), np.arange(0, self._num_envs, 2)
        self._require_same(
            "reset(env_seeds(seed)) begins different episodes than reset(seed)",
            first_difference(self._first, self._begun(env), everyone),
        )
        env.reset(self._seed + 1)
        starts = self._begun(env)
        env.reset(self._seed)
        self.call = "reset_envs"
        chosen = np.isin(everyone, some)
        env.reset_envs(ResetMask.from_bool(chosen), self._seed + 1)
        shown = self._begun(env)
        self._require_same(
            "reset_envs(mask, seed) begins different episodes than reset(seed)",
            first_difference(starts, shown, some),
        )
        self._require_same(
            "reset_envs(mask, seed) changes an environment that is not in its mask",
            first_difference(self._first, shown, np.flatnonzero(~chosen)),
        )
        if difference(starts, self._first):  # random draws are visible
            everyone_mask = ResetMask.from_bool(np.ones(self._num_envs, np.bool_))
            self._must_go_on(env, "reset", env.reset)
            self._must_go_on(env, "reset_envs", lambda: env.reset_envs(everyone_mask))

    def _must_go_on(self, env: BatchEnv, name: str, again: Callable[[], None]) -> None:
        """Resets without a seed must not all start the same episodes."""
        env.reset(self._seed)
        self.call = name
        for _ in range(_NUM_STARTS):
            again()
            if difference(self._first, self._begun(env)):
                return
        self._violations.add(
            f"{name} without a seed begins the same episodes again: continue the sequence of draws "
            "of each environment"
        )

    def _refuse(self, env: BatchEnv) -> None:
        """Invalid actions must be refused and change nothing."""
        wrong = dict(self._wrong_actions(env))
        for what, actions in wrong.items():
            env.reset(self._seed)
            self._must_refuse(
                f"step_no_reset with {what}",
                lambda actions=actions: env.step_no_reset(actions),  # type: ignore[misc]
                SchemaError,
            )
        self._stop_if_broken()

        def refused_first(env: BatchEnv, actions: BatchActions) -> BatchActions:
            for each in wrong.values():
                with suppress(SchemaError):
                    env.step_no_reset(each)
            return actions

        found = self._replay(env, self._seed, change=refused_first, num_steps=_SHORT)
        self._require_same("a step that refuses its actions changes episodes", found)

    def _vary(self, env: BatchEnv) -> None:
        """Replays with `step`, with another dtype of actions, and with writes to the results."""
        found = self._replay(env, self._seed, by_step=True)
        self._require_same("step differs from step_no_reset and reset_envs", found)
        is_continuous = isinstance(self._space, ContinuousActionSpace)
        dtype = np.dtype(np.float64 if is_continuous else np.int32)
        if not is_continuous and len(self._space) <= np.iinfo(np.uint8).max:
            dtype = np.dtype(np.uint8)

        def cast(_: BatchEnv, actions: BatchActions) -> BatchActions:
            return actions.astype(dtype)

        found = self._replay(env, self._seed, change=cast, num_steps=_SHORT)
        self._require_same(f"actions of dtype {dtype} give different episodes: convert them", found)

        def scribble(env: BatchEnv, actions: BatchActions) -> BatchActions:
            for array in (env.view().observations, env.view().rewards):
                if array.flags.writeable:
                    array[:] = -12345
            return actions

        found = self._replay(env, self._seed, change=scribble, num_steps=_SHORT)
        self._require_same(
            "writing to the arrays of a StepResult changes episodes (keep the state in arrays that "
            "are not returned)",
            found,
        )

    def _alone(self, env: BatchEnv) -> None:
        for env_id, seed in enumerate(env.env_seeds(self._seed).tolist()):
            what = f"in a batch of one, with its seed from env_seeds, environment {env_id}"
            one = self._make(1)
            found = self._replay(one, seed, [env_id])
            if found is not None and found.is_rounding:
                self._violations.add(LikelyMistake(f"{what} differs by rounding: {found.text}"))
            else:
                self._require_same(f"{what} differs", found)
            self._require_last_observation(one, env_id, seed)

    def _require_last_observation(self, one: BatchEnv, env_id: int, seed: int) -> None:
        """Detects a last observation that is the first one of the next episode.

        Resets just before the step that ends an episode. This shows the start of the next episode,
        unless that step draws random numbers.
        """
        last = next(i for i, step in enumerate(self._steps) if step.ended[env_id])
        self._replay(one, seed, [env_id], num_steps=last)
        one.reset_envs(ResetMask.from_bool(np.ones(1, np.bool_)))
        start = one.view().observations[0]
        shown = self._steps[last].after[OBSERVATION][0][env_id]
        if np.array_equal(start, shown) and not np.array_equal(
            start, self._first[OBSERVATION][0][env_id]
        ):
            self._violations.place = f"{self._steps[last].place}, environment {env_id}"
            self._violations.add(
                "the last observation of an episode is the first one of the next: show the state "
                "in which the episode ended until reset_envs"
            )

    # ------------------------------------------------------------------ replays

    def _replay(
        self,
        env: BatchEnv,
        seed: BatchSeed,
        rows: Sequence[int] | None = None,
        *,
        by_step: bool = False,
        change: _Change | None = None,
        num_steps: int | None = None,
    ) -> Difference | None:
        """Replays the recorded actions; returns the first difference, or None.

        Args:
            env: a batch of `len(rows)` environments.
            rows: rows of the recording; None = all.
            by_step: use `step`, which resets ended episodes.
            num_steps: maximum number of steps; None = all.
        """
        rows = range(self._num_envs) if rows is None else rows
        self._violations.place, self.call = "", "reset"
        env.reset(seed)
        if found := self._compare(self._first, env, rows, "step 0"):
            return found
        for step in self._steps[:num_steps]:
            actions, resets = step.actions[rows], step.resets[rows]
            actions = change(env, actions) if change else actions
            self.call = "step" if by_step else "step_no_reset"
            if by_step:
                env.step(actions)
                resets = resets & ~step.ended[rows]
            else:
                env.step_no_reset(actions)
                if found := self._compare(step.after, env, rows, step.place):
                    return found
            self.call = "reset_envs"
            if resets.any():
                env.reset_envs(ResetMask.from_bool(resets))
            if found := self._compare(step.begun, env, rows, f"{step.place}, after the resets"):
                return found
        return None

    def _compare(
        self, recorded: Snapshot, env: BatchEnv, rows: Sequence[int], place: str
    ) -> Difference | None:
        own = {part: (array[rows], columns) for part, (array, columns) in recorded.items()}
        played = self._snapshot(env, env.view())
        found = first_difference(own, played, range(len(rows)), rows)
        return found and found._replace(text=f"{place}, {found.text}")

    # ------------------------------------------------------------------ arrays

    def _begun(self, env: BatchEnv) -> Snapshot:
        shown = self._snapshot(env, env.view())
        if flags_of(shown).any():
            self._violations.add(
                f"{self.call} leaves flags set, expected 0: no action was taken yet"
            )
        if shown["rewards"][0].any():
            self._violations.add(f"{self.call} leaves rewards, expected 0: no action was taken yet")
        return shown

    def _snapshot(self, env: BatchEnv, result: object) -> Snapshot:
        if not isinstance(result, StepResult):
            self._stop(f"{self.call} gave a {type(result).__name__}, expected a StepResult")
        self._violations.extend(misshapen(env, result, self._space))
        self._stop_if_broken()
        shown = arrays_of(env, result, self._columns)
        self._violations.extend(wrong_values(shown))
        return shown

    # ------------------------------------------------------------------ actions

    def _any_actions(self) -> BatchActions:
        if isinstance(self._space, ContinuousActionSpace):
            [low], [high] = self._space.low, self._space.high
            numbers = self._rng.uniform(low, high, self._num_envs).astype(np.float32)
            return np.clip(numbers, np.float32(low), np.float32(high), out=numbers)
        drawn: NDArray[np.int64] = self._rng.integers(len(self._space), size=self._num_envs)
        return drawn

    def _legal_actions(self, env: BatchEnv) -> BatchActions:
        if (masks := env.legal_masks) is None:
            return self._any_actions()
        return np.array([self._rng.choice(np.flatnonzero(mask)) for mask in masks], np.int64)

    def _wrong_actions(self, env: BatchEnv) -> Iterator[tuple[str, BatchActions]]:
        """Invalid actions, with descriptions: a wrong shape or dtype, or an invalid last action."""
        good: NDArray[Any] = self._steps[0].actions

        def last(value: float) -> BatchActions:
            return np.array([*good[:-1], value], good.dtype)

        yield "too many actions", np.repeat(good, 2)
        yield "actions of the shape (num_envs, 1)", good[:, np.newaxis]
        if isinstance(self._space, ContinuousActionSpace):
            [low], [high] = self._space.low, self._space.high
            yield f"an action above {high:g}", last(2 * high - low + 1)
            yield f"an action below {low:g}", last(2 * low - high - 1)
            yield "an action that is NaN", last(np.nan)
            return
        yield f"action {len(self._space)} of {len(self._space)} choices", last(len(self._space))
        yield "action -1", last(-1)
        yield "floats for choices", good.astype(np.float32)
        if (masks := self._first.get(MASK)) is not None and not masks[0][-1].all():
            yield "an action that legal_masks does not allow", last(int(masks[0][-1].argmin()))

    def _must_refuse(
        self, what: str, call: Callable[[], object], expected: type[EntityEnvError]
    ) -> None:
        try:
            call()
        except expected:
            return
        except Exception as error:
            hint = f", expected a {expected.__name__}"
            self._violations.raised(what, error, hint=hint)
        else:
            self._violations.add(f"{what} is accepted, expected a {expected.__name__}")

    # ------------------------------------------------------------------ violations

    def _require_same(self, what: str, found: Difference | None) -> None:
        if found is not None:
            self._violations.place = ""
            self._violations.add(f"{what}: {found.text}")

    def _stop_if_broken(self) -> None:
        if len(self._violations) > self._num_passed:
            raise CannotContinueError


def _arrays(env: BatchEnv) -> dict[str, NDArray[Any]]:
    names = ("observations", "rewards", *FLAGS)
    arrays: dict[str, NDArray[Any]] = {name: getattr(env.view(), name) for name in names}
    if env.legal_masks is not None:
        arrays["legal_masks"] = env.legal_masks
    return arrays


def _odd_rewards(steps: Sequence[_Step]) -> Iterator[str]:
    """A sentence if rewards only grow, or only fall, in all episodes, as a running score does."""
    rewards = np.array([step.after["rewards"][0] for step in steps])
    resets = np.array([step.resets for step in steps])
    episodes = [
        each
        for env_id in range(rewards.shape[1])
        for each in np.split(rewards[:, env_id], np.flatnonzero(resets[:, env_id]) + 1)
        if len(each) >= _MIN_REWARDS
    ]
    for sign in (1, -1):
        if len(episodes) > 1 and all(_only_grows(sign * each) for each in episodes):
            longest = max(episodes, key=len)
            yield (
                f"rewards only {'grow' if sign > 0 else 'fall'} in each of {len(episodes)} "
                f"episodes, such as from {longest[0]:g} to {longest[-1]:g} in {len(longest)} "
                "steps: return the reward of the step, not the score so far"
            )


def _only_grows(rewards: NDArray[np.float32]) -> bool:
    return bool((np.diff(rewards) >= 0).all()) and len(np.unique(rewards)) >= _MIN_REWARDS - 1
