"""`python -m entity_env`: the command line, as `entity-env`, for launchers that start a module."""

from entity_env.cli import main

if __name__ == "__main__":
    main(prog_name="entity-env")
