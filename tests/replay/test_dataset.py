from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from entity_env import Entity, Game, ObsSpace, SelectEntityActionSpace, UsageError
from entity_env.agents import RandomAgent
from entity_env.agents.imitation import DatasetRecorder
from entity_env.authoring.local_run import Turn
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import spaces_to_json
from entity_env.errors import ReplayError
from entity_env.games import multi_snake, rock_paper_scissors, snake, tic_tac_toe
from entity_env.replay import Replay, ReplayWriter, dataset_of, record
from entity_env.replay.dataset import replay_files
from entity_env.replay.file import Decision, ReplayHeader
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits, turns_in_new_process
from tests import ROOT
from tests.agents.imitation.decisions import Follower, assert_same_dataset, dots

GOLDEN = ROOT / "tests" / "data" / "replays"


@pytest.mark.parametrize("game", [snake, multi_snake, rock_paper_scissors, tic_tac_toe])
def test_decisions_of_replays_are_those_of_the_run(game: object, tmp_path: Path) -> None:
    assert isinstance(game, type(snake))
    recorder = DatasetRecorder()
    writer = ReplayWriter(tmp_path / "{episode}.replay", watch=recorder)
    recorder.begin_run(game, (), EpisodeSeeds(4), 3)
    game.run(*map(RandomAgent, range(game.num_agents)), seed=4, episodes=3, watch=writer)
    recorder.end_run(None)
    expected = recorder.dataset()
    assert_same_dataset(dataset_of([tmp_path]), expected)
    assert_same_dataset(dataset_of(writer.replays, game), expected)


def test_replays_of_actions_alone_are_played_again() -> None:
    seen, blind = (record(dots, Follower(), seed=1, see=see) for see in (True, False))
    assert_same_dataset(dataset_of([blind], dots), dataset_of([seen]))
    assert_same_dataset(dataset_of([blind], lambda replay: dots), dataset_of([seen]))
    elsewhere = Replay(replace(blind.header, source="elsewhere:dots"), blind.lines)
    with pytest.raises(ReplayError, match="which is not imported"):
        dataset_of([elsewhere])
    assert_same_dataset(dataset_of([elsewhere], dots), dataset_of([seen]))


def test_agents_are_chosen_by_number_name_and_reward() -> None:
    writer = ReplayWriter(agents=["rock", "paper"])
    rock_paper_scissors.run(RandomAgent(1), RandomAgent(2), seed=1, episodes=6, watch=writer)
    every = dataset_of(writer.replays)
    one = every.filter(every.agent_id == 1)
    assert_same_dataset(dataset_of(writer.replays, agents=["paper"]), one)
    assert_same_dataset(dataset_of(writer.replays, agents=[1]), one)
    assert_same_dataset(dataset_of(writer.replays, agents=[1, "rock"]), every)
    # Winners are determined among all agents, then the wanted agents are kept.
    won = every.filter(every.agent_id == 1, winners=True)
    assert 0 < len(won) < len(one)
    assert_same_dataset(dataset_of(writer.replays, agents=[1], winners=True), won)
    with pytest.raises(UsageError, match=r"agent scissors: the replays have .* names: paper, rock"):
        dataset_of(writer.replays, agents=["scissors"])


def test_an_episode_that_was_cut_off_is_truncated() -> None:
    whole = record(dots, Follower(), seed=1)
    cut = Replay(whole.header, whole.lines[:4])
    dataset = dataset_of([cut])
    assert dataset.truncated.tolist() == [False, False, False, True]
    assert dataset.reward.tolist() == [1, 1, 1, 0]
    failed = Replay(whole.header, whole.lines[:2], failure="ValueError: boom")
    assert len(dataset_of([failed, cut])) == 6


def test_replays_of_another_game_are_refused() -> None:
    first, second = record(snake, RandomAgent(1)), record(dots, Follower())
    with pytest.raises(UsageError, match=r"has different spaces: .*'Dot'"):
        dataset_of([first, second])
    with pytest.raises(UsageError, match=r"was recorded with a different game than dots: .*'Head'"):
        dataset_of([first], dots)


def test_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no replay in the folder"):
        replay_files([tmp_path])
    with pytest.raises(UsageError, match=r"no file .*none"):
        replay_files([tmp_path / "none.replay"])
    for name in ("b", "a", "c/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        record(dots, Follower()).save(tmp_path / f"{name}.replay")
    (tmp_path / "x.txt").write_text("")
    found = [str(path.relative_to(tmp_path)) for path in replay_files([tmp_path])]
    assert found == ["a.replay", "b.replay", "c/d.replay"]
    counted: list[Replay] = []
    assert len(dataset_of([tmp_path / "a.replay", tmp_path], on_replay=counted.append)) == 24
    assert len(counted) == 4
    (tmp_path / "a.replay").write_bytes(b"damaged")
    with pytest.raises(ReplayError, match=r"a\.replay"):
        dataset_of([tmp_path])


def test_no_decisions() -> None:
    whole = record(dots, Follower())
    with pytest.raises(UsageError, match="no decisions"):
        dataset_of([Replay(whole.header, [])])
    with pytest.raises(UsageError, match="no decisions"):
        dataset_of([])


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.replay"))[:30], ids=lambda path: path.stem)
def test_golden_replays_have_decisions(path: Path) -> None:
    replay = Replay.load(path)
    if not replay.has_observations:
        pytest.skip("of actions alone")
    dataset = dataset_of([replay])
    assert 0 < len(dataset) <= replay.num_decisions
    for agent_id, reward in enumerate(replay.rewards):
        rows = dataset.agent_id == agent_id
        if rows.any() and reward is not None:
            assert dataset.reward[rows].sum() == pytest.approx(reward, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_replays_of_one_game_are_played_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions from new processes with limits equal those from this process."""
    agents = [RandomAgent(seed) for seed in range(3)]
    replays = [
        record(snake, agent, seed=1, see=False, board_size=size)
        for agent, size in zip(agents, (4, 5, 4), strict=True)
    ]
    replays.append(record(snake, RandomAgent(3), seed=2))
    counts: list[int] = []

    def counted(some: Sequence[Replay], game: Game, limits: PlayLimits) -> list[list[Turn]]:
        counts.append(len(some))
        return turns_in_new_process(some, game, limits)

    monkeypatch.setattr("entity_env.replay.dataset.turns_in_new_process", counted)
    assert_same_dataset(dataset_of(replays, limits=PLAY_LIMITS), dataset_of(replays))
    assert counts == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("see", [True, False])
def test_what_a_replay_shows_has_a_limit(see: bool) -> None:
    replay = record(dots, Follower(), seed=1, see=see)
    turns = replay.turns(dots)
    space = dots.obs_space()
    shown = sum(
        turn.observation.num_entities(name) * len(entity.features)
        for turn in turns
        for name, entity in space.entities.items()
    )
    assert shown > 0
    few = PLAY_LIMITS._replace(max_shown=shown)  # types, actions and turns also count
    expected = rf"the replay shows more than {shown:,} entities and features .* --max-shown"
    with pytest.raises(ReplayError, match=expected):
        replay.turns(dots, max_shown=shown)
    with pytest.raises(ReplayError, match=expected):
        dataset_of([replay], dots, limits=few)
    assert len(replay.turns(dots, max_shown=100 * shown + 100 * len(turns))) == len(turns)


def test_the_size_of_masks_counts_though_they_take_no_text() -> None:
    space = ObsSpace((), {"T": Entity([])})
    header = ReplayHeader("g", 1, spaces_to_json(space, {"pick": SelectEntityActionSpace()}))
    ids = list(range(1000))
    seen = {"o": {"T": [[]] * 1000}, "m": {"pick": {"actors": ids, "actees": ids}}}
    replay = Replay(header, [Decision(0, 0, {"pick": ids}, score=0.0, seen=seen)])
    with pytest.raises(ReplayError, match="shows more than 10,000 entities"):
        replay.turns(max_shown=10_000)
    assert len(replay.turns(max_shown=20_000)) == 1
