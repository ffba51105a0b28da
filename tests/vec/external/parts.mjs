// Games with decisions in several parts and with relations, as in `twins.py`.
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

function lookAtRoads(draws, score) {
  const cars = Array.from({ length: 1 + draws.below(3) }, () => ({ x: draws.uniform() }));
  const rocks = Array.from({ length: 1 + draws.below(3) }, () => ({ size: draws.uniform() }));
  const roads = [{ hours: draws.uniform(), start: cars[0], end: rocks[0] }], gaps = [];
  for (const end of rocks) {
    for (const start of cars) {
      for (let left = draws.below(3); left > 0; left--) roads.push({ hours: draws.uniform(), start, end });
    }
  }
  for (const one of rocks) for (const other of rocks) if (draws.below(2)) gaps.push({ one, other });
  const obs = new Obs(score).relations("Gap", gaps).relations("Road", roads).actors("Car", cars, "SelectRoad", "Trip").entities("Rock", rocks);
  const flags = () => roads.map((_, i) => draws.below(4) > 0 || i === 0);
  if (draws.below(2)) obs.mask("SelectRoad", cars.map(flags));
  else if (draws.below(2)) obs.mask("SelectRoad", flags());
  if (draws.below(2)) {
    const legal = cars.map(() => FLAGS.map(flags));
    legal.forEach((ofCar, c) => ofCar.forEach(own => roads.forEach((road, i) => { own[i] ||= road.start === cars[c]; })));
    obs.mask("Trip.road", legal, "Trip.flag");
  }
  if (draws.below(2)) obs.mask("Trip.speed", cars.map(() => roads.map(() => maskOf(draws, 3))), "Trip.road");
  obs.visible("Road", flags());
  return [obs, roads];
}

async function playRoads(agent, { seed }) {
  const draws = new Random(seed);
  let score = 0;
  for (let turn = 0; turn < 4; turn++) {
    const [obs, roads] = lookAtRoads(draws, score), answers = await agent.act(obs, "SelectRoad", "Trip");
    if (answers === null) return;
    const [chosen, trips] = answers;
    chosen.forEach((road, i) => {
      const trip = trips[i];
      if (road !== null) score += (i + 1) * (1 + roads.indexOf(road));
      if (trip === null) return;
      const number = 40 * FLAGS.indexOf(trip.flag) + 200 * FLAGS.indexOf(trip.speed);
      score += (i + 1) * (number + 1000 * roads.indexOf(trip.road));
    });
  }
  const [last] = lookAtRoads(draws, score);
  agent.gameOver(last, { truncated: draws.below(2) === 1 });
}

export const roads = new Game({
  name: "roads",
  play: playRoads,
  entities: { Car: ["x"], Rock: ["size"] },
  relations: {
    Gap: { references: { one: "Rock", other: "Rock" } },
    Road: { references: { start: "Car", end: "Rock" }, features: ["hours"] },
  },
  maxEntities: { Road: 19 },
  actions: {
    SelectRoad: selectEntity("Road"),
    Trip: composite({ flag: categorical(...FLAGS), road: selectEntity("Road"), speed: categorical(...FLAGS) }),
  },
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(process.argv[2] === "roads" ? roads : game);
