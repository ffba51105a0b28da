"""Build the wheel, install it into a fresh environment and use it from an empty folder.

Catches errors that the working tree hides: an unpackaged module or `py.typed`, a second top-level
name, an undeclared dependency, a console script that does not start.
"""

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# `build` matters most: setuptools would pack modules left there by an earlier build.
NOT_COPIED = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "*.so", "build", "dist", "runs"
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="entity-env-wheel-") as scratch:
        wheel = build_wheel(Path(scratch))
        check_contents(wheel)
        check_installed(wheel, Path(scratch))
    print(f"{wheel.name}: contents, import and console script are as they should be")


def build_wheel(scratch: Path) -> Path:
    """Build from a copy: the build must not leave files in the working tree."""
    source = scratch / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=NOT_COPIED)
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(scratch), str(source)]
    done = subprocess.run([sys.executable, *command], text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"the wheel does not build:\n{done.stdout}{done.stderr}")
    return next(scratch.glob("*.whl"))


def check_contents(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    top_level = {name.split("/")[0] for name in packed if ".dist-info/" not in name}
    if top_level != {"entity_env"}:
        sys.exit(f"{wheel.name}: expected entity_env alone at the top level, got {top_level}")
    files = (path for path in ROOT.glob("entity_env/**/*.*") if path.is_file())
    files = (path for path in files if path.suffix not in {".c", ".so"})  # the optional C extension
    needed = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    if missing := sorted(needed - packed):
        sys.exit(f"{wheel.name}: not packed: {', '.join(missing)}")


def check_installed(wheel: Path, scratch: Path) -> None:
    environment, empty = scratch / "environment", scratch / "empty"
    # No pip there, which is slow to install: the pip of this Python installs into it.
    venv.create(environment, with_pip=False)
    empty.mkdir()
    binaries = environment / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", "-qq"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    show = [str(binaries / "python"), "-I", "-c", "import entity_env; print(entity_env.__file__)"]
    shown = subprocess.run(show, cwd=empty, text=True, stdout=subprocess.PIPE, check=True).stdout
    if not Path(shown.strip()).is_relative_to(environment):
        sys.exit(f"expected entity_env from {environment}, got {shown.strip()}")
    script = [str(binaries / "entity-env"), "--help"]
    subprocess.run(script, cwd=empty, stdout=subprocess.DEVNULL, check=True)
    for words in (["record", "snake"], ["draw", "snake.replay", "--out", "snake.html"]):
        subprocess.run([*script[:1], *words], cwd=empty, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
