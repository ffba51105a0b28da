"""`GamePage`: a game in a page, which people play or watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final, Protocol

from entity_env.agents import Agent
from entity_env.agents.human.move_clock import MoveClock
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.human.turn_answers import TurnAnswers
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import AgentRun, EpisodesSeen, Turn
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.action_request import Question
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.errors import SchemaError, UsageError
from entity_env.page.live.last_replay import LastReplay
from entity_env.page.live.outcome import outcome, rules_of
from entity_env.page.live.probe import with_moved
from entity_env.page.live.questions import (
    UNDO,
    Check,
    Json,
    checked_again,
    said,
    with_undo,
)
from entity_env.page.live.seat_view import SeatView, ShownGame, ShownObservation, said_by_others
from entity_env.views.describe import describe_actions, describe_number, shown_names
from entity_env.views.look import PALETTE, Look
from entity_env.views.page import shapes_as_json
from entity_env.views.scene import Point, clipped

LIVE_PAGE: Final = Path(__file__).parents[1] / "web" / "live.html"
"""The page of `entity-env play --browser`."""
_NUM_MOVES: Final = 12
"""Number of recent moves in the list."""
_MAX_WORDS: Final = 100
_NOTHING_ASKED: Final[Mapping[str, Json]] = {"title": "", "choices": [], "values": []}
_END_S: Final = 1.5
"""How long spectators see the end of an episode."""
_RELOAD_S: Final = 2.0
"""After the last episode, a page that is gone for longer was closed, not reloaded."""
_WAKE_S: Final = 1.0
_FRAME_S: Final = 1 / 60
_LEAST_S: Final = 0.001
"""The shortest pause between turns."""


class Changed(AbstractContextManager[object], Protocol):
    """A condition variable, as `threading.Condition`."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until the predicate is true; False on timeout."""


class Browser(Protocol):
    """Shows the events of a game's page, and passes its answers to `GamePage.answer`."""

    @property
    def changed(self) -> Changed:
        """Held and then notified while an answer is passed on."""

    def send(self, name: str, data: Json) -> None:
        """Sends an event to the page, also to one that opens later; never waits for it."""

    def wait_for_page(self, wait_s: float = 0.0) -> bool:
        """Waits until the page is open; False if it is still closed after `wait_s`."""

    def sleep(self, wait_s: float) -> None:
        """Lets the page show the last event for a time."""


class GamePage:
    """The page of a game: shows turns, asks people, and waits for their answers.

    With people in the game it shows what the person to move observes, without what is hidden from
    policies. Of other agents it shows only moves; simultaneous ones after the person's decision.

    Args:
        game: with its settings.
        names: of the agents; "human" is a person.
        look: how observations are drawn.
        browser: shows the page, and passes its answers to `answer`.
        fps: turns per second for spectators.
        episodes: number of episodes of a run.
        ended: called with every episode.
        thinks: show what the networks of the agents would choose.
        labels: for some of the names, what the page shows instead.
    """

    def __init__(
        self,
        game: Game,
        names: Sequence[str],
        look: Look,
        browser: Browser,
        *,
        fps: float,
        episodes: int,
        ended: Callable[[Episode], None],
        thinks: bool = False,
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._game, self._look, self._ended = game, look, ended
        self.browser = browser
        self._num_episodes, self._thinks = episodes, thinks
        self.turn_s = 1 / fps
        """How long spectators see a turn; infinite = until the browser's `sleep` returns."""
        self._humans = frozenset(i for i, name in enumerate(names) if name == HUMAN)
        self._names = shown_names(names, sorted(self._humans), labels)
        self._shown_game = ShownGame(game, look, self._names, self._humans)
        self._agents: Sequence[Agent] = ()
        self._advisors: dict[int, Agent | None] = {}
        """By person, a copy of the first agent with a network; it observes what the person does."""
        self._episode = 0
        self._shown: dict[str, Json] = {}
        self._ground: tuple[int, int, Point] | None = None
        self._rules = rules_of(game)
        self._shown_s = 0.0
        self._number = 0
        self._check: Check | None = None
        self._answer: Json = None
        self.seen = EpisodesSeen()
        self.last: LastReplay | None = None
        """Set by `begin_run`."""
        self._begin_episode()

    def begin_run(
        self,
        names: Sequence[str],
        agents: Sequence[Agent],
        source: str,
        timeout: StepTimeout | None = None,
    ) -> LastReplay:
        """The watcher of a new run: shows its turns, and keeps its last episode.

        Args:
            timeout: of showing a turn, if the look has none.
        """
        self.seen, self._agents, self._advisors = EpisodesSeen(), agents, {}
        limited = timeout or StepTimeout(None)

        def watch(turn: Turn) -> None:
            with limited:
                self.watch(turn)

        self.last = LastReplay(names, source, watch)
        return self.last

    # ------------------------------------------------------------------ called by the game

    def ask(
        self,
        turn: Turn,
        questions: Sequence[Question],
        *,
        is_at_once: bool,
        clock: MoveClock | None = None,
    ) -> dict[ActionName, Action]:
        """Asks a person for the actions of a turn.

        Args:
            turn: the observation, without actions.
            questions: the requested actions.
            is_at_once: other agents act at the same time.
        """
        if self._seats[turn.agent_id].end:
            self._next_episode()
        shown, seat = self._see(turn), self._seats[turn.agent_id]
        answers, at_once = TurnAnswers(questions), turn if is_at_once else None
        moves, think = self._words_of_moves(at_once), self._thoughts(turn)
        self._tell_advisor(turn)
        marks = self._marks(at_once, but=turn.agent_id)
        while not answers.is_complete:
            question, actor = answers.open_question
            asked, check = shown.ask(question, actor)
            default = None
            if clock is not None:
                nearest = clock.last.nearest(question, actor, shown.places)
                default = clock.default(question, actor, nearest)
                asked["title"] += f" ({clock.describe(said(asked, default))})"
            asked |= {"progress": answers.progress, "can_undo": answers.can_undo}
            index = shown.actor(question, actor)
            actors = [] if index is None else [index]
            chosen = [[turn.agent_id, mark] for each in answers if (mark := shown.mark(*each))]
            self._show(
                seat, turn.agent_id, moves=moves, think=think, actors=actors, marks=marks + chosen
            )
            check = with_undo(check) if answers.can_undo else check
            answer = self._wait_for_answer(asked, check, clock)
            if answer is UNDO:
                answers.undo()
            else:
                answers.keep(default if answer is None else answer)
        if clock is not None:
            for question, actor, value in answers:
                clock.last.keep(question, actor, value, shown.places)
        return answers.actions()

    def watch(self, turn: Turn) -> None:
        """Shows a decision or the end of an episode; callback for `Game.run`."""
        self.seen(turn)
        if self._seats[turn.agent_id].end:
            self._next_episode()
        playing = [i for i in self._humans if not self._seats[i].end]
        seat = self._seats[turn.agent_id]
        if not playing and turn.episode is None and self._is_between_frames():
            seat.step, seat.score = turn.step, turn.score
            if self.turn_s >= _LEAST_S:
                self._pause(self.turn_s)
            return
        # Observations of other agents may show more than people may see.
        is_seen = turn.agent_id in self._humans or not playing
        if turn.actions:
            words = f"{self._names[turn.agent_id]}: {self._said(turn)}"
            self._moves.append((turn.agent_id, turn.step, clipped(words, _MAX_WORDS)))
        if is_seen or self._look.is_open:
            shown = seat.see(turn)
            seat.marks = [*shown.marks(turn.actions)] or seat.marks
            if is_seen:
                self._last_seen = seat
        seat.step, seat.score = turn.step, turn.score
        if turn.episode is not None:
            seat.end, seat.ending = "truncated" if turn.episode.truncated else "over", turn
            self._tell_advisor(turn)
            self._ended(turn.episode)
            if all(each.end for each in self._seats):
                self._end_episode()
        elif not playing:
            think = self._thoughts(turn)
            self._show(seat, turn.agent_id, actors=self._actors(turn), think=think)
            self._send()
            self._pause(self.turn_s)

    def _is_between_frames(self) -> bool:
        """Whether turns are faster than a screen, and this one need not be shown."""
        now_s = monotonic()
        if self.turn_s < _FRAME_S and now_s - self._shown_s < _FRAME_S:
            return True
        self._shown_s = now_s
        return False

    def show_again(
        self, turn: Turn, places: Mapping[int, Point], thinker: Agent | None, title: str
    ) -> None:
        """Shows a turn of the last episode again, while the page offers the next one.

        Args:
            places: see `with_moved`.
            thinker: agent whose choices are shown.
            title: what the panel says about the turn.
        """
        seat = self._seats[turn.agent_id]
        if seat.drawing is None or self._check is None:
            return
        moved = with_moved(turn, places, seat.drawing)
        shown = ShownObservation(moved, seat.drawing, self._shown_game)
        actions = {} if places else turn.actions
        think = None if thinker is None or not turn.actions else shown.bars(thinker, actions)
        self._shown = {
            **self._shown,
            **shown.picture,
            "episode": title,
            "marks": [[turn.agent_id, mark] for mark in shown.marks(actions)],
            "actors": self._actors(turn),
            "think": think,
        }
        self._send({**_NOTHING_ASKED, "number": self._number})

    def wants_more(self) -> bool:
        """Offers another run after the last episode; False if the page was closed."""
        self._offer_again("again")
        while not self._has_answer(_WAKE_S):
            if not self.browser.wait_for_page() and not self.browser.wait_for_page(_RELOAD_S):
                return False
        self._next_episode(0)
        return True

    # ------------------------------------------------------------------ episodes

    def _begin_episode(self) -> None:
        self._seats = [SeatView(name, self._shown_game) for name in self._names]
        self._moves: list[tuple[int, int, str]] = []
        self._last_seen = self._seats[0]

    def _next_episode(self, number: int | None = None) -> None:
        self._episode = self._episode + 1 if number is None else number
        self._begin_episode()

    def _end_episode(self) -> None:
        ends = {i: seat.ending for i, seat in enumerate(self._seats) if seat.ending is not None}
        headline, reasons = outcome(self._game, self._names, ends)
        has_replay = self.last is not None and self.last.replay is not None
        over = {
            "headline": headline,
            "reasons": reasons,
            "actions": ["watch", "save"] if has_replay else [],
            "turns": len(self.last.turns) if self.last is not None and has_replay else 0,
        }
        is_other = self._humans and self._seats.index(self._last_seen) not in self._humans
        if is_other and len({seat.step for seat in self._seats}) == 1:  # all ended together
            self._last_seen = self._seats[min(self._humans)]
        self._show(self._last_seen, None, marks=self._marks(), over=over)
        if self._episode + 1 >= self._num_episodes:
            self._send()
        elif self._humans:
            self._offer_again("next")
            while not self._has_answer(_WAKE_S):
                pass
        else:
            self._send()
            self._pause(max(_END_S, self.turn_s))

    def _offer_again(self, action: str) -> None:
        over = self._shown["over"]
        self._shown["over"] = {**over, "actions": [action, *over["actions"]]}
        self._offer(_NOTHING_ASKED, checked_again)

    # ------------------------------------------------------------------ what is shown

    def _see(self, turn: Turn) -> ShownObservation:
        """Draws the observation of a person, before a decision."""
        seat = self._last_seen = self._seats[turn.agent_id]
        seat.step, seat.score = turn.step, turn.score
        return seat.see(turn)

    def _said(self, turn: Turn) -> str:
        """The actions in words; to people, selections of other agents show only entity types."""
        if self._humans and turn.agent_id not in self._humans and not self._look.is_open:
            return said_by_others(turn, self._shown_game)
        space = self._game.obs_space()
        return describe_actions(turn.actions, turn.observation, space, self._look)

    def _actors(self, turn: Turn) -> list[int]:
        space = self._game.obs_space()
        found = (turn.observation.actor_positions(name, space) for name in turn.actions)
        num_entities = sum(map(turn.observation.num_entities, space.entities))
        return sorted({i for each in found for i in each if i < num_entities})

    def _thoughts(self, turn: Turn) -> list[Json] | None:
        """Choices of the agent's network; of the first network for a person."""
        shown = self._last_seen.shown
        if not self._thinks or shown is None:
            return None
        if turn.agent_id not in self._humans:
            return shown.bars(self._agents[turn.agent_id], turn.actions)
        if turn.agent_id not in self._advisors:
            found = (each for each in self._agents if shown.bars(each, turn.actions) is not None)
            self._advisors[turn.agent_id] = self._as_advisor(next(found, None))
        advisor = self._advisors[turn.agent_id]
        return None if advisor is None else shown.bars(advisor, turn.actions)

    def _as_advisor(self, agent: Agent | None) -> Agent | None:
        """A copy with its own memory, if possible: the agent itself plays another seat."""
        if not isinstance(agent, PolicyAgent):
            return agent
        try:
            advisor = agent.copy_for_seat()
        except UsageError:
            return agent
        advisor.join(AgentRun(self._game.schema))
        return advisor

    def _tell_advisor(self, turn: Turn) -> None:
        """Lets the advisor of a person remember an observation."""
        advisor = self._advisors.get(turn.agent_id)
        if isinstance(advisor, PolicyAgent) and advisor not in self._agents:
            advisor.watch(turn.observation)

    def _is_later(self, agent_id: int, step: int, turn: Turn | None) -> bool:
        """Whether a decision is made at the same time as a person's turn, or after it."""
        return turn is not None and agent_id != turn.agent_id and step >= turn.step

    def _words_of_moves(self, at_once: Turn | None = None) -> list[str]:
        kept = [words for i, step, words in self._moves if not self._is_later(i, step, at_once)]
        return kept[-_NUM_MOVES:]

    def _marks(self, at_once: Turn | None = None, but: int = -1) -> list[Json]:
        """Where the last actions of all agents point to that the picture may show."""
        return [
            [agent_id, mark]
            for agent_id, seat in enumerate(self._seats)
            if agent_id != but and not self._is_later(agent_id, seat.step, at_once)
            if self._look.is_open or seat is self._last_seen
            for mark in seat.marks
        ]

    def _show(self, seat: SeatView, agent_id: int | None, **fields: Json) -> None:
        """Sets what the page shows, and sends the ground if it has changed."""
        drawing = seat.drawing
        if drawing is not None:
            key = self._seats.index(seat), self._episode, drawing.size
            if key != self._ground:  # it depends on its size, which grows with the episode
                self._ground = key
                legend = [[name, shapes_as_json(shapes)] for name, shapes in drawing.legend()]
                ground = {"size": drawing.size, "shapes": shapes_as_json(drawing.ground().shapes)}
                self.browser.send("ground", {**ground, "legend": legend, "rules": self._rules})
        episodes = f" of {self._num_episodes}" if self._num_episodes > 1 else ""
        self._shown = {
            **seat.picture,
            "title": self._game.name,
            "episode": f"episode {self._episode + 1}{episodes}",
            "turn": agent_id,
            "whose": "" if agent_id is None else self._names[agent_id],
            "moves": self._words_of_moves(),
            "marks": self._marks(),
            "actors": [],
            "think": None,
            "over": None,
            **fields,
        }

    def _send(self, asked: Mapping[str, Json] | None = None) -> None:
        seats = [
            [seat.name, seat.step, describe_number(seat.score), seat.end, PALETTE[i % len(PALETTE)]]
            for i, seat in enumerate(self._seats)
        ]
        self.browser.send("frame", {**self._shown, "seats": seats, "asked": asked})

    def _pause(self, wait_s: float) -> None:
        """Waits for a page, and then for `wait_s`."""
        while not self.browser.wait_for_page(_WAKE_S):
            pass
        self.browser.sleep(wait_s)

    # ------------------------------------------------------------------ answers

    def _wait_for_answer(
        self, asked: Mapping[str, Json], check: Check, clock: MoveClock | None = None
    ) -> Json:
        """The answer; None if the clock expires while a page is open."""
        left_s = None if clock is None else clock.left_s
        self._offer({**asked, "left_s": left_s}, check)
        while not self._has_answer(_WAKE_S if left_s is None else min(left_s, _WAKE_S)):
            left_s = None if clock is None else clock.left_s
            if clock is None or left_s != 0:
                continue
            if self.browser.wait_for_page(0):
                return self._withdraw()
            while not self.browser.wait_for_page(_WAKE_S):
                pass
            clock.restart()
            return self._wait_for_answer(asked, check, clock)
        return self._answer

    def _withdraw(self) -> Json:
        """Closes the question; returns an answer that came at the last moment."""
        with self.browser.changed:
            is_open, self._check = self._check is not None, None
            return None if is_open else self._answer

    def _offer(self, asked: Mapping[str, Json], check: Check) -> None:
        with self.browser.changed:
            self._number += 1
            self._check = check
        self._send({**asked, "number": self._number})

    def _has_answer(self, wait_s: float) -> bool:
        with self.browser.changed:
            return self.browser.changed.wait_for(lambda: self._check is None, wait_s)

    def answer(self, answer: object) -> str:
        """Accepts an answer of the page to the open question, or returns why not.

        To be called while `browser.changed` is held; notify it afterwards.
        """
        if not isinstance(answer, dict) or type(answer.get("number")) is not int:
            return 'expected {"number": of the question, "choice" or "values": the answer}'
        if self._check is None or answer["number"] != self._number:
            return "the game has moved on: this answers an earlier question"
        try:
            self._answer = self._check(answer)
        except SchemaError as error:
            return str(error)
        self._check = None
        return ""


class BrowserAgent(PolicyAgent):
    """A person at a page; accepts only legal actions, and asks actor by actor.

    Args:
        page: may be shared with other people.
        clock_s: time per decision; None = no limit.
    """

    _takes_plain = True

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
            asked = self.questions(observation)
            actions = self._page.ask(turn, asked, is_at_once=run.is_async, clock=self._clock)
            if self._clock is not None:
                self._page.browser.sleep(self._clock.rest_s)
            return actions
        except KeyboardInterrupt:
            return None
