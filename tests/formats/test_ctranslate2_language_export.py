"""Exported encoders, classifiers and generators give in CTranslate2 what they give here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from hub_runs import ODD, SIZES, TEXT, configure, save_run, shaken, vocabulary
from readme_example import example, readme_functions

from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.kernels.simd.targets import host_features
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.tasks.language_modeling.generate import Generator
from attnkit.tasks.language_modeling.generate import search_config as settings
from attnkit.tasks.language_modeling.score import score_texts

LIMIT = 12  #: tokens that are generated
PROMPTS = [*TEXT[:6], *ODD, *(" ".join(line.split()[:n]) for line in TEXT[:6] for n in range(1, 6))]
NEAR: dict[str, Any] = {"rtol": 0, "atol": 1e-4}


def save_random(path: Path, task: str, kind: str = "bpe", **model: Any) -> Path:
    """Write a run of random weights."""
    torch.manual_seed(1)
    words = vocabulary(kind) if task == "mlm" else vocabulary(kind, symbols=[])
    config: Any = configure(task, words, **model)
    made = (Bert if task == "mlm" else Gpt)(config.model, words.vocab_size)
    return save_run(path, config, shaken(made), words)


def check_generator(run: Path, folder: Path, n_positions: int = 512) -> None:
    """Check logits, scores, and the texts that the README generates."""
    export_ctranslate2(run, folder)
    opened = load_model(run, "clm", device="cpu")
    words = read_tokenizer(opened.checkpoint)
    names = json.loads((folder / "vocabulary.json").read_text())
    rows = [[1, *words.encode([line])[0]] for line in PROMPTS]
    rows = [row for row in rows if len(row) < n_positions - LIMIT]
    prompts = [line for line in PROMPTS if len(words.encode([line])[0]) + 1 < n_positions - LIMIT]
    assert len(prompts) > 40
    generator = ctranslate2.Generator(str(folder), compute_type="float32", intra_threads=1)
    for row in rows:
        with torch.no_grad():
            expected = opened.model.head(opened.model.hidden(torch.tensor([row]), PackedLayout.unpacked(1))).numpy()
        found = np.array(generator.forward_batch([[names[id] for id in row]]))
        np.testing.assert_allclose(found, expected, **NEAR)
    scores = score_texts(opened, prompts)
    for score, row in zip(scores, rows, strict=True):
        log_probs = generator.score_batch([[names[id] for id in row]])[0].log_probs
        np.testing.assert_allclose(log_probs, score.token_log_probs, **NEAR)
    greedy = Generator(opened, settings({"max_length": LIMIT}), n_positions)  # a window that holds all texts
    expected_texts = [made[0] for made in greedy.generate(prompts)]
    functions, decoded = readme_functions(folder), list[list[int]]()
    of_pieces = words.pieces is not None
    given, method = ("pieces", "decode_pieces") if of_pieces else ("tokenizer", "decode")
    decode, encode = getattr(functions[given], method), functions[given].encode

    def recorded(tokens: list[Any]) -> str:
        decoded.append([names.index(token) for token in tokens] if of_pieces else tokens)
        return str(decode(tokens))

    functions[given] = SimpleNamespace(encode=encode, **{method: recorded})
    found_texts = functions["generate"](prompts, LIMIT)
    for line, one, found, ids in zip(prompts, expected_texts, found_texts, decoded, strict=True):
        assert words.tokens(ids) == [*words.tokens(greedy.encode(line)[1:]), *one.pieces]
        # tokenizers gives other replacement characters for bytes that are no text.
        assert found == one.text or "\ufffd" in one.text
    assert len(set(found_texts)) > 30, "the test needs texts that differ"
    for row, text in zip(rows, words.decode(row[1:] for row in rows), strict=True):
        assert decode([names[id] for id in row[1:]] if of_pieces else row[1:]) == text


GPTS: dict[str, dict[str, Any]] = {
    "as GPT-2": {"positions": "learned"},
    "post-norm, sinusoids, pieces of words": {"positions": "sinusoidal", "norm": "post", "kind": "wordpiece"},
    "ALiBi, characters": {"positions": "alibi", "kind": "char", "tie_embeddings": False},
    "as Llama, unigrams": {
        "positions": "rotary",
        "normalization": "rms",
        "glu": True,
        "bias": False,
        "n_key_value_heads": 2,
        "kind": "unigram",
    },
    "words": {"positions": "rotary", "kind": "word"},
}


@pytest.mark.parametrize("name", GPTS)
def test_a_generator_says_the_same(name: str, tmp_path: Path) -> None:
    run = save_random(tmp_path / "run", "clm", **GPTS[name])
    learned = GPTS[name]["positions"] == "learned"
    check_generator(run, tmp_path / "out", SIZES["max_length"] if learned else 512)


def features_here(run: Path, line: str) -> np.ndarray:
    """Return the features of a text in a row of its own."""
    opened = load_model(run, "mlm", device="cpu")
    ids = torch.tensor([[1, *read_tokenizer(opened.checkpoint).encode([line])[0], 2]])
    with torch.no_grad():
        found: np.ndarray = opened.model.hidden(ids, PackedLayout.unpacked(1))[0].numpy()
    return found


def check_encoder(run: Path, folder: Path, limit: int) -> None:
    """Check the features that the README computes, of many texts together."""
    done = export_ctranslate2(run, folder)
    assert any("the masked-LM head is not exported" in text for text in done.warnings)
    words = read_tokenizer(load_model(run, "mlm", device="cpu").checkpoint)
    texts = [line for line in PROMPTS if len(words.encode([line])[0]) <= limit - 2 and "▁" not in line]
    assert len(texts) > 40
    for line, found in zip(texts, readme_functions(folder)["features"](texts), strict=True):
        np.testing.assert_allclose(found, features_here(run, line), **NEAR)


BERTS: dict[str, dict[str, Any]] = {
    "as BERT": {"positions": "learned"},
    "as attnkit's own": {"positions": "rotary", "n_segments": 1, "kind": "unigram"},
    "pre-norm, gated, sinusoids": {"positions": "sinusoidal", "norm": "pre", "glu": True, "kind": "wordpiece"},
    "next sentence": {"positions": "learned", "next_sentence": True, "kind": "char"},
}


@pytest.mark.parametrize("name", BERTS)
def test_an_encoder_has_the_same_features(name: str, tmp_path: Path) -> None:
    run = save_random(tmp_path / "run", "mlm", **BERTS[name])
    check_encoder(run, tmp_path / "out", SIZES["max_length"])
    if name != "next sentence":
        return
    opened = load_model(run, "mlm", device="cpu")
    ids = torch.tensor([[1, *read_tokenizer(opened.checkpoint).encode(["the fox"])[0], 2]])
    encoder = ctranslate2.Encoder(str(tmp_path / "out"), compute_type="float32", intra_threads=1)
    with torch.no_grad():
        hidden = opened.model.hidden(ids, PackedLayout.unpacked(1))
        expected = opened.model.next_sentence.pooler(hidden[:, 0]).numpy()
    np.testing.assert_allclose(np.array(encoder.forward_batch(ids.tolist()).pooler_output), expected, **NEAR)


@pytest.mark.parametrize("quantization", ["float16", "bfloat16", "int16", "int8"])
@pytest.mark.parametrize("task", ["mlm", "clm"])
def test_weights_are_smaller_and_nearly_the_same(task: str, quantization: Any, tmp_path: Path) -> None:
    positions = {"positions": "rotary", "d_model": 64}
    run = save_random(tmp_path / "run", task, **positions)
    sizes, found = {}, {}
    for kind in ("float32", quantization):
        sizes[kind] = export_ctranslate2(run, tmp_path / kind, quantization=kind).path.joinpath("model.bin").stat()
        loaded: Any = (ctranslate2.Encoder if task == "mlm" else ctranslate2.Generator)(
            str(tmp_path / kind), compute_type="float32", intra_threads=1
        )
        output = loaded.forward_batch([[1, 5, 9, 300, 41, 2]])
        found[kind] = np.array(output.last_hidden_state if task == "mlm" else output)
    assert sizes[quantization].st_size < 0.65 * sizes["float32"].st_size
    error = np.abs(found[quantization] - found["float32"]).max() / np.abs(found["float32"]).max()
    assert 0 < error < 0.05
    # What a reader chooses to compute in. Without VNNI, its sums of two products of bytes are cut at 16 bits (oneDNN,
    # "Nuances of int8 Computations"), which random weights exceed.
    if quantization == "int8" and "avx512vnni" in host_features():
        fast = type(loaded)(str(tmp_path / "int8"), compute_type="int8", intra_threads=1)
        output = fast.forward_batch([[1, 5, 9, 300, 41, 2]])
        error = np.abs(np.array(output.last_hidden_state if task == "mlm" else output) - found["float32"]).max()
        assert error < 0.1 * np.abs(found["float32"]).max()


def test_the_examples_need_neither_attnkit_nor_torch(tmp_path: Path) -> None:
    absent = "import sys\nsys.modules.update(torch=None, attnkit=None, transformers=None)\n"
    for task, model in (("clm", GPTS["as GPT-2"]), ("mlm", BERTS["as BERT"])):
        folder = export_ctranslate2(save_random(tmp_path / task, task, **model), tmp_path / f"{task}-ct2").path
        program = absent + example(folder)
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("The cat" if task == "clm" else "[")
        needed = set(re.findall(r"^(?:from|import) (\w+)", example(folder), re.MULTILINE))
        assert needed <= {"json", "pathlib", "numpy", "ctranslate2", "tokenizers"}


def test_nothing_is_written_of_what_is_refused(tmp_path: Path) -> None:
    run = save_random(tmp_path / "run", "mlm", positions="alibi")
    with pytest.raises(RunError, match="encoders with alibi positions") as caught:
        export_ctranslate2(run, tmp_path / "out")
    assert "model.positions" in str(caught.value.where) and "supported: " in str(caught.value.help)
    assert not (tmp_path / "out").exists()
