"""One damaged run takes no other down, at the start or at a reload; all damaged: there is nothing to serve."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from attnkit.errors import RunError, UsageError
from attnkit.serving import models as served
from attnkit.serving.app import Service
from attnkit.serving.limits import Limits
from attnkit.serving.models import Models


def call(models: Models) -> TestClient:
    return TestClient(Service(models, api_key="k").app(), headers={"Authorization": "Bearer k"})


def serve(*specs: str, tell: Any = lambda text: None) -> Models:
    return Models(specs, Limits(), device="cpu", precision="float32", threads=1, tell=tell)


def damage(run: Path) -> None:
    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("how", ["missing", "damaged", "anything"])
def test_the_others_are_served(trained: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, said = tmp_path / "bad", []
    if how != "missing":
        shutil.copytree(trained, bad)
    if how == "damaged":
        damage(bad)
    if how == "anything":
        load = served.load

        def fail(path: Path, **options: Any) -> Any:
            if path == bad:
                raise ZeroDivisionError("deep\ninside")
            return load(path, **options)

        monkeypatch.setattr(served, "load", fail)
    models = serve(f"de:en={bad}", f"en:de={trained}", tell=said.append)
    (warning,) = said
    assert warning.startswith("de-en is not served: ") and "\n" not in warning
    client = call(models)
    assert client.get("/ready").json() == {"status": "ready", "models": ["en-de"], "failed": ["de-en"], "outdated": []}
    assert client.get("/health").json() == {"status": "ok", "failed": ["de-en"], "outdated": []}
    assert 'attnkit_model_up{model="de-en"} 0' in client.get("/metrics").text.splitlines()
    assert client.post("/translate", json={"q": "1", "source": "en", "target": "de"}).status_code == 200
    for path, body in (
        ("/translate", {"q": "1", "source": "de", "target": "en"}),
        ("/v1/translate", {"text": "1", "model": "de-en"}),
    ):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]) == (503, "model 'de-en' could not be loaded")
    assert str(tmp_path) not in client.get("/ready").text, "no path of the machine leaves the service"

    # Mended, it is served after a reload, in its place.
    (again,) = [one for one in client.post("/admin/reload").json()["models"] if one.startswith("de-en")]
    assert again.startswith("de-en is not served: ")
    monkeypatch.undo()
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(trained, bad)
    client.post("/admin/reload")
    assert client.get("/ready").json()["models"] == ["de-en", "en-de"] and not models.failed
    assert client.post("/translate", json={"q": "1", "source": "de", "target": "en"}).status_code == 200


def test_a_reload_that_raises_anything_keeps_the_model(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = serve(f"en:de={trained}")
    client = call(models)

    def fail(path: Path, **options: Any) -> Any:
        raise IndexError("of a damaged folder")

    monkeypatch.setattr(served, "load", fail)
    model = models.by_name["en-de"]
    model._loaded = replace(model._loaded, state=b"")  # so that there is a newer one
    (said,) = client.post("/admin/reload").json()["models"]
    assert said == "en-de keeps its model: IndexError: of a damaged folder"
    assert client.get("/health").json()["outdated"] == ["en-de"]
    assert client.post("/translate", json={"q": "1", "target": "de"}).status_code == 200


def test_a_run_that_has_another_task_now_is_not_loaded(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["digits"], tmp_path / "run"))
    client = call(serve(f"en:de={run}"))
    shutil.rmtree(run)
    shutil.copytree(runs["bert"], run)
    (said,) = client.post("/admin/reload").json()["models"]
    assert said == "en-de keeps its model: the run is of task mlm now, not translation"
    assert client.post("/translate", json={"q": "1", "target": "de"}).status_code == 200


def test_without_any_run_nothing_is_served(tmp_path: Path, trained: Path) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(trained, bad)
    damage(bad)
    with pytest.raises(RunError):
        serve(str(bad), str(tmp_path / "none"))
    with pytest.raises(RunError, match="no such run folder"):
        serve(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="two runs are named 'x'"):
        serve(f"x={tmp_path / 'a'}", f"x={tmp_path / 'b'}", f"en:de={trained}")
    with pytest.raises(RunError):
        serve("")


def test_a_run_that_an_option_does_not_suit_takes_no_other_down(
    workshop: Any, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.train(workshop.configure("rnn", limits__max_steps=1), tmp_path / "rnn")
    said: list[str] = []

    def serve_int8(*specs: str) -> Models:
        return Models(specs, Limits(), device="cpu", precision="int8", threads=1, tell=said.append)

    models = serve_int8(f"slow={tmp_path / 'rnn'}", f"en:de={trained}")
    assert list(models.by_name) == ["en-de"] and said[0].startswith("slow is not served: ") and "int8" in said[0]
    with pytest.raises(UsageError, match="int8"):
        serve_int8(f"slow={tmp_path / 'rnn'}")


def test_a_run_that_was_trained_anew_in_other_directions_is_served_in_them(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def train(direction: str) -> None:
        shutil.rmtree(run, ignore_errors=True)
        config = workshop.configure("transformer", limits__max_steps=2)
        data = config.data.model_copy(update={"directions": (direction,), "valid_directions": (direction,)})
        tag = f"<2{direction[3:]}>"
        vocabulary = config.vocabulary.model_copy(update={"symbols": (tag,)})
        workshop.train(config.model_copy(update={"data": data, "vocabulary": vocabulary}), run)

    train("en:de")
    client = call(models := serve(str(run)))

    def found() -> tuple[list[str], Any, str, tuple[str, str]]:
        languages = [one["code"] for one in client.get("/languages").json()]
        target = client.get("/frontend/settings").json()["language"]["target"]["code"]
        (one,) = client.get("/v1/models").json()["models"]
        return languages, models.translators()[0].languages, target, (one["source_lang"], one["target_lang"])

    assert found() == (["en", "de"], ("en", "de"), "de", ("en", "de"))
    assert client.post("/translate", json={"q": "1", "source": "en", "target": "de"}).status_code == 200
    train("en:fr")
    client.post("/admin/reload")
    assert found() == (["en", "fr"], ("en", "fr"), "fr", ("en", "fr"))
    assert client.post("/translate", json={"q": "1", "source": "en", "target": "fr"}).status_code == 200
    refused = client.post("/translate", json={"q": "1", "source": "en", "target": "de"})
    assert refused.status_code == 400 and "there are en-fr" in refused.json()["error"]
    assert "French" in client.get("/").text and "German" not in client.get("/").text
