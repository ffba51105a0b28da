// Snake: one snake on a board. The rules are those of entity_env.games.snake.
import { Game, Obs, Random, globalCategorical, serve } from "../entity-env.mjs";

const STEPS = { UP: [0, 1], DOWN: [0, -1], LEFT: [-1, 0], RIGHT: [1, 0] };

async function play(agent, { seed, board_size: size }) {
  const random = new Random(seed), numCells = size * size;
  const taken = new Array(numCells).fill(false), body = []; // tail first
  const first = random.below(numCells), heads = [{ x: Math.floor(first / size), y: first % size }];
  const food = [{ x: 0, y: 0 }];
  const obs = new Obs().entities("Head", heads).entities("Segment", body).entities("Food", food);
  let stepsSinceFood = 0;
  const placeFood = () => {
    const numFree = numCells - body.length - 1;
    stepsSinceFood = 0;
    if (!numFree) return food.pop();
    let left = random.below(numFree), cell = 0;
    while (taken[cell] || left-- > 0) cell++;
    food[0].x = Math.floor(cell / size);
    food[0].y = cell % size;
  };
  taken[first] = true;
  placeFood();
  for (;;) {
    obs.score = body.length;
    if (!food.length || stepsSinceFood === numCells) {
      return agent.gameOver(obs, { truncated: food.length > 0 });
    }
    const move = await agent.act(obs, "Move");
    if (move === null) return;
    const head = heads[0], step = STEPS[move], x = head.x + step[0], y = head.y + step[1];
    const isInside = x >= 0 && x < size && y >= 0 && y < size;
    const tail = body.length ? body[0] : head; // leaves its cell in this step
    const isFree = isInside && (!taken[x * size + y] || (body.length && tail.x === x && tail.y === y));
    if (!isFree) return agent.gameOver(obs);
    const eats = food[0].x === x && food[0].y === y;
    body.push(head);
    if (eats) {
      heads[0] = { x, y };
    } else {
      taken[tail.x * size + tail.y] = false;
      heads[0] = body.shift();
      heads[0].x = x;
      heads[0].y = y;
      stepsSinceFood++;
    }
    taken[x * size + y] = true;
    if (eats) placeFood();
  }
}

export const game = new Game({
  name: "snake",
  play,
  entities: { Head: ["x", "y"], Segment: ["x", "y"], Food: ["x", "y"] },
  actions: { Move: globalCategorical(...Object.keys(STEPS)) },
  settings: { board_size: 10 },
  check: ({ board_size: size }) => size < 2 ? "snake: board_size must be at least 2" : undefined,
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(game); // started by entity_env
