"""The command line: `entity-env games | play | train | eval | bench | doctor`."""

from entity_env.cli.app import main as main
