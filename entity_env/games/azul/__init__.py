"""Azul, the base game for 2 to 4 players: rules, environments, players.

`new_game`, `legal_actions` and `apply_action` play one game. `FastGame`, `AzulEnv`, `AzulBatch` and
`play_many` play by action ids under the same rules, compiled if numba is installed.
"""

from typing import TypeAlias

from entity_env.games.azul.batch import AzulBatch as AzulBatch
from entity_env.games.azul.engine.actions import (
    ACTION_SPACE_SIZE as ACTION_SPACE_SIZE,
    ACTIONS as ACTIONS,
    Action as Action,
    ActionEncoder as ActionEncoder,
    ActionId as ActionId,
    Color as Color,
    DraftDestination as DraftDestination,
    DraftSource as DraftSource,
    EpisodeDone as EpisodeDone,
    IllegalAction as IllegalAction,
    InvalidActionId as InvalidActionId,
    StepError as StepError,
)
from entity_env.games.azul.engine.engine import (
    apply_action as apply_action,
    apply_in_place as apply_in_place,
    legal_actions as legal_actions,
    new_game as new_game,
    winners as winners,
)
from entity_env.games.azul.engine.state import (
    ENDS as ENDS,
    End as End,
    GameState as GameState,
    Phase as Phase,
    Player as Player,
)
from entity_env.games.azul.engine.tile_draws import Draw as Draw, RandomSource as RandomSource
from entity_env.games.azul.env import (
    AzulEnv as AzulEnv,
    EnvConfig as EnvConfig,
    EnvStep as EnvStep,
    RewardScheme as RewardScheme,
)
from entity_env.games.azul.features import (
    FeatureExtractor as FeatureExtractor,
    PositionEncoder as PositionEncoder,
)
from entity_env.games.azul.game import AzulGame as AzulGame, azul as azul, azul_by_id as azul_by_id
from entity_env.games.azul.players.agents import (
    AgentInput as AgentInput,
    AzulAgent as AzulAgent,
    EntityAgent as EntityAgent,
    GreedyAgent as GreedyAgent,
    HumanAgent as HumanAgent,
    MCTSAgent as MCTSAgent,
    RandomAgent as RandomAgent,
    RushAgent as RushAgent,
)
from entity_env.games.azul.players.match import (
    GameResult as GameResult,
    Match as Match,
    Standing as Standing,
    play_game as play_game,
    play_match as play_match,
)
from entity_env.games.azul.players.playouts import Playouts as Playouts, play_many as play_many
from entity_env.games.azul.self_play import AzulSelfPlay as AzulSelfPlay
from entity_env.games.azul.single_game import FastGame as FastGame, Observation as Observation
from entity_env.games.azul.transitions import (
    Transition as Transition,
    TransitionLog as TransitionLog,
)
from entity_env.games.azul.viewer import (
    describe_end as describe_end,
    describe_move as describe_move,
    draw_state as draw_state,
    has_colours as has_colours,
    legal_moves as legal_moves,
    read_move as read_move,
)

Agent: TypeAlias = AzulAgent
"""Alias of `AzulAgent`; the `Agent` that games take is `entity_env.agents.Agent`."""
