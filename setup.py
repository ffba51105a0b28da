"""What pyproject.toml cannot say yet: one module in C, without which the package works, too."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "entity_env.authoring._speedups",
            ["entity_env/authoring/_speedups.c"],
            optional=True,  # no compiler: a warning, and observations are read in Python
        )
    ]
)
