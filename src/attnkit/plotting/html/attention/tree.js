// The beam's tree: a column a step, a branch for each beginning that was looked at, and the same as tables.

const WIDE = 136;
const HIGH = 22;

function drawTree(sentence) {
  const tree = sentence.tree;
  byId("beam").hidden = tree.length === 0;
  if (!tree.length) return;
  const shown = byId("pruned").checked;
  const children = tree.map(() => []);
  const roots = [];
  tree.forEach((node, i) => {
    if (node.fate === "pruned" && !shown) return;
    (node.parent === null ? roots : children[node.parent]).push(i);
  });
  const order = (a, b) => tree[b].best - tree[a].best || tree[b].log_prob - tree[a].log_prob;
  let line = 0;
  const heights = new Map();
  const settle = (i) => {
    children[i].sort(order).forEach(settle);
    heights.set(i, children[i].length ? heights.get(children[i][0]) : 16 + HIGH * line++);
  };
  roots.sort(order).forEach(settle);
  const depth = Math.max(...tree.map((node) => node.step));
  const svg = draw("svg", { width: WIDE * (depth + 1) + 90, height: HIGH * line + 20 });
  tree.forEach((_, i) => { if (heights.has(i)) branch(svg, tree, i, heights.get(i), heights); });
  byId("tree").replaceChildren(svg);
}

function branch(svg, tree, i, y, heights) {
  const node = tree[i];
  const name = node.best ? "best" : node.fate === "pruned" ? "pruned" : "";
  const x = 12 + WIDE * node.step;
  if (node.parent !== null) {
    const above = heights.get(node.parent);
    const from = x - WIDE + 106;
    svg.prepend(draw("path", { class: name, d: `M${from} ${above}C${from + 20} ${above} ${x - 20} ${y} ${x - 3} ${y}` }));
  }
  const ended = node.fate === "ended" || node.fate === "cut";
  const value = ended && node.score !== null ? node.score : node.log_prob;
  const pen = make("canvas").getContext("2d");
  pen.font = FONT.replace("12px", "11px");
  // The token gets what its number leaves of the box, measured in the font that it is written in.
  const room = 99 - 10 - pen.measureText(value.toFixed(2)).width;
  pen.font = FONT.replace("12px", `${node.best ? "700 " : ""}13px`);
  const word = label(fit(pen, node.text, room), x + 3, y + 4.5, "start", { class: name });
  const number = draw("text", { class: "number", x: x + 102, y: y + 4, "text-anchor": "end" }, value.toFixed(2));
  for (const element of [word, number]) element.append(draw("title", {}, saying(node)));
  if (ended) svg.append(draw("rect", { class: name, x: x - 2, y: y - 9, width: 108, height: 18, rx: 3 }));
  svg.append(word, number);
}

const FATES = { open: "kept", pruned: "pruned", ended: "finished", cut: "truncated at the maximum length" };

function saying(node) {
  const score = node.score === null ? "" : `, score ${node.score.toFixed(3)}`;
  return `${node.token}: log-probability ${node.log_prob.toFixed(3)}${score}, ${FATES[node.fate]}`;
}

// The tokens up to a node; a character takes the place of the bytes that it consists of.
function wordsTo(tree, i) {
  const words = [];
  let skipped = 0;
  for (let at = i; at !== null; at = tree[at].parent) {
    if (skipped) skipped--;
    else {
      words.unshift(tree[at].text);
      skipped = tree[at].joins - 1;
    }
  }
  return words;
}

function tabulateTree(sentence) {
  const tree = sentence.tree;
  const ended = [...tree.keys()].filter((i) => tree[i].fate === "ended" || tree[i].fate === "cut");
  const score = (i) => tree[i].score ?? -Infinity;
  ended.sort((a, b) => score(b) - score(a));
  const number = (value) => (value === null ? "" : value.toFixed(3));
  byId("finished").replaceChildren(tableOf("Best first; scores are comparable across lengths",
    ["rank", "score", "log-probability", ["words", "words"], "end"],
    ended.map((i, rank) => [String(rank + 1), number(tree[i].score), number(tree[i].log_prob),
      [wordsTo(tree, i), "words"], FATES[tree[i].fate]])));
  const all = byId("all-nodes");
  const fill = () => byId("nodes").replaceChildren(tableOf("In search order",
    ["step", "log-probability", ["words", "words"], "outcome"],
    tree.map((node, i) => [String(node.step + 1), number(node.log_prob), [wordsTo(tree, i), "words"],
      node.fate === "open" && !tree.some((other) => other.parent === i && other.fate !== "pruned")
        ? "kept, later pruned" : FATES[node.fate]])));
  all.ontoggle = () => { if (all.open) fill(); };
  if (all.open) fill();
}
