"""A page for every game of the gallery, from its schema, docstrings, replay and scores.

    python -m tools.docs.games [--train] [GAME ...]

measures the scores anew, and writes them to docs/results/scores.json; staging the site only
reads them. With --train it also trains the networks that are not in the repository, for about ten
minutes; without, their scores stay.
"""

from __future__ import annotations

import inspect
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from entity_env import ContinuousActionSpace, Game, SelectEntityActionSpace
from entity_env.agents import Agent, PolicyAgent, RandomAgent, load_agent
from entity_env.agents.intervals import mean_of
from entity_env.cli.commands.info import summary
from entity_env.games.pixel import entities
from entity_env.replay import Replay
from entity_env.vec import GameTraining
from tools.docs.scripted import SCRIPTED
from tools.golden_replays import GAMES_BY_NAME, OUT as REPLAYS, ROOT, TRAINED

SCORES: Final = ROOT / "docs" / "results" / "scores.json"
EPISODES: Final = 200
STEPS: Final = {
    "multi_snake": 300_000,
    "treasure_hunt": 200_000,
    "cherry_pick": 50_000,
    "rock_paper_scissors": 50_000,
    "tic_tac_toe": 100_000,
    "azul_by_id": 20_000,
    "cartpole": 200_000,
    "mountain_car": 200_000,
    "pendulum": 200_000,
    "meteors": 200_000,
    "pixel:grid": 50_000,
    "pixel:maze": 20_000,
    "pixel:catch": 40_000,
}
"""Decisions that a network is trained on, for the games without a trained one in the repository."""
_MAX_CHOICES: Final = 12
_RULES: Final = ("Reward", "Ends when", "Cut when", "Starts")
_TITLES: Final = ("Entities and features", "Actions", *_RULES)
_ITEM: Final = re.compile(r"^    (\w+)(?: in .*)?: (.*)$")


def pages() -> dict[str, str]:
    """The page of every game, by path from the root of the site."""
    scores = json.loads(SCORES.read_text())
    return {f"games/{slug(name)}.md": _page(name, scores.get(name, {})) for name in GAMES_BY_NAME}


def slug(name: str) -> str:
    """Name of a game as that of its files."""
    return name.replace(":", "_")


def replay_pages() -> Iterator[tuple[str, str]]:
    """Path and content of the page that plays the replay of a game, for every game."""
    for name in GAMES_BY_NAME:
        replay = Replay.load(REPLAYS / f"{slug(name)}.replay")
        agent = load_agent(ROOT / TRAINED[name]) if name in TRAINED else None
        thinker = agent if isinstance(agent, PolicyAgent) else None
        yield f"replays/{slug(name)}.html", replay.animation(thinker=thinker).html()


# ------------------------------------------------------------------ a page


def _page(name: str, scores: Mapping[str, Any]) -> str:
    game = GAMES_BY_NAME[name]
    texts = sections(game)
    first = texts[""][:1].upper() + texts[""][1:]
    parts = [f"# {name}", first, _replay(name), _entities(game, texts), _actions(game, texts)]
    rules = (title for title in _RULES if title in texts)
    parts += [f"**{title}:** {' '.join(texts[title].split())}" for title in rules]
    parts += [_settings(game), _scores(game, scores), _commands(name)]
    return "\n\n".join(parts) + "\n"


def sections(game: Game) -> dict[str, str]:
    """Parts of a game's docstrings by their titles; its summary is that of ""."""
    found = {"": summary(game)}
    for text in _docstrings(game):
        found = {**_sections_of(text), **found}
    return found


def _sections_of(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    title = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            title = line.removesuffix(":") if line.removesuffix(":") in _TITLES else ""
        elif title:
            found[title] = f"{found.get(title, '')}{line}\n"
    return found


def _docstrings(game: Game) -> Iterator[str]:
    """Those that describe the game, the most special first."""
    yield inspect.getdoc(inspect.getmodule(game.play)) or ""
    if (batch := GameTraining.of(game).batch) is not None:
        yield inspect.getdoc(inspect.getmodule(batch)) or ""
    if game.name.startswith("pixel"):
        yield inspect.getdoc(entities) or ""


def _replay(name: str) -> str:
    page, picture = f"../replays/{slug(name)}.html", f"../pictures/{slug(name)}.png"
    who = "a trained agent plays" if name in TRAINED else "a random agent plays"
    return (
        f'<details class="replay"><summary><img src="{picture}" alt="{name}">'
        f"<span>▶ {who}</span></summary>"
        f'<iframe src="{page}" title="{name}: a replay" loading="lazy"></iframe></details>'
    )


def _entities(game: Game, texts: Mapping[str, str]) -> str:
    space, said = game.obs_space(), _items(texts.get("Entities and features", ""))
    rows = [(name, entity.features) for name, entity in space.entities.items()]
    if space.global_features:
        rows.append(("Global", space.global_features))
    shown = [
        [f"`{name}`", _code(features) or "none", said.get(name, "")] for name, features in rows
    ]
    return "## Entities\n\n" + _stacked(_table(["entity", "features", "what it is"], shown))


def _actions(game: Game, texts: Mapping[str, str]) -> str:
    said = _items(texts.get("Actions", ""))
    rows = []
    for name, space in game.action_space().items():
        if isinstance(space, SelectEntityActionSpace):
            choices = "an entity"
        elif isinstance(space, ContinuousActionSpace):
            bounds = zip(space.labels, space.low, space.high, strict=True)
            choices = ", ".join(
                f"`{label}` from {low:g} to {high:g}" for label, low, high in bounds
            )
        else:
            choices = _code(space.index_to_label)
        rows.append([f"`{name}`", choices, said.get(name, "")])
    return "## Actions\n\n" + _stacked(_table(["action", "choices", "what it is"], rows))


def _settings(game: Game) -> str:
    plain = getattr(inspect.getmodule(game.play), "play", None)  # of which another is a variant
    texts = (inspect.getdoc(each) or "" for each in (plain, game.play))
    said = {k: v for text in texts for k, v in _items(text.partition("Args:\n")[2]).items()}
    rows = [
        [f"`{name}`", f"`{parameter.default}`", said.get(name, "")]
        for name, parameter in game.parameters.items()
    ]
    shown = _stacked(_table(["setting", "default", "what it is"], rows)) if rows else "None."
    return f"## Settings\n\n{shown}"


def _items(text: str) -> dict[str, str]:
    """`    name: what it is` by name; lines that are indented more go on."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if item := _ITEM.match(line):
            name = item[1]
            found[name] = item[2]
        elif name and line.startswith("     "):
            found[name] += f" {line.strip()}"
        else:
            break
    return found


def _code(names: Sequence[str]) -> str:
    """Names as code, those of one array as its first and last; of many the first."""
    found = []
    for _, group in groupby(names, lambda name: name.rpartition(".")[0] or name):
        first, *others = group
        found.append(f"`{first}` … `{others[-1]}`" if others else f"`{first}`")
    many = len(found) > 3 * _MAX_CHOICES
    shown = ", ".join(found[:_MAX_CHOICES] if many else found)
    return f"{shown} and {len(found) - _MAX_CHOICES} more" if many else shown


def _stacked(table: str) -> str:
    """A table whose cells lie below each other on a narrow page; see docs/site.css."""
    return f'<div class="stacked" markdown>\n\n{table}\n\n</div>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _commands(name: str) -> str:
    lines = [f"entity-env play {name} --agent human", f"entity-env train {name}"]
    if name in TRAINED:
        lines.insert(1, f"entity-env play {name} --agent {TRAINED[name]} --think")
    return "## Try it\n\n```console\n" + "".join(f"$ {line}\n" for line in lines) + "```"


# ------------------------------------------------------------------ scores


def _scores(game: Game, scores: Mapping[str, Any]) -> str:
    against = "" if game.num_agents == 1 else " against random ones"
    rows = [
        [
            f"{who}{against}" + (f", `{score['agent']}`" if "agent" in score else ""),
            f"{_number(score['reward'])} ± {score['half_width']:.2g}",
            f"{score['length']:,.0f}",
            f"{score['version']}, {score['date']}",
        ]
        for who, score in scores.items()
    ]
    table = _table(["agent", "mean reward, 95 % interval", "length", "version"], rows)
    script = " The scripted one is in `tools/docs/scripted.py`." if "scripted" in scores else ""
    return f"## Scores\n\n{EPISODES} episodes each, of the first agent.{script}\n\n{table}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def measure(game: Game, first: Agent, episodes: int = EPISODES) -> dict[str, float | str]:
    """Mean reward of the first agent among random ones, half of its interval, and mean length."""
    agents = [first, *(RandomAgent(seed=1 + i) for i in range(1, game.num_agents))]
    played = [e for e in game.run(*agents, seed=1, episodes=episodes) if e.agent_id == 0]
    rewards = [float(episode.reward) for episode in played]
    return {
        "reward": round(statistics.mean(rewards), 4),
        "half_width": round(mean_of(rewards).half, 4),
        "length": round(statistics.mean(episode.length for episode in played), 1),
        "version": version("entity-env"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def measure_all(name: str, known: Mapping[str, Any], *, trains: bool) -> dict[str, Any]:
    """Scores of the random, the scripted and the trained player of a game, as far as it has them.

    Args:
        known: earlier scores, of which the one of a network that would have to be trained stays.
        trains: train that network anew.
    """
    game = GAMES_BY_NAME[name]
    found: dict[str, Any] = {"random": measure(game, RandomAgent(seed=1))}
    if name in SCRIPTED:
        found["scripted"] = measure(game, SCRIPTED[name](1))
    if name in TRAINED:
        score = measure(game, load_agent(ROOT / TRAINED[name], seed=1))
        found["trained"] = {"agent": TRAINED[name], **score}
    elif trains:
        found["trained"] = {"agent": f"train --steps {STEPS[name]}", **_trained(name)}
    elif "trained" in known:
        found["trained"] = known["trained"]
    return found


def _trained(name: str) -> dict[str, float | str]:
    """The score of a network that `entity-env train` makes with its defaults."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "entity_env", "train", name, "--out", str(out)]
        options = ["--steps", str(STEPS[name]), "--seed", "1", "--compile", "never"]  # repeatable
        subprocess.run([*command, *options], check=True, stdout=sys.stderr)
        return measure(GAMES_BY_NAME[name], load_agent(out, seed=1))


def main() -> None:
    found = json.loads(SCORES.read_text())
    trains = "--train" in sys.argv
    for name in [each for each in sys.argv[1:] if each != "--train"] or GAMES_BY_NAME:
        found[name] = measure_all(name, found.get(name, {}), trains=trains)
        sys.stdout.write(f"{name}: {found[name]}\n")
        ordered = {each: found[each] for each in GAMES_BY_NAME if each in found}
        SCORES.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
