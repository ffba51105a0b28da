"""Labels of choices: every conversion to indices, keys and JSON, and back, keeps each of them."""

from __future__ import annotations

import io
import json
import shutil
import sys
from contextlib import nullcontext
from dataclasses import make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from entity_env import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Game,
    GlobalCategorical,
    GlobalCategoricalActionSpace,
    Obs,
    ObsSpace,
    SchemaError,
    UsageError,
    questions,
)
from entity_env.agents import ScriptedAgent
from entity_env.agents.human.prompt import Choice, Prompt, keyed_choices
from entity_env.agents.rogue_net.changes import NameChanges
from entity_env.authoring.action_type import kind_of_space
from entity_env.authoring.entity_type import class_of_features, entity_type
from entity_env.core.observation import GlobalCategoricalActionMask, Observation
from entity_env.core.spaces import spaces_from_json, spaces_to_json
from entity_env.page.live.questions import question_as_json
from entity_env.replay.encoding import actions_from_json, actions_to_json
from entity_env.vec import VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Link
from tests import ROOT
from tests.helpers.strategies import make_enum

ODD = (
    *("__a__", "_Move__x", "__class__", "__proto__", "mro", "name", "value", "_missing_", "B"),
    *("_ignore_", "_generate_next_value_", "_order_", "label_0", "class", "None", "", " ", "."),
    *("q", "undo", "1", "2", "-1", "a", "A", "ﬁ", "fi", "İ", "ß", "é", "e\u0301", "a=b,c=d", "\t"),
    *("move up", "UP", "left", "🙂", "constructor"),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
LABELS = st.lists(st.sampled_from(ODD) | TEXTS, unique=True, min_size=1, max_size=12)
LIAR = ROOT / "tests" / "vec" / "external" / "liar.py"


@pytest.mark.parametrize("kind", [CategoricalActionSpace, GlobalCategoricalActionSpace])
@example(labels=list(ODD))
@given(labels=LABELS)
def test_an_action_of_a_space_has_its_labels(kind: Any, labels: list[str]) -> None:  # noqa: ANN401
    action: Any = kind_of_space("Move", kind(labels))
    assert list(action.space.index_to_label) == labels
    assert [choice.name for choice in action.choices] == labels
    assert [choice.value for choice in action.choices] == list(range(len(labels)))
    enum: Any = type(action.choices[0])
    assert [enum[label] for label in labels] == list(enum) == list(action.choices)


@example(labels=list(ODD))
@given(labels=LABELS)
def test_spaces_in_json_and_in_other_orders_keep_them(labels: list[str]) -> None:
    bounds = [-1.0] * len(labels), [1.0] * len(labels)
    actions: dict[str, ActionSpace] = {
        "choice": CategoricalActionSpace(tuple(labels)),
        "numbers": ContinuousActionSpace(*bounds, tuple(labels)),
    }
    spaces = ObsSpace(labels), actions
    again = spaces_from_json(json.loads(json.dumps(spaces_to_json(*spaces))))
    assert again[0].global_features == tuple(labels)
    assert again[1]["choice"] == spaces[1]["choice"]
    assert getattr(again[1]["numbers"], "labels", None) == tuple(labels)
    places = NameChanges(labels[::-1], labels).source
    assert [labels[::-1][place] for place in places] == labels


@example(labels=list(ODD))
@given(labels=LABELS)
def test_recorded_choices_and_keys_of_a_page_are_different(labels: list[str]) -> None:
    space = {"Move": GlobalCategoricalActionSpace(labels)}
    asked = Observation(reward=0.0, actions={"Move": GlobalCategoricalActionMask()})
    (question,) = questions(asked, ObsSpace(), space)
    for index, label in enumerate(labels):
        actions = {"Move": question.action([index])}
        stored = json.loads(json.dumps(actions_to_json(actions, asked, ObsSpace())))
        action: Any = actions_from_json(stored, asked, (ObsSpace(), space))["Move"]
        assert (action.index, action.label) == (index, label)
    shown, check = question_as_json(question, 0, (), labels, lambda _: [])
    assert [(choice, label) for choice, label, *_ in shown["choices"]] == [*enumerate(labels)]
    keys = [key for _, _, keys, *_ in shown["choices"] for key in keys]
    assert len({*keys}) == len(keys)
    assert [check({"choice": index}) for index in range(len(labels))] == [*range(len(labels))]


@example(labels=list(ODD))
@given(labels=LABELS)
def test_every_choice_has_a_key_and_a_typed_text_means_no_other_choice(labels: list[str]) -> None:
    choices = keyed_choices(labels, range(len(labels)))
    keys = [key for choice in choices for key in choice.keys]
    assert len({*keys}) == len(keys)
    for choice in choices:
        assert [typed(choices, key) for key in choice.keys] == [choice.index] * len(choice.keys)
        if choice.text == choice.text.strip() and choice.text.isprintable():  # a line can hold it
            meant = typed(choices, choice.text)
            assert meant in (choice.index, None, *owners(choices, choice.text))


def typed(choices: list[Choice], line: str) -> int | None:
    """The choice of a typed line; None if it means none, or has another meaning."""
    prompt = Prompt(io.StringIO(f"{line}\n0x\n"), io.StringIO())
    try:
        return prompt.choose("Move", choices)
    except Exception:
        return None


def owners(choices: list[Choice], text: str) -> list[int]:
    """The choices whose key a text is."""
    return [each.index for each in choices if {text, text.lower(), text.strip()} & {*each.keys}]


def test_a_text_of_several_choices_means_none_of_them() -> None:
    choices = [
        Choice(i, text, (str(i + 1),)) for i, text in enumerate(["Rat", "Rat", "rat", "Cat"])
    ]
    assert [typed(choices, line) for line in ("Rat", "rat", "CAT", "2")] == [None, 2, 3, 1]


@given(names=st.lists(st.sampled_from(ODD) | TEXTS, unique=True, max_size=6))
def test_classes_of_features_have_these_or_are_refused_by_name(names: list[str]) -> None:
    is_usable = "__dict__" not in names
    with nullcontext() if is_usable else pytest.raises(SchemaError, match=r"Dot. has an unusable"):
        assert entity_type(class_of_features("Dot", names)).features == tuple(names)


def test_labels_that_combine_to_the_same_text_are_refused() -> None:
    first = make_enum("First", {"1": 0, "1,b=2": 1})
    second = make_enum("Second", {"2,b=3": 0, "3": 1})
    with pytest.raises(SchemaError, match="action 'Both': action labels must differ: got a=1,b=2"):
        GlobalCategorical(make_dataclass("Both", [("a", first), ("b", second)], frozen=True))


@pytest.mark.parametrize("key", ["a.b", "b"])
def test_parts_of_a_gymnasium_space_with_the_same_name_are_refused(key: str) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")
    from entity_env.interop.gymnasium.actions import ActionConverter
    from entity_env.interop.gymnasium.spaces import ObsConverter

    space = spaces.Dict({key: spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(3)})})
    for convert in (ActionConverter, ObsConverter):
        named = r"two parts of the space are called '(Action\.)?a\.b'"
        with pytest.raises(UsageError, match=named) if key == "a.b" else nullcontext():
            convert(space, "Action")


# ---------------------------------------------------------------------------- playing


class Alike(Enum):
    """Members that say they are equal, although they are different choices."""

    A = 0
    B = 1
    C = 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 0


class Picks(ScriptedAgent):
    """Answers with the choice of an index."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.scores: list[float] = []

    def choose(self, obs: Obs, *actions: Any) -> object:  # noqa: ANN401
        self.scores.append(obs.score)
        chosen = obs.allowed(actions[0])
        return (
            [each[self.index] for each in chosen]
            if isinstance(chosen[0], list)
            else chosen[self.index]
        )


@pytest.mark.parametrize("index", range(3))
def test_members_that_compare_equal_are_different_choices(index: int) -> None:
    told: list[object] = []

    def play(agent: Any, *, seed: int) -> None:  # noqa: ANN401
        told.append(agent.act(Obs(0), Alike))
        agent.game_over(Obs(1))

    game = Game(play, entities=(), actions=(Alike,))
    game.run(Picks(index))
    with VecEnv(game, 1) as vec:
        vec.reset()
        vec.act({"Alike": np.array([index])})
    assert [each is [*Alike][index] for each in told] == [True, True]


JAVASCRIPT = """
import { Game, Obs, globalCategorical, serve } from "CLIENTS/javascript/entity-env.mjs";
const labels = LABELS;
serve(new Game({
  name: "labels", entities: { Dot: ["x"] }, actions: { Move: globalCategorical(...labels) },
  async play(agent) {
    let told = 0;
    for (let step = 0; step < 3; step++) {
      const answer = await agent.act(new Obs(told).entities("Dot", [{ x: 0.5 }]), "Move");
      if (answer === null) return;
      told = labels.indexOf(answer);
    }
    agent.gameOver(new Obs(told));
  },
}));
"""
LUA = """
package.path = "CLIENTS/lua/?.lua;" .. package.path
local entity_env, labels = require("entity_env"), LABELS
entity_env.serve({name = "labels", entities = {Dot = {"x"}}, entity_names = {"Dot"},
  action = "Move", labels = labels, play = function(agent)
    local told = 0
    for step = 1, 3 do
      local answer = agent:act({score = told, Dot = {{0.5}}})
      if not answer then return end
      for i, label in ipairs(labels) do if label == answer then told = i - 1 end end
    end
    agent:game_over({score = told})
  end})
"""


def program(language: str, folder: Path) -> list[str]:
    """The command of a program that reports which label it was told."""
    if language == "python":
        return [sys.executable, "-S", str(LIAR), "labels", *ODD]
    if shutil.which(language) is None:
        pytest.skip(f"{language} is not installed")
    labels = json.dumps(ODD, ensure_ascii=False)
    suffix, code = (".mjs", JAVASCRIPT) if language == "node" else (".lua", LUA)
    if language != "node":
        labels = f"{{{labels[1:-1]}}}"
    file = (folder / "labels").with_suffix(suffix)
    code = code.replace("CLIENTS", str(ROOT / "clients")).replace("LABELS", labels)
    file.write_text(code, encoding="utf-8")
    return [language, str(file)]


@pytest.mark.parametrize(
    "language",
    ["python", *(pytest.param(each, marks=pytest.mark.slow) for each in ("node", "lua5.4"))],
)
def test_a_program_is_told_the_label_that_was_chosen(language: str, tmp_path: Path) -> None:
    link: Link = "stdio" if language == "lua5.4" else "unix"
    game = ExternalGame(program(language, tmp_path), link=link)
    assert getattr(game.action_space()["Move"], "index_to_label", None) == ODD
    indices = [0, 1, 2, 7, len(ODD) - 1]
    with VecEnv(game, len(indices)) as vec:
        vec.reset()
        obs = vec.act({"Move": np.array(indices)})
        assert obs.reward.tolist() == indices
    for index in indices:
        agent = Picks(index)
        game.run(agent)
        assert agent.scores == [0, index, index]
    game.close()
