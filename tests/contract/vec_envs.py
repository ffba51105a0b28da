"""The vector environments of the contract tests: constructors and modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np
import pytest

from entity_env import Episode, VecObs
from entity_env.games.azul import AzulSelfPlay
from entity_env.games.classic import CartPole
from entity_env.games.multi_snake_batch import MultiSnakeBatch
from entity_env.vec import Autoreset, BatchVecEnv, VecEnv
from tests.helpers.executors import Batch, Choices, Spaces, SteppedGame, choose, plain_batch
from tests.helpers.tiny_games import crew, walk

Make: TypeAlias = Callable[..., VecEnv]
"""Called with a number of environments and the keywords `seed` and `autoreset`."""

NUM_ENVS = 3
ALL, NONE = [True] * NUM_ENVS, [False] * NUM_ENVS
LENGTH = 4
"""Steps of the longest episode for one agent."""
MODES: tuple[Autoreset, ...] = get_args(Autoreset)


class Kind(NamedTuple):
    """A `VecEnv` of a source.

    Attributes:
        make: returns a `VecEnv`.
        modes: its autoreset modes.
        marks: of all its tests.
    """

    make: Make
    modes: tuple[Autoreset, ...] = MODES
    marks: tuple[pytest.MarkDecorator, ...] = ()


poles = partial(CartPole, max_episode_steps=LENGTH, backend="numpy")


def _azul(num_envs: int, *, autoreset: Autoreset = "same_step", **how: Any) -> VecEnv:  # noqa: ANN401
    return VecEnv(AzulSelfPlay({"self": 1}), num_envs, autoreset=autoreset, **how)


def _make_poles(mode: str, num_envs: int) -> Any:  # noqa: ANN401 - a gymnasium.vector.VectorEnv
    from gymnasium import make_vec
    from gymnasium.vector import AutoresetMode

    keywords = {"autoreset_mode": AutoresetMode[mode]}
    return make_vec(
        "CartPole-v1", num_envs, "sync", vector_kwargs=keywords, max_episode_steps=LENGTH
    )


def _gymnasium(num_envs: int, *, mode: str = "DISABLED", **how: Any) -> VecEnv:  # noqa: ANN401
    from entity_env.interop.gymnasium import GymnasiumVecEnv

    return GymnasiumVecEnv(partial(_make_poles, mode), num_envs, **how)


_boards = partial(VecEnv, MultiSnakeBatch(board_size=4, max_snake_length=3, max_step=LENGTH))
IN_PROCESS: dict[str, Kind] = {
    "games": Kind(partial(VecEnv, walk)),
    "agents": Kind(partial(VecEnv, crew)),
    "games-thread": Kind(partial(VecEnv, walk, transport="thread")),
    "environments": Kind(partial(VecEnv, partial(SteppedGame, walk, "greenlet"))),
    "batch": Kind(partial(BatchVecEnv, poles)),
    "multi_snake": Kind(_boards),
    "azul": Kind(_azul, ("same_step",)),
    "gymnasium": Kind(_gymnasium, ("same_step", "disabled")),
    "gymnasium-same_step": Kind(partial(_gymnasium, mode="SAME_STEP"), ("same_step",)),
    "gymnasium-next_step": Kind(partial(_gymnasium, mode="NEXT_STEP"), ("same_step",)),
}
_SLOW = (pytest.mark.slow,)
WORKERS = {
    "games-workers": Kind(partial(VecEnv, walk, num_workers=2)),
    "agents-workers": Kind(partial(VecEnv, crew, num_workers=2)),
    "multi_snake-workers": Kind(partial(_boards, num_workers=2)),
    "azul-workers": Kind(partial(_azul, num_workers=2), ("same_step",), _SLOW),
    "gymnasium-workers": Kind(partial(_gymnasium, num_workers=2), ("same_step", "disabled"), _SLOW),
}
KINDS = {**IN_PROCESS, **WORKERS}
"""For rules with separate code for workers."""
# Games of Azul are never truncated, so training does not need final observations.
WITH_FINAL = {name: kind for name, kind in IN_PROCESS.items() if name != "azul"}


def each_kind(kinds: dict[str, Kind] = IN_PROCESS) -> pytest.MarkDecorator:
    """Tests every kind in its first mode."""
    cases = [pytest.param(kind.make, id=name, marks=kind.marks) for name, kind in kinds.items()]
    return pytest.mark.parametrize("make", cases)


def each_mode(
    kinds: dict[str, Kind] = IN_PROCESS, *, modes: tuple[Autoreset, ...] = MODES
) -> pytest.MarkDecorator:
    """Tests every kind in each of its modes that is in `modes`."""
    cases = [
        pytest.param(kind.make, mode, id=f"{name}-{mode}", marks=kind.marks)
        for name, kind in kinds.items()
        for mode in kind.modes
        if mode in modes
    ]
    return pytest.mark.parametrize(("make", "autoreset"), cases)


def each_disabled(kinds: dict[str, Kind] = IN_PROCESS) -> pytest.MarkDecorator:
    """Tests every kind that supports autoreset "disabled", in that mode."""
    cases = [
        pytest.param(partial(kind.make, autoreset="disabled"), id=name, marks=kind.marks)
        for name, kind in kinds.items()
        if "disabled" in kind.modes
    ]
    return pytest.mark.parametrize("make", cases)


def each_resettable(
    kinds: dict[str, Kind] = IN_PROCESS, *, modes: tuple[Autoreset, ...] = MODES
) -> pytest.MarkDecorator:
    """Like `each_mode`, for kinds that can reset a subset of their environments."""
    own = {"gymnasium-same_step", "gymnasium-next_step"}
    return each_mode({k: kind for k, kind in kinds.items() if k not in own}, modes=modes)


def spaces_of(vec: VecEnv) -> Spaces:
    return vec.obs_space(), vec.action_space()


def plain(vec: VecEnv, obs: VecObs) -> Batch:
    """A batch as plain lists, unaffected by later steps; checks its form."""
    return plain_batch(obs, spaces_of(vec))


def legal(vec: VecEnv, obs: VecObs, rng: np.random.Generator | None = None) -> Choices:
    """Random legal actions; without `rng`, equal for equal batches."""
    rng = np.random.default_rng(0) if rng is None else rng
    return choose(plain(vec, obs), spaces_of(vec), rng)


def by_row(vec: VecEnv, obs: VecObs, step: int) -> Choices:
    """Legal actions; a row's actions depend only on the row and the step."""
    return {
        name: np.array(
            [
                np.flatnonzero(mask)[(step + row) % np.count_nonzero(mask)]
                for row, shown in enumerate(plain(vec, obs).rows)
                if name in shown.asked
                for mask in shown.asked[name].allowed
            ],
            np.int64,
        )
        for name in vec.action_space()
    }


def steps(vec: VecEnv, obs: VecObs, num_steps: int) -> Iterator[VecObs]:
    """Acts; with autoreset "disabled", resets finished environments."""
    rng = np.random.default_rng(1)
    for _ in range(num_steps):
        if vec.autoreset == "disabled" and vec.is_over.any():
            obs = vec.reset_envs(vec.is_over)
        else:
            obs = vec.act(legal(vec, obs, rng))
        yield obs


def played(vec: VecEnv, seed: int | None = 5, num_steps: int = 3 * LENGTH) -> list[Batch]:
    """All batches after a reset, as plain lists."""
    obs = vec.reset(seed)
    return [plain(vec, obs), *(plain(vec, each) for each in steps(vec, obs, num_steps))]


def episodes_of(vec: VecEnv, vec_obs: VecObs, num_steps: int = LENGTH) -> list[Episode]:
    """The episodes that end in the next steps."""
    return [episode for obs in steps(vec, vec_obs, num_steps) for episode in obs.episodes]


def num_steps_of(vec: VecEnv) -> int:
    """Number of steps until some episodes end."""
    return 100 if vec.num_agents > 1 else 3 * LENGTH


def place(episode: Episode) -> tuple[int, int]:
    return episode.env_id, episode.agent_id
