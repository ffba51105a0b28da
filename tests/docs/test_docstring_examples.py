"""Docstring examples of the package print the shown output."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from entity_env.errors import MissingExtraError
from tests import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "entity_env").rglob("*.py"))
    if re.search(r"^ *>>> (?!.*\+SKIP)", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("name", MODULES)
def test_they_run(name: str) -> None:
    if name.startswith("entity_env.interop.kaggle.") and not find_spec("kaggle_environments"):
        pytest.skip("needs the package kaggle-environments")  # no extra has it
    try:
        tried = doctest.testmod(import_module(name), raise_on_error=True)
    except doctest.UnexpectedException as error:
        if isinstance(error.exc_info[1], MissingExtraError):
            pytest.skip(str(error.exc_info[1]))
        raise error.exc_info[1] from None
    assert tried.attempted
    assert not tried.failed
