"""`entity-env train azul`: it trains in `AzulSelfPlay`, and the agent plays the game."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.folder import find_checkpoint, read_header
from entity_env.cli import main
from entity_env.games import snake, tic_tac_toe
from entity_env.games.azul import AzulSelfPlay, azul, azul_by_id, self_play
from entity_env.vec.game_training import make_training_env, preset_of, self_play_of

# The first call compiles, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

SMALL = ("--num-envs=8", "--set-train=net={d_model=8,n_head=1}")
FEW = "--eval-episodes=2"


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_azul_for_two_is_learnt_at_tables() -> None:
    assert self_play_of(azul)
    assert self_play_of(azul.with_settings(num_players=2))
    assert not self_play_of(azul.with_settings(num_players=3))
    assert not self_play_of(azul.with_settings(max_rounds=4))
    assert not self_play_of(azul_by_id)
    assert not self_play_of(snake)
    with make_training_env(azul, 3) as tables:
        assert isinstance(tables._source, AzulSelfPlay)
        assert tables.num_envs == 3


@pytest.mark.slow
def test_other_games_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_training_env(snake, 2) as vec:
        assert vec.game is snake
    with make_training_env(azul, 2, num_workers=1) as vec:
        assert isinstance(vec._source, AzulSelfPlay)
        assert vec.num_workers == 1
    monkeypatch.setattr(self_play, "has_numba", lambda: False)
    assert not self_play_of(azul)
    with make_training_env(azul, 2) as vec:
        assert vec.game is azul
        assert vec.num_rows == 4


def test_it_has_settings_of_its_own() -> None:
    net = preset_of(azul).settings["net"]
    assert isinstance(net, RogueNetConfig)
    assert net.n_layer == 0
    for game in (azul_by_id, azul.with_settings(num_players=4)):
        assert preset_of(game).name == "entities"
    assert preset_of(snake).name == "entities"
    own = preset_of(tic_tac_toe).settings
    assert (own["net"], own["anneal_entropy"]) == (RogueNetConfig(n_layer=1), False)


@pytest.mark.slow
def test_what_is_learnt_plays(tmp_path: Path) -> None:
    out = str(tmp_path / "azul")
    result = run("train", "azul", "--out", out, "--steps", "256", FEW, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "trained 256 steps" in result.stdout
    training: dict[str, Any] = dict(read_header(find_checkpoint(Path(out))).training)
    assert training["config"]["net"]["n_layer"] == 0
    assert training["config"]["net"]["d_model"] == 8
    again = run("train", "azul", "--out", out, "--steps", "320", "--num-envs=8", "--resume", FEW)
    assert again.exit_code == 0
    assert "trained 320 steps" in again.stdout
    played = run("eval", "azul", "--agent", out, "--agent", out, "--episodes", "2")
    assert (played.exit_code, played.stderr) == (0, "")
