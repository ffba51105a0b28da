// The network of an `.agent` file in plain JavaScript, for pages, workers and Node.
//
//   import {readAgent} from "./network.mjs";
//   const network = readAgent(await (await fetch("snake.agent")).arrayBuffer());
//   const {probabilities, value} = network.think(observation);
//   const {Move: [choice]} = network.choose(observation, {greedy: network.greedy});
//
// `network.greedy` is true if it plays better by its most probable actions, as measured at the end of its training, false if it
// plays better or as well by sampling, and undefined if that is unknown.
// The file lists operations of `rogue_net/operations.py`. Results are within 1e-5 of numpy's.
// An observation has
//
//   features  {TYPE: [[number, ...], ...]}: a row per entity, or all rows in one typed array
//   globals   [number, ...]: global features
//   visible   {TYPE: [boolean, ...]}: optional, false hides an entity from the policy
//   actions   {NAME: {actors: [index, ...], actees: [index, ...], mask: [[boolean, ...], ...]}}:
//             requested actions. Only select actions have `actees`. Global actions need no actors.
//             `mask` is optional: a row per actor, true = allowed. If it depends on the action directly
//             before, an actor has a list with a row per choice of that action.
//   chosen    {NAME: choices}: optional, choices already made, as `choose` returns them. Actions that
//             depend on others (`given`) read these; `think` takes the most probable for those that lack.
//   state     what the network remembers: an array of `network.stateSize` numbers, 0 at the start of
//             an episode. `choose` replaces them by the state after the observation, which `think`
//             returns, if there is an actor. Without the array, nothing is remembered.
//   past      for `think`, optional: earlier observations, whose first `state` is before. `think` then
//             returns only `without`: what it would return after all of them, after all of them but
//             from a state of 0, without the first of them, without the second, and so on.
//
// Indices count all entities, in the order of the types in `network.spaces.entities`, which ends with relations. A relation has
// `references`, the types of two entities; its first two features are their places among the entities of these types, from 0.

const {fround} = Math;

// As in numpy: larger features count as the first, and larger results are refused, since `choose` could not use them.
const LARGEST_INPUT = 1e18, LARGEST_OUTPUT = 1e30;
const limited = (x, most = LARGEST_INPUT) => Math.max(-most, Math.min(most, x));
const fail = message => { throw new Error(message); };
const damaged = what => fail(`the agent file is damaged: ${what}; copy it or export it again`);
const unknown = what => fail(`the agent file has the unknown ${what}: use the network.mjs of its release`);
const own = (object, name) => object && Object.hasOwn(object, name) ? object[name] : undefined;
const named = (items, name) => items.find(each => each.name === name) ??
  fail(`expected one of ${items.map(each => each.name)}, got ${name}`);
const product = numbers => numbers.reduce((a, b) => a * b, 1);
const rowsOf = (count, make) => Array.from({length: count}, (_, row) => make(row));

// Refuses options that `call` does not read.
function withKnown(options, where, call, more) {
  const read = new Set();
  const found = call(new Proxy(options, {get: (_, name) => (read.add(name), own(options, name) ?? own(more, name))}));
  for (const name in options) if (!read.has(name)) unknown(`option ${name} of ${where}`);
  return found;
}

// Reads the content of an `.agent` file, an ArrayBuffer or typed array.
export function readAgent(content) {
  const bytes = new Uint8Array(content.buffer ?? content, content.byteOffset ?? 0, content.byteLength), view = viewOf(bytes);
  if (textOf(bytes.subarray(0, 16)) !== "entity_env agent") {
    fail('expected an agent file: create one with "entity-env export"');
  }
  if (bytes.length < 60) damaged("its checksum does not match");
  if (view.getUint32(16, true) !== 1) unknown(`version ${view.getUint32(16, true)}`);
  if (sha256(bytes.subarray(52)).some((word, i) => word !== view.getInt32(20 + 4 * i))) damaged("its checksum does not match");
  const [description, rest] = jsonAndRest(bytes.subarray(52)), [header, data] = jsonAndRest(rest);
  return networkOf(description, (name, length) => {
    const entry = own(header, name) ?? damaged(`nothing computes ${name}`), numbers = data.slice(...entry.data_offsets);
    length ??= product(entry.shape);
    if (entry.dtype !== "F32" || numbers.length !== 4 * length) {
      damaged(`expected ${name} of ${length} F32, got ${JSON.stringify(entry)}`);
    }
    const found = new Float64Array(new Float32Array(numbers.buffer));
    const most = /(^|[.])(count|mean|squares_sum|std)$/.test(name) ? Number.MAX_VALUE : LARGEST_INPUT;
    return found.every(x => Math.abs(x) <= most) ? found : damaged(`numbers that are not finite, or too large, in ${name}`);
  });
}

const textOf = bytes => new TextDecoder().decode(bytes);
const viewOf = bytes => new DataView(bytes.buffer, bytes.byteOffset);

// JSON after its length in 8 bytes, and the bytes after it.
function jsonAndRest(bytes) {
  const stop = 8 + Number(viewOf(bytes).getBigUint64(0, true));
  return [JSON.parse(textOf(bytes.subarray(8, stop))), bytes.subarray(stop)];
}

// The checksum: `crypto.subtle` needs https.
function sha256(bytes) {
  const primes = [], words = new Int32Array(64);
  for (let n = 2; primes.length < 64; n++) if (primes.every(prime => n % prime)) primes.push(n);
  const [hash, constants] = [Math.sqrt, Math.cbrt].map(
    root => Int32Array.from(primes, prime => root(prime) % 1 * 2 ** 32 | 0));
  const padded = new Uint8Array(64 * Math.ceil((bytes.length + 9) / 64)), view = viewOf(padded);
  padded.set(bytes);
  padded[bytes.length] = 128;
  view.setBigUint64(padded.length - 8, 8n * BigInt(bytes.length));
  const turn = (x, n) => x >>> n | x << 32 - n, turns = (x, a, b, c) => turn(x, a) ^ turn(x, b) ^ turn(x, c);
  for (let start = 0; start < padded.length; start += 64) {
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      const x = words[i - 15], y = words[i - 2];
      words[i] = i < 16 ? view.getInt32(start + 4 * i) :
        words[i - 16] + words[i - 7] + (turn(x, 7) ^ turn(x, 18) ^ x >>> 3) + (turn(y, 17) ^ turn(y, 19) ^ y >>> 10);
      const one = h + turns(e, 6, 11, 25) + (e & f ^ ~e & g) + constants[i] + words[i];
      [h, g, f, e, d, c, b, a] = [g, f, e, d + one | 0, c, b, a, one + turns(a, 2, 13, 22) + (a & b ^ a & c ^ b & c) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { hash[i] += word; });
  }
  return hash.subarray(0, 8);
}

// Results of the network, unless one cannot be used.
function usable(numbers, what) {
  for (const x of numbers) {
    if (!(Math.abs(x) < LARGEST_OUTPUT)) fail(`the network computes ${x} for ${what}: its parameters are too large for this observation, train it again`);
  }
  return numbers;
}

// Rows of numbers in one array, kept for the next observation. In float32: sums overflow where those of numpy do.
class Matrix {
  constructor(width, more) {
    Object.assign(this, {width, rows: 0, data: new Float32Array(width), ...more});
  }

  resize(rows) {
    if (rows * this.width > this.data.length) this.data = new Float32Array(2 * rows * this.width);
    this.rows = rows;
    return this.data;
  }
}

// y = x @ weight.T + bias, four columns at once.
function multiply({width, rows, data}, weight, bias, y) {
  const found = y.resize(rows), columns = y.width;
  for (let row = 0; row < rows; row++) {
    const start = row * width, stop = start + width, to = row * columns;
    let column = 0;
    for (; column + 3 < columns; column += 4) {
      let i = column * width, j = i + width, k = j + width, l = k + width;
      let a = bias[column], b = bias[column + 1], c = bias[column + 2], d = bias[column + 3];
      for (let at = start; at < stop; at++) {
        const x = data[at];
        a += x * weight[i++];
        b += x * weight[j++];
        c += x * weight[k++];
        d += x * weight[l++];
      }
      found[to + column] = a;
      found[to + column + 1] = b;
      found[to + column + 2] = c;
      found[to + column + 3] = d;
    }
    for (; column < columns; column++) {
      let sum = bias[column];
      for (let at = start, from = column * width; at < stop; at++) sum += data[at] * weight[from++];
      found[to + column] = sum;
    }
  }
}

// The probability that a normal number is below -6, -6 + 1 / STEPS, ..., 6.
const STEPS = 512, BELOW = new Float64Array(12 * STEPS + 1);
for (let i = 1; i < BELOW.length; i++) {
  BELOW[i] = BELOW[i - 1] + Math.exp(-(((i - 0.5) / STEPS - 6) ** 2) / 2) / STEPS / Math.sqrt(2 * Math.PI);
}

const ACTIVATIONS = {
  relu: x => Math.max(x, 0),
  tanh: Math.tanh,
  sigmoid: x => 1 / (1 + Math.exp(-x)),
  gelu(x) {
    const place = (x + 6) * STEPS, i = place | 0;
    return x <= -6 ? 0 : x >= 6 ? x : x * (BELOW[i] + (BELOW[i + 1] - BELOW[i]) * (place - i));
  },
};

function linear(activation, x, weight, bias, y) {
  const activate = activation && (own(ACTIVATIONS, activation) ?? unknown(`activation ${activation}`));
  return [y, () => {
    multiply(x, weight, bias, y);
    for (let i = 0; activate && i < y.rows * y.width; i++) y.data[i] = activate(y.data[i]);
  }];
}

// Of `n` logits, in place.
function softmax(x, n) {
  let top = -Infinity, sum = 0;
  for (let i = 0; i < n; i++) top = Math.max(top, x[i]);
  for (let i = 0; i < n; i++) sum += x[i] = x[i] === -Infinity ? 0 : Math.exp(x[i] - top);
  for (let i = 0; i < n; i++) x[i] /= sum || 1;
}

// A function of a number and its column: standardized and clipped.
function standardizer(tensor, layer = "") {
  const [count] = tensor(`${layer}count`), mean = tensor(`${layer}mean`);
  const deviation = tensor(`${layer}squares_sum`).map(sum => Math.sqrt(sum / (count - 1)) || 1);
  return (x, i) => limited(count > 1 ? (x - mean[i]) / deviation[i] : x, 5);
}

// By kind, a function of the options and of the matrices to read. It returns the matrix to write, and a
// function that computes it.
const OPERATIONS = {
  normalize({tensor, start = 0}, x) {
    const y = new Matrix(x.width - start, {sides: x.sides}), standardize = standardizer(tensor), {width} = y;
    return [y, () => {
      const data = y.resize(x.rows);
      for (let i = 0; i < x.rows * width; i++) {
        data[i] = standardize(x.data[i + start * (Math.floor(i / width) + 1)], i % width);
      }
    }];
  },

  linear({activation, tensor}, x) {
    const bias = tensor("bias"), weight = tensor("weight", bias.length * x.width);
    return linear(activation, x, weight, bias, new Matrix(bias.length));
  },

  layer_norm({tensor}, x) {
    const {width} = x, weight = tensor("weight", width), bias = tensor("bias", width), y = new Matrix(width);
    return [y, () => {
      const from = x.data, to = y.resize(x.rows);
      for (let start = 0; start < x.rows * width; start += width) {
        let sum = 0, squares = 0;
        for (let i = 0; i < width; i++) sum += from[start + i];
        const mean = fround(sum) / width;
        for (let i = 0; i < width; i++) squares += (from[start + i] - mean) ** 2;
        const all = fround(squares), scale = 1 / Math.sqrt(all / width + 1e-5) + (all - all);  // NaN if it overflows
        for (let i = 0; i < width; i++) to[start + i] = (from[start + i] - mean) * scale * weight[i] + bias[i];
      }
    }];
  },

  add: (_, x, y) => [x, () => {
    for (let i = 0; i < x.rows * x.width; i++) x.data[i] += y.data[i];
  }],

  repeat({tensor}, x) {
    const embedding = tensor("embedding"), y = new Matrix(embedding.length);
    return [y, () => gather(embedding, y, rowsOf(x.rows, () => 0))];
  },

  concatenate({entities, state}, ...parts) {
    const y = new Matrix(parts[0].width), types = entities?.map(name => state.types.get(name));
    return [y, () => {
      join(parts, y, parts.reduce((rows, part) => rows + part.rows, 0));
      if (!types) return;
      state.numEntities = types.reduce((start, type) => (type.start = start) + type.rows, 0);
      state.visible = types.flatMap(({visible, rows}) => rowsOf(rows, row => visible?.[row] ?? true));
    }];
  },

  join(_, ...parts) {
    const y = new Matrix(parts.reduce((width, part) => width + part.width, 0));
    return [y, () => {
      const data = y.resize(parts[0].rows);
      let at = 0;
      for (let row = 0; row < y.rows; row++) {
        for (const {width, data: from} of parts) {
          data.set(from.subarray(row * width, (row + 1) * width), at);
          at += width;
        }
      }
    }];
  },

  positions,

  // Visible entities do not attend to hidden ones. With `pairs`, to the other ends of their relations, which have keys and values.
  attend({n_head: heads, state}, query, key, value, {keys, values, pairs} = {}, gate) {
    const {width} = query, size = width / heads, y = new Matrix(width), scores = new Matrix(1), stride = pairs ? width : size;
    return [y, () => {
      const [q, k, v, more, added, gates] = [query, key, value, keys, values, gate].map(each => each?.data);
      const n = query.rows, {visible} = state, found = y.resize(n).fill(0), kept = [], all = rowsOf(n, row => row);
      for (let i = 0; i < n * heads; i++) {
        const row = i % n, offset = Math.floor(i / n) * size, start = row * width + offset, links = pairs ? pairs.of[row] : all;
        const place = pairs ? offset : row * n * size, weights = scores.resize(links.length);
        for (let l = 0; l < links.length; l++) {
          const j = pairs ? pairs.rows[links[l] ^ 1] : l, from = j * width + offset, at = place + links[l] * stride;
          let sum = 0;
          for (let c = 0; c < size; c++) sum += q[start + c] * (more ? k[from + c] + more[at + c] : k[from + c]);
          weights[l] = !visible[row] || visible[j] ? sum / Math.sqrt(size) : -Infinity;
        }
        softmax(weights, links.length);
        for (let l = 0; l < links.length; l++) {
          const j = pairs ? pairs.rows[links[l] ^ 1] : l, from = j * width + offset, at = place + links[l] * stride;
          for (let c = 0; c < size; c++) found[start + c] += weights[l] * (added ? v[from + c] + added[at + c] * (gates ? gates[j * size + c] : 1) : v[from + c]);
        }
        kept.push(...weights.subarray(0, n).map(each => visible[row] && each));
      }
      if (!pairs) state.attention?.push?.(kept);
    }];
  },

  relate: (options, query, key, value, keys, values, pairs) => OPERATIONS.attend(options, query, key, value, {keys, values, pairs}),

  // Rows of both entities of all relations. For each entity, the rows of the others, and of the keys.
  pairs({references, state}) {
    const y = {};
    state.shift = +state.types.has("__global__");
    return [y, () => {
      y.rows = [];
      y.of = rowsOf(state.numEntities, () => []);
      for (const [name, ...both] of references) {
        const {rows, width, data, visible} = state.types.get(name);
        for (let row = 0; row < rows; row++) {
          const ends = both.map((type, column) => {
            const {rows, start} = state.types.get(type), index = data[row * width + column];
            if (index !== index >>> 0 || index >= rows) fail(`expected ${type} of ${name} from 0 to ${rows - 1}, got ${index}`);
            return start + index;
          });
          for (const end of ends) {
            if (!state.visible[end] || (visible?.[row] ?? true)) y.of[end].push(y.rows.length);
            y.rows.push(end);
          }
        }
      }
    }];
  },

  ends(_, x, pairs) {
    const y = new Matrix(2 * x.width), ends = new Matrix(x.width);
    return [y, () => {
      gather(x.data, ends, pairs.rows);
      join([ends], y, ends.rows / 2);
    }];
  },

  pool: ({of, state}, x) => pool(of, state, x),
  mean: (_, x) => pool("mean", {}, x),

  spread({state}, x) {
    const y = new Matrix(x.width);
    return [y, () => gather(x.data, y, rowsOf(state.numEntities, () => 0))];
  },

  convolve({stride, activation, tensor}, x) {
    const bias = tensor("bias"), weight = tensor("weight");
    const windows = new Matrix(weight.length / bias.length), area = windows.width / x.width, kernel = Math.sqrt(area);
    const sides = x.sides.map(side => Math.floor((side - kernel) / stride) + 1);
    const [y, compute] = linear(activation, windows, weight, bias, new Matrix(bias.length, {sides}));
    return [y, () => {
      const data = windows.resize(product(sides));
      for (let i = 0; i < windows.rows * windows.width; i++) {
        const window = Math.floor(i / windows.width), pixel = i % area, channel = Math.floor(i / area) % x.width;
        const row = Math.floor(window / sides[1]) * stride + Math.floor(pixel / kernel);
        const column = window % sides[1] * stride + pixel % kernel;
        data[i] = x.data[(row * x.sides[1] + column) * x.width + channel];
      }
      compute();
    }];
  },

  flatten(_, x) {
    const area = product(x.sides), y = new Matrix(area * x.width);
    return [y, () => {
      const data = y.resize(1);
      for (let i = 0; i < y.width; i++) data[i] = x.data[i % area * x.width + Math.floor(i / area)];
    }];
  },

  actors: ({action, state}, x) => rowsOfAction(action, "actors", state, x),
  actees: ({action, state}, x) => rowsOfAction(action, "actees", state, x),

  choice({action, state}, distribution, x) {
    const {kind, low, high} = state.spaceOf(action), isSelect = kind === "select_entity";
    const y = new Matrix(isSelect ? x.width : distribution.width);
    return [y, () => {
      const chosen = state.requests[action] ? state.decide(action) : [];
      if (isSelect) return gather(x.data, y, chosen.map(i => state.requests[action].actees[i]));
      const data = y.resize(chosen.length).fill(0);
      chosen.forEach((each, row) => {
        if (low) each.forEach((x, i) => {
          const half = fround(high[i]) / 2 - fround(low[i]) / 2;
          data[row * y.width + i] = half > 0 ? limited((x - fround(low[i])) / half - 1, 1) : 0;
        });
        else data[row * y.width + each] = 1;
      });
    }];
  },

  compare({action}, actors, actees) {
    const y = new Matrix(0);
    return [y, () => {
      y.width = actees.rows;
      multiply(actors, actees.data, new Float64Array(y.width), y);
      for (let i = 0; i < y.rows * y.width; i++) y.data[i] /= Math.sqrt(actors.width);
    }];
  },

  categorical: ({action, state}, x) => [x, () => {
    const request = state.requests[action];
    if (!request) return;
    state.probabilities[action] = rowsOf(x.rows, row => {
      let allowed = request.mask?.[row];
      if (isNested(allowed)) allowed = allowed[state.decide(request.before)[row]];
      if (allowed && !allowed.some(Boolean)) fail(`expected a choice of ${action} after ${request.before}, got none`);
      usable(x.data.subarray(row * x.width, (row + 1) * x.width), action);
      const logits = rowsOf(x.width, i => allowed?.[i] ?? true ? x.data[row * x.width + i] / state.temperature : -Infinity);
      softmax(logits, x.width);
      return logits;
    });
  }],

  // In units of the action.
  gaussian({action, low, high, tensor, state}, x) {
    const logs = tensor("log_std", x.width), halves = low.map((bound, i) => high[i] / 2 - bound / 2);
    if (![...low, ...high].every(bound => Number.isFinite(fround(bound)))) damaged(`no bounds of ${action}`);
    return [x, () => {
      if (!state.requests[action]) return;
      usable(x.data.subarray(0, x.rows * x.width), action);
      state.means[action] = rowsOf(x.rows, row => halves.map((half, i) => low[i] / 2 + high[i] / 2 + half * x.data[row * x.width + i]));
      state.deviations[action] = halves.map((half, i) => half * Math.exp(Math.min(logs[i], 60)) * Math.sqrt(state.temperature));
    }];
  },

  // A gated recurrent unit; `start` is the place of its numbers in the state of the network.
  recur({start, tensor, state}, x) {
    const width = x.width / 3, weight = tensor("weight", x.width * width), none = new Float64Array(x.width);
    const y = new Matrix(width), before = new Matrix(width), products = new Matrix(x.width);
    state.size += width;
    return [y, () => {
      const now = y.resize(1);
      before.resize(1).set(state.memory.subarray(start, start + width));
      multiply(before, weight, none, products);
      for (let i = 0; i < width; i++) {
        const [reset, write] = [i, i + width].map(gate => ACTIVATIONS.sigmoid(x.data[gate] + products.data[gate]));
        const candidate = Math.tanh(x.data[i + 2 * width] + reset * products.data[i + 2 * width]);
        now[i] = before.data[i] + write * (candidate - before.data[i]);
      }
      state.memory.set(now.subarray(0, width), start);
    }];
  },

  scale({tensor}, x) {
    const [mean] = tensor("mean"), [std] = tensor("std"), y = new Matrix(1);
    return [y, () => { y.resize(1)[0] = x.data[0] * std + mean; }];
  },
};

function join(parts, y, rows) {
  const data = y.resize(rows);
  let at = 0;
  for (const part of parts) {
    const numbers = part.data.subarray(0, part.rows * part.width);
    data.set(numbers, at);
    at += numbers.length;
  }
}

function gather(from, y, indices) {
  const {width} = y, data = y.resize(indices.length);
  for (let i = 0; i < y.rows; i++) data.set(from.subarray(indices[i] * width, (indices[i] + 1) * width), i * width);
}

// The actor of a global action is the last entity, and rows of relations follow. An MLP or CNN has one row for all actors.
function rowsOfAction(action, who, state, x) {
  const y = new Matrix(x.width);
  return [y, () => {
    const request = state.requests[action] ?? {[who]: []}, {numEntities, shift = 0} = state;
    const rows = request[who] = request[who].map(
      index => state.isVector ? 0 : (index >= numEntities - shift ? index + shift : index) ?? x.rows - 1);
    if (rows.some(row => row !== row >>> 0 || row >= x.rows)) {
      fail(`expected ${who} of ${action} from 0 to ${x.rows - 1}, got ${rows}`);
    }
    gather(x.data, y, rows);
  }];
}

function pool(of, state, x) {
  const [isMean, isMax] = {mean: [1, 0], max: [0, 1], meanmax: [1, 1]}[of] ?? unknown(`pooling ${of}`);
  const {width} = x, y = new Matrix(width * (isMean + isMax));
  return [y, () => {
    const data = y.resize(1);
    for (let i = 0; i < width; i++) {
      let sum = 0, top = -Infinity, count = 0;
      for (let row = 0; row < x.rows; row++) {
        if (!(state.visible?.[row] ?? true)) continue;
        sum += x.data[row * width + i];
        top = Math.max(top, x.data[row * width + i]);
        count++;
      }
      if (isMean) data[i] = sum / (count || 1);
      if (isMax) data[y.width - width + i] = count && top;
    }
  }];
}

// In float32.
const norm = numbers => fround(Math.sqrt(numbers.reduce((sum, x) => fround(sum + fround(x * x)), 0)));

// A key and a value for every pair of entities, from tables of buckets of relative positions. Rounds to
// float32: a position between two buckets must get that of numpy.
function positions({features, options, tensor}, ...types) {
  return withKnown(options, "positions", ({
    extent, position_features, scale, radial, distance, interpolate, rotation_vec_features, rotation_angle_feature,
    per_entity_values, per_entity_projections, value_relpos_projection, key_relpos_projection, value_gate,
    enable_negative_distance_weight_bug, exclude_entities,
  }) => {
    const sizes = radial || distance ? extent : extent.map(most => 2 * most + 1), numBuckets = product(sizes);
    const width = tensor("keys.weight").length / numBuckets, perScale = fround(1 / scale);
    if (!(scale >= 1e-30)) damaged("invalid options of positions");
    const standardize = (key_relpos_projection || value_relpos_projection) && standardizer(tensor, "relpos_norm.");
    const [keys, values] = [["key", key_relpos_projection], ["value", value_relpos_projection]].map(([part, isProjected]) => {
      const layers = isProjected ? per_entity_projections ? types.map(({name}) => `.${name}`) : [""] : [];
      const projections = layers.map(layer => ["weight", "bias"].map(name => tensor(`${part[0]}proj${layer}.${name}`)));
      return {projections, table: tensor(`${part}s.weight`), found: new Matrix(width)};
    });
    const remainder = (x, by) => x % by < 0 ? fround(x % by + by) : x % by;
    const split = (one, two, weight) => interpolate ? [[one, weight], [two, fround(1 - weight)]] : [[one, 1]];

    function bucketsOf(relative, direction) {
      let found = [[0, 1]];
      if (radial) {
        const turn = fround(2 * Math.PI), [x, y] = relative, [count] = extent;
        const angle = fround(fround(fround(Math.atan2(y, x)) - direction) + turn);
        const place = remainder(fround(fround(angle / turn) * count), count), one = Math.floor(place) % count;
        const two = (one + 1) % count;
        found = split(one, two, remainder(fround(two - place), 1));
      } else if (!distance) {
        let cell = 0, stride = 1;
        relative.forEach((x, axis) => {
          const most = extent[axis], place = limited(fround(x * perScale), most);
          cell = fround(cell + fround(fround(place + most) * stride));
          stride *= sizes[axis];
        });
        found = [[cell + 2 ** 52 - 2 ** 52, 1]];  // rounded, half to even
      }
      if (!distance) return found;
      const place = limited(fround(norm(relative) * perScale)), last = extent.at(-1) - 1;
      const one = Math.floor(Math.min(place, last)), two = Math.min(one + 1, last), weight = fround(two - place);
      const rings = split(one, two, enable_negative_distance_weight_bug ? weight : Math.max(weight, 0));
      return rings.flatMap(([ring, a]) => found.map(([bucket, b]) => [bucket + ring * (radial ? extent[0] : 1), fround(a * b)]));
    }

    return [{keys: keys.found, values: values.found}, () => {
      const entities = types.flatMap(({name, rows, width, data}, kind) => rowsOf(rows, row => {
        const numbers = data.subarray(row * width), number = feature => numbers[features[name].indexOf(feature)];
        const [x, y] = (rotation_vec_features ?? []).map(number);
        const direction = fround(Math.atan2(y, x)) || number(rotation_angle_feature) || 0;
        return {kind, direction, place: position_features.map(number)};
      }));
      for (const {found} of [keys, values]) found.resize(entities.length ** 2).fill(0);
      entities.forEach(({kind, direction, place}, i) => entities.forEach((other, j) => {
        const relative = place.map((x, axis) => fround(x - other.place[axis])), buckets = bucketsOf(relative, direction);
        const start = (i * entities.length + j) * width;
        for (const {table, projections, found: {data}} of [keys, values]) {
          const shift = per_entity_values && table === values.table ? other.kind * numBuckets : 0;
          for (const [bucket, weight] of buckets) {
            for (let c = 0; c < width; c++) data[start + c] += fround(weight * table[(bucket + shift) * width + c]);
          }
          for (const [weight, bias] of per_entity_projections && kind ? [] : projections) {
            const triple = [...relative, norm(relative)].map(standardize);
            for (let c = 0; c < width; c++) {
              data[start + c] += triple.reduce((sum, x, axis) => sum + x * weight[3 * c + axis], bias[c]);
            }
          }
        }
      }));
    }];
  });
}

// Copies rows to the left of a matrix, in float32.
function copyRows(rows, {name, features}, y) {
  const {length} = features, isFlat = ArrayBuffer.isView(rows), data = y.resize(rows.length / (isFlat ? length : 1));
  for (let row = 0; row < y.rows; row++) {
    const given = Array.from(isFlat ? rows.subarray(row * length, (row + 1) * length) : rows[row], fround);
    if (given.length !== length || !given.every(isFinite)) {
      fail(`expected ${length} numbers of ${name} (${features}), got ${given}`);
    }
    data.set(given.map(x => limited(x)), row * y.width);
  }
}

// The first buffers, and a function that fills them: a row per entity, with its own and the global
// features. An MLP or CNN reads one vector, and a picture.
function inputsOf({entities, global_features, actions}, net, state) {
  const types = [...entities], shared = state.isVector ? [] : global_features, buffers = new Map(), parts = [];
  const globals = new Matrix(global_features.length);
  if (!state.isVector && actions.some(({kind}) => kind === "global_categorical")) {
    types.push({name: "__global__", features: []});
  }
  for (const {name, features, shape, references} of types) {
    const y = new Matrix(features.length + shared.length, {name, features: references ? [] : [...features, ...shared]});
    state.types.set(name, y);
    buffers.set(`features/${name}`, y);
    if ("layers" in net && shape) {
      const [height, across, width] = shape;
      buffers.set("picture", {width, sides: [height, across], rows: height * across, get data() { return y.data; }});
    } else {
      parts.push(y);
    }
  }
  parts.push(globals);
  const translate = net.translation && translator(net.translation, state.types);
  const vector = new Matrix(parts.reduce((width, part) => width + part.width, 0));

  return [buffers.set("features", vector), observation => {
    copyRows([observation.globals ?? []], {name: "the observation", features: global_features}, globals);
    for (const type of types) {
      const {name, features} = type, y = state.types.get(name);
      copyRows(name === "__global__" ? [[]] : own(observation.features, name) ?? [], type, y);
      y.visible = own(observation.visible, name);
      for (let row = 0; shared.length && row < y.rows; row++) y.data.set(globals.data, row * y.width + features.length);
      if (state.isVector && y.rows > 1) fail(`expected at most one ${name}, got ${y.rows}`);
      if (state.isVector && !y.rows) y.resize(1).fill(0);
    }
    if (state.isVector) join(parts, vector, 1);
    translate?.();
  }];
}

// Moves positions so that the reference entity is at the origin, in float32.
function translator(options, types) {
  return withKnown(options, "translation", ({
    reference_entity, position_features, rotation_vec_features, rotation_angle_feature, add_dist_feature,
  }) => {
    const reference = types.get(reference_entity), moved = [];
    const columnsOf = ({features}, names) => names.map(name => features.indexOf(name));
    for (const y of types.values()) {
      const columns = columnsOf(y, position_features);
      if (y === reference || columns.includes(-1)) continue;
      moved.push([y, columns]);
      if (add_dist_feature) y.width++;
    }

    return () => {
      const numbers = names => columnsOf(reference, names).map(column => reference.data[column]);
      const origin = numbers(position_features), [angle = 0] = numbers([rotation_angle_feature]);
      const [x, y] = numbers(rotation_vec_features ?? []), cosine = x ?? fround(Math.cos(angle)), sine = y ?? fround(Math.sin(angle));
      for (const [{rows, width, data}, columns] of moved) {
        if (rows && reference.rows !== 1) fail(`expected exactly one ${reference_entity}, got ${reference.rows}`);
        for (let start = 0; start < rows * width; start += width) {
          let place = columns.map((column, axis) => fround(data[start + column] - origin[axis]));
          if (place.length === 2) {
            const [a, b] = place;
            place = [fround(fround(a * cosine) + fround(b * sine)), fround(fround(b * cosine) - fround(a * sine))];
          }
          place = place.map(x => limited(x));
          columns.forEach((column, axis) => { data[start + column] = place[axis]; });
          if (add_dist_feature) data[start + width - 1] = norm(place);
        }
      }
    };
  });
}

// Whether an actor's mask has a row per choice of the action before.
const isNested = row => row?.[0]?.length >= 0;

// The requested actions, by name.
function requestsOf(observation, actions) {
  const requests = Object.create(null);
  for (const [name, asked] of Object.entries(observation.actions ?? {})) {
    const {kind, labels, given = []} = named(actions, name);
    const {actors, actees, mask} = kind === "global_categorical" ? {...asked, actors: [undefined]} : asked;
    const {length} = kind === "select_entity" ? actees : labels;
    requests[name] = {actors, actees, mask, length, given, before: given.at(-1)};
  }
  for (const name in requests) {
    const {actors, mask, length, given, before} = requests[name], count = requests[before]?.length;
    const other = given.find(each => requests[each]?.actors.length !== actors.length);
    if (other !== undefined) fail(`expected ${actors.length} actors of ${other}, on which ${name} depends, got ${requests[other]?.actors.length ?? 0}`);
    const isWrong = row => isNested(row) ? row.length !== count || row.some(each => each.length !== length) :
      row.length !== length || !row.some(Boolean);
    if (mask ? mask.length !== actors.length || mask.some(isWrong) : actors.length && !length) {
      fail(`expected ${length} choices per actor of ${name}, one allowed, got ${JSON.stringify(mask)}`);
    }
  }
  return requests;
}

function memoryOf(given, size) {
  const memory = new Float32Array(given ?? size);
  if (memory.length !== size || !memory.every(Number.isFinite)) fail(`expected a state of ${size} numbers, got ${given}`);
  return memory.map(x => limited(x));
}

function networkOf({spaces, net, operations, greedy}, tensor) {
  if (!operations) damaged("it lists no operations");
  const {entities, actions} = spaces;
  const state = {types: new Map(), isVector: "hidden" in net, size: 0, spaceOf: name => named(actions, name), decide};
  const [buffers, read] = inputsOf(spaces, net, state);
  const buffer = name => buffers.get(name) ?? damaged(`nothing computes ${name}`);
  const recurs = [];
  let hasValue = true;
  const steps = operations.map(([kind, inputs, output, layer, options]) => {
    const make = own(OPERATIONS, kind) ?? unknown(`operation ${kind}`), ownTensor = (name, length) => tensor(layer + name, length);
    const [y, step] = withKnown(options, kind, known => make(known, ...inputs.map(buffer)), {state, tensor: ownTensor});
    buffers.set(output, y);
    if (kind === "recur") recurs.push(step);
    // Zeros are an untrained value.
    if (layer.endsWith("heads.value.")) hasValue = ["weight", "bias"].some(name => ownTensor(name).some(Boolean));
    return step;
  });
  const predicted = buffer("value");
  for (const {name} of actions) buffer(`action/${name}`);

  // {NAME: rows} per actor: `probabilities` of choices, or `means` of numbers with `deviations`. `value` is
  // null if the file has none; `state` is that after the observation. `attention`, on request, has weights by head, query and key of every layer.
  function think({past, ...observation}, {temperature = 1, attention = false, greedy = true, random} = {}) {
    if (past) {
      return {without: statesWithoutEach(past, observation.state).map(memory => think({...observation, state: memory}, {temperature}))};
    }
    if (!(temperature >= 1e-6)) fail(`expected a temperature from 1e-6, got ${temperature}`);
    for (const name in observation.features) named(entities, name);
    const [probabilities, means, deviations] = rowsOf(3, () => Object.create(null)), requests = requestsOf(observation, actions);
    const chosen = Object.assign(Object.create(null), observation.chosen);
    Object.assign(state, {requests, temperature, probabilities, means, deviations, chosen, greedy, random, attention: attention && []});
    read(observation);
    state.memory = memoryOf(observation.state, state.size);
    for (const step of steps) step();
    const value = hasValue ? predicted.data[0] : null;
    if (!random) usable([value], "the value");
    return {probabilities, means, deviations, attention: state.attention, value, state: [...usable(state.memory, "its memory")]};
  }

  // The gates of the last observation stay in their buffers, so other states can follow it.
  function statesWithoutEach(past, before) {
    let states = [memoryOf(before, state.size), memoryOf(null, state.size)];
    state.requests = {}; // a separate value network remembers after the actions
    for (const earlier of past) {
      const [all] = states;
      read(earlier);
      state.memory = all.slice();
      for (const step of steps.slice(0, steps.indexOf(recurs.at(-1)))) step();
      states = states.map(memory => {
        state.memory = memory.slice();
        for (const step of recurs) step();
        return state.memory;
      });
      states.push(all);
    }
    return states;
  }

  // The choices of an action's actors, in units of the action. Makes them unless they were made.
  function decide(name) {
    const {probabilities, means, deviations, greedy, random, chosen} = state, rows = probabilities[name] ?? means[name];
    const isMade = (row, made) => probabilities[name] ? Number.isInteger(made) && row[made] >= 0 : row.every((_, i) => Number.isFinite(made?.[i]));
    if (!rows) damaged(`nothing computes ${name}`);
    if (chosen[name] && (chosen[name].length !== rows.length || !rows.every((row, i) => isMade(row, chosen[name][i])))) {
      fail(`expected choices of ${rows.length} actors of ${name}, got ${JSON.stringify(chosen[name])}`);
    }
    return chosen[name] ??= probabilities[name] ? rows.map(row => {
      let rest = random?.();
      // Up to rounding, as in Python: equal entities have equal probabilities.
      const least = Math.max(...row) - 1e-5;
      const index = greedy ? -1 : row.findIndex(each => (rest -= each) < 0);
      return index < 0 ? row.findIndex(each => each >= least) : index;
    }) : rows.map(row => row.map((mean, i) => {
      const {low, high} = state.spaceOf(name);
      const normal = greedy ? 0 : Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      const number = mean + deviations[name][i] * normal;
      return number > low[i] ? Math.min(high[i], number) : low[i];
    }));
  }

  // A choice per actor, {NAME: choices}: the index of a label or actee, or numbers.
  function choose(observation, {greedy = false, temperature = 1, random = Math.random} = {}) {
    const {probabilities, means, state: after} = think(observation, {temperature, greedy, random});
    const found = {...probabilities, ...means};
    if (observation.state && Object.values(found).some(rows => rows.length)) Object.assign(observation.state, after);
    for (const name in found) found[name] = decide(name);
    return found;
  }

  return {spaces, think, choose, stateSize: state.size, greedy};
}
