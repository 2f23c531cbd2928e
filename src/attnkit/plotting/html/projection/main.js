// What is chosen and pointed at, and everything that follows from it.

const NEIGHBOURS = 12;
const now = { word: -1, near: [], pointed: -1, drawn: null, found: [], place: -1 };
let waiting = 0;

function paint() {
  cancelAnimationFrame(waiting);
  waiting = 0;
  now.drawn = paintMap(now.word, now.near, now.pointed);
  canvas.labels = now.drawn.labels; // for whoever looks on: where the names lie
  const count = (number) => number.toLocaleString("en");
  byId("note").textContent = `${data.note} ${count(now.drawn.seen)} of ${count(data.words.length)} words are visible, ${count(now.drawn.labels.length)} labelled.`;
}

function redraw() { waiting ||= requestAnimationFrame(paint); }

function choose(word, go) {
  const found = word < 0 ? [] : nearest(word, NEIGHBOURS);
  Object.assign(now, { word, near: found.map(([other]) => other) });
  byId("word-title").textContent = word < 0 ? "No word selected" : data.words[word];
  byId("said").textContent = word < 0 ? "Click a word in the map or search for a word to see its nearest neighbours."
    : `Word ${(word + 1).toLocaleString("en")} of ${data.words.length.toLocaleString("en")}. ${found.length ? `Nearest neighbours among these words by cosine; the first is ${data.words[found[0][0]]}.` : "Its vector is zero: it has no neighbours."}`;
  byId("near").replaceChildren(...found.map(([other, cosine]) => neighbour(other, cosine)));
  if (go && word >= 0) lookAround(word);
  redraw();
}

function neighbour(word, cosine) {
  const button = make("button", { type: "button", textContent: data.words[word], dir: "auto" });
  button.addEventListener("click", () => {
    choose(word, true);
    byId("near").querySelector("button")?.focus({ preventScroll: true });
  });
  return make("li", {}, [button, make("span", { textContent: cosine.toFixed(2) })]);
}

// Bring a word into the middle, with as many of its neighbours around it as can be seen at no great distance.
function lookAround(word) {
  const reach = now.near.slice(0, 6).map((other) => [Math.abs(data.x[other] - data.x[word]), Math.abs(data.y[other] - data.y[word])]);
  const [x, y] = [0, 1].map((axis) => Math.max(SPAN / 40, ...reach.map((each) => each[axis])));
  look({ left: data.x[word] - x, right: data.x[word] + x, low: data.y[word] - y, high: data.y[word] + y });
}

// The next named word in a direction, or any where nobody is chosen.
function walk(right, lower) {
  const from = now.word >= 0 && isSeen(now.word) ? [across(now.word), down(now.word)] : [view.width / 2, view.height / 2];
  let [best, least] = [-1, Infinity];
  for (const { word } of now.drawn?.labels ?? []) {
    const [x, y] = [across(word) - from[0], down(word) - from[1]];
    const [along, aside] = [x * right + y * lower, Math.abs(x * lower) + Math.abs(y * right)];
    const distance = along + 2 * aside;
    const fits = now.word < 0 || (along > 0 && aside <= 1.5 * along);
    if (word !== now.word && fits && distance < least) [best, least] = [word, distance];
  }
  if (best < 0) return;
  choose(best, false);
  move(Math.max(0, across(best) - view.width * 0.85) + Math.min(0, across(best) - view.width * 0.15),
    Math.max(0, down(best) - view.height * 0.85) + Math.min(0, down(best) - view.height * 0.15));
}

function point(word) {
  if (word === now.pointed) return;
  now.pointed = word;
  byId("hover").textContent = word < 0 ? "" : `${data.words[word]} · word ${(word + 1).toLocaleString("en")}`;
  redraw();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in ARROWS && event.shiftKey) move(...ARROWS[event.key].map((way) => 60 * way));
  else if (event.key in ARROWS) walk(...ARROWS[event.key]);
  else if (event.key === "+" || event.key === "=") zoomAt(view.width / 2, view.height / 2, 1.5);
  else if (event.key === "-") zoomAt(view.width / 2, view.height / 2, 1 / 1.5);
  else if (event.key === "0" || event.key === "Home") wholeMap();
  else if (event.key === "Escape") choose(-1, false);
  else return;
  event.preventDefault();
  redraw();
});

// One finger or the mouse moves the map, two fingers zoom; what ends where it began is a click.
const fingers = new Map();
let travelled = 0;
const spotOf = (event) => {
  const place = canvas.getBoundingClientRect();
  return [event.clientX - place.left, event.clientY - place.top];
};
canvas.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  canvas.setPointerCapture(event.pointerId);
  if (!fingers.size) travelled = 0;
  fingers.set(event.pointerId, spotOf(event));
});
canvas.addEventListener("pointermove", (event) => {
  const spot = spotOf(event);
  const before = fingers.get(event.pointerId);
  if (!before) {
    point(wordAt(...spot, 14));
    return;
  }
  const [x, y] = [spot[0] - before[0], spot[1] - before[1]];
  travelled += Math.abs(x) + Math.abs(y);
  const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
  if (other) {
    const apart = (one) => Math.max(1, Math.hypot(one[0] - other[0], one[1] - other[1]));
    zoomAt((spot[0] + other[0]) / 2, (spot[1] + other[1]) / 2, apart(spot) / apart(before));
    move(-x / 2, -y / 2);
    travelled += 10;
  } else move(-x, -y);
  fingers.set(event.pointerId, spot);
  redraw();
});
function release(event) {
  const spot = fingers.get(event.pointerId);
  fingers.delete(event.pointerId);
  if (event.type !== "pointerup" || !spot || fingers.size || travelled > 6) return;
  choose(wordAt(...spot, 20), false);
}
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, release);
canvas.addEventListener("pointerleave", () => point(-1));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomAt(...spotOf(event), 2 ** (-event.deltaY * (event.deltaMode ? 0.05 : 0.0025)));
  redraw();
}, { passive: false });
byId("closer").addEventListener("click", () => { zoomAt(view.width / 2, view.height / 2, 1.5); redraw(); });
byId("farther").addEventListener("click", () => { zoomAt(view.width / 2, view.height / 2, 1 / 1.5); redraw(); });
byId("whole").addEventListener("click", () => { wholeMap(); redraw(); });

function offer(found, place) {
  Object.assign(now, { found, place });
  const input = byId("search");
  byId("found").replaceChildren(...found.map((word, i) => {
    const item = make("li", { id: `found-${i}`, role: "option", textContent: data.words[word], dir: "auto" });
    item.setAttribute("aria-selected", String(i === place));
    item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(word); });
    return item;
  }));
  byId("found").hidden = !found.length;
  input.setAttribute("aria-expanded", String(found.length > 0));
  if (place < 0) input.removeAttribute("aria-activedescendant");
  else input.setAttribute("aria-activedescendant", `found-${place}`);
  byId(`found-${place}`)?.scrollIntoView({ block: "nearest" });
}

function take(word) {
  byId("search").value = data.words[word];
  byId("none").textContent = "";
  offer([], -1);
  choose(word, true);
}

byId("search").addEventListener("input", (event) => {
  const found = search(event.target.value, 10);
  byId("none").textContent = found.length || !event.target.value.trim() ? "" : `None of the ${data.words.length.toLocaleString("en")} words contains this text.`;
  offer(found, -1);
});
byId("search").addEventListener("blur", () => offer([], -1));
byId("search").addEventListener("keydown", (event) => {
  const count = now.found.length;
  if (event.key === "ArrowDown" && count) offer(now.found, (now.place + 1) % count);
  else if (event.key === "ArrowUp" && count) offer(now.found, (now.place <= 0 ? count : now.place) - 1);
  else if (event.key === "Enter" && count) take(now.found[Math.max(0, now.place)]);
  else if (event.key === "Escape") offer([], -1);
  else return;
  event.preventDefault();
});

async function begin() {
  facts(byId("facts"), data.facts);
  byId("exactness").textContent = data.exactness;
  await readVectors();
  fit();
  wholeMap();
  paint();
  dark.addEventListener("change", redraw);
  new ResizeObserver(() => {
    const before = scaleOf(box);
    fit();
    view.scale = bounded((view.scale * scaleOf(box)) / before);
    paint(); // at once: a canvas of another size is empty, and would be seen so
  }).observe(byId("map"));
}
begin();
