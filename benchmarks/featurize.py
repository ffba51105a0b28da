"""What does it cost to read observations out of a game's own objects?

Nanoseconds an entity of 4 fields, from a list of dataclasses (100 of them) and from a numpy array
(5,000), into the float32 rows of a batch; beside `np.array([[e.x, ...] for e in entities])`, which
is what people write by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env import Obs, Schema
from entity_env.obs_writer import ObsWriter


@dataclass(slots=True)
class Unit:
    """An entity of four fields."""

    x: int
    y: int
    health: float
    is_alive: bool


def writes(obs: Obs, num_entities: int, num_repeats: int) -> Callable[[], float]:
    """ns an entity for adding an observation to a batch and packing it."""
    writer = ObsWriter(Schema((Unit,), ()))
    flags = np.zeros(1, dtype=np.bool_)
    reward = np.zeros(1, dtype=np.float32)
    index = np.zeros(1, dtype=np.int64)

    def measure() -> float:
        buffer = writer.buffers["Unit"]
        begin = perf_counter()
        for _ in range(num_repeats):
            writer.clear()
            writer.add(obs, ())
            buffer.pack()
        elapsed = perf_counter() - begin
        writer.finish(reward, flags, flags, index, index)
        return elapsed / num_repeats / num_entities * 1e9

    return measure


def by_hand(units: list[Unit], num_repeats: int) -> Callable[[], float]:
    """ns an entity for the list of lists that people write."""

    def measure() -> float:
        begin = perf_counter()
        for _ in range(num_repeats):
            np.array([[u.x, u.y, u.health, u.is_alive] for u in units], dtype=np.float32)
        return (perf_counter() - begin) / num_repeats / len(units) * 1e9

    return measure


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    units = [Unit(i, i + 1, 0.5 * i, i % 2 == 0) for i in range(100)]
    rows = np.arange(20_000, dtype=np.float32).reshape(5000, 4)
    figures = interleaved(
        {
            "dataclass_ns_per_entity": writes(Obs().entities(units), 100, 2000),
            "numpy_ns_per_entity": writes(Obs().entities(rows, of=Unit), 5000, 2000),
            "by_hand_ns_per_entity": by_hand(units, 2000),
        },
        rounds,
    )
    report("Featurizing an entity of 4 fields", figures, ["numpy", "entity-env"], as_json)


if __name__ == "__main__":
    main()
