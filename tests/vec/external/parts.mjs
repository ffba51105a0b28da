// A game with decisions in several parts, as in `twins.py`.
import {
  Game, Obs, Random, categorical, composite, continuous, globalCategorical, selectEntity, serve,
} from "../../../clients/javascript/entity-env.mjs";

const FLAGS = ["LOW", "MID", "HIGH"], TURNS = ["BACK", "ON"];

const maskOf = (draws, count) => {
  const allowed = Array.from({ length: count }, () => draws.below(2) === 1);
  allowed[draws.below(count)] = true;
  return allowed;
};

async function play(agent, { seed }) {
  const draws = new Random(seed);
  let score = 0;
  for (let turn = 0; turn < 4; turn++) {
    const cars = Array.from({ length: 1 + draws.below(3) }, () => ({ x: draws.uniform() }));
    const rocks = Array.from({ length: 1 + draws.below(3) }, () => ({ size: draws.uniform() }));
    const obs = new Obs(score).actors("Car", cars, "Haul").entities("Rock", rocks);
    if (draws.below(2)) {
      const near = cars.map((_, i) => (i ? rocks.map(() => draws.below(2) === 1) : maskOf(draws, rocks.length)));
      obs.mask("Haul.rock", near);
    }
    obs.mask("Haul.load", cars.map(() => rocks.map(() => maskOf(draws, 3))), "Haul.rock");
    if (draws.below(2)) obs.mask("Signal.flag", TURNS.map(() => maskOf(draws, 3)), "Signal.turn");
    const answers = await agent.act(obs, "Signal", "Haul");
    if (answers === null) return;
    const [signal, hauls] = answers;
    score += 3 * TURNS.indexOf(signal.turn) + FLAGS.indexOf(signal.flag);
    hauls.forEach((haul, i) => {
      if (haul === null) return;
      const { rock, load, is_fast: isFast, weight: [weight] } = haul;
      const number = 8 * rocks.indexOf(rock) + 100 * FLAGS.indexOf(load) + 1000 * (isFast === "True");
      score += (i + 1) * number + Math.floor(16 * weight) / 16;
    });
  }
  agent.gameOver(new Obs(score).entities("Rock", [{ size: 0.5 }]));
}

export const game = new Game({
  name: "parts",
  play,
  entities: { Car: ["x"], Rock: ["size"] },
  actions: {
    Signal: composite({ turn: globalCategorical(...TURNS), flag: globalCategorical(...FLAGS) }),
    Haul: composite({
      rock: selectEntity("Rock"),
      load: categorical(...FLAGS),
      is_fast: categorical("False", "True"),
      weight: continuous({ weight: [0, 2] }),
    }),
  },
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(game);
