"""Episodes as pages, SVG, pictures and videos."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Entity, Game, MissingExtraError, Observation, ObsSpace, UsageError
from entity_env.agents import RandomAgent, load_agent
from entity_env.authoring.local_run import PastStep, Thoughts, Turn
from entity_env.core.episode import Episode
from entity_env.core.observation import (
    Action,
    ContinuousAction,
    ContinuousActionMask,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    SelectEntityAction,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.games import cherry_pick, multi_snake, rock_paper_scissors, snake, treasure_hunt
from entity_env.views import Look, find_look
from entity_env.views.animation import Animation
from entity_env.views.parts.bars import ActorBars, Bar
from entity_env.views.pictures import Painter
from entity_env.views.scene import Scene
from tests import ROOT

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "<img src=x onerror=alert(1)>",
    "@DATA@ @TITLE@ \\1 ${1} &lt; ' \" ]]>",
    "\ud800 \0 \u2028 \u202e",
)
GAMES = (snake, multi_snake, cherry_pick, rock_paper_scissors, treasure_hunt)


def turns_of(game: Game, seed: int = 5) -> list[Turn]:
    turns: list[Turn] = []
    agents = [RandomAgent(seed=i) for i in range(game.num_agents)]
    game.run(*agents, seed=seed, watch=turns.append)
    return turns


def animation_of(game: Game, turns: Sequence[Turn] | None = None, **more: Any) -> Animation:  # noqa: ANN401
    found = turns_of(game) if turns is None else turns
    settings = {"num_agents": game.num_agents, "title": game.name, **more}
    return Animation.of(found, game.obs_space(), game.action_space(), find_look(game), **settings)


def data_of(html: str) -> dict[str, Any]:
    [data] = re.findall(r'id="data">([^<]*)<', html)
    loaded: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data)))
    return loaded


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_a_page_holds_every_turn(game: Game) -> None:
    turns = turns_of(game)
    animation = animation_of(game, turns, names=["ann"], about=[("seed", 3)])
    data = data_of(animation.html())
    names = ["ann", *(f"agent {i}" for i in range(1, game.num_agents))]
    assert (data["names"], data["about"], data["agents"]) == (
        names,
        [["seed", "3"]],
        game.num_agents,
    )
    assert data["title"] == animation.headline
    assert len(data["sides"]) == game.num_agents
    frames = data["frames"]
    assert [(f["g"], f["t"], f["s"]) for f in frames] == [
        (turn.agent_id, turn.step, pytest.approx(turn.score, abs=1e-4)) for turn in turns
    ]
    assert ["e" in frame for frame in frames] == [turn.episode is not None for turn in turns]
    for index, (frame, turn) in enumerate(zip(frames, turns, strict=True)):
        assert [data["shapes"][i][0] for i in frame["d"]] == [
            shape.kind[0] for shape in animation.shapes_of(index)
        ]
        if not turn.observation.is_blank:
            num_entities = sum(map(len, turn.observation.features.values()))
            assert len(frame.get("n", ())) == num_entities
        chosen = [data["words"][row[0]] for _, bars, *_ in frame.get("b", []) for row in bars]
        for action in turn.actions.values():
            if isinstance(action, GlobalCategoricalAction):
                assert chosen == [action.label]


def test_sizes_are_within_bounds() -> None:
    agent = load_agent(ROOT / "examples/ship/snake.agent", seed=1)
    turns: list[Turn] = []
    snake.run(agent, seed=3, watch=turns.append)
    assert len(turns) > 30
    assert len(animation_of(snake, turns).html()) <= 26_000


def test_its_repr_is_short_whatever_it_holds() -> None:
    animation = animation_of(snake)
    assert repr(animation) == f"Animation(snake, {len(animation)} pictures)"
    alone = replace(animation, stills=animation.stills[:1])
    assert repr(alone) == "Animation(snake, 1 picture)"


def test_the_same_episode_is_the_same_page() -> None:
    assert animation_of(snake).html() == animation_of(snake).html()
    assert animation_of(snake).svg() == animation_of(snake).svg()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_becomes_markup(hostile: str) -> None:
    name = hostile.replace("\0", "").replace("\ud800", "")  # not valid in names
    space = ObsSpace([name], {name: Entity([name, f"{name}2"])})
    actions = {name: GlobalCategoricalActionSpace([name, "b"])}
    observation = Observation(
        reward=0.0,
        features={name: np.ones((2, 2))},
        global_features=[1.0],
        actions={name: GlobalCategoricalActionMask()},
    )
    acted = {name: GlobalCategoricalAction(0, name, np.array([0.5, 0.5], np.float32))}
    end = Episode(1.0, 1, terminated=True, truncated=False, seed=0, metrics={hostile: 1.0})
    turns = [Turn(0, 0, 0.0, observation, acted), Turn(0, 1, 1.0, observation, {}, end)]
    pages = [
        Animation.of(
            turns, space, actions, title=title, names=[title], about=[(title, title)]
        ).html()
        for title in (hostile, "plain")
    ]
    first, second = (Tags(page).found for page in pages)
    assert first == second
    assert [page.count("<script") for page in pages] == [3, 3]
    assert [page.count("</script") for page in pages] == [3, 3]
    pages[0].encode()
    animation = Animation.of(turns, space, actions, title=hostile)
    for svg in (animation.svg(), animation.svg(0)):
        ElementTree.fromstring(svg)
    frame = animation._repr_html_()
    assert frame.startswith("<iframe ")
    assert Tags(frame).found == ["iframe"]


def two_entities(**more: Any) -> Observation:  # noqa: ANN401
    return Observation(reward=0.0, features={"A": np.array([[0.0, 0.0], [1.0, 1.0]])}, **more)


SPACE = ObsSpace([], {"A": Entity(["x", "y"])})


def one_still(turn: Turn, space: Any) -> Any:  # noqa: ANN401
    return Animation.of([turn], SPACE, space).stills[0]


def test_bars_are_the_thoughts_else_the_probabilities_else_the_choice() -> None:
    space = {"Move": GlobalCategoricalActionSpace(["UP", "DOWN"])}
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask()})
    probs = np.array([0.75, 0.25], np.float32)
    turn = Turn(0, 0, 0.0, observation, {"Move": GlobalCategoricalAction(1, "DOWN")})
    assert one_still(turn, space).actors[0].bars == [Bar("DOWN", None, True)]
    turn = replace(turn, actions={"Move": GlobalCategoricalAction(1, "DOWN", probs)})
    bars = [Bar("UP", 0.75, False), Bar("DOWN", 0.25, True)]
    assert one_still(turn, space).actors[0].bars == bars
    thoughts = Thoughts({"Move": np.array([[0.5, 0.5]], np.float32)}, value=2.0)
    still = one_still(replace(turn, thoughts=thoughts), space)
    assert [bar.share for bar in still.actors[0].bars] == [0.5, 0.5]
    assert still.value == 2.0


def test_what_is_not_allowed_comes_last_and_has_no_share() -> None:
    labels = [f"m{i}" for i in range(14)]
    space = {"Move": GlobalCategoricalActionSpace(labels)}
    mask = np.array([i % 2 == 0 for i in range(14)])
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask(mask)})
    action = GlobalCategoricalAction(2, "m2", np.where(mask, 1 / 7, 0).astype(np.float32))
    animation = Animation.of([Turn(0, 0, 0.0, observation, {"Move": action})], SPACE, space)
    [actor] = animation.stills[0].actors
    assert {bar.label for bar in actor.bars if bar.is_allowed} == {*labels[::2]}
    assert actor.num_more == 2
    data = data_of(animation.html())
    rows = data["frames"][0]["b"][0][1]
    assert {data["words"][row[0]]: row[1] for row in rows} == {
        bar.label: pytest.approx(1 / 7, abs=1e-4) if bar.is_allowed else -1 for bar in actor.bars
    }


def test_every_choice_of_snake_points_from_the_head() -> None:
    turns = turns_of(snake)
    data = data_of(animation_of(snake, turns).html())
    assert data["legend"][0][0] == "Head"
    for turn, frame in zip(turns, data["frames"], strict=True):
        for action in turn.actions.values():
            [[_, [[label, share, is_chosen, mark]]]] = frame["b"]
            assert (share, is_chosen) == (None, 1)
            (x, y), (u, v) = data["marks"][mark]
            head_x, head_y = turn.observation.features["Head"][0][:2]
            assert (x - 0.5, 9.5 - y) == (head_x, head_y)
            steps = {"UP": (0, -1), "DOWN": (0, 1), "LEFT": (-1, 0), "RIGHT": (1, 0)}
            assert (u - x, v - y) == steps[data["words"][label]]
            assert isinstance(action, GlobalCategoricalAction)


@pytest.mark.parametrize(
    ("names", "num_agents", "rewards", "headline"),
    [
        ([], 1, {}, "game: agent 0"),
        (["ann"], 1, {0: 2.0}, "game: ann, reward 2"),
        (["ann", "bob"], 2, {0: 1.0, 1: -1.0}, "game: ann 1, bob -1"),
        (["/a/b/x", "/a/x"], 2, {1: 0.5}, "game: x 1, x 2 0.5"),
        (["ann"] * 3, 10, {}, "game: ann 1, ann 2, ann 3, "),
    ],
)
def test_a_headline_names_agents_and_results(
    names: list[str], num_agents: int, rewards: dict[int, float], headline: str
) -> None:
    turns = [Turn(0, 0, 0.0, two_entities())]
    for agent_id, reward in rewards.items():
        end = Episode(reward, 1, terminated=True, truncated=False, seed=0)
        turns.append(Turn(agent_id, 1, reward, two_entities(), {}, end))
    found = Animation.of(turns, SPACE, {}, num_agents=num_agents, names=names)
    assert found.headline.startswith(headline)
    assert len(found.names) == num_agents
    assert (f"and {num_agents - 8} more" in found.headline) == (num_agents > 8)


def test_an_svg_has_the_colors_of_dark_pages() -> None:
    scene = Scene(2, 2)
    scene.circle(1, 1, 0.5, "#111111 #eeeeee80", stroke="#222222")
    scene.circle(1, 1, 0.5, "#111111")
    still = one_still(Turn(0, 0, 0.0, two_entities()), {})
    still = replace(still, shapes=[0, 1])
    animation = Animation("a", [], (2, 2), 1, [], scene.shapes, [still, still])
    for svg in (animation.svg(), animation.svg(0)):
        root = ElementTree.fromstring(svg)
        first, second = root.iter("{http://www.w3.org/2000/svg}circle")
        assert (first.get("fill"), second.get("fill")) == ("#111111", "#111111")
        assert second.get("class") is None
        rule = f".{first.get('class')}{{fill:#eeeeee;fill-opacity:0.502}}"
        assert f"@media(prefers-color-scheme:dark){{{rule}}}" in svg


@given(st.integers(2, 40), st.data())
def test_of_many_choices_the_likely_ones_and_the_chosen_one_are_shown(
    num: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(0, num - 1))
    probs = np.array(data.draw(st.permutations(range(num))), np.float32)
    space = {"Move": GlobalCategoricalActionSpace([f"m{i}" for i in range(num)])}
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask()})
    action = GlobalCategoricalAction(chosen, f"m{chosen}", probs)
    [actor] = one_still(Turn(0, 0, 0.0, observation, {"Move": action}), space).actors
    labels = [bar.label for bar in actor.bars]
    assert labels == sorted(labels, key=lambda label: int(label[1:]))
    assert len(labels) == min(num, 12)
    assert len(labels) + actor.num_more == num
    assert [bar.label for bar in actor.bars if bar.is_chosen] == [f"m{chosen}"]
    likely = {f"m{i}" for i in np.argsort(-probs)[:11]}
    assert likely <= {*labels}


def test_actors_that_select_and_that_choose_numbers() -> None:
    observation = two_entities(
        actions={
            "Pick": SelectEntityActionMask(actor_types=["A"], actee_types=["A"]),
            "Push": ContinuousActionMask(actor_ids=[("A", 1)]),
        }
    )
    ids = [("A", 0), ("A", 1)]
    probs = np.array([[0.0, 1.0], [0.5, 0.5]], np.float32)
    actions: dict[str, Action] = {
        "Pick": SelectEntityAction(ids, [ids[1], ids[0]], probs),
        "Push": ContinuousAction(ids[1:], np.array([[0.5]], np.float32)),
    }
    space = {"Pick": SelectEntityActionSpace(), "Push": ContinuousActionSpace([-1], [1], ["gas"])}
    first, second, push = one_still(Turn(0, 0, 0.0, observation, actions), space).actors
    assert first.title == "Pick: A x=0 y=0"
    (here, there) = (0.5, 1.5), (1.5, 0.5)
    assert first.bars == [
        Bar("A x=0 y=0", 0.0, False, (here, here)),
        Bar("A x=1 y=1", 1.0, True, (here, there)),
    ]
    assert [bar.is_chosen for bar in second.bars] == [True, False]
    gas = Bar("gas 0.5", 0.75, True, is_number=True)
    assert (push.title, push.bars) == ("Push: A x=1 y=1", [gas])


def test_an_action_without_actors_is_not_shown() -> None:
    ask = SelectEntityActionMask(actor_ids=[], actee_types=["A"])
    turn = Turn(
        0, 0, 0.0, two_entities(actions={"Pick": ask}), {"Pick": SelectEntityAction([], [])}
    )
    assert one_still(turn, {"Pick": SelectEntityActionSpace()}).actors == []


def test_attention_is_the_row_of_the_actor_in_the_last_layer() -> None:
    space = {"Move": GlobalCategoricalActionSpace(["UP"])}
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask()})
    attention = np.zeros((2, 2, 3, 3), np.float32)
    attention[1, 0, 2] = [0.25, 0.5, 0.25]
    attention[1, 1, 2] = [0.75, 0.0, 0.25]
    turn = Turn(
        0,
        0,
        0.0,
        observation,
        {"Move": GlobalCategoricalAction(0, "UP")},
        thoughts=Thoughts({}, attention=attention),
    )
    assert one_still(turn, space).attention == [0.5, 0.25]


def test_attention_to_the_global_features_is_not_that_to_a_relation() -> None:
    """The index of the first relation is that of the global features in `Thoughts.attention`."""
    pair = Entity(["a", "b"], references=("A", "A"))
    obs_space = ObsSpace(["time"], {"A": Entity(["x", "y"]), "Pair": pair})
    observation = replace(
        two_entities(global_features=np.zeros(1), actions={"Move": GlobalCategoricalActionMask()}),
        features={"A": np.array([[0.0, 0.0], [1.0, 1.0]]), "Pair": np.array([[0.0, 1.0]])},
    )
    thoughts = Thoughts({}, attention=np.full((1, 1, 3, 3), [0.25, 0.25, 0.5], np.float32))
    actions: dict[str, Any] = {"Move": GlobalCategoricalAction(0, "UP")}
    turn = Turn(0, 0, 0.0, observation, actions, thoughts=thoughts)
    animation = Animation.of([turn], obs_space, {"Move": GlobalCategoricalActionSpace(["UP"])})
    assert animation.stills[0].attention == [0.25, 0.25]


MOVE: dict[str, ActionSpace] = {"Move": GlobalCategoricalActionSpace(["M0", "M1"])}


def turn_of(past: Sequence[PastStep]) -> Turn:
    """A decision with thoughts about earlier steps."""
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask()})
    actions: dict[str, Action] = {"Move": GlobalCategoricalAction(0, "M0")}
    return Turn(0, 2, 0.0, observation, actions, thoughts=Thoughts({}, past=past))


def thinking_animation(num_choices: int, value: float | None = 0.5) -> Animation:
    """An animation of one turn; the agent is sure of the last choice and attends to entity 0."""
    labels = [f"M{i}" for i in range(num_choices)]
    observation = two_entities(actions={"Move": GlobalCategoricalActionMask()})
    probs = np.linspace(0.1, 0.3, num_choices, dtype=np.float32)[None]
    probs[0, -1] = 0.9
    thoughts = Thoughts({"Move": probs}, value, np.array([[[[0.8, 0.0, 0.2]] * 3]], np.float32))
    actions: dict[str, Action] = {"Move": GlobalCategoricalAction(0, "M0")}
    turn = Turn(0, 0, 0.0, observation, actions, thoughts=thoughts)
    return Animation.of([turn], SPACE, {"Move": GlobalCategoricalActionSpace(labels)})


@given(st.integers(2, 9), st.none() | st.floats(-1e3, 1e3))
def test_a_panel_has_the_value_the_chosen_and_the_likely_choices(
    num_choices: int, value: float | None
) -> None:
    plain = thinking_animation(num_choices, value)
    panel = plain.with_thoughts()
    shapes = panel.shapes_of(0)
    assert shapes[: len(plain.shapes_of(0))] == plain.shapes_of(0)
    texts = [shape.text for shape in shapes if shape.kind == "text"]
    assert ("M0" in texts, f"M{num_choices - 1}" in texts, "90%" in texts) == (True, True, True)
    assert sum(text.startswith("M") and text != "Move" for text in texts) == min(num_choices, 5)
    assert any(text.startswith("value ") for text in texts) == (value is not None)
    width, height = panel.size
    [paper] = [shape for shape in panel.ground if shape.size == (width, height)]
    assert panel.ground.index(paper) == 0
    for shape in [*panel.ground, *shapes]:
        half = [size / 2 for size in shape.size] if shape.kind == "rect" else [0, 0]
        assert half[0] <= shape.center[0] + 1e-6 <= width - half[0] + 2e-6
        assert half[1] <= shape.center[1] + 1e-6 <= height - half[1] + 2e-6
    assert plain.with_thoughts().svg(0) != plain.svg(0)


def test_a_panel_has_the_first_actor_of_each_action_and_says_how_many_are_left() -> None:
    plain = thinking_animation(2)
    [still] = plain.stills
    actors = [
        ActorBars(f"{name}: Unit {i}", [Bar("GO", 0.5, is_chosen=True)])
        for name in ("Fire", "Order")
        for i in range(3)
    ]
    animation = replace(plain, stills=[replace(still, actors=actors)])
    texts = [shape.text for shape in animation.with_thoughts().shapes_of(0) if shape.text]
    titles = [text for text in texts if text not in ("GO", "50%", "value 0.5")]
    assert titles == ["Fire: Unit 0", "Order: Unit 0", "and 4 more, all in a .html"]


def test_a_panel_names_the_earlier_step_that_matters_most() -> None:
    plain = thinking_animation(2)
    assert "without" not in str(plain.with_thoughts().shapes)
    [still] = plain.stills
    past = [PastStep(0, 0, 0.1, 0.2), PastStep(1, 1, 0.7, 0.1)]
    animation = replace(plain, stills=[replace(still, past=past)])
    texts = [shape.text for shape in animation.with_thoughts().shapes_of(0) if shape.text]
    assert texts[-3:] == ["what would move", "without step 1", "70%"]
    assert Animation.of([turn_of(past)], SPACE, MOVE).stills[0].past == past


def test_a_ring_is_around_what_is_attended_to() -> None:
    animation = thinking_animation(2)
    before, after = animation.shapes_of(0), animation.with_thoughts().shapes_of(0)
    [ring] = [s for s in after[len(before) :] if s.stroke.startswith("#cc0066")]
    assert ring.center == next(shape for shape in before if shape.of == 0).center


def test_a_panel_comes_with_the_chosen_move_on_the_board() -> None:
    space = {"Pick": SelectEntityActionSpace()}
    ids = [("A", 0), ("A", 1)]
    probs = np.array([[0.25, 0.75]], np.float32)
    observation = two_entities(actions={"Pick": SelectEntityActionMask(actor_ids=ids[:1])})
    turn = Turn(0, 0, 0.0, observation, {"Pick": SelectEntityAction(ids[:1], ids[1:], probs)})
    plain = Animation.of([turn], SPACE, space)
    [chosen] = [bar for bar in plain.stills[0].actors[0].bars if bar.is_chosen]
    assert [*chosen.path] == [(0.5, 1.5), (1.5, 0.5)]
    after = plain.with_thoughts().shapes_of(0)
    arrows = [shape.points for shape in after if shape.kind == "line"]
    assert arrows
    assert all(points[0] == (0.5, 1.5) for points in arrows)


def test_without_thoughts_there_is_no_panel() -> None:
    animation = Animation.of([Turn(0, 0, 0.0, two_entities())], SPACE, {})
    assert animation.with_thoughts() is animation


def test_global_features_are_words_only_where_no_table_shows_them() -> None:
    space = ObsSpace(["gold"], {"Ship": Entity(["x", "y"])})
    observation = Observation(
        reward=0.0, features={"Ship": np.zeros((1, 2))}, global_features=[3.0]
    )
    turn = Turn(0, 0, 0.0, observation)
    drawn = Animation.of([turn], space, {})
    assert {"gold", "3"} <= {shape.text for shape in drawn.shapes_of(0)}
    assert drawn.stills[0].global_words == ""
    own = Look(draw=lambda seen, scene: scene.circle(0, 0, 1, "#fff"), size=(2, 2))
    assert Animation.of([turn], space, {}, own).stills[0].global_words == "gold=3"


def test_a_final_observation_without_entities_is_shown_as_the_one_before() -> None:
    end = Episode(2.0, 1, terminated=False, truncated=True, seed=0, metrics={"food": 3.0})
    blank = Observation(reward=1.0, truncated=True)
    animation = Animation.of(
        [Turn(0, 0, 0.0, two_entities()), Turn(0, 1, 2.0, blank, {}, end)], SPACE, {}
    )
    assert animation.shapes_of(1) == animation.shapes_of(0) != []
    assert animation.stills[1].words == animation.stills[0].words
    assert animation.stills[1].end == "truncated: reward 2, food 3"


@pytest.mark.parametrize("ending", [".html", ".svg", ".PNG", ".gif", ".webp", ".mp4"])
def test_files(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"a{ending}"
    if ending not in (".html", ".svg"):
        pytest.importorskip("PIL")
    if ending == ".mp4" and shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    animation = animation_of(snake)
    file.write_bytes(b"something else")
    animation.write(file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    content = file.read_bytes()
    start = {".html": b"<!doctype html>", ".svg": b"<svg", ".PNG": b"\x89PNG", ".gif": b"GIF89a"}
    assert content.startswith(start.get(ending, b""))
    if ending in (".gif", ".webp"):
        from PIL import Image

        with Image.open(file) as image:
            assert 2 <= getattr(image, "n_frames", 1) <= len(animation)
            assert image.size == (280, 280)
            total_s = 0.0
            for i in range(getattr(image, "n_frames", 1)):
                image.seek(i)
                image.load()
                total_s += image.info["duration"] / 1000
        expected = len(animation) / animation.fps + animation.end_s
        assert total_s == pytest.approx(expected, rel=0.05)


def test_one_picture() -> None:
    pytest.importorskip("PIL")
    animation = animation_of(snake)
    assert animation.svg(-1) == animation.svg(len(animation) - 1) != animation.svg(0)


@pytest.mark.parametrize(
    ("name", "index", "message"),
    [
        (
            "a.bmp",
            None,
            r"expected a file with the ending \.html, \.svg, \.png, \.gif, \.",
        ),
        ("a", None, "expected a file with the ending"),
        ("a.svg", 1000, "snake has 5 pictures: there is no picture 1000"),
        ("a.gif", 0, r"one picture is a \.png or an \.svg"),
        ("none/a.html", None, "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_written(name: str, index: int | None, message: str, tmp_path: Path) -> None:
    animation = animation_of(snake, turns_of(snake)[-5:])
    with pytest.raises(UsageError, match=message):
        animation.write(tmp_path / name, index)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    animation = animation_of(snake)
    with pytest.raises(UsageError, match="an animation needs one turn or more"):
        Animation.of([], SPACE, {}, Look())
    monkeypatch.setenv("PATH", str(tmp_path))
    if "PIL" in sys.modules:
        with pytest.raises(UsageError, match=r"\.mp4 needs the program ffmpeg.* \.gif"):
            animation.write(tmp_path / "a.mp4")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[pictures\]'"):
        animation.write(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
    animation.write(tmp_path / "a.html")


@given(st.integers(1, 100_000))
def test_longer_episodes_are_played_faster(num: int) -> None:
    still = animation_of(snake, turns_of(snake)[:1]).stills[0]
    played = replace(animation_of(snake, turns_of(snake)[:1]), stills=[still] * num)
    assert 2 <= played.fps <= 30
    assert len(played) / played.fps <= max(90, num / 30) + 1


def test_films_show_one_side_unless_all_is_known_to_all(tmp_path: Path) -> None:
    turns = turns_of(rock_paper_scissors)
    one_sided = animation_of(rock_paper_scissors, turns)
    assert one_sided.film == [i for i, turn in enumerate(turns) if turn.agent_id == 0]
    assert data_of(one_sided.html())["viewer"] == 0
    assert len(data_of(one_sided.html())["frames"]) == len(turns)
    is_open = replace(one_sided, is_open=True)
    assert is_open.film == list(range(len(turns)))
    assert data_of(is_open.html())["viewer"] is None
    assert len(one_sided.svg()) < len(is_open.svg())
    pytest.importorskip("PIL")
    for name, animation in (("one.gif", one_sided), ("all.gif", is_open)):
        animation.write(tmp_path / name)
    assert (tmp_path / "one.gif").stat().st_size < (tmp_path / "all.gif").stat().st_size
    spoken_of = Animation.of(
        turns,
        rock_paper_scissors.obs_space(),
        rock_paper_scissors.action_space(),
        Look(is_open=True),
    )
    assert spoken_of.viewer is None
    assert animation_of(rock_paper_scissors, [t for t in turns if t.agent_id == 1]).viewer is None


def test_texts_of_a_gif_are_those_of_a_still() -> None:
    """Without antialiasing, small letters would lose strokes."""
    pytest.importorskip("PIL")
    scene = Scene(40, 10)
    scene.text(20.3, 5.1, "round 3 card", size=1)
    painters = [Painter((40, 10), smooth=smooth) for smooth in (False, True)]
    plain, smooth = (painter.image(scene.shapes) for painter in painters)
    assert plain.tobytes() == smooth.tobytes()
