// Tic-tac-toe: two agents that take turns. The rules are those of entity_env.games.tic_tac_toe.
import { Game, Obs, Random, globalCategorical, serve } from "../entity-env.mjs";

const SQUARES = ["A1", "B1", "C1", "A2", "B2", "C2", "A3", "B3", "C3"];
const LINES = ["A1B1C1", "A2B2C2", "A3B3C3", "A1A2A3", "B1B2B3", "C1C2C3", "A1B2C3", "A3B2C1"]
  .map(line => line.match(/../g));

const place = square => ({ x: "ABC".indexOf(square[0]), y: Number(square[1]) - 1 });

async function play(agents, { seed }) {
  const owners = new Map(); // in the order of the moves
  const hasWon = agent => LINES.some(line => line.every(square => owners.get(square) === agent));
  const observe = (agent, score = 0) => {
    const of = isShown => [...owners].filter(([, owner]) => isShown(owner)).map(([s]) => place(s));
    return new Obs(score)
      .entities("Empty", SQUARES.filter(square => !owners.has(square)).map(place))
      .entities("Mine", of(owner => owner === agent))
      .entities("Theirs", of(owner => owner !== agent))
      .mask("Square", SQUARES.map(square => !owners.has(square)));
  };
  let turn = new Random(seed).below(2);
  while (!hasWon(1 - turn) && owners.size < SQUARES.length) {
    const square = await agents[turn].act(observe(turn), "Square");
    if (square === null) return;
    owners.set(square, turn);
    turn = 1 - turn;
  }
  for (const i of [0, 1]) agents[i].gameOver(observe(i, Number(hasWon(i)) - Number(hasWon(1 - i))));
}

export const game = new Game({
  name: "tic_tac_toe",
  play,
  numAgents: 2,
  entities: { Empty: ["x", "y"], Mine: ["x", "y"], Theirs: ["x", "y"] },
  actions: { Square: globalCategorical(...SQUARES) },
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(game); // started by entity_env
