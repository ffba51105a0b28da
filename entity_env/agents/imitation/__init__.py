"""Imitation learning: recorded decisions as a `Dataset`, and behavioral cloning.

Importing this package does not import torch. `replay.dataset_of` reads the decisions of replays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.agents.imitation.config import CloneConfig as CloneConfig
from entity_env.agents.imitation.dataset import Dataset as Dataset
from entity_env.agents.imitation.recorder import DatasetRecorder as DatasetRecorder
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.agents.imitation.cloning import (
        CloneResult as CloneResult,
        clone as clone,
    )

_LATE = dict.fromkeys(("CloneResult", "clone"), "cloning")

__getattr__ = late_names(__name__, _LATE)
