"""The error tree: base classes, messages, and pickling."""

import pickle
import re

import numpy as np
import pytest

import entity_env
from entity_env import errors
from entity_env.errors import (
    ContractError,
    EntityEnvError,
    GameExit,
    MissingExtraError,
    SchemaError,
    WorkerError,
)

ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, EntityEnvError)
]


def test_the_tree_at_the_head_of_the_module_is_complete() -> None:
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert set(drawn) == {error.__name__ for error in ERRORS}
    assert all(hasattr(entity_env, name) for name in drawn)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.SchemaError, ValueError),
        (errors.ContractError, SchemaError),
        (errors.ProtocolError, RuntimeError),
        (errors.ClosedError, RuntimeError),
        (errors.WorkerError, RuntimeError),
        (errors.CheckpointError, ValueError),
        (errors.TrainingDivergedError, ArithmeticError),
        (errors.UsageError, ValueError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_who_knows_only_python_catches_them_too(error: type[Exception], builtin: type) -> None:
    assert issubclass(error, builtin)
    assert issubclass(error, EntityEnvError)


def test_game_exit_passes_through_except_exception() -> None:
    assert not issubclass(GameExit, Exception)


def test_worker_error_says_where() -> None:
    error = WorkerError("the game raised", env_id=3, worker=0, seed=7, episode=2, step=9)
    assert str(error) == "the game raised (env 3, worker 0, seed 7, episode 2, step 9)"


def test_worker_error_leaves_out_what_is_unknown() -> None:
    assert str(WorkerError("a process died", worker=1)) == "a process died (worker 1)"
    assert str(WorkerError("a process died")) == "a process died"
    assert str(WorkerError("raised", step=0, game_traceback="Trace")) == "raised (step 0)\nTrace"


def test_missing_extra_names_the_command() -> None:
    message = str(MissingExtraError("torch", "train", "training"))
    assert message == (
        "training needs the package 'torch', which is not installed: "
        "pip install 'entity-env[train]'"
    )


def test_an_old_version_is_not_called_missing() -> None:
    message = str(MissingExtraError("numpy>=99", "fast", "speed"))
    assert f"needs the package 'numpy>=99', but version {np.__version__} is installed" in message
    assert "which is not installed" in str(MissingExtraError("no-such-package>=1", "x", "y"))


def test_contract_error_lists_every_problem() -> None:
    assert str(ContractError("snake", ["one"])) == "snake: 1 violation of the contract:\n  - one"
    assert "2 violations of the contract:\n  - one\n  - two" in str(
        ContractError("x", ["one", "two"])
    )


@pytest.mark.parametrize(
    "error",
    [
        WorkerError("raised", env_id=1, worker=2, seed=3, episode=4, step=5, game_traceback="T"),
        MissingExtraError("torch", "train", "training"),
        ContractError("snake", ["one", "two"]),
        SchemaError("message"),
    ],
)
def test_errors_come_whole_out_of_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
