"""Search space of a sweep: ranges and choices of trainer settings."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from entity_env.agents.ppo import PPOConfig
from entity_env.core.validation import Setting, settings_of
from entity_env.errors import UsageError, shown

Settings: TypeAlias = dict[str, Any]
"""Fields of `PPOConfig`, and `net.FIELD` of its network."""

_NET: Final = "net."
_LOG: Final = "log"
_FACTORS: Final = (0.8, 1.2)
_RESAMPLED: Final = 0.25
_FIXED: Final = {
    "total_steps": "all trials have the same number of steps: see --steps",
    "net": "vary a field of the network, as net.d_model=32,64",
    "checkpoint_interval_s": "a sweep saves every trial when it reports",
}
_FORMS: Final = "LOW:HIGH, LOW:HIGH:log or A,B,C"
_WORDS: Final = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class SearchRange:
    """A setting of the trainer and its possible values: from `low` to `high`, or `choices`.

    Args:
        name: a field of `PPOConfig`, or `net.FIELD`.
        low, high: smallest and largest value, unless there are choices.
        is_log: samples the logarithm uniformly.
        is_integer: allows only integers.
        choices: two or more values of equal probability.
    """

    name: str
    low: float = 0
    high: float = 0
    is_log: bool = False
    is_integer: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str, config: PPOConfig) -> SearchRange:
        """Parses `NAME=LOW:HIGH`, `NAME=LOW:HIGH:log` or `NAME=A,B,C`.

        Integer settings take only integers. A list is written `64x64`, None `none`.

        Raises:
            UsageError: another form, or a setting or value that `config` does not accept.
        """
        name, is_given, values = text.partition("=")
        name = name.strip()
        if not is_given:
            raise UsageError(f"--vary needs NAME={_FORMS}, got {shown(text)}")
        kind = _kind_of(name, config)
        if ":" not in values:
            choices = tuple(_value(name, kind, each) for each in values.split(","))
            if len(choices) < 2:
                raise UsageError(f"{name} needs several values, {_FORMS}: got {shown(values)}")
            found = cls(name, choices=choices)
        else:
            found = cls._of_bounds(name, kind, values)
        for value in found.choices or (found.low, found.high):
            changed(config, {name: value})
        return found

    @classmethod
    def _of_bounds(cls, name: str, kind: Setting, values: str) -> SearchRange:
        parts = [part.strip() for part in values.split(":")]
        if len(parts) not in (2, 3) or parts[2:] not in ([], [_LOG]):
            raise UsageError(f"{name} needs {_FORMS}, got {shown(values)}")
        low, high = (_value(name, kind, part) for part in parts[:2])
        if not all(type(each) in (int, float) and math.isfinite(each) for each in (low, high)):
            raise UsageError(f"{name} needs a range of numbers, {_FORMS}: got {shown(values)}")
        if low >= high:
            raise UsageError(f"{name} needs a range from low to high, got {shown(values)}")
        if len(parts) == 3 and low <= 0:
            raise UsageError(f"{name} on a logarithmic scale must be above 0, got {shown(values)}")
        is_integer = int in kind.kinds
        if is_integer and not (type(low) is type(high) is int):
            raise UsageError(f"{name} must be an integer, got {shown(values)}")
        return cls(name, low, high, len(parts) == 3, is_integer)

    def at(self, share: float | np.float64) -> Any:  # noqa: ANN401
        """Value at a position in the range; `share` is from 0 up to, but not including, 1."""
        if self.choices:
            return self.choices[min(int(share * len(self.choices)), len(self.choices) - 1)]
        if self.is_log:
            value = self.low * (self.high / self.low) ** share
        elif self.is_integer:
            value = self.low + math.floor(share * (self.high - self.low + 1))
        else:
            value = self.low + share * (self.high - self.low)
        return self._bounded(value)

    def share_of(self, value: Any) -> float:  # noqa: ANN401
        """Position of a value in the range, 0 to 1."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def explored(self, value: Any, rng: np.random.Generator) -> Any:  # noqa: ANN401
        """A value near the given one: 0.8 or 1.2 times it, a neighboring choice, or a new sample.

        The exploration step of population based training (Jaderberg et al. 2017), kept in range.
        """
        if rng.random() < _RESAMPLED:
            return self.at(float(rng.random()))
        step = int(rng.integers(2))
        if self.choices:
            index = self.choices.index(value) + (-1, 1)[step]
            return self.choices[min(max(index, 0), len(self.choices) - 1)]
        moved = value * _FACTORS[step]
        if self.is_integer and round(moved) == value:
            moved = value + (-1, 1)[step]
        return self._bounded(moved)

    def _bounded(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return round(value) if self.is_integer else float(value)


def changed(config: PPOConfig, settings: Settings) -> PPOConfig:
    """The configuration with other settings; `net.FIELD` sets fields of its network.

    Raises:
        UsageError: an unknown setting, or invalid values.
    """
    for name in settings:
        _kind_of(name, config)
    sizes = {n.removeprefix(_NET): v for n, v in settings.items() if n.startswith(_NET)}
    others = {name: value for name, value in settings.items() if not name.startswith(_NET)}
    return replace(config, net=replace(config.net, **sizes), **others)


def _kind_of(name: str, config: PPOConfig) -> Setting:
    """Kind of a setting; `UsageError` if there is no such setting, or it cannot be varied."""
    if name in _FIXED:
        raise UsageError(f"{name} cannot be varied: {_FIXED[name]}")
    kinds = {each: kind for each, kind in settings_of(PPOConfig).items() if each not in _FIXED}
    net: type = type(config.net)
    kinds |= {f"{_NET}{each}": kind for each, kind in settings_of(net).items()}
    if name not in kinds:
        close = difflib.get_close_matches(name, kinds, n=1)
        hint = f"did you mean {close[0]}?" if close else "train GAME --set-train help lists them"
        raise UsageError(f"no setting {name!r} of a trial; {hint}")
    return kinds[name]


def _value(name: str, kind: Setting, text: str) -> Any:  # noqa: ANN401
    text = text.strip()
    if kind.item is not None and re.fullmatch(r"\d+(x\d+)*", text):
        return [int(each) for each in text.split("x")]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    if str in kind.kinds and text:
        return text
    raise UsageError(f"{name} must be {kind.words}, got {shown(text)}")
