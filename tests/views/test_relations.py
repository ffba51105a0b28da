"""Relations in pictures and words: lines between places, and the names of both entities."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from benchmarks.peers.network_vectors import random_weights
from entity_env import Entity, Game, Obs, Observation, ObsSpace, SelectEntity
from entity_env.agents import Agent, HumanAgent, RandomAgent
from entity_env.agents.rogue_net import NumpyAgent, RogueNetConfig
from entity_env.authoring.local_run import Turn
from entity_env.views import find_look
from entity_env.views.describe import describe_observation, entity_tables, words_of
from entity_env.views.drawing import Drawing
from entity_env.views.look import Look, Style
from entity_env.views.seen import SeenObservation, seen_entities
from tests.games.relation_games import convoys, routes
from tests.views.test_animation import animation_of, data_of


@dataclass
class Dot:
    x: float
    y: float

    def __str__(self) -> str:
        return f"dot {self.x:g}"


@dataclass
class Link:
    a: Dot
    b: Dot
    size: int

    def __str__(self) -> str:
        return f"{self.a} to {self.b}"


PULL = SelectEntity(Link)


def play(agent: Agent, *, seed: int) -> None:
    """Three dots with two links between them, a link of one to itself, and a hidden dot."""
    dots = [Dot(0, 0), Dot(2, 1), Dot(3, 0)]
    links = [Link(dots[0], dots[1], 5), Link(dots[1], dots[1], 6), Link(dots[1], dots[2], 7)]
    obs = Obs().actors(dots, PULL).relations(links).visible(Dot, [True, True, False])
    if agent.act(obs, PULL) is not None:
        agent.game_over(Obs())


links = Game(play, entities=(Dot,), relations=(Link,), actions=(PULL,), name="links")


def first_observation(game: Game) -> Observation:
    turns: list[Turn] = []
    game.run(RandomAgent(seed=0), seed=1, watch=turns.append)
    return turns[0].observation


def test_words_name_both_entities() -> None:
    seen = list(seen_entities(first_observation(links), links.obs_space()))
    assert [[end.index for end in each.ends] for each in seen[3:]] == [[0, 1], [1, 1], [1, 2]]
    assert words_of(seen[3]) == "Link a=(Dot x=0 y=0) b=(Dot x=2 y=1) size=5"
    assert words_of(seen[5]) == "Link a=(Dot x=2 y=1) b=(hidden) size=7"
    assert words_of(seen[3], Look(styles={"Dot": Style(label="x")})).startswith(
        "Link a=(Dot 0 y=0)"
    )
    assert words_of(seen[3], find_look(links)) == "dot 0 to dot 2"
    lines = describe_observation(first_observation(links), links.obs_space()).splitlines()
    assert lines[2:] == [
        "Link a=(Dot x=0 y=0) b=(Dot x=2 y=1) size=5",
        "Link a=(Dot x=2 y=1) b=(Dot x=2 y=1) size=6",
        "Link a=(Dot x=2 y=1) b=(hidden) size=7",
    ]
    rows = entity_tables(seen, find_look(links))["Link"]
    assert dict(rows[0].cells) == {"a": "dot 0", "b": "dot 2", "size": "5"}


@pytest.mark.parametrize("hidden", [True, False])
def test_a_relation_between_two_places_is_a_line(hidden: bool) -> None:
    drawing = Drawing(Look(), links.obs_space())
    seen = SeenObservation(first_observation(links), links.obs_space(), hidden=hidden)
    drawing.include(seen)
    shapes = drawing.draw(seen).shapes
    lines = [shape for shape in shapes if shape.kind == "line"]
    assert [line.of for line in lines] == ([3, 5] if hidden else [3])
    centers = {shape.of: shape.center for shape in shapes if shape.of in (0, 1)}
    assert lines[0].points == (centers[0], centers[1])
    texts = [shape.text for shape in shapes if shape.kind == "text"]
    assert "Dot x=2 y=1" in texts  # the link of a dot to itself is in a table


def test_relations_without_places_are_rows() -> None:
    drawing = Drawing(Look(), routes.obs_space())
    seen = SeenObservation(first_observation(routes), routes.obs_space())
    drawing.include(seen)
    shapes = drawing.draw(seen).shapes
    assert not any(shape.kind == "line" for shape in shapes)
    sizes = {f"Planet size={each.features[0]:g}" for each in seen["Planet"]}
    assert sizes <= {shape.text for shape in shapes}


def test_a_person_chooses_among_the_links_of_a_dot() -> None:
    import io

    out = io.StringIO()
    links.run(HumanAgent(source=io.StringIO("1\n3\n"), out=out))
    assert "Link a=(Dot x=0 y=0) b=(Dot x=2 y=1) size=5" in out.getvalue()


def test_the_actor_of_a_global_decision_is_not_shown() -> None:
    spaces = convoys.obs_space(), convoys.action_space()
    agent = NumpyAgent(random_weights(spaces, RogueNetConfig(d_model=16)), seed=0)
    turns: list[Turn] = []
    convoys.run(agent, watch=turns.append)
    turns = [replace(turn, thoughts=agent.think(turn.observation)) for turn in turns[:-1]]
    animation = animation_of(convoys, turns)
    assert "__actor__" not in json.dumps(data_of(animation.html()))
    for turn, still in zip(turns, animation.stills, strict=True):
        types = [words.partition(" ")[0] for words in still.words]
        assert types == ["Planet"] * 3 + [""] + ["Route"] * 5
        assert len(still.attention) == 3, "neither the actor nor relations"
        assert max(still.attention) > 0
        titles = [bars.title for bars in still.actors]
        assert titles == ["Convoy.kind", "Convoy.route", "Convoy.size"]
        assert "__actor__" not in describe_observation(turn.observation, convoys.obs_space())


def test_wrong_rows_are_drawn_with_their_numbers() -> None:
    space = ObsSpace((), {"A": Entity(("x",)), "R": Entity(("s", "t"), references=("A", "A"))})
    rows = {"A": np.ones((1, 1)), "R": np.array([[0.0, 3.0], [0.0, float("nan")]])}
    found = Observation(reward=0.0, features=rows)
    assert describe_observation(found, space).splitlines()[1] == "R s=0 t=3"
    drawing = Drawing(Look(), space)
    drawing.include(SeenObservation(found, space))
    drawing.draw(SeenObservation(found, space))
