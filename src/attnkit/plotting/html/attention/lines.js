// The map as lines: keys on the left, queries on the right, between them a line for each weight worth one.

const MOST_LINES = 1500;
const STEP = 24;

function drawLines(place, view) {
  const { map, matrix, top } = view;
  const columns = map.keys.length;
  const pen = make("canvas").getContext("2d");
  pen.font = FONT.replace("12px", "13px");
  const keys = map.keys.map((token) => fit(pen, token));
  const queries = map.queries.map((token) => fit(pen, token));
  const left = widest(pen, [...keys, "keys"]) + 16;
  const right = widest(pen, [...queries, "queries"]) + 16;
  const gap = Math.max(90, Math.min(420, place.clientWidth - left - right - 4));
  const height = STEP * Math.max(keys.length, queries.length) + 30;
  const svg = draw("svg", { width: left + gap + right, height, "aria-hidden": "true" });
  svg.append(draw("text", { x: left - 8, y: 14, "text-anchor": "end" }, "keys"));
  svg.append(draw("text", { x: left + gap + 8, y: 14 }, "queries"));
  const y = (number) => 30 + STEP * (number + 0.5);
  const { lines, least } = strongest(matrix, top);
  for (const i of lines) {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const on = view.row < 0 || row === view.row;
    const share = matrix[i] / top;
    const middle = left + gap / 2;
    svg.append(draw("path", {
      d: `M${left} ${y(column)}C${middle} ${y(column)} ${middle} ${y(row)} ${left + gap} ${y(row)}`,
      "stroke-width": (0.6 + 3.4 * share).toFixed(2),
      "stroke-opacity": ((on ? 1 : 0.12) * (0.1 + 0.9 * share)).toFixed(3),
    }));
  }
  const side = (text, x, number, anchor, on, choose) => {
    const element = label(text, x, y(number) + 4.5, anchor, { class: on ? "on" : "" });
    element.addEventListener("pointerenter", choose);
    element.addEventListener("pointerdown", choose);
    svg.append(element);
  };
  keys.forEach((text, column) => side(text, left - 8, column, "end", column === view.column,
    () => view.choose(Math.max(view.row, 0), column)));
  queries.forEach((text, row) => side(text, left + gap + 8, row, "start", row === view.row,
    () => view.choose(row, heaviest(view, row))));
  place.replaceChildren(svg);
  return least;
}

// The places of the weights that get a line, and the least share of the largest among them.
function strongest(matrix, top) {
  let least = 0.05;
  const there = [];
  matrix.forEach((weight, i) => { if (weight >= least * top && weight > 0) there.push(i); });
  there.sort((a, b) => matrix[b] - matrix[a]);
  if (there.length > MOST_LINES) least = matrix[there[MOST_LINES]] / top;
  return { lines: there.slice(0, MOST_LINES).reverse(), least };
}

function heaviest(view, row) {
  const columns = view.map.keys.length;
  let best = 0;
  for (let column = 1; column < columns; column++) {
    if (view.matrix[row * columns + column] > view.matrix[row * columns + best]) best = column;
  }
  return best;
}
