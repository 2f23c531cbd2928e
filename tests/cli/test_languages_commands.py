"""The command lines of several directions: `--pair`, `--bidirectional`, `--tgt-lang`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def files(workshop: Any, tmp_path: Path) -> Path:
    for part in ("train", "valid", "test"):
        for side, language in (("src", "en"), ("tgt", "de")):
            (tmp_path / f"{part}.{language}").write_bytes(workshop.file(f"{part}.{side}").read_bytes())
    return tmp_path


def settings(workshop: Any) -> list[str]:
    changes = {"vocabulary.kind": "word", "vocabulary.min_frequency": 1, "limits__max_steps": 6}
    return [text for one in workshop.settings("transformer", **changes) for text in ("--set", one)]


def test_from_training_to_scores(call: Call, files: Path, workshop: Any) -> None:
    run = files / "run"
    sides = ["--src", files / "train.en", "--tgt", files / "train.de", "--bidirectional"]
    valid = ["--valid-src", files / "valid.en", "--valid-tgt", files / "valid.de"]
    code, out, err = call("train", *sides, *valid, "-o", run, "--preset", "tiny", *settings(workshop))
    assert code == 0, err
    assert "de-en" in out and "en-de" in out and out.rstrip().endswith(f"translate {run} --tgt-lang de")
    test = ["-i", files / "test.en", "-o", files / "out", "--device", "cpu"]
    code, _, err = call("translate", run, *test)
    assert code == 2 and "this run has de, en" in err and "add --tgt-lang de" in err
    assert call("translate", run, *test, "--tgt-lang", "de")[0] == 0
    code, _, err = call("translate", run, *test, "--tgt-lang", "fr")
    assert code == 2 and "unknown target language 'fr'" in err
    pair = [run, files / "test.en", files / "test.de", "--summary", "--json", "--device", "cpu"]
    found = {name: json.loads(call("score", *pair, "--tgt-lang", name)[1])["log_prob"] for name in ("de", "en")}
    assert found["de"] != found["en"]
    code, _, err = call("score", *pair)
    assert code == 2 and "no target language is chosen" in err
    code, out, err = call("attend", run, "1 2", "--tgt-lang", "de", "--json", "--device", "cpu")
    assert code == 0 and json.loads(out)["attention"][0]["keys"][0] == "▁<2de>"
    options = ["-o", files / "cleaned", "--run", run, "--min-log-prob", "-50", "--keep-copies", "--any-language"]
    code, _, err = call("clean", files / "test.en", files / "test.de", *options, "--tgt-lang", "de")
    assert code == 0, err
    assert "-o output.txt --tgt-lang de" in (run / "README.md").read_text()


def test_pairs_are_directions_with_files(call: Call, files: Path, workshop: Any) -> None:
    both = ["--pair", "en:de", files / "train.en", files / "train.de"]
    both += ["--pair", "de:en", files / "train.de", files / "train.en"]
    both += ["--valid-pair", "de:en", files / "valid.de", files / "valid.en"]
    code, out, err = call(
        "train", *both, "-o", files / "run", "--preset", "tiny", *settings(workshop), "--dry-run", "--json"
    )
    assert code == 0, err
    found = json.loads(out)["configuration"]
    assert found["data.directions"]["value"] == ["en:de", "de:en"]
    assert found["data.valid_directions"]["value"] == ["de:en"]
    assert found["data.src"]["value"] == [str(files / "train.en"), str(files / "train.de")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pair", "en:de", "train.en"], "--pair takes languages and two files"),
        (["--pair", "en:de", "train.en", "--bidirectional"], "--pair takes languages and two files"),
        (["--pair=en:de", "train.en"], "--pair takes languages and two files"),
        (["--pair", "ende", "train.en", "train.de"], "'ende' is not of the form en:de"),
        (["--src", "train.en", "--tgt", "train.de", "--set", "data.temperature=5"], "temperature needs directions"),
        (["--pair", "x:x", "train.en", "train.de", "--bidirectional"], "has one language"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(
    call: Call, files: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(files)
    code, _, err = call("train", *arguments, "-o", "run")
    assert code == 2 and message in err, err
    assert not (files / "run").exists()
