"""Defaults of PPO: presets by kind of environment, and measurements of random play.

Used by the trainer and the command line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from entity_env.agents.random import random_actions
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import is_flat, picture_of
from entity_env.core.spaces import ActionName, ActionSpace, ContinuousActionSpace, ObsSpace
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import UsageError

PROBE_ENVS: Final = 4
"""Number of environments to play at random, each for several episodes."""
_PROBE_EPISODES: Final = 4
_PROBE_DECISIONS: Final = 10_000
_PROBE_S: Final = 20.0
"""Time limit of random play; if it is over, the episodes so far are not used."""
_PROBE_SHARE: Final = 0.05
"""Largest share of a run's time for random play."""
_LEARNED_PER_S: Final = 2000.0
"""Decisions per second that a core learns from, for the plan of a run with a time limit."""


class GameFigures(NamedTuple):
    """Measurements of random play on an environment.

    Args:
        mean_length: mean decisions per agent and episode, over equally many first episodes from
            every row. If a row finished no episode: all decisions, divided by the number of
            finished episodes or the number of rows, whichever is larger.
        is_cut: True if most episodes were truncated. The running episode of a row that finished
            none counts as one that was not.
        decisions_per_step: mean decisions of a row per step, 1 unless agents take turns.
        is_continuous: True if any action is continuous.
        num_entities: mean number of entities per decision.
        is_whole: False if play took too long and was stopped. The number of steps then depends on
            the machine, so no default may follow from the other figures except `is_continuous`.
        decisions_per_s: speed of play, without the first step, which may compile the game.
    """

    mean_length: float
    is_cut: bool
    decisions_per_step: float
    is_continuous: bool = False
    num_entities: float = 0.0
    is_whole: bool = True
    decisions_per_s: float = math.inf

    @classmethod
    def of(
        cls, vec: VecEnvironment, seed: int = 0, max_train_time_s: float | None = None
    ) -> GameFigures:
        """Resets environments and plays them at random.

        Stops after four episodes of every row or after 10,000 decisions, however long they take. If
        they take over 20 seconds, or over a twentieth of `max_train_time_s`, stops earlier, see
        `is_whole`.

        Args:
            vec: a few environments, with autoreset "same_step".
            seed: of the environments and actions.
        """
        rng, space = np.random.default_rng(seed), vec.action_space()
        obs, num_rows, now = vec.reset(seed=seed), vec.num_rows, time.monotonic
        limit_s = min(_PROBE_S, _PROBE_SHARE * (max_train_time_s or math.inf))
        lengths: dict[tuple[int, int], list[int]] = {}
        steps = decisions = cut = ended = num_entities = num_timed = 0
        began, played_s = now(), 0.0
        while decisions < _PROBE_DECISIONS and not _are_enough(lengths, num_rows):
            if steps > 1 and played_s > limit_s:
                break
            num_ready = int(np.count_nonzero(obs.is_ready))
            decisions += num_ready
            num_entities += sum(len(each.values) for each in obs.features.values())
            obs = vec.act(random_actions(obs, space, rng))
            if steps:
                played_s, num_timed = now() - began, num_timed + num_ready
            else:
                began = now()
            steps += 1
            for each in obs.episodes:
                lengths.setdefault((each.env_id, each.agent_id), []).append(each.length)
                cut += each.truncated and not each.terminated
                ended += 1
        whole = min(map(len, lengths.values())) if len(lengths) == num_rows else 0
        first = [length for each in lengths.values() for length in each[:whole]]
        return cls(
            sum(first) / len(first) if first else decisions / max(ended, num_rows),
            2 * cut > ended + num_rows - len(lengths),
            decisions / (steps * num_rows),
            any(isinstance(each, ContinuousActionSpace) for each in space.values()),
            num_entities / max(decisions, 1),
            decisions >= _PROBE_DECISIONS or _are_enough(lengths, num_rows),
            num_timed / played_s if played_s else math.inf,
        )

    def steps_within(self, max_train_time_s: float | None, num_workers: int) -> int | None:
        """Number of decisions that a run is expected to make in its time; None = no limit."""
        if max_train_time_s is None:
            return None
        decision_s = 1 / self.decisions_per_s / max(1, num_workers) + 1 / _LEARNED_PER_S
        return max(1, int(max_train_time_s / decision_s))


def _are_enough(lengths: Mapping[tuple[int, int], list[int]], num_rows: int) -> bool:
    return len(lengths) == num_rows and min(map(len, lengths.values())) >= _PROBE_EPISODES


_STEPS: Final = (16, 128)
"""Range of steps per rollout from which the number of environments follows. With fewer steps, an
advantage covers few rewards; with more, few environments fit into a rollout.
"""
_LEAST_ROLLOUTS: Final = 4
_LEAST_ENVS: Final = 8
_MOST_ENVS: Final = 128
_LEAST_EPISODES: Final = 4
"""Episodes per environment for which starts are spread over a whole episode; with fewer, less."""
_MANY_ENTITIES: Final = 64
"""Entities from which on attention takes most of the time, and one block learns as much as two."""
_SMALL_MINIBATCHES: Final = 256
"""Minibatch size for entity games with real-valued actions, or with an MLP."""
_MEMORY_MINIBATCH: Final = 256
"""Minibatch size for networks with memory. A minibatch consists of whole segments of 128 decisions:
a single segment is too little for a gradient, and with larger ones there are too few steps.
"""
_RATE_OF_SEVERAL: Final = 0.005
"""Learning rate for games with several agents and no continuous actions, for an entity network
without memory: with its smaller minibatches, the usual rate is enough.
"""
_CUT_GAMMAS: Final = (0.9, 0.995)
"""Range of the discount for truncated episodes. The value at the truncation is an estimate; with a
horizon longer than an episode, values would consist only of such estimates.
"""


class Reason(NamedTuple):
    """Why a setting has its default, as a sentence.

    Args:
        setting: its name, such as `gamma` or `net.n_layer`.
    """

    text: str
    setting: str
    value: object

    def holds(self, config: object) -> bool:
        """True if the setting has this value in a `PPOConfig`."""
        for name in self.setting.split("."):
            config = getattr(config, name, None)
        return config == self.value


class Defaults(NamedTuple):
    """Number of environments, fields of `PPOConfig`, and reasons for some of them."""

    num_envs: int
    settings: dict[str, Any]
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Preset:
    """Settings that suit a kind of environment.

    Args:
        name: key in `PRESETS`, which `PPOConfig.for_env` takes as `preset`.
        kind: the environments that it suits, in a few words.
        num_envs: default number of training environments.
        settings: fields of `PPOConfig`; all others keep their defaults.
        rollout_sizes: fewest and most decisions per rollout, for any number of environments. None =
            the size follows from `num_steps` and the number of environments.
        num_rollouts: number of rollouts of a run, if their size is within `rollout_sizes`.
        is_fitted: random play determines the number of environments, the length of rollouts, the
            discount, and details of the network and the optimizer.
        own: a game's own fields of `PPOConfig`, and possibly `num_envs`. They override what follows
            from random play and the length of the run; the argument `total_steps` overrides theirs.
    """

    name: str
    kind: str
    num_envs: int = 128
    settings: Mapping[str, Any] = field(default_factory=dict)
    rollout_sizes: tuple[int, int] | None = None
    num_rollouts: int = 40
    is_fitted: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)

    def defaults_for(
        self,
        num_agents: int,
        total_steps: int | None = None,
        seen: GameFigures | None = None,
        *,
        num_envs: int | None = None,
        num_steps: int | None = None,
        remembers: bool = False,
        most_steps: int | None = None,
    ) -> Defaults:
        """Number of environments and fields of `PPOConfig` for a game.

        Args:
            total_steps: number of decisions of the run; None = that of the preset.
            seen: measurements of random play; used only if `is_fitted`. None = the preset's own
                settings, adapted to `total_steps`.
            num_envs: None = chosen by this method.
            num_steps: None = chosen by this method; used only with `seen` and `is_fitted`.
            remembers: the network has a memory. It learns through the steps of a rollout, which
                then cover two episodes instead of half of one, with another minibatch size.
            most_steps: decisions for which the run is expected to have time, see
                `GameFigures.steps_within`. Rollouts are planned for them, if they are fewer than
                `total_steps`, so a slow game also has several rollouts.
        """
        of_memory = {"minibatch_size": _MEMORY_MINIBATCH} if remembers else {}
        sizes = num_envs or self.own.get("num_envs"), num_steps or self.own.get("num_steps")
        kept = {name: x for name, x in self.own.items() if name not in ("total_steps", "num_envs")}
        if seen is None or not self.is_fitted:
            num_envs = sizes[0] or self._num_envs_within(num_agents, most_steps)
            settings = self.settings_for(num_envs * num_agents, total_steps, most_steps)
            return Defaults(num_envs, settings | of_memory | kept)
        settings = {**self.settings, **of_memory}
        settings["total_steps"] = total = total_steps or settings["total_steps"]
        if not seen.is_whole:  # the machine determined how far play came
            seen = GameFigures(math.nan, False, 1.0, seen.is_continuous)
        planned = min(total, most_steps or total)
        num_envs, rollouts, reason = self._rollouts(
            num_agents, planned, seen, sizes, remembers=remembers, is_limited=most_steps is not None
        )
        settings |= rollouts
        reasons = [reason]
        if seen.is_cut and "gamma" not in kept:
            low, high = _CUT_GAMMAS
            settings["gamma"] = round(max(low, min(1 - 1 / seen.mean_length, high)), 4)
            why = f"gamma {settings['gamma']:g}: episodes are truncated, not terminated"
            reasons.append(Reason(why, "gamma", settings["gamma"]))
        if "net" not in settings:
            changes, more = _for_entities(num_agents, seen, remembers=remembers)
            settings |= changes
            reasons += more
        return Defaults(num_envs, settings | kept, tuple(reasons))

    def _rollouts(
        self,
        num_agents: int,
        total_steps: int,
        seen: GameFigures,
        sizes: tuple[int | None, int | None],
        *,
        remembers: bool,
        is_limited: bool,
    ) -> tuple[int, dict[str, int], Reason]:
        """Number of environments, settings of the rollouts, and the reason for their sizes.

        Args:
            total_steps: number of decisions for which rollouts are planned.
            seen: with a mean length of NaN if it is unknown.
            sizes: number of environments and steps, as far as given.
            is_limited: `total_steps` follows from a time limit and may be very small.
        """
        num_envs, num_steps = sizes
        least_envs, least_steps = (1, 1) if is_limited else (_LEAST_ENVS, _STEPS[0] // 2)
        size = self._rollout_size(total_steps)
        per_step = num_agents * seen.decisions_per_step
        if math.isnan(seen.mean_length):
            most = self._num_envs_within(num_agents, total_steps if is_limited else None)
            num_envs = num_envs or most
            num_steps = num_steps or max(least_steps, round(size / (num_envs * per_step)))
            why = "random play took too long to measure the length of episodes"
            told = f"{num_envs} environments x {num_steps} steps: {why}"
            return num_envs, {"num_steps": num_steps}, Reason(told, "num_steps", num_steps)
        length = seen.mean_length / seen.decisions_per_step
        if num_envs is None:
            covered = 2 * length if remembers else length / 2
            wanted = num_steps or max(_STEPS[0], min(covered, _STEPS[1]))
            num_envs = max(least_envs, min(round(size / (wanted * per_step)), _MOST_ENVS))
        num_steps = num_steps or max(least_steps, round(size / (num_envs * per_step)))
        # Less in short runs: a staggered reset interrupts an episode, so fewer episodes end.
        staggered = min(length, total_steps / (num_envs * per_step) / _LEAST_EPISODES)
        rollouts = {"num_steps": num_steps, "staggered_steps": int(staggered)}
        decisions = round(seen.mean_length)
        why = f"episodes last about {decisions} decision{'s' * (decisions != 1)}"
        told = f"{num_envs} environments x {num_steps} steps: {why}"
        return num_envs, rollouts, Reason(told, "num_steps", num_steps)

    def settings_for(
        self, num_rows: int, total_steps: int | None = None, most_steps: int | None = None
    ) -> dict[str, Any]:
        """Fields of `PPOConfig` without measurements of random play.

        Args:
            num_rows: agents of all environments.
            total_steps, most_steps: as in `defaults_for`.
        """
        settings = dict(self.settings)
        if total_steps is not None:
            settings["total_steps"] = total_steps
        if self.rollout_sizes is not None:
            total = settings["total_steps"]
            size = self._rollout_size(min(total, most_steps or total))
            settings["num_steps"] = max(size // num_rows, 8)
        if most_steps is not None and "num_steps" in settings:
            most = most_steps // _LEAST_ROLLOUTS // num_rows
            settings["num_steps"] = max(1, min(settings["num_steps"], most))
        return settings

    def _num_envs_within(self, num_agents: int, most_steps: int | None) -> int:
        """The preset's number of environments, or fewer if they could not make a few rollouts."""
        if most_steps is None:
            return self.num_envs
        most = most_steps // _LEAST_ROLLOUTS // (num_agents * _STEPS[0] // 2)
        return max(1, min(self.num_envs, most))

    def _rollout_size(self, total_steps: int) -> int:
        """Number of decisions per rollout, at most a quarter of the run."""
        least, most = self.rollout_sizes or (1, total_steps)
        wanted = max(least, min(total_steps // self.num_rollouts, most))
        return min(wanted, max(total_steps // _LEAST_ROLLOUTS, 1))


def _for_entities(
    num_agents: int, seen: GameFigures, *, remembers: bool
) -> tuple[dict[str, Any], list[Reason]]:
    """Changes to network and optimizer for an entity game, and their reasons."""
    changes: dict[str, Any] = {}
    reasons: list[Reason] = []
    net = RogueNetConfig()
    if seen.is_continuous:
        net = replace(net, separate_value=True)
        changes["minibatch_size"] = _SMALL_MINIBATCHES
        why = "a separate network for the value: actions are continuous"
        reasons.append(Reason(why, "net.separate_value", True))
    elif num_agents > 1 and not remembers:
        changes["learning_rate"] = _RATE_OF_SEVERAL
    if seen.num_entities >= _MANY_ENTITIES:
        net = replace(net, n_layer=1)
        why = f"one block of attention: about {seen.num_entities:.0f} entities"
        reasons.append(Reason(why, "net.n_layer", 1))
    if net != RogueNetConfig():
        changes["net"] = net
    return changes, reasons


# Many small gradient steps, and normalized values, since returns are in the hundreds. A long run
# can afford longer rollouts, whose gradients are less noisy. With a gamma of 0.99, LunarLander
# hovers forever.
_CONTROL: Final = Preset(
    "control",
    "observations of fixed size",
    num_envs=16,
    settings={
        "total_steps": 300_000,
        "net": MLPConfig(),
        "norm_returns": True,
        "minibatch_size": 64,
        "update_epochs": 10,
        "learning_rate": 0.001,
        "gamma": 0.995,
        "ent_coef": 0.01,
        "clip_vloss": False,
        "max_grad_norm": 0.5,
    },
    rollout_sizes=(2048, 8192),
    num_rollouts=240,
)
_PICTURES: Final = replace(
    _CONTROL,
    name="pictures",
    kind="pictures",
    settings={
        **_CONTROL.settings,
        "net": CNNConfig(),
        "minibatch_size": 256,
        "update_epochs": 8,
        "learning_rate": 0.0005,
    },
    num_rollouts=40,
)
PRESETS: Final[Mapping[str, Preset]] = {
    preset.name: preset
    for preset in (
        # The entropy bonus is independent of the number of actors, and of the scale of returns; see
        # docs/explanation/defaults.md for the measurements behind each choice. With a smaller
        # bonus Xor converges before it is right, and never recovers.
        Preset(
            "entities",
            "any number of entities",
            num_envs=32,
            settings={
                "total_steps": 400_000,
                "minibatch_size": 512,
                "update_epochs": 4,
                "learning_rate": 0.003,
                "target_kl": 0.05,
                "norm_returns": True,
                "clip_vloss": False,
                "ent_coef": 0.1,
                "norm_entropy": True,
                "max_grad_norm": 0.5,
            },
            rollout_sizes=(512, 8192),
            num_rollouts=60,
            is_fitted=True,
        ),
        _CONTROL,
        _PICTURES,
        # A RogueNet needs many large gradient steps to distinguish the positions of a board: with
        # smaller steps tic-tac-toe converges to wrong moves.
        Preset(
            "board",
            "small board games",
            settings={
                # Eight heads learn perfect moves in half the steps of two, at equal cost.
                "net": RogueNetConfig(n_head=8),
                "num_steps": 32,
                "minibatch_size": 384,
                "update_epochs": 10,
                "learning_rate": 0.01,
                "norm_returns": True,
                "clip_vloss": False,
                "ent_coef": 0.1,
                "target_kl": 0.3,
                "max_grad_norm": 0.5,
            },
        ),
        # Over a hundred tiles attend to each other, so the network is small. Episodes have about
        # ten steps, so distant rewards can be discounted heavily.
        Preset(
            "screen",
            "the tiles of a screen",
            num_envs=32,
            settings={
                "total_steps": 40_000,
                "net": RogueNetConfig(d_model=16, n_layer=1, n_head=1),
                "minibatch_size": 128,
                "update_epochs": 4,
                "gamma": 0.95,
            },
        ),
    )
}

RANDOM_OPENINGS: Final = 0.5
"""Share of games whose first decision is random, if several agents take turns."""
DEFAULT_OPPONENTS: Final[Mapping[str, float]] = {"self": 0.2, "random": 0.1}
"""Opponents in games for several agents, with their shares of the environments."""


def preset_for(
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    *,
    num_agents: int = 1,
) -> Preset:
    """The preset that suits an environment."""
    entities = PRESETS["entities"]
    if not is_flat(obs_space, action_space):
        return entities
    if picture_of(obs_space) is not None:
        return PRESETS["pictures"]
    # Normalization raises the flag of a rare state up to the clipping limit: of five seeds on
    # Taxi-v4 four earned 6.8 after 150,000 decisions and one -48; without it, all earned 7.4 or
    # more.
    has_numbers = not all(each.is_binary for each in obs_space.entities.values())
    net = MLPConfig(norm_inputs=has_numbers or bool(obs_space.global_features))
    if num_agents == 1:
        control = PRESETS["control"]
        return replace(control, settings={**control.settings, "net": net})
    # The entity preset, but with the network of a control task; it needs more gradient steps.
    steps = {"minibatch_size": _SMALL_MINIBATCHES, "update_epochs": 8}
    settings = {**entities.settings, **steps, "net": net}
    return replace(entities, kind="several agents that see a fixed size", settings=settings)


def named_preset(name: str) -> Preset:
    """The preset with this name.

    Raises:
        UsageError: there is no such preset.
    """
    if name not in tuple(PRESETS):  # the name may have any type
        raise UsageError(f"there is no preset {name!r}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
