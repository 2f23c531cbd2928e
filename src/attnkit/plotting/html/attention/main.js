// What is chosen, and everything that follows from it.

const now = { sentence: 0, map: 0, layer: 0, head: "mean", unit: data.unit, special: data.special, shape: "matrix", scale: "largest", row: -1, column: -1 };
let buttons = [];
// Weights come later: only what was asked for last may draw, the map and the overview each by itself.
let turn = 0;
let overviewTurn = 0;

function options(place, name, given, chosen, choose) {
  const list = make("div", { className: "options" }, given.map(([value, text]) => {
    const input = make("input", { type: "radio", name, value: String(value), checked: value === chosen });
    input.setAttribute("aria-label", name === "layer" || name === "head" ? `${name} ${text}` : text);
    input.addEventListener("change", () => choose(value));
    return make("label", { className: "option" }, [input, make("span", { textContent: text })]);
  }));
  byId(place).replaceChildren(byId(place).querySelector("legend"), list);
  byId(place).hidden = given.length < 2;
}

function mapNow() { return viewOf(data.sentences[now.sentence].maps[now.map], now.unit, now.special); }

function pickSentence(number) {
  const sentence = data.sentences[number];
  Object.assign(now, { sentence: number, row: -1, column: -1, map: Math.max(0, Math.min(now.map, sentence.maps.length - 1)) });
  facts(byId("sentence-facts"), sentence.facts);
  ["source-name", "target-name"].forEach((name, i) => { byId(name).textContent = sentence.sides[i]; });
  byId("pruned").checked = sentence.tree.length <= 120;
  drawTree(sentence);
  tabulateTree(sentence);
  // What is chosen here outlives a choice, and with it the focus.
  options("kinds", "kind", sentence.maps.map((map, i) => [i, map.title]), now.map, pickMap);
  options("views", "view", [["matrix", "Matrix"], ["lines", "Lines"]], now.shape, (shape) => { now.shape = shape; show(); });
  options("scales", "scale", [["largest", "the map's largest"], ["one", "weight 1"]], now.scale, (scale) => { now.scale = scale; show(); });
  pickMap(now.map);
}

function pickMap(number) {
  const sentence = data.sentences[now.sentence];
  const map = sentence.maps[number];
  Object.assign(now, { map: number, layer: map.layers - 1, head: map.heads > 1 ? "mean" : 0 });
  const heads = map.heads > 1 ? [["mean", "mean"], ["max", "largest"]] : [];
  options("layers", "layer", [...Array(map.layers).keys()].map((i) => [i, String(i + map.firstLayer)]), now.layer, (layer) => pick(layer, now.head));
  options("heads", "head", [...heads, ...[...Array(map.heads).keys()].map((i) => [i, String(i + 1)])], now.head, (head) => pick(now.layer, head));
  const units = unitsOf(map);
  const unit = units.includes(now.unit) ? now.unit : "token";
  options("units", "unit", units.map((each) => [each, plural[each]]), unit, (each) => { now.unit = each; pickView(); });
  if (hasSpecial(map)) {
    const box = make("input", { type: "checkbox", id: "special", checked: now.special });
    box.addEventListener("change", () => { now.special = box.checked; pickView(); });
    byId("units").append(make("label", { className: "beside" }, [box, " special tokens"]));
    byId("units").hidden = false;
  }
  pickView();
}

function pickView() {
  Object.assign(now, { row: -1, column: -1 });
  const map = mapNow();
  // Nothing of the map before stays: it would answer the pointer until the weights of this one are there.
  turn++;
  buttons = [];
  byId("plot").replaceChildren();
  byId("overview").replaceChildren();
  strips(data.sentences[now.sentence], map);
  overview();
}

// The words: with a map between two texts both sides of it, else the text that looks at itself.
function strips(sentence, map) {
  const fill = (place, tokens, text) => {
    byId(place).dir = directionOf(text);
    byId(place).replaceChildren(...(tokens ? tokens.map((token) => make("bdi", { className: "token", textContent: token })) : [text]));
  };
  const own = { cross: [map.keys, map.queries], encoder: [map.keys, null], decoder: [null, map.queries] }[map.kind] ?? [map.keys, null];
  fill("source", own[0], sentence.source);
  fill("target", own[1], sentence.target);
  for (const name of ["target", "target-name"]) byId(name).hidden = !sentence.target;
}

async function overview() {
  const mine = ++overviewTurn;
  const map = mapNow();
  const numbers = await numbersOf(map);
  if (mine !== overviewTurn) return;
  byId("most").textContent = map.keys.length ? Math.log2(map.keys.length).toFixed(2) : "0";
  buttons = drawOverview(byId("overview"), map, numbers, pick);
  show();
}

function pick(layer, head) {
  Object.assign(now, { layer, head });
  for (const [name, value] of [["layer", layer], ["head", head]]) {
    for (const input of document.getElementsByName(name)) input.checked = input.value === String(value);
  }
  show();
}

async function show() {
  const mine = ++turn;
  const map = mapNow();
  const numbers = await numbersOf(map);
  if (mine !== turn) return;
  const matrix = matrixOf(map, numbers, now.layer, now.head);
  const largest = topOf(matrix);
  const top = now.scale === "one" ? 10 ** digitsOf(map) : largest;
  const made = map.headNames[now.head] ? ` (${map.headNames[now.head]})` : "";
  const head = now.head === "mean" ? "mean of all heads" : now.head === "max" ? "largest of all heads" : `head ${now.head + 1}${made}`;
  byId("plot-title").textContent = `${map.title}, layer ${now.layer + map.firstLayer}, ${head}`;
  const axes = now.shape === "matrix" ? map.axes : map.axes.replace(/rows?:/, "right:").replace("columns:", "left:");
  const view = { map, matrix, top, row: now.row, column: now.column, choose };
  let note = "";
  if (now.shape === "lines") note = `; lines below ${((drawLines(byId("plot"), view) * top) / 10 ** digitsOf(map)).toFixed(3)} are omitted`;
  else drawMatrix(byId("plot"), view);
  byId("axes").textContent = `${axes}${note}; mean entropy ${entropyOf(map, now.layer, now.head, matrix).toFixed(2)} bits per row`;
  byId("high").textContent = weightText(map, top);
  const ramp = byId("ramp");
  paint(ramp, Uint16Array.from({ length: 128 }, (_, i) => i), 1, 128, 127, coloursOf());
  const rule = map.base && map.unit !== "token" ? " A column is the sum over its tokens, a row the mean over its tokens." : "";
  byId("exact").textContent = `Weights are rounded to ${digitsOf(map)} decimals.${rule}`;
  markOverview(buttons, now.layer, now.head);
  tell(view);
  if (byId("table").open) tabulate(view);
  byId("table").ontoggle = () => { if (byId("table").open) tabulate(view); };
}

function choose(row, column) {
  if (row === now.row && column === now.column) return;
  const map = mapNow();
  if (row >= map.queries.length || column >= map.keys.length) return;
  Object.assign(now, { row, column });
  show();
}

function tell({ map, matrix }) {
  const { row, column } = now;
  const both = { source: column, target: row };
  if (map.kind === "encoder") both.target = -1;
  if (map.kind === "decoder") both.source = -1;
  for (const [place, number] of Object.entries(both)) {
    byId(place).querySelectorAll(".token").forEach((token, i) => token.classList.toggle("on", i === number));
  }
  if (row < 0) {
    byId("readout").replaceChildren("Hover over a cell, or select one with the arrow keys, to see its weight.");
    return;
  }
  const weight = weightText(map, matrix[row * map.keys.length + column]);
  byId("readout").replaceChildren(make("strong", { textContent: weight }), " of “", isolated(map.queries[row]), `” (row ${row + 1}) goes to “`, isolated(map.keys[column]), `” (column ${column + 1})`);
}

function tabulate({ map, matrix }) {
  const rows = map.queries.map((token, row) => [[token, "words"],
    ...map.keys.map((_, column) => weightText(map, matrix[row * map.keys.length + column]))]);
  byId("cells").replaceChildren(tableOf(byId("plot-title").textContent, ["", ...map.keys], rows));
}

byId("plot").addEventListener("keydown", (event) => {
  const map = mapNow();
  const [rows, columns] = [map.queries.length, map.keys.length];
  const row = Math.max(now.row, 0);
  const column = Math.max(now.column, 0);
  const goals = {
    ArrowUp: [row - 1, column], ArrowDown: [now.row < 0 ? 0 : row + 1, column],
    ArrowLeft: [row, column - 1], ArrowRight: [row, now.row < 0 ? 0 : column + 1],
    Home: [row, 0], End: [row, columns - 1],
  };
  if (!(event.key in goals)) return;
  event.preventDefault();
  const [r, c] = goals[event.key];
  choose(Math.min(Math.max(r, 0), rows - 1), Math.min(Math.max(c, 0), columns - 1));
  keepInSight();
});

// With the arrow keys the chosen cell stays in the part of a large map that is seen.
function keepInSight() {
  const place = byId("plot");
  const canvas = place.querySelector("canvas");
  if (!canvas) return;
  const [left, upper, cell] = ["left", "upper", "cell"].map((name) => Number(canvas.dataset[name]));
  const [x, y] = [left + now.column * cell, upper + now.row * cell];
  if (x < place.scrollLeft + left || x + cell > place.scrollLeft + place.clientWidth) place.scrollLeft = x - place.clientWidth / 2;
  if (y < place.scrollTop + upper || y + cell > place.scrollTop + place.clientHeight) place.scrollTop = y - place.clientHeight / 2;
}

facts(byId("facts"), data.facts);
byId("choice").hidden = data.sentences.length < 2;
byId("sentence").append(...data.sentences.map((sentence, i) => make("option", { value: String(i), dir: "auto", textContent: `${i + 1}. ${sentence.source.slice(0, 80)}` })));
byId("sentence").addEventListener("change", (event) => pickSentence(Number(event.target.value)));
byId("pruned").addEventListener("change", () => drawTree(data.sentences[now.sentence]));
dark.addEventListener("change", () => overview());
let waiting = 0;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(show, 100); });
if (data.sentences.length) pickSentence(0);
