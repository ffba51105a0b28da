// The worker of a game's page: Python (Pyodide), the game's files, and the networks of its agents.
//
// Gets one message {config} and then the messages of `PageWorker`; sends [event, JSON].

import { readAgent } from "./network.mjs";

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
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} is missing (${response.status}): copy the whole folder`);
  return new Uint8Array(await response.arrayBuffer());
}

async function load(config) {
  const at = name => new URL(name, import.meta.url).href;
  const home = new URL(config.pyodide, import.meta.url).href;
  const networks = Object.entries(config.agents).filter(([, kind]) => kind == "network");
  const files = Object.entries(config.files);
  const fetched = [at("entity_env.zip"), ...files.map(([, url]) => at(url))].map(content);
  const agents = networks.map(([name]) => content(at(`agents/${name}`)));
  const { loadPyodide } = await import(`${home}pyodide.mjs`);
  const pyodide = await loadPyodide({indexURL: home, packages: config.packages});
  const [library, ...texts] = await Promise.all(fetched);
  pyodide.unpackArchive(library, "zip", {extractDir: "/library"});
  files.forEach(([name], i) => {
    const path = `/game/${name}`;
    pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    pyodide.FS.writeFile(path, texts[i]);
  });
  const read = (await Promise.all(agents)).map((bytes, i) => [networks[i][0], readAgent(bytes)]);
  return {pyodide, networks: new Map(read)};
}

try {
  const config = await begun;
  const {pyodide, networks} = await load(config);
  // The game may use only what has been loaded.
  for (const name of ["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "indexedDB", "caches"]) {
    Object.defineProperty(self, name, {value: undefined});
  }
  const think = (name, given) => JSON.stringify(networks.get(name).think(JSON.parse(given)));
  const run = pyodide.runPython(`
import os, sys
os.makedirs("/game", exist_ok=True)
os.chdir("/game")
sys.path.insert(0, "/library")
from entity_env.page.worker import run_in_pyodide
run_in_pyodide`);
  post("ready", "null");
  await run.callPromising(JSON.stringify(config), post, receive, think);
} catch (error) {
  post("failed", JSON.stringify({error: String(error.message ?? error).trim(), line: "", trace: ""}));
}
