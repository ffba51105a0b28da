"""The PPO trainer: `train`, its settings, callbacks and recorders, and the runs that it writes.

Importing this package does not import torch: names that need torch load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.agents.ppo.config import PPOConfig as PPOConfig
from entity_env.agents.training.callbacks import (
    Callback as Callback,
    CheckpointHistory as CheckpointHistory,
    EvaluationResult as EvaluationResult,
    StopAtReward as StopAtReward,
    TrainState as TrainState,
)
from entity_env.agents.training.schedule import Schedule as Schedule
from entity_env.agents.training.tracking.progress import (
    Losses as Losses,
    TrainProgress as TrainProgress,
    TrainResult as TrainResult,
)
from entity_env.agents.training.tracking.recorders import (
    MLflowRecorder as MLflowRecorder,
    Recorder as Recorder,
    TensorBoardRecorder as TensorBoardRecorder,
    WandbRecorder as WandbRecorder,
)
from entity_env.agents.training.tracking.rewards import (
    MeanReward as MeanReward,
    RandomPlay as RandomPlay,
)
from entity_env.agents.training.tracking.runs import (
    Curve as Curve,
    TrainingRun as TrainingRun,
    read_run as read_run,
)
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.agents.ppo.trainer import (
        CNNPolicy as CNNPolicy,
        MLPPolicy as MLPPolicy,
        Policy as Policy,
        train as train,
    )

_LATE = dict.fromkeys(("CNNPolicy", "MLPPolicy", "Policy", "train"), "trainer")

__getattr__ = late_names(__name__, _LATE)
