"""Decisions in several parts of programs: equal to their twins; wrong frames are refused."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env import Game
from entity_env.agents import RandomAgent, random_actions
from entity_env.batching.frame import Frame, LocalMemory
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.spaces import spaces_to_json
from entity_env.replay import record
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.frames import StepParser
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.messages import MessageError, Place, checksum_of, ready_of
from tests.games.composite_games import SEND, Base, Planet, duel, fixed, order, pair, send
from tests.helpers.batches import assert_same
from tests.vec.external.serve import Server, padded

ROOT = Path(__file__).parents[3]
GAMES = {"send": send, "pair": pair, "fixed": fixed, "duel": duel, "order": order}


@cache
def external(place: str) -> ExternalGame:
    """A game of this package in a program."""
    return ExternalGame([sys.executable, "-m", "tests.vec.external.serve", place], folder=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("name", GAMES)
def test_it_shows_what_its_twin_shows(name: str, autoreset: Autoreset) -> None:
    game, twin = external(f"tests.games.composite_games:{name}"), GAMES[name]
    assert dict(game.action_space()) == dict(twin.action_space())
    require_same_batches(game, twin, autoreset)


def require_same_batches(game: Game, twin: Game, autoreset: Autoreset = "same_step") -> None:
    """Steps both with the same random actions."""
    rng = np.random.default_rng(0)
    with (
        VecEnv(game, 3, seed=1, autoreset=autoreset) as one,
        VecEnv(twin, 3, seed=1, autoreset=autoreset) as other,
    ):
        first, second = one.reset(), other.reset()
        for _ in range(12):
            assert_same(first, second)
            assert first.reward.tolist() == second.reward.tolist()
            chosen = random_actions(second, twin.action_space(), rng)
            first, second = one.act(chosen), other.act(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_its_replays_are_those_of_its_twin(name: str) -> None:
    game = external(f"tests.games.composite_games:{name}")
    try:
        require_same_replays(game, GAMES[name])
    finally:
        game.close()


def require_same_replays(game: Game, twin: Game) -> None:
    """Verifies a replay of each with the other."""
    agents = [RandomAgent(seed=i) for i in range(game.num_agents)]
    assert record(game, *agents, seed=3).verify(twin) is None
    assert record(twin, *agents, seed=3).verify(game) is None


def ready(game: Game) -> dict[str, Any]:
    spaces: Any = spaces_to_json(game.obs_space(), game.action_space())
    for item in spaces["actions"]:
        if item["kind"] == "select_entity":
            item["selects"] = "Planet"
    return {"num_agents": 1, "spaces": spaces}


PLACE = Place(3, "STEP")


def test_the_checksum_covers_the_dependences() -> None:
    data = ready(pair)
    found = ready_of(data, PLACE)
    assert [space.given for space in found.spaces[1].values()][1] == ("Pair.first",)
    data["checksum"] = checksum_of(found)
    ready_of(data, PLACE)
    del data["spaces"]["actions"][2]["given"]
    with pytest.raises(MessageError, match="the checksum of the spaces is"):
        ready_of(data, PLACE)


def test_a_dependence_on_a_later_action_is_refused() -> None:
    data = ready(pair)
    data["spaces"]["actions"][0]["given"] = ["Pair.third"]
    with pytest.raises(MessageError, match=r"'Pair\.first' depends on 'Pair\.third', which must"):
        ready_of(data, PLACE)


def frame_of(mask: list[Any]) -> Frame:
    from entity_env import Obs

    batcher = ObsBatcher(send.schema)
    obs = Obs().actors([Base(1), Base(2)], SEND).entities([Planet(1), Planet(2)])
    batcher.add_all([obs.mask(SEND.share, mask, given=SEND.target)], [send.schema.kinds])
    return batcher.write(LocalMemory())


def read(frame: Frame) -> Any:  # noqa: ANN401 - a message
    parser = StepParser(frame.layout, ready_of(ready(send), PLACE))
    parts = [struct.pack("<QQ", 0, 0), padded(b"\1"), padded(b"\1"), struct.pack("<d", 0)]
    payload = b"".join([*parts, Server.frame_bytes(None, frame)])  # type: ignore[arg-type]
    return parser.read(1, memoryview(payload), PLACE)


LEGAL = [[[1, 0, 1], [0, 1, 1]], [[1, 1, 1], [0, 0, 1]]]


def test_a_frame_is_read() -> None:
    frame = frame_of(LEGAL)
    found = read(frame)
    mask = found.frame.action_masks["Send.share"]
    assert mask.mask.values.reshape(2, 2, 3).astype(int).tolist() == LEGAL
    assert mask.per_actor.values.tolist() == [2]


def _stuck(frame: Frame) -> None:
    mask: Any = frame.slots[frame.layout.actions["Send.share"].mask.index]
    mask.reshape(-1, 3)[2] = False


def _other_actor(frame: Frame) -> None:
    actors: Any = frame.slots[frame.layout.actions["Send.share"].actors.index]
    actors[1] = 3


def _fewer_actors(frame: Frame) -> None:
    where = frame.layout.actions["Send.is_fast"]
    frame.lengths[where.row] = 1
    actors: Any = frame.slots[where.actors.index]
    frame.slots[where.actors.index] = actors[:1]


def _plain_mask(frame: Frame) -> None:
    where = frame.layout.actions["Send.share"]
    frame.slots[where.mask.index] = np.ones(6, np.bool_)


def _huge(frame: Frame) -> None:
    for name in ("Send.target", "Send.share", "Send.is_fast"):
        frame.lengths[frame.layout.actions[name].row] = 2**24


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_stuck, r"'Send\.share': actor 1 has no legal choice after target 0 of 'Send\.target'"),
        (_other_actor, r"'Send\.share' depends on 'Send\.target', so both must be requested of"),
        (_fewer_actors, r"'Send\.is_fast' depends on 'Send\.target', .*1 actors of 'Send\.is_fast"),
        (_plain_mask, r"must be 0 or 1|too few|bytes"),
        (_huge, r"too few"),
    ],
)
def test_wrong_frames_are_refused(change: Callable[[Frame], None], message: str) -> None:
    frame = frame_of(LEGAL)
    change(frame)
    with pytest.raises(MessageError, match=message):
        read(frame)
