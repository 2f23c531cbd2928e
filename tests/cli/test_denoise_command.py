"""``attnkit train --denoise``: from text to a restored model, and on to pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]
TINY = ["--preset", "tiny", "--max-steps", "4", "--threads", "1", "--device", "cpu"]
TINY += ["--set", "model.d_model=16", "--set", "model.n_heads=2", "--set", "model.d_ff=32"]
TINY += ["--set", "vocabulary.size=400"]


@pytest.fixture
def mono(workshop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for language, side in (("en", "src"), ("de", "tgt")):
        Path(f"a.{language}").write_text(workshop.file(f"train.{side}").read_text())
        Path(f"v.{language}").write_text(workshop.file(f"valid.{side}").read_text())
    return tmp_path


def test_a_pretrained_run_goes_on_with_pairs(call: Call, mono: Path) -> None:
    text = ["--denoise", "a.en", "--denoise", "a.de", "--valid-data", "v.en", "--valid-data", "v.de"]
    code, out, _ = call("train", *text, "-o", "restored", *TINY)
    assert code == 0 and "attnkit translate restored --tgt-lang en" in out
    rows = [json.loads(line) for line in Path("restored/metrics.jsonl").read_text().splitlines()]
    assert {"bleu_en_en", "bleu_de_de", "loss"} <= rows[-1].keys()
    code, out, _ = call("train", *text, "-o", "restored", *TINY)
    assert code == 0 and "is finished" in out
    pairs = ["--src", "a.en", "--tgt", "a.de", "--init-from", "restored", "-o", "run", "--max-steps", "2"]
    code, _, err = call("train", *pairs)
    assert code == 2 and "help: name the direction: --pair en:de SRC TGT" in err
    pairs = ["--pair", "en:de", "a.en", "a.de", "--init-from", "restored", "-o", "run", "--max-steps", "2"]
    code, out, _ = call("train", *pairs, "--accept-data", "--threads", "1")
    assert code == 0 and "attnkit translate run --tgt-lang de" in out
    code, _, err = call("report", "restored", "run", "-o", "report.html")
    assert code == 0, err


def test_a_dry_run_and_a_plan_count_lines(call: Call, mono: Path) -> None:
    code, out, _ = call("train", "--denoise", "a.en", "--dry-run", *TINY)
    assert code == 0 and "160 lines, about" in out and "data.denoise.mask_prob" in out
    code, out, _ = call("train", "--denoise", "a.en", "--dry-run", "--json", *TINY)
    assert code == 0 and json.loads(out)["configuration"]["data.denoise.span_length"]["value"] == 3.0
    given = ["--src", "a.en", "--tgt", "a.en", "--set", "data.denoise.mask_prob=0.35", "--rate", "1000"]
    code, out, err = call("plan", *given, "--preset", "tiny")
    assert code == 0, err


@pytest.mark.parametrize(
    ("more", "message", "help"),
    [
        (["--src", "a.en", "--tgt", "a.de"], "--denoise and --src cannot be combined", "with --init-from"),
        (["--pair", "en:de", "a.en", "a.de"], "--denoise and --pair cannot be combined", "with --init-from"),
        (["--valid-src", "v.en"], "--denoise and --valid-src cannot be combined", "use --valid-data FILE"),
        (["--task", "autoencode"], "--denoise and --task autoencode cannot be combined", "leave out --task"),
        (["--valid-data", "blank.en"], "no line left for validation", "give --valid-data"),
        (["--bidirectional"], "--denoise and --bidirectional cannot be combined", "with --init-from"),
        (["--denoise", "missing.en"], "missing.en", ""),
        (["--set", "data.denoise.mask=1"], "data.denoise.mask", "mask_prob"),
    ],
)
def test_wrong_input_is_refused(call: Call, mono: Path, more: list[str], message: str, help: str) -> None:
    Path("blank.en").write_text("\n\n")
    code, _, err = call("train", "--denoise", "a.en", *more, "-o", "run", *TINY)
    assert code in (2, 3) and message in err and help in err
    assert len(err.strip().splitlines()) <= 3 and not Path("run").exists()


def test_a_translator_is_denoised_once_it_has_the_mask(call: Call, mono: Path, trained: Path) -> None:
    given = ["train", "--denoise", "a.en", "--init-from", trained, "-o", "run", "--max-steps", "2", "--threads", "1"]
    code, _, err = call(*given)
    assert code == 2 and 'help: add --add-symbols "<mask>" to --init-from' in err and not Path("run/best").exists()
    code, _, err = call(*given, "--add-symbols", "<mask>", "--overwrite")
    assert code == 0, err
    Path("in.txt").write_text("1 <mask> 3\n")
    code, out, _ = call("translate", "run", "-i", "in.txt")
    assert code == 0 and len(out.splitlines()) == 1
