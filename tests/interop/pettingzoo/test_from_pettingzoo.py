"""Environments of PettingZoo and Gymnasium as games, compared with plain loops."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from entity_env import Game, ProtocolError, SchemaError, UsageError
from entity_env.agents import RandomAgent, load_agent, random_actions
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.agents.ppo import PPOConfig, train
from entity_env.check import check_game
from entity_env.core.action_request import random_action
from entity_env.core.observation import Action, GlobalCategoricalActionMask, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.games import tic_tac_toe
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.interop.pettingzoo import GameAECEnv, from_pettingzoo
from entity_env.vec import VecEnv
from tests.interop.gymnasium.counting_envs import GymCount
from tests.interop.gymnasium.test_gymnasium_entities import PARTS, Skirmish

Told: TypeAlias = list[tuple[list[float], float]]
"""An agent's observation, and its reward since the previous observation."""


CACHED = """
import functools
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from entity_env.interop.pettingzoo import from_pettingzoo
from entity_env.vec import VecEnv

class Tag(ParallelEnv):
    metadata = {"name": "tag"}
    possible_agents = ["it", "other"]
    render_mode = None

    @functools.cache
    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,), np.float32)

    @functools.lru_cache(maxsize=None)
    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), 3
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.left -= 1
        each = dict.fromkeys(self.agents)
        over = dict.fromkeys(each, self.left == 0)
        result = self._seen(), dict.fromkeys(each, 1.0), over, dict.fromkeys(each, False)
        self.agents = [] if self.left == 0 else self.agents
        return *result, {agent: {} for agent in each}

    def _seen(self):
        return {agent: np.array([self.left], np.float32) for agent in self.agents}

if __name__ == "__main__":
    with VecEnv(from_pettingzoo(Tag), 4, num_workers=2) as vec:
        obs = vec.reset()
        for _ in range(3):
            obs = vec.act({"Action": np.zeros(8, np.int64)})
        print([episode.reward for episode in obs.episodes])
"""


@pytest.mark.slow
def test_spaces_that_are_cached_go_to_workers_from_a_script(tmp_path: Path) -> None:
    """PettingZoo recommends `functools.cache`; the script is `__main__`."""
    (tmp_path / "tag.py").write_text(CACHED)
    done = subprocess.run(
        [sys.executable, "tag.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{[3.0] * 8}\n", done.stderr


class Brawl(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """Agents get random rewards and leave at random times: terminated, truncated, or both."""

    metadata: ClassVar[dict[str, Any]] = {"name": "brawl"}

    def __init__(self, num_agents: int = 3, mask_in: str = "") -> None:
        self.possible_agents = [f"agent_{i}" for i in range(num_agents)]
        self.agents: list[str] = []
        self.mask_in = mask_in
        self.actions: list[dict[str, Any]] = []
        self.num_before = 0
        self.is_closed = False
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        shown = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        if self.mask_in != "obs":
            return shown
        return spaces.Dict({"observation": shown, "action_mask": spaces.MultiBinary(4)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(4)

    def allowed(self, agent: str) -> NDArray[np.int8]:
        step = len(self.actions) - self.num_before
        first = (self.possible_agents.index(agent) + step) % 4
        return np.asarray(np.arange(4) != first, np.int8)

    def shown(self, agent: str) -> Any:  # noqa: ANN401
        number = self.possible_agents.index(agent)
        seen = np.array([number, self.rng.integers(100)], np.float32)
        if self.mask_in == "obs":
            return {"observation": seen, "action_mask": self.allowed(agent)}
        return seen

    def infos(self, agents: Sequence[str]) -> dict[str, Any]:
        if self.mask_in != "info":
            return {agent: {} for agent in agents}
        return {agent: {"action_mask": self.allowed(agent)} for agent in agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.rng = np.random.default_rng(seed)
        self.num_before = len(self.actions)
        self.agents = list(self.possible_agents)
        return {agent: self.shown(agent) for agent in self.agents}, self.infos(self.agents)

    def step(self, actions: dict[str, Any]) -> Any:  # noqa: ANN401
        assert set(actions) == set(self.agents)
        assert all(action in self.action_space(agent) for agent, action in actions.items())
        if self.mask_in:
            assert all(self.allowed(agent)[action] for agent, action in actions.items())
        self.actions.append(actions)
        names = list(self.agents)
        rewards = {a: float(self.rng.integers(5)) + float(np.sum(actions[a])) / 8 for a in names}
        over = {a: bool(self.rng.random() < 0.15) for a in names}
        cut = {a: bool(self.rng.random() < 0.15) for a in names}
        self.agents = [a for a in names if not over[a] and not cut[a]]
        return {a: self.shown(a) for a in names}, rewards, over, cut, self.infos(names)

    def close(self) -> None:
        self.is_closed = True


def choice(seen: Sequence[float]) -> int:
    """An agent's action, which depends only on its observation."""
    return int(seen[1]) % 4


class Scribe(PolicyAgent):
    """Records observations and rewards."""

    def __init__(self) -> None:
        super().__init__()
        self.told: Told = []

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        [row] = observation.features["Env"]
        self.told.append((list(map(float, row)), observation.reward))
        [question] = self.questions(observation)
        return {question.name: question.action([choice(self.told[-1][0])])}


def plain_parallel(env: Brawl, seed: int) -> dict[str, tuple[Told, float, bool]]:
    told: dict[str, Told] = {agent: [] for agent in env.possible_agents}
    earned = dict.fromkeys(env.possible_agents, 0.0)
    ends: dict[str, tuple[Told, float, bool]] = {}
    obs, _ = env.reset(seed=seed)
    since = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        for agent in env.agents:
            told[agent].append((obs[agent].tolist(), since[agent]))
        obs, rewards, over, cut, _ = env.step({a: choice(obs[a]) for a in env.agents})
        since = rewards
        for agent in rewards:
            earned[agent] += rewards[agent]
            if over[agent] or cut[agent]:
                ends[agent] = told[agent], earned[agent], over[agent]
    return ends


def plain_in_turn(env: Any, seed: int) -> dict[str, tuple[Told, float, bool]]:  # noqa: ANN401
    told: dict[str, Told] = {agent: [] for agent in env.possible_agents}
    earned = dict.fromkeys(env.possible_agents, 0.0)
    ends: dict[str, tuple[Told, float, bool]] = {}
    env.reset(seed=seed)
    for agent in env.agent_iter():
        obs, reward, over, cut, _ = env.last()
        earned[agent] += reward
        if over or cut:
            ends[agent] = told[agent], earned[agent], over
            env.step(None)
            continue
        told[agent].append((obs.tolist(), reward))
        env.step(choice(obs))
    return ends


@given(st.integers(1, 4), st.integers(0, 1000), st.booleans())
def test_agents_see_and_earn_what_a_plain_loop_says(
    num_agents: int, seed: int, in_turn: bool
) -> None:
    def make() -> Any:  # noqa: ANN401
        brawl = Brawl(num_agents)
        return parallel_to_aec(brawl) if in_turn else brawl

    scribes = [Scribe() for _ in range(num_agents)]
    episodes = from_pettingzoo(make).run(*scribes, seed=seed, episodes=3)
    assert len(episodes) == 3 * num_agents
    numbers: list[Told] = [[] for _ in scribes]
    for number in range(3):
        plain = plain_in_turn if in_turn else plain_parallel
        ends = plain(make(), EpisodeSeeds(seed)[number] % 2**31)
        for i, (told, earned, is_over) in enumerate(ends[f"agent_{i}"] for i in range(num_agents)):
            numbers[i] += told
            [episode] = [e for e in episodes if (e.agent_id, e.number) == (i, number)]
            assert episode.reward == pytest.approx(earned)
            assert (episode.terminated, episode.truncated) == (is_over, not is_over)
            assert episode.length == len(told)
    assert [scribe.told for scribe in scribes] == numbers


class Exit(Brawl):
    """The last agent leaves without a flag after the first step, the others after the second."""

    def step(self, actions: dict[str, Any]) -> Any:  # noqa: ANN401
        names, is_first = self.agents, len(self.actions) == self.num_before
        self.actions.append(actions)
        self.agents = names[:-1] if is_first else []
        over = dict.fromkeys(names, not is_first)
        return (
            {agent: self.shown(agent) for agent in names},
            dict.fromkeys(names, 1.0),
            over,
            dict.fromkeys(names, False),
            self.infos(names),
        )


def test_an_agent_that_is_removed_without_a_flag_ends_with_the_episode() -> None:
    agents = [RandomAgent(seed) for seed in range(3)]
    episodes = from_pettingzoo(Exit).run(*agents, seed=1, episodes=2)
    ends = sorted((e.number, e.agent_id, e.reward, e.length, e.terminated) for e in episodes)
    assert ends == [
        (number, agent_id, reward, length, True)
        for number in (0, 1)
        for agent_id, reward, length in ((0, 2, 2), (1, 2, 2), (2, 1, 1))
    ]


GAMES: dict[str, Callable[[], Game]] = {
    "parallel": lambda: from_pettingzoo(Brawl),
    "in turn": lambda: from_pettingzoo(lambda: parallel_to_aec(Brawl())),
    "masks": lambda: from_pettingzoo(Brawl, mask_in="obs"),
    "masks in infos": lambda: from_pettingzoo(Brawl, mask_in="info"),
    "alone": lambda: from_pettingzoo(Brawl, num_agents=1),
    "ours": lambda: from_pettingzoo(
        GameAECEnv, game=tic_tac_toe, max_entities={"Empty": 9, "Mine": 5, "Theirs": 5}
    ),
    "gymnasium": lambda: from_gymnasium("CartPole-v1"),
    "numbers": lambda: from_gymnasium("Pendulum-v1", max_episode_steps=20),
    "entities": lambda: from_gymnasium(Skirmish, entities=PARTS),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", GAMES.values(), ids=GAMES)
def test_the_contract_of_games_holds(make: Callable[[], Game]) -> None:
    check_game(make(), episodes=3, new_process=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_workers"), [("parallel", 0), ("in turn", 0), ("masks", 1), ("entities", 0)]
)
def test_many_copies_play_what_one_plays(name: str, num_workers: int) -> None:
    game = GAMES[name]()
    with VecEnv(game, 2, num_workers) as vec:
        assert vec.obs_space() == game.obs_space()
        rng, obs = np.random.default_rng(1), vec.reset(seed=3)
        num_episodes = 0
        for _ in range(30):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            num_episodes += len(obs.episodes)
        assert num_episodes > 5


@pytest.mark.parametrize("mask_in", ["obs", "info"])
def test_masks_are_those_of_the_environment(mask_in: str) -> None:
    class Asker(RandomAgent):
        def decide(self, observation: Observation) -> Mapping[str, Action]:
            mask = observation.actions["Action"]
            assert isinstance(mask, GlobalCategoricalActionMask)
            masks.append(np.asarray(mask.mask).tolist())
            assert list(observation.features) == ["Env"]
            assert len(observation.features["Env"][0]) == 2
            return super().decide(observation)

    masks: list[list[bool]] = []
    from_pettingzoo(Brawl, num_agents=1, mask_in=mask_in).run(Asker(1), episodes=5)
    assert masks[:2] == [[False, True, True, True], [True, False, True, True]] or len(masks) < 2
    assert all(sum(mask) == 3 for mask in masks)


class Hunt(Brawl):
    """Two hunters and a hare with a larger observation and other actions."""

    metadata: ClassVar[dict[str, Any]] = {"name": "hunt"}

    def __init__(self) -> None:
        super().__init__(3)
        self.possible_agents = ["hunter_0", "hunter_1", "hare_0"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-9, 99, (3 if agent == "hare_0" else 2,))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1, 1, (2,)) if agent == "hare_0" else spaces.Discrete(4)

    def shown(self, agent: str) -> Any:  # noqa: ANN401
        seen = super().shown(agent)
        return np.append(seen, np.float32(7)) if agent == "hare_0" else seen


@pytest.mark.slow
def test_agents_with_other_spaces_have_entities_and_actions_of_their_own() -> None:
    game = from_pettingzoo(Hunt)
    entities = game.obs_space().entities
    assert {name: len(each.features) for name, each in entities.items()} == {
        "Env.hunter": 2,
        "Env.hare": 3,
    }
    assert not any(each.is_single for each in entities.values())
    assert list(game.action_space()) == ["Action.hunter", "Action.hare"]
    check_game(game, episodes=3, new_process=False)
    with VecEnv(game, 2) as vec:
        obs = vec.reset(seed=1)
        assert obs.features["Env.hunter"].lengths.tolist() == [1, 1, 0] * 2
        assert obs.action_masks["Action.hare"].actors.lengths.tolist() == [0, 0, 1] * 2
        config = PPOConfig(total_steps=200, num_steps=8, minibatch_size=32)
        assert train(vec, config).progress.step >= 200


def test_an_environment_of_one_s_own_is_played_by_one_copy_and_left_open() -> None:
    brawl = Brawl()
    game = from_pettingzoo(brawl)
    game.run(*[RandomAgent(i) for i in range(3)], episodes=2)
    game.run(*[RandomAgent(i) for i in range(3)], episodes=2)
    assert not brawl.is_closed
    with VecEnv(game, 2) as vec, pytest.raises(Exception, match="pass a function that makes them"):
        vec.reset()
    with pytest.raises(UsageError, match="takes no setting 'mask_in'"):
        game.with_settings(mask_in="obs")


def test_what_is_made_is_closed() -> None:
    made: list[Brawl] = []

    def make() -> Brawl:
        made.append(Brawl())
        return made[-1]

    game = from_pettingzoo(make)
    with VecEnv(game, 2) as vec:
        vec.reset(seed=1)
        assert [brawl.is_closed for brawl in made] == [True, False, False]
    assert all(brawl.is_closed for brawl in made)


def test_settings_make_another_environment() -> None:
    game = from_pettingzoo(Brawl).with_settings(num_agents="2", mask_in="info")
    assert (game.num_agents, game.settings) == (2, {"num_agents": 2, "mask_in": "info"})
    game.run(RandomAgent(1), RandomAgent(2), mask_in="")
    with pytest.raises(UsageError, match="unexpected keyword argument 'colour'"):
        game.with_settings(colour="red")
    lake = from_gymnasium("FrozenLake-v1")
    for map_name in ("9x9", "{[1]: 2}"):
        with pytest.raises(UsageError, match="FrozenLake-v1 cannot be made with map_name="):
            lake.with_settings(map_name=map_name)
    slippery = lake.with_settings(map_name="8x8", is_slippery="False")
    assert len(slippery.obs_space().entities["Env"].features) == 64


def test_the_transport_stays_with_other_settings_and_in_workers() -> None:
    game = from_gymnasium("FrozenLake-v1").with_transport("thread").with_settings(map_name="8x8")
    assert game.transport == "thread"
    assert pickle.loads(pickle.dumps(game)).transport == "thread"


class Nameless(Brawl):
    def __init__(self) -> None:
        super().__init__(0)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (3, {}, "needs an AECEnv or a ParallelEnv, .*got 3"),
        (dict, {}, r"such as connect_four_v3.env: got \{\}"),
        (Nameless, {}, "brawl has no possible_agents"),
        (Hunt, {"entities": {"U": ""}}, "entities is for agents that all have the same spaces"),
        (Hunt, {"features": {"U": ["a"]}}, "there are 2 kinds of agents: leave it out"),
        (Brawl, {"entities": {"U": "x"}}, "no part 'x'"),
        (Brawl, {"colour": 3}, "unexpected keyword argument 'colour'"),
    ],
)
def test_what_is_no_environment_of_pettingzoo(
    source: Any,  # noqa: ANN401
    options: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(UsageError, match=message):
        from_pettingzoo(source, **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "needs a gymnasium.Env, its id, or a function that makes one: got 3"),
        (dict, r"or a function that makes one: got \{\}"),
        ("no_such:X-v1", "no environment 'no_such:X-v1': .* pip install no_such"),
    ],
)
def test_what_is_no_environment_of_gymnasium(source: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=message):
        from_gymnasium(source)


def test_a_game_of_gymnasium_is_its_environment() -> None:
    """Every step equals a plain loop with the same seed and actions."""
    env = gymnasium.make("CartPole-v1")
    told: list[tuple[list[float], int]] = []

    class Watcher(RandomAgent):
        def decide(self, observation: Observation) -> Mapping[str, Action]:
            [question] = self.questions(observation)
            action = random_action(question, rng)
            told.append((list(observation.features["Env"][0]), action.index))  # type: ignore[union-attr]
            return {question.name: action}

    rng = np.random.default_rng(1)
    game = from_gymnasium("CartPole-v1")
    assert game.name == "CartPole-v1"
    episodes = game.run(Watcher(), seed=4, episodes=2)
    assert [episode.length for episode in episodes] == [episode.reward for episode in episodes]
    for number, episode in enumerate(episodes):
        obs, _ = env.reset(seed=EpisodeSeeds(4)[number] % 2**31)
        for _ in range(episode.length):
            seen, index = told.pop(0)
            assert seen == obs.tolist()
            obs, _, terminated, truncated, _ = env.step(index)
        assert (terminated, truncated) == (episode.terminated, episode.truncated)
    env.close()


def test_agents_of_a_vector_environment_play_the_game(tmp_path: Any) -> None:  # noqa: ANN401
    source: Any = SyncVectorEnv([partial(GymCount, 3)] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    with GymnasiumVecEnv(source) as vec:
        config = PPOConfig.for_env(vec, total_steps=64, num_steps=8)
        net = train(vec, config, out=tmp_path / "run").net
    game = from_gymnasium(GymCount, last=3)
    with VecEnv(game, 4) as copies:
        assert PPOConfig.for_env(copies) == PPOConfig.for_env(vec)
    [episode] = game.run(load_agent(tmp_path / "run"))
    assert (episode.length, net.obs_space) == (3, game.obs_space())


def test_masks_of_another_shape_are_refused() -> None:
    class Wrong(Brawl):
        def infos(self, agents: Sequence[str]) -> dict[str, Any]:
            return {agent: {"action_mask": np.ones(3)} for agent in agents}

    game = from_pettingzoo(Wrong, num_agents=1)
    with pytest.raises(SchemaError, match=r"info.*'Action' needs the shape .*\(4,\): got \(3,\)"):
        game.run(RandomAgent())


def test_aec_and_parallel_are_told_apart() -> None:
    assert isinstance(parallel_to_aec(Brawl()), AECEnv)
    assert from_pettingzoo(parallel_to_aec(Brawl()), name="fight").name == "fight"


class Back(Brawl):
    """Agent 1 is over in step 2 and back in step 4; all are over in step 6."""

    def step(self, actions: dict[str, Any]) -> Any:  # noqa: ANN401
        self.actions.append(actions)
        time = len(self.actions) - self.num_before
        names = [*self.agents, *["agent_1"] * (time == 4)]
        over = {name: time == 6 or (time == 2 and name == "agent_1") for name in names}
        self.agents = [name for name in names if not over[name]]
        rewards = {name: 1.0 for name in [*names, *self.dead(time)]}
        cut = dict.fromkeys(names, False)
        return {name: self.shown(name) for name in names}, rewards, over, cut, self.infos(names)

    def dead(self, time: int) -> list[str]:
        return []


def in_turn(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **settings: parallel_to_aec(make(**settings))


@pytest.mark.slow
def test_agents_that_come_back_need_respawns() -> None:
    with pytest.raises(
        ProtocolError, match=r"'agent_1' is in env\.agents after its end: .*respawns"
    ):
        from_pettingzoo(Back, num_agents=2).run(RandomAgent(1), RandomAgent(2))
    game = from_pettingzoo(Back, respawns=True, num_agents=2)
    assert game.respawns
    assert pickle.loads(pickle.dumps(game)).with_settings(num_agents=2).respawns
    episodes = game.run(RandomAgent(1), RandomAgent(2), episodes=4)
    ends = [[(e.reward, e.length) for e in episodes if e.agent_id == i][:4] for i in (0, 1)]
    assert ends == [[(6, 6)] * len(ends[0]), [(2, 2), (3, 2)] * 2]
    with VecEnv(game, 2, autoreset="same_step") as vec:
        obs, rng, found = vec.reset(seed=1), np.random.default_rng(1), []
        for _ in range(40):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            found += [(e.agent_id, e.reward, e.length) for e in obs.episodes]
    assert set(found) == {(0, 6.0, 6), (1, 2.0, 2), (1, 3.0, 2)}
    check_game(game, episodes=2, new_process=False)


def test_a_reward_for_an_unknown_agent_is_refused() -> None:
    class Pays(Back):
        def dead(self, time: int) -> list[str]:
            return ["nobody"]

    words = r"rewards of .*env\.step have 'nobody', but possible_agents has only 'agent_0'"
    with pytest.raises(SchemaError, match=words):
        from_pettingzoo(Pays, respawns=True, num_agents=2).run(RandomAgent(1), RandomAgent(2))


def test_a_reward_after_the_end_is_refused() -> None:
    class Pays(Back):
        def dead(self, time: int) -> list[str]:
            return ["agent_1"] * (time == 3)

    with pytest.raises(SchemaError, match=r"reward of 'agent_1' of .*env\.step is 1 after its end"):
        from_pettingzoo(Pays, num_agents=2).run(RandomAgent(1), RandomAgent(2))


def test_agents_without_an_observation_and_unknown_agents_are_named() -> None:
    class Blind(Brawl):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
            obs, infos = super().reset(seed)
            return {"agent_0": obs["agent_0"]}, infos

    class Grows(Brawl):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
            result = super().reset(seed)
            self.agents = ["ghost"]
            return result

    agents = [RandomAgent(i) for i in range(3)]
    with pytest.raises(SchemaError, match=r"lack 'agent_1', which is in env\.agents: .*'agent_0'"):
        from_pettingzoo(Blind).run(*agents)
    with pytest.raises(SchemaError, match=r"env\.agents has 'ghost', but possible_agents has only"):
        from_pettingzoo(Grows).run(*agents)


def test_infos_of_agents_are_metrics() -> None:
    class Counts(Brawl):
        def infos(self, agents: Sequence[str]) -> dict[str, Any]:
            counts = {"agent_0": {"count": len(self.actions), "note": "x"}}
            return {agent: counts.get(agent, {}) for agent in agents}

    for make in (Counts, in_turn(Counts)):
        episodes = from_pettingzoo(make).run(*(RandomAgent(i) for i in range(3)), episodes=3)
        assert all(
            set(e.metrics) == ({"info/count"} if e.agent_id == 0 else set()) for e in episodes
        )
