"""A custom network, trained on snake: a sum over all entities (Deep Sets), then two layers.

python examples/own_network.py
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from entity_env import ActionSpace, ObsSpace
from entity_env.agents.ppo import Policy, PPOConfig, train
from entity_env.agents.rogue_net import ActionDistribution
from entity_env.core.vec_obs import EntityBatch
from entity_env.games import snake
from entity_env.vec import VecEnv


class DeepSets(Policy):
    """Embeds every entity alone, adds the embeddings up, and decides by the sum."""

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[str, ActionSpace]) -> None:
        super().__init__(obs_space, action_space)
        widths = {name: len(entity.features) for name, entity in obs_space.entities.items()}
        self.embed = nn.ModuleDict({name: nn.Linear(width, 64) for name, width in widths.items()})
        self.trunk = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU())
        self.move, self.value = nn.Linear(64, 4), nn.Linear(64, 1)

    def distributions(self, batch: EntityBatch) -> tuple[dict[str, ActionDistribution], Tensor]:
        summed = torch.zeros(len(batch.features["Head"]), 64)
        for name, layer in self.embed.items():
            entities = batch.features[name]
            embedded = layer(torch.tensor(entities.values)).relu()
            summed = summed.index_add(0, torch.tensor(entities.row_index), embedded)
        x = self.trunk(summed)
        move = self.labels("Move", self.move(x), batch)
        return {"Move": move}, self.value(x).squeeze(1)


def main(steps: int = 100_000) -> float:
    """Trains the network; returns the mean reward at the end."""
    with VecEnv(snake, 64) as vec:
        config = PPOConfig.for_env(vec, total_steps=steps)
        progress = train(vec, config, policy=DeepSets).progress
    print(f"{progress.mean_reward:.1f} foods per episode after {progress.step:,} steps")
    return progress.mean_reward


if __name__ == "__main__":
    main()
