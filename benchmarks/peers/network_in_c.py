"""`entity_agent.h` called from Python, compared with the decisions of numpy in `Vector`s."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.peers.network_vectors import Vector
from entity_env.agents.rogue_net import Weights
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes

HEADERS: Final = Path(__file__).parents[2] / "clients" / "c"
_SOURCE: Final = Path(__file__).with_suffix(".c")
_GLOBAL, _CONTINUOUS = 0, 3
_TIE: Final = 2e-5
_Floats: Final = ctypes.POINTER(ctypes.c_float)
_Names: Final = ctypes.POINTER(ctypes.c_char_p)
_Ints: Final = ctypes.POINTER(ctypes.c_int)


class _Entity(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("num_features", ctypes.c_int),
        ("features", _Names),
        ("references", ctypes.POINTER(ctypes.c_int)),
    )


class _Action(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("num_labels", ctypes.c_int),
        ("labels", _Names),
        ("low", _Floats),
        ("high", _Floats),
        ("num_given", ctypes.c_int),
        ("given", _Ints),
    )


class _Spaces(ctypes.Structure):
    _fields_ = (
        ("num_entities", ctypes.c_int),
        ("num_actions", ctypes.c_int),
        ("num_globals", ctypes.c_int),
        ("has_value", ctypes.c_int),
        ("entities", ctypes.POINTER(_Entity)),
        ("actions", ctypes.POINTER(_Action)),
        ("global_features", _Names),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("num_actors", ctypes.c_int),
        ("actors", _Ints),
        ("num_actees", ctypes.c_int),
        ("actees", _Ints),
        ("mask", ctypes.POINTER(ctypes.c_ubyte)),
        ("is_dependent", ctypes.c_int),
    )


class _Obs(ctypes.Structure):
    _fields_ = (
        ("counts", _Ints),
        ("features", ctypes.POINTER(_Floats)),
        ("globals", _Floats),
        ("visible", ctypes.POINTER(ctypes.POINTER(ctypes.c_ubyte))),
        ("requests", ctypes.POINTER(_Request)),
        ("state", _Floats),
        ("random", ctypes.POINTER(ctypes.c_uint64)),
    )


class AgentError(Exception):
    """The reason why the header refused a file or an observation."""


class CLibrary:
    """The header, compiled as a shared library.

    Args:
        folder: where the library is made.
        command: compiler with options.
    """

    def __init__(self, folder: Path, command: Sequence[str] = ("gcc", "-std=c99", "-O2")) -> None:
        target = folder / "entity_agent.so"
        options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        words = [*command, *options, "-I", str(HEADERS), str(_SOURCE), "-o", str(target), "-lm"]
        subprocess.run(words, check=True)
        self.calls: Any = ctypes.CDLL(str(target))
        for name, kind in {
            "ea_load": ctypes.c_void_p,
            "ea_spaces_of": ctypes.POINTER(_Spaces),
            "ea_workspace_size": ctypes.c_size_t,
            "ea_workspace_in": ctypes.c_void_p,
            "ea_think": ctypes.c_char_p,
            "ea_probabilities": _Floats,
            "ea_choose_numbers": None,
            "ea_value": _Floats,
            "ea_state": _Floats,
            "ea_free": None,
            "ea_measure": ctypes.c_double,
        }.items():
            getattr(self.calls, name).restype = kind

    def compare(self, agent: bytes | Weights, vectors: Iterable[Vector] = ()) -> Mapping[str, Any]:
        """As `NetworkInNode.compare`, without attention and time."""
        content = agent_bytes(agent) if isinstance(agent, Weights) else agent
        found = {"probabilities": 0.0, "values": 0.0, "numbers": 0.0, "attention": 0.0}
        found["states"] = 0.0
        found |= {"other_choices": 0, "choices": 0}
        try:
            with CAgent(self, content) as loaded:
                for vector in vectors:
                    for needs_value in (True, False):
                        _compare(loaded, vector, needs_value, found)
        except AgentError as error:
            return {"error": str(error)}
        return found


class CAgent:
    """An agent in C with a workspace. A context manager, which frees them.

    Raises:
        AgentError: the content is refused.
    """

    def __init__(self, library: CLibrary, content: bytes, max_entities: int = 200) -> None:
        error = ctypes.create_string_buffer(300)
        self.calls = library.calls
        size = ctypes.c_size_t(len(content))
        loaded = self.calls.ea_load(content, size, error, ctypes.c_size_t(300))
        if not loaded:
            raise AgentError(error.value.decode(errors="replace"))
        self._agent = ctypes.c_void_p(loaded)
        self.spaces: Any = self.calls.ea_spaces_of(self._agent).contents
        self.actions = {
            self.spaces.actions[i].name.decode(): self.spaces.actions[i]
            for i in range(self.spaces.num_actions)
        }
        self._memory = ctypes.create_string_buffer(
            self.calls.ea_workspace_size(self._agent, max_entities)
        )
        self.workspace = ctypes.c_void_p(
            self.calls.ea_workspace_in(self._agent, max_entities, self._memory)
        )

    def __enter__(self) -> CAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.ea_free(self._agent)

    def think(self, obs: _Obs, temperature: float = 1.0, needs_value: bool = True) -> None:
        """Computes a decision; raises `AgentError`."""
        error = self.calls.ea_think(
            self.workspace, ctypes.byref(obs), ctypes.c_double(temperature), int(needs_value)
        )
        if error is not None:
            raise AgentError(error.decode(errors="replace"))

    def observation(self, given: Mapping[str, Any]) -> _Obs:
        """An observation of a `Vector` for C, which keeps its memory.

        `random` in it, if any, is the seed of the choices on which others depend.
        """
        spaces = self.spaces
        entities = [spaces.entities[i] for i in range(spaces.num_entities)]
        rows = [given["features"].get(each.name.decode(), []) for each in entities]
        hidden = [given.get("visible", {}).get(each.name.decode()) for each in entities]
        requests = [
            self._request(action, given["actions"].get(name))
            for name, action in self.actions.items()
        ]
        features = [_array(ctypes.c_float, [x for row in each for x in row]) for each in rows]
        flags = [None if each is None else _array(ctypes.c_ubyte, each) for each in hidden]
        pointers = [ctypes.cast(each, _Floats) for each in features]
        state = _array(ctypes.c_float, given.get("state", []))
        marks = [ctypes.cast(each or 0, ctypes.POINTER(ctypes.c_ubyte)) for each in flags]
        obs = _Obs(
            _array(ctypes.c_int, [len(each) for each in rows]),
            _array(_Floats, pointers),
            _array(ctypes.c_float, given["globals"]),
            _array(ctypes.POINTER(ctypes.c_ubyte), marks),
            _array(_Request, requests),
            ctypes.cast(state, _Floats),
            ctypes.pointer(ctypes.c_uint64(given["random"])) if "random" in given else None,
        )
        obs.kept = features, flags, state
        return obs

    def _request(self, action: _Action, given: Mapping[str, Any] | None) -> _Request:
        if given is None:
            return _Request()
        actors = [0] if action.kind == _GLOBAL else given["actors"]
        actees, mask = given.get("actees", []), given.get("mask")
        is_dependent = bool(mask and isinstance(mask[0][0], list))
        if is_dependent:
            mask = [row for rows in mask or () for row in rows]
        flags = None if mask is None else [flag for row in mask for flag in row]
        return _Request(
            len(actors),
            _array(ctypes.c_int, actors),
            len(actees),
            _array(ctypes.c_int, actees),
            None if flags is None else _array(ctypes.c_ubyte, flags),
            is_dependent,
        )

    def rows(self, action: str, num_actors: int) -> list[list[float]]:
        """Probabilities of every actor's choices."""
        index = list(self.actions).index(action)
        count = self.calls.ea_num_choices(self.workspace, index)
        return [
            self.calls.ea_probabilities(self.workspace, index, actor)[:count]
            for actor in range(num_actors)
        ]

    def choices(
        self, action: str, num_actors: int, random: ctypes.c_uint64 | None = None
    ) -> list[Any]:
        """A choice per actor, or a list of numbers; the most probable without `random`."""
        index, state = (
            list(self.actions).index(action),
            None if random is None else ctypes.byref(random),
        )
        space = self.actions[action]
        if space.kind != _CONTINUOUS:
            return [
                self.calls.ea_choose(self.workspace, index, actor, state)
                for actor in range(num_actors)
            ]
        numbers = (ctypes.c_float * space.num_labels)()
        found = []
        for actor in range(num_actors):
            self.calls.ea_choose_numbers(self.workspace, index, actor, state, numbers)
            found.append(list(numbers))
        return found

    def value(self) -> float | None:
        """The predicted value; None if there is none."""
        found = self.calls.ea_value(self.workspace)
        return float(found[0]) if found else None

    def microseconds(
        self, observations: Sequence[_Obs], rounds: int, needs_value: bool = False
    ) -> float:
        """Time per decision with a sampled choice, measured in C."""
        array = _array(_Obs, observations)
        found = self.calls.ea_measure(
            self.workspace, array, len(observations), rounds, int(needs_value)
        )
        return float(found)


def _array(kind: Any, values: Sequence[Any]) -> Any:  # noqa: ANN401 - any type of ctypes
    return (kind * max(len(values), 1))(*values)


def _compare(agent: CAgent, vector: Vector, needs_value: bool, found: dict[str, Any]) -> None:
    """Enlarges the differences in `found`."""

    def add(kind: str, got: object, wanted: object, scale: object = 1.0) -> None:
        got_array, wanted_array = np.asarray(got, float), np.asarray(wanted, float)
        if got_array.shape != wanted_array.shape:
            found[kind] = np.inf
        elif got_array.size:
            most = (abs(got_array - wanted_array) / np.maximum(1.0, abs(np.asarray(scale)))).max()
            found[kind] = max(found[kind], np.inf if np.isnan(most) else float(most))

    agent.think(agent.observation(vector["observation"]), vector["temperature"], needs_value)
    after = vector["after"]
    add("states", agent.calls.ea_state(agent.workspace)[: len(after)], after)
    for name, rows in vector["probabilities"].items():
        got = agent.rows(name, len(rows))
        if rows:
            add("probabilities", got, rows)
        choices, made = agent.choices(name, len(rows)), vector["observation"].get("chosen", {})
        found["choices"] += needs_value * len(rows)
        if name in made:
            found["other_choices"] += choices != made[name]
            continue
        for row, choice in zip(rows, choices, strict=True):
            found["other_choices"] += row[choice] < max(row) - _TIE
    for name, rows in vector["numbers"].items():
        add("numbers", agent.choices(name, len(rows)), rows, rows)
    if needs_value:
        value, wanted = agent.value(), vector["value"]
        if value is None or wanted is None:
            found["values"] = found["values"] if value is wanted else np.inf
        else:
            add("values", value, wanted, wanted)
