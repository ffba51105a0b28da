"""Code in other languages: hostile numbers, arguments that change, texts of any bytes, a locale."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.peers.network_in_c import CLibrary
from benchmarks.peers.network_vectors import NODE, network_in_node, random_weights
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.core.spaces import CategoricalActionSpace, Entity, ObsSpace
from tests.attack.budget import Attack
from tests.page.test_network import CONFIGS, DEPENDENT_CONFIGS
from tests.vec.external.clients.test_texts import COMMA, as_utf8, failure_of, game_in, has_locale

FAIL = {"C": 'ee_fail(copy, getenv("TEXT")); return;', "Lua": 'error(os.getenv("TEXT"))'}


@pytest.mark.skipif(NODE is None or shutil.which("gcc") is None, reason="needs Node and gcc")
def test_readers_of_networks_agree_on_hostile_numbers(attack: Attack, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.agents.rogue_net.c_agent.test_all_readers import (
        Others,
        episode,
        require_agreement,
    )

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


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes have no __buffer__ before 3.12")
@pytest.mark.parametrize("change", ["clear", "replace", "decide again"])
def test_arguments_may_change_while_the_compiled_network_reads_them(change: str) -> None:
    from entity_env.agents.rogue_net.numpy_net._forward import Forward

    spaces = ObsSpace(entities={"A": Entity(("x",))}), {"m": CategoricalActionSpace(("a", "b"))}
    forward = Forward(agent_bytes(random_weights(spaces, RogueNetConfig(8, 1, 1))), ())
    answers, asked, own = np.zeros((1, 2), np.float32), list[Any](), dict[str, Any]()
    nested: list[bool] = []

    class Changing:
        def __init__(self, array: NDArray[Any]) -> None:
            self.array = array

        def __buffer__(self, flags: int) -> memoryview:
            if change == "decide again":
                nested.append(forward.decide(own, answers[0, :0], None, asked, 1.0, None))
            else:
                own.clear()
                asked[:] = [] if change == "clear" else [("nobody", 1, 2, 3, 4)]
            return memoryview(self.array)  # type: ignore[arg-type]  # an array of any shape

    own["A"] = Changing(np.zeros((1, 1), np.float32))
    asked.append(("m", Changing(np.zeros(1, np.int64)), None, None, answers))
    assert forward.decide(own, answers[0, :0], None, asked, 1.0, None)
    np.testing.assert_allclose(answers.sum(axis=1), 1, rtol=1e-5)
    assert not any(nested)
