// All layers and heads in small, each a button; one of them is in the order of Tab, arrow keys go to the others.

function drawOverview(place, map, numbers, pick) {
  const table = coloursOf();
  const kinds = [...Array(map.heads).keys(), ...(map.heads > 1 ? ["mean", "max"] : [])];
  const titles = kinds.map((head) => make("th", { scope: "col", textContent: headName(map, head) }));
  const rows = [make("tr", {}, [make("td"), ...titles])];
  if (map.headNames.length) {
    const names = kinds.map((head) => make("th", { className: "made", textContent: map.headNames[head] ?? "" }));
    rows.push(make("tr", {}, [make("td"), ...names]));
  }
  const buttons = [];
  for (let layer = 0; layer < map.layers; layer++) {
    const cells = kinds.map((head) => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      const matrix = matrixOf(map, numbers, layer, head);
      paint(canvas, matrix, map.queries.length, map.keys.length, topOf(matrix), table);
      const bits = entropyOf(map, layer, head, matrix).toFixed(2);
      const button = make("button", { type: "button", className: "thumb", tabIndex: -1 }, [canvas, bits]);
      button.setAttribute("aria-label", `Layer ${layer + map.firstLayer}, ${headName(map, head)}, entropy ${bits} bits`);
      button.addEventListener("click", () => pick(layer, head));
      buttons.push({ button, layer, head });
      return make("td", {}, [button]);
    });
    rows.push(make("tr", {}, [make("th", { scope: "row", textContent: `layer ${layer + map.firstLayer}` }), ...cells]));
  }
  const grid = make("table", { className: "heads" }, rows);
  grid.addEventListener("keydown", (event) => step(event, buttons, kinds.length));
  place.replaceChildren(grid);
  return buttons;
}

function step(event, buttons, width) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width };
  const now = buttons.findIndex(({ button }) => button === document.activeElement);
  const next = now + (moves[event.key] ?? 0);
  if (now < 0 || next === now || next < 0 || next >= buttons.length) return;
  event.preventDefault();
  buttons[now].button.tabIndex = -1;
  buttons[next].button.tabIndex = 0;
  buttons[next].button.focus();
}

function markOverview(buttons, layer, head) {
  for (const each of buttons) {
    const on = each.layer === layer && each.head === head;
    each.button.setAttribute("aria-pressed", String(on));
    each.button.tabIndex = on ? 0 : -1;
  }
}

function headName(map, head) { return head === "mean" ? "mean" : head === "max" ? "largest" : `head ${head + 1}`; }

function entropyOf(map, layer, head, matrix) {
  if (map.base) return bitsOf(matrix, map.queries.length, map.keys.length);
  if (head === "mean") return map.meanEntropy[layer];
  return head === "max" ? map.maxEntropy[layer] : map.entropy[layer][head];
}

function topOf(matrix) {
  let top = 0;
  for (const weight of matrix) if (weight > top) top = weight;
  return top || 1;
}
