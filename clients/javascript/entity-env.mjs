/**
 * Games in JavaScript that entity_env plays, trains and records.
 *
 * A game is an async function that asks an agent: `const move = await agent.act(obs, "Move")`.
 * `serve(game)` runs any number of copies of it in one Node process, and exchanges one message per
 * step with entity_env (version 1 of its protocol). Everything but `serve` also runs in a browser.
 */

const HELLO = 1, START = 2, READY = 3, RESET = 4, ACT = 5, STEP = 6, ERROR = 7, CLOSE = 8;
const TERMINATED = 1, TRUNCATED = 2, FAILED = 4, NEW = 8;
const MAX_BYTES = 256 * 2 ** 20;
const MAGIC = 0x31454e45; // "ENE1", little-endian

/** An action with one label for the whole observation. */
export const globalCategorical = (...labels) => ({ kind: "global_categorical", labels });
/** An action with one label for each actor. */
export const categorical = (...labels) => ({ kind: "categorical", labels });
/** An action that selects an entity of a type for each actor. */
export const selectEntity = type => ({ kind: "select_entity", selects: type, labels: [] });
/** An action with one number per label for each actor: `continuous({ force: [-1, 1] })`. */
export const continuous = bounds => ({
  kind: "continuous",
  labels: Object.keys(bounds),
  low: Object.values(bounds).map(([low]) => low),
  high: Object.values(bounds).map(([, high]) => high),
});

/**
 * A game.
 *
 * `entities` has the features of each type, and `actions` the actions, by name. `play(agent,
 * { seed, ...settings })` plays one episode; with several agents its first argument is a list.
 * `settings` has defaults; `check(settings)` returns the reason why they cannot be played.
 */
export class Game {
  constructor({
    name, play, entities, actions, globalFeatures = [], numAgents = 1, settings = {},
    metrics = [], version = undefined, check = () => undefined,
  }) {
    Object.assign(this, {
      name, play, entities, actions, globalFeatures, numAgents, settings, metrics, version, check,
    });
  }
}

/** An observation: entities, actors, masks, and the score so far. Calls can be chained. */
export class Obs {
  constructor(score = 0) {
    this.score = score;
    this.types = []; // of each group of entities
    this.groups = []; // the entities of each group
    this.roles = undefined; // by group, the actions of its actors: [] = all
    this.features = undefined;
    this.masks = undefined;
    this.hidden = undefined;
    this.metrics = undefined;
  }

  /** Adds entities of a type: objects with its features. */
  entities(type, entities) {
    this.types.push(type);
    this.groups.push(entities);
    return this;
  }

  /** Adds entities that perform the given actions, or all that are asked. */
  actors(type, entities, ...actions) {
    (this.roles ??= [])[this.groups.length] = actions;
    return this.entities(type, entities);
  }

  globals(features) {
    this.features = features;
    return this;
  }

  /** Allows only some choices: one flag per label; for actors, one list of flags per actor. */
  mask(action, flags) {
    (this.masks ??= {})[action] = flags;
    return this;
  }

  /** Hides the entities of a type whose flag is false from the policy. */
  visible(type, flags) {
    (this.hidden ??= {})[type] = flags;
    return this;
  }

  metric(name, value) {
    (this.metrics ??= {})[name] = value;
    return this;
  }

  _entities(type) {
    const found = this.groups.filter((_, g) => this.types[g] === type);
    return found.length === 1 ? found[0] : found.flatMap(group => [...group]);
  }

  /** Types and positions, among those of their type, of the actors of an action. */
  _actors(action, types) {
    const counts = new Map(), found = [];
    for (let g = 0; g < this.groups.length; g++) {
      const type = this.types[g], entities = this.groups[g], actions = this.roles?.[g];
      const first = counts.get(type) ?? 0;
      counts.set(type, first + entities.length);
      if (actions === undefined || (actions.length && !actions.includes(action))) continue;
      for (let i = 0; i < entities.length; i++) found.push([types.get(type), first + i]);
    }
    return found.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  }
}

/** SplitMix64: equal seeds give equal numbers in every language. The seed is a BigInt. */
export class Random {
  constructor(seed) {
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

  /** An integer from 0 to `limit` - 1, with `limit` at most 2^21. */
  below(limit) {
    this.draw();
    return Math.floor((this.drawnHigh * limit) / 0x100000000);
  }

  choice(items) {
    return items[this.below(items.length)];
  }

  /** A number from 0 to 1, exclusive. */
  uniform() {
    this.draw();
    return (this.drawnHigh * 0x200000 + (this.drawnLow >>> 11)) / 2 ** 53;
  }

  shuffle(items) {
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

// ------------------------------------------------------------------ copies of a game

class Agent {
  constructor(copy, run, index) {
    this._copy = copy;
    this._run = run;
    this.index = index;
    this._obs = undefined;
    this._asked = undefined;
    this._resolve = undefined;
    this._answer = undefined;
    this._score = 0;
    this._isPlaying = false;
  }

  /**
   * Asks for one or several actions, by name. Resolves to a label; for actors to a list with one
   * answer per actor: labels, selected entities or lists of numbers; or, for several actions, to a
   * list of answers. Resolves to null if the game must return.
   */
  act(obs, ...actions) {
    if (this._run !== this._copy.run) return Promise.resolve(null);
    if (this._resolve !== undefined) throw new Error("act was called before the last answer");
    this._obs = obs;
    this._asked = actions;
    this._score = obs.score;
    this._isPlaying = true;
    return new Promise(this._copy.keep[this.index]);
  }

  /** Ends the agent's episode. */
  gameOver(obs = new Obs(this._score), { truncated = false } = {}) {
    if (this._run !== this._copy.run) return;
    const flags = truncated ? TRUNCATED : TERMINATED;
    this._copy.end(this.index, flags, obs, truncated ? this._asked ?? [] : []);
    this._isPlaying = false;
  }
}

class Copy {
  constructor(server, index) {
    this.server = server;
    this.index = index;
    this.run = undefined; // identifies the current call of `play`
    this.agents = [];
    this.isPlaying = false;
    this.flags = 0;
    this.isNew = false;
    this.seedLow = this.seedHigh = 0; // halves of the next episode's seed
    this.ends = [];
    this.keep = Array.from({ length: server.game.numAgents }, (_, i) => resolve => {
      this.agents[i]._resolve = resolve;
      if (!server.isScheduled) server.changed();
    });
  }

  /** Begins a step; the seed of the next episode comes as 32-bit halves. */
  begin(seedLow, seedHigh) {
    this.flags = 0;
    this.isNew = false;
    if (this.ends.length) this.ends = [];
    this.seedLow = seedLow;
    this.seedHigh = seedHigh;
  }

  get seed() {
    return (BigInt(this.seedHigh) << 32n) | BigInt(this.seedLow);
  }

  get waits() {
    for (let i = 0; i < this.agents.length; i++) {
      if (this.agents[i]._resolve !== undefined) return true;
    }
    return false;
  }

  start(seed) {
    const { game, values } = this.server;
    const run = (this.run = {});
    this.flags |= 1;
    this.isNew = true;
    this.isPlaying = true;
    this.agents = Array.from({ length: game.numAgents }, (_, i) => new Agent(this, run, i));
    let played;
    try {
      played = game.play(game.numAgents === 1 ? this.agents[0] : this.agents, { seed, ...values });
    } catch (error) {
      played = Promise.reject(error);
    }
    Promise.resolve(played).then(
      () => this.returned(run, undefined),
      error => this.returned(run, error instanceof Error ? error : new Error(String(error))),
    );
  }

  /** Lets a running game return: its calls of `act` resolve to null. */
  leave() {
    const waiting = this.agents;
    this.run = undefined;
    this.agents = [];
    this.isPlaying = false;
    for (const agent of waiting) agent._resolve?.(null);
  }

  returned(run, error) {
    if (run !== this.run) return;
    if (error === undefined && this.agents.some(agent => agent._isPlaying)) {
      error = new Error("play returned, but an agent has not ended its episode: call gameOver");
    }
    if (error !== undefined) this.fail(error);
    const wasNew = this.isNew;
    this.leave();
    if (!wasNew && !this.server.hold) this.start(this.seed);
    this.server.changed();
  }

  fail(error) {
    const playing = this.agents.filter(agent => agent._isPlaying);
    for (const agent of playing.length ? playing : this.agents.slice(0, 1)) {
      this.end(agent.index, FAILED, new Obs(), [], {
        message: `${error.name}: ${error.message}`,
        traceback: error.stack ?? "",
      });
    }
  }

  end(agent, flags, obs, asked, failure) {
    this.ends.push({ agent, flags: flags + (this.isNew ? NEW : 0), obs, asked, failure });
  }
}

// ------------------------------------------------------------------ frames

/**
 * Writes a message: 16 bytes for its header, then arrays, each at a multiple of 8 bytes. The memory
 * is used again for the next message, which the host asks for only when it has the last one.
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
}

const GLOBAL = [0]; // the only actor of a global action

/** A function that writes the features of an entity, compiled where the page allows it. */
function putter(features) {
  const lines = features.map((name, i) => `floats[at + ${i}] = entity[${JSON.stringify(name)}];`);
  try {
    return new Function("floats", "at", "entity", lines.join("\n"));
  } catch {
    return (floats, at, entity) => {
      for (let f = 0; f < features.length; f++) floats[at + f] = entity[features[f]];
    };
  }
}

/** Writes observations of a game as frames. */
class FrameWriter {
  constructor(game) {
    this.types = Object.entries(game.entities).map(([name, features]) => ({ name, features }));
    this.puts = this.types.map(({ features }) => putter(features));
    this.typeIndex = new Map(this.types.map(({ name }, i) => [name, i]));
    this.actions = Object.entries(game.actions).map(([name, action]) => ({ name, ...action }));
    const isGlobal = this.actions.some(({ kind }) => kind === "global_categorical");
    this.hasGlobals = isGlobal || game.globalFeatures.length > 0;
    this.globals = game.globalFeatures;
    this.numTypes = this.types.length + this.hasGlobals;
    this.numSlots = 2 * this.numTypes + 3 * this.actions.length;
    this.numLengths = this.numTypes;
    for (const action of this.actions) {
      action.row = this.numLengths;
      this.numLengths += action.kind === "select_entity" ? 2 : 1;
    }
  }

  /** Writes observations, with the actions that each asks; undefined = an empty row. */
  write(out, rows, asked) {
    const num = rows.length, flags = out.take(this.numSlots);
    const matrix = out.take(8 * this.numLengths * num);
    const length = (line, row, value) => {
      out.ints[(matrix >> 2) + 2 * (line * num + row)] = value;
    };
    let slot = 0;
    for (let t = 0; t < this.types.length; t++, slot += 2) {
      this._writeType(out, rows, t, flags + slot, length);
    }
    if (this.hasGlobals) {
      this._writeGlobals(out, rows, flags + slot, length);
      slot += 2;
    }
    for (const action of this.actions) {
      this._writeAction(out, rows, asked, action, flags + slot, length);
      slot += 3;
    }
  }

  _writeType(out, rows, line, flags, length) {
    const { name, features } = this.types[line], put = this.puts[line];
    const width = features.length;
    let total = 0, isHidden = false;
    for (let r = 0; r < rows.length; r++) {
      const obs = rows[r];
      if (obs === undefined) continue;
      const types = obs.types;
      let count = 0;
      for (let g = 0; g < types.length; g++) {
        if (types[g] === name) count += obs.groups[g].length;
      }
      length(line, r, count);
      total += count;
      isHidden ||= obs.hidden !== undefined && obs.hidden[name] !== undefined;
    }
    if (width) {
      out.bytes[flags] = 1;
      let at = out.take(4 * width * total) >> 2;
      const floats = out.floats;
      for (let r = 0; r < rows.length; r++) {
        if (rows[r] === undefined) continue;
        const { types, groups } = rows[r];
        for (let g = 0; g < types.length; g++) {
          if (types[g] !== name) continue;
          const entities = groups[g];
          for (let i = 0; i < entities.length; i++, at += width) put(floats, at, entities[i]);
        }
      }
    }
    if (isHidden) {
      out.bytes[flags + 1] = 1;
      let at = out.take(total);
      for (const row of rows) {
        if (row === undefined) continue;
        const shown = row.hidden?.[name], count = row._entities(name).length;
        for (let i = 0; i < count; i++) out.bytes[at++] = shown === undefined || shown[i] ? 1 : 0;
      }
    }
  }

  _writeGlobals(out, rows, flags, length) {
    const width = this.globals.length;
    let total = 0;
    for (let r = 0; r < rows.length; r++) {
      if (rows[r] === undefined) continue;
      length(this.types.length, r, 1);
      total++;
    }
    if (!width) return;
    out.bytes[flags] = 1;
    let at = out.take(4 * width * total) >> 2;
    for (const row of rows) {
      if (row === undefined) continue;
      for (const feature of this.globals) out.floats[at++] = row.features[feature];
    }
  }

  _writeAction(out, rows, asked, action, flags, length) {
    const isGlobal = action.kind === "global_categorical", actors = Array(rows.length);
    let total = 0, numFlags = 0, numActees = 0, hasMask = false;
    for (let r = 0; r < rows.length; r++) {
      const obs = rows[r];
      if (obs === undefined || !asked[r].includes(action.name)) continue;
      const own = (actors[r] = isGlobal ? GLOBAL : this._acting(obs, action));
      const width = action.selects === undefined
        ? action.labels.length : obs._entities(action.selects).length;
      length(action.row, r, own.length);
      total += own.length;
      numFlags += own.length * width;
      if (action.selects !== undefined && own.length) {
        length(action.row + 1, r, width);
        numActees += width;
      }
      hasMask ||= obs.masks !== undefined && obs.masks[action.name] !== undefined;
    }
    if (!isGlobal) {
      out.bytes[flags] = 1;
      let at = out.take(8 * total) >> 2;
      for (let r = 0; r < rows.length; r++) {
        for (const [type, i] of actors[r] ?? []) {
          out.ints[at] = this._first(rows[r], type) + i;
          at += 2;
        }
      }
    }
    if (hasMask && action.kind !== "continuous") {
      out.bytes[flags + 1] = 1;
      this._writeMask(out, rows, action, actors, out.take(numFlags));
    }
    if (action.selects !== undefined) {
      out.bytes[flags + 2] = 1;
      let at = out.take(8 * numActees) >> 2;
      for (let r = 0; r < rows.length; r++) {
        if (!actors[r]?.length) continue;
        const first = this._first(rows[r], this.typeIndex.get(action.selects));
        const count = rows[r]._entities(action.selects).length;
        for (let i = 0; i < count; i++, at += 2) out.ints[at] = first + i;
      }
    }
  }

  _writeMask(out, rows, action, actors, at) {
    for (let r = 0; r < rows.length; r++) {
      if (actors[r] === undefined) continue;
      const obs = rows[r], mask = obs.masks?.[action.name];
      const width = action.selects === undefined
        ? action.labels.length : obs._entities(action.selects).length;
      const isGlobal = action.kind === "global_categorical";
      const own = mask === undefined || isGlobal ? [mask] : this._allowed(obs, action, mask);
      for (let a = 0; a < actors[r].length; a++) {
        const allowed = isGlobal ? mask : mask === undefined ? undefined : own[a];
        for (let i = 0; i < width; i++) {
          out.bytes[at++] = allowed === undefined || allowed[i] ? 1 : 0;
        }
      }
    }
  }

  /** Actors of an action, without those of a select action that have no target. */
  _acting(obs, action) {
    const actors = obs._actors(action.name, this.typeIndex), mask = obs.masks?.[action.name];
    if (action.selects === undefined) return actors;
    if (!obs._entities(action.selects).length) return [];
    return mask === undefined ? actors : actors.filter((_, i) => mask[i].some(Boolean));
  }

  _allowed(obs, action, mask) {
    return action.selects === undefined ? mask : mask.filter(flags => flags.some(Boolean));
  }

  /** Index of the first entity of a type in an observation. */
  _first(obs, type) {
    let first = 0;
    obs.groups.forEach((entities, g) => {
      if (this.typeIndex.get(obs.types[g]) < type) first += entities.length;
    });
    return first;
  }
}

// ------------------------------------------------------------------ server

class Server {
  constructor(game, connection) {
    this.game = game;
    this.connection = connection;
    this.frames = new FrameWriter(game);
    this.out = new Writer();
    this.copies = [];
    this.values = { ...game.settings };
    this.hold = false;
    this.stepping = undefined; // copies of the current request
    this.readAnswer = undefined;
    this.isScheduled = false;
  }

  /** A copy waits or has returned: answers once all have, after the games have run. */
  changed() {
    if (this.stepping === undefined || this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      if (this.stepping?.every(copy => copy.waits || !copy.isPlaying)) this.answer();
    });
  }

  sendJson(kind, data) {
    this.out.begin();
    this.writeText(JSON.stringify(data));
    this.connection.write(this.out.message(kind));
  }

  /** Adds a text, padded with spaces. */
  writeText(text) {
    const bytes = new TextEncoder().encode(text), at = this.out.take(bytes.length);
    this.out.bytes.fill(32, at, this.out.size);
    this.out.bytes.set(bytes, at);
  }

  hello(token) {
    const { name, version, settings } = this.game;
    this.sendJson(HELLO, { protocol: 1, name, version, token, settings });
  }

  /** Answers a message from the host; throws an `Error` if it is invalid. */
  receive(kind, payload) {
    if (this.stepping !== undefined) throw new Error("a message arrived before the last answer");
    if (kind === START && !this.copies.length) {
      this.begin(JSON.parse(new TextDecoder().decode(payload)));
    } else if (kind === RESET && this.copies.length) {
      this.reset(new DataView(payload.buffer, payload.byteOffset, payload.byteLength));
    } else if (kind === ACT && this.copies.length) {
      this.act(payload);
    } else {
      throw new Error(`message ${kind} is not due now`);
    }
  }

  begin({ num_envs, hold, settings }) {
    const { game } = this;
    if (!Number.isInteger(num_envs) || num_envs < 1 || num_envs > 2 ** 24) {
      throw new Error(`num_envs must be 1 or more, got ${num_envs}`);
    }
    for (const name of Object.keys(this.values)) this.values[name] = settings[name] ?? this.values[name];
    const problem = game.check(this.values);
    if (problem !== undefined) throw new Error(problem);
    this.hold = hold === true;
    this.copies = Array.from({ length: num_envs }, (_, i) => new Copy(this, i));
    this.sendJson(READY, {
      num_agents: game.numAgents,
      spaces: {
        global_features: game.globalFeatures,
        entities: this.frames.types,
        actions: this.frames.actions.map(({ row, ...action }) => action),
      },
      metrics: game.metrics,
    });
  }

  reset(view) {
    const count = view.byteLength >= 8 ? view.getUint32(0, true) : 0;
    if (!count || view.byteLength !== 8 + 16 * count) throw new Error("RESET has a wrong size");
    const ids = Array.from({ length: count }, (_, i) => view.getInt32(8 + 8 * i, true));
    if (ids.some(id => !(id in this.copies))) throw new Error("RESET names an unknown copy");
    const stepping = (this.stepping = ids.map(id => this.copies[id]));
    stepping.forEach((copy, i) => {
      const at = 8 + 8 * (count + i);
      copy.begin(view.getUint32(at, true), view.getUint32(at + 4, true));
    });
    for (const copy of stepping) {
      copy.leave();
      copy.start(copy.seed);
    }
    this.changed();
  }

  act(payload) {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const { copies } = this, { numAgents } = this.game;
    if (view.byteLength < 8 * copies.length) throw new Error("ACT has a wrong size");
    const waiting = [];
    for (const copy of copies) {
      for (const agent of copy.agents) if (agent._resolve !== undefined) waiting.push(agent);
    }
    let at = 8 * copies.length;
    for (const action of this.frames.actions) {
      for (let i = 0; i < waiting.length; i++) {
        const agent = waiting[i], asked = agent._asked.indexOf(action.name);
        if (asked < 0) continue;
        at = this.read(view, at, action, agent._obs);
        if (agent._asked.length === 1) agent._answer = this.readAnswer;
        else (agent._answer ??= [])[asked] = this.readAnswer;
      }
      at += -at & 7;
    }
    if (at !== view.byteLength) throw new Error("ACT has a wrong size");
    this.stepping = copies;
    for (let i = 0; i < copies.length; i++) {
      copies[i].begin(view.getUint32(8 * i, true), view.getUint32(8 * i + 4, true));
    }
    for (const copy of copies) if (!copy.isPlaying) copy.start(copy.seed);
    for (let i = 0; i < waiting.length; i++) {
      const agent = waiting[i], resolve = agent._resolve, answer = agent._answer;
      agent._resolve = agent._answer = undefined;
      resolve(answer);
    }
    this.changed();
  }

  /** Reads an agent's answer to an action into `readAnswer`; returns the position after it. */
  read(view, at, action, obs) {
    const { kind, labels } = action;
    const numbers = count => {
      if (at + 8 * count > view.byteLength) throw new Error("ACT has a wrong size");
      const found = Array.from({ length: count }, (_, i) => view.getInt32(at + 8 * i, true));
      at += 8 * count;
      return found;
    };
    if (kind === "global_categorical") {
      const label = view.byteLength >= at + 8 ? labels[view.getInt32(at, true)] : undefined;
      if (label === undefined) throw new Error(`ACT has an invalid choice for ${action.name}`);
      this.readAnswer = label;
      return at + 8;
    }
    const actors = this.frames._acting(obs, action);
    if (kind === "continuous") {
      if (at + 4 * actors.length * labels.length > view.byteLength) {
        throw new Error("ACT has a wrong size");
      }
      this.readAnswer = actors.map((_, a) =>
        labels.map((_, i) => view.getFloat32(at + 4 * (a * labels.length + i), true)));
      return at + 4 * actors.length * labels.length;
    }
    const choices = action.selects === undefined ? labels : obs._entities(action.selects);
    const chosen = numbers(actors.length).map(i => choices[i]);
    if (chosen.includes(undefined)) throw new Error(`ACT has an invalid choice for ${action.name}`);
    const mask = obs.masks?.[action.name];
    if (action.selects !== undefined && mask !== undefined) {
      let next = 0;
      this.readAnswer = mask.map(flags => (flags.some(Boolean) ? chosen[next++] : null));
    } else {
      this.readAnswer = chosen;
    }
    return at;
  }

  answer() {
    const { out, game } = this, { numAgents, metrics } = game, copies = this.stepping;
    this.stepping = undefined;
    const rows = Array(copies.length * numAgents), asked = Array(rows.length);
    const ends = [], failures = [];
    for (let c = 0, r = 0; c < copies.length; c++) {
      const copy = copies[c];
      for (let a = 0; a < numAgents; a++, r++) {
        const agent = copy.agents[a];
        if (agent === undefined || agent._resolve === undefined) continue;
        rows[r] = agent._obs;
        asked[r] = agent._asked;
      }
      for (const end of copy.ends) {
        end.row = c * numAgents + end.agent;
        ends.push(end);
        if (end.failure !== undefined) failures.push({ row: end.row, ...end.failure });
      }
    }
    ends.sort((one, other) => one.row - other.row); // stable: two ends of a row keep their order
    out.begin();
    const counts = out.take(16);
    out.int64(counts, ends.length);
    let at = out.take(copies.length);
    for (const copy of copies) out.bytes[at++] = copy.flags + (copy.isPlaying ? 0 : 2);
    at = out.take(rows.length);
    for (const row of rows) out.bytes[at++] = row === undefined ? 0 : 1;
    at = out.take(8 * rows.length) >> 3;
    for (const row of rows) out.doubles[at++] = row === undefined ? 0 : row.score;
    this.writeMetrics(metrics, rows);
    this.frames.write(out, rows, asked);
    if (ends.length) this.writeEnds(ends, metrics);
    if (failures.length) {
      const before = out.size;
      this.writeText(JSON.stringify(failures));
      out.int64(counts + 8, out.size - before);
    }
    this.connection.write(out.message(STEP));
  }

  writeEnds(ends, metrics) {
    const { out } = this;
    let at = out.take(8 * ends.length);
    for (const { row } of ends) out.int64(at, row), at += 8;
    at = out.take(8 * ends.length);
    for (const { flags } of ends) out.int64(at, flags), at += 8;
    at = out.take(8 * ends.length) >> 3;
    for (const { obs } of ends) out.doubles[at++] = obs.score;
    this.writeMetrics(metrics, ends.map(end => end.obs));
    const rows = ends.map(({ flags, obs }) => {
      const isBlank = !obs.groups.length && obs.features === undefined;
      return flags & FAILED || isBlank ? undefined : obs;
    });
    this.frames.write(out, rows, ends.map(end => end.asked));
  }

  writeMetrics(metrics, shown) {
    let at = this.out.take(8 * metrics.length * shown.length) >> 3;
    for (const name of metrics) {
      for (const obs of shown) this.out.doubles[at++] = obs?.metrics?.[name] ?? NaN;
    }
  }
}

/** Serves a game in Node until the host closes the connection; never returns. */
export async function serve(game) {
  const { default: net } = await import("node:net");
  const { default: process } = await import("node:process");
  const address = process.env.ENTITY_ENV_ADDRESS;
  if (address === undefined) {
    throw new Error("ENTITY_ENV_ADDRESS is not set: entity_env starts this program");
  }
  let connection;
  if (address === "stdio") {
    connection = new net.Socket({ fd: 0, readable: true, writable: true });
    process.stdout.write = process.stderr.write.bind(process.stderr); // games may print
  } else if (address.startsWith("unix:")) {
    connection = net.connect(address.slice("unix:".length));
  } else {
    const [, host, port] = address.split(":");
    connection = net.connect(Number(port), host);
    connection.setNoDelay(true);
  }
  const server = new Server(game, connection);
  let received = new Uint8Array(0), size = 0;
  const fail = error => {
    server.sendJson(ERROR, { message: error.message, traceback: error.stack ?? "" });
    connection.end(() => process.exit(1));
  };
  connection.on("connect", () => server.hello(process.env.ENTITY_ENV_TOKEN ?? ""));
  if (address === "stdio") server.hello("");
  connection.on("close", () => process.exit(0));
  connection.on("end", () => process.exit(0));
  connection.on("error", () => process.exit(0)); // the host is gone
  connection.on("data", part => {
    if (size + part.length > received.length) {
      const larger = new Uint8Array(2 * (size + part.length));
      larger.set(received.subarray(0, size));
      received = larger;
    }
    received.set(part, size);
    size += part.length;
    try {
      while (size >= 16) {
        const view = new DataView(received.buffer, 0, 16);
        const kind = view.getUint32(4, true), length = view.getUint32(8, true);
        if (view.getUint32(0, true) !== MAGIC || length > MAX_BYTES || view.getUint32(12, true)) {
          throw new Error("the host sent something else than a message");
        }
        if (size < 16 + length) return;
        if (kind === CLOSE) process.exit(0);
        server.receive(kind, received.subarray(16, 16 + length));
        received.copyWithin(0, 16 + length, size);
        size -= 16 + length;
      }
    } catch (error) {
      fail(error);
    }
  });
}
