"""The command line: `entity-env games | play | train | eval | export | ...`.

Finds games and agents by name, calls the library and shows the results. Nothing imports it.
"""

try:
    from entity_env.cli.app import main as main
except ModuleNotFoundError as error:
    if error.name not in ("click", "rich", "numpy"):
        raise
    raise SystemExit(
        f"entity-env: the command line needs the package {error.name!r}, which is not installed: "
        "pip install entity-env"
    ) from None
