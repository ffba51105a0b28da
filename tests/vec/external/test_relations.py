"""Relations of programs: equal to their twins; wrong references and masks are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import Game, Obs
from entity_env.batching.frame import Frame, LocalMemory
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.spaces import spaces_to_json
from entity_env.vec.external.frames import StepParser
from entity_env.vec.external.messages import MessageError, Place, checksum_of, ready_of
from tests.games.relation_games import GO, Kind, Planet, Route, random_relations, routes, travels
from tests.vec.external.serve import Server, padded
from tests.vec.external.test_parts import external, require_same_batches, require_same_replays

GAMES = {"routes": routes, "travels": travels, "random_relations": random_relations}


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_programs_show_what_their_twins_show(name: str) -> None:
    game = external(f"tests.games.relation_games:{name}")
    try:
        assert game.obs_space() == GAMES[name].obs_space()
        require_same_batches(game, GAMES[name])
        require_same_replays(game, GAMES[name])
    finally:
        game.close()


def ready(game: Game) -> dict[str, Any]:
    spaces: Any = spaces_to_json(game.obs_space(), game.action_space())
    for item in spaces["actions"]:
        item["selects"] = "Route"
    return {"num_agents": 1, "spaces": spaces}


PLACE = Place(3, "STEP")


def test_the_checksum_covers_the_references() -> None:
    data = ready(routes)
    found = ready_of(data, PLACE)
    data["checksum"] = checksum_of(found)
    ready_of(data, PLACE)
    del data["spaces"]["entities"][1]["references"]
    with pytest.raises(MessageError, match="the checksum of the spaces is"):
        ready_of(data, PLACE)


@pytest.mark.parametrize("references", [["Planet"], ["Planet", "Moon"], ["Planet", "Route"], 3])
def test_wrong_references_in_spaces_are_refused(references: object) -> None:
    data = ready(routes)
    data["spaces"]["entities"][1]["references"] = references
    with pytest.raises(MessageError, match=r"relation|references|expected"):
        ready_of(data, PLACE)


def frame() -> Frame:
    """Two rows: planets A and B with the routes AB, BA and BB, then an empty observation."""
    batcher = ObsBatcher(routes.schema)
    a, b = planets = [Planet(1), Planet(2)]
    shown = [Route(1, x, Kind.FAST, y) for x, y in ((a, b), (b, a), (b, b))]
    batcher.add_all([Obs().actors(planets, GO).relations(shown)], [routes.schema.kinds])
    return batcher.write(LocalMemory())


def read(frame: Frame) -> Any:  # noqa: ANN401 - a message
    parser = StepParser(frame.layout, ready_of(ready(routes), PLACE))
    parts = [struct.pack("<QQ", 0, 0), padded(b"\1"), padded(b"\1"), struct.pack("<d", 0)]
    payload = b"".join([*parts, Server.frame_bytes(None, frame)])  # type: ignore[arg-type]
    return parser.read(1, memoryview(payload), PLACE)


def test_a_frame_is_read() -> None:
    found = read(frame()).frame
    assert found.features["Route"].values[:, :2].tolist() == [[0, 1], [1, 0], [1, 1]]
    mask = found.action_masks["SelectRoute"].mask.values
    assert mask.reshape(2, 3).astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]


def with_reference(row: int, column: int, value: float) -> Callable[[Frame], None]:
    def change(found: Frame) -> None:
        found.features["Route"].values[row, column] = value

    return change


def with_mask(*flags: int) -> Callable[[Frame], None]:
    def change(found: Frame) -> None:
        found.action_masks["SelectRoute"].mask.values[:] = np.array(flags, dtype=np.bool_)  # type: ignore[union-attr]

    return change


def without_mask(found: Frame) -> None:
    found.slots[found.layout.actions["SelectRoute"].mask.index] = None


def with_acting_route(found: Frame) -> None:
    found.action_masks["SelectRoute"].actors.values[1] = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            with_reference(1, 0, 2),
            r"row 0: relation Route: 'source' of row 1 is 2, expected a whole",
        ),
        (
            with_reference(2, 1, -1),
            r"relation Route: 'target' of row 2 is -1, expected a whole numb",
        ),
        (with_reference(0, 1, 0.5), r"relation Route: 'target' of row 0 is 0\.5, expected a whole"),
        (with_mask(0, 1, 0, 0, 0, 1), r"actor 0 may choose 'Route' 1, which does not start at it"),
        (with_mask(1, 0, 0, 1, 0, 0), r"actor 1 may choose 'Route' 0, which does not start at it"),
        (with_mask(1, 1, 1, 1, 1, 1), r"several actors may choose one 'Route'"),
        (without_mask, r"'SelectRoute' selects relations, so it must have a mask"),
        (with_acting_route, r"must be indices of entities of their observation, not of relations"),
    ],
)
def test_wrong_frames_are_refused(change: Callable[[Frame], None], message: str) -> None:
    found = frame()
    change(found)
    with pytest.raises(MessageError, match=message):
        read(found)
