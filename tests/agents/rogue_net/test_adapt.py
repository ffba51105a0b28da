"""On request, an agent plays in a game that has grown since its training."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import Categorical, CheckpointError, Game, Obs, SchemaError, SelectEntity, Turn
from entity_env.agents import Agent, load_agent
from entity_env.agents.load import Backend
from entity_env.agents.rogue_net import (
    NeuralAgent,
    NumpyAgent,
    RogueNet,
    RogueNetConfig,
    Weights,
    save_checkpoint,
    write_enn_checkpoint,
)
from entity_env.agents.rogue_net.adapt import FeatureAdaptor, renamed, unadaptable
from entity_env.agents.rogue_net.batch_layout import ObsBatch
from entity_env.agents.rogue_net.changes import rename_hint
from entity_env.agents.rogue_net.checkpoints.agent_file import write_agent
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.transfer import require_transferable
from entity_env.agents.rogue_net.weights import expected_tensors
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.cli import main
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    ContinuousActionMask,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    Spaces,
)
from entity_env.core.vec_obs import VecObs
from entity_env.games import tic_tac_toe
from entity_env.vec import VecEnv

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "torch"])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from a second thread, and lose a lot of time waiting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Move(Enum):
    LEFT = 0
    RIGHT = 1
    STAY = 2


class Mood(Enum):
    CALM = 0
    WILD = 1


def as_first_written() -> Game:
    """Ships move and eat food; they share one mood."""

    @dataclass
    class Ship:
        x: float
        y: float

    @dataclass
    class Food:
        x: float

    @dataclass
    class Day:
        time: float

    eat, move = SelectEntity(Food), Categorical(Move)

    def play(agent: Agent, *, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for step in range(8):
            ships = [Ship(*rng.normal(size=2)) for _ in range(1 + step % 3)]
            food = [Food(float(rng.normal())) for _ in range(2)]
            obs = Obs(0.0).globals(Day(step)).actors(ships).entities(food)
            if agent.act(obs, move, eat, Mood) is None:
                return
        agent.game_over()

    return Game(play, entities=(Ship, Food), actions=(move, eat, Mood), global_features=Day)


def as_it_grew() -> Game:
    """The grown game: ships have a shield, and Food and the new rocks come first."""

    @dataclass
    class Ship:
        shield: bool
        y: float
        x: float

    @dataclass
    class Food:
        ripe: float
        x: float

    @dataclass
    class Rock:
        size: float

    @dataclass
    class Day:
        rain: float
        time: float

    eat, move = SelectEntity(Food), Categorical(Move)

    def play(agent: Agent, *, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for step in range(8):
            ships = [
                Ship(step % 2 == 0, y, x)
                for x, y in (rng.normal(size=2) for _ in range(1 + step % 3))
            ]
            food = [Food(7.5, float(rng.normal())) for _ in range(2)]
            obs = Obs(0.0).globals(Day(3.0, step)).entities([Rock(1.0)] * (step % 2))
            if agent.act(obs.actors(ships).entities(food), move, eat, Mood) is None:
                return
        agent.game_over()

    types = (Rock, Food, Ship)
    return Game(play, entities=types, actions=(Mood, eat, move), global_features=Day)


FIRST, GROWN = as_first_written(), as_it_grew()
CONFIG = RogueNetConfig(d_model=8, n_layer=2)


def weights_for(spaces: Spaces, seed: int = 0, scale: float = 0.5) -> Weights:
    """A network with random weights and statistics."""
    rng = np.random.default_rng(seed)
    tensors = {
        name: np.asarray(
            rng.uniform(2, 9, spec.shape)
            if name.endswith(("count", "squares_sum"))
            else rng.normal(size=spec.shape) * scale,
            dtype=spec.dtype,
        )
        for name, spec in expected_tensors(*spaces, CONFIG).items()
    }
    return Weights(*spaces, CONFIG, tensors)


def spaces_of(game: Game) -> Spaces:
    return game.obs_space(), game.action_space()


def test_errors_suggest_new_names_where_one_is_gone_and_one_is_new() -> None:
    def spaces(feature: str, entity: str = "Unit", choice: str = "GO", *more: str) -> Spaces:
        entities = {entity: Entity([feature, *more]), "Rock": Entity(["x"])}
        return ObsSpace([], entities), {"Move": GlobalCategoricalActionSpace(["STAY", choice])}

    old = spaces("hp")
    assert rename_hint(old, old) == ""
    assert rename_hint(old, spaces("health")) == (
        "if only names have changed: --rename hp=health (in Python names={'hp': 'health'})"
    )
    assert "--rename GO=RUN --rename hp=health " in rename_hint(
        old, spaces("health", "Unit", "RUN")
    )
    assert "--rename Unit=Soldier " in rename_hint(old, spaces("hp", "Soldier"))
    assert rename_hint(old, spaces("hp", "Unit", "GO", "more")) == ""
    assert rename_hint(old, spaces("a", "Unit", "GO", "b")) == ""  # which one?
    with pytest.raises(CheckpointError, match=r"--rename hp=health .* Add --adapt"):
        require_transferable(weights_for(old), spaces("health"), adapt=False, where="x")
    weights = renamed(weights_for(old), {"hp": "health"})
    assert require_transferable(weights, spaces("health"), adapt=False, where="x") == []


def write(folder: Path, weights: Weights) -> dict[str, Path]:
    """Writes the network in every format."""
    save_checkpoint(folder / "run" / "checkpoint", RogueNet.of(weights))
    write_agent(folder / "x.agent", weights)
    write_enn_checkpoint(folder / "enn", weights)
    with tarfile.open(folder / "x.roguenet", "w") as archive:
        archive.add(folder / "enn", "enn")
    paths = ("run", "x.agent", "enn", "x.roguenet")
    return {Path(path).suffix[1:] or path: folder / path for path in paths}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return write(tmp_path_factory.mktemp("trained"), weights_for(spaces_of(FIRST)))


@dataclass
class Seen:
    """Actions and probabilities of an agent, turn by turn."""

    choices: list[dict[str, str]]
    probs: list[dict[str, NDArray[np.float32]]]


def played(game: Game, agent: Agent) -> Seen:
    seen = Seen([], [])

    def watch(turn: Turn) -> None:
        actions = sorted(turn.actions.items())
        seen.choices.append({name: str(vars(each).get("indices", each)) for name, each in actions})
        seen.probs.append({name: vars(each)["probs"] for name, each in actions})

    [episode] = game.run(agent, seed=5, watch=watch)
    assert episode.length == 8
    return seen


@BACKENDS
@pytest.mark.parametrize("kind", ["run", "agent", "enn", "roguenet"])
def test_it_plays_the_grown_game_as_the_first(
    paths: Mapping[str, Path], kind: str, backend: Backend
) -> None:
    strict, adapted = (
        load_agent(paths[kind], backend=backend, adapt=adapt, greedy=True)
        for adapt in (False, True)
    )
    first, grown = played(FIRST, strict), played(GROWN, adapted)
    for ours, theirs in zip(grown.probs, first.probs, strict=True):
        assert ours.keys() == theirs.keys()
        for name, probs in theirs.items():
            np.testing.assert_allclose(ours[name], probs, atol=1e-5)
            np.testing.assert_array_equal(ours[name].argmax(axis=-1), probs.argmax(axis=-1))
    assert len({str(each) for each in first.choices}) > 3
    assert played(FIRST, adapted).choices == first.choices  # the same agent, with nothing to adapt


@BACKENDS
def test_a_seed_repeats_itself(paths: Mapping[str, Path], backend: Backend) -> None:
    agents = [load_agent(paths["agent"], backend=backend, adapt=True, seed=3) for _ in range(2)]
    assert played(GROWN, agents[0]).choices == played(GROWN, agents[1]).choices


@BACKENDS
def test_batches_are_adapted(paths: Mapping[str, Path], backend: Backend) -> None:
    agents = [
        load_agent(paths["agent"], backend=backend, adapt=True, greedy=True) for _ in range(2)
    ]
    with VecEnv(FIRST, 4, num_workers=0) as first, VecEnv(GROWN, 4, num_workers=0) as grown:
        obs = [first.reset(seed=1), grown.reset(seed=1)]
        for _ in range(12):
            ours, theirs = (
                agent.decide_batch(each, game.schema)
                for agent, each, game in zip(agents, obs, (FIRST, GROWN), strict=True)
                if isinstance(agent, TrainedAgent)
            )
            assert ours.keys() == theirs.keys()
            for name, chosen in ours.items():
                np.testing.assert_array_equal(np.asarray(chosen), np.asarray(theirs[name]))
            obs = [first.act(ours), grown.act(theirs)]


@BACKENDS
def test_strict_is_the_default_and_names_the_way_out(
    paths: Mapping[str, Path], backend: Backend
) -> None:
    with pytest.raises(CheckpointError) as error:
        GROWN.run(load_agent(paths["agent"], backend=backend))
    for words in (
        "the game has the entity 'Rock', the checkpoint does not",
        "entity 'Ship': the game has the feature 'shield'",
        "the game has the global feature 'rain'",
        "load_agent(..., adapt=True)",
    ):
        assert words in str(error.value)


@BACKENDS
def test_a_game_that_shrank_is_refused_in_words(tmp_path: Path, backend: Backend) -> None:
    path = write(tmp_path, weights_for(spaces_of(GROWN)))["agent"]
    with pytest.raises(CheckpointError, match="trained for a different game") as strict:
        FIRST.run(load_agent(path, backend=backend))
    assert "load_agent(..., adapt=True)" not in str(strict.value)
    tuning = f"fine-tune it for this game: entity-env train GAME --init-from {path} --adapt --out"
    assert tuning in str(strict.value)
    with pytest.raises(CheckpointError, match="cannot be adapted to the game") as error:
        FIRST.run(load_agent(path, backend=backend, adapt=True))
    for words in (
        "the checkpoint has the entity 'Rock', the game does not",
        "entity 'Ship': the checkpoint has the feature 'shield', the game does not",
        "entity 'Food': the checkpoint has the feature 'ripe'",
        "the checkpoint has the global feature 'rain'",
    ):
        assert words in str(error.value)
    assert "order" not in str(error.value)
    assert tuning in str(error.value)


def test_a_refusal_names_the_way_to_fine_tune(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    path = write(folder, weights_for(spaces_of(FIRST)))["agent"]
    agents = {
        f"'{path}'": [load_agent(path), NumpyAgent.load(path), NeuralAgent.load(path)],
        "AGENT": [load_agent(path.read_bytes())],
    }
    for quoted, loaded in agents.items():
        for agent in loaded:
            with pytest.raises(CheckpointError) as error:
                GROWN.run(agent)
            python = f"initialized_from({quoted.strip(chr(39))!r}, adapt=True)"
            assert f"train GAME --init-from {quoted} --adapt --out runs/new" in str(error.value)
            assert python in str(error.value)
    with pytest.raises(CheckpointError, match="or train a new agent for this game") as other:
        tic_tac_toe.run(load_agent(path), load_agent(path))
    assert "fine-tune" not in str(other.value)


BASE: Spaces = (
    ObsSpace(("t",), {"A": Entity(("x", "y")), "B": Entity(())}),
    {"move": CategoricalActionSpace(("a", "b")), "pick": SelectEntityActionSpace()},
)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ({"pick": SelectEntityActionSpace()}, "the checkpoint has the action 'move'"),
        (
            {**BASE[1], "jump": SelectEntityActionSpace()},
            "the game has the action 'jump', the checkpoint does not",
        ),
        (
            {**BASE[1], "move": CategoricalActionSpace(("b", "a"))},
            "action 'move': label order differs",
        ),
        (
            {**BASE[1], "move": CategoricalActionSpace(("a", "b", "c"))},
            "action 'move': the game has the label 'c'",
        ),
        (
            {**BASE[1], "move": GlobalCategoricalActionSpace(("a", "b"))},
            "action 'move': the checkpoint has the kind categorical",
        ),
    ],
)
def test_other_actions_are_refused(actions: dict[str, ActionSpace], words: str) -> None:
    [found] = unadaptable(BASE, (BASE[0], actions))
    assert words in found
    with pytest.raises(CheckpointError, match="cannot be adapted"):
        FeatureAdaptor(BASE, (BASE[0], actions))


def test_an_order_is_no_difference() -> None:
    turned = ObsSpace(("s", "t"), {"B": Entity(()), "A": Entity(("y", "z", "x"))})
    assert unadaptable(BASE, (turned, {name: BASE[1][name] for name in ("pick", "move")})) == []


@BACKENDS
def test_what_it_has_never_seen_does_not_act(backend: str) -> None:
    weights = weights_for(BASE)
    agent: NumpyAgent | NeuralAgent = (
        NumpyAgent(weights) if backend == "numpy" else NeuralAgent(RogueNet.of(weights))
    )
    game: Spaces = (
        ObsSpace(("t",), {"N": Entity(("x",)), "A": Entity(("x", "y")), "B": Entity(())}),
        BASE[1],
    )
    adaptor = FeatureAdaptor(BASE, game)
    features = {"N": np.zeros((1, 1)), "A": np.zeros((2, 2)), "B": np.zeros((1, 0))}
    ids = {"N": [0], "A": [1, 2], "B": [3]}

    def see(with_ids: bool, **actions: ActionMask) -> Observation:
        return Observation(
            reward=0.0,
            global_features=[0.0],
            features=features,
            ids=ids if with_ids else {},
            actions=actions,
        )

    for observation, words in (
        (
            see(True, move=CategoricalActionMask(actor_ids=[1, 0])),
            "'move': entities of type N can act",
        ),
        (
            see(False, move=CategoricalActionMask(actor_ids=[("N", 0)])),
            "'move': entities of type N can act",
        ),
        (see(False, move=CategoricalActionMask()), "'move': entities of type N can act"),
        (
            see(True, move=CategoricalActionMask(actor_types=["N"])),
            "'move': entities of type N can act",
        ),
        (
            see(True, pick=SelectEntityActionMask(actor_ids=[1], actee_types=["A", "N"])),
            "'pick': entities of type N can be selected, but the agent was trained without this",
        ),
        (
            see(True, pick=SelectEntityActionMask(actor_types=["A"], actee_ids=[0])),
            "'pick': entities of type N can be selected",
        ),
    ):
        with pytest.raises(SchemaError, match=words):
            adaptor.observation(observation)
        with pytest.raises(SchemaError, match=words):
            adaptor.batch(batch_of(game, [observation]))
    fine = see(True, move=CategoricalActionMask(actor_ids=[2, 3, 1]))
    assert agent.choose(adaptor.observation(fine))[0]["move"].shape == (3,)


def test_rows_that_do_not_fit_raise() -> None:
    game: Spaces = (ObsSpace(("s", "t"), {"A": Entity(("x", "z", "y")), "B": Entity(())}), BASE[1])
    adaptor = FeatureAdaptor(BASE, game)
    with pytest.raises(SchemaError, match=r"A: features need the shape \(num_entities, 3\)"):
        adaptor.observation(
            Observation(reward=0.0, global_features=[0, 0], features={"A": np.zeros((1, 4))})
        )
    with pytest.raises(SchemaError, match="1 global features, expected 2"):
        adaptor.observation(Observation(reward=0.0, global_features=[0]))


def batch_of(spaces: Spaces, observations: list[Observation]) -> VecObs:
    writer = ObservationBatcher(*spaces)
    for observation in observations:
        writer.add(observation)
    flags, index = np.zeros(len(observations), np.bool_), np.zeros(len(observations), np.int64)
    return writer.finish(np.zeros(len(observations), np.float32), flags, flags, index, index)


KINDS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(("a", "b")),
    "pick": SelectEntityActionSpace(),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
    "push": ContinuousActionSpace((-1.0,), (1.0,)),
}


@st.composite
def grown_games(draw: st.DrawFn) -> tuple[Spaces, Spaces]:
    """The spaces of a trained agent, and larger spaces with all names in any order."""
    names = st.permutations(["x", "y", "z"])
    shared = draw(names)[: draw(st.integers(0, 3))]
    types = {
        name: draw(names)[: draw(st.integers(0, 3))]
        for name in draw(st.permutations(["A", "B", "C"]))
    }
    actions = draw(st.permutations(list(KINDS)))[: draw(st.integers(1, 4))]
    game = (
        ObsSpace(shared, {name: Entity(each) for name, each in types.items()}),
        {name: KINDS[name] for name in actions},
    )
    some = draw(st.permutations(list(types)))[: draw(st.integers(1, 3))]
    known = ObsSpace(
        draw(st.permutations(shared))[: draw(st.integers(0, len(shared)))],
        {
            name: Entity(draw(st.permutations(types[name]))[: draw(st.integers(0, 3))])
            for name in some
        },
    )
    return (known, {name: KINDS[name] for name in draw(st.permutations(actions))}), game


@st.composite
def shown(draw: st.DrawFn, agent: Spaces, game: Spaces) -> Observation:
    """An observation of a grown game in which only known entities act."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    counts = {name: draw(st.integers(0, 3)) for name in game[0].entities}
    ids = {name: [f"{name}{i}" for i in range(count)] for name, count in counts.items()}
    named = [each for name in agent[0].entities for each in ids[name]]
    some = st.lists(st.sampled_from(named), max_size=3) if named else st.just([])
    types = st.lists(st.sampled_from([*agent[0].entities]), unique=True)
    by_ids, by_types = draw(st.booleans()), draw(st.booleans())
    actor_ids, actor_types = (draw(some), None) if by_ids else (None, draw(types))
    actee_ids, actee_types = (None, draw(types)) if by_types else (draw(some), None)
    num_actees = len(actee_ids or ()) + sum(counts[name] for name in actee_types or ())
    masks: dict[str, ActionMask] = {
        "move": CategoricalActionMask(actor_ids, actor_types),
        "pick": SelectEntityActionMask(actor_ids, actor_types, actee_types, actee_ids),
        "mode": GlobalCategoricalActionMask([1, 0] if draw(st.booleans()) else None),
        "push": ContinuousActionMask(actor_ids, actor_types),
    }
    return Observation(
        reward=0.0,
        global_features=rng.normal(size=len(game[0].global_features)),
        features={
            name: rng.normal(size=(count, len(game[0].entities[name].features)))
            for name, count in counts.items()
        },
        ids=ids,
        actions={
            name: masks[name]
            for name in game[1]
            if (num_actees or name != "pick") and draw(st.booleans())
        },
        visible={
            name: rng.random(count) < 0.5 for name, count in counts.items() if draw(st.booleans())
        },
    )


@settings(max_examples=80)
@given(data=st.data())
def test_batches_and_observations_are_adapted_alike(data: st.DataObject) -> None:
    agent, game = data.draw(grown_games())
    adaptor = FeatureAdaptor(agent, game)
    observations = data.draw(st.lists(shown(agent, game), min_size=1, max_size=3))
    adapted = adaptor.batch(batch_of(game, observations))
    expected = batch_of(agent, [adaptor.observation(each) for each in observations])
    assert adapted == ObsBatch(expected.features, adapted.visible, expected.action_masks)
    for name, rows in adapted.features.items():
        ours, theirs = (
            batch.visible[name].values if name in batch.visible else np.ones(len(rows.values))
            for batch in (adapted, expected)
        )
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=30)
@given(data=st.data())
def test_every_feature_goes_where_its_name_says(data: st.DataObject) -> None:
    agent, game = data.draw(grown_games())
    observation = data.draw(shown(agent, game))
    seen = FeatureAdaptor(agent, game).observation(observation)
    assert seen.features.keys() == agent[0].entities.keys()
    for name, entity in agent[0].entities.items():
        for column, feature in enumerate(entity.features):
            there = list(game[0].entities[name].features).index(feature)
            np.testing.assert_array_equal(
                np.asarray(seen.features[name])[:, column],
                np.asarray(observation.features[name])[:, there],
            )
    for i, feature in enumerate(agent[0].global_features):
        there = list(game[0].global_features).index(feature)
        assert seen.global_features[i] == observation.global_features[there]


@BACKENDS
def test_a_game_that_declares_nothing_is_adapted_by_what_it_shows(
    paths: Mapping[str, Path], backend: Backend
) -> None:
    """When called directly, a game does not declare what else it might show."""

    @dataclass
    class Ship:
        new: float
        x: float
        y: float

    @dataclass
    class Day:
        time: float

    @dataclass
    class Cloud:
        x: float

    agent = load_agent(paths["agent"], backend=backend, adapt=True)
    for _ in range(2):
        obs = Obs(0.0).globals(Day(1.0)).entities([Cloud(1.0)]).actors([Ship(1.0, 2.0, 3.0)])
        assert isinstance(agent.act(obs, Mood), Mood)
        moves: list[Move] | None = agent.act(obs, Categorical(Move))
        assert moves is not None
        assert len(moves) == 1
    with pytest.raises(CheckpointError, match="has the global feature 'time', the game does not"):
        agent.act(Obs(0.0).entities([Ship(1.0, 2.0, 3.0)]), Mood)
    strict = load_agent(paths["agent"], backend=backend)
    with pytest.raises(SchemaError):
        strict.act(Obs(0.0).globals(Day(1.0)).entities([Ship(1.0, 2.0, 3.0)]), Mood)


GAME_FILE = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

@dataclass
class Head:
    {fields}

class Move(Enum):
    UP = 0
    DOWN = 1

def play(agent, *, seed):
    for _ in range(3):
        if agent.act(Obs(0.0).entities([Head(*range({width}))]), Move) is None:
            return
    agent.game_over(Obs(1.0))

game = Game(play, entities=(Head,), actions=(Move,))
"""


def test_the_command_line_adapts(tmp_path: Path) -> None:
    spaces: Spaces = (
        ObsSpace((), {"Head": Entity(("x",))}),
        {"Move": GlobalCategoricalActionSpace(("UP", "DOWN"))},
    )
    write_agent(tmp_path / "x.agent", weights_for(spaces))
    game = tmp_path / "game.py"
    game.write_text(GAME_FILE.format(fields="y: int\n    x: int", width=2))
    for command in (["play", "--no-render"], ["eval", "--episodes=2", "--num-workers=0"]):
        arguments = [*command, str(game), "--agent", str(tmp_path / "x.agent")]
        refused = CliRunner().invoke(main, arguments)
        assert refused.exit_code == 2
        assert "--adapt" in refused.stderr
        result = CliRunner().invoke(main, [*arguments, "--adapt", "--temperature", "0.5"])
        assert result.exit_code == 0, result.output
        cold = CliRunner().invoke(main, [*arguments, "--adapt", "--temperature", "0"])
        assert cold.exit_code == 2
