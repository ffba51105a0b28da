"""What happens to an environment whose episode has ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
"""`same_step`: the row shows the first observation of the next episode, and `VecObs.final` the last
one of the old; reward and flags belong to the old. `next_step`: the row shows the last observation,
and the next `act` ignores the action and shows the first one of the next episode. `disabled`: the
row shows the last observation until `reset_envs` is called for that environment.

In a game for several agents an environment has ended when the episodes of all of them have. Until
then the rows of those that are over are empty, after the step that showed their last observation;
only with `same_step` can such an agent begin its next episode while the others still play."""
