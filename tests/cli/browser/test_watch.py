"""Runs in a page: live updates during training; nothing else is served."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from entity_env.agents import RandomAgent
from entity_env.agents.ppo.hints import Hint, hint_facts
from entity_env.cli.browser import watch as module
from entity_env.cli.browser.watch import RunPage
from entity_env.errors import UsageError
from entity_env.games import snake
from entity_env.replay import record
from tests.cli.browser.page import WAIT_S, LivePage, request
from tests.helpers.chromium import PROGRAM, Chromium
from tests.helpers.leaks import holdings, leaked_since

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def point(run: Path, step: int, reward: float) -> None:
    with open(run / "curves.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "elapsed_s": step, "episode/mean_reward": reward}))
        file.write("\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "replays").mkdir(parents=True)
    (run / "run.json").write_text(
        json.dumps({"format": "entity_env.run", "game": EVIL, "seed": 1, "config": {"a": EVIL}})
    )
    point(run, 1000, 1.5)
    point(run, 2000, 2.5)
    record(snake, RandomAgent(seed=1), seed=1).save(run / "replays" / "step-1500.replay")
    return run


@pytest.fixture
def watched(run: Path) -> Iterator[RunPage]:
    page = RunPage([run])
    with page.server:
        yield page


def test_points_and_replays_appear(run: Path, watched: RunPage) -> None:
    with LivePage(watched.server.url) as page:
        assert [page.read(), page.read()] == ["report", "replays"]
        report = page.events["report"]["html"]
        assert ">2.500<" in report
        [replay] = page.events["replays"]
        assert replay == {
            "id": replay["id"],
            "path": str(run / "replays" / "step-1500.replay"),
            "run": str(run),
            "title": "step 1,500",
        }
        assert f'href="#{replay["id"]}"' in report  # the mark on the curve
        watched.update()  # no changes, so nothing is sent
        point(run, 3000, 7.25)
        (run / "failures").mkdir()
        shutil.copy(run / "replays" / "step-1500.replay", run / "failures" / "2.replay")
        watched.update()
        assert [page.read(), page.read()] == ["report", "replays"]
        assert ">7.250<" in page.events["report"]["html"]
        assert [each["title"] for each in page.events["replays"]] == ["step 1,500", "failures/2"]
        (run / "failures" / "2.replay").unlink()
        watched.update()
        page.read(), page.read()
        assert len(page.events["replays"]) == 1


def test_a_run_in_a_folder_of_sweeps_is_watched(run: Path, tmp_path: Path) -> None:
    trial = tmp_path / "runs" / "sweep" / "trial-1"
    trial.parent.mkdir(parents=True)
    run.rename(trial)
    watched = RunPage([tmp_path / "runs"])
    with watched.server, LivePage(watched.server.url) as page:
        page.read(), page.read()
        point(trial, 3000, 7.25)
        watched.update()
        page.read()
        assert ">7.250<" in page.events["report"]["html"]


def test_hints_appear_while_a_run_goes_on(run: Path, watched: RunPage) -> None:
    with LivePage(watched.server.url) as page:
        page.read(), page.read()
        assert "Hints" not in page.events["report"]["html"]
        data = json.loads((run / "run.json").read_text())
        hint = Hint("value_loss", f"the value loss is 58 {EVIL}", {"norm_returns": True})
        (run / "run.json").write_text(json.dumps({**data, **hint_facts([hint])}))
        watched.update()
        page.read(), page.read()
        html = page.events["report"]["html"]
        assert "the value loss is 58" in html
        assert "; try --set-train norm_returns=true</li>" in html
        assert EVIL not in html


def test_a_replay_is_shown_by_its_animation(run: Path, watched: RunPage) -> None:
    [name] = watched._files
    status, headers, html = request(watched.server.url + name)
    assert status == 200
    assert "This page cannot be read: it is damaged" in html
    assert "sandbox allow-scripts" in headers["content-security-policy"]
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert request(watched.server.url + name)[2] == html
    (run / "replays" / "step-1500.replay").write_bytes(b"damaged")
    os.utime(run / "replays" / "step-1500.replay", (1, 1))
    status, _, text = request(watched.server.url + name)
    assert (status, text.count("\n")) == (422, 1)
    assert "cannot be shown" in text
    (run / "replays" / "step-1500.replay").unlink()
    assert request(watched.server.url + name)[0] == 422
    for i in range(2 * module._MAX_PAGES):
        record(snake, RandomAgent(seed=i), seed=i).save(run / "replays" / f"{i}.replay")
    watched.update()
    for name in watched._files:
        assert request(watched.server.url + name)[0] == 200
    assert len(watched._pages) == module._MAX_PAGES


def test_only_replays_of_the_run_are_served(run: Path, tmp_path: Path, watched: RunPage) -> None:
    secret = tmp_path / "secret.replay"
    shutil.copy(run / "replays" / "step-1500.replay", secret)
    (run / "replays" / "link.replay").symlink_to(secret)
    (run / "replays" / "gone.replay").symlink_to(tmp_path / "gone")
    (run / "replays" / "folder.replay").mkdir()
    (run / "failures").symlink_to(tmp_path)
    (run / "replays" / "notes.txt").write_text("private")
    watched.update()
    assert [path.name for path in watched._files.values()] == ["step-1500.replay"]
    for route in (
        *("run.json", "curves.jsonl", "replays/", "replays/step-1500.replay", "../secret.replay"),
        *(f"../{secret.name}", str(secret), "%2e%2e/secret.replay", "replays%2fnotes.txt"),
        *("events/", "answer", next(iter(watched._files)) + "/..", "replay-", "#"),
    ):
        assert request(watched.server.url + route)[0] == 404, route


def test_strings_of_runs_are_data(run: Path, watched: RunPage) -> None:
    shutil.copy(run / "replays" / "step-1500.replay", run / "replays" / "<b>'\".replay")
    watched.update()
    status, headers, html = request(watched.server.url)
    assert status == 200
    assert "alert(1)" not in html
    policy = headers["content-security-policy"]
    assert "frame-src 'self'" in policy
    assert "unsafe" not in policy
    with LivePage(watched.server.url) as page:
        page.read(), page.read()
        report = page.events["report"]["html"]
        assert "<script" not in report
        assert "<img" not in report
        assert "&lt;script&gt;alert(1)" in report


def test_a_run_that_goes_away_is_named(run: Path, watched: RunPage) -> None:
    shutil.rmtree(run)
    watched.update()
    with LivePage(watched.server.url) as page:
        page.read(), page.read()
        assert str(run) in page.events["report"]["problems"][0]
        assert page.events["replays"] == []


def test_a_folder_of_runs_is_watched(run: Path) -> None:
    page = RunPage([run.parent])
    with page.server:
        shutil.copytree(run, run.parent / "second")
        page.update()
        assert len(page._files) == 2


def test_no_runs_are_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    before = holdings()
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=str(folder)):
            RunPage([folder])
    assert leaked_since(before) == []


@pytest.mark.slow
def test_the_command_ends_with_ctrl_c(run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "entity_env", "watch", str(run), "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with LivePage(url) as page:
            page.read(), page.read()
            point(run, 3000, 7.25)
            while ">7.250<" not in page.events["report"]["html"]:
                page.read()
            process.send_signal(signal.SIGINT)
            while page.read():
                pass
            assert "bye" in page.events
        assert process.communicate(timeout=WAIT_S)[0] == ""
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


FOCUSED = "document.activeElement.getAttribute('href') ?? document.activeElement.dataset.id"


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_updates_keep_focus_scroll_and_the_replay(
    run: Path, watched: RunPage, tmp_path: Path
) -> None:
    with Chromium(watched.server.url, tmp_path / "profile", (390, 700)) as page:
        page.emulate(390, 700, is_mobile=True)
        page.wait_for("!!document.querySelector('#replays button')")
        assert page.value("document.title") == f"1 training run of {EVIL}"
        page.value("document.querySelector('#replays button').click()")
        page.wait_for("document.querySelector('#player').clientHeight > 0")
        assert page.value("document.querySelector('#player').clientHeight <= innerHeight")
        page.value("window.frame = document.querySelector('#player').contentWindow")
        page.value("document.querySelector('#report .plot a').focus()")
        page.value("scrollTo(0, 400)")
        focused = page.value(FOCUSED)
        assert focused.startswith("#replay-")
        point(run, 3000, 7.25)
        shutil.copy(run / "replays" / "step-1500.replay", run / "replays" / "step-3000.replay")
        watched.update()
        page.wait_for("document.querySelectorAll('#replays button').length == 2")
        page.wait_for("document.querySelector('#report').textContent.includes('7.250')")
        assert page.value(FOCUSED) == focused
        assert page.value("scrollY") == 400
        assert page.value("window.frame == document.querySelector('#player').contentWindow")
        pressed = "[...document.querySelectorAll('#replays button')].map(b => b.ariaPressed)"
        assert page.value(pressed) == ["true", "false"]
        page.value("document.querySelectorAll('#replays button')[1].focus()")
        point(run, 4000, 8.25)
        watched.update()
        page.wait_for("document.querySelector('#report').textContent.includes('8.250')")
        assert page.value(FOCUSED) == watched_id(watched, "step-3000.replay")
        assert page.value("document.documentElement.scrollWidth") <= 390
        assert [each for each in page.problems if "favicon" not in each] == []


def watched_id(watched: RunPage, name: str) -> str:
    return next(each for each, path in watched._files.items() if path.name == name)
