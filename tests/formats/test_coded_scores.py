"""The probability of a forced language code counts neither in a translation nor in its score."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import torch
from directions import MODELS, Imported, import_twice, write_lines
from translators import sentences

import attnkit
from attnkit.tasks.translation.directions import LanguagePair
from attnkit.tasks.translation.engines import Engine
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.tags import find_code

Call = Callable[..., tuple[int, str, str]]
ENGINES: tuple[Engine, ...] = ("torch", "compiled")


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return import_twice(tmp_path_factory.mktemp("scores"), request.param)


def in_transformers(imported: Imported, languages: LanguagePair, source: str, target: str) -> list[float]:
    """Return the log-probability of each token behind the code, EOS included."""
    pieces = load_translator([imported.run]).src_tokenizer.pieces
    assert pieces is not None
    codes = [pieces.vocabulary[str(find_code(pieces.language_codes, str(one)))] for one in languages]
    src, tgt = ([pieces.order[id] for id in ids] for ids in pieces.encode([source, target]))
    with torch.no_grad():
        given = {
            "input_ids": torch.tensor([[codes[0], *src, 2]]),
            "decoder_input_ids": torch.tensor([[2, codes[1], *tgt]]),
        }
        logits = imported.theirs(**given).logits[0, 1:]
    return logits.log_softmax(-1)[range(len(tgt) + 1), [*tgt, 2]].tolist()


def test_the_code_does_not_count(imported: Imported) -> None:
    translator = attnkit.Translator.load(imported.run, device="cpu", threads=1)
    sources, targets = sentences()[:12], [*sentences()[20:31], ""]
    for pair in (imported.usual, imported.other):
        found = translator.score(sources, targets, src_lang=pair.src, tgt_lang=pair.tgt)
        for source, target, score in zip(sources, targets, found, strict=True):
            expected = in_transformers(imported, pair, source, target)
            assert score.log_prob == pytest.approx(math.fsum(expected), abs=1e-3)
            assert score.log_probs == [pytest.approx([0.0, *expected], abs=1e-3)]
            assert score.n_tokens == len(expected)


def test_a_translation_has_the_scores_of_its_text(imported: Imported) -> None:
    """Translations begin with given targets: what random models write is cut in another way when it is read."""
    sources, targets = sentences()[:60], sentences()[60:120]
    for engine in ENGINES:
        translator = attnkit.Translator.load(imported.run, device="cpu", threads=1, engine=engine)
        pipeline = load_translator([imported.run], engine=engine)
        found = pipeline.stream(sources, pipeline.configure({"token_scores": True}), prefixes=targets)
        for line, score in zip(found, translator.score(sources, targets), strict=True):
            one, (expected,) = line.outputs[0], score.log_probs
            assert one.log_probs is not None
            (ids,), (scores,), n = one.ids, one.log_probs, len(score.ids[0])
            assert ids[:n] == score.ids[0] and scores[:n] == pytest.approx(expected[:n], abs=1e-3)
            assert one.log_prob == pytest.approx(math.fsum(scores), abs=1e-3)
            assert one.n_tokens == len(ids), "with EOS, without the code"
            assert one.mean_log_prob == pytest.approx(math.fsum(scores) / len(ids), abs=1e-4)


def test_perplexity_is_that_of_the_tokens_behind_the_code(imported: Imported, call: Call, tmp_path: Path) -> None:
    sources, targets = sentences()[:5], sentences()[5:10]
    src, tgt = (write_lines(tmp_path / name, lines) for name, lines in (("src", sources), ("tgt", targets)))
    code, out, err = call("score", imported.run, src, tgt, "--summary", "--json")
    assert code == 0, err
    rows = [in_transformers(imported, imported.usual, *pair) for pair in zip(sources, targets, strict=True)]
    every = [score for row in rows for score in row]
    found = json.loads(out)
    assert found["tokens"] == len(every) and found["log_prob"] == pytest.approx(math.fsum(every), abs=1e-2)
    assert found["perplexity"] == pytest.approx(math.exp(-math.fsum(every) / len(every)), rel=1e-3)
