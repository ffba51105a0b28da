"""AzulSelfPlay: many two-player games for training by self-play, as a `VecEnv` source.

The learner plays the first seat of every game. The second seat belongs to the learner or to a
scripted player. Observations and actions match `azul`, so a trained agent can play `azul`.

The reward is potential-based shaping (Ng 1999): `lead_scale` per point of lead gained since the
player's last decision, plus `win_reward` for a win and its negative for a loss. The lead is the
difference between the potentials of the players (`kernels.heuristics.potential_packed`): the points
if the walls were tiled now, minus the floor cost, plus shares of the final bonuses and of started
lines. At the end the lead is the difference of scores, so the shaping of a game adds up to
`lead_scale` times the change from the lead at the player's first decision to that difference.

Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games.azul import AzulSelfPlay, azul
    >>> from entity_env.vec import VecEnv
    >>> vec = VecEnv(AzulSelfPlay(), num_envs=8, seed=1)
    >>> obs = vec.reset()
    >>> agent = RandomAgent(seed=1)
    >>> for _ in range(40):
    ...     obs = vec.act(agent.decide_batch(obs, azul.schema))
    >>> int(obs.features["Table"].lengths.sum())
    8
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from entity_env import Game, Metric, RaggedArray, VecObs, VecSelectEntityActionMask
from entity_env.core.episode_stats import EpisodeStats
from entity_env.core.seeding import Run
from entity_env.core.validation import has_numba
from entity_env.core.vec_env_base import splitmix64
from entity_env.errors import MissingExtraError, UsageError
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.game import PICK, azul
from entity_env.games.azul.kernels.entities import SCRATCH_SIZES, EntityRows, Scratch
from entity_env.games.azul.kernels.kernel import machine_code
from entity_env.games.azul.kernels.packed_state import NUM_WORDS
from entity_env.games.azul.kernels.self_play import (
    SelfPlayGames,
    SelfPlaySteps,
    begin_games,
    step_games,
    write_games,
)
from entity_env.vec import Autoreset, GameTraining
from entity_env.vec.batch_env import ActionValues, ArrayBatch, BatchSource

OTHERS: Final = ("self", "greedy", "rush", "random")
DEFAULT_OTHERS: Final[Mapping[str, float]] = {
    "self": 0.5,
    "greedy": 0.4,
    "rush": 0.05,
    "random": 0.05,
}
_MAX_GROUPS: Final = 25
_MAX_OPTIONS: Final = 6 * _MAX_GROUPS
_MAX_ENTITIES: Final = (1, 6, _MAX_GROUPS, 2, 10, 10, _MAX_OPTIONS)
"""Maximum entities per type with two players."""


@dataclass(frozen=True)
class AzulSelfPlay(BatchSource):
    """`VecEnv` source that steps many two-player games; see the module docstring.

    Episodes restart at once: autoreset is "same_step". Row `2 i + s` of a batch is seat s of game
    i; the row of a waiting player is empty. Seat `(i + k) % 2` begins episode k of game i.
    `final` is None: no game is truncated, so no final observation needs a value estimate.

    Args:
        others: shares of the games by player of the second seat, with keys from `OTHERS`.
        lead_scale: reward per point of lead.
        win_reward: reward for a win.

    Raises:
        UsageError: invalid shares.
        MissingExtraError: numba is not installed.
    """

    autoresets: ClassVar[tuple[Autoreset, ...]] = ("same_step",)

    others: Mapping[str, float] = field(default_factory=lambda: DEFAULT_OTHERS)
    lead_scale: float = 0.1
    win_reward: float = 1.0

    def __post_init__(self) -> None:
        assigned_players(self.others, 1)
        if not has_numba():
            raise MissingExtraError("numba", "fast", "AzulSelfPlay")

    @classmethod
    def of(cls, game: Game) -> AzulSelfPlay | None:
        """Source for training on a game; None unless the game is `azul` with two players and no
        round limit, and numba is installed. With None, the game itself is stepped."""
        is_whole = game.num_agents == 2 and not game.settings.get("max_rounds")
        return cls() if game.play is azul.play and is_whole and has_numba() else None

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> SelfPlayBatch:
        others = assigned_players(self.others, num_envs)[envs.start : envs.stop]
        return SelfPlayBatch(envs, others, float(self.lead_scale), float(self.win_reward))


class SelfPlayBatch(ArrayBatch):
    """The games of one process.

    Args:
        others: `(num_envs,)` int64, player of each second seat, an index into `OTHERS`.
        lead_scale, win_reward: as for `AzulSelfPlay`.
    """

    def __init__(
        self, envs: range, others: NDArray[np.int64], lead_scale: float, win_reward: float
    ) -> None:
        num_envs, num_rows = len(envs), 2 * len(envs)
        super().__init__(num_envs, 2, (azul.obs_space(), azul.action_space()), envs.start)
        self.others = others
        self._rewards = lead_scale, win_reward
        self._games = SelfPlayGames(
            words=np.zeros((num_envs, NUM_WORDS), np.int64),
            streams=np.zeros(num_envs, np.uint64),
            others=others,
            starts=np.asarray(envs) % 2,
            leads=np.zeros((num_envs, 2)),
            has_lead=np.zeros((num_envs, 2), np.bool_),
        )
        self._steps = SelfPlaySteps(
            reward=np.zeros(num_rows, np.float32),
            terminated=np.zeros(num_rows, np.bool_),
            lengths=np.zeros((len(_MAX_ENTITIES), num_rows), np.int64),
            scores=np.zeros((num_envs, 2), np.int64),
            shares=np.zeros(num_envs),
        )
        scratch: Any = (np.zeros(size, np.int64) for size in SCRATCH_SIZES)
        self._scratch = Scratch(*scratch)
        self._names: Final = tuple(azul.obs_space().entities)
        # Two alternating sets, so the last observation can be read while the next is written.
        self._shown = [self._new_shown() for _ in range(2)]
        self._never = np.zeros(num_rows, np.bool_)
        self._stats = EpisodeStats(num_rows, 2)

    def _new_shown(self) -> EntityRows:
        entities = azul.obs_space().entities
        return EntityRows(
            *(
                np.zeros((self.num_envs * most, len(entities[name].features)), np.float32)
                for name, most in zip(self._names, _MAX_ENTITIES, strict=True)
            )
        )

    def state(self, env_id: int) -> GameState:
        """Copy of a game's position; later draws match the game's."""
        stream = SplitMix(int(self._games.streams[env_id]))
        return GameState(self._games.words[env_id].tolist(), stream)

    def begin(self, env_ids: Sequence[int], runs: dict[int, Run]) -> VecObs:
        chosen = np.asarray(env_ids, np.int64)
        rows = np.add.outer(2 * chosen, [0, 1]).reshape(-1)
        self._stats.begin(rows)
        for i, (seeds, number) in runs.items():
            mine = slice(2 * i, 2 * i + 2)
            self._stats.seed[mine], self._stats.number[mine] = seeds[number], number
            self._games.starts[i] = (self.first_env + i + number) % 2
        new = np.array(list(runs), np.int64)
        self._games.streams[new] = splitmix64(self._stats.seed[2 * new].astype(np.uint64))
        machine_code(begin_games)(chosen, self._games)
        self._forget()
        return self._show()

    def advance(self, values: ActionValues) -> VecObs:
        self._stats.length += self._steps.lengths[0]  # 1 in the row of each player to move
        self._forget()
        picks = np.array(values[PICK.name], np.int64)
        machine_code(step_games)(picks, *self._rewards, self._games, self._steps)
        return self._show()

    def numbers(self, env_id: int) -> Sequence[int]:
        return (int(self._stats.number[2 * env_id]),) * 2

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return int(self._stats.seed[2 * env_id])

    def _forget(self) -> None:
        self._steps.reward[:] = 0
        self._steps.terminated[:] = False
        self._steps.lengths[:] = 0
        self._steps.shares[:] = -1

    def _show(self) -> VecObs:
        self._shown.reverse()
        shown, steps = self._shown[0], self._steps
        ends = steps.terminated.copy()
        num_groups, num_options = machine_code(write_games)(
            self._rewards[0], self._games, steps, shown, self._scratch
        )
        counts = steps.lengths.copy()
        totals = [self.num_envs * each for each in _MAX_ENTITIES]
        totals[2], totals[6] = num_groups, num_options
        features = {
            name: RaggedArray.unchecked(rows[:total], lengths)
            for name, rows, total, lengths in zip(self._names, shown, totals, counts, strict=True)
        }
        obs = VecObs(
            features=features,
            visible={},
            action_masks={PICK.name: _picking(counts)},
            reward=steps.reward.copy(),
            terminated=ends,
            truncated=self._never,
            env_id=self.env_id,
            agent_id=self.agent_id,
        )
        self._stats.reward += steps.reward
        if ends.any():
            self._count_ended(obs)
        return obs

    def _count_ended(self, obs: VecObs) -> None:
        episodes = []
        steps = self._steps
        for i in np.flatnonzero(steps.shares >= 0).tolist():
            name = OTHERS[int(self.others[i])]
            share = float(steps.shares[i])
            mine, theirs = steps.scores[i].tolist()
            metrics = obs.metrics
            if name != "self":
                metrics.setdefault(f"wins_{name}", Metric()).push(share)
            metrics.setdefault(f"score_{name}", Metric()).push(mine)
            for row in range(2 * i, 2 * i + (2 if name == "self" else 1)):
                score = mine if row % 2 == 0 else theirs
                episodes.append(self._stats.episode(row, True, False, {"score": score}))
            self._stats.begin(slice(2 * i, 2 * i + 2))
        obs.episodes = episodes


def _picking(counts: NDArray[np.int64]) -> VecSelectEntityActionMask:
    """Mask of `SelectOption`: the table, entity 0, picks among the options, which come last."""
    table, options = counts[0], counts[-1]
    first = counts[:-1].sum(axis=0)
    lengths = options[options > 0]
    starts = np.repeat(first[options > 0] - (np.cumsum(lengths) - lengths), lengths)
    return VecSelectEntityActionMask(
        RaggedArray.unchecked(np.zeros(int(table.sum()), np.int64), table),
        RaggedArray.unchecked(starts + np.arange(len(starts)), options),
    )


def assigned_players(others: Mapping[str, float], num_envs: int) -> NDArray[np.int64]:
    """Player of each second seat, `(num_envs,)`."""
    wrong = [name for name in others if name not in OTHERS]
    if wrong or not others or min(others.values()) < 0 or not sum(others.values()) > 0:
        raise UsageError(
            f"others must give shares, 0 or more, to some of {', '.join(OTHERS)}: got {others!r}"
        )
    shares = np.array([float(others.get(name, 0)) for name in OTHERS])
    ends = np.round(np.cumsum(shares) / shares.sum() * num_envs)
    return np.searchsorted(ends, np.arange(num_envs), side="right").astype(np.int64)


# With n_layer 0 the network scores each legal move only from the features of that move, which is
# ten times as fast as with layers; see `examples/azul`. Games are short and rewards immediate, so
# gamma and gae_lambda are low.
training: Final = GameTraining(
    {
        "preset": None,
        "total_steps": 800_000,
        "net": {"d_model": 64, "n_layer": 0, "n_head": 2, "d_qk": 32},
        "gamma": 0.995,
        "gae_lambda": 0.9,
        "ent_coef": 0.005,
        "clip_vloss": False,
        "max_grad_norm": 1.0,
    },
    self_play=AzulSelfPlay.of,
)
