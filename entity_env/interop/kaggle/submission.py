"""Submission: a trained agent as one Python file, for the runner of kaggle-environments.

The file holds the network, the modules of this package that it needs, and those of an adapter
outside this package, as text. It needs numpy alone. `write_submission` writes it, and `Submission`
is the function in it.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from entity_env.agents.rogue_net.checkpoints.agent_file import agent_from_bytes
from entity_env.agents.rogue_net.numpy_net.agent import RogueNetAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.identity import place_of
from entity_env.authoring.load_module import place_in_package
from entity_env.authoring.local_run import AgentRun
from entity_env.core.files import write_file, zip_of
from entity_env.core.spaces import Spaces, differences
from entity_env.errors import UsageError
from entity_env.interop.kaggle.embedding import local_modules, require_alone
from entity_env.interop.kaggle.game import KaggleAdapter, KaggleGame, Raw, has_actors

_PACKAGE: Final = Path(__file__).parents[2]
_PARTS: Final = ("agents", "authoring", "batching", "core", "interop/kaggle")
_FILES: Final = (
    "errors.py",
    "interrupts.py",
    "lazy_imports.py",
    "interop/__init__.py",
    "interop/results.py",
)
_WITHOUT: Final = frozenset(
    {"human", "imitation", "kernels", "onnx_net", "ppo", "torch_net", "tracking", "self_play"}
)
"""Folders that only training needs."""

_TEXT: Final = '''"""An agent for {game} of kaggle-environments. Needs only numpy."""

import atexit
import base64
import os
import shutil
import sys
import tempfile

NETWORK = """
{network}
"""

LIBRARY = """
{library}
"""


def _loaded():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "entity_env.zip")
    with open(path, "wb") as file:
        file.write(base64.b64decode(LIBRARY))
    sys.path.insert(0, path)
    from entity_env.interop.kaggle.submission import Submission

    return Submission(base64.b64decode(NETWORK), {place!r}, greedy={greedy})


_SUBMISSION = _loaded()


def agent(observation, configuration):
    return _SUBMISSION(observation, configuration)
'''


class Submission:
    """A trained agent as a function of an observation and a configuration of the runner.

    Args:
        network: content of an `.agent` file.
        place: `module:NAME` of the game.
        greedy: takes the most probable decisions; None = as for `load_agent`.
    """

    def __init__(self, network: bytes, place: str, *, greedy: bool | None = None) -> None:
        self._weights = agent_from_bytes(network, "the submission")
        module, _, name = place.partition(":")
        self._game: KaggleGame = getattr(import_module(module), name)
        self._greedy = greedy
        self._seats: dict[int, tuple[KaggleAdapter, Agent, int]] = {}
        """By player, because one function may play several seats: its last step is the third."""

    def __call__(self, observation: Raw, configuration: Raw) -> Any:  # noqa: ANN401 - of any game
        """The action for a turn; an observation of an earlier step begins another episode.

        None if the player has nothing to decide: the runner takes the game's default action.
        """
        step = int(observation["step"])
        player, num_players = self._game.adapter.seat_of(observation)
        if player not in self._seats or step <= self._seats[player][2]:
            agent: Agent = RogueNetAgent.of(self._weights, greedy=self._greedy)
            agent.join(AgentRun(self._game.schema, player))
            seats = self._game.adapter(num_players, configuration)
        else:
            seats, agent, _ = self._seats[player]
        self._seats[player] = seats, agent, step
        obs = seats.show(observation, player)
        return seats.moves(agent.act(obs, *seats.actions), player) if has_actors(obs) else None


def write_submission(
    out: Path, network: bytes, game: KaggleGame, *, greedy: bool | None = None
) -> None:
    """Writes a file for the runner of kaggle-environments.

    Args:
        network, greedy: as for `Submission`.
        game: defined at the top level of a module, which is embedded if it is not of this package.

    Raises:
        UsageError: the module needs others that cannot be embedded; see `local_modules`.
    """
    place = place_of(game)
    if place is None:
        raise UsageError(
            f"{game.name} must be defined at the top level of the Python file with its play "
            "function, for a submission to contain it"
        )
    module, name = place
    own: dict[str, Path] = {}
    if not module.startswith(f"{_PACKAGE.name}."):
        file = Path(sys.modules[module].__file__ or module).resolve()
        module, own = place_in_package(file)[0], local_modules(file)
    text = _TEXT.format(
        game=game.name,
        place=f"{module}:{name}",
        greedy=greedy,
        network=base64.encodebytes(network).decode(),
        library=base64.encodebytes(_library(own)).decode(),
    )
    if own:
        require_alone(text, file, own)
    write_file(out, text.encode())


def trained_game(spaces: Spaces, games: Sequence[Game]) -> KaggleGame:
    """The first of the games whose spaces are those of a network.

    Raises:
        UsageError: there is none, or the game has no adapter.
    """
    for game in games:
        if not isinstance(game, KaggleGame):
            raise UsageError(f"{game.name} is not a KaggleGame, which --kaggle needs")
        if not differences(spaces, (game.obs_space(), game.action_space())):
            return game
    there = " or ".join(game.name for game in games)
    raise UsageError(
        f"--kaggle needs an agent trained for {there}, with its present features; name a game of "
        "yours with --game FILE.py"
    )


def _library(own: Mapping[str, Path]) -> bytes:
    """The modules that an agent needs and those of an adapter, as a zip."""
    modules = {path.relative_to(_PACKAGE.parent).as_posix(): path for path in _modules()}
    return zip_of(dict(sorted({**modules, **own}.items())))


def _modules() -> Iterator[Path]:
    yield _PACKAGE / "__init__.py"
    yield from (_PACKAGE / name for name in _FILES)
    for part in _PARTS:
        for path in sorted((_PACKAGE / part).rglob("*.py")):
            if not _WITHOUT & set(path.relative_to(_PACKAGE).parts):
                yield path
