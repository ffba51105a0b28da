"""`entity-env dataset` and `clone`: decisions of recorded games, and agents that imitate them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.agents.imitation.dataset_file import is_dataset_file
from entity_env.authoring.game import Game
from entity_env.authoring.identity import about_game, changed_rules, identity_of
from entity_env.authoring.local_run import Turn
from entity_env.cli.commands.replay import game_of
from entity_env.cli.commands.train import require_text, require_unused
from entity_env.cli.display.console import ProgressBar, echo
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import (
    HUMAN,
    AgentLoader,
    is_batch,
    load_game,
    load_players,
    make_vec_env,
    player_names,
)
from entity_env.cli.options import (
    COUNT,
    SEED,
    FiniteFloat,
    FiniteRange,
    game_argument,
    reading_limit_options,
    require_writable,
    set_option,
)
from entity_env.cli.training import preset_of
from entity_env.core.space_json import differences
from entity_env.errors import UsageError
from entity_env.interrupts import INTERRUPTED
from entity_env.replay.dataset import dataset_of, replay_files
from entity_env.replay.new_process import PlayLimits
from entity_env.views.scene import one_line

if TYPE_CHECKING:
    from entity_env.agents.imitation import CloneResult


_MAX_SHOWN: Final = 5
_MAX_LINE: Final = 500


class _Source(NamedTuple):
    """Where decisions come from, as the options say."""

    paths: Sequence[Path]
    agents: Sequence[int | str]
    winners: bool
    min_reward: float | None
    play: Sequence[str]
    episodes: int
    greedy: bool
    seed: int
    limits: PlayLimits

    def decisions(self, game: Game | None) -> Dataset:
        """All decisions; of replays and datasets their spaces must be those of the game."""
        if self.play and game is None:
            raise UsageError("--play needs the game to play: name it, --game GAME")
        if not self.paths and not self.play:
            raise UsageError("name replays, folders of replays or datasets, or --play an agent")
        found = [self._loaded(path, game) for path in self.paths if is_dataset_file(path)]
        rest = [path for path in self.paths if not is_dataset_file(path)]
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
                raise UsageError(f"{path} is of another game than {game.name}: {'; '.join(found)}")
            for line in _differences(path, dataset, game):
                echo(line, err=True)
        ids = [agent for agent in self.agents if isinstance(agent, int)]
        if len(ids) < len(self.agents):
            raise UsageError(f"a dataset has no names of agents: give their numbers for {path}")
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
                limits=self.limits,
            )

    def _played(self, game: Game) -> Dataset:
        """Episodes that are played now; those who only fill other places are not imitated."""
        names = player_names(game, self.play)
        if HUMAN in names:
            raise UsageError(
                "people are imitated from replays: entity-env record GAME --agent human"
            )
        ids = [
            i
            for i, name in enumerate(names)
            if (i in self.agents or name in self.agents if self.agents else i < len(self.play))
        ]
        if not ids:
            raise UsageError(f"--agent is none of those that play: {', '.join(names)}")
        agents = load_players(game, names, self.seed, AgentLoader(self.greedy))
        with ProgressBar(self.episodes) as bar, game_errors(game):

            def count(turn: Turn) -> None:
                if turn.episode is not None and not turn.agent_id:
                    bar.count()

            recorder = DatasetRecorder(watch=count, agents=names)
            game.run(
                *agents,
                seed=self.seed,
                episodes=self.episodes,
                watch=recorder,
                step_timeout_s=self.limits.step_timeout_s,
            )
        return self._chosen(recorder.dataset(), ids)

    def _chosen(self, dataset: Dataset, ids: Sequence[int]) -> Dataset:
        rows = np.isin(dataset.agent_id, list(ids)) if ids else None
        if rows is not None and not rows.any():
            there = np.unique(dataset.agent_id).tolist()[:20]
            raise UsageError(f"no decision is of agent {list(ids)}: there are the agents {there}")
        return dataset.filter(rows, winners=self.winners, min_reward=self.min_reward)


def _source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what says where decisions come from; the command gets a `_Source` as `source`."""

    @click.argument("paths", nargs=-1, metavar="[DATA]...", type=click.Path(path_type=Path))
    @click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="N|NAME",
        help="Only this agent: its number, or its name in the replays. May be repeated.  "
        "[default: all, or those of --play]",
    )
    @click.option("--winners", is_flag=True, help="Only the best agents of every episode.")
    @click.option(
        "--min-reward", type=FiniteFloat(), help="Only agents that earned that in their episode."
    )
    @click.option(
        "--play",
        multiple=True,
        metavar="AGENT",
        help="Play now with this agent, and use its decisions: as --agent of entity-env play. In a "
        "game for several agents, repeat the option; others are random.",
    )
    @click.option("--episodes", type=COUNT, default=100, help="With --play: number of episodes.")
    @click.option(
        "--greedy", is_flag=True, help="With --play: trained agents take the most probable action."
    )
    @click.option("--seed", type=SEED, default=1, help="Seed of the episodes, and of learning.")
    @reading_limit_options
    @wraps(command)
    def with_source(*, agents: Sequence[str], **options: Any) -> object:  # noqa: ANN401 - as click's
        given = {name: options.pop(name) for name in _Source._fields if name != "agents"}
        chosen = [int(each) if each.isdecimal() and len(each) < 9 else each for each in agents]
        return command(source=_Source(agents=chosen, **given), **options)

    return with_source


def _differences(path: Path, dataset: Dataset, game: Game) -> Iterator[str]:
    """Lines on what a dataset was recorded of, where it is not this game as it is now."""
    names = {str(each["game"]): None for each in dataset.recordings if "game" in each}
    if others := [name for name in names if name != game.name]:
        yield f"{path} was recorded of {', '.join(others[:_MAX_SHOWN])}, not of {game.name}"
    found = [each.get("identity") for each in dataset.recordings if each.get("game") == game.name]
    now = identity_of(game) if found else {}
    words = dict.fromkeys(changed_rules(identity, now) for identity in found)
    for changed in [each for each in words if each][:1]:
        yield f"the game has changed since {path} was recorded: {changed}"


def _shown(path: Path, dataset: Dataset) -> Iterator[str]:
    """What a dataset says of itself, line by line."""
    yield f"{path}: {_described(dataset)}"
    entities, actions = list(dataset.obs_space.entities), list(dataset.action_space)
    yield f"entities: {', '.join(entities) or 'none'}; actions: {', '.join(actions) or 'none'}"
    if dataset.seed is not None:
        seeds = list(dict.fromkeys(dataset.seed.tolist()))
        more = f" and {len(seeds) - _MAX_SHOWN} more" if len(seeds) > _MAX_SHOWN else ""
        yield f"episode seeds: {', '.join(map(str, seeds[:_MAX_SHOWN]))}{more}"
    for each in dataset.recordings[:_MAX_SHOWN]:
        yield f"recorded of {_one_line(each.get('game', 'an unknown game'))}"
        for name, value in each.items():
            if name != "game" and value not in (None, {}, []):
                yield f"  {_one_line(name)}: {_one_line(value)}"
    if len(dataset.recordings) > _MAX_SHOWN:
        yield f"and {len(dataset.recordings) - _MAX_SHOWN} more recordings"
    if not dataset.recordings:
        yield "nothing is known of the game and the agents"


def _one_line(value: object) -> str:
    """A value of a header as one line of bounded length."""
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


@click.command()
@_source_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write: NAME.npz, or NAME.parquet, which needs pyarrow.  [default: show what the "
    "datasets DATA are]",
)
@click.option(
    "--game",
    metavar="GAME",
    help="The game of the decisions.  [default: the one that the replays name, if it is needed]",
)
@set_option
def dataset(source: _Source, out: Path | None, game: str | None, settings: Sequence[str]) -> None:
    """Write the decisions of replays, or of agents that --play, to one file; or show such files.

    DATA are replays, folders of replays, and other such files. A decision has the observation, the
    actions, the reward until the next one, how the episode ended, and its number. numpy reads an
    .npz; pandas, polars and DuckDB read a .parquet, one row a decision.

    The file says which game it is of, its source and settings, the agents and the seeds: without
    --out, the command shows that.
    """
    if out is None:
        if source.play or not source.paths or not all(map(is_dataset_file, source.paths)):
            raise UsageError("name the file to write, --out NAME.npz, or datasets to be shown")
        for path in source.paths:
            echo("\n".join(_shown(path, Dataset.load(path))))
        return
    if not is_dataset_file(out):
        raise UsageError(f"--out must be NAME.npz or NAME.parquet, got {out}")
    if settings and game is None:
        raise UsageError("--set is for a game: name it, --game GAME")
    chosen = None if game is None else load_game(game, settings)
    require_writable(out.parent)
    found = source.decisions(chosen)
    found.save(out)
    echo(f"{out}: {_described(found)}, {out.stat().st_size:,} bytes")
    words = ["entity-env", "clone", game or "GAME", str(out)]
    echo(f"imitate them: {shlex.join(words)}")


@click.command()
@game_argument
@_source_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the checkpoint and the curves.  [default: runs/GAME-clone]",
)
@click.option("--epochs", type=COUNT, default=100, help="Most epochs over the decisions.")
@click.option(
    "--patience", type=COUNT, default=10, help="Epochs without a better network before it ends."
)
@click.option(
    "--held-out",
    type=FiniteRange(0, 1, max_open=True),
    default=0.1,
    help="Share of the episodes that only measure the network; 0 = none.",
)
@click.option("--minibatch-size", type=COUNT, default=64, help="Decisions in a minibatch.")
@click.option("--learning-rate", type=FiniteFloat(), default=0.001, help="Learning rate of Adam.")
@click.option("--weight-decay", type=FiniteFloat(), default=0.0, help="Decay of the weights.")
@click.option(
    "--vf-coef", type=FiniteFloat(), default=0.5, help="Weight of the value's loss; 0 = no value."
)
@click.option(
    "--gamma",
    type=FiniteFloat(),
    help="Discount factor of the value, per decision.  [default: that of train for the game]",
)
@click.option("--device", default="cpu", help="Device of torch.")
@set_option
def clone(
    game: str,
    source: _Source,
    out: Path | None,
    settings: Sequence[str],
    **options: Any,  # noqa: ANN401 - fields of CloneConfig
) -> None:
    """Train an agent for GAME that imitates recorded decisions: behavioural cloning.

    DATA are replays, folders of replays, or files of entity-env dataset; or agents --play now. Some
    episodes are held out; the network that finds their decisions most probable is kept. Its value
    is learnt, too, so that PPO can go on: entity-env train --init-from. Ctrl-C keeps the best,
    with exit code 130.
    """
    chosen = load_game(game, settings)
    out = Path("runs", f"{chosen.name}-clone") if out is None else out
    require_text(out)
    require_unused(out)
    require_writable(out)
    preset = preset_of(chosen).settings
    options["gamma"] = preset.get("gamma", 0.99) if options["gamma"] is None else options["gamma"]
    found = source.decisions(chosen)
    if is_batch(chosen):  # its batch environment knows of which entities there is exactly one
        with make_vec_env(chosen, 1) as vec:
            found = replace(found, obs_space=vec.obs_space())
    echo(_described(found))
    about = {"game": game, "imitates": [*map(str, source.paths), *source.play]}
    with ProgressBar(options["epochs"], "cloning") as bar:
        # Here, inside the display: importing torch takes seconds.
        from entity_env.agents.imitation import CloneConfig, clone as clone_agent

        config = CloneConfig(seed=source.seed, net=preset.get("net"), **options)
        result = clone_agent(
            found,
            config,
            out=out,
            on_update=bar.count,
            about={**about, **about_game(chosen)},
        )
    _report(result, [game, *(word for each in settings for word in ("--set", each))], out)
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
