"""TrainDisplay: progress of a training run, live on a terminal, elsewhere as lines."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from entity_env.agents.ppo import TrainProgress
from entity_env.agents.training.tracking.rewards import MOST_UNFINISHED
from entity_env.agents.training.tracking.runs import EVALUATED
from entity_env.cli.display.console import RunDisplay

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH: Final = 50
_LINE_INTERVAL_S: Final = 5.0
_SLOW_START_S: Final = 3.0
_RECENT: Final = 0.1
"""Share of the steps over which a change is measured."""
_WINS: Final = "wins_"
"""Prefix of win rates, see `SelfPlayVecEnv`."""


class TrainDisplay(RunDisplay):
    """Shows progress: pass it to `train` as `on_update`."""

    def __init__(
        self, title: str, console: Console, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(title, console, _Start(title, clock), _LINE_INTERVAL_S, clock)
        self.statistics: Callable[[], object] | None = None
        """Returns a line about how the time is spent, to show."""
        self._rewards: list[float] = []
        self._ratings: list[tuple[int, float]] = []
        """Steps and ratings, see `OpponentPool`."""
        self._evaluated: list[tuple[float, float]] = []
        """Mean reward and completed share of the run: of the best evaluation, and of the last."""

    def __call__(self, progress: TrainProgress) -> None:
        if math.isfinite(progress.mean_reward):
            self._rewards.append(progress.mean_reward)
        if "rating" in progress.metrics:
            self._ratings.append((progress.step, progress.metrics["rating"]))
        evaluated = progress.metrics.get(EVALUATED)
        if evaluated is not None:
            last = evaluated, progress.fraction
            self._evaluated = [max([last, *self._evaluated[:1]]), last]
        if self._console.is_terminal:
            self._live.update(self._frame(progress))
        elif self._is_due() or progress.step >= progress.total:
            self._print("  ".join([*_line(progress), *self._rating(), *self._evaluation(progress)]))

    def _rating(self) -> list[str]:
        """The rating, and its change over the last tenth of the steps, if rated."""
        if not self._ratings:
            return []
        step, rating = self._ratings[-1]
        before = next(value for at, value in self._ratings if at >= step * (1 - _RECENT))
        return [f"rating {rating:.0f} ({rating - before:+.0f})"]

    def _evaluation(self, progress: TrainProgress) -> list[str]:
        """The last evaluation, its place in the run, and a comparison, in words."""
        if not self._evaluated:
            return []
        (best, _), (last, fraction) = self._evaluated
        notes = [f"greedy, at {fraction:.0%}"]
        if best > last:
            notes.append(f"best {_number(best)}")
        found = progress.random_play
        if found is not None and not found.is_like_training:
            notes.append(f"random {_number(found.mean_reward)}")
        return [f"evaluation {_number(last)} ({'; '.join(notes)})"]

    def _frame(self, progress: TrainProgress) -> RenderableType:
        steps = f"{progress.step:,} of {progress.total:,} steps"
        head = self._head(progress.fraction, steps)
        losses = progress.losses
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "right") * 3:
            table.add_column(justify=justify, no_wrap=True)
        for row in (
            ("steps/s", f"{progress.steps_per_s:,.0f}", "policy loss", losses.policy_loss),
            ("episode reward", progress.mean_reward, "value loss", losses.value_loss),
            ("episode length", progress.mean_length, "entropy", losses.entropy),
            ("episodes", f"{progress.num_episodes:,}", "approx kl", losses.approx_kl),
            ("time left", _time_left(progress), "explained var", losses.explained_variance),
        ):
            table.add_row(*(x if isinstance(x, str) else _number(x) for x in row))
        below = [*self._evaluation(progress), *(f"episode reward: {x}" for x in _notes(progress))]
        figures: RenderableType = Group(table, *map(Text, below))
        if rating := self._rating():
            wins = (
                f"{name.removeprefix(_WINS)} {rate:.0%}"
                for name, rate in progress.metrics.items()
                if name.startswith(_WINS)
            )
            figures = Group(
                figures, Text(), Text("   wins against ".join([*rating, ", ".join(wins)]))
            )
        if self.statistics is not None:
            figures = Group(figures, Text(), Text(str(self.statistics()), style="dim"))
        if self._console.options.ascii_only:
            return Group(head, Text(), figures)
        curve = Text.assemble(("reward  ", "dim"), (sparkline(self._rewards), "bright_green"))
        return Group(head, Text(), figures, Text(), curve)


class _Start:
    """Shown before the first update; after a while reports compilation."""

    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self._title = title
        self._clock = clock
        self._begin_s = clock()

    def __rich__(self) -> Text:
        reason = ""
        if self._clock() - self._begin_s > _SLOW_START_S:
            reason = " (the first time, functions are compiled: half a minute)"
        return Text(f"{self._title}: starting{reason}", style="dim")


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """A curve of at most `width` bars, each a mean of consecutive values."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    return "".join(_BARS[round((mean - low) / span * 7) if span else 0] for mean in means)


def _line(progress: TrainProgress) -> tuple[str, ...]:
    losses = progress.losses
    return (
        f"step {progress.step:,} of {progress.total:,}",
        f"{progress.steps_per_s:,.0f} steps/s",
        " ".join(
            [f"reward {_number(progress.mean_reward)}", *(f"({x})" for x in _notes(progress))]
        ),
        f"length {_number(progress.mean_length)}",
        f"policy loss {_number(losses.policy_loss)}",
        f"value loss {_number(losses.value_loss)}",
        f"entropy {_number(losses.entropy)}",
        _time_left(progress) + " left" * (not progress.is_compiling),
    )


def _notes(progress: TrainProgress) -> list[str]:
    """Comparison of the mean reward with random play, and a warning if it is biased."""
    notes = []
    found = progress.random_play
    if found is not None and found.is_like_training:
        notes.append(f"random {_number(found.mean_reward)}")
    if progress.unfinished > MOST_UNFINISHED and math.isfinite(progress.mean_reward):
        notes.append("of short episodes so far")
    return ["; ".join(notes)] if notes else []


def _time_left(progress: TrainProgress) -> str:
    """The time left; an upper bound while functions are compiled."""
    left = _duration(progress.eta_s)
    if not progress.is_compiling:
        return left
    return "compiling" + (f", at most {left}" if math.isfinite(progress.eta_s) else "")


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
