"""The program `entity-env`, for launchers that start a module: `python -m entity_env`."""

from entity_env.cli import main

if __name__ == "__main__":
    main(prog_name="entity-env")
