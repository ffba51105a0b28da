"""`PPOConfig`: settings of the PPO trainer."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, RogueNetConfig, stored_net
from entity_env.agents.training.presets import GameFigures, named_preset, preset_for
from entity_env.agents.training.schedule import Schedule, reached_fraction, reached_step
from entity_env.agents.training.tracking.settings_file import read_settings
from entity_env.core.validation import OneOf, Range, check_settings, settings_of
from entity_env.core.vec_env_base import require_vec_env
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import UsageError, shown

FINE_TUNING_STEP: Final = 0.3
"""Factor by which fine-tuning multiplies `PPOConfig.learning_rate`."""
FINE_TUNING_ENTROPY: Final = 0.01
"""Largest `ent_coef` for fine-tuning; presets use up to 0.1, so untrained networks explore."""
_FINE_TUNING_CLOSE: Final = ((0.0, 0.2), (0.5, 0.0))
"""Schedule of `stay_close` for fine-tuning: 0 once the value function should be trained."""
COMPILE_MODES: Final = OneOf(("wait", "background", "never"))
"""Words for `compile`, in addition to a number of steps."""
RATIOS: Final = OneOf(("decision", "actor"))
"""Values of `ratio`."""
_INT64: Final = 2**63 - 1
_INT32: Final = 2**31 - 1
NETS: Final[Mapping[str, type[RogueNetConfig | MLPConfig | CNNConfig]]] = {
    "rogue_net": RogueNetConfig,
    "mlp": MLPConfig,
    "cnn": CNNConfig,
}
NET_KIND: Final = "kind"
_LEAST_WORD: Final = 4
"""Fewest letters of a part of a name by which a setting is recognized."""
_ELSEWHERE: Final = {
    "num_envs": "the environments have their number: --num-envs, in Python VecEnv(game, num_envs)",
    "num_workers": "the environments have workers: --num-workers, in Python VecEnv(num_workers=)",
}
"""Names that are settings of something else."""


@dataclass(frozen=True)
class PPOConfig:
    """Settings of the trainer; the defaults suit small games on a few cores.

    The number of environments is not a setting: `VecEnvironment` determines it. A setting that may
    be a `Schedule` also accepts the JSON of a schedule.

    Raises:
        UsageError: a setting is invalid.
    """

    total_steps: Annotated[int, Range(1, _INT64)] = 400_000
    """Number of decisions to train on. A decision is everything that one agent does on one
    observation."""
    seed: Annotated[int, Range(0, _INT64)] = 1
    """Seed of the network, the sampled actions, the minibatches and the environments."""
    net: RogueNetConfig | MLPConfig | CNNConfig = field(default_factory=RogueNetConfig)
    """Kind and size of the network."""

    num_steps: Annotated[int, Range(1, 10**6)] = 16
    """Number of steps per environment in each rollout; the last rollout may be shorter."""
    staggered_steps: Annotated[int, Range(0, 10**9)] = 0
    """Steps over which the starts of the environments are spread. About the length of an episode is
    suitable. After each rollout within these steps, some environments are reset; otherwise the
    first rollouts would contain only openings and later ones only endings. Episodes interrupted
    this way are not counted. 0 = all start together. Environments without `reset_envs` (see
    `VecEnvironment`) always start together. A resumed run begins new episodes and spreads their
    starts again."""
    minibatch_size: Annotated[int | Schedule, Range(1, _INT32)] = 1024
    """Approximate number of decisions per optimizer step."""
    microbatch_size: Annotated[int | None, Range(1, _INT32)] = None
    """Largest number of decisions per gradient computation, to save memory. Larger minibatches are
    split, and the gradients of their parts are added up. None = the whole minibatch."""
    update_epochs: Annotated[int | Schedule, Range(1, 10**6)] = 3
    """Number of passes over each rollout, unless `target_kl` stops the update earlier."""

    memory_steps: Annotated[int, Range(1, 10**6)] = 128
    """Largest number of consecutive decisions through which a network with memory learns at once,
    at most those of a rollout. Each such segment begins with the state stored while playing;
    minibatches consist of whole segments. No effect without memory."""

    learning_rate: Annotated[float | Schedule, Range(0)] = 0.003
    """Step size of Adam at the start, after any warm-up."""
    anneal_learning_rate: bool = True
    """Whether the step size falls linearly to 0 from the end of any warm-up to the end of the run.
    No effect if `learning_rate` is a `Schedule`."""
    warmup_steps: Annotated[int, Range(0, _INT64)] = 0
    """Decisions at the start of the run over which the step size rises linearly to `learning_rate`.
    If above 0, `learning_rate` must be a number."""
    gamma: Annotated[float | Schedule, Range(0, 1)] = 0.99
    """Discount of the reward per decision."""
    gae_lambda: Annotated[float | Schedule, Range(0, 1)] = 0.95
    """Weight of longer returns in the advantage: with 0, it relies on the value function; with 1,
    on the rewards."""

    clip_coef: Annotated[float | Schedule, Range(0, is_above=True)] = 0.2
    """Relative change of a decision's probability since the rollout, beyond which the policy loss
    does not push the probability further."""
    ratio: Annotated[str, RATIOS] = "decision"
    """Probability whose change `clip_coef` limits: "decision" (everything that an agent does on one
    observation, jointly for all actors) or "actor" (separately for each actor, all actions of an
    actor jointly; global actions count as one actor). Equal for a single actor."""
    norm_adv: bool = True
    """Whether the advantages of a minibatch are normalized, to a mean of 0 and a standard deviation
    of at most 1."""
    norm_returns: bool = False
    """Whether values are trained in units of the returns' standard deviation, see
    `ReturnStatistics`."""
    clip_vloss: bool = True
    """Whether the value loss is clipped for decisions whose value has changed by more than
    `clip_coef` since the rollout: in units of the reward or, with `norm_returns`, of the returns'
    standard deviation."""
    vf_coef: Annotated[float | Schedule, Range(0)] = 0.5
    """Weight of the value loss."""
    ent_coef: Annotated[float | Schedule, Range(0)] = 0.02
    """Weight of the entropy bonus at the start. The entropy is in nats per decision, unless
    `norm_entropy` is set."""
    anneal_entropy: bool = True
    """Whether the entropy bonus falls linearly to 0 over the run. No effect if `ent_coef` is a
    `Schedule`."""
    norm_entropy: bool = False
    """Whether the entropy is divided by that of uniformly random choices in the same rollout. One
    `ent_coef` then suits both a single coin flip and many actors with many choices. In the divisor,
    each number of a continuous action counts as 1 nat."""
    weight_decay: Annotated[float | Schedule, Range(0)] = 0.0
    """Weight decay of AdamW: each optimizer step multiplies the parameters by 1 minus the product
    of this number and the step size."""
    max_grad_norm: Annotated[float | Schedule, Range(0, is_above=True, is_endless=True)] = 2.0
    """Largest norm of the gradient. Longer gradients are scaled down to it."""
    target_kl: Annotated[float | Schedule | None, Range(0, is_endless=True)] = None
    """Largest divergence from the rollout's policy: an update stops after an epoch whose last
    minibatch exceeds it (see `approx_kl` of `Losses`). None = no limit."""

    stay_close: Annotated[float | Schedule, Range(0)] = 0.0
    """Weight of the divergence from the teacher, the network that the run starts from: KL(teacher
    || policy) in nats per decision; see `evaluate_beside`. 0 = no teacher."""

    device: str = "cpu"
    """Device that torch uses, such as cpu or cuda."""
    num_threads: Annotated[int | None, Range(1, 1024)] = 1
    """Number of threads that torch uses. None = torch's own setting. Small networks gain little
    from a second thread, and become much slower when something else needs the core."""
    checkpoint_interval_s: Annotated[float, Range(0, is_endless=True)] = 60.0
    """Least number of seconds between checkpoints, which are written after updates. Another one is
    written at the end of the run."""
    max_train_time_s: Annotated[float | None, Range(0)] = None
    """Seconds after which the run ends, with a checkpoint. None = no limit. Callbacks may reserve
    up to a tenth of this time for the end, as for evaluations. Schedules follow the elapsed
    fraction of the time whenever it is larger than that of the steps; the seed then does not repeat
    the run bit for bit. A resumed run gets the full time again, and its schedules begin at its
    fraction of the steps."""
    episode_window: Annotated[int, Range(1, 10**9)] = 200
    """Largest number of episodes in the reported mean reward and length. These are the most recent
    episodes, equally many from each agent of each environment: in total about a tenth of all
    episodes so far, but at least 20. At least one per agent of an environment counts, even if this
    exceeds the window."""
    peer_timeout_s: Annotated[float, Range(0, is_above=True)] = 300.0
    """Seconds that a rank of a process group waits for the other ranks."""
    compile: Annotated[str | int, COMPILE_MODES, Range(1, _INT64)] = "wait"
    """When the network's kernels are compiled, if numba is installed and its cache lacks them:
    "wait" (during the first rollout and update) or "background" (in a child process). "never" = the
    run uses only torch, even if kernels are cached. With "background", the run begins in torch,
    which differs by rounding, and switches to kernels at a varying step, so the seed does not
    repeat the run bit for bit. A number of steps = the run uses torch up to that step; this repeats
    a run with this `compiled_from_step` in its `run.json`. Several ranks always wait."""

    if not TYPE_CHECKING:

        def __new__(cls, *args: object, **settings: object) -> PPOConfig:
            """Refuses unknown names with a hint, which the dataclass would not give."""
            _require_known(settings)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.learning_rate == 0:
            raise UsageError("learning_rate must be above 0, got 0.0; a schedule may end at 0")
        if self.warmup_steps and isinstance(self.learning_rate, Schedule):
            raise UsageError(
                f"warmup_steps={self.warmup_steps} needs a number as learning_rate, got "
                f"{self.learning_rate}; a schedule can contain the warm-up"
            )

    def at(self, step: int, num_decisions: int = 0, *, time_fraction: float = 0.0) -> CurrentConfig:
        """The settings of an update, with schedules replaced by numbers.

        Args:
            step: number of decisions before its rollout.
            num_decisions: number of decisions in the rollout, which count during warm-up.
            time_fraction: elapsed fraction of the run's time before its rollout, see
                `TrainProgress`. Schedules follow the larger of this and the fraction of steps.
        """
        run = step, self.total_steps, time_fraction
        reached, fraction = reached_step(*run), reached_fraction(*run)
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in SCHEDULED:
            if isinstance(value := found[name], Schedule):
                number = value.at(fraction)
                is_integer = int in settings_of(PPOConfig)[name].kinds
                found[name] = round(number) if is_integer else number
        if not isinstance(self.learning_rate, Schedule):
            rise = (step + num_decisions) / self.warmup_steps if step < self.warmup_steps else 1.0
            found["learning_rate"] = self._step_size(self.learning_rate, rise, reached)
        if not isinstance(self.ent_coef, Schedule):
            found["ent_coef"] = self.ent_coef * (1 - fraction if self.anneal_entropy else 1)
        found |= {"anneal_learning_rate": False, "warmup_steps": 0, "anneal_entropy": False}
        return CurrentConfig(**found)

    def _step_size(self, learning_rate: float, rise: float, reached: float) -> float:
        """The step size, with warm-up and annealing.

        Args:
            rise: completed fraction of the warm-up; 1 without warm-up or after it.
            reached: number of decisions that schedules follow, see `at`.
        """
        left = 1.0
        if self.anneal_learning_rate and reached > self.warmup_steps:
            left -= (reached - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return learning_rate * min(1.0, rise, left)

    @classmethod
    def for_env(
        cls, vec: VecEnvironment, *, preset: str | None = None, **settings: object
    ) -> PPOConfig:
        """Settings that suit the environments, overridden by the given ones.

        If the preset is fitted (see `Preset.is_fitted`), this resets the environments and plays a
        few episodes at random, for 20 seconds at most: reset them again before use. With
        `max_train_time_s`, does this for all presets, and plans several rollouts for that time.

        Args:
            preset: one of `PRESETS`; None = by the spaces. If observations have a fixed size and no
                action selects entities: "pictures" with exactly one picture, else "control" (an
                MLP, normalized returns) for one agent, or "entities" with an MLP for several. In
                other games: "entities". All presets make more gradient steps per decision than the
                defaults of this class.
            settings: fields of this class.

        Raises:
            SchemaError: `vec` is not a vector environment.
            UsageError: a preset or setting is unknown, or a setting is invalid.
        """
        require_vec_env(vec, "PPOConfig.for_env")
        _require_known(settings)
        spaces, num_agents = (vec.obs_space(), vec.action_space()), getattr(vec, "num_agents", 1)
        found = named_preset(preset) if preset else preset_for(*spaces, num_agents=num_agents)
        # The class refuses values of other types; skip them here.
        sizes = {name: settings.get(name) for name in ("total_steps", "num_steps")}
        given = {name: value for name, value in sizes.items() if isinstance(value, int)}
        limit_s = settings.get("max_train_time_s")
        limit_s = limit_s if isinstance(limit_s, int | float) else None
        seen = most_steps = None
        if found.is_fitted or limit_s is not None:
            seen = GameFigures.of(vec, max_train_time_s=limit_s)
            most_steps = seen.steps_within(limit_s, getattr(vec, "num_workers", 0))
        num_envs = vec.num_rows // num_agents
        net = settings.get("net")
        remembers = isinstance(net, RogueNetConfig | MLPConfig | CNNConfig) and net.memory > 0
        own = found.defaults_for(
            num_agents,
            seen=seen,
            num_envs=num_envs,
            remembers=remembers,
            most_steps=most_steps,
            **given,
        )
        return cls(**{**own.settings, **settings})

    def for_fine_tuning(self) -> PPOConfig:
        """These settings for fine-tuning a trained network, such as one from `initialized_from`.

        Multiplies `learning_rate` by `FINE_TUNING_STEP`, limits `ent_coef` to
        `FINE_TUNING_ENTROPY`, and lets `stay_close` fall from 0.2 to 0 in the first half of the
        run. Keeps schedules, and a nonzero `stay_close`. See docs/how-to/fine_tuning.md for
        measurements.
        """
        tuned: dict[str, float | Schedule] = {}
        if not isinstance(self.learning_rate, Schedule):
            tuned["learning_rate"] = self.learning_rate * FINE_TUNING_STEP
        if not isinstance(self.ent_coef, Schedule):
            tuned["ent_coef"] = min(self.ent_coef, FINE_TUNING_ENTROPY)
        if self.stay_close == 0:
            tuned["stay_close"] = Schedule(_FINE_TUNING_CLOSE)
        return self.changed(tuned)

    def summary(self) -> str:
        """The most frequently changed settings, in one line."""
        names = (
            *("num_steps", "minibatch_size", "update_epochs", "learning_rate", "gamma", "ent_coef"),
            "norm_returns",
        )
        settings = ", ".join(f"{name} {getattr(self, name)}" for name in names)
        sizes = {name: getattr(self.net, name, x) for name, x in self.net.to_json().items()}
        net = ", ".join(
            f"{name}=({x})" if "=" in f"{x}" else f"{name}={x}" for name, x in sizes.items()
        )
        return f"{self.total_steps:,} steps, {settings}, {type(self.net).__name__}({net})"

    def to_json(self) -> dict[str, object]:
        own = {name: getattr(self, name) for name in SCHEDULED}
        schedules = {name: x.to_json() for name, x in own.items() if isinstance(x, Schedule)}
        return {**asdict(self), **schedules}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> PPOConfig:
        """Reads the JSON of `to_json`.

        Raises:
            UsageError: a setting is unknown to this release, or invalid.
        """
        _require_known(data)
        values = dict(data)
        net = values.pop("net", {})
        if not isinstance(net, dict):
            raise UsageError(f"the setting 'net' must be a table of settings, got {net!r}")
        try:
            kind, sizes = stored_net(net)
            size = NETS[kind](**sizes)  # type: ignore[arg-type]  # checked by the class
        except TypeError as error:  # an unknown setting
            raise UsageError(f"the setting 'net': {error}") from error
        return cls(net=size, **values)  # type: ignore[arg-type]  # checked by the class

    @classmethod
    def from_file(cls, path: str | Path, start: PPOConfig | None = None) -> PPOConfig:
        """Reads settings from a file for `entity-env train --config`, to replace those of `start`.

        The file is TOML: fields of this class, and a table `net` with fields of the network and its
        `kind` ("rogue_net", "mlp" or "cnn"). The `run.json` of an earlier run is also accepted. The
        settings of the game and of the command, such as the tables `game` and `run`, are ignored.

        Args:
            start: settings for everything that the file does not set, such as
                `PPOConfig.for_env(vec)`; None = the defaults.

        Raises:
            UsageError: the file cannot be read, or a setting is unknown or invalid; the message
                names the file.
        """
        return (start or cls()).changed(read_settings(Path(path)).trainer, str(path))

    def changed(self, settings: Mapping[str, object], source: str = "") -> PPOConfig:
        """A copy with some settings changed.

        Args:
            settings: fields of this class; under "net", the fields of the network to change, and
                its "kind". Without "kind", fields that this network lacks select a kind that has
                them. "net" may also be a network's config. The value "none" means None, except for
                `device`.
            source: origin of the settings, for errors.

        Raises:
            UsageError: a setting is unknown or invalid.
        """
        try:
            _require_known(settings)
            values = {name: _whole(name, _none(name, value)) for name, value in settings.items()}
            if "net" in values and not isinstance(values["net"], tuple(NETS.values())):
                values["net"] = _changed_net(self.net, values["net"])
            return replace(self, **values)  # type: ignore[arg-type]  # checked by the class
        except UsageError as error:
            raise UsageError(f"{source}: {error}" if source else str(error)) from error


SCHEDULED: Final = tuple(
    name for name, setting in settings_of(PPOConfig).items() if Schedule in setting.kinds
)


class CurrentConfig(PPOConfig):
    """Settings of an update, without schedules; see `PPOConfig.at`."""

    if TYPE_CHECKING:
        learning_rate: float
        gamma: float
        gae_lambda: float
        clip_coef: float
        vf_coef: float
        ent_coef: float
        weight_decay: float
        max_grad_norm: float
        target_kl: float | None
        stay_close: float
        minibatch_size: int
        update_epochs: int

    def __post_init__(self) -> None:
        """Skips validation, which the original settings passed."""


Net: TypeAlias = RogueNetConfig | MLPConfig | CNNConfig


def _changed_net(net: Net, settings: object) -> Net:
    """The network's config with changed settings; these may select another kind."""
    if not isinstance(settings, Mapping):
        raise UsageError(f"net must be a table of settings, got {shown(settings)}")
    values = {name: _none(name, value) for name, value in settings.items()}
    name = values.pop(NET_KIND, None)
    if name is not None and name not in tuple(NETS):
        raise UsageError(f"net.kind must be one of {', '.join(NETS)}, got {shown(name)}")
    known = {kind: {each.name for each in fields(kind)} for kind in NETS.values()}
    # The current kind first: without "kind", it stays if it has all fields.
    kinds = [type(net), *NETS.values()] if name is None else [NETS[str(name)]]
    kind = next((each for each in kinds if set(values) <= known[each]), None)
    if kind is None:
        names = known[kinds[0]] if name else set().union(*known.values())
        wrong = next((each for each in values if each not in names), "")
        if not wrong:
            raise UsageError(f"net: no kind of network has all of {', '.join(sorted(values))}")
        raise _unknown(f"net.{wrong}", [f"net.{each}" for each in (*sorted(names), NET_KIND)])
    try:
        return replace(net, **values) if isinstance(net, kind) else kind(**values)  # type: ignore[arg-type]
    except UsageError as error:
        raise UsageError(f"net: {error}") from error


def _none(name: str, value: object) -> object:
    """Replaces the word "none" with None, since TOML has no null; the device may be any text."""
    return None if value == "none" and name != "device" else value


def _whole(name: str, value: object) -> object:
    """Replaces a whole float, such as 1e6, with an integer if the setting allows integers."""
    if not isinstance(value, float) or int not in settings_of(PPOConfig)[name].kinds:
        return value
    return int(value) if value.is_integer() else value


def _require_known(settings: Iterable[str]) -> None:
    known = {each.name for each in fields(PPOConfig)}
    if unknown := sorted(set(settings) - known):
        raise _unknown(unknown[0], sorted(known))


def _unknown(name: str, known: Collection[str]) -> UsageError:
    close = closest_setting(name, known)
    hint = f"did you mean {close}?" if close else f"the settings are {', '.join(known)}"
    if name in _ELSEWHERE:
        hint = _ELSEWHERE[name]
    return UsageError(f"there is no setting {name!r}; {hint}")


def closest_setting(name: str, known: Collection[str]) -> str:
    """The setting that a wrong name seems to mean, such as `net.memory` or `gamma`, or "".

    Initials, as in lr, and single words of a name count, too.
    """
    of_net = sorted({each.name for kind in NETS.values() for each in fields(kind)})
    if name in of_net:
        return f"net.{name}"
    own = name.rpartition(".")[2]
    ends = {each: each.rpartition(".")[2] for each in known}
    for meant in (
        [each for each, end in ends.items() if own == _initials(end)],
        [each for each, end in ends.items() if len(own) >= _LEAST_WORD and own in end],
    ):
        if len(meant) == 1:
            return meant[0]
    names = [*known, *(f"net.{each}" for each in of_net)]
    return next(iter(difflib.get_close_matches(name, names, n=1)), "")


def _initials(name: str) -> str:
    words = name.split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else ""
