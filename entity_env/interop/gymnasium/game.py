"""from_gymnasium: an environment as a game; ImportedGame: a game with another library's spaces."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

import gymnasium
from gymnasium import error

from entity_env.authoring.action_type import kind_of_space
from entity_env.authoring.agent import Agent
from entity_env.authoring.entity_type import class_of_features
from entity_env.authoring.game import Game
from entity_env.authoring.load_module import to_pickle
from entity_env.authoring.obs import Obs
from entity_env.core.spaces import (
    ActionName,
    EntityName,
    ObsSpace,
)
from entity_env.errors import EntityEnvError, UsageError, install_hint
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.masks import (
    IN_OBS,
    MaskPart,
    MaskReader,
    mask_method,
    outer_masks,
)
from entity_env.interop.gymnasium.spaces import (
    AnySpace,
    EntityParts,
    FeatureNames,
    ObsConverter,
    batched,
    parts_in,
)
from entity_env.interop.results import (
    ResultOf,
    call_reset,
    called,
    checked_reset,
    checked_step,
    metrics_of,
)

AnyEnv: TypeAlias = gymnasium.Env[Any, Any]
_NUM_SEEDS: Final = 2**31
"""Exclusive upper bound of seeds: some environments pass them to generators with this limit."""


class ImportedLoop:
    """`play` of an `ImportedGame`: makes an environment, plays it, and closes it if not shared.

    Args:
        make: a function that makes environments, or a `SharedEnv`.
        name: name of the game for errors, until the environment provides its own.
    """

    num_agents: int
    shown: Sequence[AgentSpaces]
    """Spaces of each kind of agent."""
    render_modes: Sequence[str]
    rules: type
    """Class of the environment: identifies the game."""
    respawns: bool = False
    """See `Game`."""

    def __init__(self, make: Callable[..., Any], name: str) -> None:
        self._make = make
        self.name = name
        self._env: Any = None

    def __call__(self, agents: Any, /, *, seed: int, **settings: object) -> None:  # noqa: ANN401
        self._env = env = called(f"making {self.name}", self._made, settings)
        try:
            self._play(env, agents, seed)
        finally:
            self._env = None
            called(f"{self.name}: env.close", self._release, env)

    def text(self, *_: object, **__: object) -> str | None:
        """The running environment as text; None if it does not render text, or none is running."""
        if self._env is None or getattr(self._env, "render_mode", None) != "ansi":
            return None
        frame = called(f"{self.name}: env.render", self._env.render)
        return frame if isinstance(frame, str) else None

    def _play(self, env: Any, agents: Any, seed: int) -> None:  # noqa: ANN401
        raise NotImplementedError

    def _made(self, settings: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Makes an environment; `UsageError` if that fails with settings."""
        try:
            return self._make(**settings)
        except (EntityEnvError, ImportError):
            raise
        except Exception as failed:
            if not settings:
                raise
            given = ", ".join(f"{key}={value!r:.60}" for key, value in settings.items())
            raise UsageError(f"{self.name} cannot be made with {given}: {failed!r}") from failed

    def _release(self, env: Any) -> None:  # noqa: ANN401
        if isinstance(self._make, SharedEnv):
            self._make.release()
        else:
            env.close()


class ImportedGame(Game):
    """Game whose observation and action spaces are not declared by classes.

    `with_settings` takes any names. Strings are parsed as Python literals where possible.

    Args:
        load: returns the loop for given settings.
        settings: keyword arguments of the function that makes the environment.
    """

    def __init__(
        self, load: Callable[[Mapping[str, object]], ImportedLoop], settings: Mapping[str, object]
    ) -> None:
        self._load = load
        loop: ImportedLoop = called("making the environment", load, settings)
        shown = loop.shown
        super().__init__(
            loop,
            entities=[cls for each in shown for cls in each.classes.values()],
            actions=[kind for each in shown for kind in each.kinds],
            num_agents=loop.num_agents,
            respawns=loop.respawns,
            name=loop.name,
        )
        self.settings = dict(settings)
        entities = {k: e for each in shown for k, e in each.obs_space.entities.items()}
        if len(shown) > 1:  # no observation has all agents' entities
            entities = {k: dataclasses.replace(e, is_single=False) for k, e in entities.items()}
        self._obs_space = ObsSpace(entities=entities)

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def __reduce__(self) -> tuple[type[ImportedGame], tuple[object, ...], dict[str, object]]:
        # A worker generates the classes again: a pickled copy of such a dataclass has no fields.
        return ImportedGame, (self._load, self.settings), {"transport": self.transport}

    def open_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """All settings: they are passed to another library."""
        return dict(settings)

    def with_settings(self, /, **settings: object) -> ImportedGame:
        """The game with other settings; its spaces may differ."""
        if not settings:
            return self
        parsed = {name: literal(value) for name, value in settings.items()}
        game = ImportedGame(self._load, {**self.settings, **parsed})
        game.transport = self.transport
        return game


def literal(value: object) -> object:
    """Value of a Python literal in a string, such as `8`, `False` or `[1, 2]`; else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return value


class ImportedObs(Obs):
    """Observation of an environment whose score is 0 at the reset.

    Its rewards before an agent's first action belong to the agent, too.
    """

    __slots__ = ("odd_values",)
    start = 0.0

    odd_values: Callable[[], Iterable[str]]
    """Sentences for `check` about values that agents do not see as they are."""


class AgentSpaces:
    """Spaces of one kind of agent, as classes and actions of a game.

    Args:
        entity, action, entities, features: as for `GymnasiumVecEnv`.
        env: the environment; see `MaskReader`.
    """

    def __init__(
        self,
        obs_space: AnySpace,
        action_space: AnySpace,
        *,
        entity: EntityName,
        action: ActionName,
        entities: EntityParts | None,
        features: FeatureNames | None,
        env: object = None,
    ) -> None:
        self.actions = ActionConverter(action_space, action)
        self._masks = MaskReader(self.actions, env)
        self._mask_part = MaskPart(obs_space, self._masks, parts_in(entities))
        self._converter = ObsConverter(
            self._mask_part.space, entity, entities, features, has_actor=self.actions.has_numbers
        )
        self.obs_space = self._converter.obs_space
        self.classes = {
            name: class_of_features(name, each.features)
            for name, each in self.obs_space.entities.items()
        }
        self.kinds = [kind_of_space(name, space) for name, space in self.actions.spaces.items()]

    def show(self, obs: object, score: float, masks: Mapping[str, object], call: str) -> Obs:
        """Converts an observation of the environment, and its masks.

        Args:
            masks: by their places, see `outer_masks`; the observation may contain another one.
            call: the call that returned them, for errors.

        Raises:
            SchemaError: an observation or a mask does not fit its space.
        """
        with ResultOf(call):
            return self._show(obs, score, masks)

    def _show(
        self, obs: object, score: float, masks: Mapping[str, object], *, may_block: bool = False
    ) -> Obs:
        obs, mask = self._mask_part.split_one(obs)
        shown = self._converted(obs, score)
        flags = self._masks.read_all({**masks, IN_OBS: mask}, may_block=may_block)
        if flags is not None:
            for kind in self.kinds:
                if kind.name in self._masks.places:
                    shown.mask(kind, flags[self._masks.places[kind.name]])
        return shown

    def show_last(
        self, obs: object, score: float, masks: Mapping[str, object], call: str, *, truncated: bool
    ) -> Obs:
        """`show` for the last observation of an episode: if it is truncated, its masks may allow
        nothing, else they do not matter."""
        with ResultOf(call):
            if truncated:
                return self._show(obs, score, masks, may_block=True)
            return self._converted(self._mask_part.split_one(obs)[0], score)

    def _converted(self, obs: object, score: float) -> ImportedObs:
        rows = self._converter.rows(batched(self._converter.space, [obs]), 1)
        shown = ImportedObs(score)
        shown.odd_values = partial(self._converter.odd_values, obs)
        for name, table in rows.items():
            is_actor = name == self._converter.single and self.actions.has_numbers
            (shown.actors if is_actor else shown.entities)(table.values, of=self.classes[name])
        return shown

    def action(self, answer: Any) -> Any:  # noqa: ANN401 - of act, and of the action space
        answers = (answer,) if len(self.kinds) == 1 else answer
        return self.actions.one(
            {
                kind.name: each.value if isinstance(each, Enum) else each[0]
                for kind, each in zip(self.kinds, answers, strict=True)
            }
        )


class SharedEnv:
    """Callable that always returns the same environment.

    Raises `UsageError` while a game plays the environment, or if called with settings.
    """

    def __init__(self, env: Any) -> None:  # noqa: ANN401 - of Gymnasium or PettingZoo
        self._env = env
        self._is_used = False

    def __call__(self, **settings: object) -> Any:  # noqa: ANN401
        if settings:
            raise UsageError(
                f"{self._env} exists already and takes no setting {next(iter(settings))!r}: pass a "
                "function that makes environments"
            )
        if self._is_used:
            raise UsageError(
                f"{self._env} is one environment, and is being played: for many copies pass a "
                "function that makes them"
            )
        self._is_used = True
        return self._env

    def release(self) -> None:
        """Ends the use of the environment; the caller closes it."""
        self._is_used = False


def env_seed(seed: int) -> int:
    """Seed of an episode, in the range that all environments accept."""
    return seed % _NUM_SEEDS


class _GymnasiumLoop(ImportedLoop):
    num_agents = 1

    def __init__(
        self,
        make: Callable[..., AnyEnv],
        options: Mapping[str, Any],
        name: str | None,
        settings: Mapping[str, object],
    ) -> None:
        super().__init__(make, name or "from_gymnasium")
        env = self._made(settings)
        try:
            if not isinstance(env, gymnasium.Env):
                raise UsageError(
                    f"from_gymnasium needs a gymnasium.Env, its id, or a function that makes one: "
                    f"got {env!r:.80}"
                )
            self.name, self.rules = name or _name_of(env), type(env.unwrapped)
            self.render_modes: Sequence[str] = env.metadata.get("render_modes") or ()
            given = env.observation_space, env.action_space
            self._spaces = AgentSpaces(*given, **options, env=env)
            mask_method(env, self.name)  # raises if it takes arguments
        finally:
            if isinstance(env, gymnasium.Env):
                self._release(env)
        self.shown: Sequence[AgentSpaces] = [self._spaces]

    def _play(self, env: AnyEnv, agents: Agent, seed: int) -> None:
        while self._episode(env, agents, seed):
            seed = agents.seed

    def _episode(self, env: AnyEnv, agent: Agent, seed: int) -> bool:
        """Plays an episode; False if the game is being closed."""
        own, score, metrics = self._spaces, 0.0, None
        method = mask_method(env, self.name)
        call = f"{self.name}: env.reset"
        obs, info = checked_reset(call_reset(env.reset, env, call, seed=env_seed(seed)), call)
        in_step = f"{self.name}: env.step"
        while True:
            shown = own.show(obs, score, outer_masks(info, method), call)
            shown.metrics = metrics
            answer = agent.act(shown, *own.kinds)
            if answer is None:
                return False
            call = in_step
            step = checked_step(called(call, env.step, own.action(answer)), call)
            obs, reward, terminated, truncated, info = step
            score, metrics = score + reward, metrics_of(info) or None
            if terminated or truncated:
                masks = {} if terminated else outer_masks(info, method)
                shown = own.show_last(obs, score, masks, call, truncated=not terminated)
                shown.metrics = metrics
                agent.game_over(shown, truncated=not terminated)
                return True


def _name_of(env: AnyEnv) -> str:
    return type(env.unwrapped).__name__ if env.spec is None else env.spec.id


def from_gymnasium(
    source: AnyEnv | Callable[..., AnyEnv] | str,
    *,
    entity: EntityName = "Env",
    action: ActionName = "Action",
    entities: EntityParts | None = None,
    features: FeatureNames | None = None,
    name: str | None = None,
    **settings: object,
) -> ImportedGame:
    """Converts a Gymnasium environment to a `Game`, to play, train in a `VecEnv` and evaluate::

        game = from_gymnasium("FrozenLake-v1", is_slippery=False)
        with VecEnv(game, 64, num_workers=2) as vec:
            train(vec, PPOConfig.for_env(vec))

    Observations, actions, masks and metrics match a `GymnasiumVecEnv`, so agents of one play the
    other. Seeds are `Episode.seed` modulo 2**31. For vector environments, use `GymnasiumVecEnv`.

    Args:
        source: an id for `gymnasium.make`, a function that makes an environment, or an environment,
            which only one game can play at a time and the caller must close.
        entity, action, entities, features: as for `GymnasiumVecEnv`.
        name: name of the game; default: the id of the environment, or the name of its class.
        settings: keyword arguments of `gymnasium.make` or of the function.

    Raises:
        UsageError: an unknown id or setting, or a space that cannot be converted.
    """
    options = {"entity": entity, "action": action, "entities": entities, "features": features}
    make: Callable[..., AnyEnv]
    if isinstance(source, str):
        make = partial(_make_by_id, source)
        name = name or source.rpartition(":")[2]
    else:
        make = SharedEnv(source) if isinstance(source, gymnasium.Env) else source
    if not callable(make):
        raise UsageError(
            f"from_gymnasium needs a gymnasium.Env, its id, or a function that makes one: got "
            f"{source!r:.80}"
        )
    make = make if isinstance(make, SharedEnv) else WithRegistry(make)
    return ImportedGame(partial(_GymnasiumLoop, make, options, name), settings)


class WithRegistry:
    """A function that makes environments, pickled with the environments that it may make by id.

    A worker imports neither the file of a game nor the script that registered them.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, /, *args: object, **settings: object) -> Any:  # noqa: ANN401 - as `make`
        return self._make(*args, **settings)

    def __reduce__(self) -> tuple[Callable[..., WithRegistry], tuple[object, ...]]:
        specs = []
        for spec in gymnasium.registry.values():
            module = str(spec.entry_point).partition(":")[0]
            if not module.startswith("gymnasium."):
                # Objects that cannot be pickled cannot be made in another process.
                with suppress(Exception):
                    specs.append((module if module in sys.modules else "", to_pickle(spec)))
        return _registered_again, (specs, self._make)


def _registered_again(specs: Sequence[tuple[str, bytes]], make: Callable[..., Any]) -> WithRegistry:
    for module, data in specs:
        with suppress(ImportError):  # it may register the environment itself
            if module:
                import_module(module)
        spec = pickle.loads(data)  # noqa: S301 - from our own process
        gymnasium.registry.setdefault(spec.id, spec)
    return WithRegistry(make)


def _make_by_id(env_id: str, /, **settings: Any) -> AnyEnv:  # noqa: ANN401
    try:
        return gymnasium.make(env_id, **settings)
    except ModuleNotFoundError as failed:  # of an id MODULE:NAME, or the environment's own import
        hint = install_hint(failed, env_id)
        raise UsageError(f"no environment {env_id!r}: {failed}{hint}") from failed
    except error.Error as failed:
        is_near = "did you mean" in str(failed).lower() or ":" in env_id
        is_unknown = isinstance(failed, error.NameNotFound | error.NamespaceNotFound)
        where = f" If a package registers it, name its module: MODULE:{env_id}"
        hint = where if is_unknown and not is_near else ""
        raise UsageError(f"no environment {env_id!r}: {failed}{hint}") from failed
