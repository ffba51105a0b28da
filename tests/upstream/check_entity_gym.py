"""Our games as entity-gym's environments, and entity-gym's examples as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import cloudpickle
import entity_gym.env as theirs
import numpy as np
from entity_gym.env.add_metrics_wrapper import AddMetricsWrapper
from entity_gym.env.vec_env import Metric
from entity_gym.examples import ENV_REGISTRY, CherryPick
from ragged_buffer import RaggedBufferBool, RaggedBufferF32, RaggedBufferI64

from entity_env import (
    Action,
    ActionSpace,
    ContinuousAction,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    EntityEnvError,
    Environment,
    Observation,
    ObsSpace,
    ProtocolError,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    UsageError,
)
from entity_env.games import (
    cherry_pick,
    multi_snake,
    rock_paper_scissors,
    snake,
    tic_tac_toe,
    treasure_hunt,
)
from entity_env.interop.entity_gym import environment, factory, from_entity_gym, vec_env
from entity_env.vec import VecEnv

GAMES = (multi_snake, cherry_pick, treasure_hunt, snake, rock_paper_scissors, tic_tac_toe)
NUM_STEPS = 60


class Aim(Environment):
    """Two shooters choose an angle and a force; the episode ends after three steps."""

    is_select = False
    hides = False

    def __init__(self) -> None:
        self.step = 0
        self.values: Any = None

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Shooter": Entity(["step"]), "Wall": Entity([])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        aim = ContinuousActionSpace([-1, 0.1], [1, 0.3], ["angle", "force"])
        return {"pick": SelectEntityActionSpace()} if self.is_select else {"aim": aim}

    def reset(self, *, seed: int | None = None) -> Observation:
        self.step = 0
        return self.show()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        action = actions.get("aim")
        self.values = action.values if isinstance(action, ContinuousAction) else None
        self.step += 1
        return self.show()

    def show(self) -> Observation:
        is_over = self.step == 3
        masks: dict[str, Any] = {"aim": ContinuousActionMask(actor_types=["Shooter"])}
        if self.is_select:
            allowed = np.eye(2, dtype=np.bool_)
            masks = {"pick": SelectEntityActionMask(["a", "b"], actee_ids=["a", "b"], mask=allowed)}
        return Observation(
            reward=0.0 if self.values is None else float(self.values[0, 0]),
            terminated=False,
            truncated=is_over,
            entities={"Shooter": ([[self.step], [9]], ["a", "b"])},
            actions={} if is_over else masks,
            visible={"Shooter": [True, False]} if self.hides else {},
            metrics={"step": float(self.step)},
        )


class Forbids(Aim):
    is_select = True


class Hides(Aim):
    hides = True


def random_actions(obs: Any, spaces: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:  # noqa: ANN401
    """Random actions as from a trainer: one legal choice per actor."""
    chosen = {}
    for name, mask in obs.action_masks.items():
        lengths = np.asarray(mask.actors.size1(), dtype=np.int64).reshape(-1)
        picks: list[int] = []
        for row, count in enumerate(lengths):
            for actor in range(count):
                if isinstance(mask, theirs.VecSelectEntityActionMask):
                    picks.append(int(rng.integers(mask.actees.size1(row))))
                elif mask.mask is None:
                    picks.append(int(rng.integers(len(spaces[name]))))
                else:
                    picks.append(int(rng.choice(np.flatnonzero(mask.mask[row].as_array()[actor]))))
        values = np.array(picks, dtype=np.int64).reshape(-1, 1)
        chosen[name] = RaggedBufferI64.from_flattened(values, lengths)
    return chosen


def require_contract(envs: Any, obs: Any) -> None:  # noqa: ANN401 - entity-gym ships no types
    """Checks the properties of every batch on which entity-gym's trainer relies."""
    num, space, actions = len(envs), envs.obs_space(), envs.action_space()
    wanted = [*space.entities, *(["__global__"] if envs.has_global_entity() else [])]
    assert list(obs.features) == wanted
    counts = np.zeros(num, dtype=np.int64)
    for name, rows in obs.features.items():
        assert isinstance(rows, RaggedBufferF32)
        assert rows.size0() == num
        if name == "__global__":
            assert (rows.size1() == 1).all()
            assert rows.size2() == len(space.global_features)
        else:
            assert rows.size2() == len(space.entities[name].features)
            counts += rows.size1()
    assert list(obs.action_masks) == list(actions)
    for name, mask in obs.action_masks.items():
        assert isinstance(mask.actors, RaggedBufferI64)
        assert mask.actors.size0() == num
        lengths = mask.actors.size1()
        if isinstance(actions[name], theirs.GlobalCategoricalActionSpace):
            assert (lengths == 1).all()
            assert (mask.actors.as_array()[:, 0] == counts).all()
        else:
            assert (mask.actors.as_array()[:, 0] < np.repeat(counts, lengths)).all()
        if isinstance(actions[name], theirs.SelectEntityActionSpace):
            assert isinstance(mask, theirs.VecSelectEntityActionMask)
            assert mask.actees.size0() == num
        elif mask.mask is not None:
            assert isinstance(mask.mask, RaggedBufferBool)
            assert mask.mask.size2() == len(actions[name])
            assert (mask.mask.size1() == lengths).all()
            assert mask.mask.as_array().any(axis=1).all()
    assert obs.reward.dtype == np.float32
    assert obs.reward.shape == (num,)
    assert obs.done.dtype == np.bool_
    assert obs.done.shape == (num,)
    assert isinstance(obs.metrics, dict)
    assert all(isinstance(metric, Metric) for metric in obs.metrics.values())


def play(envs: Any, num_steps: int = NUM_STEPS) -> tuple[float, int]:  # noqa: ANN401
    """Plays at random; keeps the first batch and extends it in place, like the trainer."""
    rng = np.random.default_rng(1)
    space, total, num_done = envs.obs_space(), 0.0, 0
    obs = envs.reset(space)
    require_contract(envs, obs)
    kept = obs
    for step in range(num_steps):
        before = {name: rows.as_array().copy() for name, rows in obs.features.items()}
        following = envs.act(random_actions(obs, envs.action_space(), rng), space)
        require_contract(envs, following)
        if step:
            assert all((obs.features[name].as_array() == before[name]).all() for name in before)
            for name, rows in obs.features.items():
                kept.features[name].extend(rows)
            for name, mask in obs.action_masks.items():
                kept.action_masks[name].extend(mask)
        obs = following
        total += float(obs.reward.sum())
        num_done += int(obs.done.sum())
    envs.close()
    envs.close()
    return total, num_done


def refused(error: type[EntityEnvError], words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except error as raised:
        message = str(raised)
    else:
        raise AssertionError(f"expected {error.__name__} about {words!r}")
    assert words in message, message


def test_our_games_keep_the_contract() -> None:
    for game in GAMES:
        hides = ["Opponent"] if game is rock_paper_scissors else []
        envs = vec_env(game, 4 * game.num_agents, seed=3, hides=hides)
        assert isinstance(envs, theirs.VecEnv)
        assert len(envs) == 4 * game.num_agents
        assert play(envs)[1] > 0, game.name


def test_our_games_pass_the_wrapper_of_metrics() -> None:
    envs = AddMetricsWrapper(vec_env(treasure_hunt, 4), [True, True, False, False])
    obs = envs.reset(envs.obs_space())
    rng = np.random.default_rng(2)
    for _ in range(NUM_STEPS):
        obs = envs.act(random_actions(obs, envs.action_space(), rng), envs.obs_space())
        assert isinstance(obs.metrics, dict)
    envs.close()


def test_a_batch_shows_what_ours_shows() -> None:
    ours = VecEnv(multi_snake, 3, seed=5)
    envs = vec_env(multi_snake, 3, seed=5)
    shown, obs = envs.reset(envs.obs_space()), ours.reset()
    rng = np.random.default_rng(4)
    for _ in range(NUM_STEPS):
        for name, rows in obs.features.items():
            assert (shown.features[name].as_array() == rows.values).all()
            assert (shown.features[name].size1() == rows.lengths).all()
        assert (shown.reward == obs.reward).all()
        assert (shown.done == obs.done).all()
        chosen = random_actions(shown, envs.action_space(), rng)
        shown = envs.act(chosen, envs.obs_space())
        obs = ours.act({name: buffer.as_array()[:, 0] for name, buffer in chosen.items()})
    envs.close()
    ours.close()


def test_workers_play_the_same() -> None:
    assert play(vec_env(snake, 4, 2, seed=8)) == play(vec_env(snake, 4, seed=8))


def test_evaluations_repeat_themselves_but_not_the_training() -> None:
    def first_food() -> list[list[list[float]]]:
        make, shown = factory(snake, seed=1), []
        for _ in range(3):
            envs = make(None, 4, 1, 0)
            assert len(envs) == 4
            shown.append(envs.reset(envs.obs_space()).features["Food"].as_array().tolist())
            envs.close()
        return shown

    training, evaluation, again = first_food()
    assert training != evaluation == again
    assert first_food() == [training, evaluation, again]


def test_a_class_of_environments_fits_in_their_lists() -> None:
    for game in (multi_snake, cherry_pick, treasure_hunt, snake):
        kind = environment(game)
        assert issubclass(kind, theirs.Environment)
        envs = theirs.EnvList(partial(validated, kind), 3)
        assert play(envs)[1] > 0, game.name


def validated(kind: Callable[[], Any]) -> Any:  # noqa: ANN401 - entity-gym ships no types
    return theirs.ValidatingEnv(kind())


def test_a_class_survives_the_way_to_another_process() -> None:
    kind = cloudpickle.loads(cloudpickle.dumps(environment(snake)))
    assert play(theirs.EnvList(kind, 2))[1] > 0


def test_a_class_repeats_a_seed_and_shows_the_end() -> None:
    kind = environment(Aim, discretize={"aim": 3})
    env = kind(seed=1)
    refused(ProtocolError, "reset", lambda: env.act({}))
    obs = env.reset()
    for _ in range(3):
        ids = obs.actions["aim"].actor_ids
        action = theirs.CategoricalAction(ids[::-1], np.array([8, 0]), [])
        obs = env.act({"aim": action})
        assert obs.reward == -1.0
        assert obs.metrics["step"] == obs.features["Shooter"][0, 0]
    assert obs.done
    refused(ProtocolError, "reset", lambda: env.act({}))
    obs = env.reset()
    assert obs.features["Shooter"][0, 0] == 0
    wrong = theirs.CategoricalAction([7], np.array([0]), [])
    refused(SchemaError, "needs one choice of each actor [0, 1]", lambda: env.act({"aim": wrong}))
    refused(SchemaError, "no action 'go'", lambda: env.act({"go": wrong}))
    env.close()


def test_numbers_are_refused_unless_discretized() -> None:
    refused(SchemaError, "'aim' is continuous", lambda: vec_env(Aim, 2))
    refused(UsageError, "at most 4096", lambda: vec_env(Aim, 2, discretize={"aim": 100}))
    refused(UsageError, "2 or more", lambda: vec_env(Aim, 2, discretize={"aim": 1}))
    refused(UsageError, "'fire'", lambda: vec_env(Aim, 2, discretize={"aim": 3, "fire": 2}))
    refused(SchemaError, "'aim' is continuous", lambda: environment(Aim)())


def test_a_discretized_action_reaches_its_bounds() -> None:
    envs = vec_env(Aim, 1, discretize={"aim": 3})
    labels = envs.action_space()["aim"].index_to_label
    assert labels[0] == "angle=-1,force=0.1"
    assert labels[-1] == "angle=1,force=0.3"
    assert len(labels) == 9
    envs.reset(envs.obs_space())
    for index, angle in ((0, -1.0), (4, 0.0), (8, 1.0)):
        values = RaggedBufferI64.from_flattened(np.array([[index], [0]]), np.array([2]))
        assert envs.act({"aim": values}, envs.obs_space()).reward[0] == angle
    beyond = RaggedBufferI64.from_flattened(np.array([[9], [0]]), np.array([2]))
    refused(SchemaError, "expected 0 to 8", lambda: envs.act({"aim": beyond}, envs.obs_space()))
    envs.close()


def test_bad_calls_are_refused() -> None:
    envs = vec_env(snake, 2)
    refused(ProtocolError, "reset", lambda: envs.act({}, envs.obs_space()))
    envs.reset(envs.obs_space())
    nothing = RaggedBufferI64.from_flattened(np.zeros((0, 1), np.int64), np.array([0, 0]))
    refused(SchemaError, "no action 'fly'", lambda: envs.act({"fly": nothing}, envs.obs_space()))
    refused(SchemaError, "missing", lambda: envs.act({}, envs.obs_space()))
    envs.close()
    refused(UsageError, "a multiple of 2", lambda: vec_env(tic_tac_toe, 3))
    refused(UsageError, "use vec_env", lambda: environment(tic_tac_toe))
    refused(SchemaError, "needs a Game", lambda: environment(3))  # type: ignore[arg-type]


def test_what_cannot_be_said_is_refused() -> None:
    forbids = vec_env(Forbids, 2)
    refused(SchemaError, "no masks of selections", lambda: forbids.reset(forbids.obs_space()))
    hidden = vec_env(Hides, 2, discretize={"aim": 2})
    refused(SchemaError, "hides=['Shooter']", lambda: hidden.reset(hidden.obs_space()))
    unknown = partial(vec_env, Aim, 2, discretize={"aim": 2}, hides=["Foe"])
    refused(UsageError, "hides names 'Foe'", unknown)
    for envs in (forbids, hidden):
        envs.close()
    envs = vec_env(Hides, 2, discretize={"aim": 2}, hides=["Shooter"])
    shown = envs.reset(envs.obs_space()).visible["Shooter"]
    assert shown.as_array()[:, 0].tolist() == [True, False] * 2
    envs.close()
    visible = vec_env(Aim, 2, discretize={"aim": 2}, hides=["Shooter", "Wall"])
    obs = visible.reset(visible.obs_space())
    assert list(obs.visible) == ["Shooter", "Wall"]
    assert obs.visible["Shooter"].as_array().all()
    visible.close()


def test_there_and_back_is_the_same_space() -> None:
    for kind in ENV_REGISTRY.values():
        env = from_entity_gym(kind())
        again = environment(partial(from_entity_gym(kind)))()
        assert again.obs_space() == kind().obs_space()
        assert again.action_space() == kind().action_space()
        env.close()
        env.close()
        again.close()


def test_foreign_things_are_refused() -> None:
    env = from_entity_gym(CherryPick())
    refused(ProtocolError, "call reset first", lambda: env.act({}))
    refused(SchemaError, "entity_gym.env.Environment", lambda: from_entity_gym(3))
    refused(SchemaError, "entity_gym.env.Environment", lambda: from_entity_gym(Aim))
    refused(SchemaError, "entity_gym.env.Environment", lambda: from_entity_gym(dict)())
    refused(SchemaError, "got {}", lambda: from_entity_gym(lambda: {})())

    class Wrong(CherryPick):  # type: ignore[misc]  # entity-gym ships no types
        def reset(self) -> Any:  # noqa: ANN401
            obs = super().reset()
            obs.actions = {name: "all" for name in obs.actions}
            return obs

    env = from_entity_gym(cast("object", Wrong()))
    refused(SchemaError, "entity-gym has no mask 'all'", env.reset)
