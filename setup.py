"""What pyproject.toml cannot say yet: one module in C, without which the package works, too."""

import os

from setuptools import Extension, setup

SPEEDUPS = Extension(
    "entity_env.authoring._speedups",
    ["entity_env/authoring/_speedups.c"],
    optional=True,  # no compiler: a warning, and observations are read in Python
)

# ENTITY_ENV_PURE=1: a wheel for every machine, without that module.
setup(ext_modules=[] if os.environ.get("ENTITY_ENV_PURE") else [SPEEDUPS])
