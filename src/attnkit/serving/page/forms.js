// A form for each model of another task.

const FORMS = {
  "mlm": { title: "Fill masks", hint: "The cat sat on the [MASK].", path: "v1/fill-mask",
    body: (text) => ({ text: [text], top: 5 }),
    show: (found) => found.results[0].masks.map((mask) => mask.map((one) => `${(100 * one.probability).toFixed(1)} %  ${one.text}`).join("\n")).join("\n\n") },
  "clm": { title: "Generate text", hint: "Once upon a time", path: "v1/generate",
    body: (text) => ({ prompt: text, max_new_tokens: 60 }),
    show: (found) => found.texts[0].text },
  "text-classification": { title: "Classify a text", hint: "A film worth seeing.", path: "v1/predict",
    body: (text) => ({ text: [text] }),
    show: (found) => Object.entries(found.predictions[0].probabilities).map(([label, p]) => `${(100 * p).toFixed(1)} %  ${label}`).join("\n") },
  "token-classification": { title: "Tag words", hint: "Ada lives in London.", path: "v1/predict",
    body: (text) => ({ text: [text] }),
    show: (found) => found.predictions[0].words.map((word, i) => `${word}  ${found.predictions[0].tags[i]}`).join("\n") },
  "question-answering": { title: "Answer a question", hint: "Who lives in London?", second: "Ada lives in London.", path: "v1/predict",
    body: (question, context) => ({ question: [question], context: [context] }),
    show: (found) => `${found.predictions[0].text || "no answer"}  ${(100 * found.predictions[0].probability).toFixed(1)} %` },
  "autoencode": { title: "Embed a text", hint: "A line of text", path: "v1/embed",
    body: (text) => ({ text: [text] }),
    show: (found) => found.embeddings[0].map((value) => value.toFixed(4)).join(" ") },
  "autoencode-vectors": { title: "Embed a vector", hint: "0.5 -1 2", path: "v1/embed", label: "Numbers",
    body: (text) => ({ vector: [text.trim().split(/[\s,;]+/).map(Number)] }),
    show: (found) => found.embeddings[0].map((value) => value.toFixed(4)).join(" ") },
  "word2vec": { title: "Similar words", hint: "dog", path: "v1/similar", label: "Word",
    body: (word) => ({ word: [word.trim()], top: 10 }),
    show: (found) => found.results[0].map((one) => `${one.similarity.toFixed(4)}  ${one.word}`).join("\n") },
};

// Show a text as it is generated. Throws what the service says went wrong.
async function readStream(response, out) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  out.textContent = "";
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read().catch(incomplete);
    if (done) incomplete();
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const text = event.replace(/^data: /, "");
      if (text === "[DONE]") return;
      const { text: piece, error } = JSON.parse(text);
      if (error) throw new Error(error);
      out.textContent += piece;
    }
  }
}

async function fill(form, body, out, signal) {
  if (form.path !== "v1/generate") return void (out.textContent = form.show(await ask(form.path, body, signal)));
  let response;
  try {
    response = await post(form.path, { ...body, stream: true }, signal);
  } catch (problem) {
    if (!/cannot stream/.test(problem.message)) throw problem;  // a model that generates the beginning last
    out.textContent = form.show(await ask(form.path, body, signal));
    return;
  }
  await readStream(response, out);
}

byId("forms").append(...data.models.filter((model) => model.task in FORMS).map((model, number) => {
  const form = FORMS[model.task];
  const [id, other] = [`text-${number}`, `context-${number}`];
  const text = make("textarea", { id, dir: "auto", rows: 3, value: form.hint });
  const context = form.second ? make("textarea", { id: other, dir: "auto", rows: 3, value: form.second }) : null;
  const out = make("pre", { dir: "auto", role: "status" });
  const run = make("button", { type: "button", textContent: form.title });
  run.addEventListener("click", async () => {
    const signal = replacing(id);
    out.textContent = "Working";
    out.classList.remove("problem");
    try {
      await fill(form, { ...form.body(text.value, context?.value), model: model.name }, out, signal);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      out.classList.add("problem");
      const begun = out.textContent === "Working" ? "" : `${out.textContent}\n`;
      out.textContent = begun + problem.message;
    }
  });
  return make("section", { className: "card" }, [
    make("h2", { textContent: `${form.title}: ${model.name}` }),
    make("label", { htmlFor: id, textContent: form.label || (context ? "Question" : "Text") }), text,
    ...(context ? [make("label", { htmlFor: other, textContent: "Context" }), context] : []),
    make("p", { className: "row" }, [run]), out]);
}));
