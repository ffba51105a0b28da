"""Many environments stepped as one batch, in this process or in workers: `VecEnv`.

Games and their rules belong to `games`, observations as arrays to `batching`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.core.vec_env_base import Autoreset as Autoreset
from entity_env.lazy_imports import late_names
from entity_env.vec.batch_env.array_env import ArrayEnv as ArrayEnv
from entity_env.vec.batch_env.batch_env import (
    BatchEnv as BatchEnv,
    BatchSeed as BatchSeed,
    ResetMask as ResetMask,
    StepResult as StepResult,
)
from entity_env.vec.batch_env.vec_env import BatchVecEnv as BatchVecEnv
from entity_env.vec.options import OnError as OnError
from entity_env.vec.replay_buffer import ReplayBuffer as ReplayBuffer, Transitions as Transitions
from entity_env.vec.statistics import (
    VecStatistics as VecStatistics,
    WorkerStatistics as WorkerStatistics,
)
from entity_env.vec.vec_env import VecEnv as VecEnv

if TYPE_CHECKING:
    from entity_env.vec.evaluation.evaluate import (
        AgentScores as AgentScores,
        evaluate as evaluate,
    )
    from entity_env.vec.evaluation.evaluator import Evaluator as Evaluator
    from entity_env.vec.evaluation.random_baseline import RandomBaseline as RandomBaseline
    from entity_env.vec.external.game import ExternalGame as ExternalGame
    from entity_env.vec.game_training import GameTraining as GameTraining

_LATE = {
    **dict.fromkeys(("AgentScores", "evaluate"), "evaluation.evaluate"),
    "Evaluator": "evaluation.evaluator",
    "ExternalGame": "external.game",
    "GameTraining": "game_training",
    "RandomBaseline": "evaluation.random_baseline",
}

_DEPRECATED = {"TrainingReplays": "entity_env.replay.TrainingReplays"}

__getattr__ = late_names(__name__, _LATE, deprecated=_DEPRECATED)
