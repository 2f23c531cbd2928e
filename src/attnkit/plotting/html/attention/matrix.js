// The map as a matrix: a canvas with the tokens along its sides and a cell for each weight.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, "Noto Sans", sans-serif';
const LONGEST = 130;

function drawMatrix(place, view) {
  const { map, matrix, top } = view;
  const [rows, columns] = [map.queries.length, map.keys.length];
  const canvas = make("canvas", { "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.font = FONT;
  const queries = map.queries.map((token) => fit(pen, token));
  const keys = map.keys.map((token) => fit(pen, token));
  const left = widest(pen, queries) + 8;
  const upper = widest(pen, keys) + 8;
  const room = place.clientWidth - left - 2;
  const cell = Math.max(11, Math.min(38, Math.floor(room / Math.max(columns, 1))));
  const [width, height] = [left + columns * cell + 2, upper + rows * cell + 2];
  const density = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  Object.assign(canvas.dataset, { left, upper, cell });
  pen.scale(density, density);
  pen.font = FONT;
  pen.textBaseline = "middle";
  labels(pen, view, queries, keys, { left, upper, cell });
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const share = matrix[row * columns + column] / top;
      const colour = colourOf(share);
      pen.fillStyle = `rgb(${colour.join(",")})`;
      pen.fillRect(left + column * cell, upper + row * cell, cell, cell);
      if (cell >= 30) figure(pen, view, row, column, colour, { left, upper, cell });
    }
  }
  pen.strokeStyle = style("--line");
  pen.strokeRect(left - 0.5, upper - 0.5, columns * cell + 1, rows * cell + 1);
  if (view.row >= 0) {
    pen.lineWidth = 2;
    pen.strokeStyle = style("--ink");
    pen.strokeRect(left + view.column * cell + 1, upper + view.row * cell + 1, cell - 2, cell - 2);
  }
  place.replaceChildren(canvas);
  follow(canvas, view, { left, upper, cell, rows, columns });
}

function labels(pen, view, queries, keys, { left, upper, cell }) {
  const size = Math.min(12, cell - 1);
  const set = (on) => {
    pen.font = FONT.replace("12px", `${on ? "700 " : ""}${size}px`);
    pen.fillStyle = style(on ? "--accent" : "--ink");
  };
  pen.textAlign = "right";
  queries.forEach((text, row) => {
    set(row === view.row);
    pen.direction = directionOf(text);
    pen.fillText(text, left - 6, upper + (row + 0.5) * cell);
  });
  pen.textAlign = "left";
  keys.forEach((text, column) => {
    set(column === view.column);
    pen.direction = directionOf(text);
    pen.save();
    pen.translate(left + (column + 0.5) * cell, upper - 6);
    pen.rotate(-Math.PI / 2);
    pen.fillText(text, 0, 0);
    pen.restore();
  });
}

// The weight in two decimals on its cell, where there is room for it.
function figure(pen, view, row, column, colour, { left, upper, cell }) {
  const weight = view.matrix[row * view.map.keys.length + column] / 10 ** digitsOf(view.map);
  if (weight < 0.005) return;
  const bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
  pen.font = FONT.replace("12px", "11px");
  pen.fillStyle = bright > 140 ? "#1b1f24" : "#ffffff";
  pen.textAlign = "center";
  pen.fillText(weight.toFixed(2).replace(/^0/, ""), left + (column + 0.5) * cell, upper + (row + 0.5) * cell);
}

function follow(canvas, view, { left, upper, cell, rows, columns }) {
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / cell);
    const row = Math.floor((event.clientY - box.top - upper) / cell);
    if (row >= 0 && row < rows && column >= 0 && column < columns) view.choose(row, column);
  };
  canvas.addEventListener("pointermove", at);
  canvas.addEventListener("pointerdown", at);
}

function widest(pen, texts) { return Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width))); }

function fit(pen, text, most = LONGEST) {
  if (pen.measureText(text).width <= most) return text;
  const signs = Array.from(text);
  while (signs.length > 1 && pen.measureText(`${signs.join("")}…`).width > most) signs.pop();
  return `${signs.join("")}…`;
}
