// The board: what the player (player.html) and the live page (live.html) have in common.
//
// A shape is an array: [kind, x, y, size, fill, stroke, width, entity, rotate, radius, text,
// anchor, points]; page.py writes it. Positions and sizes are in units of the game. A color is one
// color, or a pair "#light #dark"; tone() picks the one for the palette in use. A path is a list of
// points [x, y] in units: one point is a ring, two or more are an arrow.

const $ = id => document.getElementById(id);

// A new element with a text, which is never read as markup, and a class.
function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  if (name) element.className = name;
  return element;
}

// A number as `describe_number` in describe.py writes it: 3 digits, no zeros at the end; large ones
// with one decimal. Ties are rounded to even digits, as in Python.
function number(value) {
  if (Number.isInteger(value)) return String(BigInt(value));
  const [digits, exponent] = value.toExponential(2).split("e"), size = Math.abs(value);
  if (size < 9.995e-5) return +digits + "e-" + exponent.slice(1).padStart(2, "0");
  const places = size >= 999.5 ? 1 : 2 - exponent, unit = 10 ** places, low = Math.floor(size * unit);
  const isTie = size * 2 ** (places + 1) % 2 == 1;
  const text = (isTie ? Math.sign(value) * (low + low % 2) / unit : value).toFixed(places);
  return size >= 999.5 ? text : String(+text);
}

// A probability as `percent` in describe.py writes it.
function percent(share) {
  const whole = Math.floor(100 * share + 0.5);
  return whole || !share ? whole + "%" : "<1%";
}

// ---------------------------------------------------------------- colors

const night = matchMedia("(prefers-color-scheme: dark)");

// The color of a pair for the present palette.
function tone(colors) {
  return colors.split(" ")[+night.matches] ?? colors;
}

// The value of a CSS variable of page.css, such as "--choice".
function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

// ---------------------------------------------------------------- canvas

// Fits a canvas for a board of `size` units into `room` pixels; returns its context, scaled to
// units and cleared. `ratio` is the number of pixels of the canvas per pixel of the page.
function fitCanvas(canvas, size, room, ratio = devicePixelRatio || 1) {
  const scale = Math.max(Math.min(room[0] / size[0], room[1] / size[1]), 1e-3);
  const width = Math.max(Math.round(size[0] * scale * ratio), 1);
  const height = Math.max(Math.round(size[1] * scale * ratio), 1);
  if (canvas.width != width) canvas.width = width;
  if (canvas.height != height) canvas.height = height;
  canvas.style.width = size[0] * scale + "px";
  canvas.style.height = size[1] * scale + "px";
  const g = canvas.getContext("2d");
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, width, height);
  g.setTransform(width / size[0], 0, 0, height / size[1], 0, 0);
  return g;
}

// The point of a pointer event on a canvas, in units.
function pointOf(event, canvas, size) {
  const box = canvas.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const y = (event.clientY - box.top) / box.height;
  return [x * size[0], y * size[1]];
}

// ---------------------------------------------------------------- shapes

// Measures texts and tests points, without a transformation.
const scratch = make("canvas").getContext("2d");
const images = {};
const MAX_IMAGES = 1000;  // a picture that changes in every step is a new image each time

// The outline of a shape before its rotation, made once.
function outline(shape) {
  if (shape.path) return shape.path;
  const path = new Path2D();
  const [kind, x, y, size] = shape;
  if (kind == "r" || kind == "i") {
    path.roundRect(x - size[0] / 2, y - size[1] / 2, size[0], size[1], shape[9] || 0);
  } else if (kind == "c") {
    path.arc(x, y, size[0], 0, 7);
  } else if (kind == "t") {
    scratch.font = "100px sans-serif";
    const width = scratch.measureText(shape[10] || "").width * size[0] / 100;
    const left = {s: 0, e: width}[shape[11]] ?? width / 2;
    path.rect(x - left, y - size[0] / 2, width, size[0]);
  } else {
    shape[12].forEach(([px, py], i) => i ? path.lineTo(px, py) : path.moveTo(px, py));
    if (kind == "p") path.closePath();
  }
  return shape.path = path;
}

// Calls `draw` with the context turned like the shape.
function turned(g, shape, draw) {
  if (!shape[8]) return draw();
  g.save();
  g.translate(shape[1], shape[2]);
  g.rotate(shape[8] * Math.PI / 180);
  g.translate(-shape[1], -shape[2]);
  draw();
  g.restore();
}

// The picture of a shape of the kind image; calls `whenLoaded` later if it has to be loaded.
function pictureOf(shape, whenLoaded) {
  let image = images[shape[10]];
  if (!image) {
    const [oldest, ...others] = Object.keys(images);
    if (others.length > MAX_IMAGES) delete images[oldest];
    image = images[shape[10]] = new Image();
    image.onload = whenLoaded;
    image.src = shape[10];
  }
  return image;
}

// Draws shapes in order; calls `whenLoaded` when an image has arrived, so that all is drawn again.
function paintShapes(g, shapes, whenLoaded) {
  for (const shape of shapes) turned(g, shape, () => paintShape(g, shape, whenLoaded));
}

function paintShape(g, shape, whenLoaded) {
  const [kind, x, y, size, fill, stroke] = shape;
  if (kind == "t") {
    if (!fill) return;
    g.font = size[0] + "px sans-serif";
    g.fillStyle = tone(fill);
    g.textAlign = {s: "start", e: "end"}[shape[11]] || "center";
    g.fillText(shape[10] || "", x, y + 0.35 * size[0]);
  } else if (kind == "i") {
    const image = pictureOf(shape, whenLoaded);
    if (image.complete && image.naturalWidth) g.drawImage(image, x - size[0] / 2, y - size[1] / 2, ...size);
  } else {
    const path = outline(shape);
    if (fill) {
      g.fillStyle = tone(fill);
      g.fill(path);
    }
    if (stroke) {
      g.strokeStyle = tone(stroke);
      g.lineWidth = shape[6];
      g.lineJoin = "round";
      g.stroke(path);
    }
  }
}

// Whether a point is in a shape.
function isInside(shape, [x, y]) {
  const angle = -(shape[8] || 0) * Math.PI / 180;
  const dx = x - shape[1], dy = y - shape[2];
  const px = shape[1] + dx * Math.cos(angle) - dy * Math.sin(angle);
  const py = shape[2] + dx * Math.sin(angle) + dy * Math.cos(angle);
  return scratch.isPointInPath(outline(shape), px, py);
}

// The index of the entity that is drawn uppermost at a point, else -1.
function entityAt(shapes, point) {
  return shapes.findLast(shape => shape[7] >= 0 && isInside(shape, point))?.[7] ?? -1;
}

// The radius of a circle around a shape, for rings.
function reach(shape) {
  const [kind, x, y, size] = shape;
  if (kind == "p" || kind == "l") return Math.max(...shape[12].map(([px, py]) => Math.hypot(px - x, py - y)));
  if (kind == "c") return size[0];
  return kind == "t" ? size[0] / 2 : Math.max(...size) / 2;
}

// A ring around a shape: a box around an upright rectangle, else a circle.
function paintRing(g, shape, color, width) {
  const [kind, x, y, size] = shape;
  g.beginPath();
  if (kind == "r" && !shape[8]) g.rect(x - size[0] / 2, y - size[1] / 2, ...size);
  else g.arc(x, y, reach(shape) + width, 0, 7);
  g.strokeStyle = color;
  g.lineWidth = width;
  g.stroke();
}

// ---------------------------------------------------------------- moves

// The width of the arrow of a move on a board of this size.
const markWidth = size => 0.012 * Math.max(...size);

// The radius of a ring at a point: that of the smallest shape there, at most that of a cell.
function radiusAt(shapes, point, size) {
  const found = shapes.filter(shape => shape[0] != "t" && isInside(shape, point)).map(reach);
  return Math.min(...found, Math.max(0.48, Math.max(...size) / 40));
}

// The upright rectangle whose center is a point, if any: of an entity, such as a row of a table, or
// with an outline on the ground, such as a card. `box_at` in spots.py does the same.
function boxAt(ground, shapes, [x, y], size) {
  const most = Math.max(...size) / 4;
  const isBox = shape => shape[0] == "r" && !shape[8] && Math.min(...shape[3]) / 2 < most
    && Math.hypot(shape[1] - x, shape[2] - y) < 0.01 * most;
  return shapes.findLast(shape => shape[7] >= 0 && isBox(shape)) ?? ground.findLast(shape => shape[5] && isBox(shape));
}

// Draws the path of a move: a ring or box, or an arrow.
//   color   of the mark, one color
//   halo    a color around the mark, so that it is seen on any ground; "" = none
//   width   of the arrow in units
//   radius  of a ring at a point, in units: a function
//   box     the rectangle around a point, if any, which is marked instead of a ring: a function
//   dash    whether the line is dashed
//   isPast  whether what moved is at the end of the path now, not at its start
function paintMark(g, path, {color, halo = "", width, radius, box = () => null, dash = false, isPast = false}) {
  const line = new Path2D(), head = new Path2D();
  let [x, y] = path.at(-1);
  const [fromX, fromY] = path.at(-2) ?? [x, y];
  let length = Math.hypot(x - fromX, y - fromY);
  if (length < 1e-6) {
    const found = box([x, y]);
    // The frame of a low row leaves its text readable, and the rows beside it.
    if (found) width = Math.min(width, Math.min(...found[3]) / 10);
    if (found) line.roundRect(x - found[3][0] / 2, y - found[3][1] / 2, ...found[3], found[9] || 0);
    else line.arc(x, y, Math.max(radius([x, y]) - width / 2, width), 0, 7);
  } else {
    // Arrows leave the sign of what moves readable: they start or end at its edge.
    const cut = (point, from) => {
      const far = Math.hypot(point[0] - from[0], point[1] - from[1]) || 1;
      const share = Math.min(radius(from), 0.45 * far) / far;
      return [from[0] + share * (point[0] - from[0]), from[1] + share * (point[1] - from[1])];
    };
    const start = isPast ? path[0] : cut(path[1], path[0]);
    if (isPast) [x, y] = cut([fromX, fromY], [x, y]);
    length = Math.hypot(x - fromX, y - fromY);
    // Short arrows are thin, and their heads leave something of the line.
    width = Math.min(width, length / 7);
    const long = Math.min(4 * width, length / 2), angle = Math.atan2(y - fromY, x - fromX);
    const along = (back, aside) => [
      x - back * Math.cos(angle) - aside * Math.sin(angle),
      y - back * Math.sin(angle) + aside * Math.cos(angle),
    ];
    line.moveTo(...start);
    path.slice(1, -1).forEach(point => line.lineTo(...point));
    line.lineTo(...along(long * 0.9, 0));
    head.moveTo(x, y);
    head.lineTo(...along(long, long * 0.55));
    head.lineTo(...along(long, -long * 0.55));
    head.closePath();
  }
  g.lineJoin = "round";
  g.lineCap = "butt";
  if (halo) {
    g.strokeStyle = halo;
    g.lineWidth = 2 * width;
    g.stroke(line);
    g.lineWidth = width;
    g.stroke(head);
  }
  g.strokeStyle = g.fillStyle = color;
  g.lineWidth = width;
  g.setLineDash(dash ? [2 * width, 1.5 * width] : []);
  g.stroke(line);
  g.setLineDash([]);
  g.fill(head);
}

// ---------------------------------------------------------------- around the board

// Fills a list with the legend: [[name, shapes in a box of 1 x 1], ...], then [[name, color], ...]
// of the sides. Call it again when the palette changes.
function showLegend(list, legend, sides = []) {
  const items = legend.map(([name, shapes]) => {
    const canvas = make("canvas");
    paintShapes(fitCanvas(canvas, [1, 1], [20, 20]), shapes, () => showLegend(list, legend, sides));
    return [name, canvas];
  });
  for (const [name, color] of sides) {
    const swatch = make("i");
    swatch.style.background = tone(color);
    items.push([name, swatch]);
  }
  list.hidden = !items.length;
  list.replaceChildren(...items.map(([name, sign]) => {
    const item = make("li");
    item.append(sign, name);
    return item;
  }));
}

// Shows words in the element `tip` next to the pointer; hides it if there are none.
function showTip(tip, words, event) {
  tip.hidden = !words;
  if (!words) return;
  tip.textContent = words;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6);
  const above = event.clientY - tip.offsetHeight - 14;
  tip.style.left = Math.max(left, 6) + "px";
  tip.style.top = (above < 6 ? event.clientY + 22 : above) + "px";
}

// ---------------------------------------------------------------- thoughts

// The choices of one actor, each [words, share, kind]: the share is null if it is unknown, and -1 if
// the choice is not allowed; the kind is 1 for the chosen one, 2 for a number between its bounds.
function barsOf(title, choices, more) {
  const bars = choices.map(([words, share, kind]) => {
    const row = make("div", null, kind ? "bar hit" : "bar"), name = make("span", (kind ? "● " : "") + words);
    row.append(name);
    if (share == null) name.style.gridColumn = "1 / -1";
    else if (share < 0) row.append(make("em", "not allowed", "dim"));
    else {
      const room = make("div"), bar = make("i");
      bar.style.width = 100 * share + "%";
      room.append(bar);
      row.append(room, make("em", kind == 2 ? "" : percent(share)));
    }
    return row;
  });
  return [make("h2", title), ...bars, ...more ? [make("div", "and " + more + " more", "dim")] : []];
}

// A bar for each earlier step that a network remembers, from `past_fields` of bars.py, and words on one
// of them: the highest, or that under the pointer. A click calls `go` with the step.
function pastOf([last, changes, values], go) {
  const most = Math.max(...changes), strip = make("div", null, "past"), words = make("div", null, "dim");
  const stepOf = i => i || !last ? "step " + (last + i) : "steps 0 to " + last;
  const tell = i => {
    const value = values ? ", value " + number(values[i]) : "";
    words.textContent = `without ${stepOf(i)}, ${percent(changes[i])} of the choice moves${value}`;
  };
  const tellHighest = () => {
    if (most >= 0.005) tell(changes.indexOf(most));
    else words.textContent = "no step matters";
  };
  strip.append(...changes.map((change, i) => {
    const room = make("div"), bar = make("i");
    bar.style.height = 100 * change / Math.max(most, 0.05) + "%";
    room.onpointerenter = () => tell(i);
    if (go) room.onclick = () => go(last + i);
    room.append(bar);
    return room;
  }));
  strip.onpointerleave = tellHighest;
  strip.style.cursor = go ? "pointer" : "";
  tellHighest();
  return [make("h2", "Past"), strip, words];
}
