"""Moves and their ids: `(source * 5 + colour) * 6 + destination`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from entity_env.core.validation import is_index
from entity_env.errors import EntityEnvError, ProtocolError, SchemaError
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOURS,
    FLOOR,
    NUM_COLOURS,
    NUM_DESTINATIONS,
    NUM_SOURCES,
)


class StepError(EntityEnvError):
    """A step was refused; nothing has changed.

    Subclasses in checking order: `EpisodeDone`, `InvalidActionId`, `IllegalAction`.
    """


class EpisodeDone(StepError, ProtocolError):
    """No game is in progress; `reset` starts one."""


class InvalidActionId(StepError, SchemaError):
    """The action id is not an integer from 0 to 299."""


class IllegalAction(StepError, SchemaError):
    """The action exists but is illegal in this state."""


ActionId: TypeAlias = int
"""Number of an action, 0 to 299."""


class Color(IntEnum):
    """Colors by name, equal to the numbers in an `Action`."""

    BLUE, YELLOW, RED, BLACK, WHITE = range(NUM_COLOURS)

    @classmethod
    def from_index(cls, index: int) -> Color:
        """Color of an index from 0 to 4; SchemaError for other numbers."""
        if not is_index(index, NUM_COLOURS):
            raise SchemaError(f"Azul: a color must be an integer from 0 to 4, got {index!r}")
        return cls(index)


class DraftSource(IntEnum):
    """Sources by name, equal to the numbers in an `Action`."""

    FACTORY_0, FACTORY_1, FACTORY_2, FACTORY_3, FACTORY_4 = range(5)
    FACTORY_5, FACTORY_6, FACTORY_7, FACTORY_8, Center = range(5, NUM_SOURCES)

    @classmethod
    def Factory(cls, index: int) -> DraftSource:
        """Factory of an index from 0 to 8; SchemaError for other numbers."""
        if not is_index(index, CENTRE):
            raise SchemaError(f"Azul: a factory must be an integer from 0 to 8, got {index!r}")
        return cls(index)


class DraftDestination(IntEnum):
    """Destinations by name, equal to the numbers in an `Action`."""

    LINE_0, LINE_1, LINE_2, LINE_3, LINE_4, Floor = range(NUM_DESTINATIONS)

    @classmethod
    def PatternLine(cls, row: int) -> DraftDestination:
        """Pattern line of a row from 0 to 4; SchemaError for other numbers."""
        if not is_index(row, FLOOR):
            raise SchemaError(f"Azul: a pattern line must be an integer from 0 to 4, got {row!r}")
        return cls(row)


ACTION_SPACE_SIZE: Final = NUM_SOURCES * NUM_COLOURS * NUM_DESTINATIONS
"""300: every move that can be legal for any number of players."""


class Action(NamedTuple):
    """Moves all tiles of one color from one source to one destination.

    Attributes:
        source: 0 to 8 = a factory, 9 = the center.
        colour: 0 to 4.
        destination: 0 to 4 = a pattern line, 5 = the floor.
    """

    source: int
    colour: int
    destination: int

    def __str__(self) -> str:
        return self.in_words(0)

    def in_words(self, first: int) -> str:
        """The action as text; factories and lines are numbered from `first`."""
        source = "the center" if self.source == CENTRE else f"factory {self.source + first}"
        place = "the floor" if self.destination == FLOOR else f"line {self.destination + first}"
        return f"{COLOURS[self.colour]} from {source} to {place}"


ACTIONS: Final = tuple(
    Action(source, colour, destination)
    for source in range(NUM_SOURCES)
    for colour in range(NUM_COLOURS)
    for destination in range(NUM_DESTINATIONS)
)
"""All actions by id."""


class ActionEncoder:
    """Converts between all actions and ids 0 to 299."""

    @staticmethod
    def action_space_size() -> int:
        """Number of action ids: 300."""
        return ACTION_SPACE_SIZE

    @staticmethod
    def encode(action: Action) -> int:
        """Id of an action.

        Raises:
            SchemaError: not an action, or a field that is not an integer or is out of range.
        """
        given: object = action
        if not isinstance(given, tuple) or len(given) != len(Action._fields):
            raise SchemaError(
                f"Azul: an action must be Action({', '.join(Action._fields)}), got {action!r}"
            )
        values = zip(
            Action._fields, action, (NUM_SOURCES, NUM_COLOURS, NUM_DESTINATIONS), strict=True
        )
        for name, value, count in values:
            if not is_index(value, count):
                raise SchemaError(
                    f"Azul: {name} of an action must be an integer from 0 to {count - 1}, "
                    f"got {value!r} in {tuple(action)!r}"
                )
        source, colour, destination = action
        return int((source * NUM_COLOURS + colour) * NUM_DESTINATIONS + destination)

    @staticmethod
    def decode(action_id: int) -> Action:
        """Action of an id.

        Raises:
            InvalidActionId: not an integer from 0 to 299; bools and floats are refused.
        """
        return ACTIONS[checked_id(action_id)]


def checked_id(action_id: object) -> int:
    """Returns a valid action id as an int."""
    if not is_index(action_id, ACTION_SPACE_SIZE):
        raise InvalidActionId(
            f"Azul: an action id must be an integer from 0 to {ACTION_SPACE_SIZE - 1}, "
            f"got {action_id!r}"
        )
    return int(action_id)
