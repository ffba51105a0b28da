"""`against`: a game in which one agent learns and bots play all other seats."""

from __future__ import annotations

import copy
import functools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from entity_env.agents.game_agents import game_agents
from entity_env.agents.load import load_agent
from entity_env.agents.scripted_agent import Bot, BotSource, ScriptedAgent, is_bot_file, load_bot
from entity_env.authoring.agent import Agent, Answered, Pending
from entity_env.authoring.game import Game, Ungrouped, no_game_over
from entity_env.authoring.game_traceback import add_note
from entity_env.authoring.local_run import AFTER_NONE, AgentRun
from entity_env.authoring.obs import Obs
from entity_env.core.validation import is_number, must_be_number
from entity_env.errors import GameExit, ProtocolError, SchemaError, UsageError

T = TypeVar("T")
MakeAgent: TypeAlias = Callable[[int], Agent]

METRIC: Final = "against"
"""Prefix of the result metrics: `against/NAME`."""
_MAX_IGNORED: Final = 100
_NUM_SEED_BITS: Final = 63


def against(game: Game, bots: str | BotSource | Sequence[str | BotSource]) -> Game:
    """The game for one learner, with bots in all other seats.

    Keeps the schema, settings and number of agents; the name differs. The episode's seed picks the
    learner's seat, uniformly, and a new bot for each other seat. If the learner's seat takes no
    part in the episode, the learner gets another seat. Only the learner's actions are requested: in
    a `VecEnv` the rows of the other seats never become ready. An episode is one call of `play`.

    The learner's episode ends last. Its metric `against/NAME` compares its final score with each
    bot's: 1 if the learner's is higher, 0.5 if they are equal, 0 if it is lower; the mean if a bot
    has several seats.

    Args:
        game: for at least two agents.
        bots: one bot or several. A bot is a subclass of `ScriptedAgent`, another class with a
            method `choose` or `act`, a function `bot(obs, *actions)`, `"FILE.py:CLASS"`, or a name:
            `"random"`, one of the game's own agents, or a checkpoint, which is loaded again for
            every episode.

    Raises:
        UsageError: the game is for one agent, there are no bots, or one is not a bot.
        CheckpointError: a checkpoint is not readable.

    Example:
        >>> from entity_env.agents import ScriptedAgent, against
        >>> from entity_env.games import tic_tac_toe
        >>> class FirstFree(ScriptedAgent):
        ...     def choose(self, obs, *actions):
        ...         return obs.allowed(actions[0])[0]
        >>> game = against(tic_tac_toe, FirstFree)
        >>> from entity_env.vec import VecEnv
        >>> with VecEnv(game, num_envs=4) as vec:
        ...     vec.reset(seed=1).is_ready.tolist()
        [False, True, False, True, False, True, True, False]
    """
    if game.num_agents < 2:
        raise UsageError(f"{game.name} is for 1 agent: it has no seats for bots")
    sources = [bots] if isinstance(bots, str) or not isinstance(bots, Sequence) else list(bots)
    if not sources:
        raise UsageError(f"{game.name}: against needs at least one bot, got none")
    play = _PlayAgainst(game, _named([_entrant(game, source) for source in sources]))
    found = copy.copy(game)
    found.play = play
    # Its replays must not pass for replays of the original game.
    found.name = re.sub(r"\W+", "_", "_".join([game.name, METRIC, *play.bots]))
    return found


def has_bots(game: Game) -> bool:
    """True if bots play all seats but the learner's, see `against`."""
    return isinstance(game.play, _PlayAgainst)


def _entrant(game: Game, source: str | BotSource) -> tuple[str, MakeAgent]:
    """Name of a bot, and the function that makes it from a seed."""
    if source == "human":
        raise UsageError(
            "against does not support human players: use entity-env play --agent human"
        )
    if isinstance(source, str) and not is_bot_file(source):
        make = partial(load_for, game, source)
        make(0)  # an unknown name fails here
        return source.strip("/").rpartition("/")[2], make
    bot = load_bot(source) if isinstance(source, str) else Bot(source)
    bot(0)
    return bot.name, bot


def load_for(game: Game, name: str, seed: int) -> Agent:
    """One of the game's own agents, or another agent as for `load_agent`."""
    own = game_agents(game)
    agent = own.load(name, seed)
    return own.adapted(load_agent(name, seed=seed)) if agent is None else agent


def _named(entrants: Sequence[tuple[str, MakeAgent]]) -> dict[str, MakeAgent]:
    """The entrants by unique name: `Bot`, `Bot#2`."""
    found: dict[str, MakeAgent] = {}
    for name, make in entrants:
        count = sum(each.partition("#")[0] == name for each in found)
        found[f"{name}#{count + 1}" if count else name] = make
    return found


class _PlayAgainst:
    """`play` of a game with bots."""

    def __init__(self, game: Game, bots: dict[str, MakeAgent]) -> None:
        self._game = game
        self.bots = bots
        functools.update_wrapper(self, game.play, updated=())

    def __call__(self, agents: Sequence[Agent], *, seed: int, **settings: object) -> None:
        rng = random.Random(f"{METRIC} {seed}")  # independent of the game's own Random(seed)
        order = rng.sample(range(len(agents)), len(agents))
        names = rng.choices(list(self.bots), k=len(agents))
        seeds = [rng.getrandbits(_NUM_SEED_BITS) for _ in agents]
        for learner in order:  # tries the next seat if this one took no part in the episode
            match = _Match(self._game, agents[learner])
            for i, name in enumerate(names):
                bot = None if i == learner else self.bots[name](seeds[i])
                if bot is not None:
                    bot.join(AgentRun(self._game.schema, i))
                if isinstance(bot, ScriptedAgent):
                    bot.begin_episode()
                match.seats.append(_Seat(match, i, name, bot))
            try:
                with Ungrouped():
                    self._game.play(match.seats, seed=seed, **settings)
            except GameExit:
                if not match.is_left:
                    raise
            except Exception as error:
                if match.has_refused:
                    add_note(error, AFTER_NONE)
                raise
            if match.returned(match.seats[learner]):
                return


class _Match:
    """One episode."""

    def __init__(self, game: Game, learner: Agent) -> None:
        self.game = game
        self.learner = learner
        self.seats: list[_Seat] = []
        self.final: tuple[Obs, bool] | None = None
        """Final observation of the learner, and whether its episode was truncated."""
        self.is_stopped = False
        """True if the learner's `act` has returned None."""
        self.is_over = False
        """True if the learner's episode has ended; a game that starts another is abandoned."""
        self.is_left = False
        """True if `GameExit` was raised, since the game kept ending episodes without `act`."""
        self._num_ignored = 0
        self.has_refused = False
        """True if `act` has returned None because the episode was over."""

    def asks(self, seat: _Seat) -> bool:
        """Like `goes_on`; if False, `act` must return None."""
        goes_on = self.goes_on(seat)
        self.has_refused |= not goes_on
        return goes_on

    def goes_on(self, seat: _Seat) -> bool:
        """True if this episode continues; False if the game has begun another episode.

        Once the learner has its final observation, another call for a seat that is already over
        means that the game has begun another episode. Raises `GameExit` or `ProtocolError` after
        too many calls in other episodes.
        """
        if seat.is_over and self.final is not None:
            self.end()
        if self.is_over:
            self._num_ignored += 1
            if self._num_ignored > _MAX_IGNORED:
                # Otherwise a game that loops over episodes without calling `act` would never end.
                self.is_left = not self.has_refused
                if self.is_left or self._num_ignored > 2 * _MAX_IGNORED:
                    raise GameExit
                raise ProtocolError(
                    f"{self.game.name}: play must return after act returned None, but continues"
                )
        return not self.is_over

    def ended(self, seat: _Seat) -> None:
        """Marks a seat as over; the last one ends the learner's episode."""
        seat.is_over = True
        if all(each.is_over for each in self.seats) and self.final is not None:
            self.end()

    def end(self) -> None:
        if self.final is None or self.is_over:
            return
        obs, truncated = self.final
        results: dict[str, list[float]] = {}
        for seat in self.seats:
            if seat.bot is not None and seat.has_played:
                result = 0.5 if obs.score == seat.score else float(obs.score > seat.score)
                results.setdefault(seat.name, []).append(result)
        for name, each in results.items():
            obs.metric(f"{METRIC}/{name}", sum(each) / len(each))
        self.is_over = True
        self.learner.game_over(obs, truncated=truncated)

    def returned(self, learner: _Seat) -> bool:
        """Ends the episode after `play` returned; True if the learner had a part in it.

        Raises:
            ProtocolError: `play` did not end the episode of a seat that took part.
        """
        if self.is_stopped or self.is_over:
            return True
        if not learner.has_played:
            return False
        left = [each.agent_id for each in self.seats if each.has_played and not each.is_over]
        if left:
            raise no_game_over(self.game.name, left)
        self.end()
        return True


class _Seat(Agent):
    """The agent of one seat, as the game sees it; forwards to the learner or a bot."""

    __slots__ = ("_match", "agent_id", "bot", "has_played", "is_over", "name", "score")

    def __init__(self, match: _Match, agent_id: int, name: str, bot: Agent | None) -> None:
        self._match = match
        self.agent_id = agent_id
        self.name = name
        self.bot = bot
        """None = the learner."""
        self.score = 0.0
        self.has_played = False
        self.is_over = False

    @property
    def seed(self) -> int:
        return self._match.learner.seed

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if not self._begins(obs):
            return None
        if self._match.is_stopped or self.bot is None:
            return self.passed_on(self._match.learner.act(obs, *actions))
        return self._answered(self.bot, obs, actions)

    def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if not self._begins(obs):
            return Answered(None)
        if self._match.is_stopped or self.bot is None:
            return _LearnerAnswer(self, self._match.learner.act_async(obs, *actions))
        return Answered(self._answered(self.bot, obs, actions))

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        match = self._match
        if match.is_stopped:
            if self.bot is None:
                match.learner.game_over(obs, truncated=truncated)
            return
        if not match.goes_on(self):
            return
        final = Obs(self.score) if obs is None else obs
        self._observe(final)
        if self.bot is None:
            match.final = final.frozen(), truncated
        match.ended(self)

    def passed_on(self, answer: T) -> T:
        """The learner's answer, unchanged; None stops the game."""
        self._match.is_stopped |= answer is None
        return answer

    def _begins(self, obs: Obs) -> bool:
        if self._match.is_stopped:
            return True
        if not self._match.asks(self):
            return False
        self.is_over = False
        self._observe(obs)
        return True

    def _observe(self, obs: Obs) -> None:
        score = getattr(obs, "score", None)
        if not is_number(score):
            raise SchemaError(must_be_number("score", score))
        self.score = obs.score
        self.has_played = True

    def _answered(self, bot: Agent, obs: Obs, actions: tuple[Any, ...]) -> object:
        if isinstance(bot, ScriptedAgent):
            return bot.answer(obs, *actions)
        return bot.act(obs, *actions)


@dataclass
class _LearnerAnswer(Pending[object]):
    seat: _Seat
    pending: Pending[object]

    def get(self) -> object:
        return self.seat.passed_on(self.pending.get())
