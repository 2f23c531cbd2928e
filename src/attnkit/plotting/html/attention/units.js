// A map by tokens, by characters or by words, with or without its special tokens.

const views = new Map();

const plural = { token: "tokens", character: "tokens, characters joined", word: "words" };

// The units that a map has: characters only if some of its tokens are parts of one.
function unitsOf(map) {
  if (!map.runs) return [];
  return map.runs.keys.character.length ? ["token", "character", "word"] : ["token", "word"];
}

function hasSpecial(map) {
  const shown = (side) => map[side].length > map.runs[side].special.length;
  return Boolean(map.runs) && map.runs.queries.special.length + map.runs.keys.special.length > 0 && shown("queries") && shown("keys");
}

// What is drawn: the map itself, or one like it whose rows and columns are runs of its tokens.
function viewOf(map, unit, special) {
  const known = unitsOf(map).includes(unit) ? unit : "token";
  const all = special || !hasSpecial(map);
  if (known === "token" && all) return map;
  const name = `${map.number} ${known} ${all}`;
  if (!views.has(name)) {
    const sides = {};
    for (const side of ["queries", "keys"]) {
      const { special: hidden } = map.runs[side];
      const runs = known === "token" ? map[side].map((token) => [token, 1]) : map.runs[side][known];
      let start = 0;
      sides[side] = runs.map(([text, size]) => { start += size; return { text, size, start: start - size }; })
        .filter((run) => all || !hidden.includes(run.start));
    }
    views.set(name, {
      ...map, unit: known, name, base: map, rows: sides.queries, columns: sides.keys, exact: false,
      axes: known === "word" ? map.axes.replaceAll("tokens", "words") : map.axes,
      queries: sides.queries.map((run) => run.text), keys: sides.keys.map((run) => run.text),
    });
  }
  return views.get(name);
}

// Weights by runs, from those by tokens: the sum over the tokens of a column, the mean over those of a row.
function regrouped(view, numbers) {
  const { rows, columns, base } = view;
  const [height, width] = [base.queries.length, base.keys.length];
  const planes = base.layers * (base.heads + 1);
  const found = new Uint16Array(planes * rows.length * columns.length);
  let at = 0;
  for (let plane = 0; plane < planes; plane++) {
    for (const row of rows) {
      for (const column of columns) {
        let total = 0;
        for (let i = row.start; i < row.start + row.size; i++) {
          const from = (plane * height + i) * width + column.start;
          for (let j = from; j < from + column.size; j++) total += numbers[j];
        }
        found[at++] = Math.min(65535, Math.round(total / row.size));
      }
    }
  }
  return found;
}

// The mean entropy of a matrix in bits per row; rows are shares of their sum, and empty rows do not count.
function bitsOf(matrix, rows, columns) {
  let [bits, there] = [0, 0];
  for (let row = 0; row < rows; row++) {
    const weights = matrix.subarray(row * columns, (row + 1) * columns);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    if (!sum) continue;
    there++;
    for (const weight of weights) if (weight) bits -= (weight / sum) * Math.log2(weight / sum);
  }
  return Math.abs(bits / Math.max(there, 1));
}
