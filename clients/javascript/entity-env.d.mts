/** A number per feature, by name. */
export type Entity = object;
export type Setting = boolean | number | string;

export interface GlobalCategorical<Label extends string = string> {
  kind: "global_categorical";
  labels: Label[];
}
export interface Categorical<Label extends string = string> {
  kind: "categorical";
  labels: Label[];
}
declare const selected: unique symbol;
export interface SelectEntity<Selected extends Entity = any> {
  kind: "select_entity";
  selects: string;
  labels: never[];
  /** Only a type: of the entities that it selects. */
  readonly [selected]?: Selected;
}
export interface Continuous {
  kind: "continuous";
  labels: string[];
  low: number[];
  high: number[];
}
/** A decision in several parts. */
export interface Composite<Parts extends Record<string, Part> = any> {
  kind: "composite";
  parts: Parts;
}
export type Part = GlobalCategorical | Categorical | SelectEntity | Continuous;
export type Action = Part | Composite;
export type Actions = Record<string, Action>;

/** An action with one label for the whole observation. */
export function globalCategorical<Label extends string>(...labels: Label[]): GlobalCategorical<Label>;
/** An action with one label for each actor. */
export function categorical<Label extends string>(...labels: Label[]): Categorical<Label>;
/** An action that selects an entity, or a relation, of a type for each actor: `selectEntity<Rock>("Rock")`. */
export function selectEntity<Selected extends Entity = any>(type: string): SelectEntity<Selected>;
/** An action with one number per label for each actor. */
export function continuous(bounds: Record<string, [low: number, high: number]>): Continuous;

/**
 * A decision in several parts, by name, which are chosen in this order; all of them are global, or none is.
 */
export function composite<Parts extends Record<string, Part>>(parts: Parts): Composite<Parts>;

/** A decision: a label, an entity or a list of numbers for each part. */
export type Decision<Parts extends Record<string, Part>> = {
  [Name in keyof Parts]: Answer<Parts[Name]> extends (infer One)[] ? NonNullable<One> : Answer<Parts[Name]>;
};

/**
 * A label, or for actors a list with an item per actor: labels, selected entities (null for an
 * actor that had no choice), lists with a number per label, or decisions.
 */
export type Answer<A> =
  0 extends 1 & A ? any :
  A extends GlobalCategorical<infer Label> ? `${Label}` :
  A extends Categorical<infer Label> ? `${Label}`[] :
  A extends SelectEntity<infer Selected> ? (Selected | null)[] :
  A extends Continuous ? number[][] :
  A extends Composite<infer Parts> ?
    Parts[keyof Parts] extends GlobalCategorical ? Decision<Parts> : (Decision<Parts> | null)[] : never;
/** The answer to one action, or a list of the answers to several. */
export type Answers<Asked extends Actions, Names extends readonly string[]> =
  Names extends readonly [infer Name extends string] ? Answer<Asked[Name]> :
  { [Index in keyof Names]: Answer<Asked[Names[Index]]> };

/** Any value of the type of a default. */
export type Values<Defaults> = {
  [Name in keyof Defaults]: 0 extends 1 & Defaults[Name] ? any :
    Defaults[Name] extends boolean ? boolean :
    Defaults[Name] extends number ? number : string;
};

/** An agent for a game with these actions: `Agent<typeof actions>`. */
export interface Agent<Asked extends Actions = any> {
  /** Number of the agent, from 0. */
  readonly index: number;
  /** Asks for actions, by name; resolves to null if the game must return. */
  act<const Names extends readonly [keyof Asked & string, ...(keyof Asked & string)[]]>(
    obs: Obs,
    ...actions: Names
  ): Promise<Answers<Asked, Names> | null>;
  /** Ends the agent's episode. */
  gameOver(obs?: Obs, options?: { truncated?: boolean }): void;
}

/** A type of relations: the entity types of its two references, by name, and its other features. */
export interface Relation {
  references: Record<string, string>;
  features?: string[];
}

export interface GameOptions<
  Asked extends Actions = any,
  Settings extends Record<string, Setting> = any,
  Count extends number = any,
> {
  /** Letters, digits, "_", "-" and "."; at most 64 characters. */
  name: string;
  /** Plays one episode; with several agents, the first argument is a list of them. */
  play(
    agents: 1 extends Count ? Agent<Asked> : Agent<Asked>[],
    options: { seed: bigint } & Values<Settings>,
  ): Promise<void>;
  /** Features of each entity type, in the order of the observation space. */
  entities: Record<string, string[]>;
  /** Facts about pairs of entities, which follow the entity types in the observation space. */
  relations?: Record<string, Relation>;
  actions: Asked;
  globalFeatures?: string[];
  numAgents?: Count;
  /** Defaults, by name. */
  settings?: Settings;
  metrics?: string[];
  /** Largest number of entities, by type. */
  maxEntities?: Record<string, number>;
  version?: string | number;
  /** Rules and goal, for players. */
  doc?: string;
  /** The reason why a game with these settings cannot be played, if any. */
  check?(settings: Values<Settings>): string | undefined;
}

export class Game<
  Asked extends Actions = any,
  Settings extends Record<string, Setting> = {},
  Count extends number = 1,
> {
  constructor(options: GameOptions<Asked, Settings, Count>);
  readonly name: string;
  readonly play: GameOptions<Asked, Settings, Count>["play"];
  readonly numAgents: number;
  /** Defaults, by name. */
  readonly settings: Values<Settings>;
}

export type Flags = readonly boolean[];

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
  /** Relations: objects whose references are entities that the observation shows. */
  relations(type: string, relations: readonly Entity[]): this;
  globals(features: Entity): this;
  /**
   * One flag per label; for actors, one list of flags per actor. For an action that selects relations,
   * of which actors can only choose those that start at them, one list can serve all actors. With
   * `given`, the name of the part directly before, there is a list of flags for each choice of that
   * part instead of one list.
   */
  mask(action: string, flags: Flags | readonly Flags[] | readonly (readonly Flags[])[], given?: string): this;
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

export interface AgentOptions<Asked extends Actions = any> {
  /** Refuses an agent of another game; needed by an agent that selects entities. */
  game?: Game<Asked, any, any>;
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
export function loadAgent<Asked extends Actions = any>(
  source: string | URL | ArrayBuffer | ArrayBufferView,
  options?: AgentOptions<Asked>,
): Promise<Agent<Asked> & { readonly score: number }>;

/** Serves a game in Node until the host closes the connection. */
export function serve(game: Game<any, any, any>): Promise<void>;
