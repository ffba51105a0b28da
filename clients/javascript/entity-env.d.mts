/** A number per feature, by name. */
export type Entity = object;
/** A label, or for actors a list of labels, of selected entities, or of lists of numbers. */
export type Answer = any;

export interface Action {
  kind: "global_categorical" | "categorical" | "select_entity" | "continuous";
  labels: string[];
  selects?: string;
  low?: number[];
  high?: number[];
}

/** An action with one label for the whole observation. */
export function globalCategorical(...labels: string[]): Action;
/** An action with one label for each actor. */
export function categorical(...labels: string[]): Action;
/** An action that selects an entity of a type for each actor. */
export function selectEntity(type: string): Action;
/** An action with one number per label for each actor. */
export function continuous(bounds: Record<string, [low: number, high: number]>): Action;

export type Setting = boolean | number | string;

export interface Agent {
  /** Number of the agent, from 0. */
  readonly index: number;
  /** Asks for actions, by name; resolves to null if the game must return. */
  act(obs: Obs, ...actions: string[]): Promise<Answer>;
  /** Ends the agent's episode. */
  gameOver(obs?: Obs, options?: { truncated?: boolean }): void;
}

export interface GameOptions {
  /** Letters, digits, "_", "-" and "."; at most 64 characters. */
  name: string;
  /** Plays one episode; with several agents, the first argument is a list of them. */
  play(agents: any, options: { seed: bigint } & Record<string, any>): Promise<void>;
  /** Features of each entity type, in the order of the observation space. */
  entities: Record<string, string[]>;
  actions: Record<string, Action>;
  globalFeatures?: string[];
  numAgents?: number;
  /** Defaults, by name. */
  settings?: Record<string, Setting>;
  metrics?: string[];
  /** Largest number of entities, by type. */
  maxEntities?: Record<string, number>;
  version?: string | number;
  /** Rules and goal, for players. */
  doc?: string;
  /** The reason why a game with these settings cannot be played, if any. */
  check?(settings: Record<string, any>): string | undefined;
}

export class Game {
  constructor(options: GameOptions);
  readonly name: string;
  readonly play: GameOptions["play"];
  /** Defaults, by name. */
  readonly settings: Record<string, Setting>;
}

/**
 * An observation: entities, actors, masks, and the score so far. Calls can be chained. `act` copies
 * what it shows, so entities and lists can be changed afterwards.
 */
export class Obs {
  constructor(score?: number);
  score: number;
  entities(type: string, entities: readonly Entity[]): this;
  /** Entities that perform the given actions, or all that are asked. */
  actors(type: string, entities: readonly Entity[], ...actions: string[]): this;
  globals(features: Entity): this;
  /** One flag per label; for actors, one list of flags per actor. */
  mask(action: string, flags: readonly boolean[] | readonly (readonly boolean[])[]): this;
  visible(type: string, flags: readonly boolean[]): this;
  metric(name: string, value: number): this;
}

/** SplitMix64: equal seeds give equal numbers in every language. */
export class Random {
  constructor(seed: bigint | number);
  /** An integer from 0 to `limit` - 1, with `limit` at most 2^32. */
  below(limit: number): number;
  choice<Item>(items: readonly Item[]): Item;
  /** A number from 0 to 1, exclusive. */
  uniform(): number;
  shuffle<Item>(items: Item[]): Item[];
}

export interface AgentOptions {
  /** Refuses an agent of another game; needed by an agent that selects entities. */
  game?: Game;
  /** Makes its samples repeatable. */
  seed?: bigint | number;
  /** Takes the most probable action instead of sampling. */
  greedy?: boolean;
  /** Above 1, it is more random. */
  temperature?: number;
  /** Its number in a game with several agents. */
  index?: number;
}

/** Loads a trained agent: the path or address of an `.agent` file, or its content. */
export function loadAgent(
  source: string | URL | ArrayBuffer | ArrayBufferView,
  options?: AgentOptions,
): Promise<Agent & { readonly score: number }>;

/** Serves a game in Node until the host closes the connection. */
export function serve(game: Game): Promise<void>;
