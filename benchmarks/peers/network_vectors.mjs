// Compares `network.mjs` with the decisions of numpy that `network_vectors.py` recorded.
//
//   node network_vectors.mjs PATH_OF_NETWORK_MJS
//
// Reads one JSON object per line, {agent, vectors, seconds}, where `agent` is the file in base64, and
// writes one per line: what `compare` returns, or {error}.

// The largest differences of a network from `vectors`, and the milliseconds per decision, measured
// for `seconds`. Values and numbers of continuous actions above 1 are compared relatively.
export function compare(network, vectors, seconds = 0) {
  const found = {probabilities: 0, values: 0, numbers: 0, attention: 0, states: 0, other_choices: 0, choices: 0};
  const add = (kind, got, wanted, scale = 1) => {
    const difference = Math.abs(got - wanted) / Math.max(1, scale);
    found[kind] = difference <= found[kind] ? found[kind] : difference;  // also if it is not a number
  };
  // Numbers in lists of lists; lists of other lengths are infinitely different.
  const addAll = (kind, got, wanted, scale = 0) => {
    if (!Array.isArray(wanted)) return add(kind, got, wanted, scale && Math.abs(wanted));
    if (got?.length !== wanted.length) return add(kind, Infinity, 0);
    wanted.forEach((each, i) => addAll(kind, got[i], each, scale));
  };
  for (const {observation, temperature, probabilities, numbers, value, attention, after, kept} of vectors) {
    const thoughts = network.think(observation, {temperature, attention: true});
    addAll("states", thoughts.state, after);
    const chosen = network.choose(observation, {temperature, greedy: true});
    if (Object.keys(chosen).length !== Object.keys(probabilities).length + Object.keys(numbers).length) {
      add("probabilities", Infinity, 0);
    }
    addAll("states", observation.state, kept);
    for (const [name, rows] of Object.entries(probabilities)) {
      addAll("probabilities", thoughts.probabilities[name], rows);
      const made = observation.chosen?.[name];
      rows.forEach((row, i) => {
        found.choices++;
        if (made ? chosen[name]?.[i] !== made[i] : row[chosen[name]?.[i]] < Math.max(...row) - 2e-5) found.other_choices++;
      });
    }
    for (const [name, rows] of Object.entries(numbers)) addAll("numbers", chosen[name], rows, 1);
    if ((value === null) !== (thoughts.value === null)) add("values", Infinity, 0);
    add("values", thoughts.value, value, Math.abs(value));
    // Further layers are those of a separate value network.
    const layers = (attention ?? []).map(layer => layer.flat(2));
    addAll("attention", thoughts.attention.slice(0, layers.length), layers);
    if (!layers.length && thoughts.attention.length) add("attention", Infinity, 0);
  }
  const start = performance.now();
  let rounds = 0;
  for (; performance.now() - start < 1000 * seconds; rounds++) {
    for (const {observation} of vectors) network.think(observation);
  }
  return {...found, milliseconds: rounds ? (performance.now() - start) / rounds / vectors.length : null};
}

if (globalThis.process?.argv[1] === decodeURI(new URL(import.meta.url).pathname)) {
  const {createInterface} = await import("node:readline");
  const {pathToFileURL} = await import("node:url");
  const {readAgent} = await import(pathToFileURL(process.argv[2]));
  for await (const line of createInterface({input: process.stdin})) {
    const {agent, vectors, seconds} = JSON.parse(line);
    let answer;
    try {
      answer = compare(readAgent(Buffer.from(agent, "base64")), vectors, seconds);
    } catch (error) {
      answer = {error: error.message};
    }
    // JSON has no infinity.
    console.log(JSON.stringify(answer, (_, each) => typeof each === "number" && !isFinite(each) ? 1e300 : each));
  }
}
