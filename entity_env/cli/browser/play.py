"""`play_in_browser`: people play a game in a page, or watch its agents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from rich.text import Text

from entity_env.agents import Agent, PolicyAgent
from entity_env.agents.human.move_clock import MoveClock
from entity_env.agents.human.prompt import keyed_choices
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.browser.server import Page, PageServer
from entity_env.cli.display.console import echo
from entity_env.cli.display.terminal_view import shown_names
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import HUMAN, EpisodesSeen
from entity_env.cli.options import PlayOptions
from entity_env.core.action_request import Question, require_in_bounds
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, EntityID, Observation, SelectEntityAction
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import is_number
from entity_env.errors import SchemaError
from entity_env.views.describe import (
    describe_actions,
    describe_entity,
    describe_features,
    describe_number,
)
from entity_env.views.drawing import Drawing, clipped
from entity_env.views.look import Look
from entity_env.views.page import shapes_as_json
from entity_env.views.scene import Point
from entity_env.views.seen import SeenObservation

_LIVE: Final = Path(__file__).with_name("live.html")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_NUM_MOVES: Final = 12
"""Number of recent moves in the list."""
_MAX_WORDS: Final = 100
_MAX_ENTITIES: Final = 200
"""Maximum number of entities with a description under the pointer."""
_END_S: Final = 1.5
"""How long spectators see the end of an episode."""
_RELOAD_S: Final = 2.0
"""After the last episode, a page that is gone for longer was closed, not reloaded."""
_WAKE_S: Final = 1.0

Json: TypeAlias = Any
Check: TypeAlias = Callable[[Mapping[str, Json]], Json]
"""The value of an answer; raises SchemaError if it is not allowed."""


def play_in_browser(
    game: Game,
    names: Sequence[str],
    load: Callable[[int], Sequence[Agent]],
    *,
    look: Look,
    start: PlayOptions,
    episodes: int,
    fps: float,
    is_opened: bool,
    ended: Callable[[Episode], None],
) -> None:
    """Plays a game in a page until its last episode has ended and the page is closed.

    The game waits while the page is closed. "Play again" starts the next run, with the next seed.
    Ctrl-C ends the game.

    Args:
        names: of the agents; "human" is a person in the browser.
        load: the agents for a seed; people replace those called "human".
        start: of the first run. If a person's time runs out while no page is open, the clock
            restarts when a page is opened.
        episodes: per run.
        fps: turns per second for spectators.
        is_opened: open the browser, if there is a screen.
        ended: called with every episode.
    """
    page = GamePage(game, names, look, fps=fps, episodes=episodes, ended=ended)
    with page.server:
        page.server.announce(game.name, is_opened=is_opened)
        is_wanted = True
        while is_wanted:
            is_interrupted, page.seen = True, EpisodesSeen()
            with suppress(KeyboardInterrupt):
                agents = [
                    BrowserAgent(page, start.clock_s) if name == HUMAN else agent
                    for name, agent in zip(names, load(start.seed), strict=True)
                ]
                with game_errors(game):
                    start.play(game, agents, page.watch, episodes)
                is_interrupted = False
            is_left = page.seen.is_left(episodes)
            if is_left:
                echo("left before the end")
            echo(start.seeds)
            is_wanted = False
            with suppress(KeyboardInterrupt):
                is_wanted = not is_left and not is_interrupted and page.wants_more()
            start = replace(start, seed=start.seed + 1)


class BrowserAgent(PolicyAgent):
    """A person at a page; accepts only legal actions, and asks actor by actor.

    Args:
        page: may be shared with other people.
        clock_s: time per decision; None = no limit.
    """

    def __init__(self, page: GamePage, clock_s: float | None = None) -> None:
        super().__init__()
        self._clock = None if clock_s is None else MoveClock(clock_s)
        self._page = page

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        run = self._run
        turn = Turn(run.agent_id, run.num_steps, run.last_score, observation)
        if self._clock is not None:
            self._clock.begin(run.num_steps)
        try:
            actions = {
                question.name: self._page.ask(
                    turn, question, is_at_once=run.is_async, clock=self._clock
                )
                for question in self.questions(observation)
            }
            if self._clock is not None:
                time.sleep(self._clock.rest_s)
            return actions
        except KeyboardInterrupt:
            return None


@dataclass
class _Seat:
    """Displayed state of an agent."""

    name: str
    step: int = 0
    score: float = 0.0
    end: str = ""
    drawing: Drawing | None = None
    picture: dict[str, Json] = field(default_factory=dict)


class GamePage:
    """The page of a game: shows turns, asks people, and waits for their answers.

    With people in the game it shows what the person to move observes, without what is hidden from
    policies. Of other agents it shows only moves; simultaneous ones after the person's decision.

    Args:
        game, names, look, fps, episodes, ended: as for `play_in_browser`.
    """

    def __init__(
        self,
        game: Game,
        names: Sequence[str],
        look: Look,
        *,
        fps: float,
        episodes: int,
        ended: Callable[[Episode], None],
    ) -> None:
        self._game, self._look = game, look
        self._space = game.obs_space()
        self._fps, self._num_episodes, self._ended = fps, episodes, ended
        self._humans = {i for i, name in enumerate(names) if name == HUMAN}
        self._names = shown_names(names, sorted(self._humans))
        self.seen = EpisodesSeen()
        """Episodes of the current run; set by the caller."""
        self._episode = 0
        self._begin_episode()
        self._shown: tuple[Mapping[str, Json], Sequence[str]] = ({}, ())
        self._ground: tuple[int, int, Point] | None = None
        self._answered = threading.Condition()
        self._number = 0
        self._check: Check | None = None
        self._answer: Json = None
        page = Page.of(_LIVE)
        self.server = PageServer(lambda route: None if route else page, self._post)

    # ------------------------------------------------------------------ called by the game

    def ask(
        self,
        turn: Turn,
        question: Question,
        *,
        is_at_once: bool,
        clock: MoveClock | None = None,
    ) -> Action:
        """Asks a person for an action.

        Args:
            turn: the observation, without actions.
            question: one of the requested actions.
            is_at_once: other agents act at the same time.
        """
        if self._seats[turn.agent_id].end:
            self._next_episode()
        seat = self._see(turn)
        moves = [
            words
            for agent_id, step, words in self._moves
            if not (is_at_once and agent_id != turn.agent_id and step >= turn.step)
        ]
        indices = turn.observation.index_of_ids(self._space)
        is_select = isinstance(question.space, SelectEntityActionSpace)
        words = self._entity_words(turn) if is_select else seat.picture["words"]
        chosen = []
        for actor in range(len(question.actors)):
            index = indices.get(question.actors[actor], -1)
            asked, check = _asked(question, actor, indices, words)
            number = f" {actor + 1} of {len(question.actors)}: {words.get(index, 'hidden')}"
            asked["title"] = question.name + (number if len(question.actors) > 1 else "")
            picture = {**seat.picture, "actors": [index] if index >= 0 else []}
            default = None if clock is None else clock.default(question, actor)
            if clock is not None:
                asked["title"] += f" ({clock.describe(_said(asked, default))})"
            answer = self._wait_for_answer(picture, moves, asked, check, turn.agent_id, clock)
            chosen.append(default if answer is None else answer)
            if clock is not None:
                clock.last.keep(question, actor, chosen[-1])
        return question.action(chosen)

    def watch(self, turn: Turn) -> None:
        """Shows a decision or the end of an episode; callback for `Game.run`."""
        self.seen(turn)
        if self._seats[turn.agent_id].end:
            self._next_episode()
        is_human = turn.agent_id in self._humans
        playing = [i for i in self._humans if not self._seats[i].end]
        seat = self._seats[turn.agent_id]
        if turn.actions:
            words = f"{self._names[turn.agent_id]}: {self._said(turn)}"
            self._moves.append((turn.agent_id, turn.step, clipped(words, _MAX_WORDS)))
        if is_human or not playing:  # others' observations may show more than people may see
            seat = self._see(turn)
        seat.step, seat.score = turn.step, turn.score
        if turn.episode is not None:
            seat.end = "truncated" if turn.episode.truncated else "over"
            self._ended(turn.episode)
            if all(each.end for each in self._seats):
                self._end_episode(seat if is_human or not self._humans else self._last_shown)
        elif not playing:
            actors = self._actors(turn)
            self._show({**seat.picture, "actors": actors}, self._words_of_moves(), turn.agent_id)
            self._pause(1 / self._fps)

    def wants_more(self) -> bool:
        """Offers another run after the last episode; False if the page was closed."""
        asked = {"title": "", "choices": [[0, "Play again", ["enter", " "], -1]]}
        self._offer(*self._shown, asked, lambda answer: _choice(answer, [0]), None)
        while not self._has_answer(_WAKE_S):
            if not self.server.wait_for_page() and not self.server.wait_for_page(_RELOAD_S):
                return False
        self._next_episode(0)
        return True

    # ------------------------------------------------------------------ what is shown

    def _begin_episode(self) -> None:
        self._seats = [_Seat(name) for name in self._names]
        self._moves: list[tuple[int, int, str]] = []
        self._last_shown = self._seats[0]

    def _next_episode(self, number: int | None = None) -> None:
        self._episode = self._episode + 1 if number is None else number
        self._begin_episode()

    def _said(self, turn: Turn) -> str:
        """The actions in words; to people, selections of other agents show only entity types."""
        if not self._humans or turn.agent_id in self._humans:
            return describe_actions(turn.actions, turn.observation, self._space)
        types = dict(zip(turn.observation.entity_ids(self._space), self._types(turn), strict=True))
        words = []
        for name, action in turn.actions.items():
            if isinstance(action, SelectEntityAction):
                words.append(f"{name} {', '.join(types[each] for each in action.actees)}")
            else:
                words.append(describe_actions({name: action}, turn.observation, self._space))
        return "; ".join(words)

    def _types(self, turn: Turn) -> list[str]:
        counts = ((name, turn.observation.num_entities(name)) for name in self._space.entities)
        return [name for name, number in counts for _ in range(number)]

    def _actors(self, turn: Turn) -> list[int]:
        found = (turn.observation.actor_indices(name, self._space) for name in turn.actions)
        num_entities = len(self._types(turn))
        return sorted({int(i) for each in found for i in each if i < num_entities})

    def _see(self, turn: Turn) -> _Seat:
        """Draws an agent's observation for its seat; keeps the last picture if it is blank."""
        seat = self._last_shown = self._seats[turn.agent_id]
        seat.step, seat.score = turn.step, turn.score
        if turn.observation.is_blank and seat.picture:
            return seat
        if seat.drawing is None:
            seat.drawing = Drawing(self._look, self._space)
        seen = self._seen(turn)
        seat.drawing.include(seen)
        globals_ = seen.globals
        text = getattr(self._game.play, "text", None)  # of an environment that renders text
        seat.picture = {
            "shapes": shapes_as_json(seat.drawing.draw(seen).shapes),
            "words": self._entity_words(turn, _MAX_ENTITIES),
            "all": describe_features(globals_.names, globals_.features)
            if seat.drawing.leaves_globals_out(seen)
            else "",
            "text": Text.from_ansi(frame).plain if text is not None and (frame := text()) else "",
        }
        if (key := (turn.agent_id, self._episode, seat.drawing.size)) != self._ground:
            self._ground = key  # a ground depends on its size, which grows with the episode
            shapes = shapes_as_json(seat.drawing.ground().shapes)
            self.server.send("ground", {"size": key[2], "shapes": shapes})
        return seat

    def _seen(self, turn: Turn) -> SeenObservation:
        hidden = not self._humans
        return SeenObservation(turn.observation, self._space, turn.agent_id, hidden=hidden)

    def _entity_words(self, turn: Turn, most: int | None = None) -> dict[int, str]:
        """Entities that may be shown, in words, by index."""
        return {
            entity.index: clipped(describe_entity(entity, self._space), _MAX_WORDS)
            + ("" if entity.is_visible else " (hidden)")
            for entity in self._seen(turn).entities[:most]
        }

    def _words_of_moves(self) -> list[str]:
        return [words for _, _, words in self._moves]

    def _show(
        self,
        picture: Mapping[str, Json],
        moves: Sequence[str],
        agent_id: int | None,
        asked: Mapping[str, Json] | None = None,
    ) -> None:
        self._shown = picture, moves
        episodes = f" of {self._num_episodes}" if self._num_episodes > 1 else ""
        seats = [
            [each.name, each.step, describe_number(each.score), each.end] for each in self._seats
        ]
        self.server.send(
            "frame",
            {
                **picture,
                "title": self._game.name,
                "episode": f"episode {self._episode + 1}{episodes}",
                "turn": agent_id,
                "whose": "" if agent_id is None else self._names[agent_id],
                "seats": seats,
                "moves": list(moves)[-_NUM_MOVES:],
                "asked": asked,
            },
        )

    def _end_episode(self, seat: _Seat) -> None:
        is_last = self._episode + 1 >= self._num_episodes
        moves = self._words_of_moves()
        if self._humans and not is_last:
            asked = {"title": "", "choices": [[0, "Next episode", ["enter", " "], -1]]}
            check: Check = lambda answer: _choice(answer, [0])  # noqa: E731
            self._wait_for_answer(seat.picture, moves, asked, check, None)
        else:
            self._show(seat.picture, moves, None)
            if not is_last:
                self._pause(max(_END_S, 1 / self._fps))

    def _pause(self, wait_s: float) -> None:
        """Waits for a page, and then for `wait_s`."""
        while not self.server.wait_for_page(_WAKE_S):
            pass
        time.sleep(wait_s)

    # ------------------------------------------------------------------ answers

    def _wait_for_answer(
        self,
        picture: Mapping[str, Json],
        moves: Sequence[str],
        asked: dict[str, Json],
        check: Check,
        agent_id: int | None,
        clock: MoveClock | None = None,
    ) -> Json:
        """The answer; None if the clock expires while a page is open."""
        left_s = None if clock is None else clock.left_s
        self._offer(picture, moves, {**asked, "left_s": left_s}, check, agent_id)
        while not self._has_answer(_WAKE_S if left_s is None else min(left_s, _WAKE_S)):
            left_s = None if clock is None else clock.left_s
            if clock is None or left_s != 0:
                continue
            if self.server.wait_for_page(0):
                return self._withdraw()
            while not self.server.wait_for_page(_WAKE_S):
                pass
            clock.restart()
            return self._wait_for_answer(picture, moves, asked, check, agent_id, clock)
        return self._answer

    def _withdraw(self) -> Json:
        """Closes the question; returns an answer that came at the last moment."""
        with self._answered:
            is_open, self._check = self._check is not None, None
            return None if is_open else self._answer

    def _offer(
        self,
        picture: Mapping[str, Json],
        moves: Sequence[str],
        asked: dict[str, Json],
        check: Check,
        agent_id: int | None,
    ) -> None:
        with self._answered:
            self._number += 1
            self._check = check
        self._show(picture, moves, agent_id, {**asked, "number": self._number})

    def _has_answer(self, wait_s: float) -> bool:
        with self._answered:
            return self._answered.wait_for(lambda: self._check is None, wait_s)

    def _post(self, answer: object) -> str:
        """Accepts an answer to the open question, or returns why not."""
        if not isinstance(answer, dict) or type(answer.get("number")) is not int:
            return 'expected {"number": of the question, "choice" or "values": the answer}'
        with self._answered:
            if self._check is None or answer["number"] != self._number:
                return "the game has moved on: this answers an earlier question"
            try:
                self._answer = self._check(answer)
            except SchemaError as error:
                return str(error)
            self._check = None
            self._answered.notify_all()
        return ""


def _asked(
    question: Question,
    actor: int,
    indices: Mapping[EntityID, int],
    words: Mapping[int, str],
) -> tuple[dict[str, Json], Check]:
    """The question to an actor for the page, and the check of its answer."""
    space = question.space
    if isinstance(space, ContinuousActionSpace):
        bounds = zip(space.labels, map(float, space.low), map(float, space.high), strict=True)
        return {"values": list(bounds)}, partial(_values, question)
    allowed = np.flatnonzero(question.allowed[actor]).tolist()
    check = partial(_choice, allowed=allowed)
    if isinstance(space, SelectEntityActionSpace):
        of = [indices[actee] for actee in question.actees]
        labels = [words.get(index, "hidden") for index in of]
        keys: Sequence[Sequence[str]] = [(str(i + 1),) for i in range(len(of))]
    else:
        labels, of = list(question.choices), [-1] * len(question.choices)
        keys = [choice.keys for choice in keyed_choices(labels, range(len(labels)))]
    return {"choices": [[i, labels[i], _pressed(keys)[i], of[i]] for i in allowed]}, check


def _said(asked: Mapping[str, Json], answer: Json) -> str:
    if isinstance(answer, list):
        return ", ".join(map(describe_number, answer))
    return next(str(label) for choice, label, *_ in asked["choices"] if choice == answer)


def _pressed(keys: Sequence[Sequence[str]]) -> list[list[str]]:
    """Single keys: numbers above 9 become letters while these suffice."""
    taken = {key for each in keys for key in each}
    spare = [letter for letter in _LETTERS if letter not in taken]
    return [
        [key for key in each if len(key) == 1 or not key.isdecimal()]
        or spare[int(each[0]) - 10 : int(each[0]) - 9]
        for each in keys
    ]


def _choice(answer: Mapping[str, Json], allowed: Sequence[int]) -> int:
    choice = answer.get("choice")
    if type(choice) is not int or choice not in allowed:
        raise SchemaError(f"expected a choice that is allowed: {', '.join(map(str, allowed))}")
    return choice


def _values(question: Question, answer: Mapping[str, Json]) -> list[float]:
    values, space = answer.get("values"), question.space
    if not isinstance(values, list) or not all(
        is_number(value) and type(value) is not bool for value in values
    ):
        raise SchemaError(f"action {question.name!r} needs a list of numbers")
    if isinstance(space, ContinuousActionSpace):
        require_in_bounds(question.name, space, [values])
    return values
