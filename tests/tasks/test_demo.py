"""The demo in small: everything it shows, with a corpus and a model of a few seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attnkit import demo
from attnkit.cli.main import main
from attnkit.config import load_yaml
from attnkit.errors import UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "english-french.yaml"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    changes = {"model": {**demo.CONFIG["model"], **sizes}, "limits": {"max_steps": 4}, "decoding": {"beam_size": 2}}
    monkeypatch.setattr(demo, "SIZES", (400, 20, 40))
    monkeypatch.setattr(demo, "CONFIG", {**demo.CONFIG, **changes, "threads": 1})


def run(*arguments: str) -> int:
    sys.argv = ["attnkit", *arguments]
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("small")
def test_the_demo_shows_all_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert run("demo", "-o", str(tmp_path / "a demo")) == 0
    out, err = capsys.readouterr()
    assert "BLEU on 40 unseen sentences: " in out and "nrefs:1|case:mixed|eff:no|tok:13a" in out
    assert "word-by-word baseline with the corpus lexicon: " in out
    assert "I am a student." in out and "The cat sat on the mat." in out
    assert "Attention weights" in out and "</s>" in out
    assert f"attnkit translate '{tmp_path / 'a demo' / 'run'}'" in out, "a path with a space is quoted"
    assert "generating 400 English sentences" in err and "400 train" in err and "step      4  dev" in err
    assert max(map(len, err.splitlines())) <= 80

    assert run("demo", "-o", str(tmp_path / "a demo")) == 0, "shown again at once"
    again, err = capsys.readouterr()
    assert again == out and "dev" not in err


@pytest.mark.usefixtures("small")
def test_the_demo_of_another_seed_is_not_written_over(tmp_path: Path) -> None:
    list(demo.demo(tmp_path, 1, lambda: False))
    before = (tmp_path / "corpus" / "train.en").read_bytes()
    with pytest.raises(UsageError, match="demo with seed 1"):
        list(demo.demo(tmp_path, 2, lambda: False))
    assert (tmp_path / "corpus" / "train.en").read_bytes() == before


def test_the_example_is_the_demo() -> None:
    assert load_yaml(EXAMPLE) == demo.CONFIG
