// The vectors, a byte a number: each is kept up to a factor, which no cosine sees.

const vectors = { rows: null, lengths: null };

async function readVectors() {
  const bytes = await inflated("vectors");
  vectors.rows = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length);
  vectors.lengths = new Float64Array(data.words.length);
  for (let i = 0; i < data.words.length; i++) vectors.lengths[i] = Math.sqrt(product(i, i));
}

function product(one, other) {
  const [a, b] = [one * data.width, other * data.width];
  let sum = 0;
  for (let j = 0; j < data.width; j++) sum += vectors.rows[a + j] * vectors.rows[b + j];
  return sum;
}

// The nearest others by cosine, the closest first, as [number, cosine].
function nearest(word, count) {
  const found = [];
  for (let i = 0; i < data.words.length; i++) {
    const lengths = vectors.lengths[word] * vectors.lengths[i];
    if (i !== word && lengths > 0) found.push([i, product(word, i) / lengths]);
  }
  return found.sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, count);
}

// Numbers of the words that a text may mean: the word itself, words that start with it, words that hold it.
function search(text, count) {
  const asked = text.trim().toLowerCase();
  if (!asked) return [];
  const ranks = [[], [], []];
  for (let i = 0; i < data.words.length; i++) {
    const word = lowered[i];
    if (word === asked) ranks[0].push(i);
    else if (word.startsWith(asked)) ranks[1].push(i);
    else if (word.includes(asked)) ranks[2].push(i);
  }
  return ranks.flat().slice(0, count);
}

const lowered = data.words.map((word) => word.toLowerCase());
