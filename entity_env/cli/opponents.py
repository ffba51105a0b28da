"""`train --opponent`: players of the other seats in a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from entity_env.agents.game_agents import game_agents
from entity_env.agents.scripted_agent import ScriptedAgent, is_bot_file
from entity_env.agents.training.presets import DEFAULT_OPPONENTS
from entity_env.agents.training.tracking.runs import read_run
from entity_env.authoring.game import Game
from entity_env.cli.load_game import AgentLoader, game_against, load_opponent
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.vec import VecEnv
from entity_env.vec.game_training import self_play_of

if TYPE_CHECKING:
    from entity_env.agents.training.self_play.pool import OpponentPool

NO_OPPONENT: Final = "none"
_SELF: Final = "self"
_RANDOM: Final = "random"
_HALF: Final = 0.5


def opponent_shares(
    game: Game, options: Sequence[str], resumed: Path | None = None
) -> dict[str, float]:
    """Shares of the environments by opponent, from `NAME` or `NAME=SHARE`; may be empty.

    Args:
        options: as typed; default: those of the resumed run, or the game's defaults.
        resumed: folder of the resumed run.

    Raises:
        UsageError: the game takes no opponents, or the shares are impossible.
    """
    is_for_several = game.num_agents > 1 and self_play_of(game) is None
    if options and not is_for_several:
        why = "has its own opponents" if game.num_agents > 1 else "is for one agent"
        raise UsageError(f"{game.name} {why}: leave out --opponent")
    if not options:
        if resumed is not None:
            return _shares_of_run(resumed)
        return dict(DEFAULT_OPPONENTS) if is_for_several else {}
    pairs = [_parsed(option) for option in options]
    names = [name for name, _ in pairs]
    if names == [NO_OPPONENT]:
        return {}
    if NO_OPPONENT in names or len(set(names)) < len(names):
        raise UsageError(
            f"--opponent: give each name once, and 'none' only alone, got {', '.join(options)}"
        )
    bots = [name for name, _ in pairs if _is_bot(game, name)]
    if shared := [name for name, share in pairs if name in bots and share is not None]:
        raise UsageError(
            f"--opponent {shared[0]}: bots play in all environments: leave out the share"
        )
    together = 1.0 if len(bots) == len(pairs) else _HALF
    shares = {name: together / len(pairs) if share is None else share for name, share in pairs}
    if sum(shares.values()) > 1 + 1e-9:
        raise UsageError(
            f"--opponent: the shares of the environments must add up to at most 1, got "
            f"{', '.join(f'{name}={share:g}' for name, share in shares.items())}"
        )
    return shares


def against_bots(game: Game, shares: Mapping[str, float]) -> tuple[Game, Mapping[str, float]]:
    """The game to train on, and the remaining opponents: scripted bots play within the game.

    Raises:
        UsageError: bots combined with other opponents, or a file that cannot be loaded.
        GameFailed: the code of a file raised.
    """
    bots = [name for name in shares if _is_bot(game, name)]
    if not bots:
        return game, shares
    if len(bots) < len(shares):
        others = ", ".join(name for name in shares if name not in bots)
        raise UsageError(f"--opponent {bots[0]}: bots play all seats but one: leave out {others}")
    return game_against(game, bots), {}


def make_pool(game: Game, vec: VecEnv, shares: Mapping[str, float], seed: int) -> OpponentPool:
    """The opponents of a run. Train on the pool's `vec`; the pool is also a callback of `train`.

    Raises:
        UsageError: an unknown opponent, or one that cannot play in batches.
        CheckpointError: an opponent cannot be read, or was trained for another game.
    """
    from entity_env.agents.training.self_play.pool import OpponentPool

    agents = {
        name: load_opponent(game, name, seed + i, AgentLoader(), "--opponent")
        for i, name in enumerate(shares)
        if name != _SELF
    }
    return OpponentPool(vec, game.schema, shares, agents=agents, seed=seed)


def _is_bot(game: Game, name: str) -> bool:
    """True for bots from files and scripted agents of the game, which play within the game."""
    if name == _RANDOM:  # see `load_opponent`
        return False
    return is_bot_file(name) or isinstance(game_agents(game).load(name, 0), ScriptedAgent)


def _parsed(option: str) -> tuple[str, float | None]:
    name, separator, text = option.rpartition("=")
    if not separator:
        return option, None
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not name or not 0 < share <= 1:
        raise UsageError(
            f"--opponent needs NAME or NAME=SHARE, a share of the environments above 0 and up to "
            f"1, got {shown(option)}"
        )
    return name, share


def _shares_of_run(out: Path) -> dict[str, float]:
    """The opponents of an earlier run, with their shares; empty if they are not known."""
    try:
        found = read_run(out).about.get("opponents")
    except (CheckpointError, UsageError):
        return {}
    if not isinstance(found, dict):
        return {}
    is_right = all(isinstance(each, int | float) and 0 < each <= 1 for each in found.values())
    return {str(name): float(share) for name, share in found.items()} if is_right else {}
