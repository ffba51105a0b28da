"""AzulSelfPlay: observations and rules of the game, documented rewards, clear errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import (
    MissingExtraError,
    UsageError,
    VecObs,
)
from entity_env.agents import PolicyAgent, RandomAgent
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.core.vec_env_base import env_seeds
from entity_env.games.azul import (
    ACTIONS,
    AzulSelfPlay,
    GameState,
    GreedyAgent,
    RushAgent,
    apply_action,
    apply_in_place,
    azul,
    legal_actions,
    self_play as module,
    winners,
)
from entity_env.games.azul.entities import options_of
from entity_env.games.azul.game import PICK, observe
from entity_env.games.azul.kernels.heuristics import GREEDY, potential_packed
from entity_env.games.azul.players.agents import AgentInput
from entity_env.games.azul.self_play import OTHERS, SelfPlayBatch
from entity_env.vec import VecEnv
from entity_env.vec.executor import InProcess
from tests.games.azul.recorded_games import SEEDS, board, move_values, position, states
from tests.helpers.batches import assert_same

# The first call compiles, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

FEATURES = azul.obs_space().entities


class Tables(VecEnv):
    """`AzulSelfPlay` in this process, with a view of its games."""

    def __init__(self, num_envs: int, *, seed: int = 0, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(AzulSelfPlay(**settings), num_envs, seed=seed)
        assert isinstance(self._executor, InProcess)
        games = self._executor.batch
        assert isinstance(games, SelfPlayBatch)
        self.state, self.others = games.state, games.others


class Witness(PolicyAgent):
    """Records its observation and leaves."""

    seen: Observation

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        self.seen = observation
        return None


def shown_by_the_game(state: GameState) -> Observation:
    witness = Witness()
    witness.act(observe(state, state.current_player).entities(options_of(state)), PICK)
    return witness.seen


def picks_of(tables: Tables, rng: np.random.Generator, greedy: float = 0.5) -> NDArray[np.int64]:
    """The index of an option for every table, sometimes the one with the highest value."""
    picks = []
    for i in range(tables.num_envs):
        state = tables.state(i)
        actions = legal_actions(state)
        values = move_values(state, actions, GREEDY) if rng.random() < greedy else None
        picks.append(rng.integers(len(actions)) if values is None else int(np.argmax(values)))
    return np.array(picks)


def acted(tables: Tables, rng: np.random.Generator, **how: float) -> VecObs:
    return tables.act({"SelectOption": picks_of(tables, rng, **how)})


def row_of(tables: Tables, env_id: int) -> int:
    return 2 * env_id + tables.state(env_id).current_player


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, greedy=st.sampled_from([0.0, 0.5, 1.0]))
def test_it_shows_what_the_game_shows(seed: int, greedy: float) -> None:
    """In every third position of some games, bit for bit."""
    tables, rng = Tables(8, seed=seed), np.random.default_rng(seed)
    obs = tables.reset()
    for step in range(45):
        if step % 3 == 0:
            env_id = step % tables.num_envs
            row, seen = row_of(tables, env_id), shown_by_the_game(tables.state(env_id))
            for name in FEATURES:
                rows = np.asarray(seen.features[name], np.float32)
                assert_array_equal(obs.features[name][row], rows, name)
        obs = acted(tables, rng, greedy=greedy)


@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_who_is_asked_is_whose_turn_it_is(seed: int) -> None:
    tables, rng = Tables(10, seed=seed), np.random.default_rng(seed)
    obs = tables.reset()
    for _ in range(40):
        rows = [row_of(tables, i) for i in range(10)]
        assert np.flatnonzero(obs.is_ready).tolist() == rows
        for i, name in enumerate(tables.others):
            if OTHERS[name] != "self":
                assert rows[i] == 2 * i
        mask: Any = obs.action_masks["SelectOption"]
        lengths = np.stack([obs.features[name].lengths for name in FEATURES])
        assert mask.actors.values.tolist() == [0] * 10
        for row in range(20):
            first, count = lengths[:-1, row].sum(), lengths[-1, row]
            assert mask.actees[row].tolist() == list(range(first, first + count))
            assert (count > 0) == (row in rows)
        for i, row in enumerate(rows):
            assert lengths[-1, row] == len(legal_actions(tables.state(i)))
        obs = acted(tables, rng)


@pytest.mark.parametrize("other", ["self", "greedy", "rush"])
def test_it_plays_by_the_rules(other: str) -> None:
    """Rules and agents reach the same positions, including deals."""
    tables, rng = Tables(3, seed=5, others={other: 1}), np.random.default_rng(5)
    plain = {"greedy": GreedyAgent, "rush": RushAgent}
    obs, num_ends = tables.reset(), 0
    for _ in range(120):
        picks = picks_of(tables, rng)
        before = [tables.state(i) for i in range(3)]
        obs = tables.act({"SelectOption": picks})
        for i, state in enumerate(before):
            apply_in_place(state, legal_actions(state)[picks[i]])
            while other != "self" and not state.is_over and state.current_player == 1:
                asked = AgentInput(np.zeros(0, np.float32), np.zeros(0, np.bool_), 1, state)
                agent = plain[other]()
                apply_in_place(state, ACTIONS[agent.select_action(asked, rng)])
            assert obs.terminated[2 * i] == state.is_over
            if state.is_over:
                num_ends += 1
                assert tables.state(i).round == 1
                assert tables.state(i).scores == [0, 0]
            else:
                assert tables.state(i) == state
    assert num_ends >= 3


def standing(state: GameState, player: int) -> int:
    """A player's final score in hundredths, or the potential before the end."""
    board = state.players[player]
    return 100 * board.score if state.is_over else potential_packed(state.words, player)


@settings(max_examples=30, deadline=None)
@given(state=states())
def test_what_a_move_is_worth_is_what_it_adds_to_the_potential(state: GameState) -> None:
    """For moves to the floor and to an empty line that stays open; others change line values."""
    player = state.current_player
    before = standing(state, player) if not state.is_over else 0
    options = options_of(state)
    values = move_values(state, legal_actions(state), GREEDY) if options else []
    for option, value in list(zip(options, values, strict=True))[::3]:
        if option.ends_round or not (option.to_floor or (option.is_fresh and option.left)):
            continue
        after = apply_action(state, ACTIONS[option.action_id])
        assert standing(after, player) - before == value
        for other in range(state.num_players):
            if other != player:
                assert standing(after, other) == standing(state, other)


def test_the_potential_of_boards_made_by_hand() -> None:
    def value(
        score: int = 0,
        lines: Sequence[tuple[int, int]] = (),
        wall: Sequence[tuple[int, int]] = (),
        floor: Sequence[int] = (),
    ) -> int:
        mine = board(score=score, lines=lines, wall=wall, floor=floor)
        return standing(position([mine, board()]), 0)

    assert value() == 0
    assert value(score=7) == 700
    assert value(floor=[5, 0, 0]) == -400  # below 0, unlike scores
    # A single tile: one point, and 1/25 of 2, 7 and 10.
    tile = 100 + 4 * (2 + 7 + 10)
    assert value(lines=[(0, 1)]) == tile
    assert value(wall=[(0, 0)]) == tile - 100
    # Half of its share of a started line.
    assert value(lines=[(0, 0), (0, 1)]) == tile // 4
    assert value(lines=[(0, 0), (0, 0), (0, 2)]) == tile * 2 // 6
    whole = [(row, 0) for row in range(5)]
    assert value(wall=whole) == 4 * (5 * 2 + 5 * 7 + 25 * 10)


@pytest.mark.parametrize(
    ("shares", "num_envs", "counts"),
    [
        ({"self": 1}, 5, [5, 0, 0, 0]),
        ({"greedy": 1, "random": 1}, 4, [0, 2, 0, 2]),
        ({"greedy": 1, "random": 1}, 1, [0, 0, 0, 1]),
        ({"self": 50, "greedy": 40, "rush": 5, "random": 5}, 100, [50, 40, 5, 5]),
        ({"self": 0.001, "rush": 1}, 10, [0, 0, 10, 0]),
        ({"self": 1, "greedy": 1, "rush": 1}, 128, [43, 42, 43, 0]),
    ],
)
def test_seats_are_shared_out(
    shares: Mapping[str, float], num_envs: int, counts: list[int]
) -> None:
    others = Tables(num_envs, others=shares).others
    assert others.shape == (num_envs,)
    assert np.bincount(others, minlength=4).tolist() == counts


@pytest.mark.parametrize(("scale", "win"), [(0.1, 1.0), (1.0, 0.0), (0.0, 2.0)])
def test_rewards_add_up_to_the_lead_and_the_win(scale: float, win: float) -> None:
    """From a seat's first observation to the end of its game."""
    tables = Tables(6, seed=2, lead_scale=scale, win_reward=win)
    rng, obs = np.random.default_rng(2), tables.reset()
    earned, first = np.zeros(12), np.full(12, np.nan)
    num_ends = 0
    for _ in range(150):
        for i in range(6):
            row = row_of(tables, i)
            if np.isnan(first[row]):
                state = tables.state(i)
                first[row] = standing(state, row % 2) - standing(state, 1 - row % 2)
        picks = picks_of(tables, rng)
        before = [tables.state(i) for i in range(6)]
        obs = tables.act({"SelectOption": picks})
        assert not obs.truncated.any()
        earned += obs.reward
        for episode in obs.episodes:
            row = 2 * episode.env_id + episode.agent_id
            assert obs.terminated[row]
            assert episode.reward == pytest.approx(earned[row], abs=1e-4)
            if OTHERS[tables.others[episode.env_id]] == "self":
                state = before[episode.env_id]
                if not state.is_over:  # both seats observe the end
                    apply_in_place(state, legal_actions(state)[picks[episode.env_id]])
                mine, theirs = state.scores[row % 2], state.scores[1 - row % 2]
                won = 0 if len(winners(state)) == 2 else 2 * (row % 2 in winners(state)) - 1
                expected = scale * (mine - theirs - first[row] / 100) + win * won
                assert episode.reward == pytest.approx(expected, abs=1e-3)
                assert episode.metrics["score"] == mine
                num_ends += 1
            earned[row], first[row] = 0, np.nan
    assert num_ends >= 4


def test_episodes_are_told_with_who_won() -> None:
    tables, rng = Tables(40, seed=3), np.random.default_rng(3)
    obs, names = tables.reset(), [OTHERS[i] for i in tables.others]
    assert {name: names.count(name) for name in OTHERS} == {
        "self": 20,
        "greedy": 16,
        "rush": 2,
        "random": 2,
    }
    counts = dict.fromkeys(OTHERS, 0)
    lengths, seeds = np.zeros(80, np.int64), env_seeds(3, np.arange(40)).tolist()
    for _ in range(110):
        lengths += obs.is_ready
        obs = acted(tables, rng, greedy=0.0)
        for name, metric in obs.metrics.items():
            kind, _, other = name.partition("_")
            assert kind in ("wins", "score")
            assert (kind, other) != ("wins", "self")
            counts[other] += metric.count if kind == "score" else 0
            assert 0 <= metric.mean <= (1 if kind == "wins" else 200)
        for episode in obs.episodes:
            row = 2 * episode.env_id + episode.agent_id
            assert episode.terminated
            assert episode.length == lengths[row] > 10
            assert episode.seed == seeds[episode.env_id]
            lengths[row] = 0
        told = {2 * episode.env_id + episode.agent_id for episode in obs.episodes}
        assert told == set(np.flatnonzero(obs.terminated).tolist())
    assert min(counts.values()) > 0


def test_greedy_picks_hold_their_own_against_the_greedy_agent() -> None:
    tables, rng = Tables(60, seed=4, others={"greedy": 1}), np.random.default_rng(4)
    obs, shares = tables.reset(), []
    for _ in range(60):
        obs = acted(tables, rng, greedy=1.0)
        if "wins_greedy" in obs.metrics:
            metric = obs.metrics["wins_greedy"]
            shares += [metric.mean] * metric.count
    assert len(shares) >= 60
    assert 0.3 < np.mean(shares) < 0.7


def test_seats_begin_in_turn() -> None:
    tables, rng = Tables(4, seed=1, others={"self": 1}), np.random.default_rng(1)
    obs = tables.reset()
    begun: list[list[int]] = [[tables.state(i).starting_player] for i in range(4)]
    while min(map(len, begun)) < 3:
        obs = acted(tables, rng, greedy=1.0)
        for i in {episode.env_id for episode in obs.episodes}:
            begun[i].append(tables.state(i).starting_player)
    for i, players in enumerate(begun):
        assert players[:3] == [i % 2, 1 - i % 2, i % 2]


def test_a_seed_plays_the_same_games() -> None:
    again, other = Tables(5, seed=9), Tables(5, seed=10)
    first = Tables(5, seed=9)
    first.reset()
    own = Tables(1, seed=int(env_seeds(9, np.arange(5))[1]))
    own.reset()
    assert first.state(1).factories == own.state(0).factories
    state = other.reset(seed=9), other.state(2)
    again.reset(seed=9)
    assert again.state(2) == state[1]
    other.reset()
    assert other.state(2) != state[1]


def test_other_modes_are_refused() -> None:
    with pytest.raises(UsageError, match="autoreset must be one of same_step, got 'disabled'"):
        VecEnv(AzulSelfPlay(), 2, autoreset="disabled")


def test_shares_that_cannot_be() -> None:
    wrong: list[Mapping[str, float]] = [{}, {"nobody": 1}, {"self": -1, "rush": 2}, {"self": 0}]
    for others in wrong:
        with pytest.raises(UsageError, match="others must give shares"):
            AzulSelfPlay(others=others)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_play_the_same_games(num_workers: int) -> None:
    """Including the seats of the players."""
    here, there = (VecEnv(AzulSelfPlay(), 5, num_workers=n, seed=3) for n in (0, num_workers))
    with here, there:
        obs, other = here.reset(), there.reset()
        chooser, num_ended = RandomAgent(seed=1), 0
        for _ in range(80):
            assert_same(obs, other)
            assert_array_equal(obs.reward, other.reward)
            assert list(obs.episodes) == list(other.episodes)
            assert obs.metrics == other.metrics
            num_ended += len(obs.episodes)
            actions = chooser.decide_batch(obs, azul.schema)
            obs, other = here.act(actions), there.act(actions)
    assert num_ended > 2


def test_it_needs_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_numba", lambda: False)
    with pytest.raises(MissingExtraError, match="numba"):
        Tables(2)


@pytest.mark.slow
def test_a_network_learns_there_and_plays_the_game(tmp_path: Path) -> None:
    """It improves within a few updates."""
    pytest.importorskip("torch")
    from entity_env.agents import load_agent
    from entity_env.agents.ppo import PPOConfig, train
    from entity_env.agents.rogue_net import RogueNetConfig
    from entity_env.games.azul import EntityAgent, play_game

    config = PPOConfig(
        total_steps=8_000,
        net=RogueNetConfig(d_model=16, n_layer=0, n_head=1, d_qk=8),
        minibatch_size=256,
        learning_rate=0.01,
        ent_coef=0.0,
        clip_vloss=False,
    )
    means: list[float] = []
    with Tables(24, seed=1) as tables:
        result = train(
            tables,
            config,
            out=tmp_path,
            on_update=lambda progress: means.append(progress.losses.entropy),
        )
    assert result.progress.step >= config.total_steps
    assert means[-1] < means[0] - 0.3
    agent = EntityAgent(load_agent(tmp_path, greedy=True))
    games = [play_game([agent, GreedyAgent()], seed=seed) for seed in range(5)]
    assert all(game.end is not None for game in games)
    assert np.mean([game.scores[0] for game in games]) > 10
