"""kaggle_dataset: episodes saved by kaggle-environments, `env.toJSON()`, as decisions.

Files are data of others: only numbers and names are read from them, and they are checked first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.agents.scripted_agent import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.obs import Obs
from entity_env.core.files import read_file
from entity_env.errors import ProtocolError, UsageError, shown
from entity_env.interop.kaggle.game import (
    KaggleGame,
    KaggleObs,
    adapted_game,
    kaggle_env,
    play_kaggle,
)

SUFFIX: Final = ".json"
"""Suffix of files with episodes."""
_MAX_BYTES: Final = 1 << 28
_MAX_TURNS: Final = 10_000
_MAX_MOVES: Final = 1_000
"""Largest number of moves of a player in a turn."""
_MAX_NUMBER: Final = 1e9
_KEPT: Final = ("seed", "episodeSteps", "actTimeout", "runTimeout", "agentTimeout", "maxLogLength")
"""Parts of a configuration that may differ from the defaults."""


@dataclass(frozen=True)
class KaggleEpisode:
    """An episode of a file.

    Args:
        name: name of the file.
        game: the adapted game, with the settings of the episode.
        seed: seed of the episode.
        moves: by turn and player.
        rewards: by player; 0 if the file has none.
        teams: names of the players, may be empty.
    """

    name: str
    game: KaggleGame
    seed: int
    moves: Sequence[Sequence[Any]]
    rewards: Sequence[float]
    teams: Sequence[str]


class _Recorded(ScriptedAgent):
    """Answers with the decisions nearest to the moves of an episode."""

    def __init__(self, episode: KaggleEpisode) -> None:
        self._episode = episode

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        if not isinstance(obs, KaggleObs):
            raise ProtocolError("episodes are played only by play_kaggle")
        return obs.seats.answer(_order(self._episode, int(obs.raw["step"]), obs.player), obs.player)


def kaggle_dataset(
    files: Sequence[Path],
    adapted: Sequence[str],
    *,
    agents: Sequence[int | str] = (),
    winners: bool = False,
    min_reward: float | None = None,
    step_timeout_s: float | None = None,
    on_episode: Callable[[], None] | None = None,
) -> Dataset:
    """The decisions nearest to the moves in files of episodes.

    Every episode is played again with its own moves, and must end with its own rewards.

    Args:
        files: from `env.toJSON()`.
        adapted: names of the games that have an adapter.
        agents: only these players, by index or by the name of the team; empty = all.
        winners, min_reward: as in `Dataset.filter`.

    Raises:
        UsageError: a file that is not such an episode, or that ends differently when it is played
            again; or none of these players.
    """
    recorder, rows = DatasetRecorder(), []
    for file in files:
        episode = read_episode(file, adapted)
        before = recorder.num_decisions
        play_moves(episode, recorder, step_timeout_s)
        chosen = [i for i in range(len(episode.rewards)) if _is_among(agents, i, episode.teams)]
        rows.append((recorder.num_decisions - before, chosen))
        if on_episode is not None:
            on_episode()
    dataset = recorder.dataset()
    kept = np.concatenate([np.full(count, i) for i, (count, _) in enumerate(rows)])
    is_kept = [dataset.agent_id[i] in rows[kept[i]][1] for i in range(len(dataset))]
    if not any(is_kept):
        raise UsageError(f"no decision is from agent {', '.join(map(str, agents))}")
    return dataset.filter(np.array(is_kept), winners=winners, min_reward=min_reward)


def play_moves(
    episode: KaggleEpisode, recorder: DatasetRecorder, step_timeout_s: float | None = None
) -> None:
    """Plays an episode with its moves; the watcher sees the nearest decisions.

    Raises:
        UsageError: it ends with other rewards than in the file.
    """
    game, players = copy(episode.game), len(episode.rewards)
    game.play = partial(play_kaggle, game.adapter, orders=partial(_order, episode))
    played = game.play_episode(
        *(_Recorded(episode) for _ in range(players)),
        seed=episode.seed,
        watch=recorder,
        step_timeout_s=step_timeout_s,
    )
    rewards = [each.reward for each in played]
    if not np.allclose(rewards, episode.rewards):
        raise UsageError(
            f"{episode.name}: played again, it ends with the rewards {rewards}, but the file has "
            f"{list(episode.rewards)}: it is of another version of {game.name}"
        )


def _order(episode: KaggleEpisode, turn: int, player: int) -> Any:  # noqa: ANN401 - of their rules
    return episode.moves[turn][player] if turn < len(episode.moves) else []


def _is_among(agents: Sequence[int | str], player: int, teams: Sequence[str]) -> bool:
    team = teams[player] if player < len(teams) else ""
    return not agents or player in agents or team in agents


# ------------------------------------------------------------------ reading files


def read_episode(file: Path, adapted: Sequence[str]) -> KaggleEpisode:
    """Reads and checks a file; see `kaggle_dataset`."""
    try:
        return _episode(file.name, json.loads(read_file(file, _MAX_BYTES)), adapted)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        words = str(error) if isinstance(error, _InvalidEpisode) else "it is not JSON"
        raise UsageError(
            f"{file} is not an episode of kaggle-environments, as env.toJSON() returns: {words}"
        ) from error


class _InvalidEpisode(ValueError):
    """The fault of an episode, for a message."""


def _episode(name: str, found: object, adapted: Sequence[str]) -> KaggleEpisode:
    whole = _checked(found, dict, "the episode")
    if (title := whole.get("name")) not in adapted:
        raise _InvalidEpisode(f"its game is {shown(title)}, expected {' or '.join(adapted)}")
    steps = _checked(whole.get("steps"), list, "steps")
    if not 2 <= len(steps) <= _MAX_TURNS:
        raise _InvalidEpisode(f"{len(steps)} steps, expected 2 to {_MAX_TURNS}")
    players = len(_checked(steps[0], list, "steps[0]"))
    configuration = _checked(whole.get("configuration"), dict, "configuration")
    info = whole.get("info")
    info = info if isinstance(info, dict) else {}
    seed = info.get("seed", configuration.get("seed"))
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise _InvalidEpisode(f"info.seed is {shown(seed)}, expected an integer from 0 to 2**31-1")
    turns = configuration.get("episodeSteps")
    if type(turns) is not int or not 2 <= turns <= _MAX_TURNS:
        raise _InvalidEpisode(f"configuration.episodeSteps is {shown(turns)}")
    _require_defaults(str(title), configuration)
    game = adapted_game(str(title))
    if players not in kaggle_env(str(title), 0).specification.agents:
        raise _InvalidEpisode(f"{players} players")
    moves = [_moves_of(step, turn, players) for turn, step in enumerate(steps[1:], 1)]
    last = [_checked(each, dict, "the last step") for each in steps[-1]]
    return KaggleEpisode(
        name,
        game.with_settings(players=players, turns=turns),
        seed,
        moves,
        [_reward_of(each.get("reward")) for each in last],
        [str(each) for each in _checked(info.get("TeamNames", []), list, "info.TeamNames")],
    )


def _require_defaults(title: str, configuration: Mapping[str, object]) -> None:
    """Raises if the rules differ from those that the game plays."""
    own = kaggle_env(title, 0).configuration
    for name, value in configuration.items():
        if name not in _KEPT and name in own and value != own[name]:
            raise _InvalidEpisode(
                f"configuration.{name} is {shown(value)}, and only {own[name]} is supported"
            )


def _moves_of(step: object, turn: int, players: int) -> list[Any]:
    """The actions of all players that lead to a step."""
    states = _checked(step, list, f"steps[{turn}]")
    if len(states) != players:
        raise _InvalidEpisode(f"steps[{turn}] has {len(states)} players, expected {players}")
    found: list[Any] = []
    for player, state in enumerate(states):
        where = f"steps[{turn}][{player}].action"
        action = _checked(state, dict, f"steps[{turn}][{player}]").get("action")
        if action is not None:
            moves = _checked(action, list, where)
            if len(moves) > _MAX_MOVES:
                raise _InvalidEpisode(f"{where} has {len(moves)} moves, at most {_MAX_MOVES}")
            for move in moves:
                if not isinstance(move, list) or not all(map(_is_small, move)):
                    raise _InvalidEpisode(f"{where} has {shown(move)}, expected lists of numbers")
        found.append(action)
    return found


def _is_small(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _MAX_NUMBER


def _reward_of(value: object) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise _InvalidEpisode(f"a reward is {shown(value)}")
    return float(value)


def _checked(value: object, kind: type, where: str) -> Any:  # noqa: ANN401 - of the kind
    if not isinstance(value, kind):
        raise _InvalidEpisode(f"{where} is {shown(value)}, expected a {kind.__name__}")
    return value
