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

// A table with a heading row; cells are texts, or [text, class].
function tableOf(caption, heads, rows) {
  const cell = (tag, given, scope) => {
    const [text, name] = Array.isArray(given) ? given : [given, ""];
    return make(tag, { textContent: text, className: name, ...(scope ? { scope } : {}) });
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
