"""Plan of a sweep: `Sweep`, and the `SweepTrial`s in it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from entity_env.agents.ppo import Callback, PPOConfig
from entity_env.authoring.identity import Identity
from entity_env.cluster.search_range import SearchRange, Settings, changed
from entity_env.errors import UsageError, shown
from entity_env.vec import VecEnv

MakeEnv: TypeAlias = Callable[[], VecEnv]
"""Makes the environments of a trial; sent by cloudpickle."""


@dataclass
class SweepTrial:
    """A training run of a sweep.

    Attributes:
        number: index of its settings, from 0; also in the folder's name, `trial-NUMBER`.
        settings: fields of `PPOConfig` and `net.FIELD`; in a population, the current values.
        state: "waiting", "running", "done", "stopped" (by the scheduler, before its last step) or
            "failed".
        reward: mean episode reward at the last report; NaN before the first episode has ended.
        step: number of decisions at the last report.
        error: why the run failed.
        seed: seed of the run, also in the folder's name; None if every trial has only one run.
        evaluation: mean reward of the last evaluation; NaN before the first.
    """

    number: int
    settings: Settings
    state: str = "waiting"
    reward: float = math.nan
    step: int = 0
    error: str = ""
    seed: int | None = None
    evaluation: float = math.nan

    @classmethod
    def of_json(cls, row: object) -> SweepTrial:
        """A trial as a resumed sweep reads it; ValueError if it has another form."""
        if not isinstance(row, dict):
            raise ValueError(f"a trial must be an object, got {shown(row)}")
        found = {**row, **{name: _as_float(row[name]) for name in NUMBERS if name in row}}
        for name, kinds in _FORM.items():
            value = found.get(name, getattr(cls, name, None))
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ValueError(f"the {name} of a trial is {shown(value)}")
        if (unknown := found.keys() - _FORM) or found["number"] < 0 or found.get("step", 0) < 0:
            raise ValueError(f"a trial has {', '.join(unknown) or 'a negative number'}")
        if found["number"] > _MAX_NUMBER or (found.get("seed") or 0) > _MAX_NUMBER:
            raise ValueError("a trial has a number that is too large")
        return cls(**found)

    @property
    def name(self) -> str:
        return f"trial-{self.number:03}" + ("" if self.seed is None else f"-seed-{self.seed}")

    @property
    def score(self) -> float:
        """For comparing runs: the last evaluation, or the reward before any evaluation."""
        return self.evaluation if math.isfinite(self.evaluation) else self.reward

    @property
    def is_over(self) -> bool:
        """True if a resumed sweep skips it."""
        return self.state in ("done", "stopped")


_FORM: Final[Mapping[str, type | tuple[type, ...]]] = {
    **{"number": int, "settings": dict, "state": str, "step": int, "error": str},
    **{"reward": float, "evaluation": float, "seed": (int, type(None))},
}
"""Types of the fields of `SweepTrial` in a file."""
NUMBERS: Final = ("reward", "evaluation")
"""Fields that JSON has as text if they are not finite."""
_MAX_NUMBER: Final = 10**15


def _as_float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # TypeError for others
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{shown(value)} is not a number") from error


@dataclass(frozen=True)
class Sweep:
    """Plan of a sweep.

    Args:
        make_env: makes the environments of a trial.
        config: settings of every trial, except the varied settings.
        ranges: the varied settings.
        num_trials: number of combinations of settings, 1 or more; 2 or more in a population.
        out: folder for the checkpoints, accessible to every machine of the cluster.
        seed: for sampling settings.
        is_population: population based training (Jaderberg et al. 2017) instead of early stopping
            (ASHA, Li et al. 2018).
        environments: description of what `make_env` makes; a resumed sweep must repeat it.
        identity: of the game; see `entity_env.authoring.identity`.
        repeats: runs per trial, with consecutive seeds from the seed of `config`.
        make_callbacks: returns the callbacks of a run. With an `Evaluator`, runs are compared by
            their last evaluation, otherwise by mean training reward.
        about: as for `train`.

    Raises:
        UsageError: an invalid setting or number, or options that cannot be combined.
    """

    make_env: MakeEnv
    config: PPOConfig
    ranges: Sequence[SearchRange]
    num_trials: int
    out: Path
    seed: int = 0
    is_population: bool = False
    environments: str = ""
    identity: Identity = field(default_factory=dict)
    repeats: int = 1
    make_callbacks: Callable[[], Sequence[Callback]] = tuple
    about: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ranges:
            raise UsageError(
                "a sweep varies at least one setting, such as learning_rate=3e-4:1e-2:log"
            )
        if self.num_trials < 1 + self.is_population:
            least = "a population needs 2 trials" if self.is_population else "a sweep needs 1 trial"
            raise UsageError(f"{least} or more, got {self.num_trials}")
        names = [each.name for each in self.ranges]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{twice[0]} is varied twice")
        fixed = [name for name in names if name.startswith("net.") or name == "norm_returns"]
        if self.is_population and fixed:
            raise UsageError(
                f"{fixed[0]} cannot change within a trial, as a population does: it makes another "
                "network; leave it out, or sweep without a population"
            )
        if self.repeats > 1 and (self.is_population or "seed" in names):
            other = "a population" if self.is_population else "a seed that is varied"
            raise UsageError(f"several runs with different seeds cannot be combined with {other}")
        self.samples()

    def trials(self) -> list[SweepTrial]:
        """The runs, grouped by trial."""
        first = self.config.seed
        seeds = range(first, first + self.repeats) if self.repeats > 1 else [None]
        return [
            SweepTrial(i, dict(settings), seed=seed)
            for i, settings in enumerate(self.samples())
            for seed in seeds
        ]

    def config_of(self, trial: SweepTrial) -> PPOConfig:
        seed = {} if trial.seed is None else {"seed": trial.seed}
        return changed(self.config, {**trial.settings, **seed})

    def samples(self) -> list[Settings]:
        """Initial settings of every trial: a Latin hypercube, determined by the seed."""
        rng = np.random.default_rng(self.seed)
        count = self.num_trials
        shares = [(rng.permutation(count) + rng.random(count)) / count for _ in self.ranges]
        found = [
            {each.name: each.at(share[i]) for each, share in zip(self.ranges, shares, strict=True)}
            for i in range(count)
        ]
        for settings in found:
            changed(self.config, settings)
        return found

    def to_json(self) -> dict[str, object]:
        """Properties that a resumed sweep must share, as JSON."""
        plan = {
            "environments": self.environments,
            "config": self.config.to_json(),
            "ranges": [asdict(each) for each in self.ranges],
            "num_trials": self.num_trials,
            "seed": self.seed,
            "is_population": self.is_population,
            **({"repeats": self.repeats} if self.repeats > 1 else {}),
        }
        parsed: dict[str, object] = json.loads(json.dumps(plan))
        return parsed
