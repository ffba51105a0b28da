"""Workers: environments stepped by processes that share memory with this one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channel import Transport
from entity_env.episode import Episode
from entity_env.errors import EntityEnvError, UsageError, WorkerError
from entity_env.frame import FrameLayout, gather
from entity_env.seeds import EpisodeSeeds
from entity_env.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.vec.arena import Rows
from entity_env.vec.autoreset import Autoreset
from entity_env.vec.backend import Source, Values
from entity_env.vec.batch_step import BatchStep, Ended, merge_metrics
from entity_env.vec.doorbell import Wake, wait_any
from entity_env.vec.link import Link, Plan, split, start_context
from entity_env.vec.local import ERROR_METRIC, OnError
from entity_env.vec.protocol import HEADER_BYTES, Reset, pickled
from entity_env.vec.shared_block import SharedBlock
from entity_env.vec.statistics import WorkerStatistics

_logger = logging.getLogger(__name__)


class Workers:
    """Environments in worker processes; each worker is a group. Args as for `VecEnv`.

    Raises:
        UsageError: a start method that there is not.
        WorkerError: a worker cannot be started, or the source cannot be sent to it.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int,
        autoreset: Autoreset,
        transport: Transport,
        on_error: OnError,
        step_timeout_s: float | None,
        start_method: str | None,
    ) -> None:
        try:
            context = start_context(start_method)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.groups: Sequence[range] = split(num_envs, num_workers)
        self._on_error = on_error
        self._step_timeout_s = step_timeout_s
        self._plan = Plan(context, pickled(source), autoreset, transport, on_error)
        self._header = SharedBlock.create(HEADER_BYTES * num_workers)
        self._rows_block: SharedBlock | None = None
        self._links: list[Link] = []
        self._num_restarts = 0
        self._run_seeds = [0] * num_envs
        self._numbers = np.full(num_envs, -1)
        """Number of the episode that every environment plays, or plays next."""
        try:
            self._start(num_envs)
        except BaseException:
            self.close()
            raise

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._action_space

    def start_reset(self, group: int, env_ids: Sequence[int], seed: int | None) -> None:
        link = self._idle(group)
        seeds: dict[int, tuple[int, int]] = {}
        for env_id in env_ids:
            if seed is not None:
                self._run_seeds[env_id] = seed
                self._numbers[env_id] = 0
                seeds[env_id - link.envs.start] = seed, 0
            elif not self._is_over[env_id]:
                self._numbers[env_id] += 1
        if link.error is not None:
            link = self._replace(group)
            env_ids, seeds = link.envs, self._seeds_of(link)
        local = [env_id - link.envs.start for env_id in env_ids]
        self._is_over[list(env_ids)] = False
        rows = (np.array(list(env_ids), dtype=np.int64)[:, None] * self.num_agents).reshape(-1)
        for agent_id in range(self.num_agents):
            self._earned[rows + agent_id] = 0
            self._lengths[rows + agent_id] = 0
        link.reset(Reset(local, seeds), self._step_timeout_s)

    def start_act(self, group: int, values: Values) -> None:
        self._idle(group).act(values, self._step_timeout_s)

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        links = [self._links[group] for group in groups]
        while True:
            done = [link for link in links if link.error is not None or link.bell.is_rung]
            if sum(len(link.envs) for link in done) >= min_envs:
                return [link.index for link in done]
            pending = [link for link in links if link not in done]
            deadlines = [link.deadline for link in pending if link.deadline is not None]
            timeout_s = max(min(deadlines) - monotonic(), 0.0) if deadlines else None
            wake = wait_any([link.bell for link in pending], timeout_s)
            if wake is Wake.PEER_GONE:
                for link in pending:
                    if not link.bell.is_rung and link.bell.is_peer_gone():
                        link.died()
            elif wake is Wake.TIMED_OUT:
                for link in pending:
                    if link.deadline is not None and link.deadline <= monotonic():
                        link.hangs(self._step_timeout_s or 0.0)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        told = [(self._links[group], self._links[group].read()) for group in groups]
        steps: list[BatchStep] = []
        failed: EntityEnvError | None = None
        for link, step in told:
            if isinstance(step, BatchStep):
                self._count(link, step)
                steps.append(step)
            elif self._on_error == "restart" and link.error is not None:
                _logger.warning("%s; its environments begin their next episodes", step)
                steps.append(self._recover(link))
            else:
                failed = failed or self._placed(step)
        if failed is not None:
            raise failed
        return self._side_by_side([self._links[group] for group in groups], steps)

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        group = next(i for i, envs in enumerate(self.groups) if env_id in envs)
        link = self._links[group]
        drawn: NDArray[np.uint8] | None = link.render(env_id - link.envs.start)
        return drawn

    def statistics(self) -> list[WorkerStatistics]:
        return [link.statistics() for link in self._links]

    def close(self) -> None:
        failures = [link.close() for link in self._links]
        if self._rows_block is not None:
            self._rows_block.close()
        self._header.close()
        for failure in failures:
            if failure is not None:
                raise failure

    def _start(self, num_envs: int) -> None:
        for index, envs in enumerate(self.groups):
            self._links.append(Link(self._plan, index, envs, self._header))
        ready = [link.greet() for link in self._links]
        self._obs_space, self._action_space = ready[0].obs_space, ready[0].action_space
        self.num_agents = ready[0].num_agents
        for index, one in enumerate(ready):
            if (one.obs_space, one.action_space) != (self._obs_space, self._action_space):
                raise WorkerError(
                    f"worker {index} has other spaces than worker 0: the source must make "
                    "environments of one kind",
                    worker=index,
                )
        self._layout = FrameLayout(self._obs_space, self._action_space)
        num_rows = num_envs * self.num_agents
        block = SharedBlock.create(Rows.num_bytes(self._layout, num_rows, num_envs))
        self._rows_block = block
        self._rows = Rows(block, self._layout, num_rows, num_envs)
        self._is_over = np.ones(num_envs, dtype=np.bool_)
        self._earned = np.zeros(num_rows)
        self._lengths = np.zeros(num_rows, dtype=np.int64)
        for link in self._links:
            link.begin(self._layout, self._rows, block, num_envs, self.num_agents)

    def _idle(self, group: int) -> Link:
        """A worker that is not busy any more: what was left under way is waited for."""
        link = self._links[group]
        if link.is_busy:
            self.wait([group], 1)
            link.read()
        return link

    def _replace(self, group: int) -> Link:
        """Starts a new worker in place of one that is of no use any more."""
        old = self._links[group]
        link = Link(self._plan, group, old.envs, self._header)
        self._links[group] = link
        link.greet()
        if self._rows_block is None:
            raise WorkerError("the workers are closed")
        num_envs = len(self._numbers)
        link.begin(self._layout, self._rows, self._rows_block, num_envs, self.num_agents)
        return link

    def _seeds_of(self, link: Link) -> dict[int, tuple[int, int]]:
        return {
            i: (self._run_seeds[env_id], int(self._numbers[env_id]))
            for i, env_id in enumerate(link.envs)
        }

    def _recover(self, dead: Link) -> BatchStep:
        """Has a new worker take over; the episodes of the old one end as truncated."""
        lost = self._lost_with(dead)
        for ended in lost:
            number = self._numbers[ended.episode.env_id]
            self._numbers[ended.episode.env_id] = max(number, ended.episode.number + 1)
        link = self._replace(dead.index)
        self._num_restarts += len(link.envs)
        link.reset(Reset(range(len(link.envs)), self._seeds_of(link)), self._step_timeout_s)
        self.wait([link.index], 1)
        step = link.read()
        if not isinstance(step, BatchStep):
            raise step
        step.lost = [*step.lost, *lost]
        for row, _, _ in lost:
            step.truncated[row - link.envs.start * self.num_agents] = True
        self._count(link, step)
        return step

    def _lost_with(self, link: Link) -> list[Ended]:
        """The episodes that a dead worker was playing."""
        lost: list[Ended] = []
        for env_id in link.envs:
            number = int(self._numbers[env_id])
            for agent_id in range(self.num_agents):
                row = env_id * self.num_agents + agent_id
                episode = Episode(
                    reward=float(self._earned[row]),
                    length=int(self._lengths[row]),
                    terminated=False,
                    truncated=True,
                    seed=EpisodeSeeds(self._run_seeds[env_id], env_id)[number],
                    number=number,
                    env_id=env_id,
                    agent_id=agent_id,
                    metrics={ERROR_METRIC: 1.0},
                )
                if not self._is_over[env_id]:
                    lost.append(Ended(row, 0.0, episode))
        return lost

    def _count(self, link: Link, step: BatchStep) -> None:
        """Keeps the books by which a worker can be replaced."""
        first = link.envs.start * self.num_agents
        mine = slice(first, first + len(step.reward))
        self._is_over[link.envs.start : link.envs.stop] = step.is_over
        self._earned[mine] += step.reward
        ended = [*step.ended, *step.lost]
        for row, _, episode in ended:
            self._earned[row] = 0
            self._lengths[row] = 0
            number = max(int(self._numbers[episode.env_id]), episode.number + 1)
            self._numbers[episode.env_id] = number
        asked = [self._layout.actions[name].row for name in self._action_space]
        self._lengths[mine] += (step.frame.lengths[asked] > 0).any(axis=0)

    def _placed(self, error: EntityEnvError) -> EntityEnvError:
        """A failure with what only the parent knows of it: seed and episode."""
        if not isinstance(error, WorkerError) or error.env_id is None or error.seed is not None:
            return error
        number = int(self._numbers[error.env_id])
        row = error.env_id * self.num_agents
        return WorkerError(
            error.reason,
            env_id=error.env_id,
            worker=error.worker,
            seed=EpisodeSeeds(self._run_seeds[error.env_id], error.env_id)[max(number, 0)],
            episode=number,
            step=int(self._lengths[row : row + self.num_agents].max()),
            game_traceback=error.game_traceback,
        )

    def _side_by_side(self, links: Sequence[Link], steps: Sequence[BatchStep]) -> BatchStep:
        """One step of several: at most one copy of whatever is ragged."""
        if len(links) == 1:
            step = steps[0]
            offset = links[0].envs.start * self.num_agents
            step.ended, step.lost = _moved(step.ended, offset), _moved(step.lost, offset)
            return step
        parity = links[0].parity
        is_whole = len(links) == len(self._links)
        if is_whole and all(link.parity == parity for link in links):
            rows = self._rows
            lengths, reward = rows.lengths[parity], rows.reward[parity]
            terminated, truncated = rows.terminated[parity], rows.truncated[parity]
            is_over = rows.is_over[parity]
        else:
            lengths = np.concatenate([step.frame.lengths for step in steps], axis=1)
            reward = np.concatenate([step.reward for step in steps])
            terminated = np.concatenate([step.terminated for step in steps])
            truncated = np.concatenate([step.truncated for step in steps])
            is_over = np.concatenate([step.is_over for step in steps])
        together = BatchStep(
            gather(self._layout, [step.frame for step in steps], lengths),
            reward,
            terminated,
            truncated,
            is_over,
        )
        first = 0
        for link, step in zip(links, steps, strict=True):
            offset = link.envs.start * self.num_agents - first
            together.ended += _moved(step.ended, offset)
            together.lost += _moved(step.lost, offset)
            merge_metrics(together.metrics, step.metrics)
            first += len(step.reward)
        finals = [step.final for step in steps if step.final is not None]
        if finals:
            lengths = np.concatenate([final.lengths for final in finals], axis=1)
            together.final = gather(self._layout, finals, lengths)
        return together


def _moved(ended: Sequence[Ended], offset: int) -> list[Ended]:
    """The same episodes, by their rows in a batch that begins `offset` rows later."""
    return [Ended(row - offset, reward, episode) for row, reward, episode in ended]
