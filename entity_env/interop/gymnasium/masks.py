"""Action masks of Gymnasium and PettingZoo environments, in every form that these libraries use.

A mask comes in `info["action_mask"]`, as a part `action_mask` of a `Dict` observation, or from a
method `action_masks()`. If there are several, an action is legal if all of them allow it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.core.masks import as_mask
from entity_env.core.spaces import ActionName, GlobalCategoricalActionSpace
from entity_env.errors import SchemaError, UsageError, shown
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.spaces import AnySpace, Leaf, fitted, value_of
from entity_env.interop.results import called

Flags = NDArray[np.bool_]

MASK: Final = "action_mask"
"""Name of a mask in an info, and of the part of an observation that is a mask."""
METHOD: Final = "action_masks"
BY_METHOD: Final = f"{METHOD}()"
_OBSERVATION: Final = "observation"
IN_INFO: Final = f"info[{MASK!r}]"
IN_OBS: Final = f"the part {MASK!r} of the observation"
_FREE: Final = 2
"""In a mask of Gymnasium for a `MultiBinary`: either value is allowed."""


class MaskReader:
    """Reads masks of an action space as flags: one per choice, of all actions one after another.

    A mask has the form that `sample(mask)` of the space takes: an array for a `Discrete`, a tuple
    of arrays for a `MultiDiscrete`, and a dict or tuple of masks for a `Dict` or `Tuple`, where
    None allows everything. A mask may also be flat, one flag per choice of all actions, as in
    sb3-contrib. The flags of one action, or of all, may be a single row, `(1, num_choices)`.

    Args:
        env: the environment. If it has `has_blank_masks`, as those of this package, a mask without
            any legal choice means that no action is needed.
    """

    def __init__(self, actions: ActionConverter, env: object = None) -> None:
        self._actions = actions
        self.has_blanks = bool(getattr(getattr(env, "unwrapped", env), "has_blank_masks", False))
        self.num_flags = 0
        self.places: dict[ActionName, slice] = {}
        """Place of every action with choices in the flags."""
        for name, space in actions.spaces.items():
            if isinstance(space, GlobalCategoricalActionSpace):
                first = self.num_flags
                self.places[name] = slice(first, first + len(space))
                self.num_flags = first + len(space)

    def read(self, mask: object, where: str) -> Flags:
        """`(num_flags,)` flags of a mask.

        Args:
            where: the mask for errors, such as `info['action_mask']`.

        Raises:
            SchemaError: it does not fit the action space.
        """
        flags = np.ones(self.num_flags, dtype=np.bool_)
        try:
            is_flat = isinstance(mask, np.ndarray) and _is_row(mask, self.num_flags)
            if is_flat and len(self.places) > 1:
                [flags] = self._flat(mask.reshape(1, -1))  # type: ignore[attr-defined]  # an array
            else:
                for leaf, part in _parts(self._actions.space, mask):
                    self._read_leaf(flags, leaf, part)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from None
        return flags

    def read_batch(self, masks: object, rows: Flags, where: str) -> tuple[Flags, Flags]:
        """Flags of a batch of masks, `(num_envs, num_flags)`, and the rows that have a mask.

        Args:
            masks: the mask of each row: in an array, in a dict of Gymnasium's vector environments
                (`name` and `_name`), or of the batched action space.
            rows: `(num_envs,)` bool: the rows to read.
        """
        count = len(rows)
        flags = np.ones((count, self.num_flags), dtype=np.bool_)
        given = rows.copy()
        array = masks if isinstance(masks, np.ndarray) else None
        if array is not None and array.shape == flags.shape:
            try:
                flags[rows] = self._flat(array[rows])
            except SchemaError as error:
                raise SchemaError(f"{where}: {error}") from None
            return flags, given
        for i in np.flatnonzero(rows).tolist():
            mask = _row_of(masks, i, count)
            given[i] = mask is not None
            flags[i] = self.read(mask, f"{where} of env {i}")
        return flags, given

    def read_all(self, masks: Mapping[str, object], *, may_block: bool = False) -> Flags | None:
        """Flags of the choices that all masks allow; None without a mask.

        Args:
            masks: by their places, for errors; None = there is none.
            may_block: accept an action without a legal choice: it allows all.

        Raises:
            SchemaError: a mask does not fit the action space, or nothing is allowed.
        """
        given = {where: mask for where, mask in masks.items() if mask is not None}
        if not given:
            return None
        if len(given) == 1 and (common := self._common(*given.values())) is not None:
            return common
        read = [self.read(mask, where) for where, mask in given.items()]
        flags: Flags = np.logical_and.reduce(read)
        if may_block or self.has_blanks:
            return self.allow_blank(flags)
        self.require_choice(flags[None], lambda _: " and ".join(given))
        return flags

    def require_choice(self, flags: Flags, where: Callable[[int], str]) -> None:
        """Raises `SchemaError` if a row of `(num_rows, num_flags)` has an action without a choice.

        `where` names the mask of a row.
        """
        for name, place in self.places.items():
            blocked = np.flatnonzero(~flags[:, place].any(axis=1))
            if len(blocked):
                raise SchemaError(
                    f"{where(int(blocked[0]))} allows nothing for action {name!r}: allow at least "
                    "one choice, or end the episode"
                )

    def allow_blank(self, flags: Flags) -> Flags:
        """`(..., num_flags)` flags, where an action without a legal choice allows all."""
        for place in self.places.values():
            flags[..., place] |= ~flags[..., place].any(axis=-1, keepdims=True)
        return flags

    def _common(self, mask: object) -> Flags | None:
        """Flags of a valid mask in the most common form, an array for one action; else None.

        Nearly every step with a mask is read here, in a tenth of the time of `read`.
        """
        if type(mask) is not np.ndarray or mask.shape != (self.num_flags,) or len(self.places) > 1:
            return None
        flags: Flags = mask == 1
        num_allowed = np.count_nonzero(flags)
        return flags if num_allowed and num_allowed == np.count_nonzero(mask) else None

    def _flat(self, masks: NDArray[Any]) -> Flags:
        """Checks `(num_rows, num_flags)` flags."""
        return as_mask(masks, masks.shape, self._actions.name, may_block=True)

    def _read_leaf(self, flags: Flags, leaf: Leaf, mask: object) -> None:
        names = [name for name in self._actions.names_of(leaf) if name in self.places]
        if mask is None:
            return
        if not names:
            raise SchemaError(f"a {leaf.space} has no mask, got {shown(mask)}: expected None")
        sizes = [self.places[name].stop - self.places[name].start for name in names]
        shape = leaf.space.shape or ()
        parts = _split(mask, shape, sizes, is_binary=isinstance(leaf.space, spaces.MultiBinary))
        for name, size, part in zip(names, sizes, parts, strict=True):
            if part is not None:
                [flags[self.places[name]]] = as_mask(
                    part, (1, size), name, may_block=True, is_global=True
                )


def _parts(space: AnySpace, mask: object, path: str = "") -> list[tuple[Leaf, object]]:
    """The leaves of an action space, each with its mask."""
    found: list[tuple[Leaf, object]] = []

    def add(space: AnySpace, mask: object, keys: tuple[Any, ...]) -> None:
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            found.append((Leaf(space, keys), mask))
            return
        inner = dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space))
        if mask is None:
            masks: Mapping[Any, object] = {}
        elif isinstance(space, spaces.Dict):
            if not isinstance(mask, Mapping) or not set(mask) <= set(inner):
                got = f"the keys {list(mask)}" if isinstance(mask, Mapping) else shown(mask)
                raise SchemaError(
                    f"the mask of a Dict needs the keys {', '.join(map(repr, inner))}, each with "
                    f"a mask or None: got {got}"
                )
            masks = mask
        else:
            if not isinstance(mask, tuple | list) or len(mask) != len(inner):
                raise SchemaError(
                    f"the mask of a Tuple needs a tuple of {len(inner)} masks or None: got "
                    f"{shown(mask)}"
                )
            masks = dict(enumerate(mask))
        for key, part in inner.items():
            add(part, masks.get(key), (*keys, key))

    add(space, mask, ())
    return found


def _split(
    mask: object, shape: tuple[int, ...], sizes: Sequence[int], *, is_binary: bool
) -> Sequence[object]:
    """The masks of the choices of a space of this shape, in order."""
    if not shape:
        return [mask]
    try:
        array = np.asarray(mask)
    except ValueError:  # arrays of different lengths
        array = np.array(None)
    if array.dtype.kind in "biuf":
        if is_binary and array.shape == shape:
            return [_binary(value) for value in array.ravel().tolist()]
        is_table = len({*sizes}) == 1 and array.shape == (*shape, sizes[0])
        if is_table or _is_row(array, sum(sizes)):
            return np.split(array.ravel(), np.cumsum(sizes)[:-1])
    elif isinstance(mask, tuple | list) and len(mask) == shape[0]:
        count = math.prod(shape[1:])
        return [
            each
            for i, part in enumerate(mask)
            for each in (
                [None] * count
                if part is None
                else _split(
                    part, shape[1:], sizes[i * count : (i + 1) * count], is_binary=is_binary
                )
            )
        ]
    got = f"the shape {array.shape}" if array.dtype.kind in "biuf" else shown(mask)
    form = f"one value per element, {shape}" if is_binary else f"a tuple of {shape[0]} masks"
    raise SchemaError(f"a mask needs {form}, or {sum(sizes)} flags, one per choice: got {got}")


def _is_row(array: NDArray[Any], count: int) -> bool:
    return array.shape in ((count,), (1, count))


def _binary(value: float) -> object:
    """Gymnasium's mask of one element of a `MultiBinary`: the value that it has, or 2 for any."""
    return None if value == _FREE else [value == 0, value == 1] if value in (0, 1) else [value] * 2


def _row_of(masks: Any, row: int, count: int) -> Any:  # noqa: ANN401 - a mask
    """The mask of one row in a batch; None if it has none."""
    if isinstance(masks, Mapping):
        found = {}
        for key, part in masks.items():
            if isinstance(key, str) and key.startswith("_") and key[1:] in masks:
                continue
            present = masks.get(f"_{key}")
            if present is None or present[row]:
                found[key] = _row_of(part, row, count)
        return found if any(part is not None for part in found.values()) else None
    if isinstance(masks, tuple):
        return tuple(_row_of(part, row, count) for part in masks)
    if not hasattr(masks, "__len__") or len(masks) != count:
        raise SchemaError(f"{IN_INFO} needs one mask for each of {count} environments")
    return masks[row]


# ------------------------------------------------------------------ where masks are


class MaskPart:
    """The part `action_mask` of a `Dict` observation, if there is one.

    Args:
        kept: parts of the observation that the caller uses otherwise, so they are not masks.

    Raises:
        UsageError: that part does not fit the action space.
    """

    def __init__(self, space: AnySpace, masks: MaskReader, kept: Sequence[object] = ()) -> None:
        self.space = space
        """Space of the observation without the mask."""
        self._part: AnySpace | None = None
        self._is_alone = False
        if not isinstance(space, spaces.Dict) or MASK not in space.spaces or MASK in kept:
            return
        part = space.spaces[MASK]
        full = value_of(part, lambda leaf: np.ones(leaf.space.shape or (), np.int8))
        try:
            masks.read(full, f"{IN_OBS} is a {part}, which does not fit the actions")
        except SchemaError as error:
            raise UsageError(
                f"{error}; if it is not a mask, give it another name in a wrapper"
            ) from None
        rest = {key: each for key, each in space.spaces.items() if key != MASK}
        self._part, self._is_alone = part, list(rest) == [_OBSERVATION]
        self.space = rest[_OBSERVATION] if self._is_alone else spaces.Dict(rest)

    def split(self, obs: Any) -> tuple[Any, object]:  # noqa: ANN401 - of the space
        """The observation without the mask, and the mask or None; also of a batch."""
        if self._part is None:
            return obs, None
        if not isinstance(obs, Mapping) or MASK not in obs:
            raise SchemaError(f"the observation lacks its part {MASK!r}: got {shown(obs)}")
        return (obs[_OBSERVATION] if self._is_alone else obs), obs[MASK]

    def split_one(self, obs: Any) -> tuple[Any, object]:  # noqa: ANN401 - of the space
        """`split` for one observation; the mask has the shape and dtype of its space."""
        obs, mask = self.split(obs)
        if self._part is not None:
            mask = value_of(
                self._part,
                lambda leaf: fitted(Leaf(leaf.space, (MASK, *leaf.keys)), leaf.of(mask)),
            )
        return obs, mask


def mask_method(env: Any, name: str) -> Callable[[], object] | None:  # noqa: ANN401 - of any library
    """`action_masks` of an environment or of one of its wrappers, as in sb3-contrib; or None.

    Args:
        name: of the environment, for errors of the method.

    Raises:
        UsageError: it takes arguments.
    """
    if getattr(getattr(env, "unwrapped", env), "has_blank_masks", False):
        return None  # its infos have the same masks
    has = getattr(env, "has_wrapper_attr", partial(hasattr, env))
    if not has(METHOD):
        return None
    method: Any = getattr(env, "get_wrapper_attr", partial(getattr, env))(METHOD)
    try:
        inspect.signature(method).bind()
    except TypeError:
        raise UsageError(
            f"{METHOD} of {env} must be a method without arguments that returns the mask: give "
            "it another name if it is something else"
        ) from None
    except ValueError:  # it has no signature
        pass
    return partial(called, f"{name}: env.{METHOD}", method)


def outer_masks(info: Mapping[str, Any], method: Callable[[], object] | None) -> dict[str, object]:
    """The masks of an environment outside of its observation, by their places."""
    masks = {IN_INFO: info.get(MASK)}
    if method is not None:
        masks[BY_METHOD] = method()
    return masks


# ------------------------------------------------------------------ of many environments


class AllowedActions:
    """Legal choices of every environment, from its latest masks.

    Args:
        by_method: returns one mask per environment; None = there is no such method.
    """

    def __init__(
        self,
        num_envs: int,
        reader: MaskReader,
        where: str,
        by_method: Callable[[], object] | None = None,
    ) -> None:
        self._allowed = np.ones((num_envs, reader.num_flags), dtype=np.bool_)
        self._reader = reader
        self._where = where
        self._by_method = by_method
        self._has_masks = False

    def place_of(self, action: ActionName) -> slice:
        """Place of an action in the flags."""
        return self._reader.places[action]

    def read(
        self, info: Mapping[str, Any], in_obs: object = None, rows: Flags | None = None
    ) -> None:
        """Replaces the masks of environments that were stepped or reset.

        An environment without a mask allows everything.

        Args:
            in_obs: the masks in the observations; None = there are none.
            rows: `(num_envs,)` bool, these environments; None = all.

        Raises:
            SchemaError: a mask that does not fit the action space.
        """
        rows = np.ones(len(self._allowed), dtype=np.bool_) if rows is None else rows
        allowed = self._combined({**outer_masks(info, self._by_method), IN_OBS: in_obs}, info, rows)
        if allowed is None:
            self._allowed[rows] = True
        else:
            self._allowed[rows] = allowed[rows]
            self._has_masks = True

    def of(self, ready: Flags) -> Flags | None:
        """Choices allowed in `ready` environments, `(num_ready, num_flags)`; None = all.

        Raises:
            SchemaError: a mask allows nothing.
        """
        if not self._has_masks:
            return None
        allowed, env_ids = self._allowed[ready], np.flatnonzero(ready)
        if self._reader.has_blanks:
            return self._reader.allow_blank(allowed)
        self._reader.require_choice(
            allowed, lambda i: f"{self._where}: the mask of env {env_ids[i]}"
        )
        return allowed

    def of_last(
        self, truncated: Flags, finals: tuple[Mapping[str, Any], object] | None
    ) -> Flags | None:
        """Choices allowed by the last observations of truncated episodes,
        `(num_truncated, num_flags)`; None = all.

        Args:
            truncated: `(num_envs,)` bool.
            finals: infos, and masks in the observations, of environments that reset themselves;
                None = use the last masks read.
        """
        if finals is None:
            allowed = self._allowed if self._has_masks else None
        else:
            info, in_obs = finals
            masks = {**outer_masks(info, None), IN_OBS: in_obs}
            allowed = self._combined(masks, info, truncated)
        if allowed is None:
            return np.ones_like(self._allowed[truncated]) if self._has_masks else None
        return self._reader.allow_blank(allowed[truncated])

    def _combined(
        self, masks: Mapping[str, object], info: Mapping[str, Any], rows: Flags
    ) -> Flags | None:
        """`(num_envs, num_flags)`: what all masks allow, by their places; None without a mask."""
        found = []
        for where, given in masks.items():
            if given is not None:
                there = rows & info.get(f"_{MASK}", True) if where == IN_INFO else rows
                flags, has_mask = self._reader.read_batch(given, there, f"{self._where}: {where}")
                found += [flags] * bool(has_mask.any())
        return np.logical_and.reduce(found) if found else None
