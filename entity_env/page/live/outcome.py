"""How an episode ended, and the rules of a game, in words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from entity_env.agents.game_agents import game_agents
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.episode import Episode
from entity_env.views.describe import describe_number
from entity_env.views.scene import one_line

_TITLE: Final = re.compile(r"\w[\w ]*:")
_ITEM: Final = re.compile(r" {4}\w+: ")
_ENTITIES: Final = "Entities and features:"
_COMMAND: Final = "entity-env "
_ADAPTERS: Final = "entity_env.interop."
_DIGITS: Final = 9
"""Decimals in which scores are compared."""
_FOR_PROGRAMMERS: Final = ("Args:", "Raises:", "Returns:", "Example:", "Examples:")
"""Sections of a docstring that do not help a player."""
_MAX_RULES: Final = 200
"""Maximum lines of the rules."""


class Outcome(NamedTuple):
    """How an episode ended.

    Args:
        headline: who won, or the score of a single agent.
        reasons: why it ended, and the metrics of the game.
    """

    headline: str
    reasons: list[str]


def outcome(game: Game, names: Sequence[str], ends: Mapping[int, Turn]) -> Outcome:
    """How an episode ended.

    Args:
        names: display names of the agents.
        ends: the last turn of each agent.
    """
    episodes = [turn.episode for _, turn in sorted(ends.items()) if turn.episode is not None]
    return Outcome(one_line(_headline(game, names, ends, episodes)), [*_reasons(names, episodes)])


def _headline(
    game: Game, names: Sequence[str], ends: Mapping[int, Turn], episodes: Sequence[Episode]
) -> str:
    if len(episodes) == game.num_agents:
        turns = [ends[agent_id] for agent_id in sorted(ends)]
        if (summary := game_agents(game).summary(names, turns)) is not None:
            return summary
    rewards = [round(episode.reward, _DIGITS) for episode in episodes]  # sums of small steps
    scores = " : ".join(map(describe_number, rewards))
    if len(episodes) == 1:
        return f"Score {scores}"
    pairs = zip(episodes, rewards, strict=True)
    winners = [names[each.agent_id] for each, reward in pairs if reward == max(rewards)]
    if len(winners) == len(episodes):
        return f"No winner, {scores}"
    won = f"{winners[0]} won" if len(winners) == 1 else f"{' and '.join(winners)} share the lead"
    return f"{won}, {scores}"


def _reasons(names: Sequence[str], episodes: Sequence[Episode]) -> Iterator[str]:
    ways = [
        "cut off by a limit (truncated)" if episode.truncated else "ended by the rules (terminated)"
        for episode in episodes
    ]
    for episode, way in zip(episodes, ways, strict=True):
        is_same = len({*ways}) == 1
        who = "" if is_same else f"{names[episode.agent_id]}: "
        if not is_same or episode is episodes[0]:
            yield f"{who}{way} after {episode.length} step{'s' * (episode.length != 1)}"
    for episode in episodes:
        who = f"{names[episode.agent_id]}: " if len(episodes) > 1 else ""
        words = ", ".join(
            f"{one_line(name)} {describe_number(value)}" for name, value in episode.metrics.items()
        )
        if words:
            yield who + words


def rules_of(game: Game) -> list[str]:
    """The rules of a game from its docstrings, a paragraph per line; titles end with a colon.

    Those of its function and of the function's module, without arguments, errors, examples and
    commands; entities come last. Empty for an environment of another library, whose docstrings are
    those of its adapter.
    """
    play = inspect.unwrap(game.play.func if isinstance(game.play, partial) else game.play)
    module = inspect.getmodule(play if inspect.isroutine(play) else type(play))
    if module is None or module.__name__.startswith(_ADAPTERS):
        return []
    own, shared = ([*_sections(inspect.getdoc(each) or "")] for each in (play, module))
    if getattr(play, "__name__", "") == "play" and shared:
        found = shared
    else:  # one of several games of a module
        found = own + [section for section in shared if section[0]]
    found.sort(key=lambda section: section[0] == _ENTITIES)
    return [line for title, lines in found for line in (title, *lines) if line][:_MAX_RULES]


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """The titles of a docstring, first "", with their paragraphs and items."""
    title, lines = "", list[str]()
    for paragraph in re.split(r"\n\s*\n", text):
        if _COMMAND in paragraph:
            continue
        is_begun = False
        for line in paragraph.splitlines():
            if _TITLE.fullmatch(line):
                yield from _for_players(title, lines)
                title, lines = line, []
            elif is_begun and not _ITEM.match(line):
                lines[-1] += f" {one_line(line)}"
                continue
            else:
                lines.append(one_line(line))
            is_begun = bool(lines)
    yield from _for_players(title, lines)


def _for_players(title: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    if lines and title not in _FOR_PROGRAMMERS:
        yield title, lines
