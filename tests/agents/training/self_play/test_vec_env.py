"""Opponents in some environments: rows, seats, results and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Game
from entity_env.agents import HumanAgent, RandomAgent, random_actions
from entity_env.agents.ppo.self_play import Opponent, SelfPlayVecEnv
from entity_env.core.vec_obs import VecActions, VecCategoricalActionMask, VecObs
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.games import rock_paper_scissors, snake, tic_tac_toe
from entity_env.vec import VecEnv
from tests.agents.training.self_play.reference import PlainSelfPlay, hashing_opponent, listed
from tests.helpers.tiny_games import in_turn, together

RANDOM = Opponent.of_agent("random", RandomAgent(seed=1), tic_tac_toe.schema)
GAMES = (tic_tac_toe, rock_paper_scissors, in_turn, together, together.with_settings(loops=True))


def played(vec: SelfPlayVecEnv, num_steps: int, seed: int = 0) -> list[VecObs]:
    """Copies of the batches of random play."""
    rng = np.random.default_rng(seed)
    batches = [vec.reset(seed).copy()]
    for _ in range(num_steps):
        batches.append(vec.act(random_actions(batches[-1], vec.action_space(), rng)).copy())
    return batches


@pytest.mark.slow
@given(
    game=st.sampled_from(GAMES),
    num_envs=st.integers(1, 5),
    num_opponents=st.integers(1, 3),
    share=st.sampled_from([0.2, 0.5, 0.75, 1.0]),
    openings=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 999),
)
@settings(max_examples=20)
def test_plays_as_the_plain_reference(
    game: Game, num_envs: int, num_opponents: int, share: float, openings: float, seed: int
) -> None:
    space = game.action_space()
    opponents = [hashing_opponent(f"o{i}", space) for i in range(num_opponents)]
    rng, num_steps = np.random.default_rng(seed), 12
    with VecEnv(game, num_envs) as inner, VecEnv(game, num_envs) as plain_inner:
        plain = PlainSelfPlay(plain_inner, opponents, share, openings, seed)
        vec = SelfPlayVecEnv(inner, opponents, share=share, random_openings=openings, seed=seed)
        obs, expected = vec.reset(seed), plain.reset(seed)
        assert listed(obs) == expected
        for step in range(num_steps):
            actions = random_actions(obs, space, rng)
            obs, expected = vec.act(actions), plain.act(actions)
            assert listed(obs) == expected
            if step % 3 == 2:
                mask = (rng.random(num_envs) < 0.4).tolist()
                obs, expected = vec.reset_envs(mask), plain.reset_envs(mask)
                assert listed(obs) == expected


def test_games_that_are_cut_off_have_no_result() -> None:
    with VecEnv(tic_tac_toe, 4) as inner:
        vec = SelfPlayVecEnv(inner, [RANDOM])
        rng = np.random.default_rng(0)
        obs = vec.reset(0)
        for _ in range(40):
            for _ in range(2):
                obs = vec.act(random_actions(obs, vec.action_space(), rng))
                assert not list(obs.episodes)
            obs = vec.reset_envs([True] * 4)
        assert vec.take_results() == []


@pytest.mark.slow
@pytest.mark.parametrize("game", [tic_tac_toe, together])
def test_workers_make_no_difference(game: Game) -> None:
    space = game.action_space()
    found = []
    for num_workers in (0, 2):
        opponents = [hashing_opponent(f"o{i}", space) for i in range(2)]
        inner = VecEnv(game, 6, num_workers)
        with SelfPlayVecEnv(inner, opponents, share=0.5) as vec:
            found.append([listed(obs) for obs in played(vec, 30)])
    assert found[0] == found[1]


@pytest.mark.slow
def test_every_seat_is_played_equally_often() -> None:
    one = hashing_opponent("one", together.action_space())
    with SelfPlayVecEnv(VecEnv(together, 6), [one]) as vec:
        played(vec, 120)
        seats = Counter(result.seat for result in vec.take_results())
    assert len(seats) == 3
    assert max(seats.values()) - min(seats.values()) <= 0.2 * max(seats.values())
    assert vec.take_results() == []


def test_results_are_those_of_the_games() -> None:
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 8), [RANDOM], share=0.5) as vec:
        batches = played(vec, 60)
        results = vec.take_results()
    episodes = [one for obs in batches for one in obs.episodes]
    assert len(results) == len(episodes) > 10
    assert [result.rewards[result.seat] for result in results] == [one.reward for one in episodes]
    assert {result.score for result in results} == {0.0, 0.5, 1.0}
    for result in results:
        assert sum(result.rewards) == 0
        assert result.score == (result.rewards[result.seat] + 1) / 2
    wins = [obs.metrics["wins_random"] for obs in batches if "wins_random" in obs.metrics]
    assert sum(metric.count for metric in wins) == len(results)
    assert sum(metric.sum for metric in wins) == sum(result.score for result in results)


def test_games_keep_their_opponent_to_the_end() -> None:
    space = tic_tac_toe.action_space()
    decided: list[tuple[str, list[int]]] = []

    def noting(name: str) -> Opponent:
        inner = hashing_opponent(name, space)

        def decide(obs: VecObs) -> VecActions:
            decided.append((name, obs.env_id.tolist()))
            return inner.decide(obs)

        return Opponent(name, decide, name)

    opponents, rng = [noting(name) for name in "ab"], np.random.default_rng(0)
    names: dict[int, set[str]] = {env: set() for env in range(8)}
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 8), opponents) as vec:
        obs = vec.act(random_actions(vec.reset(0), space, rng))  # both have made a trial decision
        for step in range(40):
            decided.clear()
            obs = vec.act(random_actions(obs, space, rng))
            vec.set_opponents([opponents[step // 2 % 2]])
            for name, env_ids in decided:
                for env_id in env_ids:
                    names[env_id].add(name)
            for env_id in set(obs.env_id[obs.done].tolist()):
                assert len(names[env_id]) <= 1
                names[env_id].clear()
        assert {result.opponent.name for result in vec.take_results()} == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), ("a",)])
def test_openings_are_random_and_not_the_learners(names: tuple[str, ...]) -> None:
    """The learner always takes the first free square, yet sees every first move of the others."""
    space = tic_tac_toe.action_space()
    opponents = [hashing_opponent(name, space) for name in names]
    seen: Counter[int] = Counter()
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 16), opponents, random_openings=1.0) as vec:
        obs = vec.reset(0)
        for _ in range(60):
            mask = obs.action_masks["Square"]
            assert isinstance(mask, VecCategoricalActionMask)
            assert mask.mask is not None
            assert not (mask.mask.values.all(axis=1)).any(), "an empty board is an opening"
            theirs = obs.features["Theirs"]
            first = np.flatnonzero((theirs.lengths == 1) & (obs.features["Mine"].lengths == 0))
            seen.update(int(x + 3 * y) for row in first for x, y in theirs[row])
            obs = vec.act({"Square": mask.mask.values.argmax(axis=1)})
    assert len(seen) == 9


def test_without_opponents_openings_lose_no_episode() -> None:
    rng = np.random.default_rng(0)
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 16), random_openings=1.0) as vec:
        obs, num_done, num_episodes = vec.reset(0), 0, 0
        for _ in range(60):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            num_done += int(obs.done.sum())
            num_episodes += len(obs.episodes)
    assert num_done == num_episodes > 100


def test_the_share_of_openings_is_checked() -> None:
    with VecEnv(tic_tac_toe, 4) as inner, pytest.raises(UsageError, match="must be a share"):
        SelfPlayVecEnv(inner, random_openings=1.5)


def test_too_many_opponents_are_replaced_and_their_games_have_no_result() -> None:
    space = tic_tac_toe.action_space()
    opponents = [hashing_opponent(f"o{i}", space) for i in range(6)]
    rng = np.random.default_rng(0)
    with SelfPlayVecEnv(
        VecEnv(tic_tac_toe, 8), opponents[:2], max_opponents=3, random_openings=0.5
    ) as vec:
        obs = vec.reset(0)
        for _ in range(20):
            obs = vec.act(random_actions(obs, space, rng))
            vec.set_opponents([opponents[i] for i in rng.choice(6, 2, replace=False)])
            assert len(vec.opponents) <= 3
        assert len(vec.take_results()) < 30
        with pytest.raises(UsageError, match="at most 3 opponents play at the same time"):
            vec.set_opponents(opponents[:4])
        with pytest.raises(UsageError, match="weights must be 2 numbers above 0"):
            vec.set_opponents(opponents[:2], [1, 0])


def test_without_opponents_the_learner_has_all_seats() -> None:
    with VecEnv(tic_tac_toe, 4) as inner, SelfPlayVecEnv(VecEnv(tic_tac_toe, 4)) as vec:
        rng = np.random.default_rng(0)
        plain = [inner.reset(0).copy()]
        for _ in range(30):
            plain.append(inner.act(random_actions(plain[-1], vec.action_space(), rng)).copy())
        assert [listed(obs) for obs in played(vec, 30)] == [listed(obs) for obs in plain]
        assert vec.take_results() == []


@pytest.mark.slow
def test_weights_are_those_of_the_draws() -> None:
    opponents = [hashing_opponent(f"o{i}", rock_paper_scissors.action_space()) for i in range(2)]
    with SelfPlayVecEnv(VecEnv(rock_paper_scissors, 50)) as vec:
        vec.set_opponents(opponents, [1, 4])
        played(vec, 50)
        counts = Counter(result.opponent.name for result in vec.take_results())
    assert 0.7 < counts["o1"] / counts.total() < 0.9


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda count: {"Square": np.full(count, 9)}, "chose 9, expected 0 to 8"),
        (lambda count: {}, "action 'Square' is missing"),
        (lambda count: {"Squares": np.zeros(count)}, "'Squares' is not in the action space"),
    ],
)
def test_an_illegal_answer_names_the_opponent_and_nothing_has_happened(
    answer: Callable[[int], VecActions], message: str
) -> None:
    bad = Opponent("bad", lambda obs: answer(len(obs)), "bad")
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 4), [bad]) as vec:
        obs = vec.reset(1)
        before = listed(obs)
        actions = random_actions(obs, vec.action_space(), np.random.default_rng(0))
        with pytest.raises(SchemaError, match=f"the opponent bad cannot play: .*{message}"):
            vec.act(actions)
        assert listed(obs) == before
        with pytest.raises(SchemaError, match="the opponent bad"):
            vec.act(actions)


def test_calls_out_of_order_and_wrong_actions_are_refused() -> None:
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, 4), [RANDOM]) as vec:
        with pytest.raises(ProtocolError, match="call reset first"):
            vec.send({})
        obs = vec.reset(1)
        actions = random_actions(obs, vec.action_space(), np.random.default_rng(0))
        with pytest.raises(ProtocolError, match="no actions were sent"):
            vec.recv()
        with pytest.raises(SchemaError, match="one per actor"):
            vec.send({"Square": np.zeros(9, np.int64)})
        vec.send(actions)
        with pytest.raises(ProtocolError, match="sent already"):
            vec.send(actions)
        vec.recv()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SelfPlayVecEnv(VecEnv(snake, 2)), "a game for several agents"),
        (lambda: SelfPlayVecEnv(VecEnv(tic_tac_toe, 2), share=0.0), "share"),
        (lambda: SelfPlayVecEnv(VecEnv(tic_tac_toe, 2, autoreset="disabled")), "same_step"),
        (
            lambda: SelfPlayVecEnv(VecEnv(tic_tac_toe, 2), max_opponents=0),
            "max_opponents must be an integer",
        ),
        (
            lambda: Opponent.of_agent("me", HumanAgent(), tic_tac_toe.schema),
            "an opponent must decide for batches",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
