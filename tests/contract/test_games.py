"""Rules for every game of the package."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import entity_env
from entity_env import Action, Episode, Game, Obs, Observation, Turn, games
from entity_env.agents import PolicyAgent, RandomAgent
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.spaces import ActionName
from tests.helpers.batches import PLAIN_GAMES
from tests.project.layout import Source, imports

NUM_EPISODES = 20
FOLDER = "entity_env.games"
HEADINGS = (
    "Entities and features:",
    "Actions:",
    "Reward:",
    "Terminated when:",
    "Truncated when:",
    "Example:",
)

every_game = pytest.mark.parametrize("game", PLAIN_GAMES.values(), ids=PLAIN_GAMES.keys())


def num_episodes(game: Game, count: int = NUM_EPISODES) -> int:
    """Number of episodes; fewer for games with long episodes."""
    return max(2, count // 10) if game.name.startswith("azul") else count


def module_of(game: Game) -> ModuleType:
    return sys.modules[game.play.__module__]


def random_agents(game: Game, seed: int = 1) -> list[RandomAgent]:
    return [RandomAgent(seed=seed + i) for i in range(game.num_agents)]


@cache
def play(
    game: Game, seed: int = 3, episodes: int = NUM_EPISODES
) -> tuple[list[Turn], list[Episode]]:
    """Turns and episodes of random agents, played once and shared by all tests."""
    turns: list[Turn] = []
    count = num_episodes(game, episodes)
    played = game.run(*random_agents(game), seed=seed, episodes=count, watch=turns.append)
    return turns, played


def content(observation: Observation) -> object:
    """The content of an observation in comparable form."""
    features = {name: np.asarray(rows).tolist() for name, rows in observation.features.items()}
    return (features, np.asarray(observation.global_features).tolist(), list(observation.actions))


@every_game
def test_a_seed_means_the_same_episodes_every_time(game: Game) -> None:
    (turns, episodes), (again, episodes_again) = play(game), play.__wrapped__(game)
    assert [content(turn.observation) for turn in turns] == [
        content(turn.observation) for turn in again
    ]
    assert episodes == episodes_again


@every_game
def test_seeds_differ(game: Game) -> None:
    shown = [[content(turn.observation) for turn in play(game, seed, 5)[0]] for seed in range(3)]
    assert shown[0] != shown[1] != shown[2] != shown[0]


@every_game
def test_rewards_add_up(game: Game) -> None:
    turns, episodes = play(game)
    assert len(episodes) == num_episodes(game) * game.num_agents
    for episode in episodes:
        mine = [turn for turn in turns if turn.agent_id == episode.agent_id]
        ends = [i for i, turn in enumerate(mine) if turn.episode is not None]
        first = ends[episode.number - 1] + 1 if episode.number else 0
        steps = mine[first : ends[episode.number] + 1]
        assert steps[-1].episode == episode
        assert len(steps) == episode.length + 1
        assert episode.length > 0
        assert sum(turn.observation.reward for turn in steps) == pytest.approx(episode.reward)
        assert steps[0].observation.reward == 0


@every_game
def test_an_episode_is_either_terminated_or_truncated(game: Game) -> None:
    for turn in play(game)[0]:
        is_last = turn.episode is not None
        assert (turn.observation.terminated or turn.observation.truncated) == is_last
        assert not (turn.observation.terminated and turn.observation.truncated)
        if turn.observation.truncated:
            assert turn.observation.features, "the state still has a value: it must be shown"


class Witness(RandomAgent):
    """A random agent that records its observations, in both forms of the contract."""

    def __init__(self, game: Game, seed: int) -> None:
        super().__init__(seed)
        self.game = game
        self.writer = ObsBatcher(game.schema)
        self.observations: list[Observation] = []

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        self.writer.add(obs, [self.game.schema.action(action) for action in actions])
        return super().act(obs, *actions)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        self.observations.append(observation)
        assert [question.name for question in self.questions(observation)] == [
            name for name in self.schema.action_space() if name in observation.actions
        ]
        return super().decide(observation)

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self.writer.add(obs or Obs(), ())
        super().game_over(obs, truncated=truncated)


@every_game
def test_observations_fit_the_schema(game: Game) -> None:
    agents = [Witness(game, seed=i) for i in range(game.num_agents)]
    turns: list[Turn] = []
    game.run(*agents, seed=6, episodes=num_episodes(game), watch=turns.append)
    for i, agent in enumerate(agents):
        shown = [turn.observation for turn in turns if turn.agent_id == i]
        assert len(agent.observations) == sum(not observation.done for observation in shown)
        num_rows = len(shown)
        flags = np.zeros(num_rows, dtype=np.bool_)
        rows = np.arange(num_rows)
        batch = agent.writer.finish(flags.astype(np.float32), flags, flags, rows, rows)
        for row, observation in enumerate(shown):
            for name, entity in game.obs_space().entities.items():
                nothing = np.zeros((0, len(entity.features)))
                expected = observation.features.get(name, nothing)
                np.testing.assert_array_equal(batch.features[name][row], expected)


@every_game
def test_coordinates_are_cells(game: Game) -> None:
    """Views may place every entity with an x and a y on a grid."""
    for turn in play(game)[0]:
        for name, rows in turn.observation.features.items():
            columns = game.obs_space().entities[name].features
            assert ("x" in columns) == ("y" in columns)
            for axis in {"x", "y"} & set(columns):
                cells = np.asarray(rows)[:, columns.index(axis)]
                assert (cells >= 0).all()
                assert (cells == cells.round()).all()


class Steady(PolicyAgent):
    """Decides from the observation alone; can leave after one episode."""

    def __init__(self, episodes: int | None = None) -> None:
        super().__init__()
        self.shown: list[object] = []
        self.num_episodes = 0
        self.episodes = episodes

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        if self.num_episodes == self.episodes:
            return None
        self.shown.append(content(observation))
        total = sum(abs(float(np.sum(rows))) for rows in observation.features.values())
        return {
            question.name: question.action(
                [int(np.flatnonzero(row)[int(total) % row.sum()]) for row in question.allowed]
            )
            for question in self.questions(observation)
        }

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self.num_episodes += 1
        super().game_over(obs, truncated=truncated)


@every_game
def test_the_seed_of_an_episode_repeats_it(game: Game) -> None:
    agents = [Steady() for _ in range(game.num_agents)]
    episodes = game.run(*agents, seed=8, episodes=num_episodes(game, 6))
    repeated: list[list[object]] = [[] for _ in agents]
    for seed in [episode.seed for episode in episodes if episode.agent_id == 0]:
        players = [Steady(episodes=1) for _ in agents]
        game.start(players, seed)
        for shown, player in zip(repeated, players, strict=True):
            shown.extend(player.shown)
    assert repeated == [agent.shown for agent in agents]


class Quitter(Steady):
    """Leaves after a number of decisions."""

    def __init__(self, decisions: int) -> None:
        super().__init__()
        self.left = decisions
        self.calls_after: list[str] = []

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        self.left -= 1
        if self.left < -1:
            self.calls_after.append("act")
        return super().decide(observation) if self.left >= 0 else None

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        if self.left < 0:
            self.calls_after.append("game_over")
        super().game_over(obs, truncated=truncated)


@every_game
@pytest.mark.parametrize("decisions", [0, 1, 2])
def test_a_game_leaves_when_its_agent_hangs_up(game: Game, decisions: int) -> None:
    for quits in range(game.num_agents):
        quitter = Quitter(decisions)
        agents: list[PolicyAgent] = [*random_agents(game)]
        agents[quits] = quitter
        seed = 0
        while quitter.left >= 0:  # episodes of some games are shorter
            game.start(agents, seed)
            seed += 1
        assert quitter.calls_after == []


@every_game
def test_docstring_has_the_fixed_form(game: Game) -> None:
    lines = (module_of(game).__doc__ or "").splitlines()
    assert tuple(line for line in lines if line in HEADINGS) == HEADINGS
    assert lines[0].endswith(".")
    text = "\n".join(lines)
    for entity in game.obs_space().entities:
        assert f"\n    {entity}: " in text
    for action in game.action_space():
        assert f"\n    {action}: " in text
    assert ("\n    Global: " in text) == bool(game.obs_space().global_features)


@every_game
def test_every_setting_is_documented(game: Game) -> None:
    documented = getdoc(game.play) or ""
    for name in game.parameters:
        assert f"\n    {name}: " in documented


@every_game
def test_there_is_an_example(game: Game) -> None:
    """docs/test_docstring_examples.py checks that it runs."""
    assert "\n    >>> " in (module_of(game).__doc__ or "")


@every_game
def test_a_game_imports_what_a_user_would(game: Game) -> None:
    """Games import from the public package; a game with several modules also imports its own."""
    path = Path(module_of(game).__file__ or "").relative_to(Path(entity_env.__file__).parents[1])
    own = ".".join(path.parent.parts)
    tree = ast.parse(Path(module_of(game).__file__ or "").read_text())
    source = Source(path, "", tree, [*ast.walk(tree)])
    names = {name.rpartition(".")[0] for _, name in imports(source)}
    others = {name for name in names if own == FOLDER or not name.startswith(f"{own}.")}
    assert {name for name in others if name.startswith("entity_env")} == {
        "entity_env",
        "entity_env.agents",
    }
    assert "entity_env.agents.Agent" in {name for _, name in imports(source)}


def modules() -> Iterator[str]:
    """Files with games: modules other than lists and looks, and packages with a module `game`."""
    for path in Path(games.__file__).parent.glob("*.py"):
        is_game = path.stem not in ("registry", "versions") and not path.stem.endswith("_look")
        if is_game and not path.name.startswith("_"):
            yield path.stem
    for path in Path(games.__file__).parent.glob("*/game.py"):
        yield path.parent.name


def test_one_game_does_not_load_the_others() -> None:
    code = (
        "import sys; from entity_env.games import snake\n"
        "sys.exit([name for name in sys.modules if '.azul' in name or '.classic' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_a_game_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'chess'"):
        games.chess  # noqa: B018


def test_every_module_is_a_game() -> None:
    assert {of_package(game) or name for name, game in PLAIN_GAMES.items()} == set(modules())
    for name, game in PLAIN_GAMES.items():
        assert game.name == name
        package = of_package(game)
        place = games if package is None else import_module(f"{FOLDER}.{package}")
        assert vars(place)[name] is game


def of_package(game: Game) -> str | None:
    """The package of a game; None for a game in a single module."""
    parts = game.play.__module__.removeprefix(f"{FOLDER}.").split(".")
    return parts[0] if len(parts) > 1 else None


def test_the_name_of_a_package_is_the_package() -> None:
    packages = {
        package for game in PLAIN_GAMES.values() if (package := of_package(game)) is not None
    }
    assert packages == {"azul"}
    for package in packages:
        assert isinstance(vars(games)[package], ModuleType)
        assert vars(games)[package] is sys.modules[f"{FOLDER}.{package}"]
