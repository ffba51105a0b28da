"""BatchPolicy: an agent that can decide for many observations at once."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from entity_env.authoring.schema import Schema
from entity_env.core.vec_obs import VecActions, VecObs


@runtime_checkable
class BatchPolicy(Protocol):
    """Decides for a whole batch, as `act` does for one observation."""

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        """One value for every actor of the batch.

        Args:
            obs: the observations.
            schema: of the game that shows them.

        Raises:
            CheckpointError: the agent was trained for another schema.
        """
