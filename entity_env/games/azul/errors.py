"""The errors of Azul, in the order in which a step looks for them.

StepError
├── EpisodeDone      (ProtocolError)  the game is over, or has not begun: reset
├── InvalidActionId  (SchemaError)    no integer from 0 to 299
└── IllegalAction    (SchemaError)    an action of the game that is not legal now

Each of them leaves everything as it was.
"""

from __future__ import annotations

from entity_env.errors import EntityEnvError, ProtocolError, SchemaError


class StepError(EntityEnvError):
    """A step was refused; nothing has changed."""


class EpisodeDone(StepError, ProtocolError):
    """There is no game to go on with: call `reset`."""


class InvalidActionId(StepError, SchemaError):
    """An action id must be an integer from 0 to 299."""


class IllegalAction(StepError, SchemaError):
    """The action exists, but is not legal in this state."""
