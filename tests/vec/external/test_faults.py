"""Programs that violate the protocol, exit or hang end with one line, and leave no process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env.check.program import program_violations
from entity_env.errors import UsageError, WorkerError
from entity_env.page.live.outcome import rules_of
from entity_env.vec import VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.messages import MessageError
from entity_env.vec.external.program import Link, Program

LIAR = Path(__file__).with_name("liar.py")


def liar(fault: str = "", link: Link = "unix") -> ExternalGame:
    return ExternalGame([sys.executable, "-S", str(LIAR), *([fault] if fault else [])], link=link)


def play(fault: str = "", num_steps: int = 7, **options: Any) -> VecEnv:  # noqa: ANN401
    """Plays in a `VecEnv`, and returns it, closed."""
    with VecEnv(liar(fault), 2, **options) as vec:
        obs = vec.reset()
        for _ in range(num_steps):
            num_actors = len(obs.action_masks["Move"].actors.values)
            obs = vec.act({"Move": np.zeros(num_actors, dtype=np.int64)})
    return vec


def test_without_a_fault_it_plays() -> None:
    with VecEnv(liar(), 2) as vec:
        obs = vec.reset()
        for _ in range(3):
            obs = vec.act({"Move": np.zeros(2, dtype=np.int64)})
        assert [episode.length for episode in obs.episodes] == [3, 3]
        assert obs.terminated.all()
        assert obs.reward.tolist() == [-1.0, -1.0]


def test_its_doc_is_what_players_read() -> None:
    assert rules_of(liar()) == ["Walk for three steps."]


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("prints", "message 1 (HELLO or ERROR): expected the bytes b'ENE1', got b'Hello"),
        ("big_endian", "message 1 (HELLO or ERROR): expected kind HELLO or ERROR, got 16777216"),
        ("version", "message 1 (HELLO): the program has version 99 of the protocol, expected 1"),
        ("name", "message 1 (HELLO): name must have 1 to 64 letters"),
        (
            "setting",
            "message 1 (HELLO): the name of a setting must be an identifier, not one of",
        ),
        ("no_json", "message 1 (HELLO): the payload is not JSON in UTF-8"),
        ("huge_size", "message 1 (HELLO): the payload must have a multiple of 8 bytes, at most"),
        ("kind", "message 1 (HELLO or ERROR): expected kind HELLO or ERROR, got STEP"),
        ("checksum", "message 2 (READY): the checksum of the spaces is '0000000000000000'"),
        ("agents", "message 2 (READY): num_agents must be 1 to 4096, got 1000000000"),
        ("spaces", "message 2 (READY): the kind of an action must be one of"),
        ("no_name", "message 2 (READY): actions need names, such as 'move', got ''"),
        ("selects_actor", "message 2 (READY): action 'Move' selects '__actor__', which"),
        ("actor", "message 2 (READY): the entity '__actor__', which makes global decisions,"),
        ("not_started", "message 3 (STEP): a copy has not started an episode after RESET"),
        ("nan", "message 3 (STEP): the features of 'Dot' must be finite, got nan"),
        ("negative_length", "message 3 (STEP): a length is -1 to 1, expected 0 or more"),
        ("huge_length", "message 3 (STEP): a length is 1 to 4611686018427387904, expected"),
        ("actor_out_of_range", "message 3 (STEP): the actors of 'Move' must be indices of"),
        ("slot_flag", "message 3 (STEP): slot 1 has the flag 2"),
        ("mask_flag", "message 3 (STEP): the mask of 'Move' must be 0 or 1, got 7"),
        ("mask_empty", "message 3 (STEP): action 'Move': an actor has no allowed choice"),
        ("asks_flag", "message 3 (STEP): the flags of rows must be 0 or 1, got 2"),
        ("score", "message 3 (STEP): a score must be finite and at most 1e+300: got inf"),
        ("many_ends", "message 3 (STEP): 387420489 ends for 2 rows, expected at most 2 per row"),
        ("short", "bytes, too few: an array of 16 bytes starts at"),
        ("long", "message 3 (STEP): the payload has 120 bytes, expected 112 for its lengths"),
        ("flags_of_copy", "message 4 (STEP): the flags of copies must be 0 to 3, got 4"),
        ("twice", "message 4 (STEP): 128 more bytes arrived than its header announces"),
        ("end_flag", "message 6 (STEP): the flags of an end must be 1, 2 or 4, or 8 more: got"),
        ("end_row", "message 6 (STEP): the rows of ends must be 0 to 1, in this order"),
        ("acts_at_end", "message 6 (STEP): the last observation of a terminated episode has act"),
        ("silent_end", "message 6 (STEP): an environment started an episode, but an agent has not"),
    ],
)
def test_a_violation_is_one_line_with_the_number_of_the_message(fault: str, line: str) -> None:
    with pytest.raises(MessageError) as caught:
        play(fault)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_error_of_the_program_is_raised_with_its_traceback() -> None:
    with pytest.raises(WorkerError, match="error: no level 7") as caught:
        liar("error")
    assert caught.value.game_traceback == "here"


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("exits", r"exited with code 3 before message 6 \(STEP\)"),
        ("killed", r"was ended by SIGKILL before message 6 \(STEP\)"),
        ("hangs", r"did not send message 6 \(STEP\) in time"),
        ("half", r"did not send message 6 \(STEP\) in time"),
    ],
)
def test_a_program_that_exits_or_hangs(fault: str, line: str) -> None:
    with VecEnv(liar(fault), 2, step_timeout_s=0.5) as vec:
        vec.reset(seed=3)
        for _ in range(2):  # after the error, a reset starts a new program
            for _ in range(2):
                obs = vec.act({"Move": np.zeros(2, dtype=np.int64)})
                assert obs.reward.tolist() == [1.0, 1.0]
            with pytest.raises(WorkerError, match=line):
                vec.act({"Move": np.zeros(2, dtype=np.int64)})
            obs = vec.reset()
            assert obs.reward.tolist() == [0.0, 0.0]


def test_restarts_truncate_the_lost_episodes() -> None:
    with VecEnv(liar("exits"), 2, on_error="restart") as vec:
        obs = vec.reset()
        for _ in range(3):
            obs = vec.act({"Move": np.zeros(2, dtype=np.int64)})
        assert obs.truncated.all()
        assert [(each.length, each.number) for each in obs.episodes] == [(3, 0), (3, 0)]
        assert all(each.metrics == {"error": 1.0} for each in obs.episodes)
        obs = vec.act({"Move": np.zeros(2, dtype=np.int64)})
        assert vec.statistics().num_restarts == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("", ""),
        ("shares", "one of 3 copies shows another reward in step 2"),
        ("exit_code", "after CLOSE, it exited with code 3, expected the code 0"),
        ("trusts", "after START with protocol 99, it sent an answer: it must exit"),
        ("crashes", "after RESET of 2305843009213693952 copies, it was ended by SIGSEGV"),
    ],
)
def test_a_check_plays_several_copies_and_sends_invalid_requests(fault: str, line: str) -> None:
    found = " ".join(program_violations(liar(fault), 1, lambda stage: None, float("inf")))
    assert line in found if line else not found


@pytest.mark.slow
def test_a_program_that_does_not_exit_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_env.check.program._EXIT_S", 0.1)
    found = [*program_violations(liar("stays"), 1, lambda stage: None, float("inf"))]
    assert found == ["after CLOSE, it still runs after 5 s: it must exit"]


def test_a_million_entities_arrive() -> None:
    with VecEnv(liar("million"), 2) as vec:
        obs = vec.reset()
        assert obs.features["Dot"].lengths.tolist() == [1_000_000, 1_000_000]
        assert (obs.features["Dot"].values == 0.25).all()


@pytest.mark.parametrize("link", ["unix", "stdio"])
def test_it_ends_with_its_owner(link: Link) -> None:
    program = Program([sys.executable, "-S", str(LIAR), "stays"], link=link)
    assert program._process is not None
    pid = program._process.pid
    del program
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_program_that_does_not_exit_is_ended() -> None:
    program = Program([sys.executable, "-S", str(LIAR), "stays"])
    program.start(1, {})
    program.close()
    assert program._process is not None
    assert program._process.poll() is not None


def test_a_program_that_does_not_connect_is_ended() -> None:
    with pytest.raises(WorkerError, match="did not connect in time: its last line must serve the"):
        Program([sys.executable, "-S", str(LIAR), "never_connects"], timeout_s=0.3)


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("pass", "exited with code 0"),
        ("raise SystemExit(3)", "exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    ],
)
def test_a_program_that_ends_without_serving_its_game(line: str, how: str) -> None:
    with pytest.raises(WorkerError) as caught:
        Program([sys.executable, "-S", "-c", line])
    assert f"{how} before it connected: its last line must serve the game" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("", "an ExternalGame needs either a command"),
        ("no-such-program --fast", "cannot start 'no-such-program': no such program"),
    ],
)
def test_a_command_that_cannot_be_started(command: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        ExternalGame(command)


def test_a_file_that_is_not_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coin").touch(0o755)
    (tmp_path / "coin.c").touch()
    with pytest.raises(UsageError, match=r"cannot start 'coin': .* write \./coin"):
        ExternalGame("coin")
    with pytest.raises(UsageError, match=r"cannot start '\./coin\.c': it is not executable"):
        ExternalGame("./coin.c")
