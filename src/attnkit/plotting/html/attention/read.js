// Weights out of their packed text, and the colours they have.

let packs = 0;
for (const sentence of data.sentences) for (const map of sentence.maps) map.number = packs++;

const unpacked = new Map();

// Weights of a map as whole numbers, (L, H + 1, T, S): see pack.py. A promise, kept for the next time.
function numbersOf(map) {
  const name = map.name ?? map.number;
  if (!unpacked.has(name)) {
    unpacked.set(name, map.base ? numbersOf(map.base).then((numbers) => regrouped(map, numbers)) : unpack(map));
  }
  return unpacked.get(name);
}

async function unpack(map) {
  const planes = await inflated(`weights-${map.number}`);
  const count = map.layers * (map.heads + 1) * map.queries.length * map.keys.length;
  const numbers = new Uint16Array(count);
  for (let i = 0; i < count; i++) numbers[i] = planes[i] | (planes[count + i] << 8);
  return numbers;
}

// One matrix out of them; head is a number from 0, "mean" or "max". The largest of rounded weights is exact.
function matrixOf(map, numbers, layer, head) {
  const size = map.queries.length * map.keys.length;
  const from = (number) => (layer * (map.heads + 1) + number) * size;
  if (head === "mean") return numbers.subarray(from(map.heads), from(map.heads) + size);
  if (head !== "max") return numbers.subarray(from(head), from(head) + size);
  const largest = new Uint16Array(size);
  for (let number = 0; number < map.heads; number++) {
    const start = from(number);
    for (let i = 0; i < size; i++) if (numbers[start + i] > largest[i]) largest[i] = numbers[start + i];
  }
  return largest;
}

function digitsOf(map) { return data.digits[map.number]; }

function weightText(map, number) { return (number / 10 ** digitsOf(map)).toFixed(digitsOf(map)); }

const RAMPS = {
  light: [[247, 250, 252], [198, 221, 238], [112, 172, 212], [36, 113, 178], [8, 48, 107]],
  dark: [[27, 33, 41], [24, 66, 104], [38, 117, 172], [104, 182, 226], [226, 243, 255]],
};

// The colour of a share of the largest weight, as [red, green, blue].
function colourOf(share) {
  const ramp = dark.matches ? RAMPS.dark : RAMPS.light;
  const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  return ramp[low].map((part, i) => Math.round(part + (ramp[low + 1][i] - part) * (place - low)));
}

// 256 colours at once, four bytes each, for pictures made pixel by pixel.
function coloursOf() {
  const table = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) table.set([...colourOf(i / 255), 255], 4 * i);
  return table;
}

function paint(canvas, matrix, rows, columns, top, table) {
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const image = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows * columns; i++) {
    const shade = 4 * Math.min(255, Math.round((255 * matrix[i]) / top));
    image.data.set(table.subarray(shade, shade + 4), 4 * i);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
