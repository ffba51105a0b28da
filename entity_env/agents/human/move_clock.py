"""MoveClock: time limit for a person's decisions, with a default action."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from entity_env.authoring.step_timeout import require_timeout
from entity_env.core.action_request import Question
from entity_env.core.observation import EntityID
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import is_integer

Place: TypeAlias = tuple[float, float]
"""Coordinates on the board."""
REAL_TIME_S: Final = 1.0
"""Longest time per decision for which a game runs in real time."""
_IDLE: Final = ("stay", "wait", "noop", "donothing", "nothing", "none", "pass", "idle", "hold")


class LastChoices:
    """Each actor's last choice in an episode."""

    def __init__(self) -> None:
        self._last: dict[tuple[ActionName, EntityID], Any] = {}
        self._places: dict[tuple[ActionName, EntityID], Place] = {}

    def clear(self) -> None:
        self._last.clear()
        self._places.clear()

    def of(self, question: Question, actor: int) -> Any:  # noqa: ANN401 - as `Question.action`
        """An actor's last value if it is allowed now, else None.

        Numbers as ids are positions in an observation, as in every `Game`: they do not say which
        entity of the next one was selected before.
        """
        last = self._last.get((question.name, question.actors[actor]))
        if last is None or isinstance(question.space, ContinuousActionSpace):
            return last
        if isinstance(question.space, SelectEntityActionSpace):
            if is_integer(last):
                return None
            last = next((i for i, actee in enumerate(question.actees) if actee == last), None)
        return last if last is not None and question.allowed[actor][last] else None

    def nearest(
        self, question: Question, actor: int, places: Mapping[EntityID, Place]
    ) -> int | None:
        """The allowed entity next to the last one or, if there was none, next to the actor.

        The first of them if the actor has no place, either; None if no entity has one.

        Args:
            places: of the entities on the board.
        """
        if not isinstance(question.space, SelectEntityActionSpace):
            return None
        actees, actor_id = question.actees, question.actors[actor]
        found = {i: places[actees[i]] for i in question.legal(actor) if actees[i] in places}
        near = self._places.get((question.name, actor_id), places.get(actor_id))
        if near is None:
            return next(iter(found), None)
        return min(found, key=lambda i: math.dist(found[i], near), default=None)

    def keep(
        self,
        question: Question,
        actor: int,
        chosen: Any,  # noqa: ANN401 - as `Question.action`
        places: Mapping[EntityID, Place] = MappingProxyType({}),
    ) -> None:
        """Keeps a choice, and where it is on the board."""
        key = question.name, question.actors[actor]
        is_select = isinstance(question.space, SelectEntityActionSpace)
        self._last[key] = value = question.actees[chosen] if is_select else chosen
        if is_select and value in places:
            self._places[key] = places[value]


def idle_choice(question: Question, actor: int) -> int | None:
    """The first allowed choice that does nothing, such as STAY; None if there is none."""
    if isinstance(question.space, ContinuousActionSpace | SelectEntityActionSpace):
        return None
    allowed = question.legal(actor)
    return next((i for i in allowed if _is_idle(question.choices[i])), None)


class MoveClock:
    """Limits a person's time per decision, and chooses the action when the time expires.

    The clock starts after the first decision of an episode, which has no limit. With at most 1
    second per decision, the game runs in real time: a decision takes effect when its time expires,
    not earlier.

    Args:
        seconds: time per decision, in total for all its questions.

    Raises:
        UsageError: the time is not above 0.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        require_timeout(seconds, "clock_s")
        self.seconds = seconds
        self.is_real_time = seconds <= REAL_TIME_S
        self._now = now
        self._end_s: float | None = None
        self.last = LastChoices()
        """The person's last choices; the owner of the clock records them."""

    def begin(self, step: int) -> None:
        """Starts the decision with this index in its episode."""
        if not step:
            self.last.clear()
            self._end_s = None
            return
        now, last_s = self._now(), self._end_s
        begin_s = now if last_s is None or not self.is_real_time else last_s  # keeps a steady pace
        # Drawing and other agents may use at most half of the time.
        self._end_s = max(begin_s, now - self.seconds / 2) + self.seconds

    def restart(self) -> None:
        if self._end_s is not None:
            self._end_s = self._now() + self.seconds

    @property
    def left_s(self) -> float | None:
        """Seconds left for the decision, 0 if expired; None = no limit."""
        return None if self._end_s is None else max(self._end_s - self._now(), 0.0)

    @property
    def rest_s(self) -> float:
        """Seconds until a finished decision takes effect; 0 unless the game runs in real time."""
        return (self.left_s or 0.0) if self.is_real_time else 0.0

    def describe(self, default: str) -> str:
        if self._end_s is None:
            return f"no limit, then {self.seconds:g} s each"
        return f"{self.seconds:g} s, then {default}"

    def default(self, question: Question, actor: int, nearest: int | None = None) -> Any:  # noqa: ANN401 - as `Question.action`
        """The value that `Question.action` gets for an actor when the time expires.

        A choice that does nothing, such as STAY, if one is allowed; else `nearest`, the entity next
        to the last one that was selected; else the actor's last choice, if allowed; else the first
        allowed choice. A continuous action keeps its last numbers,
        initially 0 or the nearest legal value.
        """
        last, space = self.last.of(question, actor), question.space
        if isinstance(space, ContinuousActionSpace):
            bounds = zip(space.low, space.high, strict=True)
            return [min(max(0.0, low), high) for low, high in bounds] if last is None else last
        idle = idle_choice(question, actor)
        wanted = [choice for choice in (idle, nearest, last) if choice is not None]
        return [*wanted, *question.legal(actor)][0]


def _is_idle(label: str) -> bool:
    return re.sub(r"[^a-z]", "", label.lower()) in _IDLE
