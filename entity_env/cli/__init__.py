"""The command line: `entity-env games | play | train | eval | export | bench | doctor`.

It finds games and agents by name, calls the library and shows the results. Nothing imports it.
"""

from entity_env.cli.app import main as main
