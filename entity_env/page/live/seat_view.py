"""`SeatView`: one agent in the page of a game: its score, its last picture and its last move."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final, TypeAlias

from entity_env.agents import Agent
from entity_env.agents.policy_agent import thoughts_to_show
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.action_request import Question, chosen_values, questions
from entity_env.core.observation import Action, EntityID, SelectEntityAction
from entity_env.core.spaces import ActionName, SelectEntityActionSpace
from entity_env.page.live.questions import Check, Json, question_as_json
from entity_env.views.describe import (
    action_words,
    describe_actions,
    describe_features,
    describe_number,
    label_of,
    words_of,
)
from entity_env.views.drawing import Drawing
from entity_env.views.look import Look
from entity_env.views.page import shapes_as_json
from entity_env.views.parts.bars import past_fields, shares_of
from entity_env.views.parts.spots import Pointer
from entity_env.views.scene import Point, clipped, one_line
from entity_env.views.seen import SeenEntity, SeenObservation, seen_entities

_MAX_WORDS: Final = 100
_MAX_ENTITIES: Final = 200
"""Maximum number of entities with a description under the pointer."""
_MAX_ACTORS: Final = 8
"""Maximum number of actors of an action whose move or thoughts are shown."""
_MAX_BARS: Final = 6
_TEXT_SIZE: Final = (80, 24)
"""Columns and rows for environments that render text."""
_HIDDEN: Final = "hidden"
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


Actions: TypeAlias = Mapping[ActionName, Action]


@dataclass(frozen=True)
class ShownGame:
    """The game of a page.

    Args:
        look: how observations are drawn.
        names: display names of the agents.
        humans: ids of the people. With people, nothing is shown that is hidden from policies,
            unless all observations are open.
    """

    game: Game
    look: Look
    names: Sequence[str]
    humans: frozenset[int] = frozenset()

    @property
    def shows_hidden(self) -> bool:
        return not self.humans or self.look.is_open

    @property
    def viewer(self) -> int:
        """The agent whose side is drawn first."""
        return min(self.humans, default=0)


class ShownObservation:
    """An observation as one agent sees it, in JSON for `live.js`.

    Args:
        turn: its actions are not read.
        drawing: of the agent's episode; grows with the observation.
        page: what is the same in all turns.
    """

    def __init__(self, turn: Turn, drawing: Drawing, page: ShownGame) -> None:
        self.observation, self._turn = turn.observation, turn
        self._game, self._drawing, self._look = page.game, drawing, page.look
        self._seen = SeenObservation(
            turn.observation,
            drawing.obs_space,
            turn.agent_id,
            hidden=page.shows_hidden,
            agent_names=page.names,
            viewer=page.viewer,
        )
        drawing.include(self._seen)
        self._shapes = drawing.draw(self._seen).shapes
        self.index_of: Mapping[EntityID, int] = turn.observation.index_of_ids(drawing.obs_space)
        self._entities = {entity.index: entity for entity in self._seen.entities}
        self._words: dict[int, str] = {}

    def words(self, index: int) -> str:
        """An entity in words, or that it is hidden."""
        if index not in self._words:
            entity = self._entities.get(index)
            words = _HIDDEN if entity is None else words_of(entity, self._look)
            self._words[index] = clipped(words, _MAX_WORDS)
        return self._words[index]

    def actor(self, question: Question, actor: int) -> int | None:
        """Index of the entity that acts; None for a global action, or if it is hidden."""
        index = self.index_of.get(question.actors[actor], -1)
        return index if index in self._entities else None

    @cached_property
    def picture(self) -> dict[str, Json]:
        """The fields of a frame that show the observation."""
        globals_ = self._seen.globals
        return {
            "shapes": shapes_as_json(self._shapes),
            "words": {index: self.words(index) for index in islice(self._entities, _MAX_ENTITIES)},
            "all": describe_features(globals_.names, globals_.features)
            if self._drawing.leaves_globals_out(self._seen)
            else "",
            "text": self._text(),
        }

    def _text(self) -> str:
        """The frame of an environment that renders text, unless the look draws it."""
        text = getattr(self._game.play, "text", None)
        if text is None or self._look.draw is not None:
            return ""
        frame = text(*_TEXT_SIZE, has_colors=False, ascii_only=False)
        return _ANSI.sub("", frame) if isinstance(frame, str) else ""

    @cached_property
    def places(self) -> Mapping[EntityID, Point]:
        """The entities that have coordinates."""
        found = {each.id: self._drawing.place_of(each) for each in self._entities.values()}
        return {entity: place for entity, place in found.items() if place is not None}

    @cached_property
    def _hidden(self) -> set[int]:
        found = seen_entities(self.observation, self._drawing.obs_space)
        return {entity.index for entity in found} - self._entities.keys()

    # ------------------------------------------------------------------ choices

    @cached_property
    def questions(self) -> list[Question]:
        """The actions that the observation asks for."""
        space = self._drawing.obs_space
        return questions(self.observation, space, self._game.action_space())

    def title(self, question: Question, actor: int) -> str:
        """The action; of several actors also which one."""
        if len(question.actors) == 1:
            return action_words(question.name)
        index = self.index_of.get(question.actors[actor], -1)
        words = self.words(index)
        return f"{action_words(question.name)} {actor + 1} of {len(question.actors)}: {words}"

    def labels(self, question: Question) -> list[str]:
        """The choices in words."""
        if isinstance(question.space, SelectEntityActionSpace):
            return [self.words(self.index_of[each]) for each in question.actees]
        return [label_of(question.name, label, self._look) for label in question.choices]

    def ask(self, question: Question, actor: int) -> tuple[dict[str, Json], Check]:
        """The question to one actor in JSON, and the check of its answer."""
        asked, check = question_as_json(
            question,
            actor,
            [self.index_of[each] for each in question.actees],
            self.labels(question),
            lambda choice: self._path(question, actor, choice),
        )
        return {"title": self.title(question, actor), **asked}, check

    def mark(self, question: Question, actor: int, value: Json) -> list[Json]:
        """Where a choice points to: at most two points; empty for numbers."""
        if isinstance(value, list):
            return []
        spots = self._path(question, actor, value)
        return [[x, y] for x, y, *_ in [*spots[:1], *spots[1:][-1:]]]

    def marks(self, actions: Actions) -> Iterator[list[Json]]:
        """Where actions for this observation point to."""
        values = chosen_values(self.questions, actions) if actions else {}
        for question in self.questions if actions else ():
            for actor, value in enumerate(values[question.name][:_MAX_ACTORS]):
                if mark := self.mark(question, actor, value):
                    yield mark

    def _path(self, question: Question, actor: int, choice: int) -> list[Json]:
        index = self.index_of.get(question.actors[actor], -1)
        of = self._entities.get(index)
        chosen: str | SeenEntity
        if isinstance(question.space, SelectEntityActionSpace):
            entity = self._entities.get(self.index_of[question.actees[choice]])
            if entity is None:  # hidden
                return []
            chosen = entity
        else:
            chosen = question.choices[choice]
        if of is None and index in self._hidden:
            return []
        spots = self._pointer.path(question.name, of, chosen)
        return [[round(x, 3), round(y, 3), one_line(words)] for x, y, words in spots]

    @cached_property
    def _pointer(self) -> Pointer:
        return Pointer(self._drawing, self._seen, self._shapes)

    # ------------------------------------------------------------------ thoughts

    def bars(self, agent: Agent, actions: Actions) -> list[Json] | None:
        """Probabilities of an agent's network for the choices here; None without a network.

        Per action and actor `[title, [[choice, probability, 1 if chosen], ...], number of other
        choices]` for those that are legal, see `shares_of`; first the value that it predicts,
        without choices; last, without choices but with a fourth item, the steps that it remembers,
        see `past_fields`.
        """
        thoughts = thoughts_to_show(agent, self.observation)
        if thoughts is None:
            return None
        found: list[Json] = []
        if thoughts.value is not None:
            found.append([f"value {describe_number(thoughts.value)}", [], 0])
        turn = replace(self._turn, actions=actions, thoughts=thoughts)
        spaces = self._drawing.obs_space, self._game.action_space()
        for rows in shares_of(turn, *spaces).values():
            known = [each for each in rows[:_MAX_ACTORS] if each.shares is not None]
            labels = self.labels(known[0].question) if known else []
            for each in known:
                shares, legal = each.shares or (), each.legal
                shown = [i for i in each.most_probable(_MAX_BARS) if i in legal]
                bars = [[labels[i], shares[i], int(i == each.chosen)] for i in shown]
                title = self.title(each.question, each.actor)
                found.append([title, bars, len(legal) - len(shown)])
        if thoughts.past:
            found.append(["", [], 0, past_fields(thoughts.past)])
        return found


class SeatView:
    """One agent in the page: its score, its last picture and its last move."""

    def __init__(self, name: str, page: ShownGame) -> None:
        self.name = name
        self._page = page
        self.step, self.score, self.end = 0, 0.0, ""
        self.ending: Turn | None = None
        self.drawing: Drawing | None = None
        self.shown: ShownObservation | None = None
        self.marks: list[Json] = []
        """Where its last actions pointed to."""

    @property
    def picture(self) -> Mapping[str, Json]:
        return {} if self.shown is None else self.shown.picture

    def see(self, turn: Turn) -> ShownObservation:
        """Draws the observation of a turn; keeps the last picture if it is blank."""
        observation, shown = turn.observation, self.shown
        if shown is None or not (observation.is_blank or observation is shown.observation):
            if self.drawing is None:
                page = self._page
                self.drawing = Drawing(page.look, page.game.obs_space(), page.names)
            self.shown = shown = ShownObservation(turn, self.drawing, self._page)
        return shown


def said_by_others(turn: Turn, page: ShownGame) -> str:
    """The actions of a turn in words; selections show only types, since entities may be hidden."""
    observation, space = turn.observation, page.game.obs_space()
    type_of = {entity.id: entity.type for entity in seen_entities(observation, space)}
    words = []
    for name, action in turn.actions.items():
        if isinstance(action, SelectEntityAction):
            words.append(f"{name} {', '.join(type_of[each] for each in action.actees)}")
        else:
            words.append(describe_actions({name: action}, observation, space, page.look))
    return "; ".join(words)
