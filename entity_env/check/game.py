"""`check_game`: contract tests for a `Game`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Final

from entity_env.authoring.game import Game
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.check.direct_play import CheckPlan, DirectPlay
from entity_env.check.likely_mistakes import (
    aliased_members,
    missing_choices,
    odd_scores,
    slow_steps,
    unseen_attributes,
)
from entity_env.check.outer_state import OuterState
from entity_env.check.reproducible import add_irreproducible
from entity_env.check.suspended import suspended_violations
from entity_env.check.violations import (
    LikelyMistake,
    Violations,
    nothing_left_behind,
    require_same,
)

_SHARE: Final = 1 / 8
"""Fraction of `max_time_s` for the first stage. Each later stage may take as long, the stage with
two copies twice as long."""
_MORE_EPISODES: Final = 100
_MORE_S: Final = 1.0
"""Maximum episodes and seconds of a search for rewards by random moves. The number of episodes is
larger if the caller requested more."""


def check_game(
    game: Game,
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
    step_timeout_s: float | None = 30.0,
    new_process: bool = True,
    max_time_s: float | None = 60.0,
    on_step: Callable[[str], None] | None = None,
) -> int:
    """Checks the contract of a game, with random legal actions.

    Finds the same problems in observations as `check_env`, and also

    - fields that do not have their declared type, undeclared entities and actions, names in an Enum
      that cannot be chosen, and agents called from another thread;
    - episodes that differ for one seed, never end, or never call `act`;
    - a `play` that raises, hangs, returns without `game_over`, continues or raises after `act`
      returned None, or swallows `GameExit`; threads and processes left running.

    If it finds none, it checks that episodes are reproducible: by two copies that play in turn, and
    from `Episode.seed` alone, also in a process with another `PYTHONHASHSEED`. It names what
    differs, and likely causes. The program of an `ExternalGame` is checked by `program_violations`.

    The logger `entity_env.check` warns of likely mistakes, which are not violations: scores that
    never change, look like rewards of steps, or change by a million; integers too large for
    float32; unused masks; truncations without an observation; fields without annotation;
    aliases in Enums of fields; draws from a global generator; steps of 10 ms or more on average;
    no time left; a game that another process cannot load.

    Args:
        game: the game with its settings; see `Game.with_settings`.
        episodes, max_steps, seed, step_timeout_s: as for `check_env` and `Game.run`.
        new_process: also play in another process (half a second plus the game's import).
        max_time_s: approximate seconds after which no more steps are played; None = no limit.
        on_step: called with the name of the stage, in most stages at every step.

    Returns:
        The number of whole episodes; less than `episodes` if time ran out.

    Raises:
        ContractError: all violations, one sentence each, in `problems`.
        UsageError: a setting without a default has no value.
    """
    game.require_settings()
    violations, timeout = Violations(game.name), StepTimeout(step_timeout_s)
    show = on_step or (lambda stage: None)
    plan = CheckPlan(game, violations, episodes, max_steps, seed, timeout, step_timeout_s, show)
    outer = OuterState(game)
    with nothing_left_behind(violations), timeout:
        first = _play_here(plan, outer, max_time_s)
        most = first if len(violations) else _look_for_rewards(first, max_time_s)
    if not len(violations):
        add_irreproducible(first.repeatable, first.known_cause, new_process=new_process)
    _check_program(plan, max_time_s)
    violations.extend(missing_choices(game.schema))
    violations.raise_if_any()
    _warn(violations, first, most, outer)
    return first.num_whole_episodes


def _check_program(plan: CheckPlan, max_time_s: float | None) -> None:
    """Checks the program of an `ExternalGame` that has no violation so far."""
    plan.violations.place = plan.violations.line = ""
    if not len(plan.violations) and hasattr(plan.game, "start_program"):
        from entity_env.check.program import program_violations  # imports all of `vec`

        stop_s = perf_counter() + (max_time_s or float("inf"))
        found = program_violations(plan.game, plan.seed, plan.on_step, stop_s)
        plan.violations.extend(found)


def _play_here(plan: CheckPlan, outer: OuterState, max_time_s: float | None) -> DirectPlay:
    """Plays directly, then suspended, then with `act` returning None; returns the first play."""
    share_s = float("inf") if max_time_s is None else max_time_s * _SHARE
    first = DirectPlay(plan, "playing", outer, perf_counter() + share_s)
    first.play()
    if not len(plan.violations):
        _compare(first, outer)
    if not plan.violations.hangs:
        _close_everywhere(first, share_s)
    return first


def _compare(first: DirectPlay, outer: OuterState) -> None:
    """Plays suspended; after a difference, checks whether direct play also differs."""
    suspended = suspended_violations(first, outer)
    if not len(suspended):
        return
    violations = first.repeatable.violations
    again = DirectPlay(first.repeatable, "playing once more")
    again.play()
    if len(violations):
        violations.place = violations.line = ""
        violations.add(f"one seed gives different episodes: the first had no error{outer.cause()}")
        return
    require_same(first.trace, again.trace, violations, outer.cause)
    if not len(violations):
        violations.include(suspended)


def _close_everywhere(first: DirectPlay, share_s: float) -> None:
    """Plays once per call site, with `act` returning None there; stops at the first violation."""
    plan = first.repeatable
    stop_s = perf_counter() + share_s
    num_before = len(plan.violations)
    for num_answers in first.closings or [0]:
        DirectPlay(plan, "closing it").play(num_answers)
        if len(plan.violations) > num_before or perf_counter() > stop_s:
            return


def _look_for_rewards(first: DirectPlay, max_time_s: float | None) -> DirectPlay:
    """If the score never changed, plays more episodes, for up to a second.

    Returns the play with more whole episodes. Violations in the extra episodes are not reported:
    the caller did not request them.
    """
    if first.is_cut or any(len({each.value for each in scores}) > 1 for scores in first.scores):
        return first
    plan, time_s = first.repeatable, min(_MORE_S, max_time_s or _MORE_S)
    num = max(plan.episodes, _MORE_EPISODES)
    plan = replace(plan, episodes=num, violations=Violations(plan.game.name))
    more = DirectPlay(plan, "looking for rewards", stop_s=perf_counter() + time_s)
    more.play()
    return more if more.num_whole_episodes > first.num_whole_episodes else first


def _warn(violations: Violations, first: DirectPlay, most: DirectPlay, outer: OuterState) -> None:
    schema = first.repeatable.game.schema
    slow = slow_steps(first.step_times_s, first.num_answered, is_cut=first.is_cut)
    found = [
        *unseen_attributes(schema),
        *aliased_members(schema),
        *odd_scores(most.scores, most.num_whole_episodes),
        slow,
        outer.draw,
    ]
    violations.extend(LikelyMistake(text) for text in found if text)
    violations.log_likely_mistakes()
