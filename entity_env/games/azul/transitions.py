"""Transitions from one decision of a player to the next, with the rewards in between."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import ProtocolError
from entity_env.games.azul.engine.rules import MAX_PLAYERS
from entity_env.games.azul.env import EnvStep


class Transition(NamedTuple):
    """One decision of one player, up to that player's next decision.

    Attributes:
        observation_before: `(obs_size,)` float32.
        mask_before: `(300,)` bool, legal actions.
        reward: sum of the player's rewards until the next decision or the end of the episode.
        observation_after: `(obs_size,)` float32, at the next decision or the end.
        mask_after: `(300,)` bool, legal actions then; all False at the end.
        done: terminated or truncated.
    """

    player: int
    observation_before: NDArray[np.float32]
    mask_before: NDArray[np.bool_]
    action_id: int
    reward: float
    observation_after: NDArray[np.float32]
    mask_after: NDArray[np.bool_]
    done: bool
    truncated: bool


class TransitionLog:
    """Converts the steps of an episode to transitions.

    The end of a round changes the scores of all players, so rewards from other players' moves add
    up until the player decides again. Rewards before a player's first decision are omitted.

    Example:
        >>> import numpy as np
        >>> from entity_env.games.azul import AzulEnv, TransitionLog
        >>> env = AzulEnv(seed=1)
        >>> log = TransitionLog(env.reset())
        >>> transitions = []
        >>> while not log.step.done:
        ...     action_id = int(np.flatnonzero(log.step.legal_action_mask)[0])
        ...     transitions += log.add(env.step(action_id))
        >>> transitions[-1].done
        True

    Args:
        step: result of `AzulEnv.reset`; a log covers one episode.
    """

    def __init__(self, step: EnvStep) -> None:
        self.step = step
        self._decisions: dict[int, tuple[EnvStep, int]] = {}
        self._rewards: Final = [0.0] * MAX_PLAYERS

    def add(self, step: EnvStep) -> list[Transition]:
        """Adds the next step.

        Returns:
            Completed transitions: the last transition of the player to move now, if any; at the
                end, those of all players by seat. They share the arrays of the steps.

        Raises:
            ProtocolError: the episode is over, or the step follows a reset: start a new log.
        """
        if self.step.done or step.last_action is None:
            reason = "its episode is over" if self.step.done else "a reset begins another episode"
            raise ProtocolError(f"Azul: TransitionLog cannot add a step: {reason}; make a new log")
        self._decisions[self.step.current_player] = (self.step, step.last_action)
        for player in self._decisions:
            self._rewards[player] += float(step.rewards[player])
        self.step = step
        if step.done:
            return [self._completed(player) for player in sorted(self._decisions)]
        is_known = step.current_player in self._decisions
        return [self._completed(step.current_player)] if is_known else []

    def _completed(self, player: int) -> Transition:
        before, action_id = self._decisions.pop(player)
        reward, self._rewards[player] = self._rewards[player], 0.0
        after = self.step
        return Transition(
            player,
            before.observations[player],
            before.legal_action_mask,
            action_id,
            reward,
            after.observations[player],
            after.legal_action_mask,
            after.done,
            after.truncated,
        )
