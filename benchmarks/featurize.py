"""What does it cost to read observations from a game's own objects?

Figures are nanoseconds per entity with 4 fields, from a list of 100 dataclasses and from a numpy
array with 5,000 rows, into the float32 rows of a batch. Dataclasses are compared with the usual
hand-written code, `np.array([[e.x, ...] for e in entities])`: once with four floats, and once with
two ints, a float and a bool, which are slower to convert either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env import Obs, Schema
from entity_env.batching.obs_batcher import ObsBatcher


@dataclass(slots=True)
class Body:
    """An entity of four floats."""

    x: float
    y: float
    speed: float
    heading: float


@dataclass(slots=True)
class Unit:
    """An entity of four fields of three types."""

    x: int
    y: int
    health: float
    is_alive: bool


def writes(obs: Obs, cls: type, num_entities: int, num_repeats: int) -> Callable[[], float]:
    """Function that measures ns per entity for adding an observation to a batch and packing it."""
    writer = ObsBatcher(Schema((cls,), ()))

    def measure() -> float:
        buffer = writer.buffers[cls.__name__]
        begin = perf_counter()
        for _ in range(num_repeats):
            writer.clear()
            writer.add(obs, ())
            buffer.pack()
        return (perf_counter() - begin) / num_repeats / num_entities * 1e9

    return measure


def by_hand(rows: Callable[[], list[list[float]]], num_repeats: int) -> Callable[[], float]:
    """Function that measures ns per entity for the hand-written list of lists."""

    def measure() -> float:
        num_entities = len(rows())
        begin = perf_counter()
        for _ in range(num_repeats):
            np.array(rows(), dtype=np.float32)
        return (perf_counter() - begin) / num_repeats / num_entities * 1e9

    return measure


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    bodies = [Body(1.5 * i, i + 0.5, 0.5 * i, 0.25 * i) for i in range(100)]
    units = [Unit(i, i + 1, 0.5 * i, i % 2 == 0) for i in range(100)]
    rows = np.arange(20_000, dtype=np.float32).reshape(5000, 4)
    figures = interleaved(
        {
            "dataclass_ns_per_entity": writes(Obs().entities(bodies), Body, 100, 2000),
            "numpy_ns_per_entity": writes(Obs().entities(rows, of=Body), Body, 5000, 2000),
            "by_hand_ns_per_entity": by_hand(
                lambda: [[b.x, b.y, b.speed, b.heading] for b in bodies], 2000
            ),
            "mixed_dataclass_ns_per_entity": writes(Obs().entities(units), Unit, 100, 2000),
            "mixed_by_hand_ns_per_entity": by_hand(
                lambda: [[u.x, u.y, u.health, u.is_alive] for u in units], 2000
            ),
        },
        rounds,
    )
    report("Featurizing an entity of 4 fields", figures, ["numpy", "entity-env"], as_json)


if __name__ == "__main__":
    main()
