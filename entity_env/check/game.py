"""`check_game`: contract tests for a `Game`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Final

from entity_env.authoring.game import Game
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.check.direct_play import MIN_ANSWERS, DirectPlay
from entity_env.check.game_frames import ClockWatch
from entity_env.check.likely_mistakes import (
    aliased_members,
    compared_with_text,
    missing_choices,
    odd_scores,
    odd_settings,
    single_choice,
    slow_steps,
    unseen_attributes,
)
from entity_env.check.outer_state import OuterState
from entity_env.check.plan import CheckPlan
from entity_env.check.reproducible import add_irreproducible
from entity_env.check.suspended import suspended_violations
from entity_env.check.violations import (
    LikelyMistake,
    Violations,
    nothing_left_behind,
    require_same,
)

_STAGES: Final = 8
"""How often the first stage's steps are played later, at most: they share the time that it left."""
_DECISIONS: Final = 300
"""Decisions of the first stage: it plays more episodes than requested if they are short."""
_MORE_DECISIONS: Final = 5000
_MORE_CHANGES: Final = 24
"""Decisions of a search for rewards by random moves, which ends at this number of changes of the
score."""
_CLOCK_ANSWERS: Final = 100
"""Decisions in which reads of the clock are looked for."""
_NEVER: Final = float("inf")


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

    The logger `entity_env.check` warns of likely mistakes, which are not violations, such as points
    that never arrive or a step of 10 ms; docs/explanation/own_loop.md lists them.

    Args:
        game: the game with its settings; see `Game.with_settings`.
        episodes, max_steps, seed, step_timeout_s: as for `check_env` and `Game.run`.
        new_process: also play in another process (half a second plus the game's import).
        max_time_s: approximate seconds after which no more steps are played; None = no limit. The
            requested episodes come first; more are played if they are short or rewards are rare.
        on_step: called with the name of the stage, in most stages at every step.

    Returns:
        The number of whole episodes; less than `episodes` if the check is unfinished because the
        time ran out.

    Raises:
        ContractError: all violations, one sentence each, in `problems`.
        UsageError: a setting without a default has no value.
    """
    game.require_settings()
    violations, timeout = Violations(game.name), StepTimeout(step_timeout_s)
    show = on_step or (lambda stage: None)
    plan = CheckPlan(game, violations, episodes, max_steps, seed, timeout, step_timeout_s, show)
    stop_s = _NEVER if max_time_s is None else perf_counter() + max_time_s
    outer, clock = OuterState(game), ClockWatch(game)
    with nothing_left_behind(violations), timeout:
        first, again = _play_here(plan, outer, clock, stop_s)
        most = first if len(violations) else _look_for_rewards(first, stop_s)
    if not len(violations):
        add_irreproducible(again, first.known_cause, read=outer.read, new_process=new_process)
    _check_program(plan, max_time_s)
    violations.extend(missing_choices(game.schema))
    violations.raise_if_any()
    _warn(violations, first, again, most, outer)
    return first.num_whole_episodes


def _check_program(plan: CheckPlan, max_time_s: float | None) -> None:
    """Checks the program of an `ExternalGame` that has no violation so far."""
    plan.violations.place = plan.violations.line = ""
    if not len(plan.violations) and hasattr(plan.game, "start_program"):
        from entity_env.check.program import program_violations  # imports all of `vec`

        stop_s = perf_counter() + (max_time_s or float("inf"))
        found = program_violations(plan.game, plan.seed, plan.on_step, stop_s)
        plan.violations.extend(found)


def _play_here(
    plan: CheckPlan, outer: OuterState, clock: ClockWatch, stop_s: float
) -> tuple[DirectPlay, CheckPlan]:
    """Plays directly, then suspended, then with `act` returning None.

    Returns:
        The first play, and the plan that repeats as much of it as the time allows.
    """
    before_s = perf_counter()
    more_s = before_s + (stop_s - before_s) / _STAGES
    longer = replace(plan, decisions=_DECISIONS)
    first = DirectPlay(longer, "playing", outer, stop_s, more_s)
    first.play()
    after_s = perf_counter()
    again, budget_s = first.repeatable, max(stop_s - after_s, 0.0) / _STAGES
    if budget_s < after_s - before_s:
        share = budget_s / (after_s - before_s)
        again = replace(again, num_answers=max(MIN_ANSWERS, int(first.num_answered * share)))
    if not len(plan.violations):
        _read_clock(again, clock)
        outer.clock = clock.found
        _compare(first, again, outer)
    if not plan.violations.hangs:
        _close_everywhere(first, again, budget_s)
    return first, again


def _read_clock(plan: CheckPlan, clock: ClockWatch) -> None:
    """Plays the first steps again, and looks for reads of the clock."""
    most = min(_CLOCK_ANSWERS, _CLOCK_ANSWERS if plan.num_answers is None else plan.num_answers)
    plan = replace(plan, violations=Violations(plan.game.name), num_answers=most)
    DirectPlay(plan, "looking for clocks", clock=clock).play()


def _compare(first: DirectPlay, plan: CheckPlan, outer: OuterState) -> None:
    """Plays suspended; after a difference, checks whether direct play also differs."""
    suspended = suspended_violations(first, plan, outer)
    violations = plan.violations
    violations.place = violations.line = ""
    violations.extend(suspended.likely)
    if not len(suspended):
        return
    again = DirectPlay(plan, "playing once more")
    again.play()
    if len(violations):
        violations.place = violations.line = ""
        violations.add(f"one seed gives different episodes: the first had no error{outer.cause()}")
        return
    require_same(first.trace, again.trace, violations, outer.cause)
    if not len(violations):
        violations.include(suspended)


def _close_everywhere(first: DirectPlay, plan: CheckPlan, budget_s: float) -> None:
    """Plays once per call site, with `act` returning None there; stops at the first violation."""
    stop_s = perf_counter() + budget_s
    num_before = len(plan.violations)
    for num_answers in first.closings or [0]:
        DirectPlay(plan, "closing it").play(num_answers)
        if len(plan.violations) > num_before or perf_counter() > stop_s:
            return


def _look_for_rewards(first: DirectPlay, stop_s: float) -> DirectPlay:
    """If the score changed rarely, plays more episodes, up to a fixed number of decisions.

    Returns the play with more whole episodes. Violations in the extra episodes are not reported:
    the caller did not request them.
    """
    if first.is_cut or first.num_changes >= _MORE_CHANGES:
        return first
    plan, now_s = first.repeatable, perf_counter()
    plan = replace(
        plan,
        decisions=_MORE_DECISIONS,
        changes=_MORE_CHANGES,
        violations=Violations(plan.game.name),
    )
    more = DirectPlay(plan, "looking for rewards", stop_s=now_s + (stop_s - now_s) / _STAGES)
    more.play()
    return more if more.num_whole_episodes > first.num_whole_episodes else first


def _warn(
    violations: Violations,
    first: DirectPlay,
    again: CheckPlan,
    most: DirectPlay,
    outer: OuterState,
) -> None:
    schema = again.game.schema
    repeated = None if again.num_answers == first.num_answered else again.num_answers
    found = [
        *unseen_attributes(schema),
        *aliased_members(schema),
        *odd_settings(again.game),
        *compared_with_text(again.game),
        *odd_scores(most.scores, most.num_whole_episodes, is_cut=most.is_cut),
        first.loses or most.loses or (most.may_lose if most.num_changes else ""),
        single_choice(most.num_answered, most.num_choices),
        slow_steps(first.step_times_s, first.num_answered, is_cut=first.is_cut, repeated=repeated),
        outer.draw,
        outer.clock,
    ]
    violations.place = violations.line = ""
    violations.extend(LikelyMistake(text) for text in found if text)
    violations.log_likely_mistakes()
