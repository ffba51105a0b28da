"""Hints: reasons why a run does not learn, from its metrics, and settings to try.

docs/not_learning.md explains the rules and their reasons.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from entity_env.agents.ppo.run_view import (
    FIRST_UPDATES,
    LEAST_EPISODES,
    MOST_FIRST,
    RunView,
    median_of,
)
from entity_env.agents.training.schedule import values_of
from entity_env.agents.training.tracking.rewards import MOST_UNFINISHED

LEAST_UPDATES: Final = 10
"""Minimum number of updates for judging a run."""

_MOST_FORCED: Final = 0.9
_LEAST_RETURNS, _RETURNED = 20, 0.9
_FEW_EPISODES, _ENOUGH_EPISODES = 5, 12
_PART_OF_EPISODE: Final = 4
"""A rollout is partial if an episode is at least this many times as long."""
_ENOUGH_TO_MIX: Final = 10
"""Number of episodes per row after which environments are out of step."""
_LEAST_ENVS: Final = 8
_LARGE_VALUE_LOSS: Final = 10.0
_LEAST_EXPLAINED: Final = 0.5
_LITTLE_EXPLAINED: Final = 0.2
_SMALL_KL, _SMALL_CLIP_FRACTION, _LARGE_KL = 1e-4, 1e-3, 0.05
_COLLAPSED, _UNCHANGED = 0.05, 0.98
_LEAST_REPEATED, _LEAST_UNEXPLAINED = 100, 0.3
_LARGE_BONUS: Final = 0.5
"""Above this, the entropy bonus per decision is large; in standard deviations of advantages."""


@dataclass(frozen=True)
class Hint:
    """A likely problem of a run, and settings to try.

    Args:
        text: one sentence with the observed figures.
        settings: values to try, by name; the names are those in `SETTINGS`.
    """

    name: str
    text: str
    settings: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        options = train_options(self.settings)
        return f"{self.text}; try {' '.join(options)}" if options else self.text

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "text": self.text, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, data: object) -> Hint | None:
        """Reads the data of `to_json`, without unknown settings; None if it has another form."""
        fields = data if isinstance(data, dict) else {}
        name, text, settings = (fields.get(each) for each in ("name", "text", "settings"))
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(settings, dict):
            return None
        known = {key: value for key, value in settings.items() if key in SETTINGS}
        is_number = all(isinstance(value, int | float) for value in known.values())
        return cls(name, text, known) if is_number else None


def hint_facts(hints: Iterable[Hint]) -> dict[str, object]:
    """Hints as entries of `run.json`."""
    return {"hints": [hint.to_json() for hint in hints]}


def hints_of(about: Mapping[str, object]) -> list[Hint]:
    """Hints in a `run.json`."""
    found = about.get("hints")
    hints = map(Hint.from_json, found if isinstance(found, list) else ())
    return [hint for hint in hints if hint is not None]


SETTINGS: Final = (
    *("num_envs", "num_steps", "total_steps", "norm_returns", "learning_rate", "ent_coef"),
    *("target_kl", "minibatch_size", "separate_value", "memory"),
)
_OF_NET: Final = ("separate_value", "memory")
_OPTIONS: Final = {
    "num_envs": "--num-envs",
    "num_steps": "--num-steps",
    "total_steps": "--steps",
    "learning_rate": "--learning-rate",
    "ent_coef": "--ent-coef",
}
"""Command options of some settings; the others use --set-train."""


def train_options(settings: Mapping[str, float]) -> list[str]:
    """Options of `entity-env train` for settings of hints."""
    options = []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else f"{value:.15g}"
        option = _OPTIONS.get(name)
        net = "net." * (name in _OF_NET)
        options += [option, text] if option else ["--set-train", f"{net}{name}={text}"]
    return options


def command_to_try(folder: Path, about: Mapping[str, object], hints: Iterable[Hint]) -> str:
    """Command that trains again with the hints' settings, in a new folder.

    "" if the hints change no settings, or if the run was not started by `entity-env train`.

    Args:
        folder: of the run.
        about: its `run.json`.
        hints: if several change a setting, the first one counts.
    """
    settings: dict[str, float] = {}
    for hint in hints:
        settings |= {name: x for name, x in hint.settings.items() if name not in settings}
    game, options = about.get("game"), about.get("options")
    if not settings or not isinstance(game, str) or not isinstance(options, dict):
        return ""
    file, out = folder / "run.json", _next_folder(folder)
    words = ["entity-env", "train", game, "--config", str(file), *train_options(settings)]
    return shlex.join([*words, "--out", str(out)])


def _next_folder(folder: Path) -> Path:
    """An unused folder: `snake-2` after `snake`, `snake-3` after `snake-2`."""
    name, _, number = folder.name.rpartition("-")
    known = int(number) if name and re.fullmatch("[1-9][0-9]{0,5}", number) else 1
    stem = name if known > 1 else folder.name
    numbers = (folder.with_name(f"{stem}-{i}") for i in count(known + 1))
    return next(each for each in numbers if not each.exists())


# ------------------------------------------------------------------ rules


def _forced(run: RunView) -> Iterator[Hint]:
    share = run.last.rollouts.forced
    if share >= _MOST_FORCED:
        yield Hint(
            "forced",
            f"{share:.0%} of the decisions have only one allowed choice, so there is nothing to "
            "decide: let the game continue without asking, or allow more choices in the mask",
        )


def _score_per_step(run: RunView) -> Iterator[Hint]:
    found = run.last.rollouts
    if found.num_returns >= max(_LEAST_RETURNS, _RETURNED * found.num_changes):
        yield Hint(
            "score_per_step",
            f"{found.num_returns:,} of {found.num_changes:,} changes of a score went back to its "
            "value at the start of the episode: it looks like the reward of a single step, but "
            "Obs(score) needs the score so far, score += reward (entity-env check says where)",
        )


def _few_episodes(run: RunView) -> Iterator[Hint]:
    found, total = run.last.rollouts, run.last.total
    decisions = total / max(1, found.num_rows)
    if not run.is_whole or found.first_length * _FEW_EPISODES <= decisions:
        return
    has_all = found.num_first >= MOST_FIRST * found.num_rows
    number = f"{'' if has_all else 'at most '}{decisions / found.first_length:.2g}"
    wanted = found.num_envs * decisions / found.first_length / _ENOUGH_EPISODES
    num_envs = 2 ** round(math.log2(max(wanted, _LEAST_ENVS)))
    settings: dict[str, float] = {"num_envs": num_envs}
    if num_envs >= found.num_envs:
        steps = _ENOUGH_EPISODES * found.first_length * found.num_rows
        settings = {"total_steps": _rounded_up(steps)}
    yield Hint(
        "few_episodes",
        f"each of {found.num_envs} environments plays {number} episodes of "
        f"{found.first_length:.0f} decisions{'' if has_all else ' or more'} in {total:,} steps: "
        "with fewer environments, each one plays more episodes",
        settings,
    )


def _only_beginnings(run: RunView) -> Iterator[Hint]:
    found = run.last.rollouts
    # Not the length of the last rollout, which may be shorter than the others.
    rollout = run.config.num_steps * found.decisions_per_step
    decisions = run.last.total / max(1, found.num_rows)
    is_part = 0 < rollout * _PART_OF_EPISODE <= found.first_length
    is_lockstep = not run.config.staggered_steps
    if run.is_whole and is_lockstep and is_part and decisions < _ENOUGH_TO_MIX * found.first_length:
        num_steps = min(512, 2 ** math.ceil(math.log2(found.first_length / 2)))
        factor = max(1.0, num_steps / run.config.num_steps)
        num_envs = max(min(_LEAST_ENVS, found.num_envs), round(found.num_envs / factor))
        yield Hint(
            "only_beginnings",
            f"a rollout has {rollout:.0f} decisions of each environment, but episodes have "
            f"{found.first_length:.0f}, and all environments are in the same part of an episode",
            {"num_steps": num_steps, "num_envs": num_envs},
        )


def _large_value_loss(run: RunView) -> Iterator[Hint]:
    if len(run.points) < FIRST_UPDATES:
        return
    loss, explained = run.recent("value_loss"), run.recent("explained_variance")
    if not (loss > _LARGE_VALUE_LOSS and explained < _LEAST_EXPLAINED):  # also if one is NaN
        return
    seen = f"the value loss is {loss:.3g} (explained variance {explained:.2f})"
    if run.config.norm_returns:
        rate = _scaled(run.config.learning_rate, 0.3)
        text = f"{seen}, in units of the returns' variance: the value diverges"
        yield Hint("value_loss", text, {"learning_rate": rate, "target_kl": 0.02})
    else:
        text = f"{seen}: returns are large, and the value's gradient drowns the policy's"
        yield Hint("value_loss", text, {"norm_returns": True})


def _small_updates(run: RunView) -> Iterator[Hint]:
    points = [each for each in run.points if each.step > run.config.warmup_steps]
    points = points[: 2 * FIRST_UPDATES]
    if not run.is_whole or len(points) < FIRST_UPDATES:
        return
    kl = max(point.losses.approx_kl for point in points)
    clipped = max(point.losses.clip_fraction for point in points)
    if kl < _SMALL_KL and clipped < _SMALL_CLIP_FRACTION:
        rate, size = values_of(run.config.learning_rate)[0], run.config.minibatch_size
        settings: dict[str, float] = {"learning_rate": max(0.001, _scaled(rate, 3))}
        if isinstance(size, int) and size > 256:
            settings["minibatch_size"] = 256
        yield Hint(
            "small_updates",
            f"updates hardly change the policy (approx kl {kl:.1g}, clip fraction {clipped:.1g})",
            settings,
        )


def _same_rewards(run: RunView) -> Iterator[Hint]:
    was_same = all(each.std_reward == 0 for each in run.scored) and not run.has_risen
    has_many = run.last.num_episodes >= LEAST_EPISODES
    if run.last.std_reward == 0 and has_many and (was_same or run.is_stuck):
        yield Hint(
            "same_rewards",
            f"the last episodes all earned {run.last.mean_reward:.3g}: if more is possible, the "
            "agent has not found it; reward progress on the way there, or train longer",
            {"ent_coef": _larger_bonus(run)},
        )


def _no_exploration(run: RunView) -> Iterator[Hint]:
    start, now = run.freedoms
    if run.is_stuck and start > 0 and now < _COLLAPSED * start:
        yield Hint(
            "no_exploration",
            f"the policy no longer explores ({_entropies(run)})",
            {
                "ent_coef": _larger_bonus(run),
                "learning_rate": _scaled(run.config.learning_rate, 0.3),
            },
        )


def _large_bonus(run: RunView) -> Iterator[Hint]:
    start, now = run.freedoms
    coefficient, is_share = max(values_of(run.config.ent_coef)), run.config.norm_entropy
    entropy = now if is_share else run.recent("entropy")
    bonus = coefficient * entropy
    if run.is_stuck and bonus > _LARGE_BONUS and now > _UNCHANGED * start:
        actors = run.last.rollouts.actors
        of_actors = f", summed over {actors:.0f} actors" if actors > 1.5 and not is_share else ""
        of_random = " of the entropy of random play" if is_share else ""
        yield Hint(
            "large_bonus",
            f"the policy does not change ({_entropies(run)}{of_actors}): the reward for entropy, "
            f"{coefficient:g} times {entropy:.3g}{of_random}, outweighs advantages, "
            "whose deviation is 1",
            {"ent_coef": _scaled(coefficient, min(0.3, 0.2 / bonus))},
        )


def _unchanged(run: RunView) -> Iterator[Hint]:
    start, now = run.freedoms
    if not run.is_stuck or start <= 0 or any(_large_bonus(run)) or any(_small_updates(run)):
        return
    if now > start / _UNCHANGED:
        yield Hint(
            "unsure",
            f"the policy is less certain than at first ({_entropies(run)}): it has lost what it "
            "had learned",
            _smaller_updates(run) | {"ent_coef": _scaled(run.config.ent_coef, 0.3)},
        )
    elif now > _UNCHANGED * start:
        size = run.config.minibatch_size
        smaller = {"minibatch_size": max(64, size // 4)} if isinstance(size, int) else {}
        yield Hint(
            "unchanged",
            f"the policy hardly changed ({_entropies(run)}): more gradient steps, or more steps, "
            "may help",
            {**smaller, "ent_coef": _scaled(run.config.ent_coef, 0.3)},
        )


def _entropies(run: RunView) -> str:
    return f"entropy {run.points[0].losses.entropy:.3g}, then {run.recent('entropy'):.3g}"


def _poor_value(run: RunView) -> Iterator[Hint]:
    explained = run.recent("explained_variance")
    if not run.is_stuck or any(_large_value_loss(run)) or run.last.std_reward == 0:
        return
    if explained < _LITTLE_EXPLAINED:
        settings = {"separate_value": True} if run.config.norm_returns else {"norm_returns": True}
        yield Hint(
            "poor_value",
            f"the value function does not predict returns (explained variance {explained:.2f}): "
            f"the observation may lack something that the reward depends on, or gamma "
            f"({run.config.gamma}) does not suit the game",
            settings,
        )


def _hidden(run: RunView) -> Iterator[Hint]:
    found = run.last.rollouts
    is_known = found.num_repeated >= _LEAST_REPEATED and found.unexplained > _LEAST_UNEXPLAINED
    if run.may_be_stuck and is_known and not run.config.net.memory:
        yield Hint(
            "hidden",
            f"{found.unexplained:.0%} of the variance of rewards is among equal decisions on equal "
            "observations: chance, or something shown earlier that the agent cannot remember",
            {"memory": 32},
        )


def _large_updates(run: RunView) -> Iterator[Hint]:
    # Over the whole run, because an annealed step size makes the last updates small.
    kl = median_of(point.losses.approx_kl for point in run.points)
    if run.is_stuck and kl > _LARGE_KL:
        yield Hint(
            "large_updates", f"updates are large (approx kl {kl:.3g})", _smaller_updates(run)
        )


def _smaller_updates(run: RunView) -> dict[str, float]:
    limits = values_of(run.config.target_kl)
    return {
        "target_kl": _scaled(limits[0], 0.3) if limits and limits[0] <= 0.02 else 0.02,
        "learning_rate": _scaled(run.config.learning_rate, 0.3),
    }


def _larger_bonus(run: RunView) -> float:
    return max(0.01, _scaled(run.config.ent_coef, 3))


def _scaled(setting: object, factor: float) -> float:
    """The largest value of a setting times a factor, rounded to one significant digit."""
    value = max(values_of(setting)) * factor  # type: ignore[arg-type]
    return float(f"{value:.1g}")


def _rounded_up(number: float) -> int:
    """The number rounded up to two significant digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return math.ceil(number / unit) * unit


_MISTAKES: Final[tuple[Callable[[RunView], Iterator[Hint]], ...]] = (_forced, _score_per_step)
"""Rules about games; apply even if the run learns."""
_EARLY: Final = (
    *(_few_episodes, _only_beginnings, _large_value_loss, _small_updates, _same_rewards),
    *(_no_exploration, _large_bonus),
)
"""Rules that apply after a few updates."""
_LATE: Final = (_hidden, _unchanged, _poor_value, _large_updates)
"""Rules about a whole run whose reward did not rise."""


def early_hints(run: RunView) -> list[Hint]:
    """Hints while a run continues; if the reward rose, only about mistakes in the game."""
    rules = _MISTAKES if run.has_risen and run.is_comparable else (*_MISTAKES, *_EARLY)
    return [hint for rule in rules for hint in rule(run)]


def final_hints(run: RunView) -> list[Hint]:
    """Hints at the end of a run.

    Too many unfinished episodes, or none that ended, come first, followed by `early_hints` and the
    hint on memory. If the reward rose, or the last evaluation is better than random play, the only
    hints are mistakes in the game, and that the reward fell again. If the reward is flat, all rules
    apply; if this is not known, `early_hints`.
    """
    found = [hint for rule in _MISTAKES for hint in rule(run)]
    last, scored = run.last, run.scored
    if last.unfinished > MOST_UNFINISHED:  # mean rewards are biased
        told = (
            f"{last.unfinished:.0%} of the running episodes are already longer than all of the "
            "last finished ones, so the mean reward of training is that of short episodes; compare "
            "runs by their evaluations, or train longer"
        )
        return [Hint("unfinished", told), *early_hints(run), *_hidden(run)]
    if last.num_episodes == 0:
        told = f"no episode has ended in {last.step:,} steps: let the game truncate its episodes, "
        hint = Hint("no_episode", f"{told}or train longer")
        return [hint, *early_hints(run), *_hidden(run)]
    if run.has_risen and len(scored) > 1 and "rating" not in last.metrics:
        return [*found, *_lost(run)]
    if not run.is_stuck:
        return [*found, *_lost(run)] if run.beats_random else early_hints(run)
    hints = [Hint("no_rise", _no_rise(run)), *early_hints(run)]
    return hints + [hint for rule in _LATE for hint in rule(run)]


def _no_rise(run: RunView) -> str:
    reference, reward = run.reference or run.rewards(run.last), run.last.mean_reward
    if run.is_random_reference:
        told = "the reward is no better than random play"
        return f"{told}: {reward:.3g}, random {reference.mean:.3g}"
    grew = reward > reference.mean
    told = "rose no more than chance explains" if grew else "did not rise"
    return f"the mean reward {told}: {reference.mean:.3g} at first, {reward:.3g} at the end"


def _lost(run: RunView) -> Iterator[Hint]:
    if not run.fair:
        return
    best, reference = max(run.fair, key=lambda each: each.mean_reward), run.reference
    if reference is None or not run.is_above(run.rewards(best), run.rewards(run.last)):
        return
    fallen = best.mean_reward - run.last.mean_reward
    if fallen > 0.5 * (best.mean_reward - reference.mean):
        yield Hint(
            "lost",
            f"the mean reward was {best.mean_reward:.3g} at step {best.step:,} and fell to "
            f"{run.last.mean_reward:.3g}",
            _smaller_updates(run),
        )
