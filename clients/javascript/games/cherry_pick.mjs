// Cherry pick: one actor selects an entity in every step. The rules are those of
// entity_env.games.cherry_pick.
import { Game, Obs, Random, selectEntity, serve } from "../entity-env.mjs";

/** Cherries with qualities that add up to `total`. */
function cherriesOf(count, total, random) {
  const weights = Array.from({ length: count }, () => 0.1 + (1 - 0.1) * random.uniform());
  const sum = weights.reduce((one, other) => one + other, 0);
  return weights.map(weight => ({ quality: (total * weight) / sum }));
}

async function play(agent, { seed, num_good, num_bad }) {
  const random = new Random(seed), picker = {};
  const cherries = cherriesOf(num_good, 1, random).concat(cherriesOf(num_bad, -1, random));
  random.shuffle(cherries);
  let score = 0;
  const observe = () => new Obs(score).actors("Picker", [picker]).entities("Cherry", cherries);
  for (let i = 0; i < num_good; i++) {
    const picked = await agent.act(observe(), "SelectCherry");
    if (picked === null) return;
    cherries.splice(cherries.indexOf(picked[0]), 1);
    score += picked[0].quality;
  }
  agent.gameOver(observe());
}

export const game = new Game({
  name: "cherry_pick",
  play,
  entities: { Picker: [], Cherry: ["quality"] },
  actions: { SelectCherry: selectEntity("Cherry") },
  settings: { num_good: 8, num_bad: 8 },
  check: ({ num_good, num_bad }) =>
    Math.min(num_good, num_bad) < 1 ? "num_good and num_bad must be at least 1" : undefined,
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(game); // started by entity_env
