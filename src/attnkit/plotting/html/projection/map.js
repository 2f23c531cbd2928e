// Where words stand on the canvas, and which of them can be named without one name lying on another.

const SPAN = 65535; // of the coordinates
const EDGE = 28; // pixels left free around the whole map
const NEAREST_ZOOM = 60; // how many times closer than the whole map
const canvas = byId("canvas");
const view = { x: SPAN / 2, y: SPAN / 2, scale: 1, width: 1, height: 1 };
const widths = new Map();

const box = { left: Math.min(...data.x), right: Math.max(...data.x), low: Math.min(...data.y), high: Math.max(...data.y) };

function scaleOf(box) {
  const [across, up] = [Math.max(1, box.right - box.left), Math.max(1, box.high - box.low)];
  return Math.min((view.width - 2 * EDGE) / across, (view.height - 2 * EDGE) / up);
}

function wholeMap() { look(box); }

// Look at a box, from not closer than is of use.
function look(box) {
  view.x = (box.left + box.right) / 2;
  view.y = (box.low + box.high) / 2;
  view.scale = bounded(scaleOf(box));
}

function bounded(scale) {
  const whole = Math.max(scaleOf(box), 1e-6);
  return Math.min(Math.max(scale, whole / 2), whole * NEAREST_ZOOM);
}

function across(word) { return (data.x[word] - view.x) * view.scale + view.width / 2; }

function down(word) { return (view.y - data.y[word]) * view.scale + view.height / 2; }

function isSeen(word) {
  const [x, y] = [across(word), down(word)];
  return x >= 0 && y >= 0 && x <= view.width && y <= view.height;
}

// Zoom so that what is at a place of the canvas stays there.
function zoomAt(x, y, factor) {
  const scale = bounded(view.scale * factor);
  view.x += (x - view.width / 2) * (1 / view.scale - 1 / scale);
  view.y -= (y - view.height / 2) * (1 / view.scale - 1 / scale);
  view.scale = scale;
}

function move(x, y) {
  view.x = Math.min(Math.max(view.x + x / view.scale, box.left), box.right);
  view.y = Math.min(Math.max(view.y - y / view.scale, box.low), box.high);
}

// The word whose point is nearest to a place, none where all are farther than so many pixels.
function wordAt(x, y, most) {
  let [best, least] = [-1, most * most];
  for (let i = 0; i < data.words.length; i++) {
    const distance = (across(i) - x) ** 2 + (down(i) - y) ** 2;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

function fit() {
  const place = byId("map").getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  [view.width, view.height] = [Math.max(1, place.width), Math.max(1, place.height)];
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

function widthOf(pen, word, bold) {
  const key = bold ? -1 - word : word;
  if (!widths.has(key)) widths.set(key, pen.measureText(data.words[word]).width);
  return widths.get(key);
}

// Names that find room, in the order given: right of the point, left of it, above or below. Rows of a grid of 32 pixels
// hold what lies there, so that a name is compared with the few that are near.
function place(pen, order, marked) {
  const [found, rows, high] = [[], new Map(), 16];
  const free = (area) => {
    for (let row = area.top >> 5; row <= area.bottom >> 5; row++) {
      for (const other of rows.get(row) ?? []) {
        if (area.left < other.right + 5 && other.left < area.right + 5 && area.top < other.bottom + 1 && other.top < area.bottom + 1) return false;
      }
    }
    return area.left >= 0 && area.top >= 0 && area.right <= view.width && area.bottom <= view.height;
  };
  const take = (area) => {
    for (let row = area.top >> 5; row <= area.bottom >> 5; row++) rows.set(row, [...(rows.get(row) ?? []), area]);
  };
  for (const word of marked) { // nothing is written over their points
    const [x, y] = [across(word), down(word)];
    take({ left: x + 1, right: x - 1, top: y - 3, bottom: y + 3 });
  }
  let refused = 0;
  for (const word of order) {
    if (!isSeen(word)) continue;
    const special = marked.has(word);
    pen.font = fontOf(special);
    const [x, y, wide] = [across(word), down(word), widthOf(pen, word, special)];
    const gap = special ? 8 : 5;
    const corners = [[x + gap, y - high / 2], [x - gap - wide, y - high / 2], [x - wide / 2, y - high - gap + 2], [x - wide / 2, y + gap - 1]];
    const areas = corners.map(([left, top]) => ({ word, left, top, right: left + wide, bottom: top + high }));
    const area = areas.find(free);
    if (area) {
      found.push(area);
      take(area);
    } else if (!special && ++refused > 1500) break;
  }
  return found;
}

function fontOf(bold) { return `${bold ? "600 " : ""}13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`; }

// Draw all words as points, and those of the order that find room by their names.
function paintMap(chosen, near, pointed) {
  const pen = canvas.getContext("2d");
  const colours = Object.fromEntries(["dot", "near", "halo", "ink", "accent"].map((name) => [name, style(`--${name}`)]));
  pen.clearRect(0, 0, view.width, view.height);
  const closer = Math.log2(Math.max(1, view.scale / scaleOf(box)));
  const size = (data.words.length > 3000 ? 1.2 : 2) + Math.min(1.8, closer / 2.5);
  pen.fillStyle = colours.dot;
  pen.globalAlpha = 0.75;
  pen.beginPath();
  let seen = 0;
  for (let i = 0; i < data.words.length; i++) {
    if (!isSeen(i)) continue;
    const [x, y] = [across(i), down(i)];
    pen.moveTo(x + size, y);
    pen.arc(x, y, size, 0, 7);
    seen++;
  }
  pen.fill();
  pen.globalAlpha = 1;
  if (chosen >= 0) lines(pen, chosen, near, colours);
  const marked = new Set([chosen, pointed, ...near].filter((word) => word >= 0));
  const labels = place(pen, [...marked, ...Array(data.words.length).keys()].filter((word, i) => i < marked.size || !marked.has(word)), marked);
  [pen.textBaseline, pen.lineJoin, pen.lineWidth, pen.strokeStyle] = ["middle", "round", 3, colours.halo];
  for (const { word, left, top, bottom } of labels) {
    pen.font = fontOf(marked.has(word));
    pen.fillStyle = word === chosen || word === pointed ? colours.accent : near.includes(word) ? colours.near : colours.ink;
    pen.strokeText(data.words[word], left, (top + bottom) / 2);
    pen.fillText(data.words[word], left, (top + bottom) / 2);
  }
  return { labels, seen };
}

function lines(pen, chosen, near, colours) {
  pen.strokeStyle = pen.fillStyle = colours.near;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.45;
  pen.beginPath();
  for (const word of near) {
    pen.moveTo(across(chosen), down(chosen));
    pen.lineTo(across(word), down(word));
  }
  pen.stroke();
  pen.globalAlpha = 1;
  const dot = (word, size) => { pen.beginPath(); pen.arc(across(word), down(word), size, 0, 7); pen.fill(); };
  for (const word of near) dot(word, 3.5);
  pen.fillStyle = colours.accent;
  dot(chosen, 5);
}
