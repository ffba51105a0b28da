"""Replays: an episode as a file with seed, settings, actions and, if recorded, observations.

Drawing an episode belongs in `views`; arrays sampled by off-policy learning in `vec.ReplayBuffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.lazy_imports import late_names
from entity_env.replay.divergence import Divergence as Divergence
from entity_env.replay.file import Decision as Decision, End as End, ReplayHeader as ReplayHeader
from entity_env.replay.replay import Replay as Replay
from entity_env.replay.writer import (
    ReplayWriter as ReplayWriter,
    branch as branch,
    record as record,
)

if TYPE_CHECKING:
    from entity_env.replay.dataset import dataset_of as dataset_of
    from entity_env.replay.new_process import (
        PlayLimits as PlayLimits,
        turns_in_new_process as turns_in_new_process,
        verify_in_new_process as verify_in_new_process,
    )
    from entity_env.replay.training_replays import TrainingReplays as TrainingReplays

_NEW_PROCESS = ("PlayLimits", "turns_in_new_process", "verify_in_new_process")
_LATE = {
    "TrainingReplays": "training_replays",
    "dataset_of": "dataset",
    **dict.fromkeys(_NEW_PROCESS, "new_process"),
}

__getattr__ = late_names(__name__, _LATE)
