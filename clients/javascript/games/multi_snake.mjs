// Multi-snake: snakes of different colors on one board, each with its own move. The rules are those
// of entity_env.games.multi_snake.
import { Game, Obs, Random, categorical, serve } from "../entity-env.mjs";

const STEPS = { UP: [0, 1], DOWN: [0, -1], LEFT: [-1, 0], RIGHT: [1, 0] };

async function play(agent, { seed, board_size: size, num_snakes, max_snake_length, max_step }) {
  const random = new Random(seed), maxEaten = (max_snake_length - 1) * num_snakes;
  const blocked = new Set(), foodAt = new Map(), segments = []; // cells are x * size + y
  const cellOf = ({ x, y }) => x * size + y;
  const freeCell = () => {
    for (;;) {
      const cell = random.below(size * size);
      if (!blocked.has(cell) && !foodAt.has(cell)) return { x: Math.floor(cell / size), y: cell % size };
    }
  };
  const place = food => {
    Object.assign(food, freeCell());
    foodAt.set(cellOf(food), food);
    return food;
  };
  const colors = Array.from({ length: num_snakes }, (_, color) => color);
  const heads = colors.map(color => {
    const head = { ...freeCell(), color };
    blocked.add(cellOf(head));
    return head;
  });
  const bodies = colors.map(() => []); // tail first
  const foods = colors.map(color => place({ color }));
  const clock = { step: 0 };
  let numEaten = 0, goesOn = true;
  const observe = () => new Obs(numEaten / maxEaten)
    .globals(clock).actors("Head", heads).entities("Segment", segments).entities("Food", foods);

  const grow = (head, body) => {
    const segment = { ...head };
    body.push(segment);
    segments.push(segment);
    numEaten++;
  };
  const follow = (head, body) => {
    const tail = body.shift();
    blocked.delete(cellOf(tail ?? head));
    if (tail) body.push(Object.assign(tail, { x: head.x, y: head.y }));
  };
  const move = moves => {
    clock.step++;
    const eaten = [];
    let isFine = true;
    heads.forEach((head, color) => {
      const [dx, dy] = STEPS[moves[color]], to = { x: head.x + dx, y: head.y + dy };
      const isInside = to.x >= 0 && to.y >= 0 && to.x < size && to.y < size;
      const cell = cellOf(to), food = isInside ? foodAt.get(cell) : undefined;
      if (!isInside || blocked.has(cell) || (food && food.color !== color)) {
        isFine = false;
        return;
      }
      if (food) {
        foodAt.delete(cell);
        eaten.push(food);
      }
      if (food && bodies[color].length < max_snake_length - 1) grow(head, bodies[color]);
      else follow(head, bodies[color]);
      blocked.add(cell);
      Object.assign(head, to);
    });
    eaten.forEach(place); // after all moves, so no snake runs into new food in this step
    return isFine && numEaten < maxEaten;
  };

  while (goesOn && clock.step < max_step) {
    const moves = await agent.act(observe(), "Move");
    if (moves === null) return;
    goesOn = move(moves);
  }
  agent.gameOver(observe(), { truncated: goesOn });
}

export const game = new Game({
  name: "multi_snake",
  play,
  entities: { Head: ["x", "y", "color"], Segment: ["x", "y", "color"], Food: ["x", "y", "color"] },
  globalFeatures: ["step"],
  actions: { Move: categorical(...Object.keys(STEPS)) },
  settings: { board_size: 10, num_snakes: 2, max_snake_length: 11, max_step: 180 },
  check: ({ board_size: size, num_snakes: count, max_snake_length: most, max_step }) => {
    if (Math.min(count, most - 1, max_step) < 1) {
      return "multi_snake: num_snakes and max_step must be at least 1, max_snake_length 2";
    }
    return size * size < count * (most + 1) ? "multi_snake: the board is too small" : undefined;
  },
});

if (globalThis.process?.env.ENTITY_ENV_ADDRESS) serve(game); // started by entity_env
