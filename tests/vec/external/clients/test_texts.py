"""Clients send texts of any bytes, and numbers in any locale, as every host reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env.errors import WorkerError
from entity_env.vec import ExternalGame, VecEnv
from tests import ROOT

CLIENTS = ROOT / "clients"
COMMA = "de_DE.UTF-8"
LUA = """
package.path = "CLIENTS/lua/?.lua"
if LOCALE then os.setlocale(LOCALE) end
require("entity_env").serve({name = "drive", entities = {Dot = {"x"}}, entity_names = {"Dot"},
  action = "Move", labels = {"A", "B"}, settings = {wind = 0.1},
  play = function(agent, seed, settings)
    agent:act({score = 0, Dot = {{settings.wind}}})
    FAIL
    agent:game_over({score = settings.wind, Dot = {}})
  end})
"""
C = r"""
#define ENTITY_ENV_IMPLEMENTATION
#include "entity_env.h"
#include <locale.h>
static const char *const x[] = {"x", NULL}, *const wheel[] = {"wheel", NULL};
static const ee_entity entities[] = {{"Car", x}};
static const float low[] = {-0.1f}, high[] = {1.5f};
static const ee_action actions[] = {{"Steer", EE_CONTINUOUS, wheel, 0, low, high}};
static ee_setting settings[] = {{"wind", EE_FLOAT, 0.1}};
static void play(ee_copy *copy, uint64_t seed) {
    ee_agent *agent = ee_agent_of(copy, 0);
    float value = (float)settings[0].value;
    (void)seed;
    ee_observe(agent, 0), ee_add(agent, 0, &value), ee_actor(agent, 0, 0, 0);
    if (!ee_act(agent)) return;
    FAIL
    ee_observe(agent, settings[0].value), ee_end(agent, 0);
}
int main(void) {
    ee_game game;
    memset(&game, 0, sizeof game);
    LOCALE
    game.name = "drive", game.entities = entities, game.num_entities = 1, game.play = play;
    game.actions = actions, game.num_actions = 1, game.settings = settings, game.num_settings = 1;
    return ee_serve(&game);
}
"""
Make = Callable[..., ExternalGame]
CHOICES: dict[str, Any] = {"Steer": np.zeros((1, 1), np.float32), "Move": np.zeros(1, np.int64)}
slow = pytest.mark.slow


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def game_in(
    language: str, folder: Path, fail: str | bytes = "", locale: str | None = None
) -> ExternalGame:
    """A game of one decision, in a locale, which then fails, or ends with a reward of 0.1."""
    program = {"C": "gcc", "Lua": "lua5.4"}[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    if language == "Lua":
        script = folder / "game.lua"
        code = LUA.replace("CLIENTS", str(CLIENTS)).replace("LOCALE", repr(locale or "C"))
        script.write_bytes(code.encode().replace(b"FAIL", _error(b"error(%s)", fail)))
        return ExternalGame([program, str(script)], link="stdio")
    source, target = folder / "game.c", folder / "game"
    chosen = f'if (!setlocale(LC_ALL, "{locale}")) return 1;' if locale else ""
    code_in_c = C.replace("LOCALE", chosen).encode()
    source.write_bytes(code_in_c.replace(b"FAIL", _error(b"ee_fail(copy, %s); return;", fail)))
    words = [program, "-std=c99", "-I", str(CLIENTS / "c"), str(source), "-o", str(target), "-lm"]
    subprocess.run(words, check=True)
    return ExternalGame([str(target)])


@pytest.fixture(params=["C", "Lua"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return partial(game_in, request.param, tmp_path)


def _error(call: bytes, fail: str | bytes) -> bytes:
    """The call with these bytes, which C escapes in octal and Lua in decimal digits, or code."""
    if isinstance(fail, str):
        return fail.encode()
    form = "\\{:03o}" if call.startswith(b"ee") else "\\{:03}"
    return call % f'"{"".join(map(form.format, fail))}"'.encode()


def as_utf8(text: bytes) -> str:
    """The characters of a text, "?" for each byte that belongs to none."""
    found, at = "", 0
    while at < len(text):
        for size in range(1, 5):
            try:
                found += text[at : at + size].decode()
            except UnicodeDecodeError:
                continue
            at += size
            break
        else:
            found, at = found + "?", at + 1
    return found


def failure_of(game: ExternalGame) -> str:
    with VecEnv(game, 1) as vec:
        vec.reset(seed=0)
        choices = {name: CHOICES[name] for name in vec.action_space()}
        with pytest.raises(WorkerError) as caught:
            vec.act(choices)
    return str(caught.value)


@slow
@pytest.mark.parametrize(
    "text",
    [
        b"Stra\xdfe not found",
        "Straße, 道, 🎲".encode(),
        b"\xff\xfe\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82",
        b"ends in \xf0\x9f\x8e",
    ],
)
def test_failures_of_any_bytes_arrive(text: bytes, make: Make) -> None:
    assert as_utf8(text) in failure_of(make(text))


LUA_ERRORS = {
    "error({code = 5, [1] = 'x'})": "{1 = x, code = 5}",
    "error({})": "{}",
    "error(setmetatable({}, {__tostring = function() return 'told' end}))": "told",
    "error(setmetatable({}, {__tostring = function() error('no') end}))": "a table that cannot be",
    "error(setmetatable({}, {__metatable = 1, __pairs = error}))": "{}",
    "error(7)": "7",
    "error(nil)": "nil",
    "local t = {} t.t = t error(t)": "{t = table: ",
}


@slow
@pytest.mark.parametrize("code", LUA_ERRORS)
@pytest.mark.parametrize("make", ["Lua"], indirect=True)
def test_values_that_lua_raises_are_shown(code: str, make: Make) -> None:
    assert LUA_ERRORS[code] in failure_of(make(code))


def has_locale() -> bool:
    try:
        done = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return COMMA.replace("UTF-8", "utf8") in done.stdout.split()


@slow
@pytest.mark.skipif(not has_locale(), reason=f"the locale {COMMA} is not installed")
def test_numbers_have_points_in_every_locale(make: Make) -> None:
    found = []
    for locale in (None, COMMA):
        for settings in ({}, {"wind": -1.5e-7}, {"wind": 0.30000000000000004}):
            game = make(locale=locale).with_settings(**settings)
            with VecEnv(game, 1) as vec:
                first = vec.reset(seed=0).features
                last = vec.act({name: CHOICES[name] for name in vec.action_space()})
                numbers = {name: each.values.tolist() for name, each in first.items()}
                found.append((vec.action_space(), numbers, last.reward.tolist()))
    assert found[:3] == found[3:]
    assert found[0][2] == pytest.approx([0.1])


LOCALE_FREE = "LOCALE: "
DEPENDENT = {
    "c/*.h": r"strto[df]|ato[fil]|[sf]?scanf|\bis(alpha|alnum|digit|space|print|punct|upper)\b"
    r"|islower|to(upper|lower)\(|strcoll|strxfrm|setlocale|mbs|wcs|%(?!\.0f)[^\"a-zA-Z%]*[aefgAEFG]\b",
    "lua/*.lua": r"%[aclpuw]\b|:upper|:lower|os\.setlocale",
    "javascript/*.mjs": r"toLocale|Intl\.|localeCompare|navigator\.language",
    "rust/src/*.rs": r"libc::|setlocale",
}


@pytest.mark.parametrize("files", DEPENDENT)
def test_no_call_depends_on_the_locale(files: str) -> None:
    """Lines that must call such a function say how its result becomes independent."""
    paths = sorted(CLIENTS.glob(files))
    assert paths
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r"^\s*(/\*|\*|//|--).*", "", line)
            assert not re.search(DEPENDENT[files], code) or LOCALE_FREE in line, (path, number)
