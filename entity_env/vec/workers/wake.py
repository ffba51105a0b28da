"""Wake: why a wait for another process ended."""

from enum import Enum


class Wake(Enum):
    """Why a wait ended."""

    RUNG = "rung"
    TIMED_OUT = "timed out"
    PEER_GONE = "peer gone"
    """The other side has closed its end, or its process has died, and had not rung before."""
