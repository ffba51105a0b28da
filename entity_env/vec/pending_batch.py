"""Delivered: a batch that was returned, and what must be known of it until it is answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError
from entity_env.vec.step import BatchStep, row_of


@dataclass(eq=False)
class Delivered:
    """A batch that was returned.

    Args:
        groups: which it shows, in order.
        envs: the environments of each.
        obs: the batch.
        num_agents: rows an environment.
    """

    groups: list[int]
    envs: list[range]
    obs: VecObs
    num_agents: int

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Every group with its first row and the one behind its last."""
        first = 0
        for group, envs in zip(self.groups, self.envs, strict=True):
            last = first + len(envs) * self.num_agents
            yield group, first, last
            first = last

    def env_ids(self) -> set[int]:
        """Whom it shows."""
        return {env_id for envs in self.envs for env_id in envs}

    def keep(self) -> None:
        """Lets rows of groups that are under way be found also when others have gone on.

        Lengths lie in memory that those write their next but one step to.
        """
        for features in self.obs.features.values():
            features.offsets  # noqa: B018 - is worked out once, and remembered
        for visible in self.obs.visible.values():
            visible.offsets  # noqa: B018

    def require_going_on(self, is_over: NDArray[np.bool_]) -> None:
        """Checks that nobody here waits for a reset.

        Raises:
            ProtocolError: somebody does.
        """
        over = [e.start + i for e in self.envs for i in np.flatnonzero(is_over[e.start : e.stop])]
        if over:
            raise ProtocolError(
                f"the episodes of environments {list(map(int, over[:20]))} have ended: call "
                "reset_envs for them before act"
            )

    def where(self, row: int) -> str:
        """Names a row."""
        env_id, agent_id = int(self.obs.env_id[row]), int(self.obs.agent_id[row])
        return f"env {env_id}" if self.num_agents == 1 else f"env {env_id}, agent {agent_id}"


def lost_rows(
    step: BatchStep,
    env_id: NDArray[np.int64],
    agent_id: NDArray[np.int64],
    previous: Mapping[int, Delivered],
) -> list[VecObs]:
    """For every lost episode the batch of one row that showed it last.

    Args:
        step: with the lost episodes.
        env_id, agent_id: `(num_rows,)` whose rows those of the step are.
        previous: what each group of the step showed before. Such a batch may show others as well,
            but these have gone on since.
    """
    rows: list[VecObs] = []
    for row in step.lost.rows.tolist():
        for group, batch in previous.items():
            if env_id[row] in batch.envs[batch.groups.index(group)]:
                obs = batch.obs
                is_it = (obs.env_id == env_id[row]) & (obs.agent_id == agent_id[row])
                rows.append(row_of(obs, int(np.flatnonzero(is_it)[0])))
    return rows
