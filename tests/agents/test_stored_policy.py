"""Which policy plays better is stored with a network, and every reader plays so by default."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.network_in_c import HEADERS
from entity_env.agents import load_agent
from entity_env.agents.load import Backend
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, read_network, save_checkpoint
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, write_agent
from entity_env.agents.rogue_net.checkpoints.folder import note_training
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.weights import Weights
from entity_env.cli.load_game import AgentLoader, load_player
from entity_env.games import snake
from tests import ROOT
from tests.cli.test_app import run

NODE, GCC = shutil.which("node"), shutil.which("gcc")
STORED = pytest.mark.parametrize("stored", [True, False, None])
GAME = {"name": "snake", "sha256": "12", "number": 3}


@pytest.fixture(scope="module")
def weights() -> Weights:
    config = RogueNetConfig(d_model=8, n_layer=1, n_head=1, d_qk=8)
    return RogueNet(snake.obs_space(), snake.action_space(), config).weights()


@pytest.fixture
def checkpoint(weights: Weights, tmp_path: Path, stored: bool | None) -> Path:
    net = RogueNet.of(weights)
    save_checkpoint(tmp_path / "run" / "checkpoint", net, training={"step": 7})
    if stored is not None:
        note_training(tmp_path / "run" / "checkpoint", {"greedy": stored, "game": GAME})
    return tmp_path / "run"


@STORED
def test_files_keep_it(checkpoint: Path, stored: bool | None, tmp_path: Path) -> None:
    found = read_network(checkpoint)
    assert (found.greedy, found.game) == (stored, {} if stored is None else GAME)
    write_agent(tmp_path / "x.agent", found)
    again = read_network(tmp_path / "x.agent")
    assert (again.greedy, again.game) == (found.greedy, found.game)
    description = agent_bytes(found)
    assert (b'"greedy"' in description, b'"game"' in description) == (stored is not None,) * 2
    assert _step_of(checkpoint) == 7


def _step_of(checkpoint: Path) -> object:
    config = json.loads((checkpoint / "checkpoint" / "config.json").read_text())
    return config["training"]["step"]


@STORED
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_agents_play_so(
    checkpoint: Path, stored: bool | None, backend: Backend, tmp_path: Path
) -> None:
    write_agent(tmp_path / "x.agent", read_network(checkpoint))
    for source in (checkpoint, tmp_path / "x.agent", (tmp_path / "x.agent").read_bytes()):
        for greedy, expected in ((None, stored is True), (True, True), (False, False)):
            agent = load_agent(source, greedy=greedy, backend=backend)
            assert isinstance(agent, TrainedAgent)
            assert agent.greedy is expected
        # A temperature is for samples.
        warm = load_agent(source, temperature=0.5, backend=backend)
        assert isinstance(warm, TrainedAgent)
        assert not warm.greedy
        names = load_agent(source, names={"Food": "Food"}, backend=backend)
        assert isinstance(names, TrainedAgent)
        assert names.greedy is (stored is True)
    player = load_player(snake, str(checkpoint), 1, AgentLoader())
    assert isinstance(player, TrainedAgent)
    assert player.greedy is (stored is True)


@pytest.mark.parametrize("value", [1, "yes", None, [], {}])
def test_anything_else_is_unknown(weights: Weights, value: object, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, RogueNet.of(weights), training={"greedy": value, "game": value})
    found = read_network(tmp_path)
    assert (found.greedy, found.game) == (None, {})


@STORED
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_javascript_plays_so(weights: Weights, stored: bool | None, tmp_path: Path) -> None:
    """Greedy choices do not depend on random numbers."""
    write_agent(tmp_path / "x.agent", replace(weights, greedy=stored))
    client = (ROOT / "clients" / "javascript" / "entity-env.mjs").as_uri()
    network = (ROOT / "entity_env" / "page" / "network.mjs").as_uri()
    script = f"""
    import {{readFileSync}} from "node:fs";
    import {{readAgent}} from {json.dumps(network)};
    import {{loadAgent}} from {json.dumps(client)};
    const path = {json.dumps(str(tmp_path / "x.agent"))}, found = [];
    for (const options of [{{}}, {{greedy: true}}, {{greedy: false}}, {{temperature: 0.5}}]) {{
      const network = readAgent(readFileSync(path)), agent = await loadAgent(path, options);
      const none = network.spaces.entities.map(({{name}}) => [name, []]);
      const actions = {{Move: {{actors: [0]}}}};
      const observation = {{features: Object.fromEntries(none), globals: [], actions}};
      const [one, two] = [0, 0.999999].map(x =>
        network.choose(observation, {{...agent._choosing, random: () => x}}).Move[0]);
      found.push(one === two);
    }}
    console.log(JSON.stringify([readAgent(readFileSync(path)).greedy, found]));
    """
    done = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [stored, [stored is True, True, False, False]]


@STORED
@pytest.mark.slow
@pytest.mark.skipif(GCC is None, reason="gcc is not installed")
def test_c_plays_so(weights: Weights, stored: bool | None, tmp_path: Path) -> None:
    write_agent(tmp_path / "x.agent", replace(weights, greedy=stored))
    source = tmp_path / "says.c"
    source.write_text(
        "#define ENTITY_AGENT_IMPLEMENTATION\n#include <stdio.h>\n"
        '#include "entity_agent.h"\n'
        "int main(int argc, char **argv) {\n"
        '  ea_agent *agent = ea_load_file(argc > 1 ? argv[1] : "", NULL, 0);\n'
        '  printf("%d", ea_plays_greedily(agent));\n  ea_free(agent);\n  return 0;\n}\n'
    )
    program = tmp_path / "says"
    words = [str(GCC), "-O0", "-I", str(HEADERS), str(source), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    done = subprocess.run([program, tmp_path / "x.agent"], capture_output=True, text=True)
    assert done.stdout == str(int(stored is True))


@STORED
@pytest.mark.parametrize(
    ("option", "wanted"), [((), None), (("--greedy",), True), (("--sample",), False)]
)
def test_export_keeps_it_or_changes_it(
    checkpoint: Path,
    stored: bool | None,
    option: tuple[str, ...],
    wanted: bool | None,
    tmp_path: Path,
) -> None:
    file = tmp_path / "y.agent"
    assert run("export", str(checkpoint), str(file), *option).exit_code == 0
    assert read_network(file).greedy is (stored if wanted is None else wanted)


@STORED
def test_eval_says_how_agents_play(checkpoint: Path, stored: bool | None) -> None:
    words = ["eval", "snake", "--agent", str(checkpoint), "--episodes=2", "--num-workers=0"]
    words.append("--set=board_size=4")
    for option, greedy in ((), stored is True), (("--greedy",), True), (("--sample",), False):
        result = run(*words, *option)
        assert result.exit_code == 0, result.output
        how = "most probable actions" if greedy else "sampled actions"
        assert f"{how} (see" in result.stdout
