"""A decoder and a generator of `STEP` messages, in plain Python.

Written from `docs/reference/protocol.md`, without code of the package.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

MOST = 1e300
MOST_TEXT = 16 * 2**20
MOST_BARE = 2**22
"""Maximum number of entities of types without features."""


class Invalid(Exception):
    """The payload violates the protocol."""


def require(is_right: bool, problem: str) -> None:
    if not is_right:
        raise Invalid(problem)


class Action(NamedTuple):
    name: str
    kind: str
    num_labels: int = 0
    selects: str = ""

    def as_json(self) -> dict[str, object]:
        labels = [f"L{i}" for i in range(self.num_labels)]
        data: dict[str, object] = {"name": self.name, "kind": self.kind}
        if self.kind == "select_entity":
            return {**data, "selects": self.selects}
        if self.kind == "continuous":
            data |= {"low": [-1.0] * len(labels), "high": [1.0] * len(labels)}
        return {**data, "labels": labels}


@dataclass(frozen=True)
class Rules:
    """What `READY` says, reduced to numbers."""

    entities: dict[str, int]
    """Number of features by type, without `Global`."""
    actions: list[Action]
    num_globals: int = 0
    num_agents: int = 1
    num_metrics: int = 0

    def as_json(self) -> dict[str, object]:
        return {
            "num_agents": self.num_agents,
            "metrics": [f"m{i}" for i in range(self.num_metrics)],
            "spaces": {
                "global_features": [f"g{i}" for i in range(self.num_globals)],
                "entities": [
                    {"name": name, "features": [f"x{i}" for i in range(width)]}
                    for name, width in self.entities.items()
                ],
                "actions": [action.as_json() for action in self.actions],
            },
        }

    @property
    def are_global(self) -> bool:
        return all(action.kind == "global_categorical" for action in self.actions)

    @property
    def widths(self) -> dict[str, int]:
        """Number of features by type; `Global` is called ""."""
        is_global = any(action.kind == "global_categorical" for action in self.actions)
        own = {"": self.num_globals} if self.num_globals or is_global else {}
        return {**self.entities, **own}


# ------------------------------------------------------------------ decoder


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, code: str, count: int) -> list[Any]:
        size = struct.calcsize(code) * count
        end = self.at + size + -size % 8
        require(end <= len(self.data), "too short")
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at = end
        return list(values)

    def flags(self, count: int) -> list[Any]:
        found = self.take("B", count)
        require(max(found, default=0) <= 1, "a flag is not 0 or 1")
        return found


def decoded(rules: Rules, num_copies: int, data: bytes) -> dict[str, Any]:
    """The content of a payload; NaN is None. Raises `Invalid`."""
    reader = Reader(data)
    num_rows = num_copies * rules.num_agents
    num_ends, num_text = reader.take("Q", 2)
    copies = reader.take("B", num_copies)
    require(max(copies) <= 3, "flags of a copy")
    asks = reader.flags(num_rows)
    scores = reader.take("d", num_rows)
    require(all(abs(s) <= MOST for s, is_asked in zip(scores, asks, strict=True) if is_asked), "")
    metrics = metrics_of(reader, rules, num_rows)
    frame = frame_of(reader, rules, num_rows)
    for row, is_asked in enumerate(asks):
        column = [line[row] for line in frame["lengths"]]
        require(bool(is_asked) or not any(column), "a row that does not ask shows something")
        acts = any(line[row] for line in action_lines(rules, frame["lengths"]))
        require(acts or not is_asked or not rules.are_global, "a row asks for nothing")
    require_globals(rules, frame, asks)
    ends = None
    if num_ends:
        require(num_ends <= 2 * num_rows, "too many ends")
        ends = ends_of(reader, rules, num_ends, num_rows, copies)
    failures = failures_of(reader, num_text, num_rows) if num_text else {}
    require(reader.at == len(data), "bytes after the end")
    return {
        "copies": copies,
        "asks": asks,
        "scores": shown(scores),
        "metrics": metrics,
        "frame": frame,
        "ends": ends,
        "failures": failures,
    }


def shown(numbers: Sequence[float]) -> list[float | None]:
    return [None if each != each else each for each in numbers]


def metrics_of(reader: Reader, rules: Rules, count: int) -> list[list[float | None]]:
    values = reader.take("d", rules.num_metrics * count)
    require(all(each != each or abs(each) <= MOST for each in values), "a metric is too large")
    lines = [values[i * count : (i + 1) * count] for i in range(rules.num_metrics)]
    return [shown(line) for line in lines]


def require_globals(rules: Rules, frame: dict[str, Any], is_shown: Sequence[object]) -> None:
    if "" in rules.widths:
        line = frame["lengths"][list(rules.widths).index("")]
        require(line == [int(bool(each)) for each in is_shown], "Global")


def ends_of(
    reader: Reader, rules: Rules, count: int, num_rows: int, copies: Sequence[int]
) -> dict[str, Any]:
    rows, flags = reader.take("q", count), reader.take("q", count)
    require(all(0 <= row < num_rows for row in rows), "row of an end")
    require(all(flag in (1, 2, 4, 9, 10, 12) for flag in flags), "flags of an end")
    for i, row in enumerate(rows):
        require(flags[i] < 8 or bool(copies[row // rules.num_agents] & 1), "nothing started")
        if i and row <= rows[i - 1]:
            require(row == rows[i - 1] and flags[i - 1] < 8 <= flags[i], "order of ends")
    scores = reader.take("d", count)
    for flag, score in zip(flags, scores, strict=True):
        require(bool(flag & 4) or abs(score) <= MOST, "final score")
    metrics = metrics_of(reader, rules, count)
    frame = frame_of(reader, rules, count)
    lengths = frame["lengths"]
    require_globals(rules, frame, [any(line[i] for line in lengths) for i in range(count)])
    for i, flag in enumerate(flags):
        acts = any(line[i] for line in action_lines(rules, lengths))
        require(not acts or bool(flag & 2), "actors after the end")
        require(not flag & 4 or not any(line[i] for line in lengths), "shows a failure")
    return {
        "rows": rows,
        "flags": flags,
        "scores": shown(scores),
        "metrics": metrics,
        "frame": frame,
    }


def action_lines(rules: Rules, lengths: Sequence[Any]) -> Iterator[Any]:
    at = len(rules.widths)
    for action in rules.actions:
        yield lengths[at]
        at += 2 if action.kind == "select_entity" else 1


def failures_of(reader: Reader, num_text: int, num_rows: int) -> dict[int, tuple[str, str]]:
    require(num_text % 8 == 0 and num_text <= MOST_TEXT, "size of the text")
    text = bytes(reader.take("B", num_text))
    try:
        found = json.loads(text.decode())
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise Invalid("failures") from error
    require(isinstance(found, list), "failures")
    for each in found:
        require(isinstance(each, dict) and type(each.get("row")) is int, "failures")
        require(0 <= each["row"] < num_rows, "row of a failure")
        texts = each.get("message"), each.get("traceback", "")
        require(all(isinstance(text, str) for text in texts), "text of a failure")
    return {each["row"]: (each["message"], each.get("traceback", "")) for each in found}


def frame_of(reader: Reader, rules: Rules, num_rows: int) -> dict[str, Any]:
    """The lengths, line by line, and the slots, one list for each row."""
    widths = rules.widths
    num_slots = 2 * len(widths) + 3 * len(rules.actions)
    present = reader.take("B", num_slots)
    for flag, (least, most) in zip(present, slot_flags(rules), strict=True):
        require(least <= flag <= most, "flag of a slot")
    num_lines = len(widths) + sum(1 + (a.kind == "select_entity") for a in rules.actions)
    numbers = reader.take("q", num_lines * num_rows)
    require(all(0 <= each <= 2**28 for each in numbers), "a length")
    lines = [numbers[i * num_rows : (i + 1) * num_rows] for i in range(num_lines)]
    bare = sum(sum(lines[i]) for i, width in enumerate(widths.values()) if not width)
    require(bare <= MOST_BARE, "too many entities without features")
    slots: list[Any] = []
    for i, width in enumerate(widths.values()):
        values = reader.take("f", sum(lines[i]) * width) if present[2 * i] else None
        require(values is None or all(map(math.isfinite, values)), "a feature is not finite")
        slots += [values, reader.flags(sum(lines[i])) if present[2 * i + 1] else None]
    at = len(widths)
    for action in rules.actions:
        flags = present[len(slots) : len(slots) + 3]
        slots += action_of(reader, rules, action, lines, at, flags)
        at += 2 if action.kind == "select_entity" else 1
    return {"lengths": lines, "slots": slots}


def slot_flags(rules: Rules) -> Iterator[tuple[int, int]]:
    """Least and largest flag of each slot."""
    for width in rules.widths.values():
        yield (1, 1) if width else (0, 0)
        yield 0, 1
    for action in rules.actions:
        yield (0, 0) if action.kind == "global_categorical" else (1, 1)
        yield (0, 0) if action.kind == "continuous" else (0, 1)
        yield (1, 1) if action.kind == "select_entity" else (0, 0)


def action_of(
    reader: Reader,
    rules: Rules,
    action: Action,
    lines: list[list[int]],
    at: int,
    present: Sequence[int],
) -> list[Any]:
    """Its three slots."""
    counts, num_rows = lines[at], len(lines[at])
    actors = mask = actees = None
    local = lines[: len(rules.entities)]
    num_local = [sum(line[row] for line in local) for row in range(num_rows)]
    if present[0]:
        actors = reader.take("q", sum(counts))
        rest = iter(actors)
        for row, count in enumerate(counts):
            own = [next(rest) for _ in range(count)]
            require(all(0 <= each < num_local[row] for each in own), "index of an actor")
            require(all(own[i] < own[i + 1] for i in range(count - 1)), "order of actors")
    else:
        require(max(counts, default=0) <= 1, "a global action twice")
    widths = [action.num_labels] * num_rows
    if action.kind == "select_entity":
        widths = lines[at + 1]
        selected = list(rules.entities).index(action.selects)
        for row, width in enumerate(widths):
            require(width in (0, lines[selected][row]), "number of actees")
            require(bool(width) or not counts[row], "an actor without actees")
    if present[1]:
        mask = reader.flags(sum(c * w for c, w in zip(counts, widths, strict=True)))
        begin = 0
        for count, width in zip(counts, widths, strict=True):
            for _ in range(count):
                require(any(mask[begin : begin + width]), "an actor without a choice")
                begin += width
    if present[2]:
        actees = reader.take("q", sum(widths))
        before = [sum(line[row] for line in local[:selected]) for row in range(num_rows)]
        expected = [before[r] + i for r, width in enumerate(widths) for i in range(width)]
        require(actees == expected, "actees")
    return [actors, mask, actees]


# ------------------------------------------------------------------ generator


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def packed(code: str, values: Sequence[float]) -> bytes:
    return padded(struct.pack(f"<{len(values)}{code}", *values))


class Generator:
    """Random valid payloads of a game."""

    def __init__(self, rules: Rules, rng: Random) -> None:
        self.rules, self.rng = rules, rng
        self.waits: dict[int, bool] = {}

    def turn(self, copies: Sequence[int], *, resets: bool, holds: bool) -> bytes:
        """The answer to a request about some copies, as games that play by the rules give it."""
        rng, num_agents = self.rng, self.rules.num_agents
        flags: list[int] = []
        asks: list[int] = []
        ends: list[tuple[int, int]] = []
        for i, copy in enumerate(copies):
            starts = resets or self.waits[copy]
            is_over = not starts and rng.random() < 0.2
            self.waits[copy] = is_over and holds
            flags.append(int(starts or (is_over and not holds)) + 2 * self.waits[copy])
            own = [int(rng.random() < 0.7) for _ in range(num_agents)]
            own[rng.randrange(num_agents)] = 1
            asks += [0] * num_agents if self.waits[copy] else own
            flag = rng.choice([1, 1, 2, 4])
            ends += [(i * num_agents + each, flag) for each in range(num_agents) if is_over]
        return self._payload(flags, asks, ends)

    def step(self, num_copies: int) -> bytes:
        """A `STEP` of some copies; ends and failures are not those of a whole game."""
        rules, rng = self.rules, self.rng
        num_rows = num_copies * rules.num_agents
        copies = [rng.choice([0, 0, 1, 2, 3]) for _ in range(num_copies)]
        asks = [int(rng.random() < 0.8) for _ in range(num_rows)]
        ends = []
        for row in range(num_rows) if rng.random() < 0.5 else ():
            chosen = [1, 2, 4, 9, 10, 12] if copies[row // rules.num_agents] & 1 else [1, 2, 4]
            first = rng.choice([0, *chosen])
            ends += [(row, first)] if first else []
            if first and first < 8 < max(chosen) and rng.random() < 0.3:
                ends.append((row, rng.choice([9, 10, 12])))
        return self._payload(copies, asks, ends)

    def _payload(
        self, copies: Sequence[int], asks: Sequence[int], ends: Sequence[tuple[int, int]]
    ) -> bytes:
        rng, num_rows = self.rng, len(asks)
        failures = [
            {"row": row, "message": "Error: ü", **({"traceback": "at"} if row % 2 else {})}
            for row, flag in ends
            if flag & 4
        ]
        is_ascii = rng.random() < 0.5
        text = json.dumps(failures, ensure_ascii=is_ascii).encode() if failures else b""
        text += b" " * (-len(text) % 8)
        parts = [
            struct.pack("<QQ", len(ends), len(text)),
            packed("B", copies),
            packed("B", asks),
            packed("d", [rng.uniform(-9, 9) if asked else math.nan for asked in asks]),
            self._metrics(num_rows),
            self.frame(["asks" if asked else "empty" for asked in asks]),
        ]
        if ends:
            shows = {1: "last", 2: rng.choice(["last", "asks", "empty"]), 4: "empty"}
            parts += [
                packed("q", [row for row, _ in ends]),
                packed("q", [flag for _, flag in ends]),
                packed("d", [math.inf if flag & 4 else float(flag) for _, flag in ends]),
                self._metrics(len(ends)),
                self.frame([shows[flag & 7] for _, flag in ends]),
            ]
        return b"".join([*parts, text])

    def _metrics(self, count: int) -> bytes:
        values = [self.rng.choice([math.nan, 0.0, 2.5]) for _ in range(self.rules.num_metrics)]
        return packed("d", [each for each in values for _ in range(count)])

    def frame(self, rows: Sequence[str]) -> bytes:
        """Observations of rows that are `asks`, `last` (without actors) or `empty`."""
        rules, rng = self.rules, self.rng
        lines: list[list[int]] = []
        for name in rules.widths:
            most = 4 if name else 1
            lines.append([0 if row == "empty" else rng.randint(not name, most) for row in rows])
        parts: list[bytes] = []
        present: list[int] = []
        for width, line in zip(rules.widths.values(), list(lines), strict=True):
            total = sum(line)
            present += [int(width > 0), int(rng.random() < 0.3)]
            values = [rng.choice([0.0, -1.5, 1e30, rng.random()]) for _ in range(total * width)]
            parts += [packed("f", values)] if width else []
            parts += [packed("B", rng.choices([0, 1], k=total))] if present[-1] else []
        for action in rules.actions:
            self._action(action, rows, lines, present, parts)
        numbers = [each for line in lines for each in line]
        return b"".join([packed("B", present), packed("q", numbers), *parts])

    def _action(
        self,
        action: Action,
        rows: Sequence[str],
        lines: list[list[int]],
        present: list[int],
        parts: list[bytes],
    ) -> None:
        rules, rng = self.rules, self.rng
        local = lines[: len(rules.entities)]
        has_mask = action.kind != "continuous" and rng.random() < 0.6
        actors: list[int] = []
        counts: list[int] = []
        widths: list[int] = []
        actees: list[int] = []
        mask = b""
        for row, state in enumerate(rows):
            num_local = sum(line[row] for line in local)
            width = action.num_labels
            if action.kind == "select_entity":
                selected = list(rules.entities).index(action.selects)
                width = lines[selected][row]
            if action.kind == "global_categorical":
                count = int(state == "asks" and (rules.are_global or rng.random() < 0.8))
            else:
                own = sorted(rng.sample(range(num_local), rng.randint(0, num_local)))
                own = own if state == "asks" and width else []
                actors += own
                count = len(own)
            if action.kind == "select_entity" and (count or rng.random() < 0.5):
                before = sum(line[row] for line in local[:selected])
                actees += range(before, before + width)
            elif action.kind == "select_entity":
                width = 0
            counts.append(count)
            widths.append(width)
            for _ in range(count):
                chosen = rng.randrange(width)
                mask += bytes(int(i == chosen or rng.random() < 0.5) for i in range(width))
        is_global, is_select = (
            action.kind == f"{x}" for x in ("global_categorical", "select_entity")
        )
        lines += [counts, widths] if is_select else [counts]
        present += [int(not is_global), int(has_mask), int(is_select)]
        parts += [] if is_global else [packed("q", actors)]
        parts += [padded(mask)] if has_mask else []
        parts += [packed("q", actees)] if is_select else []


GAMES = {
    "one": Rules({"Dot": 1}, [Action("Move", "categorical", 2)]),
    "global": Rules({"Bare": 0}, [Action("Push", "global_categorical", 3)], 2, 2, 1),
    "select": Rules(
        {"Tree": 0, "Axe": 3},
        [Action("Cut", "select_entity", 0, "Tree"), Action("Own", "select_entity", 0, "Axe")],
        num_metrics=2,
    ),
    "all": Rules(
        {"Unit": 2, "Wall": 0, "Base": 1},
        [
            Action("Turn", "continuous", 2),
            Action("Aim", "select_entity", 0, "Base"),
            Action("Wait", "global_categorical", 2),
            Action("Step", "categorical", 3),
        ],
        num_globals=1,
        num_agents=3,
        num_metrics=1,
    ),
}
