// Two panes: translation while typing, the words of the text that a word attends to, other continuations.

const translators = data.models.filter((model) => model.task === "translation");
const state = { line: -1, word: -1, lines: [], prefixes: new Map(), asked: 0, stop: null };

const UNSURE = 0.5;  // probability below which a word is marked

function headers() {
  const key = byId("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function ask(path, body, signal) {
  const response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  const found = await response.json().catch(() => ({ error: `status ${response.status}` }));
  if (!response.ok) throw new Error(found.error || `status ${response.status}`);
  return found;
}

function say(text, isProblem = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("problem", isProblem);
}

// Lines with a chosen beginning are asked with it; the others follow the text alone.
async function translate() {
  const number = ++state.asked;
  if (state.stop) state.stop.abort();
  state.stop = new AbortController();
  const lines = byId("source").value.split("\n");
  if (!byId("source").value.trim()) { state.lines = []; show(); say(""); return; }
  say("Translating");
  try {
    const body = { model: byId("pair").value, text: lines, num_hypotheses: 4, attention: true, token_scores: true };
    if (state.prefixes.size) body.prefix = lines.map((line) => state.prefixes.get(line) || "");
    let found;
    try {
      found = await ask("v1/translate", body, state.stop.signal);
    } catch (problem) {
      if (!/no attention/.test(problem.message)) throw problem;
      found = await ask("v1/translate", { ...body, attention: false }, state.stop.signal);
    }
    if (number !== state.asked) return;
    state.lines = found.translations.map((one) => one.lines[0]);
    state.line = state.word = -1;
    say("");
    show();
  } catch (problem) {
    if (problem.name !== "AbortError" && number === state.asked) say(problem.message, true);
  }
}

// The tokens of each word of a text, by the mark that begins a word; null if they do not add up to its words.
function wordsOf(text, tokens) {
  const words = text.split(/\s+/u).filter(Boolean);
  const groups = [];
  tokens.forEach((token, place) => {
    if (!groups.length || /^[▁ ]/u.test(token)) groups.push([]);
    groups[groups.length - 1].push(place);
  });
  return { words, groups: groups.length === words.length ? groups : null };
}

// The probability of each word of a translation: that of its tokens together; null where it is not known.
function probabilities(line) {
  const { words, groups } = wordsOf(line.text, line.tokens);
  if (!groups || !line.token_scores) return words.map(() => null);
  let place = 0;
  const scores = line.tokens.map((token) => {  // the ends of sentences have scores, but are no tokens of the text
    while (place < line.token_scores.length && line.token_scores[place][0] !== token) place += 1;
    return line.token_scores[place++]?.[1] ?? 0;
  });
  return groups.map((own) => Math.exp(own.reduce((sum, token) => sum + scores[token], 0)));
}

function show() {
  const target = byId("target");
  target.replaceChildren(...state.lines.map((line, number) => {
    const { words } = wordsOf(line.text, line.tokens);
    const sure = probabilities(line);
    return make("p", { dir: "auto" }, words.flatMap((word, place) => {
      const button = make("button", { type: "button", className: "word", textContent: word });
      if (sure[place] !== null) button.title = `probability ${Math.round(100 * sure[place])} %`;
      button.classList.toggle("unsure", sure[place] !== null && sure[place] < UNSURE);
      button.setAttribute("aria-pressed", String(number === state.line && place === state.word));
      button.addEventListener("click", () => choose(number, place));
      return place ? [" ", button] : [button];
    }));
  }));
  const line = state.lines[Math.max(0, state.line)];
  byId("source-words").hidden = true;
  if (state.word < 0) listAlternatives(line);
}

function listAlternatives(line) {
  const others = line ? line.alternatives : [];
  byId("more").hidden = !others.length;
  byId("more-title").textContent = "Alternatives";
  byId("choices").replaceChildren(...others.map((other) => item(other.text, () => begin(line, other.text))));
}

function item(text, act) {
  const button = make("button", { type: "button", textContent: text, dir: "auto" });
  button.addEventListener("click", act);
  return make("li", {}, [button]);
}

// Translate the line again, from a chosen beginning.
function begin(line, prefix) {
  state.prefixes.set(line.source, prefix);
  state.prefixes.set(byId("source").value.split("\n").find((text) => text.trim() === line.source.trim()) || "", prefix);
  translate();
}

async function choose(number, place) {
  state.line = number;
  state.word = place;
  show();
  const line = state.lines[number];
  showAttention(line, place);
  const before = line.text.split(/\s+/u).filter(Boolean).slice(0, place).join(" ");
  try {
    // Samples differ at the next word; the hypotheses of a beam mostly differ at their ends.
    const body = { model: byId("pair").value, text: [line.source], prefix: [before], num_hypotheses: 16, sampling: true };
    const found = await ask("v1/translate", body, undefined);
    if (state.line !== number || state.word !== place) return;
    const all = [found.translations[0].text, ...found.translations[0].alternatives];
    const next = new Set(all.map((text) => text.split(/\s+/u).filter(Boolean)[place]).filter(Boolean));
    const begun = [...next].slice(0, 8).map((word) => [before, word].filter(Boolean).join(" "));
    byId("more").hidden = !begun.length;
    byId("more-title").textContent = before ? `After “${before}”` : "Other beginnings";
    byId("choices").replaceChildren(...begun.map((text) => item(`${text} …`, () => begin(line, text))));
  } catch (problem) {
    say(problem.message, true);
  }
}

function showAttention(line, place) {
  const out = byId("source-words");
  const target = wordsOf(line.text, line.tokens);
  const source = wordsOf(line.source, line.source_tokens);
  if (!line.attention || line.attention.length !== 1 || !target.groups || !source.groups) { out.hidden = true; return; }
  const weights = source.groups.map((own) => target.groups[place].reduce(
    (sum, row) => sum + own.reduce((part, column) => part + (line.attention[0][row]?.[column] || 0), 0), 0) / target.groups[place].length);
  const most = Math.max(...weights, 1e-9);
  out.hidden = false;
  out.replaceChildren(...source.words.flatMap((word, i) => {
    const span = make("span", { textContent: word, title: `${Math.round(100 * weights[i])} %` });
    span.style.background = `color-mix(in srgb, var(--accent) ${Math.round(70 * weights[i] / most)}%, transparent)`;
    return i ? [" ", span] : [span];
  }));
}

if (translators.length) {
  byId("translator").hidden = false;
  byId("pair").append(...translators.map((model) => make("option", {
    value: model.name, textContent: model.source ? `${model.source} – ${model.target}` : model.name })));
  let timer = 0;
  byId("source").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(translate, 250); });
  byId("pair").addEventListener("change", () => { state.prefixes.clear(); translate(); });
  byId("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(state.lines.map((line) => line.text).join("\n"));
    say("Copied");
  });
} else {
  byId("heading").textContent = "Models";
}
byId("key-card").hidden = !data.needsKey;
