"""What pyproject.toml cannot say yet: two modules in C, without which the package works, too."""

import os

from setuptools import Extension, setup

SPEEDUPS = Extension(
    "entity_env.authoring._speedups",
    ["entity_env/authoring/_speedups.c"],
    optional=True,  # no compiler: a warning, and observations are read in Python
)
FORWARD = Extension(
    "entity_env.agents.rogue_net.numpy_net._forward",
    ["entity_env/agents/rogue_net/numpy_net/_forward.c"],
    include_dirs=["clients/c"],
    depends=["clients/c/entity_agent.h"],
    optional=True,  # as above: single decisions are computed in numpy
)

# ENTITY_ENV_PURE=1: a wheel for every machine, without these modules.
setup(ext_modules=[] if os.environ.get("ENTITY_ENV_PURE") else [SPEEDUPS, FORWARD])
