"""Answers of the service beside those of the library: streams, search options, confidence, vectors, white space."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import attnkit
from attnkit.checkpoints.adapters import fingerprint_of
from attnkit.checkpoints.logs import record_line
from attnkit.serving.app import Service
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models
from attnkit.tasks.translation.loading import CONFIDENCE_NAME, open_run


@pytest.fixture
def client(models: Models) -> Iterator[TestClient]:
    yield TestClient(Service(models).app(), base_url="http://localhost:8000")


def test_translations_as_a_stream_and_as_samples(client: TestClient, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    body = {"text": "1 2 3", "target_language": "de", "source_language": "en", "model": "en-de"}
    (first,) = translator.translate(["1 2 3"])
    response = client.post("/v1/translations", json={**body, "stream": True})
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert response.headers["content-type"].startswith("text/event-stream") and events.pop() == "[DONE]"
    text, end = map(json.loads, events)
    assert text["object"] == "translation.chunk" and text["id"] == end["id"]
    assert text["choices"][0]["delta"] == {"translated_text": first.text}
    assert end["choices"][0]["finish_reason"] == "stop" and end["usage"]["completion_tokens"] == len(first.tokens)

    def ask(**more: Any) -> str:
        return str(client.post("/v1/translations", json={**body, **more}).json()["translated_text"])

    sampled = translator.translate(["1 2 3"], sampling=True, temperature=1.5, top_p=0.9, seed=4)[0].text
    assert ask(temperature=1.5, top_p=0.9, seed=4) == sampled
    assert ask(temperature=0, seed=4) == first.text, "greedy, as these clients ask for it"
    cut = client.post("/v1/translations", json={**body, "stream": True, "max_tokens": 2}).text
    assert '"finish_reason":"length"' in cut and '"finish_reason":"length"' not in response.text
    assert ask(max_tokens=2) == translator.translate(["1 2 3"], max_length=2)[0].text
    refused = client.post("/v1/translations", json={**body, "model": "any", "stream": True, "target_language": "fr"})
    assert (refused.status_code, "no translator from en to fr" in refused.json()["error"]) == (400, True)


def test_search_options_and_forbidden_words_are_those_of_the_library(client: TestClient, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    drawn: dict[str, Any]
    for seed in range(200):  # until a sample has a plain word
        drawn = {"sampling": True, "temperature": 1.5, "seed": seed}
        if words := [word for word in translator.translate(["1 2 3"], **drawn)[0].text.split() if word.isalnum()]:
            break
    ways = [{"coverage_penalty": 0.4}, {"no_unk": True}, {**drawn, "suppress": words}]
    for way in ways:
        (found,) = client.post("/v1/translate", json={"text": "1 2 3", **way}).json()["translations"]
        (expected,) = translator.translate(["1 2 3"], **way)
        line = found["lines"][0]
        assert (found["text"], line["score"]) == (expected.text, pytest.approx(expected.score)), way
    assert words and not set(words) & set(found["text"].split())


def test_a_run_that_can_tell_says_how_sure_it_is(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["digits"], tmp_path / "run"))
    curve = {"n_lines": 300, "acceptable": 60.0, "scores": [-9.0, 0.0], "probabilities": [0.1, 0.9]}
    (run / CONFIDENCE_NAME).write_text(record_line({"weights": fingerprint_of(open_run(run).files), **curve}))
    (expected,) = attnkit.Translator.load(run, device="cpu", threads=1).translate(["1 2 3"])
    assert expected.confidence is not None
    models = Models([f"en:de={run}"], Limits(), device="cpu", precision="float32", threads=1)
    client = TestClient(Service(models).app(), base_url="http://localhost:8000")
    found = client.post("/v1/translate", json={"text": "1 2 3\n"}).json()["translations"][0]["lines"]
    assert found[0]["confidence"] == pytest.approx(expected.confidence) and "confidence" not in found[1]


def test_vectors_of_words_and_of_vectors(client: TestClient, runs: dict[str, Path]) -> None:
    vectors = attnkit.load(runs["words"])
    found = client.post("/v1/embed", json={"model": "words", "text": ["dog", "fox"]}).json()["embeddings"]
    assert np.allclose(found, vectors[["dog", "fox"]])
    near = client.post("/v1/similar", json={"word": ["dog", "fox"], "top": 3}).json()["results"]
    assert [[one["word"] for one in row] for row in near] == [
        [word for word, _ in vectors.most_similar(word, topn=3)] for word in ("dog", "fox")
    ]
    unknown = client.post("/v1/similar", json={"word": ["dog", "fxo"]})
    assert unknown.status_code == 400 and "no vector for 'fxo' (similar spellings: fox" in unknown.json()["error"]

    encoder, rows = attnkit.load(runs["rows"], device="cpu"), np.eye(3, 8, dtype=np.float32)
    width = encoder._opened.model.mean.numel()
    rows = np.resize(rows, (3, width))
    codes = client.post("/v1/embed", json={"model": "rows", "vector": rows.tolist()}).json()["embeddings"]
    assert np.allclose(codes, encoder.embed(rows), atol=1e-6)
    one = client.post("/v1/embed", json={"model": "rows", "vector": rows[0].tolist()}).json()["embeddings"]
    assert np.allclose(one, codes[:1], atol=1e-6)


def test_white_space_between_sentences_stays(client: TestClient, models: Models, monkeypatch: Any) -> None:
    served = models.by_name["en-de"]
    for replica in served._loaded.replicas:
        monkeypatch.setattr(replica._pipeline.segmenter, "policy", "sentences")
    sentences = ["1 2 3.", "4 5 6.", "7 8 9."]
    parts = client.post("/translate", json={"q": sentences, "target": "de"}).json()["translatedText"]
    text = f"\t{sentences[0]}  {sentences[1]}\u00a0 {sentences[2]} \n\n{sentences[0]}"
    found = client.post("/translate", json={"q": text, "target": "de"}).json()["translatedText"]
    assert found == f"\t{parts[0]}  {parts[1]}\u00a0 {parts[2]} \n\n{parts[0]}"


def test_a_prefix_begins_the_translation(client: TestClient) -> None:
    found = client.post("/v1/translate", json={"text": ["1 2", "3 4"], "prefix": ["7", ""]}).json()
    assert found["translations"][0]["text"].startswith("7")
