"""Reads a training run's folder, `run.json` and `curves.jsonl`; `run_writer` writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.checkpoints.folder import find_checkpoint, read_header
from entity_env.agents.training.schedule import Schedule
from entity_env.agents.training.tracking.rewards import MeanReward, RandomPlay
from entity_env.agents.training.tracking.settings_file import RUN_FORMAT
from entity_env.core.files import parse_json, read_file, real_path
from entity_env.errors import CheckpointError, UsageError
from entity_env.views.chart import Series, svg_chart

RUN_FILE: Final = "run.json"
REPLAY_FOLDERS: Final = ("replays", "failures")
CURVES_FILE: Final = "curves.jsonl"
REWARD: Final = "episode/mean_reward"
"""Name of the curve of the mean reward in training."""
EVALUATED: Final = "evaluation/mean_reward"
"""Name of the curve of the mean reward in evaluations."""
AGREEMENT: Final = "teacher/agreement"
"""Name of the curve of the agreement with the teacher's choices."""
_COUNTS: Final = {REWARD: "episode/window", EVALUATED: "evaluation/num_episodes"}
"""Name of the curve with the number of episodes behind each mean."""
DEFAULT_CONFIG: Final = "default_config"
"""Key, in `run.json`, of the trainer settings that the run would have had by default."""
RANDOM_PLAY: Final = "random_play"
"""Key, in `run.json`, of the results of random play."""
_MAX_RUN_BYTES: Final = 1 << 20
_MAX_CURVE_BYTES: Final = 1 << 28
_LARGEST: Final = 1e100
_LARGEST_STEP: Final = 2**63 - 1
_REPLAY: Final = re.compile(r"step-(\d{1,18})\.replay")
_WITHOUT_EFFECT: Final = (
    *("checkpoint_interval_s", "device", "num_threads", "peer_timeout_s", "microbatch_size"),
)
"""Trainer settings that do not change what a run learns, except by rounding."""

Setting: TypeAlias = str | float | bool | None


def read_about(out: Path) -> Mapping[str, Any]:
    """The `run.json` in a folder; empty if there is none.

    Raises:
        UsageError: it cannot be read, or another program wrote it.
    """
    path = out / RUN_FILE
    if not path.exists():
        return {}
    data: object = None
    with suppress(OSError, ValueError):
        data = parse_json(read_file(path, _MAX_RUN_BYTES))
    if not isinstance(data, dict) or data.get("format") != RUN_FORMAT:
        raise UsageError(
            f"{path} was not written by entity_env: move it away, or choose another folder"
        )
    return data


class Curve(NamedTuple):
    """Values of a curve.

    Args:
        steps: (num_points,) int64, decisions, ascending.
        values: (num_points,) float64, finite.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


_NO_CURVE: Final = Curve(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class TrainingRun:
    """Content of a training run's folder.

    Args:
        about: content of `run.json`; if a folder has only a checkpoint, its config and seed.
        curves: by name; empty if there is no `curves.jsonl`.
        clock: seconds of training at each step.
        num_broken: number of lines of `curves.jsonl` that were skipped in part or in whole, because
            they were unreadable.
    """

    path: Path
    about: Mapping[str, object] = field(default_factory=dict, repr=False)
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    clock: Curve = field(default=_NO_CURVE, repr=False)
    num_broken: int = 0

    @property
    def name(self) -> str:
        """Name of the folder; else of the game, else "run"."""
        return self.path.name or self.game or "run"

    @property
    def id(self) -> str:
        """Identifies the run, also after a resume; "" if unknown."""
        return str(self.about.get("id", ""))

    @property
    def game(self) -> str:
        """The game, as named in the command, or by itself in a run of a script; "" if unknown."""
        names = (self.about.get(key) for key in ("game", "game_name"))
        return next((name for name in names if isinstance(name, str)), "")

    @property
    def seed(self) -> int | None:
        seed = self.about.get("seed")
        return seed if type(seed) is int else None

    @property
    def step(self) -> int:
        """Number of decisions used so far."""
        return int(self.clock.steps[-1]) if len(self.clock.steps) else 0

    @property
    def elapsed_s(self) -> float:
        return float(self.clock.values[-1]) if len(self.clock.values) else 0.0

    @property
    def final_reward(self) -> MeanReward | None:
        """Mean over the last finished training episodes; None if unknown."""
        return self._mean_reward(REWARD, -1)

    @property
    def final_evaluation(self) -> MeanReward | None:
        """Result of the last evaluation; None if there was none."""
        return self._mean_reward(EVALUATED, -1)

    @property
    def best_evaluation(self) -> MeanReward | None:
        """The evaluation with the highest mean; the last one if several are equal.

        As the highest of many evaluations, its mean is biased upward; its interval ignores this.
        """
        curve = self.curves.get(EVALUATED)
        if curve is None:
            return None
        last = int(np.argmax(curve.values[::-1])) + 1
        return self._mean_reward(EVALUATED, -last)

    def mean_rewards(self, name: str) -> list[MeanReward]:
        """Every point of the curve `REWARD` or `EVALUATED`, with its interval."""
        num_points = len(self.curves.get(name, _NO_CURVE).steps)
        found = (self._mean_reward(name, i) for i in range(num_points))
        return [each for each in found if each is not None]

    @property
    def random_play(self) -> RandomPlay | None:
        return RandomPlay.from_json(self.about.get(RANDOM_PLAY))

    @property
    def score(self) -> MeanReward | None:
        """The value for comparing runs: the last evaluation, else `final_reward`."""
        return self.final_evaluation or self.final_reward

    def settings(self) -> dict[str, Setting]:
        """Settings of game and trainer by name (`net.d_model`) except the seed, and `num_envs`."""
        game, config = self.about.get("settings"), self.about.get("config")
        found = dict(_flat(game if isinstance(game, dict) else {}))
        if (num_envs := self.about.get("num_envs")) is not None:
            found |= {"num_envs": _setting(num_envs)}
        found |= dict(_flat(_with_schedules(config) if isinstance(config, dict) else {}))
        return {name: value for name, value in found.items() if name != "seed"}

    def group(self) -> object:
        """Hashable key, equal for runs that differ only in seed or in settings without effect."""
        if not isinstance(self.about.get("config"), dict):
            return self.path
        found = {
            name: each for name, each in self.settings().items() if name not in _WITHOUT_EFFECT
        }
        opponent = eval_opponent(self.about)
        others = [self.about.get(name) for name in ("entities", "opponents", "init_from")]
        return self.game, str([*others, opponent]), str(sorted(found.items()))

    def _repr_svg_(self) -> str:
        """The curve of the mean reward, which a notebook shows."""
        line = Series(self.name, *self.curves.get(REWARD, _NO_CURVE))
        title = f"{self.name}: mean episode reward"
        return svg_chart(title, [line], x_label="decisions", has_legend=False)

    def _mean_reward(self, name: str, index: int) -> MeanReward | None:
        curve = self.curves.get(name)
        if curve is None:
            return None
        kind, count = name.partition("/")[0], _COUNTS[name]
        step = int(curve.steps[index])
        deviation = self._at(f"{kind}/std_reward", step)
        num_episodes = 0 if deviation is None else int(self._at(count, step) or 0)
        return MeanReward.of(
            float(curve.values[index]),
            deviation or 0.0,
            max(0, num_episodes),
            step,
            self._at(f"{kind}/unfinished", step) or 0.0,
        )

    def _at(self, name: str, step: int) -> float | None:
        curve = self.curves.get(name, _NO_CURVE)
        index = int(np.searchsorted(curve.steps, step))
        is_there = index < len(curve.steps) and curve.steps[index] == step
        return float(curve.values[index]) if is_there else None


def read_run(path: str | Path) -> TrainingRun:
    """Reads a training run's folder, or one with only a checkpoint; the run may continue meanwhile.

    Raises:
        CheckpointError: a file in it is damaged or too large.
        UsageError: the folder is not a training run.

    Example:
        >>> run = read_run("runs/snake")  # doctest: +SKIP
        >>> steps, rewards = run.curves["evaluation/mean_reward"]  # doctest: +SKIP
        >>> print(run.score, run.seed, run.settings()["learning_rate"])  # doctest: +SKIP
    """
    path = Path(path)
    is_run, has_curves = os.path.isfile(path / RUN_FILE), os.path.isfile(path / CURVES_FILE)
    if not is_run and not has_curves:
        return _read_checkpoint(path)
    try:
        about = parse_json(read_file(path / RUN_FILE, _MAX_RUN_BYTES)) if is_run else {}
        text = read_file(path / CURVES_FILE, _MAX_CURVE_BYTES) if has_curves else b""
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the run in {path}: {error}") from error
    if not isinstance(about, dict) or (is_run and about.get("format") != RUN_FORMAT):
        raise CheckpointError(
            f'{path / RUN_FILE} lacks "format": "{RUN_FORMAT}": it does not describe a run'
        )
    points: dict[str, tuple[list[int], list[float]]] = {}
    num_broken = 0
    for line in text[: text.rfind(b"\n") + 1].splitlines():  # without an incomplete line
        step, values = parse_point(line)
        num_broken += step < 0 or None in values.values()
        for name, value in values.items():
            if value is not None:
                steps, found = points.setdefault(name, ([], []))
                while steps and steps[-1] >= step:  # a later line replaces points from its step on
                    del steps[-1], found[-1]
                steps.append(step)
                found.append(value)
    curves = {
        name: Curve(np.array(steps, np.int64), np.array(values, np.float64))
        for name, (steps, values) in points.items()
    }
    return TrainingRun(path, about, curves, curves.pop("elapsed_s", _NO_CURVE), num_broken)


def replays_of(run: TrainingRun) -> list[tuple[int, Path]]:
    """Replays recorded along a run: step and file of each, in order.

    Skips links that lead out of the run's folder. Raises `CheckpointError` if the folder is not
    readable.
    """
    inside, folder = real_path(run.path), run.path / REPLAY_FOLDERS[0]
    try:
        files = list(folder.iterdir()) if folder.is_dir() else []
        files = [file for file in files if real_path(file).is_relative_to(inside)]
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error}") from error
    found = [(_REPLAY.fullmatch(file.name), file) for file in files]
    return sorted((int(match[1]), file) for match, file in found if match)


def _read_checkpoint(path: Path) -> TrainingRun:
    try:
        training = read_header(find_checkpoint(path)).training
    except CheckpointError as error:
        what = "it is not a folder" if not path.is_dir() else str(error)
        if path.is_dir() and "no checkpoint at" in what:
            what = f"it has no {RUN_FILE}, {CURVES_FILE} or checkpoint"
        raise UsageError(f"{path} is not a training run: {what}") from error
    config, step = training.get("config"), _finite(training.get("step"))
    clock = _NO_CURVE
    if step is not None and 0 <= step < _LARGEST_STEP:
        seconds = _finite(training.get("elapsed_s")) or 0.0
        clock = Curve(np.array([int(step)]), np.array([seconds]))
    seed = config.get("seed") if isinstance(config, dict) else None
    return TrainingRun(path, {"config": config, "seed": seed}, clock=clock)


def parse_point(line: bytes) -> tuple[int, dict[str, float | None]]:
    """Step and values of a line: a value is None if it is not finite; the step is -1 if damaged."""
    try:
        data = parse_json(line)
    except ValueError:
        return -1, {}
    step = data.pop("step", None) if isinstance(data, dict) else None
    if type(step) is not int or not 0 <= step <= _LARGEST_STEP:
        return -1, {}
    return step, {name: _finite(value) for name, value in data.items()}  # type: ignore[attr-defined]


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= _LARGEST else None  # type: ignore[arg-type]


def _flat(data: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    for name, value in data.items():
        if isinstance(value, dict) and not prefix:
            yield from _flat(value, f"{name}.")
        else:
            yield f"{prefix}{name}", _setting(value)


def _with_schedules(config: Mapping[str, object]) -> dict[str, object]:
    """Trainer settings with schedules as text; no other trainer setting is a list."""
    return {
        name: _schedule_text(value)
        if isinstance(value, list) or (isinstance(value, dict) and "points" in value)
        else value
        for name, value in config.items()
    }


def _schedule_text(value: object) -> str:
    try:
        return str(Schedule.from_json(value))
    except UsageError:
        return str(value)


def _setting(value: object) -> Setting:
    if isinstance(value, list | tuple) and value:
        return "x".join(map(str, value))
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def eval_opponent(about: Mapping[str, object]) -> object:
    """The opponent of evaluations in a `run.json`."""
    options = about.get("options")
    return options.get("eval_opponent") if isinstance(options, Mapping) else None
