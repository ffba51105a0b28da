/**
 * Games in JavaScript that entity_env plays, trains and records.
 *
 * A game is an async function that asks an agent: `const move = await agent.act(obs, "Move")`.
 * `serve(game)` runs any number of copies of it in one Node process, and exchanges one message per
 * step with entity_env (version 1 of its protocol). `loadAgent(source)` is a trained agent for the same
 * function, without entity_env. Everything but `serve` also runs in a browser.
 */

const HELLO = 1, START = 2, READY = 3, RESET = 4, ACT = 5, STEP = 6, ERROR = 7, CLOSE = 8;
const KINDS = ["", "HELLO", "START", "READY", "RESET", "ACT", "STEP", "ERROR", "CLOSE"];
const TERMINATED = 1, TRUNCATED = 2, FAILED = 4, NEW = 8; // flags of an end
const STARTED = 1, WAITS = 2; // flags of a copy
const MAGIC = 0x31454e45; // "ENE1", little-endian
const MAX_BYTES = 256 * 2 ** 20, MAX_JSON_BYTES = 2 ** 20;
const MAX_ROWS = 2 ** 20, MAX_AGENTS = 4096;
const MAX_FEATURE = 3.4028235677973362e38; // rounds to the largest float32
const MAX_SCORE = 1e300;
const RESERVED = ["seed", "command", "folder", "link", "address"]; // not names of settings
const MAX_CALLS = 1000; // of `act` after it has resolved to null
const MAX_TEXT = 100_000; // characters of a failure
const EXIT_TIMEOUT_MS = 2000;
const CONNECT_MS = 60_000, RETRY_MS = 100; // if the host has not started the program

// With the address "stdio", standard output belongs to the protocol from the first line of a game.
if (globalThis.process?.env?.ENTITY_ENV_ADDRESS === "stdio") {
  Object.defineProperty(process, "stdout", { configurable: true, get: () => process.stderr });
}

/** An action with one label for the whole observation. */
export const globalCategorical = (...labels) => ({ kind: "global_categorical", labels });
/** An action with one label for each actor. */
export const categorical = (...labels) => ({ kind: "categorical", labels });
/** An action that selects an entity of a type for each actor. */
export const selectEntity = type => ({ kind: "select_entity", selects: type, labels: [] });
/** An action with one number per label for each actor: `continuous({ force: [-1, 1] })`. */
export const continuous = bounds => {
  for (const [label, pair] of Object.entries(bounds ?? {})) {
    if (!Array.isArray(pair) || pair.length !== 2 || !pair.every(Number.isFinite) || !(pair[0] < pair[1])) {
      throw new TypeError(`continuous: expected finite bounds [low, high] with low < high for ${label}, got ${shown(pair)}`);
    }
  }
  return {
    kind: "continuous",
    labels: Object.keys(bounds ?? {}),
    low: Object.values(bounds ?? {}).map(([low]) => low),
    high: Object.values(bounds ?? {}).map(([, high]) => high),
  };
};

/**
 * A decision in several parts, which are actions: `composite({ town: selectEntity("Town"), trucks:
 * categorical("ONE", "TWO") })`. Parts are chosen in order, and an agent chooses each one knowing
 * those before it. With actors, `act` resolves to one object with the parts per actor; it is null if
 * the actor has no target. With parts that are all global, it resolves to one object.
 */
export const composite = parts => ({ kind: "composite", parts });

// ------------------------------------------------------------------ errors

/** A short text for a value in an error. */
function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return "a function";
  if (Array.isArray(value)) {
    const text = value.length < 5 && value.every(each => typeof each !== "object") && value.map(shown).join(", ");
    return text ? `[${text}]` : `an array of ${value.length}`;
  }
  if (typeof value !== "object" || value === null) return String(value);
  const name = value.constructor?.name;
  return typeof name === "string" && name && name !== "Object" ? `a ${name}` : "an object";
}

const fail = message => { throw new TypeError(message); };
/** An error about a game whose stack has only lines of this file. */
const withoutStack = message => Object.assign(new Error(message), { stack: "" });
const isObject = value => typeof value === "object" && value !== null && !Array.isArray(value);
const isList = value => Array.isArray(value) || value instanceof Uint8Array;

/** Message and traceback of anything that a game may throw; the hint follows the message. */
function failureOf(error, hint = "") {
  let message = "the game threw a value that is not an Error", traceback = "";
  try {
    message = error instanceof Error ? `${error.name}: ${error.message}` : `Error: ${shown(error)}`;
    traceback = error instanceof Error ? String(error.stack ?? "") : "";
    if (error?.isMisuse !== true) message += hint; // else it says what to await
  } catch { /* its properties throw */ }
  const text = long => long.slice(0, MAX_TEXT).toWellFormed();
  return { message: text(message), traceback: text(traceback) };
}

function requireNames(names, what) {
  if (!Array.isArray(names)) fail(`${what} must be an array of names, got ${shown(names)}`);
  for (const name of names) {
    if (typeof name !== "string" || !name.isWellFormed() || name.includes("\0")) {
      fail(`${what} must be texts without NUL and lone surrogates, got ${shown(name)}`);
    }
  }
  const repeated = names.find((name, i) => names.indexOf(name) < i);
  if (repeated !== undefined) fail(`${what} must differ, got ${shown(repeated)} more than once`);
}

function requireOptions(options, known, what) {
  if (!isObject(options)) fail(`${what} expects an object, got ${shown(options)}`);
  const unknown = Object.keys(options).find(name => !known.includes(name));
  if (unknown !== undefined) fail(`${what}: unknown option ${unknown}; it has ${known.join(", ")}`);
}

// ------------------------------------------------------------------ games and observations

const GAME_OPTIONS = [
  "name", "play", "entities", "relations", "actions", "globalFeatures", "numAgents", "settings", "metrics",
  "maxEntities", "version", "doc", "check",
];

/**
 * A game.
 *
 * `entities` has the features of each type, and `actions` the actions, by name. `relations` has facts
 * about pairs of entities: `{ Road: { references: { start: "Town", end: "Town" }, features: ["hours"] } }`.
 * `play(agent, { seed, ...settings })` plays one episode; with several agents its first argument is a list.
 * `settings` has defaults; `check(settings)` returns the reason why they cannot be played. `doc`
 * tells players the rules and the goal.
 */
export class Game {
  constructor(options) {
    requireOptions(options, GAME_OPTIONS, "new Game");
    const {
      name, play, entities, relations = {}, actions, globalFeatures = [], numAgents = 1, settings = {},
      metrics = [], maxEntities = {}, version, doc, check,
    } = options;
    if (typeof name !== "string" || !/^[\w.-]{1,64}$/.test(name)) {
      fail(`the name of a game must have 1 to 64 letters, digits, "_", "-" or ".", got ${shown(name)}`);
    }
    const where = `game ${name}: `;
    if (typeof play !== "function") fail(`${where}play must be a function, got ${shown(play)}`);
    if (check !== undefined && typeof check !== "function") fail(`${where}check must be a function, got ${shown(check)}`);
    if (!Number.isInteger(numAgents) || numAgents < 1 || numAgents > MAX_AGENTS) {
      fail(`${where}numAgents must be an integer from 1 to ${MAX_AGENTS}, got ${shown(numAgents)}`);
    }
    if (version !== undefined && typeof version !== "string" && !Number.isSafeInteger(version)) {
      fail(`${where}version must be a text or an integer, got ${shown(version)}`);
    }
    if (doc !== undefined && typeof doc !== "string") fail(`${where}doc must be a text, got ${shown(doc)}`);
    requireSettings(settings, where);
    this._schema = new Schema({ entities, relations, actions, globalFeatures, metrics, maxEntities }, where);
    Object.assign(this, {
      name, play, numAgents, version, doc, check,
      entities: structuredClone(entities), relations: structuredClone(relations), actions: structuredClone(actions),
      globalFeatures: [...globalFeatures],
      settings: { ...settings }, metrics: [...metrics], maxEntities: { ...maxEntities },
    });
  }
}

function requireSettings(settings, where) {
  if (!isObject(settings)) fail(`${where}settings must be an object with defaults, got ${shown(settings)}`);
  for (const [name, value] of Object.entries(settings)) {
    if (!/^[\p{ID_Start}_]\p{ID_Continue}*$/u.test(name) || RESERVED.includes(name)) {
      fail(`${where}the name of a setting must be an identifier other than ${RESERVED.join(", ")}: got ${shown(name)}`);
    }
    const isNumber = Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value));
    if (typeof value !== "boolean" && typeof value !== "string" && !isNumber) {
      fail(`${where}the default of ${name} must be a boolean, a finite number or a text, got ${shown(value)}`);
    }
  }
}

/**
 * An observation: entities, actors, masks, and the score so far. Calls can be chained. `act` copies
 * what it shows, so entities and lists can be changed afterwards.
 */
export class Obs {
  constructor(score = 0) {
    this.score = score;
    this.types = []; // of each group of entities or relations
    this.groups = []; // the entities of each group
    this.areRelations = undefined; // by group: undefined = entities
    this.roles = undefined; // by group, the actions of its actors: [] = all
    this.features = undefined;
    this.masks = undefined;
    this.given = undefined; // by action with a mask that depends on another, the name of that one
    this.hidden = undefined;
    this.metrics = undefined;
  }

  /** Adds entities of a type: objects with its features. */
  entities(type, entities) {
    if (!Array.isArray(entities)) {
      fail(`Obs: expected an array of entities of the type ${shown(type)}, got ${shown(entities)}`);
    }
    this.types.push(type);
    this.groups.push(entities);
    return this;
  }

  /** Adds entities that perform the given actions, or all that are asked. */
  actors(type, entities, ...actions) {
    this.entities(type, entities);
    (this.roles ??= [])[this.groups.length - 1] = actions;
    return this;
  }

  /**
   * Adds relations of a type: objects with its features, of which the references are entities (the
   * same objects) that the observation shows.
   */
  relations(type, relations) {
    this.entities(type, relations);
    (this.areRelations ??= [])[this.groups.length - 1] = true;
    return this;
  }

  /** Sets the global features: an object. */
  globals(features) {
    this.features = features;
    return this;
  }

  /**
   * Allows only some choices: one flag per label; for actors, one list of flags per actor. An actor
   * of a select action without an allowed entity is not asked: its answer is null. If an action
   * selects relations, an actor can only choose those that start at it, and one list of flags, one
   * per relation, serves all actors.
   *
   * The mask of a part of a decision, such as "Send.trucks", may depend on the part directly before:
   * with `given`, such as "Send.town", there is a list of flags for each choice of that part.
   */
  mask(action, flags, given) {
    (this.masks ??= new Map()).set(action, flags);
    if (given !== undefined) (this.given ??= new Map()).set(action, given);
    else this.given?.delete(action);
    return this;
  }

  /** Hides the entities of a type whose flag is false from the policy. */
  visible(type, flags) {
    (this.hidden ??= new Map()).set(type, flags);
    return this;
  }

  /** Adds a number for the logs; the game declares its name in `metrics`. */
  metric(name, value) {
    (this.metrics ??= new Map()).set(name, value);
    return this;
  }
}

/** SplitMix64: equal seeds give equal numbers in every language. The seed is a BigInt or an integer. */
export class Random {
  constructor(seed) {
    if (typeof seed !== "bigint" && !Number.isSafeInteger(seed)) {
      fail(`Random: the seed must be a BigInt or an integer, got ${shown(seed)}`);
    }
    this.low = Number(BigInt.asUintN(32, BigInt(seed)));
    this.high = Number(BigInt.asUintN(32, BigInt(seed) >> 32n));
  }

  /** The next draw: sets `drawnHigh` and `drawnLow`, unsigned 32-bit halves. */
  draw() {
    let low = this.low + 0x7f4a7c15, high = this.high + 0x9e3779b9;
    if (low >= 0x100000000) high += 1;
    this.low = low = low >>> 0;
    this.high = high = high >>> 0;
    // z ^= z >> 30; z *= 0xBF58476D1CE4E5B9
    low ^= (low >>> 30) | (high << 2);
    high ^= high >>> 30;
    let product = low;
    low = Math.imul(product, 0x1ce4e5b9);
    high = multiplyHigh(product, 0x1ce4e5b9) + Math.imul(product, 0xbf58476d) +
      Math.imul(high, 0x1ce4e5b9);
    // z ^= z >> 27; z *= 0x94D049BB133111EB
    low ^= (low >>> 27) | (high << 5);
    high ^= high >>> 27;
    product = low;
    low = Math.imul(product, 0x133111eb);
    high = multiplyHigh(product, 0x133111eb) + Math.imul(product, 0x94d049bb) +
      Math.imul(high, 0x133111eb);
    this.drawnLow = (low ^ ((low >>> 31) | (high << 1))) >>> 0;
    this.drawnHigh = (high ^ (high >>> 31)) >>> 0;
  }

  /** An integer from 0 to `limit` - 1, with `limit` at most 2^32. */
  below(limit) {
    if (!(limit >= 1 && limit <= 0x100000000) || Math.floor(limit) !== limit) {
      fail(`Random.below: expected an integer from 1 to 2^32, got ${shown(limit)}`);
    }
    this.draw();
    if (limit <= 0x200000) return Math.floor((this.drawnHigh * limit) / 0x100000000);
    // The product has more than 53 bits.
    const low = (this.drawnHigh & 0xffff) * limit;
    return Math.floor(((this.drawnHigh >>> 16) * limit + Math.floor(low / 0x10000)) / 0x10000);
  }

  choice(items) {
    if (!items?.length) fail(`Random.choice: expected an array with items, got ${shown(items)}`);
    return items[this.below(items.length)];
  }

  /** A number from 0 to 1, exclusive. */
  uniform() {
    this.draw();
    return (this.drawnHigh * 0x200000 + (this.drawnLow >>> 11)) / 2 ** 53;
  }

  shuffle(items) {
    if (!Array.isArray(items)) fail(`Random.shuffle: expected an array, got ${shown(items)}`);
    for (let i = items.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [items[i], items[j]] = [items[j], items[i]];
    }
    return items;
  }
}

/** The upper 32 bits of the product of two unsigned 32-bit integers. */
function multiplyHigh(one, other) {
  const oneLow = one & 0xffff, oneHigh = one >>> 16;
  const otherLow = other & 0xffff, otherHigh = other >>> 16;
  const low = oneLow * otherLow;
  const middle = oneHigh * otherLow + (low >>> 16);
  const cross = (middle & 0xffff) + oneLow * otherHigh;
  return (oneHigh * otherHigh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0;
}

// ------------------------------------------------------------------ what agents show

const ALL = []; // roles of actors that perform every action that is asked
const NONE = []; // no action is asked
const ACTION_KINDS = ["global_categorical", "categorical", "select_entity", "continuous"];

/** A copy of an `Obs` as numbers, and what it asks. Its memory is used again for the next one. */
class Row {
  constructor(schema) {
    this.score = 0;
    this.isBlank = true; // neither entities nor global features
    this.counts = new Array(schema.types.length).fill(0);
    this.floats = new Float32Array(16); // features of all entities, type by type
    this.at = 0; // of the floats that are written next
    this.hidden = undefined; // by type, its flags; undefined = all are visible
    this.metrics = undefined; // by number of the metric
    this.asked = NONE; // numbers of the actions, in the order of the answers
    this.names = undefined; // what is asked, if this includes decisions in several parts
    this.acting = schema.actions.map(({ isGlobal }) => new Acting(isGlobal));
    this.answers = undefined;
  }
}

/** The actors of an action in a `Row`. */
class Acting {
  constructor(isGlobal) {
    this.actors = isGlobal ? [0] : []; // indices
    this.mask = undefined; // a list of flags for each actor; of a part, with a row per choice before if nested
    this.isNested = false;
    this.first = 0; // index of the first actee
    this.choices = undefined; // the entities that can be selected
    this.hasTarget = undefined; // by actor, also of those left out
  }
}

/**
 * A function that writes the features of entities; returns the number of the first one that is
 * wrong, or -1. Compiled where the page allows it. The first `numReferences` features are entities,
 * of which it writes the places: a Map for each.
 */
function putter(features, numReferences) {
  const names = features.map((_, i) => `f${i}`);
  const read = name => `entity[${JSON.stringify(name)}]`;
  const reads = features.map((name, i) => `const f${i} = ${i < numReferences ? `places[${i}].get(${read(name)})` : read(name)};`);
  const tests = names.map(f => `!(typeof ${f} === "number" && ${f} <= ${MAX_FEATURE} && ${f} >= -${MAX_FEATURE})`);
  const writes = names.map((f, i) => `floats[at + ${i}] = ${f};`);
  const code = `for (let i = 0; i < count; i++, at += ${features.length}) {
    const entity = entities[i];
    if (typeof entity !== "object" || entity === null) return i;
    ${reads.join(" ")}
    ${tests.length ? `if (${tests.join(" || ")}) return i;` : "if (Array.isArray(entity)) return i;"}
    ${writes.join(" ")}
  }
  return -1;`;
  try {
    return new Function("floats", "at", "entities", "count", "places", code);
  } catch {
    return () => 0; // a page without eval: `Schema._putSlowly` writes them
  }
}

/** The spaces of a game: reads observations, and decodes answers. Errors start with `where`. */
class Schema {
  constructor({ entities, relations, actions, globalFeatures, metrics, maxEntities }, where) {
    if (!isObject(entities)) fail(`${where}entities must be an object with the features of each type, got ${shown(entities)}`);
    if (!isObject(actions) || !Object.keys(actions).length) fail(`${where}actions must be an object with at least one action, got ${shown(actions)}`);
    requireNames(Object.keys(entities), `${where}the names of entity types`);
    requireNames(Object.keys(actions), `${where}the names of actions`);
    requireNames(globalFeatures, `${where}globalFeatures`);
    if (metrics !== undefined) requireNames(metrics, `${where}metrics`);
    const { plain, wholes } = partsOf(actions, where);
    for (const [name, features] of Object.entries(entities)) {
      if (!name || name === "__global__") fail(`${where}the name of an entity type must not be ${shown(name)}: choose another one`);
      requireNames(features, `${where}the features of ${name}`);
    }
    requireRelations(relations, entities, where);
    const names = [...Object.keys(entities), ...Object.keys(relations)];
    for (const [name, action] of Object.entries(plain)) requireAction(action, names, `${where}action ${name}: `);
    requireOptions(maxEntities, names, `${where}maxEntities`);
    for (const [name, most] of Object.entries(maxEntities)) {
      if (!Number.isSafeInteger(most) || most < 0) fail(`${where}maxEntities of ${name} must be an integer from 0, got ${shown(most)}`);
    }
    this.where = where;
    this.entities = Object.keys(entities).map(name => ({ name, features: [...entities[name]] }));
    this.numPlain = this.entities.length; // types before relations
    for (const [name, { references, features = [] }] of Object.entries(relations)) {
      const others = Object.values(references);
      this.entities.push({ name, features: [...Object.keys(references), ...features], references: others });
    }
    this.references = this.entities.map(({ references = [] }) => references.map(name => names.indexOf(name)));
    this.globals = [...globalFeatures];
    this.metrics = metrics && [...metrics]; // undefined = not known
    this.actions = Object.entries(plain).map(([name, action]) => ({
      ...structuredClone(action), name,
      isGlobal: action.kind === "global_categorical",
      selected: action.selects === undefined ? -1 : names.indexOf(action.selects),
      before: -1, // number of the action on whose choice the mask may depend
    }));
    this.wholes = wholes; // by name, the parts of a decision: `{ fields, indices }`
    for (const action of this.actions) {
      const before = this.actions.findIndex(({ name }) => name === action.given?.at(-1));
      if (before >= 0 && this.actions[before].kind !== "continuous") action.before = before;
    }
    this.hasGlobals = this.globals.length > 0 || this.actions.some(({ isGlobal }) => isGlobal);
    this.types = [...this.entities];
    if (this.hasGlobals) this.types.push({ name: "the globals", features: this.globals });
    this.most = names.map(name => maxEntities[name] ?? Infinity);
    this.widths = this.types.map(({ features }) => features.length);
    this.puts = this.types.map(({ features, references = [] }) => putter(features, references.length));
    this.typeOf = new Map(names.map((name, i) => [name, i]));
    this.actionOf = new Map(this.actions.map(({ name }, i) => [name, i]));
    this.alone = new Map(this.actions.map(({ name }, i) => [name, [i]]).filter(([, [i]]) => this.actions[i].whole === undefined));
    for (const [name, { indices }] of wholes) this.alone.set(name, indices);
    this.kinds = []; // of the groups of the observation that is read
  }

  /** Reads an observation that asks for actions, by name. Raises a TypeError that says what is wrong. */
  read(row, obs, names) {
    const asked = names.length === 1 ? this.alone.get(names[0]) : undefined;
    this.readAsked(row, obs, asked ?? this._asked(names));
    row.names = this.wholes.size && names.some(name => this.wholes.has(name)) ? names : undefined;
  }

  /** Reads an observation; `asked` has numbers of actions. */
  readAsked(row, obs, asked) {
    if (!(obs instanceof Obs)) {
      const hint = typeof obs === "number" ? `new Obs(${obs})` : "new Obs(score).entities(...)";
      this._fail(`an agent was shown ${shown(obs)}, expected an Obs: write ${hint}`);
    }
    const { score } = obs;
    if (typeof score !== "number" || !(Math.abs(score) <= MAX_SCORE)) {
      this._fail(`the score must be a finite number, got ${shown(score)}: new Obs(score) takes the score so far`);
    }
    row.asked = asked;
    row.score = score;
    row.isBlank = obs.groups.length === 0 && obs.features === undefined;
    const order = this._readGroups(row, obs, asked !== NONE);
    if (obs.masks !== undefined || obs.roles !== undefined) this._requireDeclared(obs);
    for (let i = 0; i < asked.length; i++) this._readActors(row, obs, asked[i], order);
    for (let i = 0; i < asked.length; i++) if (this.actions[asked[i]].whole !== undefined) i += this._joinParts(row, this.actions[asked[i]].whole);
    row.hidden = obs.hidden === undefined ? undefined : this._hidden(row, obs.hidden);
    row.metrics = obs.metrics === undefined ? undefined : this._metrics(obs.metrics);
  }

  /** The actions that the last observation of a truncated episode offers, if `asked` were asked. */
  offered(obs, asked) {
    if (!(obs instanceof Obs) || (!obs.groups.length && obs.features === undefined)) return NONE;
    const named = new Set([...obs.masks?.keys() ?? [], ...obs.roles?.flat() ?? []].flatMap(name => {
      const whole = this.wholes.get(this.actions[this.actionOf.get(name)]?.whole ?? name);
      return whole?.indices ?? this.actionOf.get(name);
    }));
    named.delete(undefined); // reported when the observation is read
    const offered = [...named].every(a => asked.includes(a)) ? asked : [...named];
    // A mask without actors is refused, as in `act`.
    return obs.roles === undefined ? offered.filter(a => this.actions[a].isGlobal || named.has(a)) : offered;
  }

  _fail(message) {
    fail(`${this.where}${message}`);
  }

  _asked(names) {
    const known = [...this.alone.keys()].join(", ");
    if (!names.length) this._fail(`act needs the name of an action: ${known}`);
    return names.flatMap((name, i) => {
      const indices = this.alone.get(name);
      if (indices === undefined) this._fail(`act asks for the action ${shown(name)}, expected ${known}`);
      if (names.indexOf(name) < i) this._fail(`act asks for ${name} twice`);
      return indices;
    });
  }

  /** Copies the features of all entities. Returns the order of the groups, sorted by type; undefined = as given. */
  _readGroups(row, obs, asks) {
    const { types, groups } = obs, { kinds, widths } = this, { counts } = row;
    let last = 0, size = 0, isSorted = true;
    for (let t = 0; t < counts.length; t++) counts[t] = 0;
    for (let g = 0; g < groups.length; g++) {
      const type = this.typeOf.get(types[g]);
      if (type === undefined) this._failType(types[g]);
      if ((obs.areRelations?.[g] === true) !== type >= this.numPlain) this._failRelation(types[g], type);
      if (type < last) isSorted = false;
      kinds[g] = last = type;
      counts[type] += groups[g].length;
      size += groups[g].length * widths[type];
      if (counts[type] > this.most[type]) {
        this._fail(`an observation has ${counts[type]} entities of the type ${types[g]}, more than its maxEntities, ${this.most[type]}`);
      }
    }
    size += this.globals.length;
    if (size > row.floats.length) {
      if (size > MAX_BYTES / 4) this._fail(`an observation has ${size} features, at most ${MAX_BYTES / 4} can be sent`);
      row.floats = new Float32Array(2 * size);
    }
    const order = isSorted ? undefined : groups.map((_, g) => g).sort((one, other) => kinds[one] - kinds[other] || one - other);
    const places = []; // by type, once they are needed
    let at = 0;
    for (let i = 0; i < groups.length; i++) {
      const g = order === undefined ? i : order[i], type = kinds[g], entities = groups[g], count = entities.length;
      const others = type < this.numPlain ? undefined : this.references[type].map(other => (places[other] ??= this._placesOf(obs, other)));
      if (this.puts[type](row.floats, at, entities, count, others) >= 0) this._putSlowly(row.floats, at, entities, type, others);
      at += count * widths[type];
    }
    if (this.hasGlobals && (asks || !row.isBlank)) {
      const type = this.types.length - 1;
      counts[type] = 1;
      if (this.globals.length) {
        const given = [obs.features];
        if (this.puts[type](row.floats, at, given, 1) >= 0) this._putSlowly(row.floats, at, given, type);
      }
    }
    if (!this.globals.length && obs.features !== undefined) {
      this._fail("an observation has globals, but the game has no globalFeatures: declare them");
    }
    return order;
  }

  /** The place of each entity of a type, from 0; of an object shown twice, the first. */
  _placesOf({ groups }, type) {
    const places = new Map();
    let place = 0;
    for (let g = 0; g < groups.length; g++) {
      if (this.kinds[g] !== type) continue;
      for (const entity of groups[g]) {
        if (!places.has(entity)) places.set(entity, place);
        place++;
      }
    }
    return places;
  }

  /** Writes entities with booleans; or says what is wrong with one. */
  _putSlowly(floats, at, entities, type, places = []) {
    const { name, features } = this.types[type], isGlobal = type === this.entities.length;
    for (let i = 0; i < entities.length; i++) {
      const entity = entities[i], which = isGlobal ? name : `${name} ${i}`;
      const fix = isGlobal ? "call obs.globals({...}) with" : `give each ${name}`;
      const wanted = features.length ? `: ${fix} ${features.join(", ")}` : "";
      if (!isObject(entity)) this._fail(`${which} must be an object, got ${shown(entity)}${wanted}`);
      features.forEach((feature, f) => {
        const value = f < places.length ? places[f].get(entity[feature]) : entity[feature];
        if (f < places.length && value === undefined) {
          const other = this.types[this.references[type][f]].name;
          this._fail(`${feature} of ${which} must be a ${other} that the observation shows, got ${shown(entity[feature])}: ` +
            `show the same object with obs.entities or obs.actors, and only relations of entities that are shown`);
        }
        if (typeof value !== "boolean" && (typeof value !== "number" || !(Math.abs(value) <= MAX_FEATURE))) {
          this._fail(`${feature} of ${which} must be a finite number, got ${shown(value)}${value === undefined ? wanted : ""}`);
        }
        floats[at++] = value;
      });
    }
  }

  _failRelation(name, type) {
    this._fail(type < this.numPlain ? `${name} is an entity type: add its entities with obs.entities or obs.actors`
      : `${name} is a relation, which cannot act: add it with obs.relations(${shown(name)}, [...])`);
  }

  _failType(type) {
    const known = this.entities.map(({ name }) => name).join(", ") || "none";
    this._fail(`an observation has entities of the type ${shown(type)}, which the game has not declared; declared are ${known}`);
  }

  _requireDeclared(obs) {
    for (const name of [...obs.masks?.keys() ?? [], ...obs.roles?.flat() ?? []]) {
      if (!this.actionOf.has(name) && !(this.wholes.has(name) && !obs.masks?.has(name))) {
        this._fail(`an observation has a mask or actors for the action ${shown(name)}, expected ${this.actions.map(each => each.name).join(", ")}`);
      }
    }
  }

  _readActors(row, obs, index, order) {
    const action = this.actions[index], acting = row.acting[index], { actors } = acting, { name } = action;
    const mask = obs.masks === undefined ? undefined : obs.masks.get(name);
    acting.mask = undefined;
    acting.isNested = mask !== undefined && obs.given !== undefined && obs.given.has(name);
    if (acting.isNested) this._requireBefore(action, obs.given.get(name));
    if (action.isGlobal) {
      if (mask !== undefined) acting.mask = [this._flagsOf(row, action, acting, mask, `the mask of ${name}`)];
      return;
    }
    if (obs.roles === undefined) {
      this._fail(`${name} asks every actor, but the observation has none: add them with obs.actors(...) instead of obs.entities(...)`);
    }
    actors.length = 0;
    let at = 0;
    for (let i = 0; i < obs.groups.length; i++) {
      const g = order === undefined ? i : order[i], roles = obs.roles[g], end = at + obs.groups[g].length;
      const performs = roles !== undefined && (roles.length === 0 || roles.includes(name) || roles.includes(action.whole));
      for (; at < end; at++) if (performs) actors.push(at);
    }
    if (action.kind === "continuous") {
      if (mask !== undefined) this._fail(`${name} is continuous: it has no mask`);
      return;
    }
    const isRelation = action.selected >= this.numPlain;
    if (mask !== undefined) {
      const isFlat = isRelation && !acting.isNested && (mask instanceof Uint8Array || (Array.isArray(mask) && mask.every(flag => !isList(flag))));
      if (!isFlat && (!Array.isArray(mask) || mask.length !== actors.length)) {
        this._fail(`the mask of ${name} needs a list of flags for each of ${actors.length} actors, got ${shown(mask)}`);
      }
      acting.mask = actors.map((_, i) => this._flagsOf(row, action, acting, isFlat ? mask : mask[i], `the mask of ${name} for actor ${i}`));
    }
    if (isRelation && row.counts[action.selected]) this._allowOwn(row, action, acting);
    if (action.selected >= 0) this._readActees(row, obs, action, acting);
  }

  /** Allows each actor only relations that start at it, of those that the mask allows. */
  _allowOwn({ counts, floats }, { name, selected, selects }, acting) {
    const { actors, mask } = acting, [source] = this.references[selected], count = counts[selected], width = this.widths[selected];
    let at = 0, first = 0; // of the features of relations; index of the first entity that can be their source
    for (let t = 0; t < selected; t++) {
      at += counts[t] * this.widths[t];
      if (t < source) first += counts[t];
    }
    acting.mask = actors.map((actor, i) => {
      const place = actor - first;
      if (place < 0 || place >= counts[source]) {
        const type = this.types[source].name;
        this._fail(`${name}: an actor chooses among the relations ${selects} that start at it, so it must be a ${type}: ` +
          `say which actors perform it, obs.actors(${shown(type)}, [...], ${shown(name)})`);
      }
      const flags = mask === undefined ? new Uint8Array(count).fill(1) : mask[i];
      for (let f = 0; f < flags.length; f++) if (floats[at + (f % count) * width] !== place) flags[f] = 0;
      return flags;
    });
  }

  _requireBefore({ name, before }, given) {
    const wanted = before < 0 ? undefined : this.actions[before].name;
    if (wanted === given) return;
    this._fail(`the mask of ${name} is given ${shown(given)}, but ${
      wanted === undefined ? "no labels or entities are chosen directly before" : `it can depend only on ${wanted}, which is chosen directly before`}`);
  }

  /** Number of choices of an action. */
  numChoices(row, { selected, labels }) {
    return selected < 0 ? labels.length : row.counts[selected];
  }

  /** A copy of the flags of an actor; with a row per choice of the action before, one after another. */
  _flagsOf(row, action, { isNested }, flags, where) {
    const width = this.numChoices(row, action), what = action.selected < 0 ? "label" : action.selects;
    if (!isNested) return this._flags(flags, width, action.selected < 0, where, what);
    const { name, selected } = this.actions[action.before], count = this.numChoices(row, this.actions[action.before]);
    if (!Array.isArray(flags) || flags.length !== count) {
      this._fail(`${where} needs ${count} lists of flags, one per choice of ${name}, got ${Array.isArray(flags) ? flags.length : shown(flags)}`);
    }
    const found = new Uint8Array(count * width);
    flags.forEach((each, i) => {
      const choice = selected < 0 ? this.actions[action.before].labels[i] : `${this.actions[action.before].selects} ${i}`;
      found.set(this._flags(each, width, false, `${where} after ${choice}`, what), i * width);
    });
    return found;
  }

  /**
   * Leaves out actors that have no target in some part of a decision, and requires a choice in each
   * part after every choice of the part before. Returns the number of further parts.
   */
  _joinParts(row, whole) {
    const { indices } = this.wholes.get(whole), acting = indices.map(i => row.acting[i]);
    const hasTarget = acting[0].actors.map((_, i) => indices.every((index, p) =>
      this.actions[index].selected < 0 || (acting[p].choices.length > 0 && (acting[p].mask === undefined || acting[p].mask[i].includes(1)))));
    for (const each of acting) {
      each.hasTarget = hasTarget;
      if (hasTarget.every(Boolean)) continue;
      each.actors = each.actors.filter((_, i) => hasTarget[i]);
      each.mask = each.mask?.filter((_, i) => hasTarget[i]);
    }
    indices.forEach((index, p) => acting[p].isNested && this._requireNext(row, this.actions[index], acting[p], acting[p - 1]));
    return indices.length - 1;
  }

  _requireNext(row, action, { mask }, before) {
    const other = this.actions[action.before], count = this.numChoices(row, other), width = this.numChoices(row, action);
    mask.forEach((flags, i) => {
      for (let choice = 0; choice < count; choice++) {
        const legal = before.mask === undefined || before.mask[i].some((flag, at) => flag && at % count === choice);
        if (!legal || flags.subarray(choice * width, (choice + 1) * width).includes(1)) continue;
        const named = other.selected < 0 ? other.labels[choice] : `${other.selects} ${choice}`;
        this._fail(`the mask of ${action.name} allows nothing after ${named} of ${other.name}, which is allowed: forbid that choice, or allow something after it`);
      }
    });
  }

  _readActees(row, obs, { selected, selects, whole }, acting) {
    acting.first = 0;
    for (let t = 0; t < selected; t++) acting.first += row.counts[t];
    const own = obs.groups.filter((_, g) => obs.types[g] === selects);
    acting.choices = own.length === 1 ? [...own[0]] : own.flat();
    acting.hasTarget = undefined;
    if (whole !== undefined) return; // see `_joinParts`
    const { actors, mask, choices } = acting;
    if (choices.length && (mask === undefined || mask.every(flags => flags.includes(1)))) return;
    const hasTarget = (acting.hasTarget = actors.map((_, i) => choices.length > 0 && mask[i].includes(1)));
    acting.actors = actors.filter((_, i) => hasTarget[i]);
    acting.mask = choices.length ? mask.filter((_, i) => hasTarget[i]) : undefined;
  }

  /** A copy of flags as 0 and 1. */
  _flags(flags, count, needsOne, where, what) {
    if (!isList(flags) || flags.length !== count) {
      this._fail(`${where} needs ${count} flags, one per ${what}, got ${isList(flags) ? flags.length : shown(flags)}`);
    }
    const found = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      const flag = flags[i];
      if (flag === true || flag === 1) found[i] = 1;
      else if (flag !== false && flag !== 0) this._fail(`${where} must have booleans, got ${shown(flag)} at ${i}`);
    }
    if (needsOne && !found.includes(1)) this._fail(`${where} allows no choice: at least one flag must be true`);
    return found;
  }

  _hidden(row, given) {
    let found;
    for (const [name, flags] of given) {
      const type = this.typeOf.get(name);
      if (type === undefined) this._failType(name);
      const own = this._flags(flags, row.counts[type], false, `visible of ${name}`, "entity");
      if (own.includes(0)) (found ??= [])[type] = own;
    }
    return found;
  }

  _metrics(given) {
    const found = [];
    for (const [name, value] of given) {
      const index = this.metrics?.indexOf(name);
      if (index === -1) this._fail(`the metric ${shown(name)} is not declared: add it to the game's metrics`);
      if (typeof value !== "boolean" && !Number.isFinite(value)) {
        this._fail(`the metric ${name} must be a finite number, got ${shown(value)}`);
      }
      if (index !== undefined) found[index] = Number(value);
    }
    return found;
  }

  /** The answer to an action: `chosen` has an index for each actor, or a list of numbers. */
  decode(row, index, chosen) {
    const { isGlobal, labels, selected, whole } = this.actions[index];
    if (isGlobal) return labels[chosen[0]];
    if (selected >= 0) {
      const { choices, hasTarget } = row.acting[index];
      if (hasTarget === undefined || whole !== undefined) return chosen.map(i => choices[i]);
      let next = 0;
      return hasTarget.map(isAsked => (isAsked ? choices[chosen[next++]] : null));
    }
    return this.actions[index].kind === "continuous" ? chosen : chosen.map(i => labels[i]);
  }

  /** The result of `act`: the answers to the actions that were asked, parts joined to decisions. */
  joined(row, answers) {
    if (row.names === undefined) return answers.length === 1 ? answers[0] : answers;
    let at = 0;
    const found = row.names.map(name => {
      const whole = this.wholes.get(name);
      return whole === undefined ? answers[at++] : this._joinedParts(row, whole, answers.slice(at, at += whole.indices.length));
    });
    return found.length === 1 ? found[0] : found;
  }

  _joinedParts(row, { fields, indices }, answers) {
    const decision = pick => Object.fromEntries(fields.map((field, p) => [field, pick(answers[p])]));
    if (this.actions[indices[0]].isGlobal) return decision(answer => answer);
    let next = 0;
    return row.acting[indices[0]].hasTarget.map(isAsked => {
      const i = isAsked ? next++ : -1;
      return isAsked ? decision(answer => answer[i]) : null;
    });
  }
}

/** The actions of a game, with the parts of decisions as actions that depend on those before; and these decisions. */
function partsOf(actions, where) {
  const plain = {}, wholes = new Map();
  let size = 0;
  for (const [name, action] of Object.entries(actions)) {
    if (!isObject(action) || action.kind !== "composite") {
      plain[name] = action;
      size++;
      continue;
    }
    const { parts } = action, fields = isObject(parts) ? Object.keys(parts) : [], indices = [];
    if (!fields.length) fail(`${where}action ${name}: composite expects an object with at least one part, got ${shown(parts)}`);
    requireNames(fields, `${where}action ${name}: the names of parts`);
    const isGlobal = fields.map(field => parts[field]?.kind === "global_categorical");
    if (isGlobal.includes(true) && isGlobal.includes(false)) {
      fail(`${where}action ${name}: either all parts or none must be the result of globalCategorical`);
    }
    fields.forEach((field, p) => {
      if (!isObject(parts[field])) fail(`${where}action ${name}: part ${field} must be an action, got ${shown(parts[field])}`);
      plain[`${name}.${field}`] = { ...parts[field], whole: name, ...(p ? { given: fields.slice(0, p).map(each => `${name}.${each}`) } : {}) };
      indices.push(size++);
    });
    wholes.set(name, { fields, indices });
  }
  if (Object.keys(plain).length !== size) fail(`${where}an action has the name of a part of another: choose other names`);
  return { plain, wholes };
}

/** Requires relations between two of these entity types. */
function requireRelations(relations, entities, where) {
  if (!isObject(relations)) fail(`${where}relations must be an object with the references and features of each type, got ${shown(relations)}`);
  requireNames(Object.keys(relations), `${where}the names of relations`);
  const known = Object.keys(entities).join(", ") || "none";
  for (const [name, relation] of Object.entries(relations)) {
    if (!name || name === "__global__" || Object.hasOwn(entities, name)) {
      fail(`${where}the name of a relation must not be ${shown(name)}, nor that of an entity type: choose another one`);
    }
    requireOptions(relation, ["references", "features"], `${where}relation ${name}`);
    const { references, features = [] } = relation;
    if (!isObject(references) || Object.keys(references).length !== 2) {
      fail(`${where}relation ${name}: references must be an object with the types of two entities, such as ` +
        `{ start: "Town", end: "Town" }, got ${shown(references)}`);
    }
    requireNames(features, `${where}the features of ${name}`);
    requireNames([...Object.keys(references), ...features], `${where}the references and features of ${name}`);
    for (const [field, other] of Object.entries(references)) {
      if (typeof other === "string" && Object.hasOwn(entities, other)) continue;
      fail(`${where}relation ${name}: ${field} must refer to an entity type, which are ${known}, got ${shown(other)}`);
    }
  }
}

function requireAction(action, types, where) {
  if (!isObject(action) || !ACTION_KINDS.includes(action.kind)) {
    fail(`${where}expected the result of globalCategorical, categorical, selectEntity or continuous, got ${shown(action)}`);
  }
  const { kind, labels, selects, low, high } = action;
  if (kind === "select_entity") {
    if (!types.includes(selects)) {
      fail(`${where}selectEntity must name an entity type or relation, got ${shown(selects)}`);
    }
    return;
  }
  requireNames(labels, `${where}the labels`);
  if (!labels.length) fail(`${where}expected at least one label, got none`);
  const isBounds = list => Array.isArray(list) && list.length === labels.length && list.every(Number.isFinite);
  if (kind === "continuous" && !(isBounds(low) && isBounds(high) && low.every((bound, i) => bound < high[i]))) {
    fail(`${where}expected finite bounds with low < high for each label: use continuous({ label: [low, high] })`);
  }
}

// ------------------------------------------------------------------ trained agents

const AGENT_OPTIONS = ["game", "seed", "greedy", "temperature", "index"];

/**
 * Loads a trained agent, which plays without entity_env: `await game.play(agent, { seed: 1n, ...game.settings })`.
 *
 * `source` is the path or address of an `.agent` file, or its content, an ArrayBuffer or typed array.
 * With a `game`, an agent of another game is refused at once, and not when it is asked; an agent that
 * selects entities needs it. `greedy`: true = it takes the most probable action; false = it samples,
 * with a `seed` always in the same way. By default it does what plays better, as measured at the end
 * of its training and stored in the file; it samples if the file does not say so, or if there is a
 * `temperature`. One above 1 makes it more random. `index` is its number in a game with several agents.
 */
export async function loadAgent(source, options = {}) {
  requireOptions(options, AGENT_OPTIONS, "loadAgent(source, options)");
  const { game, seed, greedy: wanted, temperature = 1, index = 0 } = options;
  if (game !== undefined && !(game instanceof Game)) fail(`loadAgent: game must be a Game, got ${shown(game)}`);
  if (wanted !== undefined && typeof wanted !== "boolean") fail(`loadAgent: greedy must be a boolean, got ${shown(wanted)}`);
  if (!(Number.isFinite(temperature) && temperature >= 1e-6)) fail(`loadAgent: temperature must be a number from 1e-6, got ${shown(temperature)}`);
  if (!Number.isInteger(index) || index < 0) fail(`loadAgent: index must be an integer from 0, got ${shown(index)}`);
  const generator = seed === undefined ? undefined : new Random(seed);
  const random = generator === undefined ? Math.random : () => generator.uniform();
  const { readAgent } = await import("./network.mjs");
  const network = readAgent(await contentOf(source));
  const schema = game === undefined ? schemaOf(network.spaces) : game._schema;
  requireSpaces(network.spaces, schema);
  const greedy = wanted ?? (network.greedy === true && temperature === 1);
  return new NetworkAgent(network, schema, { greedy, temperature, random }, index);
}

async function contentOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  if (typeof source !== "string" && !(source instanceof URL)) {
    fail(`loadAgent expects the path or address of an .agent file, or its content, got ${shown(source)}`);
  }
  const [, scheme] = /^([a-z][a-z\d+.-]+):/i.exec(source) ?? []; // not the letter of a drive
  const files = globalThis.process?.getBuiltinModule?.("node:fs/promises");
  if (files !== undefined && (scheme === undefined || scheme === "file")) {
    return files.readFile(scheme === undefined ? source : new URL(source));
  }
  const response = await fetch(source);
  if (!response.ok) throw new Error(`cannot load ${source}: the server answered ${response.status}`);
  return response.arrayBuffer();
}

/** The spaces of an agent as those of a game. */
function schemaOf({ global_features: globalFeatures, entities, actions }) {
  const selecting = actions.find(({ kind }) => kind === "select_entity");
  if (selecting !== undefined) {
    fail(`loadAgent: ${selecting.name} selects entities, and the file does not say of which type: use loadAgent(source, { game })`);
  }
  const plain = entities.filter(({ references }) => references === undefined);
  return new Schema({
    entities: Object.fromEntries(plain.map(({ name, features }) => [name, features])),
    relations: Object.fromEntries(entities.slice(plain.length).map(({ name, features: [source, target, ...features], references: [one, other] }) =>
      [name, { references: { [source]: one, [target]: other }, features }])),
    actions: Object.fromEntries(actions.map(({ name, ...action }) => [name, action])),
    globalFeatures,
    maxEntities: {},
  }, "agent: ");
}

/** Raises an Error with the differences unless an agent has these entities and actions, in this order. */
function requireSpaces(spaces, schema) {
  const listed = names => names.join(", ") || "none";
  const linesOf = (globals, entities, actions) => [
    `global features ${listed(globals)}`,
    ...entities.map(({ name, features, references }) =>
      `${references === undefined ? "entity" : "relation"} ${name} with features ${listed(features)}${references === undefined ? "" : ` between ${references.join(" and ")}`}`),
    ...actions.map(({ name, kind, labels = [], low, high, given = [] }) => {
      const bounds = (label, i) => (low === undefined ? label : `${label} from ${low[i]} to ${high[i]}`);
      return `action ${name} (${kind}) with labels ${listed(labels.map(bounds))}${given.length ? ` after ${listed(given)}` : ""}`;
    }),
  ];
  const trained = linesOf(spaces.global_features, spaces.entities, spaces.actions);
  const wanted = linesOf(schema.globals, schema.entities, schema.actions);
  if (trained.join("\n") === wanted.join("\n")) return;
  const only = (lines, others) => lines.filter(line => !others.includes(line)).join("; ");
  const [there, here] = [only(trained, wanted), only(wanted, trained)];
  const difference = !there && !here ? `the order differs: it has ${trained.join("; ")}`
    : [there && `it has ${there}`, here && `the game has ${here}`].filter(Boolean).join(", but ");
  throw new Error(`${schema.where}the agent was trained for another game: ${difference}; train an agent for this game, or load the right file`);
}

/** Decides with a network. Its `score` is the last one that it was shown. */
class NetworkAgent {
  constructor(network, schema, choosing, index, isForGame = false) {
    this.index = index;
    this.score = 0;
    this._isForGame = isForGame;
    this._network = network;
    this._schema = schema;
    this._choosing = choosing;
    this._row = new Row(schema);
    this._state = new Array(network.stateSize).fill(0);
  }

  /** An agent for one game, with its own state. Several games at the same time need one each. */
  forGame() {
    return new NetworkAgent(this._network, this._schema, this._choosing, this.index, true);
  }

  async act(obs, ...actions) {
    const { _schema: schema, _row: row } = this;
    if (this._state.length && !this._isForGame) {
      throw new Error(`${schema.where}an agent with memory needs to know the game of each observation, which act does not name: make one agent per game, agent.forGame(), and call its act and gameOver`);
    }
    schema.read(row, obs, actions);
    this.score = obs.score;
    const chosen = this._network.choose(this._observation(), this._choosing);
    return schema.joined(row, row.asked.map(a => schema.decode(row, a, chosen[schema.actions[a].name])));
  }

  gameOver(obs = new Obs(this.score), options = {}) {
    const schema = this._schema;
    schema.readAsked(this._row, obs, isTruncated(options) ? schema.offered(obs, this._row.asked) : NONE);
    this.score = obs.score;
    this._state.fill(0);
  }

  /** What the network reads. */
  _observation() {
    const { _schema: schema, _row: row } = this, features = {}, visible = {}, actions = {};
    let at = 0;
    schema.entities.forEach(({ name, features: { length } }, type) => {
      const count = row.counts[type], end = at + count * length;
      features[name] = length ? row.floats.subarray(at, end) : Array.from({ length: count }, () => []);
      if (row.hidden?.[type] !== undefined) visible[name] = [...row.hidden[type]].map(Boolean);
      at = end;
    });
    for (const a of row.asked) {
      const { name, selected } = schema.actions[a], { actors, first } = row.acting[a], mask = this._mask(a);
      const actees = selected < 0 ? undefined : Array.from({ length: row.counts[selected] }, (_, i) => first + i);
      actions[name] = { actors, actees, mask };
    }
    return { features, globals: [...row.floats.subarray(at, at + schema.globals.length)], visible, actions, state: this._state };
  }

  /** The mask of an action; if it depends on the action before, with a list of rows per actor. */
  _mask(index) {
    const { _schema: schema, _row: row } = this, { mask, isNested } = row.acting[index];
    if (mask === undefined || !isNested) return mask;
    const action = schema.actions[index], width = schema.numChoices(row, action);
    const count = schema.numChoices(row, schema.actions[action.before]);
    return mask.map(flags => Array.from({ length: count }, (_, i) => flags.subarray(i * width, (i + 1) * width)));
  }
}

// ------------------------------------------------------------------ copies of a game

class Agent {
  constructor(seat) {
    this._seat = seat;
    this._numLate = 0;
    this.index = seat.index;
  }

  /**
   * Asks for one or several actions, by name. Resolves to a label; for actors to a list with one
   * answer per actor: labels, selected entities or lists of numbers; or, for several actions, to a
   * list of answers. Resolves to null if the game must return.
   */
  act(obs, ...actions) {
    const seat = this._seat;
    if (seat.agent !== this) return this._late();
    if (seat.isOver) this._refuse("act was called after gameOver: its episode has ended");
    if (seat.resolve !== undefined) this._refuse("act was called before its last act was answered: await each answer");
    seat.schema.read(seat.row, obs, actions);
    seat.isPlaying = true;
    return new Promise(seat.keep);
  }

  /** Ends the agent's episode. */
  gameOver(obs = new Obs(this._seat.row.score), options = {}) {
    const seat = this._seat;
    if (seat.agent !== this) return;
    const truncated = isTruncated(options);
    if (seat.isOver) this._refuse("gameOver was called twice");
    if (seat.resolve !== undefined) this._refuse("gameOver was called before its last act was answered: await each answer");
    seat.copy.end(seat, truncated ? TRUNCATED : TERMINATED, obs, truncated);
  }

  /** The answer after the episode was abandoned. */
  _late() {
    if (++this._numLate < MAX_CALLS) return Promise.resolve(null);
    if (this._numLate === MAX_CALLS) console.error("entity-env: play does not return although act resolved to null: it is left suspended");
    return new Promise(() => {});
  }

  _refuse(message) {
    throw Object.assign(new Error(`${this._seat.schema.where}agent ${this.index}: ${message}`), { isMisuse: true });
  }
}

function isTruncated(options) {
  requireOptions(options, ["truncated"], "gameOver(obs, { truncated })");
  const { truncated = false } = options;
  if (typeof truncated !== "boolean") fail(`gameOver: truncated must be a boolean, got ${shown(truncated)}`);
  return truncated;
}

/** An agent of a copy over all episodes. */
class Seat {
  constructor(copy, index, schema) {
    this.copy = copy;
    this.index = index;
    this.schema = schema;
    this.agent = undefined; // of the current episode
    this.row = new Row(schema);
    this.resolve = undefined; // of the answer that it waits for
    this.isPlaying = false; // it has asked for an action in this episode
    this.isOver = false; // its episode has ended
    this.keep = resolve => {
      this.resolve = resolve;
      copy.settle();
    };
  }
}

class Copy {
  constructor(server, index) {
    const { numAgents, _schema } = server.game;
    this.server = server;
    this.index = index;
    this.seats = Array.from({ length: numAgents }, (_, i) => new Seat(this, i, _schema));
    this.isPlaying = false;
    this.isBusy = false; // its game runs, and the current step waits for it
    this.isNew = false; // its episode started in this step
    this.isTold = false; // the host knows that it waits for a seed
    this.flags = 0;
    this.ends = []; // of agents, for the next answer
    this.seedLow = this.seedHigh = 0; // halves of the next episode's seed
  }

  start() {
    const { game, values } = this.server, { seats } = this;
    const seed = (BigInt(this.seedHigh) << 32n) | BigInt(this.seedLow);
    this.flags |= STARTED;
    this.isNew = true;
    this.isPlaying = true;
    this.run();
    for (const seat of seats) {
      seat.agent = new Agent(seat);
      seat.row.score = 0;
      seat.row.asked = NONE;
      seat.isPlaying = seat.isOver = false;
    }
    const first = seats[0].agent; // identifies this call of `play`
    const finish = (hasFailed, error) => {
      if (seats[0].agent === first) this.finish(hasFailed, error);
    };
    try {
      const played = game.play(seats.length === 1 ? first : seats.map(({ agent }) => agent), { seed, ...values });
      Promise.resolve(played).then(() => finish(false), error => finish(true, error));
    } catch (error) {
      Promise.reject(error).catch(() => finish(true, error));
    }
  }

  /** The current step waits for this copy. */
  run() {
    if (!this.isBusy) {
      this.isBusy = true;
      this.server.numBusy++;
    }
  }

  /** The current step has what it needs of this copy. */
  settle() {
    if (!this.isBusy) return;
    this.isBusy = false;
    if (--this.server.numBusy === 0) this.server.schedule();
  }

  /** Lets a running game return: its calls of `act` resolve to null. */
  leave() {
    this.isPlaying = false;
    for (const seat of this.seats) {
      const { resolve } = seat;
      seat.agent = seat.resolve = undefined;
      resolve?.(null);
    }
  }

  /** `play` has returned, or has thrown an error. */
  finish(hasFailed, error) {
    const { server, seats } = this;
    const [left] = seats.filter(({ isPlaying, isOver }) => isPlaying && !isOver);
    const waits = left?.resolve === undefined ? undefined : `agent ${left.index} waits for an answer: await each act`;
    let hint = "";
    if (hasFailed) {
      if (waits !== undefined) hint = ` (${waits})`; // a promise has no properties of an answer
    } else if (left !== undefined) {
      hasFailed = true;
      error = withoutStack(`play returned, but ${waits ?? `agent ${left.index} has not ended its episode: call gameOver`}`);
    } else if (!seats.some(({ isOver }) => isOver)) {
      hasFailed = true;
      error = withoutStack("play returned without an episode: it must await agent.act, and call agent.gameOver at the end");
    }
    if (hasFailed) this.fail(error, hint);
    this.leave();
    // Without a step that waits for it, the episode after the next request gets a seed from there.
    const isStepping = server.isStepping && (this.isBusy || server.stepping.includes(this));
    if (isStepping && !this.isNew && !server.hold) this.start();
    else this.settle();
  }

  fail(error, hint) {
    const playing = this.seats.filter(({ isOver }) => !isOver);
    const failure = failureOf(error, hint);
    if (!playing.length) console.error(`entity-env: ${failure.message}\n${failure.traceback}`); // no end is left for it
    for (const { index } of playing) {
      this.ends.push({ agent: index, row: 0, flags: FAILED + (this.isNew ? NEW : 0), shown: undefined, failure });
    }
  }

  end(seat, flags, obs, isTruncated) {
    const { server } = this, { schema } = seat, row = server.spare.pop() ?? new Row(schema);
    schema.readAsked(row, obs, isTruncated ? schema.offered(obs, seat.row.asked) : NONE);
    seat.isOver = true;
    this.ends.push({ agent: seat.index, row: 0, flags: flags + (this.isNew ? NEW : 0), shown: row, failure: undefined });
  }
}

// ------------------------------------------------------------------ frames

/**
 * Writes a message: 16 bytes for its header, then arrays, each at a multiple of 8 bytes. The memory
 * is used again for the next message, when this one is sent.
 */
class Writer {
  constructor() {
    this.buffer = new ArrayBuffer(1 << 16);
    this._views();
    this.begin();
  }

  begin() {
    this.size = 16;
  }

  /** The message, with its header. */
  message(kind) {
    this.ints[0] = MAGIC;
    this.ints[1] = kind;
    this.ints[2] = this.size - 16;
    this.ints[3] = 0;
    return this.bytes.subarray(0, this.size);
  }

  _views() {
    this.bytes = new Uint8Array(this.buffer);
    this.ints = new Int32Array(this.buffer);
    this.floats = new Float32Array(this.buffer);
    this.doubles = new Float64Array(this.buffer);
  }

  /** Makes room for an array, filled with zeros, and returns its position. */
  take(size) {
    const at = this.size, end = at + size + (-size & 7);
    if (end > MAX_BYTES) throw new Error(`the message has more than ${MAX_BYTES} bytes: show fewer entities, or play fewer copies`);
    if (end > this.buffer.byteLength) {
      const larger = new ArrayBuffer(2 * end);
      new Uint8Array(larger).set(this.bytes.subarray(0, at));
      this.buffer = larger;
      this._views();
    } else {
      this.bytes.fill(0, at, end);
    }
    this.size = end;
    return at;
  }

  int64(at, value) {
    this.ints[at >> 2] = value;
    this.ints[(at >> 2) + 1] = value < 0 ? -1 : 0;
  }

  /** A text, padded with spaces. */
  text(text) {
    const bytes = new TextEncoder().encode(text), at = this.take(bytes.length);
    this.bytes.fill(32, at, this.size);
    this.bytes.set(bytes, at);
  }
}

/** Writes rows as frames. */
class FrameWriter {
  constructor(schema) {
    const { types, entities, actions, hasGlobals } = schema;
    Object.assign(this, { schema, types, actions, hasGlobals });
    this.numEntities = entities.length;
    this.numSlots = 2 * types.length + 3 * actions.length;
    this.lines = []; // of each action in the matrix of lengths
    this.numLengths = types.length;
    for (const { selected } of actions) {
      this.lines.push(this.numLengths);
      this.numLengths += selected < 0 ? 1 : 2;
    }
  }

  /** Writes rows; undefined = an empty row. */
  write(out, rows) {
    const num = rows.length, flags = out.take(this.numSlots);
    const matrix = out.take(8 * this.numLengths * num) >> 2;
    for (let r = 0; r < num; r++) if (rows[r] !== undefined) rows[r].at = 0;
    for (let t = 0; t < this.types.length; t++) {
      this._writeType(out, rows, t, flags + 2 * t, matrix + 2 * num * t);
    }
    for (let a = 0; a < this.actions.length; a++) {
      const slot = flags + 2 * this.types.length + 3 * a;
      this._writeAction(out, rows, a, slot, matrix + 2 * num * this.lines[a]);
    }
  }

  _writeType(out, rows, type, flags, line) {
    const width = this.types[type].features.length;
    let total = 0, isHidden = false;
    for (let r = 0, { ints } = out; r < rows.length; r++) {
      const row = rows[r];
      if (row === undefined) continue;
      total += ints[line + 2 * r] = row.counts[type];
      if (row.hidden !== undefined && row.hidden[type] !== undefined) isHidden = true;
    }
    if (width) {
      out.bytes[flags] = 1;
      let at = out.take(4 * width * total) >> 2;
      const { floats } = out;
      for (let r = 0; r < rows.length; r++) {
        const row = rows[r];
        if (row === undefined) continue;
        const from = row.floats, end = row.at + width * row.counts[type];
        for (let i = row.at; i < end; i++) floats[at++] = from[i];
        row.at = end;
      }
    }
    if (isHidden) {
      out.bytes[flags + 1] = 1;
      let at = out.take(total);
      for (const row of rows) {
        if (row === undefined) continue;
        const seen = row.hidden?.[type];
        if (seen === undefined) out.bytes.fill(1, at, at + row.counts[type]);
        else out.bytes.set(seen, at);
        at += row.counts[type];
      }
    }
  }

  _writeAction(out, rows, index, flags, line) {
    const { isGlobal, kind, labels, selected, before } = this.actions[index];
    const rowsOf = row => (before < 0 ? 1 : this.schema.numChoices(row, this.actions[before])); // of an actor's mask
    let total = 0, numFlags = 0, numActees = 0, hasMask = false;
    for (let r = 0, { ints } = out; r < rows.length; r++) {
      const row = rows[r];
      if (row === undefined || !row.asked.includes(index)) continue;
      const { actors, mask } = row.acting[index], width = selected < 0 ? labels.length : row.counts[selected];
      ints[line + 2 * r] = actors.length;
      total += actors.length;
      numFlags += actors.length * width * rowsOf(row);
      if (selected >= 0 && actors.length) {
        ints[line + 2 * (rows.length + r)] = width;
        numActees += width;
      }
      if (mask !== undefined) hasMask = true;
    }
    const asking = isGlobal && !hasMask ? NONE : rows.filter(row => row !== undefined && row.asked.includes(index));
    if (!isGlobal) {
      out.bytes[flags] = 1;
      let at = out.take(8 * total) >> 2;
      for (const row of asking) {
        for (const actor of row.acting[index].actors) out.ints[at] = actor, at += 2;
      }
    }
    if (hasMask && kind !== "continuous") {
      out.bytes[flags + 1] = 1;
      let at = out.take(numFlags);
      for (const row of asking) {
        const { actors, mask } = row.acting[index], width = selected < 0 ? labels.length : row.counts[selected];
        const count = width * rowsOf(row);
        for (let i = 0; i < actors.length; i++) {
          const end = at + count;
          if (mask === undefined) out.bytes.fill(1, at, at = end);
          else for (; at < end; at += mask[i].length) out.bytes.set(mask[i], at);
        }
      }
    }
    if (selected >= 0) {
      out.bytes[flags + 2] = 1;
      let at = out.take(8 * numActees) >> 2;
      for (const row of asking) {
        const { actors, first } = row.acting[index];
        for (let i = 0; actors.length && i < row.counts[selected]; i++, at += 2) out.ints[at] = first + i;
      }
    }
  }
}

// ------------------------------------------------------------------ server

/** Plays the copies of a game: reads requests, and writes answers with `send(bytes)`. */
class Server {
  constructor(game, send, schedule) {
    this.game = game;
    this.send = send;
    this.schedule = schedule; // calls `answer` if all copies have what it needs, after their games have run
    this.frames = new FrameWriter(game._schema);
    this.out = new Writer();
    this.copies = []; // made by the first RESET
    this.numCopies = 0;
    this.values = {};
    this.hold = false;
    this.isStepping = false;
    this.stepping = []; // copies of the current request
    this.numBusy = 0;
    this.sent = []; // by row, what the host was last sent and answers next
    this.spare = []; // rows for last observations
  }

  sendJson(kind, data) {
    this.out.begin();
    this.out.text(JSON.stringify(data));
    if (this.out.size > MAX_JSON_BYTES) throw new Error(`${KINDS[kind]} has more than ${MAX_JSON_BYTES} bytes: shorten the names and texts of the game`);
    this.send(this.out.message(kind));
  }

  hello(token) {
    const { name, version, settings, doc } = this.game;
    this.sendJson(HELLO, { protocol: 1, name, version, token, settings, doc });
  }

  /** Raises an `Error` unless a message of this kind and size can come now. */
  requireDue(kind, size) {
    const due = !this.numCopies ? [START] : !this.copies.length ? [RESET] : [RESET, ACT];
    if (!due.includes(kind)) throw new Error(`expected kind ${due.map(each => KINDS[each]).join(" or ")}, got ${KINDS[kind] || kind}`);
    const [least, most] = kind === START ? [0, MAX_JSON_BYTES]
      : kind === RESET ? [24, 8 + 16 * this.numCopies] : [this._sizeOfAct(), this._sizeOfAct()];
    if (size < least || size > most || size % 8) {
      throw new Error(`the payload must have ${least === most ? most : `${least} to ${most}`} bytes, a multiple of 8: got ${size}`);
    }
  }

  _sizeOfAct() {
    let size = 8 * this.numCopies;
    for (let a = 0; a < this.frames.actions.length; a++) {
      const { kind, labels } = this.frames.actions[a];
      let count = 0;
      for (const row of this.sent) if (row !== undefined && row.asked.includes(a)) count += row.acting[a].actors.length;
      const own = kind === "continuous" ? 4 * labels.length * count : 8 * count;
      size += own + (-own & 7);
    }
    return size;
  }

  /** Answers a message from the host; throws an `Error` if it is invalid. */
  receive(kind, payload) {
    if (kind === START) this.begin(payload);
    else if (kind === RESET) this.reset(new DataView(payload.buffer, payload.byteOffset, payload.byteLength));
    else this.act(new DataView(payload.buffer, payload.byteOffset, payload.byteLength));
  }

  begin(payload) {
    const { game } = this, start = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
    if (!isObject(start)) throw new Error(`the payload must be a JSON object, got ${shown(start)}`);
    const { protocol, num_envs: numEnvs, first_env: first = 0, hold = false, settings = {} } = start;
    const most = Math.floor(MAX_ROWS / game.numAgents);
    if (protocol !== 1) throw new Error(`expected version 1 of the protocol, got ${shown(protocol)}`);
    if (!Number.isInteger(numEnvs) || numEnvs < 1 || numEnvs > most) throw new Error(`num_envs must be an integer from 1 to ${most}, got ${shown(numEnvs)}`);
    if (!Number.isSafeInteger(first) || first < 0) throw new Error(`first_env must be an integer from 0, got ${shown(first)}`);
    if (typeof hold !== "boolean") throw new Error(`hold must be true or false, got ${shown(hold)}`);
    this.values = this._values(settings);
    const problem = game.check?.({ ...this.values });
    if (problem !== undefined && typeof problem !== "string") throw new Error(`check must return a text or undefined, got ${shown(problem)}`);
    if (problem !== undefined) throw Object.assign(new Error(problem), { isRefusal: true });
    this.hold = hold;
    this.numCopies = numEnvs;
    this.sendJson(READY, {
      num_agents: game.numAgents,
      spaces: {
        global_features: game.globalFeatures,
        entities: game._schema.entities,
        actions: game._schema.actions.map(({ isGlobal, selected, before, whole, ...action }) => action),
      },
      metrics: game.metrics,
      max_entities: game.maxEntities,
    });
  }

  _values(settings) {
    const defaults = this.game.settings;
    if (!isObject(settings)) throw new Error(`settings must be a JSON object, got ${shown(settings)}`);
    const unknown = Object.keys(settings).find(name => !Object.hasOwn(defaults, name));
    if (unknown !== undefined) throw new Error(`the game has no setting ${shown(unknown)}; it has ${Object.keys(defaults).join(", ") || "none"}`);
    const values = {};
    for (const [name, expected] of Object.entries(defaults)) {
      const value = Object.hasOwn(settings, name) ? settings[name] : expected;
      const isInteger = Number.isInteger(expected), isFine = isInteger ? Number.isSafeInteger(value)
        : typeof value === typeof expected && (typeof value !== "number" || Number.isFinite(value));
      if (!isFine) throw new Error(`the setting ${name} must be ${isInteger ? "an integer" : `a ${typeof expected}`}, got ${shown(value)}`);
      values[name] = value;
    }
    return values;
  }

  reset(view) {
    const count = view.getUint32(0, true), isFirst = !this.copies.length;
    if (view.getUint32(4, true) || view.byteLength !== 8 + 16 * count) throw new Error(`the payload has ${view.byteLength} bytes, which does not match its number of copies`);
    if (isFirst && count !== this.numCopies) throw new Error(`the first RESET must have all ${this.numCopies} copies, got ${count}`);
    for (let i = 0, last = -1; i < count; i++) {
      const id = view.getUint32(8 + 8 * i, true), high = view.getUint32(12 + 8 * i, true);
      if (high || id <= last || id >= this.numCopies) throw new Error(`the copies must be 0 to ${this.numCopies - 1}, increasing: got ${high ? view.getBigInt64(8 + 8 * i, true) : id}`);
      last = id;
    }
    if (isFirst) this.copies = Array.from({ length: count }, (_, i) => new Copy(this, i));
    this.stepping = [];
    for (let i = 0; i < count; i++) this.stepping.push(this.copies[view.getUint32(8 + 8 * i, true)]);
    this.isStepping = true;
    for (let i = 0; i < count; i++) {
      const copy = this.stepping[i], at = 8 * (1 + count + i);
      copy.seedLow = view.getUint32(at, true);
      copy.seedHigh = view.getUint32(at + 4, true);
      copy.ends.length = 0;
      copy.leave();
      copy.start();
    }
    this.schedule();
  }

  act(view) {
    const { copies, sent } = this, { numAgents } = this.game;
    let at = 8 * copies.length;
    for (let r = 0; r < sent.length; r++) {
      if (sent[r] !== undefined && sent[r].asked.length > 1) sent[r].answers = [];
    }
    for (let a = 0; a < this.frames.actions.length; a++) at = this._readAnswers(view, at, a);
    this.stepping = copies;
    this.isStepping = true;
    for (let i = 0, r = 0; i < copies.length; i++) {
      const copy = copies[i], { seats } = copy;
      copy.seedLow = view.getUint32(8 * i, true);
      copy.seedHigh = view.getUint32(8 * i + 4, true);
      if (!copy.isPlaying) {
        // An episode that ended after the last answer is reported first.
        if (!this.hold || copy.isTold) copy.start();
        r += numAgents;
        continue;
      }
      let isLate = false;
      for (let j = 0; j < numAgents; j++, r++) {
        const seat = seats[j], { resolve } = seat, row = sent[r];
        if (resolve === undefined) continue;
        if (row === undefined) {
          isLate = true; // it asked after the last answer: the host does not know
          continue;
        }
        seat.resolve = undefined;
        resolve(row.names === undefined ? row.answers : seat.schema.joined(row, row.asked.length === 1 ? [row.answers] : row.answers));
      }
      if (!isLate) copy.run();
    }
    this.schedule();
  }

  /** Reads the answers to an action into its rows; returns the position after them. */
  _readAnswers(view, at, index) {
    const { isGlobal, kind, labels, name, selected } = this.frames.actions[index];
    const schema = this.game._schema, isContinuous = kind === "continuous";
    for (const row of this.sent) {
      const place = row === undefined ? -1 : row.asked.indexOf(index);
      if (place < 0) continue;
      const { actors } = row.acting[index], limit = selected < 0 ? labels.length : row.counts[selected];
      let answer;
      if (isGlobal) {
        answer = labels[readChoice(view, at, limit, name)];
        at += 8;
      } else {
        const chosen = [];
        for (let i = 0; i < actors.length; i++, at += isContinuous ? 4 * limit : 8) {
          chosen.push(isContinuous ? readNumbers(view, at, limit, name) : readChoice(view, at, limit, name));
        }
        answer = schema.decode(row, index, chosen);
      }
      if (row.asked.length === 1) row.answers = answer;
      else row.answers[place] = answer;
    }
    return at + (-at & 7);
  }

  /** Sends the observations of the current request. */
  answer() {
    const { out, game, stepping, sent } = this, { numAgents, metrics } = game;
    const rows = [], ends = [], failures = [];
    for (let c = 0; c < stepping.length; c++) {
      const copy = stepping[c], { seats } = copy;
      for (let a = 0; a < numAgents; a++) {
        const row = seats[a].resolve === undefined ? undefined : seats[a].row;
        rows.push(row);
        sent[copy.index * numAgents + a] = row;
      }
      if (!copy.ends.length) continue;
      if (numAgents > 1) copy.ends.sort((one, other) => one.agent - other.agent); // stable
      for (const end of copy.ends) {
        const row = c * numAgents + end.agent;
        end.row = row;
        ends.push(end);
        if (end.failure !== undefined) failures.push({ row, ...end.failure });
      }
      copy.ends.length = 0;
    }
    out.begin();
    const counts = out.take(16);
    out.int64(counts, ends.length);
    let at = out.take(stepping.length);
    for (let c = 0; c < stepping.length; c++) {
      const copy = stepping[c];
      out.bytes[at + c] = copy.flags + (copy.isPlaying ? 0 : WAITS);
      copy.isTold = !copy.isPlaying;
      copy.isNew = false;
      copy.flags = 0;
    }
    at = out.take(rows.length);
    for (let r = 0; r < rows.length; r++) out.bytes[at + r] = rows[r] === undefined ? 0 : 1;
    at = out.take(8 * rows.length) >> 3;
    for (let r = 0; r < rows.length; r++) if (rows[r] !== undefined) out.doubles[at + r] = rows[r].score;
    if (metrics.length) this._writeMetrics(rows);
    this.frames.write(out, rows);
    if (ends.length) this._writeEnds(ends);
    if (failures.length) {
      const before = out.size;
      out.text(JSON.stringify(failures));
      out.int64(counts + 8, out.size - before);
    }
    this.isStepping = false;
    this.send(out.message(STEP));
  }

  _writeEnds(ends) {
    const { out } = this;
    let at = out.take(8 * ends.length);
    for (const { row } of ends) out.int64(at, row), at += 8;
    at = out.take(8 * ends.length);
    for (const { flags } of ends) out.int64(at, flags), at += 8;
    at = out.take(8 * ends.length) >> 3;
    for (const { shown } of ends) out.doubles[at++] = shown === undefined ? 0 : shown.score;
    const rows = ends.map(({ shown }) => shown);
    if (this.game.metrics.length) this._writeMetrics(rows);
    this.frames.write(out, rows.map(row => (row === undefined || row.isBlank ? undefined : row)));
    for (const row of rows) if (row !== undefined) this.spare.push(row);
  }

  _writeMetrics(rows) {
    const { length } = this.game.metrics;
    let at = this.out.take(8 * length * rows.length) >> 3;
    for (let m = 0; m < length; m++) {
      for (const row of rows) this.out.doubles[at++] = row?.metrics?.[m] ?? NaN;
    }
  }

  /** Ends the episodes of copies whose games wait for something that cannot happen. */
  failStuck() {
    for (const copy of this.stepping) {
      if (!copy.isBusy) continue;
      copy.finish(true, withoutStack("play neither asks an agent nor returns, and waits for nothing that can happen: await agent.act, or return"));
    }
  }
}

function readChoice(view, at, limit, name) {
  const choice = view.getUint32(at, true);
  if (view.getUint32(at + 4, true) || choice >= limit) {
    throw new Error(`a choice for ${name} must be 0 to ${limit - 1}, got ${view.getBigInt64(at, true)}`);
  }
  return choice;
}

function readNumbers(view, at, count, name) {
  const found = [];
  for (let i = 0; i < count; i++) {
    const number = view.getFloat32(at + 4 * i, true);
    if (!Number.isFinite(number)) throw new Error(`the numbers for ${name} must be finite, got ${number}`);
    found.push(number);
  }
  return found;
}

// ------------------------------------------------------------------ connection

/** Serves a game in Node until the host closes the connection; never returns. */
export async function serve(game) {
  if (!(game instanceof Game)) fail(`serve expects a Game, got ${shown(game)}: write serve(new Game({...}))`);
  const { process } = globalThis, address = process?.env?.ENTITY_ENV_ADDRESS;
  if (address === undefined) {
    throw withoutStack("ENTITY_ENV_ADDRESS is not set: entity_env starts this program, for example with entity-env check \"exec:node game.mjs\"");
  }
  if (process.getBuiltinModule === undefined) throw new Error(`serve needs Node 20.16 or newer, got ${process.version}`);
  new Connection(game, address, process).open();
}

/** Exchanges messages with the host, over sockets of Node. */
class Connection {
  constructor(game, address, process) {
    Object.assign(this, { address, process });
    this.received = new Uint8Array(1 << 16);
    this.size = 0; // bytes that have arrived
    this.number = 0; // of the current message
    this.kind = 0;
    this.isConnected = false;
    this.isPaused = false;
    this.isEnded = false; // nothing else arrives
    this.isScheduled = false;
    this.isIdle = false; // only the game can keep the program alive
    this.isOver = false;
    this.server = new Server(game, bytes => this.send(bytes), () => this.schedule());
    this.flushed = () => (this.isPaused || this.isEnded) && this.isReady && this.resume();
    this.settled = () => this.answer();
  }

  get isReady() {
    return !this.server.isStepping && !this.output.writableLength;
  }

  open() {
    const { process } = this;
    const lastTry = process.env.ENTITY_ENV_TOKEN === undefined ? Date.now() + CONNECT_MS : 0;
    process.on("uncaughtException", error => this.fail(error, "an error outside of play"));
    process.on("unhandledRejection", error => this.fail(error, "a promise of the game failed, and no code awaits it"));
    process.on("beforeExit", () => this.server.numBusy && this.guard(() => {
      this.server.failStuck();
      this.schedule();
    }));
    this.connect(lastTry);
  }

  /** Connects to the host; until a time, again if it does not listen yet. */
  connect(lastTry) {
    const { process } = this;
    const connect = () => {
      this.isConnected = true;
      this.guard(() => this.server.hello(process.env.ENTITY_ENV_TOKEN ?? ""));
    };
    try {
      this.input = this._input(connect);
    } catch (error) {
      return this.exit(1, `cannot use the address ${shown(this.address)}: ${error.message}`);
    }
    for (const stream of new Set([this.input, this.output])) {
      stream.on("error", error => {
        if (this.isConnected) this.lost();
        else if (Date.now() < lastTry) setTimeout(() => this.connect(lastTry), RETRY_MS);
        else this.lost(`cannot connect to ${shown(this.address)}: ${error.message}`);
      });
    }
    this.output.on("close", () => this.isConnected && this.lost());
    this.input.on("end", () => {
      this.isEnded = true;
      if (this.isReady) this.guard(() => this.readMessages());
    });
    this.input.on("data", part => this.guard(() => this.read(part)));
    if (this.address === "stdio") connect();
  }

  _input(connect) {
    const { address, process } = this, net = process.getBuiltinModule("node:net");
    if (address === "stdio") {
      const { Readable } = process.getBuiltinModule("node:stream");
      Object.defineProperty(process, "stdin", { configurable: true, value: Readable.from([]) });
      this.output = new net.Socket({ fd: 1, readable: false, writable: true });
      return new net.Socket({ fd: 0, readable: true, writable: false });
    }
    const [, path, host, port] = /^unix:(.+)$|^tcp:(.+):(\d{1,5})$/s.exec(address) ?? [];
    if (path === undefined && host === undefined) throw new Error("expected stdio, unix:PATH or tcp:HOST:PORT");
    const socket = path === undefined ? net.connect({ host, port: Number(port) }, connect) : net.connect({ path }, connect);
    if (path === undefined) socket.setNoDelay(true);
    return (this.output = socket);
  }

  send(bytes) {
    this.output.write(bytes, this.flushed);
  }

  /** Answers once all games have run as far as they can. */
  schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.settled);
  }

  answer() {
    this.isScheduled = false;
    const { server } = this, isIdle = server.numBusy > 0;
    if (this.isOver || !server.isStepping) return;
    if (isIdle !== this.isIdle) {
      this.isIdle = isIdle;
      for (const stream of [this.input, this.output]) isIdle ? stream.unref() : stream.ref();
    }
    if (!isIdle) this.guard(() => server.answer());
  }

  /** Adds bytes that have arrived; reads all messages that are complete and can be answered now. */
  read(part) {
    if (this.isOver) return;
    if (this.size + part.length > this.received.length) this._grow(this.size + part.length);
    this.received.set(part, this.size);
    this.size += part.length;
    this.readMessages();
  }

  resume() {
    this.isPaused = false;
    this.input.resume();
    this.guard(() => this.readMessages());
  }

  readMessages() {
    const { server } = this;
    let at = 0;
    while (!this.isOver && this.size - at >= 16) {
      const view = new DataView(this.received.buffer, at, 16), kind = (this.kind = view.getUint32(4, true));
      if (view.getUint32(0, true) !== MAGIC) throw new Error(`expected the bytes "ENE1", got ${shown(String.fromCharCode(...this.received.subarray(at, at + 4)))}`);
      const length = view.getUint32(8, true) + 2 ** 32 * view.getUint32(12, true);
      if (kind === CLOSE && !length) return this.exit(0);
      if (!this.isReady) {
        this.isPaused = true;
        this.input.pause();
        break;
      }
      server.requireDue(kind, length);
      if (this.size - at < 16 + length) {
        if (16 + length > this.received.length) this._grow(16 + length);
        break;
      }
      this.number++;
      server.receive(kind, this.received.subarray(at + 16, at + 16 + length));
      at += 16 + length;
    }
    if (at) this.received.copyWithin(0, at, this.size);
    this.size -= at;
    if (!this.isEnded || !this.isReady || this.isOver) return;
    if (this.size) throw new Error(`the connection ended after ${this.size} bytes of the next message`);
    this.exit(0);
  }

  _grow(size) {
    const larger = new Uint8Array(size + (size >> 1));
    larger.set(this.received.subarray(0, this.size));
    this.received = larger;
  }

  guard(call) {
    try {
      call();
    } catch (error) {
      this.fail(error);
    }
  }

  /** Reports why the program cannot continue, and ends it. */
  fail(error, what) {
    if (this.isOver) return;
    const { message, traceback } = failureOf(error), { server } = this, isRefusal = error?.isRefusal === true;
    const name = KINDS[this.kind], place = this.isConnected ? `message ${this.number}${name ? ` (${name})` : ""}: ` : "";
    const reason = what !== undefined ? `${what}: ${message}` : isRefusal ? error.message : `${place}${error.message}`;
    try {
      if (this.isConnected && !this.output.writableLength) server.sendJson(ERROR, { message: reason, traceback });
    } catch { /* it is too long */ }
    this.exit(1, isRefusal ? "" : what === undefined ? reason : `${reason}\n${traceback}`);
  }

  /** Ends the program, because nothing can be sent; with a reason if it never could. */
  lost(reason = "") {
    this.exit(reason ? 1 : 0, reason);
    this.process.exit();
  }

  /** Ends the program, after what was sent has arrived. */
  exit(code, reason = "") {
    if (this.isOver) return;
    const { process } = this, leave = () => process.exit();
    this.isOver = true;
    process.exitCode = code;
    if (reason) process.stderr.write(`entity-env: ${reason}\n`);
    if (!this.output?.writableLength) return leave();
    this.output.end(leave);
    setTimeout(leave, EXIT_TIMEOUT_MS);
  }
}
