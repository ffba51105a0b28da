"""`entity-env doctor`: what is installed, and whether it works."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click
from greenlet import greenlet

_REQUIRED: Final = ("entity-env", "numpy", "greenlet", "click", "rich")
_EXTRAS: Final = {
    "train": ("torch", "safetensors", "tensorboard"),
    "fast": ("numba",),
    "pixel": ("torch", "warp-lang"),
    "gymnasium": ("gymnasium",),
    "pettingzoo": ("pettingzoo",),
}


@click.command()
def doctor() -> None:
    """Report versions, what is missing, and whether games can be suspended."""
    click.echo(f"python       {platform.python_version()}  {platform.platform()}")
    for package in _REQUIRED:
        click.echo(f"{package:<12} {_version(package) or 'missing: pip install entity-env'}")
    click.echo(f"suspending   {'works' if _can_suspend() else 'broken: reinstall greenlet'}")
    for extra, packages in _EXTRAS.items():
        click.echo(f"[{extra}]".ljust(13) + _describe(extra, packages))


def _describe(extra: str, packages: tuple[str, ...]) -> str:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        return f"{' and '.join(missing)} missing: pip install 'entity-env[{extra}]'"
    return ", ".join(f"{package} {found}" for package, found in versions.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _can_suspend() -> bool:
    """Sends a number into a suspended stack and back."""
    here = greenlet.getcurrent()
    other = greenlet(lambda value: here.switch(value + 1) + 1)
    return bool(other.switch(1) == 2 and other.switch(2) == 3)
