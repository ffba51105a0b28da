"""Tests of the contract that authors of environments and games run on their own work.

    def test_contract() -> None:
        check_game(snake)

Both functions play with random legal actions and say everything they find in one `ContractError`.
"""

from entity_env.check.env import check_env as check_env
from entity_env.check.game import check_game as check_game
