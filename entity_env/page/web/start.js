// Asks who plays, and connects the page of a game to the worker that runs it.

let waitMs = 3000;
// Parts of a time limit: of those in which the machine sleeps, only one counts.
const ticks = 4;
let config = null;
let worker = null;
let isReady = false;
let wanted = null;
let giveAnswer = null;
let film = null;
// What the requested replays are for: "file" or "send".
const purposes = [];
let mustSend = false;
// True from the begin of a game until the visitor asks for another one.
let isShown = false;
let patience = null;
let guard = null;
let numStarts = 0;
let original = "";

const setup = $("setup"), seatsOf = () => [...$("players").querySelectorAll("select")].map(each => each.value);

// ---------------------------------------------------------------- what live.js asks for

function post(answer) {
  return new Promise(resolve => {
    giveAnswer = resolve;
    tell({answer});
  });
}

function showAnimation(into) {
  film = into;
  tell({get: "watch"});
}

function saveReplay(event) {
  event.preventDefault();
  getReplay("file");
}

function getReplay(purpose) {
  purposes.push(purpose);
  tell({get: "save"});
}

// ---------------------------------------------------------------- the worker

// True if the address ends with ?word.
function asks(word) {
  return new URLSearchParams(location.search).has(word);
}

function tell(message) {
  worker?.postMessage(message);
}

// A worker of its own that inherits the page's Content-Security-Policy: one from a file has none, and
// is not allowed.
function startWorker() {
  const file = JSON.stringify(new URL("worker.mjs", location.href).href);
  const code = `self.early = [];
onmessage = ({data}) => early.push(data);
import(${file}).catch(error => setTimeout(() => { throw error; }));`;
  const url = URL.createObjectURL(new Blob([code], {type: "text/javascript"}));
  isReady = false;
  purposes.length = 0;
  worker = new Worker(url, {type: "module"});
  worker.onmessage = ({data: [name, text]}) => take(name, JSON.parse(text));
  worker.onerror = () => fail({error: "The worker of this page cannot be started.", trace: ""});
  tell({config});
  $("loading").textContent = `Loading Python (${config.mb} MB) …`;
}

function stopWorker() {
  clearInterval(guard);
  worker?.terminate();
  worker = null;
}

// Begins the time limit of the game, or of the agent in a seat, instead of the one before; or of none.
function limit(asked) {
  clearInterval(guard);
  if (!asked) return;
  let left = ticks;
  guard = setInterval(() => {
    if (--left) return;
    const name = wanted.seats[asked.seat], player = config.players.find(each => each[0] == name)?.[1] ?? name;
    const where = wanted.seats.length > 1 ? ` (player ${asked.seat + 1})` : "";
    const who = asked.seat == null ? "The game" : `${player}${where}`;
    isReady = false;
    fail({error: `${who} gave no answer for ${asked.seconds} s and was stopped.`, line: "", trace: ""});
  }, 1000 * asked.seconds / ticks);
}

// Starts a game; replaces a program that is busy with another game and does not respond.
function begin() {
  const data = new FormData(setup);
  wanted = {
    id: ++numStarts,
    seats: seatsOf(),
    fps: pace(),
    clock_s: data.has("clock") ? config.clock_s : null,
    think: data.has("think"),
    ...config.start,
  };
  mustSend = false;
  if (original) wanted.files = {[config.editable]: $("source").value};
  $("failure").textContent = $("sent").textContent = "";
  $("speed").hidden = wanted.seats.includes("human");
  clearInterval(guard);
  if (!worker) startWorker();
  else if (isReady) {
    tell({start: wanted});
    clearTimeout(patience);
    patience = setTimeout(() => {
      stopWorker();
      startWorker();
    }, waitMs);
  }
}

function take(name, data) {
  // The worker runs a game of somebody: what it was not asked for is ignored.
  if (Object.hasOwn(events, name)) {
    if (!isShown) return;
    document.body.classList.add("begun");
    $("loading").textContent = "";
    events[name](data);
    if (name == "frame") {
      document.title = $("title").textContent = config.title;
      offerReview();
      afterStep();
      sendOnce();
    }
  } else if (name == "ready") {
    if (isReady) return;
    isReady = true;
    tell({start: wanted});
  } else if (name == "begun") {
    if (data != wanted.id) return;
    clearTimeout(patience);
    isShown = true;
    $("loading").textContent = "Starting the game …";
  } else if (name == "answered") {
    giveAnswer?.(data);
    giveAnswer = null;
  } else if (name == "watch") {
    if (film) film.srcdoc = data;
    film = null;
  } else if (name == "save") {
    if (purposes.length) keep(...data, purposes.shift());
  } else if (name == "limit") {
    limit(data);
  } else if (name == "failed") {
    fail(data);
  } else if (name == "ended") {
    isReady = false;
    fail(data);
  }
}

function fail({error, line, trace}) {
  clearTimeout(patience);
  if (!isReady) stopWorker();
  showStart();
  showLine(line ? line + " " : error);
  $("loading").textContent = "";
  $("failure").textContent = [line ? `${line}: ${error}` : error, trace].filter(Boolean).join("\n\n");
}

function showStart() {
  isShown = false;
  document.body.classList.remove("begun");
}

// Turns per second for spectators; at the end of the slider, as fast as the browser can.
function pace() {
  const value = +$("speed").querySelector("input").value;
  return value > 30 ? 1e9 : value;
}

function showPace() {
  const fps = pace();
  $("speed").querySelector("output").textContent = fps > 30 ? "fastest" : fps ? `${fps}/s` : "paused";
}

// Selects the line of an error in the edited file.
function showLine(words) {
  const found = original && words?.match(/([^\s(]*)(?:[:]|, line )(\d+)\b/);
  if (!found || !config.editable.endsWith(found[1])) return;
  const lines = $("source").value.split("\n"), at = Math.min(+found[2], lines.length) - 1;
  const start = lines.slice(0, at).join("\n").length + (at > 0);
  $("edit").open = true;
  $("source").focus();
  $("source").setSelectionRange(start, start + lines[at].length);
  $("source").scrollTop = Math.max(0, at - 5) * 18.2;
}

async function showSource() {
  if (!config.editable) return;
  original = await (await fetch(config.files[config.editable])).text();
  $("edit").hidden = false;
  $("edit").firstElementChild.textContent = `Edit ${config.editable}`;
  $("source").value = original;
  $("source").setAttribute("aria-label", config.editable);
  $("edit").open = asks("edit");
}

// ---------------------------------------------------------------- looking back

// Places of the dragged entities, and what is asked of the worker: one picture at a time.
let places = {}, dragged = -1, isAsked = false, isStale = false;
const slider = $("review").querySelector("input");

function offerReview() {
  const count = frame.over?.turns ?? 0, isNew = $("review").hidden;
  $("review").hidden = !count;
  if (count && !isNew) return;
  $("hintback").hidden = true;
  slider.max = count - 1;
  slider.value = count - 1;
  $("review").querySelector("output").textContent = `of ${count}`;
  places = {};
}

function lookBack() {
  isStale = isAsked;
  if (isAsked) return;
  isAsked = true;
  const networks = Object.keys(config.agents).filter(name => config.agents[name] == "network");
  const player = wanted.seats.find(name => networks.includes(name)) ?? networks[0] ?? "";
  $("hintback").hidden = !player;
  tell({step: {turn: +slider.value, places, player}});
}

function afterStep() {
  if (!isAsked) return;
  isAsked = false;
  if (isStale) lookBack();
}

slider.oninput = () => {
  places = {};
  lookBack();
};
board.addEventListener("pointerdown", event => {
  if ($("hintback").hidden) return;
  dragged = entityAt(frame.shapes, pointOf(event, board, ground.size));
  if (dragged >= 0) board.setPointerCapture(event.pointerId);
});
board.addEventListener("pointermove", event => {
  if (dragged < 0) return;
  const point = pointOf(event, board, ground.size);
  places[dragged] = point.map((at, i) => Math.min(Math.max(at, 0.01), ground.size[i] - 0.01));
  lookBack();
});
for (const name of ["pointerup", "pointercancel"]) board.addEventListener(name, () => dragged = -1);

// ---------------------------------------------------------------- replays

// Sends each finished episode, after consent.
function sendOnce() {
  if (!frame.over) mustSend = new FormData(setup).has("send");
  else if (mustSend && frame.over.actions.includes("save")) {
    mustSend = false;
    getReplay("send");
  }
}

async function keep(name, base64, purpose) {
  const bytes = Uint8Array.from(atob(base64), each => each.charCodeAt(0));
  if (purpose == "send") {
    await sendReplay(bytes);
    return;
  }
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = name.endsWith(".replay") ? name : "game.replay";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function sendReplay(bytes) {
  try {
    const headers = {"Content-Type": "application/octet-stream"};
    const response = await fetch(config.send, {method: "POST", headers, body: bytes});
    $("sent").textContent = response.ok ? "Sent." : `Not sent: ${(await response.text()).trim()}`;
  } catch {
    $("sent").textContent = "Not sent: the address does not answer.";
  }
}

// ---------------------------------------------------------------- the form

function showSetup() {
  const choices = [["human", "You"], ...config.players];
  $("players").replaceChildren(...config.seats.map((name, i) => {
    const row = make("label"), select = make("select");
    select.append(...choices.map(([value, words]) => {
      const option = make("option", words);
      option.value = value;
      option.selected = value == name;
      return option;
    }));
    row.append(config.seats.length > 1 ? `Player ${i + 1}` : "Player", select);
    return row;
  }));
  $("clocked").hidden = config.clock_s == null;
  $("clocked").lastChild.textContent = `Real time: ${config.clock_s} s per decision`;
  $("clocked").firstChild.checked = true;
  $("thinking").hidden = !Object.values(config.agents).includes("network");
  $("sending").hidden = !config.send;
  if (config.send) {
    const words = `Send finished games to ${new URL(config.send).host}, where they may be used to train agents`;
    $("sending").lastChild.textContent = words;
  }
  $("size").textContent = `The first visit loads up to ${config.mb} MB.`;
}

setup.onsubmit = event => {
  event.preventDefault();
  begin();
};
$("new").onclick = () => {
  tell({fps: 0});
  showStart();
};
// Keys are for the form, and not for the game behind it.
addEventListener("keydown", event => {
  if (!document.body.classList.contains("begun")) event.stopImmediatePropagation();
}, true);
$("speed").oninput = () => {
  showPace();
  tell({fps: pace()});
};
showPace();

if (location.protocol == "file:") {
  const words = "A browser runs this page only from a web server. In its folder run\n\npython3 -m http.server\n\nand open http://localhost:8000";
  $("failure").textContent = words;
  setup.hidden = true;
} else {
  fetch("game.json").then(response => response.json()).then(found => {
    config = found;
    showSetup();
    showSource();
    if (asks("play")) begin();
  }, () => $("failure").textContent = "game.json is missing: copy the whole folder.");
}
