"""Routes, limits and refusals of the service, in the process; every answer against the library's own."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import attnkit
from attnkit.errors import RunError, UsageError
from attnkit.runtime.signals import usable_cpus
from attnkit.serving import calls, schemas
from attnkit.serving.app import HEADERS, Service
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models
from attnkit.serving.requests import FORM
from attnkit.serving.specs import languages_of_files, parse_spec

LIMITS = Limits(max_body=20_000, max_texts=20, max_characters=2_000, max_line=1_000, max_beam_size=6)


def call(service: Service) -> TestClient:
    # Not as a context: closing it would close the queues, which all tests share.
    return TestClient(service.app(), base_url="http://localhost:8000")


@pytest.fixture
def client(models: Models) -> Iterator[TestClient]:
    yield call(Service(models))


def test_translations_are_those_of_the_library(client: TestClient, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    lines = ["1 2 3", "4 5", ""]
    expected = [one.text for one in translator.translate(lines)]
    found = client.post("/translate", json={"q": lines, "source": "en", "target": "de"}).json()
    assert found == {"translatedText": expected}
    one = client.post("/translate", data={"q": "1 2 3", "source": "en", "target": "de"})
    assert one.json() == {"translatedText": expected[0]}, "as a form, which clients of LibreTranslate send"
    deepl = client.post("/v2/translate", json={"text": lines, "target_lang": "DE"}).json()
    assert [part["text"] for part in deepl["translations"]] == expected
    assert deepl["translations"][0]["detected_source_language"] == "EN"
    plain = client.post("/v1/translations", json={"model": "any", "text": "1 2 3", "target_language": "de"}).json()
    assert plain.pop("id").startswith("transl-") and abs(plain.pop("created") - time.time()) < 60
    (first,) = translator.translate(lines[:1])
    n_source, n_target = len(first.source_tokens), len(first.tokens)
    assert plain == {
        "object": "translation",
        "model": "en-de",
        "translated_text": expected[0],
        "source_language": None,
        "target_language": "de",
        "usage": {"prompt_tokens": n_source, "completion_tokens": n_target, "total_tokens": n_source + n_target},
    }, "as vLLM, whatever name its client sends"
    own = client.post("/v1/translate", json={"text": lines, "num_hypotheses": 2, "attention": True}).json()
    best = translator.translate(
        lines, num_hypotheses=2, beam_size=max(2, translator._pipeline.search.beam_size), attention=True
    )
    assert [part["lines"][0] for part in own["translations"]] == json.loads(json.dumps([b.to_dict() for b in best]))


@pytest.mark.filterwarnings("ignore:this run was not trained to read terms")
def test_several_threads_translate_at_the_same_time(models: Models, runs: dict[str, Path]) -> None:
    """Replicas share weights alone: options of a call do not reach another."""
    served = models.by_name["en-de"]
    replicas = served._loaded.replicas
    if usable_cpus() > 1:
        assert len(replicas) == 2 and len({id(one._pipeline) for one in replicas}) == 2
    assert len({id(packed) for one in replicas for packed in one._pipeline.searcher._pack()}) == 1
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    rng = random.Random(5)
    lines = [" ".join(rng.choices("123456789", k=rng.randint(1, 12))) for _ in range(60)]
    ways: list[dict[str, Any]] = [{"beam_size": 1}, {"beam_size": 3}, {"glossary": {"5": "8"}}, {"max_length": 3}]
    asked = [(line, ways[i % len(ways)]) for i, line in enumerate(lines)]

    async def ask() -> list[str]:
        bodies = [schemas.TranslateBody.model_validate({"text": line, **way}) for line, way in asked]
        answers = await asyncio.gather(*(calls.translate(models, body) for body in bodies))
        return [answer["translations"][0]["text"] for answer in answers]

    assert asyncio.run(ask()) == [translator.translate([line], **way)[0].text for line, way in asked]


def test_samples_do_not_depend_on_other_requests(models: Models, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    asked = [[f"{n} 2", f"3 {n}"] for n in range(12)]

    async def ask() -> list[list[str]]:
        bodies = [schemas.TranslateBody(text=lines, sampling=True, seed=7) for lines in asked]
        answers = await asyncio.gather(*(calls.translate(models, body) for body in bodies))
        return [[one["text"] for one in answer["translations"]] for answer in answers]

    expected = [[one.text for one in translator.translate(lines, sampling=True, seed=7)] for lines in asked]
    assert asyncio.run(ask()) == expected


def test_lines_and_white_space_stay(client: TestClient, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    first, second = (one.text for one in translator.translate(["1 2", "3"]))
    found = client.post("/translate", json={"q": "  1 2\t\r\n\n 3\n", "target": "de"}).json()
    assert found["translatedText"] == f"  {first}\t\r\n\n {second}\n"
    assert "detectedLanguage" not in found, "nothing is detected"


def test_alternatives_of_a_text_join_those_of_its_lines(client: TestClient) -> None:
    found = client.post("/translate", json={"q": ["1 2\n3"], "target": "de", "alternatives": 2}).json()
    (alternatives,) = found["alternatives"]
    assert all(text.count("\n") == 1 for text in [*found["translatedText"], *alternatives])
    assert found["translatedText"][0] not in alternatives


def test_documents_keep_their_markup(client: TestClient) -> None:
    found = client.post("/translate", json={"q": "<p>1 <b>2</b></p>", "target": "de", "format": "html"}).json()
    assert found["translatedText"].startswith("<p>") and found["translatedText"].count("<b>") == 1


@pytest.mark.filterwarnings("ignore:this run was not trained to read terms")
def test_terms_of_a_glossary_are_of_their_request_alone(client: TestClient, runs: dict[str, Path]) -> None:
    body = {"text": ["1 2", "3 4"], "glossary": {"1": ["77", "88"], "4": ""}}
    found = client.post("/v1/translate", json=body).json()["translations"]
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    expected = translator.translate(["1 2", "3 4"], glossary={"1": ["77", "88"], "4": ""})
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert [one["lines"][0]["terms"][0]["is_used"] for one in found] == [True, True]
    plain = client.post("/v1/translate", json={"text": ["1 2", "3 4"]}).json()["translations"]
    assert [one["text"] for one in plain] == [one.text for one in translator.translate(["1 2", "3 4"])]
    assert not any(one["lines"][0]["terms"] for one in plain)


def test_scores_are_those_of_the_library(client: TestClient, runs: dict[str, Path]) -> None:
    translator = attnkit.Translator.load(runs["digits"], device="cpu", threads=1)
    found = client.post("/v1/score", json={"source": ["1 2", "3"], "target": ["2 1", "3"]}).json()
    expected = translator.score(["1 2", "3"], ["2 1", "3"])
    assert [one["signs"] for one in found["scores"]] == [one.signs for one in expected]
    assert [one["log_prob"] for one in found["scores"]] == pytest.approx([one.log_prob for one in expected])
    bert = client.post("/v1/score", json={"model": "bert", "text": "the lazy dog"}).json()["scores"]
    assert bert[0]["log_prob"] == attnkit.MaskedLM.load(runs["bert"], device="cpu").score(["the lazy dog"])[0].log_prob


def test_other_tasks(client: TestClient, runs: dict[str, Path]) -> None:
    masks = client.post("/v1/fill-mask", json={"text": "the [MASK] dog", "top": 2}).json()["results"]
    assert masks[0] == attnkit.MaskedLM.load(runs["bert"], device="cpu").fill(["the [MASK] dog"], top=2)[0].to_dict()
    label = client.post("/v1/predict", json={"model": "mood", "text": "the dog"}).json()["predictions"][0]
    assert label == attnkit.TextClassifier.load(runs["mood"], device="cpu").predict(["the dog"])[0].to_dict()
    tags = client.post("/v1/predict", json={"model": "names", "text": ["ada lives", "who"]}).json()["predictions"]
    assert [len(one["tags"]) for one in tags] == [2, 1]
    asked = {"question": "who sleeps?", "context": "ada lives in london, paris sleeps"}
    assert client.post("/v1/predict", json=asked).json()["predictions"][0]["text"] in asked["context"]
    vectors = client.post("/v1/embed", json={"model": "bert", "text": ["the dog", ""]}).json()["embeddings"]
    assert len(vectors) == 2 and vectors[1] == [0.0] * len(vectors[0])


def test_generated_text_comes_whole_or_in_pieces(client: TestClient, runs: dict[str, Path]) -> None:
    model = attnkit.CausalLM.load(runs["gpt"], device="cpu")
    expected = model.generate(["the lazy"], max_new_tokens=8)[0].text
    body = {"prompt": "the lazy", "max_new_tokens": 8}
    assert client.post("/v1/generate", json=body).json()["texts"][0]["text"] == expected
    with client.stream("POST", "/v1/generate", json={**body, "stream": True}) as response:
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]" and len(events) > 3
    assert "".join(json.loads(event)["text"] for event in events[:-1]) == expected


def test_streams_have_limits_and_end_with_what_went_wrong(
    client: TestClient, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"prompt": "the lazy", "max_new_tokens": 8, "stream": True}

    def events(service: Service) -> list[str]:
        with call(service).stream("POST", "/v1/generate", json=body) as response:
            return [line.removeprefix("data: ") for line in response.iter_lines() if line]

    service = Service(models)
    service.n_streams = models.limits.max_streams
    refused = call(service).post("/v1/generate", json=body)
    assert refused.status_code == 503 and "retry-after" in refused.headers
    service.n_streams = 0
    assert events(service)[-1] == "[DONE]" and service.n_streams == 0
    monkeypatch.setattr(models, "limits", replace(models.limits, seconds=0.0))
    assert json.loads(events(service)[-1]) == {"error": "no end within 0 s"} and service.n_streams == 0
    monkeypatch.undo()

    def fail(*arguments: object, **options: object) -> Iterator[str]:
        yield "a"
        raise ZeroDivisionError

    monkeypatch.setattr(type(models.by_name["gpt"].model), "stream", fail)
    assert [json.loads(event) for event in events(service)] == [
        {"text": "a"},
        {"error": "internal error: ZeroDivisionError"},
    ]


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/translate", {"json": {"q": "1"}}, 400, "target: Field required"),
    ("/translate", {"json": {"q": "1", "target": "fr"}}, 400, "no translator from auto to fr; there are en-de"),
    ("/v2/translate", {"json": {"text": "1", "target_lang": "DE", "formality": "less"}}, 400, "prefer_less"),
    ("/v2/translate", {"json": {"text": "1", "target_lang": "DE", "formality": "formal"}}, 400, "formality"),
    ("/v2/translate", {"json": {"text": "1", "target_lang": "DE", "glossary_id": "x"}}, 400, "no glossaries"),
    ("/translate", {"json": {"q": ["1"] * 21, "target": "de"}}, 413, "21 lines are more than the 20"),
    ("/translate", {"json": {"q": "1" * 2001, "target": "de"}}, 413, "2,001 characters"),
    ("/translate", {"json": {"q": ["1", "2\n" + "1" * 1001], "target": "de"}}, 413, "a line of 1,001 characters"),
    ("/translate", {"json": {"q": "\n" * 20, "target": "de"}}, 413, "21 lines"),
    ("/translate", {"content": b"{"}, 400, "the body is not valid"),
    ("/translate", {"content": b"[1]"}, 400, "not a JSON object"),
    ("/translate", {"content": b"\xff{}"}, 400, "the body is not valid"),
    ("/translate", {"content": b"[" * 10_000}, 400, "the body is not valid"),
    ("/translate", {"content": b"x" * 20_001}, 413, "more than 20,000 bytes"),
    ("/translate", {"content": iter([b"x" * 15_000] * 2)}, 413, "more than 20,000 bytes"),
    ("/translate", {"content": b"x", "headers": {"content-encoding": "gzip"}}, 415, "compressed bodies"),
    ("/translate", {"content": b'{"q": "\\ud800", "target": "de"}'}, 400, "lone surrogate"),
    ("/v1/translate", {"json": {"text": "1", "beams": 3}}, 400, "beams: Extra inputs"),
    ("/v1/translate", {"json": {"text": "1", "beam_size": 7}}, 400, "beam_size is 7; this service allows 6"),
    ("/v1/translate", {"json": {"text": "1", "min_length": 1025}}, 400, "min_length is 1025; this service allows 1024"),
    ("/v1/translate", {"json": {"text": "1", "temperature": 0.5}}, 400, "need sampling"),
    ("/v1/translate", {"json": {"text": "1\n2", "prefix": "3"}}, 400, "one prefix for each text"),
    ("/v1/translate", {"json": {"text": "1", "glossary": {" ": "2"}}}, 400, "has no term"),
    ("/v1/translate", {"json": {"text": "1", "glossary": {"1": "2"}, "sampling": True}}, 400, "not sampling"),
    ("/v1/translate", {"json": {"text": "1", "glossary": {"1": 2}}}, 400, "glossary"),
    ("/v1/translate", {"data": {"text": "1"}}, 415, "Content-Type: application/json, not application/x-www"),
    ("/translate", {"content": b'{"q": "1"}', "headers": {"content-type": FORM}}, 400, "JSON needs the header"),
    ("/translate", {"content": b"{}", "headers": {"content-type": ""}}, 415, "not none"),
    ("/translate", {"content": b"{}", "headers": {"content-type": "text/plain;charset=UTF-8"}}, 415, "not text/plain"),
    ("/v1/translate", {"json": {"text": "1", "model": "../x"}}, 404, "no model '../x'"),
    ("/v1/translate", {"json": {"text": "1", "model": "bert"}}, 400, "of task mlm, not translation"),
    ("/v1/score", {"json": {"source": "1"}}, 400, "give source and target"),
    ("/v1/score", {"json": {"source": ["1", "2"], "target": "1"}}, 400, "one target for each source"),
    ("/v1/score", {"json": {"text": "1"}}, 400, "several models fit, name one: bert, gpt"),
    ("/v1/predict", {"json": {}}, 400, "give text, or question and context"),
    ("/v1/predict", {"json": {"question": ["a", "b"], "context": "c"}}, 400, "2 texts, but 1 of the other"),
    ("/v1/fill-mask", {"json": {"text": "no mask"}}, 400, "no [MASK]"),
    ("/v1/embed", {"json": {"model": "rows", "text": "1"}}, 400, "give 'vector' for model 'rows'"),
    ("/v1/embed", {"json": {"model": "bert", "vector": [1]}}, 400, "give 'text' for model 'bert'"),
    ("/v1/embed", {"json": {"model": "bert"}}, 400, "give 'text' for model 'bert'"),
    ("/v1/embed", {"json": {"model": "rows", "vector": [[1, 2], [1]]}}, 400, "vectors must have one width"),
    ("/v1/embed", {"json": {"model": "rows", "vector": [1e31]}}, 400, "numbers up to 1e+30"),
    ("/v1/embed", {"content": b'{"model": "rows", "vector": [NaN]}'}, 400, "NaN is not a number"),
    ("/v1/embed", {"json": {"model": "rows", "vector": [1, 2]}}, 400, "reads vectors of width"),
    ("/v1/embed", {"json": {"model": "rows", "vector": []}}, 400, "reads vectors of width"),
    ("/v1/embed", {"json": {"model": "rows", "vector": [[1.0]] * 21}}, 413, "at most 20 vectors"),
    ("/v1/similar", {"json": {"word": "dog", "top": 101}}, 400, "top: Input should be less"),
    ("/v1/similar", {"json": {"word": "dog", "model": "bert"}}, 400, "of task mlm, not word2vec"),
    ("/v1/translate", {"json": {"text": "1", "suppress": [""]}}, 400, "suppress.0: String should have"),
    ("/v1/translations", {"json": {"input": "1", "target_language": "de"}}, 400, "text: Field required"),
    ("/v1/generate", {"json": {"prompt": "a", "max_new_tokens": 1025}}, 400, "this service allows 1024"),
    ("/v1/generate", {"json": {"prompt": ["a", "b"], "stream": True}}, 400, "one text can be streamed"),
    ("/detect", {"json": {"q": "1"}}, 501, "does not detect languages"),
    ("/admin/reload", {"json": {}}, 403, "needs an API key"),
]


@pytest.mark.parametrize(("path", "request_", "status", "text"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_requests_are_told_what_is_wrong(
    client: TestClient, path: str, request_: dict[str, Any], status: int, text: str
) -> None:
    given = {"content-type": "application/json"} if "content" in request_ else {}
    response = client.post(path, **{**request_, "headers": {**given, **request_.get("headers", {})}})
    assert (response.status_code, text in response.json()["error"]) == (status, True), response.text
    assert "Traceback" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"


def test_unknown_routes_and_methods(client: TestClient) -> None:
    assert client.get("/nothing").json()["error"] == "no such route"
    assert client.get("/translate").status_code == 405
    assert client.get("/../../etc/passwd").status_code == 404


def test_a_key_opens_what_needs_one(models: Models) -> None:
    closed = call(Service(models, api_key="secret"))
    body = {"q": "1", "target": "de"}
    assert closed.post("/translate", json=body).status_code == 401
    assert closed.post("/translate", json={**body, "api_key": "wrong"}).status_code == 403
    assert closed.post("/translate", json={**body, "api_key": "secret"}).status_code == 200
    for scheme in ("Bearer", "DeepL-Auth-Key"):
        given = {"Authorization": f"{scheme} secret"}
        assert closed.post("/v2/translate", json={"text": "1", "target_lang": "DE"}, headers=given).status_code == 200
    assert closed.get("/metrics").status_code == closed.get("/v1/models").status_code == 401
    assert closed.get("/health").status_code == closed.get("/ready").status_code == 200
    assert closed.post("/admin/reload", headers={"Authorization": "Bearer secret"}, json={}).status_code == 200


def test_pages_of_other_origins_are_refused_unless_named(models: Models, client: TestClient) -> None:
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/translate", headers=asked).headers
    named = call(Service(models, origins=("https://example.org",)))
    allowed = named.options("/translate", headers=asked).headers
    assert allowed["access-control-allow-origin"] == "https://example.org"
    assert all(allowed[name.decode()] == value.decode() for name, value in HEADERS)
    other = {**asked, "Origin": "https://example.com"}
    assert "access-control-allow-origin" not in named.options("/translate", headers=other).headers


def test_what_the_service_says_of_itself(client: TestClient) -> None:
    languages = client.get("/languages").json()
    assert languages[0] == {"code": "en", "name": "English", "targets": ["de"]}
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["target"] == {"code": "de", "name": "German"} and settings["charLimit"] == 2000
    found = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert found["en-de"]["source_lang"] == "en" and found["mood"]["task"] == "text-classification"
    assert not any("path" in model for model in found.values()), "no path of the machine leaves the service"
    assert client.get("/ready").json()["status"] == "ready"


def test_counters_count(models: Models) -> None:
    client = call(Service(models))
    before = models.by_name["en-de"].batcher.counts.n_lines
    client.post("/translate", json={"q": "1\n2", "target": "de"})
    client.post("/translate", json={"q": "1"})
    lines = client.get("/metrics").text.splitlines()
    assert 'attnkit_requests_total{route="/translate",status="200"} 1' in lines
    assert 'attnkit_requests_total{route="/translate",status="400"} 1' in lines
    assert 'attnkit_request_seconds_count{route="/translate"} 2' in lines
    assert f'attnkit_lines_total{{model="en-de"}} {before + 2}' in lines
    names = {line.split("{")[0] for line in lines if not line.startswith("#")}
    declared = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in names} <= declared


def test_a_model_that_fails_takes_no_other_down(
    runs: dict[str, Path], client: TestClient, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("of the model")

    monkeypatch.setattr(type(models.by_name["mood"].model), "predict", fail)
    failed = client.post("/v1/predict", json={"text": "1 2", "model": "mood"})
    assert (failed.status_code, failed.json()["error"]) == (500, "the model failed: ZeroDivisionError")
    assert client.post("/translate", json={"q": "1", "target": "de"}).status_code == 200
    monkeypatch.undo()
    assert client.post("/v1/predict", json={"text": "1 2", "model": "mood"}).status_code == 200


def test_headers_are_on_every_answer(client: TestClient) -> None:
    asked = client.get("/"), client.get("/health"), client.post("/translate", json={}), client.get("/nowhere")
    for response in asked:
        assert all(response.headers[name.decode()] == value.decode() for name, value in HEADERS)
        assert len(response.headers.multi_items()) == len(response.headers), "each once"


def test_methods_and_paths(client: TestClient) -> None:
    assert client.get("/health/").json() == {"status": "ok", "failed": [], "outdated": []}
    assert client.head("/health").status_code == 200
    refused = client.put("/translate", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert client.get("/health/other").status_code == 404


def test_the_page_loads_nothing_from_elsewhere(runs: dict[str, Path]) -> None:
    page = call(Service(Models([f"a.b={runs['digits']}"], LIMITS, device="cpu", precision="float32", threads=1)))
    text = page.get("/").text
    assert "connect-src &#39;self&#39;" in text and "http://" not in text.replace("http://www.w3.org", "")


def test_names_and_languages_of_runs(runs: dict[str, Path], tmp_path: Path) -> None:
    assert languages_of_files("a/train.en.gz", "train.de") == ("en", "de")
    assert languages_of_files("text", "x") == ("src", "tgt")
    assert languages_of_files("text.txt", "train.tgt") == ("src", "tgt"), "suffixes that are not languages"
    assert languages_of_files("a/corpus.jsonl:translation.en", "shards/*.de.gz") == ("en", "de")
    assert parse_spec(f"en:de={runs['digits']}").languages == ("en", "de")
    assert parse_spec(str(runs["digits"])).name == "run"
    assert parse_spec(f"mine={runs['bert']}").name == "mine"
    with pytest.raises(RunError, match="no such run folder"):
        parse_spec(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="two runs are named 'x'"):
        Models([f"x={runs['bert']}", f"x={runs['gpt']}"], LIMITS, device="cpu", precision="float32", threads=1)


def test_a_newer_checkpoint_is_loaded_on_request(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure("transformer", limits__max_steps=2), run)
    models = Models([f"en:de={run}"], LIMITS, device="cpu", precision="float32", threads=2)
    client = call(Service(models, api_key="k"))
    given = {"Authorization": "Bearer k"}
    assert client.post("/admin/reload", json={}, headers=given).json() == {"models": ["en-de: step-2 (unchanged)"]}
    workshop.train(workshop.configure("transformer", limits__max_steps=4), run)
    assert client.post("/admin/reload", json={}, headers=given).json() == {"models": ["en-de: step-4"]}
    # The same name, other weights: trained again, or a newer average.
    shutil.rmtree(run)
    workshop.train(workshop.configure("transformer", limits__max_steps=4, seed=7), run)
    assert client.post("/admin/reload", json={}, headers=given).json() == {"models": ["en-de: step-4"]}
    expected = attnkit.Translator.load(run, device="cpu", threads=1).score(["1 2"], ["3"])[0].log_prob
    scored = client.post("/v1/score", json={"source": "1 2", "target": "3"}, headers=given).json()["scores"][0]
    assert scored["log_prob"] == pytest.approx(expected)
    assert client.post("/admin/reload", json={}, headers=given).json() == {"models": ["en-de: step-4 (unchanged)"]}
    # With the settings of its search, and what is learned of it later.
    shutil.rmtree(run)
    workshop.train(workshop.configure("transformer", limits__max_steps=4, seed=7, decoding__beam_size=7), run)
    assert models.by_name["en-de"].beam_size != 7
    assert client.post("/admin/reload", json={}, headers=given).json() == {"models": ["en-de: step-4"]}
    assert models.by_name["en-de"].beam_size == 7
    (run / "confidence.json").write_text("{}")
    said = client.post("/admin/reload", json={}, headers=given).json()["models"][0]
    assert said.startswith("en-de keeps its model:") and "confidence" in said
    (run / "confidence.json").unlink()
    for path in run.glob("checkpoints/*/manifest.json"):
        path.write_bytes(b"")
    said = client.post("/admin/reload", json={}, headers=given).json()["models"][0]
    assert said.startswith("en-de keeps its model:")
    assert client.get("/ready").json() == {"status": "ready", "models": ["en-de"], "failed": [], "outdated": ["en-de"]}
    assert client.post("/translate", json={"q": "1", "target": "de"}, headers=given).status_code == 200
