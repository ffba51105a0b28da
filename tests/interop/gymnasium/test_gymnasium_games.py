"""Games with entities as Gymnasium environments: one and many, any observations and actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import gymnasium
import numpy as np
import pytest
from gymnasium import error, spaces
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation
from gymnasium.wrappers.vector import FlattenObservation as FlattenObservations
from hypothesis import given, settings, strategies as st

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    Environment,
    Game,
    Observation,
    ObsSpace,
    ProtocolError,
    SchemaError,
    UsageError,
    VecObs,
)
from entity_env.games import (
    cartpole,
    cherry_pick,
    multi_snake,
    rock_paper_scissors,
    snake,
    tic_tac_toe,
    treasure_hunt,
)
from entity_env.games.classic import CartPole
from entity_env.interop.gymnasium import EntityVectorEnv, GameEnv, make_vector_env
from entity_env.interop.gymnasium.env import _first_observation
from entity_env.interop.gymnasium.padded import PaddedActions, PaddedEntities
from entity_env.interop.gymnasium.vector_env import VectorEnvBase
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.helpers.executors import Batch, plain_batch
from tests.helpers.tiny_games import chaos
from tests.interop.gymnasium.counting_envs import CountEnv

ROOM: Final[Mapping[str, dict[str, Any]]] = {
    "snake": {"max_entities": {"Segment": 99}},
    "multi_snake": {
        "max_entities": {"Head": 2, "Segment": 30, "Food": 2},
        "max_actors": {"Move": 2},
    },
    "treasure_hunt": {"max_entities": {"Treasure": 10, "Trap": 10}},
    "cherry_pick": {"max_entities": {"Cherry": 16}, "illegal_actions": "next"},
    "chaos": {
        "max_entities": {"Cat": 3, "Dog": 3, "Ghost": 2},
        "max_actors": dict.fromkeys(list(chaos.action_space()), 5) | {},
        "illegal_actions": "next",
    },
}
ROOM["chaos"]["max_actors"].pop("Move")
GAMES: Final[Mapping[str, Game]] = {
    game.name: game for game in (snake, multi_snake, treasure_hunt, cherry_pick)
} | {"chaos": chaos}
each_mode = pytest.mark.parametrize("mode", AutoresetMode)
# Bounds of features are unknown, which Gymnasium warns about.
without_bounds = pytest.mark.filterwarnings("ignore:.*A Box observation space m.*infinity")


def make_env(name: str) -> GameEnv:
    return GameEnv(GAMES[name], **ROOM[name])


@without_bounds
def test_gymnasium_finds_nothing_wrong_with_what_make_makes(snake_id: str) -> None:
    pytest.importorskip("PIL")
    env = gymnasium.make(snake_id, render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=[pytest.mark.slow] * (name == "chaos"))
        for name in GAMES
        for mode in AutoresetMode
        if (name, mode) != ("chaos", AutoresetMode.NEXT_STEP)  # see the next test
    ],
)
def test_many_are_as_gymnasium_would_have_them(name: str, mode: AutoresetMode) -> None:
    """One step for all equals, to the bit, Gymnasium's own loop over `GameEnv`s."""
    ours = make_vector_env(GAMES[name], 3, autoreset_mode=mode, **ROOM[name])
    theirs: Any = SyncVectorEnv([partial(make_env, name)] * 3, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert data_equivalence(ours.reset(seed=5), theirs.reset(seed=5), exact=True)
    ours.action_space.seed(1)
    num_ended = 0
    for _ in range(80):
        actions = ours.action_space.sample()
        stepped = ours.step(actions)
        assert data_equivalence(stepped, theirs.step(actions), exact=True)
        assert stepped[0] in ours.observation_space
        ended = stepped[2] | stepped[3]
        num_ended += ended.sum()
        if mode == AutoresetMode.DISABLED and ended.any():
            mine = ours.reset(options={"reset_mask": ended})
            assert data_equivalence(mine, theirs.reset(options={"reset_mask": ended}), exact=True)
    assert num_ended > 5
    for seed in ([8, 6, 7], 2**40, None):
        assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed), exact=True)
    ours.close()
    theirs.close()


def test_an_episode_that_is_over_at_once_ends_in_the_step_that_begins_it() -> None:
    envs = make_vector_env(chaos, 2, **ROOM["chaos"])
    envs.reset(seed=1)
    began_over = 0
    ended = np.zeros(2, np.bool_)
    for _ in range(200):
        _, rewards, terminations, truncations, _ = envs.step(envs.action_space.sample())
        began_over += ((terminations | truncations) & ended).sum()
        assert (rewards[ended] == 0).all()
        ended = terminations | truncations
    assert began_over > 10
    envs.close()


def test_what_the_observation_of_snake_is() -> None:
    env = GameEnv(snake, max_entities={"Segment": 5}, board_size=6)
    assert env.action_space == spaces.Discrete(4)
    shapes = {key: space.shape for key, space in env.observation_space.items()}  # type: ignore[attr-defined]
    assert shapes == {"Food": (1, 2), "Head": (1, 2), "Segment": (5, 2), "Segment_mask": (5,)}
    obs, info = env.reset(seed=3)
    assert obs["Head"].tolist() != [[0, 0]]
    assert not obs["Segment"].any()
    assert not obs["Segment_mask"].any()
    assert info["action_mask"].tolist() == [1, 1, 1, 1]
    assert info["action_mask"].dtype == np.int8
    env.close()


def step_often(envs: VectorEnvBase) -> None:
    for _ in range(2000):
        envs.step(envs.action_space.sample())


def test_too_many_entities_are_an_error_and_never_cut() -> None:
    envs = make_vector_env(snake, 2, max_entities={"Segment": 1}, board_size=4)
    envs.reset(seed=1)
    with pytest.raises(SchemaError, match=r"env \d: 2 entities of type 'Segment', but max_ent"):
        step_often(envs)
    envs.close()


def test_another_number_than_always_is_an_error() -> None:
    env = GameEnv(Crew([1] * 30 + [2, 0]), max_actors={"Row": 2})
    env.reset(seed=1)
    message = r"2 entities of type 'Sailor', but there were 1 at first: .*max_entities="
    with pytest.raises(SchemaError, match=message):
        [env.step(np.ones((2, 2))) for _ in range(30)]
    env.close()


@pytest.mark.parametrize(
    ("source", "given", "kind", "message"),
    [
        (snake, {"max_entities": {}}, SchemaError, "begin with 0 entities of type 'Segment'"),
        (snake, {"max_entities": {"Tail": 3}}, UsageError, "names 'Tail'; there are Head, Segment"),
        (snake, {"max_entities": {"Segment": 0}}, UsageError, r"max_entities\['Segment'\] must be"),
        (
            snake,
            {"max_entities": 5},
            UsageError,
            r"max_entities must be a dict, as \{'Head': 9\}, or \"auto\": got",
        ),
        (
            multi_snake,
            {"max_entities": {"Head": 1, "Segment": 99}},
            SchemaError,
            r"episodes begin with 2 entities of type 'Head', but max_entities\['Head'\] is 1:",
        ),
        (
            multi_snake,
            {**ROOM["multi_snake"], "max_actors": {"Go": 1}},
            UsageError,
            "max_actors names 'Go'; there are Move",
        ),
        (snake, {"illegal_actions": "skip"}, UsageError, "illegal_actions must be"),
        (snake, {"render_mode": "human"}, UsageError, "render_mode must be"),
        (snake, {"wings": 2}, UsageError, "snake has no setting 'wings'"),
        (tic_tac_toe, {}, UsageError, "one agent, this game is for 2"),
        (3, {}, SchemaError, "a VecEnv needs a Game"),
    ],
)
def test_bad_settings(
    source: Any,  # noqa: ANN401 - includes invalid sources
    given: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    for make in (GameEnv, partial(make_vector_env, num_envs=2)):
        with pytest.raises(kind, match=message):
            make(source, **given)


def test_several_agents_are_refused_with_a_limit_too() -> None:
    with pytest.raises(UsageError, match="one agent, this game is for 2"):
        make_vector_env(rock_paper_scissors, max_episode_steps=3)


def test_types_that_vary_from_the_beginning_must_be_named() -> None:
    vec = VecEnv(treasure_hunt, 20)
    with pytest.raises(SchemaError, match=r"episodes begin with \d or .* of type 'Treasure'"):
        EntityVectorEnv(vec, max_entities={})
    vec.close()


def test_order_of_calls() -> None:
    env = make_env("snake")
    with pytest.raises(error.ResetNeeded):
        env.step(0)
    env.reset(seed=1)
    while not env.step(0)[2]:
        pass
    with pytest.raises(ProtocolError, match="have ended"):
        env.step(0)
    env.reset()
    env.step(1)
    env.close()
    env.close()
    for seed, message in ((-1, "greater or equal to zero"), (0.5, "python integer")):
        with pytest.raises(error.Error, match=message):
            env.reset(seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [4, -1, 0.5, [0], "up", None])
def test_bad_actions(action: object) -> None:
    env = make_env("snake")
    env.reset(seed=1)
    with pytest.raises(SchemaError, match="action 'Move'"):
        env.step(action)
    env.step(0)  # the failed call had no effect
    env.close()


def test_actions_by_name() -> None:
    env = make_env("chaos")
    assert isinstance(env.action_space, spaces.Dict)
    env.reset(seed=1)
    for wrong in (0, {}, {"Move": 0}, {**env.action_space.sample(), "Fly": 1}):
        with pytest.raises(SchemaError, match="actions must be a dict of the actions 'Move'"):
            env.step(wrong)
    env.close()


def test_selecting_chooses_a_place_in_the_observation() -> None:
    env = GameEnv(cherry_pick, max_entities={"Picker": 2, "Cherry": 16})
    assert env.action_space == spaces.Discrete(18)
    obs, info = env.reset(seed=1)
    total, rewards = 0.0, 0.0
    for _ in range(8):
        num_cherries = int(obs["Cherry_mask"].sum())
        allowed = [0, 0, *[1] * num_cherries, *[0] * (16 - num_cherries)]
        assert info["action_mask"].tolist() == allowed
        for place in (0, 1, 2 + num_cherries, 18, -1):
            with pytest.raises(SchemaError, match=f"selects place {place}, expected one of"):
                env.step(place)
        best = int(obs["Cherry"][:num_cherries, 0].argmax())
        total += float(obs["Cherry"][best, 0])
        obs, reward, *_, info = env.step(2 + best)
        rewards += reward
    assert rewards == pytest.approx(total, rel=1e-5)
    assert not info["action_mask"].any()
    env.close()


def test_forbidden_choices_are_errors_or_become_the_next_that_is_allowed() -> None:
    room = {**ROOM["chaos"], "illegal_actions": "raise"}
    strict, lenient = (make_vector_env(chaos, 20, **given) for given in (room, ROOM["chaos"]))
    _, infos = strict.reset(seed=1)
    lenient.reset(seed=1)
    actions = strict.action_space.sample()
    allowed = infos["action_mask"]["Move"]
    forbidden = int(np.flatnonzero(allowed.any(1) & ~allowed.all(1))[0])
    for name, table in infos["action_mask"].items():  # all choices but one are legal
        if not name.startswith("_"):
            actions[name] = table.argmax(-1)
    legal = {name: array.copy() for name, array in actions.items()}
    actions["Move"][forbidden] = np.flatnonzero(~allowed[forbidden].astype(np.bool_))[0]
    with pytest.raises(SchemaError, match=f"env {forbidden}.*its mask forbids"):
        strict.step(actions)
    wrong = actions["Move"][forbidden]
    turned = [(wrong + i) % 3 for i in range(3)]
    legal["Move"][forbidden] = next(i for i in turned if allowed[forbidden, i])
    assert data_equivalence(strict.step(legal), lenient.step(actions), exact=True)
    strict.close()
    lenient.close()


def test_samples_of_the_mask_are_always_allowed() -> None:
    env = GameEnv(chaos, **{**ROOM["chaos"], "illegal_actions": "raise"})
    env.reset(seed=1)
    info = env.reset()[1]
    for _ in range(300):
        masks = {
            name: mask if mask.ndim == 1 else tuple(mask)
            for name, mask in info["action_mask"].items()
        }
        action = env.action_space.sample({**dict.fromkeys(env.action_space), **masks})  # type: ignore[call-overload]
        *_, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            info = env.reset()[1]
    env.close()


@given(seed=st.integers(0, 2**16), num_steps=st.integers(0, 3))
@settings(max_examples=30)
def test_layouts_show_and_ask_what_the_batch_does(seed: int, num_steps: int) -> None:
    """Compared with a slow reference, row by row."""
    spaces_of_it = chaos.obs_space(), chaos.action_space()
    room = ROOM["chaos"]
    with VecEnv(chaos, 4, autoreset="same_step") as vec:
        obs = vec.reset(seed=seed)
        entities = PaddedEntities(chaos.obs_space(), obs, room["max_entities"])
        layout = PaddedActions(chaos.action_space(), entities, obs, room["max_actors"], "next")
        rng = np.random.default_rng(seed)
        for _ in range(num_steps + 1):
            batch = plain_batch(obs, spaces_of_it)
            check_observation(entities.observe(obs), obs, entities)
            masks = layout.masks(obs)
            check_masks(masks, batch, obs, entities)
            space = layout.space()
            space.seed(int(rng.integers(2**31)))
            drawn = [space.sample() for _ in range(4)]
            answer = layout.answer(obs, masks, {n: np.stack([d[n] for d in drawn]) for n in space})  # type: ignore[attr-defined]
            obs = vec.act(answer)  # rejects illegal actions


def check_observation(shown: Mapping[str, Any], obs: VecObs, entities: PaddedEntities) -> None:
    for i in range(len(obs)):
        for slots in entities.entities:
            rows = obs.features[slots.name][i]
            seen = obs.visible[slots.name][i] if slots.name in obs.visible else [True] * len(rows)
            empty = slots.capacity - len(rows)
            values = [
                list(r) if s else [0.0] * slots.width for r, s in zip(rows, seen, strict=True)
            ]
            assert shown[f"{slots.name}_mask"][i].tolist() == [*map(int, seen), *[0] * empty]
            assert shown[slots.name][i].tolist() == values + [[0.0] * slots.width] * empty
        weather = obs.features["__global__"][i]
        assert shown["global"][i].tolist() == (weather[0].tolist() if len(weather) else [0.0])


def check_masks(
    masks: Mapping[str, Any], batch: Batch, obs: VecObs, entities: PaddedEntities
) -> None:
    for i, row in enumerate(batch.rows):
        for name, table in masks.items():
            asked = row.asked.get(name)
            for actor, allowed in enumerate(table[i]):
                expected = [False] * len(allowed)
                if asked is not None and actor < len(asked.actors):
                    places = places_of(i, obs, entities, asked.actees) or range(len(allowed))
                    for place, is_allowed in zip(places, asked.allowed[actor], strict=True):
                        expected[place] = is_allowed
                assert allowed.tolist() == expected


def places_of(row: int, obs: VecObs, entities: PaddedEntities, actees: list[int]) -> list[int]:
    """Positions of entities, one by one."""
    places: list[int] = []
    first = 0
    for slots in entities.entities:
        places += range(first, first + len(obs.features[slots.name][row]))
        first += slots.capacity
    return [places[i] for i in actees]


class Crew(Environment):
    """Shows a given number of sailors in each step, who all row; their strengths add up."""

    def __init__(self, counts: list[int], name: str = "Sailor") -> None:
        self._counts = counts
        self._name = name
        self._step = 0

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Sailor": Entity(["number"]), self._name: Entity(["number"])})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Row": ContinuousActionSpace([-1, 0], [1, 2])}

    def reset(self, *, seed: int | None = None) -> Observation:
        self._step = 0
        return self._shown(0.0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        self._step += 1
        action = actions.get("Row")
        return self._shown(float(action.values.sum()) if action else 0.0)  # type: ignore[union-attr]

    def _shown(self, reward: float) -> Observation:
        count = self._counts[self._step]
        return Observation(
            reward=reward,
            terminated=self._step == len(self._counts) - 1,
            features={"Sailor": [[i] for i in range(count)]},
            actions={"Row": ContinuousActionMask()},
        )


def test_one_actor_chooses_numbers() -> None:
    env = GameEnv(Crew([1, 1, 0]))
    assert env.action_space == spaces.Box(np.float32([-1, 0]), np.float32([1, 2]))  # type: ignore[arg-type]
    assert list(env.reset()[1]) == ["episode_seed"]  # no masks
    assert env.step([0.5, 1.5])[1] == 2
    for wrong in ([0.5], [[0.5], [1, 2]], ["a", "b"], [0.5, 2.5], [0.5, np.nan]):
        with pytest.raises(SchemaError, match="action 'Row'"):
            env.step(wrong)
    obs, reward, terminated, *_ = env.step(np.array([1, 0]))
    assert (reward, terminated, obs["Sailor"].tolist()) == (1, True, [[0]])
    env.close()


def test_several_actors_choose_numbers() -> None:
    env = GameEnv(Crew([2, 3, 0]), max_entities={"Sailor": 3}, max_actors={"Row": 3})
    assert env.action_space.shape == (3, 2)
    env.reset()
    # The action of the third sailor, who is absent, is ignored.
    obs, reward, *_ = env.step([[1, 1], [1, 1], [7, np.nan]])
    assert (reward, obs["Sailor_mask"].tolist()) == (4, [1, 1, 1])
    assert env.step(np.ones((3, 2)))[1] == 6
    env.close()


def test_more_actors_than_at_first() -> None:
    env = GameEnv(Crew([1] * 30 + [2, 0]), max_entities={"Sailor": 3})
    env.reset()
    with pytest.raises(
        SchemaError, match=r"env 0: 2 actors of action 'Row', but at most 1 were expected"
    ):
        [env.step([1, 1]) for _ in range(31)]
    env.close()


def test_no_actor_at_first() -> None:
    with pytest.raises(SchemaError, match="action 'Row' has no actors in the first observations"):
        GameEnv(Crew([0, 1]), max_entities={"Sailor": 3})


def test_names_that_would_be_the_same() -> None:
    with pytest.raises(
        SchemaError, match="two parts of the observation would be called 'Sailor_ma"
    ):
        GameEnv(Crew([1, 1], "Sailor_mask"), max_entities={"Sailor": 3, "Sailor_mask": 2})


def test_episodes_that_are_all_over_at_once() -> None:
    message = "1000 episodes in a row were over before the first action"
    for make in (GameEnv, partial(make_vector_env, autoreset_mode=AutoresetMode.DISABLED)):
        with pytest.raises(ProtocolError, match=message):
            make(partial(Crew, [1]))
    with pytest.raises(SchemaError, match="episodes begin with no entities of type 'Sailor'"):
        make_vector_env(partial(Crew, [1]))


@each_mode
def test_limits(mode: AutoresetMode) -> None:
    envs = make_vector_env(
        cherry_pick, 2, autoreset_mode=mode, max_episode_steps=3, **ROOM["cherry_pick"]
    )
    envs.reset(seed=1)
    for _ in range(2):
        *_, terminations, truncations, infos = envs.step(envs.action_space.sample())
        assert not (terminations | truncations).any()
    *_, terminations, truncations, infos = envs.step(envs.action_space.sample())
    assert truncations.all()
    assert not terminations.any()
    if mode == AutoresetMode.SAME_STEP:
        assert all(final["Cherry_mask"].sum() == 13 for final in infos["final_obs"])
    envs.close()


def test_limits_of_environments() -> None:
    envs = make_vector_env(CountEnv, 2, max_episode_steps=3, last=4, autoreset_mode="SameStep")
    envs.reset(seed=1)
    flags = [envs.step([1, 1])[2:4] for _ in range(6)]
    assert [bool(truncations.all()) for _, truncations in flags] == [False, False, True] * 2
    assert not any(terminations.any() for terminations, _ in flags)
    envs.close()
    with pytest.raises(UsageError, match="max_episode_steps must be an integer"):
        make_vector_env(CountEnv, 2, max_episode_steps=0, last=4)


def test_one_environment_of_ours() -> None:
    for env in (GameEnv(CountEnv(2)), GameEnv(CountEnv, last=2), GameEnv(lambda: CountEnv(2))):
        assert env.reset(seed=3)[0]["Count"].tolist() == [[0]]
        assert env.step(4)[0]["Count"].tolist() == [[1]]
        obs, reward, terminated, truncated, info = env.step(2)
        assert obs["Count"].tolist() == [[2]]
        assert (reward, terminated, truncated) == (2.0, True, False)
        assert info["action_mask"].tolist() == [0] * 5
        env.close()


def test_a_batch_environment_as_games() -> None:
    vec = BatchVecEnv(CartPole(3, backend="numpy"), autoreset="disabled")
    envs = EntityVectorEnv(vec)
    obs, _ = envs.reset(seed=[5, 6, 5])
    assert obs["CartPole"].shape == (3, 1, 4)
    assert (obs["CartPole"][0] == obs["CartPole"][2]).all()
    assert (obs["CartPole"][0] != obs["CartPole"][1]).any()
    envs.close()


class NoStarts:
    """A custom `VecEnv` whose starts cannot be chosen."""

    def __init__(self, vec: VecEnv) -> None:
        self._vec = vec

    def reset(self, seed: int | None = None) -> VecObs:
        return self._vec.reset(seed)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._vec, name)


def test_without_starts_there_is_one_seed_for_all() -> None:
    vec: Any = NoStarts(VecEnv(snake, 2))
    envs = EntityVectorEnv(vec, **ROOM["snake"])
    first, second = envs.reset(seed=3)[0], envs.reset(seed=3)[0]
    assert data_equivalence(first, second, exact=True)
    assert not data_equivalence(first, envs.reset(seed=4)[0], exact=True)
    with pytest.raises(UsageError, match=r"NoStarts\.reset takes no starts.*pass one integer"):
        envs.reset(seed=[3, 3])
    envs.close()


def test_flat_observations() -> None:
    envs = FlattenObservations(make_vector_env(snake, 2, **ROOM["snake"]))
    assert envs.reset(seed=1)[0].shape == (2, 2 + 2 + 99 * 2 + 99)
    envs.close()
    env = FlattenObservation(make_env("snake"))
    assert env.reset(seed=1)[0].shape == (301,)
    env.close()


def test_pictures() -> None:
    plain = make_env("snake")
    plain.reset(seed=1)
    assert plain.render() is None
    plain.close()
    envs = make_vector_env(snake, 2, render_mode="rgb_array", **ROOM["snake"])
    envs.reset(seed=1)
    frames = [np.asarray(frame) for frame in envs.render() or ()]
    assert [(frame.dtype.name, frame.ndim) for frame in frames] == [("uint8", 3)] * 2
    envs.close()
    envs = make_vector_env(snake, 2, **ROOM["snake"])
    assert envs.render() is None
    envs.close()


def test_pictures_of_a_game_have_one_size_as_videos_need_it() -> None:
    pytest.importorskip("PIL")
    env = GameEnv(snake, render_mode="rgb_array", **ROOM["snake"])
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render()
    env.reset(seed=1)
    env.action_space.seed(3)
    frames = [np.asarray(env.render())]
    is_done = False
    while not is_done:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        is_done = terminated or truncated
        frames.append(np.asarray(env.render()))
    env.close()
    shapes = {(frame.shape, frame.dtype) for frame in frames}
    assert shapes == {((480, 480, 3), np.dtype(np.uint8))}
    assert any((frames[0] != frame).any() for frame in frames)


@pytest.fixture
def snake_id() -> Iterator[str]:
    gymnasium.register(
        "OurSnake-v0",
        entry_point="entity_env.interop.gymnasium:GameEnv",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": snake, **ROOM["snake"]},
        max_episode_steps=3,
    )
    yield "OurSnake-v0"
    del gymnasium.registry["OurSnake-v0"]


def test_make_and_make_vec(snake_id: str) -> None:
    env = gymnasium.make(snake_id, board_size=40)
    envs: Any = gymnasium.make_vec(snake_id, num_envs=2, board_size=40)
    sync: Any = gymnasium.make_vec(snake_id, 2, vectorization_mode="sync", board_size=40)
    assert isinstance(envs, EntityVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert repr(envs) == "EntityVectorEnv(OurSnake-v0, num_envs=2)"
    assert envs.observation_space == sync.observation_space
    env.reset(seed=1)
    envs.reset(seed=1)
    sync.reset(seed=1)
    # On a board this large, the head is not at the border for these seeds.
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    for each in (envs, sync):
        assert [each.step([0, 0])[3].all() for _ in range(3)] == [False, False, True]
        each.close()
    env.close()


def test_what_is_drawn_has_the_last_reward() -> None:
    env = GameEnv(cartpole)
    env.reset(seed=1)
    for reward in (1.0, 1.0):
        assert env.step(0)[1] == reward
        assert _first_observation(env._game.obs).reward == reward
    env.close()
