// Two panes: translation while typing, the words of the text that a word attends to, other continuations.

const translators = data.models.filter((model) => model.task === "translation");
const state = { texts: [], lines: [], line: 0, word: -1, prefixes: new Map(), translating: null, looking: null };

const UNSURE = 0.5;  // probability below which a word is marked
const N_ALTERNATIVES = Math.min(4, data.maxBeamSize);
const N_SAMPLES = Math.min(16, data.maxBeamSize);

async function post(path, body, signal) {
  const key = byId("key").value;
  const sent = JSON.stringify({ ...body, ...(key ? { api_key: key } : {}) });  // a header could not have every letter
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: sent, signal });
  } catch (problem) {
    throw problem.name === "AbortError" ? problem : new Error("The service does not answer.");
  }
  if (!response.ok) {
    const found = await response.json().catch(() => null);
    throw new Error(found?.error ?? `The service answers with status ${response.status}.`);
  }
  return response;
}

function incomplete(problem) {
  throw problem?.name === "AbortError" ? problem : new Error("The answer of the service is not complete.");
}

async function ask(path, body, signal) {
  const response = await post(path, body, signal);
  return response.json().catch(incomplete);
}

function say(parts, isProblem = false) {
  byId("state").replaceChildren(...[parts].flat());
  byId("state").classList.toggle("problem", isProblem);
  byId("again").hidden = !isProblem;
}

// Show a problem, unless it is that a newer request has taken the place of this one.
function complain(problem) { if (problem.name !== "AbortError") say(problem.message, true); }

// A signal for a request that takes the place of the last one of its kind.
function replacing(kind) {
  state[kind]?.abort();
  state[kind] = new AbortController();
  return state[kind].signal;
}

// What asks for the best translations of texts, with the beginnings that were chosen for them.
function translation(texts, wanted) {
  const prefix = texts.map((text) => state.prefixes.get(text) ?? "");
  return { model: byId("pair").value, text: texts, num_hypotheses: N_ALTERNATIVES, ...wanted, ...(prefix.some(Boolean) ? { prefix } : {}) };
}

// Translate the text; focus the word at a place of a line, if one is given.
async function translate(focus = null) {
  const signal = replacing("translating");
  state.looking?.abort();
  const texts = byId("source").value.split("\n");
  byId("target").classList.add("old");
  try {
    let lines = [];
    if (texts.some((text) => text.trim())) {
      say("Translating");
      const found = await ask("v1/translate", translation(texts, { token_scores: true }), signal);
      lines = found.translations.map((one) => one.lines[0]);
    }
    Object.assign(state, { texts, lines, line: 0, word: -1 });
    say("");
    show(focus);
  } catch (problem) {
    complain(problem);
  }
}

function split(text) { return text.split(/\s+/u).filter(Boolean); }

function groupsOf(tokens, begins) {
  const groups = [];
  tokens.forEach((token, place) => {
    if (!groups.length || begins.test(token)) groups.push([]);
    groups[groups.length - 1].push(place);
  });
  return groups;
}

// The tokens of each word of a text, by the mark that begins a word; null if they do not add up to its words.
function wordsOf(text, tokens) {
  const words = split(text);  // an unknown token has no mark: it is a whole word where words are tokens
  const groups = [/^[▁ ]/u, /^(?:[▁ ]|<unk>)/u].map((begins) => groupsOf(tokens, begins));
  return { words, groups: groups.find((one) => one.length === words.length) ?? null };
}

// The probability of each word of a translation: that of its tokens together; null where it is not known.
function probabilities(line) {
  const { words, groups } = wordsOf(line.text, line.tokens);
  let place = 0;
  const scores = line.tokens.map((token) => {  // the ends of sentences have scores, but are no tokens of the text
    while (place < line.token_scores.length && line.token_scores[place][0] !== token) place += 1;
    return line.token_scores[place++]?.[1] ?? NaN;
  });
  return words.map((_, i) => {
    const found = groups ? Math.exp(groups[i].reduce((sum, token) => sum + scores[token], 0)) : NaN;
    return Number.isNaN(found) ? null : found;
  });
}

function percent(share) { return `${Math.round(100 * share)} %`; }

// Words are spans: buttons would not follow the order of letters within a line of two directions.
function show(focus) {
  const target = byId("target");
  target.classList.remove("old");
  target.replaceChildren(...state.lines.map((line, number) => {
    const sure = probabilities(line);
    return make("p", { dir: "auto" }, split(line.text).flatMap((word, place) => {
      const span = make("span", { className: "word", role: "button", tabIndex: -1, textContent: word, "aria-pressed": "false" });
      Object.assign(span.dataset, { line: number, place });
      if (sure[place] !== null) span.title = `probability ${percent(sure[place])}`;
      span.classList.toggle("unsure", sure[place] !== null && sure[place] < UNSURE);
      return place ? [" ", span] : [span];
    }));
  }));
  byId("source-words").hidden = true;
  listAlternatives();
  const words = [...target.querySelectorAll(".word")];
  const wanted = focus && words.findLast(({ dataset }) => +dataset.line === focus.line && dataset.place <= focus.place);
  if (words.length) (wanted ?? words[0]).tabIndex = 0;
  wanted?.focus();
}

function list(title, items) {
  byId("more").hidden = !items.length;
  byId("more-title").replaceChildren(...title);
  byId("choices").replaceChildren(...items.map(([text, act]) => {
    const button = make("button", { type: "button", textContent: text, dir: "auto" });
    button.addEventListener("click", act);
    return make("li", {}, [button]);
  }));
}

function listAlternatives() {
  const items = (state.lines[state.line]?.alternatives ?? []).map((other) => [other.text, () => begin(other.text)]);
  if (state.prefixes.get(state.texts[state.line])) items.push(["Without the chosen beginning", () => begin("")]);
  list([state.lines.length > 1 ? `Alternatives to line ${state.line + 1}` : "Alternatives"], items);
}

// Translate the line again, from a chosen beginning.
function begin(prefix) {
  state.prefixes.set(state.texts[state.line], prefix);
  translate({ line: state.line, place: Math.max(0, state.word) });
}

function mark(word) {
  for (const other of byId("target").querySelectorAll("[aria-pressed=true]")) other.setAttribute("aria-pressed", "false");
  word?.setAttribute("aria-pressed", "true");
  byId("source-words").hidden = true;
}

async function choose(word) {
  Object.assign(state, { line: +word.dataset.line, word: +word.dataset.place });
  const [line, text, place, signal] = [state.lines[state.line], state.texts[state.line], state.word, replacing("looking")];
  mark(word);
  const words = split(line.text);
  const before = words.slice(0, place).join(" ");
  try {
    say([isolated(words[place]), ...(word.title ? [`: ${word.title}`] : [])]);
    line.attention ??= await attentionOf(text, line, signal);
    showAttention(line, place);
    // Samples differ at the next word; the hypotheses of a beam mostly differ at their ends.
    const body = { model: byId("pair").value, text: [text], prefix: [before], num_hypotheses: N_SAMPLES, sampling: true };
    const [found] = (await ask("v1/translate", body, signal)).translations;
    const counts = new Map();
    for (const other of [found, ...found.alternatives.map((text) => ({ text }))]) {
      const next = split(other.text)[place];
      if (next) counts.set(next, (counts.get(next) ?? 0) + 1);
    }
    const begun = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([next]) => [before, next].filter(Boolean).join(" "));
    list(before ? ["After “", isolated(before), "”"] : ["Other beginnings"], begun.map((start) => [`${start} …`, () => begin(start)]));
  } catch (problem) {
    complain(problem);
  }
}

// The weights of the sentences of a line, none for a model without attention; they are asked for when they are looked at.
async function attentionOf(text, line, signal) {
  try {
    const found = (await ask("v1/translate", translation([text], { attention: true }), signal)).translations[0].lines[0];
    return found.text === line.text ? found.attention : [];
  } catch (problem) {
    if (!/no attention/.test(problem.message)) throw problem;
    return [];
  }
}

// The weights (target tokens, source tokens) of a line, those of its sentences one after the other; ends are left out.
function joined(attention) {
  const widths = attention.map((rows) => (rows.length ? rows[0].length - 1 : 0));
  return attention.flatMap((rows, i) => {
    const [before, after] = [widths.slice(0, i), widths.slice(i + 1)].map((some) => Array(some.reduce((sum, n) => sum + n, 0)).fill(0));
    return rows.map((row) => [...before, ...row.slice(0, -1), ...after]);
  });
}

function showAttention(line, place) {
  const target = wordsOf(line.text, line.tokens);
  const source = wordsOf(line.source, line.source_tokens);
  const weights = joined(line.attention);
  if (!target.groups || !source.groups || weights.length !== line.tokens.length || weights[0].length !== line.source_tokens.length) return;
  const rows = target.groups[place];  // a word's weights: the mean over its tokens, the sum over those of the source word
  const shares = source.groups.map((own) => rows.reduce((sum, row) => sum + own.reduce((part, i) => part + weights[row][i], 0), 0) / rows.length);
  const most = Math.max(...shares, 1e-9);
  byId("source-words").hidden = false;
  byId("source-words").replaceChildren(...source.words.flatMap((word, i) => {
    const span = make("span", { textContent: word, title: percent(shares[i]) });
    span.style.background = `color-mix(in srgb, var(--accent) ${Math.round(50 * shares[i] / most)}%, transparent)`;
    return i ? [" ", span] : [span];
  }));
  const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 3);
  const told = order.flatMap((i, n) => [n ? ", " : " attends to ", isolated(source.words[i]), ` ${percent(shares[i])}`]);
  say([...byId("state").childNodes, ...(byId("state").childNodes.length > 1 ? [";"] : []), ...told]);
}

function unchoose() {
  state.looking?.abort();
  state.word = -1;
  mark(null);
  say("");
  listAlternatives();
}

function move(event) {
  const words = [...byId("target").querySelectorAll(".word")];
  const at = words.indexOf(event.target);
  if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  const [line, forward] = [+event.target.dataset.line, getComputedStyle(event.target).direction === "rtl" ? -1 : 1];
  const to = {
    ArrowRight: at + forward, ArrowLeft: at - forward, Home: 0, End: words.length - 1,
    ArrowDown: words.findIndex((word) => +word.dataset.line > line), ArrowUp: words.findLastIndex((word) => +word.dataset.line < line),
  }[event.key];
  if (event.key === "Enter" || event.key === " ") choose(event.target);
  else if (event.key === "Escape") unchoose();
  else if (to === undefined) return;
  else words[to]?.focus();
  event.preventDefault();
}

function choosePair() {
  const { codes } = translators.find((model) => model.name === byId("pair").value);
  for (const [name, code] of [["source", codes[0]], ["source-words", codes[0]], ["target", codes[1]], ["choices", codes[1]]]) byId(name).lang = code;
}

// Languages name a translator, its own name one that has none, or has those of another.
function titleOf(model) {
  const languages = model.languages.join(" – ");
  const isAlone = translators.filter((other) => other.languages.join(" – ") === languages).length === 1;
  return model.codes.every(Boolean) ? languages + (isAlone ? "" : ` (${model.name})`) : model.name;
}

async function copy() {
  const text = state.lines.map((line) => line.text).join("\n");
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {  // not allowed, as on pages without TLS
    getSelection().selectAllChildren(byId("target"));
    say("The browser does not let this page copy: the translation is selected, copy it yourself.");
  }
}

if (translators.length) {
  byId("translator").hidden = false;
  byId("pair").append(...translators.map((model) => make("option", { value: model.name, textContent: titleOf(model) })));
  choosePair();
  let timer = 0;
  byId("source").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => translate(), 250); });
  byId("pair").addEventListener("change", () => { state.prefixes.clear(); choosePair(); translate(); });
  byId("key").addEventListener("change", () => translate());
  byId("again").addEventListener("click", () => { byId("source").focus(); translate(); });
  byId("copy").addEventListener("click", copy);
  byId("target").addEventListener("keydown", move);
  byId("target").addEventListener("click", (event) => { if (event.target.matches(".word")) choose(event.target); });
  byId("target").addEventListener("focusin", ({ target }) => {
    for (const word of byId("target").querySelectorAll("[tabindex='0']")) word.tabIndex = -1;
    target.tabIndex = 0;
    if (+target.dataset.line === state.line) return;
    state.line = +target.dataset.line;
    unchoose();
  });
} else {
  byId("heading").textContent = "Models";
}
byId("key-card").hidden = !data.needsKey;
