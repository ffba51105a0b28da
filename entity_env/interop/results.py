"""Reads what `reset` and `step` of another library's environment return.

The importers use these functions, so each mistake of an environment has one error, which names the
method, the part, what it is, and what it must be.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game_traceback import add_note, is_a, notes_of
from entity_env.core.validation import is_number
from entity_env.errors import EntityEnvError, SchemaError, WorkerError, shown

RESET: Final = ("observation", "info")
STEP: Final = ("observation", "reward", "terminated", "truncated", "info")
INFO: Final = "info/"
"""Prefix of metrics from an info."""
_BY: Final = "raised by "
_NUMBERS: Final = (int, float, np.bool_, np.integer, np.floating)  # bool is an int
_OLD: Final = (
    "environments of the old gym API need a converter, such as GymV21CompatibilityV0 of the "
    "package shimmy"
)
_ONE_NUMBER: Final = (
    "make it one number in a wrapper, such as gymnasium.RewardWrapper, LinearReward of "
    "mo_gymnasium or LinearizeReward of momaland; or if it has a reward per agent, an environment "
    "of PettingZoo"
)


def call_reset(
    reset: Callable[..., object],
    env: Any,  # noqa: ANN401 - of any library
    call: str,
    **given: object,
) -> object:
    """`called(call, reset, **given)`; `SchemaError` if it does not take these arguments."""
    try:
        return called(call, reset, **given)
    except TypeError as error:
        own = type(env.unwrapped).reset
        try:
            inspect.signature(own).bind(env, **given)
        except TypeError:
            raise SchemaError(
                f"{call} must take the keyword arguments seed and options: {error}; {_OLD}"
            ) from error
        except ValueError:  # it has no signature
            pass
        raise


def called(
    call: str,
    method: Callable[..., Any],
    *args: Any,  # noqa: ANN401 - of the method
    **given: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 - of any library
    """`method(*args, **given)`, whose errors name the call; `WorkerError` for `sys.exit()`.

    Of calls within calls, the innermost is named.
    """
    try:
        return method(*args, **given)
    except BaseException as error:
        _name_error(error, call)
        raise


def _name_error(error: BaseException, call: str) -> None:
    if is_a(error, SystemExit):
        *_, (frame, line) = walk_tb(error.__traceback__)
        raise WorkerError(
            f"{call} called sys.exit({shown(error.code)}), which would end this program: leave it "
            f"out in {frame.f_code.co_filename}:{line}"
        ) from error
    is_named = any(note.startswith(_BY) for note in notes_of(error))
    if is_a(error, Exception) and not is_a(error, EntityEnvError) and not is_named:
        add_note(error, f"{_BY}{call}")


class ResultOf:
    """Context that names the call whose result has a `SchemaError`.

    Not a generator: errors name the last line outside of this package, which would be `contextlib`.
    """

    __slots__ = ("call",)

    def __init__(self, call: str) -> None:
        self.call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if error is not None and is_a(error, SchemaError):
            raise SchemaError(f"{self.call}: {error}") from None


def checked_reset(result: object, call: str) -> tuple[Any, Mapping[str, Any]]:
    """Observation and info.

    Args:
        call: the call for errors, such as "CartPole-v1: env.reset".

    Raises:
        SchemaError: any other result.
    """
    obs, info = parts_of(result, call, RESET)
    return obs, checked_info(info, call)


def checked_step(result: object, call: str) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Observation, reward, terminated, truncated and info; arguments as for `checked_reset`."""
    obs, reward, terminated, truncated, info = parts_of(result, call, STEP)
    # Every step of every environment is read here: do not call what has nothing to do.
    if type(reward) is not float:
        reward = checked_reward(reward, call)
    if terminated is not True and terminated is not False:
        terminated = checked_flag(terminated, call, "terminated")
    if truncated is not True and truncated is not False:
        truncated = checked_flag(truncated, call, "truncated")
    if type(info) is not dict:
        info = checked_info(info, call)
    return obs, reward, terminated, truncated, info


def checked_batch_step(
    result: object, call: str, num_envs: int
) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], Mapping[str, Any]]:
    """`checked_step` for a vector environment: arrays of one reward and two flags per env."""
    obs, *given, info = parts_of(result, call, STEP)
    arrays = []
    for name, value in zip(STEP[1:-1], given, strict=True):
        wanted = "biuf" if name == "reward" else "b"
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):  # on another device, or ragged
            array = np.array(None)
        if array.dtype.kind not in wanted or array.shape not in ((num_envs,), (num_envs, 1)):
            one = "one number" if name == "reward" else "True or False"
            got = f"{array.dtype} of the shape {array.shape}"
            cure = _ONE_NUMBER if name == "reward" else "convert it to bools"
            raise SchemaError(
                f"the {name} of {call} must be {one} for each of {num_envs} environments, got "
                f"{got}: {cure}"
            )
        arrays.append(array.reshape(num_envs))
    return obs, arrays[0], arrays[1], arrays[2], checked_info(info, call)


def parts_of(result: object, call: str, wanted: Sequence[str]) -> Sequence[Any]:
    """The parts of a result that must have this many."""
    if isinstance(result, tuple | list) and len(result) == len(wanted):
        return result
    is_tuple = isinstance(result, tuple)
    got = f"{len(result)} results" if is_tuple else _kind(result)  # type: ignore[arg-type]  # a tuple
    raise SchemaError(f"{call} must return ({', '.join(wanted)}), got {got}: {_OLD}")


def checked_reward(value: object, call: str, what: str = "reward") -> float:
    """A reward as a float; it may be an array or list of one number."""
    if type(value) is float:
        return value
    one = value
    shape = getattr(value, "shape", ())
    if isinstance(value, list | tuple) and len(value) == 1:
        one = value[0]
    elif shape and all(size == 1 for size in shape):
        one = value.reshape(-1)[0]  # type: ignore[attr-defined]  # an array of some library
    if is_number(one):
        return float(one)  # type: ignore[arg-type]  # a number
    raise SchemaError(f"the {what} of {call} must be one number, got {_kind(value)}: {_ONE_NUMBER}")


def checked_flag(value: object, call: str, what: str) -> bool:
    """A flag as a bool; it may be an array of one bool."""
    if value is True or value is False:
        return value
    try:
        flag = np.asarray(value)
    except (TypeError, ValueError):  # on another device, or ragged
        flag = np.array(None)
    if flag.dtype == np.bool_ and flag.size == 1:
        return bool(flag.reshape(-1)[0])
    raise SchemaError(
        f"{what} of {call} must be True or False, got {_kind(value)}: convert it with bool"
    )


def checked_info(value: object, call: str, what: str = "info") -> Mapping[str, Any]:
    """An info, which must be a dict."""
    if isinstance(value, Mapping):
        return value
    raise SchemaError(
        f"the {what} of {call} must be a dict, got {_kind(value)}: return {{}} if it is empty"
    )


def metrics_of(info: Mapping[Any, object]) -> dict[str, float]:
    """Finite numbers of an info as metrics, without nested infos and arrays."""
    found = {f"{INFO}{name}": number_or_nan(value) for name, value in info.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def number_or_nan(value: object) -> float:
    """A number as a float; NaN for anything else."""
    is_array = type(value) is np.ndarray and value.shape == () and value.dtype.kind in "biuf"
    try:
        return float(value) if is_array or isinstance(value, _NUMBERS) else math.nan  # type: ignore[arg-type]  # a number
    except OverflowError:  # an int larger than any float
        return math.nan


def parts_by_agent(result: object, call: str, wanted: Sequence[str]) -> Sequence[Mapping[Any, Any]]:
    """`parts_of` for a parallel environment of PettingZoo: each part is a dict by agent."""
    parts = parts_of(result, call, [f"{part}s" for part in wanted])
    for part, name in zip(parts, wanted, strict=True):
        if not isinstance(part, Mapping):
            raise SchemaError(f"the {name}s of {call} must be a dict by agent, got {_kind(part)}")
    return parts


def result_of_agent(
    step: Sequence[Mapping[Any, Any]], agent: str, call: str
) -> tuple[float, bool, bool]:
    """Reward, terminated and truncated of an agent, 0 and False where it is missing."""
    rewards, terminated, truncated = step
    return (
        checked_reward(rewards.get(agent, 0.0), call, f"reward of {agent!r}"),
        checked_flag(terminated.get(agent, False), call, f"terminated of {agent!r}"),
        checked_flag(truncated.get(agent, False), call, f"truncated of {agent!r}"),
    )


def info_of(infos: Mapping[Any, Any], agent: str, call: str) -> Mapping[str, Any]:
    """Info of an agent, empty if it is missing."""
    return checked_info(infos.get(agent, {}), call, f"info of {agent!r}")


def value_of_agent(obs: Mapping[Any, Any], agent: str, call: str) -> Any:  # noqa: ANN401
    """Observation of an agent in `env.agents`, which must be there."""
    if agent in obs:
        return obs[agent]
    raise SchemaError(
        f"the observations of {call} lack {agent!r}, which is in env.agents: they are of "
        f"{', '.join(map(repr, obs)) or 'no agent'}"
    )


def _kind(value: object) -> str:
    """A value and its type, in one line."""
    return f"{' '.join(shown(value).split())} ({type(value).__name__})"
