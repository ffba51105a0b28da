"""Clients and readers in other languages: hostile numbers, texts of any bytes, another locale."""

import os
import shutil
from pathlib import Path

import pytest

from benchmarks.peers.network_in_c import CLibrary
from benchmarks.peers.network_vectors import NODE, network_in_node, random_weights
from tests.agents.rogue_net.c_agent.test_all_readers import Others, episode, require_agreement
from tests.attack.budget import Attack
from tests.page.test_network import CONFIGS, DEPENDENT_CONFIGS
from tests.vec.external.clients.test_texts import COMMA, as_utf8, failure_of, game_in, has_locale

FAIL = {"C": 'ee_fail(copy, getenv("TEXT")); return;', "Lua": 'error(os.getenv("TEXT"))'}


@pytest.mark.skipif(NODE is None or shutil.which("gcc") is None, reason="needs Node and gcc")
def test_readers_of_networks_agree_on_hostile_numbers(attack: Attack, tmp_path: Path) -> None:
    every = CONFIGS | DEPENDENT_CONFIGS
    headers = [CLibrary(tmp_path, ["gcc", "-std=c99", "-O1"])] if attack.is_full else []
    with network_in_node() as node:
        for _ in attack.rounds(most=None if attack.is_full else 3):
            name, seed = attack.rng.choice([*every]), attack.rng.randrange(10**6)
            obs_space, actions, config = every[name]
            weights = random_weights((obs_space, actions), config, seed)
            shown = episode((obs_space, actions), seed, 3)
            attack.counts["observations"] += 3
            attack.counts["refused"] += require_agreement(weights, shown, Others(node, headers))


@pytest.mark.slow
@pytest.mark.parametrize("language", FAIL)
def test_errors_of_any_bytes_arrive(
    language: str, attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locale = COMMA if has_locale() else None
    game = game_in(language, tmp_path, FAIL[language], locale)
    starts = "é道🎲".encode()
    for _ in attack.rounds(least=3, most=None if attack.is_full else 3):
        size = attack.rng.randrange(1, 40)
        text = bytes(
            attack.rng.choice([attack.rng.randrange(33, 127), attack.rng.randrange(128, 256)])
            for _ in range(size)
        )
        text += starts[: attack.rng.randrange(len(starts) + 1)]
        monkeypatch.setenv("TEXT", os.fsdecode(text))
        assert as_utf8(text) in failure_of(game)
        attack.counts["errors"] += 1
