"""Evaluation as Ray tasks: blocks of episodes or games, with results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

from entity_env.cluster.session import Portable, connect, import_ray
from entity_env.errors import WorkerError

T = TypeVar("T")
_TASKS_PER_CPU: Final = 8
_MAX_RETRIES: Final = 3


def chunks(num_blocks: int, num_cpus: int) -> list[range]:
    """Consecutive ranges of blocks, one per task: at most 8 per CPU; lengths differ by up to 1.

    Few tasks, since each creates its own environments; several per CPU, since some take longer.
    """
    num_tasks = min(num_blocks, _TASKS_PER_CPU * num_cpus)
    edges = [i * num_blocks // num_tasks for i in range(num_tasks + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def play_blocks(
    play: Callable[[range], Sequence[T]],
    num_blocks: int,
    *,
    address: str = "auto",
    on_result: Callable[[T], None] | None = None,
) -> list[T]:
    """Computes the results of `play(range(num_blocks))` by tasks on a Ray cluster.

    The results equal those of that call if each block depends only on its number. A task whose
    process or machine dies is rerun, at most three times.

    Args:
        play: returns the results of a range of blocks, in order. Sent by cloudpickle; its errors
            are raised here.
        num_blocks: 1 or more.
        address: of the cluster; see `connect`.
        on_result: called with each result when its task has ended, in any order.

    Raises:
        MissingExtraError, UsageError: as for `connect`.
        WorkerError: a task died four times.
    """
    with connect(address) as num_cpus:
        ray = import_ray()
        task = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(_play)
        sent = ray.put(Portable(play))
        parts = chunks(num_blocks, num_cpus)
        numbers = {task.remote(sent, part): i for i, part in enumerate(parts)}
        results: list[Sequence[T]] = [()] * len(parts)
        waiting = list(numbers)
        try:
            while waiting:
                [done], waiting = ray.wait(waiting)
                number = numbers.pop(done)
                results[number] = _result(ray, done, parts[number])
                for result in results[number] if on_result else ():
                    on_result(result)  # type: ignore[misc]  # not None here
        finally:
            for left in waiting:  # after an error: the cluster may be shared
                ray.cancel(left, force=True)
    return [result for part in results for result in part]


def _play(play: Portable[Callable[[range], Sequence[T]]], blocks: range) -> Sequence[T]:
    return play.value(blocks)


def _result(ray: Any, task: object, blocks: range) -> Any:  # noqa: ANN401
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:200]
        raise WorkerError(
            f"the process that played blocks {blocks.start} to {blocks.stop - 1} died "
            f"{_MAX_RETRIES + 1} times: {reason}"
        ) from error
