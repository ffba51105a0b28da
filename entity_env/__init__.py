"""entity_env: one game file in plain Python that you can play, train and ship."""

from entity_env import interrupts as _interrupts  # noqa: F401 - before any slow import

# isort: split
from typing import TYPE_CHECKING

from entity_env.authoring.action_type import (
    ActionType as ActionType,
    Categorical as Categorical,
    Composite as Composite,
    Continuous as Continuous,
    GlobalCategorical as GlobalCategorical,
    GlobalComposite as GlobalComposite,
    SelectEntity as SelectEntity,
)
from entity_env.authoring.entity_type import HIDDEN as HIDDEN, Features as Features
from entity_env.authoring.game import Game as Game
from entity_env.authoring.local_run import Turn as Turn
from entity_env.authoring.obs import Obs as Obs
from entity_env.authoring.schema import Schema as Schema
from entity_env.core.action_request import Question as Question, questions as questions
from entity_env.core.environment import Environment as Environment
from entity_env.core.episode import Episode as Episode
from entity_env.core.observation import (
    Action as Action,
    ActionMask as ActionMask,
    CategoricalAction as CategoricalAction,
    CategoricalActionMask as CategoricalActionMask,
    ContinuousAction as ContinuousAction,
    ContinuousActionMask as ContinuousActionMask,
    GlobalCategoricalAction as GlobalCategoricalAction,
    GlobalCategoricalActionMask as GlobalCategoricalActionMask,
    Observation as Observation,
    SelectEntityAction as SelectEntityAction,
    SelectEntityActionMask as SelectEntityActionMask,
)
from entity_env.core.seeding import SplitMix64 as SplitMix64
from entity_env.core.spaces import (
    GLOBAL_ENTITY as GLOBAL_ENTITY,
    ActionName as ActionName,
    ActionSpace as ActionSpace,
    CategoricalActionSpace as CategoricalActionSpace,
    ContinuousActionSpace as ContinuousActionSpace,
    Entity as Entity,
    EntityName as EntityName,
    GlobalCategoricalActionSpace as GlobalCategoricalActionSpace,
    ObsSpace as ObsSpace,
    SelectEntityActionSpace as SelectEntityActionSpace,
)
from entity_env.core.validation import Range as Range
from entity_env.errors import (
    AnswerError as AnswerError,
    CheckpointError as CheckpointError,
    ClosedError as ClosedError,
    ContractError as ContractError,
    EntityEnvError as EntityEnvError,
    GameExit as GameExit,
    MissingExtraError as MissingExtraError,
    ProtocolError as ProtocolError,
    ReplayError as ReplayError,
    SchemaError as SchemaError,
    TrainingDivergedError as TrainingDivergedError,
    UsageError as UsageError,
    WorkerError as WorkerError,
)
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.check import check_env as check_env, check_game as check_game
    from entity_env.core.ragged import RaggedArray as RaggedArray
    from entity_env.core.vec_obs import (
        Metric as Metric,
        VecActions as VecActions,
        VecCategoricalActionMask as VecCategoricalActionMask,
        VecContinuousActionMask as VecContinuousActionMask,
        VecEnvironment as VecEnvironment,
        VecObs as VecObs,
        VecSelectEntityActionMask as VecSelectEntityActionMask,
    )
    from entity_env.episodes.episode_env import EpisodeEnv as EpisodeEnv, Step as Step
    from entity_env.episodes.record import Record as Record

# Imported on first use: a shipped game needs none of them, and they load numpy or `vec`.
_LATE = {
    "RaggedArray": "core.ragged",
    **dict.fromkeys(
        (
            "Metric",
            "VecActions",
            "VecCategoricalActionMask",
            "VecContinuousActionMask",
            "VecEnvironment",
            "VecObs",
            "VecSelectEntityActionMask",
        ),
        "core.vec_obs",
    ),
    "EpisodeEnv": "episodes.episode_env",
    "Record": "episodes.record",
    "Step": "episodes.episode_env",
    "check_env": "check",
    "check_game": "check",
}

__getattr__ = late_names(__name__, _LATE)
