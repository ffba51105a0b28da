"""All executors of many environments return the same batches as a slow reference."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Episode, Game
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import Autoreset
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.executors import EXECUTORS, Batch, ByHand, Executor, Make, Spaces, choose
from tests.helpers.tiny_games import (
    TINY_GAMES,
    ask,
    chaos,
    count,
    dots_game,
    play_chaos,
    together,
)

# Episodes short enough for tests to reach their end.
SHORT_GAMES = {
    name: game.with_settings(max_rounds=1) if "max_rounds" in game.parameters else game
    for name, game in PLAIN_GAMES.items()
}
ALL_GAMES = {**TINY_GAMES, **SHORT_GAMES}
MODES: tuple[Autoreset, ...] = get_args(Autoreset)
IN_PROCESS = {name: make for name, make in EXECUTORS.items() if not name.startswith("workers")}
OF_GAMES = {name: make for name, make in EXECUTORS.items() if not name.startswith("environments")}

Open: TypeAlias = Callable[[Executor], Executor]
"""Closes an executor at the end of the test."""


def runnable(name: str, game: Game) -> bool:
    """Whether an executor can run a game: an `Environment` is for one agent."""
    return name in OF_GAMES or game.num_agents == 1


PAIRS = [
    pytest.param(make, game, id=f"{name}-{key}", marks=[pytest.mark.slow] * ("azul" in key))
    for name, make in EXECUTORS.items()
    for key, game in ALL_GAMES.items()
    if runnable(name, game)
]
each_pair = pytest.mark.parametrize(("make", "game"), PAIRS)
each_game = pytest.mark.parametrize("game", ALL_GAMES.values(), ids=ALL_GAMES)
each_executor = pytest.mark.parametrize("make", EXECUTORS.values(), ids=EXECUTORS)
each_executor_in_process = pytest.mark.parametrize("make", IN_PROCESS.values(), ids=IN_PROCESS)
each_executor_of_games = pytest.mark.parametrize("make", OF_GAMES.values(), ids=OF_GAMES)
each_mode = pytest.mark.parametrize("autoreset", MODES)


@pytest.fixture
def opened() -> Iterator[Open]:
    executors: list[Executor] = []

    def keep(executor: Executor) -> Executor:
        executors.append(executor)
        return executor

    yield keep
    for executor in executors:
        executor.close()


def spaces_of(game: Game) -> Spaces:
    return game.obs_space(), game.action_space()


class Run:
    """Plays random legal actions, equal for equal batches and seeds."""

    def __init__(self, executor: Executor, game: Game, num_envs: int, seed: int = 0) -> None:
        self._executor = executor
        self._spaces = spaces_of(game)
        self._rng = np.random.default_rng(seed)
        self.batches: list[Batch] = []

    def reset(self, seed: int | None = None) -> Batch:
        return self._seen(self._executor.reset(seed))

    def step(self, *, resets: bool = False) -> Batch:
        """Acts; with autoreset disabled, resets some or all finished environments."""
        over = self._executor.is_over
        if resets and any(over):
            some = [each and bool(self._rng.integers(2)) for each in over]
            return self._seen(self._executor.reset_envs(some))
        return self._seen(self._executor.act(choose(self.batches[-1], self._spaces, self._rng)))

    def play(self, num_steps: int, *, resets: bool = False) -> list[Batch]:
        self.reset()
        for _ in range(num_steps):
            self.step(resets=resets)
        return self.batches

    def _seen(self, batch: Batch) -> Batch:
        self.batches.append(batch)
        return batch


def played(
    executor: Executor, game: Game, autoreset: Autoreset, num_envs: int = 3, num_steps: int = 16
) -> list[Batch]:
    return Run(executor, game, num_envs).play(num_steps, resets=autoreset == "disabled")


@cache
def reference(game: Game, autoreset: Autoreset) -> list[Batch]:
    executor = ByHand(game, 3, 5, autoreset)
    try:
        return played(executor, game, autoreset)
    finally:
        executor.close()


@each_pair
def test_all_show_what_stepping_by_hand_shows(make: Make, game: Game, opened: Open) -> None:
    for autoreset in MODES:
        batches = played(opened(make(game, 3, 5, autoreset)), game, autoreset)
        expected = reference(game, autoreset)
        for step, (batch, wanted) in enumerate(zip(batches, expected, strict=True)):
            assert batch == wanted, f"{autoreset}, step {step}"


@settings(max_examples=25)
@given(
    game=st.sampled_from([game for key, game in TINY_GAMES.items() if key != "count"]),
    make=st.sampled_from([make for name, make in IN_PROCESS.items() if name == "games-greenlet"]),
    autoreset=st.sampled_from(MODES),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 2**40),
)
def test_all_show_what_stepping_by_hand_shows_whatever_the_seed(
    game: Game, make: Make, autoreset: Autoreset, num_envs: int, seed: int
) -> None:
    reference: Executor = ByHand(game, num_envs, seed, autoreset)
    executor = make(game, num_envs, seed, autoreset)
    try:
        expected = played(reference, game, autoreset, num_envs, num_steps=12)
        assert played(executor, game, autoreset, num_envs, num_steps=12) == expected
    finally:
        reference.close()
        executor.close()


@each_executor_of_games
def test_environments_do_not_depend_on_each_other(make: Make, opened: Open) -> None:
    alone, among = (opened(make(count, num_envs, 3, "same_step")) for num_envs in (1, 4))
    for one, many in zip(
        played(alone, count, "same_step", num_envs=1),
        played(among, count, "same_step", num_envs=4),
        strict=True,
    ):
        assert many.rows[:1] == one.rows


class TestReference:
    """Rules for every batch. Checking the reference is enough, because all others equal it."""

    @each_game
    def test_seeds_follow_from_run_environment_and_episode(self, game: Game) -> None:
        seeds = [EpisodeSeeds(5, env_id) for env_id in range(3)]
        for episode in episodes_of(game):
            assert episode.seed == seeds[episode.env_id][episode.number]

    @each_game
    def test_numbers_of_episodes_count_up(self, game: Game) -> None:
        for autoreset in MODES:
            numbers: dict[tuple[int, int], list[int]] = {}
            by_env: dict[int, set[int]] = {}
            for batch in reference(game, autoreset):
                for episode in batch.episodes:
                    place = episode.env_id, episode.agent_id
                    numbers.setdefault(place, []).append(episode.number)
                    by_env.setdefault(episode.env_id, set()).add(episode.number)
            assert numbers
            for counted in numbers.values():  # with gaps for agents that took no part
                assert counted == sorted(set(counted))
            for found in by_env.values():
                assert found == set(range(len(found)))

    @each_game
    def test_rewards_add_up_to_those_of_the_episodes(self, game: Game) -> None:
        for autoreset in MODES:
            reward = np.zeros((3, game.num_agents))
            for batch in reference(game, autoreset):
                for i, row in enumerate(batch.rows):
                    reward[divmod(i, game.num_agents)] += row.reward
                for episode in batch.episodes:
                    place = episode.env_id, episode.agent_id
                    assert episode.reward == pytest.approx(reward[place], abs=1e-5)
                    reward[place] = 0

    @pytest.mark.parametrize("game", SHORT_GAMES.values(), ids=SHORT_GAMES)
    def test_lengths_count_the_actions(self, game: Game) -> None:
        length = np.zeros((3, game.num_agents), dtype=int)
        waits = np.zeros((3, game.num_agents), dtype=bool)
        for batch in reference(game, "same_step"):
            length += waits
            for i, row in enumerate(batch.rows):
                waits[divmod(i, game.num_agents)] = bool(row.asked)
            for episode in batch.episodes:
                assert episode.length == length[episode.env_id, episode.agent_id]
                length[episode.env_id, episode.agent_id] = 0

    @each_game
    def test_flags_and_final_observations_tell_of_the_same_episodes(self, game: Game) -> None:
        for batch in reference(game, "same_step"):
            ends = [(e.env_id, e.agent_id, e.terminated, e.truncated) for e in batch.episodes]
            final = [(env, agent, row.terminated, row.truncated) for env, agent, row in batch.final]
            assert sorted(final) == sorted(ends)
            for i, row in enumerate(batch.rows):
                mine = [end for end in ends if end[:2] == divmod(i, game.num_agents)]
                assert row.terminated == any(end[2] for end in mine)
                assert row.truncated == any(end[3] for end in mine)

    @each_game
    @pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
    def test_the_row_is_the_final_observation_unless_the_next_begins_at_once(
        self, game: Game, autoreset: Autoreset
    ) -> None:
        for batch in reference(game, autoreset):
            final = {(env, agent): row for env, agent, row in batch.final}
            for episode in batch.episodes:
                row = batch.rows[episode.env_id * game.num_agents + episode.agent_id]
                assert (row.terminated, row.truncated) == (episode.terminated, episode.truncated)
                assert not row.asked
                if final:  # not after a reset
                    last = final.pop((episode.env_id, episode.agent_id))
                    assert (last.features, last.hidden) == (row.features, row.hidden)
                    assert row.truncated or not last.asked
            assert not final


def episodes_of(game: Game) -> list[Episode]:
    return [
        e for autoreset in MODES for batch in reference(game, autoreset) for e in batch.episodes
    ]


class TestCount:
    """A game of three questions; its dot shows the number of answers."""

    @each_executor
    def test_same_step(self, make: Make, opened: Open) -> None:
        batches = played(opened(make(count, 1, 0, "same_step")), count, "same_step", 1, 6)
        assert [dots(batch) for batch in batches] == [0, 1, 2, 0, 1, 2, 0]
        assert [batch.rows[0].reward for batch in batches] == [0, 1, 1, 1, 1, 1, 1]
        assert [i for i, batch in enumerate(batches) if batch.rows[0].terminated] == [3, 6]
        [(env_id, agent_id, last)] = batches[3].final
        assert (env_id, agent_id) == (0, 0)
        assert last.features["Dot"] == [[3.0]]
        assert last.reward == 1
        assert last.terminated
        assert not last.asked

    @each_executor
    def test_next_step(self, make: Make, opened: Open) -> None:
        batches = played(opened(make(count, 1, 0, "next_step")), count, "next_step", 1, 6)
        assert [dots(batch) for batch in batches] == [0, 1, 2, 3, 0, 1, 2]
        assert [batch.rows[0].reward for batch in batches] == [0, 1, 1, 1, 0, 1, 1]
        assert [i for i, batch in enumerate(batches) if batch.rows[0].terminated] == [3]
        assert not batches[3].rows[0].asked

    @each_executor
    def test_disabled(self, make: Make, opened: Open) -> None:
        executor = opened(make(count, 2, 0, "disabled"))
        run = Run(executor, count, 2)
        run.play(3)
        again = executor.reset_envs([False, True])
        assert [row.features["Dot"] for row in again.rows] == [[[3.0]], [[0.0]]]
        assert [row.terminated for row in again.rows] == [True, False]
        assert [row.reward for row in again.rows] == [0, 0]
        assert again.episodes == []
        both = executor.reset_envs([True, False])
        assert [row.features["Dot"] for row in both.rows] == [[[0.0]], [[0.0]]]
        assert not any(row.terminated for row in both.rows)

    @each_executor
    def test_the_end_costs_no_step(self, make: Make, opened: Open) -> None:
        batches = played(opened(make(count, 2, 0, "same_step")), count, "same_step", 2, 30)
        assert sum(len(batch.episodes) for batch in batches) == 2 * 30 / 3


def dots(batch: Batch) -> float:
    [row] = batch.rows
    [[x]] = row.features["Dot"]
    return x


def play_cut(agent: Agent, *, seed: int) -> None:
    """Truncated after its first question, or terminated for every other seed."""
    if ask(agent) is not None:
        agent.game_over(truncated=bool(seed % 2))


@each_mode
@each_executor
def test_cut_and_ended_are_told_apart(make: Make, autoreset: Autoreset, opened: Open) -> None:
    game = dots_game(play_cut)
    for batch in played(opened(make(game, 4, 3, autoreset)), game, autoreset, num_envs=4):
        for episode in batch.episodes:
            assert episode.truncated == bool(episode.seed % 2)
            assert episode.terminated != episode.truncated
            row = batch.rows[episode.env_id]
            assert (row.terminated, row.truncated) == (episode.terminated, episode.truncated)


@each_executor
def test_a_game_that_loops_equals_one_that_returns(make: Make, opened: Open) -> None:
    loops = chaos.with_settings(loops=True)
    one, other = (opened(make(game, 3, 4, "same_step")) for game in (chaos, loops))
    assert played(one, chaos, "same_step") == played(other, loops, "same_step")


class TestResetEnvs:
    @each_executor_of_games
    def test_of_one_environment_with_several_agents(self, make: Make, opened: Open) -> None:
        executor = opened(make(together, 2, 5, "disabled"))
        before = executor.reset()
        after = executor.reset_envs([True, False])
        assert [row.features for row in after.rows[3:]] == [row.features for row in before.rows[3:]]
        assert after.rows[:3] != before.rows[:3]


def play_and_tell(ends: list[int], agent: Agent, *, seed: int) -> None:
    try:
        while ask(agent) is not None:
            pass
    finally:
        ends.append(seed)


class TestUnwinding:
    """In this process: games append to a list when they end."""

    @each_executor_in_process
    def test_reset_unwinds_what_is_being_played(self, make: Make, opened: Open) -> None:
        ends: list[int] = []
        executor = opened(make(dots_game(partial(play_and_tell, ends)), 2, 0, "same_step"))
        executor.reset()
        assert ends == []
        executor.reset()
        assert ends == [EpisodeSeeds(0, 0)[0], EpisodeSeeds(0, 1)[0]]
        executor.reset(seed=3)
        assert ends[2:] == [EpisodeSeeds(0, 0)[1], EpisodeSeeds(0, 1)[1]]

    @each_executor_in_process
    def test_reset_envs_unwinds_the_chosen_ones(self, make: Make, opened: Open) -> None:
        ends: list[int] = []
        executor = opened(make(dots_game(partial(play_and_tell, ends)), 3, 0, "disabled"))
        executor.reset()
        executor.reset_envs([False, True, False])
        assert ends == [EpisodeSeeds(0, 1)[0]]

    @each_executor_in_process
    def test_close_unwinds_all(self, make: Make) -> None:
        ends: list[int] = []
        executor = make(dots_game(partial(play_and_tell, ends)), 5, 0, "same_step")
        executor.reset()
        executor.close()
        assert len(ends) == 5
        executor.close()
        assert len(ends) == 5


def play_and_raise(agent: Agent, *, seed: int) -> None:
    ask(agent)
    raise OSError(f"no more, {seed}")


@each_executor
def test_a_game_that_raises_can_be_reset(make: Make, opened: Open) -> None:
    game = dots_game(play_and_raise)
    executor = opened(make(game, 2, 0, "same_step"))
    run = Run(executor, game, 2)
    for number in range(2):
        run.reset()
        with pytest.raises((OSError, RuntimeError), match=str(EpisodeSeeds(0, 0)[number])):
            run.step()


def test_the_reference_itself_plays_whole_episodes() -> None:
    """Guards against an empty reference, which everything else would match."""
    episodes: list[Episode] = []
    executor = ByHand(dots_game(play_some), 2)
    for batch in played(executor, count, "same_step", num_envs=2):
        episodes += batch.episodes
    executor.close()
    assert len(episodes) > 10
    assert len({episode.length for episode in episodes}) > 1


def play_some(agent: Agent, *, seed: int) -> None:
    for i in range(seed % 4):
        if ask(agent, score=i, x=seed % 10) is None:
            return
    agent.game_over()


def test_chaos_covers_what_it_is_for() -> None:
    """All kinds of questions, masks, ends, and rows without questions occur."""
    executor = ByHand(chaos, 8, autoreset="next_step")
    batches = played(executor, chaos, "next_step", num_envs=8, num_steps=40)
    executor.close()
    rows = [row for batch in batches for row in batch.rows]
    assert {name for row in rows for name in row.asked} == set(chaos.action_space())
    for name in ("Move", "Turn", "SelectDog"):
        assert any(not all(map(all, row.asked[name].allowed)) for row in rows if name in row.asked)
    assert any(row.hidden for row in rows)
    untargeted = [row for row in rows if row.features.get("Ghost") and not row.asked]
    assert untargeted, "nobody was asked although there were actors"
    assert any(row.truncated for row in rows)
    assert any(row.terminated and not row.features for row in rows)
    assert any(episode.length == 0 for batch in batches for episode in batch.episodes)
    assert any(batch.metrics for batch in batches)
    assert play_chaos is chaos.play
