"""An imported T5 or mT5 goes back to transformers as it came, and to CTranslate2."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import numpy as np
import safetensors.torch
import sentencepiece
import torch
import transformers
from t5_folders import T5_SHAPES
from test_t5_import import ImportedT5
from translators import odd_lines, sentences, tokenizer_of

from attnkit.conversion.export_ctranslate2 import export_ctranslate2
from attnkit.conversion.export_huggingface import export_huggingface
from attnkit.conversion.import_huggingface import import_huggingface
from attnkit.errors import RunError
from attnkit.formats.exportable import check_marian
from attnkit.formats.huggingface.t5 import is_t5
from attnkit.models.config import TransformerConfig
from attnkit.tasks.translation.loading import load_run
from attnkit.tasks.translation.translator import load_translator

GERMAN = "translate English to German:"


@pytest.fixture(scope="module", params=T5_SHAPES)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ImportedT5:
    return ImportedT5(tmp_path_factory.mktemp("t5"), request.param, GERMAN if request.param == "t5" else "")


@pytest.fixture(scope="module")
def back(given: ImportedT5, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_huggingface(given.path, tmp_path_factory.mktemp("back") / "back").path


def test_every_tensor_is_as_it_was(given: ImportedT5, back: Path) -> None:
    expected = safetensors.torch.load_file(given.folder / "model.safetensors")
    found = safetensors.torch.load_file(back / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_transformers_computes_with_it_what_it_did_before(given: ImportedT5, back: Path) -> None:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(back)
    assert type(model) is type(given.theirs)
    ids = torch.randint(3, len(given.order) - 1, (3, 9))
    with torch.no_grad():
        found, expected = (one(input_ids=ids, decoder_input_ids=ids).logits for one in (model, given.theirs))
    assert torch.equal(found, expected)
    lines = [*odd_lines(500), *sentences()[:100], "a <extra_id_0> b<extra_id_99>"]
    tokenizers = tokenizer_of(back), tokenizer_of(given.folder)
    assert tokenizers[0](lines).input_ids == tokenizers[1](lines).input_ids
    assert (back / "spiece.model").read_bytes() == (given.folder / "spiece.model").read_bytes()


def test_an_import_of_the_export_is_the_run(given: ImportedT5, back: Path, tmp_path: Path) -> None:
    again = load_run(import_huggingface(back, tmp_path / "run").path, device="cpu")
    assert again.config.model == given.run.config.model
    assert again.tgt_tokenizer.fingerprint == given.run.tgt_tokenizer.fingerprint
    state, expected = again.model.state_dict(), given.run.model.state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_the_example_of_the_readme_puts_the_prefix_before_texts(given: ImportedT5, back: Path) -> None:
    text = (back / "README.md").read_text()
    assert (f'["{GERMAN} " + line for line' in text) == bool(given.run.src_tokenizer.code_ids)
    made = export_huggingface(given.path, given.place / "warned")
    assert any(GERMAN in warning for warning in made.warnings) == bool(given.run.src_tokenizer.code_ids)


def test_ctranslate2_finds_the_same(given: ImportedT5, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, lines = export_ctranslate2(given.path, tmp_path / "ct2").path, sentences()[:60]
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    before = given.run.src_tokenizer.code_ids and model.encode(GERMAN, out_type=str)
    tokens = [[*before, *model.encode(line, out_type=str)] for line in lines]
    targets = [model.encode(line, out_type=str) for line in lines[::-1]]
    scored = translator.score_batch(tokens, targets)
    pieces = given.run.tgt_tokenizer.encode(lines[::-1])
    for line, ids, row, one in zip(given.run.src_tokenizer.encode(lines), pieces, tokens, scored, strict=True):
        assert len(line) == len(row)
        given_ids = torch.tensor([[1, *ids]])
        with torch.no_grad():
            logits = given.run.model.head(given.run.model.hidden(torch.tensor([[*line, 2]]), None, given_ids))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor([[*ids, 2]]).T)[:, 0]
        np.testing.assert_allclose(one.log_probs, expected.numpy(), rtol=0, atol=2e-3)
    results = translator.translate_batch(tokens, beam_size=1, max_decoding_length=12)
    names = [model.decode(result.hypotheses[0]) for result in results]
    found = load_translator([given.path]).translate(lines, beam_size=1, max_length=12)
    same = [ours.strip() == theirs for ours, theirs in zip(found, names, strict=True) if "<" not in theirs + ours]
    assert "⁇" in "".join(names) or same.count(False) <= len(same) // 10


MADE = {"norm": "pre", "normalization": "rms", "positions": "relative", "alignment": "dot", "bias": False}
MADE |= {"scaled_input": False, "output_bias": False}  # type: ignore[dict-item]


def test_the_layout_is_told_by_its_options() -> None:
    assert is_t5(TransformerConfig.model_validate(MADE))
    for change in ({"norm": "post"}, {"bias": True}, {"alignment": "scaled_dot"}, {"tie_embeddings": "target"}):
        assert not is_t5(TransformerConfig.model_validate({**MADE, **change}))
    assert not is_t5(TransformerConfig.model_validate({**MADE, "glu": True, "activation": "gelu"}))
    assert is_t5(TransformerConfig.model_validate({**MADE, "glu": True, "activation": "gelu_tanh"}))
    with pytest.raises(RunError, match="this export does not support T5 and mT5"):
        check_marian(TransformerConfig.model_validate(MADE))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"glu": True}, "Marian with glu True"),
        ({"bias": False}, "Marian with bias False"),
        ({"normalization": "rms"}, "Marian with normalization rms"),
        ({"head_width": 8}, "Marian with head_width 8"),
        ({"scaled_input": False}, "Marian with scaled_input False"),
        ({"output_bias": False}, "Marian with output_bias False"),
        ({"tie_embeddings": "inputs"}, "Marian with an output layer of its own"),
    ],
)
def test_what_no_marian_has_is_not_exported_as_one(change: dict[str, object], said: str) -> None:
    with pytest.raises(RunError, match=said):
        check_marian(TransformerConfig.model_validate(change))
