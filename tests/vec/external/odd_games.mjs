// Games for the tests of the client: `node odd_games.mjs WORD`. Most have one entity, `Dot`, the
// action `Move`, and episodes of three steps.
import {
  Game, Obs, Random, categorical, composite, continuous, globalCategorical, selectEntity, serve,
} from "../../../clients/javascript/entity-env.mjs";

const [, , WORD = "dots", INDEX = "0"] = process.argv;
if (WORD === "prints") console.log("printed before the first message");

const dots = (play, more = {}) => new Game({
  name: "dots",
  play,
  entities: { Dot: ["x"], Rock: ["size"], Mark: [] },
  actions: { Move: categorical("LEFT", "RIGHT"), Pick: selectEntity("Rock"), Mode: globalCategorical("A", "B"), Push: continuous({ force: [-1, 1] }) },
  metrics: ["speed"],
  maxEntities: { Rock: 3 },
  ...more,
});

const look = score => new Obs(score).actors("Dot", [{ x: 0.5 }]);

/** Three steps, with a call at the beginning of the second. */
const three = call => async agent => {
  for (let step = 0; step < 3; step++) {
    if (step === 1) await call(agent);
    if (await agent.act(look(step), "Move") === null) return;
  }
  agent.gameOver(look(3));
};

// ------------------------------------------------------------------ wrong calls

const picks = rocks => look(0).entities("Rock", rocks);
const WRONG = {
  "not an Obs": agent => agent.act({ x: 1 }, "Move"),
  "a score": agent => agent.act(5, "Move"),
  "no action": agent => agent.act(look(0)),
  "unknown action": agent => agent.act(look(0), "Jump"),
  "action twice": agent => agent.act(look(0), "Move", "Move"),
  "score NaN": agent => agent.act(look(NaN), "Move"),
  "score text": agent => agent.act(look("1"), "Move"),
  "score huge": agent => agent.act(look(1e301), "Move"),
  "unknown type": agent => agent.act(look(0).entities("Tree", []), "Move"),
  "not a list": agent => agent.act(look(0).entities("Rock", { size: 1 }), "Move"),
  "missing feature": agent => agent.act(picks([{ size: 1 }, {}]), "Move"),
  "feature null": agent => agent.act(picks([{ size: null }]), "Move"),
  "feature NaN": agent => agent.act(picks([{ size: NaN }]), "Move"),
  "feature infinite": agent => agent.act(picks([{ size: -Infinity }]), "Move"),
  "feature beyond float32": agent => agent.act(picks([{ size: 1e39 }]), "Move"),
  "feature text": agent => agent.act(picks([{ size: "3" }]), "Move"),
  "feature bigint": agent => agent.act(picks([{ size: 3n }]), "Move"),
  "array as entity": agent => agent.act(picks([[1]]), "Move"),
  "array without features": agent => agent.act(look(0).entities("Mark", [[]]), "Move"),
  "number as entity": agent => agent.act(picks([7]), "Move"),
  "null as entity": agent => agent.act(picks([null]), "Move"),
  "too many entities": agent => agent.act(picks(Array(4).fill({ size: 1 })), "Move"),
  "globals": agent => agent.act(look(0).globals({ wind: 1 }), "Move"),
  "no actors": agent => agent.act(new Obs(0).entities("Dot", [{ x: 1 }]), "Move"),
  "mask action": agent => agent.act(look(0).mask("Jump", [true]), "Move"),
  "actor action": agent => agent.act(new Obs(0).actors("Dot", [{ x: 1 }], "Jump"), "Move"),
  "mask length": agent => agent.act(look(0).mask("Mode", [true]), "Mode"),
  "mask flat": agent => agent.act(look(0).mask("Move", [true, false]), "Move"),
  "mask rows": agent => agent.act(look(0).mask("Move", [[true, true], [true, true]]), "Move"),
  "mask value": agent => agent.act(look(0).mask("Move", [[true, "no"]]), "Move"),
  "mask sparse": agent => agent.act(look(0).mask("Mode", Array(2)), "Mode"),
  "mask none": agent => agent.act(look(0).mask("Mode", [false, false]), "Mode"),
  "mask none for actor": agent => agent.act(look(0).mask("Move", [[0, 0]]), "Move"),
  "mask of actees": agent => agent.act(picks([{ size: 1 }]).mask("Pick", [[1, 1]]), "Pick"),
  "mask continuous": agent => agent.act(look(0).mask("Push", [[true]]), "Push"),
  "visible length": agent => agent.act(look(0).visible("Dot", [true, false]), "Move"),
  "visible type": agent => agent.act(look(0).visible("Tree", [true]), "Move"),
  "metric name": agent => agent.act(look(0).metric("height", 1), "Move"),
  "metric NaN": agent => agent.act(look(0).metric("speed", NaN), "Move"),
  "over: not an Obs": agent => agent.gameOver({ truncated: true }),
  "over: option": agent => agent.gameOver(look(0), { truncate: true }),
  "over: truncated": agent => agent.gameOver(look(0), { truncated: 1 }),
  "over: positional": agent => agent.gameOver(look(0), true),
  "over: mask without actors": agent => agent.gameOver(
    new Obs(0).entities("Dot", [{ x: 1 }]).mask("Move", [[true, true]]), { truncated: true }),
  "over: entity": agent => agent.gameOver(picks([{}])),
  "random: below": () => new Random(1n).below(0),
  "random: fraction": () => new Random(1n).below(1.5),
  "random: choice": () => new Random(1n).choice([]),
  "random: seed": () => new Random("7"),
};

/** Makes all wrong calls in the middle of an episode, and fails with their errors at its end. */
const misused = [];

async function misuse(agent) {
  if (misused.length) throw new Error(`found ${JSON.stringify(misused[0])}`);
  const found = {};
  const refused = (name, call) => {
    try {
      call();
      found[name] = "no error";
    } catch (error) {
      found[name] = `${error.constructor.name}: ${error.message}`;
    }
  };
  if (await agent.act(look(1), "Move") === null) return;
  for (const [name, call] of Object.entries(WRONG)) refused(name, () => call(agent));
  const pending = agent.act(look(2), "Move");
  refused("act twice", () => agent.act(look(0), "Move"));
  refused("over while asked", () => agent.gameOver(look(0)));
  if (await pending === null) return;
  agent.gameOver(look(3));
  refused("act after over", () => agent.act(look(0), "Move"));
  refused("over twice", () => agent.gameOver(look(0)));
  misused.push(found);
}

// ------------------------------------------------------------------ games that are not defined correctly

const valid = {
  name: "odd", play: async () => {}, entities: { Dot: ["x"] }, actions: { Move: categorical("LEFT", "RIGHT") },
};
const DEFINITIONS = [
  () => undefined,
  () => ({ ...valid, name: "../dots" }),
  () => ({ ...valid, play: undefined }),
  () => ({ ...valid, entitys: {} }),
  () => ({ ...valid, entities: { Dot: "x" } }),
  () => ({ ...valid, entities: { Dot: ["x", "x"] } }),
  () => ({ ...valid, entities: { __global__: [] } }),
  () => ({ ...valid, actions: {} }),
  () => ({ ...valid, actions: { Move: ["LEFT"] } }),
  () => ({ ...valid, actions: { Move: categorical() } }),
  () => ({ ...valid, actions: { Move: categorical(["LEFT", "RIGHT"]) } }),
  () => ({ ...valid, actions: { Move: selectEntity("Rock") } }),
  () => ({ ...valid, actions: { Move: continuous({ force: [1, -1] }) } }),
  () => ({ ...valid, actions: { Move: continuous({}) } }),
  () => ({ ...valid, numAgents: 0 }),
  () => ({ ...valid, settings: { seed: 1 } }),
  () => ({ ...valid, settings: { size: null } }),
  () => ({ ...valid, settings: { size: NaN } }),
  () => ({ ...valid, metrics: [1] }),
  () => ({ ...valid, maxEntities: { Rock: 1 } }),
  () => ({ ...valid, maxEntities: { Dot: -1 } }),
  () => ({ ...valid, version: 1.5 }),
  () => ({ ...valid, doc: 1 }),
  () => ({ ...valid, check: "no" }),
  () => ({ ...valid, globalFeatures: ["\ud800"] }),
  () => ({ ...valid, relations: [] }),
  () => ({ ...valid, relations: { Pair: ["one", "other"] } }),
  () => ({ ...valid, relations: { Dot: { references: { one: "Dot", other: "Dot" } } } }),
  () => ({ ...valid, relations: { Pair: { references: { one: "Dot" } } } }),
  () => ({ ...valid, relations: { Pair: { references: { one: "Dot", other: "Rock" } } } }),
  () => ({ ...valid, relations: { Pair: { references: { one: "Dot", other: "Pair" } } } }),
  () => ({ ...valid, relations: { Pair: { references: { one: "Dot", other: "Dot" }, features: ["one"] } } }),
  () => ({ ...valid, relations: { Pair: { references: { one: "Dot", other: "Dot" }, fields: [] } } }),
  () => ({ ...valid, maxEntities: { Pair: 1 } }),
  () => ({ ...valid, actions: { Send: composite() } }),
  () => ({ ...valid, actions: { Send: composite({ to: "Dot" }) } }),
  () => ({ ...valid, actions: { Send: composite({ to: categorical("A"), how: globalCategorical("B") }) } }),
  () => ({ ...valid, actions: { Send: composite({ to: composite({ to: categorical("A") }) }) } }),
];

// ------------------------------------------------------------------ failures of games

class Wheel extends Error {
  name = "Wheel";
}

const FAILS = {
  fails: () => { throw new Wheel("came \ud800 off"); },
  throws_text: () => { throw "flat"; },
  throws_null: () => { throw null; },
  throws_odd: () => { throw Object.defineProperty(new Error("x"), "message", { get() { throw new Error("no"); } }); },
  stuck: () => new Promise(() => {}),
  stuck_later: () => new Promise(wait => setTimeout(wait, 1)).then(() => new Promise(() => {})),
  forgotten: () => { (async () => { throw new Wheel("lost"); })(); },
  in_timer: () => new Promise(() => setTimeout(() => { throw new Wheel("late"); }, 1)),
};

async function late(agent) {
  if (await agent.act(look(0), "Move") === null) return;
  agent.gameOver(look(1));
  throw new Error("after the end");
}

/** Two agents, of which one waits for the other, which does not ask. */
async function deadlock(agents) {
  let open;
  const gate = new Promise(resolve => { open = resolve; });
  const first = async () => {
    await agents[0].act(look(0), "Move");
    await gate;
  };
  const second = async () => {
    await agents[1].act(look(0), "Move");
    if (open === undefined) open();
    await new Promise(() => {});
  };
  await Promise.all([first(), second()]);
}

/** Agents that ask after a pause, end at their own time, and a game that fails between two steps. */
async function slow(agents, { seed }) {
  const random = new Random(seed), pause = () => new Promise(wait => setTimeout(wait, random.below(3)));
  const turns = agents.map(() => 1 + random.below(4));
  await Promise.all(agents.map(async (agent, i) => {
    for (let turn = 0; turn < turns[i]; turn++) {
      await pause();
      if (await agent.act(look(turn), "Move") === null) return;
    }
    await pause();
    agent.gameOver(look(turns[i]));
  }));
  await pause();
}

/** Shows lists and entities, and changes them after the call. */
async function changes(agent, { seed }) {
  const random = new Random(seed), dots = [{ x: 0 }, { x: 0 }], rocks = [{ size: 1 }, { size: 2 }];
  const obs = new Obs().actors("Dot", dots).entities("Rock", rocks), flags = [[], []], seen = [];
  for (let step = 0; step < 4; step++) {
    dots.splice(0, 2, { x: random.below(9) }, { x: random.below(9) });
    flags.forEach(row => row.splice(0, 2, true, random.below(2) === 1));
    seen.splice(0, 2, random.below(2) === 1, true);
    obs.score = step;
    obs.mask("Pick", flags).visible("Rock", seen).metric("speed", step);
    const answer = agent.act(obs, "Pick");
    const [first, second] = rocks;
    dots[0].x = NaN;
    dots.length = 0;
    rocks.reverse();
    rocks.length = 1;
    flags[0].length = 0;
    flags[1].fill(false);
    seen.length = 0;
    obs.score = -1;
    obs.metric("speed", -1);
    const picked = await answer;
    if (picked === null) return;
    if (!picked.every(rock => rock === first || rock === second)) throw new Error("picked another rock");
    rocks.splice(0, 2, first, second);
  }
  agent.gameOver(new Obs(4));
}

/** Does not return when `act` resolves to null. */
async function deaf(agent) {
  for (;;) {
    try {
      await agent.act(look(0), "Move");
    } catch { /* goes on */ }
  }
}

// ------------------------------------------------------------------ actions of all kinds, as in `twins.py`

const maskOf = (draws, count) => {
  const allowed = Array.from({ length: count }, () => draws.below(2) === 1);
  allowed[draws.below(count)] = true;
  return allowed;
};

function lookAtKinds(draws, score) {
  const obs = new Obs(score).globals({ wind: draws.uniform() });
  const cars = Array.from({ length: 1 + draws.below(3) }, () => ({ x: draws.uniform() }));
  const rocks = Array.from({ length: 1 + draws.below(3) }, () => ({ size: draws.uniform() }));
  obs.actors("Car", cars, "Turn", "SelectRock").actors("Rock", rocks, "Steer");
  if (draws.below(2)) obs.visible("Rock", rocks.map(() => draws.below(2) === 1));
  if (draws.below(2)) obs.metric("rocks", rocks.length);
  const flags = [draws.below(2), draws.below(2), draws.below(2)];
  if (flags[0]) obs.mask("Flag", maskOf(draws, 3));
  if (flags[1]) obs.mask("Turn", cars.map(() => maskOf(draws, 2)));
  if (flags[2]) obs.mask("SelectRock", cars.map(() => maskOf(draws, rocks.length)));
  return [obs, rocks];
}

function worth([flag, turns, pushes, picked], rocks) {
  let found = ["LOW", "MID", "HIGH"].indexOf(flag);
  turns.forEach((turn, i) => {
    found += (i + 1) * (["BACK", "ON"].indexOf(turn) + 1) + 8 * (i + 1) * rocks.indexOf(picked[i]);
  });
  for (const [wheel, gas] of pushes) found += Math.floor(16 * wheel) / 16 + Math.floor(16 * gas) / 8;
  return found;
}

async function kinds(agents, { seed }) {
  const draws = new Random(seed), scores = [0, 0], left = agents.map(() => 1 + draws.below(4));
  for (let turn = 0; turn <= Math.max(...left); turn++) {
    const pending = [];
    for (const [i, agent] of agents.entries()) {
      if (left[i] < turn) continue;
      const [obs, rocks] = lookAtKinds(draws, scores[i]);
      if (left[i] === turn) agent.gameOver(obs, { truncated: draws.below(2) === 1 });
      else pending.push([i, rocks, agent.act(obs, "Flag", "Turn", "Steer", "SelectRock")]);
    }
    for (const [i, rocks, answer] of pending) {
      const answers = await answer;
      if (answers === null) return;
      scores[i] += worth(answers, rocks);
    }
  }
}

// ------------------------------------------------------------------ choice of the game

const GAMES = {
  dots: () => dots(three(() => {}), { doc: "Move the dot.", version: 3, settings: { size: 3, speed: 0.5, name: "x", fast: false } }),
  prints: () => dots(three(() => {
    console.log("printed in a game");
    process.stdout.write("printed without console\n");
    process.stdin.on("data", () => { throw new Error("read a message of the host"); });
  })),
  returns: () => dots(three(agent => { agent.act = () => Promise.resolve(null); })),
  never_asks: () => dots(async () => {}),
  not_async: () => dots(() => 7),
  unawaited: () => dots(async agent => { agent.act(look(0), "Move"); }),
  promised: () => dots(async agent => { agent.act(look(0), "Move").size.x; }),
  misuse: () => dots(misuse),
  late: () => dots(late),
  defined: () => new Game(DEFINITIONS[Number(INDEX)]()),
  deadlock: () => dots(deadlock, { numAgents: 2 }),
  slow: () => dots(slow, { numAgents: 2 }),
  changes: () => dots(changes),
  deaf: () => dots(deaf),
  kinds: () => new Game({
    name: "kinds",
    play: kinds,
    numAgents: 2,
    entities: { Car: ["x"], Rock: ["size"] },
    globalFeatures: ["wind"],
    actions: {
      Flag: globalCategorical("LOW", "MID", "HIGH"),
      Turn: categorical("BACK", "ON"),
      Steer: continuous({ wheel: [-1, 1], gas: [0, 2] }),
      SelectRock: selectEntity("Rock"),
    },
    metrics: ["rocks"],
  }),
};

serve((GAMES[WORD] ?? (() => dots(three(FAILS[WORD]))))());
