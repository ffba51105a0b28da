"""Contract tests that authors of environments and games run on their own work.

    def test_contract() -> None:
        check_game(snake)

Each check plays with random legal actions and raises one `ContractError` with all violations.
"""

from entity_env.check.batch_env import check_batch_env as check_batch_env
from entity_env.check.env import check_env as check_env
from entity_env.check.game import check_game as check_game
