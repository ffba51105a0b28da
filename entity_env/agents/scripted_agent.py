"""`ScriptedAgent`, the base class of bots; `Bot` and `load_bot`, which create and load bots."""

from __future__ import annotations

import inspect
import os
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from itertools import compress
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, Final, TypeAlias

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.action_type import (
    ActionKey,
    ActionType,
    Categorical,
    Composite,
    Continuous,
    GlobalCategorical,
    GlobalComposite,
    SelectEntity,
    action_type,
)
from entity_env.authoring.agent import Agent
from entity_env.authoring.game_traceback import no_exits, summary_of
from entity_env.authoring.load_module import load_module, nearest, split_file_name
from entity_env.authoring.obs import Obs, answers_to, has_targets, is_same, num_actors
from entity_env.core.action_request import choose_in_order, require_in_bounds
from entity_env.core.masks import shape_of
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.core.validation import is_number, parameters_of
from entity_env.errors import AnswerError, EntityEnvError, ProtocolError, SchemaError, UsageError
from entity_env.lazy_imports import is_array

BotSource: TypeAlias = "type | Callable[..., object]"
"""A class with a method `choose` or `act`, or a function `bot(obs, *actions)`."""

_METHODS: Final = ("choose", "act")
_MAX_SHOWN: Final = 12


class ScriptedAgent(PolicyAgent):
    """Base class of bots: `choose` gets the game's own objects and answers with them.

    The answers are checked, and converted to actions for watchers and replays. Subclasses need not
    call `super().__init__()`.

    Example:
        >>> from entity_env.agents import RandomAgent, ScriptedAgent
        >>> from entity_env.games import tic_tac_toe
        >>> class FirstFree(ScriptedAgent):
        ...     def choose(self, obs, *actions):
        ...         return obs.allowed(actions[0])[0]
        >>> mine, theirs = tic_tac_toe.run(FirstFree(), RandomAgent(seed=2))
    """

    _takes_plain = True

    def __new__(cls, *args: object, **options: object) -> ScriptedAgent:
        agent = super().__new__(cls)
        PolicyAgent.__init__(agent)
        return agent

    def __init__(self) -> None:
        """Does nothing."""

    @abstractmethod
    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        """Answers an observation.

        Args:
            obs: the observation that the game passed to `act`, with the game's own objects,
                including those hidden from policies. `obs.of_class(Food)` lists entities,
                `obs.actors_of(action)` actors, and `obs.allowed(action)` allowed choices; `score`
                and `global_features` are attributes. Do not modify these objects.
            actions: the actions that the game passed to `act`.

        Returns:
            For an Enum, a member; for `Categorical`, a list with one member per actor; for
            `SelectEntity`, a list with one observed entity per actor, None for an actor without a
            target; for `Continuous`, `(num_actors, num_labels)` numbers, or `(num_labels,)` for a
            single actor. For several actions, a tuple with one such value per action.
        """

    def begin_episode(self) -> None:
        """Called before the first `choose` of every episode; does nothing by default."""

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        raise ProtocolError(f"{self.label} needs the Obs of a game: call act instead of decide")

    def answer(self, obs: Obs, *actions: ActionKey) -> object:
        """Like `act`, but skips statistics, limits and watchers. Call `join` first.

        Raises:
            AnswerError: the answer does not fit the requested actions.
        """
        kinds = self._run.kinds(actions)
        return answers_to(kinds, obs, self._chosen(obs, actions, kinds))

    @property
    def label(self) -> str:
        """File and class name, for messages."""
        return source_label(type(self))

    def _decided(
        self, observation: Observation, obs: Obs, actions: tuple[ActionKey, ...]
    ) -> Mapping[ActionName, Action]:
        if not self._run.num_steps:
            self.begin_episode()
        kinds = self._run.kinds(actions)
        values = self._chosen(obs, actions, kinds)
        return choose_in_order(self.questions(observation), lambda asked: values[asked.name])

    def _chosen(
        self, obs: Obs, actions: tuple[ActionKey, ...], kinds: Sequence[ActionType[Any]]
    ) -> dict[ActionName, list[Any]]:
        """The values of every element, as in `VecActions`."""
        answer = self.choose(obs, *actions)
        answers = [answer] if len(actions) == 1 else answer
        wholes = list(map(action_type, actions))
        if not isinstance(answers, list | tuple) or len(answers) != len(wholes):
            names = ", ".join(whole.name for whole in wholes)
            raise AnswerError(
                f"{self.label} answered {_text(answer)}, expected a tuple of {len(wholes)} "
                f"answers, one each for {names}"
            )
        chosen: list[list[Any]] = []
        for whole, each in zip(wholes, answers, strict=True):
            try:
                chosen += _parts_of(whole, obs, each)
            except SchemaError as error:
                raise AnswerError(
                    f"{self.label} answered {_text(each)} to the action {whole.name!r}: {error}"
                ) from None
        return {kind.name: values for kind, values in zip(kinds, chosen, strict=True)}


# ------------------------------------------------------------------ answers as values


def _parts_of(kind: ActionType[Any], obs: Obs, answer: object) -> list[list[Any]]:
    """The values of every element of an action."""
    if not isinstance(kind, Composite | GlobalComposite):
        return [_values(kind, obs, answer)]
    decisions: Any = [answer] if kind.is_global else answer
    asked = has_targets(kind.elements[0], obs)
    count = 1 if kind.is_global else num_actors(kind.elements[0], obs)
    asked = [True] * count if asked is None else asked
    if not isinstance(decisions, list | tuple) or len(decisions) != count:
        raise SchemaError(f"expected a list of {count}, one {kind.cls.__name__} per actor")
    for each, is_asked in zip(decisions, asked, strict=True):
        if not isinstance(each, kind.cls if is_asked else NoneType):
            wanted = f"a {kind.cls.__name__}" if is_asked else "None, for an actor without a target"
            raise SchemaError(f"expected {wanted}, got {_text(each)}")
    parts = []
    before: Any = None
    for field, part in kind.parts.items():
        given = [None if each is None else getattr(each, field) for each in decisions]
        if isinstance(part, Continuous):
            given = [[each] for each in given if each is not None]
            parts.append(_numbers(part, len(given), given))
            continue
        allowed = obs.allowed(part, after=before)
        rows = [allowed] if kind.is_global else allowed
        before = given[0] if kind.is_global else given
        mine = list(compress(zip(given, rows, strict=True), asked))
        where = f"{field}: " if kind.is_global else f"{field}, actor {{}}: "
        if isinstance(part, SelectEntity):
            find = partial(_position, part, actees=obs.of_class(part.actee))
            parts.append([find(*each, where.format(i)) for i, each in enumerate(mine)])
        elif isinstance(part, Categorical | GlobalCategorical):
            parts.append([_index(part, *each, where.format(i)) for i, each in enumerate(mine)])
    return parts


def _values(kind: ActionType[Any], obs: Obs, answer: object) -> list[Any]:
    """An answer as values of `VecActions`; the inverse of `answers_to`."""
    if isinstance(kind, GlobalCategorical):
        return [_index(kind, answer, obs.allowed(kind), "")]
    count = num_actors(kind, obs)
    if isinstance(kind, Continuous):
        return _numbers(kind, count, answer)
    if not isinstance(answer, list | tuple) or len(answer) != count:
        what = "entity" if isinstance(kind, SelectEntity) else "choice"
        raise SchemaError(f"expected a list of {count}, one {what} per actor")
    rows = enumerate(zip(answer, obs.allowed(kind), strict=True))
    if isinstance(kind, Categorical):
        return [_index(kind, each, allowed, f"actor {i}: ") for i, (each, allowed) in rows]
    if not isinstance(kind, SelectEntity):
        raise SchemaError(f"{type(kind).__name__} is an action that bots cannot answer")
    actees = obs.of_class(kind.actee)
    found = [_position(kind, each, allowed, f"actor {i}: ", actees) for i, (each, allowed) in rows]
    return [position for position in found if position is not None]


def _index(
    kind: GlobalCategorical[Any] | Categorical[Any], answer: object, allowed: list[Any], actor: str
) -> int:
    cls, given = type(kind.choices[0]), type(answer)
    if given is not cls:
        if given.__name__ == cls.__name__:
            raise SchemaError(
                f"{actor}expected the game's {cls.__module__}.{cls.__name__}, got a different "
                f"class with that name, {given.__module__}.{given.__name__}"
            )
        raise SchemaError(f"{actor}expected a {cls.__name__}, one of {_list(allowed)}")
    if not any(_is_choice(each, answer) for each in allowed):
        raise SchemaError(f"{actor}its mask forbids {_text(answer)}, allowed are {_list(allowed)}")
    return next(i for i, each in enumerate(kind.choices) if _is_choice(each, answer))


def _is_choice(choice: Any, answer: object) -> bool:  # noqa: ANN401 - a member, or a combination
    """Whether an answer is this choice, whatever `==` of its class says."""
    if choice is answer or isinstance(choice, Enum) or not is_dataclass(choice):
        return choice is answer
    return all(getattr(choice, part.name) is getattr(answer, part.name) for part in fields(choice))


def _position(
    kind: SelectEntity[Any], answer: object, allowed: list[Any], where: str, actees: list[Any]
) -> int | None:
    """Index of a selected entity among `actees`; None for an actor without a target."""
    if answer is None and not allowed:
        return None
    cls = kind.actee.__name__
    for i, actee in enumerate(actees):
        if is_same(actee, answer):
            if any(is_same(each, answer) for each in allowed):
                return i
            break
    else:
        if not actees:
            raise SchemaError(f"{where}the observation has no {cls}: expected None")
        raise SchemaError(
            f"{where}{_text(answer)} is not among the {len(actees)} {cls} objects of the "
            f"observation; expected one of the objects in obs.of_class({cls}): {_list(allowed)}"
        )
    expected = f", allowed are {_list(allowed)}" if allowed else " and all others: expected None"
    raise SchemaError(f"{where}its mask forbids {_text(answer)}{expected}")


def _numbers(kind: Continuous, count: int, answer: object) -> list[Any]:
    width, shape = len(kind.space), shape_of(answer)
    flat = list(_leaves(answer))
    is_single = count == 1 and len(flat) == width
    if not (is_single or shape == (count, width) or not (count or flat)) or not all(
        map(is_number, flat)
    ):
        labels = ", ".join(kind.space.labels)
        raise SchemaError(f"expected numbers of shape ({count}, {width}): {labels} of each actor")
    numbers = list(map(float, flat))
    rows = [numbers[i * width : (i + 1) * width] for i in range(count)]
    require_in_bounds(kind.name, kind.space, rows)
    return [array("f", row).tolist() for row in rows]


def _leaves(answer: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever a bot gave
    """The values in an array, or in lists of lists, in order."""
    if is_array(answer):
        yield from answer.reshape(-1).tolist()
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from _leaves(each)
    else:
        yield answer


def _text(answer: object) -> str:
    if isinstance(answer, list | tuple):
        return f"[{_list(answer)}]"
    text = str(answer) if hasattr(answer, "name") else repr(answer)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _list(choices: Sequence[object]) -> str:
    more = f" and {len(choices) - _MAX_SHOWN} more" if len(choices) > _MAX_SHOWN else ""
    return ", ".join(map(_text, choices[:_MAX_SHOWN])) + more


# ------------------------------------------------------------------ bots of all kinds


class _Wrapped(ScriptedAgent):
    """A function, or an object with a method `choose` or `act`, as a bot."""

    def __init__(self, source: BotSource, bot: object, choose: Callable[..., object]) -> None:
        self._source = source
        self._bot = bot
        self._choose = choose

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        return self._choose(obs, *actions)

    def begin_episode(self) -> None:
        begin = getattr(self._bot, "begin_episode", None)
        if callable(begin):
            begin()

    @property
    def label(self) -> str:
        return source_label(self._source)


@dataclass(frozen=True)
class Bot:
    """Factory of a bot: calling it with a seed creates the bot for one game.

    Args:
        label: name for messages; default: file and name.

    Raises:
        UsageError: the source is not a bot.
    """

    source: BotSource
    label: str = ""

    def __post_init__(self) -> None:
        if not is_bot(self.source):
            raise UsageError(
                f"{self.label or source_label(self.source)} is not a bot: expected a subclass of "
                "entity_env.agents.ScriptedAgent with choose(self, obs, *actions), another class "
                "with choose or act, or a function (obs, *actions)"
            )

    @property
    def name(self) -> str:
        return self.source.__name__

    def __call__(self, seed: int) -> Agent:
        """Creates the bot; passes `seed=seed` if its constructor takes a seed.

        Raises:
            UsageError: the constructor raised an error other than an `EntityEnvError`, which
                propagates unchanged.
        """
        source = self.source
        if not isinstance(source, type):
            return _Wrapped(source, source, source)
        try:
            with no_exits(f"{source_label(source)}: its constructor"):
                made = source(seed=seed) if _takes_seed(source) else source()
        except EntityEnvError:
            raise
        except Exception as error:
            line = _line_in(error, source)
            raise UsageError(
                f"{source_label(source)}{line}: its constructor, called with "
                f"{'seed=...' if _takes_seed(source) else 'no arguments'}, raised "
                + summary_of(error)
            ) from error
        if isinstance(made, Agent):
            return made
        choose = next(getattr(made, name) for name in _METHODS if hasattr(made, name))
        return _Wrapped(source, made, choose)


def is_bot(value: object) -> bool:
    """True for functions, and for concrete classes with a method `choose` or `act`."""
    if isinstance(value, type):
        return not inspect.isabstract(value) and any(hasattr(value, name) for name in _METHODS)
    return inspect.isroutine(value)


def is_bot_file(name: str) -> bool:
    """True for `FILE.py` and `FILE.py:NAME`."""
    return split_file_name(name) is not None


def load_bot(name: str) -> Bot:
    """Loads the bot `FILE.py:NAME`, a class or function; without NAME, the file's only bot class.

    A file that is already imported is not executed again.

    Raises:
        UsageError: there is no such file; it has a syntax error; NAME is missing from it or is not
            a bot; or NAME is not given and the file does not define exactly one bot class. Other
            errors that the file raises propagate.
    """
    path, wanted = split_file_name(name) or (Path(name), None)
    try:
        path.is_file()
    except OSError as error:  # the name is too long, or the folder unreadable
        raise UsageError(f"no bot {name!r}: {error.strerror}") from error
    try:
        module = load_module(path)
    except SyntaxError as error:
        if error.filename != os.path.realpath(path):
            raise
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}") from error
    own = _bots_in(module)
    found = None if wanted is None else getattr(module, wanted, None)
    if found is not None:
        return Bot(found, name)
    there = f"it has {', '.join(own)}" if own else "it defines no bot class"
    if wanted is not None:
        raise UsageError(f"{path} has no bot {wanted!r}{nearest(wanted, own) or f'; {there}'}")
    if len(own) != 1:
        choices = ", ".join(f"{path}:{each}" for each in own)
        found = f"{len(own)} bots: choose one, {choices}" if own else "no class with choose or act"
        raise UsageError(f"{path} has {found}")
    return Bot(next(iter(own.values())))


def source_label(source: object) -> str:
    """File and name of a class or function, for messages: `bot.py:Greedy`."""
    name = getattr(source, "__name__", None) or type(source).__name__
    try:
        file = inspect.getsourcefile(source)  # type: ignore[arg-type]  # TypeError for others
    except (TypeError, OSError):
        file = None
    return name if file is None else f"{Path(file).name}:{name}"


def _bots_in(module: ModuleType) -> dict[str, Any]:
    """Bot classes that a file defines; without functions, because any function could be a bot."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and is_bot(value)
    }


def _takes_seed(source: type) -> bool:
    return "seed" in parameters_of(source)


def _line_in(error: Exception, source: type) -> str:
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == source.__module__:
            line = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return line
