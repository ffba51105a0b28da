"""Two builds are identical, and every problem stops a release."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release
from tools.find_python import find_python

MINOR = "{}.{}".format(*sys.version_info)


def sdist(path: Path, *, owner: str, mtime: int, names: tuple[str, ...]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.uname, member.mtime, member.mode = 3, owner, mtime, 0o664
            member.pax_headers = {"mtime": f"{mtime}.5"}
            tar.addfile(member, io.BytesIO(b"abc"))
    return path


def test_an_archive_does_not_depend_on_owner_time_and_order(tmp_path: Path) -> None:
    one = sdist(tmp_path / "1", owner="a", mtime=1, names=("x/a", "x/b"))
    other = sdist(tmp_path / "2", owner="b", mtime=2, names=("x/b", "x/a"))
    for path in (one, other):
        release.normalize(path, path.with_suffix(".gz"), epoch=1_700_000_000)
    assert one.with_suffix(".gz").read_bytes() == other.with_suffix(".gz").read_bytes()
    unpacked = release.unpack(other.with_suffix(".gz"), tmp_path / "unpacked")
    assert (unpacked.name, (unpacked / "b").read_bytes()) == ("x", b"abc")
    assert (unpacked / "b").stat().st_mtime == 1_700_000_000


def test_builds_that_differ_end_a_release(tmp_path: Path) -> None:
    for folder, content in (("one", b"1"), ("other", b"2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.whl").write_bytes(content)
    with pytest.raises(SystemExit, match="expected the same bytes from both builds"):
        release.compare([tmp_path / "one" / "a.whl"], [tmp_path / "other" / "a.whl"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.py"], "0 modules in C were built"),
        (["a.so"], "1 modules in C were built"),
        (["a.so", "b.so"], "no paths of this machine, found /home/me"),
    ],
)
def test_a_wheel_without_the_modules_or_with_paths_ends_a_release(
    tmp_path: Path, names: list[str], message: str
) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(f"entity_env/{name}", b"x /home/me/python/lib")
    with pytest.raises(SystemExit, match=message):
        release.check_compiled(wheel, ["/home/me"])


def test_a_citation_of_another_version_ends_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.check_citation()
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("title: x\nversion: 1.2.30\n")
    with pytest.raises(SystemExit, match=r"expected `version: 1\.2\.3` in CITATION\.cff"):
        release.check_citation()


def test_commands_of_the_readme_are_tried_in_a_short_form() -> None:
    commands = release.readme_commands()
    assert {words[0] for words in commands} == {"entity-env", "python"}
    assert [words[1] for words in commands[:3]] == ["play", "check", "train"]
    assert "4096" in commands[2]


def test_a_command_that_ends_otherwise_ends_a_release() -> None:
    fails = (sys.executable, "-c", "import sys; sys.exit('not today')")
    assert release.run(*fails, fails=True) == "not today\n"
    with pytest.raises(SystemExit, match=r"exit code 1 of .*not today"):
        release.run(*fails)
    with pytest.raises(SystemExit, match="exit code 0"):
        release.run(sys.executable, "-c", "", fails=True)


def test_a_python_that_does_not_run_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim, good = tmp_path / "shims", tmp_path / "good"
    for folder, text in ((shim, "exit 127"), (good, f'exec "{sys.executable}" "$@"')):
        folder.mkdir()
        (folder / f"python{MINOR}").write_text(f"#!/bin/sh\n{text}\n")
        (folder / f"python{MINOR}").chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{shim}{os.pathsep}{good}")
    assert find_python(MINOR) == Path(sys.executable)
    monkeypatch.setenv("PATH", str(shim))
    assert find_python(MINOR) is None


def test_a_python_of_another_version_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = tmp_path / "versions" / "3.99.1" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (binaries / "python").chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_python("3.99") is None
