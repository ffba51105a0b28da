// The player: shows the frames that animation.py wrote, one at a time.

const PLAY = "M7 4v16l13-8z", PAUSE = "M6 4h4v16H6zM14 4h4v16h-4z";

// What animation.py wrote, and the picture that is shown; `side` is the agent whose observations
// are shown, null = all in turn.
let data, frames, now = 0, side = null;
let timer = 0, loops = false, pending = 0, addressTimer = 0;

const isPlaying = () => timer != 0;
const end = () => frames.length - 1;
const nameOf = agent => data.names[agent] ?? "agent " + agent;

// ---------------------------------------------------------------- the board

const shapesOf = frame => (frame.d || []).map(i => data.shapes[i]);

// Paints one picture with the moves on it.
function paintPicture(g, index) {
  const frame = frames[index], shapes = shapesOf(frame);
  g.fillStyle = cssColor("--paper");
  g.fillRect(0, 0, ...data.size);
  paintShapes(g, data.ground, render);
  paintShapes(g, shapes, render);
  if ($("att").firstChild.checked) paintAttention(g, frame, shapes);
  paintMoves(g, index, shapes);
}

// Rings, stronger around what the network attends to more.
function paintAttention(g, frame, shapes) {
  const weights = frame.w || [], most = Math.max(...weights), done = new Set();
  for (const shape of shapes) {
    const weight = weights[shape[7]];
    if (!weight || done.has(shape[7])) continue;
    done.add(shape[7]);
    g.globalAlpha = weight / most;
    turned(g, shape, () => paintRing(g, shape, cssColor("--attention"), 0.1));
  }
  g.globalAlpha = 1;
}

// The choices of a frame that are somewhere on the board, as [path, share, is chosen].
function marksOf(frame) {
  const rows = (frame.b || []).flatMap(group => group[1]);
  return rows.filter(row => row[3] >= 0).map(row => [data.marks[row[3]], row[1], row[2]]);
}

// Chosen moves solid, alternatives thinner and fainter, and the last moves of others dashed.
function paintMoves(g, index, shapes) {
  const everything = [...data.ground, ...shapes], marks = marksOf(frames[index]);
  // Thinner if many actors move at once.
  const width = markWidth(data.size) * (marks.filter(mark => mark[2]).length > 2 ? 0.6 : 1);
  const radius = point => radiusAt(everything, point, data.size);
  const box = point => boxAt(data.ground, shapes, point, data.size);
  const color = cssColor("--choice"), halo = cssColor("--paper");
  for (const [agent, frame] of lastMoves(index)) {
    g.globalAlpha = 0.8;
    for (const [path, , isChosen] of marksOf(frame)) {
      if (isChosen) paintMark(g, path, {color: tone(data.sides[agent]), halo, width: width * 0.6, radius, box, dash: true, isPast: true});
    }
  }
  marks.sort((a, b) => a[2] - b[2] || a[1] - b[1]);
  for (const [path, share, isChosen] of marks) {
    if (!isChosen && !(share >= 0.005)) continue;
    g.globalAlpha = isChosen ? 1 : 0.4 + 0.4 * share;
    const thin = width * (0.35 + 0.4 * share);
    paintMark(g, path, isChosen ? {color, halo, width, radius, box} : {color, width: thin, radius, box, dash: share < 0.1});
  }
  g.globalAlpha = 1;
}

// The agents whose moves may be seen, with the frame of their last turn before this one: the others,
// and all at the end of an episode.
function lastMoves(index) {
  const found = new Map(), isLastMove = !frames[index].b;
  for (let i = index - 1; i >= 0 && i > index - 100 && found.size < data.agents; i--) {
    const agent = frames[i].g;
    const isShown = agent == frames[index].g ? isLastMove : data.viewer == null;
    if (isShown && !found.has(agent)) found.set(agent, frames[i]);
  }
  return found;
}

function showBoard() {
  const view = $("view"), board = $("board");
  paintPicture(fitCanvas(board, data.size, [view.clientWidth, view.clientHeight]), now);
  board.setAttribute("aria-label", data.title + ", " + $("state").textContent);
}

// Tells the entity where the pointer is, or was when a finger left the board.
let pointer = null;

function showEntity(event) {
  pointer = event;
  const frame = frames[now], entity = entityAt(shapesOf(frame), pointOf(event, $("board"), data.size));
  showTip($("tip"), data.words[(frame.n || [])[entity]], event);
}

// ---------------------------------------------------------------- the panel

function showState() {
  const frame = frames[now], state = make("div"), swatch = make("i");
  const facts = [
    data.agents > 1 && nameOf(frame.g),
    "step " + frame.t,
    "score " + number(frame.s),
    frame.v != null && "value " + number(frame.v),
  ];
  state.textContent = facts.filter(Boolean).join(" · ");
  if (data.agents > 1) {
    swatch.style.background = tone(data.sides[frame.g]);
    state.prepend(swatch);
  }
  const chosen = (frame.b || []).flatMap(group => group[1].filter(row => row[2]).map(row => data.words[row[0]]));
  if (chosen.length) state.append(make("div", "chosen: " + chosen.slice(0, 4).join(", "), "dim"));
  if (frame.u) state.append(make("div", frame.u, "dim"));
  if (frame.e) state.append(make("div", frame.e));
  // Equal words are not announced again.
  if (state.innerHTML != $("state").innerHTML) $("state").replaceChildren(...state.childNodes);
}

function showBars() {
  const out = (frames[now].b || []).flatMap(([title, rows, more]) =>
    barsOf(data.words[title], rows.map(([label, share, kind]) => [data.words[label], share, kind]), more));
  if (frames[now].p) out.push(...pastOf(frames[now].p, goToStep));
  $("bars").replaceChildren(...out);
}

// Up to 200 items, made only while they are visible.
function showSeen() {
  if ($("seen").open) {
    const items = (frames[now].n || []).filter(i => data.words[i]).map(i => make("li", data.words[i]));
    $("seen").lastChild.replaceChildren(...items);
  }
}

// ---------------------------------------------------------------- steps

// Shows the present picture with the next frame of the display, once however often it is called.
function render() {
  pending ||= requestAnimationFrame(show);
}

function show() {
  pending = 0;
  showSides();
  showState();
  showBoard();
  showBars();
  showCurve();
  showSeen();
  if (pointer) showEntity(pointer);
  $("at").value = now;
  $("at").ariaValueText = "step " + frames[now].t;
  $("out").textContent = now + "/" + end();
  clearTimeout(addressTimer);
  if (!isPlaying()) addressTimer = setTimeout(writeAddress, 200);
}

function writeAddress() {
  try {
    history.replaceState(null, "", "#" + now);
  } catch {
    // Frames without an address of their own.
  }
}

// The nearest picture of the side in a direction, else null.
function near(index, direction) {
  while (frames[index] && side != null && frames[index].g != side) index += direction;
  return frames[index] ? index : null;
}

function go(index, direction = 1) {
  index = Math.max(0, Math.min(end(), index | 0));
  now = near(index, direction) ?? near(index, -direction) ?? index;
  render();
}

// Pauses, and shows another picture.
function jump(index, direction) {
  pause();
  go(index, direction);
}

// Another step of the agent whose picture is shown.
function goToStep(step) {
  const {g} = frames[now], index = frames.findIndex(frame => frame.g == g && frame.t == step);
  if (index >= 0) jump(index);
}

const isLast = () => near(now + 1, 1) == null;

function pause() {
  clearTimeout(timer);
  timer = 0;
  showPlaying();
}

function playOrPause() {
  if (isPlaying()) {
    jump(now);
    return;
  }
  if (isLast()) go(0);
  wait();
  showPlaying();
}

// Steps are announced only if a person makes them.
function showPlaying() {
  $("play").title = isPlaying() ? "Pause (space)" : "Play (space)";
  $("play").querySelector("path").setAttribute("d", isPlaying() ? PAUSE : PLAY);
  $("state").ariaLive = isPlaying() ? "off" : "polite";
}

function wait(extra = 0) {
  const delay = 1000 / data.fps / $("speed").value;
  // Faster than displays are: several steps at once.
  timer = setTimeout(tick, Math.max(delay, 16) + extra, Math.max(1, Math.round(16 / delay)));
}

function tick(steps) {
  if (!isLast()) {
    go(now + steps);
    wait(isLast() && loops ? 1500 : 0);
  } else if (loops) {
    go(0);
    wait();
  } else {
    jump(now);
  }
}

function setLoop(value) {
  loops = value;
  $("loop").ariaPressed = loops;
}

// The step in the address, "#12"; shows whose turn it is.
function readAddress() {
  const index = parseInt(location.hash.slice(1));
  if (!(index >= 0)) return;
  if (side != null) $("side").value = side = frames[Math.min(index, end())].g;
  jump(index);
}

// ---------------------------------------------------------------- controls

function toggleFullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen();
}

function toggleMenu(isOpen) {
  $("more").toggleAttribute("data-open", isOpen);
  $("menu").ariaExpanded = $("more").hasAttribute("data-open");
}

const tenth = () => Math.ceil(frames.length / 10);
const KEYS = {
  " ": playOrPause,
  ArrowLeft: () => jump(now - 1, -1),
  ArrowRight: () => jump(now + 1),
  PageUp: () => jump(now + tenth()),
  PageDown: () => jump(now - tenth(), -1),
  Home: () => jump(0),
  End: () => jump(end(), -1),
  l: () => setLoop(!loops),
  f: () => $("full").hidden || toggleFullScreen(),
  "?": () => $("keys").showModal(),
  Escape: () => toggleMenu(false),
};

function pressed(event) {
  const tag = event.target.tagName, isSlider = event.target.type == "range";
  if (event.altKey || event.ctrlKey || event.metaKey || tag == "SELECT" || $("keys").open) return;
  if (tag == "INPUT" && !isSlider && event.target.type != "checkbox") return;
  // The panel is scrolled by these keys, and space presses what has the focus.
  if (event.key.startsWith("Page") && event.target.closest?.("aside") && event.target.id != "curve") return;
  if (event.key == " " && !isSlider && ["BUTTON", "SUMMARY", "INPUT"].includes(tag)) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  if (event.key != "Escape") event.preventDefault();
  KEYS[event.key]();
}

function scrub(event) {
  if (event.type == "pointermove" && !event.buttons) return;
  const {left, width} = geometry();
  jump(Math.round((event.offsetX - left) / width * end()));
}

function listen() {
  const clicks = {
    first: KEYS.Home, back: KEYS.ArrowLeft, play: playOrPause, next: KEYS.ArrowRight, last: KEYS.End,
    loop: KEYS.l, full: KEYS.f, help: KEYS["?"], menu: () => toggleMenu(), link: copyLink, png: savePng, gif: saveGif,
    close: () => $("keys").close(),
  };
  for (const id in clicks) $(id).onclick = clicks[id];
  $("more").onclick = event => event.target.tagName == "BUTTON" && toggleMenu(false);
  $("at").oninput = () => jump(+$("at").value);
  $("att").onchange = $("seen").ontoggle = render;
  $("side").onchange = () => {
    side = $("side").value === "" ? null : +$("side").value;
    jump(now);
  };
  $("board").onpointermove = $("board").onpointerdown = showEntity;
  $("board").onpointerleave = event => {
    if (event.pointerType != "mouse") return;
    pointer = null;
    showTip($("tip"), "");
  };
  $("curve").onpointerdown = $("curve").onpointermove = scrub;
  addEventListener("keydown", pressed);
  addEventListener("hashchange", readAddress);
  new ResizeObserver(render).observe($("view"));
  night.onchange = render;
}

// The legend, drawn again when the palette has changed.
let legendIsDark = null;

function showSides() {
  if (legendIsDark == night.matches) return;
  legendIsDark = night.matches;
  const sides = data.agents > 1 ? data.sides.map((color, agent) => [nameOf(agent), color]) : [];
  showLegend($("legend"), data.legend, sides);
}

// ---------------------------------------------------------------- start

function showFixed() {
  document.title = $("title").textContent = data.title;
  $("view").style.setProperty("--ratio", data.size[0] / data.size[1]);
  $("at").max = $("curve").ariaValueMax = end();
  $("curve").ariaValueMin = 0;
  $("curve").ariaLabel = plots.map(plot => plot.name).join(" and ") + " over the episode";
  $("att").hidden = !frames.some(frame => frame.w?.length);
  $("about").replaceChildren(...data.about.flatMap(([label, text]) => [make("dt", label, "dim"), make("dd", text)]));
  if (side != null) {
    const agents = [...new Set(frames.map(frame => frame.g))].sort((a, b) => a - b);
    $("side").append(...agents.map(agent => new Option(nameOf(agent), agent)), new Option("all agents", ""));
    $("side").value = side;
    $("side").hidden = false;
  }
}

async function start() {
  data = JSON.parse(await unpacked("data"));
  frames = data.frames;
  side = data.viewer;
  findPlots();
  showFixed();
  hideForbidden();
  listen();
  go(0);
  readAddress();
  show();
  showPlaying();
  // `?play` in the address: plays at once, again and again, unless the user prefers less motion.
  if (new URLSearchParams(location.search).has("play") && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    setLoop(true);
    playOrPause();
  }
  document.body.dataset.ready = (performance.now() - started).toFixed(1);
}

start();
