"""Speed of training against a bot of kaggle-environments, and what the game takes of it.

`python -m benchmarks.peers.arena_speed GAME BOT RUN` continues from the network of a run for a few
updates, in one process with one thread, and prints one line of JSON: decisions per second of
processor time after the first update, and the shares of that time that the rules of the package,
the features and masks of the adapter and the bot take.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any, Final

from benchmarks.peers.serve import private_stdout
from entity_env.agents import against
from entity_env.agents.ppo import Callback, PPOConfig, TrainState, train
from entity_env.agents.rogue_net import initialized_from
from entity_env.interop.kaggle import adapted_game, kaggle_env
from entity_env.interop.kaggle.bots import KaggleBot
from entity_env.vec import VecEnv

_NUM_ENVS: Final = 16
_NUM_STEPS: Final = 64
_NUM_UPDATES: Final = 7
_RATE: Final = 1e-5
"""Learning rate: the network stays nearly as it is."""


class _Clock(Callback):
    """Decisions and processor time since the first update, and time by part of the game."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._begin: tuple[float, int] | None = None
        self.seconds, self.decisions = 0.0, 0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts for a part."""

        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of any function
            begin = process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[part] = self.spent.get(part, 0.0) + process_time() - begin

        return run

    def on_update(self, state: TrainState) -> None:
        now, step = process_time(), state.progress.step
        if self._begin is None:
            self._begin = now, step
            self.spent.clear()
        self.seconds, self.decisions = now - self._begin[0], step - self._begin[1]


def measured(name: str, bot: str, run: str) -> dict[str, float]:
    """See the top."""
    game, clock = adapted_game(name), _Clock()
    env = kaggle_env(game.adapter.environment, 0)  # the one that episodes copy
    rules = clock.timed("rules", env.interpreter)

    def interpreter(state: object, env: object) -> Any:  # noqa: ANN401 - untyped; its runner counts the parameters
        return rules(state, env)

    env.interpreter = interpreter
    for owner, method, part in (
        (game.adapter, "show", "features"),
        (game.adapter, "moves", "features"),
        (KaggleBot, "choose", "bot"),
    ):
        setattr(owner, method, clock.timed(part, getattr(owner, method)))
    with VecEnv(against(game, [bot]), _NUM_ENVS, num_workers=0) as vec:
        config = PPOConfig.for_env(
            vec,
            total_steps=_NUM_ENVS * _NUM_STEPS * _NUM_UPDATES,
            num_steps=_NUM_STEPS,
            learning_rate=_RATE,
            compile="wait",
        )
        train(vec, config, policy=initialized_from(run), callbacks=[clock])
    parts = ("rules", "features", "bot")
    shares = {f"{part}_share": clock.spent[part] / clock.seconds for part in parts}
    return {"decisions_per_s": clock.decisions / clock.seconds, **shares}


if __name__ == "__main__":
    answers = private_stdout()
    answers.write(json.dumps(measured(*sys.argv[1:])) + "\n")
    answers.close()
