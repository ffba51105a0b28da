"""`entity-env dataset` and `clone`: recorded decisions, and agents that imitate them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np

from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.imitation import CloneConfig, Dataset, DatasetRecorder
from entity_env.agents.imitation.dataset_file import is_dataset_file
from entity_env.agents.ppo import PPOConfig
from entity_env.agents.training.tracking.settings_file import parse_setting_text
from entity_env.authoring.game import Game
from entity_env.authoring.identity import about_game, changed_rules, identity_of
from entity_env.authoring.local_run import EpisodesSeen, RunLimits, Turn
from entity_env.cli.command import Argument, CliOption, Section
from entity_env.cli.commands.replay import game_of
from entity_env.cli.commands.train import require_text, require_unused
from entity_env.cli.display.console import ProgressBar, cut_words, echo
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import AgentLoader, load_game, load_players, player_names
from entity_env.cli.options import (
    Count,
    File,
    Folder,
    GameName,
    GameSettings,
    Greedy,
    MaxSteps,
    ReadingLimits,
    SeedNumber,
    require_writable,
    step_limit,
)
from entity_env.core.spaces import briefly, differences
from entity_env.errors import UsageError
from entity_env.interrupts import INTERRUPTED
from entity_env.replay.dataset import dataset_of, replay_files
from entity_env.vec.game_training import is_batch, make_vec_env, preset_of
from entity_env.views.scene import one_line

if TYPE_CHECKING:
    from entity_env.agents.imitation import CloneResult


_MAX_SHOWN: Final = 5
_MAX_LINE: Final = 500
_KAGGLE: Final = ".json"
"""Suffix of episodes that kaggle-environments saved."""


@dataclass(frozen=True, kw_only=True)
class DecisionSource:
    """Where decisions come from."""

    paths: Annotated[tuple[Path, ...], Argument("[DATA]...")] = ()
    names: Annotated[
        tuple[str, ...],
        CliOption(name="--agent", metavar="N|NAME", default="all, or those given by --play"),
    ] = ()
    """Use only this agent, by its number or its name in the replays. May be repeated."""
    winners: bool = False
    """Use only the best agents of each episode."""
    min_reward: float | None = None
    """Only agents with at least this reward in the episode."""
    play: Annotated[tuple[str, ...], CliOption(metavar="AGENT")] = ()
    """Play now with this agent and use its decisions; AGENT is as for entity-env play --agent. In
    a game for several agents, repeat the option; the others are random."""
    episodes: Count = 100
    """With --play: number of episodes."""
    greedy: Greedy = None
    seed: SeedNumber = 1
    """Seed of the episodes and of training."""
    max_steps: MaxSteps = None
    limits: ReadingLimits

    @property
    def agents(self) -> list[int | str]:
        """Agents to imitate, by number or name; empty = all."""
        return [int(each) if each.isdecimal() and len(each) < 9 else each for each in self.names]

    def decisions(self, game: Game | None) -> Dataset:
        """All decisions; spaces of replays and datasets must match the game's."""
        if self.play and game is None:
            raise UsageError("--play needs a game: add --game GAME")
        if not self.paths and not self.play:
            raise UsageError(
                "give replays, folders of replays or datasets as DATA, or an agent with --play"
            )
        found = [self._loaded(path, game) for path in self.paths if is_dataset_file(path)]
        episodes = [path for path in self.paths if path.suffix == _KAGGLE]
        if episodes:
            found.append(self._of_kaggle(episodes, game))
        rest = [p for p in self.paths if not is_dataset_file(p) and p not in episodes]
        if rest:
            found.append(self._replayed(replay_files(rest), game))
        if self.play and game is not None:
            found.append(self._played(game))
        return Dataset.concat(found)

    def _loaded(self, path: Path, game: Game | None) -> Dataset:
        dataset = Dataset.load(path)
        if game is not None:
            own, names = (game.obs_space(), game.action_space()), {"expected_name": str(path)}
            if found := differences(dataset.spaces, own, **names):
                raise UsageError(
                    f"{path} was recorded with a different game than {game.name}: {briefly(found)}"
                )
            for line in _differences(path, dataset, game):
                echo(line, err=True)
        ids = [agent for agent in self.agents if isinstance(agent, int)]
        if len(ids) < len(self.agents):
            raise UsageError(f"a dataset does not name its agents: use their numbers for {path}")
        return self._chosen(dataset, ids)

    def _replayed(self, files: Sequence[Path], game: Game | None) -> Dataset:
        with ProgressBar(len(files), "reading") as bar, ExitStack() as stack:
            if game is not None:
                stack.enter_context(game_errors(game))
            return dataset_of(
                files,
                game or game_of,
                agents=self.agents,
                winners=self.winners,
                min_reward=self.min_reward,
                on_replay=bar.count,
                limits=self.limits.limits,
            )

    def _of_kaggle(self, files: Sequence[Path], game: Game | None) -> Dataset:
        """Decisions of episodes that kaggle-environments saved."""
        from entity_env.interop.kaggle import ADAPTED
        from entity_env.interop.kaggle.episodes import kaggle_dataset

        if game is not None and game.name not in ADAPTED:
            there = " or ".join(f"kaggle:{name}" for name in ADAPTED)
            raise UsageError(f"{files[0]} needs the game {there}, got {game.name}")
        with ProgressBar(len(files), "reading") as bar:
            return kaggle_dataset(
                files,
                ADAPTED if game is None else (game.name,),
                agents=self.agents,
                winners=self.winners,
                min_reward=self.min_reward,
                step_timeout_s=self.limits.step_timeout_s,
                on_episode=bar.count,
            )

    def _played(self, game: Game) -> Dataset:
        """Decisions of the agents in --agent, or else in --play, in episodes played now."""
        names = player_names(game, self.play)
        if HUMAN in names:
            raise UsageError(
                "human players are imitated from replays: entity-env record GAME --agent human"
            )
        ids = [
            i
            for i, name in enumerate(names)
            if (i in self.agents or name in self.agents if self.agents else i < len(self.play))
        ]
        if not ids:
            raise UsageError(f"--agent is not one of the agents that play: {', '.join(names)}")
        agents = load_players(game, names, self.seed, AgentLoader(self.greedy))
        seen, limit = EpisodesSeen(), step_limit(self.max_steps)
        with ProgressBar(self.episodes, max_steps=limit) as bar, game_errors(game):

            def watch(turn: Turn) -> None:
                seen(turn)
                bar.watch(turn)

            recorder = DatasetRecorder(watch=watch, agents=names)
            game.run(
                *agents,
                seed=self.seed,
                episodes=self.episodes,
                watch=recorder,
                step_timeout_s=self.limits.step_timeout_s,
                limits=RunLimits(max_steps=limit, agent_timeout_s=self.limits.step_timeout_s),
            )
        if seen.num_cut:
            echo(cut_words(seen.num_cut, self.episodes, limit), err=True)
        return self._chosen(recorder.dataset(), ids)

    def _chosen(self, dataset: Dataset, ids: Sequence[int]) -> Dataset:
        rows = np.isin(dataset.agent_id, list(ids)) if ids else None
        if rows is not None and not rows.any():
            there = np.unique(dataset.agent_id).tolist()[:20]
            raise UsageError(f"no decision is from agent {list(ids)}: the agents are {there}")
        return dataset.filter(rows, winners=self.winners, min_reward=self.min_reward)


def _differences(path: Path, dataset: Dataset, game: Game) -> Iterator[str]:
    """Lines on how the game has changed since a dataset was recorded."""
    names = {str(each["game"]): None for each in dataset.recordings if "game" in each}
    if others := [name for name in names if name != game.name]:
        yield f"{path} was recorded with {', '.join(others[:_MAX_SHOWN])}, not with {game.name}"
    found = [each.get("identity") for each in dataset.recordings if each.get("game") == game.name]
    now = identity_of(game) if found else {}
    words = dict.fromkeys(changed_rules(identity, now) for identity in found)
    for changed in [each for each in words if each][:1]:
        yield f"the game has changed since {path} was recorded: {changed}"


def _shown(path: Path, dataset: Dataset) -> Iterator[str]:
    """Description of a dataset, line by line."""
    yield f"{path}: {_described(dataset)}"
    entities, actions = list(dataset.obs_space.entities), list(dataset.action_space)
    yield f"entities: {', '.join(entities) or 'none'}; actions: {', '.join(actions) or 'none'}"
    if dataset.seed is not None:
        seeds = list(dict.fromkeys(dataset.seed.tolist()))
        more = f" and {len(seeds) - _MAX_SHOWN} more" if len(seeds) > _MAX_SHOWN else ""
        yield f"episode seeds: {', '.join(map(str, seeds[:_MAX_SHOWN]))}{more}"
    for each in dataset.recordings[:_MAX_SHOWN]:
        yield f"recorded with {_one_line(each.get('game', 'an unknown game'))}"
        for name, value in each.items():
            if name != "game" and value not in (None, {}, []):
                yield f"  {_one_line(name)}: {_one_line(value)}"
    if len(dataset.recordings) > _MAX_SHOWN:
        yield f"and {len(dataset.recordings) - _MAX_SHOWN} more recordings"
    if not dataset.recordings:
        yield "the game and the agents are unknown"


def _one_line(value: object) -> str:
    """A header's value as one line of limited length."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name}={each}" for name, each in value.items())
    elif isinstance(value, list):
        text = "; ".join(map(_one_line, value[:_MAX_SHOWN]))
    else:
        text = str(value)
    return one_line(text)[:_MAX_LINE]


def _described(dataset: Dataset) -> str:
    episodes = dataset.num_episodes
    return f"{len(dataset):,} decisions of {episodes:,} episode{'s' if episodes > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class WriteDataset:
    """Write recorded decisions to one file, or show a file.

    DATA are replays, folders of replays, files written by this command, and episodes NAME.json
    saved by kaggle-environments; with --play, agents play now. A decision has the observation, the
    actions, the reward until the next decision, the number of its episode, and how that ended.
    numpy reads a .npz file; pandas, polars and DuckDB read a .parquet file, with one row per
    decision.

    The file also names the game, its source and settings, the agents and the seeds. Without --out,
    the command shows these facts for each file in DATA.
    """

    source: DecisionSource
    out: Annotated[File | None, CliOption(default="none; describe the files in DATA")] = None
    """File to write: NAME.npz or NAME.parquet (needs pyarrow)."""
    game: Annotated[
        str | None,
        CliOption(metavar="GAME", default="the one named in the replays, if needed"),
    ] = None
    """Game of the decisions."""
    settings: GameSettings

    def run(self) -> None:
        source, out, settings = self.source, self.out, self.settings.texts
        if out is None:
            if source.play or not source.paths or not all(map(is_dataset_file, source.paths)):
                raise UsageError("name the file to write with --out NAME.npz, or datasets to show")
            for path in source.paths:
                echo(*_shown(path, Dataset.load(path)))
            return
        if not is_dataset_file(out):
            raise UsageError(f"--out must be NAME.npz or NAME.parquet, got {out}")
        if settings and self.game is None:
            raise UsageError("--set needs a game: add --game GAME")
        game = None if self.game is None else load_game(self.game, settings)
        require_writable(out.parent)
        found = source.decisions(game)
        found.save(out)
        echo(f"{out}: {_described(found)}, {out.stat().st_size:,} bytes")
        words = ["entity-env", "clone", self.game or "GAME", str(out)]
        echo(f"imitate them: {shlex.join(words)}")


@dataclass(frozen=True, kw_only=True)
class CloneOptions:
    """Settings of `CloneConfig`; None = as the game is trained."""

    epochs: Annotated[int, CliOption(of=CloneConfig)] = CloneConfig.epochs
    patience: Annotated[int, CliOption(of=CloneConfig)] = CloneConfig.patience
    held_out: Annotated[float, CliOption(of=CloneConfig)] = CloneConfig.held_out
    minibatch_size: Annotated[int, CliOption(of=CloneConfig)] = CloneConfig.minibatch_size
    learning_rate: Annotated[float, CliOption(of=CloneConfig)] = CloneConfig.learning_rate
    weight_decay: Annotated[float, CliOption(of=CloneConfig)] = CloneConfig.weight_decay
    vf_coef: Annotated[float, CliOption(of=CloneConfig)] = CloneConfig.vf_coef
    gamma: Annotated[
        float | None, CliOption(of=CloneConfig, default="as train has for the game")
    ] = None
    device: Annotated[str, CliOption(of=CloneConfig)] = CloneConfig.device
    set_train: Annotated[tuple[str, ...], CliOption(metavar="net.NAME=VALUE")] = ()
    """Any setting of the network (net.memory=32), in TOML syntax. May be repeated. entity-env train
    GAME --set-train help lists them."""

    def config(self, preset: Mapping[str, Any], seed: int) -> CloneConfig:
        """The settings; those that are not given are as in the preset."""
        settings = {name: value for name, value in vars(self).items() if name != "set_train"}
        if self.gamma is None:
            settings["gamma"] = preset.get("gamma", CloneConfig.gamma)
        config = PPOConfig(net=preset.get("net", PPOConfig().net))
        for text in self.set_train:
            setting = parse_setting_text(text)
            if [*setting] != ["net"]:
                raise UsageError(
                    f"--set-train {text}: expected a setting of the network, net.NAME=VALUE"
                )
            config = config.changed(setting, f"--set-train {text}")
        net = config.net if self.set_train else preset.get("net")
        return CloneConfig(seed=seed, net=net, **settings)


@dataclass(frozen=True, kw_only=True)
class Clone:
    """Train an agent to imitate recorded decisions.

    This is behavioral cloning. DATA are replays, folders of replays, or files written by entity-env
    dataset; with --play, agents play now. Some episodes are held out, and the network that gives
    their decisions the highest probability is kept. The value is trained too, so PPO can continue
    from the result: entity-env train --init-from. Ctrl-C keeps the best network and exits with
    code 130.
    """

    game: GameName
    source: DecisionSource
    out: Annotated[Folder | None, CliOption(default="runs/GAME-clone")] = None
    """Folder for the checkpoint and the curves."""
    options: Annotated[CloneOptions, Section("Learning")]
    settings: GameSettings

    def run(self) -> None:
        game = load_game(self.game, self.settings.texts)
        out = self.out or Path("runs", f"{game.name}-clone")
        require_text(out)
        require_unused(out)
        require_writable(out)
        config = self.options.config(preset_of(game).settings, self.source.seed)
        found = self.source.decisions(game)
        if is_batch(game):  # its batch environment knows which entities are single
            with make_vec_env(game, 1) as vec:
                found = replace(found, obs_space=vec.obs_space())
        echo(_described(found))
        about = {"game": self.game, "imitates": [*map(str, self.source.paths), *self.source.play]}
        with ProgressBar(config.epochs, "cloning") as bar:
            # Inside the display: importing torch takes seconds.
            from entity_env.agents.imitation import clone

            result = clone(
                found,
                config,
                out=out,
                on_update=bar.count,
                about={**about, **about_game(game)},
            )
        _report(result, [self.game, *self.settings.words], out)
        if result.is_interrupted:
            raise SystemExit(INTERRUPTED)


def _report(result: CloneResult, game_words: Sequence[str], out: Path) -> None:
    held_out, words = result.held_out, [f"cloned {result.num_decisions:,} decisions"]
    words.append(f"in {result.progress.elapsed_s:.0f} s")
    figures = [f"kept epoch {result.epoch} of {result.progress.update}"]
    if math.isfinite(held_out.nll):
        figures.append(f"held-out nll {held_out.nll:.3f}")
    if math.isfinite(held_out.accuracy):
        figures.append(f"accuracy {held_out.accuracy:.1%}")
    if result.num_held_out:
        figures[-1] += f" ({result.num_held_out:,} decisions)"
    what = "stopped early, " if result.is_interrupted else ""
    echo(f"{what}{' '.join(words)}, {', '.join(figures)}, saved in {out}")
    game, place = shlex.join(game_words), shlex.quote(str(out))
    echo(f"play: entity-env play {game} --agent {place}")
    echo(f"measure: entity-env eval {game} --agent {place}")
    tuned = shlex.quote(f"{out}-ppo")
    options = f"--init-from {place} --stay-close 0.2 --out {tuned}"
    echo(f"fine-tune: entity-env train {game} {options}")
