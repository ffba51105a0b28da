"""A page for every game of the gallery, from its schema, docstrings, replay and scores.

    python -m tools.docs.games [--train] [GAME ...]

measures the scores again, and writes them to docs/results/scores.json, which staging the site
reads. With --train it first trains the agents of the gallery (see `gallery`), which takes ten
minutes of processor time in all.
"""

from __future__ import annotations

import inspect
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from typing import Any, Final

from entity_env import ContinuousActionSpace, Game, SelectEntityActionSpace
from entity_env.agents import Agent, RandomAgent
from entity_env.agents.intervals import mean_of
from entity_env.cli.commands.info import summary
from entity_env.games.pixel import entities
from entity_env.vec import GameTraining
from tools.docs import gallery, play
from tools.docs.gallery import RECIPES, TRAINED, is_trained
from tools.docs.scripted import SCRIPTED
from tools.golden_replays import GAMES_BY_NAME, ROOT, slug as slug

_HOW: Final = ("steps", "cpu_s")
"""Keys of a score that say how its agent was trained."""
SCORES: Final = ROOT / "docs" / "results" / "scores.json"
EPISODES: Final = 200
GALLERY: Final = ROOT / "docs" / "games.md"
_BEGIN: Final = '<div class="gallery" markdown>'
_END: Final = "</div>"
_MAX_CHOICES: Final = 12
_RULES: Final = ("Reward", "Terminated when", "Truncated when", "Starts")
_TITLES: Final = ("Entities and features", "Actions", *_RULES)
_ITEM: Final = re.compile(r"^    (\w+)(?: in .*)?: (.*)$")


def pages() -> dict[str, str]:
    """The page of every game, by path from the root of the site."""
    scores = json.loads(SCORES.read_text())
    return {f"games/{slug(name)}.md": _page(name, scores.get(name, {})) for name in GAMES_BY_NAME}


def replay_seed(scores: Mapping[str, Any]) -> int:
    """The seed of the episode that is shown for a game, given its scores."""
    [seed] = (score["replay_seed"] for score in scores.values() if "replay_seed" in score)
    return int(seed)


def replay_pages() -> Iterator[tuple[str, str]]:
    """For every game, path and content of the page that plays an episode of it."""
    scores = json.loads(SCORES.read_text())
    for name in GAMES_BY_NAME:
        animation = gallery.animation(name, replay_seed(scores[name]))
        yield f"replays/{slug(name)}.html", animation.html()


# ------------------------------------------------------------------ the gallery


def with_gallery(page: str) -> str:
    """The page of all games, with current cards between `_BEGIN` and `_END`."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    scores = json.loads(SCORES.read_text())
    cards = "\n".join(_card(game, scores[name]) for name, game in GAMES_BY_NAME.items())
    return f"{before}{_BEGIN}\n\n{cards}\n\n{_END}{after}"


def _card(game: Game, scores: Mapping[str, Any]) -> str:
    """A film and its description; a still picture if the user prefers reduced motion."""
    picture, link = f"pictures/{slug(game.name)}", f"games/{slug(game.name)}.md"
    who = "a trained agent" if is_trained(game.name) else "a random agent"
    film = (
        f'<picture><source media="(prefers-reduced-motion: reduce)" srcset="{picture}.png">'
        f'<img src="{picture}.gif" alt="{game.name}: an episode of {who}" loading="lazy"></picture>'
    )
    words = f"{_sentence(summary(game))} {_figures(game.name, scores)}."
    return f"- [{film}]({link})\n  **[`{game.name}`]({link})** {words}"


def _figures(name: str, scores: Mapping[str, Any]) -> str:
    """The mean rewards of the trained and of a random agent, in words."""
    random, trained = scores["random"], scores["trained"]
    chance = _number(random["reward"])
    if not is_trained(name):
        return f"The film shows a random agent, whose mean reward is {chance}"
    words = f"Mean reward **{_number(trained['reward'])}**"
    most = random["reward"] + random["half_width"]
    if trained["reward"] - trained["half_width"] > most:
        return f"{words}; random moves earn {chance}"
    trained_half, random_half = f"{trained['half_width']:.2g}", f"{random['half_width']:.2g}"
    words += f" ± {trained_half}; random moves earn {chance} ± {random_half}"
    return f"{words}, so the agent has not learned this game in its short training"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ a page


def _page(name: str, scores: Mapping[str, Any]) -> str:
    game = GAMES_BY_NAME[name]
    texts = sections(game)
    parts = [
        f"# {name}",
        _sentence(texts[""]),
        _replay(name),
        *([play.mark(name)] if play.mark(name) else []),
        _entities(game, texts),
        _actions(game, texts),
    ]
    rules = (title for title in _RULES if title in texts)
    parts += [f"**{title}:** {' '.join(texts[title].split())}" for title in rules]
    parts += [_settings(game), _scores(game, scores), _commands(name)]
    return "\n\n".join(parts) + "\n"


def sections(game: Game) -> dict[str, str]:
    """Parts of a game's docstrings by title; the title "" stands for its summary."""
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
    """Docstrings that describe a game, the most specific first."""
    yield inspect.getdoc(inspect.getmodule(game.play)) or ""
    if (batch := GameTraining.of(game).batch) is not None:
        yield inspect.getdoc(inspect.getmodule(batch)) or ""
    if game.name.startswith("pixel"):
        yield inspect.getdoc(entities) or ""


def _replay(name: str) -> str:
    page, picture = f"../replays/{slug(name)}.html?play", f"../pictures/{slug(name)}.png"
    return (
        f'<details class="replay"><summary><img src="{picture}" alt="{name}">'
        f"<span>▶ a {'trained' if is_trained(name) else 'random'} agent plays</span></summary>"
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
    return "## Entities\n\n" + _table(["entity", "features", "what it is"], shown)


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
    return "## Actions\n\n" + _table(["action", "choices", "what it is"], rows)


def _settings(game: Game) -> str:
    # `game.play` may be a variant of the module's `play`.
    plain = getattr(inspect.getmodule(game.play), "play", None)
    texts = (inspect.getdoc(each) or "" for each in (plain, game.play))
    said = {k: v for text in texts for k, v in _items(text.partition("Args:\n")[2]).items()}
    rows = [
        [f"`{name}`", f"`{parameter.default}`", said.get(name, "")]
        for name, parameter in game.parameters.items()
    ]
    shown = _table(["setting", "default", "what it is"], rows) if rows else "None."
    return f"## Settings\n\n{shown}"


def _items(text: str) -> dict[str, str]:
    """`    name: what it is` by name; lines that are indented more continue an item."""
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
    """Names as code: of an array only the first and last, of a long list only the beginning."""
    found = []
    for _, group in groupby(names, lambda name: name.rpartition(".")[0] or name):
        first, *others = group
        found.append(f"`{first}` … `{others[-1]}`" if others else f"`{first}`")
    many = len(found) > 3 * _MAX_CHOICES
    shown = ", ".join(found[:_MAX_CHOICES] if many else found)
    return f"{shown} and {len(found) - _MAX_CHOICES} more" if many else shown


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _commands(name: str) -> str:
    lines = [f"entity-env play {name} --agent human", f"entity-env train {name}"]
    if is_trained(name):
        lines.insert(1, f"entity-env play {name} --agent {TRAINED[name]} --think")
    return "## Try it\n\n```console\n" + "".join(f"$ {line}\n" for line in lines) + "```"


# ------------------------------------------------------------------ scores


def _scores(game: Game, scores: Mapping[str, Any]) -> str:
    against = "" if game.num_agents == 1 else " against random agents"
    rows = [
        [
            f"{who}{against}{_training(score)}",
            f"{_number(score['reward'])} ± {score['half_width']:.2g}",
            f"{score['length']:,.0f}",
            f"{score['version']}, {score['date']}",
        ]
        for who, score in scores.items()
    ]
    table = _table(["agent", "mean reward, 95 % interval", "mean length", "version"], rows)
    script = " The scripted player is in `tools/docs/scripted.py`." if "scripted" in scores else ""
    return f"## Scores\n\nMeans over {EPISODES} episodes of the first agent.{script}\n\n{table}"


def _training(score: Mapping[str, Any]) -> str:
    """File and training time of a trained agent, in words; "" for other agents."""
    words = f", `{score['agent']}`" if "agent" in score else ""
    if "steps" in score:
        words += f", {score['steps']:,} decisions in {score['cpu_s']:,} s on one core"
    return words


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def measure(game: Game, first: Agent, episodes: int = EPISODES) -> dict[str, float | str]:
    """Mean reward of the first agent among random agents, half of its interval, and mean length."""
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
    """Scores of a game's random player, and of its scripted and trained players if there are any.

    Args:
        known: earlier scores; if the agent is not trained again, they say how it was trained.
        trains: train the agent again.
    """
    game = GAMES_BY_NAME[name]
    found: dict[str, Any] = {"random": measure(game, RandomAgent(seed=1))}
    if name in SCRIPTED:
        found["scripted"] = measure(game, SCRIPTED[name](1))
    how = {key: known["trained"][key] for key in _HOW if key in known.get("trained", {})}
    if trains and name in RECIPES:
        how = {"steps": RECIPES[name].steps, "cpu_s": round(gallery.train(name))}
    if is_trained(name):
        score = measure(game, gallery.agent_of(name))
        found["trained"] = {"agent": TRAINED[name], **how, **score}
    elif "trained" in known:
        found["trained"] = known["trained"]
    shown = found["trained" if is_trained(name) else "random"]
    shown["replay_seed"] = gallery.best_seed(name)
    return found


def main() -> None:
    found = json.loads(SCORES.read_text())
    trains = "--train" in sys.argv
    for name in [each for each in sys.argv[1:] if each != "--train"] or GAMES_BY_NAME:
        found[name] = measure_all(name, found.get(name, {}), trains=trains)
        sys.stdout.write(f"{name}: {found[name]}\n")
        ordered = {each: found[each] for each in GAMES_BY_NAME if each in found}
        SCORES.write_text(json.dumps(ordered, indent=1) + "\n")
        GALLERY.write_text(with_gallery(GALLERY.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
