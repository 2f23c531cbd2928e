// What a page holds, and small tools for building it. Text becomes text nodes and nothing else.

const data = JSON.parse(document.getElementById("data").textContent);

// The bytes that an element holds as compressed text in base 64.
async function inflated(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function make(tag, properties = {}, children = []) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function byId(name) { return document.getElementById(name); }

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// The direction of a text: that of its first letter.
function directionOf(text) {
  const letter = /\p{L}/u.exec(text);
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(letter[0]) ? "rtl" : "ltr";
}

// A text, or a list of words in the direction of the first of them that has one.
function textOf(text) {
  if (!Array.isArray(text)) return [isolated(text)];
  const words = text.flatMap((word, i) => (i ? [" ", isolated(word)] : [isolated(word)]));
  return [make("span", { dir: directionOf(text.join(" ")), className: "list" }, words)];
}

// A text inside another one, whose direction does not change the other's.
function isolated(text) { return make("bdi", { textContent: text }); }

// SVG text beside x: "start" is to the right of it and "end" to the left, whatever the direction of the text.
function label(text, x, y, anchor, attributes = {}) {
  const direction = directionOf(text);
  const other = { start: "end", end: "start" }[anchor] ?? anchor;
  return draw("text", { x, y, direction, "text-anchor": direction === "rtl" ? other : anchor, ...attributes }, text);
}

// A table with a heading row; cells are texts, or [text, class], in which the text may be a list of words.
function tableOf(caption, heads, rows) {
  const cell = (tag, given, scope) => {
    const [text, name] = Array.isArray(given) ? given : [given, ""];
    return make(tag, { className: name, ...(scope ? { scope } : {}) }, textOf(text));
  };
  return make("table", {}, [
    make("caption", { textContent: caption }),
    make("thead", {}, [make("tr", {}, heads.map((head) => cell("th", head, "col")))]),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((given, i) => cell(i ? "td" : "th", given, i ? "" : "row"))))),
  ]);
}

function facts(place, rows) {
  place.replaceChildren(...rows.map(([name, value]) => make("div", {}, [
    make("dt", { textContent: name }), make("dd", { textContent: value, dir: "auto" })])));
}
