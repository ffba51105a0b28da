"""Submission: a trained agent as one Python file, for the runner of kaggle-environments.

The file holds the network and the modules of this package that it needs, as text, and needs numpy
alone. `write_submission` writes it, and `Submission` is the function in it.
"""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from entity_env.agents.rogue_net.checkpoints.agent_file import agent_from_bytes
from entity_env.agents.rogue_net.numpy_net.agent import RogueNetAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.local_run import AgentRun
from entity_env.core.files import write_file
from entity_env.core.spaces import differences
from entity_env.errors import UsageError
from entity_env.interop.kaggle.game import KaggleAdapter, KaggleGame, Raw, has_actors

_PACKAGE: Final = Path(__file__).parents[2]
_PARTS: Final = ("agents", "authoring", "batching", "core", "interop/kaggle")
_FILES: Final = ("errors.py", "interrupts.py", "lazy_imports.py", "interop/__init__.py")
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

    return Submission(base64.b64decode(NETWORK), {game!r}, greedy={greedy})


_SUBMISSION = _loaded()


def agent(observation, configuration):
    return _SUBMISSION(observation, configuration)
'''


class Submission:
    """A trained agent as a function of an observation and a configuration of the runner.

    Args:
        network: content of an `.agent` file.
        game: name of an adapted game.
        greedy: takes the most probable decisions.
    """

    def __init__(self, network: bytes, game: str, *, greedy: bool = False) -> None:
        self._weights = agent_from_bytes(network, "the submission")
        self._game = adapted_game(game)
        self._greedy = greedy
        self._seat: tuple[KaggleAdapter, Agent, int] | None = None

    def __call__(self, observation: Raw, configuration: Raw) -> list[Any]:
        """The moves for a turn; an observation of step 0 begins another episode."""
        if self._seat is None or not observation["step"]:
            self._seat = self._begun(observation, configuration)
        seats, agent, player = self._seat
        obs = seats.show(observation, player)
        return seats.moves(agent.act(obs, *seats.actions), player) if has_actors(obs) else []

    def _begun(self, observation: Raw, configuration: Raw) -> tuple[KaggleAdapter, Agent, int]:
        player, num_players = self._game.adapter.seat_of(observation)
        agent = RogueNetAgent.of(self._weights, greedy=self._greedy)
        agent.join(AgentRun(self._game.schema, player))
        return self._game.adapter(num_players, configuration), agent, player


def adapted_game(name: str) -> KaggleGame:
    """The game of an adapter in this package."""
    game: KaggleGame = getattr(import_module(f"{__package__}.{name}"), name)
    return game


def write_submission(out: Path, network: bytes, game: str, *, greedy: bool = False) -> None:
    """Writes a file for the runner of kaggle-environments; arguments as for `Submission`."""
    text = _TEXT.format(
        game=game,
        greedy=greedy,
        network=base64.encodebytes(network).decode(),
        library=base64.encodebytes(_library()).decode(),
    )
    write_file(out, text.encode())


def game_of_spaces(spaces: Any, adapted: tuple[str, ...]) -> str:  # noqa: ANN401 - of a network
    """Name of the adapted game that a network was trained for.

    Raises:
        UsageError: there is none.
    """
    for name in adapted:
        game = adapted_game(name)
        if not differences(spaces, (game.obs_space(), game.action_space())):
            return name
    there = " or ".join(f"kaggle:{name}" for name in adapted)
    raise UsageError(f"--kaggle needs an agent trained for {there}, with its present features")


def _library() -> bytes:
    """The modules that an agent needs, as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in _modules():
            info = zipfile.ZipInfo(path.relative_to(_PACKAGE.parent).as_posix())  # a constant date
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return packed.getvalue()


def _modules() -> Iterator[Path]:
    yield _PACKAGE / "__init__.py"
    yield from (_PACKAGE / name for name in _FILES)
    for part in _PARTS:
        for path in sorted((_PACKAGE / part).rglob("*.py")):
            if not _WITHOUT & set(path.relative_to(_PACKAGE).parts):
                yield path
