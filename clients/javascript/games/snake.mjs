// Snake: one snake on a board. The rules are those of entity_env.games.snake.
import { Game, Obs, Random, globalCategorical, serve } from "../entity-env.mjs";

const STEPS = { UP: [0, 1], DOWN: [0, -1], LEFT: [-1, 0], RIGHT: [1, 0] };

async function play(agent, { seed, board_size: size }) {
  const random = new Random(seed), numCells = size * size;
  const taken = new Uint8Array(numCells);
  const newFood = () => {
    const numFree = numCells - body.length - 1;
    if (!numFree) return [];
    let left = random.below(numFree), cell = 0;
    while (taken[cell] || left-- > 0) cell++;
    return [{ x: Math.floor(cell / size), y: cell % size }];
  };
  const first = random.below(numCells);
  let head = { x: Math.floor(first / size), y: first % size };
  const body = []; // tail first
  taken[first] = 1;
  let food = newFood(), stepsSinceFood = 0;
  for (;;) {
    const obs = new Obs(body.length)
      .entities("Head", [head]).entities("Segment", body).entities("Food", food);
    if (!food.length || stepsSinceFood === numCells) {
      return agent.gameOver(obs, { truncated: food.length > 0 });
    }
    const move = await agent.act(obs, "Move");
    if (move === null) return;
    const x = head.x + STEPS[move][0], y = head.y + STEPS[move][1];
    const isInside = x >= 0 && x < size && y >= 0 && y < size;
    const tail = body[0] ?? head; // leaves its cell in this step
    const isFree = isInside && (!taken[x * size + y] || (body.length && tail.x === x && tail.y === y));
    if (!isFree) return agent.gameOver(obs);
    const eats = food[0].x === x && food[0].y === y;
    body.push(head);
    if (!eats) {
      taken[tail.x * size + tail.y] = 0;
      body.shift();
      stepsSinceFood++;
    }
    head = { x, y };
    taken[x * size + y] = 1;
    if (eats) {
      food = newFood();
      stepsSinceFood = 0;
    }
  }
}

serve(new Game({
  name: "snake",
  play,
  entities: { Head: ["x", "y"], Segment: ["x", "y"], Food: ["x", "y"] },
  actions: { Move: globalCategorical(...Object.keys(STEPS)) },
  settings: { board_size: 10 },
  check: ({ board_size: size }) => size < 2 ? "snake: board_size must be at least 2" : undefined,
}));
