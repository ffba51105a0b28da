"""Episodes are recorded, read and played again: all that was seen, done and earned is equal."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Turn
from entity_env.agents import RandomAgent
from entity_env.core.spaces import Spaces
from entity_env.replay import Replay, ReplayWriter
from entity_env.replay.encoding import actions_to_json, observation_to_json
from tests.replay.games import ALL, with_random_settings


def told(turn: Turn, spaces: Spaces) -> tuple[object, ...]:
    """All that a turn shows, to be compared."""
    shown, episode = turn.observation, turn.episode
    return (
        (turn.agent_id, turn.step, turn.score),
        observation_to_json(shown, spaces[0]),
        (float(shown.reward), shown.terminated, shown.truncated),
        actions_to_json(turn.actions, shown, spaces[0]),
        None if episode is None else replace(episode, number=0),
    )


@pytest.mark.parametrize("name", ALL)
@given(data=st.data(), seed=st.integers(0, 2**40), see=st.booleans(), episodes=st.integers(1, 3))
@settings(max_examples=30)
def test_episodes_come_back(
    name: str, data: st.DataObject, seed: int, see: bool, episodes: int
) -> None:
    game = data.draw(with_random_settings(ALL[name]))
    turns: list[Turn] = []
    writer = ReplayWriter(see=see, watch=turns.append)
    agents = [RandomAgent(seed % 1000 + i) for i in range(game.num_agents)]
    game.run(*agents, seed=seed, episodes=episodes, watch=writer)
    assert [replay.header.run["seed"] for replay in writer.replays] == [seed] * episodes
    for replay in writer.replays:
        read = Replay.from_bytes(replay.to_bytes())
        assert (read.header, read.lines) == (replay.header, replay.lines)
        assert (read.is_whole, read.is_cut, read.failure) == (True, False, "")
        assert read.has_observations == see
        assert read.verify(game) is None
        mine = [turn for turn in turns if turn.number == read.header.run["episode"]]
        found = [told(turn, read.spaces) for turn in read.turns(game)]
        assert found == [told(turn, read.spaces) for turn in mine]
        assert read.rewards == [
            turn.episode.reward
            for turn in sorted(mine, key=lambda turn: turn.agent_id)
            if turn.episode is not None
        ]
