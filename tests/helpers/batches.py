"""Batches for tests: finishing a writer, comparing two batches, or a batch with lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import (
    GLOBAL_ENTITY,
    ActionType,
    Game,
    Metric,
    RaggedArray,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.batching.entity_buffer import Batcher
from entity_env.core.episode import Episode
from entity_env.core.episode_stats import EpisodeCollector, FinishedEpisodes
from entity_env.core.vec_obs import EntityBatch, VecActionMask
from entity_env.games import GAMES
from entity_env.vec import BatchEnv, GameTraining
from tests.helpers.strategies import (
    ACTIONS,
    CALL,
    EAT,
    STEER,
    Food,
    Rock,
    Scene,
    Snake,
    features_of,
)

CLASSES: tuple[type, ...] = (Snake, Food, Rock)
"""Entity classes of the scenes, in the order of the observation space."""


def finish(writer: Batcher) -> VecObs:
    """The batch gathered by a writer, with rewards of 0."""
    num_rows = writer.num_rows
    return writer.finish(
        reward=np.zeros(num_rows, dtype=np.float32),
        terminated=np.zeros(num_rows, dtype=np.bool_),
        truncated=np.zeros(num_rows, dtype=np.bool_),
        env_id=np.arange(num_rows),
        agent_id=np.zeros(num_rows, dtype=np.int64),
    )


def assert_same(first: VecObs, second: VecObs) -> None:
    """Compares the complete observations of two batches."""
    assert list(first.features) == list(second.features)
    for name, rows in first.features.items():
        assert_same_ragged(rows, second.features[name])
    assert set(first.visible) == set(second.visible)
    for name, seen in first.visible.items():
        assert_same_ragged(seen, second.visible[name])
    assert list(first.action_masks) == list(second.action_masks)
    for name, mask in first.action_masks.items():
        assert_same_mask(mask, second.action_masks[name])
    assert first.metrics == second.metrics


def assert_same_mask(first: VecActionMask, second: VecActionMask) -> None:
    assert type(first) is type(second)
    for part in ("actors", "actees", "mask", "per_actor"):
        one, two = getattr(first, part, None), getattr(second, part, None)
        assert (one is None) == (two is None), part
        if one is not None and two is not None:
            assert_same_ragged(one, two)


def assert_same_ragged(first: RaggedArray[Any], second: RaggedArray[Any]) -> None:
    assert first.values.dtype == second.values.dtype
    assert_array_equal(first.lengths, second.lengths)
    assert_array_equal(first.values, second.values)


def assert_shows(batch: VecObs, scenes: Sequence[Scene]) -> None:
    """Compares a batch with the scenes it was made from, number by number."""
    assert list(batch.features) == [*(cls.__name__ for cls in CLASSES), GLOBAL_ENTITY]
    hidden = {cls.__name__ for scene in scenes for cls in scene.visible}
    assert set(batch.visible) == hidden
    for row, scene in enumerate(scenes):
        for cls in CLASSES:
            entities = scene.entities_of(cls)
            shown = batch.features[cls.__name__][row].tolist()
            assert shown == [features_of(entity) for entity in entities]
            if cls.__name__ in hidden:
                expected = scene.visible.get(cls, [True] * len(entities))
                assert batch.visible[cls.__name__][row].tolist() == expected
        assert batch.features[GLOBAL_ENTITY][row].tolist() == [features_of(scene.world)]
        for action in ACTIONS:
            _assert_asks(batch.action_masks[action.name], row, scene, action)
    for action in ACTIONS:
        has_mask = any(action in scene.masks for scene in scenes)
        assert (getattr(batch.action_masks[action.name], "mask", None) is not None) == has_mask
    assert batch.metrics == _metrics(scenes)


def _assert_asks(mask: VecActionMask, row: int, scene: Scene, action: ActionType[Any]) -> None:
    index_of = {
        (cls, i): first + i
        for cls, first in zip(CLASSES, _offsets(scene), strict=True)
        for i in range(len(scene.entities_of(cls)))
    }
    actors: list[int] = []
    if action in scene.asked:
        actors = [index_of[actor] for actor in scene.actors_of(action)]
        if action is CALL:
            actors = [len(index_of)]
    assert mask.actors[row].tolist() == actors
    num_choices = 4
    if action is EAT:
        asked = action in scene.asked
        actees = [index_of[Food, i] for i in range(len(scene.entities_of(Food)))] if asked else []
        assert isinstance(mask, VecSelectEntityActionMask)
        assert mask.actees[row].tolist() == actees
        num_choices = len(actees)
    given = getattr(mask, "mask", None)
    if action is not STEER and given is not None:
        allowed = given[row].reshape(len(actors), num_choices)
        expected = scene.masks.get(action, np.ones(allowed.shape, dtype=np.bool_))
        assert_array_equal(allowed, expected)


def _offsets(scene: Scene) -> list[int]:
    counts = [len(scene.entities_of(cls)) for cls in CLASSES]
    return [sum(counts[:i]) for i in range(len(counts))]


def _metrics(scenes: Sequence[Scene]) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    for scene in scenes:
        for name, value in scene.metrics.items():
            metrics.setdefault(name, Metric()).push(value)
    return metrics


def finished_of(
    ended: Iterable[tuple[int, float, Episode]], num_agents: int = 1
) -> FinishedEpisodes:
    """Finished episodes: row, last reward and episode of each."""
    collector = EpisodeCollector(0, num_agents)
    for row, last_reward, episode in ended:
        collector.add_episode(row, last_reward, episode)
    return collector.finished()


def random_obs(rng: np.random.Generator, num_rows: int) -> tuple[VecObs, dict[str, NDArray[Any]]]:
    """Observations of two types with all kinds of actions, and a sampled action per actor."""
    counts = {"A": rng.integers(0, 3, num_rows), "B": rng.integers(0, 3, num_rows)}
    features = {
        name: RaggedArray(rng.random((own.sum(), 2), dtype=np.float32), own)
        for name, own in counts.items()
    }
    entities = counts["A"] + counts["B"]

    def some() -> RaggedArray[np.int64]:
        lengths = rng.integers(0, entities + 1)
        return RaggedArray(rng.integers(0, 9, lengths.sum()), lengths)

    go, pick, push, them = some(), some(), some(), some()
    masks: dict[str, VecActionMask] = {"push": VecContinuousActionMask(push)}
    labels = RaggedArray(rng.random((len(go.values), 3)) < 0.5, go.lengths)
    masks["go"] = VecCategoricalActionMask(go, labels if rng.random() < 0.5 else None)
    pairs = pick.lengths * them.lengths
    allowed = RaggedArray(rng.random(pairs.sum()) < 0.5, pairs)
    masks["pick"] = VecSelectEntityActionMask(pick, them, allowed if rng.random() < 0.5 else None)
    obs = VecObs(
        features,
        {},
        masks,
        reward=rng.random(num_rows, dtype=np.float32),
        terminated=rng.random(num_rows) < 0.2,
        truncated=rng.random(num_rows) < 0.2,
        env_id=np.arange(num_rows),
        agent_id=np.zeros(num_rows, np.int64),
    )
    for name in rng.permutation(["A", "B"])[: rng.integers(0, 3)]:
        flags = rng.random(counts[name].sum()) < 0.5
        obs.visible[str(name)] = RaggedArray(flags, counts[name])
    samples: dict[str, NDArray[Any]] = {
        "go": rng.integers(0, 3, len(go.values)),
        "pick": rng.integers(0, 3, len(pick.values)),
        "push": rng.random((len(push.values), 2), dtype=np.float32),
    }
    return obs, samples


def facts(obs: EntityBatch, samples: Mapping[str, NDArray[Any]], row: int) -> dict[str, Any]:
    """All parts of a decision as lists, including default values."""
    said: dict[str, Any] = {}
    if isinstance(obs, VecObs):
        names = ("reward", "terminated", "truncated", "env_id", "agent_id")
        said = {name: getattr(obs, name)[row].item() for name in names}
    for name, features in obs.features.items():
        said[name] = features[row].tolist()
        flags = obs.visible.get(name)
        said[f"{name} visible"] = [True] * len(said[name]) if flags is None else flags[row].tolist()
    for name, mask in obs.action_masks.items():
        said[f"{name} actors"] = mask.actors[row].tolist()
        if name in samples:
            drawn = RaggedArray(samples[name], mask.actors.lengths)
            said[f"{name} samples"] = drawn[row].tolist()
        if isinstance(mask, VecContinuousActionMask):
            continue
        num_actors = len(said[f"{name} actors"])
        everything: list[Any] = [[True] * 3] * num_actors
        if isinstance(mask, VecSelectEntityActionMask):
            said["actees"] = mask.actees[row].tolist()
            everything = [True] * (num_actors * len(said["actees"]))
        said[f"{name} mask"] = everything if mask.mask is None else mask.mask[row].tolist()
    return said


BATCHES: Final[Mapping[str, Callable[..., BatchEnv]]] = {
    name: batch
    for name, game in GAMES.items()
    if (batch := GameTraining.of(game).batch) is not None
}
"""Constructors of batches, by the name of the game."""
PLAIN_GAMES: Final[Mapping[str, Game]] = {
    name: game for name, game in GAMES.items() if name not in BATCHES
}
"""Games that are played in copies."""
