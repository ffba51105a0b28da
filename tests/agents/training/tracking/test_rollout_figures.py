"""Figures of rollouts: first episodes, choices, and scores that drop."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env.agents.training.rollout_buffer import Trajectories
from entity_env.agents.training.tracking import rollout_figures
from entity_env.agents.training.tracking.rollout_figures import RolloutFigures, RolloutMeter
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from tests.agents.ppo.small_envs import ragged

_SPACES: dict[str, ActionSpace] = {
    "side": CategoricalActionSpace(("left", "right", "up")),
    "hit": SelectEntityActionSpace(),
    "push": ContinuousActionSpace([0.0], [1.0]),
}


def _rollout(rewards: list[list[float]], done: list[list[int]]) -> Trajectories:
    """A rollout of rows that always decide, with these rewards and ends."""
    found = Trajectories.empty(len(rewards), len(rewards[0]))
    found.is_ready[:] = True
    found.rewards[:] = rewards
    found.terminated[:] = np.array(done, np.bool_)
    return found


def _counted(masks: dict[str, VecActionMask]) -> RolloutFigures:
    meter = RolloutMeter(1, 1, _SPACES)
    meter.add(_rollout([[0.0]], [[0]]), masks, {})
    return meter.figures


class TestFirstEpisodes:
    def test_over_several_rollouts(self) -> None:
        meter = RolloutMeter(2, 2, _SPACES)
        meter.add(_rollout([[1, 2], [1, 2], [5, 2]], [[0, 0], [1, 0], [0, 0]]), {}, {})
        figures = meter.figures
        assert (figures.num_first, figures.first_mean, figures.first_std) == (1, 2.0, 0.0)
        assert figures.first_length == 2.5
        meter.add(_rollout([[5, 2], [9, 9]], [[1, 1], [1, 1]]), {}, {})
        figures = meter.figures
        assert (figures.num_first, figures.first_mean, figures.first_std) == (2, 5.0, 3.0)
        assert figures.first_length == 3.0

    @given(st.integers(0, 2**32 - 1), st.integers(1, 9))
    def test_equal_those_of_a_loop(self, seed: int, length: int) -> None:
        rng = np.random.default_rng(seed)
        rewards = rng.integers(-1, 2, (3 * length, 4)).astype(np.float32)
        done = rng.random((3 * length, 4)) < 0.2
        restarted = rng.random((3, 4)) < 0.3
        meter = RolloutMeter(4, 4, _SPACES)
        for part in range(3):
            meter.restart(np.flatnonzero(restarted[part]))
            at = slice(part * length, (part + 1) * length)
            meter.add(_rollout(rewards[at].tolist(), done[at].tolist()), {}, {})
        firsts, changes, returns, steps = [], 0, 0, 0
        own: list[float]
        for row in range(4):
            score, is_first, own, own_steps = 0.0, True, [], 0
            for t, (reward, ends) in enumerate(zip(rewards[:, row], done[:, row], strict=True)):
                if not t % length and restarted[t // length, row]:
                    score, is_first, own, own_steps = 0.0, True, [], 0
                own_steps += is_first
                changes += bool(score and reward and not ends)
                returns += bool(score and reward and not ends and not score + reward)
                score += float(reward)
                if ends:
                    own += [score] * is_first
                    score, is_first = 0.0, False
            firsts += own
            steps += own_steps
        figures = meter.figures
        assert (figures.num_changes, figures.num_returns) == (changes, returns)
        assert (figures.num_first, figures.first_reward) == (len(firsts), sum(firsts))
        assert figures.first_steps == steps

    def test_of_ranks_add_up(self) -> None:
        meter = RolloutMeter(2, 2, _SPACES)
        meter.add(_rollout([[1, 2], [1, 2]], [[0, 0], [1, 1]]), {}, {})
        report = json.loads(json.dumps([*meter.figures]))  # as sent between ranks
        both = RolloutFigures.merged([report, report])
        assert both.num_rows == 4
        assert both.first_mean == meter.figures.first_mean == 3.0
        assert RolloutFigures.merged([report]) == meter.figures

    def test_none_before_the_first_ends(self) -> None:
        assert math.isnan(RolloutFigures().first_mean)
        assert math.isnan(RolloutFigures().first_std)


class TestChoices:
    def test_masks_of_labels(self) -> None:
        mask = RaggedArray(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]], np.bool_), np.array([2, 1]))
        figures = _counted({"side": VecCategoricalActionMask(ragged([[0, 1], [0]]), mask)})
        assert (figures.num_decisions, figures.num_forced, figures.num_actors) == (2, 1, 3)
        assert figures.uniform_entropy == pytest.approx(math.log(2))
        assert figures.forced == 0.5
        free = _counted({"side": VecCategoricalActionMask(ragged([[0, 1], [0]]))})
        assert free.uniform_entropy == pytest.approx(3 * math.log(3))

    def test_masks_of_entities(self) -> None:
        actors, actees = ragged([[0, 1], [0], []]), ragged([[0, 1], [3], [1]])
        mask = RaggedArray(np.array([1, 1, 0, 1, 1], np.bool_), np.array([4, 1, 0]))
        figures = _counted({"hit": VecSelectEntityActionMask(actors, actees, mask)})
        assert (figures.num_decisions, figures.num_forced) == (3, 2)
        assert figures.uniform_entropy == pytest.approx(math.log(2))
        free = _counted({"hit": VecSelectEntityActionMask(actors, actees)})
        assert (free.num_forced, free.actors) == (2, 1.0)
        assert free.uniform_entropy == pytest.approx(2 * math.log(2))

    def test_real_numbers_are_always_free(self) -> None:
        figures = _counted({"push": VecContinuousActionMask(ragged([[0], [0]]))})
        assert figures.num_forced == 0
        assert (figures.uniform_entropy, figures.num_reals, figures.random_entropy) == (0, 2, 1)

    def test_a_decision_is_free_if_one_of_its_actions_is(self) -> None:
        only = RaggedArray(np.array([[1, 0, 0]], np.bool_), np.array([1]))
        forced: VecActionMask = VecCategoricalActionMask(ragged([[0]]), only)
        free: VecActionMask = VecContinuousActionMask(ragged([[0]]))
        assert _counted({"side": forced}).num_forced == 1
        assert _counted({"side": forced, "push": free}).num_forced == 0


class TestRepeatedDecisions:
    def _figures(
        self, rows: list[list[float]], choices: list[list[int]], rewards: list[float]
    ) -> RolloutFigures:
        """Of decisions on entities with one feature each."""
        features = {
            "A": RaggedArray.from_rows([np.array(x, np.float32)[:, None] for x in rows], np.float32)
        }
        obs = EntityBatch(features, {}, {})
        samples = {
            "side": RaggedArray.from_rows([np.array(x, np.int64) for x in choices], np.int64)
        }
        meter = RolloutMeter(1, 1, _SPACES)
        meter.add_decisions(obs, samples, np.array(rewards, np.float32))
        return meter.figures

    @given(
        st.lists(
            st.tuples(
                st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5]), max_size=2),
                st.lists(st.integers(0, 1), max_size=2),
                st.integers(-3, 3),
            ),
            min_size=1,
            max_size=30,
        )
    )
    def test_they_are_those_of_a_dictionary(
        self, decisions: list[tuple[list[float], list[int], int]]
    ) -> None:
        groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for row, choice, reward in decisions:
            groups[tuple(sorted(row)), tuple(choice)].append(reward)
        found = self._figures(
            [row for row, _, _ in decisions],
            [choice for _, choice, _ in decisions],
            [reward for _, _, reward in decisions],
        )
        repeated = [each for each in groups.values() if len(each) > 1]
        if len({reward for _, _, reward in decisions}) < 2:
            assert found.num_repeated == 0
            return
        assert found.num_repeated == sum(map(len, repeated))
        assert found.num_repetitions == len(repeated)
        everything = [reward for each in repeated for reward in each]
        assert found.repeated_squares == pytest.approx(_squares(everything))
        assert found.unexplained_squares == pytest.approx(sum(map(_squares, repeated)))

    @pytest.mark.parametrize(("is_hidden", "expected"), [(True, 1.0), (False, 0.0)])
    def test_the_share_tells_what_is_hidden(self, is_hidden: bool, expected: float) -> None:
        rng = np.random.default_rng(0)
        keys, choices = rng.integers(0, 4, (2, 2000))
        rewards = (keys == choices).astype(float).tolist()
        shown: NDArray[np.int64] = keys * 0 if is_hidden else keys
        figures = self._figures(shown[:, None].tolist(), choices[:, None].tolist(), rewards)
        assert figures.unexplained == pytest.approx(expected, abs=0.02)

    def test_large_rollouts_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rollout_figures, "_MOST_NUMBERS", 3)
        assert self._figures([[0.0], [0.0]], [[0], [0]], [0, 1]).num_repeated == 0
        assert RolloutFigures().unexplained == 0


def _squares(values: list[float]) -> float:
    return float(np.square(np.array(values) - np.mean(values)).sum()) if values else 0.0
