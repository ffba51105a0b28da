"""The rules of rock_paper_scissors."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, Turn, UsageError
from entity_env.agents import RandomAgent
from entity_env.authoring.agent import Answered
from entity_env.games import rock_paper_scissors
from entity_env.games.rock_paper_scissors import Opponent, Player, Throw, play
from tests.helpers.scripted_agent import ScriptedAgent, in_turn

WINS = {
    (Throw.ROCK, Throw.SCISSORS),
    (Throw.PAPER, Throw.ROCK),
    (Throw.SCISSORS, Throw.PAPER),
}
throws = st.sampled_from(Throw)


def strengths(obs: Obs) -> tuple[Throw, Throw]:
    [player], [opponent] = obs.of_class(Player), obs.of_class(Opponent)
    return player.strength, opponent.strength


@pytest.mark.parametrize(("one", "other"), list(product(Throw, Throw)))
def test_what_beats_what(one: Throw, other: Throw) -> None:
    assert one.beats(other) == ((one, other) in WINS)


def worth(throw: Throw, other: Throw, strength: Throw, their_strength: Throw) -> int:
    if (throw, other) in WINS:
        return 1 + (throw is strength)
    return -(1 + (other is their_strength)) if (other, throw) in WINS else 0


@given(seed=st.integers(0, 2**63 - 1), rounds=st.lists(st.tuples(throws, throws), min_size=1))
def test_every_round_follows_the_rules(seed: int, rounds: list[tuple[Throw, Throw]]) -> None:
    dealt: list[list[tuple[Throw, Throw]]] = [[], []]

    def player(i: int) -> ScriptedAgent:
        answer = in_turn([throws[i] for throws in rounds])

        def remember(obs: Obs) -> Throw | None:
            dealt[i].append(strengths(obs))
            return answer(obs)

        return ScriptedAgent(remember)

    one, other = player(0), player(1)
    play([one, other], seed=seed, num_rounds=len(rounds))
    assert dealt[1] == [(theirs, mine) for mine, theirs in dealt[0]]
    assert one.end.gains == [
        worth(*both, *held) for both, held in zip(rounds, dealt[0], strict=True)
    ]
    assert other.end.gains == [-gain for gain in one.end.gains]
    assert not one.end.truncated
    assert not other.end.truncated


def test_strengths_are_dealt_anew_every_round() -> None:
    seen: list[tuple[Throw, Throw]] = []

    def answer(obs: Obs) -> Throw:
        seen.append(strengths(obs))
        return Throw.ROCK

    play([ScriptedAgent(answer), ScriptedAgent(lambda obs: Throw.ROCK)], seed=1, num_rounds=200)
    assert set(seen) == set(product(Throw, Throw))


class Waiting(Answered[Throw]):
    """A known answer that records when it is awaited."""

    def __init__(self, answer: Throw, on_get: Callable[[], None]) -> None:
        super().__init__(answer)
        self.on_get = on_get

    def get(self) -> Throw | None:
        self.on_get()
        return super().get()


class Listener(ScriptedAgent):
    """Records when it is asked and when its answer is awaited."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(lambda obs: Throw.ROCK)
        self.name = name
        self.log = log

    def act(self, obs: Obs, /, *actions: object) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        raise AssertionError("a blocking act would give the other agent's throw away")

    def act_async(self, obs: Obs, /, *actions: object) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        self.log.append(f"ask {self.name}")
        answer = super().act(obs, *actions)

        return Waiting(answer, lambda: self.log.append(f"get {self.name}"))


def test_both_are_asked_before_either_answers() -> None:
    log: list[str] = []
    play([Listener("one", log), Listener("other", log)], seed=1, num_rounds=2)
    assert log == ["ask one", "ask other", "get one", "get other"] * 2


@pytest.mark.parametrize("cheat", [False, True])
def test_the_opponent_is_hidden_unless_one_cheats(cheat: bool) -> None:
    turns: list[Turn] = []
    agents = RandomAgent(seed=1), RandomAgent(seed=2)
    rock_paper_scissors.run(*agents, episodes=3, watch=turns.append, cheat=cheat)
    asked = [turn.observation for turn in turns if turn.episode is None]
    assert len(asked) == 2 * 3 * 5
    for observation in asked:
        assert np.asarray(observation.visible["Opponent"]).tolist() == [cheat]
        assert "Player" not in observation.visible
        assert np.asarray(observation.features["Opponent"]).sum() == 1


def test_a_strength_is_one_hot() -> None:
    labels = tuple(f"strength.is_{throw.name}" for throw in Throw)
    for entity in rock_paper_scissors.obs_space().entities.values():
        assert tuple(entity.features) == labels


def test_settings_are_set() -> None:
    game = rock_paper_scissors.with_settings(num_rounds="2", cheat="yes")
    episodes = game.run(RandomAgent(seed=1), RandomAgent(seed=2), episodes=4)
    assert [episode.length for episode in episodes] == [2] * 8
    assert [episode.agent_id for episode in episodes] == [0] * 4 + [1] * 4


def test_no_round_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        rock_paper_scissors.run(RandomAgent(seed=1), RandomAgent(seed=2), num_rounds=0)
