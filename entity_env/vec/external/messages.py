"""Messages of the protocol for games in other languages: headers, JSON and errors."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from keyword import iskeyword
from struct import Struct
from typing import Any, Final, NoReturn

from entity_env.core.files import parse_json
from entity_env.core.spaces import (
    ACTOR_ENTITY,
    ActionName,
    EntityName,
    SelectEntityActionSpace,
    Spaces,
    spaces_from_json,
    spaces_to_json,
)
from entity_env.errors import ProtocolError, SchemaError, shown

VERSION: Final = 1
MAGIC: Final = b"ENE1"
HEADER: Final = Struct("<4sIQ")
ALIGNMENT: Final = 8
"""Arrays and payloads have a multiple of this number of bytes."""
MAX_BYTES: Final = 256 * 2**20
"""Maximum size of a payload."""
MAX_JSON_BYTES: Final = 2**20
_MAX_NAME: Final = 64
_MAX_LINE: Final = 300
_RESERVED: Final = ("self", "agents", "seed", "command", "folder", "link", "address")
"""Names that settings cannot have, because they are arguments."""
_MAX_AGENTS: Final = 4096
_MAX_ITEMS: Final = 1000
"""Maximum number of entity types, and of actions."""


class Kind(IntEnum):
    """Kind of a message."""

    HELLO = 1
    START = 2
    READY = 3
    RESET = 4
    ACT = 5
    STEP = 6
    ERROR = 7
    CLOSE = 8


class MessageError(ProtocolError):
    """A message that violates the protocol; names its number and kind."""


@dataclass(frozen=True)
class Place:
    """A received message: its number, from 1, and its kind; for errors."""

    number: int
    kind: str

    def refuse(self, problem: str) -> NoReturn:
        """Raises `MessageError` with one line; the problem may quote the program."""
        start = problem[: _MAX_LINE + 1]
        line = "".join(x if x.isprintable() else repr(x)[1:-1] for x in start)
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]}…"
        raise MessageError(f"message {self.number} ({self.kind}): {line}")


def aligned(size: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -size % ALIGNMENT + size


def json_payload(data: Mapping[str, object]) -> bytes:
    """JSON in UTF-8, aligned with spaces."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    return text.ljust(aligned(len(text)))


def size_of(header: bytes, due: Sequence[Kind], number: int) -> tuple[Kind, int]:
    """Kind of a message and the size of its payload, from its header.

    Raises:
        MessageError: the header is invalid, or the kind is not among those that are due.
    """
    magic, code, size = HEADER.unpack(header)
    names = " or ".join(kind.name for kind in due)
    place = Place(number, names)
    if magic != MAGIC:
        hint = (
            "; the program must not print to the connection, which is standard output with "
            "'exec+stdio:'"
            if all(32 <= byte < 127 or byte in b"\n\r\t" for byte in header[:4])
            else ""
        )
        place.refuse(f"expected the bytes {MAGIC!r}, got {header!r}{hint}")
    if code not in due:
        known = [kind.name for kind in Kind if kind == code]
        place.refuse(f"expected kind {names}, got {known[0] if known else code}")
    kind = Kind(code)
    limit = MAX_BYTES if kind is Kind.STEP else MAX_JSON_BYTES
    if size > limit or size % ALIGNMENT:
        Place(number, kind.name).refuse(
            f"the payload must have a multiple of {ALIGNMENT} bytes, at most {limit}: got {size}"
        )
    return kind, size


def read_json(payload: bytes | memoryview, place: Place) -> dict[str, Any]:
    """The object in a JSON payload.

    Raises:
        MessageError: it is not a JSON object.
    """
    found = json_in(bytes(payload), "the payload is", place)
    if not isinstance(found, dict):
        place.refuse(f"the payload must be a JSON object, got {shown(found)}")
    return found


def json_in(data: bytes, what: str, place: Place) -> Any:  # noqa: ANN401
    """The value of a text; raises `MessageError` if it is not JSON in UTF-8."""
    if 0 in data or data.startswith(BOM_UTF8):
        place.refuse(f"{what} not JSON in UTF-8: it begins with a mark or has zero bytes")
    try:
        found = parse_json(data)
        # Fails for NaN, infinity and halves of surrogate pairs.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        place.refuse(f"{what} not JSON in UTF-8: {error}")
    return found


# ------------------------------------------------------------------ handshake


@dataclass(frozen=True)
class HelloMessage:
    """`HELLO`: a game before it starts.

    Args:
        settings: defaults, by name: bool, int, float or str.
    """

    name: str
    version: str | int | None
    settings: Mapping[str, bool | int | float | str]
    doc: str


@dataclass(frozen=True)
class ReadyMessage:
    """`READY`: a game with its settings.

    Args:
        selects: entity type of the actees, by select action.
        metrics: names of the metrics, in the order of `STEP`.
    """

    num_agents: int
    spaces: Spaces
    selects: Mapping[ActionName, EntityName]
    metrics: Sequence[str]
    max_entities: Mapping[EntityName, int]


def hello_of(data: Mapping[str, Any], token: str, place: Place) -> HelloMessage:
    """Reads `HELLO`; raises `MessageError` if it is invalid."""
    version = data.get("protocol")
    if type(version) is not int or version != VERSION:
        place.refuse(f"the program has version {shown(version)} of the protocol, expected 1")
    if data.get("token", "") != token:
        place.refuse("the token differs from ENTITY_ENV_TOKEN")
    name = data.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not _is_name(name):
        place.refuse(
            f"name must have 1 to {_MAX_NAME} letters, digits, '_', '-' or '.': got {shown(name)}"
        )
    settings = data.get("settings", {})
    if not isinstance(settings, dict):
        place.refuse(f"settings must be a JSON object, got {shown(settings)}")
    for key, value in settings.items():
        if not key.isidentifier() or iskeyword(key) or key in _RESERVED:
            place.refuse(
                f"the name of a setting must be an identifier, not one of {', '.join(_RESERVED)} "
                f"or a keyword of Python: got {shown(key)}"
            )
        if not isinstance(value, bool | int | float | str):
            place.refuse(
                f"the default of {shown(key)} must be a boolean, a number or a text, "
                f"got {shown(value)}"
            )
    rules, doc = data.get("version"), data.get("doc", "")
    is_line = isinstance(rules, str) and 0 < len(rules) <= _MAX_NAME and rules.isprintable()
    if not (is_line or rules is None or type(rules) is int):
        place.refuse(
            f"version must be an integer or a line of 1 to {_MAX_NAME} characters, "
            f"got {shown(rules)}"
        )
    if not isinstance(doc, str):
        place.refuse(f"doc must be a text, got {shown(doc)}")
    return HelloMessage(name, rules, settings, doc)


def _is_name(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "_-." for each in text)


def ready_of(data: Mapping[str, Any], place: Place) -> ReadyMessage:
    """Reads `READY`; raises `MessageError` if it is invalid."""
    num_agents = data.get("num_agents")
    if type(num_agents) is not int or not 1 <= num_agents <= _MAX_AGENTS:
        place.refuse(f"num_agents must be 1 to {_MAX_AGENTS}, got {shown(num_agents)}")
    try:
        spaces = spaces_from_json(data.get("spaces"))
    except SchemaError as error:
        place.refuse(str(error))
    if not spaces[1]:
        place.refuse("the spaces have no action")
    if "" in spaces[1]:
        place.refuse("actions need names, such as 'move', got ''")
    if max(len(spaces[0].entities), len(spaces[1])) > _MAX_ITEMS:
        place.refuse(f"the spaces have more than {_MAX_ITEMS} entity types or actions")
    actor = spaces[0].entities.get(ACTOR_ENTITY)
    if actor is not None and (actor.features or actor.references):
        place.refuse(
            f"the entity {ACTOR_ENTITY!r}, which makes global decisions, must have no "
            f"features, got {shown(list(actor.features))}: remove them, or choose another name"
        )
    selects = _selects(data, spaces, place)
    metrics = data.get("metrics", [])
    if not isinstance(metrics, list) or not all(isinstance(each, str) for each in metrics):
        place.refuse(f"metrics must be a list of texts, got {shown(metrics)}")
    if len(set(metrics)) < len(metrics):
        place.refuse(f"metrics must have different names, got {shown(metrics)}")
    most = data.get("max_entities", {})
    if not isinstance(most, dict) or not all(
        name in spaces[0].entities and type(count) is int and count >= 0
        for name, count in most.items()
    ):
        place.refuse(f"max_entities must have a number for entity types, got {shown(most)}")
    ready = ReadyMessage(num_agents, spaces, selects, tuple(metrics), most)
    checksum, expected = data.get("checksum"), checksum_of(ready)
    if checksum is not None and checksum != expected:
        place.refuse(f"the checksum of the spaces is {shown(checksum)}, expected {expected!r}")
    return ready


def _selects(data: Mapping[str, Any], spaces: Spaces, place: Place) -> dict[ActionName, EntityName]:
    obs_space, action_space = spaces
    found: dict[ActionName, EntityName] = {}
    for item in data["spaces"]["actions"]:
        if isinstance(action_space[item["name"]], SelectEntityActionSpace):
            selected = item.get("selects")
            if not isinstance(selected, str) or selected not in obs_space.entities:
                place.refuse(
                    f"action {item['name']!r}: selects must name an entity type, "
                    f"got {shown(selected)}"
                )
            if selected == ACTOR_ENTITY:
                place.refuse(
                    f"action {item['name']!r} selects {ACTOR_ENTITY!r}, which makes global "
                    "decisions and is never shown: choose another name for the entity type"
                )
            found[item["name"]] = selected
    return found


def checksum_of(ready: ReadyMessage) -> str:
    """64-bit FNV-1a hash of the spaces, 16 hexadecimal digits; see the protocol."""
    obs_space = ready.spaces[0]
    lines = [f"agents {ready.num_agents}"]
    lines += [f"global {feature}" for feature in obs_space.global_features]
    for name, entity in obs_space.entities.items():
        lines += [f"entity {name}", *(f"feature {feature}" for feature in entity.features)]
        lines += [f"reference {other}" for other in entity.references or ()]
    described: Any = spaces_to_json(*ready.spaces)["actions"]
    for item in described:
        lines.append(f"action {item['name']} {item['kind']}")
        lines += [f"label {label}" for label in item.get("labels", ())]
        lines += [f"given {other}" for other in item.get("given", ())]
        if item["name"] in ready.selects:
            lines.append(f"selects {ready.selects[item['name']]}")
    state = 0xCBF29CE484222325
    for byte in "".join(f"{line}\n" for line in lines).encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def text_of_error(data: Mapping[str, Any]) -> tuple[str, str]:
    """Message and traceback of an `ERROR`."""
    message, trace = data.get("message"), data.get("traceback", "")
    return (
        message if isinstance(message, str) and message else "the program gave no reason",
        trace if isinstance(trace, str) else "",
    )
