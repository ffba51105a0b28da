"""`Schedule`: a setting that changes over a run."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from entity_env.core.validation import Setting
from entity_env.errors import UsageError, shown

_SHAPES: Final[Mapping[str, Callable[[float], float]]] = {
    "linear": lambda share: share,
    "cosine": lambda share: (1 - math.cos(math.pi * share)) / 2,
    "steps": lambda share: 0.0,
}
"""Interpolation by kind: maps the fraction of the way to the next point to that point's weight."""
_MAX_POINTS: Final = 10_000


def reached_step(step: int, total: int, time_fraction: float = 0.0) -> float:
    """Step that schedules follow: `step`, or more if the time of the run is further along."""
    return max(step, time_fraction * total)


def reached_fraction(step: int, total: int, time_fraction: float = 0.0) -> float:
    """Fraction of the run at `reached_step`, for `Schedule.at`."""
    return reached_step(step, total, time_fraction) / total


@dataclass(frozen=True)
class Schedule:
    """A number that changes over a run, given by points and an interpolation.

    Before the first point and after the last, the value is constant. Two points at the same place
    make the value jump.

    Args:
        points: pairs of a place and a value, in ascending order of places. A place is a fraction of
            the run from 0 to 1: of `total_steps`, or of `max_train_time_s` if that fraction is
            larger.
        kind: "linear"; "cosine", half a cosine wave, flat at both points (Loshchilov and Hutter
            2017, equation 5, without restarts); "steps", each value holds until the next point.

    Raises:
        UsageError: invalid points or kind.

    Example:
        >>> schedule = Schedule([(0, 0.003), (0.5, 0.001), (1, 0)])
        >>> schedule.at(0.25)
        0.002
    """

    points: Sequence[tuple[float, float]]
    kind: str = "linear"

    def __post_init__(self) -> None:
        if self.kind not in tuple(_SHAPES):
            raise UsageError(f"kind must be one of {', '.join(_SHAPES)}, got {shown(self.kind)}")
        given: object = self.points
        is_list = isinstance(given, list | tuple) and 0 < len(given) <= _MAX_POINTS
        if not is_list or not all(map(_is_point, self.points)):
            raise UsageError(
                "points must be pairs [fraction of total_steps from 0 to 1, number], such as "
                f"[[0, 0.003], [1, 0]], got {shown(given)}"
            )
        places = [place for place, _ in self.points]
        if places != sorted(places):
            raise UsageError(f"points must be in the order of their fractions, got {places}")
        points = tuple((float(place), value) for place, value in self.points)
        object.__setattr__(self, "points", points)

    def at(self, fraction: float) -> float:
        after = bisect_right(self.points, fraction, key=lambda point: point[0])
        if after in (0, len(self.points)):
            return self.points[max(0, after - 1)][1]
        (start, low), (end, high) = self.points[after - 1 : after + 1]
        share = _SHAPES[self.kind]((fraction - start) / (end - start))
        value = low * (1 - share) + high * share
        return min(max(value, min(low, high)), max(low, high))  # rounding must not exceed bounds

    def is_zero_after(self, fraction: float) -> bool:
        """True if all later points are 0."""
        return not any(value for place, value in self.points if place > fraction)

    @property
    def numbers(self) -> list[float]:
        return [value for _, value in self.points]

    def to_json(self) -> object:
        """JSON or TOML: pairs; if not linear, in a table with the kind."""
        points = [list(point) for point in self.points]
        return points if self.kind == "linear" else {"points": points, "kind": self.kind}

    @classmethod
    def from_json(cls, data: object) -> Schedule:
        """Reads the JSON of `to_json`.

        Raises:
            UsageError: it is not a schedule.
        """
        if isinstance(data, list | tuple):
            return cls(data)
        if not isinstance(data, Mapping) or not {"points"} <= set(data) <= {"points", "kind"}:
            raise UsageError(
                "a schedule must be [[0, 0.003], [1, 0]], or a table with `points` and `kind`, got "
                f"{shown(data)}"
            )
        return cls(**data)

    def __str__(self) -> str:
        points = " ".join(f"{place:g}:{value:g}" for place, value in self.points)
        return points if self.kind == "linear" else f"{self.kind} {points}"


def _is_point(point: object) -> bool:
    if not isinstance(point, list | tuple) or len(point) != 2:
        return False
    return all(map(Setting((float,)).allows, point)) and bool(0 <= point[0] <= 1)


def values_of(setting: float | Schedule | None) -> list[float]:
    """A setting's values: at the points of its schedule, or the number; empty for None."""
    if isinstance(setting, Schedule):
        return setting.numbers
    return [] if setting is None else [setting]
