// The worker of a game's page: Python (Pyodide), the game's files, and the networks of its agents.
//
// Gets one message {config} and then the messages of `PageWorker`; sends [event, JSON].

import { readAgent } from "./network.mjs";

const storeMs = 1000;
const inbox = [];
let wake = null;
let begin = null;
const begun = new Promise(resolve => begin = resolve);

onmessage = ({data}) => {
  if (data.config) {
    begin(data.config);
    return;
  }
  inbox.push(JSON.stringify(data));
  wake?.();
};

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
  if (isNew && store) {
    try {
      const picture = pyodide.makeMemorySnapshot();
      // Stored later: writing it would delay the first picture of the game.
      setTimeout(() => keepPicture(store, key, picture).catch(() => {}), storeMs);
    } catch {
      // Every visit starts like the first one.
    }
  }
  return pyodide;
}

// Keeps a picture of the memory, and of the others of this site only the latest.
async function keepPicture(store, key, picture) {
  const others = (await store.keys()).filter(({url}) => url != key);
  await Promise.all(others.slice(0, -1).map(each => store.delete(each)));
  await store.put(key, new Response(picture));
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
  // The game may use only what has been loaded.
  for (const name of ["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "indexedDB", "caches"]) {
    Object.defineProperty(self, name, {value: undefined});
  }
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
