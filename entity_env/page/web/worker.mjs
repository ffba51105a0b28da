// The worker of a game's page: Python (Pyodide), the game's files, and the networks of its agents.
//
// Gets one message {config} and then the messages of `PageWorker`; sends [event, JSON].

import { readAgent } from "./network.mjs";

const storeMs = 1000;
// What a game may use of the browser: the language, time, text and random numbers. Objects that reach
// a server, keep data, or start programs that have all of this again are not in the list, and neither
// is what browsers will add.
const allowed = new Set(`
  AggregateError Array ArrayBuffer AsyncDisposableStack Atomics BigInt BigInt64Array BigUint64Array Boolean
  DataView Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array Float64Array
  Function Infinity Int16Array Int32Array Int8Array Intl Iterator JSON Map Math NaN Number Object Promise Proxy
  RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol SyntaxError
  Temporal TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet
  WebAssembly decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval globalThis isFinite isNaN
  parseFloat parseInt undefined unescape
  DOMException Event EventTarget MessageEvent TextDecoder TextEncoder addEventListener atob btoa clearInterval
  clearTimeout console crypto dispatchEvent onmessage performance postMessage queueMicrotask
  removeEventListener self setInterval setTimeout structuredClone
`.split(/\s+/));
const inbox = [];
let wake = null;
let begin = null;
const begun = new Promise(resolve => begin = resolve);

function take(data) {
  if (data.config) {
    begin(data.config);
    return;
  }
  inbox.push(JSON.stringify(data));
  wake?.();
}

self.early.forEach(take);  // came before this file
onmessage = ({data}) => take(data);

// Resolves to the next message, or to "" after a time.
function receive(waitMs) {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(timer);
      wake = null;
      resolve(inbox.shift() ?? "");
    };
    const timer = setTimeout(done, waitMs);
    wake = done;
    if (inbox.length) done();
  });
}

const post = (name, text) => postMessage([name, text]);

async function content(url) {
  const response = await self.fetch(url).catch(() => null);
  if (!response) throw new Error(`${url} cannot be loaded, or is not the expected file`);
  if (!response.ok) throw new Error(`${url} is missing (${response.status}): copy the whole folder`);
  return new Uint8Array(await response.arrayBuffer());
}

// A function that imports files of another server if they have the expected hashes, which the
// browser then also checks of all other files that it loads from there.
async function checkedImport({hashes}, home) {
  const {fetch} = self;
  self.fetch = (url, options) => {
    const name = String(url).startsWith(home) ? String(url).slice(home.length) : "";
    return fetch(url, hashes[name] ? {...options, integrity: hashes[name]} : options);
  };
  // Pyodide does not report a refused file: load them all first.
  await Promise.all(Object.keys(hashes).map(name => content(home + name)));
  return async name => {
    const code = await content(home + name);
    return import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  };
}

// Python with this package. The first visit keeps a picture of its memory in the browser, from which
// later visits start in a fraction of the time.
async function startPython(config, home, library) {
  const load = config.hashes["pyodide.mjs"] ? await checkedImport(config, home) : name => import(home + name);
  const [{loadPyodide}, {default: createPyodideModule}] = await Promise.all(
    ["pyodide.mjs", "pyodide.asm.mjs"].map(name => load(name)));
  const options = {indexURL: home, packages: config.packages, createPyodideModule};
  if (config.wheels) options.packageBaseUrl = config.wheels;
  const store = config.packages.length ? null : await self.caches?.open("entity_env").catch(() => null);
  const key = `${home}memory-${config.version}`, kept = await store?.match(key);
  let pyodide = null;
  if (kept) {
    try {
      pyodide = await loadPyodide({...options, _loadSnapshot: await kept.arrayBuffer()});
    } catch {
      await store.delete(key);
    }
  }
  const isNew = !pyodide;
  pyodide ??= await loadPyodide({...options, _makeSnapshot: Boolean(store)});
  pyodide.FS.writeFile("/library.zip", await library);
  pyodide.runPython(`
import random, sys, zipfile
zipfile.ZipFile("/library.zip").extractall("/library")
random.seed()
if "/library" not in sys.path:
    sys.path.insert(0, "/library")
import entity_env.page.live.worker, entity_env.views.animation`);
  if (isNew && store) await keepPicture(store, key, pyodide).catch(() => {});  // every visit starts like the first one
  return pyodide;
}

// Keeps a picture of the memory, and of the others of this site only the latest.
async function keepPicture(store, key, pyodide) {
  const picture = new Response(pyodide.makeMemorySnapshot());
  const others = (await store.keys()).filter(({url}) => url != key);
  await Promise.all(others.slice(0, -1).map(each => store.delete(each)));
  // Stored later: writing it would delay the first picture of the game. Uses nothing that a game could replace.
  setTimeout(() => store.put(key, picture).catch(() => {}), storeMs);
}

// Removes from the worker what a game may not use. A copy on a prototype would still work.
function lockUp() {
  for (let level = self; level != Object.prototype; level = Object.getPrototypeOf(level)) {
    for (const name of Reflect.ownKeys(level)) {
      if (allowed.has(name) || Reflect.deleteProperty(level, name)) continue;
      const kept = self[name];
      if (kept instanceof Object) throw new Error(`this browser does not let go of ${String(name)}: use another one`);
    }
  }
}

async function load(config) {
  const at = name => new URL(name, import.meta.url).href;
  const networks = Object.entries(config.agents).filter(([, kind]) => kind == "network");
  const files = Object.entries(config.files);
  const texts = Promise.all(files.map(([, url]) => content(at(url))));
  const agents = Promise.all(networks.map(([name]) => content(at(`agents/${name}`))));
  const pyodide = await startPython(config, at(config.pyodide), content(at("entity_env.zip")));
  pyodide.FS.mkdirTree("/game");
  for (const [i, bytes] of (await texts).entries()) {
    const path = `/game/${files[i][0]}`;
    pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    pyodide.FS.writeFile(path, bytes);
  }
  const read = (await agents).map((bytes, i) => [networks[i][0], readAgent(bytes)]);
  return {pyodide, networks: new Map(read)};
}

try {
  const {pyodide, networks} = await load(await begun);
  lockUp();
  const think = (name, given) => JSON.stringify(networks.get(name).think(JSON.parse(given)));
  const run = pyodide.runPython(`
import os
os.chdir("/game")
from entity_env.page.live.worker import run_in_pyodide
run_in_pyodide`);
  post("ready", "null");
  await run.callPromising(JSON.stringify(await begun), post, receive, think);
} catch (error) {
  post("ended", JSON.stringify({error: String(error.message ?? error).trim(), line: "", trace: ""}));
}
