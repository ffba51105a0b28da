// The page of a game: shows its events, and sends answers.
//
// Another script connects it: it calls `receive` for every event, and defines `post(answer)`, which
// resolves to why the game refused the answer, or ""; `showAnimation(frame)`, which loads the last
// episode into a frame; and `saveReplay(event)` of a click.

const board = $("board"), view = $("view");
const named = {ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", Enter: "enter"};
const signs = {up: "↑", down: "↓", left: "←", right: "→", enter: "⏎"};
const towards = {up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0]};
const stepKeys = "123456789abcdefghijklmnopqrstuvwxyz";
const maxButtons = 12, maxOpen = 5, maxSaid = 60;
const kept = {};

let ground = {size: [1, 1], shapes: [], legend: [], rules: []};
let frame = null;
let isSent = false;
// What is picked of a choice: [{choices: those left, spot: the last pick}, ...].
let picks = [];
// What can be picked now: [{spot: [x, y], words, choices}, ...].
let lit = [];
// A radius with which rings at these places do not touch each other.
let ringRadius = 1;
// The palette in which the legend is drawn.
let legendIsDark = null;
let cursor = -1;
let pointer = null;
let byKey = {};
let later = null;

// ---------------------------------------------------------------- picking a choice

// Splits choices by the first spot in which they differ; those that point nowhere are not on the
// board.
function split(choices) {
  const paths = choices.map(choice => choice[4]).filter(path => path.length);
  let depth = 0;
  const isShared = path => path.length > depth + 1 && near(path[depth], paths[0][depth]);
  while (paths.length && paths.every(isShared)) depth++;
  const groups = new Map();
  for (const choice of choices) {
    const spot = choice[4][Math.min(depth, choice[4].length - 1)];
    if (!spot) continue;
    const place = `${spot[0]},${spot[1]}`, found = groups.get(place);
    if (!found) {
      groups.set(place, {spot, words: spot[2], choices: [choice], from: choice[4][depth - 1]});
    } else {
      found.choices.push(choice);
      if (found.words != spot[2]) found.words = "";
    }
  }
  return [...groups.values()];
}

function near(a, b) {
  return Math.abs(a[0] - b[0]) < 1e-3 && Math.abs(a[1] - b[1]) < 1e-3;
}

// The choices that are left, all before the first pick.
function left() {
  return picks.length ? picks.at(-1).choices : frame?.asked?.choices ?? [];
}

function pick(group) {
  if (group.choices.length == 1) {
    send({choice: group.choices[0][0]});
    return;
  }
  picks.push(group);
  showChoices();
  draw();
}

function canUndo() {
  return !isSent && (picks.length > 0 || Boolean(frame?.asked?.can_undo));
}

function undo() {
  if (!canUndo()) return;
  if (!picks.length) {
    send({undo: true});
    return;
  }
  picks.pop();
  showChoices();
  draw();
}

// The words of what is picked next at a place.
function wordsOf(group) {
  if (group.words) return group.words;
  if (group.choices.length == 1) return group.choices[0][1];
  return `${group.choices.length} choices`;
}

// The group that a click takes: the nearest if it is close, or in one shape with the click.
function groupAt(point) {
  if (!point || isSent) return null;
  const distance = group => Math.hypot(group.spot[0] - point[0], group.spot[1] - point[1]);
  const nearest = lit.reduce((a, b) => a && distance(a) <= distance(b) ? a : b, null);
  if (!nearest) return null;
  const most = Math.max(0.7, 22 * ground.size[0] / board.clientWidth);
  if (distance(nearest) <= most) return nearest;
  const boxed = lit.find(group => boxOf(group.spot) && isInside(boxOf(group.spot), point));
  if (boxed) return boxed;
  const shapes = frame.shapes.filter(shape => shape[7] >= 0 && isInside(shape, point));
  return lit.find(group => shapes.some(shape => isInside(shape, group.spot))) ?? null;
}

async function send(answer) {
  if (!frame?.asked || isSent) return;
  isSent = true;
  $("problem").textContent = "";
  const problem = await post({number: frame.asked.number, ...answer});
  if (problem) {
    isSent = false;
    $("problem").textContent = problem;
  }
}

// ---------------------------------------------------------------- the board

function draw() {
  const [width, height] = ground.size;
  if (legendIsDark != night.matches) showLegend($("legend"), ground.legend ?? []);
  legendIsDark = night.matches;
  view.style.setProperty("--ratio", width / height);
  const g = fitCanvas(board, ground.size, [view.clientWidth, view.clientHeight]);
  paintShapes(g, ground.shapes, draw);
  if (!frame?.shapes) return;
  paintShapes(g, frame.shapes, draw);
  const line = markWidth(ground.size), paper = cssColor("--paper");
  const thin = (frame.marks.length > 3 ? 0.3 : 0.5) * line;
  for (const [agent, path] of frame.marks) {
    const color = tone(frame.seats[agent][4]);
    paintMark(g, path, {color, halo: paper, width: thin, radius: ringAt, box: boxOf, dash: true, isPast: true});
  }
  if (Object.keys(frame.words).length > 1) {
    for (const actor of frame.actors) {
      const shape = frame.shapes.find(each => each[7] == actor);
      if (shape) paintRing(g, shape, cssColor("--attention"), 0.6 * line);
    }
  }
  drawLit(g, line, paper);
}

// Rings where one may click; the one under the pointer or cursor is thick, with the way to it.
function drawLit(g, line, paper) {
  const chosen = groupAt(pointer) ?? lit[cursor];
  const radius = point => Math.min(ringAt(point), ringRadius);
  for (const {spot} of picks) {
    paintMark(g, [spot], {color: cssColor("--choice"), halo: paper, width: 0.8 * line, radius, box: boxOf});
  }
  if (isSent) return;
  for (const group of lit) {
    const color = cssColor("--focus"), thick = Math.min(1.4 * line, 0.35 * radius(group.spot));
    const width = group == chosen ? thick : Math.min(0.5 * line, thick);
    paintMark(g, [group.spot], {color, halo: paper, width, radius, box: boxOf});
  }
  const from = chosen && (chosen.from ?? picks.at(-1)?.spot);
  if (from && !near(from, chosen.spot)) {
    paintMark(g, [from, chosen.spot], {color: cssColor("--choice"), halo: paper, width: 0.5 * line, radius});
  }
}

const boxOf = point => boxAt(ground.shapes, frame.shapes, point, ground.size);

// The radius of the largest shape at a point, except for backgrounds.
function ringAt(point) {
  const most = Math.max(...ground.size) / 8;
  const found = frame.shapes.filter(shape => shape[0] != "t" && isInside(shape, point)).map(reach);
  return Math.max(...found.filter(radius => radius < most), most / 3);
}

// A radius with which rings at the lit places do not touch each other; of the first 200 of them.
function radiusBetween() {
  const spots = lit.slice(0, 200).map(group => group.spot);
  if (lit[0]?.from) spots.push(lit[0].from);
  let least = Math.max(...ground.size) / 4;
  for (const [i, [x, y]] of spots.entries()) {
    for (const [px, py] of spots.slice(i + 1)) {
      const distance = Math.hypot(x - px, y - py);
      if (distance > 1e-3) least = Math.min(least, distance);
    }
  }
  return 0.45 * least;
}

function hover(event) {
  pointer = event && pointOf(event, board, ground.size);
  const group = groupAt(pointer);
  const entity = pointer && frame?.shapes ? entityAt(frame.shapes, pointer) : -1;
  board.style.cursor = group ? "pointer" : "";
  showTip($("tip"), group ? wordsOf(group) : entity < 0 ? "" : frame.words[entity] || "", event);
  draw();
}

// ---------------------------------------------------------------- the panel

// Buttons for the choices, or of many for the next part of them.
function showChoices() {
  const choices = left(), groups = split(choices);
  const isOne = groups.length == 1 && groups[0].choices.length > 1;
  lit = isOne ? [] : groups;
  ringRadius = radiusBetween();
  cursor = -1;
  byKey = {};
  const isStepped = (picks.length > 0 || choices.length > maxButtons) && lit.length > 0
    && lit.every(group => group.words || group.choices.length == 1);
  const nowhere = choices.filter(choice => !choice[4].length).map(choice => ({words: "", choices: [choice]}));
  const shown = isStepped ? [...lit, ...nowhere] : choices.map(choice => ({words: "", choices: [choice]}));
  showList(choices, nowhere.length == 0 && lit.length > 0);
  const active = document.activeElement, had = $("choices").contains(active) ? active.dataset.at : null;
  $("choices").replaceChildren(...shown.map((group, i) => {
    const button = make("button"), go = () => pick(group);
    const keys = isStepped ? [stepKeys[i]].filter(Boolean) : group.choices[0][2];
    button.dataset.at = i;
    button.onclick = go;
    if (keys.length) button.append(make("kbd", signs[keys[0]] || keys[0]));
    button.append(wordsOf(group));
    for (const key of keys) byKey[key] = go;
    return button;
  }));
  // Choices in one place are told apart by their buttons.
  if (isOne && picks.length) $("choices").firstChild.focus();
  else if (had != null) ($("choices").children[had] ?? $("choices").firstChild ?? $("undo")).focus();
  $("undo").hidden = !canUndo();
}

// The list is closed if the board has all choices; then it is for those who prefer words.
function showList(choices, isOnBoard) {
  const list = $("list"), isClosed = isOnBoard && choices.length > maxOpen;
  list.hidden = !choices.length;
  list.firstChild.hidden = !isClosed;
  if (!isClosed) list.open = true;
  else if (!list.dataset.isKept) list.open = false;
  $("hint").hidden = !isClosed;
}

function showProgress(progress) {
  $("progress").hidden = !progress;
  if (!progress) return;
  const [now, all] = progress, number = Math.min(all, 40);
  $("progress").setAttribute("aria-label", `question ${now} of ${all}`);
  const state = i => i < now - 1 ? "done" : i == now - 1 ? "now" : "";
  $("progress").replaceChildren(...Array.from({length: number}, (_, i) => make("i", null, state(i * all / number))));
}

function showValues(list) {
  const form = $("values"), same = JSON.stringify(list);
  form.hidden = !list.length;
  if (form.dataset.same == same) return;
  form.dataset.same = same;
  $("sliders").replaceChildren(...list.map(([label, low, high]) => {
    const row = make("label"), slider = make("input"), field = make("input");
    slider.type = "range";
    field.type = "number";
    for (const input of [slider, field]) {
      Object.assign(input, {min: low, max: high, step: "any"});
      input.value = kept[label] ?? (low <= 0 && high >= 0 ? 0 : (low + high) / 2);
    }
    slider.setAttribute("aria-label", label);
    slider.oninput = () => field.value = kept[label] = +(+slider.value).toPrecision(4);
    field.oninput = () => slider.value = kept[label] = field.value;
    row.append(label, slider, field);
    return row;
  }));
  if (list.length) $("sliders").querySelector("input").focus();
}

function showClock(seconds) {
  const bar = $("left");
  bar.hidden = seconds == null;
  bar.style.transition = "none";
  bar.style.width = "100%";
  if (seconds == null) return;
  bar.offsetWidth;
  bar.style.transition = `width ${seconds}s linear`;
  bar.style.width = "0";
}

function showOver(over) {
  const had = document.activeElement, isNew = $("over").hidden && over;
  $("over").hidden = !over;
  if (!over) {
    showFilm(false);
    return;
  }
  const has = name => over.actions.includes(name);
  $("headline").textContent = over.headline;
  $("reasons").replaceChildren(...over.reasons.map(reason => make("li", reason)));
  $("again").hidden = !has("again") && !has("next");
  $("again").lastChild.textContent = has("next") ? "Next episode" : "Play again";
  $("watch").hidden = !has("watch");
  $("save").hidden = !has("save");
  if (!$("again").hidden) {
    byKey.enter = byKey[" "] = () => send({again: true});
    if (isNew && had != document.body && !had.isConnected) $("again").focus();
  }
}

// Plays the last episode in place of the board.
function showFilm(isShown) {
  const film = $("film");
  if (film.hidden == !isShown) return;
  film.hidden = !isShown;
  film.parentElement.classList.toggle("film", isShown);
  if (isShown) showAnimation(film);
  else for (const name of ["src", "srcdoc"]) film.removeAttribute(name);
  $("watch").textContent = isShown ? "Back to the board" : "Watch it again";
  if (!isShown) draw();
}

function showSeats() {
  $("seats").replaceChildren(...frame.seats.map(([name, step, score, end, color], i) => {
    const row = make("tr", null, i == frame.turn ? "now" : ""), cell = make("td");
    const swatch = make("i");
    swatch.style.background = tone(color);
    if (frame.seats.length > 1) cell.append(swatch);
    cell.append(name + (i == frame.turn ? " ◂" : ""));
    row.append(cell, make("td", score, "score"), make("td", "step " + step, "dim"), make("td", end, "dim"));
    return row;
  }));
}

function showThoughts(groups) {
  $("think").hidden = !groups;
  $("think").replaceChildren(...(groups ?? []).flatMap(([title, bars, more, past]) =>
    past ? pastOf(past) : barsOf(title, bars, more)));
}

function showRules(lines) {
  const isTitle = line => /^\w[\w ]*:$/.test(line);
  $("rules").hidden = !lines.length;
  $("rules").lastChild.replaceChildren(...lines.map(line =>
    isTitle(line) ? make("h2", line.slice(0, -1)) : make("p", line)));
}

function statusOf() {
  if (frame.over) return frame.over.headline;
  const last = frame.moves.at(-1) ?? "", isShort = last.length <= maxSaid;
  if (!frame.asked) return frame.whose;
  const turn = frame.whose == "you" ? "Your turn" : `${frame.whose}: your turn`;
  return last && isShort && !last.startsWith(frame.whose + ":") ? `${turn}. ${last}` : turn;
}

function show() {
  const asked = frame.asked ?? {choices: [], values: []};
  document.title = $("title").textContent = frame.title;
  $("episode").textContent = frame.episode;
  const status = statusOf();
  $("status").ariaLive = asked.left_s <= 1 && asked.left_s != null ? "off" : "polite";  // in real time
  if ($("status").textContent != status) $("status").textContent = status;
  $("status").classList.toggle("spoken", Boolean(frame.over));
  $("asking").hidden = !frame.asked || Boolean(frame.over);
  $("asked").textContent = asked.title || "";
  showClock(asked.left_s);
  showProgress(asked.progress);
  showChoices();
  showValues(asked.values ?? []);
  showOver(frame.over);
  showSeats();
  showThoughts(frame.think);
  $("all").textContent = frame.all || "";
  $("text").hidden = !frame.text;
  $("text").textContent = frame.text || "";
  $("last").hidden = !frame.moves.length;
  $("moves").replaceChildren(...frame.moves.toReversed().map(move => make("li", move)));
  board.setAttribute("aria-label", `${frame.title}, ${status}`);
  draw();
}

// ---------------------------------------------------------------- pointer and keys

board.onpointermove = hover;
board.onpointerleave = () => hover(null);
board.onclick = event => {
  pointer = pointOf(event, board, ground.size);
  const group = groupAt(pointer);
  if (event.pointerType == "touch") pointer = null;
  $("tip").hidden = true;
  if (group) pick(group);
};
$("list").firstChild.onclick = () => $("list").dataset.isKept = $("list").open ? "" : "true";
$("undo").onclick = undo;
$("again").onclick = () => send({again: true});
$("watch").onclick = () => showFilm($("film").hidden);
$("save").onclick = saveReplay;
$("values").onsubmit = event => {
  event.preventDefault();
  const read = row => row.lastChild.value === "" ? NaN : +row.lastChild.value;
  send({values: [...$("sliders").children].map(read)});
};

// Moves the cursor to the next lit spot in a direction.
function moveCursor([right, down]) {
  const [x, y] = lit[cursor]?.spot ?? lit[0].from ?? picks.at(-1)?.spot ?? [NaN, NaN];
  let best = -1, least = Infinity;
  lit.forEach(({spot: [px, py]}, i) => {
    const ahead = (px - x) * right + (py - y) * down;
    const aside = Math.abs((px - x) * down) + Math.abs((py - y) * right);
    if (i != cursor && ahead > 1e-3 && ahead + 2 * aside < least) [best, least] = [i, ahead + 2 * aside];
  });
  if (best < 0 && cursor < 0) best = 0;
  if (best >= 0) cursor = best;
  if (cursor >= 0) $("spoken").textContent = wordsOf(lit[cursor]);
  pointer = null;
  draw();
}

// Moves the focus among the buttons, if the board has no places to choose from.
function moveFocus(step) {
  const buttons = [...$("choices").children], at = buttons.indexOf(document.activeElement);
  buttons[at < 0 ? 0 : (at + step + buttons.length) % buttons.length].focus();
}

function press(event) {
  const key = named[event.key] ?? event.key, go = byKey[key] ?? byKey[event.key.toLowerCase()];
  if (key == "enter" && cursor >= 0) pick(lit[cursor]);
  else if (go) go();
  else if (towards[key] && lit.length) moveCursor(towards[key]);
  else if (towards[key] && $("choices").firstChild) moveFocus(key == "up" || key == "left" ? -1 : 1);
  else if (key == "Escape" && !$("film").hidden) showFilm(false);
  else if ((key == "Escape" || key == "Backspace") && canUndo()) undo();
  else if (key == "enter" && frame?.asked?.values?.length) $("values").requestSubmit();
  else return;
  event.preventDefault();
}

addEventListener("keydown", event => {
  const isControl = ["BUTTON", "A", "SUMMARY"].includes(event.target.tagName);
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  if (isControl && ["Enter", " "].includes(event.key)) return;
  if (isSent && !event.repeat && frame?.asked?.left_s != null) later = event;
  if (!isSent) press(event);
});

// ---------------------------------------------------------------- events of the game

new ResizeObserver(draw).observe(view);
night.addEventListener("change", () => {
  if (frame) show();
});
$("watch").textContent = "Watch it again";

const events = {
  ground(data) {
    ground = data;
    legendIsDark = null;
    showRules(ground.rules ?? []);
  },
  frame(data) {
    const before = frame?.asked?.number;
    frame = data;
    if (frame.asked?.number != before || isSent) picks = [];
    isSent = false;
    $("problem").textContent = "";
    show();
    const next = later;
    later = null;
    if (next) press(next);
  },
};

// Closes the open question: the game has ended.
function endGame(words) {
  isSent = false;
  if (frame) {
    frame.asked = null;
    if (frame.over) frame.over.actions = [];
    picks = [];
    show();
  }
  $("status").classList.remove("spoken");
  $("status").textContent = words;
}
