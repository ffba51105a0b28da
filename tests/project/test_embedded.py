"""Programs with their own loop in which agents play: with pygame and with asyncio."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env.agents import RandomAgent
from entity_env.check import check_game
from entity_env.cli import main
from entity_env.vec import VecEnv
from examples import embed_asyncio
from examples.embed_asyncio import Bot, Client, play_room
from tests import ROOT

SMALL = ("--num-envs=4", "--set-train=net={d_model=8,n_layer=1,n_head=1}")
PYGAME = ROOT / "examples" / "embed_pygame.py"
ASYNCIO = ROOT / "examples" / "embed_asyncio.py"


def train(file: Path, out: Path) -> None:
    words = ("--steps=64", "--num-workers=0", "--out", str(out), "--eval-interval=0", *SMALL)
    result = CliRunner().invoke(main, ["train", str(file), *words])
    assert (result.exit_code, result.stderr) == (0, "")


def test_they_are_short_enough_to_be_read() -> None:
    for path in (PYGAME, ASYNCIO):
        assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 110


class TestPygame:
    @pytest.fixture(autouse=True)
    def headless(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
        monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        pygame = pytest.importorskip("pygame")
        yield
        pygame.quit()

    def test_the_program_keeps_its_loop_its_events_and_its_drawing(self) -> None:
        from pygame import QUIT, display, event

        from examples.embed_pygame import PongWithAgent

        display.init()
        program = PongWithAgent(RandomAgent(1), seed=3)
        frames = []
        draw = program.draw

        def draw_once_and_quit(screen: object) -> None:
            draw(program.screen)  # type: ignore[arg-type]  # not None here
            frames.append(program.screen)
            if len(frames) == 10:
                event.post(event.Event(QUIT))

        program.draw = draw_once_and_quit  # type: ignore[method-assign]
        program.run()
        assert 10 <= len(frames) <= 11
        assert program.frame == len(frames)

    @pytest.mark.slow
    def test_it_is_trained_by_the_same_loop(self, tmp_path: Path) -> None:
        from examples.embed_pygame import pong

        check_game(pong, episodes=1, new_process=False)
        [episode] = pong.run(RandomAgent(1))
        assert -3 <= episode.reward <= 3
        train(PYGAME, tmp_path / "run")

    def test_it_runs_as_a_script(self) -> None:
        code = (
            "import pygame, runpy, types\n"
            "pygame.time.Clock = lambda: types.SimpleNamespace(tick=lambda fps: None)\n"
            f"runpy.run_path({str(PYGAME)!r}, run_name='__main__')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], text=True, capture_output=True, check=True
        )
        assert re.search(r"^left (3, right [0-2]|[0-2], right 3)$", done.stdout, re.MULTILINE)


class TestAsyncio:
    @pytest.mark.slow
    def test_games_run_at_once_and_are_trained(self, tmp_path: Path) -> None:
        check_game(embed_asyncio.coins, episodes=1, new_process=False)
        with VecEnv(embed_asyncio.coins, 4) as vec:
            assert vec.reset().is_ready.all()
        train(ASYNCIO, tmp_path / "run")

    def test_a_person_at_a_socket_plays_against_an_agent(self) -> None:
        async def server() -> str:
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=theirs)
            person_reads, person_writes = await asyncio.open_connection(sock=ours)
            person_writes.write(b"r\n" * embed_asyncio.NUM_TURNS)
            await play_room([Client(reader, writer), Bot(RandomAgent(1))], seed=1)
            writer.close()
            seen = await person_reads.read()
            person_writes.close()
            return seen.decode()

        seen = asyncio.run(server())
        assert seen.startswith("+0 [Me(x=0, y=3), Rival(x=6, y=3), Coin(x=3, y=")
        assert "Me(x=6, y=3)" in seen
        assert seen.endswith("The game is over.\n")

    def test_a_person_who_leaves_ends_the_game(self) -> None:
        async def server() -> None:
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=theirs)
            ours.close()
            await asyncio.wait_for(
                play_room([Client(reader, writer), Bot(RandomAgent(1))], seed=1), 30
            )
            writer.close()

        asyncio.run(server())
