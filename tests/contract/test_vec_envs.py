"""All vector environments follow the same rules: form of batches, call order, arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import (
    ClosedError,
    ProtocolError,
    SchemaError,
    UsageError,
    VecEnvironment,
)
from entity_env.agents.rogue_net.memory import RowStates
from entity_env.vec import Autoreset, VecEnv
from tests.contract.vec_envs import (
    ALL,
    KINDS,
    MODES,
    NONE,
    NUM_ENVS,
    WITH_FINAL,
    Make,
    by_row,
    each_disabled,
    each_kind,
    each_mode,
    each_resettable,
    episodes_of,
    legal,
    num_steps_of,
    place,
    plain,
    steps,
)
from tests.helpers.strategies import untyped

# The first steps compile the games, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)


def calls(vec: VecEnv, actions: Any) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - includes wrong ones
    """Every call except `reset` that needs a batch."""
    found: dict[str, Callable[[], object]] = {
        "act": lambda: vec.act(actions),
        "send": lambda: vec.send(actions),
        "recv": vec.recv,
        "render": vec.render,
    }
    if vec.can_reset_envs:
        found["reset_envs"] = lambda: vec.reset_envs(ALL)
    return found


class TestForm:
    @each_mode()
    def test_of_the_first_batch(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            environment: VecEnvironment = vec
            obs = vec.reset()
            plain(vec, obs)  # checks dtypes, shapes and names
            assert (vec.num_envs, vec.autoreset) == (NUM_ENVS, autoreset)
            assert environment.num_rows == vec.num_rows == len(vec) == len(obs)
            assert vec.num_rows == NUM_ENVS * vec.num_agents
            env_id, agent_id = np.divmod(np.arange(vec.num_rows), vec.num_agents)
            assert obs.env_id.tolist() == env_id.tolist()
            assert obs.agent_id.tolist() == agent_id.tolist()
            assert set(obs.env_id[obs.is_ready].tolist()) == {0, 1, 2}
            assert not obs.done.any()
            assert obs.reward.tolist() == [0] * vec.num_rows
            assert (obs.final, list(obs.episodes)) == (None, [])

    @each_mode()
    def test_of_every_batch(self, make: Make, autoreset: Autoreset) -> None:
        """Flags match the finished episodes."""
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            for obs in steps(vec, vec.reset(5), num_steps_of(vec)):
                ended = sorted((e.env_id, e.agent_id) for e in obs.episodes)
                rows = [env_id * vec.num_agents + agent_id for env_id, agent_id in ended]
                if autoreset != "disabled":
                    assert np.flatnonzero(obs.done).tolist() == rows
                if autoreset == "same_step":
                    assert not vec.is_over.any()
                elif vec.num_agents == 1:
                    assert vec.is_over.tolist() == obs.done.tolist()
                for row, episode in zip(rows, sorted(obs.episodes, key=place), strict=True):
                    flags = bool(obs.terminated[row]), bool(obs.truncated[row])
                    assert flags == (episode.terminated, episode.truncated)

    @each_mode(WITH_FINAL)
    def test_of_last_observations(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            num_ended = 0
            for obs in steps(vec, vec.reset(5), num_steps_of(vec)):
                ended = sorted((e.env_id, e.agent_id) for e in obs.episodes)
                num_ended += len(ended)
                if autoreset == "same_step" or obs.final is not None:  # otherwise a reset
                    assert (obs.final is None) == (not ended)
                if obs.final is not None:
                    assert list(zip(obs.final.env_id, obs.final.agent_id, strict=True)) == ended
                    is_truncated = obs.final.truncated & ~obs.final.terminated
                    assert obs.final.is_ready.tolist() == is_truncated.tolist()
            assert num_ended > 2


class TestMemory:
    """An agent can tell in which rows an episode begins, and so forget the one before."""

    @each_mode(KINDS)
    def test_rows_that_begin_are_marked(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            for _ in range(2):
                obs = vec.reset(5)
                assert obs.begins is not None
                assert obs.begins.all()
                obs = vec.act(legal(vec, obs))
                assert obs.begins is None
                if vec.can_reset_envs:
                    before = obs.done.copy()
                    for _ in range(2):
                        obs = vec.reset_envs([False, True, False])
                        assert obs.begins is not None
                        begun = (before | (obs.env_id == 1)) & ~obs.done
                        assert obs.begins.tolist() == begun.tolist()

    @each_mode(KINDS)
    def test_counts_the_decisions_of_every_episode(self, make: Make, autoreset: Autoreset) -> None:
        """Also if resets interrupt episodes, and without `forget` before the second run."""
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            states, num_ended = RowStates(1), 0
            for _ in range(2):
                obs = vec.reset(5)
                for step in range(num_steps_of(vec)):
                    if vec.autoreset == "disabled" and vec.is_over.any():
                        obs = vec.reset_envs(vec.is_over)
                    elif vec.can_reset_envs and step % 7 == 5:
                        obs = vec.reset_envs([False, True, False])
                    counts = states.past(obs).states + obs.is_ready[:, None]
                    states.advance(obs, counts)
                    obs = vec.act(legal(vec, obs))
                    num_ended += len(obs.episodes)
                    for episode in obs.episodes:
                        row = episode.env_id * vec.num_agents + episode.agent_id
                        assert counts[row] == episode.length
            assert num_ended > 2


class TestOrderOfCalls:
    @each_kind()
    def test_before_reset(self, make: Make) -> None:
        with make(NUM_ENVS) as vec:
            for call in calls(vec, {}).values():
                with pytest.raises(ProtocolError, match="call reset first"):
                    call()

    @pytest.mark.parametrize("last_call", ["none", "reset", "act", "send"])
    @each_kind(KINDS)
    def test_after_close(self, make: Make, last_call: str) -> None:
        vec, actions = make(NUM_ENVS), {}
        if last_call != "none":
            actions = legal(vec, vec.reset())
        if last_call in ("act", "send"):
            getattr(vec, last_call)(actions)
        for _ in range(2):
            vec.close()
        for call in (vec.reset, *calls(vec, actions).values()):
            with pytest.raises(ClosedError, match=f"this {type(vec).__name__} is closed: make a"):
                call()

    @each_kind()
    def test_a_block_closes_also_after_an_error(self, make: Make) -> None:
        vec = make(NUM_ENVS)
        with pytest.raises(OSError, match="mine"), vec:
            raise OSError("mine")
        with pytest.raises(ClosedError):
            vec.reset()

    @each_mode()
    def test_between_send_and_recv(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            actions = legal(vec, vec.reset(5))
            vec.send(actions)
            for name, call in calls(vec, actions).items():
                if name != "recv":
                    with pytest.raises(ProtocolError, match="call recv before"):
                        call()
            two.reset(5)
            assert plain(vec, vec.recv()) == plain(two, two.act(actions))

    @each_kind()
    def test_recv_without_send(self, make: Make) -> None:
        with make(NUM_ENVS) as vec:
            actions = legal(vec, vec.reset())
            with pytest.raises(ProtocolError, match="no actions were sent: call send before recv"):
                vec.recv()
            vec.act(actions)
            with pytest.raises(ProtocolError, match="no actions were sent: call send before recv"):
                vec.recv()

    @pytest.mark.slow
    @each_kind(KINDS)
    def test_reset_drops_what_was_sent(self, make: Make) -> None:
        with make(NUM_ENVS) as vec, make(NUM_ENVS) as twin:
            vec.send(legal(vec, vec.reset(5)))
            first, _ = vec.reset(), twin.act(legal(twin, twin.reset(5)))
            assert plain(vec, first) == plain(twin, twin.reset())
            with pytest.raises(ProtocolError, match="call send"):
                vec.recv()
            actions = legal(vec, first)
            assert plain(vec, vec.act(actions)) == plain(twin, twin.act(actions))

    @each_disabled(KINDS)
    @pytest.mark.parametrize("way", ["act", "send"])
    def test_act_while_an_environment_is_over(self, make: Make, way: str) -> None:
        with make(NUM_ENVS) as vec:
            vec.act(legal(vec, vec.reset(5)))
            obs = vec.reset_envs([False, True, False])
            while not vec.is_over.any():
                obs = vec.act(legal(vec, obs))
            ended = np.flatnonzero(vec.is_over).tolist()
            assert 0 < len(ended) < NUM_ENVS
            before, actions = plain(vec, obs), legal(vec, obs)
            words = rf"environments \[{', '.join(map(str, ended))}\] have ended: call reset_envs"
            for _ in range(2):
                with pytest.raises(ProtocolError, match=words):
                    getattr(vec, way)(actions)
            again = vec.reset_envs(NONE)
            assert vec.is_over.tolist() == [i in ended for i in range(NUM_ENVS)]
            assert np.unique(again.env_id[again.done]).tolist() == ended
            shown = [row.features for row in before.rows]
            assert [row.features for row in plain(vec, again).rows] == shown
            obs = vec.reset_envs(vec.is_over)
            assert not vec.is_over.any()
            assert set(obs.env_id[obs.is_ready].tolist()) == {0, 1, 2}
            assert not obs.done.any()
            vec.act(legal(vec, obs))


class TestRecv:
    @each_kind(KINDS)
    @pytest.mark.parametrize("min_envs", [0, NUM_ENVS + 1])
    def test_of_too_few_or_many(self, make: Make, min_envs: int) -> None:
        with make(NUM_ENVS) as vec:
            vec.send(legal(vec, vec.reset()))
            with pytest.raises(UsageError, match=f"min_envs must be from 1 to 3, got {min_envs}"):
                vec.recv(min_envs)
            assert len(vec.recv(min_envs=NUM_ENVS)) == vec.num_rows


class TestResetEnvs:
    @pytest.mark.parametrize("kind", ["gymnasium-same_step", "gymnasium-next_step"])
    def test_of_environments_that_only_reset_themselves(self, kind: str) -> None:
        with KINDS[kind].make(NUM_ENVS) as vec:
            vec.reset()
            assert not vec.can_reset_envs
            with pytest.raises(ProtocolError, match="only be reset all together: call reset"):
                vec.reset_envs(ALL)

    @each_resettable()
    def test_a_mask_of_another_shape_or_dtype_changes_nothing(
        self, make: Make, autoreset: Autoreset
    ) -> None:
        masks: list[Any] = [[True], [1, 0, 1], [ALL], np.ones(NUM_ENVS, np.uint8), True, None]
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            before = plain(vec, vec.reset())
            for mask in masks:
                with pytest.raises(SchemaError, match=r"mask needs the shape \(3,\) and bools"):
                    vec.reset_envs(mask)
            assert plain(vec, vec.reset_envs(NONE)) == before

    @pytest.mark.slow
    @each_resettable(KINDS)
    def test_leaves_the_others_where_they_are(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            shown = vec.act(legal(vec, vec.reset(5)))
            before, done = plain(vec, shown), shown.done.copy()
            after = vec.reset_envs([False, True, False])
            assert after.reward.tolist() == [0] * vec.num_rows
            waits = done & (after.env_id != 1) & vec.is_over[after.env_id]
            assert after.done.tolist() == waits.tolist()
            assert (list(after.episodes), after.final) == ([], None)
            rows = plain(vec, after).rows
            for i in np.flatnonzero(after.env_id != 1):
                assert rows[i].features == before.rows[i].features
                assert rows[i].asked == before.rows[i].asked
            two.reset(5)
            begun = plain(two, two.reset_envs([False, True, False])).rows
            for i in np.flatnonzero(after.env_id == 1):
                assert rows[i] == begun[i]

    @pytest.mark.slow
    @each_resettable(KINDS, modes=("same_step", "next_step"))
    def test_the_others_play_on_as_without_it(self, make: Make, autoreset: Autoreset) -> None:
        """Also their rewards and episodes; interrupted episodes are not counted."""
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            obs, other = vec.reset(5), two.reset(5)
            rest = np.flatnonzero(obs.env_id != 1)
            reward, length = np.zeros(vec.num_rows), np.zeros(vec.num_rows)
            num_episodes = 0
            for step in range(2 * num_steps_of(vec)):
                if step % 7 == 5:
                    obs = vec.reset_envs([False, True, False])
                    reward[obs.env_id == 1] = length[obs.env_id == 1] = 0
                length += obs.is_ready
                obs, other = (
                    one.act(by_row(one, x, step)) for one, x in ((vec, obs), (two, other))
                )
                reward += obs.reward
                for episode in obs.episodes:
                    row = episode.env_id * vec.num_agents + episode.agent_id
                    assert episode.reward == pytest.approx(reward[row], abs=1e-4)
                    assert episode.length == length[row]
                    reward[row] = length[row] = 0
                num_episodes += len(obs.episodes)
                rows, expected = plain(vec, obs).rows, plain(two, other).rows
                assert [rows[i] for i in rest] == [expected[i] for i in rest]
                mine, theirs = ([e for e in x.episodes if e.env_id != 1] for x in (obs, other))
                assert mine == theirs
            assert num_episodes > 2

    @each_resettable(KINDS)
    def test_cut_off_again_and_again_plays_no_episode_twice(
        self, make: Make, autoreset: Autoreset
    ) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec:
            vec.reset(5)
            numbers = []
            for _ in range(3):
                obs = vec.reset_envs([False, True, False])
                while not (ended := [e.number for e in obs.episodes if place(e) == (1, 0)]):
                    [obs] = steps(vec, obs, 1)
                numbers += ended
            assert numbers == sorted(set(numbers))
            assert numbers[0] == 1

    @pytest.mark.slow
    @each_resettable(KINDS)
    def test_with_a_seed_begins_a_run_there(self, make: Make, autoreset: Autoreset) -> None:
        with make(NUM_ENVS, autoreset=autoreset) as vec, make(NUM_ENVS, autoreset=autoreset) as two:
            obs = vec.reset(5)
            before = plain(vec, obs).rows
            after = plain(vec, vec.reset_envs([True, False, True], seed=77)).rows
            expected = plain(two, two.reset(77)).rows
            is_kept = np.arange(vec.num_rows) // vec.num_agents == 1
            assert after == [
                (before if kept else expected)[i] for i, kept in enumerate(is_kept.tolist())
            ]
            seeds = {e.env_id: e.seed for e in episodes_of(two, vec_obs=two.reset(77))}
            obs = vec.reset_envs(ALL, seed=77)
            assert {e.env_id: e.seed for e in episodes_of(vec, vec_obs=obs)} == seeds

    @each_disabled()
    def test_without_a_seed_goes_on(self, make: Make) -> None:
        with make(NUM_ENVS) as vec:
            found = episodes_of(vec, vec_obs=vec.reset(5), num_steps=30)
            for env_id in range(NUM_ENVS):
                numbers = sorted({e.number for e in found if e.env_id == env_id})
                assert numbers == list(range(len(numbers)))
                assert len(numbers) > 2


class TestArguments:
    @each_kind()
    def test_that_make_no_sense(self, make: Make) -> None:
        for num_envs in untyped((0, -1, True, 2.5, "2")):
            with pytest.raises(UsageError, match="num_envs must be an integer, 1 or more: got"):
                make(num_envs)
        for seed in untyped((-1, 1.5, True, "1")):
            with pytest.raises(UsageError, match="seed must be an integer"):
                make(NUM_ENVS, seed=seed)

    @each_kind({name: kind for name, kind in KINDS.items() if kind.modes == MODES})
    def test_an_unknown_mode(self, make: Make) -> None:
        with pytest.raises(UsageError, match="autoreset must be one of same_step, next_step, dis"):
            make(NUM_ENVS, autoreset="never")

    @each_kind({name: KINDS[name] for name in ("games", "batch")})
    @pytest.mark.parametrize(
        ("num_workers", "words"),
        [
            (-1, "num_workers must be an integer, 0 or more: got -1"),
            (True, "num_workers must be an integer"),
            (0.5, "num_workers must be an integer"),
            (4, "num_workers must be at most num_envs, got 4 for 3"),
        ],
    )
    def test_a_wrong_number_of_workers(self, make: Make, num_workers: int, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            make(NUM_ENVS, num_workers=num_workers)

    @each_kind()
    def test_numpy_integers_are_integers(self, make: Make) -> None:
        with make(np.int64(NUM_ENVS), seed=np.int64(5)) as vec, make(NUM_ENVS) as twin:
            assert plain(vec, vec.reset()) == plain(twin, twin.reset(untyped(np.int64(5))))
