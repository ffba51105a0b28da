"""meteors: the loop and the numpy rules play the same episodes."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, UsageError
from entity_env.agents import RandomAgent
from entity_env.games import meteors
from entity_env.games.meteor_shower import Meteors
from entity_env.games.meteor_shower.meteors import Steer
from entity_env.vec.batch_env.batch_env import StepResult
from tests.helpers.strategies import FEW

SETTINGS = ("width", "height", "num_meteors", "max_episode_steps")
SKIES = st.fixed_dictionaries(
    {
        "width": st.integers(1, 6),
        "height": st.integers(2, 7),
        "num_meteors": st.integers(1, 5),
        "max_episode_steps": st.integers(1, 30),
    }
)


@FEW
@given(st.integers(0, 2**63 - 1), SKIES, st.lists(st.integers(0, 2), min_size=33, max_size=33))
def test_the_loop_plays_what_the_batch_plays(
    seed: int, sky: dict[str, int], moves: list[int]
) -> None:
    env = Meteors(3, **sky)
    env.reset(seed)
    shown = [played(int(each), sky, moves[i:]) for i, each in enumerate(env.env_seeds(seed))]
    for step in range(max(map(len, shown))):
        if step:
            env.reset_envs(env.view().to_reset_mask())
            env.step_no_reset(np.array(moves[step - 1 : step + 2]))
        for i, each in enumerate(shown):
            if step < len(each):
                compare(each, step, env.view(), i)


class Player(RandomAgent):
    """Plays the given moves, and records observations with flags for end and truncation."""

    def __init__(self, moves: list[int]) -> None:
        super().__init__()
        self.moves = moves
        self.shown: list[tuple[Obs, bool | None]] = []

    def act(self, obs: Obs, /, *actions: object) -> Any:  # noqa: ANN401 - as in Agent
        self.shown.append((obs.frozen(), None))
        return list(Steer)[self.moves[len(self.shown) - 1]]

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        assert obs is not None
        self.shown.append((obs.frozen(), truncated))


def played(seed: int, sky: dict[str, int], moves: list[int]) -> list[tuple[Obs, bool | None]]:
    """Results of the loop."""
    player = Player(moves)
    meteors.play(player, seed=seed, **sky)
    return player.shown


def compare(shown: list[tuple[Obs, bool | None]], step: int, result: StepResult, i: int) -> None:
    obs, truncated = shown[step]
    [bodies] = obs.groups
    np.testing.assert_array_equal(bodies.values.reshape(-1), result.obs(i))  # type: ignore[union-attr]
    before = shown[step - 1][0].score if step else 0
    assert result.rewards[i] == obs.score - before
    assert result.is_done(i) == (truncated is not None)
    assert result.is_terminal(i) == (truncated is False)


@pytest.mark.parametrize("sky", [{"width": 0}, {"height": 1}, {"num_meteors": 0}])
def test_a_sky_without_cells_or_meteors_is_refused(sky: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="width and num_meteors must be at least 1, and height 2"):
        Meteors(1, **sky)


def test_the_loop_and_the_batch_have_the_same_defaults() -> None:
    of_batch = signature(Meteors).parameters
    of_loop = signature(meteors.play).parameters
    assert {name: of_loop[name].default for name in SETTINGS} == {
        name: of_batch[name].default for name in SETTINGS
    }
