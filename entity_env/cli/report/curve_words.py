"""Curves in words: what a curve is, and which values are normal."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from entity_env.agents.training.tracking.runs import AGREEMENT, EVALUATED, REWARD
from entity_env.cli.display.console import plain


class CurveWords(NamedTuple):
    """Description of a curve.

    Args:
        words: its content.
        normal: the normal course, as in docs/not_learning.md; "" = depends on the game.
        low, high: range of normal values; NaN = none.
        bounds: ends of the axis; values beyond them are drawn at the edge.
    """

    words: str
    normal: str = ""
    low: float = math.nan
    high: float = math.nan
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def has_range(self) -> bool:
        return self.low < self.high


_POSITIVE: Final = 0.0, math.inf
_SHARE: Final = 0.0, 1.0
_WORDS: Final = {
    REWARD: CurveWords("mean episode reward"),
    "episode/std_reward": CurveWords(
        "standard deviation of episode rewards", "above 0", bounds=_POSITIVE
    ),
    "episode/mean_length": CurveWords("mean episode length, in decisions", bounds=_POSITIVE),
    "episode/count": CurveWords("finished episodes", "grows", bounds=_POSITIVE),
    "episode/window": CurveWords("episodes behind the mean reward", bounds=_POSITIVE),
    "episode/unfinished": CurveWords(
        "share of running episodes that are longer than recent ones", "about 0", 0.0, 0.05, _SHARE
    ),
    "losses/policy_loss": CurveWords("policy loss"),
    "losses/value_loss": CurveWords("value loss", "falls to about 1 or less", 0, 1, _POSITIVE),
    "losses/entropy": CurveWords("entropy of a decision, in nats", "falls slowly"),
    "losses/approx_kl": CurveWords(
        "KL divergence per update", "0.003 to 0.03", 0.003, 0.03, _POSITIVE
    ),
    "losses/clip_fraction": CurveWords("share of clipped ratios", "0.05 to 0.3", 0.05, 0.3, _SHARE),
    "losses/explained_variance": CurveWords(
        "explained variance of the value", "rises above 0.5", 0.5, 1, (-1.0, 1.0)
    ),
    "losses/teacher_kl": CurveWords("KL divergence from the teacher, in nats", bounds=_POSITIVE),
    AGREEMENT: CurveWords("agreement with the teacher", bounds=_SHARE),
    "charts/steps_per_s": CurveWords("decisions per second", bounds=_POSITIVE),
    "charts/learning_rate": CurveWords("learning rate", bounds=_POSITIVE),
    "charts/ent_coef": CurveWords("weight of the entropy bonus"),
    EVALUATED: CurveWords("mean reward in evaluations"),
    "evaluation/std_reward": CurveWords("standard deviation of rewards in evaluations"),
    "evaluation/num_episodes": CurveWords("episodes per evaluation"),
    "evaluation/win_rate": CurveWords("win rate in evaluations", bounds=_SHARE),
}
METRIC: Final = "metrics/"
LAST_METRIC: Final = "metrics/episode/"
"""Beginnings of the names of curves: of a game's metrics, and of their last values in episodes."""
_METRIC: Final = re.compile(rf"{METRIC}(episode/)?(.+)\.(mean|min|max)", re.DOTALL)
_PARTS: Final = {"mean": "mean", "min": "smallest value", "max": "largest value"}


def curve_words(name: str) -> CurveWords:
    """Description of a curve; its name if it is unknown."""
    if found := _WORDS.get(name):
        return found
    if metric := _METRIC.fullmatch(name):
        when = " at the end of an episode" if metric[1] else ""
        return CurveWords(f"{plain(metric[2])}{when}, {_PARTS[metric[3]]} (from the game)")
    return CurveWords(plain(name))


def curve_title(game: str, name: str) -> str:
    """Title of a chart: the game, the curve in words, and its name unless it is the main curve."""
    words = curve_words(name).words
    found = words if name == REWARD or words == plain(name) else f"{words} ({plain(name)})"
    return f"{game}: {found}" if game else found
