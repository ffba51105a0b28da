// The plots of value and score over the episode, below the state of the player.

// One plot for the values and one for the scores, each with its own scale. Everything but the
// playhead is drawn once, on `layer`, until the size or the palette changes.
let plots = [], layer = null, layerKey = "";
const PLOT = 72, LABEL = 11, FONT = LABEL + "px system-ui, sans-serif";

// The plots whose lines are not constant: {name, color, lines: [[agent, points]], low, high}.
function findPlots() {
  for (const [key, name] of [["v", "value"], ["s", "score"]]) {
    const lines = [];
    let low = Infinity, high = -Infinity;
    for (let agent = 0; agent < data.agents; agent++) {
      const points = [];
      frames.forEach((frame, i) => {
        if (frame.g != agent || frame[key] == null) return;
        points.push([i, frame[key]]);
        low = Math.min(low, frame[key]);
        high = Math.max(high, frame[key]);
      });
      if (points.length) lines.push([agent, points]);
    }
    if (low < high) plots.push({name, color: "--" + name, lines, low, high});
  }
}

// The names of the agents, none of them wider than some pixels.
function shortNames(room) {
  scratch.font = FONT;
  const fits = name => scratch.measureText(name).width <= room;
  return data.names.map(name => {
    if (fits(name)) return name;
    while (name && !fits(name + "…")) name = name.slice(0, -1);
    return name + "…";
  });
}

function geometry() {
  const canvas = $("curve"), names = shortNames(canvas.clientWidth / 4);
  const wide = plots.flatMap(({low, high}) => [low, high].map(value => scratch.measureText(number(value)).width));
  const left = Math.max(42, ...wide.map(each => each + 8));
  const widths = names.map(name => scratch.measureText(name).width);
  const right = 8 + (data.agents > 1 ? Math.max(...widths) : 0);
  const width = canvas.clientWidth - left - right;
  return {
    canvas,
    names,
    left,
    width,
    xOf: i => left + i * width / (end() || 1),
    yOf: (plot, value) => {
      const top = plots.indexOf(plot) * PLOT + 20;
      return top + (plot.high - value) / (plot.high - plot.low) * (PLOT - 28);
    },
  };
}

function showCurve() {
  const {canvas, left, width, xOf, yOf} = geometry();
  canvas.hidden = !plots.length;
  if (!plots.length) return;
  const ratio = devicePixelRatio || 1, height = plots.length * PLOT + 12;
  const key = [canvas.clientWidth, ratio, night.matches].join();
  if (key != layerKey) {
    layerKey = key;
    canvas.style.height = height + "px";
    layer = make("canvas");
    for (const each of [canvas, layer]) {
      each.width = canvas.clientWidth * ratio;
      each.height = height * ratio;
    }
    const g = layer.getContext("2d");
    g.scale(ratio, ratio);
    for (const plot of plots) paintPlot(g, plot);
    g.fillStyle = cssColor("--dim");
    g.textAlign = "left";
    g.fillText(0, left, height - 2);
    g.textAlign = "right";
    g.fillText(end(), left + width, height - 2);
  }
  const g = canvas.getContext("2d");
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, canvas.width, canvas.height);
  g.drawImage(layer, 0, 0);
  g.scale(ratio, ratio);
  g.fillStyle = cssColor("--playhead");
  g.fillRect(xOf(now) - 1, 4, 2, height - 16);
  for (const plot of plots) {
    for (const [, points] of plot.lines) {
      const [i, value] = points.findLast(point => point[0] <= now) ?? points[0];
      g.beginPath();
      g.arc(xOf(i), yOf(plot, value), 3.5, 0, 7);
      g.fill();
    }
  }
  canvas.ariaValueNow = now;
  canvas.ariaValueText = $("state").firstChild.data;
}

function paintPlot(g, plot) {
  const {names, left, width, xOf, yOf} = geometry();
  const isAlone = data.agents < 2, {low, high, lines} = plot;
  g.font = FONT;
  for (const [value, color] of [[low, "--edge"], [high, "--soft"], [0, "--edge"]]) {
    if (value < low || value > high) continue;
    const y = yOf(plot, value), isBetween = value != low && value != high;
    g.fillStyle = cssColor(color);
    g.fillRect(left, y, width, isBetween ? 0.5 : 1);
    g.fillStyle = cssColor("--dim");
    g.textAlign = "right";
    if (!isBetween) g.fillText(number(value), left - 5, y + 4);
  }
  g.textAlign = "left";
  g.fillStyle = cssColor(isAlone ? plot.color : "--dim");
  g.fillText(plot.name, left, yOf(plot, high) - 7);
  const labels = [];
  for (const [agent, points] of lines) {
    const color = isAlone ? cssColor(plot.color) : tone(data.sides[agent]);
    g.strokeStyle = g.fillStyle = color;
    g.lineWidth = 1.5;
    g.lineJoin = "round";
    g.beginPath();
    for (const [i, value] of points) g.lineTo(xOf(i), yOf(plot, value));
    g.stroke();
    // Few points would be a short line, or none.
    if (points.length <= 30) for (const [i, value] of points) g.fillRect(xOf(i) - 2, yOf(plot, value) - 2, 4, 4);
    if (!isAlone) labels.push([yOf(plot, points.at(-1)[1]), names[agent], color]);
  }
  let last = -Infinity;
  for (const [y, name, color] of labels.sort((a, b) => a[0] - b[0])) {
    last = Math.max(y, last + LABEL);
    g.fillStyle = color;
    g.fillText(name, left + width + 6, last + 4);
  }
}
