"""A run in Marian's own format: CTranslate2's converter for OPUS-MT reads it, and translates as attnkit does."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from readme_example import readme_functions

from attnkit.conversion.export_marian import export_marian
from attnkit.errors import RunError, UsageError
from attnkit.formats.marian import check_marian_format, marian_names, vocabulary_file
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.tasks.translation.translator import load_translator

ctranslate2 = pytest.importorskip("ctranslate2")

ZERO = ["model.norm=post", "model.positions=sinusoidal", "model.decoder_start=zero"]
KINDS = {
    "joint, relu": [*ZERO, "model.activation=relu"],
    "separate, tied target, swish": [
        *ZERO,
        "model.activation=silu",
        "joint_vocabulary=false",
        "model.tie_embeddings=target",
    ],
    "separate, not tied": [*ZERO, "model.activation=relu", "joint_vocabulary=false", "model.tie_embeddings=none"],
}


def converted(folder: Path) -> Any:
    """Return CTranslate2's translator of a folder of Marian's."""
    ctranslate2.converters.OpusMTConverter(str(folder)).convert(str(folder / "ct2"))
    return ctranslate2.Translator(str(folder / "ct2"), device="cpu", compute_type="float32")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if "not tied" in kind else ()) for kind in KINDS]
)
def test_ctranslate2s_converter_reads_it(
    kind: str, train_on_digits: Callable[[Path, list[str]], Path], digits: Path, tmp_path: Path
) -> None:
    run = train_on_digits(tmp_path / "run", KINDS[kind])
    folder = export_marian(run, tmp_path / "marian").path
    lines = (digits / "test.src").read_text().splitlines()[:300]
    here = ('Path(".")', f"Path({str(folder)!r})")  # files are read when they are needed
    functions, theirs = readme_functions(folder, here), converted(folder)
    own = load_translator([run], device="cpu")
    for beam_size in (1, 4):
        expected = own.translate(lines, beam_size=beam_size, length_penalty=1.0, max_length=20)
        tokens = [functions["encode"](line).split(" ") for line in lines]
        results = theirs.translate_batch(tokens, beam_size=beam_size, length_penalty=1, max_decoding_length=20)
        found = [functions["decode"](" ".join(result.hypotheses[0])) for result in results]
        assert len(set(expected)) > 50, "the toy model must have learnt to say different things"
        assert found == expected
    again = export_marian(run, tmp_path / "again").path
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()
    }


def test_the_configuration_is_in_the_model(
    train_on_digits: Callable[[Path, list[str]], Path], digits: Path, tmp_path: Path
) -> None:
    folder = export_marian(
        train_on_digits(tmp_path / "run", [*KINDS["joint, relu"], "limits.max_steps=2"]), tmp_path / "marian"
    ).path
    arrays = np.load(io.BytesIO((folder / "model.npz").read_bytes()))
    text = arrays["special:model.yml"]
    assert text.dtype == np.int8 and text[-1] == 0
    config = yaml.safe_load(text[:-1].tobytes())
    names = (folder / "vocab.yml").read_text().splitlines()
    assert config["dim-vocabs"] == [len(names)] * 2 and config["tied-embeddings-all"] is True
    assert (config["dim-emb"], config["enc-depth"], config["dec-depth"]) == (32, 1, 2)
    assert names[:2] == ['"</s>": 0', '"<unk>": 1'] and not any("<pad>" in name or "<s>" in name for name in names)
    assert arrays["Wemb"].shape == (len(names), 32) and arrays["encoder_l1_ffn_W1"].shape == (32, 64)
    assert all(array.shape[0] == 1 for name, array in arrays.items() if name.split("_")[-1].startswith("b"))


def test_what_marian_cannot_run_is_refused(
    train_on_digits: Callable[[Path, list[str]], Path], digits: Path, tmp_path: Path
) -> None:
    run = train_on_digits(tmp_path / "run", ["model.norm=post", "model.positions=sinusoidal", "limits.max_steps=2"])
    with pytest.raises(RunError, match="starts from a word") as refused:
        export_marian(run, tmp_path / "marian")
    assert refused.value.where == "model.decoder_start" and refused.value.help == "supported: decoder_start zero"
    assert not (tmp_path / "marian").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        export_marian(run, tmp_path / "full")


def test_an_imported_opus_mt_has_its_own_ids_and_pieces(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")
    import sentencepiece
    from translators import marian_folder, sentences

    from attnkit.conversion.import_huggingface import import_huggingface

    marian_folder(tmp_path / "hub", eos=2.5)
    run = import_huggingface(tmp_path / "hub", tmp_path / "run").path
    folder = export_marian(run, tmp_path / "marian").path
    vocabulary = yaml.safe_load((tmp_path / "hub" / "vocab.json").read_text(encoding="utf-8"))
    named = {str(name): id for name, id in vocabulary.items() if name != "<pad>"}
    assert yaml.safe_load((folder / "vocab.yml").read_text(encoding="utf-8")) == named
    lines = sentences()[:100]
    source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    target = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
    results = converted(folder).translate_batch(source.encode(lines, out_type=str), beam_size=1, max_decoding_length=20)
    # Greedily: hypotheses of random weights have nearly equal scores.
    expected = load_translator([run], device="cpu").translate(lines, beam_size=1, max_length=20)
    found = [target.decode(result.hypotheses[0]) for result in results]
    assert found == [line.replace("<unk>", " ⁇ ") for line in expected] and len(set(expected)) > 20


def test_other_models_are_refused_in_the_name_of_marian() -> None:
    for config, lacking in ((RnnConfig(), "of kind 'rnn'"), (TransformerConfig(norm="pre"), "pre-norm")):
        with pytest.raises(RunError, match=f"^Marian does not support .*{lacking}"):
            check_marian_format(config)


def test_names_are_unique_and_have_no_white_space() -> None:
    names = marian_names(["</s>", "<unk>", "a", "a b", "a_b#3", "\n", "", 'q"\\', "é", "\u200b", "\\x41"])
    assert len(set(names)) == 11 and not any(re.search(r"\s", name) or not name for name in names)
    read = yaml.safe_load(vocabulary_file(names))
    assert read == {name: id for id, name in enumerate(names)}
