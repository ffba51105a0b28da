"""`Divergence`: first difference between a replay and its game, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from entity_env.authoring.game_traceback import is_a, summary_of
from entity_env.core.episode import Episode
from entity_env.core.masks import without_equal_rows
from entity_env.core.observation import Observation
from entity_env.core.spaces import ActionName, Spaces, differences
from entity_env.errors import ReplayError, SchemaError, WorkerError
from entity_env.lazy_imports import np
from entity_env.replay.encoding import Json, observation_from_json
from entity_env.replay.file import Decision, End
from entity_env.views.describe import describe_number

Kind: TypeAlias = Literal["schema", "agent", "action", "observation", "end", "raises"]

_ENDS: Final = ("reward", "length", "terminated", "truncated", "metrics")


@dataclass(frozen=True)
class Divergence:
    """The first difference between a replay and its game.

    Unobserved state may have differed earlier.

    Args:
        kind: "schema": the spaces differ; "agent": another agent is next; "action": other actions
            are requested, or a recorded action is no longer allowed; "observation": an observation
            differs; "end": the episode ends earlier, later or differently; "raises": the game
            raises, or no longer does.
        text: the difference in words, without the place.
        agent_id, step: the place; None if it is not inside the episode.
        entity: type and position, such as "Food 0"; "" if no entity differs.
        feature: name of the feature, or of anything else that differs, such as "reward".
        was, now: recorded and current value; None if unknown.
    """

    kind: Kind
    text: str
    agent_id: int | None = None
    step: int | None = None
    entity: str = ""
    feature: str = ""
    was: Json = None
    now: Json = None

    def __str__(self) -> str:
        place = "" if self.agent_id is None else f"agent {self.agent_id}, step {self.step}: "
        return place + self.text


def at_line(line: Decision, kind: Kind, text: str, **more: Any) -> Divergence:  # noqa: ANN401 - fields of Divergence
    """A difference at one line of a replay."""
    return Divergence(kind, text, line.agent_id, line.step, **more)


def schema_divergence(spaces: Spaces, game: Spaces) -> Divergence | None:
    """Difference between the spaces of a replay and a game, in sentences, or None."""
    found = differences(spaces, game, expected_name="the replay", got_name="the game")
    return Divergence("schema", "; ".join(found)) if found else None


def end_divergence(line: Decision, end: End, episode: Episode) -> Divergence | None:
    """Difference in how an episode ended, or None."""
    is_now = End.of(episode)
    for name in _ENDS:
        was, now = getattr(end, name), getattr(is_now, name)
        if was != now:
            text = f"the {name} of the episode {_changed(was, now)}"
            return at_line(line, "end", text, feature=name, was=was, now=now)
    return None


def observation_divergence(
    line: Decision,
    observation: Observation,
    spaces: Spaces,
    last_score: float | None,
    now: int,
) -> Divergence:
    """Difference in an observation whose checksum is `now`.

    Names the entity and the feature if the replay stores observations; `last_score` is the agent's
    score at its previous line, if there is one.
    """
    if line.end is None and set(line.actions) != set(observation.actions):
        was, asked = ", ".join(line.actions), ", ".join(observation.actions)
        text = f"{was or 'nothing'} was requested, {asked or 'nothing'} is now"
        return at_line(line, "action", text, was=was, now=asked)
    found = None
    if line.score is not None:
        try:
            seen = observation_from_json(line.seen, spaces, reward=0.0)
        except SchemaError as error:
            raise ReplayError(
                f"agent {line.agent_id}, step {line.step} of the replay: {error}"
            ) from error
        found = (
            _entities(line, seen, observation, spaces)
            or _reward(line, observation, last_score)
            or _masks(line, seen, observation, spaces)
        )
    text = f"the observation differs ({line.checksum:08x}, now {now:08x})"
    return found or at_line(line, "observation", text, was=line.checksum, now=now)


def _entities(
    line: Decision, was: Observation, now: Observation, spaces: Spaces
) -> Divergence | None:
    obs_space = spaces[0]
    old, new = (np.atleast_2d(each.global_features) for each in (was, now))
    if found := _features(line, "", obs_space.global_features, old, new):
        return found
    for name, entity in obs_space.entities.items():
        counts = was.num_entities(name), now.num_entities(name)
        if counts[0] != counts[1]:
            text = f"{_count(counts[0], name)} seen, {counts[1]} now"
            return at_line(line, "observation", text, entity=name, was=counts[0], now=counts[1])
        if counts[0]:
            rows = was.features[name], now.features[name]
            if found := _features(line, name, entity.features, *rows):
                return found
        hidden = [np.flatnonzero(~_visible(each, name)).tolist() for each in (was, now)]
        if hidden[0] != hidden[1]:
            text = f"hidden {name} were {hidden[0]}, are {hidden[1]} now"
            return at_line(line, "observation", text, entity=name, was=hidden[0], now=hidden[1])
    return None


def _visible(observation: Observation, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    all_seen = np.ones(observation.num_entities(name), dtype=np.bool_)
    return np.asarray(observation.visible.get(name, all_seen), dtype=np.bool_)


def _features(
    line: Decision, name: str, features: Sequence[str], old: object, new: object
) -> Divergence | None:
    before, after = (np.asarray(rows, dtype=np.float32) for rows in (old, new))
    if before.shape != after.shape or not (before != after).any():
        return None
    row, column = (int(i) for i in np.argwhere(before != after)[0])
    was, now = float(before[row, column]), float(after[row, column])
    entity = f"{name} {row}" if name else ""
    where = f"{entity}: " if entity else ""
    text = f"{where}{features[column]} {_changed(was, now)}"
    more: dict[str, Any] = {"entity": entity, "feature": features[column], "was": was, "now": now}
    return at_line(line, "observation", text, **more)


def _reward(line: Decision, observation: Observation, score: float | None) -> Divergence | None:
    if line.score is None:
        return None
    was, now = line.reward(score), float(observation.reward)
    if was == now:
        return None
    text = f"the reward {_changed(was, now)}"
    return at_line(line, "observation", text, feature="reward", was=was, now=now)


def _masks(
    line: Decision, was: Observation, observation: Observation, spaces: Spaces
) -> Divergence | None:
    for name in set(observation.actions) & set(was.actions):
        actors = [each.actor_indices(name, spaces[0]).tolist() for each in (was, observation)]
        if actors[0] != actors[1]:
            text = f"the actors of {name} were {actors[0]}, are {actors[1]} now"
            return at_line(line, "observation", text, feature=name, was=actors[0], now=actors[1])
        if _mask(was, name) != _mask(observation, name):
            text = f"the mask of {name} differs"
            return at_line(line, "observation", text, feature=name)
    return None


def _mask(observation: Observation, name: ActionName) -> list[bool] | None:
    mask = without_equal_rows(getattr(observation.actions[name], "mask", None))
    return None if mask is None else np.asarray(mask, dtype=np.bool_).ravel().tolist()


def _count(count: int, name: str) -> str:
    return f"{count} {name} {'was' if count == 1 else 'were'}"


def _changed(was: object, now: object) -> str:
    """ "was 2, is 7 now", with enough digits to differ; "were" for mappings."""
    texts = [_shown(was), _shown(now)]
    if texts[0] == texts[1]:
        texts = [repr(was), repr(now)]
    verbs = ("were", "are") if isinstance(was, Mapping) else ("was", "is")
    return f"{verbs[0]} {texts[0]}, {verbs[1]} {texts[1]} now"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items()) or "none"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return describe_number(float(value)) if is_number else str(value)  # type: ignore[arg-type]  # a number


_REASONS: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"the game raised (.*)",
        r"the game (called sys\.exit\(.*\)): .*",
        r"the game (hangs: .*)",
        r"worker \d+, which runs [^,]*, (hangs: no answer for [^,]*).*",
        r"worker \d+, which runs [^,]*, (died \([^)]*\)).*",
    )
)


def failure_of(error: BaseException) -> str:
    """How an episode failed: "ValueError: boom", "called sys.exit(1)", "died (signal 9)"."""
    if not is_a(error, WorkerError):
        return summary_of(error)
    for pattern in _REASONS:
        if found := pattern.fullmatch(error.reason):
            return found[1]
    return error.reason
