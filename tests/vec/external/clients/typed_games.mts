// Games in TypeScript that use every exported name, and mistakes that its compiler must find.
import {
  Game, Obs, Random, categorical, composite, continuous, globalCategorical, loadAgent, selectEntity, serve,
} from "entity-env";
import type {
  Action, Actions, Agent, AgentOptions, Answer, Answers, Categorical, Composite, Continuous, Decision, Entity, Flags,
  GameOptions, GlobalCategorical, Part, Relation, SelectEntity, Setting, Values,
} from "entity-env";

type Equal<One, Other> =
  (<T>() => T extends One ? 1 : 2) extends (<T>() => T extends Other ? 1 : 2) ? true : false;
const isTrue = <_Fact extends true>() => {};

// ------------------------------------------------------------------ a game in one object

const coin = new Game({
  name: "coin",
  entities: { Coin: ["turn"] },
  actions: { Side: globalCategorical("HEADS", "TAILS") },
  settings: { turns: 10, fast: false, name: "a" },
  check: ({ turns }) => (turns < 1 ? "turns must be at least 1" : undefined),
  async play(agent, { seed, turns, fast }) {
    isTrue<Equal<typeof seed, bigint>>();
    isTrue<Equal<typeof turns, number>>();
    isTrue<Equal<typeof fast, boolean>>();
    const random = new Random(seed);
    const side = await agent.act(new Obs(0).entities("Coin", [{ turn: 1 }]), "Side");
    isTrue<Equal<typeof side, "HEADS" | "TAILS" | null>>();
    // @ts-expect-error: null is not handled
    side.length;
    if (side === null) return;
    // @ts-expect-error: not a label
    side === "EDGE";
    // @ts-expect-error: not an action
    await agent.act(new Obs(), "Jump");
    // @ts-expect-error: no action
    await agent.act(new Obs());
    // @ts-expect-error: a score is not an observation
    await agent.act(5, "Side");
    isTrue<Equal<ReturnType<typeof random.choice<"a" | "b">>, "a" | "b">>();
    agent.gameOver(new Obs(random.below(3)), { truncated: true });
    // @ts-expect-error: not an option
    agent.gameOver(new Obs(), { cut: true });
  },
});
isTrue<Equal<typeof coin.settings, Values<{ turns: 10; fast: false; name: "a" }>>>();
isTrue<Equal<typeof coin.settings.fast, boolean>>();
const told: [string, number] = [coin.name, coin.numAgents];
void serve(coin);

// ------------------------------------------------------------------ all kinds of actions

interface Car { x: number }
interface Rock { size: number }
const actions = {
  Flag: globalCategorical("LOW", "MID", "HIGH"),
  Turn: categorical("BACK", "ON"),
  Steer: continuous({ wheel: [-1, 1], gas: [0, 2] }),
  SelectRock: selectEntity<Rock>("Rock"),
};
isTrue<Equal<typeof actions.Flag, GlobalCategorical<"LOW" | "MID" | "HIGH">>>();
isTrue<Equal<typeof actions.Turn, Categorical<"BACK" | "ON">>>();
isTrue<Equal<typeof actions.Steer, Continuous>>();
isTrue<Equal<typeof actions.SelectRock, SelectEntity<Rock>>>();
isTrue<Equal<Answer<typeof actions.SelectRock>, (Rock | null)[]>>();
isTrue<Equal<Answers<typeof actions, ["Flag", "Turn"]>, ["LOW" | "MID" | "HIGH", ("BACK" | "ON")[]]>>();

// ------------------------------------------------------------------ decisions in several parts

const decisions = {
  Signal: composite({ turn: actions.Flag, flag: actions.Flag }),
  Haul: composite({ rock: actions.SelectRock, load: actions.Turn, push: actions.Steer }),
};
type Loads = { rock: Rock; load: "BACK" | "ON"; push: number[] };
isTrue<Equal<Answer<typeof decisions.Signal>, Decision<{ turn: typeof actions.Flag; flag: typeof actions.Flag }>>>();
isTrue<Equal<Answer<typeof decisions.Signal>["turn"], "LOW" | "MID" | "HIGH">>();
const answer: Answer<typeof decisions.Haul> = [null, { rock: { size: 1 }, load: "ON", push: [1, 2] }];
const loads: (Loads | null)[] = answer;
const parts: Record<string, Part> = (decisions.Haul satisfies Composite).parts;
const near: Flags = [true, false];
new Obs().mask("Haul.rock", [near]).mask("Haul.load", [[near, near]], "Haul.rock");
// @ts-expect-error: a decision cannot be a part
composite({ signal: decisions.Signal });
void [loads, parts];

// ------------------------------------------------------------------ relations

interface Road { start: Car; end: Rock; hours: number }
const road: Relation = { references: { start: "Car", end: "Rock" }, features: ["hours"] };
// @ts-expect-error: no references
const unbound: Relation = { features: ["hours"] };

void new Game({
  name: "courier",
  entities: { Car: ["x"], Rock: ["size"] },
  relations: { Road: road, Gap: { references: { one: "Rock", other: "Rock" } } },
  actions: { Go: selectEntity<Road>("Road") },
  async play(agent) {
    const car: Car = { x: 1 }, rock: Rock = { size: 1 }, roads: Road[] = [{ start: car, end: rock, hours: 1 }];
    const obs = new Obs(unbound ? 1 : 0).actors("Car", [car]).entities("Rock", [rock]).relations("Road", roads);
    const chosen = await agent.act(obs.mask("Go", [true]), "Go");
    isTrue<Equal<typeof chosen, (Road | null)[] | null>>();
    // @ts-expect-error: not a list
    obs.relations("Road", roads[0]);
  },
});

type Driver = Agent<typeof actions>;

async function play(drivers: Driver[], { seed, size }: { seed: bigint; size: number }): Promise<void> {
  const cars: Car[] = [{ x: Number(seed % 3n) }];
  const rocks: readonly Rock[] = [{ size }];
  const obs = new Obs(1)
    .globals({ wind: 1 })
    .actors("Car", cars, "Turn", "SelectRock")
    .actors("Rock", rocks)
    .mask("Flag", [true, false, true])
    .mask("Turn", [[true, false]])
    .visible("Rock", [true])
    .metric("rocks", 1);
  for (const driver of drivers) {
    const answers = await driver.act(obs, "Flag", "Turn", "Steer", "SelectRock");
    if (answers === null) return;
    const [flag, turns, pushes, picked] = answers;
    isTrue<Equal<typeof flag, "LOW" | "MID" | "HIGH">>();
    isTrue<Equal<typeof turns, ("BACK" | "ON")[]>>();
    isTrue<Equal<typeof pushes, number[][]>>();
    isTrue<Equal<typeof picked, (Rock | null)[]>>();
    driver.gameOver();
  }
}

const options: GameOptions<typeof actions, { size: number }, 2> = {
  name: "drive",
  play,
  numAgents: 2,
  entities: { Car: ["x"], Rock: ["size"] },
  globalFeatures: ["wind"],
  actions,
  settings: { size: 3 },
  metrics: ["rocks"],
  maxEntities: { Rock: 4 },
  version: 2,
  doc: "Drive around the rocks.",
};
const drive = new Game(options);
new Game({
  name: "drive", play, numAgents: 2, entities: { Car: ["x"], Rock: ["size"] }, actions, settings: { size: 3 },
});
// @ts-expect-error: play expects a list of agents, and the game has one
new Game({ name: "drive", play, entities: {}, actions, settings: { size: 3 } });
// @ts-expect-error: play needs the setting size
new Game({ name: "drive", play, numAgents: 2, entities: {}, actions });
// @ts-expect-error: a game has actions
new Game({ name: "drive", play, numAgents: 2, entities: {}, settings: { size: 3 } });
// @ts-expect-error: not an option
new Game({ ...options, agents: 2 });
// @ts-expect-error: bounds are pairs
continuous({ wheel: [1] });
// @ts-expect-error: entities are a list
new Obs().entities("Car", { x: 1 });
// @ts-expect-error: flags are booleans
new Obs().mask("Flag", [1, 0, 1]);
// @ts-expect-error: a seed is a number
new Random("1");
// @ts-expect-error: a game, not its options
void serve(options);

// ------------------------------------------------------------------ without types of actions

async function anything(agent: Agent, { seed }: { seed: bigint }): Promise<void> {
  const answer = await agent.act(new Obs(Number(seed)), "Side");
  isTrue<Equal<typeof answer, any>>();
  agent.gameOver();
}
const loose = new Game({ name: "loose", play: anything, entities: {}, actions: { Side: categorical("A") } });

// ------------------------------------------------------------------ trained agents

export async function ship(content: ArrayBuffer): Promise<number> {
  const chosen: AgentOptions<typeof actions> = { game: drive, greedy: true, seed: 1n, temperature: 2 };
  const agents = await Promise.all([0, 1].map(index => loadAgent(content, { ...chosen, index })));
  await drive.play(agents, { seed: 1n, ...drive.settings });
  const side = await (await loadAgent(new URL("https://x/coin.agent"), { game: coin })).act(new Obs(), "Side");
  isTrue<Equal<typeof side, "HEADS" | "TAILS" | null>>();
  await loose.play(await loadAgent("loose.agent"), { seed: 1n });
  await coin.play(await loadAgent(new Uint8Array(4), { game: coin }), { seed: 1n, ...coin.settings });
  // @ts-expect-error: settings are missing
  await coin.play(await loadAgent("coin.agent"), { seed: 1n });
  // @ts-expect-error: two agents
  await drive.play(agents[0], { seed: 1n, ...drive.settings });
  // @ts-expect-error: not an option
  await loadAgent("coin.agent", { greed: true });
  return agents.reduce((sum, { score }) => sum + score, 0);
}

export const others: [Action, Actions, Entity, Setting, [string, number]] = [actions.Flag, actions, {}, 1, told];
