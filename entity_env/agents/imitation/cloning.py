"""Behavioral cloning: trains a network to choose what recorded agents chose."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.imitation.config import CloneConfig
from entity_env.agents.imitation.dataset import Dataset
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.rogue_net.torch_net.checkpoint import not_finite, save_checkpoint
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy, past_argument
from entity_env.agents.training.network import MakePolicy, new_policy, torch_device, torch_threads
from entity_env.agents.training.process import HeldInterrupt
from entity_env.agents.training.rollout_buffer import Rollout, Segments, evaluate_minibatch
from entity_env.agents.training.run_folder import require_new_run, run_folder
from entity_env.agents.training.tracking.progress import Losses, TrainProgress, TrainResult
from entity_env.agents.training.tracking.run_writer import curve_writer, end_run, write_run
from entity_env.agents.training.tracking.runs import TrainingRun
from entity_env.authoring.identity import known_game
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionSpace, ContinuousActionSpace
from entity_env.errors import TrainingDivergedError, UsageError

_AT_ONCE: Final = 2048
"""Largest number of decisions evaluated in one batch."""
_MEMORY_STEPS: Final = 1024
"""Most decisions in a sequence, for a network with memory."""
_LEAST_STEPS: Final = 500
"""Least number of optimizer steps without improvement before training ends, because small datasets
have short epochs.
"""
_LEAST_DEVIATION: Final = 0.1
"""Smallest standard deviation assumed for returns, as a share of the largest absolute return."""
_SAVE_INTERVAL_S: Final = 30.0
_NAN: Final = float("nan")


class HeldOut(NamedTuple):
    """Metrics of a network on held-out decisions; NaN if there are none.

    Args:
        nll: mean negative log-likelihood per decision, in nats. For continuous actions, it uses the
            density, with half the action space's range as the unit, so it can be below 0.
        accuracy: share of decisions that match the network's most probable choice for every actor
            that chooses labels or entities. NaN if all actions are continuous.
        explained_variance: 1 - Var(return - value) / Var(return); NaN if `vf_coef` is 0, or if all
            returns are equal.
    """

    nll: float = _NAN
    accuracy: float = _NAN
    explained_variance: float = _NAN


@dataclass(frozen=True, slots=True)
class CloneResult(TrainResult):
    """Result of behavioral cloning; `net` is the best network or, with `held_out=0`, the last.

    Args:
        held_out: metrics of `net`.
        epoch: epoch after which `net` was kept, from 1; 0 if the first epoch was interrupted.
        num_decisions, num_episodes: numbers of decisions and episodes used for training.
        num_held_out: number of held-out decisions.
    """

    held_out: HeldOut = field(default_factory=HeldOut)
    epoch: int = 0
    num_decisions: int = 0
    num_episodes: int = 0
    num_held_out: int = 0


def clone(
    dataset: Dataset,
    config: CloneConfig | None = None,
    *,
    policy: Policy | MakePolicy | None = None,
    out: str | Path | None = None,
    on_update: Callable[[TrainProgress], None] | None = None,
    about: Mapping[str, object] | None = None,
) -> CloneResult:
    """Fits a network to decisions: behavioral cloning (Pomerleau 1991), by maximum likelihood.

    The loss of a decision is the negative logarithm of its probability among the choices its masks
    allow. The value is fitted to the discounted returns, so PPO can continue from the network;
    in that fit, decisions near a truncation have little weight, see `Dataset.known_share`. Training
    ends after `epochs`, or earlier if the likelihood of held-out episodes stops improving, and
    keeps the best network. Without held-out episodes, it keeps the last network. Continuous actions
    are fitted as samples of a Gaussian, which the bounds of the action space do not clip.

    Feature statistics come from the training decisions. On a CPU, the same settings and decisions
    give the same network. Ctrl-C, SIGTERM and SIGHUP end training after the current minibatch, and
    keep the best network so far.

    Args:
        config: None = `CloneConfig()`.
        policy: the network to fit, or a function that makes one from an observation space and an
            action space; None = `config.net`.
        out: folder for `checkpoint`, `run.json` and `curves.jsonl`, without a trained agent;
            `load_agent` reads it. None = writes nothing.
        on_update: called after every epoch. In its argument, `metrics` has the fields of `HeldOut`,
            with names such as "held_out/nll", and `losses.policy_loss` is the mean nll of the
            epoch.
        about: further entries of `run.json`.

    Raises:
        UsageError: no decisions; a single episode, unless `held_out` is 0; a network for other
            spaces; a folder with a trained agent, in which another run trains, or with other files.
        StoppedBySignal: as in `train`.
        TrainingDivergedError: a loss or the network is not finite.
    """
    config = config or CloneConfig()
    folder = None if out is None else Path(out)
    with torch_threads(config.num_threads):
        run = _Cloning(dataset, config, policy, folder)  # checks its arguments first
        return _fit(run, on_update, about or {})


def _fit(
    run: _Cloning,
    on_update: Callable[[TrainProgress], None] | None,
    about: Mapping[str, object],
) -> CloneResult:
    with run_folder(run.out), HeldInterrupt() as interrupt:
        described = TrainingRun(Path())
        if run.out is not None:
            require_new_run(run.out, can_resume=False)
            run.game = known_game(about)
            described = write_run(run.out, run.config, 0, {**run.about(), **about})
        with curve_writer(run.out) as write_curves, torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.config.seed)  # for dropout
            try:
                while not run.is_over:
                    run.learn_epoch(interrupt.check)
                    write_curves(run.progress, {}, run.progress.metrics)
                    if on_update is not None:
                        on_update(run.progress)
            except KeyboardInterrupt:
                run.is_interrupted = True
            except BaseException:
                run.save()
                raise
            result = run.finish()
            end_run(run.out, described, run.progress.step, {})
    interrupt.deliver(result, None)
    return result


class _Cloning:
    """State of a `clone` call."""

    def __init__(
        self,
        dataset: Dataset,
        config: CloneConfig,
        policy: Policy | MakePolicy | None,
        out: Path | None,
    ) -> None:
        if not len(dataset):
            raise UsageError("there are no decisions to clone: the dataset is empty")
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self._data = _Decisions(dataset, config)
        self.train, self.held_out = _split(dataset, config.held_out, self.rng)
        self._num_minibatches = max(1, round(len(self.train) / config.minibatch_size))
        self.num_episodes = len(np.unique(dataset.episode[self.train]))
        device = torch_device(config.device)
        size = config.net_for(dataset.spaces)
        self.net = new_policy(dataset.spaces, size, config.seed, policy).to(device).eval()
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), config.learning_rate, weight_decay=config.weight_decay, eps=1e-5
        )
        if width := self.net.memory_width:
            self._data.remember(width)
        self._data.normalize(self.net, self.train)
        self._data.recall(self.net)  # and after every epoch, in `figures`
        self.out = out
        self.is_interrupted = False
        self.epoch = self.best_epoch = 0
        self.figures = HeldOut()
        """Metrics of the best network."""
        self._best: dict[str, Tensor] | None = None
        self._is_saved = False
        self.game: Mapping[str, object] = {}
        """Name and identity of the game, for checkpoints; see `Weights`."""
        self._started = self._saved_at = time.monotonic()
        self.progress = TrainProgress(0, config.epochs * len(self.train))

    @property
    def is_over(self) -> bool:
        config, since = self.config, self.epoch - self.best_epoch
        is_idle = since >= config.patience and since * self._num_minibatches >= _LEAST_STEPS
        return self.epoch >= config.epochs or (is_idle and len(self.held_out) > 0)

    def about(self) -> dict[str, object]:
        return {
            "algorithm": "behavioral cloning",
            "entities": list(self.net.obs_space.entities),
            "actions": list(self.net.action_space),
            "num_decisions": len(self.train),
            "num_episodes": self.num_episodes,
            "num_held_out": len(self.held_out),
        }

    def learn_epoch(self, check: Callable[[], None]) -> None:
        """Trains on every decision once, and keeps the best network."""
        sums, num_seen = np.zeros(3), 0
        self.net.train()
        try:
            for rows in self._data.splits(self.train, self.rng, self._num_minibatches):
                check()
                sums += np.array(self._step(rows)) * len(rows)
                num_seen += len(rows)
        finally:
            self.net.eval()
        self.epoch += 1
        figures = self._data.figures(self.net, self.held_out)
        self._keep(figures)
        policy_loss, value_loss, entropy = (sums / num_seen).tolist()
        self._count(Losses(policy_loss, value_loss, entropy), figures)

    def _step(self, rows: NDArray[np.int64]) -> tuple[float, float, float]:
        """One optimizer step; returns nll, value loss, entropy."""
        new = self._data.evaluate(self.net, rows)
        nll = -new.logprobs.mean()
        value_loss = self._data.value_loss(new.values, rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss = nll + self.config.vf_coef * value_loss
        loss.backward()  # type: ignore[no-untyped-call]  # untyped
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.config.max_grad_norm)
        if not math.isfinite(float(norm) + float(loss.detach())):
            raise TrainingDivergedError(
                f"cloning diverged in epoch {self.epoch + 1}: the loss is {float(loss.detach())}, "
                f"the norm of its gradient {float(norm)}; {self._kept()}. Try a smaller "
                f"learning_rate ({self.config.learning_rate:g}), or smaller features and rewards"
            )
        self.optimizer.step()
        return float(nll.detach()), float(value_loss.detach()), float(new.entropy.detach().mean())

    def _kept(self) -> str:
        if self._best is None or self.out is None:
            return "nothing was saved"
        return f"{self.out / SUBFOLDER} has the network of epoch {self.best_epoch}"

    def _keep(self, figures: HeldOut) -> None:
        if bad := not_finite(self.net.state_dict()):
            raise TrainingDivergedError(
                f"{bad[0]} of the network is not finite in epoch {self.epoch}; {self._kept()}"
            )
        is_better = not figures.nll >= self.figures.nll  # or one is NaN
        if len(self.held_out) and not is_better:
            return
        self.figures, self.best_epoch = figures, self.epoch
        self._best, self._is_saved = copy.deepcopy(self.net.state_dict()), False
        if time.monotonic() - self._saved_at >= _SAVE_INTERVAL_S:
            self.save()

    def _count(self, losses: Losses, figures: HeldOut) -> None:
        elapsed_s = time.monotonic() - self._started
        step = self.epoch * len(self.train)
        metrics = {f"held_out/{name}": value for name, value in figures._asdict().items()}
        self.progress = replace(
            self.progress,
            step=step,
            update=self.epoch,
            steps_per_s=step / max(elapsed_s, 1e-9),
            losses=losses,
            learning_rate=self.config.learning_rate,
            elapsed_s=elapsed_s,
            eta_s=elapsed_s * (self.progress.total / step - 1),
            metrics=metrics,
        )

    def save(self) -> None:
        """Writes a checkpoint of the best network, if it improved since the last checkpoint."""
        if self._is_saved or self._best is None or self.out is None:
            return
        training = {"clone": self.config.to_json(), "epoch": self.best_epoch, **self.about()}
        training |= {"game": self.game} if self.game else {}
        present = copy.deepcopy(self.net.state_dict())
        self.net.load_state_dict(self._best)
        save_checkpoint(self.out / SUBFOLDER, self.net, training=training)
        self.net.load_state_dict(present)
        self._is_saved, self._saved_at = True, time.monotonic()

    def finish(self) -> CloneResult:
        if self._best is None:  # interrupted in the first epoch
            self._keep(self._data.figures(self.net, self.held_out))
        self.save()
        if self._best is not None:
            self.net.load_state_dict(self._best)
        return CloneResult(
            self.net,
            self.progress,
            self.is_interrupted,
            None if self.out is None else self.out / SUBFOLDER,
            held_out=self.figures,
            epoch=self.best_epoch,
            num_decisions=len(self.train),
            num_episodes=self.num_episodes,
            num_held_out=len(self.held_out),
        )


class _Decisions:
    def __init__(self, dataset: Dataset, config: CloneConfig) -> None:
        self._dataset = dataset
        self._returns = dataset.returns(config.gamma)
        self._shares = dataset.known_share(config.gamma)
        self._has_value = config.vf_coef > 0
        self._std = 1.0
        samples = {
            name: RaggedArray(_samples(dataset.action_space[name], actions), actions.lengths)
            for name, actions in dataset.actions.items()
        }
        none = np.zeros(len(dataset), dtype=np.float32)  # for the fields that only PPO uses
        rows = np.arange(len(dataset))
        self._rollout = Rollout(dataset.obs, samples, rows, none, none, none, self._returns)

    def normalize(self, net: Policy, rows: NDArray[np.int64]) -> None:
        """Updates the network's feature statistics, and the statistics of returns."""
        for part in _parts(rows):
            net.update_statistics(self._rollout.minibatch(part).obs)
        returns = self._returns[rows].astype(np.float64)
        mean, variance = _moments(returns, self._shares[rows])
        # If all returns are nearly equal, do not scale up the errors of values.
        self._std = max(math.sqrt(variance), _LEAST_DEVIATION * float(np.abs(returns).max())) or 1.0
        if self._has_value:
            net.scale_values(mean, self._std)

    def evaluate(self, net: Policy, rows: NDArray[np.int64]) -> Evaluation:
        """Log-probabilities and values of decisions, with gradients."""
        return evaluate_minibatch(net, self._rollout.minibatch(rows))

    def remember(self, width: int) -> None:
        """Makes sequences of the decisions, for a network that remembers `width` numbers.

        A sequence has the decisions of an agent in an episode, so nothing is remembered before it.
        Longer ones are learned in pieces, because gradients need memory for every decision.
        """
        data, states = self._dataset, np.zeros((len(self._dataset), width), np.float32)
        order = np.lexsort((data.step, data.agent_id, data.episode))
        keys = np.stack((data.episode[order], data.agent_id[order]))
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (np.diff(keys) != 0).any(axis=0)
        begins, sequence = np.empty_like(is_first), np.empty_like(order)
        begins[order], sequence[order] = is_first, np.cumsum(is_first) - 1
        segments = Segments.cut(states, begins, sequence, order, memory_steps=_MEMORY_STEPS)
        self._rollout = replace(self._rollout, segments=segments)

    @torch.no_grad()
    def recall(self, net: Policy) -> None:
        """Computes what the network remembers before the later pieces of long episodes."""
        segments = self._rollout.segments
        if segments is None:
            return
        for piece, following in itertools.pairwise(segments.decisions):
            if not segments.begins[following[0]]:
                batch = self._rollout.minibatch(piece)
                states = net.recalled(batch.obs, batch.past)[2]
                if states is not None:
                    segments.states[following[0]] = states[-1].cpu().numpy()

    def splits(
        self, rows: NDArray[np.int64], rng: np.random.Generator, count: int
    ) -> list[NDArray[np.int64]]:
        """The rows in random parts; with memory, whole sequences."""
        segments = self._rollout.segments
        if segments is None:
            return np.array_split(rng.permutation(rows), count)
        mine = rng.permutation(np.unique(segments.of[rows]))
        drawn = np.array_split(mine, min(count, len(mine)))
        return [segments.decisions[each].values for each in drawn]

    def _in_order(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """The rows in parts for evaluation; with memory, whole sequences."""
        segments = self._rollout.segments
        if segments is not None:
            rows = segments.decisions[np.unique(segments.of[rows])].values
        yield from (rows[part] for part in self._rollout.parts(rows, _AT_ONCE))

    def value_loss(self, values: Tensor, rows: NDArray[np.int64]) -> Tensor:
        """Half the mean squared error of values, in units of the variance of returns.

        Weighted by `Dataset.known_share`.
        """
        returns, shares = (
            torch.from_numpy(each[rows]).to(values.device) for each in (self._returns, self._shares)
        )
        error = ((values - returns) / self._std).square() * shares
        return 0.5 * error.sum() / shares.sum().clamp_min(1.0)

    @torch.no_grad()
    def figures(self, net: Policy, rows: NDArray[np.int64]) -> HeldOut:
        self.recall(net)
        if not len(rows):
            return HeldOut()
        logprobs, values, is_right = [], [], []
        parts = list(self._in_order(rows))
        rows = np.concatenate(parts)
        for part in parts:
            new = self.evaluate(net, part)
            logprobs.append(new.logprobs.cpu().numpy().astype(np.float64))
            values.append(new.values.cpu().numpy().astype(np.float64))
            is_right.append(self._is_right(net, part))
        labelled = [
            space
            for space in self._dataset.action_space.values()
            if not isinstance(space, ContinuousActionSpace)
        ]
        returns, shares = self._returns[rows].astype(np.float64), self._shares[rows]
        left = _moments(returns - np.concatenate(values), shares)[1]
        variance = _moments(returns, shares)[1]
        return HeldOut(
            -float(np.concatenate(logprobs).mean()),
            float(np.concatenate(is_right).mean()) if labelled else _NAN,
            1 - left / variance if self._has_value and variance > 0 else _NAN,
        )

    def _is_right(self, net: Policy, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`(num_rows,) bool`: the network prefers all chosen labels and entities."""
        minibatch = self._rollout.minibatch(rows)
        best = net.act(minibatch.obs, greedy=True, **past_argument(minibatch.past)).actions
        is_right = np.ones(len(rows), dtype=np.bool_)
        for name, space in self._dataset.action_space.items():
            if not isinstance(space, ContinuousActionSpace):
                actors = minibatch.obs.action_masks[name].actors
                is_right[actors.row_index[minibatch.samples[name] != best[name]]] = False
        return is_right


def _split(
    dataset: Dataset, share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training rows, and rows of held-out episodes."""
    rows = np.arange(len(dataset))
    if not share:
        return rows, rows[:0]
    episodes = np.unique(dataset.episode)
    if len(episodes) < 2:
        raise UsageError(
            "there is only one episode, so none can be held out: record more, or set held_out to 0"
        )
    count = min(max(1, round(share * len(episodes))), len(episodes) - 1)
    is_held_out = np.isin(dataset.episode, rng.permutation(episodes)[:count])
    return rows[~is_held_out], rows[is_held_out]


def _samples(space: ActionSpace, actions: RaggedArray[Any]) -> NDArray[Any]:
    """Actions as samples of their distribution, see `GaussianDistribution`."""
    if not isinstance(space, ContinuousActionSpace):
        return actions.values
    low, high = (np.asarray(bound, dtype=np.float64) for bound in (space.low, space.high))
    half = 0.5 * high - 0.5 * low  # not half the difference, which can overflow
    middle = 0.5 * high + 0.5 * low
    return ((actions.values - middle) / half).astype(np.float32)


def _moments(values: NDArray[np.float64], weights: NDArray[np.float32]) -> tuple[float, float]:
    """Weighted mean and variance; 0 if all weights are 0."""
    total = float(weights.sum(dtype=np.float64))
    if not total > 0:
        return 0.0, 0.0
    mean = float((values * weights).sum() / total)
    return mean, float((np.square(values - mean) * weights).sum() / total)


def _parts(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for first in range(0, len(rows), _AT_ONCE):
        yield rows[first : first + _AT_ONCE]
