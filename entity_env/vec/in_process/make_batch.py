"""Makes the `ProcessBatch` of one process, for any source."""

from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import no_exits
from entity_env.vec.batch_env.source import BatchSource
from entity_env.vec.external.batch import ProgramBatch
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.in_process.environments import EnvironmentBatch
from entity_env.vec.in_process.games import GameBatch
from entity_env.vec.options import VecOptions
from entity_env.vec.process_batch import ProcessBatch


def make_process_batch(options: VecOptions, envs: range) -> ProcessBatch:
    """Makes some of the environments of a `VecEnv`, in this process; errors as for `VecEnv`."""
    source = options.source
    with no_exits("while environments were made"):
        if isinstance(source, BatchSource):
            return source.make(envs, options.num_envs, options.autoreset)
        if isinstance(source, ExternalGame):
            return ProgramBatch(source, options, envs)
        if isinstance(source, Game):
            return GameBatch(source, options, envs)
        return EnvironmentBatch(source, options, envs)
