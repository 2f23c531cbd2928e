// A form for each model of another task.

const FORMS = {
  "mlm": { title: "Fill masks", hint: "The cat sat on the [MASK].", path: "v1/fill-mask",
    body: (text) => ({ text: [text], top: 5 }),
    show: (found) => found.results[0].masks.map((mask) => mask.map((one) => `${(100 * one.probability).toFixed(1)} %  ${one.text}`).join("\n")).join("\n\n") },
  "clm": { title: "Generate text", hint: "Once upon a time", path: "v1/generate",
    body: (text) => ({ prompt: text, max_new_tokens: 60, stream: true }) },
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
};

async function readStream(response, out) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const text = event.replace(/^data: /, "");
      if (text === "[DONE]") return;
      out.textContent += JSON.parse(text).text || "";
    }
  }
}

byId("forms").append(...data.models.filter((model) => model.task in FORMS).map((model, number) => {
  const form = FORMS[model.task];
  const [id, other] = [`text-${number}`, `context-${number}`];
  const text = make("textarea", { id, dir: "auto", rows: 3, value: form.hint });
  const context = form.second ? make("textarea", { id: other, dir: "auto", rows: 3, value: form.second }) : null;
  const out = make("pre", { dir: "auto", role: "status" });
  const run = make("button", { type: "button", textContent: form.title });
  run.addEventListener("click", async () => {
    out.textContent = "";
    out.classList.remove("problem");
    const body = { ...form.body(text.value, context?.value), model: model.name };
    try {
      if (!body.stream) { out.textContent = form.show(await ask(form.path, body)); return; }
      const response = await fetch(form.path, { method: "POST", headers: headers(), body: JSON.stringify(body) });
      if (!response.ok) throw new Error((await response.json()).error);
      await readStream(response, out);
    } catch (problem) {
      out.classList.add("problem");
      out.textContent = problem.message;
    }
  });
  return make("section", { className: "card" }, [
    make("h2", { textContent: `${form.title}: ${model.name}` }),
    make("label", { htmlFor: id, textContent: context ? "Question" : "Text" }), text,
    ...(context ? [make("label", { htmlFor: other, textContent: "Context" }), context] : []),
    make("p", { className: "row" }, [run]), out]);
}));
